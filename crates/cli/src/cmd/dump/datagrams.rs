//! The datagrams of denrei among the packets of a capture.
//!
//! Inputs → outputs: packets as a link carries them → UDP datagrams, one by one, and a count of the others. A train
//! that was captured before it was cut up (UDP_SEGMENT, or UDP_GRO behind it) is cut up here: its datagrams have one
//! length, and numbers near to each other, `spec/protocol.md` §3.

use super::capture::Packet;
use denrei_wire::datagram::MAX_SEGMENTS;
use denrei_wire::packet::{COMMON_HEADER_BYTES, Packet as Decoded, PacketError};
use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::Linktype;
use std::net::{IpAddr, SocketAddr};

/// Header of packets of BSD's loopback, and of Linux' "any" interface in its second form; bytes.
const NULL_BYTES: usize = 4;
const SLL_BYTES: usize = 16;
const SLL2_BYTES: usize = 20;

/// A datagram of a capture.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// Who sent it.
    pub from: SocketAddr,
    /// Whom to.
    pub to: SocketAddr,
    /// What was captured of it.
    pub bytes: &'a [u8],
    /// How much longer it was; bytes.
    pub missing: usize,
}

/// Finds them.
pub struct Reader {
    /// Only from and to these; none: any.
    ports: Vec<u16>,
    shown: u64,
    others: u64,
    short: u64,
}

impl Reader {
    /// Of these ports; of all if there are none.
    pub fn new(ports: Vec<u16>) -> Self {
        Self { ports, shown: 0, others: 0, short: 0 }
    }

    /// Gives each datagram of `packet` to `show`.
    pub fn read(&mut self, packet: &Packet, mut show: impl FnMut(&Datagram<'_>)) {
        let is_whole = packet.missing == 0;
        let asked = |(from, to, payload): &(SocketAddr, SocketAddr, &[u8])| {
            self.is_asked_for(*from, *to, payload, is_whole)
        };
        let Some((from, to, payload)) = udp(packet).filter(asked) else {
            self.others += 1;
            return;
        };
        let mut train = train(payload).peekable();
        while let Some(bytes) = train.next() {
            let missing = if train.peek().is_none() { packet.missing } else { 0 };
            self.shown += 1;
            self.short += u64::from(missing > 0);
            show(&Datagram { at_ns: packet.at_ns, from, to, bytes, missing });
        }
    }

    /// Of the ports that were named everything; of the others what is a packet of the version spoken here.
    fn is_asked_for(&self, from: SocketAddr, to: SocketAddr, payload: &[u8], is_whole: bool) -> bool {
        if self.ports.is_empty() {
            return match Decoded::decode(payload) {
                // What all headers begin with is there, and right.
                Err(PacketError::Truncated(captured)) => !is_whole && captured >= COMMON_HEADER_BYTES,
                decoded => decoded.is_ok(),
            };
        }
        self.ports.contains(&from.port()) || self.ports.contains(&to.port())
    }

    /// What was read; `is_cut_off`: the capture ends in the middle of a packet.
    pub fn counts(&self, is_cut_off: bool) -> String {
        let mut words = format!("datagrams: {}; other packets: {}", self.shown, self.others);
        if self.short > 0 {
            words += &format!("; of {} the end was not captured (tcpdump -s 0)", self.short);
        }
        if is_cut_off {
            words += "; the capture ends in the middle of a packet";
        }
        words
    }
}

/// From, to and payload of a packet of UDP.
fn udp(packet: &Packet) -> Option<(SocketAddr, SocketAddr, &[u8])> {
    let sliced = slice(packet.link, &packet.bytes)?;
    let (from, to): (IpAddr, IpAddr) = match sliced.net? {
        LaxNetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        LaxNetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
        _ => return None,
    };
    let Some(TransportSlice::Udp(udp)) = sliced.transport else { return None };
    Some((
        SocketAddr::new(from, udp.source_port()),
        SocketAddr::new(to, udp.destination_port()),
        udp.payload(),
    ))
}

/// The headers of a packet that begins as packets of `link` do.
fn slice(link: Linktype, bytes: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(bytes).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => LaxSlicedPacket::from_ip(bytes).ok(),
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(bytes.get(NULL_BYTES..)?).ok(),
        Linktype::LINUX_SLL => {
            let (header, rest) = bytes.split_at_checked(SLL_BYTES)?;
            of_ether_type(header.last_chunk()?, rest)
        }
        Linktype::LINUX_SLL2 => {
            let (header, rest) = bytes.split_at_checked(SLL2_BYTES)?;
            of_ether_type(header.first_chunk()?, rest)
        }
        _ => None,
    }
}

fn of_ether_type<'a>(number: &[u8; 2], rest: &'a [u8]) -> Option<LaxSlicedPacket<'a>> {
    Some(LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes(*number)), rest))
}

/// The datagrams of `payload`, of which there is one as a rule: of a train all have the length of the first one, but
/// for the last, which is not longer.
fn train(payload: &[u8]) -> impl Iterator<Item = &[u8]> {
    let length = second(payload).unwrap_or(payload.len()).max(1);
    payload.chunks(length)
}

/// Where the packet after the one that `payload` begins with begins, if one does: it is of the same kind, version and
/// session, and its number is near. It is the next one only if nothing was lost or overtaken before UDP_GRO.
fn second(payload: &[u8]) -> Option<usize> {
    let first = Decoded::decode(payload).ok()?.header;
    let is_near = |number: u32| {
        let between = (number.wrapping_sub(first.number) as i32).unsigned_abs();
        (1..=MAX_SEGMENTS as u32).contains(&between)
    };
    let follows = |at: &usize| {
        let (before, after) = (&payload[..COMMON_HEADER_BYTES], &payload[*at..]);
        after[..2] == before[..2]
            && after[8..COMMON_HEADER_BYTES] == before[8..]
            && after[4..].first_chunk().is_some_and(|number| is_near(u32::from_le_bytes(*number)))
    };
    (COMMON_HEADER_BYTES..(payload.len() + 1).saturating_sub(COMMON_HEADER_BYTES)).find(follows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_io::pcap::Recorder;
    use denrei_wire::Ecn;
    use denrei_wire::checksum::crc32c;
    use denrei_wire::packet::{Kind, common_header};
    use denrei_wire::{PacketNumber, Token};
    use std::time::UNIX_EPOCH;

    /// Of the field of an IPv4 header that says what follows it.
    const PROTOCOL_AT: usize = 9;

    /// A packet of a session with so many octets of padding.
    fn session(number: u64, padding: usize) -> Vec<u8> {
        let mut bytes = common_header(Kind::Session, 0, PacketNumber(number), Token(0xaa)).to_vec();
        bytes.resize(bytes.len() + padding, 0);
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes
    }

    /// With the headers that Recorder makes up.
    fn ip(payload: &[u8], port: u16) -> Vec<u8> {
        const BEFORE_PACKET: usize = 24 + 16;
        let mut recorder = Recorder::new(Vec::new()).unwrap();
        let (from, to) = (([10, 0, 0, 1], 7411).into(), ([10, 0, 0, 2], port).into());
        recorder.record(UNIX_EPOCH, from, to, Ecn::Ect0, payload);
        recorder.finish().unwrap().split_off(BEFORE_PACKET)
    }

    fn packet(link: Linktype, bytes: Vec<u8>) -> Packet {
        Packet { at_ns: 5, link, bytes, missing: 0 }
    }

    fn read(reader: &mut Reader, packet: &Packet) -> Vec<(SocketAddr, usize, usize)> {
        let mut seen = Vec::new();
        reader.read(packet, |datagram| seen.push((datagram.to, datagram.bytes.len(), datagram.missing)));
        seen
    }

    #[test]
    fn whatever_a_link_puts_before_it() {
        let (payload, to) = (session(1, 8), "10.0.0.2:7412".parse().unwrap());
        let ip = ip(&payload, 7412);
        let with = |header: &[u8]| [header, &ip].concat();
        let ethernet = [&[0; 12][..], &[8, 0]].concat();
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat();
        let cooked = [&[0; 14][..], &[8, 0]].concat();
        let cooked2 = [&[8, 0][..], &[0; 18]].concat();
        for (link, bytes) in [
            (Linktype::RAW, ip.clone()),
            (Linktype::IPV4, ip.clone()),
            (Linktype::NULL, with(&[2, 0, 0, 0])),
            (Linktype::ETHERNET, with(&ethernet)),
            (Linktype::ETHERNET, with(&tagged)),
            (Linktype::LINUX_SLL, with(&cooked)),
            (Linktype::LINUX_SLL2, with(&cooked2)),
        ] {
            let mut reader = Reader::new(Vec::new());
            for len in 0..bytes.len() - payload.len() {
                assert!(read(&mut reader, &packet(link, bytes[..len].to_vec())).is_empty(), "{link} {len}");
            }
            assert_eq!(read(&mut reader, &packet(link, bytes)), [(to, payload.len(), 0)], "{link}");
        }
        let mut reader = Reader::new(Vec::new());
        assert!(read(&mut reader, &packet(Linktype(147), ip)).is_empty(), "whatever that is");
    }

    #[test]
    fn a_train_is_cut_up() {
        let cars = [session(0xffff_ffff, 1400), session(0x1_0000_0000, 1400), session(0x1_0000_0001, 3)];
        let mut reader = Reader::new(Vec::new());
        let mut whole = packet(Linktype::RAW, ip(&cars.concat(), 9));
        let lengths = |seen: Vec<(SocketAddr, usize, usize)>| {
            seen.into_iter().map(|(_, len, missing)| (len, missing)).collect::<Vec<_>>()
        };
        assert_eq!(lengths(read(&mut reader, &whole)), [(1420, 0), (1420, 0), (23, 0)]);
        whole.bytes.truncate(28 + 1420 + 100);
        whole.missing = 1343;
        assert_eq!(lengths(read(&mut reader, &whole)), [(1420, 0), (100, 1343)]);
        assert!(reader.counts(true).starts_with("datagrams: 5; other packets: 0; of 1 the end"));
        let two =
            |second: u64| packet(Linktype::RAW, ip(&[session(5, 1400), session(second, 1400)].concat(), 9));
        // What was between them was lost, or one has overtaken the other.
        for near in [7, 5 + 64, 4, 0x1_0000_0000 - 5] {
            assert_eq!(lengths(read(&mut reader, &two(near))), [(1420, 0), (1420, 0)], "{near}");
        }
        // The same one, or no neighbour.
        for other in [5, 5 + 65, 0x8000_0005] {
            assert_eq!(lengths(read(&mut reader, &two(other))), [(2840, 0)], "{other}");
        }
    }

    #[test]
    fn a_packet_of_which_not_all_of_the_header_was_captured_is_one() {
        let mut opening = common_header(Kind::First, 0, PacketNumber(0), Token(0xaa)).to_vec();
        opening.resize(82, 0);
        let mut reader = Reader::new(Vec::new());
        let mut cut = packet(Linktype::RAW, ip(&opening, 9));
        cut.bytes.truncate(28 + 22);
        cut.missing = 60;
        assert_eq!(read(&mut reader, &cut), [("10.0.0.2:9".parse().unwrap(), 22, 60)]);
        cut.missing = 0;
        assert!(read(&mut reader, &cut).is_empty(), "nothing is missing, and it is too short");
        cut.bytes.truncate(28 + 15);
        cut.missing = 67;
        assert!(read(&mut reader, &cut).is_empty(), "it may be anything");
    }

    #[test]
    fn only_what_is_asked_for() {
        let (ours, other) =
            (packet(Linktype::RAW, ip(&session(1, 8), 53)), packet(Linktype::RAW, ip(b"hello", 53)));
        let mut any = Reader::new(Vec::new());
        assert_eq!((read(&mut any, &ours).len(), read(&mut any, &other).len()), (1, 0));
        assert_eq!(any.counts(false), "datagrams: 1; other packets: 1");
        let mut named = Reader::new(vec![53]);
        assert_eq!((read(&mut named, &ours).len(), read(&mut named, &other).len()), (1, 1));
        assert!(read(&mut Reader::new(vec![54]), &ours).is_empty());
        let mut tcp = ours.clone();
        tcp.bytes[PROTOCOL_AT] = 6;
        assert!(read(&mut named, &tcp).is_empty());
    }
}
