//! Blocks: a header and a body, their memory, and all of its `unsafe` but the batches'.
//!
//! Inputs → outputs: a size class → blocks in a chunk of memory; a block's address → its header and
//! its body. A chunk lives until every block of its pool has come home, even if the pool is gone.

use super::returns::{Batch, Returns};
use std::alloc::{self, Layout};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};

/// Octets of the smallest body.
pub const SMALLEST_BODY: usize = 256;
/// Size classes: powers of two from [`SMALLEST_BODY`] up. The last takes a jumbo GSO train (64 KiB)
/// and the headers in front of it.
pub const CLASSES: usize = 10;
/// Octets of the largest body.
pub const LARGEST_BODY: usize = SMALLEST_BODY << (CLASSES - 1);

/// Alignment and size of a header: a cache line, so that counting references does not disturb
/// whoever works on a neighbour's body.
const HEADER: usize = 64;
/// [`Header::state`] of a block that somebody has.
const LIVE: u32 = 0x11fe_b10c;
/// [`Header::state`] of a block that nobody has.
const FREE: u32 = 0xdead_b10c;

const _: () = assert!(size_of::<Header>() == HEADER && align_of::<Header>() == HEADER);
const _: () = assert!(size_of::<Batch>() <= SMALLEST_BODY);
const _: () = assert!(CLASSES <= HEADER, "a class fits the low bits of an address");

/// What lies in front of a body.
#[repr(C, align(64))]
pub(super) struct Header {
    /// The part of its pool that outlives the pool.
    pub shared: NonNull<Shared>,
    /// Descriptors of this body.
    pub references: AtomicU32,
    /// Of a body that has several descriptors: where the headers written so far begin. Octets below are
    /// nobody's yet.
    pub low: AtomicU32,
    /// Octets of the body.
    pub capacity: u32,
    state: AtomicU32,
    /// Who allocated it last, in debug builds: its address, or 0.
    site: AtomicSite,
}

type AtomicSite = std::sync::atomic::AtomicPtr<Location<'static>>;

/// Size class of a body of so many octets, if there is one.
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    let class = |bytes: usize| bytes.next_power_of_two().trailing_zeros() - SMALLEST_BODY.trailing_zeros();
    (bytes <= LARGEST_BODY).then(|| class(bytes.max(SMALLEST_BODY)) as usize)
}

/// Octets of the bodies of a class.
pub(super) const fn body_bytes(class: usize) -> usize {
    SMALLEST_BODY << class
}

/// A block, named by its header. Whoever has one has not necessarily the right to touch it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block(NonNull<Header>);

impl Block {
    #[inline(always)]
    pub fn header(&self) -> &Header {
        // SAFETY: headers are initialised when their chunk is made, never moved, changed through
        // atomics only, and live as long as a block is out (see `Shared`).
        unsafe { self.0.as_ref() }
    }

    /// The first octet of the body.
    #[inline(always)]
    pub fn body(&self) -> *mut u8 {
        // SAFETY: header and body are one allocation, `capacity` octets beyond the header.
        unsafe { self.0.as_ptr().cast::<u8>().add(HEADER) }
    }

    /// The block whose body begins at `body`.
    ///
    /// # Safety
    /// `body` came from [`Self::body`] of a block whose chunk still lives.
    pub unsafe fn of_body(body: NonNull<u8>) -> Self {
        // SAFETY: the header lies in front of the body (the caller's promise).
        Self(unsafe { body.sub(HEADER) }.cast())
    }

    /// The block and its class in one word, for batches.
    pub fn tagged(&self) -> usize {
        let class = class_of(self.header().capacity as usize).expect("blocks have a class");
        self.0.as_ptr().expose_provenance() | class
    }

    /// The reverse of [`Self::tagged`].
    pub fn from_tagged(word: usize) -> (Self, usize) {
        let header = std::ptr::with_exposed_provenance_mut::<Header>(word & !(HEADER - 1));
        (Self(NonNull::new(header).expect("no block lies at 0")), word & (HEADER - 1))
    }

    /// A block leaves the pool.
    #[inline(always)]
    pub fn take_out(&self, site: &'static Location<'static>) {
        let header = self.header();
        // Nobody else knows the block: plain stores.
        header.references.store(1, Ordering::Relaxed);
        header.state.store(LIVE, Ordering::Relaxed);
        if cfg!(debug_assertions) {
            header.site.store(std::ptr::from_ref(site).cast_mut(), Ordering::Relaxed);
        }
    }

    /// A block is given back. Notices one that is given back twice.
    #[inline(always)]
    pub fn give_back(&self) {
        let header = self.header();
        if cfg!(debug_assertions) {
            let before = header.state.swap(FREE, Ordering::Relaxed);
            assert!(before == LIVE, "block {:p} is freed twice, or was never allocated", self.body());
        } else {
            header.state.store(FREE, Ordering::Relaxed);
        }
    }

    /// Whether somebody has it.
    pub fn is_live(&self) -> bool {
        self.header().state.load(Ordering::Relaxed) == LIVE
    }

    /// Asks for the header's cache line, to be written.
    #[inline(always)]
    pub fn prefetch_header(&self) {
        denrei_prefetch::line_to_write(self.0.as_ptr().cast());
    }

    /// Asks for the cache line that `offset` of the body is in, to be written.
    #[inline(always)]
    pub fn prefetch_body(&self, offset: usize) {
        denrei_prefetch::line_to_write(self.body().wrapping_add(offset));
    }

    /// Who allocated it, in debug builds.
    pub fn site(&self) -> Option<&'static Location<'static>> {
        let site = self.header().site.load(Ordering::Relaxed);
        // SAFETY: null, or stored by `take_out` from a reference that lives for ever.
        unsafe { site.as_ref() }
    }

    /// Writes a batch into the body of a block that nobody has.
    ///
    /// # Safety
    /// The block was given back by the caller, who has not passed it on.
    pub unsafe fn write_batch(&self, batch: Batch) -> *mut Batch {
        let place = self.body().cast::<Batch>();
        // SAFETY: the body is large enough and aligned (asserted above), and the caller's alone.
        unsafe { place.write(batch) };
        place
    }
}

/// What outlives a pool as long as blocks are out.
pub(super) struct Shared {
    pub returns: Returns,
    /// Blocks in one batch at most: few if the pool is small, so that none sits in a batch that
    /// nobody sends while its owner starves.
    pub batch_limit: usize,
    /// After the owner has gone, blocks that are still out (less those that came before it said so).
    out: AtomicIsize,
    chunks: Mutex<Vec<Chunk>>,
}

struct Chunk {
    memory: NonNull<u8>,
    layout: Layout,
    stride: usize,
}

// SAFETY: a chunk is a number and a layout; who may touch the memory is settled block by block.
unsafe impl Send for Chunk {}

impl Shared {
    /// Made for a pool; ends by [`Self::owner_gone`] and the last block's way home.
    pub fn new(batch_limit: usize) -> NonNull<Self> {
        let shared =
            Self { returns: Returns::new(), batch_limit, out: AtomicIsize::new(0), chunks: Mutex::default() };
        NonNull::from(Box::leak(Box::new(shared)))
    }

    /// Makes `count` blocks of a class, all of them free; `None` if the system has no memory.
    pub fn make_blocks(
        this: NonNull<Self>,
        class: usize,
        count: usize,
    ) -> Option<impl Iterator<Item = Block>> {
        let stride = HEADER + body_bytes(class);
        let layout = Layout::from_size_align(stride.checked_mul(count)?, HEADER).ok()?;
        // SAFETY: the size is not zero: a block has a header. Zeroed, so that bodies are initialised.
        let memory = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        // SAFETY: the pool that asks is alive, so `this` is too.
        let shared = unsafe { this.as_ref() };
        shared.chunks.lock().expect("nothing panics in it").push(Chunk { memory, layout, stride });
        Some((0..count).map(move |index| {
            // SAFETY: within the chunk, and aligned, as size of header and body are multiples of it.
            let header = unsafe { memory.add(index * stride) }.cast::<Header>();
            let fresh = Header {
                shared: this,
                references: AtomicU32::new(0),
                low: AtomicU32::new(0),
                capacity: body_bytes(class) as u32,
                state: AtomicU32::new(FREE),
                site: AtomicSite::default(),
            };
            // SAFETY: nobody else has the new chunk.
            unsafe { header.write(fresh) };
            Block(header)
        }))
    }

    /// Every block that somebody has.
    pub fn live_blocks(&self) -> Vec<Block> {
        let chunks = self.chunks.lock().expect("nothing panics in it");
        let blocks = chunks.iter().flat_map(|chunk| {
            (0..chunk.layout.size() / chunk.stride)
                // SAFETY: every block of a chunk was initialised when it was made.
                .map(|index| Block(unsafe { chunk.memory.add(index * chunk.stride) }.cast()))
        });
        blocks.filter(Block::is_live).collect()
    }

    /// The pool is dropped while `out` blocks are on their way or with somebody.
    ///
    /// # Safety
    /// `returns` is closed, `out` counts what did not come home before that, and the caller does
    /// not use `this` again.
    pub unsafe fn owner_gone(this: NonNull<Self>, out: usize) {
        // SAFETY: the caller's promise.
        unsafe { Self::settle(this, out as isize) }
    }

    /// Blocks are given back after the owner has gone.
    ///
    /// # Safety
    /// The blocks are the caller's, who uses neither them nor `this` again.
    pub unsafe fn come_late(this: NonNull<Self>, blocks: usize) {
        // SAFETY: the caller's promise.
        unsafe { Self::settle(this, -(blocks as isize)) }
    }

    /// The count is at zero for good when the owner and every late block have been counted.
    unsafe fn settle(this: NonNull<Self>, change: isize) {
        // SAFETY: until its own change is counted, the count cannot be at zero for good.
        let before = unsafe { this.as_ref() }.out.fetch_add(change, Ordering::AcqRel);
        if before + change == 0 {
            // SAFETY: made by `Box::leak` in `new`; no block is left that points here.
            drop(unsafe { Box::from_raw(this.as_ptr()) });
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().expect("nothing panics in it").drain(..) {
            // SAFETY: allocated with this layout, and every block is home.
            unsafe { alloc::dealloc(chunk.memory.as_ptr(), chunk.layout) };
        }
    }
}
