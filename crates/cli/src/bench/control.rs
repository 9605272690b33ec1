//! What the two sides of a benchmark and the one that runs it say to each other.
//!
//! One line of JSON each: `Prepare` → `Ready`, `Start` → (measurement) → `Report`, `Stop(n)`. Every run
//! has processes of its own, so nothing of one run is left in the next.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bench {
    /// Round trips, one after the other (U7).
    Pingpong,
    /// Messages sent without a pause to a receiver that is busy (U8).
    Burst,
    /// Messages one way, as fast as they go or at a given pace.
    Stream,
    /// Every process to every other.
    Mesh,
    /// All to one, at once (S12).
    Gather,
    /// One or more to one, at the rate that the receiver sets (R9).
    Rate,
}

impl Bench {
    /// Its name in commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pingpong => "pingpong",
            Self::Burst => "burst",
            Self::Stream => "stream",
            Self::Mesh => "mesh",
            Self::Gather => "gather",
            Self::Rate => "rate",
        }
    }
}

/// Over what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A Node on each side.
    Denrei,
    /// The same with a cluster key: every packet is sealed.
    #[value(name = "denrei-sealed")]
    #[serde(rename = "denrei-sealed")]
    DenreiSealed,
    /// TCP with NODELAY, messages framed by their length.
    Tcp,
    /// Bare UDP on a connected socket: no recovery, no flow control; not for gather.
    Udp,
    /// ZeroMQ over TCP, a PAIR of sockets.
    #[cfg(feature = "bench-zmq")]
    Zmq,
    /// QUIC by quinn: one connection, one stream.
    #[cfg(feature = "bench-quinn")]
    Quinn,
}

impl Transport {
    /// Its name in commands and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Denrei => "denrei",
            Self::DenreiSealed => "denrei-sealed",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            #[cfg(feature = "bench-zmq")]
            Self::Zmq => "zmq",
            #[cfg(feature = "bench-quinn")]
            Self::Quinn => "quinn",
        }
    }
}

/// How a side waits for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// In the kernel, which wakes it up.
    Sleep,
    /// Asking again and again; one core per side.
    Poll,
}

/// Which thread does a Node's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Drive {
    /// The one that calls.
    Inline,
    /// One in the background.
    Thread,
    /// Several: receiving, opening, the protocol, sealing, sending.
    Pipelined,
}

/// One side's part in one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// What.
    pub bench: Bench,
    /// Over what.
    pub transport: Transport,
    /// Bytes per message.
    pub size: usize,
    /// Messages, or exchanges, that are measured.
    pub iters: u64,
    /// Exchanges before that.
    pub warmup: u64,
    /// How to wait.
    pub wait: Wait,
    /// Which thread does a Node's work.
    pub drive: Drive,
    /// Messages per second of a paced stream.
    pub rate_per_s: Option<f64>,
    /// How long the receiver of a burst is busy after the first message, milliseconds.
    pub read_after_ms: u64,
    /// For a run at a set rate.
    pub pace: Option<Pace>,
    /// Core to run on.
    pub core: Option<usize>,
    /// Which side: 0 sends first.
    pub index: usize,
    /// How many sides there are.
    pub members: usize,
    /// Local address.
    pub bind: IpAddr,
    /// The side that sends first, and every member of a mesh, sends no more after this time, however few
    /// messages that are, milliseconds.
    pub send_ms: u64,
    /// The run is given up after this time, milliseconds.
    pub limit_ms: u64,
}

#[cfg(test)]
impl Job {
    /// Of so many messages of so many bytes, over TCP to a single other side.
    pub fn of_a_test(bench: Bench, size: usize, iters: u64) -> Self {
        Self {
            bench,
            transport: Transport::Tcp,
            size,
            iters,
            warmup: 0,
            wait: Wait::Sleep,
            drive: Drive::Inline,
            rate_per_s: None,
            read_after_ms: 0,
            pace: None,
            core: None,
            index: 0,
            members: 2,
            bind: std::net::Ipv4Addr::LOCALHOST.into(),
            send_ms: 1_000,
            limit_ms: 60_000,
        }
    }
}

/// To a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Open the local endpoint.
    Prepare(Job),
    /// Begin; these are the addresses of all sides, in order.
    Start(Vec<SocketAddr>),
    /// The others are done; so many messages were sent to this side.
    Stop(u64),
}

/// From a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// The endpoint is open at this address.
    Ready(SocketAddr),
    /// What was measured.
    Report(Box<Report>),
    /// What went wrong.
    Failed(String),
}

/// What one side measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Messages it sent (side 0) or received (side 1 and members of a mesh).
    pub messages: u64,
    /// Messages that a member of a mesh sent to the others.
    pub sent: u64,
    /// When it began, nanoseconds of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// When it had the first message, or 0.
    pub first_ns: u64,
    /// When it was done.
    pub end_ns: u64,
    /// CPU time it used meanwhile, nanoseconds.
    pub cpu_ns: u64,
    /// Messages that did not arrive.
    pub lost: u64,
    /// What it sent again, where that can be known.
    pub retransmitted: Option<u64>,
    /// Median latency, nanoseconds.
    pub p50_ns: Option<u64>,
    /// 99th percentile of the latency, nanoseconds.
    pub p99_ns: Option<u64>,
    /// Number of the first message that did not arrive.
    pub first_loss_at: Option<u64>,
    /// Number and time of arrival of each message of a paced stream.
    pub arrivals: Vec<(u64, u64)>,
    /// Open descriptors.
    pub descriptors: u64,
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// What the receiver of a gather measured beside that.
    pub gather: Option<GatherReport>,
    /// Packets that a sender of a gather sent, or of a run at a set rate.
    pub packets: Option<PacketReport>,
    /// What the receiver of a run at a set rate measured.
    pub pace: Option<PaceReport>,
    /// What a sender of such a run was told last, bytes per second and bytes; its round-trip time,
    /// nanoseconds.
    pub told: Option<Told>,
}

/// How the sides of a run at a set rate are made (R9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Rate and burst that the receiver sets, bytes per second and bytes; `None`: it learns them.
    pub fixed: Option<(u64, u64)>,
    /// How long the receiver computes after each message, nanoseconds.
    pub read_ns: u64,
    /// Socket buffer of the receiver, bytes; `None`: the usual one.
    pub buffer_bytes: Option<usize>,
    /// How long each sender sends, milliseconds.
    pub send_ms: Vec<u64>,
    /// Before this the run counts as not settled, milliseconds.
    pub settle_ms: u64,
    /// Whether packets may travel in trains.
    pub trains: bool,
    /// Whether the kernel says when something came, and not the receiver, which may be late.
    pub timed: bool,
}

/// What the receiver of a run at a set rate measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PaceReport {
    /// By sender, in the order in which they connected.
    pub lanes: Vec<PaceLane>,
    /// Bytes per bin, settled or not, of all senders.
    pub bins: Vec<u64>,
    /// Length of a bin, nanoseconds.
    pub bin_ns: u64,
}

/// What came from one sender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PaceLane {
    /// Messages, once settled.
    pub messages: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// From the first of them to the last, nanoseconds.
    pub time_ns: u64,
    /// Most bytes that came in a row: with pauses below an eighth of burst / rate.
    pub largest_burst: u64,
    /// What 99 % of the bursts did not exceed.
    pub burst_p99: u64,
    /// What the receiver has set at the end, bytes per second and bytes.
    pub set: (u64, u64),
}

/// What a sender knows of its pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes.
    pub burst: u64,
    /// Smoothed round-trip time, nanoseconds.
    pub srtt_ns: u64,
}

/// What the receiver of a gather measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GatherReport {
    /// Median round trip of a small message with one sender, nobody else sending, nanoseconds.
    pub idle_ns: u64,
    /// Messages that arrived while all sent one after the other.
    pub stream_messages: u64,
    /// How long those took, nanoseconds.
    pub stream_ns: u64,
    /// Jain's index of what had arrived from each when the first sender was done.
    pub jain: f64,
}

/// The packets of a connection, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketCounts {
    /// Packets (segments) sent.
    pub sent: u64,
    /// Packets lost; of TCP, segments sent again.
    pub lost: u64,
    /// Fragments, messages or segments sent again.
    pub retransmitted: u64,
    /// Probes: a timer fired because no acknowledgement came.
    pub probes: u64,
    /// Recoveries started (R9); not known of TCP.
    #[serde(default)]
    pub recoveries: u64,
}

impl PacketCounts {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }

    /// What has come since `before`.
    pub fn since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            sent: combine(self.sent, other.sent),
            lost: combine(self.lost, other.lost),
            retransmitted: combine(self.retransmitted, other.retransmitted),
            probes: combine(self.probes, other.probes),
            recoveries: combine(self.recoveries, other.recoveries),
        }
    }
}

/// What a sender counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketReport {
    /// Until its first message to the receiver had been gathered.
    pub first: PacketCounts,
    /// In all.
    pub all: PacketCounts,
}
