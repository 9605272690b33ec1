//! Everything one peer is to be sent: its channels, and whose turn it is.
//!
//! Inputs → outputs: messages per channel → a packet's worth of frames, the most urgent channel
//! first, channels of one priority in turn (S10). A channel that waits for credit or a grant is
//! out of the turn until it gets one, so it holds no other up.

mod unpaced;

use crate::Completion;
use crate::channel_map::ChannelMap;
use crate::config::{Config, MESSAGE_COST_BYTES, MIN_CHANNELS};
use crate::send_channel::{Allowance, Answered, Expired, Finished, Room, SendChannel, Written};
use crate::sent::SentFrame;
use bytes::Bytes;
use denrei_wire::frame::MESSAGE_HEADER_BYTES;
use denrei_wire::group::GROUP_CHANNEL;
use denrei_wire::{Instant, TransmitBuf};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Priority of a channel that was given none.
const DEFAULT_PRIORITY: u8 = 4;

/// What each channel may queue when others have filled the send buffer, bytes: messages that are small and urgent …
const OWN_ROOM_BYTES: u64 = 16 << 10;
/// … or this part of the send buffer, if that is less.
const OWN_ROOM_SHARE: u64 = 8;

/// The channels to one peer.
#[derive(Debug)]
pub(crate) struct Outbox {
    channels: ChannelMap<SendChannel>,
    /// Channels that may have something to send, the most urgent first, those of one priority in turn.
    turns: VecDeque<Turn>,
    /// Credit that a new channel starts with.
    initial_credit: u64,
    pub allowance: Allowance,
    /// The only channel that offers what is larger than the allowance says.
    offering: Option<u16>,
    queued_bytes: u64,
    queued_messages: u64,
    /// The earliest deadline of a message.
    next_deadline: Instant,
}

/// A channel's place among those that may have something to send.
#[derive(Debug, Clone, Copy)]
struct Turn {
    priority: u8,
    channel: u16,
}

/// What [`Outbox::write`] put into a packet.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Wrote {
    /// Frames that were sent before.
    pub repeated: u64,
    /// Octets of messages.
    pub payload: u64,
    /// Frames of any kind.
    pub frames: u64,
}

impl Outbox {
    pub fn new(initial_credit: u64, config: &Config) -> Self {
        Self {
            channels: ChannelMap::default(),
            turns: VecDeque::new(),
            initial_credit,
            allowance: Allowance {
                channel_credit: None,
                offer_above: config.offer_above_bytes,
                max_message: u64::MAX,
            },
            offering: config.offering_channel,
            queued_bytes: 0,
            queued_messages: 0,
            next_deadline: Instant::FAR_FUTURE,
        }
    }

    /// Bytes of messages that are not acknowledged, each charged [`MESSAGE_COST_BYTES`] more.
    pub fn queued_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// What a channel may queue beyond a send buffer of `most` bytes that others have filled.
    pub fn room_beside(&self, channel: u16, most: u64) -> u64 {
        self.room_left(channel, OWN_ROOM_BYTES.min(most / OWN_ROOM_SHARE))
    }

    /// What a channel's messages leave of `room`, bytes.
    pub fn room_left(&self, channel: u16, room: u64) -> u64 {
        self.channels.get(channel).map_or(room, |state| state.room_left(room))
    }

    /// Whether a message of `bytes` fits there, and half of it is free: who waits is not woken for each message.
    pub fn has_room_beside(&self, channel: u16, bytes: u64, most: u64) -> bool {
        let half = OWN_ROOM_BYTES.min(most / OWN_ROOM_SHARE) / 2;
        self.room_beside(channel, most) >= half.max(bytes.saturating_add(MESSAGE_COST_BYTES))
    }

    /// Messages that are not acknowledged (S9's queue length).
    pub fn queued_messages(&self) -> u64 {
        self.queued_messages
    }

    /// Whether what was said of groups is not all acknowledged.
    pub fn owes_group_records(&self) -> bool {
        self.channels.get(GROUP_CHANNEL).is_some_and(|state| !state.is_empty())
    }

    /// Credit left on channel 0.
    pub fn credit(&self) -> u64 {
        self.channels.get(0).map_or(self.initial_credit, |state| state.credit())
    }

    /// Octets of messages that could be sent now: not what waits for credit or for the receiver's word.
    pub fn sendable(&self) -> u64 {
        let states =
            self.turns.iter().filter_map(|turn| Some((turn.channel, self.channels.get(turn.channel)?)));
        states.map(|(channel, state)| state.sendable(self.allowance_of(channel))).sum()
    }

    /// Whether some channel may have a frame to send.
    pub fn has_turn(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Appends a message to a channel; its number.
    pub fn push(&mut self, channel: u16, data: Bytes, completion: Completion) -> u64 {
        let number = self.taking(channel, &data).push(data, completion);
        self.schedule(channel);
        number
    }

    /// Puts a message before those of its channel that have not been begun; see [`SendChannel::push_first`].
    pub fn push_first(&mut self, channel: u16, data: Bytes) {
        self.taking(channel, &data).push_first(data);
        self.schedule(channel);
    }

    /// Appends a message that is dropped if it is late; its number.
    pub fn push_before(
        &mut self,
        channel: u16,
        data: Bytes,
        completion: Completion,
        deadline: Instant,
    ) -> u64 {
        self.next_deadline = self.next_deadline.min(deadline);
        let number = self.taking(channel, &data).push_before(data, completion, deadline);
        self.schedule(channel);
        number
    }

    /// When to call [`expire`](Self::expire).
    pub fn next_deadline(&self) -> Instant {
        self.next_deadline
    }

    /// Gives up the messages that are too late, and hands channel and number to `expired`.
    pub fn expire(&mut self, now: Instant, mut expired: impl FnMut(u16, u64)) {
        let due = |state: &SendChannel| state.next_deadline() <= now;
        let channels: SmallVec<[u16; 8]> =
            self.channels.iter().filter(|(_, state)| due(state)).map(|(channel, _)| channel).collect();
        for channel in channels {
            let Some(state) = self.channels.get_mut(channel) else { continue };
            state.expire(now, |Expired { number, bytes }| {
                self.queued_bytes -= bytes;
                expired(channel, number);
            });
            self.schedule(channel);
        }
        let deadlines = self.channels.iter().map(|(_, state)| state.next_deadline());
        self.next_deadline = deadlines.min().unwrap_or(Instant::FAR_FUTURE);
    }

    /// Gives up messages that are about to be begun and cannot be in time, and hands channel and number to
    /// `expired`; see [`SendChannel::give_up_hopeless`].
    pub fn give_up_hopeless(
        &mut self,
        reach: u64,
        sent_at: impl Fn(u64) -> Instant,
        mut expired: impl FnMut(u16, u64),
    ) {
        let mut gone: SmallVec<[u16; 8]> = SmallVec::new();
        for (channel, state) in self.channels.iter_mut() {
            state.give_up_hopeless(reach, &sent_at, |Expired { number, bytes }| {
                self.queued_bytes -= bytes;
                gone.push(channel);
                expired(channel, number);
            });
        }
        gone.into_iter().for_each(|channel| self.schedule(channel));
    }

    /// Changes a channel's priority, 0 ..= 7.
    pub fn set_priority(&mut self, channel: u16, priority: u8) {
        let state = self.channel(channel);
        state.priority = priority;
        if core::mem::take(&mut state.scheduled) {
            self.turns.retain(|turn| turn.channel != channel);
            self.schedule(channel);
        }
    }

    /// The peer has told what it grants: channels start with this much.
    ///
    /// Messages queued for channels that it does not have are handed to `refused`.
    pub fn on_parameters(
        &mut self,
        channel_credit: u64,
        max_message: u64,
        max_channels: u16,
        mut refused: impl FnMut(u16, u64),
    ) {
        self.initial_credit = channel_credit;
        self.allowance.channel_credit = Some(channel_credit);
        self.allowance.max_message = max_message;
        let channels: SmallVec<[u16; 8]> = self.channels.iter().map(|(channel, _)| channel).collect();
        for channel in channels {
            if channel >= max_channels && channel != GROUP_CHANNEL {
                self.drop_channel(channel, |number| refused(channel, number));
            } else {
                self.on_credit(channel, channel_credit);
                self.schedule(channel);
            }
        }
    }

    fn drop_channel(&mut self, channel: u16, mut dropped: impl FnMut(u64)) {
        let Some(mut state) = self.channels.remove(channel) else { return };
        self.turns.retain(|turn| turn.channel != channel);
        state.drop_all(|done| {
            self.account(&done);
            if !done.expired {
                dropped(done.number);
            }
        });
    }

    /// DELIVERED: hands each message of which that was to be reported to `delivered`.
    pub fn on_delivered(&mut self, channel: u16, next: u32, mut delivered: impl FnMut(u64)) {
        let Some(state) = self.channels.get_mut(channel) else { return };
        let (queued_messages, queued_bytes) = (&mut self.queued_messages, &mut self.queued_bytes);
        state.on_delivered(state.expand(next), |number, finished| {
            if let Some(done) = finished {
                *queued_messages -= 1;
                *queued_bytes -= done.bytes + MESSAGE_COST_BYTES;
            }
            delivered(number);
        });
    }

    /// New credit for a channel.
    pub fn on_credit(&mut self, channel: u16, limit: u64) {
        if self.channels.get_mut(channel).is_some_and(|state| state.on_credit(limit)) {
            self.schedule(channel);
        }
    }

    /// The receiver's word on an offered message.
    pub fn on_accept(&mut self, channel: u16, number: u32, limit: u64, refused: bool) -> Option<Answered> {
        let state = self.channels.get_mut(channel)?;
        let answered = state.on_accept(state.expand(number), limit, refused);
        self.schedule(channel);
        if let Some(Answered::Refused(finished)) = &answered {
            self.account(finished);
            self.rest(channel);
        }
        answered
    }

    /// Fills the packet under construction.
    pub fn write(
        &mut self,
        out: &mut TransmitBuf,
        end: usize,
        fresh: usize,
        frames: &mut SmallVec<[SentFrame; 2]>,
    ) -> Wrote {
        let mut wrote = Wrote::default();
        while let Some(&Turn { channel, .. }) = self.turns.front() {
            let before = out.len();
            let room = Room { here: end.saturating_sub(before), fresh };
            let allowance = self.allowance_of(channel);
            let state = self.channels.get_mut(channel).expect("scheduled channels exist");
            match state.write(out, room, allowance) {
                Written::Frame { frame, again } => {
                    wrote.frames += 1;
                    wrote.repeated += again as u64;
                    wrote.payload += payload_of(&frame, out.len() - before);
                    note(frames, frame);
                    if self.turns.len() > 1 {
                        self.pass_turn();
                    }
                }
                Written::NoRoom => return wrote,
                Written::Nothing => {
                    state.scheduled = false;
                    self.turns.pop_front();
                }
            }
        }
        wrote
    }

    /// A frame has arrived; hands each message that is done by it to `finished`.
    pub fn on_acked(&mut self, frame: &SentFrame, mut finished: impl FnMut(u16, Finished)) {
        let (mut messages, mut bytes) = (0, 0);
        let mut note = |channel, done: Finished| {
            messages += 1;
            bytes += done.bytes + MESSAGE_COST_BYTES;
            finished(channel, done);
        };
        match *frame {
            SentFrame::Messages { channel, first, count } => {
                if let Some(state) = self.channels.get_mut(channel) {
                    state.on_messages_acked(first, count.into(), |done| note(channel, done));
                }
            }
            SentFrame::Fragment { channel, number, len, .. } => {
                let state = self.channels.get_mut(channel);
                if let Some(done) = state.and_then(|state| state.on_fragment_acked(number, len.into())) {
                    note(channel, done);
                }
            }
            SentFrame::Skip { channel, number } => {
                let state = self.channels.get_mut(channel);
                if let Some(done) = state.and_then(|state| state.finish(number)) {
                    note(channel, done);
                }
                self.rest(channel);
            }
            _ => {}
        }
        self.queued_messages -= messages;
        self.queued_bytes -= bytes;
    }

    /// A frame has to be sent again.
    pub fn on_lost(&mut self, frame: &SentFrame) {
        let channel = match *frame {
            SentFrame::Messages { channel, .. }
            | SentFrame::Fragment { channel, .. }
            | SentFrame::Offer { channel, .. }
            | SentFrame::Skip { channel, .. } => channel,
            _ => return,
        };
        let Some(state) = self.channels.get_mut(channel) else { return };
        match *frame {
            SentFrame::Messages { first, count, .. } => state.on_messages_lost(first, count.into()),
            SentFrame::Fragment { number, offset, len, .. } => {
                state.on_fragment_lost(number, offset, len.into());
            }
            SentFrame::Offer { number, .. } => state.on_offer_lost(number),
            SentFrame::Skip { number, .. } => state.on_skip_lost(number),
            _ => {}
        }
        self.next_deadline = self.next_deadline.min(state.next_deadline());
        self.schedule(channel);
    }

    /// Messages that are not acknowledged: channel and number, oldest first per channel.
    pub fn unacknowledged(&self) -> impl Iterator<Item = (u16, u64)> {
        let own = self.channels.iter().filter(|(id, _)| *id != GROUP_CHANNEL);
        own.flat_map(|(id, state)| state.unacknowledged().map(move |number| (id, number)))
    }

    /// Drops all messages: nobody will take them.
    pub fn clear(&mut self) {
        self.channels.clear();
        self.turns = VecDeque::new();
        self.next_deadline = Instant::FAR_FUTURE;
        self.queued_bytes = 0;
        self.queued_messages = 0;
    }

    /// Begins anew with a receiver that has seen nothing.
    pub fn restart(&mut self, initial_credit: u64) {
        self.initial_credit = initial_credit;
        self.allowance.channel_credit = None;
        self.allowance.max_message = u64::MAX;
        // Whose turn it may be now is seen below: the receiver that had told more channels is gone.
        self.turns.clear();
        let channels: SmallVec<[u16; 8]> = self.channels.iter().map(|(channel, _)| channel).collect();
        for channel in channels {
            let state = self.channel(channel);
            state.restart(initial_credit);
            state.scheduled = false;
            let deadline = state.next_deadline();
            self.next_deadline = self.next_deadline.min(deadline);
            self.schedule(channel);
        }
    }

    /// The channel that takes a message, which counts as queued from now on.
    fn taking(&mut self, channel: u16, data: &Bytes) -> &mut SendChannel {
        self.queued_bytes += data.len() as u64 + MESSAGE_COST_BYTES;
        self.queued_messages += 1;
        self.channel(channel)
    }

    fn channel(&mut self, channel: u16) -> &mut SendChannel {
        let credit = self.initial_credit;
        self.channels.get_or_insert_with(channel, || SendChannel::new(channel, DEFAULT_PRIORITY, credit))
    }

    fn schedule(&mut self, channel: u16) {
        // Of a receiver that has not told, only the channels are used that every receiver has.
        if self.allowance.channel_credit.is_none() && channel >= MIN_CHANNELS {
            return;
        }
        let Some(state) = self.channels.get_mut(channel) else { return };
        if !state.scheduled && !state.is_empty() {
            state.scheduled = true;
            let turn = Turn { priority: state.priority, channel };
            self.enqueue(turn);
        }
    }

    /// Takes the turn of a channel all of whose messages were given up: who has one has something to send.
    fn rest(&mut self, channel: u16) {
        if let Some(state) = self.channels.get_mut(channel)
            && state.scheduled
            && state.is_empty()
        {
            state.scheduled = false;
            self.turns.retain(|turn| turn.channel != channel);
        }
    }

    /// The channel whose turn it was is the last of its priority now.
    fn pass_turn(&mut self) {
        if let Some(turn) = self.turns.pop_front() {
            self.enqueue(turn);
        }
    }

    fn enqueue(&mut self, turn: Turn) {
        if self.turns.back().is_none_or(|last| last.priority <= turn.priority) {
            return self.turns.push_back(turn);
        }
        let behind = self.turns.partition_point(|other| other.priority <= turn.priority);
        self.turns.insert(behind, turn);
    }

    /// Records of groups are small, and nobody is asked about them, however small the messages that the receiver takes.
    fn allowance_of(&self, channel: u16) -> Allowance {
        if channel == GROUP_CHANNEL {
            return Allowance { offer_above: u64::MAX, max_message: u64::MAX, ..self.allowance };
        }
        let offers = self.offering.is_none_or(|only| only == channel);
        let offer_above = if offers { self.allowance.offer_above } else { u64::MAX };
        Allowance { offer_above, ..self.allowance }
    }

    /// Whether a message of so many bytes has to be offered.
    pub fn demands_offer(&self, channel: u16, bytes: u64) -> bool {
        self.allowance_of(channel).demands_offer(bytes)
    }

    fn account(&mut self, finished: &Finished) {
        self.queued_messages -= 1;
        self.queued_bytes -= finished.bytes + MESSAGE_COST_BYTES;
    }
}

/// Octets of payload in a frame of so many octets. An empty message counts as one: a stream of them
/// has a rate, too.
fn payload_of(frame: &SentFrame, octets: usize) -> u64 {
    match frame {
        SentFrame::Fragment { len, .. } => u64::from(*len),
        SentFrame::Messages { .. } => (octets - MESSAGE_HEADER_BYTES).max(1) as u64,
        _ => 0,
    }
}

/// Appends to a packet's record; consecutive whole messages become one run.
fn note(frames: &mut SmallVec<[SentFrame; 2]>, frame: SentFrame) {
    if let (
        Some(SentFrame::Messages { channel, first, count }),
        SentFrame::Messages { channel: other, first: next, .. },
    ) = (frames.last_mut(), &frame)
        && channel == other
        && *first + u64::from(*count) == *next
    {
        *count += 1;
        return;
    }
    frames.push(frame);
}
