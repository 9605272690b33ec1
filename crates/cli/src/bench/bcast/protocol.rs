//! What the benchmark and its sides say to each other, one line of JSON each.

use super::Way;
use crate::orders::Orders;
use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a side waits for orders and for the others.
pub const LIMIT: Duration = Duration::from_secs(60);
/// Messages before those that are measured: paths, windows and pages are warm then.
pub const WARMUP: u64 = 3;

/// One side's part.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// Over what.
    pub way: Way,
    /// Bytes per message.
    pub size: u64,
    /// Messages measured.
    pub iters: u64,
    /// 0 sends.
    pub index: usize,
    /// Local address.
    pub bind: IpAddr,
    /// The group's address.
    pub group: SocketAddr,
}

/// To a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open the local endpoint.
    Prepare(Job),
    /// Begin; the addresses of all sides.
    Start(Vec<SocketAddr>),
    /// All are done.
    Stop,
}

/// From a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The endpoint is open.
    Ready(SocketAddr),
    /// What the sender measured.
    Sent(SenderReport),
    /// What a member measured.
    Received(MemberReport),
    /// What went wrong.
    Failed(String),
}

/// What the sender measured. Times in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SenderReport {
    /// When each message was sent (CLOCK_MONOTONIC).
    pub began: Vec<u64>,
    /// How long each `send` took.
    pub sent: Vec<u64>,
    /// How long until all had acknowledged it.
    pub done: Vec<u64>,
    /// CPU time of all.
    pub cpu_ns: u64,
    /// What went out.
    pub wire: Wire,
}

/// What a sender put onto the network.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Wire {
    /// Calls that send.
    pub calls: u64,
    /// Datagrams, or TCP segments.
    pub packets: u64,
    /// Bytes, with IP and UDP or TCP headers.
    pub bytes: u64,
    /// Datagrams received.
    pub received: u64,
    /// Symbols sent again.
    pub repairs: u64,
    /// Of `bytes`, those of packets that brought a part of a message to the group's address for the first
    /// time; 0 where there are none.
    pub needed: u64,
}

/// What a member measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemberReport {
    /// When each message was there (CLOCK_MONOTONIC), nanoseconds.
    pub arrived: Vec<u64>,
    /// CPU time, nanoseconds.
    pub cpu_ns: u64,
}

/// Waits for the order to begin.
pub fn start(orders: &Orders<Order>) -> Result<Vec<SocketAddr>> {
    match orders.wait(LIMIT)? {
        Order::Start(addresses) => Ok(addresses),
        other => bail!("expected Start, not {other:?}"),
    }
}

/// Waits for the order to end.
pub fn stop(orders: &Orders<Order>) -> Result<()> {
    match orders.wait(LIMIT)? {
        Order::Stop => Ok(()),
        other => bail!("expected Stop, not {other:?}"),
    }
}
