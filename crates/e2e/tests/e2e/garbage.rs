//! Datagrams that no Node has sent.

use crate::harness::{Pair, SOON, begin};
use denrei_e2e::{Drive, Order, Report, Settings, Sizes};
use std::time::Duration;

/// Packets copied from the stream.
const CAPTURED: usize = 200;
/// Times that each is used.
const ROUNDS: usize = 30;

/// Host 2 sends random datagrams under its own address, and damaged, truncated and repeated copies
/// of what host 0 sends to host 1, under the address of host 0.
fn sessions_are_unharmed(name: &'static str, drive: Drive) {
    let test = begin(name);
    let Some(lab) = test.lab(3, 1500) else { return };
    let mut capture = test.process_on(&lab, 1, "capture", "capture");
    let mut inject = test.process_on(&lab, 2, "inject", "inject");
    let mut pair = Pair::on(&test, &lab, 0, 1, &Settings::driven(drive), Sizes::Mixed { most: 64 << 10 });
    capture.order(&Order::Capture { port: pair.receiver_addr.port(), count: CAPTURED });
    let count = 1500;
    pair.send(count, 600);
    let packets = capture.wait("copies", SOON, |report| match report {
        Report::Captured(packets) => Some(packets.clone()),
        _ => None,
    });
    assert_eq!(packets.len(), CAPTURED);
    let before = pair.receiver.resources();
    let order = Order::Inject { packets, rounds: ROUNDS, seed: 3, to: pair.receiver_addr };
    let (flipped, truncated, repeated, random) = inject.ask(&order, |report| match *report {
        Report::Injected { flipped, truncated, repeated, random } => {
            Some((flipped, truncated, repeated, random))
        }
        _ => None,
    });
    let going_on = pair.receiver.received() < 3 * count;
    assert!(going_on, "the stream ended before the injection did");
    pair.finish(count, Duration::from_secs(20));
    let after = pair.receiver.resources();
    let corrupted = after.corrupted - before.corrupted;
    let dropped = corrupted
        + (after.malformed - before.malformed)
        + (after.unknown_session - before.unknown_session)
        + (after.foreign_version - before.foreign_version);
    let harmful = flipped + truncated + random;
    test.print(format_args!(
        "{flipped} damaged, {truncated} truncated, {repeated} repeated, {random} random; {dropped} counted as \
         such, {corrupted} by their checksum: {after:?}"
    ));
    // Each is counted once; some may not have found room in the socket's buffer.
    assert!(dropped <= harmful && dropped >= harmful * 9 / 10, "{dropped} of {harmful} counted");
    assert!(corrupted >= (flipped + truncated) / 2, "{corrupted} by their checksum");
    assert!(after.malformed > before.malformed);
    assert_eq!(pair.receiver.peers(), 1, "no session came of it");
}

#[test]
fn garbage_and_truncated_datagrams_inline() {
    sessions_are_unharmed("garbage_and_truncated_datagrams_inline", Drive::Inline);
}

#[test]
fn garbage_and_truncated_datagrams_threaded() {
    sessions_are_unharmed("garbage_and_truncated_datagrams_threaded", Drive::Thread);
}
