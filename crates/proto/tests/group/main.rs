//! Groups over a network in memory: multicast that reaches some, loss, members that fail.

#[path = "../common/mod.rs"]
mod common;
mod ends;
mod joining;
mod lag;
mod net;
mod order;
mod pace;
mod paths;
mod sealed;
mod trees;

use denrei_proto::group::{
    Departure, GroupBackend, GroupError, GroupEvent, GroupOptions, GroupPolicy, MemberPath, MembershipEnd,
    Removal,
};
use denrei_proto::{Config, Endpoint, LostReason, OfferPolicy};
use denrei_wire::TransmitBuf;
use denrei_wire::datagram::{MAX_DATAGRAM_BYTES, MAX_SEGMENTS};
use net::{Net, addr, content, group_addr};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const SIZES: [usize; 8] = [16, 0, 4096, 100_000, 64, 1_000_000, 1400, 3];

fn send_all(net: &mut Net) {
    for (number, size) in SIZES.iter().enumerate() {
        net.send(content(number, *size));
    }
}

/// The same contents under the numbers that follow.
fn send_all_again(net: &mut Net) {
    send_all(net);
    net.run(Duration::from_millis(100));
}

fn exchange(mut net: Net, members: usize) -> Net {
    send_all(&mut net);
    net.close();
    net.run(Duration::from_secs(30));
    for host in 1..=members {
        net.assert_received(host, &SIZES);
        assert_eq!(net.hosts[host].membership_end(net.group), Some(MembershipEnd::Closed));
    }
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
    net
}

#[test]
fn every_member_gets_everything_over_multicast_and_the_sender_sends_once() {
    let net = Net::opened(8, GroupOptions::default());
    assert_eq!(net.paths(), [MemberPath::Multicast; 8]);
    let net = exchange(net, 8);
    let payload: usize = SIZES.iter().sum();
    let least = payload as u64 / 1472;
    assert!(net.multicast_datagrams < least * 5 / 4, "{} for {least}", net.multicast_datagrams);
}

#[test]
fn symbols_that_overtake_begin_are_not_asked_for_again() {
    let mut net = Net::new(8, Config::default());
    net.session_delay = Duration::from_micros(200);
    net.open(GroupOptions::default());
    send_all(&mut net);
    net.run(Duration::from_secs(1));
    for host in 1..=8 {
        net.assert_received(host, &SIZES);
    }
    let counters = net.hosts[0].group_status(net.group).unwrap().counters;
    assert_eq!((counters.unicast_repairs, counters.multicast_repairs), (0, 0), "{counters:?}");
}

#[test]
fn trains_are_as_long_as_the_network_takes_them() {
    let mut net = Net::opened(2, GroupOptions::default());
    (0..8).for_each(|number| net.send(content(number, 1_000_000)));
    net.run(Duration::from_secs(1));
    net.send(content(8, 1_000_000));
    let (now, mut out) = (net.now, TransmitBuf::new(MAX_SEGMENTS));
    let trains: Vec<_> = std::iter::from_fn(|| net.hosts[0].poll_transmit(now, &mut out)).collect();
    let (last, full) = trains.split_last().unwrap();
    assert!(full.len() > 2 && last.to == group_addr(), "{trains:?}");
    for train in full {
        assert!(train.len + train.segment_size.unwrap() > MAX_DATAGRAM_BYTES, "{train:?}");
    }
}

#[test]
fn nothing_is_lost_where_datagrams_are() {
    let mut net = Net::opened(8, GroupOptions::default());
    net.loss = vec![50; 9];
    exchange(net, 8);
}

/// 8 members, each losing 1 % of its own, and 7 MB: what the opener put on the wire for it.
fn seven_megabytes_with_loss(options: GroupOptions) -> (u64, denrei_proto::group::GroupCounters, u64) {
    let mut net = Net::opened(8, options);
    net.loss = vec![10; 9];
    net.loss[0] = 0;
    let before = net.sent_bytes;
    for number in 0..14 {
        net.send(content(number, 500_000));
    }
    net.run(Duration::from_secs(20));
    for host in 1..=8 {
        net.assert_received(host, &[500_000; 14]);
    }
    let restored = |host: usize| net.hosts[host].membership_counters(net.group).unwrap().restored;
    let counters = net.hosts[0].group_status(net.group).unwrap().counters;
    (net.sent_bytes - before, counters, (1..=8).map(restored).sum())
}

#[test]
fn where_many_lose_a_little_parity_restores_most_of_it() {
    let (bytes, counters, restored) = seven_megabytes_with_loss(GroupOptions::default());
    assert!(bytes <= 7_000_000 * 115 / 100, "{bytes} bytes on the wire");
    assert!(counters.parity_sent > 50 && restored > 150, "{counters:?}, {restored} restored");
    assert!(counters.reports * 2 <= counters.packets_sent, "reports: {counters:?}");
    let without = GroupOptions { parity: false, ..GroupOptions::default() };
    let (_, plain, none) = seven_megabytes_with_loss(without);
    assert_eq!((plain.parity_sent, none), (0, 0));
    let repairs =
        |counters: &denrei_proto::group::GroupCounters| counters.unicast_repairs + counters.multicast_repairs;
    assert!(repairs(&counters) * 3 < repairs(&plain), "{counters:?} against {plain:?}");
}

#[test]
fn the_window_does_not_wait_for_word_of_what_came_again_to_one() {
    // No rate is told, and nothing queues: what takes time is waiting for somebody's word.
    let took = |loss| {
        let mut net = Net::opened(3, GroupOptions::default());
        net.loss = vec![0, loss, loss, loss];
        let began = net.now;
        let acknowledged =
            |net: &Net| net.hosts[0].group_status(net.group).unwrap().messages_acknowledged == 14;
        (0..14).for_each(|number| net.send(content(number, 500_000)));
        while !acknowledged(&net) {
            net.run(Duration::from_micros(100));
        }
        net.now.saturating_since(began)
    };
    let (calm, lossy) = (took(0), took(10));
    assert!(lossy < calm * 8, "{lossy:?} with a loss of 1 %, {calm:?} without");
}

#[test]
fn every_backend_delivers() {
    for backend in [GroupBackend::Unicast, GroupBackend::Tree, GroupBackend::Multicast] {
        for loss in [0, 30] {
            let options = GroupOptions { backend, ..GroupOptions::default() };
            let mut net = Net::opened(7, options);
            net.loss = vec![loss; 8];
            let net = exchange(net, 7);
            assert_eq!(net.multicast_datagrams > 0, backend == GroupBackend::Multicast, "{backend:?}");
        }
    }
}

#[test]
fn whom_multicast_does_not_reach_is_served_by_unicast() {
    let mut net = Net::new(4, Config::default());
    net.deaf = BTreeSet::from([2, 3]);
    net.open(GroupOptions::default());
    net.run(Duration::from_secs(1));
    use MemberPath::{Multicast, Unicast};
    assert_eq!(net.paths(), [Multicast, Unicast, Unicast, Multicast]);
    exchange(net, 4);
}

#[test]
fn multicast_may_be_switched_off_in_the_middle_and_on_again() {
    let mut net = Net::opened(4, GroupOptions::default());
    send_all(&mut net);
    net.run(Duration::from_micros(300));
    net.deaf = (1..=4).collect();
    net.run(Duration::from_secs(10));
    for host in 1..=4 {
        net.assert_received(host, &SIZES);
    }
    assert_eq!(net.paths(), [MemberPath::Unicast; 4]);
    net.deaf.clear();
    net.run(Duration::from_secs(5));
    assert_eq!(net.paths(), [MemberPath::Multicast; 4]);
    net.send(content(8, 5000));
    net.run(Duration::from_secs(1));
    assert!((1..=4).all(|host| net.received[host].last().unwrap().1 == content(8, 5000)));
}

#[test]
fn a_member_that_does_not_answer_is_named() {
    let mut net = Net::new(3, Config::default());
    net.stopped.insert(2);
    net.open(GroupOptions::default());
    net.run(Duration::from_secs(6));
    assert_eq!(net.events, [GroupEvent::OpenFailed { missing: vec![(addr(2), Departure::Silent)] }]);
    let memberships = [1, 3].map(|host| net.hosts[host].membership(net.group));
    assert_eq!(memberships, [None; 2], "what never opened is given to nobody");
}

/// Each question to all is answered by all who are there.
#[test]
fn while_somebody_is_missing_the_others_are_left_in_peace() {
    for deaf in [BTreeSet::new(), BTreeSet::from([1])] {
        let mut net = Net::new(9, Config::default());
        net.stopped.insert(9);
        net.deaf = deaf;
        net.open(GroupOptions::default());
        net.run(Duration::from_millis(100));
        let before = net.multicast_datagrams;
        net.run(Duration::from_secs(4));
        let most = if net.deaf.is_empty() { 0 } else { 100 };
        assert!(net.multicast_datagrams - before <= most, "{before}, then {}", net.multicast_datagrams);
        assert!(before <= 20, "{before} in the first tenth of a second");
        net.stopped.clear();
        let since = net.now;
        net.run(Duration::from_millis(900));
        assert_eq!(net.events, [GroupEvent::Opened], "whoever comes late finds it open, after {since:?}");
    }
}

#[test]
fn a_group_that_never_opened_is_not_what_the_application_is_given() {
    let mut net = Net::new(2, Config::default());
    net.idle.insert(1);
    net.stopped.insert(2);
    let options = GroupOptions { open_timeout: Duration::from_millis(200), ..GroupOptions::default() };
    net.open(options.clone());
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::OpenFailed { missing: vec![(addr(2), Departure::Silent)] }]);
    assert_eq!(net.hosts[1].accept_group(group_addr()), None);
    let second = net.hosts[0].open_group(net.now, group_addr(), &[addr(1)], options).unwrap();
    net.run(Duration::from_secs(1));
    assert_eq!(net.hosts[1].accept_group(group_addr()), Some((second, 0)));
}

#[test]
fn who_was_removed_joins_again_though_its_application_holds_the_membership_before() {
    let options = GroupOptions { history_bytes: 1 << 20, ..GroupOptions::default() };
    let mut net = Net::opened(2, options);
    net.idle.insert(2);
    net.send(content(0, 100));
    net.run(Duration::from_millis(100));
    net.hosts[0].remove_group_member(net.now, net.group, 1).unwrap();
    net.run(Duration::from_millis(100));
    let (group, removed) = (net.group, (net.group, 1));
    assert_eq!(net.hosts[2].membership_end(group), Some(MembershipEnd::Removed(Removal::Wanted)));
    assert!(net.hosts[2].ask_to_join(net.now, addr(0), group_addr(), false));
    net.run(Duration::from_millis(500));
    net.send(content(1, 200));
    net.run(Duration::from_millis(100));
    let joined = |event: &&GroupEvent| matches!(event, GroupEvent::Joined { member: 2, .. });
    assert_eq!(net.events.iter().filter(joined).count(), 1, "{:?}", net.events);
    let take = |net: &mut Net, id| net.hosts[2].group_recv(net.now, id).map(|message| message.number);
    assert_eq!(take(&mut net, removed), Some(0), "what had come before is there still");
    assert_eq!((take(&mut net, removed), take(&mut net, (group, 2))), (None, Some(1)));
    assert_eq!(net.hosts[2].membership_end(removed), Some(MembershipEnd::Removed(Removal::Wanted)));
    net.hosts[2].leave_group(net.now, removed);
    assert_eq!(net.hosts[2].membership_end((group, 2)), None, "the other one stays");
    net.hosts[2].leave_group(net.now, (group, 2));
    assert_eq!(net.hosts[2].membership_end(group), Some(MembershipEnd::Left));
}

#[test]
fn who_was_restarted_and_asks_at_once_joins_again() {
    let mut net = Net::opened(2, GroupOptions::default());
    net.send(content(0, 100));
    net.run(Duration::from_millis(100));
    net.hosts[2] = Endpoint::new(Arc::new(Config::default()), 99, net.now);
    net.hosts[2].join_group(net.now, group_addr()).unwrap();
    assert!(net.hosts[2].ask_to_join(net.now, addr(0), group_addr(), false));
    net.run(Duration::from_millis(500));
    let lost = Departure::Lost(LostReason::Restarted);
    assert_eq!(
        net.events[1..],
        [
            GroupEvent::Departed { member: 1, addr: addr(2), why: lost, last_acknowledged: Some(0) },
            GroupEvent::Joined { member: 2, addr: addr(2), first_message: 1 },
        ]
    );
    net.send(content(1, 200));
    net.run(Duration::from_millis(100));
    assert_eq!(net.received[2].last().map(|(number, _)| *number), Some(1));
}

#[test]
fn a_dead_root_of_the_tree_of_reports_is_ejected_alone() {
    one_of_seventy_dies(1);
}

#[test]
fn a_dead_leaf_of_the_tree_of_reports_is_ejected_alone() {
    one_of_seventy_dies(70);
}

#[test]
fn a_dead_parent_in_the_tree_of_reports_is_ejected_alone() {
    one_of_seventy_dies(3);
}

/// Who has everything and whose application takes nothing holds the others up no less, and is named though
/// others speak for it.
#[test]
fn who_takes_nothing_is_ejected_from_the_tree_of_reports_alone() {
    let mut net = Net::new(
        70,
        Config { channel_credit_bytes: 256 << 10, offer_above_bytes: 64 << 10, ..Config::default() },
    );
    let policy = GroupPolicy::Eject { after: Duration::from_millis(300) };
    net.open(policy.into());
    net.run(Duration::from_secs(1));
    net.idle.insert(50);
    (0..12).for_each(|number| net.send(content(number, 60_000)));
    net.run(Duration::from_secs(4));
    let gone = |event: &&GroupEvent| matches!(event, GroupEvent::Departed { .. });
    let gone: Vec<&GroupEvent> = net.events.iter().filter(gone).collect();
    let [GroupEvent::Departed { member: 49, why: Departure::Ejected, .. }] = gone[..] else {
        panic!("{gone:?}")
    };
    (1..=70).filter(|host| *host != 50).for_each(|host| net.assert_received(host, &[60_000; 12]));
}

/// What many miss reaches the opener in few words: each is joined with others on its way.
#[test]
fn gaps_are_joined_along_the_tree() {
    let mut net = Net::opened(100, GroupOptions { parity: false, ..GroupOptions::default() });
    let before = net.hosts[0].group_status(net.group).unwrap().counters;
    (1..=100).for_each(|host| net.loss[host] = 10);
    net.send(content(0, 1_000_000));
    net.run(Duration::from_secs(2));
    (1..=100).for_each(|host| net.assert_received(host, &[1_000_000]));
    let after = net.hosts[0].group_status(net.group).unwrap().counters;
    let (reports, symbols) = (after.reports - before.reports, after.symbols_sent - before.symbols_sent);
    assert!(
        reports * 100 <= symbols * 30,
        "{reports} reports for {symbols} symbols, nearly all missed by somebody"
    );
}

fn one_of_seventy_dies(dead: usize) {
    let policy = GroupPolicy::Eject { after: Duration::from_secs(1) };
    let mut net = Net::opened(70, policy.into());
    net.send(content(0, 100));
    net.run(Duration::from_millis(500));
    net.stopped.insert(dead);
    net.send(content(1, 100));
    net.run(Duration::from_secs(3));
    let gone = |event: &&GroupEvent| matches!(event, GroupEvent::Departed { .. });
    let gone: Vec<&GroupEvent> = net.events.iter().filter(gone).collect();
    let [GroupEvent::Departed { member, why: Departure::Ejected, .. }] = gone[..] else { panic!("{gone:?}") };
    assert_eq!(*member as usize, dead - 1);
    net.send(content(2, 100));
    net.close();
    net.run(Duration::from_secs(3));
    (1..=70).filter(|host| *host != dead).for_each(|host| net.assert_received(host, &[100; 3]));
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
}

#[test]
fn all_wait_for_the_slowest() {
    let mut net = Net::opened(3, GroupOptions::default());
    net.idle.insert(2);
    for number in 0..100 {
        net.send(content(number, 70_000));
    }
    net.run(Duration::from_secs(3));
    let status = net.hosts[0].group_status(net.group).unwrap();
    assert!(status.credit_bytes < 70_064, "flow control is by the least credit");
    let taken = net.received[1].len();
    assert!((50..70).contains(&taken), "{taken} messages fit the 4 MiB that host 2 holds");
    net.idle.clear();
    net.run(Duration::from_secs(3));
    assert!((1..=3).all(|host| net.received[host].len() == 100));
}

#[test]
fn a_dead_member_is_ejected_and_reported_with_its_last_message() {
    let policy = GroupPolicy::Eject { after: Duration::from_secs(1) };
    let mut net = Net::opened(4, policy.into());
    net.send(content(0, 100));
    net.run(Duration::from_millis(100));
    net.stopped.insert(3);
    net.send(content(1, 100));
    net.run(Duration::from_secs(3));
    let gone = GroupEvent::Departed {
        member: 2,
        addr: addr(3),
        why: Departure::Ejected,
        last_acknowledged: Some(0),
    };
    assert_eq!(net.events[1..], [gone]);
    net.send(content(2, 100));
    net.close();
    net.run(Duration::from_secs(3));
    for host in [1, 2, 4] {
        net.assert_received(host, &[100; 3]);
    }
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
}

#[test]
fn records_are_none_of_the_applications_business() {
    let config = Config { offers: OfferPolicy::Ask, offer_above_bytes: 4096, ..Config::default() };
    let mut net = Net::new(2, config);
    net.open(GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() });
    net.run(Duration::from_secs(1));
    let net = exchange(net, 2);
    assert!(!net.hosts[1].is_readable());
}

#[test]
fn many_members_join_their_reports_along_a_tree() {
    let mut net = Net::opened(200, GroupOptions::default());
    let before = net.hosts[0].group_status(net.group).unwrap().counters;
    for round in 0..8 {
        net.send(content(round, 1_000_000));
    }
    net.run(Duration::from_secs(5));
    assert!((1..=200).all(|host| net.received[host].len() == 8));
    let after = net.hosts[0].group_status(net.group).unwrap().counters;
    let (reports, packets) = (after.reports - before.reports, after.packets_sent - before.packets_sent);
    assert!(reports * 100 <= packets * 4, "{reports} reports for {packets} packets");
}

#[test]
fn a_group_whose_members_all_leave_once_they_have_everything_closes() {
    let mut net = Net::opened(6, GroupOptions::default());
    for number in 0..10 {
        net.send(content(number, 100));
    }
    let mut there: BTreeSet<usize> = (1..=6).collect();
    for _ in 0..2000 {
        net.run(Duration::from_micros(10));
        there.retain(|&host| {
            let stays = net.received[host].len() < 10;
            if !stays {
                net.hosts[host].leave_group(net.now, net.group);
                net.drain(host);
            }
            stays
        });
    }
    assert!(there.is_empty(), "{there:?} have not received everything");
    net.close();
    net.run(Duration::from_secs(5));
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed), "{:?}", net.events);
}

/// As whoever learns whether datagrams for the address arrive does.
#[test]
fn who_listens_at_as_many_addresses_as_there_may_be_joins_one_of_them_again() {
    let mut net = Net::new(1, Config::default());
    let mut join =
        |number: u16| net.hosts[1].join_group(net.now, (Ipv4Addr::new(239, 2, 2, 2), number).into());
    (1..=1024).for_each(|number| join(number).unwrap());
    assert_eq!(join(1025), Err(GroupError::TooManyGroups { max: 1024 }));
    assert_eq!(join(1), Ok(()));
}

#[test]
fn a_policy_has_a_time_that_members_can_keep() {
    let mut net = Net::new(1, Config::default());
    for after in [Duration::ZERO, Duration::from_millis(9), Duration::from_secs(24 * 3600 + 1), Duration::MAX]
    {
        for policy in [GroupPolicy::Eject { after }, GroupPolicy::Lag { after }] {
            let opened = net.hosts[0].open_group(net.now, group_addr(), &[addr(1)], policy.into());
            let error = opened.unwrap_err();
            assert_eq!(error, GroupError::BadPolicy { after });
            assert!(error.to_string().ends_with("between 10ms and 86400s"), "{error}");
        }
    }
}

/// Records were refused as messages are that are too large for their receiver, and the opener's application was told of
/// messages that it had never sent.
#[test]
fn a_group_opens_with_members_that_take_small_messages_alone() {
    let mut net = Net::new(2, Config { max_message_bytes: 10, ..Config::default() });
    net.open(GroupOptions::default());
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net.send(content(0, 10));
    let large = net.hosts[0].group_send(net.group, content(1, 11));
    assert!(matches!(large, Err(GroupError::TooLarge { max: 10, .. })), "{large:?}");
    net.run(Duration::from_secs(1));
    (1..=2).for_each(|host| net.assert_received(host, &[10]));
}
