//! How sessions end: in order, at once, by silence; and what is not taken for an end.

use crate::common::content;
use crate::net::{self, Pair, SECOND};
use crate::ways;
use bytes::Bytes;
use core::time::Duration;
use denrei_proto::{ChannelId, Completion, Config, Event, LostReason, SendError};
use denrei_wire::TransmitBuf;
use denrei_wire::packet::Kind;

fn a_killed_peer_is_noticed_and_its_successor_is_another() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "before");
    pair.run(SECOND);
    pair.restart(1, Config::default());
    pair.send(0, peer, 0, "into the void");
    pair.run(SECOND);
    // That nobody knows the session is believed where nothing is sealed, and found out otherwise.
    let is_sealed = ways::secured(Config::default()).cluster_key.is_some();
    let reason = if is_sealed { LostReason::Restarted } else { LostReason::Forgotten };
    assert_eq!(pair.lost(0), [(reason, 1)]);
    let again = pair.connect(0);
    assert_ne!(again, peer);
    pair.send(0, again, 0, "after");
    pair.run(SECOND);
    let data: Vec<_> = pair.received[1].iter().map(|message| message.data.clone()).collect();
    assert_eq!(data, ["before", "after"]);
    assert!(matches!(
        pair.ends[0].send(ChannelId { peer, channel: 0 }, Bytes::new(), Completion::None),
        Err(SendError::UnknownPeer(_) | SendError::PeerLost { .. })
    ));
}

/// The FIRST of one that was killed before it had an answer, or a recording of it, kept who is there now from being asked.
fn a_killed_peer_is_noticed_though_another_came_and_went_meanwhile() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.restart(1, Config::default());
    pair.connect(1);
    pair.drain(1);
    pair.restart(1, Config::default());
    pair.run(SECOND);
    pair.send(0, peer, 0, "into the void");
    pair.run(4 * SECOND);
    assert!(
        matches!(pair.lost(0)[..], [(LostReason::Restarted | LostReason::Forgotten, 1)]),
        "{:?}",
        pair.lost(0)
    );
}

fn a_restarted_peer_that_speaks_first_replaces_its_predecessor() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "before");
    pair.run(SECOND);
    pair.restart(1, Config::default());
    let back = pair.connect(1);
    pair.send(1, back, 0, "I am back");
    pair.run(SECOND);
    assert_eq!(pair.lost(0), [(LostReason::Restarted, 0)]);
    assert_eq!(pair.received[0][0].data, "I am back");
}

/// A pair with a session, cut in two, of which the first asks in vain.
fn asking_in_vain() -> Pair {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.connected = false;
    pair.send(0, peer, 0, "anybody there?");
    pair
}

fn silence_is_noticed_in_the_stated_time() {
    let mut pair = asking_in_vain();
    pair.run(19 * SECOND);
    assert_eq!(pair.lost(0), []);
    pair.run(2 * SECOND);
    assert_eq!(pair.lost(0), [(LostReason::TimedOut, 1)]);
    pair.run(10 * SECOND);
    assert_eq!(pair.lost(1), [(LostReason::TimedOut, 0)], "by its own keepalive");
}

/// Its process did not run, or its application did not call: nobody has asked the peer again.
fn who_did_nothing_for_long_does_not_take_it_for_the_peers_silence() {
    for opens in [true, false] {
        let mut pair = Pair::new(Config::default());
        let peer = pair.connect(0);
        if !opens {
            pair.send(0, peer, 0, "hello");
            pair.run(SECOND);
        }
        pair.connected = false;
        pair.send(0, peer, 0, "lost on the way");
        pair.drain(0);
        pair.connected = true;
        pair.now += 30 * SECOND;
        pair.run(SECOND);
        assert_eq!(pair.lost(0), []);
        assert_eq!(pair.received[1].last().unwrap().data, "lost on the way");
    }
}

fn who_looks_seldom_misses_a_silent_peer_as_well() {
    for pause in [4, 60] {
        let mut pair = asking_in_vain();
        let mut looks = 0;
        while pair.lost(0).is_empty() {
            pair.drain(0);
            pair.now += pause * SECOND;
            pair.ends[0].handle_timeout(pair.now);
            pair.drain(0);
            looks += 1;
        }
        assert!((6..=9).contains(&looks), "{looks} looks, one each {pause} s");
    }
}

/// What it carries no longer is found out, and whether something smaller gets through; a driver may tell the time twice
/// before it sends.
fn silence_is_noticed_in_that_time_though_the_path_is_looked_into() {
    let mut pair = Pair::new(Config { max_datagram_bytes: 1472, ..Config::default() });
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 50_000));
    pair.run(SECOND);
    pair.connected = false;
    let begun = pair.now;
    pair.send(0, peer, 0, content(1, 2_000));
    while pair.lost(0).is_empty() {
        pair.drain(0);
        pair.now = pair.ends[0].poll_timeout().unwrap();
        pair.ends[0].handle_timeout(pair.now);
        pair.ends[0].handle_timeout(pair.now);
        pair.drain(0);
    }
    assert_eq!(pair.now - begun, 20 * SECOND);
}

/// For so long somebody says, in the name of the second's host, that nobody is at its port.
fn refused_for(pair: &mut Pair, time: Duration) {
    let until = pair.now + time;
    while pair.now < until {
        pair.ends[0].handle_refused(pair.now, net::addr(1));
        pair.run(Duration::from_millis(10));
    }
}

fn who_is_silent_and_whose_host_refuses_what_is_sent_is_gone_soon() {
    let mut pair = asking_in_vain();
    refused_for(&mut pair, SECOND);
    assert_eq!(pair.lost(0), []);
    assert_eq!(pair.ends[0].poll_silent().map(|way| way.to), Some(net::addr(1)));
    refused_for(&mut pair, SECOND);
    assert_eq!(pair.lost(0), [(LostReason::Gone, 1)]);
    assert!(!pair.ends[0].handle_refused(pair.now, net::addr(1)));
}

/// Anybody can say it.
fn a_peer_that_answers_is_not_gone_whoever_says_so() {
    let (mut pair, peer) = Pair::met(Config::default());
    refused_for(&mut pair, 10 * SECOND);
    pair.send(0, peer, 0, content(0, 10_000));
    refused_for(&mut pair, 10 * SECOND);
    assert_eq!((pair.lost(0), pair.received[1].last().unwrap().data.len()), (Vec::new(), 10_000));
    // Nor one that is cut off while nobody says so any more.
    pair.connected = false;
    refused_for(&mut pair, SECOND / 2);
    pair.run(10 * SECOND);
    pair.connected = true;
    pair.run(SECOND);
    assert_eq!(pair.lost(0), []);
}

/// Whoever did nothing for a while has not asked the peer in it.
fn a_peer_is_not_gone_that_was_not_asked_again() {
    let (mut pair, _) = Pair::met(Config::default());
    for _ in 0..10 {
        pair.ends[0].handle_refused(pair.now, net::addr(1));
    }
    pair.now += 5 * SECOND;
    for _ in 0..10 {
        pair.ends[0].handle_refused(pair.now, net::addr(1));
    }
    pair.run(SECOND);
    assert_eq!(pair.lost(0), []);
}

fn a_peer_whose_end_was_lost_is_found_to_be_gone_by_asking() {
    let (mut pair, _) = Pair::met(Config::default());
    pair.connected = false;
    let back = pair.ends[1].peers().next().unwrap();
    pair.ends[1].abort(pair.now, back, 7, "nobody hears this").unwrap();
    pair.run(SECOND);
    pair.connected = true;
    // Its keepalive comes after five seconds, and patience ends after twenty.
    pair.run(6 * SECOND);
    assert_eq!(pair.lost(0), [(LostReason::Forgotten, 0)]);
}

fn an_outage_shorter_than_that_loses_nothing() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 100_000));
    pair.run(SECOND);
    pair.connected = false;
    pair.send(0, peer, 0, content(1, 100_000));
    pair.run(10 * SECOND);
    pair.connected = true;
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 2, "within a second after the outage");
    assert_eq!(pair.lost(0), []);
}

fn nobody_at_the_address_is_said_so() {
    let mut pair = Pair::new(Config::default());
    pair.connected = false;
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "hello?");
    pair.run(21 * SECOND);
    assert_eq!(pair.lost(0), [(LostReason::NoAnswer, 1)]);
}

fn closing_in_order_delivers_everything_first() {
    let mut pair = Pair::new(Config::default());
    pair.lose = |order| order % 5 == 1;
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 2_000_000));
    pair.ends[0].close_write(pair.now, peer).unwrap();
    let refused = pair.ends[0].send(ChannelId { peer, channel: 0 }, Bytes::new(), Completion::None);
    assert_eq!(refused, Err(SendError::WriteClosed(peer)));
    pair.run(5 * SECOND);
    assert_eq!(pair.received[1].len(), 1);
    let back = pair.received[1][0].channel.peer;
    assert!(pair.events[1].contains(&Event::PeerDoneWriting(back)));
    pair.send(1, back, 0, "one side done writing, the other not");
    pair.run(SECOND);
    assert_eq!(pair.received[0].len(), 1);
    pair.ends[1].close_write(pair.now, back).unwrap();
    pair.run(5 * SECOND);
    assert_eq!(pair.lost(0), [(LostReason::Closed, 0)]);
    assert_eq!(pair.lost(1), [(LostReason::Closed, 0)]);
    assert_eq!(pair.ends[0].peers().count() + pair.ends[1].peers().count(), 0);
}

fn close_flushes_and_abort_does_not() {
    let mut pair = Pair::new(Config::default());
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(0, 300_000));
    pair.ends[0].close(pair.now, peer).unwrap();
    pair.run(SECOND);
    assert_eq!((pair.received[1].len(), pair.lost(0)), (1, vec![(LostReason::Closed, 0)]));
    assert!(matches!(pair.lost(1)[..], [(LostReason::Ended { code: 0, .. }, 0)]));
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "x");
    pair.run(SECOND);
    pair.send(0, peer, 0, content(0, 3_000_000));
    pair.ends[0].abort(pair.now, peer, 0x8001, "out of patience").unwrap();
    pair.run(SECOND);
    assert_eq!(pair.lost(0)[1], (LostReason::Aborted, 1));
    let ended = LostReason::Ended { code: 0x8001, reason: "out of patience".into() };
    assert_eq!(pair.lost(1)[1], (ended, 0));
}

fn done_reading_drops_what_is_queued_and_says_so() {
    let mut pair = Pair::new(Config { send_buffer_bytes: 64 << 20, ..Config::default() });
    let peer = pair.connect(0);
    pair.reading[1] = false;
    for number in 0..20 {
        pair.send(0, peer, 0, content(number, 900_000));
    }
    pair.run(SECOND);
    let back = pair.ends[1].peers().next().unwrap();
    pair.ends[1].close_read(pair.now, back).unwrap();
    pair.run(SECOND);
    let dropped = pair.events[0].iter().find_map(|event| match event {
        Event::PeerDoneReading { unacknowledged, .. } => Some(unacknowledged.len()),
        _ => None,
    });
    assert_eq!(dropped, Some(20 - pair.acknowledged(0)));
    assert_eq!(pair.ends[1].flow(back).unwrap().unread_bytes, 0);
    let refused = pair.ends[0].send(ChannelId { peer, channel: 0 }, Bytes::new(), Completion::None);
    assert_eq!(refused, Err(SendError::PeerDoneReading(peer)));
}

fn what_was_on_its_way_when_the_other_side_was_done_reading_may_come_after_close_write() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.tapped.clear();
    pair.connected = false;
    pair.send(0, peer, 0, "late");
    pair.drain(0);
    let late = pair.tapped(1, Kind::Session);
    assert_eq!(late.len(), 1);
    pair.connected = true;
    let back = pair.ends[1].peers().next().unwrap();
    pair.ends[1].close_read(pair.now, back).unwrap();
    pair.ends[0].close_write(pair.now, peer).unwrap();
    pair.drain(1);
    pair.run(SECOND);
    assert!(pair.events[1].contains(&Event::PeerDoneWriting(back)));
    pair.inject(1, &late[0]);
    pair.send(1, back, 0, "still here");
    pair.run(SECOND);
    assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
    assert_eq!((pair.received[0].len(), pair.received[1].len()), (1, 1));
}

/// They are there, and nobody is handed them: who sends again what may be lost would never send these.
fn what_follows_a_lost_message_on_its_channel_may_be_lost_unless_it_was_reported() {
    let (mut pair, peer) = Pair::met(Config::default());
    let on = |channel| ChannelId { peer, channel };
    pair.connected = false;
    pair.ends[0].send(on(0), "lost".into(), Completion::None).unwrap();
    pair.drain(0);
    pair.connected = true;
    for (channel, completion) in [
        (0, Completion::None),
        (0, Completion::Acknowledged),
        (0, Completion::Delivered),
        (1, Completion::None),
    ] {
        pair.ends[0].send(on(channel), "there".into(), completion).unwrap();
    }
    let before = pair.acknowledged(0);
    while pair.acknowledged(0) == before {
        pair.run(net::DELAY / 16);
    }
    pair.ends[0].abort(pair.now, peer, 7, "out of patience").unwrap();
    pair.drain(0);
    let lost = pair.events[0].iter().find_map(|event| match event {
        Event::PeerLost { unacknowledged, .. } => Some(unacknowledged.clone()),
        _ => None,
    });
    let numbers = lost.unwrap().into_iter().map(|id| (id.channel.channel, id.number));
    assert_eq!(numbers.collect::<Vec<_>>(), [(0, 1), (0, 2), (0, 4)], "after the first of all");
    let had: Vec<u16> = pair.received[1].iter().map(|message| message.channel.channel).collect();
    assert_eq!(had, [0, 1], "the first of all, and that of the other channel");
}

/// Who has nothing to say would hear of a session that it does not have any more, and not why; of a process that is
/// gone it would hear nothing.
fn an_end_is_heard_although_one_packet_is_lost() {
    let (mut pair, _) = Pair::met(Config::default());
    let back = pair.ends[1].peers().next().unwrap();
    pair.ends[1].abort(pair.now, back, 7, "out of patience").unwrap();
    assert!(pair.ends[1].poll_transmit(pair.now, &mut TransmitBuf::new(1)).is_some());
    pair.drain(1);
    pair.restart(1, Config::default());
    pair.run(SECOND / 1000);
    assert_eq!(pair.lost(0), [(LostReason::Ended { code: 7, reason: "out of patience".into() }, 0)]);
    pair.run(SECOND);
    let reset = pair.tapped(1, Kind::Reset);
    assert!(reset.is_empty(), "what says it once more is no strange packet");
}

/// Who ends a session as soon as it has received something has received it all the same.
fn an_end_acknowledges_what_was_received() {
    let (mut pair, peer) = Pair::met(Config::default());
    let back = pair.ends[1].peers().next().unwrap();
    let before = pair.received[1].len();
    pair.send(0, peer, 0, "the last word");
    while pair.received[1].len() == before {
        pair.run(net::DELAY / 16);
    }
    pair.ends[1].abort(pair.now, back, 7, "out of patience").unwrap();
    pair.run(SECOND);
    assert_eq!(pair.lost(0), [(LostReason::Ended { code: 7, reason: "out of patience".into() }, 0)]);
}

fn sides_that_end_at_once_do_not_tell_each_other_again_and_again() {
    let (mut pair, peer) = Pair::met(Config::default());
    let back = pair.ends[1].peers().next().unwrap();
    let before = pair.tapped.len();
    pair.ends[0].abort(pair.now, peer, 7, "out of patience").unwrap();
    pair.ends[1].abort(pair.now, back, 7, "out of patience").unwrap();
    pair.run(SECOND);
    assert_eq!(pair.tapped.len() - before, 4);
}

/// A process that is held up, or whose kernel has no room, tells the time before it sends.
fn an_end_that_could_not_leave_for_long_is_said_all_the_same() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.ends[0].abort(pair.now, peer, 7, "out of patience").unwrap();
    for _ in 0..5 {
        pair.now += SECOND;
        let now = pair.now;
        pair.ends[0].handle_timeout(now);
        assert!(pair.ends[0].poll_timeout().is_none_or(|due| due > now), "nothing is due again and again");
    }
    pair.run(SECOND / 10);
    let ended = LostReason::Ended { code: 7, reason: "out of patience".to_owned() };
    assert_eq!(pair.lost(1), [(ended, 0)]);
    pair.run(SECOND);
    assert_eq!(pair.ends[0].peers().count(), 0, "it is forgotten then");
}

/// A driver may tell the time again and again before it sends.
fn a_probe_that_has_not_left_is_not_fired_again() {
    let mut pair = Pair::new(Config { max_datagram_bytes: 1472, ..Config::default() });
    let peer = pair.connect(0);
    pair.run(SECOND);
    pair.send(0, peer, 0, content(0, 10_000));
    pair.drain(0);
    let counters = |pair: &Pair| pair.ends[0].flow(peer).unwrap().counters;
    let before = counters(&pair);
    pair.now += 2 * SECOND;
    let now = pair.now;
    (0..5).for_each(|_| pair.ends[0].handle_timeout(now));
    assert_eq!(counters(&pair).probes, before.probes + 1);
    pair.run(SECOND);
    assert_eq!((pair.received[1].len(), pair.acknowledged(0)), (1, 1));
}

crate::ways::tests! { plain sealed staged => {
    a_killed_peer_is_noticed_and_its_successor_is_another,
    a_killed_peer_is_noticed_though_another_came_and_went_meanwhile,
    a_restarted_peer_that_speaks_first_replaces_its_predecessor,
    silence_is_noticed_in_the_stated_time,
    who_did_nothing_for_long_does_not_take_it_for_the_peers_silence,
    who_looks_seldom_misses_a_silent_peer_as_well,
    silence_is_noticed_in_that_time_though_the_path_is_looked_into,
    who_is_silent_and_whose_host_refuses_what_is_sent_is_gone_soon,
    a_peer_that_answers_is_not_gone_whoever_says_so,
    a_peer_is_not_gone_that_was_not_asked_again,
    a_peer_whose_end_was_lost_is_found_to_be_gone_by_asking,
    an_outage_shorter_than_that_loses_nothing,
    nobody_at_the_address_is_said_so,
    closing_in_order_delivers_everything_first,
    close_flushes_and_abort_does_not,
    done_reading_drops_what_is_queued_and_says_so,
    what_was_on_its_way_when_the_other_side_was_done_reading_may_come_after_close_write,
    what_follows_a_lost_message_on_its_channel_may_be_lost_unless_it_was_reported,
    an_end_is_heard_although_one_packet_is_lost,
    an_end_acknowledges_what_was_received,
    sides_that_end_at_once_do_not_tell_each_other_again_and_again,
    an_end_that_could_not_leave_for_long_is_said_all_the_same,
    a_probe_that_has_not_left_is_not_fired_again,
}}
