//! Round-trip time (RFC 9002 §5). Every sample is unambiguous, because packet numbers are never
//! reused: what Karn's rule was for in M7.
//!
//! Inputs → outputs: samples with the receiver's delay → smoothed, minimum and deviation, and the
//! probe timeout made of them.

use crate::ack::LONGEST_HELD;
use core::time::Duration;
use denrei_wire::{Instant, duration_nanos};

/// Least allowance for scheduling and timers in a probe timeout, ns; TCP's is 200 ms.
const GRANULARITY_NS: u64 = 1_000_000;

/// Probes of a silent path come at least this often, unless the path is longer: a cable plugged in
/// again is noticed soon, and one stop of the process in the middle of a sample costs no seconds.
pub(crate) const LONGEST_PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// A path whose least round-trip time is a third of that has longer probe timeouts …
const LONGEST_IN_MIN_RTTS: u64 = 3;

/// … of which so many fit into the time after which a silent peer is lost: all samples so far may have been taken
/// across one stop of the process, which says nothing about the path.
const LEAST_PROBES: u64 = 2;

/// After this long the smallest sample is measured anew, so that a path that got longer is learnt, ns.
const MIN_RTT_LIFETIME_NS: u64 = 30_000_000_000;

/// Round-trip time of one path. Nanoseconds inside: it is part of every session and asked for with
/// every packet.
#[derive(Debug, Clone)]
pub(crate) struct Rtt {
    /// 0 before the first sample.
    smoothed_ns: u64,
    first_at: Instant,
    variation_ns: u64,
    latest_ns: u64,
    min_ns: u64,
    min_at: Instant,
    /// Smallest sample since `min_at`, which replaces the minimum when its lifetime is over.
    recent_min_ns: u64,
    initial_ns: u64,
    /// Longest time the peer says it holds an acknowledgement back.
    max_ack_delay_ns: u64,
    /// What of that may be waited for: little while one is under way that is asked for at once.
    usual_delay_ns: u64,
    asked: bool,
    /// How long it did of late, which may be longer: for its application's answers, and for grants.
    held_ns: u64,
    /// No probe timeout is longer, how long ever the path seems.
    patience_ns: u64,
    /// Made anew with each sample.
    probe_timeout_ns: u64,
}

impl Rtt {
    /// Of a path that nothing is known of, to a peer that is lost when it is silent for `failure_timeout`.
    pub fn new(initial: Duration, max_ack_delay: Duration, failure_timeout: Duration) -> Self {
        let initial_ns = duration_nanos(initial);
        let mut rtt = Self {
            smoothed_ns: 0,
            first_at: Instant::ZERO,
            variation_ns: initial_ns / 2,
            latest_ns: initial_ns,
            min_ns: u64::MAX,
            min_at: Instant::ZERO,
            recent_min_ns: u64::MAX,
            initial_ns,
            max_ack_delay_ns: 0,
            usual_delay_ns: 0,
            asked: false,
            held_ns: 0,
            patience_ns: duration_nanos(failure_timeout) / LEAST_PROBES,
            probe_timeout_ns: 0,
        };
        rtt.set_max_ack_delay(max_ack_delay);
        rtt
    }

    /// The peer has told how long it may hold an acknowledgement back.
    pub fn set_max_ack_delay(&mut self, max_ack_delay: Duration) {
        self.max_ack_delay_ns = duration_nanos(max_ack_delay);
        self.expect(self.asked);
    }

    /// Whether a packet is under way whose acknowledgement is asked for at once: then none is held back for long.
    pub fn expect(&mut self, asked: bool) {
        self.asked = asked;
        let most = if asked { GRANULARITY_NS } else { u64::MAX };
        self.usual_delay_ns = self.max_ack_delay_ns.min(most);
        self.set_probe_timeout();
    }

    /// Whether such a packet was under way when this was last told.
    pub fn is_asked(&self) -> bool {
        self.asked
    }

    fn set_probe_timeout(&mut self) {
        let allowance = self.variation_ns.saturating_mul(4).max(GRANULARITY_NS);
        let wanted = self.smoothed_ns().saturating_add(allowance).saturating_add(self.ack_delay_ns());
        let longest = self.min_ns().saturating_mul(LONGEST_IN_MIN_RTTS).min(self.patience_ns);
        self.probe_timeout_ns = wanted.min(longest.max(duration_nanos(LONGEST_PROBE_TIMEOUT)));
    }

    fn ack_delay_ns(&self) -> u64 {
        self.usual_delay_ns.max(self.held_ns)
    }

    /// The peer has answered for the first time, after so long: no more is assumed until there is a sample, or a first
    /// flight that is lost whole would be missed late. Longer says nothing: this side may not have looked.
    pub fn on_answer(&mut self, after_ns: u64) {
        if self.smoothed_ns == 0 && after_ns < self.initial_ns {
            self.initial_ns = after_ns.max(1);
            self.variation_ns = after_ns / 2;
            self.set_probe_timeout();
        }
    }

    /// What was probed for had arrived: its acknowledgement came `after` it was sent.
    pub fn on_needless_probe(&mut self, after: Duration) {
        self.held_ns = self.held_ns.max(duration_nanos(after.min(LONGEST_HELD)));
        self.set_probe_timeout();
    }

    /// Takes a sample; `ack_delay_ns` is what the receiver says it waited.
    #[inline] // on the way of every packet
    pub fn sample(&mut self, now: Instant, sample_ns: u64, ack_delay_ns: u64) {
        self.update(now, sample_ns, ack_delay_ns);
        // One that was away for so long may not know when the packet came.
        self.held_ns = ack_delay_ns.min(sample_ns).max(self.held_ns / 2);
        self.set_probe_timeout();
    }

    fn update(&mut self, now: Instant, sample_ns: u64, ack_delay_ns: u64) {
        self.latest_ns = sample_ns;
        self.update_min(now, sample_ns);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = sample_ns.max(1);
            self.first_at = now;
            self.variation_ns = sample_ns / 2;
            return;
        }
        // RFC 9002 §5.3: the delay is taken off only as far as the sample stays plausible.
        let plausible = sample_ns >= self.min_ns.saturating_add(ack_delay_ns);
        let adjusted = if plausible { sample_ns - ack_delay_ns } else { sample_ns };
        self.latest_ns = adjusted;
        let deviation = self.smoothed_ns.abs_diff(adjusted);
        self.variation_ns = weighted(self.variation_ns, 3, deviation);
        self.smoothed_ns = weighted(self.smoothed_ns, 7, adjusted).max(1);
    }

    fn update_min(&mut self, now: Instant, sample_ns: u64) {
        self.recent_min_ns = self.recent_min_ns.min(sample_ns);
        let outlived = now.nanos_since(self.min_at) > MIN_RTT_LIFETIME_NS;
        if sample_ns <= self.min_ns {
            self.min_ns = sample_ns;
        } else if outlived {
            self.min_ns = self.recent_min_ns;
        } else {
            return;
        }
        self.min_at = now;
        self.recent_min_ns = u64::MAX;
    }

    /// How long ago the first sample was taken.
    pub fn known_for(&self, now: Instant) -> Duration {
        if self.smoothed_ns == 0 { Duration::ZERO } else { now.saturating_since(self.first_at) }
    }

    /// Smoothed RTT, or the assumed one before the first sample, nanoseconds.
    pub fn smoothed_ns(&self) -> u64 {
        if self.smoothed_ns == 0 { self.initial_ns } else { self.smoothed_ns }
    }

    /// Smallest recent sample, or the assumed RTT before the first, nanoseconds.
    pub fn min_ns(&self) -> u64 {
        if self.min_ns == u64::MAX { self.initial_ns } else { self.min_ns }
    }

    /// Smoothed RTT, or the assumed one before the first sample.
    pub fn smoothed(&self) -> Duration {
        Duration::from_nanos(self.smoothed_ns())
    }

    /// Smoothed RTT if there has been a sample.
    pub fn measured(&self) -> Option<Duration> {
        (self.smoothed_ns > 0).then(|| self.smoothed())
    }

    /// Latest sample, without the receiver's delay, nanoseconds.
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// Smallest recent sample, or the assumed RTT before the first.
    pub fn min(&self) -> Duration {
        Duration::from_nanos(self.min_ns())
    }

    /// Mean deviation.
    pub fn variation(&self) -> Duration {
        Duration::from_nanos(self.variation_ns)
    }

    /// How long to wait for an acknowledgement before probing (RFC 9002 §6.2.1).
    pub fn probe_timeout(&self) -> Duration {
        Duration::from_nanos(self.probe_timeout_ns)
    }

    /// The same where the acknowledgement comes with a grant that may take as long as one is ever held back (§13.3).
    pub fn probe_timeout_before_grant(&self) -> Duration {
        let longer_ns = duration_nanos(LONGEST_HELD).saturating_sub(self.ack_delay_ns());
        Duration::from_nanos(self.probe_timeout_ns.saturating_add(longer_ns))
    }

    /// How late a packet may be, when later ones have arrived, before it is lost (RFC 9002 §6.1.2): an eighth, and one for
    /// each step of patience.
    pub fn loss_delay(&self, patience: u8) -> Duration {
        const MIN_LOSS_DELAY_NS: u64 = 100_000;
        let newest = self.smoothed_ns().max(self.latest_ns);
        Duration::from_nanos(
            newest
                .saturating_add((newest / 8).saturating_mul(u64::from(patience) + 1))
                .max(MIN_LOSS_DELAY_NS),
        )
    }
}

/// The mean of `old`, `times` times, and `new`, once.
fn weighted(old: u64, times: u64, new: u64) -> u64 {
    old.saturating_mul(times).saturating_add(new) / (times + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const MS_NS: u64 = 1_000_000;

    #[test]
    fn the_receivers_delay_is_taken_off_unless_implausible() {
        let mut rtt = Rtt::new(10 * MS, MS, 10_000 * MS);
        rtt.sample(Instant::ZERO, 2 * MS_NS, MS_NS);
        assert_eq!(rtt.smoothed(), 2 * MS);
        rtt.sample(Instant::ZERO, 4 * MS_NS, 2 * MS_NS);
        assert_eq!(rtt.latest_ns(), 2_000_000);
        rtt.sample(Instant::ZERO, 3 * MS_NS, 2 * MS_NS);
        assert_eq!(rtt.latest_ns(), 3_000_000, "less than the minimum would remain");
        assert_eq!(rtt.min(), 2 * MS);
    }

    #[test]
    fn the_probe_timeout_is_milliseconds_on_a_lan() {
        let mut rtt = Rtt::new(10 * MS, MS, 10_000 * MS);
        for _ in 0..50 {
            rtt.sample(Instant::ZERO, 20_000, 0);
        }
        assert!(rtt.probe_timeout() < 3 * MS, "{:?}", rtt.probe_timeout());
    }

    #[test]
    fn a_peer_that_waits_for_answers_is_not_probed_meanwhile_and_one_that_does_not_is_soon() {
        let mut rtt = Rtt::new(10 * MS, MS, 10_000 * MS);
        let settle = |rtt: &mut Rtt, ack_delay_ns| {
            (0..50).for_each(|_| rtt.sample(Instant::ZERO, 20_000 + ack_delay_ns, ack_delay_ns));
        };
        let timeout_ms = |rtt: &Rtt| rtt.probe_timeout().as_millis();
        settle(&mut rtt, 0);
        assert_eq!(timeout_ms(&rtt), 2);
        rtt.on_needless_probe(6 * MS);
        assert_eq!(timeout_ms(&rtt), 7);
        rtt.sample(Instant::ZERO, 20_000, 0);
        assert_eq!(timeout_ms(&rtt), 4, "it may have been its answer that was lost");
        settle(&mut rtt, 5 * MS_NS);
        assert_eq!(timeout_ms(&rtt), 6);
        settle(&mut rtt, 0);
        assert_eq!(timeout_ms(&rtt), 2);
        assert_eq!(rtt.probe_timeout_before_grant().as_millis(), 11, "whatever it did before");
        rtt.on_needless_probe(3_000 * MS);
        assert_eq!(timeout_ms(&rtt), 11, "no more than peers wait");
        assert_eq!(rtt.probe_timeout_before_grant(), rtt.probe_timeout());
    }

    #[test]
    fn a_peer_that_was_asked_is_not_given_the_time_that_others_are() {
        let mut rtt = Rtt::new(10 * MS, 50 * MS, 10_000 * MS);
        (0..50).for_each(|_| rtt.sample(Instant::ZERO, 20_000, 0));
        let timeout_ms = |rtt: &Rtt| rtt.probe_timeout().as_millis();
        assert_eq!(timeout_ms(&rtt), 51);
        rtt.expect(true);
        assert_eq!(timeout_ms(&rtt), 2);
        rtt.on_needless_probe(6 * MS);
        assert_eq!(timeout_ms(&rtt), 7, "unless it was late all the same");
        rtt.set_max_ack_delay(MS / 2);
        rtt.sample(Instant::ZERO, 20_000, 0);
        rtt.expect(false);
        assert_eq!(timeout_ms(&rtt), 4);
    }

    #[test]
    fn one_sample_taken_across_a_stop_does_not_silence_probes() {
        let mut rtt = Rtt::new(10 * MS, MS, 10_000 * MS);
        rtt.sample(Instant::ZERO, 4_000 * MS_NS, 0);
        rtt.sample(Instant::ZERO, MS_NS, 0);
        assert_eq!(rtt.probe_timeout(), LONGEST_PROBE_TIMEOUT);
        let mut satellite = Rtt::new(10 * MS, MS, 10_000 * MS);
        satellite.sample(Instant::ZERO, 600 * MS_NS, 0);
        assert!(satellite.probe_timeout() > 1_200 * MS, "{:?}", satellite.probe_timeout());
    }

    #[test]
    fn a_peer_is_probed_before_it_counts_as_lost_although_all_samples_were_taken_across_a_stop() {
        let mut rtt = Rtt::new(10 * MS, MS, 3_000 * MS);
        for _ in 0..5 {
            rtt.sample(Instant::ZERO, 6_000 * MS_NS, 0);
        }
        assert_eq!(rtt.probe_timeout(), 1_500 * MS);
    }

    #[test]
    fn a_longer_path_is_learnt_after_a_while() {
        let mut rtt = Rtt::new(10 * MS, MS, 10_000 * MS);
        rtt.sample(Instant::ZERO, MS_NS, 0);
        for second in 1..=62 {
            rtt.sample(Instant::from_nanos(second * 1_000_000_000), 5 * MS_NS, 0);
        }
        assert_eq!(rtt.min(), 5 * MS);
    }
}
