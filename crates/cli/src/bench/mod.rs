//! Benchmarks: denrei, TCP and bare UDP side by side, interleaved, between two processes or more.
//!
//! Inputs → outputs: options → a plan ([`args`]) → runs ([`runner`]), each with processes of its own
//! ([`peer`]) that do their part ([`work`]) over a [`transport`] → figures ([`result`]) → a table or
//! JSON.

pub mod args;
pub mod bcast;
mod clock;
mod control;
pub mod gather;
pub mod layers;
mod listen;
mod machine;
pub mod mpi;
pub mod peer;
mod place;
pub mod rate;
mod result;
mod runner;
mod table;
mod transport;
mod work;

pub use control::Bench;
pub use machine::Machine;
pub use place::{PEER_COMMAND, Place};
pub use table::human_bytes;

use crate::output::say;
use anyhow::Result;
use args::{BenchArgs, Plan};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use result::Row;
use table::ResultTable;

/// Runs a plan and prints its results; or serves the other side, if that was asked for.
pub fn run(plan: &Plan, args: &BenchArgs) -> Result<()> {
    if let Some(addr) = args.place.listen {
        return listen::serve(addr, &args.keys.clone().or_environment());
    }
    let place = Place::open(args, &plan.transports, plan.members)?;
    if args.json {
        return run_json(plan, &place);
    }
    say!("{}", Machine::this());
    say!("{}", run_table(plan, &place)?);
    Ok(())
}

/// Runs a plan and gives its table.
pub fn run_table(plan: &Plan, place: &Place) -> Result<String> {
    let mut table = ResultTable::new(plan.bench, plan.rate_per_s.is_some());
    run_sizes(plan, place, |results| {
        table.add(results);
        Ok(())
    })?;
    Ok(table.to_string())
}

fn run_json(plan: &Plan, place: &Place) -> Result<()> {
    run_sizes(plan, place, |results| {
        for (transport, runs) in &results.runs {
            let row = Row::new(plan.bench, *transport, results.size, runs);
            say!("{}", serde_json::to_string(&row)?);
        }
        Ok(())
    })
}

fn run_sizes(
    plan: &Plan,
    place: &Place,
    mut done: impl FnMut(&runner::SizeRuns) -> Result<()>,
) -> Result<()> {
    let total = plan.sizes.len() as u64 * plan.transports.len() as u64 * u64::from(plan.repeat);
    // Drawn on standard error, and only if that is a terminal.
    let progress = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    progress.set_style(ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} runs, {eta} left")?);
    for size in &plan.sizes {
        let results = runner::run_size(plan, place, *size, |transport, _| {
            progress.set_message(format!("{} {} {size} B", plan.bench.name(), transport.name()));
            progress.inc(1);
        })?;
        done(&results)?;
    }
    progress.finish_and_clear();
    Ok(())
}
