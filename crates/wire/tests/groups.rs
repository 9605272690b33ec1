//! The golden vectors of groups (`spec/vectors/groups.json`), which were made from the text of
//! `spec/protocol.md` §14 and not by this code.

use denrei_wire::checksum::verify;
use denrei_wire::frame::{Feedback, Frame, Frames, Gap, feedback_flags};
use denrei_wire::group::{Begin, GroupHeader, Join, Open, Record, Removal, Route};
use denrei_wire::packet::{Kind, Packet, flags};
use serde_json::Value;
use std::net::SocketAddr;

const GROUP: u64 = 0x1122_3344_5566_7788;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../spec/vectors/groups.json")).expect("the vectors are JSON")
}

fn octets(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("octets are a text");
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits are hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn meant(name: &str) -> Record<'static> {
    let message: &[u8] = b"\x04\0\0\0\x07\0\0\0\x02\0hi";
    match name {
        "OPEN" => Record::Open(Open {
            address: addr("239.1.2.3:7400"),
            member: 3,
            members: 8,
            report_delay_us: 1000,
            stagger: true,
            suppress: false,
            key: b"key",
        }),
        "ACCEPT" => Record::Accept { credit: 4 << 20, max_message: 1 << 30 },
        "REFUSE" => Record::Refuse,
        "UNHEARD" => Record::Unheard,
        "SYMBOL" => Record::Symbol { number: 5, report: false, frames: message },
        "SYMBOL_REPORT" => Record::Symbol { number: 6, report: true, frames: b"\x04\0\0\0\x08\0\0\0\0\0" },
        "POLL" => Record::Poll { next: 9 },
        "CLOSE" => Record::Close { symbols: 10, messages: 11 },
        "CLOSED" => Record::Closed,
        "LEAVE" => Record::Leave { symbols: 12, messages: 13 },
        "JOIN" => Record::Join(Join { address: addr("239.1.2.3:7400"), history: true }),
        "REMOVED" => Record::Removed(Removal::TooFarBehind),
        "ROUTE" => Record::Route(Route {
            parent: addr("10.0.0.1:7000"),
            report_to_parent: true,
            relay: false,
            children: vec![(7, addr("10.0.0.2:7001"))],
        }),
        "KEY" => Record::Key { keep_previous: true, key: b"another" },
        "BEGIN" => Record::Begin(Begin { symbol: 1 << 40, message: 17, cost: 1 << 50 }),
        other => panic!("no such record: {other}"),
    }
}

#[test]
fn records() {
    for vector in vectors()["records"].as_array().unwrap() {
        let name = vector["name"].as_str().unwrap();
        let (octets, meant) = (octets(&vector["octets"]), meant(name));
        let group = if name == "JOIN" { 0 } else { GROUP };
        assert_eq!(Record::decode(&octets), Ok((group, meant.clone())), "{name}");
        assert_eq!(meant.encode(group), octets, "{name}");
    }
    for vector in vectors()["refused_records"].as_array().unwrap() {
        assert!(Record::decode(&octets(&vector["octets"])).is_err(), "{vector}");
    }
}

#[test]
fn a_report() {
    let octets = octets(&vectors()["feedback"]);
    let gaps = [Gap::new(14, 1), Gap::new(20, 400)];
    let report = Feedback {
        flags: feedback_flags::HEARD,
        group: GROUP,
        member: 4,
        covers: 1,
        echo: 12,
        received: 11,
        delay_us: 13,
        next: 14,
        messages: 15,
        limit: 1 << 40,
        gaps: &gaps,
    };
    assert_eq!(Frames::new(&octets).next(), Some(Ok(Frame::Feedback(report))));
    let mut written = Vec::new();
    Frame::Feedback(report).encode(&mut |part| written.extend_from_slice(part));
    assert_eq!(written, octets);
}

#[test]
fn a_packet() {
    let octets = octets(&vectors()["packet"]);
    assert!(verify(&octets));
    let packet = Packet::decode(&octets).unwrap();
    let header = packet.header;
    assert_eq!((header.kind, header.number, header.flags), (Kind::Group, 33, flags::ACK_NOW));
    assert_eq!(header.token.0, GROUP);
    let (group, frames) = GroupHeader::decode(&packet.body[..packet.body.len() - 4]).unwrap();
    let meant = GroupHeader { symbol: 21, floor: 18, ack_every: 64, parity_of: 0, parity_index: 0 };
    assert_eq!(group, meant);
    assert!(
        matches!(Frames::new(frames).next(), Some(Ok(Frame::Message(message))) if message.payload == b"hi")
    );
}
