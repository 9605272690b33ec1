//! A member in a tree: whom it hands symbols on to, to whom it reports, and what it does with reports of those
//! below it.
//!
//! Inputs → outputs: ROUTE, reports from below → when this member reports next, and to whom. Source:
//! `spec/protocol.md` §14.4.

use super::Membership;
use crate::event::PeerId;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::frame::Feedback;
use denrei_wire::group::{Record, Route};

/// What is missing below is named together with what else is found missing within this time: as much again
/// at each of at most six levels.
pub(super) const JOIN_GAPS: Duration = Duration::from_micros(250);

impl Membership {
    /// Whom a record is handed on to.
    pub fn relays_to(&mut self, record: &Record<'_>) -> &[PeerId] {
        let handed_on = match record {
            Record::Symbol { number, .. } => self.joint.hands_on(*number),
            Record::Poll { .. } => true,
            _ => false,
        };
        if handed_on { self.joint.relays_to() } else { &[] }
    }

    /// To whom this member reports: its parent's address, or `None` for the opener, who has asked this
    /// member itself, or who has to hear what those above do not hand on.
    pub fn reports_to(&self) -> Option<SocketAddr> {
        self.joint.reports_to().filter(|_| !self.asked_in_person && !self.asking.is_unheard())
    }

    /// Whether symbols are taken from the session with `peer`, at `addr`: the opener's, or that of the relay
    /// it named, if its packets are not signed.
    pub fn hears(&self, peer: PeerId, addr: Option<SocketAddr>) -> bool {
        let relay = || !self.is_signed() && addr.is_some_and(|addr| self.joint.is_served_by(addr));
        peer == self.opener || relay()
    }

    /// The opener has said who hands on to whom.
    pub fn set_route(&mut self, now: Instant, route: Route, children: Vec<PeerId>) {
        self.joint.set_route(route, children);
        self.asking.ask_above(self.joint.reports_to().is_some());
        self.report_by(now);
    }

    /// A report of a member below has come: joins it with this one's next. What is missing below waits a
    /// little for what others miss, the rest for company.
    pub fn on_report_from_below(&mut self, now: Instant, peer: PeerId, feedback: &Feedback<'_>) {
        let known = (self.arrivals.known(), self.assembly.next());
        if !self.joint.on_report(now, peer, feedback, known) {
            return;
        }
        let complete = self.joint.is_complete(self.arrivals.next());
        self.report_by(if complete { now } else { now + self.report_delay });
        if self.joint.missed.is_waiting() {
            self.report_by(now + JOIN_GAPS);
        }
    }
}
