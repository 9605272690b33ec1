//! Waiting as a future, for any runtime: the background thread wakes the task.

use crate::core::Core;
use crate::node::Node;
use std::future::poll_fn;
use std::task::Poll;

impl Node {
    /// Resolves when `ready` returns something.
    pub(crate) async fn wait_async<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        poll_fn(|task| {
            let mut core = self.shared().core.lock();
            if let Some(value) = ready(&mut core) {
                return Poll::Ready(value);
            }
            let waker = task.waker();
            if !core.tasks.iter().any(|known| known.will_wake(waker)) {
                core.tasks.push(waker.clone());
            }
            Poll::Pending
        })
        .await
    }
}
