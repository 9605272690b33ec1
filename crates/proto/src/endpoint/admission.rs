//! Who gets in, and how much of the receive memory: FIRST, RESET, VERSIONS; offers and credit.
//!
//! Source: `spec/protocol.md` §7 (opening, incarnations), §6 (offers).

use super::Endpoint;
use crate::config::OfferPolicy;
use crate::event::{ChannelId, LostReason, PeerError, Phase};
use crate::loss::Control;
use crate::peer::Peer;
use crate::placement::AcceptInto;
use core::net::SocketAddr;
use denrei_wire::checksum::CHECKSUM_BYTES;
use denrei_wire::packet::{Opening, Packet};
use denrei_wire::{DatagramMeta, Incarnation, Instant, Token};

/// Sessions that others have opened and not proven, at most. Beyond, FIRSTs are dropped and
/// counted; an honest initiator repeats its own.
const MAX_UNPROVEN: usize = 1024;

impl Endpoint {
    pub(super) fn handle_first(&mut self, now: Instant, meta: DatagramMeta, packet: &Packet<'_>, len: usize) {
        let Some(opening) = packet.header.opening else { return };
        if opening.incarnation == self.incarnation {
            return self.handle_own_first(now, opening);
        }
        let Some(slot) = self.slot_for_first(now, meta.from, opening) else { return };
        self.deliver(now, slot, meta, packet, len);
    }

    /// Somebody connects to itself: a session needs two ends.
    fn handle_own_first(&mut self, now: Instant, opening: Opening) {
        let slot = opening.own_token.slot() as u32;
        if self.peer_in(slot).is_some_and(|peer| peer.local_token == opening.own_token) {
            self.with_peer(now, slot, |peer, cx| {
                peer.lose(cx, LostReason::Violation("that address is this Node's own"))
            });
        }
    }

    /// The session that a FIRST belongs to, made if need be; `None`: drop the packet.
    fn slot_for_first(&mut self, now: Instant, from: SocketAddr, opening: Opening) -> Option<u32> {
        let Opening { own_token: token, incarnation } = opening;
        let is_it =
            |peer: &Peer| peer.remote_token == Some(token) && peer.remote_incarnation == Some(incarnation);
        let known = self.by_addr.get(&from).copied();
        if let Some(slot) = known {
            let peer = self.slots[slot as usize].peer.as_deref_mut()?;
            if is_it(peer) {
                return Some(slot);
            }
            if peer.phase == Phase::Opening {
                return self.resolve_simultaneous_open(slot, token, incarnation);
            }
            if peer.phase == Phase::Answering && peer.remote_incarnation == Some(incarnation) {
                // It began anew before it heard our answer.
                return self.answer_anew(slot, token, incarnation);
            }
        }
        if let Some(&slot) = self.unproven.get(&from) {
            if self.peer_in(slot).is_some_and(is_it) {
                return Some(slot);
            }
            // The older attempt has been given up by whoever made it.
            self.drop_unproven(now, from, slot);
        }
        self.begin_answering(now, from, token, incarnation)
    }

    /// Both sides opened at once: the FIRST of the higher incarnation prevails.
    fn resolve_simultaneous_open(
        &mut self,
        slot: u32,
        token: Token,
        incarnation: Incarnation,
    ) -> Option<u32> {
        if self.incarnation > incarnation {
            return None;
        }
        self.answer_anew(slot, token, incarnation)
    }

    /// Makes the peer in `slot` the responder to this FIRST, whatever it was before.
    fn answer_anew(&mut self, slot: u32, token: Token, incarnation: Incarnation) -> Option<u32> {
        let own_token = Token::new(slot, self.random.next_u64());
        let peer = self.slots[slot as usize].peer.as_deref_mut()?;
        self.held_bytes -= peer.inbox().held_bytes();
        peer.yield_to(&self.config, own_token, token, incarnation);
        Some(slot)
    }

    fn begin_answering(
        &mut self,
        now: Instant,
        from: SocketAddr,
        token: Token,
        incarnation: Incarnation,
    ) -> Option<u32> {
        let slot = if self.unproven.len() < MAX_UNPROVEN { self.new_slot() } else { None };
        let Some(slot) = slot else {
            self.counters.refused_sessions += 1;
            return None;
        };
        let beginning = self.beginning(slot, from, now);
        let peer = Peer::answering(beginning, &self.config, token, incarnation);
        self.slots[slot as usize].peer = Some(Box::new(peer));
        self.unproven.insert(from, slot);
        Some(slot)
    }

    fn drop_unproven(&mut self, now: Instant, from: SocketAddr, slot: u32) {
        self.unproven.remove(&from);
        self.with_peer(now, slot, |peer, cx| peer.lose(cx, LostReason::Forgotten));
        self.free_if_finished(slot);
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

    /// A peer does not know a session. Believed only if it names the token we address it by, which
    /// nobody off the path knows.
    pub(super) fn handle_reset(&mut self, now: Instant, meta: DatagramMeta, token: Token) {
        let candidates = [self.by_addr.get(&meta.from), self.unproven.get(&meta.from)];
        let Some(slot) = candidates.into_iter().flatten().copied().find(|&slot| {
            self.peer_in(slot).is_some_and(|peer| peer.remote_token == Some(token) && peer.is_alive())
        }) else {
            self.counters.unknown_session += 1;
            return;
        };
        let own_token = Token::new(slot, self.random.next_u64());
        self.with_peer(now, slot, |peer, cx| match peer.phase {
            // We answered an initiator of yesterday, but the application wants this peer.
            Phase::Answering if peer.visible => peer.reopen(cx.config, own_token),
            _ => peer.on_reset(cx),
        });
        self.free_if_finished(slot);
    }

    pub(super) fn handle_versions(&mut self, now: Instant, meta: DatagramMeta, packet: &Packet<'_>) {
        let slot = packet.header.token.slot() as u32;
        let ours = self.peer_in(slot).is_some_and(|peer| {
            peer.local_token == packet.header.token && peer.addr == meta.from && peer.phase == Phase::Opening
        });
        if !ours {
            self.counters.unknown_session += 1;
            return;
        }
        let offered: Vec<u8> = packet.body[..packet.body.len().saturating_sub(CHECKSUM_BYTES)].to_vec();
        // Whoever speaks our version has no reason to say this.
        if !offered.contains(&denrei_wire::packet::VERSION) {
            self.with_peer(now, slot, |peer, cx| peer.lose(cx, LostReason::VersionMismatch { offered }));
        }
    }

    // ---- offers and credit ----

    /// Accepts an offered message into a buffer, whose memory is used and whose content is dropped,
    /// or into memory of the application's. The message arrives by `recv` like any other.
    ///
    /// # Errors
    /// No such offer waits.
    pub fn accept(
        &mut self,
        now: Instant,
        channel: ChannelId,
        number: u64,
        into: impl Into<AcceptInto>,
    ) -> Result<(), PeerError> {
        let accepted = self.on_peer(now, channel.peer, |peer, _| {
            let accepted = peer.is_alive() && peer.inbox_mut().accept(channel.channel, number, into.into());
            if accepted {
                peer.want(Control::Accept { channel: channel.channel, number });
            }
            accepted
        })?;
        if accepted { Ok(()) } else { Err(PeerError::NoSuchOffer { channel, number }) }
    }

    /// Refuses an offered message: its sender gets [`Event::Refused`](crate::Event::Refused).
    ///
    /// # Errors
    /// No such offer waits.
    pub fn refuse(&mut self, now: Instant, channel: ChannelId, number: u64) -> Result<(), PeerError> {
        let refused = self.on_peer(now, channel.peer, |peer, _| {
            let state = peer.inbox_mut().get_mut(channel.channel);
            let refused = state.is_some_and(|state| state.refuse(number));
            if refused {
                peer.want(Control::Refuse { channel: channel.channel, number });
                peer.report_delivery(channel.channel);
            }
            refused
        })?;
        if refused { Ok(()) } else { Err(PeerError::NoSuchOffer { channel, number }) }
    }

    /// Takes a peer's open offers onto the waiting list, as far as its channels may hold more.
    pub(super) fn note_offers(&mut self, now: Instant, slot: u32) {
        if self.config.offers == OfferPolicy::Ask {
            return;
        }
        let window = self.config.channel_credit_bytes;
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        let id = peer.id;
        peer.inbox_mut().queue_offers(window, |channel, offer| {
            self.waiting_offers.insert((offer.total, ChannelId { peer: id, channel }, offer.number));
        });
        self.accept_waiting(now);
    }

    /// Accepts waiting offers, the smallest first, while receive memory lasts. When the application
    /// has nothing to take and nothing is on its way to it, one is accepted however large: all that
    /// is held then waits behind it or its like.
    fn accept_waiting(&mut self, now: Instant) {
        while let Some(&(bytes, channel, number)) = self.waiting_offers.first() {
            let full = self.held_bytes + bytes > self.config.receive_memory_bytes;
            if full && (self.is_takeable() || self.is_promised()) {
                return;
            }
            self.waiting_offers.pop_first();
            if self.accept(now, channel, number, Vec::new()).is_err() {
                // No memory, or withdrawn in the meantime: then there is nothing to refuse.
                let _ = self.refuse(now, channel, number);
            }
            if let Some(peer) = self.slots[channel.peer.slot as usize].peer.as_deref_mut() {
                let window = self.config.channel_credit_bytes;
                peer.inbox_mut().queue_offers(window, |id, offer| {
                    let channel = ChannelId { channel: id, ..channel };
                    self.waiting_offers.insert((offer.total, channel, offer.number));
                });
            }
        }
    }

    /// Whether the application has something to take. Channels that `recv_from` has emptied are
    /// still listed; they are struck off here, where that matters.
    pub(super) fn is_takeable(&mut self) -> bool {
        while let Some(&id) = self.readable.front() {
            let peer = self.get_mut(id.peer).ok();
            match peer.and_then(|peer| peer.inbox_mut().get_mut(id.channel)) {
                Some(channel) if channel.has_ready() => return true,
                Some(channel) => channel.listed = false,
                None => {}
            }
            self.readable.pop_front();
        }
        false
    }

    /// Whether an accepted message is on its way. Looked at only when memory is short.
    fn is_promised(&self) -> bool {
        self.slots.iter().filter_map(|slot| slot.peer.as_deref()).any(|peer| peer.inbox().promised() > 0)
    }

    /// Receive memory may have become free: gives it to those who wait.
    pub(super) fn share_memory(&mut self, now: Instant) {
        if !self.waiting_credit.is_empty() && self.held_bytes <= self.config.receive_memory_bytes {
            let config = self.config.clone();
            for channel in core::mem::take(&mut self.waiting_credit) {
                // A peer that has gone needs no credit.
                let _ =
                    self.on_peer(now, channel.peer, |peer, _| peer.renew_credit(&config, channel.channel));
            }
        }
        if !self.waiting_offers.is_empty() {
            self.accept_waiting(now);
        }
    }
}
