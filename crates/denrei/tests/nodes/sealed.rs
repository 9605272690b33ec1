//! Nodes with a cluster key over real sockets on loopback.

use crate::common::attend;
use denrei::{
    Bytes, ChannelId, ClusterKey, Config, Drive, Event, Identity, LostReason, Node, ProtocolConfig,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

fn config(octet: u8, drive: Drive) -> Config {
    let protocol = ProtocolConfig {
        // Keys change often while a message of some megabytes goes over.
        rekey_after_packets: 16,
        connect_timeout: Duration::from_millis(500),
        ..ProtocolConfig::default()
    };
    Config { cluster_key: Some(ClusterKey::from_bytes([octet; 32])), protocol, drive, ..Config::default() }
}

fn content(len: usize) -> Bytes {
    (0..len).map(|i| (i * 31 + i / 251) as u8).collect()
}

/// Sends from `a` to `b`, which sends it back.
fn exchange(a: &Node, b: &Node, len: usize) {
    let peer = a.connect(b.local_addr()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let message = b.recv_timeout(LONG).unwrap().expect("it arrives");
            b.send(message.channel, message.data).unwrap();
            attend(b, || done.load(Ordering::Relaxed));
        });
        a.send(ChannelId { peer, channel: 0 }, content(len)).unwrap();
        let back = a.recv_timeout(LONG).unwrap();
        done.store(true, Ordering::Relaxed);
        assert_eq!(back.expect("it comes back").data, content(len));
    });
}

#[test]
fn messages_go_both_ways_in_all_drive_modes() {
    for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
        let [a, b] = [0, 1].map(|_| Node::bind("127.0.0.1:0", config(7, drive)).unwrap());
        for len in [0, 64, 70_000, 5 << 20] {
            exchange(&a, &b, len);
        }
        for node in [&a, &b] {
            let counters = node.counters();
            assert_eq!((counters.corrupted, counters.strange_keys), (0, 0), "{drive:?} {counters:?}");
        }
    }
}

#[test]
fn identities_on_both_lists_are_let_in() {
    let identities = [1, 2].map(|octet| Identity::from_bytes([octet; 32]));
    let [a, b] = [0, 1].map(|side: usize| {
        let identity = Some(identities[side].clone());
        let config =
            Config { identity, allowed: vec![identities[1 - side].public()], ..config(7, Drive::Inline) };
        Node::bind("127.0.0.1:0", config).unwrap()
    });
    exchange(&a, &b, 1000);
}

#[test]
fn another_key_is_no_answer_and_is_counted() {
    let [a, b] = [7, 8].map(|octet| Node::bind("127.0.0.1:0", config(octet, Drive::Thread)).unwrap());
    let began = Instant::now();
    a.connect(b.local_addr()).unwrap();
    let lost = loop {
        match a.event_timeout(LONG).expect("within ten seconds") {
            Event::PeerLost { reason, .. } => break reason,
            _ => continue,
        }
    };
    assert_eq!(lost, LostReason::NoAnswer);
    assert!(began.elapsed() < LONG);
    assert!(b.counters().strange_keys > 0);
}

#[test]
fn an_identity_without_a_list_is_refused_in_words() {
    let config = Config { identity: Some(Identity::from_bytes([1; 32])), ..config(7, Drive::Inline) };
    let error = Node::bind("127.0.0.1:0", config).unwrap_err().to_string();
    assert!(error.contains("allowed is empty") && error.contains("identities to speak with"), "{error}");
}
