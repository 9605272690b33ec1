//! The role `leaves`: hundreds of Nodes in one process, each with one message for the hub.
//!
//! Inputs → outputs: `Leaves` → Nodes that have their echo and stay connected.

use super::{report, report_failure, resources};
use crate::{Order, Plan, Report, Settings, Sizes};
use anyhow::{Context, Result};
use denrei::{ChannelId, Message, Node};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Pause between two rounds over all Nodes, which stay alive that way.
const PAUSE: Duration = Duration::from_millis(10);
/// Longest time in which a Node that has its echo is left alone: on a busy machine the others' takes seconds, and who
/// never looks acknowledges nothing.
const LEFT_ALONE: Duration = Duration::from_secs(1);
/// Longest wait for all echoes.
const ECHO_LIMIT: Duration = Duration::from_secs(30);
/// What the leaves say.
const PLAN: Plan = Plan { seed: 1000, sizes: Sizes::Fixed(200) };

/// Carries out orders until there will be no more.
pub fn run(orders: &Receiver<Order>) -> Result<()> {
    resources::allow_many_files()?;
    let mut leaves: Vec<Node> = Vec::new();
    loop {
        match orders.recv_timeout(PAUSE) {
            Ok(Order::Leaves { count, hub, settings }) => match grow(&mut leaves, count, hub, &settings) {
                Ok(echoed) => report(&echoed)?,
                Err(error) => report_failure(format_args!("{error:#}"))?,
            },
            Ok(order) => report_failure(format_args!("the role leaves does not know {order:?}"))?,
            Err(RecvTimeoutError::Timeout) => poll_all(&leaves),
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

fn poll_all(leaves: &[Node]) {
    for leaf in leaves {
        leaf.poll();
    }
}

/// Adds `count` Nodes and waits until each has its echo.
fn grow(leaves: &mut Vec<Node>, count: usize, hub: SocketAddr, settings: &Settings) -> Result<Report> {
    let began = Instant::now();
    let first = leaves.len();
    for index in first..first + count {
        let leaf = Node::bind((hub.ip(), 0), settings.config())?;
        let peer = leaf.connect(hub)?;
        leaf.send(ChannelId { peer, channel: 0 }, PLAN.content(0, index as u64))?;
        leaves.push(leaf);
    }
    let mut waiting: Vec<usize> = (first..first + count).collect();
    let mut problems = Vec::new();
    let mut looked = began;
    while !waiting.is_empty() {
        if looked.elapsed() > LEFT_ALONE {
            poll_all(leaves);
            looked = Instant::now();
        }
        let mut failed = None;
        waiting.retain(|&index| match leaves[index].try_recv() {
            Ok(None) => true,
            Ok(Some(echo)) => {
                problems.extend(problem(&leaves[index], index as u64, &echo, hub));
                false
            }
            Err(error) => {
                failed = Some(error);
                false
            }
        });
        failed.map_or(Ok(()), Err)?;
        let in_time = began.elapsed() < ECHO_LIMIT;
        in_time.then_some(()).with_context(|| format!("{} of {count} leaves have no echo", waiting.len()))?;
        // The hub wants a core too.
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(Report::Echoed { leaves: count, problems, millis: began.elapsed().as_millis() as u64 })
}

/// What is wrong with `echo`, if anything: it has to be the hub's, of what leaf `index` sent.
fn problem(leaf: &Node, index: u64, echo: &Message, hub: SocketAddr) -> Option<String> {
    let from = leaf.flow(echo.channel.peer).map(|flow| flow.addr);
    let wrong = match PLAN.check(echo.channel.channel, index, &echo.data) {
        Err(wrong) => wrong,
        Ok(()) if from != Some(hub) => "not from the hub".to_string(),
        Ok(()) => return None,
    };
    Some(format!("leaf {index} at {}: message {} from {from:?}: {wrong}", leaf.local_addr(), echo.number))
}
