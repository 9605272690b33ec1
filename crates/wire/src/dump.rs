//! A datagram in words, on one line, as tcpdump would show it.
//!
//! Inputs → outputs: any bytes → text like
//! `SESSION #17 token 00000000000000aa ack-now | MESSAGE 2:7 len 64, PING | crc ok`. Never fails:
//! what cannot be read is named, as the frames of sealed packets are, and of those that were damaged.

use crate::checksum::{self, CHECKSUM_BYTES};
use crate::frame::Frames;
use crate::group::GroupHeader;
use crate::packet::{Kind, Packet};
use core::fmt;

/// Most frames written out; the rest of a datagram that has more is only counted, so that a hostile
/// datagram does not become a page of text.
const MAX_FRAMES_SHOWN: usize = 64;

/// Describes `datagram`, whatever it is.
pub fn dump(datagram: &[u8]) -> impl fmt::Display + '_ {
    Dump(datagram)
}

struct Dump<'a>(&'a [u8]);

impl fmt::Display for Dump<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packet = match Packet::decode(self.0) {
            Ok(packet) => packet,
            Err(error) => return write!(f, "not a packet: {error}"),
        };
        write!(f, "{}", packet.header)?;
        if !packet.handshake.is_empty() {
            write!(f, " handshake {} bytes", packet.handshake.len())?;
        }
        if packet.header.kind == Kind::Retry {
            return write!(f, " | cookie");
        }
        if !checksum::verify(self.0) {
            return write!(f, " | {} bytes, sealed or damaged", packet.body.len());
        }
        let content = &packet.body[..packet.body.len() - CHECKSUM_BYTES];
        match packet.header.kind {
            Kind::Reset | Kind::Retry => {}
            Kind::Versions => write!(f, " | {content:?}")?,
            Kind::First | Kind::Answer | Kind::Session => show_frames(f, content)?,
            Kind::Group => show_group(f, content)?,
        }
        f.write_str(" | crc ok")
    }
}

fn show_group(f: &mut fmt::Formatter<'_>, content: &[u8]) -> fmt::Result {
    let Some((header, frames)) = GroupHeader::decode(content) else { return f.write_str(" | (cut off)") };
    write!(f, " | symbol {} floor {} every {}", header.symbol, header.floor, header.ack_every)?;
    if header.parity_of > 0 {
        return write!(f, ", parity {} of {}", header.parity_index, header.parity_of);
    }
    show_frames(f, frames)
}

fn show_frames(f: &mut fmt::Formatter<'_>, content: &[u8]) -> fmt::Result {
    let mut frames = Frames::new(content);
    for (position, frame) in frames.by_ref().take(MAX_FRAMES_SHOWN).enumerate() {
        f.write_str(if position == 0 { " | " } else { ", " })?;
        match frame {
            Ok(frame) => write!(f, "{frame}")?,
            Err(error) => write!(f, "({error})")?,
        }
    }
    match frames.count() {
        0 => Ok(()),
        more => write!(f, ", and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, End, Frame};
    use crate::ids::{PacketNumber, Token};
    use crate::packet::{common_header, flags};

    fn sealed_with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = checksum::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    fn session(content: &[u8]) -> Vec<u8> {
        let mut bytes = common_header(Kind::Session, flags::ACK_NOW, PacketNumber(17), Token(0xaa)).to_vec();
        bytes.extend(content);
        sealed_with_crc(bytes)
    }

    #[test]
    fn a_packet_is_one_line() {
        let mut content = frame::message_header(frame::message_flags::REPORT, 2, 7, 3).to_vec();
        content.extend(b"abc\x00\x01");
        crate::ack::encode([9..=9, 3..=5].into_iter(), 120, None, &mut |b| content.extend(b));
        assert_eq!(
            dump(&session(&content)).to_string(),
            "SESSION #17 token 00000000000000aa ack-now | MESSAGE 2:7 len 3 report, PING, ACK 9 5-3 delay 120us | crc ok"
        );
    }

    #[test]
    fn damage_is_named() {
        let mut bytes = session(&[0x01, 0x7f]);
        assert!(dump(&bytes).to_string().ends_with("| PING, (unknown frame 0x7f) | crc ok"));
        *bytes.last_mut().unwrap() ^= 1;
        let line = dump(&bytes).to_string();
        assert_eq!(line, "SESSION #17 token 00000000000000aa ack-now | 6 bytes, sealed or damaged");
        assert!(dump(&bytes[..18]).to_string().starts_with("not a packet: datagram of 18 bytes is shorter"));
        assert_eq!(
            dump(b"hello").to_string(),
            "not a packet: datagram of 5 bytes is shorter than its header and trailer"
        );
    }

    #[test]
    fn long_packets_and_hostile_text_stay_one_line() {
        let line = dump(&session(&[1; 1000])).to_string();
        assert!(line.ends_with("PING, and 936 more | crc ok"), "{line}");
        let mut content = Vec::new();
        Frame::End(End { code: 1, reason: "\x1b[2J\n" }).encode(&mut |b| content.extend(b));
        let line = dump(&session(&content)).to_string();
        assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    }

    #[test]
    fn versions_are_listed() {
        let mut bytes = common_header(Kind::Versions, 0, PacketNumber(0), Token(1)).to_vec();
        bytes.extend([1, 3]);
        assert_eq!(
            dump(&sealed_with_crc(bytes)).to_string(),
            "VERSIONS #0 token 0000000000000001 | [1, 3] | crc ok"
        );
    }
}
