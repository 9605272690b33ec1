//! Round-trip time (RFC 9002 §5). Every sample is unambiguous, because packet numbers are never
//! reused: what Karn's rule was for in M7.
//!
//! Inputs → outputs: samples with the receiver's delay → smoothed, minimum and deviation, and the
//! probe timeout made of them.

use core::time::Duration;
use denrei_wire::Instant;

/// Least allowance for scheduling and timers in a probe timeout; TCP's is 200 ms.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Probes of a silent path come at least this often, unless the path is longer: a cable plugged in
/// again is noticed soon, and one stop of the process in the middle of a sample costs no seconds.
pub(crate) const LONGEST_PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// A path whose least round-trip time is a third of that has longer probe timeouts.
const LONGEST_IN_MIN_RTTS: u32 = 3;

/// After this long the smallest sample is measured anew, so that a path that got longer is learnt.
const MIN_RTT_LIFETIME: Duration = Duration::from_secs(30);

/// Round-trip time of one path.
#[derive(Debug, Clone)]
pub(crate) struct Rtt {
    smoothed: Option<Duration>,
    variation: Duration,
    latest: Duration,
    min: Duration,
    min_at: Instant,
    /// Smallest sample since `min_at`, which replaces `min` when its lifetime is over.
    recent_min: Duration,
    initial: Duration,
    /// Longest time the peer holds an acknowledgement back.
    max_ack_delay: Duration,
    /// Made anew with each sample: it is asked for with each packet.
    probe_timeout: Duration,
}

impl Rtt {
    pub fn new(initial: Duration, max_ack_delay: Duration) -> Self {
        let mut rtt = Self {
            smoothed: None,
            variation: initial / 2,
            latest: initial,
            min: Duration::MAX,
            min_at: Instant::ZERO,
            recent_min: Duration::MAX,
            initial,
            max_ack_delay,
            probe_timeout: Duration::ZERO,
        };
        rtt.set_max_ack_delay(max_ack_delay);
        rtt
    }

    /// The peer has told how long it may hold an acknowledgement back.
    pub fn set_max_ack_delay(&mut self, max_ack_delay: Duration) {
        self.max_ack_delay = max_ack_delay;
        let wanted = self.smoothed() + (self.variation * 4).max(GRANULARITY) + max_ack_delay;
        self.probe_timeout = wanted.min(LONGEST_PROBE_TIMEOUT.max(self.min() * LONGEST_IN_MIN_RTTS));
    }

    /// Takes a sample; `ack_delay` is what the receiver says it waited.
    pub fn sample(&mut self, now: Instant, sample: Duration, ack_delay: Duration) {
        self.update(now, sample, ack_delay);
        self.set_max_ack_delay(self.max_ack_delay);
    }

    fn update(&mut self, now: Instant, sample: Duration, ack_delay: Duration) {
        self.latest = sample;
        self.update_min(now, sample);
        let Some(smoothed) = self.smoothed else {
            self.smoothed = Some(sample);
            self.variation = sample / 2;
            return;
        };
        // RFC 9002 §5.3: the delay is taken off only as far as the sample stays plausible.
        let adjusted = if sample >= self.min + ack_delay { sample - ack_delay } else { sample };
        self.latest = adjusted;
        let deviation = smoothed.abs_diff(adjusted);
        self.variation = (self.variation * 3 + deviation) / 4;
        self.smoothed = Some((smoothed * 7 + adjusted) / 8);
    }

    fn update_min(&mut self, now: Instant, sample: Duration) {
        self.recent_min = self.recent_min.min(sample);
        if sample <= self.min {
            self.min = sample;
            self.min_at = now;
            self.recent_min = Duration::MAX;
        } else if now.saturating_since(self.min_at) > MIN_RTT_LIFETIME {
            self.min = self.recent_min;
            self.min_at = now;
            self.recent_min = Duration::MAX;
        }
    }

    /// Smoothed RTT, or the assumed one before the first sample.
    pub fn smoothed(&self) -> Duration {
        self.smoothed.unwrap_or(self.initial)
    }

    /// Smoothed RTT if there has been a sample.
    pub fn measured(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Latest sample, without the receiver's delay.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// Smallest recent sample, or the assumed RTT before the first.
    pub fn min(&self) -> Duration {
        if self.min == Duration::MAX { self.initial } else { self.min }
    }

    /// Mean deviation.
    pub fn variation(&self) -> Duration {
        self.variation
    }

    /// How long to wait for an acknowledgement before probing (RFC 9002 §6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        self.probe_timeout
    }

    /// How late a packet may be, when later ones have arrived, before it is lost (RFC 9002 §6.1.2).
    pub fn loss_delay(&self) -> Duration {
        const MIN_LOSS_DELAY: Duration = Duration::from_micros(100);
        (self.smoothed().max(self.latest) * 9 / 8).max(MIN_LOSS_DELAY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_receivers_delay_is_taken_off_unless_implausible() {
        let mut rtt = Rtt::new(10 * MS, MS);
        rtt.sample(Instant::ZERO, 2 * MS, MS);
        assert_eq!(rtt.smoothed(), 2 * MS);
        rtt.sample(Instant::ZERO, 4 * MS, 2 * MS);
        assert_eq!(rtt.latest(), 2 * MS);
        rtt.sample(Instant::ZERO, 3 * MS, 2 * MS);
        assert_eq!(rtt.latest(), 3 * MS, "less than the minimum would remain");
        assert_eq!(rtt.min(), 2 * MS);
    }

    #[test]
    fn the_probe_timeout_is_milliseconds_on_a_lan() {
        let mut rtt = Rtt::new(10 * MS, MS);
        for _ in 0..50 {
            rtt.sample(Instant::ZERO, Duration::from_micros(20), Duration::ZERO);
        }
        assert!(rtt.probe_timeout() < 3 * MS, "{:?}", rtt.probe_timeout());
    }

    #[test]
    fn one_sample_taken_across_a_stop_does_not_silence_probes() {
        let mut rtt = Rtt::new(10 * MS, MS);
        rtt.sample(Instant::ZERO, 4_000 * MS, Duration::ZERO);
        rtt.sample(Instant::ZERO, MS, Duration::ZERO);
        assert_eq!(rtt.probe_timeout(), LONGEST_PROBE_TIMEOUT);
        let mut satellite = Rtt::new(10 * MS, MS);
        satellite.sample(Instant::ZERO, 600 * MS, Duration::ZERO);
        assert!(satellite.probe_timeout() > 1_200 * MS, "{:?}", satellite.probe_timeout());
    }

    #[test]
    fn a_longer_path_is_learnt_after_a_while() {
        let mut rtt = Rtt::new(10 * MS, MS);
        rtt.sample(Instant::ZERO, MS, Duration::ZERO);
        for second in 1..=62 {
            rtt.sample(Instant::from_nanos(second * 1_000_000_000), 5 * MS, Duration::ZERO);
        }
        assert_eq!(rtt.min(), 5 * MS);
    }
}
