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

/// Watches one peer.
#[derive(Debug, Default)]
pub(crate) struct Police {
    rate: Option<Watch>,
    /// The peer was told a limit of octets, has heard it, and all it had sent before has arrived.
    limit_from: Option<Instant>,
}

/// A token bucket that fills at the rate told.
#[derive(Debug)]
struct Watch {
    rate: Rate,
    tokens: f64,
    filled_at: Instant,
}

impl Watch {
    fn tolerance(&self) -> f64 {
        let bunched = self.rate.bytes_per_s as f64 * BUNCHING.as_secs_f64();
        (self.rate.burst_bytes * BURSTS + LEAST_TOLERANCE) as f64 + bunched
    }
}

impl Police {
    /// The peer has heard `rate`; what it sent before has arrived by `from`.
    pub fn watch_rate(&mut self, from: Instant, rate: Option<Rate>) {
        let limited = rate.filter(|rate| !rate.is_unlimited());
        self.rate = limited.map(|rate| {
            let mut watch = Watch { rate, tokens: 0.0, filled_at: from };
            watch.tokens = watch.tolerance();
            watch
        });
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
        let Some(watch) = self.rate.as_mut().filter(|watch| now >= watch.filled_at) else { return false };
        let elapsed = now.saturating_since(watch.filled_at).as_secs_f64();
        watch.filled_at = now;
        watch.tokens = (watch.tokens + elapsed * watch.rate.bytes_per_s as f64).min(watch.tolerance());
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

    const RATE: Rate = Rate { bytes_per_s: 1_000_000, burst_bytes: 14_540 };

    fn at(micros: u64) -> Instant {
        Instant::from_nanos(micros * 1000)
    }

    /// Octets taken of a sender that sends a packet of 1454 each `every_us` for 10 s.
    fn taken(every_us: u64) -> (u64, u64) {
        let mut police = Police::default();
        police.watch_rate(at(0), Some(RATE));
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
        police.watch_rate(at(0), Some(RATE));
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
        police.watch_rate(at(100), Some(Rate::STOPPED));
        assert!(!police.is_excess(at(50), 1454, false), "sent before it heard");
        let taken = (0..1000).filter(|n| !police.is_excess(at(200 + n * 1000), 1454, false)).count() as u64;
        assert!(taken * 1454 <= LEAST_TOLERANCE + 1454);
        assert!(!police.is_excess(at(2_000_000), 0, false), "an offer");
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
