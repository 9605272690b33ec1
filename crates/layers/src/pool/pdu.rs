//! A PDU's descriptor (L7): which part of which body.
//!
//! Inputs → outputs: a block from a [`Pool`](super::Pool) → a window on its body that layers move:
//! `prepend` a header on the way down, `strip` it on the way up. [`Pdu::share`] makes another
//! descriptor of the same body: what is kept for retransmission costs 16 octets and no copy.
//!
//! Who may write: a body that is shared is not changed, except that *one* descriptor may claim the
//! octets right below the lowest that were ever claimed, for a header. So a layer below can put its
//! header in front of a PDU that the layer above has kept. A second one (the same PDU, sent again)
//! finds the place taken and copies, as a network stack does with a cloned buffer.
//!
//! A descriptor knows whether there ever was another one. If not, nobody looks at the count, and the cache
//! line it is in stays with the thread that allocates and frees: from core to core goes what layers write.

use super::block::{Block, LARGEST_BODY};
use super::frees;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// A window on a body that is counted by reference.
pub struct Pdu {
    block: Block,
    start: u32,
    /// Where the window ends, and [`SHARED`].
    end: u32,
}

/// In a descriptor's `end`: there was another one of the same body, and may be still.
const SHARED: u32 = 1 << 31;

const _: () = assert!(LARGEST_BODY < SHARED as usize);

/// A header cannot be put in front: there is no room, or another descriptor has put one there.
/// [`Pool::copy`](super::Pool::copy) makes a PDU that has room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for a header of {wanted} octets: copy the PDU")]
pub struct NoHeadRoom {
    /// Octets asked for.
    pub wanted: usize,
}

// SAFETY: counted by an atomic; shared octets are only read, and octets that are written belong to
// one descriptor alone (see above).
unsafe impl Send for Pdu {}
// SAFETY: through `&Pdu` octets are only read.
unsafe impl Sync for Pdu {}

impl Pdu {
    /// The one descriptor of a block that has just left its pool.
    #[inline]
    pub(super) fn new(block: Block, start: u32, end: u32) -> Self {
        Self { block, start, end }
    }

    #[inline(always)]
    fn end(&self) -> u32 {
        self.end & !SHARED
    }

    /// Whether there was another descriptor.
    #[inline(always)]
    fn was_shared(&self) -> bool {
        self.end & SHARED != 0
    }

    /// Octets of the window.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end() - self.start) as usize
    }

    /// Whether the window is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.end() == self.start
    }

    /// Octets of the body in front of the window.
    #[inline]
    pub fn head_room(&self) -> usize {
        self.start as usize
    }

    /// Octets of the body behind the window.
    pub fn tail_room(&self) -> usize {
        (self.block.header().capacity - self.end()) as usize
    }

    /// Another descriptor of the same body and window.
    #[inline]
    pub fn share(&mut self) -> Self {
        let header = self.block.header();
        if !self.was_shared() {
            header.low.store(self.start, Ordering::Relaxed);
            self.end |= SHARED;
        }
        let before = header.references.fetch_add(1, Ordering::Relaxed);
        assert!(before < u32::MAX / 2, "a body has two billion descriptors: they are leaked");
        Self { block: self.block, start: self.start, end: self.end }
    }

    /// Whether this is the body's only descriptor.
    #[inline]
    pub fn is_unique(&self) -> bool {
        !self.was_shared() || self.block.header().references.load(Ordering::Acquire) == 1
    }

    /// The window, to be written: only if this is the body's only descriptor.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: nobody else has a descriptor, and `&mut self` keeps it so.
        if self.is_unique() { Some(unsafe { self.window_mut(self.start, self.len()) }) } else { None }
    }

    /// Widens the window by `count` octets in front, and gives them to be written.
    ///
    /// # Errors
    /// No room, or another descriptor has a header there.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoHeadRoom> {
        let no_room = NoHeadRoom { wanted: count };
        let start = (self.start as usize).checked_sub(count).ok_or(no_room)? as u32;
        if self.was_shared() && !self.claim(start) {
            return Err(no_room);
        }
        self.start = start;
        // SAFETY: the octets were claimed just now: no other descriptor's window reaches them, nor
        // ever will while this one lives, except a copy made by `share`, which borrows `self`.
        Ok(unsafe { self.window_mut(start, count) })
    }

    /// Whether the octets from `start` up to the window are this descriptor's from now on.
    fn claim(&self, start: u32) -> bool {
        let low = &self.block.header().low;
        if self.is_unique() {
            low.store(start, Ordering::Relaxed);
            return true;
        }
        low.compare_exchange(self.start, start, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Narrows the window by `count` octets in front: a header that was read.
    ///
    /// # Panics
    /// If the window has fewer.
    #[inline]
    pub fn strip(&mut self, count: usize) {
        assert!(count <= self.len(), "cannot strip {count} octets of {}", self.len());
        self.start += count as u32;
    }

    /// Narrows the window to its first `len` octets, if it has more.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        // The flag stays where it is, above every place in a body.
        self.end -= self.len().saturating_sub(len) as u32;
    }

    /// Widens the window by `count` octets behind, and gives them to be written: only if this is the
    /// body's only descriptor and there is room.
    pub fn append(&mut self, count: usize) -> Option<&mut [u8]> {
        if count > self.tail_room() || !self.is_unique() {
            return None;
        }
        let at = self.end();
        self.end += count as u32;
        // SAFETY: as for `get_mut`; within the body, as just checked.
        Some(unsafe { self.window_mut(at, count) })
    }

    /// Asks for the cache lines that the next `prepend` or `strip` will touch.
    #[inline]
    pub fn prefetch(&self) {
        if self.was_shared() {
            self.block.prefetch_header();
        }
        self.block.prefetch_body(self.start as usize);
    }

    /// Gives the body to a program that counts by itself: its first octet. [`Self::from_raw`] takes
    /// it back.
    pub fn into_raw(self) -> NonNull<u8> {
        let body = NonNull::new(self.block.body()).expect("no body lies at 0");
        std::mem::forget(self);
        body
    }

    /// Takes a body back: a descriptor of all of it. `None` if nobody has that body: it was freed
    /// before (while its pool lives, this is noticed).
    ///
    /// # Safety
    /// `body` came from [`Self::into_raw`], and its pool, or another of its blocks, lives.
    pub unsafe fn from_raw(body: NonNull<u8>) -> Option<Self> {
        // SAFETY: the caller's promise.
        let block = unsafe { Block::of_body(body) };
        if !block.is_live() {
            return None;
        }
        let header = block.header();
        // There may be other descriptors: nothing in front of this window, which is all, is anybody's.
        header.low.store(0, Ordering::Relaxed);
        Some(Self::new(block, 0, header.capacity | SHARED))
    }

    /// # Safety
    /// Within the body, and the caller may write there.
    #[inline(always)]
    unsafe fn window_mut(&mut self, at: u32, count: usize) -> &mut [u8] {
        // SAFETY: the caller's promise; bodies are initialised when they are made.
        unsafe { std::slice::from_raw_parts_mut(self.block.body().add(at as usize), count) }
    }
}

impl Deref for Pdu {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the window lies within the body, which is initialised; nobody writes there while
        // this descriptor lives (see the module's page).
        unsafe { std::slice::from_raw_parts(self.block.body().add(self.start as usize), self.len()) }
    }
}

impl Drop for Pdu {
    #[inline]
    fn drop(&mut self) {
        // Alone: nobody can make it two behind our back, so no exchange is needed.
        if !self.is_unique() {
            if self.block.header().references.fetch_sub(1, Ordering::Release) != 1 {
                return;
            }
            // What other descriptors' holders did with the body comes before its next use.
            fence(Ordering::Acquire);
        }
        frees::free(self.block);
    }
}

impl std::fmt::Debug for Pdu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pdu").field("len", &self.len()).field("head_room", &self.head_room()).finish()
    }
}
