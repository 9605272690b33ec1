//! Messages that do not take the usual way: lost, granted, or to be reported.
//!
//! Inputs → outputs: the fates of frames, grants, what was handed over → the frames that go before
//! those of messages that have not been begun. Source: S2, S7, R7; `spec/protocol.md` §6. Kept behind a
//! pointer: most channels never have any.

use super::{
    Finished, MESSAGE_HEADER_BYTES, OFFER_BYTES, Progress, Room, SendChannel, Written, fragment_room,
};
use denrei_wire::TransmitBuf;
use std::collections::VecDeque;

/// A part of a message that has to be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lost {
    pub number: u64,
    pub offset: u64,
    pub len: u64,
}

/// Messages that do not take the usual way: most channels never have any.
#[derive(Debug, Default)]
pub(super) struct Aside {
    /// In order: the receiver's application waits for the oldest, though it be lost again and again.
    pub lost: VecDeque<Lost>,
    pub lost_offers: VecDeque<u64>,
    pub granted: VecDeque<u64>,
    /// Those whose hand-over the application wants to know of, in order.
    pub unreported: VecDeque<u64>,
}

impl Aside {
    fn add_lost(&mut self, part: Lost) {
        // Nearly always the last.
        let at = self.lost.partition_point(|other| *other < part);
        self.lost.insert(at, part);
    }
}

impl SendChannel {
    pub(super) fn aside(&mut self) -> &mut Aside {
        self.aside.get_or_insert_default()
    }

    /// The application need not be told of a message's hand-over: there will be none.
    pub(super) fn forget_unreported(&mut self, number: u64) {
        if let Some(aside) = &mut self.aside {
            aside.unreported.retain(|other| *other != number);
        }
    }

    /// What goes before the messages that have not been begun.
    pub(super) fn write_aside(&mut self, out: &mut TransmitBuf, room: Room) -> Written {
        match self.write_lost(out, room) {
            Written::Nothing => {}
            written => return written,
        }
        match self.write_skip(out, room) {
            Written::Nothing => {}
            written => return written,
        }
        while let Some(number) = self.aside.as_ref().and_then(|aside| aside.granted.front().copied()) {
            if self.get_mut(number).is_some_and(|message| message.sent < message.limit()) {
                return self.write_granted(out, room, number);
            }
            self.aside().granted.pop_front();
        }
        Written::Nothing
    }

    fn write_lost(&mut self, out: &mut TransmitBuf, room: Room) -> Written {
        match self.write_lost_offer(out, room) {
            Written::Nothing => self.write_lost_part(out, room),
            written => written,
        }
    }

    pub(super) fn write_lost_offer(&mut self, out: &mut TransmitBuf, room: Room) -> Written {
        if room.here < OFFER_BYTES && self.aside.as_ref().is_some_and(|aside| !aside.lost_offers.is_empty()) {
            return Written::NoRoom;
        }
        while let Some(number) = self.aside.as_mut().and_then(|aside| aside.lost_offers.pop_front()) {
            if self.get_mut(number).is_some_and(|m| matches!(m.progress, Progress::Offered { .. })) {
                return self.write_offer(out, number, true);
            }
        }
        Written::Nothing
    }

    fn write_lost_part(&mut self, out: &mut TransmitBuf, room: Room) -> Written {
        while let Some(lost) = self.aside.as_ref().and_then(|aside| aside.lost.front().copied()) {
            let Some(message) = self.get_mut(lost.number).filter(|m| m.progress.is_open()) else {
                self.aside().lost.pop_front();
                continue;
            };
            let whole = lost.len == message.len() && !matches!(message.progress, Progress::Offered { .. });
            if whole && MESSAGE_HEADER_BYTES + message.data.len() <= room.here {
                self.aside().lost.pop_front();
                return self.write_whole(out, lost.number, true);
            }
            let total = message.len();
            let Some(len) = fragment_room(room, total, lost.len, whole) else { return Written::NoRoom };
            let queue = &mut self.aside().lost;
            if len == lost.len {
                queue.pop_front();
            } else {
                queue[0] = Lost { offset: lost.offset + len, len: lost.len - len, ..lost };
            }
            return self.write_fragment(out, lost.number, lost.offset, len, true);
        }
        Written::Nothing
    }

    fn write_granted(&mut self, out: &mut TransmitBuf, room: Room, number: u64) -> Written {
        let message = self.get_mut(number).expect("the caller has seen it");
        let (sent, total, left) = (message.sent, message.len(), message.limit() - message.sent);
        let Some(len) = fragment_room(room, total, left, false) else { return Written::NoRoom };
        message.sent += len;
        if len == left {
            self.aside().granted.pop_front();
        }
        self.write_fragment(out, number, sent, len, false)
    }

    /// A run of whole messages has to be sent again.
    pub fn on_messages_lost(&mut self, first: u64, count: u64) {
        for number in first..first + count {
            if let Some(message) = self.get_mut(number).filter(|message| message.progress.is_open()) {
                let len = message.len();
                self.aside().add_lost(Lost { number, offset: 0, len });
                self.note_late_loss(number);
            }
        }
    }

    /// A fragment has to be sent again.
    pub fn on_fragment_lost(&mut self, number: u64, offset: u64, len: u64) {
        if self.get_mut(number).is_some_and(|message| message.progress.is_open()) {
            self.aside().add_lost(Lost { number, offset, len });
            self.note_late_loss(number);
        }
    }

    /// An OFFER has to be sent again.
    pub fn on_offer_lost(&mut self, number: u64) {
        self.aside().lost_offers.push_back(number);
    }

    /// The receiver's application has taken everything before `next`, except what it refused. Hands
    /// each message of which that was to be reported to `delivered`, and what is finished by it.
    pub fn on_delivered(&mut self, next: u64, mut delivered: impl FnMut(u64, Option<Finished>)) {
        let mut at = 0;
        while let Some(aside) = &self.aside
            && let Some(&number) = aside.unreported.get(at)
            && number < next
        {
            // Not all of it was sent: it can only have been refused, and the ACCEPT will say so.
            if self.get_mut(number).is_some_and(|message| message.sent < message.len()) {
                at += 1;
                continue;
            }
            self.aside().unreported.remove(at);
            let finished = self.finish(number);
            // Nor was anything before it lost, though word of that may be missing.
            if let Some(message) = self.get_mut(number) {
                message.progress = Progress::DONE;
            }
            delivered(number, finished);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_again_first_however_often_it_was_lost() {
        let mut aside = Aside::default();
        let parts = [(3, 0), (4, 0), (7, 0), (7, 1400), (3, 0), (7, 700), (1, 0)];
        for (number, offset) in parts {
            aside.add_lost(Lost { number, offset, len: 100 });
        }
        let order: Vec<_> = aside.lost.iter().map(|lost| (lost.number, lost.offset)).collect();
        assert_eq!(order, [(1, 0), (3, 0), (3, 0), (4, 0), (7, 0), (7, 700), (7, 1400)]);
    }
}
