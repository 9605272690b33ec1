//! A message's memory in the hands of whoever receives, so that payloads are received where they belong.
//!
//! Inputs → outputs: the datagram that was handled last of each source → where the next ones of its kind are expected
//! to belong; the memory, when it is given back, and what came meanwhile that belongs elsewhere in it.
//! Between the two nothing but a train is handled, and only what is farther from its end than a train reaches is
//! lent: nobody misses the memory.

use crate::event::PeerId;
use crate::group::GroupId;
use crate::placement::Placement;
use core::net::SocketAddr;
use denrei_wire::{Landing, Shape};
use std::collections::BTreeMap;

/// Sources whose last datagram is noted: more than there are connected sockets.
const MAX_SOURCES: usize = 64;

/// The last large datagram of each source that was handled.
#[derive(Debug)]
pub(crate) struct Noted {
    /// Smaller ones are not noted, bytes.
    from_bytes: usize,
    last: BTreeMap<SocketAddr, Handled>,
}

impl Default for Noted {
    /// Nobody wants memory lent.
    fn default() -> Self {
        Self { from_bytes: usize::MAX, last: BTreeMap::new() }
    }
}

impl Noted {
    /// Notes datagrams of `bytes` and more.
    pub fn note_from(&mut self, bytes: usize) {
        self.from_bytes = bytes;
    }

    /// A datagram was handled.
    pub fn note(&mut self, datagram: &[u8], from: SocketAddr, by: Handler) {
        if datagram.len() < self.from_bytes {
            return;
        }
        if self.last.len() >= MAX_SOURCES && !self.last.contains_key(&from) {
            self.last.clear();
        }
        self.last.insert(from, Handled { address: datagram.as_ptr() as usize, len: datagram.len(), by });
    }

    /// The last one of `from`.
    pub fn last_of(&self, from: &SocketAddr) -> Option<Handled> {
        self.last.get(from).copied()
    }

    /// Forgets that of `from`.
    pub fn forget(&mut self, from: &SocketAddr) {
        self.last.remove(from);
    }
}

/// Memory that an [`Endpoint`](crate::Endpoint) has lent. It has to be given back before anything but the
/// datagrams of one train is handled.
#[derive(Debug)]
pub struct Lent {
    pub(crate) memory: Memory,
    pub(crate) at: usize,
    pub(crate) shape: Shape,
    pub(crate) owner: Owner,
}

impl Lent {
    /// Where the next train is expected to belong; `None`: whoever owns the memory keeps it to himself.
    pub fn landing(&mut self) -> Option<Landing<'_>> {
        Landing::new(self.memory.bytes()?, self.at, self.shape)
    }
}

/// Of which message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Session { peer: PeerId, channel: u16, number: u64 },
    Group { group: GroupId, number: u64 },
}

/// The memory of a message.
#[derive(Debug)]
pub(crate) enum Memory {
    Own(Vec<u8>),
    Placed(Box<dyn Placement>),
}

impl Memory {
    pub fn bytes(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Own(memory) => Some(memory),
            Self::Placed(placement) => placement.memory(),
        }
    }
}

/// A datagram that was handled: where it lay, whose it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    pub address: usize,
    pub len: usize,
    pub by: Handler,
}

/// What has handled it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Handler {
    Session(u32),
    Group(GroupId),
}

/// Where a payload lay when it was taken in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lay {
    pub address: usize,
    pub len: usize,
}

impl Lay {
    pub fn of(payload: &[u8]) -> Self {
        Self { address: payload.as_ptr() as usize, len: payload.len() }
    }

    /// How the datagram divides that this payload lay in; `None`: it was another.
    pub fn shape(&self, datagram: &Handled) -> Option<Shape> {
        let before = self.address.checked_sub(datagram.address)?;
        let after = datagram.len.checked_sub(before + self.len)?;
        (self.len > 0).then_some(Shape { before, payload: self.len, after })
    }
}

/// What a message remembers of its memory while that is lent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// Where the memory begins, and where in the message the first expected payload.
    pub address: usize,
    pub at: u64,
    /// Octets from one expected payload to the next.
    pub payload: u64,
}

impl Window {
    /// Whether a payload lies where it belongs, and all of it: what surrounds an expected payload is there only
    /// while its datagram is handled.
    pub fn holds(&self, offset: u64, payload: &[u8]) -> bool {
        let beyond = offset.wrapping_sub(self.at);
        let expected =
            offset >= self.at && beyond.is_multiple_of(self.payload) && payload.len() as u64 <= self.payload;
        expected && payload.as_ptr() as usize == self.address + offset as usize
    }
}
