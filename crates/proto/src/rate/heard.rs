//! What the [`Manager`](super::Manager) of a host's rates hears: packets, of whom, and what the application takes.
//!
//! Inputs → outputs: counts → the application's pace, where it was busy all the time.

use super::rate_of;
use core::time::Duration;

/// An application's pace is known from so many messages on: one more or less is little then.
const LEAST_TAKES: u64 = 16;

/// A packet of a peer, as far as the pace goes. What limits a crowd hears it as well.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heard {
    /// Octets of the packet if it held data, else 0.
    pub data: u64,
    /// Packets missing right before it.
    pub missing: u64,
}

/// What the application has taken, counted since the endpoint was made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Taken {
    pub messages: u64,
    pub octets: u64,
    /// Times that it had taken all there was.
    pub emptied: u64,
}

impl Taken {
    /// Octets per second since `earlier`, if messages waited all the time.
    pub(super) fn pace_since(self, earlier: Self, length: Duration) -> Option<u64> {
        let busy = self.emptied == earlier.emptied && self.messages - earlier.messages >= LEAST_TAKES;
        busy.then(|| rate_of(self.octets - earlier.octets, length))
    }
}
