//! What the points of a figure are to each other, to the [`Model`] and to the paper.
//!
//! Inputs → outputs: the rows of a figure → [`Compared`] for each, from which JSON, the words below the table and
//! the picture all take what they say.

use super::model::Model;
use super::{Figure, MAX_LAYERS, Row};
use serde::Serialize;

/// How a row compares: fields of `--json`, null where there is nothing to compare with.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Compared {
    /// Time as a multiple of that of one layer in one thread.
    pub of_one_layer: Option<f64>,
    /// Throughput as a multiple of that of the same layers in one thread.
    pub speedup: Option<f64>,
    /// What the model says with a core for each thread, ns per PDU.
    pub model_ns: Option<f64>,
    /// How far that is from what was measured, where each thread had a core: 0 is exact, 0.1 a tenth too much.
    pub model_error: Option<f64>,
    /// The model's costs per PDU, ns: of the user, of a layer, of a pair of queues between two threads.
    pub model_user_ns: Option<f64>,
    pub model_layer_ns: Option<f64>,
    pub model_hand_over_ns: Option<f64>,
    /// The paper's time, us per PDU, where it gives one: with a processor for each layer.
    pub paper_us: Option<f64>,
}

/// Compares the rows of a figure, measured with so many cores.
pub fn compare(figure: Figure, cores: usize, rows: &mut [Row]) {
    let compared: Vec<Compared> = rows.iter().map(|row| Compared::new(figure, cores, row, rows)).collect();
    for (row, compared) in rows.iter_mut().zip(compared) {
        row.compared = compared;
    }
}

impl Compared {
    fn new(figure: Figure, cores: usize, row: &Row, rows: &[Row]) -> Self {
        let time = |layers: usize, threads: usize| {
            let found = |other: &&Row| {
                figure.axis_of(other) == figure.axis_of(row)
                    && (other.layers, other.threads) == (layers, threads)
            };
            rows.iter().find(found).map(|row| row.ns_per_pdu)
        };
        let together: Vec<f64> = (1..=MAX_LAYERS).map_while(|layers| time(layers, 1)).collect();
        let equal = figure.has_equal_layers();
        // With one core two threads take turns, and show no hand-over.
        let split = time(2, 2).filter(|_| equal && cores > 1);
        let model = split.and_then(|split| Model::fit(&together, split));
        let model_ns = model.map(|model| model.predict(&row.groups));
        let has_cores = row.threads <= cores;
        Self {
            of_one_layer: time(1, 1).map(|one| row.ns_per_pdu / one),
            speedup: time(row.layers, 1).map(|one_thread| one_thread / row.ns_per_pdu),
            model_ns,
            model_error: model_ns.filter(|_| has_cores).map(|model| model / row.ns_per_pdu - 1.0),
            model_user_ns: model.map(|model| model.user),
            model_layer_ns: model.map(|model| model.layer),
            model_hand_over_ns: model.map(|model| model.hand_over),
            paper_us: if row.threads == row.layers { figure.paper_us_of(row.layers) } else { None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stacks::{Point, Run, Threads};
    use super::super::{equal_work, verdict};
    use super::*;

    /// IP of 1024 octets, made as the model takes it: user 20, layer 30, hand-over 12.
    fn rows() -> Vec<Row> {
        let row = |layers, groups: &[usize], threads, ns| {
            let point = Point { protocol: Figure::Ip.protocol(1), layers, threads, size: 1024 };
            let run = Run { ns_per_pdu: ns, counted: 100, retransmitted: None };
            let row = Row::new(Figure::Ip, &point, &[run]);
            Row { groups: groups.to_vec(), threads: groups.len(), ..row }
        };
        let together =
            (1..=4).map(|layers| row(layers, &[layers], Threads::Together, 20.0 + 30.0 * layers as f64));
        let mut rows: Vec<Row> = together.collect();
        rows.push(row(2, &[1, 1], Threads::Cores, 62.0));
        rows.push(row(4, &[2, 2], Threads::Cores, 115.0));
        rows.push(row(4, &[1, 1, 1, 1], Threads::Each, 300.0));
        rows
    }

    #[test]
    fn a_row_is_held_against_one_layer_one_thread_the_model_and_the_paper() {
        let mut rows = rows();
        compare(Figure::Ip, 2, &mut rows);
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-9;
        let [two, four, each] = [4, 5, 6].map(|at| rows[at].compared.clone());
        assert!(near(two.of_one_layer, 62.0 / 50.0) && near(two.speedup, 80.0 / 62.0), "{two:?}");
        assert!(near(two.model_ns, 62.0) && near(two.model_error, 0.0), "{two:?}");
        assert!(near(four.model_ns, 92.0) && near(four.model_error, 92.0 / 115.0 - 1.0), "{four:?}");
        assert!(near(each.model_hand_over_ns, 12.0) && near(each.model_ns, 62.0), "{each:?}");
        assert_eq!((each.model_error, each.paper_us), (None, Some(80.0)), "four threads on two cores");
        assert_eq!((rows[0].compared.paper_us, four.paper_us), (Some(60.0), None));
    }

    #[test]
    fn where_nothing_runs_side_by_side_there_is_no_model() {
        let mut rows = rows();
        rows.truncate(5);
        rows[4].mode = "each";
        compare(Figure::Ip, 1, &mut rows);
        let [one_thread, two] = [3, 4].map(|at| &rows[at].compared);
        assert_eq!((one_thread.model_ns, one_thread.speedup), (None, Some(1.0)));
        assert_eq!((two.model_ns, two.model_hand_over_ns), (None, None), "two threads took turns");
        let rows: Vec<&Row> = rows.iter().collect();
        let said = "one core: nothing runs side by side";
        assert_eq!((verdict(&rows).as_str(), equal_work(&rows).as_str()), (said, said));
    }
}
