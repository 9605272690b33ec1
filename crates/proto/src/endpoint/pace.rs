//! When many send at once: notices that they overrun this host, and from then on grants.
//!
//! Inputs → outputs: what each arriving packet tells of the pace → limits for all peers.
//! Source: S11, R10; `spec/protocol.md` §13.4. The policy is in `rate/grants.rs`.
//!
//! As long as nothing is lost or marked nobody is told a limit, and this costs a comparison per packet.

use super::Endpoint;
use crate::loss::NUMBERS_PER_SKIP;
use crate::peer::PaceNote;
use crate::rate::{Grants, Heard, Manager, Taken};
use core::time::Duration;
use denrei_wire::Instant;

/// Octets that a socket is taken to hold if nobody has told: Linux' default.
pub(super) const ASSUMED_BUFFER_BYTES: u64 = 208 * 1024;
/// Losses of several peers within this time are one host's affair, not a path's.
const COINCIDENCE: Duration = Duration::from_millis(20);
/// Packets missing from which on it is taken for more than chance or a probe of the path; and one more for
/// each number that may have been left out.
const LEAST_MISSING: u64 = 4;
/// Marked packets of several peers from which on a queue is theirs together: as many as one peer's window
/// brings when it grows into a queue by itself.
const LEAST_MARKED: u64 = 32;
/// A crowd that has been quiet for so long has gone home.
pub(super) const CALM: Duration = Duration::from_secs(30);

/// Packets that are missing, or marked, lately.
#[derive(Debug)]
struct Signs {
    /// Whose the first was.
    slot: u32,
    since: Instant,
    /// Datagrams handled by then.
    datagrams: u64,
    packets: u64,
}

impl Signs {
    /// Adds so many packets of a peer, and begins anew if the first was too long ago; what has come
    /// together if that is of several peers, or of one where that is enough.
    fn add(signs: &mut Option<Self>, first: Self, one_is_enough: bool) -> Option<&Self> {
        let begun = signs.as_ref().map(|lately| (lately.slot, lately.since));
        match begun {
            Some((slot, since)) if first.since.saturating_since(since) <= COINCIDENCE => {
                let lately = signs.as_mut()?;
                lately.packets += first.packets;
                (slot != first.slot || one_is_enough).then_some(lately)
            }
            _ => {
                *signs = Some(first);
                None
            }
        }
    }
}

/// What is done about who sends how much.
#[derive(Debug, Default)]
pub(super) enum Mode {
    /// Nothing: no one is limited by this side but by the application.
    #[default]
    Free,
    /// All are told limits.
    Granting(Box<Grants>),
    /// All are told rates.
    Managing(Box<Manager>),
}

impl Mode {
    fn grants(&mut self) -> Option<&mut Grants> {
        match self {
            Self::Granting(grants) => Some(grants),
            _ => None,
        }
    }
}

/// The pace of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Pace {
    pub mode: Mode,
    missing: Option<Signs>,
    marked: Option<Signs>,
    /// Octets that the socket holds, if known.
    pub buffer: Option<u64>,
    /// When to look for grants that nothing came of.
    pub look_at: Option<Instant>,
    busy_at: Instant,
    /// What the application has taken.
    pub taken: Taken,
}

impl Pace {
    /// The same at another endpoint, whose datagrams are not those by which signs were counted.
    pub fn at_another_endpoint(self) -> Self {
        Self { missing: None, marked: None, ..self }
    }

    /// Looks for grants that nothing came of after `patience`, or earlier if that was planned; where there
    /// are none, whether all is calm.
    fn look_within(&mut self, now: Instant, patience: Option<Duration>) {
        let calm = now + CALM;
        self.look_at = Some(match patience {
            Some(patience) => self.look_at.unwrap_or(calm).min(now + patience),
            None => calm,
        });
    }
}

impl Endpoint {
    /// Tells how many octets of datagrams the socket holds that are not read yet.
    pub fn set_receive_buffer(&mut self, octets: u64) {
        self.pace.buffer = Some(octets);
    }

    /// Takes in what a packet told.
    pub(super) fn follow_pace(&mut self, now: Instant, slot: u32, note: PaceNote) {
        let quiet = note.request.is_none() && note.missing == 0 && !note.marked;
        if quiet && matches!(self.pace.mode, Mode::Free) {
            return;
        }
        let came = self.came(now);
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        if !peer.is_alive() || !peer.is_proven() {
            return;
        }
        let (weight, received) = (peer.weight, peer.data_received());
        // Who learns rates may begin by mistake: it learns from then on what it can take.
        let learns = self.config.learn_rates;
        let excuses = note.missing > 0 && (!learns || note.data == 0);
        let probes = if excuses { peer.most_probes(now, note.heard_before) } else { 0 };
        // What is missing before a packet without data may have been a probe of the path's size, and
        // so may a few packets while sizes are tried: a crowd that has just opened loses more at a time.
        let missing = note.missing.saturating_sub(probes);
        match self.pace.mode {
            Mode::Free => {
                if note.request.is_some() {
                    peer.tell_limit(None, now);
                    self.after(now, slot);
                }
                let tells = missing > 0 && (learns || note.data > 0);
                let overrun = tells && self.is_overrun(now, slot, missing);
                if overrun || (note.data > 0 && note.marked && self.is_crowded(now, slot)) {
                    self.act_on_overrun(now);
                }
                return;
            }
            Mode::Managing(_) => return self.note_rates(now, slot, PaceNote { missing, ..note }),
            Mode::Granting(_) => {}
        }
        let Some(grants) = self.pace.mode.grants() else { return };
        if grants.alone.add(now, slot, Heard { data: note.data, missing }) {
            // Its window knows chance from overflow, which a limit for many does not.
            return self.lift_limits(now);
        }
        if note.data > 0 {
            grants.on_arrival(now, note.data, came);
            match grants.knows(slot) {
                true => grants.on_data(now, slot, note.data),
                false => grants.admit(now, slot, weight, received),
            }
        }
        // Who was granted something before this crowd came goes by that.
        if let Some((sent, wanted)) = note.request
            && let Some(said) = grants.on_request(now, slot, sent, wanted)
            && peer.limit_told().is_none_or(|told| said > told)
        {
            peer.counters.excess += 1;
        }
        if grants.is_busy() {
            self.pace.busy_at = now;
        }
        self.grant(now);
    }

    /// Whether losses of several peers coincide.
    fn is_overrun(&mut self, now: Instant, slot: u32, missing: u64) -> bool {
        let datagrams = self.counters.datagrams;
        let first = Signs { slot, since: now, datagrams, packets: missing };
        Signs::add(&mut self.pace.missing, first, self.config.learn_rates).is_some_and(|lately| {
            let skips = (datagrams - lately.datagrams) / NUMBERS_PER_SKIP;
            lately.packets >= LEAST_MISSING + skips
        })
    }

    /// Whether the network marks packets of several peers at a time: their queue is before this host.
    fn is_crowded(&mut self, now: Instant, slot: u32) -> bool {
        let first = Signs { slot, since: now, datagrams: self.counters.datagrams, packets: 1 };
        let lately = Signs::add(&mut self.pace.marked, first, false);
        !self.config.learn_rates && lately.is_some_and(|lately| lately.packets >= LEAST_MARKED)
    }

    fn act_on_overrun(&mut self, now: Instant) {
        (self.pace.missing, self.pace.marked) = (None, None);
        if self.config.learn_rates { self.manage(now) } else { self.govern(now) }
    }

    /// From now on, all who send are told how much.
    fn govern(&mut self, now: Instant) {
        let buffer = self.pace.buffer.unwrap_or(ASSUMED_BUFFER_BYTES);
        let peers = self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let peer = entry.peer.as_deref().filter(|peer| peer.is_proven() && peer.is_alive())?;
            Some((slot, peer))
        });
        let rtt = peers.clone().filter_map(|(_, peer)| peer.min_rtt()).min();
        let mut grants = Box::new(Grants::new(now, buffer, rtt));
        for (slot, peer) in peers {
            grants.admit_later(slot as u32, peer.weight, peer.data_received());
        }
        self.counters.crowds += 1;
        self.pace.mode = Mode::Granting(grants);
        self.pace.busy_at = now;
        self.grant(now);
    }

    /// From now on nobody has a limit. All who have one are told: who waits for a grant does not ask again.
    fn lift_limits(&mut self, now: Instant) {
        self.pace.mode = Mode::Free;
        for slot in 0..self.slots.len() as u32 {
            let peer = self.slots[slot as usize].peer.as_deref_mut();
            if let Some(peer) = peer.filter(|peer| peer.limit_told().is_some()) {
                peer.tell_limit(None, now);
                self.after(now, slot);
            }
        }
    }

    /// Hands out what there is room for.
    fn grant(&mut self, now: Instant) {
        let Mode::Granting(grants) = &mut self.pace.mode else { return };
        grants.distribute(now);
        let deadline = grants.deadline();
        while let Mode::Granting(grants) = &mut self.pace.mode
            && let Some(slot) = grants.take_changed()
        {
            let (limit, heard_by) = (grants.limit(slot), now + self.config.failure_timeout);
            if let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() {
                peer.tell_limit(limit, heard_by);
                self.after(now, slot);
            }
        }
        self.pace.look_within(now, deadline);
    }

    /// Time has come to `now`.
    pub(super) fn handle_pace_timeout(&mut self, now: Instant) {
        if self.pace.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.pace.look_at = None;
        if let Mode::Managing(_) = self.pace.mode {
            return self.set_learnt_rates(now);
        }
        // What nothing has come of may be here, unread.
        let is_behind = self.is_behind(now);
        let Some(grants) = self.pace.mode.grants() else { return };
        if now.saturating_since(self.pace.busy_at) >= CALM && !grants.is_busy() {
            // Who still has a limit is told otherwise when it asks.
            self.pace.mode = Mode::Free;
            return;
        }
        grants.admit_all(now);
        if !is_behind {
            grants.reclaim(now);
        }
        self.grant(now);
    }

    /// When [`handle_pace_timeout`](Self::handle_pace_timeout) is due.
    pub(super) fn pace_deadline(&self) -> Option<Instant> {
        self.pace.look_at
    }

    /// The share of the peer in `slot` has changed.
    pub(super) fn weigh_grants(&mut self, slot: u32, weight: u32) {
        if let Some(grants) = self.pace.mode.grants() {
            grants.set_weight(slot, weight);
        }
    }

    /// The peer in `slot` is gone, or begins anew.
    pub(super) fn forget_pace(&mut self, slot: u32) {
        match &mut self.pace.mode {
            Mode::Free => {}
            Mode::Granting(grants) => grants.forget(slot),
            Mode::Managing(manager) => manager.forget(slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::{ChannelId, Completion, Config, PeerId};
    use core::net::SocketAddr;
    use denrei_wire::{DatagramMeta, Ecn, TransmitBuf};
    use std::sync::Arc;

    /// Lets `from` say all that it has to say now.
    fn pass(ends: &mut [Endpoint; 2], from: usize, now: Instant) {
        let addr = SocketAddr::from(([10, 0, 0, from as u8], 7000));
        let (meta, mut out) = (DatagramMeta { from: addr, at: None, ecn: Ecn::NotEct }, TransmitBuf::new(1));
        while ends[from].poll_transmit(now, &mut out).is_some() {
            ends[1 - from].handle_datagram(now, &meta, &mut out.bytes().to_vec());
        }
    }

    /// Two ends, the first of which has opened a session, and its name for the other.
    fn open() -> ([Endpoint; 2], PeerId) {
        let mut ends =
            [1, 2].map(|seed: u64| Endpoint::new(Arc::new(Config::default()), seed, Instant::ZERO));
        let peer = ends[0].connect(Instant::ZERO, SocketAddr::from(([10, 0, 0, 1], 7000))).unwrap();
        [0, 1, 0].into_iter().for_each(|from| pass(&mut ends, from, Instant::ZERO));
        (ends, peer)
    }

    /// The request that a packet carries then is none of the octets that the rate counts.
    #[test]
    fn who_has_to_ask_for_more_does_so_however_small_its_burst_is() {
        for burst_bytes in [1, 64, 100, 1_500] {
            let (mut ends, peer) = open();
            let (mut now, back) = (Instant::ZERO, ends[1].peers().next().unwrap());
            ends[1].govern(now);
            ends[1].set_rate(now, back, Rate { bytes_per_s: 1_000_000, burst_bytes }).unwrap();
            let to = ChannelId { peer, channel: 0 };
            ends[0].send(to, vec![1; 200_000].into(), Completion::None).unwrap();
            for _ in 0..50_000 {
                [1, 0, 1].into_iter().for_each(|from| pass(&mut ends, from, now));
                if ends[0].queue_len(peer) == Some(0) {
                    break;
                }
                let next = ends.iter().filter_map(Endpoint::poll_timeout).min().unwrap();
                now = now.max(next);
                ends.iter_mut().for_each(|end| end.handle_timeout(now));
            }
            let left = ends[0].queue_len(peer);
            assert_eq!(left, Some(0), "{burst_bytes} in a row: {:?}", ends[0].flow(peer));
        }
    }

    #[test]
    fn who_says_that_it_sent_more_than_it_was_let_is_counted() {
        let ((mut ends, _), now) = (open(), Instant::ZERO);
        let slot = ends[1].peers().next().unwrap().slot;
        let mut grants = Box::new(Grants::new(now, ASSUMED_BUFFER_BYTES, None));
        grants.admit(now, slot, 100, 0);
        ends[1].pace.mode = Mode::Granting(grants);
        let mut says = |sent: u64| {
            let request = Some((sent as u32, 5_000));
            let note = PaceNote { data: 0, request, missing: 0, heard_before: now, marked: false };
            ends[1].follow_pace(now, slot, note);
            let limit = ends[1].get(ends[1].peers().next().unwrap()).unwrap().limit_told().unwrap();
            (limit, ends[1].session_totals().excess)
        };
        let (limit, excess) = says(100_000);
        assert!(limit > 100_000 && excess == 0, "it sent that before it knew of a limit");
        let (limit, excess) = says(limit);
        assert_eq!(excess, 0, "all that it may");
        assert_eq!(says(limit + 1).1, 1);
        // It sends alone for a second, and loses all the while.
        for n in 0..=1000 {
            let now = Instant::ZERO + Duration::from_millis(n);
            let missing = if n % 100 == 0 { 40 } else { 0 };
            let note = PaceNote { data: 1472, request: None, missing, heard_before: now, marked: false };
            ends[1].follow_pace(now, slot, note);
            let peer = ends[1].slots[slot as usize].peer.as_deref().unwrap();
            assert_eq!(peer.limit_told().is_none(), n == 1000, "{n}");
        }
        assert!(matches!(ends[1].pace.mode, Mode::Free));
    }

    #[test]
    fn who_goes_on_with_anothers_sessions_counts_its_own_datagrams() {
        let ((mut ends, _), now) = (open(), Instant::ZERO);
        let config = Arc::new(Config { learn_rates: true, ..Config::default() });
        ends[1].config = Arc::clone(&config);
        let slot = ends[1].peers().next().unwrap().slot;
        let note = || PaceNote { data: 1472, request: None, missing: 1, heard_before: now, marked: false };
        ends[1].follow_pace(now, slot, note());
        assert!(ends[1].pace.missing.is_some() && ends[1].counters().datagrams > 0);
        let mut home = Endpoint::new(config, 3, now);
        home.absorb(now, &mut ends[1]);
        (0..2).for_each(|_| home.follow_pace(now, slot, note()));
        let lately = home.pace.missing.as_ref().unwrap();
        assert_eq!((lately.packets, lately.datagrams), (2, 0));
    }

    /// The end of each burst is lost, and the rate is used up: what is missing shows in what asks for it.
    #[test]
    fn rates_are_learnt_from_what_is_missing_before_a_packet_without_data() {
        for learns in [true, false] {
            let ((mut ends, _), at) = (open(), Instant::ZERO + Duration::from_secs(5));
            ends[1].config = Arc::new(Config { learn_rates: learns, ..Config::default() });
            let slot = ends[1].peers().next().unwrap().slot;
            for n in 0..20 {
                let now = at + Duration::from_millis(n);
                let (data, missing) = if n % 5 == 4 { (0, 40) } else { (1472, 0) };
                let note = PaceNote { data, request: None, missing, heard_before: now, marked: false };
                ends[1].follow_pace(now, slot, note);
            }
            assert_eq!(matches!(ends[1].pace.mode, Mode::Managing(_)), learns);
        }
    }

    /// Nothing more comes by which it would be known that all is read.
    #[test]
    fn what_a_silent_peer_was_granted_is_reclaimed_although_this_side_was_away() {
        let (mut ends, _) = open();
        let mut now = Instant::ZERO + Duration::from_secs(1);
        let slot = ends[1].peers().next().unwrap().slot;
        let mut grants = Box::new(Grants::new(now, ASSUMED_BUFFER_BYTES, None));
        grants.admit(now, slot, 100, 0);
        ends[1].pace.mode = Mode::Granting(grants);
        let request = Some((0, 1 << 20));
        ends[1].follow_pace(
            now,
            slot,
            PaceNote { data: 0, request, missing: 0, heard_before: now, marked: false },
        );
        let limit =
            |end: &mut Endpoint| end.slots[slot as usize].peer.as_deref().unwrap().limit_told().unwrap();
        let granted = limit(&mut ends[1]);
        ends[1].note_absence(now, Some(Instant::ZERO + Duration::from_millis(950)));
        let until = now + Duration::from_millis(200);
        while now < until && limit(&mut ends[1]) == granted {
            now += Duration::from_millis(1);
            ends[1].handle_timeout(now);
        }
        assert!(limit(&mut ends[1]) > granted, "{granted}, and nothing since");
    }

    #[test]
    fn a_grant_is_looked_after_soon_although_all_was_calm_before() {
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        let patience = Some(Duration::from_millis(10));
        let mut pace = Pace::default();
        pace.look_within(at(0), None);
        assert_eq!(pace.look_at, Some(at(0) + CALM));
        pace.look_within(at(1), patience);
        assert_eq!(pace.look_at, Some(at(11)));
        pace.look_within(at(5), patience);
        assert_eq!(pace.look_at, Some(at(11)), "others' packets do not put it off");
        pace.look_within(at(6), None);
        assert_eq!(pace.look_at, Some(at(6) + CALM), "nothing is owed");
    }
}
