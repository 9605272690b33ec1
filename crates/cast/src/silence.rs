//! How long nothing has come from somebody: a session counts as lost only after long.
//!
//! Inputs → outputs: how many packets a session has brought, time → how long it has brought none, and when to ask for a
//! sign of life. Source: `spec/cast.md` §5.

use std::time::{Duration, Instant};

/// Somebody of whom nothing was heard for so long is asked something, for its transport to answer.
pub const ASK_AFTER: Duration = Duration::from_millis(500);
/// Longer than one who looks is ever away, but for a reason of its own: large files are verified, or read for their
/// digests.
pub const ABSENCE: Duration = Duration::from_secs(1);

/// Of one session.
#[derive(Clone, Copy, Debug)]
pub struct Silence {
    /// Packets that had come.
    received: u64,
    since: Instant,
    looked_at: Instant,
    asked: bool,
}

impl Silence {
    /// Something was heard just now.
    pub fn new(received: u64, now: Instant) -> Self {
        Self { received, since: now, looked_at: now, asked: false }
    }

    /// Looks whether more has come; whether a sign of life is to be asked for, which is so once.
    pub fn look(&mut self, received: u64, now: Instant) -> bool {
        if received != self.received {
            *self = Self::new(received, now);
        }
        let away = now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        if away >= ABSENCE {
            // Nobody was listened to: that is nobody's silence.
            self.since += away;
        }
        let asks = !self.asked && self.lasts(now) >= ASK_AFTER;
        self.asked |= asks;
        asks
    }

    /// When it was looked last.
    pub fn looked_at(&self) -> Instant {
        self.looked_at
    }

    /// Since when nothing has come.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// For how long nothing has come.
    pub fn lasts(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(200);

    #[test]
    fn one_that_is_silent_is_asked_once_until_it_is_heard() {
        let begin = Instant::now();
        let mut silence = Silence::new(7, begin);
        let asks: Vec<bool> = (1..=6).map(|look| silence.look(7, begin + LOOK * look)).collect();
        assert_eq!(asks, [false, false, true, false, false, false]);
        assert_eq!(silence.lasts(begin + LOOK * 6), LOOK * 6);
        assert!(!silence.look(8, begin + LOOK * 7));
        assert_eq!(silence.since(), begin + LOOK * 7);
        assert!(silence.look(8, begin + LOOK * 10), "and again");
    }

    #[test]
    fn time_in_which_nobody_looked_is_not_counted() {
        let begin = Instant::now();
        let mut silence = Silence::new(7, begin);
        silence.look(7, begin + LOOK);
        assert!(!silence.look(7, begin + LOOK * 30));
        assert_eq!(silence.lasts(begin + LOOK * 30), LOOK);
    }
}
