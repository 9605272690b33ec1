//! Packet headers: one packet per datagram, `header | frames | trailer`.
//!
//! Inputs → outputs: bytes → [`Packet`] (checked once, then infallible) and back.
//! Source: `spec/protocol.md` §3; R5 (FIRST), RFC 8999 (what never changes between versions).

use crate::checksum::CHECKSUM_BYTES;
use crate::ids::{Incarnation, PacketNumber, Token};
use core::fmt;
use thiserror::Error;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The version this implementation speaks.
pub const VERSION: u8 = 1;

/// Most versions a VERSIONS packet lists: keeps it no longer than the shortest FIRST, so that it
/// never amplifies.
pub const MAX_VERSIONS: usize = 16;

/// Packet kinds: the first octet of every packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Opens a session, and carries frames until it is answered (R5).
    First = 0xd1,
    /// Answers a FIRST, and carries frames until the initiator is known to have heard it.
    Answer = 0xd2,
    /// Everything in an open session.
    Session = 0xd3,
    /// "I know no session of this token."
    Reset = 0xd4,
    /// "I speak these versions."
    Versions = 0xd5,
    /// "Open again and show me this."
    Retry = 0xd6,
    /// What the opener of a group sends to its address.
    Group = 0xd7,
}

/// Flags of a packet header. Bits not named here are reserved: sent as 0, and a packet that has
/// one set is dropped and counted, so that a later version may give them a meaning.
pub mod flags {
    /// The sender waits for an acknowledgement: do not delay it.
    pub const ACK_NOW: u16 = 1 << 0;
    /// Which of two keys a sealed packet uses; 0 in plain mode.
    pub const KEY_PHASE: u16 = 1 << 1;
    /// All flags that version 1 knows.
    pub const KNOWN: u16 = ACK_NOW | KEY_PHASE;
}

/// The 16 octets every packet starts with, and all of a session packet's header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct CommonHeader {
    kind: u8,
    version: u8,
    flags: U16,
    number: U32,
    token: U64,
}

/// What FIRST and ANSWER add: who speaks, and the handshake.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct OpeningHeader {
    own_token: U64,
    incarnation: U64,
    handshake_len: U16,
    reserved: U16,
}

/// Octets of the tag at the end of every sealed packet.
pub const TAG_BYTES: usize = 16;
/// Octets of the cookie that RETRY carries, and a FIRST after its handshake message that shows it.
pub const COOKIE_BYTES: usize = 20;

/// Octets of [`CommonHeader`], which is the whole header of session packets.
pub const COMMON_HEADER_BYTES: usize = size_of::<CommonHeader>();
/// Octets of the header of FIRST and ANSWER, without the handshake that follows.
pub const OPENING_HEADER_BYTES: usize = COMMON_HEADER_BYTES + size_of::<OpeningHeader>();

/// Why bytes are not a packet of this version.
#[derive(Debug, Error, PartialEq, Eq, Clone, Copy)]
#[non_exhaustive]
pub enum PacketError {
    /// Shorter than its header and trailer.
    #[error("datagram of {0} bytes is shorter than its header and trailer")]
    Truncated(usize),
    /// The first octet is no packet kind.
    #[error("unknown packet kind {0:#04x}")]
    UnknownKind(u8),
    /// Another version; a FIRST is answered with VERSIONS.
    #[error("version {0} is not spoken here")]
    UnknownVersion(u8),
    /// Reserved bits are set.
    #[error("reserved bits {0:#06x} are set")]
    Reserved(u16),
    /// A field has a value it cannot have.
    #[error("{kind} has an impossible {field}")]
    Impossible {
        /// Kind of the packet.
        kind: Kind,
        /// Which field.
        field: &'static str,
    },
}

/// A header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What the packet is for.
    pub kind: Kind,
    /// [`flags`].
    pub flags: u16,
    /// Low 32 bits of the packet number.
    pub number: u32,
    /// Names the session to the receiver. In FIRST, whose receiver has chosen none yet: the
    /// initiator's own.
    pub token: Token,
    /// FIRST and ANSWER: who speaks.
    pub opening: Option<Opening>,
}

/// The part of a header that only FIRST and ANSWER have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// By what token the receiver of this packet shall address its sender.
    pub own_token: Token,
    /// The sender's incarnation.
    pub incarnation: Incarnation,
}

/// A datagram taken apart; frames and trailer are not checked yet.
#[derive(Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header,
    /// Handshake bytes of FIRST and ANSWER, empty in plain mode.
    pub handshake: &'a [u8],
    /// Frames and trailer, or the version list of VERSIONS and trailer: at least
    /// [`CHECKSUM_BYTES`] octets.
    pub body: &'a [u8],
    /// Octets before `body`.
    pub header_len: usize,
}

impl<'a> Packet<'a> {
    /// Takes the header of `datagram` apart.
    ///
    /// # Errors
    /// It is too short, or of another version, kind or form.
    pub fn decode(datagram: &'a [u8]) -> Result<Self, PacketError> {
        let truncated = PacketError::Truncated(datagram.len());
        let (common, rest) = CommonHeader::ref_from_prefix(datagram).map_err(|_| truncated)?;
        let kind = Kind::from_octet(common.kind).ok_or(PacketError::UnknownKind(common.kind))?;
        // VERSIONS is understood whatever version its sender speaks.
        if common.version != VERSION && kind != Kind::Versions {
            return Err(PacketError::UnknownVersion(common.version));
        }
        let flags = common.flags.get();
        if flags & !flags::KNOWN != 0 {
            return Err(PacketError::Reserved(flags & !flags::KNOWN));
        }
        let mut header = Header {
            kind,
            flags,
            number: common.number.get(),
            token: Token(common.token.get()),
            opening: None,
        };
        if !matches!(kind, Kind::First | Kind::Answer) {
            check_outside_a_session(&header, rest)?;
            require_trailer(rest, truncated)?;
            return Ok(Self { header, handshake: &[], body: rest, header_len: COMMON_HEADER_BYTES });
        }
        let (opening, rest) = OpeningHeader::ref_from_prefix(rest).map_err(|_| truncated)?;
        if opening.reserved.get() != 0 {
            return Err(PacketError::Reserved(opening.reserved.get()));
        }
        let (handshake, body) =
            rest.split_at_checked(opening.handshake_len.get() as usize).ok_or(truncated)?;
        require_trailer(body, truncated)?;
        let own_token = Token(opening.own_token.get());
        if kind == Kind::First && own_token != header.token {
            return Err(PacketError::Impossible { kind, field: "token" });
        }
        header.opening = Some(Opening { own_token, incarnation: Incarnation(opening.incarnation.get()) });
        Ok(Self { header, handshake, body, header_len: OPENING_HEADER_BYTES + handshake.len() })
    }
}

/// Whoever takes the trailer off a body may rely on it being there.
fn require_trailer(body: &[u8], error: PacketError) -> Result<(), PacketError> {
    if body.len() < CHECKSUM_BYTES { Err(error) } else { Ok(()) }
}

/// RESET, VERSIONS and RETRY belong to no session: no flags, no number. RESET carries nothing,
/// VERSIONS one octet per version; both end with a CRC-32C whatever the mode. RETRY carries a cookie
/// and ends with a check value.
fn check_outside_a_session(header: &Header, body: &[u8]) -> Result<(), PacketError> {
    let kind = header.kind;
    let (field, holds) = match kind {
        Kind::First | Kind::Answer | Kind::Session | Kind::Group => return Ok(()),
        _ if header.flags != 0 => return Err(PacketError::Reserved(header.flags)),
        _ if header.number != 0 => ("number", false),
        Kind::Reset => ("length", body.len() == CHECKSUM_BYTES),
        Kind::Retry => ("length", body.len() == COOKIE_BYTES + TAG_BYTES),
        Kind::Versions => {
            ("length", (CHECKSUM_BYTES + 1..=CHECKSUM_BYTES + MAX_VERSIONS).contains(&body.len()))
        }
    };
    if holds { Ok(()) } else { Err(PacketError::Impossible { kind, field }) }
}

impl Kind {
    /// The kind with this first octet.
    pub const fn from_octet(octet: u8) -> Option<Self> {
        Some(match octet {
            0xd1 => Self::First,
            0xd2 => Self::Answer,
            0xd3 => Self::Session,
            0xd4 => Self::Reset,
            0xd5 => Self::Versions,
            0xd6 => Self::Retry,
            0xd7 => Self::Group,
            _ => return None,
        })
    }
}

/// The header of a session, RESET, VERSIONS or RETRY packet, ready to send.
pub fn common_header(
    kind: Kind,
    flags: u16,
    number: PacketNumber,
    token: Token,
) -> [u8; COMMON_HEADER_BYTES] {
    let header = CommonHeader {
        kind: kind as u8,
        version: VERSION,
        flags: flags.into(),
        number: number.truncate().into(),
        token: token.0.into(),
    };
    zerocopy::transmute!(header)
}

/// What follows [`common_header`] in FIRST and ANSWER; the handshake comes next.
pub fn opening_header(
    opening: Opening,
    handshake_len: u16,
) -> [u8; OPENING_HEADER_BYTES - COMMON_HEADER_BYTES] {
    let header = OpeningHeader {
        own_token: opening.own_token.0.into(),
        incarnation: opening.incarnation.0.into(),
        handshake_len: handshake_len.into(),
        reserved: 0.into(),
    };
    zerocopy::transmute!(header)
}

/// Offset of the flags in any packet, for flags that are decided when the packet is complete.
pub const FLAGS_OFFSET: usize = 2;

/// The token of a FIRST of any version, to be echoed in VERSIONS, or `None` if this is not a FIRST
/// or is shorter than any FIRST, and so than the longest VERSIONS.
pub fn first_token_of_any_version(datagram: &[u8]) -> Option<Token> {
    let (common, _) = CommonHeader::ref_from_prefix(datagram).ok()?;
    let first = common.kind == Kind::First as u8 && datagram.len() >= OPENING_HEADER_BYTES;
    first.then(|| Token(common.token.get()))
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{} token {:?}", self.kind, self.number, self.token)?;
        if let Some(opening) = self.opening {
            write!(f, " from {:?} incarnation {:?}", opening.own_token, opening.incarnation)?;
        }
        if self.flags & flags::ACK_NOW != 0 {
            f.write_str(" ack-now")?;
        }
        if self.flags & flags::KEY_PHASE != 0 {
            f.write_str(" key-phase")?;
        }
        Ok(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "FIRST",
            Self::Answer => "ANSWER",
            Self::Session => "SESSION",
            Self::Reset => "RESET",
            Self::Versions => "VERSIONS",
            Self::Retry => "RETRY",
            Self::Group => "GROUP",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(handshake: &[u8]) -> Vec<u8> {
        let opening = Opening { own_token: Token(7), incarnation: Incarnation(9) };
        let mut bytes = common_header(Kind::First, flags::ACK_NOW, PacketNumber(3), Token(7)).to_vec();
        bytes.extend(opening_header(opening, handshake.len() as u16));
        bytes.extend(handshake);
        bytes.extend(b"frames");
        bytes
    }

    #[test]
    fn a_header_survives_the_round_trip() {
        let bytes = first(b"noise");
        let packet = Packet::decode(&bytes).unwrap();
        assert_eq!(packet.header.kind, Kind::First);
        assert_eq!(packet.header.number, 3);
        assert_eq!(packet.header.opening.unwrap().incarnation, Incarnation(9));
        assert_eq!(packet.handshake, b"noise");
        assert_eq!(packet.body, b"frames");
        assert_eq!(&bytes[packet.header_len..], b"frames");
        assert_eq!(first_token_of_any_version(&bytes), Some(Token(7)));
    }

    #[test]
    fn every_truncation_is_an_error_until_the_header_is_whole() {
        let bytes = first(b"noise");
        let whole = OPENING_HEADER_BYTES + 5 + CHECKSUM_BYTES;
        for len in 0..whole {
            assert_eq!(Packet::decode(&bytes[..len]).unwrap_err(), PacketError::Truncated(len), "{len}");
        }
        assert_eq!(Packet::decode(&bytes[..whole]).unwrap().body.len(), CHECKSUM_BYTES);
    }

    #[test]
    fn reserved_bits_and_foreign_versions_are_refused() {
        let mut bytes = common_header(Kind::Session, 0, PacketNumber(0), Token(1)).to_vec();
        assert_eq!(Packet::decode(&bytes).unwrap_err(), PacketError::Truncated(COMMON_HEADER_BYTES));
        bytes.extend([0; CHECKSUM_BYTES]);
        bytes[3] = 0x80;
        assert_eq!(Packet::decode(&bytes).unwrap_err(), PacketError::Reserved(0x8000));
        bytes[3] = 0;
        bytes[1] = 9;
        assert_eq!(Packet::decode(&bytes).unwrap_err(), PacketError::UnknownVersion(9));
        bytes[0] = 0;
        assert_eq!(Packet::decode(&bytes).unwrap_err(), PacketError::UnknownKind(0));
        let mut bytes = first(b"");
        bytes[OPENING_HEADER_BYTES - 1] = 1;
        assert_eq!(Packet::decode(&bytes).unwrap_err(), PacketError::Reserved(0x100));
    }

    #[test]
    fn a_first_carries_one_token_twice() {
        let mut bytes = first(b"");
        bytes[8] ^= 1;
        let field = "token";
        assert_eq!(Packet::decode(&bytes).unwrap_err(), PacketError::Impossible { kind: Kind::First, field });
        bytes[0] = Kind::Answer as u8;
        assert!(Packet::decode(&bytes).is_ok(), "an ANSWER has two");
    }

    #[test]
    fn packets_outside_a_session_have_neither_flags_nor_number() {
        let with_body = |kind, flags, number, len| {
            let mut bytes = common_header(kind, flags, PacketNumber(number), Token(1)).to_vec();
            bytes.resize(COMMON_HEADER_BYTES + len, 0);
            Packet::decode(&bytes).map(|packet| packet.header.kind)
        };
        let impossible = |kind, field| Err(PacketError::Impossible { kind, field });
        for (kind, len) in [(Kind::Reset, 4), (Kind::Versions, 5), (Kind::Versions, 20), (Kind::Retry, 36)] {
            assert_eq!(with_body(kind, 0, 0, len), Ok(kind));
            assert_eq!(with_body(kind, 0, 1, len), impossible(kind, "number"));
            assert_eq!(with_body(kind, flags::ACK_NOW, 0, len), Err(PacketError::Reserved(1)));
        }
        for (kind, len) in [
            (Kind::Reset, 3),
            (Kind::Reset, 5),
            (Kind::Versions, 3),
            (Kind::Versions, 4),
            (Kind::Versions, 21),
            (Kind::Retry, 35),
            (Kind::Retry, 37),
        ] {
            assert_eq!(with_body(kind, 0, 0, len), impossible(kind, "length"), "{len}");
        }
    }

    #[test]
    fn versions_never_amplifies() {
        let mut foreign = first(b"");
        foreign[1] = 77;
        assert_eq!(first_token_of_any_version(&foreign), Some(Token(7)));
        assert_eq!(first_token_of_any_version(&foreign[..OPENING_HEADER_BYTES - 1]), None);
        const { assert!(COMMON_HEADER_BYTES + MAX_VERSIONS + CHECKSUM_BYTES <= OPENING_HEADER_BYTES) };
    }
}
