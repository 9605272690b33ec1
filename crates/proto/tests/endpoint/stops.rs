//! Peers whose process stands still for a while, asleep, so that it does not know of that itself.

use crate::common::content;
use crate::net::{Datagram, Pair, SECOND};
use denrei_proto::Config;
use std::time::Duration;

/// Half of what a datagram is under way.
const STEP: Duration = Duration::from_micros(25);
/// What the path carries.
const ETHERNET: usize = 1472;

/// Runs for `time`; the second end has nothing of what comes to it if it `stands`. That.
fn run(pair: &mut Pair, time: Duration, stands: bool) -> Vec<Datagram> {
    let (end, mut waits) = (pair.now + time, Vec::new());
    while pair.now < end {
        pair.run(STEP);
        let (held, goes_on) = pair.under_way.drain().partition(|datagram| stands && datagram.to == 1);
        waits.extend::<Vec<_>>(held);
        pair.under_way.extend::<Vec<_>>(goes_on);
    }
    waits
}

/// All that came meanwhile is there at once, and its acknowledgement says that the path took seconds.
fn a_peer_that_stood_still_is_sent_what_waits_for_it_as_soon_as_it_goes_on() {
    let mut pair = Pair { widest: ETHERNET, ..Pair::new(Config::default()) };
    let peer = pair.connect(0);
    pair.send(0, peer, 0, "hello");
    run(&mut pair, SECOND / 2, false);
    for number in 1..=40 {
        pair.send(0, peer, 0, content(number, 100_000));
    }
    run(&mut pair, 12 * STEP, false);
    let before = pair.received[1].len();
    assert!(before < 30, "{before} messages came before");
    let waits = run(&mut pair, 5 * SECOND, true);
    assert_eq!((pair.received[1].len(), pair.lost(0).len()), (before, 0));
    for mut datagram in waits {
        datagram.at = pair.now;
        pair.under_way.push(datagram);
        // Its socket is read by and by.
        run(&mut pair, 2 * STEP, false);
    }
    run(&mut pair, SECOND / 5, false);
    let flow = pair.ends[0].flow(peer).unwrap();
    assert_eq!(pair.received[1].len(), 41, "{flow:?}");
}

crate::ways::tests! { plain sealed => {
    a_peer_that_stood_still_is_sent_what_waits_for_it_as_soon_as_it_goes_on,
}}
