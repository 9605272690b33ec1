//! The sending half of a channel: a queue of messages, cut into frames.
//!
//! Inputs → outputs: messages, credit, grants and the fates of frames → the next frame to send and
//! the messages that are done. Source: U4, U5, S2, S5, S7; `spec/protocol.md` §6.

mod aside;
mod late;
mod outgoing;
mod unpaced;

pub(crate) use late::Expired;

use aside::Aside;
use outgoing::{Outgoing, Progress};

use crate::config::MESSAGE_COST_BYTES;
use crate::sent::SentFrame;
use crate::{Completion, SendError, slots};
use bytes::Bytes;
use denrei_prefetch::ahead_of_reading;
use denrei_wire::TransmitBuf;
use denrei_wire::frame::{self, Frame, MESSAGE_HEADER_BYTES, Offer, fragment_header_bytes, message_flags};
use std::collections::VecDeque;

/// A packet that is nearly full is not topped up with a fragment smaller than this.
pub(crate) const MIN_FRAGMENT_BYTES: usize = 64;

/// Messages of a queue looked at to tell how much could be sent.
const MESSAGES_LOOKED_AT: usize = 256;

/// Slots a queue keeps when it is empty.
const IDLE_SLOTS: usize = 4;

/// What [`SendChannel::write`] did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// One frame; whether it was sent before.
    Frame { frame: SentFrame, again: bool },
    /// The next frame needs a packet with more room.
    NoRoom,
    /// Nothing may be sent now: the queue is empty or waits for credit or grants.
    Nothing,
}

/// A message that is done, as far as the application asked to know.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) struct Finished {
    pub number: u64,
    pub bytes: u64,
    pub completion: Completion,
    /// It was reported as expired before.
    pub expired: bool,
}

/// The receiver's word on an offered message, if it is news.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Answered {
    /// It is done with.
    Refused(Finished),
    /// More of it may be sent; what its sender wants to know.
    Accepted(Completion),
}

/// Room in the packet under construction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Octets left in this packet.
    pub here: usize,
    /// Octets a fresh packet has.
    pub fresh: usize,
}

/// What the receiver is known to allow.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// The receiver's channel credit, once it has told: a message that costs more has to be offered.
    pub channel_credit: Option<u64>,
    /// Messages larger than this are offered, whatever the credit.
    pub offer_above: u64,
    /// The largest message that the receiver takes, once it has told: it refuses offers of larger ones.
    pub max_message: u64,
}

impl Allowance {
    /// Whether a message of `len` bytes must not be sent unasked. Credit is renewed a quarter at a
    /// time, so what costs more than the other three quarters could wait for it for ever.
    pub fn demands_offer(self, len: u64) -> bool {
        let most = self.channel_credit.map_or(u64::MAX, |credit| credit - credit / 4);
        len > self.offer_above.min(self.max_message) || len + MESSAGE_COST_BYTES > most
    }
}

/// The sending half of a channel.
#[derive(Debug)]
pub(crate) struct SendChannel {
    channel: u16,
    pub priority: u8,
    /// Whether the scheduler has this channel in one of its queues.
    pub scheduled: bool,
    /// Number of the first message in `queue`.
    base: u64,
    queue: VecDeque<Outgoing>,
    /// Index in `queue` of the first message that has not been begun, or not been sent to its end.
    next_new: usize,
    credit_limit: u64,
    credit_used: u64,
    /// Made when the first message needs it.
    aside: Option<Box<Aside>>,
    /// Deadlines, once a message has one.
    late: Option<Box<late::Late>>,
}

impl SendChannel {
    pub fn new(channel: u16, priority: u8, credit_limit: u64) -> Self {
        Self {
            channel,
            priority,
            scheduled: false,
            base: 0,
            queue: VecDeque::new(),
            next_new: 0,
            credit_limit,
            credit_used: 0,
            aside: None,
            late: None,
        }
    }

    /// What the messages that are not acknowledged leave of `room`, bytes. A look at each, if they are few.
    pub fn room_left(&self, room: u64) -> u64 {
        if self.queue.len() as u64 * MESSAGE_COST_BYTES >= room {
            return 0;
        }
        let cost = |message: &Outgoing| message.data.len() as u64 + MESSAGE_COST_BYTES;
        self.queue.iter().try_fold(room, |left, message| left.checked_sub(cost(message))).unwrap_or(0)
    }

    /// Appends a message; its number.
    pub fn push(&mut self, data: Bytes, completion: Completion) -> u64 {
        let number = self.base + self.queue.len() as u64;
        if completion == Completion::Delivered {
            self.aside().unreported.push_back(number);
        }
        slots::push(&mut self.queue, Outgoing::new(data, completion, false));
        number
    }

    /// Puts a message before those that have not been begun, but after others that were put there. Those behind it
    /// have another number then, so nobody may have asked for word of them.
    pub fn push_first(&mut self, data: Bytes) {
        debug_assert!(
            self.late.is_none() && self.aside.as_ref().is_none_or(|aside| aside.unreported.is_empty())
        );
        let begun = |message: &&Outgoing| message.is_first || message.progress != Progress::Queued;
        let before = self.queue.iter().skip(self.next_new).take_while(begun).count();
        self.queue.insert(self.next_new + before, Outgoing::new(data, Completion::None, true));
    }

    /// Credit left, bytes of cost (S5).
    pub fn credit(&self) -> u64 {
        self.credit_limit.saturating_sub(self.credit_used)
    }

    /// Octets of messages that could be sent now. Offers count as what
    /// they take themselves. Looks at a bounded part of the queue: whoever asks
    /// will ask again.
    pub fn sendable(&self, allowance: Allowance) -> u64 {
        let left = |message: &Outgoing| message.limit().saturating_sub(message.sent);
        let of = |number: &u64| self.queue.get(number.checked_sub(self.base)? as usize);
        let mut small = self.late.as_ref().map_or(0, |late| late.skips_waiting());
        let (mut lost, mut granted) = (0, 0);
        if let Some(aside) = &self.aside {
            lost = aside.lost.iter().map(|lost| lost.len).sum();
            granted = aside.granted.iter().filter_map(of).take(MESSAGES_LOOKED_AT).map(left).sum();
            small += aside.lost_offers.len();
        }
        let mut credit = self.credit();
        let mut fresh = 0;
        for message in self.queue.iter().skip(self.next_new).take(MESSAGES_LOOKED_AT) {
            let cost = match message.progress {
                Progress::Queued if !allowance.demands_offer(message.len()) => {
                    message.len() + MESSAGE_COST_BYTES
                }
                Progress::Queued => MESSAGE_COST_BYTES,
                Progress::Unasked => 0,
                _ => continue,
            };
            let Some(rest) = credit.checked_sub(cost) else { break };
            credit = rest;
            let offered = cost == MESSAGE_COST_BYTES && message.len() > 0;
            fresh += if offered { OFFER_BYTES as u64 } else { left(message) + MESSAGE_HEADER_BYTES as u64 };
        }
        lost + granted + fresh + (small * OFFER_BYTES) as u64
    }

    /// New credit from the receiver; whether it is more than before.
    pub fn on_credit(&mut self, limit: u64) -> bool {
        let more = limit > self.credit_limit;
        self.credit_limit = self.credit_limit.max(limit);
        more
    }

    /// The receiver's word on an offered message; what is finished by it.
    pub fn on_accept(&mut self, number: u64, limit: u64, refused: bool) -> Option<Answered> {
        let message = self.get_mut(number)?;
        let Progress::Offered { limit: before } = message.progress else { return None };
        if refused {
            self.forget_unreported(number);
            return self.finish(number).map(Answered::Refused);
        }
        if limit <= before {
            return None;
        }
        message.progress = Progress::Offered { limit };
        let (unsent, completion) = (message.sent < message.limit(), message.completion);
        let granted = &mut self.aside().granted;
        if unsent && !granted.contains(&number) {
            granted.push_back(number);
        }
        Some(Answered::Accepted(completion))
    }

    /// Whether there is anything in the queue that is not done.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Messages that are not acknowledged, oldest first; with those given up of which the receiver may not know, and those
    /// that have arrived behind either and that nothing was said of: a receiver hands over nothing behind a gap.
    pub fn unacknowledged(&self) -> impl Iterator<Item = u64> {
        let may_be_lost = |(_, message): &(usize, &Outgoing)| message.progress.may_be_lost();
        self.queue.iter().enumerate().filter(may_be_lost).map(|(index, _)| self.base + index as u64)
    }

    /// Writes the next frame into `out`, if one may be sent and fits.
    pub fn write(&mut self, out: &mut TransmitBuf, room: Room, allowance: Allowance) -> Written {
        if self.aside.is_some() || self.late.is_some() {
            match self.write_aside(out, room) {
                Written::Nothing => {}
                written => return written,
            }
        }
        self.write_new(out, room, allowance)
    }

    fn write_new(&mut self, out: &mut TransmitBuf, room: Room, allowance: Allowance) -> Written {
        let credit = self.credit();
        self.pass_over_closed();
        let Some(message) = self.queue.get_mut(self.next_new) else { return Written::Nothing };
        let (len, number) = (message.len(), self.base + self.next_new as u64);
        let cost = len + MESSAGE_COST_BYTES;
        match message.progress {
            Progress::Queued if allowance.demands_offer(len) => {
                if credit < MESSAGE_COST_BYTES {
                    return Written::Nothing;
                }
                if room.here < OFFER_BYTES {
                    return Written::NoRoom;
                }
                message.progress = Progress::Offered { limit: 0 };
                self.credit_used += MESSAGE_COST_BYTES;
                self.next_new += 1;
                return self.write_offer(out, number, false);
            }
            Progress::Queued if cost > credit => return Written::Nothing,
            _ => {}
        }
        if message.sent == 0 && MESSAGE_HEADER_BYTES + len as usize <= room.here {
            message.progress = Progress::Unasked;
            message.sent = len;
            self.credit_used += cost;
            self.next_new += 1;
            return self.write_whole(out, number, false);
        }
        let (sent, left) = (message.sent, len - message.sent);
        let Some(fragment) = fragment_room(room, len, left, sent == 0) else { return Written::NoRoom };
        if message.progress == Progress::Queued {
            message.progress = Progress::Unasked;
            self.credit_used += cost;
        }
        message.sent += fragment;
        if fragment == left {
            self.next_new += 1;
        }
        self.write_fragment(out, number, sent, fragment, false)
    }

    /// Nothing is to be sent of those that are done or given up.
    #[inline(always)] // for each message
    fn pass_over_closed(&mut self) {
        while self.queue.get(self.next_new).is_some_and(|message| !message.progress.is_open()) {
            self.next_new += 1;
        }
    }

    #[inline(always)] // nearly every message is a small one
    fn write_whole(&mut self, out: &mut TransmitBuf, number: u64, again: bool) -> Written {
        let channel = self.channel;
        let message = self.get_mut(number).expect("the caller has seen it");
        let length = message.data.len() as u16;
        out.put(&frame::message_header(message.flags() & message_flags::REPORT, channel, number, length));
        out.put_part(&message.data, &message.data);
        Written::Frame { frame: SentFrame::Messages { channel, first: number, count: 1 }, again }
    }

    fn write_fragment(
        &mut self,
        out: &mut TransmitBuf,
        number: u64,
        offset: u64,
        len: u64,
        again: bool,
    ) -> Written {
        let channel = self.channel;
        let message = self.get_mut(number).expect("the caller has seen it");
        let total = message.len();
        let (from, end) = (offset as usize, (offset + len) as usize);
        ahead_of_reading(&message.data, from, end - from);
        let part = &message.data[from..end];
        let len = len as u16;
        let whose = (message.flags(), channel, number);
        frame::put_fragment_header(whose, (len, offset, total), &mut |octets| out.put(octets));
        out.put_part(part, &message.data);
        Written::Frame { frame: SentFrame::Fragment { channel, number, offset, len }, again }
    }

    fn write_offer(&mut self, out: &mut TransmitBuf, number: u64, again: bool) -> Written {
        let channel = self.channel;
        let message = self.get_mut(number).expect("the caller has seen it");
        let flags = message.flags() & message_flags::REPORT;
        let offer = Offer { flags, channel, number: number as u32, total: message.len() };
        Frame::Offer(offer).encode(&mut |bytes| out.put(bytes));
        Written::Frame { frame: SentFrame::Offer { channel, number }, again }
    }

    /// A run of whole messages has arrived; hands each that is done by it to `finished`.
    pub fn on_messages_acked(&mut self, first: u64, count: u64, mut finished: impl FnMut(Finished)) {
        for number in first..first + count {
            if let Some(done) = self.finish_as(number, Outgoing::arrived) {
                finished(done);
            }
        }
    }

    /// A fragment has arrived.
    pub fn on_fragment_acked(&mut self, number: u64, len: u64) -> Option<Finished> {
        let message = self.get_mut(number).filter(|message| message.progress.is_open())?;
        message.acked += len;
        if message.acked >= message.len() { self.finish_as(number, Outgoing::arrived) } else { None }
    }

    /// Drops all messages: the receiver has no such channel. Hands each to `dropped`.
    pub fn drop_all(&mut self, mut dropped: impl FnMut(Finished)) {
        self.aside = None;
        for number in self.base..self.base + self.queue.len() as u64 {
            if let Some(done) = self.finish(number) {
                dropped(done);
            }
        }
    }

    /// Full number of the message with these low bits.
    pub fn expand(&self, number: u32) -> u64 {
        denrei_wire::ids::expand(number, self.base + self.next_new as u64)
    }

    /// Begins anew with a receiver that has seen nothing: everything not done is sent again.
    pub fn restart(&mut self, credit_limit: u64) {
        for message in &mut self.queue {
            if message.progress.is_open() {
                message.progress = Progress::Queued;
                message.sent = 0;
                message.acked = 0;
            }
        }
        self.next_new = 0;
        if let Some(aside) = &mut self.aside {
            **aside = Aside { unreported: core::mem::take(&mut aside.unreported), ..Aside::default() };
        }
        self.credit_limit = credit_limit;
        self.credit_used = 0;
        self.restart_skips();
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.queue.get_mut(number.checked_sub(self.base)? as usize)
    }

    /// A message is done for the application, too: refused, dropped, or the SKIP of it has arrived.
    pub fn finish(&mut self, number: u64) -> Option<Finished> {
        self.finish_as(number, |_| Progress::DONE)
    }

    fn finish_as(&mut self, number: u64, end: impl FnOnce(&Outgoing) -> Progress) -> Option<Finished> {
        let message = self.get_mut(number).filter(|message| !message.progress.is_done())?;
        let expired = !message.progress.is_open();
        message.progress = end(message);
        let finished = Finished { number, bytes: message.len(), completion: message.completion, expired };
        message.data = Bytes::new();
        if let Some(late) = &mut self.late {
            late.forget(number);
        }
        while self.queue.front().is_some_and(|message| message.progress.is_done()) {
            self.queue.pop_front();
            self.base += 1;
            self.next_new = self.next_new.saturating_sub(1);
        }
        slots::give_back(&mut self.queue, IDLE_SLOTS);
        Some(finished)
    }
}

/// Octets of an OFFER frame.
pub(crate) const OFFER_BYTES: usize = 16;

/// How many of `left` bytes of a message of `total` to send as a fragment here; `None`: wait for a fresh packet.
///
/// A message that has not been begun and fits a fresh packet whole is not cut to fill this one.
fn fragment_room(room: Room, total: u64, left: u64, untouched: bool) -> Option<u64> {
    if untouched && MESSAGE_HEADER_BYTES as u64 + left <= room.fresh as u64 {
        return None;
    }
    let payload = room.here.checked_sub(fragment_header_bytes(total))?;
    let worth_it = payload as u64 >= left.min(MIN_FRAGMENT_BYTES as u64);
    (payload > 0 && worth_it).then(|| left.min(payload as u64).min(u16::MAX as u64))
}

/// Refuses what the receiver is known not to take.
pub(crate) fn check_size(bytes: u64, max: u64) -> Result<(), SendError> {
    if bytes > max { Err(SendError::TooLarge { bytes, max }) } else { Ok(()) }
}

/// Whether a queue of at most `most` bytes takes `bytes` more. One that is half empty takes a message of any size, or
/// a large one would find no room for as long as others send small ones.
pub(crate) fn has_room(queued: u64, bytes: u64, most: u64) -> bool {
    queued.saturating_add(bytes) <= most || queued <= most / 2
}
