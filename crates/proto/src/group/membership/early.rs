//! Symbols that overtake BEGIN.
//!
//! The opener says BEGIN by each member's session and sends the first symbols to the group's address at the same
//! time; which comes first is chance. What comes before is kept, and taken in when BEGIN is here.

use denrei_wire::group::GroupHeader;

/// Octets kept at most: the window that a group has before it has heard a report, with the largest datagrams.
const MAX_BYTES: usize = 256 * 1024;

/// A packet from the group's address that waits for BEGIN.
#[derive(Debug)]
pub(super) struct EarlyPacket {
    pub poll: bool,
    pub header: GroupHeader,
    pub frames: Box<[u8]>,
}

/// The packets that wait for BEGIN.
#[derive(Debug, Default)]
pub(super) struct Early {
    packets: Vec<EarlyPacket>,
    bytes: usize,
}

impl Early {
    /// Keeps a packet, if it carries anything and there is room.
    pub fn keep(&mut self, poll: bool, header: &GroupHeader, frames: &[u8]) {
        if !frames.is_empty() && self.bytes + frames.len() <= MAX_BYTES {
            self.bytes += frames.len();
            self.packets.push(EarlyPacket { poll, header: *header, frames: frames.into() });
        }
    }

    /// All that was kept, in the order in which it came; nothing is kept any more.
    pub fn take(&mut self) -> Vec<EarlyPacket> {
        core::mem::take(self).packets
    }

    /// Octets kept.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}
