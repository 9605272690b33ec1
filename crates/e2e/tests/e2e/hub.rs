//! A thousand peers on one port.

use crate::harness::{Test, begin};
use denrei_e2e::{Drive, Order, Report, Settings};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Processes that hold the peers.
const PROCESSES: usize = 4;
/// Times that peers are added.
const STEPS: usize = 3;
/// Memory of a peer that has nothing to say, bytes.
const MEMORY_PER_PEER: u64 = 4096;
/// The same where packets are sealed: keys of both directions, and of those that follow.
const MEMORY_PER_SEALED_PEER: u64 = 6 << 10;
/// The loopback address of all of them. Thousands of ports are a tenth of what the kernel chooses from: at 127.0.0.1,
/// where other tests run at the same time, some would be ports that others still send to or are about to take.
const APART: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 1);
/// Descriptors beyond those of a Node without peers: its connected sockets.
const MORE_DESCRIPTORS: usize = 8;

/// Steps of `step` peers each at a hub that echoes; resident bytes for each peer of the step after the first
/// that took least. What a Node touches once, such as another of a pipeline's buffers, is no peer's.
fn crowd(test: &Test, settings: &Settings, step: usize) -> u64 {
    let mut hub = test.process("hub", "node");
    hub.order(&Order::Echo);
    let of_hub = Settings { drive: Drive::Thread, ..settings.clone() };
    let addr = hub.bind(APART.into(), of_hub);
    let alone = hub.resources();
    let mut leaves: Vec<_> = (0..PROCESSES).map(|number| test.leaves(format!("leaves {number}"))).collect();
    let mut steps = Vec::new();
    for _ in 0..STEPS {
        for process in &mut leaves {
            let settings = settings.clone();
            process.order(&Order::Leaves { count: step / PROCESSES, hub: addr, settings });
        }
        for process in &mut leaves {
            let (problems, millis) = process.wait("echoes", Duration::from_secs(40), |report| match report {
                Report::Echoed { problems, millis, .. } => Some((problems.clone(), *millis)),
                _ => None,
            });
            assert_eq!(problems, [""; 0]);
            test.print(format_args!("{} more peers have their echo after {millis} ms", step / PROCESSES));
        }
        // Idle: acknowledged, and buffers that the exchange needed given back.
        std::thread::sleep(Duration::from_millis(500));
        let resources = hub.resources();
        assert!(resources.descriptors <= alone.descriptors + MORE_DESCRIPTORS, "{resources:?}");
        steps.push(resources);
        assert_eq!(hub.peers(), steps.len() * step);
    }
    hub.expect_no_loss();
    let grown = steps.windows(2).map(|pair| pair[1].rss_bytes.saturating_sub(pair[0].rss_bytes));
    let each = grown.min().expect("there are several") / step as u64;
    let resident: Vec<_> = steps.iter().map(|resources| resources.rss_bytes >> 10).collect();
    test.print(format_args!(
        "resident: {} KiB alone, {resident:?} KiB with {step} more each: {each} bytes per idle peer; {} descriptors",
        alone.rss_bytes >> 10,
        steps[STEPS - 1].descriptors,
    ));
    each
}

#[test]
fn a_thousand_peers_share_one_port() {
    let test = begin("a_thousand_peers_share_one_port");
    let each = crowd(&test, &Settings::default(), 1000);
    assert!(each <= MEMORY_PER_PEER, "{each} bytes per idle peer");
}

#[test]
fn a_thousand_sealed_peers_stay_small() {
    let test = begin("a_thousand_sealed_peers_stay_small");
    let settings = Settings { key: Some([7; 32]), ..Settings::default() };
    let each = crowd(&test, &settings, 500);
    assert!(each <= MEMORY_PER_SEALED_PEER, "{each} bytes per idle peer");
}
