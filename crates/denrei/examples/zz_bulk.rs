//! scratch
use bytes::Bytes;
use denrei::{ChannelId, Config, Node};
use std::time::Duration;
fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|c| c.parse().ok()).unwrap_or(10000);
    let size: usize = std::env::args().nth(2).and_then(|c| c.parse().ok()).unwrap_or(65536);
    let config = || {
        let mut c = Config { spin: Duration::from_millis(20), ..Config::default() };
        c.protocol.max_datagram_bytes = 1472;
        c
    };
    let a = Node::bind("127.0.0.1:0", config()).unwrap();
    let b = Node::bind("127.0.0.1:0", config()).unwrap();
    let peer = a.connect(b.local_addr()).unwrap();
    let to = ChannelId { peer, channel: 0 };
    let m = Bytes::from(vec![7u8; size]);
    let t = std::time::Instant::now();
    let mut got = 0;
    for _ in 0..n {
        while a.try_send(to, m.clone()).is_err() {
            a.poll();
            while b.try_recv().unwrap().is_some() {
                got += 1;
            }
        }
        while b.try_recv().unwrap().is_some() {
            got += 1;
        }
    }
    while got < n {
        a.poll();
        while b.try_recv().unwrap().is_some() {
            got += 1;
        }
    }
    println!(
        "{} ns per message; {:?} {:?} {:?}",
        t.elapsed().as_nanos() as u64 / n,
        a.io_counters(),
        b.io_counters(),
        a.flow(peer)
    );
}
