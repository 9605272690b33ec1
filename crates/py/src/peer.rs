//! Peers: what is sent to one, received from one, and steered between the two.

use crate::buffer::{Target, message_of};
use crate::error::{self, QueueFull};
use crate::flow::FlowState;
use crate::message::Message;
use crate::node::Node;
use crate::number::{numbers, numbers_in};
use crate::wait::{in_time, pickled, timeout_of, wait};
use denrei::{
    AcceptInto, Bytes, ChannelId, Completion, MAX_RATE, MAX_WEIGHT, NoMore, PeerId, Placement, Rate,
    RecvError, SendError,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::time::Duration;

/// Largest rate and burst.
const RATES: i128 = MAX_RATE as i128;
/// Largest share.
const WEIGHTS: i128 = MAX_WEIGHT as i128;
/// The least urgent.
const PRIORITIES: i128 = 7;

/// One peer of a node.
#[pyclass(frozen, module = "denrei")]
#[derive(Clone)]
pub(crate) struct Peer {
    node: Node,
    id: PeerId,
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

impl Peer {
    pub fn new(node: &Node, id: PeerId) -> Self {
        Self { node: node.clone(), id }
    }

    /// One of the peer's channels.
    pub fn channel(&self, channel: u16) -> ChannelId {
        ChannelId { peer: self.id, channel }
    }

    fn verb(
        &self,
        py: Python<'_>,
        verb: impl FnOnce(&denrei::Node, PeerId) -> Result<(), denrei::PeerError> + Send,
    ) -> PyResult<()> {
        self.node.call(py, |node| verb(node, self.id).map_err(error::peer))
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
        #[pyo3(from_py_with = numbers)] channel: u16,
        completion: Option<&str>,
        timeout: Option<f64>,
        copy: bool,
    ) -> PyResult<u64> {
        let (message, completion) = (message_of(data, copy)?, completion_of(completion)?);
        let to = self.channel(channel);
        let attempt = |slice| send_slice(&self.node.denrei()?, to, &message, completion, slice);
        let sent = wait(py, timeout, attempt);
        // Lent memory is given back without the interpreter's lock: whoever does takes it.
        py.detach(|| drop(message));
        sent?.ok_or_else(|| QueueFull::new_err("the queue to the peer was full for the time given"))
    }

    /// Queues a message, if the queue to the peer has room (`QueueFull` if not), and leaves it to
    /// `Node.send_queued`, or to the next call that sends or polls, to send it: who queues several at
    /// once pays for one system call. Never waits; otherwise as `send`.
    #[pyo3(signature = (data, channel = 0, *, completion = None, copy = false))]
    fn queue(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers)] channel: u16,
        completion: Option<&str>,
        copy: bool,
    ) -> PyResult<u64> {
        let (message, completion) = (message_of(data, copy)?, completion_of(completion)?);
        let to = self.channel(channel);
        let queue = |node: &denrei::Node| node.queue(to, message, completion).map_err(error::send);
        Ok(self.node.call(py, queue)?.number)
    }

    /// Sends a Python object, pickled; the receiver calls `Message.object`.
    #[pyo3(signature = (object, channel = 0, *, timeout = None))]
    fn send_object(
        &self,
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = numbers)] channel: u16,
        timeout: Option<f64>,
    ) -> PyResult<u64> {
        self.send(py, &pickled(object)?, channel, None, timeout, false)
    }

    /// Sends a message that is worth nothing after `lifetime` seconds: if it is not sent by then it is
    /// dropped, and an event of kind "expired" says so. Never waits; otherwise as `send`.
    #[pyo3(signature = (data, lifetime, channel = 0, *, completion = None, copy = false))]
    fn send_within(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        lifetime: f64,
        #[pyo3(from_py_with = numbers)] channel: u16,
        completion: Option<&str>,
        copy: bool,
    ) -> PyResult<u64> {
        let (message, completion) = (message_of(data, copy)?, completion_of(completion)?);
        let lifetime = timeout_of(Some(lifetime))?.unwrap_or_default();
        let to = self.channel(channel);
        let send = |node: &denrei::Node| node.send_within(to, message, completion, lifetime);
        Ok(self.node.call(py, |node| send(node).map_err(error::send))?.number)
    }

    /// Takes the next message of one of the peer's channels. Where all that it brought was taken and no more comes, it
    /// waits no longer: `PeerLost`, or `EOFError` if the peer is done writing. `ValueError` if there is no such channel.
    #[pyo3(signature = (channel = 0, timeout = None))]
    fn recv(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] channel: u16,
        timeout: Option<f64>,
    ) -> PyResult<Message> {
        let from = self.channel(channel);
        let attempt = |slice| self.node.denrei()?.recv_from(from, slice).map_err(error::recv);
        let received = wait(py, timeout, attempt)?;
        self.node.message(py, in_time(received)?)
    }

    /// Takes the next message of one of the peer's channels if it is here, and `None` if not, also where no more comes.
    #[pyo3(signature = (channel = 0))]
    fn try_recv(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] channel: u16,
    ) -> PyResult<Option<Message>> {
        let from = self.channel(channel);
        let take = |node: &denrei::Node| match node.recv_from(from, Duration::ZERO) {
            Err(RecvError::NoMore(why)) if !matches!(why, NoMore::NoSuchChannel { .. }) => Ok(None),
            received => received.map_err(error::recv),
        };
        let received = self.node.call(py, take)?;
        received.map(|message| self.node.message(py, message)).transpose()
    }

    /// Waits until a message of `length` bytes may be sent without waiting; whether it may. Whether the message
    /// is too large for the peer, or the peer takes no more or is lost, sending it tells.
    #[pyo3(signature = (length, timeout = None))]
    fn wait(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] length: u64,
        timeout: Option<f64>,
    ) -> PyResult<bool> {
        let attempt = |slice| {
            let room = self.node.denrei()?.wait(self.id, length, slice).map_err(error::peer)?;
            Ok(room.then_some(()))
        };
        Ok(wait(py, timeout, attempt)?.is_some())
    }

    /// Waits until everything sent so far is acknowledged; whether it is. Not if the peer is lost before.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let attempt = |slice| {
            let acknowledged = self.node.denrei()?.wait_acknowledged(self.id, slice);
            Ok(acknowledged.map_or(Some(false), |all| all.then_some(true)))
        };
        Ok(wait(py, timeout, attempt)?.unwrap_or(false))
    }

    /// Accepts a message that an event of kind "offered" named: into a writable buffer, which must be
    /// left alone until the message, without bytes of its own, has come, and has room for the event's `bytes`: the
    /// rest is dropped; or into memory of denrei's.
    /// `queued`: leaves it to `Node.send_queued`, or to the next call that sends or polls, to say so, so that
    /// several offers that are accepted at once are one packet.
    #[pyo3(signature = (channel, number, into = None, *, queued = false))]
    fn accept(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] channel: u16,
        #[pyo3(from_py_with = numbers)] number: u64,
        into: Option<&Bound<'_, PyAny>>,
        queued: bool,
    ) -> PyResult<()> {
        let channel = self.channel(channel);
        let target = into.map(Target::new).transpose()?;
        if target.as_ref().is_some_and(|target| target.len() == 0) {
            return Err(PyValueError::new_err("the buffer is empty"));
        }
        let target: AcceptInto = match target {
            Some(target) => (Box::new(target) as Box<dyn Placement>).into(),
            None => Vec::new().into(),
        };
        self.verb(py, |node, _| match queued {
            true => node.queue_accept(channel, number, target),
            false => node.accept(channel, number, target),
        })
    }

    /// Refuses a message that an event of kind "offered" named.
    fn refuse(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] channel: u16,
        #[pyo3(from_py_with = numbers)] number: u64,
    ) -> PyResult<()> {
        let channel = self.channel(channel);
        self.verb(py, |node, _| node.refuse(channel, number))
    }

    /// Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
    fn set_priority(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers)] channel: u16,
        #[pyo3(from_py_with = numbers_in::<_, 0, PRIORITIES>)] priority: u8,
    ) -> PyResult<()> {
        let channel = self.channel(channel);
        self.verb(py, |node, _| node.set_priority(channel, priority))
    }

    /// Sets how fast the peer may send to this node: bytes per second (0: not at all, and then there is no
    /// burst to give), and bytes in a row; a burst of 0 lifts the limit whatever the rate is.
    #[pyo3(signature = (bytes_per_s, burst_bytes = None))]
    fn set_rate(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers_in::<_, 0, RATES>)] bytes_per_s: u64,
        #[pyo3(from_py_with = numbers_in::<_, 0, RATES>)] burst_bytes: Option<u64>,
    ) -> PyResult<()> {
        if burst_bytes.is_none() && bytes_per_s > 0 {
            return Err(PyValueError::new_err(
                "burst_bytes is missing: a rate needs the bytes that may come in a row; 0 lifts the \
                 limit whatever the rate is",
            ));
        }
        let burst_bytes = burst_bytes.unwrap_or(0);
        self.verb(py, |node, id| node.set_rate(id, Rate { bytes_per_s, burst_bytes }))
    }

    /// Sets the peer's share of what this node can receive: 1 to 10000, 100 if never set.
    ///
    /// It counts only while this node divides what comes: by grants, after packets of several peers were
    /// lost or marked together, among peers that have about as much left to send; or with the setting
    /// learn_rates by rates, once it is overrun or its host has a limit (host_bytes_per_s), among peers
    /// whose rate set_rate has not set. Else each sends as fast as its own window and rate let it.
    fn set_weight(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = numbers_in::<_, 1, WEIGHTS>)] weight: u32,
    ) -> PyResult<()> {
        self.verb(py, |node, id| node.set_weight(id, weight))
    }

    /// Sends again, now, what was sent longer ago than a round trip and is not acknowledged; how many
    /// packets were given up for it.
    fn retransmit(&self, py: Python<'_>) -> PyResult<u64> {
        self.node.call(py, |node| node.retransmit(self.id).map_err(error::peer))
    }

    /// Asks the peer for its state; an event of kind "status" with the number returned brings it.
    fn request_status(&self, py: Python<'_>) -> PyResult<u32> {
        self.node.call(py, |node| node.request_status(self.id).map_err(error::peer))
    }

    /// Messages that are not acknowledged.
    #[getter]
    fn queue_length(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.node.look(py, |node| node.queue_len(self.id))
    }

    /// The flow state as of now; `None` if the peer is gone.
    #[getter]
    fn flow(&self, py: Python<'_>) -> PyResult<Option<FlowState>> {
        self.node.call(py, |node| Ok(node.flow(self.id).map(FlowState::from)))
    }

    /// The peer's address; `None` if it is gone.
    #[getter]
    fn address(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.node.call(py, |node| Ok(node.flow(self.id).map(|flow| flow.addr.to_string())))
    }

    /// Says that this side will send no more.
    fn close_write(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.close_write(id))
    }

    /// Says that this side wants no more.
    fn close_read(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.close_read(id))
    }

    /// Ends the session in order, as soon as everything queued here is acknowledged: the peer may take it after that,
    /// which no "delivered" then reports. What the peer has not brought here by then is cut off, and named to it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.verb(py, |node, id| node.close(id))
    }

    /// Ends the session at once.
    #[pyo3(signature = (code = 0x8000, reason = ""))]
    fn abort(&self, py: Python<'_>, #[pyo3(from_py_with = numbers)] code: u16, reason: &str) -> PyResult<()> {
        self.verb(py, |node, id| node.abort(id, code, reason))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.id == other.id && self.node.local_addr() == other.node.local_addr()
    }

    fn __hash__(&self) -> u64 {
        self.id.as_u64()
    }

    fn __repr__(&self) -> String {
        format!("<denrei.{:?}>", self.id)
    }
}
