//! Ping-pong (U7): one message there, one back, the next when it has come back.

use super::latencies;
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{Job, Report};
use crate::bench::limits::{SendLimit, Until};
use crate::bench::transport::{Incoming, Link};
use anyhow::{Result, bail};
use bytes::Bytes;

/// Least and most exchanges before the measured ones: caches, routes, windows settle.
const WARMUP: std::ops::RangeInclusive<u64> = 10..=1000;

/// Exchanges to make before `iters` measured ones.
pub fn warmup_for(iters: u64) -> u64 {
    (iters / 10).clamp(*WARMUP.start(), *WARMUP.end())
}

/// The side that asks, and measures whole round trips.
pub fn ask(link: &mut dyn Link, job: &Job, until: &Until<'_>) -> Result<Report> {
    let message = Bytes::from(vec![0x5a; job.size]);
    let mut histogram = latencies();
    let mut given_up = 0;
    let mut meter = Meter::start();
    let limit = SendLimit::new(job);
    for number in 0..job.warmup + job.iters {
        if number == job.warmup {
            meter = Meter::start();
            histogram.clear();
            given_up = 0;
        }
        let sent_ns = now_ns();
        // What a busy machine lets it do before the measured ones is better than nothing.
        if limit.is_past(sent_ns) {
            break;
        }
        link.send(number, &message)?;
        let returned = returned(link, number, until)?;
        let took_ns = now_ns() - sent_ns;
        if returned {
            histogram.saturating_record(took_ns);
        } else {
            given_up += 1;
        }
    }
    let cpu_ns = meter.cpu_ns();
    let measured = !histogram.is_empty();
    Ok(Report {
        messages: histogram.len(),
        start_ns: meter.start_ns,
        end_ns: now_ns(),
        cpu_ns,
        lost: given_up,
        retransmitted: link.retransmitted(),
        p50_ns: measured.then(|| histogram.value_at_quantile(0.5)),
        p99_ns: measured.then(|| histogram.value_at_quantile(0.99)),
        ..Report::default()
    })
}

/// Waits for the answer to `number`; `false`: it was given up after
/// [`PATIENCE`](crate::bench::transport::PATIENCE), and counts as lost even if it comes later.
fn returned(link: &mut dyn Link, number: u64, until: &Until<'_>) -> Result<bool> {
    loop {
        match link.recv()? {
            Incoming::Message(got) if got == number => return Ok(true),
            // An answer to an exchange that was given up.
            Incoming::Message(_) => {}
            Incoming::Nothing if !link.is_reliable() => return Ok(false),
            Incoming::Nothing => until.check()?,
            Incoming::Closed => bail!("the other side has closed in the middle of an exchange"),
        }
    }
}

/// The side that answers.
pub fn answer(link: &mut dyn Link, job: &Job, until: &Until<'_>) -> Result<Report> {
    let message = Bytes::from(vec![0xa5; job.size]);
    let last = job.warmup + job.iters - 1;
    let mut meter = Meter::start();
    let mut report = Report::default();
    loop {
        match link.recv()? {
            Incoming::Message(number) => {
                if number == job.warmup {
                    meter = Meter::start();
                }
                link.send(number, &message)?;
                report.messages += 1;
                if number == last {
                    report.cpu_ns = meter.cpu_ns();
                }
            }
            Incoming::Nothing if until.reached()?.is_some() => break,
            Incoming::Nothing => {}
            Incoming::Closed => break,
        }
    }
    if report.cpu_ns == 0 {
        report.cpu_ns = meter.cpu_ns();
    }
    report.retransmitted = link.retransmitted();
    Ok(report)
}
