//! What a member has room for. Whoever the others wait for is sent nothing beyond its limit; who lags hears the
//! group's address as they do.
//!
//! Inputs → outputs: what the application has taken, symbols and parities as they come to the group's address →
//! when to report a limit, whether they are taken in. Those that are not come by the session once there is room.
//! Source: M6; `spec/protocol.md` §14.5.

use super::Membership;
use denrei_wire::Instant;

impl Membership {
    /// Reports a limit that has risen by a good part, or that the opener may be waiting for.
    pub(super) fn renew(&mut self, now: Instant) {
        let risen = self.limit().saturating_sub(self.limit_reported);
        let left = self.limit_reported.saturating_sub(self.assembly.seen_cost());
        if risen >= self.grant.credit / 4 || (risen > 0 && left < self.grant.credit / 4) {
            self.report_by(now);
        }
    }

    /// Cost that may have been begun.
    pub(super) fn limit(&self) -> u64 {
        self.assembly.taken_cost() + self.grant.credit
    }

    /// Whether a symbol that has come to the group's address may be held. After one that may not be, none is
    /// until that one is here.
    pub(super) fn has_room(&mut self, symbol: u64, frames: &[u8]) -> bool {
        if self.arrivals.contains(symbol) {
            return true;
        }
        if self.first_barred() <= symbol {
            return false;
        }
        let (seen, taken) = (self.assembly.seen_cost(), self.assembly.taken_cost());
        let cost = self.assembly.cost_of_new(frames, self.grant.max_message);
        // The rest of what was begun is always let in: a message may be larger than the credit. What is larger than
        // any that is taken is meant for others: this one is no member any more, and has not heard of it.
        let fits = cost.is_some_and(|cost| cost == 0 || seen <= taken || seen + cost <= self.limit());
        if !fits {
            self.barred = Some(symbol);
        }
        fits
    }

    /// The first symbol that was not taken in for want of room, if it has not come since; else beyond all.
    pub(super) fn first_barred(&mut self) -> u64 {
        self.barred = self.barred.filter(|symbol| !self.arrivals.contains(*symbol));
        self.barred.unwrap_or(u64::MAX)
    }
}
