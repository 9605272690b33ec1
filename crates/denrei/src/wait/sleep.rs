//! Sleeping: one thread on the sockets, for all; the others on word of it.

use super::{MAX_SLEEP, Shared, WITHOUT_ROOM};
use crate::core::Core;
use crate::lobby::wake_all;
use crate::tasks::{Bed, Interest, Tasks};
use denrei_wire::Instant;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Somebody who waits, and may be who watches the sockets for the others. What it asks is the application's: that may
/// panic.
pub(super) struct Relief<'a>(pub &'a Shared);

impl Drop for Relief<'_> {
    fn drop(&mut self) {
        // Who returns has left already.
        if std::thread::panicking() {
            self.0.leave(&mut self.0.core.lock());
        }
    }
}

impl Shared {
    /// Waits for the thread that sleeps on the sockets, like a task.
    pub(super) fn follow(core: &mut MutexGuard<'_, Core>, interest: &Interest, deadline: Option<Instant>) {
        let limit =
            deadline.map_or(MAX_SLEEP, |deadline| deadline.saturating_since(core.now())).min(MAX_SLEEP);
        let (number, bed) = (Tasks::number(), Bed::of_this_thread());
        let before = core.tasks.wait(number, interest.clone(), Arc::clone(&bed).into());
        debug_assert!(before.is_none(), "the number is new");
        MutexGuard::unlocked(core, || bed.sleep(limit));
        core.tasks.stop(number, interest);
    }

    /// Somebody else has to watch the sockets now. With a driver nobody has to; without, those who wait are threads.
    pub(super) fn leave(&self, core: &mut MutexGuard<'_, Core>) {
        if core.sleeper_until.is_none()
            && !core.has_driver
            && let Some(next) = core.tasks.take_one()
        {
            MutexGuard::unlocked(core, || next.wake());
        }
        self.notify(core);
    }

    /// The way to wait has changed: everybody looks again.
    pub fn rally(&self, core: &mut MutexGuard<'_, Core>) {
        self.waker.wake();
        let tasks = core.tasks.take_all();
        if !tasks.is_empty() {
            MutexGuard::unlocked(core, || wake_all(tasks));
        }
    }

    /// Sleeps on the sockets, for everybody, until something happens or `deadline`.
    pub fn sleep(&self, core: &mut MutexGuard<'_, Core>, deadline: Option<Instant>) {
        let now = core.now();
        core.endpoint.settle_timers();
        let due = core.endpoint.poll_timeout();
        let due =
            due.map(|at| if self.is_full.load(Ordering::Relaxed) { at.max(now + WITHOUT_ROOM) } else { at });
        let alarm = [deadline, due, Some(now + MAX_SLEEP)];
        let until = alarm.into_iter().flatten().min().unwrap_or(now);
        if until <= now {
            return;
        }
        core.sleeper_until = Some(until);
        self.asleep.store(true, Ordering::SeqCst);
        let mut begins = now;
        let gives_way = core.giving_way.is_due(now);
        // Sockets that have failed would end each sleep at once.
        let has_failed = core.failure.is_some();
        let wake = MutexGuard::unlocked(core, || {
            let (fds, blocked) = {
                let io = self.io.lock();
                let fds = io.socket.raw_fds().filter(|_| !has_failed);
                (fds.collect::<SmallVec<[RawFd; 16]>>(), io.socket.blocked_fd())
            };
            // Queued between our last turn and here, while another thread held the lock.
            if self.dirty.load(Ordering::SeqCst) && blocked.is_none() {
                return None;
            }
            if gives_way {
                std::thread::yield_now();
                begins = self.clock.now();
            }
            // A descriptor that was closed meanwhile ends the sleep: the next one has the new list.
            self.waiter.wait(fds, blocked, Some(until.saturating_since(begins))).ok()
        });
        core.giving_way.yielded(now, begins);
        core.sleeper_until = None;
        core.look_ended();
        self.asleep.store(false, Ordering::SeqCst);
        if let Some(wake) = wake {
            if wake.writable {
                // What the kernel had no room for may be all that there is to send.
                self.dirty.store(true, Ordering::SeqCst);
            }
            MutexGuard::unlocked(core, || self.with_io(|io| io.socket.hint_readable(wake.readable)));
        }
    }
}
