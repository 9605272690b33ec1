//! One side of one run: the process behind the hidden `__bench-peer`.
//!
//! Inputs → outputs: orders on standard input (see [`control`](super::control)) → a measurement,
//! reported on standard output. Ends with its orders.

use super::clock::now_ns;
use super::control::{Answer, Bench, Job, Order};
use super::limits::Until;
use super::machine::pin_to;
use super::transport;
use super::work;
use crate::cmd::key::KeyArgs;
use crate::orders::{self, Orders, answer};
use anyhow::{Result, bail};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a side waits for its first order, and for the others to be ready.
const PREPARE_LIMIT: Duration = Duration::from_secs(60);

/// Between two looks for `Stop`, a side keeps its link alive for this long, nanoseconds.
const LINGER_NS: u64 = 1_000_000;

/// Runs until told to stop. What goes wrong is reported, and returned.
pub fn run(keys: &KeyArgs) -> Result<()> {
    orders::obey(|orders| obey(orders, keys), Answer::Failed)
}

fn obey(orders: &Orders<Order>, keys: &KeyArgs) -> Result<()> {
    let Order::Prepare(job) = orders.wait(PREPARE_LIMIT)? else { bail!("the first order has to be Prepare") };
    if let Some(core) = job.core {
        pin_to(core)?;
    }
    if job.bench == Bench::Mesh {
        let endpoint = transport::prepare_mesh(&job, keys)?;
        answer(&Answer::Ready(endpoint.local_addr()?))?;
        let addresses = wait_for_start(orders, &job)?;
        return work::run_mesh(endpoint, &addresses, &job, &Until::stop(orders, &job));
    }
    if job.bench == Bench::Rate {
        let endpoint = work::PaceEndpoint::open(&job, keys)?;
        answer(&Answer::Ready(endpoint.local_addr()))?;
        let addresses = wait_for_start(orders, &job)?;
        return endpoint.run(&addresses, &Until::stop(orders, &job));
    }
    if job.bench == Bench::Gather {
        let endpoint = transport::prepare_gather(&job, keys)?;
        answer(&Answer::Ready(endpoint.local_addr()?))?;
        let addresses = wait_for_start(orders, &job)?;
        return work::run_gather(endpoint, &addresses, &job, &Until::stop(orders, &job));
    }
    let endpoint = transport::prepare(&job, keys)?;
    answer(&Answer::Ready(endpoint.local_addr()?))?;
    let addresses = wait_for_start(orders, &job)?;
    let until = Until::stop(orders, &job);
    let mut link = endpoint.link(&addresses)?;
    let report = work::run(link.as_mut(), &job, &until)?;
    answer(&Answer::Report(Box::new(report)))?;
    // The link stays until the other side has what it needs.
    while until.reached()?.is_none() {
        link.pause_until(now_ns() + LINGER_NS)?;
    }
    Ok(())
}

fn wait_for_start(orders: &Orders<Order>, job: &Job) -> Result<Vec<SocketAddr>> {
    match orders.wait(PREPARE_LIMIT)? {
        Order::Start(addresses) if addresses.len() == job.members => Ok(addresses),
        other => bail!("expected Start with {} addresses, not {other:?}", job.members),
    }
}
