//! One side of a broadcast: the process behind the hidden `__bcast-side`.
//!
//! Inputs → outputs: orders on standard input → a group or TCP connections, messages, a report.

use super::tcp;
use super::{Backend, Way};
use crate::bench::clock::{Meter, now_ns};
use crate::bench::transport::secrets;
use crate::cmd::key::KeyArgs;
use crate::orders::{self, Orders, answer};
use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use denrei::{Drive, Group, GroupBackend, GroupListener, GroupOptions, Membership, Node};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a side waits for orders and for the others.
const LIMIT: Duration = Duration::from_secs(60);
/// Messages before those that are measured: paths, windows and pages are warm then.
const WARMUP: u64 = 3;

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

/// Runs until told to stop. What goes wrong is reported, and returned.
pub fn run(keys: &KeyArgs) -> Result<()> {
    orders::obey(|orders| obey(orders, keys), Answer::Failed)
}

fn obey(orders: &Orders<Order>, keys: &KeyArgs) -> Result<()> {
    let Order::Prepare(job) = orders.wait(LIMIT)? else { bail!("the first order has to be Prepare") };
    if job.way.backend == Backend::Tcp {
        return tcp::obey(orders, &job);
    }
    let mut config = secrets(job.way.transport(), keys)?;
    // A sender of large messages waits in one call; members may be kept waiting.
    config.drive = Drive::Inline;
    config.protocol.send_buffer_bytes = config.protocol.send_buffer_bytes.max(job.size);
    let node = Node::bind((job.bind, 0), config)?;
    let listener = if job.index > 0 { Some(node.join_group(job.group)?) } else { None };
    answer(&Answer::Ready(node.local_addr()))?;
    let addresses = start(orders)?;
    match listener {
        None => send_all(orders, &job, &node, &addresses[1..]),
        Some(listener) => receive_all(orders, &job, &node, &listener),
    }
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

fn send_all(orders: &Orders<Order>, job: &Job, node: &Node, members: &[SocketAddr]) -> Result<()> {
    let backend = match job.way.backend {
        Backend::Multicast => GroupBackend::Multicast,
        Backend::Unicast => GroupBackend::Unicast,
        Backend::Tree => GroupBackend::Tree,
        Backend::Auto | Backend::Tcp => GroupBackend::Auto,
    };
    let group = node.open_group(job.group, members, GroupOptions { backend, ..GroupOptions::default() })?;
    let message = Bytes::from(vec![0x5a; job.size as usize]);
    for _ in 0..WARMUP {
        group.send(message.clone())?;
        ensure!(group.flush(LIMIT), "not acknowledged within {LIMIT:?}: {:?}", group.status());
    }
    let mut report = SenderReport::default();
    let before = wire_of(node, &group);
    let meter = Meter::start();
    for _ in 0..job.iters {
        let began = now_ns();
        group.send(message.clone())?;
        let sent = now_ns();
        ensure!(group.flush(LIMIT), "not acknowledged within {LIMIT:?}: {:?}", group.status());
        report.began.push(began);
        report.sent.push(sent - began);
        report.done.push(now_ns() - began);
    }
    report.cpu_ns = meter.cpu_ns();
    let after = wire_of(node, &group);
    report.wire = Wire {
        calls: after.calls - before.calls,
        packets: after.packets - before.packets,
        bytes: after.bytes - before.bytes,
        received: after.received - before.received,
        repairs: after.repairs - before.repairs,
        needed: after.needed - before.needed,
    };
    ensure!(group.close(LIMIT), "not closed within {LIMIT:?}: {:?}", group.status());
    answer(&Answer::Sent(report))?;
    stop(orders)
}

/// IPv4 and UDP headers of a datagram, bytes.
const HEADER_BYTES: u64 = 28;

fn wire_of(node: &Node, group: &Group) -> Wire {
    let io = node.io_counters();
    let counters = group.status().map(|status| status.counters).unwrap_or_default();
    Wire {
        calls: io.send_calls,
        packets: io.sent_datagrams,
        bytes: io.sent_bytes + io.sent_datagrams * HEADER_BYTES,
        received: io.recv_datagrams,
        repairs: counters.multicast_repairs + counters.unicast_repairs,
        needed: counters.symbol_bytes + counters.symbols_sent * HEADER_BYTES,
    }
}

fn receive_all(orders: &Orders<Order>, job: &Job, node: &Node, listener: &GroupListener) -> Result<()> {
    let Some(membership) = listener.accept(LIMIT) else { bail!("no group within {LIMIT:?}") };
    for _ in 0..WARMUP {
        take(&membership, job)?;
    }
    let meter = Meter::start();
    let mut report = MemberReport::default();
    for _ in 0..job.iters {
        take(&membership, job)?;
        report.arrived.push(now_ns());
    }
    report.cpu_ns = meter.cpu_ns();
    // The end of the group is the last that comes.
    while let Ok(Some(_)) = membership.recv_timeout(LIMIT) {}
    answer(&Answer::Received(report))?;
    // What the opener has not heard is repeated until it has.
    let until = now_ns() + 20_000_000;
    while now_ns() < until {
        node.poll();
        std::thread::sleep(Duration::from_millis(1));
    }
    stop(orders)
}

fn take(membership: &Membership, job: &Job) -> Result<()> {
    let message = membership.recv_timeout(LIMIT)?;
    let Some(message) = message else { bail!("no message within {LIMIT:?}") };
    ensure!(message.data.len() as u64 == job.size, "a message of {} bytes", message.data.len());
    Ok(())
}
