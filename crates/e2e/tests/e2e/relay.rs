//! A relay between hosts that cannot reach each other.

use crate::harness::{Pair, Process, SOON, Test, begin, stream, until};
use denrei_e2e::{Drive, Order, Plan, Report, Settings, Sizes};
use denrei_netlab::Lab;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Longest time for one stream.
const LIMIT: Duration = Duration::from_secs(60);
/// What a pair may hold, bytes.
const PAIR_BYTES: u64 = 4 << 20;
/// The hosts: a sender, a relay, a target.
const HOSTS: [usize; 3] = [0, 1, 2];

/// Starts a relay on host 1; gives it and the address that stands for the target.
fn relay(
    test: &Test,
    lab: &Lab,
    target: SocketAddr,
    port: u16,
    settings: &Settings,
) -> (Process, SocketAddr) {
    let mut relay = test.process_on(lab, HOSTS[1], "relay", "node");
    let order = Order::Relay {
        listen: (lab.host(HOSTS[1]).ip(), port).into(),
        target,
        pair_bytes: PAIR_BYTES,
        settings: settings.clone(),
    };
    let listen = relay.ask(&order, |report| match *report {
        Report::Bound { addr } => Some(addr),
        _ => None,
    });
    (relay, listen)
}

/// A sender and a receiver, which find each other by a relay only; the relay; the receiver's own
/// address.
fn apart(test: &Test, lab: &Lab, settings: &Settings, sizes: Sizes) -> (Pair, Process, SocketAddr) {
    lab.keep_apart(HOSTS[0], HOSTS[2]).unwrap();
    let plan = Plan { seed: 11, sizes };
    let mut sender = test.process_on(lab, HOSTS[0], "sender", "node");
    let mut receiver = test.process_on(lab, HOSTS[2], "target", "node");
    receiver.order(&Order::Verify { plan, from: Vec::new(), trace: false });
    let receiver_addr = receiver.bind(lab.host(HOSTS[2]).ip(), settings.clone());
    sender.bind(lab.host(HOSTS[0]).ip(), settings.clone());
    let (relay, listen) = relay(test, lab, receiver_addr, 0, settings);
    let peer = sender.connect(listen);
    (Pair { sender, receiver, peer, receiver_addr: listen, plan }, relay, receiver_addr)
}

/// Messages of 0 B to 2 MiB on three channels, half a percent of all packets lost on every host.
#[test]
fn a_relay_carries_everything_between_hosts_apart() {
    const COUNT: u64 = 150;
    let test = begin("a_relay_carries_everything_between_hosts_apart");
    let Some(lab) = test.lab(HOSTS.len(), 1500) else { return };
    for host in HOSTS {
        lab.loss(host, 5).unwrap();
    }
    let settings = Settings { key: Some([5; 32]), ..Settings::driven(Drive::Thread) };
    let (mut pair, mut relay, _) = apart(&test, &lab, &settings, Sizes::Mixed { most: 2 << 20 });
    pair.send(COUNT, 0);
    let (took, bytes) = pair.finish(COUNT, LIMIT);
    assert!(pair.sender.flow(pair.peer).packets_lost > 0, "the path loses");
    // Its process is looked at by way of a Node that does nothing.
    relay.bind(Ipv4Addr::LOCALHOST.into(), Settings::default());
    let peak = relay.resources().peak_rss_bytes;
    // Messages queued, those being put together, and those sent and not acknowledged.
    assert!(peak < 24 * PAIR_BYTES, "the relay held {peak} bytes");
    let megabytes = bytes as f64 / 1e6;
    test.print(format_args!("{megabytes:.1} MB in {took:.2?}, the relay's memory peaked at {peak} bytes"));
}

/// The relay is killed in the middle: the sender hears of it, and carries on through a new one from
/// where the target is. Nothing comes twice, and no session has a gap.
#[test]
fn a_relay_is_killed_and_restarted() {
    const COUNT: u64 = 400;
    let test = begin("a_relay_is_killed_and_restarted");
    let Some(lab) = test.lab(HOSTS.len(), 1500) else { return };
    let settings = Settings {
        failure_timeout_ms: Some(1_000),
        keepalive_ms: Some(200),
        ..Settings::driven(Drive::Thread)
    };
    let (mut pair, mut relayed, target) = apart(&test, &lab, &settings, Sizes::Mixed { most: 32 << 10 });
    pair.send(COUNT, 200);
    until("100 messages", || pair.receiver.received() >= 100);
    relayed.kill();
    let (peer, listen) = (pair.peer, pair.receiver_addr);
    pair.sender.wait("loss of the relay", SOON, |report| match *report {
        Report::Lost { peer: lost, .. } if lost == peer => Some(()),
        _ => None,
    });
    let before = pair.receiver.tally();
    assert_eq!(before.len(), 1, "one sender, one session: {before:?}");
    assert!(before[0].problems.is_empty() && before[0].messages() < 3 * COUNT, "{before:?}");
    let (_relay, _) = relay(&test, &lab, target, listen.port(), &settings);
    let from = before[0].channels.clone();
    pair.receiver.order(&Order::Verify { plan: pair.plan, from: from.clone(), trace: false });
    assert!(pair.receiver.tally().is_empty(), "it counts anew before anybody connects");
    let peer = pair.sender.connect(listen);
    let rest = stream(peer, pair.plan, COUNT, 0);
    pair.sender.order(&Order::Send(denrei_e2e::Stream { from: from.clone(), ..rest }));
    let missing: Vec<u64> = from.iter().map(|taken| COUNT - taken).collect();
    crate::harness::expect_complete(&mut pair.receiver, &missing);
    test.print(format_args!(
        "{} messages before, {} after",
        before[0].messages(),
        missing.iter().sum::<u64>()
    ));
}
