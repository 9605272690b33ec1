//! Simulates one combination of a plan and measures it.

use super::Cell;
use super::load::Load;
use crate::net::faults::{Burst, Faults};
use crate::net::link::LinkSpec;
use crate::net::topology::HostId;
use crate::world::{HostSpec, World};
use core::time::Duration;
use denrei_proto::{Config, PeerCounters};
use denrei_wire::Instant;
use serde::Serialize;
use std::sync::Arc;

/// Looks at whether all has arrived, over the time limit.
const LOOKS: u32 = 6_000;

/// What came of a combination. Sums are over all hosts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Everything arrived within the time limit.
    pub finished: bool,
    /// Virtual time from the first send to the last arrival, s.
    pub time_s: f64,
    /// Bytes of messages that arrived, per second.
    pub goodput_bytes_per_s: f64,
    /// Time from sending to arrival, median, µs. Of ping-pong: one way.
    pub p50_us: f64,
    /// The same, 99th percentile.
    pub p99_us: f64,
    /// Jain's index of the flows' rates: 1 is fair, 1/n is one flow taking all.
    pub fairness: f64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams lost on links, in queues and in receive buffers, of all sent.
    pub lost_share: f64,
    /// Fragments and messages sent again.
    pub retransmissions: u64,
    /// Probes fired.
    pub probes: u64,
    /// Datagrams marked with congestion.
    pub ecn_marks: u64,
    /// Deepest queue of any switch port or host, bytes.
    pub deepest_queue_bytes: u64,
    /// Sessions lost.
    pub lost_peers: u64,
    /// Fingerprint of the run: equal for equal combinations and equal code. As text, because JSON's
    /// numbers do not hold 64 bits.
    pub digest: String,
}

impl Cell {
    /// The settings of every endpoint.
    pub(super) fn config(&self) -> Config {
        Config {
            channel_credit_bytes: self.channel_credit_bytes,
            offer_above_bytes: self.offer_above_bytes,
            send_buffer_bytes: self.send_buffer_bytes,
            max_ack_delay: Duration::from_micros(self.max_ack_delay_us),
            congestion: self.congestion.into(),
            ecn: self.ecn,
            ..Config::default()
        }
    }

    fn host(&self) -> HostSpec {
        let link = LinkSpec {
            rate_bits_per_s: self.link_mbit * 1_000_000,
            // Half before and half behind the switch.
            delay: Duration::from_nanos((self.delay_us * 500.0) as u64),
            queue_bytes: self.queue_bytes,
            ecn_above_bytes: (self.ecn_above_bytes > 0).then_some(self.ecn_above_bytes),
            max_datagram_bytes: self.link_datagram_bytes,
        };
        HostSpec {
            receive_buffer_bytes: self.receive_buffer_bytes,
            service_time: Duration::from_nanos(self.service_ns),
            max_segments: self.segments,
            ..HostSpec::new(link)
        }
    }

    fn faults(&self) -> Faults {
        let healthy =
            Faults { jitter: Duration::from_nanos((self.jitter_us * 1e3) as u64), ..Faults::default() };
        if self.burst_datagrams <= 1.0 || self.loss >= 1.0 {
            return Faults { loss: self.loss, ..healthy };
        }
        // In the long run the link is bad for enter / (enter + leave) of the datagrams.
        let leave = 1.0 / self.burst_datagrams;
        let enter = leave * self.loss / (1.0 - self.loss);
        Faults { burst: (self.loss > 0.0).then_some(Burst { enter, leave, loss: 1.0 }), ..healthy }
    }
}

pub(super) fn run(cell: &Cell) -> Outcome {
    let mut world = World::new(cell.seed);
    let switch = world.add_switch(None);
    let config = Arc::new(cell.config());
    for _ in 0..cell.hosts {
        let host = world.add_host(switch, cell.host());
        world.topology().downlink(host).faults = cell.faults();
        world.start(host, config.clone());
    }
    let mut load = Load::new(cell.workload, cell.hosts, cell.messages, cell.message_bytes, cell.channels);
    let hosts = (0..cell.hosts).map(HostId);
    for host in hosts.clone() {
        world.touch(host, &mut load, |load, now, endpoint| load.send(now, host, endpoint));
    }
    let step = Duration::from_secs_f64(cell.time_limit_s) / LOOKS;
    for _ in 0..LOOKS {
        // A run that gets stuck has not finished, which the row says.
        if load.is_finished() || world.run_for(step, &mut load).is_err() {
            break;
        }
    }
    let counters = hosts.filter_map(|host| world.endpoint(host)).flat_map(|endpoint| {
        endpoint.peers().filter_map(|peer| endpoint.flow(peer)).map(|flow| flow.counters)
    });
    let counters = counters.fold(PeerCounters::default(), |mut sum, peer| {
        sum.retransmissions += peer.retransmissions;
        sum.probes += peer.probes;
        sum.ecn_marks += peer.ecn_marks;
        sum
    });
    measure(&mut world, &mut load, &counters)
}

fn measure(world: &mut World, load: &mut Load, counters: &PeerCounters) -> Outcome {
    let time_s = load.last_arrival.saturating_since(Instant::ZERO).as_secs_f64();
    load.latencies_ns.sort_unstable();
    let percentile_us = |share: f64| {
        let at = (load.latencies_ns.len() as f64 * share) as usize;
        load.latencies_ns
            .get(at.min(load.latencies_ns.len().saturating_sub(1)))
            .map_or(0.0, |&ns| ns as f64 / 1e3)
    };
    let rates = load.flows.values().map(|flow| {
        flow.finished_at.map_or(0.0, |at| 1.0 / at.saturating_since(Instant::ZERO).as_secs_f64().max(1e-9))
    });
    let counts = *world.counts();
    let lost = counts.lost + counts.lost_in_burst + counts.queue_full + counts.receive_buffer_full;
    Outcome {
        finished: load.is_finished(),
        time_s,
        goodput_bytes_per_s: if time_s > 0.0 { load.received_bytes as f64 / time_s } else { 0.0 },
        p50_us: percentile_us(0.50),
        p99_us: percentile_us(0.99),
        fairness: jain(&rates.collect::<Vec<_>>()),
        datagrams: counts.sent,
        lost_share: lost as f64 / (counts.sent as f64).max(1.0),
        retransmissions: counters.retransmissions,
        probes: counters.probes,
        ecn_marks: counters.ecn_marks,
        deepest_queue_bytes: world.topology().deepest_queue_bytes(),
        lost_peers: load.lost_peers,
        digest: format!("{:016x}", world.digest()),
    }
}

/// Jain, Chiu, Hawe 1984: (Σx)² / (n Σx²).
fn jain(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
    if squares == 0.0 { 0.0 } else { sum * sum / (rates.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_is_one_for_equals_and_one_nth_for_a_single_winner() {
        assert!((jain(&[3.0, 3.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain(&[0.0]), 0.0);
    }

    #[test]
    fn bursty_loss_has_the_share_asked_for() {
        let burst = Cell { loss: 0.02, burst_datagrams: 5.0, ..Cell::default() }.faults().burst.unwrap();
        assert!((burst.enter / (burst.enter + burst.leave) - 0.02).abs() < 1e-12);
    }
}
