//! What a queue counts about itself (L6): how deep, how often full, how often idle.

use super::Indices;
use crate::sync::{Arc, Ordering};
use crossbeam_utils::CachePadded;
// Not loom's: nothing depends on these but people.
use std::sync::atomic::AtomicU64;

/// A queue's state and history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Values in the queue now.
    pub depth: u64,
    /// Most values that the consumer ever found at once: in one look, of which a batch makes several.
    pub depth_max: u64,
    /// Times the producer found it full.
    pub full: u64,
    /// Times the consumer found it empty.
    pub idle: u64,
}

/// Counted on lines of their own: a side that waits and counts must not disturb the other.
#[derive(Debug, Default)]
pub(super) struct Counts {
    producer: CachePadded<AtomicU64>,
    consumer: CachePadded<ConsumerCounts>,
}

#[derive(Debug, Default)]
struct ConsumerCounts {
    idle: AtomicU64,
    depth_max: AtomicU64,
}

impl Counts {
    /// The producer found the queue full. (One writer each: a load and a store are enough.)
    pub fn note_full(&self) {
        bump(&self.producer);
    }

    /// The consumer looked, and found so many.
    pub fn note_look(&self, found: usize) {
        if found == 0 {
            bump(&self.consumer.idle);
        } else if found as u64 > self.consumer.depth_max.load(Ordering::Relaxed) {
            self.consumer.depth_max.store(found as u64, Ordering::Relaxed);
        }
    }
}

fn bump(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Looks at a queue from outside: neither end, any thread.
#[derive(Clone, Debug)]
pub struct Gauge {
    indices: Arc<Indices>,
}

impl Gauge {
    pub(super) fn new(indices: Arc<Indices>) -> Self {
        Self { indices }
    }

    /// The queue's counters. `depth` may be out of date when it is returned.
    pub fn counters(&self) -> QueueCounters {
        let counts = &self.indices.counts;
        let (pushed, popped) = self.passed();
        QueueCounters {
            depth: pushed.wrapping_sub(popped) as u64,
            depth_max: counts.consumer.depth_max.load(Ordering::Relaxed),
            full: counts.producer.load(Ordering::Relaxed),
            idle: counts.consumer.idle.load(Ordering::Relaxed),
        }
    }

    /// How many values were pushed and how many of them popped, modulo 2^64 (on 64-bit machines).
    pub fn passed(&self) -> (usize, usize) {
        // In this order, or more might seem to have come out than went in.
        let popped = self.indices.head.load(Ordering::Acquire);
        let pushed = self.indices.tail.load(Ordering::Acquire);
        (pushed, popped)
    }

    /// Whether both ends are gone.
    pub fn is_abandoned(&self) -> bool {
        self.indices.producer_gone.load(Ordering::Acquire)
            && self.indices.consumer_gone.load(Ordering::Acquire)
    }
}
