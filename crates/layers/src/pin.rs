//! Binding threads to cores.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;

/// The cores that this thread may use.
pub fn allowed_cores() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else { return Vec::new() };
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
}

/// Binds this thread to a core.
///
/// # Errors
/// What the system says: the core is not there, or this process may not use it.
pub fn to_core(core: usize) -> io::Result<()> {
    to_cores(&[core])
}

/// Binds this thread to some cores.
///
/// # Errors
/// As for [`to_core`], for each of them; or there are none.
pub fn to_cores(cores: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}
