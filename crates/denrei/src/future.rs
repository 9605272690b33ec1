//! Waiting as a future, for any runtime: the background thread wakes the task.
//!
//! Inputs → outputs: a look that finds a value or says what is missing → the value, once there is one. A future that is
//! dropped has taken nothing, and nothing of it is left behind.

use crate::core::Core;
use crate::node::Node;
use crate::shards::Shards;
use crate::tasks::{Interest, Tasks, Wakers};
use crate::wait::Shared;
use denrei_proto::PeerId;
use parking_lot::MutexGuard;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

impl Node {
    /// Resolves when `ready` returns something of any shard's, and sends what comes of that.
    pub(crate) async fn resolve_any<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        let mut seat = Seat::new(self);
        poll_fn(|task| {
            seat.look(task, self.shards().count(), |mut seat| {
                let mut wait = |core: &mut Core| seat.as_mut()?.take(core, Interest::Any);
                self.shards().look(|core| ready(core).or_else(|| wait(core)))
            })
        })
        .await
    }

    /// Resolves when `ready` returns something of one peer's; what it waits for otherwise.
    pub(crate) async fn resolve_of<T>(
        &self,
        peer: PeerId,
        ready: impl FnMut(&mut Core) -> Result<T, Interest>,
    ) -> T {
        self.resolve_in(|shards| shards.enter_of(peer), ready).await
    }

    /// Resolves when `ready` returns something of the first shard's, which has the groups.
    pub(crate) async fn resolve_group<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        self.resolve_group_until(|core| ready(core).ok_or(Interest::Any)).await
    }

    /// The same; what it waits for otherwise.
    pub(crate) async fn resolve_group_until<T>(
        &self,
        ready: impl FnMut(&mut Core) -> Result<T, Interest>,
    ) -> T {
        self.resolve_in(|shards| (shards.first(), shards.first().core.lock()), ready).await
    }

    async fn resolve_in<T>(
        &self,
        enter: impl for<'a> Fn(&'a Shards) -> (&'a Shared, MutexGuard<'a, Core>),
        mut ready: impl FnMut(&mut Core) -> Result<T, Interest>,
    ) -> T {
        let mut seat = Seat::new(self);
        poll_fn(|task| {
            seat.look(task, 1, |seat| {
                let (shard, mut core) = enter(self.shards());
                let found = ready(&mut core);
                let found = found.map_or_else(|interest| seat?.take(&mut core, interest), Some);
                shard.answer(&mut core);
                found
            })
        })
        .await
    }
}

/// A future's place among those that are woken when there is news; it is free again when the future is dropped.
struct Seat<'a> {
    node: &'a Node,
    number: u64,
    /// What it waits for, if it does.
    interest: Option<Interest>,
    /// For the next look, one for each shard. What cloning or dropping a waker does is the runtime's affair, so neither
    /// is done under a lock.
    wakers: Wakers,
    /// Of earlier looks.
    old: Vec<Waker>,
}

impl<'a> Seat<'a> {
    fn new(node: &'a Node) -> Self {
        Self { node, number: Tasks::number(), interest: None, wakers: Wakers::new(), old: Vec::new() }
    }

    /// Looks at so many shards; where there is nothing, once more, to [take](Self::take) the seat meanwhile.
    fn look<T>(
        &mut self,
        task: &Context<'_>,
        shards: usize,
        mut look: impl FnMut(Option<&mut Self>) -> Option<T>,
    ) -> Poll<T> {
        let mut found = look(None);
        if found.is_none() {
            self.wakers.resize_with(shards, || task.waker().clone());
            found = look(Some(self));
            self.wakers.clear();
            self.old.clear();
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }

    /// There is nothing: the task is woken when there is news that concerns it.
    fn take<T>(&mut self, core: &mut Core, interest: Interest) -> Option<T> {
        let waker = self.wakers.pop().expect("there is one for each shard");
        self.interest = Some(interest.clone());
        self.old.extend(core.tasks.wait(self.number, interest, waker));
        None
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        // In a child that was forked, a thread of the parent's may have had the lock.
        let Some(interest) = self.interest.as_ref().filter(|_| self.node.is_own()) else { return };
        for shard in self.node.shards().all() {
            self.old.extend(shard.core.lock().tasks.stop(self.number, interest));
        }
    }
}
