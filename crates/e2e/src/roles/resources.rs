//! What the process and its Node hold, from `/proc` and the Node's counters.

use crate::Resources;
use anyhow::{Context, Result};
use denrei::Node;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use std::fs;

/// The state of this process and of `node`.
pub fn of(node: &Node) -> Result<Resources> {
    let counters = node.counters();
    Ok(Resources {
        descriptors: descriptors()?,
        rss_bytes: status_bytes("VmRSS:")?,
        peak_rss_bytes: status_bytes("VmHWM:")?,
        cpu_ms: cpu_ms()?,
        recv_buffer_bytes: node.capabilities().recv_buffer_bytes,
        malformed: counters.malformed,
        corrupted: counters.corrupted,
        unknown_session: counters.unknown_session,
        foreign_version: counters.foreign_version,
        counters: format!("{counters:?}"),
    })
}

/// Lets this process open only `spare` descriptors more.
pub fn limit_files(spare: u64) -> Result<()> {
    // The limit is above the highest number, not on the count: without gaps they are the same.
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, descriptors()? as u64 + spare, hard)?;
    Ok(())
}

/// Lets this process open as many descriptors as its hard limit permits.
pub fn allow_many_files() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(())
}

fn descriptors() -> Result<usize> {
    // One is that of the listing itself.
    Ok(fs::read_dir("/proc/self/fd").context("cannot list descriptors")?.count() - 1)
}

/// A line of `/proc/self/status` that is a size.
fn status_bytes(label: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix(label)).with_context(|| format!("no {label}"))?;
    let kib: u64 =
        line.trim().trim_end_matches(" kB").parse().with_context(|| format!("{label} is no number"))?;
    Ok(kib * 1024)
}

fn cpu_ms() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let ms = |time: nix::sys::time::TimeVal| time.num_milliseconds() as u64;
    Ok(ms(usage.user_time()) + ms(usage.system_time()))
}
