//! R1 and R2: what may be sent before RTIMER fires.
//!
//! Inputs → outputs: rate, burst, time and octets sent → whether data may be sent, how much, and
//! when to ask again. Source: R1–R3. Data may be sent while credit > 0; each packet subtracts its
//! payload; when RTIMER fires, credit ≤ 0 → credit += burst, credit > 0 → credit = burst.
//!
//! RTIMER is not a timer that is set again each time it fires, which would add every delay to the
//! period: the k-th firing is due at epoch + k × burst / rate, exactly, and a late call makes good
//! all that were missed. A change of the parameters does not set it back: what the old rate has let grow
//! towards its next firing counts towards the first under the new one, or a receiver that changed them more
//! often than RTIMER fires would let nothing go.

use super::{NANOS_PER_S, Rate};
use core::time::Duration;
use denrei_wire::{Instant, duration_nanos};

/// The credit of one direction of a session. Called *rate credit* where the channels' credit of S5
/// is near.
#[derive(Debug, Clone)]
pub(crate) struct RateCredit {
    rate: Rate,
    /// RTIMER's firings are counted from here.
    epoch: Instant,
    /// Firings whose effect is in `credit`.
    fired: u64,
    /// Octets that may be sent; below 0 after a packet that was larger than what was left.
    credit: i64,
    /// The largest burst that was given lately: until this time no change gives any of it again.
    given: u64,
    given_until: Instant,
    /// What had grown towards the next firing when the rate was stopped.
    grown_before: Grown,
}

/// Octets × [`NANOS_PER_S`]: what a nanosecond brings is often less than an octet.
type Grown = u128;

impl RateCredit {
    /// A first burst may leave at once.
    pub fn new(now: Instant, rate: Rate) -> Self {
        let (given, given_until) = (rate.burst_bytes, now + rate.rtimer());
        let credit = signed(rate.burst_bytes);
        Self { rate, epoch: now, fired: 0, credit, given, given_until, grown_before: 0 }
    }

    /// The parameters in force.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// New parameters from now on. Debt stays, and credit is kept only as far as the new burst allows. What
    /// this is larger than the old one may leave at once, as a first burst may, but not for each of a row of
    /// changes.
    pub fn set(&mut self, now: Instant, rate: Rate) {
        self.refresh(now);
        let (grown, given) = (self.grown(now), self.given(now));
        let had = if self.rate.is_unlimited() { i64::MAX } else { self.credit };
        (self.given, self.given_until) = if rate.burst_bytes > given {
            (rate.burst_bytes, now + rate.rtimer())
        } else {
            // What was sent of it is not paid before.
            (given, self.given_until.max(now + self.rate.rtimer()))
        };
        (self.rate, self.fired) = (rate, 0);
        if rate.bytes_per_s == 0 {
            // It has no burst of its own.
            (self.credit, self.grown_before) = (had, grown);
            return;
        }
        let gained = signed(rate.burst_bytes.saturating_sub(given));
        self.credit = had.saturating_add(gained).min(signed(rate.burst_bytes));
        // So long it takes to grow at the new rate, and no longer than RTIMER.
        let nanos = grown / rate.bytes_per_s as u128;
        let grew = duration_nanos(rate.rtimer()).min(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.epoch = Instant::from_nanos(now.as_nanos().saturating_sub(grew));
    }

    /// What has grown towards the next firing.
    fn grown(&self, now: Instant) -> Grown {
        let Rate { bytes_per_s, burst_bytes } = self.rate;
        if bytes_per_s == 0 || burst_bytes == 0 {
            return if bytes_per_s == 0 { self.grown_before } else { 0 };
        }
        let elapsed = duration_nanos(now.saturating_since(self.epoch)) as u128;
        let burst = burst_bytes as u128 * NANOS_PER_S;
        (elapsed * bytes_per_s as u128).saturating_sub((self.fired as u128).saturating_mul(burst))
    }

    /// The burst that counts as given: the one in force, or a larger one of late.
    fn given(&self, now: Instant) -> u64 {
        let lately = if now < self.given_until { self.given } else { 0 };
        lately.max(self.rate.burst_bytes)
    }

    /// Octets that may be sent now; `None`: any number.
    pub fn room(&mut self, now: Instant) -> Option<u64> {
        if self.rate.is_unlimited() {
            return None;
        }
        self.refresh(now);
        let open = self.rate.bytes_per_s > 0;
        Some(if open { u64::try_from(self.credit).unwrap_or(0) } else { 0 })
    }

    /// Takes note of octets sent.
    pub fn spend(&mut self, octets: u64) {
        if !self.rate.is_unlimited() {
            self.credit = self.credit.saturating_sub(signed(octets));
        }
    }

    /// When there is credit again, if there is none now and will ever be.
    pub fn open_at(&self) -> Option<Instant> {
        let limited = self.rate.bytes_per_s > 0 && self.rate.burst_bytes > 0;
        (limited && self.credit <= 0).then(|| self.firing(self.fired.saturating_add(self.firings_to_open())))
    }

    /// When RTIMER next fires so that something may be sent, whether or not there is credit now.
    pub fn next_burst_at(&self) -> Option<Instant> {
        let limited = self.rate.bytes_per_s > 0 && self.rate.burst_bytes > 0;
        let firings = || if self.credit > 0 { 1 } else { self.firings_to_open() };
        limited.then(|| self.firing(self.fired.saturating_add(firings())))
    }

    /// When so many octets will have been sent that go as soon as they may, at `now` the soonest;
    /// `None`: it is not the rate that says so.
    pub fn sent_at(&self, now: Instant, octets: u64) -> Option<Instant> {
        let limited = self.rate.bytes_per_s > 0 && self.rate.burst_bytes > 0;
        let short = u64::try_from(signed(octets).saturating_sub(self.credit)).unwrap_or(0);
        let firings = limited.then(|| short.div_ceil(self.rate.burst_bytes))?;
        Some(if firings == 0 { now } else { self.firing(self.fired.saturating_add(firings)) })
    }

    /// Makes good the firings up to `now`.
    fn refresh(&mut self, now: Instant) {
        let Rate { bytes_per_s, burst_bytes } = self.rate;
        if bytes_per_s == 0 || burst_bytes == 0 {
            return;
        }
        let elapsed = duration_nanos(now.saturating_since(self.epoch)) as u128;
        let due = elapsed * bytes_per_s as u128 / (burst_bytes as u128 * NANOS_PER_S);
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        let firings = due.saturating_sub(self.fired);
        if firings == 0 {
            return;
        }
        self.fired = due;
        let needed = if self.credit > 0 { 0 } else { self.firings_to_open() };
        self.credit = if firings > needed {
            signed(burst_bytes)
        } else {
            // At most `needed` bursts, which is what makes the credit positive.
            self.credit.saturating_add(signed(firings * burst_bytes))
        };
    }

    /// Firings after which a credit that is not positive becomes so.
    fn firings_to_open(&self) -> u64 {
        self.credit.unsigned_abs() / self.rate.burst_bytes + 1
    }

    /// When RTIMER fires for the `number`-th time.
    fn firing(&self, number: u64) -> Instant {
        let Rate { bytes_per_s, burst_bytes } = self.rate;
        let scaled = (number as u128).saturating_mul(burst_bytes as u128 * NANOS_PER_S);
        let after = scaled.div_ceil(bytes_per_s as u128);
        self.epoch + Duration::from_nanos(u64::try_from(after).unwrap_or(u64::MAX))
    }
}

fn signed(octets: u64) -> i64 {
    i64::try_from(octets).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// What a line of a trace does.
    enum Step {
        /// Sends so many octets.
        Send(u64),
        /// Finds this room, and this time to ask again in µs.
        Find(u64, Option<u64>),
        Set(Rate),
    }
    use Step::{Find, Send, Set};

    fn rate(bytes_per_s: u64, burst_bytes: u64) -> Rate {
        Rate { bytes_per_s, burst_bytes }
    }

    /// Runs a trace of (µs, step).
    fn check(name: &str, start: Rate, trace: &[(u64, Step)]) {
        let mut credit = RateCredit::new(at(0), start);
        for (line, (micros, step)) in trace.iter().enumerate() {
            let room = credit.room(at(*micros));
            match step {
                Send(octets) => credit.spend(*octets),
                Set(rate) => credit.set(at(*micros), *rate),
                Find(expected, again) => {
                    assert_eq!(room, Some(*expected), "{name}, line {line}, at {micros} µs");
                    let again = again.map(at);
                    assert_eq!(credit.open_at(), again, "{name}, line {line}, at {micros} µs");
                }
            }
        }
    }

    #[test]
    fn traces_computed_by_hand() {
        // 1 MB/s in bursts of 10,000: RTIMER is 10 ms.
        let slow = rate(1_000_000, 10_000);
        check(
            "credit ≤ 0: += burst",
            slow,
            &[
                (0, Find(10_000, None)),
                (0, Send(10_000)),
                (0, Find(0, Some(10_000))),
                (9_999, Find(0, Some(10_000))),
                (10_000, Find(10_000, None)),
            ],
        );
        check(
            "debt is paid before anything is sent",
            slow,
            &[
                (0, Send(11_000)),
                (0, Find(0, Some(10_000))),
                (10_000, Find(9_000, None)),
                (10_000, Send(9_000)),
                (15_000, Find(0, Some(20_000))),
                (20_000, Find(10_000, None)),
            ],
        );
        check(
            "credit > 0: = burst, nothing is saved",
            slow,
            &[
                (0, Send(9_999)),
                (0, Find(1, None)),
                (10_000, Find(10_000, None)),
                (990_000, Find(10_000, None)),
            ],
        );
        check(
            "a packet larger than several bursts",
            rate(1_000_000, 1_000),
            &[
                (0, Send(3_500)),
                (0, Find(0, Some(3_000))),
                (1_000, Find(0, Some(3_000))),
                (2_999, Find(0, Some(3_000))),
                (3_000, Find(500, None)),
                (4_000, Find(1_000, None)),
            ],
        );
        check(
            "debt of whole bursts leaves 0, which is not > 0",
            rate(1_000_000, 1_000),
            &[
                (0, Send(3_000)),
                (0, Find(0, Some(3_000))),
                (2_000, Find(0, Some(3_000))),
                (3_000, Find(1_000, None)),
            ],
        );
        check(
            "several firings in one call",
            slow,
            &[
                (0, Send(10_001)),
                (35_000, Find(10_000, None)),
                (35_000, Send(10_000)),
                (35_000, Find(0, Some(40_000))),
                (40_000, Find(10_000, None)),
            ],
        );
        check(
            "a late call does not move the next firing",
            slow,
            &[
                (0, Send(10_000)),
                (14_000, Find(10_000, None)),
                (14_000, Send(10_000)),
                (14_000, Find(0, Some(20_000))),
                (29_999, Send(10_000)),
                (29_999, Find(0, Some(30_000))),
            ],
        );
    }

    #[test]
    fn zero_means_what_r3_says() {
        let slow = rate(1_000_000, 10_000);
        check(
            "rate 0 stops, whatever the burst",
            slow,
            &[
                (0, Set(Rate::STOPPED)),
                (0, Find(0, None)),
                (9_000_000, Find(0, None)),
                (9_000_000, Set(slow)),
                (9_000_000, Find(10_000, None)),
            ],
        );
        check(
            "no credit is won by stopping and going on",
            slow,
            &[
                (0, Send(10_000)),
                (1_000, Set(rate(0, 10_000))),
                (5_000, Set(slow)),
                (5_000, Find(0, Some(14_000))),
            ],
        );
        check(
            "a smaller burst cuts the credit at once",
            slow,
            &[(0, Set(rate(1_000_000, 100))), (0, Find(100, None))],
        );
        let mut credit = RateCredit::new(at(0), Rate::UNLIMITED);
        credit.spend(u64::MAX);
        assert_eq!((credit.room(at(0)), credit.open_at()), (None, None), "burst 0: no limit");
        credit.set(at(5), slow);
        assert_eq!(credit.room(at(5)), Some(10_000), "nothing is owed for what was not limited");
    }

    #[test]
    fn a_change_does_not_set_the_timer_back() {
        let slow = rate(1_000_000, 10_000);
        check(
            "half of a burst has grown, and the other half takes half as long",
            slow,
            &[
                (0, Send(10_000)),
                (5_000, Set(rate(2_000_000, 10_000))),
                (5_000, Find(0, Some(7_500))),
                (7_500, Find(10_000, None)),
                (7_500, Send(10_000)),
                (7_500, Find(0, Some(12_500))),
            ],
        );
        check(
            "more than a smaller burst has grown: it is there, once",
            slow,
            &[
                (0, Send(10_000)),
                (5_000, Set(rate(1_000_000, 1_000))),
                (5_000, Find(1_000, None)),
                (5_000, Send(1_000)),
                (5_000, Find(0, Some(6_000))),
            ],
        );
        for (every_us, other) in
            [(100, rate(1_000_001, 10_000)), (3_000, rate(1_000_000, 10_000)), (10, Rate::STOPPED)]
        {
            let mut credit = RateCredit::new(at(0), slow);
            let mut sent = 0;
            for step in 1..=10_000_000 / every_us {
                let now = at(step * every_us);
                credit.set(now, if step % 2 == 0 { slow } else { other });
                let room = credit.room(now).unwrap();
                credit.spend(room);
                sent += room;
            }
            let expected = if other == Rate::STOPPED { 5_000_000 } else { 10_000_000u64 };
            assert!(sent.abs_diff(expected) <= 20_000, "{sent} octets in 10 s, changed every {every_us} us");
        }
    }

    #[test]
    fn a_larger_burst_may_leave_at_once_and_no_row_of_them() {
        let (small, large) = (rate(1_000_000, 10_000), rate(1_000_000, 1_000_000));
        check(
            "what it is larger, like a first burst",
            small,
            &[(0, Send(10_000)), (2_000, Set(large)), (2_000, Find(990_000, None)), (2_000, Send(990_000))],
        );
        let mut credit = RateCredit::new(at(0), small);
        let mut sent = 0;
        for step in 1..=1_000 {
            let now = at(step * 10_000);
            credit.set(now, if step % 2 == 0 { small } else { large });
            let room = credit.room(now).unwrap();
            credit.spend(room);
            sent += room;
        }
        assert!((4_000_000..=11_000_000).contains(&sent), "{sent} octets in 10 s");
    }

    #[test]
    fn when_so_many_octets_will_have_been_sent_follows_from_the_firings() {
        let mut credit = RateCredit::new(at(0), rate(1_000_000, 10_000));
        credit.spend(4_000);
        for (octets, micros) in [(0, 0), (6_000, 0), (6_001, 10_000), (26_000, 20_000), (26_001, 30_000)] {
            assert_eq!(credit.sent_at(at(0), octets), Some(at(micros)), "{octets} octets");
        }
        assert_eq!(credit.room(at(12_000)), Some(10_000));
        assert_eq!(credit.sent_at(at(12_000), 10_001), Some(at(20_000)), "counted from the firings");
        for unbounded in [Rate::UNLIMITED, Rate::STOPPED] {
            assert_eq!(RateCredit::new(at(0), unbounded).sent_at(at(0), u64::MAX), None);
        }
    }

    #[test]
    fn the_extremes_neither_overflow_nor_panic() {
        use super::super::MAX_RATE;
        for (bytes_per_s, burst_bytes) in [(1, MAX_RATE), (MAX_RATE, 1), (1, 1), (MAX_RATE, MAX_RATE)] {
            let mut credit = RateCredit::new(at(0), rate(bytes_per_s, burst_bytes));
            for now in [Instant::ZERO, at(1), Instant::FAR_FUTURE] {
                credit.room(now);
                credit.spend(u64::MAX);
                credit.spend(u64::MAX);
                assert!(credit.open_at().is_some() && credit.sent_at(now, u64::MAX).is_some());
            }
        }
    }

    /// R2 with a timer that is fired by hand, as the paper writes it.
    struct Plain {
        credit: i64,
        burst: i64,
    }

    impl Plain {
        fn fire(&mut self) {
            self.credit = if self.credit <= 0 { self.credit + self.burst } else { self.burst };
        }
    }

    proptest! {
        #[test]
        fn catching_up_equals_firing_one_by_one(
            bytes_per_s in 1_000u64..2_000_000_000,
            burst_bytes in 1u64..200_000,
            steps in prop::collection::vec((0u64..3_000_000, 0u64..3_000), 1..200),
        ) {
            let mut credit = RateCredit::new(Instant::ZERO, rate(bytes_per_s, burst_bytes));
            let mut plain = Plain { credit: burst_bytes as i64, burst: burst_bytes as i64 };
            let (mut now, mut fired) = (0u128, 0u128);
            for (wait, octets) in steps {
                now += wait as u128;
                while (fired + 1) * burst_bytes as u128 * NANOS_PER_S <= now * bytes_per_s as u128 && fired < 5_000_000 {
                    plain.fire();
                    fired += 1;
                }
                prop_assume!(fired < 5_000_000);
                let room = credit.room(Instant::from_nanos(now as u64));
                prop_assert_eq!(room, Some(plain.credit.max(0) as u64));
                if plain.credit > 0 {
                    plain.credit -= octets as i64;
                    credit.spend(octets);
                }
            }
        }

        /// A sender with data without end, woken late by up to a tenth of RTIMER, as sleeping
        /// threads are.
        #[test]
        fn the_mean_is_the_rate_however_late_the_calls(
            bytes_per_s in 100_000u64..1_000_000_000,
            packets_per_burst in 2u64..50,
            lateness in 0u64..100,
        ) {
            const PACKET: u64 = 1454;
            let burst_bytes = packets_per_burst * PACKET + 700;
            let mut credit = RateCredit::new(Instant::ZERO, rate(bytes_per_s, burst_bytes));
            let rtimer = Duration::from_nanos(burst_bytes * 1_000_000_000 / bytes_per_s);
            let end = Instant::ZERO + rtimer * 2_000;
            let (mut now, mut sent) = (Instant::ZERO, 0);
            while now < end {
                let mut train = 0;
                while let Some(room) = credit.room(now) && room > 0 {
                    let octets = room.min(PACKET);
                    credit.spend(octets);
                    train += octets;
                }
                prop_assert!(train <= burst_bytes);
                sent += train;
                now = credit.open_at().unwrap() + rtimer * lateness as u32 / 1000;
            }
            let expected = 2_000 * burst_bytes;
            prop_assert!(sent.abs_diff(expected) <= expected / 100 + burst_bytes, "{sent} of {expected}");
        }
    }
}
