//! All connected with all, behind one small interface.
//!
//! Inputs → outputs: a [`Job`] → a local endpoint ([`prepare`]) → a [`MeshLink`] to all other members.

use super::{DenreiEndpoint, TcpMeshEndpoint, UdpEndpoint};
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{Job, Transport};
use crate::bench::limits::Until;
use crate::cmd::key::KeyArgs;
use anyhow::Result;
use bytes::Bytes;
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
    /// Sends the job's messages to every member, or those for which there is time, and takes those of each.
    fn exchange(&mut self, job: &Job, until: &Until<'_>, meter: &Meter) -> Result<Exchanged>;
    /// Keeps the others supplied with what they wait for, for a moment.
    fn linger(&mut self) -> Result<()>;
    /// What has been sent again, where that can be known.
    fn retransmitted(&self) -> Option<u64>;
}

/// What a member has of an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Exchanged {
    /// Messages that it has sent to the others.
    pub sent: u64,
    /// Messages that it has received.
    pub received: u64,
    /// When it was done.
    pub end_ns: u64,
    /// CPU time until then.
    pub cpu_ns: u64,
}

impl Exchanged {
    /// So many, and done now.
    pub fn now(meter: &Meter, sent: u64, received: u64) -> Self {
        Self { sent, received, end_ns: now_ns(), cpu_ns: meter.cpu_ns() }
    }
}

/// What members send each other where nothing gets lost: the last message to a member shows that it is
/// the last, for only its sender knows how many there is time for.
#[derive(Debug)]
pub struct Payloads {
    usual: Bytes,
    last: Bytes,
}

impl Payloads {
    const USUAL: u8 = 0x5a;
    const LAST: u8 = 0xa5;

    /// Those of a job.
    pub fn of(job: &Job) -> Self {
        let of = |octet| Bytes::from(vec![octet; job.size]);
        Self { usual: of(Self::USUAL), last: of(Self::LAST) }
    }

    /// What to send where so many are left, the one meant included.
    pub fn next(&self, left: u64) -> &Bytes {
        if left == 1 { &self.last } else { &self.usual }
    }

    /// Whether nothing follows this message.
    pub fn is_last(message: &[u8]) -> bool {
        message.first() == Some(&Self::LAST)
    }
}

/// Opens the local endpoint for a job between all.
pub fn prepare(job: &Job, keys: &KeyArgs) -> Result<Box<dyn MeshEndpoint>> {
    match job.transport {
        Transport::Denrei | Transport::DenreiSealed => Ok(Box::new(DenreiEndpoint::open(job, keys)?)),
        Transport::Tcp => Ok(Box::new(TcpMeshEndpoint::open(job)?)),
        Transport::Udp => Ok(Box::new(UdpEndpoint::open(job)?)),
        #[cfg(any(feature = "bench-zmq", feature = "bench-quinn"))]
        other => anyhow::bail!("there is no mesh over {}", other.name()),
    }
}
