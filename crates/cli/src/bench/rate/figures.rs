//! From what the processes of a run report to the figures that are shown.
//!
//! Inputs → outputs: a [`Point`] and the [`Report`]s of its run → a [`Row`], whose fields are the
//! interface of `--json`: those of every benchmark, and a rate's own; rows → a table per part.

use super::super::args::Plan;
use super::super::control::{Bench, PaceReport, PacketCounts, Report, Transport};
use super::super::result::{self, Run};
use super::{LEARNING_MS, Part, Point, Receiver};
use crate::cells::{dash, human_bytes, number, right};
use anyhow::{Context, Result};
use comfy_table::Cell;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;

/// Throughput counts as taken up from the first moment at which it is this share of what it was.
const TAKEN_UP: f64 = 0.95;

/// Over so many milliseconds: messages come in batches.
const TAKEN_UP_MS: usize = 8;

/// What is shown of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The fields of every benchmark.
    #[serde(flatten)]
    pub common: result::Row,
    /// tracking, accuracy, sharing, capacity.
    pub part: &'static str,
    /// fast or slow.
    pub receiver: &'static str,
    /// How many send.
    pub senders: usize,
    /// Bytes per second that the receiver set; null: it learnt them.
    pub rate: Option<u64>,
    /// Burst that the receiver set, bytes; null: it learnt it.
    pub burst: Option<u64>,
    /// Bytes per second that the senders were let, learnt or set, mean.
    pub learnt_rate: u64,
    /// Their burst, bytes, mean.
    pub learnt_burst: u64,
    /// The largest burst that the receiver takes without loss, bytes, where it is measured.
    pub burst_limit: Option<u64>,
    /// Packets sent once settled.
    pub packets: u64,
    /// Recoveries started per 1000 of them.
    pub recoveries_per_1000: f64,
    /// Lost per 1000 of them.
    pub lost_per_1000: f64,
    /// How far the mean rate was from the one set: 0.01 is 1 % faster.
    pub rate_error: Option<f64>,
    /// Most bytes that came in a row: with pauses below an eighth of burst / rate.
    pub largest_burst: Option<u64>,
    /// What 99 % of the bursts did not exceed, bytes.
    pub burst_p99: Option<u64>,
    /// Jain's index over the senders.
    pub jain: f64,
    /// Round trip of the first sender, smoothed, µs.
    pub srtt_us: f64,
    /// How long free capacity was not used, in ms. One bin of time counts 1 ms.
    pub taken_up_ms: Option<f64>,
    /// The same in round trips.
    pub taken_up_round_trips: Option<f64>,
}

impl Row {
    /// The figures of a run.
    pub fn new(plan: &Plan, point: &Point, transport: Transport, reports: Vec<Report>) -> Result<Self> {
        let receiver = reports.first().context("nobody has reported")?;
        let pace = receiver.pace.clone().context("the receiver has not reported its figures")?;
        let jain = receiver.gather.as_ref().map_or(0.0, |gather| gather.jain);
        let counts = reports.iter().filter_map(|report| report.packets);
        let settled = counts.fold(PacketCounts::default(), |sum, of| sum.plus(of.all.since(of.first)));
        let told: Vec<_> = reports.iter().filter_map(|report| report.told).collect();
        let mean = |values: Vec<u64>| values.iter().sum::<u64>() / values.len().max(1) as u64;
        let srtt_us = told.first().map_or(0.0, |told| told.srtt_ns as f64 / 1e3);
        let taken_up_ms = (point.part == Part::Capacity).then(|| taken_up_ms(&pace)).flatten();
        let mut common = Run::new(plan, true, point.size, reports);
        common.retransmitted = Some(settled.retransmitted);
        let common = result::Row::new(Bench::Rate, transport, point.size, &[common]);
        let per_1000 = |count: u64| count as f64 * 1e3 / settled.sent.max(1) as f64;
        let rate = point.pace.fixed.map(|(rate, _)| rate);
        let lanes = || pace.lanes.iter().filter(|_| rate.is_some());
        Ok(Self {
            part: point.part.name(),
            receiver: point.receiver.name(),
            senders: point.senders,
            rate,
            burst: point.pace.fixed.map(|(_, burst)| burst),
            learnt_rate: mean(told.iter().map(|told| told.rate).collect()),
            learnt_burst: mean(told.iter().map(|told| told.burst).collect()),
            burst_limit: None,
            packets: settled.sent,
            recoveries_per_1000: per_1000(settled.recoveries),
            lost_per_1000: per_1000(settled.lost),
            rate_error: rate.zip(common.bytes_per_s).map(|(rate, mean)| mean / rate as f64 - 1.0),
            largest_burst: lanes().map(|lane| lane.largest_burst).max(),
            burst_p99: lanes().map(|lane| lane.burst_p99).max(),
            jain,
            srtt_us,
            taken_up_ms,
            taken_up_round_trips: taken_up_ms.map(|ms| ms * 1e3 / srtt_us.max(1e-3)),
            common,
        })
    }
}

impl Part {
    /// Its name in options and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tracking => "tracking",
            Self::Accuracy => "accuracy",
            Self::Sharing => "sharing",
            Self::Capacity => "capacity",
        }
    }
}

/// How long after the second sender stopped the first one's throughput was that of both.
fn taken_up_ms(pace: &PaceReport) -> Option<f64> {
    let bin = |ms: u64| (ms * 1_000_000 / pace.bin_ns.max(1)) as usize;
    let mean = |bins: &[u64]| bins.iter().sum::<u64>() as f64 / bins.len().max(1) as f64;
    let stopped = bin(LEARNING_MS.0);
    let both = mean(pace.bins.get(bin(LEARNING_MS.1)..stopped)?);
    let after = pace.bins.get(stopped..)?;
    let since = after.windows(TAKEN_UP_MS).position(|bins| mean(bins) >= TAKEN_UP * both)?;
    Some((since + 1) as f64 * pace.bin_ns as f64 / 1e6)
}

/// The readable form of a part.
pub struct Table {
    title: &'static str,
    table: comfy_table::Table,
}

impl Table {
    /// The rows of a part.
    pub fn of(part: Part, rows: &[Row]) -> Self {
        let (title, columns): (_, &[&str]) = match part {
            Part::Tracking => (
                "Throughput and recoveries against the rate (R9)",
                &["burst", "of limit", "rate", "throughput", "of best", "recoveries/1000", "lost/1000"],
            ),
            Part::Accuracy => (
                "Mean rate and largest burst at the receiver (R2)",
                &["burst", "rate", "throughput", "error %", "99 % of bursts", "largest", "of burst"],
            ),
            Part::Sharing => (
                "Several senders, learnt parameters",
                &["senders", "throughput", "Jain", "recoveries/1000", "lost/1000"],
            ),
            Part::Capacity => (
                "One of two senders stops: how soon the other takes what it left",
                &["throughput", "round trip µs", "taken up after ms", "round trips"],
            ),
        };
        let mut table = comfy_table::Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        let mut header = vec![Cell::new("receiver")];
        header.extend(columns.iter().map(|name| right((*name).to_owned())));
        table.set_header(header);
        let rows: Vec<&Row> = rows.iter().filter(|row| row.part == part.name()).collect();
        for row in &rows {
            let best = best_fixed(&rows, row.receiver);
            let mut cells = vec![Cell::new(row.receiver)];
            cells.extend(figures(part, row, best).into_iter().map(right));
            table.add_row(cells);
        }
        Self { title, table }
    }
}

/// The best throughput that any set rate and burst reached, bytes per second.
fn best_fixed(rows: &[&Row], receiver: &str) -> Option<f64> {
    let fixed = rows.iter().filter(|row| row.receiver == receiver && row.rate.is_some());
    fixed.filter_map(|row| row.common.bytes_per_s).max_by(f64::total_cmp)
}

fn figures(part: Part, row: &Row, best: Option<f64>) -> Vec<String> {
    let bytes = |bytes: Option<f64>| bytes.map_or_else(dash, human_bytes);
    let per_s = |rate: Option<f64>| rate.map_or_else(dash, |rate| human_bytes(rate) + "/s");
    let throughput = per_s(row.common.bytes_per_s);
    // Burst 0 is none (R3), and then the rate means nothing.
    let limit = |text: String| if row.learnt_burst == 0 { "no limit".to_owned() } else { text };
    let learnt = |text: String| if row.rate.is_some() { text } else { format!("auto: {}", limit(text)) };
    let burst = learnt(human_bytes(row.learnt_burst as f64));
    let rate = learnt(per_s(Some(row.learnt_rate as f64)));
    let (recoveries, lost) = (format!("{:.2}", row.recoveries_per_1000), format!("{:.2}", row.lost_per_1000));
    match part {
        Part::Tracking => {
            let of_best = row.common.bytes_per_s.zip(best).map(|(rate, best)| rate / best);
            let of_limit = row.burst_limit.map(|limit| row.learnt_burst as f64 / limit as f64);
            vec![burst, number(of_limit, 2), rate, throughput, number(of_best, 2), recoveries, lost]
        }
        Part::Accuracy => {
            let largest = row.largest_burst.map(|bytes| bytes as f64);
            let of_burst = largest.zip(row.burst).map(|(largest, burst)| largest / burst as f64);
            let error = number(row.rate_error.map(|error| error * 100.0), 2);
            let most = bytes(row.burst_p99.map(|bytes| bytes as f64));
            vec![burst, rate, throughput, error, most, bytes(largest), number(of_burst, 2)]
        }
        Part::Sharing => {
            vec![row.senders.to_string(), throughput, format!("{:.3}", row.jain), recoveries, lost]
        }
        Part::Capacity => vec![
            throughput,
            format!("{:.0}", row.srtt_us),
            number(row.taken_up_ms, 0),
            number(row.taken_up_round_trips, 1),
        ],
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n{}", self.title, self.table)
    }
}

/// The rows of the tracking to one receiver.
pub fn tracking(rows: &[Row], receiver: Receiver) -> Vec<&Row> {
    let wanted = |row: &&Row| row.part == Part::Tracking.name() && row.receiver == receiver.name();
    rows.iter().filter(wanted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_capacity_is_taken_up_when_the_throughput_is_back() {
        let stopped = LEARNING_MS.0 as usize;
        let mut bins = vec![100; 2 * stopped];
        bins[stopped..stopped + 30].fill(50);
        let pace = PaceReport { bins, bin_ns: 1_000_000, ..PaceReport::default() };
        // All eight bins have to be full but for 5 %.
        assert_eq!(taken_up_ms(&pace), Some(31.0));
        let never = PaceReport { bins: vec![0; 10], bin_ns: 1_000_000, ..PaceReport::default() };
        assert_eq!(taken_up_ms(&never), None);
    }
}
