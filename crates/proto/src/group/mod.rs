//! Reliable multicast groups: one send, any number of receivers (M1–M10).
//!
//! Inputs → outputs: GROUP packets, records and reports from sessions, time, the application's calls →
//! packets to groups' addresses, records and reports for sessions, messages and events. [`Table`] knows
//! all groups of an endpoint; what is said to members in confidence and in order goes through their
//! sessions ([`Host`]), so this room has no retransmission of its own but that of symbols. Source: the
//! paper's M rows; RFC 5740 (NORM) for reports and repairs; `spec/protocol.md` §14.

mod arrivals;
mod assembly;
mod member;
mod membership;
mod sender;
mod stream;
mod types;

pub use types::{
    Departure, GroupBackend, GroupCounters, GroupError, GroupEvent, GroupId, GroupMessage, GroupOptions,
    GroupPolicy, GroupStatus, MemberPath, MemberStatus, MembershipEnd,
};

use crate::config::Config;
use crate::event::{LostReason, PeerId};
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::frame::Feedback;
use denrei_wire::group::{GroupHeader, Join, Open, Record};
use denrei_wire::packet::{Header, flags};
use denrei_wire::{Instant, Transmit, TransmitBuf};
use membership::{Grant, Membership, Stage};
use sender::RELAY_FROM;
pub(crate) use sender::Sender;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most members of a group: each costs its opener about half a kilobyte.
pub const MAX_MEMBERS: usize = 16_384;
/// Most groups that an endpoint opens, and most that it is a member of.
const MAX_GROUPS: usize = 1024;
/// Invitations kept for an address that nobody has joined yet; beyond, they are refused.
const MAX_INVITATIONS: usize = 64;

/// What groups need of the endpoint: sessions.
pub(crate) trait Host {
    fn config(&self) -> &Config;
    /// Opens a session, or names the one there is.
    fn connect(&mut self, now: Instant, addr: SocketAddr) -> Option<PeerId>;
    /// Sends a record to a peer.
    fn send(&mut self, now: Instant, peer: PeerId, record: Bytes);
    /// Sends a frame that is not repeated to a peer.
    fn report(&mut self, now: Instant, peer: PeerId, frame: &[u8]);
    /// Cost queued for a peer; `None`: there is no such peer.
    fn queued_bytes(&self, peer: PeerId) -> Option<u64>;
    /// Smoothed round-trip time.
    fn rtt(&self, peer: PeerId) -> Option<Duration>;
    /// Largest datagram its path is known to carry.
    fn datagram_bytes(&self, peer: PeerId) -> Option<u16>;
    /// The live peer at an address.
    fn peer_at(&self, addr: SocketAddr) -> Option<PeerId>;
    fn addr_of(&self, peer: PeerId) -> Option<SocketAddr>;
    /// Whether received messages have not used up the memory for them.
    fn memory_left(&self) -> bool;
}

/// An OPEN for an address that nobody has joined yet.
#[derive(Debug)]
struct Invitation {
    group: GroupId,
    from: PeerId,
    from_addr: SocketAddr,
    open: Vec<u8>,
}

/// All groups of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct Table {
    senders: BTreeMap<GroupId, Box<Sender>>,
    members: BTreeMap<GroupId, Box<Membership>>,
    /// Addresses at which this endpoint becomes a member when asked.
    joined: BTreeSet<SocketAddr>,
    invitations: VecDeque<Invitation>,
    /// Something has happened that [`drive`](Self::drive) has to follow.
    dirty: bool,
    /// Senders take turns.
    turn: GroupId,
    news: u64,
    /// Packets of groups that nobody here is a member of.
    pub foreign_packets: u64,
}

/// Where there is a cluster key, symbols travel over members' sessions, which are sealed, and not to
/// the group's address, where nothing is yet (`spec/protocol.md` §12.6).
fn over_sessions(options: GroupOptions, members: usize, config: &Config) -> Result<GroupOptions, GroupError> {
    if config.cluster_key.is_none() {
        return Ok(options);
    }
    let backend = match options.backend {
        GroupBackend::Multicast => return Err(GroupError::NotSealed),
        GroupBackend::Auto if members < RELAY_FROM => GroupBackend::Unicast,
        GroupBackend::Auto => GroupBackend::Tree,
        set => set,
    };
    Ok(GroupOptions { backend, ..options })
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
        let options = over_sessions(options, addrs.len(), host.config())?;
        let bad = |problem: String| GroupError::BadMembers { max: MAX_MEMBERS, problem };
        if addrs.is_empty() || addrs.len() > MAX_MEMBERS {
            return Err(bad(format!("{} were given", addrs.len())));
        }
        let mut distinct = BTreeSet::new();
        if let Some(twice) = addrs.iter().find(|addr| !distinct.insert(**addr)) {
            return Err(bad(format!("{twice} was given twice")));
        }
        let mut sender = Box::new(Sender::new(id, address, options, host.config(), now));
        for addr in addrs {
            let peer =
                host.connect(now, *addr).ok_or_else(|| bad(format!("{addr} cannot be connected to")))?;
            sender.invite(now, *addr, peer, addrs.len(), host);
        }
        self.senders.insert(id, sender);
        self.dirty = true;
        Ok(())
    }

    pub fn sender(&mut self, id: GroupId) -> Option<&mut Sender> {
        self.senders.get_mut(&id).map(|sender| &mut **sender)
    }

    pub fn sender_ref(&self, id: GroupId) -> Option<&Sender> {
        self.senders.get(&id).map(|sender| &**sender)
    }

    /// Something was asked of a group.
    pub fn touch(&mut self) {
        self.dirty = true;
    }

    /// Forgets a group that is over.
    pub fn forget(&mut self, id: GroupId) {
        self.senders.remove(&id);
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
        let sender = self.senders.get_mut(&id).ok_or(GroupError::Unknown(id))?;
        let bad = |problem: String| GroupError::BadMembers { max: MAX_MEMBERS, problem };
        let peer = host.connect(now, addr).ok_or_else(|| bad(format!("{addr} cannot be connected to")))?;
        self.dirty = true;
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
        let sender = self.senders.get_mut(&id).ok_or(GroupError::Unknown(id))?;
        if member as usize >= sender.member_count() {
            return Err(GroupError::UnknownMember { group: id, member });
        }
        sender.depart(now, member as usize, Departure::Removed, host);
        self.dirty = true;
        Ok(())
    }

    // ---- the member's verbs ----

    /// Becomes a member of groups at this address when asked.
    pub fn join(&mut self, now: Instant, address: SocketAddr, host: &mut dyn Host) -> Result<(), GroupError> {
        if !address.ip().is_multicast() || address.port() == 0 {
            return Err(GroupError::BadAddress(address));
        }
        if self.joined.len() >= MAX_GROUPS {
            return Err(GroupError::TooManyGroups { max: MAX_GROUPS });
        }
        self.joined.insert(address);
        for invitation in core::mem::take(&mut self.invitations) {
            match Record::decode(&invitation.open) {
                Ok((_, Record::Open(open))) if open.address == address => {
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

    /// Takes part no longer in groups at this address that begin from now on.
    pub fn stop_joining(&mut self, address: SocketAddr) {
        self.joined.remove(&address);
    }

    /// Whether any membership needs the address.
    pub fn needs_address(&self, address: SocketAddr) -> bool {
        self.joined.contains(&address)
            || self.members.values().any(|member| member.address == address && !member.is_finished())
    }

    /// The next membership at an address that the application has not been given and that has begun.
    pub fn accept(&mut self, address: SocketAddr) -> Option<GroupId> {
        let begun = |member: &&mut Box<Membership>| {
            member.address == address && !member.accepted && member.stage != Stage::Accepted
        };
        let member = self.members.values_mut().find(begun)?;
        member.accepted = true;
        Some(member.group)
    }

    pub fn membership(&self, id: GroupId) -> Option<&Membership> {
        self.members.get(&id).map(|member| &**member)
    }

    /// Takes the next message of a group.
    pub fn take(&mut self, now: Instant, id: GroupId, memory_left: bool) -> Option<GroupMessage> {
        let member = self.members.get_mut(&id)?;
        let taken = member.take(now, memory_left);
        self.dirty |= member.deadline() <= now;
        taken
    }

    /// Leaves a group, and forgets it.
    pub fn leave(&mut self, now: Instant, id: GroupId, host: &mut dyn Host) {
        let Some(mut member) = self.members.remove(&id) else { return };
        if member.end(MembershipEnd::Left) {
            host.send(now, member.opener, Record::Leave.encode(id.0).into());
        }
        self.news += 1;
    }

    /// Bytes held for the application.
    pub fn held_bytes(&self) -> u64 {
        self.members.values().map(|member| member.held_bytes()).sum()
    }

    // ---- the way in ----

    /// A GROUP packet whose trailer has been checked.
    pub fn on_packet(
        &mut self,
        now: Instant,
        from: SocketAddr,
        packet: &Header,
        body: &[u8],
        host: &mut dyn Host,
    ) {
        let id = GroupId(packet.token.0);
        let member = self.members.get_mut(&id).filter(|member| member.opener_addr == from);
        let (Some(member), Some((header, frames))) = (member, GroupHeader::decode(body)) else {
            self.foreign_packets += 1;
            return;
        };
        let poll = packet.flags & flags::ACK_NOW != 0;
        let was_ready = member.has_ready();
        let result = member.on_packet(now, packet.number, poll, &header, frames);
        self.after_symbol(now, id, was_ready, result, host);
    }

    fn after_symbol(
        &mut self,
        now: Instant,
        id: GroupId,
        was_ready: bool,
        result: Result<(), &'static str>,
        host: &mut dyn Host,
    ) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if let Err(what) = result
            && member.end(MembershipEnd::Violation(what))
        {
            host.send(now, member.opener, Record::Leave.encode(id.0).into());
            self.news += 1;
            return;
        }
        self.news += (member.has_ready() && !was_ready) as u64;
        self.dirty |= member.deadline() <= now;
        self.finish(now, id, host);
    }

    /// Says FIN+ACK if everything has come.
    fn finish(&mut self, now: Instant, id: GroupId, host: &mut dyn Host) {
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.finish() {
            host.send(now, member.opener, Record::Closed.encode(id.0).into());
            self.news += 1;
        }
    }

    /// A report of a member, by its session.
    pub fn on_report(&mut self, now: Instant, peer: PeerId, report: &Feedback<'_>, host: &mut dyn Host) {
        let id = GroupId(report.group);
        if let Some(sender) = self.senders.get_mut(&id) {
            if let Some(index) = sender.member_of(peer) {
                sender.on_report(now, index, report, host);
                self.dirty = true;
            }
        } else if let Some(member) = self.members.get_mut(&id) {
            member.on_report_from_below(now, peer, report);
            self.dirty |= member.deadline() <= now;
        }
    }

    /// A record, by the session with `peer`. What cannot be read, or is not expected, is dropped: a
    /// peer may be behind the times.
    pub fn on_record(&mut self, now: Instant, peer: PeerId, octets: &Bytes, host: &mut dyn Host) {
        let Ok((id, record)) = Record::decode(octets) else { return };
        let id = GroupId(id);
        match record {
            Record::Open(open) => self.on_open(now, id, peer, &open, octets, host),
            Record::Join(join) => self.on_join(now, peer, &join, host),
            Record::Accept { .. } | Record::Refuse | Record::Closed | Record::Leave => {
                self.on_answer(now, id, peer, &record, host);
            }
            _ => self.on_opener_record(now, id, peer, &record, octets, host),
        }
    }

    fn on_answer(
        &mut self,
        now: Instant,
        id: GroupId,
        peer: PeerId,
        record: &Record<'_>,
        host: &mut dyn Host,
    ) {
        let Some(sender) = self.senders.get_mut(&id) else { return };
        let Some(index) = sender.member_of(peer) else { return };
        self.dirty = true;
        match *record {
            Record::Accept { credit, max_message } => sender.on_accept(now, index, credit, max_message),
            Record::Refuse => sender.depart(now, index, Departure::Refused, host),
            Record::Closed => sender.on_closed(now, index),
            _ => sender.depart(now, index, Departure::Left, host),
        }
    }

    fn on_opener_record(
        &mut self,
        now: Instant,
        id: GroupId,
        peer: PeerId,
        record: &Record<'_>,
        octets: &Bytes,
        host: &mut dyn Host,
    ) {
        let Some(member) = self.members.get_mut(&id) else {
            self.invitations.retain(|invitation| invitation.group != id || invitation.from != peer);
            return;
        };
        let from_opener = member.opener == peer;
        let was_ready = member.has_ready();
        let mut result = Ok(());
        match record {
            Record::Symbol { number, report, frames } => {
                result = member.on_symbol(now, *number, frames);
                if *report {
                    member.on_asked(now);
                }
            }
            Record::Poll { next } => member.on_poll(now, *next),
            Record::Begin(begin) if from_opener => {
                member.begin(begin);
                self.news += 1;
            }
            Record::Close { symbols, .. } if from_opener => member.on_close(now, *symbols),
            Record::Removed if from_opener => {
                self.news += member.end(MembershipEnd::Removed) as u64;
            }
            Record::Route(route) if from_opener => {
                let children =
                    route.children.iter().filter_map(|(_, addr)| host.connect(now, *addr)).collect();
                member.set_route(now, route.clone(), children);
            }
            _ => return,
        }
        if matches!(record, Record::Symbol { .. } | Record::Poll { .. }) {
            for child in member.relays_to() {
                host.send(now, *child, octets.clone());
            }
        }
        self.after_symbol(now, id, was_ready, result, host);
    }

    fn on_open(
        &mut self,
        now: Instant,
        group: GroupId,
        from: PeerId,
        open: &Open<'_>,
        octets: &Bytes,
        host: &mut dyn Host,
    ) {
        let Some(from_addr) = host.addr_of(from) else { return };
        let invitation = Invitation { group, from, from_addr, open: octets.to_vec() };
        if self.joined.contains(&open.address) {
            self.accept_open(now, &invitation, open, host);
        } else if self.invitations.len() < MAX_INVITATIONS {
            self.invitations.push_back(invitation);
        } else {
            host.send(now, from, Record::Refuse.encode(group.0).into());
        }
    }

    fn accept_open(&mut self, now: Instant, invitation: &Invitation, open: &Open<'_>, host: &mut dyn Host) {
        let id = invitation.group;
        if self.members.len() >= MAX_GROUPS || self.members.contains_key(&id) {
            return host.send(now, invitation.from, Record::Refuse.encode(id.0).into());
        }
        let config = host.config();
        let credit = config.channel_credit_bytes;
        let max_message = config.max_message_bytes.min(config.receive_memory_bytes);
        let grant = Grant { credit, max_message };
        let member = Membership::new(id, invitation.from, invitation.from_addr, open, grant);
        self.members.insert(id, Box::new(member));
        host.send(now, invitation.from, Record::Accept { credit, max_message }.encode(id.0).into());
        self.news += 1;
    }

    fn on_join(&mut self, now: Instant, peer: PeerId, join: &Join, host: &mut dyn Host) {
        let Some(addr) = host.addr_of(peer) else { return };
        let wanted = |sender: &&mut Box<Sender>| sender.address == join.address && sender.admits();
        if let Some(sender) = self.senders.values_mut().find(wanted) {
            // One that is a member already needs no second invitation.
            let _ = sender.add(now, addr, peer, join.history, host);
            self.dirty = true;
        }
    }

    /// A session is over.
    pub fn on_peer_lost(&mut self, now: Instant, peer: PeerId, reason: &LostReason, host: &mut dyn Host) {
        self.invitations.retain(|invitation| invitation.from != peer);
        for sender in self.senders.values_mut() {
            if let Some(index) = sender.member_of(peer) {
                sender.depart(now, index, Departure::Lost(reason.clone()), host);
                self.dirty = true;
            }
        }
        for member in self.members.values_mut().filter(|member| member.opener == peer) {
            self.news += member.end(MembershipEnd::Lost(reason.clone())) as u64;
        }
    }

    // ---- time and the way out ----

    /// Follows what has happened, and does what is due.
    pub fn drive(&mut self, now: Instant, host: &mut dyn Host) {
        self.dirty = false;
        for sender in self.senders.values_mut() {
            sender.drive(now, host);
        }
        for member in self.members.values_mut() {
            if member.deadline() <= now {
                report(now, member, host);
            }
        }
    }

    /// Whether [`drive`](Self::drive) has something to do now.
    pub fn wants_drive(&self, now: Instant) -> bool {
        self.dirty || self.deadline() <= now
    }

    /// Whether something has happened that is to be followed.
    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// Room in a session may have become free.
    pub fn on_session_progress(&mut self) {
        self.dirty |= self.senders.values().any(|sender| sender.pumps());
    }

    /// When [`drive`](Self::drive) has to be called at the latest.
    pub fn deadline(&self) -> Instant {
        let senders = self.senders.values().map(|sender| sender.deadline());
        let members = self.members.values().map(|member| member.deadline());
        senders.chain(members).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Whether [`write_transmit`](Self::write_transmit) has something to write.
    pub fn wants_transmit(&self) -> bool {
        self.senders.values().any(|sender| sender.wants_transmit())
    }

    /// Writes the next datagrams to a group's address, each group in its turn.
    pub fn write_transmit(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<Transmit> {
        let after = (core::ops::Bound::Excluded(self.turn), core::ops::Bound::Unbounded);
        let next = self.senders.range(after).find(|(_, sender)| sender.wants_transmit()).map(|(id, _)| *id);
        let first = || self.senders.iter().find(|(_, sender)| sender.wants_transmit()).map(|(id, _)| *id);
        let id = next.or_else(first)?;
        self.turn = id;
        self.senders.get_mut(&id)?.write_transmit(now, out)
    }

    /// A number that grows with everything an application may wait for.
    pub fn news(&self) -> u64 {
        self.news + self.senders.values().map(|sender| sender.news).sum::<u64>()
    }
}

/// Sends a member's report to whom it reports. What is missing goes to the opener itself.
fn report(now: Instant, member: &mut Membership, host: &mut dyn Host) {
    let parent = member.reports_to().filter(|_| !member.misses_something());
    let to = parent.and_then(|parent| host.peer_at(parent)).unwrap_or(member.opener);
    let rtt = host.rtt(member.opener).unwrap_or_default();
    let memory_left = host.memory_left();
    let mut frame = Vec::with_capacity(64);
    member.report(now, rtt, memory_left, &mut |part| frame.extend_from_slice(part));
    host.report(now, to, &frame);
}
