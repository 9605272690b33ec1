//! Packets lost at random, in both directions.

use crate::harness::{Pair, begin};
use denrei_e2e::{Drive, Settings, Sizes};
use std::time::Duration;

/// Longest time for one stream.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends `count` messages of 0 B to 4 MiB on each of three channels, inline and threaded side by side.
fn everything_arrives(name: &'static str, permille: u32, count: u64) {
    let test = begin(name);
    let Some(lab) = test.lab(4, 1500) else { return };
    for host in 0..4 {
        lab.loss(host, permille).unwrap();
    }
    let mixed = Sizes::Mixed { most: 4 << 20 };
    let mut inline = Pair::on(&test, &lab, 0, 1, &Settings::driven(Drive::Inline), mixed);
    let mut thread = Pair::on(&test, &lab, 2, 3, &Settings::driven(Drive::Thread), mixed);
    inline.send(count, 0);
    thread.send(count, 0);
    for (drive, pair) in [("inline", &mut inline), ("thread", &mut thread)] {
        let (took, bytes) = pair.finish(count, LIMIT);
        let rate = bytes as f64 / 1e6 / took.as_secs_f64().max(1e-3);
        let lost = pair.sender.flow(pair.peer).packets_lost;
        assert!(lost > 0, "a path that loses {permille} ‰ has lost nothing");
        test.print(format_args!(
            "{drive}: {} messages, {:.1} MB, {} packets lost, {took:.2?}, {rate:.1} MB/s",
            3 * count,
            bytes as f64 / 1e6,
            lost,
        ));
    }
}

#[test]
fn loss_of_one_in_a_thousand() {
    everything_arrives("loss_of_one_in_a_thousand", 1, 600);
}

#[test]
fn loss_of_one_percent() {
    everything_arrives("loss_of_one_percent", 10, 400);
}

#[test]
fn loss_of_five_percent() {
    everything_arrives("loss_of_five_percent", 50, 300);
}

#[test]
fn loss_of_twenty_percent() {
    everything_arrives("loss_of_twenty_percent", 200, 100);
}
