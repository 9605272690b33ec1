//! Draws lives of groups: openers and members on the same hosts, and what goes wrong, beside the operations on
//! sessions of the other seeds.

use super::{Draw, Setup, TestOp, TimedOp, draw_hosts, draw_secrets, odd};
use crate::net::topology::HostId;
use crate::oracle::groups::{ADDRESSES, GroupOp, WHOLE_HISTORY_BYTES};
use crate::rng::Rng;
use core::time::Duration;
use denrei_proto::group::{GroupBackend, GroupFeedback, GroupOptions, GroupPolicy};

/// Keeps group seeds apart from the others.
const PURPOSE: u64 = 0x6772_6f75_7073_0000;
/// Keeps what is rare apart from the rest of a seed.
const RARE: u64 = 0x7261_7265_0000_0000;
/// Share of seeds whose hosts have a cluster key.
const SEALED_SHARE: f64 = 0.3;
/// Bytes that one scenario sends to groups at most: each is received by every member.
const BYTES_BUDGET: u64 = 3 << 20;
/// The kind of operations on sessions that most seeds leave out: who ends a session with a member ends its membership.
const CLOSE: usize = 6;
/// Share of seeds in which sessions are closed.
const CLOSING_SHARE: f64 = 0.1;
/// Share of seeds with a crowd of members, whose reports climb a tree; they get little, as all of them get it.
const CROWD_SHARE: f64 = 0.01;
const CROWD_BYTES_BUDGET: u64 = 64 << 10;
/// Share of seeds in which several openers have some tens of groups, which hosts join and leave all the time: what
/// happens to one must not be what another waits for. They get little, as there are many.
const MANY_SHARE: f64 = 0.02;
const MANY_BYTES_BUDGET: u64 = 256 << 10;
/// Keeps those apart from the rest of a seed.
const MANY: u64 = 0x6d61_6e79_0000_0000;
/// Links of a crowd are at least as fast.
const CROWD_BITS_PER_S: u64 = 1_000_000_000;

/// Kinds of operations on groups with their weights, in the order of [`DrawGroups::op`].
const WEIGHTS: [u64; 15] = [60, 4, 3, 3, 2, 5, 4, 4, 3, 6, 4, 3, 3, 2, 3];
/// The kind that no seed leaves out: sending.
const SEND: usize = 0;

/// The scenario of `seed` with groups.
pub fn generate_groups(seed: u64) -> (Setup, Vec<TimedOp>) {
    let mut rng = Rng::new(seed ^ PURPOSE);
    // From a generator of its own, so that other seeds do the same as ever.
    let mut rare = Rng::new(seed ^ RARE);
    let crowd = rare.chance(CROWD_SHARE);
    let hosts = *rng.pick(&[2, 3, 3, 4, 4, 5, 6, 8, 13]);
    let hosts = if crowd { rare.within(71..=131) } else { hosts };
    let mut setup = draw_hosts(&mut rng.fork(1), rng.next_u64(), hosts);
    let mut secrets = rng.fork(3);
    let sealed = secrets.chance(SEALED_SHARE);
    if sealed {
        draw_secrets(&mut secrets, &mut setup.hosts);
    }
    let deaf_share = *rng.pick(&[0.0, 0.0, 0.0, 0.3, 1.0]);
    setup.hosts.iter_mut().for_each(|host| host.deaf = rng.chance(deaf_share));
    let mut sessions = Draw::new(rng.fork(2), hosts);
    sessions.weights[CLOSE] *= rare.chance(CLOSING_SHARE) as u64;
    let mut groups = DrawGroups::new(rng.fork(4), hosts, sealed);
    if crowd {
        groups.be_crowded();
        hasten(&mut setup);
    } else if Rng::new(seed ^ MANY).chance(MANY_SHARE) {
        groups.be_many();
    }
    let mut ops = groups.beginning(&setup);
    let beside = *rng.pick(&[0.1, 0.3, 0.6]);
    let count = rng.within(10..=70);
    for _ in 0..if groups.many { count * 2 } else { count } {
        let mut timed = sessions.timed_op();
        if !rng.chance(beside) {
            timed.op = groups.op();
        }
        ops.push(timed);
    }
    if !crowd {
        odd::make_odd(seed, &mut setup, &mut ops);
    }
    (setup, ops)
}

/// A hundred handshakes at once take longer over a slow link than a session waits.
fn hasten(setup: &mut Setup) {
    let of_hosts = setup.hosts.iter_mut().flat_map(|host| [&mut host.spec.up, &mut host.spec.down]);
    let links = of_hosts.chain(&mut setup.trunk);
    links.for_each(|link| link.rate_bits_per_s = link.rate_bits_per_s.max(CROWD_BITS_PER_S));
}

struct DrawGroups {
    rng: Rng,
    hosts: u64,
    weights: [u64; 15],
    addresses: u64,
    openers: u64,
    largest_message: u64,
    budget: u64,
    sealed: bool,
    crowded: bool,
    many: bool,
}

impl DrawGroups {
    fn new(mut rng: Rng, hosts: u64, sealed: bool) -> Self {
        let mut weights = WEIGHTS;
        for (kind, weight) in weights.iter_mut().enumerate() {
            if kind != SEND && rng.chance(0.5) {
                *weight = 0;
            }
        }
        let addresses = rng.within(1..=ADDRESSES as u64);
        let openers = rng.within(1..=hosts.min(3));
        let largest_message = *rng.pick(&[200, 5_000, 60_000, 400_000, 2 << 20]);
        let (budget, crowded, many) = (BYTES_BUDGET, false, false);
        Self { rng, hosts, weights, addresses, openers, largest_message, budget, sealed, crowded, many }
    }

    /// Tens of groups, at some hosts, of which much becomes.
    fn be_many(&mut self) {
        (self.openers, self.budget, self.many) = (self.hosts.min(4), MANY_BYTES_BUDGET, true);
        self.weights = WEIGHTS;
    }

    /// Few messages, and nearly all hosts are members: of a group that does not open there is little to see.
    fn be_crowded(&mut self) {
        (self.addresses, self.openers, self.budget, self.crowded) = (1, 1, CROWD_BYTES_BUDGET, true);
    }

    /// Hosts join, openers open, and there is time for it, as a rule.
    fn beginning(&mut self, setup: &Setup) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        let joins = if self.crowded { 1.0 } else { *self.rng.pick(&[1.0, 1.0, 0.8]) };
        for (number, host) in (0..).zip(&setup.hosts) {
            for address in 0..self.addresses as u8 {
                if self.rng.chance(joins) {
                    let heard = !host.deaf || self.rng.chance(0.5);
                    ops.push(TestOp::Group(HostId(number), GroupOp::Join { address, heard }));
                }
            }
        }
        for opener in 0..self.openers as u32 {
            let groups = if self.many { 8..=20 } else { 1..=2 };
            for _ in 0..self.rng.within(groups) {
                let open = self.open();
                ops.push(TestOp::Group(HostId(opener), open));
            }
        }
        let mut timed: Vec<TimedOp> =
            ops.into_iter().map(|op| TimedOp { after: Duration::ZERO, op }).collect();
        let opening = self.rng.log_within(100_000..=2_000_000_000);
        timed.push(TimedOp { after: Duration::from_nanos(opening), op: TestOp::Heal });
        timed
    }

    fn host(&mut self) -> HostId {
        HostId(self.rng.below(self.hosts) as u32)
    }

    fn opener(&mut self) -> HostId {
        HostId(self.rng.below(self.openers) as u32)
    }

    fn address(&mut self) -> u8 {
        self.rng.below(self.addresses) as u8
    }

    fn open(&mut self) -> GroupOp {
        let share = if self.crowded { 0.95 } else { *self.rng.pick(&[1.0, 0.7, 0.4]) };
        let hosts = (0..self.hosts as u32).map(HostId);
        let members = hosts.filter(|_| self.rng.chance(share)).collect();
        GroupOp::Open { address: self.address(), members, options: Box::new(self.options()) }
    }

    fn options(&mut self) -> GroupOptions {
        let rng = &mut self.rng;
        let after = Duration::from_millis(*rng.pick(&[10, 100, 500, 2_000]));
        let backend = *rng.pick(&[
            GroupBackend::Auto,
            GroupBackend::Auto,
            GroupBackend::Multicast,
            GroupBackend::Unicast,
            GroupBackend::Tree,
        ]);
        let mut switch = || rng.chance(0.7);
        let feedback =
            GroupFeedback { thin: switch(), stagger: switch(), suppress: switch(), tree: switch() };
        let (parity, admit) = (switch(), switch());
        GroupOptions {
            policy: *rng.pick(&[GroupPolicy::Wait, GroupPolicy::Eject { after }, GroupPolicy::Lag { after }]),
            backend,
            open_timeout: Duration::from_millis(rng.log_within(50..=5_000)),
            history_bytes: *rng.pick(&[0, 10_000, 1 << 20, WHOLE_HISTORY_BYTES]),
            admit,
            fan_out: rng.below(4) as u32,
            feedback,
            parity,
            sign: backend != GroupBackend::Tree && rng.chance(if self.sealed { 0.3 } else { 0.01 }),
        }
    }

    fn op(&mut self) -> TestOp {
        let kind = self.rng.weighted(&self.weights);
        let groups = if self.many { 32 } else { 8 };
        let (opener, host, number) = (self.opener(), self.host(), self.rng.below(groups) as u8);
        match kind.unwrap_or(SEND) {
            1 => TestOp::Group(opener, GroupOp::Hurry(number)),
            2 => TestOp::Group(opener, GroupOp::Add(number, host, self.rng.chance(0.5))),
            3 => TestOp::Group(opener, GroupOp::Remove(number, self.rng.below(16) as u32)),
            4 => TestOp::Group(opener, GroupOp::Close(number)),
            5 => TestOp::Group(host, GroupOp::Ask(opener, self.address(), self.rng.chance(0.5))),
            6 => TestOp::Group(host, GroupOp::Leave(number)),
            7 => TestOp::Group(host, GroupOp::SetTaking(self.rng.chance(0.5))),
            8 => TestOp::Group(host, GroupOp::Take(number, self.rng.within(1..=4) as usize)),
            9 => TestOp::Group(host, GroupOp::Join { address: self.address(), heard: true }),
            10 => TestOp::SetDeaf(host, self.rng.chance(0.5)),
            11 => TestOp::Restart(host),
            12 => TestOp::Group(opener, self.open()),
            13 => TestOp::Group(host, GroupOp::StopJoining(self.address())),
            14 => TestOp::Group(opener, GroupOp::Forget(number)),
            _ => TestOp::Group(opener, GroupOp::Send(number, self.size())),
        }
    }

    fn size(&mut self) -> usize {
        let largest = *self.rng.pick(&[20, 2_000, 30_000, self.largest_message]);
        let largest = largest.min(self.largest_message).min(self.budget);
        let bytes = self.rng.within(0..=largest);
        self.budget -= bytes;
        bytes as usize
    }
}
