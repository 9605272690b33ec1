//! How a thread that found nothing to do sleeps, and is woken when there is something again.
//!
//! Inputs → outputs: "I am about to sleep" and "I have put something into your queue", at any time,
//! in any order → the sleeper never sleeps over something that was put in before.
//!
//! The sleeper says so first and looks at its queues once more after that; who puts something in
//! looks at that word afterwards. A fence on each side orders the two: at least one sees the other.

use crate::sync::{AtomicBool, Ordering, ThreadHandle, fence, park, thread_handle};
use std::sync::OnceLock;
use std::time::Duration;

/// A way to sleep other than being parked: on descriptors, for example.
pub trait Sleeper {
    /// Sleeps until something happens, the waker is used (also if that was before), or `limit`.
    fn sleep(&mut self, limit: Duration);

    /// What ends a sleep, from any thread.
    fn waker(&self) -> Box<dyn Fn() + Send + Sync>;
}

/// A sleeper's bell.
#[derive(Default)]
pub struct Bell {
    asleep: AtomicBool,
    sleeper: OnceLock<Wake>,
}

/// How a sleeper is woken.
enum Wake {
    Unpark(ThreadHandle),
    Call(Box<dyn Fn() + Send + Sync>),
}

impl Bell {
    /// A bell that nobody sleeps by.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes the sleeper if it sleeps, or is about to. Call after putting something into its queue.
    #[inline]
    pub fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // One of several ringers is enough.
        if self.asleep.swap(false, Ordering::AcqRel)
            && let Some(sleeper) = self.sleeper.get()
        {
            match sleeper {
                Wake::Unpark(thread) => thread.unpark(),
                Wake::Call(wake) => wake(),
            }
        }
    }

    /// Sleeps until the bell rings, unless `has_work` says after the announcement that something is
    /// there already; at most `limit`. One thread only ever sleeps by a bell.
    pub fn sleep(&self, limit: Duration, has_work: impl FnOnce() -> bool) {
        self.announce(|| Wake::Unpark(thread_handle()));
        if !has_work() {
            park(limit);
        }
        self.awake();
    }

    /// For a thread that sleeps by other means, the same ones every time: it is about to. What it looks at after
    /// this, and before it sleeps, it does not sleep over.
    pub fn announce_by(&self, sleeper: &mut dyn Sleeper) {
        self.announce(|| Wake::Call(sleeper.waker()));
    }

    /// Such a thread sleeps no more, or has found something to do instead.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    fn announce(&self, wake: impl FnOnce() -> Wake) {
        self.sleeper.get_or_init(wake);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bell").field("asleep", &self.asleep).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::ring;
    use crate::sync::Arc;

    #[test]
    fn nobody_sleeps_over_a_value() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring(1);
            let bell = Arc::new(Bell::new());
            let ringer = Arc::clone(&bell);
            let pushing = loom::thread::spawn(move || {
                producer.push(1).unwrap();
                ringer.ring();
            });
            // loom reports a deadlock if this parks for ever.
            while consumer.pop().is_none() {
                bell.sleep(Duration::from_secs(1), || !consumer.is_empty());
            }
            pushing.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_bell_wakes_and_a_limit_ends_the_sleep() {
        let bell = Arc::new(Bell::new());
        bell.sleep(Duration::from_millis(1), || false);
        bell.sleep(Duration::from_secs(60), || true);
        let ringer = Arc::clone(&bell);
        let began = std::time::Instant::now();
        let ringing = std::thread::spawn(move || {
            while !ringer.asleep.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            ringer.ring();
        });
        bell.sleep(Duration::from_secs(60), || false);
        assert!(began.elapsed() < Duration::from_secs(30));
        ringing.join().unwrap();
    }
}
