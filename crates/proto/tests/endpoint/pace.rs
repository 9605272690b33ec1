//! The pace that the receiver sets, between two endpoints.

use crate::common::content;
use crate::net::{Pair, SECOND};
use denrei_proto::{
    ChannelId, Completion, Config, CongestionAlgorithm, Event, LostReason, MAX_RATE, OfferPolicy, PeerError,
    PeerId, Rate,
};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A pair whose end 0 sends to end 1; end 0's name for end 1 and the other way round.
fn open(config: Config) -> (Pair, PeerId, PeerId) {
    let mut pair = Pair::new(config);
    let there = pair.connect(0);
    pair.run(5 * MS);
    let back = pair.ends[1].peers().next().expect("it has connected");
    (pair, there, back)
}

fn received_bytes(pair: &Pair) -> u64 {
    pair.received[1].iter().map(|message| message.data.len() as u64).sum()
}

fn the_receiver_sets_the_rate_and_the_mean_is_met() {
    let (mut pair, there, back) = open(Config::default());
    let rate = Rate { bytes_per_s: 1_000_000, burst_bytes: 14_540 };
    pair.ends[1].set_rate(pair.now, back, rate).unwrap();
    pair.run(MS);
    assert!(pair.events[0].contains(&Event::RateSet { peer: there, rate }));
    assert_eq!(pair.ends[0].flow(there).unwrap().rate, rate);
    assert_eq!(pair.ends[1].flow(back).unwrap().rate_set, Some(rate));
    for number in 0..500 {
        pair.send(0, there, 0, content(number, 10_000));
    }
    let began = pair.now;
    pair.run(2 * SECOND);
    let got = received_bytes(&pair);
    assert!(got.abs_diff(2_000_000) <= 20_000 + 14_540, "{got} bytes in 2 s at 1 MB/s");
    assert!(pair.now >= began + 2 * SECOND);
    pair.run(5 * SECOND);
    assert_eq!(received_bytes(&pair), 5_000_000, "all of it arrives in the end");
    assert_eq!(pair.ends[0].flow(there).unwrap().counters.probes, 0);
}

/// What nobody acknowledges tells that the path carries less than it did.
fn who_sends_into_silence_without_a_window_asks_nevertheless() {
    let (mut pair, there, back) =
        open(Config { congestion: CongestionAlgorithm::RateOnly, ..Config::default() });
    let rate = Rate { bytes_per_s: 10_000_000, burst_bytes: 14_540 };
    pair.ends[1].set_rate(pair.now, back, rate).unwrap();
    pair.run(MS);
    pair.send(0, there, 0, content(0, 2_000_000));
    pair.run(50 * MS);
    let counters = |pair: &Pair| pair.ends[0].flow(there).unwrap().counters;
    assert_eq!(counters(&pair).probes, 0);
    pair.connected = false;
    let before = counters(&pair).packets_sent;
    pair.run(50 * MS);
    let after = counters(&pair);
    assert!(after.packets_sent - before > 30, "{after:?}");
    assert!((2..8).contains(&after.probes), "{after:?}");
}

fn no_train_exceeds_the_burst_and_each_is_used_up() {
    let (mut pair, there, back) = open(Config::default());
    let rate = Rate { bytes_per_s: 10_000_000, burst_bytes: 20_000 };
    pair.ends[1].set_rate(pair.now, back, rate).unwrap();
    pair.run(MS);
    for number in 0..100 {
        pair.send(0, there, 0, content(number, 50_000));
    }
    // RTIMER is 2 ms.
    let before = pair.ends[0].flow(there).unwrap().counters.bytes_sent;
    pair.run(MS);
    let first = pair.ends[0].flow(there).unwrap().counters.bytes_sent - before;
    let headers = 200;
    assert!((20_000..20_000 + headers).contains(&first), "{first} octets in the first burst");
}

fn a_stopped_sender_still_answers_and_goes_on_when_told() {
    let (mut pair, there, back) = open(Config::default());
    pair.ends[1].set_rate(pair.now, back, Rate::STOPPED).unwrap();
    pair.run(MS);
    pair.send(0, there, 0, content(1, 100_000));
    let status = pair.ends[0].request_status(pair.now, there).unwrap();
    pair.run(30 * SECOND);
    assert_eq!(received_bytes(&pair), 0);
    assert!(pair.lost(0).is_empty() && pair.lost(1).is_empty(), "control goes on");
    assert!(
        pair.events[0]
            .iter()
            .any(|event| matches!(event, Event::Status { request, .. } if *request == status))
    );
    pair.ends[1].set_rate(pair.now, back, Rate::UNLIMITED).unwrap();
    pair.run(SECOND);
    assert_eq!(received_bytes(&pair), 100_000);
}

fn the_rate_is_kept_when_packets_are_lost_and_nothing_is() {
    let (mut pair, there, back) = open(Config::default());
    pair.lose = |number| number % 7 == 3;
    let rate = Rate { bytes_per_s: 2_000_000, burst_bytes: 10_000 };
    pair.ends[1].set_rate(pair.now, back, rate).unwrap();
    pair.run(100 * MS);
    for number in 0..40 {
        pair.send(0, there, 0, content(number, 50_000));
    }
    let before = received_bytes(&pair);
    pair.run(SECOND / 2);
    let got = received_bytes(&pair) - before;
    assert!((500_000..=1_010_000).contains(&got), "{got} bytes in 0.5 s at 2 MB/s less repetitions");
    pair.run(5 * SECOND);
    assert_eq!(received_bytes(&pair), 2_000_000);
}

fn a_wish_holds_until_the_receiver_decides() {
    let wish = Rate { bytes_per_s: 1_000_000, burst_bytes: 5_000 };
    let (mut pair, there, back) = open(Config { rate_request: wish, ..Config::default() });
    assert_eq!(pair.ends[0].flow(there).unwrap().rate, wish);
    let seen = pair.ends[1].flow(back).unwrap();
    assert_eq!((seen.rate_requested, seen.rate_set), (wish, None));
    pair.send(0, there, 0, content(1, 1_000_000));
    pair.run(SECOND / 2);
    assert_eq!(received_bytes(&pair), 0, "half of it is on its way");
    pair.ends[1].set_rate(pair.now, back, Rate::UNLIMITED).unwrap();
    pair.run(SECOND / 10);
    assert_eq!(received_bytes(&pair), 1_000_000);
}

fn impossible_rates_are_refused_with_the_range() {
    let (mut pair, _, back) = open(Config::default());
    let beyond = Rate { bytes_per_s: MAX_RATE + 1, burst_bytes: 1 };
    let error = pair.ends[1].set_rate(pair.now, back, beyond).unwrap_err();
    assert_eq!(error, PeerError::BadRate { setting: "bytes_per_s", value: MAX_RATE + 1 });
    assert!(error.to_string().contains("at most 1125899906842624"), "{error}");
    let config =
        Config { rate_request: Rate { burst_bytes: u64::MAX, ..Rate::STOPPED }, ..Config::default() };
    assert_eq!(config.validate().unwrap_err().setting, "rate_request_burst_bytes");
}

/// A rate without a burst would set no limit, nor would a burst without a rate.
fn half_a_rate_request_is_refused_with_what_is_missing() {
    let whole = Rate { bytes_per_s: 1_000_000, burst_bytes: 20_000 };
    let refused = |rate_request| Config { rate_request, ..Config::default() }.validate();
    for possible in [whole, Rate::UNLIMITED, Rate::STOPPED, Rate { bytes_per_s: 0, ..whole }] {
        assert_eq!(refused(possible), Ok(()));
    }
    let error = refused(Rate { burst_bytes: 0, ..whole }).unwrap_err();
    assert_eq!(error.setting, "rate_request_burst_bytes");
    assert!(error.expected.contains("(1000000)") && error.expected.contains("0 lifts the limit"), "{error}");
    let error = refused(Rate { bytes_per_s: Rate::UNLIMITED.bytes_per_s, ..whole }).unwrap_err();
    assert_eq!(error.setting, "rate_request_bytes_per_s");
    assert!(error.expected.contains("(20000)"), "{error}");
}

fn a_late_message_is_dropped_and_the_channel_goes_on() {
    let (mut pair, there, back) = open(Config::default());
    pair.ends[1].set_rate(pair.now, back, Rate { bytes_per_s: 1_000_000, burst_bytes: 2_000 }).unwrap();
    pair.run(MS);
    let to = ChannelId { peer: there, channel: 3 };
    let mut ids = Vec::new();
    for number in 0..20 {
        // 10 ms each at this rate; half of them are not in time.
        let data = content(number, 10_000).into();
        let deadline = pair.now + 100 * MS;
        ids.push(pair.ends[0].send_before(pair.now, to, data, Completion::Acknowledged, deadline).unwrap());
    }
    pair.send(0, there, 3, "the end");
    pair.run(SECOND);
    let expired: Vec<_> = pair.events[0]
        .iter()
        .filter_map(|event| match event {
            Event::Expired(id) => Some(*id),
            _ => None,
        })
        .collect();
    assert!((9..=11).contains(&expired.len()), "{} expired", expired.len());
    assert_eq!(expired, ids[20 - expired.len()..], "the last ones");
    let numbers: Vec<_> = pair.received[1].iter().map(|message| message.number).collect();
    let mut expected: Vec<_> = (0..20 - expired.len() as u64).collect();
    expected.push(20);
    assert_eq!(numbers, expected);
    for (number, message) in pair.received[1].iter().enumerate().take(expected.len() - 1) {
        assert_eq!(message.data, content(number, 10_000));
    }
    assert_eq!(pair.acknowledged(0), expected.len());
    assert_eq!(pair.ends[0].queue_len(there), Some(0));
    let flow = pair.ends[0].flow(there).unwrap();
    assert_eq!(flow.queued_bytes, 0);
    assert_eq!(pair.ends[1].flow(back).unwrap().unread_bytes, 0, "no memory is kept for what was begun");
}

/// Frames of twice the rate: what the rate carries arrives, and nothing is spent on the others.
fn of_frames_beyond_the_rate_as_many_arrive_in_time_as_it_carries() {
    let (mut pair, there, back) = open(Config { keepalive: None, ..Config::default() });
    pair.ends[1].set_rate(pair.now, back, Rate { bytes_per_s: 2_500_000, burst_bytes: 65_536 }).unwrap();
    pair.run(100 * MS);
    let to = ChannelId { peer: there, channel: 0 };
    let sent_before = pair.ends[0].flow(there).unwrap().counters.bytes_sent;
    for number in 0..200 {
        let (data, deadline) = (content(number, 100_000).into(), pair.now + 60 * MS);
        pair.ends[0].send_before(pair.now, to, data, Completion::None, deadline).unwrap();
        pair.run(20 * MS);
    }
    pair.run(SECOND);
    let expired = pair.events[0].iter().filter(|event| matches!(event, Event::Expired(_))).count();
    let arrived = pair.received[1].len();
    assert!((90..=102).contains(&arrived), "{arrived} of the 100 that the rate carries");
    assert_eq!(expired + arrived, 200);
    let sent = pair.ends[0].flow(there).unwrap().counters.bytes_sent - sent_before;
    let needed = 100_000 * arrived as u64;
    assert!(sent < needed + needed / 20, "{sent} octets for {needed}");
    assert_eq!(pair.ends[0].queue_len(there), Some(0));
}

fn credit_of_dropped_messages_comes_back() {
    let credit = 64 << 10;
    let config = Config {
        channel_credit_bytes: credit,
        offer_above_bytes: 40_000,
        keepalive: None,
        ..Config::default()
    };
    let (mut pair, there, _) = open(config);
    pair.lose = |number| number % 2 == 0;
    let to = ChannelId { peer: there, channel: 0 };
    for number in 0..300 {
        let deadline = pair.now + 2 * MS;
        let bytes = if number % 5 == 0 { 60_000 } else { 20_000 };
        let data = content(number, bytes).into();
        let _ = pair.ends[0].send_before(pair.now, to, data, Completion::None, deadline);
        pair.run(5 * MS);
    }
    let expired = pair.events[0].iter().filter(|event| matches!(event, Event::Expired(_))).count();
    assert!(expired > 30, "{expired} expired");
    pair.lose = |_| false;
    for number in 0..20 {
        pair.send(0, there, 0, content(number, 60_000));
        pair.run(100 * MS);
    }
    pair.run(SECOND);
    let last = &pair.received[1][pair.received[1].len() - 20..];
    assert!(last.iter().enumerate().all(|(number, message)| message.data == content(number, 60_000)));
    assert_eq!(pair.ends[0].queue_len(there), Some(0));
}

fn an_offer_that_expires_is_withdrawn_from_the_application() {
    let (mut pair, there, back) = open(Config { offers: OfferPolicy::Ask, ..Config::default() });
    let to = ChannelId { peer: there, channel: 0 };
    let deadline = pair.now + 50 * MS;
    let id = pair.ends[0]
        .send_before(pair.now, to, content(1, 3 << 20).into(), Completion::None, deadline)
        .unwrap();
    let next = pair.ends[0].send(to, "next".into(), Completion::Delivered).unwrap();
    pair.run(SECOND);
    let channel = ChannelId { peer: back, channel: 0 };
    assert!(pair.events[1].contains(&Event::Offered { channel, number: 0, bytes: 3 << 20 }));
    assert!(pair.events[0].contains(&Event::Delivered(next)), "it was taken before the offer was withdrawn");
    assert!(pair.events[0].contains(&Event::Expired(id)));
    assert!(pair.events[1].contains(&Event::Withdrawn { channel, number: 0 }));
    assert!(pair.ends[1].accept(pair.now, channel, 0, Vec::new()).is_err());
    assert_eq!(pair.received[1].len(), 1);
}

fn an_offer_behind_one_that_expires_halfway_is_accepted_then() {
    let config = Config { channel_credit_bytes: 64 << 10, offer_above_bytes: 1000, ..Config::default() };
    let (mut pair, there, _) = open(config);
    let to = ChannelId { peer: there, channel: 0 };
    let deadline = pair.now + MS / 2;
    let late = content(1, 6 << 20).into();
    let late = pair.ends[0].send_before(pair.now, to, late, Completion::None, deadline).unwrap();
    pair.send(0, there, 0, content(2, 500_000));
    pair.run(SECOND);
    assert!(pair.events[0].contains(&Event::Expired(late)));
    assert_eq!(pair.received[1].len(), 1);
    assert_eq!(pair.received[1][0].data, content(2, 500_000));
}

fn the_application_sees_its_queue_and_repeats_when_it_knows_better() {
    let (mut pair, there, _) = open(Config::default());
    pair.send(0, there, 0, content(1, 500));
    pair.connected = false;
    pair.run(MS / 10);
    pair.connected = true;
    assert_eq!(pair.ends[0].queue_len(there), Some(1));
    assert_eq!(pair.ends[0].retransmit(pair.now, there).unwrap(), 0, "younger than a round trip");
    pair.run(MS / 2);
    assert_eq!(pair.ends[0].retransmit(pair.now, there).unwrap(), 1);
    pair.run(MS / 2);
    assert_eq!(pair.received[1].len(), 1, "long before the probe timeout");
    assert!(matches!(pair.ends[0].set_weight(pair.now, there, 0), Err(PeerError::BadWeight(0))));
    pair.ends[0].set_weight(pair.now, there, 300).unwrap();
    assert_eq!(pair.ends[0].flow(there).unwrap().weight, 300);
}

fn a_channel_whose_messages_all_expire_does_not_run_out_of_credit() {
    let config = Config { channel_credit_bytes: 100_000, offer_above_bytes: 90_000, ..Config::default() };
    let (mut pair, there, back) = open(config);
    let to = ChannelId { peer: there, channel: 0 };
    for number in 0..20 {
        pair.ends[1].set_rate(pair.now, back, Rate { bytes_per_s: 10_000_000, burst_bytes: 1_454 }).unwrap();
        pair.run(5 * MS);
        let (data, deadline) = (content(number, 60_000).into(), pair.now + 20 * MS);
        pair.ends[0].send_before(pair.now, to, data, Completion::None, deadline).unwrap();
        pair.run(2 * MS);
        // 6 ms at the rate that was, 60 ms at this one: begun, and not finished.
        pair.ends[1].set_rate(pair.now, back, Rate { bytes_per_s: 1_000_000, burst_bytes: 1_454 }).unwrap();
        pair.run(40 * MS);
    }
    let expired = pair.events[0].iter().filter(|event| matches!(event, Event::Expired(_))).count();
    assert_eq!((expired, pair.received[1].len()), (20, 0));
    pair.send(0, there, 0, content(1, 60_000));
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 1);
}

/// Rates that let nothing go for long: none, and one whose burst is used up.
const SHUT: [Rate; 2] = [Rate::STOPPED, Rate { bytes_per_s: 1_000, burst_bytes: 100_000 }];

/// A pair in which end 0 may send nothing more to end 1, and nothing waits.
fn shut(config: Config, rate: Rate) -> (Pair, PeerId, PeerId) {
    let (mut pair, there, back) = open(config);
    pair.ends[1].set_rate(pair.now, back, rate).unwrap();
    pair.run(MS);
    if rate != Rate::STOPPED {
        pair.send(0, there, 1, content(0, 100_000));
        pair.run(100 * MS);
        assert_eq!(received_bytes(&pair), 100_000);
    }
    (pair, there, back)
}

fn an_offer_reaches_a_receiver_that_lets_no_data_go() {
    for rate in SHUT {
        let (mut pair, there, back) = shut(Config { offers: OfferPolicy::Ask, ..Config::default() }, rate);
        // It passes by what waits on another channel.
        pair.send(0, there, 2, content(1, 1_000));
        pair.run(10 * MS);
        pair.send(0, there, 0, content(2, 3 << 20));
        pair.run(10 * MS);
        let channel = ChannelId { peer: back, channel: 0 };
        assert!(pair.events[1].contains(&Event::Offered { channel, number: 0, bytes: 3 << 20 }), "{rate:?}");
        let before = received_bytes(&pair);
        pair.ends[1].accept(pair.now, channel, 0, Vec::new()).unwrap();
        pair.run(SECOND);
        assert_eq!(received_bytes(&pair), before, "{rate:?}: not an octet of a message");
        pair.ends[1].set_rate(pair.now, back, Rate::UNLIMITED).unwrap();
        pair.run(SECOND);
        assert_eq!(received_bytes(&pair), before + 1_000 + (3 << 20), "{rate:?}");
    }
}

fn an_offer_keeps_its_place_behind_a_message_that_the_rate_holds_up() {
    let config = Config { offers: OfferPolicy::Ask, ..Config::default() };
    let (mut pair, there, back) = shut(config, Rate::STOPPED);
    pair.send(0, there, 0, content(1, 1_000));
    pair.send(0, there, 0, content(2, 3 << 20));
    pair.run(SECOND);
    let offered = |pair: &Pair| pair.events[1].iter().any(|event| matches!(event, Event::Offered { .. }));
    assert!(!offered(&pair));
    pair.ends[1].set_rate(pair.now, back, Rate::UNLIMITED).unwrap();
    pair.run(10 * MS);
    assert!(offered(&pair) && received_bytes(&pair) == 1_000);
}

fn a_message_that_expires_while_no_data_may_go_is_done_with() {
    for (rate, lossy) in [(SHUT[0], false), (SHUT[1], false), (SHUT[0], true)] {
        let (mut pair, there, back) = shut(Config::default(), rate);
        pair.lose = if lossy { |number| number % 3 == 0 } else { |_| false };
        let (to, deadline) = (ChannelId { peer: there, channel: 0 }, pair.now + 100 * MS);
        let data = content(1, 10_000).into();
        let late = pair.ends[0].send_before(pair.now, to, data, Completion::None, deadline).unwrap();
        pair.run(SECOND / 10 + 10 * MS);
        assert!(pair.events[0].contains(&Event::Expired(late)));
        pair.run(SECOND);
        assert_eq!(pair.ends[0].queue_len(there), Some(0), "{rate:?}");
        pair.ends[0].close_write(pair.now, there).unwrap();
        pair.run(SECOND);
        assert!(pair.events[1].contains(&Event::PeerDoneWriting(back)), "{rate:?}");
    }
}

fn a_live_sender_that_is_stopped_queues_no_more_than_what_is_in_time() {
    let (mut pair, there, back) = shut(Config { keepalive: None, ..Config::default() }, Rate::STOPPED);
    let to = ChannelId { peer: there, channel: 0 };
    let packets = pair.ends[0].flow(there).unwrap().counters.packets_sent;
    for number in 0..500 {
        let (data, deadline) = (content(number, 10_000).into(), pair.now + 100 * MS);
        pair.ends[0].send_before(pair.now, to, data, Completion::None, deadline).unwrap();
        pair.run(20 * MS);
        let queued = pair.ends[0].queue_len(there).unwrap();
        assert!(queued <= 6, "{queued} after {number}");
    }
    let packets = pair.ends[0].flow(there).unwrap().counters.packets_sent - packets;
    assert!(packets <= 600, "{packets} packets for 500 messages that were given up");
    pair.ends[1].set_rate(pair.now, back, Rate::UNLIMITED).unwrap();
    pair.send(0, there, 0, "the end");
    pair.run(SECOND);
    assert_eq!(pair.received[1].last().unwrap().data, "the end");
}

/// Each of those given up costs 64 of the channel's credit until what is in front of it is through.
fn what_is_given_up_behind_a_message_leaves_it_its_credit() {
    let config = Config { channel_credit_bytes: 64 << 10, offer_above_bytes: 60_000, ..Config::default() };
    let (mut pair, there, back) = shut(config, Rate::STOPPED);
    pair.send(0, there, 0, content(1, 40_000));
    let to = ChannelId { peer: there, channel: 0 };
    for number in 0..1_000 {
        let (data, deadline) = (content(number, 100).into(), pair.now + 5 * MS);
        pair.ends[0].send_before(pair.now, to, data, Completion::None, deadline).unwrap();
        pair.run(MS);
    }
    pair.run(SECOND);
    assert_eq!(pair.ends[0].queue_len(there), Some(1_001));
    pair.ends[1].set_rate(pair.now, back, Rate::UNLIMITED).unwrap();
    pair.run(SECOND);
    assert_eq!((received_bytes(&pair), pair.ends[0].queue_len(there)), (40_000, Some(0)));
}

fn a_message_after_all_was_given_up_is_noticed_to_have_nobody_to_go_to() {
    let (mut pair, there, _) = shut(Config { keepalive: None, ..Config::default() }, Rate::STOPPED);
    let to = ChannelId { peer: there, channel: 0 };
    let deadline = pair.now + 5 * MS;
    pair.ends[0].send_before(pair.now, to, content(1, 500).into(), Completion::None, deadline).unwrap();
    pair.run(SECOND);
    assert_eq!(pair.ends[0].queue_len(there), Some(0), "given up");
    pair.connected = false;
    pair.send(0, there, 1, "to nobody");
    pair.run(60 * SECOND);
    assert_eq!(pair.lost(0), [(LostReason::TimedOut, 1)]);
}

/// What was about to be sent again, and may not be, has been delivered meanwhile: nothing waits then.
fn a_message_after_all_was_delivered_late_is_noticed_to_have_nobody_to_go_to() {
    let (mut pair, there, back) = open(Config { keepalive: None, ..Config::default() });
    let to = ChannelId { peer: there, channel: 0 };
    pair.ends[0].send(to, content(1, 10_000).into(), Completion::Delivered).unwrap();
    pair.drain(0);
    let late = std::mem::take(&mut pair.under_way);
    pair.ends[1].set_rate(pair.now, back, Rate::STOPPED).unwrap();
    pair.run(MS);
    for _ in 0..100 {
        if pair.ends[0].flow(there).unwrap().counters.probes > 0 {
            break;
        }
        pair.now = pair.ends[0].poll_timeout().expect("nothing has been acknowledged");
        pair.ends[0].handle_timeout(pair.now);
        pair.drain(0);
    }
    pair.under_way = late;
    pair.run(SECOND);
    assert_eq!((received_bytes(&pair), pair.ends[0].queue_len(there)), (10_000, Some(0)));
    pair.connected = false;
    pair.send(0, there, 1, "to nobody");
    pair.run(60 * SECOND);
    assert_eq!(pair.lost(0), [(LostReason::TimedOut, 1)]);
}

crate::ways::tests! { plain sealed staged => {
    the_receiver_sets_the_rate_and_the_mean_is_met,
    who_sends_into_silence_without_a_window_asks_nevertheless,
    no_train_exceeds_the_burst_and_each_is_used_up,
    a_stopped_sender_still_answers_and_goes_on_when_told,
    the_rate_is_kept_when_packets_are_lost_and_nothing_is,
    a_wish_holds_until_the_receiver_decides,
    impossible_rates_are_refused_with_the_range,
    half_a_rate_request_is_refused_with_what_is_missing,
    a_late_message_is_dropped_and_the_channel_goes_on,
    of_frames_beyond_the_rate_as_many_arrive_in_time_as_it_carries,
    credit_of_dropped_messages_comes_back,
    an_offer_that_expires_is_withdrawn_from_the_application,
    an_offer_behind_one_that_expires_halfway_is_accepted_then,
    the_application_sees_its_queue_and_repeats_when_it_knows_better,
    a_channel_whose_messages_all_expire_does_not_run_out_of_credit,
    an_offer_reaches_a_receiver_that_lets_no_data_go,
    an_offer_keeps_its_place_behind_a_message_that_the_rate_holds_up,
    a_message_that_expires_while_no_data_may_go_is_done_with,
    a_live_sender_that_is_stopped_queues_no_more_than_what_is_in_time,
    what_is_given_up_behind_a_message_leaves_it_its_credit,
    a_message_after_all_was_given_up_is_noticed_to_have_nobody_to_go_to,
    a_message_after_all_was_delivered_late_is_noticed_to_have_nobody_to_go_to,
}}
