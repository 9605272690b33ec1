//! When a member reports though it misses nothing: in its turn, and in a tree once all below it have what
//! it reports of.
//!
//! Inputs → outputs: symbols and questions as they come → when a report is due. Source: M10;
//! `spec/protocol.md` §14.4.

use super::Membership;
use core::time::Duration;
use denrei_wire::Instant;

/// Members answer a poll one after the other, so far apart: an opener handles a report in less.
const POLL_SPACING: Duration = Duration::from_micros(4);
/// The last member answers a poll after this long, however many there are.
const MAX_POLL_SPREAD: Duration = Duration::from_millis(4);
/// So many members may answer a poll at once.
const MAX_ANSWERS_AT_ONCE: u32 = 16;

impl Membership {
    /// A symbol has come of which every `every`-th is to be reported.
    pub(super) fn take_turn(&mut self, now: Instant, symbol: u64, every: u64) {
        let in_tree = self.joint.collects() || self.joint.reports_to().is_some();
        // In a tree all speak of the same symbol, as they speak to different members.
        let turn = if in_tree { 0 } else { self.turn() as u64 * every / self.members as u64 };
        if !(symbol + turn).is_multiple_of(every) {
            return;
        }
        match in_tree {
            true => self.report_on(now, symbol + 1),
            false => self.report_by(now),
        }
    }

    /// A report is wanted, of everything below `symbol`: with those of the members below, if there are
    /// any, which come soon.
    pub(super) fn report_on(&mut self, now: Instant, symbol: u64) {
        if !self.joint.collects() {
            return self.report_in_turn(now);
        }
        self.joint.want(symbol);
        let complete = self.joint.is_complete(self.arrivals.next());
        self.report_by(if complete { now } else { now + self.report_delay });
    }

    /// Members that answer the opener do so one after the other.
    pub(super) fn report_in_turn(&mut self, now: Instant) {
        self.report_by(now + self.stagger());
    }

    /// Ids of members that came later may be any: those who are members now share the turns all the same.
    fn turn(&self) -> u32 {
        self.member % self.members
    }

    fn stagger(&self) -> Duration {
        let few = self.members <= MAX_ANSWERS_AT_ONCE || self.joint.reports_to().is_some();
        if few || !self.staggers {
            return Duration::ZERO;
        }
        (POLL_SPACING * self.turn()).min(MAX_POLL_SPREAD * (self.turn() + 1) / self.members)
    }
}
