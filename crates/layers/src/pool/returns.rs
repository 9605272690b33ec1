//! How freed blocks come home (L4): a stack that any thread pushes batches onto and the owner takes
//! whole.
//!
//! Inputs → outputs: batches of freed blocks from any thread → all of them to the owner, with one
//! exchange. No lock: a push is one compare-and-swap, and as the owner never takes a single batch
//! off the top, a batch that comes back to the same address cannot confuse it (no ABA). The owner
//! may close the stack; whoever comes later keeps the batch.
//!
//! Source: message-passing frees as in snmalloc (Liétar et al., ISMM 2019).

#![cfg_attr(loom, allow(dead_code))]

use crate::sync::{AtomicPtr, Ordering, UnsafeCell};
use std::ptr;

/// Freed blocks in one batch at most. With its length and link a batch fits the smallest body.
pub(super) const BATCH: usize = 30;

/// A batch of freed blocks. It lies in the body of one of them.
#[repr(C)]
pub(super) struct Batch {
    next: UnsafeCell<*mut Batch>,
    /// Blocks in `items`.
    pub len: usize,
    /// Addresses of blocks' headers, with the size class in the low bits.
    pub items: [usize; BATCH],
}

impl Batch {
    pub fn new(blocks: &[usize]) -> Self {
        let mut items = [0; BATCH];
        items[..blocks.len()].copy_from_slice(blocks);
        Self { next: UnsafeCell::new(ptr::null_mut()), len: blocks.len(), items }
    }

    /// The batch below this one, once both are taken.
    ///
    /// # Safety
    /// The stack this was taken from gave it to the caller alone.
    pub unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: the caller owns the batch; the push that linked it happened before the taking.
        unsafe { (*this).next.with(|next| *next) }
    }
}

/// What the top is once the owner is gone: an address that no batch has.
const CLOSED: *mut Batch = ptr::dangling_mut::<Batch>();

/// Batches on their way home.
#[derive(Debug)]
pub(super) struct Returns {
    top: AtomicPtr<Batch>,
}

impl Returns {
    pub fn new() -> Self {
        Self { top: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Sends a batch home; `false` if nobody is there any more, and the caller keeps it.
    ///
    /// # Safety
    /// `batch` is valid, and the caller's alone.
    pub unsafe fn push(&self, batch: *mut Batch) -> bool {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            if top == CLOSED {
                return false;
            }
            // SAFETY: nobody else sees the batch until the exchange below succeeds.
            unsafe { (*batch).next.with_mut(|next| *next = top) };
            match self.top.compare_exchange_weak(top, batch, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => top = now,
            }
        }
    }

    /// Takes all batches; null if there are none. For the owner, until it closes.
    pub fn take(&self) -> *mut Batch {
        if self.top.load(Ordering::Relaxed).is_null() {
            return ptr::null_mut();
        }
        self.top.swap(ptr::null_mut(), Ordering::AcqRel)
    }

    /// Takes all batches and lets no more in. For the owner, once.
    pub fn close(&self) -> *mut Batch {
        self.top.swap(CLOSED, Ordering::AcqRel)
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::sync::Arc;
    use loom::thread;

    fn batch(item: usize) -> *mut Batch {
        Box::into_raw(Box::new(Batch::new(&[item])))
    }

    /// Frees the batches of a chain; the sum of their items.
    fn collect(mut chain: *mut Batch) -> usize {
        let mut sum = 0;
        while !chain.is_null() {
            // SAFETY: the chain was taken by this thread, and its batches come from `batch`.
            let (next, batch) = unsafe { (Batch::next(chain), Box::from_raw(chain)) };
            sum += batch.items[0];
            chain = next;
        }
        sum
    }

    #[test]
    fn every_batch_comes_home_once() {
        loom::model(|| {
            let returns = Arc::new(Returns::new());
            let pushers: Vec<_> = [1, 2]
                .map(|item| {
                    let returns = Arc::clone(&returns);
                    // SAFETY: the batch is fresh.
                    thread::spawn(move || assert!(unsafe { returns.push(batch(item)) }))
                })
                .into();
            let early = collect(returns.take());
            for pusher in pushers {
                pusher.join().unwrap();
            }
            assert_eq!(early + collect(returns.take()), 3);
        });
    }

    #[test]
    fn after_closing_the_pusher_keeps_it() {
        loom::model(|| {
            let returns = Arc::new(Returns::new());
            let pusher = {
                let returns = Arc::clone(&returns);
                thread::spawn(move || {
                    let mine = batch(1);
                    // SAFETY: the batch is fresh; a refused one is still this thread's.
                    if unsafe { returns.push(mine) } { 0 } else { collect(mine) }
                })
            };
            let home = collect(returns.close());
            assert_eq!(home + pusher.join().unwrap(), 1);
        });
    }
}
