//! Runs a plan: every size, every transport, interleaved, as often as asked.
//!
//! Inputs → outputs: a [`Plan`] and a [`Place`] → for each size, the [`Run`]s of each transport.
//! Interleaving is what makes ratios worth something on a machine that is not quiet: the k-th run
//! of one transport is compared with the k-th of another, made seconds apart.

use super::args::Plan;
use super::control::{Answer, Bench, Job, Order, Report, Transport};
use super::listen::MAX_SIDES;
use super::machine::core_for;
use super::place::Place;
use super::result::Run;
use super::work::warmup_for;
use crate::process::{LineProcess, receive_among};
use anyhow::{Context, Result, bail};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A side has to be ready within this time.
const READY_LIMIT: Duration = Duration::from_secs(20);

/// A run may take this long, and the longer the slower it is meant to be, milliseconds.
const RUN_LIMIT_MS: u64 = 120_000;

/// What a side may take beyond its limit to say that it gave up.
const GRACE: Duration = Duration::from_secs(5);

/// All runs of one size, by transport in the plan's order, and of each in the order in which they were made.
pub type SizeRuns = Vec<(Transport, Vec<Run>)>;

/// Makes all runs of one size. `before` is told what comes next.
pub fn run_size(
    plan: &Plan,
    place: &Place,
    size: usize,
    mut before: impl FnMut(Transport, u32),
) -> Result<SizeRuns> {
    let mut runs: SizeRuns = plan.transports.iter().map(|transport| (*transport, Vec::new())).collect();
    for repeat in 0..plan.repeat {
        for turn in 0..runs.len() {
            // Each begins in turn, so that none always follows the same other.
            let place_in_order = (turn + repeat as usize) % runs.len();
            let (transport, done) = &mut runs[place_in_order];
            before(*transport, repeat);
            let run = run_once(plan, place, *transport, size)
                .with_context(|| format!("{} over {}, {size} bytes", plan.bench.name(), transport.name()))?;
            done.push(run);
        }
    }
    Ok(runs)
}

/// One run and its figures.
pub fn run_once(plan: &Plan, place: &Place, transport: Transport, size: usize) -> Result<Run> {
    let reports = measure(plan, place, transport, size)?;
    Ok(Run::new(plan, place.has_one_clock(), size, reports))
}

/// One run: starts the sides, lets them measure, ends them.
pub fn measure(plan: &Plan, place: &Place, transport: Transport, size: usize) -> Result<Vec<Report>> {
    let mut sides = Vec::with_capacity(plan.members);
    let mut limit = Duration::ZERO;
    for index in 0..plan.members {
        let (mut side, bind) = place.start(index, plan.members)?;
        let job = job(plan, transport, size, index, bind);
        limit = Duration::from_millis(job.limit_ms) + GRACE;
        side.send(&Order::Prepare(job))?;
        sides.push(side);
    }
    let addresses = sides.iter().map(ready).collect::<Result<Vec<SocketAddr>>>()?;
    // The side that answers first: it has to be there when the other begins.
    for side in sides.iter_mut().rev() {
        side.send(&Order::Start(addresses.clone()))?;
    }
    match plan.bench {
        Bench::Mesh | Bench::Gather | Bench::Rate => all_at_once(&mut sides, limit),
        _ => asker_first(&mut sides, limit),
    }
}

/// Members of a mesh or gather are done when they are; none may leave before all are.
fn all_at_once(sides: &mut [LineProcess], limit: Duration) -> Result<Vec<Report>> {
    let reports = (0..sides.len()).map(|index| report(sides, index, limit)).collect::<Result<Vec<_>>>()?;
    for side in sides {
        side.send(&Order::Stop(0))?;
    }
    Ok(reports)
}

/// Side 0 decides when it is done, then side 1 is stopped.
fn asker_first(sides: &mut [LineProcess], limit: Duration) -> Result<Vec<Report>> {
    let first = report(sides, 0, limit)?;
    sides[1].send(&Order::Stop(first.messages))?;
    let second = report(sides, 1, limit)?;
    sides[0].send(&Order::Stop(0))?;
    Ok(vec![first, second])
}

fn ready(side: &LineProcess) -> Result<SocketAddr> {
    match side.receive(READY_LIMIT).map_err(|error| unlike_a_side(side, error))? {
        Answer::Ready(addr) => Ok(addr),
        Answer::Failed(why) => bail!("{}: {why}", side.name()),
        Answer::Report(_) => bail!("{} reported before it was started", side.name()),
    }
}

/// At another machine's address anything may listen, or who serves there may have too much to do.
fn unlike_a_side(side: &LineProcess, error: anyhow::Error) -> anyhow::Error {
    if side.pid().is_some() {
        return error;
    }
    error.context(format!(
        "no `denrei bench pingpong --listen` of this version answers there, or it has {MAX_SIDES} sides already"
    ))
}

fn report(sides: &mut [LineProcess], index: usize, limit: Duration) -> Result<Report> {
    let failure = |answer: &Answer| if let Answer::Failed(why) = answer { Some(why.clone()) } else { None };
    match receive_among(sides, index, limit, failure)? {
        Answer::Report(report) => Ok(*report),
        other => bail!("{} said {other:?} for a report", sides[index].name()),
    }
}

fn job(plan: &Plan, transport: Transport, size: usize, index: usize, bind: IpAddr) -> Job {
    let iters = plan.iters_for(size);
    let rate_ms = plan.pace.iter().flat_map(|pace| &pace.send_ms).max().copied().unwrap_or(0);
    let send_ms = plan.time_for(size).as_millis() as u64 + rate_ms;
    let core = if plan.pin && plan.members == 2 { core_for(index) } else { None };
    Job {
        bench: plan.bench,
        transport,
        size,
        iters,
        warmup: if plan.bench == Bench::Pingpong { warmup_for(iters) } else { 0 },
        wait: plan.wait,
        drive: plan.drive,
        rate_per_s: plan.rate_per_s,
        read_after_ms: plan.read_after_ms,
        pace: plan.pace.clone(),
        core,
        index,
        members: plan.members,
        bind,
        send_ms,
        limit_ms: RUN_LIMIT_MS + send_ms,
    }
}
