//! Reports for others: a member in a tree joins the reports of those below it with its own (M10), and
//! hands symbols on to them.
//!
//! Inputs → outputs: ROUTE, reports from below → this member's report with each value lowered to the
//! least of those below (M3), and with what those below miss. Source: `spec/protocol.md` §14.4.

use super::missed::Missed;
use crate::event::PeerId;
use core::net::SocketAddr;
use denrei_wire::frame::Feedback;
use denrei_wire::group::Route;
use denrei_wire::{Instant, ids};

/// The values of one member below, and of those below that one.
#[derive(Debug, Clone, Copy)]
struct Below {
    peer: PeerId,
    member: u32,
    covers: u32,
    next: u64,
    messages: u64,
    limit: u64,
}

/// Who is above and who is below.
#[derive(Debug, Default)]
pub(super) struct Joint {
    route: Option<(Route, Vec<PeerId>)>,
    below: Vec<Below>,
    /// All have to have what is below this symbol before a report for all is worth it.
    wanted: Option<u64>,
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
        let children = self.route.as_ref().map_or(0, |(_, children)| children.len());
        let all = self.below.len() == children && self.below.iter().all(|below| below.next >= wanted);
        if next >= wanted && all {
            self.wanted = None;
            return true;
        }
        false
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

    /// Takes in a report from below; `known` is the first symbol not known to have been sent. Whether
    /// who sent it is below.
    pub fn on_report(&mut self, now: Instant, peer: PeerId, feedback: &Feedback<'_>, known: u64) -> bool {
        let index = match self.below.iter().position(|below| below.peer == peer) {
            Some(index) => index,
            None if self.route.as_ref().is_some_and(|(_, children)| children.contains(&peer)) => {
                self.below.push(Below { peer, member: 0, covers: 0, next: known, messages: 0, limit: 0 });
                self.below.len() - 1
            }
            None => return false,
        };
        let below = &mut self.below[index];
        below.next = ids::expand(feedback.next, below.next);
        below.messages = ids::expand(feedback.messages, below.messages);
        below.limit = below.limit.max(feedback.limit);
        (below.member, below.covers) = (feedback.member, feedback.covers);
        let next = below.next;
        for gap in feedback.gaps {
            self.missed.want(now, ids::expand(gap.first(), next), gap.count().into());
        }
        true
    }

    /// Lowers each value of this member's report to the least of those below (M3), and names who holds the
    /// others up: who has least, and of several with as much, who has room for least.
    pub fn join(&self, next: u64, messages: u64, report: &mut Feedback<'_>) {
        let (mut last, mut messages) = ((next, report.limit), messages);
        for below in &self.below {
            report.covers += below.covers;
            report.limit = report.limit.min(below.limit);
            messages = messages.min(below.messages);
            if (below.next, below.limit) < last {
                last = (below.next, below.limit);
                report.member = below.member;
            }
        }
        report.next = last.0 as u32;
        report.messages = messages as u32;
    }
}
