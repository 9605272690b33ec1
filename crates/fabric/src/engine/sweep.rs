//! Peers that have come and gone: what is known of them is forgotten, so that tables by peer are as long as there were peers
//! at a time.
//!
//! Inputs → outputs: how many peers are known → those forgotten that have no session, no number in the address vector, and
//! nothing here that names them; others get their indices. What else is kept by index ended with the session.

use super::Engine;
use super::matching::PeerIndex;
use std::collections::HashSet;

/// Peers that are known at least, before any is looked for that may be forgotten.
const LEAST: usize = 256;

/// When peers are looked for that may be forgotten.
#[derive(Debug)]
pub(super) struct Sweep {
    /// When so many are known: twice as many as were left the last time, so that looking costs little.
    due: usize,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { due: LEAST }
    }
}

impl Engine {
    /// Forgets peers that have gone, if so many are known that some may have.
    pub(super) fn forget_the_gone(&mut self) {
        if self.port.known() < self.sweep.due {
            return;
        }
        let idle = self.port.idle();
        let gone: HashSet<PeerIndex> = idle.into_iter().filter(|peer| !self.is_named(*peer)).collect();
        self.port.forget(&gone);
        self.watch_no_more(&gone);
        self.forget_sent(&gone);
        // It says what was known of indices.
        self.known = super::Known::default();
        self.sweep.due = LEAST.max(2 * self.port.known());
    }

    fn is_named(&self, peer: PeerIndex) -> bool {
        self.addresses.number(self.port.address(peer)).is_some() || self.receiving.concerns(peer)
    }
}
