//! The flow in the application's hands (S9, S10): look, wait, drop, repeat, share.

use super::Node;
use super::recv::{failure, unstarted};
use crate::core::Core;
use crate::error::NodeError;
use crate::tasks::Interest;
use bytes::Bytes;
use denrei_proto::{ChannelId, Completion, MessageId, PeerError, PeerId, SendError};
use std::time::Duration;

impl Node {
    /// Waits until a message is there, at most `timeout`, and says which channel it is on and how
    /// large it is, without taking it (S9's `datagram_ready`).
    pub fn ready(&self, timeout: Duration) -> Option<(ChannelId, usize)> {
        self.shards().wait_for_any(Some(timeout), |core: &mut Core| core.endpoint.peek())
    }

    /// As [`ready`](Self::ready), without blocking the task. Starts the background thread if there is none.
    ///
    /// # Errors
    /// As for [`recv_async`](Self::recv_async).
    pub async fn ready_async(&self) -> Result<(ChannelId, usize), NodeError> {
        self.start_thread().map_err(unstarted)?;
        let ready = |core: &mut Core| core.endpoint.peek().map(Ok).or_else(|| failure(core));
        self.resolve_any(ready).await
    }

    /// Waits until a message of `bytes` may be sent to `peer` without waiting, at most `timeout`;
    /// whether it may (S9's `datagram_wait`). Whether the message is too large for the peer, or the peer takes no
    /// more or is lost, sending it tells.
    ///
    /// # Errors
    /// No such peer.
    pub fn wait(&self, peer: PeerId, bytes: u64, timeout: Duration) -> Result<bool, PeerError> {
        // Asks that the acknowledgements it waits for come at once.
        self.act(peer, |core, now| core.endpoint.hurry(now, peer))?;
        let room = |core: &mut Core| room_or_wait(core, peer, bytes);
        let room = self.shards().wait_for(peer, Some(timeout), room);
        room.map_or(Ok(false), |room| room.map(|()| true))
    }

    /// As [`wait`](Self::wait), without blocking the task. Starts the background thread if there is none.
    ///
    /// # Errors
    /// No such peer. That thread cannot be started.
    pub async fn wait_async(&self, peer: PeerId, bytes: u64) -> Result<(), SendError> {
        self.start_thread().map_err(|_| SendError::NodeFailed)?;
        let unknown = |_| SendError::UnknownPeer(peer);
        // Asks that the acknowledgements it waits for come at once.
        self.act(peer, |core, now| core.endpoint.hurry(now, peer)).map_err(unknown)?;
        let room = |core: &mut Core| match room_or_wait(core, peer, bytes) {
            Err(_) if core.broken => Ok(Err(SendError::NodeFailed)),
            room => room.map(|room| room.map_err(unknown)),
        };
        self.resolve_of(peer, room).await
    }

    /// Messages to `peer` that are not acknowledged (S9's `datagram_queue_length`); `None` if the peer
    /// is not in the address table any more.
    pub fn queue_len(&self, peer: PeerId) -> Option<u64> {
        self.shards().enter_of(peer).1.endpoint.queue_len(peer)
    }

    /// Sends again, now, what was sent to `peer` longer ago than a round trip and is not acknowledged
    /// (S9's `datagram_retransmission`); the packets that are given up for it. For applications that
    /// know better than the timers that something was lost.
    ///
    /// # Errors
    /// No such peer.
    pub fn retransmit(&self, peer: PeerId) -> Result<u64, PeerError> {
        self.act(peer, |core, now| core.endpoint.retransmit(now, peer))
    }

    /// Sets a peer's share of what this Node can receive, relative to the other peers': 1 to
    /// [`MAX_WEIGHT`](crate::MAX_WEIGHT), 100 if never set.
    ///
    /// It counts only while this Node divides what comes: by grants, after packets of several peers were
    /// lost or marked together, among peers that have about as much left to send; or with
    /// [`learn_rates`](crate::ProtocolConfig::learn_rates) by rates, once it is overrun or its host has a
    /// limit, among peers whose rate [`set_rate`](Self::set_rate) has not set. Else each sends as fast as
    /// its own window and rate let it, whatever its weight.
    ///
    /// # Errors
    /// No such peer; a weight out of range.
    pub fn set_weight(&self, peer: PeerId, weight: u32) -> Result<(), PeerError> {
        self.act(peer, |core, now| core.endpoint.set_weight(now, peer, weight))
    }

    /// Sends a message that is worth nothing after `lifetime` (S10): if not all of it was sent by then,
    /// or will not be at the receiver's rate, or a part of it is found lost later, it is dropped, the
    /// channel goes on without it, and [`Event::Expired`](crate::Event::Expired) says so. Never waits.
    /// Finds room beside bulk: such messages may use twice the send buffer.
    ///
    /// # Errors
    /// See [`SendError`]; the message was not taken.
    pub fn send_within(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        completion: Completion,
        lifetime: Duration,
    ) -> Result<MessageId, SendError> {
        // How it becomes octets is the application's affair: not under the lock.
        let message = message.into();
        self.act(to.peer, |core, now| {
            if core.broken {
                return Err(SendError::NodeFailed);
            }
            core.endpoint.send_before(now, to, message, completion, now + lifetime)
        })
    }
}

/// Whether a message of `bytes` could be queued; what to wait for otherwise.
fn room_or_wait(core: &mut Core, peer: PeerId, bytes: u64) -> Result<Result<(), PeerError>, Interest> {
    match core.endpoint.has_room(peer, bytes) {
        Ok(true) => Ok(Ok(())),
        Ok(false) => Err(core.await_room_for(peer, bytes)),
        Err(error) => Ok(Err(error)),
    }
}
