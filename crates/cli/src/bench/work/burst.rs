//! Burst (U8): numbered messages without a pause. The receiver takes the first, is busy for a
//! while (see [`receive`](super::stream::receive)), and then takes what is there: so the figure
//! shows what buffers and flow control hold, not how fast two loops are.

use super::SendLimit;
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{Job, Report};
use crate::bench::transport::Link;
use anyhow::Result;
use bytes::Bytes;

/// The side that sends.
pub fn send(link: &mut dyn Link, job: &Job) -> Result<Report> {
    let message = Bytes::from(vec![0x5a; job.size]);
    let meter = Meter::start();
    let limit = SendLimit::new(job);
    let mut sent = 0;
    while sent < job.iters && !limit.is_over(sent) {
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
