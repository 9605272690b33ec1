//! Target `outsider`: two Nodes with a cluster key, and somebody on the path who has none. The input
//! says when they connect, send and restart, and what the outsider does: repeats what it recorded, to
//! either and from other addresses, damages it, and makes up packets of every kind. Nothing panics,
//! and **nothing is ever delivered that the other side did not send**, in order and once a session.

use crate::input::Input;
use crate::world::{self, CHANNELS, Datagram, World};
use core::net::SocketAddr;
use core::time::Duration;
use denrei_proto::seal::ClusterKey;
use denrei_proto::{ChannelId, Completion, Config, PeerId};
use denrei_wire::packet::{self, COOKIE_BYTES, Kind, Packet, TAG_BYTES};
use denrei_wire::{Ecn, Incarnation, PacketNumber, Token, checksum};
use std::collections::{BTreeMap, VecDeque};

/// Steps per input, at most: keeps one run in the milliseconds.
const MAX_STEPS: usize = 300;
/// Datagrams that the outsider keeps.
const MAX_RECORDED: usize = 64;
/// Sizes of messages: empty, small, a packet, fragments.
const SIZES: [usize; 4] = [0, 40, 1100, 5000];
/// Kinds that anybody can make up.
const KINDS: [Kind; 6] = [Kind::First, Kind::Answer, Kind::Session, Kind::Reset, Kind::Versions, Kind::Retry];

struct Stage {
    world: World,
    recorded: VecDeque<Datagram>,
    /// Tokens and incarnations seen in openings.
    seen: Vec<(Token, Incarnation)>,
    /// What each node has sent in each of its sessions.
    sent: BTreeMap<(usize, PeerId, u16), u64>,
    /// Next number due from each session, as each node sees it.
    due: BTreeMap<(usize, PeerId, u16), u64>,
    /// The most that either node has sent on a channel of a session.
    most: [u64; 2],
}

/// Runs `data` with an outsider on the path.
pub fn outsider(data: &[u8]) {
    let mut input = Input::new(data);
    let config = Config {
        cluster_key: Some(ClusterKey::from_bytes([7; 32])),
        rekey_after_packets: 16,
        ..world::config()
    };
    let mut stage = Stage {
        world: World::new(config),
        recorded: VecDeque::new(),
        seen: Vec::new(),
        sent: BTreeMap::new(),
        due: BTreeMap::new(),
        most: [0; 2],
    };
    for _ in 0..MAX_STEPS {
        if stage.step(&mut input).is_none() {
            break;
        }
        stage.applications();
    }
    stage.world.advance(Duration::from_secs(3));
    stage.applications();
}

impl Stage {
    /// One decision of the input; `None` at its end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        match input.below(12)? {
            0..=3 => {
                self.record();
                self.world.deliver_next();
            }
            4 => drop(self.world.under_way.pop_front()),
            5 => self.send(input)?,
            6 => self.world.advance(Duration::from_micros(50) * (1 << input.below(16)?)),
            7 => self.repeat(input)?,
            8 => self.damage(input)?,
            9 => self.make_up(input)?,
            10 => {
                let node = input.below(8)?;
                // Seldom: most inputs are to go on with a session.
                if node < 2 {
                    self.restart(node);
                }
            }
            _ => {
                let len = input.octet()? as usize;
                let (to, bytes) = (input.below(2)?, input.octets(len).to_vec());
                let from = self.source(input, to)?;
                self.world.deliver(Datagram { from, to, bytes, ecn: Ecn::Ce });
            }
        }
        Some(())
    }

    /// Keeps a copy of what comes next.
    fn record(&mut self) {
        let Some(datagram) = self.world.under_way.front() else { return };
        if let Ok(Packet { header: packet::Header { opening: Some(opening), .. }, .. }) =
            Packet::decode(&datagram.bytes)
        {
            self.seen.push((opening.own_token, opening.incarnation));
        }
        if self.recorded.len() == MAX_RECORDED {
            self.recorded.pop_front();
        }
        self.recorded.push_back(datagram.clone());
    }

    fn restart(&mut self, node: usize) {
        self.world.restart(node);
        self.sent.retain(|(who, ..), _| *who != node);
        self.due.retain(|(who, ..), _| *who != node);
    }

    /// The right source of a datagram to `to`, or somebody else.
    fn source(&self, input: &mut Input<'_>, to: usize) -> Option<SocketAddr> {
        let right = self.world.nodes[1 - to].addr;
        let choice = input.octet()?;
        Some(if choice & 1 == 0 { right } else { SocketAddr::from(([10, 9, 8, choice], 5000)) })
    }

    /// Something recorded, again, perhaps to its own sender or from another address.
    fn repeat(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (at, to) = (input.octet()? as usize, input.below(2)?);
        let from = self.source(input, to)?;
        if !self.recorded.is_empty() {
            let bytes = self.recorded[at % self.recorded.len()].bytes.clone();
            self.world.deliver(Datagram { from, to, bytes, ecn: Ecn::Ect0 });
        }
        Some(())
    }

    /// A damaged copy of what comes next, before it or in its place.
    fn damage(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (at, change, how) = (input.octet()? as usize, input.octet()?, input.octet()?);
        self.record();
        let Some(mut datagram) = self.world.under_way.front().cloned() else { return Some(()) };
        if how & 1 == 0 {
            self.world.under_way.pop_front();
        }
        let bytes = &mut datagram.bytes;
        // Headers and trailers are where the decisions are.
        let place = if how & 2 == 0 { at } else { bytes.len().wrapping_sub(1 + at) };
        if how & 4 == 0 && !bytes.is_empty() {
            let place = place % bytes.len();
            bytes[place] ^= change;
        } else {
            bytes.truncate(at * 4);
        }
        self.world.deliver(datagram);
        Some(())
    }

    /// A packet of a kind, with a token that was seen or not.
    fn make_up(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (kind, which, number, to) =
            (KINDS[input.below(KINDS.len())?], input.octet()? as usize, input.octet()?, input.below(2)?);
        let (token, incarnation) = match self.seen.len() {
            0 => (Token(which as u64), Incarnation(which as u64)),
            seen => self.seen[which % seen],
        };
        let outside = !matches!(kind, Kind::First | Kind::Answer | Kind::Session);
        let number = PacketNumber(if outside { 0 } else { u64::from(number) });
        let mut bytes = packet::common_header(kind, 0, number, token).to_vec();
        let len = input.octet()? as usize;
        let content = input.octets(len);
        if matches!(kind, Kind::First | Kind::Answer) {
            let own_token = if kind == Kind::First { token } else { Token(9) };
            let opening = packet::Opening { own_token, incarnation };
            let handshake_len = content.len().min(number.0 as usize) as u16;
            bytes.extend(packet::opening_header(opening, handshake_len));
        }
        bytes.extend(content);
        match kind {
            Kind::Retry => bytes.resize(packet::COMMON_HEADER_BYTES + COOKIE_BYTES + TAG_BYTES, 0x33),
            _ => bytes.extend(checksum::crc32c(&bytes).to_le_bytes()),
        }
        let from = self.source(input, to)?;
        self.world.deliver(Datagram { from, to, bytes, ecn: Ecn::NotEct });
        Some(())
    }

    fn send(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (from, channel) = (input.below(2)?, input.below(CHANNELS as usize)? as u16);
        let len = SIZES[input.below(SIZES.len())?];
        let (now, target) = (self.world.now, self.world.nodes[1 - from].addr);
        let Ok(peer) = self.world.nodes[from].endpoint.connect(now, target) else { return Some(()) };
        let number = self.sent.entry((from, peer, channel)).or_default();
        let data = world::message(from as u32, channel, *number, len);
        let endpoint = &mut self.world.nodes[from].endpoint;
        if let Ok(id) = endpoint.send(ChannelId { peer, channel }, data, Completion::None) {
            assert_eq!(id.number, *number, "messages are numbered without a gap");
            *number += 1;
            self.most[from] = self.most[from].max(*number);
        }
        self.world.drive(from);
        Some(())
    }

    /// Both applications take what there is, and believe nothing.
    fn applications(&mut self) {
        for index in 0..2 {
            let (now, node) = (self.world.now, &mut self.world.nodes[index]);
            node.events.clear();
            while let Some(message) = node.endpoint.recv(now) {
                let (channel, number) = (message.channel.channel, message.number);
                let tag = world::check_message(channel, number, &message.data);
                assert!(tag.is_none_or(|tag| tag == 1 - index as u32), "a message came back to its sender");
                let due = self.due.entry((index, message.channel.peer, channel)).or_default();
                assert_eq!(number, *due, "a message is repeated or out of order");
                *due += 1;
                assert!(number < self.most[1 - index], "message {number} was never sent");
            }
            self.world.drive(index);
        }
    }
}
