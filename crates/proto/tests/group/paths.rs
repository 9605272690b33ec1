//! Members that come from one path to another: by a relay, by the opener's session, by the group's address.

use super::net::{Net, addr, content, group_addr};
use denrei_proto::Config;
use denrei_proto::group::{GroupBackend, GroupEvent, GroupOptions, GroupPolicy, MemberPath};
use denrei_wire::Instant;
use std::time::Duration;

const MEMBERS: usize = 10;

/// Ten members that multicast does not reach: the first two are relays.
fn relayed() -> Net {
    let mut net = Net::new(MEMBERS, Config::default());
    net.deaf = (1..=MEMBERS).collect();
    net.open(GroupOptions::default());
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net
}

/// Its relay has died with what it was to hand on, which nobody took for under way any more once it heard the address.
#[test]
fn who_hears_the_address_gets_what_its_dead_relay_has_not_handed_on() {
    for early in [0, 20, 40, 60, 80, 100, 120, 140] {
        let mut net = relayed();
        // Just before the next SYN.
        net.run(Duration::from_millis(1_200 + early));
        net.stopped.insert(1);
        net.deaf.clear();
        net.send(content(0, 20_000));
        net.run(Duration::from_secs(60));
        (2..=MEMBERS).for_each(|host| net.assert_received(host, &[20_000]));
    }
}

/// Nobody says what marks the group's packets come with, and nothing repeats what members say.
#[test]
fn who_hears_the_address_hears_it_where_what_is_marked_is_dropped() {
    let mut net = Net::opened(3, GroupOptions::default());
    net.drops_marked = true;
    for number in 0..20 {
        net.send(content(number, 20_000));
        net.run(Duration::from_millis(50));
    }
    (1..=3).for_each(|host| net.assert_received(host, &[20_000; 20]));
    assert_eq!(net.paths(), [MemberPath::Multicast; 3]);
    assert_eq!(net.hosts[0].group_status(net.group).unwrap().messages_acknowledged, 20);
}

/// Symbols had the size that sessions carry until the next look at the members.
#[test]
fn what_is_sent_as_soon_as_the_address_is_heard_fits_its_path() {
    let mut net = relayed();
    net.deaf.clear();
    while !net.paths().contains(&MemberPath::Multicast) {
        net.run(Duration::from_micros(20));
        assert!(net.now < Instant::ZERO + Duration::from_secs(10));
    }
    net.send(content(0, 20_000));
    net.run(Duration::from_secs(1));
    (1..=MEMBERS).for_each(|host| net.assert_received(host, &[20_000]));
}

/// They waited for it, until they had been asked four times in vain.
#[test]
fn who_waits_for_a_relay_that_hears_the_address_now_is_served_at_once() {
    let mut net = relayed();
    net.deaf.remove(&1);
    net.run(Duration::from_secs(3));
    assert_eq!(net.paths()[0], MemberPath::Multicast);
    net.send(content(0, 20_000));
    net.run(Duration::from_millis(50));
    (1..=MEMBERS).for_each(|host| net.assert_received(host, &[20_000]));
}

/// The opener asked at the group's address, for one that was no member any more: whoever heard that did not count as out
/// of reach, and its relay had handed the symbol on before it had begun.
#[test]
fn who_hears_the_address_of_a_tree_is_not_left_with_what_its_relay_brought_too_early() {
    let mut net = Net::new(3, Config::default());
    net.opener_delays.insert(3, Duration::from_millis(10));
    net.open(GroupOptions { backend: GroupBackend::Tree, fan_out: 1, ..GroupOptions::default() });
    let group = net.group;
    net.hosts[0].remove_group_member(net.now, group, 0).unwrap();
    net.send(content(0, 20_000));
    net.run(Duration::from_secs(5));
    (2..=3).for_each(|host| net.assert_received(host, &[20_000]));
    assert_eq!(net.multicast_datagrams, 0);
}

/// It takes long to get to the end of a chain: whoever has heard nothing for a while is served by the opener as well, and
/// so is everyone before it.
#[test]
fn what_comes_by_the_opener_and_by_relays_is_handed_on_once() {
    const CHAIN: usize = 40;
    let mut net = Net::new(CHAIN, Config::default());
    net.session_delay = Duration::from_millis(10);
    net.open(GroupOptions { backend: GroupBackend::Tree, fan_out: 1, ..GroupOptions::default() });
    net.run(Duration::from_secs(2));
    assert_eq!(net.events, [GroupEvent::Opened]);
    let before = net.order;
    net.send(content(0, 200_000));
    net.run(Duration::from_secs(10));
    (1..=CHAIN).for_each(|host| net.assert_received(host, &[200_000]));
    let least = (CHAIN * 200_000 / 1472) as u64;
    assert!(net.order - before < least * 6, "{} datagrams where {least} would do", net.order - before);
}

/// Whoever is above two never hears one of them; the other leaves. All that are known of are as many as are members then.
#[test]
fn what_is_said_of_who_has_gone_is_not_taken_for_who_was_never_heard() {
    const ABOVE: usize = 17;
    let (leaves, mute) = (66, 67);
    let mut net = Net::new(70, Config::default());
    net.cut.insert((mute, ABOVE));
    net.open(GroupOptions::default());
    net.run(Duration::from_secs(2));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net.session_delays.insert(ABOVE, Duration::from_millis(20));
    net.session_delays.insert(mute, Duration::from_millis(30));
    net.deaf.insert(mute);
    net.send(content(0, 20_000));
    net.run(Duration::from_millis(2));
    let group = net.group;
    net.hosts[leaves].leave_group(net.now, group);
    net.run(Duration::from_secs(30));
    net.assert_received(mute, &[20_000]);
}

/// What its session had brought it counted as lost, all at once: all others were sent at half the window, and parity.
#[test]
fn what_passed_by_who_was_served_by_its_session_is_no_loss_when_it_hears_the_address_again() {
    let mut net = Net::opened(3, GroupOptions::default());
    let numbers = |first: usize| (first..first + 400).map(|number| content(number, 20_000));
    let send = |net: &mut Net, first| {
        numbers(first).for_each(|message| {
            net.send(message);
            net.run(Duration::from_millis(10));
        });
    };
    send(&mut net, 0);
    net.deaf.insert(2);
    send(&mut net, 400);
    assert_eq!(net.paths()[1], MemberPath::Unicast);
    let status = |net: &Net| net.hosts[0].group_status(net.group).unwrap();
    let before = status(&net);
    net.deaf.clear();
    send(&mut net, 800);
    assert_eq!(net.paths(), [MemberPath::Multicast; 3]);
    let after = status(&net);
    assert_eq!(after.counters.parity_sent, before.counters.parity_sent);
    assert!(after.window_bytes >= before.window_bytes, "{before:?} {after:?}");
    (1..=3).for_each(|host| net.assert_received(host, &[20_000; 1200]));
}

/// Nobody looked whether the address reached them, as where it is not wanted: sessions served them until the end.
#[test]
fn who_lagged_or_joined_late_hears_the_address_of_a_group_that_has_no_other_way() {
    for backend in [GroupBackend::Auto, GroupBackend::Multicast] {
        let policy = GroupPolicy::Lag { after: Duration::from_millis(500) };
        let mut net = Net::new(4, Config::default());
        let members: Vec<_> = (1..=3).map(addr).collect();
        (1..=4).for_each(|host| net.hosts[host].join_group(net.now, group_addr()).unwrap());
        let options = GroupOptions { backend, policy, history_bytes: 1 << 26, ..GroupOptions::default() };
        net.group = net.hosts[0].open_group(net.now, group_addr(), &members, options).unwrap();
        net.run(Duration::from_secs(1));
        let (now, group) = (net.now, net.group);
        net.hosts[0].add_group_member(now, group, addr(4), true).unwrap();
        net.run(Duration::from_secs(1));
        net.stopped.insert(2);
        (0..20).for_each(|number| net.send(content(number, 20_000)));
        net.run(Duration::from_secs(3));
        assert!(
            net.events.iter().any(|event| matches!(event, GroupEvent::Lagging { .. })),
            "{:?}",
            net.events
        );
        net.stopped.clear();
        net.run(Duration::from_secs(5));
        (1..=4).for_each(|host| net.assert_received(host, &[20_000; 20]));
        assert_eq!(net.paths(), [MemberPath::Multicast; 4], "{backend:?}");
    }
}
