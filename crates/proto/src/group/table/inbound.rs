//! The way in: GROUP packets, reports, records, the end of a session → whose group they are of.

use super::Fate;
use super::{Invitation, MAX_GROUPS, Table, UNCLAIMED_TIME};
use crate::event::{LostReason, PeerId};
use crate::group::keys::MemberKeys;
use crate::group::membership::{Grant, Membership, Stage};
use crate::group::{Departure, GroupId, Host, MembershipEnd, MembershipId, Sender, is_same_group};
use crate::lending::{Handled, Lent, Memory};
use crate::rate::Rate;
use crate::seal::GroupUnopened;
use bytes::Bytes;
use core::net::SocketAddr;
use denrei_wire::Instant;
use denrei_wire::frame::Feedback;
use denrei_wire::group::{GroupHeader, Join, Open, Record, Removal, Route};
use denrei_wire::packet::{COMMON_HEADER_BYTES, Header, flags};

/// Invitations kept for an address that nobody has joined yet; beyond, they are refused.
const MAX_INVITATIONS: usize = 64;

/// Memberships, of all that there may be, that are for openers with fewer than so many.
const OTHERS_PLACES: usize = 64;

/// Share of the memory for received messages that may lie idle at a member until the next message of
/// its size: 64 MiB by default. Clearing fresh pages takes half of a member's time in large messages.
const SPARE_SHARE: u64 = 16;

/// What waits in a session with one who takes nothing, octets: more is not handed on, or answered. Eight times what an
/// opener lets be under way by sessions; or else the credit of a channel, half of which is under way at most.
const MAX_WAITING_BYTES: u64 = 64 << 20;

/// Whether a peer takes what it is sent: else it is handed nothing on, and its questions have no answers.
fn takes(peer: PeerId, host: &dyn Host) -> bool {
    let most = MAX_WAITING_BYTES.max(host.config().channel_credit_bytes);
    host.queue_room(peer, most, most, most) > 0
}

/// A route whose addresses of one link have the interface by which the opener is reached: records name none, as each host
/// has its own.
fn on_link_of(opener: Option<SocketAddr>, mut route: Route) -> Route {
    let Some(SocketAddr::V6(opener)) = opener else { return route };
    for addr in core::iter::once(&mut route.parent).chain(route.children.iter_mut().map(|(_, addr)| addr)) {
        if let SocketAddr::V6(addr) = addr
            && addr.ip().is_unicast_link_local()
        {
            addr.set_scope_id(opener.scope_id());
        }
    }
    route
}

/// A membership before something came in.
struct Before {
    held_bytes: u64,
    ready: bool,
}

impl Before {
    fn of(member: &Membership) -> Self {
        Self { held_bytes: member.held_bytes(), ready: member.has_ready() }
    }
}

/// What follows for a member from what has come in: it leaves an opener that breaks the protocol, and says
/// FIN+ACK once it has everything. How much of that is news.
fn follow(
    now: Instant,
    member: &mut Membership,
    before: &Before,
    result: Result<(), &'static str>,
    host: &mut dyn Host,
) -> u64 {
    if let Err(what) = result
        && member.end(MembershipEnd::Violation(what))
    {
        host.send(now, member.opener, member.leaving().encode(member.group.0).into());
        return 1;
    }
    let mut news = (member.has_ready() && !before.ready) as u64;
    if member.finish() {
        host.send(now, member.opener, Record::Closed.encode(member.group.0).into());
        news += 1;
    }
    news
}

impl Table {
    /// A GROUP packet, which is opened in place. Whose it is comes first: that is cheap.
    pub fn on_packet(
        &mut self,
        now: Instant,
        from: &SocketAddr,
        packet: &Header,
        datagram: &mut [u8],
        host: &mut dyn Host,
    ) -> Fate {
        let id = GroupId(packet.token.0);
        let member = self.members.get_mut(id).filter(|member| member.opener_addr == *from);
        let Some(member) = member else { return Fate::Foreign };
        let Some((header, _)) = GroupHeader::decode(&datagram[COMMON_HEADER_BYTES.min(datagram.len())..])
        else {
            return Fate::NotGenuine;
        };
        let before = Before::of(member);
        let frames = match member.open(now, packet, datagram) {
            Ok(frames) => frames,
            Err(GroupUnopened::NotGenuine) => return Fate::NotGenuine,
            Err(GroupUnopened::Duplicate) => return Fate::Repeated,
        };
        let poll = packet.flags & flags::ACK_NOW != 0;
        let result = member.on_packet(now, packet.number, poll, &header, frames);
        self.news += follow(now, member, &before, result, host);
        self.held = self.held + member.held_bytes() - before.held_bytes;
        self.members.stir_if_due(now, id);
        Fate::Taken
    }

    /// Lends the memory of the message that a group's last packet carried a part of.
    pub fn lend(&mut self, id: GroupId, datagram: &Handled) -> Option<Lent> {
        let lent = self.members.get_mut(id)?.lend(datagram);
        self.settle();
        lent
    }

    /// The memory of a group's message is here again. What parities have restored may have completed it.
    pub fn take_back(&mut self, now: Instant, id: GroupId, number: u64, memory: Memory, host: &mut dyn Host) {
        if let Some(member) = self.members.get_mut(id) {
            let before = Before::of(member);
            member.take_back(number, memory);
            self.news += follow(now, member, &before, Ok(()), host);
        }
    }

    /// A report of a member, by its session.
    pub fn on_report(&mut self, now: Instant, peer: PeerId, report: &Feedback<'_>, host: &mut dyn Host) {
        let id = GroupId(report.group);
        if let Some(sender) = self.senders.get(id) {
            if let Some(index) = sender.member_of(peer)
                && let Some(sender) = self.senders.stir(id)
            {
                sender.on_report(now, index, report, host);
            }
        } else if let Some(member) = self.members.get_mut(id) {
            member.on_report_from_below(now, peer, report);
            self.members.stir_if_due(now, id);
        }
    }

    /// A record, by the session with `peer`. What cannot be read, or is not expected, is dropped: a
    /// peer may be behind the times.
    pub fn on_record(&mut self, now: Instant, peer: PeerId, octets: &Bytes, host: &mut dyn Host) {
        let Ok((id, record)) = Record::decode(octets) else { return };
        let id = GroupId(id);
        match record {
            Record::Open(_) | Record::Accept { .. } | Record::Join(_) if !takes(peer, host) => {}
            Record::Open(mut open) => {
                open.address = self.as_joined(open.address);
                self.on_open(now, id, peer, &open, octets, host);
            }
            Record::Join(join) => self.on_join(now, peer, &join, host),
            _ if self.senders.contains(id) => self.on_answer(now, id, peer, &record, host),
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
        let Some(sender) = self.senders.stir(id) else { return };
        let Some(index) = sender.member_of(peer) else {
            // One that has gone for long: its place is another's by now.
            if matches!(record, Record::Accept { .. }) {
                host.send(now, peer, Record::Removed(Removal::Wanted).encode(id.0).into());
            }
            return;
        };
        match *record {
            Record::Accept { credit, max_message } => {
                sender.on_accept(now, index, credit, max_message, host);
            }
            Record::Unheard => sender.on_unheard(index),
            Record::Refuse => sender.depart(now, index, Departure::Refused, host),
            Record::Closed => sender.on_closed(now, index),
            Record::Leave { symbols, messages } => sender.on_leave(now, index, symbols, messages, host),
            // What openers say.
            _ => {}
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
        self.update_invitations(id, peer, record);
        let Some(member) = self.members.get_mut(id) else { return };
        let from_opener = member.opener == peer;
        let before = Before::of(member);
        let mut result = Ok(());
        match record {
            // Whoever has a session could say it.
            Record::Symbol { .. } | Record::Poll { .. } if !member.hears(peer, host.addr_of(peer)) => return,
            Record::Symbol { number, report, frames } => {
                result = member.on_session_symbol(now, *number, frames);
                if *report {
                    member.on_asked(now);
                }
            }
            Record::Poll { next } => member.on_poll(now, *next, from_opener),
            Record::Begin(begin) if from_opener => {
                if member.stage == Stage::Accepted && !self.joined.contains(&member.address) {
                    member.unclaimed_until = Some(now + UNCLAIMED_TIME);
                }
                result = member.begin(now, begin);
                self.news += 1;
            }
            Record::Close { symbols, .. } if from_opener => member.on_close(now, *symbols),
            Record::Removed(why) if from_opener => return self.end(id, MembershipEnd::Removed(*why)),
            Record::Key { keep_previous, key } if from_opener => member.rekey(now, key, *keep_previous),
            Record::Route(route) if from_opener => {
                let route = on_link_of(host.addr_of(peer), route.clone());
                let children = host.connect_told(now, &mut route.children.iter().map(|(_, addr)| *addr));
                member.set_route(now, route, children);
            }
            _ => return,
        }
        for child in member.relays_to(record) {
            // What it lacks then it asks the opener for.
            if takes(*child, host) {
                host.send_in_turn(now, *child, octets.clone());
            }
        }
        self.news += follow(now, member, &before, result, host);
        self.held = self.held + member.held_bytes() - before.held_bytes;
        self.members.stir_if_due(now, id);
    }

    /// What an opener says after an OPEN whose address nobody has joined yet, or not again: it is taken back, or its key
    /// is another one by now.
    fn update_invitations(&mut self, id: GroupId, peer: PeerId, record: &Record<'_>) {
        let is_meant = |invitation: &Invitation| invitation.group == id && invitation.from == peer;
        match record {
            Record::Removed(_) => self.invitations.retain(|invitation| !is_meant(invitation)),
            Record::Key { key, .. } => {
                let meant = self.invitations.iter_mut().filter(|invitation| is_meant(invitation));
                meant.for_each(|invitation| invitation.rekey(key));
            }
            _ => {}
        }
    }

    /// The OPENs that wait for somebody to join their address.
    #[cfg(feature = "rogue")]
    pub fn invitations(&self) -> impl Iterator<Item = &[u8]> {
        self.invitations.iter().map(|invitation| &**invitation.open)
    }

    /// A group's address as it was joined here, with the interface it is on, if it was joined.
    fn as_joined(&self, address: SocketAddr) -> SocketAddr {
        self.joined.iter().copied().find(|joined| is_same_group(*joined, address)).unwrap_or(address)
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
        let invitation = Invitation { group, from, from_addr, open: octets.to_vec().into() };
        if self.joined.contains(&open.address) {
            self.accept_open(now, &invitation, open, host);
        } else {
            self.keep(now, invitation, host);
        }
    }

    /// Keeps an invitation until its address is joined. Where there are too many the newest of whoever has sent most is
    /// refused: who invites to what nobody joins takes no place from others.
    fn keep(&mut self, now: Instant, invitation: Invitation, host: &mut dyn Host) {
        self.invitations.push_back(invitation);
        if self.invitations.len() <= MAX_INVITATIONS {
            return;
        }
        let senders = || self.invitations.iter().map(|invitation| invitation.from);
        let most = senders().max_by_key(|from| senders().filter(|other| other == from).count());
        let newest = self.invitations.iter().rposition(|invitation| Some(invitation.from) == most);
        if let Some(refused) = newest.and_then(|newest| self.invitations.remove(newest)) {
            host.send(now, refused.from, Record::Refuse.encode(refused.group.0).into());
        }
    }

    /// Whether there is room for one more membership of this opener's groups, made if need be: those that are over, have
    /// nothing to take, and that nobody has accepted, take it from none.
    fn make_place(&mut self, now: Instant, opener: PeerId, host: &mut dyn Host) -> bool {
        if self.has_place(opener) {
            return true;
        }
        let all = self.members.values().chain(&self.former);
        let over = all.filter(|member| !member.accepted && member.is_finished());
        let over: Vec<MembershipId> = over.map(|member| (member.group, member.member).into()).collect();
        over.into_iter().for_each(|id| self.leave(now, id, host));
        self.has_place(opener)
    }

    /// Whether there is room for one more membership of this opener's groups: not all of it is for one.
    fn has_place(&self, opener: PeerId) -> bool {
        let room = MAX_GROUPS.saturating_sub(self.members.len() + self.former.len());
        let all = || self.members.values().chain(&self.former);
        let of_opener = || all().filter(|member| member.opener == opener).count();
        room > OTHERS_PLACES || (room > 0 && of_opener() < OTHERS_PLACES)
    }

    pub(super) fn accept_open(
        &mut self,
        now: Instant,
        invitation: &Invitation,
        open: &Open<'_>,
        host: &mut dyn Host,
    ) {
        let id = invitation.group;
        let taken = self.members.get(id).is_some_and(|member| member.ended().is_none());
        let config = host.config();
        let credit = config.channel_credit_bytes;
        let max_message = config.max_message_bytes.min(config.receive_memory_bytes);
        let spare_bytes = config.receive_memory_bytes / SPARE_SHARE;
        let grant = Grant { credit, max_message, spare_bytes };
        let sealed = config.cluster_key.is_some();
        let keys = MemberKeys::from_octets(id, open.key);
        let fits = keys.is_some() == sealed && (sealed || open.key.is_empty());
        if taken || !fits || !self.make_place(now, invitation.from, host) {
            return host.send(now, invitation.from, Record::Refuse.encode(id.0).into());
        }
        self.given_up.remove(&open.address);
        let member = Membership::new(id, invitation.from, invitation.from_addr, open, keys, grant);
        // One that was removed and asked again, and whose application still holds what it was before.
        let before = self.members.insert(id, Box::new(member));
        self.former.extend(before.map(|before| *before));
        if self.unheard.contains(&open.address) {
            host.send(now, invitation.from, Record::Unheard.encode(id.0).into());
        }
        host.send(now, invitation.from, Record::Accept { credit, max_message }.encode(id.0).into());
        self.news += 1;
    }

    fn on_join(&mut self, now: Instant, peer: PeerId, join: &Join, host: &mut dyn Host) {
        let Some(addr) = host.addr_of(peer) else { return };
        let wanted = |sender: &&Sender| is_same_group(sender.address, join.address) && sender.admits();
        let id = self.senders.values().find(wanted).map(|sender| sender.id);
        if let Some(sender) = id.and_then(|id| self.senders.stir(id)) {
            // One that is a member already needs no second invitation.
            let _ = sender.add(now, addr, peer, join.history, host);
        }
    }

    /// A peer has set how fast this side may send.
    pub fn on_rate(&mut self, now: Instant, peer: PeerId, rate: Rate) {
        for (sender, index) in self.with_member(peer) {
            self.senders.stir(sender).expect("it was found just now").on_rate(now, index, rate);
        }
        self.settle();
    }

    /// A session is over.
    pub fn on_peer_lost(&mut self, now: Instant, peer: PeerId, reason: &LostReason, host: &mut dyn Host) {
        self.invitations.retain(|invitation| invitation.from != peer);
        for (sender, index) in self.with_member(peer) {
            self.senders.stir(sender).expect("it was found just now").on_lost(now, index, reason, host);
        }
        for id in self.members.ids(|member| member.opener == peer) {
            self.end(id, MembershipEnd::Lost(reason.clone()));
        }
    }

    /// The groups of this endpoint's that a peer is a member of, and which of their members it is.
    fn with_member(&self, peer: PeerId) -> Vec<(GroupId, usize)> {
        let with_it = self.senders.values().filter_map(|sender| Some((sender.id, sender.member_of(peer)?)));
        with_it.collect()
    }
}

#[cfg(test)]
mod tests;
