//! From what the processes of a gather report to the figures that are shown.
//!
//! Inputs → outputs: [`Report`]s of one run → [`Figures`]; the runs of one transport → a [`Row`],
//! whose fields are the interface of `--json`: those of every benchmark, and a gather's own.

use super::super::args::Plan;
use super::super::control::{Bench, PacketCounts, PacketReport, Report, Transport};
use super::super::result::{self, Run};
use super::{Bottleneck, Rows};
use crate::cells::{dash, human_bytes, human_count, number, right};
use anyhow::{Context, Result};
use comfy_table::Cell;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

/// One run's figures.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What every benchmark has.
    common: Run,
    /// Jain's index of what had arrived from each sender when the first was done.
    jain: f64,
    /// One round trip of a small message with nobody else sending, µs.
    idle_us: f64,
    /// What the bottleneck would take for a round, µs.
    ideal_us: Option<f64>,
    /// Packets of all senders.
    packets: PacketReport,
}

impl Figures {
    /// The figures of a run. `one_tcp`: all processes report the same counters.
    pub fn new(
        plan: &Plan,
        size: usize,
        bottleneck: Option<Bottleneck>,
        one_tcp: bool,
        reports: Vec<Report>,
    ) -> Result<Self> {
        let receiver = reports.first().context("nobody has reported")?;
        let gather = receiver.gather.clone().context("the receiver has not reported its figures")?;
        let senders = reports.len() as u64 - 1;
        let counts = reports.iter().filter_map(|report| report.packets);
        let counts = counts.take(if one_tcp { 1 } else { reports.len() });
        let packets = counts.fold(PacketReport::default(), |sum, counts| PacketReport {
            first: sum.first.plus(counts.first),
            all: sum.all.plus(counts.all),
        });
        let idle_us = gather.idle_ns as f64 / 1e3;
        let mut common = Run::new(plan, true, size, reports);
        common.retransmitted = Some(packets.all.retransmitted);
        let ideal_us = bottleneck.map(|link| idle_us + link.time_us(senders, size as u64));
        Ok(Self { common, jain: gather.jain, idle_us, ideal_us, packets })
    }

    /// Bytes per second of the stream.
    pub fn goodput(&self) -> Option<f64> {
        self.common.bytes_per_s
    }
}

/// What is shown of one transport, size and number of senders.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The fields of every benchmark. Latencies are those of rounds, throughput the stream's.
    #[serde(flatten)]
    pub common: result::Row,
    /// How many send.
    pub senders: usize,
    /// Goodput as a share of what the bottleneck carries in full UDP packets.
    pub goodput_of_link: Option<f64>,
    /// What the bottleneck carries, bytes per second, headers included.
    pub link_bytes_per_s: Option<f64>,
    /// Jain's index of the stream: 1 is fair.
    pub jain: Option<f64>,
    /// Probes fired (of TCP: timeouts and tail loss probes), all runs.
    pub probes: u64,
    /// Packets of all senders, all runs.
    pub packets: u64,
    /// Share of packets lost (of TCP: sent again) until each sender's first message was gathered.
    pub packet_loss_first: Option<f64>,
    /// Share of packets lost after that.
    pub packet_loss: Option<f64>,
    /// One round trip of a small message with nobody else sending, µs.
    pub idle_us: Option<f64>,
    /// The shortest that a round can be: an idle round trip and the bottleneck's time, µs.
    pub ideal_us: Option<f64>,
    /// `p99_us` as a multiple of that.
    pub p99_of_ideal: Option<f64>,
}

impl Row {
    /// Medians over the runs of one transport; counts are sums.
    pub fn new(
        transport: Transport,
        senders: usize,
        size: usize,
        bottleneck: Option<Bottleneck>,
        runs: &[Figures],
    ) -> Self {
        let commons: Vec<Run> = runs.iter().map(|run| run.common.clone()).collect();
        let common = result::Row::new(Bench::Gather, transport, size, &commons);
        let packets = runs.iter().fold(PacketReport::default(), |sum, run| PacketReport {
            first: sum.first.plus(run.packets.first),
            all: sum.all.plus(run.packets.all),
        });
        let later = packets.all.since(packets.first);
        let link = bottleneck.map(Bottleneck::payload_per_s);
        let median =
            |figure: fn(&Figures) -> Option<f64>| result::median(runs.iter().filter_map(figure).collect());
        Self {
            senders,
            goodput_of_link: common.bytes_per_s.zip(link).map(|(goodput, link)| goodput / link),
            link_bytes_per_s: bottleneck.map(|link| link.mbit as f64 * 1e6 / 8.0),
            jain: median(|run| Some(run.jain)),
            probes: packets.all.probes,
            packets: packets.all.sent,
            packet_loss_first: share(packets.first),
            packet_loss: share(later),
            idle_us: median(|run| Some(run.idle_us)),
            ideal_us: median(|run| run.ideal_us),
            p99_of_ideal: median(|run| Some(run.common.p99_us? / run.ideal_us?)),
            common,
        }
    }
}

fn share(counts: PacketCounts) -> Option<f64> {
    (counts.sent > 0).then(|| counts.lost as f64 / counts.sent as f64)
}

/// The readable form.
pub struct Table(comfy_table::Table);

impl Table {
    /// Without rows.
    pub fn new() -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let figures = [
            "round µs",
            "p99 µs",
            "p99/ideal",
            "goodput",
            "of link",
            "vs tcp",
            "loss, first ‰",
            "then ‰",
            "sent again",
            "probes",
            "Jain",
            "CPU µs/msg",
        ];
        let mut header = vec![Cell::new("senders"), Cell::new("size"), Cell::new("transport")];
        header.extend(figures.map(|name| right(name.to_owned())));
        table.set_header(header);
        Self(table)
    }

    /// Adds a row per transport. "vs tcp" is the median of the ratios of runs made side by side.
    pub fn add(&mut self, size: usize, rows: &Rows) {
        let base = rows.iter().find(|(row, _)| row.common.transport == Transport::Tcp.name());
        for (index, (row, goodput)) in rows.iter().enumerate() {
            let ratio = base.and_then(|(_, base)| {
                result::median(goodput.iter().zip(base).map(|(goodput, base)| goodput / base).collect())
            });
            let first = |text: String| if index == 0 { text } else { String::new() };
            let mut cells = vec![
                Cell::new(first(row.senders.to_string())),
                Cell::new(first(human_bytes(size as f64))),
                Cell::new(row.common.transport),
            ];
            let permille = |share: Option<f64>| number(share.map(|share| share * 1e3), 2);
            let goodput = match row.common.bytes_per_s {
                // Small messages are counted, large ones weighed.
                Some(_) if size < 1024 => human_count(row.common.msgs_per_s) + " msgs/s",
                Some(bytes) => human_bytes(bytes) + "/s",
                None => dash(),
            };
            let figures = [
                number(row.common.median_us, 0),
                number(row.common.p99_us, 0),
                number(row.p99_of_ideal, 2),
                goodput,
                number(row.goodput_of_link, 3),
                number(ratio, 2),
                permille(row.packet_loss_first),
                permille(row.packet_loss),
                row.common.retransmitted.map_or_else(dash, |count| count.to_string()),
                row.probes.to_string(),
                number(row.jain, 3),
                number(row.common.cpu_us_per_msg, 2),
            ];
            cells.extend(figures.map(right));
            self.0.add_row(cells);
        }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gigabit_carries_so_much() {
        let link = Bottleneck { mbit: 1_000 };
        // One full packet of 1,514 bytes: 12.112 µs.
        assert!((link.time_us(1, 1472) - 12.112).abs() < 1e-9);
        assert!((link.payload_per_s() - 125e6 * 1472.0 / 1514.0).abs() < 1e-3);
        assert!((link.time_us(10, 4) - 3.68).abs() < 1e-9);
    }

    #[test]
    fn loss_before_and_after_the_first_round_is_told_apart() {
        let sent = |sent, lost| PacketCounts { sent, lost, ..PacketCounts::default() };
        let packets = PacketReport { first: sent(10, 5), all: sent(1_010, 6) };
        let run = Figures {
            common: Run { p99_us: Some(130.0), msgs_per_s: Some(1.0), ..Run::default() },
            jain: 1.0,
            idle_us: 50.0,
            ideal_us: Some(100.0),
            packets,
        };
        let row = Row::new(Transport::Denrei, 3, 64, None, &[run]);
        assert_eq!((row.packet_loss_first, row.packet_loss), (Some(0.5), Some(0.001)));
        assert_eq!(row.p99_of_ideal, Some(1.3));
        assert_eq!(row.goodput_of_link, None);
    }
}
