//! Spreads what goes to the group's address over the round trip of a long path.
//!
//! Inputs → outputs: window, round-trip time, time, octets sent → what may go now. The window counts from the first symbol
//! that somebody misses: all that went after it is let go at once when that has come again, and a queue that holds less
//! would lose a part of it anew each time.

use denrei_wire::Instant;

/// It runs a little ahead of the window, so that it is the window that limits (RFC 9002 §7.7).
const AHEAD: f64 = 1.25;
/// Round trips that are shorter at their least are not felt: timers are coarser than the gaps would be, ns.
const LEAST_RTT_NS: u64 = 2_000_000;
/// No more goes at once than one train carries, than this part of the window …
const BURSTS_PER_WINDOW: u64 = 4;
const MOST_AT_ONCE: u64 = 64 * 1024;
/// … but a first window may (RFC 9002 §7.2).
const LEAST_AT_ONCE: u64 = 14_720;

/// A token bucket filled at 1.25 windows per round trip.
#[derive(Debug, Default)]
pub(in crate::group::sender) struct Spread {
    /// Octets per second; 0: the path is short, or nothing is known of it.
    rate: f64,
    burst: f64,
    tokens: f64,
    filled_at: Instant,
}

impl Spread {
    /// Takes note of the window, and of the round trip of the member that it waited for.
    pub fn set(&mut self, now: Instant, window: u64, smoothed_ns: u64, least_ns: u64) {
        if smoothed_ns < LEAST_RTT_NS || least_ns < LEAST_RTT_NS {
            self.rate = 0.0;
            return;
        }
        let was_off = self.rate == 0.0;
        self.fill(now);
        self.rate = AHEAD * window as f64 * 1e9 / smoothed_ns as f64;
        self.burst = (window / BURSTS_PER_WINDOW).clamp(LEAST_AT_ONCE, MOST_AT_ONCE) as f64;
        self.tokens = if was_off { self.burst } else { self.tokens.min(self.burst) };
    }

    /// Octets that may go now, or when some may.
    pub fn room(&mut self, now: Instant) -> Result<u64, Instant> {
        if self.rate == 0.0 {
            return Ok(u64::MAX);
        }
        self.fill(now);
        if self.tokens >= 1.0 {
            return Ok(self.tokens as u64);
        }
        // Half a burst is worth a timer; what is owed is paid within a second at the most.
        let wait = ((self.burst / 2.0 - self.tokens) / self.rate).clamp(1e-6, 1.0);
        Err(now + core::time::Duration::from_secs_f64(wait))
    }

    /// Takes note of what was sent.
    pub fn spend(&mut self, octets: u64) {
        self.tokens -= octets as f64;
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_since(self.filled_at).as_secs_f64();
        self.tokens = (self.tokens.max(-self.burst) + elapsed * self.rate).min(self.burst);
        self.filled_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const WINDOW: u64 = 200_000;
    const RTT: Duration = Duration::from_millis(50);

    fn spread(smoothed: Duration, least: Duration) -> Spread {
        let mut spread = Spread::default();
        spread.set(Instant::ZERO, WINDOW, smoothed.as_nanos() as u64, least.as_nanos() as u64);
        spread
    }

    #[test]
    fn a_long_path_gets_a_part_of_the_window_at_once_and_all_of_it_in_a_round_trip() {
        let (mut now, mut spread, mut sent, mut waits) = (Instant::ZERO, spread(RTT, RTT), 0, 0);
        while now < Instant::ZERO + RTT {
            match spread.room(now) {
                Ok(room) => {
                    assert!(room <= WINDOW / BURSTS_PER_WINDOW, "{room}");
                    spread.spend(1472);
                    sent += 1472;
                }
                Err(at) => {
                    assert!(at > now);
                    (now, waits) = (at, waits + 1);
                }
            }
        }
        assert!((WINDOW..WINDOW * 8 / 5).contains(&sent), "{sent}");
        assert!(waits < 20, "timers: {waits}");
    }

    #[test]
    fn a_short_path_is_not_held_up_however_long_its_queue() {
        let short = Duration::from_micros(200);
        for mut spread in [Spread::default(), spread(RTT, short), spread(short, short)] {
            spread.spend(100 * WINDOW);
            assert_eq!(spread.room(Instant::ZERO), Ok(u64::MAX));
        }
    }

    #[test]
    fn a_first_window_goes_at_once_and_a_large_one_a_train_at_a_time() {
        for (window, most) in [(LEAST_AT_ONCE, LEAST_AT_ONCE), (100_000_000, MOST_AT_ONCE)] {
            let mut spread = spread(RTT, RTT);
            spread.set(Instant::ZERO, window, RTT.as_nanos() as u64, RTT.as_nanos() as u64);
            assert_eq!(spread.room(Instant::ZERO + RTT), Ok(most));
        }
    }
}
