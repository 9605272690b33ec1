//! A member's last words. Its program may exit as soon as it has read the end of the stream, and a process that is
//! gone neither says nor repeats that it has everything: the sender would wait for it until it counts as lost.
//!
//! Inputs → outputs: members that have read the end → `exit` waits for them, a second at most, as the kernel lingers
//! for TCP.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a member waits for its sender's word that all is well.
pub(super) const LIMIT: Duration = Duration::from_secs(1);
/// How often `exit` looks whether all have had it.
const SLICE: Duration = Duration::from_millis(2);

/// How many linger, and in which process: the count below, the process above. To a child that it has forked the
/// parent's are none, and no lock of the parent's threads is in its way.
static LINGERING: AtomicU64 = AtomicU64::new(0);

/// Nobody in this process.
fn none() -> u64 {
    u64::from(std::process::id()) << 32
}

fn change(by: impl Fn(u64) -> u64) {
    let none = none();
    let changed = |found: u64| Some(by(if found >> 32 == none >> 32 { found } else { none }));
    // It is changed whatever it was.
    let _ = LINGERING.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
}

/// While one exists, the process does not exit of its own will, for as long as [`LIMIT`].
pub(super) struct Lingering;

impl Lingering {
    pub fn begin() -> Self {
        // In children, too: what is registered stays so over a fork.
        static REGISTERED: AtomicBool = AtomicBool::new(false);
        if !REGISTERED.swap(true, Ordering::AcqRel) {
            // SAFETY: what is registered takes nothing and stays where it is. If there is no room for it, exit waits
            // for nobody.
            unsafe { libc::atexit(wait_for_all) };
        }
        change(|found| found + 1);
        Self
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        change(|found| found - 1);
    }
}

extern "C" fn wait_for_all() {
    let (none, until) = (none(), Instant::now() + LIMIT);
    let is_any = || {
        let found = LINGERING.load(Ordering::Acquire);
        found >> 32 == none >> 32 && found > none
    };
    while is_any() && Instant::now() < until {
        std::thread::sleep(SLICE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_child_waits_for_its_own_members_and_not_for_its_parents() {
        // The parent has waited for some, and still does: its thread is none of the child's.
        let theirs = Lingering::begin();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        // SAFETY: nothing that the child uses is locked by a thread that it does not have.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = Lingering::begin();
            std::thread::spawn(move || {
                std::thread::sleep(LIMIT / 10);
                let _ = writer.write_all(b"told");
                drop(own);
            });
            // SAFETY: what was registered runs, and the process ends.
            unsafe { libc::exit(0) };
        }
        drop((theirs, writer));
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        // SAFETY: a child of ours; its status is not asked for.
        assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);
        assert_eq!(said, "told", "it has not waited");
    }
}
