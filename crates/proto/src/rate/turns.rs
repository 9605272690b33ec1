//! Whose turn it is to be granted something, of all who wait for it.
//!
//! Inputs → outputs: claims that want more than they were granted → the next one. Source: S11; Homa (Montazeri et al.
//! 2018) for small remainders first; Stoica's virtual time for weighted shares. `spec/protocol.md` §13.4.
//!
//! Policy: the class of the smallest remainder first, a class being a power of four; within a class
//! by weight; one grant in eight to whoever waits longest, so that nobody starves. Equal senders
//! thus share equally, up to their last few packets.

use super::claim::Claim;
use denrei_wire::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// Grants of which one goes to whoever waits longest.
const OLDEST_EVERY: u32 = 8;

/// The claims that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Class, service, peer.
    order: BTreeSet<(u8, u64, u32)>,
    /// The same by how long they have waited.
    ages: BTreeSet<(Instant, u32)>,
    /// Those that wait and are passed over for a while.
    passed_over: BTreeSet<u32>,
    taken: u32,
}

impl Turns {
    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether anybody waits, or would if he were not passed over.
    pub fn is_anybody_left(&self) -> bool {
        !self.order.is_empty() || !self.passed_over.is_empty()
    }

    /// Who is passed over, if nobody has looked since that ended.
    pub fn passed_over(&self) -> Vec<u32> {
        self.passed_over.iter().copied().collect()
    }

    /// How many wait.
    pub fn len(&self) -> u64 {
        self.order.len() as u64
    }

    /// Gives a claim that wants more its place, if it has none.
    pub fn enter(&mut self, now: Instant, peer: u32, claim: &mut Claim) {
        if claim.remaining() == 0 || claim.listed.is_some() {
            return;
        }
        if claim.not_before > now {
            self.passed_over.insert(peer);
        } else {
            self.passed_over.remove(&peer);
            let place = (claim.class(), claim.served, claim.since);
            claim.listed = Some(place);
            self.order.insert((place.0, place.1, peer));
            self.ages.insert((place.2, peer));
        }
    }

    /// Takes a claim's place away, before what the place depends on changes.
    pub fn leave(&mut self, peer: u32, claim: &mut Claim) {
        self.passed_over.remove(&peer);
        if let Some((class, served, since)) = claim.listed.take() {
            self.order.remove(&(class, served, peer));
            self.ages.remove(&(since, peer));
        }
    }

    /// A claim leaves because it has its turn.
    pub fn take(&mut self, peer: u32, claim: &mut Claim) {
        self.leave(peer, claim);
        self.taken = self.taken.wrapping_add(1);
    }

    /// Whose turn it is. The oldest has turns of its own only against smaller remainders: among equals
    /// it would be a second share.
    pub fn next(&self, claims: &BTreeMap<u32, Claim>) -> Option<u32> {
        let &(class, _, first) = self.order.first()?;
        let &(_, oldest) = self.ages.first()?;
        let overtaken = claims.get(&oldest).is_some_and(|claim| claim.class() > class);
        let aged = self.taken % OLDEST_EVERY == OLDEST_EVERY - 1;
        Some(if aged && overtaken { oldest } else { first })
    }
}
