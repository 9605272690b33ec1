//! How fast a sender may send through the relay (R6).
//!
//! Inputs → outputs: how full the pair's queue is, how fast it drains, what the far receiver allows
//! → the rate to set. An empty queue passes the far receiver's rate on; a growing one lowers it
//! towards what drains, a full one stops data while control goes on (R3).

use denrei_proto::Rate;
use std::time::Duration;

/// Below this share of the queue nothing is lowered: as much may wait on a channel that is not read, a quarter here and
/// nearly another in the Node beyond, and the others of its pair go on.
const CALM: f64 = 0.48;
/// Above this share data stops.
const FULL: f64 = 0.75;
/// A stopped pair goes on below this share.
const RESUMED: f64 = 0.5;
/// Least rate that is not a stop, bytes/s: at less, one packet takes longer than a keepalive.
const LEAST_RATE: f64 = 16_384.0;
/// A burst is what the rate brings in this time …
const BURST: Duration = Duration::from_millis(5);
/// … but not less than this, bytes: some packets.
const LEAST_BURST_BYTES: f64 = 16_384.0;
/// A rate of the relay's own making is set anew when it differs by more than this share.
const WORTH_SAYING: f64 = 0.125;
/// Weight of the newest look in the mean of what drains.
const GAIN: f64 = 0.25;

/// The pace of one pair's sender.
#[derive(Debug)]
pub(super) struct Pace {
    set: Rate,
    /// Times that it was set below what it was before.
    lowered: u64,
    /// Bytes per second that leave the queue, smoothed.
    drain: f64,
}

impl Pace {
    /// No limit was set.
    pub fn new() -> Self {
        Self { set: Rate::UNLIMITED, lowered: 0, drain: 0.0 }
    }

    /// Takes note of what has left the queue since the last look.
    pub fn drained(&mut self, bytes: u64, elapsed: Duration) {
        if !elapsed.is_zero() {
            self.drain += GAIN * (bytes as f64 / elapsed.as_secs_f64() - self.drain);
        }
    }

    /// The rate to set now, if it is another than before. `fill` is the queue's share of its limit.
    pub fn follow(&mut self, fill: f64, allowed: Rate) -> Option<Rate> {
        let wanted = self.wanted(fill, allowed);
        let set = self.set;
        let worth = wanted.is_unlimited() != set.is_unlimited()
            || is_worth_saying(wanted.bytes_per_s, set.bytes_per_s, allowed.bytes_per_s)
            || is_worth_saying(wanted.burst_bytes, set.burst_bytes, allowed.burst_bytes);
        if !worth {
            return None;
        }
        self.lowered += u64::from(is_lower(wanted, set));
        self.set = wanted;
        Some(wanted)
    }

    /// Times that the rate was lowered or stopped.
    pub fn lowered(&self) -> u64 {
        self.lowered
    }

    fn wanted(&self, fill: f64, allowed: Rate) -> Rate {
        let stopped = self.set.bytes_per_s == 0;
        if fill >= FULL || stopped && fill >= RESUMED {
            return Rate::STOPPED;
        }
        if fill < CALM || allowed.bytes_per_s == 0 {
            return allowed;
        }
        // From what drains and a half at the calm end to nothing at the full one.
        let share = 1.5 * (FULL - fill) / (FULL - CALM);
        let bytes_per_s = (self.drain * share).max(LEAST_RATE);
        let burst = (bytes_per_s * BURST.as_secs_f64()).max(LEAST_BURST_BYTES) as u64;
        let lowered = Rate { bytes_per_s: bytes_per_s as u64, burst_bytes: burst };
        if allowed.is_unlimited() {
            return lowered;
        }
        Rate {
            bytes_per_s: lowered.bytes_per_s.min(allowed.bytes_per_s),
            burst_bytes: lowered.burst_bytes.min(allowed.burst_bytes),
        }
    }
}

fn is_lower(wanted: Rate, set: Rate) -> bool {
    !wanted.is_unlimited() && (set.is_unlimited() || wanted.bytes_per_s < set.bytes_per_s)
}

/// What the far receiver allows is passed on to the byte, and nobody is left with more than that.
fn is_worth_saying(wanted: u64, set: u64, allowed: u64) -> bool {
    let little = wanted.abs_diff(set) as f64 <= WORTH_SAYING * wanted.max(set) as f64;
    wanted != set && (!little || wanted == allowed || set > allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Rate = Rate { bytes_per_s: 1_000_000, burst_bytes: 20_000 };

    #[test]
    fn an_empty_queue_passes_the_far_receivers_rate_on() {
        let mut pace = Pace::new();
        assert_eq!(pace.follow(0.0, Rate::UNLIMITED), None, "nothing was limited before");
        assert_eq!(pace.follow(0.0, FAR), Some(FAR));
        assert_eq!(pace.follow(0.1, FAR), None);
        assert_eq!(pace.follow(0.0, Rate::UNLIMITED), Some(Rate::UNLIMITED));
    }

    #[test]
    fn the_smallest_change_of_the_far_receivers_rate_is_passed_on() {
        let mut pace = Pace::new();
        pace.follow(0.0, FAR);
        for (bytes_per_s, burst_bytes) in [(900_000, 20_000), (900_001, 20_000), (900_001, 20_001)] {
            let allowed = Rate { bytes_per_s, burst_bytes };
            assert_eq!(pace.follow(0.0, allowed), Some(allowed));
            assert_eq!(pace.follow(0.0, allowed), None, "said already");
        }
    }

    #[test]
    fn a_small_change_of_what_the_relay_made_up_is_said_only_where_the_far_receiver_allows_less() {
        let mut pace = Pace::new();
        pace.drained(4_000_000, Duration::from_secs(1));
        let burst_bytes = FAR.burst_bytes;
        let first = Rate { bytes_per_s: 2_000_000, burst_bytes };
        let lowered = pace.follow(0.615, first).unwrap();
        assert!(lowered.bytes_per_s < FAR.bytes_per_s, "{lowered}");
        assert_eq!(pace.follow(0.62, first), None, "a little less than before");
        let less = Rate { bytes_per_s: lowered.bytes_per_s - 1, burst_bytes };
        assert!(pace.follow(0.62, less).unwrap().bytes_per_s < lowered.bytes_per_s, "more than is allowed");
        assert_eq!(pace.follow(0.0, FAR), Some(FAR), "and nothing is left of it once the queue is empty");
    }

    #[test]
    fn a_growing_queue_lowers_it_and_a_full_one_stops_until_it_is_half_empty() {
        let mut pace = Pace::new();
        for _ in 0..50 {
            pace.drained(10_000, Duration::from_millis(10));
        }
        let lowered = pace.follow(0.615, Rate::UNLIMITED).unwrap();
        assert!((700_000..800_000).contains(&lowered.bytes_per_s), "{lowered}");
        assert!(pace.follow(0.68, Rate::UNLIMITED).unwrap().bytes_per_s < lowered.bytes_per_s);
        assert_eq!(pace.follow(0.8, Rate::UNLIMITED), Some(Rate::STOPPED));
        assert_eq!(pace.follow(0.6, Rate::UNLIMITED), None, "still stopped");
        assert!(pace.follow(0.49, Rate::UNLIMITED).unwrap().bytes_per_s > lowered.bytes_per_s);
        assert_eq!(pace.lowered(), 3, "raising it does not count");
    }

    #[test]
    fn it_never_allows_more_than_the_far_receiver() {
        let mut pace = Pace::new();
        pace.drained(1 << 30, Duration::from_millis(1));
        let lowered = pace.follow(0.5, FAR).unwrap();
        assert!(lowered.bytes_per_s <= FAR.bytes_per_s && lowered.burst_bytes <= FAR.burst_bytes);
        assert_eq!(pace.follow(0.0, Rate::STOPPED), Some(Rate::STOPPED), "a stop is passed on");
        assert_eq!(pace.follow(0.0, FAR), Some(FAR));
    }
}
