//! Orderly shutdown: everything that is under way arrives, then the threads end.
//!
//! Inputs → outputs: a running stack → nothing in any queue, no layer that waits for anything; or,
//! after a time, word of what is left.
//!
//! How quiet is known without a lock: a worker that has nothing in hand says so, and takes it back
//! *before* it pops. If all queues are empty, then all workers say so, and then no queue has had a
//! push since the first look, nothing was under way at the moment between the two looks, and as
//! quiet layers begin nothing by themselves, nothing ever will be (Mattern 1987's double counting).

use super::{Stack, is_this_thread};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Between two looks at the queues.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// How a shutdown ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Everything arrived before the threads ended.
    pub drained: bool,
    /// PDUs left in queues that layers read, and in front of layers, when the threads were stopped.
    pub left: u64,
    /// PDUs that were handed on where nobody was.
    pub dropped: u64,
    /// Threads that a layer's panic has ended.
    pub panicked: usize,
}

impl Stack {
    /// Lets everything under way arrive, at most for `limit`, then ends the threads. From above nothing new is let
    /// in; what comes from below is still taken, as layers may wait for it. What a port has taken until then has
    /// arrived, or is counted.
    pub fn shutdown(mut self, limit: Duration) -> Shutdown {
        self.above.shut();
        self.control.closing.store(true, Ordering::SeqCst);
        // A longer one than the clock can tell is none.
        let deadline = Instant::now().checked_add(limit);
        let mut before = None;
        let drained = loop {
            self.ring_all();
            let now = self.look();
            if now.is_some() && now == before {
                break true;
            }
            before = now;
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) || self.has_ended_worker() {
                break false;
            }
            std::thread::sleep(LOOK_EVERY);
        };
        self.below.shut();
        let panicked = self.stop();
        // Only now: what came from below after the last look is in no hands any more.
        let left = self.left();
        Shutdown { drained: drained && left == 0, left, dropped: self.dropped(), panicked }
    }

    /// How much was ever pushed into each inner queue, if all is quiet.
    fn look(&self) -> Option<Vec<usize>> {
        let passed: Vec<_> =
            self.queues[..self.inner_queues].iter().map(|(_, _, gauge)| gauge.passed()).collect();
        // After the queues: see the module's page.
        let quiet = passed.iter().all(|(pushed, popped)| pushed == popped)
            && self.workers.iter().all(|(state, _)| state.resting.load(Ordering::Acquire));
        quiet.then(|| passed.iter().map(|(pushed, _)| *pushed).collect())
    }

    /// What nobody will take any more, once the threads have ended.
    fn left(&self) -> u64 {
        let queued = self.queues[..self.inner_queues].iter().map(|(_, _, gauge)| gauge.counters().depth);
        let in_hands = self.workers.iter().map(|(state, _)| state.left.load(Ordering::Relaxed));
        queued.chain(in_hands).sum()
    }

    fn has_ended_worker(&self) -> bool {
        self.workers.iter().any(|(_, thread)| thread.as_ref().is_some_and(|thread| thread.is_finished()))
    }

    fn ring_all(&self) {
        self.workers.iter().for_each(|(state, _)| state.bell.ring());
    }

    /// Ends the threads; how many had panicked. One of them that does this ends after it. In a forked child there are none.
    fn stop(&mut self) -> usize {
        if self.process != std::process::id() {
            return 0;
        }
        self.control.stop.store(true, Ordering::SeqCst);
        self.ring_all();
        let threads = self.workers.iter_mut().filter_map(|(_, thread)| thread.take());
        threads.filter(|thread| !is_this_thread(thread)).filter_map(|thread| thread.join().err()).count()
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.stop();
    }
}
