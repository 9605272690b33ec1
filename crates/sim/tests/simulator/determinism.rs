//! One seed, one run, to the byte; and the way of driving does not matter.

use crate::rig::{A, B, C, Rig, config};
use core::time::Duration;
use denrei_sim::scenario::{Subject, run_ops};
use denrei_sim::{HostSpec, LinkSpec};
use std::collections::BTreeSet;

#[test]
fn the_same_seed_gives_the_same_run() {
    for subject in [Subject::Sessions, Subject::Groups] {
        let mut digests = BTreeSet::new();
        for seed in 0..60 {
            let (setup, ops) = subject.generate(seed);
            // A failure has to be the same too.
            let (first, second) = (run_ops(&setup, &ops), run_ops(&setup, &ops));
            assert_eq!(first, second, "seed {seed}");
            digests.extend(first.ok().map(|summary| summary.digest));
        }
        assert!(digests.len() > 40, "seeds differ: {}", digests.len());
    }
}

/// What hosts received, whatever the way of driving: digest over (host, channel, number, size).
fn received(batch: usize, wake_delay_us: u64, segments: usize) -> (u64, u64) {
    let spec = HostSpec {
        batch,
        wake_delay: Duration::from_micros(wake_delay_us),
        max_segments: segments,
        ..HostSpec::new(LinkSpec::LAN)
    };
    let mut rig = Rig::new(3, &spec, config());
    for round in 0..40 {
        for (from, to) in [(A, B), (B, A), (A, C), (C, B)] {
            assert!(rig.send(from, to, (round % 3) as u16, round * 997 % 40_000));
        }
        rig.run_ms(1);
    }
    rig.run_until(2_000, "everything arrives", |rig| rig.received() == 160);
    rig.judge();
    let totals = rig.oracle.totals();
    (totals.received, totals.received_bytes)
}

#[test]
fn batched_and_one_by_one_driving_deliver_the_same_messages() {
    let one_by_one = received(1, 0, 1);
    for (batch, wake_delay_us, segments) in [(1, 0, 64), (8, 5, 1), (64, 50, 16), (1_000, 700, 64)] {
        // The oracle has checked content and order of each message.
        assert_eq!(
            received(batch, wake_delay_us, segments),
            one_by_one,
            "{batch} {wake_delay_us} {segments}"
        );
    }
}
