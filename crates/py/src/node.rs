//! Nodes.

use crate::cast::{self, CastReceipt, CastReport};
use crate::config::from_keywords;
use crate::counters;
use crate::error::{self, DenreiError};
use crate::event::Event;
use crate::group::{self, Group};
use crate::held::Closable;
use crate::membership::{self, GroupListener};
use crate::message::Message;
use crate::number::{numbers, several_numbers, several_numbers_or_none};
use crate::peer::Peer;
use crate::wait::{in_time, resolve, several, wait};
use denrei::{ChannelId, Incoming, PeerId, RecvError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// One UDP port, and all the peers that are spoken to through it. Use it as a context manager, or call
/// `close`; without, the port is closed with the last reference to the node, its peers and messages.
#[pyclass(frozen, module = "denrei")]
#[derive(Clone)]
pub(crate) struct Node {
    port: Arc<Port>,
}

/// What all references to a node share.
struct Port {
    node: Closable<denrei::Node>,
    address: SocketAddr,
    incarnation: u64,
}

/// Whether a node still works: nobody's channel never has a message, and says so only then.
fn check(node: &denrei::Node) -> PyResult<()> {
    let nobody = ChannelId { peer: PeerId::from_u64(u64::MAX), channel: 0 };
    match node.recv_from(nobody, Duration::ZERO) {
        Err(error @ RecvError::Node(_)) => Err(error::recv(error)),
        _ => Ok(()),
    }
}

impl Node {
    /// The node, unless it was closed. To be called, and let go, without the interpreter's lock: what is
    /// let go last closes the port, and waits for threads that may be waiting for that lock.
    pub fn denrei(&self) -> PyResult<denrei::Node> {
        let (address, node) = (self.port.address, &self.port.node);
        let closed = || DenreiError::new_err(format!("the node at {address} was closed"));
        let own = node.get_own(format_args!("the node at {address}"))?;
        own.map(|node| denrei::Node::clone(&node)).ok_or_else(closed)
    }

    /// Calls something of the node's without the interpreter's lock.
    pub fn call<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&denrei::Node) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| call(&self.denrei()?))
    }

    /// The same for what cannot fail.
    pub fn look<T: Send>(&self, py: Python<'_>, call: impl FnOnce(&denrei::Node) -> T + Send) -> PyResult<T> {
        self.call(py, |node| Ok(call(node)))
    }

    /// The address bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.port.address
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
        let (address, config) = (resolve(py, address)?, from_keywords(settings)?);
        let node = py.detach(|| denrei::Node::bind(address, config)).map_err(error::bind)?;
        let (address, incarnation) = (node.local_addr(), node.incarnation().0);
        Ok(Self { port: Arc::new(Port { node: Closable::new(node), address, incarnation }) })
    }

    /// Closes the port: what waits for the node ends with `DenreiError`, casts and the opening of groups included; peers
    /// are told that the node is gone, and what was not acknowledged is lost, so `Peer.flush` before, or `Peer.close` and
    /// wait for the event "peer_lost". Sets, groups, listeners and memberships of the node keep the port until they are
    /// closed too. Calls fail from then on; what was taken from the node stays.
    fn close(&self, py: Python<'_>) {
        self.port.node.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// The address bound, such as "127.0.0.1:40123".
    #[getter]
    fn address(&self) -> String {
        self.port.address.to_string()
    }

    /// Which start of this node this is.
    #[getter]
    fn incarnation(&self) -> u64 {
        self.port.incarnation
    }

    /// Opens a session with the node at an address, or names the one there is. Returns at once.
    fn connect(&self, py: Python<'_>, address: &str) -> PyResult<Peer> {
        let address = resolve(py, address)?;
        let id = self.call(py, |node| node.connect(address).map_err(error::connect))?;
        Ok(Peer::new(self, id))
    }

    /// The live peer at an address, or `None`.
    fn peer_at(&self, py: Python<'_>, address: &str) -> PyResult<Option<Peer>> {
        let address = resolve(py, address)?;
        Ok(self.look(py, |node| node.peer_at(address))?.map(|id| Peer::new(self, id)))
    }

    /// All peers in the address table.
    fn peers(&self, py: Python<'_>) -> PyResult<Vec<Peer>> {
        let flows = self.look(py, |node| node.peers())?;
        Ok(flows.iter().map(|flow| Peer::new(self, flow.peer)).collect())
    }

    /// Opens a group at a multicast address, such as "239.255.78.1:7411", with the nodes at `members`,
    /// and waits until every one takes part. Options are keyword arguments; `denrei.GROUP_OPTIONS`
    /// lists them. Members call `join_group` before.
    #[pyo3(signature = (address, members, **options))]
    fn open_group(
        &self,
        py: Python<'_>,
        address: &str,
        #[pyo3(from_py_with = several)] members: Vec<String>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Group> {
        group::open(py, self, address, &members, options)
    }

    /// Joins a multicast address: openers may from now on name this node as a member of groups there.
    fn join_group(&self, py: Python<'_>, address: &str) -> PyResult<GroupListener> {
        membership::join(py, self, address)
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
        #[pyo3(from_py_with = several)] paths: Vec<PathBuf>,
        #[pyo3(from_py_with = several)] members: Vec<String>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<CastReport> {
        cast::send(py, self, &paths, &members, progress, options)
    }

    /// Sends what can be read from `source`, a file, pipe or socket (anything with a `fileno`, or a
    /// descriptor), to its end, as one stream: otherwise as `cast_send`. Who receives into a directory
    /// gets a file of the name that the option `name` says ("stdin" if none). Of what was read the option
    /// `retain_bytes` (64 MiB) is kept for receivers that are late or slow.
    #[pyo3(signature = (source, members = Vec::new(), *, progress = None, **options))]
    fn cast_send_stream(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = several)] members: Vec<String>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<CastReport> {
        cast::send_stream(py, self, source, &members, progress, options)
    }

    /// Waits for one cast of a stream or a single file, and writes its bytes to `target` (anything with a
    /// `fileno`, or a descriptor) as they come, so a part of them if the sender gives up: otherwise as
    /// `cast_receive`.
    #[pyo3(signature = (target, *, progress = None, **options))]
    fn cast_receive_stream(
        &self,
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<CastReceipt> {
        cast::receive_stream(py, self, target, progress, options)
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
        let received = wait(py, timeout, |slice| self.denrei()?.recv_timeout(slice).map_err(error::node))?;
        self.message(py, in_time(received)?)
    }

    /// Takes the next message of any peer if one is here.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let received = self.call(py, |node| node.try_recv().map_err(error::node))?;
        received.map(|message| self.message(py, message)).transpose()
    }

    /// Takes the next message or event, whichever is there first; `TimeoutError` if none comes in time.
    /// Events come before messages that arrived with them, but that a peer will send no more comes after
    /// what it has sent.
    #[pyo3(signature = (timeout = None))]
    fn next<'py>(&self, py: Python<'py>, timeout: Option<f64>) -> PyResult<Bound<'py, PyAny>> {
        let next = wait(py, timeout, |slice| self.denrei()?.next(slice).map_err(error::node))?;
        self.incoming(py, in_time(next)?)
    }

    /// Takes the next message or event if one is here.
    fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = self.call(py, |node| node.next(Duration::ZERO).map_err(error::node))?;
        next.map(|incoming| self.incoming(py, incoming)).transpose()
    }

    /// Takes the next event; `TimeoutError` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Event> {
        let event = wait(py, timeout, |slice| self.denrei()?.next_event(slice).map_err(error::node))?;
        Event::new(py, self, in_time(event)?)
    }

    /// Takes the next event if one is here.
    fn try_event(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let event = self.look(py, |node| node.try_event())?;
        event.map(|event| Event::new(py, self, event)).transpose()
    }

    /// Does what is due now without waiting, for drive="inline"; whether there may be something to drain.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |node| node.poll())
    }

    /// Waits until there is a message or an event to take, without taking it; whether there is.
    #[pyo3(signature = (timeout = None))]
    fn wait_incoming(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        Ok(wait(py, timeout, |slice| Ok(self.denrei()?.wait_incoming(slice).then_some(())))?.is_some())
    }

    /// Takes events and messages that are here, in the order of `next`, at most `most`. Given `channels`,
    /// pairs of a peer and a channel, messages of others stay; so do those of the channels whose numbers
    /// are in `leave`. By and by the senders of what stays run out of credit. Never waits, and does not
    /// look at the socket: `poll` does, and the node's thread.
    #[pyo3(signature = (most = 1024, *, channels = None, leave = Vec::new()))]
    fn drain<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = numbers)] most: usize,
        #[pyo3(from_py_with = several_numbers_or_none)] channels: Option<Vec<(Bound<'py, Peer>, u16)>>,
        #[pyo3(from_py_with = several_numbers)] leave: Vec<u16>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let named = |(peer, channel): (Bound<'_, Peer>, u16)| peer.get().channel(channel);
        let wanted = channels.map(|channels| channels.into_iter().map(named).collect::<HashSet<_>>());
        let mut taken = Vec::new();
        self.call(py, |node| {
            let is_wanted = |channel: ChannelId| {
                let named = wanted.as_ref().is_none_or(|wanted| wanted.contains(&channel));
                named && !leave.contains(&channel.channel)
            };
            node.drain(most, is_wanted, |incoming| taken.push(incoming));
            Ok(())
        })?;
        taken.into_iter().map(|incoming| self.incoming(py, incoming)).collect()
    }

    /// Sends what `Peer.queue` has queued, and what else is due.
    fn send_queued(&self, py: Python<'_>) -> PyResult<()> {
        self.look(py, |node| node.send_queued())
    }

    /// A descriptor for event loops: readable when there may be something to take. Then call
    /// `clear_news` first, and `try_next` until it returns `None`.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.call(py, |node| Ok(node.news_fd().map(|fd| fd.as_raw_fd())?))
    }

    /// Makes the descriptor unreadable until there is news again; `DenreiError` if the node has failed, and there will be
    /// none.
    fn clear_news(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |node| {
            node.clear_news();
            check(node)
        })
    }

    /// Waits until a message is here, without taking it: who has sent it, on which channel, and its
    /// bytes; `None` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn ready(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<(Peer, u16, usize)>> {
        let ready = wait(py, timeout, |slice| Ok(self.denrei()?.ready(slice)))?;
        Ok(ready.map(|(channel, bytes)| (Peer::new(self, channel.peer), channel.channel, bytes)))
    }

    /// What the protocol has counted since the node was opened: datagrams, and those it did not take.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::endpoint(py, self.look(py, |node| node.counters())?)
    }

    /// What the sockets have counted since the node was opened.
    #[getter]
    fn io_counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::io(py, self.look(py, |node| node.io_counters())?)
    }

    /// What the port can do: backend, segmentation offload, ECN, sizes of its buffers.
    #[getter]
    fn capabilities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        counters::port(py, self.look(py, |node| node.capabilities())?)
    }

    /// What the user should know and can change about this host.
    fn warnings(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.look(py, |node| node.warnings())
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Node {}>", self.port.address)
    }
}
