//! One combination of an experiment: its fields, their defaults, and what they may be.
//!
//! Inputs → outputs: the values of a plan → a [`Cell`] that can be simulated, or what is wrong with it.

use super::faults::TimedFault;
use super::run;
use super::{Congestion, Feedback, PlanError, Row, Workload};
use crate::net::link::WIRE_OVERHEAD_BYTES;
use serde::{Deserialize, Serialize};

/// Most hosts that all send to all: a run remembers something of each pair.
const MAX_MESH_HOSTS: u32 = 2_000;

/// Least queue of a port, bytes: less takes no datagram of the path's size, and nothing would arrive.
const LEAST_QUEUE_BYTES: u64 = LEAST_BUFFER_BYTES + WIRE_OVERHEAD_BYTES;

/// Least receive buffer, for the same reason.
const LEAST_BUFFER_BYTES: u64 = 1_472;

/// What every path has to carry (`spec/protocol.md` §9).
const LEAST_LINK_DATAGRAM_BYTES: u16 = 576;

/// Channels that a peer has, as `Config::max_channels` is not an axis.
const MAX_CHANNELS: u16 = 1_024;

/// Largest message, bytes: each sender holds one.
const MAX_MESSAGE_BYTES: u64 = 1 << 30;

/// Most messages of each sender to each of its receivers: days of simulating.
const MAX_MESSAGES: u64 = 1_000_000_000;

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
    /// Checks that the values are possible.
    ///
    /// # Errors
    /// The first that is not, with what it would have to be.
    pub fn check(&self) -> Result<(), PlanError> {
        let range = |holds: bool, field, value: &dyn core::fmt::Display, expected| {
            if holds { Ok(()) } else { Err(PlanError::Range { field, value: value.to_string(), expected }) }
        };
        range((2..=20_000).contains(&self.hosts), "hosts", &self.hosts, "between 2 and 20000")?;
        range(
            self.workload != Workload::Mesh || self.hosts <= MAX_MESH_HOSTS,
            "hosts",
            &self.hosts,
            "at most 2000 with the workload `mesh`",
        )?;
        range((1..=MAX_MESSAGES).contains(&self.messages), "messages", &self.messages, "between 1 and 1e9")?;
        range(
            self.message_bytes <= MAX_MESSAGE_BYTES,
            "message_bytes",
            &self.message_bytes,
            "at most 1073741824",
        )?;
        range(
            self.link_datagram_bytes >= LEAST_LINK_DATAGRAM_BYTES,
            "link_datagram_bytes",
            &self.link_datagram_bytes,
            "at least 576",
        )?;
        range(
            self.receive_buffer_bytes >= LEAST_BUFFER_BYTES,
            "receive_buffer_bytes",
            &self.receive_buffer_bytes,
            "at least 1472: a datagram",
        )?;
        range((1..=MAX_CHANNELS).contains(&self.channels), "channels", &self.channels, "between 1 and 1024")?;
        range(
            (1..=1_000_000).contains(&self.link_mbit),
            "link_mbit",
            &self.link_mbit,
            "between 1 and 1000000",
        )?;
        range(
            self.queue_bytes >= LEAST_QUEUE_BYTES,
            "queue_bytes",
            &self.queue_bytes,
            "at least 1538: a datagram of 1472 octets with its headers",
        )?;
        range(self.uplink_mbit <= 1_000_000, "uplink_mbit", &self.uplink_mbit, "at most 1000000")?;
        for (field, share) in [
            ("loss", self.loss),
            ("shared_loss", self.shared_loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("corrupt", self.corrupt),
        ] {
            range((0.0..=1.0).contains(&share), field, &share, "between 0.0 and 1.0")?;
        }
        range(
            (1.0..=1e6).contains(&self.burst_datagrams),
            "burst_datagrams",
            &self.burst_datagrams,
            "between 1 and 1e6",
        )?;
        range(
            self.burst_loss > 0.0 && self.burst_loss <= 1.0,
            "burst_loss",
            &self.burst_loss,
            "above 0.0 and at most 1.0",
        )?;
        for (field, loss) in [("loss", self.loss), ("shared_loss", self.shared_loss)] {
            range(
                self.has_room_between_bursts(loss),
                field,
                &loss,
                "at most burst_loss * burst_datagrams / (burst_datagrams + 1)",
            )?;
        }
        for (field, time_us) in
            [("delay_us", self.delay_us), ("jitter_us", self.jitter_us), ("reorder_us", self.reorder_us)]
        {
            range((0.0..=1e9).contains(&time_us), field, &time_us, "between 0 and 1e9")?;
        }
        range(
            self.failure_timeout_ms <= 100_000,
            "failure_timeout_ms",
            &self.failure_timeout_ms,
            "at most 100000",
        )?;
        range(
            self.time_limit_s > 0.0 && self.time_limit_s <= 1e6,
            "time_limit_s",
            &self.time_limit_s,
            "above 0 and at most 1e6",
        )?;
        range(self.segments > 0, "segments", &self.segments, "at least 1")?;
        self.check_group()?;
        self.config().validate()?;
        self.check_faults()
    }

    /// What only a group has is left alone where there is none.
    fn check_group(&self) -> Result<(), PlanError> {
        let wrong = |field, value, expected| Err(PlanError::Range { field, value, expected });
        if self.workload == Workload::Multicast {
            return Ok(());
        }
        if self.shared_loss > 0.0 {
            let value = self.shared_loss.to_string();
            return wrong("shared_loss", value, "0.0 unless `workload` is `multicast`");
        }
        if self.feedback != Feedback::default() {
            let value =
                toml::Value::try_from(self.feedback).map_or_else(|_| String::new(), |name| name.to_string());
            return wrong("feedback", value, "\"parity\" (the default) unless `workload` is `multicast`");
        }
        Ok(())
    }

    /// Simulates this combination.
    pub fn run(&self) -> Row {
        Row { cell: self.clone(), outcome: run::run(self) }
    }
}
