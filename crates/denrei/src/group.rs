//! Groups: one send, any number of receivers (M1–M10).
//!
//! Inputs → outputs: calls → the core's groups and the socket's. [`Group`] is the opener's end,
//! [`GroupListener`] waits for groups to be made a member of, [`Membership`] is the member's end. A Node
//! may have many of each, on its one port.

mod opening;

use crate::core::Core;
use crate::node::failure;
use crate::{Node, NodeError};
use bytes::Bytes;
use denrei_proto::group::{
    GroupError, GroupEvent, GroupId, GroupMessage, GroupStatus, Invited, MembershipCounters, MembershipEnd,
};
use std::net::SocketAddr;
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

/// Waits for openers who name this Node as a member. Dropping it, the last one at its address, stops the waiting,
/// and leaves groups whose membership nobody was given.
#[derive(Debug)]
pub struct GroupListener {
    node: Node,
    address: SocketAddr,
    heard: bool,
}

/// The member's end of a group. Dropping it leaves the group.
#[derive(Debug)]
pub struct Membership {
    node: Node,
    id: GroupId,
    address: SocketAddr,
    member: u32,
    opener: SocketAddr,
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
        let sent = self.node.with_core(|core, _| core.group_send(self.id, message.into()));
        self.node.shared().kick();
        sent
    }

    fn send_within(&self, message: Bytes, timeout: Option<Duration>) -> Result<u64, GroupError> {
        let full = match self.try_send(message.clone()) {
            Err(full @ GroupError::WouldBlock { .. }) => full,
            result => return result,
        };
        let push = |core: &mut Core| match core.group_send(self.id, message.clone()) {
            Err(GroupError::WouldBlock { .. }) => None,
            result => Some(result),
        };
        let sent = self.node.shared().wait_for(timeout, push);
        self.node.shared().kick();
        sent.unwrap_or(Err(full))
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
        // A group that is over has nothing to hurry with.
        let _ = self.node.with_core(|core, _| core.endpoint.group_hurry(self.id));
        self.node.shared().kick();
        let flushed = |core: &mut Core| match core.endpoint.group_is_flushed(self.id) {
            Ok(false) if core.broken => Some(Err(GroupError::Deserted(self.id))),
            Ok(false) => None,
            answer => Some(answer),
        };
        self.node.shared().wait_for(Some(timeout), flushed).unwrap_or(Ok(false))
    }

    /// Ends the group in order: FIN once all is sent, then the members' answers. Whether all of them
    /// have answered within `timeout`; what still comes can be seen in [`event_timeout`](Self::event_timeout).
    pub fn close(&self, timeout: Duration) -> bool {
        if !self.node.is_own() || self.node.with_core(|core, _| core.endpoint.close_group(self.id)).is_err() {
            return true;
        }
        self.node.shared().kick();
        let over = |core: &mut Core| core.endpoint.group_queue_bytes(self.id).is_none().then_some(());
        self.node.shared().wait_for(Some(timeout), over).is_some()
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
        let next = |core: &mut Core| match core.endpoint.poll_group_event(self.id) {
            None => core
                .endpoint
                .group_queue_bytes(self.id)
                .is_none()
                .then_some(Err(GroupError::Unknown(self.id))),
            Some(event) => Some(Ok(event)),
        };
        self.node.shared().wait_for(Some(timeout), next).transpose()
    }

    /// Makes the Node at `addr` a member, from the next message on, or with what is retained
    /// (`history`; see [`history_bytes`](crate::GroupOptions::history_bytes)). Its id; [`GroupEvent::Joined`] says
    /// when it takes part, [`GroupEvent::Departed`] that it does not: it refused, or did not answer within
    /// [`open_timeout`](crate::GroupOptions::open_timeout). The others do not wait for its answer.
    ///
    /// # Errors
    /// It is one already, or cannot be one.
    pub fn add_member(&self, addr: SocketAddr, history: bool) -> Result<u32, GroupError> {
        let addr = self.node.member_at(addr)?;
        let added =
            self.node.with_core(|core, now| core.endpoint.add_group_member(now, self.id, addr, history));
        self.node.shared().kick();
        added
    }

    /// Removes a member.
    ///
    /// # Errors
    /// No such member.
    pub fn remove_member(&self, member: u32) -> Result<(), GroupError> {
        let removed =
            self.node.with_core(|core, now| core.endpoint.remove_group_member(now, self.id, member));
        self.node.shared().kick();
        removed
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.node.is_own() {
            return;
        }
        self.close(DROP_GRACE);
        self.node.with_core(|core, now| core.endpoint.forget_group(now, self.id));
        self.node.shared().kick();
    }
}

impl GroupListener {
    /// The address joined.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the address itself is heard. It is not where the host has no multicast, or the Node hears as many
    /// addresses as it can, 63; groups come by unicast then.
    pub fn is_heard(&self) -> bool {
        self.heard
    }

    /// Waits at most `timeout` for a group that this Node is made a member of, also where the Node has failed and
    /// [none comes](Self::next).
    pub fn accept(&self, timeout: Duration) -> Option<Membership> {
        self.node.shared().wait_for(Some(timeout), |core| self.begun(core))
    }

    /// Waits for a group that this Node is made a member of; `None` if it is of none within `timeout`.
    ///
    /// # Errors
    /// As for [`Node::recv`].
    pub fn next(&self, timeout: Duration) -> Result<Option<Membership>, NodeError> {
        let next = |core: &mut Core| self.begun(core).map(Ok).or_else(|| failure(core));
        self.node.shared().wait_for(Some(timeout), next).transpose()
    }

    /// Like [`accept`](Self::accept), and does not wait on where an opener has given up waiting for others: then,
    /// and when time is up, how far it is.
    pub(crate) fn accept_unless_given_up(&self, timeout: Duration) -> Result<Membership, Invited> {
        let outcome = |core: &mut Core| match (self.begun(core), core.endpoint.group_invited(self.address)) {
            (Some(membership), _) => Some(Ok(membership)),
            (None, Invited::GivenUp) => Some(Err(Invited::GivenUp)),
            _ => None,
        };
        let outcome = self.node.shared().wait_for(Some(timeout), outcome);
        let invited = || self.node.with_core(|core, _| core.endpoint.group_invited(self.address));
        outcome.unwrap_or_else(|| Err(invited()))
    }

    fn begun(&self, core: &mut Core) -> Option<Membership> {
        let (id, member) = core.endpoint.accept_group(self.address)?;
        let (_, opener) = core.endpoint.membership((id, member))?;
        Some(Membership { node: self.node.clone(), id, address: self.address, member, opener })
    }

    /// Asks the Node at `opener` to be made a member of its group at this address, from the next
    /// message on, or with what is retained (`history`). [`accept`](Self::accept) brings the
    /// membership. Whether it could be asked.
    pub fn ask(&self, opener: SocketAddr, history: bool) -> bool {
        let Ok(opener) = self.node.reachable(opener) else { return false };
        let asked =
            self.node.with_core(|core, now| core.endpoint.ask_to_join(now, opener, self.address, history));
        self.node.shared().kick();
        asked
    }
}

impl Drop for GroupListener {
    fn drop(&mut self) {
        if !self.node.is_own() {
            return;
        }
        self.node.with_core(|core, now| {
            let others = core.listeners.remove(&self.address).unwrap_or(1) - 1;
            if others > 0 {
                core.listeners.insert(self.address, others);
                return;
            }
            core.endpoint.stop_joining(self.address);
            core.endpoint.leave_unclaimed_groups(now, self.address);
        });
        self.node.shared().kick();
        self.node.release_address(self.address);
    }
}

impl Membership {
    /// The group's name.
    pub fn id(&self) -> GroupId {
        self.id
    }

    /// This member's id (M2).
    pub fn member(&self) -> u32 {
        self.member
    }

    /// The opener's address.
    pub fn opener(&self) -> SocketAddr {
        self.opener
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// How the membership ended, once all that came before is taken.
    pub fn recv(&self) -> Result<GroupMessage, MembershipEnd> {
        self.recv_within(None)?.ok_or(MembershipEnd::Left)
    }

    /// The next message that is here now.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn try_recv(&self) -> Result<Option<GroupMessage>, MembershipEnd> {
        self.recv_within(Some(Duration::ZERO))
    }

    /// Waits for the next message, at most `timeout`.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<GroupMessage>, MembershipEnd> {
        self.recv_within(Some(timeout))
    }

    fn recv_within(&self, timeout: Option<Duration>) -> Result<Option<GroupMessage>, MembershipEnd> {
        let take = |core: &mut Core| {
            let now = core.recently();
            let message = core.endpoint.group_recv(now, (self.id, self.member)).map(Ok);
            let end = || core.endpoint.membership_end((self.id, self.member));
            let broken = || core.broken.then_some(MembershipEnd::Lost(denrei_proto::LostReason::Aborted));
            message.or_else(|| end().or_else(broken).map(Err))
        };
        self.node.shared().wait_for(timeout, take).transpose()
    }

    /// How the membership ended; `None` while it lasts.
    pub fn end(&self) -> Option<MembershipEnd> {
        self.node.with_core(|core, _| core.endpoint.membership_end((self.id, self.member)))
    }

    /// What has happened at this member; `None` once it is none.
    pub fn counters(&self) -> Option<MembershipCounters> {
        self.node.with_core(|core, _| core.endpoint.membership_counters((self.id, self.member)))
    }

    /// Leaves the group: what was not taken is gone, and receiving says [`MembershipEnd::Left`].
    pub fn leave(&self) {
        self.node.with_core(|core, now| core.endpoint.leave_group(now, (self.id, self.member)));
        self.node.shared().kick();
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.node.is_own() {
            return;
        }
        self.leave();
        self.node.release_address(self.address);
    }
}

#[cfg(test)]
mod tests;
