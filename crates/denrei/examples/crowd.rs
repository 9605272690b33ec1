//! Ping-pong with one peer while a thousand others are connected and idle, beside ping-pong with
//! that peer alone, interleaved: what a crowd on the same port costs.
//!
//! Usage: `cargo run --release -p denrei --example crowd [PEERS] [EXCHANGES]`

use denrei::{Bytes, ChannelId, Config, Drive, Node, PeerId};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::process::ExitCode;
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

/// Peers and exchanges, or the status to end with.
fn numbers(arguments: &[String]) -> Result<(usize, u32), ExitCode> {
    const USAGE: &str = "usage: crowd [PEERS] [EXCHANGES]\n\n\
        PEERS: how many are idle, 1000 if not given\nEXCHANGES: of each run, 1 or more, 20000 if not given";
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        println!("{USAGE}");
        return Err(ExitCode::SUCCESS);
    }
    let peers = arguments.first().map_or(Some(1000), |peers| peers.parse().ok());
    let exchanges = arguments.get(1).map_or(Some(20_000), |count| count.parse().ok());
    match (peers, exchanges) {
        (Some(peers), Some(exchanges @ 1..)) if arguments.len() <= 2 => Ok((peers, exchanges)),
        _ => {
            eprintln!("crowd: {:?} are not these numbers\n{USAGE}", arguments.join(" "));
            Err(ExitCode::from(2))
        }
    }
}

/// Every Node has some descriptors, and a process 1,024 as a rule unless it asks for those that it may have.
fn ask_for_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Where it is refused, the Node that is one too many says so.
        _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (peers, exchanges) = match numbers(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(numbers) => numbers,
        Err(status) => return Ok(status),
    };
    ask_for_descriptors();
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
    Ok(ExitCode::SUCCESS)
}
