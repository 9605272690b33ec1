//! The largest burst that a receiver takes without loss (what R12 learns).
//!
//! Inputs → outputs: a receiver and its capacity → bytes, by bisection over bursts that are set, at a rate
//! so low that every burst finds the receiver's buffer empty.

use super::super::control::Pace;
use super::{Measurement, Receiver, SETTLE_SHARE};
use anyhow::Result;

/// The rate is this part of what the receiver can do.
const RATE_SHARE: u64 = 8;

/// Bursts of one try.
const BURSTS: u64 = 16;

/// Larger bursts are not tried, packets.
const MOST_PACKETS: u64 = 1_024;

/// But so many at least, if they take no longer than this: a try that ends before the second burst says nothing.
const LEAST_BURSTS: u64 = 4;
const LONGEST_MS: u64 = 20_000;

/// What a packet carries of them, bytes.
const PACKET_BYTES: u64 = 1_400;

/// A burst is too large if it is in each of so many tries.
const TRIES: u32 = 2;

impl Measurement<'_> {
    /// Bytes that `receiver`, which takes `capacity` bytes per second, can take in a row; `None` if that is
    /// more than the largest burst that is tried, or less than a packet.
    pub(super) fn burst_limit(&self, receiver: Receiver, capacity: u64) -> Result<Option<u64>> {
        let size = self.plan.sizes[0];
        let rate = (capacity / RATE_SHARE).max(1);
        let (mut fits, mut loses) = (0, MOST_PACKETS + 1);
        while loses - fits > 1 {
            let packets = fits.midpoint(loses);
            if self.loses(receiver, rate, packets * size as u64)? { loses = packets } else { fits = packets }
        }
        Ok((1..MOST_PACKETS).contains(&fits).then_some(fits * size as u64))
    }

    fn loses(&self, receiver: Receiver, rate: u64, burst: u64) -> Result<bool> {
        let mut point = self.fixed(receiver, rate, burst, BURSTS);
        lengthen(&mut point.pace, LEAST_BURSTS * burst * 1000 / rate);
        let burst_packets = burst.div_ceil(PACKET_BYTES);
        for _ in 0..TRIES {
            let row = self.measure(&point)?;
            if !is_too_large(row.packets, row.recoveries_per_1000, burst_packets) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Has the only sender send for `send_ms` at least, if that is not too long.
fn lengthen(pace: &mut Pace, send_ms: u64) {
    let send_ms = pace.send_ms[0].max(send_ms.min(LONGEST_MS));
    (pace.send_ms, pace.settle_ms) = (vec![send_ms], send_ms / SETTLE_SHARE);
}

/// Whether `packets` in bursts of `burst_packets` were bursts that the receiver could not take: each of those starts
/// a recovery. Where fewer do, it was kept from its core for longer than its buffer lasts, which happens whatever
/// the burst is.
fn is_too_large(packets: u64, recoveries_per_1000: f64, burst_packets: u64) -> bool {
    let recoveries = recoveries_per_1000 * packets as f64 / 1000.0;
    2.0 * recoveries * burst_packets as f64 >= packets as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_burst_that_is_too_large_loses_and_others_do_now_and_then() {
        // A dozen bursts of 64 packets, of which each loses; and four hundred of a single packet, of which a pause of the
        // receiver takes some.
        assert!(is_too_large(800, 15.0, 64));
        assert!(!is_too_large(400, 5.0, 1));
        assert!(!is_too_large(560, 0.0, 56));
        assert!(!is_too_large(560, 4.0, 56), "two of ten");
        assert!(is_too_large(0, 0.0, 56), "none came in time: nobody can say that it fits");
    }

    #[test]
    fn a_try_lasts_for_several_bursts() {
        let pace = |send_ms| Pace {
            fixed: Some((1_000_000, 512 * 1400)),
            read_ns: 0,
            buffer_bytes: None,
            send_ms: vec![send_ms],
            settle_ms: send_ms / SETTLE_SHARE,
            trains: false,
            timed: false,
        };
        let lengthened = |from, to| {
            let mut pace = pace(from);
            lengthen(&mut pace, to);
            (pace.send_ms[0], pace.settle_ms)
        };
        // Three of four bursts are counted.
        assert_eq!(lengthened(1_500, 2_868), (2_868, 717));
        assert_eq!(lengthened(1_500, 900), (1_500, 375));
        assert_eq!(lengthened(1_500, 1 << 40), (20_000, 5_000));
    }
}
