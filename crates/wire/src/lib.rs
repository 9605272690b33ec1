//! Packet and frame formats of denrei, and the plain types that all layers share.
//!
//! Inputs → outputs: bytes ↔ typed headers and frames. No I/O, no clock, no allocation on the
//! receive path. Normative text: `spec/protocol.md`; golden bytes: `spec/vectors/`.

#![forbid(unsafe_code)]

pub mod ack;
pub mod checksum;
pub mod datagram;
mod dump;
pub mod frame;
pub mod group;
pub mod ids;
mod landing;
pub mod packet;
mod time;

pub use ack::EcnCounts;
pub use datagram::{DatagramMeta, Ecn, Seal, Transmit, TransmitBuf, Way};
pub use dump::dump;
pub use frame::{Frame, Frames, Parameters};
pub use ids::{Incarnation, PacketNumber, Token};
pub use landing::{Landing, Shape};
pub use time::{Instant, duration_nanos};
