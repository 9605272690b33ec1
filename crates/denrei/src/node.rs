//! The Node: what an application holds.

use crate::config::{Config, Drive};
use crate::core::Core;
use crate::driver;
use crate::error::{BindError, NodeError};
use crate::io::Io;
use crate::wait::Shared;
use bytes::Bytes;
use denrei_io::{Capabilities, IoCounters, UdpSocket, Waiter};
use denrei_proto::{
    ChannelId, Completion, ConnectError, EndpointCounters, Event, FlowState, Message, MessageId, PeerError,
    PeerId, SendError,
};
use denrei_wire::{Incarnation, Instant};
use parking_lot::Mutex;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// One UDP port, and all the peers that are spoken to through it. Cheap to clone; every clone is
/// the same Node. When the last is dropped, peers are told that it is gone; what was not
/// acknowledged by then is lost, so [`flush`](Self::flush) or [`close`](Self::close) before.
#[derive(Clone)]
pub struct Node {
    handle: Arc<Handle>,
}

/// What [`Node::next`] brings.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// A message.
    Message(Message),
    /// An event.
    Event(Event),
}

/// What ends with the last clone.
struct Handle {
    shared: Arc<Shared>,
    local: SocketAddr,
    incarnation: Incarnation,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// END code of a Node that is dropped (`spec/protocol.md` §8).
const SHUTTING_DOWN: u16 = 4;

impl Node {
    /// Opens a UDP port and, if so configured, starts the thread that drives it.
    ///
    /// # Errors
    /// A setting that cannot work, or an address that cannot be bound; both say what to change.
    pub fn bind(addr: impl ToSocketAddrs, config: Config) -> Result<Self, BindError> {
        config.validate()?;
        let addr = addr.to_socket_addrs().map_err(BindError::Resolve)?.next().ok_or(BindError::NoAddress)?;
        let socket =
            UdpSocket::bind(addr, &config.socket).map_err(|source| BindError::Socket { addr, source })?;
        for warning in socket.warnings() {
            tracing::warn!("{warning}");
        }
        let seed = getrandom::u64().map_err(|error| system(std::io::Error::other(error.to_string())))?;
        let core = Core::new(config.protocol, seed);
        let incarnation = core.endpoint.incarnation();
        let local = socket.local_addr();
        let waiter = Waiter::new().map_err(system)?;
        let shared = Arc::new(Shared::new(core, Io::new(socket), waiter, config.spin));
        let node = Self { handle: Arc::new(Handle { shared, local, incarnation, thread: Mutex::default() }) };
        if config.drive == Drive::Thread {
            node.start_thread().map_err(system)?;
        }
        Ok(node)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    fn start_thread(&self) -> std::io::Result<()> {
        let mut thread = self.handle.thread.lock();
        if thread.is_none() {
            *thread = Some(driver::start(Arc::clone(&self.handle.shared))?);
            let mut core = self.shared().core.lock();
            core.has_driver = true;
            // Threads that were driving themselves hand over.
            self.shared().rally(&mut core);
        }
        Ok(())
    }

    /// The address bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local
    }

    /// Which start of this Node this is: peers see another after a restart.
    pub fn incarnation(&self) -> Incarnation {
        self.handle.incarnation
    }

    // ---- peers ----

    /// Opens a session with the Node at `addr`, or names the one there is. Returns at once:
    /// messages may be sent right away and travel with the FIRST (R5). If nobody answers within
    /// the connect timeout, [`Event::PeerLost`] says so.
    ///
    /// # Errors
    /// The address table is full, or the address is not one to send to.
    pub fn connect(&self, addr: SocketAddr) -> Result<PeerId, ConnectError> {
        let peer = self.with_core(|core, now| core.endpoint.connect(now, addr))?;
        self.shared().kick();
        Ok(peer)
    }

    /// The live peer at an address.
    pub fn peer_at(&self, addr: SocketAddr) -> Option<PeerId> {
        self.shared().core.lock().endpoint.peer_at(addr)
    }

    /// The address table (S8): every peer and its flow state, as of now.
    pub fn peers(&self) -> Vec<FlowState> {
        let core = self.shared().core.lock();
        core.endpoint.peers().filter_map(|peer| core.endpoint.flow(peer)).collect()
    }

    /// A peer's flow state (S8), `None` if the peer is not in the address table any more.
    pub fn flow(&self, peer: PeerId) -> Option<FlowState> {
        self.shared().core.lock().endpoint.flow(peer)
    }

    /// SREQ: asks a peer for its state now; [`Event::Status`] brings it, with the number returned.
    ///
    /// # Errors
    /// No such peer.
    pub fn request_status(&self, peer: PeerId) -> Result<u32, PeerError> {
        self.act(|core, now| core.endpoint.request_status(now, peer))
    }

    /// WCLOSE: this side will send no more to `peer`; what is queued is still delivered. When both
    /// sides have done so the session ends.
    ///
    /// # Errors
    /// No such peer.
    pub fn close_write(&self, peer: PeerId) -> Result<(), PeerError> {
        self.act(|core, now| core.endpoint.close_write(now, peer))
    }

    /// RCLOSE: this side wants no more from `peer`; what was not taken is dropped.
    ///
    /// # Errors
    /// No such peer.
    pub fn close_read(&self, peer: PeerId) -> Result<(), PeerError> {
        self.act(|core, now| core.endpoint.close_read(now, peer))
    }

    /// Ends the session with `peer` in order: as soon as everything queued is delivered.
    /// [`Event::PeerLost`] with `Closed` says when.
    ///
    /// # Errors
    /// No such peer.
    pub fn close(&self, peer: PeerId) -> Result<(), PeerError> {
        self.act(|core, now| core.endpoint.close(now, peer))
    }

    /// Ends the session with `peer` at once. `code` (0x8000 and up are the application's) and
    /// `reason` (cut at 128 octets) reach the peer in its [`Event::PeerLost`].
    ///
    /// # Errors
    /// No such peer.
    pub fn abort(&self, peer: PeerId, code: u16, reason: &str) -> Result<(), PeerError> {
        self.act(|core, now| core.endpoint.abort(now, peer, code, reason))
    }

    // ---- sending ----

    /// Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
    ///
    /// # Errors
    /// No such peer or channel.
    pub fn set_priority(&self, channel: ChannelId, priority: u8) -> Result<(), PeerError> {
        self.with_core(|core, _| core.endpoint.set_priority(channel, priority))
    }

    /// Sends a message; waits while the queue to the peer is full. A `Bytes` is not copied.
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
        let message = message.into();
        match self.try_send_with(to, message.clone(), completion) {
            Err(SendError::WouldBlock { .. }) => {}
            result => return result,
        }
        let sent = self.shared().wait_for(None, |core| push_or_wait(core, to, &message, completion));
        self.shared().kick();
        sent.unwrap_or(Err(SendError::UnknownPeer(to.peer)))
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
        let id = {
            let mut core = self.shared().core.lock();
            let now = core.recently();
            core.endpoint.send(now, to, message.into(), completion)?
        };
        self.shared().kick();
        Ok(id)
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
        let message = message.into();
        let full = match self.try_send(to, message.clone()) {
            Err(full @ SendError::WouldBlock { .. }) => full,
            result => return result,
        };
        let sent =
            self.shared().wait_for(Some(timeout), |core| push_or_wait(core, to, &message, Completion::None));
        self.shared().kick();
        sent.unwrap_or(Err(full))
    }

    /// Sends a message without blocking the task. Starts the background thread if there is none.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub async fn send_async(&self, to: ChannelId, message: impl Into<Bytes>) -> Result<MessageId, SendError> {
        self.ensure_thread();
        let message = message.into();
        let sent = self.wait_async(|core| push_or_wait(core, to, &message, Completion::None)).await;
        self.shared().kick();
        sent
    }

    /// Waits until everything sent so far to `peer` is acknowledged, at most `timeout`; whether it is.
    pub fn flush(&self, peer: PeerId, timeout: Duration) -> bool {
        // A peer that is gone is flushed.
        let _ = self.act(|core, now| core.endpoint.hurry(now, peer));
        let empty = |core: &mut Core| match core.endpoint.flow_queue_bytes(peer) {
            None | Some(0) => Some(()),
            Some(_) => {
                core.await_empty(peer);
                None
            }
        };
        self.shared().wait_for(Some(timeout), empty).is_some()
    }

    // ---- receiving ----

    /// Waits for the next message of any peer.
    ///
    /// # Errors
    /// The socket has become unusable.
    pub fn recv(&self) -> Result<Message, NodeError> {
        let received = self.shared().wait_for(None, take_or_fail);
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
        self.shared().wait_for(Some(timeout), take_or_fail).transpose()
    }

    /// Waits for the next message of one channel, at most `timeout`.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_from(&self, channel: ChannelId, timeout: Duration) -> Result<Option<Message>, NodeError> {
        let take = |core: &mut Core| {
            let now = core.recently();
            let message = core.endpoint.recv_from(now, channel);
            message.map(Ok).or_else(|| failure(core))
        };
        self.shared().wait_for(Some(timeout), take).transpose()
    }

    /// The next message of any peer, without blocking the task. Starts the background thread if
    /// there is none.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub async fn recv_async(&self) -> Result<Message, NodeError> {
        self.ensure_thread();
        let message = self.wait_async(take_or_fail).await;
        self.shared().answer(&mut self.shared().core.lock());
        message
    }

    /// Does what is due now (receive, acknowledge, repeat) without waiting. For applications in
    /// `Drive::Inline` that compute for long.
    pub fn poll(&self) {
        self.shared().turn();
    }

    /// Accepts an offered message ([`Event::Offered`]) into `buffer`, whose memory is used and
    /// whose content is dropped. The message arrives by `recv` like any other.
    ///
    /// # Errors
    /// No such offer waits.
    pub fn accept(&self, channel: ChannelId, number: u64, buffer: Vec<u8>) -> Result<(), PeerError> {
        self.act(|core, now| core.endpoint.accept(now, channel, number, buffer))
    }

    /// Refuses an offered message: its sender gets [`Event::Refused`].
    ///
    /// # Errors
    /// No such offer waits.
    pub fn refuse(&self, channel: ChannelId, number: u64) -> Result<(), PeerError> {
        self.act(|core, now| core.endpoint.refuse(now, channel, number))
    }

    // ---- events and state ----

    /// The next event, if there is one.
    pub fn try_event(&self) -> Option<Event> {
        self.event_timeout(Duration::ZERO)
    }

    /// Waits for the next event, at most `timeout`.
    pub fn event_timeout(&self, timeout: Duration) -> Option<Event> {
        self.shared().wait_for(Some(timeout), |core| core.endpoint.poll_event())
    }

    /// The next event, without blocking the task. Starts the background thread if there is none.
    pub async fn event_async(&self) -> Event {
        self.ensure_thread();
        self.wait_async(|core| core.endpoint.poll_event()).await
    }

    /// The next message of any peer or the next event, whichever is there first; waits at most
    /// `timeout`. Events come before messages that arrived with them.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn next(&self, timeout: Duration) -> Result<Option<Incoming>, NodeError> {
        let next = |core: &mut Core| match core.endpoint.poll_event() {
            Some(event) => Some(Ok(Incoming::Event(event))),
            None => take_or_fail(core).map(|message| message.map(Incoming::Message)),
        };
        self.shared().wait_for(Some(timeout), next).transpose()
    }

    /// What happened on this port that belongs to no peer.
    pub fn counters(&self) -> EndpointCounters {
        *self.shared().core.lock().endpoint.counters()
    }

    /// System calls, datagrams and bytes of the socket.
    pub fn io_counters(&self) -> IoCounters {
        self.shared().with_io(|io| *io.socket.counters())
    }

    /// What the socket can do here.
    pub fn capabilities(&self) -> Capabilities {
        self.shared().with_io(|io| io.socket.capabilities())
    }

    /// What the user should know and can change about this host, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        self.shared().with_io(|io| io.socket.warnings().to_vec())
    }

    // ---- plumbing ----

    fn with_core<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let mut core = self.shared().core.lock();
        let now = core.now();
        act(&mut core, now)
    }

    fn act<T, E>(&self, act: impl FnOnce(&mut Core, Instant) -> Result<T, E>) -> Result<T, E> {
        let value = self.with_core(act)?;
        self.shared().kick();
        Ok(value)
    }

    fn ensure_thread(&self) {
        if let Err(error) = self.start_thread() {
            tracing::error!("cannot start the thread that asynchronous calls need: {error}");
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        {
            let mut core = self.shared.core.lock();
            let now = core.now();
            let peers: Vec<_> = core.endpoint.peers().collect();
            for peer in peers {
                // One that is over already needs no word.
                let _ = core.endpoint.abort(now, peer, SHUTTING_DOWN, "the Node was closed");
            }
        }
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.lock().take() {
            // The thread has nothing that could panic but a broken invariant, which it has reported.
            let _ = thread.join();
        }
        self.shared.hot.store(false, Ordering::SeqCst);
        self.shared.kick();
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("local", &self.handle.local).finish_non_exhaustive()
    }
}

fn system(source: std::io::Error) -> BindError {
    BindError::System { source }
}

fn closed() -> NodeError {
    NodeError(Arc::new(std::io::Error::other("the wait was ended")))
}

fn failure<T>(core: &Core) -> Option<Result<T, NodeError>> {
    core.failure.clone().map(|error| Err(NodeError(error)))
}

fn take_or_fail(core: &mut Core) -> Option<Result<Message, NodeError>> {
    if !core.endpoint.is_readable() {
        return failure(core);
    }
    let now = core.recently();
    core.endpoint.recv(now).map(Ok)
}

fn push_or_wait(
    core: &mut Core,
    to: ChannelId,
    message: &Bytes,
    completion: Completion,
) -> Option<Result<MessageId, SendError>> {
    let now = core.recently();
    match core.endpoint.send(now, to, message.clone(), completion) {
        Err(SendError::WouldBlock { .. }) => {
            core.await_room(to.peer);
            None
        }
        result => Some(result),
    }
}
