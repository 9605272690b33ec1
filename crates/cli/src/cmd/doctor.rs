//! `denrei doctor`: what this host is missing, and what to do about it.

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{ContentArrangement, Table};
use denrei_io::doctor::{Check, Status, checks, loopback};
use denrei_output::say;
use serde::Serialize;

/// Characters per line where there is no terminal to ask.
const FILE_WIDTH: u16 = 120;
/// A narrower terminal breaks lines by itself: columns of a few letters each nobody can read.
const LEAST_WIDTH: u16 = 60;

/// Try on this host what denrei uses, and say what to change.
///
/// Nothing is changed and no privileges are needed. The exit status is 1 if denrei cannot work here.
#[derive(Args, Debug)]
pub struct DoctorCommand {
    /// Print one JSON object per line and check
    #[arg(long)]
    json: bool,
}

/// A line of `--json`.
#[derive(Serialize)]
struct CheckLine<'a> {
    name: &'a str,
    status: &'static str,
    found: &'a str,
    advice: Option<&'a str>,
}

impl DoctorCommand {
    /// Runs it; whether denrei can work here.
    pub fn run(&self) -> Result<bool> {
        let checks = checks();
        if self.json {
            for check in &checks {
                say!("{}", serde_json::to_string(&line(check))?);
            }
        } else {
            say!("{}", table(&checks));
        }
        Ok(checks.iter().all(|check| check.status != Status::Fail))
    }
}

/// That datagrams arrive on loopback, where processes of this host are to exchange some.
///
/// # Errors
/// They do not; what to do.
pub fn check_loopback() -> Result<()> {
    let check = loopback();
    if check.status != Status::Fail {
        return Ok(());
    }
    bail!("{}: {}; `denrei doctor` looks at the rest", check.found, check.advice.unwrap_or_default())
}

fn line(check: &Check) -> CheckLine<'_> {
    CheckLine {
        name: check.name,
        status: status_name(check.status),
        found: &check.found,
        advice: check.advice.as_deref(),
    }
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(table.width().map_or(FILE_WIDTH, |terminal| terminal.max(LEAST_WIDTH)));
    table.set_header(["check", "", "found", "what to do"]);
    for check in checks {
        let line = line(check);
        table.add_row([line.name, line.status, line.found, line.advice.unwrap_or("")]);
    }
    table
}

fn status_name(status: Status) -> &'static str {
    match status {
        Status::Ok => "ok",
        Status::Warn => "warn",
        Status::Fail => "FAIL",
    }
}
