//! Slow members that live: the others do not go at their pace.

use crate::net::{Link, Net, addr, content, group_addr};
use denrei_proto::Config;
use denrei_proto::group::{
    Departure, GroupBackend, GroupEvent, GroupOptions, GroupPolicy, MemberPath, MembershipEnd, Removal,
};
use denrei_wire::Instant;
use std::time::Duration;

const MESSAGE_BYTES: usize = 100_000;
const MESSAGES: usize = 100;
const SLOW: usize = 2;
const AFTER: Duration = Duration::from_millis(500);

fn opened(policy: GroupPolicy) -> Net {
    Net::opened(3, GroupOptions { policy, history_bytes: 64 << 20, ..GroupOptions::default() })
}

/// What a member takes now, one message each time that its pace has passed since the last.
struct Reader {
    host: usize,
    pace: Duration,
    next_at: Instant,
}

impl Reader {
    fn new(net: &mut Net, host: usize, pace: Duration, first: Duration) -> Self {
        net.idle.insert(host);
        Self { host, pace, next_at: net.now + first }
    }

    fn read(&mut self, net: &mut Net) {
        if self.next_at <= net.now
            && let Some(message) = net.hosts[self.host].group_recv(net.now, net.group)
        {
            net.received[self.host].push((message.number, message.data));
            self.next_at = net.now + self.pace;
        }
    }
}

/// Keeps the send buffer full until host 1 and 3 have everything, for 4 s at most; how long that took.
fn send_all(net: &mut Net, readers: &mut [Reader]) -> Duration {
    let (begun, mut sent) = (net.now, 0);
    let have_all = |net: &Net| [1, 3].iter().all(|host| net.received[*host].len() == MESSAGES);
    while net.now < begun + Duration::from_secs(4) && !have_all(net) {
        while sent < MESSAGES && net.hosts[0].group_send(net.group, content(sent, MESSAGE_BYTES)).is_ok() {
            sent += 1;
        }
        net.run(Duration::from_millis(1));
        readers.iter_mut().for_each(|reader| reader.read(net));
    }
    net.now.saturating_since(begun)
}

/// Host 2 was moved, once, and has everything in the end.
fn assert_caught_up(net: &mut Net) {
    assert!(matches!(net.events[1..], [GroupEvent::Lagging { member: 1, .. }]), "{:?}", net.events);
    net.idle.clear();
    net.run(Duration::from_secs(6));
    net.assert_received(SLOW, &[MESSAGE_BYTES; MESSAGES]);
    assert!(matches!(net.events[2..], [GroupEvent::CaughtUp { member: 1, .. }]), "{:?}", net.events);
}

/// 10 MB would take 4 s by it.
#[test]
fn the_others_do_not_go_at_the_pace_of_a_slow_link() {
    for (burst, queue) in [(0, 5), (0, 400), (13, 10), (13, 50)] {
        let (burst, queue) = (Duration::from_millis(burst), Duration::from_millis(queue));
        let mut net = opened(GroupPolicy::Lag { after: AFTER });
        net.links.insert(SLOW, (Link { bytes_per_second: 2_500_000, burst, queue }, net.now));
        let took = send_all(&mut net, &mut []);
        assert!(took < AFTER * 2, "{took:?} with a queue of {queue:?}");
        assert_caught_up(&mut net);
    }
}

/// It has everything that was sent, and holds the others up by its credit.
#[test]
fn the_others_do_not_go_at_the_pace_of_a_slow_reader() {
    let mut net = opened(GroupPolicy::Lag { after: AFTER });
    let reader = Reader::new(&mut net, SLOW, Duration::from_millis(200), Duration::ZERO);
    let took = send_all(&mut net, &mut [reader]);
    assert!(took < AFTER * 2, "{took:?}");
    assert_caught_up(&mut net);
}

#[test]
fn who_reads_slowly_is_not_ejected() {
    let mut net = opened(GroupPolicy::Eject { after: AFTER });
    let reader = Reader::new(&mut net, SLOW, Duration::from_millis(200), Duration::ZERO);
    send_all(&mut net, &mut [reader]);
    assert_eq!(net.events, [GroupEvent::Opened]);
}

/// Its credit is used up, but nobody has waited for it so far.
#[test]
fn who_has_not_read_while_nothing_was_to_be_sent_has_its_time_all_the_same() {
    let mut net = opened(GroupPolicy::Eject { after: AFTER });
    net.idle.insert(SLOW);
    net.send(content(0, 4_000_000));
    net.run(AFTER * 4);
    net.send(content(1, 1_000_000));
    net.run(AFTER * 9 / 10);
    assert_eq!(net.events, [GroupEvent::Opened]);
    assert_eq!(net.received[1].len(), 1, "it waits");
    net.run(AFTER / 2);
    assert!(matches!(net.events[1..], [GroupEvent::Departed { member: 1, .. }]), "{:?}", net.events);
    assert_eq!(net.received[1].len(), 2);
}

/// Of several that are equally slow one is always the last.
#[test]
fn where_all_read_slowly_nobody_lags() {
    let mut net = opened(GroupPolicy::Lag { after: AFTER });
    let pace = Duration::from_millis(60);
    let mut readers = [1, 2, 3].map(|host| Reader::new(&mut net, host, pace, pace / 3 * host as u32));
    send_all(&mut net, &mut readers);
    assert_eq!(net.events, [GroupEvent::Opened]);
    assert!(net.received[1].len() > 60, "{} messages", net.received[1].len());
}

/// It would take 4 s to go by the slow link.
#[test]
fn a_group_ends_though_a_member_lacks_much_of_another() {
    let mut net = opened(GroupPolicy::Lag { after: Duration::from_millis(10) });
    let policy = GroupPolicy::Eject { after: AFTER };
    let options = GroupOptions { policy, backend: GroupBackend::Unicast, ..GroupOptions::default() };
    let other = net.hosts[0].open_group(net.now, group_addr(), &[1, 2, 3].map(addr), options).unwrap();
    net.run(Duration::from_secs(1));
    assert_eq!(net.hosts[0].poll_group_event(other), Some(GroupEvent::Opened));
    let queue = Duration::from_millis(50);
    net.links.insert(SLOW, (Link { bytes_per_second: 500_000, burst: Duration::ZERO, queue }, net.now));
    net.send(content(0, 2_000_000));
    net.run(AFTER);
    net.hosts[0].close_group(other).unwrap();
    net.run(AFTER * 2);
    assert_eq!(net.hosts[0].poll_group_event(other), Some(GroupEvent::Closed));
    net.run(Duration::from_secs(6));
    net.assert_received(SLOW, &[2_000_000]);
}

/// It had stood still for long when the group was closed, and holds up the end.
#[test]
fn a_group_ends_though_who_lags_takes_nothing_more() {
    let mut net = opened(GroupPolicy::Lag { after: AFTER });
    net.idle.insert(SLOW);
    (0..80).for_each(|number| net.send(content(number, MESSAGE_BYTES)));
    net.run(AFTER * 4);
    assert!(matches!(net.events[1..], [GroupEvent::Lagging { member: 1, .. }]), "{:?}", net.events);
    net.close();
    net.run(Duration::from_millis(1_900));
    assert_eq!(net.events.len(), 2, "its session has time for probes: {:?}", net.events);
    net.run(Duration::from_millis(300));
    let ends = [
        GroupEvent::Departed {
            member: 1,
            addr: addr(SLOW),
            why: Departure::Ejected,
            last_acknowledged: Some(40),
        },
        GroupEvent::Closed,
    ];
    assert_eq!(net.events[2..], ends);
    net.idle.remove(&SLOW);
    net.drain(SLOW);
    let end = net.hosts[SLOW].membership_end(net.group);
    assert_eq!(end, Some(MembershipEnd::Removed(Removal::Ejected)));
}

/// Its application took too little, and can know that.
#[test]
fn who_lags_further_behind_than_is_retained_hears_why_it_was_removed() {
    let options = GroupOptions {
        policy: GroupPolicy::Lag { after: AFTER },
        history_bytes: 1,
        ..GroupOptions::default()
    };
    let mut net = Net::opened(3, options);
    net.idle.insert(SLOW);
    for number in 0..150 {
        net.send(content(number, MESSAGE_BYTES));
        net.run(AFTER / 10);
    }
    net.run(AFTER * 4);
    let gone =
        |event: &GroupEvent| matches!(event, GroupEvent::Departed { why: Departure::TooFarBehind, .. });
    assert!(net.events.iter().any(gone), "{:?}", net.events);
    net.idle.remove(&SLOW);
    net.drain(SLOW);
    let end = net.hosts[SLOW].membership_end(net.group);
    assert_eq!(end, Some(MembershipEnd::Removed(Removal::TooFarBehind)));
    assert!(end.unwrap().to_string().contains("history_bytes"));
}

/// It is not ejected as long as it goes on.
#[test]
fn who_lags_catches_up_while_a_group_ends() {
    let mut net = opened(GroupPolicy::Lag { after: AFTER });
    let mut reader = Reader::new(&mut net, SLOW, Duration::from_millis(200), Duration::ZERO);
    (0..80).for_each(|number| net.send(content(number, MESSAGE_BYTES)));
    net.run(AFTER * 4);
    net.close();
    for _ in 0..20_000 {
        net.run(Duration::from_millis(1));
        reader.read(&mut net);
    }
    net.assert_received(SLOW, &[MESSAGE_BYTES; 80]);
    assert!(
        matches!(net.events[1..], [GroupEvent::Lagging { .. }, .., GroupEvent::Closed]),
        "{:?}",
        net.events
    );
}

/// The second has all that was sent until the first held it up: it is asked all the same.
#[test]
fn members_that_die_one_behind_the_other_are_not_waited_for_one_after_the_other() {
    let after = Duration::from_secs(1);
    for policy in [GroupPolicy::Eject { after }, GroupPolicy::Lag { after }] {
        let mut net = Net::opened(3, policy.into());
        net.stopped.insert(2);
        net.send(content(0, 3_000_000));
        net.run(Duration::from_millis(50));
        net.stopped.insert(3);
        net.run(after * 11 / 10);
        net.assert_received(1, &[3_000_000]);
        let left_alone = |event: &&GroupEvent| matches!(event, GroupEvent::Departed { member, .. } | GroupEvent::Lagging { member, .. } if *member > 0);
        assert_eq!(net.events.iter().filter(left_alone).count(), 2, "{:?}", net.events);
    }
}

/// What it owes nothing for it is asked all the same, and answers.
#[test]
fn who_answers_while_others_wait_for_another_has_all_its_time() {
    let after = Duration::from_secs(1);
    let mut net = Net::opened(2, GroupPolicy::Eject { after }.into());
    net.stopped.insert(2);
    net.send(content(0, 3_000_000));
    net.run(after * 9 / 10);
    net.stopped.insert(1);
    net.run(after * 7 / 10);
    net.stopped.remove(&1);
    net.run(after * 6 / 10);
    assert!(matches!(net.events[1..], [GroupEvent::Departed { member: 1, .. }]), "{:?}", net.events);
    net.assert_received(1, &[3_000_000]);
}

/// Their word waits to be read, or was lost where nobody read it.
#[test]
fn an_opener_that_stood_still_blames_no_member_for_it() {
    let after = Duration::from_secs(1);
    for policy in [GroupPolicy::Eject { after }, GroupPolicy::Lag { after }] {
        for (still, sent) in [(after * 3, 100_000), (after, 100_000), (after * 3, 5_000_000)] {
            let mut net = Net::opened(4, policy.into());
            net.send(content(0, sent));
            net.drain(0);
            net.stopped.insert(0);
            net.run(still);
            net.stopped.remove(&0);
            net.send(content(1, 100));
            net.run(after * 2);
            assert_eq!(net.events, [GroupEvent::Opened], "{policy:?} {still:?} {sent}");
            (1..=4).for_each(|host| net.assert_received(host, &[sent, 100]));
        }
    }
}

/// By its only round trips, in which its application seldom called, it would be asked when its time is over.
#[test]
fn who_took_long_to_answer_at_first_is_asked_before_it_is_judged() {
    let after = Duration::from_secs(5);
    for policy in [GroupPolicy::Eject { after }, GroupPolicy::Lag { after }] {
        let mut net = Net::new(2, Config::default());
        net.session_delays.insert(2, after * 19 / 20);
        net.open(GroupOptions { policy, open_timeout: after * 10, ..GroupOptions::default() });
        net.run(after * 10);
        net.send(content(0, 100));
        net.run(after);
        net.session_delays.clear();
        net.cut.insert((0, 2));
        net.send(content(1, 5000));
        net.run(after / 20);
        net.cut.clear();
        net.run(after * 2);
        assert_eq!(net.events, [GroupEvent::Opened], "{policy:?}");
        (1..=2).for_each(|host| net.assert_received(host, &[100, 5000]));
    }
}

#[test]
fn an_opener_that_is_called_now_and_then_misses_who_is_dead() {
    let after = Duration::from_secs(1);
    let mut net = Net::opened(3, GroupPolicy::Eject { after }.into());
    net.stopped.insert(2);
    net.send(content(0, 100_000));
    for _ in 0..9 {
        net.run(Duration::from_millis(5));
        net.stopped.insert(0);
        net.run(after * 3 / 2);
        net.stopped.remove(&0);
    }
    net.run(Duration::from_millis(5));
    let gone = |event: &GroupEvent| matches!(event, GroupEvent::Departed { member: 1, .. });
    assert!(net.events.len() == 2 && gone(&net.events[1]), "{:?}", net.events);
    net.assert_received(1, &[100_000]);
}

#[test]
fn a_slow_member_lags_and_catches_up_and_holds_nobody_up() {
    let policy = GroupPolicy::Lag { after: Duration::from_millis(200) };
    let mut net = Net::opened(3, policy.into());
    net.idle.insert(2);
    for number in 0..80 {
        net.send(content(number, 70_000));
    }
    net.run(Duration::from_secs(3));
    assert!(matches!(net.events[1], GroupEvent::Lagging { member: 1, .. }), "{:?}", net.events);
    assert_eq!((net.received[1].len(), net.received[3].len()), (80, 80));
    net.idle.clear();
    net.run(Duration::from_secs(5));
    net.assert_received(2, &[70_000; 80]);
    assert!(matches!(net.events[2], GroupEvent::CaughtUp { member: 1, .. }), "{:?}", net.events);
}

/// What goes to the group's address reaches it nevertheless: it has no room for that, and is served later.
#[test]
fn who_takes_nothing_lags_until_it_has_room_and_holds_no_more_than_its_credit() {
    for loss in [0, 10] {
        let policy = GroupPolicy::Lag { after: Duration::from_millis(200) };
        let options = GroupOptions { policy, history_bytes: 64 << 20, ..GroupOptions::default() };
        let mut net = Net::opened(3, options);
        net.loss = vec![loss; 4];
        net.idle.insert(2);
        for round in 0..2 {
            (0..90).for_each(|number| net.send(content(90 * round + number, 70_000)));
            net.run(Duration::from_secs(2));
        }
        assert_eq!((net.received[1].len(), net.received[3].len()), (180, 180), "nobody waits for it");
        let is_lagging = matches!(net.events[1..], [GroupEvent::Lagging { member: 1, .. }]);
        assert!(is_lagging, "lagging as long as it has no room: {:?}", net.events);
        net.idle.clear();
        net.drain(2);
        let held = net.received[2].len() as u64 * 70_000;
        assert!(held <= Config::default().channel_credit_bytes, "it held {held} bytes");
        net.run(Duration::from_secs(5));
        net.assert_received(2, &[70_000; 180]);
        assert!(matches!(net.events[2..], [GroupEvent::CaughtUp { member: 1, .. }]), "{:?}", net.events);
        net.send(content(180, 100));
        net.run(Duration::from_secs(1));
        assert_eq!(net.paths(), [MemberPath::Multicast; 3]);
        net.assert_received(2, &[[70_000; 180].as_slice(), &[100]].concat());
    }
}
