//! The frames by which a receiver sets the pace, and by which a sender lets go of a late message.
//!
//! Inputs → outputs: octets ↔ [`Rate`], [`GrantRequest`], [`Grant`], [`Skip`].
//! Source: R4 (rate and burst set by the receiver), S11 (ask and grant); `spec/protocol.md` §13.

use super::decode::{Frames, check_flags};
use super::layout::OfferBody;
use super::{Frame, FrameError, kind};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Largest rate and burst that RATE carries, bytes per second and bytes: 1 PiB. Keeps sums of a
/// few of them far from overflow.
pub const MAX_PACE: u64 = 1 << 50;

/// Flag of GRANT: there is no limit any more.
pub const GRANT_UNLIMITED: u8 = 1 << 0;

/// Octets of a GRANT_REQUEST.
pub const GRANT_REQUEST_BYTES: usize = size_of::<GrantRequestBody>();

/// How fast the receiver of this frame may send (R1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate {
    /// Grows with each change; an older RATE that arrives late is told by it.
    pub serial: u32,
    /// Octets of payload per second, at most [`MAX_PACE`]; 0: none (R3).
    pub rate: u64,
    /// Octets of payload per burst, at most [`MAX_PACE`]; 0: no limit, unless `rate` is 0 (R3).
    pub burst: u64,
}

/// What a sender has sent and would send (S11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantRequest {
    /// Low 32 bits of the octets of data packets sent, with this packet if it is one.
    pub sent: u32,
    /// Octets that wait to be sent, first or again; `u32::MAX`: that or more.
    pub wanted: u32,
}

/// How much a sender may send (S11).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Grows with each change from or to `limit: None`; an older GRANT is told by it.
    pub serial: u32,
    /// Octets of data packets since the session began; `None`: no limit.
    pub limit: Option<u64>,
}

/// A message that its sender will not complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skip {
    /// The channel.
    pub channel: u16,
    /// Low 32 bits of the message number.
    pub number: u32,
    /// Octets that the sender charged for it beyond the 64 of every message.
    pub charged: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RateBody {
    kind: u8,
    reserved: u8,
    serial: U32,
    rate: U64,
    burst: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct GrantRequestBody {
    kind: u8,
    sent: U32,
    wanted: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct GrantBody {
    kind: u8,
    flags: u8,
    serial: U32,
    limit: U64,
}

impl Rate {
    pub(super) fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let body = RateBody {
            kind: kind::RATE,
            reserved: 0,
            serial: self.serial.into(),
            rate: self.rate.into(),
            burst: self.burst.into(),
        };
        put(body.as_bytes());
    }
}

impl GrantRequest {
    pub(super) fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let body = GrantRequestBody {
            kind: kind::GRANT_REQUEST,
            sent: self.sent.into(),
            wanted: self.wanted.into(),
        };
        put(body.as_bytes());
    }
}

impl Grant {
    pub(super) fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let flags = if self.limit.is_none() { GRANT_UNLIMITED } else { 0 };
        let limit = self.limit.unwrap_or(0).into();
        put(GrantBody { kind: kind::GRANT, flags, serial: self.serial.into(), limit }.as_bytes());
    }
}

impl Skip {
    pub(super) fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let body = OfferBody {
            kind: kind::SKIP,
            flags: 0,
            channel: self.channel.into(),
            number: self.number.into(),
            bytes: self.charged.into(),
        };
        put(body.as_bytes());
    }
}

impl<'a> Frames<'a> {
    pub(super) fn pace(&mut self, first: u8) -> Result<Frame<'a>, FrameError> {
        Ok(match first {
            kind::RATE => {
                let body: &RateBody = self.take(first)?;
                check_flags(first, body.reserved, 0)?;
                let (rate, burst) = (body.rate.get(), body.burst.get());
                if rate > MAX_PACE || burst > MAX_PACE {
                    return Err(FrameError::Impossible { kind: first, field: "rate or burst" });
                }
                Frame::Rate(Rate { serial: body.serial.get(), rate, burst })
            }
            kind::GRANT_REQUEST => {
                let body: &GrantRequestBody = self.take(first)?;
                Frame::GrantRequest(GrantRequest { sent: body.sent.get(), wanted: body.wanted.get() })
            }
            kind::GRANT => {
                let body: &GrantBody = self.take(first)?;
                check_flags(first, body.flags, GRANT_UNLIMITED)?;
                let (unlimited, limit) = (body.flags == GRANT_UNLIMITED, body.limit.get());
                if unlimited && limit != 0 {
                    return Err(FrameError::Impossible { kind: first, field: "limit" });
                }
                Frame::Grant(Grant { serial: body.serial.get(), limit: (!unlimited).then_some(limit) })
            }
            _ => {
                let body: &OfferBody = self.take(kind::SKIP)?;
                check_flags(first, body.flags, 0)?;
                let (channel, number) = (body.channel.get(), body.number.get());
                Frame::Skip(Skip { channel, number, charged: body.bytes.get() })
            }
        })
    }
}
