//! How fast a group goes: no faster than any member has told its opener.

use super::net::{Link, Net, addr, content, group_addr};
use super::sealed::sealed;
use denrei_proto::group::{
    Departure, GroupBackend, GroupEvent, GroupId, GroupOptions, GroupPolicy, MemberPath,
};
use denrei_proto::{ChannelId, Completion, Config, HostLimit, Rate};
use std::time::Duration;

const BACKENDS: [GroupBackend; 3] = [GroupBackend::Auto, GroupBackend::Unicast, GroupBackend::Tree];
const SLOW: Rate = Rate { bytes_per_s: 5_000_000, burst_bytes: 50_000 };
const MEGABYTE: usize = 1_000_000;
/// What the slow member may receive in this time is what is sent.
const MEGABYTES: usize = 5;

fn opened(options: impl Into<GroupOptions>) -> Net {
    opened_with(options, Config::default())
}

fn opened_with(options: impl Into<GroupOptions>, config: Config) -> Net {
    let mut net = Net::new(3, config);
    net.open(options.into());
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net
}

fn on(backend: GroupBackend) -> GroupOptions {
    GroupOptions { backend, ..GroupOptions::default() }
}

fn set_rate(net: &mut Net, host: usize, rate: Rate) {
    let opener = net.hosts[host].peer_at(addr(0)).unwrap();
    net.hosts[host].set_rate(net.now, opener, rate).unwrap();
    net.run(Duration::from_millis(10));
}

/// Sends some megabytes; how long it takes until all have them.
fn send(net: &mut Net) -> Duration {
    let before = net.received[1].len();
    (0..MEGABYTES).for_each(|number| net.send(content(before + number, MEGABYTE)));
    for time in 1.. {
        net.run(Duration::from_millis(10));
        if (1..=3).all(|host| net.received[host].len() == before + MEGABYTES) {
            return Duration::from_millis(10) * time;
        }
        assert!(time < 1000, "{:?}", net.received.iter().map(Vec::len).collect::<Vec<_>>());
    }
    unreachable!()
}

fn assert_slow(took: Duration, what: &str) {
    let expected = MEGABYTES as f64 * MEGABYTE as f64 / SLOW.bytes_per_s as f64;
    let took = took.as_secs_f64();
    assert!((0.9 * expected..1.3 * expected).contains(&took), "{what}: {took} s");
}

#[test]
fn a_queue_that_is_half_empty_takes_a_message_of_any_size() {
    let mut net =
        opened_with(on(GroupBackend::Auto), Config { send_buffer_bytes: 100_000, ..Config::default() });
    net.send(content(0, 40_000));
    net.send(content(1, MEGABYTE));
    net.hosts[0].group_send(net.group, content(2, 1)).unwrap_err();
    net.run(Duration::from_secs(1));
    (1..=3).for_each(|host| net.assert_received(host, &[40_000, MEGABYTE]));
}

#[test]
fn a_group_goes_no_faster_than_a_member_has_told_its_opener() {
    for config in [Config::default(), sealed()] {
        for backend in BACKENDS {
            let mut net = opened_with(on(backend), config.clone());
            assert!(send(&mut net) < Duration::from_millis(200), "{backend:?}: nobody has told a rate");
            set_rate(&mut net, 2, SLOW);
            assert_slow(send(&mut net), &format!("{backend:?}"));
            set_rate(&mut net, 2, Rate::UNLIMITED);
            assert!(send(&mut net) < Duration::from_millis(200), "{backend:?}: it is unlimited again");
        }
    }
}

#[test]
fn a_group_stands_still_while_a_member_lets_nothing_come_and_goes_on_when_it_does_or_leaves() {
    for backend in [GroupBackend::Auto, GroupBackend::Unicast] {
        for leaves in [false, true] {
            let mut net = opened(on(backend));
            set_rate(&mut net, 3, Rate::STOPPED);
            net.send(content(0, 20_000));
            net.run(Duration::from_secs(2));
            assert!(net.received.iter().all(Vec::is_empty), "{backend:?}");
            let group = net.group;
            match leaves {
                true => net.hosts[3].leave_group(net.now, group),
                false => set_rate(&mut net, 3, Rate::UNLIMITED),
            }
            net.run(Duration::from_millis(500));
            net.assert_received(1, &[20_000]);
            net.assert_received(2, &[20_000]);
        }
    }
}

/// Rates at which nothing comes for hours once a burst has come.
const NEXT_TO_NOTHING: [Rate; 3] = [
    Rate::STOPPED,
    Rate { bytes_per_s: 1, burst_bytes: 10_000 },
    Rate { bytes_per_s: 1_000, burst_bytes: 2_000_000 },
];

#[test]
fn a_member_that_lets_next_to_nothing_come_and_dies_is_noticed() {
    for (rate, backend) in
        NEXT_TO_NOTHING.into_iter().flat_map(|rate| BACKENDS.map(|backend| (rate, backend)))
    {
        // Nothing else asks for a sign of life.
        let mut net = opened_with(on(backend), Config { keepalive: None, ..Config::default() });
        set_rate(&mut net, 2, rate);
        (0..6).for_each(|number| net.send(content(number, MEGABYTE)));
        net.run(Duration::from_secs(2));
        net.stopped.insert(2);
        net.run(Config::default().failure_timeout * 2);
        let [_, GroupEvent::Departed { member: 1, why: Departure::Lost(_), .. }] = net.events[..] else {
            panic!("{backend:?}, {rate}: {:?}", net.events);
        };
        net.assert_received(1, &[MEGABYTE; 6]);
        net.assert_received(3, &[MEGABYTE; 6]);
    }
}

#[test]
fn it_is_noticed_where_others_speak_for_it_as_well() {
    for rate in NEXT_TO_NOTHING {
        let mut net = Net::new(80, Config { keepalive: None, ..Config::default() });
        net.open(GroupPolicy::Wait.into());
        net.run(Duration::from_secs(1));
        set_rate(&mut net, 70, rate);
        (0..6).for_each(|number| net.send(content(number, MEGABYTE)));
        net.run(Duration::from_secs(2));
        net.stopped.insert(70);
        net.run(Config::default().failure_timeout * 2);
        assert!(
            matches!(net.events[1..], [GroupEvent::Departed { member: 69, .. }]),
            "{rate}: {:?}",
            net.events
        );
        net.assert_received(80, &[MEGABYTE; 6]);
    }
}

#[test]
fn a_member_that_lets_next_to_nothing_come_is_asked_now_and_then_and_stays_where_it_is() {
    for rate in NEXT_TO_NOTHING {
        let mut net = opened(GroupOptions { policy: GroupPolicy::Wait, ..GroupOptions::default() });
        set_rate(&mut net, 3, rate);
        (0..6).for_each(|number| net.send(content(number, MEGABYTE)));
        net.run(Duration::from_secs(2));
        let before = net.sent_datagrams;
        net.run(Duration::from_secs(60));
        let sent = net.sent_datagrams - before;
        assert!(sent < 60 * 2 * 8, "{sent} datagrams to three hosts and back in a minute");
        assert_eq!(net.paths(), [MemberPath::Multicast; 3]);
        assert_eq!(net.events, [GroupEvent::Opened]);
    }
}

const AFTER: Duration = Duration::from_millis(500);

#[test]
fn a_member_that_lets_nothing_come_for_too_long_is_ejected_and_the_others_go_on() {
    for backend in BACKENDS {
        let policy = GroupPolicy::Eject { after: AFTER };
        let mut net = opened(GroupOptions { backend, policy, ..GroupOptions::default() });
        set_rate(&mut net, 2, Rate::STOPPED);
        net.run(AFTER * 4);
        (0..50).for_each(|number| net.send(content(number, 20_000)));
        net.run(AFTER * 9 / 10);
        assert_eq!(net.events, [GroupEvent::Opened], "{backend:?}: nothing waited for it before");
        net.run(AFTER / 2);
        let [_, GroupEvent::Departed { member: 1, why: Departure::Ejected, .. }] = net.events[..] else {
            panic!("{backend:?}: {:?}", net.events);
        };
        net.assert_received(1, &[20_000; 50]);
        net.assert_received(3, &[20_000; 50]);
    }
}

#[test]
fn nor_do_others_speak_for_it_where_reports_are_joined() {
    let mut net = Net::opened(80, GroupPolicy::Eject { after: AFTER }.into());
    set_rate(&mut net, 70, Rate::STOPPED);
    net.send(content(0, 20_000));
    net.run(AFTER * 3 / 2);
    assert!(matches!(net.events[1..], [GroupEvent::Departed { member: 69, .. }]), "{:?}", net.events);
    net.assert_received(80, &[20_000]);
}

#[test]
fn a_member_that_lets_nothing_come_now_and_then_is_not_ejected() {
    let policy = GroupPolicy::Eject { after: AFTER };
    let mut net = opened(GroupOptions { policy, ..GroupOptions::default() });
    for round in 0..5 {
        set_rate(&mut net, 2, Rate::STOPPED);
        net.send(content(round, 20_000));
        net.run(AFTER * 9 / 10);
        set_rate(&mut net, 2, Rate::UNLIMITED);
    }
    assert_eq!(net.events, [GroupEvent::Opened]);
    net.assert_received(1, &[20_000; 5]);
}

#[test]
fn a_member_that_lets_nothing_come_for_too_long_lags_until_it_does() {
    for backend in BACKENDS {
        let policy = GroupPolicy::Lag { after: AFTER };
        let mut net = opened(GroupOptions { backend, policy, ..GroupOptions::default() });
        set_rate(&mut net, 2, Rate::STOPPED);
        (0..50).for_each(|number| net.send(content(number, 20_000)));
        net.run(AFTER * 3 / 2);
        net.assert_received(1, &[20_000; 50]);
        net.assert_received(3, &[20_000; 50]);
        (50..100).for_each(|number| net.send(content(number, 20_000)));
        net.run(AFTER / 10);
        net.assert_received(1, &[20_000; 100]);
        let [_, GroupEvent::Lagging { member: 1, .. }] = net.events[..] else {
            panic!("{backend:?}: {:?}", net.events);
        };
        set_rate(&mut net, 2, Rate::UNLIMITED);
        net.run(Duration::from_secs(1));
        net.assert_received(2, &[20_000; 100]);
        assert!(matches!(net.events[2..], [GroupEvent::CaughtUp { member: 1, .. }]), "{:?}", net.events);
    }
}

/// One that a relay stands behind stops its senders again and again.
#[test]
fn a_member_that_lets_nothing_come_for_most_of_the_time_lags() {
    let policy = GroupPolicy::Lag { after: AFTER };
    let mut net = opened(GroupOptions { policy, ..GroupOptions::default() });
    for round in 0..5 {
        set_rate(&mut net, 2, Rate::STOPPED);
        net.send(content(round, 20_000));
        net.run(AFTER / 5);
        set_rate(&mut net, 2, Rate::UNLIMITED);
    }
    assert!(matches!(net.events[1], GroupEvent::Lagging { member: 1, .. }), "{:?}", net.events);
}

#[test]
fn lost_packets_of_a_paced_group_come_again() {
    for backend in BACKENDS {
        let mut net = opened(on(backend));
        net.loss = vec![0, 20, 20, 20];
        set_rate(&mut net, 1, SLOW);
        net.run(Duration::from_millis(500));
        let took = send(&mut net);
        assert!(took > Duration::from_millis(900), "{backend:?}: {took:?}");
        for host in 1..=3 {
            net.assert_received(host, &[MEGABYTE; MEGABYTES]);
        }
    }
}

const LONG: Duration = Duration::from_secs(2);

/// Keeps host 0 busy with messages to host 2 and to its groups for so long; what host 2 gets of either in a second.
fn send_both(net: &mut Net, groups: &[GroupId], time: Duration) -> (u64, u64) {
    let (mut by_session, mut by_groups) = (0, 0);
    let channel = ChannelId { peer: net.hosts[0].peer_at(addr(2)).unwrap(), channel: 0 };
    let message = content(0, 50_000);
    let step = Duration::from_millis(10);
    for _ in 0..time.as_millis() / step.as_millis() {
        while net.hosts[0].send(channel, message.clone(), Completion::None).is_ok() {}
        for group in groups {
            while net.hosts[0].group_send(*group, message.clone()).is_ok() {}
        }
        net.run(step);
        by_session += core::iter::from_fn(|| net.hosts[2].recv(net.now)).count() as u64;
        for host in 1..=3 {
            let taken =
                |group: &GroupId| core::iter::from_fn(|| net.hosts[host].group_recv(net.now, *group)).count();
            let taken = groups.iter().map(taken).sum::<usize>() + net.received[host].drain(..).count();
            by_groups += if host == 2 { taken as u64 } else { 0 };
        }
    }
    let per_second = |messages: u64| messages * message.len() as u64 * 1000 / time.as_millis() as u64;
    (per_second(by_session), per_second(by_groups))
}

#[test]
fn a_members_rate_is_for_all_that_comes_from_its_opener() {
    for backend in BACKENDS {
        let mut net = opened(on(backend));
        let group = net.group;
        let members = [addr(1), addr(2), addr(3)];
        let second = net.hosts[0].open_group(net.now, group_addr(), &members, on(backend)).unwrap();
        net.run(Duration::from_millis(500));
        set_rate(&mut net, 2, SLOW);
        let told = SLOW.bytes_per_s;
        let is_told = |bytes: u64| (told * 8 / 10..=told * 12 / 10).contains(&bytes);
        let (by_session, by_group) = send_both(&mut net, &[group], LONG);
        assert!(is_told(by_session + by_group), "{backend:?}: {by_session} and {by_group} of {told}");
        assert!(by_session.min(by_group) > told / 5, "{backend:?}: {by_session} and {by_group} of {told}");
        let (by_session, by_groups) = send_both(&mut net, &[group, second], LONG);
        assert!(is_told(by_session + by_groups), "{backend:?}: {by_session} and {by_groups} of {told}");
    }
}

/// As far as groups are served by sessions.
#[test]
fn what_the_application_sends_a_member_does_not_keep_its_groups_from_it() {
    // A network without limits carries much in a short time.
    for (rate, time) in [(Rate::UNLIMITED, LONG / 10), (SLOW, LONG)] {
        let mut net = opened(on(GroupBackend::Tree));
        set_rate(&mut net, 2, rate);
        let group = net.group;
        let (by_session, by_group) = send_both(&mut net, &[group], time);
        assert!(by_group > by_session / 3, "{rate}: {by_group} beside {by_session}");
    }
}

/// Runs for a while with a host whose Node says every 10 ms what it may receive.
fn run_limited(net: &mut Net, host: usize, time: Duration) {
    let step = Duration::from_millis(10);
    let rate = Rate { bytes_per_s: SLOW.bytes_per_s, burst_bytes: 0 };
    for _ in 0..time.as_millis() / step.as_millis() {
        net.hosts[host].share_host(net.now, Some(HostLimit { rate, is_learnt: false }), &[], 0);
        net.run(step);
    }
}

#[test]
fn packets_of_a_group_count_at_its_member_and_keep_to_the_limit_of_its_host() {
    for backend in [GroupBackend::Auto, GroupBackend::Unicast] {
        let mut net = opened_with(on(backend), Config { learn_rates: true, ..Config::default() });
        run_limited(&mut net, 1, Duration::from_millis(500));
        (0..MEGABYTES).for_each(|number| net.send(content(number, MEGABYTE)));
        run_limited(&mut net, 1, Duration::from_millis(500));
        let comes = net.hosts[1].host_record(net.now).bytes_per_s as f64 / SLOW.bytes_per_s as f64;
        assert!((0.8..1.2).contains(&comes), "{backend:?}: {comes} of what the host may receive");
        let arrived = net.received[1].len();
        assert!((1..=3).contains(&arrived), "{backend:?}: {arrived} of {MEGABYTES} in half of the time");
        run_limited(&mut net, 1, Duration::from_secs(1));
        for host in 1..=3 {
            net.assert_received(host, &[MEGABYTE; MEGABYTES]);
        }
    }
}

/// Sends some megabytes twice by unicast over a path whose queue holds half of what is under way; how long the second
/// half took, and how many octets of it went for each that had to.
fn send_over_a_long_path(least: Duration) -> (Duration, f64) {
    let mut net = Net::new(3, Config::default());
    net.session_delay = least / 2;
    for host in 1..=3 {
        let link = Link { bytes_per_second: 4_000_000, burst: Duration::ZERO, queue: least / 2 };
        net.links.insert(host, (link, net.now));
    }
    net.open(on(GroupBackend::Unicast));
    net.run(Duration::from_secs(1));
    send(&mut net);
    let before = net.sent_bytes;
    let took = send(&mut net);
    (took, (net.sent_bytes - before) as f64 / (3 * MEGABYTES * MEGABYTE) as f64)
}

#[test]
fn what_comes_again_over_a_long_path_does_not_let_go_more_than_its_queue_holds() {
    let (took, sent) = send_over_a_long_path(Duration::from_millis(60));
    assert!(took < Duration::from_millis(2100), "{took:?} where the link takes 1250 ms");
    assert!(sent < 1.12, "{sent} of what had to go");
}
