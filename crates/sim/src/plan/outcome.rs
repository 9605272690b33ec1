//! What a simulated combination is measured by.
//!
//! The fields are the columns of the tables, and the keys of the JSON, that `denrei sim` prints.

use super::Suffered;
use crate::net::faults::FaultCounts;
use serde::Serialize;

/// What came of a combination. Sums are over all hosts. `None`: not measured, as of a group what is of sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Everything arrived within the time limit; where faults were timed, or was told as lost.
    pub finished: bool,
    /// Afterwards, in a healed network, nothing was left to send, to tell or to read.
    pub converged: bool,
    /// Virtual time from the first send to the last arrival, s.
    pub time_s: f64,
    /// Bytes of messages that arrived, per second.
    pub goodput_bytes_per_s: f64,
    /// Time from sending to arrival, median, µs. Of ping-pong: one way.
    pub p50_us: Option<f64>,
    /// The same, 99th percentile.
    pub p99_us: Option<f64>,
    /// What arrived, as a share of what the busiest link towards a host carries in that time in full datagrams.
    pub goodput_of_link: f64,
    /// The shortest time in which that link carries what it has to, and the delay, µs.
    pub ideal_us: f64,
    /// `p99_us` as a multiple of that; `None` if not everything arrived.
    pub p99_of_ideal: Option<f64>,
    /// Jain's index of what had arrived of each flow when the first flow was done: 1 is fair, 1/n is
    /// one flow taking all. `None` for flows of fewer than 10 messages, whose shares are too coarse.
    pub fairness: Option<f64>,
    /// Messages that arrived, at all receivers.
    pub messages_delivered: u64,
    /// Messages that were sent and will not arrive, as their session was lost or a process killed.
    pub messages_lost: u64,
    /// Messages of which senders were told that they may not have arrived, when a session was lost, and those
    /// that killed senders had under way. Some may have arrived, and some that were acknowledged may
    /// have been lost with their receiver.
    pub messages_unacknowledged: u64,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Datagrams lost on links, in queues and in receive buffers, of all sent.
    pub lost_share: f64,
    /// The same, of those sent later than a round trip (with the queue full) after the first.
    pub lost_share_later: Option<f64>,
    /// Fragments and messages sent again.
    pub retransmissions: Option<u64>,
    /// Probes fired.
    pub probes: Option<u64>,
    /// Datagrams marked with congestion.
    pub ecn_marks: Option<u64>,
    /// Deepest queue of any switch port or host, bytes.
    pub deepest_queue_bytes: u64,
    /// Sessions lost.
    pub lost_peers: u64,
    /// What else happened to datagrams.
    #[serde(flatten)]
    pub suffered: Suffered,
    /// Of a group, what its opener sent and heard.
    #[serde(flatten)]
    pub group: GroupOutcome,
    /// Fingerprint of the run: equal for equal combinations and equal code. As text, because JSON's
    /// numbers do not hold 64 bits.
    pub digest: String,
}

/// What came of a group; nothing of it, where there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupOutcome {
    /// Packets the opener sent to the group's address, repairs, parities and questions included.
    pub group_packets: Option<u64>,
    /// Reports (ACKs and NAKs) that the opener took in.
    pub reports: Option<u64>,
    /// Of these, those that named something missing (NAKs).
    pub naks: Option<u64>,
    /// Reports for each 100 symbols, sent once.
    pub reports_per_100: Option<f64>,
    /// Symbols sent again, to one member or to all.
    pub repairs: Option<u64>,
    /// Parities sent.
    pub parities: Option<u64>,
}

/// The share of datagrams lost between two looks.
pub(super) fn lost_share(after: &FaultCounts, before: &FaultCounts) -> f64 {
    (lost(after) - lost(before)) as f64 / ((after.sent - before.sent) as f64).max(1.0)
}

fn lost(counts: &FaultCounts) -> u64 {
    counts.lost + counts.lost_in_burst + counts.queue_full + counts.receive_buffer_full
}
