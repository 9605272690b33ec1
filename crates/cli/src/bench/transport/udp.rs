//! Bare UDP on connected sockets: no recovery, no flow control. What gets lost is lost.
//!
//! Inputs → outputs: a message that fits a packet of the path travels alone, its number in its
//! first four octets; a larger one as [`segments`](super::segments).

use super::segments::{Assembly, Trains, sent_or_lost};
use super::{Endpoint, Incoming, Link, PATIENCE, is_not_yet, poll_for, polls};
use crate::bench::control::{Bench, Job};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use denrei_io::PageMemory;
use nix::sys::socket::{MsgFlags, getsockopt, setsockopt, sockopt};
use socket2::SockRef;
use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::ops::RangeInclusive;

/// Octets of headers: of IPv4 and UDP, of IPv6 and UDP.
const IPV4_UDP_HEADERS: usize = 28;
const IPV6_UDP_HEADERS: usize = 48;

/// What is asked for as receive and send buffer, bytes; the kernel gives what `rmem_max` permits.
/// Not asked for in a burst, which is about the buffer a program gets (U8).
const BUFFER_BYTES: usize = 4 << 20;

/// A bound socket.
pub struct UdpEndpoint {
    pub(super) socket: UdpSocket,
    pub(super) job: Job,
}

impl UdpEndpoint {
    /// Binds a free port.
    pub fn open(job: &Job) -> Result<Self> {
        let socket = UdpSocket::bind((job.bind, 0))
            .with_context(|| format!("cannot bind {}: is it an address of this machine?", job.bind))?;
        if job.bench != Bench::Burst {
            let options = SockRef::from(&socket);
            options.set_recv_buffer_size(BUFFER_BYTES)?;
            options.set_send_buffer_size(BUFFER_BYTES)?;
        }
        Ok(Self { socket, job: job.clone() })
    }
}

impl Endpoint for UdpEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    fn link(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn Link>> {
        let (socket, job) = (self.socket, self.job);
        let other = addresses.get(1 - job.index).context("the other side has no address")?;
        // Bare sockets go to the address that each side has for itself, which is of no use beyond a NAT.
        socket.connect(other).with_context(|| {
            format!(
                "cannot speak to {other}, the other side's own address: both have to reach each other's, \
                 without NAT between"
            )
        })?;
        if polls(&job) {
            socket.set_nonblocking(true)?;
        } else {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let packet = one_packet(&socket, other);
        if job.size <= packet {
            return Ok(Box::new(Datagrams {
                socket,
                scratch: PageMemory::new(job.size.max(1)),
                polls: polls(&job),
            }));
        }
        take_trains(&socket)?;
        Ok(Box::new(Segments::new(socket, packet, &job)))
    }
}

/// Lets the kernel hand over the segments of a train together.
pub(super) fn take_trains(socket: &UdpSocket) -> Result<()> {
    setsockopt(socket, sockopt::UdpGroSegment, &true).context("this kernel has no UDP_GRO (Linux 5.0)")
}

/// Largest message that fits a packet towards a connected peer, bytes.
pub(super) fn one_packet(socket: &UdpSocket, other: &SocketAddr) -> usize {
    /// What every Ethernet carries.
    const ETHERNET_MTU: usize = 1500;
    /// Linux has no route that carries less, and no packet that is larger.
    const MTUS: RangeInclusive<usize> = 68..=65_535;
    // Sockets of either family answer this one.
    let mtu = getsockopt(socket, sockopt::IpMtu).map_or(ETHERNET_MTU, |mtu| mtu.max(0) as usize);
    mtu.clamp(*MTUS.start(), *MTUS.end()) - if other.is_ipv4() { IPV4_UDP_HEADERS } else { IPV6_UDP_HEADERS }
}

/// One datagram per message.
struct Datagrams {
    socket: UdpSocket,
    scratch: PageMemory,
    polls: bool,
}

impl Link for Datagrams {
    fn send(&mut self, number: u64, message: &Bytes) -> Result<()> {
        let len = message.len();
        self.scratch[..4].copy_from_slice(&(number as u32).to_be_bytes());
        // Bounded: a socket that takes nothing for `PATIENCE` is broken.
        match poll_for(|| sent_or_lost(self.socket.send(&self.scratch[..len])))? {
            Some(()) => Ok(()),
            None => bail!("the socket takes no datagrams"),
        }
    }

    fn recv(&mut self) -> Result<Incoming> {
        let mut attempt = || match self.socket.recv(&mut self.scratch) {
            Ok(len) => Ok(Some(len)),
            Err(error) if is_not_yet(&error) => Ok(None),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => Ok(None),
            Err(error) => Err(error).context("cannot receive"),
        };
        let len = if self.polls { poll_for(attempt)? } else { attempt()? };
        Ok(match (len, self.scratch.first_chunk::<4>()) {
            (Some(4..), Some(number)) => Incoming::Message(u32::from_be_bytes(*number).into()),
            _ => Incoming::Nothing,
        })
    }

    fn is_reliable(&self) -> bool {
        false
    }
}

/// Several segments per message.
struct Segments {
    socket: UdpSocket,
    polls: bool,
    trains: Trains,
    assembly: Assembly,
    /// What the last train has left: several messages may end in one.
    complete: VecDeque<u64>,
}

impl Segments {
    fn new(socket: UdpSocket, packet: usize, job: &Job) -> Self {
        let (trains, assembly) = (Trains::new(packet), Assembly::new(job.size));
        Self { socket, polls: polls(job), trains, assembly, complete: VecDeque::new() }
    }

    fn receive_train(&mut self) -> Result<Option<()>> {
        let Some(train) = self.trains.receive(&self.socket, MsgFlags::empty())? else { return Ok(None) };
        self.complete.extend(train.segments().filter_map(|segment| self.assembly.take(segment)));
        Ok(Some(()))
    }
}

impl Link for Segments {
    fn send(&mut self, number: u64, message: &Bytes) -> Result<()> {
        self.trains.send(&self.socket, None, number, message)
    }

    fn recv(&mut self) -> Result<Incoming> {
        loop {
            if let Some(number) = self.complete.pop_front() {
                return Ok(Incoming::Message(number));
            }
            let train = if self.polls { poll_for(|| self.receive_train())? } else { self.receive_train()? };
            if train.is_none() {
                return Ok(Incoming::Nothing);
            }
        }
    }

    fn is_reliable(&self) -> bool {
        false
    }
}
