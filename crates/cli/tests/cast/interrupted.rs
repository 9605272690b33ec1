//! Senders and receivers that are interrupted: they say so, and nothing is taken for more than it is.

use crate::sides::{Side, begun, content, group, names, on_loopback, places, recv, send, wait_until};
use denrei::{ChannelId, Config, Event, Incoming, Node};
use denrei_cast::message::{CHANNEL, Message, Offer, PIECE_BYTES};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn interrupt(side: &Side) {
    let id = side.0.as_ref().unwrap().id().to_string();
    assert!(Command::new("kill").args(["-s", "INT", &id]).status().unwrap().success());
}

/// A side whose signals are not ignored, whatever runs the tests.
fn interruptible(command: &Command) -> Command {
    let mut env = Command::new("env");
    env.arg("--default-signal=INT").arg(command.get_program()).args(command.get_args());
    env
}

#[test]
fn receivers_hear_at_once_and_keep_what_they_have() {
    let (group, into, from) = (group(), places(2), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(6_000_000)).unwrap();
    let receivers = || -> Vec<(Side, String)> {
        into.iter().map(|dir| Side::receiver(&mut on_loopback(recv(dir.path(), &group)))).collect()
    };
    let sender = |receivers: &[(Side, String)], more: &str| {
        let members: Vec<&str> = receivers.iter().map(|(_, addr)| addr.as_str()).collect();
        let mut command = send(&[&file], &group);
        Side::start(&mut interruptible(command.args(["--members", &members.join(","), more])))
    };
    let sides = receivers();
    let first = sender(&sides, "--rate=3M");
    wait_until("a quarter is there", || into.iter().all(|dir| begun(dir.path()) > 1_500_000));
    interrupt(&first);
    let output = first.end();
    assert_eq!(output.status.signal(), Some(2), "as if it had not been caught: {output:?}");
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said["error"].as_str().unwrap().contains("was broken off"), "{said}");
    for (side, _) in sides {
        let (status, report) = side.json();
        assert_eq!(status, Some(1), "{report}");
        // And not that nothing was heard of the sender.
        assert!(report["error"].as_str().unwrap().contains("given up: the cast was broken off"), "{report}");
    }
    let sides = receivers();
    let (status, report) = sender(&sides, "--quiet").json();
    assert_eq!(status, Some(0), "{report}");
    for (side, _) in sides {
        let (status, report) = side.json();
        assert_eq!(status, Some(0), "{report}");
        assert!(report["resumed_bytes"].as_u64().unwrap() > 1_000_000, "{report}");
    }
}

/// A terminal interrupts `tar c . | denrei cast send -` as a whole: the end of `tar` is not that of the stream.
#[test]
fn a_stream_whose_writer_is_interrupted_with_the_sender_is_not_whole() {
    let (group, into) = (group(), places(1));
    let (side, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let mut sender =
        Side::start(&mut interruptible(send(&[Path::new("-")], &group).args(["--members", &addr])));
    let mut writer = sender.0.as_mut().unwrap().stdin.take().unwrap();
    writer.write_all(&content(3_000_000)).unwrap();
    let here = || {
        let staged = names(into[0].path()).into_iter().find(|name| name.starts_with(".denrei-cast-"));
        staged.and_then(|name| fs::metadata(into[0].path().join(name).join("tree/stdin")).ok())
    };
    wait_until("some of it is there", || here().is_some_and(|file| file.len() > 1_000_000));
    interrupt(&sender);
    drop(writer);
    assert_eq!(sender.end().status.signal(), Some(2));
    let (status, report) = side.json();
    assert_eq!(status, Some(1), "{report}");
    assert!(report["error"].as_str().unwrap().contains("a stream does not go on"), "{report}");
    assert_eq!(names(into[0].path()), [""; 0], "nor is it kept: it could fill the disk, one after the other");
}

#[test]
fn a_receiver_that_is_interrupted_is_known_to_have_gone() {
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(6_000_000)).unwrap();
    let (side, addr) = Side::receiver(&mut interruptible(&on_loopback(recv(into[0].path(), &group))));
    let mut command = send(&[&file], &group);
    let sender = Side::start(command.args(["--rate=3M", "--patience=0.3", "--members", &addr]));
    wait_until("a quarter is there", || begun(into[0].path()) > 1_500_000);
    interrupt(&side);
    let (status, report) = sender.json();
    assert_eq!((status, &report["members"][0]["state"]), (Some(1), &"vanished".into()), "{report}");
    let error = report["members"][0]["error"].as_str().unwrap();
    assert!(error.contains("ended by the peer: interrupted"), "{report}");
    let ended = side.end();
    assert_eq!(ended.status.signal(), Some(2), "as if it had not been caught");
    assert!(String::from_utf8_lossy(&ended.stdout).contains("was broken off"), "{ended:?}");
}

/// Nobody reads what else it writes: it ends all the same.
#[test]
fn a_receiver_that_is_interrupted_tells_its_sender() {
    let group = group();
    let (mut side, addr) = Side::receiver(&mut interruptible(&on_loopback(recv(Path::new("-"), &group))));
    let mut command = send(&[Path::new("-")], &group);
    let mut sender = Side::start(command.args(["--patience=0.3", "--members", &addr]));
    let mut writer = sender.0.as_mut().unwrap().stdin.take().unwrap();
    writer.write_all(&content(3_000_000)).unwrap();
    side.0.as_mut().unwrap().stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
    interrupt(&side);
    let (status, report) = sender.json();
    assert_eq!((status, &report["members"][0]["state"]), (Some(1), &"vanished".into()), "{report}");
    let error = report["members"][0]["error"].as_str().unwrap();
    assert!(error.contains("ended by the peer: interrupted"), "{report}");
    assert_eq!(side.end().status.signal(), Some(2), "as if it had not been caught");
}

#[test]
fn a_sender_that_stays_for_others_ends_with_its_summary() {
    let (group, into, from) = (group(), places(1), tempfile::tempdir().unwrap());
    let file = from.path().join("file");
    fs::write(&file, content(1_000_000)).unwrap();
    let (side, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let mut command = send(&[&file], &group);
    let sender = Side::start(&mut interruptible(command.args(["--linger=600", "--members", &addr])));
    assert_eq!(side.json().0, Some(0));
    interrupt(&sender);
    let (status, report) = sender.json();
    assert_eq!((status, &report["complete"]), (Some(0), &true.into()), "{report}");
}

/// The process ends before it would acknowledge what it has heard, which its sender would wait for.
#[test]
fn one_that_is_given_up_ends_its_session_with_its_process() {
    let (group, into) = (group(), places(1));
    let (side, addr) = Side::receiver(&mut on_loopback(recv(into[0].path(), &group)));
    let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let peer = node.connect(addr.parse().unwrap()).unwrap();
    let say = |message: Message| node.send(ChannelId { peer, channel: CHANNEL }, message.encode()).unwrap();
    let group = group.parse().unwrap();
    say(Message::Offer(Offer {
        id: [7; 32],
        group,
        piece_bytes: PIECE_BYTES,
        manifest_bytes: 9,
        body_bytes: 9,
    }));
    say(Message::Abort { text: "enough".into() });
    let lost = std::iter::repeat_with(|| node.next(Duration::from_secs(60)).unwrap().expect("it ends"));
    let lost = lost.into_iter().find_map(|next| match next {
        Incoming::Event(Event::PeerLost { reason, .. }) => Some(reason.to_string()),
        _ => None,
    });
    assert!(lost.as_ref().unwrap().starts_with("ended by the peer"), "{lost:?}");
    let (status, report) = side.json();
    assert_eq!((status, &report["error"]), (Some(1), &"the sender has given up: enough".into()));
}
