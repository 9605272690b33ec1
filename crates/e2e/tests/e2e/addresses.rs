//! Hosts with several addresses.

use crate::harness::{Pair, Process, SOON, Test, begin, begin_beside, expect_complete, on, stream, until};
use denrei_e2e::{Drive, Order, Plan, Report, Settings, Sizes};
use denrei_netlab::Lab;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

/// Messages on each of three channels.
const COUNT: u64 = 100;
/// Longest time for one stream.
const LIMIT: Duration = Duration::from_secs(60);
const PLAN: Plan = Plan { seed: 7, sizes: Sizes::Mixed { most: 300_000 } };

/// What a host sends to a network leaves from its first address there, unless told otherwise: a Node at all addresses
/// is reached at the second none the less, and at the first, with one packet in a hundred lost.
#[test]
fn who_listens_at_all_addresses_is_reached_at_each() {
    let test = begin("who_listens_at_all_addresses_is_reached_at_each");
    let Some(lab) = test.lab(2, 1500) else { return };
    let second = Ipv4Addr::new(10, 77, 250, 1);
    ip(&lab, 1, &["addr", "add", &format!("{second}/16")]);
    for host in 0..2 {
        lab.loss(host, 10).unwrap();
    }
    for drive in [Drive::Inline, Drive::Thread] {
        for at in [second, lab.host(1).ipv4()] {
            let settings = Settings::driven(drive);
            let mut sender = test.process_on(&lab, 0, "sender", "node");
            let mut receiver = test.process_on(&lab, 1, "receiver", "node");
            receiver.order(&Order::Verify { plan: PLAN, from: Vec::new(), trace: false });
            let port = receiver.bind(Ipv4Addr::UNSPECIFIED.into(), settings.clone()).port();
            sender.bind(lab.host(0).ip(), settings);
            let receiver_addr = SocketAddr::from((at, port));
            let peer = sender.connect(receiver_addr);
            let mut pair = Pair { sender, receiver, peer, receiver_addr, plan: PLAN };
            pair.send(COUNT, 0);
            let (took, bytes) = pair.finish(COUNT, LIMIT);
            test.print(format_args!("{drive:?} at {at}: {bytes} bytes in {took:.2?}"));
        }
    }
}

/// The address that the system makes of an interface's hardware address is not the only one that its link alone has.
#[test]
fn who_listens_at_all_addresses_is_reached_at_each_of_its_link() {
    let test = begin("who_listens_at_all_addresses_is_reached_at_each_of_its_link");
    let Some(lab) = test.lab(2, 1500) else { return };
    let link = |host, last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, host, last);
    let addresses = [link(0, 1), link(1, 1), link(1, 2)];
    for (host, address) in [0, 1, 1].into_iter().zip(addresses) {
        ip(&lab, host, &["addr", "add", &format!("{address}/64"), "nodad"]);
    }
    let scope = interface_index(&lab, 0);
    for drive in [Drive::Inline, Drive::Thread] {
        for at in &addresses[1..] {
            let settings = Settings::driven(drive);
            let mut sender = test.process_on(&lab, 0, "sender", "node");
            let mut receiver = test.process_on(&lab, 1, "receiver", "node");
            receiver.order(&Order::Verify { plan: PLAN, from: Vec::new(), trace: false });
            let port = receiver.bind(Ipv6Addr::UNSPECIFIED.into(), settings.clone()).port();
            sender.bind(Ipv6Addr::UNSPECIFIED.into(), settings);
            let receiver_addr = SocketAddrV6::new(*at, port, 0, scope).into();
            let peer = sender.connect(receiver_addr);
            let mut pair = Pair { sender, receiver, peer, receiver_addr, plan: PLAN };
            pair.send(COUNT, 0);
            let (took, bytes) = pair.finish(COUNT, LIMIT);
            test.print(format_args!("{drive:?} at {at}: {bytes} bytes in {took:.2?}"));
        }
    }
}

/// The index of a host's interface to the others.
fn interface_index(lab: &Lab, host: usize) -> u32 {
    let shown = lab.host(host).command("ip").args(["-o", "link", "show", "eth0"]).output().unwrap();
    let line = String::from_utf8(shown.stdout).unwrap();
    line.split(':').next().unwrap().trim().parse().unwrap()
}

/// Messages on each of three channels to either client of a server whose address goes, and the time between two, µs:
/// there are some before, while and after it is away.
const LONG_COUNT: u64 = 1500;
const LONG_PACE_US: u64 = 2000;
/// They are cut into trains, and few.
const LONG: Plan = Plan { seed: 7, sizes: Sizes::Mixed { most: 50_000 } };
/// It is away until the other client has got so many more: a fifth of a second.
const MEANWHILE: u64 = 100;
/// A peer that is silent for so long is lost; on a busy machine those messages may take some seconds.
const FAILURE_MS: u64 = 8000;

/// A server at all addresses of host 1, and two clients on host 0: one asked at the first address, one at the second.
struct Served {
    server: Process,
    near: Process,
    far: Process,
    /// The clients, as the server calls them.
    peers: [u64; 2],
}

impl Served {
    /// `clients` are at the address `own`.
    fn on(test: &Test, lab: &Lab, drive: Drive, all: IpAddr, asked: [IpAddr; 2], own: IpAddr) -> Self {
        let settings = Settings { failure_timeout_ms: Some(FAILURE_MS), ..Settings::driven(drive) };
        let settings = Settings { keepalive_ms: Some(FAILURE_MS / 4), ..settings };
        let mut server = test.process_on(lab, 1, format!("server {drive:?} at {all}"), "node");
        let port = server.bind(all, settings.clone()).port();
        let mut client = |at: IpAddr| {
            let mut client = test.process_on(lab, 0, format!("client {drive:?} of {at}"), "node");
            client.order(&Order::Verify { plan: LONG, from: Vec::new(), trace: false });
            client.bind(own, settings.clone());
            client.connect((at, port).into());
            let peer = server.wait("a session", SOON, |report| match report {
                Report::Connected { peer } => Some(*peer),
                _ => None,
            });
            (client, peer)
        };
        let ((near, one), (far, two)) = (client(asked[0]), client(asked[1]));
        Self { server, near, far, peers: [one, two] }
    }

    fn send(&mut self) {
        for peer in self.peers {
            self.server.order(&Order::Send(stream(peer, LONG, LONG_COUNT, LONG_PACE_US)));
        }
        until("messages", || self.near.received() >= 100 && self.far.received() >= 100);
    }

    /// While the far client's address is away, and after it has come back.
    fn go_on_without(&mut self) {
        let before = self.near.received();
        until("messages by the first address", || self.near.received() >= before + MEANWHILE);
    }

    fn go_on_with(&mut self) {
        let before = self.far.received();
        until("messages by the second address", || {
            self.server.expect_no_loss();
            self.far.received() > before
        });
    }

    /// The address is gone for good.
    fn end_without(&mut self) {
        let [near, far] = self.peers;
        let lost = |report: &Report| match report {
            Report::Lost { peer, reason, .. } if *peer == far => Some(reason.clone()),
            _ => None,
        };
        assert_eq!(self.server.wait("the end of the session", LIMIT, lost), "TimedOut");
        let sent =
            |report: &Report| matches!(report, Report::Sent { peer, .. } if *peer == near).then_some(());
        self.server.wait("the end of the stream", LIMIT, sent);
        expect_complete(&mut self.near, &[LONG_COUNT; 3]);
        self.server.expect_no_loss();
        let counters = self.server.resources().counters;
        assert!(counters.contains("gso_disabled: 0"), "both clients are at one address: {counters}");
        assert!(!counters.contains("send_dropped: 0"), "{counters}");
    }
}

fn ip(lab: &Lab, host: usize, args: &[&str]) {
    on(lab, host, &format!("ip {} dev eth0", args.join(" ")));
}

/// What a session is sent is refused by the system as long as its address is away, and counts as lost. Nobody else
/// notices.
#[test]
fn an_address_that_sessions_answer_from_goes_and_comes_back() {
    let test = begin_beside("an_address_that_sessions_answer_from_goes_and_comes_back");
    let Some(lab) = test.lab(2, 1500) else { return };
    let v4 = [lab.host(1).ip(), Ipv4Addr::new(10, 77, 250, 1).into()];
    let [v6, own] =
        [[2, 3], [1, 1]].map(|hosts| hosts.map(|host| IpAddr::from([0xfd77, 1, 0, 0, 0, 0, 0, host])));
    ip(&lab, 0, &["addr", "add", &format!("{}/64", own[0]), "nodad"]);
    ip(&lab, 1, &["addr", "add", &format!("{}/64", v6[0]), "nodad"]);
    let (second4, second6) = (format!("{}/16", v4[1]), format!("{}/64", v6[1]));
    let come = || {
        ip(&lab, 1, &["addr", "add", &second4]);
        ip(&lab, 1, &["addr", "add", &second6, "nodad"]);
    };
    let go = || [&second4, &second6].map(|second| ip(&lab, 1, &["addr", "del", second]));
    come();
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let mut all = [
        Served::on(&test, &lab, Drive::Inline, any[0], v4, lab.host(0).ip()),
        Served::on(&test, &lab, Drive::Thread, any[1], v4, lab.host(0).ip()),
        Served::on(&test, &lab, Drive::Inline, any[1], v6, own[0]),
    ];
    all.iter_mut().for_each(Served::send);
    go();
    all.iter_mut().for_each(Served::go_on_without);
    come();
    all.iter_mut().for_each(Served::go_on_with);
    go();
    all.iter_mut().for_each(Served::end_without);
}

/// Whoever has connected is known by the address it was answered at: it keeps to that when the way names another, and
/// loses nothing when it is away for a moment.
#[test]
fn an_address_that_sessions_were_opened_from_goes_and_comes_back() {
    let test = begin_beside("an_address_that_sessions_were_opened_from_goes_and_comes_back");
    let Some(lab) = test.lab(2, 1500) else { return };
    let (first, other) = (lab.host(0).ip(), Ipv4Addr::new(10, 77, 250, 2));
    let v6 = |host, last| IpAddr::from([0xfd77, 1, 0, 0, 0, 0, host, last]);
    let [first4, first6] = [format!("{first}/16"), format!("{}/64", v6(0, 1))];
    let way_by_other = || {
        ip(&lab, 0, &["route", "replace", "10.77.0.0/16", "src", &other.to_string()]);
        ip(&lab, 0, &["addr", "add", &format!("{}/64", v6(0, 2)), "nodad"]);
    };
    let go = || [&first4, &first6].map(|first| ip(&lab, 0, &["addr", "del", first]));
    let come = || {
        ip(&lab, 0, &["addr", "add", &first4]);
        ip(&lab, 0, &["addr", "add", &first6, "nodad"]);
    };
    ip(&lab, 0, &["addr", "add", &format!("{other}/32")]);
    ip(&lab, 0, &["addr", "add", &first6, "nodad"]);
    ip(&lab, 1, &["addr", "add", &format!("{}/64", v6(1, 1)), "nodad"]);
    let pair = |drive, from: IpAddr, to| {
        let settings = Settings::driven(drive);
        let sender = test.process_on(&lab, 0, format!("sender {drive:?} at {from}"), "node");
        let receiver = test.process_on(&lab, 1, format!("receiver at {to}"), "node");
        Pair::connected(sender, receiver, [from, to], &settings, LONG.sizes)
    };
    let (any4, any6) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
    // The last one does not notice: by it the others are told how much time has passed.
    let mut pairs = [
        pair(Drive::Inline, any4, lab.host(1).ip()),
        pair(Drive::Thread, any4, lab.host(1).ip()),
        pair(Drive::Inline, any6, v6(1, 1)),
        pair(Drive::Inline, other.into(), lab.host(1).ip()),
    ];
    let go_on = |pairs: &mut [Pair], what: &str| {
        for pair in pairs {
            let before = pair.receiver.received();
            until(what, || {
                pair.sender.expect_no_loss();
                pair.receiver.received() >= before + MEANWHILE
            });
        }
    };
    pairs.iter_mut().for_each(|pair| pair.send(LONG_COUNT, LONG_PACE_US));
    go_on(&mut pairs, "messages");
    way_by_other();
    go_on(&mut pairs, "messages by another way");
    go();
    go_on(&mut pairs[3..], "messages from the other address");
    come();
    for mut pair in pairs {
        pair.finish(LONG_COUNT, LIMIT);
    }
}
