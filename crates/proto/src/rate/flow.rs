//! One peer's data as the manager of a host's rates sees it.
//!
//! Inputs → outputs: packets, and what was missing before them → its throughput, whether its rate holds
//! it back, and what it wants of what there is. Source: R13; `spec/protocol.md` §13.7.

use super::share::Want;
use super::skips::Skips;
use super::{Rate, rate_of};
use core::time::Duration;

/// A peer is held back by its rate if it uses so much of it, in 1/8: of four bursts one may be late.
const HELD_BACK: u64 = 5;
/// After this time half of a throughput still counts: who waits for credit sends in turns, and whoever
/// was lent its share meanwhile would overrun this side when it goes on.
const HALF_LIFE: Duration = Duration::from_millis(20);

/// One peer that sends.
#[derive(Debug)]
pub(super) struct Flow {
    pub weight: u32,
    /// In this interval.
    pub octets: u64,
    pub skips: Skips,
    /// Octets per second in the last interval.
    pub throughput: u64,
    /// The same of late: what it leaves for a moment nobody else gets.
    pub lately: u64,
    pub told: Option<Rate>,
    /// The application has set its rate: it counts, and is told nothing.
    pub fixed: bool,
}

impl Flow {
    pub fn new(weight: u32) -> Self {
        Self {
            weight,
            octets: 0,
            skips: Skips::default(),
            throughput: 0,
            lately: 0,
            told: None,
            fixed: false,
        }
    }

    /// An interval of that length is over.
    pub fn measure(&mut self, length: Duration) {
        let still_counts = 0.5f64.powf(length.as_secs_f64() / HALF_LIFE.as_secs_f64());
        self.throughput = rate_of(self.octets, length);
        self.lately = self.throughput.max((self.lately as f64 * still_counts) as u64);
    }

    pub fn is_held_back(&self) -> bool {
        self.told.is_none_or(|rate| self.throughput >= rate.bytes_per_s / 8 * HELD_BACK)
    }

    pub fn want(&self) -> Want {
        if self.fixed {
            return Want { weight: self.weight, most: Some(self.lately) };
        }
        Want::of(self.weight, self.lately, self.is_held_back())
    }
}
