//! Nodes.

use crate::cast::{self, CastReceipt, CastReport};
use crate::config::from_keywords;
use crate::counters;
use crate::error;
use crate::event::Event;
use crate::group::{self, Group, GroupListener};
use crate::held::Held;
use crate::message::Message;
use crate::peer::Peer;
use crate::wait::{in_time, resolve, wait};
use denrei::Incoming;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;
/// One UDP port, and all the peers that are spoken to through it.
#[pyclass(frozen, module = "denrei")]
#[derive(Clone)]
pub(crate) struct Node {
    node: Held<denrei::Node>,
}

impl Node {
    pub fn denrei(&self) -> &denrei::Node {
        &self.node
    }

    pub fn message(&self, py: Python<'_>, message: denrei::Message) -> PyResult<Message> {
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

    /// Sends files and directories to the nodes at `members`, all of which call `cast_receive`; or, if
    /// none are named, to whoever comes, as soon as `min_members` have. Returns a report when each has
    /// everything or is given up; what failed is in it. `progress` is called five times a second with a
    /// `CastProgress`; if it returns `False` or raises, the cast is broken off. Options are keyword
    /// arguments; `denrei.CAST_OPTIONS` lists them. Nobody else may use this node meanwhile.
    #[pyo3(signature = (paths, members = Vec::new(), *, progress = None, **options))]
    fn cast_send(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        members: Vec<String>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<CastReport> {
        cast::send(py, self, &paths, &members, progress, options)
    }

    /// Waits for one cast and receives it into the directory `into`, where it appears when it is
    /// complete and verified; what has come is kept whatever happens, and the next call goes on from
    /// there. Waits without limit for a sender, or for the option `wait` (`TimeoutError` then). As to
    /// `progress` and options, see `cast_send`.
    #[pyo3(signature = (into, *, progress = None, **options))]
    fn cast_receive(
        &self,
        py: Python<'_>,
        into: PathBuf,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<CastReceipt> {
        cast::receive(py, self, &into, progress, options)
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

    /// Waits until a message is here, without taking it: who has sent it, on which channel, and its
    /// bytes; `None` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn ready(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(Peer, u16, usize)>> {
        let ready = wait(py, timeout, |slice| Ok(self.node.ready(slice)))?;
        Ok(ready.map(|(channel, bytes)| (Peer::new(self, channel.peer), channel.channel, bytes)))
    }

    /// What the protocol has counted since the node was opened: datagrams, and those it did not take.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::endpoint(py, py.detach(|| self.node.counters()))
    }

    /// What the sockets have counted since the node was opened.
    #[getter]
    fn io_counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::io(py, py.detach(|| self.node.io_counters()))
    }

    /// What the port can do: backend, segmentation offload, ECN, sizes of its buffers.
    #[getter]
    fn capabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::port(py, py.detach(|| self.node.capabilities()))
    }

    /// What the user should know and can change about this host.
    fn warnings(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.node.warnings())
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Node {}>", self.node.local_addr())
    }
}
