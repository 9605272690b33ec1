//! Which missing numbers a sender has left out on purpose.
//!
//! Inputs → outputs: one peer's packets, and how many numbers are missing before each → whether that is a loss.
//! Source: `spec/protocol.md` §5.3: one number at a time is left out, and none soon after another.

use crate::loss::NUMBERS_PER_SKIP;

/// What is missing of one peer.
#[derive(Debug)]
pub(super) struct Skips {
    /// Packets since one number alone was missing.
    since_single: u64,
}

impl Default for Skips {
    fn default() -> Self {
        Self { since_single: NUMBERS_PER_SKIP }
    }
}

impl Skips {
    /// Whether so many missing before a packet are a loss: a single number was left out, unless another
    /// was, too short a time ago.
    pub fn is_loss(&mut self, missing: u64) -> bool {
        let lost = missing > 1 || (missing == 1 && self.since_single < NUMBERS_PER_SKIP);
        self.since_single = if missing == 1 { 0 } else { self.since_single.saturating_add(1) };
        lost
    }
}
