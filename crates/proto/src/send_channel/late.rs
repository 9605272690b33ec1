//! Messages that are worth nothing after a time (S10: dropping; S13: live video).
//!
//! Inputs → outputs: deadlines and time → messages that are given up, and the SKIP frames that tell
//! the receiver to go on without them. Source: S10; `spec/protocol.md` §13.5.
//!
//! A message is given up when its deadline finds a part of it unsent or lost, when a part is found
//! lost after it, or when it is about to be begun and will not have been sent by then: what is spent
//! on a message that comes to nothing is lost to the next one. It keeps its number until the SKIP is
//! acknowledged, so that the channel's sequence has no gap that the receiver does not know of.

use super::aside::Lost;
use super::{MESSAGE_COST_BYTES, OFFER_BYTES, Progress, Room, SendChannel, Written};
use crate::event::Completion;
use crate::sent::SentFrame;
use bytes::Bytes;
use denrei_wire::frame::{Frame, Skip};
use denrei_wire::{Instant, TransmitBuf};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The deadlines of one channel. A message that is done has none any more.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// When to look at which message.
    due: BTreeSet<(Instant, u64)>,
    /// The same by number.
    deadlines: BTreeMap<u64, Instant>,
    /// Past their deadline with every byte under way: what is lost of these comes too late.
    overdue: BTreeSet<u64>,
    /// Messages whose SKIP has to be sent, in order.
    skips: VecDeque<u64>,
}

/// A message that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub number: u64,
    pub bytes: u64,
}

impl Late {
    /// SKIPs that have to be sent.
    pub fn skips_waiting(&self) -> usize {
        self.skips.len()
    }

    fn add_skip(&mut self, number: u64) {
        // Nearly always the last.
        let at = self.skips.partition_point(|other| *other < number);
        self.skips.insert(at, number);
    }

    fn add(&mut self, at: Instant, number: u64) {
        self.due.insert((at, number));
        self.deadlines.insert(number, at);
    }

    /// A message is done.
    pub fn forget(&mut self, number: u64) {
        match self.deadlines.remove(&number) {
            Some(at) => self.due.remove(&(at, number)),
            None => self.overdue.remove(&number),
        };
    }

    /// Whether a message with this number or a later one has a deadline.
    fn has_any_from(&self, number: u64) -> bool {
        self.deadlines.range(number..).next().is_some()
    }
}

impl SendChannel {
    /// Appends a message that is to be dropped if not all of it was sent by `deadline`; its number.
    pub fn push_before(&mut self, data: Bytes, completion: Completion, deadline: Instant) -> u64 {
        let number = self.push(data, completion);
        self.late.get_or_insert_default().add(deadline, number);
        number
    }

    /// When to call [`expire`](Self::expire).
    pub fn next_deadline(&self) -> Instant {
        let due = self.late.as_ref().and_then(|late| late.due.first());
        due.map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    /// Gives up what is too late at `now` and hands it to `expired`.
    pub fn expire(&mut self, now: Instant, mut expired: impl FnMut(Expired)) {
        while let Some(late) = &mut self.late
            && let Some(&(at, number)) = late.due.first()
            && at <= now
        {
            late.forget(number);
            let is_it = |lost: &Lost| lost.number == number;
            let lost = self.aside.as_ref().is_some_and(|aside| aside.lost.iter().any(is_it));
            let Some(message) = self.get_mut(number).filter(|message| message.progress.is_open()) else {
                continue;
            };
            if message.sent == message.len() && message.progress != Progress::Queued && !lost {
                self.late.get_or_insert_default().overdue.insert(number);
            } else if let Some(bytes) = self.give_up(number) {
                expired(Expired { number, bytes });
            }
        }
    }

    /// Gives up what would be begun within the next `reach` octets and not be sent to its end in time,
    /// and hands it to `expired`. `sent_at`: when so many octets will have been sent.
    pub fn give_up_hopeless(
        &mut self,
        reach: u64,
        sent_at: impl Fn(u64) -> Instant,
        mut expired: impl FnMut(Expired),
    ) {
        let mut number = self.base + self.next_new as u64;
        let mut ahead = 0;
        while ahead < reach
            && let Some(late) = &self.late
            && late.has_any_from(number)
            && let deadline = late.deadlines.get(&number).copied()
            && let Some(message) = self.get_mut(number)
        {
            let done = ahead + message.len().saturating_sub(message.sent);
            let hopeless =
                message.progress == Progress::Queued && deadline.is_some_and(|at| sent_at(done) > at);
            if hopeless && let Some(bytes) = self.give_up(number) {
                expired(Expired { number, bytes });
            } else {
                ahead = done;
            }
            number += 1;
        }
    }

    /// A part of a message was lost; whether the message is to be looked at again because of it.
    pub(super) fn note_late_loss(&mut self, number: u64) {
        if let Some(late) = &mut self.late
            && late.overdue.remove(&number)
        {
            late.add(Instant::ZERO, number);
        }
    }

    fn give_up(&mut self, number: u64) -> Option<u64> {
        let message = self.get_mut(number)?;
        let bytes = message.len();
        let (charged, billed) = match message.progress {
            Progress::Queued => (0, false),
            Progress::Unasked => (bytes, true),
            _ => (0, true),
        };
        message.progress = Progress::Skipped { charged, billed };
        message.data = Bytes::new();
        message.completion = Completion::None;
        self.forget_unreported(number);
        let late = self.late.get_or_insert_default();
        late.forget(number);
        late.add_skip(number);
        Some(bytes)
    }

    /// Writes the next SKIP, if there is one and it may go.
    pub(super) fn write_skip(&mut self, out: &mut TransmitBuf, room: Room) -> Written {
        let Some(number) = self.next_skip() else { return Written::Nothing };
        if room.here < OFFER_BYTES {
            return Written::NoRoom;
        }
        let state = self.get_mut(number).map(|message| &mut message.progress);
        let Some(Progress::Skipped { charged, billed }) = state else { return Written::Nothing };
        let first = !core::mem::replace(billed, true);
        let charged = *charged;
        self.credit_used += if first { MESSAGE_COST_BYTES } else { 0 };
        self.late.get_or_insert_default().skips.pop_front();
        let skip = Skip { channel: self.channel, number: number as u32, charged };
        Frame::Skip(skip).encode(&mut |bytes| out.put(bytes));
        let frame = SentFrame::Skip { channel: self.channel, number };
        Written::Frame { frame, again: false }
    }

    /// The message whose SKIP is the next that may go.
    pub(super) fn next_skip(&mut self) -> Option<u64> {
        while let Some(&number) = self.late.as_ref()?.skips.front() {
            if let Some(Progress::Skipped { billed, .. }) =
                self.get_mut(number).map(|message| message.progress)
            {
                return (billed || self.may_bill(number)).then_some(number);
            }
            // Acknowledged in the meantime: it had arrived after all.
            self.late.as_mut()?.skips.pop_front();
        }
        None
    }

    /// Whether a message that was not begun may be charged what its number costs. Not before those in front of
    /// it: their receiver gives that credit back only when they are through, and they may need it.
    fn may_bill(&mut self, number: u64) -> bool {
        self.pass_over_closed();
        number < self.base + self.next_new as u64 && self.credit() >= MESSAGE_COST_BYTES
    }

    /// A SKIP has to be sent again.
    pub fn on_skip_lost(&mut self, number: u64) {
        self.late.get_or_insert_default().add_skip(number);
    }

    /// Begins anew with a receiver that has seen nothing: it has to be told of every skip.
    pub(super) fn restart_skips(&mut self) {
        let Some(late) = &mut self.late else { return };
        late.skips.clear();
        for (index, message) in self.queue.iter_mut().enumerate() {
            if let Progress::Skipped { charged, billed } = &mut message.progress {
                (*charged, *billed) = (0, false);
                late.skips.push_back(self.base + index as u64);
            }
        }
        for number in core::mem::take(&mut late.overdue) {
            late.add(Instant::ZERO, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send_channel::Allowance;

    #[test]
    fn nothing_is_kept_of_the_deadlines_of_messages_that_have_arrived() {
        let allowance = Allowance { channel_credit: None, offer_above: u64::MAX, max_message: u64::MAX };
        let mut channel = SendChannel::new(0, 0, u64::MAX);
        // One in time, one that arrives when it is too late already.
        for deadline in [Instant::FAR_FUTURE, Instant::from_nanos(5)] {
            let number = channel.push_before(Bytes::from_static(b"frame"), Completion::None, deadline);
            let mut out = TransmitBuf::new(1);
            let written = channel.write(&mut out, Room { here: 1000, fresh: 1000 }, allowance);
            assert!(matches!(written, Written::Frame { .. }));
            channel.expire(Instant::from_nanos(5), |_| panic!("all of it was sent in time"));
            let mut finished = 0;
            channel.on_messages_acked(number, 1, |_| finished += 1);
            assert_eq!(finished, 1);
        }
        let late = channel.late.unwrap();
        assert!(late.due.is_empty() && late.overdue.is_empty(), "{late:?}");
    }
}
