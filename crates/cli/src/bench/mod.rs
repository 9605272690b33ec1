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
mod limits;
mod listen;
mod machine;
mod mesh;
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
pub use listen::MAX_MESH;
pub use machine::Machine;
pub use place::{PEER_COMMAND, Place};

use crate::cmd::wrong_arguments;
use anyhow::Result;
use args::{PairArgs, Plan};
use denrei_output::say;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use picture::PictureArgs;
use result::{Row, Run};
use runner::SizeRuns;
use table::ResultTable;

/// Runs a plan, prints its results, and draws them if that was asked for; or serves the other side.
pub fn run(plan: &Plan, args: &PairArgs, picture: &PictureArgs) -> Result<()> {
    let (common, keys) = (&args.bench.common, &args.bench.keys);
    if let Some(addr) = args.listen {
        if picture.is_wanted() {
            return Err(wrong_arguments("--svg has no effect with --listen: who connects has the figures"));
        }
        if args.bench.sealed {
            keys.check_between_machines()?;
        }
        let keys = keys.clone().or_environment();
        // Each side reads its files: what is wrong with them is said now, not to who connects.
        keys.config()?;
        return listen::serve(addr, &keys);
    }
    picture.check()?;
    let place = Place::open(&common.place, args.connect, keys, &plan.transports, plan.members)?;
    let rows = if common.json {
        run_sizes(plan, &place, |results, rows| {
            for ((_, runs), row) in results.iter().zip(rows) {
                say!("{}", json_line(plan, runs, row)?);
            }
            Ok(())
        })?
    } else {
        say!("{}", Machine::this());
        let (table, rows) = run_table(plan, &place)?;
        say!("{table}");
        rows
    };
    picture.draw(|path| curves::write(path, &rows))
}

/// A line of `--json`: the fields of every benchmark, and after them those that a mesh has of its own.
fn json_line(plan: &Plan, runs: &[Run], row: &Row) -> Result<String> {
    Ok(match plan.bench {
        Bench::Mesh => {
            serde_json::to_string(&mesh::Row { common: row, own: mesh::Figures::new(plan.members, runs) })?
        }
        _ => serde_json::to_string(row)?,
    })
}

/// Runs a plan; its table, and the rows of that.
pub fn run_table(plan: &Plan, place: &Place) -> Result<(ResultTable, Vec<Row>)> {
    let mut table = ResultTable::new(plan);
    let rows = run_sizes(plan, place, |results, rows| {
        table.add(results, rows);
        Ok(())
    })?;
    Ok((table, rows))
}

/// Runs a plan; a row for every size and transport. Those of one size are handed to `done` as soon as they are
/// there, with the runs that they are of.
fn run_sizes(
    plan: &Plan,
    place: &Place,
    mut done: impl FnMut(&SizeRuns, &[Row]) -> Result<()>,
) -> Result<Vec<Row>> {
    let total = plan.sizes.len() as u64 * plan.transports.len() as u64 * u64::from(plan.repeat);
    // Drawn on standard error, and only if that is a terminal.
    let progress = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    progress.set_style(ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} runs, {eta} left")?);
    let mut rows = Vec::new();
    for size in &plan.sizes {
        let results = runner::run_size(plan, place, *size, |transport, _| {
            progress.set_message(format!("{} {} {size} B", plan.bench.name(), transport.name()));
            progress.inc(1);
        })?;
        let of_size: Vec<Row> =
            results.iter().map(|(transport, runs)| Row::new(plan.bench, *transport, *size, runs)).collect();
        done(&results, &of_size)?;
        rows.extend(of_size);
    }
    progress.finish_and_clear();
    Ok(rows)
}
