//! How fast grants are handed out over a long path.
//!
//! Inputs → outputs: the rate at which data can come, octets granted → whether more may be granted now, and when.
//! Source: S11; ExpressPass (Cho et al., SIGCOMM 2017) for credits at the pace of the link.
//!
//! A long path holds far more than the queue before this host: granted at once, all of it would come at once,
//! and most of it be lost. Over a short one the window is little more than the queue's room, and this has no say.

use super::{InboundWindow, NANOS_PER_S, octets_in};
use core::time::Duration;
use denrei_wire::Instant;

/// As much as comes in this time may be granted in a row: timers are not more precise.
const ROW: Duration = Duration::from_micros(200);

/// A bucket filled at the rate of arrival.
#[derive(Debug)]
pub(super) struct Release {
    /// Below 0: granted ahead of time.
    tokens: i64,
    filled_at: Instant,
    /// When there are tokens again, where somebody waits for them.
    due_in: Option<Duration>,
}

impl Release {
    pub fn new(now: Instant) -> Self {
        Self { tokens: i64::MAX, filled_at: now, due_in: None }
    }

    /// Whether so much may be granted now; if so, it is taken to be.
    pub fn lets(&mut self, now: Instant, window: &InboundWindow, octets: u64) -> bool {
        !window.is_long() || self.take(now, window.pace(), window.queue(), octets)
    }

    /// `rate`: octets per second; `least`: octets that may come in a row.
    fn take(&mut self, now: Instant, rate: u64, least: u64, octets: u64) -> bool {
        let most = amount(rate, ROW).max(signed(least));
        let came = amount(rate, now.saturating_since(self.filled_at));
        self.tokens = self.tokens.saturating_add(came).min(most);
        self.filled_at = now;
        if self.tokens > 0 {
            self.tokens = self.tokens.saturating_sub(signed(octets));
            return true;
        }
        // A worthwhile amount, not a single grant.
        let missing = u128::from(most.abs_diff(self.tokens)) - u128::from(most.unsigned_abs() / 2);
        let wait = missing * NANOS_PER_S / u128::from(rate.max(1));
        self.due_in = Some(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)));
        false
    }

    /// Nobody waits for tokens.
    pub fn rest(&mut self) {
        self.due_in = None;
    }

    /// When to ask again.
    pub fn due_in(&self) -> Option<Duration> {
        self.due_in
    }
}

/// Octets that come in a time.
fn amount(rate: u64, time: Duration) -> i64 {
    i64::try_from(octets_in(rate, time)).unwrap_or(i64::MAX / 2)
}

fn signed(octets: u64) -> i64 {
    i64::try_from(octets).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_granted_no_faster_than_it_can_come() {
        const RATE: u64 = 1_250_000_000;
        let (mut now, mut granted) = (Instant::ZERO, 0);
        let mut release = Release::new(now);
        while now < Instant::ZERO + Duration::from_millis(100) {
            if release.take(now, RATE, 32 << 10, 64 << 10) {
                granted += 64 << 10;
            } else {
                now += release.due_in().unwrap();
            }
        }
        let link = RATE / 10;
        assert!(granted > link && granted < link + link / 50, "{granted} of {link}");
        release.rest();
        assert_eq!(release.due_in(), None);
    }
}
