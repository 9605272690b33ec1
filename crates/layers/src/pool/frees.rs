//! Blocks that a thread has freed and not yet sent home: a batch per pool, in the thread.
//!
//! Inputs → outputs: blocks freed one by one → batches on [`Returns`](super::returns::Returns), a
//! compare-and-swap each. A batch goes when it is full, when another pool needs its place, when the
//! thread says so ([`flush_frees`]) and when it ends.

use super::block::{Block, Shared};
use super::returns::{BATCH, Batch};
use std::cell::RefCell;
use std::ptr::NonNull;

/// Pools whose blocks a thread may free by turns without sending half-full batches.
const POOLS: usize = 4;

thread_local! {
    static FREES: RefCell<Frees> = const { RefCell::new(Frees { pending: [const { Pending::NONE }; POOLS], last: 0 }) };
}

struct Frees {
    pending: [Pending; POOLS],
    /// Which was used last.
    last: usize,
}

struct Pending {
    pool: Option<NonNull<Shared>>,
    len: usize,
    blocks: [usize; BATCH],
}

/// Sends home what this thread has freed. The runtime does so whenever a thread has nothing to do;
/// a thread of your own that frees others' buffers and then waits should too.
pub fn flush_frees() {
    // In a thread that ends the batches are gone already.
    let _ = FREES.try_with(|frees| frees.borrow_mut().flush());
}

/// Frees a block: nobody has it any more.
#[inline]
pub(super) fn free(block: Block) {
    block.give_back();
    let shared = block.header().shared;
    let kept = FREES.try_with(|frees| frees.borrow_mut().keep(shared, block.tagged()));
    if kept.is_err() {
        send(shared, &[block.tagged()]);
    }
}

impl Frees {
    #[inline]
    fn keep(&mut self, shared: NonNull<Shared>, tagged: usize) {
        if self.pending[self.last].pool != Some(shared) {
            self.turn_to(shared);
        }
        let pending = &mut self.pending[self.last];
        pending.blocks[pending.len] = tagged;
        pending.len += 1;
        // SAFETY: the block just kept is out, so what it points to lives.
        if pending.len >= unsafe { shared.as_ref() }.batch_limit {
            pending.send();
        }
    }

    #[inline(never)]
    fn turn_to(&mut self, shared: NonNull<Shared>) {
        let known = self.pending.iter().position(|pending| pending.pool == Some(shared));
        self.last = known.unwrap_or_else(|| {
            let next = (self.last + 1) % POOLS;
            self.pending[next].send();
            next
        });
        self.pending[self.last].pool = Some(shared);
    }

    fn flush(&mut self) {
        self.pending.iter_mut().for_each(Pending::send);
    }
}

impl Drop for Frees {
    fn drop(&mut self) {
        self.flush();
    }
}

impl Pending {
    const NONE: Self = Self { pool: None, len: 0, blocks: [0; BATCH] };

    fn send(&mut self) {
        if let Some(shared) = self.pool.take()
            && self.len > 0
        {
            send(shared, &self.blocks[..self.len]);
        }
        self.len = 0;
    }
}

/// Sends blocks that were given back, and that nobody else knows, home.
fn send(shared: NonNull<Shared>, tagged: &[usize]) {
    let (carrier, _) = Block::from_tagged(tagged[0]);
    // SAFETY: the blocks are this thread's until they are pushed, and `shared` lives as long as one
    // of them is out: until `push` has succeeded or `come_late` has counted them.
    unsafe {
        let batch = carrier.write_batch(Batch::new(tagged));
        if !shared.as_ref().returns.push(batch) {
            Shared::come_late(shared, tagged.len());
        }
    }
}
