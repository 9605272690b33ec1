//! CUBIC, for paths shared with TCP over a distance.
//!
//! Source: RFC 9438. Deviation: no HyStart++; slow start ends at the first loss or mark. Windows
//! are in bytes of cost, time in seconds, as in the RFC's formulas.

use super::{Acked, Controller, Limits};
use core::time::Duration;
use denrei_wire::Instant;

/// Multiplicative decrease β (RFC 9438 §4.6).
const BETA: f64 = 0.7;
/// Aggressiveness C, in segments per second cubed (RFC 9438 §4.1).
const C: f64 = 0.4;

/// The controller.
#[derive(Debug)]
pub(super) struct Cubic {
    limits: Limits,
    window: f64,
    /// Window before the last reduction.
    w_max: f64,
    /// Window after it, from which the Reno-friendly estimate starts.
    w_est: f64,
    slow_start_threshold: f64,
    epoch: Option<Instant>,
    reacted_at: Option<Instant>,
    /// The window before the last persistent loss.
    before_silence: f64,
}

impl Cubic {
    pub fn new(datagram_bytes: u64) -> Self {
        let limits = Limits::new(datagram_bytes);
        Self {
            limits,
            window: limits.initial() as f64,
            w_max: 0.0,
            w_est: 0.0,
            slow_start_threshold: f64::INFINITY,
            epoch: None,
            reacted_at: None,
            before_silence: 0.0,
        }
    }

    fn reduce(&mut self, now: Instant) {
        // Fast convergence (§4.7): release bandwidth to newcomers when the maximum falls.
        self.w_max = if self.window < self.w_max { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = self.limits.clamp((self.window * BETA) as u64) as f64;
        self.slow_start_threshold = self.window;
        self.epoch = None;
        self.reacted_at = Some(now);
    }

    /// W_cubic(t) of §4.2, in bytes.
    fn w_cubic(&self, t: Duration) -> f64 {
        let segment = self.limits.datagram as f64;
        let k = ((self.w_max - self.slow_start_threshold).max(0.0) / segment / C).cbrt();
        let since = t.as_secs_f64() - k;
        C * since * since * since * segment + self.w_max
    }

    fn avoid_congestion(&mut self, acked: Acked) {
        let segment = self.limits.datagram as f64;
        let epoch = *self.epoch.get_or_insert_with(|| {
            self.w_est = self.window;
            acked.now
        });
        let t = acked.now.saturating_since(epoch);
        // §4.3: Reno-friendly region with α = 3 (1 − β) / (1 + β), 1 once W_est has reached W_max.
        let alpha = if self.w_est < self.w_max { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_est += alpha * segment * acked.cost as f64 / self.window;
        let target =
            self.w_cubic(t + Duration::from_nanos(acked.srtt_ns)).clamp(self.window, 1.5 * self.window);
        let cubic = self.window + (target - self.window) * acked.cost as f64 / self.window;
        self.window = self.limits.clamp(cubic.max(self.w_est) as u64) as f64;
    }

    fn may_react(&self, sent_at: Instant) -> bool {
        self.reacted_at.is_none_or(|reacted| sent_at > reacted)
    }
}

impl Controller for Cubic {
    fn on_ack(&mut self, acked: Acked) {
        if acked.marked > 0 && self.may_react(acked.sent_at) {
            return self.reduce(acked.now);
        }
        if !acked.window_limited {
            // §5.8: time without traffic must not count as growth.
            self.epoch = None;
        } else if self.window < self.slow_start_threshold {
            self.window = self.limits.clamp(self.window as u64 + acked.cost) as f64;
        } else {
            self.avoid_congestion(acked);
        }
    }

    fn on_loss(&mut self, now: Instant, sent_at: Instant, _packets: u64) {
        if self.may_react(sent_at) {
            self.reduce(now);
        }
    }

    fn on_persistent_loss(&mut self) {
        self.before_silence = self.window;
        self.window = self.limits.clamp(0) as f64;
        self.epoch = None;
    }

    fn on_absence(&mut self) {
        self.window = self.window.max(self.before_silence);
    }

    fn set_datagram_bytes(&mut self, bytes: u64) {
        let fresh = self.window as u64 == self.limits.initial();
        self.limits = Limits::new(bytes);
        let window = self.window as u64;
        self.window = if fresh { self.limits.initial() } else { self.limits.clamp(window) } as f64;
    }

    fn window(&self) -> u64 {
        self.window as u64
    }
}
