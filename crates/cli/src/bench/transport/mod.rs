//! The transports that are compared, behind one small interface.
//!
//! Inputs → outputs: a [`Job`] → a local endpoint ([`prepare`]) → a [`Link`] to the other side.
//! Each transport is used the way a careful program would use it: reusable buffers, one system call
//! per message where that is possible, no copies that it does not need.

mod denrei;
mod denrei_star;
mod framing;
mod mesh;
#[cfg(feature = "bench-quinn")]
mod quinn;
mod segments;
mod star;
mod tcp;
mod tcp_mesh;
mod tcp_star;
mod udp;
mod udp_mesh;
#[cfg(feature = "bench-zmq")]
mod zmq;

pub use denrei::DenreiEndpoint;
pub use denrei_star::{DenreiStarEndpoint, packet_counts};
use framing::{Frame, FrameReader};
pub use mesh::{Exchanged, MeshEndpoint, MeshLink, Payloads, prepare as prepare_mesh};
pub use star::{Arrival, StarEndpoint, StarLink, prepare as prepare_gather};
pub use tcp::accept as accept_tcp;
pub use tcp_mesh::TcpMeshEndpoint;
pub use tcp_star::TcpStarEndpoint;
pub use udp::UdpEndpoint;

use crate::bench::clock::now_ns;
use crate::bench::control::{Bench, Drive, Job, Transport, Wait};
use crate::cmd::key::KeyArgs;
use ::denrei::{Config, Node, OfferPolicy};
use anyhow::{Context, Result};
use bytes::Bytes;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time a [`Link::recv`] waits: how soon a side notices that it is to stop, and that a
/// message of an unreliable transport is not coming.
pub const PATIENCE: Duration = Duration::from_millis(20);

/// How often a side that polls asks between two looks at the clock. A look costs about as much as
/// a failed receive; more often would distort, seldomer would make `PATIENCE` inexact.
const POLLS_PER_LOOK: u32 = 64;

/// Before this much of a pause is left, a paced sender sleeps; after it, it asks the clock. Longer
/// than a wake-up takes.
const SPIN_NS: u64 = 150_000;

/// A local endpoint that waits for the addresses of the others.
pub trait Endpoint {
    /// Where the other side reaches it.
    fn local_addr(&self) -> Result<SocketAddr>;
    /// Connects both sides; `addresses` are those of all sides in order.
    fn link(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn Link>>;
}

/// What came in.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole message with this number.
    Message(u64),
    /// Nothing within [`PATIENCE`].
    Nothing,
    /// The other side has closed.
    Closed,
}

/// One of two connected sides.
pub trait Link {
    /// Sends message `number`; numbers count from 0. Waits while the transport takes no more.
    fn send(&mut self, number: u64, message: &Bytes) -> Result<()>;

    /// Waits for a message, at most [`PATIENCE`]. It lies whole in memory of the receiver then.
    fn recv(&mut self) -> Result<Incoming>;

    /// Whether every message arrives unless the link breaks.
    fn is_reliable(&self) -> bool;

    /// Returns once all that was sent has left this process for good.
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }

    /// Lets time pass until `until_ns` (CLOCK_MONOTONIC), precisely.
    fn pause_until(&mut self, until_ns: u64) -> Result<()> {
        sleep_until(until_ns)
    }

    /// What has been sent again so far, where that can be known.
    fn retransmitted(&self) -> Option<u64> {
        None
    }
}

/// A configuration with a key or without, as is to be measured.
pub fn secrets(transport: Transport, keys: &KeyArgs) -> Result<Config> {
    if transport != Transport::DenreiSealed {
        return Ok(Config { insecure: keys.insecure, ..Config::default() });
    }
    let config = keys.config()?;
    config
        .cluster_key
        .as_ref()
        .context("this side has no cluster key: say --key-file FILE on both machines, with the same key")?;
    Ok(config)
}

/// Of two sides the other is known to run, as it has said that it is ready: if it does not answer for so long it does
/// not understand, having another key. Of many that begin at once one may wait longer for its core.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Opens a Node at a free port that waits and is driven as the job says; `offers`: who answers offers of
/// messages too large to be sent unasked.
fn open_node(job: &Job, keys: &KeyArgs, offers: OfferPolicy) -> Result<Node> {
    let mut config = Config {
        drive: match job.drive {
            Drive::Inline => ::denrei::Drive::Inline,
            Drive::Thread => ::denrei::Drive::Thread,
            Drive::Pipelined => ::denrei::Drive::Pipelined,
        },
        spin: if job.wait == Wait::Poll { PATIENCE } else { Duration::ZERO },
        ..secrets(job.transport, keys)?
    };
    config.protocol.offers = offers;
    if job.members == 2 {
        config.protocol.connect_timeout = ANSWER_LIMIT;
    }
    Node::bind((job.bind, 0), config).with_context(|| format!("cannot open a Node at {}", job.bind))
}

/// Opens the local endpoint for a job between two sides.
pub fn prepare(job: &Job, keys: &KeyArgs) -> Result<Box<dyn Endpoint>> {
    Ok(match job.transport {
        Transport::Denrei | Transport::DenreiSealed => Box::new(DenreiEndpoint::open(job, keys)?),
        Transport::Tcp => Box::new(tcp::TcpEndpoint::open(job)?),
        Transport::Udp => Box::new(udp::UdpEndpoint::open(job)?),
        #[cfg(feature = "bench-zmq")]
        Transport::Zmq => Box::new(zmq::ZmqEndpoint::open(job)?),
        #[cfg(feature = "bench-quinn")]
        Transport::Quinn => Box::new(quinn::QuinnEndpoint::open(job)?),
    })
}

/// Sleeps most of the time until `until_ns`, and asks the clock for the rest.
fn sleep_until(until_ns: u64) -> Result<()> {
    let left = until_ns.saturating_sub(now_ns());
    if left > SPIN_NS {
        std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
    }
    while now_ns() < until_ns {
        std::hint::spin_loop();
    }
    Ok(())
}

/// Repeats a call that does not block until it has something or [`PATIENCE`] is over.
fn poll_for<T>(mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let until_ns = now_ns() + PATIENCE.as_nanos() as u64;
    loop {
        for _ in 0..POLLS_PER_LOOK {
            if let Some(outcome) = attempt()? {
                return Ok(Some(outcome));
            }
            std::hint::spin_loop();
        }
        if now_ns() >= until_ns {
            return Ok(None);
        }
    }
}

/// Whether an error of a socket only says that nothing is there yet.
fn is_not_yet(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

/// Whether this side is sent messages of the benchmark's size.
fn receives(job: &Job) -> bool {
    job.index == 1 || job.bench == Bench::Pingpong
}

/// Memory that has been used before, as what a program receives into has after its first messages: of few large ones,
/// those into fresh memory would tell of the kernel that clears it.
fn touched(size: usize) -> Vec<u8> {
    vec![1; size]
}

/// Whether a side polls.
fn polls(job: &Job) -> bool {
    job.wait == Wait::Poll
}
