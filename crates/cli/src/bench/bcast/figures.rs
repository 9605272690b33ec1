//! From what the sides of a broadcast report to the figures that are shown.
//!
//! Inputs → outputs: [`SenderReport`] and [`MemberReport`]s of one run → [`Figures`]; the runs of one
//! backend → a [`Row`], whose fields are the interface of `--json`: those of every benchmark, and a
//! broadcast's own.

use super::protocol::{MemberReport, SenderReport};
use super::{Backend, Way};
use crate::bench::result::{self, Run, median, quantile};
use crate::cells::{dash, human_bytes, number, right};
use anyhow::{Result, ensure};
use comfy_table::Cell;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use serde::Serialize;
use std::fmt;

/// One run's figures.
#[derive(Clone, Debug)]
pub struct Figures {
    /// What every benchmark has.
    common: Run,
    done_us: f64,
    sent_us: f64,
    last_us: f64,
    cpu_us: f64,
    calls: f64,
    packets: f64,
    bytes: f64,
    received: f64,
    repairs: f64,
    needed: f64,
}

impl Figures {
    /// The figures of a run; those per message are means, times are medians.
    pub fn new(size: u64, sender: &SenderReport, members: &[MemberReport]) -> Result<Self> {
        let messages = sender.done.len();
        ensure!(
            messages > 0 && members.iter().all(|member| member.arrived.len() == messages),
            "messages of {size} bytes are missing"
        );
        let last = |at: usize| members.iter().map(|member| member.arrived[at]).max().unwrap_or(0);
        let lasts = (0..messages).map(|at| last(at).saturating_sub(sender.began[at])).collect();
        let per_message = |total: u64| total as f64 / messages as f64;
        Ok(Self {
            common: common(size, sender, members),
            done_us: median_us(sender.done.clone()),
            sent_us: median_us(sender.sent.clone()),
            last_us: median_us(lasts),
            cpu_us: per_message(sender.cpu_ns) / 1e3,
            calls: per_message(sender.wire.calls),
            packets: per_message(sender.wire.packets),
            bytes: per_message(sender.wire.bytes),
            received: per_message(sender.wire.received),
            repairs: per_message(sender.wire.repairs),
            needed: per_message(sender.wire.needed),
        })
    }
}

/// The fields of every benchmark: latencies until all have acknowledged, throughput of the one sender.
fn common(size: u64, sender: &SenderReport, members: &[MemberReport]) -> Run {
    let mut done = sender.done.clone();
    done.sort_unstable();
    let quantile_us = |share| quantile(&done, share).map(|ns| ns as f64 / 1e3);
    let total_ns: u64 = done.iter().sum();
    let msgs_per_s = (total_ns > 0).then(|| done.len() as f64 * 1e9 / total_ns as f64);
    let cpu_ns = sender.cpu_ns + members.iter().map(|member| member.cpu_ns).sum::<u64>();
    Run {
        n: done.len() as u64,
        median_us: quantile_us(0.5),
        p99_us: quantile_us(0.99),
        msgs_per_s,
        bytes_per_s: msgs_per_s.map(|rate| rate * size as f64),
        retransmitted: Some(sender.wire.repairs),
        cpu_us_per_msg: cpu_ns as f64 / 1e3 / done.len().max(1) as f64,
        ..Run::default()
    }
}

/// The median of times in nanoseconds, µs.
fn median_us(mut times: Vec<u64>) -> f64 {
    times.sort_unstable();
    quantile(&times, 0.5).unwrap_or(0) as f64 / 1e3
}

/// What is shown of one backend, size and number of receivers.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The fields of every benchmark: latencies until all had acknowledged, throughput of the sender, CPU
    /// time of all sides.
    #[serde(flatten)]
    common: result::Row,
    backend: Backend,
    /// In the table, which does not say of rows what the transport is.
    #[serde(skip)]
    name: String,
    /// Receivers.
    nodes: u64,
    runs: usize,
    /// Until all had acknowledged it, µs: the median of the runs' medians.
    done_us: f64,
    /// Until `send` returned, µs.
    sent_us: f64,
    /// Until the last member's application had it, µs.
    last_us: f64,
    /// The sender's CPU time, µs.
    cpu_us: f64,
    /// System calls that send.
    calls: f64,
    /// Packets sent.
    packets: f64,
    /// Bytes sent, headers included.
    wire_bytes: f64,
    /// Datagrams that came back.
    received: f64,
    /// Symbols, or segments, sent again.
    repairs: f64,
    /// Bytes that arrived at all members together, per second.
    aggregate_bytes_per_s: f64,
    /// TCP's `done_us` over this one's, by runs made side by side.
    speed_vs_tcp: Option<f64>,
    /// This one's CPU time over TCP's.
    cpu_vs_tcp: Option<f64>,
    /// Bytes sent over the payload of one message.
    wire_vs_payload: f64,
    /// Bytes sent, whatever for, over the payload and the headers of its packets; of what goes to the group's
    /// address alone.
    wire_vs_needed: Option<f64>,
}

/// One row per way.
pub fn rows(nodes: u64, size: u64, runs: &[(Way, Vec<Figures>)]) -> Vec<Row> {
    let tcp = runs.iter().find(|(way, _)| way.backend == Backend::Tcp).map(|(_, runs)| runs);
    runs.iter().map(|(way, own)| row(nodes, size, *way, own, tcp)).collect()
}

fn row(nodes: u64, size: u64, way: Way, runs: &[Figures], tcp: Option<&Vec<Figures>>) -> Row {
    let commons: Vec<Run> = runs.iter().map(|run| run.common.clone()).collect();
    let of = |value: fn(&Figures) -> f64| median(runs.iter().map(value).collect()).unwrap_or_default();
    let against = |ratio: fn(&Figures, &Figures) -> f64| {
        let tcp = tcp.filter(|_| way.backend != Backend::Tcp)?;
        median(runs.iter().zip(tcp).map(|(own, tcp)| ratio(own, tcp)).collect())
    };
    Row {
        common: result::Row::named("bcast", way.transport().name(), size as usize, &commons),
        backend: way.backend,
        name: way.to_string(),
        nodes,
        runs: runs.len(),
        done_us: of(|run| run.done_us),
        sent_us: of(|run| run.sent_us),
        last_us: of(|run| run.last_us),
        cpu_us: of(|run| run.cpu_us),
        calls: of(|run| run.calls),
        packets: of(|run| run.packets),
        wire_bytes: of(|run| run.bytes),
        received: of(|run| run.received),
        repairs: of(|run| run.repairs),
        aggregate_bytes_per_s: (nodes * size) as f64 / of(|run| run.done_us) * 1e6,
        speed_vs_tcp: against(|own, tcp| tcp.done_us / own.done_us),
        cpu_vs_tcp: against(|own, tcp| own.cpu_us / tcp.cpu_us),
        wire_vs_payload: of(|run| run.bytes) / size as f64,
        wire_vs_needed: (of(|run| run.needed) > 0.0).then(|| of(|run| run.bytes / run.needed)),
    }
}

/// All rows.
pub struct Table(comfy_table::Table);

impl Table {
    /// No row yet.
    pub fn new() -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(UTF8_FULL_CONDENSED);
        table.set_header([
            "1→N",
            "size",
            "backend",
            "done µs",
            "sent µs",
            "last has it µs",
            "CPU µs",
            "calls",
            "packets",
            "wire B",
            "of needed",
            "answers",
            "repairs",
            "aggregate B/s",
            "speed vs tcp",
            "CPU vs tcp",
        ]);
        Self(table)
    }

    /// Adds one.
    pub fn add(&mut self, row: &Row) {
        let plain = |value: f64| right(number(Some(value), 1));
        let ratio = |value: Option<f64>| right(value.map_or_else(dash, |value| format!("{value:.2}×")));
        self.0.add_row(vec![
            right(row.nodes.to_string()),
            right(human_bytes(row.common.size as f64)),
            Cell::new(&row.name),
            plain(row.done_us),
            plain(row.sent_us),
            plain(row.last_us),
            plain(row.cpu_us),
            plain(row.calls),
            plain(row.packets),
            right(human_bytes(row.wire_bytes)),
            ratio(row.wire_vs_needed),
            plain(row.received),
            plain(row.repairs),
            right(human_bytes(row.aggregate_bytes_per_s)),
            ratio(row.speed_vs_tcp),
            ratio(row.cpu_vs_tcp),
        ]);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
