//! The example plans that come with the project are valid and run.

use denrei_sim::plan::{Cell, Congestion, Feedback, Plan, Workload};

fn example(name: &str) -> Plan {
    let path = format!("{}/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Plan::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All to one at once, from as many hosts less one.
fn incast(hosts: u32, messages: u64) -> Cell {
    Cell { workload: Workload::Incast, hosts, messages, ..Cell::default() }
}

/// The same with sessions that are open.
fn warm_incast(hosts: u32, messages: u64) -> Cell {
    Cell { warm: true, ..incast(hosts, messages) }
}

#[test]
fn every_field_and_every_result_is_in_the_book() {
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sim.md");
    let book = std::fs::read_to_string(book).unwrap();
    let row = Cell { messages: 1, ..Cell::default() }.run();
    for (name, _) in row.columns() {
        assert!(book.contains(&format!("`{name}`")), "docs/sim.md lacks {name}");
    }
}

#[test]
fn every_example_is_valid_and_its_first_cell_finishes() {
    let examples = [
        ("pair-loss", 32),
        ("incast", 30),
        ("wan", 18),
        ("shallow", 54),
        ("incast-lan", 108),
        ("incast-wan", 72),
        ("incast-sustained", 48),
        ("incast-loss", 72),
        ("learnt-rates", 96),
        ("multicast", 96),
        ("multicast-shared", 96),
    ];
    for (name, cells) in examples {
        let plan = example(name);
        assert_eq!(plan.cells.len(), cells, "{name}");
        let row = plan.cells[0].run();
        assert!(row.outcome.finished && row.outcome.converged, "{name}: {row:#?}");
        assert_eq!(row, plan.cells[0].run(), "{name}: the same combination gives the same row");
    }
}

/// M10: without loss the opener of a large group hears next to nothing, also in a short transfer.
#[test]
fn a_thousand_members_send_two_reports_for_a_hundred_symbols_at_most() {
    let plan = example("multicast-1024");
    let cell = plan.cells.iter().find(|cell| cell.feedback == Feedback::Parity && cell.loss == 0.0).unwrap();
    let outcome = cell.run().outcome;
    assert!(outcome.finished, "{outcome:#?}");
    assert!(outcome.group.reports_per_100.unwrap() <= 2.0, "{outcome:#?}");
    // 2 MB take 17 ms.
    assert!(outcome.time_s < 0.05, "{outcome:#?}");
}

/// M10: what is lost on its way up a tree of reports is said again (811 ms without), and the losses of all
/// are heard there, also few of each (no parity without).
#[test]
fn a_tree_of_reports_survives_loss_and_tells_of_it() {
    let plan = example("multicast");
    let of = |feedback, loss| {
        let cell =
            plan.cells.iter().find(|c| (c.hosts, c.feedback, c.loss) == (257, feedback, loss)).unwrap();
        cell.run().outcome
    };
    let lossy = of(Feedback::Tree, 0.05);
    assert!(lossy.finished && lossy.time_s < 0.5, "{lossy:#?}");
    let rare = of(Feedback::Parity, 0.001);
    assert!(rare.finished && rare.group.parities > Some(0), "{rare:#?}");
}

#[test]
fn a_loss_free_pair_fills_its_link() {
    let cell = Cell { messages: 400, link_mbit: 1_000, ..Cell::default() };
    let outcome = cell.run().outcome;
    assert!(outcome.finished, "{outcome:#?}");
    // 1,472 of 1,538 bytes on the wire are UDP payload.
    let link = 1e9 / 8.0;
    assert!(outcome.goodput_bytes_per_s > 0.80 * link, "{outcome:#?}");
    assert!(outcome.goodput_bytes_per_s < link, "faster than the wire: {outcome:#?}");
}

/// S12: throughput must not fall beyond 64 KiB.
#[test]
fn throughput_does_not_fall_beyond_64_kib() {
    let goodput = |message_bytes: u64| {
        let messages = (32 << 20) / message_bytes;
        let cell = Cell {
            messages,
            message_bytes,
            link_mbit: 10_000,
            delay_us: 10.0,
            // Room for two of the largest: not the send buffer is measured.
            send_buffer_bytes: 64 << 20,
            ..Cell::default()
        };
        let outcome = cell.run().outcome;
        assert!(outcome.finished, "{message_bytes} bytes: {outcome:#?}");
        outcome.goodput_bytes_per_s
    };
    let at_64_kib = goodput(64 << 10);
    for size in [128 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20] {
        let here = goodput(size);
        assert!(here > 0.9 * at_64_kib, "{size} bytes: {here:.0} B/s, at 64 KiB {at_64_kib:.0}");
    }
}

/// A link of 1 Gbit/s behind half a millisecond of queue, which overflows before its delay is too long: one
/// sender loses no more than it takes to learn that, fills the link, and hears an acknowledgement for each
/// dozen of packets.
#[test]
fn one_sender_does_not_overflow_a_shallow_queue_again_and_again() {
    for message_bytes in [65_536, 1_048_576] {
        let cell = Cell {
            warm: true,
            messages: (32 << 20) / message_bytes,
            message_bytes,
            link_mbit: 1_000,
            uplink_mbit: 20_000,
            delay_us: 20.0,
            jitter_us: 5.0,
            queue_bytes: 65_536,
            ecn_above_bytes: 0,
            ..Cell::default()
        };
        let outcome = cell.run().outcome;
        assert!(outcome.finished && outcome.goodput_of_link > 0.95, "{outcome:#?}");
        assert!(outcome.lost_share_later.unwrap() < 0.000_5, "{outcome:#?}");
        let data = (32 << 20) / 1_400;
        assert!(outcome.datagrams < data * 12 / 10, "{outcome:#?}");
    }
}

/// Decision 113: nor one that is too short to show beside the round trip, nor does chance keep the window below what the
/// link takes.
#[test]
fn over_long_paths_short_queues_do_not_overflow_again_and_again() {
    let plan = example("shallow");
    for (delay_us, queue_bytes, loss, goodput, lost) in [
        (10_000.0, 60_000, 0.0, 0.9, 0.003),
        (1_000.0, 20_000, 0.001, 0.9, 0.03),
        (50_000.0, 60_000, 0.0, 0.6, 0.03),
    ] {
        let is_it = |cell: &&Cell| {
            (cell.delay_us, cell.queue_bytes, cell.loss) == (delay_us, queue_bytes, loss)
                && cell.congestion == Congestion::Delay
        };
        let outcome = plan.cells.iter().find(is_it).unwrap().run().outcome;
        assert!(outcome.finished && outcome.goodput_of_link > goodput, "{outcome:#?}");
        assert!(outcome.lost_share < lost, "{outcome:#?}");
    }
}

#[test]
fn an_incast_reaches_everyone_fairly() {
    let cell = Cell { link_mbit: 1_000, delay_us: 20.0, ..incast(9, 20) };
    let outcome = cell.run().outcome;
    assert!(outcome.finished, "{outcome:#?}");
    // Nothing is lost, so the marks alone tell the receiver that several share its link.
    assert!(outcome.lost_share == 0.0 && outcome.fairness.unwrap() > 0.98, "{outcome:#?}");
    assert!(outcome.goodput_of_link > 0.95, "{outcome:#?}");
}

/// A row that has not finished counts what arrived, and says nothing of those that did not.
#[test]
fn what_has_not_arrived_is_no_goodput() {
    let whole = Cell { link_mbit: 1_000, delay_us: 20.0, ..warm_incast(9, 40) };
    let all = whole.run().outcome;
    let half = Cell { time_limit_s: all.time_s / 2.0, ..whole.clone() }.run().outcome;
    assert!(all.finished && all.p99_of_ideal.is_some(), "{all:#?}");
    assert!(!half.finished && half.p99_of_ideal.is_none(), "{half:#?}");
    assert!((0.8..1.0).contains(&half.goodput_of_link), "{half:#?}");
    let none = Cell { time_limit_s: 1e-5, ..whole }.run().outcome;
    assert_eq!((none.goodput_of_link, none.p99_of_ideal), (0.0, None), "{none:#?}");
}

/// What a host that is killed had sent again counts, also where sessions were open before.
#[test]
fn counters_of_killed_hosts_are_not_lost() {
    let plan = "name = 'killed'\n[axes]\nworkload = 'incast'\nwarm = [true, false]\nhosts = 5\nmessages = 20\n\
        loss = 0.2\n[[faults]]\nkind = 'crash'\nhosts = [0, 1, 2, 3, 4]\nfrom_s = 0.1\nto_s = 0.15";
    for cell in &Plan::parse(plan).unwrap().cells {
        let outcome = cell.run().outcome;
        assert!(outcome.converged && outcome.lost_share > 0.1, "{outcome:#?}");
        let lost = (outcome.lost_share * outcome.datagrams as f64) as u64;
        assert!(
            (lost / 4..lost * 4).contains(&outcome.retransmissions.unwrap()),
            "{lost} lost: {outcome:#?}"
        );
        assert!((1..outcome.datagrams).contains(&outcome.probes.unwrap()), "{outcome:#?}");
    }
}

/// Processes of a busy machine run for some milliseconds, and wait for many: that is no queue of the path's, and to send
/// less does not make it shorter.
#[test]
fn a_group_of_processes_that_wait_for_their_cores_goes_on() {
    let mut state = 1u64;
    let mut draw = |range: core::ops::Range<u64>| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        range.start + (state >> 33) % (range.end - range.start)
    };
    let mut plan = "name = 'busy'\n[axes]\nworkload = 'multicast'\nhosts = 4\nloss = 0.01\nmessages = 32\n\
        message_bytes = 262144\nlink_mbit = 10000\ntime_limit_s = 8\n"
        .to_owned();
    for host in 0..4 {
        let mut at = draw(0..2);
        while at < 7_900 {
            let end = at + draw(5..60);
            let (from_s, to_s) = (at as f64 / 1e3, end as f64 / 1e3);
            plan +=
                &format!("[[faults]]\nkind = 'pause'\nhosts = [{host}]\nfrom_s = {from_s}\nto_s = {to_s}\n");
            at = end + draw(1..8);
        }
    }
    let outcome = Plan::parse(&plan).unwrap().cells[0].run().outcome;
    assert!(outcome.finished && outcome.converged, "{outcome:#?}");
}

/// A receiver that has a short look between 50 ms of computing, or 200, or a second, is no queue: the window is not made
/// small for it, nor for the silence, and what comes is acknowledged at once.
#[test]
fn a_receiver_that_computes_is_sent_what_it_has_room_for() {
    for (period_ms, time_limit_s) in [(50, 1.0), (200, 4.0), (1_000, 13.0)] {
        let mut plan = format!(
            "name = 'computes'\n[axes]\nworkload = 'incast'\nhosts = 2\nmessages = 4\nmessage_bytes = 1048576\n\
             link_mbit = 10000\ndelay_us = 50.0\nqueue_bytes = 4194304\ntime_limit_s = {time_limit_s}\n"
        );
        for at in (0..(time_limit_s * 1e3) as u64 - 1).step_by(period_ms) {
            let (from_s, to_s) = ((at as f64 + 0.1) / 1e3, (at + period_ms as u64) as f64 / 1e3);
            plan += &format!("[[faults]]\nkind = 'pause'\nhosts = [0]\nfrom_s = {from_s}\nto_s = {to_s}\n");
        }
        let outcome = Plan::parse(&plan).unwrap().cells[0].run().outcome;
        assert!(outcome.finished && outcome.converged, "{outcome:#?}");
    }
}

/// With sessions open and room for everyone's first flight, a gather takes little more than its
/// link's own time, whatever the rate of the link.
#[test]
fn a_warm_incast_takes_little_more_than_the_link() {
    for link_mbit in [1_000, 10_000, 25_000, 100_000] {
        let cell = Cell {
            link_mbit,
            delay_us: 2.0,
            queue_bytes: 262_144,
            ecn_above_bytes: 65_536,
            ..warm_incast(17, 12)
        };
        let outcome = cell.run().outcome;
        assert!(outcome.finished, "{outcome:#?}");
        assert!(outcome.goodput_of_link > 0.8 && outcome.goodput_of_link < 1.0, "{outcome:#?}");
        assert!((0.95..1.3).contains(&outcome.p99_of_ideal.unwrap()), "{outcome:#?}");
        assert!(outcome.lost_share_later.unwrap() < 0.01, "{outcome:#?}");
        assert!(outcome.fairness.unwrap() > 0.98, "{outcome:#?}");
    }
}

/// What is lost by chance is no overflow: who shares out what its link carries goes on to do so, and those whose
/// grants were lost with their data hold nobody up.
#[test]
fn a_crowd_that_loses_by_chance_fills_its_link_all_the_same() {
    for (hosts, link_mbit, least) in [(17, 1_000, 0.85), (65, 1_000, 0.85), (65, 10_000, 0.65)] {
        let cell = Cell {
            message_bytes: 1_048_576,
            link_mbit,
            loss: 0.05,
            queue_bytes: 262_144,
            ..warm_incast(hosts, 8)
        };
        let outcome = cell.run().outcome;
        assert!(outcome.finished && outcome.goodput_of_link > least, "{outcome:#?}");
        assert!(outcome.lost_share_later.unwrap() < 0.06, "{outcome:#?}");
        assert!(outcome.fairness.is_none_or(|fairness| fairness > 0.98), "{outcome:#?}");
    }
}

/// What was lost while paths' sizes were searched for is no overrun when sessions that were idle since send
/// together, and opening a session over a long path makes no window small: 64 KiB take three flights, and so do
/// those of sixteen.
#[test]
fn a_gather_over_long_paths_takes_as_many_round_trips_as_one_message() {
    for delay_us in [10_000.0, 100_000.0] {
        let cell = |hosts| Cell {
            link_mbit: 10_000,
            delay_us,
            queue_bytes: 4 << 20,
            ecn_above_bytes: 0,
            ..warm_incast(hosts, 1)
        };
        let (one, sixteen) = (cell(2).run().outcome, cell(17).run().outcome);
        assert!(one.finished && one.p99_us.unwrap() < 5.1 * delay_us, "{one:#?}");
        assert!(sixteen.finished && sixteen.p99_us.unwrap() < 5.5 * delay_us, "{sixteen:#?}");
    }
}

/// S11: once their first windows have overflowed the queue, senders over a path that holds more than the queue
/// fill their link by what they are granted, without a slow start and without losing any more.
#[test]
fn a_crowd_over_a_long_path_fills_its_link() {
    for (delay_us, most_of_ideal) in [(200.0, 1.1), (1_000.0, 1.3)] {
        let cell = Cell {
            message_bytes: 256 << 10,
            link_mbit: 10_000,
            delay_us,
            queue_bytes: 1 << 20,
            ecn_above_bytes: 0,
            ..warm_incast(129, 1)
        };
        let outcome = cell.run().outcome;
        assert!(outcome.finished && outcome.p99_of_ideal.unwrap() < most_of_ideal, "{outcome:#?}");
        assert!(outcome.lost_share > 0.0 && outcome.lost_share_later.unwrap() == 0.0, "{outcome:#?}");
        assert_eq!(outcome.probes.unwrap(), 0, "{outcome:#?}");
    }
}

/// S11: a crowd whose windows are marked long before the path is full. Its receiver finds out how much more comes.
#[test]
fn a_crowd_that_is_marked_early_fills_its_path_all_the_same() {
    let cell = Cell {
        link_mbit: 25_000,
        delay_us: 100.0,
        queue_bytes: 256 << 10,
        ecn_above_bytes: 64 << 10,
        ..warm_incast(17, 12)
    };
    let outcome = cell.run().outcome;
    assert!(outcome.finished && outcome.lost_share == 0.0, "{outcome:#?}");
    assert!(outcome.goodput_of_link > 0.6 && outcome.fairness.unwrap() > 0.98, "{outcome:#?}");
}

/// S11: what was lost of first windows is granted again before its senders know that it was lost.
#[test]
fn what_overflowed_on_a_long_path_is_not_asked_for_a_round_trip_later() {
    let cell = Cell {
        link_mbit: 10_000,
        delay_us: 10_000.0,
        queue_bytes: 512 << 10,
        ecn_above_bytes: 0,
        ..warm_incast(129, 1)
    };
    let outcome = cell.run().outcome;
    assert!(outcome.finished && outcome.lost_share_later.unwrap() == 0.0, "{outcome:#?}");
    assert!(outcome.p99_us.unwrap() < 8.0 * cell.delay_us, "{outcome:#?}");
}

/// A cold start of a thousand senders behind a small queue is no collapse: all arrives.
#[test]
fn a_thousand_senders_all_arrive() {
    let cell = Cell { message_bytes: 4_096, queue_bytes: 65_536, time_limit_s: 20.0, ..incast(1_025, 1) };
    let outcome = cell.run().outcome;
    assert!(outcome.finished, "{outcome:#?}");
    assert_eq!(outcome.lost_peers, 0, "{outcome:#?}");
    assert!(outcome.fairness.is_none(), "one message each shows no shares");
}

/// R12, R13: a host slower than its link, with a small buffer, and senders without a window. It sets
/// rates that it can keep up with, and even ones. What it takes to learn them counts here as well.
#[test]
fn a_slow_host_learns_what_it_can_receive() {
    let takes = 1_400.0 / 100e-6;
    for (hosts, messages) in [(2, 20_000), (5, 5_000)] {
        let cell = Cell {
            message_bytes: 1_400,
            link_mbit: 1_000,
            delay_us: 20.0,
            receive_buffer_bytes: 84_000,
            service_ns: 100_000,
            segments: 1,
            congestion: Congestion::RateOnly,
            learn_rates: true,
            send_buffer_bytes: 256 << 10,
            ..warm_incast(hosts, messages)
        };
        let outcome = cell.run().outcome;
        assert!(outcome.finished, "{outcome:#?}");
        assert!(outcome.goodput_bytes_per_s > 0.75 * takes, "{outcome:#?}");
        assert!(outcome.lost_share_later.unwrap() < 0.05, "{outcome:#?}");
        assert!(outcome.fairness.unwrap() > 0.98, "{outcome:#?}");
    }
}
