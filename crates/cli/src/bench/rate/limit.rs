//! The largest burst that a receiver takes without loss (what R12 learns).
//!
//! Inputs → outputs: a receiver and its capacity → bytes, by bisection over bursts that are set, at a rate
//! so low that every burst finds the receiver's buffer empty.

use super::{Measurement, Receiver};
use anyhow::Result;

/// The rate is this part of what the receiver can do.
const RATE_SHARE: u64 = 8;

/// Bursts of one try.
const BURSTS: u64 = 16;

/// Larger bursts are not tried, packets.
const MOST_PACKETS: u64 = 1_024;

/// A burst is too large if it loses something in each of so many tries.
const TRIES: u32 = 2;

impl Measurement<'_> {
    /// Bytes that `receiver`, which takes `capacity` bytes per second, can take in a row; `None` if it
    /// loses nothing of the largest burst that is tried.
    pub(super) fn burst_limit(&self, receiver: Receiver, capacity: u64) -> Result<Option<u64>> {
        let size = self.plan.sizes[0];
        let rate = (capacity / RATE_SHARE).max(1);
        let (mut fits, mut loses) = (0, MOST_PACKETS + 1);
        while loses - fits > 1 {
            let packets = fits.midpoint(loses);
            if self.loses(receiver, rate, packets * size as u64)? { loses = packets } else { fits = packets }
        }
        Ok((fits < MOST_PACKETS).then_some(fits * size as u64))
    }

    fn loses(&self, receiver: Receiver, rate: u64, burst: u64) -> Result<bool> {
        let point = self.fixed(receiver, rate, burst, BURSTS);
        for _ in 0..TRIES {
            if self.measure(&point)?.lost_per_1000 == 0.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
