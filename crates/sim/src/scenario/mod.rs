//! Random operations on a random network, one seed at a time.
//!
//! Inputs → outputs: a seed → a [`Summary`], or a [`Failure`] with the smallest list of operations
//! found that still fails. The order of a run: build the world, apply the operations while faults
//! act, heal everything, demand that all settles, judge (see [`crate::oracle`]).

mod generate;
mod ops;
mod play;
mod shrink;

pub use generate::{HostSetup, Setup, generate, generate_groups};
pub use ops::{Forgery, TestOp, TimedOp};

use crate::net::faults::FaultCounts;
use crate::oracle::Totals;
use crate::world::Trace;
use core::fmt;
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use thiserror::Error;

/// What scenarios are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Sessions alone.
    Sessions,
    /// Groups, with sessions beside them.
    Groups,
}

impl Subject {
    /// The scenario of `seed`.
    pub fn generate(self, seed: u64) -> (Setup, Vec<TimedOp>) {
        match self {
            Self::Sessions => generate(seed),
            Self::Groups => generate_groups(seed),
        }
    }

    /// Runs the scenario of `seed`.
    ///
    /// # Errors
    /// The first broken promise, its operations shrunk.
    pub fn run_seed(self, seed: u64) -> Result<Summary, Failure> {
        let (setup, ops) = self.generate(seed);
        run_ops(&setup, &ops).map_err(|what| shrink::shrink(self, seed, setup, ops, what))
    }
}

/// What happened in a run that broke no promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Fingerprint of every datagram, event and message.
    pub digest: u64,
    /// What was sent and received.
    pub totals: Totals,
    /// What the faults did.
    pub counts: FaultCounts,
    /// Arrivals, timeouts and wakes simulated.
    pub happenings: u64,
    /// How long the healed network took to deliver all that was left, beyond the time that it takes to miss the dead.
    pub settling: Duration,
    /// How long the run took on its own clock.
    pub virtual_time: Duration,
}

/// A broken promise, and how to see it again.
#[derive(Clone, Debug, Error)]
pub struct Failure {
    /// What it is about.
    pub subject: Subject,
    /// The seed.
    pub seed: u64,
    /// What was broken.
    pub what: String,
    /// The hosts and links.
    pub setup: Box<Setup>,
    /// The smallest list of operations found that fails.
    pub ops: Vec<TimedOp>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        writeln!(f, "{}operations ({}):", self.setup, self.ops.len())?;
        for (number, op) in self.ops.iter().enumerate() {
            writeln!(f, "  {number:3}. {op}")?;
        }
        let groups = if self.subject == Subject::Groups { "--groups " } else { "" };
        write!(f, "reproduce: cargo xtask sim {groups}--seed {} --verbose", self.seed)
    }
}

/// Runs given operations. A panic of the core is a broken promise like any other.
///
/// # Errors
/// What was broken.
pub fn run_ops(setup: &Setup, ops: &[TimedOp]) -> Result<Summary, String> {
    run_traced(setup, ops, None)
}

/// [`run_ops`], telling `trace` what happens.
///
/// # Errors
/// What was broken.
pub fn run_traced(setup: &Setup, ops: &[TimedOp], trace: Option<Trace>) -> Result<Summary, String> {
    let run = AssertUnwindSafe(|| play::Play::new(setup, trace).run(ops));
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panicked: {}", text.unwrap_or("without a message")))
    })
}
