//! What a sender may have under way because its receiver granted it.
//!
//! Inputs → outputs: grants, losses and marks → a window beside the congestion controller's, of which the larger
//! holds. Source: S11; Homa (Montazeri et al. 2018), in which grants stand in the window's place. Deviation: it is
//! bounded, halved by what is lost under it, and made smaller by marks.
//!
//! The receiver has measured what its path carries and shares that out, while each of its senders would have to
//! find out in a slow start of its own: round trips in which most of what was granted is not used, and
//! nobody else may.

use core::time::Duration;
use denrei_wire::Instant;

/// A round trip known for less than that may be its crowd's rather than the path's, unless it is longer than queues of
/// switches are; and processes that begin together wait for their cores, up to some milliseconds.
const KNOWN_FOR: Duration = Duration::from_millis(100);
const LONG_RTT: Duration = Duration::from_millis(1);
const FAR_RTT: Duration = Duration::from_millis(5);
/// What overflowed a queue so near is out of it so long after the limit came, and has been asked for again.
const OVERFLOW_LASTS: Duration = Duration::from_millis(5);

/// Most under way for that reason: what a path inside the network may be asked to take unseen.
const MOST_OCTETS: u64 = 1 << 20;
/// Most where the round trip may be the crowd's: a first window, which anyone may send unseen.
const FIRST_WINDOW: u64 = 14_720;

/// The first mark leaves so much, where less is under way, and each round trip with marks a sixteenth less, down to
/// a first window. Queues are marked that the receiver's own share-out keeps filled.
const FIRST_MARKED: u64 = 64 * 1024;
const KEPT_WHEN_MARKED: u64 = 15;

/// The licence of one limit, until it is lifted.
#[derive(Debug)]
pub(crate) struct Licence {
    most: u64,
    /// Until then there is none.
    from: Instant,
    /// What was sent by then says nothing new.
    cut_at: Instant,
}

impl Licence {
    /// A limit is in force from now on, and the path's smallest round trip has been known for so long.
    pub fn new(now: Instant, min_rtt: Duration, known_for: Duration) -> Self {
        let is_the_paths = known_for >= KNOWN_FOR || min_rtt >= FAR_RTT;
        let at_once = is_the_paths || min_rtt >= LONG_RTT;
        Self {
            most: if is_the_paths { MOST_OCTETS } else { FIRST_WINDOW },
            from: if at_once { now } else { now + OVERFLOW_LASTS },
            cut_at: now,
        }
    }

    /// Octets that may be under way, where so many are and so many more are granted.
    pub fn window(&self, now: Instant, under_way: u64, granted: u64) -> u64 {
        if now < self.from { 0 } else { under_way.saturating_add(granted).min(self.most) }
    }

    /// Something was lost, of which the newest was sent at `sent_at`, when so much was under way. Counts once per
    /// round trip.
    pub fn on_loss(&mut self, now: Instant, sent_at: Instant, under_way: u64) {
        if sent_at > self.cut_at {
            self.cut_at = now;
            self.most = self.most.min(under_way) / 2;
        }
    }

    /// The same of marks.
    pub fn on_marks(&mut self, now: Instant, sent_at: Instant, under_way: u64) {
        if sent_at > self.cut_at {
            self.cut_at = now;
            let least = self.most.min(FIRST_WINDOW);
            self.most = (self.most.min(under_way.max(FIRST_MARKED)) / 16 * KEPT_WHEN_MARKED).max(least);
        }
    }

    /// Nothing has arrived for several probe timeouts.
    pub fn revoke(&mut self) {
        self.most = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RACK_RTT: Duration = Duration::from_micros(4);

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn what_was_lost_under_a_limit_halves_what_goes_unasked_once_per_round_trip() {
        let mut licence = Licence::new(at(10), RACK_RTT, KNOWN_FOR);
        assert_eq!(licence.window(at(200), 10_000, 90_000), 100_000);
        assert_eq!(licence.window(at(200), 10_000, 1 << 30), MOST_OCTETS);
        licence.on_loss(at(15), at(9), 80_000);
        assert_eq!(licence.window(at(200), 10_000, 90_000), 100_000, "sent before the limit");
        licence.on_loss(at(20), at(11), 80_000);
        licence.on_loss(at(21), at(19), 80_000);
        assert_eq!(licence.window(at(200), 10_000, 90_000), 40_000);
        licence.on_loss(at(30), at(21), 80_000);
        assert_eq!(licence.window(at(200), 10_000, 90_000), 20_000);
        licence.revoke();
        assert_eq!(licence.window(at(200), 10_000, 90_000), 0);
    }

    #[test]
    fn marks_leave_a_first_window() {
        let mut licence = Licence::new(at(10), RACK_RTT, KNOWN_FOR);
        licence.on_marks(at(11), at(11), 3_000);
        assert_eq!(licence.window(at(200), 10_000, 1 << 20), FIRST_MARKED / 16 * KEPT_WHEN_MARKED);
        for ms in 12..100 {
            licence.on_marks(at(ms), at(ms), 3_000);
        }
        assert_eq!(licence.window(at(200), 10_000, 1 << 20), FIRST_WINDOW);
        licence.on_loss(at(100), at(100), 10_000);
        licence.on_marks(at(101), at(101), 3_000);
        assert_eq!(licence.window(at(200), 10_000, 1 << 20), 5_000, "it never grows");
    }

    #[test]
    fn a_round_trip_that_only_a_crowd_has_seen_is_not_the_paths() {
        let of =
            |min_rtt, known_for, ms| Licence::new(at(10), min_rtt, known_for).window(at(ms), 0, u64::MAX);
        assert_eq!(of(LONG_RTT / 2, KNOWN_FOR / 2, 14), 0, "a queue's");
        assert_eq!(of(LONG_RTT / 2, KNOWN_FOR / 2, 15), FIRST_WINDOW, "which is empty again");
        assert_eq!(of(2 * LONG_RTT, KNOWN_FOR / 2, 10), FIRST_WINDOW, "processes that begin wait for cores");
        assert_eq!(of(FAR_RTT, Duration::ZERO, 10), MOST_OCTETS);
        assert_eq!(of(RACK_RTT, KNOWN_FOR, 10), MOST_OCTETS);
    }
}
