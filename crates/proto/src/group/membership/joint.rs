//! Reports for others: a member in a tree joins the reports of those below it with its own (M10), and
//! hands symbols on to them.
//!
//! Inputs → outputs: ROUTE, reports from below → this member's report with each value lowered to the
//! least of those below (M3), and with what those below miss. Source: `spec/protocol.md` §14.4.

use super::missed::Missed;
use crate::event::PeerId;
use crate::group::MAX_NAMED;
use crate::group::arrivals::Arrivals;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::frame::Feedback;
use denrei_wire::group::Route;
use denrei_wire::{Instant, ids};

/// The values of one member below, and of those below that one.
#[derive(Debug, Clone, Copy)]
struct Below {
    peer: PeerId,
    member: u32,
    covers: u32,
    /// What these have lost in all of the group's packets up to the one that the report echoes (low 32 bits).
    lost: u32,
    next: u64,
    messages: u64,
    limit: u64,
}

/// What a report says that climbs is said so often, so far apart, unless there is news: those above repeat no
/// question, and with a thousand members some of what is said is lost for certain.
const REPEATS: u8 = 2;
const REPEAT_AFTER: Duration = Duration::from_millis(2);

/// Symbols that may come after one that is far ahead of all that were handed on before.
const LATE: u64 = 1 << 16;

/// What a report has lost of the packets that it could tell of.
fn lost(report: &Feedback<'_>) -> u32 {
    report.covers.wrapping_mul(report.echo.wrapping_add(1)).wrapping_sub(report.received)
}

/// Who is above and who is below.
#[derive(Debug, Default)]
pub(super) struct Joint {
    route: Option<(Route, Vec<PeerId>)>,
    below: Vec<Below>,
    /// All have to have what is below this symbol before a report for all is worth it.
    wanted: Option<u64>,
    /// The last report that went to a parent, and how often it will be said again.
    said: Option<(u32, u32, u64)>,
    repeats: u8,
    /// Symbols that were handed on.
    handed: Arrivals,
    pub missed: Missed,
}

impl Joint {
    /// Whom symbols are handed on to.
    pub fn relays_to(&self) -> &[PeerId] {
        match &self.route {
            Some((route, children)) if route.relay => children,
            _ => &[],
        }
    }

    /// Whether a symbol that a session has brought is to be handed on: once, though the opener may send again by its own
    /// session what is on its way by relays. Each of a chain would hand on what it and all before it are sent.
    pub fn hands_on(&mut self, symbol: u64) -> bool {
        if !self.handed.is_near(symbol.saturating_add(1)) && symbol <= MAX_NAMED {
            // It is a relay since late, or did not hear of some.
            self.handed = Arrivals::new(symbol.saturating_sub(LATE));
        }
        let news = !self.relays_to().is_empty() && !self.handed.contains(symbol);
        self.handed.insert(symbol);
        news
    }

    /// Whether others report to this member.
    pub fn collects(&self) -> bool {
        !self.below.is_empty()
    }

    /// A report is wanted as soon as all below have everything below `symbol`.
    pub fn want(&mut self, symbol: u64) {
        self.wanted = Some(self.wanted.map_or(symbol, |wanted| wanted.max(symbol)));
    }

    /// Whether a report that was wanted is due, as this member has everything below `next`, and so have
    /// all below it.
    pub fn is_complete(&mut self, next: u64) -> bool {
        let Some(wanted) = self.wanted else { return false };
        let all = self.all_have_reported() && self.below.iter().all(|below| below.next >= wanted);
        if next >= wanted && all {
            self.wanted = None;
            return true;
        }
        false
    }

    /// Whether something is known of each of those right below.
    fn all_have_reported(&self) -> bool {
        self.below.len() == self.route.as_ref().map_or(0, |(_, children)| children.len())
    }

    /// To whom this member reports: its parent's address, or `None` for the opener.
    pub fn reports_to(&self) -> Option<SocketAddr> {
        let (route, _) = self.route.as_ref()?;
        route.report_to_parent.then_some(route.parent)
    }

    /// Whether the member at `addr` hands symbols on to this one.
    pub fn is_served_by(&self, addr: SocketAddr) -> bool {
        self.route.as_ref().is_some_and(|(route, _)| route.relay && route.parent == addr)
    }

    /// The opener has said who hands on to whom.
    pub fn set_route(&mut self, route: Route, children: Vec<PeerId>) {
        self.below.retain(|below| children.contains(&below.peer));
        self.route = Some((route, children));
    }

    /// A report goes to the parent; when to say it again, if nothing newer is said until then.
    pub fn repeat(&mut self, report: &Feedback<'_>) -> Option<Duration> {
        let said = Some((report.next, report.covers, report.limit));
        self.repeats = if self.said == said { self.repeats.saturating_sub(1) } else { REPEATS };
        self.said = said;
        (self.repeats > 0).then_some(REPEAT_AFTER)
    }

    /// Takes in a report from below; `known` are the first symbol not known to have been sent, and the first message
    /// not here. Whether it brings news of one below.
    pub fn on_report(
        &mut self,
        now: Instant,
        peer: PeerId,
        feedback: &Feedback<'_>,
        (known, messages): (u64, u64),
    ) -> bool {
        let index = match self.below.iter().position(|below| below.peer == peer) {
            Some(index) => index,
            None if self.route.as_ref().is_some_and(|(_, children)| children.contains(&peer)) => {
                let (member, covers, lost) = (0, 0, 0);
                self.below.push(Below { peer, member, covers, lost, next: known, messages, limit: 0 });
                self.below.len() - 1
            }
            None => return false,
        };
        let below = &mut self.below[index];
        let before = (below.next, below.limit, below.covers, below.member);
        below.next = ids::expand(feedback.next, below.next);
        below.messages = ids::expand(feedback.messages, below.messages);
        below.limit = below.limit.max(feedback.limit);
        (below.member, below.covers, below.lost) = (feedback.member, feedback.covers, lost(feedback));
        let next = below.next;
        let news = before != (next, below.limit, below.covers, below.member);
        for gap in feedback.gaps {
            self.missed.want(now, ids::expand(gap.first(), next), gap.count().into());
        }
        news || !feedback.gaps.is_empty()
    }

    /// Lowers each value of this member's report to the least of those below (M3), and names who holds the
    /// others up: who has least, and of several with as much, who has room for least. As long as nothing is known of
    /// somebody below it covers nobody (0): of as many when others have gone the opener would take it for those left.
    pub fn join(&self, next: u64, messages: u64, report: &mut Feedback<'_>) {
        let (mut last, mut messages) = ((next, report.limit), messages);
        let mut all_lost = lost(report);
        for below in &self.below {
            report.covers = report.covers.saturating_add(below.covers);
            all_lost = all_lost.wrapping_add(below.lost);
            report.limit = report.limit.min(below.limit);
            messages = messages.min(below.messages);
            if (below.next, below.limit) < last {
                last = (below.next, below.limit);
                report.member = below.member;
            }
        }
        // Those whom symbols are handed on to may report to the opener.
        let alone = self.below.is_empty() && self.reports_to().is_none();
        if alone || (self.all_have_reported() && self.below.iter().all(|below| below.covers > 0)) {
            report.received = report.covers.wrapping_mul(report.echo.wrapping_add(1)).wrapping_sub(all_lost);
        } else {
            report.covers = 0;
        }
        report.next = last.0 as u32;
        report.messages = messages as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(member: u32, covers: u32, echo: u32, received: u32, next: u32) -> Feedback<'static> {
        Feedback {
            flags: 0,
            group: 7,
            member,
            covers,
            echo,
            received,
            delay_us: 0,
            next,
            messages: 0,
            limit: 100,
            gaps: &[],
        }
    }

    fn peer(slot: u32) -> PeerId {
        PeerId { slot, generation: 0 }
    }

    fn joint() -> Joint {
        let parent = "10.0.0.1:7".parse().unwrap();
        let route = Route { parent, report_to_parent: true, relay: false, children: Vec::new() };
        let mut joint = Joint::default();
        joint.set_route(route, vec![peer(1), peer(2)]);
        joint
    }

    #[test]
    fn losses_of_all_are_added_up_as_of_the_packet_that_is_echoed() {
        let mut joint = joint();
        joint.on_report(Instant::ZERO, peer(1), &said(1, 1, 99, 97, 50), (50, 0));
        joint.on_report(Instant::ZERO, peer(2), &said(2, 5, 89, 5 * 90 - 4, 40), (50, 0));
        let mut own = said(0, 1, 199, 199, 60);
        joint.join(60, 0, &mut own);
        assert_eq!((own.covers, own.next, own.member), (7, 40, 2));
        assert_eq!(own.received, 7 * 200 - 3 - 4 - 1);
    }

    #[test]
    fn nobody_is_covered_while_nothing_is_known_of_somebody_below() {
        let mut joint = joint();
        let covered = |joint: &Joint| {
            let mut own = said(0, 1, 199, 198, 60);
            joint.join(60, 0, &mut own);
            (own.covers, own.next, own.received)
        };
        joint.on_report(Instant::ZERO, peer(1), &said(1, 2, 99, 200, 50), (50, 0));
        assert_eq!(covered(&joint), (0, 50, 198), "of one right below");
        joint.on_report(Instant::ZERO, peer(2), &said(2, 0, 99, 100, 60), (60, 0));
        assert_eq!(covered(&joint), (0, 50, 198), "of one below that one");
        joint.on_report(Instant::ZERO, peer(2), &said(2, 3, 99, 300, 60), (60, 0));
        assert_eq!(covered(&joint), (6, 50, 1198));
    }

    #[test]
    fn who_says_that_it_speaks_for_all_there_can_be_ends_nothing() {
        let mut joint = joint();
        joint.on_report(Instant::ZERO, peer(1), &said(1, u32::MAX, u32::MAX, 1, 50), (50, 0));
        joint.on_report(Instant::ZERO, peer(2), &said(2, u32::MAX, 0, 0, 50), (50, 0));
        let mut own = said(0, 1, 199, 199, 60);
        joint.join(60, 0, &mut own);
        assert_eq!(own.covers, u32::MAX);
    }

    #[test]
    fn who_is_a_relay_since_late_hands_each_symbol_on_once() {
        let mut joint = joint();
        if let Some((route, _)) = &mut joint.route {
            route.relay = true;
        }
        for symbol in [1 << 20, (1 << 20) + 1, (1 << 20) - 5, 3 << 20, u64::MAX] {
            assert!(joint.hands_on(symbol), "{symbol}");
            assert_eq!(joint.hands_on(symbol), symbol == u64::MAX, "{symbol}");
        }
    }

    #[test]
    fn what_climbs_is_said_again_and_only_news_is_handed_on() {
        let mut joint = joint();
        let first = said(0, 1, 9, 10, 10);
        assert_eq!([(); 4].map(|()| joint.repeat(&first).is_some()), [true, true, false, false]);
        assert!(joint.repeat(&said(0, 1, 19, 20, 20)).is_some(), "that is new");
        let below = said(1, 1, 9, 10, 10);
        assert!(joint.on_report(Instant::ZERO, peer(1), &below, (10, 0)));
        assert!(!joint.on_report(Instant::ZERO, peer(1), &said(1, 1, 12, 12, 10), (10, 0)), "the same again");
        assert!(!joint.on_report(Instant::ZERO, peer(9), &below, (10, 0)), "who is not below");
    }

    #[test]
    fn messages_below_are_counted_from_where_this_member_is_also_beyond_what_travels() {
        let mut joint = joint();
        let (own_has, below_has) = ((1_u64 << 32) + 1, (1_u64 << 32) + 9);
        for number in [1, 2] {
            let report = Feedback { messages: below_has as u32, ..said(number, 1, 99, 97, 50) };
            joint.on_report(Instant::ZERO, peer(number), &report, (50, own_has));
        }
        let mut own = said(0, 1, 199, 199, 60);
        joint.join(60, own_has, &mut own);
        assert_eq!(own.messages, own_has as u32, "it has less than those below");
    }
}
