//! How the two sides find each other. Whom a receiver asks that was told no sender: what somebody without the cluster
//! key can make it send, and what becomes of senders that it does not take; and what a listed one takes for a message.

use denrei::{ChannelId, ClusterKey, Config, Drive, Incoming, Node, PeerId};
use denrei_cast::message::{CHANNEL, FailureCode, Message, VERSION, short};
use denrei_cast::{CastError, Destination, Members, Outcome, ReceiveOptions, Receiver, SendOptions};
use denrei_cast::{Sender, Source};
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

/// Something to send.
fn order() -> Source {
    Source::stream("order", &b"attack at dawn"[..], 1 << 20).unwrap()
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
    let sender = Sender::new(node(Some(1)), order(), SendOptions::new(group, Members::AtLeast(1))).unwrap();
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

/// What asks the sender at `addr` as a receiver does, `times` times; says `answer` to each offer.
fn ask(addr: SocketAddr, times: usize, answer: Option<&Message>) -> (Node, PeerId) {
    let node = node(None);
    let peer = node.connect(addr).unwrap();
    let say = |message: &Message| node.send(ChannelId { peer, channel: CHANNEL }, message.encode()).unwrap();
    let heard = || node.next(Duration::from_secs(10)).unwrap().expect("an offer");
    for _ in 0..times {
        say(&Message::Hello { version: VERSION });
        while !matches!(heard(), Incoming::Message(_)) {}
        if let Some(answer) = answer {
            say(answer);
        }
    }
    assert!(node.flush(peer, Duration::from_secs(10)));
    (node, peer)
}

/// Says that it receives something else, and asks again as one does whose own sender is gone.
fn busy(addr: SocketAddr) -> Node {
    let text = "it is receiving something else".into();
    ask(addr, 2, Some(&Message::Failed { code: FailureCode::Busy, text })).0
}

#[test]
fn one_that_receives_something_else_or_leaves_has_not_come_and_the_sender_waits_for_others() {
    let (group, sending) = (group(), node(None));
    let addr = sending.local_addr();
    let options =
        SendOptions { wait: Duration::from_secs(60), ..SendOptions::new(group, Members::AtLeast(1)) };
    let sender = Sender::new(sending, order(), options).unwrap();
    let sender = std::thread::spawn(move || sender.run(|_| ControlFlow::Continue(())).unwrap());
    let _busy = busy(addr);
    let (silent, peer) = ask(addr, 1, None);
    silent.abort(peer, 0x8000, "it leaves without a word").unwrap();
    assert!(!sender.is_finished());
    let receiver = receiving(None, group, Duration::from_secs(60));
    assert_eq!(receiver.join().unwrap().unwrap(), 14);
    let report = sender.join().unwrap();
    assert!(report.is_complete() && report.members.len() == 1, "{report:?}");
}

/// A sender that a receiver finds at two addresses; with what the receiver says to the first and the second.
fn found_twice(says: impl Fn(&Node, [PeerId; 2], &dyn Fn(usize, &Message), u64)) {
    let everywhere = || Node::bind("[::]:0", Config { insecure: true, ..config(None) });
    let (Ok(sending), Ok(receiver)) = (everywhere(), everywhere()) else {
        return eprintln!("SKIPPED: this host has no IPv6");
    };
    let port = sending.local_addr().port();
    let options =
        SendOptions { wait: Duration::from_secs(60), ..SendOptions::new(group(), Members::AtLeast(1)) };
    let sender = Sender::new(sending, order(), options).unwrap();
    let cast = short(&sender.offer().id);
    let sender = std::thread::spawn(move || sender.run(|_| ControlFlow::Continue(())).unwrap());
    let peers =
        ["127.0.0.1", "::1"].map(|ip| receiver.connect(SocketAddr::new(ip.parse().unwrap(), port)).unwrap());
    let say = |which: usize, message: &Message| {
        receiver.send(ChannelId { peer: peers[which], channel: CHANNEL }, message.encode()).unwrap();
        let is_heard = receiver.flush(peers[which], Duration::from_secs(10));
        // With the last word the sender is through: it ends the session, and what had to be sent once more may not be
        // acknowledged by then. That it has heard it its report says.
        assert!(is_heard || matches!(message, Message::Complete { .. }));
    };
    says(&receiver, peers, &say, cast);
    let report = sender.join().unwrap();
    assert!(report.is_complete() && report.members.len() == 1, "{report:?}");
    assert_eq!(report.members[0].name, "one");
}

const HELLO: Message = Message::Hello { version: VERSION };

fn want(cast: u64) -> Message {
    Message::Want { cast, ordered: true, name: "one".into(), ranges: vec![] }
}

/// One that is told the sender's address hears its announcements, too, which come from another one.
#[test]
fn one_that_has_found_the_sender_at_two_addresses_is_one_receiver() {
    found_twice(|_, _, say, cast| {
        // Before and after it says there what it misses.
        say(0, &HELLO);
        say(1, &HELLO);
        say(0, &want(cast));
        say(1, &HELLO);
        // With that the sender is through, and may be gone before anything is said to its first address.
        say(1, &Message::Complete { cast, resumed_bytes: 0 });
    });
}

#[test]
fn one_that_completes_by_another_address_than_it_began_with_is_one_receiver() {
    // The sender may be through, and the session over, by then.
    let lose = |node: &Node, peer| drop(node.abort(peer, 0x8002, "the link is down"));
    // The sender may know before that the first is gone, or not.
    found_twice(move |node, peers, say, cast| {
        say(0, &HELLO);
        say(0, &want(cast));
        lose(node, peers[0]);
        std::thread::sleep(Duration::from_millis(300));
        say(1, &HELLO);
        say(1, &Message::Complete { cast, resumed_bytes: 0 });
    });
    found_twice(move |node, peers, say, cast| {
        say(0, &HELLO);
        say(0, &want(cast));
        say(1, &HELLO);
        say(1, &Message::Complete { cast, resumed_bytes: 0 });
        lose(node, peers[0]);
    });
}

#[test]
fn a_sender_that_gives_up_says_how_many_took_another_cast() {
    let (group, sending) = (group(), node(None));
    let addr = sending.local_addr();
    let options =
        SendOptions { wait: Duration::from_secs(2), ..SendOptions::new(group, Members::AtLeast(1)) };
    let sender = Sender::new(sending, order(), options).unwrap();
    let sender = std::thread::spawn(move || sender.run(|_| ControlFlow::Continue(())).unwrap_err());
    let _busy = busy(addr);
    let error = sender.join().unwrap().to_string();
    assert!(
        error.starts_with("only 0 of 1 receivers came") && error.contains("others (1) took another cast"),
        "{error}"
    );
}

#[test]
fn of_two_senders_that_wait_for_receivers_at_one_group_either_says_that_there_is_the_other() {
    let group = group();
    let sender = || {
        let options =
            SendOptions { wait: Duration::from_secs(2), ..SendOptions::new(group, Members::AtLeast(2)) };
        let sending = node(None);
        let addr = sending.local_addr();
        let sender = Sender::new(sending, order(), options).unwrap();
        (addr, std::thread::spawn(move || sender.run(|_| ControlFlow::Continue(())).unwrap_err().to_string()))
    };
    let ((one, first), (other, second)) = (sender(), sender());
    for (error, rival) in
        [(first, other), (second, one)].map(|(thread, rival)| (thread.join().unwrap(), rival))
    {
        let told = format!("another cast is announced at this group, from {rival}");
        assert!(error.contains(&told) && error.contains("--group of its own"), "{error}");
    }
    let options =
        SendOptions { wait: Duration::from_secs(1), ..SendOptions::new(group, Members::AtLeast(1)) };
    let alone = Sender::new(node(None), order(), options).unwrap();
    let error = alone.run(|_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(!error.contains("another cast"), "it does not take itself for another: {error}");
}

/// What is said next to a Node that nothing but its calls drives.
fn next_message(node: &Node) -> Message {
    loop {
        match node.next(Duration::from_secs(10)).unwrap() {
            Some(Incoming::Message(message)) => return Message::decode(message.data).unwrap(),
            Some(_) => {}
            None => panic!("nothing is said"),
        }
    }
}

/// A receiver that has come, and is gone without a word when the cast begins, is none that the others wait for.
#[test]
fn nobody_waits_for_one_that_has_come_and_does_not_answer_any_more() {
    let (group, from) = (group(), tempfile::tempdir().unwrap());
    let path = from.path().join("order");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let sending = node(None);
    let to = sending.local_addr();
    let source = Source::files(denrei_cast::scan(&[path], false).unwrap()).unwrap();
    let options = SendOptions { patience: Duration::ZERO, ..SendOptions::new(group, Members::AtLeast(3)) };
    let sender = Sender::new(sending, source, options).unwrap();
    let sender = std::thread::spawn(move || sender.run(|_| ControlFlow::Continue(())));
    // Nothing but its calls drives this one: between them it is as good as dead.
    let silent = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let peer = silent.connect(to).unwrap();
    let say = |message: Message| silent.send(ChannelId { peer, channel: CHANNEL }, message.encode()).unwrap();
    say(Message::Hello { version: VERSION });
    let Message::Offer(offer) = next_message(&silent) else { panic!("nothing is offered") };
    let cast = denrei_cast::message::short(&offer.id);
    say(Message::Want { cast, ordered: false, name: "silent".into(), ranges: vec![(0, 5)] });
    assert!(silent.flush(peer, Duration::from_secs(10)));
    std::thread::sleep(Duration::from_secs(1));
    let begin = Instant::now();
    let receivers = [(), ()].map(|()| receiving(None, group, Duration::from_secs(20)));
    for receiver in receivers {
        assert_eq!(receiver.join().unwrap().unwrap(), 1 << 20);
    }
    let took = begin.elapsed();
    assert!(took < Duration::from_millis(2800), "the others waited {took:?}");
    let report = sender.join().unwrap().unwrap();
    let complete = report.members.iter().filter(|member| member.outcome == Outcome::Complete);
    assert_eq!((complete.count(), report.members.len()), (2, 3));
}

/// A sender that was killed and is started again has another port: nobody knows that it is the same one.
#[test]
fn a_sender_of_the_same_cast_takes_the_place_of_one_that_does_not_answer() {
    for announced in [false, true] {
        let (group, from, into) = (group(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = from.path().join("order");
        std::fs::write(&path, b"attack at dawn").unwrap();
        let receiving = node(None);
        let receiver_at = receiving.local_addr();
        let destination = Destination::Directory { path: into.path().into(), sync: false };
        let receiver = Receiver::new(receiving, destination, ReceiveOptions::new(group));
        let receiver = std::thread::spawn(move || receiver.run(|_| ControlFlow::Continue(())));
        let source = Source::files(denrei_cast::scan(&[path], false).unwrap()).unwrap();
        let members = if announced { Members::AtLeast(1) } else { Members::Listed(vec![receiver_at]) };
        let sender = Sender::new(node(None), source, SendOptions::new(group, members)).unwrap();
        // Nothing but its calls drives the first: after them it is as good as dead.
        let first = Node::bind("127.0.0.1:0", Config::default()).unwrap();
        let peer = first.connect(receiver_at).unwrap();
        let offer = Message::Offer(*sender.offer()).encode();
        first.send(ChannelId { peer, channel: CHANNEL }, offer).unwrap();
        assert!(matches!(next_message(&first), Message::Want { .. }));
        let begin = Instant::now();
        assert!(sender.run(|_| ControlFlow::Continue(())).unwrap().is_complete());
        assert_eq!(receiver.join().unwrap().unwrap().new_bytes, 14);
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(5), "it was taken after {took:?}, announced: {announced}");
    }
}

#[test]
fn a_listed_node_that_took_the_offer_for_a_message_of_its_own_is_offered_the_cast_again() {
    let (group, receiving) = (group(), node(None));
    let options = SendOptions::new(group, Members::Listed(vec![receiving.local_addr()]));
    let sender = Sender::new(node(None), order(), options).unwrap();
    let sending = std::thread::spawn(move || sender.run(|_| ControlFlow::Continue(())));
    let taken = receiving.recv_timeout(Duration::from_secs(10)).unwrap().expect("the offer");
    assert!(matches!(Message::decode(taken.data), Some(Message::Offer(_))));
    let into = tempfile::tempdir().unwrap();
    let destination = Destination::Directory { path: into.path().into(), sync: false };
    let options = ReceiveOptions { wait: Some(Duration::from_secs(60)), ..ReceiveOptions::new(group) };
    let receiver = Receiver::new(receiving, destination, options);
    assert_eq!(receiver.run(|_| ControlFlow::Continue(())).unwrap().new_bytes, 14);
    assert!(sending.join().unwrap().unwrap().is_complete());
}
