//! Groups: one send, any number of receivers (M1–M10).

use crate::buffer::message_of;
use crate::config::set_by_keywords;
use crate::error::{self, QueueFull};
use crate::held::Closable;
use crate::node::Node;
use crate::number::numbers;
use crate::wait::{Signals, in_time, pickled, resolve, wait};
use denrei::{
    GroupError, GroupEvent as Happened, GroupId, GroupOptions, GroupStatus as Status, MemberStatus,
    set_group_option,
};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The options that keyword arguments make.
fn options_of(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<GroupOptions> {
    let mut options = GroupOptions::default();
    set_by_keywords(keywords, |name, value| {
        set_group_option(&mut options, name, value).map_err(error::config)
    })?;
    Ok(options)
}

/// Opens a group; see `Node.open_group`.
pub(crate) fn open(
    py: Python<'_>,
    node: &Node,
    address: &str,
    members: &[String],
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Group> {
    let (address, options) = (resolve(py, address)?, options_of(options)?);
    let members = members.iter().map(|member| resolve(py, member)).collect::<PyResult<Vec<_>>>()?;
    let signals = Signals::default();
    let over = || node.denrei().is_err() || signals.interrupt();
    let open = |node: &denrei::Node| {
        node.open_group_unless(address, &members, options, over).map_err(error::open_group)
    };
    let group = signals.outcome(node.call(py, open))?;
    let (address, id, left) = (group.address(), group.id(), Mutex::default());
    Ok(Group { address, id, group: Closable::new(group), left })
}

/// The opener's end of a group: what is sent reaches all its members. Use it as a context manager, or
/// call `close`.
#[pyclass(frozen, module = "denrei")]
pub(crate) struct Group {
    address: SocketAddr,
    id: GroupId,
    group: Closable<denrei::Group>,
    /// Events that were there when it was closed.
    left: Mutex<VecDeque<Happened>>,
}

impl Group {
    fn open(&self) -> PyResult<Arc<denrei::Group>> {
        self.own()?.ok_or_else(|| error::group(GroupError::Unknown(self.id)))
    }

    /// The group, unless it was closed.
    fn own(&self) -> PyResult<Option<Arc<denrei::Group>>> {
        self.group.get_own(format_args!("the group at {}", self.address))
    }

    /// The next event within a time; of one that was closed, one that was there then. An error if no more come.
    fn next_event(&self, timeout: Duration) -> PyResult<Option<Happened>> {
        let over = Err(GroupError::Unknown(self.id));
        let next = self.own()?.map_or(over, |group| group.next_event(timeout));
        // `close` may have taken them by now, or be about it.
        next.or_else(|over| self.left.lock().pop_front().map(Some).ok_or(over)).map_err(error::group)
    }

    fn status_now(&self, py: Python<'_>) -> Option<Status> {
        py.detach(|| self.group.get()?.status())
    }
}

#[pymethods]
impl Group {
    /// The group's address, such as "239.255.78.1:7411".
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    /// The group's number, the same at all its members.
    #[getter]
    fn id(&self) -> u64 {
        self.id.0
    }

    /// Sends a message to all members; waits while the queue is full, at most `timeout` seconds
    /// (`QueueFull` then). `data` is anything with a contiguous buffer; a large one is not copied, so
    /// it must not change until `flush`, unless `copy` is true. Returns its number in the group.
    #[pyo3(signature = (data, *, timeout = None, copy = false))]
    fn send(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        copy: bool,
    ) -> PyResult<u64> {
        let message = message_of(data, copy)?;
        let attempt = |slice| match self.open()?.send_timeout(message.clone(), slice) {
            Ok(number) => Ok(Some(number)),
            Err(GroupError::WouldBlock { .. }) => Ok(None),
            Err(error) => Err(error::group(error)),
        };
        let sent = wait(py, timeout, attempt);
        // Lent memory is given back without the interpreter's lock: whoever does takes it.
        py.detach(|| drop(message));
        sent?.ok_or_else(|| QueueFull::new_err("the queue to the group was full for the time given"))
    }

    /// Sends a Python object, pickled; members call `Message.object`.
    #[pyo3(signature = (object, *, timeout = None))]
    fn send_object(&self, py: Python<'_>, object: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<u64> {
        self.send(py, &pickled(object)?, timeout, false)
    }

    /// Waits until all members have acknowledged everything sent so far; whether they have. Not if the last member is
    /// lost before.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let flushed = |slice| {
            // One that is over has nothing left to wait for.
            let acknowledged = self.own()?.map_or(Ok(true), |group| group.wait_acknowledged(slice));
            Ok(acknowledged.map_or(Some(false), |all| all.then_some(true)))
        };
        Ok(wait(py, timeout, flushed)?.unwrap_or(false))
    }

    /// Ends the group in order: once all is sent members are told, and answer; whether all have. Lets go of
    /// the node: those that have not answered within `timeout` seconds are not waited for any more. Events that
    /// were not taken stay.
    #[pyo3(signature = (timeout = None))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let Some(group) = py.detach(|| self.group.get()) else {
            // What a child that was forked lets go of has not ended.
            return Ok(self.group.maker().is_this_process());
        };
        let closed = wait(py, timeout, |slice| Ok(group.close(slice).then_some(())));
        py.detach(|| {
            if closed.is_ok() {
                self.left.lock().extend(std::iter::from_fn(|| group.try_event()));
            }
            drop(group);
        });
        let closed = closed?.is_some();
        self.group.close(py);
        Ok(closed)
    }

    /// Takes the group's next event; `TimeoutError` if none comes in time, `GroupClosed` if all have been taken and the
    /// group has ended.
    #[pyo3(signature = (timeout = None))]
    fn event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<GroupEvent> {
        let event = wait(py, timeout, |slice| self.next_event(slice))?;
        Ok(GroupEvent::from(&in_time(event)?))
    }

    /// Takes the group's next event if there is one.
    fn try_event(&self, py: Python<'_>) -> Option<GroupEvent> {
        let event = py.detach(|| self.next_event(Duration::ZERO));
        event.ok().flatten().as_ref().map(GroupEvent::from)
    }

    /// Makes the node at an address a member, from the next message on, or with what the option
    /// `history_bytes` has retained. Returns its id; an event of kind "joined" says when it takes part,
    /// "departed" that it does not: it refused, or did not answer within `open_timeout`.
    #[pyo3(signature = (address, *, history = false))]
    fn add_member(&self, py: Python<'_>, address: &str, history: bool) -> PyResult<u32> {
        let address = resolve(py, address)?;
        py.detach(|| self.open()?.add_member(address, history).map_err(error::group))
    }

    /// Removes a member.
    fn remove_member(&self, py: Python<'_>, #[pyo3(from_py_with = numbers)] member: u32) -> PyResult<()> {
        py.detach(|| self.open()?.remove_member(member).map_err(error::group))
    }

    /// The members, as of now, and the last 64 or so of those who are none any more, which are not `active`; none if the
    /// group is over.
    #[getter]
    fn members(&self, py: Python<'_>) -> Vec<GroupMember> {
        let status = self.status_now(py);
        status.iter().flat_map(|status| &status.members).map(GroupMember::from).collect()
    }

    /// The state as of now, counters included; `None` if the group is over.
    #[getter]
    fn status(&self, py: Python<'_>) -> Option<GroupStatus> {
        self.status_now(py).map(GroupStatus::from)
    }

    /// Messages that not all members have acknowledged.
    #[getter]
    fn queue_length(&self, py: Python<'_>) -> u64 {
        let status = self.status_now(py);
        status.map_or(0, |status| status.messages_sent - status.messages_acknowledged)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py, None).map(drop)
    }

    fn __repr__(&self) -> String {
        format!("<denrei.Group {}>", self.address)
    }
}

/// Something that happened in a group. `kind` says what; the other fields are `None` where they have
/// no meaning.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct GroupEvent {
    /// "joined", "departed", "lagging", "caught_up", "closed" or "other".
    kind: &'static str,
    /// To which member.
    member: Option<u32>,
    /// Its address.
    address: Option<String>,
    /// The first message it gets, or the last one it has acknowledged.
    number: Option<u64>,
    /// Why it is a member no longer; what happened, if the kind is "other".
    reason: Option<String>,
}

impl From<&Happened> for GroupEvent {
    fn from(happened: &Happened) -> Self {
        let blank = |kind| Self { kind, member: None, address: None, number: None, reason: None };
        let about = |kind, member: &u32, addr: &SocketAddr, number| Self {
            member: Some(*member),
            address: Some(addr.to_string()),
            number,
            ..blank(kind)
        };
        match happened {
            Happened::Joined { member, addr, first_message } => {
                about("joined", member, addr, Some(*first_message))
            }
            Happened::Departed { member, addr, why, last_acknowledged } => {
                Self { reason: Some(why.to_string()), ..about("departed", member, addr, *last_acknowledged) }
            }
            Happened::Lagging { member, addr, last_acknowledged } => {
                about("lagging", member, addr, *last_acknowledged)
            }
            Happened::CaughtUp { member, addr } => about("caught_up", member, addr, None),
            Happened::Closed => blank("closed"),
            other => Self { reason: Some(format!("{other:?}")), ..blank("other") },
        }
    }
}

#[pymethods]
impl GroupEvent {
    fn __repr__(&self) -> String {
        let member = self.member.map(|member| format!(" member {member}")).unwrap_or_default();
        let reason = self.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("<denrei.GroupEvent {}{member}{reason}>", self.kind)
    }
}

/// A group's state, as the opener sees it: windows and credits are the least of all members' (M3, M5),
/// counters count since the group was opened.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct GroupStatus {
    /// Whether it is open.
    open: bool,
    /// Messages taken from the application.
    messages_sent: u64,
    /// Messages acknowledged by all.
    messages_acknowledged: u64,
    /// Bytes of messages not acknowledged by all.
    queued_bytes: u64,
    /// What may still be sent before the member with the least room has no more, bytes.
    credit_bytes: u64,
    /// Bytes that may be under way.
    window_bytes: u64,
    /// Packets sent to the group's address; none with the backend "tree", whose symbols go by the sessions with
    /// its first members: `unicast_symbols` counts them, `Peer.flow` of these the bytes.
    packets_sent: u64,
    /// Their bytes, UDP payload.
    bytes_sent: u64,
    /// Of these, packets that carried a symbol for the first time.
    symbols_sent: u64,
    /// Their bytes, UDP payload: what has to be sent where nothing is lost.
    symbol_bytes: u64,
    /// Symbols sent to single members, repairs included.
    unicast_symbols: u64,
    /// Symbols sent again to the group's address.
    multicast_repairs: u64,
    /// Symbols sent again to single members.
    unicast_repairs: u64,
    /// Parity packets sent.
    parity_sent: u64,
    /// Reports of members taken in.
    reports: u64,
    /// Of these, those that named something missing.
    reports_with_gaps: u64,
    /// Polls sent.
    polls: u64,
}

impl From<Status> for GroupStatus {
    fn from(status: Status) -> Self {
        let counters = status.counters;
        Self {
            open: status.open,
            messages_sent: status.messages_sent,
            messages_acknowledged: status.messages_acknowledged,
            queued_bytes: status.queued_bytes,
            credit_bytes: status.credit_bytes,
            window_bytes: status.window_bytes,
            packets_sent: counters.packets_sent,
            bytes_sent: counters.bytes_sent,
            symbols_sent: counters.symbols_sent,
            symbol_bytes: counters.symbol_bytes,
            unicast_symbols: counters.unicast_symbols,
            multicast_repairs: counters.multicast_repairs,
            unicast_repairs: counters.unicast_repairs,
            parity_sent: counters.parity_sent,
            reports: counters.reports,
            reports_with_gaps: counters.reports_with_gaps,
            polls: counters.polls,
        }
    }
}

#[pymethods]
impl GroupStatus {
    fn __repr__(&self) -> String {
        let acknowledged = self.messages_acknowledged;
        format!("<denrei.GroupStatus: {acknowledged} of {} messages acknowledged>", self.messages_sent)
    }
}

/// A member, as the opener sees it.
#[pyclass(frozen, get_all, module = "denrei")]
pub(crate) struct GroupMember {
    /// Its id.
    member: u32,
    /// Its address.
    address: String,
    /// Whether it takes part now.
    active: bool,
    /// Whether it is served by itself because it is slow.
    lagging: bool,
    /// "multicast", "unicast" or "relay".
    path: String,
    /// Messages it has acknowledged.
    messages_acknowledged: u64,
    /// Symbols sent that it has not acknowledged.
    symbols_behind: u64,
    /// Symbols it reported missing.
    symbols_missed: u64,
    /// Smoothed round-trip time, seconds; `None` before the first sample.
    srtt: Option<f64>,
    /// The share of packets to the group's address that it loses, restored or not; `None`: not known.
    loss: Option<f64>,
}

impl From<&MemberStatus> for GroupMember {
    fn from(member: &MemberStatus) -> Self {
        Self {
            member: member.member,
            address: member.addr.to_string(),
            active: member.active,
            lagging: member.lagging,
            path: format!("{:?}", member.path).to_lowercase(),
            messages_acknowledged: member.messages_acknowledged,
            symbols_behind: member.symbols_behind,
            symbols_missed: member.symbols_missed,
            srtt: member.srtt_ns.map(|ns| ns as f64 / 1e9),
            loss: member.loss,
        }
    }
}

#[pymethods]
impl GroupMember {
    fn __repr__(&self) -> String {
        let state = match (self.active, self.lagging) {
            (false, _) => "not active",
            (true, true) => "lagging",
            (true, false) => &self.path,
        };
        format!("<denrei.GroupMember {} at {}, {state}>", self.member, self.address)
    }
}
