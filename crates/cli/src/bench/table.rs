//! The readable form of results.
//!
//! Inputs → outputs: the runs of one size after the other → a table whose columns depend on what
//! was measured. The column "vs tcp" is the median of the ratios of runs made side by side.

use super::args::Plan;
use super::control::{Bench, Transport};
use super::mesh;
use super::result::{Row, Run, median_of, ratio};
use super::runner::SizeRuns;
use crate::cells::{dash, human_bytes, human_count, number, right};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, Table};

/// What a transport is compared with.
const BASE: Transport = Transport::Tcp;

/// A table under construction.
pub struct ResultTable {
    bench: Bench,
    /// The stream has latencies.
    paced: bool,
    members: usize,
    table: Table,
}

impl ResultTable {
    /// An empty table for what the plan measures.
    pub fn new(plan: &Plan) -> Self {
        let mut table = Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let (bench, paced, members) = (plan.bench, plan.rate_per_s.is_some(), plan.members);
        Self { bench, paced, members, table }.with_header()
    }

    /// Adds a row per transport: `rows`, of the runs of one size.
    pub fn add(&mut self, results: &SizeRuns, rows: &[Row]) {
        let base = results.iter().find(|(transport, _)| *transport == BASE);
        for (index, ((_, runs), row)) in results.iter().zip(rows).enumerate() {
            let against = base.and_then(|(_, base)| ratio(runs, base));
            let size = if index == 0 { human_bytes(row.size as f64) } else { String::new() };
            let mut cells = vec![Cell::new(size), Cell::new(row.transport)];
            cells.extend(self.figures(row, runs, against).into_iter().map(right));
            self.table.add_row(cells);
        }
    }

    fn with_header(mut self) -> Self {
        let figures: &[&str] = match (self.bench, self.paced) {
            (Bench::Pingpong, _) => {
                &["round trip µs", "p99 µs", "vs tcp", "lost", "sent again", "CPU µs/msg"]
            }
            (Bench::Burst, _) => &["sent", "lost", "first loss at", "sent again", "CPU µs/msg"],
            (Bench::Stream, false) => &["msgs/s", "bytes/s", "vs tcp", "lost", "sent again", "CPU µs/msg"],
            (Bench::Stream, true) => &["one way µs", "p99 µs", "vs tcp", "lost", "sent again", "CPU µs/msg"],
            (Bench::Mesh | Bench::Gather | Bench::Rate, _) => {
                &["time ms", "msgs/s", "vs tcp", "lost", "descriptors", "memory", "sent again", "CPU µs/msg"]
            }
        };
        let mut header = vec![Cell::new("size"), Cell::new("transport")];
        header.extend(figures.iter().map(|name| right((*name).to_owned())));
        self.table.set_header(header);
        self
    }

    fn figures(&self, row: &Row, runs: &[Run], against: Option<f64>) -> Vec<String> {
        let again = row.retransmitted.map_or_else(dash, |count| count.to_string());
        let cpu = number(row.cpu_us_per_msg, 2);
        let against = number(against, 2);
        match (self.bench, self.paced) {
            (Bench::Pingpong, _) | (Bench::Stream, true) => {
                let (median, p99) = (number(row.median_us, 1), number(row.p99_us, 1));
                vec![median, p99, against, row.lost.to_string(), again, cpu]
            }
            (Bench::Burst, _) => {
                let first = median_of(runs, |run| run.first_loss_at.map(|at| at as f64));
                vec![row.n.to_string(), row.lost.to_string(), number(first, 0), again, cpu]
            }
            (Bench::Stream, false) => {
                let bytes = row.bytes_per_s.map_or_else(dash, |rate| human_bytes(rate) + "/s");
                vec![human_count(row.msgs_per_s), bytes, against, row.lost.to_string(), again, cpu]
            }
            (Bench::Mesh | Bench::Gather | Bench::Rate, _) => {
                let own = mesh::Figures::new(self.members, runs);
                let time = number(own.time_ms, 1);
                let descriptors = own.descriptors.map_or_else(dash, |count| count.to_string());
                let memory = own.memory_bytes.map_or_else(dash, |bytes| human_bytes(bytes as f64));
                let rate = human_count(row.msgs_per_s);
                vec![time, rate, against, row.lost.to_string(), descriptors, memory, again, cpu]
            }
        }
    }
}

impl std::fmt::Display for ResultTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.table.fmt(f)
    }
}
