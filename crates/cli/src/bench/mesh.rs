//! What a mesh shows beside the figures of every benchmark: what it takes of a process, and how long all take.
//!
//! Inputs → outputs: the runs of one transport and size → [`Figures`], for the table; with their [`result::Row`] a
//! [`Row`], whose fields are the interface of `--json`.

use super::result::{self, Run, median_of};
use serde::Serialize;

/// What a mesh has of its own: medians over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Processes.
    pub nodes: usize,
    /// From the first process's start to the last one's end, ms.
    pub time_ms: Option<f64>,
    /// Descriptors of the process that has most.
    pub descriptors: Option<u64>,
    /// Resident memory of the process that has most, bytes.
    pub memory_bytes: Option<u64>,
}

impl Figures {
    /// Of runs between so many processes.
    pub fn new(nodes: usize, runs: &[Run]) -> Self {
        Self {
            nodes,
            time_ms: median_of(runs, |run| Some(run.elapsed_ms)),
            descriptors: median_count(runs, |run| run.descriptors),
            memory_bytes: median_count(runs, |run| run.resident_bytes),
        }
    }
}

/// The median of what is counted in whole numbers: of an even number of runs, the nearest to their middle.
fn median_count(runs: &[Run], count: impl Fn(&Run) -> u64) -> Option<u64> {
    median_of(runs, |run| Some(count(run) as f64)).map(|median| median.round() as u64)
}

/// A line of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row<'a> {
    /// The fields of every benchmark.
    #[serde(flatten)]
    pub common: &'a result::Row,
    /// And a mesh's own.
    #[serde(flatten)]
    pub own: Figures,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_the_table_says() {
        let run = |descriptors, elapsed_ms| Run { descriptors, elapsed_ms, ..Run::default() };
        let runs = [run(6, 10.0), run(8, 30.0), run(7, 20.0)];
        let common = result::Row::named("mesh", "tcp", 64, &runs);
        let own = Figures::new(4, &runs);
        let line = serde_json::to_value(Row { common: &common, own }).unwrap();
        assert_eq!((&line["bench"], &line["size"], &line["nodes"]), (&"mesh".into(), &64.into(), &4.into()));
        assert_eq!((&line["time_ms"], &line["descriptors"]), (&20.0.into(), &7.into()));
        assert_eq!(line["memory_bytes"], 0);
        assert_eq!(Figures::new(4, &runs[..2]).descriptors, Some(7));
    }
}
