//! Paths that do not leave ECN's marks alone (RFC 9000 §13.4.2).

use crate::common::content;
use crate::net::{Pair, SECOND};
use denrei_proto::Config;
use denrei_wire::Ecn;
use std::time::Duration;

fn drop_marked(ecn: Ecn) -> Option<Ecn> {
    (ecn == Ecn::NotEct).then_some(ecn)
}

fn congest(ecn: Ecn) -> Option<Ecn> {
    Some(if ecn == Ecn::Ect0 { Ecn::Ce } else { ecn })
}

fn a_path_that_drops_what_is_marked_carries_messages_both_ways() {
    let mut pair = Pair::new(Config::default());
    pair.remark = drop_marked;
    let peer = pair.connect(0);
    pair.send(0, peer, 0, content(1, 100_000));
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 1);
    let back = pair.received[1][0].channel.peer;
    pair.send(1, back, 0, content(2, 1_000_000));
    pair.send(0, peer, 0, content(3, 1_000_000));
    pair.run(SECOND);
    assert_eq!((pair.received[0][0].data.len(), pair.received[1][1].data.len()), (1_000_000, 1_000_000));
    assert!(pair.lost(0).is_empty() && pair.lost(1).is_empty());
}

fn marks_are_tried_again_where_they_were_lost() {
    let mut pair = Pair::new(Config::default());
    pair.remark = |_| Some(Ecn::NotEct);
    let peer = pair.connect(0);
    for message in 0..5 {
        pair.send(0, peer, 0, content(message, 1_000));
        pair.run(SECOND / 10);
    }
    pair.remark = congest;
    let marks = |pair: &Pair| pair.ends[0].flow(peer).unwrap().counters.ecn_marks;
    for _ in 0..28 {
        pair.send(0, peer, 0, "still the path that was");
        pair.run(SECOND);
    }
    assert_eq!(marks(&pair), 0);
    pair.run(Duration::from_secs(3));
    pair.send(0, peer, 0, "by another path");
    pair.run(SECOND);
    assert_eq!(marks(&pair), 1);
}

/// The other side has nothing to say but that it came, which nothing repeats.
fn a_path_that_begins_to_drop_what_is_marked_carries_acknowledgements() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.remark = drop_marked;
    // Marks are tried again after 30 s, and after 60.
    for message in 0..150 {
        pair.send(0, peer, 0, content(message, 1_000));
        pair.run(SECOND);
        assert_eq!(pair.ends[0].flow(peer).unwrap().queued_messages, 0, "message {message}");
    }
    assert!(pair.lost(0).is_empty() && pair.lost(1).is_empty());
}

fn a_silence_of_the_paths_costs_no_marks() {
    let (mut pair, peer) = Pair::met(Config::default());
    pair.connected = false;
    pair.send(0, peer, 0, content(0, 100_000));
    pair.run(SECOND * 5);
    pair.connected = true;
    pair.run(SECOND);
    pair.remark = congest;
    pair.send(0, peer, 0, "as before");
    pair.run(SECOND);
    assert_eq!(pair.received[1].len(), 3);
    assert!(pair.ends[0].flow(peer).unwrap().counters.ecn_marks > 0);
}

crate::ways::tests! { plain sealed staged => {
    a_path_that_drops_what_is_marked_carries_messages_both_ways,
    a_path_that_begins_to_drop_what_is_marked_carries_acknowledgements,
    marks_are_tried_again_where_they_were_lost,
    a_silence_of_the_paths_costs_no_marks,
}}
