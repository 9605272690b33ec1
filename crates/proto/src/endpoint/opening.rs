//! Who gets in: FIRST, and what is said outside of sessions (RETRY, RESET, VERSIONS).
//!
//! Inputs → outputs: packets that belong to no proven session → sessions opened, begun anew or ended,
//! replies, counters. Source: `spec/protocol.md` §7 (opening, incarnations), §12.3 (order of checks).

use super::Endpoint;
use super::datagrams::Arrived;
use super::replies::{Reply, Says};
use crate::event::{LostReason, OWN_ADDRESS, Phase};
use crate::peer::{Incoming, Peer};
use crate::seal::{Protection, Turned, Unopened, Verdict};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use core::ops::{RangeBounds, RangeInclusive};
use denrei_wire::checksum::{self, CHECKSUM_BYTES};
use denrei_wire::packet::{COMMON_HEADER_BYTES, COOKIE_BYTES, OPENING_HEADER_BYTES, Opening, VERSION, flags};
use denrei_wire::{Instant, Token, Way};

/// Sessions that others have opened and not proven, at most. Beyond, FIRSTs are dropped and
/// counted; an honest initiator repeats its own.
const MAX_UNPROVEN: usize = 1024;

/// Of these, how many one source (IPv6: one /64) may have.
const MAX_UNPROVEN_PER_SOURCE: usize = MAX_UNPROVEN / 2;

/// Of those that leave no room, so many are looked at for one that has had its time.
const LOOKED_AT: usize = 8;

/// With more than these, an initiator has to prove its address before a handshake is computed.
const MANY_UNPROVEN: usize = MAX_UNPROVEN / 4;

/// What a FIRST of no session would bring about.
#[derive(Clone, Copy)]
enum Place {
    /// A new session.
    New,
    /// A new session in place of an unproven one, if its initiator shows that it came after that.
    Instead(u32),
    /// None: there is an unproven one. If that one's initiator has given it up it says so when it is answered again.
    Taken(u32),
    /// This side has opened, and begins anew as the responder.
    Anew(u32),
}

/// The addresses that count as one source with `from`.
fn source_of(from: SocketAddr) -> RangeInclusive<SocketAddr> {
    let (low, high) = match from.ip() {
        ip @ IpAddr::V4(_) => (ip, ip),
        IpAddr::V6(ip) => {
            let prefix = u128::from(ip) >> 64 << 64;
            let last = prefix | u64::MAX as u128;
            (IpAddr::V6(Ipv6Addr::from(prefix)), IpAddr::V6(Ipv6Addr::from(last)))
        }
    };
    SocketAddr::new(low, 0)..=SocketAddr::new(high, u16::MAX)
}

impl Endpoint {
    pub(super) fn handle_first(&mut self, now: Instant, arrived: Arrived<'_>, datagram: &mut [u8]) {
        let Some(opening) = arrived.header.opening else { return };
        if arrived.header.flags & flags::KEY_PHASE != 0 {
            self.counters.malformed += 1;
            return;
        }
        if let Some(slot) = self.session_of(arrived.meta.from, opening) {
            if self.peer_in(slot).is_some_and(Peer::is_full_of_unproven) {
                self.counters.limited += 1;
                return;
            }
            self.deliver(now, slot, arrived, datagram);
            return self.count_limited();
        }
        let (header_len, datagram_len) = (arrived.header_len, datagram.len());
        let field = datagram[OPENING_HEADER_BYTES..header_len].to_owned();
        // Nothing has been received yet: the number is what it says.
        let number = arrived.header.number as u64;
        let body = match self.gate.open_first(opening, number, header_len, datagram) {
            Ok(body) => body,
            Err(turned) => return self.count_turned(turned),
        };
        if opening.incarnation == self.incarnation {
            return self.handle_own_first(now, opening);
        }
        let Some(slot) = self.make_room(now, arrived.meta.back(), opening, arrived.header.token, &field)
        else {
            return;
        };
        let incoming = Incoming { header: arrived.header, number, body, datagram_len, ecn: arrived.meta.ecn };
        self.with_peer(now, slot, |peer, cx| peer.handle_packet(cx, &incoming));
        self.conclude(now, slot, Ok(()));
        self.count_limited();
    }

    fn count_limited(&mut self) {
        self.counters.limited += core::mem::take(&mut self.notes.limited);
    }

    /// The session that a FIRST belongs to.
    fn session_of(&self, from: SocketAddr, opening: Opening) -> Option<u32> {
        let of_opening = |slot: &u32| {
            self.peer_in(*slot).is_some_and(|peer| {
                peer.remote_token == Some(opening.own_token)
                    && peer.remote_incarnation == Some(opening.incarnation)
            })
        };
        [self.by_addr.get(&from), self.unproven.get(&from)].into_iter().flatten().copied().find(of_opening)
    }

    /// Somebody connects to itself: a session needs two ends. Or somebody else sends our own FIRST
    /// back: the attempt goes on, and this is what it is told if nobody else answers.
    fn handle_own_first(&mut self, now: Instant, opening: Opening) {
        let slot = opening.own_token.slot() as u32;
        if self.peer_in(slot).is_some_and(|peer| peer.local_token == opening.own_token) {
            let reason = LostReason::Violation(OWN_ADDRESS);
            self.with_peer(now, slot, |peer, cx| peer.suspect(cx, reason));
        }
    }

    /// The slot of a session for a genuine FIRST that belongs to none.
    fn make_room(
        &mut self,
        now: Instant,
        back: Way,
        opening: Opening,
        token: Token,
        field: &[u8],
    ) -> Option<u32> {
        let place = self.place_for(back.to, opening)?;
        let before = match place {
            Place::Taken(slot) => {
                self.with_peer(now, slot, |peer, _| peer.repeat_answer());
                return None;
            }
            Place::Instead(slot) => Some(slot),
            Place::New | Place::Anew(_) => None,
        };
        let token_before = before.and_then(|slot| self.peer_in(slot)).map(|peer| peer.local_token);
        let crowded = self.unproven.len() >= MANY_UNPROVEN;
        match self.gate.judge(now, back.to, field, token_before, crowded) {
            Verdict::Answer => {}
            Verdict::TooMany => {
                self.counters.limited += 1;
                return None;
            }
            Verdict::Retry(cookie) => {
                self.counters.retries += 1;
                let check = self.gate.retry_check(token, &cookie)?;
                self.reply(Reply { back, token, says: Says::Retry { cookie, check } });
                return None;
            }
        }
        if let Place::Anew(slot) = place {
            return self.answer_anew(slot, back, opening, field);
        }
        if let Some(before) = before {
            // The older attempt has been given up by whoever made it.
            self.forget_unproven(now, back.to, before);
        }
        self.begin_answering(now, back, opening, field)
    }

    fn forget_unproven(&mut self, now: Instant, addr: SocketAddr, slot: u32) {
        self.unproven.remove(&addr);
        self.with_peer(now, slot, |peer, cx| peer.lose(cx, LostReason::Forgotten));
        self.free_if_finished(slot);
    }

    /// What a FIRST that belongs to no session is to become; `None`: nothing.
    fn place_for(&self, from: SocketAddr, opening: Opening) -> Option<Place> {
        if let Some(&slot) = self.by_addr.get(&from) {
            let peer = self.peer_in(slot)?;
            match peer.phase {
                // Both sides opened at once: the FIRST of the higher incarnation prevails.
                Phase::Opening if self.incarnation > opening.incarnation => return None,
                Phase::Opening => return Some(Place::Anew(slot)),
                Phase::Answering => return Some(Place::Taken(slot)),
                _ => {}
            }
        }
        // Which of two is older, their FIRSTs do not tell: one may be late, or a recording.
        Some(match self.unproven.get(&from) {
            None => Place::New,
            Some(&slot) if self.gate.is_sealed() => Place::Instead(slot),
            Some(&slot) => Place::Taken(slot),
        })
    }

    /// Makes the peer in `slot` the responder to this FIRST, whatever it was before.
    fn answer_anew(&mut self, slot: u32, back: Way, opening: Opening, field: &[u8]) -> Option<u32> {
        let own = self.new_opening(slot);
        let protection = self.answer_handshake(opening, own, field)?;
        let peer = self.slots[slot as usize].peer.as_deref_mut()?;
        self.held_bytes -= peer.inbox().held_bytes();
        peer.local = back.from;
        peer.yield_to(&self.config, own.own_token, opening, protection);
        self.forget_pace(slot);
        Some(slot)
    }

    fn begin_answering(&mut self, now: Instant, back: Way, opening: Opening, field: &[u8]) -> Option<u32> {
        let source = source_of(back.to);
        let room = if self.unproven.range(source.clone()).count() >= MAX_UNPROVEN_PER_SOURCE {
            self.dismiss_one(now, source)
        } else {
            self.unproven.len() < MAX_UNPROVEN || self.dismiss_one(now, ..)
        };
        let Some(slot) = room.then(|| self.new_slot()).flatten() else {
            self.counters.refused_sessions += 1;
            if room {
                // Its FIRST is repeated, and may find the slot free by then.
                self.dismiss_one(now, ..);
            }
            return None;
        };
        let own = self.new_opening(slot);
        let Some(protection) = self.answer_handshake(opening, own, field) else {
            self.release_slot(slot);
            return None;
        };
        let beginning = self.beginning(slot, back, now, own, protection);
        let peer = Peer::answering(beginning, &self.config, opening);
        self.slots[slot as usize].peer = Some(Box::new(peer));
        self.unproven.insert(back.to, slot);
        Some(slot)
    }

    fn answer_handshake(&mut self, opening: Opening, own: Opening, field: &[u8]) -> Option<Protection> {
        self.gate.answer(opening, own, field).map_err(|turned| self.count_turned(turned)).ok()
    }

    /// Forgets an unproven session with one of some addresses whose initiator has had its time to prove it, should it
    /// be there still. Many whose processes have ended before they were answered would else keep all others out until
    /// they count as dead. A few are looked at, from any on: a FIRST is to cost little.
    fn dismiss_one(&mut self, now: Instant, addrs: impl RangeBounds<SocketAddr> + Clone) -> bool {
        let range = || self.unproven.range::<SocketAddr, _>(addrs.clone());
        let many = range().count();
        let from = (self.random.next_u64() % many.max(1) as u64) as usize;
        let looked_at = range().skip(from).chain(range().take(from)).take(LOOKED_AT);
        let gone = |(_, slot): &(_, u32)| self.peer_in(*slot).is_some_and(|peer| peer.is_given_up(now));
        let found = looked_at.map(|(addr, slot)| (*addr, *slot)).find(gone);
        if let Some((addr, slot)) = found {
            self.forget_unproven(now, addr, slot);
        }
        found.is_some()
    }

    /// The initiator in `slot` has used our token: it is at that address, now. An earlier session
    /// with the address is over.
    pub(super) fn admit(&mut self, now: Instant, slot: u32, addr: SocketAddr) {
        if self.unproven.get(&addr) == Some(&slot) {
            self.unproven.remove(&addr);
        }
        let before = self.by_addr.insert(addr, slot).filter(|before| *before != slot);
        let Some(before) = before else { return };
        let incarnation = self.peer_in(slot).and_then(|peer| peer.remote_incarnation);
        let same = self.peer_in(before).is_some_and(|peer| peer.remote_incarnation == incarnation);
        let reason = if same { LostReason::Forgotten } else { LostReason::Restarted };
        self.with_peer(now, before, |peer, cx| peer.lose(cx, reason));
        self.free_if_finished(before);
    }

    // ---- who is there now ----

    /// The peer at `addr` is said not to know its session, and does not answer. Anybody could have
    /// said so: asks, by a handshake, which incarnation is there.
    pub(super) fn inquire(&mut self, now: Instant, way: Way) {
        let addr = way.to;
        if let Some(&before) = self.unproven.get(&addr) {
            // Its initiator may be gone since, or have said so long ago: it is not waited for.
            let given_up = self.peer_in(before).is_some_and(|peer| peer.is_given_up(now));
            if !given_up {
                return;
            }
            self.forget_unproven(now, addr, before);
        }
        if self.unproven.len() >= MAX_UNPROVEN {
            return;
        }
        let Some(slot) = self.new_slot() else { return };
        let own = self.new_opening(slot);
        let protection = self.gate.open_session(own, &[]);
        let beginning = self.beginning(slot, way, now, own, protection);
        self.slots[slot as usize].peer = Some(Box::new(Peer::inquiring(beginning, &self.config)));
        self.unproven.insert(addr, slot);
        self.after(now, slot);
    }

    /// An incarnation has answered at `addr`: what that says about the session there, if that is still
    /// silent, the session decides. The inquiry itself goes no further.
    pub(super) fn conclude_inquiry(&mut self, now: Instant, slot: u32, addr: SocketAddr) {
        let answered = self.peer_in(slot).and_then(|peer| peer.remote_incarnation);
        if let Some(session) = self.by_addr.get(&addr).copied().filter(|session| *session != slot) {
            self.with_peer(now, session, |peer, cx| peer.on_inquiry_answered(cx, answered));
            self.free_if_finished(session);
        }
        self.with_peer(now, slot, |peer, cx| peer.lose(cx, LostReason::Closed));
        self.free_if_finished(slot);
    }

    // ---- what is said outside of sessions ----

    /// A peer does not know a session. Heard only if it names the token we address it by, which
    /// nobody off the path knows.
    pub(super) fn handle_reset(&mut self, now: Instant, arrived: Arrived<'_>, datagram: &[u8]) {
        if !checksum::verify(datagram) {
            self.counters.corrupted += 1;
            return;
        }
        let (from, token) = (arrived.meta.from, arrived.header.token);
        let candidates = [self.by_addr.get(&from), self.unproven.get(&from)];
        let Some(slot) = candidates.into_iter().flatten().copied().find(|&slot| {
            self.peer_in(slot).is_some_and(|peer| peer.remote_token == Some(token) && peer.is_alive())
        }) else {
            self.counters.unknown_session += 1;
            return;
        };
        let wanted = self.peer_in(slot).is_some_and(|peer| peer.phase == Phase::Answering && peer.visible);
        if wanted {
            // We answered an initiator of yesterday, but the application wants this peer.
            return self.open_anew(now, slot, &[]);
        }
        self.with_peer(now, slot, |peer, cx| peer.on_reset(cx));
        self.free_if_finished(slot);
    }

    /// What went to `addr` was refused by the host there, as nobody is at that port; so somebody says. Whether more
    /// such word is of use: the peer there is still in question.
    pub fn handle_refused(&mut self, now: Instant, addr: SocketAddr) -> bool {
        let Some(&slot) = self.by_addr.get(&addr) else { return false };
        let in_question = self.with_peer(now, slot, |peer, cx| peer.on_refused(cx));
        self.free_if_finished(slot);
        in_question
    }

    /// A peer that does not answer, whose host should be heard: a driver that can passes on what it
    /// [says](Self::handle_refused). It is named with each probe.
    pub fn poll_silent(&mut self) -> Option<Way> {
        self.notes.silent.pop()
    }

    /// A responder knows this side by the address that its ANSWER went to: what follows leaves from there, whatever
    /// way the system would choose.
    pub(super) fn handle_answer(
        &mut self,
        now: Instant,
        slot: u32,
        arrived: Arrived<'_>,
        datagram: &mut [u8],
    ) {
        let (asked, at) = (self.is_opening(slot), arrived.meta.at);
        self.deliver(now, slot, arrived, datagram);
        let peer = self.slots[slot as usize].peer.as_deref_mut();
        if let Some(peer) = peer.filter(|peer| asked && peer.phase == Phase::Open) {
            peer.local = at;
        }
    }

    /// A responder wants to know first that we are at our address.
    pub(super) fn handle_retry(&mut self, now: Instant, arrived: Arrived<'_>, datagram: &[u8]) {
        let token = arrived.header.token;
        let (cookie, check) = datagram[COMMON_HEADER_BYTES..].split_at(COOKIE_BYTES);
        let Some(slot) = self.find(token, &arrived.meta.from).filter(|slot| self.is_opening(*slot)) else {
            self.counters.unknown_session += 1;
            return;
        };
        if !self.gate.is_retry_genuine(token, cookie, check) {
            self.counters.corrupted += 1;
            return;
        }
        self.open_anew(now, slot, cookie);
    }

    /// Opens the session in `slot` from this side, whatever it was before.
    fn open_anew(&mut self, now: Instant, slot: u32, cookie: &[u8]) {
        let own = self.new_opening(slot);
        let protection = self.gate.open_session(own, cookie);
        self.forget_pace(slot);
        self.with_peer(now, slot, |peer, cx| peer.reopen(cx.config, own.own_token, protection));
    }

    fn is_opening(&self, slot: u32) -> bool {
        self.peer_in(slot).is_some_and(|peer| peer.phase == Phase::Opening)
    }

    pub(super) fn handle_versions(&mut self, now: Instant, arrived: Arrived<'_>, datagram: &[u8]) {
        if !checksum::verify(datagram) {
            self.counters.corrupted += 1;
            return;
        }
        let slot = self.find(arrived.header.token, &arrived.meta.from).filter(|slot| self.is_opening(*slot));
        let Some(slot) = slot else {
            self.counters.unknown_session += 1;
            return;
        };
        let offered = datagram[COMMON_HEADER_BYTES..datagram.len() - CHECKSUM_BYTES].to_vec();
        // Whoever speaks our version has no reason to say this.
        if !offered.contains(&VERSION) {
            let reason = LostReason::VersionMismatch { offered };
            self.with_peer(now, slot, |peer, cx| peer.suspect(cx, reason));
        }
    }

    pub(super) fn reply(&mut self, reply: Reply) {
        if !self.replies.push(reply) {
            self.counters.suppressed_replies += 1;
        }
    }

    fn count_turned(&mut self, turned: Turned) {
        let counter = match turned {
            Turned::NotGenuine if self.gate.is_sealed() => &mut self.counters.strange_keys,
            Turned::NotGenuine => &mut self.counters.corrupted,
            Turned::Unsealed => &mut self.counters.unsealed,
            Turned::Sealed => &mut self.counters.sealed_unread,
            Turned::Stranger => &mut self.counters.strangers,
        };
        *counter += 1;
    }

    pub(super) fn count_unopened(&mut self, unopened: Unopened) {
        match unopened {
            Unopened::NotGenuine | Unopened::WornOut => self.counters.corrupted += 1,
            Unopened::Stranger => self.counters.strangers += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use denrei_wire::{DatagramMeta, Ecn, Transmit, TransmitBuf};
    use std::sync::Arc;

    fn ends() -> [Endpoint; 2] {
        [1, 2].map(|seed: u64| Endpoint::new(Arc::new(Config::default()), seed, Instant::ZERO))
    }

    fn addr(end: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, end as u8], 7000))
    }

    /// What `end` sends next.
    fn sent_by(end: &mut Endpoint) -> Option<(Transmit, Vec<u8>)> {
        let mut out = TransmitBuf::new(1);
        end.poll_transmit(Instant::ZERO, &mut out).map(|transmit| (transmit, out.bytes().to_vec()))
    }

    #[test]
    fn what_a_first_tells_of_the_pace_is_nobody_elses() {
        let mut ends = ends();
        ends[0].connect(Instant::ZERO, addr(1)).unwrap();
        let (_, mut first) = sent_by(&mut ends[0]).unwrap();
        let meta = DatagramMeta { from: addr(0), at: None, ecn: Ecn::NotEct };
        ends[1].handle_datagram(Instant::ZERO, &meta, &mut first);
        assert!(ends[1].notes.pace.is_none());
    }

    #[test]
    fn who_was_answered_at_one_of_several_addresses_goes_on_from_it() {
        let at = |last| Some(IpAddr::from([10, 0, 9, last]));
        let meta = |from, at| DatagramMeta { from: addr(from), at, ecn: Ecn::NotEct };
        let mut ends = ends();
        ends[0].connect(Instant::ZERO, addr(1)).unwrap();
        let (_, mut first) = sent_by(&mut ends[0]).unwrap();
        ends[1].handle_datagram(Instant::ZERO, &meta(0, None), &mut first);
        let (_, answer) = sent_by(&mut ends[1]).unwrap();
        // What is repeated, by the network or by somebody who saw it, changes nothing.
        for last in [1, 2] {
            ends[0].handle_datagram(Instant::ZERO, &meta(1, at(last)), &mut answer.clone());
        }
        let (sent, _) = sent_by(&mut ends[0]).unwrap();
        assert_eq!(sent.way(), Way { to: addr(1), from: at(1) });
    }

    #[test]
    fn who_asks_at_one_of_several_addresses_is_answered_from_it() {
        let at = Some(IpAddr::from([10, 0, 9, 9]));
        let meta = |from| DatagramMeta { from: addr(from), at, ecn: Ecn::NotEct };
        let mut ends = ends();
        ends[0].connect(Instant::ZERO, addr(1)).unwrap();
        let (opening, first) = sent_by(&mut ends[0]).unwrap();
        assert_eq!(opening.from, None, "the system chooses");
        let mut unknown = first.clone();
        unknown[1] = 99;
        for mut datagram in [first, unknown] {
            ends[1].handle_datagram(Instant::ZERO, &meta(0), &mut datagram);
        }
        let answers: Vec<Transmit> = std::iter::from_fn(|| sent_by(&mut ends[1])).map(|(to, _)| to).collect();
        assert!(
            answers.len() == 2 && answers.iter().all(|answer| answer.way() == meta(0).back()),
            "{answers:?}"
        );
    }
}
