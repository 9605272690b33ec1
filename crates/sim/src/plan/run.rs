//! Simulates one combination of a plan and measures it.

use super::load::Load;
use super::outcome::{GroupOutcome, Outcome, lost_share};
use super::schedule::{Schedule, lay};
use super::{Cell, Suffered, Workload, greeting, group};
use crate::net::faults::FaultCounts;
use crate::net::link::{LinkSpec, WIRE_OVERHEAD_BYTES};
use crate::net::topology::HostId;
use crate::world::{HostSpec, World};
use core::time::Duration;
use denrei_proto::{Config, PeerCounters};
use denrei_wire::Instant;
use std::sync::Arc;

/// Fewer messages of each flow do not show who got how much.
const COARSE_MESSAGES: u64 = 10;

/// Looks at whether all has arrived, over the time limit.
const LOOKS: u32 = 6_000;

impl Cell {
    /// The settings of every endpoint.
    pub(super) fn config(&self) -> Config {
        let failure_timeout = Duration::from_millis(self.failure_timeout_ms);
        Config {
            channel_credit_bytes: self.channel_credit_bytes,
            offer_above_bytes: self.offer_above_bytes,
            send_buffer_bytes: self.send_buffer_bytes,
            max_ack_delay: Duration::from_micros(self.max_ack_delay_us),
            congestion: self.congestion.into(),
            learn_rates: self.learn_rates,
            ecn: self.ecn,
            failure_timeout,
            keepalive: Config::default().keepalive.map(|usual| usual.min(failure_timeout / 4)),
            ..Config::default()
        }
    }

    pub(super) fn host(&self) -> HostSpec {
        let link = LinkSpec {
            rate_bits_per_s: self.link_mbit * 1_000_000,
            // Half before and half behind the switch.
            delay: Duration::from_nanos((self.delay_us * 500.0) as u64),
            queue_bytes: self.queue_bytes,
            ecn_above_bytes: (self.ecn_above_bytes > 0).then_some(self.ecn_above_bytes),
            max_datagram_bytes: self.link_datagram_bytes,
        };
        let mut host = HostSpec {
            receive_buffer_bytes: self.receive_buffer_bytes,
            service_time: Duration::from_nanos(self.service_ns),
            max_segments: self.segments,
            ..HostSpec::new(link)
        };
        if self.uplink_mbit > 0 {
            host.up.rate_bits_per_s = self.uplink_mbit * 1_000_000;
        }
        host
    }

    /// How long the busiest link towards a host takes for all messages, in full datagrams, µs.
    fn wire_time_us(&self) -> f64 {
        let flows = match self.workload {
            Workload::Stream | Workload::PingPong | Workload::Multicast => 1,
            Workload::Incast | Workload::Mesh => self.hosts as u64 - 1,
        };
        let datagrams = self.message_bytes.div_ceil(self.link_datagram_bytes as u64).max(1);
        let bytes = self.message_bytes + datagrams * WIRE_OVERHEAD_BYTES;
        flows as f64 * self.messages as f64 * bytes as f64 * 8.0 / self.link_mbit as f64
    }

    /// That, and the delay.
    pub(super) fn ideal_us(&self) -> f64 {
        self.wire_time_us() + self.delay_us
    }

    /// What arrived, of what that link carries in this time: a link that every message passes.
    pub(super) fn goodput_of_link(&self, arrived_share: f64, time_s: f64) -> f64 {
        arrived_share * self.wire_time_us() / 1e6 / time_s.max(1e-12)
    }

    /// A round trip through a full queue, or the time limit if that is less: nobody fills a queue without end.
    pub(super) fn full_round_trip(&self) -> Duration {
        let queue_us = self.queue_bytes as f64 * 8.0 / self.link_mbit as f64;
        Duration::from_secs_f64(((2.0 * self.delay_us + queue_us) / 1e6).min(self.time_limit_s))
    }
}

pub(super) fn run(cell: &Cell) -> Outcome {
    if cell.workload == Workload::Multicast {
        return group::run(cell);
    }
    let mut world = World::new(cell.seed);
    let switch = world.add_switch(None);
    let config = Arc::new(cell.config());
    for _ in 0..cell.hosts {
        let host = world.add_host(switch, cell.host());
        world.start(host, config.clone());
    }
    lay(cell, &[], &mut world);
    let mut load = Load::new(cell.workload, cell.hosts, cell.messages, cell.message_bytes, cell.channels);
    if cell.warm && greeting::exchange(cell, &mut world, load.pairs()).is_err() {
        return measure(cell, &mut world, &mut load, &Before::default(), FaultCounts::default());
    }
    let before = Before::now(&world);
    let mut schedule = Schedule::new(cell, config, before.at);
    // A run that gets stuck has not finished, which the row says.
    let mut going = schedule.is_over() || schedule.run_for(Duration::ZERO, &mut world, &mut load).is_ok();
    for host in (0..cell.hosts).map(HostId) {
        world.touch(host, &mut load, |load, now, endpoint| load.send(now, host, endpoint));
    }
    let limit = Duration::from_secs_f64(cell.time_limit_s);
    going &= schedule.run_for(cell.full_round_trip(), &mut world, &mut load).is_ok();
    let first = *world.counts();
    let step = limit / LOOKS;
    for _ in 0..LOOKS {
        let over = load.is_finished() && schedule.is_over();
        if over || !going || world.now().saturating_since(before.at) >= limit {
            break;
        }
        going = schedule.run_for(step, &mut world, &mut load).is_ok();
        load.look_after_losses(&mut world);
    }
    let outcome = measure(cell, &mut world, &mut load, &before, first);
    Outcome { converged: going && schedule.converges(&mut world, &mut load), ..outcome }
}

/// What had happened before time began.
#[derive(Default)]
struct Before {
    at: Instant,
    counts: FaultCounts,
    counters: PeerCounters,
}

impl Before {
    fn now(world: &World) -> Self {
        Self { at: world.now(), counts: *world.counts(), counters: world.session_totals() }
    }
}

fn measure(cell: &Cell, world: &mut World, load: &mut Load, before: &Before, first: FaultCounts) -> Outcome {
    let time_s = load.last_arrival.saturating_since(before.at).as_secs_f64();
    load.latencies_ns.sort_unstable();
    let percentile_us = |share: f64| {
        let at = (load.latencies_ns.len() as f64 * share) as usize;
        load.latencies_ns
            .get(at.min(load.latencies_ns.len().saturating_sub(1)))
            .map_or(0.0, |&ns| ns as f64 / 1e3)
    };
    let (p50_us, p99_us) = (percentile_us(0.50), percentile_us(0.99));
    let shares: Vec<f64> = load.shares.iter().map(|messages| *messages as f64).collect();
    let counters = world.session_totals();
    let counts = *world.counts();
    let ideal_us = cell.ideal_us();
    Outcome {
        finished: load.is_finished() && (load.lost() == 0 || !cell.faults.is_empty()),
        converged: false,
        time_s,
        goodput_bytes_per_s: if time_s > 0.0 { load.received_bytes as f64 / time_s } else { 0.0 },
        goodput_of_link: cell.goodput_of_link(load.arrived_share(), time_s),
        ideal_us,
        p99_of_ideal: (load.is_finished() && load.lost() == 0).then_some(p99_us / ideal_us),
        p50_us: Some(p50_us),
        p99_us: Some(p99_us),
        fairness: (cell.messages >= COARSE_MESSAGES).then(|| jain(&shares)),
        messages_delivered: load.delivered(),
        messages_lost: load.lost(),
        messages_unacknowledged: load.unacknowledged,
        datagrams: counts.sent - before.counts.sent,
        lost_share: lost_share(&counts, &before.counts),
        lost_share_later: Some(lost_share(&counts, &first)),
        retransmissions: Some(counters.retransmissions - before.counters.retransmissions),
        probes: Some(counters.probes - before.counters.probes),
        ecn_marks: Some(counters.ecn_marks - before.counters.ecn_marks),
        deepest_queue_bytes: world.topology().deepest_queue_bytes(),
        lost_peers: load.lost_peers,
        suffered: Suffered::between(&before.counts, &counts),
        group: GroupOutcome::default(),
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
}
