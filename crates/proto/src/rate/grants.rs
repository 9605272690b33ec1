//! The receiver's half of grants (S11): who may send how much, when many want to.
//!
//! Inputs → outputs: what each peer has sent, wants, and what of it arrived → new limits, such that
//! no more is on its way than [`InboundWindow`] lets in. Source: S11; `spec/protocol.md` §13.4.
//!
//! Whose turn it is: `turns`. Who has nothing to send keeps a small standing allowance, so that short messages need
//! not ask.

use super::InboundWindow;
use super::allowed::{LEAST_GRANT, MOST_AHEAD};
use super::alone::Alone;
use super::claim::Claim;
use super::release::Release;
use super::turns::Turns;
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A grant is at most this part of the window, so that as many senders are under way: the next one
/// answers while the last is being served. Smaller grants wake more processes for the same data: 16 senders
/// on two cores fill 1 Gbit/s to .6 with eighths, to .9 with quarters.
const GRANT_SHARE: u64 = 4;
/// Smallest grant, in datagrams, if so much is wanted.
const LEAST_TRAIN: u64 = 2;
/// Largest grant: a train of datagrams.
const MAX_GRANT: u64 = 64 * 1024;
/// A grant whose data has not come after so many round trips, and when grants' data usually has come, is given to
/// others: its data was lost, or its sender is gone. The second is this long until it is known, and at the most.
const PATIENCE_RTTS: u32 = 8;
const MOST_USUAL: Duration = Duration::from_millis(10);
/// Doublings of the time for which a peer that does not use its grants is passed over.
const MOST_LAPSES: u32 = 6;
/// When nothing has come for so long, a queue that overflowed is empty.
const LULL: Duration = Duration::from_millis(1);
/// Standing allowances are not smaller: a short message with its headers.
const LEAST_STANDING: u64 = 192;
/// Standing allowances are not larger: the first window of a sender that was told nothing.
const MOST_STANDING: u64 = 14_720;

/// All claims on what one endpoint can receive.
#[derive(Debug)]
pub(crate) struct Grants {
    pub window: InboundWindow,
    pub alone: Alone,
    claims: BTreeMap<u32, Claim>,
    /// Claims that want more than they were granted.
    turns: Turns,
    /// How fast, over long paths.
    release: Release,
    /// Octets granted to active claims that have not come.
    outstanding: u64,
    /// Peers whose claims have such octets, or had when they were last looked at.
    under_way: BTreeSet<u32>,
    reclaimed_at: Instant,
    /// Where a claim that comes anew begins.
    clock: u64,
    /// Peers that are still to be told a limit.
    newcomers: VecDeque<(u32, u32, u64)>,
    /// Peers whose limit has changed.
    changed: BTreeSet<u32>,
}

impl Grants {
    /// After an overrun: see [`InboundWindow::new`].
    pub fn new(now: Instant, buffer: u64, rtt: Option<Duration>) -> Self {
        Self {
            window: InboundWindow::new(now, buffer, rtt),
            alone: Alone::default(),
            claims: BTreeMap::new(),
            turns: Turns::default(),
            release: Release::new(now),
            reclaimed_at: now,
            outstanding: 0,
            under_way: BTreeSet::new(),
            clock: 0,
            newcomers: VecDeque::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Sets a peer's share, also if it waits to be admitted.
    pub fn set_weight(&mut self, peer: u32, weight: u32) {
        let waiting = self.newcomers.iter_mut().filter(|(other, ..)| *other == peer);
        let claim = self.claims.get_mut(&peer).map(|claim| &mut claim.weight);
        waiting.map(|(_, own, _)| own).chain(claim).for_each(|own| *own = weight);
    }

    /// Whether the peer has been told a limit.
    pub fn knows(&self, peer: u32) -> bool {
        self.claims.contains_key(&peer)
    }

    /// What the peer may have sent.
    pub fn limit(&self, peer: u32) -> Option<u64> {
        self.claims.get(&peer).map(|claim| claim.limit)
    }

    /// A peer of which so many octets have come is to be told a limit from now on.
    pub fn admit(&mut self, now: Instant, peer: u32, weight: u32, received: u64) {
        let limit = received + self.standing();
        let claim = Claim::new(now, weight, received, limit, self.clock);
        self.claims.insert(peer, claim);
        self.changed.insert(peer);
    }

    /// The same, by and by: a limit is answered, and all the answers at once would not fit into the
    /// queue that has just overflowed. One for each packet that leaves it does.
    pub fn admit_later(&mut self, peer: u32, weight: u32, received: u64) {
        self.newcomers.push_back((peer, weight, received));
    }

    fn admit_next(&mut self, now: Instant) {
        while let Some((peer, weight, received)) = self.newcomers.pop_front() {
            if !self.knows(peer) {
                return self.admit(now, peer, weight, received);
            }
        }
    }

    /// Nothing comes any more: admits all who wait for it.
    pub fn admit_all(&mut self, now: Instant) {
        while !self.newcomers.is_empty() {
            self.admit_next(now);
        }
    }

    /// The peer is gone.
    pub fn forget(&mut self, peer: u32) {
        if let Some(mut claim) = self.claims.remove(&peer) {
            self.turns.leave(peer, &mut claim);
            if claim.is_active() {
                self.outstanding = self.outstanding.saturating_sub(claim.outstanding());
            }
        }
        self.changed.remove(&peer);
        self.under_way.remove(&peer);
        self.newcomers.retain(|(other, ..)| *other != peer);
    }

    /// A data packet has come, from whoever.
    pub fn on_arrival(&mut self, now: Instant, octets: u64, came: Instant) {
        self.admit_next(now);
        self.window.on_arrival(now, octets, !self.turns.is_empty(), came);
    }

    /// It was of a peer that has been told a limit.
    pub fn on_data(&mut self, now: Instant, peer: u32, octets: u64) {
        let Some(claim) = self.claims.get_mut(&peer) else { return };
        let before = if claim.is_active() { claim.outstanding() } else { 0 };
        claim.received += octets;
        let late = claim.given_up.min(octets);
        claim.given_up -= late;
        claim.accounted += octets - late;
        claim.moved = now;
        (claim.lapses, claim.not_before) = (0, Instant::ZERO);
        if let Some((mark, at)) = claim.awaited
            && claim.accounted > mark
        {
            claim.awaited = None;
            self.window.on_round_trip(now, now.saturating_since(at));
        }
        self.settle(now, peer, before);
    }

    /// A peer has said what it has sent and still wants to send. What it says it has sent, if that is more than it
    /// was ever let.
    pub fn on_request(&mut self, now: Instant, peer: u32, sent: u32, wanted: u32) -> Option<u64> {
        let claim = self.claims.get_mut(&peer)?;
        let before = if claim.is_active() { claim.outstanding() } else { 0 };
        let said = denrei_wire::ids::expand(sent, claim.accounted);
        if !claim.asked || claim.limit.saturating_sub(said) < LEAST_GRANT {
            // Else its data is what is waited for: words keep no grant.
            claim.moved = now;
            (claim.lapses, claim.not_before) = (0, Instant::ZERO);
        }
        // Whatever it says: a count does not go back, what it is passed over for is not held for it once more, and
        // whoever knows of the limit has sent no more since.
        let before_limit = if claim.asked { 0 } else { MOST_AHEAD };
        let most = claim.limit.max(claim.accounted).saturating_add(before_limit);
        claim.said = said.clamp(claim.said.max(claim.received).min(most), most);
        let sent = if claim.not_before > now { claim.said.max(claim.accounted) } else { claim.said };
        if !claim.is_active() {
            claim.since = now;
            claim.served = claim.served.max(self.clock);
        }
        // What was sent by then has come by now or was lost; overtaken packets correct themselves with
        // the next request.
        let missing = sent.saturating_sub(claim.accounted);
        let lost_before = core::mem::replace(&mut claim.lost, claim.said.saturating_sub(claim.received));
        let lost = if claim.asked { claim.lost.saturating_sub(lost_before) } else { 0 };
        // What overran this host goes again, which over a long path its sender knows a round trip later.
        let again = if claim.asked || !self.window.is_long() { 0 } else { missing };
        claim.asked = true;
        (claim.accounted, claim.given_up) = (sent, sent - claim.said);
        claim.wanted = said.min(most).saturating_add(wanted as u64).saturating_add(again);
        if wanted > 0 && claim.limit.saturating_sub(sent) < LEAST_GRANT {
            // What is left of its limit is too little for a packet, and does not come.
            claim.accounted = claim.limit.max(sent);
            claim.wanted = claim.wanted.max(claim.accounted + LEAST_GRANT);
        }
        self.settle(now, peer, before);
        if lost > 0 {
            self.window.on_loss(now, lost);
        }
        (said > most).then_some(said)
    }

    /// Puts a claim right after it changed; `before`: what it had outstanding.
    fn settle(&mut self, now: Instant, peer: u32, before: u64) {
        let standing = self.standing();
        let Some(claim) = self.claims.get_mut(&peer) else { return };
        self.turns.leave(peer, claim);
        self.outstanding = self.outstanding.saturating_sub(before);
        if claim.is_active() {
            self.outstanding += claim.outstanding();
            if claim.outstanding() > 0 {
                self.under_way.insert(peer);
            }
            self.turns.enter(now, peer, claim);
        } else {
            claim.awaited = None;
            // Half used up: small messages of a chatty peer do not have a grant each.
            if claim.outstanding() <= standing / 2 {
                claim.limit = claim.accounted + standing;
                self.changed.insert(peer);
            }
        }
    }

    /// What an idle peer may send unasked: together no more than the queue has room for.
    fn standing(&self) -> u64 {
        let peers = self.claims.len() + self.newcomers.len();
        let share = self.window.queue() / (peers as u64).max(1);
        share.clamp(LEAST_STANDING, MOST_STANDING)
    }

    /// Grants what there is room for.
    pub fn distribute(&mut self, now: Instant) {
        let window = self.window.octets();
        let most = self.largest(window);
        self.release.rest();
        while let Some(peer) = self.turns.next(&self.claims) {
            let free = window.saturating_sub(self.outstanding);
            let claim = self.claims.get_mut(&peer).expect("listed claims exist");
            let datagram = self.window.datagram();
            // Whole datagrams, and a few at least, or there would be as many grants as datagrams.
            let train = (most / datagram).max(LEAST_TRAIN) * datagram;
            let grant = claim.remaining().max(LEAST_GRANT).min(train);
            if (free < grant && self.outstanding > 0) || !self.release.lets(now, &self.window, grant) {
                return;
            }
            self.grant(now, peer, grant);
        }
    }

    /// The largest grant. Over a long path all who wait are under way at a time, or the few that are would need
    /// windows as large as the path's to fill it.
    fn largest(&self, window: u64) -> u64 {
        let share = if self.window.is_long() { self.turns.len().max(GRANT_SHARE) } else { GRANT_SHARE };
        (window / share).clamp(LEAST_GRANT, MAX_GRANT)
    }

    fn grant(&mut self, now: Instant, peer: u32, octets: u64) {
        let Some(claim) = self.claims.get_mut(&peer) else { return };
        self.turns.take(peer, claim);
        let outstanding_before = claim.outstanding();
        if claim.awaited.is_none() {
            claim.awaited = Some((claim.limit.max(claim.accounted), now));
        }
        self.clock = self.clock.max(claim.served);
        claim.limit = claim.limit.max(claim.accounted) + octets;
        claim.served += octets * super::DEFAULT_WEIGHT as u64 / claim.weight.max(1) as u64;
        (claim.moved, claim.since) = (now, now);
        self.outstanding += claim.outstanding() - outstanding_before;
        self.under_way.insert(peer);
        self.turns.enter(now, peer, claim);
        self.changed.insert(peer);
    }

    /// Gives grants that nothing came of to others. Due at [`deadline`](Self::deadline).
    pub fn reclaim(&mut self, now: Instant) {
        let patience = self.patience();
        if self.window.is_long() && now < self.reclaimed_at + patience / PATIENCE_RTTS {
            return;
        }
        self.reclaimed_at = now;
        let mut late = Vec::new();
        self.under_way.retain(|peer| {
            let owes = |claim: &&Claim| claim.is_active() && claim.outstanding() > 0;
            let claim = self.claims.get(peer).filter(owes);
            late.extend(claim.filter(|claim| claim.moved + patience <= now).map(|_| *peer));
            claim.is_some()
        });
        for peer in late {
            let Some(claim) = self.claims.get_mut(&peer) else { continue };
            let before = claim.outstanding();
            // It may still come; then more is on its way for a moment than should be.
            claim.given_up += before;
            claim.accounted = claim.limit;
            claim.awaited = None;
            claim.not_before = now + patience * (1 << claim.lapses.min(MOST_LAPSES));
            claim.lapses += 1;
            self.settle(now, peer, before);
        }
        for peer in self.turns.passed_over() {
            if let Some(claim) = self.claims.get_mut(&peer) {
                self.turns.enter(now, peer, claim);
            }
        }
    }

    fn patience(&self) -> Duration {
        let usual = self.window.usual_wait().map_or(MOST_USUAL, |usual| usual.min(MOST_USUAL));
        usual.max(self.window.rtt() * PATIENCE_RTTS)
    }

    /// How soon to call [`reclaim`](Self::reclaim) and [`distribute`](Self::distribute), if at all.
    pub fn deadline(&self) -> Option<Duration> {
        if !self.newcomers.is_empty() {
            return Some(LULL);
        }
        let waiting = self.outstanding > 0 || self.turns.is_anybody_left();
        waiting.then(|| self.release.due_in().unwrap_or(Duration::MAX).min(self.patience()))
    }

    /// Takes a peer whose limit has changed.
    pub fn take_changed(&mut self) -> Option<u32> {
        self.changed.pop_first()
    }

    /// Whether any peer has said that it wants to send.
    pub fn is_busy(&self) -> bool {
        self.outstanding > 0 || !self.turns.is_empty()
    }
}

#[cfg(test)]
mod tests;
