//! A task for each conversation, in one runtime, over one Node: what each exchange takes with one task that waits, and
//! with a thousand.
//!
//! `cargo run --release -p denrei --example tasks [TASKS]`

use denrei::{ChannelId, Config, Drive, Node};
use std::error::Error;
use std::time::{Duration, Instant};

const EXCHANGES: u32 = 20_000;
const CHANNELS: u16 = 4096;

/// Answers whatever comes on a channel, until the peer is gone.
async fn echo(node: Node, channel: ChannelId) {
    while let Ok(message) = node.recv_from_async(channel).await {
        if node.send_async(channel, message.data).await.is_err() {
            return;
        }
    }
}

/// The time of an exchange on the channel of each task in turn.
async fn exchange(node: &Node, channels: &[ChannelId]) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    for (_, channel) in (0..EXCHANGES).zip(channels.iter().cycle()) {
        node.send_async(*channel, "are you there?").await?;
        let answer = node.recv_from_async(*channel).await?;
        assert_eq!(answer.data, "are you there?");
    }
    Ok(began.elapsed() / EXCHANGES)
}

fn main() -> Result<(), Box<dyn Error>> {
    let tasks = std::env::args().nth(1).map_or(Ok(1000), |tasks| tasks.parse::<u16>());
    let tasks = tasks.map_err(|_| "TASKS is how many tasks wait, 1 to 4096")?.clamp(1, CHANNELS);
    let mut config = Config { drive: Drive::Thread, ..Config::default() };
    config.protocol.max_channels = CHANNELS;
    let [client, server] = [Node::bind("127.0.0.1:0", config.clone())?, Node::bind("127.0.0.1:0", config)?];
    let peer = client.connect(server.local_addr())?;
    client.send(ChannelId { peer, channel: 0 }, "hello")?;
    let back = server.recv()?.channel.peer;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    let mut waiting = 0;
    for many in [1, tasks] {
        for channel in waiting..many {
            runtime.spawn(echo(server.clone(), ChannelId { peer: back, channel }));
        }
        waiting = waiting.max(many);
        let channels: Vec<_> = (0..many).map(|channel| ChannelId { peer, channel }).collect();
        let took = runtime.block_on(exchange(&client, &channels))?;
        println!("{many:4} tasks wait: {:.1} µs an exchange", took.as_secs_f64() * 1e6);
    }
    Ok(())
}
