//! Receivers that are slow, or get what they have, and what they say meanwhile.

use denrei::{ChannelId, Config, Drive, Incoming, Node};
use denrei_cast::manifest::{Entry, Extent, Kind, Manifest};
use denrei_cast::message::{CHANNEL, Message, Offer, PIECE_BYTES, Piece, VERSION, short};
use denrei_cast::{
    Busy, Destination, Members, Outcome, ReceiveOptions, Receiver, Reception, SendOptions, Sender, Source,
    scan,
};
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

fn node() -> Node {
    Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
}

/// Takes a twentieth of a second for whatever it is given.
struct Slow;

impl Write for Slow {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        std::thread::sleep(Duration::from_millis(50));
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A group that no other test uses now.
fn group() -> SocketAddr {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    SocketAddr::new([239, 255, 79, 3].into(), port.min(65_000))
}

#[test]
fn one_whose_reader_is_slow_says_how_far_it_is_while_it_writes() {
    let group = group();
    let receiver = Receiver::new(node(), Destination::Pipe(Box::new(Slow)), ReceiveOptions::new(group));
    let receiver = std::thread::spawn(move || {
        let (mut longest, mut last) = (Duration::ZERO, Instant::now());
        let received = receiver.run(|_| {
            longest = longest.max(last.elapsed());
            last = Instant::now();
            ControlFlow::Continue(())
        });
        (received.unwrap().new_bytes, longest)
    });
    // 76 pieces, written in 3.8 s, and most of them here within a moment.
    let source = Source::stream("s", std::io::repeat(7).take(20_000_000), 64 << 20).unwrap();
    let sender = Sender::new(node(), source, SendOptions::new(group, Members::AtLeast(1))).unwrap();
    assert!(sender.run(|_| ControlFlow::Continue(())).unwrap().is_complete());
    let (bytes, longest) = receiver.join().unwrap();
    assert_eq!(bytes, 20_000_000);
    assert!(longest < Duration::from_secs(2), "nothing was told for {longest:?}");
}

/// One that goes on where it was is in a group with others that begin: for long it gets nothing but what it has.
#[test]
fn one_that_gets_what_it_has_says_that_it_takes_it() {
    let into = tempfile::tempdir().unwrap();
    let destination = || Destination::Directory { path: into.path().into(), sync: false };
    let size = u64::from(PIECE_BYTES) * 2;
    let kind = Kind::File { size, extents: vec![Extent { offset: 0, len: size }] };
    let entry = Entry { parent: None, name: b"f".into(), mode: 0o644, mtime_ns: 0, kind };
    let encoded = Manifest { nonce: [0; 16], entries: vec![entry] }.encode();
    let group = group();
    let (id, manifest_bytes) = (*blake3::hash(&encoded).as_bytes(), encoded.len() as u64);
    let offer = Offer { id, group, piece_bytes: PIECE_BYTES, manifest_bytes, body_bytes: size };
    let piece = |number, data| Piece { cast: short(&id), number, last: false, digests: Vec::new(), data };
    let first = piece(1, vec![7; PIECE_BYTES as usize].into());
    {
        let mut before = Reception::new(offer, destination(), "").unwrap();
        before.piece(&piece(0, encoded.into())).unwrap();
        before.piece(&first).unwrap();
    }
    let receiving = node();
    let addr = receiving.local_addr();
    let receiver = Receiver::new(receiving, destination(), ReceiveOptions::new(group));
    let until = Instant::now() + Duration::from_secs(60);
    let (done, ended) = std::sync::mpsc::channel::<()>();
    let receiver = std::thread::spawn(move || {
        receiver.run(|_| match ended.try_recv() {
            Err(std::sync::mpsc::TryRecvError::Empty) => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        })
    });
    let sending = node();
    let peer = sending.connect(addr).unwrap();
    let say =
        |message: &Message| sending.send(ChannelId { peer, channel: CHANNEL }, message.encode()).unwrap();
    say(&Message::Offer(offer));
    let mut told = 0;
    while told < 3 && Instant::now() < until {
        match sending.next(Duration::from_millis(200)).unwrap() {
            Some(Incoming::Message(message)) => match Message::decode(message.data) {
                Some(Message::Progress { bytes, .. }) => {
                    assert_eq!(bytes, u64::from(PIECE_BYTES));
                    told += 1;
                }
                Some(Message::Want { ranges, .. }) => assert_eq!(ranges, [(2, 1)]),
                other => panic!("{other:?}"),
            },
            Some(_) => {}
            None => drop(say(&Message::Piece(first.clone()))),
        }
    }
    drop(done);
    assert!(receiver.join().unwrap().is_err());
    assert_eq!(told, 3, "who says nothing for a minute is given up");
}

/// A hole has no pieces, and is written to a pipe all the same.
#[test]
fn one_whose_reader_takes_a_hole_says_that_it_goes_on() {
    let kind = Kind::File { size: 8 << 20, extents: vec![Extent { offset: 4 << 20, len: 4 }] };
    let entry = Entry { parent: None, name: b"f".into(), mode: 0o644, mtime_ns: 0, kind };
    let encoded = Manifest { nonce: [0; 16], entries: vec![entry] }.encode();
    let (id, manifest_bytes) = (*blake3::hash(&encoded).as_bytes(), encoded.len() as u64);
    let offer = Offer { id, group: group(), piece_bytes: PIECE_BYTES, manifest_bytes, body_bytes: 4 };
    let (tell, told) = std::sync::mpsc::channel();
    let busy = Busy::new(move |bytes| tell.send(bytes).unwrap());
    let pipe = Destination::Pipe(Box::new(std::io::sink()));
    let mut reception = Reception::telling(offer, pipe, "", busy).unwrap();
    let piece = |number, digests, data| Piece { cast: short(&id), number, last: false, digests, data };
    reception.piece(&piece(0, Vec::new(), encoded.into())).unwrap();
    reception.piece(&piece(1, vec![*blake3::hash(b"data").as_bytes()], "data".into())).unwrap();
    reception.finish().unwrap();
    let told: Vec<u64> = told.try_iter().collect();
    assert!(told.len() >= 100 && told.iter().all(|bytes| *bytes == 4), "{told:?}");
}

/// What a receiver's Node takes is for its user to say, and no reason to send to nobody.
#[test]
fn one_that_takes_no_message_as_large_as_a_piece_fails_alone() {
    let (group, from) = (group(), tempfile::tempdir().unwrap());
    let path = from.path().join("file");
    let content: Vec<u8> = (0..1_000_000).map(|n| (n / 3) as u8).collect();
    std::fs::write(&path, &content).unwrap();
    let mut small = Config { drive: Drive::Thread, ..Config::default() };
    small.protocol.max_message_bytes = 100_000;
    let nodes = [node(), Node::bind("127.0.0.1:0", small).unwrap(), node()];
    let members = nodes.iter().map(Node::local_addr).collect();
    let receivers = nodes.map(|node| {
        let into = tempfile::tempdir().unwrap();
        let destination = Destination::Directory { path: into.path().into(), sync: false };
        let receiver = Receiver::new(node, destination, ReceiveOptions::new(group));
        let receiver = std::thread::spawn(move || receiver.run(|_| ControlFlow::Continue(())));
        (into, receiver)
    });
    let source = Source::files(scan(&[path], false).unwrap()).unwrap();
    let sender = Sender::new(node(), source, SendOptions::new(group, Members::Listed(members))).unwrap();
    let report = sender.run(|_| ControlFlow::Continue(())).unwrap();
    for (number, (into, receiver)) in receivers.into_iter().enumerate() {
        let (received, outcome) = (receiver.join().unwrap(), &report.members[number].outcome);
        if number == 1 {
            let error = received.unwrap_err().to_string();
            assert!(error.contains("max_message_bytes"), "{error}");
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        } else {
            received.unwrap();
            assert_eq!(*outcome, Outcome::Complete);
            assert!(std::fs::read(into.path().join("file")).unwrap() == content);
        }
    }
}

/// A receiver that says what a test has it say.
struct ByHand<'a> {
    node: &'a Node,
    to: ChannelId,
    cast: u64,
}

impl<'a> ByHand<'a> {
    /// It has been offered a cast.
    fn offered(node: &'a Node, sender: SocketAddr) -> Self {
        let to = ChannelId { peer: node.connect(sender).unwrap(), channel: CHANNEL };
        let mut by_hand = Self { node, to, cast: 0 };
        by_hand.say(&Message::Hello { version: VERSION });
        let Message::Offer(offer) = by_hand.heard() else { panic!("nothing is offered") };
        by_hand.cast = short(&offer.id);
        by_hand
    }

    fn say(&self, message: &Message) {
        self.node.send(self.to, message.encode()).unwrap();
    }

    fn heard(&self) -> Message {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < until, "nothing else is said");
            if let Some(Incoming::Message(message)) = self.node.next(Duration::from_millis(200)).unwrap() {
                break Message::decode(message.data).unwrap();
            }
        }
    }
}

/// What has been said is said once more, where there was no room for it.
#[test]
fn one_that_leaves_the_group_while_its_queue_is_full_is_asked_what_it_misses() {
    let group = group();
    let mut little = Config { drive: Drive::Thread, ..Config::default() };
    little.protocol.send_buffer_bytes = 100_000;
    let sending = Node::bind("127.0.0.1:0", little).unwrap();
    let sender_addr = sending.local_addr();
    let from = tempfile::tempdir().unwrap();
    let path = from.path().join("file");
    std::fs::write(&path, vec![7; 40 * PIECE_BYTES as usize]).unwrap();
    let source = Source::files(scan(&[path], false).unwrap()).unwrap();
    let options = SendOptions::new(group, Members::AtLeast(1));
    let sender = std::thread::spawn(move || {
        Sender::new(sending, source, options).unwrap().run(|_| ControlFlow::Continue(()))
    });
    let busy = node();
    let listener = busy.join_group(group).unwrap();
    let to = ByHand::offered(&busy, sender_addr);
    let cast = to.cast;
    to.say(&Message::Want { cast, ordered: false, name: "busy".into(), ranges: vec![(1, 40)] });
    // More than it takes without being read; another comes, and there is a group.
    std::thread::sleep(Duration::from_millis(500));
    let into = tempfile::tempdir().unwrap();
    let destination = Destination::Directory { path: into.path().into(), sync: false };
    let options = ReceiveOptions { from: Some(sender_addr), ..ReceiveOptions::new(group) };
    let receiver = Receiver::new(node(), destination, options);
    let receiver = std::thread::spawn(move || receiver.run(|_| ControlFlow::Continue(())));
    drop(listener.accept(Duration::from_secs(20)).expect("there is a group"));
    // The others go on.
    receiver.join().unwrap().unwrap();
    while to.heard() != (Message::Resync { cast }) {}
    to.say(&Message::Complete { cast, resumed_bytes: 0 });
    assert!(sender.join().unwrap().unwrap().is_complete());
}

/// A group begins messages for one that joins once those are through that others hold up.
#[test]
fn one_that_joins_a_group_that_is_held_up_gets_what_it_brings_and_not_all_by_itself() {
    let (group, from) = (group(), tempfile::tempdir().unwrap());
    let path = from.path().join("file");
    std::fs::write(&path, vec![7; 64 * PIECE_BYTES as usize]).unwrap();
    let source = Source::files(scan(&[path], false).unwrap()).unwrap();
    let sending = node();
    let sender_addr = sending.local_addr();
    let options =
        SendOptions { stall: Some(Duration::from_secs(10)), ..SendOptions::new(group, Members::AtLeast(2)) };
    let sender = std::thread::spawn(move || {
        Sender::new(sending, source, options).unwrap().run(|_| ControlFlow::Continue(()))
    });
    let receiver = || {
        std::thread::spawn(move || {
            let into = tempfile::tempdir().unwrap();
            let destination = Destination::Directory { path: into.path().into(), sync: false };
            let options = ReceiveOptions { from: Some(sender_addr), ..ReceiveOptions::new(group) };
            Receiver::new(node(), destination, options).run(|_| ControlFlow::Continue(()))
        })
    };
    // Who does not call it does not have it answer.
    let busy = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let listener = busy.join_group(group).unwrap();
    let to = ByHand::offered(&busy, sender_addr);
    let cast = to.cast;
    to.say(&Message::Want { cast, ordered: false, name: "busy".into(), ranges: vec![(1, 64)] });
    let first = receiver();
    let membership = listener.accept(Duration::from_secs(20)).expect("there is a group");
    // And it does not, for longer than one that joins has to answer.
    std::thread::sleep(Duration::from_secs(1));
    let late = receiver();
    std::thread::sleep(Duration::from_secs(5));
    while to.heard() != (Message::Resync { cast }) {}
    drop(membership);
    to.say(&Message::Complete { cast, resumed_bytes: 0 });
    let report = sender.join().unwrap().unwrap();
    first.join().unwrap().unwrap();
    late.join().unwrap().unwrap();
    assert!(report.is_complete(), "{report:?}");
    // What went before it came, and not what went after, too.
    assert!(report.wire.bytes < 64 * u64::from(PIECE_BYTES) * 7 / 4, "{report:?}");
}
