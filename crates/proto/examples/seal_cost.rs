//! What sealing costs on this machine: packets, handshakes, idle peers, forged FIRSTs, signed batches.
//!
//! Usage: `cargo run --release -p denrei-proto --example seal_cost`. Each figure is the best of a few
//! rounds on one core; a handshake is both sides of it, on the same core, without the start of its Nodes.

// A measurement reads the clock; the core it measures does not.
#![allow(clippy::disallowed_types)]

use denrei_proto::seal::{ClusterKey, GroupKey, Identity, Seed, Signer, Verifier, proof_bytes};
use denrei_proto::{Config, Endpoint};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

const ROUNDS: usize = 5;
/// Of one round.
const HANDSHAKES: u32 = 1000;

/// Nanoseconds of one call: the best round.
fn time(calls: u32, mut call: impl FnMut()) -> f64 {
    let round = || {
        let began = std::time::Instant::now();
        (0..calls).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / calls as f64
    };
    core::iter::repeat_with(round).take(ROUNDS).fold(f64::MAX, f64::min)
}

fn packets() {
    let key = GroupKey::new(&Seed::from(1));
    let header = [0; 16];
    for bytes in [64, 1400, 60 << 10] {
        let mut sealer = key.sealer(1);
        let mut frames = vec![7; bytes];
        let mut number = 0;
        let seal = time(20_000, || {
            number += 1;
            black_box(sealer.seal(number, &header, &mut frames));
        });
        let mut sealed: Vec<_> = (0..5 * ROUNDS as u64 * 100)
            .map(|number| {
                let mut packet = vec![7; bytes];
                let tag = sealer.seal(number, &header, &mut packet);
                packet.extend(tag);
                (number, packet)
            })
            .collect();
        let mut opener = key.opener(1, 0);
        let mut next = sealed.iter_mut();
        let open = time(500, || {
            let (number, packet) = next.next().expect("as many as are opened");
            assert!(opener.open(Instant::ZERO, false, *number as u32, &header, packet).is_ok());
        });
        println!("a packet of {bytes} bytes: {seal:.0} ns to seal, {open:.0} ns to open");
    }
}

fn config(identity: Option<u8>) -> Config {
    let cluster_key = Some(ClusterKey::from_bytes([1; 32]));
    let both = [1, 2].map(|octet| Identity::from_bytes([octet; 32]));
    let allowed = if identity.is_some() { both.iter().map(Identity::public).collect() } else { Vec::new() };
    let identity = identity.map(|which| both[which as usize].clone());
    Config { cluster_key, identity, allowed, max_handshakes_per_s: 1_000_000_000, ..Config::default() }
}

fn addr(host: u32) -> SocketAddr {
    SocketAddr::from(([10, (host >> 16) as u8, (host >> 8) as u8, host as u8], 7000))
}

/// Carries what `from`, at `at`, has to send to `to`.
fn carry(from: &mut Endpoint, at: SocketAddr, to: &mut Endpoint, buf: &mut TransmitBuf) {
    while from.poll_transmit(Instant::ZERO, buf).is_some() {
        let meta = DatagramMeta { from: at, at: None, ecn: Ecn::NotEct };
        let len = buf.len();
        to.handle_datagram(Instant::ZERO, &meta, &mut buf.tail_mut(0)[..len]);
    }
}

fn handshakes(with_identities: bool) {
    let [initiator, responder] = [0, 1].map(|which| Arc::new(config(with_identities.then_some(which))));
    let mut server = Endpoint::new(responder, 1, Instant::ZERO);
    let mut buf = TransmitBuf::new(1);
    // A Node takes its keys apart when it starts, and not in each handshake.
    let mut waiting: Vec<_> =
        (2..2 + HANDSHAKES * ROUNDS as u32).map(|host| (host, client(&initiator, host))).collect();
    let handshake = time(HANDSHAKES, || {
        let (host, client) = waiting.pop().expect("there is one for each call");
        open_session(client, &mut server, host, &mut buf);
    });
    let kind = if with_identities { "with identities" } else { "with the cluster key" };
    println!("a handshake {kind}, both sides: {:.1} µs, {:.0} a second", handshake / 1e3, 1e9 / handshake);
}

/// An endpoint at host `host`.
fn client(config: &Arc<Config>, host: u32) -> Endpoint {
    Endpoint::new(config.clone(), host as u64, Instant::ZERO)
}

/// Opens a session from an endpoint at host `host`, which is dropped.
fn open_session(mut client: Endpoint, server: &mut Endpoint, host: u32, buf: &mut TransmitBuf) {
    client.connect(Instant::ZERO, addr(1)).expect("an address");
    carry(&mut client, addr(host), server, buf);
    carry(server, addr(1), &mut client, buf);
    carry(&mut client, addr(host), server, buf);
    assert!(server.peer_at(addr(host)).is_some(), "{:?}", server.counters());
}

/// Resident memory of this process, bytes; 0 where the system does not say.
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

fn idle_peers() {
    const PEERS: u32 = 5000;
    for sealed in [false, true] {
        let initiator = Arc::new(if sealed { config(None) } else { Config::default() });
        let mut server = Endpoint::new(initiator.clone(), 1, Instant::ZERO);
        let mut buf = TransmitBuf::new(1);
        // What is allocated once is allocated before.
        (2..500).for_each(|host| open_session(client(&initiator, host), &mut server, host, &mut buf));
        let before = resident_bytes();
        (500..500 + PEERS)
            .for_each(|host| open_session(client(&initiator, host), &mut server, host, &mut buf));
        let each = (resident_bytes() - before) / PEERS as usize;
        println!("an idle {} peer: {each} bytes", if sealed { "sealed" } else { "plain" });
    }
}

fn forgeries() {
    let mut server = Endpoint::new(Arc::new(config(None)), 1, Instant::ZERO);
    let other = Config { cluster_key: Some(ClusterKey::from_bytes([2; 32])), ..config(None) };
    let mut stranger = Endpoint::new(Arc::new(other), 2, Instant::ZERO);
    stranger.connect(Instant::ZERO, addr(1)).expect("an address");
    let mut buf = TransmitBuf::new(1);
    stranger.poll_transmit(Instant::ZERO, &mut buf).expect("a FIRST");
    let mut first = buf.bytes().to_vec();
    let original = first.clone();
    let meta = DatagramMeta { from: addr(2), at: None, ecn: Ecn::NotEct };
    let forged = time(20_000, || {
        first.copy_from_slice(&original);
        server.handle_datagram(Instant::ZERO, &meta, &mut first);
    });
    println!("a forged FIRST of {} bytes: {forged:.0} ns to drop", first.len());
}

fn signatures() {
    let signer = Signer::new(&[1; 32]);
    for count in [1, 16, 64, 256] {
        let packets: Vec<Vec<u8>> = (0..count).map(|number| vec![number as u8; 1400]).collect();
        let borrowed: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
        let sign = time(50, || {
            let batch = signer.sign(b"group", &borrowed);
            (0..count).for_each(|index| batch.proof(index, |bytes| _ = black_box(bytes)));
        });
        let batch = signer.sign(b"group", &borrowed);
        let proofs: Vec<Vec<u8>> = (0..count)
            .map(|index| {
                let mut proof = Vec::new();
                batch.proof(index, |bytes| proof.extend_from_slice(bytes));
                proof
            })
            .collect();
        let verify = time(50, || {
            let mut verifier = Verifier::new(signer.public(), b"group");
            assert!(packets.iter().zip(&proofs).all(|(packet, proof)| verifier.verify(packet, proof)));
        });
        let each = |nanos: f64| nanos / count as f64;
        println!(
            "source authentication, {count} packets of 1400 bytes a batch: {:.0} ns to sign, {:.0} ns to verify, {} bytes a packet",
            each(sign),
            each(verify),
            proof_bytes(count)
        );
    }
}

fn main() {
    idle_peers();
    packets();
    handshakes(false);
    handshakes(true);
    forgeries();
    signatures();
}
