//! Where an accepted message is put: into memory of its own, or into memory that someone else owns.
//!
//! Inputs → outputs: fragments in any order, overlapping or repeated → each byte of the message
//! placed where it belongs, and the word that all are there. Source: S7; `spec/protocol.md` §6.3.

use core::fmt::Debug;
use std::collections::BTreeMap;

/// Memory outside of the endpoint that a message is placed into as it arrives: once, in any order.
/// It is dropped as soon as the message is complete or will not come any more (the peer is lost, the
/// endpoint is dropped), and not touched after that. It is called in the middle of receiving: it must not panic, nor
/// call what it receives for.
pub trait Placement: Debug + Send {
    /// Takes the message's bytes from `offset` on. What was placed before may be placed again.
    fn place(&mut self, offset: u64, bytes: &[u8]);

    /// All of the memory, if it is in one piece and may be written to directly: then it is lent to whoever
    /// receives, and only what does not arrive in order is placed. What was not placed yet may hold anything until
    /// the message is complete.
    fn memory(&mut self) -> Option<&mut [u8]> {
        None
    }
}

/// What an offered message is accepted into.
#[derive(Debug)]
pub enum AcceptInto {
    /// Memory whose content is dropped; the message arrives as these bytes.
    Buffer(Vec<u8>),
    /// Memory of somebody else; the message arrives with empty data.
    Placement(Box<dyn Placement>),
}

impl From<Vec<u8>> for AcceptInto {
    fn from(buffer: Vec<u8>) -> Self {
        Self::Buffer(buffer)
    }
}

impl From<Box<dyn Placement>> for AcceptInto {
    fn from(placement: Box<dyn Placement>) -> Self {
        Self::Placement(placement)
    }
}

/// A message that is being placed.
#[derive(Debug)]
pub(crate) struct Placing {
    /// `None` while it is lent.
    into: Option<Box<dyn Placement>>,
    /// Bytes without a gap from the start.
    have: u64,
    /// Stretches beyond the first gap, start to end; disjoint.
    beyond: BTreeMap<u64, u64>,
}

impl Placing {
    pub fn new(into: Box<dyn Placement>) -> Self {
        Self { into: Some(into), have: 0, beyond: BTreeMap::new() }
    }

    /// Bytes without a gap from the start.
    pub fn have(&self) -> u64 {
        self.have
    }

    /// Whether something lies beyond a gap.
    pub fn has_gaps(&self) -> bool {
        !self.beyond.is_empty()
    }

    /// The memory, to be given back.
    pub fn lend(&mut self) -> Option<Box<dyn Placement>> {
        self.into.take()
    }

    /// The memory is here again.
    pub fn take_back(&mut self, into: Box<dyn Placement>) {
        self.into = Some(into);
    }

    /// The next `bytes` are where they belong.
    pub fn landed(&mut self, bytes: u64) {
        self.have += bytes;
    }

    /// Places `payload` at `offset`; `false` if it would make more than `most` stretches.
    pub fn insert(&mut self, offset: u64, payload: &[u8], most: usize) -> bool {
        let (mut start, mut end) = (offset, offset + payload.len() as u64);
        if end <= self.have {
            return true;
        }
        if start > self.have && self.beyond.len() >= most {
            return false;
        }
        if let Some(into) = &mut self.into {
            into.place(offset, payload);
        }
        // Joins what it touches.
        while let Some((&from, &until)) =
            self.beyond.range(..=end).next_back().filter(|(_, until)| **until >= start)
        {
            self.beyond.remove(&from);
            (start, end) = (start.min(from), end.max(until));
        }
        if start <= self.have {
            self.have = end;
        } else {
            self.beyond.insert(start, end);
        }
        true
    }
}
