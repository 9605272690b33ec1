//! Frames: what a packet carries.
//!
//! Inputs → outputs: the frame bytes of a packet → an iterator of [`Frame`]s that borrow from it,
//! and each frame back into bytes. Every length is checked here, so that whoever takes a `Frame`
//! may rely on it. Source: `spec/protocol.md` §4.

use crate::ack::AckFrame;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First octet of each frame.
pub mod kind {
    /// Fills a packet up (path MTU probes).
    pub const PADDING: u8 = 0x00;
    /// Asks for an acknowledgement.
    pub const PING: u8 = 0x01;
    /// Packets received.
    pub const ACK: u8 = 0x02;
    /// Packets received, and how many carried which ECN codepoint.
    pub const ACK_ECN: u8 = 0x03;
    /// A whole message.
    pub const MESSAGE: u8 = 0x04;
    /// A part of a message.
    pub const FRAGMENT: u8 = 0x05;
    /// A large message that waits for the receiver's word.
    pub const OFFER: u8 = 0x06;
    /// How far an offered message may be sent.
    pub const ACCEPT: u8 = 0x07;
    /// How much may be sent unasked on a channel.
    pub const CREDIT: u8 = 0x08;
    /// What the sender of this frame is able and willing to do.
    pub const PARAMETERS: u8 = 0x09;
    /// Messages up to here were handed to the application (answer to R7's DREQ).
    pub const DELIVERED: u8 = 0x0a;
    /// Report your state now (R7's SREQ).
    pub const STATUS_REQUEST: u8 = 0x0b;
    /// The state asked for.
    pub const STATUS: u8 = 0x0c;
    /// No more messages will come (R7's WCLOSE).
    pub const CLOSE_WRITE: u8 = 0x0d;
    /// No more messages are wanted (R7's RCLOSE).
    pub const CLOSE_READ: u8 = 0x0e;
    /// The session is over (R7's END).
    pub const END: u8 = 0x0f;
}

/// Flags of message frames; others are reserved and refused.
pub mod message_flags {
    /// Tell the sender when the message has been handed to the application (R7's DREQ).
    pub const REPORT: u8 = 1 << 0;
    /// The fragment belongs to an offered message: its bytes are not charged to the channel.
    pub const OFFERED: u8 = 1 << 1;
    /// All flags that version 1 knows.
    pub const KNOWN: u8 = REPORT | OFFERED;
}

/// Flag of ACCEPT: the offered message will never be wanted.
pub const ACCEPT_REFUSED: u8 = 1 << 0;

/// Why bytes are not frames. The packet that carries them is dropped as a whole.
#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
#[non_exhaustive]
pub enum FrameError {
    /// A frame ends after its packet does.
    #[error("frame {kind:#04x} is cut off")]
    Truncated {
        /// First octet of the frame.
        kind: u8,
    },
    /// The first octet names no frame.
    #[error("unknown frame {0:#04x}")]
    Unknown(u8),
    /// A field has a value it cannot have.
    #[error("frame {kind:#04x} has an impossible {field}")]
    Impossible {
        /// First octet of the frame.
        kind: u8,
        /// Which field.
        field: &'static str,
    },
}

/// MESSAGE without its payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct MessageHeader {
    kind: u8,
    flags: u8,
    channel: U16,
    number: U32,
    length: U16,
}

/// FRAGMENT without its payload.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct FragmentHeader {
    kind: u8,
    flags: u8,
    channel: U16,
    number: U32,
    length: U16,
    offset: U64,
    total: U64,
}

/// OFFER and ACCEPT.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct OfferBody {
    kind: u8,
    flags: u8,
    channel: U16,
    number: U32,
    bytes: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct CreditBody {
    kind: u8,
    reserved: u8,
    channel: U16,
    limit: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct DeliveredBody {
    kind: u8,
    reserved: u8,
    channel: U16,
    next: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct StatusRequestBody {
    kind: u8,
    id: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct StatusBody {
    kind: u8,
    id: U32,
    buffered_bytes: U64,
    buffered_messages: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct EndBody {
    kind: u8,
    code: U16,
    reason_len: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct ParametersBody {
    kind: u8,
    /// Octets after this one: a later version may append fields, which version 1 skips.
    length: u8,
    channel_credit: U64,
    max_message: U64,
    max_datagram: U16,
    max_channels: U16,
    ack_delay_us: U32,
    rate_req: U64,
    burst_req: U64,
}

/// Octets of a MESSAGE frame before its payload.
pub const MESSAGE_HEADER_BYTES: usize = size_of::<MessageHeader>();
/// Octets of a FRAGMENT frame before its payload.
pub const FRAGMENT_HEADER_BYTES: usize = size_of::<FragmentHeader>();
/// Longest reason text an END carries, in octets of UTF-8.
pub const MAX_REASON_BYTES: usize = 128;
/// Largest frame without payload, ACK apart (END with its reason).
pub const MAX_CONTROL_FRAME_BYTES: usize = size_of::<EndBody>() + MAX_REASON_BYTES;

/// What one side tells the other about itself in its FIRST or ANSWER.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Credit each channel starts with, in bytes (S5); the unit is defined in `spec/protocol.md` §6.
    pub channel_credit: u64,
    /// Largest message it takes, bytes.
    pub max_message: u64,
    /// Largest datagram it takes, bytes of UDP payload.
    pub max_datagram: u16,
    /// Channel numbers must be below this.
    pub max_channels: u16,
    /// Longest time it holds an acknowledgement back, µs.
    pub ack_delay_us: u32,
    /// R4: the rate the sender would like, bytes/s; `u64::MAX`: no wish.
    pub rate_req: u64,
    /// R4: the burst the sender would like, bytes; 0: unlimited (R3).
    pub burst_req: u64,
}

/// One frame.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Asks for an acknowledgement.
    Ping,
    /// Acknowledges packets.
    Ack(AckFrame<'a>),
    /// A message, whole.
    Message(Message<'a>),
    /// A part of a message.
    Fragment(Fragment<'a>),
    /// A message too large to be sent unasked.
    Offer(Offer),
    /// The answer to an offer.
    Accept(Accept),
    /// New credit of a channel.
    Credit(Credit),
    /// Who the other side is.
    Parameters(Parameters),
    /// Messages handed over.
    Delivered(Delivered),
    /// Status wanted; `id` comes back in the answer.
    StatusRequest(u32),
    /// Status.
    Status(Status),
    /// No more messages will come.
    CloseWrite,
    /// No more messages are wanted.
    CloseRead,
    /// The session is over.
    End(End<'a>),
}

/// A message in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// [`message_flags`].
    pub flags: u8,
    /// The channel.
    pub channel: u16,
    /// Low 32 bits of the message number.
    pub number: u32,
    /// The message.
    pub payload: &'a [u8],
}

/// A part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// [`message_flags`].
    pub flags: u8,
    /// The channel.
    pub channel: u16,
    /// Low 32 bits of the message number.
    pub number: u32,
    /// Where the payload belongs, bytes from the message's start.
    pub offset: u64,
    /// Bytes of the whole message; `offset + payload.len() ≤ total` has been checked.
    pub total: u64,
    /// The bytes.
    pub payload: &'a [u8],
}

/// A large message announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// [`message_flags`].
    pub flags: u8,
    /// The channel.
    pub channel: u16,
    /// Low 32 bits of the message number.
    pub number: u32,
    /// Bytes of the message.
    pub total: u64,
}

/// The receiver's word on an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The message will never be wanted; `limit` has no meaning.
    pub refused: bool,
    /// The channel.
    pub channel: u16,
    /// Low 32 bits of the message number.
    pub number: u32,
    /// Bytes of the message, from its start, that may be sent.
    pub limit: u64,
}

/// Credit of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The channel.
    pub channel: u16,
    /// Cost that may have been sent since the session began; never falls.
    pub limit: u64,
}

/// Messages handed to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The channel.
    pub channel: u16,
    /// Low 32 bits of the first message number not yet handed over.
    pub next: u32,
}

/// A peer's state, on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The request this answers.
    pub id: u32,
    /// Bytes received from the asker that the application has not taken.
    pub buffered_bytes: u64,
    /// Messages received from the asker that the application has not taken.
    pub buffered_messages: u32,
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End<'a> {
    /// 0: orderly; others in `spec/protocol.md` §8.
    pub code: u16,
    /// Why, for people.
    pub reason: &'a str,
}

/// Iterates over the frames of a packet's body (its trailer already removed).
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: &'a [u8],
}

impl<'a> Frames<'a> {
    /// Frames in `body`.
    pub fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    fn take<T: FromBytes + KnownLayout + Immutable + Unaligned>(
        &mut self,
        kind: u8,
    ) -> Result<T, FrameError> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| FrameError::Truncated { kind })?;
        self.rest = rest;
        Ok(value)
    }

    fn take_bytes(&mut self, kind: u8, len: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(FrameError::Truncated { kind })?;
        self.rest = rest;
        Ok(bytes)
    }

    fn message(&mut self) -> Result<Frame<'a>, FrameError> {
        let header: MessageHeader = self.take(kind::MESSAGE)?;
        check_flags(kind::MESSAGE, header.flags, message_flags::REPORT)?;
        let payload = self.take_bytes(kind::MESSAGE, header.length.get() as usize)?;
        Ok(Frame::Message(Message {
            flags: header.flags,
            channel: header.channel.get(),
            number: header.number.get(),
            payload,
        }))
    }

    fn fragment(&mut self) -> Result<Frame<'a>, FrameError> {
        let header: FragmentHeader = self.take(kind::FRAGMENT)?;
        check_flags(kind::FRAGMENT, header.flags, message_flags::KNOWN)?;
        let payload = self.take_bytes(kind::FRAGMENT, header.length.get() as usize)?;
        let (offset, total) = (header.offset.get(), header.total.get());
        let end = offset.checked_add(payload.len() as u64);
        if payload.is_empty() || end.is_none_or(|end| end > total) {
            return Err(FrameError::Impossible { kind: kind::FRAGMENT, field: "length" });
        }
        Ok(Frame::Fragment(Fragment {
            flags: header.flags,
            channel: header.channel.get(),
            number: header.number.get(),
            offset,
            total,
            payload,
        }))
    }

    fn offer_or_accept(&mut self, kind: u8) -> Result<Frame<'a>, FrameError> {
        let body: OfferBody = self.take(kind)?;
        let (channel, number, bytes) = (body.channel.get(), body.number.get(), body.bytes.get());
        if kind == kind::OFFER {
            check_flags(kind, body.flags, message_flags::REPORT)?;
            return Ok(Frame::Offer(Offer { flags: body.flags, channel, number, total: bytes }));
        }
        check_flags(kind, body.flags, ACCEPT_REFUSED)?;
        Ok(Frame::Accept(Accept { refused: body.flags & ACCEPT_REFUSED != 0, channel, number, limit: bytes }))
    }

    fn parameters(&mut self) -> Result<Frame<'a>, FrameError> {
        const KNOWN: usize = size_of::<ParametersBody>() - 2;
        let body: ParametersBody = self.take(kind::PARAMETERS)?;
        let unknown = (body.length as usize)
            .checked_sub(KNOWN)
            .ok_or(FrameError::Impossible { kind: kind::PARAMETERS, field: "length" })?;
        self.take_bytes(kind::PARAMETERS, unknown)?;
        Ok(Frame::Parameters(Parameters {
            channel_credit: body.channel_credit.get(),
            max_message: body.max_message.get(),
            max_datagram: body.max_datagram.get(),
            max_channels: body.max_channels.get(),
            ack_delay_us: body.ack_delay_us.get(),
            rate_req: body.rate_req.get(),
            burst_req: body.burst_req.get(),
        }))
    }

    fn end(&mut self) -> Result<Frame<'a>, FrameError> {
        let body: EndBody = self.take(kind::END)?;
        let reason = self.take_bytes(kind::END, body.reason_len as usize)?;
        let impossible = FrameError::Impossible { kind: kind::END, field: "reason" };
        if reason.len() > MAX_REASON_BYTES {
            return Err(impossible);
        }
        let reason = core::str::from_utf8(reason).map_err(|_| impossible)?;
        Ok(Frame::End(End { code: body.code.get(), reason }))
    }

    fn fixed(&mut self, first: u8) -> Result<Frame<'a>, FrameError> {
        Ok(match first {
            kind::CREDIT => {
                let body: CreditBody = self.take(first)?;
                check_flags(first, body.reserved, 0)?;
                Frame::Credit(Credit { channel: body.channel.get(), limit: body.limit.get() })
            }
            kind::DELIVERED => {
                let body: DeliveredBody = self.take(first)?;
                check_flags(first, body.reserved, 0)?;
                Frame::Delivered(Delivered { channel: body.channel.get(), next: body.next.get() })
            }
            kind::STATUS_REQUEST => {
                let body: StatusRequestBody = self.take(first)?;
                Frame::StatusRequest(body.id.get())
            }
            kind::STATUS => {
                let body: StatusBody = self.take(first)?;
                Frame::Status(Status {
                    id: body.id.get(),
                    buffered_bytes: body.buffered_bytes.get(),
                    buffered_messages: body.buffered_messages.get(),
                })
            }
            unknown => return Err(FrameError::Unknown(unknown)),
        })
    }

    fn bare(&mut self, frame: Frame<'a>) -> Result<Frame<'a>, FrameError> {
        self.rest = &self.rest[1..];
        Ok(frame)
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        while let [kind::PADDING, rest @ ..] = self.rest {
            self.rest = rest;
        }
        let first = *self.rest.first()?;
        let frame = match first {
            kind::MESSAGE => self.message(),
            kind::ACK | kind::ACK_ECN => AckFrame::take(&mut self.rest).map(Frame::Ack),
            kind::FRAGMENT => self.fragment(),
            kind::OFFER | kind::ACCEPT => self.offer_or_accept(first),
            kind::PING => self.bare(Frame::Ping),
            kind::CLOSE_WRITE => self.bare(Frame::CloseWrite),
            kind::CLOSE_READ => self.bare(Frame::CloseRead),
            kind::PARAMETERS => self.parameters(),
            kind::END => self.end(),
            other => self.fixed(other),
        };
        if frame.is_err() {
            self.rest = &[];
        }
        Some(frame)
    }
}

fn check_flags(kind: u8, flags: u8, known: u8) -> Result<(), FrameError> {
    if flags & !known != 0 { Err(FrameError::Impossible { kind, field: "flags" }) } else { Ok(()) }
}

impl Frame<'_> {
    /// Whether a packet with this frame has to be acknowledged (all but ACK and END).
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Ack(_) | Self::End(_))
    }
}

/// The header of a MESSAGE frame; the payload of `length` octets follows.
pub fn message_header(flags: u8, channel: u16, number: u64, length: u16) -> [u8; MESSAGE_HEADER_BYTES] {
    zerocopy::transmute!(MessageHeader {
        kind: kind::MESSAGE,
        flags,
        channel: channel.into(),
        number: (number as u32).into(),
        length: length.into(),
    })
}

/// The header of a FRAGMENT frame; the payload of `length` octets follows.
pub fn fragment_header(
    flags: u8,
    channel: u16,
    number: u64,
    length: u16,
    offset: u64,
    total: u64,
) -> [u8; FRAGMENT_HEADER_BYTES] {
    zerocopy::transmute!(FragmentHeader {
        kind: kind::FRAGMENT,
        flags,
        channel: channel.into(),
        number: (number as u32).into(),
        length: length.into(),
        offset: offset.into(),
        total: total.into(),
    })
}

fn offer_body(kind: u8, flags: u8, channel: u16, number: u32, bytes: u64) -> OfferBody {
    OfferBody { kind, flags, channel: channel.into(), number: number.into(), bytes: bytes.into() }
}

impl Frame<'_> {
    /// Hands the octets of a frame without payload to `put`.
    ///
    /// MESSAGE, FRAGMENT and ACK have encoders of their own ([`message_header`],
    /// [`fragment_header`], [`AckFrame::encode`](crate::ack::encode)), which keep payloads out of
    /// copies; for them this writes the same octets, payload included.
    pub fn encode(&self, put: &mut impl FnMut(&[u8])) {
        match self {
            Self::Ping => put(&[kind::PING]),
            Self::CloseWrite => put(&[kind::CLOSE_WRITE]),
            Self::CloseRead => put(&[kind::CLOSE_READ]),
            Self::Ack(ack) => ack.encode(put),
            Self::Message(m) => {
                put(&message_header(m.flags, m.channel, m.number as u64, m.payload.len() as u16));
                put(m.payload);
            }
            Self::Fragment(f) => {
                let length = f.payload.len() as u16;
                put(&fragment_header(f.flags, f.channel, f.number as u64, length, f.offset, f.total));
                put(f.payload);
            }
            Self::Offer(o) => put(offer_body(kind::OFFER, o.flags, o.channel, o.number, o.total).as_bytes()),
            Self::Accept(a) => {
                let flags = if a.refused { ACCEPT_REFUSED } else { 0 };
                put(offer_body(kind::ACCEPT, flags, a.channel, a.number, a.limit).as_bytes());
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
            Self::Parameters(p) => put(parameters_body(p).as_bytes()),
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
        length: (size_of::<ParametersBody>() - 2) as u8,
        channel_credit: p.channel_credit.into(),
        max_message: p.max_message.into(),
        max_datagram: p.max_datagram.into(),
        max_channels: p.max_channels.into(),
        ack_delay_us: p.ack_delay_us.into(),
        rate_req: p.rate_req.into(),
        burst_req: p.burst_req.into(),
    }
}

/// Cuts a reason at a character boundary so that it fits an END frame.
fn truncate_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
