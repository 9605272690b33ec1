//! Paths that do not keep the order.

use super::net::{Net, content};
use denrei_proto::Config;
use denrei_proto::group::{GroupBackend, GroupCounters, GroupOptions};
use std::time::Duration;

const MESSAGES: usize = 40;
const MESSAGE_BYTES: usize = 100_000;

/// Sends 4 MB to three members, 40 ms away and back, each datagram by up to `jitter` later than that; so many per
/// mille are lost. How long it took.
fn send(loss: u64, jitter: Duration, options: GroupOptions) -> (Duration, GroupCounters) {
    let mut net = Net::new(3, Config::default());
    net.session_delay = Duration::from_millis(20);
    net.jitter = jitter;
    net.open(options);
    net.run(Duration::from_secs(1));
    net.loss = vec![0, loss, loss, loss];
    (0..MESSAGES).for_each(|number| net.send(content(number, MESSAGE_BYTES)));
    let begun = net.now;
    while (1..=3).any(|host| net.received[host].len() < MESSAGES) {
        net.run(Duration::from_millis(10));
        assert!(net.now < begun + Duration::from_secs(100));
    }
    (1..=3).for_each(|host| net.assert_received(host, &[MESSAGE_BYTES; MESSAGES]));
    (net.now - begun, net.hosts[0].group_status(net.group).unwrap().counters)
}

fn on(backend: GroupBackend) -> GroupOptions {
    GroupOptions { backend, parity: false, ..GroupOptions::default() }
}

/// Half of all symbols were asked for before they came, and each was a loss for the window: 4,242 repairs.
#[test]
fn what_is_overtaken_is_not_repaired_and_is_no_loss() {
    for backend in [GroupBackend::Unicast, GroupBackend::Auto] {
        let (took, counters) = send(0, Duration::from_millis(10), on(backend));
        let repairs = counters.unicast_repairs + counters.multicast_repairs;
        assert!(repairs < 100, "{backend:?}: {counters:?}");
        assert!(took < Duration::from_secs(2), "{backend:?}: {took:?}");
    }
}

/// What is lost beside is repaired: 4,651 times, where 89 were needed.
#[test]
fn what_is_lost_where_others_are_overtaken_is_repaired() {
    let (took, counters) = send(10, Duration::from_millis(10), on(GroupBackend::Unicast));
    assert!((80..300).contains(&counters.unicast_repairs), "{counters:?}");
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn where_the_order_is_kept_what_is_lost_is_asked_for_at_once() {
    let (took, counters) = send(10, Duration::ZERO, on(GroupBackend::Unicast));
    assert!((80..100).contains(&counters.unicast_repairs), "{counters:?}");
    assert!(took < Duration::from_millis(1500), "{took:?}");
}
