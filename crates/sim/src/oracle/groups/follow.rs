//! What openers and members are told: each has to be true, at its time, and not be told twice.

use super::{GroupNo, Membership, MembershipNo, Role, address, name};
use crate::net::topology::HostId;
use crate::oracle::{LifeNo, Oracle};
use core::net::SocketAddr;
use denrei_proto::Endpoint;
use denrei_proto::group::{Departure, GroupEvent, GroupMessage, GroupPolicy, MembershipEnd};
use denrei_wire::Instant;

impl Oracle {
    /// Takes what an endpoint has to say about groups.
    pub(in crate::oracle) fn follow_groups(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        if !self.groups.used {
            return;
        }
        let life = self.life_on(host);
        for group in self.groups.here(life).opened.clone() {
            let id = self.groups.groups[group].id;
            while let Some(event) = endpoint.poll_group_event(id) {
                if let Err(what) = self.check_group_event(now, group, &event) {
                    let label = self.group_label(group);
                    self.fail(format!("{label}: {event:?}: {what}"));
                }
            }
            self.watch_members(now, group, endpoint);
        }
        if !self.groups.here(life).stalled {
            self.accept_groups(life, endpoint);
            for held in self.groups.here(life).held.clone() {
                self.take_from_group(now, endpoint, held, usize::MAX);
            }
        }
        for held in self.groups.here(life).held.clone() {
            self.follow_end(endpoint, held);
        }
    }

    // ---- the opener ----

    fn check_group_event(&mut self, now: Instant, number: GroupNo, event: &GroupEvent) -> Result<(), String> {
        let group = &mut self.groups.groups[number];
        if group.is_over() && !matches!(event, GroupEvent::OpenFailed { .. }) {
            return Err("the group is over".to_owned());
        }
        match event {
            GroupEvent::Opened => {
                let again = core::mem::replace(&mut group.opened, true);
                group.roles.values_mut().filter(|role| !role.removed).for_each(|role| role.first = Some(0));
                self.totals.groups += 1;
                (!again).then_some(()).ok_or("twice".to_owned())
            }
            GroupEvent::OpenFailed { missing } => self.check_open_failed(number, missing),
            GroupEvent::Joined { member, addr, first_message } => {
                self.check_joined(number, *member, *addr, *first_message)
            }
            GroupEvent::Departed { member, addr, why, last_acknowledged } => {
                let spared = self.spared(now, number, *member).filter(|_| *why == Departure::Ejected);
                self.check_departed(number, *member, *addr, why, *last_acknowledged)?;
                spared.map_or(Ok(()), Err)
            }
            GroupEvent::Lagging { member, addr, .. } => {
                self.check_lagging(number, *member, *addr, true)?;
                self.had_all(now, number, *member).map_or(Ok(()), Err)
            }
            GroupEvent::CaughtUp { member, addr } => self.check_lagging(number, *member, *addr, false),
            GroupEvent::Closed => {
                let again = core::mem::replace(&mut group.closed, true);
                (group.opened && group.closing && !again).then_some(()).ok_or("not asked for".to_owned())
            }
            _ => Err("not known".to_owned()),
        }
    }

    fn check_open_failed(
        &mut self,
        number: GroupNo,
        missing: &[(SocketAddr, Departure)],
    ) -> Result<(), String> {
        let hardship = self.hardship;
        let group = &mut self.groups.groups[number];
        let listed = |addr: &SocketAddr| group.roles.values().any(|role| role.host.addr() == *addr);
        let again = core::mem::replace(&mut group.failed, true);
        if again || group.opened || missing.is_empty() || !missing.iter().all(|(addr, _)| listed(addr)) {
            return Err("twice, or it had opened, or these were never asked".to_owned());
        }
        match group.has_to_open && !hardship {
            true => Err("all are there and hear each other".to_owned()),
            false => Ok(()),
        }
    }

    /// The role of a member; one that asked to be it is heard of here first.
    fn role(&mut self, number: GroupNo, member: u32, addr: SocketAddr) -> Result<&mut Role, String> {
        let host = HostId::at(addr).ok_or("nobody has this address")?;
        let group = &mut self.groups.groups[number];
        if !group.opened {
            return Err("the group is not open".to_owned());
        }
        let role = group.roles.entry(member).or_insert_with(|| Role::new(host));
        if role.host != host || role.departed.is_some() {
            return Err(format!("it is not, or no longer, that member: {role:?}"));
        }
        Ok(role)
    }

    fn check_joined(
        &mut self,
        number: GroupNo,
        member: u32,
        addr: SocketAddr,
        first_message: u64,
    ) -> Result<(), String> {
        let sent = self.groups.groups[number].sent.len() as u64;
        // It begins behind what it would not take.
        let max = HostId::at(addr).and_then(|host| self.largest_taken(host)).unwrap_or(u64::MAX);
        let before = self.groups.groups[number].sent.iter().take(first_message as usize);
        let too_large = before.into_iter().any(|bytes| *bytes as u64 > max);
        let role = self.role(number, member, addr)?;
        if role.first.replace(first_message).is_some() || first_message > sent {
            return Err(format!("it had begun, or there are {sent} messages"));
        }
        if role.whole_history && first_message > 0 && !too_large {
            return Err("all messages are retained for it".to_owned());
        }
        Ok(())
    }

    /// The largest message that a host takes.
    fn largest_taken(&self, host: HostId) -> Option<u64> {
        let config = &self.lives[*self.current.get(&host)?].config;
        Some(config.max_message_bytes.min(config.receive_memory_bytes))
    }

    fn check_departed(
        &mut self,
        number: GroupNo,
        member: u32,
        addr: SocketAddr,
        why: &Departure,
        last_acknowledged: Option<u64>,
    ) -> Result<(), String> {
        let sent = self.groups.groups[number].sent.len() as u64;
        let role = self.role(number, member, addr)?;
        role.departed = Some((why.clone(), last_acknowledged));
        let first = role.first;
        if let Some(last) = last_acknowledged
            && !first.is_some_and(|first| (first..sent).contains(&last))
        {
            return Err(format!("it gets messages from {first:?} on, of {sent}"));
        }
        let removed = role.removed;
        self.totals.departed += 1;
        let group = &self.groups.groups[number];
        let held = self.groups.by_member.get(&(number, member)).map(|held| &self.groups.memberships[*held]);
        let plausible = match why {
            Departure::Left => held.is_none_or(|held| held.left || self.is_dead(held.life)),
            Departure::Refused | Departure::Silent => first.is_none(),
            Departure::Removed => removed || (group.closing && first.is_none()),
            Departure::Lost(_) => true,
            Departure::Ejected => match group.options.policy {
                GroupPolicy::Eject { .. } => true,
                GroupPolicy::Lag { .. } => group.closing,
                GroupPolicy::Wait => false,
            },
            // Who joins with history lags at first.
            Departure::TooFarBehind => group.options.policy != GroupPolicy::Wait,
            _ => false,
        };
        plausible.then_some(()).ok_or("not for a reason that is true".to_owned())
    }

    fn check_lagging(
        &mut self,
        number: GroupNo,
        member: u32,
        addr: SocketAddr,
        lagging: bool,
    ) -> Result<(), String> {
        let lags = matches!(self.groups.groups[number].options.policy, GroupPolicy::Lag { .. });
        let role = self.role(number, member, addr)?;
        let before = core::mem::replace(&mut role.lagging, lagging);
        // One that joins with history has to catch up first.
        let joined = role.first.is_some() && member > 0;
        let plausible = match lagging {
            true => lags && !before && role.first.is_some(),
            false => before || joined,
        };
        plausible.then_some(()).ok_or(format!("policy or order forbid it: {role:?}"))
    }

    // ---- the member ----

    /// The application is given its memberships.
    pub(super) fn accept_groups(&mut self, life: LifeNo, endpoint: &mut Endpoint) {
        for number in 0..super::ADDRESSES {
            while let Some((id, member)) = endpoint.accept_group(address(number)) {
                let Some((_, opener)) = endpoint.membership((id, member)) else {
                    return self.fail(format!("{id} is accepted, and no membership"));
                };
                let Some(&group) = self.groups.by_id.get(&id) else {
                    return self.fail(format!("{id} is accepted, which nobody opened"));
                };
                self.begin_membership(life, group, member, opener);
            }
        }
    }

    fn begin_membership(&mut self, life: LifeNo, group: GroupNo, member: u32, opener: SocketAddr) {
        let host = self.lives[life].host;
        let role = self.groups.groups[group].roles.get(&member);
        let first = role.filter(|role| role.host == host).and_then(|role| role.first);
        let opener_host = self.lives[self.groups.groups[group].opener].host;
        let number = self.groups.memberships.len();
        let next = first.unwrap_or(0);
        let took = Vec::new();
        self.groups.memberships.push(Membership { life, group, member, next, took, end: None, left: false });
        self.groups.here(life).held.push(number);
        self.totals.memberships += 1;
        let again = self.groups.by_member.insert((group, member), number).is_some();
        if again || first.is_none() || opener_host.addr() != opener {
            let label = self.membership_label(number);
            self.fail(format!(
                "{label}: it has begun, again ({again}) or what it was not to be ({role:?}), of {opener}",
                role = self.groups.groups[group].roles.get(&member)
            ));
        }
    }

    /// The application takes up to `count` messages.
    pub(super) fn take_from_group(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        number: MembershipNo,
        count: usize,
    ) {
        let membership = &self.groups.memberships[number];
        let meant = (self.groups.groups[membership.group].id, membership.member);
        for _ in 0..count {
            let Some(message) = endpoint.group_recv(now, meant) else { return };
            self.on_group_message(now, number, &message);
        }
    }

    fn on_group_message(&mut self, now: Instant, number: MembershipNo, message: &GroupMessage) {
        let membership = &mut self.groups.memberships[number];
        let (group, expected) = (membership.group, membership.next);
        membership.next = message.number + 1;
        membership.took.push(now);
        self.totals.group_received += 1;
        self.totals.received_bytes += message.data.len() as u64;
        for value in [number as u64, message.number, message.data.len() as u64] {
            self.digest.add(value);
        }
        let size = self.groups.groups[group].sent.get(message.number as usize).copied();
        let mismatch = name(group, message.number).mismatch(&message.data);
        if message.number != expected || size != Some(message.data.len()) || mismatch.is_some() {
            let label = self.membership_label(number);
            self.fail(format!(
                "{label}: message {} of {} bytes, {expected} is next, {size:?} bytes were sent, first that differs {mismatch:?}",
                message.number,
                message.data.len()
            ));
        }
    }

    fn follow_end(&mut self, endpoint: &Endpoint, number: MembershipNo) {
        let membership = &self.groups.memberships[number];
        let (group, member, before) = (membership.group, membership.member, membership.end.clone());
        let end = endpoint.membership_end((self.groups.groups[group].id, member));
        if end == before {
            return;
        }
        self.groups.memberships[number].end = end.clone();
        let group = &self.groups.groups[group];
        let role = &group.roles[&member];
        let plausible = before.is_none()
            && match &end {
                Some(MembershipEnd::Closed) => group.closing,
                Some(MembershipEnd::Removed(_)) => group.forgotten || role.departed.is_some(),
                Some(MembershipEnd::Lost(_)) => true,
                _ => false,
            };
        if !plausible {
            let label = self.membership_label(number);
            self.fail(format!(
                "{label}: its end is {end:?} after {before:?}; {role:?}",
                role = self.groups.groups[self.groups.memberships[number].group].roles.get(&member)
            ));
        }
    }
}
