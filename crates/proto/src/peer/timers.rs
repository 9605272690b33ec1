//! What time changes: probes, losses, keepalive, failure.

use super::{Context, News, Peer};
use crate::config::Config;
use crate::event::{ChannelId, Event, LostReason, MessageId, Phase};
use crate::rtt::LONGEST_PROBE_TIMEOUT;
use crate::sent::Control;
use core::time::Duration;
use denrei_wire::{Instant, duration_nanos};

/// Timeouts in a row after which the window starts anew (RFC 9002 §7.6).
pub(super) const PERSISTENT_TIMEOUTS: u32 = 3;

/// So many in a row, and it is worth hearing what the peer's host says.
const SILENT_PROBES: u32 = 2;

/// Timeouts without an acknowledgement after which whoever sends on and on asks nevertheless.
const MOST_TIMEOUTS_SENDING: u64 = 4;

/// Packets sent per probe timeout (RFC 9002 §6.2.4).
pub(super) const PACKETS_PER_PROBE: u8 = 2;

/// An initiator has at least this long to look at the answer, however soon another peer would count as dead.
const LEAST_UNPROVEN_TIMEOUT: Duration = Duration::from_secs(3);

/// A peer has to be silent in so many stretches of time at least, between which this side has asked, before it is lost.
const LEAST_STRETCHES: u64 = 8;

impl Peer {
    /// The next time at which [`handle_timeout`](Self::handle_timeout) or a transmit is due.
    // Asked after each packet; whoever asks elsewhere would else have it called.
    #[inline(always)]
    pub fn deadline(&self, config: &Config) -> Instant {
        if !self.is_alive() {
            return self.drain_until().unwrap_or(Instant::FAR_FUTURE);
        }
        // On the way of every packet: plain comparisons, no list of options.
        let mut deadline = Instant::FAR_FUTURE;
        let mut consider = |at: Option<Instant>| deadline = deadline.min(at.unwrap_or(Instant::FAR_FUTURE));
        if self.is_sure_of_peer() {
            consider(self.received.deadline());
        }
        consider(self.sent.loss_time());
        consider(self.paced_until);
        consider(self.rate_opens_at());
        consider(Some(self.outbox.next_deadline()));
        consider(self.failure_at(config));
        if self.sent.is_idle() {
            consider(self.keepalive_at(config));
        } else {
            consider(self.probe_at());
        }
        deadline
    }

    /// Time has come to `cx.now`; it was last told at `told_before`.
    pub fn handle_timeout(&mut self, cx: &mut Context<'_>, told_before: Instant) {
        if !self.is_alive() {
            return self.drain(cx.now);
        }
        self.excuse(cx, told_before);
        if self.failure_at(cx.config).is_some_and(|at| at <= cx.now) {
            let reason = match (self.phase, self.suspicion.take()) {
                (Phase::Opening, Some(suspicion)) => *suspicion,
                (Phase::Opening, None) => LostReason::NoAnswer,
                _ => LostReason::TimedOut,
            };
            return self.lose(cx, reason);
        }
        self.protection.handle_timeout(cx.now);
        if self.paced_until.is_some_and(|at| at <= cx.now) {
            self.paced_until = None;
        }
        self.reopen_rate(cx.now);
        if self.outbox.next_deadline() <= cx.now {
            let id = self.id;
            self.outbox.expire(cx.now, |channel, number| {
                let channel = ChannelId { peer: id, channel };
                cx.events.push(Event::Expired(MessageId { channel, number }));
            });
        }
        if self.sent.loss_time().is_some_and(|at| at <= cx.now) {
            self.detect_lost(cx);
        } else if self.probe_at().is_some_and(|at| at <= cx.now) {
            self.on_probe_timeout(cx);
        }
        if self.keepalive_at(cx.config).is_some_and(|at| at <= cx.now) {
            self.want(Control::Ping);
        }
    }

    /// Whether nothing is under way whose acknowledgement would come.
    pub fn is_idle(&self) -> bool {
        self.sent.is_idle()
    }

    fn probe_at(&self) -> Option<Instant> {
        // Before the proof an address gets no more than answers to what comes from it, unless the
        // application wants to speak to it.
        let unproven = self.phase == Phase::Answering && !self.visible;
        // One that is due and has not left is one, how often ever the time is told.
        let has_fired = self.probes_left == PACKETS_PER_PROBE;
        if self.sent.is_idle() || unproven || has_fired {
            return None;
        }
        if self.probe_timeouts == 0 && self.phase != Phase::Opening {
            let timeout = if self.allowed.awaits_grant() {
                self.rtt.probe_timeout_before_grant()
            } else {
                self.rtt.probe_timeout()
            };
            return Some(self.probe_after(timeout));
        }
        let base = self.rtt.probe_timeout();
        let backed_off = (base * (1 << self.probe_timeouts.min(10))).min(LONGEST_PROBE_TIMEOUT.max(base));
        Some(self.probe_after(backed_off + self.probe_spread(backed_off)))
    }

    /// So long after the last packet under way; but one that goes on sending, as no window holds it up, asks at last, too.
    fn probe_after(&self, timeout: Duration) -> Instant {
        let timeout = duration_nanos(timeout);
        let at_last =
            self.unacknowledged_since + Duration::from_nanos(timeout.saturating_mul(MOST_TIMEOUTS_SENDING));
        (self.sent.last_sent_at() + Duration::from_nanos(timeout)).min(at_last)
    }

    /// Up to a quarter of the interval, another one for each peer and each repetition: many that lost
    /// packets to the same full queue must not fill it again all at once. Those that open at once have all
    /// assumed the same round trip.
    fn probe_spread(&self, interval: Duration) -> Duration {
        let random_octet = 3 + self.probe_timeouts % 5;
        let share = (self.local_token.0 >> (8 * random_octet)) & 0xff;
        interval * share as u32 / (4 * 256)
    }

    fn failure_at(&self, config: &Config) -> Option<Instant> {
        let since = self.unanswered_since?;
        Some(match self.phase {
            Phase::Opening => since + config.connect_timeout,
            // Its application may be busy elsewhere, or its process one of a thousand that begin at once and wait for
            // their cores; whoever is silent for longer counts as dead anyway.
            Phase::Answering if !self.visible => {
                self.heard_at + config.failure_timeout.max(LEAST_UNPROVEN_TIMEOUT)
            }
            _ => since + config.failure_timeout,
        })
    }

    /// Whether the other side has begun this session and had its time to prove it, should it still be there.
    pub fn is_given_up(&self, now: Instant) -> bool {
        self.phase == Phase::Answering && now.saturating_since(self.heard_at) > LEAST_UNPROVEN_TIMEOUT
    }

    /// A stretch in which this side did not do what was due, as its process did not run or its application did not
    /// call, says little of the peer: nobody asked it again for what was lost, and one that shares the machine may
    /// not have run either.
    fn excuse(&mut self, cx: &Context<'_>, told_before: Instant) {
        let most = duration_nanos(cx.config.failure_timeout) / LEAST_STRETCHES;
        // As a rule time was told just now.
        if cx.now.nanos_since(told_before) <= most {
            return;
        }
        let missed = cx.now.nanos_since(self.deadline(cx.config).max(told_before));
        let excess = Duration::from_nanos(missed.saturating_sub(most));
        self.unanswered_since = self.unanswered_since.map(|since| (since + excess).min(cx.now));
    }

    fn keepalive_at(&self, config: &Config) -> Option<Instant> {
        // One ping at a time: while something is under way, the probe timer asks.
        let pinging = !self.control.is_empty() && self.control.contains(&Control::Ping);
        if !self.is_proven() || !self.sent.is_idle() || pinging {
            return None;
        }
        // Nobody waits for ever for an answer to an offer, or keeps memory for one that is gone.
        let waiting = || self.outbox.queued_messages() > 0 || self.inbox.promised() > 0;
        let interval = config.keepalive.or_else(|| waiting().then_some(config.failure_timeout / 4));
        Some(self.heard_at + interval?)
    }

    /// Nothing has been acknowledged for a probe timeout: repeats the oldest that is under way
    /// (RFC 8985 §7's tail loss probe, RFC 9002 §6.2).
    fn on_probe_timeout(&mut self, cx: &mut Context<'_>) {
        if self.sent.is_all_probing_mtu() {
            // Their loss is no silence: whatever else had no answer still has none.
            return self.repeat_oldest(cx.now, usize::MAX);
        }
        self.probe_timeouts += 1;
        self.unacknowledged_since = cx.now;
        self.marking.look_again();
        self.counters.probes += 1;
        self.probes_left = PACKETS_PER_PROBE;
        if self.is_doubted() && self.protection.is_sealed() {
            cx.notes.news |= News::INQUIRE;
        }
        if self.probe_timeouts >= SILENT_PROBES && self.is_proven() {
            cx.notes.note_silent(self.way());
        }
        self.repeat_oldest(cx.now, PACKETS_PER_PROBE.into());
        // Before the first answer only the guess of the round trip may have been too short (RFC 9002 §7.6.2).
        if self.probe_timeouts == PERSISTENT_TIMEOUTS && self.rtt.measured().is_some() {
            self.congestion.on_persistent_loss();
            if let Some(licence) = self.allowed.licence() {
                licence.revoke();
            }
        }
        // A probe may exceed the window, but not the receiver's pace.
        if self.control.is_empty() && !(self.outbox.has_turn() && self.is_let(cx.config, cx.now)) {
            self.want(Control::Ping);
        }
    }
}
