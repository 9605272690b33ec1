//! Waiting as a future, for any runtime: the background thread wakes the task.

use crate::core::Core;
use crate::node::Node;
use crate::shards::Shards;
use denrei_proto::PeerId;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

impl Node {
    /// Resolves when `ready` returns something of any shard's, and sends what comes of that.
    pub(crate) async fn wait_async<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        let mut seat = Seat::new(self.shards());
        poll_fn(|task| {
            let found = self.shards().look(|core| ready(core).or_else(|| seat.take(core, task)));
            seat.old.clear();
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Resolves when `ready` returns something of one peer's.
    pub(crate) async fn wait_async_for<T>(
        &self,
        peer: PeerId,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> T {
        let mut seat = Seat::new(self.shards());
        poll_fn(|task| {
            let (shard, mut core) = self.shards().enter_of(peer);
            let found = ready(&mut core).or_else(|| seat.take(&mut core, task));
            shard.answer(&mut core);
            drop(core);
            seat.old.clear();
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// A future's place among those that are woken when there is news; it is free again when the future is dropped.
struct Seat<'a> {
    shards: &'a Shards,
    number: u64,
    is_taken: bool,
    /// Of earlier looks. What dropping a waker does is the runtime's affair, so it is not done under a lock.
    old: Vec<Waker>,
}

impl<'a> Seat<'a> {
    fn new(shards: &'a Shards) -> Self {
        static SEATS: AtomicU64 = AtomicU64::new(0);
        let number = SEATS.fetch_add(1, Ordering::Relaxed);
        Self { shards, number, is_taken: false, old: Vec::new() }
    }

    /// There was nothing: the task is woken when there is news.
    fn take<T>(&mut self, core: &mut Core, task: &Context<'_>) -> Option<T> {
        self.is_taken = true;
        self.old.extend(core.stop_waiting(self.number));
        core.tasks.push((self.number, task.waker().clone()));
        None
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            for shard in self.shards.all() {
                let waker = shard.core.lock().stop_waiting(self.number);
                drop(waker);
            }
        }
    }
}
