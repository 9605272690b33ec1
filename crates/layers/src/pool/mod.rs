//! Buffer pools (L2, L4, L7): one layer allocates, any thread frees.
//!
//! Inputs → outputs: a size → a [`Pdu`], a descriptor of a body of at least that size; dropped
//! anywhere, the body comes home. The owner allocates from lists of its own, without
//! synchronisation; what others free collects in batches in their threads and goes back with one
//! compare-and-swap a batch, which the owner takes when its list is empty. A pool that is
//! exhausted says so: back-pressure for the layer, which keeps what it has and tries again.
//!
//! Deviations from L4: size classes instead of a list of extents that are merged with their
//! neighbours: no search, no lock, no fragmentation between classes; and a bound, where the paper
//! asks the system for another area.

mod block;
mod frees;
mod pdu;
mod returns;

pub use block::{CLASSES, LARGEST_BODY, SMALLEST_BODY};
pub use frees::flush_frees;
pub use pdu::{NoHeadRoom, Pdu};

use block::{Block, Shared, body_bytes, class_of};
use returns::{BATCH, Batch};
use std::panic::Location;
use std::ptr::NonNull;

/// Memory taken from the system at a time, octets.
const CHUNK_BYTES: usize = 256 << 10;
/// A thread may keep this share of a class's blocks in a batch: an eighth.
const BATCH_SHARE: usize = 8;

/// How large a pool may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Blocks at most, of each size class: bodies of 256 octets, 512, … 131,072. Memory is taken
    /// when it is needed, in chunks of a quarter MiB. 0: what would need one of these is an error.
    pub blocks: [usize; CLASSES],
}

impl Default for PoolConfig {
    /// Up to 90 MiB, if all classes are in full use.
    fn default() -> Self {
        Self { blocks: [8192, 8192, 8192, 8192, 4096, 1024, 512, 256, 128, 64] }
    }
}

impl PoolConfig {
    /// The same bound for every class.
    pub fn uniform(blocks: usize) -> Self {
        Self { blocks: [blocks; CLASSES] }
    }
}

/// Why there is no buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// All are in use: go on when one has been freed.
    #[error(
        "all {blocks} buffers of {body_bytes} octets are in use: try again when some are freed, or allow more (PoolConfig::blocks)"
    )]
    Exhausted {
        /// Octets of each.
        body_bytes: usize,
        /// How many there are.
        blocks: usize,
    },
    /// There will never be any.
    #[error("no buffers of {body_bytes} octets are allowed: allow some (PoolConfig::blocks)")]
    NotAllowed {
        /// Octets of each.
        body_bytes: usize,
    },
    /// No class is that large.
    #[error("no buffer holds {bytes} octets: the largest has {LARGEST_BODY}")]
    TooLarge {
        /// Octets asked for, head room included.
        bytes: usize,
    },
    /// The system has no memory.
    #[error("the system gives no memory for buffers of {body_bytes} octets")]
    NoMemory {
        /// Octets of each.
        body_bytes: usize,
    },
}

/// A block that somebody has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leak {
    /// Octets of its body.
    pub body_bytes: usize,
    /// Where it was allocated; known in debug builds.
    pub site: Option<&'static Location<'static>>,
}

/// What a pool has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Buffers handed out.
    pub allocated: u64,
    /// Buffers that came home.
    pub returned: u64,
    /// Times there was none.
    pub exhausted: u64,
    /// Memory taken from the system, octets.
    pub memory_bytes: u64,
}

/// Buffers of one layer. It alone allocates (`&mut self`); what it allocated may be dropped
/// anywhere, also after the pool itself.
#[derive(Debug)]
pub struct Pool {
    shared: NonNull<Shared>,
    classes: [Class; CLASSES],
    counters: PoolCounters,
}

#[derive(Debug, Default)]
struct Class {
    free: Vec<Block>,
    made: usize,
    max: usize,
}

// SAFETY: a pool owns its free blocks, and shares `Shared`, which is made for that.
unsafe impl Send for Pool {}

impl Default for Pool {
    fn default() -> Self {
        Self::new(&PoolConfig::default())
    }
}

impl Pool {
    /// A pool; it takes memory when it is used.
    pub fn new(config: &PoolConfig) -> Self {
        let fewest = config.blocks.iter().copied().filter(|blocks| *blocks > 0).min().unwrap_or(1);
        Self {
            shared: Shared::new((fewest / BATCH_SHARE).clamp(1, BATCH)),
            classes: config.blocks.map(|max| Class { max, ..Class::default() }),
            counters: PoolCounters::default(),
        }
    }

    /// A buffer with a window of `len` octets (their content is what was there before), and
    /// `head_room` octets in front for the headers of the layers below.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`]: try again later. Others: it will never work.
    #[inline]
    #[track_caller]
    pub fn allocate(&mut self, head_room: usize, len: usize) -> Result<Pdu, PoolError> {
        let bytes = head_room.saturating_add(len);
        let class = class_of(bytes).ok_or(PoolError::TooLarge { bytes })?;
        let block = match self.classes[class].free.pop() {
            Some(block) => block,
            None => self.refill(class)?,
        };
        if let Some(next) = self.classes[class].free.last() {
            next.prefetch_header();
            next.prefetch_body(0);
        }
        self.counters.allocated += 1;
        block.take_out(Location::caller());
        Ok(Pdu::new(block, head_room as u32, bytes as u32))
    }

    /// A copy with `head_room` octets in front: for a PDU whose head room is taken.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    #[track_caller]
    pub fn copy(&mut self, pdu: &Pdu, head_room: usize) -> Result<Pdu, PoolError> {
        let mut copy = self.allocate(head_room, pdu.len())?;
        copy.get_mut().expect("nobody else has it").copy_from_slice(pdu);
        Ok(copy)
    }

    /// Gets a block into an empty class: one that came home, or else a new one.
    #[inline(never)]
    fn refill(&mut self, class: usize) -> Result<Block, PoolError> {
        self.collect();
        if self.classes[class].free.is_empty() {
            self.grow(class)?;
        }
        if self.classes[class].free.is_empty() {
            // What this thread has freed may be what is missing: here, or where this pool's buffers are.
            flush_frees();
            self.collect();
        }
        self.classes[class].free.pop().ok_or_else(|| {
            let (body_bytes, blocks) = (body_bytes(class), self.classes[class].max);
            if blocks == 0 {
                return PoolError::NotAllowed { body_bytes };
            }
            self.counters.exhausted += 1;
            PoolError::Exhausted { body_bytes, blocks }
        })
    }

    /// Takes what others have sent home.
    pub fn collect(&mut self) {
        // SAFETY: `shared` lives at least as long as the pool.
        let chain = unsafe { self.shared.as_ref() }.returns.take();
        self.take_in(chain);
    }

    fn take_in(&mut self, mut chain: *mut Batch) {
        while !chain.is_null() {
            // SAFETY: the chain was taken from the stack by the one owner. Copied before its block,
            // in whose body it lies, can be used again.
            let (next, batch_len, items) = unsafe { (Batch::next(chain), (*chain).len, (*chain).items) };
            for tagged in &items[..batch_len] {
                let (block, class) = Block::from_tagged(*tagged);
                self.classes[class].free.push(block);
            }
            self.counters.returned += batch_len as u64;
            chain = next;
        }
    }

    fn grow(&mut self, class: usize) -> Result<(), PoolError> {
        let Class { made, max, .. } = self.classes[class];
        let count = (CHUNK_BYTES / body_bytes(class)).max(1).min(max - made);
        if count == 0 {
            return Ok(());
        }
        let body_bytes = body_bytes(class);
        let blocks =
            Shared::make_blocks(self.shared, class, count).ok_or(PoolError::NoMemory { body_bytes })?;
        self.classes[class].free.reserve(made + count);
        self.classes[class].free.extend(blocks);
        self.classes[class].made += count;
        self.counters.memory_bytes += (count * body_bytes) as u64;
        Ok(())
    }

    /// What the pool has done so far.
    pub fn counters(&self) -> PoolCounters {
        self.counters
    }

    /// Buffers that are out, or whose return has not been taken in.
    pub fn outstanding(&self) -> u64 {
        self.counters.allocated - self.counters.returned
    }

    /// The buffers that somebody has, once all threads have stopped: those are leaked. Debug builds
    /// know where each was allocated.
    pub fn leaks(&mut self) -> Vec<Leak> {
        flush_frees();
        self.collect();
        // SAFETY: as in `collect`.
        let live = unsafe { self.shared.as_ref() }.live_blocks();
        live.iter()
            .map(|block| Leak { body_bytes: block.header().capacity as usize, site: block.site() })
            .collect()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        flush_frees();
        // SAFETY: as in `collect`; afterwards nobody comes home any more, and what is out is counted.
        unsafe {
            let chain = self.shared.as_ref().returns.close();
            self.take_in(chain);
            Shared::owner_gone(self.shared, self.outstanding() as usize);
        }
    }
}

#[cfg(test)]
mod tests;
