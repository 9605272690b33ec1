//! What senders and receivers take of others that are not what they should be.

use super::sides::{Side, denrei, group, on_loopback, recv, send};
use denrei::{ChannelId, Config, Drive, Node, SendError};
use denrei_cast::message::{CHANNEL, MAX_MESSAGE_BYTES, Message, VERSION};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Says HELLO to a side until that has said what it takes; how much that is, bytes.
fn largest_taken(side: SocketAddr) -> u64 {
    let node = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
    let peer = node.connect(side).unwrap();
    let channel = ChannelId { peer, channel: CHANNEL };
    node.send(channel, Message::Hello { version: VERSION }.encode()).unwrap();
    assert!(node.flush(peer, Duration::from_secs(20)));
    match node.try_send(channel, vec![0; 64 << 20]) {
        Err(SendError::TooLarge { max, .. }) => max,
        taken => panic!("{taken:?}"),
    }
}

/// One of 16 GB was, and cost as much memory, though no message of a cast is larger than a piece with its digests.
#[test]
fn messages_that_none_of_a_cast_can_be_as_large_as_are_not_taken() {
    let (into, group) = (tempfile::tempdir().unwrap(), group());
    let (_receiver, addr) = Side::receiver(&mut on_loopback(recv(into.path(), &group)));
    assert_eq!(largest_taken(addr.parse().unwrap()), MAX_MESSAGE_BYTES);
    let file = into.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let at = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = send(&[&file], &group);
    let _sender = Side::start(command.args(["--min-members", "2", "--bind", &at.to_string()]));
    assert_eq!(largest_taken(at), MAX_MESSAGE_BYTES);
}

/// The system ended the process of one whose user has a limit (ulimit -f), and the sender waited for it to come back.
#[test]
fn one_whose_files_may_not_become_so_large_says_so() {
    let (into, from, group) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), group());
    let file = from.path().join("file");
    std::fs::write(&file, vec![7; 1 << 20]).unwrap();
    let receiver = on_loopback(recv(into.path(), &group));
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 100 && exec \"$0\" \"$@\""]).arg(receiver.get_program());
    let (receiver, addr) = Side::receiver(limited.args(receiver.get_args()));
    let (status, report) = Side::start(send(&[&file], &group).args(["--members", &addr])).json();
    assert_eq!(status, Some(1), "{report}");
    let error = report["members"][0]["error"].as_str().unwrap();
    assert!(error.contains("File too large") && error.contains("ulimit -f"), "{error}");
    assert_eq!(receiver.json().0, Some(1));
}

/// It is asked, whatever is heard.
#[test]
fn who_names_its_sender_is_not_warned_that_others_are_not_heard() {
    let into = tempfile::tempdir().unwrap();
    let mut command = denrei();
    command.args(["cast", "recv", "--from", "[::1]:9", "--wait", "0.1", "--into"]).arg(into.path());
    let said = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(!said.contains("cannot hear"), "{said}");
}

/// Sends two files of so many bytes, which `change` changes while a receiver is waited for: how that ends.
fn changed_meanwhile(sizes: [usize; 2], change: impl FnOnce(&Path)) -> (Option<i32>, String) {
    let (into, from, group) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), group());
    for (name, size) in ["a", "b"].into_iter().zip(sizes) {
        std::fs::write(from.path().join(name), vec![7; size]).unwrap();
    }
    let mut sender = Side::start(send(&[from.path()], &group).args(["--min-members=1"]));
    let mut said = BufReader::new(sender.0.as_mut().unwrap().stderr.take().unwrap()).lines();
    // It has looked at all then.
    said.find(|line| line.as_ref().unwrap().starts_with("sending from")).unwrap().unwrap();
    change(from.path());
    let (receiver, _) = Side::receiver(&mut on_loopback(recv(into.path(), &group)));
    let (status, report) = sender.json();
    assert_eq!(receiver.json().0, if status == Some(0) { Some(0) } else { Some(1) });
    (status, report["error"].as_str().unwrap_or_default().to_owned())
}

/// There is nothing in it to be read, and it was sent as it had been, empty, and all was well.
#[test]
fn an_empty_file_that_is_written_to_while_receivers_are_waited_for_is_named() {
    let (status, error) = changed_meanwhile([0, 5], |dir| std::fs::write(dir.join("a"), "late").unwrap());
    assert!(status == Some(1) && error.contains("a changed while"), "{status:?}: {error}");
}

/// It was for what has left in less than a fifth of a second.
#[test]
fn a_cast_some_of_which_has_left_is_none_that_could_not_be_tried() {
    let (status, error) = changed_meanwhile([1 << 20; 2], |dir| {
        std::fs::remove_file(dir.join("b")).unwrap();
        std::os::unix::fs::symlink("b", dir.join("b")).unwrap();
    });
    assert!(status == Some(1) && error.contains("symbolic links"), "{status:?}: {error}");
}
