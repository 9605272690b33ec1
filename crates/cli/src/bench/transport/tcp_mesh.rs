//! A full mesh of TCP connections in one process: what MPI libraries over TCP do.
//!
//! One connection per pair, opened by the member with the lower index; one thread, non-blocking
//! sockets and `poll` over all of them.

use super::{Exchanged, Frame, FrameReader, MeshEndpoint, MeshLink, PATIENCE, Payloads, is_not_yet};
use crate::bench::clock::Meter;
use crate::bench::control::{Job, Wait};
use crate::bench::limits::{SendLimit, Until};
use crate::bench::transport::tcp::{Retransmissions, accept, ensure_size};
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

/// What one `read` takes at most, bytes; smaller than between two, since every connection has one.
const READ_BYTES: usize = 64 * 1024;

/// How long a member waits for another to accept.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Most messages sent to or taken from one connection before the next has its turn.
const TURN: usize = 16;

/// A listening socket.
pub struct TcpMeshEndpoint {
    listener: TcpListener,
    job: Job,
}

impl TcpMeshEndpoint {
    /// Listens at a free port.
    pub fn open(job: &Job) -> Result<Self> {
        let listener = TcpListener::bind((job.bind, 0))
            .with_context(|| format!("cannot listen on {}: is it an address of this machine?", job.bind))?;
        Ok(Self { listener, job: job.clone() })
    }
}

impl MeshEndpoint for TcpMeshEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn MeshLink>> {
        let mut connections = Vec::with_capacity(addresses.len());
        for other in &addresses[self.job.index + 1..] {
            let stream = TcpStream::connect_timeout(other, CONNECT_LIMIT)
                .with_context(|| format!("cannot connect to {other}"))?;
            connections.push(Connection::new(stream, &self.job)?);
        }
        for _ in 0..self.job.index {
            connections.push(Connection::new(accept(&self.listener)?, &self.job)?);
        }
        let retransmissions = Retransmissions::of(addresses, self.job.index);
        Ok(Box::new(TcpMesh { _listener: self.listener, connections, retransmissions }))
    }
}

struct TcpMesh {
    /// Stays open, as it does in a program to which others may connect at any time.
    _listener: TcpListener,
    connections: Vec<Connection>,
    retransmissions: Retransmissions,
}

impl MeshLink for TcpMesh {
    fn exchange(&mut self, job: &Job, until: &Until<'_>, meter: &Meter) -> Result<Exchanged> {
        let (frames, limit) = (Frames::of(job), SendLimit::new(job));
        while self.connections.iter().any(Connection::is_busy) {
            let mut progress = false;
            let is_over = limit.is_over_now();
            for connection in &mut self.connections {
                if is_over {
                    connection.end();
                }
                progress |= connection.write(&frames)?;
                progress |= connection.read()?;
            }
            if !progress {
                until.check()?;
                if job.wait == Wait::Sleep {
                    self.wait()?;
                }
            }
        }
        let sum = |of: fn(&Connection) -> u64| self.connections.iter().map(of).sum();
        let (sent, received) = (sum(|connection| connection.sent), sum(|connection| connection.received));
        Ok(Exchanged::now(meter, sent, received))
    }

    fn linger(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    }

    fn retransmitted(&self) -> Option<u64> {
        self.retransmissions.so_far()
    }
}

impl TcpMesh {
    /// Sleeps until a connection can go on, at most [`PATIENCE`].
    fn wait(&self) -> Result<()> {
        let mut waiting: Vec<PollFd<'_>> = self
            .connections
            .iter()
            .filter(|connection| connection.is_busy())
            .map(|connection| PollFd::new(connection.stream.as_fd(), connection.interest()))
            .collect();
        let timeout = PollTimeout::try_from(PATIENCE).context("the wait is too long for poll")?;
        match poll(&mut waiting, timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for the connections"),
        }
    }
}

/// What is written for a message, and for the last one.
struct Frames {
    usual: Vec<u8>,
    last: Vec<u8>,
}

impl Frames {
    fn of(job: &Job) -> Self {
        let (payloads, header) = (Payloads::of(job), (job.size as u32).to_be_bytes());
        let of = |left| [&header[..], payloads.next(left)].concat();
        Self { usual: of(2), last: of(1) }
    }

    /// As [`Payloads::next`].
    fn next(&self, left: u64) -> &[u8] {
        if left == 1 { &self.last } else { &self.usual }
    }
}

/// One connection of the mesh.
struct Connection {
    stream: TcpStream,
    reader: FrameReader,
    /// Bytes of every message.
    size: usize,
    to_send: u64,
    /// Bytes of the current message that have been written.
    written: usize,
    sent: u64,
    received: u64,
    /// The last message has come.
    has_ended: bool,
}

impl Connection {
    fn new(stream: TcpStream, job: &Job) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let reader = FrameReader::new(READ_BYTES);
        Ok(Self {
            stream,
            reader,
            size: job.size,
            to_send: job.iters,
            written: 0,
            sent: 0,
            received: 0,
            has_ended: false,
        })
    }

    fn is_busy(&self) -> bool {
        self.to_send > 0 || !self.has_ended
    }

    /// Sends no more than the last message, after one that is under way.
    fn end(&mut self) {
        self.to_send = self.to_send.min(1 + u64::from(self.written > 0));
    }

    fn interest(&self) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLOUT, self.to_send > 0);
        flags.set(PollFlags::POLLIN, !self.has_ended);
        flags
    }

    /// Writes a few messages; whether anything went out.
    fn write(&mut self, frames: &Frames) -> Result<bool> {
        let mut progress = false;
        for _ in 0..TURN {
            if self.to_send == 0 {
                break;
            }
            let frame = frames.next(self.to_send);
            match self.stream.write(&frame[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if is_not_yet(&error) => break,
                Err(error) => return Err(error).context("cannot send"),
            }
            progress = true;
            if self.written == frame.len() {
                self.written = 0;
                self.to_send -= 1;
                self.sent += 1;
            }
        }
        Ok(progress)
    }

    /// Takes a few messages; whether any came in.
    fn read(&mut self) -> Result<bool> {
        let mut progress = false;
        for _ in 0..TURN {
            if self.has_ended {
                break;
            }
            match self.reader.next(&mut self.stream) {
                Ok(Frame::Message(at)) => {
                    let message = self.reader.message(&at);
                    ensure_size(message, self.size)?;
                    self.has_ended = Payloads::is_last(message);
                    self.received += 1;
                }
                Ok(Frame::Closed) => bail!("a member has closed before all was received"),
                Err(error) if is_not_yet(&error) => break,
                Err(error) => return Err(error).context("cannot receive"),
            }
            progress = true;
        }
        Ok(progress)
    }
}
