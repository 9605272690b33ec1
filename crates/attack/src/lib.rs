//! Attacks on a running Node, and what came of them.
//!
//! Inputs → outputs: an [`Attack`] and an [`Effort`] → a lab of hosts in network namespaces, an honest
//! sender and a victim with a checked transfer between them, the attack beside or upon it → an
//! [`Outcome`]: what was tried, how often, whether anything was delivered, lost or stalled, and what
//! memory and CPU time it cost the victim. Needs root, for namespaces and forged addresses.
//!
//! Who attacks is one of those of `spec/security.md`: an outsider off the path ([`attacks::outside`]),
//! an outsider on the path ([`attacks::path`]), or a member that has the key ([`attacks::member`]).

#![forbid(unsafe_code)]

pub mod attacks;
mod forge;
mod former;
pub mod member;
mod outcome;
mod relay;
mod stage;

pub use attacks::{ATTACKS, Attack};
pub use outcome::{Outcome, Tried};
pub use stage::{Effort, ROLE_COMMAND, Stage, Wiring};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Carries out an attack. `program` is the executable that plays the honest processes, told the
/// role behind `role_args`.
///
/// # Errors
/// If it cannot be tried on this machine: no root, no tools.
pub fn run(attack: &Attack, effort: Effort, program: &Path, seed: u64) -> anyhow::Result<Outcome> {
    let stage = Stage::open(attack.wiring, attack.rekey_after_packets, effort, program, seed)?;
    // The honest processes' drivers panic when one of them dies: that is a finding, not a crash.
    let seen = catch_unwind(AssertUnwindSafe(|| stage.perform(attack.run)));
    let seen = seen.map(|outcome| outcome.judged(attack.most_memory_bytes)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Outcome::failed(text.unwrap_or_else(|| "the attack's driver died".to_owned()))
    });
    Ok(Outcome { attack: attack.name, summary: attack.summary, ..seen })
}
