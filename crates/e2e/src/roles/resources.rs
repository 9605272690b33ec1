//! What the process and its Node hold, from `/proc` and the Node's counters.

use crate::Resources;
use anyhow::{Context, Result};
use denrei::Node;
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use std::collections::BTreeSet;
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
        counters: format!("{counters:?} {:?}", node.io_counters()),
    })
}

/// Lets this process open only `spare` descriptors more.
pub fn limit_files(spare: u64) -> Result<()> {
    // The limit is on numbers, of which the lowest that are free are taken first.
    let taken = descriptor_numbers()?;
    let limit = (0..).filter(|number| !taken.contains(number)).nth(spare as usize).expect("there is no end");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard)?;
    Ok(())
}

/// Lets this process open as many descriptors as its hard limit permits.
pub fn allow_many_files() -> Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(())
}

fn descriptors() -> Result<usize> {
    Ok(descriptor_numbers()?.len())
}

fn descriptor_numbers() -> Result<BTreeSet<u64>> {
    let numbers = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let listed: BTreeSet<u64> =
        fs::read_dir("/proc/self/fd").context("cannot list descriptors")?.filter_map(numbers).collect();
    // One was that of the listing itself.
    let open = |number: &u64| fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    Ok(listed.into_iter().filter(open).collect())
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
