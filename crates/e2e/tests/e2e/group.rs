//! Groups between hosts: loss, members that die, stand still or are slow, and switches that carry no
//! multicast, or only to those who asked for it.

use crate::harness::{Test, begin};
use denrei_netlab::Lab;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const GROUP: &str = "239.255.91.1:7499";
/// Of the site, so that it is no matter of one link alone.
const GROUP_IPV6: &str = "[ff05::5b:1]:7499";
/// Of one link, without saying which: that of the Nodes' addresses, though these are of more than the link.
const GROUP_OF_LINK: &str = "[ff02::5b:1]:7499";
/// Of the opener; each member has the next.
const MEMBER_PORT: u16 = 7500;
/// Longest wait for a line; the processes give up later than that.
const LIMIT: Duration = Duration::from_secs(40);

/// A process and what it says. Killed when dropped.
struct Side {
    name: String,
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Side {
    fn start(lab: &Lab, host: usize, name: &str, arguments: &[String]) -> Self {
        let mut command: Command = lab.host(host).command(env!("CARGO_BIN_EXE_e2e-node"));
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("was piped"));
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line).ok())
        });
        Self { name: name.into(), child, lines, said: Vec::new() }
    }

    /// Waits for a line that begins like this; the rest of it.
    fn wait(&mut self, beginning: &str) -> String {
        let until = Instant::now() + LIMIT;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.said.push(line.clone());
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.trim().to_owned();
            }
        }
        panic!("{} did not say {beginning:?}, but {:?}", self.name, self.said);
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the process lives");
    }

    /// The events it told of so far.
    fn events(&self) -> Vec<&String> {
        self.said.iter().filter(|line| line.starts_with("event ")).collect()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // It may have ended by itself; `wait` collects it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A host, and which of its addresses.
type Place = (usize, IpAddr);

/// An opener on host 0 and members on the others, the group open.
struct Gang {
    opener: Side,
    members: Vec<Side>,
}

impl Gang {
    fn open(lab: &Lab, policy: &str, backend: &str, count: u64, bytes: usize, pace_us: u64) -> Self {
        let ips: Vec<IpAddr> = lab.hosts().map(|host| host.ip()).collect();
        let places: Vec<Place> = ips.into_iter().enumerate().collect();
        Self::open_at(lab, GROUP, &places, policy, backend, (count, bytes, pace_us))
    }

    /// The same at another group's address and at these places, the opener's first.
    fn open_at(
        lab: &Lab,
        group: &str,
        places: &[Place],
        policy: &str,
        backend: &str,
        messages: (u64, usize, u64),
    ) -> Self {
        Self::open_bound(lab, group, places, |ip| ip, (policy, backend), messages)
    }

    /// The same, with Nodes that are bound to what `bind` makes of their addresses.
    fn open_bound(
        lab: &Lab,
        group: &str,
        places: &[Place],
        bind: impl Fn(IpAddr) -> IpAddr,
        (policy, backend): (&str, &str),
        (count, bytes, pace_us): (u64, usize, u64),
    ) -> Self {
        let at = |ip: IpAddr, index: usize| SocketAddr::new(ip, MEMBER_PORT + index as u16).to_string();
        let address = |index: usize| at(places[index].1, index);
        let bound = |index: usize| at(bind(places[index].1), index);
        let mut members: Vec<Side> = (1..places.len())
            .map(|index| {
                let arguments = ["group-member".into(), bound(index), group.into()];
                Side::start(lab, places[index].0, &format!("member {}", index - 1), &arguments)
            })
            .collect();
        members.iter_mut().for_each(|member| drop(member.wait("ready")));
        let mut arguments = vec!["group-opener".into(), bound(0), group.into()];
        arguments.extend([policy.into(), backend.into()]);
        arguments.extend([count.to_string(), bytes.to_string(), pace_us.to_string()]);
        arguments.extend((1..places.len()).map(address));
        let mut opener = Side::start(lab, places[0].0, "opener", &arguments);
        opener.wait("open");
        Self { opener, members }
    }

    /// All of `members` have got all of `count` messages, in order.
    fn expect_all(&mut self, members: &[usize], count: u64) {
        for &member in members {
            assert_eq!(self.members[member].wait("end "), format!("{count} Closed"), "member {member}");
        }
    }
}

fn lab(test: &Test, hosts: usize) -> Option<Lab> {
    test.lab(hosts, 1500)
}

#[test]
fn eight_members_that_lose_different_packets_get_everything() {
    let test = begin("eight_members_that_lose_different_packets_get_everything");
    let Some(lab) = lab(&test, 9) else { return };
    for host in 1..9 {
        lab.loss(host, 50).unwrap();
    }
    let mut gang = Gang::open(&lab, "wait", "auto", 200, 20_000, 0);
    gang.expect_all(&(0..8).collect::<Vec<_>>(), 200);
    assert_eq!(gang.opener.wait("closed"), "true");
    let paths = gang.opener.said.iter().find(|line| line.starts_with("paths")).unwrap();
    assert!(paths.contains("Multicast"), "{paths}");
    test.print(gang.opener.said.join(" | "));
}

#[test]
fn one_member_killed_and_one_stopped_are_reported_and_the_others_go_on() {
    let test = begin("one_member_killed_and_one_stopped_are_reported_and_the_others_go_on");
    let Some(lab) = lab(&test, 9) else { return };
    let mut gang = Gang::open(&lab, "eject:1000", "auto", 300, 20_000, 5_000);
    std::thread::sleep(Duration::from_millis(300));
    gang.members[2].signal(Signal::SIGKILL);
    gang.members[5].signal(Signal::SIGSTOP);
    gang.expect_all(&[0, 1, 3, 4, 6, 7], 300);
    assert_eq!(gang.opener.wait("closed"), "true");
    gang.members[5].signal(Signal::SIGCONT);
    let events = gang.opener.events();
    for member in [2, 5] {
        let gone = |event: &&&String| event.contains(&format!("Departed {{ member: {member},"));
        let event = events.iter().find(gone).unwrap_or_else(|| panic!("member {member} in {events:?}"));
        assert!(event.contains("last_acknowledged: Some("), "{event}");
    }
    let end = gang.members[5].wait("end ");
    assert!(end.contains("Removed") || end.contains("Lost"), "it learns of it when it goes on: {end}");
    test.print(gang.opener.said.join(" | "));
}

#[test]
fn a_member_behind_a_tenth_of_the_speed_lags_and_holds_nobody_up() {
    let test = begin("a_member_behind_a_tenth_of_the_speed_lags_and_holds_nobody_up");
    let Some(lab) = lab(&test, 5) else { return };
    for host in 1..5 {
        lab.rate(host, if host == 2 { 10 } else { 100 }, 200_000).unwrap();
    }
    // 100 Mbit/s take 0.6 s for 7 MB, a tenth of it 6 s.
    let mut gang = Gang::open(&lab, "lag:300", "auto", 350, 20_000, 1_000);
    let began = Instant::now();
    gang.opener.wait("flushed true");
    let took = began.elapsed();
    gang.expect_all(&[0, 1, 2, 3], 350);
    let lagged = began.elapsed();
    assert_eq!(gang.opener.wait("closed"), "true");
    // All that it lacks passes a link of a tenth, in some six seconds: whom all wait for has it with the others.
    assert!(took < lagged * 3 / 5, "after {took:?} of {lagged:?}: {:?}", gang.opener.said);
    assert!(
        gang.opener.said.iter().any(|line| line.contains("Lagging { member: 1,")),
        "{:?}",
        gang.opener.said
    );
    test.print(format_args!("{took:?}: {}", gang.opener.said.join(" | ")));
}

#[test]
fn multicast_switched_off_on_the_bridge_is_replaced_by_unicast() {
    let test = begin("multicast_switched_off_on_the_bridge_is_replaced_by_unicast");
    let Some(lab) = lab(&test, 5) else { return };
    lab.multicast(false).unwrap();
    let mut gang = Gang::open(&lab, "wait", "auto", 50, 20_000, 0);
    gang.expect_all(&[0, 1, 2, 3], 50);
    assert_eq!(gang.opener.wait("closed"), "true");
    assert!(gang.opener.said.contains(&"paths Unicast Unicast Unicast Unicast".to_owned()));
    drop(gang);
    // And in the middle of a group's life.
    lab.multicast(true).unwrap();
    let mut gang = Gang::open(&lab, "wait", "auto", 300, 20_000, 3_000);
    std::thread::sleep(Duration::from_millis(300));
    lab.multicast(false).unwrap();
    gang.expect_all(&[0, 1, 2, 3], 300);
    assert_eq!(gang.opener.wait("closed"), "true");
    assert!(gang.opener.said.contains(&"paths Unicast Unicast Unicast Unicast".to_owned()));
    test.print(gang.opener.said.join(" | "));
}

#[test]
fn a_bridge_that_snoops_carries_the_group_to_those_who_joined() {
    let test = begin("a_bridge_that_snoops_carries_the_group_to_those_who_joined");
    let Some(lab) = lab(&test, 4) else { return };
    lab.snooping(true).unwrap();
    let mut gang = Gang::open(&lab, "wait", "auto", 100, 20_000, 0);
    gang.expect_all(&[0, 1, 2], 100);
    assert_eq!(gang.opener.wait("closed"), "true");
    test.print(gang.opener.said.join(" | "));
}

#[test]
fn a_group_over_ipv6_passes_a_bridge_that_snoops_on_mld() {
    let test = begin("a_group_over_ipv6_passes_a_bridge_that_snoops_on_mld");
    let Some(lab) = lab(&test, 4) else { return };
    let place = |index: usize| Some((index, lab.host(index).ipv6()?.into()));
    let places: Option<Vec<Place>> = (0..4).map(place).collect();
    let Some(places) = places else { return test.skip_because("this kernel has no IPv6") };
    for (snooping, group) in [(false, GROUP_IPV6), (true, GROUP_IPV6), (true, GROUP_OF_LINK)] {
        lab.snooping(snooping).unwrap();
        let mut gang = Gang::open_at(&lab, group, &places, "wait", "auto", (100, 20_000, 0));
        gang.expect_all(&[0, 1, 2], 100);
        assert_eq!(gang.opener.wait("closed"), "true");
        let paths = "paths Multicast Multicast Multicast".to_owned();
        assert!(gang.opener.said.contains(&paths), "{group} snooping {snooping}: {:?}", gang.opener.said);
    }
}

/// The opener's routes for groups lead elsewhere.
#[test]
fn nodes_on_all_addresses_speak_to_groups_by_the_way_to_their_members() {
    let test = begin("nodes_on_all_addresses_speak_to_groups_by_the_way_to_their_members");
    let Some(lab) = lab(&test, 4) else { return };
    let ip = |line: &str| {
        let status = lab.host(0).command("ip").args(line.split(' ')).status();
        assert!(status.unwrap().success(), "ip {line}");
    };
    ip("link add elsewhere type veth peer name nobody");
    ip("link set nobody up");
    ip("addr add 10.99.0.1/24 dev elsewhere");
    ip("link set elsewhere up multicast on");
    ip("route replace 224.0.0.0/4 dev elsewhere");
    let place = |index: usize| Some((index, lab.host(index).ipv6()?.into()));
    let places: Option<Vec<Place>> = (0..4).map(place).collect();
    if places.is_none() {
        test.skip_because("this kernel has no IPv6");
    }
    let v4 = (GROUP, lab.hosts().map(|host| (host.index(), host.ip())).collect());
    let v6 = places.map(|places| (GROUP_OF_LINK, places));
    for (group, places) in std::iter::once(v4).chain(v6) {
        let anywhere = |ip: IpAddr| match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let how = ("wait", "auto");
        let mut gang = Gang::open_bound(&lab, group, &places, anywhere, how, (100, 20_000, 0));
        gang.expect_all(&[0, 1, 2], 100);
        assert_eq!(gang.opener.wait("closed"), "true");
        let paths = "paths Multicast Multicast Multicast".to_owned();
        assert!(gang.opener.said.contains(&paths), "{group}: {:?}", gang.opener.said);
    }
}

/// Members and their opener have an interface taken away and get another one with the same addresses, as a container that
/// moves: all go back to the group's address.
#[test]
fn groups_are_heard_and_spoken_to_by_an_interface_that_came_later() {
    let test = begin("groups_are_heard_and_spoken_to_by_an_interface_that_came_later");
    let Some(lab) = lab(&test, 3) else { return };
    let place = |index: usize| Some((index, lab.host(index).ipv6()?.into()));
    let v4 = (GROUP, lab.hosts().map(|host| (host.index(), host.ip())).collect());
    let v6 = (0..3).map(place).collect::<Option<Vec<Place>>>().map(|places| (GROUP_IPV6, places));
    for (group, places) in std::iter::once(v4).chain(v6) {
        // There on all addresses, and so on loopback, too.
        let bind = |ip: IpAddr| if ip.is_ipv4() { ip } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut gang = Gang::open_bound(&lab, group, &places, bind, ("wait", "auto"), (4_000, 2_000, 2_000));
        for host in [1, 0] {
            lab.replace_interface(host).unwrap();
        }
        gang.expect_all(&[0, 1], 4_000);
        assert_eq!(gang.opener.wait("closed"), "true");
        let paths = "paths Multicast Multicast".to_owned();
        assert!(gang.opener.said.contains(&paths), "{group}: {:?}", gang.opener.said);
    }
}

#[test]
fn members_on_the_openers_own_host_hear_what_its_interface_carries() {
    let test = begin("members_on_the_openers_own_host_hear_what_its_interface_carries");
    let Some(lab) = lab(&test, 2) else { return };
    // Sessions among them find that 64 KiB pass; the group's packets take the way of the cable.
    let places: Vec<Place> = [0; 4].map(|host| (host, lab.host(host).ip())).into();
    let mut gang = Gang::open_at(&lab, GROUP, &places, "wait", "auto", (100, 100_000, 2_000));
    gang.expect_all(&[0, 1, 2], 100);
    assert_eq!(gang.opener.wait("closed"), "true");
    assert!(gang.opener.said.contains(&"paths Multicast Multicast Multicast".to_owned()));
    let repaired = gang.opener.said.iter().find_map(|line| line.strip_prefix("repaired by session "));
    let repaired: u64 = repaired.unwrap().parse().unwrap();
    // Symbols of 64 KiB would all be lost. The first ones that leave may overtake, on a way of their own, what a
    // member's session says of the group's beginning: that member asks for them again.
    let sent = 100 * 100_000 / 1_500;
    assert!(repaired < sent / 100, "{repaired}: {:?}", gang.opener.said);
    test.print(gang.opener.said.join(" | "));
}

#[test]
fn a_tree_of_relays_survives_the_loss_of_one() {
    let test = begin("a_tree_of_relays_survives_the_loss_of_one");
    let Some(lab) = lab(&test, 8) else { return };
    let mut gang = Gang::open(&lab, "eject:1000", "tree", 300, 20_000, 5_000);
    std::thread::sleep(Duration::from_millis(300));
    // Member 0 hands on to members 2 and 3.
    gang.members[0].signal(Signal::SIGKILL);
    gang.expect_all(&[1, 2, 3, 4, 5, 6], 300);
    assert_eq!(gang.opener.wait("closed"), "true");
    test.print(gang.opener.said.join(" | "));
}
