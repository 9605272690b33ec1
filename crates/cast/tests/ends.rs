//! How receptions end that do not complete, and what their senders hear of that.

#[path = "../../denrei/tests/common/cable.rs"]
mod cable;

use cable::Cable;
use denrei::{ChannelId, Config, Drive, Incoming, Node, PeerId};
use denrei_cast::manifest::{Entry, Extent, Kind, Manifest};
use denrei_cast::message::{CHANNEL, FailureCode, Message, Offer, PIECE_BYTES, Piece, short};
use denrei_cast::{
    CastError, Destination, Members, ReceiveOptions, ReceiveReport, Receiver, SendOptions, Sender, Source,
    scan,
};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn node() -> Node {
    Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
}

#[test]
fn a_cast_none_of_whose_receivers_can_be_reached_from_its_address_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("f"), "content").unwrap();
    let cast = |members: Vec<SocketAddr>| {
        let source = Source::files(scan(&[place.path().join("f")], false).unwrap()).unwrap();
        let options = SendOptions {
            wait: Duration::from_millis(100),
            patience: Duration::ZERO,
            ..SendOptions::new("239.255.79.4:7118".parse().unwrap(), Members::Listed(members))
        };
        Sender::new(node(), source, options).unwrap().run(|_| ControlFlow::Continue(()))
    };
    let (other_version, nobodys) = ("[::1]:7117".parse().unwrap(), "127.0.0.1:9".parse().unwrap());
    let error = cast(vec![other_version]).unwrap_err().to_string();
    assert!(
        error.starts_with("no member can be asked: [::1]:7117 cannot be reached from 127.0.0.1"),
        "{error}"
    );
    // Beside others it is one that failed.
    assert!(!cast(vec![other_version, nobodys]).unwrap().is_complete());
}

/// A sender that says what the test wants, to a receiver that has the manifest of a file of two pieces.
struct Side {
    node: Node,
    peer: PeerId,
    cast: u64,
    received: JoinHandle<Result<ReceiveReport, CastError>>,
}

impl Side {
    fn begin(into: &Path) -> Self {
        let group: SocketAddr = "239.255.79.4:7118".parse().unwrap();
        let receiving = node();
        let addr = receiving.local_addr();
        let destination = Destination::Directory { path: into.into(), sync: false };
        let receiver = Receiver::new(receiving, destination, ReceiveOptions::new(group));
        let received = std::thread::spawn(move || receiver.run(|_| ControlFlow::Continue(())));
        let body_bytes = u64::from(PIECE_BYTES) * 2;
        let kind = Kind::File { size: body_bytes, extents: vec![Extent { offset: 0, len: body_bytes }] };
        let entry = Entry { parent: None, name: b"f".into(), mode: 0o644, mtime_ns: 0, kind };
        let encoded = Manifest { nonce: [0; 16], entries: vec![entry] }.encode();
        let (id, manifest_bytes) = (*blake3::hash(&encoded).as_bytes(), encoded.len() as u64);
        let offer = Offer { id, group, piece_bytes: PIECE_BYTES, manifest_bytes, body_bytes };
        let node = node();
        let peer = node.connect(addr).unwrap();
        let side = Self { node, peer, cast: short(&id), received };
        side.say(&Message::Offer(offer));
        side.piece(0, encoded);
        let body = |said: &Message| matches!(said, Message::Want { ranges, .. } if ranges == &[(1, 2)]);
        side.hear(body);
        side
    }

    fn say(&self, message: &Message) {
        self.node.send(ChannelId { peer: self.peer, channel: CHANNEL }, message.encode()).unwrap();
    }

    fn piece(&self, number: u32, data: Vec<u8>) {
        let (cast, data) = (self.cast, data.into());
        self.say(&Message::Piece(Piece { cast, number, last: false, digests: Vec::new(), data }));
    }

    /// The next of those messages that are looked for.
    fn hear(&self, wanted: impl Fn(&Message) -> bool) -> Message {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(Incoming::Message(message)) = self.node.next(Duration::from_millis(100)).unwrap() {
                let said = Message::decode(message.data).unwrap();
                if wanted(&said) {
                    return said;
                }
            }
        }
        panic!("nothing was heard for {PATIENCE:?}");
    }
}

#[test]
fn one_whose_directory_is_removed_says_so_while_it_receives() {
    let into = tempfile::tempdir().unwrap();
    let (directory, elsewhere) = (into.path().join("d"), into.path().join("e"));
    for way in [
        |from: &Path, _: &Path| std::fs::remove_dir_all(from),
        |from: &Path, to: &Path| std::fs::rename(from, to),
    ] {
        std::fs::create_dir(&directory).unwrap();
        let side = Side::begin(&directory);
        side.piece(1, vec![7; PIECE_BYTES as usize]);
        let one = u64::from(PIECE_BYTES);
        side.hear(|said| matches!(said, Message::Progress { bytes, .. } if *bytes == one));
        way(&directory, &elsewhere).unwrap();
        let said = side.hear(|said| matches!(said, Message::Failed { .. }));
        let Message::Failed { code, text } = said else { unreachable!() };
        assert_eq!(code, FailureCode::Storage);
        assert!(
            text.starts_with("cannot go on in the directory ") && text.contains("No such file"),
            "{text}"
        );
        assert!(side.received.join().unwrap().is_err());
    }
}

#[test]
fn one_whose_session_is_lost_as_it_completes_says_so_in_the_next() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(from.path().join("f"), vec![7; PIECE_BYTES as usize * 3]).unwrap();
    let group: SocketAddr = "239.255.79.4:7118".parse().unwrap();
    let node = || {
        let mut config = Config { drive: Drive::Thread, ..Config::default() };
        config.protocol.failure_timeout = Duration::from_millis(500);
        config.protocol.keepalive = Some(Duration::from_millis(100));
        Node::bind("127.0.0.1:0", config).unwrap()
    };
    let receiving = node();
    let cable = Cable::to(receiving.local_addr());
    let destination = Destination::Directory { path: into.path().into(), sync: false };
    let receiver = Receiver::new(receiving, destination, ReceiveOptions::new(group));
    let both = [cable.out_is_cut.clone(), cable.back_is_cut.clone()];
    let received = std::thread::spawn(move || {
        let mut was_cut = false;
        receiver.run(|progress| {
            if progress.total_bytes == Some(progress.bytes) && !was_cut {
                was_cut = true;
                both.iter().for_each(|way| way.store(true, SeqCst));
                let both = both.clone();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_secs(2));
                    both.iter().for_each(|way| way.store(false, SeqCst));
                });
            }
            ControlFlow::Continue(())
        })
    });
    let source = Source::files(scan(&[from.path().join("f")], false).unwrap()).unwrap();
    let options = SendOptions::new(group, Members::Listed(vec![cable.addr]));
    let report = Sender::new(node(), source, options).unwrap().run(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(received.join().unwrap().unwrap().new_bytes, u64::from(PIECE_BYTES) * 3);
}
