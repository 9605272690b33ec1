//! What keys cost: handshakes per second on one core, and the memory of idle peers, sealed beside
//! plain.
//!
//! Both ends of every session live in this process and on this thread, without sockets. The time of a
//! handshake is what the hub, which answers it, spends on it.
//!
//! Usage: `cargo run --release -p denrei --example crowd_sealed [PEERS]`

use denrei_proto::seal::{ClusterKey, Identity, Seed};
use denrei_proto::{Config, Endpoint};
use denrei_wire::{DatagramMeta, Instant, TransmitBuf};
use std::alloc::{GlobalAlloc, Layout, System};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Datagrams that an opening takes, at most: beyond, something is wrong.
const MAX_ROUNDS: usize = 64;

/// Counts what is allocated.
struct Counting;

static ALLOCATED: AtomicU64 = AtomicU64::new(0);

// SAFETY: hands everything on to the system's allocator, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A hub, and the time that passes for all.
struct World {
    hub: Endpoint,
    hub_addr: SocketAddr,
    config: Arc<Config>,
    now: Instant,
    out: TransmitBuf,
    /// Time that the hub has worked.
    busy: Duration,
}

impl World {
    fn new(config: Config) -> Self {
        let (config, now) = (Arc::new(config), Instant::from_nanos(1_000_000_000));
        let hub = Endpoint::new(Arc::clone(&config), Seed::from(1), now);
        Self {
            hub,
            hub_addr: SocketAddr::from(([10, 0, 0, 1], 7000)),
            config,
            now,
            out: TransmitBuf::new(1),
            busy: Duration::ZERO,
        }
    }

    /// A member that opens a session with the hub, to the last acknowledgement.
    fn open(&mut self, number: u32) -> Endpoint {
        let [_, b, c, d] = number.to_be_bytes();
        let addr = SocketAddr::from(([10, 1 + b, c, d], 7000));
        let mut member = Endpoint::new(Arc::clone(&self.config), Seed::from(2 + u64::from(number)), self.now);
        member.connect(self.now, self.hub_addr).expect("there is room");
        for _ in 0..MAX_ROUNDS {
            if self.exchange(&mut member, addr) == 0 {
                break;
            }
        }
        // Acknowledgements that were held back.
        self.now += Duration::from_millis(2);
        member.handle_timeout(self.now);
        self.exchange(&mut member, addr);
        while self.hub.poll_event().is_some() {}
        member
    }
}

impl World {
    /// Carries what both want to send; how many datagrams.
    fn exchange(&mut self, member: &mut Endpoint, addr: SocketAddr) -> usize {
        let mut there = take(member, self.now, &mut self.out);
        let meta = |from| DatagramMeta { from, at: None, ecn: denrei_wire::Ecn::NotEct };
        let began = std::time::Instant::now();
        for datagram in &mut there {
            self.hub.handle_datagram(self.now, &meta(addr), datagram);
        }
        self.hub.handle_timeout(self.now);
        let mut back = take(&mut self.hub, self.now, &mut self.out);
        self.busy += began.elapsed();
        for datagram in &mut back {
            member.handle_datagram(self.now, &meta(self.hub_addr), datagram);
        }
        there.len() + back.len()
    }
}

/// What an endpoint wants to send.
fn take(from: &mut Endpoint, now: Instant, out: &mut TransmitBuf) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    while from.poll_transmit(now, out).is_some() {
        datagrams.push(out.bytes().to_vec());
    }
    datagrams
}

/// Handshakes a second, and bytes that the hub keeps for each idle peer.
fn measure(config: Config, peers: u32) -> (f64, u64) {
    let mut world = World::new(config);
    let before = ALLOCATED.load(Ordering::Relaxed);
    for number in 0..peers {
        // The member goes at once: what remains is the hub's.
        drop(world.open(number));
    }
    let seconds = world.busy.as_secs_f64();
    assert_eq!(world.hub.peers().count(), peers as usize, "every session opened");
    let kept = ALLOCATED.load(Ordering::Relaxed) - before;
    (f64::from(peers) / seconds, kept / u64::from(peers))
}

/// How many peers, or the status to end with.
fn peers_of(arguments: &[String]) -> Result<u32, ExitCode> {
    const USAGE: &str = "usage: crowd_sealed [PEERS]\n\nPEERS: 1 to 65536, 1000 if not given";
    match arguments {
        [] => Ok(1000),
        [help] if help == "--help" || help == "-h" => {
            println!("{USAGE}");
            Err(ExitCode::SUCCESS)
        }
        wrong => match (wrong.len(), wrong[0].parse()) {
            (1, Ok(peers @ 1..=65_536)) => Ok(peers),
            _ => {
                eprintln!("crowd_sealed: {:?} is no whole number from 1 to 65536\n{USAGE}", wrong.join(" "));
                Err(ExitCode::from(2))
            }
        },
    }
}

fn main() -> ExitCode {
    let peers = match peers_of(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(peers) => peers,
        Err(status) => return status,
    };
    let plain = Config { keepalive: None, ..Config::default() };
    let key = Some(ClusterKey::from_bytes([7; 32]));
    let sealed = Config { cluster_key: key, ..plain.clone() };
    // One for all of them: what a handshake costs does not depend on whose it is.
    let identity = Identity::from_bytes([9; 32]);
    let allowed = vec![identity.public()];
    let known = Config { identity: Some(identity), allowed, ..sealed.clone() };
    for (name, config) in [("plain", plain), ("sealed", sealed), ("sealed, with identities", known)] {
        let (per_s, bytes) = measure(config, peers);
        println!(
            "{name}: {per_s:.0} handshakes answered a second on one core; {bytes} bytes for each of {peers} idle peers"
        );
    }
    ExitCode::SUCCESS
}
