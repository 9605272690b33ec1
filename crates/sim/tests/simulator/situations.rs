//! Single situations, each with the property that the design promises for it.

use crate::rig::{A, B, C, Rig, config};
use core::time::Duration;
use denrei_proto::{CongestionAlgorithm, LostReason};
use denrei_sim::{Burst, Faults, HostSpec, LinkSpec};

fn lan() -> HostSpec {
    HostSpec::new(LinkSpec::LAN)
}

fn slow() -> HostSpec {
    HostSpec::new(LinkSpec { rate_bits_per_s: 10_000_000, ..LinkSpec::LAN })
}

#[test]
fn a_partition_shorter_than_the_failure_timeout_is_survived() {
    let mut rig = Rig::new(2, &lan(), config());
    rig.send(A, B, 0, 100);
    rig.run_ms(10);
    rig.world.cut(A, B);
    for number in 0..20 {
        assert!(rig.send(A, B, number % 3, 10_000));
    }
    rig.run_ms(1_500);
    assert_eq!(rig.received(), 1, "nothing crosses the partition");
    rig.world.heal();
    // No hardship was noted: a lost session would be a failure of its own.
    rig.run_until(1_000, "everything arrives", |rig| rig.received() == 21);
    rig.judge();
}

#[test]
fn a_partition_longer_than_the_failure_timeout_is_told() {
    let mut rig = Rig::new(2, &lan(), config());
    rig.send(A, B, 0, 100);
    rig.run_ms(10);
    rig.oracle.note_hardship();
    rig.world.cut(A, B);
    rig.send(A, B, 0, 200);
    rig.run_until(3_000, "both sides notice", |rig| rig.oracle.totals().lost_sessions == 2);
    assert_eq!(rig.oracle.totals().unacknowledged, 1);
    rig.world.heal();
    rig.send(A, B, 0, 300);
    rig.run_until(1_000, "a new session works", |rig| rig.received() == 2);
    rig.judge();
}

/// In runs of random faults nearly all know hardship, and what is lost when all is well again is a fault all the same.
#[test]
fn past_hardship_excuses_no_loss_in_a_healed_network() {
    let mut rig = Rig::new(2, &lan(), config());
    rig.send(A, B, 0, 100);
    rig.oracle.note_hardship();
    rig.oracle.note_healed(rig.world.now());
    rig.run_ms(6_000);
    // Nobody was told of it.
    rig.world.cut(A, B);
    rig.world.run_for(Duration::from_secs(3), &mut rig.oracle).unwrap();
    let failure = rig.oracle.failure().expect("the oracle sees that a session was lost");
    assert!(failure.contains("not true: TimedOut"), "{failure}");
}

#[test]
fn a_path_that_turns_into_a_black_hole_is_survived() {
    let link = LinkSpec { max_datagram_bytes: 8_972, ..LinkSpec::LAN };
    let mut rig = Rig::new(2, &HostSpec::new(link), config());
    for _ in 0..200 {
        rig.send(A, B, 0, 100_000);
        rig.run_ms(5);
    }
    let before = rig.flow(A, B).unwrap().datagram_bytes;
    assert!(before > 1_472, "the path's size is found: {before}");
    rig.world.set_faults(B, Faults { black_hole_above: Some(1_472), ..Faults::default() });
    for _ in 0..10 {
        rig.send(A, B, 0, 100_000);
    }
    rig.run_until(10_000, "traffic goes on", |rig| rig.received() == 210);
    let after = rig.flow(A, B).unwrap().datagram_bytes;
    assert!(after <= 1_472, "the hole is noticed: {after}");
    rig.judge();
}

#[test]
fn a_path_below_the_base_size_carries_large_messages_too() {
    for max_datagram_bytes in [1_199, 672, 576] {
        let mut rig = Rig::new(2, &lan(), config());
        rig.world.set_faults(B, Faults { black_hole_above: Some(max_datagram_bytes), ..Faults::default() });
        // The first packet of all is filled up, too.
        for _ in 0..20 {
            assert!(rig.send(A, B, 0, 100_000) && rig.send(B, A, 0, 100_000));
        }
        rig.run_until(2_000, "all of it arrives", |rig| rig.received() == 40);
        for (from, to) in [(A, B), (B, A)] {
            let found = rig.flow(from, to).unwrap().datagram_bytes;
            assert!((576..=max_datagram_bytes).contains(&found), "{found} of {max_datagram_bytes}");
        }
        rig.judge();
    }
}

/// Where a round trip is long there is one probe within the failure timeout.
#[test]
fn a_long_path_below_the_base_size_is_survived_with_little_patience() {
    let link = LinkSpec { delay: Duration::from_millis(45), ..LinkSpec::LAN };
    let impatient =
        denrei_proto::Config { failure_timeout: Duration::from_secs(1), keepalive: None, ..config() };
    let mut rig = Rig::new(2, &HostSpec::new(link), impatient);
    rig.world.set_faults(B, Faults { black_hole_above: Some(576), ..Faults::default() });
    rig.send(A, B, 0, 100);
    rig.run_until(1_000, "the round trip is measured", |rig| rig.flow(A, B).unwrap().srtt_ns.is_some());
    rig.send(A, B, 0, 100_000);
    rig.run_until(20_000, "it arrives", |rig| rig.received() == 2);
    rig.judge();
}

#[test]
fn a_path_that_falls_below_the_base_size_carries_messages_of_less() {
    let mut rig = Rig::new(2, &lan(), config());
    let bytes = |rig: &Rig| rig.flow(A, B).unwrap().datagram_bytes;
    rig.send(A, B, 0, 100_000);
    rig.run_until(100, "the path's size is found", |rig| rig.received() == 1 && bytes(rig) == 1_472);
    rig.world.set_faults(B, Faults { black_hole_above: Some(576), ..Faults::default() });
    // Nothing larger than the base is ever sent.
    rig.send(A, B, 0, 868);
    rig.run_until(2_000, "it arrives", |rig| rig.received() == 2);
    rig.judge();
}

#[test]
fn a_silence_does_not_leave_small_datagrams_behind() {
    let patient = denrei_proto::Config { failure_timeout: Duration::from_secs(20), ..config() };
    let mut rig = Rig::new(2, &lan(), patient);
    let bytes = |rig: &Rig| rig.flow(A, B).unwrap().datagram_bytes;
    rig.send(A, B, 0, 100_000);
    rig.run_until(100, "the path's size is found", |rig| rig.received() == 1 && bytes(rig) == 1_472);
    rig.world.cut(A, B);
    rig.send(A, B, 0, 100_000);
    rig.run_until(15_000, "smaller ones are tried", |rig| bytes(rig) < 1_472);
    rig.world.heal();
    rig.run_until(2_000, "the path's size is found again", |rig| bytes(rig) == 1_472);
    rig.judge();
}

#[test]
fn a_restarted_peer_is_a_new_one() {
    let mut rig = Rig::new(2, &lan(), config());
    rig.send(A, B, 0, 100);
    rig.run_ms(10);
    rig.crash(B);
    rig.send(A, B, 0, 200);
    rig.run_ms(20);
    rig.start(B);
    rig.run_until(3_000, "the loss is told", |rig| rig.oracle.totals().lost_sessions == 1);
    let allowed = [LostReason::Restarted, LostReason::Forgotten, LostReason::TimedOut];
    let told = rig.oracle.lost_reasons();
    assert!(told.iter().all(|reason| allowed.contains(reason)), "{told:?}");
    assert_eq!(rig.oracle.totals().unacknowledged, 1);
    rig.send(A, B, 0, 300);
    rig.run_until(1_000, "the new incarnation is reached", |rig| rig.received() == 2);
    rig.judge();
}

#[test]
fn a_slow_reader_stops_its_own_sender_and_no_other() {
    let mut rig = Rig::new(3, &lan(), config());
    rig.set_reading(B, false);
    let mut refused = 0;
    for _ in 0..200 {
        refused += !rig.send(A, B, 0, 100_000) as u32;
        assert!(rig.send(A, C, 0, 10_000), "the other receiver is not held up");
        rig.run_ms(1);
    }
    assert!(refused > 0, "the sender is told to wait");
    assert_eq!(rig.received(), 200, "all for the one who reads");
    let credit = rig.config.channel_credit_bytes;
    let unread = rig.flow(B, A).unwrap().unread_bytes;
    assert!(unread <= credit, "{unread} bytes unread, {credit} were granted");
    rig.set_reading(B, true);
    rig.run_until(2_000, "the rest arrives", |rig| rig.received() == 400 - refused as u64);
    rig.judge();
}

#[test]
fn an_urgent_channel_overtakes_bulk() {
    let mut rig = Rig::new(2, &slow(), config());
    rig.send(A, B, 1, 100);
    rig.run_ms(50);
    rig.world.touch(A, &mut rig.oracle, |oracle, _, endpoint| oracle.set_priority(A, endpoint, B, 1, 0));
    // 5 MB at 10 Mb/s: 4 s of bulk.
    for _ in 0..5 {
        assert!(rig.send(A, B, 0, 1_000_000));
    }
    rig.run_ms(100);
    let before = rig.received();
    rig.send(A, B, 1, 100);
    // What is in the sender's socket buffer (256 KiB, 0.2 s) goes first.
    rig.run_until(400, "the urgent message arrives", |rig| rig.received() > before);
    assert!(rig.flow(A, B).unwrap().queued_bytes > 2_000_000, "while bulk still waits");
    rig.run_until(10_000, "bulk arrives", |rig| rig.received() == 7);
    rig.judge();
}

#[test]
fn a_process_stopped_for_longer_than_the_failure_timeout_does_not_blame_its_peers() {
    let mut rig = Rig::new(3, &lan(), config());
    rig.send(A, B, 0, 100);
    rig.run_ms(100);
    rig.oracle.note_hardship();
    rig.world.pause(A);
    rig.run_ms(5_000);
    rig.world.resume(A, &mut rig.oracle);
    rig.run_ms(100);
    rig.send(A, B, 0, 200);
    rig.run_until(5_000, "traffic goes on", |rig| rig.received() == 2);
    rig.judge();
}

#[test]
fn heavy_bursty_loss_duplication_reordering_and_corruption_lose_nothing() {
    for congestion in [CongestionAlgorithm::Delay, CongestionAlgorithm::Cubic] {
        let mut rig = Rig::new(2, &lan(), denrei_proto::Config { congestion, ..config() });
        let faults = Faults {
            loss: 0.05,
            burst: Some(Burst { enter: 0.01, leave: 0.2, loss: 1.0 }),
            duplicate: 0.1,
            reorder: 0.1,
            reorder_delay: Duration::from_millis(2),
            corrupt: 0.02,
            jitter: Duration::from_micros(300),
            ..Faults::default()
        };
        rig.world.set_faults(B, faults);
        for number in 0..300 {
            rig.send(A, B, number % 4, 1 + number as usize * 37);
            rig.run_ms(2);
        }
        rig.run_until(20_000, "everything arrives", |rig| rig.received() == 300);
        let counts = *rig.world.counts();
        for (name, count) in counts.entries() {
            let expected = ["lost", "lost_in_burst", "duplicated", "reordered", "corrupted"].contains(&name);
            assert!(!expected || count > 0, "{name} never happened");
        }
        rig.judge();
    }
}

#[test]
fn the_smallest_receive_buffer_loses_nothing() {
    // U8: 18,032 bytes.
    let mut rig = Rig::new(2, &HostSpec { receive_buffer_bytes: 18_032, ..lan() }, config());
    for size in [16, 256, 1_024] {
        for _ in 0..500 {
            assert!(rig.send(A, B, 0, size));
        }
    }
    rig.run_until(5_000, "the burst arrives", |rig| rig.received() == 1_500);
    rig.judge();
}
