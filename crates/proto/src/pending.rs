//! The messages of a channel that nobody has taken: complete, on their way, offered or given up.

use crate::config::MESSAGE_COST_BYTES;
use crate::reassembly::Reassembly;
use bytes::Bytes;

/// A message that the application may take.
#[derive(Debug)]
pub(crate) struct Ready {
    pub number: u64,
    pub data: Bytes,
    /// Cost to give back as credit when it is taken.
    pub cost: u64,
    pub report: bool,
}

/// What a SKIP changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// Bytes not held any more.
    pub freed: u64,
    /// An offer whose turn had come.
    pub withdrawn: Option<u64>,
}

/// A message that is not ready: no more of memory than what its sender is charged for having announced it.
#[derive(Debug)]
pub(crate) enum Pending {
    Whole(Ready),
    Unasked {
        reassembly: Box<Reassembly>,
        report: bool,
    },
    /// `queued`: the endpoint has it on its list of those to accept.
    Offered {
        total: u64,
        report: bool,
        queued: bool,
    },
    Accepted {
        reassembly: Box<Reassembly>,
        report: bool,
    },
    Refused {
        cost: u64,
    },
}

impl Pending {
    /// What the sender was charged for it.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Whole(ready) => ready.cost,
            Self::Unasked { reassembly, .. } => reassembly.total() + MESSAGE_COST_BYTES,
            Self::Offered { .. } | Self::Accepted { .. } => MESSAGE_COST_BYTES,
            Self::Refused { cost } => *cost,
        }
    }
}

const _: () = assert!(size_of::<Pending>() as u64 <= MESSAGE_COST_BYTES);
