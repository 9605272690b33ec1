//! What the demonstration and its nodes say to each other, one line of JSON each.

use derive_more::AddAssign;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The stages, in order.
pub const STAGES: std::ops::RangeInclusive<u32> = 1..=3;
/// All to all, undisturbed.
pub const STAGE_ALL: u32 = 1;
/// All to all, and one node is killed in the middle.
pub const STAGE_KILL: u32 = 2;
/// All to all with the node that was started again.
pub const STAGE_AGAIN: u32 = 3;

/// To a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Who it is; it opens its port.
    Setup(Setup),
    /// The addresses of all nodes, its own included.
    Peers(Vec<SocketAddr>),
    /// Send and receive everything of this stage.
    Stage(u32),
    /// Close in order and end.
    Stop,
}

/// Who a node is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Its number, from 0.
    pub index: usize,
    /// How many nodes there are.
    pub nodes: usize,
    /// Where it opens its port; port 0 before it is known.
    pub bind: SocketAddr,
    /// What all contents follow from.
    pub seed: u64,
    /// The first stage it takes part in: later than the first if it was started again.
    pub first_stage: u32,
}

/// From a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Its port is open.
    Ready(SocketAddr),
    /// What it has done so far, by node.
    Progress(Vec<Exchange>),
    /// Everything of a stage has been sent, acknowledged and received.
    StageDone {
        /// Which.
        stage: u32,
        /// What it has done so far, by node.
        exchanges: Vec<Exchange>,
        /// How long the stage took, milliseconds.
        took_ms: u64,
    },
    /// A session is over that it did not close.
    PeerLost {
        /// Whose.
        index: usize,
        /// Why, for people.
        reason: String,
        /// Messages to it that are not known to have arrived.
        unacknowledged: u64,
    },
    /// It cannot go on.
    Failed(String),
}

/// What one node and another have exchanged, as one of them sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Serialize, Deserialize)]
pub struct Exchange {
    /// Messages handed over for sending.
    pub sent: u64,
    /// Of those, reported as not acknowledged when the peer was lost.
    pub reported: u64,
    /// Packets' worth sent again.
    pub retransmitted: u64,
    /// What came from the other.
    pub arrived: Arrived,
}

/// What arrived from one sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Serialize, Deserialize)]
pub struct Arrived {
    /// Messages, good or bad.
    pub received: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Messages with the right content at the right place.
    pub verified: u64,
    /// Messages that had been there before.
    pub repeated: u64,
    /// Messages that came after one that follows them.
    pub out_of_order: u64,
    /// Messages that did not come though one that follows them did.
    pub missing: u64,
    /// Messages with content that nobody sent.
    pub damaged: u64,
}
