//! What an acknowledgement changes: what has arrived, and what has to be taken for lost.

use super::timers::PERSISTENT_TIMEOUTS;
use super::{Context, Peer};
use crate::congestion::{Acked, rtt_without_turns};
use crate::event::{ChannelId, Completion, Event};
use crate::loss::AckSummary;
use crate::recv_channel::Violation;
use crate::send_channel::Finished;
use crate::sent::{Control, SentFrame, SentPacket};
use denrei_wire::ack::AckFrame;
use denrei_wire::{Instant, ids};

impl Peer {
    pub(super) fn on_ack(&mut self, cx: &mut Context<'_>, ack: &AckFrame<'_>) -> Result<(), Violation> {
        let next = self.sent.next_number();
        if ids::expand(ack.largest, next) >= next {
            return Err("acknowledgement of a packet that was never sent");
        }
        self.protection.on_acked(ids::expand(ack.largest, next));
        let (in_flight_before, mtu_before) = (self.sent.cost_in_flight(), self.mtu.current());
        let mut close_write_acked = false;
        let mut heard = Vec::new();
        let Self { sent, outbox, received, mtu, control, id, statuses, .. } = self;
        let summary = sent.on_ack(ack.ranges(next), |packet| {
            mtu.on_acked(packet.bytes);
            for frame in &packet.frames {
                match frame {
                    SentFrame::Ack { largest } => received.on_ack_acked(*largest),
                    SentFrame::MtuProbe { bytes } => mtu.on_probe_acked(*bytes),
                    SentFrame::Control(Control::CloseWrite) => close_write_acked = true,
                    SentFrame::Control(Control::Status { id }) => {
                        statuses.iter_mut().for_each(|statuses| statuses.on_answer_acked(*id));
                    }
                    // Acknowledged while it was about to be repeated.
                    SentFrame::Control(Control::Parameters) => {
                        control.retain(|other| *other != Control::Parameters);
                    }
                    SentFrame::Control(told @ (Control::Rate | Control::Grant)) => heard.push(*told),
                    SentFrame::Control(_) => {}
                    frame => outbox.on_acked(frame, |channel, done| {
                        report(cx, ChannelId { peer: *id, channel }, done);
                    }),
                }
            }
        });
        if summary.invented {
            return Err("acknowledgement of a packet that was never sent");
        }
        // What has arrived says the same of the path, whether it had been taken for lost or not.
        if let Some(bytes) = summary.late.largest_bytes {
            self.mtu.on_acked(bytes);
        }
        if close_write_acked {
            self.on_close_write_acked();
        }
        for told in heard {
            self.on_told(cx.now, told);
        }
        if summary.packets > 0 {
            self.on_progress(cx, ack, &summary, in_flight_before);
            if self.mtu.current() != mtu_before {
                self.follow_mtu();
            }
            self.detect_lost(cx);
        }
        if let Some(sent_at) = summary.late.probed_sent_at {
            self.rtt.on_needless_probe(cx.now.saturating_since(sent_at));
        }
        Ok(())
    }

    /// Packets have newly been acknowledged: what that says about the path.
    #[inline]
    fn on_progress(&mut self, cx: &Context<'_>, ack: &AckFrame<'_>, summary: &AckSummary, under_way: u64) {
        let timeouts = core::mem::take(&mut self.probe_timeouts);
        let was_silent = timeouts >= PERSISTENT_TIMEOUTS;
        self.probes_left = 0;
        self.unacknowledged_since = cx.now;
        let marked = self.marking.on_ack(cx.now, summary.largest_sent_at, ack.ecn, timeouts);
        self.counters.ecn_marks += marked;
        if self.rtt.is_asked() {
            self.rtt.expect(self.sent.is_under_way(self.asked.0));
        }
        if let Some(sent_at) = summary.largest_sent_at {
            let (sample_ns, delay_ns) = (cx.now.nanos_since(sent_at), ack.delay_us as u64 * 1000);
            self.rtt.sample(cx.now, sample_ns, delay_ns);
            let min_ns = self.rtt.min_ns();
            let without_turns = |ns| if self.takes_turns { rtt_without_turns(ns, min_ns) } else { ns };
            let rtt_ns = without_turns(self.rtt.latest_ns());
            // Neither side may have looked at its sockets for a while.
            let kept_ns = longest_delay_ns(ack).saturating_add(cx.now.nanos_since(cx.came));
            let path_ns = sample_ns.saturating_sub(kept_ns).max(min_ns);
            if was_silent && kept_ns >= sample_ns {
                self.congestion.on_absence();
            }
            self.takes_turns &= self.outbox.queued_messages() > 0;
            self.congestion.on_ack(Acked {
                now: cx.now,
                cost: summary.cost,
                packets: summary.packets,
                marked: marked.min(summary.packets),
                rtt_ns,
                lasting_rtt_ns: rtt_ns.min(path_ns),
                min_rtt_ns: min_ns,
                srtt_ns: self.rtt.smoothed_ns(),
                sent_at,
                under_way,
                window_limited: under_way * 2 >= self.congestion.window(),
            });
            if marked > 0
                && let Some(licence) = self.allowed.licence()
            {
                licence.on_marks(cx.now, sent_at, under_way);
            }
        }
    }

    /// Looks for packets that have to be taken for lost.
    pub(super) fn detect_lost(&mut self, cx: &mut Context<'_>) {
        let lost = &mut cx.notes.lost_packets;
        self.sent.detect_lost(cx.now, &self.rtt, |packet| lost.push(packet));
        if !lost.is_empty() {
            self.repair(cx);
        }
    }

    /// Arranges for what the lost packets carried, and slows down.
    #[cold]
    fn repair(&mut self, cx: &mut Context<'_>) {
        let (mut newest, mut count): (Option<Instant>, u64) = (None, 0);
        for packet in cx.notes.lost_packets.drain(..) {
            self.counters.packets_lost += u64::from(!packet.is_mtu_probe());
            if self.note_lost_packet(cx.now, &packet) {
                newest = newest.max(Some(packet.at));
                count += 1;
            }
        }
        if let Some(sent_at) = newest {
            if self.recovery_began.is_none_or(|began| sent_at > began) {
                self.recovery_began = Some(cx.now);
                self.counters.recoveries += 1;
            }
            if let Some(licence) = self.allowed.licence() {
                licence.on_loss(cx.now, sent_at, self.sent.cost_in_flight());
            }
            self.congestion.on_loss(cx.now, sent_at, count);
        }
    }

    /// Takes the oldest packets under way for lost, at most so many, without a word to congestion control.
    pub(super) fn repeat_oldest(&mut self, now: Instant, count: usize) {
        let mut oldest = Vec::new();
        self.sent.take_oldest(count, |packet| oldest.push(packet));
        for packet in &oldest {
            self.note_lost_packet(now, packet);
        }
    }

    /// Arranges for what a lost packet carried; whether its loss says something about congestion.
    fn note_lost_packet(&mut self, now: Instant, packet: &SentPacket) -> bool {
        let mut probe = false;
        for frame in &packet.frames {
            match frame {
                SentFrame::Control(control) => self.want(*control),
                SentFrame::MtuProbe { bytes } => {
                    probe = true;
                    self.mtu.on_probe_lost(now, *bytes);
                }
                SentFrame::Ack { .. } => {}
                frame => {
                    self.outbox.on_lost(frame);
                    self.allowed.on_lost();
                }
            }
        }
        if !probe && self.mtu.on_lost(now, packet.bytes) {
            self.follow_mtu();
        }
        !probe
    }

    pub(super) fn follow_mtu(&mut self) {
        self.congestion.set_datagram_bytes(self.mtu.current() as u64);
    }
}

/// How long the newest of what it acknowledges may have waited at the receiver, nanoseconds.
fn longest_delay_ns(ack: &AckFrame<'_>) -> u64 {
    if ack.delay_us == u16::MAX { u64::MAX } else { u64::from(ack.delay_us) * 1000 }
}

/// Tells the application of a finished message if it asked.
fn report(cx: &mut Context<'_>, channel: ChannelId, done: Finished) {
    if done.completion == Completion::Acknowledged {
        cx.events.push(Event::Acknowledged(crate::MessageId { channel, number: done.number }));
    }
}
