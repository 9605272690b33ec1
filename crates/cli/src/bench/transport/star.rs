//! Senders connected with one receiver, behind one small interface.
//!
//! Inputs → outputs: a [`Job`] → a local endpoint ([`prepare`]) → a [`StarLink`] to the receiver, or to all senders.

use super::{DenreiStarEndpoint, TcpStarEndpoint};
use crate::bench::control::{Job, PacketCounts, Transport};
use crate::cmd::key::KeyArgs;
use anyhow::{Result, bail};
use bytes::Bytes;
use std::net::SocketAddr;

/// A local endpoint that waits for the addresses of all members.
pub trait StarEndpoint {
    /// Where the others reach it.
    fn local_addr(&self) -> Result<SocketAddr>;
    /// Connects a sender with the receiver, or waits for `addresses.len() - 1` senders.
    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn StarLink>>;
}

/// What came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// From which lane: senders have one, to the receiver; the receiver has one per sender.
    pub lane: usize,
    /// Octets of the message.
    pub bytes: usize,
    /// What a message of eight octets says.
    pub number: u64,
}

impl Arrival {
    /// A message that came in by `lane`.
    pub fn new(lane: usize, message: &[u8]) -> Self {
        let number =
            message.first_chunk().filter(|_| message.len() == 8).map_or(0, |n| u64::from_le_bytes(*n));
        Self { lane, bytes: message.len(), number }
    }
}

/// The connection of a sender, or those of the receiver.
pub trait StarLink {
    /// Sends a message by a lane. Waits while the transport takes no more.
    fn send(&mut self, lane: usize, message: &Bytes) -> Result<()>;
    /// Waits for a message of any lane, at most [`PATIENCE`](super::PATIENCE).
    fn recv(&mut self) -> Result<Option<Arrival>>;
    /// Packets sent by this process since it connected, where that can be known.
    fn packets(&self) -> PacketCounts;
}

/// Opens the local endpoint of a gather.
pub fn prepare(job: &Job, keys: &KeyArgs) -> Result<Box<dyn StarEndpoint>> {
    match job.transport {
        Transport::Denrei | Transport::DenreiSealed => Ok(Box::new(DenreiStarEndpoint::open(job, keys)?)),
        Transport::Tcp => Ok(Box::new(TcpStarEndpoint::open(job)?)),
        other => bail!("there is no gather over {}: choose denrei, denrei-sealed or tcp", other.name()),
    }
}
