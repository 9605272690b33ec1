//! The way in, the way out, and time: what a driver calls.
//!
//! Inputs → outputs: datagrams and the time → the work of one peer each; peers that want to send →
//! datagrams. Order of calls: see [`Endpoint`].

use super::Endpoint;
use super::replies::Reply;
use crate::peer::{Context, Incoming};
use core::net::SocketAddr;
use denrei_wire::checksum::{self, CHECKSUM_BYTES};
use denrei_wire::packet::{self, Kind, Packet, PacketError, flags};
use denrei_wire::{DatagramMeta, Instant, Token, Transmit, TransmitBuf};

impl Endpoint {
    /// Takes a datagram. One that is damaged, forged, stale or foreign is counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, meta: DatagramMeta, datagram: &mut [u8]) {
        self.counters.datagrams += 1;
        let packet = match Packet::decode(datagram) {
            Ok(packet) => packet,
            Err(error) => return self.drop_undecodable(meta, datagram, error),
        };
        // Plain mode has one key, which is none, and an empty handshake.
        if packet.header.flags & flags::KEY_PHASE != 0 || !packet.handshake.is_empty() {
            self.counters.malformed += 1;
            return;
        }
        match packet.header.kind {
            Kind::Session | Kind::Answer => {
                let Some(slot) = self.find(packet.header.token, meta.from) else {
                    return self.reject_unknown(meta, datagram);
                };
                if checksum::verify(datagram) {
                    self.deliver(now, slot, meta, &packet, datagram.len());
                } else {
                    self.counters.corrupted += 1;
                }
            }
            _ if !checksum::verify(datagram) => self.counters.corrupted += 1,
            Kind::First => self.handle_first(now, meta, &packet, datagram.len()),
            Kind::Reset => self.handle_reset(now, meta, packet.header.token),
            Kind::Versions => self.handle_versions(now, meta, &packet),
            Kind::Group => self.handle_group_packet(now, meta, &packet),
        }
    }

    fn drop_undecodable(&mut self, meta: DatagramMeta, datagram: &[u8], error: PacketError) {
        if !matches!(error, PacketError::UnknownVersion(_)) {
            self.counters.malformed += 1;
            return;
        }
        self.counters.foreign_version += 1;
        if let Some(token) = packet::first_token_of_any_version(datagram)
            && !self.replies.push(Reply::Versions { to: meta.from, token })
        {
            self.counters.suppressed_replies += 1;
        }
    }

    fn reject_unknown(&mut self, meta: DatagramMeta, datagram: &[u8]) {
        self.counters.unknown_session += 1;
        let Ok(packet) = Packet::decode(datagram) else { return };
        if !checksum::verify(datagram) {
            return;
        }
        let reply = Reply::Reset { to: meta.from, token: packet.header.token };
        if !self.replies.push(reply) {
            self.counters.suppressed_replies += 1;
        }
    }

    fn find(&self, token: Token, from: SocketAddr) -> Option<u32> {
        let peer = self.slots.get(token.slot())?.peer.as_deref()?;
        (peer.local_token == token && peer.addr == from).then_some(token.slot() as u32)
    }

    pub(super) fn deliver(
        &mut self,
        now: Instant,
        slot: u32,
        meta: DatagramMeta,
        packet: &Packet<'_>,
        len: usize,
    ) {
        let body = &packet.body[..packet.body.len() - CHECKSUM_BYTES];
        let incoming = Incoming { header: packet.header, body, datagram_len: len, ecn: meta.ecn };
        self.with_peer(now, slot, |peer, cx| peer.handle_packet(cx, &incoming));
    }

    /// Time has come to `now`: fires what is due. Call it after the datagrams that have arrived.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut due = core::mem::take(&mut self.due);
        due.extend(core::iter::from_fn(|| self.timers.pop_due(now)));
        for slot in due.drain(..) {
            if self.peer_in(slot).is_some() {
                self.with_peer(now, slot, |peer, cx| peer.handle_timeout(cx));
                self.free_if_finished(slot);
            }
        }
        self.due = due;
        if let Some(groups) = &mut self.groups
            && groups.wants_drive(now)
        {
            groups.touch();
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let groups = self.groups.as_deref().map_or(Instant::FAR_FUTURE, |groups| groups.deadline());
        let next = self.timers.next().unwrap_or(Instant::FAR_FUTURE).min(groups);
        (next < Instant::FAR_FUTURE).then_some(next)
    }

    /// Writes the next datagrams to send into `out`; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<Transmit> {
        out.clear();
        if let Some(transmit) = self.replies.write(out) {
            return Some(transmit);
        }
        if self.groups.is_some()
            && let Some(transmit) = self.transmit_groups(now, out)
        {
            return Some(transmit);
        }
        while let Some(slot) = self.sending.pop_front() {
            self.slots[slot as usize].sending = false;
            let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { continue };
            let mut cx =
                Context { config: &self.config, now, events: &mut self.events, notes: &mut self.notes };
            let transmit = peer.write_transmit(&mut cx, out);
            if peer.wants_transmit(&cx) && transmit.is_some() {
                self.slots[slot as usize].sending = true;
                self.sending.push_back(slot);
            }
            let deadline = self.slots[slot as usize].peer.as_deref().map(|peer| peer.deadline(&self.config));
            self.timers.arm(slot, deadline.unwrap_or(Instant::FAR_FUTURE));
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something to send.
    pub fn wants_transmit(&self) -> bool {
        let groups =
            || self.groups.as_deref().is_some_and(|groups| groups.is_dirty() || groups.wants_transmit());
        !self.sending.is_empty() || !self.replies.is_empty() || groups()
    }
}
