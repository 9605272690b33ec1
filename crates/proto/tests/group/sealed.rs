//! Groups whose packets are sealed: keys, epochs, signatures, and what others can do.

use super::net::{Net, addr, group_addr};
use super::{SIZES, exchange, send_all, send_all_again};
use denrei_proto::group::{GroupBackend, GroupEvent, GroupOptions, MemberPath};
use denrei_proto::seal::ClusterKey;
use denrei_proto::{Config, Endpoint};
use denrei_wire::Instant;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

pub fn sealed() -> Config {
    Config { cluster_key: Some(ClusterKey::from_bytes([7; 32])), ..Config::default() }
}

fn sealed_net(members: usize, options: GroupOptions) -> Net {
    let mut net = Net::new(members, sealed());
    net.open(options);
    net.run(Duration::from_secs(1));
    assert_eq!(net.events, [GroupEvent::Opened]);
    net
}

#[test]
fn with_a_cluster_key_groups_are_sealed_on_every_backend() {
    for sign in [false, true] {
        for backend in [GroupBackend::Auto, GroupBackend::Unicast, GroupBackend::Tree] {
            if sign && backend == GroupBackend::Tree {
                continue;
            }
            let mut net = sealed_net(9, GroupOptions { backend, sign, ..GroupOptions::default() });
            net.loss = vec![20; 10];
            let net = exchange(net, 9);
            assert_eq!(net.multicast_datagrams > 0, backend == GroupBackend::Auto, "{backend:?}");
            assert!(net.hosts.iter().all(|host| host.counters().unsealed == 0));
            assert!(net.hosts.iter().all(|host| host.counters().corrupted == 0), "{backend:?}, sign {sign}");
        }
    }
}

#[test]
fn signatures_need_a_key_and_no_relays() {
    let refusal = |config: Config, backend| {
        let mut host = Endpoint::new(Arc::new(config), 1, Instant::ZERO);
        let options = GroupOptions { backend, sign: true, ..GroupOptions::default() };
        host.open_group(Instant::ZERO, group_addr(), &[addr(1)], options).unwrap_err().to_string()
    };
    assert!(refusal(Config::default(), GroupBackend::Auto).contains("cluster_key"));
    assert!(refusal(sealed(), GroupBackend::Tree).contains("set backend to Auto"));
}

#[test]
fn recorded_packets_of_a_group_bring_nothing() {
    let mut net = sealed_net(3, GroupOptions::default());
    net.recording = Some(Vec::new());
    send_all(&mut net);
    net.run(Duration::from_secs(1));
    let recording = net.recording.take().unwrap();
    assert!(recording.len() > 100);
    for datagram in &recording {
        for to in 1..=3 {
            net.order += 1;
            net.under_way.insert((net.now, net.order), (to, addr(0), datagram.clone()));
        }
    }
    net.run(Duration::from_secs(1));
    for host in 1..=3 {
        net.assert_received(host, &SIZES);
        let repeated = net.hosts[host].counters().repeated_group_packets;
        assert_eq!(repeated, recording.len() as u64, "host {host}");
    }
}

#[test]
fn the_key_changes_when_a_member_goes_and_the_others_lose_nothing() {
    let mut net = sealed_net(4, GroupOptions::default());
    net.loss = vec![10; 5];
    send_all(&mut net);
    net.run(Duration::from_secs(2));
    net.recording = Some(Vec::new());
    let group = net.group;
    net.hosts[0].remove_group_member(net.now, group, 1).unwrap();
    send_all_again(&mut net);
    net.hosts[3].leave_group(net.now, group);
    send_all_again(&mut net);
    net.close();
    net.run(Duration::from_secs(20));
    let thrice: Vec<usize> = [SIZES; 3].concat();
    for host in [1, 4] {
        assert_eq!(net.received[host].len(), thrice.len(), "host {host}");
    }
    assert_eq!(net.received[2].len(), SIZES.len());
    let phases: BTreeSet<u8> = net.recording.take().unwrap().iter().map(|packet| packet[2] & 2).collect();
    assert_eq!(phases.len(), 2, "two went, one after the other: epochs 1 and 2");
    assert_eq!(net.events.last(), Some(&GroupEvent::Closed));
}

#[test]
fn who_was_invited_before_the_key_changed_joins_with_the_new_one() {
    for sign in [false, true] {
        let mut net = Net::new(4, sealed());
        (1..=3).for_each(|host| net.hosts[host].join_group(net.now, group_addr()).unwrap());
        let options = GroupOptions { sign, ..GroupOptions::default() };
        let members = [addr(1), addr(2), addr(3)];
        net.group = net.hosts[0].open_group(net.now, group_addr(), &members, options).unwrap();
        net.run(Duration::from_secs(1));
        let group = net.group;
        net.hosts[0].add_group_member(net.now, group, addr(4), false).unwrap();
        net.run(Duration::from_millis(100));
        // The key changes twice before its application joins.
        for member in [1, 2] {
            net.hosts[0].remove_group_member(net.now, group, member).unwrap();
            net.run(Duration::from_millis(100));
        }
        net.hosts[4].join_group(net.now, group_addr()).unwrap();
        net.run(Duration::from_secs(3));
        let joined = GroupEvent::Joined { member: 3, addr: addr(4), first_message: 0 };
        assert_eq!(net.events.last(), Some(&joined), "sign {sign}");
        assert_eq!(net.paths()[3], MemberPath::Multicast, "it opens what is sealed with the new key");
        send_all(&mut net);
        net.run(Duration::from_secs(1));
        (1..=4).step_by(3).for_each(|host| net.assert_received(host, &SIZES));
        assert_eq!(net.hosts[4].counters().corrupted, 0);
    }
}

/// Runs where attacks are built too (feature `rogue`).
#[cfg(feature = "rogue")]
#[test]
fn nobody_but_the_opener_and_its_relays_brings_symbols_and_who_refuses_has_no_key() {
    use denrei_wire::group::Record;
    let mut net = sealed_net(3, GroupOptions::default());
    send_all(&mut net);
    net.run(Duration::from_secs(1));
    let (now, group) = (net.now, net.group);
    for to in [2, 3] {
        let peer = net.hosts[1].connect(now, addr(to)).unwrap();
        for number in 0..2000 {
            // MESSAGE, of which nobody has said anything.
            let frames = [4, 0, 0, 0, 8, 0, 0, 0, 1, 0, b'x'];
            let record = Record::Symbol { number, report: true, frames: &frames }.encode(group.0);
            net.hosts[1].say_record(now, peer, &record);
        }
    }
    net.run(Duration::from_secs(1));
    let opener = net.hosts[1].connect(net.now, addr(0)).unwrap();
    net.hosts[1].say_record(now, opener, &Record::Refuse.encode(group.0));
    net.run(Duration::from_secs(1));
    net.recording = Some(Vec::new());
    send_all_again(&mut net);
    net.run(Duration::from_secs(1));
    for host in [2, 3] {
        assert_eq!(net.received[host].split_off(SIZES.len()).len(), SIZES.len(), "host {host}");
        net.assert_received(host, &SIZES);
    }
    assert_eq!(net.received[1].len(), SIZES.len());
    assert!(net.recording.take().unwrap().iter().all(|packet| packet[2] & 2 == 2), "all of the next epoch");
}
