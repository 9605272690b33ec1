//! Removing namespaces: at the end, on a signal, and those that a killed program left behind.
//!
//! Inputs → outputs: names of namespaces → their processes killed by pid, the namespaces gone.
//! Every namespace of this crate is called `denrei-lab-<pid>-<lab>-<place>`, where `<pid>` is the
//! process that built it: so whose it is can be read from the name alone.

use crate::LabError;
use crate::tool::run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

/// How the names of all namespaces begin.
const PREFIX: &str = "denrei-lab-";

/// How often the processes of a namespace are killed and looked for again. A killed process is
/// gone within milliseconds; 100 × 10 ms leave room for one that is writing a core.
const KILL_ROUNDS: usize = 100;
/// Pause between two such rounds.
const KILL_PAUSE: Duration = Duration::from_millis(10);

/// The namespaces that this process has built and not removed.
static LIVE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether a signal is ending this process; its handler itself says so.
static ENDING: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The name of a place in the lab numbered `lab` of this process.
pub(crate) fn namespace_name(lab: usize, place: &str) -> String {
    format!("{PREFIX}{}-{lab}-{place}", std::process::id())
}

/// Does not return while a signal ends this process. Without that, whoever holds the lab sees its
/// processes die of the removal, takes it for a failure, and ends with a message and a status that
/// say so; or builds what nobody removes any more.
pub(crate) fn yield_to_signal() {
    while ENDING.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Notes that a namespace is about to be built, so that a signal finds it.
pub(crate) fn register(namespace: &str) {
    yield_to_signal();
    live().push(namespace.to_owned());
}

/// Removes namespaces of this process, and the processes in them.
pub(crate) fn remove_all(namespaces: &[String]) {
    for namespace in namespaces {
        remove(namespace);
    }
    live().retain(|name| !namespaces.contains(name));
}

/// Removes what dead processes have left behind.
pub(crate) fn sweep() -> Result<(), LabError> {
    for line in run("ip", &["netns", "list"])?.lines() {
        let Some(name) = line.split_whitespace().next() else { continue };
        if builder_of(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            remove(name);
        }
    }
    Ok(())
}

/// The signals that end a process in order: SIGINT, SIGTERM, and SIGHUP, which comes when a terminal is closed, unless
/// this process was started to survive that (nohup).
pub fn ending_signals() -> Vec<i32> {
    let mut signals = vec![SIGINT, SIGTERM];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if !ignores(&status, SIGHUP) {
        signals.push(SIGHUP);
    }
    signals
}

/// Whether a process with this `/proc/PID/status` ignores a signal.
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Makes the signals that end this process remove its namespaces first.
pub(crate) fn watch_signals() -> Result<(), LabError> {
    static WATCHING: Once = Once::new();
    let mut outcome = Ok(());
    WATCHING.call_once(|| outcome = spawn_watcher());
    outcome
}

fn spawn_watcher() -> Result<(), LabError> {
    let ending = ending_signals();
    for signal in &ending {
        signal_hook::flag::register(*signal, ENDING.clone()).map_err(LabError::Signals)?;
    }
    let mut signals = Signals::new(ending).map_err(LabError::Signals)?;
    let watcher = thread::Builder::new().name("lab signals".into());
    watcher
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                let namespaces = live().clone();
                remove_all(&namespaces);
                // Ends the process the way the signal would have.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
                std::process::exit(128 + signal);
            }
        })
        .map_err(LabError::Signals)?;
    Ok(())
}

fn live() -> std::sync::MutexGuard<'static, Vec<String>> {
    // A list of names is whole after every step: a panic elsewhere does not spoil it.
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The process that built a namespace, if it is one of ours.
fn builder_of(namespace: &str) -> Option<u32> {
    namespace.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn remove(namespace: &str) {
    kill_inside(namespace);
    // It may be gone already (another sweep was faster); what remains is swept next time.
    let _ = run("ip", &["netns", "delete", namespace]);
}

fn kill_inside(namespace: &str) {
    for _ in 0..KILL_ROUNDS {
        let Ok(listing) = run("ip", &["netns", "pids", namespace]) else { return };
        let own = std::process::id() as i32;
        let pids: Vec<i32> =
            listing.lines().filter_map(|pid| pid.trim().parse().ok()).filter(|pid| *pid != own).collect();
        if pids.is_empty() {
            return;
        }
        for pid in pids {
            // It may have ended by itself meanwhile.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        thread::sleep(KILL_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_what_is_ignored() {
        let nohup = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000000\n";
        assert_eq!([SIGHUP, SIGINT, 13].map(|signal| ignores(nohup, signal)), [true, false, true]);
        assert!(!ignores("", SIGHUP));
    }

    #[test]
    fn names_tell_who_built_them() {
        let name = namespace_name(3, "br");
        assert_eq!(builder_of(&name), Some(std::process::id()));
        assert_eq!(builder_of("denrei-lab-x-0-br"), None);
        assert_eq!(builder_of("somebody-elses-12"), None);
    }
}
