//! What a plan chooses by name.
//!
//! Inputs → outputs: a word of a plan → one of these.

use denrei_proto::CongestionAlgorithm;
use serde::{Deserialize, Serialize};

/// Who sends what to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Host 1 sends to host 0.
    #[default]
    Stream,
    /// Hosts 0 and 1 exchange messages, one under way at a time.
    PingPong,
    /// All others send to host 0 at once.
    Incast,
    /// Everyone sends to everyone.
    Mesh,
    /// Host 0 sends to a group of all others.
    Multicast,
}

/// What keeps the reports of a group few (M10); each with all that come before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feedback {
    /// Every member acknowledges every packet, as in the paper.
    AllAck,
    /// Every k-th packet.
    Thinned,
    /// Members take turns, and answer questions one after the other.
    Staggered,
    /// Members wait before they say what they miss.
    Suppressed,
    /// Reports are joined along a tree.
    Tree,
    /// Parity.
    #[default]
    Parity,
}

/// Which controller; the names in plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Congestion {
    /// See [`CongestionAlgorithm::Delay`].
    #[default]
    Delay,
    /// See [`CongestionAlgorithm::Cubic`].
    Cubic,
    /// See [`CongestionAlgorithm::RateOnly`].
    RateOnly,
}

impl From<Congestion> for CongestionAlgorithm {
    fn from(name: Congestion) -> Self {
        match name {
            Congestion::Delay => Self::Delay,
            Congestion::Cubic => Self::Cubic,
            Congestion::RateOnly => Self::RateOnly,
        }
    }
}
