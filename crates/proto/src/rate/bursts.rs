//! Bursts with a pause between them: what a sender with rate credit may send in a row.
//!
//! Inputs → outputs: what was sent and when, R2's credit → what may go now, and when again.
//!
//! R2's credit alone gives a sender that was late, or that had credit left over, a second burst right behind the
//! first, and the receiver two in a row. The pause costs no rate: it is shorter than RTIMER. ADR 70.

use super::{Rate, RateCredit};
use core::time::Duration;
use denrei_wire::Instant;

/// Between two bursts there is a pause of RTIMER divided by this: long enough for a receiver to tell them
/// apart, and short enough that a sender that was late makes good what it missed.
const PAUSE_SHARE: u32 = 4;

/// What was sent in a row: since there was a pause, or for half of RTIMER, after which it was no burst.
#[derive(Debug, Clone, Copy)]
struct Row {
    octets: u64,
    began: Instant,
    last: Instant,
    /// A pause ends it.
    pause: Duration,
}

impl Row {
    fn new(now: Instant, rate: Rate) -> Self {
        Self { octets: 0, began: now, last: now, pause: rate.rtimer() / PAUSE_SHARE }
    }

    /// Octets that may follow without a pause.
    fn room(&mut self, now: Instant, burst: u64) -> u64 {
        let is_full = self.octets >= burst;
        if now >= self.last + self.pause || (!is_full && now >= self.began + self.pause * (PAUSE_SHARE / 2)) {
            *self = Self { octets: 0, began: now, last: now, ..*self };
        }
        burst.saturating_sub(self.octets)
    }
}

/// R2's credit, spent in bursts with a pause between them.
#[derive(Debug, Clone)]
pub(crate) struct PacedCredit {
    credit: RateCredit,
    row: Row,
}

impl PacedCredit {
    /// A first burst may leave at once.
    pub fn new(now: Instant, rate: Rate) -> Self {
        Self { credit: RateCredit::new(now, rate), row: Row::new(now, rate) }
    }

    /// The parameters in force.
    pub fn rate(&self) -> Rate {
        self.credit.rate()
    }

    /// New parameters, from now on.
    pub fn set(&mut self, now: Instant, rate: Rate) {
        self.credit.set(now, rate);
        self.row.pause = Row::new(now, rate).pause;
    }

    /// Octets that may be sent now; `None`: any number.
    pub fn room(&mut self, now: Instant) -> Option<u64> {
        let room = self.credit.room(now)?;
        Some(if room == 0 { 0 } else { room.min(self.row.room(now, self.rate().burst_bytes)) })
    }

    /// Takes note of octets sent.
    pub fn spend(&mut self, now: Instant, octets: u64) {
        self.credit.spend(octets);
        if !self.rate().is_unlimited() {
            self.row.octets = self.row.octets.saturating_add(octets);
            self.row.last = now;
        }
    }

    /// When so many octets will have been sent, if the rate says so; see [`RateCredit::sent_at`].
    pub fn sent_at(&self, now: Instant, octets: u64) -> Option<Instant> {
        self.credit.sent_at(now, octets)
    }

    /// When RTIMER next brings a burst, if it does; see [`RateCredit::next_burst_at`].
    pub fn next_burst_at(&self) -> Option<Instant> {
        self.credit.next_burst_at()
    }

    /// When something may be sent again, if nothing may now and something ever will.
    pub fn open_at(&self) -> Option<Instant> {
        let Rate { bytes_per_s, burst_bytes } = self.rate();
        let limits = bytes_per_s > 0 && burst_bytes > 0;
        let full = limits && self.row.octets >= burst_bytes;
        self.credit.open_at().max(full.then(|| self.row.last + self.row.pause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 10,000 octets each 10 ms.
    const SLOW: Rate = Rate { bytes_per_s: 1_000_000, burst_bytes: 10_000 };

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1_000)
    }

    #[test]
    fn two_bursts_are_not_sent_in_a_row() {
        let mut credit = PacedCredit::new(at(0), SLOW);
        credit.spend(at(0), 10_000);
        assert_eq!(credit.room(at(19_000)), Some(10_000));
        credit.spend(at(19_000), 10_000);
        assert_eq!((credit.room(at(20_000)), credit.open_at()), (Some(0), Some(at(21_500))));
        assert_eq!(credit.room(at(21_499)), Some(0));
        assert_eq!((credit.room(at(21_500)), credit.open_at()), (Some(10_000), None));
        credit.spend(at(21_500), 10_000);
        assert_eq!((credit.room(at(21_500)), credit.open_at()), (Some(0), Some(at(30_000))));
    }

    #[test]
    fn nor_is_credit_that_was_left() {
        let mut credit = PacedCredit::new(at(0), SLOW);
        assert_eq!(credit.room(at(9_999)), Some(10_000));
        credit.spend(at(9_999), 9_000);
        assert_eq!(credit.room(at(10_000)), Some(1_000));
        credit.spend(at(10_000), 1_000);
        assert_eq!((credit.room(at(10_000)), credit.open_at()), (Some(0), Some(at(12_500))));
        assert_eq!(credit.room(at(12_500)), Some(9_000));
    }

    fn rate(bytes_per_s: u64, burst_bytes: u64) -> Rate {
        Rate { bytes_per_s, burst_bytes }
    }

    proptest! {
        /// A sender with data without end, woken late by up to half of RTIMER, as sleeping threads are, and
        /// which takes up to a quarter of it for a burst: it keeps the mean, and a receiver to which a pause
        /// of nearly a quarter of RTIMER ends a burst never sees a larger one.
        #[test]
        fn mean_and_burst_are_kept_however_late_the_calls(
            bytes_per_s in 100_000u64..1_000_000_000,
            packets_per_burst in 2u64..50,
            slow in 0u32..25,
            lateness in prop::collection::vec(0u32..50, 1..50),
        ) {
            const PACKET: u64 = 1454;
            let burst_bytes = packets_per_burst * PACKET + 700;
            let mut credit = PacedCredit::new(Instant::ZERO, rate(bytes_per_s, burst_bytes));
            let rtimer = Duration::from_nanos(burst_bytes * 1_000_000_000 / bytes_per_s);
            let end = Instant::ZERO + rtimer * 2_000;
            let packet_takes = rtimer * slow / 100 / (packets_per_burst + 1) as u32;
            let (mut now, mut sent, mut in_a_row, mut last) = (Instant::ZERO, 0, 0, Instant::ZERO);
            let mut late = lateness.iter().cycle();
            while now < end {
                while let Some(room) = credit.room(now) && room > 0 {
                    let octets = room.min(PACKET);
                    credit.spend(now, octets);
                    let pauses = now.saturating_since(last) > rtimer * 24 / 100;
                    in_a_row = if pauses { octets } else { in_a_row + octets };
                    prop_assert!(in_a_row <= burst_bytes, "{} of {} in a row", in_a_row, burst_bytes);
                    (last, sent) = (now, sent + octets);
                    now += packet_takes;
                }
                now = now.max(credit.open_at().unwrap()) + rtimer * *late.next().unwrap() / 100;
            }
            let expected = 2_000 * burst_bytes;
            prop_assert!(sent.abs_diff(expected) <= expected / 100 + burst_bytes, "{sent} of {expected}");
        }

        /// One that sends packet after packet at nine tenths of the rate is never held up.
        #[test]
        fn who_spreads_what_it_sends_is_not_made_to_pause(packets_per_burst in 2u64..500) {
            const PACKET: u64 = 1454;
            let (bytes_per_s, burst_bytes) = (1_000_000, packets_per_burst * PACKET);
            let mut credit = PacedCredit::new(Instant::ZERO, rate(bytes_per_s, burst_bytes));
            let mut now = Instant::ZERO;
            for _ in 0..5_000 {
                prop_assert!(credit.room(now).unwrap() > 0);
                credit.spend(now, PACKET);
                now += Duration::from_nanos(PACKET * 1_111);
            }
        }
    }
}
