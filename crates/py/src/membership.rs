//! A member's side of groups: who waits to be asked, and what comes (M1–M10).

use crate::counters;
use crate::error::{self, DenreiError, GroupClosed};
use crate::held::Closable;
use crate::message::Message;
use crate::node::Node;
use crate::peer::Peer;
use crate::wait::{in_time, resolve, wait};
use denrei::{ChannelId, GroupId, GroupMessage, MembershipEnd, PeerId};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Joins a group's address; see `Node.join_group`.
pub(crate) fn join(py: Python<'_>, node: &Node, address: &str) -> PyResult<GroupListener> {
    let address = resolve(py, address)?;
    let listener = node.call(py, |node| node.join_group(address).map_err(error::open_group))?;
    let (address, is_heard) = (listener.address(), listener.is_heard());
    Ok(GroupListener { node: node.clone(), address, is_heard, listener: Closable::new(listener) })
}

/// Waits for openers who name this node as a member. Use it as a context manager, or call `close`; memberships
/// that it has brought go on.
#[pyclass(frozen, module = "denrei")]
pub(crate) struct GroupListener {
    node: Node,
    address: SocketAddr,
    is_heard: bool,
    listener: Closable<denrei::GroupListener>,
}

impl GroupListener {
    fn membership(&self, py: Python<'_>, membership: denrei::Membership) -> Membership {
        let (group, member, opener) = (membership.id(), membership.member(), membership.opener());
        // The session may be over by now, or the node closed: its messages are still here.
        let peer = self.node.look(py, |node| node.peer_at(opener)).ok().flatten();
        let peer = peer.unwrap_or(PeerId::from_u64(u64::MAX));
        let membership = Closable::new(membership);
        Membership { node: self.node.clone(), peer, group, member, opener, membership }
    }

    fn open(&self) -> PyResult<Arc<denrei::GroupListener>> {
        let closed = || DenreiError::new_err(format!("the listener at {} was closed", self.address));
        let what = format_args!("the listener at {}", self.address);
        self.listener.get_own(what)?.ok_or_else(closed)
    }
}

#[pymethods]
impl GroupListener {
    /// The group's address.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// Whether the address itself is heard. It is not where the host has no multicast, or the node hears as
    /// many addresses as it can, 63; groups come by unicast then.
    #[getter]
    fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Waits for a group that this node is made a member of; `TimeoutError` if none comes in time.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Membership> {
        let accepted = wait(py, timeout, |slice| self.open()?.next(slice).map_err(error::node))?;
        Ok(self.membership(py, in_time(accepted)?))
    }

    /// A group that this node was made a member of, if there is one.
    fn try_accept(&self, py: Python<'_>) -> PyResult<Option<Membership>> {
        let accepted = py.detach(|| self.open().map(|listener| listener.accept(Duration::ZERO)))?;
        Ok(accepted.map(|membership| self.membership(py, membership)))
    }

    /// Asks the node at an address to be made a member of its group, from the next message on, or with
    /// what it has retained; `accept` brings the membership.
    #[pyo3(signature = (opener, *, history = false))]
    fn ask(&self, py: Python<'_>, opener: &str, history: bool) -> PyResult<bool> {
        let opener = resolve(py, opener)?;
        py.detach(|| Ok(self.open()?.ask(opener, history)))
    }

    /// Stops waiting; calls fail from then on.
    fn close(&self, py: Python<'_>) {
        self.listener.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __repr__(&self) -> String {
        format!("<denrei.GroupListener {}>", self.address)
    }
}

/// The member's end of a group. Iterating over it yields its messages until the group ends in order. Use it as
/// a context manager, or call `close`.
#[pyclass(frozen, module = "denrei")]
pub(crate) struct Membership {
    node: Node,
    peer: PeerId,
    group: GroupId,
    member: u32,
    opener: SocketAddr,
    membership: Closable<denrei::Membership>,
}

fn ended(end: MembershipEnd) -> PyErr {
    match end {
        MembershipEnd::Closed | MembershipEnd::Left => GroupClosed::new_err(end.to_string()),
        _ => error::PeerLost::new_err(end.to_string()),
    }
}

impl Membership {
    fn message(&self, py: Python<'_>, message: GroupMessage) -> PyResult<Message> {
        let channel = ChannelId { peer: self.peer, channel: 0 };
        let message = denrei::Message { channel, number: message.number, data: message.data };
        Message::new(py, Peer::new(&self.node, self.peer), message)
    }

    /// Of one that was closed nothing is to be had.
    fn open(&self) -> PyResult<Arc<denrei::Membership>> {
        let what = format_args!("the member of the group of {}", self.opener);
        self.membership.get_own(what)?.ok_or_else(|| ended(MembershipEnd::Left))
    }
}

#[pymethods]
impl Membership {
    /// The group's number, the same at its opener.
    #[getter]
    fn id(&self) -> u64 {
        self.group.0
    }

    /// This member's id.
    #[getter]
    fn member(&self) -> u32 {
        self.member
    }

    /// The opener's address.
    #[getter]
    fn opener(&self) -> String {
        self.opener.to_string()
    }

    /// Takes the next message. `TimeoutError` if none comes in time, `GroupClosed` if all have been
    /// taken and the group has ended in order, `PeerLost` if it has not.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Message> {
        let received = wait(py, timeout, |slice| self.open()?.recv_timeout(slice).map_err(ended))?;
        self.message(py, in_time(received)?)
    }

    /// Takes the next message if one is here; otherwise as `recv`.
    fn try_recv(&self, py: Python<'_>) -> PyResult<Option<Message>> {
        let received = py.detach(|| self.open()?.try_recv().map_err(ended))?;
        received.map(|message| self.message(py, message)).transpose()
    }

    /// Why the membership is over, whatever is still to be taken; `None` while it goes on.
    #[getter]
    fn end(&self, py: Python<'_>) -> Option<String> {
        let end = |membership: Arc<denrei::Membership>| membership.end();
        py.detach(|| self.membership.get().map_or(Some(MembershipEnd::Left), end)).map(|end| end.to_string())
    }

    /// What this member has counted since it joined; `None` once the membership is over and forgotten.
    #[getter]
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let counted = py.detach(|| self.membership.get()?.counters());
        counted.map(|counted| counters::membership(py, counted)).transpose()
    }

    /// Leaves the group.
    fn leave(&self, py: Python<'_>) {
        py.detach(|| {
            if let Some(membership) = self.membership.get() {
                membership.leave();
            }
        });
    }

    /// Leaves the group, if it goes on, and lets go of the node: there is nothing to take any more.
    fn close(&self, py: Python<'_>) {
        self.membership.close(py);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Message> {
        self.recv(py, None).map_err(|error| {
            if error.is_instance_of::<GroupClosed>(py) { PyStopIteration::new_err(()) } else { error }
        })
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Membership {} of {}>", self.member, self.group)
    }
}
