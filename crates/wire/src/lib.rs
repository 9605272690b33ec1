//! Packet and frame formats of denrei, and the plain types that all layers share.
//!
//! Inputs → outputs: bytes ↔ typed headers and frames. No I/O, no clock, no allocation on the
//! receive path. Normative text: `spec/protocol.md`; golden bytes: `spec/vectors/`.

#![forbid(unsafe_code)]

pub mod datagram;
mod time;

pub use datagram::{DatagramMeta, Ecn, Mark, Transmit, TransmitBuf};
pub use time::{Instant, duration_nanos};
