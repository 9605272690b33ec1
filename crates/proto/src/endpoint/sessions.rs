//! The application's verbs for peers: open, look at, close.

use super::{Endpoint, Slot};
use crate::event::{ChannelId, ConnectError, FlowState, NoMore, PeerError, PeerId, SendError};
use crate::peer::Peer;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use denrei_wire::Instant;

impl Endpoint {
    /// Opens a session with `target`, or names the one there is. Returns at once: messages may be
    /// sent right away and travel with the FIRST (R5).
    ///
    /// # Errors
    /// The address table is full, or the address is not one to send to.
    pub fn connect(&mut self, now: Instant, target: SocketAddr) -> Result<PeerId, ConnectError> {
        let ip = target.ip();
        let is_broadcast = ip == IpAddr::V4(Ipv4Addr::BROADCAST);
        if target.port() == 0 || ip.is_unspecified() || ip.is_multicast() || is_broadcast {
            return Err(ConnectError::BadAddress(target));
        }
        if let Some(peer) = self.peer_at(target) {
            return Ok(peer);
        }
        if let Some(slot) = self.unproven.remove(&target) {
            // It is opening a session to us, or was: that one will do, or begins anew when RESET says
            // that it is not.
            self.by_addr.insert(target, slot);
            return Ok(self.with_peer(now, slot, |peer, cx| peer.adopt(cx.now)));
        }
        let slot = self.new_slot().ok_or(ConnectError::TooManyPeers { max: self.config.max_peers })?;
        let own = self.new_opening(slot);
        let protection = self.gate.open_session(own, &[]);
        let beginning = self.beginning(slot, target.into(), now, own, protection);
        let id = beginning.id;
        self.slots[slot as usize].peer = Some(Box::new(Peer::opening(beginning, &self.config)));
        self.by_addr.insert(target, slot);
        self.after(now, slot);
        Ok(id)
    }

    /// The live peer at an address.
    pub fn peer_at(&self, addr: SocketAddr) -> Option<PeerId> {
        let slot = *self.by_addr.get(&addr)?;
        self.peer_in(slot).filter(|peer| peer.is_alive()).map(|peer| peer.id)
    }

    /// All peers the application knows of, lost ones included as long as they can be read from.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.slots
            .iter()
            .filter_map(|slot| slot.peer.as_deref())
            .filter(|peer| peer.visible)
            .map(|peer| peer.id)
    }

    /// A peer's flow state (S8).
    pub fn flow(&self, peer: PeerId) -> Option<FlowState> {
        self.get(peer).map(Peer::flow)
    }

    /// Bytes of messages to a peer that are not acknowledged, each charged 64 more; `None` if the
    /// peer is not in the address table.
    pub fn flow_queue_bytes(&self, peer: PeerId) -> Option<u64> {
        self.get(peer).map(|peer| peer.outbox().queued_bytes())
    }

    /// Whether a channel that had no room for a message of `bytes` beside others has it, and half of all its
    /// room, again; also if the peer is gone, or this side sends it no more: who waits for room is to hear that.
    pub fn has_room_beside(&self, to: ChannelId, bytes: u64) -> bool {
        let most = self.config.send_buffer_bytes;
        let has_room = |peer: &Peer| peer.outbox().has_room_beside(to.channel, bytes, most);
        self.get(to.peer).is_none_or(|peer| peer.is_write_closed() || has_room(peer))
    }

    /// Whether everything sent to a peer is acknowledged.
    ///
    /// # Errors
    /// No such peer, or one that is lost, and not everything was acknowledged.
    pub fn is_flushed(&self, peer: PeerId) -> Result<bool, SendError> {
        let Some(state) = self.get(peer) else {
            let last = |slot: &&Slot| slot.generation == peer.generation.wrapping_add(1);
            let slot = self.slots.get(peer.slot as usize).filter(last);
            return slot.filter(|slot| slot.left_flushed).map(|_| true).ok_or(SendError::UnknownPeer(peer));
        };
        match (state.is_flushed(), state.lost_reason()) {
            (false, Some(reason)) => Err(SendError::PeerLost { peer, reason }),
            (flushed, _) => Ok(flushed),
        }
    }

    /// Whether messages of a peer may come on a channel that are not here.
    ///
    /// # Errors
    /// None do: why.
    pub fn check_more_to_come(&self, ChannelId { peer, channel }: ChannelId) -> Result<(), NoMore> {
        let last = self.config.max_channels - 1;
        if channel > last {
            return Err(NoMore::NoSuchChannel { channel, last });
        }
        let state = self.get(peer).ok_or(NoMore::UnknownPeer(peer))?;
        match state.lost_reason() {
            Some(reason) => Err(NoMore::PeerLost { peer, reason }),
            None if state.is_peer_done_writing() => Err(NoMore::PeerDoneWriting(peer)),
            None => Ok(()),
        }
    }

    /// The application waits for what is queued to `peer` to be acknowledged: asks the peer not to
    /// hold the acknowledgement back.
    ///
    /// # Errors
    /// No such peer.
    pub fn hurry(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, _| peer.hurry())
    }

    /// This side, or the peer, shares its core with others that take their turns: until what is queued now is
    /// through, milliseconds of delay are no sign of a queue.
    ///
    /// # Errors
    /// No such peer.
    pub fn take_turns(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, _| peer.take_turns())
    }

    /// SREQ: asks a peer for its state now; the answer is [`Event::Status`](crate::Event::Status) with the number returned.
    ///
    /// # Errors
    /// No such peer.
    pub fn request_status(&mut self, now: Instant, peer: PeerId) -> Result<u32, PeerError> {
        self.on_peer(now, peer, |peer, _| peer.request_status())
    }

    /// WCLOSE: this side will send no more. What is queued is still delivered.
    ///
    /// # Errors
    /// No such peer.
    pub fn close_write(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.close_write(cx))
    }

    /// RCLOSE: this side wants no more. What was not taken is dropped.
    ///
    /// # Errors
    /// No such peer.
    pub fn close_read(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.close_read(cx))?;
        self.readable.tidy(&mut self.slots);
        self.free_if_finished(peer.slot);
        self.share_memory(now);
        Ok(())
    }

    /// Ends the session in order, once everything queued is delivered.
    ///
    /// # Errors
    /// No such peer.
    pub fn close(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.close(cx))
    }

    /// Ends the session at once. `code` and `reason` (cut at 128 octets) are for the peer.
    ///
    /// # Errors
    /// No such peer.
    pub fn abort(&mut self, now: Instant, peer: PeerId, code: u16, reason: &str) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.abort(cx, code, reason))
    }
}
