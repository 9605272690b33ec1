//! What can go wrong with datagrams, as plain data, and how often it did.
//!
//! Inputs → outputs: a [`Faults`] value set on a link decides the fate of every datagram that
//! passes; [`FaultCounts`] says what happened. Nothing here acts by itself.

use core::time::Duration;
use derive_more::AddAssign;
use serde::{Deserialize, Serialize};

/// What a link does to datagrams beyond its rate, delay and queue. The default does nothing.
/// Probabilities are per datagram, 0.0 ..= 1.0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Lost, independently of others.
    pub loss: f64,
    /// Lost in bursts.
    pub burst: Option<Burst>,
    /// Delivered twice, the copy up to `reorder_delay` later.
    pub duplicate: f64,
    /// Held back by up to `reorder_delay`, while later ones overtake.
    pub reorder: f64,
    /// Longest time that a duplicated or reordered datagram is held back.
    pub reorder_delay: Duration,
    /// One to three bits are flipped, which CRC-32C always detects.
    pub corrupt: f64,
    /// Longest extra delay, uniform, order kept.
    pub jitter: Duration,
    /// Larger datagrams vanish without a word, bytes of UDP payload.
    pub black_hole_above: Option<u16>,
    /// Nothing passes.
    pub down: bool,
}

/// Bursty loss after Gilbert and Elliott: a link is good or bad and changes from datagram to
/// datagram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Burst {
    /// Probability of turning bad.
    pub enter: f64,
    /// Probability of turning good again; 1 / the mean length of a burst in datagrams.
    pub leave: f64,
    /// Loss while bad.
    pub loss: f64,
}

impl Faults {
    /// Sets everything back to nothing.
    pub fn heal(&mut self) {
        *self = Self::default();
    }
}

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often each fault happened.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign, Serialize)]
        pub struct FaultCounts { $($(#[$doc])* pub $name: u64,)* }

        impl FaultCounts {
            /// Names and values, in declaration order.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counts! {
    /// Datagrams sent.
    sent,
    /// Datagrams that reached an endpoint.
    delivered,
    /// Of these, received into a message's memory that the endpoint had lent.
    landed,
    /// Lost at random.
    lost,
    /// Lost in a burst.
    lost_in_burst,
    /// Copies made.
    duplicated,
    /// Held back.
    reordered,
    /// Bits flipped.
    corrupted,
    /// Vanished for their size.
    black_holed,
    /// Dropped at the tail of a full queue.
    queue_full,
    /// Marked with congestion.
    ecn_marked,
    /// Dropped at a full receive buffer.
    receive_buffer_full,
    /// Sent over a link that was down or to a host cut off.
    cut,
    /// Arrived at a host that was not running.
    host_down,
    /// Processes killed.
    crashes,
    /// Processes started again.
    restarts,
    /// Processes stopped for a while.
    pauses,
    /// Garbage, truncated and forged datagrams.
    injected,
    /// Old datagrams sent again.
    replayed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healed_faults_do_nothing() {
        let burst = Burst { enter: 0.1, leave: 0.1, loss: 1.0 };
        let mut faults = Faults { loss: 0.5, burst: Some(burst), down: true, ..Faults::default() };
        faults.heal();
        assert_eq!(faults, Faults::default());
    }

    #[test]
    fn counts_add_up_field_by_field() {
        let mut sum = FaultCounts { lost: 1, ..FaultCounts::default() };
        sum += FaultCounts { lost: 2, replayed: 4, ..FaultCounts::default() };
        assert_eq!((sum.lost, sum.replayed, sum.sent), (3, 4, 0));
        assert!(sum.entries().any(|entry| entry == ("replayed", 4)));
    }
}
