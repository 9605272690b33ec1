//! Receiving messages and events: blocking, trying, timed, asynchronous.

use super::Node;
use crate::core::Core;
use crate::error::{NodeError, RecvError};
use crate::tasks::Interest;
use denrei_proto::{AcceptInto, ChannelId, Event, Message, PeerError};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// What [`Node::next`] brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A message.
    Message(Message),
    /// An event.
    Event(Event),
}

impl Node {
    /// Waits for the next message of any peer.
    ///
    /// # Errors
    /// The socket has become unusable.
    pub fn recv(&self) -> Result<Message, NodeError> {
        let received = self.shards().wait_for_any(None, take_or_fail);
        received.unwrap_or_else(|| Err(closed()))
    }

    /// The next message of any peer that is here or in the socket's buffer now.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<Message>, NodeError> {
        self.recv_timeout(Duration::ZERO)
    }

    /// Waits for the next message of any peer, at most `timeout`.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<Message>, NodeError> {
        self.shards().wait_for_any(Some(timeout), take_or_fail).transpose()
    }

    /// Waits for the next message of one channel, at most `timeout`.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv). What the channel brought was taken, and no more comes: the peer is lost, unknown, or
    /// done writing; or there is no such channel.
    pub fn recv_from(&self, channel: ChannelId, timeout: Duration) -> Result<Option<Message>, RecvError> {
        let take = |core: &mut Core| take_or_end(core, channel).ok_or(Interest::Channel(channel));
        self.shards().wait_for(channel.peer, Some(timeout), take).transpose()
    }

    /// The next message of any peer, without blocking the task. Starts the background thread if
    /// there is none. A future that is dropped has taken nothing, as with all calls of this kind.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv). That thread cannot be started.
    pub async fn recv_async(&self) -> Result<Message, NodeError> {
        self.start_thread().map_err(unstarted)?;
        self.resolve_any(take_or_fail).await
    }

    /// The next message of one channel, without blocking the task, which messages of others do not wake. Starts the
    /// background thread if there is none.
    ///
    /// # Errors
    /// As for [`recv_from`](Self::recv_from). That thread cannot be started.
    pub async fn recv_from_async(&self, channel: ChannelId) -> Result<Message, RecvError> {
        self.start_thread().map_err(unstarted)?;
        let take = |core: &mut Core| take_or_end(core, channel).ok_or(Interest::Channel(channel));
        self.resolve_of(channel.peer, take).await
    }

    /// Does what is due now (receive, acknowledge, repeat) without waiting. For applications in
    /// `Drive::Inline` that compute for long, or look again and again. Whether there may be a message or an
    /// event to [`drain`](Self::drain).
    pub fn poll(&self) -> bool {
        let mut has_any = false;
        for shard in self.shards().all() {
            has_any |= shard.poll();
        }
        has_any
    }

    /// A descriptor for an event loop of your own: readable when there may be messages or events to
    /// take. Then call [`clear_news`](Self::clear_news) *first*, and take until there is nothing
    /// left. Do not read it. Starts the background thread if there is none.
    ///
    /// # Errors
    /// The process is out of descriptors, or of threads.
    pub fn news_fd(&self) -> std::io::Result<BorrowedFd<'_>> {
        self.start_thread()?;
        let bell = self.shared().bell()?;
        self.shards().all().for_each(|shard| shard.share_bell(bell));
        Ok(bell.as_fd())
    }

    /// Makes [`news_fd`](Self::news_fd) unreadable until there is news again.
    pub fn clear_news(&self) {
        if let Ok(bell) = self.shared().bell() {
            bell.hear();
        }
    }

    /// Takes events and messages that are here, in the order of [`next`](Self::next), at most `most` in
    /// all, and hands each to `take`, which must not call the Node. Messages of channels that `wanted` refuses stay, and
    /// by and by their senders run out of credit. Does not look at the socket: [`poll`](Self::poll)
    /// does, and tells senders of the room that came; where a thread drives the Node that is told at once. How many
    /// were taken.
    pub fn drain(
        &self,
        most: usize,
        mut wanted: impl FnMut(ChannelId) -> bool,
        mut take: impl FnMut(Incoming),
    ) -> usize {
        let mut taken = 0;
        let end = self.shards().visit(|core| {
            let now = core.recently();
            while taken < most {
                let last = core.endpoint.recv_before_end(now, &mut wanted).map(Incoming::Message);
                let next = last.or_else(|| core.endpoint.poll_event().map(Incoming::Event));
                let next = next.or_else(|| core.endpoint.recv_where(now, &mut wanted).map(Incoming::Message));
                take(next?);
                taken += 1;
            }
            Some(most)
        });
        end.unwrap_or(taken)
    }

    /// Waits until there is an event or a message to take, at most `timeout`; whether there is.
    pub fn wait_incoming(&self, timeout: Duration) -> bool {
        self.wait_incoming_unless(timeout, || false)
    }

    /// The same, but does not wait once `left` says so, which is asked at first and each time this thread wakes:
    /// [`rally`](Self::rally) sees to that. It must not call the Node.
    pub fn wait_incoming_unless(&self, timeout: Duration, mut left: impl FnMut() -> bool) -> bool {
        let mut is_here = false;
        let ends = |core: &mut Core| {
            is_here |= core.has_incoming();
            (is_here || left()).then_some(())
        };
        self.shards().wait_for_any(Some(timeout), ends);
        is_here
    }

    /// Has all threads that wait for something of this Node look again whether they still have to, those included
    /// that are just about to sleep.
    pub fn rally(&self) {
        for shard in self.shards().all() {
            shard.rally(&mut shard.core.lock());
        }
        self.shards().call_lobby();
    }

    /// Accepts an offered message ([`Event::Offered`]) into a buffer, whose memory is used and
    /// whose content is dropped, or into memory of the application's ([`Placement`]). The message
    /// arrives by `recv` like any other.
    ///
    /// [`Placement`]: crate::Placement
    ///
    /// # Errors
    /// No such offer waits.
    pub fn accept(
        &self,
        channel: ChannelId,
        number: u64,
        into: impl Into<AcceptInto>,
    ) -> Result<(), PeerError> {
        let into = into.into();
        self.act(channel.peer, |core, now| core.endpoint.accept(now, channel, number, into))
    }

    /// [Accepts](Self::accept) an offered message, and leaves it to the next call that sends or polls to say
    /// so: several offers that are accepted at once are one packet.
    ///
    /// # Errors
    /// As for [`accept`](Self::accept).
    pub fn queue_accept(
        &self,
        channel: ChannelId,
        number: u64,
        into: impl Into<AcceptInto>,
    ) -> Result<(), PeerError> {
        let into = into.into();
        let (_, mut core) = self.shards().enter_of(channel.peer);
        let now = core.recently();
        core.endpoint.accept(now, channel, number, into)
    }

    /// Refuses an offered message: its sender gets [`Event::Refused`].
    ///
    /// # Errors
    /// No such offer waits.
    pub fn refuse(&self, channel: ChannelId, number: u64) -> Result<(), PeerError> {
        self.act(channel.peer, |core, now| core.endpoint.refuse(now, channel, number))
    }

    /// The next event, if there is one. Of more than 65,536 that nobody takes, besides 1,048,576 offers and
    /// what was asked for by a [`Completion`](crate::Completion), the oldest are dropped, and
    /// [counted](crate::EndpointCounters::dropped_events).
    pub fn try_event(&self) -> Option<Event> {
        self.event_timeout(Duration::ZERO)
    }

    /// Waits for the next event, at most `timeout`, also where the Node has failed and [none comes](Self::next_event).
    pub fn event_timeout(&self, timeout: Duration) -> Option<Event> {
        self.shards().wait_for_any(Some(timeout), |core| core.endpoint.poll_event())
    }

    /// Waits for the next event; `None` if there is none within `timeout`.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn next_event(&self, timeout: Duration) -> Result<Option<Event>, NodeError> {
        self.shards().wait_for_any(Some(timeout), event_or_fail).transpose()
    }

    /// The next event, without blocking the task. Starts the background thread if there is none.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv). That thread cannot be started.
    pub async fn event_async(&self) -> Result<Event, NodeError> {
        self.start_thread().map_err(unstarted)?;
        self.resolve_any(event_or_fail).await
    }

    /// The next message of any peer or the next event, whichever is there first; waits at most
    /// `timeout`. Events come before messages that arrived with them, but that a peer will send no more
    /// (it is done writing, or lost) comes after what it has sent.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn next(&self, timeout: Duration) -> Result<Option<Incoming>, NodeError> {
        self.next_where(timeout, |_| true)
    }

    /// As [`next`](Self::next), without blocking the task. Starts the background thread if there is none.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv). That thread cannot be started.
    pub async fn next_async(&self) -> Result<Incoming, NodeError> {
        self.start_thread().map_err(unstarted)?;
        self.resolve_any(|core| next_or_fail(core, |_| true)).await
    }

    /// As [`next`](Self::next), but messages of channels that `wanted` refuses stay until their peer sends no
    /// more, and by and by it runs out of credit. `wanted` must not call the Node.
    pub(crate) fn next_where(
        &self,
        timeout: Duration,
        wanted: impl Fn(ChannelId) -> bool,
    ) -> Result<Option<Incoming>, NodeError> {
        let next = |core: &mut Core| next_or_fail(core, &wanted);
        self.shards().wait_for_any(Some(timeout), next).transpose()
    }
}

impl Node {
    /// Waits like [`recv_from`](Self::recv_from), but all of the time also where no more comes: for callers that look
    /// for that themselves.
    pub(crate) fn wait_from(
        &self,
        channel: ChannelId,
        timeout: Duration,
    ) -> Result<Option<Message>, NodeError> {
        let take = |core: &mut Core| take_from(core, channel).ok_or(Interest::Channel(channel));
        self.shards().wait_for(channel.peer, Some(timeout), take).transpose()
    }

    /// The next message that is here on a channel that `wanted` says yes to, whatever events wait. `wanted` must not
    /// call the Node.
    pub(crate) fn take_where(&self, wanted: impl Fn(ChannelId) -> bool) -> Option<Message> {
        self.shards().look(|core| {
            let now = core.recently();
            core.endpoint.recv_where(now, &wanted)
        })
    }
}

fn take_from<E: From<NodeError>>(core: &mut Core, channel: ChannelId) -> Option<Result<Message, E>> {
    let now = core.recently();
    core.endpoint.recv_from(now, channel).map(Ok).or_else(|| failure(core))
}

/// The next message of a channel, or that no more come.
fn take_or_end(core: &mut Core, channel: ChannelId) -> Option<Result<Message, RecvError>> {
    let no_more = |core: &Core| Some(Err(core.endpoint.check_more_to_come(channel).err()?.into()));
    take_from(core, channel).or_else(|| no_more(core))
}

/// The next message or event, in the order of [`Node::next`].
fn next_or_fail(core: &mut Core, wanted: impl Fn(ChannelId) -> bool) -> Option<Result<Incoming, NodeError>> {
    let now = core.recently();
    if let Some(message) = core.endpoint.recv_before_end(now, |_| true) {
        return Some(Ok(Incoming::Message(message)));
    }
    if let Some(event) = core.endpoint.poll_event() {
        return Some(Ok(Incoming::Event(event)));
    }
    match core.endpoint.recv_where(now, wanted) {
        Some(message) => Some(Ok(Incoming::Message(message))),
        None => failure(core),
    }
}

pub(crate) fn unstarted(error: std::io::Error) -> NodeError {
    let text = format!("it cannot start the thread that asynchronous calls need: {error}");
    NodeError(Arc::new(std::io::Error::new(error.kind(), text)))
}

fn closed() -> NodeError {
    NodeError(Arc::new(std::io::Error::other("the wait was ended")))
}

fn event_or_fail(core: &mut Core) -> Option<Result<Event, NodeError>> {
    core.endpoint.poll_event().map(Ok).or_else(|| failure(core))
}

/// Why the Node has failed, if it has.
pub(crate) fn failure<T, E: From<NodeError>>(core: &Core) -> Option<Result<T, E>> {
    core.failure.clone().map(|error| Err(NodeError(error).into()))
}

fn take_or_fail(core: &mut Core) -> Option<Result<Message, NodeError>> {
    if !core.endpoint.is_readable() {
        return failure(core);
    }
    let now = core.recently();
    core.endpoint.recv(now).map(Ok)
}
