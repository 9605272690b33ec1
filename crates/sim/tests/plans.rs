//! The example plans that come with the project are valid and run.

use denrei_sim::plan::{Cell, Plan, Workload};

fn example(name: &str) -> Plan {
    let path = format!("{}/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    Plan::parse(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn every_example_is_valid_and_its_first_cell_finishes() {
    for (name, cells) in [("pair-loss", 32), ("incast", 30), ("wan", 18)] {
        let plan = example(name);
        assert_eq!(plan.cells.len(), cells, "{name}");
        let row = plan.cells[0].run();
        assert!(row.outcome.finished, "{name}: {row:#?}");
        assert_eq!(row, plan.cells[0].run(), "{name}: the same combination gives the same row");
    }
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

#[test]
fn an_incast_reaches_everyone_fairly() {
    let cell = Cell {
        workload: Workload::Incast,
        hosts: 9,
        messages: 20,
        link_mbit: 1_000,
        delay_us: 20.0,
        ..Cell::default()
    };
    let outcome = cell.run().outcome;
    assert!(outcome.finished, "{outcome:#?}");
    assert!(outcome.fairness > 0.8, "{outcome:#?}");
}
