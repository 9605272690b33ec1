//! ZeroMQ over TCP as a yardstick: one PAIR socket per side, its defaults (queues of 1000 messages).

use super::{Endpoint, Incoming, Link, PATIENCE, poll_for, polls};
use crate::bench::control::Job;
use anyhow::{Context, Result};
use bytes::Bytes;
use std::net::SocketAddr;

/// How long a side that closes still hands on what it has taken, milliseconds.
const LINGER_MS: i32 = 1000;

/// A PAIR socket; side 1 binds, side 0 connects.
pub struct ZmqEndpoint {
    socket: zmq::Socket,
    job: Job,
}

impl ZmqEndpoint {
    /// Opens the socket, and binds it to a free port on side 1.
    pub fn open(job: &Job) -> Result<Self> {
        let socket = zmq::Context::new().socket(zmq::PAIR)?;
        socket.set_linger(LINGER_MS)?;
        socket.set_ipv6(job.bind.is_ipv6())?;
        if !polls(job) {
            socket.set_rcvtimeo(PATIENCE.as_millis() as i32)?;
        }
        if job.index == 1 {
            let address = format!("tcp://{}", SocketAddr::new(job.bind, 0)).replace(":0", ":*");
            socket.bind(&address).with_context(|| format!("cannot bind {address}"))?;
        }
        Ok(Self { socket, job: job.clone() })
    }
}

impl Endpoint for ZmqEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        if self.job.index == 0 {
            return Ok(SocketAddr::new(self.job.bind, 0));
        }
        let endpoint = self.socket.get_last_endpoint()?.unwrap_or_default();
        endpoint.trim_start_matches("tcp://").parse().with_context(|| format!("bound to {endpoint:?}"))
    }

    fn link(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn Link>> {
        if self.job.index == 0 {
            let other = addresses.get(1).context("the other side has no address")?;
            self.socket.connect(&format!("tcp://{other}"))?;
        }
        let message = zmq::Message::new();
        Ok(Box::new(ZmqLink { socket: self.socket, message, received: 0, polls: polls(&self.job) }))
    }
}

struct ZmqLink {
    socket: zmq::Socket,
    message: zmq::Message,
    received: u64,
    polls: bool,
}

impl Link for ZmqLink {
    fn send(&mut self, _number: u64, message: &Bytes) -> Result<()> {
        self.socket.send(&message[..], 0).context("cannot send")
    }

    fn recv(&mut self) -> Result<Incoming> {
        let flags = if self.polls { zmq::DONTWAIT } else { 0 };
        let mut attempt = || match self.socket.recv(&mut self.message, flags) {
            Ok(()) => Ok(Some(())),
            Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => Ok(None),
            Err(error) => Err(error).context("cannot receive"),
        };
        let got = if self.polls { poll_for(attempt)? } else { attempt()? };
        if got.is_none() {
            return Ok(Incoming::Nothing);
        }
        self.received += 1;
        Ok(Incoming::Message(self.received - 1))
    }

    fn is_reliable(&self) -> bool {
        true
    }
}
