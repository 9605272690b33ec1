//! Window steered by delay and ECN marks, for clusters.
//!
//! Source: Swift (Kumar et al., SIGCOMM 2020) for delay against a target, additive increase and
//! bounded multiplicative decrease once per round trip; DCTCP (RFC 8257) for the share of marked
//! packets. Deviations: the target follows the path's minimum RTT, so that one setting serves a
//! switch and the internet; a loss without queueing delay is taken as chance, not as congestion,
//! and answered mildly.

use super::{Acked, Controller, Limits};
use core::time::Duration;
use denrei_wire::Instant;

/// Queueing delay that is always tolerated: the receiver's scheduling and batches of packets.
const BASE_TARGET: Duration = Duration::from_micros(300);
/// Further tolerance in proportion to the path: a quarter of the minimum RTT.
const TARGET_SHARE: u32 = 4;
/// Largest share of the window given up in one round trip (Swift's max_mdf).
const MAX_DECREASE: f64 = 0.5;
/// How strongly excess delay shrinks the window (Swift's β).
const DELAY_GAIN: f64 = 0.8;
/// Factor after a loss that came without queueing delay.
const CHANCE_LOSS_FACTOR: f64 = 0.85;
/// Factor after a loss that came with queueing delay.
const CONGESTION_LOSS_FACTOR: f64 = 0.6;
/// Datagrams the window grows by in one round trip.
const INCREASE_DATAGRAMS: u64 = 2;
/// Weight of the newest round trip in the share of marked packets (RFC 8257 g).
const MARK_GAIN: f64 = 1.0 / 16.0;

/// The controller.
#[derive(Debug)]
pub(super) struct Delay {
    limits: Limits,
    window: u64,
    /// Doubling per round trip until the first sign of a queue.
    starting: bool,
    /// Reactions happen only to packets sent after this.
    reacted_at: Option<Instant>,
    /// Round trip in progress: when it began, packets and marks seen in it.
    round_began: Instant,
    round_packets: u64,
    round_marked: u64,
    marked_share: f64,
    queueing: bool,
    /// Cost acknowledged towards the next additive increase.
    credit: u64,
}

impl Delay {
    pub fn new(datagram_bytes: u64) -> Self {
        let limits = Limits::new(datagram_bytes);
        Self {
            limits,
            window: limits.initial(),
            starting: true,
            reacted_at: None,
            round_began: Instant::ZERO,
            round_packets: 0,
            round_marked: 0,
            marked_share: 0.0,
            queueing: false,
            credit: 0,
        }
    }

    fn shrink(&mut self, now: Instant, factor: f64) {
        self.starting = false;
        self.reacted_at = Some(now);
        self.window = self.limits.clamp((self.window as f64 * factor.max(1.0 - MAX_DECREASE)) as u64);
    }

    fn may_react(&self, sent_at: Instant) -> bool {
        self.reacted_at.is_none_or(|reacted| sent_at > reacted)
    }

    fn end_round(&mut self, now: Instant) {
        let share = self.round_marked as f64 / self.round_packets.max(1) as f64;
        self.marked_share += MARK_GAIN * (share - self.marked_share);
        if self.round_marked > 0 {
            // The first mark of a calm period is taken seriously at once.
            let decrease = (self.marked_share / 2.0).max(share / 4.0);
            self.shrink(now, 1.0 - decrease);
        }
        self.round_began = now;
        self.round_packets = 0;
        self.round_marked = 0;
    }

    fn grow(&mut self, acked: Acked) {
        if !acked.window_limited {
            return;
        }
        if self.starting {
            self.window = self.limits.clamp(self.window + acked.cost);
            return;
        }
        self.credit += acked.cost;
        if self.credit >= self.window {
            self.credit = 0;
            self.window = self.limits.clamp(self.window + INCREASE_DATAGRAMS * self.limits.datagram);
        }
    }
}

impl Controller for Delay {
    fn on_ack(&mut self, acked: Acked) {
        self.round_packets += acked.packets;
        self.round_marked += acked.marked;
        let target = acked.min_rtt + BASE_TARGET + acked.min_rtt / TARGET_SHARE;
        self.queueing = acked.rtt > target;
        if self.queueing && self.may_react(acked.sent_at) {
            let excess = (acked.rtt - target).as_secs_f64() / acked.rtt.as_secs_f64();
            self.shrink(acked.now, 1.0 - DELAY_GAIN * excess);
        } else if !self.queueing && acked.marked == 0 {
            self.grow(acked);
        }
        if acked.sent_at >= self.round_began {
            self.end_round(acked.now);
        }
    }

    fn on_loss(&mut self, now: Instant, sent_at: Instant) {
        if self.may_react(sent_at) {
            self.shrink(now, if self.queueing { CONGESTION_LOSS_FACTOR } else { CHANCE_LOSS_FACTOR });
        }
    }

    fn on_persistent_loss(&mut self) {
        self.window = self.limits.clamp(0);
        self.starting = true;
    }

    fn set_datagram_bytes(&mut self, bytes: u64) {
        let fresh = self.window == self.limits.initial();
        self.limits = Limits::new(bytes);
        self.window = if fresh { self.limits.initial() } else { self.limits.clamp(self.window) };
    }

    fn window(&self) -> u64 {
        self.window
    }
}
