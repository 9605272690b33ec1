//! Hosts at one switch, with the oracle as their application.

use core::time::Duration;
use denrei_proto::{Completion, Config, FlowState};
use denrei_sim::oracle::Oracle;
use denrei_sim::oracle::calls::Order;
use denrei_sim::{HostId, HostSpec, World};
use std::sync::Arc;

pub const A: HostId = HostId(0);
pub const B: HostId = HostId(1);
pub const C: HostId = HostId(2);

pub struct Rig {
    pub world: World,
    pub oracle: Oracle,
    pub config: Arc<Config>,
}

/// Short times, so that tests of failures are short too.
pub fn config() -> Config {
    Config {
        failure_timeout: Duration::from_secs(2),
        keepalive: Some(Duration::from_millis(500)),
        connect_timeout: Duration::from_secs(2),
        ..Config::default()
    }
}

impl Rig {
    pub fn new(hosts: u32, spec: &HostSpec, config: Config) -> Self {
        let mut rig = Self { world: World::new(7), oracle: Oracle::default(), config: Arc::new(config) };
        rig.world.happenings_limit = 20_000_000;
        let switch = rig.world.add_switch(None);
        for _ in 0..hosts {
            let host = rig.world.add_host(switch, spec.clone());
            rig.start(host);
        }
        rig
    }

    pub fn start(&mut self, host: HostId) {
        let incarnation = self.world.start(host, self.config.clone());
        self.oracle.begin_life(host, incarnation, self.config.clone());
    }

    pub fn crash(&mut self, host: HostId) {
        self.oracle.note_hardship();
        self.oracle.end_life(host, self.world.now());
        self.world.crash(host);
    }

    /// Whether the message was taken.
    pub fn send(&mut self, from: HostId, to: HostId, channel: u16, bytes: usize) -> bool {
        let order = Order { to, channel, bytes, completion: Completion::Acknowledged, lifetime: None };
        let sent = self
            .world
            .touch(from, &mut self.oracle, |oracle, now, endpoint| oracle.send(now, from, endpoint, order));
        self.check();
        sent.expect("the host runs")
    }

    pub fn set_reading(&mut self, host: HostId, reading: bool) {
        self.world.touch(host, &mut self.oracle, |oracle, _, _| oracle.set_reading(host, reading));
        self.check();
    }

    pub fn run_ms(&mut self, ms: u64) {
        self.world.run_for(Duration::from_millis(ms), &mut self.oracle).unwrap();
        self.check();
    }

    /// Lets time pass until `holds`, at most `ms`.
    pub fn run_until(&mut self, ms: u64, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..ms {
            if holds(self) {
                return;
            }
            self.run_ms(1);
        }
        panic!(
            "{what}: not within {ms} ms; flows {:#?}",
            self.world.endpoint(A).map(|endpoint| endpoint.peers().count())
        );
    }

    pub fn received(&self) -> u64 {
        self.oracle.totals().received
    }

    pub fn flow(&self, host: HostId, peer: HostId) -> Option<FlowState> {
        let endpoint = self.world.endpoint(host)?;
        endpoint.flow(endpoint.peer_at(peer.addr())?)
    }

    /// All that was sent has arrived or was reported.
    pub fn judge(&mut self) {
        self.run_ms(3_000);
        for host in (0..self.world.topology().host_count() as u32).map(HostId) {
            if let Some(endpoint) = self.world.endpoint(host) {
                self.oracle.judge(endpoint);
            }
        }
        self.check();
    }

    #[track_caller]
    pub fn check(&self) {
        if let Some(failure) = self.oracle.failure() {
            panic!("at {:?}: {failure}", self.world.now());
        }
    }
}
