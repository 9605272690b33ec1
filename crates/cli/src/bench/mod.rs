//! Benchmarks: denrei, TCP and bare UDP side by side, interleaved, between two processes or more.
//!
//! Inputs → outputs: options → a plan ([`args`]) → runs ([`runner`]), each with processes of its own
//! ([`peer`]) that do their part ([`work`]) over a [`transport`] → figures ([`result`]) → a table or
//! JSON, and a [`picture`].

pub mod args;
pub mod bcast;
mod clock;
mod control;
mod curves;
pub mod gather;
pub mod layers;
mod listen;
mod machine;
pub mod mpi;
pub mod peer;
pub mod picture;
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
use picture::PictureArgs;
use result::Row;
use table::ResultTable;

/// Runs a plan, prints its results, and draws them if that was asked for; or serves the other side.
pub fn run(plan: &Plan, args: &BenchArgs, picture: &PictureArgs) -> Result<()> {
    if let Some(addr) = args.place.listen {
        return listen::serve(addr, &args.keys.clone().or_environment());
    }
    picture.check()?;
    let place = Place::open(args, &plan.transports, plan.members)?;
    let mut rows = Vec::new();
    if args.json {
        rows = run_json(plan, &place)?;
    } else {
        say!("{}", Machine::this());
        say!("{}", table_of(plan, &place, &mut rows)?);
    }
    picture.draw(|path| curves::write(path, &rows))
}

/// Runs a plan and gives its table.
pub fn run_table(plan: &Plan, place: &Place) -> Result<String> {
    table_of(plan, place, &mut Vec::new())
}

fn table_of(plan: &Plan, place: &Place, rows: &mut Vec<Row>) -> Result<String> {
    let mut table = ResultTable::new(plan.bench, plan.rate_per_s.is_some());
    run_sizes(plan, place, |results| {
        table.add(results);
        rows.extend(rows_of(plan, results));
        Ok(())
    })?;
    Ok(table.to_string())
}

fn run_json(plan: &Plan, place: &Place) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    run_sizes(plan, place, |results| {
        for row in rows_of(plan, results) {
            say!("{}", serde_json::to_string(&row)?);
            rows.push(row);
        }
        Ok(())
    })?;
    Ok(rows)
}

fn rows_of(plan: &Plan, results: &runner::SizeRuns) -> impl Iterator<Item = Row> {
    results.runs.iter().map(|(transport, runs)| Row::new(plan.bench, *transport, results.size, runs))
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
