//! What the process and its Node hold, from `/proc` and the Node's counters.

use crate::Resources;
use anyhow::{Context, Result};
use denrei::Node;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::fs;

/// The state of this process and of `node`.
pub fn of(node: &Node) -> Result<Resources> {
    let counters = node.counters();
    Ok(Resources {
        descriptors: descriptors()?,
        rss_bytes: rss_bytes()?,
        recv_buffer_bytes: node.capabilities().recv_buffer_bytes,
        malformed: counters.malformed,
        corrupted: counters.corrupted,
        unknown_session: counters.unknown_session,
        foreign_version: counters.foreign_version,
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

fn rss_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is no number")?;
    Ok(kib * 1024)
}
