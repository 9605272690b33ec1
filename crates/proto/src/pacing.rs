//! Spreads a window over its round trip (RFC 9002 §7.7), so that a long path does not get it as
//! one burst.
//!
//! Inputs → outputs: window, RTT and bytes sent → how much may go now, or when it may.
//! On a LAN the window refills faster than a burst is sent, and pacing is never felt.

use core::time::Duration;
use denrei_wire::Instant;

/// Pacing runs a little ahead of the window, so that it is the window that limits (RFC 9002 §7.7).
const AHEAD: f64 = 1.25;
/// Round trips shorter than this are not paced, nanoseconds: timers are coarser than the gaps would be.
const MIN_PACED_RTT_NS: u64 = 2_000_000;
/// Of a session so many bytes may always leave together: two GSO trains. A part of it is worth a timer.
const SESSION_BURST: u64 = 128 * 1024;
const STEPS_PER_SESSION_BURST: u64 = 4;
/// A session's window is spread over no more than so many times the latest sample, whatever those before it were: what
/// varies from one packet to the next on a path that is used stays within that.
const LONGEST_IN_LATEST: u64 = 2;
/// To a group's address no more goes at once than one train carries, than this part of the window …
const GROUP_BURSTS_PER_WINDOW: u64 = 4;
const MOST_GROUP_BURST: u64 = 64 * 1024;
/// … but a first window may (RFC 9002 §7.2).
const LEAST_GROUP_BURST: u64 = 14_720;
const STEPS_PER_GROUP_BURST: u64 = 2;

/// What is spread over what, and how finely.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    window: u64,
    over: Duration,
    /// Bytes that may leave together.
    burst: u64,
    /// Bytes that are worth waiting for.
    step: u64,
}

impl Spread {
    /// A session's window, bytes; `None`: it is not paced. The round-trip time and the newest sample of it are in
    /// nanoseconds: samples taken across a stop of the peer's process are felt in the smoothed one until dozens of others
    /// have come, and a small window spread over seconds brings those late.
    pub fn of_session(window: u64, smoothed_ns: u64, latest_ns: u64) -> Option<Self> {
        if smoothed_ns < MIN_PACED_RTT_NS || latest_ns < MIN_PACED_RTT_NS / LONGEST_IN_LATEST {
            return None;
        }
        let over = Duration::from_nanos(smoothed_ns.min(latest_ns.saturating_mul(LONGEST_IN_LATEST)));
        let step = SESSION_BURST.min(window) / STEPS_PER_SESSION_BURST;
        Some(Self { window, over, burst: SESSION_BURST, step })
    }

    /// A group's, over the round trip of the member that it waits for, by what that is at its least. The window counts
    /// from the first symbol that somebody misses: all that went after it is let go at once when that has come again, and
    /// a queue that holds less would lose a part of it anew each time.
    pub fn of_group(window: u64, smoothed_ns: u64, least_ns: u64) -> Option<Self> {
        if smoothed_ns < MIN_PACED_RTT_NS || least_ns < MIN_PACED_RTT_NS {
            return None;
        }
        let burst = (window / GROUP_BURSTS_PER_WINDOW).clamp(LEAST_GROUP_BURST, MOST_GROUP_BURST);
        Some(Self {
            window,
            over: Duration::from_nanos(smoothed_ns),
            burst,
            step: burst / STEPS_PER_GROUP_BURST,
        })
    }
}

/// A token bucket filled at 1.25 windows per round trip.
#[derive(Debug)]
pub(crate) struct Pacer {
    tokens: f64,
    filled_at: Instant,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::full(Instant::ZERO)
    }
}

impl Pacer {
    /// With as much as the burst allows, once there is one.
    fn full(now: Instant) -> Self {
        Self { tokens: f64::INFINITY, filled_at: now }
    }

    /// Bytes that may leave now, or when some may. Without a spread all may.
    pub fn room(&mut self, now: Instant, spread: Option<Spread>) -> Result<u64, Instant> {
        let Some(Spread { window, over, burst, step }) = spread else {
            *self = Self::full(now);
            return Ok(u64::MAX);
        };
        let rate = AHEAD * window as f64 / over.as_secs_f64();
        let elapsed = now.saturating_since(self.filled_at).as_secs_f64();
        // What goes without asking here, as control does, holds the rest up for no longer than a round trip.
        let owed = self.tokens.max(-(window as f64));
        self.tokens = (owed + elapsed * rate).min(burst as f64);
        self.filled_at = now;
        if self.tokens > 0.0 {
            return Ok(self.tokens.ceil() as u64);
        }
        // A worthwhile amount is waited for, not a single packet.
        let wait = (step as f64 - self.tokens) / rate;
        Err(now + Duration::from_secs_f64(wait.clamp(1e-6, 1.0)))
    }

    /// Takes note of what was sent.
    pub fn on_sent(&mut self, cost: u64) {
        self.tokens -= cost as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(50);
    const RTT_NS: u64 = RTT.as_nanos() as u64;
    const DATAGRAM: u64 = 1472;

    /// Bytes that leave in a round trip, how often something is waited for, and the most that might leave together.
    fn send_for_a_round_trip(spread: Option<Spread>) -> (u64, u32, u64) {
        let (mut now, mut pacer) = (Instant::ZERO, Pacer::default());
        let (mut sent, mut waits, mut most) = (0, 0, 0);
        while now < Instant::ZERO + RTT {
            match pacer.room(now, spread) {
                Ok(room) => {
                    most = most.max(room);
                    pacer.on_sent(DATAGRAM);
                    sent += DATAGRAM;
                }
                Err(at) => {
                    assert!(at > now);
                    (now, waits) = (at, waits + 1);
                }
            }
        }
        (sent, waits, most)
    }

    #[test]
    fn a_long_path_gets_its_window_spread_over_the_round_trip() {
        let window = 1_000_000;
        let (sent, waits, most) = send_for_a_round_trip(Spread::of_session(window, RTT_NS, RTT_NS));
        let expected = SESSION_BURST as f64 + AHEAD * window as f64;
        assert!((sent as f64 / expected - 1.0).abs() < 0.05, "{sent} of {expected}");
        assert_eq!(most, SESSION_BURST);
        assert!(waits < 50, "timers: {waits}");
    }

    #[test]
    fn a_group_gets_a_part_of_the_window_at_once_and_all_of_it_in_a_round_trip() {
        let window = 200_000;
        let (sent, waits, most) = send_for_a_round_trip(Spread::of_group(window, RTT_NS, RTT_NS));
        assert!((window..window * 8 / 5).contains(&sent), "{sent}");
        assert_eq!(most, window / GROUP_BURSTS_PER_WINDOW);
        assert!(waits < 20, "timers: {waits}");
    }

    #[test]
    fn of_a_group_a_first_window_goes_at_once_and_a_large_one_a_train_at_a_time() {
        for (window, most) in [(LEAST_GROUP_BURST, LEAST_GROUP_BURST), (100_000_000, MOST_GROUP_BURST)] {
            let mut pacer = Pacer::default();
            assert_eq!(pacer.room(Instant::ZERO, Spread::of_group(window, RTT_NS, RTT_NS)), Ok(most));
        }
    }

    #[test]
    fn what_goes_unasked_holds_the_rest_up_for_a_round_trip_at_the_most() {
        let (window, srtt) = (14_720, Duration::from_millis(10));
        let mut pacer = Pacer::default();
        let spread = Spread::of_session(window, 10_000_000, 10_000_000);
        assert_eq!(pacer.room(Instant::ZERO, spread), Ok(SESSION_BURST));
        for _ in 0..1_000 {
            pacer.on_sent(1024);
        }
        let at = pacer.room(Instant::ZERO, spread).expect_err("it is paced");
        assert!(at <= Instant::ZERO + srtt, "{at:?}");
    }

    #[test]
    fn a_lan_is_not_paced_however_long_its_queue() {
        let short = 50_000;
        for spread in [Spread::of_session(100_000, short, short), Spread::of_group(100_000, RTT_NS, short)] {
            let mut pacer = Pacer::default();
            for _ in 0..10_000 {
                assert_eq!(pacer.room(Instant::ZERO, spread), Ok(u64::MAX));
                pacer.on_sent(DATAGRAM);
            }
        }
    }

    #[test]
    fn what_was_not_paced_owes_nothing() {
        let mut pacer = Pacer::default();
        assert_eq!(pacer.room(Instant::ZERO, None), Ok(u64::MAX));
        pacer.on_sent(100_000_000);
        let spread = Spread::of_session(1_000_000, RTT_NS, RTT_NS);
        assert_eq!(pacer.room(Instant::ZERO, spread), Ok(SESSION_BURST));
    }

    #[test]
    fn samples_taken_across_a_stop_do_not_pace_what_comes_after_it() {
        let wait = |smoothed_ns, latest_ns| {
            let mut pacer = Pacer::default();
            let spread = Spread::of_session(14_720, smoothed_ns, latest_ns);
            let _ = pacer.room(Instant::ZERO, spread);
            pacer.on_sent(SESSION_BURST);
            pacer.room(Instant::ZERO, spread).map_or_else(|at| at.nanos_since(Instant::ZERO), |_| 0)
        };
        let paced = wait(20_000_000, 20_000_000);
        assert_eq!(paced, wait(20_000_000, 15_000_000), "one comes sooner");
        assert!(wait(900_000_000, 5_000_000_000) > 30 * paced, "it may be the path");
        assert_eq!(wait(900_000_000, 10_000_000), paced);
        assert_eq!(wait(900_000_000, 100_000), 0, "nor is a LAN paced after one");
    }
}
