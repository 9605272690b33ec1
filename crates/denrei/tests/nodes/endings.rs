//! What those are told who wait for a peer that goes away.

use crate::common::attend;
use denrei::{
    Bytes, ChannelId, Collective, CollectiveError, Completion, Config, Drive, Event, GroupOptions,
    LostReason, NoMore, Node, OpenGroupError, PeerId, ProtocolConfig, RecvError, SendError,
};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
const DRIVES: [Drive; 2] = [Drive::Inline, Drive::Thread];

/// Nodes that know each other, and that the second is lost soon when it says nothing.
fn pair(drive: Drive) -> (Node, PeerId, Node) {
    let timeouts = ProtocolConfig {
        failure_timeout: Duration::from_millis(500),
        keepalive: Some(Duration::from_millis(100)),
        ..ProtocolConfig::default()
    };
    let protocol = ProtocolConfig { send_buffer_bytes: 1 << 20, ..timeouts };
    let config = Config { drive, protocol, ..Config::default() };
    let sender = Node::bind("127.0.0.1:0", config).unwrap();
    let receiver = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
    let peer = sender.connect(receiver.local_addr()).unwrap();
    sender.send(to(peer), vec![1; 100]).unwrap();
    assert!(sender.flush(peer, LONG));
    (sender, peer, receiver)
}

fn to(peer: PeerId) -> ChannelId {
    ChannelId { peer, channel: 0 }
}

/// Sends until nothing more finds room: the receiver's application takes nothing.
fn fill(sender: &Node, peer: PeerId) {
    let message = Bytes::from(vec![2; 64 << 10]);
    let until = Instant::now() + LONG;
    while sender.send_timeout(to(peer), message.clone(), Duration::from_millis(300)).is_ok() {
        assert!(Instant::now() < until, "a receiver that takes nothing took {:?}", sender.flow(peer));
    }
}

fn loss(node: &Node) -> (LostReason, usize) {
    let until = Instant::now() + LONG;
    while Instant::now() < until {
        if let Some(Event::PeerLost { reason, unacknowledged, .. }) = node.event_timeout(LONG) {
            return (reason, unacknowledged.len());
        }
    }
    panic!("no loss within {LONG:?}");
}

/// What a call that waits for the peer says when that goes away.
fn said_at_the_end<T: Send>(receiver: Node, call: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let waits = scope.spawn(call);
        std::thread::sleep(Duration::from_millis(100));
        drop(receiver);
        waits.join().unwrap()
    })
}

#[test]
fn what_was_not_acknowledged_is_not_flushed() {
    for drive in DRIVES {
        let (sender, peer, receiver) = pair(drive);
        fill(&sender, peer);
        let flushed = said_at_the_end(receiver, || sender.wait_acknowledged(peer, LONG));
        let (reason, unacknowledged) = loss(&sender);
        assert!(unacknowledged > 0);
        assert_eq!(flushed, Err(SendError::PeerLost { peer, reason }), "{drive:?}");
        assert!(!sender.flush(peer, LONG));
    }
}

#[test]
fn nobody_there_is_not_flushed() {
    let config = ProtocolConfig { connect_timeout: Duration::from_millis(200), ..ProtocolConfig::default() };
    let node = Node::bind("127.0.0.1:0", Config { protocol: config, ..Config::default() }).unwrap();
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let peer = node.connect(nobody.local_addr().unwrap()).unwrap();
    node.send(to(peer), vec![1; 10]).unwrap();
    assert!(!node.flush(peer, LONG));
    assert_eq!(loss(&node), (LostReason::NoAnswer, 1));
}

#[test]
fn a_session_closed_in_order_was_flushed() {
    for drive in DRIVES {
        let (sender, peer, receiver) = pair(drive);
        sender.send(to(peer), vec![3; 100_000]).unwrap();
        sender.close(peer).unwrap();
        let flushed = std::thread::scope(|scope| {
            let waits = scope.spawn(|| sender.wait_acknowledged(peer, LONG));
            for bytes in [100, 100_000] {
                assert_eq!(receiver.recv_timeout(LONG).unwrap().expect("a message").data.len(), bytes);
            }
            receiver.close(receiver.peers()[0].peer).unwrap();
            attend(&receiver, || waits.is_finished());
            waits.join().unwrap()
        });
        assert_eq!(flushed, Ok(true), "{drive:?}");
        assert_eq!(loss(&sender), (LostReason::Closed, 0));
    }
}

#[test]
fn a_send_that_waits_is_told_why_there_is_no_more() {
    for drive in DRIVES {
        let (sender, peer, receiver) = pair(drive);
        fill(&sender, peer);
        let refused = said_at_the_end(receiver, || sender.send(to(peer), vec![4; 64 << 10])).unwrap_err();
        let (reason, _) = loss(&sender);
        assert!(matches!(reason, LostReason::Ended { .. }), "{reason}");
        assert_eq!(refused, SendError::PeerLost { peer, reason }, "{drive:?}");
    }
}

#[test]
fn an_address_of_everybody_is_no_peers() {
    let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    for address in ["255.255.255.255:5000", "0.0.0.0:5000", "239.1.1.1:5000"] {
        let address: std::net::SocketAddr = address.parse().unwrap();
        assert!(node.connect(address).is_err(), "{address}");
    }
}

/// A task's waker that takes the thread along which calls it, and notes that it was called.
#[derive(Default)]
struct Broken(std::sync::atomic::AtomicBool);

impl std::task::Wake for Broken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        panic!("a waker breaks, as this test wants");
    }
}

/// A task's waker that notes that it was called.
#[derive(Default)]
struct Noted(std::sync::atomic::AtomicBool);

impl std::task::Wake for Noted {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn who_waits_hears_of_a_thread_that_has_panicked() {
    for drive in [Drive::Thread, Drive::Pipelined] {
        let (sender, peer, receiver) = pair(drive);
        let back = receiver.recv_timeout(LONG).unwrap().unwrap().channel;
        fill(&sender, peer);
        while sender.try_event().is_some() {}
        let waker = std::sync::Arc::new(Broken::default()).into();
        let mut event = std::pin::pin!(sender.event_async());
        assert!(event.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        // A task that is woken after the one that breaks.
        let noted = std::sync::Arc::new(Noted::default());
        let waker = std::sync::Arc::clone(&noted).into();
        let mut task = std::task::Context::from_waker(&waker);
        let mut message = std::pin::pin!(sender.recv_async());
        assert!(message.as_mut().poll(&mut task).is_pending());
        std::thread::scope(|scope| {
            let sends = scope.spawn(|| sender.send(to(peer), vec![2; 64 << 10]));
            let receives = scope.spawn(|| while sender.recv().is_ok() {});
            std::thread::sleep(Duration::from_millis(50));
            receiver.send(back, vec![3]).unwrap();
            let began = Instant::now();
            assert_eq!(sends.join().unwrap(), Err(SendError::NodeFailed), "{drive:?}");
            receives.join().unwrap();
            assert!(began.elapsed() < LONG / 2, "{drive:?}: told promptly");
        });
        // Another shard may have told of its end before the message of this one was taken.
        (0..9).for_each(|_| drop(sender.try_recv()));
        assert!(noted.0.load(std::sync::atomic::Ordering::SeqCst), "{drive:?}: the next task is woken");
        assert!(matches!(message.as_mut().poll(&mut task), std::task::Poll::Ready(Err(_))), "{drive:?}");
        while sender.try_event().is_some() {}
        assert!(matches!(event.as_mut().poll(&mut task), std::task::Poll::Ready(Err(_))), "{drive:?}");
        let said = sender.try_recv().unwrap_err().to_string();
        assert_eq!(said, "the Node failed: a thread of its has panicked");
        assert_eq!(sender.wait_acknowledged(peer, LONG), Err(SendError::NodeFailed));
        // Where there is room there is nobody who would send it.
        let (other, asked) = (to(sender.connect(([127, 0, 0, 1], 9).into()).unwrap()), Completion::None);
        let failed = Err(SendError::NodeFailed);
        assert_eq!(sender.send(other, vec![5]), failed, "{drive:?}");
        assert_eq!(sender.try_send(other, vec![5]), failed, "{drive:?}");
        assert_eq!(sender.queue(other, vec![5], asked), failed, "{drive:?}");
        assert_eq!(sender.send_within(other, vec![5], asked, LONG), failed, "{drive:?}");
        assert!(!sender.flush(peer, LONG));
    }
}

#[test]
fn nobody_waits_for_news_of_a_node_whose_thread_has_panicked() {
    for (drive, shards) in [(Drive::Thread, 1), (Drive::Pipelined, 1), (Drive::Pipelined, 3)] {
        let config = Config { drive, shards, ..Config::default() };
        let node = Node::bind("127.0.0.1:0", config).unwrap();
        let other = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
        let peer = other.connect(node.local_addr()).unwrap();
        let group = "239.255.79.77:7411".parse().unwrap();
        let listener = node.join_group(group).unwrap();
        let broken = std::sync::Arc::new(Broken::default());
        let waker = std::sync::Arc::clone(&broken).into();
        let mut message = std::pin::pin!(node.recv_async());
        assert!(message.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        let began = Instant::now();
        other.send(to(peer), vec![1]).unwrap();
        // A thread of the Node's is to meet it, and none that calls.
        while !broken.0.load(std::sync::atomic::Ordering::SeqCst) {
            assert!(began.elapsed() < LONG);
            std::thread::sleep(Duration::from_millis(1));
        }
        while node.recv_timeout(LONG).is_ok() {}
        for port in 1..=8 {
            let strange = node.connect(([127, 0, 0, 1], port).into()).unwrap();
            assert_eq!(node.send(to(strange), vec![2]), Err(SendError::NodeFailed), "{shards} shards");
        }
        // Another shard may have told of its end before the message of this one was taken.
        (0..9).for_each(|_| drop(node.try_recv()));
        while node.event_timeout(LONG).is_some() {}
        assert_eq!(node.ready(LONG), None, "{drive:?} with {shards} shards");
        assert!(
            node.next_event(LONG).is_err() && listener.next(LONG).is_err(),
            "{drive:?} with {shards} shards"
        );
        let opened = node.open_group(group, &[other.local_addr()], GroupOptions::default());
        assert!(matches!(opened, Err(OpenGroupError::Node(_))), "{drive:?} with {shards} shards");
        let set = Collective::new(&node, &[node.local_addr(), other.local_addr()], group, LONG);
        assert!(matches!(set, Err(CollectiveError::Node(_))), "{drive:?} with {shards} shards");
        assert!(began.elapsed() < LONG, "{drive:?} with {shards} shards: told promptly");
    }
}

/// What somebody who waits for a channel of `peer` is told when all that it brought was taken.
fn no_more(node: &Node, peer: PeerId) -> NoMore {
    let began = Instant::now();
    match node.recv_from(to(peer), LONG) {
        Err(RecvError::NoMore(why)) if began.elapsed() < LONG => why,
        other => panic!("{other:?} after {:?}", began.elapsed()),
    }
}

#[test]
fn who_waits_for_a_channel_is_told_that_no_more_comes() {
    for (drive, shards) in [(Drive::Inline, 1), (Drive::Thread, 1), (Drive::Pipelined, 2)] {
        let receiver = Node::bind("127.0.0.1:0", Config { drive, shards, ..Config::default() }).unwrap();
        let sender = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
        let peer = sender.connect(receiver.local_addr()).unwrap();
        sender.send(to(peer), vec![5; 100_000]).unwrap();
        sender.close_write(peer).unwrap();
        let first = receiver.recv_timeout(LONG).unwrap().expect("what was sent before comes");
        let from = first.channel.peer;
        assert_eq!(no_more(&receiver, from), NoMore::PeerDoneWriting(from), "{drive:?}");

        let again = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
        let peer = again.connect(receiver.local_addr()).unwrap();
        for _ in 0..2 {
            again.send(to(peer), vec![6; 1000]).unwrap();
        }
        let from = receiver.recv_timeout(LONG).unwrap().expect("a message").channel.peer;
        let waits = std::thread::spawn({
            let receiver = receiver.clone();
            move || {
                assert!(receiver.recv_from(to(from), LONG).unwrap().is_some(), "what is here comes first");
                no_more(&receiver, from)
            }
        });
        assert!(again.flush(peer, LONG));
        drop(again);
        let why = waits.join().unwrap();
        assert!(
            matches!(why, NoMore::PeerLost { peer, reason: LostReason::Ended { .. } } if peer == from),
            "{drive:?}: {why}"
        );
        // Its events were not taken, so it is known still.
        assert_eq!(no_more(&receiver, from), why);
        let nobody = PeerId::from_u64(u64::MAX);
        assert_eq!(no_more(&receiver, nobody), NoMore::UnknownPeer(nobody));
        let beyond = ChannelId { peer: from, channel: 1024 };
        let error = receiver.recv_from(beyond, LONG).unwrap_err();
        assert_eq!(error.to_string(), "channel 1024 does not exist: numbers go up to 1023 (max_channels)");
    }
}
