//! Groups in the simulated network: random members, faults, backends and messages, from seeds.
//!
//! The oracle: every member of a group with the policy `wait` gets every message whole, once and in
//! order, whatever the network does to datagrams; a member that crashes is reported, and the others get
//! everything. A seed replays to the byte.

use bytes::Bytes;
use core::time::Duration;
use denrei_proto::group::{
    Departure, GroupBackend, GroupEvent, GroupFeedback, GroupId, GroupOptions, GroupPolicy,
};
use denrei_proto::{Config, Endpoint, Event};
use denrei_sim::rng::Rng;
use denrei_sim::{Application, Faults, HostId, HostSpec, LinkSpec, World};
use denrei_wire::Instant;
use std::net::SocketAddr;
use std::sync::Arc;

const OPENER: HostId = HostId(0);
/// Seeds; each is some milliseconds of computing.
const SEEDS: u64 = 60;
/// Virtual time for a group to get everything once the network is healed.
const PATIENCE: Duration = Duration::from_secs(120);

fn group_addr() -> SocketAddr {
    "239.1.1.1:7411".parse().unwrap()
}

fn content(number: u64, len: usize) -> Bytes {
    let period: Vec<u8> = (0..256).map(|at| (at * 31 + number * 7) as u8).collect();
    let mut content = period.repeat(len.div_ceil(period.len()));
    content.truncate(len);
    content.into()
}

/// Takes everything, and checks it.
struct Members {
    group: GroupId,
    sizes: Vec<usize>,
    received: Vec<u64>,
    events: Vec<GroupEvent>,
}

impl Application for Members {
    fn on_event(&mut self, _: Instant, _: HostId, _: &mut Endpoint, _: Event) {}

    fn on_readable(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        if host == OPENER {
            self.events.extend(core::iter::from_fn(|| endpoint.poll_group_event(self.group)));
            return;
        }
        endpoint.accept_group(group_addr());
        while let Some(message) = endpoint.group_recv(now, self.group) {
            let next = &mut self.received[host.0 as usize];
            assert_eq!(message.number, *next, "{host:?}: in order, and once");
            assert_eq!(message.data, content(*next, self.sizes[*next as usize]), "{host:?}: whole");
            *next += 1;
        }
    }
}

/// One random life of a group; the digest of all that happened.
fn live(seed: u64) -> u64 {
    let mut random = Rng::new(seed);
    let members = random.within(1..=12) as usize;
    let mut world = World::new(seed);
    let switch = world.add_switch(None);
    let config =
        Arc::new(Config { failure_timeout: Duration::from_secs(3), keepalive: None, ..Config::default() });
    for _ in 0..=members {
        let host = world.add_host(switch, HostSpec::new(LinkSpec::LAN));
        world.start(host, Arc::clone(&config));
    }
    let sizes: Vec<usize> = (0..random.within(1..=20)).map(|_| size(&mut random)).collect();
    let mut app = Members { group: GroupId(0), sizes, received: vec![0; members + 1], events: Vec::new() };
    let hosts: Vec<HostId> = (1..=members as u32).map(HostId).collect();
    for host in &hosts {
        world.touch(*host, &mut app, |_, now, endpoint| endpoint.join_group(now, group_addr()).unwrap());
    }
    let backend = match random.within(0..=3) {
        0 => GroupBackend::Unicast,
        1 => GroupBackend::Tree,
        _ => GroupBackend::Auto,
    };
    let mut switch = || random.chance(0.7);
    let feedback = GroupFeedback { thin: switch(), stagger: switch(), suppress: switch(), tree: switch() };
    let parity = switch();
    let options =
        GroupOptions { backend, policy: GroupPolicy::Wait, feedback, parity, ..GroupOptions::default() };
    let addrs: Vec<SocketAddr> = hosts.iter().map(|host| host.addr()).collect();
    let opened = world.touch(OPENER, &mut app, |app, now, endpoint| {
        app.group = endpoint.open_group(now, group_addr(), &addrs, options).unwrap();
        app.group
    });
    let group = opened.unwrap();
    world.run_for(Duration::from_secs(2), &mut app).unwrap();
    assert_eq!(app.events, [GroupEvent::Opened], "seed {seed}");
    for host in core::iter::once(OPENER).chain(hosts.iter().copied()) {
        world.set_faults(host, faults(&mut random));
    }
    let dies = (members > 1 && random.chance(0.3)).then(|| hosts[random.below(members as u64) as usize]);
    for number in 0..app.sizes.len() {
        let message = content(number as u64, app.sizes[number]);
        world.touch(OPENER, &mut app, |_, _, endpoint| endpoint.group_send(group, message).unwrap());
        world.run_for(Duration::from_micros(random.within(0..=20_000)), &mut app).unwrap();
        if let Some(host) = dies.filter(|_| number == 0) {
            world.crash(host);
        }
    }
    world.heal();
    world.touch(OPENER, &mut app, |_, _, endpoint| endpoint.close_group(group).unwrap());
    world.run_for(PATIENCE, &mut app).unwrap();
    for host in hosts.iter().filter(|host| Some(**host) != dies) {
        let got = app.received[host.0 as usize];
        assert_eq!(got, app.sizes.len() as u64, "seed {seed}: {host:?} over {backend:?}");
    }
    assert_eq!(app.events.last(), Some(&GroupEvent::Closed), "seed {seed}: {:?}", app.events);
    let lost = |event: &&GroupEvent| matches!(event, GroupEvent::Departed { why: Departure::Lost(_), .. });
    assert_eq!(
        app.events.iter().filter(lost).count(),
        dies.is_some() as usize,
        "seed {seed}: {:?}",
        app.events
    );
    world.digest()
}

fn size(random: &mut Rng) -> usize {
    match random.within(0..=3) {
        0 => random.within(0..=64) as usize,
        1 => random.within(0..=5_000) as usize,
        2 => random.within(0..=60_000) as usize,
        _ => random.within(0..=400_000) as usize,
    }
}

fn faults(random: &mut Rng) -> Faults {
    Faults {
        loss: [0.0, 0.01, 0.1][random.below(3) as usize],
        duplicate: [0.0, 0.02][random.below(2) as usize],
        reorder: [0.0, 0.05][random.below(2) as usize],
        reorder_delay: Duration::from_micros(500),
        corrupt: [0.0, 0.01][random.below(2) as usize],
        jitter: Duration::from_micros(random.below(200)),
        ..Faults::default()
    }
}

#[test]
fn every_member_gets_everything_whatever_happens_to_datagrams() {
    for seed in 0..SEEDS {
        live(seed);
    }
}

/// Whoever has accepted answers every SYN: one for each who accepts would be the square of their number.
#[test]
fn a_crowd_that_accepts_is_not_asked_once_for_each() {
    const MEMBERS: usize = 200;
    let mut world = World::new(1);
    let switch = world.add_switch(None);
    for _ in 0..=MEMBERS {
        let host = world.add_host(switch, HostSpec::new(LinkSpec::LAN));
        world.start(host, Arc::new(Config::default()));
    }
    let received = vec![0; MEMBERS + 1];
    let mut app = Members { group: GroupId(0), sizes: Vec::new(), received, events: Vec::new() };
    let hosts: Vec<HostId> = (1..=MEMBERS as u32).map(HostId).collect();
    for host in &hosts {
        world.touch(*host, &mut app, |_, now, endpoint| endpoint.join_group(now, group_addr()).unwrap());
    }
    let addrs: Vec<SocketAddr> = hosts.iter().map(|host| host.addr()).collect();
    world.touch(OPENER, &mut app, |app, now, endpoint| {
        app.group = endpoint.open_group(now, group_addr(), &addrs, GroupOptions::default()).unwrap();
    });
    world.run_for(Duration::from_secs(1), &mut app).unwrap();
    assert_eq!(app.events, [GroupEvent::Opened]);
    let counters = world.endpoint(OPENER).unwrap().group_status(app.group).unwrap().counters;
    assert!(counters.packets_sent < MEMBERS as u64 / 4, "{counters:?}");
}

#[test]
fn a_seed_replays_to_the_byte() {
    assert_eq!(live(7), live(7));
}

/// Paths that carry less than the base size: from the opener, to one member, to several. With many members reports
/// are joined, and say only that somebody misses something.
#[test]
fn a_group_over_paths_below_the_base_size_gets_everything() {
    use GroupBackend::{Auto, Multicast, Tree, Unicast};
    let narrow: [&[u32]; 3] = [&[0], &[2], &[1, 3]];
    let few =
        [Auto, Multicast, Unicast, Tree].into_iter().flat_map(|backend| narrow.map(|of| (backend, 3, of)));
    let many: [(_, _, &[u32]); 2] = [(Auto, 80, &[4, 6, 51]), (Multicast, 20, &[4, 6, 11, 18])];
    for (backend, members, narrow) in few.chain(many) {
        let mut world = World::new(1);
        let switch = world.add_switch(None);
        for host in 0..=members {
            let max_datagram_bytes = if narrow.contains(&host) { 672 } else { 1472 };
            let link = LinkSpec { max_datagram_bytes, ..LinkSpec::LAN };
            let host = world.add_host(switch, HostSpec::new(link));
            world.start(host, Arc::new(Config::default()));
        }
        let sizes = vec![100, 60_000, 900, 60_000, 400_000];
        let received = vec![0; members as usize + 1];
        let mut app = Members { group: GroupId(0), sizes, received, events: Vec::new() };
        let hosts: Vec<HostId> = (1..=members).map(HostId).collect();
        for host in &hosts {
            world.touch(*host, &mut app, |_, now, endpoint| endpoint.join_group(now, group_addr()).unwrap());
        }
        let addrs: Vec<SocketAddr> = hosts.iter().map(|host| host.addr()).collect();
        world.touch(OPENER, &mut app, |app, now, endpoint| {
            let options = GroupOptions { backend, ..GroupOptions::default() };
            app.group = endpoint.open_group(now, group_addr(), &addrs, options).unwrap();
            for number in 0..app.sizes.len() {
                endpoint.group_send(app.group, content(number as u64, app.sizes[number])).unwrap();
            }
        });
        world.run_for(Duration::from_secs(5), &mut app).unwrap();
        assert_eq!(app.received[1..], vec![5; members as usize], "{backend:?}, {narrow:?}");
    }
}

/// It is sent what goes to the group's address when that goes there, and not when the others have said something.
#[test]
fn who_is_served_by_its_session_does_not_wait_for_the_others_word() {
    const DEAF: HostId = HostId(2);
    let mut world = World::new(1);
    let switch = world.add_switch(None);
    for _ in 0..3 {
        let host = world.add_host(switch, HostSpec::new(LinkSpec::LAN));
        world.start(host, Arc::new(Config::default()));
    }
    world.set_deaf(DEAF, true);
    let (sizes, received) = (vec![900], vec![0; 3]);
    let mut app = Members { group: GroupId(0), sizes, received, events: Vec::new() };
    let hosts = [HostId(1), DEAF];
    for host in hosts {
        world.touch(host, &mut app, |_, now, endpoint| endpoint.join_group(now, group_addr()).unwrap());
    }
    world.touch(OPENER, &mut app, |app, now, endpoint| {
        let addrs = hosts.map(HostId::addr);
        app.group = endpoint.open_group(now, group_addr(), &addrs, GroupOptions::default()).unwrap();
    });
    world.run_for(Duration::from_secs(1), &mut app).unwrap();
    assert_eq!(app.events, [GroupEvent::Opened]);
    world.pause(HostId(1));
    world.touch(OPENER, &mut app, |app, _, endpoint| {
        endpoint.group_send(app.group, content(0, app.sizes[0])).unwrap()
    });
    world.run_for(Duration::from_micros(200), &mut app).unwrap();
    assert_eq!(app.received, [0, 0, 1]);
}
