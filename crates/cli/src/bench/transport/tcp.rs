//! TCP with NODELAY: one connection, messages framed by their length, one `writev` per message.

use super::{Endpoint, Frame, FrameReader, Incoming, Link, PATIENCE, is_not_yet, poll_for, polls, receives};
use crate::bench::clock::tcp_retransmissions;
use crate::bench::control::Job;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use std::io::{self, IoSlice, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What one `read` takes at most, bytes: TCP gives what is there, so this bounds the calls.
const READ_BYTES: usize = 256 * 1024;

/// How long the listening side waits for the other to connect.
const ACCEPT_LIMIT: Duration = Duration::from_secs(10);

/// A listening socket; side 0 does not use its own.
pub struct TcpEndpoint {
    listener: TcpListener,
    job: Job,
    /// With memory at hand before the other side begins.
    reader: FrameReader,
}

impl TcpEndpoint {
    /// Listens at a free port.
    pub fn open(job: &Job) -> Result<Self> {
        let listener = TcpListener::bind((job.bind, 0))
            .with_context(|| format!("cannot listen on {}: is it an address of this machine?", job.bind))?;
        let reader = FrameReader::new(READ_BYTES);
        let reader = if receives(job) { reader.expecting(job.size) } else { reader };
        Ok(Self { listener, job: job.clone(), reader })
    }
}

impl Endpoint for TcpEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    fn link(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn Link>> {
        let stream = match (self.job.index, addresses) {
            (0, [_, other]) => TcpStream::connect_timeout(other, ACCEPT_LIMIT)
                .with_context(|| format!("cannot connect to {other}"))?,
            _ => accept(&self.listener)?,
        };
        stream.set_nodelay(true)?;
        if polls(&self.job) {
            stream.set_nonblocking(true)?;
        } else {
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        Ok(Box::new(TcpLink {
            stream,
            reader: self.reader,
            received: 0,
            size: self.job.size,
            polls: polls(&self.job),
            retransmissions: Retransmissions::of(addresses, self.job.index),
        }))
    }
}

/// A stream that has lost its place shows in the sizes.
pub fn ensure_size(message: &[u8], size: usize) -> Result<()> {
    if message.len() != size {
        bail!("a message of {} bytes came, not of {size}", message.len());
    }
    Ok(())
}

/// Waits for one connection, within a limit.
pub fn accept(listener: &TcpListener) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let until = Instant::now() + ACCEPT_LIMIT;
    while Instant::now() < until {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if is_not_yet(&error) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("nobody connected within {ACCEPT_LIMIT:?}")
}

struct TcpLink {
    stream: TcpStream,
    reader: FrameReader,
    received: u64,
    /// Bytes of every message.
    size: usize,
    polls: bool,
    retransmissions: Retransmissions,
}

impl Link for TcpLink {
    fn send(&mut self, _number: u64, message: &Bytes) -> Result<()> {
        let header = (message.len() as u32).to_be_bytes();
        let mut parts = [IoSlice::new(&header), IoSlice::new(message)];
        let mut rest = &mut parts[..];
        while !rest.is_empty() {
            match self.stream.write_vectored(rest) {
                Ok(0) => bail!("the connection takes no more"),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if is_not_yet(&error) => std::hint::spin_loop(),
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<Incoming> {
        let (reader, stream) = (&mut self.reader, &mut self.stream);
        let mut attempt = || match reader.next(stream) {
            Ok(frame) => Ok(Some(frame)),
            Err(error) if is_not_yet(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Some(Frame::Closed)),
            Err(error) => Err(error).context("cannot receive"),
        };
        let frame = if self.polls { poll_for(attempt)? } else { attempt()? };
        Ok(match frame {
            Some(Frame::Message(at)) => {
                ensure_size(self.reader.message(&at), self.size)?;
                self.received += 1;
                Incoming::Message(self.received - 1)
            }
            Some(Frame::Closed) => Incoming::Closed,
            None => Incoming::Nothing,
        })
    }

    fn is_reliable(&self) -> bool {
        true
    }

    fn retransmitted(&self) -> Option<u64> {
        self.retransmissions.so_far()
    }
}

/// What TCP has sent again from a moment on. All processes of a host read the same counter, so of each host the
/// first member says it.
pub struct Retransmissions {
    before: Option<u64>,
}

impl Retransmissions {
    /// From now on, as member `index` of those at `addresses` says it.
    pub fn of(addresses: &[SocketAddr], index: usize) -> Self {
        let ip_of = |index: usize| addresses.get(index).map(SocketAddr::ip);
        let is_first = (0..index).all(|earlier| ip_of(earlier) != ip_of(index));
        Self { before: if is_first { tcp_retransmissions() } else { None } }
    }

    /// How much, if that is for this member to say and can be known.
    pub fn so_far(&self) -> Option<u64> {
        Some(tcp_retransmissions()?.saturating_sub(self.before?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_every_host_one_says_what_its_tcp_has_sent_again() {
        let addr = |host, port| SocketAddr::from(([10, 0, 0, host], port));
        let saying = |addresses: &[SocketAddr]| -> Vec<usize> {
            (0..addresses.len())
                .filter(|index| Retransmissions::of(addresses, *index).so_far().is_some())
                .collect()
        };
        assert_eq!(saying(&[addr(1, 1), addr(2, 1), addr(1, 2), addr(2, 2)]), [0, 1]);
        assert_eq!(saying(&[addr(1, 1), addr(1, 2), addr(1, 3)]), [0]);
        assert_eq!(saying(&[addr(1, 1), addr(2, 1), addr(3, 1)]), [0, 1, 2]);
    }
}
