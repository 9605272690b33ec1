//! The member's end of groups.
//!
//! Inputs → outputs: calls → the core's memberships, and which addresses the Node hears. [`GroupListener`] waits for
//! groups to be made a member of, [`Membership`] is what comes of it.

use crate::core::Core;
use crate::node::{failure, unstarted};
use crate::tasks::Interest;
use crate::{Node, NodeError};
use denrei_proto::group::{GroupId, GroupMessage, Invited, MembershipCounters, MembershipEnd};
use std::net::SocketAddr;
use std::time::Duration;

/// How a membership ends whose Node nobody drives any more.
const DESERTED: MembershipEnd = MembershipEnd::Lost(denrei_proto::LostReason::Aborted);

/// Waits for openers who name this Node as a member. Dropping it, the last one at its address, stops the waiting,
/// and leaves groups whose membership nobody was given.
#[derive(Debug)]
pub struct GroupListener {
    pub(super) node: Node,
    pub(super) address: SocketAddr,
    pub(super) heard: bool,
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

    /// Waits for a group that this Node is made a member of, without blocking the task. Starts the Node's background
    /// thread if there is none.
    ///
    /// # Errors
    /// As for [`Node::recv_async`].
    pub async fn next_async(&self) -> Result<Membership, NodeError> {
        self.node.start_thread().map_err(unstarted)?;
        self.node.resolve_group(|core| self.begun(core).map(Ok).or_else(|| failure(core))).await
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
        self.node.shared().wait_until(timeout, |core| self.take_or_end(core)).transpose()
    }

    /// The next message, without blocking the task. Starts the Node's background thread if there is none. A future
    /// that is dropped has taken nothing.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv); `Lost` also if that thread cannot be started.
    pub async fn recv_async(&self) -> Result<GroupMessage, MembershipEnd> {
        self.node.start_thread().map_err(|_| DESERTED)?;
        self.node.resolve_group_until(|core| self.take_or_end(core)).await
    }

    /// The next message, or how the membership ended; else that it is waited for.
    fn take_or_end(&self, core: &mut Core) -> Result<Result<GroupMessage, MembershipEnd>, Interest> {
        let now = core.recently();
        let message = core.endpoint.group_recv(now, (self.id, self.member)).map(Ok);
        let end = || core.endpoint.membership_end((self.id, self.member));
        let found = message.or_else(|| end().or_else(|| core.broken.then_some(DESERTED)).map(Err));
        found.ok_or_else(|| Interest::Membership((self.id, self.member).into()))
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
        self.node.act_on_groups(|groups, now| groups.leave_group(now, (self.id, self.member)));
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
