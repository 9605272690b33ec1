//! Frames → octets.
//!
//! Inputs → outputs: a [`Frame`] or its fields → octets, handed piece by piece to a `put`, so that
//! payloads are never copied here. Source: `spec/protocol.md` §4.

use super::layout::*;
use super::{
    ACCEPT_REFUSED, FRAGMENT_HEADER_BYTES, Frame, LONG_FRAGMENT_HEADER_BYTES, MAX_REASON_BYTES,
    MESSAGE_HEADER_BYTES, Parameters, kind,
};
use zerocopy::IntoBytes;

/// The header of a MESSAGE frame; the payload of `length` octets follows.
pub fn message_header(flags: u8, channel: u16, number: u64, length: u16) -> [u8; MESSAGE_HEADER_BYTES] {
    zerocopy::transmute!(part_header(kind::MESSAGE, flags, channel, number, length))
}

fn part_header(kind: u8, flags: u8, channel: u16, number: u64, length: u16) -> MessageHeader {
    MessageHeader {
        kind,
        flags,
        channel: channel.into(),
        number: (number as u32).into(),
        length: length.into(),
    }
}

/// Octets before the payload of a part of a message of `total` octets.
#[inline]
pub fn fragment_header_bytes(total: u64) -> usize {
    if u32::try_from(total).is_ok() { FRAGMENT_HEADER_BYTES } else { LONG_FRAGMENT_HEADER_BYTES }
}

/// Hands the header of a FRAGMENT frame to `put`, or that of a LONG_FRAGMENT where the message of `total` octets needs
/// it; the payload of `length` octets follows.
#[inline]
pub fn put_fragment_header(
    (flags, channel, number): (u8, u16, u64),
    (length, offset, total): (u16, u64, u64),
    put: &mut impl FnMut(&[u8]),
) {
    let part = |kind| part_header(kind, flags, channel, number, length);
    match (u32::try_from(offset), u32::try_from(total)) {
        (Ok(offset), Ok(total)) => {
            put(FragmentHeader { part: part(kind::FRAGMENT), offset: offset.into(), total: total.into() }
                .as_bytes())
        }
        _ => put(LongFragmentHeader {
            part: part(kind::LONG_FRAGMENT),
            offset: offset.into(),
            total: total.into(),
        }
        .as_bytes()),
    }
}

fn offer_body(kind: u8, flags: u8, channel: u16, number: u32, bytes: u64) -> OfferBody {
    OfferBody { kind, flags, channel: channel.into(), number: number.into(), bytes: bytes.into() }
}

impl Frame<'_> {
    /// Hands the octets of a frame without payload to `put`.
    ///
    /// MESSAGE, FRAGMENT and ACK have encoders of their own ([`message_header`],
    /// [`put_fragment_header`], [`AckFrame::encode`](crate::ack::encode)), which keep payloads out of
    /// copies; for them this writes the same octets, payload included. The reason of an END is
    /// cut at [`MAX_REASON_BYTES`], the limit of a refusing ACCEPT written as 0.
    ///
    /// # Panics
    /// If a payload is longer than 65,535 octets, which no datagram can carry.
    pub fn encode(&self, put: &mut impl FnMut(&[u8])) {
        match self {
            Self::Ping => put(&[kind::PING]),
            Self::CloseWrite => put(&[kind::CLOSE_WRITE]),
            Self::CloseRead => put(&[kind::CLOSE_READ]),
            Self::Ack(ack) => ack.encode(put),
            Self::Feedback(feedback) => feedback.encode(put),
            Self::Message(m) => {
                put(&message_header(m.flags, m.channel, m.number as u64, length_of(m.payload)));
                put(m.payload);
            }
            Self::Fragment(f) => {
                let part = (length_of(f.payload), f.offset, f.total);
                put_fragment_header((f.flags, f.channel, f.number as u64), part, put);
                put(f.payload);
            }
            Self::Offer(o) => put(offer_body(kind::OFFER, o.flags, o.channel, o.number, o.total).as_bytes()),
            Self::Accept(a) => {
                let (flags, limit) = if a.refused { (ACCEPT_REFUSED, 0) } else { (0, a.limit) };
                put(offer_body(kind::ACCEPT, flags, a.channel, a.number, limit).as_bytes());
            }
            Self::Credit(c) => put(CreditBody {
                kind: kind::CREDIT,
                reserved: 0,
                channel: c.channel.into(),
                limit: c.limit.into(),
            }
            .as_bytes()),
            Self::Delivered(d) => put(DeliveredBody {
                kind: kind::DELIVERED,
                reserved: 0,
                channel: d.channel.into(),
                next: d.next.into(),
            }
            .as_bytes()),
            Self::Rate(rate) => rate.encode(put),
            Self::GrantRequest(request) => request.encode(put),
            Self::Grant(grant) => grant.encode(put),
            Self::Skip(skip) => skip.encode(put),
            Self::Parameters(p) => {
                put(parameters_body(p).as_bytes());
                if p.relays > 0 {
                    put(&[p.relays]);
                }
            }
            Self::StatusRequest(id) => {
                put(StatusRequestBody { kind: kind::STATUS_REQUEST, id: (*id).into() }.as_bytes());
            }
            Self::Status(s) => put(StatusBody {
                kind: kind::STATUS,
                id: s.id.into(),
                buffered_bytes: s.buffered_bytes.into(),
                buffered_messages: s.buffered_messages.into(),
            }
            .as_bytes()),
            Self::End(end) => {
                let reason = truncate_reason(end.reason);
                let body = EndBody { kind: kind::END, code: end.code.into(), reason_len: reason.len() as u8 };
                put(body.as_bytes());
                put(reason.as_bytes());
            }
        }
    }
}

fn parameters_body(p: &Parameters) -> ParametersBody {
    ParametersBody {
        kind: kind::PARAMETERS,
        length: (size_of::<ParametersBody>() - 2) as u8 + u8::from(p.relays > 0),
        channel_credit: p.channel_credit.into(),
        max_message: p.max_message.into(),
        max_datagram: p.max_datagram.into(),
        max_channels: p.max_channels.into(),
        ack_delay_us: p.ack_delay_us.into(),
        rate_req: p.rate_req.into(),
        burst_req: p.burst_req.into(),
    }
}

fn length_of(payload: &[u8]) -> u16 {
    u16::try_from(payload.len()).expect("a payload fits into a datagram")
}

/// Cuts a reason at a character boundary so that it fits an END frame.
fn truncate_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
