//! Target `operations`: two applications that do what the input says, over a link that does what the
//! input says, against an oracle; then the link heals, and everything has to arrive.

use crate::input::Input;
use crate::oracle::{Oracle, SessionKey};
use crate::world::{self, CHANNELS, World};
use core::time::Duration;
use denrei_proto::{ChannelId, Completion, Config, CongestionAlgorithm, Event, OfferPolicy, PeerId};

/// Steps per input, at most: keeps one run in the milliseconds.
const MAX_STEPS: usize = 300;

/// Sizes of messages: empty, small, a packet, fragments, offered by choice, offered of necessity,
/// refused as too large.
const SIZES: [usize; 8] = [0, 12, 64, 1100, 5000, 30_000, 70_000, 140_000];

/// Rounds of the healed network: each delivers everything and then lets some time pass.
const HEALING_ROUNDS: usize = 400;
/// Time per round. All rounds together are several failure timeouts.
const HEALING_STEP: Duration = Duration::from_millis(20);

struct Run {
    world: World,
    oracle: Oracle,
    lives: [u32; 2],
    /// The peer each node talks to.
    peers: [Option<PeerId>; 2],
    /// Offers that wait for the application's word.
    offers: [Vec<(ChannelId, u64)>; 2],
}

/// Runs the operations that `data` encodes.
pub fn operations(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(settings) = input.octet() else { return };
    let pick = |bit: u8| settings & (1 << bit) != 0;
    let config = Config {
        offers: if pick(0) { OfferPolicy::Ask } else { OfferPolicy::Automatic },
        congestion: if pick(1) { CongestionAlgorithm::Cubic } else { CongestionAlgorithm::Delay },
        keepalive: if pick(2) { None } else { world::config().keepalive },
        ecn: !pick(3),
        ..world::config()
    };
    let mut run = Run {
        world: World::new(config),
        oracle: Oracle::default(),
        lives: [0; 2],
        peers: [None; 2],
        offers: Default::default(),
    };
    for _ in 0..MAX_STEPS {
        if run.step(&mut input).is_none() {
            break;
        }
        run.note_events();
    }
    run.heal();
}

impl Run {
    fn key(&self, node: usize, peer: PeerId) -> SessionKey {
        (node, self.lives[node], peer)
    }

    /// One decision of the input; `None` at its end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        match input.below(24)? {
            0..=5 => drop(self.world.deliver_next()),
            6 => {
                for _ in 0..64 {
                    self.world.deliver_next();
                }
            }
            7..=12 => self.send(input)?,
            13 | 14 => self.world.advance(Duration::from_micros(50) * (1 << input.below(16)?)),
            15 => drop(self.world.under_way.pop_front()),
            16 => {
                if let Some(datagram) = self.world.under_way.front().cloned() {
                    self.world.deliver(datagram);
                }
            }
            17 => {
                let at = input.octet()? as usize;
                if !self.world.under_way.is_empty() {
                    let datagram = self.world.under_way.remove(at % self.world.under_way.len());
                    self.world.deliver(datagram.expect("the index is below the length"));
                }
            }
            18 => {
                let change = input.octet()?;
                if let Some(datagram) = self.world.under_way.front_mut() {
                    let at = change as usize % datagram.bytes.len();
                    datagram.bytes[at] ^= change | 1;
                }
            }
            19 | 20 => {
                let node = input.below(2)?;
                self.read(node, 1 + input.below(4)?);
            }
            21 => {
                let node = input.below(2)?;
                self.connect(node);
            }
            22 => self.answer_offer(input)?,
            _ => self.rare(input)?,
        }
        Some(())
    }

    /// What happens seldom in a session's life.
    fn rare(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (what, node) = (input.below(8)?, input.below(2)?);
        if what == 0 {
            self.kill(node);
            return Some(());
        }
        let Some(peer) = self.peers[node] else { return Some(()) };
        let (now, endpoint) = (self.world.now, &mut self.world.nodes[node].endpoint);
        // A peer that is gone refuses all of these, and that is all there is to it.
        let _ = match what {
            1 => {
                self.oracle.closing();
                endpoint.close_write(now, peer)
            }
            2 => {
                self.oracle.closing();
                let key = (node, self.lives[node], peer);
                self.oracle.close_read(key);
                endpoint.close_read(now, peer)
            }
            3 => {
                self.oracle.closing();
                endpoint.close(now, peer)
            }
            4 => {
                self.oracle.closing();
                endpoint.abort(now, peer, 0x8001, "the application's own reason")
            }
            5 => {
                let channel = ChannelId { peer, channel: input.below(CHANNELS as usize)? as u16 };
                endpoint.set_priority(channel, input.octet()?)
            }
            _ => endpoint.request_status(now, peer).map(drop),
        };
        self.world.drive(node);
        Some(())
    }

    fn kill(&mut self, node: usize) {
        self.oracle.killed(node);
        self.world.restart(node);
        self.lives[node] += 1;
        self.peers[node] = None;
        self.offers[node].clear();
    }

    fn connect(&mut self, node: usize) {
        let (now, target) = (self.world.now, self.world.nodes[1 - node].addr);
        if let Ok(peer) = self.world.nodes[node].endpoint.connect(now, target) {
            self.peers[node] = Some(peer);
        }
        self.world.drive(node);
    }

    fn send(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (node, channel) = (input.below(2)?, input.below(CHANNELS as usize)? as u16);
        let choice = input.octet()?;
        let len = SIZES[choice as usize % SIZES.len()];
        let completion =
            [Completion::None, Completion::Acknowledged, Completion::Delivered][choice as usize / 8 % 3];
        let Some(peer) = self.peers[node] else { return Some(()) };
        let key = self.key(node, peer);
        let (tag, number) = self.oracle.next(key, channel);
        let data = world::message(tag, channel, number, len);
        let to = ChannelId { peer, channel };
        if let Ok(id) = self.world.nodes[node].endpoint.send(to, data, completion) {
            self.oracle.sent(key, id, len, completion);
        }
        self.world.drive(node);
        Some(())
    }

    /// Takes up to `count` messages.
    fn read(&mut self, node: usize, count: usize) {
        for _ in 0..count {
            let Some(message) = self.world.nodes[node].endpoint.recv(self.world.now) else { break };
            let key = self.key(node, message.channel.peer);
            self.oracle.received(key, &message);
        }
        self.world.drive(node);
    }

    fn answer_offer(&mut self, input: &mut Input<'_>) -> Option<()> {
        let (node, choice) = (input.below(2)?, input.octet()? as usize);
        if self.offers[node].is_empty() {
            return Some(());
        }
        let at = choice / 2 % self.offers[node].len();
        let (channel, number) = self.offers[node].swap_remove(at);
        self.answer(node, channel, number, choice % 2 == 0);
        Some(())
    }

    fn answer(&mut self, node: usize, channel: ChannelId, number: u64, accept: bool) {
        let (now, endpoint) = (self.world.now, &mut self.world.nodes[node].endpoint);
        let answered = match accept {
            true => endpoint.accept(now, channel, number, Vec::new()),
            false => endpoint.refuse(now, channel, number),
        };
        // The sender may be gone; then nothing comes of it.
        if answered.is_ok() && !accept {
            let key = self.key(node, channel.peer);
            self.oracle.refuse(key, channel.channel, number);
        }
        self.world.drive(node);
    }

    fn note_events(&mut self) {
        for node in 0..2 {
            while let Some(event) = self.world.nodes[node].events.pop_front() {
                self.note_event(node, event);
            }
        }
    }

    fn note_event(&mut self, node: usize, event: Event) {
        let of = |peer: PeerId| (node, self.lives[node], peer);
        match event {
            Event::Connected { peer, .. } => self.peers[node] = Some(peer),
            Event::Acknowledged(id) => {
                self.oracle.reported(of(id.channel.peer), id, Completion::Acknowledged);
            }
            Event::Delivered(id) => self.oracle.reported(of(id.channel.peer), id, Completion::Delivered),
            Event::Refused(id) => self.oracle.refused(of(id.channel.peer), id),
            Event::Offered { channel, number, bytes } => {
                self.oracle.offered(of(channel.peer), channel.channel, number, bytes);
                self.offers[node].push((channel, number));
            }
            Event::PeerLost { peer, unacknowledged, .. } => self.oracle.lost(of(peer), &unacknowledged),
            Event::PeerDoneReading { peer, .. } => self.oracle.peer_done_reading(of(peer)),
            Event::PeerDoneWriting(_) | Event::Status { .. } => {}
            other => panic!("an event that this oracle does not judge: {other:?}"),
        }
    }

    /// The link loses nothing any more and both applications take everything.
    fn heal(&mut self) {
        for _ in 0..HEALING_ROUNDS {
            while self.world.deliver_next() {
                self.take_all();
            }
            self.take_all();
            self.world.advance(HEALING_STEP);
            self.take_all();
        }
        for node in 0..2 {
            let Some(peer) = self.peers[node] else { continue };
            let Some(flow) = self.world.nodes[node].endpoint.flow(peer) else { continue };
            if let Err(missing) = self.oracle.is_complete(self.key(node, peer)) {
                panic!("{missing} of node {node} has not arrived although the network is well: {flow:?}");
            }
        }
    }

    fn take_all(&mut self) {
        self.note_events();
        for node in 0..2 {
            for (channel, number) in core::mem::take(&mut self.offers[node]) {
                self.answer(node, channel, number, true);
            }
            self.read(node, usize::MAX);
        }
        self.note_events();
    }
}
