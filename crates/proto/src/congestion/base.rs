//! How long a round trip takes whatever the window: the path may be longer than it was, its delay may vary, and of
//! several members of a group that answer when their processes have a core one is always late. A window that is as
//! small as it can be has not made that, and is not made larger by it.
//!
//! Inputs → outputs: round trips with next to nothing under way, time → the least that the window is judged by.
//! Source: BBR's ProbeRTT (Cardwell et al., 2016) for when to measure, RFC 6298 for mean and deviation; decisions 93
//! and 111.

use core::time::Duration;
use denrei_wire::Instant;

/// What was measured counts for so long (BBR's RTpropFilterLen).
const COUNTS: Duration = Duration::from_secs(10);
/// Deviations beyond the mean.
const DEVIATIONS: u64 = 2;

/// Round trips with next to nothing under way; nanoseconds.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Base {
    mean_ns: u64,
    deviation_ns: u64,
    /// The mean as it was measured.
    measured_ns: u64,
    /// When the last was measured.
    at: Option<Instant>,
}

impl Base {
    /// A round trip with next to nothing under way.
    pub fn sample(&mut self, now: Instant, rtt_ns: u64) {
        if self.is_known(now) {
            let off = self.mean_ns.abs_diff(rtt_ns);
            self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + off / 4;
            self.mean_ns = self.mean_ns - self.mean_ns / 8 + rtt_ns / 8;
        } else {
            (self.mean_ns, self.deviation_ns) = (rtt_ns, rtt_ns / 2);
        }
        (self.measured_ns, self.at) = (self.mean_ns, Some(now));
    }

    /// A round trip with more under way. One that is shorter than what it takes "anyway" shows that it does not any more,
    /// or that others have left some of a queue; by half: that this is not the path that was measured.
    #[inline] // with each round trip, and seldom is there anything
    pub fn follow_down(&mut self, rtt_ns: u64) {
        if self.at.is_none() {
            return;
        }
        if rtt_ns < self.measured_ns / 2 {
            *self = Self::default();
        } else if rtt_ns < self.mean_ns.saturating_sub(self.deviation_ns.saturating_mul(DEVIATIONS)) {
            self.mean_ns = rtt_ns;
        }
    }

    /// The path's least round trip, or what it takes anyway.
    #[inline] // with each acknowledgement
    pub fn least(&self, now: Instant, min_rtt_ns: u64) -> u64 {
        if !self.is_known(now) {
            return min_rtt_ns;
        }
        min_rtt_ns.max(self.mean_ns.saturating_add(self.deviation_ns.saturating_mul(DEVIATIONS)))
    }

    fn is_known(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| now < at + COUNTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_anyway_counts_for_a_while() {
        let (mut base, ms) = (Base::default(), |ms: u64| Instant::from_nanos(ms * 1_000_000));
        assert_eq!(base.least(ms(0), 300), 300);
        base.sample(ms(0), 1000);
        assert_eq!((base.least(ms(1), 300), base.least(ms(1), 5000)), (2000, 5000));
        (1..100).for_each(|round| base.sample(ms(round), 1000));
        assert!((1000..1100).contains(&base.least(ms(100), 300)), "{base:?}");
        assert_eq!(base.least(ms(10_200), 300), 300, "the machine may be idle by now");
    }
}
