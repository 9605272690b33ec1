//! One direction of a link: a tail-drop queue in front of a wire.
//!
//! Inputs → outputs: a datagram's size and ECN bits at a time → when and how it arrives at the
//! other end, or that it does not. The queue is never walked: a first-in first-out queue in front
//! of a constant rate is fully described by the time at which the wire falls idle.

use super::faults::{FaultCounts, Faults};
use crate::rng::Rng;
use core::time::Duration;
use denrei_wire::{Ecn, Instant, duration_nanos};

/// What a datagram costs on an Ethernet wire beyond its UDP payload: 8 UDP + 20 IPv4 + 14 header
/// + 4 check sequence + 8 preamble + 12 gap, bytes.
pub const WIRE_OVERHEAD_BYTES: u64 = 66;

/// Picoseconds per nanosecond: the unit of the wire's clock, so that a minimal frame at 100 Gb/s
/// (5 ns) is not rounded.
const PS_PER_NS: u64 = 1000;

/// Properties of one direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkSpec {
    /// Bits on the wire per second, at least 1.
    pub rate_bits_per_s: u64,
    /// Propagation delay.
    pub delay: Duration,
    /// Bytes that may wait in front of the wire; datagrams beyond are dropped.
    pub queue_bytes: u64,
    /// Above this many waiting bytes ECN-capable datagrams are marked; `None`: never.
    pub ecn_above_bytes: Option<u64>,
    /// Largest datagram, bytes of UDP payload.
    pub max_datagram_bytes: u16,
}

impl LinkSpec {
    /// A datacentre link: 10 Gb/s, 2 µs, 1 MiB of queue marking above 100 KB, 1,500-byte frames.
    pub const LAN: Self = Self {
        rate_bits_per_s: 10_000_000_000,
        delay: Duration::from_micros(2),
        queue_bytes: 1 << 20,
        ecn_above_bytes: Some(100_000),
        max_datagram_bytes: 1472,
    };
}

/// How a datagram gets to the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// When.
    pub at: Instant,
    /// With which ECN bits.
    pub ecn: Ecn,
    /// How many of its bits are flipped.
    pub flipped_bits: u8,
    /// When a second copy arrives.
    pub copy_at: Option<Instant>,
}

/// One direction of a link at work.
#[derive(Clone, Debug)]
pub struct Link {
    spec: LinkSpec,
    /// What goes wrong on it.
    pub faults: Faults,
    in_burst: bool,
    idle_at_ps: u64,
    last_arrival: Instant,
    deepest_queue_bytes: u64,
}

impl Link {
    /// An idle link without faults.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn new(spec: LinkSpec) -> Self {
        assert!(spec.rate_bits_per_s > 0, "a link needs a rate");
        Self {
            spec,
            faults: Faults::default(),
            in_burst: false,
            idle_at_ps: 0,
            last_arrival: Instant::ZERO,
            deepest_queue_bytes: 0,
        }
    }

    /// Its properties.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Largest queue so far, bytes.
    pub fn deepest_queue_bytes(&self) -> u64 {
        self.deepest_queue_bytes
    }

    /// Bytes that wait or are being sent.
    pub fn queued_bytes(&self, now: Instant) -> u64 {
        let wait_ps = self.idle_at_ps.saturating_sub(now.as_nanos().saturating_mul(PS_PER_NS));
        (wait_ps as u128 * self.spec.rate_bits_per_s as u128 / 8_000_000_000_000) as u64
    }

    /// When no more than `bytes` will wait.
    pub fn drained_to(&self, bytes: u64) -> Instant {
        let at_ps = self.idle_at_ps.saturating_sub(self.wire_time_ps(bytes));
        Instant::from_nanos(at_ps.div_ceil(PS_PER_NS))
    }

    /// Sends a datagram of `len` bytes; `None`: it is lost, and counted.
    pub fn pass(
        &mut self,
        now: Instant,
        len: usize,
        ecn: Ecn,
        rng: &mut Rng,
        counts: &mut FaultCounts,
    ) -> Option<Passage> {
        if self.faults.down {
            counts.cut += 1;
            return None;
        }
        let limit = self.faults.black_hole_above.unwrap_or(u16::MAX).min(self.spec.max_datagram_bytes);
        if len > limit as usize {
            counts.black_holed += 1;
            return None;
        }
        let queued = self.queued_bytes(now);
        let on_wire = len as u64 + WIRE_OVERHEAD_BYTES;
        if queued + on_wire > self.spec.queue_bytes {
            counts.queue_full += 1;
            return None;
        }
        self.deepest_queue_bytes = self.deepest_queue_bytes.max(queued + on_wire);
        let start_ps = self.idle_at_ps.max(now.as_nanos().saturating_mul(PS_PER_NS));
        self.idle_at_ps = start_ps.saturating_add(self.wire_time_ps(on_wire));
        if self.loses(rng, counts) {
            return None;
        }
        let ecn = self.mark(ecn, queued, counts);
        Some(self.arrival(ecn, rng, counts))
    }

    fn wire_time_ps(&self, bytes: u64) -> u64 {
        (bytes as u128 * 8_000_000_000_000 / self.spec.rate_bits_per_s as u128) as u64
    }

    fn mark(&self, ecn: Ecn, queued: u64, counts: &mut FaultCounts) -> Ecn {
        let above = self.spec.ecn_above_bytes.is_some_and(|threshold| queued > threshold);
        if !above || !matches!(ecn, Ecn::Ect0 | Ecn::Ect1) {
            return ecn;
        }
        counts.ecn_marked += 1;
        Ecn::Ce
    }

    fn loses(&mut self, rng: &mut Rng, counts: &mut FaultCounts) -> bool {
        if rng.chance(self.faults.loss) {
            counts.lost += 1;
            return true;
        }
        let Some(burst) = self.faults.burst else {
            self.in_burst = false;
            return false;
        };
        let changes = rng.chance(if self.in_burst { burst.leave } else { burst.enter });
        self.in_burst ^= changes;
        let lost = self.in_burst && rng.chance(burst.loss);
        counts.lost_in_burst += lost as u64;
        lost
    }

    fn arrival(&mut self, ecn: Ecn, rng: &mut Rng, counts: &mut FaultCounts) -> Passage {
        let faults = self.faults;
        let on_time = Instant::from_nanos(self.idle_at_ps.div_ceil(PS_PER_NS)) + self.spec.delay;
        let late = on_time + random_delay(rng, faults.jitter);
        let mut at = late.max(self.last_arrival);
        if rng.chance(faults.reorder) {
            counts.reordered += 1;
            at += random_delay(rng, faults.reorder_delay);
        } else {
            self.last_arrival = at;
        }
        let flipped_bits = if rng.chance(faults.corrupt) { rng.within(1..=3) as u8 } else { 0 };
        counts.corrupted += (flipped_bits > 0) as u64;
        let copy_at = rng.chance(faults.duplicate).then(|| at + random_delay(rng, faults.reorder_delay));
        counts.duplicated += copy_at.is_some() as u64;
        Passage { at, ecn, flipped_bits, copy_at }
    }
}

fn random_delay(rng: &mut Rng, longest: Duration) -> Duration {
    if longest.is_zero() {
        return longest;
    }
    Duration::from_nanos(rng.within(0..=duration_nanos(longest)))
}

#[cfg(test)]
mod tests {
    use super::super::faults::Burst;
    use super::*;

    const SLOW: LinkSpec = LinkSpec {
        rate_bits_per_s: 8_000_000, // 1 byte per µs
        delay: Duration::from_millis(5),
        queue_bytes: 4_000,
        ecn_above_bytes: Some(1_500),
        max_datagram_bytes: 1472,
    };
    const LEN: usize = 934; // 1,000 bytes on the wire

    fn burst_of(link: &mut Link, count: usize) -> (Vec<Option<Passage>>, FaultCounts) {
        let (mut rng, mut counts) = (Rng::new(1), FaultCounts::default());
        let passages =
            (0..count).map(|_| link.pass(Instant::ZERO, LEN, Ecn::Ect0, &mut rng, &mut counts)).collect();
        (passages, counts)
    }

    #[test]
    fn datagrams_leave_at_the_rate_of_the_wire_and_the_queue_drops_its_tail() {
        let mut link = Link::new(SLOW);
        let (passages, counts) = burst_of(&mut link, 6);
        let arrivals: Vec<_> =
            passages.iter().flatten().map(|passage| passage.at.as_nanos() / 1000).collect();
        assert_eq!(arrivals, [6_000, 7_000, 8_000, 9_000], "µs: 5 ms of delay, 1 ms a datagram");
        assert_eq!(counts.queue_full, 2);
        assert_eq!(link.deepest_queue_bytes(), 4_000);
        let marks: Vec<_> = passages.iter().flatten().map(|passage| passage.ecn == Ecn::Ce).collect();
        assert_eq!(marks, [false, false, true, true], "marked above 1,500 waiting bytes");
        assert_eq!(link.drained_to(1_000), Instant::from_nanos(3_000_000));
    }

    #[test]
    fn too_large_datagrams_vanish() {
        let mut link = Link::new(SLOW);
        link.faults.black_hole_above = Some(900);
        let (passages, counts) = burst_of(&mut link, 1);
        assert_eq!((passages[0], counts.black_holed), (None, 1));
        link.faults.heal();
        assert!(burst_of(&mut link, 1).0[0].is_some());
    }

    #[test]
    fn bursts_have_the_length_and_share_they_were_given() {
        let mut link = Link::new(LinkSpec { queue_bytes: u64::MAX, ..SLOW });
        link.faults.burst = Some(Burst { enter: 0.01, leave: 0.25, loss: 1.0 });
        let (passages, counts) = burst_of(&mut link, 500_000);
        let bursts = passages.windows(2).filter(|pair| pair[0].is_some() && pair[1].is_none()).count();
        let mean = counts.lost_in_burst as f64 / bursts as f64;
        assert!((3.8..4.2).contains(&mean), "mean burst of {mean} datagrams, 4 expected");
    }

    #[test]
    fn jitter_keeps_the_order_and_reordering_does_not() {
        let inversions = |faults: Faults| {
            let mut link = Link::new(LinkSpec { queue_bytes: u64::MAX, ..SLOW });
            link.faults = faults;
            let arrivals: Vec<_> = burst_of(&mut link, 1000).0.into_iter().flatten().map(|p| p.at).collect();
            arrivals.windows(2).filter(|pair| pair[1] < pair[0]).count()
        };
        assert_eq!(inversions(Faults { jitter: Duration::from_millis(20), ..Faults::default() }), 0);
        let delay = Duration::from_millis(20);
        assert!(inversions(Faults { reorder: 0.1, reorder_delay: delay, ..Faults::default() }) > 50);
    }
}
