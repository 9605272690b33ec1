//! What groups add to the formats: the header of GROUP packets, and records.
//!
//! Inputs → outputs: octets ↔ [`GroupHeader`] and [`Record`], every length checked. Records are the
//! messages of the session's channel [`GROUP_CHANNEL`]. Source: `spec/protocol.md` §14; M2, M4.

mod record;

pub use record::{Begin, Join, MAX_CHILDREN, Open, Record, RecordError, Removal, Route, SYMBOL_HEADER_BYTES};

use crate::packet::COMMON_HEADER_BYTES;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The channel of every session on which group records travel; no application has it.
pub const GROUP_CHANNEL: u16 = u16::MAX;

/// Octets of a GROUP packet before its frames.
pub const GROUP_HEADER_BYTES: usize = COMMON_HEADER_BYTES + size_of::<Layout>();

/// Most gaps that one FEEDBACK names.
pub const MAX_GAPS: usize = 32;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    symbol: U32,
    floor: U32,
    ack_every: U16,
    parity_of: u8,
    parity_index: u8,
}

/// What follows the common header in a GROUP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Low 32 bits of the number of the symbol that this packet carries; of the next one to come if
    /// it carries none; of the first one of its block if it carries parity.
    pub symbol: u32,
    /// Low 32 bits of the first symbol that is still to be had.
    pub floor: u32,
    /// A member reports at every so many symbols, 1 or more.
    pub ack_every: u16,
    /// Symbols of the block that this packet is parity of; 0: it is not parity.
    pub parity_of: u8,
    /// Which parity of the block; in a packet with a symbol 1 if parity may follow for it, else 0.
    pub parity_index: u8,
}

impl GroupHeader {
    /// Takes the header off the body of a packet; what follows are the frames (and the trailer, if
    /// the body still has it).
    pub fn decode(body: &[u8]) -> Option<(Self, &[u8])> {
        let (layout, rest) = Layout::ref_from_prefix(body).ok()?;
        let header = Self {
            symbol: layout.symbol.get(),
            floor: layout.floor.get(),
            ack_every: layout.ack_every.get().max(1),
            parity_of: layout.parity_of,
            parity_index: layout.parity_index,
        };
        Some((header, rest))
    }

    /// The octets that follow the common header.
    pub fn encode(&self) -> [u8; GROUP_HEADER_BYTES - COMMON_HEADER_BYTES] {
        zerocopy::transmute!(Layout {
            symbol: self.symbol.into(),
            floor: self.floor.into(),
            ack_every: self.ack_every.into(),
            parity_of: self.parity_of,
            parity_index: self.parity_index,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip() {
        let header = GroupHeader { symbol: 7, floor: 3, ack_every: 64, parity_of: 0, parity_index: 0 };
        let octets = header.encode();
        assert_eq!(GroupHeader::decode(&octets), Some((header, &[][..])));
        assert_eq!(GroupHeader::decode(&octets[1..]), None);
    }

    #[test]
    fn a_member_never_divides_by_zero() {
        let header = GroupHeader { symbol: 0, floor: 0, ack_every: 0, parity_of: 0, parity_index: 0 };
        assert_eq!(GroupHeader::decode(&header.encode()).unwrap().0.ack_every, 1);
    }
}
