//! Hosts with several addresses.

use crate::harness::{Pair, begin};
use denrei_e2e::{Drive, Order, Plan, Settings, Sizes};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Messages on each of three channels.
const COUNT: u64 = 100;
/// Longest time for one stream.
const LIMIT: Duration = Duration::from_secs(60);
const PLAN: Plan = Plan { seed: 7, sizes: Sizes::Mixed { most: 300_000 } };

/// What a host sends to a network leaves from its first address there, unless told otherwise: a Node at all addresses
/// is reached at the second none the less, and at the first, with one packet in a hundred lost.
#[test]
fn who_listens_at_all_addresses_is_reached_at_each() {
    let test = begin("who_listens_at_all_addresses_is_reached_at_each");
    let Some(lab) = test.lab(2, 1500) else { return };
    let second = Ipv4Addr::new(10, 77, 250, 1);
    let added =
        lab.host(1).command("ip").args(["addr", "add", &format!("{second}/16"), "dev", "eth0"]).status();
    assert!(added.expect("ip was there when the lab was built").success(), "no second address");
    for host in 0..2 {
        lab.loss(host, 10).unwrap();
    }
    for drive in [Drive::Inline, Drive::Thread] {
        for at in [second, lab.host(1).ipv4()] {
            let settings = Settings::driven(drive);
            let mut sender = test.process_on(&lab, 0, "sender", "node");
            let mut receiver = test.process_on(&lab, 1, "receiver", "node");
            receiver.order(&Order::Verify { plan: PLAN, from: Vec::new(), trace: false });
            let port = receiver.bind(Ipv4Addr::UNSPECIFIED.into(), settings.clone()).port();
            sender.bind(lab.host(0).ip(), settings);
            let receiver_addr = SocketAddr::from((at, port));
            let peer = sender.connect(receiver_addr);
            let mut pair = Pair { sender, receiver, peer, receiver_addr, plan: PLAN };
            pair.send(COUNT, 0);
            let (took, bytes) = pair.finish(COUNT, LIMIT);
            test.print(format_args!("{drive:?} at {at}: {bytes} bytes in {took:.2?}"));
        }
    }
}
