//! A simulated host: its endpoints, its receive buffer, and the process around them.

use super::shards::Shards;
use crate::net::link::LinkSpec;
use crate::net::queue::DatagramRef;
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::VecDeque;

/// What a host is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Its link to the switch. The queue stands for what the kernel takes from the socket.
    pub up: LinkSpec,
    /// The switch's link to it. The queue is the switch's.
    pub down: LinkSpec,
    /// Bytes of datagrams that the socket holds for the process (U8's receive buffer).
    pub receive_buffer_bytes: u64,
    /// Bytes waiting at the uplink above which the socket would block.
    pub send_buffer_bytes: u64,
    /// Time the process spends on each datagram it receives.
    pub service_time: Duration,
    /// Time from a datagram's arrival to the process's look at the socket; what arrives in the
    /// meantime is handled with it.
    pub wake_delay: Duration,
    /// Most datagrams handled before the endpoint is polled.
    pub batch: usize,
    /// Most datagrams in one transmit (segmentation offload).
    pub max_segments: usize,
    /// It receives payloads where they belong, in trains where it takes no time to receive.
    pub lands: bool,
    /// Its endpoint is told how much the socket holds.
    pub tells_buffer: bool,
    /// It opens sealed datagrams before it hands them to its endpoint.
    pub opens_aside: bool,
    /// Endpoints that share its peers, until they are [gathered](super::World::gather); 0 counts as 1.
    pub shards: u32,
}

impl HostSpec {
    /// A host with the same link in both directions, fast enough never to be the bottleneck.
    pub fn new(link: LinkSpec) -> Self {
        Self {
            // A qdisc's worth: the socket blocks long before it.
            up: LinkSpec { queue_bytes: 16 << 20, ecn_above_bytes: None, ..link },
            down: link,
            receive_buffer_bytes: 4 << 20,
            send_buffer_bytes: 256 << 10,
            service_time: Duration::ZERO,
            wake_delay: Duration::ZERO,
            batch: 64,
            max_segments: 16,
            lands: false,
            tells_buffer: false,
            opens_aside: false,
            shards: 1,
        }
    }
}

/// A host at work.
#[derive(Default)]
pub(super) struct Process {
    /// The running endpoints; `None` while the process is dead.
    pub shards: Option<Shards>,
    /// Stopped as by SIGSTOP: datagrams pile up, timeouts do not fire.
    pub paused: bool,
    /// Since when.
    pub paused_at: Instant,
    /// Datagrams in the socket's receive buffer, oldest first.
    pub received: VecDeque<DatagramRef>,
    /// Their bytes.
    pub received_bytes: u64,
    /// When the process will have served what it took.
    pub busy_until: Instant,
    /// The wake that counts; others in the queue are stale.
    pub wake_at: Option<Instant>,
    /// The timeout that counts; others in the queue are stale.
    pub timeout_at: Option<Instant>,
    /// When the socket can send again, if it cannot now.
    pub blocked_until: Option<Instant>,
    /// Timeouts fired since the simulation began.
    pub timeouts_fired: u64,
    /// The last instant at which a timeout fired, and how often in a row at that instant.
    pub last_timeout: (Instant, u32),
}
