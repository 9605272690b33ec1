//! What a receiver has room for: credit and memory that are free again reach whoever waits for them.

use crate::common::content;
use crate::net::{Pair, SECOND, addr};
use denrei_proto::group::{GroupId, GroupOptions};
use denrei_proto::{
    ChannelId, Completion, Config, Event, LostReason, MessageId, OfferPolicy, PeerId, Placement,
};
use denrei_wire::checksum::crc32c;
use denrei_wire::frame::{Fragment, Frame, Frames, Message, Offer, Skip};
use denrei_wire::group::{Begin, GROUP_CHANNEL, Open, Record, Route};
use denrei_wire::packet::{self, Kind, Opening};
use denrei_wire::{Incarnation, PacketNumber, Token};
use std::net::SocketAddr;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A pair whose first endpoint has opened a session, and has a message through.
fn open(config: Config) -> (Pair, PeerId, PeerId) {
    let mut pair = Pair::new(config);
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 10));
    pair.run(100 * MS);
    let back = pair.ends[1].peers().next().unwrap();
    (pair, peer, back)
}

#[derive(Debug)]
struct Nowhere;

impl Placement for Nowhere {
    fn place(&mut self, _offset: u64, _bytes: &[u8]) {}
}

#[test]
fn a_message_given_up_while_it_is_placed_held_no_memory() {
    let (mut pair, peer, back) = open(Config { offers: OfferPolicy::Ask, ..Config::default() });
    let (to, from) = (ChannelId { peer, channel: 1 }, ChannelId { peer: back, channel: 1 });
    let deadline = pair.now + 20 * MS;
    let late = content(1, 3 << 20).into();
    pair.ends[0].send_before(pair.now, to, late, Completion::None, deadline).unwrap();
    pair.run(MS);
    let into: Box<dyn Placement> = Box::new(Nowhere);
    pair.ends[1].accept(pair.now, from, 0, into).unwrap();
    // Some of it comes, and then nothing until it is too late.
    pair.run(MS / 5);
    pair.lose = |_| true;
    pair.run(50 * MS);
    pair.lose = |_| false;
    pair.send(0, peer, 1, content(2, 100));
    pair.run(5 * SECOND);
    assert!(pair.events[1].contains(&Event::Withdrawn { channel: from, number: 0 }), "{:?}", pair.events[1]);
    assert_eq!(pair.received[1].last().unwrap().data, content(2, 100));
    assert_eq!(pair.ends[1].held_bytes(), 0);
}

#[test]
fn who_refuses_every_offer_gives_their_credit_back() {
    let config = Config {
        offers: OfferPolicy::Ask,
        channel_credit_bytes: 64 << 10,
        offer_above_bytes: 0,
        ..Config::default()
    };
    let (mut pair, peer, back) = open(config);
    let offers = 3000;
    for _ in 0..offers {
        pair.send(0, peer, 1, vec![1]);
    }
    let from = ChannelId { peer: back, channel: 1 };
    let mut refused = 0;
    for _ in 0..100 {
        pair.run(10 * MS);
        for event in std::mem::take(&mut pair.events[1]) {
            if let Event::Offered { channel, number, .. } = event {
                pair.ends[1].refuse(pair.now, channel, number).unwrap();
                refused += (channel == from) as u32;
            }
        }
    }
    assert_eq!(refused, offers);
    assert_eq!(pair.ends[0].queue_len(peer), Some(0));
}

#[test]
fn events_that_nobody_asks_for_are_bounded_and_counted() {
    let (mut pair, peer, _) = open(Config::default());
    let to = ChannelId { peer, channel: 1 };
    let (most, end) = (65_536, &mut pair.ends[0]);
    while end.poll_event().is_some() {}
    for _ in 0..most / 1000 + 1 {
        for _ in 0..1000 {
            end.send_before(pair.now, to, vec![1].into(), Completion::None, pair.now).unwrap();
        }
        pair.now += MS / 1000;
        end.handle_timeout(pair.now);
    }
    assert_eq!((end.waiting_events(), end.counters().dropped_events), (most, 66_000 - most as u64));
    let newest = std::iter::from_fn(|| end.poll_event()).last();
    assert_eq!(newest, Some(Event::Expired(MessageId { channel: to, number: 65_999 })));
}

/// The second endpoint's membership of a group that the first has opened.
fn open_group(pair: &mut Pair, address: SocketAddr) -> GroupId {
    pair.ends[1].join_group_unheard(pair.now, address).unwrap();
    let members = [addr(1)];
    let group = pair.ends[0].open_group(pair.now, address, &members, GroupOptions::default()).unwrap();
    pair.run(SECOND);
    assert_eq!(pair.ends[1].accept_group(address), Some((group, 0)));
    group
}

#[test]
fn memory_that_a_group_has_left_is_the_sessions() {
    let memory = 64 << 10;
    let config = Config {
        channel_credit_bytes: memory,
        receive_memory_bytes: memory,
        offer_above_bytes: 4096,
        ..Config::default()
    };
    let (mut pair, peer, back) = open(config);
    let groups = ["239.1.2.3:7000", "239.1.2.4:7000"].map(|at| open_group(&mut pair, at.parse().unwrap()));
    pair.reading[1] = false;
    for _ in 0..25 {
        for group in groups {
            pair.ends[0].group_send(group, vec![2; 2048].into()).unwrap();
        }
    }
    pair.run(SECOND);
    for number in 0..100 {
        pair.send(0, peer, 1, content(number, 2048));
    }
    pair.run(SECOND);
    let from = ChannelId { peer: back, channel: 1 };
    let mut taken = 0;
    let mut take = |pair: &mut Pair| {
        while pair.ends[1].recv_from(pair.now, from).is_some() {
            taken += 1;
        }
        pair.run(SECOND);
        taken
    };
    for _ in 0..20 {
        take(&mut pair);
    }
    assert!(take(&mut pair) < 100, "the group's messages leave no memory for more");
    for group in groups {
        while pair.ends[1].group_recv(pair.now, group).is_some() {}
    }
    for _ in 0..20 {
        pair.run(SECOND);
        take(&mut pair);
    }
    assert_eq!(take(&mut pair), 100);
}

/// A plain packet of somebody whose token is 7, to the session of `token`.
fn packet(kind: Kind, number: u64, token: Token, frames: &[Frame<'_>]) -> Vec<u8> {
    let mut packet = packet::common_header(kind, 0, PacketNumber(number), token).to_vec();
    if kind == Kind::First {
        let opening = Opening { own_token: Token(7), incarnation: Incarnation(9) };
        packet.extend(packet::opening_header(opening, 0));
    }
    frames.iter().for_each(|frame| frame.encode(&mut |part| packet.extend_from_slice(part)));
    let crc = crc32c(&packet);
    packet.extend(crc.to_le_bytes());
    packet
}

fn message(number: u32, payload: &[u8]) -> Frame<'_> {
    Frame::Message(Message { flags: 0, channel: 0, number, payload })
}

#[test]
fn who_is_not_proven_brings_no_more_of_empty_messages_either() {
    let mut pair = Pair::new(Config::default());
    for number in 0..10 {
        let messages: Vec<_> = (0..1000).map(|each| message(number * 1000 + each, &[])).collect();
        pair.inject(1, &packet(Kind::First, number.into(), Token(7), &messages));
    }
    // Each is charged 64 octets: 128 KiB are 2048 of them.
    assert_eq!(pair.ends[1].counters().limited, 7);
}

#[test]
fn who_is_not_proven_is_given_no_memory_for_what_it_has_begun() {
    let total = (4 << 20) - 64;
    let begun =
        |channel| Frame::Fragment(Fragment { flags: 0, channel, number: 0, offset: 0, total, payload: &[1] });
    let frames: Vec<_> = (0..16).map(begun).collect();
    let (mut pair, token) = answered(Config::default(), &frames);
    assert_eq!(pair.ends[1].held_bytes(), 0);
    assert_eq!(pair.ends[1].counters().limited, 1);
    // Of sixteen channels everybody knows, of no more.
    let forged = packet(Kind::First, 0, Token(7), &[begun(16)]);
    pair.inject_from(1, "10.0.0.3:7000".parse().unwrap(), &forged);
    assert_eq!(pair.ends[1].held_bytes(), 0);
    // Whoever has heard how much it may send comes again.
    pair.inject(1, &packet(Kind::Session, 1, token, &frames));
    assert_eq!((pair.ends[1].held_bytes(), pair.lost(1)), (16 * total, vec![]));
}

#[test]
fn who_is_not_proven_goes_on_with_what_it_has_begun() {
    let mut pair = Pair::new(Config::default());
    for number in 0..2 {
        let part = |channel| {
            let (offset, total) = (number, 60_000);
            Frame::Fragment(Fragment { flags: 0, channel, number: 0, offset, total, payload: &[1] })
        };
        pair.inject(1, &packet(Kind::First, number, Token(7), &[part(0), part(1)]));
    }
    assert_eq!((pair.ends[1].held_bytes(), pair.ends[1].counters().limited), (120_000, 0));
}

#[test]
fn what_one_packet_of_who_is_not_proven_begins_is_added_up() {
    let begun = |channel| {
        Frame::Fragment(Fragment { flags: 0, channel, number: 0, offset: 0, total: 60_000, payload: &[1] })
    };
    for (channels, held, limited) in [(2, 120_000, 0), (3, 0, 1)] {
        let frames: Vec<_> = (0..channels).map(begun).collect();
        let (pair, _) = answered(Config::default(), &frames);
        assert_eq!((pair.ends[1].held_bytes(), pair.ends[1].counters().limited), (held, limited));
    }
}

/// The second endpoint, which does not read, and the token of its session with a peer that sent `first`.
fn answered(config: Config, first: &[Frame<'_>]) -> (Pair, Token) {
    let mut pair = Pair::new(config);
    pair.reading[1] = false;
    pair.inject(1, &packet(Kind::First, 0, Token(7), first));
    let answer = &pair.tapped(0, Kind::Answer)[0];
    let token = Token(u64::from_le_bytes(answer[16..24].try_into().unwrap()));
    (pair, token)
}

#[test]
fn memory_that_a_message_given_up_has_left_is_everybodys() {
    let memory = 64 << 10;
    let config = Config {
        channel_credit_bytes: memory,
        receive_memory_bytes: memory,
        offer_above_bytes: 60_000,
        ..Config::default()
    };
    let (mut pair, token) = answered(config, &[]);
    // Two that are not complete leave no memory, and what is taken then is not given back as credit.
    let mut frames: Vec<_> = (0..600).map(|number| message(number, &[])).collect();
    for channel in [1, 2] {
        let (total, payload) = (45_000, &[1; 100][..]);
        frames.push(Frame::Fragment(Fragment { flags: 0, channel, number: 0, offset: 0, total, payload }));
    }
    pair.inject(1, &packet(Kind::Session, 1, token, &frames));
    while pair.ends[1].recv(pair.now).is_some() {}
    let credit = |pair: &mut Pair| {
        pair.drain(1);
        let sent = pair.tapped(0, Kind::Session);
        let frames = sent.iter().flat_map(|packet| Frames::new(&packet[16..packet.len() - 4]));
        frames.filter(|frame| matches!(frame, Ok(Frame::Credit(credit)) if credit.channel == 0)).count()
    };
    assert_eq!(credit(&mut pair), 0);
    for channel in [1, 2] {
        let skip = Frame::Skip(Skip { channel, number: 0, charged: 45_000 });
        pair.inject(1, &packet(Kind::Session, 1 + u64::from(channel), token, &[skip]));
    }
    assert_eq!(credit(&mut pair), 1);
}

#[test]
fn answers_that_are_never_acknowledged_are_bounded() {
    for asks in [Frame::StatusRequest(0), Frame::Ping] {
        let (mut pair, token) = answered(Config::default(), &[]);
        for number in 1..=600_000 {
            let asked =
                if let Frame::Ping = asks { Frame::Ping } else { Frame::StatusRequest(number as u32) };
            // Something is under way all the time, so that answers without any of their own are remembered, too.
            let first = (number < 9).then_some(Frame::StatusRequest(number as u32));
            let frames: Vec<_> = first.into_iter().chain([asked]).collect();
            pair.inject(1, &ask_now(packet(Kind::Session, number, token, &frames)));
            pair.tapped.clear();
        }
        let asked = LostReason::Violation("it asks, and acknowledges no answers");
        assert_eq!(pair.lost(1), [(asked, 0)]);
    }
}

/// The same, with ACK_NOW.
fn ask_now(mut packet: Vec<u8>) -> Vec<u8> {
    packet.truncate(packet.len() - 4);
    packet[packet::FLAGS_OFFSET] = packet::flags::ACK_NOW as u8;
    let crc = crc32c(&packet);
    packet.extend(crc.to_le_bytes());
    packet
}

#[test]
fn a_message_of_any_size_may_be_offered() {
    let config = Config { max_message_bytes: u64::MAX, ..Config::default() };
    let (mut pair, token) = answered(config, &[message(0, b"held")]);
    let offer = Frame::Offer(Offer { flags: 0, channel: 0, number: 1, total: u64::MAX });
    pair.inject(1, &packet(Kind::Session, 1, token, &[offer]));
    assert_eq!(pair.ends[1].held_bytes(), 4);
    assert_eq!(pair.lost(1), []);
}

#[test]
fn a_session_that_begins_anew_uses_the_channels_that_everybody_has() {
    let mut pair = Pair::new(Config::default());
    pair.connect(0);
    pair.run(Duration::from_micros(60));
    // It is opening, and gone; whoever comes in its place has fewer channels.
    pair.restart(0, Config { max_channels: 16, ..Config::default() });
    let peer = pair.connect(1);
    for channel in [100, 3] {
        pair.send(1, peer, channel, content(1, 100));
    }
    pair.run(SECOND);
    assert_eq!(pair.lost(1), []);
    let refused = Event::Refused(MessageId { channel: ChannelId { peer, channel: 100 }, number: 0 });
    assert!(pair.events[1].contains(&refused), "{:?}", pair.events[1]);
    assert_eq!((pair.received[0].len(), pair.acknowledged(1)), (1, 1));
    assert_eq!(pair.tapped(0, Kind::First).len(), 1, "the first was no violation");
}

/// OPEN of a group with one member.
fn open_at(address: SocketAddr) -> Record<'static> {
    let (member, members, report_delay_us) = (0, 1, 1000);
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

/// A pair with 1 MiB of receive memory at the second endpoint, and what it has for the first.
fn with_a_mebibyte() -> (Pair, PeerId) {
    let memory = 1 << 20;
    let (pair, peer, _) = open(Config {
        channel_credit_bytes: 64 << 10,
        receive_memory_bytes: memory,
        offer_above_bytes: 4096,
        ..Config::default()
    });
    (pair, peer)
}

/// Somebody else who opens a session with the second endpoint: its token there.
fn another(pair: &mut Pair, at: SocketAddr) -> Token {
    pair.tapped.clear();
    pair.inject_from(1, at, &packet(Kind::First, 0, Token(7), &[]));
    let answer = &pair.tapped(0, Kind::Answer)[0];
    Token(u64::from_le_bytes(answer[16..24].try_into().unwrap()))
}

/// What a peer has promised, or begun, and does not complete fills the memory of all.
#[test]
fn who_is_slow_to_complete_what_is_promised_keeps_nobody_from_sending() {
    let offer = Frame::Offer(Offer { flags: 0, channel: 0, number: 0, total: 1 << 20 });
    let begun = |channel| {
        Frame::Fragment(Fragment { flags: 0, channel, number: 0, offset: 0, total: 60_000, payload: &[1] })
    };
    let address = "239.1.2.3:7000".parse().unwrap();
    let mut symbol = Vec::new();
    for number in [0, 1] {
        let part = Fragment { flags: 0, channel: 0, number, offset: 0, total: 1 << 20, payload: &[1] };
        Frame::Fragment(part).encode(&mut |part| symbol.extend_from_slice(part));
    }
    let records = [
        open_at(address),
        Record::Begin(Begin { symbol: 0, message: 0, cost: 0 }),
        Record::Symbol { number: 0, report: false, frames: &symbol },
    ];
    let records = records.map(|record| record.encode(5));
    let say = |number: usize| {
        let payload = &records[number];
        Frame::Message(Message { flags: 0, channel: GROUP_CHANNEL, number: number as u32, payload })
    };
    for frames in [(0..20).map(begun).collect(), (0..3).map(say).collect(), vec![offer]] {
        let (mut pair, peer) = with_a_mebibyte();
        let other = "10.0.0.3:7000".parse().unwrap();
        let token = another(&mut pair, other);
        pair.ends[1].join_group_unheard(pair.now, address).unwrap();
        pair.inject_from(1, other, &packet(Kind::Session, 1, token, &frames));
        assert!(pair.ends[1].held_bytes() >= 1 << 20, "the memory is full");
        for number in 0..100 {
            pair.send(0, peer, 1, content(number, 2048));
            pair.send(0, peer, 2, content(number, 20_000));
        }
        pair.run(10 * SECOND);
        assert_eq!(pair.received[1].len(), 201);
        // One that would be as slow waits for what is promised: a few of them would fill the memory.
        pair.send(0, peer, 1, content(0, 200_000));
        pair.run(SECOND);
        assert_eq!(pair.ends[0].queue_len(peer), Some((frames.len() == 1).into()));
    }
}

/// However many they are, and however they divide the memory.
#[test]
fn many_that_are_slow_to_complete_keep_nobody_from_sending() {
    let begun = |channel| {
        Frame::Fragment(Fragment { flags: 0, channel, number: 0, offset: 0, total: 60_000, payload: &[1] })
    };
    for (others, each) in [(8, 3), (10, 2), (18, 1), (100, 3)] {
        let (mut pair, peer) = with_a_mebibyte();
        for other in 0..others {
            let at = SocketAddr::from(([10, 0, 1, other], 7000));
            let token = another(&mut pair, at);
            let frames: Vec<_> = (0..each).map(begun).collect();
            pair.inject_from(1, at, &packet(Kind::Session, 1, token, &frames));
        }
        assert!(pair.ends[1].held_bytes() >= 1 << 20, "the memory is full");
        for number in 0..100 {
            pair.send(0, peer, 1, content(number, 2048));
            pair.send(0, peer, 2, content(number, 4500));
        }
        pair.run(10 * SECOND);
        assert_eq!(pair.received[1].len(), 201, "beside {others} of {each}");
    }
}

#[test]
fn an_opener_has_its_members_open_no_more_than_a_bounded_number_of_sessions() {
    let (mut pair, token) = answered(Config::default(), &[]);
    let address = "239.1.2.3:7000".parse().unwrap();
    pair.ends[1].join_group_unheard(pair.now, address).unwrap();
    let route = |turn: u16| {
        let children =
            (0..64).map(|child| (child, SocketAddr::from(([10, 1, 0, child as u8], 1 + turn)))).collect();
        Record::Route(Route { parent: addr(0), report_to_parent: false, relay: true, children })
    };
    let records = core::iter::once(open_at(address)).chain((0..100).map(route));
    for (number, record) in records.enumerate() {
        let payload = &record.encode(5);
        let said =
            Frame::Message(Message { flags: 0, channel: GROUP_CHANNEL, number: number as u32, payload });
        pair.inject(1, &packet(Kind::Session, 1 + number as u64, token, &[said]));
    }
    assert_eq!(pair.lost(1), []);
    assert_eq!(pair.ends[1].peers().count(), 1 + 1024);
}

/// Each used to be looked for among all before it: a minute and a half for these.
#[test]
fn tens_of_thousands_of_offers_are_accepted_one_by_one() {
    let (mut pair, token) = answered(Config::default(), &[]);
    let offer = |number| Frame::Offer(Offer { flags: 0, channel: 0, number, total: 1 });
    let mut accepted = 0;
    for turn in 0..600 {
        pair.tapped.clear();
        let offers: Vec<_> = (turn * 80..(turn + 1) * 80).map(offer).collect();
        pair.inject(1, &packet(Kind::Session, u64::from(turn) + 1, token, &offers));
        let said = pair.tapped(0, Kind::Session);
        let frames = said.iter().flat_map(|packet| Frames::new(&packet[16..packet.len() - 4]));
        accepted +=
            frames.filter(|frame| matches!(frame, Ok(Frame::Accept(accept)) if !accept.refused)).count();
    }
    assert_eq!(accepted, 48_000);
}

/// Whoever decides about offers takes accepted ones late: what is delivered is told as far as all is, at each.
#[test]
fn what_was_delivered_is_told_up_to_the_first_that_comes_late() {
    let config = Config { offers: OfferPolicy::Ask, offer_above_bytes: 4096, ..Config::default() };
    let (mut pair, peer, back) = open(config);
    pair.reading[1] = false;
    let (to, from) = (ChannelId { peer, channel: 1 }, ChannelId { peer: back, channel: 1 });
    for number in 0..5 {
        let bytes = if number == 0 || number == 3 { 10_000 } else { 10 };
        pair.ends[0].send(to, content(number, bytes).into(), Completion::Delivered).unwrap();
    }
    pair.run(100 * MS);
    for offered in [3, 0] {
        pair.ends[1].accept(pair.now, from, offered, Vec::new()).unwrap();
        pair.run(100 * MS);
    }
    let mut told = Vec::new();
    while let Some(message) = pair.ends[1].recv_from(pair.now, from) {
        pair.run(100 * MS);
        let delivered = |event: &&Event| matches!(event, Event::Delivered(_));
        told.push((message.number, pair.events[0].iter().filter(delivered).count()));
    }
    assert_eq!(told, [(1, 0), (2, 0), (4, 0), (3, 0), (0, 5)]);
}
