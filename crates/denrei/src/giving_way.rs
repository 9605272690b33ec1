//! Giving one's core away before one sleeps on the sockets.
//!
//! Inputs → outputs: the time → whether to yield; how long that took → when to do so again. Source: ADR 96.
//!
//! Where several processes share a core, who sleeps as soon as nothing is there is woken by the next datagram, and takes
//! the core from the one that would have sent some more. Who yields first comes back when the others have had their
//! turn, and finds several, often without a sleep. Where nobody else wants the core a yield is a short system call.

use denrei_wire::Instant;
use std::time::Duration;

/// A yield that took longer has met somebody who computes, and keeps the core until the scheduler takes it away.
const CROWDED: Duration = Duration::from_millis(2);
/// After such a one none is tried for so many times as long: together they take a hundredth of the time.
const PAUSE: u32 = 100;

/// Whether to yield before a sleep.
#[derive(Debug, Default)]
pub(crate) struct GivingWay {
    not_before: Instant,
}

impl GivingWay {
    /// A sleep begins.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.not_before
    }

    /// A yield took from `began` to `ended`.
    pub fn yielded(&mut self, began: Instant, ended: Instant) {
        let lasted = ended.saturating_since(began);
        if lasted > CROWDED {
            self.not_before = ended + lasted * PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_computes_costs_a_hundredth() {
        let now = Instant::from_nanos(1_000_000_000);
        let mut giving_way = GivingWay::default();
        assert!(giving_way.is_due(now));
        giving_way.yielded(now, now + CROWDED);
        assert!(giving_way.is_due(now + CROWDED));
        let slice = Duration::from_millis(3);
        giving_way.yielded(now, now + slice);
        for (after, due) in [(slice, false), (slice * 100, false), (slice * 101, true)] {
            assert_eq!(giving_way.is_due(now + after), due, "{after:?}");
        }
    }
}
