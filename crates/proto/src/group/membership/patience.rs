//! How long a member waits for what was overtaken before it names it, once what it had named has come all the same.
//!
//! Inputs → outputs: what is known to have been sent and when, what was named, packets that come → which gaps
//! are old enough to be named. Source: RFC 8985 §6.2 (reo_wnd); `spec/protocol.md` §14.4. Deviation: it grows by
//! an eighth of a round trip, and wanes by as much and not at once: of a member's gaps one report names all.

use crate::doubted::DISORDER;
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::VecDeque;

/// Steps, at most: a round trip.
const MOST_STEPS: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Eighths of a round trip; 0: the path keeps the order, as far as is known.
    steps: u32,
    /// How often gaps are named before it is a step less.
    left: u8,
    rtt: Duration,
    /// The largest packet that had come when gaps were last named, and the end of those.
    named: Option<(u64, u64)>,
    /// Symbols below were known to have been sent by then, at least an eighth of the delay apart: not many.
    known: VecDeque<(Instant, u64)>,
    /// What is missing below is old enough.
    ripe: u64,
}

impl Patience {
    pub fn is_on(&self) -> bool {
        self.steps > 0
    }

    /// What is missing from here on may have been overtaken.
    pub fn ripe(&self) -> u64 {
        if self.is_on() { self.ripe } else { u64::MAX }
    }

    /// When there is more that is old enough.
    pub fn ripens_at(&self) -> Option<Instant> {
        self.known.front().map(|(at, _)| *at + self.delay())
    }

    /// All below `known` has been sent.
    pub fn ripen(&mut self, now: Instant, known: u64) {
        if !self.is_on() {
            return;
        }
        let delay = self.delay();
        match self.known.back_mut() {
            Some((at, end)) if now <= *at => *end = known.max(*end),
            Some((_, end)) if known <= *end => {}
            None if known <= self.ripe => {}
            _ => self.known.push_back((now + delay / 8, known)),
        }
        while let Some((_, end)) = self.known.pop_front_if(|(at, _)| *at + delay <= now) {
            self.ripe = end;
        }
    }

    /// Gaps were named that had not been named before, up to `end`; `largest` is the largest packet that has come.
    pub fn named(&mut self, largest: Option<u64>, end: u64, rtt: Duration) {
        self.named = largest.map(|largest| (largest, end));
        self.rtt = rtt;
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            (self.steps, self.left) = (self.steps.saturating_sub(1), DISORDER);
        }
        if self.steps == 0 {
            self.ripe = 0;
            self.known.clear();
        }
    }

    /// A symbol that was missing has come by a packet of the group's address. One that left before another that had
    /// come when it was named is no answer to that. Of what was named at once many may come, and count as one.
    pub fn came(&mut self, now: Instant, packet: u64, symbol: u64, known: u64) {
        let Some((_, end)) = self.named.take_if(|(largest, end)| packet < *largest && symbol < *end) else {
            return;
        };
        (self.steps, self.left) = ((self.steps + 1).min(MOST_STEPS), DISORDER);
        self.ripe = self.ripe.max(end);
        self.ripen(now, known);
    }

    fn delay(&self) -> Duration {
        (self.rtt * self.steps / 8).max(super::asking::REORDER_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn it_grows_by_what_was_named_in_vain_and_ends_after_losses() {
        let mut patience = Patience::default();
        patience.named(Some(10), 5, RTT);
        patience.came(ms(1), 11, 4, 10);
        patience.came(ms(1), 9, 5, 10);
        assert_eq!(
            (patience.ripe(), patience.ripens_at()),
            (u64::MAX, None),
            "a repair, and what was not named"
        );
        patience.came(ms(1), 9, 4, 10);
        patience.came(ms(1), 8, 3, 10);
        assert_eq!(patience.delay(), RTT / 8, "named at once");
        patience.ripen(ms(6), 20);
        assert_eq!(patience.ripe(), 5, "what was named is named");
        patience.ripen(ms(7), 20);
        assert_eq!((patience.ripe(), patience.ripens_at()), (10, Some(ms(11) + RTT / 64)));
        for _ in 0..2 * MOST_STEPS {
            patience.named(Some(10), 5, RTT);
            patience.came(ms(7), 9, 4, 20);
        }
        assert_eq!(patience.delay(), RTT);
        (0..DISORDER).for_each(|_| patience.named(Some(10), 5, RTT));
        assert_eq!(patience.delay(), RTT * 7 / 8);
        (1..7 * DISORDER).for_each(|_| patience.named(Some(10), 5, RTT));
        assert!(patience.is_on());
        patience.named(Some(10), 5, RTT);
        assert_eq!((patience.ripe(), patience.ripens_at()), (u64::MAX, None));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut patience = Patience::default();
        patience.named(Some(10), 5, RTT);
        patience.came(ms(0), 9, 4, 10);
        (0..100_000).for_each(|at| patience.ripen(Instant::from_nanos(at * 1000), at));
        assert!(patience.known.len() < 12, "{}", patience.known.len());
        assert!(patience.ripe() > 100_000 - 6_000, "{}", patience.ripe());
    }
}
