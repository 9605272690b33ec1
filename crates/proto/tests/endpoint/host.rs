//! What a Node says of itself to the others of its host.

use crate::common::content;
use crate::net::Pair;
use denrei_proto::Config;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A Node shares its host before anybody has connected to it: how long limits are waited for is known nevertheless.
fn the_round_trip_of_those_who_came_later_is_said() {
    let mut pair = Pair::new(Config { learn_rates: true, ..Config::default() });
    pair.delay = 10 * MS;
    pair.ends[1].share_host(pair.now, None, &[], 0);
    let there = pair.connect(0);
    pair.run(50 * MS);
    for number in 0..10 {
        pair.send(0, there, 0, content(number, 10_000));
        pair.run(20 * MS);
        pair.ends[1].share_host(pair.now, None, &[], 0);
    }
    let rtt = pair.ends[1].host_record(pair.now).rtt;
    assert!((20 * MS..40 * MS).contains(&rtt), "{rtt:?}");
}

crate::ways::tests! { plain sealed staged => {
    the_round_trip_of_those_who_came_later_is_said,
} }
