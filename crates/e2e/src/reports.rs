//! What an `e2e-node` tells the test: one JSON object a line, on its standard output.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// An answer to an order, or something that happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Report {
    /// The Node's address.
    Bound {
        /// With the port that was chosen.
        addr: SocketAddr,
    },
    /// An order that has no other answer was carried out.
    Done,
    /// An order was not carried out.
    Failed {
        /// The text that a user would see.
        error: String,
    },
    /// The id of the peer connected to.
    Peer {
        /// As in later orders.
        peer: u64,
    },
    /// All messages of a `Send` are acknowledged.
    Sent {
        /// By whom.
        peer: u64,
        /// How many.
        messages: u64,
        /// Bytes of all of them.
        bytes: u64,
        /// Time from the order to the last acknowledgement, ms.
        millis: u64,
    },
    /// The result of a `Ping`.
    Latency(Latency),
    /// A message was taken (after `Verify` with `trace`).
    Took {
        /// From whom.
        peer: u64,
        /// On which channel.
        channel: u16,
        /// Its index in the plan.
        index: u64,
    },
    /// All messages of a `GroupSend` are acknowledged by all members.
    GroupSent {
        /// How many.
        messages: u64,
        /// Bytes of all of them.
        bytes: u64,
        /// Time from the order to the last acknowledgement, ms.
        millis: u64,
    },
    /// A member of the group that was opened is one no longer.
    GroupDeparted {
        /// Its id.
        member: u32,
        /// The text that a user would see.
        why: String,
    },
    /// What has been received, by session.
    Tally(Vec<Session>),
    /// The state of a peer.
    Flow(Flow),
    /// The state of the process.
    Resources(Resources),
    /// Entries of the address table.
    Peers(usize),
    /// All leaves have their echo.
    Echoed {
        /// How many Nodes.
        leaves: usize,
        /// What came that was not the hub's echo of what had been sent: which, from whom and what is wrong.
        problems: Vec<String>,
        /// Time it took, ms.
        millis: u64,
    },
    /// IPv4 packets in hexadecimal digits.
    Captured(Vec<String>),
    /// What was injected, number of packets.
    Injected {
        /// With bits turned.
        flipped: u64,
        /// Cut short.
        truncated: u64,
        /// Unchanged.
        repeated: u64,
        /// Random datagrams from another address.
        random: u64,
    },
    /// The Node reported a new session.
    Connected {
        /// With whom.
        peer: u64,
    },
    /// The Node reported the end of a session.
    Lost {
        /// With whom.
        peer: u64,
        /// The name of the reason.
        reason: String,
        /// (channel, message number).
        unacknowledged: Vec<(u16, u64)>,
    },
    /// The Node reported that a message was taken by the receiving application.
    Delivered {
        /// On which channel.
        channel: u16,
        /// Its number.
        number: u64,
    },
    /// The Node reported that a message was refused.
    Refused {
        /// On which channel.
        channel: u16,
        /// Its number.
        number: u64,
    },
}

/// What one session has brought.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Session {
    /// From whom.
    pub peer: u64,
    /// Messages per channel, without a gap from number 0.
    pub channels: Vec<u64>,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Longest time between two messages, ms.
    pub longest_gap_ms: u64,
    /// What was wrong, the first of it.
    pub problems: Vec<String>,
}

impl Session {
    /// Messages on all channels.
    pub fn messages(&self) -> u64 {
        self.channels.iter().sum()
    }
}

/// The latencies of a `Ping`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// Half of the round trips are faster, µs.
    pub median_us: u64,
    /// 99 % are, µs.
    pub p99_us: u64,
    /// The slowest, µs.
    pub max_us: u64,
}

/// The state of a peer.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// Largest datagram the path is known to carry, bytes.
    pub datagram_bytes: u16,
    /// Bytes that its application has not taken here.
    pub unread_bytes: u64,
    /// Bytes of messages not acknowledged by it.
    pub queued_bytes: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// How fast this side sends to it at most, bytes per second.
    pub rate_bytes_per_s: u64,
}

/// The state of a process and its Node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resources {
    /// Open descriptors.
    pub descriptors: usize,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// The most that it ever was, bytes.
    pub peak_rss_bytes: u64,
    /// CPU time, of the program and of the kernel for it, ms.
    pub cpu_ms: u64,
    /// Usable receive buffer of the socket, bytes.
    pub recv_buffer_bytes: usize,
    /// Datagrams that were no packets of the protocol.
    pub malformed: u64,
    /// Datagrams whose checksum did not match.
    pub corrupted: u64,
    /// Packets of no session.
    pub unknown_session: u64,
    /// Packets of other protocol versions.
    pub foreign_version: u64,
    /// All counters of the Node, as text for people.
    pub counters: String,
}
