//! Sending messages: blocking, trying, timed, asynchronous.

use super::Node;
use crate::core::Core;
use crate::tasks::Interest;
use bytes::Bytes;
use denrei_proto::{ChannelId, Completion, MessageId, PeerError, PeerId, SendError};
use std::time::Duration;

impl Node {
    /// Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
    ///
    /// # Errors
    /// No such peer, channel or priority.
    pub fn set_priority(&self, channel: ChannelId, priority: u8) -> Result<(), PeerError> {
        self.shards().enter_of(channel.peer).1.endpoint.set_priority(channel, priority)
    }

    /// Whether a message of so many bytes would be sent, were there room in the queue to the peer: for callers that
    /// have to copy a large one before, and need not for one that is refused.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn check_send(&self, to: ChannelId, bytes: u64) -> Result<(), SendError> {
        self.shards().enter_of(to.peer).1.endpoint.check_send(to, bytes)
    }

    /// Sends a message; waits while the queue to the peer is full. A `Bytes` is not copied: what owns its memory
    /// (`Bytes::from_owner`) is dropped by any thread, in the middle of the Node's work. It must not call the Node, nor
    /// wait for a lock that who calls the Node has.
    ///
    /// # Errors
    /// See [`SendError`] (never `WouldBlock`); the message was not taken.
    pub fn send(&self, to: ChannelId, message: impl Into<Bytes>) -> Result<MessageId, SendError> {
        self.send_with(to, message, Completion::None)
    }

    /// Like [`send`](Self::send), and reports later what `completion` asks for.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn send_with(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        completion: Completion,
    ) -> Result<MessageId, SendError> {
        self.send_in_time(to, message.into(), completion, None)
    }

    /// Sends a message if the queue to the peer has room.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if not; others as for [`send`](Self::send).
    pub fn try_send(&self, to: ChannelId, message: impl Into<Bytes>) -> Result<MessageId, SendError> {
        self.try_send_with(to, message, Completion::None)
    }

    /// Like [`try_send`](Self::try_send), and reports later what `completion` asks for.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send).
    pub fn try_send_with(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        completion: Completion,
    ) -> Result<MessageId, SendError> {
        // How it becomes octets is the application's affair: not under the lock.
        let message = message.into();
        let (shard, mut core) = self.shards().enter_of(to.peer);
        let id = core.send(to, message, completion).map_err(|(error, _)| error)?;
        shard.kick_if_due(core);
        Ok(id)
    }

    /// Queues a message, if the queue to the peer has room, and leaves it to the next call that
    /// sends or polls to send it: whoever queues several at once pays for one system call.
    ///
    /// # Errors
    /// As for [`try_send`](Self::try_send).
    pub fn queue(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        completion: Completion,
    ) -> Result<MessageId, SendError> {
        let message = message.into();
        let (_, mut core) = self.shards().enter_of(to.peer);
        core.send(to, message, completion).map_err(|(error, _)| error)
    }

    /// Sends what was [queued](Self::queue), and what else is due.
    pub fn send_queued(&self) {
        self.shards().all().for_each(|shard| shard.kick());
    }

    /// This process, or the peer's, shares its core with others that take their turns: until what is queued
    /// for `peer` now is through, milliseconds of delay are no sign of a queue on the path.
    ///
    /// # Errors
    /// No such peer.
    pub fn take_turns(&self, peer: PeerId) -> Result<(), PeerError> {
        let (_, mut core) = self.shards().enter_of(peer);
        let now = core.recently();
        core.endpoint.take_turns(now, peer)
    }

    /// Asks that the acknowledgement of what is queued for `peer` now comes at once, without waiting for it: for
    /// those who have nothing to do until it is there.
    ///
    /// # Errors
    /// No such peer.
    pub fn hurry(&self, peer: PeerId) -> Result<(), PeerError> {
        let (_, mut core) = self.shards().enter_of(peer);
        let now = core.recently();
        core.endpoint.hurry(now, peer)
    }

    /// Sends a message; waits at most `timeout` while the queue to the peer is full.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] if it is still full; others as for [`send`](Self::send).
    pub fn send_timeout(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<MessageId, SendError> {
        self.send_timeout_with(to, message, Completion::None, timeout)
    }

    /// Like [`send_timeout`](Self::send_timeout), and reports later what `completion` asks for.
    ///
    /// # Errors
    /// As for [`send_timeout`](Self::send_timeout).
    pub fn send_timeout_with(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        completion: Completion,
        timeout: Duration,
    ) -> Result<MessageId, SendError> {
        self.send_in_time(to, message.into(), completion, Some(timeout))
    }

    /// Sends a message; waits while the queue to the peer is full, at most `limit` if there is one.
    fn send_in_time(
        &self,
        to: ChannelId,
        message: Bytes,
        completion: Completion,
        limit: Option<Duration>,
    ) -> Result<MessageId, SendError> {
        let (full, mut message) = {
            let (shard, mut core) = self.shards().enter_of(to.peer);
            match core.send(to, message, completion) {
                Ok(id) => {
                    shard.kick_if_due(core);
                    return Ok(id);
                }
                Err((full @ SendError::WouldBlock { .. }, message)) => (full, message),
                Err((error, _)) => return Err(error),
            }
        };
        let push = |core: &mut Core| push_or_wait(core, to, &mut message, completion);
        let sent = self.shards().wait_for(to.peer, limit, push);
        self.shards().kick(to.peer);
        sent.unwrap_or(Err(full))
    }

    /// Sends a message without blocking the task, which waits while the queue to the peer is full. Starts the
    /// background thread if there is none. A future that is dropped has sent nothing.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_async(&self, to: ChannelId, message: impl Into<Bytes>) -> Result<MessageId, SendError> {
        self.send_with_async(to, message, Completion::None).await
    }

    /// Like [`send_async`](Self::send_async), and reports later what `completion` asks for.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_with_async(
        &self,
        to: ChannelId,
        message: impl Into<Bytes>,
        completion: Completion,
    ) -> Result<MessageId, SendError> {
        self.start_thread().map_err(|_| SendError::NodeFailed)?;
        let mut message = message.into();
        let push = |core: &mut Core| push_or_wait(core, to, &mut message, completion);
        let sent = self.resolve_of(to.peer, push).await;
        self.shards().kick(to.peer);
        sent
    }

    /// Waits until everything sent so far to `peer` is acknowledged, at most `timeout`; whether it is. Not if
    /// the peer is lost before: [`wait_acknowledged`](Self::wait_acknowledged) says so, and
    /// [`Event::PeerLost`](crate::Event::PeerLost) which messages were not.
    pub fn flush(&self, peer: PeerId, timeout: Duration) -> bool {
        self.wait_acknowledged(peer, timeout).unwrap_or(false)
    }

    /// Like [`flush`](Self::flush), and says why there is nothing to wait for.
    ///
    /// # Errors
    /// The peer is lost, and not everything was acknowledged; `UnknownPeer` if that is long ago.
    pub fn wait_acknowledged(&self, peer: PeerId, timeout: Duration) -> Result<bool, SendError> {
        // A peer that is gone has nothing to hurry with.
        let _ = self.act(peer, |core, now| core.endpoint.hurry(now, peer));
        let flushed = |core: &mut Core| flushed_or_wait(core, peer);
        let flushed = self.shards().wait_for(peer, Some(timeout), flushed);
        flushed.map_or(Ok(false), |flushed| flushed.map(|()| true))
    }

    /// Waits until everything sent so far to `peer` is acknowledged, without blocking the task. Starts the background
    /// thread if there is none.
    ///
    /// # Errors
    /// As for [`wait_acknowledged`](Self::wait_acknowledged). That thread cannot be started.
    pub async fn wait_acknowledged_async(&self, peer: PeerId) -> Result<(), SendError> {
        self.start_thread().map_err(|_| SendError::NodeFailed)?;
        // A peer that is gone has nothing to hurry with.
        let _ = self.act(peer, |core, now| core.endpoint.hurry(now, peer));
        self.resolve_of(peer, |core| flushed_or_wait(core, peer)).await
    }
}

/// Takes `message` out if it is queued, or there is no hope for it.
fn push_or_wait(
    core: &mut Core,
    to: ChannelId,
    message: &mut Bytes,
    completion: Completion,
) -> Result<Result<MessageId, SendError>, Interest> {
    match core.send(to, std::mem::take(message), completion) {
        Err((SendError::WouldBlock { .. }, kept)) => {
            let room = core.await_room(to, kept.len() as u64);
            *message = kept;
            Err(room)
        }
        result => Ok(result.map_err(|(error, _)| error)),
    }
}

/// Whether all is acknowledged, or never will be; what to wait for otherwise.
fn flushed_or_wait(core: &mut Core, peer: PeerId) -> Result<Result<(), SendError>, Interest> {
    match core.endpoint.is_flushed(peer) {
        Ok(true) => Ok(Ok(())),
        Ok(false) if core.broken => Ok(Err(SendError::NodeFailed)),
        Ok(false) => Err(core.await_empty(peer)),
        Err(error) => Ok(Err(error)),
    }
}
