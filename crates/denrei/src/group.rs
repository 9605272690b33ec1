//! Groups: one send, any number of receivers (M1–M10).
//!
//! Inputs → outputs: calls → the core's groups and the socket's. [`Group`] is the opener's end,
//! [`GroupListener`] waits for groups to be made a member of, [`Membership`] is the member's end. A Node
//! may have many of each, on its one port.

mod member;
mod opening;

pub use member::{GroupListener, Membership};

use crate::core::Core;
use crate::{Node, NodeError};
use bytes::Bytes;
use denrei_proto::group::{GroupError, GroupEvent, GroupId, GroupStatus};
use std::net::SocketAddr;
use std::thread::Builder;
use std::time::Duration;
use thiserror::Error;

/// What opening waits beyond the group's own timeout for the core to say how it went.
pub(crate) const OPENING_GRACE: Duration = Duration::from_secs(2);

/// How often somebody who waits is asked whether to give up.
pub(crate) const MOMENT: Duration = Duration::from_millis(50);

/// How long a group that is dropped has to end in order.
const DROP_GRACE: Duration = Duration::from_millis(500);

/// Why a group could not be opened or joined.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenGroupError {
    /// The protocol says no.
    #[error("{0}")]
    Group(#[from] GroupError),
    /// The system says no.
    #[error(
        "cannot use the multicast address {address}: {source}; `denrei doctor` says what this host can, and \
         GroupBackend::Unicast needs no multicast"
    )]
    Socket {
        /// The group's address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The Node is of no use any more.
    #[error("{0}")]
    Node(#[from] NodeError),
    /// Whoever opens it wanted it no more.
    #[error("given up before all members took part")]
    Interrupted,
}

/// The opener's end of a group. Dropping it ends the group; [`close`](Self::close) says when all have
/// everything.
#[derive(Debug)]
pub struct Group {
    node: Node,
    id: GroupId,
    address: SocketAddr,
}

impl Group {
    /// The group's name, the same at all members.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// The group's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether a message of so many bytes would be sent, were there room in the queue: for callers that have to copy a
    /// large one before, and need not for one that is refused.
    ///
    /// # Errors
    /// As for [`send`](Self::send).
    pub fn check_send(&self, bytes: u64) -> Result<(), GroupError> {
        self.node.with_core(|core, _| core.endpoint.group_check_send(self.id, bytes))
    }

    /// Sends a message to all members; waits while the queue is full. Its number. A `Bytes` is not
    /// copied before it goes out.
    ///
    /// # Errors
    /// See [`GroupError`] (never `WouldBlock`); the message was not taken.
    pub fn send(&self, message: impl Into<Bytes>) -> Result<u64, GroupError> {
        self.send_within(message.into(), None)
    }

    /// Like [`send`](Self::send), and waits at most `timeout`.
    ///
    /// # Errors
    /// [`GroupError::WouldBlock`] if the queue is still full; others as for [`send`](Self::send).
    pub fn send_timeout(&self, message: impl Into<Bytes>, timeout: Duration) -> Result<u64, GroupError> {
        self.send_within(message.into(), Some(timeout))
    }

    /// Sends a message if the queue has room.
    ///
    /// # Errors
    /// [`GroupError::WouldBlock`] if not; others as for [`send`](Self::send).
    pub fn try_send(&self, message: impl Into<Bytes>) -> Result<u64, GroupError> {
        // How it becomes octets is the application's affair: not under the lock.
        let message = message.into();
        let sent = self.node.with_core(|core, _| core.group_send(self.id, message));
        self.node.shared().kick();
        sent
    }

    fn send_within(&self, message: Bytes, timeout: Option<Duration>) -> Result<u64, GroupError> {
        let full = match self.try_send(message.clone()) {
            Err(full @ GroupError::WouldBlock { .. }) => full,
            result => return result,
        };
        let sent = self.node.shared().wait_for(timeout, |core| self.push(core, &message));
        self.node.shared().kick();
        sent.unwrap_or(Err(full))
    }

    /// Like [`send`](Self::send), without blocking the task. Starts the Node's background thread if there is none. A
    /// future that is dropped has sent nothing.
    ///
    /// # Errors
    /// As for [`send`](Self::send); [`GroupError::Deserted`] also if that thread cannot be started.
    pub async fn send_async(&self, message: impl Into<Bytes>) -> Result<u64, GroupError> {
        self.start_thread()?;
        let message = message.into();
        let sent = self.node.resolve_group(|core| self.push(core, &message)).await;
        self.node.shared().kick();
        sent
    }

    fn start_thread(&self) -> Result<(), GroupError> {
        self.node.start_thread().map_err(|_| GroupError::Deserted(self.id))
    }

    /// Queues a message; `None`: there is no room.
    fn push(&self, core: &mut Core, message: &Bytes) -> Option<Result<u64, GroupError>> {
        match core.group_send(self.id, message.clone()) {
            Err(GroupError::WouldBlock { .. }) => None,
            result => Some(result),
        }
    }

    /// Waits until every member that counts has acknowledged everything sent so far, at most
    /// `timeout`; whether it is so. Not if no member is left before: [`wait_acknowledged`](Self::wait_acknowledged)
    /// says so, and [`GroupEvent::Departed`] which messages each had.
    pub fn flush(&self, timeout: Duration) -> bool {
        self.wait_acknowledged(timeout).unwrap_or(false)
    }

    /// Like [`flush`](Self::flush), and says why there is nothing to wait for.
    ///
    /// # Errors
    /// [`GroupError::Deserted`]: no member is left, and not everything was acknowledged by the last of them.
    pub fn wait_acknowledged(&self, timeout: Duration) -> Result<bool, GroupError> {
        self.hurry();
        let flushed = self.node.shared().wait_for(Some(timeout), |core| self.flushed(core));
        flushed.map_or(Ok(false), |flushed| flushed.map(|()| true))
    }

    /// Waits until every member that counts has acknowledged everything sent so far, without blocking the task. Starts
    /// the Node's background thread if there is none.
    ///
    /// # Errors
    /// As for [`wait_acknowledged`](Self::wait_acknowledged), and where that thread cannot be started.
    pub async fn wait_acknowledged_async(&self) -> Result<(), GroupError> {
        self.start_thread()?;
        self.hurry();
        self.node.resolve_group(|core| self.flushed(core)).await
    }

    fn hurry(&self) {
        // A group that is over has nothing to hurry with.
        let _ = self.node.with_core(|core, _| core.endpoint.group_hurry(self.id));
        self.node.shared().kick();
    }

    /// Whether all is acknowledged, or never will be; `None`: not yet.
    fn flushed(&self, core: &Core) -> Option<Result<(), GroupError>> {
        match core.endpoint.group_is_flushed(self.id) {
            Ok(false) if core.broken => Some(Err(GroupError::Deserted(self.id))),
            Ok(false) => None,
            answer => Some(answer.map(|_| ())),
        }
    }

    /// Ends the group in order: FIN once all is sent, then the members' answers. Whether all of them
    /// have answered within `timeout`; what still comes can be seen in [`event_timeout`](Self::event_timeout).
    pub fn close(&self, timeout: Duration) -> bool {
        close(&self.node, self.id, timeout)
    }

    /// Ends the group in order, as [`close`](Self::close) does, without blocking the task: resolves when all members
    /// have answered, or departed by the group's policy. Dropping a group that is closed waits for nothing; one that
    /// is not, for its members' answers, half a second at most. A future that is dropped has the group end all the
    /// same. Starts the Node's background thread if there is none.
    ///
    /// # Errors
    /// [`GroupError::Deserted`]: the Node has failed, or that thread cannot be started.
    pub async fn close_async(&self) -> Result<(), GroupError> {
        self.start_thread()?;
        if !begin_closing(&self.node, self.id) {
            return Ok(());
        }
        self.node.resolve_group(|core| over(core, self.id).map(Ok).or_else(|| self.failed(core))).await
    }

    /// Whether nobody drives the group any more.
    fn failed<T>(&self, core: &Core) -> Option<Result<T, GroupError>> {
        core.failure.is_some().then_some(Err(GroupError::Deserted(self.id)))
    }

    /// The group's state: values are minima over the members (M3, M5, M6).
    pub fn status(&self) -> Option<GroupStatus> {
        self.node.with_core(|core, _| core.endpoint.group_status(self.id))
    }

    /// The next event, if there is one.
    pub fn try_event(&self) -> Option<GroupEvent> {
        self.event_timeout(Duration::ZERO)
    }

    /// Waits for the next event, at most `timeout`, and not where [no more comes](Self::next_event).
    pub fn event_timeout(&self, timeout: Duration) -> Option<GroupEvent> {
        self.next_event(timeout).ok().flatten()
    }

    /// Waits for the next event; `None` if there is none within `timeout`.
    ///
    /// # Errors
    /// All have been taken and the group is over, with or without its members' answers: nothing happens to it any more.
    pub fn next_event(&self, timeout: Duration) -> Result<Option<GroupEvent>, GroupError> {
        self.node.shared().wait_for(Some(timeout), |core| self.event_or_end(core)).transpose()
    }

    /// The next event, without blocking the task. Starts the Node's background thread if there is none.
    ///
    /// # Errors
    /// As for [`next_event`](Self::next_event); [`GroupError::Deserted`]: the Node has failed, or that thread cannot be
    /// started.
    pub async fn event_async(&self) -> Result<GroupEvent, GroupError> {
        self.start_thread()?;
        self.node.resolve_group(|core| self.event_or_end(core).or_else(|| self.failed(core))).await
    }

    /// The next event, or that none comes any more.
    fn event_or_end(&self, core: &mut Core) -> Option<Result<GroupEvent, GroupError>> {
        let event = core.endpoint.poll_group_event(self.id).map(Ok);
        event.or_else(|| over(core, self.id).map(|()| Err(GroupError::Unknown(self.id))))
    }

    /// Makes the Node at `addr` a member, from the next message on, or with what is retained
    /// (`history`; see [`history_bytes`](crate::GroupOptions::history_bytes)). Its id; [`GroupEvent::Joined`] says
    /// when it takes part, [`GroupEvent::Departed`] that it does not: it refused, or did not answer within
    /// [`open_timeout`](crate::GroupOptions::open_timeout). The others do not wait for its answer.
    ///
    /// # Errors
    /// It is one already, or cannot be one; or the group is closing, or over.
    pub fn add_member(&self, addr: SocketAddr, history: bool) -> Result<u32, GroupError> {
        let addr = self.node.member_at(addr)?;
        self.node.act_on_groups(|groups, now| groups.add_group_member(now, self.id, addr, history))
    }

    /// Removes a member.
    ///
    /// # Errors
    /// No such member.
    pub fn remove_member(&self, member: u32) -> Result<(), GroupError> {
        self.node.act_on_groups(|groups, now| groups.remove_group_member(now, self.id, member))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.node.is_own() {
            return;
        }
        let (node, id) = (self.node.clone(), self.id);
        if !self.node.runs_this_thread() {
            return end(&node, id);
        }
        // With a task that this thread woke: it cannot wait for itself.
        let started = Builder::new().name("denrei-end".into()).spawn(move || end(&node, id));
        if started.is_err() {
            forget(&self.node, id);
        }
    }
}

/// Says that no more comes; whether there is anything to wait for.
fn begin_closing(node: &Node, id: GroupId) -> bool {
    node.is_own() && node.act_on_groups(|groups, _| groups.close_group(id)).is_ok()
}

/// Whether a group has ended.
fn over(core: &Core, id: GroupId) -> Option<()> {
    core.endpoint.group_queue_bytes(id).is_none().then_some(())
}

/// Ends a group in order; whether all members have answered within `timeout`.
fn close(node: &Node, id: GroupId, timeout: Duration) -> bool {
    !begin_closing(node, id) || node.shared().wait_for(Some(timeout), |core| over(core, id)).is_some()
}

/// Ends a group that nobody has a handle of any more.
fn end(node: &Node, id: GroupId) {
    close(node, id, DROP_GRACE);
    forget(node, id);
}

fn forget(node: &Node, id: GroupId) {
    node.with_core(|core, now| core.endpoint.forget_group(now, id));
    node.shared().kick();
}

#[cfg(test)]
mod tests;
