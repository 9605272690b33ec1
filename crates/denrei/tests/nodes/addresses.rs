//! A Node at all addresses of its host is reached at each of them.
#![cfg(target_os = "linux")] // the system tells what a datagram was sent to

use crate::common::background;
use denrei::{
    ChannelId, Config, Drive, Event, GroupBackend, GroupOptions, LostReason, MembershipEnd, Node, PeerId,
};
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
/// More than it takes until a busy peer has a socket of its own.
const MANY: u64 = 1_000;
/// The system answers from the first of them unless it is told.
const ADDRESSES: [[u8; 4]; 3] = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 7, 7]];

fn config(drive: Drive) -> Config {
    Config { drive, insecure: true, ..Config::default() }
}

fn at(node: &Node, ip: [u8; 4]) -> SocketAddr {
    SocketAddr::from((ip, node.local_addr().port()))
}

fn to(peer: PeerId) -> ChannelId {
    ChannelId { peer, channel: 0 }
}

/// What is bound to loopback has no way to other hosts: the system refuses each datagram, and none leaves this host.
#[test]
fn what_this_host_does_not_send_is_said_whichever_thread_sends() {
    for drive in [Drive::Inline, background()] {
        let node = Node::bind("127.0.0.1:0", config(drive)).unwrap();
        node.connect("192.0.2.7:7000".parse().unwrap()).unwrap();
        let told = |_| {
            node.event_timeout(Duration::from_millis(100));
            node.warnings().iter().any(|warning| warning.contains("does not send to 192.0.2.7:7000"))
        };
        assert!((0..100).any(told), "{:?}", node.warnings());
    }
}

#[test]
fn whoever_connects_to_any_address_is_answered_and_served() {
    for any in ["0.0.0.0:0", "[::]:0"] {
        for drive in [Drive::Inline, background()] {
            let hub = Node::bind(any, config(drive)).unwrap();
            let targets = ADDRESSES.map(|ip| at(&hub, ip));
            let clients = targets.map(|target| thread::spawn(move || ask(target)));
            for _ in 0..MANY * ADDRESSES.len() as u64 {
                let message = hub.recv_timeout(LONG).unwrap().expect("a question");
                hub.send(message.channel, message.data).unwrap();
            }
            // An inline Node repeats what is lost while it is called. Who has gone is soon forgotten, so not `flush`.
            while !clients.iter().all(thread::JoinHandle::is_finished) {
                hub.event_timeout(Duration::from_millis(10));
            }
            clients.into_iter().for_each(|client| client.join().unwrap());
        }
    }
}

/// Asks and is answered many times, as from one address.
fn ask(target: SocketAddr) {
    let node = Node::bind("127.0.0.1:0", config(background())).unwrap();
    let peer = node.connect(target).unwrap();
    for number in 0..MANY {
        node.send(to(peer), number.to_le_bytes().to_vec()).unwrap();
        let answer =
            node.recv_timeout(LONG).unwrap().unwrap_or_else(|| panic!("{target} is silent: {number}"));
        assert_eq!((answer.channel.peer, &answer.data[..]), (peer, &number.to_le_bytes()[..]));
    }
}

#[test]
fn members_that_connected_to_any_address_get_what_is_sent_to_a_group() {
    let hub = Node::bind("0.0.0.0:0", config(background())).unwrap();
    for (backend, last) in [(GroupBackend::Unicast, 1), (GroupBackend::Tree, 2)] {
        let group = SocketAddr::from(([239, 255, 79, last], 27_410));
        let members = ADDRESSES.map(|ip| {
            let node = Node::bind("127.0.0.1:0", config(background())).unwrap();
            let peer = node.connect(at(&hub, ip)).unwrap();
            node.send(to(peer), "here").unwrap();
            assert!(node.flush(peer, LONG));
            node
        });
        let listed = members.each_ref().map(Node::local_addr);
        let readers = members.map(|node| {
            let listener = node.join_group(group).unwrap();
            thread::spawn(move || {
                let membership = listener.accept(LONG).expect("the group opens");
                let mut got = Vec::new();
                while let Ok(message) = membership.recv_timeout(LONG) {
                    got.push(message.expect("a message").data.len());
                }
                (got, membership.recv_timeout(LONG).unwrap_err(), node)
            })
        });
        let options = GroupOptions { backend, ..GroupOptions::default() };
        let group = hub.open_group(group, &listed, options).unwrap();
        for len in [16, 100_000, 5_000_000] {
            group.send(vec![7; len]).unwrap();
        }
        assert!(group.flush(LONG), "{:?}", group.status());
        let counters = group.status().unwrap().counters;
        assert!(group.close(LONG));
        for reader in readers {
            let (got, end, _node) = reader.join().unwrap();
            assert_eq!((got, end), (vec![16, 100_000, 5_000_000], MembershipEnd::Closed), "{backend:?}");
        }
        let taken_for_a_strangers =
            backend == GroupBackend::Unicast && counters.reports_with_gaps * 3 > counters.reports;
        assert!(!taken_for_a_strangers, "{counters:?}");
    }
}

#[test]
fn who_connects_to_a_second_address_has_one_session_and_is_told() {
    let hub = Node::bind("0.0.0.0:0", config(background())).unwrap();
    let node = Node::bind("127.0.0.1:0", config(background())).unwrap();
    let say = |peer, text: &'static str| {
        node.send(to(peer), text).unwrap();
        hub.recv_timeout(LONG).unwrap().expect(text).data
    };
    let peers = [(0, "first"), (1, "second")].map(|(index, text)| {
        let peer = node.connect(at(&hub, ADDRESSES[index])).unwrap();
        assert_eq!(say(peer, text), text);
        peer
    });
    // Refused if an acknowledgement of the first has already told that it is forgotten; else this tells.
    let _ = node.send(to(peers[0]), "too late");
    let lost = std::iter::from_fn(|| node.event_timeout(LONG)).find_map(|event| match event {
        Event::PeerLost { peer, reason, .. } => Some((peer, reason)),
        _ => None,
    });
    assert_eq!(lost, Some((peers[0], LostReason::Forgotten)));
    assert_eq!(say(peers[1], "third"), "third");
}

#[test]
fn addresses_that_cannot_be_reached_from_here_are_refused_at_once() {
    let insecure = |addr: &str| Node::bind(addr, Config { insecure: true, ..Config::default() });
    let v4 = Node::bind("127.0.0.1:0", config(Drive::Inline)).unwrap();
    let error = v4.connect("[::1]:9".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("[::1]:9 cannot be reached from 127.0.0.1:"), "{error}");
    // Where there is no IPv6 that was all.
    let (Ok(v6), Ok(both)) = (insecure("[::1]:0"), insecure("[::]:0")) else { return };
    assert!(v6.connect("127.0.0.1:9".parse().unwrap()).is_err());
    assert!(v6.connect("[::1]:9".parse().unwrap()).is_ok());
    for addr in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:10"] {
        assert!(both.connect(addr.parse().unwrap()).is_ok(), "{addr}");
    }
}

#[test]
fn an_address_of_one_link_that_does_not_name_its_interface_is_refused_with_what_to_do() {
    let bind = |addr: &str| Node::bind(addr, Config { insecure: true, ..Config::default() });
    let Ok(both) = bind("[::]:0") else { return };
    let error = both.connect("[fe80::7]:9".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("name this host's interface") && error.contains("[fe80::7%eth0]:9"), "{error}");
    let peer = both.connect("[fe80::7%1]:9".parse().unwrap()).unwrap();
    assert_eq!(both.flow(peer).unwrap().addr, "[fe80::7%1]:9".parse().unwrap());
    let error = bind("[fe80::7]:9").err().unwrap().to_string();
    assert!(error.contains("cannot bind") && error.contains("[fe80::7%eth0]:9"), "{error}");
}

#[test]
fn an_ipv4_address_in_the_form_of_ipv6_is_that_ipv4_address() {
    let a = Node::bind("[::ffff:127.0.0.1]:0", Config::default()).unwrap();
    assert!(a.local_addr().is_ipv4(), "{}", a.local_addr());
    let b = Node::bind("127.0.0.1:0", config(background())).unwrap();
    let peer = a.connect(format!("[::ffff:127.0.0.1]:{}", b.local_addr().port()).parse().unwrap()).unwrap();
    assert_eq!(a.peer_at(b.local_addr()), Some(peer));
    a.send(to(peer), "hello").unwrap();
    assert!(a.flush(peer, LONG));
    assert_eq!(b.recv_timeout(LONG).unwrap().unwrap().data, "hello");
}
