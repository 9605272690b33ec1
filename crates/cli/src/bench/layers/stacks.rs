//! One run: a stack of the paper's layers over a loop-back, and how long a PDU takes.
//!
//! Inputs → outputs: a [`Point`] → nanoseconds per PDU: the time until the user has got back a number
//! of PDUs, divided by it (L8's measure).

use anyhow::{Context, Result, ensure};
use denrei_layers::stacks::ip::{self, Ip};
use denrei_layers::stacks::tp4::{self, Tp4, Tp4Config, Tp4Counters};
use denrei_layers::stacks::user::{Seen, Traffic, User};
use denrei_layers::{Builder, Grouping, Idle, Pdu, Pool, PoolConfig, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// PDUs under way at most: they and their headers stay in a core's cache.
const UNDER_WAY: u64 = 256;
/// A run ends after this time, with what there is: oversubscribed stacks may be very slow.
const RUN_LIMIT: Duration = Duration::from_secs(2);
/// Between two looks of the thread that waits: each takes a core away from a layer.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A machine that is busy must look neither like a loss, where nothing is lost, nor like a stack that stands still.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A header and its checksum.
    Ip,
    /// Credit, acknowledgements, and what is asked for.
    Tp4 {
        /// DTs under way.
        credit: u16,
        /// Keep DTs until acknowledged.
        retain: bool,
        /// Layers, from the top, that compute the checksum over everything.
        checksums: usize,
    },
}

/// Which layers share a thread. The user belongs to the top layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// All layers in one: run to completion.
    Together,
    /// As many threads as cores, or as layers if there are fewer.
    Cores,
    /// A thread for each layer, also beyond the number of cores.
    Each,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub protocol: Protocol,
    pub layers: usize,
    pub threads: Threads,
    /// Octets of user data.
    pub size: usize,
}

impl Point {
    /// Groups of layers, the user among the first.
    pub fn groups(&self) -> Vec<usize> {
        let mut groups = self.layers_by_thread();
        groups[0] += 1;
        groups
    }

    /// Layers in each thread, the top ones first.
    pub fn layers_by_thread(&self) -> Vec<usize> {
        let threads = match self.threads {
            Threads::Together => 1,
            Threads::Cores => self.layers.min(pin::allowed_cores().len().max(1)),
            Threads::Each => self.layers,
        };
        let (each, more) = (self.layers / threads, self.layers % threads);
        // The lower groups are the larger ones: the top one has the user.
        (0..threads).map(|group| each + usize::from(group >= threads - more)).collect()
    }
}

/// What a run was like.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub ns_per_pdu: f64,
    /// PDUs that the time was measured over.
    pub counted: u64,
    /// DTs sent again in all layers, if any were kept for that.
    pub retransmitted: Option<u64>,
}

/// The layers, and the counters of those that keep DTs.
fn with_layers(point: &Point, mut builder: Builder<Pdu>) -> (Builder<Pdu>, Vec<Arc<Tp4Counters>>) {
    let mut keeping = Vec::new();
    for number in 0..point.layers {
        builder = match point.protocol {
            Protocol::Ip => builder.layer(format!("ip{number}"), Ip::new([10, 0, 0, 1], [10, 0, 0, 2])),
            Protocol::Tp4 { credit, retain, checksums } => {
                let head_room = (point.layers - number - 1) * tp4::HEADER_BYTES;
                let checksum = number < checksums;
                let config = Tp4Config {
                    credit,
                    retain,
                    checksum,
                    head_room,
                    retransmit_after: PATIENCE,
                    ..Tp4Config::default()
                };
                let layer = Tp4::new(config, Pool::new(&PoolConfig::uniform(1024)));
                keeping.extend(retain.then(|| layer.counters()));
                builder.layer(format!("tp4-{number}"), layer)
            }
        };
    }
    (builder, keeping)
}

/// How long a run may take that has seen so much: until there is something to measure, longer.
fn limit(seen: &Seen) -> Duration {
    if seen.received.load(Ordering::Relaxed) > 0 { RUN_LIMIT } else { PATIENCE }
}

/// Measures over up to `count` PDUs.
pub fn run(point: &Point, count: u64) -> Result<Run> {
    let header = match point.protocol {
        Protocol::Ip => ip::HEADER_BYTES,
        Protocol::Tp4 { .. } => tp4::HEADER_BYTES,
    };
    let head_room = header * point.layers;
    let warmup = count / 10;
    let traffic = Traffic { warmup, count, bytes: point.size, head_room, under_way: UNDER_WAY };
    let user = User::new(traffic, Pool::new(&PoolConfig::uniform(1024)));
    let seen = user.seen();
    let (builder, keeping) = with_layers(point, Builder::new().layer("user", user));
    // As in the paper threads never sleep; beyond the cores they let each other run.
    let idle = if point.groups().len() > pin::allowed_cores().len() { Idle::Yield } else { Idle::Spin };
    let builder = builder.grouping(Grouping::Sizes(point.groups())).idle(idle).loop_back();
    let began = Instant::now();
    let (stack, _top, _bottom) = builder.start().context("cannot run the layers")?;
    while seen.elapsed_ns.load(Ordering::Acquire) == 0 && began.elapsed() < limit(&seen) {
        std::thread::sleep(LOOK_EVERY);
    }
    let (elapsed_ns, received) =
        (seen.elapsed_ns.load(Ordering::Acquire), seen.received.load(Ordering::Relaxed));
    let all_ns = began.elapsed().as_nanos() as f64;
    let shutdown = stack.shutdown(PATIENCE);
    ensure!(shutdown.dropped == 0 && shutdown.panicked == 0, "the stack lost PDUs: {shutdown:?}, {point:?}");
    ensure!(
        shutdown.drained,
        "{} PDUs were still on their way {PATIENCE:?} after the last was sent: measure when nothing else keeps the \
         cores busy ({point:?})",
        shutdown.left
    );
    ensure!(
        received > 0,
        "no PDU came back within {PATIENCE:?}: measure when nothing else keeps the cores busy ({point:?})"
    );
    let (took_ns, counted) = if elapsed_ns > 0 { (elapsed_ns as f64, count) } else { (all_ns, received) };
    let again = keeping.iter().map(|counters| counters.retransmitted.load(Ordering::Relaxed)).sum();
    let retransmitted = (!keeping.is_empty()).then_some(again);
    Ok(Run { ns_per_pdu: took_ns / counted as f64, counted, retransmitted })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_spread_and_the_user_is_with_the_top_one() {
        let point = |layers, threads| Point { protocol: Protocol::Ip, layers, threads, size: 64 };
        assert_eq!(point(4, Threads::Together).groups(), [5]);
        assert_eq!(point(3, Threads::Each).groups(), [2, 1, 1]);
        let cores = pin::allowed_cores().len();
        assert_eq!(point(4, Threads::Cores).groups().len(), cores.min(4));
        assert_eq!(point(4, Threads::Cores).groups().iter().sum::<usize>(), 5);
    }

    #[test]
    fn a_stack_has_a_time_per_pdu() {
        for protocol in [Protocol::Ip, Protocol::Tp4 { credit: 8, retain: true, checksums: 1 }] {
            let point = Point { protocol, layers: 2, threads: Threads::Cores, size: 256 };
            let run = run(&point, 2_000).unwrap();
            assert!(run.ns_per_pdu > 1.0 && run.counted > 0);
            assert_eq!(run.retransmitted, (protocol != Protocol::Ip).then_some(0));
        }
    }

    #[test]
    fn pdus_for_which_there_is_no_time_are_not_counted() {
        let protocol = Protocol::Tp4 { credit: 8, retain: true, checksums: 4 };
        let point = Point { protocol, layers: 4, threads: Threads::Together, size: 4096 };
        // Four checksums of 4 KiB each: a hundred million take minutes.
        let Run { ns_per_pdu, counted, .. } = run(&point, 100_000_000).unwrap();
        assert!(counted > 0 && counted < 100_000_000, "{counted}");
        assert!(ns_per_pdu * counted as f64 >= RUN_LIMIT.as_nanos() as f64, "{ns_per_pdu} {counted}");
    }
}
