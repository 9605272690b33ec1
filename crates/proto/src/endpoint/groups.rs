//! Groups: the application's verbs, and what sessions do for them.
//!
//! Inputs → outputs: calls, GROUP packets, records and reports → the table of groups; what it wants to
//! say to members → sessions. An endpoint without groups has no table and pays for none.

use super::datagrams::Arrived;
use super::{Endpoint, Slot};
use crate::Completion;
use crate::config::Config;
use crate::event::{LostReason, PeerId, Phase};
use crate::group::{
    Fate, GroupError, GroupEvent, GroupId, GroupMessage, GroupOptions, Host, Invited, MembershipId, Table,
};
use crate::lending::Handler;
use crate::peer::GroupReport;
use crate::rate::Rate;
use crate::seal::Seed;
use crate::sent::Control;
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use denrei_wire::checksum;
use denrei_wire::group::{GROUP_CHANNEL, Record};
use denrei_wire::{Instant, Transmit, TransmitBuf, Way};

/// For so long sessions wait while groups send all the time.
const SESSIONS_WAIT: Duration = Duration::from_millis(1);
/// With so many sessions opening no more are opened because an opener has named their addresses: it may have named any,
/// and each is sent FIRSTs, and has a place in the table, until the connect timeout.
const MAX_TOLD_OPENING: usize = 1024;

impl Endpoint {
    /// Opens a group at `address` (multicast) with the endpoints at `members`: SYN to all of them
    /// (M4). [`GroupEvent::Opened`] or [`GroupEvent::OpenFailed`] says how it went.
    ///
    /// # Errors
    /// An address that no group can have, or members that cannot be.
    pub fn open_group(
        &mut self,
        now: Instant,
        address: SocketAddr,
        members: &[SocketAddr],
        options: GroupOptions,
    ) -> Result<GroupId, GroupError> {
        let id = GroupId(self.random.next_u64());
        self.with_groups(|groups, host| groups.open(now, id, address, members, options, host))?;
        Ok(id)
    }

    /// Datagrams to the group's address may have no more than `bytes` octets of UDP payload: what the
    /// interface carries that it is spoken to by, which the members' paths need not show.
    ///
    /// # Errors
    /// No such group.
    pub fn limit_group_datagrams(&mut self, group: GroupId, bytes: u16) -> Result<(), GroupError> {
        self.on_group(group, |sender, config| sender.limit_datagrams(bytes.max(config.min_datagram_bytes)))
    }

    /// Packets to the group's address come from the one of this host's addresses that `member` has a session with, as
    /// what comes from elsewhere is a stranger's: the one it has asked, or else `source`.
    ///
    /// # Errors
    /// No such group.
    pub fn speak_to_group_from(
        &mut self,
        group: GroupId,
        member: SocketAddr,
        source: IpAddr,
    ) -> Result<(), GroupError> {
        let session = self.peer_at(member).and_then(|peer| self.get(peer));
        let source = session.and_then(|session| session.way().from).unwrap_or(source);
        self.on_group(group, |sender, _| sender.speak_from(source))
    }

    /// Queues a message for a group; its number.
    ///
    /// # Errors
    /// See [`GroupError`]; the message was not taken.
    pub fn group_send(&mut self, group: GroupId, message: Bytes) -> Result<u64, GroupError> {
        self.on_group(group, |sender, config| sender.send(message, config))?
    }

    /// The application waits for what is queued to a group to be acknowledged.
    ///
    /// # Errors
    /// No such group.
    pub fn group_hurry(&mut self, group: GroupId) -> Result<(), GroupError> {
        self.on_group(group, |sender, _| sender.hurry())
    }

    /// Ends a group in order: FIN once all is sent, [`GroupEvent::Closed`] once all have answered.
    ///
    /// # Errors
    /// No such group.
    pub fn close_group(&mut self, group: GroupId) -> Result<(), GroupError> {
        self.on_group(group, |sender, _| sender.close())
    }

    /// Forgets a group, whatever its state: who is a member still is told that it is one no longer.
    pub fn forget_group(&mut self, now: Instant, group: GroupId) {
        self.with_groups(|groups, host| groups.forget(now, group, host));
    }

    /// Bytes of messages not acknowledged by all; `None`: no such group, or it is over.
    pub fn group_queue_bytes(&self, group: GroupId) -> Option<u64> {
        let sender = self.groups.as_deref()?.sender_ref(group)?;
        (!sender.is_over()).then(|| sender.queued_bytes())
    }

    /// Whether every member that counts has acknowledged everything sent to a group; one that is over waits for nothing.
    ///
    /// # Errors
    /// No such group, or no member of it is left, and not everything was acknowledged.
    pub fn group_is_flushed(&self, group: GroupId) -> Result<bool, GroupError> {
        let sender = self.groups.as_deref().and_then(|groups| groups.sender_ref(group));
        sender.ok_or(GroupError::Unknown(group))?.is_flushed()
    }

    /// The next event of a group that this endpoint opened.
    pub fn poll_group_event(&mut self, group: GroupId) -> Option<GroupEvent> {
        self.groups.as_deref_mut()?.next_event(group)
    }

    /// Makes the endpoint at `addr` a member of an open group, from the next message on, or from the
    /// oldest that is retained. Its id; [`GroupEvent::Joined`] says when it takes part,
    /// [`GroupEvent::Departed`] that it does not; the others do not wait for its answer.
    ///
    /// # Errors
    /// No such group, or it cannot be a member.
    pub fn add_group_member(
        &mut self,
        now: Instant,
        group: GroupId,
        addr: SocketAddr,
        history: bool,
    ) -> Result<u32, GroupError> {
        self.with_groups(|groups, host| groups.add_member(now, group, addr, history, host))
    }

    /// Removes a member from a group.
    ///
    /// # Errors
    /// No such group or member.
    pub fn remove_group_member(
        &mut self,
        now: Instant,
        group: GroupId,
        member: u32,
    ) -> Result<(), GroupError> {
        self.with_groups(|groups, host| groups.remove_member(now, group, member, host))
    }

    /// Becomes a member of groups at `address` when their openers ask. The driver has to see to it
    /// that datagrams for the address arrive.
    ///
    /// # Errors
    /// Not an address a group can have, or too many.
    pub fn join_group(&mut self, now: Instant, address: SocketAddr) -> Result<(), GroupError> {
        self.with_groups(|groups, host| groups.join(now, address, true, host))
    }

    /// Like [`join_group`](Self::join_group), where datagrams for the address are known not to arrive: openers
    /// are told, and do not wait until they have found it out.
    ///
    /// # Errors
    /// As for [`join_group`](Self::join_group).
    pub fn join_group_unheard(&mut self, now: Instant, address: SocketAddr) -> Result<(), GroupError> {
        self.with_groups(|groups, host| groups.join(now, address, false, host))
    }

    /// Asks the opener at `opener` to be made a member of its group at `address`, from the next
    /// message on, or with what is retained of the history. Whether it could be asked.
    pub fn ask_to_join(
        &mut self,
        now: Instant,
        opener: SocketAddr,
        address: SocketAddr,
        history: bool,
    ) -> bool {
        self.with_groups(|groups, host| groups.ask_to_join(now, opener, address, history, host))
    }

    /// No more groups at this address: those that begin from now on are left after two seconds, unless somebody
    /// [joins](Self::join_group) there again, or [takes](Self::accept_group) them, before. Memberships there are go on.
    pub fn stop_joining(&mut self, address: SocketAddr) {
        self.with_groups(|groups, _| groups.stop_joining(address));
    }

    /// Whether datagrams for this address are wanted.
    pub fn needs_group_address(&self, address: SocketAddr) -> bool {
        self.groups.as_deref().is_some_and(|groups| groups.needs_address(address))
    }

    /// The next group at `address` that has begun and that the application has not been given, and this
    /// endpoint's id in it.
    pub fn accept_group(&mut self, address: SocketAddr) -> Option<(GroupId, u32)> {
        self.groups.as_deref_mut()?.accept(address)
    }

    /// How far the opening of a group at `address`, which this endpoint has joined, is.
    pub fn group_invited(&self, address: SocketAddr) -> Invited {
        self.groups.as_deref().map_or(Invited::No, |groups| groups.invited(address))
    }

    /// Takes the next message of a group this endpoint is a member of.
    pub fn group_recv(&mut self, now: Instant, membership: impl Into<MembershipId>) -> Option<GroupMessage> {
        let memory_left = Host::memory_left(self);
        self.groups.as_ref()?;
        let taken = self.with_groups(|groups, _| groups.take(now, membership.into(), memory_left))?;
        self.share_memory(now);
        Some(taken)
    }

    /// Leaves a group, or forgets one that is over.
    pub fn leave_group(&mut self, now: Instant, membership: impl Into<MembershipId>) {
        self.with_groups(|groups, host| groups.leave(now, membership.into(), host));
        self.share_memory(now);
    }

    /// Leaves the groups at `address` that have begun and that [`accept_group`](Self::accept_group) has not given, in two
    /// seconds, unless somebody [joins](Self::join_group) there again, or takes them, before: nobody would take what they
    /// bring, and their openers would wait. So it is with those that begin from now on.
    pub fn leave_unclaimed_groups(&mut self, now: Instant, address: SocketAddr) {
        self.with_groups(|groups, host| groups.leave_unclaimed(now, address, host));
    }

    /// Whether what was said to a peer of groups, be it that one has ended, is not all acknowledged, and may still be.
    pub fn owes_group_records(&self, peer: PeerId) -> bool {
        self.get(peer).is_some_and(|peer| peer.is_alive() && peer.outbox().owes_group_records())
    }

    // ---- plumbing ----

    /// Works with the table of groups, which is made when it is first needed.
    pub(super) fn with_groups<T>(&mut self, act: impl FnOnce(&mut Table, &mut dyn Host) -> T) -> T {
        let mut groups = self.groups.take().unwrap_or_default();
        let held_before = groups.held_bytes();
        let result = act(&mut groups, self);
        groups.settle();
        self.held_bytes = self.held_bytes + groups.held_bytes() - held_before;
        self.groups = Some(groups);
        result
    }

    fn on_group<T>(
        &mut self,
        group: GroupId,
        act: impl FnOnce(&mut crate::group::Sender, &Config) -> T,
    ) -> Result<T, GroupError> {
        let groups = self.groups.as_deref_mut().ok_or(GroupError::Unknown(group))?;
        let acted = groups.with_sender(group, |sender| act(sender, &self.config));
        acted.ok_or(GroupError::Unknown(group))
    }

    pub(super) fn handle_group_packet(&mut self, now: Instant, arrived: Arrived<'_>, datagram: &mut [u8]) {
        if self.groups.is_none() {
            return self.count_group_packet(Fate::Foreign, datagram);
        }
        let fate = self.with_groups(|groups, host| {
            groups.on_packet(now, &arrived.meta.from, &arrived.header, datagram, host)
        });
        if fate == Fate::Taken {
            let group = GroupId(arrived.header.token.0);
            self.note_group(now, group, datagram.len());
            self.noted.note(datagram, arrived.meta.from, Handler::Group(group));
        }
        self.count_group_packet(fate, datagram);
    }

    fn count_group_packet(&mut self, fate: Fate, datagram: &[u8]) {
        match fate {
            Fate::Taken => {}
            Fate::Repeated => self.counters.repeated_group_packets += 1,
            Fate::NotGenuine => self.counters.corrupted += 1,
            // Sealed ones have no checksum to tell them from noise.
            Fate::Foreign if self.gate.is_sealed() && checksum::verify(datagram) => {
                self.counters.unsealed += 1;
            }
            Fate::Foreign => self.counters.unknown_session += 1,
        }
    }

    /// A session has brought something for groups, or carries them no longer: it is over, or a half of it is.
    pub(super) fn follow_group_notes(&mut self, now: Instant, slot: u32, records: bool, closed: bool) {
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        let (id, reason) = (peer.id, peer.lost_reason().unwrap_or(LostReason::Closed));
        if records {
            self.take_records(now, slot);
        }
        for GroupReport { from, frame } in core::mem::take(&mut self.notes.reports) {
            self.with_groups(|groups, host| groups.on_report(now, from, &frame.as_frame(), host));
        }
        if closed && self.groups.is_some() {
            self.with_groups(|groups, host| groups.on_peer_lost(now, id, &reason, host));
        }
    }

    /// A peer has set how fast this side may send: groups that it is a member of go no faster.
    pub(super) fn pace_groups(&mut self, now: Instant, slot: u32) {
        let Some((id, rate)) = self.peer_in(slot).map(|peer| (peer.id, peer.sender_rate())) else { return };
        if let Some(groups) = &mut self.groups {
            groups.on_rate(now, id, rate);
        }
    }

    fn take_records(&mut self, now: Instant, slot: u32) {
        // At most what credit allowed to be sent.
        loop {
            let config = self.config.clone();
            let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
            let id = peer.id;
            let Some(taken) = peer.inbox_mut().take(GROUP_CHANNEL, &mut self.blocks) else { return };
            peer.renew_credit(&config, GROUP_CHANNEL);
            self.held_bytes -= taken.data.len() as u64;
            self.with_groups(|groups, host| groups.on_record(now, id, &taken.data, host));
        }
    }

    /// Something has happened to a session. Apart, for it would cost those of endpoints without groups.
    #[inline(never)]
    pub(super) fn tell_groups(&mut self, slot: u32) {
        if let Some(groups) = &mut self.groups
            && let Some(peer) = self.slots[slot as usize].peer.as_deref()
        {
            groups.on_session_progress(peer.id);
        }
    }

    fn drive_groups(&mut self, now: Instant) {
        let held_before = self.held_bytes;
        self.with_groups(|groups, host| groups.drive(now, host));
        // By a group that nobody took.
        if self.held_bytes < held_before {
            self.share_memory(now);
        }
    }

    /// Follows what has come for groups, and writes the next datagrams to a group's address, or of a session. Groups
    /// go first, but not for long: one that fills the line would leave sessions without acknowledgements.
    #[inline(never)]
    pub(super) fn transmit_in_turn(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<Transmit> {
        if self.groups.as_deref().is_some_and(|groups| groups.wants_drive(now)) {
            self.drive_groups(now);
        }
        debug_assert_eq!(self.groups.as_deref().and_then(|groups| groups.left_undone(now, self)), None);
        if self.groups_since.is_some_and(|since| since + SESSIONS_WAIT <= now) {
            self.groups_since = None;
            if let Some(transmit) = self.transmit_sessions(now, out) {
                return Some(transmit);
            }
        }
        if self.groups.as_deref()?.wants_transmit()
            && let Some(transmit) = self.with_groups(|groups, host| groups.write_transmit(now, out, host))
        {
            self.groups_since.get_or_insert(now);
            return Some(transmit);
        }
        self.groups_since = None;
        self.transmit_sessions(now, out)
    }
}

impl Host for Endpoint {
    fn config(&self) -> &Config {
        &self.config
    }

    fn connect(&mut self, now: Instant, addr: SocketAddr) -> Option<PeerId> {
        Self::connect(self, now, addr).ok()
    }

    fn connect_told(&mut self, now: Instant, addrs: &mut dyn Iterator<Item = SocketAddr>) -> Vec<PeerId> {
        let is_opening = |slot: &&Slot| slot.peer.as_deref().is_some_and(|peer| peer.phase == Phase::Opening);
        let mut room = MAX_TOLD_OPENING.saturating_sub(self.slots.iter().filter(is_opening).count());
        let mut connect = |addr| {
            Self::peer_at(self, addr).or_else(|| {
                room = room.checked_sub(1)?;
                Host::connect(self, now, addr)
            })
        };
        addrs.filter_map(&mut connect).collect()
    }

    fn send(&mut self, now: Instant, peer: PeerId, record: Bytes) {
        // A peer that is gone takes its groups with it.
        let Ok(state) = self.get_mut(peer) else { return };
        if state.is_alive() && !state.is_write_closed() && !state.is_peer_done_reading() {
            // Who waits for an answer does not wait for what others are sent.
            if Record::follows_symbols(&record) {
                state.outbox_mut().push(GROUP_CHANNEL, record, Completion::None);
            } else {
                state.outbox_mut().push_first(GROUP_CHANNEL, record);
            }
            self.after(now, peer.slot);
        }
    }

    fn send_in_turn(&mut self, now: Instant, peer: PeerId, record: Bytes) {
        if let Ok(state) = self.get_mut(peer) {
            state.take_turns();
        }
        Host::send(self, now, peer, record);
    }

    fn report(&mut self, now: Instant, peer: PeerId, frame: &[u8]) {
        let Ok(state) = self.get_mut(peer) else { return };
        state.say_once(frame);
        self.after(now, peer.slot);
    }

    fn ask_for_life(&mut self, now: Instant, peer: PeerId) {
        let Ok(state) = self.get_mut(peer) else { return };
        // While something is under way, its acknowledgement is that sign.
        if state.is_alive() && state.is_idle() {
            state.want(Control::Ping);
            self.after(now, peer.slot);
        }
    }

    fn queue_room(&self, peer: PeerId, least: u64, most: u64, beside: u64) -> u64 {
        let Some(peer) = self.get(peer) else { return 0 };
        let of_path = peer.window_bytes().saturating_mul(4).max(least);
        match most.min(of_path).saturating_sub(peer.outbox().queued_bytes()) {
            0 => peer.outbox().room_left(GROUP_CHANNEL, beside.min(of_path)),
            room => room,
        }
    }

    fn rtt(&self, peer: PeerId) -> Option<Duration> {
        self.get(peer).map(|peer| peer.smoothed_rtt())
    }

    fn rate(&self, peer: PeerId) -> Rate {
        self.get(peer).map_or(Rate::UNLIMITED, |peer| peer.sender_rate())
    }

    fn rate_room(&mut self, now: Instant, peer: PeerId) -> Result<u64, Instant> {
        self.get_mut(peer).map_or(Ok(u64::MAX), |peer| peer.rate_room_for_group(now))
    }

    fn spend_rate(&mut self, now: Instant, peer: PeerId, octets: u64) {
        if let Ok(peer) = self.get_mut(peer) {
            peer.spend_rate_for_group(now, octets);
        }
    }

    fn datagram_bytes(&self, peer: PeerId) -> Option<u16> {
        self.get(peer).map(|peer| peer.datagram_bytes())
    }

    fn peer_at(&self, addr: SocketAddr) -> Option<PeerId> {
        Self::peer_at(self, addr)
    }

    fn way_of(&self, peer: PeerId) -> Option<Way> {
        self.get(peer).map(|peer| peer.way())
    }

    fn seed(&mut self) -> Seed {
        self.random.seed()
    }

    fn is_proven(&self, peer: PeerId) -> bool {
        self.get(peer).is_some_and(|peer| peer.is_proven())
    }

    fn memory_left(&self) -> bool {
        self.held_bytes <= self.config.receive_memory_bytes
            || (!self.is_readable() && self.share_beside_heavy().is_some())
    }
}
