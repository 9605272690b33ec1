//! What a member has room for. Whoever the others wait for is sent nothing beyond its limit; who lags hears the
//! group's address as they do.
//!
//! Inputs → outputs: what the application has taken, symbols and parities as they come to the group's address →
//! when to report a limit, whether they are taken in. Those that are not come by the session once there is room.
//! Source: M6; `spec/protocol.md` §14.5.

use super::Membership;
use denrei_wire::Instant;

/// What the small messages that begin in one symbol cost at most: those of the largest datagram, all of them empty.
const SYMBOL_COST: u64 = 1 << 20;

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

    /// Whether a symbol that a session has brought may be held: of an honest opener each may. It sends those within the
    /// limit, or one that ends a message, whatever its size, and begins the next; what has come to the group's address
    /// beyond is as much again.
    pub(super) fn may_come_by_session(&self, frames: &[u8]) -> bool {
        let waiting = self.assembly.seen_cost().saturating_sub(self.assembly.taken_cost());
        let most = self.grant.credit.saturating_add(self.grant.max_message).saturating_mul(2);
        waiting <= most.saturating_add(SYMBOL_COST)
            || self.assembly.cost_of_new(frames, self.grant.max_message) == Some(0)
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

    /// A member that takes messages of 200 octets and holds so many, when it has begun.
    fn member(credit: u64) -> Membership {
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
        member.begin(Instant::ZERO, &Begin { symbol: 0, message: 0, cost: 0 }).unwrap();
        member
    }

    /// The second of two symbols comes to such a member by parity: how many messages it has then, and which symbol it
    /// has no room for.
    fn second_restored(credit: u64, bytes: usize) -> (u64, u64) {
        let (mut member, now) = (member(credit), Instant::ZERO);
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

    /// Symbols of sessions until the member will have no more of them: how many came, and what they cost.
    fn until_refused(next: impl Fn(u32) -> u32) -> (u64, u64) {
        let mut member = member(10_000);
        let mut came = (0u32..).map(|number| {
            member.on_session_symbol(Instant::ZERO, number.into(), &symbol(next(number), 100))?;
            Ok::<u64, &str>(member.assembly.seen_cost())
        });
        let held: Vec<u64> = came.by_ref().take(100_000).map_while(Result::ok).collect();
        (held.len() as u64, held.last().copied().unwrap_or(0))
    }

    #[test]
    fn who_sends_by_session_beyond_all_limits_is_left() {
        let most = 2 * (10_000 + 200) + SYMBOL_COST + 164;
        for (symbols, cost) in [until_refused(|number| number), until_refused(|number| 1 << 30 ^ number)] {
            assert!(symbols > 100, "those within the limit come");
            assert!(cost <= most, "{cost} octets' worth is held by a member that holds 10,000");
        }
    }
}
