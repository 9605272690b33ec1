//! The UDP backends of denrei: one local port, sent to and received from as fast as the host allows.
//!
//! Inputs → outputs: [`Transmit`](denrei_wire::Transmit) and [`TransmitBuf`](denrei_wire::TransmitBuf)
//! → datagrams on the network; datagrams from the network →
//! ([`DatagramMeta`](denrei_wire::DatagramMeta), bytes).
//!
//! * [`UdpSocket`]: one port; a main socket for everybody and a bounded number of connected
//!   sockets on the same port for the busiest peers, which saves them the route look-up.
//! * [`RecvBuffers`]: the memory received into, owned by the caller.
//! * [`Waiter`] and [`Waker`]: sleeping until there is something to do.
//! * [`doctor`]: tries on this host what the backends use and says what to change.
//! * [`fault`] and [`pcap`]: adapters around anything that is a [`DatagramIo`].
//!
//! This crate knows nothing of the protocol. Unsafe code is confined to one module per concern:
//! `cmsg` (control messages), `mmsg` (batched system calls), `raw` (single ones), `options` (socket options),
//! `wait` (poll and eventfd), `alarm` (timerfd), `maker` (the system's word of a fork), `doctor::links` (interfaces).

#![warn(missing_docs)]

mod alarm;
mod buffers;
#[cfg(target_os = "linux")]
mod cmsg;
mod config;
pub mod doctor;
pub mod fault;
mod lanes;
mod maker;
#[cfg(target_os = "linux")]
mod mmsg;
mod multicast;
mod offload;
mod open;
#[cfg(target_os = "linux")]
mod options;
mod outcome;
mod page_memory;
pub mod pcap;
mod plain;
#[cfg(target_os = "linux")]
mod raw;
mod receiver;
mod recv;
mod refusal;
mod send;
mod socket;
mod source;
mod wait;

pub use buffers::{LARGE_DATAGRAM_BYTES, MAX_RECV_BATCH, RecvBuffers};
pub use config::{BackendChoice, Capabilities, MAX_CONNECTED_SOCKETS, SocketConfig};
pub use maker::Maker;
pub use multicast::{is_of_one_link, of_its_site};
pub use outcome::{DropKind, IoCounters, SendAttempt, SendHook, SendOutcome};
pub use page_memory::PageMemory;
pub use plain::canonical;
pub use receiver::Receiver;
pub use socket::{DatagramIo, UdpSocket};
pub use source::source_towards;
pub use wait::{Waiter, Wake, Waker};
