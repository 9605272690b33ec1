//! Whether a peer keeps to what it was told: what exceeds it is not taken in.
//!
//! Inputs → outputs: the rate or limit told, when the peer heard it, what arrives → excess or not.
//! Source: R4, S11; `spec/protocol.md` §13.6. An honest sender is never excessive: the network delays
//! packets and so bunches them, by no more than the tolerance, but makes no more of them.

use super::Rate;
use core::time::Duration;
use denrei_wire::Instant;

/// Packets that the network has delayed by up to this much may arrive together.
const BUNCHING: Duration = Duration::from_millis(50);
/// Bursts tolerated in a row, and octets whatever the rate.
const BURSTS: u64 = 2;
const LEAST_TOLERANCE: u64 = 64 * 1024;

/// Rates told of which the peer may still keep to any; of more, two are taken for one that allows what either does.
const MOST_WORDS: usize = 8;

/// Watches one peer.
#[derive(Debug, Default)]
pub(crate) struct Police {
    rate: Option<Watch>,
    /// The peer was told a limit of octets, has heard it, and all it had sent before has arrived.
    limit_from: Option<Instant>,
}

/// A token bucket that fills at the rate told. While the peer may not have heard that, at what allows the most of all
/// that it may keep to: whoever is told another rate again and again is held to them as well.
#[derive(Debug)]
struct Watch {
    /// What was told, oldest first, and until when the peer may keep to it. The last has no end.
    words: Vec<(Rate, Instant)>,
    /// What they allow together.
    allowed: Rate,
    tokens: f64,
    filled_at: Instant,
}

impl Default for Watch {
    /// The peer may do as it likes until it is told.
    fn default() -> Self {
        let words = vec![(Rate::UNLIMITED, Instant::FAR_FUTURE)];
        Self { words, allowed: Rate::UNLIMITED, tokens: 0.0, filled_at: Instant::ZERO }
    }
}

impl Watch {
    /// The peer is told another rate, and keeps to that from `heard_by` at the latest.
    fn tell(&mut self, rate: Rate, heard_by: Instant) {
        if let Some((_, until)) = self.words.last_mut() {
            *until = heard_by;
        }
        if self.words.len() == MOST_WORDS
            && let Some((last, until)) = self.words.pop()
            && let Some(before) = self.words.last_mut()
        {
            *before = (either(before.0, last), before.1.max(until));
        }
        self.words.push((rate, Instant::FAR_FUTURE));
        self.allow();
    }

    /// The last that was told is all that the peer keeps to after `from`.
    fn heard(&mut self, from: Instant) {
        let before = self.words.len().saturating_sub(1);
        self.words[..before].iter_mut().for_each(|(_, until)| *until = from.min(*until));
    }

    /// Adds what has come to the bucket, and forgets what the peer keeps to no longer.
    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.filled_at).as_secs_f64();
        self.filled_at = now;
        let filled = self.tokens + elapsed * self.allowed.bytes_per_s as f64;
        self.tokens = filled.min(tolerance(self.allowed));
        if self.words.iter().any(|(_, until)| *until <= now) {
            self.words.retain(|(_, until)| *until > now);
            self.allow();
        }
    }

    /// A larger rate or burst brings what it tolerates more, as a sender's credit grows by what its burst does; a smaller
    /// one cuts down to what it tolerates.
    fn allow(&mut self) {
        let before = self.allowed;
        self.allowed = self.words.iter().map(|(rate, _)| *rate).reduce(either).unwrap_or(Rate::UNLIMITED);
        let gained = tolerance(either(before, self.allowed)) - tolerance(before);
        self.tokens = (self.tokens + gained).min(tolerance(self.allowed));
        if before.is_unlimited() {
            self.tokens = tolerance(self.allowed);
        }
    }
}

/// Octets that are tolerated at once.
fn tolerance(rate: Rate) -> f64 {
    let bunched = rate.bytes_per_s as f64 * BUNCHING.as_secs_f64();
    (burst(rate) * BURSTS + LEAST_TOLERANCE) as f64 + bunched
}

/// What allows as much as either of two rates.
fn either(one: Rate, two: Rate) -> Rate {
    if one.is_unlimited() || two.is_unlimited() {
        return Rate::UNLIMITED;
    }
    Rate { bytes_per_s: one.bytes_per_s.max(two.bytes_per_s), burst_bytes: burst(one).max(burst(two)) }
}

/// What may come in a row. Nothing does at a rate of 0, whatever its burst.
fn burst(rate: Rate) -> u64 {
    if rate.bytes_per_s > 0 { rate.burst_bytes } else { 0 }
}

impl Police {
    /// The peer is told a rate, and keeps to it from `heard_by` at the latest.
    pub fn tell_rate(&mut self, rate: Rate, heard_by: Instant) {
        self.rate.get_or_insert_default().tell(rate, heard_by);
    }

    /// The peer has heard `rate`, which it was told last; what it sent before has arrived by `from`.
    pub fn heard_rate(&mut self, rate: Rate, from: Instant) {
        let watch = self.rate.get_or_insert_default();
        if watch.words.last().is_none_or(|(last, _)| *last != rate) {
            watch.tell(rate, from);
        }
        watch.heard(from);
        if rate.is_unlimited() {
            self.rate = None;
        }
    }

    /// The peer has heard that there is a limit, or that there is none.
    pub fn watch_limit(&mut self, from: Option<Instant>) {
        self.limit_from = from;
    }

    /// Whether anything is watched.
    pub fn is_on_duty(&self) -> bool {
        self.rate.is_some() || self.limit_from.is_some()
    }

    /// Whether a data packet is more than the peer may send. `payload`: octets of messages;
    /// `beyond_limit`: it exceeds the limit told.
    pub fn is_excess(&mut self, now: Instant, payload: u64, beyond_limit: bool) -> bool {
        if beyond_limit && self.limit_from.is_some_and(|from| now >= from) {
            return true;
        }
        let Some(watch) = &mut self.rate else { return false };
        watch.fill(now);
        if watch.allowed.is_unlimited() {
            return false;
        }
        // Offers, and word of what was given up, are not limited.
        if watch.tokens <= 0.0 && payload > 0 {
            return true;
        }
        watch.tokens -= payload as f64;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::RateCredit;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const RATE: Rate = Rate { bytes_per_s: 1_000_000, burst_bytes: 14_540 };

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Octets taken of a sender that sends a packet of 1454 each `every_us` for 10 s.
    fn taken(every_us: u64) -> (u64, u64) {
        let mut police = Police::default();
        police.heard_rate(RATE, at(0));
        let (mut taken, mut dropped) = (0, 0);
        for packet in 0..10_000_000 / every_us {
            match police.is_excess(at(packet * every_us), 1454, false) {
                true => dropped += 1454,
                false => taken += 1454,
            }
        }
        (taken, dropped)
    }

    #[test]
    fn who_keeps_to_the_rate_loses_nothing() {
        assert_eq!(taken(1454).1, 0);
        let mut police = Police::default();
        police.heard_rate(RATE, at(0));
        // A burst every RTIMER, bunched by three periods now and then.
        for burst in 0..1000u64 {
            let when = burst.div_ceil(4) * 4 * 14_540;
            for _ in 0..10 {
                assert!(!police.is_excess(at(when), 1454, false), "burst {burst}");
            }
        }
    }

    #[test]
    fn who_does_not_gets_no_more_than_rate_and_tolerance() {
        for every_us in [700, 100, 10] {
            let (taken, dropped) = taken(every_us);
            assert!(taken < 10_000_000 + 200_000, "{taken} taken in 10 s at 1 MB/s");
            assert!(dropped > 0);
        }
    }

    #[test]
    fn a_stopped_peer_gets_the_tolerance_and_no_more() {
        let mut police = Police::default();
        police.heard_rate(Rate::STOPPED, at(100));
        assert!(!police.is_excess(at(50), 1454, false), "sent before it heard");
        let taken = (0..1000).filter(|n| !police.is_excess(at(200 + n * 1000), 1454, false)).count() as u64;
        assert!(taken * 1454 <= LEAST_TOLERANCE + 1454);
        assert!(!police.is_excess(at(2_000_000), 0, false), "an offer");
    }

    #[test]
    fn another_rate_is_no_leave_to_send_what_one_likes() {
        let mut police = Police::default();
        police.heard_rate(RATE, at(0));
        let (mut taken, mut rate) = (0, RATE);
        for packet in 0..1_000_000u64 {
            let now = packet * 10;
            // Each 10 ms another rate, which is heard, and surely in force, 30 ms later.
            if now % 10_000 == 0 {
                rate.bytes_per_s = RATE.bytes_per_s - now % 7_000;
                police.tell_rate(rate, at(now + 20_000_000));
            } else if now % 10_000 == 5_000 {
                police.heard_rate(rate, at(now + 25_000));
            }
            taken += if police.is_excess(at(now), 1454, false) { 0 } else { 1454 };
        }
        assert!(taken < 10_000_000 + 400_000, "{taken} taken in 10 s at 1 MB/s");
        // Nor is any word of one that acknowledges nothing.
        let mut police = Police::default();
        (0..2_000).for_each(|word| police.tell_rate(Rate { bytes_per_s: word, ..RATE }, at(1_000)));
        assert!(!police.is_excess(at(999), u64::MAX, false));
        let taken = (0..1000).filter(|n| !police.is_excess(at(1_000 + n), 1454, false)).count() as u64;
        assert!(taken * 1454 < 2 * RATE.burst_bytes + LEAST_TOLERANCE + 2_000, "{taken}");
        assert!(police.rate.unwrap().words.len() <= MOST_WORDS);
    }

    proptest! {
        #[test]
        fn who_keeps_to_what_it_has_heard_loses_nothing(
            words in prop::collection::vec(
                (0u64..60_000, prop_oneof![0u64..10_000, 0u64..50_000_000], 1u64..300_000),
                1..30,
            ),
            one_way in 10u64..20_000,
            bunched in prop::collection::vec(0u64..25_000, 50),
        ) {
            let mut police = Police::default();
            let mut credit = RateCredit::new(at(0), Rate::UNLIMITED);
            let (mut told, mut hears, mut acknowledged) = (0, VecDeque::new(), VecDeque::new());
            let (mut now, mut next_at, mut under_way) = (0, 0, VecDeque::new());
            while told < words.len() || now < next_at + 100_000 {
                if told < words.len() && now >= next_at {
                    let (after, bytes_per_s, burst_bytes) = words[told];
                    let rate = Rate { bytes_per_s: bytes_per_s * (told as u64 % 5).min(1), burst_bytes };
                    police.tell_rate(rate, at(now + 20_000_000));
                    hears.push_back((now + one_way, rate));
                    acknowledged.push_back((now + 2 * one_way, rate, told));
                    (told, next_at) = (told + 1, now + after);
                }
                if let Some((_, rate)) = hears.pop_front_if(|(when, _)| *when <= now) {
                    credit.set(at(now), rate);
                }
                // Until the first word it could send any number.
                while credit.room(at(now)).is_some_and(|room| room > 0) {
                    credit.spend(1454);
                    let delay = bunched[now as usize / 25_000 % bunched.len()];
                    under_way.push_back((now / 25_000 * 25_000 + 25_000 + one_way + delay, 1454));
                }
                while let Some((_, payload)) = under_way.pop_front_if(|(when, _)| *when <= now) {
                    prop_assert!(!police.is_excess(at(now), payload, false), "at {now} µs");
                }
                if let Some((_, rate, word)) = acknowledged.pop_front_if(|(when, ..)| *when <= now)
                    && word + 1 == told
                {
                    police.heard_rate(rate, at(now + 2 * one_way + 50_000));
                }
                now += 500;
            }
        }
    }

    #[test]
    fn a_limit_counts_from_when_it_was_heard() {
        let mut police = Police::default();
        assert!(!police.is_on_duty() && !police.is_excess(at(0), 1, true));
        police.watch_limit(Some(at(10)));
        assert!(police.is_on_duty());
        assert!(!police.is_excess(at(5), 1, true) && police.is_excess(at(10), 1, true));
        assert!(!police.is_excess(at(11), 1, false));
        police.watch_limit(None);
        assert!(!police.is_on_duty());
    }
}
