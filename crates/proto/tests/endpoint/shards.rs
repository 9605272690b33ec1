//! Several endpoints at one address, and one that goes on with another's sessions.

use crate::common::content;
use crate::net::{Pair, SECOND, addr};
use crate::ways::secured;
use denrei_proto::{Config, ConnectError, Endpoint, Place};
use denrei_wire::Instant;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::sync::Arc;

/// `count` endpoints at one address.
fn shards(config: &Config, count: u32) -> Vec<Endpoint> {
    let config = secured(config.clone());
    Place::all(count).map(|place| Endpoint::at(place, Arc::clone(&config), 7, Instant::ZERO)).collect()
}

fn endpoints_at_one_address_are_one_process_with_peers_of_different_names() {
    let config = Config { max_peers: 5, ..Config::default() };
    let mut shards = shards(&config, 2);
    assert_eq!(shards[0].incarnation(), shards[1].incarnation());
    let target = |port: u16| SocketAddr::from(([10, 0, 0, 9], port));
    let mut peers = Vec::new();
    for port in 1..=5 {
        let place = (port % 2) as usize;
        let peer = shards[place].connect(Instant::ZERO, target(port)).unwrap();
        assert_eq!(peer.shard(2), place);
        assert!(!peers.contains(&peer));
        peers.push(peer);
    }
    assert_eq!(shards[0].connect(Instant::ZERO, target(6)), Err(ConnectError::TooManyPeers { max: 5 }));
    let (home, other) = shards.split_at_mut(1);
    home[0].absorb(Instant::ZERO, &mut other[0]);
    assert_eq!(home[0].peers().count(), 5);
    assert_eq!(other[0].peers().count(), 0);
    assert!(peers.iter().all(|peer| home[0].flow(*peer).is_some()));
    for port in 1..=5 {
        assert_eq!(home[0].connect(Instant::ZERO, target(port)).unwrap(), peers[port as usize - 1]);
    }
    // Names that were given are not given again.
    home[0].abort(Instant::ZERO, peers[0], 0, "").unwrap();
    home[0].close_read(Instant::ZERO, peers[0]).unwrap();
    let ends = Instant::ZERO + 60 * SECOND;
    home[0].handle_timeout(ends);
    if let Ok(next) = home[0].connect(ends, target(7)) {
        assert!(!peers.contains(&next), "{next} is somebody else");
    }
}

/// Puts end 0 of the pair into another endpoint at the same address.
fn move_home(pair: &mut Pair, home: &mut Option<Endpoint>) {
    if let Some(mut home) = home.take() {
        home.absorb(pair.now, &mut pair.ends[0]);
        pair.ends[0] = home;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 24 } else { 64 }))]

    /// Whenever the sessions move, before they are open, half-way, or when all is said: nothing is lost,
    /// nothing comes twice, and order holds, both ways, with one datagram in seven lost.
    fn sessions_go_on_at_another_endpoint(
        moves_after_us in 0_u64..3_000,
        sizes in proptest::collection::vec(0_usize..200_000, 1..12),
        lossy in any::<bool>(),
    ) {
        let config = Config::default();
        let mut pair = Pair::new(config.clone());
        pair.lose = if lossy { |order| order % 7 == 3 } else { |_| false };
        let mut places = shards(&config, 2);
        pair.ends[0] = places.pop().expect("two");
        let mut home = places.pop();
        let peer = pair.connect(0);
        for (number, &len) in sizes.iter().enumerate() {
            pair.send(0, peer, 2, content(number, len));
        }
        pair.run(SECOND / 1_000_000 * moves_after_us as u32);
        move_home(&mut pair, &mut home);
        prop_assert_eq!(pair.ends[0].peer_at(addr(1)), Some(peer));
        pair.send(0, peer, 2, "the last");
        pair.run(10 * SECOND);
        let back = pair.received[1].last().expect("messages came").channel;
        for (number, &len) in sizes.iter().enumerate() {
            pair.send(1, back.peer, 3, content(number, len));
        }
        pair.run(10 * SECOND);
        let expected: Vec<_> =
            sizes.iter().enumerate().map(|(number, &len)| content(number, len)).collect();
        let got = |end: usize| pair.received[end].iter().map(|m| m.data.to_vec()).collect::<Vec<_>>();
        prop_assert_eq!(&got(1)[..sizes.len()], &expected[..]);
        prop_assert_eq!(&got(1)[sizes.len()..], &[b"the last".to_vec()][..]);
        prop_assert_eq!(got(0), expected);
        prop_assert_eq!(pair.acknowledged(0), sizes.len() + 1);
        prop_assert_eq!((pair.lost(0), pair.lost(1)), (vec![], vec![]));
    }
}

crate::ways::tests! { plain sealed staged => {
    endpoints_at_one_address_are_one_process_with_peers_of_different_names,
    sessions_go_on_at_another_endpoint,
}}
