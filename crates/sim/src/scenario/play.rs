//! Plays a scenario: applies operations, heals, waits until all has settled, has it judged.

use super::Summary;
use super::generate::Setup;
use super::ops::{Forgery, TestOp, TimedOp};
use crate::net::topology::HostId;
use crate::oracle::{OfferAnswer, Oracle};
use crate::rng::Rng;
use crate::world::{Trace, World};
use core::time::Duration;
use denrei_proto::{CongestionAlgorithm, FlowState};
use denrei_wire::Instant;

/// How often it is looked whether all has settled, on the virtual clock.
const SETTLE_STEP: Duration = Duration::from_millis(250);
/// Looks after which what has not settled never will: 250 s, enough for the largest scenario over
/// the slowest link with every timeout at its longest.
const SETTLE_LOOKS: u32 = 1000;
/// Rest after all has settled: for reports that follow, and lost packets that are sent again. Where who is gone is missed
/// later, it is longer.
const REST: Duration = Duration::from_secs(5);
/// Time over which an idle network is watched for timers that spin and datagrams nobody needs.
const WATCH: Duration = Duration::from_secs(2);
/// Datagrams and timeouts per host and per peer in [`WATCH`]: keepalives at their fastest are 6 a
/// second and direction, with acknowledgements and the last of a path MTU search.
const IDLE_BUDGET: u64 = 120;
/// Happenings in one scenario. The busiest need some 100,000.
const HAPPENINGS_LIMIT: u64 = 3_000_000;
/// Loss up to which a session has to survive: a probe every 500 ms at the latest makes a failure
/// timeout of 1 s without an answer as improbable as a wrong checksum.
const HARMLESS_LOSS: f64 = 0.02;

pub(super) struct Play<'a> {
    setup: &'a Setup,
    world: World,
    oracle: Oracle,
    /// The longest that was waited for all to settle, beyond the time that it takes to miss the dead.
    settling: Duration,
    /// In a healed network who is gone is missed within this time.
    patience: Duration,
    /// Some send nothing, or little, until they are told that they may.
    modest: bool,
}

impl<'a> Play<'a> {
    pub fn new(setup: &'a Setup, trace: Option<Trace>) -> Self {
        let mut world = World::new(setup.world_seed);
        world.trace = trace;
        world.happenings_limit = HAPPENINGS_LIMIT;
        world.capture_some();
        let mut oracle = Oracle::default();
        let root = world.add_switch(None);
        let other = setup.trunk.map_or(root, |trunk| world.add_switch(Some((root, trunk))));
        for (number, host) in setup.hosts.iter().enumerate() {
            let id = world.add_host([root, other][number % 2], host.spec.clone());
            let incarnation = world.start(id, host.config.clone());
            oracle.begin_life(id, incarnation, host.config.clone());
            world.set_deaf(id, host.deaf);
            if host.deaf {
                oracle.note_deaf(id);
            }
        }
        let configs = || setup.hosts.iter().flat_map(|host| [&host.config, &host.config_later]);
        let modest = configs().any(|config| !config.rate_request.is_unlimited());
        let patience = configs().map(|config| config.failure_timeout).max().unwrap_or_default();
        if configs().any(|config| config.congestion == CongestionAlgorithm::RateOnly) {
            // Where a rate is lifted, nothing keeps them from filling queues that others wait behind.
            oracle.note_hardship();
        }
        if configs().any(|config| config.rate_request.bytes_per_s == 0) {
            // They say nothing to groups either before that.
            oracle.note_hindered();
        }
        Self { setup, world, oracle, settling: Duration::ZERO, patience, modest }
    }

    pub fn run(mut self, ops: &[TimedOp]) -> Result<Summary, String> {
        for TimedOp { after, op } in ops {
            self.pass(*after)?;
            if let Some(trace) = self.world.trace {
                trace(format_args!("{:?} == {op:?}", self.world.now()));
            }
            self.apply(op);
            self.check()?;
        }
        self.heal(ops)?;
        self.settle()?;
        if self.oracle.has_groups() {
            self.end_groups()?;
        }
        self.pass(self.rest())?;
        self.watch_idle()?;
        for host in self.hosts() {
            for endpoint in self.world.endpoints(host) {
                self.oracle.judge(endpoint);
                self.oracle.judge_rest_of_groups(endpoint);
            }
        }
        self.check()?;
        Ok(Summary {
            digest: crate::rng::mix(self.world.digest()) ^ self.oracle.digest(),
            totals: self.oracle.totals(),
            counts: *self.world.counts(),
            happenings: self.world.happenings(),
            settling: self.settling,
            virtual_time: self.world.now().saturating_since(Instant::ZERO),
        })
    }

    fn hosts(&self) -> impl Iterator<Item = HostId> + use<> {
        (0..self.setup.hosts.len() as u32).map(HostId)
    }

    fn rest(&self) -> Duration {
        REST.max(self.patience + Duration::from_secs(1))
    }

    fn pass(&mut self, duration: Duration) -> Result<(), String> {
        self.world.run_for(duration, &mut self.oracle).map_err(|stuck| stuck.to_string())?;
        self.check()
    }

    fn check(&self) -> Result<(), String> {
        match self.oracle.failure() {
            Some(what) => Err(format!("at {:?}: {what}", self.world.now())),
            None => Ok(()),
        }
    }

    fn apply(&mut self, op: &TestOp) {
        let Self { world, oracle, .. } = self;
        match *op {
            TestOp::Connect(host, to) => {
                world.touch_at(host, to, oracle, |oracle, now, endpoint| {
                    oracle.connect(now, host, endpoint, to)
                });
            }
            TestOp::Send(host, order) => {
                world.touch_at(host, order.to, oracle, |oracle, now, endpoint| {
                    oracle.send(now, host, endpoint, order)
                });
            }
            TestOp::SetPriority(host, to, channel, priority) => {
                world.touch_at(host, to, oracle, |oracle, _, endpoint| {
                    oracle.set_priority(host, endpoint, to, channel, priority);
                });
            }
            TestOp::SetRate(host, from, rate) => {
                world.touch_at(host, from, oracle, |oracle, now, endpoint| {
                    oracle.set_rate(now, host, endpoint, from, rate);
                });
            }
            TestOp::SetReading(host, reading) => {
                world.touch_each(host, oracle, |oracle, _, _| oracle.set_reading(host, reading));
            }
            TestOp::Read(host, count) => {
                world.touch_each(host, oracle, |oracle, now, endpoint| {
                    oracle.read(now, host, endpoint, None, count)
                });
            }
            TestOp::ReadFrom(host, from, channel, count) => {
                world.touch_at(host, from, oracle, |oracle, now, endpoint| {
                    oracle.read(now, host, endpoint, Some((from, channel)), count);
                });
            }
            TestOp::Close(host, to, how) => {
                world.touch_at(host, to, oracle, |oracle, now, endpoint| {
                    oracle.close(now, host, endpoint, to, how)
                });
            }
            TestOp::RequestStatus(host, to) => {
                world.touch_at(host, to, oracle, |oracle, now, endpoint| {
                    oracle.request_status(now, host, endpoint, to)
                });
            }
            TestOp::SetOffers(host, answer) => {
                world.touch_each(host, oracle, |oracle, now, endpoint| {
                    oracle.set_offers(now, host, endpoint, answer)
                });
            }
            TestOp::Group(host, ref op) => {
                world.gather(host, oracle);
                world.touch(host, oracle, |oracle, now, endpoint| {
                    oracle.act_on_groups(now, host, endpoint, op);
                });
            }
            TestOp::SetWeight(host, from, weight) => {
                world.touch_at(host, from, oracle, |oracle, now, endpoint| {
                    oracle.set_weight(now, host, endpoint, from, weight);
                });
            }
            TestOp::Urge(host, to, how) => {
                world.touch_at(host, to, oracle, |oracle, now, endpoint| {
                    oracle.urge(now, host, endpoint, to, how)
                });
            }
            TestOp::ShareHost(host, limit, ref others, overflows) => {
                world.touch_each(host, oracle, |oracle, now, endpoint| {
                    oracle.note_hindered();
                    endpoint.share_host(now, limit, others, overflows);
                });
            }
            TestOp::ReadHalf(host, odd, count) => {
                world.touch_each(host, oracle, |oracle, now, endpoint| {
                    oracle.read_half(now, host, endpoint, odd, count);
                });
            }
            _ => self.inflict(op),
        }
    }

    /// What processes and the network suffer.
    fn inflict(&mut self, op: &TestOp) {
        let Self { world, oracle, setup, .. } = self;
        match op {
            TestOp::Crash(host) if world.endpoint(*host).is_some() => {
                oracle.note_hardship();
                oracle.end_life(*host, world.now());
                world.crash(*host);
            }
            TestOp::Restart(host) if world.endpoint(*host).is_none() => {
                let config = setup.hosts[host.0 as usize].config_later.clone();
                let incarnation = world.start(*host, config.clone());
                world.count_restart();
                oracle.begin_life(*host, incarnation, config);
            }
            TestOp::Pause(host) => {
                oracle.note_hardship();
                world.pause(*host);
            }
            TestOp::Resume(host) => world.resume(*host, oracle),
            TestOp::Gather(host) => world.gather(*host, oracle),
            TestOp::Cut(a, b) => {
                oracle.note_hardship();
                world.cut(*a, *b);
            }
            TestOp::SetFaults(host, faults) => {
                let harmless = faults.loss + faults.corrupt <= HARMLESS_LOSS
                    && faults.burst.is_none()
                    && faults.black_hole_above.is_none()
                    && !faults.down;
                if !harmless {
                    oracle.note_hardship();
                }
                world.set_faults(*host, **faults);
            }
            TestOp::SetDeaf(host, deaf) => {
                oracle.note_deaf(*host);
                world.set_deaf(*host, *deaf || setup.hosts[host.0 as usize].deaf);
            }
            TestOp::Heal => world.heal(),
            TestOp::Forge(source, to, forgery) => {
                if let Some(bytes) = forged(world, *forgery) {
                    world.inject(source.addr(), *to, &bytes, Duration::ZERO);
                }
            }
            TestOp::Replay(index, delay) => {
                // A repeated FIRST may replace one that is not proven yet (protocol §7.2).
                oracle.note_hardship();
                world.replay(*index, *delay);
            }
            _ => {}
        }
    }

    /// Everything works again, and everyone reads.
    fn heal(&mut self, ops: &[TimedOp]) -> Result<(), String> {
        let shared = ops.iter().any(|timed| matches!(timed.op, TestOp::ShareHost(..)));
        self.world.heal();
        self.oracle.note_healed(self.world.now());
        for host in self.hosts() {
            self.world.set_deaf(host, self.setup.hosts[host.0 as usize].deaf);
            self.world.resume(host, &mut self.oracle);
            self.world.touch_each(host, &mut self.oracle, |oracle, now, endpoint| {
                oracle.resume_taking(endpoint);
                oracle.set_offers(now, host, endpoint, OfferAnswer::Accept);
                oracle.set_reading(host, true);
                oracle.lift_rates(now, host, endpoint);
                if shared {
                    endpoint.share_host(now, None, &[], 0);
                }
            });
        }
        self.check()
    }

    /// Openers close their groups, members learn of it, and all is forgotten.
    fn end_groups(&mut self) -> Result<(), String> {
        self.pass(self.rest())?;
        self.watch_idle()?;
        for host in self.hosts() {
            self.world
                .touch(host, &mut self.oracle, |oracle, now, endpoint| oracle.close_groups(now, endpoint));
        }
        self.settle()?;
        self.pass(self.rest())?;
        self.oracle.judge_groups();
        for host in self.hosts() {
            self.world.touch(host, &mut self.oracle, |oracle, now, endpoint| {
                oracle.forget_groups(now, endpoint);
            });
        }
        self.settle()
    }

    /// Waits until nothing is queued or unread anywhere, twice in a row.
    fn settle(&mut self) -> Result<(), String> {
        let mut settled = 0;
        for look in 0..SETTLE_LOOKS {
            if self.modest {
                self.lift_rates();
            }
            self.pass(SETTLE_STEP)?;
            let all = self.unsettled().is_empty() && self.unsettled_groups().is_empty();
            settled = if all { settled + 1 } else { 0 };
            if settled == 1 {
                let dead = self.hosts().any(|host| self.world.endpoint(host).is_none());
                let missed = if dead { self.patience } else { Duration::ZERO };
                self.settling = self.settling.max((SETTLE_STEP * (look + 1)).saturating_sub(missed));
            }
            if settled == 2 {
                return Ok(());
            }
        }
        let groups = self.unsettled_groups().join("\n");
        Err(format!("does not converge in a healed network: {:#?}\n{groups}", self.unsettled()))
    }

    /// Sessions that began since are let go on, too.
    fn lift_rates(&mut self) {
        for host in self.hosts() {
            self.world.touch_each(host, &mut self.oracle, |oracle, now, endpoint| {
                oracle.lift_rates(now, host, endpoint);
            });
        }
    }

    fn unsettled_groups(&self) -> Vec<String> {
        let running = self.hosts().flat_map(|host| self.world.endpoints(host));
        running.flat_map(|endpoint| self.oracle.unsettled_groups(endpoint)).collect()
    }

    fn unsettled(&self) -> Vec<(HostId, FlowState)> {
        let running =
            self.hosts().flat_map(|host| self.world.endpoints(host).map(move |endpoint| (host, endpoint)));
        running
            .flat_map(|(host, endpoint)| {
                self.oracle.unsettled(endpoint).into_iter().map(move |flow| (host, flow))
            })
            .collect()
    }

    fn watch_idle(&mut self) -> Result<(), String> {
        let timeouts = |world: &World, hosts: usize| {
            (0..hosts as u32).map(|host| world.timeouts_fired(HostId(host))).sum::<u64>()
        };
        let hosts = self.setup.hosts.len();
        let before = (self.world.counts().sent, timeouts(&self.world, hosts));
        self.pass(WATCH)?;
        let sent = self.world.counts().sent - before.0;
        let fired = timeouts(&self.world, hosts) - before.1;
        let peers: usize =
            self.hosts().flat_map(|host| self.world.endpoints(host)).map(|e| e.peers().count()).sum();
        let budget = IDLE_BUDGET * (peers + hosts) as u64;
        if sent > budget || fired > budget {
            return Err(format!(
                "an idle network does not rest: {sent} datagrams, {fired} timeouts in {WATCH:?} for {peers} peers"
            ));
        }
        Ok(())
    }
}

fn forged(world: &World, forgery: Forgery) -> Option<Vec<u8>> {
    Some(match forgery {
        Forgery::Garbage { bytes, seed } => {
            let mut rng = Rng::new(seed);
            let mut garbage: Vec<u8> = (0..bytes).map(|_| rng.next_u64() as u8).collect();
            // A packet kind and the version, so that it is not dropped at the first glance.
            for (at, octet) in
                [0xd1 + rng.below(5) as u8, denrei_wire::packet::VERSION, 0, 0].into_iter().enumerate()
            {
                if let Some(byte) = garbage.get_mut(at) {
                    *byte = octet;
                }
            }
            garbage
        }
        Forgery::Truncated { index, bytes } => {
            let original = &world.captured(index)?.bytes;
            original[..original.len().saturating_sub(1).min(bytes as usize)].to_vec()
        }
        Forgery::Flipped { index, bit } => {
            let mut copy = world.captured(index)?.bytes.clone();
            let bit = bit as usize % (copy.len() * 8).max(1);
            *copy.get_mut(bit / 8)? ^= 1 << (bit % 8);
            copy
        }
    })
}
