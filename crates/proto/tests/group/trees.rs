//! A tree of relays grows together again: who joined late, lost its relay or lagged is served by others.

use super::net::{Net, addr, content, group_addr};
use denrei_proto::Config;
use denrei_proto::group::{GroupBackend, GroupEvent, GroupOptions, GroupPolicy, MemberPath};
use std::time::Duration;

const MEMBERS: usize = 9;
const SIZE: usize = 20_000;
/// How long a message is waited for before the next.
const PAUSE: Duration = Duration::from_millis(50);

fn tree(policy: GroupPolicy) -> GroupOptions {
    GroupOptions { backend: GroupBackend::Tree, policy, ..GroupOptions::default() }
}

/// The first `listed` of all hosts are members of a tree.
fn opened(listed: usize, policy: GroupPolicy) -> Net {
    let mut net = Net::new(MEMBERS, Config::default());
    let members: Vec<_> = (1..=listed).map(addr).collect();
    (1..=MEMBERS).for_each(|host| net.hosts[host].join_group(net.now, group_addr()).unwrap());
    net.group = net.hosts[0].open_group(net.now, group_addr(), &members, tree(policy)).unwrap();
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net
}

/// Sends messages `numbers`, one after the other; how often the opener sent each to a session.
fn copies(net: &mut Net, numbers: core::ops::Range<usize>) -> f64 {
    // A message is a symbol.
    let sent = |net: &Net| net.hosts[0].group_status(net.group).unwrap().counters.unicast_symbols;
    let (before, messages) = (sent(net), numbers.len());
    for number in numbers {
        net.send(content(number, SIZE));
        net.run(PAUSE);
    }
    (sent(net) - before) as f64 / messages as f64
}

/// Sends messages `numbers`, of which the opener has to send two copies, its share.
fn assert_settled(net: &mut Net, numbers: core::ops::Range<usize>) {
    let settled = copies(net, numbers);
    assert!(settled < 2.1, "{settled} copies");
}

fn served_by_others(net: &Net) -> usize {
    net.paths().iter().filter(|path| **path == MemberPath::Relay).count()
}

#[test]
fn who_joins_late_is_served_by_others_after_a_while() {
    for loss in [0, 50] {
        let mut net = opened(3, GroupPolicy::Wait);
        net.loss.iter_mut().for_each(|host| *host = loss);
        for host in 4..=MEMBERS {
            net.hosts[0].add_group_member(net.now, net.group, addr(host), false).unwrap();
        }
        net.run(PAUSE * 4);
        assert!(copies(&mut net, 0..4) > 7.0, "the opener serves them until others have heard of them");
        copies(&mut net, 4..30);
        assert_settled(&mut net, 30..60);
        assert_eq!(served_by_others(&net), MEMBERS - 2);
        (1..=MEMBERS).for_each(|host| net.assert_received(host, &[SIZE; 60]));
        net.close();
        net.run(Duration::from_secs(2));
        assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
    }
}

#[test]
fn who_loses_its_relay_has_another_after_a_while() {
    let mut net = opened(MEMBERS, GroupPolicy::Eject { after: Duration::from_millis(300) });
    assert_settled(&mut net, 0..10);
    net.stopped.insert(1);
    copies(&mut net, 10..60);
    assert_settled(&mut net, 60..90);
    assert_eq!(served_by_others(&net), MEMBERS - 3);
    (2..=MEMBERS).for_each(|host| net.assert_received(host, &[SIZE; 90]));
}

#[test]
fn who_held_others_up_hands_nothing_on_when_it_has_caught_up() {
    let mut net = opened(MEMBERS, GroupPolicy::Lag { after: Duration::from_millis(300) });
    net.stopped.insert(1);
    copies(&mut net, 0..30);
    net.stopped.remove(&1);
    copies(&mut net, 30..80);
    assert_settled(&mut net, 80..110);
    assert_eq!(net.paths()[0], MemberPath::Relay, "it hears from another what it handed on before");
    (1..=MEMBERS).for_each(|host| net.assert_received(host, &[SIZE; 110]));
}

#[test]
fn a_tree_whose_members_all_lagged_grows_together_again() {
    let mut net = opened(MEMBERS, GroupPolicy::Lag { after: Duration::from_millis(300) });
    net.stopped.extend(1..=MEMBERS);
    copies(&mut net, 0..30);
    net.stopped.clear();
    copies(&mut net, 30..100);
    assert_settled(&mut net, 100..130);
    (1..=MEMBERS).for_each(|host| net.assert_received(host, &[SIZE; 130]));
}

#[test]
fn who_waited_for_a_relay_that_stood_still_for_a_moment_is_served_by_others_again() {
    for policy in [GroupPolicy::Wait, GroupPolicy::Lag { after: Duration::from_secs(5) }] {
        let mut net = opened(MEMBERS, policy);
        copies(&mut net, 0..10);
        net.stopped.insert(1);
        copies(&mut net, 10..40);
        net.stopped.remove(&1);
        copies(&mut net, 40..80);
        assert_settled(&mut net, 80..110);
        assert_eq!(served_by_others(&net), MEMBERS - 2);
        (1..=MEMBERS).for_each(|host| net.assert_received(host, &[SIZE; 110]));
    }
}

#[test]
fn who_cannot_hear_its_relay_is_put_below_another() {
    let mut net = opened(MEMBERS, GroupPolicy::Wait);
    // 1 and 2 are at the top, 3 and 4 below 1.
    net.cut.extend([(1, 3), (3, 1)]);
    copies(&mut net, 0..80);
    assert_settled(&mut net, 80..110);
    assert_eq!(served_by_others(&net), MEMBERS - 2);
    (1..=MEMBERS).for_each(|host| net.assert_received(host, &[SIZE; 110]));
}
