//! The sockets of one port and the order in which they are polled.
//!
//! Inputs → outputs: how many lanes there are, which one delivered → which to poll in this call.
//! Lane 0 is the main socket, the others are connected to one busy peer each.
//!
//! Policy: the lane that delivered last is hot, and the one to read. All lanes are looked at together, by
//! one `poll`, every [`COLD_EVERY`] empty calls, or a quarter as many datagrams or trains of it; sooner while
//! others than the hot one deliver, from the first call after such a one; and in every call once the hot lane
//! has been empty [`COOL_AFTER`] times in a row. So an idle poll costs one system call, and what waits on any lane is found
//! by the first that looks: a process that shares its core with others may have few. After a lane was connected the main
//! one is read first until it is empty: what its peer sent before is not overtaken.

use crate::config::MAX_LANES;
use crate::outcome::{self, DropKind};
use crate::refusal;
use denrei_wire::{Ecn, Way};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Most empty calls from one look at all lanes to the next, while a lane is hot, some 8 µs: what comes on that
/// lane during a look is read a call later, which costs a ping-pong with a look per message a fortieth.
const COLD_EVERY: u32 = 32;
/// A datagram or train counts as so many empty calls: half a MiB of trains.
const WORK_OF_A_TRAIN: u32 = 4;
/// Full calls in a row after which more is asked for: in a ping-pong every call is full too, and
/// asking for two there costs a second look at the queue inside the kernel.
const FULL_BEFORE_GROWTH: u32 = 4;
/// Empty calls after which a lane is no longer hot: some 10 µs of polling, longer than a peer on another host
/// takes to answer, or who waits for it would look elsewhere when the answer comes.
const COOL_AFTER: u32 = 32;
/// Lone short datagrams in a row, each with an empty look before it, after which a lane goes
/// without trains ([`Lane::wants_trains`]): a switch costs as much as it saves on two.
const LONE_BEFORE_PLAIN: u32 = 32;
/// A datagram of this size or more is one that a bulk sender fills: the least MTU it may assume
/// (1,280) without headers, bytes.
const FULL_DATAGRAM_BYTES: usize = 1_200;
/// Receive calls after which a closing lane is closed even if it still delivers.
pub(crate) const MAX_DRAIN_CALLS: u32 = 64;

/// One socket.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) socket: UdpSocket,
    /// The peer it is connected to; `None`: the main socket.
    pub(crate) peer: Option<SocketAddr>,
    /// Which of the addresses that the port is bound to this socket is at; `None`: the port's, or the one that the
    /// system chose.
    pub(crate) at: Option<IpAddr>,
    /// The group it hears; `None`: the port's own address.
    pub(crate) group: Option<SocketAddr>,
    /// Messages to ask for in the next receive call: grows while calls come back full.
    pub(crate) ask: usize,
    /// Calls in a row that came back full.
    full_calls: u32,
    /// Whether the kernel is asked for trains (`UDP_GRO`) and, on a connected lane, for ECN marks.
    pub(crate) trains: bool,
    /// Whose the last datagram was, if it was large.
    pub(crate) large_from: Option<SocketAddr>,
    /// How the last datagram was marked that was; at first as one is that nothing has happened to. Peers send
    /// acknowledgements without a mark, and nobody counts these.
    mark: Ecn,
    /// Lone short datagrams in a row, each found after an empty look.
    lone: u32,
    /// The last call found nothing.
    was_empty: bool,
    /// Found empty since it was connected.
    settled: bool,
    /// The peer's host has said that nobody is at its port, and nobody has asked yet.
    pub(crate) refused: bool,
    /// The kernel says who it was ([`refusal`](crate::refusal)).
    pub(crate) told_who_refuses: bool,
    /// `Some`: about to be closed, polled that often since.
    pub(crate) draining: Option<u32>,
}

impl Lane {
    pub(crate) fn new(socket: UdpSocket, way: Option<Way>, trains: bool) -> Self {
        let (peer, at) = (way.map(|way| way.to), way.and_then(|way| way.from));
        let (ask, full_calls, lone) = (1, 0, 0);
        let (was_empty, settled, refused, draining) = (false, false, false, None);
        let (group, large_from, mark) = (None, None, Ecn::Ect0);
        Self {
            socket,
            peer,
            at,
            group,
            ask,
            full_calls,
            trains,
            large_from,
            mark,
            lone,
            was_empty,
            settled,
            refused,
            told_who_refuses: false,
            draining,
        }
    }

    /// A socket that hears a group of the network.
    pub(crate) fn of_group(socket: UdpSocket, group: SocketAddr, trains: bool) -> Self {
        Self { group: Some(group), ..Self::new(socket, None, trains) }
    }

    /// Has the kernel say who refuses what is sent, if it can.
    pub(crate) fn ask_who_refuses(&mut self) {
        self.told_who_refuses = self.told_who_refuses || refusal::ask(&self.socket).is_ok();
    }

    /// Whether `error` may be the report of an earlier datagram's fate: where it is told whose that is, the kernel reports
    /// "source route failed" as well, which is else an error of the call.
    pub(crate) fn may_be_pending(&self, error: &io::Error) -> bool {
        let no_route = self.told_who_refuses && error.raw_os_error() == Some(libc::EOPNOTSUPP);
        no_route || outcome::may_be_pending(error)
    }

    /// Whether what a call ended with is word of the peer's own host that nobody is at its port, as far as the system
    /// tells.
    pub(crate) fn is_refusal_of_peer(&mut self, error: &io::Error) -> bool {
        if self.told_who_refuses {
            // What there is to read is read after every error, of whatever kind.
            return refusal::peer_says(&self.socket, self.peer.map(|peer| peer.ip()));
        }
        let refused = DropKind::of(error) == DropKind::Refused;
        if refused {
            self.ask_who_refuses();
        }
        refused && !self.told_who_refuses
    }

    /// Whose every datagram here is, if that is certain: before it was connected, and after it was
    /// turned away, a socket may have got those of others.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn only_source(&self) -> Option<SocketAddr> {
        self.peer.filter(|_| self.settled)
    }

    /// Whose every datagram here is, and how it is taken to be marked, if the kernel is asked for
    /// neither: as the last one was that had a mark when it was asked (spec 9, ECN).
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn known(&self) -> Option<(SocketAddr, Ecn)> {
        if self.trains { None } else { self.only_source().map(|source| (source, self.mark)) }
    }

    /// There was nothing on it.
    pub(crate) fn found_empty(&mut self) {
        self.was_empty = true;
        self.settled = true;
    }

    /// Whether the lane should be asked for trains, given that a call brought `got` buffers, the
    /// first of `bytes`, the last marked `mark`. Asking costs every lone datagram 0.13 µs in the
    /// kernel, and as much again for marks, each a twentieth of a ping-pong; it saves a bulk transfer
    /// most of its work. Where a mark says that the path is congested, it is asked for.
    pub(crate) fn wants_trains(&mut self, got: usize, bytes: usize, mark: Ecn) -> bool {
        if got == 0 {
            self.found_empty();
            return self.trains;
        }
        if mark != Ecn::NotEct {
            self.mark = mark;
        }
        let lone = got == 1 && bytes < FULL_DATAGRAM_BYTES && self.was_empty && mark != Ecn::Ce;
        self.was_empty = false;
        self.lone = if lone { self.lone.saturating_add(1) } else { 0 };
        if self.trains { self.lone < LONE_BEFORE_PLAIN } else { !lone }
    }

    /// Adapts the next request to what this one brought: 1 after a lone datagram or none, double
    /// after some full calls, up to `most`.
    pub(crate) fn adapt(&mut self, asked: usize, got: usize, most: usize) {
        if got < asked {
            self.ask = got.clamp(1, most);
            self.full_calls = 0;
            return;
        }
        self.full_calls = self.full_calls.saturating_add(1);
        if self.full_calls >= FULL_BEFORE_GROWTH {
            self.ask = (asked * 2).min(most);
        }
    }
}

/// Which lane to poll next.
#[derive(Debug, Default)]
pub(crate) struct PollPolicy {
    hot: usize,
    empty_calls: u32,
    /// Empty calls since all lanes were looked at, and datagrams and trains in such.
    work: u32,
    /// How many of those there may be until all are looked at again: 0 after another lane than the hot one
    /// has delivered, more with everything that comes on the hot one.
    patience: u32,
    /// Lanes known to be readable, by index.
    hinted: u64,
    /// How often the main lane is still read before all others, unless it is found empty.
    main_first: u32,
}

/// The lanes of one call, as a set of indices; yields the highest first, so that connected lanes are
/// polled before the main one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan(pub(crate) u64);

impl Iterator for Plan {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let lane = self.0.checked_ilog2()?;
        self.0 &= !(1 << lane);
        Some(lane as usize)
    }
}

impl PollPolicy {
    /// Notes that the lanes in `readable` (bit = index) have something.
    pub(crate) fn hint(&mut self, readable: u64) {
        self.hinted |= readable;
    }

    /// Notes that a lane was connected: what its peer sent before waits on the main one, and would be overtaken there by
    /// what comes from now on. A queue that others fill as fast as it is read is not waited for.
    pub(crate) fn connected(&mut self) {
        self.main_first = MAX_DRAIN_CALLS;
    }

    /// Whether the other lanes wait until the main one has been read again.
    pub(crate) fn is_main_first(&self) -> bool {
        self.main_first > 0
    }

    /// The next lane of a plan; then, once the main one is found empty, of what comes after it.
    pub(crate) fn next_of(&self, plan: &mut Plan, later: &mut Plan) -> Option<usize> {
        plan.next().or_else(|| {
            if !self.is_main_first() {
                *plan = std::mem::replace(later, Plan(0));
            }
            plan.next()
        })
    }

    /// What to read now among `count` ≥ 1 lanes; `None`: those that a [look](Self::looked) finds readable.
    pub(crate) fn plan(&mut self, count: usize) -> Option<Plan> {
        let existing = if count >= MAX_LANES { u64::MAX } else { (1 << count) - 1 };
        let hinted = std::mem::take(&mut self.hinted) & existing;
        if hinted != 0 {
            return Some(Plan(hinted));
        }
        if count == 1 {
            return Some(Plan(1));
        }
        if self.work >= self.patience || self.empty_calls >= COOL_AFTER {
            return None;
        }
        Some(Plan(1 << self.hot.min(count - 1)))
    }

    /// Notes that of all lanes those in `readable` have something; they are read next.
    pub(crate) fn looked(&mut self, readable: u64) -> Plan {
        self.work = 0;
        if readable & 1 << self.hot == 0 {
            self.empty_calls = self.empty_calls.saturating_add(1);
        }
        Plan(readable)
    }

    /// Notes how many datagrams or trains lane `index` brought, and whether those were all it had.
    pub(crate) fn polled(&mut self, index: usize, got: usize, is_empty: bool) {
        self.work = self.work.saturating_add((WORK_OF_A_TRAIN * got as u32).max(1));
        if index == 0 {
            self.main_first = if is_empty { 0 } else { self.main_first.saturating_sub(1) };
        }
        if got > 0 {
            if index == self.hot {
                self.patience = (2 * self.patience + WORK_OF_A_TRAIN).min(COLD_EVERY);
            } else if self.empty_calls == 0 {
                return; // the hot lane is still busy
            } else {
                self.patience = 0;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call, with these lanes readable, each of which brings one datagram; what was read, and whether all
    /// lanes were looked at.
    fn call(policy: &mut PollPolicy, count: usize, readable: u64) -> (u64, bool) {
        let planned = policy.plan(count);
        let plan = planned.unwrap_or_else(|| policy.looked(readable));
        plan.for_each(|lane| policy.polled(lane, (readable >> lane & 1) as usize, readable >> lane & 1 == 0));
        (plan.0, planned.is_none())
    }

    /// One whose lane 3 has been alone in delivering.
    fn with_hot_lane() -> PollPolicy {
        let mut policy = PollPolicy::default();
        for _ in 0..20 {
            call(&mut policy, 9, 1 << 3);
        }
        policy
    }

    #[test]
    fn a_single_lane_is_always_polled() {
        let mut policy = PollPolicy::default();
        for _ in 0..100 {
            assert_eq!(call(&mut policy, 1, 0), (1, false));
        }
    }

    #[test]
    fn no_lane_starves_while_another_is_hot() {
        let mut policy = with_hot_lane();
        let (mut waited, mut looks) = (0, 0);
        for _ in 0..200 {
            // Lanes 0 and 5 have something all the time, too.
            let (read, looked) = call(&mut policy, 9, 0b10_1001);
            assert!(read & 1 << 3 != 0, "the hot lane is in every call");
            looks += u32::from(looked);
            waited = if read == 0b10_1001 { 0 } else { waited + 1 };
            assert!(waited <= COLD_EVERY / WORK_OF_A_TRAIN, "the others waited {waited}");
        }
        assert!(looks <= 200 / 4, "{looks} looks in 200 calls");
    }

    #[test]
    fn an_idle_poll_costs_one_call_and_finds_everybody() {
        let mut policy = with_hot_lane();
        for _ in 0..2 * COOL_AFTER {
            let (read, looked) = call(&mut policy, 9, 0);
            assert!(read == 0 || read == 1 << 3 && !looked);
        }
        assert_eq!(call(&mut policy, 9, 1 << 7), (1 << 7, true));
    }

    #[test]
    fn lanes_that_deliver_by_turns_are_found_by_the_first_look() {
        let mut policy = PollPolicy::default();
        for turn in 0..30 {
            let lane = 1 << (1 + turn % 4);
            assert_eq!(call(&mut policy, 9, 0), (0, true));
            assert_eq!(call(&mut policy, 9, lane), (lane, true));
        }
    }

    #[test]
    fn a_hot_lane_is_looked_beside_seldom() {
        let mut policy = with_hot_lane();
        let mut looks = 0;
        for turn in 0..160 {
            looks += u32::from(call(&mut policy, 2 + 7, if turn % 2 == 0 { 0 } else { 1 << 3 }).1);
        }
        assert!(looks <= 160 / (COLD_EVERY / WORK_OF_A_TRAIN - 1), "{looks} looks in 160 calls");
    }

    #[test]
    fn a_cooled_lane_hands_over_to_the_one_that_delivers() {
        let mut policy = PollPolicy::default();
        call(&mut policy, 4, 0);
        call(&mut policy, 4, 1 << 2);
        call(&mut policy, 4, 1 << 2);
        call(&mut policy, 4, 1 << 2);
        assert_eq!(policy.plan(4), Some(Plan(1 << 2)));
        policy.removed(1, 2);
        assert_eq!(policy.plan(3), Some(Plan(1 << 1)), "the hot lane moved");
        policy.removed(1, 2);
        assert_eq!(policy.plan(2), Some(Plan(1)), "main takes over");
    }

    #[test]
    fn hints_are_followed_once_and_only_to_existing_lanes() {
        let mut policy = PollPolicy::default();
        policy.hint(0b1_0000_0110);
        assert_eq!(policy.plan(3), Some(Plan(0b110)));
        assert_eq!(Plan(0b110).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(policy.plan(3), None);
        policy.hint(u64::MAX);
        assert_eq!(policy.plan(MAX_LANES), Some(Plan(u64::MAX)));
    }

    #[test]
    fn requests_grow_under_load_and_shrink_at_once() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut lane = Lane::new(socket, None, true);
        for expected in [1, 1, 1, 2, 4, 8, 16, 16] {
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
    #[test]
    fn a_lane_of_lone_short_datagrams_goes_without_trains_until_bulk_comes() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut lane = Lane::new(socket, None, true);
        for lone in 1..=LONE_BEFORE_PLAIN {
            lane.wants_trains(0, 0, Ecn::Ect0);
            assert_eq!(lane.wants_trains(1, 100, Ecn::Ect0), lone < LONE_BEFORE_PLAIN);
        }
        lane.trains = false;
        lane.wants_trains(0, 0, Ecn::Ect0);
        assert!(!lane.wants_trains(1, 100, Ecn::Ect0));
        assert!(lane.wants_trains(1, 100, Ecn::Ect0), "two without a pause");
        lane.wants_trains(0, 0, Ecn::Ect0);
        assert!(!lane.wants_trains(1, 100, Ecn::Ect0));
        lane.wants_trains(0, 0, Ecn::Ect0);
        assert!(lane.wants_trains(1, FULL_DATAGRAM_BYTES, Ecn::Ect0), "a full one");
        lane.wants_trains(0, 0, Ecn::Ect0);
        assert!(lane.wants_trains(1, 100, Ecn::Ce), "congestion");
    }

    #[test]
    fn the_source_is_known_once_what_came_before_the_connection_is_read() {
        let peer: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut lane = Lane::new(UdpSocket::bind("127.0.0.1:0").unwrap(), Some(Way::from(peer)), true);
        lane.wants_trains(1, 100, Ecn::Ect0);
        assert_eq!(lane.only_source(), None);
        lane.wants_trains(0, 0, Ecn::Ect0);
        assert_eq!(lane.only_source(), Some(peer));
        assert_eq!(lane.known(), None, "the kernel is asked");
        lane.trains = false;
        assert_eq!(lane.known(), Some((peer, Ecn::Ect0)), "as the last one was");
        lane.wants_trains(1, 100, Ecn::Ect1);
        lane.wants_trains(1, 100, Ecn::NotEct);
        assert_eq!(lane.known(), Some((peer, Ecn::Ect1)), "that had a mark");
        lane.peer = None;
        assert_eq!(lane.only_source(), None);
        assert_eq!(lane.known(), None);
    }
}
