//! Draws a scenario from a seed: hosts, links, settings, operations.
//!
//! Swarm testing (Groce et al. 2012): each seed leaves out a random part of the kinds of
//! operations and faults, because what always happens hides what happens without it.

mod groups;
mod odd;

pub use groups::generate_groups;

use super::ops::{Forgery, TestOp, TimedOp};
use crate::net::faults::{Burst, Faults};
use crate::net::link::LinkSpec;
use crate::net::topology::HostId;
use crate::oracle::OfferAnswer;
use crate::oracle::calls::{Closing, Order};
use crate::rng::Rng;
use crate::world::HostSpec;
use core::fmt;
use core::time::Duration;
use denrei_proto::seal::{ClusterKey, Identity};
use denrei_proto::{Completion, Config, CongestionAlgorithm, MESSAGE_COST_BYTES, OfferPolicy, Rate};
use std::sync::Arc;

/// Bytes of messages that one scenario sends at most: bounds the time a seed takes.
const BYTES_BUDGET: u64 = 3 << 20;
/// Share of seeds whose hosts have a cluster key.
const SEALED_SHARE: f64 = 0.5;
/// Smallest datagram that every simulated path carries, bytes of UDP payload.
const LEAST_DATAGRAM_BYTES: u16 = 576;
/// What sessions usually begin with.
const BASE_DATAGRAM_BYTES: u16 = 1200;

/// Channels of every endpoint. The same everywhere: a limit of the other side's that is lower than
/// one's own is not known before its PARAMETERS.
const MAX_CHANNELS: u16 = 16;

/// A host of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSetup {
    /// Links and process.
    pub spec: HostSpec,
    /// Settings of its endpoint.
    pub config: Arc<Config>,
    /// Settings after a restart.
    pub config_later: Arc<Config>,
    /// Multicast does not get to it.
    pub deaf: bool,
}

impl HostSetup {
    fn new(spec: HostSpec, config: Config) -> Self {
        let config = Arc::new(config);
        Self { spec, config_later: config.clone(), config, deaf: false }
    }

    /// Changes its settings, those after a restart included.
    fn set(&mut self, mut change: impl FnMut(&mut Config)) {
        let alike = Arc::ptr_eq(&self.config, &self.config_later);
        change(Arc::make_mut(&mut self.config));
        if alike {
            self.config_later = self.config.clone();
        } else {
            change(Arc::make_mut(&mut self.config_later));
        }
    }
}

/// The world of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// Seed of the world: faults, incarnations.
    pub world_seed: u64,
    /// The hosts.
    pub hosts: Vec<HostSetup>,
    /// The link between two switches with every other host at each, if there are two.
    pub trunk: Option<LinkSpec>,
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(trunk) = &self.trunk {
            writeln!(f, "trunk: {trunk:?}")?;
        }
        for (number, host) in self.hosts.iter().enumerate() {
            let deaf = if host.deaf { " deaf" } else { "" };
            writeln!(f, "host {number}:{deaf} {:?}\n        {:?}", host.spec, host.config)?;
            if host.config_later != host.config {
                writeln!(f, "        restarted: {:?}", host.config_later)?;
            }
        }
        Ok(())
    }
}

/// The scenario of `seed`.
pub fn generate(seed: u64) -> (Setup, Vec<TimedOp>) {
    let mut rng = Rng::new(seed);
    let mut setup = draw_setup(&mut rng.fork(1), rng.next_u64());
    // From a generator of its own, so that a seed does the same operations sealed or plain.
    let mut secrets = Rng::new(seed ^ 0x5ea1_5ea1_5ea1_5ea1);
    if secrets.chance(SEALED_SHARE) {
        draw_secrets(&mut secrets, &mut setup.hosts);
    }
    let mut draw = Draw::new(rng.fork(2), setup.hosts.len() as u64);
    let count = draw.rng.within(10..=90);
    let mut ops = (0..count).map(|_| draw.timed_op()).collect();
    odd::make_odd(seed, &mut setup, &mut ops);
    (setup, ops)
}

fn draw_setup(rng: &mut Rng, world_seed: u64) -> Setup {
    let hosts = rng.within(2..=5);
    draw_hosts(rng, world_seed, hosts)
}

fn draw_hosts(rng: &mut Rng, world_seed: u64, hosts: u64) -> Setup {
    let alike = rng.chance(0.5).then(|| draw_config(rng));
    let link = draw_link(rng);
    let hosts = (0..hosts).map(|_| {
        let link = if rng.chance(0.7) { link } else { draw_link(rng) };
        let config = alike.clone().unwrap_or_else(|| draw_config(rng));
        HostSetup::new(draw_host(rng, link), config)
    });
    let hosts = hosts.collect();
    let trunk = rng.chance(0.3).then(|| draw_link(rng));
    Setup { world_seed, hosts, trunk }
}

/// One cluster key for all, sometimes identities, and keys that wear out soon.
fn draw_secrets(rng: &mut Rng, hosts: &mut [HostSetup]) {
    let mut secret = || core::array::from_fn(|_| rng.next_u64() as u8);
    let cluster_key = Some(ClusterKey::from_bytes(secret()));
    let identities: Vec<_> = hosts.iter().map(|_| Identity::from_bytes(secret())).collect();
    let allowed: Vec<_> = identities.iter().map(Identity::public).collect();
    let with_identities = rng.chance(0.3);
    let rekey_after_packets = rng.log_within(16..=4096);
    for (host, identity) in hosts.iter_mut().zip(identities) {
        host.set(|config| {
            config.cluster_key.clone_from(&cluster_key);
            config.rekey_after_packets = rekey_after_packets;
            if with_identities {
                config.identity = Some(identity.clone());
                config.allowed.clone_from(&allowed);
            }
        });
    }
}

/// What the draw of who receives in place is for.
const LANDING: u64 = 0x1a4d;

/// A queue takes no longer than this to drain: a peer behind a longer one would rightly count as
/// lost, whose failure timeout may be as short as a second.
const MAX_DRAIN: Duration = Duration::from_millis(300);

fn draw_link(rng: &mut Rng) -> LinkSpec {
    let rate_bits_per_s = *rng.pick(&[10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000]);
    let max_queue_bytes = rate_bits_per_s / 8 * MAX_DRAIN.as_millis() as u64 / 1000;
    LinkSpec {
        rate_bits_per_s,
        delay: Duration::from_nanos(rng.log_within(500..=10_000_000)),
        queue_bytes: rng.log_within(100_000..=4_000_000).min(max_queue_bytes),
        ecn_above_bytes: rng.chance(0.5).then(|| rng.log_within(10_000..=200_000)),
        max_datagram_bytes: *rng.pick(&[LEAST_DATAGRAM_BYTES, BASE_DATAGRAM_BYTES, 1472, 1472, 8972, 65_507]),
    }
}

fn draw_host(rng: &mut Rng, link: LinkSpec) -> HostSpec {
    HostSpec {
        // Drawn aside: it makes no difference to what is sent.
        lands: rng.clone().fork(LANDING).chance(0.5),
        // 18,032 bytes: the receive buffer of U8.
        receive_buffer_bytes: if rng.chance(0.2) { 18_032 } else { rng.log_within(100_000..=4_000_000) },
        service_time: Duration::from_nanos(if rng.chance(0.5) { 0 } else { rng.log_within(100..=20_000) }),
        wake_delay: Duration::from_nanos(if rng.chance(0.5) { 0 } else { rng.log_within(100..=100_000) }),
        batch: rng.log_within(1..=64) as usize,
        max_segments: rng.log_within(1..=64) as usize,
        ..HostSpec::new(link)
    }
}

fn draw_config(rng: &mut Rng) -> Config {
    let channel_credit_bytes = rng.log_within(64 << 10..=1 << 20);
    let failure_timeout = Duration::from_millis(rng.within(1000..=4000));
    let keepalive = rng.chance(0.7).then(|| failure_timeout / rng.within(3..=8) as u32);
    // Without keepalive a dead peer keeps the memory that it was promised.
    let memory_share = rng.log_within(if keepalive.is_some() { 1..=64 } else { 64..=64 });
    let most_unasked = channel_credit_bytes - MESSAGE_COST_BYTES;
    Config {
        channel_credit_bytes,
        receive_memory_bytes: channel_credit_bytes * memory_share,
        max_message_bytes: if rng.chance(0.1) { 100_000 } else { 1 << 30 },
        offer_above_bytes: rng.log_within(1_000..=1 << 20).min(most_unasked),
        offers: *rng.pick(&[OfferPolicy::Automatic, OfferPolicy::Ask]),
        send_buffer_bytes: rng.log_within(10_000..=8 << 20),
        max_channels: MAX_CHANNELS,
        failure_timeout,
        keepalive,
        connect_timeout: Duration::from_millis(rng.within(1000..=4000)),
        max_ack_delay: Duration::from_micros(rng.within(0..=5_000)),
        initial_rtt: Duration::from_micros(rng.log_within(100..=50_000)),
        max_datagram_bytes: *rng.pick(&[BASE_DATAGRAM_BYTES, 1472, 8972, 65_507]),
        min_datagram_bytes: *rng.pick(&[LEAST_DATAGRAM_BYTES, BASE_DATAGRAM_BYTES]),
        congestion: *rng.pick(&[CongestionAlgorithm::Delay, CongestionAlgorithm::Cubic]),
        ecn: rng.chance(0.7),
        ..Config::default()
    }
}

/// Kinds of operations with their weights, in the order of [`Draw::op`].
const WEIGHTS: [u64; 19] = [2, 40, 2, 4, 4, 3, 3, 3, 3, 3, 5, 2, 4, 2, 5, 2, 4, 4, 3];
/// The kind that no seed leaves out: sending.
const SEND: usize = 1;

struct Draw {
    rng: Rng,
    hosts: u64,
    weights: [u64; 19],
    faults_enabled: [bool; 7],
    largest_message: u64,
    budget: u64,
    /// Some messages have a deadline.
    mortals: bool,
}

impl Draw {
    fn new(mut rng: Rng, hosts: u64) -> Self {
        let mut weights = WEIGHTS;
        for (kind, weight) in weights.iter_mut().enumerate() {
            if kind != SEND && rng.chance(0.5) {
                *weight = 0;
            }
        }
        let faults_enabled = [(); 7].map(|()| rng.chance(0.4));
        let largest_message = *rng.pick(&[200, 2_000, 60_000, 300_000, 2 << 20]);
        let mortals = rng.chance(0.4);
        Self { rng, hosts, weights, faults_enabled, largest_message, budget: BYTES_BUDGET, mortals }
    }

    fn timed_op(&mut self) -> TimedOp {
        let longest_ns = *self.rng.pick(&[0, 0, 100_000, 10_000_000, 10_000_000, 10_000_000, 300_000_000]);
        let longest_ns = if self.rng.chance(0.03) { 5_000_000_000 } else { longest_ns };
        TimedOp { after: Duration::from_nanos(self.rng.within(0..=longest_ns)), op: self.op() }
    }

    fn host(&mut self) -> HostId {
        HostId(self.rng.below(self.hosts) as u32)
    }

    fn pair(&mut self) -> (HostId, HostId) {
        let from = self.rng.below(self.hosts);
        let to = (from + 1 + self.rng.below(self.hosts - 1)) % self.hosts;
        (HostId(from as u32), HostId(to as u32))
    }

    fn channel(&mut self) -> u16 {
        // Now and then one beyond the limit.
        if self.rng.chance(0.02) { MAX_CHANNELS } else { self.rng.below(3) as u16 }
    }

    fn op(&mut self) -> TestOp {
        let kind = self.rng.weighted(&self.weights);
        let (from, to) = self.pair();
        match kind.unwrap_or(SEND) {
            0 => TestOp::Connect(from, to),
            1 => TestOp::Send(from, self.order(to)),
            2 => TestOp::SetPriority(from, to, self.channel(), self.rng.below(9) as u8),
            3 => TestOp::SetReading(from, self.rng.chance(0.5)),
            4 => TestOp::Read(from, self.rng.within(1..=5) as usize),
            5 => TestOp::ReadFrom(from, to, self.channel(), self.rng.within(1..=5) as usize),
            6 => TestOp::Close(from, to, self.closing()),
            7 => TestOp::RequestStatus(from, to),
            8 => TestOp::SetOffers(
                from,
                *self.rng.pick(&[OfferAnswer::Accept, OfferAnswer::Refuse, OfferAnswer::Wait]),
            ),
            9 => TestOp::Crash(from),
            10 => TestOp::Restart(from),
            11 => TestOp::Pause(from),
            12 => TestOp::Resume(from),
            13 => TestOp::Cut(from, to),
            14 => TestOp::SetFaults(self.host(), Box::new(self.faults())),
            15 => TestOp::Heal,
            16 => TestOp::Forge(from, to, self.forgery()),
            18 => TestOp::SetRate(from, to, self.rate()),
            _ => TestOp::Replay(
                self.rng.below(1 << 20) as usize,
                Duration::from_micros(self.rng.log_within(1..=1_000_000)),
            ),
        }
    }

    fn order(&mut self, to: HostId) -> Order {
        let largest = *self.rng.pick(&[20, 200, 200, 2_000, 30_000, self.largest_message]);
        let largest = largest.min(self.largest_message).min(self.budget);
        let bytes = self.rng.within(0..=largest);
        self.budget -= bytes;
        let completion = *self.rng.pick(&[Completion::None, Completion::Acknowledged, Completion::Delivered]);
        let mortal = self.mortals && self.rng.chance(0.3);
        let lifetime = mortal.then(|| Duration::from_micros(self.rng.log_within(1..=1_000_000)));
        Order { to, channel: self.channel(), bytes: bytes as usize, completion, lifetime }
    }

    fn rate(&mut self) -> Rate {
        match self.rng.below(4) {
            0 => Rate::STOPPED,
            1 => Rate::UNLIMITED,
            _ => Rate {
                bytes_per_s: self.rng.log_within(10_000..=1_000_000_000),
                burst_bytes: self.rng.log_within(1..=200_000),
            },
        }
    }

    fn closing(&mut self) -> Closing {
        match self.rng.below(4) {
            0 => Closing::Write,
            1 => Closing::Read,
            2 => Closing::Orderly,
            _ => Closing::Abort(self.rng.below(1 << 16) as u16),
        }
    }

    fn faults(&mut self) -> Faults {
        let Self { rng, faults_enabled, .. } = self;
        let mut on =
            faults_enabled.iter().map(|&enabled| enabled && rng.chance(0.6)).collect::<Vec<_>>().into_iter();
        let mut on = || on.next().unwrap_or(false);
        let share = |rng: &mut Rng, most: u64| rng.log_within(1..=most) as f64 / 1000.0;
        Faults {
            loss: if on() { share(rng, 300) } else { 0.0 },
            burst: on().then(|| Burst {
                enter: share(rng, 50),
                leave: 1.0 / rng.within(2..=20) as f64,
                loss: if rng.chance(0.5) { 1.0 } else { 0.5 },
            }),
            duplicate: if on() { share(rng, 300) } else { 0.0 },
            reorder: if on() { share(rng, 300) } else { 0.0 },
            reorder_delay: Duration::from_micros(rng.log_within(1..=20_000)),
            corrupt: if on() { share(rng, 100) } else { 0.0 },
            jitter: Duration::from_micros(if on() { rng.log_within(1..=5_000) } else { 0 }),
            black_hole_above: on().then(|| rng.within(LEAST_DATAGRAM_BYTES as u64..=9_000) as u16),
            down: rng.chance(0.05),
        }
    }

    fn forgery(&mut self) -> Forgery {
        let index = self.rng.below(1 << 20) as usize;
        match self.rng.below(3) {
            0 => Forgery::Garbage { bytes: self.rng.log_within(1..=2000) as u16, seed: self.rng.next_u64() },
            1 => Forgery::Truncated { index, bytes: self.rng.log_within(1..=1400) as u16 },
            _ => Forgery::Flipped { index, bit: self.rng.below(12_000) as u32 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_half_of_the_seeds_are_sealed_and_all_settings_are_valid() {
        let setups = (0..400).map(|seed| generate(seed).0);
        let sealed = setups.filter(|setup| {
            for config in setup.hosts.iter().flat_map(|host| [&host.config, &host.config_later]) {
                config.validate().unwrap();
            }
            setup.hosts.iter().all(|host| host.config.cluster_key.is_some())
        });
        assert!((150..250).contains(&sealed.count()));
    }
}
