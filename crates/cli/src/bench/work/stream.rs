//! Stream: messages one way, as fast as they go, or at a pace to see each one's latency. And burst
//! (U8): the same without a pace, to a receiver that takes the first message, is busy for a while,
//! and then takes what is there, so that the figure shows what buffers and flow control hold, not how
//! fast two loops are.

use super::tally::Tally;
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{Bench, Job, Report};
use crate::bench::limits::{SendLimit, Until, is_time_to_look};
use crate::bench::transport::{Incoming, Link};
use anyhow::Result;
use bytes::Bytes;
use std::time::Duration;

/// A paced stream begins this long after the start, so that its first messages are not late, ns.
const LEAD_NS: u64 = 5_000_000;

/// When message `number` of a paced stream is due. Latency counts from here and not from the call,
/// so a sender that was held up does not hide it.
pub fn due_ns(start_ns: u64, rate_per_s: f64, number: u64) -> u64 {
    start_ns + (number as f64 * 1e9 / rate_per_s) as u64
}

/// The side that sends a stream or a burst.
pub fn send(link: &mut dyn Link, job: &Job) -> Result<Report> {
    let message = Bytes::from(vec![0x5a; job.size]);
    let mut meter = Meter::start();
    if job.rate_per_s.is_some() {
        link.pause_until(meter.start_ns + LEAD_NS)?;
        meter = Meter::start();
    }
    let limit = SendLimit::new(job);
    let mut sent = 0;
    while sent < job.iters && !limit.is_over(sent) {
        if let Some(rate) = job.rate_per_s {
            link.pause_until(due_ns(meter.start_ns, rate, sent))?;
        }
        link.send(sent, &message)?;
        sent += 1;
    }
    link.flush()?;
    Ok(Report {
        messages: sent,
        start_ns: meter.start_ns,
        end_ns: now_ns(),
        cpu_ns: meter.cpu_ns(),
        retransmitted: link.retransmitted(),
        ..Report::default()
    })
}

/// The side that receives a stream or a burst.
pub fn receive(link: &mut dyn Link, job: &Job, until: &Until<'_>) -> Result<Report> {
    let paced = job.rate_per_s.is_some();
    let mut tally = Tally::new(job.iters);
    let mut meter = Meter::start();
    let mut report = Report::default();
    loop {
        match link.recv()? {
            Incoming::Message(number) => {
                if tally.arrived() == 0 {
                    report.first_ns = now_ns();
                    meter = Meter::start();
                    be_busy(job);
                }
                tally.mark(number);
                if tally.is_complete() || !link.is_reliable() || is_time_to_look(job, number + 1) {
                    report.end_ns = now_ns();
                }
                if paced {
                    report.arrivals.push((number, report.end_ns));
                }
                if tally.is_complete() {
                    report.cpu_ns = meter.cpu_ns();
                }
            }
            Incoming::Nothing => {
                if let Some(sent) = until.reached()? {
                    // What a reliable transport still has under way does come.
                    tally.expect_only(sent);
                    if tally.is_complete() || !link.is_reliable() {
                        break;
                    }
                }
            }
            Incoming::Closed => break,
        }
    }
    if report.cpu_ns == 0 {
        report.cpu_ns = meter.cpu_ns();
    }
    report.messages = tally.arrived();
    report.lost = tally.missing();
    report.first_loss_at = tally.first_missing();
    report.retransmitted = link.retransmitted();
    Ok(report)
}

fn be_busy(job: &Job) {
    if job.bench == Bench::Burst {
        std::thread::sleep(Duration::from_millis(job.read_after_ms));
    }
}
