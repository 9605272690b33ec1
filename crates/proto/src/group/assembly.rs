//! What a member has of the group's messages: symbols in any order → messages in order.
//!
//! Inputs → outputs: the frames of symbols → whole messages, and what they cost. Memory is bounded by
//! the limit that the member announced. Source: M5, U4; `spec/protocol.md` §14.2.

use crate::buffer_pool::BufferPool;
use crate::config::MESSAGE_COST_BYTES;
use crate::lending::{Handled, Memory};
use crate::reassembly::Reassembly;
use bytes::Bytes;
use denrei_wire::frame::{Fragment, Frame, Frames, Message};
use denrei_wire::{Shape, ids};
use std::collections::{BTreeMap, VecDeque};

/// A message that is not ready.
#[derive(Debug)]
enum Part {
    Whole(Bytes),
    Pieces(Reassembly),
}

/// Messages under construction, and those that may be taken.
#[derive(Debug)]
pub(crate) struct Assembly {
    /// First message that is not ready.
    next: u64,
    parts: BTreeMap<u64, Part>,
    ready: VecDeque<(u64, Bytes)>,
    /// Cost of messages seen, and of those taken, since the group began.
    seen_cost: u64,
    taken_cost: u64,
    held_bytes: u64,
    /// Where the memory for messages in parts comes from.
    pool: BufferPool,
    /// Message that the last fragment was of.
    last_fragment: Option<u64>,
}

impl Assembly {
    /// Begins with this message; those before it cost so much. Up to `spare_bytes` lie idle between two
    /// messages.
    pub fn new(first_message: u64, cost: u64, spare_bytes: u64) -> Self {
        Self {
            next: first_message,
            parts: BTreeMap::new(),
            ready: VecDeque::new(),
            seen_cost: cost,
            taken_cost: cost,
            held_bytes: 0,
            pool: BufferPool::for_large(spare_bytes as usize),
            last_fragment: None,
        }
    }

    /// Messages below this number have come, whole and in order.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Cost of the messages taken.
    pub fn taken_cost(&self) -> u64 {
        self.taken_cost
    }

    /// Cost of the messages of which anything has come.
    pub fn seen_cost(&self) -> u64 {
        self.seen_cost
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Whether there is something to take.
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next message.
    pub fn take(&mut self) -> Option<(u64, Bytes)> {
        let (number, data) = self.ready.pop_front()?;
        self.taken_cost += data.len() as u64 + MESSAGE_COST_BYTES;
        self.held_bytes -= data.len() as u64;
        Some((number, data))
    }

    /// Takes in the frames of a symbol. No message may be larger than `max_message`.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn add(&mut self, frames: &[u8], max_message: u64) -> Result<(), &'static str> {
        for frame in Frames::new(frames) {
            match frame {
                Ok(Frame::Message(message)) => self.add_message(&message, max_message)?,
                Ok(Frame::Fragment(fragment)) => self.add_fragment(&fragment, max_message)?,
                Ok(_) => return Err("a frame that is no part of a message"),
                Err(_) => return Err("a symbol that cannot be read"),
            }
        }
        Ok(())
    }

    /// What the messages cost that these frames begin here; `None`: one is too large to be taken in at all.
    pub fn cost_of_new(&self, frames: &[u8], max_message: u64) -> Option<u64> {
        let new = |number: u32| {
            let number = ids::expand(number, self.next);
            number >= self.next && !self.parts.contains_key(&number)
        };
        let mut begun = Frames::new(frames).map_while(Result::ok).filter_map(|frame| match frame {
            Frame::Message(message) if new(message.number) => Some(message.payload.len() as u64),
            Frame::Fragment(fragment) if new(fragment.number) => Some(fragment.total),
            _ => None,
        });
        begun.try_fold(0, |cost, bytes| (bytes <= max_message).then_some(cost + bytes + MESSAGE_COST_BYTES))
    }

    fn add_message(&mut self, message: &Message<'_>, max_message: u64) -> Result<(), &'static str> {
        let number = ids::expand(message.number, self.next);
        if number < self.next || self.parts.contains_key(&number) {
            return Ok(());
        }
        let data = Bytes::copy_from_slice(message.payload);
        self.charge(data.len() as u64, max_message)?;
        if number == self.next && self.parts.is_empty() {
            self.next += 1;
            self.ready.push_back((number, data));
        } else {
            self.parts.insert(number, Part::Whole(data));
            self.advance();
        }
        Ok(())
    }

    fn add_fragment(&mut self, fragment: &Fragment<'_>, max_message: u64) -> Result<(), &'static str> {
        let number = ids::expand(fragment.number, self.next);
        if number < self.next {
            return Ok(());
        }
        self.last_fragment = Some(number);
        let pieces = match self.parts.get_mut(&number) {
            Some(Part::Pieces(pieces)) => pieces,
            Some(Part::Whole(_)) => return Ok(()),
            None => self.begin_pieces(number, fragment.total, max_message)?,
        };
        if pieces.total() != fragment.total {
            return Err("two sizes of one message");
        }
        let inserted = pieces.insert(fragment.offset, fragment.payload);
        inserted.map_err(|_| "message cut into too many pieces")?;
        if pieces.is_complete() {
            self.advance();
        }
        Ok(())
    }

    /// Another packet of the group's address is handled: memory is lent for what follows a fragment of the last one alone.
    pub fn begin_packet(&mut self) {
        self.last_fragment = None;
    }

    /// Lends the memory of the message that the last fragment was of: see [`Reassembly::lend`].
    pub fn lend(&mut self, datagram: &Handled) -> Option<(u64, Memory, usize, Shape)> {
        let number = self.last_fragment?;
        let Some(Part::Pieces(pieces)) = self.parts.get_mut(&number) else { return None };
        let (memory, at, shape) = pieces.lend(datagram)?;
        Some((number, memory, at, shape))
    }

    /// The memory of a message is here again.
    pub fn take_back(&mut self, number: u64, memory: Memory) {
        if let Some(Part::Pieces(pieces)) = self.parts.get_mut(&number) {
            pieces.take_back(memory);
            self.advance();
        }
    }

    fn begin_pieces(
        &mut self,
        number: u64,
        total: u64,
        max_message: u64,
    ) -> Result<&mut Reassembly, &'static str> {
        self.charge(total, max_message)?;
        let pieces = Reassembly::new(total, Vec::new(), &self.pool).ok_or("no memory for a message")?;
        match self.parts.entry(number).or_insert(Part::Pieces(pieces)) {
            Part::Pieces(pieces) => Ok(pieces),
            Part::Whole(_) => Err("a message that is whole and in pieces"),
        }
    }

    fn charge(&mut self, bytes: u64, max_message: u64) -> Result<(), &'static str> {
        if bytes > max_message {
            return Err("a message larger than announced");
        }
        self.seen_cost += bytes + MESSAGE_COST_BYTES;
        self.held_bytes += bytes;
        Ok(())
    }

    fn advance(&mut self) {
        while let Some(entry) = self.parts.first_entry() {
            let complete = match entry.get() {
                _ if *entry.key() != self.next => false,
                Part::Whole(_) => true,
                Part::Pieces(pieces) => pieces.is_complete(),
            };
            if !complete {
                return;
            }
            let data = match entry.remove() {
                Part::Whole(data) => data,
                Part::Pieces(pieces) => pieces.into_bytes(),
            };
            self.ready.push_back((self.next, data));
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(frames: &[Frame<'_>]) -> Vec<u8> {
        let mut octets = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut |part| octets.extend_from_slice(part)));
        octets
    }

    fn message(number: u32, payload: &[u8]) -> Frame<'_> {
        Frame::Message(Message { flags: 0, channel: 0, number, payload })
    }

    #[test]
    fn messages_come_in_order_and_once() {
        let mut assembly = Assembly::new(5, 1000, 0);
        assembly.add(&frames(&[message(6, b"second")]), 100).unwrap();
        assert!(!assembly.has_ready());
        let begins = frames(&[message(6, b"second"), message(7, b"third"), message(4, b"old")]);
        assert_eq!(assembly.cost_of_new(&begins, 100), Some(5 + MESSAGE_COST_BYTES));
        assert_eq!(assembly.cost_of_new(&begins, 4), None, "it is too large");
        assembly
            .add(&frames(&[message(5, b"first"), message(6, b"second"), message(4, b"old")]), 100)
            .unwrap();
        assert_eq!(assembly.take(), Some((5, Bytes::from_static(b"first"))));
        assert_eq!(assembly.take(), Some((6, Bytes::from_static(b"second"))));
        assert_eq!(assembly.take(), None);
        assert_eq!(assembly.taken_cost(), 1000 + 11 + 2 * MESSAGE_COST_BYTES);
        assert_eq!((assembly.seen_cost(), assembly.held_bytes()), (assembly.taken_cost(), 0));
    }

    #[test]
    fn what_nobody_may_send_is_refused() {
        let mut assembly = Assembly::new(0, 0, 0);
        assert!(assembly.add(&frames(&[Frame::Ping]), 100).is_err());
        assert!(assembly.add(&[0xff], 100).is_err());
        assert!(assembly.add(&frames(&[message(0, &[0; 101])]), 100).is_err());
        let fragment = |total| {
            Frame::Fragment(Fragment { flags: 0, channel: 0, number: 0, offset: 0, total, payload: b"x" })
        };
        assembly.add(&frames(&[fragment(50)]), 100).unwrap();
        assert!(assembly.add(&frames(&[fragment(51)]), 100).is_err());
        assert!(assembly.add(&frames(&[fragment(u64::MAX)]), 100).is_err());
    }
}
