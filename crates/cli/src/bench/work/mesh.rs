//! Mesh: every process sends to every other; what that takes in descriptors, memory, time.

use crate::bench::clock::{Meter, open_descriptors, resident_bytes};
use crate::bench::control::{Answer, Job, Report};
use crate::bench::limits::Until;
use crate::bench::transport::{Exchanged, MeshEndpoint};
use crate::orders::answer;
use anyhow::Result;
use std::net::SocketAddr;

/// Does a member's part, reports, and stays until all are done.
pub fn run(
    endpoint: Box<dyn MeshEndpoint>,
    addresses: &[SocketAddr],
    job: &Job,
    until: &Until<'_>,
) -> Result<()> {
    let meter = Meter::start();
    let mut link = endpoint.connect(addresses)?;
    let Exchanged { sent, received, end_ns, cpu_ns } = link.exchange(job, until, &meter)?;
    answer(&Answer::Report(Box::new(Report {
        messages: received,
        sent,
        start_ns: meter.start_ns,
        end_ns,
        cpu_ns,
        retransmitted: link.retransmitted(),
        descriptors: open_descriptors()?,
        resident_bytes: resident_bytes()?,
        ..Report::default()
    })))?;
    while until.reached()?.is_none() {
        link.linger()?;
    }
    Ok(())
}
