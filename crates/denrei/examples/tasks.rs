//! A task, or a thread, for each conversation over one Node: what an exchange takes where one waits, and where many do.
//!
//! `cargo run --release -p denrei --example tasks [TASKS [THREADS]]`

use denrei::{ChannelId, Config, Drive, Node, PeerId};
use std::error::Error;
use std::time::{Duration, Instant};

const EXCHANGES: u32 = 20_000;
const CHANNELS: u16 = 4096;
const LONG: Duration = Duration::from_secs(60);

/// Answers whatever comes on a channel, until the peer is gone.
async fn echo(node: Node, channel: ChannelId) {
    while let Ok(message) = node.recv_from_async(channel).await {
        if node.send_async(channel, message.data).await.is_err() {
            return;
        }
    }
}

/// The same in a thread of its own.
fn echo_blocking(node: &Node, channel: ChannelId) {
    while let Ok(Some(message)) = node.recv_from(channel, LONG) {
        if node.send(channel, message.data).is_err() {
            return;
        }
    }
}

/// The time of an exchange on the channel of each who waits, in turn.
fn exchange(node: &Node, peer: PeerId, channels: u16) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    for (_, channel) in (0..EXCHANGES).zip((0..channels).cycle()) {
        let channel = ChannelId { peer, channel };
        node.send(channel, "are you there?")?;
        let answer = node.recv_from(channel, LONG)?.ok_or("no answer")?;
        assert_eq!(answer.data, "are you there?");
    }
    Ok(began.elapsed() / EXCHANGES)
}

/// Has more and more wait, and tells what an exchange takes.
fn measure(kind: &str, many: u16, start: impl Fn(Node, ChannelId)) -> Result<(), Box<dyn Error>> {
    let mut config = Config { drive: Drive::Thread, ..Config::default() };
    config.protocol.max_channels = CHANNELS;
    let [client, server] = [Node::bind("127.0.0.1:0", config.clone())?, Node::bind("127.0.0.1:0", config)?];
    let peer = client.connect(server.local_addr())?;
    client.send(ChannelId { peer, channel: 0 }, "hello")?;
    let back = server.recv()?.channel.peer;
    let mut waiting = 0;
    for channels in [1, many] {
        (waiting..channels).for_each(|channel| start(server.clone(), ChannelId { peer: back, channel }));
        waiting = waiting.max(channels);
        let took = exchange(&client, peer, channels)?;
        println!("{channels:4} {kind} wait: {:.1} µs an exchange", took.as_secs_f64() * 1e6);
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default| arguments.next().map_or(Ok(default), |text| text.parse::<u16>());
    let (tasks, threads) = (number(1000), number(64));
    let [Ok(tasks), Ok(threads)] = [tasks, threads] else {
        return Err("TASKS and THREADS are how many wait, 1 to 4096".into());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    measure("tasks", tasks.clamp(1, CHANNELS), |node, channel| _ = runtime.spawn(echo(node, channel)))?;
    measure("threads", threads.clamp(1, CHANNELS), |node, channel| {
        std::thread::spawn(move || echo_blocking(&node, channel));
    })
}
