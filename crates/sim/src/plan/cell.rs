//! One combination of an experiment: its fields and their defaults.
//!
//! Inputs → outputs: the values of a plan → a [`Cell`] → what happened. What the values may be: `limits.rs`.

use super::faults::TimedFault;
use super::run;
use super::{Congestion, Feedback, Row, Workload};
use serde::{Deserialize, Serialize};

/// One combination: everything that determines a run. Fields that a plan does not name have the
/// values of [`Cell::default`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cell {
    /// Who sends what to whom.
    pub workload: Workload,
    /// Whether all sessions are open, and their paths' sizes known, before time begins. Else the
    /// first messages open them.
    pub warm: bool,
    /// How many hosts, at one switch. 2 ..= 20,000, with the workload `mesh` 2 ..= 2,000.
    pub hosts: u32,
    /// Messages that each sender sends to each of its receivers.
    pub messages: u64,
    /// Their size, bytes; at most 1 GiB.
    pub message_bytes: u64,
    /// Channels they are spread over, in turn. 1 ..= 1,024.
    pub channels: u16,
    /// Rate of every link, Mbit/s.
    pub link_mbit: u64,
    /// Rate of the hosts' links to the switch where it is another one, Mbit/s; 0: `link_mbit`.
    pub uplink_mbit: u64,
    /// Propagation delay from host to host, µs.
    pub delay_us: f64,
    /// Longest extra delay of a datagram on the way to a host, µs; order is kept.
    pub jitter_us: f64,
    /// Queue of every switch port, bytes.
    pub queue_bytes: u64,
    /// Queue above which the switch marks, bytes; 0: never.
    pub ecn_above_bytes: u64,
    /// Largest datagram that the links carry, bytes of UDP payload, at least 576.
    pub link_datagram_bytes: u16,
    /// Loss of datagrams on the way to a host, 0.0 ..= 1.0.
    pub loss: f64,
    /// Loss of datagrams on host 0's own cable, which all miss that it was for, 0.0 ..= 1.0.
    pub shared_loss: f64,
    /// What keeps the reports of the workload `multicast` few.
    pub feedback: Feedback,
    /// Mean length of a burst of lost datagrams, 1 ..= 10⁶; 1: losses are independent.
    pub burst_datagrams: f64,
    /// Loss within a burst, above 0.0 and up to 1.0. `loss` is what is lost in the long run all the same.
    pub burst_loss: f64,
    /// Datagrams that arrive at a host twice, 0.0 ..= 1.0.
    pub duplicate: f64,
    /// Datagrams held back on the way to a host while later ones overtake, 0.0 ..= 1.0.
    pub reorder: f64,
    /// Longest time that a duplicated or reordered datagram is held back, µs.
    pub reorder_us: f64,
    /// Datagrams on the way to a host of which one to three bits are flipped, 0.0 ..= 1.0.
    pub corrupt: f64,
    /// Larger datagrams vanish on the way to a host, bytes of UDP payload; 0: none do.
    pub black_hole_above_bytes: u16,
    /// Receive buffer of every socket, bytes; at least 1,472.
    pub receive_buffer_bytes: u64,
    /// Time a host spends on each datagram it receives, ns.
    pub service_ns: u64,
    /// Most datagrams in one transmit.
    pub segments: usize,
    /// Congestion controller.
    pub congestion: Congestion,
    /// `Config::learn_rates`.
    pub learn_rates: bool,
    /// Whether datagrams are ECN-capable.
    pub ecn: bool,
    /// `Config::channel_credit_bytes`.
    pub channel_credit_bytes: u64,
    /// `Config::offer_above_bytes`.
    pub offer_above_bytes: u64,
    /// `Config::send_buffer_bytes`.
    pub send_buffer_bytes: u64,
    /// `Config::max_ack_delay`, µs.
    pub max_ack_delay_us: u64,
    /// `Config::failure_timeout`, ms, up to 100,000; keepalives are sent at a quarter of it, at most every 5 s.
    pub failure_timeout_ms: u64,
    /// What goes wrong for a while only: the plan's tables `[[faults]]`.
    pub faults: Vec<TimedFault>,
    /// Virtual time after which a run is given up, s.
    pub time_limit_s: f64,
    /// Seed of the run.
    pub seed: u64,
}

impl Default for Cell {
    fn default() -> Self {
        let config = denrei_proto::Config::default();
        Self {
            workload: Workload::Stream,
            warm: false,
            hosts: 2,
            messages: 1000,
            message_bytes: 65_536,
            channels: 1,
            link_mbit: 10_000,
            uplink_mbit: 0,
            delay_us: 4.0,
            jitter_us: 0.0,
            queue_bytes: 1 << 20,
            ecn_above_bytes: 100_000,
            link_datagram_bytes: 1472,
            loss: 0.0,
            shared_loss: 0.0,
            feedback: Feedback::Parity,
            burst_datagrams: 1.0,
            burst_loss: 1.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_us: 100.0,
            corrupt: 0.0,
            black_hole_above_bytes: 0,
            receive_buffer_bytes: 4 << 20,
            service_ns: 0,
            segments: 16,
            congestion: Congestion::Delay,
            learn_rates: config.learn_rates,
            ecn: config.ecn,
            channel_credit_bytes: config.channel_credit_bytes,
            offer_above_bytes: config.offer_above_bytes,
            send_buffer_bytes: config.send_buffer_bytes,
            max_ack_delay_us: config.max_ack_delay.as_micros() as u64,
            failure_timeout_ms: config.failure_timeout.as_millis() as u64,
            faults: Vec::new(),
            time_limit_s: 60.0,
            seed: 1,
        }
    }
}

impl Cell {
    /// Simulates this combination.
    pub fn run(&self) -> Row {
        Row { cell: self.clone(), outcome: run::run(self) }
    }
}
