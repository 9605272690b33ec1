//! Two endpoints, a virtual clock, and the datagrams between them.
//!
//! Inputs → outputs: calls that drive an endpoint or a datagram → events for the target to judge.
//! Whatever an endpoint emits is checked here to be well-formed. Every loop is bounded: an endpoint
//! that does not come to rest is a finding.

use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use denrei_proto::{Config, Endpoint, Event};
use denrei_wire::checksum::{self, CHECKSUM_BYTES};
use denrei_wire::frame::Frames;
use denrei_wire::packet::{Kind, Packet};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::collections::VecDeque;
use std::sync::Arc;

/// Transmits in answer to one stimulus, at most: far more than windows and credit of [`config`] allow.
const MAX_TRANSMITS: usize = 4096;
/// Timeouts handled at one instant, at most, before time has to move on.
const MAX_TIMEOUTS: usize = 256;
/// Datagrams under way; beyond, the oldest is lost, as in a switch.
const MAX_UNDER_WAY: usize = 1024;

/// Channels that messages are sent on.
pub(crate) const CHANNELS: u16 = 4;

/// One end.
pub(crate) struct Node {
    pub endpoint: Endpoint,
    pub addr: SocketAddr,
    pub events: VecDeque<Event>,
}

/// A datagram under way.
#[derive(Clone)]
pub(crate) struct Datagram {
    pub from: SocketAddr,
    /// Index of the node it goes to.
    pub to: usize,
    pub bytes: Vec<u8>,
    pub ecn: Ecn,
}

/// Two nodes and what is between them.
pub(crate) struct World {
    pub now: Instant,
    pub nodes: [Node; 2],
    pub under_way: VecDeque<Datagram>,
    config: Arc<Config>,
    lives: u64,
    buf: TransmitBuf,
}

/// Small limits, so that short inputs reach them.
pub(crate) fn config() -> Config {
    Config {
        channel_credit_bytes: 64 * 1024,
        receive_memory_bytes: 256 * 1024,
        max_message_bytes: 128 * 1024,
        offer_above_bytes: 20_000,
        send_buffer_bytes: 256 * 1024,
        max_channels: 16,
        max_peers: 8,
        failure_timeout: Duration::from_secs(2),
        keepalive: Some(Duration::from_millis(500)),
        connect_timeout: Duration::from_secs(2),
        max_datagram_bytes: 4096,
        ..Config::default()
    }
}

impl World {
    pub fn new(config: Config) -> Self {
        let config = Arc::new(config);
        let now = Instant::from_nanos(1_000_000_000);
        let node = |index: u8| Node {
            endpoint: Endpoint::new(config.clone(), 1 + index as u64, now),
            addr: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + index)), 7000),
            events: VecDeque::new(),
        };
        let (nodes, buf) = ([node(0), node(1)], TransmitBuf::new(8));
        Self { now, nodes, under_way: VecDeque::new(), config, lives: 2, buf }
    }

    /// Kills a node and starts it again: another incarnation at the same address.
    pub fn restart(&mut self, index: usize) {
        self.lives += 1;
        self.nodes[index].endpoint = Endpoint::new(self.config.clone(), self.lives, self.now);
        self.nodes[index].events.clear();
    }

    /// Lets a node send and report all it wants.
    pub fn drive(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let mut transmits = 0;
        while let Some(transmit) = node.endpoint.poll_transmit(self.now, &mut self.buf) {
            transmits += 1;
            assert!(transmits <= MAX_TRANSMITS, "an endpoint sends without end");
            assert_eq!(transmit.len, self.buf.len());
            assert!(transmit.len > 0, "an empty transmit");
            for bytes in self.buf.bytes().chunks(transmit.segment_size.unwrap_or(transmit.len)) {
                check_emitted(bytes, self.config.cluster_key.is_some());
                if self.under_way.len() == MAX_UNDER_WAY {
                    self.under_way.pop_front();
                }
                // A node that answers a stranger's address talks to nobody here.
                if transmit.to.ip() == SocketAddr::from(([10, 0, 0, 2 - index as u8], 0)).ip() {
                    self.under_way.push_back(Datagram {
                        from: node.addr,
                        to: 1 - index,
                        bytes: bytes.to_vec(),
                        ecn: transmit.ecn,
                    });
                }
            }
        }
        while let Some(event) = node.endpoint.poll_event() {
            node.events.push_back(event);
            assert!(node.events.len() <= MAX_TRANSMITS, "an endpoint reports without end");
        }
    }

    /// Hands a datagram to the node it goes to.
    pub fn deliver(&mut self, mut datagram: Datagram) {
        let meta = DatagramMeta { from: datagram.from, at: None, ecn: datagram.ecn };
        self.nodes[datagram.to].endpoint.handle_datagram(self.now, &meta, &mut datagram.bytes);
        self.drive(datagram.to);
    }

    /// Delivers the oldest datagram under way; whether there was one.
    pub fn deliver_next(&mut self) -> bool {
        let next = self.under_way.pop_front();
        let delivered = next.is_some();
        if let Some(datagram) = next {
            self.deliver(datagram);
        }
        delivered
    }

    /// Lets time pass, firing timers on the way.
    pub fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        let mut fired = 0;
        while let Some(at) = self.next_timeout().filter(|at| *at <= end) {
            // At one instant timers may fire only so often before they have to move on.
            fired = if at > self.now { 0 } else { fired + 1 };
            assert!(fired <= MAX_TIMEOUTS, "a timer fires without end");
            self.now = self.now.max(at);
            self.fire();
        }
        self.now = end;
        self.fire();
    }

    /// The next time at which an endpoint wants to be called.
    pub fn next_timeout(&self) -> Option<Instant> {
        let timeouts = self.nodes.iter().filter_map(|node| node.endpoint.poll_timeout());
        timeouts.min().filter(|at| *at < Instant::FAR_FUTURE)
    }

    fn fire(&mut self) {
        for index in 0..2 {
            self.nodes[index].endpoint.handle_timeout(self.now);
            self.drive(index);
        }
    }
}

/// What an endpoint sends has to be what the specification allows. What is sealed cannot be looked
/// into.
fn check_emitted(bytes: &[u8], sealed: bool) {
    assert!(bytes.len() <= 4096, "{} octets are more than max_datagram_bytes", bytes.len());
    if sealed && !matches!(bytes.first(), Some(0xd4 | 0xd5)) {
        assert!(Packet::decode(bytes).is_ok(), "sent: {bytes:02x?}");
        return;
    }
    assert!(checksum::verify(bytes), "{}", denrei_wire::dump(bytes));
    let packet = Packet::decode(bytes).unwrap_or_else(|error| panic!("{error} sent: {bytes:02x?}"));
    if !matches!(packet.header.kind, Kind::Reset | Kind::Versions) {
        let content = &packet.body[..packet.body.len() - CHECKSUM_BYTES];
        assert!(Frames::new(content).all(|frame| frame.is_ok()), "{}", denrei_wire::dump(bytes));
    }
}

/// `len` octets that depend on `seed` and their place, so that a wrong one is noticed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// A message of `len` octets; from 10 on the first tell where it belongs.
pub(crate) fn message(tag: u32, channel: u16, number: u64, len: usize) -> Bytes {
    let mut bytes = pattern(number, len);
    if len >= HEADER {
        bytes[..4].copy_from_slice(&tag.to_le_bytes());
        bytes[4..6].copy_from_slice(&channel.to_le_bytes());
        bytes[6..HEADER].copy_from_slice(&(number as u32).to_le_bytes());
    }
    Bytes::from(bytes)
}

/// Octets of [`message`]'s header.
pub(crate) const HEADER: usize = 10;

/// Checks a received message against what [`message`] makes; its tag, if it is long enough.
pub(crate) fn check_message(channel: u16, number: u64, data: &[u8]) -> Option<u32> {
    let tag = data.first_chunk::<4>().filter(|_| data.len() >= HEADER).map(|tag| u32::from_le_bytes(*tag));
    let expected = message(tag.unwrap_or(0), channel, number, data.len());
    assert!(expected == data, "message {number} of channel {channel} is not what was sent");
    tag
}
