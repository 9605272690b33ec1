//! The octets of each frame, as structs of unaligned little-endian fields.
//!
//! Inputs → outputs: none; [`decode`](super::decode) and [`encode`](super::encode) read and write
//! through these. Source: `spec/protocol.md` §4.

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// MESSAGE without its payload, and what FRAGMENT and LONG_FRAGMENT begin with.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct MessageHeader {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) channel: U16,
    pub(super) number: U32,
    pub(super) length: U16,
}

/// FRAGMENT without its payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct FragmentHeader {
    pub(super) part: MessageHeader,
    pub(super) offset: U32,
    pub(super) total: U32,
}

/// LONG_FRAGMENT without its payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct LongFragmentHeader {
    pub(super) part: MessageHeader,
    pub(super) offset: U64,
    pub(super) total: U64,
}

/// OFFER and ACCEPT.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct OfferBody {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) channel: U16,
    pub(super) number: U32,
    pub(super) bytes: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct CreditBody {
    pub(super) kind: u8,
    pub(super) reserved: u8,
    pub(super) channel: U16,
    pub(super) limit: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct DeliveredBody {
    pub(super) kind: u8,
    pub(super) reserved: u8,
    pub(super) channel: U16,
    pub(super) next: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct StatusRequestBody {
    pub(super) kind: u8,
    pub(super) id: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct StatusBody {
    pub(super) kind: u8,
    pub(super) id: U32,
    pub(super) buffered_bytes: U64,
    pub(super) buffered_messages: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct EndBody {
    pub(super) kind: u8,
    pub(super) code: U16,
    pub(super) reason_len: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct ParametersBody {
    pub(super) kind: u8,
    /// Octets after this one: a later version may append fields, which version 1 skips.
    pub(super) length: u8,
    pub(super) channel_credit: U64,
    pub(super) max_message: U64,
    pub(super) max_datagram: U16,
    pub(super) max_channels: U16,
    pub(super) ack_delay_us: U32,
    pub(super) rate_req: U64,
    pub(super) burst_req: U64,
}
