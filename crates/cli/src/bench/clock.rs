//! Clocks: time for latencies, CPU time for costs, and what a process occupies.
//!
//! Inputs → outputs: nothing → nanoseconds, counts. CLOCK_MONOTONIC is the same in all processes
//! of one machine, namespaces included, so a one-way latency is a difference of two readings.
//! CPU time is read from CLOCK_PROCESS_CPUTIME_ID: what getrusage gives, but not rounded to the
//! scheduler's tick.

use super::control::PacketCounts;
use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds of CLOCK_REALTIME, by which the kernel says when a datagram came.
pub fn wall_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// CPU time of this process, user and system, all threads, nanoseconds.
pub fn cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Both clocks exist on every Linux; a reading of 0 would show in every figure.
fn read(clock: ClockId) -> u64 {
    clock_gettime(clock).map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

/// Open descriptors of this process.
pub fn open_descriptors() -> Result<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").context("cannot count descriptors")?;
    // The directory itself is one of them.
    Ok((entries.count() as u64).saturating_sub(1))
}

/// Resident memory of this process, bytes.
pub fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read the memory size")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    Ok(kib.context("/proc/self/status has no VmRSS")? * 1024)
}

/// TCP segments that this network namespace has retransmitted since it exists. Exact between
/// namespaces of a lab; on the machine's own loopback other programs count in.
pub fn tcp_retransmissions() -> Option<u64> {
    counter("snmp", "Tcp:", "RetransSegs")
}

/// What TCP has sent and repeated in this network namespace, and how often a timer of its fired
/// because no acknowledgement came: retransmission timeouts and tail loss probes (RFC 8985). A
/// counter that the kernel does not have counts as 0.
pub fn tcp_counts() -> PacketCounts {
    let retransmitted = tcp_retransmissions().unwrap_or(0);
    let extended = |name| counter("netstat", "TcpExt:", name).unwrap_or(0);
    PacketCounts {
        // The kernel counts what is sent again apart.
        sent: counter("snmp", "Tcp:", "OutSegs").unwrap_or(0) + retransmitted,
        lost: retransmitted,
        retransmitted,
        probes: extended("TCPTimeouts") + extended("TCPLossProbes"),
        recoveries: 0,
    }
}

/// A counter of this network namespace: a column of a table in /proc/net whose lines come in
/// pairs, names and values.
fn counter(table: &str, line: &str, name: &str) -> Option<u64> {
    let table = std::fs::read_to_string(format!("/proc/self/net/{table}")).ok()?;
    let mut lines = table.lines().filter_map(|text| text.strip_prefix(line));
    let (names, values) = (lines.next()?, lines.next()?);
    let column = names.split_whitespace().position(|column| column == name)?;
    values.split_whitespace().nth(column)?.parse().ok()
}

/// Time and CPU time since a moment.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    /// When it was started, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    start_cpu_ns: u64,
}

impl Meter {
    /// Starts now.
    pub fn start() -> Self {
        let start_cpu_ns = cpu_ns();
        Self { start_ns: now_ns(), start_cpu_ns }
    }

    /// CPU time since the start, nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        cpu_ns().saturating_sub(self.start_cpu_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_what_it_occupies() {
        assert!(open_descriptors().unwrap() >= 3);
        assert!(resident_bytes().unwrap() > 100_000);
        assert!(tcp_retransmissions().is_some());
        assert!(counter("netstat", "TcpExt:", "TCPTimeouts").is_some());
        let meter = Meter::start();
        let busy_until = now_ns() + 20_000_000;
        while now_ns() < busy_until {}
        assert!(now_ns() - meter.start_ns >= 20_000_000);
        assert!(meter.cpu_ns() > 0);
    }
}
