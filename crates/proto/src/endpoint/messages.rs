//! The application's verbs for messages: send, and take what has come.

use super::{Endpoint, peer_of};
use crate::config::{Config, MESSAGE_COST_BYTES};
use crate::event::{ChannelId, Completion, LEAST_URGENT, Message, MessageId, PeerError, SendError};
use crate::group::{GroupError, GroupId};
use crate::peer::Peer;
use crate::send_channel;
use bytes::Bytes;
use denrei_wire::Instant;

impl Endpoint {
    /// Queues a message. It is delivered whole, once and in order of its channel, or named in
    /// [`Event::PeerLost`](crate::Event::PeerLost).
    ///
    /// # Errors
    /// See [`SendError`]; the message was not taken.
    #[inline]
    pub fn send(
        &mut self,
        to: ChannelId,
        message: Bytes,
        completion: Completion,
    ) -> Result<MessageId, SendError> {
        self.try_send(to, message, completion).map_err(|(error, _)| error)
    }

    /// Like [`send`](Self::send), for callers that keep a message that was not taken and try again.
    ///
    /// # Errors
    /// As for [`send`](Self::send), with the message.
    #[inline]
    pub fn try_send(
        &mut self,
        to: ChannelId,
        message: Bytes,
        completion: Completion,
    ) -> Result<MessageId, (SendError, Bytes)> {
        let peer = match self.sendable(to, message.len() as u64, self.config.send_buffer_bytes) {
            Ok(peer) => peer,
            Err(error) => return Err((self.blocked(error), message)),
        };
        let in_line = peer.is_in_line(to.channel, message.len() as u64);
        let number = peer.outbox_mut().push(to.channel, message, completion);
        peer.counters.messages_sent += 1;
        // Whether it may leave now, and what timer that takes, is seen when it is asked for.
        if !in_line {
            self.list(to.peer.slot);
        }
        Ok(MessageId { channel: to, number })
    }

    /// Queues a message that is worth nothing after `deadline` (S10): when not all of it was sent by
    /// then, or will not be at the receiver's rate, or a part of it is found lost later, it is dropped,
    /// its channel goes on without it, and [`Event::Expired`](crate::Event::Expired) says so. It may use
    /// twice the send buffer, so that it finds room beside bulk.
    ///
    /// # Errors
    /// See [`SendError`]; the message was not taken.
    pub fn send_before(
        &mut self,
        now: Instant,
        to: ChannelId,
        message: Bytes,
        completion: Completion,
        deadline: Instant,
    ) -> Result<MessageId, SendError> {
        let most = self.config.send_buffer_bytes.saturating_mul(2);
        let peer = match self.sendable(to, message.len() as u64, most) {
            Ok(peer) => peer,
            Err(error) => return Err(self.blocked(error)),
        };
        let number = peer.outbox_mut().push_before(to.channel, message, completion, deadline);
        peer.counters.messages_sent += 1;
        self.after(now, to.peer.slot);
        Ok(MessageId { channel: to, number })
    }

    /// Whether a peer would be sent a message of so many bytes, were there room in its queue: for callers that have to
    /// copy it before.
    ///
    /// # Errors
    /// As for [`send`](Self::send), never [`SendError::WouldBlock`].
    pub fn check_send(&mut self, to: ChannelId, bytes: u64) -> Result<(), SendError> {
        self.sendable(to, bytes, u64::MAX).map(drop)
    }

    /// Whether a group would be sent a message of so many bytes, were there room in its queue.
    ///
    /// # Errors
    /// As for [`group_send`](Self::group_send), never [`GroupError::WouldBlock`].
    pub fn group_check_send(&self, group: GroupId, bytes: u64) -> Result<(), GroupError> {
        let groups = self.groups.as_deref().ok_or(GroupError::Unknown(group))?;
        groups.sender_ref(group).ok_or(GroupError::Unknown(group))?.check_send(bytes)
    }

    /// The peer to send so many bytes to, if it takes them now and no more than `most` would be queued.
    fn sendable(&mut self, to: ChannelId, bytes: u64, most: u64) -> Result<&mut Peer, SendError> {
        let config = &self.config;
        let peer = peer_of(&mut self.slots, to.peer).ok_or(SendError::UnknownPeer(to.peer))?;
        check_sendable(peer, config, to, bytes, most)?;
        Ok(peer)
    }

    /// Whoever finds no room waits for acknowledgements. While something is under way, that of it brings the
    /// question along; else nobody would send it.
    #[cold]
    fn blocked(&mut self, error: SendError) -> SendError {
        if let SendError::WouldBlock { peer: id, .. } = error
            && let Ok(peer) = self.get_mut(id)
        {
            peer.hurry();
            if peer.is_idle() {
                self.list(id.slot);
            }
        }
        error
    }

    /// Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
    ///
    /// # Errors
    /// No such peer or channel; a priority beyond 7.
    pub fn set_priority(&mut self, channel: ChannelId, priority: u8) -> Result<(), PeerError> {
        let max_channels = self.config.max_channels;
        let peer = self.get_mut(channel.peer)?;
        if channel.channel >= max_channels {
            return Err(PeerError::NoSuchChannel { channel: channel.channel, last: max_channels - 1 });
        }
        if priority > LEAST_URGENT {
            return Err(PeerError::BadPriority(priority));
        }
        peer.outbox_mut().set_priority(channel.channel, priority);
        Ok(())
    }

    /// Takes the next message of any peer and channel, each in its turn.
    pub fn recv(&mut self, now: Instant) -> Option<Message> {
        loop {
            let channel = self.readable.pop_front()?;
            if let Some(message) = self.take(now, channel, true) {
                return Some(message);
            }
        }
    }

    /// Takes the next message of a channel that `wanted` says yes to, each in its turn. The others
    /// keep theirs, and by and by their senders run out of credit.
    pub fn recv_where(&mut self, now: Instant, mut wanted: impl FnMut(ChannelId) -> bool) -> Option<Message> {
        for _ in 0..self.readable.len() {
            let channel = self.readable.pop_front()?;
            if !wanted(channel) {
                self.readable.push_back(channel);
            } else if let Some(message) = self.take(now, channel, true) {
                return Some(message);
            }
        }
        self.readable.settle(&mut self.slots);
        None
    }

    /// Takes the next message of a peer whose end is the next event: it was sent before that.
    pub fn recv_before_end(
        &mut self,
        now: Instant,
        mut wanted: impl FnMut(ChannelId) -> bool,
    ) -> Option<Message> {
        let peer = self.events.first()?.end_of()?;
        self.recv_where(now, |channel| channel.peer == peer && wanted(channel))
    }

    /// Takes the next message of one channel.
    pub fn recv_from(&mut self, now: Instant, channel: ChannelId) -> Option<Message> {
        let message = self.take(now, channel, false);
        self.readable.tidy(&mut self.slots);
        message
    }

    /// Whether [`recv`](Self::recv) has something to take.
    pub fn is_readable(&self) -> bool {
        !self.readable.is_empty()
    }

    /// The channels that have something to take, and some that had.
    pub fn readable_channels(&self) -> impl ExactSizeIterator<Item = ChannelId> + '_ {
        self.readable.iter()
    }

    /// Whether [`recv_from`](Self::recv_from) has something to take.
    pub fn has_message(&self, id: ChannelId) -> bool {
        // What an unproven session has brought may be a replay.
        let peer = self.get(id.peer).filter(|peer| peer.visible && peer.is_sure_of_peer());
        peer.is_some_and(|peer| peer.inbox().has_ready_on(id.channel))
    }

    fn take(&mut self, now: Instant, id: ChannelId, unlisted: bool) -> Option<Message> {
        let memory_left = self.held_bytes <= self.config.receive_memory_bytes;
        let (config, slots) = (&self.config, &mut self.slots);
        let peer = peer_of(slots, id.peer)?;
        // What an unproven session has brought may be a replay.
        if !peer.visible || !peer.is_sure_of_peer() {
            return None;
        }
        let taken = peer.inbox_mut().take(id.channel, &mut self.blocks);
        let channel = peer.inbox_mut().get_mut(id.channel)?;
        if unlisted {
            channel.listed = false;
        }
        let list_again = channel.has_ready() && !channel.listed;
        channel.listed |= list_again;
        let more_offers = channel.has_open_offers();
        let taken = taken?;
        let answers = peer.on_taken(config, id.channel, memory_left);
        if list_again {
            self.arrivals += 1;
            self.readable.push_back(id);
        }
        self.readable.settle(&mut self.slots);
        if !memory_left {
            self.waiting_credit.insert(id);
        }
        self.held_bytes -= taken.data.len() as u64;
        self.pace.taken.messages += 1;
        self.pace.taken.octets += taken.data.len() as u64;
        self.pace.taken.emptied += self.readable.is_empty() as u64;
        if more_offers {
            self.note_offers(now, id.peer.slot);
        }
        self.share_memory(now);
        if answers {
            self.after(now, id.peer.slot);
        }
        self.free_if_finished(id.peer.slot);
        Some(Message { channel: id, number: taken.number, data: taken.data })
    }
}

fn check_sendable(
    peer: &Peer,
    config: &Config,
    to: ChannelId,
    bytes: u64,
    most: u64,
) -> Result<(), SendError> {
    if let Some(reason) = peer.lost_reason() {
        return Err(SendError::PeerLost { peer: to.peer, reason });
    }
    if peer.is_write_closed() {
        return Err(SendError::WriteClosed(to.peer));
    }
    if peer.is_peer_done_reading() {
        return Err(SendError::PeerDoneReading(to.peer));
    }
    let max_channels = peer.max_channels(config);
    if to.channel >= max_channels {
        return Err(SendError::NoSuchChannel { channel: to.channel, last: max_channels - 1 });
    }
    send_channel::check_size(bytes, peer.max_message())?;
    let queued_bytes = peer.outbox().queued_bytes();
    // Most find nothing queued.
    if queued_bytes > 0
        && !send_channel::has_room(queued_bytes, bytes, most)
        && !fits_beside(peer, to.channel, bytes, most)
    {
        return Err(SendError::WouldBlock { peer: to.peer, queued_bytes });
    }
    Ok(())
}

/// Whether a message fits into what its channel may queue beside others that have filled the send buffer.
#[cold]
fn fits_beside(peer: &Peer, channel: u16, bytes: u64, most: u64) -> bool {
    bytes + MESSAGE_COST_BYTES <= peer.outbox().room_beside(channel, most)
}
