//! scratch
use bytes::Bytes;
use denrei::{ChannelId, Config, Node};
use std::time::Duration;
fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|c| c.parse().ok()).unwrap_or(10000);
    let config = || Config { spin: Duration::from_millis(20), ..Config::default() };
    let a = Node::bind("127.0.0.1:0", config()).unwrap();
    let b = Node::bind("127.0.0.1:0", config()).unwrap();
    let peer = a.connect(b.local_addr()).unwrap();
    let to = ChannelId { peer, channel: 0 };
    let m = Bytes::from(vec![7u8; 64]);
    let t = std::time::Instant::now();
    for _ in 0..n {
        a.send(to, m.clone()).unwrap();
        let got = loop {
            if let Some(m) = b.recv_timeout(Duration::from_millis(20)).unwrap() {
                break m;
            };
            a.poll();
        };
        b.send(got.channel, m.clone()).unwrap();
        loop {
            if a.recv_timeout(Duration::from_millis(20)).unwrap().is_some() {
                break;
            };
            b.poll();
        }
    }
    println!("{} ns per one-way; {:?}", t.elapsed().as_nanos() as u64 / 2 / n, a.io_counters());
}
