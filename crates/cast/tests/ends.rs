//! How receptions end that do not complete, and what their senders hear of that.

#[path = "../../denrei/tests/common/cable.rs"]
mod cable;

use cable::Cable;
use denrei::{ChannelId, Config, Drive, Incoming, Node, PeerId};
use denrei_cast::manifest::{Entry, Extent, Kind, Manifest};
use denrei_cast::message::{CHANNEL, FailureCode, Message, Offer, PIECE_BYTES, Piece, short};
use denrei_cast::{
    CastError, Destination, Members, Outcome, ReceiveOptions, ReceiveProgress, ReceiveReport, Receiver,
    SendOptions, SendReport, Sender, Source, scan,
};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 79, 4)), 7118);

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
            ..SendOptions::new(GROUP, Members::Listed(members))
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
        let receiving = node();
        let addr = receiving.local_addr();
        let destination = Destination::Directory { path: into.into(), sync: false };
        let receiver = Receiver::new(receiving, destination, ReceiveOptions::new(GROUP));
        let received = std::thread::spawn(move || receiver.run(|_| ControlFlow::Continue(())));
        let body_bytes = u64::from(PIECE_BYTES) * 2;
        let kind = Kind::File { size: body_bytes, extents: vec![Extent { offset: 0, len: body_bytes }] };
        let entry = Entry { parent: None, name: b"f".into(), mode: 0o644, mtime_ns: 0, kind };
        let encoded = Manifest { nonce: [0; 16], entries: vec![entry] }.encode();
        let (id, manifest_bytes) = (*blake3::hash(&encoded).as_bytes(), encoded.len() as u64);
        let offer = Offer { id, group: GROUP, piece_bytes: PIECE_BYTES, manifest_bytes, body_bytes };
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
        assert!(text.contains("receive again"), "{text}");
        assert!(side.received.join().unwrap().is_err());
    }
}

/// Sends a file of three pieces over a cable that is cut, once, when the receiver's progress is what `cuts` says, until
/// `meanwhile` returns, which is told where the receiver believes the sender to be.
fn over_a_cable(
    failure_timeout: Duration,
    rate: Option<u64>,
    into: &Path,
    cuts: impl Fn(&ReceiveProgress) -> bool + Send + 'static,
    meanwhile: impl FnOnce(SocketAddr) + Send + 'static,
) -> (SendReport, Result<ReceiveReport, CastError>) {
    let from = tempfile::tempdir().unwrap();
    std::fs::write(from.path().join("f"), vec![7; PIECE_BYTES as usize * 3]).unwrap();
    let node = || {
        let mut config = Config { drive: Drive::Thread, ..Config::default() };
        config.protocol.failure_timeout = failure_timeout;
        config.protocol.keepalive = Some(Duration::from_millis(100));
        Node::bind("127.0.0.1:0", config).unwrap()
    };
    let receiving = node();
    let cable = Cable::to(receiving.local_addr());
    let destination = Destination::Directory { path: into.into(), sync: false };
    let receiver = Receiver::new(receiving, destination, ReceiveOptions::new(GROUP));
    let (both, mut meanwhile) = ([cable.out_is_cut, cable.back_is_cut], Some(meanwhile));
    let received = std::thread::spawn(move || {
        receiver.run(|progress| {
            if let Some(sender) = progress.sender
                && cuts(progress)
                && let Some(meanwhile) = meanwhile.take()
            {
                both.iter().for_each(|way| way.store(true, SeqCst));
                let both = both.clone();
                std::thread::spawn(move || {
                    meanwhile(sender);
                    both.iter().for_each(|way| way.store(false, SeqCst));
                });
            }
            ControlFlow::Continue(())
        })
    });
    let source = Source::files(scan(&[from.path().join("f")], false).unwrap()).unwrap();
    let options =
        SendOptions { rate_bytes_per_s: rate, ..SendOptions::new(GROUP, Members::Listed(vec![cable.addr])) };
    let report = Sender::new(node(), source, options).unwrap().run(|_| ControlFlow::Continue(())).unwrap();
    (report, received.join().unwrap())
}

const SHORT: Duration = Duration::from_millis(500);

fn all_is_here(progress: &ReceiveProgress) -> bool {
    progress.total_bytes == Some(progress.bytes)
}

#[test]
fn one_whose_session_is_lost_as_it_completes_says_so_in_the_next() {
    let into = tempfile::tempdir().unwrap();
    let outage = |_| std::thread::sleep(Duration::from_secs(2));
    let (report, received) = over_a_cable(SHORT, None, into.path(), all_is_here, outage);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(received.unwrap().new_bytes, u64::from(PIECE_BYTES) * 3);
}

#[test]
fn one_that_fails_while_there_is_no_session_says_why_in_the_next() {
    let place = tempfile::tempdir().unwrap();
    let into = place.path().join("into");
    std::fs::create_dir(&into).unwrap();
    let directory = into.clone();
    let outage = move |_| {
        std::thread::sleep(Duration::from_millis(1500));
        std::fs::remove_dir_all(directory).unwrap();
        std::thread::sleep(Duration::from_millis(1000));
    };
    let begins = |progress: &ReceiveProgress| progress.bytes > 0;
    let rate = Some(u64::from(PIECE_BYTES));
    let (report, received) = over_a_cable(SHORT, rate, &into, begins, outage);
    let text = received.unwrap_err().to_string();
    assert!(text.starts_with("cannot go on in the directory "), "{text}");
    assert_eq!(report.members[0].outcome, Outcome::Failed(text));
}

/// It would be a member that has just come again.
#[test]
fn one_that_hears_its_sender_announced_while_that_does_not_answer_is_complete() {
    let into = tempfile::tempdir().unwrap();
    let announced = |sender: SocketAddr| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let beacon = [&b"denreica"[..], &sender.port().to_le_bytes(), b"announce"].concat();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(100));
            socket.send_to(&beacon, SocketAddr::new(GROUP.ip(), GROUP.port() + 1)).unwrap();
        }
    };
    let (report, received) = over_a_cable(PATIENCE, None, into.path(), all_is_here, announced);
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(received.unwrap().new_bytes, u64::from(PIECE_BYTES) * 3);
}

/// Sends a stream to one that breaks it off; how that ended, and how long it was waited for.
fn broken_off(retain_bytes: u64, patience: Duration) -> (SendReport, Duration) {
    let (into, receiving) = (tempfile::tempdir().unwrap(), node());
    let members = Members::Listed(vec![receiving.local_addr()]);
    let destination = Destination::Directory { path: into.path().into(), sync: false };
    let receiver = Receiver::new(receiving, destination, ReceiveOptions::new(GROUP));
    let received = std::thread::spawn(move || {
        let enough = u64::from(PIECE_BYTES) * 4;
        // Before its sender can hear of it: to end takes time, too.
        let mut left = None;
        let ended = receiver.run(|progress| match progress.bytes >= enough {
            true => {
                left.get_or_insert_with(Instant::now);
                ControlFlow::Break(())
            }
            false => ControlFlow::Continue(()),
        });
        assert!(matches!(ended, Err(CastError::Cancelled { stream: true })), "{ended:?}");
        left.unwrap()
    });
    let source = Source::stream("s", std::io::repeat(7).take(200_000_000), retain_bytes).unwrap();
    let rate_bytes_per_s = Some(4_000_000);
    let options = SendOptions { patience, rate_bytes_per_s, ..SendOptions::new(GROUP, members) };
    let report = Sender::new(node(), source, options).unwrap().run(|_| ControlFlow::Continue(())).unwrap();
    (report, received.join().unwrap().elapsed())
}

/// It was waited for as long as patience said, though the next would have been told that it is too late.
#[test]
fn one_that_leaves_a_stream_that_is_not_kept_from_its_beginning_is_not_waited_for() {
    let (report, waited) = broken_off(u64::from(PIECE_BYTES) * 2, PATIENCE);
    assert!(waited < PATIENCE / 2, "{waited:?}");
    let Outcome::Vanished(error) = &report.members[0].outcome else { panic!("{report:?}") };
    assert!(error.contains("interrupted") && error.contains("past what is kept of it"), "{error}");
}

#[test]
fn one_that_leaves_a_stream_that_is_kept_is_waited_for() {
    let (report, waited) = broken_off(64 << 20, Duration::from_secs(3));
    // Counted from when it was last looked whether it had been heard, which is each 200 ms, or later on a busy machine.
    assert!(waited >= Duration::from_millis(2_500), "{waited:?}");
    let Outcome::Vanished(error) = &report.members[0].outcome else { panic!("{report:?}") };
    assert!(!error.contains("past what is kept"), "{error}");
}

/// It had been given up for good, and the same had to be sent again.
#[test]
fn one_that_failed_for_its_disk_and_is_started_again_is_served_while_others_are() {
    let (from, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(from.path().join("f"), vec![7; 6_000_000]).unwrap();
    let (steady, failing) = (into.path().join("steady"), into.path().join("failing"));
    let [one, two] = [node(), node()];
    let addr = two.local_addr();
    let members = Members::Listed(vec![one.local_addr(), addr]);
    let receive = |node: Node, into: &Path| {
        std::fs::create_dir_all(into).unwrap();
        let destination = Destination::Directory { path: into.into(), sync: false };
        Receiver::new(node, destination, ReceiveOptions::new(GROUP))
    };
    let one = receive(one, &steady);
    let served = std::thread::spawn(move || one.run(|_| ControlFlow::Continue(())));
    let two = receive(two, &failing);
    let again = std::thread::spawn(move || {
        let ended = two.run(|progress| {
            if progress.bytes > 0 {
                // Once it is gone it cannot be removed.
                let _ = std::fs::remove_dir_all(&failing);
            }
            ControlFlow::Continue(())
        });
        assert!(matches!(&ended, Err(error) if error.code() == FailureCode::Storage), "{ended:?}");
        let node = Node::bind(addr, Config { drive: Drive::Thread, ..Config::default() }).unwrap();
        receive(node, &failing).run(|_| ControlFlow::Continue(()))
    });
    let source = Source::files(scan(&[from.path().join("f")], false).unwrap()).unwrap();
    let options = SendOptions { rate_bytes_per_s: Some(2_000_000), ..SendOptions::new(GROUP, members) };
    let report = Sender::new(node(), source, options).unwrap().run(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(again.join().unwrap().unwrap().bytes, 6_000_000);
    assert!(served.join().unwrap().is_ok());
}
