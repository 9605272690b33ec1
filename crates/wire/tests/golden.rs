//! The golden vectors of `spec/vectors`: the same octets that C and Python are held to.

use denrei_wire::checksum::{CHECKSUM_BYTES, crc32c, verify};
use denrei_wire::frame::{
    self, Accept, Credit, Delivered, End, Fragment, Frame, FrameError, Frames, Grant, GrantRequest, Message,
    Offer, Parameters, Rate, Skip, Status,
};
use denrei_wire::ids::{Incarnation, PacketNumber, Token, expand};
use denrei_wire::packet::{self, Header, Kind, Opening, Packet, PacketError};
use denrei_wire::{EcnCounts, ack};
use serde_json::Value;

fn vectors(text: &str) -> Value {
    serde_json::from_str(text).expect("the vectors are JSON")
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("{key} is a list in {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} is a text in {value}"))
}

fn uint<T: TryFrom<u64>>(value: &Value, key: &str) -> T {
    let number = value[key].as_u64().and_then(|number| T::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{key} is a number in range in {value}"))
}

fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "an octet has two digits: {text}");
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits are hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn id(value: &Value, key: &str) -> u64 {
    u64::from_str_radix(text(value, key), 16).expect("an id has 16 hexadecimal digits")
}

/// The octets of a frame as the vectors describe it, payloads included.
fn encode(meaning: &Value) -> Vec<u8> {
    let mut octets = Vec::new();
    match text(meaning, "type") {
        "PADDING" => octets.resize(uint(meaning, "count"), 0),
        "ACK" | "ACK_ECN" | "ACK_ECT0" => {
            let ranges = ranges(meaning);
            let delay_us = uint(meaning, "delay_us");
            ack::encode(ranges.into_iter(), delay_us, ecn(meaning), &mut |part| octets.extend(part));
        }
        _ => {
            let payload = meaning["payload"].as_str().map(hex).unwrap_or_default();
            frame_of(meaning, &payload).encode(&mut |part| octets.extend(part));
        }
    }
    octets
}

fn ranges(meaning: &Value) -> Vec<std::ops::RangeInclusive<u64>> {
    let bound = |range: &Value, at: usize| range[at].as_u64().expect("a range has two numbers");
    list(meaning, "ranges").iter().map(|range| bound(range, 0)..=bound(range, 1)).collect()
}

fn ecn(meaning: &Value) -> Option<EcnCounts> {
    let counts = meaning["ecn"].as_array()?;
    let count = |at: usize| counts[at].as_u64().and_then(|n| n.try_into().ok()).expect("a 32-bit count");
    Some(EcnCounts { ect0: count(0), ect1: count(1), ce: count(2) })
}

/// Frames other than PADDING and ACK.
fn frame_of<'a>(m: &'a Value, payload: &'a [u8]) -> Frame<'a> {
    let channel = || uint(m, "channel");
    let number = || uint(m, "number");
    let flags = || uint(m, "flags");
    match text(m, "type") {
        "PING" => Frame::Ping,
        "CLOSE_WRITE" => Frame::CloseWrite,
        "CLOSE_READ" => Frame::CloseRead,
        "MESSAGE" => {
            Frame::Message(Message { flags: flags(), channel: channel(), number: number(), payload })
        }
        "FRAGMENT" => Frame::Fragment(Fragment {
            flags: flags(),
            channel: channel(),
            number: number(),
            offset: uint(m, "offset"),
            total: uint(m, "total"),
            payload,
        }),
        "OFFER" => Frame::Offer(Offer {
            flags: flags(),
            channel: channel(),
            number: number(),
            total: uint(m, "total"),
        }),
        "ACCEPT" => Frame::Accept(Accept {
            refused: m["refused"].as_bool().expect("refused is true or false"),
            channel: channel(),
            number: number(),
            limit: uint(m, "limit"),
        }),
        "CREDIT" => Frame::Credit(Credit { channel: channel(), limit: uint(m, "limit") }),
        "PARAMETERS" => Frame::Parameters(Parameters {
            channel_credit: uint(m, "channel_credit"),
            max_message: uint(m, "max_message"),
            max_datagram: uint(m, "max_datagram"),
            max_channels: uint(m, "max_channels"),
            ack_delay_us: uint(m, "ack_delay_us"),
            rate_req: uint(m, "rate_req"),
            burst_req: uint(m, "burst_req"),
            relays: m["relays"].as_u64().map_or(0, |relays| relays.try_into().expect("one octet")),
        }),
        "DELIVERED" => Frame::Delivered(Delivered { channel: channel(), next: uint(m, "next") }),
        "STATUS_REQUEST" => Frame::StatusRequest(uint(m, "id")),
        "STATUS" => Frame::Status(Status {
            id: uint(m, "id"),
            buffered_bytes: uint(m, "buffered_bytes"),
            buffered_messages: uint(m, "buffered_messages"),
        }),
        "END" => Frame::End(End { code: uint(m, "code"), reason: text(m, "reason") }),
        "RATE" => {
            Frame::Rate(Rate { serial: uint(m, "serial"), rate: uint(m, "rate"), burst: uint(m, "burst") })
        }
        "GRANT_REQUEST" => {
            Frame::GrantRequest(GrantRequest { sent: uint(m, "sent"), wanted: uint(m, "wanted") })
        }
        "GRANT" => Frame::Grant(Grant { serial: uint(m, "serial"), limit: m["limit"].as_u64() }),
        "SKIP" => Frame::Skip(Skip { channel: channel(), number: number(), charged: uint(m, "charged") }),
        other => panic!("the vectors name a frame {other}"),
    }
}

/// Checks that `octets` mean one frame, the one described.
fn check_meaning(octets: &[u8], meaning: &Value, name: &str) {
    let decoded: Result<Vec<Frame<'_>>, FrameError> = Frames::new(octets).collect();
    let decoded = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
    match (text(meaning, "type"), &decoded[..]) {
        ("PADDING", []) => {}
        ("ACK" | "ACK_ECN" | "ACK_ECT0", [Frame::Ack(ack)]) => {
            let expected = ranges(meaning);
            assert_eq!(ack.ranges(*expected[0].end()).collect::<Vec<_>>(), expected, "{name}");
            assert_eq!((ack.delay_us, ack.ecn), (uint(meaning, "delay_us"), ecn(meaning)), "{name}");
        }
        (_, [frame]) => {
            let payload = meaning["payload"].as_str().map(hex).unwrap_or_default();
            assert_eq!(*frame, frame_of(meaning, &payload), "{name}");
        }
        (_, other) => panic!("{name}: decoded as {} frames", other.len()),
    }
}

#[test]
fn frames_have_the_octets_of_the_vectors() {
    let vectors = vectors(include_str!("../../../spec/vectors/frames.json"));
    let mut kinds = std::collections::BTreeSet::new();
    for vector in list(&vectors, "frames") {
        let (name, octets, meaning) = (text(vector, "name"), hex(text(vector, "hex")), &vector["frame"]);
        check_meaning(&octets, meaning, name);
        // Fields that version 1 does not know are skipped and so cannot be written again.
        if meaning.get("extension").is_none() {
            assert_eq!(encode(meaning), octets, "{name}");
        }
        kinds.insert(octets[0]);
    }
    assert_eq!(
        kinds,
        (frame::kind::PADDING..=frame::kind::LONG_FRAGMENT).collect(),
        "every kind has a vector"
    );
}

fn kind_of(name: &str) -> Kind {
    [Kind::First, Kind::Answer, Kind::Session, Kind::Reset, Kind::Versions]
        .into_iter()
        .find(|kind| kind.to_string() == name)
        .unwrap_or_else(|| panic!("the vectors name a packet {name}"))
}

fn opening_of(meaning: &Value) -> Option<Opening> {
    meaning.get("own_token").map(|_| Opening {
        own_token: Token(id(meaning, "own_token")),
        incarnation: Incarnation(id(meaning, "incarnation")),
    })
}

fn encode_packet(meaning: &Value) -> Vec<u8> {
    let (kind, flags) = (kind_of(text(meaning, "kind")), uint(meaning, "flags"));
    let (number, token) = (PacketNumber(uint(meaning, "number")), Token(id(meaning, "token")));
    let mut octets = packet::common_header(kind, flags, number, token).to_vec();
    if let Some(opening) = opening_of(meaning) {
        let handshake = hex(text(meaning, "handshake"));
        octets.extend(packet::opening_header(opening, handshake.len() as u16));
        octets.extend(handshake);
    }
    for frame in meaning["frames"].as_array().into_iter().flatten() {
        octets.extend(encode(frame));
    }
    for version in meaning["versions"].as_array().into_iter().flatten() {
        octets.push(version.as_u64().and_then(|n| n.try_into().ok()).expect("a version is an octet"));
    }
    let crc = crc32c(&octets);
    octets.extend(crc.to_le_bytes());
    octets
}

#[test]
fn packets_have_the_octets_of_the_vectors() {
    let vectors = vectors(include_str!("../../../spec/vectors/packets.json"));
    let mut kinds = std::collections::BTreeSet::new();
    for vector in list(&vectors, "packets") {
        let (name, octets, meaning) = (text(vector, "name"), hex(text(vector, "hex")), &vector["packet"]);
        assert_eq!(encode_packet(meaning), octets, "{name}");

        assert!(verify(&octets), "{name}");
        let packet = Packet::decode(&octets).unwrap_or_else(|error| panic!("{name}: {error}"));
        let header = Header {
            kind: kind_of(text(meaning, "kind")),
            flags: uint(meaning, "flags"),
            number: uint(meaning, "number"),
            token: Token(id(meaning, "token")),
            opening: opening_of(meaning),
        };
        assert_eq!(packet.header, header, "{name}");
        let handshake = meaning.get("handshake").map(|_| hex(text(meaning, "handshake"))).unwrap_or_default();
        assert_eq!(packet.handshake, handshake, "{name}");
        let shown = denrei_wire::dump(&octets).to_string();
        assert!(shown.ends_with("| crc ok") && !shown.contains('('), "{name}: {shown}");
        kinds.insert(octets[0]);
    }
    assert_eq!(kinds, (0xd1..=0xd5).collect(), "every kind has a vector");
}

/// Why a plain-mode receiver drops `datagram`, in the words of the vectors.
fn why_refused(datagram: &[u8]) -> &'static str {
    let packet = match Packet::decode(datagram) {
        Ok(packet) => packet,
        Err(PacketError::Truncated(_)) => return "truncated",
        Err(PacketError::UnknownKind(_)) => return "unknown kind",
        Err(PacketError::UnknownVersion(_)) => return "unknown version",
        Err(PacketError::Reserved(_)) => return "reserved",
        Err(PacketError::Impossible { .. }) => return "impossible",
        Err(_) => return "an error the vectors do not know",
    };
    if !verify(datagram) || packet.body.len() < CHECKSUM_BYTES {
        return "checksum";
    }
    let content = &packet.body[..packet.body.len() - CHECKSUM_BYTES];
    if Frames::new(content).any(|frame| frame.is_err()) { "frame" } else { "not refused" }
}

#[test]
fn what_the_vectors_refuse_is_refused() {
    let vectors = vectors(include_str!("../../../spec/vectors/refused.json"));
    for vector in list(&vectors, "packets") {
        assert_eq!(why_refused(&hex(text(vector, "hex"))), text(vector, "why"), "{}", text(vector, "name"));
    }
    for vector in list(&vectors, "frames") {
        let octets = hex(text(vector, "hex"));
        let why = match Frames::new(&octets).find_map(Result::err) {
            Some(FrameError::Truncated { .. }) => "truncated",
            Some(FrameError::Unknown(_)) => "unknown",
            Some(FrameError::Impossible { .. }) => "impossible",
            Some(_) => "an error the vectors do not know",
            None => "not refused",
        };
        assert_eq!(why, text(vector, "why"), "{}", text(vector, "name"));
    }
}

#[test]
fn numbers_and_checksums_are_those_of_the_vectors() {
    let vectors = vectors(include_str!("../../../spec/vectors/numbers.json"));
    for vector in list(&vectors, "expand") {
        let full: u64 = uint(vector, "full");
        assert_eq!(expand(uint(vector, "truncated"), uint(vector, "expected")), full, "{vector}");
    }
    for vector in list(&vectors, "crc32c") {
        let expected: u32 = uint(vector, "crc");
        assert_eq!(crc32c(&hex(text(vector, "hex"))), expected, "{vector}");
    }
}
