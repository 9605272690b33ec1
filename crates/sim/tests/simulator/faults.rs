//! What plans say about faults happens, and what it did is told.

use denrei_sim::plan::{Cell, FaultKind, Outcome, Plan, TimedFault, Workload};

/// A second of sending over a slow link, so that faults of milliseconds fall into it.
fn cell() -> Cell {
    Cell {
        messages: 120,
        message_bytes: 20_000,
        link_mbit: 20,
        delay_us: 50.0,
        send_buffer_bytes: 200_000,
        ..Cell::default()
    }
}

fn fault(kind: FaultKind, host: u32, to_s: f64) -> TimedFault {
    TimedFault { kind, hosts: vec![host], from_s: 0.2, to_s, ..TimedFault::default() }
}

/// Runs it, twice: the same combination gives the same row, and everything is at rest in the end.
fn run(cell: Cell) -> Outcome {
    let row = cell.run();
    assert_eq!(row, cell.run(), "a seed gives the same to the byte");
    assert!(row.outcome.finished && row.outcome.converged, "{row:#?}");
    row.outcome
}

fn timed(faults: Vec<TimedFault>) -> Outcome {
    run(Cell { faults, time_limit_s: 100.0, ..cell() })
}

#[test]
fn the_example_plans_finish_and_converge_and_say_the_same_again() {
    for (name, cells) in [("outage", 9), ("faulty-link", 16)] {
        let path = format!("{}/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let plan = Plan::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(plan.cells.len(), cells, "{name}");
        let runs = || plan.cells.iter().map(Cell::run).collect::<Vec<_>>();
        let (first, again) = (runs(), runs());
        for (row, again) in first.iter().zip(&again) {
            assert_eq!((row.to_csv(), row.to_json()), (again.to_csv(), again.to_json()), "{name}");
            assert!(row.outcome.finished && row.outcome.converged, "{name}: {row:#?}");
        }
        assert_eq!(first, again, "{name}");
    }
}

#[test]
fn each_axis_has_a_visible_effect() {
    let plain = run(cell());
    let counted = |outcome: &Outcome| {
        let suffered = outcome.suffered.clone();
        (suffered.duplicated, suffered.reordered, suffered.corrupted)
    };
    assert_eq!(counted(&plain), (0, 0, 0));
    let duplicated = run(Cell { duplicate: 0.1, ..cell() });
    assert!(counted(&duplicated).0 > 100 && duplicated.retransmissions.unwrap() == 0, "{duplicated:#?}");
    let reordered = run(Cell { reorder: 0.1, reorder_us: 5_000.0, ..cell() });
    assert!(counted(&reordered).1 > 100 && reordered.retransmissions.unwrap() > 0, "{reordered:#?}");
    let hardly = run(Cell { reorder: 0.1, reorder_us: 1.0, ..cell() });
    assert!(counted(&hardly).1 > 100 && hardly.retransmissions.unwrap() == 0, "{hardly:#?}");
    let corrupted = run(Cell { corrupt: 0.02, ..cell() });
    assert!(counted(&corrupted).2 > 20 && corrupted.retransmissions.unwrap() > 20, "{corrupted:#?}");
    let late = run(Cell { jitter_us: 20_000.0, ..cell() });
    assert!(late.p50_us.unwrap() > plain.p50_us.unwrap(), "{late:#?}");
    let hole = run(Cell { link_datagram_bytes: 65_535, black_hole_above_bytes: 1_300, ..cell() });
    let whole = run(Cell { link_datagram_bytes: 65_535, ..cell() });
    assert!(hole.suffered.black_holed > whole.suffered.black_holed, "{hole:#?}");
    assert!(hole.datagrams > 4 * whole.datagrams, "{hole:#?}");
    for outcome in [plain, duplicated, reordered, corrupted, late, hole] {
        assert_eq!((outcome.messages_delivered, outcome.messages_lost), (120, 0), "{outcome:#?}");
    }
}

#[test]
fn bursts_lose_what_they_are_told_to_however_thin_they_are() {
    for burst_loss in [1.0, 0.3] {
        let messages = 200_000;
        let cell =
            Cell { messages, message_bytes: 1_000, loss: 0.02, burst_datagrams: 5.0, burst_loss, ..cell() };
        let share = run(Cell { link_mbit: 1_000, ..cell }).lost_share;
        assert!((0.017..0.023).contains(&share), "{burst_loss}: {share}");
    }
}

#[test]
fn a_partition_that_ends_in_time_loses_nothing_and_one_that_does_not_is_told() {
    let short = timed(vec![fault(FaultKind::Partition, 1, 2.0)]);
    assert_eq!((short.messages_delivered, short.messages_lost, short.lost_peers), (120, 0, 0), "{short:#?}");
    assert!(short.suffered.cut > 0 && short.time_s > 2.0, "{short:#?}");
    let long = timed(vec![fault(FaultKind::Partition, 1, 60.0)]);
    assert!(long.messages_lost > 0 && long.lost_peers >= 2 && long.time_s > 60.0, "{long:#?}");
    let sooner =
        Cell { failure_timeout_ms: 1_000, faults: vec![fault(FaultKind::Partition, 1, 2.0)], ..cell() };
    assert!(run(sooner).messages_lost > 0, "who waits for a second gives up after it");
}

/// Each message is sent once: those that a killed process had not had, or not sent, are told, and the restarted
/// one takes part in the rest.
#[test]
fn a_crash_is_told_and_who_was_restarted_takes_part_again() {
    for workload in [Workload::Stream, Workload::PingPong, Workload::Incast, Workload::Mesh] {
        for host in [0, 1] {
            let base = Cell { workload, hosts: 3, time_limit_s: 100.0, ..cell() };
            let all = run(base.clone()).messages_delivered;
            for to_s in [0.25, 30.0] {
                let crashed = run(Cell { faults: vec![fault(FaultKind::Crash, host, to_s)], ..base.clone() });
                let Outcome { messages_delivered, messages_lost, messages_unacknowledged, .. } = crashed;
                assert!(messages_lost > 0 && messages_lost <= messages_unacknowledged, "{crashed:#?}");
                // An answer to a message that is lost is not sent.
                let answers = if workload == Workload::PingPong { messages_lost } else { 0 };
                assert!(messages_delivered + messages_lost + answers >= all, "{crashed:#?}");
                assert!(messages_delivered + messages_lost <= all, "{crashed:#?}");
                assert!(crashed.time_s > to_s && crashed.suffered.host_down > 0, "{crashed:#?}");
            }
        }
    }
}

#[test]
fn a_stopped_process_goes_on_where_it_was() {
    let stopped = timed(vec![fault(FaultKind::Pause, 0, 5.0)]);
    assert_eq!((stopped.messages_delivered, stopped.lost_peers), (120, 0), "{stopped:#?}");
    assert!(stopped.time_s > 5.0, "{stopped:#?}");
}

#[test]
fn a_link_is_bad_for_a_while_and_then_as_the_axes_say() {
    let bad = |loss| TimedFault { loss: Some(loss), ..fault(FaultKind::Link, 0, 0.5) };
    let lossy = timed(vec![bad(0.2)]);
    assert!(lossy.lost_share > 0.01 && lossy.retransmissions.unwrap() > 10, "{lossy:#?}");
    assert_eq!(timed(vec![TimedFault { hosts: vec![1], ..bad(0.0) }]).lost_share, 0.0);
    let healed = run(Cell {
        loss: 0.2,
        faults: vec![TimedFault { to_s: 100.0, ..bad(0.0) }],
        time_limit_s: 100.0,
        ..cell()
    });
    assert!(healed.lost_share > 0.01, "before it begins the axis says it: {healed:#?}");
    let hole =
        TimedFault { from_s: 0.1, black_hole_above_bytes: Some(1_300), ..fault(FaultKind::Link, 0, 0.5) };
    let fast = Cell { messages: 3_000, link_mbit: 1_000, ..cell() };
    let wide = Cell { warm: true, link_datagram_bytes: 8_972, ..fast };
    let (whole, holed) = (run(wide.clone()), run(Cell { faults: vec![hole], ..wide }));
    assert_eq!((holed.messages_delivered, holed.lost_peers), (3_000, 0), "{holed:#?}");
    assert!(holed.suffered.black_holed > whole.suffered.black_holed, "{holed:#?}");
    assert!(holed.datagrams > 2 * whole.datagrams, "the path is found to be narrower: {holed:#?}");
}

#[test]
fn faults_may_overlap_and_a_restarted_host_may_be_cut_off() {
    let faults = vec![
        fault(FaultKind::Crash, 0, 1.0),
        TimedFault { hosts: vec![0, 1], from_s: 0.5, ..fault(FaultKind::Crash, 0, 2.0) },
        TimedFault { from_s: 1.5, ..fault(FaultKind::Partition, 1, 3.0) },
        TimedFault { from_s: 0.0, ..fault(FaultKind::Pause, 0, 4.0) },
    ];
    let cell = Cell { workload: Workload::Mesh, hosts: 3, time_limit_s: 100.0, faults, ..cell() };
    let outcome = run(cell);
    assert_eq!(outcome.messages_delivered + outcome.messages_lost, 720, "{outcome:#?}");
    assert!(outcome.time_s > 4.0, "{outcome:#?}");
}

/// Also a run that is given up ends in a healed network, where what it had sent arrives.
#[test]
fn a_run_that_does_not_finish_converges() {
    let row = Cell { loss: 1.0, time_limit_s: 5.0, ..cell() }.run();
    assert!(!row.outcome.finished && row.outcome.converged, "{row:#?}");
    assert_eq!((row.outcome.messages_delivered, row.outcome.messages_lost), (0, 0), "{row:#?}");
}

#[test]
fn a_group_bears_what_happens_to_its_links_and_members() {
    let base = Cell {
        workload: Workload::Multicast,
        hosts: 9,
        duplicate: 0.05,
        reorder: 0.05,
        corrupt: 0.01,
        time_limit_s: 100.0,
        ..cell()
    };
    let plain = run(base.clone());
    assert!(plain.suffered.corrupted > 0 && plain.group.repairs > Some(0), "{plain:#?}");
    for kind in [FaultKind::Partition, FaultKind::Pause] {
        let outcome = run(Cell { faults: vec![fault(kind, 3, 2.0)], ..base.clone() });
        assert_eq!(outcome.messages_delivered, 8 * 120, "{outcome:#?}");
        assert!(outcome.time_s > 2.0, "{outcome:#?}");
    }
}

/// A zero is a figure: of a group, where nobody looks at single messages or at sessions, there is none.
#[test]
fn what_is_not_measured_of_a_group_is_no_zero() {
    let row = Cell { workload: Workload::Multicast, hosts: 5, messages: 50, loss: 0.0, ..cell() }.run();
    let json: serde_json::Value = serde_json::from_str(&row.to_json()).unwrap();
    for column in ["p50_us", "p99_us", "lost_share_later", "retransmissions", "probes", "ecn_marks"] {
        assert!(json[column].is_null(), "{column}: {json}");
    }
    let Outcome { goodput_of_link, ideal_us, time_s, finished, .. } = row.outcome;
    assert!(finished && 0.5 < goodput_of_link && goodput_of_link < 1.0, "{row:#?}");
    assert!(0.5 < ideal_us / 1e6 / time_s && ideal_us / 1e6 < time_s, "{row:#?}");
}

#[test]
fn a_member_that_was_killed_or_cut_off_for_too_long_is_made_one_again() {
    let base =
        Cell { workload: Workload::Multicast, hosts: 9, messages: 1_000, time_limit_s: 100.0, ..cell() };
    for (kind, to_s) in [(FaultKind::Crash, 0.3), (FaultKind::Crash, 5.0), (FaultKind::Partition, 40.0)] {
        let outcome = run(Cell { faults: vec![fault(kind, 3, to_s)], ..base.clone() });
        let Outcome { messages_delivered, messages_lost, messages_unacknowledged, .. } = outcome;
        assert_eq!(messages_delivered + messages_lost, 8 * 1_000, "{outcome:#?}");
        assert!(messages_lost > 0 && messages_lost <= messages_unacknowledged, "{outcome:#?}");
        assert!(outcome.lost_peers > 0, "{outcome:#?}");
    }
}
