//! TCP with NODELAY, many to one: a connection per sender, one thread and `poll` at the receiver.

use super::tcp::accept;
use super::{Arrival, Frame, FrameReader, PATIENCE, StarEndpoint, StarLink, is_not_yet};
use crate::bench::clock::tcp_counts;
use crate::bench::control::{Job, PacketCounts, Wait};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::VecDeque;
use std::io::{IoSlice, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// What one `read` takes at most, bytes.
const READ_BYTES: usize = 64 * 1024;

/// How long a sender waits for the receiver to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Most messages taken from one connection before the next has its turn.
const TURN: usize = 16;

/// A listening socket; senders do not use theirs.
pub struct TcpStarEndpoint {
    listener: TcpListener,
    job: Job,
}

impl TcpStarEndpoint {
    /// Listens at a free port.
    pub fn open(job: &Job) -> Result<Self> {
        let listener = TcpListener::bind((job.bind, 0))
            .with_context(|| format!("cannot listen on {}: is it an address of this machine?", job.bind))?;
        Ok(Self { listener, job: job.clone() })
    }
}

impl StarEndpoint for TcpStarEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn StarLink>> {
        let before = tcp_counts();
        let streams = if self.job.index == 0 {
            addresses[1..].iter().map(|_| accept(&self.listener)).collect::<Result<Vec<TcpStream>>>()?
        } else {
            let receiver = addresses.first().context("the receiver has no address")?;
            let stream = TcpStream::connect_timeout(receiver, CONNECT_LIMIT)
                .with_context(|| format!("cannot connect to {receiver}"))?;
            vec![stream]
        };
        let lanes = streams.into_iter().map(Lane::new).collect::<Result<_>>()?;
        Ok(Box::new(TcpStar { lanes, arrived: VecDeque::new(), polls: self.job.wait == Wait::Poll, before }))
    }
}

struct TcpStar {
    lanes: Vec<Lane>,
    arrived: VecDeque<Arrival>,
    polls: bool,
    before: PacketCounts,
}

struct Lane {
    stream: TcpStream,
    reader: FrameReader,
    /// Its last turn ended before its messages did: the reader may hold whole ones.
    has_more: bool,
}

impl Lane {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, reader: FrameReader::new(READ_BYTES), has_more: false })
    }

    /// Takes what is there, up to [`TURN`] messages.
    fn take(&mut self, lane: usize, arrived: &mut VecDeque<Arrival>) -> Result<()> {
        self.has_more = false;
        for _ in 0..TURN {
            match self.reader.next(&mut self.stream) {
                Ok(Frame::Message(at)) => arrived.push_back(Arrival::new(lane, self.reader.message(&at))),
                // Nobody closes before all have reported; who waits for more than that waits for what does not come.
                Ok(Frame::Closed) => bail!("the other side has closed"),
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
        self.has_more = true;
        Ok(())
    }
}

impl TcpStar {
    /// Waits until a lane can be read, or the one that is waiting to be written can be, at most
    /// [`PATIENCE`]; which.
    fn wait(&self, writing: Option<usize>) -> Result<Vec<usize>> {
        let interest = |lane| match writing {
            None => PollFlags::POLLIN,
            Some(writing) if writing == lane => PollFlags::POLLOUT,
            Some(_) => PollFlags::empty(),
        };
        let lanes = self.lanes.iter().enumerate();
        let mut waiting: Vec<PollFd<'_>> =
            lanes.map(|(lane, state)| PollFd::new(state.stream.as_fd(), interest(lane))).collect();
        let more = writing.is_none() && self.lanes.iter().any(|lane| lane.has_more);
        let patience = if self.polls || more { Duration::ZERO } else { PATIENCE };
        let timeout = PollTimeout::try_from(patience).context("the wait is too long for poll")?;
        match poll(&mut waiting, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error).context("cannot wait for the connections"),
        }
        let ready = |lane: &usize| self.lanes[*lane].has_more || waiting[*lane].any().unwrap_or(true);
        Ok((0..self.lanes.len()).filter(ready).collect())
    }
}

impl StarLink for TcpStar {
    fn send(&mut self, lane: usize, message: &Bytes) -> Result<()> {
        let header = (message.len() as u32).to_be_bytes();
        let mut parts = [IoSlice::new(&header), IoSlice::new(message)];
        let mut rest = &mut parts[..];
        while !rest.is_empty() {
            let state = self.lanes.get_mut(lane).context("there is no such sender")?;
            match state.stream.write_vectored(rest) {
                Ok(0) => bail!("the connection takes no more"),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if is_not_yet(&error) => drop(self.wait(Some(lane))?),
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<Arrival>> {
        if self.arrived.is_empty() {
            for lane in self.wait(None)? {
                self.lanes[lane].take(lane, &mut self.arrived)?;
            }
        }
        Ok(self.arrived.pop_front())
    }

    fn packets(&self) -> PacketCounts {
        tcp_counts().since(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::control::Bench;

    #[test]
    fn a_sender_that_has_gone_is_noticed() {
        let receiver = Job::of_a_test(Bench::Gather, 64, 1);
        let sender = Job { index: 1, ..receiver.clone() };
        let [receiver, sender] = [receiver, sender].map(|job| Box::new(TcpStarEndpoint::open(&job).unwrap()));
        let addresses = [receiver.local_addr().unwrap(), sender.local_addr().unwrap()];
        drop(sender.connect(&addresses).unwrap());
        let mut receiver = receiver.connect(&addresses).unwrap();
        let error = receiver.recv().unwrap_err();
        assert_eq!(error.to_string(), "the other side has closed");
    }
}
