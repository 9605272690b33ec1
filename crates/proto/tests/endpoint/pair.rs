//! Two endpoints and a link in memory: the behaviours that everything else builds on.

use crate::common::content;
use crate::net::{Pair, SECOND, addr};
use crate::ways;
use bytes::Bytes;
use denrei_proto::{ChannelId, Completion, Config, Event, OfferPolicy, SendError};
use denrei_wire::packet::{self, Kind};
use denrei_wire::{DatagramMeta, Ecn, PacketNumber, Token, TransmitBuf};
use std::time::Duration;

fn messages_of_all_sizes_arrive_whole_once_and_in_order() {
    for lose in
        [|_| false, |order| order % 7 == 3, |order: u64| order.wrapping_mul(0x9e37_79b9).is_multiple_of(5)]
    {
        let mut pair = Pair::new(Config::default());
        pair.lose = lose;
        let peer = pair.connect(0);
        let sizes = [0, 1, 100, 1199, 1200, 5000, 70_000, 1 << 20, 3 << 20, 0, 17];
        for (number, &len) in sizes.iter().enumerate() {
            pair.send(0, peer, 3, content(number, len));
        }
        pair.run(18 * SECOND);
        assert_eq!(pair.received[1].len(), sizes.len());
        for (number, (message, &len)) in pair.received[1].iter().zip(&sizes).enumerate() {
            assert_eq!((message.number, message.data.len()), (number as u64, len));
            assert_eq!(message.data, content(number, len));
        }
        assert_eq!(pair.acknowledged(0), sizes.len());
        let flow = pair.ends[0].flow(peer).unwrap();
        assert_eq!((flow.queued_messages, flow.queued_bytes, flow.in_flight_bytes), (0, 0, 0));
        assert_eq!(pair.lost(0), []);
        assert_eq!(
            pair.lent > 0,
            !ways::is_sealed(),
            "what is sealed is copied, large plain packets are not"
        );
    }
}

fn both_may_connect_at_once() {
    let mut pair = Pair::new(Config::default());
    let peers = [pair.connect(0), pair.connect(1)];
    for number in 0..10 {
        for (end, peer) in peers.into_iter().enumerate() {
            pair.send(end, peer, 0, content(number, 500));
        }
    }
    pair.run(SECOND);
    for (end, peer) in peers.into_iter().enumerate() {
        let data: Vec<_> = pair.received[end].iter().map(|message| message.data.clone()).collect();
        assert_eq!(data, (0..10).map(|number| Bytes::from(content(number, 500))).collect::<Vec<_>>());
        assert!(pair.received[end].iter().all(|message| message.channel.peer == peer));
        assert_eq!(pair.ends[end].peers().count(), 1);
    }
}

fn an_answer_flows_back_on_the_same_session() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "question");
    pair.run(SECOND / 10);
    let back = pair.received[1][0].channel;
    pair.send(1, back.peer, 0, "answer");
    pair.run(SECOND / 10);
    assert_eq!(pair.received[0][0].data, "answer");
    assert_eq!(pair.received[0][0].channel.peer, peer);
}

/// Of a thousand whose acknowledgements are due at once, each would else be looked at for each that is sent.
fn an_acknowledgement_that_is_due_and_in_line_needs_no_timer() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.send(0, peer, 0, "is heard, and not answered");
    pair.drain(0);
    pair.under_way.clear();
    let (_, mut sent) = pair.tapped.pop().expect("it was sent");
    let meta = DatagramMeta { from: addr(0), at: None, ecn: Ecn::NotEct };
    pair.ends[1].handle_datagram(pair.now, &meta, &mut sent);
    pair.now = pair.ends[1].poll_timeout().expect("it is acknowledged in time");
    pair.ends[1].handle_timeout(pair.now);
    assert!(pair.ends[1].wants_transmit());
    assert!(pair.ends[1].poll_timeout().is_none_or(|next| next > pair.now), "looked at again at once");
    pair.run(SECOND);
    assert_eq!(pair.acknowledged(0), 2);
}

fn acknowledgements_wait_for_answers_that_come_a_little_late() {
    const MS: Duration = Duration::from_millis(1);
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.run(SECOND);
    let back = pair.ends[1].peers().next().unwrap();
    let packets = |pair: &Pair| {
        pair.ends[0].flow(peer).unwrap().counters.packets_sent
            + pair.ends[1].flow(back).unwrap().counters.packets_sent
    };
    let exchange = |pair: &mut Pair, number: usize| {
        pair.ends[0]
            .send(ChannelId { peer, channel: 0 }, content(number, 100).into(), Completion::None)
            .unwrap();
        pair.run(4 * MS);
        pair.ends[1]
            .send(ChannelId { peer: back, channel: 0 }, content(number, 100).into(), Completion::None)
            .unwrap();
        pair.run(MS);
    };
    // It takes a few to learn that answers come, and how late.
    (0..50).for_each(|number| exchange(&mut pair, number));
    let before = packets(&pair);
    (50..150).for_each(|number| exchange(&mut pair, number));
    let each = (packets(&pair) - before) as f64 / 100.0;
    assert!(each <= 2.1, "{each} packets an exchange, two of which have messages");
    assert_eq!((pair.received[0].len(), pair.received[1].len()), (150, 150));
}

fn a_reader_that_stops_stops_its_sender_and_only_on_that_channel() {
    let mut pair = Pair::new(Config { send_buffer_bytes: 64 << 20, ..Config::default() });
    let peer = pair.connect(0);
    pair.reading[1] = false;
    for number in 0..40 {
        pair.send(0, peer, 0, content(number, 500_000));
    }
    pair.run(SECOND);
    let unread = pair.ends[1].flow(pair.ends[1].peers().next().unwrap()).unwrap().unread_bytes;
    assert!(unread <= 4 << 20, "{unread} bytes wait");
    pair.send(0, peer, 1, "on another channel");
    pair.run(SECOND);
    let back = pair.ends[1].peers().next().unwrap();
    let other = pair.ends[1].recv_from(pair.now, ChannelId { peer: back, channel: 1 }).unwrap();
    assert_eq!(other.data, "on another channel");
    pair.reading[1] = true;
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 40);
}

/// In inline drive a Node does nothing between its application's calls; and where hundreds of processes begin at
/// once on few cores, each waits for its turn.
fn an_initiator_that_is_busy_before_it_looks_at_the_answer_loses_nothing() {
    for (speaks_first, others) in [(false, 0), (true, 0), (false, 200)] {
        let mut pair = Pair::new(Config::default());
        pair.open_from_others(others);
        let peer = pair.connect(0);
        pair.send(0, peer, 0, "before");
        pair.run(Duration::from_micros(60));
        let answer = std::mem::take(&mut pair.under_way);
        assert_eq!(answer.len(), 1);
        for _ in 0..100 {
            pair.now += SECOND / 10;
            let now = pair.now;
            pair.ends[1].handle_timeout(now);
        }
        if speaks_first {
            pair.send(0, peer, 0, "after");
            pair.drain(0);
        }
        pair.under_way.extend(answer);
        pair.run(SECOND);
        assert_eq!(pair.lost(0), []);
        assert_eq!(pair.received[1].len(), 1 + usize::from(speaks_first));
    }
}

fn a_session_whose_initiator_is_gone_is_adopted_and_begins_anew() {
    let mut pair = Pair::new(Config { failure_timeout: SECOND, keepalive: None, ..Config::default() });
    let given_up = pair.connect(0);
    pair.send(0, given_up, 0, "never mind");
    // The FIRST has arrived, and nothing else does for longer than a proven session would live.
    pair.run(Duration::from_micros(60));
    pair.connected = false;
    pair.under_way.clear();
    pair.ends[0].abort(pair.now, given_up, 7, "changed its mind").unwrap();
    pair.run(2 * SECOND);
    pair.connected = true;
    let adopted = pair.connect(1);
    pair.send(1, adopted, 0, "hello");
    // Somebody off the path says that the session is not known, but not by which name.
    let guess = packet::common_header(Kind::Reset, 0, PacketNumber(0), Token(77)).to_vec();
    let sum = denrei_wire::checksum::crc32c(&guess).to_le_bytes();
    pair.inject(1, &[&guess[..], &sum].concat());
    assert_eq!(pair.tapped(0, Kind::First).len(), 0, "it still stands");
    pair.run(SECOND);
    assert!(!pair.tapped(0, Kind::First).is_empty(), "it began anew");
    assert_eq!((pair.received[0].len(), pair.received[1].len()), (1, 0));
    assert_eq!(pair.lost(1), []);
}

fn offers_wait_for_the_applications_word() {
    let mut pair = Pair::new(Config { offers: OfferPolicy::Ask, ..Config::default() });
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 5_000_000));
    pair.send(0, peer, 0, "behind it");
    pair.send(0, peer, 0, content(2, 2_000_000));
    pair.run(SECOND);
    let offers: Vec<_> = pair.events[1]
        .iter()
        .filter_map(|event| match *event {
            Event::Offered { channel, number, bytes } => Some((channel, number, bytes)),
            _ => None,
        })
        .collect();
    assert_eq!(offers.iter().map(|o| (o.1, o.2)).collect::<Vec<_>>(), [(0, 5_000_000), (2, 2_000_000)]);
    assert_eq!(pair.received[1].len(), 1, "what is small does not wait for what is large");
    let posted = Vec::with_capacity(5_000_000);
    let place = posted.as_ptr();
    pair.ends[1].accept(pair.now, offers[0].0, 0, posted).unwrap();
    pair.ends[1].refuse(pair.now, offers[1].0, 2).unwrap();
    pair.run(SECOND);
    assert_eq!(pair.received[1][1].data, content(0, 5_000_000));
    assert_eq!(pair.received[1][1].data.as_ptr(), place, "placed once, into the posted buffer");
    assert!(pair.events[0].iter().any(|event| matches!(event, Event::Refused(id) if id.number == 2)));
    assert!(pair.ends[1].accept(pair.now, offers[0].0, 0, Vec::new()).is_err());
}

fn the_end_of_what_was_accepted_is_acknowledged_at_once() {
    const BYTES: usize = 30_000;
    let mut pair = Pair::new(Config { offer_above_bytes: BYTES as u64 - 1, ..Config::default() });
    let peer = pair.connect(0);
    for _ in 0..2 {
        // The second time, the path's size is known, and nothing else asks.
        pair.send(0, peer, 0, content(0, 10 * BYTES));
        pair.run(SECOND);
    }
    let acknowledged = pair.acknowledged(0);
    pair.send(0, peer, 0, content(0, BYTES));
    // Offer and acceptance, the message and its acknowledgement.
    pair.run(Duration::from_micros(250));
    assert_eq!(pair.acknowledged(0), acknowledged + 1, "a receiver holds it back for a millisecond");
}

fn delivery_is_reported_when_the_application_takes_the_message() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.reading[1] = false;
    let to = ChannelId { peer, channel: 9 };
    let id = pair.ends[0].send(to, "important".into(), Completion::Delivered).unwrap();
    pair.run(SECOND);
    assert!(!pair.events[0].contains(&Event::Delivered(id)));
    let request = pair.ends[0].request_status(pair.now, peer).unwrap();
    pair.run(SECOND);
    assert!(pair.events[0].contains(&Event::Status {
        peer,
        request,
        buffered_bytes: 9,
        buffered_messages: 1
    }));
    pair.reading[1] = true;
    pair.run(SECOND);
    assert!(pair.events[0].contains(&Event::Delivered(id)));
}

fn an_urgent_channel_overtakes_bulk() {
    let mut pair = Pair::new(Config { send_buffer_bytes: 64 << 20, ..Config::default() });
    let peer = pair.connect(0);
    for number in 0..20 {
        pair.send(0, peer, 0, content(number, 1_000_000));
    }
    pair.ends[0].set_priority(ChannelId { peer, channel: 1 }, 0).unwrap();
    let beyond = pair.ends[0].set_priority(ChannelId { peer, channel: 1 }, 8).unwrap_err();
    assert_eq!(beyond.to_string(), "priority is 8, but has to be between 0 (most urgent) and 7");
    pair.run(Duration::from_micros(300));
    pair.send(0, peer, 1, "urgent");
    pair.run(10 * SECOND);
    let place = pair.received[1].iter().position(|message| message.channel.channel == 1).unwrap();
    assert!(place < 6, "came as number {place}");
}

fn the_limits_of_the_receiver_are_known_after_the_first_answer() {
    let mut pair = Pair::new(Config { max_message_bytes: 2_000_000, ..Config::default() });
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 2_000_001));
    pair.run(SECOND);
    assert!(pair.events[0].iter().any(|event| matches!(event, Event::Refused(id) if id.number == 0)));
    let to = ChannelId { peer, channel: 0 };
    let refused = pair.ends[0].send(to, Bytes::from(vec![0; 2_000_001]), Completion::None);
    assert_eq!(refused, Err(SendError::TooLarge { bytes: 2_000_001, max: 2_000_000 }));
    let nowhere = ChannelId { peer, channel: 1024 };
    let refused = pair.ends[0].send(nowhere, Bytes::new(), Completion::None);
    assert_eq!(refused, Err(SendError::NoSuchChannel { channel: 1024, last: 1023 }));
}

fn what_waited_for_credit_is_held_against_the_limit_too() {
    let mut pair = Pair::new(Config { max_message_bytes: 1_000, ..Config::default() });
    let peer = pair.connect(0);
    // The first may travel before the other side has said anything, the second may not, and is not large
    // enough to be offered for that.
    for (number, bytes) in [(0, 60_000), (1, 500_000), (2, 1_000)] {
        pair.send(0, peer, 0, content(number, bytes));
    }
    pair.run(SECOND);
    let arrived: Vec<_> =
        pair.received[1].iter().map(|message| (message.number, message.data.len())).collect();
    assert_eq!(arrived, [(0, 60_000), (2, 1_000)]);
    assert!(pair.events[0].iter().any(|event| matches!(event, Event::Refused(id) if id.number == 1)));
}

fn damaged_and_foreign_datagrams_change_nothing() {
    let (mut pair, peer) = Pair::met(Config::default());
    let meta = DatagramMeta { from: addr(0), at: None, ecn: Ecn::NotEct };
    let mut buf = TransmitBuf::new(1);
    pair.send(0, peer, 0, "second");
    let transmit = pair.ends[0].poll_transmit(pair.now, &mut buf).unwrap();
    assert_eq!(transmit.to, addr(1));
    for byte in 0..buf.len() {
        let mut damaged = buf.bytes().to_vec();
        damaged[byte] ^= 0x10;
        pair.ends[1].handle_datagram(pair.now, &meta, &mut damaged);
        let mut cut = buf.bytes()[..byte].to_vec();
        pair.ends[1].handle_datagram(pair.now, &meta, &mut cut);
    }
    let mut whole = buf.bytes().to_vec();
    let stranger = DatagramMeta { from: "10.9.9.9:1".parse().unwrap(), ..meta };
    pair.ends[1].handle_datagram(pair.now, &stranger, &mut whole);
    pair.run(Duration::from_micros(10));
    assert_eq!(pair.received[1].len(), 1);
    for _ in 0..3 {
        pair.ends[1].handle_datagram(pair.now, &meta, &mut whole);
    }
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 2, "and once only");
    assert_eq!(pair.lost(0).len() + pair.lost(1).len(), 0);
    assert!(pair.ends[1].counters().corrupted > 0 && pair.ends[1].counters().malformed > 0);
}

fn a_send_buffer_that_is_full_says_so() {
    let mut pair = Pair::new(Config { send_buffer_bytes: 100_000, ..Config::default() });
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 500_000));
    let to = ChannelId { peer, channel: 0 };
    let refused = pair.ends[0].send(to, Bytes::from_static(b"x"), Completion::None);
    assert!(matches!(refused, Err(SendError::WouldBlock { queued_bytes: 500_064, .. })), "{refused:?}");
    pair.run(SECOND);
    pair.send(0, peer, 0, "x");
}

fn a_send_buffer_that_is_half_empty_takes_a_message_of_any_size() {
    let mut pair = Pair::new(Config { send_buffer_bytes: 100_000, ..Config::default() });
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 40_000));
    assert_eq!(pair.ends[0].has_room(peer, 5_000_000), Ok(true));
    pair.send(0, peer, 1, content(1, 5_000_000));
    assert_eq!(pair.ends[0].has_room(peer, 1), Ok(false));
    pair.run(SECOND);
    pair.send(0, peer, 0, content(2, 60_000));
    assert_eq!(
        (pair.ends[0].has_room(peer, 39_936), pair.ends[0].has_room(peer, 39_937)),
        (Ok(true), Ok(false))
    );
    let to = ChannelId { peer, channel: 1 };
    let refused = pair.ends[0].send(to, content(3, 60_000).into(), Completion::None);
    assert!(matches!(refused, Err(SendError::WouldBlock { queued_bytes: 60_064, .. })), "{refused:?}");
}

fn whoever_finds_no_room_asks_at_once_how_far_the_receiver_is() {
    let config = Config { offers: OfferPolicy::Ask, send_buffer_bytes: 100_000, ..Config::default() };
    let mut pair = Pair::new(config);
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 5_000_000));
    pair.run(SECOND);
    assert!(!pair.ends[0].wants_transmit(), "the offer waits for an answer");
    let to = ChannelId { peer, channel: 0 };
    pair.ends[0].send(to, Bytes::from_static(b"x"), Completion::None).unwrap_err();
    assert!(pair.ends[0].wants_transmit());
}

/// The peer would hold others back for 50 ms; the one that asked for its acknowledgement at once was lost.
fn what_asked_for_an_answer_at_once_is_missed_soon() {
    let config = Config { max_ack_delay: Duration::from_millis(50), ..Config::default() };
    let (mut pair, peer) = Pair::met(config);
    for message in 2..10 {
        pair.send(0, peer, 0, "a word");
        pair.ends[0].hurry(pair.now, peer).unwrap();
        pair.connected = false;
        pair.drain(0);
        pair.connected = true;
        pair.run(Duration::from_millis(10));
        assert_eq!(pair.received[1].len(), message, "within 10 ms");
    }
}

crate::ways::tests! { plain sealed staged => {
    messages_of_all_sizes_arrive_whole_once_and_in_order,
    both_may_connect_at_once,
    an_answer_flows_back_on_the_same_session,
    an_acknowledgement_that_is_due_and_in_line_needs_no_timer,
    acknowledgements_wait_for_answers_that_come_a_little_late,
    a_reader_that_stops_stops_its_sender_and_only_on_that_channel,
    an_initiator_that_is_busy_before_it_looks_at_the_answer_loses_nothing,
    a_session_whose_initiator_is_gone_is_adopted_and_begins_anew,
    offers_wait_for_the_applications_word,
    the_end_of_what_was_accepted_is_acknowledged_at_once,
    delivery_is_reported_when_the_application_takes_the_message,
    an_urgent_channel_overtakes_bulk,
    the_limits_of_the_receiver_are_known_after_the_first_answer,
    what_waited_for_credit_is_held_against_the_limit_too,
    damaged_and_foreign_datagrams_change_nothing,
    a_send_buffer_that_is_full_says_so,
    a_send_buffer_that_is_half_empty_takes_a_message_of_any_size,
    whoever_finds_no_room_asks_at_once_how_far_the_receiver_is,
    what_asked_for_an_answer_at_once_is_missed_soon,
}}
