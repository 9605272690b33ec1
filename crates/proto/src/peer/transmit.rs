//! What goes out: packets built from acknowledgements, control frames, retransmissions and data.

use super::timers::PACKETS_PER_PROBE;
use super::{Context, Peer};
use crate::config::{Config, LEAST_DATAGRAM_BYTES};
use crate::congestion::packet_cost;
use crate::event::Phase;
use crate::pacing::Spread;
use crate::sent::{Control, SentFrame, SentPacket};
use denrei_wire::datagram::MAX_DATAGRAM_BYTES;
use denrei_wire::frame::{Accept, Credit, Delivered, End, Frame, MAX_CONTROL_FRAME_BYTES};
use denrei_wire::packet::{self, FLAGS_OFFSET, Kind, Opening, flags};
use denrei_wire::{Ecn, Instant, PacketNumber, Parameters, Transmit, TransmitBuf};
use smallvec::SmallVec;

/// A packet is closed when less than this is left: no frame worth sending fits.
const MIN_USEFUL_ROOM: usize = 12;

/// Where in a buffer a packet begins, and where its frames do.
#[derive(Clone, Copy)]
struct Start {
    at: usize,
    body_at: usize,
}

pub(super) type Frames = SmallVec<[SentFrame; 2]>;

impl Peer {
    /// Whether [`write_transmit`](Self::write_transmit) has something to write.
    pub fn wants_transmit(&mut self, cx: &Context<'_>) -> bool {
        if !self.is_alive() {
            return self.closing.ends_due > 0;
        }
        if self.phase == Phase::Answering {
            return self.control.contains(&Control::Parameters);
        }
        if self.allowed.is_limited() {
            self.ask_if_closed();
        }
        self.received.is_due(cx.now)
            || !self.control.is_empty()
            || (!self.once.is_empty() && self.is_proven())
            || self.probes_left > 0
            || (self.outbox.has_turn() && self.may_send_data(cx))
            || (self.is_rate_shut() && self.may_send_unpaced(cx))
            || (self.mtu.probe(cx.now).is_some() && self.may_search())
    }

    /// Whether messages wait already, so that another one of so many bytes changes nothing: whoever let
    /// them wait knows what they wait for. A receiver that grants what it is asked for has to be asked
    /// for more, and an offer does not wait for the rate. What was to be sent again, and was delivered
    /// meanwhile, may still have its turn when nothing waits.
    #[inline]
    pub fn is_in_line(&self, channel: u16, bytes: u64) -> bool {
        let offer = || self.is_rate_shut() && self.outbox.demands_offer(channel, bytes);
        let waits = self.outbox.has_turn() && self.outbox.queued_messages() > 0;
        waits && !self.allowed.is_limited() && !offer()
    }

    /// Writes datagrams for one send operation into the empty `out`.
    pub fn write_transmit(&mut self, cx: &mut Context<'_>, out: &mut TransmitBuf) -> Option<Transmit> {
        debug_assert!(out.is_empty());
        if !self.is_alive() {
            return self.write_end(cx, out);
        }
        let (limit, most) = self.train(out.max_segments());
        let mut segment_size = limit as usize;
        let mut segments = 0;
        while segments < most && out.len() + segment_size <= MAX_DATAGRAM_BYTES {
            let len = self.write_packet(cx, out, segment_size);
            if len == 0 {
                break;
            }
            segments += 1;
            // A train has packets of one size; a shorter one ends it.
            if len < segment_size {
                if segments == 1 {
                    segment_size = len;
                }
                break;
            }
        }
        if segments == 0 {
            self.write_mtu_probe(cx, out)?;
            segments = 1;
        }
        Some(self.transmit(cx.now, out.len(), (segments > 1).then_some(segment_size)))
    }

    /// How large the next datagrams may be, and how many of one size may go at once.
    #[inline]
    fn train(&self, most: usize) -> (u16, usize) {
        // It may be their size that loses datagrams: the first of a probe's packets, which goes alone, shows whether
        // the path carries anything, or the peer would be taken for dead.
        if self.probes_left == PACKETS_PER_PROBE {
            return (LEAST_DATAGRAM_BYTES, 1);
        }
        match self.mtu.probe_with_data() {
            // Something has to follow it, or nobody would notice before a probe timeout that it was too large.
            Some(size) if self.may_search() && self.outbox.queued_bytes() > 2 * u64::from(size) => (size, 1),
            _ => (self.mtu.current(), most),
        }
    }

    /// Whether larger datagrams may be tried: not while the peer is silent, as what fills the path would be in the way of
    /// what asks whether it is there.
    #[inline]
    fn may_search(&self) -> bool {
        self.is_proven() && self.probe_timeouts == 0
    }

    fn transmit(&mut self, now: Instant, len: usize, segment_size: Option<usize>) -> Transmit {
        let ecn = if self.marking.is_on() { Ecn::Ect0 } else { self.mark(now) };
        Transmit { to: self.addr, from: self.local, len, segment_size, ecn }
    }

    /// What has just been written is marked with. What nothing repeats goes without: where marks are dropped it would
    /// never arrive.
    #[cold]
    fn mark(&mut self, now: Instant) -> Ecn {
        let is_repeated = self.phase != Phase::Answering && self.sent.is_newest_under_way();
        if is_repeated { self.marking.mark(now, self.probe_timeouts) } else { Ecn::NotEct }
    }

    /// A responder whose initiator has not proven itself only introduces itself. It acknowledges
    /// nothing: what it has received is forgotten with the session, and its sender must not believe
    /// that it arrived. It sends no message: the initiator would take it at once, and the session
    /// may still begin anew, which sends everything again.
    pub fn is_sure_of_peer(&self) -> bool {
        self.phase != Phase::Answering
    }

    fn may_send_data(&mut self, cx: &Context<'_>) -> bool {
        self.is_let(cx.config, cx.now) && self.path_has_room(cx)
    }

    /// Whether the congestion window lets a packet go, and the pace that follows from it.
    pub(super) fn path_has_room(&mut self, cx: &Context<'_>) -> bool {
        if self.probes_left > 0 {
            return true;
        }
        let in_flight = self.sent.cost_in_flight();
        let window = self.window(cx.now, in_flight);
        if in_flight > 0 && in_flight + self.mtu.current() as u64 > window {
            return false;
        }
        let spread = Spread::of_session(window, self.rtt.smoothed_ns(), self.rtt.latest_ns());
        self.paced_until = self.pacer.room(cx.now, spread).err();
        self.paced_until.is_none()
    }

    /// Cost that may be under way, where so much is.
    fn window(&self, now: Instant, in_flight: u64) -> u64 {
        self.congestion.window().max(self.allowed.licensed(now, in_flight))
    }

    /// Appends one packet of at most `limit` octets; its octets, 0 if there is nothing to send.
    fn write_packet(&mut self, cx: &mut Context<'_>, out: &mut TransmitBuf, limit: usize) -> usize {
        let start = self.write_header(out);
        let end = start.at + limit - self.protection.trailer_bytes();
        let mut frames = Frames::new();
        if self.is_sure_of_peer()
            && self.received.is_pending()
            && out.len() + self.received.encoded_len() <= end
        {
            frames.extend(self.received.write(cx.now, out).map(|largest| SentFrame::Ack { largest }));
        }
        let said_once = self.write_once(out, end);
        if self.allowed.is_limited() {
            self.ask_if_closed();
        }
        self.write_control(cx, out, end, &mut frames);
        if self.is_sure_of_peer() && self.outbox.has_turn() && out.len() + MIN_USEFUL_ROOM <= end {
            if self.may_send_data(cx) {
                let fresh = end - start.body_at;
                if self.outbox.next_deadline() != Instant::FAR_FUTURE {
                    self.give_up_hopeless(cx, fresh);
                }
                self.write_data(cx, out, start.at, end, fresh, &mut frames);
                self.received.on_message_sent(cx.now);
            } else if self.is_rate_shut() && self.may_send_unpaced(cx) {
                self.write_unpaced(out, start.at, end, &mut frames);
            }
        }
        // A probe whose packets had carried nothing that still matters only asks.
        let asks = frames.is_empty() && self.probes_left == PACKETS_PER_PROBE && self.is_sure_of_peer();
        if frames.is_empty() && !said_once && !asks {
            out.truncate(start.at);
            return 0;
        }
        let mut eliciting = frames.iter().any(|frame| !matches!(frame, SentFrame::Ack { .. }));
        let max_packets = cx.config.rekey_after_packets;
        if !eliciting
            && (asks || self.received.wants_pruning() || self.protection.wants_confirmation(max_packets))
        {
            Frame::Ping.encode(&mut |bytes| out.put(bytes));
            eliciting = true;
        }
        self.finish_packet(cx, out, start, frames, eliciting)
    }

    /// What is not repeated; whether there was any.
    fn write_once(&mut self, out: &mut TransmitBuf, end: usize) -> bool {
        if self.once.is_empty() || !self.is_proven() {
            return false;
        }
        let mut said = 0;
        while let Some(frame) = self.once.get(said)
            && out.len() + frame.len() <= end
        {
            out.put(frame);
            said += 1;
        }
        self.once.drain(..said);
        said > 0
    }

    fn write_header(&mut self, out: &mut TransmitBuf) -> Start {
        let at = out.len();
        let number = PacketNumber(self.sent.next_number());
        let opening = Opening { own_token: self.local_token, incarnation: self.incarnation };
        let (kind, token) = match (self.phase, self.remote_token) {
            (Phase::Answering, Some(token)) => (Kind::Answer, token),
            (Phase::Opening, _) | (_, None) => (Kind::First, self.local_token),
            (_, Some(token)) => (Kind::Session, token),
        };
        out.put(&packet::common_header(kind, 0, number, token));
        if kind != Kind::Session {
            let handshake = self.protection.handshake();
            out.put(&packet::opening_header(opening, handshake.len() as u16));
            out.put(handshake);
        }
        Start { at, body_at: out.len() }
    }

    /// Decides the packet's flags, seals it, and takes note of it.
    fn finish_packet(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut TransmitBuf,
        start: Start,
        mut frames: Frames,
        eliciting: bool,
    ) -> usize {
        let bytes = out.len() - start.at + self.protection.trailer_bytes();
        let cost = packet_cost(bytes as u64);
        let in_flight = self.sent.cost_in_flight() + cost;
        let window = self.window(cx.now, in_flight);
        let (asked, unasked) = self.asked;
        let hurried = self.hurried && !self.outbox.has_turn();
        let full = in_flight + self.mtu.current() as u64 > window;
        let waits = hurried
            // Each quarter of a full window asks once, or each acknowledgement would let one packet go that asks
            // for the next.
            || (full && (unasked >= window / 4 || !self.sent.is_under_way(asked)))
            // The grant that who wants more waits for brings the acknowledgement along.
            || (self.allowed.room() == Some(0) && !self.outbox.has_turn())
            // Half a window goes on while the other half is on its way: else the path runs empty meanwhile.
            || (in_flight >= window / 2 && unasked >= window / 2);
        let number = self.sent.next_number();
        let mut flags = self.protection.flags_for(number, cx.config.rekey_after_packets);
        if eliciting && (waits || self.probes_left > 0 || self.phase != Phase::Open) {
            self.hurried &= !hurried;
            self.asked = (number, 0);
            self.rtt.expect(true);
            flags |= flags::ACK_NOW;
        }
        out.overwrite(start.at + FLAGS_OFFSET, &flags.to_le_bytes());
        self.protection.seal(number, start.body_at - start.at, start.at, out);
        self.counters.packets_sent += 1;
        self.counters.bytes_sent += bytes as u64;
        if !eliciting {
            self.sent.on_sent_unacknowledged();
            self.marking.look_again();
            return bytes;
        }
        self.asked.1 += cost;
        self.pacer.on_sent(cost);
        self.probes_left = self.probes_left.saturating_sub(1);
        if bytes > self.mtu.current() as usize {
            self.note_larger(bytes as u16, &mut frames);
        }
        let packet = SentPacket::new(cx.now, bytes as u16, frames);
        // The loss of a probe says that the path carries less, and nothing else (RFC 8899 §3).
        if !packet.is_mtu_probe() {
            self.unanswered_since.get_or_insert(cx.now);
        }
        if self.sent.is_idle() {
            self.unacknowledged_since = cx.now;
        }
        self.sent.on_sent(packet);
        bytes
    }

    /// A packet is larger than what the path is known to carry.
    #[cold]
    fn note_larger(&mut self, bytes: u16, frames: &mut Frames) {
        self.mtu.on_probe_sent();
        frames.push(SentFrame::MtuProbe { bytes });
    }

    fn write_control(&mut self, cx: &Context<'_>, out: &mut TransmitBuf, end: usize, frames: &mut Frames) {
        if self.control.is_empty() {
            return;
        }
        let sure = self.is_sure_of_peer();
        let eager = |control: &Control| sure || *control == Control::Parameters;
        while let Some(next) = self.control.iter().position(eager)
            && out.len() + MAX_CONTROL_FRAME_BYTES <= end
        {
            let control = self.control.remove(next).expect("found");
            if let Some(frame) = self.control_frame(cx.config, control) {
                frame.encode(&mut |bytes| out.put(bytes));
                frames.push(SentFrame::Control(control));
            }
        }
    }

    /// The frame that says what holds now; `None` if it need not be said any more.
    fn control_frame(&mut self, config: &Config, control: Control) -> Option<Frame<'static>> {
        Some(match control {
            Control::Parameters => Frame::Parameters(own_parameters(config)),
            Control::Ping => Frame::Ping,
            Control::Credit { channel } => {
                Frame::Credit(Credit { channel, limit: self.inbox.get_mut(channel)?.granted() })
            }
            Control::Accept { channel, number } => {
                let limit = self.inbox.get_mut(channel)?.grant(number)?;
                Frame::Accept(Accept { refused: false, channel, number: number as u32, limit })
            }
            Control::Refuse { channel, number } => {
                Frame::Accept(Accept { refused: true, channel, number: number as u32, limit: 0 })
            }
            // Dropped is not delivered.
            Control::Delivered { .. } if self.closing.read_closed => return None,
            Control::Delivered { channel } => {
                let next = self.inbox.get_mut(channel)?.report() as u32;
                Frame::Delivered(Delivered { channel, next })
            }
            Control::StatusRequest { id } => Frame::StatusRequest(id),
            Control::Status { id } => Frame::Status(self.statuses.as_ref()?.answer(id)?),
            Control::Rate => self.rate_frame()?,
            Control::GrantRequest => self.grant_request()?,
            Control::Grant => self.grant_frame()?,
            Control::CloseWrite => Frame::CloseWrite,
            Control::CloseRead => Frame::CloseRead,
        })
    }

    fn write_mtu_probe(&mut self, cx: &mut Context<'_>, out: &mut TransmitBuf) -> Option<()> {
        if !self.may_search() {
            return None;
        }
        let probe = self.mtu.probe(cx.now)?;
        let start = self.write_header(out);
        Frame::Ping.encode(&mut |bytes| out.put(bytes));
        out.put_zeros(probe as usize - out.len() - self.protection.trailer_bytes());
        self.finish_packet(cx, out, start, Frames::new(), true);
        Some(())
    }

    fn write_end(&mut self, cx: &mut Context<'_>, out: &mut TransmitBuf) -> Option<Transmit> {
        self.closing.ends_due = self.closing.ends_due.checked_sub(1)?;
        let start = self.write_header(out);
        // The last acknowledgement tells the peer that its own closing was heard.
        if self.closing.acknowledges() {
            self.received.write(cx.now, out);
        }
        let (code, reason) = self.closing.end()?;
        Frame::End(End { code, reason }).encode(&mut |bytes| out.put(bytes));
        self.finish_packet(cx, out, start, Frames::new(), false);
        Some(self.transmit(cx.now, out.len(), None))
    }
}

/// What this endpoint tells its peers about itself.
fn own_parameters(config: &Config) -> Parameters {
    let rate = config.rate_request;
    Parameters {
        channel_credit: config.channel_credit_bytes,
        max_message: config.max_message_bytes,
        max_datagram: MAX_DATAGRAM_BYTES as u16,
        max_channels: config.max_channels,
        ack_delay_us: config.max_ack_delay.as_micros() as u32,
        rate_req: if rate.is_unlimited() { u64::MAX } else { rate.bytes_per_s },
        burst_req: rate.burst_bytes,
        relays: config.relays,
    }
}
