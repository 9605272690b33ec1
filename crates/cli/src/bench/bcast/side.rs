//! One side of a broadcast: the process behind the hidden `__bcast-side`.
//!
//! Inputs → outputs: orders on standard input → a group or TCP connections, messages, a report.

use super::Backend;
use super::protocol::{Answer, Job, LIMIT, MemberReport, Order, SenderReport, WARMUP, Wire, start, stop};
use super::tcp;
use crate::bench::clock::{Meter, now_ns};
use crate::bench::transport::secrets;
use crate::cmd::key::KeyArgs;
use crate::orders::{self, Orders, answer};
use anyhow::{Result, anyhow, bail, ensure};
use bytes::Bytes;
use denrei::{
    Drive, Group, GroupBackend, GroupError, GroupEvent, GroupListener, GroupOptions, Membership, Node,
};
use std::net::SocketAddr;
use std::time::Duration;

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
        told(&group, group.send(message.clone()))?;
        acknowledged(&group)?;
    }
    let mut report = SenderReport::default();
    let before = wire_of(node, &group);
    let meter = Meter::start();
    for _ in 0..job.iters {
        let began = now_ns();
        told(&group, group.send(message.clone()))?;
        let sent = now_ns();
        acknowledged(&group)?;
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
    ensure!(group.close(LIMIT), "not closed within {LIMIT:?}{}", in_the_way(&group));
    answer(&Answer::Sent(report))?;
    stop(orders)
}

/// Waits until all members have what was sent.
fn acknowledged(group: &Group) -> Result<()> {
    match told(group, group.wait_acknowledged(LIMIT))? {
        true => Ok(()),
        false => bail!("not acknowledged within {LIMIT:?}{}", in_the_way(group)),
    }
}

/// What came of a call; if nothing, for whose sake.
fn told<T>(group: &Group, came: Result<T, GroupError>) -> Result<T> {
    came.map_err(|error| anyhow!("{error}{}", in_the_way(group)))
}

/// Which members are gone, and why, and which have not acknowledged everything, as the end of a sentence.
fn in_the_way(group: &Group) -> String {
    let mut words = Vec::new();
    while let Some(event) = group.try_event() {
        if let GroupEvent::Departed { addr, why, .. } = event {
            words.push(format!("{addr} is gone: {why}"));
        }
    }
    if let Some(status) = group.status() {
        let late = status.active().filter(|member| member.messages_acknowledged < status.messages_sent);
        words.extend(late.map(|member| format!("{} has not acknowledged everything", member.addr)));
    }
    words.into_iter().map(|words| format!("; {words}")).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use denrei::Config;

    #[test]
    fn who_is_in_the_way_is_named_in_a_sentence() {
        let node =
            || Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
        let (opener, member) = (node(), node());
        let address: SocketAddr = "239.255.90.2:7402".parse().unwrap();
        let listener = member.join_group(address).unwrap();
        let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
        let group = opener.open_group(address, &[member.local_addr()], options).unwrap();
        let membership = listener.accept(LIMIT).unwrap();
        let at = member.local_addr();
        drop((membership, listener, member));
        let sent = told(&group, group.send(vec![7; 100]));
        let said = sent.and_then(|_| acknowledged(&group)).unwrap_err().to_string();
        assert!(said.contains("no members left; "), "{said}");
        assert!(said.contains(&format!("; {at} is gone: ")) && !said.contains('{'), "{said}");
    }
}
