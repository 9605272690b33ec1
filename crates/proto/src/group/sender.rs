//! One group, as its opener sees it: the orchestrator of symbols, members, window and repairs.
//!
//! Inputs → outputs: messages, records, reports, time → packets to the group's address, records to
//! members, events. `opening` begins and ends, `reports` takes in what members say, `repair` decides
//! how what is missing goes out again, `transmit` writes packets, `pace` says how fast, `copies` multiplies them
//! where there is no multicast, `timers` asks those who are silent, `waiting` says what sessions have to bring,
//! `status` how it stands. Source: M1–M7; `spec/protocol.md` §14.

mod copies;
mod graft;
mod opening;
mod pace;
mod protect;
mod rekey;
mod repair;
mod reports;
mod status;
mod timers;
mod transmit;
mod tree;
mod waiting;

use super::Host;
use super::error::GroupError;
use super::keys::OpenerKeys;
use super::member::{Member, Stage};
use super::parity::PARITY_OVERHEAD_BYTES;
use super::roll::Roll;
use super::stream::Stream;
use super::types::{Departure, GroupBackend, GroupCounters, GroupEvent, GroupId, GroupOptions};
use crate::config::Config;
use crate::congestion::{self, Base, Controller};
use crate::events::Events;
use bytes::Bytes;
use copies::Copies;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::{GROUP_HEADER_BYTES, Record, Removal};
use denrei_wire::packet::TAG_BYTES;
use pace::Pace;
use protect::Protect;
use repair::{Records, Repairs};
use std::collections::VecDeque;
use tree::Tree;

/// Octets that a symbol leaves free in a datagram: the headers of a GROUP packet and what parity adds to
/// the symbol, or the headers of a session packet, a MESSAGE frame and a SYMBOL record, whichever is
/// more, and a 16-octet seal.
const SYMBOL_OVERHEAD_BYTES: usize = 16 + 10 + 17 + 16;
const _: () = assert!(GROUP_HEADER_BYTES + PARITY_OVERHEAD_BYTES + TAG_BYTES <= SYMBOL_OVERHEAD_BYTES);
/// Symbols that travel by sessions alone are this large: a tenth of a percent of headers, and a
/// receiver's first credit holds two.
const UNICAST_SYMBOL_BYTES: usize = 30 * 1024;
/// Queued for one member's session, at most: a relay keeps its bounds. Four windows if they are less: what another
/// group, or the end of this one, has to say waits behind it …
const MAX_SESSION_QUEUE_BYTES: u64 = 2 << 20;
/// … but this much at least: two symbols.
const MIN_SESSION_QUEUE_BYTES: u64 = 64 << 10;
/// … and this much where the application has queued more than that: they take their turns.
const MAX_SESSION_QUEUE_BESIDE_BYTES: u64 = 256 << 10;
/// Under way where all members are served by sessions: bounds what relays hold.
const MAX_SESSION_WINDOW_BYTES: u64 = 8 << 20;
/// Between two looks at what all members' paths are like, at least: some round trips of a LAN.
const REVIEW_INTERVAL: Duration = Duration::from_millis(1);
/// Before anything is known of a member.
const IDLE_PROBE_TIMEOUT: Duration = Duration::from_millis(10);
/// Round trips remembered.
const MAX_TRAINS: usize = 1024;

/// Where a group is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waiting for the members, until then.
    Opening {
        until: Instant,
        /// SYNs to the group's address once all had accepted, and since somebody last did: ever fewer.
        probes: u32,
        tries: u32,
        probe_at: Instant,
    },
    Open,
    /// FIN said to those who have everything.
    Closing {
        said: bool,
    },
    Over,
}

/// Somebody who is to become a member of the open group.
#[derive(Debug)]
struct Joining {
    /// Its place among the members.
    member: usize,
    history: bool,
    /// Its answer is waited for until then.
    until: Instant,
}

/// One group, as its opener sees it.
#[derive(Debug)]
pub(crate) struct Sender {
    pub id: GroupId,
    pub address: SocketAddr,
    options: GroupOptions,
    pub phase: Phase,
    pub failed: Option<Vec<(SocketAddr, Departure)>>,
    members: Roll,
    stream: Stream,
    repairs: Repairs,
    records: Records,
    protect: Protect,
    copies: Copies,
    /// Seals packets to the group's address; `None`: they are plain.
    keys: Option<OpenerKeys>,
    /// Somebody has gone who has the key.
    rekey_due: bool,
    window: Box<dyn Controller>,
    base: Base,
    pace: Pace,
    symbol_bytes: usize,
    /// Largest datagram that the interface towards the group's address carries.
    interface_bytes: u16,
    /// From where packets go to the group's address; `None`: the system chooses.
    source: Option<IpAddr>,
    /// The first symbol that has not gone to the group's address.
    multicast_next: u64,
    /// Number of the next packet to the group's address.
    packet: u64,
    /// First packet number and time of each train.
    trains: VecDeque<(u64, Instant)>,
    /// The session with somebody served by it had no room for what is there, as of the last look.
    short_of_room: bool,
    /// Ask all for a report with the next packet.
    poll: bool,
    /// Reports were asked for when symbols below this were sent.
    asked: u64,
    polls_unanswered: u32,
    last_sent_at: Instant,
    reprobe_at: Instant,
    /// Kept for those who lag, at most, octets.
    most_retained: u64,
    /// The application waits for what is under way.
    hurried: bool,
    /// Who has still to answer, in the order of the invitations, or waits for the next message to begin with.
    joining: Vec<Joining>,
    tree: Tree,
    /// Longest probe timeout of those who count, as of the last review, and when the next one is due.
    probe_timeout: Duration,
    review_at: Instant,
    /// A message has come when there was nothing to hold up, since the last look at who holds others up.
    begins: bool,
    /// Since when it is added up who is waited for, until when that is done, and for whom the others waited then.
    held_since: Instant,
    held_at: Instant,
    held_by: Vec<u32>,
    /// When the time was told last.
    told_at: Instant,
    /// What the congestion controller was told of the worst member's losses in this round trip, and
    /// when that ends.
    lost_told: u64,
    round_ends: Instant,
    pub events: Events<GroupEvent>,
    pub counters: GroupCounters,
    /// The last member has gone before all was acknowledged.
    deserted: bool,
    /// Members are to be told that they are none any more.
    dismissing: bool,
    /// Grows with everything an application may wait for.
    pub news: u64,
}

impl Sender {
    pub fn new(
        id: GroupId,
        address: SocketAddr,
        options: GroupOptions,
        keys: Option<OpenerKeys>,
        config: &Config,
        now: Instant,
    ) -> Self {
        let until = now + options.open_timeout;
        let most_retained = options.history_bytes.max(config.send_buffer_bytes);
        Self {
            id,
            address,
            options,
            phase: Phase::Opening { until, probes: 0, tries: 0, probe_at: now },
            failed: None,
            members: Roll::default(),
            stream: Stream::default(),
            repairs: Repairs::default(),
            records: Records::default(),
            protect: Protect::default(),
            copies: Copies::default(),
            keys,
            rekey_due: false,
            window: congestion::controller(config.congestion, config.min_datagram_bytes as u64),
            base: Base::default(),
            pace: Pace::default(),
            symbol_bytes: config.min_datagram_bytes as usize - SYMBOL_OVERHEAD_BYTES,
            interface_bytes: u16::MAX,
            source: None,
            multicast_next: 0,
            packet: 0,
            trains: VecDeque::new(),
            short_of_room: false,
            poll: false,
            asked: 0,
            polls_unanswered: 0,
            last_sent_at: now,
            reprobe_at: Instant::FAR_FUTURE,
            most_retained,
            hurried: false,
            joining: Vec::new(),
            tree: Tree::default(),
            probe_timeout: IDLE_PROBE_TIMEOUT,
            review_at: now,
            begins: false,
            held_since: now,
            held_at: now,
            held_by: Vec::new(),
            told_at: now,
            lost_told: 0,
            round_ends: now,
            events: Events::default(),
            counters: GroupCounters::default(),
            deserted: false,
            dismissing: false,
            news: 0,
        }
    }

    // ---- the application's verbs ----

    /// Takes a message; its number.
    pub fn send(&mut self, message: Bytes, config: &Config) -> Result<u64, GroupError> {
        let bytes = message.len() as u64;
        self.check_send(bytes)?;
        let queued_bytes = self.stream.unacked_bytes();
        if !crate::send_channel::has_room(queued_bytes, bytes, config.send_buffer_bytes) {
            self.hurried = true;
            return Err(GroupError::WouldBlock { queued_bytes });
        }
        self.begins |= queued_bytes == 0;
        Ok(self.stream.push(message))
    }

    /// Whether it would take a message of so many bytes, were there room.
    pub fn check_send(&self, bytes: u64) -> Result<(), GroupError> {
        match self.phase {
            Phase::Opening { .. } | Phase::Open => {}
            Phase::Closing { .. } => return Err(GroupError::Closing(self.id)),
            Phase::Over => return Err(GroupError::Unknown(self.id)),
        }
        if self.phase == Phase::Open && self.members.counts().active == 0 {
            return Err(GroupError::Deserted(self.id));
        }
        let told = |member: &&Member| matches!(member.stage, Stage::Accepted | Stage::Active);
        let max = self.members.iter().filter(told).map(|member| member.max_message);
        let max = max.min().unwrap_or(u64::MAX);
        if bytes > max { Err(GroupError::TooLarge { bytes, max }) } else { Ok(()) }
    }

    /// Datagrams to the group's address may be so large.
    pub fn limit_datagrams(&mut self, bytes: u16) {
        self.interface_bytes = bytes;
    }

    /// Packets to the group's address come from this one of the host's.
    pub fn speak_from(&mut self, source: IpAddr) {
        self.source = Some(source);
    }

    /// The application waits for what is under way.
    pub fn hurry(&mut self) {
        if self.stream.unacked_bytes() == 0 {
            return;
        }
        self.hurried = true;
        let all_sent = self.stream.is_drained() && self.multicast_next == self.stream.next();
        self.poll |= all_sent && self.asked < self.multicast_next && self.uses_multicast();
    }

    /// Whether the last symbol of a train asks for reports: nothing more can go without them, or
    /// nothing more is there to go, and no earlier question is still to be answered.
    fn asks(&self) -> bool {
        let drained = self.stream.is_drained();
        let answered = self.asked <= self.stream.acked();
        (answered && self.is_blocked()) || (drained && (self.hurried || answered))
    }

    /// Ends the group once everything is acknowledged.
    pub fn close(&mut self) {
        match self.phase {
            Phase::Open => {
                self.phase = Phase::Closing { said: false };
                // Who waits for room is to hear that.
                self.news += 1;
            }
            Phase::Opening { .. } => (self.phase, self.dismissing) = (Phase::Over, true),
            _ => {}
        }
    }

    // ---- who is who ----

    /// Members whom the others wait for.
    fn counting(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.counts())
    }

    /// Whether anybody is served by the group's address.
    fn uses_multicast(&self) -> bool {
        self.members.counts().by_address > 0
    }

    /// Whether what goes to the group's address goes to each of its members instead.
    fn replicates(&self) -> bool {
        self.options.backend == GroupBackend::Unicast
    }

    /// How often a packet to the group's address leaves this host.
    fn copies(&self) -> u64 {
        if self.replicates() { self.members.counts().by_address as u64 } else { 1 }
    }

    /// Whether this opener serves anybody by session.
    fn pumps(&self) -> bool {
        self.members.counts().by_session > 0
    }

    /// The member with whom this session is.
    pub fn member_of(&self, peer: crate::PeerId) -> Option<usize> {
        self.members.of_peer(peer)
    }

    /// The member with this id, if it has not gone.
    pub fn member(&self, id: u32) -> Option<usize> {
        self.members.find(id).filter(|index| !self.members[*index].is_gone())
    }

    /// Whether others may ask to become members.
    pub fn admits(&self) -> bool {
        self.options.admit && self.phase == Phase::Open
    }

    /// Whether everything about the group is over.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// A member is one no longer.
    pub fn depart(&mut self, now: Instant, index: usize, why: Departure, host: &mut dyn Host) {
        let mut member = self.members.edit(index);
        if member.is_gone() {
            return;
        }
        let was_active = member.is_active();
        let was_joining = self.joining.iter().any(|joining| joining.member == index);
        // Who refuses has been told the key as well.
        self.rekey_due |= member.told;
        let removal = why.removal();
        member.stage = Stage::Gone(why.clone());
        member.repairing.clear();
        let (id, addr, peer) = (member.id, member.addr, member.peer);
        let last_acknowledged = member.last_acknowledged();
        drop(member);
        if let Some(why) = removal {
            host.send(now, peer, Record::Removed(why).encode(self.id.0).into());
        }
        if was_active || was_joining {
            self.emit(GroupEvent::Departed { member: id, addr, why, last_acknowledged });
        }
        if was_active {
            self.deserted |= self.members.counts().active == 0 && self.stream.unacked_bytes() > 0;
            // It may have been the slowest.
            self.review_at = now;
            self.adopt_orphans(now, id, host);
        }
        self.joining.retain(|joining| joining.member != index);
        self.settle();
    }

    /// The application ends the group at once: whoever is a member, or was invited, hears of it.
    pub fn dismiss(&mut self, now: Instant, host: &mut dyn Host) {
        if self.phase == Phase::Over && !core::mem::take(&mut self.dismissing) {
            return;
        }
        for member in self.members.iter() {
            if !member.is_gone() {
                host.send(now, member.peer, Record::Removed(Removal::Wanted).encode(self.id.0).into());
            }
        }
    }

    fn emit(&mut self, event: GroupEvent) {
        self.news += 1;
        self.events.push(event);
    }

    // ---- minima ----

    /// Brings what all have acknowledged up to date, and forgets what nobody needs.
    fn settle(&mut self) {
        let sent = self.stream.next();
        // Nobody is left to wait for: whoever lags is served from what is retained.
        let nobody = || if self.phase == Phase::Open || self.is_closing() { sent } else { 0 };
        let acked = self.members.least_next().unwrap_or_else(nobody);
        if self.stream.acknowledge(acked) {
            self.news += 1;
            self.polls_unanswered = 0;
        }
        let lagging = self.members.iter().filter(|member| member.is_active() && member.lagging);
        let needed = match self.members.counts().lagging {
            0 => None,
            _ => lagging.map(|member| member.next).min(),
        };
        let floor = self.stream.acked().min(needed.unwrap_or(u64::MAX));
        self.stream.release(floor, self.options.history_bytes);
        self.repairs.forget_below(self.stream.base());
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. })
    }

    /// Cuts the next symbol if window and credit allow.
    fn cut(&mut self) -> Option<u64> {
        if !matches!(self.phase, Phase::Open | Phase::Closing { .. }) || !self.has_window() {
            return None;
        }
        if self.waits_at_boundary() {
            return None;
        }
        let Self { stream, members, symbol_bytes, .. } = self;
        let somebody_begins = members.counts().accepted > 0;
        stream.cut(*symbol_bytes, somebody_begins, |begun, cost| members.may_begin(begun, cost))
    }

    /// Whether somebody who has accepted is to begin with the next message. Who has only been invited is not
    /// waited for: it may never answer.
    fn waits_at_boundary(&self) -> bool {
        self.members.counts().accepted > 0 && !self.stream.is_within_message()
    }

    fn has_window(&self) -> bool {
        let in_flight = self.stream.in_flight();
        // Sessions have windows of their own.
        let window = if self.uses_multicast() { self.window() } else { MAX_SESSION_WINDOW_BYTES };
        let fits = in_flight == 0 || in_flight + self.symbol_bytes as u64 <= window;
        fits && !self.waits_for_laggards()
    }

    /// Bytes that may be under way to the group's address: the controller's window, but not more than
    /// half of what the member with the least room takes. Its socket has about as much.
    fn window(&self) -> u64 {
        let room = self.members.least_credit().map_or(u64::MAX, |credit| credit / 2);
        self.window.window().min(room)
    }

    /// Whether the next symbol has to wait for somebody's word.
    fn is_blocked(&self) -> bool {
        let Some(cost) = self.stream.next_cost() else { return false };
        !self.has_window() || (cost > 0 && !self.members.may_begin(self.stream.begun_cost(), cost))
    }

    /// Works out anew what is a maximum over all, and changes little in a round trip.
    fn review_members(&mut self, now: Instant, host: &mut dyn Host) {
        if self.review_at > now {
            return;
        }
        // In a tree the others answer their parents, and what they say climbs.
        let answers = |member: &&Member| !self.tree.joins || !self.tree.has_parent(member.id);
        let longest = self.counting().filter(answers).map(Member::probe_timeout).max();
        let climb = if self.tree.joins {
            self.report_delay(host.config(), self.members.len())
        } else {
            Duration::ZERO
        };
        self.probe_timeout = longest.map_or(IDLE_PROBE_TIMEOUT, |longest| longest + climb);
        self.review_at = now + REVIEW_INTERVAL.max(self.probe_timeout / 4);
        self.choose_symbol_bytes(host);
        self.choose_pace(now, host);
    }

    /// How long members may hold a report back: enough that they do not all speak at once. In a tree each
    /// hears few.
    fn report_delay(&self, config: &Config, members: usize) -> Duration {
        let speak = members.min(if self.will_join(members) { 200 } else { 1000 });
        config.max_ack_delay.max(Duration::from_micros(20) * speak as u32)
    }
}
