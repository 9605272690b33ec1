//! From what the sides report to the figures that are shown.
//!
//! Inputs → outputs: [`Report`]s of one run → a [`Run`]; the runs of one transport and size → a
//! [`Row`], whose fields are the interface of `--json`: their names stay, null where they mean
//! nothing. Figures are medians over the runs, counts are sums.

use super::args::Plan;
use super::control::{Bench, Report, Transport};
use super::work::due_ns;
use serde::Serialize;

/// One run's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Samples: round trips, or messages that were meant to arrive.
    pub n: u64,
    /// Median latency, µs.
    pub median_us: Option<f64>,
    /// 99th percentile of the latency, µs.
    pub p99_us: Option<f64>,
    /// Messages per second, one way.
    pub msgs_per_s: Option<f64>,
    /// Payload bytes per second, one way.
    pub bytes_per_s: Option<f64>,
    /// Messages lost.
    pub lost: u64,
    /// Messages or packets sent again.
    pub retransmitted: Option<u64>,
    /// CPU time of all sides per message, µs.
    pub cpu_us_per_msg: f64,
    /// First message lost.
    pub first_loss_at: Option<u64>,
    /// Largest number of descriptors of a process.
    pub descriptors: u64,
    /// Largest resident memory of a process, bytes.
    pub resident_bytes: u64,
    /// From the first side's start to the last side's end, ms.
    pub elapsed_ms: f64,
}

impl Run {
    /// The figures of a run from the reports of its sides.
    pub fn new(plan: &Plan, one_clock: bool, size: usize, reports: Vec<Report>) -> Self {
        let mut run = Self {
            retransmitted: sum_of_known(reports.iter().map(|report| report.retransmitted)),
            descriptors: reports.iter().map(|report| report.descriptors).max().unwrap_or(0),
            resident_bytes: reports.iter().map(|report| report.resident_bytes).max().unwrap_or(0),
            ..Self::default()
        };
        match (plan.bench, reports.as_slice()) {
            (Bench::Pingpong, [asker, _]) => run.take_pingpong(asker),
            (Bench::Mesh, _) => run.take_mesh(one_clock, &reports),
            (Bench::Gather | Bench::Rate, _) => run.take_gather(&reports),
            (_, [sender, receiver]) => run.take_one_way(plan, one_clock, sender, receiver),
            _ => unreachable!("the runner starts two sides of everything but a mesh and a gather"),
        }
        let messages = if plan.bench == Bench::Pingpong { 2 * run.n } else { run.n };
        let cpu_ns: u64 = reports.iter().map(|report| report.cpu_ns).sum();
        run.cpu_us_per_msg = cpu_ns as f64 / 1e3 / messages.max(1) as f64;
        run.bytes_per_s = run.msgs_per_s.map(|rate| rate * size as f64);
        run
    }

    fn take_pingpong(&mut self, asker: &Report) {
        self.n = asker.messages + asker.lost;
        self.lost = asker.lost;
        self.median_us = asker.p50_ns.map(us);
        self.p99_us = asker.p99_ns.map(us);
        let elapsed_ns = asker.end_ns.saturating_sub(asker.start_ns);
        self.msgs_per_s = rate(2 * asker.messages, elapsed_ns);
        self.elapsed_ms = elapsed_ns as f64 / 1e6;
    }

    /// With one clock, from the first start to the last end; else the longest time of a process.
    fn take_mesh(&mut self, one_clock: bool, reports: &[Report]) {
        let arrived: u64 = reports.iter().map(|report| report.messages).sum();
        self.n = reports.iter().map(|report| report.sent).sum();
        self.lost = self.n.saturating_sub(arrived);
        let last = |since: &dyn Fn(&Report) -> u64| {
            reports.iter().map(|report| report.end_ns.saturating_sub(since(report))).max().unwrap_or(0)
        };
        let first_ns = reports.iter().map(|report| report.start_ns).min().unwrap_or(0);
        let elapsed_ns = if one_clock { last(&|_| first_ns) } else { last(&|report| report.start_ns) };
        self.msgs_per_s = rate(arrived, elapsed_ns);
        self.elapsed_ms = elapsed_ns as f64 / 1e6;
    }

    /// Latency is that of the rounds, throughput that of the stream.
    fn take_gather(&mut self, reports: &[Report]) {
        let Some(receiver) = reports.first() else { return };
        self.n = receiver.messages;
        self.median_us = receiver.p50_ns.map(us);
        self.p99_us = receiver.p99_ns.map(us);
        self.elapsed_ms = receiver.end_ns.saturating_sub(receiver.start_ns) as f64 / 1e6;
        if let Some(gather) = &receiver.gather {
            self.msgs_per_s = rate(gather.stream_messages, gather.stream_ns);
        }
    }

    fn take_one_way(&mut self, plan: &Plan, one_clock: bool, sender: &Report, receiver: &Report) {
        self.n = sender.messages;
        self.lost = receiver.lost;
        self.first_loss_at = receiver.first_loss_at;
        // With one clock, from the first call to the last arrival; else the first arrival is
        // where counting begins.
        let (start_ns, counted) = if one_clock {
            (sender.start_ns, receiver.messages)
        } else {
            (receiver.first_ns, receiver.messages.saturating_sub(1))
        };
        let elapsed_ns = receiver.end_ns.saturating_sub(start_ns);
        self.elapsed_ms = elapsed_ns as f64 / 1e6;
        if plan.bench == Bench::Stream {
            self.msgs_per_s = rate(counted, elapsed_ns);
        }
        if let Some(rate_per_s) = plan.rate_per_s {
            self.take_latencies(sender.start_ns, rate_per_s, &receiver.arrivals);
        }
    }

    fn take_latencies(&mut self, start_ns: u64, rate_per_s: f64, arrivals: &[(u64, u64)]) {
        let mut latencies: Vec<u64> = arrivals
            .iter()
            .map(|(number, arrived_ns)| arrived_ns.saturating_sub(due_ns(start_ns, rate_per_s, *number)))
            .collect();
        latencies.sort_unstable();
        self.median_us = quantile(&latencies, 0.5).map(us);
        self.p99_us = quantile(&latencies, 0.99).map(us);
    }
}

/// What is shown of one transport and size: the fields, and only those, of a line of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub bench: &'static str,
    /// Over what.
    pub transport: &'static str,
    /// Bytes per message.
    pub size: usize,
    /// Samples over all runs.
    pub n: u64,
    /// Median latency, µs: of a round trip in a ping-pong, one way in a paced stream.
    pub median_us: Option<f64>,
    /// 99th percentile of the same, µs.
    pub p99_us: Option<f64>,
    /// Messages per second, one way.
    pub msgs_per_s: Option<f64>,
    /// Payload bytes per second, one way.
    pub bytes_per_s: Option<f64>,
    /// Messages lost in all runs.
    pub lost: u64,
    /// Sent again in all runs.
    pub retransmitted: Option<u64>,
    /// CPU time of all sides per message, µs.
    pub cpu_us_per_msg: Option<f64>,
}

impl Row {
    /// The medians over the runs of one transport and size.
    pub fn new(bench: Bench, transport: Transport, size: usize, runs: &[Run]) -> Self {
        Self::named(bench.name(), transport.name(), size, runs)
    }

    /// The medians over the runs, under these names.
    pub fn named(bench: &'static str, transport: &'static str, size: usize, runs: &[Run]) -> Self {
        Self {
            bench,
            transport,
            size,
            n: runs.iter().map(|run| run.n).sum(),
            median_us: median_of(runs, |run| run.median_us),
            p99_us: median_of(runs, |run| run.p99_us),
            msgs_per_s: median_of(runs, |run| run.msgs_per_s),
            bytes_per_s: median_of(runs, |run| run.bytes_per_s),
            lost: runs.iter().map(|run| run.lost).sum(),
            retransmitted: sum_of_known(runs.iter().map(|run| run.retransmitted)),
            cpu_us_per_msg: median_of(runs, |run| Some(run.cpu_us_per_msg)),
        }
    }
}

/// How a transport compares with another: the median of the ratios of runs made side by side.
/// Latency where there is one (below 1 is better), else throughput (above 1 is better).
pub fn ratio(runs: &[Run], base: &[Run]) -> Option<f64> {
    let value = |run: &Run| run.median_us.or(run.bytes_per_s);
    let ratios = runs.iter().zip(base).filter_map(|(run, base)| Some(value(run)? / value(base)?));
    median(ratios.filter(|ratio| ratio.is_finite()).collect())
}

/// The median over runs of a figure that each may have.
pub fn median_of(runs: &[Run], figure: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
    median(runs.iter().filter_map(figure).collect())
}

/// The median, of an even number the mean of the middle two.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    if values.len() % 2 == 1 { Some(*upper) } else { Some((values[values.len() / 2 - 1] + upper) / 2.0) }
}

/// What that share of sorted values does not exceed: the smallest such value. `None` without values.
pub fn quantile(sorted: &[u64], share: f64) -> Option<u64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// The sum of what is known; `None` if nothing is.
pub fn sum_of_known(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values.flatten().fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
}

fn rate(messages: u64, elapsed_ns: u64) -> Option<f64> {
    (messages > 0 && elapsed_ns > 0).then(|| messages as f64 * 1e9 / elapsed_ns as f64)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latency(us: f64) -> Run {
        Run { n: 10, median_us: Some(us), ..Run::default() }
    }

    #[test]
    fn json_has_exactly_the_fields_of_the_interface() {
        let row = Row::new(Bench::Pingpong, Transport::Tcp, 64, &[latency(7.0)]);
        let json: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&serde_json::to_string(&row).unwrap()).unwrap();
        let mut names: Vec<_> = json.keys().map(String::as_str).collect();
        names.sort_unstable();
        let mut expected = vec![
            "bench",
            "transport",
            "size",
            "n",
            "median_us",
            "p99_us",
            "msgs_per_s",
            "bytes_per_s",
            "lost",
            "retransmitted",
            "cpu_us_per_msg",
        ];
        expected.sort_unstable();
        assert_eq!(names, expected);
        assert!(json["p99_us"].is_null());
        assert_eq!(json["median_us"], 7.0);
    }

    #[test]
    fn a_mesh_on_two_machines_takes_as_long_as_its_slowest_process() {
        let report =
            |start_ns, end_ns| Report { messages: 5, sent: 6, start_ns, end_ns, ..Report::default() };
        // The other machine has been up for longer.
        let reports = vec![report(1_000_000, 4_000_000), report(91_000_000, 93_000_000)];
        let plan = Plan::of(Bench::Mesh);
        let run = |one_clock| Run::new(&plan, one_clock, 64, reports.clone());
        assert_eq!((run(false).elapsed_ms, run(true).elapsed_ms), (3.0, 92.0));
        assert_eq!((run(true).n, run(true).lost), (12, 2));
    }

    #[test]
    fn ratios_compare_runs_made_side_by_side() {
        // A machine that becomes twice as slow meanwhile changes no ratio.
        let udp = [latency(4.0), latency(8.0), latency(8.4)];
        let tcp = [latency(8.0), latency(16.0), latency(8.0)];
        assert_eq!(ratio(&udp, &tcp), Some(0.5));
        assert_eq!(ratio(&[Run::default()], &tcp), None);
    }

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let sorted: Vec<u64> = (1..=200).collect();
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|share| quantile(&sorted, share)), [1, 100, 198, 200].map(Some));
        assert_eq!(quantile(&[7], 0.99), Some(7));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn latency_of_a_paced_stream_counts_from_when_a_message_was_due() {
        let mut run = Run::default();
        let arrivals: Vec<(u64, u64)> = (0..100).map(|k| (k, 1_000 + k * 100_000 + 5_000)).collect();
        run.take_latencies(1_000, 10_000.0, &arrivals);
        assert_eq!((run.median_us, run.p99_us), (Some(5.0), Some(5.0)));
    }
}
