//! What an attacker can do to endpoints that have a cluster key, and what keys and identities do.

use crate::common::content;
use crate::net::{Pair, SECOND, addr};
use denrei_proto::seal::{ClusterKey, Identity};
use denrei_proto::{Config, Endpoint, LostReason};
use denrei_wire::checksum::crc32c;
use denrei_wire::packet::{Kind, common_header, flags};
use denrei_wire::{Instant, PacketNumber, Token, TransmitBuf};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn sealed() -> Config {
    Config { cluster_key: Some(ClusterKey::from_bytes([7; 32])), ..Config::default() }
}

/// One of two nodes, each with an identity, that lets one of them in.
fn with_identity(own: u8, allowed: u8) -> Config {
    let identity = |number: u8| Identity::from_bytes([1 + number; 32]);
    Config { identity: Some(identity(own)), allowed: vec![identity(allowed).public()], ..sealed() }
}

/// The next datagram that end 0 sends.
fn next_datagram(pair: &mut Pair) -> Vec<u8> {
    let mut buf = TransmitBuf::new(1);
    pair.ends[0].poll_transmit(pair.now, &mut buf).unwrap();
    buf.bytes().to_vec()
}

fn token_of(datagram: &[u8]) -> Token {
    Token(u64::from_le_bytes(datagram[8..16].try_into().unwrap()))
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c(&bytes);
    bytes.extend(crc.to_le_bytes());
    bytes
}

#[test]
fn no_changed_bit_of_any_sealed_packet_passes() {
    let (mut pair, peer) = Pair::met(sealed());
    pair.send(0, peer, 0, "second");
    let packet = next_datagram(&mut pair);
    assert_eq!(packet[0], Kind::Session as u8);
    for bit in 0..packet.len() * 8 {
        let mut changed = packet.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        pair.inject(1, &changed);
    }
    for len in 0..packet.len() {
        pair.inject(1, &packet[..len]);
    }
    assert_eq!(pair.received[1].len(), 1, "nothing was delivered");
    assert!(pair.ends[1].counters().corrupted > 8 * 16);
    pair.inject(1, &packet);
    pair.inject(1, &packet);
    assert_eq!(pair.received[1].len(), 2, "the packet itself is, once");
    pair.run(SECOND);
    assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
}

#[test]
fn nothing_that_was_said_is_seen_on_the_wire() {
    let mut pair = Pair::new(sealed());
    let peer = pair.connect(0);
    let secret = b"an order that nobody else may read";
    for _ in 0..3 {
        pair.send(0, peer, 0, secret.to_vec());
        pair.run(SECOND);
    }
    assert_eq!(pair.received[1].len(), 3);
    let leaks = |bytes: &[u8]| bytes.windows(8).any(|window| secret.windows(8).any(|part| part == window));
    assert!(!pair.tapped.iter().any(|(_, bytes)| leaks(bytes)));
    assert!(!pair.tapped(1, Kind::First).is_empty() && !pair.tapped(1, Kind::Session).is_empty());
}

#[test]
fn another_key_and_no_key_are_refused_in_time_and_counted() {
    let other = Config { cluster_key: Some(ClusterKey::from_bytes([8; 32])), ..Config::default() };
    for (configs, counter) in [
        ([sealed(), other], (|end: &Endpoint| end.counters().strange_keys) as fn(&Endpoint) -> u64),
        ([Config::default(), sealed()], |end| end.counters().unsealed),
        ([sealed(), Config::default()], |end| end.counters().sealed_unread),
    ] {
        let timeout = configs[0].connect_timeout;
        let mut pair = Pair::of(configs);
        let peer = pair.connect(0);
        pair.send(0, peer, 0, "hello?");
        pair.run(timeout + SECOND);
        assert_eq!(pair.lost(0), [(LostReason::NoAnswer, 1)]);
        assert!(LostReason::NoAnswer.to_string().contains("same cluster key"));
        assert!(counter(&pair.ends[1]) > 0);
        assert_eq!((pair.events[1].len(), pair.received[1].len()), (0, 0));
        assert!(pair.tapped(0, Kind::Answer).is_empty(), "whoever has no key gets no answer");
    }
}

#[test]
fn identities_that_are_not_allowed_are_refused_by_either_side() {
    let mut pair = Pair::of([with_identity(0, 1), with_identity(1, 0)]);
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "hello");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 1);
    for (configs, refusing) in [
        ([with_identity(0, 1), with_identity(1, 1)], Some(1)),
        ([with_identity(0, 0), with_identity(1, 0)], Some(0)),
        ([sealed(), with_identity(1, 0)], None),
        ([with_identity(0, 1), sealed()], None),
    ] {
        let mut pair = Pair::of(configs);
        let peer = pair.connect(0);
        pair.send(0, peer, 0, "hello");
        pair.run(30 * SECOND);
        assert_eq!((pair.received[1].len(), pair.events[1].len()), (0, 0));
        assert_eq!(pair.lost(0), [(LostReason::NoAnswer, 1)]);
        if let Some(end) = refusing {
            assert!(pair.ends[end].counters().strangers > 0);
        }
    }
}

#[test]
fn a_recorded_session_means_nothing_to_a_restarted_responder() {
    let (mut pair, _) = Pair::met(sealed());
    let recorded = pair.tapped.clone();
    pair.restart(1, sealed());
    pair.events[1].clear();
    pair.received[1].clear();
    pair.connected = false;
    for _ in 0..3 {
        for (_, bytes) in recorded.iter().filter(|(to, _)| *to == 1) {
            pair.inject(1, bytes);
        }
        pair.run(SECOND);
    }
    assert_eq!((pair.received[1].len(), pair.events[1].len()), (0, 0));
    assert_eq!(pair.ends[1].peers().count(), 0);
    pair.run(10 * SECOND);
    assert!(pair.ends[1].peer_at(addr(0)).is_none());
}

#[test]
fn recorded_firsts_from_anywhere_are_answered_once_and_bound_nothing() {
    let (mut pair, peer) = Pair::met(sealed());
    let first = pair.tapped(1, Kind::First)[0].clone();
    let before = pair.tapped.len();
    for host in 1..=5000u32 {
        let from = SocketAddr::from(([172, 16, (host >> 8) as u8, host as u8], 7000));
        pair.inject_from(1, from, &first);
    }
    // All have been asked to show a cookie that was sent where they seem to come from.
    assert_eq!(pair.ends[1].counters().retries, 5000);
    let said: usize = pair.tapped[before..].iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(said <= 5000 * first.len(), "{said} octets in answer to {}", 5000 * first.len());
    assert!(pair.tapped[before..].iter().all(|(_, bytes)| bytes[0] == Kind::Retry as u8));
    pair.send(0, peer, 0, "still here");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 2);
}

/// The FIRSTs of `count` endpoints that have the cluster key.
fn firsts(count: u64) -> Vec<Vec<u8>> {
    let config = Arc::new(sealed());
    (0..count)
        .map(|seed| {
            let mut end = Endpoint::new(config.clone(), 1000 + seed, Instant::ZERO);
            end.connect(Instant::ZERO, addr(1)).unwrap();
            let mut buf = TransmitBuf::new(1);
            end.poll_transmit(Instant::ZERO, &mut buf).unwrap();
            buf.bytes().to_vec()
        })
        .collect()
}

/// Each flight has several packets with the same handshake.
#[test]
fn who_is_turned_away_asks_again_at_long_intervals() {
    let full = Config { max_peers: 1, ..sealed() };
    let whole = |config: Config| Config { first_flight_bytes: 1 << 20, ..config };
    for [initiator, responder] in [[sealed(), full], [with_identity(0, 1), with_identity(1, 1)]] {
        let mut pair = Pair::of([whole(initiator), responder]);
        pair.inject_from(1, SocketAddr::from(([172, 16, 0, 1], 7000)), &firsts(1)[0]);
        let peer = pair.connect(0);
        pair.send(0, peer, 0, content(0, 20_000));
        pair.run(SECOND);
        let counters = pair.ends[1].counters();
        let turned_away = counters.refused_sessions + counters.strangers;
        assert!((10..100).contains(&turned_away), "{counters:?}");
        assert!(pair.tapped(1, Kind::First).len() < 100 && counters.retries == 0, "{counters:?}");
    }
}

#[test]
fn under_a_flood_whoever_shows_its_address_still_gets_in() {
    let mut pair = Pair::new(sealed());
    let firsts = firsts(1000);
    for (host, first) in firsts.iter().enumerate() {
        let from = SocketAddr::from(([172, 16, (host >> 8) as u8, host as u8], 7000));
        pair.inject_from(1, from, first);
    }
    assert!(pair.ends[1].counters().retries > 500, "{:?}", pair.ends[1].counters());
    let answers = pair.tapped(0, Kind::Answer).len();
    assert!(answers <= 256, "{answers} handshakes were computed");
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "let me in");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 1);
    assert!(!pair.tapped(0, Kind::Retry).is_empty());
    assert_eq!(pair.lost(0), []);
    // What was left of the flood is forgotten.
    pair.run(5 * SECOND);
    assert_eq!(pair.ends[1].peers().count(), 1);
}

/// Of the sessions that it opened, one after the other, each has been asked for a cookie, as there is a session already.
#[test]
fn a_late_first_that_shows_a_cookie_replaces_none_that_began_since() {
    let mut pair = Pair::new(sealed());
    let mut firsts = Vec::new();
    for number in 0..3 {
        pair.connected = false;
        let peer = pair.connect(0);
        pair.send(0, peer, 0, vec![number; 10]);
        pair.drain(0);
        let mut first = pair.tapped(1, Kind::First).pop().unwrap();
        if number > 0 {
            pair.inject(1, &first);
            let retry = pair.tapped(0, Kind::Retry).pop().unwrap();
            pair.inject(0, &retry);
            first = pair.tapped(1, Kind::First).pop().unwrap();
        }
        if number < 2 {
            pair.ends[0].abort(pair.now, peer, 0x8001, "").unwrap();
        }
        pair.connected = number == 2;
        // The second is on its way for long.
        if number != 1 {
            pair.inject(1, &first);
        }
        firsts.push(first);
    }
    pair.inject(1, &firsts[1]);
    pair.run(SECOND);
    assert_eq!(pair.lost(0), [(LostReason::Aborted, 1), (LostReason::Aborted, 1)]);
    assert_eq!(pair.received[1].iter().map(|message| message.data[0]).collect::<Vec<_>>(), [2]);
}

#[test]
fn one_source_gets_its_share_of_handshakes_and_of_sessions() {
    let config = Config { max_handshakes_per_s: 100, ..sealed() };
    let mut pair = Pair::new(config);
    for (port, first) in firsts(200).iter().enumerate() {
        pair.inject_from(1, SocketAddr::from(([172, 16, 0, 1], 1 + port as u16)), first);
    }
    assert_eq!(pair.tapped(0, Kind::Answer).len(), 100);
    assert_eq!(pair.ends[1].counters().limited, 100);
}

#[test]
fn an_unproven_address_gets_no_more_than_three_times_what_it_sent() {
    let mut pair = Pair::new(sealed());
    let first = firsts(1).remove(0);
    let from: SocketAddr = "172.16.0.1:7000".parse().unwrap();
    pair.inject_from(1, from, &first);
    pair.run(30 * SECOND);
    let said: usize = pair.tapped.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!((1..=3 * first.len()).contains(&said), "{said} octets for {}", first.len());
}

#[test]
fn what_an_unproven_session_brings_is_bounded() {
    let mut pair = Pair::new(sealed());
    let eager = Config { first_flight_bytes: u64::MAX, ..sealed() };
    let mut end = Endpoint::new(Arc::new(eager), 77, Instant::ZERO);
    let peer = end.connect(Instant::ZERO, addr(1)).unwrap();
    let from: SocketAddr = "172.16.0.1:7000".parse().unwrap();
    for channel in 0..16 {
        let to = denrei_proto::ChannelId { peer, channel };
        end.send(to, content(1, 60_000).into(), Default::default()).unwrap();
    }
    // An initiator that keeps no window, and never hears the answers.
    let mut now = Instant::ZERO;
    for _ in 0..3000 {
        let mut buf = TransmitBuf::new(1);
        while end.poll_transmit(now, &mut buf).is_some() {
            pair.inject_from(1, from, buf.bytes());
        }
        now += Duration::from_millis(5);
        end.handle_timeout(now);
    }
    // Nothing to see for the application, and what was beyond the bound is gone.
    assert_eq!((pair.events[1].len(), pair.received[1].len()), (0, 0));
    assert!(pair.ends[1].counters().limited > 0, "{:?}", pair.ends[1].counters());
}

#[test]
fn resets_of_others_end_nothing() {
    let (mut pair, peer) = Pair::met(sealed());
    let tokens: Vec<Token> =
        [0, 1].map(|end| token_of(pair.tapped(end, Kind::Session).last().unwrap())).to_vec();
    for _ in 0..100 {
        for end in 0..2 {
            let reset = common_header(Kind::Reset, 0, PacketNumber(0), tokens[1 - end]).to_vec();
            pair.inject(end, &with_checksum(reset));
        }
        pair.run(Duration::from_millis(20));
    }
    pair.send(0, peer, 0, "still here");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 2);
    assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
}

#[test]
fn versions_and_own_firsts_sent_back_end_no_attempt() {
    let mut pair = Pair::new(sealed());
    pair.connected = false;
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "hello");
    pair.run(Duration::from_millis(1));
    let first = pair.tapped(1, Kind::First)[0].clone();
    let mut versions = common_header(Kind::Versions, 0, PacketNumber(0), token_of(&first)).to_vec();
    versions.push(9);
    pair.inject(0, &with_checksum(versions));
    for (_, bytes) in pair.tapped.clone() {
        pair.inject(0, &bytes);
    }
    pair.connected = true;
    pair.run(2 * SECOND);
    assert_eq!(pair.received[1].len(), 1);
    assert_eq!(pair.lost(0), []);
}

#[test]
fn packets_sent_back_to_their_sender_are_dropped() {
    let (mut pair, peer) = Pair::met(sealed());
    let delivered = [pair.received[0].len(), pair.received[1].len()];
    for (to, bytes) in pair.tapped.clone() {
        pair.inject(1 - to, &bytes);
        // With the token of the other direction as well.
        let other = pair.tapped(1 - to, Kind::Session).last().cloned();
        if let (Some(other), true) = (other, bytes[0] == Kind::Session as u8) {
            let mut turned = bytes.clone();
            turned[8..16].copy_from_slice(&other[8..16]);
            pair.inject(1 - to, &turned);
        }
    }
    pair.run(SECOND);
    assert_eq!([pair.received[0].len(), pair.received[1].len()], delivered);
    pair.send(0, peer, 0, "still here");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), delivered[1] + 1);
    assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
}

#[test]
fn plain_packets_are_dropped_where_a_key_is_set() {
    let (mut pair, _) = Pair::met(sealed());
    let token = token_of(pair.tapped(1, Kind::Session).last().unwrap());
    // END, in a packet whose header is right.
    let mut end = common_header(Kind::Session, 0, PacketNumber(50), token).to_vec();
    end.extend([0x0f, 0, 0, 0]);
    pair.inject(1, &with_checksum(end.clone()));
    let mut unknown = end;
    unknown[15] ^= 1;
    pair.inject(1, &with_checksum(unknown));
    pair.run(SECOND);
    assert_eq!(pair.lost(1), []);
    assert_eq!((pair.ends[1].counters().corrupted, pair.ends[1].counters().unsealed), (1, 1));
}

#[test]
fn keys_change_under_loss_and_disorder_without_a_loss() {
    for lose in [|_| false, |order: u64| order.wrapping_mul(0x9e37_79b9).is_multiple_of(7)] {
        let mut pair = Pair::new(Config { rekey_after_packets: 16, max_datagram_bytes: 1200, ..sealed() });
        pair.lose = lose;
        let peer = pair.connect(0);
        for number in 0..40 {
            pair.send(0, peer, number as u16 % 3, content(number, 20_000));
            pair.run(Duration::from_millis(30));
        }
        pair.run(20 * SECOND);
        assert_eq!(pair.received[1].len(), 40);
        let phases: Vec<bool> =
            pair.tapped(1, Kind::Session).iter().map(|p| p[2] & flags::KEY_PHASE as u8 != 0).collect();
        let changes = phases.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!(changes > 10, "{changes} changes in {} packets", phases.len());
        assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
    }
}

#[test]
fn garbage_with_every_kind_and_token_is_dropped() {
    let (mut pair, peer) = Pair::met(sealed());
    let token = token_of(pair.tapped(1, Kind::Session).last().unwrap());
    let mut state = 1u64;
    for kind in 0xd0..=0xdf {
        for len in 0..200 {
            let mut bytes: Vec<u8> = (0..len)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect();
            for (byte, value) in bytes.iter_mut().zip([kind, 1, 0, 0]) {
                *byte = value;
            }
            if let Some(field) = bytes.get_mut(8..16) {
                field.copy_from_slice(&token.0.to_le_bytes());
            }
            pair.inject(1, &bytes);
        }
    }
    pair.send(0, peer, 0, "still here");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 2);
    assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
}
