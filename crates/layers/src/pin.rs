//! Binding threads to cores, where the system does that.

use std::io;

/// The cores that this thread may be bound to. Elsewhere than on Linux there are none.
#[cfg(target_os = "linux")]
pub fn allowed_cores() -> Vec<usize> {
    use nix::sched::{CpuSet, sched_getaffinity};
    let Ok(set) = sched_getaffinity(nix::unistd::Pid::from_raw(0)) else { return Vec::new() };
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
}

/// The cores that this thread may be bound to: none, as this system binds no threads.
#[cfg(not(target_os = "linux"))]
pub fn allowed_cores() -> Vec<usize> {
    Vec::new()
}

/// Binds this thread to a core.
///
/// # Errors
/// What the system says: the core is not there, or this process may not use it; `Unsupported` elsewhere than on Linux.
pub fn to_core(core: usize) -> io::Result<()> {
    to_cores(&[core])
}

/// Binds this thread to some cores.
///
/// # Errors
/// As for [`to_core`], for each of them; or there are none.
#[cfg(target_os = "linux")]
pub fn to_cores(cores: &[usize]) -> io::Result<()> {
    use nix::sched::{CpuSet, sched_setaffinity};
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core)?;
    }
    Ok(sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?)
}

/// Binds this thread to some cores.
///
/// # Errors
/// `Unsupported`: this system binds no threads.
#[cfg(not(target_os = "linux"))]
pub fn to_cores(_cores: &[usize]) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system binds no threads to cores"))
}
