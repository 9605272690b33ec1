//! The way in, the way out, and time: what a driver calls.
//!
//! Inputs → outputs: datagrams and the time → the work of one peer each; peers that want to send →
//! datagrams. Order of calls: see [`Endpoint`].

use super::Endpoint;
use super::replies::{Reply, Says};
use crate::lending::Handler;
use crate::seal::{OpenJob, Opened, Unopened};
use core::net::SocketAddr;
use denrei_wire::checksum;
use denrei_wire::packet::{self, Header, Kind, Packet, PacketError};
use denrei_wire::{DatagramMeta, Instant, Token, Transmit, TransmitBuf};

/// A datagram whose header could be read.
#[derive(Clone, Copy)]
pub(super) struct Arrived<'a> {
    pub header: Header,
    /// Octets before the frames.
    pub header_len: usize,
    pub meta: &'a DatagramMeta,
}

impl Endpoint {
    /// Nobody has looked at the sockets since `since`, so what is handled from now on may have come at any time since
    /// then; `None`: it came just now. What has waited for this process is no queue of the path's: acknowledgements say
    /// that it was kept so long, and the windows of this side follow no more of a round trip than what is left.
    pub fn note_absence(&mut self, now: Instant, since: Option<Instant>) {
        self.absent_since = since.unwrap_or(now);
        self.behind_until = now + now.saturating_since(self.absent_since);
    }

    /// Whether what has come while nobody looked may still be being read: as much time again at most.
    pub(super) fn is_behind(&self, now: Instant) -> bool {
        now < self.behind_until
    }

    /// The earliest time at which what is handled now may have come.
    pub(super) fn came(&self, now: Instant) -> Instant {
        if self.is_behind(now) { self.absent_since } else { now }
    }

    /// Takes a datagram, which is opened in place. One that is damaged, forged, stale or foreign is
    /// counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, meta: &DatagramMeta, datagram: &mut [u8]) {
        self.counters.datagrams += 1;
        let arrived = match Packet::decode(datagram) {
            Ok(Packet { header, header_len, .. }) => Arrived { header, header_len, meta },
            Err(error) => return self.drop_undecodable(meta, datagram, error),
        };
        match arrived.header.kind {
            Kind::Session => match self.find(arrived.header.token, &meta.from) {
                Some(slot) => self.deliver(now, slot, arrived, datagram),
                None => self.reject_unknown(arrived, datagram),
            },
            Kind::Answer => match self.find(arrived.header.token, &meta.from) {
                Some(slot) => self.handle_answer(now, slot, arrived, datagram),
                None => self.reject_unknown(arrived, datagram),
            },
            Kind::First => self.handle_first(now, arrived, datagram),
            Kind::Reset => self.handle_reset(now, arrived, datagram),
            Kind::Versions => self.handle_versions(now, arrived, datagram),
            Kind::Retry => self.handle_retry(now, arrived, datagram),
            Kind::Group => self.handle_group_packet(now, arrived, datagram),
        }
    }

    /// What it takes to open a datagram elsewhere, for drivers that have a core for that: then the
    /// datagram goes to [`handle_opened`](Self::handle_opened), else to
    /// [`handle_datagram`](Self::handle_datagram). The order in which datagrams are handled may be any.
    pub fn open_job(&self, meta: &DatagramMeta, datagram: &[u8]) -> Option<OpenJob> {
        let Packet { header, header_len, .. } = Packet::decode(datagram).ok()?;
        if header.kind != Kind::Session {
            return None;
        }
        self.peer_in(self.find(header.token, &meta.from)?)?.open_job(&header, header_len)
    }

    /// Takes a datagram that was opened elsewhere.
    pub fn handle_opened(&mut self, now: Instant, meta: &DatagramMeta, datagram: &[u8], opened: &Opened) {
        self.counters.datagrams += 1;
        let Ok(Packet { header, header_len, .. }) = Packet::decode(datagram) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(slot) = self.find(header.token, &meta.from) else {
            self.counters.unknown_session += 1;
            return;
        };
        let place = (header, header_len);
        let handled =
            self.with_peer(now, slot, |peer, cx| peer.handle_opened(cx, place, meta.ecn, datagram, opened));
        self.conclude(now, slot, handled);
    }

    /// What a packet leads to beyond its peer.
    pub(super) fn conclude(&mut self, now: Instant, slot: u32, handled: Result<(), Unopened>) {
        if let Err(unopened) = handled {
            self.count_unopened(unopened);
        }
        if let Some(note) = self.notes.pace.take() {
            self.follow_pace(now, slot, note);
        }
    }

    fn drop_undecodable(&mut self, meta: &DatagramMeta, datagram: &[u8], error: PacketError) {
        if !matches!(error, PacketError::UnknownVersion(_)) {
            self.counters.malformed += 1;
            return;
        }
        self.counters.foreign_version += 1;
        if let Some(token) = packet::first_token_of_any_version(datagram) {
            self.reply(Reply { back: meta.back(), token, says: Says::Versions });
        }
    }

    fn reject_unknown(&mut self, arrived: Arrived<'_>, datagram: &[u8]) {
        self.counters.unknown_session += 1;
        // A plain packet has a checksum to tell it from noise; whether a sealed one is genuine, nobody
        // can say who does not have its session's keys.
        let plain = checksum::verify(datagram);
        self.counters.unsealed += (plain && self.gate.is_sealed()) as u64;
        if plain != self.gate.is_sealed() {
            let (back, token) = (arrived.meta.back(), arrived.header.token);
            self.reply(Reply { back, token, says: Says::Reset });
        }
    }

    pub(super) fn find(&self, token: Token, from: &SocketAddr) -> Option<u32> {
        let peer = self.slots.get(token.slot())?.peer.as_deref()?;
        let its = peer.local_token == token && peer.addr == *from && peer.is_addressed();
        its.then_some(token.slot() as u32)
    }

    pub(super) fn deliver(&mut self, now: Instant, slot: u32, arrived: Arrived<'_>, datagram: &mut [u8]) {
        let Arrived { header, header_len, meta } = arrived;
        let handled = self.with_peer(now, slot, |peer, cx| {
            peer.inbox_mut().begin_packet();
            peer.handle_datagram(cx, header, header_len, meta.ecn, datagram)
        });
        self.noted.note(datagram, meta.from, Handler::Session(slot));
        self.conclude(now, slot, handled);
    }

    /// Time has come to `now`: fires what is due. Call it after the datagrams that have arrived.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut due = core::mem::take(&mut self.due);
        due.extend(core::iter::from_fn(|| self.timers.pop_due(now)));
        let told_before = core::mem::replace(&mut self.told_at, now);
        for slot in due.drain(..) {
            if self.peer_in(slot).is_some() {
                self.with_peer(now, slot, |peer, cx| peer.handle_timeout(cx, told_before));
                // An acknowledgement stays due until it is written.
                if self.slots[slot as usize].sending {
                    self.timers.rest(slot, now);
                }
                self.free_if_finished(slot);
            }
        }
        self.due = due;
        if let Some(groups) = &mut self.groups {
            groups.handle_timeout(now);
        }
        self.handle_pace_timeout(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let groups = self.groups.as_deref().map_or(Instant::FAR_FUTURE, |groups| groups.deadline());
        let pace = self.pace_deadline().unwrap_or(Instant::FAR_FUTURE);
        let next = self.timers.next().unwrap_or(Instant::FAR_FUTURE).min(groups).min(pace);
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// Makes [`poll_timeout`](Self::poll_timeout) exact, as far as sessions are concerned, which otherwise may be
    /// earlier than anything there is to do: for callers that sleep until then.
    pub fn settle_timers(&mut self) {
        let Self { timers, slots, config, .. } = self;
        timers.settle(|slot| {
            let peer = slots.get(slot as usize).and_then(|entry| entry.peer.as_deref());
            peer.map_or(Instant::FAR_FUTURE, |peer| peer.deadline(config))
        });
    }

    /// Writes the next datagrams to send into `out`; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<Transmit> {
        out.clear();
        if let Some(transmit) = self.replies.write(out) {
            return Some(transmit);
        }
        if self.groups.is_some() {
            return self.transmit_in_turn(now, out);
        }
        self.transmit_sessions(now, out)
    }

    /// The next datagrams of a session.
    pub(super) fn transmit_sessions(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<Transmit> {
        while let Some(slot) = self.sending.pop_front() {
            self.slots[slot as usize].sending = false;
            let Some((peer, mut cx)) = self.peer_at_work(now, slot) else { continue };
            let transmit = peer.write_transmit(&mut cx, out);
            if transmit.is_some() && peer.wants_transmit(&cx) {
                self.list(slot);
            }
            self.arm(slot);
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something to send.
    pub fn wants_transmit(&self) -> bool {
        let groups =
            || self.groups.as_deref().is_some_and(|groups| groups.is_stirred() || groups.wants_transmit());
        !self.sending.is_empty() || !self.replies.is_empty() || groups()
    }
}
