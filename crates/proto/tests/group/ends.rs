//! How groups and memberships end, and what is left of them: found by `cargo xtask sim --groups`.

use super::net::{Link, Net, addr, content, group_addr};
use denrei_proto::group::{
    Departure, GroupBackend, GroupError, GroupEvent, GroupOptions, GroupPolicy, Invited,
};
use denrei_proto::group::{MemberPath, MembershipEnd, Removal};
use denrei_proto::{Completion, Config};
use denrei_wire::TransmitBuf;
use std::net::SocketAddr;
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(500);

fn joined(members: usize, config: Config) -> Net {
    let mut net = Net::new(members, config);
    (1..=members).for_each(|host| net.hosts[host].join_group(net.now, group_addr()).unwrap());
    net
}

/// Who has taken nothing yet takes it now, and is nobody's member any more.
fn take_all(net: &mut Net, host: usize) {
    net.idle.remove(&host);
    net.drain(host);
}

#[test]
fn who_is_a_member_of_a_group_that_is_forgotten_is_told() {
    let mut net = Net::opened(2, GroupOptions::default());
    net.send(content(0, 100));
    net.run(PAUSE);
    let group = net.group;
    net.hosts[0].forget_group(net.now, group);
    net.run(PAUSE);
    for host in 1..=2 {
        assert_eq!(net.hosts[host].membership_end(group), Some(MembershipEnd::Removed(Removal::Wanted)));
    }
}

/// Else whoever waits would not hear of as much news of others as the group has had.
#[test]
fn what_a_group_that_is_forgotten_has_told_counts_as_news_still() {
    let mut net = Net::opened(2, GroupOptions::default());
    let (told, group) = (net.hosts[0].news(), net.group);
    assert!(told > 0);
    net.hosts[0].forget_group(net.now, group);
    assert!(net.hosts[0].news() >= told, "{} after {told}", net.hosts[0].news());
}

#[test]
fn who_is_invited_to_a_group_that_is_closed_before_it_is_open_is_told() {
    let mut net = joined(1, Config::default());
    let group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(9)], GroupOptions::default());
    net.group = group.unwrap();
    net.run(PAUSE);
    assert_eq!(net.hosts[1].group_invited(group_addr()), Invited::Yes);
    net.close();
    net.run(PAUSE);
    assert_eq!(net.hosts[1].group_invited(group_addr()), Invited::GivenUp);
}

#[test]
fn who_has_departed_is_no_member_to_remove() {
    let mut net = Net::opened(2, GroupOptions::default());
    let group = net.group;
    net.hosts[1].leave_group(net.now, group);
    net.run(PAUSE);
    net.hosts[0].remove_group_member(net.now, group, 1).unwrap();
    for member in 0..3 {
        let removed = net.hosts[0].remove_group_member(net.now, group, member);
        assert_eq!(removed, Err(GroupError::UnknownMember { group, member }));
    }
}

#[test]
fn nobody_is_invited_to_a_group_that_one_of_its_members_cannot_be_in() {
    let mut net = joined(1, Config::default());
    let nowhere = "10.0.0.9:0".parse().unwrap();
    let members = [addr(1), nowhere];
    net.hosts[0].open_group(net.now, group_addr(), &members, GroupOptions::default()).unwrap_err();
    net.run(PAUSE);
    assert_eq!(net.hosts[1].group_invited(group_addr()), Invited::No);
}

/// It still hears the group's address, and the questions to those who are left.
#[test]
fn who_was_removed_says_nothing_more() {
    let mut net = Net::opened(2, GroupOptions::default());
    let group = net.group;
    net.hosts[0].remove_group_member(net.now, group, 0).unwrap();
    net.run(PAUSE);
    let reports = |net: &Net, host: usize| net.hosts[host].membership_counters(group).unwrap().reports;
    let before = [1, 2].map(|host| reports(&net, host));
    net.send(content(0, 20));
    net.run(PAUSE);
    assert_eq!(reports(&net, 1), before[0]);
    assert!(reports(&net, 2) > before[1], "it was asked");
}

#[test]
fn what_nobody_is_there_for_waits_for_nobody() {
    for backend in [GroupBackend::Auto, GroupBackend::Unicast, GroupBackend::Tree] {
        let mut net = Net::opened(2, GroupOptions { backend, ..GroupOptions::default() });
        net.send(content(0, 3_000_000));
        net.run(Duration::from_micros(300));
        let group = net.group;
        (1..=2).for_each(|host| net.hosts[host].leave_group(net.now, group));
        net.run(PAUSE);
        assert_eq!(net.hosts[0].group_queue_bytes(group), Some(0), "{backend:?}");
        assert_eq!(net.hosts[0].group_is_flushed(group), Err(GroupError::Deserted(group)), "{backend:?}");
        net.close();
        net.run(PAUSE);
        assert_eq!(net.events.last(), Some(&GroupEvent::Closed), "{backend:?}");
        assert_eq!(net.hosts[0].group_is_flushed(group), Err(GroupError::Deserted(group)), "{backend:?}");
    }
}

#[test]
fn what_the_last_member_has_acknowledged_is_flushed_though_all_have_left() {
    let mut net = Net::opened(2, GroupOptions::default());
    let group = net.group;
    net.hosts[1].leave_group(net.now, group);
    net.send(content(0, 3_000));
    assert_eq!(net.hosts[0].group_is_flushed(group), Ok(false));
    net.run(PAUSE);
    assert_eq!(net.hosts[0].group_is_flushed(group), Ok(true), "one is there");
    net.hosts[2].leave_group(net.now, group);
    net.run(PAUSE);
    assert_eq!(net.hosts[0].group_is_flushed(group), Ok(true));
    net.close();
    net.run(PAUSE);
    assert_eq!(net.hosts[0].group_is_flushed(group), Ok(true), "it is over");
}

#[test]
fn who_leaves_with_a_message_whose_report_was_lost_has_acknowledged_it() {
    for backend in [GroupBackend::Multicast, GroupBackend::Unicast] {
        let mut net = Net::opened(1, GroupOptions { backend, ..GroupOptions::default() });
        let group = net.group;
        net.send(content(0, 3_000));
        while net.received[1].is_empty() {
            net.run(Duration::from_micros(5));
        }
        net.under_way.retain(|_, (to, ..)| *to != 0);
        net.hosts[1].leave_group(net.now, group);
        net.run(PAUSE);
        assert_eq!(net.hosts[0].group_is_flushed(group), Ok(true), "{backend:?}");
        let left =
            |event: &GroupEvent| matches!(event, GroupEvent::Departed { last_acknowledged: Some(0), .. });
        assert!(net.events.iter().any(left), "{backend:?}: {:?}", net.events);
    }
}

#[test]
fn who_has_received_nothing_has_acknowledged_nothing() {
    let mut net = joined(2, Config::default());
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1)], GroupOptions::default()).unwrap();
    net.run(PAUSE);
    (0..5).for_each(|number| net.send(content(number, 100)));
    net.run(PAUSE);
    let group = net.group;
    net.hosts[0].add_group_member(net.now, group, addr(2), false).unwrap();
    net.run(PAUSE);
    assert_eq!(net.events[1..], [GroupEvent::Joined { member: 1, addr: addr(2), first_message: 5 }]);
    net.hosts[2].leave_group(net.now, group);
    net.run(PAUSE);
    let (why, last_acknowledged) = (Departure::Left, None);
    assert_eq!(net.events[2..], [GroupEvent::Departed { member: 1, addr: addr(2), why, last_acknowledged }]);
}

/// Host 1 takes no message of 200,000 octets.
fn takes_little() -> Net {
    let mut net = joined(2, Config::default());
    let config = Config { max_message_bytes: 100_000, ..Config::default() };
    net.hosts[1] = denrei_proto::Endpoint::new(config.into(), 77, net.now);
    net.hosts[1].join_group(net.now, group_addr()).unwrap();
    net
}

#[test]
fn what_waits_for_a_member_that_cannot_take_it_keeps_it_from_taking_part() {
    let mut net = takes_little();
    let options = GroupOptions::default();
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options.clone()).unwrap();
    net.send(content(0, 200_000));
    net.run(PAUSE);
    assert_eq!(net.events, [GroupEvent::OpenFailed { missing: vec![(addr(1), Departure::Refused)] }]);
    // Whoever still had time to answer is not to blame.
    let mut net = takes_little();
    net.stopped.insert(2);
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options.clone()).unwrap();
    net.send(content(0, 200_000));
    net.run(PAUSE);
    assert_eq!(net.events, [GroupEvent::OpenFailed { missing: vec![(addr(1), Departure::Refused)] }]);

    let mut net = takes_little();
    let options = GroupOptions { history_bytes: 1 << 20, ..options };
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(2)], options).unwrap();
    net.run(PAUSE);
    net.send(content(0, 200_000));
    net.run(PAUSE);
    let group = net.group;
    net.hosts[0].add_group_member(net.now, group, addr(1), true).unwrap();
    net.run(PAUSE);
    let joined = GroupEvent::Joined { member: 1, addr: addr(1), first_message: 1 };
    assert_eq!(net.events[1..], [joined], "without the history that it could not take");
    let refused = net.hosts[0].group_send(group, content(1, 200_000));
    assert_eq!(refused, Err(GroupError::TooLarge { bytes: 200_000, max: 100_000 }));
}

/// All have answered, and there was no time to find out who hears the address.
#[test]
fn a_group_opens_with_who_is_there_when_time_is_up() {
    let mut net = joined(2, Config::default());
    net.deaf.insert(2);
    let options = GroupOptions { open_timeout: Duration::from_millis(60), ..GroupOptions::default() };
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options).unwrap();
    net.run(PAUSE);
    assert_eq!(net.events, [GroupEvent::Opened]);
    assert_eq!(net.paths(), [MemberPath::Multicast, MemberPath::Unicast]);
}

/// What a policy waits for: too short for a member to be served otherwise meanwhile.
const PATIENCE: Duration = Duration::from_millis(150);

/// Of a chain of two members the last stands still, and some time later the relay, too; and the opener has sent
/// something to each.
fn standing_still(policy: GroupPolicy, later: Duration) -> Net {
    let options = GroupOptions { policy, backend: GroupBackend::Tree, fan_out: 1, ..GroupOptions::default() };
    let mut net = Net::opened(2, options);
    net.stopped.insert(2);
    net.send(content(0, 20));
    net.run(later);
    net.stopped.insert(1);
    net.send(content(1, 20));
    net
}

/// The driver would be called without end while a child waits for its relay to be judged.
#[test]
fn nobody_is_called_in_vain_while_a_relay_stands_still() {
    for policy in [GroupPolicy::Lag { after: PATIENCE }, GroupPolicy::Eject { after: PATIENCE }] {
        let mut net = standing_still(policy, PATIENCE / 5);
        net.run(PATIENCE * 11 / 10 - PATIENCE / 5);
        assert!(net.hosts[0].poll_timeout().is_some_and(|at| at > net.now), "{policy:?}");
    }
}

/// What was due while the opener's process was off its core is done at once, or not due any more.
#[test]
fn a_late_opener_is_not_called_in_vain_for_whoever_waits_for_a_relay() {
    for policy in [GroupPolicy::Lag { after: PATIENCE }, GroupPolicy::Eject { after: PATIENCE }] {
        let mut net = standing_still(policy, PATIENCE * 7 / 10);
        net.run(PATIENCE / 100);
        net.stopped.insert(0);
        net.run(PATIENCE * 6 / 10);
        net.stopped.remove(&0);
        net.hosts[0].handle_timeout(net.now);
        net.drain(0);
        assert!(net.hosts[0].poll_timeout().is_some_and(|at| at > net.now), "{policy:?}");
    }
}

#[test]
fn who_joins_with_history_gets_messages_beyond_its_credit() {
    let config = Config { channel_credit_bytes: 64 << 10, offer_above_bytes: 32 << 10, ..Config::default() };
    for sizes in [vec![200_000], vec![100, 50_000, 20_000, 300_000, 7, 100_000]] {
        let mut net = joined(2, config.clone());
        let options = GroupOptions { history_bytes: 8 << 20, ..GroupOptions::default() };
        net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1)], options).unwrap();
        net.run(PAUSE);
        sizes.iter().enumerate().for_each(|(number, size)| net.send(content(number, *size)));
        net.run(PAUSE);
        let group = net.group;
        net.hosts[0].add_group_member(net.now, group, addr(2), true).unwrap();
        net.run(PAUSE * 4);
        (1..=2).for_each(|host| net.assert_received(host, &sizes));
    }
}

/// Its LEAVE is of the membership before, and has met the invitation.
#[test]
fn who_leaves_while_it_is_invited_again_is_no_member() {
    let mut net = Net::opened(2, GroupOptions::default());
    let group = net.group;
    net.hosts[0].remove_group_member(net.now, group, 1).unwrap();
    net.hosts[0].add_group_member(net.now, group, addr(2), false).unwrap();
    net.hosts[2].leave_group(net.now, group);
    net.run(PAUSE);
    assert_ne!(net.hosts[2].group_invited(group_addr()), Invited::Yes, "it would wait for ever");
    net.close();
    net.run(PAUSE);
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
}

/// The same, and it had a message then: as a member that has not begun it has none.
#[test]
fn what_a_membership_before_had_is_not_the_next_ones() {
    let mut net = Net::opened(2, GroupOptions::default());
    let group = net.group;
    net.send(content(0, 1_000));
    net.run(PAUSE);
    net.hosts[0].remove_group_member(net.now, group, 1).unwrap();
    net.hosts[0].add_group_member(net.now, group, addr(2), false).unwrap();
    net.hosts[2].leave_group(net.now, group);
    net.run(PAUSE);
    let departed = |event: &&GroupEvent| matches!(event, GroupEvent::Departed { member: 2, .. });
    let gone = net.events.iter().find(departed).expect("its LEAVE counts");
    assert!(matches!(gone, GroupEvent::Departed { last_acknowledged: None, .. }), "{gone:?}");
}

#[test]
fn what_was_received_before_being_invited_again_is_not_lost() {
    let mut net = joined(2, Config::default());
    net.idle.insert(2);
    net.group =
        net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], GroupOptions::default()).unwrap();
    net.run(PAUSE);
    net.send(content(0, 1_000));
    net.run(PAUSE);
    let group = net.group;
    net.hosts[0].remove_group_member(net.now, group, 1).unwrap();
    net.hosts[0].add_group_member(net.now, group, addr(2), false).unwrap();
    net.run(PAUSE);
    let (now, host) = (net.now, &mut net.hosts[2]);
    assert_eq!(host.accept_group(group_addr()), Some((group, 1)));
    assert_eq!(host.group_recv(now, (group, 1)).unwrap().data, content(0, 1_000));
    assert_eq!(host.membership_end((group, 1)), Some(MembershipEnd::Removed(Removal::Wanted)));
    assert_eq!(host.accept_group(group_addr()), Some((group, 2)));
    host.leave_group(now, (group, 1));
    take_all(&mut net, 2);
    assert_eq!(net.hosts[2].held_bytes(), 0);
}

/// A group that fills the line would leave sessions without acknowledgements until they are lost.
#[test]
fn sessions_have_their_turns_beside_a_group() {
    let mut net = Net::opened(2, GroupOptions::default());
    (0..100).for_each(|number| net.send(content(number, 20_000)));
    let peer = net.hosts[0].peer_at(addr(1)).unwrap();
    let to = denrei_proto::ChannelId { peer, channel: 0 };
    net.hosts[0].send(to, content(0, 10), Completion::None).unwrap();
    let mut buf = TransmitBuf::new(1);
    let mut next = |ms| net.hosts[0].poll_transmit(net.now + Duration::from_millis(ms), &mut buf).unwrap().to;
    assert_eq!([next(0), next(1), next(1)], [group_addr(), addr(1), group_addr()]);
}

#[test]
fn who_is_removed_before_all_have_answered_is_not_waited_for() {
    let mut net = joined(2, Config::default());
    let listed = [addr(1), addr(9), addr(2)];
    net.group = net.hosts[0].open_group(net.now, group_addr(), &listed, GroupOptions::default()).unwrap();
    net.send(content(0, 2_000));
    net.run(PAUSE);
    net.hosts[0].remove_group_member(net.now, net.group, 1).unwrap();
    net.run(PAUSE);
    assert_eq!(net.events, [GroupEvent::Opened]);
    [1, 2].into_iter().for_each(|host| net.assert_received(host, &[2_000]));
    let status = net.hosts[0].group_status(net.group).unwrap();
    assert_eq!(status.members.iter().map(|member| member.active).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(status.active().map(|member| member.member).collect::<Vec<_>>(), [0, 2]);
    net.close();
    net.run(PAUSE);
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed));

    let mut net = Net::new(1, Config::default());
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1)], GroupOptions::default()).unwrap();
    net.send(content(0, 2_000));
    net.hosts[0].remove_group_member(net.now, net.group, 0).unwrap();
    net.run(PAUSE);
    assert_eq!(net.events, [GroupEvent::Opened]);
    assert_eq!(net.hosts[0].group_queue_bytes(net.group), Some(0), "nobody is waited for");
}

/// The others are sent what it need not take, and it has not heard yet that it is out.
#[test]
fn who_was_ejected_does_not_blame_the_opener_for_what_others_take() {
    let mut net = takes_little();
    let options =
        GroupOptions { policy: GroupPolicy::Eject { after: PAUSE / 10 }, ..GroupOptions::default() };
    net.group = net.hosts[0].open_group(net.now, group_addr(), &[addr(1), addr(2)], options).unwrap();
    net.run(PAUSE);
    // What it says, and what is said to it alone, is a long time under way.
    net.session_delays.insert(1, PAUSE);
    net.send(content(0, 1_000));
    net.run(PAUSE / 2);
    net.send(content(1, 200_000));
    net.run(PAUSE * 2);
    net.assert_received(2, &[1_000, 200_000]);
    assert_eq!(net.hosts[1].membership_end(net.group), Some(MembershipEnd::Removed(Removal::Ejected)));
}

/// A host's answer to one opener would wait for megabytes that it sends the same host for a group of its own.
#[test]
fn an_answer_does_not_wait_for_symbols() {
    let mut net = Net::new(2, Config::default());
    let link = Link { bytes_per_second: 1_000_000, burst: Duration::ZERO, queue: Duration::from_millis(100) };
    net.links.insert(1, (link, net.now));
    net.open(GroupOptions { backend: GroupBackend::Tree, ..GroupOptions::default() });
    net.run(PAUSE);
    net.send(content(0, 3_000_000));
    net.run(PAUSE);
    let options = GroupOptions { open_timeout: PAUSE * 2, ..GroupOptions::default() };
    net.hosts[0].join_group(net.now, group_addr()).unwrap();
    let other = net.hosts[1].open_group(net.now, group_addr(), &[addr(0)], options).unwrap();
    net.run(PAUSE);
    assert!(net.hosts[1].group_status(other).unwrap().open);
    assert!(net.received[1].is_empty(), "what it did not wait for is still under way");
    net.run(PAUSE * 10);
    net.assert_received(1, &[3_000_000]);
}

/// Records go both ways: the group would wait for ever for what half a session does not carry.
#[test]
fn a_session_of_which_a_half_is_closed_carries_no_group() {
    for (host, to) in [(0, 1), (1, 0)] {
        for close in [denrei_proto::Endpoint::close_read, denrei_proto::Endpoint::close_write] {
            let mut net = Net::opened(2, GroupOptions::default());
            net.send(content(0, 100));
            net.run(PAUSE);
            let peer = net.hosts[host].peer_at(addr(to)).unwrap();
            close(&mut net.hosts[host], net.now, peer).unwrap();
            net.run(PAUSE);
            net.send(content(1, 100));
            net.close();
            net.run(PAUSE);
            assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
            let ended = net.hosts[1].membership_end(net.group);
            assert!(matches!(ended, Some(MembershipEnd::Lost(_))), "{host}: {ended:?}");
            net.assert_received(2, &[100, 100]);
        }
    }
}

/// It had not begun when its relay handed the symbol on. The opener sent it to an address that nobody hears, for ever.
#[test]
fn what_a_relay_brings_before_begin_comes_again_in_a_crowd() {
    let mut net = Net::new(80, Config::default());
    net.opener_delays.insert(30, PAUSE / 50);
    net.open(GroupOptions { backend: GroupBackend::Tree, ..GroupOptions::default() });
    net.send(content(0, 20_000));
    net.run(PAUSE * 10);
    (1..=80).for_each(|host| net.assert_received(host, &[20_000]));
    assert_eq!(net.multicast_datagrams, 0);
}

#[test]
fn who_waits_for_a_repair_of_an_opener_that_is_dead_asks_ever_more_seldom_and_notices() {
    for members in [2, 80] {
        let mut net = Net::opened(members, GroupOptions::default());
        net.loss[2] = 500;
        (0..20).for_each(|number| net.send(content(number, 20_000)));
        net.run(Duration::from_millis(1));
        net.loss[2] = 0;
        net.stopped.insert(0);
        let before = net.sent_datagrams;
        net.run(Config::default().failure_timeout * 3);
        let reports = net.hosts[2].membership_counters(net.group).unwrap().reports;
        assert!(reports > 20, "something was missing: {reports}");
        let asked = net.sent_datagrams - before;
        assert!(asked < 200 * members as u64, "{asked} datagrams to somebody dead");
        let end = net.hosts[2].membership_end(net.group);
        assert!(matches!(end, Some(MembershipEnd::Lost(_))), "{members}: {end:?}");
    }
}

#[test]
fn why_a_group_was_not_opened_is_said_of_each_member_and_once() {
    let silent = |host| (addr(host), Departure::Silent);
    let refused = (addr(4), Departure::Refused);
    let said = |missing: Vec<(SocketAddr, Departure)>| GroupError::OpenFailed { missing }.to_string();
    let named = |host| addr(host).to_string();
    let text = said(vec![silent(1), refused.clone(), silent(2)]);
    let [first, second] =
        text.strip_prefix("the group was not opened: ").unwrap().split("; ").collect::<Vec<_>>()[..]
    else {
        panic!("{text}")
    };
    assert_eq!(first, format!("no answer from {}, {} within open_timeout", named(1), named(2)));
    assert_eq!(second, format!("{}: {}", named(4), refused.1));
    assert_ne!(said(vec![(addr(1), Departure::OutOfReach)]), said(vec![silent(1)]));
}
