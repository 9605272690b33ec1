//! A clock reading as plain data, so that the protocol core never asks for the time.
//!
//! Inputs → outputs: nanoseconds since an origin that the driver chooses → ordered instants.
//! The driver (a Node or the simulator) is the only one that reads a clock.

use core::fmt;
use core::num::NonZeroU64;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time, in nanoseconds since the driver's origin.
///
/// Arithmetic saturates: no sum of remote values can panic. An `Option<Instant>` is no larger than an
/// instant, because a session keeps a dozen of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(
    /// Nanoseconds, and one more: 0 is left to `None`.
    NonZeroU64,
);

impl Instant {
    /// The driver's origin.
    pub const ZERO: Self = Self(NonZeroU64::MIN);
    /// Later than any real instant; stands for "never".
    pub const FAR_FUTURE: Self = Self(NonZeroU64::MAX);

    /// An instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::MIN.saturating_add(nanos))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0.get() - 1
    }

    /// Time passed since `earlier`, zero if `earlier` lies in the future.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The same in nanoseconds, for what is asked with every packet.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }
}

impl Default for Instant {
    fn default() -> Self {
        Self::ZERO
    }
}

/// `Duration` as nanoseconds, saturating at `u64::MAX` (584 years).
pub const fn duration_nanos(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl Add<Duration> for Instant {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(duration_nanos(rhs)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, rhs: Duration) {
        *self = *self + rhs;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, rhs: Instant) -> Duration {
        self.saturating_since(rhs)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.as_nanos();
        write!(f, "{}.{:09}s", nanos / 1_000_000_000, nanos % 1_000_000_000)
    }
}
