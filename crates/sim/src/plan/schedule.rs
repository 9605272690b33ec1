//! When the faults of an experiment begin and end, and whether all comes to rest after them.
//!
//! Inputs → outputs: the timed faults of a [`Cell`] and a [`World`] → links, partitions and processes as they
//! have to be at each time; at the end everything works again, and nothing may be left over.

use super::faults::{FaultKind, TimedFault};
use super::{Cell, Workload};
use crate::net::topology::HostId;
use crate::world::{Application, Stuck, World};
use core::time::Duration;
use denrei_proto::{Config, FlowState, Phase};
use denrei_wire::Instant;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How often it is looked whether all has come to rest.
const REST_STEP: Duration = Duration::from_millis(250);
/// Looks after which what has not come to rest never will: 250 s, more than two of the longest failure timeouts.
const REST_LOOKS: u32 = 1000;

/// An application whose processes may be killed.
pub(super) trait Experiment: Application {
    /// The process of a host was killed, with all that it had to send.
    fn crashed(&mut self, host: HostId);

    /// The faults have changed: each host may look what it has to do now.
    fn turned(&mut self, world: &mut World);

    /// Nothing new is sent from now on.
    fn stop(&mut self);

    /// Whether all that was sent has arrived, or was told as lost.
    fn is_at_rest(&self) -> bool;
}

/// The timed faults of a run.
pub(super) struct Schedule<'a> {
    cell: &'a Cell,
    config: Arc<Config>,
    began: Instant,
    /// When a fault begins or ends, latest first.
    turns: Vec<Instant>,
    /// Hosts whose processes are killed or stopped at some time.
    victims: BTreeSet<u32>,
}

impl<'a> Schedule<'a> {
    /// Of an experiment whose time begins now.
    pub fn new(cell: &'a Cell, config: Arc<Config>, began: Instant) -> Self {
        let times = cell.faults.iter().flat_map(|fault| [fault.from_s, fault.to_s]);
        let mut turns: Vec<_> = times.map(|time_s| began + Duration::from_secs_f64(time_s)).collect();
        turns.sort_unstable_by_key(|&at| core::cmp::Reverse(at));
        turns.dedup();
        let of_processes =
            cell.faults.iter().filter(|fault| matches!(fault.kind, FaultKind::Crash | FaultKind::Pause));
        let victims = of_processes.flat_map(|fault| fault.hosts.iter().copied()).collect();
        Self { cell, config, began, turns, victims }
    }

    /// Whether the last fault has ended.
    pub fn is_over(&self) -> bool {
        self.turns.is_empty()
    }

    /// Lets `duration` pass, with the faults that begin and end in it.
    pub fn run_for(
        &mut self,
        duration: Duration,
        world: &mut World,
        app: &mut impl Experiment,
    ) -> Result<(), Stuck> {
        let until = world.now() + duration;
        while let Some(at) = self.turns.pop_if(|at| *at <= until) {
            world.run_until(at, app)?;
            self.turn(world, app);
        }
        world.run_until(until, app)
    }

    /// Makes everything as the faults want it that hold now.
    fn turn(&self, world: &mut World, app: &mut impl Experiment) {
        let time = world.now().saturating_since(self.began);
        let holds = |fault: &&TimedFault| {
            let [from, to] = [fault.from_s, fault.to_s].map(Duration::from_secs_f64);
            (from..to).contains(&time)
        };
        let holding: Vec<_> = self.cell.faults.iter().filter(holds).collect();
        lay(self.cell, &holding, world);
        let suffers = |kind, host| holding.iter().any(|f| f.kind == kind && f.hosts.contains(&host));
        for &host in &self.victims {
            let (dead, stopped) = (suffers(FaultKind::Crash, host), suffers(FaultKind::Pause, host));
            self.process(HostId(host), dead, stopped, world, app);
        }
        app.turned(world);
    }

    fn process(&self, host: HostId, dead: bool, stopped: bool, world: &mut World, app: &mut impl Experiment) {
        match (dead, world.endpoint(host).is_some()) {
            (true, true) => {
                world.crash(host);
                app.crashed(host);
            }
            (false, false) => {
                world.start(host, self.config.clone());
                world.count_restart();
            }
            _ => {}
        }
        if stopped {
            world.pause(host);
        } else {
            world.resume(host, app);
        }
    }

    /// Ends all faults, lets nothing new be sent, and waits: whether all comes to rest in a healed network.
    pub fn converges(mut self, world: &mut World, app: &mut impl Experiment) -> bool {
        app.stop();
        self.turns.clear();
        for &host in &self.victims {
            self.process(HostId(host), false, false, world, app);
        }
        world.heal();
        let mut rested = 0;
        for _ in 0..REST_LOOKS {
            if world.run_for(REST_STEP, app).is_err() {
                return false;
            }
            rested = if app.is_at_rest() && is_at_rest(world, self.cell.hosts) { rested + 1 } else { 0 };
            if rested == 2 {
                return true;
            }
        }
        false
    }
}

/// Sets the faults of all links, and the partitions, while these timed faults hold.
pub(super) fn lay(cell: &Cell, holding: &[&TimedFault], world: &mut World) {
    world.heal();
    let usual = cell.faults_of_links();
    // Host 0 only sends to a group; what its members miss is lost on the way to them, or on its own cable.
    let of_group = cell.workload == Workload::Multicast;
    for host in u32::from(of_group)..cell.hosts {
        world.topology().downlink(HostId(host)).faults = usual;
    }
    if of_group {
        world.topology().uplink(HostId(0)).faults = cell.losing(cell.shared_loss);
    }
    let of_kind = |kind| holding.iter().copied().filter(move |fault| fault.kind == kind);
    let links: BTreeSet<_> = of_kind(FaultKind::Link).flat_map(|fault| &fault.hosts).collect();
    for &host in links {
        let own = of_kind(FaultKind::Link).filter(|fault| fault.hosts.contains(&host));
        world.topology().downlink(HostId(host)).faults = cell.faults_under(own);
    }
    for fault in of_kind(FaultKind::Partition) {
        world.cut_off(fault.hosts.iter().copied().map(HostId));
    }
}

/// Whether no endpoint has anything to send, to hear of or to read.
fn is_at_rest(world: &World, hosts: u32) -> bool {
    let endpoints = (0..hosts).filter_map(|host| world.endpoint(HostId(host)));
    let mut flows = endpoints.flat_map(|endpoint| endpoint.peers().filter_map(|peer| endpoint.flow(peer)));
    let rests =
        |flow: FlowState| flow.queued_messages == 0 && flow.unread_bytes == 0 && flow.phase != Phase::Over;
    flows.all(rests)
}
