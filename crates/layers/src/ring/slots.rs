//! The ring's memory, and all of its `unsafe`.
//!
//! Inputs → outputs: an index that counts on for ever → the slot of that remainder. Which slots
//! hold a value is known by [`Indices`] alone: those from `head` up to `tail`.

use super::Indices;
use crate::sync::{Arc, Ordering, UnsafeCell};
use std::mem::MaybeUninit;

/// Slots for values of which some are there. Whoever drops it last drops the values.
pub(super) struct Slots<T> {
    cells: Box<[UnsafeCell<MaybeUninit<T>>]>,
    indices: Arc<Indices>,
}

// SAFETY: a slot is touched by one side at a time, handed over by a release store and an acquire
// load of `head` or `tail`; so it is enough that values may be sent to another thread.
unsafe impl<T: Send> Sync for Slots<T> {}
// SAFETY: as above; the last owner drops the values, wherever it runs.
unsafe impl<T: Send> Send for Slots<T> {}

impl<T> Slots<T> {
    /// Room for `capacity` values; as many slots as the next power of two, so that an index is cut
    /// by a mask.
    pub fn new(capacity: usize, indices: Arc<Indices>) -> Self {
        let cells =
            (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        Self { cells, indices }
    }

    #[inline(always)]
    fn cell(&self, index: usize) -> &UnsafeCell<MaybeUninit<T>> {
        let cut = index & (self.cells.len() - 1);
        // SAFETY: the number of cells is a power of two, so the mask is below it.
        unsafe { self.cells.get_unchecked(cut) }
    }

    /// Places a value.
    ///
    /// # Safety
    /// The slot holds no value, and the caller is the one producer.
    #[inline(always)]
    pub unsafe fn write(&self, index: usize, value: T) {
        self.cell(index).with_mut(|slot| {
            // SAFETY: only the producer touches a slot without a value (the caller's promise).
            unsafe { (*slot).write(value) };
        });
    }

    /// Takes a value out.
    ///
    /// # Safety
    /// The slot holds a value, which is not read again, and the caller is the one consumer.
    #[inline(always)]
    pub unsafe fn read(&self, index: usize) -> T {
        // SAFETY: only the consumer touches a slot with a value (the caller's promise).
        self.cell(index).with(|slot| unsafe { (*slot).assume_init_read() })
    }

    /// Looks at a value without taking it.
    ///
    /// # Safety
    /// The slot holds a value, and the caller is the one consumer, which takes nothing while the
    /// reference lives.
    #[inline(always)]
    pub unsafe fn peek(&self, index: usize) -> &T {
        // SAFETY: as for `read`; the consumer's promise keeps the value in its place.
        self.cell(index).with(|slot| unsafe { (*slot).assume_init_ref() })
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        // Both sides are gone: what they did to the indices happened before.
        let mut head = self.indices.head.load(Ordering::Relaxed);
        let tail = self.indices.tail.load(Ordering::Relaxed);
        while head != tail {
            // SAFETY: slots from head up to tail hold values, and nobody else is left to take them.
            drop(unsafe { self.read(head) });
            head = head.wrapping_add(1);
        }
    }
}
