//! Sends 64 bytes back and forth between two endpoints in memory: denrei's own work per message,
//! without system calls. `cargo xtask instructions` counts its instructions.
//!
//! Usage: `exchange COUNT [sealed]` prints the time per message, between endpoints that have a cluster
//! key if so asked.

// A measurement reads the clock; the core it measures does not.
#![allow(clippy::disallowed_types)]

use bytes::Bytes;
use denrei_proto::seal::ClusterKey;
use denrei_proto::{ChannelId, Completion, Config, Endpoint, PeerId};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::net::SocketAddr;
use std::sync::Arc;

struct End {
    endpoint: Endpoint,
    addr: SocketAddr,
}

impl End {
    fn new(host: u8, sealed: bool) -> Self {
        let cluster_key = sealed.then(|| ClusterKey::from_bytes([1; 32]));
        let config = Config { cluster_key, ..Config::default() };
        let endpoint = Endpoint::new(Arc::new(config), host as u64, Instant::ZERO);
        Self { endpoint, addr: SocketAddr::from(([10, 0, 0, host], 7000)) }
    }

    fn send(&mut self, peer: PeerId, message: &Bytes) {
        let to = ChannelId { peer, channel: 0 };
        self.endpoint.send(to, message.clone(), Completion::None).expect("nothing is queued");
    }
}

/// Everything `from` has to send arrives at `to`.
fn carry(now: Instant, from: &mut End, to: &mut End, buf: &mut TransmitBuf, datagram: &mut Vec<u8>) {
    while let Some(transmit) = from.endpoint.poll_transmit(now, buf) {
        for bytes in buf.bytes().chunks(transmit.segment_size.unwrap_or(transmit.len)) {
            datagram.clear();
            datagram.extend_from_slice(bytes);
            let meta = DatagramMeta { from: from.addr, at: None, ecn: Ecn::Ect0 };
            to.endpoint.handle_datagram(now, &meta, datagram);
        }
    }
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let sealed = std::env::args().nth(2).is_some_and(|mode| mode == "sealed");
    let (mut a, mut b) = (End::new(1, sealed), End::new(2, sealed));
    let (mut buf, mut datagram) = (TransmitBuf::new(64), Vec::with_capacity(2000));
    let message = Bytes::from(vec![7; 64]);
    let mut now = Instant::ZERO;
    let forth = a.endpoint.connect(now, b.addr).expect("a good address");
    a.send(forth, &message);
    let began = std::time::Instant::now();
    for _ in 0..count {
        now += std::time::Duration::from_micros(2);
        // The first exchange opens the session and probes the path.
        let mut back = None;
        for _ in 0..4 {
            carry(now, &mut a, &mut b, &mut buf, &mut datagram);
            back = back.or_else(|| b.endpoint.recv(now));
            if back.is_some() {
                break;
            }
            carry(now, &mut b, &mut a, &mut buf, &mut datagram);
        }
        let back = back.expect("it arrives");
        if b.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            b.endpoint.handle_timeout(now);
        }
        b.send(back.channel.peer, &back.data);
        carry(now, &mut b, &mut a, &mut buf, &mut datagram);
        if a.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            a.endpoint.handle_timeout(now);
        }
        let echo = a.endpoint.recv(now).expect("it comes back");
        assert_eq!(echo.data, message);
        a.send(forth, &message);
    }
    let nanos = began.elapsed().as_nanos() as f64 / (2 * count) as f64;
    println!("{nanos:.1} ns for a 64-byte message sent and received");
}
