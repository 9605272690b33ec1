//! A thousand peers on one port.

use crate::harness::begin;
use denrei_e2e::{Drive, Order, Report, Settings};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Processes that hold the peers.
const PROCESSES: usize = 4;
/// Peers that come in one step.
const STEP: usize = 1000;
/// Memory of a peer that has nothing to say, bytes.
const MEMORY_PER_PEER: u64 = 4096;
/// Descriptors beyond those of a Node without peers: its connected sockets.
const MORE_DESCRIPTORS: usize = 8;

#[test]
fn a_thousand_peers_share_one_port() {
    let test = begin("a_thousand_peers_share_one_port");
    let mut hub = test.process("hub", "node");
    hub.order(&Order::Echo);
    let addr = hub.bind(Ipv4Addr::LOCALHOST.into(), Settings::driven(Drive::Thread));
    let alone = hub.resources();
    let mut leaves: Vec<_> =
        (0..PROCESSES).map(|number| test.process(format!("leaves {number}"), "leaves")).collect();
    let mut steps = Vec::new();
    for _ in 0..2 {
        for process in &mut leaves {
            process.order(&Order::Leaves { count: STEP / PROCESSES, hub: addr });
        }
        for process in &mut leaves {
            let (wrong, millis) = process.wait("echoes", Duration::from_secs(40), |report| match *report {
                Report::Echoed { wrong, millis, .. } => Some((wrong, millis)),
                _ => None,
            });
            assert_eq!(wrong, 0);
            test.print(format_args!("{} more peers have their echo after {millis} ms", STEP / PROCESSES));
        }
        // Idle: acknowledged, and buffers that the exchange needed given back.
        std::thread::sleep(Duration::from_millis(500));
        let resources = hub.resources();
        assert!(resources.descriptors <= alone.descriptors + MORE_DESCRIPTORS, "{resources:?}");
        steps.push(resources);
        assert_eq!(hub.peers(), steps.len() * STEP);
    }
    hub.expect_no_loss();
    let grown = steps[1].rss_bytes.saturating_sub(steps[0].rss_bytes);
    let each = grown / STEP as u64;
    test.print(format_args!(
        "resident: {} KiB alone, {} KiB with {STEP}, {} KiB with {}: {each} bytes per idle peer; {} descriptors",
        alone.rss_bytes >> 10,
        steps[0].rss_bytes >> 10,
        steps[1].rss_bytes >> 10,
        2 * STEP,
        steps[1].descriptors,
    ));
    assert!(each <= MEMORY_PER_PEER, "{each} bytes per idle peer");
}
