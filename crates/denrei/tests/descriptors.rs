//! How many descriptors a Node has: the only test of its process, whose descriptors are counted.

mod common;

use common::background;
use denrei::{Bytes, ChannelId, Config, Drive, Message, Node, PeerId};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

fn content(number: u64) -> Bytes {
    number.to_le_bytes().repeat(125).into()
}

fn expect(node: &Node) -> Message {
    node.recv_timeout(LONG).unwrap().expect("a message within ten seconds")
}

#[test]
fn one_socket_serves_hundreds_of_peers() {
    let hub = Node::bind("127.0.0.1:0", Config { drive: background(), ..Config::default() }).unwrap();
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // Each would have one more to hear whether a hub that has no time is there.
    let mut config = Config { drive: Drive::Inline, ..Config::default() };
    config.socket.connected_sockets = 0;
    let leaf = || Node::bind("127.0.0.1:0", config.clone()).unwrap();
    let leaves: Vec<Node> = (0..200).map(|_| leaf()).collect();
    let before = fds();
    let peers: Vec<PeerId> = leaves.iter().map(|leaf| hub.connect(leaf.local_addr()).unwrap()).collect();
    for (number, peer) in peers.iter().enumerate() {
        hub.send(ChannelId { peer: *peer, channel: 0 }, content(number as u64)).unwrap();
    }
    for (number, leaf) in leaves.iter().enumerate() {
        let message = expect(leaf);
        assert_eq!(message.data, content(number as u64));
        leaf.send(message.channel, "thanks").unwrap();
    }
    for _ in &leaves {
        assert_eq!(expect(&hub).data, "thanks");
    }
    // One that is given up for a busier peer's is closed when it has been read empty.
    let begun = Instant::now();
    while fds() > before + 8 {
        let more = fds() - before;
        assert!(more <= 16 && begun.elapsed() < LONG, "{more} descriptors more");
        std::thread::sleep(Duration::from_millis(10));
    }
}
