//! Connected sockets on the port of the main one: routing, bounds, opening and closing under traffic.

mod common;

use common::*;
use denrei_io::{BackendChoice, RecvBuffers, SendOutcome, SocketConfig, UdpSocket, Waiter};
use denrei_wire::{Ecn, Transmit, Way};
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

fn at(socket: &UdpSocket, ip: [u8; 4]) -> SocketAddr {
    SocketAddr::from((ip, socket.local_addr().port()))
}

fn send(from: &mut UdpSocket, to: SocketAddr, bytes: &[u8]) {
    let (there, buf) = transmit(to, bytes, None);
    assert_eq!(from.send(&there, &buf), SendOutcome::Sent);
}

/// Addresses a node may be bound to, with the address its peers reach it at.
fn bindings() -> Vec<(&'static str, [u8; 4])> {
    let mut all = vec![("127.0.0.1:0", [127, 0, 0, 1]), ("0.0.0.0:0", [127, 0, 0, 1])];
    if has_ipv6() {
        all.push(("[::]:0", [127, 0, 0, 1]));
    }
    all
}

#[test]
fn every_source_port_reaches_us_whoever_is_connected() {
    for (addr, ip) in bindings() {
        let mut node = bind(addr);
        let target = at(&node, ip);
        let mut peers: Vec<UdpSocket> = (0..40).map(|_| bind("127.0.0.1:0")).collect();
        for peer in peers.iter().take(8) {
            assert!(node.connect_peer(peer.local_addr()).unwrap());
        }
        assert_eq!(node.raw_fds().count(), 9);
        for round in 0..5u8 {
            for peer in &mut peers {
                send(peer, target, &[round; 100]);
            }
            let seen: BTreeSet<SocketAddr> =
                receive(&mut node, 40).iter().map(|(meta, _)| meta.from).collect();
            let expected: BTreeSet<SocketAddr> = peers.iter().map(UdpSocket::local_addr).collect();
            assert_eq!(seen, expected, "node at {addr}");
            assert_silent(&mut node);
        }
        // And back: the source is this port, whichever socket sends.
        for peer in &mut peers {
            send(&mut node, peer.local_addr(), b"back");
            let got = receive(peer, 1);
            assert_eq!((got[0].0.from, &got[0].1[..]), (target, &b"back"[..]));
        }
    }
}

#[test]
fn connected_peers_are_served_by_their_own_socket() {
    let (mut node, mut hot, mut other) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    assert!(node.connect_peer(hot.local_addr()).unwrap());
    let fds: Vec<_> = node.raw_fds().collect();
    let waiter = Waiter::new().unwrap();
    for (peer, expected) in [(&mut hot, 0b10), (&mut other, 0b01)] {
        send(peer, node.local_addr(), b"x");
        let wake = waiter.wait(fds.iter().copied(), None, Some(DEADLINE)).unwrap();
        assert_eq!(wake.readable, expected);
        node.hint_readable(wake.readable);
        assert_eq!(node.recv(&mut RecvBuffers::default(), |_, _| ()).unwrap(), 1);
    }
}

#[test]
fn polling_without_hints_finds_every_lane_at_once() {
    let mut node = bind("127.0.0.1:0");
    let mut peers: Vec<UdpSocket> = (0..9).map(|_| bind("127.0.0.1:0")).collect();
    for peer in &peers[1..] {
        assert!(node.connect_peer(peer.local_addr()).unwrap());
    }
    let mut buffers = RecvBuffers::default();
    for peer in &mut peers {
        send(peer, node.local_addr(), b"x");
        let found = node.recv(&mut buffers, |_, _| ()).unwrap();
        assert_eq!(found, 1, "{} was not found", peer.local_addr());
    }
    let before = node.counters().recv_calls;
    for _ in 0..1000 {
        assert_eq!(node.recv(&mut buffers, |_, _| ()).unwrap(), 0);
    }
    let polls = node.counters().recv_calls - before;
    assert!((1000..=1020).contains(&polls), "{polls} system calls for 1000 idle polls");
}

#[test]
fn the_number_is_bounded_and_places_become_free() {
    let two = SocketConfig { connected_sockets: 2, ..SocketConfig::default() };
    let mut node = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &two).unwrap();
    let peers: Vec<UdpSocket> = (0..3).map(|_| bind("127.0.0.1:0")).collect();
    let addr = |index: usize| peers[index].local_addr();
    assert!(node.connect_peer(addr(0)).unwrap());
    assert!(!node.connect_peer(addr(0)).unwrap(), "already connected");
    assert!(node.connect_peer(addr(1)).unwrap());
    assert!(!node.connect_peer(addr(2)).unwrap(), "no place");
    for _ in 0..20 {
        node.disconnect_peer(addr(0));
        assert!(node.connect_peer(addr(2)).unwrap());
        assert_silent(&mut node);
        assert_eq!(node.raw_fds().count(), 3, "the drained socket is closed");
        node.disconnect_peer(addr(2));
        assert!(node.connect_peer(addr(0)).unwrap());
        assert_silent(&mut node);
    }
    assert_eq!(
        node.connected_peers().map(|way| way.to).collect::<BTreeSet<_>>(),
        BTreeSet::from([addr(0), addr(1)])
    );
    assert_eq!(node.counters().peers_connected - node.counters().peers_disconnected, 2);

    let none = SocketConfig { connected_sockets: 0, ..SocketConfig::default() };
    let mut node = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &none).unwrap();
    assert!(!node.connect_peer(addr(0)).unwrap());
}

#[test]
fn what_came_before_a_peer_was_connected_is_not_overtaken() {
    for (addr, ip) in bindings() {
        let (mut node, mut peer) = (bind(addr), bind("127.0.0.1:0"));
        let target = at(&node, ip);
        (0..100u8).for_each(|number| send(&mut peer, target, &[number]));
        assert!(node.connect_peer(peer.local_addr()).unwrap());
        (100..200u8).for_each(|number| send(&mut peer, target, &[number]));
        let numbers: Vec<u8> = receive(&mut node, 200).iter().map(|(_, bytes)| bytes[0]).collect();
        assert_eq!(numbers, Vec::from_iter(0..200), "node at {addr}");
    }
}

#[test]
fn nothing_is_lost_or_repeated_while_sockets_come_and_go() {
    for (addr, ip) in bindings() {
        let mut node = bind(addr);
        let target = at(&node, ip);
        let mut peers: Vec<UdpSocket> = (0..4).map(|_| bind("127.0.0.1:0")).collect();
        let mut sent = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut buffers = RecvBuffers::default();
        for round in 0..200u16 {
            let peer = peers[usize::from(round) % 3].local_addr();
            for (index, from) in peers.iter_mut().enumerate() {
                let payload = [index as u8, (round >> 8) as u8, round as u8];
                send(from, target, &payload);
                sent.insert(payload.to_vec());
            }
            if round % 6 < 3 {
                assert!(node.connect_peer(peer).unwrap());
            } else {
                node.disconnect_peer(peer);
            }
            if round % 5 == 0 {
                node.recv(&mut buffers, |_, datagram| {
                    assert!(seen.insert(datagram.to_vec()), "{datagram:?} came twice");
                })
                .unwrap();
            }
        }
        let rest = sent.len() - seen.len();
        for (_, datagram) in receive(&mut node, rest) {
            assert!(seen.insert(datagram.clone()), "{datagram:?} came twice");
        }
        assert_eq!(seen, sent, "node at {addr}");
    }
}

#[test]
fn a_port_in_use_is_an_error_also_beside_connected_sockets() {
    for (addr, _) in bindings() {
        let mut node = bind(addr);
        let peer = bind("127.0.0.1:0");
        let in_use = |node: &UdpSocket| {
            let error = UdpSocket::bind(node.local_addr(), &SocketConfig::default()).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
            // Not even a socket that is willing to share.
            let local = node.local_addr();
            let greedy =
                socket2::Socket::new(socket2::Domain::for_address(local), socket2::Type::DGRAM, None)
                    .unwrap();
            greedy.set_reuse_port(true).unwrap();
            assert!(greedy.bind(&local.into()).is_err(), "a stranger joined the port");
        };
        in_use(&node);
        assert!(node.connect_peer(peer.local_addr()).unwrap());
        in_use(&node);
        node.disconnect_peer(peer.local_addr());
        assert_silent(&mut node);
        in_use(&node);
    }
}

#[test]
fn a_refusing_peer_disturbs_nobody() {
    for backend in [BackendChoice::Auto, BackendChoice::Plain] {
        let mut node = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config(backend)).unwrap();
        let gone = bind("127.0.0.1:0").local_addr();
        let mut other = bind("127.0.0.1:0");
        assert!(node.connect_peer(gone).unwrap());
        for round in 0..50u8 {
            // The refusal of one datagram is reported by a later call; none may be blamed for it.
            send(&mut node, gone, &[round]);
            send(&mut node, other.local_addr(), &[round]);
            assert_eq!(payloads(&mut other, 1), [[round]]);
            send(&mut other, node.local_addr(), &[round]);
            assert_eq!(payloads(&mut node, 1), [[round]]);
        }
        assert_eq!(node.counters().send_dropped, 0);
        let waiter = Waiter::new().unwrap();
        for _ in 0..3 {
            node.recv_all(&mut RecvBuffers::default(), |_, _| ()).unwrap();
        }
        let wake = waiter.wait(node.raw_fds(), None, Some(Duration::from_millis(5))).unwrap();
        assert!(wake.timed_out(), "the error was consumed: {wake:?}");
    }
}

#[test]
fn trains_go_through_connected_sockets_too() {
    let (mut node, mut peer) = (bind("0.0.0.0:0"), bind("127.0.0.1:0"));
    assert!(node.connect_peer(peer.local_addr()).unwrap());
    let bytes = pattern(64 * 1472, 5);
    let (there, buf) = transmit(peer.local_addr(), &bytes, Some(1472));
    assert_eq!(node.send(&there, &buf), SendOutcome::Sent);
    assert_eq!(payloads(&mut peer, 64).concat(), bytes);
    let (back, buf) = transmit(at(&node, [127, 0, 0, 1]), &bytes, Some(1472));
    assert_eq!(peer.send(&back, &buf), SendOutcome::Sent);
    assert_eq!(payloads(&mut node, 64).concat(), bytes);
}

#[test]
fn descriptors_close_on_exec_and_do_not_block() {
    let mut node = bind("127.0.0.1:0");
    let peer = bind("127.0.0.1:0");
    assert!(node.connect_peer(peer.local_addr()).unwrap());
    if !cfg!(target_os = "linux") {
        return;
    }
    for fd in node.raw_fds() {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
        let flags = u32::from_str_radix(flags, 8).unwrap();
        assert_ne!(flags & 0o2000000, 0, "O_CLOEXEC");
        assert_ne!(flags & 0o4000, 0, "O_NONBLOCK");
    }
}

/// A short datagram of `from`, marked `ecn`, received by `node` after a look that found nothing: how
/// it was taken to be marked.
fn lone(from: &mut UdpSocket, node: &mut UdpSocket, to: SocketAddr, ecn: Ecn) -> Ecn {
    let mut buffers = RecvBuffers::default();
    assert_eq!(node.recv_all(&mut buffers, |_, _| ()).unwrap(), 0);
    marked(from, to, ecn);
    let got = receive_into(node, 1, &mut buffers);
    assert_eq!((got[0].0.from, &got[0].1[..]), (from.local_addr(), &b"short"[..]));
    got[0].0.ecn
}

fn marked(from: &mut UdpSocket, to: SocketAddr, ecn: Ecn) {
    let (mut there, buf) = transmit(to, b"short", None);
    there.ecn = ecn;
    assert_eq!(from.send(&there, &buf), SendOutcome::Sent);
}

#[test]
fn marks_are_read_again_when_datagrams_come_without_a_pause() {
    for addr in ["127.0.0.1:0", "[::]:0"] {
        if addr.starts_with('[') && !has_ipv6() {
            continue;
        }
        let (mut node, mut peer) = (bind(addr), bind("127.0.0.1:0"));
        let to = at(&node, [127, 0, 0, 1]);
        if !node.capabilities().ecn {
            eprintln!("SKIPPED marks_are_read_again: this host does not tell marks");
            return;
        }
        assert!(node.connect_peer(peer.local_addr()).unwrap());
        for _ in 0..40 {
            assert_eq!(lone(&mut peer, &mut node, to, Ecn::Ect0), Ecn::Ect0);
        }
        assert_eq!(lone(&mut peer, &mut node, to, Ecn::NotEct), Ecn::Ect0, "nobody asks any more");
        for _ in 0..4 {
            marked(&mut peer, to, Ecn::Ce);
        }
        let marks: Vec<Ecn> = receive(&mut node, 4).iter().map(|(meta, _)| meta.ecn).collect();
        assert_eq!(marks.last(), Some(&Ecn::Ce), "{marks:?}");
        // As long as the path is congested, every mark is read.
        for _ in 0..40 {
            assert_eq!(lone(&mut peer, &mut node, to, Ecn::Ce), Ecn::Ce);
        }
        assert_eq!(lone(&mut peer, &mut node, to, Ecn::Ect0), Ecn::Ect0);
    }
}

/// What a router says of a datagram from `from` to `to`: "destination unreachable", and why (RFC 792).
fn unreachable(code: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    let ip = |addr: SocketAddr| match addr.ip() {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(_) => unreachable!("these are IPv4's"),
    };
    let mut packet = vec![3, code, 0, 0, 0, 0, 0, 0];
    packet.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet.extend(ip(from));
    packet.extend(ip(to));
    packet.extend([from.port().to_be_bytes(), to.port().to_be_bytes(), [0, 8], [0, 0]].concat());
    let sum: u32 = packet.as_chunks().0.iter().map(|pair| u16::from_be_bytes(*pair) as u32).sum();
    let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[2..4].copy_from_slice(&folded.to_be_bytes());
    packet
}

#[test]
fn whatever_a_router_says_of_a_peer_the_port_goes_on() {
    let Ok(router) = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::ICMPV4)) else {
        eprintln!("skipped: only root may speak as a router");
        return;
    };
    for backend in [BackendChoice::Batched, BackendChoice::Plain] {
        let mut node = UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config(backend)).unwrap();
        // What the router says comes from 127.0.0.1.
        let mut peer = bind("127.0.0.2:0");
        let (here, there) = (node.local_addr(), peer.local_addr());
        assert!(node.connect_peer(there).unwrap());
        // But 4, which says how large datagrams may be: all of this host would believe it.
        for code in (0..=15).filter(|code| *code != 4) {
            for receives in [true, false] {
                router
                    .send_to(&unreachable(code, here, there), &SocketAddr::from(([127, 0, 0, 1], 0)).into())
                    .unwrap();
                if receives {
                    let received = node.recv_all(&mut RecvBuffers::default(), |_, _| ());
                    assert_eq!(received.map_err(|error| error.to_string()), Ok(0), "code {code}");
                }
                send(&mut node, there, b"still there");
                assert_eq!(receive(&mut peer, 1)[0].1, b"still there");
                let refused = node.take_refused();
                assert!(
                    refused.is_none() || cfg!(not(target_os = "linux")),
                    "code {code}: it is no peer's word"
                );
            }
        }
    }
}

#[test]
fn what_was_sent_to_one_of_several_addresses_is_answered_from_it() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        let (mut node, mut peer) = (bind(any), bind("127.0.0.1:0"));
        let there = at(&node, [127, 0, 0, 2]);
        // By the main socket, and by one of its own.
        for connected in [false, true] {
            send(&mut peer, there, b"ask");
            let (meta, _) = receive(&mut node, 1).pop().unwrap();
            assert_eq!(meta.back(), Way { to: peer.local_addr(), from: Some(there.ip()) });
            if connected {
                assert!(node.connect_peer(meta.back()).unwrap());
                send(&mut peer, there, b"ask");
                assert_eq!(receive(&mut node, 1), [(meta, b"ask".to_vec())], "its own socket knows, too");
            }
            let lent = lent(meta.from, [&b"large"[..], &pattern(40_000, 1), &b"end"[..]], Ecn::Ect0);
            let train = transmit(meta.from, &pattern(3_000, 2), Some(1_000));
            let mut marked = transmit(meta.from, b"marked", None);
            marked.0.ecn = Ecn::Ce;
            for (answer, buf) in [transmit(meta.from, b"one", None), lent, train, marked] {
                let answer = Transmit { from: meta.at, ..answer };
                assert_eq!(node.send(&answer, &buf), SendOutcome::Sent);
                for (heard, datagram) in receive(&mut peer, answer.segments()) {
                    assert_eq!((heard.from, heard.ecn), (there, answer.ecn), "{} octets", datagram.len());
                }
            }
        }
        let calls = node.counters().send_calls;
        assert_eq!(calls, 8, "one a transmit");
    }
}

/// The kernel tells of it in whatever call comes next.
#[test]
fn a_host_that_refuses_is_named_once_whichever_call_it_fails() {
    for (addr, _) in bindings() {
        let mut node = bind(addr);
        let there = bind("127.0.0.1:0");
        let peer = there.local_addr();
        assert!(node.connect_peer(peer).unwrap());
        send(&mut node, peer, b"anybody there?");
        assert_silent(&mut node);
        assert_eq!(node.take_refused(), None);
        drop(there);
        if cfg!(target_os = "linux") {
            send(&mut node, peer, b"by whom is not told until somebody asks,");
            assert_silent(&mut node);
            assert_eq!(node.take_refused(), None);
        }
        send(&mut node, peer, b"told when receiving");
        assert_silent(&mut node);
        assert_eq!((node.take_refused(), node.take_refused()), (Some(peer), None), "node at {addr}");
        send(&mut node, peer, b"told when sending,");
        send(&mut node, peer, b"which is done all the same");
        assert_eq!((node.take_refused(), node.take_refused()), (Some(peer), None), "node at {addr}");
        // One that is given up has no say any more.
        node.disconnect_peer(peer);
        assert_silent(&mut node);
        assert_eq!(node.take_refused(), None);
    }
}
