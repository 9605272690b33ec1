//! Which losses are chance, and not the window's doing.
//!
//! Inputs → outputs: octets that arrive, octets that are lost, whether the room for a queue is small → chance or
//! overflow. Source: R12, R13 (a loss says something of the capacity only if a lower rate does not lose); decision 87.
//!
//! What a full queue drops, a smaller window does not lose. What is lost all the same when the room has become small, is
//! lost by chance: its share is measured then, and up to twice as much is no reason to narrow the room again.

use core::time::Duration;
use denrei_wire::Instant;

/// Losses with a small room, and octets that arrived meanwhile, after which their share is known.
const ENOUGH_LOSSES: u32 = 8;
const ENOUGH_OCTETS: u64 = 128 * 1024;
/// Losses after which the share is measured anew, and may be found to be less: the first was of a few; and the time
/// after which it is, as paths change.
const MANY_LOSSES: u32 = 64;
const LIFETIME: Duration = Duration::from_secs(10);
/// What was lost is heard of within this time: whoever waits for a grant probes by then.
const HEARD_OF: Duration = Duration::from_millis(20);
/// More are not lost at once, whatever numbers a peer leaves out.
const MOST_LOST: u64 = 1 << 32;
/// The unit of shares, as a power of two, and the largest that is believed: a quarter.
const SHARE_BITS: u32 = 16;
const MOST_SHARE: u64 = 1 << (SHARE_BITS - 2);

/// What a loss is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// More was on its way than there was room for.
    Overflow,
    /// It would have been lost anyway.
    Chance,
    /// The same, and how much is lost by chance is known from now on.
    Found,
}

/// What a path loses by chance.
#[derive(Debug)]
pub(super) struct Chance {
    /// Octets lost of 2^16; 0: not known.
    share: u64,
    /// Octets lost beyond twice that, in the same unit, and how many are more than a bad run.
    excess: u64,
    most_excess: u64,
    /// What is counted in these was lost from then on.
    since: Instant,
    arrived: u64,
    lost: u64,
    losses: u32,
}

impl Chance {
    /// Nothing is known. `most_excess`: octets lost beyond twice the usual share that are more than a bad run.
    pub fn new(now: Instant, most_excess: u64) -> Self {
        let most_excess = most_excess << SHARE_BITS;
        Self { share: 0, excess: 0, most_excess, since: now + HEARD_OF, arrived: 0, lost: 0, losses: 0 }
    }

    /// Measures from now on, as soon as what was lost before has been heard of, which takes `settling` at least. Called
    /// when the room has become small.
    pub fn measure(&mut self, now: Instant, settling: Duration) {
        (self.since, self.arrived, self.lost, self.losses) = (now + settling.max(HEARD_OF), 0, 0, 0);
    }

    /// Whether anything is.
    pub fn is_known(&self) -> bool {
        self.share > 0
    }

    /// Data has come.
    pub fn on_arrival(&mut self, now: Instant, octets: u64) {
        if now >= self.since {
            self.arrived += octets;
        }
        self.excess = self.excess.saturating_sub(2 * octets * self.share);
    }

    /// So many octets are missing; `is_small`: and have been since [`measure`](Self::measure), with a small room.
    pub fn judge(&mut self, now: Instant, octets: u64, is_small: bool) -> Verdict {
        let octets = octets.min(MOST_LOST);
        if now >= self.since {
            self.lost += octets;
            self.losses += 1;
        }
        let share = self.measured();
        if is_small && self.losses >= ENOUGH_LOSSES && self.arrived >= ENOUGH_OCTETS {
            (self.share, self.excess) = (share, 0);
            self.measure(now, Duration::ZERO);
            return Verdict::Found;
        }
        if !is_small && (self.losses >= MANY_LOSSES || now.saturating_since(self.since) >= LIFETIME) {
            self.share = share.min(self.share);
            self.measure(now, Duration::ZERO);
        }
        if self.share == 0 {
            return Verdict::Overflow;
        }
        self.excess += octets << SHARE_BITS;
        if self.excess <= self.most_excess {
            return Verdict::Chance;
        }
        self.excess = 0;
        Verdict::Overflow
    }

    /// The share that was lost since the measurement began.
    fn measured(&self) -> u64 {
        let all = u128::from(self.arrived + self.lost).max(1);
        u64::try_from((u128::from(self.lost) << SHARE_BITS) / all)
            .map_or(MOST_SHARE, |share| share.min(MOST_SHARE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: u64 = 1472;

    /// A datagram each 12 µs, of which each `nth` is missing; how many of those that are were explained.
    fn explained(
        chance: &mut Chance,
        now: &mut Instant,
        datagrams: u64,
        nth: u64,
        is_small: bool,
    ) -> (u64, u64) {
        let (mut lost, mut explained) = (0, 0);
        for n in 1..=datagrams {
            *now += Duration::from_micros(12);
            if n % nth == 0 {
                lost += 1;
                explained += u64::from(chance.judge(*now, DATAGRAM, is_small) != Verdict::Overflow);
            } else {
                chance.on_arrival(*now, DATAGRAM);
            }
        }
        (explained, lost)
    }

    /// What has begun to measure.
    fn measuring() -> (Chance, Instant) {
        (Chance::new(Instant::ZERO, 128 << 10), Instant::ZERO)
    }

    #[test]
    fn what_a_small_room_loses_is_chance_and_twice_as_much_is_too() {
        let (mut chance, mut now) = measuring();
        assert_eq!(explained(&mut chance, &mut now, 1_000, 20, false).0, 0, "it may be the room");
        chance.measure(now, Duration::ZERO);
        let (yes, all) = explained(&mut chance, &mut now, 10_000, 20, true);
        // Of the 20 ms before what was lost earlier has been heard of, and of the measurement.
        assert!(all - yes < 100, "{yes} of {all}");
        let (yes, all) = explained(&mut chance, &mut now, 10_000, 12, false);
        assert_eq!(yes, all, "less than twice as much");
    }

    #[test]
    fn what_a_queue_loses_beside_is_not_explained() {
        let (mut chance, mut now) = measuring();
        explained(&mut chance, &mut now, 10_000, 100, true);
        let (yes, all) = explained(&mut chance, &mut now, 10_000, 8, false);
        assert!(yes < all, "a tenth more than what is lost by chance");
        let (yes, all) = explained(&mut chance, &mut now, 10_000, 100, false);
        assert_eq!(yes, all);
    }

    #[test]
    fn a_share_of_few_losses_is_corrected_and_one_that_is_gone_is_forgotten() {
        let (mut chance, mut now) = measuring();
        explained(&mut chance, &mut now, 10_000, 10, true);
        let before = chance.share;
        assert!(before.abs_diff((1 << SHARE_BITS) / 10) < 1_000, "{before}");
        explained(&mut chance, &mut now, 10_000, 50, false);
        assert!(chance.share < before / 4, "{}", chance.share);
        explained(&mut chance, &mut now, 2_000_000, 500_000, false);
        assert_eq!(chance.share, 0);
    }

    #[test]
    fn twice_the_usual_share_of_small_datagrams_is_no_excess() {
        let (mut chance, mut now) = measuring();
        explained(&mut chance, &mut now, 100_000, 1_000, true);
        for n in 1..1_000_000 {
            now += Duration::from_micros(2);
            chance.on_arrival(now, 100);
            assert!(n % 600 != 0 || chance.judge(now, 100, false) == Verdict::Chance, "{n}");
        }
    }

    #[test]
    fn any_number_of_octets_may_be_missing() {
        let (mut chance, mut now) = measuring();
        explained(&mut chance, &mut now, 10_000, 100, true);
        for _ in 0..100 {
            assert_eq!(chance.judge(now, u64::MAX, false), Verdict::Overflow);
        }
    }

    #[test]
    fn nobody_believes_that_all_is_lost() {
        let (mut chance, mut now) = measuring();
        explained(&mut chance, &mut now, 10_000, 2, true);
        assert_eq!(chance.share, MOST_SHARE);
    }
}
