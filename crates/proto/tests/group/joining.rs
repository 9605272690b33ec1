//! Who is invited to an open group: it begins at a message boundary, and nobody waits for its answer.

use super::net::{Link, Net, addr, content, group_addr};
use super::sealed::sealed;
use denrei_proto::group::{
    Departure, GroupBackend, GroupError, GroupEvent, GroupOptions, GroupPolicy, Invited, MemberPath,
};
use denrei_proto::{Config, Endpoint, LostReason};
use std::sync::Arc;
use std::time::Duration;

const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
const POLICIES: [GroupPolicy; 3] = [
    GroupPolicy::Wait,
    GroupPolicy::Eject { after: Duration::from_secs(1) },
    GroupPolicy::Lag { after: Duration::from_secs(1) },
];

/// Hosts 1 and 2 are members; host 3 is there, but has not joined the group's address.
fn two_of_three(options: GroupOptions, config: Config) -> Net {
    let mut net = Net::new(3, config);
    for host in 1..=2 {
        net.hosts[host].join_group(net.now, group_addr()).unwrap();
    }
    let options = GroupOptions { open_timeout: OPEN_TIMEOUT, ..options };
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options).unwrap();
    net.run(Duration::from_millis(500));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net
}

fn invite(net: &mut Net, host: usize) -> u32 {
    net.hosts[0].add_group_member(net.now, net.group, addr(host), false).unwrap()
}

fn departed(member: u32, host: usize, why: Departure) -> GroupEvent {
    GroupEvent::Departed { member, addr: addr(host), why, last_acknowledged: None }
}

/// `count` messages of 20,000 octets, numbered from `first`.
fn send(net: &mut Net, first: usize, count: usize) {
    (first..first + count).for_each(|number| net.send(content(number, 20_000)));
}

#[test]
fn nobody_waits_for_who_was_invited_and_does_not_answer() {
    for policy in POLICIES {
        for (dead, seals) in [(false, false), (true, false), (false, true), (true, true)] {
            let config = if seals { sealed() } else { Config::default() };
            let mut net = two_of_three(policy.into(), config);
            net.stopped.extend(dead.then_some(3));
            assert_eq!(invite(&mut net, 3), 2);
            send(&mut net, 0, 50);
            net.run(Duration::from_millis(200));
            for host in 1..=2 {
                net.assert_received(host, &[20_000; 50]);
            }
            assert_eq!(net.hosts[0].group_status(net.group).unwrap().queued_bytes, 0, "{policy:?}");
            net.run(OPEN_TIMEOUT - Duration::from_millis(300));
            assert_eq!(net.events, [GroupEvent::Opened], "{policy:?}: it may still answer");
            net.run(Duration::from_millis(200));
            assert_eq!(net.events[1..], [departed(2, 3, Departure::Silent)], "{policy:?}, dead {dead}");
            net.close();
            net.run(Duration::from_millis(500));
            assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
        }
    }
}

#[test]
fn an_invitation_that_was_withdrawn_is_none_and_another_may_follow() {
    let mut net = two_of_three(GroupOptions::default(), Config::default());
    invite(&mut net, 3);
    net.run(OPEN_TIMEOUT + Duration::from_millis(100));
    net.hosts[3].join_group(net.now, group_addr()).unwrap();
    send(&mut net, 0, 3);
    net.run(Duration::from_millis(200));
    assert_eq!(net.events[1..], [departed(2, 3, Departure::Silent)]);
    assert_eq!(invite(&mut net, 3), 3);
    net.run(Duration::from_millis(200));
    send(&mut net, 3, 3);
    net.run(Duration::from_millis(200));
    assert_eq!(net.events[2..], [GroupEvent::Joined { member: 3, addr: addr(3), first_message: 3 }]);
    net.assert_received(1, &[20_000; 6]);
    assert_eq!(net.received[3].iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn who_is_removed_before_it_has_begun_is_told_of() {
    let mut net = two_of_three(GroupOptions::default(), Config::default());
    let group = net.group;
    invite(&mut net, 3);
    net.hosts[0].remove_group_member(net.now, group, 2).unwrap();
    net.run(Duration::from_millis(100));
    assert_eq!(net.events[1..], [departed(2, 3, Departure::Removed)]);
}

/// The process at `host` is started again, with `seed`, and `joins` the group's address.
fn restart(net: &mut Net, host: usize, config: &Config, seed: u64, joins: bool) {
    net.hosts[host] = Endpoint::new(Arc::new(config.clone()), seed, net.now);
    if joins {
        net.hosts[host].join_group(net.now, group_addr()).unwrap();
    }
}

#[test]
fn who_was_started_again_and_not_noticed_is_invited_once_more() {
    for (config, backend) in [Config::default(), sealed()].into_iter().flat_map(|config| {
        [GroupBackend::Auto, GroupBackend::Unicast, GroupBackend::Tree]
            .map(|backend| (config.clone(), backend))
    }) {
        let options = GroupOptions { backend, ..GroupOptions::default() };
        let mut net = two_of_three(options, config.clone());
        net.hosts[0].connect(net.now, addr(3)).unwrap();
        net.run(Duration::from_millis(100));
        restart(&mut net, 3, &config, 99, true);
        invite(&mut net, 3);
        net.run(Duration::from_secs(2));
        send(&mut net, 0, 5);
        net.run(Duration::from_millis(200));
        assert_eq!(net.events[1..], [GroupEvent::Joined { member: 2, addr: addr(3), first_message: 0 }]);
        net.assert_received(3, &[20_000; 5]);
        net.close();
        net.run(Duration::from_millis(500));
        assert_eq!(net.events.last(), Some(&GroupEvent::Closed), "{backend:?}");
    }
}

#[test]
fn a_group_opens_with_members_that_were_started_again_and_not_noticed() {
    for config in [Config::default(), sealed()] {
        let mut net = two_of_three(GroupOptions::default(), config.clone());
        net.hosts[0].forget_group(net.now, net.group);
        for host in 1..=2 {
            restart(&mut net, host, &config, 100 + host as u64, true);
        }
        let options = GroupOptions { open_timeout: OPEN_TIMEOUT, ..GroupOptions::default() };
        net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options).unwrap();
        net.run(OPEN_TIMEOUT - Duration::from_millis(500));
        assert_eq!(net.events[1..], [GroupEvent::Opened]);
        send(&mut net, 0, 5);
        net.run(Duration::from_millis(200));
        for host in 1..=2 {
            net.assert_received(host, &[20_000; 5]);
        }
    }
}

#[test]
fn who_is_started_again_is_waited_for_no_longer_than_others() {
    for seals in [false, true] {
        let config = if seals { sealed() } else { Config::default() };
        let mut net = two_of_three(GroupOptions::default(), config.clone());
        invite(&mut net, 3);
        for time in 0..5 {
            net.run(Duration::from_millis(500));
            restart(&mut net, 3, &config, 99 + time, false);
            net.hosts[3].connect(net.now, addr(0)).unwrap();
        }
        net.run(Duration::from_millis(400));
        assert_eq!(net.events, [GroupEvent::Opened], "it may still answer");
        net.run(Duration::from_millis(200));
        assert_eq!(net.events[1..], [departed(2, 3, Departure::Silent)]);
    }
}

#[test]
fn a_member_that_is_started_again_is_one_no_longer() {
    let mut net = two_of_three(GroupOptions::default(), Config::default());
    restart(&mut net, 2, &Config::default(), 99, true);
    net.hosts[2].connect(net.now, addr(0)).unwrap();
    net.run(Duration::from_millis(500));
    assert_eq!(net.events[1..], [departed(1, 2, Departure::Lost(LostReason::Restarted))]);
}

#[test]
fn who_answers_in_the_middle_of_a_transfer_begins_with_the_next_message() {
    let backends = [GroupBackend::Auto, GroupBackend::Unicast, GroupBackend::Tree];
    for (backend, loss) in backends.into_iter().flat_map(|backend| [(backend, 0), (backend, 20)]) {
        for size in [300, 20_000, 1_000_000] {
            let options = GroupOptions { backend, ..GroupOptions::default() };
            let mut net = two_of_three(options, Config::default());
            net.loss = vec![loss; 4];
            net.loss[0] = 0;
            invite(&mut net, 3);
            net.run(Duration::from_millis(100));
            let count = 2_000_000 / size;
            (0..count).for_each(|number| net.send(content(number, size)));
            net.run(Duration::from_micros(400));
            net.hosts[3].join_group(net.now, group_addr()).unwrap();
            net.run(Duration::from_secs(10));
            for host in 1..=2 {
                net.assert_received(host, &vec![size; count]);
            }
            let [GroupEvent::Opened, GroupEvent::Joined { first_message, .. }] = net.events[..] else {
                panic!("{:?}", net.events);
            };
            assert!(first_message > 0, "it was in the middle");
            let last = (first_message..count as u64).map(|number| (number, content(number as usize, size)));
            assert!(
                net.received[3].iter().cloned().eq(last),
                "{backend:?}, {size}, loss {loss}: from {first_message}"
            );
            net.close();
            net.run(Duration::from_secs(1));
            assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
        }
    }
}

#[test]
fn a_group_closes_though_somebody_was_invited() {
    for answers in [false, true] {
        let mut net = two_of_three(GroupOptions::default(), Config::default());
        if answers {
            net.hosts[3].join_group(net.now, group_addr()).unwrap();
        }
        (0..3).for_each(|number| net.send(content(number, 2_500_000)));
        net.run(Duration::from_micros(200));
        invite(&mut net, 3);
        // Its answer is here before the first message is out.
        net.run(Duration::from_micros(400));
        net.close();
        let late = net.hosts[0].add_group_member(net.now, net.group, addr(3), false);
        assert_eq!(late, Err(GroupError::Closing(net.group)));
        net.run(Duration::from_secs(1));
        for host in 1..=2 {
            net.assert_received(host, &[2_500_000; 3]);
        }
        let removed = departed(2, 3, Departure::Removed);
        assert_eq!(net.events[1..], [removed, GroupEvent::Closed], "answers {answers}");
        assert!(net.received[3].is_empty());
    }
}

#[test]
fn members_join_at_a_boundary_with_or_without_history_and_leave() {
    let options = GroupOptions { history_bytes: 1 << 20, ..GroupOptions::default() };
    let mut net = Net::new(4, Config::default());
    for host in 1..=4 {
        net.hosts[host].join_group(net.now, group_addr()).unwrap();
    }
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options).unwrap();
    net.run(Duration::from_secs(1));
    for number in 0..10 {
        net.send(content(number, 20_000));
    }
    net.run(Duration::from_secs(1));
    net.hosts[0].add_group_member(net.now, net.group, addr(3), false).unwrap();
    assert!(net.hosts[4].ask_to_join(net.now, addr(0), group_addr(), true));
    let group = net.group;
    net.hosts[1].leave_group(net.now, group);
    net.run(Duration::from_secs(1));
    for number in 10..20 {
        net.send(content(number, 20_000));
    }
    net.close();
    net.run(Duration::from_secs(5));
    net.assert_received(2, &[20_000; 20]);
    net.assert_received(4, &[20_000; 20]);
    assert_eq!(net.received[3].first().unwrap().0, 10);
    assert_eq!(net.received[3].len(), 10);
    assert_eq!(net.received[1].len(), 10);
    let joined = |event: &&GroupEvent| matches!(event, GroupEvent::Joined { .. });
    assert_eq!(net.events.iter().filter(joined).count(), 2);
    let left = |event: &&GroupEvent| matches!(event, GroupEvent::Departed { why: Departure::Left, .. });
    assert_eq!(net.events.iter().filter(left).count(), 1);
}

/// Messages that are larger than a symbol and follow each other rarely begin where a symbol does.
#[test]
fn who_joins_with_history_gets_every_message_that_is_retained_whole() {
    for (backend, seals) in
        [(GroupBackend::Auto, false), (GroupBackend::Unicast, true), (GroupBackend::Tree, false)]
    {
        let config = if seals { sealed() } else { Config::default() };
        let options = GroupOptions { history_bytes: 310_000, backend, ..GroupOptions::default() };
        let mut net = two_of_three(options, config);
        net.hosts[3].join_group(net.now, group_addr()).unwrap();
        send(&mut net, 0, 20);
        net.run(Duration::from_secs(1));
        net.hosts[0].add_group_member(net.now, net.group, addr(3), true).unwrap();
        net.run(Duration::from_secs(1));
        send(&mut net, 20, 2);
        net.close();
        net.run(Duration::from_secs(5));
        let expected: Vec<_> = (5..22).map(|number| (number as u64, content(number, 20_000))).collect();
        assert!(net.received[3] == expected, "from {:?} on", net.received[3].first().map(|first| first.0));
        let first_message = |event: &GroupEvent| match event {
            GroupEvent::Joined { first_message, .. } => Some(*first_message),
            _ => None,
        };
        assert_eq!(net.events.iter().find_map(first_message), Some(5));
        net.assert_received(1, &[20_000; 22]);
    }
}

/// Hosts 1 and 2 are invited; the second says that it does not hear the address.
fn one_unheard(backend: GroupBackend) -> Net {
    let mut net = Net::new(2, Config::default());
    net.deaf.insert(2);
    net.hosts[1].join_group(net.now, group_addr()).unwrap();
    net.hosts[2].join_group_unheard(net.now, group_addr()).unwrap();
    let options = GroupOptions { open_timeout: OPEN_TIMEOUT, backend, ..GroupOptions::default() };
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options).unwrap();
    net
}

#[test]
fn nobody_waits_for_who_says_that_it_does_not_hear_the_address() {
    let mut net = one_unheard(GroupBackend::Auto);
    net.run(Duration::from_millis(10));
    assert_eq!(net.events, [GroupEvent::Opened], "without the third of a second that finding it out takes");
    assert_eq!(net.paths(), [MemberPath::Multicast, MemberPath::Unicast]);
    send(&mut net, 0, 3);
    net.run(Duration::from_millis(100));
    (1..=2).for_each(|host| net.assert_received(host, &[20_000; 3]));
    net.deaf.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(net.paths(), [MemberPath::Multicast; 2], "and when it does, that is noticed");
}

#[test]
fn whom_one_group_does_not_reach_the_next_does_not_wait_for() {
    let mut net = Net::new(2, Config::default());
    net.deaf.insert(2);
    net.open(GroupOptions::default());
    net.run(Duration::from_millis(200));
    assert_eq!(net.events, [], "it is found out");
    net.run(Duration::from_millis(800));
    assert_eq!(net.events, [GroupEvent::Opened]);
    let first = net.group;
    net.open(GroupOptions::default());
    net.run(Duration::from_millis(10));
    assert_eq!(net.events, [const { GroupEvent::Opened }; 2]);
    assert_eq!(net.paths(), [MemberPath::Multicast, MemberPath::Unicast]);
    // Once it is reached, both groups notice.
    net.deaf.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(net.paths(), [MemberPath::Multicast; 2]);
    net.group = first;
    assert_eq!(net.paths(), [MemberPath::Multicast; 2]);
    net.open(GroupOptions::default());
    net.run(Duration::from_millis(10));
    assert_eq!(net.events, [const { GroupEvent::Opened }; 3]);
    assert_eq!(net.paths(), [MemberPath::Multicast; 2], "at once");
}

#[test]
fn who_does_not_hear_the_address_cannot_be_where_it_has_to() {
    let mut net = one_unheard(GroupBackend::Multicast);
    net.run(OPEN_TIMEOUT + Duration::from_millis(100));
    assert_eq!(net.events, [GroupEvent::OpenFailed { missing: vec![(addr(2), Departure::OutOfReach)] }]);
}

/// Its application still holds what it was before; who joins later would wait for a group that expects nobody.
#[test]
fn an_invitation_that_was_taken_back_is_gone_for_a_former_member_as_well() {
    let mut net = two_of_three(GroupPolicy::Wait.into(), Config::default());
    net.hosts[2].stop_joining(group_addr());
    net.hosts[0].remove_group_member(net.now, net.group, 1).unwrap();
    assert_eq!(invite(&mut net, 2), 2);
    net.run(OPEN_TIMEOUT * 2);
    assert_eq!(net.events[2..], [departed(2, 2, Departure::Silent)]);
    net.hosts[2].join_group(net.now, group_addr()).unwrap();
    assert_eq!(net.hosts[2].group_invited(group_addr()), Invited::No);
}

/// Nobody is removed with this policy, so that what is kept for one that takes nothing would grow without end.
#[test]
fn all_wait_for_who_joined_with_history_and_is_too_far_behind() {
    let config = Config { send_buffer_bytes: 1 << 20, channel_credit_bytes: 256 << 10, ..Config::default() };
    let options = GroupOptions { history_bytes: 1 << 20, ..GroupOptions::default() };
    let mut net = two_of_three(options, Config { offer_above_bytes: 64 << 10, ..config });
    send(&mut net, 0, 40);
    net.run(Duration::from_millis(200));
    net.idle.insert(3);
    net.hosts[3].join_group(net.now, group_addr()).unwrap();
    let group = net.group;
    net.hosts[0].add_group_member(net.now, group, addr(3), true).unwrap();
    net.run(Duration::from_millis(200));
    let mut sent = 40;
    for _ in 0..2_000 {
        while sent < 1_000 && net.hosts[0].group_send(group, content(sent, 20_000)).is_ok() {
            sent += 1;
        }
        net.run(Duration::from_millis(1));
    }
    assert!(sent < 200, "{sent} messages are kept for it");
    net.idle.clear();
    for _ in 0..5_000 {
        while sent < 1_000 && net.hosts[0].group_send(group, content(sent, 20_000)).is_ok() {
            sent += 1;
        }
        net.run(Duration::from_millis(1));
    }
    (1..=3).for_each(|host| net.assert_received(host, &[20_000; 1_000]));
    assert!(
        matches!(net.events[1..], [GroupEvent::Joined { .. }, GroupEvent::CaughtUp { .. }]),
        "{:?}",
        net.events
    );
}

/// It was the root of the tree of reports, and its last words as such came after it had begun to be served anew.
#[test]
fn what_a_member_said_before_it_left_is_not_taken_for_what_it_has_since_it_joined_again() {
    let options = GroupOptions { history_bytes: 4 << 20, ..GroupOptions::default() };
    let mut net = Net::opened(70, options);
    (0..4).for_each(|number| net.send(content(number, 500_000)));
    let mut held = Vec::new();
    for _ in 0..10_000 {
        net.run(Duration::from_micros(20));
        if net.received[1].len() == 4 {
            held.extend(net.under_way.extract_if(.., |_, (to, from, _)| *to == 0 && *from == addr(1)));
        }
    }
    let group = net.group;
    net.hosts[1].leave_group(net.now, group);
    net.run(Duration::from_millis(100));
    let (bytes_per_second, time) = (2_000_000, Duration::from_millis(20));
    net.links.insert(1, (Link { bytes_per_second, burst: Duration::ZERO, queue: time }, net.now));
    assert!(net.hosts[1].ask_to_join(net.now, addr(0), group_addr(), true));
    net.run(Duration::from_millis(20));
    assert!(
        matches!(net.events.last(), Some(GroupEvent::Joined { first_message: 0, .. })),
        "{:?}",
        net.events
    );
    (4..8).for_each(|number| net.send(content(number, 1_000_000)));
    net.run(Duration::from_millis(100));
    for (_, late) in held {
        net.order += 1;
        net.under_way.insert((net.now, net.order), late);
    }
    net.run(Duration::from_secs(30));
    let numbers: Vec<u64> = net.received[1].iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (0..4).chain(0..8).collect::<Vec<u64>>());
}

/// A group that lives for long has had more members than it may have at once; it holds no more than it has.
#[test]
fn a_group_outlives_as_many_joins_as_it_may_have_members() {
    const CHURN: usize = 16_500;
    let mut net = two_of_three(GroupOptions::default(), Config::default());
    net.hosts[3].join_group(net.now, group_addr()).unwrap();
    let mut ids = std::collections::BTreeSet::new();
    for round in 0..CHURN {
        let member = invite(&mut net, 3);
        assert!(ids.insert(member), "{member} was another membership's");
        net.run(Duration::from_millis(1));
        if round >= CHURN - 5 {
            send(&mut net, round + 5 - CHURN, 1);
            net.run(Duration::from_millis(50));
        }
        net.hosts[0].remove_group_member(net.now, net.group, member).unwrap();
        net.run(Duration::from_millis(1));
        net.hosts[3].leave_group(net.now, (net.group, member));
        let begun =
            |event: &GroupEvent| matches!(event, GroupEvent::Joined { member: id, .. } if *id == member);
        let begun = net.events.iter().any(begun);
        assert!(begun, "round {round}: {:?}", net.events);
        net.events.clear();
    }
    let members = net.hosts[0].group_status(net.group).unwrap().members;
    assert!(members.len() < 100, "{}", members.len());
    net.assert_received(1, &[20_000; 5]);
    net.assert_received(2, &[20_000; 5]);
    net.assert_received(3, &[20_000; 5]);
}

/// The interface that an address of IPv6 names is this host's own business: each host has its own.
#[test]
fn a_group_of_one_link_has_another_interface_at_each_host() {
    let on = |interface: u32| format!("[ff02::7%{interface}]:7400").parse().unwrap();
    for before in [false, true] {
        let mut net = Net::new(2, Config::default());
        let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
        let join = |net: &mut Net| {
            (1..=2).for_each(|host| net.hosts[host].join_group(net.now, on(host as u32)).unwrap())
        };
        if before {
            join(&mut net);
        }
        net.group = net.hosts[0].open_group(net.now, on(9), &[addr(1), addr(2)], options).unwrap();
        net.run(Duration::from_millis(100));
        if !before {
            join(&mut net);
        }
        net.run(Duration::from_millis(500));
        assert_eq!(net.events, [GroupEvent::Opened], "joined before: {before}");
        for host in 1..=2 {
            assert!(net.hosts[host].accept_group(on(host as u32)).is_some(), "host {host}");
        }
    }
}
