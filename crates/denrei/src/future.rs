//! Waiting as a future, for any runtime: the background thread wakes the task.

use crate::core::Core;
use crate::node::Node;
use denrei_proto::PeerId;
use std::future::poll_fn;
use std::task::{Context, Poll};

impl Node {
    /// Resolves when `ready` returns something of any shard's, and sends what comes of that.
    pub(crate) async fn wait_async<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        poll_fn(|task| {
            let found = self.shards().look(|core| ready_or_wait(core, &mut ready, task));
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
        poll_fn(|task| {
            let (_, mut core) = self.shards().enter_of(peer);
            ready_or_wait(&mut core, &mut ready, task).map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// The value, or the task is woken when there is news.
fn ready_or_wait<T>(
    core: &mut Core,
    ready: &mut impl FnMut(&mut Core) -> Option<T>,
    task: &Context<'_>,
) -> Option<T> {
    let value = ready(core);
    let waker = task.waker();
    if value.is_none() && !core.tasks.iter().any(|known| known.will_wake(waker)) {
        core.tasks.push(waker.clone());
    }
    value
}
