//! Why a collective operation came to nothing.

use crate::group::OpenGroupError;
use crate::{GroupError, MembershipEnd, SendError};
use denrei_proto::ConnectError;
use thiserror::Error;

/// Why a collective operation did not complete.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// The Nodes of the set cannot be.
    #[error("a set of Nodes needs distinct addresses, its own among them: {0}")]
    BadSet(String),
    /// The group cannot be opened or joined.
    #[error("{0}")]
    Open(OpenGroupError),
    /// Rank 0 is there, and waits, or has waited, for others in vain: it knows for whom.
    #[error("rank 0 {}, for others did not come: its error names them", if *.gave_up { "gave up" } else { "has not opened the set in time" })]
    NotOpened {
        /// Whether it has said so.
        gave_up: bool,
    },
    /// Whoever uses the set wanted no more of it.
    #[error("given up before it was done")]
    Interrupted,
    /// A Node cannot be reached.
    #[error("{0}")]
    Connect(#[from] ConnectError),
    /// Nothing can be sent to a Node, or comes from it any more.
    #[error("rank {rank}: {source}")]
    Send {
        /// Which.
        rank: usize,
        /// Why.
        source: SendError,
    },
    /// Nothing can be sent to the group.
    #[error("{0}")]
    Group(#[from] GroupError),
    /// The root of the set has ended its group.
    #[error("the root is gone: {0}")]
    RootGone(#[from] MembershipEnd),
    /// The socket has become unusable.
    #[error("{0}")]
    Node(#[from] crate::NodeError),
    /// What the Nodes have could not be joined at rank 0.
    #[error("rank 0 cannot join what all have: {0}")]
    Join(String),
    /// Time is up.
    #[error("{operation} did not complete in time: nothing from rank{} {missing:?}", if .missing.len() == 1 { "" } else { "s" })]
    TimedOut {
        /// Which operation.
        operation: &'static str,
        /// Whose part is missing.
        missing: Vec<usize>,
    },
    /// Ranks have called different operations: none of them has a result, and the set goes on with the next.
    #[error(
        "rank {rank} called {theirs}, and rank 0 {operation}: all have to call the same operations, in the same order"
    )]
    Unlike {
        /// What rank 0 called.
        operation: &'static str,
        /// Who called something else.
        rank: usize,
        /// What it called.
        theirs: &'static str,
    },
    /// Time was up for another rank, so all have no result.
    #[error("{operation} did not complete: rank {rank} gave up{}", waited_for(.missing))]
    GaveUp {
        /// Which operation.
        operation: &'static str,
        /// For whom.
        rank: usize,
        /// Whose part was missing, if that is known.
        missing: Vec<usize>,
    },
}

impl From<OpenGroupError> for CollectiveError {
    fn from(error: OpenGroupError) -> Self {
        match error {
            OpenGroupError::Interrupted => Self::Interrupted,
            OpenGroupError::Node(error) => Self::Node(error),
            error => Self::Open(error),
        }
    }
}

fn waited_for(missing: &[usize]) -> String {
    match missing {
        [] => String::new(),
        [rank] => format!(", nothing came from rank {rank}"),
        ranks => format!(", nothing came from ranks {ranks:?}"),
    }
}
