//! What the values of a combination may be.
//!
//! Inputs → outputs: a [`Cell`] → the first value that is not possible, with what it would have to be.

use super::{Cell, Feedback, PlanError, Workload};
use crate::net::link::WIRE_OVERHEAD_BYTES;
use core::fmt::Display;

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

impl Cell {
    /// Checks that the values are possible.
    ///
    /// # Errors
    /// The first that is not, with what it would have to be.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_hosts()?;
        self.check_links()?;
        self.check_losses()?;
        self.check_times()?;
        self.check_group()?;
        self.config().validate()?;
        self.check_faults()
    }

    /// Who sends how much.
    fn check_hosts(&self) -> Result<(), PlanError> {
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
        range((1..=MAX_CHANNELS).contains(&self.channels), "channels", &self.channels, "between 1 and 1024")?;
        range(self.segments > 0, "segments", &self.segments, "at least 1")
    }

    /// What links, queues and buffers hold.
    fn check_links(&self) -> Result<(), PlanError> {
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
        range(
            self.queue_bytes >= LEAST_QUEUE_BYTES,
            "queue_bytes",
            &self.queue_bytes,
            "at least 1538: a datagram of 1472 octets with its headers",
        )?;
        range(
            (1..=1_000_000).contains(&self.link_mbit),
            "link_mbit",
            &self.link_mbit,
            "between 1 and 1000000",
        )?;
        range(self.uplink_mbit <= 1_000_000, "uplink_mbit", &self.uplink_mbit, "at most 1000000")
    }

    /// What happens to datagrams on the way.
    fn check_losses(&self) -> Result<(), PlanError> {
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
        Ok(())
    }

    /// How long things take.
    fn check_times(&self) -> Result<(), PlanError> {
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
        )
    }

    /// What only a group has is left alone where there is none.
    fn check_group(&self) -> Result<(), PlanError> {
        if self.workload == Workload::Multicast {
            return Ok(());
        }
        range(
            self.shared_loss <= 0.0,
            "shared_loss",
            &self.shared_loss,
            "0.0 unless `workload` is `multicast`",
        )?;
        let feedback =
            toml::Value::try_from(self.feedback).map_or_else(|_| String::new(), |name| name.to_string());
        range(
            self.feedback == Feedback::default(),
            "feedback",
            &feedback,
            "\"parity\" (the default) unless `workload` is `multicast`",
        )
    }
}

fn range(
    holds: bool,
    field: &'static str,
    value: &dyn Display,
    expected: &'static str,
) -> Result<(), PlanError> {
    if holds { Ok(()) } else { Err(PlanError::Range { field, value: value.to_string(), expected }) }
}
