//! A value that is searched from below and from above: raised until it is too much.
//!
//! Inputs → outputs: nothing was lost, or it was too much → the value. Source: R11, R12. Deviation: what was found to be
//! too much is remembered for a while, or it would be tried, and lost, again and again.

use core::time::Duration;
use denrei_wire::Instant;

/// What was too much is not tried again for this long.
pub(super) const MEMORY: Duration = Duration::from_secs(10);
/// Of what was too much this is kept, in 1/32: within 10 % of the true limit, and a little below it.
pub(super) const KEPT: u64 = 31;
/// Rate and burst are raised by this share where they have been too much before.
pub(super) const CAREFUL_STEP: u64 = 32;

/// A value that is raised until it is too much.
#[derive(Debug)]
pub(super) struct Search {
    pub value: u64,
    /// What was too much, and until when that counts.
    too_much: Option<(u64, Instant)>,
}

impl Search {
    /// Nothing is known to be too much.
    pub fn new(value: u64) -> Self {
        Self { value: value.max(1), too_much: None }
    }

    /// Raises the value, to `most` at most; `false`: it is as high as it may be.
    pub fn raise(&mut self, now: Instant, free_step: u64, most: u64) -> bool {
        self.too_much = self.too_much.filter(|&(_, until)| now < until);
        let (step, known) = match self.too_much {
            Some((value, _)) => (CAREFUL_STEP, value - value / CAREFUL_STEP),
            None => (free_step, u64::MAX),
        };
        let raised = self.value.saturating_add((self.value / step).max(1)).min(known).min(most);
        let higher = raised > self.value;
        self.value = self.value.max(raised);
        higher
    }

    /// Makes the value smaller; `to_blame`: it is known that it was too much.
    pub fn lower(&mut self, now: Instant, value: u64, to_blame: bool) {
        if to_blame {
            self.too_much = Some((self.value, now + MEMORY));
        }
        self.value = value.min(self.value * KEPT / 32).max(1);
    }

    /// Nothing was too much.
    pub fn forget(&mut self) {
        self.too_much = None;
    }
}
