//! Applications that compute between two calls, with `Drive::Inline`: nobody looks at their sockets meanwhile.

use denrei::{ChannelId, Config, Drive, Node, PeerId};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

/// A Node whose datagrams are as large as those of most networks.
fn bind(drive: Drive) -> Node {
    let mut config = Config { drive, ..Config::default() };
    config.protocol.max_datagram_bytes = 1472;
    Node::bind("127.0.0.1:0", config).unwrap()
}

/// A session between them that is open.
fn acquaint(from: &Node, to: &Node) -> PeerId {
    let peer = from.connect(to.local_addr()).unwrap();
    from.send(ChannelId { peer, channel: 0 }, vec![0; 10]).unwrap();
    let until = Instant::now() + LONG;
    while to.recv_timeout(Duration::from_millis(1)).unwrap().is_none() {
        assert!(Instant::now() < until, "it has not come");
        from.poll();
    }
    peer
}

/// Both are inline: what is sent is in the other's socket when the call returns. Where the environment has threads drive
/// them, these bring it soon.
#[test]
fn one_look_finds_all_that_is_in_the_socket() {
    const MESSAGES: u8 = 8;
    let is_inline = std::env::var_os(denrei::environment::DRIVE).is_none();
    let patience = if is_inline { Duration::ZERO } else { LONG };
    let (a, b) = (bind(Drive::Inline), bind(Drive::Inline));
    let peer = acquaint(&a, &b);
    let flow = || a.flow(peer).expect("it is there");
    for _ in 0..20 {
        let until = Instant::now() + LONG;
        while flow().in_flight_bytes > 0 {
            assert!(Instant::now() < until && b.recv_timeout(Duration::from_millis(1)).unwrap().is_none());
            a.poll();
        }
        let before = flow().counters.packets_sent;
        for number in 0..MESSAGES {
            a.send(ChannelId { peer, channel: 1 }, vec![number; 1400]).unwrap();
        }
        let sent = flow().counters.packets_sent - before;
        assert!(sent >= u64::from(MESSAGES) || !is_inline, "a first window has room for all");
        for number in 0..MESSAGES {
            let message = b.recv_timeout(patience).unwrap().expect("it is in the socket's buffer");
            assert_eq!(message.data, vec![number; 1400]);
        }
    }
}

/// A queue it would be if it took what comes 50 ms later all the time: two datagrams a look, a minute and more.
#[test]
fn who_computes_is_sent_more_than_two_datagrams_at_a_time() {
    const MESSAGES: usize = 40;
    let (a, b) = (bind(Drive::Thread), bind(Drive::Inline));
    let peer = acquaint(&a, &b);
    for _ in 0..MESSAGES {
        a.send(ChannelId { peer, channel: 1 }, vec![1; 1 << 16]).unwrap();
    }
    let began = Instant::now();
    let mut received = 0;
    while received < MESSAGES && began.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(50));
        while b.try_recv().unwrap().is_some() {
            received += 1;
        }
    }
    assert_eq!(received, MESSAGES, "after {:?}", began.elapsed());
}
