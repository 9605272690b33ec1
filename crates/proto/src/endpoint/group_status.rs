//! What is seen of an endpoint's groups, without changing anything.
//!
//! Inputs → outputs: a group's name, or none → states and counters. Source: M3, M5, M6.

use super::Endpoint;
use crate::group::{
    GroupId, GroupStatus, MembershipCounters, MembershipEnd, MembershipId, MembershipStatus, Table,
};
use core::net::SocketAddr;

impl Endpoint {
    /// A group's state (M3, M5, M6), `None` if there is none.
    pub fn group_status(&self, group: GroupId) -> Option<GroupStatus> {
        Some(self.groups.as_deref()?.sender_ref(group)?.status())
    }

    /// The states of all groups that this endpoint has opened.
    pub fn group_statuses(&self) -> impl Iterator<Item = GroupStatus> + '_ {
        self.groups.as_deref().into_iter().flat_map(Table::statuses)
    }

    /// The groups that this endpoint is a member of.
    pub fn memberships(&self) -> impl Iterator<Item = MembershipStatus> + '_ {
        self.groups.as_deref().into_iter().flat_map(Table::memberships)
    }

    /// This endpoint's id in a group it is a member of, and the opener's address.
    pub fn membership(&self, membership: impl Into<MembershipId>) -> Option<(u32, SocketAddr)> {
        let member = self.groups.as_deref()?.membership(membership.into())?;
        Some((member.member, member.opener_addr))
    }

    /// What has happened at this member of a group; `None`: it is none.
    pub fn membership_counters(&self, membership: impl Into<MembershipId>) -> Option<MembershipCounters> {
        Some(self.groups.as_deref()?.membership(membership.into())?.counters())
    }

    /// Whether there is a message of a group to [take](Self::group_recv), or this endpoint is no member of it any more.
    pub fn is_membership_ready(&self, membership: impl Into<MembershipId>) -> bool {
        let member = self.groups.as_deref().and_then(|groups| groups.membership(membership.into()));
        member.is_none_or(|member| member.has_ready() || member.ended().is_some())
    }

    /// How a membership ended; `None` while it lasts.
    pub fn membership_end(&self, membership: impl Into<MembershipId>) -> Option<MembershipEnd> {
        match self.groups.as_deref()?.membership(membership.into()) {
            Some(member) => member.ended().cloned(),
            None => Some(MembershipEnd::Left),
        }
    }
}
