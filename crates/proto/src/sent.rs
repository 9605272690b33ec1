//! What a packet carried that has been sent, as far as its fate matters.

use crate::congestion::packet_cost;
use denrei_wire::Instant;
use smallvec::SmallVec;

/// What a packet carried, as far as it has to be repeated or noted when its fate is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SentFrame {
    /// A run of whole messages of one channel.
    Messages { channel: u16, count: u32, first: u64 },
    /// A part of a message.
    Fragment { channel: u16, len: u16, number: u64, offset: u64 },
    /// OFFER of a message.
    Offer { channel: u16, number: u64 },
    /// SKIP of a message.
    Skip { channel: u16, number: u64 },
    /// Anything else that has to arrive.
    Control(Control),
    /// Our ACK up to this number.
    Ack { largest: u64 },
    /// A path MTU probe of this size; never repeated.
    MtuProbe { bytes: u16 },
}

/// A control frame that is repeated until acknowledged; written from the state at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Control {
    Parameters,
    Ping,
    Credit { channel: u16 },
    Accept { channel: u16, number: u64 },
    Refuse { channel: u16, number: u64 },
    Delivered { channel: u16 },
    StatusRequest { id: u32 },
    Status { id: u32 },
    CloseWrite,
    CloseRead,
    Rate,
    GrantRequest,
    Grant,
}

/// One packet under way.
#[derive(Debug)]
pub(crate) struct SentPacket {
    pub at: Instant,
    /// Octets of the datagram.
    pub bytes: u16,
    /// What it is charged for in the congestion window.
    cost: u32,
    pub frames: SmallVec<[SentFrame; 2]>,
}

impl SentPacket {
    /// A packet of so many octets. A probe of the path's size, of which there is one at a time, is charged for as a small
    /// packet: a lost one would close a small window for a probe timeout.
    pub fn new(at: Instant, bytes: u16, frames: SmallVec<[SentFrame; 2]>) -> Self {
        let mut packet = Self { at, bytes, cost: 0, frames };
        packet.cost = packet_cost(if packet.is_mtu_probe() { 0 } else { bytes as u64 }) as u32;
        packet
    }

    /// What it is charged for in the congestion window.
    pub fn cost(&self) -> u64 {
        self.cost as u64
    }

    /// Whether it asks nothing but whether the path carries it.
    pub fn is_mtu_probe(&self) -> bool {
        matches!(self.frames[..], [SentFrame::MtuProbe { .. }])
    }
}
