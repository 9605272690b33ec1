//! Counters of finished operations.
//!
//! Inputs → outputs: completions of any thread → two counts, waiters woken, a descriptor that is readable when
//! there is something that was not read.

use super::completion::{Alarm, LONG_SLEEP, SHORT_SLEEP};
use super::sources::{REST_AFTER, Sources};
use crate::error::Errno;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::{Duration, Instant};

/// Longest sleep on sockets: another thread may take what comes, and its count is seen after it.
const SOCKET_SLEEP: Duration = Duration::from_millis(1);

/// A counter.
#[derive(Debug, Default)]
pub struct Counter {
    value: AtomicU64,
    errors: AtomicU64,
    /// Threads that are about to sleep, or do; readable without the lock.
    sleepers: AtomicUsize,
    sleeping: Mutex<()>,
    alarm: Alarm,
    /// The alarm has rung since somebody read.
    is_unread: AtomicBool,
    /// What has to work for this counter to rise.
    pub sources: Sources,
}

impl Counter {
    /// A counter at zero; `waitable`: it has a descriptor.
    pub fn new(waitable: bool) -> Result<Self, Errno> {
        Ok(Self { alarm: Alarm::new(waitable)?, ..Self::default() })
    }

    /// Operations that went well. Looking works, as with a queue.
    pub fn read(&self) -> u64 {
        self.look();
        self.value.load(Ordering::Acquire)
    }

    /// Operations that failed.
    pub fn read_errors(&self) -> u64 {
        self.look();
        self.errors.load(Ordering::Acquire)
    }

    /// The descriptor is quiet from now on, until there is something that the caller does not read now.
    fn look(&self) {
        self.sources.look();
        if self.is_unread.load(Ordering::Acquire) {
            self.is_unread.store(false, Ordering::Relaxed);
            self.alarm.quiet();
        }
    }

    /// What there is to sleep on.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Adds to the one or the other.
    pub fn add(&self, good: u64, failed: u64) {
        self.value.fetch_add(good, Ordering::AcqRel);
        self.errors.fetch_add(failed, Ordering::AcqRel);
        self.tell();
    }

    /// Sets the number of those that went well.
    pub fn set(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        self.tell();
    }

    /// Sets the number of those that failed.
    pub fn set_errors(&self, value: u64) {
        self.errors.store(value, Ordering::Release);
        self.tell();
    }

    fn tell(&self) {
        // Either this thread sees who is about to sleep, or that one the count.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.sleeping.lock());
            self.alarm.changed.notify_all();
        }
        if self.alarm.descriptor().is_some() {
            self.alarm.ring();
            // Not before: whoever reads then would leave it ringing.
            self.is_unread.store(true, Ordering::Release);
        }
    }

    /// Sleeps, at most so long, unless it differs already.
    fn sleep(&self, values: (u64, u64), left: Duration) {
        if self.sources.sleep(left.min(SOCKET_SLEEP)) {
            return;
        }
        let longest = if self.sources.work_by_themselves() { LONG_SLEEP } else { SHORT_SLEEP };
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let mut sleeping = self.sleeping.lock();
        if (self.value.load(Ordering::Acquire), self.errors.load(Ordering::Acquire)) == values {
            self.alarm.changed.wait_for(&mut sleeping, left.min(longest));
        }
        drop(sleeping);
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until it is at least `threshold`, an error is counted, or `deadline`.
    ///
    /// # Errors
    /// `AVAILABLE`: an error was counted. `ETIMEDOUT`: time is up.
    pub fn wait(&self, threshold: u64, deadline: Option<Instant>) -> Result<(), Errno> {
        let errors = self.errors.load(Ordering::Acquire);
        for looks in 0_u64.. {
            let value = self.value.load(Ordering::Acquire);
            if value >= threshold {
                return Ok(());
            }
            if self.errors.load(Ordering::Acquire) != errors {
                return Err(Errno::AVAILABLE);
            }
            let left = deadline.map_or(LONG_SLEEP, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break;
            }
            self.sources.work();
            if looks > REST_AFTER.into() {
                self.sleep((value, errors), left);
            }
        }
        Err(Errno(crate::ffi::ETIMEDOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_waits_for_its_threshold_or_an_error() {
        let counter = Counter::new(false).unwrap();
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                counter.add(2, 0);
            });
            assert_eq!(counter.wait(2, None), Ok(()));
        });
        assert!(began.elapsed() < LONG_SLEEP / 2, "a sleeper is told");
        assert_eq!(counter.wait(2, None), Ok(()));
        let soon = Some(Instant::now() + Duration::from_millis(10));
        assert_eq!(counter.wait(3, soon), Err(Errno(crate::ffi::ETIMEDOUT)));
        counter.add(0, 1);
        assert_eq!((counter.read(), counter.read_errors()), (2, 1));
    }

    #[test]
    fn a_counters_descriptor_is_readable_while_there_is_something_unread() {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let counter = Counter::new(true).unwrap();
        let rings = || {
            let mut polled = [PollFd::new(counter.alarm().descriptor().unwrap(), PollFlags::POLLIN)];
            poll(&mut polled, PollTimeout::ZERO).unwrap() == 1
        };
        assert!(!rings());
        for value in 1..=3 {
            counter.add(1, 0);
            assert!(rings());
            assert_eq!((counter.read(), rings()), (value, false));
        }
        counter.add(0, 1);
        assert!(rings());
        assert_eq!((counter.read_errors(), rings()), (1, false));
    }
}
