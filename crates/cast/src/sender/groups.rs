//! The group of a cast: who is in it, and who is not any more.

use super::Sender;
use crate::message::{Message, short};
use crate::roster::Path;
use denrei::{
    Group, GroupError, GroupEvent, GroupOptions, GroupPolicy, MemberPath, OpenGroupError, POLICY_TIMES,
};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a group waits for its members to answer, those that join it, too: they were heard of just now.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// Events taken in one go.
const MAX_EVENTS: usize = 1024;

impl Sender {
    /// Sees to it that two members or more are served by a group.
    pub(super) fn arrange_group(&mut self) {
        if self.started.is_none() {
            return;
        }
        let mut eligible = self.roster.eligible();
        // What comes in order to them by two paths would not come in order.
        eligible.retain(|index| !self.body_began || !self.roster.members[*index].ordered);
        match &self.group {
            None if eligible.len() >= 2 => self.open_group(&eligible),
            Some(_) => eligible.into_iter().for_each(|index| self.add_to_group(index)),
            None => {}
        }
    }

    fn open_group(&mut self, members: &[usize]) {
        let addresses: Vec<SocketAddr> =
            members.iter().map(|index| self.roster.members[*index].addr).collect();
        let after = self.stall().clamp(*POLICY_TIMES.start(), *POLICY_TIMES.end());
        // Who is left behind by a stream has lost it: all go at the pace of the slowest that goes on.
        let policy = match self.source.is_stream() {
            true => GroupPolicy::Eject { after },
            false => GroupPolicy::Lag { after },
        };
        let options = GroupOptions {
            policy,
            backend: self.options.backend,
            open_timeout: OPEN_TIMEOUT,
            admit: false,
            ..GroupOptions::default()
        };
        match self.node.open_group(self.options.group, &addresses, options) {
            Ok(group) => {
                self.roster.begin_group(members);
                self.group = Some(group);
            }
            Err(OpenGroupError::Group(GroupError::OpenFailed { missing })) => {
                let failed = |addr: SocketAddr| {
                    missing.is_empty() || missing.iter().any(|(missing, _)| *missing == addr)
                };
                for index in members {
                    let member = &mut self.roster.members[*index];
                    member.no_group |= failed(member.addr);
                }
            }
            Err(error) => {
                tracing::warn!("members are served one by one: {error}");
                members.iter().for_each(|index| self.roster.members[*index].no_group = true);
            }
        }
    }

    fn add_to_group(&mut self, index: usize) {
        let Some(group) = &self.group else { return };
        let member = &mut self.roster.members[index];
        match group.add_member(member.addr, false) {
            Ok(id) => member.path = Path::Joining(id),
            Err(error) => {
                tracing::debug!("{} is served by itself: {error}", member.addr);
                member.no_group = true;
            }
        }
    }

    pub(super) fn group_events(&mut self) {
        let Some(group) = &self.group else { return };
        let events: Vec<GroupEvent> = std::iter::from_fn(|| group.try_event()).take(MAX_EVENTS).collect();
        for event in events {
            let Some(group) = &self.group else { return };
            match event {
                GroupEvent::Joined { member, first_message, .. } => self.roster.joined(member, first_message),
                GroupEvent::Departed { member, .. } => self.departed(member),
                // What it misses is known here: it is served by itself from now on, and nothing is retained.
                GroupEvent::Lagging { member, .. } => remove(group, member),
                _ => {}
            }
        }
        let in_group = |path: Path| !matches!(path, Path::Alone);
        if !self.roster.members.iter().any(|member| member.is_active() && in_group(member.path)) {
            // Those who left last and have not been heard of since held up nobody: the sender did not reach anyone.
            let left = self.roster.members.iter_mut().filter(|member| member.asked);
            left.for_each(|member| member.no_group = false);
            self.end_group();
        }
    }

    fn departed(&mut self, id: u32) {
        if let Some(index) = self.roster.departed(id) {
            let cast = short(&self.offer.id);
            self.say_to(index, Message::Resync { cast });
        }
    }

    pub(super) fn end_group(&mut self) {
        let Some(group) = self.group.take() else { return };
        let status = group.status().map(|status| status.counters).unwrap_or_default();
        self.counters.multicast_repairs += status.multicast_repairs;
        self.counters.unicast_repairs += status.unicast_repairs;
        self.counters.packets_sent += status.packets_sent;
        self.counters.unicast_symbols += status.unicast_symbols;
        self.pending_group = None;
        for member in &mut self.roster.members {
            member.path = Path::Alone;
        }
    }

    /// How many times a message to the group leaves this host.
    pub(super) fn copies(&self) -> u64 {
        // Only a rate has to know.
        if self.options.rate_bytes_per_s.is_none() {
            return 1;
        }
        let Some(status) = self.group.as_ref().and_then(Group::status) else { return 1 };
        let by = |path| status.active().filter(|member| member.path == path).count() as u64;
        let multicast = by(MemberPath::Multicast).min(1);
        (multicast + by(MemberPath::Unicast)).max(1)
    }

    pub(super) fn leave_group(&mut self, index: usize) {
        let member = &mut self.roster.members[index];
        if let (Path::Group(id) | Path::Joining(id), Some(group)) = (member.path, &self.group) {
            remove(group, id);
        }
        member.path = Path::Alone;
    }
}

fn remove(group: &Group, member: u32) {
    // It may have left already.
    let _ = group.remove_member(member);
}
