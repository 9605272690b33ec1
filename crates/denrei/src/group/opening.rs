//! How groups come about: opened here, or joined.
//!
//! Inputs → outputs: addresses → the core's groups, and the socket that speaks to them or hears them.

use super::{Group, GroupListener, MOMENT, OPENING_GRACE, OpenGroupError};
use crate::Node;
use crate::core::Core;
use crate::node::{failure, unstarted};
use crate::shards::deadline_of;
use denrei_proto::group::{Departure, GroupBackend, GroupError, GroupEvent, GroupOptions, MAX_MEMBERS};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// A group whose members are asked. One that is dropped before it has opened is given up: there is nothing to wait
/// for, as there is with one that was open.
struct Opening {
    group: Option<Group>,
    members: Vec<SocketAddr>,
}

impl Opening {
    /// How it went, once that is clear.
    fn outcome(&self, core: &mut Core) -> Option<Result<(), OpenGroupError>> {
        let id = self.group.as_ref()?.id;
        match core.endpoint.poll_group_event(id) {
            Some(GroupEvent::Opened) => Some(Ok(())),
            Some(GroupEvent::OpenFailed { missing }) => Some(Err(GroupError::OpenFailed { missing }.into())),
            Some(_) => Some(Err(self.silent())),
            None => failure(core),
        }
    }

    /// None of the members has said anything.
    fn silent(&self) -> OpenGroupError {
        let missing = self.members.iter().map(|addr| (*addr, Departure::Silent)).collect();
        GroupError::OpenFailed { missing }.into()
    }

    /// The group, if it has opened.
    fn end(mut self, outcome: Result<(), OpenGroupError>) -> Result<Group, OpenGroupError> {
        outcome.map(|()| self.group.take().expect("nobody else takes it"))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(Group { node, id, .. }) = &self.group
            && node.is_own()
        {
            node.with_core(|core, now| core.endpoint.forget_group(now, *id));
        }
    }
}

impl Node {
    /// Opens a group at the multicast `address` with the Nodes at `members`, and waits until every one
    /// of them takes part (M4). Messages then go to all of them at once (M1). `policy` is a
    /// [`GroupPolicy`](crate::GroupPolicy) or [`GroupOptions`].
    ///
    /// # Errors
    /// Members that did not answer are named; members join the address by
    /// [`join_group`](Self::join_group).
    pub fn open_group(
        &self,
        address: SocketAddr,
        members: &[SocketAddr],
        policy: impl Into<GroupOptions>,
    ) -> Result<Group, OpenGroupError> {
        self.open_group_unless(address, members, policy, || false)
    }

    /// Like [`open_group`](Self::open_group), and asks twenty times a second whether to give up.
    ///
    /// # Errors
    /// As for [`open_group`](Self::open_group); [`OpenGroupError::Interrupted`].
    pub fn open_group_unless(
        &self,
        address: SocketAddr,
        members: &[SocketAddr],
        policy: impl Into<GroupOptions>,
        mut interrupted: impl FnMut() -> bool,
    ) -> Result<Group, OpenGroupError> {
        let options: GroupOptions = policy.into();
        let until = deadline_of(options.open_timeout.saturating_add(OPENING_GRACE));
        let opening = self.begin_group(address, members, options)?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let next = |core: &mut Core| opening.outcome(core);
            match self.shared().wait_for(Some(left.min(MOMENT)), next) {
                Some(outcome) => return opening.end(outcome),
                None if left <= MOMENT => return Err(opening.silent()),
                None if interrupted() => return Err(OpenGroupError::Interrupted),
                None => {}
            }
        }
    }

    /// Like [`open_group`](Self::open_group), without blocking the task. Starts the background thread if there is
    /// none. A future that is dropped has given up.
    ///
    /// # Errors
    /// As for [`open_group`](Self::open_group). That thread cannot be started.
    pub async fn open_group_async(
        &self,
        address: SocketAddr,
        members: &[SocketAddr],
        policy: impl Into<GroupOptions>,
    ) -> Result<Group, OpenGroupError> {
        self.start_thread().map_err(unstarted)?;
        let opening = self.begin_group(address, members, policy.into())?;
        let outcome = self.resolve_group(|core| opening.outcome(core)).await;
        opening.end(outcome)
    }

    /// Asks the members.
    fn begin_group(
        &self,
        address: SocketAddr,
        members: &[SocketAddr],
        options: GroupOptions,
    ) -> Result<Opening, OpenGroupError> {
        let members = members.iter().map(|addr| self.member_at(*addr)).collect::<Result<Vec<_>, _>>()?;
        self.shards().gather();
        let nearest = nearest(address, &members);
        let address = self.on_its_link(address, nearest);
        let (source, bytes) = self.enable_multicast(address, nearest, &options)?;
        let id = self.with_core(|core, now| {
            let id = core.endpoint.open_group(now, address, &members, options)?;
            if let Some(bytes) = bytes {
                core.endpoint.limit_group_datagrams(id, bytes)?;
            }
            if let (Some(source), Some(nearest)) = (source, nearest) {
                core.endpoint.speak_to_group_from(id, nearest, source)?;
            }
            Ok::<_, GroupError>(id)
        })?;
        self.shared().kick();
        Ok(Opening { group: Some(Group { node: self.clone(), id, address }), members })
    }

    /// The address of a member, which this Node can send to.
    pub(super) fn member_at(&self, addr: SocketAddr) -> Result<SocketAddr, GroupError> {
        let bad = |problem: String| GroupError::BadMembers { max: MAX_MEMBERS, problem };
        let addr = self.reachable(addr).map_err(|error| bad(error.to_string()))?;
        if addr == self.local_addr() {
            return Err(bad(format!("{addr} is the opener's own, which has what it sends")));
        }
        Ok(addr)
    }

    /// A group's address with the interface of this Node, if a group of one link does not name any.
    fn on_its_link(&self, address: SocketAddr, other: Option<SocketAddr>) -> SocketAddr {
        self.shared().with_io(|io| io.socket.on_its_link(address, other))
    }

    /// Sending to the address is only needed where multicast is wanted. From which of this host's addresses, where that
    /// is to be chosen, and with how large datagrams, if the system says.
    fn enable_multicast(
        &self,
        address: SocketAddr,
        nearest: Option<SocketAddr>,
        options: &GroupOptions,
    ) -> Result<(Option<IpAddr>, Option<u16>), OpenGroupError> {
        let (enabled, way) = self.shared().with_io(|io| {
            let source = nearest.and_then(|nearest| io.socket.group_source(address, nearest));
            let enabled = io.socket.enable_multicast(address, source);
            (enabled, (source, io.socket.multicast_datagram_bytes(address, source)))
        });
        match (enabled, options.backend) {
            (Err(source), GroupBackend::Multicast) => return Err(OpenGroupError::Socket { address, source }),
            (Err(source), GroupBackend::Auto) => {
                tracing::warn!("no multicast to {address}: {source}; members are served by unicast");
            }
            _ => {}
        }
        Ok(way)
    }

    /// Joins the multicast `address`: openers may from now on name this Node as a member of groups
    /// there; [`GroupListener::accept`] brings the memberships. Where the host has no multicast the
    /// groups come by unicast.
    ///
    /// # Errors
    /// Not an address that a group can have.
    pub fn join_group(&self, address: SocketAddr) -> Result<GroupListener, OpenGroupError> {
        self.shards().gather();
        let address = self.on_its_link(address, None);
        // Nobody finds in between that the address is needed no longer.
        let (hearing, joined) = self.shared().with_io(|io| {
            let hearing = io.socket.join_multicast(address);
            let joined = self.with_core(|core, now| {
                match hearing.is_ok() {
                    true => core.endpoint.join_group(now, address)?,
                    false => core.endpoint.join_group_unheard(now, address)?,
                }
                *core.listeners.entry(address).or_default() += 1;
                Ok::<_, GroupError>(())
            });
            (hearing, joined)
        });
        let heard = hearing.is_ok();
        if let Err(error) = joined {
            self.release_address(address);
            return Err(error.into());
        }
        if let Err(error) = hearing {
            tracing::warn!(
                "cannot hear the multicast address {address}: {error}; its groups come by unicast"
            );
        }
        // Whoever sleeps on the sockets does not know the new one.
        self.shared().wake();
        self.shared().kick();
        Ok(GroupListener { node: self.clone(), address, heard })
    }

    /// Stops hearing a group's address that nobody here needs any more.
    pub(super) fn release_address(&self, address: SocketAddr) {
        let left = self.shared().with_io(|io| {
            let needed = self.with_core(|core, _| core.endpoint.needs_group_address(address));
            if !needed {
                io.socket.leave_multicast(address);
            }
            !needed
        });
        if left {
            self.shared().wake();
        }
    }
}

/// The member by whose way the group is spoken to: the first of its family. One on loopback only if all are.
fn nearest(group: SocketAddr, members: &[SocketAddr]) -> Option<SocketAddr> {
    let mut fitting = members.iter().filter(|member| member.is_ipv4() == group.is_ipv4());
    let first = fitting.clone().next();
    fitting.find(|member| !member.ip().is_loopback()).or(first).copied()
}
