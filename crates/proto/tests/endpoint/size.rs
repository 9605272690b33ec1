//! How large datagrams are, whatever is taken for lost.

use crate::net::{Pair, SECOND};
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

crate::ways::tests! { plain sealed staged => {
    a_datagram_that_arrives_though_a_probe_repeated_it_is_none_that_the_path_is_too_narrow_for,
}}
