//! Groups of Nodes over real sockets on loopback.

use crate::common::background;
use crate::common::cable::Cable;
use denrei::{
    Bytes, Config, Departure, Group, GroupBackend, GroupError, GroupEvent, GroupOptions, GroupPolicy,
    GroupStatus, MemberPath, Membership, MembershipEnd, Node, OpenGroupError,
};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn threaded() -> Config {
    Config { drive: background(), ..Config::default() }
}

fn group_address(last: u8) -> SocketAddr {
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    SocketAddr::from(([239, 255, 78, last], port))
}

fn content(number: usize, len: usize) -> Bytes {
    (0..len).map(|at| (at * 31 + number) as u8).collect::<Vec<u8>>().into()
}

/// A member that reads until the group ends.
type Reader = thread::JoinHandle<(Vec<Bytes>, MembershipEnd)>;

/// A Node and `count` members, each reading in a thread what it gets until the group ends.
fn group_of(
    count: usize,
    address: SocketAddr,
    options: impl Into<GroupOptions>,
) -> (Node, Group, Vec<Reader>) {
    let nodes: Vec<Node> = (0..count).map(|_| Node::bind("127.0.0.1:0", threaded()).unwrap()).collect();
    let members: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
    let listeners: Vec<_> = nodes.iter().map(|node| node.join_group(address).unwrap()).collect();
    let readers = listeners.into_iter().map(|listener| {
        thread::spawn(move || read_all(&listener.accept(PATIENCE).expect("the group opens")))
    });
    let readers = readers.collect();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let group = opener.open_group(address, &members, options).unwrap();
    (opener, group, readers)
}

fn read_all(membership: &Membership) -> (Vec<Bytes>, MembershipEnd) {
    let mut got = Vec::new();
    loop {
        match membership.recv_timeout(PATIENCE) {
            Ok(Some(message)) => {
                assert_eq!(message.number, got.len() as u64);
                got.push(message.data);
            }
            Ok(None) => panic!("nothing within {PATIENCE:?} after {} messages", got.len()),
            Err(end) => return (got, end),
        }
    }
}

/// How the members were reached when the group was open, and when they had everything.
fn exchange(options: GroupOptions, last: u8) -> [Vec<MemberPath>; 2] {
    let (_opener, group, readers) = group_of(5, group_address(last), options);
    let paths = |status: &GroupStatus| status.members.iter().map(|member| member.path).collect();
    let opened = paths(&group.status().unwrap());
    let sizes = [16, 0, 4096, 70_000, 5_000_000, 1, 1400];
    for (number, size) in sizes.iter().enumerate() {
        assert_eq!(group.send(content(number, *size)).unwrap(), number as u64);
    }
    assert!(group.flush(PATIENCE), "{:?}", group.status());
    let status = group.status().unwrap();
    assert_eq!((status.messages_acknowledged, status.queued_bytes), (7, 0));
    assert!(group.close(PATIENCE));
    for reader in readers {
        let (got, end) = reader.join().unwrap();
        assert_eq!(end, MembershipEnd::Closed);
        assert_eq!(got.len(), sizes.len());
        assert!(got.iter().enumerate().all(|(number, data)| *data == content(number, sizes[number])));
    }
    [opened, paths(&status)]
}

#[test]
fn a_group_over_multicast() {
    let paths = exchange(GroupOptions::default(), 1);
    assert_eq!(paths, [[MemberPath::Multicast; 5]; 2], "loopback carries multicast");
}

#[test]
fn a_group_over_unicast_and_over_a_tree() {
    let options = |backend| GroupOptions { backend, ..GroupOptions::default() };
    assert_eq!(exchange(options(GroupBackend::Unicast), 2), [[MemberPath::Unicast; 5]; 2]);
    // On a machine that is too busy some are served by the opener later, as those whose relay keeps silent.
    let [opened, _] = exchange(options(GroupBackend::Tree), 3);
    assert_eq!(opened.iter().filter(|path| **path == MemberPath::Relay).count(), 3);
}

#[test]
fn who_hears_as_many_addresses_as_it_can_is_served_by_unicast_elsewhere() {
    let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let at = |last: u8| SocketAddr::from(([239, 255, 80, last], 27_405));
    let mut heard: Vec<_> = (0..63).map(|last| member.join_group(at(last)).unwrap()).collect();
    assert!(heard.iter().all(|listener| listener.is_heard()));
    let listener = member.join_group(at(63)).unwrap();
    assert!(!listener.is_heard());
    let reader = thread::spawn(move || read_all(&listener.accept(PATIENCE).expect("the group opens")));
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let group = opener.open_group(at(63), &[member.local_addr()], GroupOptions::default()).unwrap();
    assert_eq!(group.status().unwrap().members[0].path, MemberPath::Unicast);
    group.send(content(0, 5000)).unwrap();
    assert!(group.close(PATIENCE));
    assert_eq!(reader.join().unwrap(), (vec![content(0, 5000)], MembershipEnd::Closed));
    heard.pop();
    assert!(member.join_group(at(64)).unwrap().is_heard(), "there is room again");
}

#[test]
fn who_does_not_answer_is_named() {
    let address = group_address(4);
    let present = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let _listener = present.join_group(address).unwrap();
    let absent = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let opener = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let options = GroupOptions { open_timeout: Duration::from_millis(300), ..GroupOptions::default() };
    let error =
        opener.open_group(address, &[present.local_addr(), absent.local_addr()], options).unwrap_err();
    let OpenGroupError::Group(GroupError::OpenFailed { missing }) = &error else { panic!("{error}") };
    assert_eq!(*missing, [(absent.local_addr(), Departure::Silent)]);
    let text =
        format!("the group was not opened: no answer from {} within open_timeout", absent.local_addr());
    assert_eq!(error.to_string(), text);
}

/// Nobody waits for an answer to what cannot be sent.
#[test]
fn members_that_the_opener_cannot_reach_are_named_at_once() {
    let (address, unreachable) = (group_address(9), "[fd00::1]:7000".parse().unwrap());
    let (_opener, group, readers) = group_of(1, address, GroupOptions::default());
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let options = GroupOptions { open_timeout: PATIENCE, ..GroupOptions::default() };
    let somebody = ([127, 0, 0, 1], 9).into();
    let error = opener.open_group(address, &[somebody, unreachable], options).unwrap_err();
    assert!(error.to_string().contains("[fd00::1]:7000 cannot be reached from 127.0.0.1:"), "{error}");
    let error = group.add_member(unreachable, false).unwrap_err();
    assert!(error.to_string().contains("[fd00::1]:7000 cannot be reached"), "{error}");
    assert!(!opener.join_group(address).unwrap().ask(unreachable, false));
    assert!(group.close(PATIENCE));
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap().0.len(), 0));
}

#[test]
fn a_member_may_be_named_in_the_form_of_ipv6() {
    let (address, member) = (group_address(8), Node::bind("127.0.0.1:0", threaded()).unwrap());
    let listener = member.join_group(address).unwrap();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let named = format!("[::ffff:127.0.0.1]:{}", member.local_addr().port()).parse().unwrap();
    let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
    let group = opener.open_group(address, &[named], options).unwrap();
    group.send(content(0, 100)).unwrap();
    let membership = listener.accept(PATIENCE).expect("the group opens");
    assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, content(0, 100));
    assert!(group.flush(PATIENCE));
}

#[test]
fn several_openers_share_an_address_and_a_member_leaves_and_returns() {
    let address = group_address(5);
    let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let other = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let (listener, _other_listener) =
        (member.join_group(address).unwrap(), other.join_group(address).unwrap());
    let openers: Vec<Node> = (0..2).map(|_| Node::bind("127.0.0.1:0", threaded()).unwrap()).collect();
    let to = [member.local_addr(), other.local_addr()];
    let groups: Vec<Group> =
        openers.iter().map(|opener| opener.open_group(address, &to, GroupPolicy::Wait).unwrap()).collect();
    let mut memberships: Vec<Membership> = (0..2).map(|_| listener.accept(PATIENCE).unwrap()).collect();
    for (group, text) in groups.iter().zip(["first", "second"]) {
        group.send(text).unwrap();
        let membership = memberships.iter().find(|membership| membership.id() == group.id()).unwrap();
        assert_eq!(membership.recv().unwrap().data, text);
        assert_eq!(membership.member(), 0);
    }
    let left = memberships.pop().unwrap();
    let at = groups.iter().position(|group| group.id() == left.id()).unwrap();
    left.leave();
    let event = groups[at].event_timeout(PATIENCE);
    assert!(matches!(event, Some(GroupEvent::Departed { member: 0, .. })), "{event:?}");
    assert!(listener.ask(openers[at].local_addr(), false));
    let back = listener.accept(PATIENCE).unwrap();
    assert_eq!(back.id(), groups[at].id());
    groups[at].send("again").unwrap();
    assert_eq!(back.recv().unwrap().data, "again");
}

#[test]
fn members_that_leave_with_all_they_wanted_do_not_hold_up_the_end() {
    let address = group_address(7);
    let nodes: Vec<Node> = (0..6).map(|_| Node::bind("127.0.0.1:0", threaded()).unwrap()).collect();
    let to: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
    let listeners: Vec<_> = nodes.iter().map(|node| node.join_group(address).unwrap()).collect();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let group = opener.open_group(address, &to, GroupPolicy::Wait).unwrap();
    for number in 0..10 {
        group.send(content(number, 100)).unwrap();
    }
    for listener in &listeners {
        let membership = listener.accept(PATIENCE).unwrap();
        for number in 0..10 {
            assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, content(number, 100));
        }
    }
    assert!(group.close(PATIENCE), "{:?}", group.status());
}

#[test]
fn a_node_that_goes_away_is_reported_with_its_last_message() {
    let address = group_address(6);
    let nodes: Vec<Node> = (0..2).map(|_| Node::bind("127.0.0.1:0", threaded()).unwrap()).collect();
    let listeners: Vec<_> = nodes.iter().map(|node| node.join_group(address).unwrap()).collect();
    let to: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let group = opener.open_group(address, &to, GroupPolicy::Wait).unwrap();
    let mut memberships: Vec<_> =
        listeners.iter().map(|listener| listener.accept(PATIENCE).unwrap()).collect();
    group.send("all have this").unwrap();
    assert!(group.flush(PATIENCE));
    memberships.pop();
    let event = group.event_timeout(PATIENCE).unwrap();
    let GroupEvent::Departed { member: 1, last_acknowledged: Some(0), .. } = event else {
        panic!("{event:?}")
    };
    group.send("the other has this").unwrap();
    assert!(group.flush(PATIENCE));
    assert_eq!(memberships[0].recv().unwrap().data, "all have this");
    assert_eq!(memberships[0].recv().unwrap().data, "the other has this");
}

#[test]
fn who_waits_for_acknowledgements_hears_that_nobody_is_left() {
    let address = group_address(17);
    let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let listener = member.join_group(address).unwrap();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let group = opener.open_group(address, &[member.local_addr()], GroupPolicy::Wait).unwrap();
    let membership = listener.accept(PATIENCE).unwrap();
    group.send("is acknowledged").unwrap();
    assert_eq!(group.wait_acknowledged(PATIENCE), Ok(true));
    // More than a member takes before its application does.
    for number in 0..7 {
        group.send(content(number, 1_000_000)).unwrap();
    }
    assert_eq!(group.wait_acknowledged(Duration::from_millis(50)), Ok(false), "nobody takes it");
    membership.leave();
    assert_eq!(group.wait_acknowledged(PATIENCE), Err(GroupError::Deserted(group.id())));
    assert!(!group.flush(PATIENCE));
    assert!(group.close(PATIENCE));
}

#[test]
fn what_a_listener_was_not_asked_for_goes_with_it_and_other_listeners_stay() {
    let address = group_address(14);
    let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let (first, second) = (member.join_group(address).unwrap(), member.join_group(address).unwrap());
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    // As where a listener takes the place of another that is dropped then.
    drop(first);
    let group = opener.open_group(address, &[member.local_addr()], GroupPolicy::Wait).unwrap();
    group.send("is taken").unwrap();
    let membership = second.accept(PATIENCE).unwrap();
    assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, "is taken");
    let waiting = opener.open_group(address, &[member.local_addr()], GroupPolicy::Wait).unwrap();
    drop(second);
    // Nobody can be given that membership any more.
    let event = waiting.event_timeout(PATIENCE);
    assert!(matches!(event, Some(GroupEvent::Departed { member: 0, .. })), "{event:?}");
    group.send("a membership goes on").unwrap();
    assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, "a membership goes on");
    assert!(opener.open_group(address, &[member.local_addr()], GroupPolicy::Wait).is_err(), "nobody listens");
}

/// Also one that had begun, for a process may be off its core between a listener and the next.
#[test]
fn a_group_that_nobody_took_is_the_next_listeners() {
    let address = group_address(16);
    let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let to = [member.local_addr()];
    for begins_first in [true, false] {
        let before = member.join_group(address).unwrap();
        let other = Node::bind("127.0.0.1:0", threaded()).unwrap();
        let to_both = [to[0], other.local_addr()];
        thread::scope(|scope| {
            let to = if begins_first { &to[..] } else { &to_both };
            let group = scope.spawn(|| opener.open_group(address, to, GroupPolicy::Wait).unwrap());
            // Time to be asked and to accept; where there is another it is awaited.
            thread::sleep(Duration::from_millis(300));
            drop(before);
            let _other_listener = other.join_group(address).unwrap();
            let group = group.join().unwrap();
            group.send("is there").unwrap();
            thread::sleep(Duration::from_millis(300));
            let listener = member.join_group(address).unwrap();
            let membership = listener.accept(PATIENCE).unwrap();
            assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, "is there");
            assert!(group.close(PATIENCE));
        });
    }
}

#[test]
fn nobody_waits_for_what_happens_to_a_group_that_is_over() {
    let (opener, group, readers) = group_of(1, group_address(18), GroupPolicy::Wait);
    assert_eq!(group.next_event(Duration::ZERO), Ok(None));
    assert!(group.close(PATIENCE));
    assert_eq!(group.next_event(PATIENCE), Ok(Some(GroupEvent::Closed)));
    assert_eq!(group.next_event(Duration::MAX), Err(GroupError::Unknown(group.id())));
    assert_eq!(group.event_timeout(Duration::MAX), None);
    let own = opener.open_group(group_address(18), &[opener.local_addr()], GroupPolicy::Wait).unwrap_err();
    assert!(own.to_string().contains("the opener's own"), "{own}");
    readers.into_iter().for_each(|reader| assert_eq!(reader.join().unwrap().1, MembershipEnd::Closed));
}

#[test]
fn a_group_that_begins_between_two_listeners_is_the_next_ones() {
    let address = group_address(15);
    let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let other = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
    let to = [member.local_addr(), other.local_addr()];
    let before = member.join_group(address).unwrap();
    thread::scope(|scope| {
        let group = scope.spawn(|| opener.open_group(address, &to, GroupPolicy::Wait).unwrap());
        // Time to be asked and to accept; the other is awaited.
        assert!(before.accept(Duration::from_millis(500)).is_none());
        drop(before);
        let listener = member.join_group(address).unwrap();
        let listeners = [listener, other.join_group(address).unwrap()];
        let memberships = listeners.map(|listener| listener.accept(PATIENCE).unwrap());
        group.join().unwrap().send("is there").unwrap();
        for membership in memberships {
            assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, "is there");
        }
    });
}

#[test]
fn a_member_whose_last_word_is_lost_says_it_again_before_its_node_is_gone() {
    for leaves in [false, true] {
        let member = Node::bind("127.0.0.1:0", threaded()).unwrap();
        let opener = Node::bind("127.0.0.1:0", threaded()).unwrap();
        let cable = Cable::to(member.local_addr());
        let address = group_address(21);
        let listener = member.join_group(address).unwrap();
        let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
        let group = opener.open_group(address, &[cable.addr], options).unwrap();
        let membership = listener.accept(PATIENCE).unwrap();
        group.send("the only one").unwrap();
        assert_eq!(membership.recv_timeout(PATIENCE).unwrap().unwrap().data, "the only one");
        assert!(group.flush(PATIENCE));
        cable.back_is_cut.store(true, SeqCst);
        let heals = thread::spawn(move || {
            thread::sleep(Duration::from_millis(100));
            cable.back_is_cut.store(false, SeqCst);
        });
        thread::scope(|scope| {
            scope.spawn(|| {
                if !leaves {
                    assert_eq!(membership.recv_timeout(PATIENCE), Err(MembershipEnd::Closed));
                }
                drop((membership, listener, member));
            });
            assert!(leaves || group.close(PATIENCE));
        });
        heals.join().unwrap();
        let how = match group.next_event(PATIENCE).unwrap().unwrap() {
            GroupEvent::Departed { why, .. } => Some(why),
            GroupEvent::Closed => None,
            other => panic!("{other:?}"),
        };
        assert_eq!(how, leaves.then_some(Departure::Left));
    }
}

/// Nothing comes from the members by which whoever waits could notice.
#[test]
fn who_waits_in_another_thread_hears_at_once_what_a_call_does_to_a_group_of_silent_members() {
    let nodes = [(); 2].map(|()| Node::bind("127.0.0.1:0", threaded()).unwrap());
    let cables = nodes.each_ref().map(|node| Cable::to(node.local_addr()));
    let mut config = threaded();
    config.protocol.send_buffer_bytes = 1 << 20;
    let opener = Node::bind("127.0.0.1:0", config).unwrap();
    let address = group_address(23);
    let listeners = nodes.each_ref().map(|node| node.join_group(address).unwrap());
    let options = GroupOptions { backend: GroupBackend::Unicast, ..GroupOptions::default() };
    let group = opener.open_group(address, &cables.each_ref().map(|cable| cable.addr), options).unwrap();
    let members = listeners.each_ref().map(|listener| listener.accept(PATIENCE).unwrap());
    for cable in &cables {
        cable.out_is_cut.store(true, SeqCst);
        cable.back_is_cut.store(true, SeqCst);
    }
    while group.send_timeout(content(1, 1 << 14), PATIENCE / 100).is_ok() {}
    let soon = |wait: &(dyn Fn() + Sync), call: &dyn Fn()| {
        thread::scope(|scope| {
            let waits = scope.spawn(wait);
            // Timers, all that there is, are rare by then.
            thread::sleep(PATIENCE / 20);
            let began = Instant::now();
            call();
            waits.join().unwrap();
            assert!(began.elapsed() < PATIENCE / 200, "after {:?}", began.elapsed());
        });
    };
    let left = || assert_eq!(members[0].recv().err(), Some(MembershipEnd::Left));
    while members[0].try_recv().unwrap().is_some() {}
    soon(&left, &|| members[0].leave());
    let closed = || {
        assert_eq!(group.send_timeout(content(1, 1 << 14), PATIENCE), Err(GroupError::Closing(group.id())))
    };
    soon(&closed, &|| assert!(!group.close(Duration::ZERO)));
    let deserted = || assert_eq!(group.wait_acknowledged(PATIENCE), Err(GroupError::Deserted(group.id())));
    group.remove_member(members[0].member()).unwrap();
    soon(&deserted, &|| group.remove_member(members[1].member()).unwrap());
}
