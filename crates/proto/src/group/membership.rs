//! One group, as a member sees it.
//!
//! Inputs → outputs: packets from the group's address, records from the opener, time, the
//! application's taking → messages in order, reports (when, and what they say), symbols to hand on.
//! Source: M3, M5, M6 (what a report says), M10 (when); `spec/protocol.md` §14.3–14.6. `membership/asking`
//! holds when a gap is spoken of, `membership/patience` how long it may be reordering,
//! `membership/joint` reports for others, `membership/missed` what those miss, `membership/packets` what comes,
//! `membership/turns` whose turn it is, `membership/room` what there is no room for.

mod asking;
mod early;
mod joint;
mod missed;
mod packets;
mod patience;
mod room;
mod route;
mod turns;

use super::MAX_NAMED;
use super::arrivals::Arrivals;
use super::assembly::Assembly;
use super::keys::MemberKeys;
use super::parity::Restorer;
use super::types::{
    GroupId, GroupMessage, MembershipCounters, MembershipEnd, MembershipId, MembershipStatus,
};
use crate::event::PeerId;
use crate::lending::{Handled, Lent, Memory, Owner};
use crate::seal::GroupUnopened;
use asking::Asking;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::checksum::{self, CHECKSUM_BYTES};
use denrei_wire::frame::{Feedback, Frame, Gap, feedback_flags};
use denrei_wire::group::{Begin, GROUP_HEADER_BYTES, MAX_GAPS, Open, Record};
use denrei_wire::packet::{Header, flags};
use early::Early;
use joint::Joint;
use route::JOIN_GAPS;

/// What a member's application and endpoint grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// Cost it holds beyond what was taken.
    pub credit: u64,
    /// Largest message.
    pub max_message: u64,
    /// Memory that may lie idle between two messages.
    pub spare_bytes: u64,
}

/// Where a membership is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Accepted; the opener waits for others.
    Accepted,
    /// Taking part.
    Begun,
    /// All has arrived, or it ended otherwise.
    Ended(MembershipEnd),
}

/// One group, as a member sees it.
#[derive(Debug)]
pub(crate) struct Membership {
    pub group: GroupId,
    pub address: SocketAddr,
    pub opener: PeerId,
    pub opener_addr: SocketAddr,
    pub member: u32,
    members: u32,
    report_delay: Duration,
    pub stage: Stage,
    /// The application has it.
    pub accepted: bool,
    /// Nobody is there to take it: left then, unless somebody comes.
    pub unclaimed_until: Option<Instant>,
    /// Opens the group's packets; `None`: they are plain.
    keys: Option<MemberKeys>,
    /// Polls are answered in turn.
    staggers: bool,
    grant: Grant,
    arrivals: Arrivals,
    assembly: Assembly,
    restorer: Restorer,
    early: Early,
    /// First symbol not taken in for want of room.
    barred: Option<u64>,
    /// Largest packet number seen, and when.
    echo: Option<(u64, Instant)>,
    /// Packets from the group's address, low 32 bits.
    received: u32,
    heard: bool,
    /// When a report is due at the latest, for whichever reason but what is missing.
    due: Option<Instant>,
    /// The opener has asked this member itself: whoever is above it may be dead.
    asked_in_person: bool,
    asking: Asking,
    limit_reported: u64,
    /// All symbols there are, once the opener has said so.
    end: Option<u64>,
    closed_said: bool,
    joint: Joint,
    counters: MembershipCounters,
}

impl Membership {
    pub fn new(
        group: GroupId,
        opener: PeerId,
        opener_addr: SocketAddr,
        open: &Open<'_>,
        keys: Option<MemberKeys>,
        grant: Grant,
    ) -> Self {
        Self {
            group,
            address: open.address,
            opener,
            opener_addr,
            member: open.member,
            members: open.members.max(1),
            report_delay: Duration::from_micros(open.report_delay_us.min(100_000).into()),
            stage: Stage::Accepted,
            accepted: false,
            unclaimed_until: None,
            keys,
            staggers: open.stagger,
            grant,
            arrivals: Arrivals::new(0),
            assembly: Assembly::new(0, 0, grant.spare_bytes),
            restorer: Restorer::default(),
            early: Early::default(),
            barred: None,
            echo: None,
            received: 0,
            heard: false,
            due: None,
            asked_in_person: false,
            asking: Asking::new(group, open),
            limit_reported: 0,
            end: None,
            closed_said: false,
            joint: Joint::default(),
            counters: MembershipCounters::default(),
        }
    }

    /// The opener's last word of the opening (M4's ACK): what has overtaken it is taken in.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn begin(&mut self, now: Instant, begin: &Begin) -> Result<(), &'static str> {
        if self.stage != Stage::Accepted {
            return Ok(());
        }
        if [begin.symbol, begin.message, begin.cost].into_iter().any(|named| named > MAX_NAMED) {
            return Err("a beginning that no group comes to");
        }
        self.stage = Stage::Begun;
        self.arrivals = Arrivals::new(begin.symbol);
        self.assembly = Assembly::new(begin.message, begin.cost, self.grant.spare_bytes);
        self.limit_reported = begin.cost + self.grant.credit;
        let mut early = self.early.take().into_iter();
        early.try_for_each(|packet| self.take_packet(now, packet.poll, &packet.header, &packet.frames))
    }

    /// Bytes held for the application.
    pub fn held_bytes(&self) -> u64 {
        self.assembly.held_bytes() + self.early.bytes()
    }

    /// Whether there is something to take.
    pub fn has_ready(&self) -> bool {
        self.assembly.has_ready()
    }

    /// Whether it is meant.
    pub fn is(&self, meant: MembershipId) -> bool {
        self.group == meant.group && meant.member.is_none_or(|member| member == self.member)
    }

    /// How it ended, if it has.
    pub fn ended(&self) -> Option<&MembershipEnd> {
        match &self.stage {
            Stage::Ended(why) => Some(why),
            _ => None,
        }
    }

    /// Whether the membership is over and nothing is left to take.
    pub fn is_finished(&self) -> bool {
        matches!(self.stage, Stage::Ended(_)) && !self.has_ready()
    }

    /// Takes the next message.
    pub fn take(&mut self, now: Instant, memory_left: bool) -> Option<GroupMessage> {
        let (number, data) = self.assembly.take()?;
        if memory_left {
            self.renew(now);
        }
        Some(GroupMessage { number, data })
    }

    /// Opens a packet from the group's address, in place: what follows its header.
    ///
    /// # Errors
    /// Damaged, forged, or here before.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        packet: &Header,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], GroupUnopened> {
        let phase = packet.flags & flags::KEY_PHASE != 0;
        let octets = datagram.len();
        let opened = if let Some(keys) = &mut self.keys {
            keys.open(now, phase, packet.number, datagram)
        } else {
            let end = octets.saturating_sub(CHECKSUM_BYTES);
            let frames = datagram.get(GROUP_HEADER_BYTES..end);
            frames.filter(|_| !phase && checksum::verify(datagram)).ok_or(GroupUnopened::NotGenuine)
        };
        if !matches!(opened, Err(GroupUnopened::NotGenuine)) {
            self.counters.bytes_received += octets as u64;
        }
        opened
    }

    /// Lends the memory of the message that the last packet carried a part of.
    pub fn lend(&mut self, datagram: &Handled) -> Option<Lent> {
        let (number, memory, at, shape) = self.assembly.lend(datagram)?;
        let owner = Owner::Group { group: self.group, number };
        Some(Lent { memory, at, shape, owner })
    }

    /// The memory of a message is here again.
    pub fn take_back(&mut self, number: u64, memory: Memory) {
        self.assembly.take_back(number, memory);
    }

    /// Whether the opener signs its packets.
    fn is_signed(&self) -> bool {
        self.keys.as_ref().is_some_and(MemberKeys::is_signed)
    }

    /// The group's key changes.
    pub fn rekey(&mut self, now: Instant, key: &[u8], keep_previous: bool) {
        if let Some(keys) = &mut self.keys {
            keys.rekey(now, key, keep_previous);
        }
    }

    /// A symbol by the session asked for a report.
    pub fn on_asked(&mut self, now: Instant) {
        self.report_by(now);
    }

    /// POLL by the session, of the opener's or of one that relays: something of this member's is overdue.
    pub fn on_poll(&mut self, now: Instant, next: u64, in_person: bool) {
        self.asked_in_person |= in_person;
        self.arrivals.learn(next);
        self.asking.all_below(next);
        self.report_by(now);
    }

    /// FIN.
    pub fn on_close(&mut self, now: Instant, symbols: u64) {
        self.end = Some(symbols);
        self.arrivals.learn(symbols);
        self.asking.all_below(symbols);
        if self.arrivals.has_gaps() {
            self.report_by(now);
        }
    }

    /// Whether FIN+ACK is to be said now, which ends the membership.
    pub fn finish(&mut self) -> bool {
        let complete = self.end.is_some_and(|end| end <= self.arrivals.next()) && self.stage == Stage::Begun;
        if complete && !self.closed_said {
            self.closed_said = true;
            self.stage = Stage::Ended(MembershipEnd::Closed);
            self.stop_reporting();
            return true;
        }
        false
    }

    /// Ends otherwise; whether it had not ended.
    pub fn end(&mut self, why: MembershipEnd) -> bool {
        let news = !matches!(self.stage, Stage::Ended(_));
        if news {
            self.stage = Stage::Ended(why);
            self.stop_reporting();
        }
        news
    }

    /// What it says to the opener when it leaves: what has come is acknowledged.
    pub fn leaving(&self) -> Record<'static> {
        Record::Leave { symbols: self.arrivals.next(), messages: self.assembly.next() }
    }

    /// One that is out has nothing more to say; who has everything may speak for others.
    fn report_by(&mut self, at: Instant) {
        if self.ended().is_some_and(|why| *why != MembershipEnd::Closed) {
            return;
        }
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    fn stop_reporting(&mut self) {
        self.due = None;
        self.asking.stop();
    }

    /// When to [`report`](Self::report), if [`owes_report`](Self::owes_report) then, or to leave.
    pub fn deadline(&self) -> Instant {
        let at = |when: Option<Instant>| when.unwrap_or(Instant::FAR_FUTURE);
        at(self.due).min(at(self.unclaimed_until)).min(self.asking.deadline())
    }

    /// Whether a report is due: what was missing may be here meanwhile.
    pub fn owes_report(&mut self, now: Instant) -> bool {
        let asks = self.asking.is_due(now, &self.arrivals);
        asks || self.due.is_some_and(|due| due <= now)
    }

    /// Whether what is missing was asked for often, and has not come.
    pub fn is_unheard(&self) -> bool {
        self.asking.is_unheard()
    }

    /// Which group it is of, and as whom.
    pub fn status(&self) -> MembershipStatus {
        let Self { group, address, opener_addr, member, counters, .. } = *self;
        MembershipStatus { group, address, opener: opener_addr, member, counters }
    }

    /// What has happened so far.
    pub fn counters(&self) -> MembershipCounters {
        self.counters
    }

    /// The report that is due. `rtt` is the session's, to pace repetitions by; the limit is raised only
    /// if `memory_left`.
    pub fn report(&mut self, now: Instant, rtt: Duration, memory_left: bool, put: &mut impl FnMut(&[u8])) {
        self.due = None;
        let to_opener = self.reports_to().is_none();
        let in_person = core::mem::take(&mut self.asked_in_person);
        if memory_left {
            self.limit_reported = self.limit_reported.max(self.limit());
        }
        let mut gaps: Vec<(u64, u64)> = self.asking.gaps(&self.arrivals).take(MAX_GAPS).collect();
        if !in_person && self.joint.missed.is_waiting() {
            self.joint.missed.join(now, &mut gaps);
        }
        let gap = |&(first, count): &(u64, u64)| Gap::new(first as u32, count.min(u16::MAX as u64) as u16);
        let gaps: Vec<Gap> = gaps.iter().map(gap).collect();
        if self.joint.missed.is_waiting() {
            self.report_by(now + JOIN_GAPS);
        }
        let largest = self.echo.map(|(largest, _)| largest);
        self.asking.asked(now, rtt, largest, &self.arrivals);
        let (echo, since) = self.echo.unwrap_or((0, now));
        let mut report = Feedback {
            flags: if self.heard { feedback_flags::HEARD } else { 0 },
            group: self.group.0,
            member: self.member,
            covers: 1,
            echo: echo as u32,
            received: self.received,
            delay_us: (now - since).as_micros().min(u32::MAX as u128) as u32,
            next: self.arrivals.next() as u32,
            messages: self.assembly.next() as u32,
            limit: self.limit_reported,
            gaps: &gaps,
        };
        // Those above have no use for it, and do not hand it on.
        self.heard &= !to_opener;
        self.counters.reports += 1;
        // Asked itself it speaks for itself: one below may be dead.
        if !in_person {
            self.joint.join(self.arrivals.next(), self.assembly.next(), &mut report);
        }
        if let Some(after) = self.joint.repeat(&report).filter(|_| !to_opener) {
            self.report_by(now + after);
        }
        Frame::Feedback(report).encode(put);
    }
}
