//! The ring's memory, and all of its `unsafe`.
//!
//! Inputs → outputs: a [`Cursor`] that goes round → the place for a value, and the word beside it that
//! says up to where values have been placed. Which places hold a value is known by [`Indices`] alone:
//! those from `head` up to `tail`.
//!
//! A line is a cache line: a copy of `tail`, and as many values as fit. So what the consumer waits for
//! and the value itself come in one transfer from core to core, not one after the other. The copy is of
//! the moment when a value, or the first of a batch, was last placed in this line; it may count values of
//! later lines, and lines that the rest of a batch went to do not have it. Whoever has taken all that was
//! shown before looks where the next is placed, and so never misses it.

use super::Indices;
use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};
use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Octets that go from core to core at once.
const LINE: usize = 64;

type Cell<T> = UnsafeCell<MaybeUninit<T>>;

/// Lines for values of which some are there. Whoever drops it last drops the values.
pub(super) struct Lines<T> {
    memory: NonNull<u8>,
    layout: Layout,
    count: usize,
    indices: Arc<Indices>,
    values: PhantomData<T>,
}

// SAFETY: a place is touched by one side at a time, handed over by a release store and an acquire
// load of `head`, `tail` or a line's copy of it; so it is enough that values may be sent to another
// thread. The last owner drops the values, wherever it runs.
unsafe impl<T: Send> Sync for Lines<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Lines<T> {}

impl<T> Lines<T> {
    /// Where a line's values begin: behind its word.
    const VALUES: usize = size_of::<AtomicUsize>().next_multiple_of(align_of::<Cell<T>>());
    /// Values in a line: what fits, or one that makes the line longer.
    const PER_LINE: usize = match (LINE.saturating_sub(Self::VALUES)).checked_div(size_of::<Cell<T>>()) {
        // Two, so that a model sees both the inside and the end of a line.
        _ if cfg!(loom) => 2,
        Some(0) => 1,
        Some(count) => count,
        // Values without a size.
        None => LINE,
    };
    const ALIGN: usize = if align_of::<Cell<T>>() > LINE { align_of::<Cell<T>>() } else { LINE };
    /// From a line to the next.
    const STRIDE: usize =
        (Self::VALUES + Self::PER_LINE * size_of::<Cell<T>>()).next_multiple_of(Self::ALIGN);

    /// Room for at least `capacity` values.
    pub fn new(capacity: usize, indices: Arc<Indices>) -> Self {
        let count = capacity.div_ceil(Self::PER_LINE);
        let layout = count
            .checked_mul(Self::STRIDE)
            .and_then(|bytes| Layout::from_size_align(bytes, Self::ALIGN).ok())
            .expect("a ring of this many values does not fit the address space");
        // SAFETY: the layout is not empty: a capacity is at least 1, a line at least its word.
        let Some(memory) = NonNull::new(unsafe { alloc::alloc(layout) }) else {
            alloc::handle_alloc_error(layout)
        };
        let lines = Self { memory, layout, count, indices, values: PhantomData };
        let mut cursor = lines.cursor(0);
        for _ in 0..count {
            // SAFETY: within the allocation, aligned, and nobody else knows it.
            unsafe {
                cursor.word().write(AtomicUsize::new(0));
                (0..Self::PER_LINE)
                    .for_each(|at| cursor.cell(at).write(UnsafeCell::new(MaybeUninit::uninit())));
            }
            cursor.turn_to_next_line();
        }
        lines
    }

    /// A cursor at a place, of those of [`Cursor::place`]; 0 is the first.
    pub fn cursor(&self, place: usize) -> Cursor<T> {
        let (line, at) = (place / Self::PER_LINE, place % Self::PER_LINE);
        assert!(line < self.count, "a cursor's place lies within the ring");
        // SAFETY: both are lines of the allocation.
        let (line, last) = unsafe {
            (self.memory.add(line * Self::STRIDE), self.memory.add((self.count - 1) * Self::STRIDE))
        };
        Cursor { line, at, first: self.memory, last, values: PhantomData }
    }
}

/// A place in the ring. It knows where to go on, and not for how long the [`Lines`] live: whoever has
/// one keeps those.
pub(super) struct Cursor<T> {
    line: NonNull<u8>,
    /// Which of the line's values.
    at: usize,
    first: NonNull<u8>,
    last: NonNull<u8>,
    values: PhantomData<*mut T>,
}

// SAFETY: a cursor is an address; what is done there has rules of its own (see below).
unsafe impl<T: Send> Send for Cursor<T> {}
// SAFETY: as above; through a shared cursor nothing can be reached without `unsafe`.
unsafe impl<T: Send> Sync for Cursor<T> {}

impl<T> Cursor<T> {
    #[inline(always)]
    fn word(&self) -> NonNull<AtomicUsize> {
        self.line.cast()
    }

    #[inline(always)]
    fn cell(&self, at: usize) -> NonNull<Cell<T>> {
        // SAFETY: a line has `PER_LINE` cells behind `VALUES`, and `at` is below that.
        unsafe { self.line.add(Lines::<T>::VALUES).cast::<Cell<T>>().add(at) }
    }

    /// The line's copy of `tail`: all values before it have been placed.
    ///
    /// # Safety
    /// The [`Lines`] live as long as the reference.
    #[inline(always)]
    pub unsafe fn line_tail<'a>(&self) -> &'a AtomicUsize {
        // SAFETY: initialised when the line was made; the caller's promise.
        unsafe { self.word().as_ref() }
    }

    /// Goes to the next place.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.advance_in_line();
        self.leave_full_line();
    }

    /// Places from this one to the end of its line.
    #[inline(always)]
    pub fn left_in_line(&self) -> usize {
        Lines::<T>::PER_LINE - self.at
    }

    /// Goes to the next place, which may be the end of the line: then
    /// [`leave_full_line`](Self::leave_full_line) is due before anything else.
    #[inline(always)]
    pub fn advance_in_line(&mut self) {
        self.at += 1;
    }

    /// Goes on to the next line if this one ends here.
    #[inline(always)]
    pub fn leave_full_line(&mut self) {
        if self.at == Lines::<T>::PER_LINE {
            self.turn_to_next_line();
        }
    }

    #[inline(always)]
    fn turn_to_next_line(&mut self) {
        self.at = 0;
        self.line = if self.line == self.last {
            self.first
        } else {
            // SAFETY: another line follows one that is not the last.
            unsafe { self.line.add(Lines::<T>::STRIDE) }
        };
    }

    /// The number of this place: for [`Lines::cursor`].
    pub fn place(&self) -> usize {
        let line = (self.line.as_ptr().addr() - self.first.as_ptr().addr()) / Lines::<T>::STRIDE;
        line * Lines::<T>::PER_LINE + self.at
    }

    /// Places a value.
    ///
    /// # Safety
    /// The [`Lines`] live, no value is here, and the caller is the one producer.
    #[inline(always)]
    pub unsafe fn write(&self, value: T) {
        // SAFETY: only the producer touches a place without a value (the caller's promise).
        unsafe { self.cell(self.at).as_ref() }.with_mut(|place| unsafe {
            (*place).write(value);
        });
    }

    /// Takes a value out.
    ///
    /// # Safety
    /// The [`Lines`] live, a value is here, which is not read again, and the caller is the one consumer.
    #[inline(always)]
    pub unsafe fn read(&self) -> T {
        // SAFETY: only the consumer touches a place with a value (the caller's promise).
        unsafe { self.cell(self.at).as_ref() }.with(|place| unsafe { (*place).assume_init_read() })
    }

    /// Looks at a value without taking it.
    ///
    /// # Safety
    /// As for [`read`](Self::read); the caller takes nothing, and keeps the [`Lines`], while the
    /// reference lives.
    #[inline(always)]
    pub unsafe fn peek<'a>(&self) -> &'a T {
        // SAFETY: as for `read`; the caller's promise keeps the value in its place.
        unsafe { self.cell(self.at).as_ref() }.with(|place| unsafe { (*place).assume_init_ref() })
    }
}

impl<T> Drop for Lines<T> {
    fn drop(&mut self) {
        // Both sides are gone: what they did to the indices happened before.
        let left = self.indices.tail.load(Ordering::Relaxed);
        let left = left.wrapping_sub(self.indices.head.load(Ordering::Relaxed));
        let mut cursor = self.cursor(self.indices.last_place.load(Ordering::Relaxed));
        for _ in 0..left {
            // SAFETY: places from head up to tail hold values, and nobody else is left to take them.
            drop(unsafe { cursor.read() });
            cursor.advance();
        }
        let mut cursor = self.cursor(0);
        for _ in 0..self.count {
            // SAFETY: initialised when they were made, and not used any more.
            unsafe {
                cursor.word().drop_in_place();
                (0..Self::PER_LINE).for_each(|at| cursor.cell(at).drop_in_place());
            }
            cursor.turn_to_next_line();
        }
        // SAFETY: allocated with this layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), self.layout) };
    }
}
