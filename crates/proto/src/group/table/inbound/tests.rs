use super::*;
use crate::config::{Config, MESSAGE_COST_BYTES};
use crate::seal::Seed;
use core::time::Duration;
use denrei_wire::group::Begin;
use std::collections::BTreeMap;

fn addr(host: u32) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, host as u8], 7000))
}

fn peer(host: u32) -> PeerId {
    PeerId { slot: host, generation: 0 }
}

/// Sessions with hosts that take nothing: what was queued for each.
#[derive(Default)]
struct Silent {
    config: Config,
    queued: BTreeMap<u32, Vec<Bytes>>,
    /// Where they have addresses of one link.
    interface: Option<u32>,
}

impl Silent {
    fn addr(&self, host: u32) -> SocketAddr {
        let of_link = |interface| format!("[fe80::{host}%{interface}]:7000").parse().unwrap();
        self.interface.map_or(addr(host), of_link)
    }
}

impl Host for Silent {
    fn config(&self) -> &Config {
        &self.config
    }
    fn connect(&mut self, _: Instant, addr: SocketAddr) -> Option<PeerId> {
        self.peer_at(addr)
    }
    fn connect_told(&mut self, now: Instant, addrs: &mut dyn Iterator<Item = SocketAddr>) -> Vec<PeerId> {
        addrs.filter_map(|addr| self.connect(now, addr)).collect()
    }
    fn send(&mut self, _: Instant, peer: PeerId, record: Bytes) {
        self.queued.entry(peer.slot).or_default().push(record);
    }
    fn send_in_turn(&mut self, now: Instant, peer: PeerId, record: Bytes) {
        self.send(now, peer, record);
    }
    fn report(&mut self, _: Instant, _: PeerId, _: &[u8]) {}
    fn ask_for_life(&mut self, _: Instant, _: PeerId) {}
    fn queue_room(&self, peer: PeerId, _: u64, most: u64, _: u64) -> u64 {
        let queued = self.queued.get(&peer.slot).into_iter().flatten();
        most.saturating_sub(queued.map(|record| record.len() as u64 + MESSAGE_COST_BYTES).sum())
    }
    fn rtt(&self, _: PeerId) -> Option<Duration> {
        None
    }
    fn rate(&self, _: PeerId) -> Rate {
        Rate::UNLIMITED
    }
    fn rate_room(&mut self, _: Instant, _: PeerId) -> Result<u64, Instant> {
        Ok(u64::MAX)
    }
    fn spend_rate(&mut self, _: Instant, _: PeerId, _: u64) {}
    fn datagram_bytes(&self, _: PeerId) -> Option<u16> {
        None
    }
    fn peer_at(&self, addr: SocketAddr) -> Option<PeerId> {
        (1..4).find(|host| self.addr_of(peer(*host)) == Some(addr)).map(peer)
    }
    fn way_of(&self, peer: PeerId) -> Option<denrei_wire::Way> {
        Some(self.addr(peer.slot).into())
    }
    fn seed(&mut self) -> Seed {
        Seed::from(1)
    }
    fn is_proven(&self, _: PeerId) -> bool {
        true
    }
    fn memory_left(&self) -> bool {
        true
    }
}

fn said(table: &mut Table, host: &mut Silent, record: &Record<'_>) {
    table.on_record(Instant::ZERO, peer(1), &record.encode(7).into(), host);
}

fn open() -> Record<'static> {
    let address = "239.1.1.1:7400".parse().unwrap();
    let (member, members, report_delay_us) = (0, 2, 1000);
    Record::Open(Open {
        address,
        member,
        members,
        report_delay_us,
        stagger: false,
        suppress: false,
        key: &[],
    })
}

#[test]
fn who_sends_many_invitations_takes_no_place_from_others() {
    let (mut table, mut host) = (Table::default(), Silent::default());
    let mut invite = |table: &mut Table, from, group| {
        table.on_record(Instant::ZERO, peer(from), &open().encode(group).into(), &mut host);
    };
    (0..=MAX_INVITATIONS as u64).for_each(|group| invite(&mut table, 1, group));
    invite(&mut table, 2, 1000);
    let kept = |from| table.invitations.iter().filter(|invitation| invitation.from == peer(from)).count();
    assert_eq!((kept(1), kept(2)), (MAX_INVITATIONS - 1, 1));
    let refused: Vec<_> = host.queued[&1].iter().map(|record| Record::decode(record).unwrap()).collect();
    let newest = MAX_INVITATIONS as u64;
    assert_eq!(refused, [(newest, Record::Refuse), (newest - 1, Record::Refuse)]);
    assert!(!host.queued.contains_key(&2));
}

#[test]
fn who_opens_many_groups_leaves_some_to_others() {
    let (mut table, mut host) = (Table::default(), Silent::default());
    table.join(Instant::ZERO, "239.1.1.1:7400".parse().unwrap(), true, &mut host).unwrap();
    let mut invite = |table: &mut Table, from, groups: core::ops::Range<u64>| {
        host.queued.clear();
        for group in groups {
            table.on_record(Instant::ZERO, peer(from), &open().encode(group).into(), &mut host);
        }
        table.members.values().filter(|member| member.opener == peer(from)).count()
    };
    assert_eq!(invite(&mut table, 1, 0..2000), MAX_GROUPS - OTHERS_PLACES);
    assert_eq!(invite(&mut table, 2, 2000..4000), OTHERS_PLACES);
    assert_eq!(invite(&mut table, 3, 4000..4001), 0, "there is an end");
}

#[test]
fn groups_that_came_and_went_unaccepted_make_place_for_others() {
    let (mut table, mut host) = (Table::default(), Silent::default());
    let address = "239.1.1.1:7400".parse().unwrap();
    table.join(Instant::ZERO, address, true, &mut host).unwrap();
    let say = |table: &mut Table, host: &mut Silent, group, record: Record<'_>| {
        table.on_record(Instant::ZERO, peer(1), &record.encode(group).into(), host);
    };
    let begin = || Record::Begin(Begin { symbol: 0, message: 0, cost: 0 });
    for group in 0..3000 {
        say(&mut table, &mut host, group, open());
        say(&mut table, &mut host, group, begin());
        if group == 0 {
            assert_eq!(table.accept(address), Some((GroupId(0), 0)));
        }
        // The second one stays open.
        if group != 1 {
            say(&mut table, &mut host, group, Record::Close { symbols: 0, messages: 0 });
        }
    }
    assert!(table.membership(GroupId(0).into()).is_some_and(Membership::is_finished), "somebody has it");
    assert!(table.membership(GroupId(1).into()).is_some_and(|member| !member.is_finished()));
    assert!(table.members.len() <= MAX_GROUPS);
    let said = host.queued[&1].iter().map(|record| Record::decode(record).unwrap().1);
    assert_eq!(said.filter(|record| *record == Record::Refuse).count(), 0);
}

#[test]
fn a_relay_holds_no_more_for_who_takes_nothing_than_its_bound() {
    let (mut table, mut host) = (Table::default(), Silent::default());
    table.join(Instant::ZERO, "239.1.1.1:7400".parse().unwrap(), true, &mut host).unwrap();
    said(&mut table, &mut host, &open());
    said(&mut table, &mut host, &Record::Begin(Begin { symbol: 0, message: 0, cost: 0 }));
    let children = vec![(1, addr(2))];
    let route = Route { parent: addr(1), report_to_parent: false, relay: true, children };
    said(&mut table, &mut host, &Record::Route(route));
    // No part of a message that is still wanted: the relay itself holds nothing of it.
    let (padding, far) = (vec![0; 1 << 20], 1 << 40);
    for number in 0..200 {
        let symbol = Record::Symbol { number: far + number, report: false, frames: &padding };
        said(&mut table, &mut host, &symbol);
    }
    let handed: usize = host.queued[&2].iter().map(Bytes::len).sum();
    assert!(handed as u64 >= MAX_WAITING_BYTES / 2, "it hands on: {handed}");
    assert!(handed as u64 <= MAX_WAITING_BYTES + (2 << 20), "{handed} octets wait for one");
}

#[test]
fn who_takes_no_answers_is_not_answered_for_ever() {
    let (mut table, mut host) = (Table::default(), Silent::default());
    host.config.channel_credit_bytes = crate::config::MIN_CHANNEL_CREDIT_BYTES;
    table.join(Instant::ZERO, "239.1.1.1:7400".parse().unwrap(), true, &mut host).unwrap();
    said(&mut table, &mut host, &open());
    host.queued.insert(1, vec![vec![0; MAX_WAITING_BYTES as usize].into()]);
    (0..1000).for_each(|_| said(&mut table, &mut host, &open()));
    assert_eq!(host.queued[&1].len(), 1);
}

#[test]
fn a_route_along_a_link_is_of_the_interface_that_the_opener_is_reached_by() {
    let (mut table, mut host) = (Table::default(), Silent { interface: Some(3), ..Silent::default() });
    table.join(Instant::ZERO, "239.1.1.1:7400".parse().unwrap(), true, &mut host).unwrap();
    said(&mut table, &mut host, &open());
    said(&mut table, &mut host, &Record::Begin(Begin { symbol: 0, message: 0, cost: 0 }));
    // Without the interface, as a record has no place for it.
    let children = vec![(1, host.addr(2))];
    let route = Route { parent: host.addr(3), report_to_parent: true, relay: true, children };
    said(&mut table, &mut host, &Record::Route(route));
    let member = table.membership(GroupId(7).into()).unwrap();
    assert!(member.hears(peer(3), host.addr_of(peer(3))), "what its parent hands on");
    assert_eq!(member.reports_to(), host.addr_of(peer(3)));
    said(&mut table, &mut host, &Record::Symbol { number: 0, report: false, frames: &[0; 100] });
    assert_eq!(host.queued.get(&2).map(Vec::len), Some(1), "its child is handed on");
}

#[test]
fn a_route_has_an_interface_for_addresses_of_one_link_alone() {
    let named = |addr: &str| addr.parse::<SocketAddr>().unwrap();
    let route = |parent: &str, child: &str| {
        let children = vec![(1, named(child))];
        Route { parent: named(parent), report_to_parent: true, relay: true, children }
    };
    let via = |opener: &str, route| on_link_of(Some(named(opener)), route);
    let there = route("[fe80::2%3]:7", "[fd00::3]:7");
    assert_eq!(via("[fe80::1%3]:7", route("[fe80::2]:7", "[fd00::3]:7")), there);
    let there = route("10.0.0.2:7", "[fe80::3]:7");
    assert_eq!(via("[fd00::1]:7", there.clone()), there);
    assert_eq!(via("10.0.0.1:7", there.clone()), there);
}
