//! What an incoming packet changes.

use super::pace::is_data;
use super::{Context, News, PaceNote, Peer};
use crate::ack::Arrival;
use crate::config::MIN_CHANNELS;
use crate::event::{ChannelId, Completion, Event, Phase};
use crate::events::Events;
use crate::inbox::Change;
use crate::recv_channel::{Announced, Violation};
use crate::seal::{OpenJob, Opened, Unopened};
use crate::send_channel::Answered;
use crate::sent::Control;
use core::time::Duration;
use denrei_wire::frame::{Accept, Delivered};
use denrei_wire::packet::{Header, Kind, flags};
use denrei_wire::{Ecn, Frame, Frames, Parameters, ids};

/// What an unproven session may have brought, cost: more than a window's worth of FIRSTs. Beyond,
/// they are dropped as if they had been lost.
const MAX_UNPROVEN_COST: u64 = 128 * 1024;

/// A packet of this session whose trailer has been checked.
pub(crate) struct Incoming<'a> {
    pub header: Header,
    /// The whole of its number.
    pub number: u64,
    /// Frames, opened, the trailer removed.
    pub body: &'a [u8],
    /// Octets of the whole datagram.
    pub datagram_len: usize,
    pub ecn: Ecn,
}

impl Peer {
    /// Takes a packet that names this session: opens it and, if it is genuine, processes it.
    pub fn handle_datagram(
        &mut self,
        cx: &mut Context<'_>,
        header: Header,
        header_len: usize,
        ecn: Ecn,
        datagram: &mut [u8],
    ) -> Result<(), Unopened> {
        let (number, datagram_len) = (ids::expand(header.number, self.received.expected()), datagram.len());
        match self.protection.open(cx.now, &header, number, header_len, datagram) {
            Ok(body) => {
                self.handle_packet(cx, &Incoming { header, number, body, datagram_len, ecn });
                Ok(())
            }
            Err(unopened) => {
                self.note_unopened(cx, unopened);
                Err(unopened)
            }
        }
    }

    /// What opens a packet of this session, in another place.
    pub fn open_job(&self, header: &Header, header_len: usize) -> Option<OpenJob> {
        let number = ids::expand(header.number, self.received.expected());
        self.protection.open_job(header, number, header_len)
    }

    /// Takes a packet that was opened elsewhere.
    pub fn handle_opened(
        &mut self,
        cx: &mut Context<'_>,
        (header, header_len): (Header, usize),
        ecn: Ecn,
        datagram: &[u8],
        opened: &Opened,
    ) -> Result<(), Unopened> {
        self.protection.take_opened(opened).inspect_err(|unopened| self.note_unopened(cx, *unopened))?;
        let body = opened.frames(header_len, datagram).ok_or(Unopened::NotGenuine)?;
        let (number, datagram_len) = (opened.number(), datagram.len());
        self.handle_packet(cx, &Incoming { header, number, body, datagram_len, ecn });
        Ok(())
    }

    fn note_unopened(&mut self, cx: &mut Context<'_>, unopened: Unopened) {
        if unopened == Unopened::WornOut {
            self.violate(cx, "too many forged packets for the session's keys");
        }
    }

    /// Whether a peer that has not proven itself has brought as much as it may.
    pub fn is_full_of_unproven(&self) -> bool {
        !self.is_sure_of_peer() && self.inbox.seen() > MAX_UNPROVEN_COST
    }

    /// Whether a packet's frames may come now. What a peer brings before it has proven itself may be forged: it gets no
    /// memory beyond a bound, and not on channels of which it cannot have heard.
    #[cold]
    fn may_come(&self, body: &[u8]) -> bool {
        if self.is_sure_of_peer() {
            return true;
        }
        let mut room = MAX_UNPROVEN_COST.saturating_sub(self.inbox.seen());
        Frames::new(body).flatten().all(|frame| {
            let (channel, bytes) = match &frame {
                Frame::Fragment(fragment) => (fragment.channel, self.inbox.newly_seen(fragment)),
                Frame::Message(message) => (message.channel, 0),
                Frame::Offer(offer) => (offer.channel, 0),
                Frame::Skip(skip) => (skip.channel, 0),
                _ => return true,
            };
            let fits = channel < MIN_CHANNELS && bytes <= room;
            room = room.saturating_sub(bytes);
            fits
        })
    }

    /// Processes a genuine packet of this session.
    pub fn handle_packet(&mut self, cx: &mut Context<'_>, incoming: &Incoming<'_>) {
        if !self.is_alive() {
            return self.repeat_end(incoming.body);
        }
        let number = incoming.number;
        if self.received.is_duplicate(number) {
            // What is repeated comes under a new number; this is the network's doing.
            self.counters.duplicates += 1;
            return;
        }
        let usual = self.phase == Phase::Open && incoming.header.kind == Kind::Session;
        if !usual && !self.is_of_this_session(&incoming.header) {
            return;
        }
        if self.is_excess(cx.now, incoming.body, incoming.datagram_len) {
            self.counters.excess += 1;
            return;
        }
        if !usual {
            self.learn_phase(cx, &incoming.header);
            if !self.is_alive() {
                return;
            }
            if !self.may_come(incoming.body) {
                cx.notes.limited += 1;
                return;
            }
        }
        let heard_before = core::mem::replace(&mut self.heard_at, cx.now);
        self.unanswered_since = None;
        self.counters.packets_received += 1;
        self.counters.bytes_received += incoming.datagram_len as u64;
        let mut ack_eliciting = false;
        let missing = number.saturating_sub(self.received.expected());
        let marked = incoming.ecn == Ecn::Ce;
        let mut pace = PaceNote { data: 0, request: None, missing, heard_before, marked };
        for frame in Frames::new(incoming.body) {
            let result = match frame {
                Ok(frame) => {
                    ack_eliciting |= frame.is_ack_eliciting();
                    if is_data(&frame) {
                        pace.data = incoming.datagram_len as u64;
                    }
                    self.handle_frame(cx, &frame, &mut pace)
                }
                Err(_) => Err("a frame that cannot be read"),
            };
            if let Err(what) = result {
                return self.violate(cx, what);
            }
            if !self.is_alive() {
                return;
            }
        }
        let arrival = Arrival {
            number,
            at: cx.now,
            came: cx.came,
            bytes: incoming.datagram_len,
            ecn: incoming.ecn,
            ack_eliciting,
            data: pace.data > 0,
            ack_now: incoming.header.flags & flags::ACK_NOW != 0,
            awaits_grant: self.is_last_granted(&pace),
        };
        self.received.record(arrival, cx.config.max_ack_delay);
        self.data_received += pace.data;
        cx.notes.pace = Some(pace);
        if self.sent.is_too_long() {
            return self.violate(cx, "it asks, and acknowledges no answers");
        }
        self.advance_close(cx);
    }

    /// Whether a packet that names our token belongs to the session as it stands, and not to an
    /// attempt that one side has given up.
    fn is_of_this_session(&self, header: &Header) -> bool {
        match (header.kind, header.opening) {
            (Kind::First, _) => self.phase == Phase::Answering || !self.initiated,
            (Kind::Answer, Some(opening)) if self.phase != Phase::Opening => {
                self.remote_token == Some(opening.own_token)
                    && self.remote_incarnation == Some(opening.incarnation)
            }
            (Kind::Session, _) => self.phase != Phase::Opening,
            _ => true,
        }
    }

    /// What the kind of a packet says about the other side.
    fn learn_phase(&mut self, cx: &mut Context<'_>, header: &Header) {
        match (self.phase, header.kind, header.opening) {
            (Phase::Opening, Kind::Answer, Some(opening)) => {
                self.remote_token = Some(opening.own_token);
                self.remote_incarnation = Some(opening.incarnation);
                // It acknowledges nothing, but answers a FIRST that was not repeated.
                if let Some(sent_at) = self.sent.oldest_sent_at().filter(|_| self.probe_timeouts == 0) {
                    self.rtt.on_answer(cx.now.nanos_since(sent_at));
                }
                if self.visible {
                    self.opened(cx);
                } else {
                    cx.notes.news |= News::INQUIRY_ANSWERED;
                }
            }
            (Phase::Answering, Kind::First, _) => self.repeat_answer(),
            (Phase::Answering, Kind::Session, _) => {
                // Whom the application has connected to it wants.
                let door = cx.config.doorkeeper.as_ref().filter(|_| !self.visible);
                if let Some(Err(refusal)) = door.map(|door| door.ask(self.remote.relays)) {
                    self.turn_away(cx, refusal);
                } else {
                    cx.notes.news |= News::PROVEN;
                    self.opened(cx);
                }
            }
            _ => {}
        }
    }

    /// A FIRST has come: our ANSWER has not arrived.
    pub fn repeat_answer(&mut self) {
        self.want(Control::Parameters);
    }

    fn opened(&mut self, cx: &mut Context<'_>) {
        self.phase = Phase::Open;
        self.protection.on_proven();
        self.visible = true;
        if let Some(incarnation) = self.remote_incarnation {
            cx.events.push(Event::Connected { peer: self.id, addr: self.addr, incarnation });
        }
        self.release_closing(cx);
        self.tell_rate(cx);
        // What came before the proof may be taken now.
        cx.notes.ready.extend(self.inbox.ready_channels());
        let offers: Vec<_> = self.inbox.announced_offers().collect();
        for (channel, offer) in offers {
            self.announcer(channel, cx.events)(offer);
        }
        cx.notes.news |= News::OFFERS;
    }

    /// What tells the application of a channel's offers.
    #[inline]
    fn announcer<'a>(&self, channel: u16, events: &'a mut Events<Event>) -> impl FnMut(Announced) + use<'a> {
        let (id, open) = (self.id, self.is_proven());
        move |offer| {
            // What comes before the proof is announced with it.
            if open {
                let channel = ChannelId { peer: id, channel };
                events.push(Event::Offered { channel, number: offer.number, bytes: offer.total });
            }
        }
    }

    #[inline(always)] // where it is read: see `Frames::next`
    fn handle_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        pace: &mut PaceNote,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Message(message) => {
                let channel = message.channel;
                let announce = self.announcer(channel, cx.events);
                let ready = self.inbox.on_message(cx.config, cx.blocks, message, announce)?;
                self.note_ready(cx, channel, ready);
            }
            Frame::Fragment(fragment) => {
                let channel = fragment.channel;
                let announce = self.announcer(channel, cx.events);
                let ready = self.inbox.on_fragment(cx.config, fragment, announce)?;
                self.note_ready(cx, channel, ready);
            }
            Frame::Ack(ack) => self.on_ack(cx, ack)?,
            rare => self.handle_rare_frame(cx, rare, pace)?,
        }
        Ok(())
    }

    /// What is not in nearly every packet.
    #[cold]
    #[inline(never)]
    fn handle_rare_frame(
        &mut self,
        cx: &mut Context<'_>,
        frame: &Frame<'_>,
        pace: &mut PaceNote,
    ) -> Result<(), Violation> {
        match frame {
            Frame::Offer(offer) => {
                let channel = offer.channel;
                let announce = self.announcer(channel, cx.events);
                let change = self.inbox.on_offer(cx.config, offer, announce)?;
                self.apply(cx, channel, change);
                if let Some(Control::Refuse { .. }) = change.answer {
                    self.renew_credit(cx.config, channel);
                }
            }
            Frame::Accept(accept) => self.on_accept(cx, accept),
            Frame::Credit(credit) => self.outbox.on_credit(credit.channel, credit.limit),
            Frame::Parameters(parameters) => self.on_parameters(cx, parameters),
            Frame::Delivered(delivered) => self.on_delivered(cx, delivered),
            Frame::StatusRequest(id) => self.on_status_request(*id),
            Frame::Status(status) => self.on_status(cx, status),
            Frame::CloseWrite => self.on_close_write(cx),
            Frame::CloseRead => self.on_close_read(cx),
            Frame::Skip(skip) => {
                let channel = skip.channel;
                let announce = self.announcer(channel, cx.events);
                let (change, withdrawn) = self.inbox.on_skip(cx.config, skip, announce)?;
                if let Some(number) = withdrawn.filter(|_| self.is_proven()) {
                    let channel = ChannelId { peer: self.id, channel };
                    cx.events.push(Event::Withdrawn { channel, number });
                }
                self.apply(cx, channel, change);
                // Nobody will take it, which is when these are done otherwise. What came after it may have
                // been taken long ago.
                self.report_delivery(channel);
                self.renew_credit(cx.config, channel);
            }
            Frame::Rate(rate) => self.on_rate(cx, rate),
            Frame::Feedback(report) if self.is_proven() => {
                let frame = denrei_wire::frame::OwnedFeedback::from(report);
                cx.notes.reports.push(super::GroupReport { from: self.id, frame });
            }
            Frame::Grant(grant) => self.on_grant(cx.now, grant),
            Frame::GrantRequest(request) => pace.request = Some((request.sent, request.wanted)),
            Frame::End(end) => self.on_end(cx, end.code, end.reason),
            // PING wants nothing but the acknowledgement. Frames of later versions are never sent
            // to a peer that speaks this one.
            _ => {}
        }
        Ok(())
    }

    fn apply(&mut self, cx: &mut Context<'_>, channel: u16, change: Change) {
        if let Some(answer) = change.answer {
            self.want(answer);
        }
        self.note_ready(cx, channel, change.ready);
        if self.is_proven() && change.offers {
            cx.notes.news |= News::OFFERS;
        }
    }

    /// Whether something in a channel can be taken: nothing before the proof.
    fn note_ready(&self, cx: &mut Context<'_>, channel: u16, ready: bool) {
        if ready && self.is_proven() {
            cx.notes.ready.push(channel);
        }
    }

    fn on_parameters(&mut self, cx: &mut Context<'_>, parameters: &Parameters) {
        if self.parameters_heard {
            return;
        }
        self.parameters_heard = true;
        self.remote = *parameters;
        self.rtt.set_max_ack_delay(Duration::from_micros(parameters.ack_delay_us as u64));
        self.mtu.limit(parameters.max_datagram);
        self.follow_mtu();
        let id = self.id;
        let Parameters { channel_credit, max_message, max_channels, .. } = *parameters;
        self.outbox.on_parameters(channel_credit, max_message, max_channels, |channel, number| {
            let channel = ChannelId { peer: id, channel };
            cx.events.push(Event::Refused(crate::MessageId { channel, number }));
        });
    }

    fn on_accept(&mut self, cx: &mut Context<'_>, accept: &Accept) {
        match self.outbox.on_accept(accept.channel, accept.number, accept.limit, accept.refused) {
            Some(Answered::Refused(refused)) => {
                cx.events.push(Event::Refused(self.message_id(accept.channel, refused.number)));
            }
            // Whoever offered it waits for its end, of which the receiver would say nothing for a while.
            Some(Answered::Accepted(Completion::Acknowledged)) => self.hurried = true,
            Some(Answered::Accepted(_)) | None => {}
        }
    }

    fn on_delivered(&mut self, cx: &mut Context<'_>, delivered: &Delivered) {
        let id = self.id;
        let channel = ChannelId { peer: id, channel: delivered.channel };
        self.outbox.on_delivered(delivered.channel, delivered.next, |number| {
            cx.events.push(Event::Delivered(crate::MessageId { channel, number }));
        });
    }
}
