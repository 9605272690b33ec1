//! Nodes and peers.

use crate::buffer::{Target, message_of};
use crate::config::from_keywords;
use crate::error::{self, QueueFull};
use crate::event::Event;
use crate::flow::FlowState;
use crate::group::{self, Group, GroupListener};
use crate::held::Held;
use crate::message::Message;
use denrei::{Bytes, ChannelId, Completion, Incoming, PeerId, Placement, Rate, SendError};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// A wait without limit is made of such ones, between which signals are looked at: Ctrl-C works.
const SLICE: Duration = Duration::from_millis(100);

/// One UDP port, and all the peers that are spoken to through it.
#[pyclass(frozen, module = "denrei")]
#[derive(Clone)]
pub(crate) struct Node {
    node: Held<denrei::Node>,
}

/// One peer of a node.
#[pyclass(frozen, module = "denrei")]
#[derive(Clone)]
pub(crate) struct Peer {
    node: Node,
    id: PeerId,
}

fn timeout_of(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let Some(seconds) = seconds else { return Ok(None) };
    let timeout = Duration::try_from_secs_f64(seconds);
    timeout
        .map(Some)
        .map_err(|_| PyValueError::new_err("a timeout is a number of seconds, 0 or more, or None"))
}

/// A time of which every wait has one.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Ok(timeout_of(Some(seconds))?.unwrap_or_default())
}

/// An object as the bytes of its pickle.
pub(crate) fn pickled<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let pickle = object.py().import("pickle")?;
    pickle.call_method1("dumps", (object, pickle.getattr("HIGHEST_PROTOCOL")?))
}

/// Tries, with the interpreter's lock released, until there is a value or time is up.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut attempt: impl FnMut(Duration) -> PyResult<Option<T>> + Send,
) -> PyResult<Option<T>> {
    let deadline = timeout_of(timeout)?.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let slice = left.unwrap_or(SLICE).min(SLICE);
        if let Some(value) = py.detach(|| attempt(slice))? {
            return Ok(Some(value));
        }
        if left.is_some_and(|left| left <= slice) {
            return Ok(None);
        }
        py.check_signals()?;
    }
}

pub(crate) fn in_time<T>(value: Option<T>) -> PyResult<T> {
    value.ok_or_else(|| PyTimeoutError::new_err("nothing was there within the time given"))
}

pub(crate) fn resolve(address: &str) -> PyResult<SocketAddr> {
    let refuse = |why: String| PyValueError::new_err(format!("{address:?} is no address: {why}"));
    let mut found = address.to_socket_addrs().map_err(|error| refuse(error.to_string()))?;
    found.next().ok_or_else(|| refuse("it resolves to nothing".into()))
}

fn completion_of(name: Option<&str>) -> PyResult<Completion> {
    match name {
        None => Ok(Completion::None),
        Some("acknowledged") => Ok(Completion::Acknowledged),
        Some("delivered") => Ok(Completion::Delivered),
        Some(other) => Err(PyValueError::new_err(format!(
            "completion is {other:?}, but has to be None, \"acknowledged\" or \"delivered\""
        ))),
    }
}

impl Node {
    pub fn denrei(&self) -> &denrei::Node {
        &self.node
    }

    fn message(&self, py: Python<'_>, message: denrei::Message) -> PyResult<Message> {
        Message::new(py, Peer::new(self, message.channel.peer), message)
    }

    fn incoming<'py>(&self, py: Python<'py>, incoming: Incoming) -> PyResult<Bound<'py, PyAny>> {
        match incoming {
            Incoming::Message(message) => Ok(Bound::new(py, self.message(py, message)?)?.into_any()),
            Incoming::Event(event) => Ok(Bound::new(py, Event::new(py, self, event)?)?.into_any()),
        }
    }
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (address = "127.0.0.1:0", **settings))]
    fn bind(py: Python<'_>, address: &str, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let (address, config) = (resolve(address)?, from_keywords(settings)?);
        let node = py.detach(|| denrei::Node::bind(address, config)).map_err(error::bind)?;
        Ok(Self { node: Held::new(node) })
    }

    /// The address bound, such as "127.0.0.1:40123".
    #[getter]
    fn address(&self) -> String {
        self.node.local_addr().to_string()
    }

    /// Which start of this node this is.
    #[getter]
    fn incarnation(&self) -> u64 {
        self.node.incarnation().0
    }

    /// Opens a session with the node at an address, or names the one there is. Returns at once.
    fn connect(&self, py: Python<'_>, address: &str) -> PyResult<Peer> {
        let address = resolve(address)?;
        let id = py.detach(|| self.node.connect(address)).map_err(error::connect)?;
        Ok(Peer::new(self, id))
    }

    /// The live peer at an address, or `None`.
    fn peer_at(&self, py: Python<'_>, address: &str) -> PyResult<Option<Peer>> {
        let address = resolve(address)?;
        Ok(py.detach(|| self.node.peer_at(address)).map(|id| Peer::new(self, id)))
    }

    /// All peers in the address table.
    fn peers(&self, py: Python<'_>) -> Vec<Peer> {
        py.detach(|| self.node.peers()).iter().map(|flow| Peer::new(self, flow.peer)).collect()
    }

    /// Opens a group at a multicast address, such as "239.255.78.1:7411", with the nodes at `members`,
    /// and waits until every one takes part. Options are keyword arguments; `denrei.GROUP_OPTIONS`
    /// lists them. Members call `join_group` before.
    #[pyo3(signature = (address, members, **options))]
    fn open_group(
        &self,
        py: Python<'_>,
        address: &str,
        members: Vec<String>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Group> {
        group::open(py, &self.node, address, &members, options)
    }

    /// Joins a multicast address: openers may from now on name this node as a member of groups there.
    fn join_group(&self, py: Python<'_>, address: &str) -> PyResult<GroupListener> {
        group::join(py, self, address)
    }

    /// Takes the next message of any peer; `TimeoutError` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let received = wait(py, timeout, |slice| self.node.recv_timeout(slice).map_err(error::node))?;
        self.message(py, in_time(received)?)
    }

    /// Takes the next message of any peer if one is here.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let received = py.detach(|| self.node.try_recv()).map_err(error::node)?;
        received.map(|message| self.message(py, message)).transpose()
    }

    /// Takes the next message or event, whichever is there first; `TimeoutError` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let next = wait(py, timeout, |slice| self.node.next(slice).map_err(error::node))?;
        self.incoming(py, in_time(next)?)
    }

    /// Takes the next message or event if one is here.
    fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = py.detach(|| self.node.next(Duration::ZERO)).map_err(error::node)?;
        next.map(|incoming| self.incoming(py, incoming)).transpose()
    }

    /// Takes the next event; `TimeoutError` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Event> {
        let event = wait(py, timeout, |slice| Ok(self.node.event_timeout(slice)))?;
        Event::new(py, self, in_time(event)?)
    }

    /// Takes the next event if one is here.
    fn try_event(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let event = py.detach(|| self.node.try_event());
        event.map(|event| Event::new(py, self, event)).transpose()
    }

    /// Does what is due now without waiting; for drive="inline".
    fn poll(&self, py: Python<'_>) {
        py.detach(|| self.node.poll());
    }

    /// A descriptor for event loops: readable when there may be something to take. Then call
    /// `clear_news` first, and `try_next` until it returns `None`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        Ok(py.detach(|| self.node.news_fd().map(|fd| fd.as_raw_fd()))?)
    }

    /// Makes the descriptor unreadable until there is news again.
    fn clear_news(&self, py: Python<'_>) {
        py.detach(|| self.node.clear_news());
    }

    /// What the user should know and can change about this host.
    fn warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.node.warnings())
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Node {}>", self.node.local_addr())
    }
}

impl Peer {
    pub fn new(node: &Node, id: PeerId) -> Self {
        Self { node: node.clone(), id }
    }

    fn channel(&self, channel: u16) -> ChannelId {
        ChannelId { peer: self.id, channel }
    }

    fn verb(
        &self,
        py: Python<'_>,
        verb: impl FnOnce(&denrei::Node, PeerId) -> Result<(), denrei::PeerError> + Send,
    ) -> PyResult<()> {
        py.detach(|| verb(self.node.denrei(), self.id)).map_err(error::peer)
    }
}

/// Sends within a slice of time: `None` if the queue is still full then.
fn send_slice(
    node: &denrei::Node,
    to: ChannelId,
    message: &Bytes,
    completion: Completion,
    slice: Duration,
) -> PyResult<Option<u64>> {
    match node.send_timeout_with(to, message.clone(), completion, slice) {
        Ok(id) => Ok(Some(id.number)),
        Err(SendError::WouldBlock { .. }) => Ok(None),
        Err(error) => Err(error::send(error)),
    }
}

#[pymethods]
impl Peer {
    /// The peer as one number.
    #[getter]
    fn id(&self) -> u64 {
        self.id.as_u64()
    }

    /// Sends a message; waits while the queue to the peer is full, at most `timeout` seconds
    /// (`QueueFull` then). `data` is anything with a contiguous buffer; a large one is not copied, so
    /// it must not change until it is acknowledged, unless `copy` is true. Returns its number in the
    /// channel.
    #[pyo3(signature = (data, channel = 0, *, completion = None, timeout = None, copy = false))]
    fn send(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        channel: u16,
        completion: Option<&str>,
        timeout: Option<f64>,
        copy: bool,
    ) -> PyResult<u64> {
        let (message, completion) = (message_of(data, copy)?, completion_of(completion)?);
        let (node, to) = (&self.node.node, self.channel(channel));
        let sent = wait(py, timeout, |slice| send_slice(node, to, &message, completion, slice));
        // Lent memory is given back without the interpreter's lock: whoever does takes it.
        py.detach(|| drop(message));
        sent?.ok_or_else(|| QueueFull::new_err("the queue to the peer was full for the time given"))
    }

    /// Sends a Python object, pickled; the receiver calls `Message.object`.
    #[pyo3(signature = (object, channel = 0, *, timeout = None))]
    fn send_object(
        &self,
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        channel: u16,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        self.send(py, &pickled(object)?, channel, None, timeout, false)
    }

    /// Sends a message that is worth nothing after `lifetime` seconds: if it is not sent by then it is
    /// dropped, and an event of kind "expired" says so. Never waits.
    #[pyo3(signature = (data, lifetime, channel = 0, *, copy = false))]
    fn send_within(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        lifetime: f64,
        channel: u16,
        copy: bool,
    ) -> PyResult<u64> {
        let message = message_of(data, copy)?;
        let lifetime = timeout_of(Some(lifetime))?.unwrap_or_default();
        let to = self.channel(channel);
        let sent = py.detach(|| self.node.node.send_within(to, message, Completion::None, lifetime));
        sent.map(|id| id.number).map_err(error::send)
    }

    /// Takes the next message of one of the peer's channels.
    #[pyo3(signature = (channel = 0, timeout = None))]
    fn recv(&self, py: Python<'_>, channel: u16, timeout: Option<f64>) -> PyResult<Message> {
        let from = self.channel(channel);
        let attempt = |slice| self.node.node.recv_from(from, slice).map_err(error::node);
        let received = wait(py, timeout, attempt)?;
        self.node.message(py, in_time(received)?)
    }

    /// Takes the next message of one of the peer's channels if it is here.
    #[pyo3(signature = (channel = 0))]
    fn try_recv(&self, py: Python<'_>, channel: u16) -> PyResult<Option<Message>> {
        let from = self.channel(channel);
        let received = py.detach(|| self.node.node.recv_from(from, Duration::ZERO)).map_err(error::node)?;
        received.map(|message| self.node.message(py, message)).transpose()
    }

    /// Waits until a message of `length` bytes may be sent without waiting; whether it may.
    #[pyo3(signature = (length, timeout = None))]
    fn wait(&self, py: Python<'_>, length: u64, timeout: Option<f64>) -> PyResult<bool> {
        let attempt = |slice| {
            let room = self.node.node.wait(self.id, length, slice).map_err(error::peer)?;
            Ok(room.then_some(()))
        };
        Ok(wait(py, timeout, attempt)?.is_some())
    }

    /// Waits until everything sent so far is acknowledged; whether it is.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let attempt = |slice| Ok(self.node.node.flush(self.id, slice).then_some(()));
        Ok(wait(py, timeout, attempt)?.is_some())
    }

    /// Accepts a message that an event of kind "offered" named: into a writable buffer, which must be
    /// left alone until the message, without bytes of its own, has come; or into memory of denrei's.
    #[pyo3(signature = (channel, number, into = None))]
    fn accept(
        &self,
        py: Python<'_>,
        channel: u16,
        number: u64,
        into: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let channel = self.channel(channel);
        let target = into.map(Target::new).transpose()?;
        if target.as_ref().is_some_and(|target| target.len() == 0) {
            return Err(PyValueError::new_err("the buffer is empty"));
        }
        self.verb(py, |node, _| match target {
            Some(target) => {
                let target: Box<dyn Placement> = Box::new(target);
                node.accept(channel, number, target)
            }
            None => node.accept(channel, number, Vec::new()),
        })
    }

    /// Refuses a message that an event of kind "offered" named.
    fn refuse(&self, py: Python<'_>, channel: u16, number: u64) -> PyResult<()> {
        let channel = self.channel(channel);
        self.verb(py, |node, _| node.refuse(channel, number))
    }

    /// Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
    fn set_priority(&self, py: Python<'_>, channel: u16, priority: u8) -> PyResult<()> {
        let channel = self.channel(channel);
        self.verb(py, |node, _| node.set_priority(channel, priority))
    }

    /// Sets how fast the peer may send to this node: bytes per second (0: not at all), and bytes in a
    /// row (0: no limit).
    #[pyo3(signature = (bytes_per_s, burst_bytes = 0))]
    fn set_rate(&self, py: Python<'_>, bytes_per_s: u64, burst_bytes: u64) -> PyResult<()> {
        self.verb(py, |node, id| node.set_rate(id, Rate { bytes_per_s, burst_bytes }))
    }

    /// Sets the peer's share of what this node can receive: 1 to 10000, 100 if never set.
    fn set_weight(&self, py: Python<'_>, weight: u32) -> PyResult<()> {
        self.verb(py, |node, id| node.set_weight(id, weight))
    }

    /// Sends again what is due and not acknowledged.
    fn retransmit(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.retransmit(id).map(drop))
    }

    /// Asks the peer for its state; an event of kind "status" with the number returned brings it.
    fn request_status(&self, py: Python<'_>) -> PyResult<u32> {
        py.detach(|| self.node.node.request_status(self.id)).map_err(error::peer)
    }

    /// Messages that are not acknowledged.
    #[getter]
    fn queue_length(&self, py: Python<'_>) -> Option<u64> {
        py.detach(|| self.node.node.queue_len(self.id))
    }

    /// The flow state as of now; `None` if the peer is gone.
    #[getter]
    fn flow(&self, py: Python<'_>) -> Option<FlowState> {
        py.detach(|| self.node.node.flow(self.id)).map(FlowState::from)
    }

    /// The peer's address; `None` if it is gone.
    #[getter]
    fn address(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.node.node.flow(self.id)).map(|flow| flow.addr.to_string())
    }

    /// Says that this side will send no more.
    fn close_write(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.close_write(id))
    }

    /// Says that this side wants no more.
    fn close_read(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.close_read(id))
    }

    /// Ends the session in order, as soon as everything queued is delivered.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.close(id))
    }

    /// Ends the session at once.
    #[pyo3(signature = (code = 0x8000, reason = ""))]
    fn abort(&self, py: Python<'_>, code: u16, reason: &str) -> PyResult<()> {
        self.verb(py, |node, id| node.abort(id, code, reason))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.id == other.id && self.node.node.local_addr() == other.node.node.local_addr()
    }

    fn __hash__(&self) -> u64 {
        self.id.as_u64()
    }

    fn __repr__(&self) -> String {
        format!("<denrei.{:?}>", self.id)
    }
}
