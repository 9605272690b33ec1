//! What the receiver's rate does not hold up: offers, and word of messages that were given up.
//!
//! Inputs → outputs: the queue while the rate lets no data go → the frames without an octet of a message.
//! Source: R2, R3; `spec/protocol.md` §13.1. All in sequence: the receiver passes over nothing, and offers
//! its application nothing, that lies behind a message which waits.

use super::{Allowance, MESSAGE_COST_BYTES, Progress, Room, SendChannel, Written};
use denrei_wire::TransmitBuf;

impl SendChannel {
    /// Whether [`write_unpaced`](Self::write_unpaced) may have something to write.
    pub fn has_unpaced(&mut self, allowance: Allowance) -> bool {
        self.aside.as_ref().is_some_and(|aside| !aside.lost_offers.is_empty())
            || self.next_skip().is_some()
            || self.offers_next(allowance)
    }

    /// Writes the next frame that holds nothing of a message into `out`, if one may be sent and fits.
    pub fn write_unpaced(&mut self, out: &mut TransmitBuf, room: Room, allowance: Allowance) -> Written {
        match self.write_lost_offer(out, room) {
            Written::Nothing => {}
            written => return written,
        }
        match self.write_skip(out, room) {
            Written::Nothing if self.offers_next(allowance) => self.write_new(out, room, allowance),
            written => written,
        }
    }

    /// Whether the next message that has not been begun is to be offered, and may be.
    fn offers_next(&mut self, allowance: Allowance) -> bool {
        self.pass_over_closed();
        let next = self.queue.get(self.next_new);
        self.credit() >= MESSAGE_COST_BYTES
            && next.is_some_and(|m| m.progress == Progress::Queued && allowance.demands_offer(m.len()))
    }
}
