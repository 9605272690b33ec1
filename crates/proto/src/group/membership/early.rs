//! Symbols that overtake BEGIN.
//!
//! The opener says BEGIN by each member's session and sends the first symbols to the group's address at the same
//! time; which comes first is chance. What comes before is kept, and taken in when BEGIN is here.

use crate::config::MESSAGE_COST_BYTES;
use denrei_wire::group::GroupHeader;

/// Octets kept at most, and what each packet costs beside: the window that a group has before it has heard a report,
/// with the largest datagrams.
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
        let bytes = frames.len() + MESSAGE_COST_BYTES as usize;
        if !frames.is_empty() && self.bytes + bytes <= MAX_BYTES {
            self.bytes += bytes;
            self.packets.push(EarlyPacket { poll, header: *header, frames: frames.into() });
        }
    }

    /// All that was kept, in the order in which it came; nothing is kept any more.
    pub fn take(&mut self) -> Vec<EarlyPacket> {
        core::mem::take(self).packets
    }

    /// What is kept, with its cost.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_carry_next_to_nothing_cost_as_well() {
        let header = GroupHeader { symbol: 0, floor: 0, ack_every: 1, parity_of: 0, parity_index: 0 };
        let mut early = Early::default();
        (0..2 * MAX_BYTES).for_each(|_| early.keep(false, &header, &[0]));
        let kept = early.take();
        assert!((1000..=MAX_BYTES / size_of::<EarlyPacket>()).contains(&kept.len()), "{}", kept.len());
    }
}
