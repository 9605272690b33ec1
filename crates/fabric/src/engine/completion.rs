//! Where finished operations are reported: completion queues. Counters are in `counter`.
//!
//! Inputs → outputs: completions of any thread → entries in order, a descriptor that is
//! readable while there are any. Looking at an empty queue is one load. While a queue is full
//! nothing more is begun that would be reported there, nor taken from peers.

use super::sources::Sources;
use crate::error::Errno;
use denrei::Maker;
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Entries that nobody has read, above which peers and senders have to wait: as many as the receives that may be posted, or as the
/// application has asked for.
pub const MOST_UNREAD: usize = 65_536;

/// What happened to an operation; libfabric's flags and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The application's pointer.
    pub context: usize,
    pub flags: u64,
    /// Bytes received.
    pub len: usize,
    /// Where they are.
    pub buffer: usize,
    pub data: u64,
    pub tag: u64,
    /// Who sent them, or [`FI_ADDR_UNSPEC`](crate::ffi::FI_ADDR_UNSPEC).
    pub source: u64,
    /// What went wrong, and bytes that did not fit.
    pub error: Option<(Errno, usize)>,
}

/// A completion queue.
#[derive(Debug, Default)]
pub struct CompletionQueue {
    /// Entries, readable without the lock.
    count: AtomicUsize,
    entries: Mutex<VecDeque<Completion>>,
    /// How often the application has looked.
    looks: AtomicU64,
    alarm: Alarm,
    /// Entries that the application has asked for room for.
    wished: usize,
    /// How often sleepers were to be woken, and how many of those times were noticed.
    wakes: AtomicU64,
    noticed: AtomicU64,
    /// What has to work for this queue to fill.
    pub sources: Sources,
}

/// A descriptor and a condition to sleep on. A child that was forked shares the descriptor with its parent, whose news it is.
#[derive(Debug, Default)]
pub struct Alarm {
    maker: Maker,
    descriptor: Option<EventFd>,
    pub(super) changed: Condvar,
}

impl Alarm {
    /// One to sleep on; without, threads can only poll.
    pub fn new(with_descriptor: bool) -> Result<Self, Errno> {
        if !with_descriptor {
            return Ok(Self::default());
        }
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let descriptor = EventFd::from_flags(flags).map_err(|error| Errno(error as i32))?;
        Ok(Self { descriptor: Some(descriptor), ..Self::default() })
    }

    /// That it belongs to this process: in a child that was forked nothing happens that it could tell.
    ///
    /// # Errors
    /// `BAD_STATE`: it is the parent's.
    pub fn check_own(&self) -> Result<(), Errno> {
        if self.maker.is_this_process() { Ok(()) } else { Err(Errno::BAD_STATE) }
    }

    /// Readable while there is news.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.as_ref().map(AsFd::as_fd)
    }

    /// There is news.
    pub fn ring(&self) {
        if let Some(descriptor) = &self.descriptor {
            // Full means that it is readable already.
            let _ = descriptor.write(1);
            self.changed.notify_all();
        }
    }

    /// There is none any more.
    pub fn quiet(&self) {
        if let Some(descriptor) = &self.descriptor {
            // Empty means that it is quiet already.
            let _ = descriptor.read();
        }
    }
}

/// Longest sleep between two looks of a waiter, while no thread works for it.
pub(super) const SHORT_SLEEP: Duration = Duration::from_micros(50);
/// Longest sleep of one that is told.
pub(super) const LONG_SLEEP: Duration = Duration::from_secs(10);

impl CompletionQueue {
    /// An empty queue with room for `wished` entries or more; `waitable`: threads may sleep on it.
    pub fn new(wished: usize, waitable: bool) -> Result<Self, Errno> {
        Ok(Self { alarm: Alarm::new(waitable)?, wished, ..Self::default() })
    }

    /// Adds an entry.
    pub fn push(&self, completion: Completion) {
        let mut entries = self.entries.lock();
        entries.push_back(completion);
        self.count.store(entries.len(), Ordering::Release);
        self.alarm.ring();
    }

    /// How often the application has looked.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Entries that wait.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has to wait until the application reads what would be reported here.
    pub fn is_full(&self) -> bool {
        self.len() >= self.wished.max(MOST_UNREAD)
    }

    /// What there is to sleep on.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    /// Takes up to `most` successful completions, oldest first, up to the first failure; how many.
    ///
    /// # Errors
    /// `AGAIN`: there are none. `AVAILABLE`: the next one is a failure.
    pub fn read(&self, most: usize, mut take: impl FnMut(usize, &Completion)) -> Result<usize, Errno> {
        // One that is lost to another thread's does no harm.
        self.looks.store(self.looks.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if self.is_empty() {
            self.sources.look();
            if self.is_empty() {
                return Err(Errno::AGAIN);
            }
        }
        let mut entries = self.entries.lock();
        let ready = entries.iter().take(most).take_while(|entry| entry.error.is_none()).count();
        for (index, entry) in entries.drain(..ready).enumerate() {
            take(index, &entry);
        }
        self.count.store(entries.len(), Ordering::Release);
        match (ready, entries.is_empty()) {
            (0, true) => Err(Errno::AGAIN),
            (0, false) if most > 0 => Err(Errno::AVAILABLE),
            (ready, empty) => {
                if empty {
                    self.alarm.quiet();
                }
                Ok(ready)
            }
        }
    }

    /// Takes the next failure, if it is its turn.
    ///
    /// # Errors
    /// `AGAIN`: it is not a failure's turn.
    pub fn read_failure(&self) -> Result<Completion, Errno> {
        let mut entries = self.entries.lock();
        if entries.front().is_none_or(|entry| entry.error.is_none()) {
            return Err(Errno::AGAIN);
        }
        let failure = entries.pop_front().ok_or(Errno::AGAIN)?;
        self.count.store(entries.len(), Ordering::Release);
        if entries.is_empty() {
            self.alarm.quiet();
        }
        Ok(failure)
    }

    /// Sleeps until there is an entry, somebody calls [`wake`](Self::wake), or `deadline`. A call that found nobody
    /// asleep wakes the next.
    ///
    /// # Errors
    /// `AGAIN`: time is up, or somebody woke the sleeper.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<(), Errno> {
        let noticed = self.noticed.load(Ordering::Acquire);
        loop {
            if !self.is_empty() {
                return Ok(());
            }
            self.sources.work();
            let longest = if self.sources.work_by_themselves() { LONG_SLEEP } else { SHORT_SLEEP };
            let mut entries = self.entries.lock();
            if !entries.is_empty() {
                return Ok(());
            }
            let wakes = self.wakes.load(Ordering::Acquire);
            if wakes != noticed {
                self.noticed.store(wakes, Ordering::Release);
                return Err(Errno::AGAIN);
            }
            let left = deadline.map_or(longest, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Err(Errno::AGAIN);
            }
            self.alarm.changed.wait_for(&mut entries, left.min(longest));
        }
    }

    /// Wakes whoever sleeps on the queue.
    pub fn wake(&self) {
        let _entries = self.entries.lock();
        self.wakes.fetch_add(1, Ordering::AcqRel);
        self.alarm.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn entry(context: usize, error: Option<(Errno, usize)>) -> Completion {
        Completion { context, flags: 0, len: 0, buffer: 0, data: 0, tag: 0, source: 0, error }
    }

    #[test]
    fn failures_come_in_their_turn() {
        let queue = CompletionQueue::new(0, false).unwrap();
        let read = |most| {
            let mut contexts = Vec::new();
            queue.read(most, |_, entry| contexts.push(entry.context)).map(|_| contexts)
        };
        assert_eq!(read(8), Err(Errno::AGAIN));
        for (context, failed) in [(1, false), (2, false), (3, true), (4, false)] {
            queue.push(entry(context, failed.then_some((Errno::CANCELED, 0))));
        }
        assert_eq!(queue.read_failure(), Err(Errno::AGAIN));
        assert_eq!(read(1), Ok(vec![1]));
        assert_eq!(read(8), Ok(vec![2]));
        assert_eq!(read(8), Err(Errno::AVAILABLE));
        assert_eq!(queue.read_failure().unwrap().context, 3);
        assert_eq!(read(8), Ok(vec![4]));
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn a_sleeper_is_woken_by_an_entry() {
        let queue = Arc::new(CompletionQueue::new(0, true).unwrap());
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(queue.wait(Some(soon)), Err(Errno::AGAIN));
        let pusher = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            pusher.push(entry(1, None));
        });
        assert_eq!(queue.wait(Some(Instant::now() + Duration::from_secs(20))), Ok(()));
        thread.join().unwrap();
    }

    #[test]
    fn a_sleeper_is_woken_by_a_signal_even_if_it_comes_first_and_by_no_entry_that_another_takes() {
        let queue = CompletionQueue::new(0, true).unwrap();
        queue.wake();
        assert_eq!(queue.wait(None), Err(Errno::AGAIN));
        let soon = || Some(Instant::now() + Duration::from_secs(20));
        let take = || {
            loop {
                queue.wait(soon())?;
                if queue.read(1, |_, _| ()).is_ok() {
                    return Ok(());
                }
            }
        };
        for _ in 0..100 {
            std::thread::scope(|scope| {
                let takers = [scope.spawn(take), scope.spawn(take)];
                for _ in 0..2 {
                    std::thread::sleep(Duration::from_millis(1));
                    queue.push(entry(1, None));
                }
                let taken: Vec<Result<(), Errno>> = takers.map(|taker| taker.join().unwrap()).into();
                assert_eq!(taken, [Ok(()), Ok(())]);
            });
        }
    }
}
