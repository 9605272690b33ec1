//! Small and urgent messages beside bulk: a full channel holds up no other.

use denrei::{Bytes, ChannelId, Config, Drive, Node, PeerId};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);
const BULK: u16 = 0;
const URGENT: u16 = 1;

fn pair() -> (Node, PeerId, Node) {
    let bind = || Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
    let (sender, receiver) = (bind(), bind());
    let peer = sender.connect(receiver.local_addr()).unwrap();
    sender.set_priority(ChannelId { peer, channel: BULK }, 7).unwrap();
    sender.set_priority(ChannelId { peer, channel: URGENT }, 0).unwrap();
    (sender, peer, receiver)
}

#[test]
fn a_channel_that_nobody_reads_holds_up_no_other() {
    let (sender, peer, receiver) = pair();
    let bulk = Bytes::from(vec![0; 64 << 10]);
    let until = Instant::now() + LONG;
    let to = |channel| ChannelId { peer, channel };
    let fill = || sender.send_timeout(to(BULK), bulk.clone(), Duration::from_millis(300)).is_ok();
    // A machine that is busy takes longer than that to open the session.
    while fill() || receiver.peers().is_empty() {
        assert!(Instant::now() < until, "{:?}", sender.flow(peer));
    }
    let other = receiver.peers()[0].peer;
    // More than the channel's own room: each waits for those before it, and for no bulk.
    for number in 0..100_u64 {
        let message = vec![number as u8; 1000];
        sender.send_timeout(to(URGENT), message, LONG).unwrap();
        let urgent = ChannelId { peer: other, channel: URGENT };
        let message = receiver.recv_from(urgent, LONG).unwrap().expect("what is urgent arrives");
        assert_eq!((message.number, message.data[0]), (number, number as u8));
    }
    // Its own room is bounded too.
    let taken = (0..1000).take_while(|_| sender.try_send(to(URGENT), vec![1; 1000]).is_ok()).count();
    assert!(taken < 500, "{taken}");
}

#[test]
fn a_small_message_overtakes_a_large_one() {
    let (sender, peer, receiver) = pair();
    let to = |channel| ChannelId { peer, channel };
    sender.send(to(BULK), vec![0; 64 << 20]).unwrap();
    sender.send(to(URGENT), vec![1; 7]).unwrap();
    let first = receiver.recv_timeout(LONG).unwrap().expect("a message");
    assert_eq!((first.channel.channel, first.data.len()), (URGENT, 7));
    assert_eq!(receiver.recv_timeout(LONG).unwrap().expect("the other").data.len(), 64 << 20);
}
