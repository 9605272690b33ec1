//! All groups of an endpoint: those it opened and those it is a member of.
//!
//! Inputs → outputs: the application's verbs, time, what [`inbound`] takes in → the group's own machine
//! ([`Sender`], [`Membership`]), packets to groups' addresses, reports. Source: `spec/protocol.md` §14.

mod inbound;
mod shelf;

use super::keys::OpenerKeys;
use super::membership::{Membership, Stage};
use super::types::POLICY_TIMES;
use super::{
    Departure, GroupBackend, GroupError, GroupEvent, GroupId, GroupMessage, GroupOptions, GroupPolicy,
    GroupStatus, Host, Invited, MAX_MEMBERS, MembershipEnd, MembershipId, MembershipStatus, Sender,
    is_same_group,
};
use crate::config::Config;
use crate::event::PeerId;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::group::{Join, Open, Record};
use denrei_wire::{Instant, Transmit, TransmitBuf};
use shelf::Shelf;
use std::collections::{BTreeSet, VecDeque};
use zeroize::Zeroizing;

/// Most groups that an endpoint opens, and most that it is a member of.
const MAX_GROUPS: usize = 1024;
/// A group that begins while nobody listens at its address is for who listens there within this time: whoever ends
/// one group and opens another is not everywhere as far, and a process may be off its core in between.
const UNCLAIMED_TIME: Duration = Duration::from_secs(2);

/// An OPEN for an address that nobody has joined yet.
#[derive(Debug)]
struct Invitation {
    group: GroupId,
    from: PeerId,
    from_addr: SocketAddr,
    /// With the group's key.
    open: Zeroizing<Vec<u8>>,
}

impl Invitation {
    /// The group's key has changed since; what follows it in OPEN holds.
    fn rekey(&mut self, key: &[u8]) {
        let Ok((id, Record::Open(open))) = Record::decode(&self.open) else { return };
        let Some(rest) = open.key.get(key.len()..) else { return };
        let key = Zeroizing::new([key, rest].concat());
        let renewed = Record::Open(Open { key: &key, ..open }).encode(id);
        self.open = renewed.into();
    }
}

/// What became of a GROUP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Taken,
    /// Of no group here, or not from its opener.
    Foreign,
    /// Damaged or forged.
    NotGenuine,
    /// Taken before.
    Repeated,
}

/// All groups of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Table {
    senders: Shelf<Sender>,
    members: Shelf<Membership>,
    /// Those that ended and that the application still holds, though it is a member of the group again.
    former: Vec<Membership>,
    /// Addresses at which this endpoint becomes a member when asked.
    joined: BTreeSet<SocketAddr>,
    /// Of them, those that nothing is heard of here: groups there come by sessions.
    unheard: BTreeSet<SocketAddr>,
    /// Of them, those where an opener last gave up waiting for others.
    given_up: BTreeSet<SocketAddr>,
    invitations: VecDeque<Invitation>,
    /// Bytes that all members hold for the application.
    held: u64,
    /// Senders take turns.
    turn: GroupId,
    news: u64,
}

/// Refuses what cannot be kept: signatures say who has sent a packet, so packets have to be sealed, and
/// no member may stand between.
fn check(options: &GroupOptions, config: &Config) -> Result<(), GroupError> {
    if options.sign && config.cluster_key.is_none() {
        return Err(GroupError::NotSealed);
    }
    if options.sign && options.backend == GroupBackend::Tree {
        return Err(GroupError::NotSigned);
    }
    match options.policy {
        GroupPolicy::Eject { after } | GroupPolicy::Lag { after } if !POLICY_TIMES.contains(&after) => {
            Err(GroupError::BadPolicy { after })
        }
        _ => Ok(()),
    }
}

/// The keys of a new group, if this endpoint seals.
fn keys(id: GroupId, options: &GroupOptions, host: &mut dyn Host) -> Option<OpenerKeys> {
    host.config().cluster_key.as_ref()?;
    let seed = host.seed();
    let sign = options.sign.then(|| host.seed());
    Some(OpenerKeys::new(id, &seed, sign.as_ref()))
}

impl Table {
    // ---- the opener's verbs ----

    pub fn open(
        &mut self,
        now: Instant,
        id: GroupId,
        address: SocketAddr,
        addrs: &[SocketAddr],
        options: GroupOptions,
        host: &mut dyn Host,
    ) -> Result<(), GroupError> {
        if !address.ip().is_multicast() || address.port() == 0 {
            return Err(GroupError::BadAddress(address));
        }
        if self.senders.len() >= MAX_GROUPS {
            return Err(GroupError::TooManyGroups { max: MAX_GROUPS });
        }
        check(&options, host.config())?;
        let bad = |problem: String| GroupError::BadMembers { max: MAX_MEMBERS, problem };
        if addrs.is_empty() || addrs.len() > MAX_MEMBERS {
            return Err(bad(format!("{} were given", addrs.len())));
        }
        let mut distinct = BTreeSet::new();
        if let Some(twice) = addrs.iter().find(|addr| !distinct.insert(**addr)) {
            return Err(bad(format!("{twice} was given twice")));
        }
        // Before any of them is invited: nobody would tell those that nothing comes of it.
        let mut connect =
            |addr| host.connect(now, addr).ok_or_else(|| bad(format!("{addr} cannot be connected to")));
        let peers = addrs.iter().map(|addr| connect(*addr)).collect::<Result<Vec<PeerId>, _>>()?;
        let keys = keys(id, &options, host);
        let mut sender = Box::new(Sender::new(id, address, options, keys, host.config(), now));
        for (addr, peer) in addrs.iter().zip(peers) {
            let id = sender
                .invite(now, *addr, peer, addrs.len(), host)
                .ok_or_else(|| bad("they are too many".into()))?;
            if self.senders.values().any(|other| other.misses(peer, address)) {
                sender.note_out_of_reach(id);
            }
        }
        self.senders.insert(id, sender);
        Ok(())
    }

    /// Asks something of a group that this endpoint has opened.
    pub fn with_sender<R>(&mut self, id: GroupId, act: impl FnOnce(&mut Sender) -> R) -> Option<R> {
        let result = act(self.senders.stir(id)?);
        self.settle();
        Some(result)
    }

    /// The next event of a group that this endpoint has opened.
    pub fn next_event(&mut self, id: GroupId) -> Option<GroupEvent> {
        let event = self.senders.get_mut(id)?.events.pop();
        self.settle();
        event
    }

    pub fn sender_ref(&self, id: GroupId) -> Option<&Sender> {
        self.senders.get(id)
    }

    /// Looks at the groups that may have changed: before anything is asked that concerns all.
    pub fn settle(&mut self) {
        self.senders.settle();
        self.members.settle();
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.senders.stir_due(now);
        self.members.stir_due(now);
    }

    /// Forgets a group.
    pub fn forget(&mut self, now: Instant, id: GroupId, host: &mut dyn Host) {
        if let Some(mut sender) = self.senders.remove(id) {
            // Else as much news of others would go unseen.
            self.news += sender.news;
            sender.dismiss(now, host);
        }
    }

    /// Adds a member to an open group; its id.
    pub fn add_member(
        &mut self,
        now: Instant,
        id: GroupId,
        addr: SocketAddr,
        history: bool,
        host: &mut dyn Host,
    ) -> Result<u32, GroupError> {
        let sender = self.senders.stir(id).ok_or(GroupError::Unknown(id))?;
        sender.check_add()?;
        let bad = |problem: String| GroupError::BadMembers { max: MAX_MEMBERS, problem };
        let peer = host.connect(now, addr).ok_or_else(|| bad(format!("{addr} cannot be connected to")))?;
        sender.add(now, addr, peer, history, host).map_err(bad)
    }

    /// Removes a member.
    pub fn remove_member(
        &mut self,
        now: Instant,
        id: GroupId,
        member: u32,
        host: &mut dyn Host,
    ) -> Result<(), GroupError> {
        let sender = self.senders.stir(id).ok_or(GroupError::Unknown(id))?;
        let index = sender.member(member).ok_or(GroupError::UnknownMember { group: id, member })?;
        sender.depart(now, index, Departure::Removed, host);
        Ok(())
    }

    // ---- the member's verbs ----

    /// Becomes a member of groups at this address when asked; `heard`: datagrams for it arrive.
    pub fn join(
        &mut self,
        now: Instant,
        address: SocketAddr,
        heard: bool,
        host: &mut dyn Host,
    ) -> Result<(), GroupError> {
        if !address.ip().is_multicast() || address.port() == 0 {
            return Err(GroupError::BadAddress(address));
        }
        if self.joined.len() >= MAX_GROUPS && !self.joined.contains(&address) {
            return Err(GroupError::TooManyGroups { max: MAX_GROUPS });
        }
        self.joined.insert(address);
        if heard {
            self.unheard.remove(&address);
        } else {
            self.unheard.insert(address);
        }
        for id in self.members.ids(|member| member.address == address && member.unclaimed_until.is_some()) {
            self.members.get_mut(id).expect("it was found just now").unclaimed_until = None;
        }
        for invitation in core::mem::take(&mut self.invitations) {
            match Record::decode(&invitation.open) {
                Ok((_, Record::Open(mut open))) if is_same_group(open.address, address) => {
                    open.address = address;
                    self.accept_open(now, &invitation, &open, host);
                }
                _ => self.invitations.push_back(invitation),
            }
        }
        Ok(())
    }

    /// Asks the opener at `opener` to be made a member of its group at `address`.
    pub fn ask_to_join(
        &mut self,
        now: Instant,
        opener: SocketAddr,
        address: SocketAddr,
        history: bool,
        host: &mut dyn Host,
    ) -> bool {
        let Some(peer) = host.connect(now, opener) else { return false };
        host.send(now, peer, Record::Join(Join { address, history }).encode(0).into());
        true
    }

    /// A membership ends by what the opener says, or with its session. One that had not begun was none: the
    /// group never opened.
    fn end(&mut self, id: GroupId, why: MembershipEnd) {
        let Some(member) = self.members.get_mut(id) else { return };
        if member.stage == Stage::Accepted {
            self.held -= member.held_bytes();
            if matches!(why, MembershipEnd::Removed(_)) && self.joined.contains(&member.address) {
                self.given_up.insert(member.address);
                self.news += 1;
            }
            self.members.remove(id);
        } else {
            self.news += member.end(why) as u64;
        }
    }

    /// Takes part no longer in groups at this address that begin from now on, unless the address is joined again in time.
    pub fn stop_joining(&mut self, address: SocketAddr) {
        self.joined.remove(&address);
        self.unheard.remove(&address);
        self.given_up.remove(&address);
    }

    /// How far the opening of a group at an address is.
    pub fn invited(&self, address: SocketAddr) -> Invited {
        let waits = |member: &Membership| member.address == address && member.stage == Stage::Accepted;
        match self.members.values().any(waits) {
            true => Invited::Yes,
            false if self.given_up.contains(&address) => Invited::GivenUp,
            false => Invited::No,
        }
    }

    /// Whether any membership needs the address.
    pub fn needs_address(&self, address: SocketAddr) -> bool {
        let takes_part = |member: &Membership| {
            member.stage != Stage::Accepted && !member.is_finished() && member.unclaimed_until.is_none()
        };
        let mut members = self.members.values().filter(|member| member.address == address);
        self.joined.contains(&address) || members.any(takes_part)
    }

    /// The next membership at an address that the application has not been given and that has begun.
    pub fn accept(&mut self, address: SocketAddr) -> Option<(GroupId, u32)> {
        let begun = |member: &&Membership| {
            member.address == address && !member.accepted && member.stage != Stage::Accepted
        };
        let former = self.former.iter().position(|member| begun(&member));
        let current = || self.members.values().find(begun).map(|member| member.group);
        let member = match former {
            Some(at) => &mut self.former[at],
            None => current().and_then(|id| self.members.get_mut(id))?,
        };
        (member.accepted, member.unclaimed_until) = (true, None);
        let accepted = (member.group, member.member);
        self.settle();
        Some(accepted)
    }

    /// The states of all groups that this endpoint has opened.
    pub fn statuses(&self) -> impl Iterator<Item = GroupStatus> + '_ {
        self.senders.values().map(Sender::status)
    }

    /// The groups that this endpoint is a member of.
    pub fn memberships(&self) -> impl Iterator<Item = MembershipStatus> + '_ {
        self.members.values().map(Membership::status)
    }

    pub fn membership(&self, id: MembershipId) -> Option<&Membership> {
        let current = self.members.get(id.group).filter(|member| member.is(id));
        current.or_else(|| self.former.iter().find(|member| member.is(id)))
    }

    /// The opener of a group that this endpoint is a member of.
    pub fn opener(&self, id: GroupId) -> Option<PeerId> {
        self.members.get(id).map(|member| member.opener)
    }

    /// Takes the next message of a group.
    pub fn take(&mut self, now: Instant, id: MembershipId, memory_left: bool) -> Option<GroupMessage> {
        let current = self.members.get_mut(id.group);
        let current = current.filter(|member| member.is(id));
        let member = current.or_else(|| self.former.iter_mut().find(|member| member.is(id)))?;
        let held = member.held_bytes();
        let taken = member.take(now, memory_left);
        self.held = self.held + member.held_bytes() - held;
        self.members.stir_if_due(now, id.group);
        taken
    }

    /// Leaves a group, and forgets it.
    pub fn leave(&mut self, now: Instant, id: MembershipId, host: &mut dyn Host) {
        let current = self.members.get(id.group).is_some_and(|member| member.is(id));
        let former = || self.former.iter().position(|member| member.is(id));
        let mut member = match (current, former()) {
            (true, _) => *self.members.remove(id.group).expect("it was found just now"),
            (false, Some(at)) => self.former.swap_remove(at),
            (false, None) => return,
        };
        self.held -= member.held_bytes();
        if member.end(MembershipEnd::Left) {
            host.send(now, member.opener, member.leaving().encode(id.group.0).into());
        }
        self.news += 1;
    }

    /// Leaves the groups at an address that have begun and that the application has not been given, unless somebody
    /// joins there again, or takes them, in time. Of those that it is a member of anew nobody takes the former.
    pub fn leave_unclaimed(&mut self, now: Instant, address: SocketAddr, host: &mut dyn Host) {
        let is_unclaimed = |member: &Membership| {
            member.address == address && !member.accepted && member.stage != Stage::Accepted
        };
        for id in self.members.ids(is_unclaimed) {
            self.members.get_mut(id).expect("it was found just now").unclaimed_until =
                Some(now + UNCLAIMED_TIME);
        }
        let former = self.former.iter().filter(|member| is_unclaimed(member));
        let former: Vec<MembershipId> = former.map(|member| (member.group, member.member).into()).collect();
        former.into_iter().for_each(|id| self.leave(now, id, host));
    }

    /// Bytes held for the application.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Of these, what members hold beyond `most` bytes each of which the application can take nothing.
    pub fn held_beyond(&self, most: u64) -> u64 {
        let all = self.members.values().chain(&self.former);
        let unready = all.filter(|member| !member.has_ready());
        unready.map(|member| member.held_bytes().saturating_sub(most)).sum()
    }

    // ---- time and the way out ----

    /// Follows what has happened to groups, and does what is due: of each as if it were the only one.
    pub fn drive(&mut self, now: Instant, host: &mut dyn Host) {
        for id in self.senders.take_stirred(now) {
            if let Some(sender) = self.senders.get_mut(id) {
                sender.drive(now, host);
            }
        }
        for id in self.members.take_stirred(now) {
            let Some(member) = self.members.get_mut(id) else { continue };
            if member.owes_report(now) {
                report(now, member, host);
            }
            if member.unclaimed_until.is_some_and(|until| until <= now) {
                self.leave(now, id.into(), host);
            }
        }
    }

    /// Whether [`drive`](Self::drive) has something to do now.
    pub fn wants_drive(&self, now: Instant) -> bool {
        self.is_stirred() || self.deadline() <= now
    }

    /// Whether something has happened that is to be followed.
    pub fn is_stirred(&self) -> bool {
        self.senders.is_stirred() || self.members.is_stirred()
    }

    /// What one of the groups that nothing says of that they are to be driven would do if it were, which it should not.
    pub fn left_undone(&self, now: Instant, host: &dyn Host) -> Option<&'static str> {
        self.senders.at_rest(now).find_map(|sender| sender.left_undone(host))
    }

    /// Something has happened to a session: room may have become free, or it has proven itself.
    pub fn on_session_progress(&mut self, peer: PeerId) {
        self.senders.stir_waiting(|sender| sender.waits_for(peer));
    }

    /// When [`drive`](Self::drive) has to be called at the latest.
    pub fn deadline(&self) -> Instant {
        self.senders.deadline().min(self.members.deadline())
    }

    /// Whether [`write_transmit`](Self::write_transmit) has something to write.
    pub fn wants_transmit(&self) -> bool {
        self.senders.next_to_transmit(self.turn).is_some()
    }

    /// Writes the next datagrams to a group's address, each group in its turn.
    pub fn write_transmit(
        &mut self,
        now: Instant,
        out: &mut TransmitBuf,
        host: &mut dyn Host,
    ) -> Option<Transmit> {
        let id = self.senders.next_to_transmit(self.turn)?;
        self.turn = id;
        self.senders.get_mut(id)?.write_transmit(now, out, host)
    }

    /// A number that grows with everything an application may wait for.
    pub fn news(&self) -> u64 {
        self.news + self.senders.news()
    }
}

/// Sends a member's report to whom it reports.
fn report(now: Instant, member: &mut Membership, host: &mut dyn Host) {
    let to = member.reports_to().and_then(|parent| host.peer_at(parent)).unwrap_or(member.opener);
    let rtt = host.rtt(member.opener).unwrap_or_default();
    let memory_left = host.memory_left();
    let mut frame = Vec::with_capacity(64);
    member.report(now, rtt, memory_left, &mut |part| frame.extend_from_slice(part));
    host.report(now, to, &frame);
    if member.is_unheard() {
        // Nothing says that a report has arrived but what it asks for.
        host.ask_for_life(now, member.opener);
    }
}
