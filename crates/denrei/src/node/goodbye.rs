//! What peers hear of a Node's end.
//!
//! Inputs → outputs: a Node that is dropped → what it has said of groups is acknowledged, if that can be had soon, and
//! END to all. Messages that nobody has flushed are given up (`spec/protocol.md` §8). That a group has ended was said
//! by the Node itself: nobody could wait for it, and without it the other side takes this one for lost.

use super::Handle;
use crate::core::Core;
use crate::pipeline::Pipeline;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::current;
use std::time::{Duration, Instant};

/// END code of a Node that is dropped.
const SHUTTING_DOWN: u16 = 4;

/// How long peers have to acknowledge what was said of groups: some probe timeouts of a path within a building.
const GRACE: Duration = Duration::from_millis(500);

/// Between two looks, where nothing that comes in wakes who waits.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Handle {
    /// Whether the calling thread is one that drives the Node: then a task that it woke does what it does now.
    pub(super) fn runs_this_thread(&self) -> bool {
        let is_driver =
            self.thread.lock().as_ref().is_some_and(|thread| thread.thread().id() == current().id());
        is_driver || self.pipeline.lock().as_ref().is_some_and(Pipeline::runs_this_thread)
    }

    /// Waits until FIN+ACK, LEAVE and what else was said of groups is acknowledged, for a moment at most.
    pub(super) fn have_group_records_heard(&self) {
        if self.runs_this_thread() {
            // It cannot wait for itself.
            return;
        }
        let shard = self.shards.first();
        let mut owed = {
            let mut core = shard.core.lock();
            let now = core.now();
            let mut owed: Vec<_> = core.endpoint.peers().collect();
            owed.retain(|peer| core.endpoint.owes_group_records(*peer));
            for peer in &owed {
                // A peer that is gone has nothing to hurry with.
                let _ = core.endpoint.hurry(now, *peer);
            }
            owed
        };
        let until = Instant::now() + GRACE;
        while !owed.is_empty() && Instant::now() < until {
            let mut heard = |core: &mut Core| {
                owed.retain(|peer| !core.broken && core.endpoint.owes_group_records(*peer));
                owed.is_empty().then_some(())
            };
            shard.wait_for(Some(LOOK_EVERY), &mut heard);
        }
    }
}

/// Tells all peers of a shard that the Node is gone. What owns the memory of a message that is given up may panic as it
/// is dropped: the other peers are told all the same, if the protocol still can. The panic, unless a thread of the
/// Node's has told of one before.
pub(super) fn say(core: &mut Core) -> std::thread::Result<()> {
    let now = core.now();
    let peers: Vec<_> = core.endpoint.peers().collect();
    let mut panic = Ok(());
    for peer in peers {
        // One that is over already needs no word.
        let say = || _ = core.endpoint.abort(now, peer, SHUTTING_DOWN, "the Node was closed");
        panic = panic.and(catch_unwind(AssertUnwindSafe(say)));
    }
    if core.broken { Ok(()) } else { panic }
}
