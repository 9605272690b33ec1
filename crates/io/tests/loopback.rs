//! Datagrams over loopback: both families, both backends, trains, ECN, sizes.

mod common;

use common::*;
use denrei_io::{BackendChoice, DropKind, Receiver, RecvBuffers, SendOutcome, SocketConfig, UdpSocket};
use denrei_wire::{DatagramMeta, Ecn, Landing, Shape};
use std::net::SocketAddr;
use std::time::Duration;

/// One datagram there and one back; sources are reported as they are written by people.
fn exchange(mut a: UdpSocket, mut b: UdpSocket, a_seen_as: SocketAddr, b_is_at: SocketAddr) {
    for payload in [pattern(64, 1), Vec::new(), pattern(1200, 2), pattern(65_000, 3)] {
        let (there, buf) = transmit(b_is_at, &payload, None);
        assert_eq!(a.send(&there, &buf), SendOutcome::Sent, "{} bytes", payload.len());
        let got = receive(&mut b, 1);
        assert_eq!(got[0].1, payload);
        assert_eq!(got[0].0.from, a_seen_as);
        let (back, buf) = transmit(got[0].0.from, &payload, None);
        assert_eq!(b.send(&back, &buf), SendOutcome::Sent);
        let got = receive(&mut a, 1);
        assert_eq!((got[0].0.from, &got[0].1), (b_is_at, &payload));
    }
}

#[test]
fn ipv4_both_backends() {
    let backends = [BackendChoice::Auto, BackendChoice::Plain];
    for (left, right) in backends.iter().flat_map(|&l| backends.map(|r| (l, r))) {
        let a = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config(left)).unwrap();
        let b = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config(right)).unwrap();
        let (a_addr, b_addr) = (a.local_addr(), b.local_addr());
        exchange(a, b, a_addr, b_addr);
    }
}

#[test]
fn ipv6_both_backends() {
    if !has_ipv6() {
        return;
    }
    for backend in [BackendChoice::Auto, BackendChoice::Plain] {
        let a = UdpSocket::bind("[::1]:0".parse().unwrap(), &config(backend)).unwrap();
        let b = UdpSocket::bind("[::1]:0".parse().unwrap(), &config(backend)).unwrap();
        let (a_addr, b_addr) = (a.local_addr(), b.local_addr());
        exchange(a, b, a_addr, b_addr);
    }
}

#[test]
fn a_dual_stack_socket_speaks_ipv4_with_ipv4_addresses() {
    if !has_ipv6() {
        return;
    }
    for backend in [BackendChoice::Auto, BackendChoice::Plain] {
        let dual = UdpSocket::bind("[::]:0".parse().unwrap(), &config(backend)).unwrap();
        let v4 = bind("127.0.0.1:0");
        let seen_as = SocketAddr::from(([127, 0, 0, 1], dual.local_addr().port()));
        let v4_addr = v4.local_addr();
        exchange(dual, v4, seen_as, v4_addr);
    }
}

/// Sends one train and returns what the receiver got; asserts order and content.
fn train(a: &mut UdpSocket, b: &mut UdpSocket, len: usize, segment: usize) {
    let bytes = pattern(len, 9);
    let (there, buf) = transmit(b.local_addr(), &bytes, Some(segment));
    assert_eq!(there.segments(), len.div_ceil(segment));
    assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
    let got = payloads(b, there.segments());
    let expected: Vec<Vec<u8>> = bytes.chunks(segment).map(<[u8]>::to_vec).collect();
    assert_eq!(got, expected, "{len} bytes in segments of {segment}");
    assert_silent(b);
}

#[test]
fn trains_arrive_datagram_by_datagram_whatever_the_backends() {
    for (from, to) in [
        (BackendChoice::Auto, BackendChoice::Auto),
        (BackendChoice::Auto, BackendChoice::Plain),
        (BackendChoice::Plain, BackendChoice::Auto),
        (BackendChoice::Plain, BackendChoice::Plain),
    ] {
        let mut a = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config(from)).unwrap();
        let mut b = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config(to)).unwrap();
        for (len, segment) in [(3000, 1000), (2999, 1000), (1001, 1000), (64 * 900, 900), (500, 500)] {
            train(&mut a, &mut b, len, segment);
        }
    }
}

#[test]
fn a_datagram_in_parts_arrives_whole_whatever_the_backends() {
    let payload = pattern(60_000, 1);
    for (mut a, mut b) in [
        (bind("127.0.0.1:0"), bind("127.0.0.1:0")),
        (bind_plain("127.0.0.1:0"), bind("127.0.0.1:0")),
        (bind("127.0.0.1:0"), bind_plain("127.0.0.1:0")),
    ] {
        let to = b.local_addr();
        for (ecn, connect) in [(Ecn::Ect0, false), (Ecn::NotEct, false), (Ecn::Ect0, true)] {
            if connect {
                a.connect_peer(to).unwrap();
            }
            let (transmit, buf) = lent(to, [b"before", &payload, b"after"], ecn);
            assert_eq!(a.send(&transmit, &buf), SendOutcome::Sent);
            assert_eq!(payloads(&mut b, 1), [[b"before", payload.as_slice(), b"after"].concat()]);
        }
        assert_eq!(a.counters().sent_datagrams, 3);
        assert_eq!(a.counters().sent_bytes, 3 * (payload.len() as u64 + 11));
    }
}

/// Lends memory for what follows large datagrams of one source.
struct Lends {
    source: SocketAddr,
    memory: Vec<u8>,
    seen: Vec<Vec<u8>>,
    /// Datagrams that were handled since memory was lent, while it is.
    since_lent: Option<usize>,
}

impl Receiver for Lends {
    type Lent = Vec<u8>;

    fn handle(&mut self, _: &DatagramMeta, datagram: &mut [u8]) {
        self.seen.push(datagram.to_vec());
        if let Some(handled) = &mut self.since_lent {
            *handled += 1;
            assert!(*handled <= 1, "no more than a train of one datagram");
        }
    }

    fn lend(&mut self, source: &SocketAddr) -> Option<Vec<u8>> {
        let lends = *source == self.source;
        self.since_lent = lends.then_some(0);
        lends.then(|| std::mem::take(&mut self.memory))
    }

    fn landing(lent: &mut Vec<u8>) -> Option<Landing<'_>> {
        Landing::new(lent, 40, LENT)
    }

    fn take_back(&mut self, lent: Vec<u8>) {
        self.memory = lent;
        self.since_lent = None;
    }
}

fn lends(source: SocketAddr, bytes: usize) -> Lends {
    Lends { source, memory: vec![0; bytes], seen: Vec::new(), since_lent: None }
}

const LENT: Shape = Shape { before: 40, payload: 20_000, after: 4 };

#[test]
fn what_follows_large_datagrams_lands_where_it_is_expected_and_everything_else_is_handed_on() {
    let mut ends = [bind("127.0.0.1:0"), bind("127.0.0.1:0")];
    let mut b = bind("127.0.0.1:0");
    let (source, to) = (ends[0].local_addr(), b.local_addr());
    let mut lends = lends(source, 100_000);
    let mut buffers = RecvBuffers::default();
    // Sends, and receives that; whether it landed.
    let mut exchange = |end: usize, bytes: &[u8], lends: &mut Lends| {
        let (transmit, buf) = transmit(to, bytes, None);
        assert_eq!(ends[end].send(&transmit, &buf), SendOutcome::Sent);
        let landed = b.counters().recv_landed;
        for _ in 0..10_000 {
            if b.recv_for(&mut buffers, lends).unwrap() > 0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(std::mem::take(&mut lends.seen), [bytes], "{}", bytes.len());
        b.counters().recv_landed > landed
    };
    let expected = pattern(LENT.datagram(), 1);
    assert!(!exchange(0, &expected, &mut lends), "nothing was heard of it yet");
    assert!(exchange(0, &expected, &mut lends));
    assert_eq!(lends.memory[40..20_040], expected[40..20_040], "where it is expected");
    for len in [20_043, 20_045, 60_000, 0] {
        assert!(exchange(0, &pattern(len, len as u8), &mut lends), "{len}");
    }
    for len in [1, 39, 41, 1_000, 16_000, 20_000] {
        assert!(!exchange(0, &pattern(len, len as u8), &mut lends), "{len}: after a small one");
    }
    assert!(exchange(1, &expected, &mut lends), "it was another's turn");
    assert!(!exchange(0, &expected, &mut lends), "nobody lends memory for that one");
    assert_eq!(b.counters().recv_truncated, 0);
}

/// What is lent is wanted back after one train: nothing else may be received meanwhile.
#[test]
fn memory_that_nothing_fits_into_is_taken_back_before_anything_is_received() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let to = b.local_addr();
    let mut lends = lends(a.local_addr(), LENT.payload);
    let (mut buffers, mut seen, mut calls) = (RecvBuffers::default(), 0, 0);
    for round in 0..100 {
        for _ in 0..4 {
            let (transmit, buf) = transmit(to, &pattern(LENT.datagram(), round), None);
            assert_eq!(a.send(&transmit, &buf), SendOutcome::Sent);
        }
        for _ in 0..10_000 {
            calls += 1;
            b.recv_for(&mut buffers, &mut lends).unwrap();
            seen += std::mem::take(&mut lends.seen).len();
            if seen == 4 * (usize::from(round) + 1) {
                break;
            }
        }
    }
    assert_eq!((seen, b.counters().recv_landed), (400, 0));
    assert!(calls < 400, "several came at once");
}

#[test]
fn a_train_is_one_call_on_both_sides() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    if !a.capabilities().gso || !b.capabilities().gro {
        return eprintln!("SKIPPED: no GSO or GRO on this host");
    }
    train(&mut a, &mut b, 40 * 1200, 1200);
    assert_eq!((a.counters().send_calls, a.counters().sent_trains), (1, 1));
    assert_eq!((a.counters().sent_datagrams, a.counters().sent_bytes), (40, 48_000));
    assert_eq!((b.counters().recv_datagrams, b.counters().recv_bytes), (40, 48_000));
    assert_eq!(b.counters().recv_trains, 1);
}

#[test]
fn trains_beyond_64_kib_are_split_into_calls() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    // 64 segments of an ordinary and of a jumbo MTU, and one that two of do not fit together.
    for segment in [1472, 8972, 40_000] {
        train(&mut a, &mut b, 64 * segment - 100, segment);
    }
    assert_eq!(a.counters().send_dropped, 0);
}

#[test]
fn ecn_is_carried_in_both_families() {
    let mut addrs = vec![("127.0.0.1:0", "127.0.0.1:0")];
    if has_ipv6() {
        addrs.extend([("[::1]:0", "[::1]:0"), ("[::]:0", "127.0.0.1:0"), ("127.0.0.1:0", "[::]:0")]);
    }
    for (from, to) in addrs {
        let (mut a, mut b) = (bind(from), bind(to));
        if !b.capabilities().ecn {
            return eprintln!("SKIPPED: no ECN on this host");
        }
        let ip = if to == "[::]:0" { "127.0.0.1".parse().unwrap() } else { b.local_addr().ip() };
        let target = SocketAddr::new(ip, b.local_addr().port());
        for ecn in [Ecn::Ect0, Ecn::Ce, Ecn::Ect1, Ecn::NotEct, Ecn::Ect0] {
            let (mut there, buf) = transmit(target, &pattern(2000, 0), Some(1000));
            there.ecn = ecn;
            assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
            let seen: Vec<Ecn> = receive(&mut b, 2).iter().map(|(meta, _)| meta.ecn).collect();
            assert_eq!(seen, [ecn, ecn], "{from} -> {to}");
        }
    }
}

#[test]
fn without_ecn_nothing_is_marked() {
    let off = SocketConfig { ecn: false, ..SocketConfig::default() };
    let mut a = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &off).unwrap();
    let mut b = bind("127.0.0.1:0");
    let (there, buf) = transmit(b.local_addr(), b"plain", None);
    assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
    assert_eq!(receive(&mut b, 1)[0].0.ecn, Ecn::NotEct);
    assert!(!a.capabilities().ecn);
}

#[test]
fn oversized_datagrams_are_dropped_and_counted() {
    for mut a in [bind("127.0.0.1:0"), bind_plain("127.0.0.1:0")] {
        let mut b = bind("127.0.0.1:0");
        let (there, buf) = transmit(b.local_addr(), &pattern(65_508, 0), None);
        assert_eq!(a.send(&there, &buf), SendOutcome::Dropped { kind: DropKind::TooLarge });
        assert_eq!(a.counters().send_dropped, 1);
        let (there, buf) = transmit(b.local_addr(), b"goes on", None);
        assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
        assert_eq!(payloads(&mut b, 1), [b"goes on"]);
    }
}

#[test]
fn datagrams_larger_than_the_buffer_are_counted_and_not_delivered() {
    for mut b in [bind("127.0.0.1:0"), bind_plain("127.0.0.1:0")] {
        let mut a = bind_plain("127.0.0.1:0");
        for payload in [pattern(2000, 1), pattern(100, 2)] {
            let (there, buf) = transmit(b.local_addr(), &payload, None);
            assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
        }
        let got = receive_into(&mut b, 1, &mut RecvBuffers::new(4, 1280));
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].1, pattern(100, 2));
        assert_eq!(b.counters().recv_truncated, 1);
    }
}

#[test]
fn what_had_no_room_is_counted() {
    let least = SocketConfig { recv_buffer_bytes: 1, ..SocketConfig::default() };
    let mut a = bind("127.0.0.1:0");
    let mut b = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &least).unwrap();
    assert_eq!(b.overflows(), 0);
    let sent = 200;
    for number in 0..sent {
        let (datagram, buf) = transmit(b.local_addr(), &pattern(1_000, number), None);
        assert_eq!(a.send(&datagram, &buf), SendOutcome::Sent);
    }
    let mut arrived = 0;
    while b.is_readable() {
        arrived += receive(&mut b, 1).len() as u64;
    }
    assert!(arrived < u64::from(sent), "the least room of the system holds all: {arrived}");
    let expected = if cfg!(target_os = "linux") { u64::from(sent) - arrived } else { 0 };
    assert_eq!(b.overflows(), expected);
}

#[test]
fn socket_buffers_of_the_minimum_size_still_carry_datagrams() {
    let least = SocketConfig { recv_buffer_bytes: 1, send_buffer_bytes: 1, ..SocketConfig::default() };
    let mut a = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &least).unwrap();
    let mut b = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &least).unwrap();
    assert!(b.capabilities().recv_buffer_bytes < 100_000);
    assert!(b.warnings().is_empty(), "the wish was granted: {:?}", b.warnings());
    for salt in 0..20 {
        let (there, buf) = transmit(b.local_addr(), &pattern(200, salt), None);
        assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
        assert_eq!(payloads(&mut b, 1), [pattern(200, salt)]);
    }
    assert!(a.counters().send_calls < 40);
}

#[test]
fn too_small_buffers_are_told_once_with_the_sysctl() {
    let most =
        SocketConfig { recv_buffer_bytes: 1 << 30, send_buffer_bytes: 1 << 30, ..SocketConfig::default() };
    let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &most).unwrap();
    let given = socket.capabilities();
    // The superuser gets what it wishes, others what the sysctl permits.
    let short =
        usize::from(given.recv_buffer_bytes < 1 << 30) + usize::from(given.send_buffer_bytes < 1 << 30);
    assert_eq!(socket.warnings().len(), short, "{:?}", socket.warnings());
    if given.recv_buffer_bytes < 1 << 30 && cfg!(target_os = "linux") {
        // One byte below 1 GiB is as much as the kernel can count.
        let is_most = given.recv_buffer_bytes == (1 << 30) - 1;
        let advice = if is_most { "no kernel gives more" } else { "net.core.rmem_max" };
        assert!(socket.warnings()[0].contains(advice), "{:?}", socket.warnings());
        assert!(socket.warnings()[0].contains(&given.recv_buffer_bytes.to_string()));
    }
}

#[test]
fn unusable_targets_are_drops_not_errors() {
    let mut a = bind("127.0.0.1:0");
    let (v6, buf) = transmit("[2001:db8::1]:9".parse().unwrap(), b"x", None);
    assert_eq!(a.send(&v6, &buf), SendOutcome::Dropped { kind: DropKind::Unreachable });
    let (port_zero, buf) = transmit("127.0.0.1:0".parse().unwrap(), b"x", None);
    assert_eq!(a.send(&port_zero, &buf), SendOutcome::Dropped { kind: DropKind::Other });
    let (train, buf) = transmit("127.0.0.1:0".parse().unwrap(), &[0; 100], Some(50));
    assert_eq!(a.send(&train, &buf), SendOutcome::Dropped { kind: DropKind::Other });
    assert!(a.gso_to("127.0.0.1:1".parse().unwrap()) == a.capabilities().gso, "offload is not to blame");
    assert_eq!(a.counters().send_dropped, 4);
}

#[test]
fn ping_pong_is_one_call_each() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let mut buffers = RecvBuffers::default();
    for _ in 0..100 {
        let (there, buf) = transmit(b.local_addr(), &[1; 64], None);
        assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
        // Loopback delivers before send returns.
        assert_eq!(b.recv(&mut buffers, |_, _| ()).unwrap(), 1);
        let (back, buf) = transmit(a.local_addr(), &[2; 64], None);
        assert_eq!(b.send(&back, &buf), SendOutcome::Sent);
        assert_eq!(a.recv(&mut buffers, |_, _| ()).unwrap(), 1);
    }
    assert_eq!((a.counters().send_calls, a.counters().recv_calls), (100, 100));
    assert_eq!((b.counters().send_calls, b.counters().recv_calls), (100, 100));
    assert_eq!(a.counters().recv_would_block, 0);
}

#[test]
fn trains_arrive_over_ipv6_and_to_mapped_addresses() {
    if !has_ipv6() {
        return;
    }
    let (mut a, mut b) = (bind("[::1]:0"), bind("[::1]:0"));
    train(&mut a, &mut b, 64 * 1452, 1452);
    let (mut dual, mut v4) = (bind("[::]:0"), bind("127.0.0.1:0"));
    train(&mut dual, &mut v4, 64 * 1452, 1452);
    assert_eq!(dual.counters().gso_fallbacks + a.counters().gso_fallbacks, 0);
}

#[test]
fn datagrams_can_be_held_and_sent_from_a_second_handle() {
    let (a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let mut sender = a.sender().unwrap();
    assert_eq!(sender.local_addr(), a.local_addr());
    let bytes = pattern(4_000, 3);
    let (transmit, buf) = transmit(b.local_addr(), &bytes, Some(1_000));
    assert_eq!(sender.send(&transmit, &buf), SendOutcome::Sent);
    let mut buffers = RecvBuffers::default();
    let began = std::time::Instant::now();
    let mut held = Vec::new();
    while held.len() < 4_000 {
        assert!(began.elapsed() < std::time::Duration::from_secs(5));
        let count = b.recv_held(&mut buffers).unwrap();
        let (mut once, mut twice) = (Vec::new(), Vec::new());
        buffers.deliver(|meta, datagram| {
            assert_eq!(meta.from, a.local_addr(), "both handles are one port");
            once.push(datagram.to_vec());
        });
        buffers.deliver(|_, datagram| twice.push(datagram.to_vec()));
        assert_eq!((once.len(), &once), (count, &twice));
        held.extend(once.concat());
    }
    assert_eq!(held, bytes);
    let both = *a.counters() + *sender.counters();
    assert_eq!((both.sent_datagrams, both.sent_bytes), (4, 4_000));
    assert_eq!(b.recv_held(&mut buffers).unwrap(), 0);
    buffers.deliver(|_, _| panic!("nothing is held"));
}
