//! Makes a share of the scenarios odd: settings, paths, hosts and calls that are rare in use, or that keep everybody
//! waiting.
//!
//! Inputs → outputs: a scenario as the other draws have made it → the same, changed. Drawn from a generator of its own,
//! so that the other seeds do what they have always done.

use super::{LEAST_DATAGRAM_BYTES, Setup, TestOp, TimedOp};
use crate::net::link::LinkSpec;
use crate::net::topology::HostId;
use crate::oracle::calls::Urge;
use crate::oracle::groups::GroupOp;
use crate::rng::Rng;
use core::time::Duration;
use denrei_proto::group::{GroupOptions, GroupPolicy};
use denrei_proto::{Config, CongestionAlgorithm, HostLimit, HostRecord, MAX_RATE, MAX_WEIGHT, Rate};

/// Keeps what is odd apart from the rest of a seed.
const PURPOSE: u64 = 0x6f64_6400_0000_0000;
/// The same for who has room for few sessions.
const FEW_PEERS: u64 = 0x6665_7700_0000_0000;
/// Share of the odd ones where somebody has.
const FEW_PEERS_SHARE: f64 = 0.15;
/// The same for who has several endpoints.
const SHARDS: u64 = 0x7368_6172_6400_0000;
/// Share of the odd ones where somebody has, and of those where they are gathered.
const SHARDS_SHARE: f64 = 0.3;
const GATHERED_SHARE: f64 = 0.6;
/// Most endpoints of a host.
const MOST_SHARDS: u64 = 3;
/// The same for who shares its machine with other processes.
const MACHINES: u64 = 0x6d61_6368_0000_0000;
/// Share of the odd ones where somebody does.
const MACHINES_SHARE: f64 = 0.2;
/// Share of seeds that are odd.
const SHARE: f64 = 0.5;
/// Share of the odd ones whose paths are as long as the internet's: they take the longest.
const FAR_SHARE: f64 = 0.1;
/// A link's longest delay there: three of them make a path.
const FAR_LINK_DELAY_NS: u64 = 65_000_000;
/// The largest datagram of UDP over IPv4.
const MOST_DATAGRAM_BYTES: u64 = 65_507;
/// Who is not heard of within so many of the longest delays is taken for gone by mistake.
const PATIENCE_IN_DELAYS: u32 = 24;
/// Kinds of odd settings, each of which an odd seed has or has not.
const KINDS: usize = 14;

/// Makes the scenario of `seed` odd, if it is one of those.
pub(super) fn make_odd(seed: u64, setup: &mut Setup, ops: &mut Vec<TimedOp>) {
    let mut rng = Rng::new(seed ^ PURPOSE);
    if !rng.chance(SHARE) {
        return;
    }
    let kinds = [(); KINDS].map(|()| rng.chance(0.25));
    let hosts = setup.hosts.len() as u64;
    let mut odd = Odd { rng, kinds, hosts, channels: 0 };
    odd.paths(setup);
    odd.channels(setup, ops);
    odd.settings(setup);
    odd.groups(ops);
    odd.calls(ops);
    few_peers(seed, setup, ops);
    shards(seed, setup, ops);
    machines(seed, setup, ops);
}

/// Some hosts learn rates, and hear from others of their machine what those get. Drawn aside, as it came later than the
/// rest.
fn machines(seed: u64, setup: &mut Setup, ops: &mut Vec<TimedOp>) {
    let mut rng = Rng::new(seed ^ MACHINES);
    if !rng.chance(MACHINES_SHARE) {
        return;
    }
    for (number, host) in setup.hosts.iter_mut().enumerate() {
        if rng.chance(0.5) {
            host.set(|config| config.learn_rates = true);
            for _ in 0..rng.within(1..=6) {
                let at = rng.within(0..=ops.len() as u64) as usize;
                let after = Duration::from_micros(rng.log_within(1..=20_000));
                let limit = rng.chance(0.5).then(|| limit(&mut rng));
                let others = (0..rng.below(4)).map(|_| record(&mut rng)).collect();
                ops.insert(
                    at,
                    TimedOp {
                        after,
                        op: TestOp::ShareHost(HostId(number as u32), limit, others, any_number(&mut rng)),
                    },
                );
            }
        }
    }
}

fn limit(rng: &mut Rng) -> HostLimit {
    let rate = Rate { bytes_per_s: any_number(rng), burst_bytes: any_number(rng) };
    HostLimit { rate, is_learnt: rng.chance(0.5) }
}

/// Another process has written it: there may be any number in it.
fn record(rng: &mut Rng) -> HostRecord {
    HostRecord {
        weight: any_number(rng),
        bytes_per_s: any_number(rng),
        held_back: rng.chance(0.5),
        senders: any_number(rng),
        ..HostRecord::default()
    }
}

fn any_number(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => 1,
        _ => rng.log_within(100..=1 << 34),
    }
}

/// Some hosts spread their peers over several endpoints, and may gather them on the way, as they do at the latest when
/// they have to do with groups. Drawn aside, as it came later
/// than the rest.
fn shards(seed: u64, setup: &mut Setup, ops: &mut Vec<TimedOp>) {
    let mut rng = Rng::new(seed ^ SHARDS);
    if !rng.chance(SHARDS_SHARE) {
        return;
    }
    for (number, host) in setup.hosts.iter_mut().enumerate() {
        let wanted = rng.within(1..=MOST_SHARDS);
        // Each has memory for a channel at least.
        let room = [&host.config, &host.config_later]
            .map(|config| config.receive_memory_bytes / config.channel_credit_bytes);
        host.spec.shards = room.into_iter().fold(wanted, u64::min).max(1) as u32;
        if host.spec.shards > 1 && rng.chance(GATHERED_SHARE) {
            let at = rng.within(0..=ops.len() as u64) as usize;
            let after = Duration::from_micros(rng.log_within(1..=100_000));
            ops.insert(at, TimedOp { after, op: TestOp::Gather(HostId(number as u32)) });
        }
    }
}

/// Some hosts have room for fewer sessions than there are others, or take few handshakes. Drawn aside, as it came later
/// than the rest.
fn few_peers(seed: u64, setup: &mut Setup, ops: &[TimedOp]) {
    let mut rng = Rng::new(seed ^ FEW_PEERS);
    // A group needs all its members.
    if !rng.chance(FEW_PEERS_SHARE) || ops.iter().any(|timed| matches!(timed.op, TestOp::Group(..))) {
        return;
    }
    let others = setup.hosts.len() as u64 - 1;
    for host in &mut setup.hosts {
        if rng.chance(0.5) {
            let max_peers = rng.within(1..=others) as u32;
            host.set(|config| config.max_peers = max_peers);
        }
        if rng.chance(0.3) {
            let max_handshakes_per_s = rng.log_within(1..=100) as u32;
            host.set(|config| config.max_handshakes_per_s = max_handshakes_per_s);
        }
    }
}

struct Odd {
    rng: Rng,
    kinds: [bool; KINDS],
    hosts: u64,
    /// 0: as drawn.
    channels: u64,
}

impl Odd {
    /// Links as long as the internet's, hosts that hold next to nothing.
    fn paths(&mut self, setup: &mut Setup) {
        if self.rng.chance(FAR_SHARE) {
            self.far(setup);
        }
        let rng = &mut self.rng;
        let (small, tells, aside) = (rng.chance(0.2), rng.chance(0.5), rng.chance(0.3));
        for host in &mut setup.hosts {
            if small && rng.chance(0.5) {
                host.spec.receive_buffer_bytes = rng.log_within(2_304..=18_032);
            }
            host.spec.tells_buffer = tells && rng.chance(0.8);
            host.spec.opens_aside = aside && rng.chance(0.8);
        }
    }

    fn far(&mut self, setup: &mut Setup) {
        let rng = &mut self.rng;
        let mut longest = Duration::ZERO;
        let mut lengthen = |link: &mut LinkSpec| {
            link.delay = Duration::from_nanos(rng.log_within(1_000_000..=FAR_LINK_DELAY_NS));
            longest = longest.max(link.delay);
        };
        for host in &mut setup.hosts {
            lengthen(&mut host.spec.up);
            host.spec.down.delay = host.spec.up.delay;
        }
        setup.trunk.iter_mut().for_each(lengthen);
        let patience = longest * PATIENCE_IN_DELAYS;
        for host in &mut setup.hosts {
            host.set(|config| {
                config.failure_timeout += patience;
                config.connect_timeout += patience;
            });
        }
    }

    /// Many channels, or few with large numbers.
    fn channels(&mut self, setup: &mut Setup, ops: &mut [TimedOp]) {
        if !self.rng.chance(0.25) {
            return;
        }
        let max_channels = *self.rng.pick(&[16, 100, 1024, 65_535]);
        setup.hosts.iter_mut().for_each(|host| host.set(|config| config.max_channels = max_channels));
        self.channels = max_channels as u64;
        for timed in ops {
            let (TestOp::SetPriority(_, _, channel, _) | TestOp::ReadFrom(_, _, channel, _)) = &mut timed.op
            else {
                if let TestOp::Send(_, order) = &mut timed.op {
                    order.channel = self.channel();
                }
                continue;
            };
            *channel = self.channel();
        }
    }

    fn channel(&mut self) -> u16 {
        // Low numbers often, so that messages follow each other, and the last.
        match self.rng.below(4) {
            0 => self.rng.below(self.channels) as u16,
            1 => (self.channels - 1) as u16,
            _ => self.rng.below(self.channels.min(16)) as u16,
        }
    }

    fn settings(&mut self, setup: &mut Setup) {
        let alike = self.rng.chance(0.5).then(|| self.rng.fork(0));
        for host in &mut setup.hosts {
            let mut rng = alike.clone().unwrap_or_else(|| self.rng.fork(0));
            host.set(|config| change(&mut rng, &self.kinds, config));
            if self.rng.chance(0.3) {
                // Other settings after a restart.
                let kinds = [(); KINDS].map(|()| self.rng.chance(0.25));
                let mut later = (*host.config).clone();
                change(&mut self.rng, &kinds, &mut later);
                host.config_later = later.into();
            }
        }
    }

    fn groups(&mut self, ops: &mut [TimedOp]) {
        for timed in ops {
            let TestOp::Group(_, GroupOp::Open { options, .. }) = &mut timed.op else { continue };
            if self.rng.chance(0.5) {
                self.group(options);
            }
        }
    }

    fn group(&mut self, options: &mut GroupOptions) {
        let rng = &mut self.rng;
        options.history_bytes = rng.log_within(0..=1 << 22);
        options.fan_out = rng.log_within(0..=200) as u32;
        let after = Duration::from_millis(rng.log_within(10..=5_000));
        options.policy = match options.policy {
            GroupPolicy::Eject { .. } => GroupPolicy::Eject { after },
            GroupPolicy::Lag { .. } => GroupPolicy::Lag { after },
            other => other,
        };
    }

    /// Calls that the other draws do not make, among theirs.
    fn calls(&mut self, ops: &mut Vec<TimedOp>) {
        let share = *self.rng.pick(&[0.0, 0.1, 0.3]);
        let with_groups = ops.iter().any(|timed| matches!(timed.op, TestOp::Group(..)));
        let mut mixed = Vec::new();
        for timed in ops.drain(..) {
            mixed.push(timed);
            while self.rng.chance(share) {
                mixed.push(TimedOp { after: Duration::ZERO, op: self.call(with_groups) });
            }
        }
        *ops = mixed;
    }

    fn call(&mut self, with_groups: bool) -> TestOp {
        let from = self.rng.below(self.hosts);
        let to = HostId(((from + 1 + self.rng.below(self.hosts - 1)) % self.hosts) as u32);
        let from = HostId(from as u32);
        match self.rng.below(if with_groups { 7 } else { 6 }) {
            0 => TestOp::SetWeight(from, to, self.rng.log_within(0..=MAX_WEIGHT as u64 + 1) as u32),
            1 => TestOp::Urge(from, to, Urge::Hurry),
            2 => TestOp::Urge(from, to, Urge::TakeTurns),
            3 => TestOp::Urge(from, to, Urge::Retransmit),
            4 => TestOp::ReadHalf(from, self.rng.chance(0.5), self.rng.within(1..=5) as usize),
            5 => TestOp::SetRate(from, to, any_rate(&mut self.rng)),
            _ => TestOp::Group(
                from,
                GroupOp::Narrow(self.rng.below(8) as u8, self.rng.log_within(1..=MOST_DATAGRAM_BYTES) as u16),
            ),
        }
    }
}

/// Any rate there is, and one that is not.
fn any_rate(rng: &mut Rng) -> Rate {
    let mut any = |least| match rng.below(8) {
        0 => 0,
        1 => MAX_RATE,
        2 => MAX_RATE + 1,
        3 => 1,
        _ => rng.log_within(least..=1 << 30),
    };
    Rate { bytes_per_s: any(1_000), burst_bytes: any(1) }
}

/// A rate that a Config may ask for.
fn request(rng: &mut Rng) -> Rate {
    let some =
        Rate { bytes_per_s: rng.log_within(10_000..=1 << 30), burst_bytes: rng.log_within(1..=200_000) };
    match rng.below(8) {
        0 => Rate::STOPPED,
        1 => Rate { bytes_per_s: 0, ..some },
        2 => Rate::UNLIMITED,
        _ => some,
    }
}

/// Changes the settings of these kinds.
fn change(rng: &mut Rng, kinds: &[bool; KINDS], config: &mut Config) {
    for (kind, on) in kinds.iter().enumerate() {
        let mut rng = rng.fork(kind as u64);
        if *on && rng.chance(0.8) {
            set(&mut rng, kind, config);
        }
    }
}

fn set(rng: &mut Rng, kind: usize, config: &mut Config) {
    let least = LEAST_DATAGRAM_BYTES as u64;
    match kind {
        0 => config.learn_rates = true,
        1 => config.rate_request = request(rng),
        2 => config.first_flight_bytes = rng.log_within(0..=1 << 20),
        3 => config.send_buffer_bytes = rng.log_within(1..=10_000),
        4 => config.max_ack_delay = Duration::from_millis(rng.within(5..=50)),
        5 => config.min_datagram_bytes = rng.within(least..=1472) as u16,
        6 => config.max_datagram_bytes = rng.log_within(least..=MOST_DATAGRAM_BYTES) as u16,
        7 => config.relays = rng.log_within(0..=255) as u8,
        8 => config.offering_channel = Some(rng.below(3) as u16),
        9 => {
            // Who assumes more gives up before it has tried twice.
            let most = config.connect_timeout / 20;
            config.initial_rtt = Duration::from_nanos(rng.log_within(1_000..=most.as_nanos() as u64));
        }
        10 => config.failure_timeout += Duration::from_millis(rng.log_within(1..=60_000)),
        11 => {
            config.congestion = CongestionAlgorithm::RateOnly;
            config.rate_request = Rate {
                bytes_per_s: rng.log_within(100_000..=10_000_000),
                burst_bytes: rng.log_within(1_000..=60_000),
            };
        }
        12 => config.offer_above_bytes = rng.log_within(0..=1_000),
        _ => config.max_message_bytes = rng.log_within(1..=1 << 30),
    }
    config.max_datagram_bytes = config.max_datagram_bytes.max(config.min_datagram_bytes);
}
