//! Several endpoints at one address, each with a part of the peers: for hosts where one core is not
//! enough for the protocol.
//!
//! Inputs → outputs: how many endpoints → a [`Place`] for each; one endpoint → another that goes on
//! with its sessions too. The driver decides which place an address belongs to, always the same for all
//! datagrams from it and for connecting to it, so none of the endpoints needs to know of the others:
//! slots are numbered by turns, and tokens and [`PeerId`](crate::PeerId)s name the place with the slot.
//! What endpoints at one address share is their incarnation, the secret of their cookies, and the bound
//! on peers. Groups are an endpoint's own, so their members' sessions have to be there.

use super::Endpoint;
use super::pace::{Mode, Pace};
use crate::seal::Random;
use denrei_wire::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Which of the endpoints at one address an endpoint is; by default the only one.
#[derive(Debug)]
pub struct Place {
    index: u32,
    count: u32,
    /// Peers at all places.
    peers: Arc<AtomicU32>,
}

impl Default for Place {
    fn default() -> Self {
        Self { index: 0, count: 1, peers: Arc::default() }
    }
}

impl Place {
    /// The places of `count` endpoints. Slots are numbered by turns, so `count` times
    /// [`max_peers`](crate::Config::max_peers) has to stay below 2^24.
    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        let peers: Arc<AtomicU32> = Arc::default();
        (0..count).map(move |index| Self { index, count, peers: Arc::clone(&peers) })
    }

    /// A peer more, if that makes no more than `max`; whether it does not.
    pub(super) fn occupy(&self, max: u32) -> bool {
        let more = |peers: u32| (peers < max).then_some(peers + 1);
        self.peers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// A peer less.
    pub(super) fn vacate(&self) {
        self.peers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The first of this place's slot numbers from `least` on.
    pub(super) fn number_from(&self, least: usize) -> usize {
        let (index, count) = (self.index as usize, self.count as usize);
        least + (index + count - least % count) % count
    }

    /// The secrets of this place, from those that all places have: what one place shows of its own tells
    /// nothing of another's.
    pub(super) fn own_random(&self, mut common: Random) -> Random {
        if self.count == 1 {
            return common;
        }
        for _ in 0..self.index {
            common.seed();
        }
        Random::new(&common.seed())
    }
}

impl Endpoint {
    /// Goes on with all sessions of `other`, an endpoint at another [`Place`] of the same address, which
    /// has none afterwards; nothing may be given to it any more, but its counters stay.
    pub fn absorb(&mut self, now: Instant, other: &mut Self) {
        Arc::make_mut(&mut self.config).receive_memory_bytes += other.config.receive_memory_bytes;
        self.slots.resize_with(self.slots.len().max(other.slots.len()), Default::default);
        let mut moved = Vec::new();
        for (number, slot) in other.slots.drain(..).enumerate() {
            if slot.peer.is_some() {
                moved.push(number as u32);
            }
            if slot.peer.is_some() || slot.generation > 0 {
                self.slots[number] = slot;
            }
        }
        self.free.append(&mut other.free);
        self.by_addr.append(&mut other.by_addr);
        self.unproven.append(&mut other.unproven);
        self.sending.append(&mut other.sending);
        self.events.append(&mut other.events);
        self.readable.append(&mut other.readable);
        self.arrivals += other.arrivals + 1;
        self.held_bytes += std::mem::take(&mut other.held_bytes);
        self.waiting_offers.append(&mut other.waiting_offers);
        self.waiting_credit.append(&mut other.waiting_credit);
        self.counters.suppressed_replies += self.replies.absorb(&mut other.replies);
        self.gate.absorb(&mut other.gate);
        self.absorb_pace(other);
        // Who has no group has a table at most, made for others' records, which it refused.
        if let (None, Some(groups)) = (&self.groups, other.groups.take()) {
            self.groups = Some(groups);
        }
        moved.into_iter().for_each(|slot| self.arm(slot));
        self.share_memory(now);
    }

    /// One crowd of senders is known; of two, one has to show itself again. Until then limits that the
    /// other was told hold, and are lifted when it asks.
    fn absorb_pace(&mut self, other: &mut Self) {
        let pace = std::mem::take(&mut other.pace);
        let buffer = self.pace.buffer.zip(pace.buffer).map(|(own, more)| own + more);
        match (&mut self.pace.mode, pace) {
            (Mode::Free, pace) => self.pace = pace.at_another_endpoint(),
            (Mode::Managing(manager), Pace { mode: Mode::Managing(other), .. }) => manager.absorb(*other),
            _ => {}
        }
        self.pace.buffer = buffer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_numbered_by_turns() {
        let places: Vec<_> = Place::all(3).collect();
        let numbers = |place: &Place| {
            let mut slots = 0;
            let mut next = || {
                let number = place.number_from(slots);
                slots = number + 1;
                number
            };
            [next(), next(), next()]
        };
        assert_eq!(places.iter().map(numbers).collect::<Vec<_>>(), [[0, 3, 6], [1, 4, 7], [2, 5, 8]]);
        assert_eq!(places[1].number_from(6), 7, "where another's numbers were taken over");
        assert_eq!(numbers(&Place::default()), [0, 1, 2]);
    }

    #[test]
    fn the_bound_on_peers_is_one_for_all_places() {
        let places: Vec<_> = Place::all(2).collect();
        assert!(places[0].occupy(2) && places[1].occupy(2) && !places[0].occupy(2));
        places[1].vacate();
        assert!(places[0].occupy(2) && !places[1].occupy(2));
    }
}
