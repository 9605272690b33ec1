//! `denrei sim`: runs an experiment in the simulator and prints what came of it.
//!
//! Inputs → outputs: a plan (TOML, see `crates/sim/plans`) → a table, CSV or JSON lines, one row
//! per combination, in the plan's order whatever the number of threads.

use super::values::whole;
use super::wrong_arguments;
use crate::process::NO_THREAD;
use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::Table;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use denrei_output::{self as output, say};
use denrei_sim::plan::{Plan, Row};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// Columns of the table beside the axes that vary and what the plan's faults did, as far as they are measured; CSV and
/// JSON have all.
const TABLE_COLUMNS: [&str; 17] = [
    "finished",
    "converged",
    "goodput_bytes_per_s",
    "goodput_of_link",
    "p50_us",
    "p99_us",
    "p99_of_ideal",
    "fairness",
    "lost_share",
    "lost_share_later",
    "retransmissions",
    "probes",
    "deepest_queue_bytes",
    "group_packets",
    "reports_per_100",
    "repairs",
    "parities",
];

/// What stands for a value that there is none of.
const NOT_MEASURED: &str = "null";

/// Longest plan, bytes: a thousand times the longest of ours. Nothing that has no end is read on until memory has.
const MAX_PLAN_BYTES: u64 = 1 << 20;

/// Simulate every combination of an experiment's axes.
///
/// A plan is TOML: `name`; `[axes]` with a value or a list of values for each field; and for what goes
/// wrong with some hosts for a while, a table `[[faults]]` each: `kind` (partition, crash, pause, link),
/// `hosts`, `from_s`, `to_s`. docs/sim.md lists all fields. The same plan gives the same numbers on every
/// machine. The exit status is 1 if a combination did not finish within its time limit, or something was
/// left over when its network was healed.
#[derive(Args, Debug)]
pub struct SimCommand {
    /// The plan
    plan: PathBuf,
    /// Print one JSON object per line and combination
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values
    #[arg(long)]
    csv: bool,
    /// Threads; all cores if not given
    #[arg(long, value_parser = whole(1_usize..=1024), value_name = "N")]
    jobs: Option<usize>,
}

impl SimCommand {
    /// Runs it; whether every combination finished and came to rest.
    pub fn run(&self) -> Result<bool> {
        let text = self.read_plan()?;
        let plan = Plan::parse(&text)
            .map_err(|error| wrong_arguments(format!("{}: {error}", self.plan.display())))?;
        let telling = plan.telling();
        let shown = |name: &str| {
            plan.varying.contains(name) || telling.contains(name) || TABLE_COLUMNS.contains(&name)
        };
        let mut rows = Vec::new();
        let mut finished = true;
        let mut first = true;
        let mut out = std::io::stdout();
        run_in_order(&plan, self.threads(), |row| {
            finished &= row.outcome.finished && row.outcome.converged;
            let is_first = std::mem::replace(&mut first, false);
            match (self.json, self.csv) {
                (true, _) => writeln!(out, "{}", row.to_json()),
                (_, true) if is_first => writeln!(out, "{}\n{}", row.csv_header(), row.to_csv()),
                (_, true) => writeln!(out, "{}", row.to_csv()),
                _ => {
                    rows.push(row.columns().into_iter().filter(|(name, _)| shown(name)).collect());
                    Ok(())
                }
            }
        })?
        .unwrap_or_else(|error| output::unwritable(error));
        if !self.json && !self.csv {
            say!("{}\n{}", plan.name, table(&rows));
        }
        Ok(finished)
    }

    /// The plan's text.
    fn read_plan(&self) -> Result<String> {
        let name = self.plan.display();
        let mut text = String::new();
        let reading = File::open(&self.plan);
        let reading = reading.and_then(|plan| plan.take(MAX_PLAN_BYTES + 1).read_to_string(&mut text));
        reading.with_context(|| format!("cannot read the plan {name}"))?;
        if text.len() as u64 > MAX_PLAN_BYTES {
            bail!("{name} is no plan: it has more than {MAX_PLAN_BYTES} bytes");
        }
        Ok(text)
    }

    fn threads(&self) -> usize {
        let cores = || thread::available_parallelism().map_or(1, |cores| cores.get());
        self.jobs.unwrap_or_else(cores)
    }
}

/// Simulates all cells on `threads` threads and gives the rows to `print` in the plan's order.
/// Stops when `print` fails, because nobody reads any more.
///
/// # Errors
/// No thread is to be had. What is returned beside that is what `print` said.
fn run_in_order(
    plan: &Plan,
    threads: usize,
    mut print: impl FnMut(&Row) -> std::io::Result<()>,
) -> Result<std::io::Result<()>> {
    let bar = ProgressBar::new(plan.cells.len() as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let next = AtomicUsize::new(0);
    let (rows, finished) = mpsc::channel();
    let result = thread::scope(|scope| {
        for started in 0..threads.min(plan.cells.len()) {
            let rows = rows.clone();
            let next = &next;
            let work = move || {
                while let Some((number, cell)) = next_cell(plan, next) {
                    // Fails only when nobody reads any more.
                    let _ = rows.send((number, cell.run()));
                }
            };
            let thread = thread::Builder::new().name("simulation".into());
            match thread.spawn_scoped(scope, work) {
                Err(error) if started == 0 => return Err(error).context(NO_THREAD),
                // Fewer take longer.
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop(rows);
        let mut early: BTreeMap<usize, Row> = BTreeMap::new();
        let mut turn = 0;
        for (number, row) in finished {
            bar.inc(1);
            early.insert(number, row);
            while let Some(row) = early.remove(&turn) {
                if let Err(error) = bar.suspend(|| print(&row)) {
                    // Hands out no more cells.
                    next.store(plan.cells.len(), Ordering::Relaxed);
                    return Ok(Err(error));
                }
                turn += 1;
            }
        }
        Ok(Ok(()))
    });
    bar.finish_and_clear();
    result
}

fn next_cell<'a>(plan: &'a Plan, next: &AtomicUsize) -> Option<(usize, &'a denrei_sim::plan::Cell)> {
    let number = next.fetch_add(1, Ordering::Relaxed);
    Some((number, plan.cells.get(number)?))
}

/// Rows of the same columns, names and values, without those that none of them has a value for.
fn table(rows: &[Vec<(String, String)>]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED);
    let names = rows.first().map(|row| row.iter().map(|(name, _)| name.clone())).into_iter().flatten();
    let is_measured =
        |name: &String| rows.iter().flatten().any(|(other, value)| other == name && value != NOT_MEASURED);
    let names: Vec<String> = names.filter(is_measured).collect();
    table.set_header(&names);
    for row in rows {
        table.add_row(row.iter().filter(|(name, _)| names.contains(name)).map(|(_, value)| shorten(value)));
    }
    table
}

/// A number as people read it: four significant digits, thousands apart.
fn shorten(value: &str) -> String {
    let Ok(number) = value.parse::<f64>() else { return value.to_owned() };
    if number == 0.0 || !value.contains('.') && number.abs() < 10_000.0 {
        return value.to_owned();
    }
    match number.abs() {
        size if size >= 1e9 => format!("{:.3} G", number / 1e9),
        size if size >= 1e6 => format!("{:.3} M", number / 1e6),
        size if size >= 1e4 => format!("{:.2} k", number / 1e3),
        size if size >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_in_the_order_of_the_plan() {
        let plan = Plan::parse("name = 'p'\n[axes]\nmessages = [300, 1, 200, 2, 100]\nmessage_bytes = 1000");
        let mut order = Vec::new();
        run_in_order(&plan.unwrap(), 3, |row| {
            order.push(row.cell.messages);
            Ok(())
        })
        .unwrap()
        .unwrap();
        assert_eq!(order, [300, 1, 200, 2, 100]);
    }

    #[test]
    fn a_table_has_the_columns_that_some_row_has_a_value_for() {
        let row = |values: [&str; 3]| {
            let named = ["loss", "p50_us", "repairs"].into_iter().zip(values);
            named.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        let table = table(&[row(["0.1", "null", "3"]), row(["0.2", "null", "null"])]).to_string();
        assert!(table.contains("loss") && table.contains("repairs") && table.contains("null"), "{table}");
        assert!(!table.contains("p50_us"), "{table}");
    }

    #[test]
    fn numbers_are_short() {
        let cases = [("1250000000.0", "1.250 G"), ("0.00123", "0.00123"), ("42", "42"), ("true", "true")];
        for (given, expected) in cases {
            assert_eq!(shorten(given), expected);
        }
    }
}
