//! The receiver's half of grants (S11): who may send how much, when many want to.
//!
//! Inputs → outputs: what each peer has sent, wants, and what of it arrived → new limits, such that
//! no more is on its way than [`InboundWindow`] lets in. Source: S11; `spec/protocol.md` §13.4.
//!
//! Whose turn it is: `turns`. Who has nothing to send keeps a small standing allowance, so that short messages need
//! not ask.

use super::InboundWindow;
use super::allowed::LEAST_GRANT;
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
/// A grant whose data has not come after so many round trips, and this long, is given to others: its
/// data was lost, or its sender is gone.
const PATIENCE_RTTS: u32 = 8;
const LEAST_PATIENCE: Duration = Duration::from_millis(10);
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
    claims: BTreeMap<u32, Claim>,
    /// Claims that want more than they were granted.
    turns: Turns,
    /// How fast, over long paths.
    release: Release,
    /// Octets granted to active claims that have not come.
    outstanding: u64,
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
            claims: BTreeMap::new(),
            turns: Turns::default(),
            release: Release::new(now),
            reclaimed_at: now,
            outstanding: 0,
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
        self.newcomers.retain(|(other, ..)| *other != peer);
    }

    /// A data packet has come, from whoever.
    pub fn on_arrival(&mut self, now: Instant, octets: u64) {
        self.admit_next(now);
        self.window.on_arrival(now, octets, !self.turns.is_empty());
    }

    /// It was of a peer that has been told a limit.
    pub fn on_data(&mut self, now: Instant, peer: u32, octets: u64) {
        let Some(claim) = self.claims.get_mut(&peer) else { return };
        let before = if claim.is_active() { claim.outstanding() } else { 0 };
        claim.accounted += octets;
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

    /// A peer has said what it has sent and still wants to send.
    pub fn on_request(&mut self, now: Instant, peer: u32, sent: u32, wanted: u32) {
        let Some(claim) = self.claims.get_mut(&peer) else { return };
        let before = if claim.is_active() { claim.outstanding() } else { 0 };
        let sent = denrei_wire::ids::expand(sent, claim.accounted);
        if !claim.is_active() {
            claim.since = now;
            claim.served = claim.served.max(self.clock);
        }
        // What was sent by then has come by now or was lost; overtaken packets correct themselves with
        // the next request.
        let missing = sent.saturating_sub(claim.accounted);
        let lost = missing > 0 && claim.asked;
        // What overran this host goes again, which over a long path its sender knows a round trip later.
        let again = if claim.asked || !self.window.is_long() { 0 } else { missing };
        claim.asked = true;
        claim.accounted = sent;
        claim.wanted = sent.saturating_add(wanted as u64).saturating_add(again);
        if wanted > 0 && claim.limit.saturating_sub(sent) < LEAST_GRANT {
            // What is left of its limit is too little for a packet, and does not come.
            claim.accounted = claim.limit.max(sent);
            claim.wanted = claim.wanted.max(claim.accounted + LEAST_GRANT);
        }
        claim.moved = now;
        (claim.lapses, claim.not_before) = (0, Instant::ZERO);
        self.settle(now, peer, before);
        if lost {
            self.window.on_loss(now);
        }
    }

    /// Puts a claim right after it changed; `before`: what it had outstanding.
    fn settle(&mut self, now: Instant, peer: u32, before: u64) {
        let standing = self.standing();
        let Some(claim) = self.claims.get_mut(&peer) else { return };
        self.turns.leave(peer, claim);
        self.outstanding = self.outstanding.saturating_sub(before);
        if claim.is_active() {
            self.outstanding += claim.outstanding();
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
        let stale =
            |claim: &Claim| claim.is_active() && claim.outstanding() > 0 && claim.moved + patience <= now;
        let peers: Vec<u32> =
            self.claims.iter().filter(|(_, claim)| stale(claim)).map(|(&peer, _)| peer).collect();
        for peer in peers {
            let Some(claim) = self.claims.get_mut(&peer) else { continue };
            let before = claim.outstanding();
            // It may still come; then more is on its way for a moment than should be.
            claim.accounted = claim.limit;
            claim.awaited = None;
            claim.not_before = now + patience * (1 << claim.lapses.min(MOST_LAPSES));
            claim.lapses += 1;
            self.settle(now, peer, before);
        }
        for (peer, claim) in &mut self.claims {
            self.turns.enter(now, *peer, claim);
        }
    }

    fn patience(&self) -> Duration {
        (self.window.rtt() * PATIENCE_RTTS).max(LEAST_PATIENCE)
    }

    /// How soon to call [`reclaim`](Self::reclaim) and [`distribute`](Self::distribute), if at all.
    pub fn deadline(&self) -> Option<Duration> {
        if !self.newcomers.is_empty() {
            return Some(LULL);
        }
        let waiting = self.outstanding > 0 || self.claims.values().any(|claim| claim.remaining() > 0);
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
mod tests {
    use super::super::DEFAULT_WEIGHT;
    use super::*;

    /// Senders that send whatever they are granted, and a link that brings one datagram at a time.
    struct Crowd {
        grants: Grants,
        now: Instant,
        /// Per sender: octets sent, octets to send in all.
        senders: Vec<(u64, u64)>,
        finished: Vec<usize>,
    }

    const DATAGRAM: u64 = 1472;
    const ASSUMED: u64 = 208 * 1024;
    const STEP: Duration = Duration::from_nanos(12_000);

    impl Crowd {
        fn new(sizes: &[u64], weights: &[u32]) -> Self {
            let mut grants = Grants::new(Instant::ZERO, 4 << 20, None);
            for (peer, _) in sizes.iter().enumerate() {
                let weight = weights.get(peer).copied().unwrap_or(DEFAULT_WEIGHT);
                grants.admit(Instant::ZERO, peer as u32, weight, 0);
            }
            let senders = sizes.iter().map(|&size| (0, size)).collect();
            let mut crowd = Self { grants, now: Instant::ZERO, senders, finished: Vec::new() };
            for peer in 0..sizes.len() {
                crowd.ask(peer);
            }
            crowd
        }

        fn ask(&mut self, peer: usize) {
            let (sent, all) = self.senders[peer];
            self.grants.on_request(self.now, peer as u32, sent as u32, (all - sent) as u32);
        }

        /// Lets one datagram arrive, of the sender that has waited longest; `false`: none may send.
        fn step(&mut self, order: &mut VecDeque<usize>) -> bool {
            self.grants.distribute(self.now);
            while let Some(peer) = self.grants.take_changed() {
                if !order.contains(&(peer as usize)) {
                    order.push_back(peer as usize);
                }
            }
            self.now += STEP;
            while let Some(peer) = order.pop_front() {
                let (sent, all) = self.senders[peer];
                let may = self.grants.limit(peer as u32).unwrap().min(all).saturating_sub(sent);
                if may == 0 {
                    continue;
                }
                let octets = may.min(DATAGRAM);
                self.senders[peer].0 += octets;
                self.grants.on_arrival(self.now, octets);
                self.grants.on_data(self.now, peer as u32, octets);
                if self.senders[peer].0 == all {
                    self.ask(peer);
                    self.finished.push(peer);
                }
                order.push_back(peer);
                return true;
            }
            false
        }

        fn run(&mut self, steps: usize) -> usize {
            let mut order = VecDeque::new();
            (0..steps).take_while(|_| self.step(&mut order)).count()
        }
    }

    #[test]
    fn no_more_is_on_its_way_than_the_window_lets_in() {
        let mut crowd = Crowd::new(&[1 << 20; 64], &[]);
        let mut order = VecDeque::new();
        for _ in 0..20_000 {
            if !crowd.step(&mut order) {
                break;
            }
            let window = crowd.grants.window.octets();
            // A standing allowance each may come on top, and the grant under way.
            assert!(crowd.grants.outstanding <= window + 2 * MAX_GRANT, "{}", crowd.grants.outstanding);
        }
    }

    /// A thousand that have sent a little of a standing allowance, lost it, and cannot send it again with
    /// what is left.
    #[test]
    fn what_is_left_of_a_limit_and_too_little_for_a_packet_holds_nobody_up() {
        const PEERS: u32 = 1_000;
        let (mut now, mut grants) = (Instant::ZERO, Grants::new(Instant::ZERO, ASSUMED, None));
        (0..PEERS).for_each(|peer| grants.admit(now, peer, DEFAULT_WEIGHT, 0));
        let limits: Vec<u64> = (0..PEERS).map(|peer| grants.limit(peer).unwrap()).collect();
        while grants.take_changed().is_some() {}
        let sent = |peer: u32| limits[peer as usize] - LEAST_GRANT / 2;
        (0..PEERS).for_each(|peer| grants.on_request(now, peer, sent(peer) as u32, 80));
        let mut served = BTreeSet::new();
        for _ in 0..PEERS {
            now += STEP;
            grants.distribute(now);
            while let Some(peer) = grants.take_changed() {
                if grants.limit(peer).unwrap() - sent(peer) >= LEAST_GRANT && served.insert(peer) {
                    grants.on_arrival(now, LEAST_GRANT / 2);
                    grants.on_data(now, peer, LEAST_GRANT / 2);
                    grants.on_request(now, peer, (sent(peer) + LEAST_GRANT / 2) as u32, 0);
                }
            }
        }
        assert_eq!(served.len(), PEERS as usize);
    }

    #[test]
    fn every_claim_is_served_to_its_end() {
        let sizes: Vec<u64> = (0..300).map(|n| 100 + n * n * 37 % 200_000).collect();
        let mut crowd = Crowd::new(&sizes, &[]);
        crowd.run(1_000_000);
        assert_eq!(crowd.finished.len(), sizes.len(), "{:?}", crowd.senders);
        assert!(!crowd.grants.is_busy());
    }

    #[test]
    fn equal_senders_share_equally_and_weights_count() {
        let mut crowd = Crowd::new(&[8 << 20; 8], &[]);
        crowd.run(8_000);
        let sent = || crowd.senders.iter().map(|(sent, _)| *sent);
        let (least, most) = (sent().min().unwrap(), sent().max().unwrap());
        assert!(least as f64 > 0.99 * most as f64, "{least} and {most}");
        let mut crowd = Crowd::new(&[16 << 20; 2], &[100, 300]);
        crowd.run(8_000);
        let share = crowd.senders[1].0 as f64 / crowd.senders[0].0 as f64;
        assert!((2.8..3.2).contains(&share), "{share}");
        crowd.grants.admit_later(2, DEFAULT_WEIGHT, 0);
        crowd.grants.set_weight(2, 200);
        crowd.grants.admit_all(crowd.now);
        assert_eq!(crowd.grants.claims[&2].weight, 200, "set before it was told a limit");
    }

    #[test]
    fn small_remainders_go_first_and_the_oldest_does_not_starve() {
        let mut sizes = vec![4 << 20];
        sizes.extend([20_000; 40]);
        let mut crowd = Crowd::new(&sizes, &[]);
        let steps = crowd.run(40 * 14 + 400);
        assert!(crowd.finished.len() >= 40 && !crowd.finished.contains(&0), "{:?}", crowd.finished);
        let share = crowd.senders[0].0 as f64 / (steps as u64 * DATAGRAM) as f64;
        assert!(share > 0.05, "the large one, which waited longest, got {share}");
    }

    #[test]
    fn grants_that_nothing_comes_of_are_given_to_others() {
        let mut crowd = Crowd::new(&[1 << 20, 1 << 20], &[]);
        crowd.grants.distribute(crowd.now);
        // Sender 0 is gone with what it was granted.
        let held = crowd.grants.claims[&0].outstanding();
        assert!(held > 0);
        crowd.now += crowd.grants.deadline().unwrap();
        crowd.grants.reclaim(crowd.now);
        assert_eq!(crowd.grants.claims[&0].outstanding(), 0);
        assert!(crowd.grants.claims[&0].not_before > crowd.now, "it is passed over for a while");
        crowd.grants.forget(0);
        assert!(crowd.grants.claims.len() == 1 && !crowd.grants.knows(0));
    }

    #[test]
    fn what_was_lost_without_a_limit_is_not_the_windows_doing() {
        let mut grants = Grants::new(Instant::ZERO, 4 << 20, None);
        grants.admit(Instant::ZERO, 1, DEFAULT_WEIGHT, 1000);
        let room = grants.window.queue();
        let now = Instant::ZERO + Duration::from_secs(1);
        grants.on_request(now, 1, 90_000, 50_000);
        assert_eq!(grants.window.queue(), room);
        grants.on_request(now, 1, 91_000, 50_000);
        assert!(grants.window.queue() < room, "1,000 octets that it was let send have not come");
    }

    #[test]
    fn idle_peers_keep_a_small_allowance() {
        let mut grants = Grants::new(Instant::ZERO, 4 << 20, None);
        for peer in 0..64 {
            grants.admit_later(peer, DEFAULT_WEIGHT, 1000);
        }
        grants.admit_all(Instant::ZERO);
        while grants.take_changed().is_some() {}
        let before = grants.limit(5).unwrap();
        assert!((1500..1530).contains(&before), "{before}: a 64th of the queue's room");
        grants.on_arrival(Instant::ZERO, 400);
        grants.on_data(Instant::ZERO, 5, 400);
        grants.on_request(Instant::ZERO, 5, 1400, 0);
        let after = grants.limit(5).unwrap();
        assert!(after > before && after - 1400 >= LEAST_STANDING, "{before} {after}");
        assert_eq!(grants.take_changed(), Some(5));
        assert_eq!(grants.take_changed(), None, "the others are not bothered");
    }
}
