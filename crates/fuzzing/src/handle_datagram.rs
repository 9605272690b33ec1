//! Target `handle_datagram`: an established session, and a network that does to its datagrams what
//! the input says: loses, repeats, reorders, damages (with and without mending the checksum) and
//! forges them, with the right tokens. Nothing panics, nothing runs without end, nothing that is
//! sent is malformed; and as long as nothing was forged, no wrong message is delivered.

use crate::input::Input;
use crate::world::{self, CHANNELS, Datagram, World};
use core::time::Duration;
use denrei_proto::{ChannelId, Completion, Event, OfferPolicy, PeerId};
use denrei_wire::Ecn;
use denrei_wire::checksum::{CHECKSUM_BYTES, crc32c, verify};
use denrei_wire::ids::Token;
use denrei_wire::packet::{self, COMMON_HEADER_BYTES, Kind, Packet};

/// Steps per input, at most: keeps one run in the milliseconds.
const MAX_STEPS: usize = 400;

/// Sizes of messages: empty, small, a packet, fragments, offered.
const SIZES: [usize; 5] = [0, 40, 1100, 5000, 30_000];

struct Session {
    world: World,
    peers: [PeerId; 2],
    /// Tokens that address node 0 and node 1, as seen on the wire.
    tokens: [Option<Token>; 2],
    next_number: [u32; 2],
    sent: [[u64; CHANNELS as usize]; 2],
    /// Something was forged with a valid checksum: content is no longer judged.
    forged: bool,
}

/// Runs `data` against an established session.
pub fn handle_datagram(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(first) = input.octet() else { return };
    let offers = if first & 1 == 0 { OfferPolicy::Automatic } else { OfferPolicy::Ask };
    let Some(mut session) = Session::establish(offers) else { panic!("no session without disturbance") };
    for _ in 0..MAX_STEPS {
        if session.step(&mut input).is_none() {
            break;
        }
        session.applications();
    }
    session.world.advance(Duration::from_secs(3));
    session.applications();
}

impl Session {
    fn establish(offers: OfferPolicy) -> Option<Self> {
        let mut world = World::new(denrei_proto::Config { offers, ..world::config() });
        let (now, target) = (world.now, world.nodes[1].addr);
        let there = world.nodes[0].endpoint.connect(now, target).ok()?;
        world.drive(0);
        let mut tokens = [None, None];
        for _ in 0..100 {
            let Some(next) = world.under_way.front() else { break };
            learn_token(next, &mut tokens);
            world.deliver_next();
        }
        let back = world.nodes[1].endpoint.peer_at(world.nodes[0].addr)?;
        let (next_number, sent) = ([1000; 2], [[0; CHANNELS as usize]; 2]);
        Some(Self { world, peers: [there, back], tokens, next_number, sent, forged: false })
    }

    /// One decision of the input; `None` at its end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        let world = &mut self.world;
        match input.below(12)? {
            0..=2 => {
                world.deliver_next();
            }
            3 => drop(world.under_way.pop_front()),
            4 => {
                if let Some(datagram) = world.under_way.front().cloned() {
                    world.deliver(datagram);
                }
            }
            5 => {
                let at = input.octet()? as usize;
                if !world.under_way.is_empty() {
                    let datagram = world.under_way.remove(at % world.under_way.len());
                    world.deliver(datagram.expect("the index is below the length"));
                }
            }
            6 => self.damage(input, false)?,
            7 => self.damage(input, true)?,
            8 => self.forge(input)?,
            9 => {
                let to = input.below(2)?;
                let from = self.world.nodes[1 - to].addr;
                let len = input.octet()? as usize;
                let bytes = input.octets(len).to_vec();
                self.forged |= verify(&bytes);
                self.world.deliver(Datagram { from, to, bytes, ecn: Ecn::Ce });
            }
            10 => world.advance(Duration::from_micros(50) * (1 << input.below(16)?)),
            _ => self.send(input)?,
        }
        Some(())
    }

    /// Changes the next datagram: an octet, its length, and perhaps mends the checksum after that.
    fn damage(&mut self, input: &mut Input<'_>, mend: bool) -> Option<()> {
        let (at, change, length) = (input.octet()? as usize, input.octet()?, input.octet()?);
        let Some(mut datagram) = self.world.under_way.pop_front() else { return Some(()) };
        let bytes = &mut datagram.bytes;
        if length & 3 == 0 {
            bytes.truncate(length as usize);
        }
        if !bytes.is_empty() {
            let at = at % bytes.len();
            bytes[at] ^= change;
        }
        if mend && bytes.len() >= CHECKSUM_BYTES {
            self.forged = true;
            let covered = bytes.len() - CHECKSUM_BYTES;
            let crc = crc32c(&bytes[..covered]);
            bytes[covered..].copy_from_slice(&crc.to_le_bytes());
        }
        self.world.deliver(datagram);
        Some(())
    }

    /// A packet of the session with frames from the input.
    fn forge(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (to, flags, len) = (input.below(2)?, input.below(4)?, input.octet()? as usize);
        let Some(token) = self.tokens[to] else { return Some(()) };
        self.forged = true;
        self.next_number[to] = self.next_number[to].wrapping_add(input.octet()? as u32);
        let number = denrei_wire::PacketNumber(self.next_number[to] as u64);
        let mut bytes = packet::common_header(Kind::Session, flags as u16, number, token).to_vec();
        bytes.extend(input.octets(len));
        let crc = crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        debug_assert!(bytes.len() >= COMMON_HEADER_BYTES);
        let from = self.world.nodes[1 - to].addr;
        self.world.deliver(Datagram { from, to, bytes, ecn: Ecn::Ect0 });
        Some(())
    }

    fn send(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (from, channel) = (input.below(2)?, input.below(CHANNELS as usize)? as u16);
        let len = SIZES[input.below(SIZES.len())?];
        let number = self.sent[from][channel as usize];
        let to = ChannelId { peer: self.peers[from], channel };
        let data = world::message(from as u32, channel, number, len);
        let endpoint = &mut self.world.nodes[from].endpoint;
        if let Ok(id) = endpoint.send(to, data, Completion::Delivered) {
            assert_eq!(id.number, number, "messages are numbered without a gap");
            self.sent[from][channel as usize] += 1;
        }
        self.world.drive(from);
        Some(())
    }

    /// Both applications take what there is.
    fn applications(&mut self) {
        for index in 0..2 {
            let (now, node) = (self.world.now, &mut self.world.nodes[index]);
            while let Some(event) = node.events.pop_front() {
                if let Event::Offered { channel, number, .. } = event {
                    // The offer may be gone by now, if its sender is.
                    let _ = node.endpoint.accept(now, channel, number, Vec::new());
                }
            }
            while let Some(message) = node.endpoint.recv(now) {
                if !self.forged {
                    world::check_message(message.channel.channel, message.number, &message.data);
                    let sent = self.sent[1 - index][message.channel.channel as usize];
                    assert!(message.number < sent, "message {} was never sent", message.number);
                }
            }
            self.world.drive(index);
        }
    }
}

/// Tokens are in the clear: whoever sees the opening knows them.
fn learn_token(datagram: &Datagram, tokens: &mut [Option<Token>; 2]) {
    let Ok(packet) = Packet::decode(&datagram.bytes) else { return };
    if let Some(opening) = packet.header.opening {
        tokens[1 - datagram.to] = Some(opening.own_token);
    }
}
