//! What the opener has said: messages, and the symbols they were cut into.
//!
//! Inputs → outputs: messages, room in a packet, who may take more → symbols, which keep their
//! number and content for ever, so that whoever misses one can have it again. A symbol is a
//! description (which part of which message); the message's bytes are kept once and never copied
//! before they go out. Source: M5 (one sequence for all), RFC 5740 §1 (symbols), `spec/protocol.md`
//! §14.2.

use crate::config::MESSAGE_COST_BYTES;
use crate::send_channel::MIN_FRAGMENT_BYTES;
use bytes::Bytes;
use denrei_prefetch::ahead_of_reading;
use denrei_wire::frame::{self, MESSAGE_HEADER_BYTES, fragment_header_bytes};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// A part of a message, or all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    message: u64,
    offset: u64,
    len: u64,
}

/// A symbol that was cut.
#[derive(Debug)]
pub(crate) struct Symbol {
    pieces: SmallVec<[Piece; 1]>,
    /// Octets of its frames.
    pub bytes: usize,
    /// Cost of all messages begun before it, and with it.
    pub cost_before: u64,
    pub cost_after: u64,
    /// Messages that are complete with it, since the beginning.
    pub messages_after: u64,
    /// Number of the packet that last carried it to the group's address.
    pub packet: Option<u64>,
    /// How often that has been done.
    pub tries: u8,
}

/// Messages and symbols.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Messages that a retained symbol or a symbol to come refers to; the first has this number.
    messages: VecDeque<Bytes>,
    first_message: u64,
    /// The message being cut, and how far it is.
    cutting: u64,
    offset: u64,
    symbols: VecDeque<Symbol>,
    /// Number of the first retained symbol.
    base: u64,
    /// First symbol that not everybody who counts has acknowledged.
    acked: u64,
    begun_cost: u64,
    acked_messages: u64,
    unacked_bytes: u64,
    in_flight: u64,
    /// Bytes of the symbols between `base` and `acked`.
    history: u64,
}

impl Stream {
    /// Appends a message; its number.
    pub fn push(&mut self, message: Bytes) -> u64 {
        self.unacked_bytes += cost_of(&message);
        self.messages.push_back(message);
        self.message_count() - 1
    }

    /// Messages so far.
    pub fn message_count(&self) -> u64 {
        self.first_message + self.messages.len() as u64
    }

    /// Messages acknowledged by all who count.
    pub fn acked_messages(&self) -> u64 {
        self.acked_messages
    }

    /// Cost of messages not acknowledged by all who count.
    pub fn unacked_bytes(&self) -> u64 {
        self.unacked_bytes
    }

    /// Bytes of symbols that were cut and not acknowledged by all who count.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes of acknowledged symbols that are retained.
    pub fn history(&self) -> u64 {
        self.history
    }

    /// The first retained symbol's number.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The next symbol's number.
    pub fn next(&self) -> u64 {
        self.base + self.symbols.len() as u64
    }

    /// First symbol that not everybody who counts has acknowledged.
    pub fn acked(&self) -> u64 {
        self.acked
    }

    /// Cost of all messages begun.
    pub fn begun_cost(&self) -> u64 {
        self.begun_cost
    }

    /// Whether a message is cut in part: then nobody can begin here.
    pub fn is_within_message(&self) -> bool {
        self.offset > 0
    }

    /// Number of the message that the next symbol begins with.
    pub fn next_message(&self) -> u64 {
        self.cutting
    }

    /// Cost of the message that would be begun next, if any; 0 within one.
    pub fn next_cost(&self) -> Option<u64> {
        let message = self.message(self.cutting)?;
        Some(if self.offset > 0 { 0 } else { cost_of(message) })
    }

    /// Whether everything has been cut.
    pub fn is_drained(&self) -> bool {
        self.cutting == self.message_count()
    }

    /// The symbol with this number, if it is retained.
    pub fn symbol(&self, number: u64) -> Option<&Symbol> {
        self.symbols.get(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// See [`symbol`](Self::symbol).
    pub fn symbol_mut(&mut self, number: u64) -> Option<&mut Symbol> {
        self.symbols.get_mut(usize::try_from(number.checked_sub(self.base)?).ok()?)
    }

    /// Cost of the messages that are complete without this retained symbol and those after it.
    pub fn complete_cost(&self, number: u64) -> u64 {
        let Some(symbol) = self.symbol(number) else { return 0 };
        let first = &symbol.pieces[0];
        let broken = self.message(first.message).filter(|_| first.offset > 0);
        symbol.cost_before - broken.map_or(0, cost_of)
    }

    /// The largest message that begins after the symbols cut so far, of those that were queued.
    pub fn largest_to_come(&self) -> u64 {
        let within = self.is_within_message() as usize;
        let skipped = (self.cutting - self.first_message) as usize + within;
        self.messages.iter().skip(skipped).map(|message| message.len() as u64).max().unwrap_or(0)
    }

    /// Cuts the next symbol, of at most `room` octets; a message is begun if `may_begin` its cost,
    /// given the cost begun before. `stop_at_boundary` ends the symbol with the message being cut.
    pub fn cut(
        &mut self,
        room: usize,
        stop_at_boundary: bool,
        may_begin: impl Fn(u64, u64) -> bool,
    ) -> Option<u64> {
        let (mut left, mut pieces) = (room, SmallVec::new());
        let cost_before = self.begun_cost;
        while let Some(message) = self.message(self.cutting) {
            let total = message.len() as u64;
            let fresh = self.offset == 0;
            let cost = cost_of(message);
            if fresh && ((stop_at_boundary && !pieces.is_empty()) || !may_begin(self.begun_cost, cost)) {
                break;
            }
            let Some(len) = piece_len(total, self.offset, left, room) else { break };
            left -= len as usize + header_bytes(len, total);
            self.begun_cost += if fresh { cost } else { 0 };
            pieces.push(Piece { message: self.cutting, offset: self.offset, len });
            self.offset += len;
            if self.offset < total {
                break;
            }
            self.offset = 0;
            self.cutting += 1;
        }
        if pieces.is_empty() {
            return None;
        }
        let bytes = room - left;
        self.in_flight += bytes as u64;
        let (cost_after, messages_after) = (self.begun_cost, self.cutting);
        self.symbols.push_back(Symbol {
            pieces,
            bytes,
            cost_before,
            cost_after,
            messages_after,
            packet: None,
            tries: 0,
        });
        Some(self.next() - 1)
    }

    /// Hands the frames of a retained symbol to `put`.
    pub fn write(&self, number: u64, put: &mut impl FnMut(&[u8])) {
        let Some(symbol) = self.symbol(number) else { return };
        for piece in &symbol.pieces {
            let Some(message) = self.message(piece.message) else { return };
            let (total, len) = (message.len() as u64, piece.len as u16);
            if piece.len == total {
                put(&frame::message_header(0, 0, piece.message, len));
            } else {
                frame::put_fragment_header((0, 0, piece.message), (len, piece.offset, total), put);
            }
            let (from, end) = (piece.offset as usize, (piece.offset + piece.len) as usize);
            ahead_of_reading(message, from, end - from);
            put(&message[from..end]);
        }
    }

    /// Everybody who counts has everything below `number`; whether that is news.
    pub fn acknowledge(&mut self, number: u64) -> bool {
        let before = self.acked;
        while self.acked < number.min(self.next()) {
            let symbol = &self.symbols[(self.acked - self.base) as usize];
            let (bytes, messages) = (symbol.bytes as u64, symbol.messages_after);
            self.in_flight -= bytes;
            self.history += bytes;
            self.acked += 1;
            while self.acked_messages < messages {
                self.unacked_bytes -= self.message(self.acked_messages).map_or(0, cost_of);
                self.acked_messages += 1;
            }
        }
        self.acked > before
    }

    /// Forgets acknowledged symbols that nobody needs (`needed`: the first that somebody does), as
    /// long as more than `keep` bytes of them are retained.
    pub fn release(&mut self, needed: u64, keep: u64) {
        while self.base < self.acked.min(needed) && self.history > keep {
            let Some(symbol) = self.symbols.pop_front() else { return };
            self.history -= symbol.bytes as u64;
            self.base += 1;
        }
        let first = self.symbols.front().map_or(self.cutting, |symbol| symbol.pieces[0].message);
        while self.first_message < first {
            self.messages.pop_front();
            self.first_message += 1;
        }
    }

    /// The oldest retained symbol in which a message begins, such that no message from there on is larger than `max`;
    /// that message, and the cost of those before it. What else the symbol has is of no use to who begins there.
    pub fn oldest_boundary(&self, max: u64) -> Option<(u64, u64, u64)> {
        let too_large = self.messages.iter().rposition(|message| message.len() as u64 > max);
        let first = self.first_message + too_large.map_or(0, |last| last as u64 + 1);
        let begun = |piece: &&Piece| piece.offset == 0;
        self.symbols.iter().enumerate().find_map(|(at, symbol)| {
            let found = symbol.pieces.iter().filter(begun).find(|piece| piece.message >= first)?;
            let before = symbol.pieces.iter().filter(begun).take_while(|piece| piece.message < found.message);
            let cost: u64 = before.filter_map(|piece| self.message(piece.message).map(cost_of)).sum();
            Some((self.base + at as u64, found.message, symbol.cost_before + cost))
        })
    }

    fn message(&self, number: u64) -> Option<&Bytes> {
        self.messages.get(usize::try_from(number.checked_sub(self.first_message)?).ok()?)
    }
}

/// What a message counts against limits (spec 6.2), octets.
fn cost_of(message: &Bytes) -> u64 {
    message.len() as u64 + MESSAGE_COST_BYTES
}

/// Octets before `len` of a message's `total`.
fn header_bytes(len: u64, total: u64) -> usize {
    if len == total { MESSAGE_HEADER_BYTES } else { fragment_header_bytes(total) }
}

/// How much of a message goes into a symbol that has `left` of its `room` octets free.
fn piece_len(total: u64, offset: u64, left: usize, room: usize) -> Option<u64> {
    let whole = offset == 0 && total <= u16::MAX as u64;
    if whole && total as usize + MESSAGE_HEADER_BYTES <= left {
        return Some(total);
    }
    // What a symbol of its own would hold whole is not cut.
    if whole && left < room && total as usize + MESSAGE_HEADER_BYTES <= room {
        return None;
    }
    let room = left.checked_sub(fragment_header_bytes(total))?.min(u16::MAX as usize) as u64;
    // A part that is the whole would have to be a MESSAGE.
    let most = if offset == 0 { total.saturating_sub(1) } else { total - offset };
    let len = room.min(most);
    (len > 0 && (len == most || len >= MIN_FRAGMENT_BYTES as u64)).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::assembly::Assembly;
    use proptest::prelude::*;

    fn content(number: usize, len: usize) -> Bytes {
        (0..len).map(|at| (at * 7 + number) as u8).collect::<Vec<u8>>().into()
    }

    fn written(stream: &Stream, number: u64) -> Vec<u8> {
        let mut octets = Vec::new();
        stream.write(number, &mut |part| octets.extend_from_slice(part));
        octets
    }

    proptest! {
        #[test]
        fn what_is_cut_in_any_way_comes_together_again(
            sizes in proptest::collection::vec(0usize..5000, 1..30),
            rooms in proptest::collection::vec(100usize..2000, 1..10),
            order in any::<u64>(),
        ) {
            let mut stream = Stream::default();
            for (number, &size) in sizes.iter().enumerate() {
                stream.push(content(number, size));
            }
            let mut round = 0;
            while !stream.is_drained() {
                let room = rooms[round % rooms.len()];
                let symbol = stream.cut(room, false, |_, _| true);
                prop_assert!(symbol.is_some());
                let symbol = symbol.unwrap();
                let octets = written(&stream, symbol);
                prop_assert_eq!(octets.len(), stream.symbol(symbol).unwrap().bytes);
                prop_assert!(octets.len() <= room);
                round += 1;
            }
            let mut numbers: Vec<u64> = (0..stream.next()).collect();
            let mut seed = order | 1;
            for at in (1..numbers.len()).rev() {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                numbers.swap(at, (seed >> 33) as usize % (at + 1));
            }
            let mut assembly = Assembly::new(0, 0, 0);
            for number in numbers {
                prop_assert_eq!(assembly.add(&written(&stream, number), u64::MAX), Ok(()));
            }
            for (number, &size) in sizes.iter().enumerate() {
                let message = assembly.take();
                prop_assert_eq!(message, Some((number as u64, content(number, size))));
            }
            prop_assert!(stream.acknowledge(stream.next()));
            prop_assert_eq!((stream.unacked_bytes(), stream.in_flight()), (0, 0));
            stream.release(u64::MAX, 0);
            prop_assert_eq!((stream.base(), stream.messages.len()), (stream.next(), 0));
        }
    }

    #[test]
    fn credit_stops_the_cutting_at_a_message() {
        let mut stream = Stream::default();
        stream.push(content(0, 100));
        stream.push(content(1, 100));
        let limit = 100 + MESSAGE_COST_BYTES;
        assert_eq!(stream.cut(1000, false, |begun, cost| begun + cost <= limit), Some(0));
        assert_eq!(stream.cut(1000, false, |begun, cost| begun + cost <= limit), None);
        assert_eq!(stream.symbol(0).unwrap().messages_after, 1);
    }

    #[test]
    fn history_is_kept_as_long_as_it_is_small() {
        let mut stream = Stream::default();
        for number in 0..10 {
            stream.push(content(number, 500));
            stream.cut(600, false, |_, _| true);
        }
        stream.acknowledge(8);
        stream.release(u64::MAX, 1600);
        assert_eq!(stream.base(), 5, "three symbols of 510 octets");
        assert_eq!(stream.oldest_boundary(u64::MAX).unwrap().1, 5);
        stream.release(u64::MAX, 0);
        assert_eq!(stream.base(), 8, "what is not acknowledged stays");
    }

    /// Large messages one after the other rarely begin where a symbol does.
    #[test]
    fn who_asks_for_history_begins_with_the_oldest_message_that_is_retained_whole() {
        let mut stream = Stream::default();
        for (number, len) in [1500, 50, 5000, 60, 2500, 3000].into_iter().enumerate() {
            stream.push(content(number, len));
        }
        while stream.cut(1000, false, |_, _| true).is_some() {}
        stream.acknowledge(stream.next());
        let cost = |lens: &[u64]| lens.iter().map(|len| len + MESSAGE_COST_BYTES).sum::<u64>();
        assert_eq!(stream.oldest_boundary(u64::MAX), Some((0, 0, 0)));
        // In the second symbol, behind the end of the first message and all of the second.
        assert_eq!(stream.oldest_boundary(4000), Some((6, 3, cost(&[1500, 50, 5000]))));
        stream.release(1, 0);
        assert_eq!(stream.oldest_boundary(u64::MAX), Some((1, 1, cost(&[1500]))));
        stream.release(2, 0);
        assert_eq!(stream.oldest_boundary(u64::MAX), Some((6, 3, cost(&[1500, 50, 5000]))));
        let (symbol, message, _) = stream.oldest_boundary(u64::MAX).unwrap();
        let mut assembly = Assembly::new(message, 0, 0);
        for number in symbol..stream.next() {
            assembly.add(&written(&stream, number), 1 << 20).unwrap();
        }
        let taken: Vec<_> = std::iter::from_fn(|| assembly.take()).collect();
        assert_eq!(taken, [(3, content(3, 60)), (4, content(4, 2500)), (5, content(5, 3000))]);
    }
}
