//! Spreads a window over its round trip (RFC 9002 §7.7), so that a long path does not get it as
//! one burst.
//!
//! Inputs → outputs: window, RTT and bytes sent → whether a packet may go now, and when.
//! On a LAN the window refills faster than a burst is sent, and pacing is never felt.

use core::time::Duration;
use denrei_wire::Instant;

/// Bytes that may always leave together: two GSO trains.
const BURST_BYTES: u64 = 128 * 1024;
/// Pacing runs a little ahead of the window, so that it is the window that limits (RFC 9002 §7.7).
const AHEAD: f64 = 1.25;
/// Round trips shorter than this are not paced, nanoseconds: timers are coarser than the gaps would be.
const MIN_PACED_RTT_NS: u64 = 2_000_000;
/// A window is spread over no more than so many times the latest sample, whatever those before it were: what varies
/// from one packet to the next on a path that is used stays within that.
const LONGEST_IN_LATEST: u64 = 2;

/// A token bucket filled at 1.25 windows per round trip.
#[derive(Debug)]
pub(crate) struct Pacer {
    tokens: f64,
    filled_at: Instant,
}

impl Pacer {
    pub fn new(now: Instant) -> Self {
        Self { tokens: BURST_BYTES as f64, filled_at: now }
    }

    /// When the next packet may leave; `None`: now. The round-trip time and the newest sample of it are in nanoseconds:
    /// samples taken across a stop of the peer's process are felt in the smoothed one until dozens of others have come,
    /// and a small window spread over seconds brings those late.
    pub fn delay_until(
        &mut self,
        now: Instant,
        window: u64,
        smoothed_ns: u64,
        latest_ns: u64,
    ) -> Option<Instant> {
        if smoothed_ns < MIN_PACED_RTT_NS || latest_ns < MIN_PACED_RTT_NS / LONGEST_IN_LATEST {
            self.tokens = BURST_BYTES as f64;
            self.filled_at = now;
            return None;
        }
        let over = Duration::from_nanos(smoothed_ns.min(latest_ns.saturating_mul(LONGEST_IN_LATEST)));
        let rate = AHEAD * window as f64 / over.as_secs_f64();
        let elapsed = now.saturating_since(self.filled_at).as_secs_f64();
        // What goes without asking here, as control does, holds the rest up for no longer than a round trip.
        let owed = self.tokens.max(-(window as f64));
        self.tokens = (owed + elapsed * rate).min(BURST_BYTES as f64);
        self.filled_at = now;
        if self.tokens > 0.0 {
            return None;
        }
        // Wait for a worthwhile amount, not for a single packet: a quarter of a burst or of the window.
        let wanted = (BURST_BYTES as f64 / 4.0).min(window as f64 / 4.0) - self.tokens;
        Some(now + Duration::from_secs_f64((wanted / rate).clamp(1e-6, 1.0)))
    }

    /// Takes note of what was sent.
    pub fn on_sent(&mut self, cost: u64) {
        self.tokens -= cost as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_gets_its_window_spread_over_the_round_trip() {
        let mut now = Instant::ZERO;
        let mut pacer = Pacer::new(now);
        let (window, srtt) = (1_000_000, Duration::from_millis(50));
        let mut sent = 0;
        while now < Instant::ZERO + srtt {
            match pacer.delay_until(now, window, 50_000_000, 50_000_000) {
                None => {
                    pacer.on_sent(1472);
                    sent += 1472;
                }
                Some(at) => {
                    assert!(at > now);
                    now = at;
                }
            }
        }
        let expected = BURST_BYTES as f64 + AHEAD * window as f64;
        assert!((sent as f64 / expected - 1.0).abs() < 0.05, "{sent} of {expected}");
    }

    #[test]
    fn what_goes_unasked_holds_the_rest_up_for_a_round_trip_at_the_most() {
        let mut pacer = Pacer::new(Instant::ZERO);
        for _ in 0..1_000 {
            pacer.on_sent(1024);
        }
        let (window, srtt) = (14_720, Duration::from_millis(10));
        let at = pacer.delay_until(Instant::ZERO, window, 10_000_000, 10_000_000).expect("it is paced");
        assert!(at <= Instant::ZERO + srtt, "{at:?}");
    }

    #[test]
    fn a_lan_is_not_paced() {
        let mut pacer = Pacer::new(Instant::ZERO);
        for _ in 0..10_000 {
            assert_eq!(pacer.delay_until(Instant::ZERO, 100_000, 50_000, 50_000), None);
            pacer.on_sent(1472);
        }
    }

    #[test]
    fn samples_taken_across_a_stop_do_not_pace_what_comes_after_it() {
        let wait = |smoothed_ns, latest_ns| {
            let mut pacer = Pacer::new(Instant::ZERO);
            pacer.on_sent(BURST_BYTES);
            let until = pacer.delay_until(Instant::ZERO, 14_720, smoothed_ns, latest_ns);
            until.map_or(0, |until| until.nanos_since(Instant::ZERO))
        };
        let paced = wait(20_000_000, 20_000_000);
        assert_eq!(paced, wait(20_000_000, 15_000_000), "one comes sooner");
        assert!(wait(900_000_000, 5_000_000_000) > 30 * paced, "it may be the path");
        assert_eq!(wait(900_000_000, 10_000_000), paced);
        assert_eq!(wait(900_000_000, 100_000), 0, "nor is a LAN paced after one");
    }
}
