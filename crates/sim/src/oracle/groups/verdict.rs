//! The end of a run with groups, in a healed network: all that is queued arrives; then openers close, members
//! learn of it, and nothing is left over.

use super::{Group, GroupNo, MembershipNo};
use crate::oracle::{LifeNo, Oracle};
use denrei_proto::Endpoint;
use denrei_proto::group::{Departure, MembershipEnd};
use denrei_wire::Instant;

impl Oracle {
    /// Whether groups took part in this run.
    pub fn has_groups(&self) -> bool {
        self.groups.used
    }

    /// Members take what arrives.
    pub fn resume_taking(&mut self, endpoint: &Endpoint) {
        if let Some(&life) = self.by_incarnation.get(&endpoint.incarnation())
            && self.groups.used
        {
            self.groups.here(life).stalled = false;
        }
    }

    /// Ends all groups that the process with `endpoint` has opened.
    pub fn close_groups(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for group in self.groups_of(endpoint) {
            if !self.groups.groups[group].is_over() && !self.groups.groups[group].closing {
                self.close_group(now, endpoint, group);
            }
        }
    }

    /// Forgets all groups and memberships of the process with `endpoint`.
    pub fn forget_groups(&mut self, now: Instant, endpoint: &mut Endpoint) {
        for group in self.groups_of(endpoint) {
            self.groups.groups[group].forgotten = true;
            endpoint.forget_group(now, self.groups.groups[group].id);
        }
        let Some(&life) = self.by_incarnation.get(&endpoint.incarnation()) else { return };
        self.accept_groups(life, endpoint);
        for held in self.groups.here(life).held.clone() {
            self.leave_group(now, endpoint, held);
        }
        (0..super::ADDRESSES).for_each(|number| endpoint.stop_joining(super::address(number)));
    }

    fn groups_of(&self, endpoint: &Endpoint) -> Vec<GroupNo> {
        let life = self.by_incarnation.get(&endpoint.incarnation());
        life.and_then(|life| self.groups.here.get(life)).map_or(Vec::new(), |here| here.opened.clone())
    }

    /// What groups of the process with `endpoint` still have to do. Empty at the end.
    pub fn unsettled_groups(&self, endpoint: &Endpoint) -> Vec<String> {
        let busy = |group: &GroupNo| {
            let Group { id, opened, closing, .. } = self.groups.groups[*group];
            let status = endpoint.group_status(id)?;
            let over = self.groups.groups[*group].is_over();
            let waits = !over && (!opened || closing || status.queued_bytes > 0);
            waits.then(|| format!("{}: {status:#?}", self.group_label(*group)))
        };
        self.groups_of(endpoint).iter().filter_map(busy).collect()
    }

    /// Checks, once all groups are closed, that everybody has been told, and has what was promised.
    pub fn judge_groups(&mut self) {
        for group in 0..self.groups.groups.len() {
            let members: Vec<u32> = self.groups.groups[group].roles.keys().copied().collect();
            for member in members {
                if let Err(what) = self.judge_role(group, member) {
                    let label = self.group_label(group);
                    self.fail(format!(
                        "{label}: member {member}, {:?}: {what}",
                        self.groups.groups[group].roles[&member]
                    ));
                }
            }
        }
        for membership in 0..self.groups.memberships.len() {
            if let Err(what) = self.judge_membership(membership) {
                let label = self.membership_label(membership);
                self.fail(format!("{label}: {what}"));
            }
        }
    }

    /// What the opener was told of a member, against what its application has.
    fn judge_role(&self, number: GroupNo, member: u32) -> Result<(), String> {
        let group = &self.groups.groups[number];
        let role = &group.roles[&member];
        let Some(first) = role.first else { return Ok(()) };
        let held = self.groups.by_member.get(&(number, member)).map(|held| &self.groups.memberships[*held]);
        let least = match &role.departed {
            Some((_, last)) => last.map_or(first, |last| last + 1),
            None if group.closed => group.sent.len() as u64,
            None => return Ok(()),
        };
        // It is left soon, or ejected before as nobody takes what comes; or the group is closed before that.
        let unclaimed = matches!(role.departed, None | Some((Departure::Left | Departure::Ejected, _)))
            && self.stopped_joining(role.host, group.address);
        match held {
            None if least > first && self.was_always_up(role.host) && !unclaimed => {
                Err(format!("it has acknowledged what is below {least}, and never begun"))
            }
            Some(held) if held.next < least && !held.left && !self.is_dead(held.life) => {
                Err(format!("it has acknowledged what is below {least}, and got what is below {}", held.next))
            }
            _ => Ok(()),
        }
    }

    fn was_always_up(&self, host: crate::HostId) -> bool {
        !self.lives.iter().any(|life| life.host == host && life.died_at.is_some())
    }

    /// Whether the application of a host has joined an address no longer at some time.
    fn stopped_joining(&self, host: crate::HostId, address: u8) -> bool {
        self.groups
            .here
            .iter()
            .any(|(life, here)| self.lives[*life].host == host && here.stopped.contains(&address))
    }

    /// A membership has ended, as its opener knows.
    fn judge_membership(&self, number: MembershipNo) -> Result<(), String> {
        let membership = &self.groups.memberships[number];
        if membership.left || self.is_dead(membership.life) {
            return Ok(());
        }
        let group = &self.groups.groups[membership.group];
        match &membership.end {
            None if self.hears_of_the_end(membership.life, group.opener) => {
                Err(format!("it goes on, and has got what is below {}", membership.next))
            }
            Some(MembershipEnd::Closed) if membership.next < group.sent.len() as u64 => {
                Err(format!("closed, and has got what is below {} of {}", membership.next, group.sent.len()))
            }
            _ => Ok(()),
        }
    }

    /// Without keepalive nobody hears that a peer is gone to which there is nothing to say.
    fn hears_of_the_end(&self, life: LifeNo, opener: LifeNo) -> bool {
        self.lives[life].config.keepalive.is_some() || (!self.is_dead(opener) && !self.hardship)
    }

    /// Nothing is left of groups at the process with `endpoint`, nor of the memory that they held.
    pub fn judge_rest_of_groups(&mut self, endpoint: &Endpoint) {
        let Some(&life) = self.by_incarnation.get(&endpoint.incarnation()) else { return };
        let host = self.lives[life].host;
        // It may have been invited by one that is gone.
        let cannot_know = self.hardship && self.lives[life].config.keepalive.is_none();
        let known = |group: &&Group| {
            endpoint.group_status(group.id).is_some() || endpoint.membership(group.id).is_some()
        };
        let left_over = self.groups.groups.iter().find(known);
        let may_hold = left_over.is_some() && cannot_know;
        if let Some(group) = left_over.filter(|_| !cannot_know) {
            self.fail(format!("host {}: {} is left over", host.0, group.id));
        }
        let wanted = |number| endpoint.needs_group_address(super::address(number));
        if !cannot_know && (0..super::ADDRESSES).any(wanted) {
            self.fail(format!("host {}: it still wants what is sent to groups", host.0));
        }
        let unread: u64 =
            endpoint.peers().filter_map(|peer| endpoint.flow(peer)).map(|flow| flow.unread_bytes).sum();
        if endpoint.held_bytes() != unread && !may_hold {
            self.fail(format!(
                "host {}: {} bytes are held, and {unread} unread by sessions",
                host.0,
                endpoint.held_bytes()
            ));
        }
    }
}
