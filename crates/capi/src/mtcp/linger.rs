//! A member's last words. Its program may exit as soon as it has read the end of the stream, and a process that is
//! gone neither says nor repeats that it has everything: the sender would wait for it until it counts as lost.
//!
//! Inputs → outputs: members that have read the end → `exit` waits for them, a second at most, as the kernel lingers
//! for TCP.

use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// How long a member waits for its sender's word that all is well.
pub(super) const LIMIT: Duration = Duration::from_secs(1);

static LINGERING: Mutex<usize> = Mutex::new(0);
static DONE: Condvar = Condvar::new();
/// Whose members they are: in a child that it has forked there is nobody to wait for.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// While one exists, the process does not exit of its own will, for as long as [`LIMIT`].
pub(super) struct Lingering;

impl Lingering {
    pub fn begin() -> Self {
        PROCESS.get_or_init(|| {
            // SAFETY: what is registered takes nothing and stays where it is. If there is no room for it, exit waits
            // for nobody.
            unsafe { libc::atexit(wait_for_all) };
            std::process::id()
        });
        *LINGERING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        *LINGERING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        DONE.notify_all();
    }
}

extern "C" fn wait_for_all() {
    if PROCESS.get() != Some(&std::process::id()) {
        return;
    }
    let lingering = LINGERING.lock().unwrap_or_else(PoisonError::into_inner);
    drop(DONE.wait_timeout_while(lingering, LIMIT, |count| *count > 0));
}
