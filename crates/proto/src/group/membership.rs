//! One group, as a member sees it.
//!
//! Inputs → outputs: packets from the group's address, records from the opener, time, the
//! application's taking → messages in order, reports (when, and what they say), symbols to hand on.
//! Source: M3, M5, M6 (what a report says), M10 (when); `spec/protocol.md` §14.3–13.5.

use super::arrivals::Arrivals;
use super::assembly::Assembly;
use super::types::{GroupId, GroupMessage, MembershipEnd};
use crate::event::PeerId;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::frame::{Feedback, Frame, Gap, feedback_flags};
use denrei_wire::group::{Begin, GroupHeader, MAX_GAPS, Open, Route};
use denrei_wire::{Instant, ids};

/// A gap is reported at once when so many symbols beyond it have come (RFC 9002 §6.1.1) …
const GAP_THRESHOLD: u64 = 3;
/// … and otherwise after this long: it may be reordering.
const REORDER_DELAY: Duration = Duration::from_micros(250);
/// Members answer a poll one after the other, so far apart: an opener handles a report in less.
const POLL_SPACING: Duration = Duration::from_micros(4);
/// The last member answers a poll after this long, however many there are.
const MAX_POLL_SPREAD: Duration = Duration::from_millis(4);
/// A gap is reported again after two round trips, and not sooner than this.
const MIN_REPEAT_DELAY: Duration = Duration::from_millis(2);

/// What a member's application and endpoint grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    /// Cost it holds beyond what was taken.
    pub credit: u64,
    /// Largest message.
    pub max_message: u64,
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

/// The values of the members below, for a joint report.
#[derive(Debug, Clone, Copy)]
struct Below {
    peer: PeerId,
    member: u32,
    covers: u32,
    next: u64,
    messages: u64,
    limit: u64,
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
    /// The application wants no more of it: to be forgotten once it has ended.
    pub abandoned: bool,
    grant: Grant,
    arrivals: Arrivals,
    assembly: Assembly,
    /// Largest packet number seen, and when.
    echo: Option<(u64, Instant)>,
    heard: bool,
    /// When a report is due at the latest, for whichever reason.
    due: Option<Instant>,
    limit_reported: u64,
    /// All symbols there are, once the opener has said so.
    end: Option<u64>,
    closed_said: bool,
    route: Option<(Route, Vec<PeerId>)>,
    below: Vec<Below>,
    /// Symbols that came twice.
    pub duplicates: u64,
}

impl Membership {
    pub fn new(
        group: GroupId,
        opener: PeerId,
        opener_addr: SocketAddr,
        open: &Open<'_>,
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
            abandoned: false,
            grant,
            arrivals: Arrivals::new(0),
            assembly: Assembly::new(0, 0),
            echo: None,
            heard: false,
            due: None,
            limit_reported: 0,
            end: None,
            closed_said: false,
            route: None,
            below: Vec::new(),
            duplicates: 0,
        }
    }

    /// The opener's last word of the opening (M4's ACK).
    pub fn begin(&mut self, begin: &Begin) {
        if self.stage == Stage::Accepted {
            self.stage = Stage::Begun;
            self.arrivals = Arrivals::new(begin.symbol);
            self.assembly = Assembly::new(begin.message, begin.cost);
            self.limit_reported = begin.cost + self.grant.credit;
        }
    }

    /// Bytes held for the application.
    pub fn held_bytes(&self) -> u64 {
        self.assembly.held_bytes()
    }

    /// Whether there is something to take.
    pub fn has_ready(&self) -> bool {
        self.assembly.has_ready()
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
        matches!(self.stage, Stage::Ended(_)) && (!self.has_ready() || self.abandoned)
    }

    /// Takes the next message.
    pub fn take(&mut self, now: Instant, memory_left: bool) -> Option<GroupMessage> {
        let (number, data) = self.assembly.take()?;
        if memory_left {
            self.renew(now);
        }
        Some(GroupMessage { number, data })
    }

    /// Reports a limit that has risen by a good part, or that the opener may be waiting for.
    fn renew(&mut self, now: Instant) {
        let risen = self.limit().saturating_sub(self.limit_reported);
        let left = self.limit_reported.saturating_sub(self.assembly.seen_cost());
        if risen >= self.grant.credit / 4 || (risen > 0 && left < self.grant.credit / 4) {
            self.report_by(now);
        }
    }

    fn limit(&self) -> u64 {
        self.assembly.taken_cost() + self.grant.credit
    }

    /// A packet has come from the group's address.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn on_packet(
        &mut self,
        now: Instant,
        packet: u32,
        poll: bool,
        header: &GroupHeader,
        frames: &[u8],
    ) -> Result<(), &'static str> {
        self.heard = true;
        let number = ids::expand(packet, self.echo.map_or(0, |(largest, _)| largest + 1));
        if self.echo.is_none_or(|(largest, _)| number > largest) {
            self.echo = Some((number, now));
        }
        if self.stage != Stage::Begun {
            if poll {
                self.report_by(now + self.stagger());
            }
            return Ok(());
        }
        let symbol = ids::expand(header.symbol, self.arrivals.known());
        if frames.is_empty() {
            self.learn(now, symbol);
        } else {
            self.on_symbol(now, symbol, frames)?;
            let every = header.ack_every as u64;
            let turn = self.member as u64 * every / self.members as u64;
            if (symbol + turn).is_multiple_of(every) {
                self.report_by(now);
            }
        }
        if poll {
            self.report_by(now + self.stagger());
        }
        Ok(())
    }

    /// A symbol has come, by whichever way.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn on_symbol(&mut self, now: Instant, symbol: u64, frames: &[u8]) -> Result<(), &'static str> {
        if self.stage != Stage::Begun {
            return Ok(());
        }
        let known = self.arrivals.known();
        if !self.arrivals.insert(symbol) {
            self.duplicates += 1;
            return Ok(());
        }
        self.assembly.add(frames, self.grant.max_message)?;
        if symbol > known {
            let threshold = symbol >= known + GAP_THRESHOLD;
            self.report_by(now + if threshold { Duration::ZERO } else { REORDER_DELAY });
        }
        self.report_by(now + self.report_delay);
        Ok(())
    }

    /// Everything below `symbol` has been sent.
    fn learn(&mut self, now: Instant, symbol: u64) {
        if self.arrivals.learn(symbol) {
            self.report_by(now + REORDER_DELAY);
        }
    }

    /// A symbol by the session asked for a report.
    pub fn on_asked(&mut self, now: Instant) {
        self.report_by(now);
    }

    /// POLL by the session: something of this member's is overdue.
    pub fn on_poll(&mut self, now: Instant, next: u64) {
        self.arrivals.learn(next);
        self.report_by(now);
    }

    /// FIN.
    pub fn on_close(&mut self, now: Instant, symbols: u64) {
        self.end = Some(symbols);
        self.arrivals.learn(symbols);
        if self.arrivals.has_gaps() {
            self.report_by(now);
        }
    }

    /// Whether FIN+ACK is to be said now, which ends the membership.
    pub fn finish(&mut self) -> bool {
        let complete = self.stage == Stage::Begun && self.end.is_some_and(|end| end <= self.arrivals.next());
        if complete && !self.closed_said {
            self.closed_said = true;
            self.stage = Stage::Ended(MembershipEnd::Closed);
            self.due = None;
            return true;
        }
        false
    }

    /// Ends otherwise; whether it had not ended.
    pub fn end(&mut self, why: MembershipEnd) -> bool {
        let news = !matches!(self.stage, Stage::Ended(_));
        if news {
            self.stage = Stage::Ended(why);
            self.due = None;
        }
        news
    }

    fn report_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// Members answer one after the other.
    fn stagger(&self) -> Duration {
        if self.members <= 16 {
            return Duration::ZERO;
        }
        (POLL_SPACING * self.member).min(MAX_POLL_SPREAD * (self.member + 1) / self.members)
    }

    /// When to [`report`](Self::report).
    pub fn deadline(&self) -> Instant {
        self.due.unwrap_or(Instant::FAR_FUTURE)
    }

    /// Whom symbols are handed on to.
    pub fn relays_to(&self) -> &[PeerId] {
        match &self.route {
            Some((route, children)) if route.relay => children,
            _ => &[],
        }
    }

    /// To whom this member reports: its parent's address, or `None` for the opener.
    pub fn reports_to(&self) -> Option<SocketAddr> {
        let (route, _) = self.route.as_ref()?;
        route.report_to_parent.then_some(route.parent)
    }

    /// Whether something is missing.
    pub fn misses_something(&self) -> bool {
        self.arrivals.has_gaps()
    }

    /// The opener has said who hands on to whom.
    pub fn set_route(&mut self, now: Instant, route: Route, children: Vec<PeerId>) {
        self.below.retain(|below| children.contains(&below.peer));
        self.route = Some((route, children));
        self.report_by(now);
    }

    /// A report of a member below has come: joins it with this one's next.
    pub fn on_report_from_below(&mut self, now: Instant, peer: PeerId, feedback: &Feedback<'_>) {
        let index = match self.below.iter().position(|below| below.peer == peer) {
            Some(index) => index,
            None if self.route.as_ref().is_some_and(|(_, children)| children.contains(&peer)) => {
                let next = self.arrivals.known();
                self.below.push(Below { peer, member: 0, covers: 0, next, messages: 0, limit: 0 });
                self.below.len() - 1
            }
            None => return,
        };
        let below = &mut self.below[index];
        below.next = ids::expand(feedback.next, below.next);
        below.messages = ids::expand(feedback.messages, below.messages);
        below.limit = below.limit.max(feedback.limit);
        (below.member, below.covers) = (feedback.member, feedback.covers);
        // What is missing below is the opener's to repair, at once; the rest can wait for company.
        let urgent = !feedback.gaps.is_empty();
        self.report_by(if urgent { now } else { now + self.report_delay });
    }

    /// The report that is due. `rtt` is the session's, to pace repetitions by; the limit is raised only
    /// if `memory_left`.
    pub fn report(&mut self, now: Instant, rtt: Duration, memory_left: bool, put: &mut impl FnMut(&[u8])) {
        self.due = None;
        if memory_left {
            self.limit_reported = self.limit_reported.max(self.limit());
        }
        let mut gaps = Vec::new();
        for (first, count) in self.arrivals.gaps().take(MAX_GAPS) {
            gaps.push(Gap::new(first as u32, count.min(u16::MAX as u64) as u16));
        }
        if !gaps.is_empty() {
            self.report_by(now + (rtt * 2).max(MIN_REPEAT_DELAY));
        }
        let (echo, since) = self.echo.unwrap_or((0, now));
        let mut report = Feedback {
            flags: if self.heard { feedback_flags::HEARD } else { 0 },
            group: self.group.0,
            member: self.member,
            covers: 1,
            echo: echo as u32,
            delay_us: (now - since).as_micros().min(u32::MAX as u128) as u32,
            next: self.arrivals.next() as u32,
            messages: self.assembly.next() as u32,
            limit: self.limit_reported,
            gaps: &gaps,
        };
        self.heard = false;
        self.join_below(&mut report);
        Frame::Feedback(report).encode(put);
    }

    /// Lowers each value to the least of those below (M3).
    fn join_below(&self, report: &mut Feedback<'_>) {
        let (mut next, mut messages) = (self.arrivals.next(), self.assembly.next());
        for below in &self.below {
            report.covers += below.covers;
            report.limit = report.limit.min(below.limit);
            messages = messages.min(below.messages);
            if below.next < next {
                next = below.next;
                report.member = below.member;
            }
        }
        report.next = next as u32;
        report.messages = messages as u32;
    }
}
