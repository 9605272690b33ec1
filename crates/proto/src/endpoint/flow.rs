//! The application's verbs for the flow (S9, S10): pace, share, room, repetition.

use super::Endpoint;
use crate::event::{ChannelId, PeerError, PeerId};
use crate::rate::{MAX_WEIGHT, Rate};
use crate::send_channel;
use denrei_wire::Instant;

impl Endpoint {
    /// Sets how fast a peer may send to this endpoint (R4). It is told, and obeys from then on; what
    /// is on its way still comes.
    ///
    /// # Errors
    /// No such peer; a rate or burst above [`MAX_RATE`](crate::MAX_RATE).
    pub fn set_rate(&mut self, now: Instant, peer: PeerId, rate: Rate) -> Result<(), PeerError> {
        if let Some((setting, value)) = rate.impossible_field() {
            return Err(PeerError::BadRate { setting, value });
        }
        self.on_peer(now, peer, |peer, cx| peer.set_rate(rate, cx.now + cx.config.failure_timeout))?;
        self.leave_rate(peer.slot);
        Ok(())
    }

    /// Sets a peer's share of what this endpoint can receive, relative to the other peers': 1 to
    /// [`MAX_WEIGHT`], [`DEFAULT_WEIGHT`](crate::DEFAULT_WEIGHT) if never set.
    ///
    /// It counts only while this endpoint divides what comes: by grants, after packets of several peers
    /// were lost or marked together, among peers that have about as much left to send; or with
    /// [`Config::learn_rates`](crate::Config::learn_rates) by rates, once it is overrun or its host has a
    /// limit, among peers whose rate [`set_rate`](Self::set_rate) has not set.
    ///
    /// # Errors
    /// No such peer; a weight out of range.
    pub fn set_weight(&mut self, now: Instant, peer: PeerId, weight: u32) -> Result<(), PeerError> {
        if !(1..=MAX_WEIGHT).contains(&weight) {
            return Err(PeerError::BadWeight(weight));
        }
        self.on_peer(now, peer, |peer, _| peer.weight = weight)?;
        self.weigh_grants(peer.slot, weight);
        Ok(())
    }

    /// Whether a message of `bytes` could be queued for a peer now.
    ///
    /// # Errors
    /// No such peer.
    pub fn has_room(&self, peer: PeerId, bytes: u64) -> Result<bool, PeerError> {
        let queued = self.flow_queue_bytes(peer).ok_or(PeerError::UnknownPeer(peer))?;
        Ok(send_channel::has_room(queued, bytes, self.config.send_buffer_bytes))
    }

    /// Messages to a peer that are not acknowledged; `None` if the peer is not in the address table.
    pub fn queue_len(&self, peer: PeerId) -> Option<u64> {
        self.get(peer).map(|peer| peer.outbox().queued_messages())
    }

    /// Takes for lost what was sent to a peer longer ago than a round trip, and sends it again; how
    /// many packets. It says nothing to congestion control.
    ///
    /// # Errors
    /// No such peer.
    pub fn retransmit(&mut self, now: Instant, peer: PeerId) -> Result<u64, PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.retransmit(cx.now))
    }

    /// Whether something of a peer can be taken: not what is incomplete, nor what follows that on its channel.
    pub fn has_ready_from(&self, peer: PeerId) -> bool {
        self.get(peer).is_some_and(|peer| peer.inbox().has_ready())
    }

    /// The channel that [`recv`](Self::recv) would take from, and the size of the message there.
    pub fn peek(&mut self) -> Option<(ChannelId, usize)> {
        let id = self.readable.front()?;
        let bytes = self.get_mut(id.peer).ok()?.inbox_mut().get_mut(id.channel)?.peek()?;
        Some((id, bytes))
    }
}
