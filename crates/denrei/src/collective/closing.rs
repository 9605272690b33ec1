//! How a set of Nodes ends.
//!
//! Inputs → outputs: the set, a deadline → whether what its operations have sent has arrived: what rank 0 gave to all, and
//! what the others gave to rank 0.

use super::patience::Patience;
use super::{Collective, CollectiveError, Tie, WORD};
use crate::group::Membership;
use crate::shards::deadline_of;
use crate::{MembershipEnd, Node, PeerId};
use std::time::{Duration, Instant};

impl Collective {
    /// Ends the set. Rank 0 waits until all have everything, the others until rank 0 has their parts, or has ended the
    /// set without them; at most `timeout`. Whether it came to that: a Node that is closed before takes a part that
    /// [`gather`](Self::gather) has only queued with it.
    pub fn close(mut self, timeout: Duration) -> bool {
        let until = deadline_of(timeout);
        if let (Tie::Root(group), Some(message)) = (&self.tie, self.untold.take()) {
            // Who is behind still comes to an operation that was given up: without this word it would hear that the set
            // has ended in order, and not who was missing. Where there is no room in time, closing has none either.
            let _ = self.send_all(group, message, until);
        }
        let Self { node, tie, peers, patience, .. } = self;
        match (tie, peers.first()) {
            (Tie::Root(group), _) => {
                let close = |moment| Ok::<_, CollectiveError>(group.close(moment).then_some(()));
                matches!(patience.wait(until, close), Ok(Some(())))
            }
            (Tie::Other(membership, _listener), Some(Some(root))) => {
                leave(&node, membership, *root, until, &patience)
            }
            _ => true,
        }
    }
}

/// Waits until rank 0 has what this Node sent, or has ended the set, and for nothing else of it.
fn leave(node: &Node, membership: Membership, root: PeerId, until: Instant, patience: &Patience) -> bool {
    let flushed = |moment| node.wait_acknowledged(root, moment).map(|flushed| flushed.then_some(()));
    let is_through = |moment| match flushed(moment) {
        Ok(Some(())) => Ok(Some(())),
        // What rank 0 has not taken by now it does not want any more.
        _ if matches!(membership.end(), Some(MembershipEnd::Closed)) => Ok(Some(())),
        outcome => outcome.map_err(|source| CollectiveError::Send { rank: 0, source }),
    };
    let is_through = matches!(patience.wait(until, is_through), Ok(Some(())));
    drop(membership);
    // That this Node has everything, and has left: nobody may drive it from now on.
    node.flush(root, WORD.min(until.saturating_duration_since(Instant::now())));
    is_through
}
