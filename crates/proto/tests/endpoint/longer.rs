//! Paths that become longer, as when routes change.

use crate::common::content;
use crate::net::{Pair, SECOND};
use denrei_proto::{Config, PeerId};
use std::time::Duration;

/// What a path carries that is no host's own.
const ETHERNET: usize = 1472;
const SIZE: usize = 100_000;
/// What the sender keeps queued.
const QUEUED: u64 = 20 * SIZE as u64;

/// Sends as much as goes for so long; octets that arrived a second.
fn rate(pair: &mut Pair, peer: PeerId, time: Duration) -> f64 {
    let (end, before) = (pair.now + time, pair.received[1].len());
    while pair.now < end {
        while pair.ends[0].flow(peer).unwrap().queued_bytes < QUEUED {
            pair.send(0, peer, 0, content(0, SIZE));
        }
        pair.run(Duration::from_millis(1));
    }
    ((pair.received[1].len() - before) * SIZE) as f64 / time.as_secs_f64()
}

/// What takes longer than it did looks like a queue. The window yields to it, and finds that this does not help.
fn a_path_that_becomes_longer_is_filled_again() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.widest = ETHERNET;
    rate(&mut pair, peer, SECOND / 10);
    pair.delay = Duration::from_millis(50);
    rate(&mut pair, peer, 4 * SECOND);
    let under_way = rate(&mut pair, peer, 4 * SECOND) * 2.0 * pair.delay.as_secs_f64();
    assert!(under_way > QUEUED as f64 / 2.0, "{under_way} octets are under way");
}

crate::ways::tests! { plain => { a_path_that_becomes_longer_is_filled_again, } }
