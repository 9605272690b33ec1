//! What a sender and a receiver say to each other.
//!
//! Inputs → outputs: [`Message`] ↔ the bytes of one message of a session or a group. Source:
//! `spec/cast.md` §2, which has the layouts. Whatever cannot be read is `None`: its sender is broken or
//! hostile, and nothing more is to be had of it.

use crate::manifest::MAX_ENTRIES;
use crate::pieces::Range;
use bytes::{Buf, BufMut, Bytes};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The version of this exchange.
pub const VERSION: u16 = 1;
/// The channel of a session that a cast uses.
pub const CHANNEL: u16 = 7;
/// Ranges that one WANT may name, at most: 512 KiB.
pub const MAX_RANGES: usize = 1 << 16;
/// Octets of a text, at most.
pub const MAX_TEXT_BYTES: usize = 512;
/// The size of the pieces of this implementation, bytes: few enough of them that a message's costs do
/// not count, small enough that a set rate is kept evenly.
pub const PIECE_BYTES: u32 = 256 << 10;
/// Sizes of pieces that a receiver takes, bytes.
pub const PIECE_SIZES: std::ops::RangeInclusive<u32> = 4096..=4 << 20;
/// Largest message of a cast, bytes: a piece of the largest size, and the digests of as many files as a manifest may
/// name. A Node that serves casts alone has no use for larger ones, which take memory before they can be read.
pub const MAX_MESSAGE_BYTES: u64 = (18 + (4 << 20) + MAX_ENTRIES * size_of::<Digest>()) as u64;
/// The body's size where it is not known: a stream.
pub const UNKNOWN_BYTES: u64 = u64::MAX;

/// The BLAKE3 hash of a manifest; it names the cast.
pub type CastId = [u8; 32];
/// The BLAKE3 hash of a file's data.
pub type Digest = [u8; 32];

/// What is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// The hash of its manifest.
    pub id: CastId,
    /// Where its group will be.
    pub group: SocketAddr,
    /// Size of the pieces, bytes.
    pub piece_bytes: u32,
    /// Size of the manifest.
    pub manifest_bytes: u64,
    /// Size of the body, or [`UNKNOWN_BYTES`].
    pub body_bytes: u64,
}

impl Offer {
    /// How many pieces the manifest has.
    pub fn manifest_pieces(&self) -> u32 {
        self.manifest_bytes.div_ceil(self.piece_bytes.into()) as u32
    }
}

/// Why a receiver gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// No room on its disk.
    Full,
    /// What it was to write is not allowed.
    Refused,
    /// Its file system says no.
    Storage,
    /// It is receiving something else.
    Busy,
    /// What arrived was not what was sent, twice.
    Damaged,
    /// Anything else; the text says.
    Other,
}

const FAILURES: [FailureCode; 6] = [
    FailureCode::Full,
    FailureCode::Refused,
    FailureCode::Storage,
    FailureCode::Busy,
    FailureCode::Damaged,
    FailureCode::Other,
];

/// One piece as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first octets of the cast's name.
    pub cast: u64,
    /// Its number: those of the manifest first, then those of the body.
    pub number: u32,
    /// Nothing comes after it: the end of a stream.
    pub last: bool,
    /// The digests of the files whose data ends in it, in order.
    pub digests: Vec<Digest>,
    /// Its bytes.
    pub data: Bytes,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Receiver: I would take what you send.
    Hello {
        /// Its version.
        version: u16,
    },
    /// Sender: this is what I send.
    Offer(Offer),
    /// Receiver: these pieces are missing here.
    Want {
        /// Of which cast.
        cast: u64,
        /// It can take them in ascending order only.
        ordered: bool,
        /// What people call this host.
        name: String,
        /// Which.
        ranges: Vec<Range>,
    },
    /// Sender: a piece.
    Piece(Piece),
    /// Receiver: so much is here.
    Progress {
        /// Of which cast.
        cast: u64,
        /// Bytes of the body that are here.
        bytes: u64,
    },
    /// Receiver: everything is here, verified, in its place.
    Complete {
        /// Of which cast.
        cast: u64,
        /// Bytes of the body that were here already.
        resumed_bytes: u64,
    },
    /// Receiver: I give up.
    Failed {
        /// Why.
        code: FailureCode,
        /// For people.
        text: String,
    },
    /// Sender: say again what is missing.
    Resync {
        /// Of which cast.
        cast: u64,
    },
    /// Sender: you get no more.
    Abort {
        /// For people.
        text: String,
    },
}

/// The octets of a name that messages carry.
pub fn short(id: &CastId) -> u64 {
    u64::from_le_bytes(id[..8].try_into().expect("eight octets"))
}

/// The octets before a piece's data, to which its data is appended.
pub fn piece_head(cast: u64, number: u32, last: bool, digests: &[Digest], data_len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(18 + digests.len() * 32 + data_len);
    out.put_u8(0x04);
    out.put_u64_le(cast);
    out.put_u32_le(number);
    out.put_u8(last.into());
    out.put_u32_le(digests.len() as u32);
    digests.iter().for_each(|digest| out.put_slice(digest));
    out
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::new();
        match self {
            Self::Hello { version } => {
                out.put_u8(0x01);
                out.put_u16_le(*version);
            }
            Self::Offer(offer) => {
                out.put_u8(0x02);
                out.put_u16_le(VERSION);
                out.put_slice(&offer.id);
                put_addr(&mut out, offer.group);
                out.put_u32_le(offer.piece_bytes);
                out.put_u64_le(offer.manifest_bytes);
                out.put_u64_le(offer.body_bytes);
            }
            Self::Want { cast, ordered, name, ranges } => {
                out.put_u8(0x03);
                out.put_u64_le(*cast);
                out.put_u8((*ordered).into());
                put_text(&mut out, name);
                out.put_u32_le(ranges.len() as u32);
                for (first, count) in ranges {
                    out.put_u32_le(*first);
                    out.put_u32_le(*count);
                }
            }
            Self::Piece(piece) => {
                let Piece { cast, number, last, digests, data } = piece;
                out = piece_head(*cast, *number, *last, digests, data.len());
                out.put_slice(data);
            }
            Self::Progress { cast, bytes } => put_numbers(&mut out, 0x05, *cast, *bytes),
            Self::Complete { cast, resumed_bytes } => put_numbers(&mut out, 0x06, *cast, *resumed_bytes),
            Self::Failed { code, text } => {
                out.put_u8(0x07);
                out.put_u8(FAILURES.iter().position(|known| known == code).unwrap_or(5) as u8);
                put_text(&mut out, text);
            }
            Self::Resync { cast } => {
                out.put_u8(0x08);
                out.put_u64_le(*cast);
            }
            Self::Abort { text } => {
                out.put_u8(0x09);
                put_text(&mut out, text);
            }
        }
        out.into()
    }

    /// Reads one; `None` if it cannot be.
    pub fn decode(mut bytes: Bytes) -> Option<Self> {
        let kind = bytes.try_get_u8().ok()?;
        let message = match kind {
            0x01 => Self::Hello { version: bytes.try_get_u16_le().ok()? },
            0x02 => Self::Offer(take_offer(&mut bytes)?),
            0x03 => Self::Want {
                cast: bytes.try_get_u64_le().ok()?,
                ordered: take_flag(&mut bytes)?,
                name: take_text(&mut bytes)?,
                ranges: take_ranges(&mut bytes)?,
            },
            0x04 => return take_piece(bytes),
            0x05 => {
                Self::Progress { cast: bytes.try_get_u64_le().ok()?, bytes: bytes.try_get_u64_le().ok()? }
            }
            0x06 => Self::Complete {
                cast: bytes.try_get_u64_le().ok()?,
                resumed_bytes: bytes.try_get_u64_le().ok()?,
            },
            0x07 => Self::Failed {
                code: *FAILURES.get(bytes.try_get_u8().ok()? as usize)?,
                text: take_text(&mut bytes)?,
            },
            0x08 => Self::Resync { cast: bytes.try_get_u64_le().ok()? },
            0x09 => Self::Abort { text: take_text(&mut bytes)? },
            _ => return None,
        };
        bytes.is_empty().then_some(message)
    }
}

fn put_numbers(out: &mut Vec<u8>, kind: u8, cast: u64, number: u64) {
    out.put_u8(kind);
    out.put_u64_le(cast);
    out.put_u64_le(number);
}

fn put_addr(out: &mut Vec<u8>, addr: SocketAddr) {
    match addr.ip() {
        IpAddr::V4(ip) => {
            out.put_u8(4);
            out.put_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out.put_u8(6);
            out.put_slice(&ip.octets());
        }
    }
    out.put_u16_le(addr.port());
}

/// Writes a text, cut where it is too long.
fn put_text(out: &mut Vec<u8>, text: &str) {
    let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    out.put_u16_le(end as u16);
    out.put_slice(&text.as_bytes()[..end]);
}

fn take_flag(bytes: &mut Bytes) -> Option<bool> {
    match bytes.try_get_u8().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Reads a text, without what could steer a terminal.
fn take_text(bytes: &mut Bytes) -> Option<String> {
    let len = bytes.try_get_u16_le().ok()? as usize;
    if len > MAX_TEXT_BYTES || len > bytes.len() {
        return None;
    }
    let text = bytes.split_to(len);
    Some(harmless(&String::from_utf8_lossy(&text)))
}

/// A text or a name that somebody else may have chosen, for people: what could steer a terminal is shown as what it
/// is.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn take_ranges(bytes: &mut Bytes) -> Option<Vec<Range>> {
    let count = bytes.try_get_u32_le().ok()? as usize;
    if count > MAX_RANGES || count * 8 > bytes.len() {
        return None;
    }
    let mut ranges: Vec<Range> = Vec::with_capacity(count);
    for _ in 0..count {
        let (first, len) = (bytes.try_get_u32_le().ok()?, bytes.try_get_u32_le().ok()?);
        // Ascending and apart, so that all of them together cost no more than the set they are of.
        if ranges.last().is_some_and(|(before, len)| before.saturating_add(*len) > first) {
            return None;
        }
        ranges.push((first, len));
    }
    Some(ranges)
}

fn take_offer(bytes: &mut Bytes) -> Option<Offer> {
    if bytes.try_get_u16_le().ok()? != VERSION {
        return None;
    }
    let mut id = [0; 32];
    bytes.try_copy_to_slice(&mut id).ok()?;
    let ip: IpAddr = match bytes.try_get_u8().ok()? {
        4 => Ipv4Addr::from_bits(bytes.try_get_u32().ok()?).into(),
        6 => Ipv6Addr::from_bits(bytes.try_get_u128().ok()?).into(),
        _ => return None,
    };
    Some(Offer {
        id,
        group: SocketAddr::new(ip, bytes.try_get_u16_le().ok()?),
        piece_bytes: bytes.try_get_u32_le().ok()?,
        manifest_bytes: bytes.try_get_u64_le().ok()?,
        body_bytes: bytes.try_get_u64_le().ok()?,
    })
}

fn take_piece(mut bytes: Bytes) -> Option<Message> {
    let cast = bytes.try_get_u64_le().ok()?;
    let number = bytes.try_get_u32_le().ok()?;
    let last = take_flag(&mut bytes)?;
    let count = bytes.try_get_u32_le().ok()? as usize;
    if count.checked_mul(32)? > bytes.len() {
        return None;
    }
    let heads = bytes.split_to(count * 32);
    let digests = heads.chunks_exact(32).map(|digest| digest.try_into().expect("32 octets")).collect();
    Some(Message::Piece(Piece { cast, number, last, digests, data: bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let group = "239.1.2.3:7118".parse().unwrap();
        let offer = Offer { id: [9; 32], group, piece_bytes: 4096, manifest_bytes: 4097, body_bytes: 7 };
        let six = Offer { group: "[ff15::7]:9".parse().unwrap(), ..offer };
        let piece = Piece { cast: 3, number: 8, last: true, digests: vec![[1; 32]], data: "x".into() };
        vec![
            Message::Hello { version: 1 },
            Message::Offer(offer),
            Message::Offer(six),
            Message::Want {
                cast: 1,
                ordered: true,
                name: "host".into(),
                ranges: vec![(0, 3), (9, u32::MAX)],
            },
            Message::Piece(piece),
            Message::Progress { cast: 5, bytes: 6 },
            Message::Complete { cast: 5, resumed_bytes: 1 },
            Message::Failed { code: FailureCode::Full, text: "no room".into() },
            Message::Resync { cast: 2 },
            Message::Abort { text: "changed".into() },
        ]
    }

    #[test]
    fn everything_said_is_understood() {
        for message in all() {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        let Message::Offer(offer) = &all()[1] else { unreachable!() };
        assert_eq!(offer.manifest_pieces(), 2);
    }

    #[test]
    fn the_layout_is_the_one_of_the_specification() {
        let text =
            |message: &Message| message.encode().iter().map(|b| format!("{b:02x}")).collect::<String>();
        let said = all();
        assert_eq!(text(&said[0]), "010100");
        assert_eq!(
            text(&said[3]),
            "030100000000000000010400686f73740200000000000000030000000900000\
            0ffffffff"
        );
        assert_eq!(text(&said[5]), "0505000000000000000600000000000000");
        assert_eq!(text(&said[7]), "070007006e6f20726f6f6d");
    }

    #[test]
    fn ranges_that_overlap_are_refused() {
        let want = |ranges: &[Range]| {
            let ranges = ranges.to_vec();
            Message::decode(Message::Want { cast: 1, ordered: false, name: String::new(), ranges }.encode())
        };
        assert!(want(&[(0, 2), (2, 1)]).is_some());
        assert_eq!((want(&[(0, 3), (2, 1)]), want(&[(5, 1), (0, 1)])), (None, None));
    }

    #[test]
    fn texts_are_cut_and_cleaned() {
        let text = "é".repeat(400);
        let Some(Message::Abort { text }) = Message::decode(Message::Abort { text }.encode()) else {
            panic!()
        };
        assert_eq!(text.len(), MAX_TEXT_BYTES);
        let hostile = Message::Abort { text: "\x1b[2Jgone".into() };
        assert_eq!(
            Message::decode(hostile.encode()),
            Some(Message::Abort { text: "\u{fffd}[2Jgone".into() })
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Message::decode(bytes.into());
        }

        #[test]
        fn what_is_cut_short_is_refused(which in 0usize..10, cut in 1usize..80) {
            let message = &all()[which];
            let bytes = message.encode();
            prop_assume!(cut <= bytes.len() && !matches!(message, Message::Piece(_)));
            prop_assert_eq!(Message::decode(bytes.slice(..bytes.len() - cut)), None);
        }
    }
}
