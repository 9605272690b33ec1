//! Mesh: every process sends to every other; what that takes in descriptors, memory, time.

use super::Until;
use crate::bench::clock::{Meter, now_ns, open_descriptors, resident_bytes};
use crate::bench::control::{Answer, Job, Report, Transport};
use crate::bench::transport::{DenreiEndpoint, TcpMeshEndpoint};
use crate::cmd::key::KeyArgs;
use crate::orders::answer;
use anyhow::{Result, bail};
use std::net::SocketAddr;

/// A local endpoint that waits for the addresses of all members.
pub trait MeshEndpoint {
    /// Where the others reach it.
    fn local_addr(&self) -> Result<SocketAddr>;
    /// Connects with all members; `addresses` are theirs in order, this one's included.
    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn MeshLink>>;
}

/// One member, connected with all others.
pub trait MeshLink {
    /// Sends the job's messages to every member and takes as many from each.
    fn exchange(&mut self, job: &Job, until: &Until<'_>) -> Result<()>;
    /// Keeps the others supplied with acknowledgements, for a moment.
    fn linger(&mut self) -> Result<()>;
    /// What has been sent again, where that can be known.
    fn retransmitted(&self) -> Option<u64>;
}

/// Opens the local endpoint for a job between all.
pub fn prepare(job: &Job, keys: &KeyArgs) -> Result<Box<dyn MeshEndpoint>> {
    match job.transport {
        Transport::Denrei | Transport::DenreiSealed => Ok(Box::new(DenreiEndpoint::open(job, keys)?)),
        Transport::Tcp => Ok(Box::new(TcpMeshEndpoint::open(job)?)),
        other => bail!("there is no mesh over {}: choose denrei, denrei-sealed or tcp", other.name()),
    }
}

/// Does a member's part, reports, and stays until all are done.
pub fn run(
    endpoint: Box<dyn MeshEndpoint>,
    addresses: &[SocketAddr],
    job: &Job,
    until: &Until<'_>,
) -> Result<()> {
    let meter = Meter::start();
    let mut link = endpoint.connect(addresses)?;
    link.exchange(job, until)?;
    let (end_ns, cpu_ns) = (now_ns(), meter.cpu_ns());
    answer(&Answer::Report(Box::new(Report {
        messages: job.iters * (job.members as u64 - 1),
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
