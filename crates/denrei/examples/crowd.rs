//! Ping-pong with one peer while a thousand others are connected and idle, beside ping-pong with
//! that peer alone, interleaved: what a crowd on the same port costs.
//!
//! Usage: `cargo run --release -p denrei --example crowd [PEERS] [EXCHANGES]`

use denrei::{Bytes, ChannelId, Config, Drive, Node, PeerId};
use std::time::{Duration, Instant};

/// Runs of each kind; the median counts.
const RUNS: usize = 7;

fn busy_polling() -> Config {
    Config { spin: Duration::from_secs(1), ..Config::default() }
}

/// Median round trip in microseconds.
fn ping_pong(node: &Node, peer: PeerId, exchanges: u32) -> f64 {
    let channel = ChannelId { peer, channel: 0 };
    let message = Bytes::from(vec![7; 64]);
    let began = Instant::now();
    for _ in 0..exchanges {
        node.send(channel, message.clone()).expect("the peer is there");
        node.recv().expect("the socket works");
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(exchanges)
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let peers: usize = arguments.next().map_or(Ok(1000), |peers| peers.parse())?;
    let exchanges: u32 = arguments.next().map_or(Ok(20_000), |count| count.parse())?;

    let echo = Node::bind("127.0.0.1:0", busy_polling())?;
    let addr = echo.local_addr();
    std::thread::spawn(move || {
        while let Ok(message) = echo.recv() {
            if echo.send(message.channel, message.data).is_err() {
                return;
            }
        }
    });

    let alone = Node::bind("127.0.0.1:0", busy_polling())?;
    let crowded = Node::bind("127.0.0.1:0", busy_polling())?;
    let in_thread = || Config { drive: Drive::Thread, ..Config::default() };
    let crowd = (0..peers).map(|_| Node::bind("127.0.0.1:0", in_thread())).collect::<Result<Vec<_>, _>>()?;
    for other in &crowd {
        let peer = crowded.connect(other.local_addr())?;
        crowded.send(ChannelId { peer, channel: 0 }, "hello")?;
        // Inline: nothing happens between calls, so wait for the acknowledgement first.
        if !crowded.flush(peer, Duration::from_secs(5)) {
            return Err("a member of the crowd did not acknowledge".into());
        }
        other.recv_timeout(Duration::from_secs(5))?.ok_or("a member of the crowd heard nothing")?;
    }
    let (one, of_many) = (alone.connect(addr)?, crowded.connect(addr)?);
    let (mut alone_us, mut crowded_us) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        alone_us.push(ping_pong(&alone, one, exchanges));
        crowded_us.push(ping_pong(&crowded, of_many, exchanges));
    }
    let (alone_us, crowded_us) = (median(alone_us), median(crowded_us));
    println!("one peer:    {alone_us:.2} µs a round trip");
    println!("{peers} peers: {crowded_us:.2} µs a round trip, {:.3} of the former", crowded_us / alone_us);
    Ok(())
}
