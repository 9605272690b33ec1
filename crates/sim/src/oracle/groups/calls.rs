//! The application's calls about groups, made through the oracle so that it knows of them.

use super::policy::Watch;
use super::{Group, GroupNo, GroupOp, MembershipNo, Role, WHOLE_HISTORY_BYTES, address, name};
use crate::net::topology::HostId;
use crate::oracle::{LifeNo, Oracle};
use core::net::SocketAddr;
use core::time::Duration;
use denrei_proto::group::{GroupBackend, GroupError, GroupOptions};
use denrei_proto::{Config, Endpoint};
use denrei_wire::Instant;
use std::collections::BTreeMap;

/// Where all hear each other a group opens within this time.
const AMPLE_OPEN_TIMEOUT: Duration = Duration::from_secs(2);

impl Oracle {
    /// Does something about groups.
    pub fn act_on_groups(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, op: &GroupOp) {
        let life = self.life_on(host);
        match op {
            GroupOp::Join { address, heard } => self.join_groups(now, life, endpoint, *address, *heard),
            GroupOp::StopJoining(number) => {
                self.groups.here(life).joined.remove(number);
                self.groups.here(life).stopped.insert(*number);
                self.excuse_openings();
                endpoint.stop_joining(address(*number));
            }
            GroupOp::Open { address, members, options } => {
                let members: Vec<_> = members.iter().copied().filter(|member| *member != host).collect();
                self.open_group(now, life, endpoint, *address, &members, options);
            }
            GroupOp::Ask(opener, number, history) if *opener != host => {
                self.groups.here(life);
                endpoint.ask_to_join(now, opener.addr(), address(*number), *history);
            }
            GroupOp::Leave(number) => {
                if let Some(held) = self.held(life, *number) {
                    self.leave_group(now, endpoint, held);
                }
            }
            GroupOp::SetTaking(taking) => self.groups.here(life).stalled = !taking,
            GroupOp::Take(number, count) => {
                self.accept_groups(life, endpoint);
                if let Some(held) = self.held(life, *number) {
                    self.take_from_group(now, endpoint, held, *count);
                }
            }
            _ => self.act_as_opener(now, life, endpoint, op),
        }
    }

    fn act_as_opener(&mut self, now: Instant, life: LifeNo, endpoint: &mut Endpoint, op: &GroupOp) {
        let (GroupOp::Send(number, _)
        | GroupOp::Hurry(number)
        | GroupOp::Narrow(number, _)
        | GroupOp::Add(number, ..)
        | GroupOp::Remove(number, _)
        | GroupOp::Close(number)
        | GroupOp::Forget(number)) = op
        else {
            return;
        };
        let Some(group) = self.opened(life, *number) else { return };
        let id = self.groups.groups[group].id;
        match *op {
            GroupOp::Send(_, bytes) => self.send_to_group(endpoint, group, bytes),
            GroupOp::Hurry(_) => {
                let result = endpoint.group_hurry(id);
                self.check_group_call(group, "hurry", result);
            }
            GroupOp::Narrow(_, bytes) => {
                let result = endpoint.limit_group_datagrams(id, bytes);
                self.check_group_call(group, "limit_group_datagrams", result);
            }
            GroupOp::Add(_, host, history) => self.add_member(now, endpoint, group, host, history),
            GroupOp::Remove(_, member) => {
                let count = self.groups.groups[group].roles.len() as u32;
                let member = member % count.max(1);
                let status = endpoint.group_status(id);
                if endpoint.remove_group_member(now, id, member).is_ok()
                    && let Some(addr) =
                        status.and_then(|status| Some(status.members.get(member as usize)?.addr))
                    && let Some(host) = HostId::at(addr)
                {
                    // One that asked to be a member may not have been heard of yet.
                    let roles = &mut self.groups.groups[group].roles;
                    roles.entry(member).or_insert_with(|| Role::new(host)).removed = true;
                }
            }
            GroupOp::Close(_) => self.close_group(now, endpoint, group),
            _ => {
                self.groups.groups[group].forgotten = true;
                endpoint.forget_group(now, id);
            }
        }
    }

    /// The group that an application means.
    fn opened(&self, life: LifeNo, number: u8) -> Option<GroupNo> {
        let here = self.groups.here.get(&life)?;
        let at = (number as usize).checked_rem(here.opened.len())?;
        Some(here.opened[at])
    }

    fn held(&self, life: LifeNo, number: u8) -> Option<MembershipNo> {
        let here = self.groups.here.get(&life)?;
        let at = (number as usize).checked_rem(here.held.len())?;
        Some(here.held[at])
    }

    fn join_groups(&mut self, now: Instant, life: LifeNo, endpoint: &mut Endpoint, number: u8, heard: bool) {
        let joined = match heard {
            true => endpoint.join_group(now, address(number)),
            false => endpoint.join_group_unheard(now, address(number)),
        };
        if !heard {
            // It is taken at its word.
            self.note_deaf(self.lives[life].host);
        }
        self.groups.here(life).joined.insert(number);
        if let Err(error) = joined {
            self.fail(format!("host {}: cannot join groups: {error}", self.lives[life].host.0));
        }
    }

    fn open_group(
        &mut self,
        now: Instant,
        life: LifeNo,
        endpoint: &mut Endpoint,
        number: u8,
        members: &[HostId],
        options: &GroupOptions,
    ) {
        self.groups.here(life);
        let addrs: Vec<SocketAddr> = members.iter().map(|member| member.addr()).collect();
        let id = match endpoint.open_group(now, address(number), &addrs, options.clone()) {
            Ok(id) => id,
            Err(GroupError::BadMembers { .. }) if members.is_empty() => return,
            Err(GroupError::NotSealed) if options.sign && self.lives[life].config.cluster_key.is_none() => {
                return;
            }
            Err(error) => {
                return self.fail(format!("host {}: a group was refused: {error}", self.lives[life].host.0));
            }
        };
        let has_to_open = !self.hardship
            && !self.groups.hindered
            && options.open_timeout >= AMPLE_OPEN_TIMEOUT
            && members.iter().all(|member| self.waits_for(*member, number, options));
        let roles: BTreeMap<u32, Role> = (0..).zip(members.iter().map(|host| Role::new(*host))).collect();
        let group = self.groups.groups.len();
        self.groups.groups.push(Group {
            opener: life,
            id,
            address: number,
            options: options.clone(),
            sent: Vec::new(),
            roles,
            opened: false,
            failed: false,
            closing: false,
            closed: false,
            forgotten: false,
            has_to_open,
            closing_at: None,
            watch: Watch::default(),
        });
        self.groups.here(life).opened.push(group);
        if self.groups.by_id.insert(id, group).is_some() {
            self.fail(format!("{} was named as another", self.group_label(group)));
        }
    }

    /// Whether a host can be a member of a group at an address.
    fn waits_for(&self, host: HostId, number: u8, options: &GroupOptions) -> bool {
        let here = self.current.get(&host).and_then(|life| self.groups.here.get(life));
        let hears = options.backend != GroupBackend::Multicast || !self.groups.deaf.contains(&host);
        here.is_some_and(|here| here.joined.contains(&number)) && hears
    }

    fn send_to_group(&mut self, endpoint: &mut Endpoint, number: GroupNo, bytes: usize) {
        let group = &self.groups.groups[number];
        let next = group.sent.len() as u64;
        let data = name(number, next).bytes(bytes);
        let send_buffer_bytes = self.lives[group.opener].config.send_buffer_bytes;
        let result = endpoint.group_send(group.id, data);
        let plausible = match &result {
            Ok(taken) => *taken == next,
            Err(GroupError::WouldBlock { queued_bytes }) => {
                self.totals.would_block += 1;
                *queued_bytes > 0 && queued_bytes + bytes as u64 > send_buffer_bytes
            }
            Err(GroupError::TooLarge { max, .. }) => bytes as u64 > *max,
            Err(GroupError::Deserted(_)) => {
                let begun = |role: &&Role| role.first.is_some() && role.departed.is_none();
                group.opened && !group.roles.values().any(|role| begun(&role))
            }
            Err(GroupError::Closing(_)) => group.closing,
            Err(GroupError::Unknown(_)) => group.is_over() || group.closing,
            Err(_) => false,
        };
        if !plausible {
            let label = self.group_label(number);
            return self.fail(format!("{label}: message {next} of {bytes} bytes: {result:?}"));
        }
        if result.is_ok() {
            // A host that does not take it cannot be a member.
            let takes = |config: &Config| config.max_message_bytes.min(config.receive_memory_bytes);
            let large = self.lives.iter().any(|life| takes(&life.config) < bytes as u64);
            let group = &mut self.groups.groups[number];
            group.has_to_open &= !large;
            group.sent.push(bytes);
            self.totals.group_sent += 1;
        }
    }

    fn add_member(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        number: GroupNo,
        host: HostId,
        history: bool,
    ) {
        let group = &self.groups.groups[number];
        if self.lives[group.opener].host == host {
            return;
        }
        let whole_history = history && group.options.history_bytes >= WHOLE_HISTORY_BYTES;
        match endpoint.add_group_member(now, group.id, host.addr(), history) {
            Ok(member) => {
                let role = Role { whole_history, ..Role::new(host) };
                if self.groups.groups[number].roles.insert(member, role).is_some() {
                    let label = self.group_label(number);
                    self.fail(format!("{label}: the id {member} was given twice"));
                }
            }
            Err(GroupError::Unknown(_)) if group.is_over() || group.closing => {}
            Err(GroupError::Closing(_)) if group.closing => {}
            // It is a member already, or the group is not open yet.
            Err(GroupError::BadMembers { .. }) => {}
            Err(error) => {
                let label = self.group_label(number);
                self.fail(format!("{label}: host {} cannot be a member: {error}", host.0));
            }
        }
    }

    pub(super) fn close_group(&mut self, now: Instant, endpoint: &mut Endpoint, number: GroupNo) {
        let id = self.groups.groups[number].id;
        let result = endpoint.close_group(id);
        self.check_group_call(number, "close", result);
        let group = &mut self.groups.groups[number];
        group.closing = true;
        group.closing_at.get_or_insert(now);
        // Nobody is a member yet.
        group.closed |= !group.opened;
    }

    fn check_group_call(&mut self, number: GroupNo, what: &str, result: Result<(), GroupError>) {
        if let Err(error) = result
            && !self.groups.groups[number].forgotten
        {
            let label = self.group_label(number);
            self.fail(format!("{label}: {what} was refused: {error}"));
        }
    }

    pub(super) fn leave_group(&mut self, now: Instant, endpoint: &mut Endpoint, number: MembershipNo) {
        let membership = &mut self.groups.memberships[number];
        membership.left = true;
        let (life, group, member) = (membership.life, membership.group, membership.member);
        endpoint.leave_group(now, (self.groups.groups[group].id, member));
        self.groups.here(life).held.retain(|held| *held != number);
    }
}
