//! Two Nodes in one process: an order, and an answer.

use denrei::{ChannelId, Config, Drive, Node};
use std::time::Duration;

pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Both are driven by threads of their own, so that either may wait for the other.
    let config = Config { drive: Drive::Thread, ..Config::default() };
    let alice = Node::bind("127.0.0.1:0", config.clone())?;
    let bob = Node::bind("127.0.0.1:0", config)?;

    let peer = alice.connect(bob.local_addr())?;
    alice.send(ChannelId { peer, channel: 0 }, "one order for many")?;

    let order = bob.recv()?;
    println!("bob was told: {}", String::from_utf8_lossy(&order.data));
    bob.send(order.channel, "thanks")?;

    let answer = alice.recv_timeout(Duration::from_secs(5))?.ok_or("no answer")?;
    println!("alice was told: {}", String::from_utf8_lossy(&answer.data));
    if let Some(flow) = alice.flow(peer) {
        println!("{} messages are not acknowledged", flow.queued_messages);
    }
    Ok(())
}
