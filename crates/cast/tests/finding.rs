//! Whom a receiver asks that was told no sender: what somebody without the cluster key can make it send.

use denrei::{ClusterKey, Config, Drive, Node};
use denrei_cast::{CastError, Destination, Members, ReceiveOptions, Receiver, SendOptions};
use denrei_cast::{Sender, Source, scan};
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

fn config(key: Option<u8>) -> Config {
    let cluster_key = key.map(|octet| ClusterKey::from_bytes([octet; 32]));
    Config { drive: Drive::Thread, cluster_key, ..Config::default() }
}

fn node(key: Option<u8>) -> Node {
    Node::bind("127.0.0.1:0", config(key)).unwrap()
}

/// A group that no other test uses now.
fn group() -> SocketAddr {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    SocketAddr::new([239, 255, 79, 2].into(), port.min(65_000))
}

/// A receiver that waits in a thread, and what it says in the end.
fn receiving(key: Option<u8>, group: SocketAddr, wait: Duration) -> JoinHandle<Result<u64, CastError>> {
    let into = tempfile::tempdir().unwrap();
    let destination = Destination::Directory { path: into.path().into(), sync: false };
    let options = ReceiveOptions { wait: Some(wait), ..ReceiveOptions::new(group) };
    let receiver = Receiver::new(node(key), destination, options);
    std::thread::spawn(move || {
        let _into = into;
        receiver.run(|_| ControlFlow::Continue(())).map(|report| report.new_bytes)
    })
}

/// Says that a sender without a key is where a socket is that never answers; the socket.
fn forged(group: SocketAddr) -> UdpSocket {
    let sink = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = sink.local_addr().unwrap().port().to_le_bytes();
    let beacon = [&b"denreica"[..], &port, b"forged--"].concat();
    sink.send_to(&beacon, SocketAddr::new(group.ip(), group.port() + 1)).unwrap();
    sink
}

/// When the last datagram came within `wait`, if one did.
fn last_heard(sink: &UdpSocket, wait: Duration) -> Option<Duration> {
    let begin = Instant::now();
    let mut last = None;
    while let Some(left) = wait.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        sink.set_read_timeout(Some(left)).unwrap();
        if sink.recv(&mut [0; 2048]).is_ok() {
            last = Some(begin.elapsed());
        }
    }
    last
}

#[test]
fn a_receiver_with_a_key_asks_nobody_because_of_a_forged_beacon_and_finds_the_sender() {
    let group = group();
    let receiver = receiving(Some(1), group, Duration::from_secs(60));
    let sink = forged(group);
    assert_eq!(last_heard(&sink, Duration::from_secs(1)), None);
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("order"), "attack at dawn").unwrap();
    let source = Source::files(scan(&[dir.path().join("order")], false).unwrap()).unwrap();
    let sender = Sender::new(node(Some(1)), source, SendOptions::new(group, Members::AtLeast(1))).unwrap();
    assert!(sender.run(|_| ControlFlow::Continue(())).unwrap().is_complete());
    assert_eq!(receiver.join().unwrap().unwrap(), 14);
    let waiting = receiving(Some(1), group, Duration::from_secs(1));
    let _sink = forged(group);
    let error = waiting.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("; 1 beacons were dropped: made without this key"), "{error}");
}

#[test]
fn who_was_heard_and_does_not_answer_is_not_asked_for_long() {
    let group = group();
    let receiver = receiving(None, group, Duration::from_secs(8));
    let last = last_heard(&forged(group), Duration::from_millis(7500)).expect("it asks");
    assert!(last < Duration::from_millis(5500), "it still asks after {last:?}");
    assert!(receiver.join().unwrap().is_err());
}
