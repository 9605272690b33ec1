//! What a peer says before it is proven: nothing of it reaches the application, and none of it is lost.

use crate::common::content;
use crate::net::{Pair, SECOND, addr};
use crate::ways::{is_sealed, secured};
use denrei_proto::{Config, Doorkeeper, Endpoint, Event, LostReason, PeerId, Phase, Rate, Refusal};
use denrei_wire::packet::Kind;
use denrei_wire::{Instant, TransmitBuf};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

/// All that a session may say about itself, in its first packets.
fn speak(pair: &mut Pair) {
    let peer = pair.connect(0);
    let rate = Rate { bytes_per_s: 1_000_000, burst_bytes: 14_540 };
    pair.ends[0].set_rate(pair.now, peer, rate).unwrap();
    pair.ends[0].close_read(pair.now, peer).unwrap();
    pair.ends[0].close_write(pair.now, peer).unwrap();
}

fn what_was_said_before_the_proof_is_told_with_it_and_once() {
    let mut pair = Pair::new(Config::default());
    speak(&mut pair);
    pair.run(100 * MS);
    let told = |is: fn(&Event) -> bool| pair.events[1].iter().filter(|event| is(event)).count();
    assert_eq!(told(|event| matches!(event, Event::Connected { .. })), 1);
    assert_eq!(told(|event| matches!(event, Event::RateSet { .. })), 1);
    assert_eq!(told(|event| matches!(event, Event::PeerDoneWriting(_))), 1);
    assert_eq!(told(|event| matches!(event, Event::PeerDoneReading { .. })), 1);
    assert!(matches!(pair.events[1][0], Event::Connected { .. }), "{:?}", pair.events[1]);
}

fn a_recorded_beginning_tells_the_application_nothing() {
    let mut pair = Pair::new(Config::default());
    pair.connected = false;
    speak(&mut pair);
    pair.run(100 * MS);
    let recorded = pair.tapped(1, Kind::First);
    assert!(!recorded.is_empty());
    for first in &recorded {
        pair.inject_from(1, addr(7), first);
    }
    pair.run(100 * MS);
    assert_eq!(pair.events[1], []);
    assert!(!pair.tapped(0, Kind::Answer).is_empty(), "it was heard");
}

fn of_many_rates_in_a_row_the_last_is_told() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.send(0, peer, 0, vec![1; 10]);
    pair.run(10 * MS);
    pair.events[1].clear();
    let back = pair.ends[1].peers().next().unwrap();
    // All three arrive before the application looks.
    for bytes_per_s in [1_000_000, 2_000_000, 3_000_000] {
        let rate = Rate { bytes_per_s, burst_bytes: 14_540 };
        pair.ends[0].set_rate(pair.now, peer, rate).unwrap();
        pair.drain(0);
    }
    pair.run(5 * MS);
    let last = Event::RateSet { peer: back, rate: Rate { bytes_per_s: 3_000_000, burst_bytes: 14_540 } };
    assert_eq!(pair.events[1], [last]);
}

/// Two that open at once: the one that becomes the responder, its peer, and the initiator. The ANSWER is
/// on its way, and the responder has a message that it may not acknowledge yet.
fn meet(pair: &mut Pair) -> (usize, PeerId, usize) {
    let peers = [pair.connect(0), pair.connect(1)];
    for (end, peer) in peers.into_iter().enumerate() {
        pair.send(end, peer, 0, vec![end as u8; 10]);
    }
    pair.run(75 * US);
    let phase = |end: usize| pair.ends[end].flow(peers[end]).unwrap().phase;
    let responder = if phase(0) == Phase::Answering { 0 } else { 1 };
    assert_eq!((phase(responder), phase(1 - responder)), (Phase::Answering, Phase::Opening));
    (responder, peers[responder], 1 - responder)
}

fn whoever_ends_a_session_before_the_proof_acknowledges_nothing() {
    for late in [0, 1] {
        let mut pair = Pair::new(Config::default());
        let (responder, peer, initiator) = meet(&mut pair);
        // Later: the initiator's first packet of the open session is on its way as well.
        pair.run(50 * US * late);
        pair.ends[responder].abort(pair.now, peer, 0x8005, "bye").unwrap();
        pair.run(1000 * MS);
        let why = LostReason::Ended { code: 0x8005, reason: "bye".to_owned() };
        assert_eq!(pair.lost(initiator), [(why, 1)]);
        assert_eq!(pair.lost(responder), [(LostReason::Aborted, 1)]);
        assert_eq!((pair.acknowledged(initiator), pair.received[responder].len()), (0, 0));
    }
}

/// With nothing acknowledged yet, only the answer tells how soon a first flight that is lost whole can be missed.
fn a_first_flight_that_is_lost_whole_is_repeated_as_soon_as_the_answer_lets_expect() {
    let mut pair = Pair::new(Config::default());
    pair.lose = |order| (3..=8).contains(&order);
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 7_000));
    pair.run(MS);
    assert_eq!((pair.order, pair.under_way.len()), (8, 0), "the flight is lost");
    pair.run(9 * MS);
    assert_eq!(pair.received[1].len(), 1);
}

/// They assume the same round trip: what overflowed a queue would overflow it again.
fn those_that_open_at_once_do_not_ask_again_at_once() {
    let mut times: Vec<_> = (0..64)
        .map(|seed| {
            let mut end = Endpoint::new(Arc::new(Config::default()), seed, Instant::ZERO);
            end.connect(Instant::ZERO, addr(1)).unwrap();
            end.poll_transmit(Instant::ZERO, &mut TransmitBuf::new(1)).unwrap();
            end.poll_timeout().unwrap()
        })
        .collect();
    times.sort();
    let (first, last) = (times[0], times[63]);
    assert!(first >= Instant::ZERO + 30 * MS && last <= Instant::ZERO + 40 * MS, "{first:?} to {last:?}");
    assert!(last.saturating_since(first) > 5 * MS, "{first:?} to {last:?}");
}

/// The first end opens a session, ends it at once and opens another; the FIRST of either.
fn open_twice(pair: &mut Pair) -> [Vec<u8>; 2] {
    pair.connected = false;
    ["of the old one", "of the new one"].map(|data| {
        let peer = pair.connect(0);
        pair.send(0, peer, 0, data);
        pair.drain(0);
        if data == "of the old one" {
            pair.ends[0].abort(pair.now, peer, 0x8001, "").unwrap();
        }
        pair.tapped(1, Kind::First).pop().unwrap()
    })
}

/// Whichever FIRST comes first, late, or again and again, as somebody may have recorded it.
fn a_first_of_an_earlier_session_costs_the_later_one_nothing() {
    for (adopted, late) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut pair = Pair::new(Config::default());
        let [old, new] = open_twice(&mut pair);
        pair.connected = true;
        let (first, second) = if late { (&new, &old) } else { (&old, &new) };
        pair.inject(1, first);
        if adopted {
            let back = pair.connect(1);
            pair.send(1, back, 0, "back");
        }
        for _ in 0..3 {
            pair.inject(1, second);
            pair.run(20 * US);
        }
        pair.run(150 * MS);
        pair.inject(1, &old);
        pair.run(1000 * MS);
        assert_eq!(pair.lost(0), [(LostReason::Aborted, 1)], "adopted {adopted}, late {late}");
        assert_eq!(pair.lost(1), [], "adopted {adopted}, late {late}");
        let data =
            |end: usize| pair.received[end].iter().map(|message| &message.data[..]).collect::<Vec<_>>();
        assert_eq!(data(1), [b"of the new one"], "adopted {adopted}, late {late}");
        assert_eq!(data(0).len(), usize::from(adopted), "late {late}");
    }
}

/// Firsts of processes that have ended before they were answered, from the host of the first end.
fn open_and_vanish(pair: &mut Pair, count: u16) {
    for other in 0..count {
        let mut endpoint = Endpoint::new(secured(Config::default()), 1000 + u64::from(other), pair.now);
        endpoint.connect(pair.now, addr(1)).unwrap();
        let mut first = TransmitBuf::new(1);
        endpoint.poll_transmit(pair.now, &mut first).unwrap();
        let from = SocketAddr::new(addr(0).ip(), 10_000 + other);
        pair.inject_from(1, from, first.bytes());
    }
}

/// 512 unproven sessions of one source, or as many as there may be peers, used to keep others out for 20 s. (Where
/// packets are sealed the former have to show their addresses, and those that cannot take no room.)
fn whoever_vanished_before_the_proof_makes_room_once_it_had_its_time() {
    let few = Config { max_peers: 4, ..Config::default() };
    for (config, many) in [(Config::default(), 600), (few, 6)] {
        let limit = config.max_peers;
        let mut pair = Pair::of([Config::default(), config]);
        open_and_vanish(&mut pair, many);
        let peer = pair.connect(0);
        pair.send(0, peer, 0, "let me in");
        pair.run(SECOND * 5 / 2);
        let counters = pair.ends[1].counters();
        assert_eq!(pair.received[1].len(), usize::from(is_sealed() && limit > 4), "{counters:?}");
        pair.run(SECOND * 2);
        assert_eq!(pair.received[1].len(), 1, "{counters:?}");
        assert_eq!(pair.lost(0), []);
    }
}

/// Nothing of theirs counts as arrived, whatever came before they were asked about.
fn who_is_not_let_in_hears_of_each_message() {
    let ways: [fn(u64) -> bool; 3] = [|_| false, |number| number % 3 == 2, |number| number % 4 == 1];
    for (way, lose) in ways.into_iter().enumerate() {
        let door =
            Doorkeeper::new(|relays| Err(Refusal { code: 0x8123, reason: format!("{relays} relays") }));
        let answering = Config { doorkeeper: Some(door), ..Config::default() };
        let mut pair = Pair { lose, ..Pair::of([Config { relays: 3, ..Config::default() }, answering]) };
        let peer = pair.connect(0);
        (0..5).for_each(|number| pair.send(0, peer, number % 2, content(number.into(), 400)));
        pair.run(SECOND);
        let [(LostReason::Ended { code: 0x8123, reason }, 5)] = &pair.lost(0)[..] else {
            panic!("{way}: {:?}", pair.lost(0))
        };
        // Unless the packet that told it was lost.
        assert!(reason == "3 relays" || way > 0, "{reason}");
        assert!(pair.events[1].is_empty() && pair.received[1].is_empty(), "{:?}", pair.events[1]);
        assert_eq!(pair.ends[1].peers().count(), 0);
    }
}

/// One of two that open at once is answered, and wants that all the same.
fn whom_the_application_has_connected_to_is_let_in() {
    let door = Doorkeeper::new(|_| Err(Refusal { code: 0x8123, reason: "full".to_owned() }));
    let mut pair = Pair::new(Config { doorkeeper: Some(door), ..Config::default() });
    for end in [0, 1] {
        let peer = pair.connect(end);
        pair.send(end, peer, 0, "hello");
    }
    pair.run(SECOND);
    assert_eq!([0, 1].map(|end| (pair.received[end].len(), pair.lost(end))), [(1, vec![]), (1, vec![])]);
}

/// Whoever was killed and came back would else be kept out by what is left of itself.
fn whoever_came_anew_and_is_not_let_in_ends_its_session_of_before() {
    let left = Arc::new(AtomicUsize::new(1));
    let take = move |_| match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
        Ok(_) => Ok(()),
        Err(_) => Err(Refusal { code: 0x8123, reason: "full".to_owned() }),
    };
    let answering = Config { doorkeeper: Some(Doorkeeper::new(take)), ..Config::default() };
    let mut pair = Pair::of([Config::default(), answering]);
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "hello");
    pair.run(SECOND);
    pair.ends[0] = Endpoint::new(secured(Config::default()), 3, pair.now);
    pair.events[0].clear();
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "again");
    pair.run(SECOND / 2);
    assert!(matches!(pair.lost(0)[..], [(LostReason::Ended { code: 0x8123, .. }, 1)]), "{:?}", pair.lost(0));
    assert_eq!(pair.lost(1), [(LostReason::Restarted, 0)]);
    assert_eq!(pair.ends[1].peer_at(addr(0)), None);
}

crate::ways::tests! { plain sealed => {
    what_was_said_before_the_proof_is_told_with_it_and_once,
    a_recorded_beginning_tells_the_application_nothing,
    of_many_rates_in_a_row_the_last_is_told,
    whoever_ends_a_session_before_the_proof_acknowledges_nothing,
    a_first_flight_that_is_lost_whole_is_repeated_as_soon_as_the_answer_lets_expect,
    those_that_open_at_once_do_not_ask_again_at_once,
    a_first_of_an_earlier_session_costs_the_later_one_nothing,
    whoever_vanished_before_the_proof_makes_room_once_it_had_its_time,
    who_is_not_let_in_hears_of_each_message,
    whom_the_application_has_connected_to_is_let_in,
    whoever_came_anew_and_is_not_let_in_ends_its_session_of_before,
}}
