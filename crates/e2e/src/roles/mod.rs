//! What one process of an end-to-end test does, told by lines of JSON.
//!
//! Inputs → outputs: [`Order`]s on standard input → [`Report`]s on standard output. When the
//! input ends, because the test has ended or died, the process ends.
//!
//! Roles: `node` holds one Node; `leaves` holds hundreds, each with one message to say; `capture`
//! and `inject` are the attacker's. `group-opener` and `group-member` take no orders: their command
//! line says what to do.

mod capture;
mod group;
mod groups;
mod inject;
mod leaves;
mod ping;
mod resources;
mod serve;
mod stream;
mod tally;

use crate::{Order, Report};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, sync_channel};

/// Orders read and not yet carried out; whoever writes more waits.
const MAX_WAITING_ORDERS: usize = 64;

/// Carries out the orders of standard input in a role, until there will be no more.
///
/// # Errors
/// For a role that is none, or if nobody reads the reports any more.
pub fn run(role: Option<&str>) -> Result<()> {
    match role {
        Some("group-member") => return group::run_member(),
        Some("group-opener") => return group::run_opener(),
        _ => {}
    }
    let orders = read_orders()?;
    match role {
        Some("node") => serve::run(&orders),
        Some("leaves") => leaves::run(&orders),
        Some("capture") => capture::run(&orders),
        Some("inject") => inject::run(&orders),
        role => {
            bail!("the role {role:?} is none of node, leaves, capture, inject, group-opener, group-member")
        }
    }
}

/// Writes one report.
fn report(report: &Report) -> Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    std::io::stdout().write_all(line.as_bytes()).context("the test reads no more")
}

/// Writes that an order was not carried out.
fn report_failure(error: impl std::fmt::Display) -> Result<()> {
    report(&Report::Failed { error: error.to_string() })
}

fn read_orders() -> Result<Receiver<Order>> {
    let (sender, orders) = sync_channel(MAX_WAITING_ORDERS);
    let reader = std::thread::Builder::new().name("orders".into());
    reader.spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(order) => {
                    if sender.send(order).is_err() {
                        return;
                    }
                }
                Err(error) => eprintln!("e2e-node: cannot read the order {line:?}: {error}"),
            }
        }
    })?;
    Ok(orders)
}
