//! A bounded queue of owned values with one producer and one consumer (L3).
//!
//! Inputs → outputs: values pushed at one end → the same values, in order, at the other. No lock, no
//! loop that waits for the other side: a full ring gives the value back, an empty one says so.
//!
//! Deviations from L3: the paper's slots hold a pointer or 0, and each side looks at the next slot
//! to see whether it is its turn. Here two counters say so, published by release stores, for which
//! a value need not have a forbidden bit pattern and a batch costs one store. Each side keeps what it
//! last saw of the other's counter, and reads it again only when the ring seems full or empty; so
//! in a stream the two share no cache line but those of the values.

mod counters;
mod slots;

pub use counters::{Gauge, QueueCounters};

use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};
use counters::Counts;
use crossbeam_utils::CachePadded;
use slots::Slots;

/// Most values that a ring may hold: indices count on, and their difference has to stay exact.
pub const MAX_CAPACITY: usize = 1 << 30;

/// Where the sides are. Both count on for ever and wrap; `tail - head` values are in the ring.
#[derive(Debug)]
struct Indices {
    /// The consumer's: the next to be taken.
    head: CachePadded<AtomicUsize>,
    /// The producer's: the next to be placed.
    tail: CachePadded<AtomicUsize>,
    counts: Counts,
    consumer_gone: AtomicBool,
    producer_gone: AtomicBool,
}

/// Makes a ring for up to `capacity` values.
///
/// # Panics
/// If `capacity` is 0 or above [`MAX_CAPACITY`].
pub fn ring<T>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(
        (1..=MAX_CAPACITY).contains(&capacity),
        "a ring holds 1 to {MAX_CAPACITY} values, not {capacity}"
    );
    let indices = Arc::new(Indices {
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
        counts: Counts::default(),
        consumer_gone: AtomicBool::new(false),
        producer_gone: AtomicBool::new(false),
    });
    let slots = Arc::new(Slots::new(capacity, Arc::clone(&indices)));
    let producer = Producer {
        slots: Arc::clone(&slots),
        indices: Arc::clone(&indices),
        capacity,
        tail: 0,
        seen_head: 0,
    };
    (producer, Consumer { slots, indices, capacity, head: 0, seen_tail: 0 })
}

/// The end that values go into.
pub struct Producer<T> {
    slots: Arc<Slots<T>>,
    indices: Arc<Indices>,
    capacity: usize,
    tail: usize,
    /// `head` when it was last looked at: there is at least this much room.
    seen_head: usize,
}

/// The end that values come out of.
pub struct Consumer<T> {
    slots: Arc<Slots<T>>,
    indices: Arc<Indices>,
    capacity: usize,
    head: usize,
    /// `tail` when it was last looked at: at least this much is there.
    seen_tail: usize,
}

impl<T> Producer<T> {
    /// Places a value at the end.
    ///
    /// # Errors
    /// The ring is full: the value comes back.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<(), T> {
        if self.seen_room() == 0 && self.look_for_room() == 0 {
            return Err(value);
        }
        // SAFETY: there is room, so the slot at `tail` is empty; `&mut self` is the one producer.
        unsafe { self.slots.write(self.tail, value) };
        self.tail = self.tail.wrapping_add(1);
        self.indices.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Places values for as long as there is room and `values` has some, and shows them to the
    /// consumer all at once. Returns how many. Takes nothing from `values` that has no room.
    #[inline]
    pub fn push_batch(&mut self, values: impl IntoIterator<Item = T>) -> usize {
        let mut values = values.into_iter();
        let before = self.tail;
        let publish = Publish { producer: self };
        let producer = &mut *publish.producer;
        loop {
            let mut room = producer.seen_room();
            if room == 0 {
                room = producer.look_for_room();
            }
            for _ in 0..room {
                let Some(value) = values.next() else { return producer.tail.wrapping_sub(before) };
                // SAFETY: as for `push`.
                unsafe { producer.slots.write(producer.tail, value) };
                producer.tail = producer.tail.wrapping_add(1);
            }
            if room == 0 {
                return producer.tail.wrapping_sub(before);
            }
        }
    }

    /// Values that there is room for at least.
    #[inline]
    pub fn room(&mut self) -> usize {
        self.seen_head = self.indices.head.load(Ordering::Acquire);
        self.seen_room()
    }

    #[inline(always)]
    fn seen_room(&self) -> usize {
        self.capacity - self.tail.wrapping_sub(self.seen_head)
    }

    /// Looks at the consumer's index anew.
    #[inline(never)]
    fn look_for_room(&mut self) -> usize {
        let room = self.room();
        if room == 0 {
            self.indices.counts.note_full();
        }
        room
    }

    /// Values that the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the consumer is gone: nobody will take what is pushed.
    pub fn is_abandoned(&self) -> bool {
        self.indices.consumer_gone.load(Ordering::Acquire)
    }

    /// Something to look at the ring's state with, from any thread.
    pub fn gauge(&self) -> Gauge {
        Gauge::new(Arc::clone(&self.indices))
    }
}

/// Shows what has been placed, also if the iterator that brings the values panics.
struct Publish<'a, T> {
    producer: &'a mut Producer<T>,
}

impl<T> Drop for Publish<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.producer.indices.tail.store(self.producer.tail, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    /// Takes the first value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.seen_len() == 0 && self.look_for_values() == 0 {
            return None;
        }
        // SAFETY: `tail` has passed `head`, so there is a value; `&mut self` is the one consumer.
        let value = unsafe { self.slots.read(self.head) };
        self.head = self.head.wrapping_add(1);
        self.indices.head.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Takes up to `max` values, one after the other into `take`, and gives their places back all
    /// at once. Returns how many.
    #[inline]
    pub fn pop_batch(&mut self, max: usize, mut take: impl FnMut(T)) -> usize {
        let mut there = self.seen_len();
        // With fewer than asked for, a look is worth its price: there may be more.
        if there < max {
            there = self.look_for_values();
        }
        let count = there.min(max);
        let release = Release { consumer: self };
        for _ in 0..count {
            let consumer = &mut *release.consumer;
            // SAFETY: as for `pop`; `head` moves on before `take` may panic.
            let value = unsafe { consumer.slots.read(consumer.head) };
            consumer.head = consumer.head.wrapping_add(1);
            take(value);
        }
        count
    }

    /// The first value, which stays.
    pub fn peek(&mut self) -> Option<&T> {
        if self.seen_len() == 0 && self.look_for_values() == 0 {
            return None;
        }
        // SAFETY: as for `pop`; the reference borrows the one consumer.
        Some(unsafe { self.slots.peek(self.head) })
    }

    /// Values that are there at least.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.seen_tail = self.indices.tail.load(Ordering::Acquire);
        self.seen_len()
    }

    /// Whether nothing is there.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.len() == 0
    }

    #[inline(always)]
    fn seen_len(&self) -> usize {
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Looks at the producer's index anew.
    #[inline(never)]
    fn look_for_values(&mut self) -> usize {
        let there = self.len();
        self.indices.counts.note_look(there);
        there
    }

    /// Values that the ring holds at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether the producer is gone: what is there is all that will come.
    pub fn is_abandoned(&self) -> bool {
        self.indices.producer_gone.load(Ordering::Acquire)
    }

    /// Something to look at the ring's state with, from any thread.
    pub fn gauge(&self) -> Gauge {
        Gauge::new(Arc::clone(&self.indices))
    }
}

/// Gives places back, also if the one who takes the values panics.
struct Release<'a, T> {
    consumer: &'a mut Consumer<T>,
}

impl<T> Drop for Release<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.consumer.indices.head.store(self.consumer.head, Ordering::Release);
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.indices.producer_gone.store(true, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.indices.consumer_gone.store(true, Ordering::Release);
    }
}

impl<T> std::fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Consumer").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
