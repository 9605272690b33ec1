//! Who waits, threads and tasks, and is called when there is news.
//!
//! Inputs → outputs: a call for any of a Node's shards → the threads that wait for whichever is first look again; tasks
//! to be woken → they are.

use crate::tasks::Wakers;
use parking_lot::{Condvar, Mutex};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

/// Where those wait who wait for any shard.
#[derive(Default)]
pub(crate) struct Lobby {
    waiting: AtomicUsize,
    /// Calls so far.
    calls: Mutex<u64>,
    called: Condvar,
}

impl Lobby {
    /// Whether nobody waits. Asked under the lock of the shard that has news.
    pub fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        *self.calls.lock()
    }

    /// One of the shards has news.
    pub fn call(&self) {
        *self.calls.lock() += 1;
        self.called.notify_all();
    }

    /// Waits for another call than the `heard` ones; whether it came in time.
    pub fn wait(&self, heard: u64, deadline: Option<Instant>) -> bool {
        let mut calls = self.calls.lock();
        while *calls == heard {
            match deadline {
                Some(at) if self.called.wait_until(&mut calls, at).timed_out() => return *calls != heard,
                Some(_) => {}
                None => self.called.wait(&mut calls),
            }
        }
        true
    }
}

/// Somebody in the lobby.
pub(crate) struct Guest<'a>(&'a Lobby);

impl<'a> Guest<'a> {
    /// Comes in.
    pub fn enter(lobby: &'a Lobby) -> Self {
        lobby.waiting.fetch_add(1, Ordering::SeqCst);
        Self(lobby)
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Wakes tasks. Not under a lock: what a runtime does then is its own affair, and a Node's last clone may go with a
/// task that is never run again. If one panics the others are woken all the same.
pub(crate) fn wake_all(tasks: Wakers) {
    let wake = |task: Waker| catch_unwind(AssertUnwindSafe(|| task.wake())).err();
    let panics: Vec<_> = tasks.into_iter().filter_map(wake).collect();
    // A thread that tells of its panic has no other.
    if let Some(panic) = panics.into_iter().next().filter(|_| !std::thread::panicking()) {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_call_is_heard_once() {
        let lobby = Lobby::default();
        let soon = || Some(Instant::now() + Duration::from_millis(1));
        assert!(lobby.is_empty() && !lobby.wait(0, soon()));
        let guest = Guest::enter(&lobby);
        assert!(!lobby.is_empty());
        lobby.call();
        assert!(lobby.wait(0, soon()) && !lobby.wait(1, soon()));
        drop(guest);
        assert!(lobby.is_empty());
    }
}
