//! How large datagrams are, whatever is taken for lost.

use crate::net::{DELAY, Pair, SECOND};
use denrei_proto::{Config, PeerId};
use std::time::Duration;

const ETHERNET: u16 = 1472;

/// Sends a message that the other end does not look at before it has been repeated by a probe.
fn send_to_one_who_is_late(pair: &mut Pair, peer: PeerId, bytes: usize) {
    pair.send(0, peer, 0, vec![7; bytes]);
    pair.drain(0);
    let probes = |pair: &Pair| pair.ends[0].flow(peer).unwrap().counters.probes;
    let before = probes(pair);
    while probes(pair) == before {
        pair.now = pair.ends[0].poll_timeout().expect("a message is under way");
        pair.ends[0].handle_timeout(pair.now);
    }
    pair.run(SECOND / 10);
}

/// A receiver that is busy answers later than a probe waits for, and has received the first one all the same.
fn a_datagram_that_arrives_though_a_probe_repeated_it_is_none_that_the_path_is_too_narrow_for() {
    let config =
        Config { max_datagram_bytes: ETHERNET, max_ack_delay: Duration::from_millis(1), ..Config::default() };
    let (mut pair, peer) = Pair::met(config);
    for round in 0..20 {
        // Below the base, and above it.
        send_to_one_who_is_late(&mut pair, peer, if round < 10 { 1000 } else { 1400 });
        let flow = pair.ends[0].flow(peer).unwrap();
        assert_eq!((flow.counters.packets_lost, flow.datagram_bytes), (0, ETHERNET), "round {round}");
    }
    assert_eq!(pair.received[1].len(), 21);
}

/// A session on a path that carries datagrams up to `widest`, by which a message of so many has gone: with the octets sent
/// towards the receiver and the number of datagrams.
fn carry(bytes: usize, widest: usize) -> (Pair, PeerId, usize, usize) {
    let config = Config { max_datagram_bytes: ETHERNET, ..Config::default() };
    let mut pair = Pair { widest, ..Pair::new(config) };
    let peer = pair.connect(0);
    pair.send(0, peer, 0, vec![7; bytes]);
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 1);
    let sent = pair.tapped.iter().filter(|(to, _)| *to == 1);
    let (octets, datagrams) = sent.fold((0, 0), |(octets, count), (_, one)| (octets + one.len(), count + 1));
    (pair, peer, octets, datagrams)
}

fn a_message_tells_that_a_path_carries_what_ethernet_does() {
    let (pair, peer, octets, datagrams) = carry(64 << 10, usize::MAX);
    assert_eq!(pair.ends[0].flow(peer).unwrap().datagram_bytes, ETHERNET);
    // The handshake, and of each datagram its header, the checksum or tag, and the fragment's.
    let others = 600 + 60 * datagrams;
    assert!(
        octets < (64 << 10) + others,
        "{octets} octets in {datagrams} datagrams: nothing is there to fill one"
    );
}

fn on_a_narrow_path_data_is_repeated_once_and_congestion_is_not_to_blame() {
    let (pair, peer, octets, datagrams) = carry(64 << 10, 1400);
    let flow = pair.ends[0].flow(peer).unwrap();
    assert_eq!((flow.datagram_bytes, flow.counters.recoveries, flow.counters.packets_lost), (1392, 0, 1));
    let others = 600 + 60 * datagrams + 20 * usize::from(ETHERNET);
    assert!(
        octets < (64 << 10) + others,
        "{octets} octets: what a larger datagram carried, and the padding of probes"
    );
    assert!(flow.counters.retransmissions <= 2, "{:?}", flow.counters);
}

/// It would be missed after a probe timeout only, as nothing that follows it is acknowledged.
fn data_that_goes_in_one_packet_tries_nothing() {
    let (pair, peer, ..) = carry(1700, 1250);
    let counters = pair.ends[0].flow(peer).unwrap().counters;
    assert_eq!((counters.retransmissions, counters.probes), (0, 0));
}

fn nothing_larger_is_tried_while_the_peer_is_silent() {
    let config = Config { max_datagram_bytes: ETHERNET, ..Config::default() };
    let mut pair = Pair::new(config);
    let peer = pair.connect(0);
    pair.send(0, peer, 0, vec![7; 64 << 10]);
    // The answer has come, and the first data goes.
    pair.run(DELAY * 2);
    pair.connected = false;
    pair.run(SECOND);
    assert!(pair.ends[0].flow(peer).unwrap().counters.probes > 2);
    let larger = pair.tapped.iter().filter(|(to, bytes)| *to == 1 && bytes.len() > 1200).count();
    assert_eq!(larger, 1, "the first one");
}

crate::ways::tests! { plain sealed staged => {
    a_datagram_that_arrives_though_a_probe_repeated_it_is_none_that_the_path_is_too_narrow_for,
    a_message_tells_that_a_path_carries_what_ethernet_does,
    on_a_narrow_path_data_is_repeated_once_and_congestion_is_not_to_blame,
    data_that_goes_in_one_packet_tries_nothing,
    nothing_larger_is_tried_while_the_peer_is_silent,
}}
