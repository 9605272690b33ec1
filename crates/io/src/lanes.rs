//! The sockets of one port and the order in which they are polled.
//!
//! Inputs → outputs: how many lanes there are, which one delivered → which to poll in this call.
//! Lane 0 is the main socket, the others are connected to one busy peer each.
//!
//! Policy: the lane that delivered last is hot and polled in every call; every
//! [`COLD_EVERY`]th call polls one other lane too, and every second of those is the main socket.
//! Once the hot lane has been empty [`COOL_AFTER`] times in a row, all lanes take turns, one a
//! call. So an idle poll costs one system call (1.25 with a hot lane), and the main socket waits
//! at most 2 × `COLD_EVERY` calls.

use crate::config::MAX_LANES;
use std::net::{SocketAddr, UdpSocket};

/// Calls from one look at a cold lane to the next, while a lane is hot.
const COLD_EVERY: u32 = 4;
/// Empty calls after which a lane is no longer hot: a few microseconds of polling, or a peer's
/// time to answer.
const COOL_AFTER: u32 = 16;
/// Receive calls after which a closing lane is closed even if it still delivers.
pub(crate) const MAX_DRAIN_CALLS: u32 = 64;

/// One socket.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) socket: UdpSocket,
    /// The peer it is connected to; `None`: the main socket.
    pub(crate) peer: Option<SocketAddr>,
    /// Messages to ask for in the next receive call: grows while calls come back full.
    pub(crate) ask: usize,
    /// `Some`: about to be closed, polled that often since.
    pub(crate) draining: Option<u32>,
}

impl Lane {
    pub(crate) fn new(socket: UdpSocket, peer: Option<SocketAddr>) -> Self {
        Self { socket, peer, ask: 1, draining: None }
    }

    /// Adapts the next request to what this one brought: 1 after a lone datagram or none, double
    /// after a full call, up to `most`.
    pub(crate) fn adapt(&mut self, asked: usize, got: usize, most: usize) {
        self.ask = if got >= asked { (asked * 2).min(most) } else { got.clamp(1, most) };
    }
}

/// Which lane to poll next.
#[derive(Debug, Default)]
pub(crate) struct PollPolicy {
    hot: usize,
    empty_calls: u32,
    calls: u32,
    /// Next connected lane to look at.
    next: usize,
    /// Lanes known to be readable, by index.
    hinted: u64,
}

/// The lanes of one call, as a set of indices, and whether it came from a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan(pub(crate) u64);

impl Plan {
    /// The indices, lowest last so that connected lanes are polled first.
    pub(crate) fn lanes(self) -> impl Iterator<Item = usize> {
        (0..MAX_LANES).rev().filter(move |&lane| self.0 >> lane & 1 == 1)
    }
}

impl PollPolicy {
    /// Notes that the lanes in `readable` (bit = index) have something.
    pub(crate) fn hint(&mut self, readable: u64) {
        self.hinted |= readable;
    }

    /// What to poll now among `count` ≥ 1 lanes.
    pub(crate) fn plan(&mut self, count: usize) -> Plan {
        let existing = if count >= MAX_LANES { u64::MAX } else { (1 << count) - 1 };
        let hinted = std::mem::take(&mut self.hinted) & existing;
        if hinted != 0 {
            return Plan(hinted);
        }
        if count == 1 {
            return Plan(1);
        }
        self.calls = self.calls.wrapping_add(1);
        let hot = 1u64 << self.hot.min(count - 1);
        if self.empty_calls >= COOL_AFTER {
            return Plan(self.turn(self.calls, count));
        }
        if self.calls.is_multiple_of(COLD_EVERY) {
            return Plan(hot | self.turn(self.calls / COLD_EVERY, count));
        }
        Plan(hot)
    }

    /// Notes how many datagrams lane `index` brought.
    pub(crate) fn polled(&mut self, index: usize, datagrams: usize) {
        if datagrams > 0 {
            if index != self.hot && self.empty_calls == 0 {
                return; // the hot lane is still busy
            }
            self.hot = index;
            self.empty_calls = 0;
        } else if index == self.hot {
            self.empty_calls = self.empty_calls.saturating_add(1);
        }
    }

    /// Notes that lane `index` was removed and lane `last` moved into its place.
    pub(crate) fn removed(&mut self, index: usize, last: usize) {
        self.hinted = 0;
        if self.hot == index {
            self.hot = 0;
        } else if self.hot == last {
            self.hot = index;
        }
    }

    /// The main lane and the connected lanes alternate; the connected ones take turns.
    fn turn(&mut self, turn: u32, count: usize) -> u64 {
        if turn.is_multiple_of(2) {
            return 1;
        }
        self.next = self.next % (count - 1) + 1;
        1 << self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_lane_is_always_polled() {
        let mut policy = PollPolicy::default();
        for _ in 0..100 {
            assert_eq!(policy.plan(1), Plan(1));
            policy.polled(0, 0);
        }
    }

    #[test]
    fn no_lane_starves_while_another_is_hot() {
        let mut policy = PollPolicy::default();
        policy.polled(3, 1);
        policy.hot = 3;
        let (mut last_main, mut seen, mut polls) = (0, 0, 0);
        for call in 1..=200u32 {
            let plan = policy.plan(9);
            assert!(plan.0 & 1 << 3 != 0, "the hot lane is in every call");
            polls += plan.lanes().count();
            policy.polled(3, 5);
            if plan.0 & 1 != 0 {
                assert!(call - last_main <= 2 * COLD_EVERY, "main waited {}", call - last_main);
                last_main = call;
            }
            seen |= plan.0;
        }
        assert_eq!(seen, 0x1ff, "every lane had its turn");
        assert!(polls <= 200 * 5 / 4, "{polls} polls in 200 calls");
    }

    #[test]
    fn an_idle_poll_costs_one_call_and_finds_everybody() {
        let mut policy = PollPolicy::default();
        let mut seen = 0;
        for call in 0..100 {
            let plan = policy.plan(9);
            if call > 2 * COOL_AFTER {
                assert_eq!(plan.lanes().count(), 1);
                seen |= plan.0;
            }
            plan.lanes().for_each(|lane| policy.polled(lane, 0));
        }
        assert_eq!(seen, 0x1ff);
    }

    #[test]
    fn a_cooled_lane_hands_over_to_the_one_that_delivers() {
        let mut policy = PollPolicy::default();
        policy.polled(0, 0);
        policy.polled(2, 1);
        assert_eq!(policy.plan(4), Plan(1 << 2));
        policy.removed(1, 2);
        assert_eq!(policy.plan(3), Plan(1 << 1), "the hot lane moved");
        policy.removed(1, 2);
        assert_eq!(policy.plan(2).0 & 1, 1, "main takes over");
    }

    #[test]
    fn hints_are_followed_once_and_only_to_existing_lanes() {
        let mut policy = PollPolicy::default();
        policy.hint(0b1_0000_0110);
        assert_eq!(policy.plan(3).lanes().collect::<Vec<_>>(), [2, 1]);
        assert_eq!(policy.plan(3).lanes().count(), 1);
        policy.hint(u64::MAX);
        assert_eq!(policy.plan(MAX_LANES), Plan(u64::MAX));
    }

    #[test]
    fn requests_grow_under_load_and_shrink_at_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut lane = Lane::new(socket, None);
        for expected in [2, 4, 8, 16, 16] {
            lane.adapt(lane.ask, lane.ask, 16);
            assert_eq!(lane.ask, expected);
        }
        lane.adapt(16, 1, 16);
        assert_eq!(lane.ask, 1);
        lane.adapt(1, 0, 16);
        assert_eq!(lane.ask, 1);
        lane.adapt(16, 7, 16);
        assert_eq!(lane.ask, 7);
    }
}
