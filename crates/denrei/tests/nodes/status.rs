//! What Nodes say of themselves to whoever looks from outside.

use crate::common::background;
use denrei::environment::DRIVE;
use denrei::status::{NodeStatus, Seen, read};
use denrei::{ChannelId, Completion, Config, Drive, GroupOptions, Node, Rate};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

fn told_in(directory: &Path, drive: Drive) -> Node {
    let config = Config { status_directory: Some(directory.to_owned()), drive, ..Config::default() };
    Node::bind("127.0.0.1:0", config).unwrap()
}

fn status_of(directory: &Path, node: &Node) -> NodeStatus {
    let seen = read(directory).unwrap();
    let own = |status: &NodeStatus| status.address == node.local_addr();
    seen.nodes.into_iter().find(own).expect("it says how it is")
}

/// The only socket in the directory.
fn socket_in(directory: &Path) -> std::path::PathBuf {
    let mut entries = std::fs::read_dir(directory).unwrap();
    let path = entries.next().expect("a socket").unwrap().path();
    assert!(entries.next().is_none());
    path
}

#[test]
fn who_looks_from_outside_sees_what_the_application_sees() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("made/as/needed");
    for drive in [Drive::Inline, Drive::Thread, Drive::Pipelined] {
        let (one, two) = (told_in(&directory, drive), told_in(&directory, background()));
        let peer = one.connect(two.local_addr()).unwrap();
        let to = ChannelId { peer, channel: 0 };
        one.send_with(to, vec![7; 100_000], Completion::Delivered).unwrap();
        assert!(one.flush(peer, SOON));
        let message = two.recv_timeout(SOON).unwrap().unwrap();
        two.set_rate(message.channel.peer, Rate { bytes_per_s: 5_000_000, burst_bytes: 4_096 }).unwrap();
        let until = Instant::now() + SOON;
        while one.flow(peer).unwrap().rate.bytes_per_s != 5_000_000 {
            assert!(Instant::now() < until, "{drive:?}: the rate does not come");
            let _ = one.event_timeout(Duration::from_millis(10));
        }
        let (status, flow) = (status_of(&directory, &one), one.flow(peer).unwrap());
        assert_eq!(status.process, std::process::id());
        assert_eq!(status.incarnation, format!("{:?}", one.incarnation()));
        // The environment may name another for Nodes that are left at the default.
        let named = std::env::var(DRIVE).ok().filter(|_| drive == Drive::default());
        assert_eq!(status.drive, named.unwrap_or_else(|| format!("{drive:?}").to_lowercase()));
        assert!(!status.sealed && status.command.contains("nodes"), "{}", status.command);
        let [seen] = &status.peers[..] else { panic!("{drive:?}: {:?}", status.peers) };
        assert_eq!((seen.peer, seen.address, &*seen.phase), (peer.as_u64(), two.local_addr(), "open"));
        assert_eq!(seen.incarnation, Some(format!("{:?}", two.incarnation())));
        assert_eq!((seen.min_rtt_ns, seen.weight), (flow.min_rtt_ns, flow.weight));
        assert_eq!(seen.rate.map(|rate| (rate.bytes_per_s, rate.burst_bytes)), Some((5_000_000, 4_096)));
        assert_eq!(seen.counters.messages_sent, 1);
        let other = status_of(&directory, &two);
        assert_eq!(other.peers[0].rate_set.map(|rate| rate.bytes_per_s), Some(5_000_000));
        assert!(other.counters.datagrams > 1, "{:?}", other.counters);
        drop((one, two));
        assert_eq!(read(&directory).unwrap(), Seen::default(), "{drive:?}");
    }
}

#[test]
fn all_shards_say_what_their_peers_do() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        status_directory: Some(directory.path().to_owned()),
        drive: Drive::Pipelined,
        shards: 4,
        ..Config::default()
    };
    let hub = Node::bind("127.0.0.1:0", config).unwrap();
    let spokes: Vec<_> = (0..8).map(|_| Node::bind("127.0.0.1:0", Config::default()).unwrap()).collect();
    for spoke in &spokes {
        let peer = spoke.connect(hub.local_addr()).unwrap();
        spoke.send(ChannelId { peer, channel: 0 }, "here").unwrap();
        assert!(spoke.flush(peer, SOON));
        hub.recv_timeout(SOON).unwrap().expect("it arrives");
    }
    let status = status_of(directory.path(), &hub);
    let mut seen: Vec<SocketAddr> = status.peers.iter().map(|peer| peer.address).collect();
    let mut all: Vec<SocketAddr> = spokes.iter().map(Node::local_addr).collect();
    seen.sort();
    all.sort();
    assert_eq!(seen, all);
}

#[test]
fn groups_are_seen_at_both_ends() {
    let directory = tempfile::tempdir().unwrap();
    let (opener, member) = (told_in(directory.path(), background()), told_in(directory.path(), background()));
    let address: SocketAddr = "239.255.62.1:7462".parse().unwrap();
    let options = GroupOptions { backend: denrei::GroupBackend::Unicast, ..GroupOptions::default() };
    let listener = member.join_group(address).unwrap();
    let group = opener.open_group(address, &[member.local_addr()], options).unwrap();
    let membership = listener.accept(SOON).expect("it begins");
    group.send("one order for many").unwrap();
    assert!(group.flush(SOON));
    let [seen] = &status_of(directory.path(), &opener).groups[..] else { panic!("no group") };
    assert_eq!((seen.address, seen.open, seen.messages_sent), (address, true, 1));
    assert_eq!(seen.messages_acknowledged, 1);
    assert!(seen.bytes_sent > 18, "{}", seen.bytes_sent);
    let [of_member] = &seen.members[..] else { panic!("{:?}", seen.members) };
    assert_eq!((of_member.address, &*of_member.path), (member.local_addr(), "unicast"));
    let joined = status_of(directory.path(), &member).memberships;
    assert_eq!((joined.len(), joined[0].opener), (1, opener.local_addr()));
    assert_eq!(joined[0].group, seen.group);
    drop(membership);
}

/// What a process leaves that was killed; what is stopped; what is not a Node's at all.
#[test]
fn the_dead_are_cleared_away_and_the_stopped_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name| directory.path().join(name);
    drop(UnixListener::bind(path("1-dead.socket")).unwrap());
    let node = told_in(directory.path(), background());
    assert!(!path("1-dead.socket").exists(), "a Node that begins clears it away");
    drop(UnixListener::bind(path("2-dead.socket")).unwrap());
    let _stopped = UnixListener::bind(path("3-stopped.socket")).unwrap();
    // Nothing but a Node's socket is removed, whatever it is called.
    std::fs::write(path("4-file.socket"), "no socket at all").unwrap();
    drop(UnixListener::bind(path("others.socket")).unwrap());
    std::fs::write(path("notes.txt"), "of no concern").unwrap();
    let seen = read(directory.path()).unwrap();
    assert_eq!(seen.nodes.len(), 1);
    assert_eq!(seen.silent, [path("3-stopped.socket")]);
    assert!(!path("2-dead.socket").exists());
    for kept in ["4-file.socket", "others.socket", "notes.txt"] {
        assert!(path(kept).exists(), "{kept}");
    }
    assert_eq!(seen.nodes[0].address, node.local_addr());
}

/// Nothing is said of a Node that is killed while it is asked.
#[test]
fn who_dies_while_it_is_asked_is_cleared_away() {
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("1-killed.socket")).unwrap();
    let killed = std::thread::spawn(move || {
        let (asked, _) = listener.accept().unwrap();
        drop(listener);
        drop(asked);
    });
    assert_eq!(read(directory.path()).unwrap(), Seen::default());
    killed.join().unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// What listens there and is no Node of this version is named as well, and nothing that it says does harm.
#[test]
fn who_answers_with_something_else_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let node = told_in(directory.path(), background());
    let mut line = String::new();
    UnixStream::connect(socket_in(directory.path())).unwrap().read_to_string(&mut line).unwrap();
    let half = &line[..line.len() / 2];
    let older = line.replace("\"sealed\":false,", "");
    let newer = line.replace("\"sealed\":false,", "\"sealed\":false,\"more\":[1],");
    let others = [
        ("1-half", half),
        ("2-nonsense", "hello\n"),
        ("3-older", &older),
        ("4-nothing", ""),
        ("5-newer", &newer),
    ];
    let mut paths = Vec::new();
    let answers = others.iter().map(|(name, answer)| {
        paths.push(directory.path().join(name).with_extension("socket"));
        let listener = UnixListener::bind(paths.last().unwrap()).unwrap();
        let answer = (*answer).to_owned();
        std::thread::spawn(move || {
            listener.accept().unwrap().0.write_all(answer.as_bytes()).unwrap();
            listener
        })
    });
    let answers: Vec<_> = answers.collect();
    let seen = read(directory.path()).unwrap();
    for answer in answers {
        drop(answer.join().unwrap());
    }
    assert_eq!(seen.silent, [&*paths[0], &*paths[3]]);
    let unreadable: Vec<_> = seen.unreadable.iter().map(|of| (of.process, &of.path)).collect();
    assert_eq!(unreadable, [(2, &paths[1]), (3, &paths[2])]);
    assert!(seen.unreadable[1].reason.contains("missing field `sealed`"), "{:?}", seen.unreadable[1]);
    let addresses: Vec<_> = seen.nodes.iter().map(|status| status.address).collect();
    assert_eq!(addresses, [node.local_addr(); 2]);
}

/// Counters and lists are added from version to version; what is unknown is nothing then.
#[test]
fn what_another_version_does_not_count_is_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let node = told_in(directory.path(), background());
    node.connect("127.0.0.1:9".parse().unwrap()).unwrap();
    let status = status_of(directory.path(), &node);
    let mut older = serde_json::to_value(&status).unwrap();
    let without =
        |object: &mut serde_json::Value, name| object.as_object_mut().unwrap().remove(name).unwrap();
    for name in ["groups", "memberships"] {
        without(&mut older, name);
    }
    without(&mut older["counters"], "retries");
    without(&mut older["peers"][0], "min_rtt_ns");
    without(&mut older["peers"][0]["counters"], "messages_sent");
    let read: NodeStatus = serde_json::from_value(older.clone()).unwrap();
    assert_eq!((read.counters, &read.peers), (status.counters, &status.peers));
    without(&mut older, "counters");
    let read: NodeStatus = serde_json::from_value(older).unwrap();
    assert_eq!((read.counters.datagrams, &read.groups), (0, &Vec::new()));
}

/// Who asks and does not read, or goes away, holds up neither the next nor the end of the Node.
#[test]
fn nobody_who_asks_holds_a_node_up() {
    let directory = tempfile::tempdir().unwrap();
    let node = told_in(directory.path(), background());
    let path = socket_in(directory.path());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // More peers than the socket's buffer has room to tell of.
    for port in 1..=700 {
        node.connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    }
    let mut silent: Vec<_> = (0..2).map(|_| UnixStream::connect(&path).unwrap()).collect();
    drop(UnixStream::connect(&path).unwrap());
    silent[0].write_all(b"what is said to it is of no matter").unwrap();
    let mut answer = String::new();
    UnixStream::connect(&path).unwrap().read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("}\n"), "whole, after those who did not read");
    let asking = UnixStream::connect(&path).unwrap();
    let begun = Instant::now();
    node.peers().iter().for_each(|flow| _ = node.abort(flow.peer, 0x8000, "done"));
    drop(node);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(!path.exists());
    drop(asking);
}

#[test]
fn a_directory_that_cannot_be_is_refused_with_what_to_do() {
    let long = format!("/tmp/{}", "x".repeat(120));
    for directory in ["/proc/denrei", "/dev/null/x", long.as_str()] {
        let mut config = Config::default();
        config.set("status_directory", directory).unwrap();
        let refused = Node::bind("127.0.0.1:0", config).unwrap_err().to_string();
        assert!(refused.contains(directory) && refused.contains("DENREI_STATUS_DIRECTORY"), "{refused}");
    }
    let _ = std::fs::remove_dir(long);
}

/// The name under which a socket is made is shorter than the one that it is given away by.
#[test]
fn a_node_listens_where_it_can_be_reached_or_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let base = directory.path().as_os_str().len() + 1;
    let mut refused = 0;
    for length in 60.max(base + 1)..90 {
        let directory = directory.path().join("x".repeat(length - base));
        let config = Config { status_directory: Some(directory.clone()), ..Config::default() };
        match Node::bind("127.0.0.1:0", config) {
            Ok(node) => assert_eq!(status_of(&directory, &node).address, node.local_addr(), "{length}"),
            Err(_) => refused += 1,
        }
    }
    assert!((10..30).contains(&refused), "{refused}");
}

/// Whatever reads a line has it in the fields that are named.
#[test]
fn what_is_said_is_one_line_of_json() {
    let directory = tempfile::tempdir().unwrap();
    let node = told_in(directory.path(), background());
    let mut answer = String::new();
    UnixStream::connect(socket_in(directory.path())).unwrap().read_to_string(&mut answer).unwrap();
    assert_eq!(answer.find('\n'), Some(answer.len() - 1));
    let status: NodeStatus = serde_json::from_str(&answer).unwrap();
    assert_eq!(status.address, node.local_addr());
    assert_eq!(serde_json::to_string(&status).unwrap(), answer.trim_end());
}

/// To begin, a Node looks whether those that are there are dead; if hundreds of one process did, it would take seconds.
#[test]
fn nodes_of_a_process_do_not_ask_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let listen = |name: String| {
        let listener = UnixListener::bind(directory.path().join(name)).unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    let own = listen(format!("{}-asked.socket", std::process::id()));
    let other = listen("1-asked.socket".to_owned());
    let _nodes: Vec<_> = (0..3).map(|_| told_in(directory.path(), Drive::Inline)).collect();
    let asked = |listener: &UnixListener| std::iter::from_fn(|| listener.accept().ok()).count();
    assert_eq!((asked(&own), asked(&other)), (0, 3));
}

#[test]
fn what_the_process_is_short_of_is_no_matter_of_the_directory() {
    let refused =
        |source| denrei::BindError::StatusDirectory { directory: "/somewhere".into(), source }.to_string();
    // EMFILE is 24 on Linux and macOS.
    let descriptors = refused(std::io::Error::from_raw_os_error(24));
    assert!(descriptors.contains("ulimit -n") && !descriptors.contains("name a directory"), "{descriptors}");
    let threads = refused(ErrorKind::WouldBlock.into());
    assert!(threads.contains("ulimit -u") && !threads.contains("name a directory"), "{threads}");
    let denied = refused(ErrorKind::PermissionDenied.into());
    assert!(denied.contains("name a directory"), "{denied}");
}
