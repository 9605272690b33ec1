//! Frames: what a packet carries.
//!
//! Inputs → outputs: the frame bytes of a packet → an iterator of [`Frame`]s that borrow from it,
//! and each frame back into bytes. Every length is checked here, so that whoever takes a `Frame`
//! may rely on it. Source: `spec/protocol.md` §4.

mod decode;
mod display;
mod encode;
mod feedback;
mod layout;
mod pace;

pub use decode::Frames;
pub use encode::{fragment_header_bytes, message_header, put_fragment_header};
pub use feedback::{Feedback, Gap, OwnedFeedback, feedback_flags};
pub use pace::{GRANT_REQUEST_BYTES, GRANT_UNLIMITED, Grant, GrantRequest, MAX_PACE, Rate, Skip};

use crate::ack::AckFrame;
use layout::{EndBody, FragmentHeader, LongFragmentHeader, MessageHeader};
use thiserror::Error;

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
    /// A part of a message of less than 4 GiB.
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
    /// How fast may be sent (R4).
    pub const RATE: u8 = 0x10;
    /// What waits to be sent (S11).
    pub const GRANT_REQUEST: u8 = 0x11;
    /// How much may be sent (S11).
    pub const GRANT: u8 = 0x12;
    /// A message that will not be completed.
    pub const SKIP: u8 = 0x13;
    /// Packets received, all that carried an ECN codepoint ECT(0), and how many those were.
    pub const ACK_ECT0: u8 = 0x14;
    /// A part of a message of 4 GiB or more.
    pub const LONG_FRAGMENT: u8 = 0x15;
    /// What a member of a group has received (M3, M6).
    pub const FEEDBACK: u8 = 0x18;
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

/// Why bytes are not frames. In a genuine packet that is a violation, which ends the session (`spec/protocol.md` §8).
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

/// Octets of a MESSAGE frame before its payload.
pub const MESSAGE_HEADER_BYTES: usize = size_of::<MessageHeader>();
/// Octets of a FRAGMENT frame before its payload: of a part of a message of less than 4 GiB.
pub const FRAGMENT_HEADER_BYTES: usize = size_of::<FragmentHeader>();
/// Octets of a LONG_FRAGMENT frame before its payload.
pub const LONG_FRAGMENT_HEADER_BYTES: usize = size_of::<LongFragmentHeader>();
/// Longest reason text an END carries, in octets of UTF-8.
pub const MAX_REASON_BYTES: usize = 128;
/// Largest frame without payload, ACK apart (END with its reason).
pub const MAX_CONTROL_FRAME_BYTES: usize = size_of::<EndBody>() + MAX_REASON_BYTES;

/// Least channel credit a receiver may announce, bytes: what a sender may assume before it has
/// heard PARAMETERS.
pub const MIN_CHANNEL_CREDIT_BYTES: u64 = 64 * 1024;
/// Smallest datagram limit a receiver may announce, bytes of UDP payload: what every IPv4 path
/// carries (RFC 791: 576 octets with headers), rounded up so that no frame but a payload is ever cut.
pub const MIN_MAX_DATAGRAM_BYTES: u16 = 576;
/// Fewest channels a receiver may announce: what a sender may use before it has heard PARAMETERS.
pub const MIN_MAX_CHANNELS: u16 = 16;
/// Longest acknowledgement delay a receiver may announce, µs: what the delay of an ACK can express.
pub const MAX_ACK_DELAY_US: u32 = u16::MAX as u32;

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
    /// Relays that what it opens has come through (R6).
    pub relays: u8,
}

impl Parameters {
    /// The first field, if any, whose value no receiver may announce.
    fn impossible_field(&self) -> Option<&'static str> {
        let checks = [
            (self.channel_credit >= MIN_CHANNEL_CREDIT_BYTES, "channel credit"),
            (self.max_message > 0, "largest message"),
            (self.max_datagram >= MIN_MAX_DATAGRAM_BYTES, "largest datagram"),
            (self.max_channels >= MIN_MAX_CHANNELS, "number of channels"),
            (self.ack_delay_us <= MAX_ACK_DELAY_US, "acknowledgement delay"),
        ];
        checks.into_iter().find_map(|(holds, field)| (!holds).then_some(field))
    }
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// How fast may be sent.
    Rate(Rate),
    /// What waits to be sent.
    GrantRequest(GrantRequest),
    /// How much may be sent.
    Grant(Grant),
    /// A message that will not be completed.
    Skip(Skip),
    /// A group member's report.
    Feedback(Feedback<'a>),
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
    /// Bytes of the message, at least 1.
    pub total: u64,
}

/// The receiver's word on an offered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The message will never be wanted; `limit` is 0.
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

impl Frame<'_> {
    /// Whether a packet with this frame has to be acknowledged (all but ACK, END and FEEDBACK).
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Ack(_) | Self::End(_) | Self::Feedback(_))
    }
}
