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
    /// What was read of either, if there is a descriptor.
    seen_value: AtomicU64,
    seen_errors: AtomicU64,
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
        self.look((&self.value, &self.seen_value), (&self.errors, &self.seen_errors))
    }

    /// Operations that failed.
    pub fn read_errors(&self) -> u64 {
        self.look((&self.errors, &self.seen_errors), (&self.value, &self.seen_value))
    }

    /// Reads one count. The descriptor is quiet from now on, until there is something that the caller does not read
    /// now; unless there is of the other already, which may have come since the caller has read it, who is about to
    /// sleep.
    fn look(&self, (count, seen): (&AtomicU64, &AtomicU64), other: (&AtomicU64, &AtomicU64)) -> u64 {
        self.sources.look();
        if self.alarm.descriptor().is_none() {
            return count.load(Ordering::Acquire);
        }
        let is_unseen = || other.0.load(Ordering::Acquire) > other.1.load(Ordering::Acquire);
        let is_quieted = self.is_unread.load(Ordering::Acquire) && !is_unseen();
        if is_quieted {
            self.is_unread.store(false, Ordering::Relaxed);
            self.alarm.quiet();
        }
        let read = count.load(Ordering::Acquire);
        seen.store(read, Ordering::Release);
        // It may have been counted just before, and rung for in vain.
        if is_quieted && is_unseen() {
            self.ring();
        }
        read
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
        self.seen_value.fetch_min(value, Ordering::AcqRel);
        self.tell();
    }

    /// Sets the number of those that failed.
    pub fn set_errors(&self, value: u64) {
        self.errors.store(value, Ordering::Release);
        self.seen_errors.fetch_min(value, Ordering::AcqRel);
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
            self.ring();
        }
    }

    fn ring(&self) {
        self.alarm.ring();
        // Not before: whoever reads then would leave it ringing.
        self.is_unread.store(true, Ordering::Release);
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

    /// Waits until it is at least `threshold`, an error is counted, or `deadline`; works at least once, so that whoever
    /// asks without waiting gets on.
    ///
    /// # Errors
    /// `AVAILABLE`: an error was counted. `ETIMEDOUT`: time is up.
    pub fn wait(&self, threshold: u64, deadline: Option<Instant>) -> Result<(), Errno> {
        let errors = self.errors.load(Ordering::Acquire);
        let mut is_late = false;
        for looks in 0_u64.. {
            let value = self.value.load(Ordering::Acquire);
            if value >= threshold {
                return Ok(());
            }
            if self.errors.load(Ordering::Acquire) != errors {
                return Err(Errno::AVAILABLE);
            }
            if is_late {
                break;
            }
            self.sources.work();
            let left = deadline.map_or(LONG_SLEEP, |at| at.saturating_duration_since(Instant::now()));
            is_late = left.is_zero();
            if looks > REST_AFTER.into() {
                self.sleep((value, errors), left);
            }
        }
        Err(Errno(crate::ffi::ETIMEDOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::Progress;
    use super::*;
    use std::sync::Arc;

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
        // Whoever has read the one and reads the other may sleep then.
        counter.add(1, 0);
        assert_eq!((counter.read_errors(), rings()), (1, true));
        assert_eq!((counter.read(), rings()), (4, false));
        counter.add(0, 1);
        assert_eq!((counter.read(), rings()), (4, true));
        assert_eq!((counter.read_errors(), rings()), (2, false));
        counter.set_errors(0);
        counter.set(0);
        assert_eq!((counter.read(), rings()), (0, false));
        counter.add(0, 1);
        assert_eq!((counter.read(), rings()), (0, true));
    }

    /// Counts something at each look.
    #[derive(Debug)]
    struct Working(Arc<Counter>);

    impl Progress for Working {
        fn progress(&self) -> u64 {
            self.0.add(1, 0);
            1
        }

        fn yielded(&self, _: bool) {}

        fn has_thread(&self) -> bool {
            false
        }

        fn rest(&self, _: Duration) {}
    }

    #[test]
    fn who_asks_for_a_threshold_without_waiting_gets_on() {
        let counter = Arc::new(Counter::new(false).unwrap());
        let working: Arc<dyn Progress> = Arc::new(Working(Arc::clone(&counter)));
        counter.sources.add(Arc::downgrade(&working));
        assert_eq!(counter.wait(2, Some(Instant::now())), Err(Errno(crate::ffi::ETIMEDOUT)));
        assert_eq!(counter.wait(2, Some(Instant::now())), Ok(()));
    }
}
