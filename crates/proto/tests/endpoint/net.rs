//! Two endpoints and a link in memory, for the tests of their behaviour.

use crate::ways::{is_staged, secured};
use bytes::Bytes;
use denrei_proto::{ChannelId, Completion, Config, Endpoint, Event, LostReason, Message, PeerId};
use denrei_wire::packet::Kind;
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::Duration;

/// One-way delay of the link, if a test does not say another.
pub const DELAY: Duration = Duration::from_micros(50);

pub struct Datagram {
    pub at: Instant,
    order: u64,
    pub to: usize,
    ecn: Ecn,
    pub bytes: Vec<u8>,
}

impl PartialEq for Datagram {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Datagram {}
impl PartialOrd for Datagram {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Datagram {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Endpoints 0 and 1, and what is under way between them.
pub struct Pair {
    pub now: Instant,
    pub ends: [Endpoint; 2],
    pub under_way: BinaryHeap<Datagram>,
    pub order: u64,
    pub events: [Vec<Event>; 2],
    pub received: [Vec<Message>; 2],
    /// Whether the applications take what arrives.
    pub reading: [bool; 2],
    /// Which datagrams the link loses, by running number.
    pub lose: fn(u64) -> bool,
    /// One-way delay of the link.
    pub delay: Duration,
    /// The largest datagram that arrives.
    pub widest: usize,
    /// What becomes of a mark on the way; `None`: whoever has it is lost.
    pub remark: fn(Ecn) -> Option<Ecn>,
    pub connected: bool,
    /// Everything that was sent: to which end, and what.
    pub tapped: Vec<(usize, Vec<u8>)>,
    /// Datagrams that were sent with a part of a message lent.
    pub lent: u64,
    pub seed: u64,
}

pub fn addr(end: usize) -> SocketAddr {
    format!("10.0.0.{}:7000", end + 1).parse().unwrap()
}

impl Pair {
    pub fn new(config: Config) -> Self {
        Self::of([config.clone(), config])
    }

    /// With a session that the first end has opened, and said something in.
    pub fn met(config: Config) -> (Self, PeerId) {
        let mut pair = Self::new(config);
        let peer = pair.connect(0);
        pair.send(0, peer, 0, "hello");
        pair.run(Duration::from_secs(1));
        assert_eq!(pair.received[1].len(), 1);
        (pair, peer)
    }

    pub fn of([first, second]: [Config; 2]) -> Self {
        let end = |config, seed: u64| Endpoint::new(secured(config), seed, Instant::ZERO);
        Self {
            now: Instant::ZERO,
            ends: [end(first, 1), end(second, 2)],
            tapped: Vec::new(),
            lent: 0,
            under_way: BinaryHeap::new(),
            order: 0,
            events: Default::default(),
            received: Default::default(),
            reading: [true; 2],
            lose: |_| false,
            delay: DELAY,
            widest: usize::MAX,
            remark: Some,
            connected: true,
            seed: 100,
        }
    }

    pub fn connect(&mut self, from: usize) -> PeerId {
        self.ends[from].connect(self.now, addr(1 - from)).unwrap()
    }

    /// So many others open a session to the second end, and are silent then.
    pub fn open_from_others(&mut self, count: u16) {
        for other in 0..count {
            let mut endpoint = Endpoint::new(secured(Config::default()), 1000 + u64::from(other), self.now);
            endpoint.connect(self.now, addr(1)).unwrap();
            let mut first = TransmitBuf::new(1);
            endpoint.poll_transmit(self.now, &mut first).unwrap();
            self.inject_from(1, SocketAddr::from(([10, 0, 1, 1], 7000 + other)), first.bytes());
        }
    }

    pub fn send(&mut self, from: usize, peer: PeerId, channel: u16, bytes: impl Into<Bytes>) {
        let to = ChannelId { peer, channel };
        self.ends[from].send(to, bytes.into(), Completion::Acknowledged).unwrap();
    }

    pub fn drain(&mut self, end: usize) {
        let mut buf = TransmitBuf::new(64).lending();
        if is_staged() {
            buf = buf.deferring_sealing();
        }
        while let Some(transmit) = self.ends[end].poll_transmit(self.now, &mut buf) {
            buf.seal();
            assert_eq!(transmit.len, buf.len());
            self.lent += u64::from(buf.parts().is_some());
            for bytes in buf.contiguous().chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                self.order += 1;
                self.tapped.push((1 - end, bytes.to_vec()));
                let passes = self.connected && transmit.to == addr(1 - end) && bytes.len() <= self.widest;
                if !passes || (self.lose)(self.order) {
                    continue;
                }
                let Some(ecn) = (self.remark)(transmit.ecn) else { continue };
                let (at, order, bytes) = (self.now + self.delay, self.order, bytes.to_vec());
                self.under_way.push(Datagram { at, order, to: 1 - end, ecn, bytes });
            }
        }
        while let Some(event) = self.ends[end].poll_event() {
            self.events[end].push(event);
        }
        while self.reading[end] {
            let Some(message) = self.ends[end].recv(self.now) else { break };
            self.received[end].push(message);
        }
    }

    /// Hands `end` a datagram that seems to come from the other one; what it says to that is sent.
    pub fn inject(&mut self, end: usize, bytes: &[u8]) {
        self.inject_from(end, addr(1 - end), bytes);
    }

    pub fn inject_from(&mut self, end: usize, from: SocketAddr, bytes: &[u8]) {
        let meta = DatagramMeta { from, at: None, ecn: Ecn::NotEct };
        self.ends[end].handle_datagram(self.now, &meta, &mut bytes.to_vec());
        self.drain(end);
    }

    /// The datagrams to `end` whose first octet is `kind`.
    pub fn tapped(&self, end: usize, kind: Kind) -> Vec<Vec<u8>> {
        let wanted = |(to, bytes): &&(usize, Vec<u8>)| *to == end && bytes[0] == kind as u8;
        self.tapped.iter().filter(wanted).map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Runs for `time`, or until nothing more would happen.
    pub fn run(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..2_000_000 {
            self.drain(0);
            self.drain(1);
            // Reading may have renewed credit.
            self.drain(0);
            self.drain(1);
            let arrival = self.under_way.peek().map(|datagram| datagram.at);
            let timeout = self.ends.iter().filter_map(Endpoint::poll_timeout).min();
            let Some(next) = [arrival, timeout].into_iter().flatten().min().filter(|next| *next <= end)
            else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            let mut arrived = Vec::new();
            while self.under_way.peek().is_some_and(|datagram| datagram.at <= self.now) {
                let mut datagram = self.under_way.pop().unwrap();
                let meta = DatagramMeta { from: addr(1 - datagram.to), at: None, ecn: datagram.ecn };
                let job = self.ends[datagram.to].open_job(&meta, &datagram.bytes).filter(|_| is_staged());
                let opened = job.map(|job| job.run(&mut datagram.bytes));
                arrived.push((datagram, meta, opened));
            }
            // Opened all before any is handled, as on another core.
            for (mut datagram, meta, opened) in arrived {
                let end = &mut self.ends[datagram.to];
                match opened {
                    Some(opened) => end.handle_opened(self.now, &meta, &datagram.bytes, &opened),
                    None => end.handle_datagram(self.now, &meta, &mut datagram.bytes),
                }
            }
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
        panic!("the endpoints do not come to rest");
    }

    pub fn restart(&mut self, end: usize, config: Config) {
        self.seed += 1;
        self.ends[end] = Endpoint::new(secured(config), self.seed, self.now);
    }

    pub fn lost(&self, end: usize) -> Vec<(LostReason, usize)> {
        let lost = |event: &Event| match event {
            Event::PeerLost { reason, unacknowledged, .. } => Some((reason.clone(), unacknowledged.len())),
            _ => None,
        };
        self.events[end].iter().filter_map(lost).collect()
    }

    pub fn acknowledged(&self, end: usize) -> usize {
        self.events[end].iter().filter(|event| matches!(event, Event::Acknowledged(_))).count()
    }
}

pub const SECOND: Duration = Duration::from_secs(1);
