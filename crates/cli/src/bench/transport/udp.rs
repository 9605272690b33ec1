//! Bare UDP on connected sockets: no recovery, no flow control. What gets lost is lost.
//!
//! Inputs → outputs: a message that fits a packet of the path travels alone, its number in its
//! first four octets; a larger one as segments of eight octets of header (message, segment), many
//! to a system call (UDP_SEGMENT), put together at the receiver (UDP_GRO). A message that misses a
//! segment is lost. Deviation from a real protocol: repeated segments are not recognised.

use super::{Endpoint, Incoming, Link, PATIENCE, is_not_yet, poll_for, polls};
use crate::bench::control::{Bench, Job};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, getsockopt, recvmsg, sendmsg, setsockopt,
    sockopt,
};
use socket2::SockRef;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// Payload of one segment, bytes: what fits Ethernet's 1500 under IPv4 and UDP headers, header
/// included. Also on loopback, whose packets could be larger: with segmentation offload the
/// kernel carries 44 of them as one anyway.
const SEGMENT_BYTES: usize = 1472;

/// Message number and segment number before each segment, octets.
const SEGMENT_HEADER: usize = 8;

/// Most segments in one call: 44 × 1472 is below the largest IP packet, and below Linux's 64.
const SEGMENTS_PER_CALL: usize = 44;

/// Octets of IPv6 and UDP headers.
const IP_UDP_HEADERS: usize = 48;

/// What is asked for as receive and send buffer, bytes; the kernel gives what `rmem_max` permits.
/// Not asked for in a burst, which is about the buffer a program gets (U8).
const BUFFER_BYTES: usize = 4 << 20;

/// A bound socket.
pub struct UdpEndpoint {
    socket: UdpSocket,
    job: Job,
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
        socket.connect(other)?;
        if polls(&job) {
            socket.set_nonblocking(true)?;
        } else {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let one_packet = path_mtu(&socket, other).saturating_sub(IP_UDP_HEADERS);
        if job.size <= one_packet {
            return Ok(Box::new(Datagrams { socket, scratch: vec![0; job.size.max(1)], polls: polls(&job) }));
        }
        setsockopt(&socket, sockopt::UdpGroSegment, &true)
            .context("this kernel has no UDP_GRO (Linux 5.0)")?;
        Ok(Box::new(Segments::new(socket, &job)))
    }
}

/// Largest IP packet towards a connected peer, bytes.
fn path_mtu(socket: &UdpSocket, other: &SocketAddr) -> usize {
    /// Loopback's on Linux.
    const LOOPBACK_MTU: usize = 65_536;
    /// What every Ethernet carries.
    const ETHERNET_MTU: usize = 1500;
    if other.is_ipv4() {
        return getsockopt(socket, sockopt::IpMtu).map_or(ETHERNET_MTU, |mtu| mtu.max(0) as usize);
    }
    if other.ip().is_loopback() { LOOPBACK_MTU } else { ETHERNET_MTU }
}

/// Takes a message as sent or lost: a full queue and a peer that has gone are losses to bare UDP.
fn sent_or_lost(outcome: std::io::Result<usize>) -> Result<Option<()>> {
    use std::io::ErrorKind::ConnectionRefused;
    match outcome {
        Ok(_) => Ok(Some(())),
        Err(error) if is_not_yet(&error) => Ok(None),
        Err(error) if error.kind() == ConnectionRefused || is_out_of_buffers(&error) => Ok(Some(())),
        Err(error) => Err(error).context("cannot send"),
    }
}

fn is_out_of_buffers(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(nix::errno::Errno::ENOBUFS as i32)
}

/// One datagram per message.
struct Datagrams {
    socket: UdpSocket,
    scratch: Vec<u8>,
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
    headers: Vec<[u8; SEGMENT_HEADER]>,
    train: Vec<u8>,
    control: Vec<u8>,
    assembly: Assembly,
    /// What the last train has left: several messages may end in one.
    complete: std::collections::VecDeque<u64>,
}

impl Segments {
    fn new(socket: UdpSocket, job: &Job) -> Self {
        Self {
            socket,
            polls: polls(job),
            headers: vec![[0; SEGMENT_HEADER]; SEGMENTS_PER_CALL],
            train: vec![0; 1 << 16],
            control: nix::cmsg_space!(i32),
            assembly: Assembly::new(job.size),
            complete: std::collections::VecDeque::new(),
        }
    }

    fn send_train(&mut self, number: u64, first_segment: usize, payload: &[u8]) -> Result<()> {
        let bodies = payload.chunks(SEGMENT_BYTES - SEGMENT_HEADER);
        for (index, header) in self.headers.iter_mut().take(bodies.len()).enumerate() {
            header[..4].copy_from_slice(&(number as u32).to_be_bytes());
            header[4..].copy_from_slice(&((first_segment + index) as u32).to_be_bytes());
        }
        let parts: Vec<IoSlice<'_>> = self
            .headers
            .iter()
            .zip(bodies)
            .flat_map(|(header, body)| [IoSlice::new(header), IoSlice::new(body)])
            .collect();
        let size = SEGMENT_BYTES as u16;
        let control = [ControlMessage::UdpGsoSegments(&size)];
        let socket = self.socket.as_raw_fd();
        let attempt = || {
            let sent = sendmsg(socket, &parts, &control, MsgFlags::empty(), None::<&SockaddrStorage>);
            sent_or_lost(sent.map_err(Into::into))
        };
        poll_for(attempt)?.context("the socket takes no datagrams")
    }

    fn receive_train(&mut self) -> Result<Option<()>> {
        let mut parts = [IoSliceMut::new(&mut self.train)];
        let control = Some(&mut self.control[..]);
        let received =
            recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, control, MsgFlags::empty());
        let (len, segment) = match received {
            Ok(message) => {
                let gro = message.cmsgs()?.find_map(|control| match control {
                    ControlMessageOwned::UdpGroSegments(size) => Some(size.max(1) as usize),
                    _ => None,
                });
                (message.bytes, gro.unwrap_or(message.bytes.max(1)))
            }
            Err(nix::errno::Errno::ECONNREFUSED) => return Ok(None),
            Err(error) if is_not_yet(&error.into()) => return Ok(None),
            Err(error) => return Err(error).context("cannot receive"),
        };
        for segment in self.train[..len].chunks(segment) {
            self.complete.extend(self.assembly.take(segment));
        }
        Ok(Some(()))
    }
}

impl Link for Segments {
    fn send(&mut self, number: u64, message: &Bytes) -> Result<()> {
        let per_call = SEGMENTS_PER_CALL * (SEGMENT_BYTES - SEGMENT_HEADER);
        for (call, payload) in message.chunks(per_call).enumerate() {
            self.send_train(number, call * SEGMENTS_PER_CALL, payload)?;
        }
        Ok(())
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

/// Puts the segments of one message at a time together.
struct Assembly {
    message: Vec<u8>,
    number: Option<u32>,
    filled: usize,
}

impl Assembly {
    fn new(size: usize) -> Self {
        Self { message: vec![0; size], number: None, filled: 0 }
    }

    /// Takes a segment; gives the number of the message that it completes.
    fn take(&mut self, segment: &[u8]) -> Option<u64> {
        let (header, body) = segment.split_first_chunk::<SEGMENT_HEADER>()?;
        let [a, b, c, d, place @ ..] = *header;
        let number = u32::from_be_bytes([a, b, c, d]);
        let start = u32::from_be_bytes(place) as usize * (SEGMENT_BYTES - SEGMENT_HEADER);
        if self.number != Some(number) {
            self.number = Some(number);
            self.filled = 0;
        }
        self.message.get_mut(start..start + body.len())?.copy_from_slice(body);
        self.filled += body.len();
        (self.filled == self.message.len()).then_some(number.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u32, place: u32, body: &[u8]) -> Vec<u8> {
        [&number.to_be_bytes()[..], &place.to_be_bytes(), body].concat()
    }

    #[test]
    fn a_message_is_complete_with_its_last_segment_in_any_order() {
        let full = SEGMENT_BYTES - SEGMENT_HEADER;
        let mut assembly = Assembly::new(full + 10);
        assert_eq!(assembly.take(&segment(7, 1, &[2; 10])), None);
        assert_eq!(assembly.take(&segment(7, 0, &vec![1; full])), Some(7));
        assert_eq!((assembly.message[0], assembly.message[full]), (1, 2));
    }

    #[test]
    fn a_message_that_misses_a_segment_is_lost() {
        let full = SEGMENT_BYTES - SEGMENT_HEADER;
        let mut assembly = Assembly::new(full + 10);
        assert_eq!(assembly.take(&segment(0, 0, &vec![1; full])), None);
        assert_eq!(assembly.take(&segment(1, 1, &[2; 10])), None);
        assert_eq!(assembly.take(&segment(1, 0, &vec![1; full])), Some(1));
        assert_eq!(assembly.take(b"short"), None);
        assert_eq!(assembly.take(&segment(1, u32::MAX, &[0; 4])), None, "beyond the message");
    }
}
