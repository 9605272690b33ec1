//! A bounded queue of owned values with one producer and one consumer (L3).
//!
//! Inputs → outputs: values pushed at one end → the same values, in order, at the other. No lock, no
//! loop that waits for the other side: a full ring gives the value back, an empty one says so.
//!
//! Deviations from L3: the paper's slots hold a pointer or 0, and each side looks at the next slot
//! to see whether it is its turn. Here a value need not have a forbidden bit pattern: the producer
//! counts what it has placed, and writes the count, by a release store, into the cache line of the
//! values as well, which the consumer looks at. So, as in the paper, the word that is waited for and
//! the value come in one transfer; a batch is shown in the line of its first value alone. Each side keeps what it last saw of
//! the other's counter, and looks again only when the ring seems full or empty.

mod counters;
mod lines;

pub use counters::{Gauge, QueueCounters};

use crate::sync::{Arc, AtomicBool, AtomicUsize, Ordering};
use counters::Counts;
use crossbeam_utils::CachePadded;
use lines::{Cursor, Lines};

/// Most values that a ring may hold: it takes the memory for all of them at once.
pub const MAX_CAPACITY: usize = 1 << 20;

/// Where the sides are. Both count on for ever and wrap; `tail - head` values are in the ring.
#[derive(Debug)]
struct Indices {
    /// The consumer's: the next to be taken.
    head: CachePadded<AtomicUsize>,
    /// The producer's: the next to be placed. Stored before a line's copy of it: who has taken a value
    /// that the copy showed has not taken more than `tail` says were placed.
    tail: CachePadded<AtomicUsize>,
    /// Where the consumer was when it went.
    last_place: AtomicUsize,
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
        last_place: AtomicUsize::new(0),
        counts: Counts::default(),
        consumer_gone: AtomicBool::new(false),
        producer_gone: AtomicBool::new(false),
    });
    let lines = Arc::new(Lines::new(capacity, Arc::clone(&indices)));
    let producer = Producer {
        cursor: lines.cursor(0),
        tail: 0,
        seen_head: 0,
        capacity,
        indices: Arc::clone(&indices),
        _lines: Arc::clone(&lines),
    };
    (producer, Consumer { cursor: lines.cursor(0), head: 0, seen_tail: 0, capacity, indices, _lines: lines })
}

/// The end that values go into.
pub struct Producer<T> {
    /// The place of `tail`.
    cursor: Cursor<T>,
    tail: usize,
    /// `head` when it was last looked at: there is at least this much room.
    seen_head: usize,
    capacity: usize,
    indices: Arc<Indices>,
    /// What the cursor moves in.
    _lines: Arc<Lines<T>>,
}

/// The end that values come out of.
pub struct Consumer<T> {
    /// The place of `head`.
    cursor: Cursor<T>,
    head: usize,
    /// `tail` when it, or a line's copy, was last looked at: at least this much is there.
    seen_tail: usize,
    capacity: usize,
    indices: Arc<Indices>,
    /// What the cursor moves in.
    _lines: Arc<Lines<T>>,
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
        // SAFETY: there is room, so no value is at `tail`; `&mut self` is the one producer.
        unsafe { self.cursor.write(value) };
        self.tail = self.tail.wrapping_add(1);
        self.indices.tail.store(self.tail, Ordering::Release);
        // SAFETY: `_lines` keeps them.
        unsafe { self.cursor.line_tail() }.store(self.tail, Ordering::Release);
        self.cursor.advance();
        Ok(())
    }

    /// Places values for as long as there is room and `values` has some, and shows them to the
    /// consumer all at once. Returns how many. Takes nothing from `values` that has no room.
    #[inline]
    pub fn push_batch(&mut self, values: impl IntoIterator<Item = T>) -> usize {
        let mut values = values.into_iter();
        let before = self.tail;
        // Who waits for the first value looks into its line, and so learns of all.
        // SAFETY: `_lines` keeps them for longer than this call.
        let line_tail = unsafe { self.cursor.line_tail() };
        let publish = Publish { producer: self, line_tail };
        let producer = &mut *publish.producer;
        loop {
            let mut room = producer.seen_room();
            if room == 0 {
                room = producer.look_for_room();
            }
            if room == 0 {
                return producer.tail.wrapping_sub(before);
            }
            for _ in 0..room.min(producer.cursor.left_in_line()) {
                let Some(value) = values.next() else { return producer.tail.wrapping_sub(before) };
                // SAFETY: as for `push`.
                unsafe { producer.cursor.write(value) };
                producer.tail = producer.tail.wrapping_add(1);
                producer.cursor.advance_in_line();
            }
            producer.cursor.leave_full_line();
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
    line_tail: &'a AtomicUsize,
}

impl<T> Drop for Publish<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        let tail = self.producer.tail;
        self.producer.indices.tail.store(tail, Ordering::Release);
        self.line_tail.store(tail, Ordering::Release);
    }
}

impl<T> Consumer<T> {
    /// Takes the first value, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.seen_len() == 0 && self.look_for_values() == 0 {
            return None;
        }
        let value = self.take();
        self.indices.head.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Takes up to `max` values, one after the other into `take`, and gives their places back all
    /// at once. Returns how many.
    #[inline]
    pub fn pop_batch(&mut self, max: usize, mut take: impl FnMut(T)) -> usize {
        let release = Release { consumer: self };
        let consumer = &mut *release.consumer;
        let mut count = 0;
        while count < max && (consumer.seen_len() > 0 || consumer.look() > 0) {
            let in_line = consumer.seen_len().min(max - count).min(consumer.cursor.left_in_line());
            for _ in 0..in_line {
                // SAFETY: as for `take`.
                let value = unsafe { consumer.cursor.read() };
                // The place is free before `take` may panic.
                consumer.head = consumer.head.wrapping_add(1);
                consumer.cursor.advance_in_line();
                take(value);
            }
            consumer.cursor.leave_full_line();
            count += in_line;
        }
        consumer.indices.counts.note_look(count + consumer.seen_len());
        count
    }

    /// The first value's place moves on, and is given back by whoever stores `head`. Something is there.
    #[inline(always)]
    fn take(&mut self) -> T {
        debug_assert!(self.seen_len() > 0);
        // SAFETY: `tail` has passed `head`, so there is a value; `&mut self` is the one consumer;
        // `_lines` keeps the lines.
        let value = unsafe { self.cursor.read() };
        self.head = self.head.wrapping_add(1);
        self.cursor.advance();
        value
    }

    /// The first value, which stays.
    pub fn peek(&mut self) -> Option<&T> {
        if self.seen_len() == 0 && self.look_for_values() == 0 {
            return None;
        }
        // SAFETY: as for `take`; the reference borrows the one consumer.
        Some(unsafe { self.cursor.peek() })
    }

    /// Values that are there at least. Disturbs the producer a little; [`is_empty`](Self::is_empty) does
    /// not.
    #[inline]
    pub fn len(&mut self) -> usize {
        self.seen_tail = self.indices.tail.load(Ordering::Acquire);
        self.seen_len()
    }

    /// Whether nothing is there.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        self.seen_len() == 0 && self.look() == 0
    }

    #[inline(always)]
    fn seen_len(&self) -> usize {
        self.seen_tail.wrapping_sub(self.head)
    }

    /// Looks into the line of the next value: whether the producer has been there since.
    #[inline(always)]
    fn look(&mut self) -> usize {
        // SAFETY: `_lines` keeps them.
        let line_tail = unsafe { self.cursor.line_tail() }.load(Ordering::Acquire);
        // Of an earlier round if it lies behind; of the next one, perhaps, if the line has been passed.
        if (line_tail.wrapping_sub(self.head) as isize) > 0 {
            self.seen_tail = line_tail;
        }
        self.seen_len()
    }

    /// Looks, and counts.
    #[inline(never)]
    fn look_for_values(&mut self) -> usize {
        let there = self.look();
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
        self.consumer.cursor.leave_full_line();
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
        self.indices.last_place.store(self.cursor.place(), Ordering::Relaxed);
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
