//! The pace that receivers set: rate and burst, grants.
//!
//! Inputs → outputs: see the files; `credit` R2's rules; `bursts` the pause between two; `allowed` the sender's
//! half of grants, with its `licence`, `grants` the receiver's, in `turns`, which holds the `inbound` window, with what
//! is lost by `chance`, and its `release`, until one is `alone`; `manager` sets rates within the `capacity` that a
//! `learner` finds, by a `search` for each, apart from what `chance` takes, in the shares of `share`; `skips` tells losses
//! from numbers left out; `host` is several Nodes on one host.
//! Source: R1–R4, R11–R13, S11; `spec/protocol.md` §13.

mod allowed;
mod alone;
mod bursts;
mod capacity;
mod chance;
mod claim;
mod credit;
mod flow;
mod grants;
mod heard;
mod host;
mod inbound;
mod learner;
mod licence;
mod manager;
mod police;
mod release;
mod search;
mod share;
mod skips;
mod turns;

pub(crate) use allowed::{Allowed, LEAST_GRANT};
pub(crate) use bursts::PacedCredit;
pub(crate) use credit::RateCredit;
pub(crate) use grants::Grants;
pub(crate) use heard::{Heard, Taken};
pub(crate) use host::host_share;
pub use host::{HostCapacity, HostLimit, HostRecord};
pub(crate) use licence::Licence;
pub(crate) use manager::Manager;
pub(crate) use police::Police;

use inbound::InboundWindow;

use core::fmt;
use core::time::Duration;
use denrei_wire::frame::MAX_PACE;

/// Largest rate and burst, bytes per second and bytes: 1 PiB.
pub const MAX_RATE: u64 = MAX_PACE;

const NANOS_PER_S: u128 = 1_000_000_000;

/// Octets per second, where so many take that long.
fn rate_of(octets: u64, length: Duration) -> u64 {
    let rate = octets as u128 * NANOS_PER_S / length.as_nanos().max(1);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// Octets that come in a time at so many per second.
fn octets_in(rate: u64, time: Duration) -> u128 {
    rate as u128 * time.as_nanos() / NANOS_PER_S
}

/// A peer's share if none is set.
pub const DEFAULT_WEIGHT: u32 = 100;
/// Largest share: a hundred times the usual one.
pub const MAX_WEIGHT: u32 = 10_000;

/// How fast one peer may send to another (R1), counted in octets of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Mean rate, bytes/s, at most [`MAX_RATE`]. 0: no data, while control goes on (R3).
    pub bytes_per_s: u64,
    /// Bytes that may leave in a row, at most [`MAX_RATE`]. 0 lifts the limit whatever the rate is, unless that
    /// is 0 (R3): a rate alone limits nothing.
    pub burst_bytes: u64,
}

impl Rate {
    /// No limit.
    pub const UNLIMITED: Self = Self { bytes_per_s: MAX_RATE, burst_bytes: 0 };
    /// No data.
    pub const STOPPED: Self = Self { bytes_per_s: 0, burst_bytes: 0 };

    /// Whether this sets no limit.
    pub const fn is_unlimited(self) -> bool {
        self.bytes_per_s > 0 && self.burst_bytes == 0
    }

    /// RTIMER: how long a burst lasts (R1); zero where no rate is.
    pub(crate) fn rtimer(self) -> Duration {
        let scaled = self.burst_bytes as u128 * NANOS_PER_S;
        let nanos = scaled.checked_div(self.bytes_per_s as u128).unwrap_or(0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The field, if any, that is out of range.
    pub(crate) fn impossible_field(self) -> Option<(&'static str, u64)> {
        [("bytes_per_s", self.bytes_per_s), ("burst_bytes", self.burst_bytes)]
            .into_iter()
            .find(|(_, value)| *value > MAX_RATE)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { bytes_per_s: 0, .. } => f.write_str("stopped"),
            Self { burst_bytes: 0, .. } => f.write_str("unlimited"),
            Self { bytes_per_s, burst_bytes } => write!(f, "{bytes_per_s} B/s in bursts of {burst_bytes} B"),
        }
    }
}
