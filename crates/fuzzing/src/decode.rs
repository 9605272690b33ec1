//! Target `decode`: whatever the octets, decoding does not panic, what was decoded encodes again,
//! and means the same then.

use denrei_wire::checksum::CHECKSUM_BYTES;
use denrei_wire::frame::{Frame, Frames};
use denrei_wire::ids::PacketNumber;
use denrei_wire::packet::{self, Kind, Packet, VERSION};

/// Takes `data` as a datagram, and as the frames of one.
pub fn decode(data: &[u8]) {
    assert!(!denrei_wire::dump(data).to_string().contains('\n'), "a dump is one line");
    let _ = packet::first_token_of_any_version(data);
    check_frames(data);
    if let Ok(packet) = Packet::decode(data) {
        check_header(data, &packet);
        check_frames(&packet.body[..packet.body.len() - CHECKSUM_BYTES]);
    }
}

fn check_header(data: &[u8], packet: &Packet<'_>) {
    let header = packet.header;
    let number = PacketNumber(header.number as u64);
    let mut again = packet::common_header(header.kind, header.flags, number, header.token).to_vec();
    if let Some(opening) = header.opening {
        again.extend(packet::opening_header(opening, packet.handshake.len() as u16));
        again.extend(packet.handshake);
    }
    assert_eq!(again.len(), packet.header_len);
    if header.kind == Kind::Versions {
        // The one kind that is understood whatever version its sender speaks.
        again[1] = data[1];
    }
    assert_eq!(again, data[..packet.header_len], "a header encodes as it was");
    assert!(data[1] == VERSION || header.kind == Kind::Versions);
}

fn check_frames(body: &[u8]) {
    let mut frames = Frames::new(body);
    for frame in frames.by_ref().map_while(Result::ok) {
        let mut octets = Vec::new();
        frame.encode(&mut |part| octets.extend_from_slice(part));
        assert!(octets.len() <= body.len(), "a frame does not grow");
        let again = Frames::new(&octets).next().expect("a frame encodes as a frame");
        assert_eq!(again.expect("an encoded frame is well-formed"), frame);
        if let Frame::Ack(ack) = frame {
            check_ack(ack);
        }
    }
    assert!(frames.next().is_none(), "nothing follows an error");
}

fn check_ack(ack: denrei_wire::ack::AckFrame<'_>) {
    for expected in [0, ack.largest as u64, 1 << 32, 1 << 45, u64::MAX] {
        let mut below = None;
        for range in ack.ranges(expected) {
            assert!(range.start() <= range.end());
            assert!(below.is_none_or(|below| *range.end() < below), "ranges fall and do not touch");
            below = range.start().checked_sub(1);
        }
    }
}
