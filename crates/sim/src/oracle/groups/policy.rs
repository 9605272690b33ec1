//! Whether a member deserved what the policy did to it: who keeps up by the rules is not ejected, and does not lag.
//!
//! Inputs → outputs: what the opener's status says of members, what members' applications take, the events of the
//! policy → the first that nobody deserved. Where the network or an application keeps words from arriving, the
//! opener cannot know better: then only what it has been told counts.

use super::{Group, GroupNo, Membership};
use crate::oracle::Oracle;
use core::time::Duration;
use denrei_proto::Endpoint;
use denrei_proto::group::{GroupPolicy, GroupStatus};
use denrei_wire::Instant;
use std::collections::BTreeMap;

/// In a network that works an opener knows within this time what a member has: the queues of three links, twice.
const KNOWN_AFTER: Duration = Duration::from_secs(2);
/// Groups of more members are not looked at with each datagram.
const MOST_WATCHED: usize = 16;

/// What the opener knows of one member.
#[derive(Clone, Copy, Debug)]
struct Seen {
    messages: u64,
    behind: u64,
    /// When that last became better, or there was nothing to do.
    better_at: Instant,
}

/// What the opener of a group knows of its members.
#[derive(Debug, Default)]
pub(super) struct Watch {
    members: BTreeMap<u32, Seen>,
    idle: bool,
}

impl Watch {
    /// Follows the opener's status.
    fn follow(&mut self, now: Instant, idle: bool, group: &GroupStatus) {
        let was_idle = core::mem::replace(&mut self.idle, idle);
        for status in group.active() {
            let (messages, behind) = (status.messages_acknowledged, status.symbols_behind);
            let fresh = Seen { messages, behind, better_at: now };
            let seen = self.members.entry(status.member).or_insert(fresh);
            let better = messages > seen.messages || behind < seen.behind;
            let better_at = if better || was_idle || idle { now } else { seen.better_at };
            *seen = Seen { messages, behind, better_at };
        }
    }
}

fn patience(group: &Group) -> Option<Duration> {
    match group.options.policy {
        GroupPolicy::Eject { after } | GroupPolicy::Lag { after } => Some(after),
        _ => None,
    }
}

impl Oracle {
    /// Looks what the opener knows, after its events have been followed.
    pub(super) fn watch_members(&mut self, now: Instant, number: GroupNo, endpoint: &Endpoint) {
        let group = &mut self.groups.groups[number];
        if patience(group).is_none() || !group.opened || group.is_over() || group.roles.len() > MOST_WATCHED {
            return;
        }
        let Some(status) = endpoint.group_status(group.id) else { return };
        group.watch.follow(now, status.queued_bytes == 0 && !group.closing, &status);
    }

    /// Why a member should not have been ejected.
    pub(super) fn spared(&self, now: Instant, number: GroupNo, member: u32) -> Option<String> {
        let group = &self.groups.groups[number];
        let after = patience(group)?;
        let seen = group.watch.members.get(&member);
        if let (GroupPolicy::Eject { .. }, Some(seen)) = (&group.options.policy, seen)
            && seen.better_at + after > now
        {
            return Some(format!("it made progress at {:?}", seen.better_at));
        }
        let held = self.kept_up(number, member)?;
        let lately = |at: &&Instant| **at + after > now && **at + KNOWN_AFTER <= now;
        let took = held.took.iter().rev().find(lately);
        match group.options.policy {
            GroupPolicy::Eject { .. } if took.is_some() => Some(format!("it got a message at {took:?}")),
            _ => self.had_all(now, number, member),
        }
    }

    /// Why nobody can have waited for a member: it had everything that there was.
    pub(super) fn had_all(&self, now: Instant, number: GroupNo, member: u32) -> Option<String> {
        let group = &self.groups.groups[number];
        let held = self.kept_up(number, member)?;
        let since = held.took.last().copied().max(group.closing_at)?;
        let long = since + patience(group)?.max(KNOWN_AFTER) <= now;
        (long && held.next == group.sent.len() as u64)
            .then(|| format!("it has had everything since {since:?}"))
    }

    /// A membership that nothing keeps from telling what it has.
    fn kept_up(&self, number: GroupNo, member: u32) -> Option<&Membership> {
        let held = &self.groups.memberships[*self.groups.by_member.get(&(number, member))?];
        let hindered = self.hardship || self.groups.hindered || !self.groups.deaf.is_empty();
        (!hindered && !held.left && held.end.is_none() && !self.is_dead(held.life)).then_some(held)
    }
}
