//! What a member has room for. Whoever the others wait for is sent nothing beyond its limit; who lags hears the
//! group's address as they do.
//!
//! Inputs → outputs: what the application has taken, symbols and parities as they come to the group's address →
//! when to report a limit, whether they are taken in. Those that are not come by the session once there is room.
//! Source: M6; `spec/protocol.md` §14.5.

use super::Membership;
use denrei_wire::Instant;

impl Membership {
    /// Reports a limit that has risen by a good part, or that the opener may be waiting for.
    pub(super) fn renew(&mut self, now: Instant) {
        let risen = self.limit().saturating_sub(self.limit_reported);
        let left = self.limit_reported.saturating_sub(self.assembly.seen_cost());
        if risen >= self.grant.credit / 4 || (risen > 0 && left < self.grant.credit / 4) {
            self.report_by(now);
        }
    }

    /// Cost that may have been begun.
    pub(super) fn limit(&self) -> u64 {
        self.assembly.taken_cost() + self.grant.credit
    }

    /// Whether a symbol that has come to the group's address may be held. After one that may not be, none is
    /// until that one is here.
    pub(super) fn has_room(&mut self, symbol: u64, frames: &[u8]) -> bool {
        if self.arrivals.contains(symbol) {
            return true;
        }
        if self.first_barred() <= symbol {
            return false;
        }
        let (seen, taken) = (self.assembly.seen_cost(), self.assembly.taken_cost());
        let cost = self.assembly.cost_of_new(frames, self.grant.max_message);
        // The rest of what was begun is always let in: a message may be larger than the credit. What is larger than
        // any that is taken is meant for others: this one is no member any more, and has not heard of it.
        let fits = cost.is_some_and(|cost| cost == 0 || seen <= taken || seen + cost <= self.limit());
        if !fits {
            self.barred = Some(symbol);
        }
        fits
    }

    /// The first symbol that was not taken in for want of room, if it has not come since; else beyond all.
    pub(super) fn first_barred(&mut self) -> u64 {
        self.barred = self.barred.filter(|symbol| !self.arrivals.contains(*symbol));
        self.barred.unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Grant, Membership};
    use super::*;
    use crate::event::PeerId;
    use crate::group::GroupId;
    use crate::group::parity::parities;
    use denrei_wire::frame::{Frame, Message};
    use denrei_wire::group::{Begin, GroupHeader, Open};

    fn symbol(number: u32, bytes: usize) -> Vec<u8> {
        let (mut frames, payload) = (Vec::new(), vec![number as u8; bytes]);
        let message = Message { flags: 0, channel: 0, number, payload: &payload };
        Frame::Message(message).encode(&mut |part| frames.extend_from_slice(part));
        frames
    }

    /// A member that takes messages of 200 octets and holds so many, to whom the second of two symbols comes by parity:
    /// how many messages it has then, and which symbol it has no room for.
    fn second_restored(credit: u64, bytes: usize) -> (u64, u64) {
        let address = "239.1.2.3:7000".parse().unwrap();
        let open = Open {
            address,
            member: 0,
            members: 1,
            report_delay_us: 1000,
            stagger: false,
            suppress: false,
            key: &[],
        };
        let grant = Grant { credit, max_message: 200, spare_bytes: 0 };
        let opener = "127.0.0.1:1".parse().unwrap();
        let mut member = Membership::new(GroupId(1), PeerId::from_u64(1), opener, &open, None, grant);
        let now = Instant::ZERO;
        member.begin(now, &Begin { symbol: 0, message: 0, cost: 0 }).unwrap();
        let symbols = [symbol(0, 100), symbol(1, bytes)];
        let parity = &parities(&symbols, 1)[0];
        let header = GroupHeader { symbol: 0, floor: 0, ack_every: 1, parity_of: 0, parity_index: 1 };
        member.on_packet(now, 0, false, &header, &symbols[0]).unwrap();
        let header = GroupHeader { parity_of: 2, parity_index: 0, ..header };
        member.on_packet(now, 2, false, &header, parity).unwrap();
        (member.assembly.next(), member.first_barred())
    }

    #[test]
    fn what_parity_restores_needs_room_like_all_else() {
        assert_eq!(second_restored(10_000, 200), (2, u64::MAX));
        assert_eq!(second_restored(10_000, 201), (1, 1), "too large: it is meant for others");
        assert_eq!(second_restored(300, 200), (1, 1), "more than it holds");
    }
}
