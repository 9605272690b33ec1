//! The virtual world: hosts with endpoints, a network between them, one clock.
//!
//! Inputs → outputs: a seed, a topology, calls of the application → datagrams carried, timeouts
//! fired, events and messages handed to an [`Application`]. Whatever happens follows from the seed
//! and the calls, to the byte; [`World::digest`] proves it.
//!
//! Cost: every datagram is one entry in a binary heap per link it crosses; nothing is walked per
//! event, so 10,000 hosts are possible.

mod capture;
mod drive;
mod host;
mod landing;
mod shards;

pub use capture::Captured;
pub use host::HostSpec;

use crate::digest::Digest;
use crate::net::faults::{FaultCounts, Faults};
use crate::net::link::LinkSpec;
use crate::net::queue::{Datagrams, EventQueue, Happening};
use crate::net::topology::{HostId, Place, SwitchId, Topology};
use crate::rng::Rng;
use capture::Capture;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_proto::{Config, Endpoint, Event, PeerCounters};
use denrei_wire::{Ecn, Incarnation, Instant, TransmitBuf};
use host::Process;
use landing::Train;
use shards::Shards;
use std::collections::BTreeSet;
use std::sync::Arc;
use thiserror::Error;

/// Timeouts that may fire in a row at one instant before the endpoint counts as spinning. A few
/// timers may well expire together; each has to move on.
const MAX_TIMEOUTS_AT_ONCE: u32 = 64;

/// Where a trace goes, line by line.
pub type Trace = fn(core::fmt::Arguments<'_>);

/// What runs on the hosts. Called for one host at a time, with its endpoint.
pub trait Application {
    /// The endpoint says that something happened.
    fn on_event(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, event: Event);

    /// The endpoint was touched: read what shall be read.
    fn on_readable(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint);
}

/// The endpoint does not come to rest.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// Its timeout stays in the past after it was handled.
    #[error(
        "{host:?} at {now:?}: timeout {timeout:?} stays due after {MAX_TIMEOUTS_AT_ONCE} calls of handle_timeout"
    )]
    Timeout {
        /// The host.
        host: HostId,
        /// The time.
        now: Instant,
        /// What `poll_timeout` keeps saying.
        timeout: Instant,
    },
    /// It produces events or datagrams without end.
    #[error("{host:?} at {now:?}: events and datagrams without end, without a touch")]
    Endless {
        /// The host.
        host: HostId,
        /// The time.
        now: Instant,
    },
    /// More happened than the caller allowed.
    #[error("more than {limit} happenings by {now:?}: a storm of datagrams or timeouts")]
    Storm {
        /// The limit.
        limit: u64,
        /// The time.
        now: Instant,
    },
}

/// Hosts, network and clock.
pub struct World {
    now: Instant,
    queue: EventQueue,
    datagrams: Datagrams,
    topology: Topology,
    specs: Vec<HostSpec>,
    processes: Vec<Process>,
    /// What happened on the sessions of processes that were killed.
    ended: PeerCounters,
    cut_pairs: BTreeSet<(HostId, HostId)>,
    /// Hosts that reach each other and nobody else, a set for each partition.
    islands: Vec<BTreeSet<HostId>>,
    /// Hosts that no multicast gets to.
    deaf: BTreeSet<HostId>,
    capture: Capture,
    rng: Rng,
    digest: Digest,
    counts: FaultCounts,
    /// What a process that lands payloads has taken from its socket.
    train: Train,
    /// `None` only while it is being filled.
    transmit_buf: Option<TransmitBuf>,
    happenings: u64,
    /// Happenings after which a run is given up as a storm.
    pub happenings_limit: u64,
    stuck: Option<Stuck>,
    /// Is told what endpoints send, get, time out and say, for people to read.
    pub trace: Option<Trace>,
}

impl World {
    /// An empty world.
    pub fn new(seed: u64) -> Self {
        Self {
            now: Instant::ZERO,
            queue: EventQueue::default(),
            datagrams: Datagrams::default(),
            topology: Topology::default(),
            specs: Vec::new(),
            processes: Vec::new(),
            ended: PeerCounters::default(),
            cut_pairs: BTreeSet::new(),
            islands: Vec::new(),
            deaf: BTreeSet::new(),
            capture: Capture::default(),
            rng: Rng::new(seed),
            digest: Digest::default(),
            counts: FaultCounts::default(),
            train: Train::default(),
            transmit_buf: Some(TransmitBuf::new(1).lending()),
            happenings: 0,
            happenings_limit: u64::MAX,
            stuck: None,
            trace: None,
        }
    }

    /// Adds a switch, below another or as the root.
    pub fn add_switch(&mut self, parent: Option<(SwitchId, LinkSpec)>) -> SwitchId {
        self.topology.add_switch(parent)
    }

    /// Adds a host, on which nothing runs yet.
    pub fn add_host(&mut self, switch: SwitchId, spec: HostSpec) -> HostId {
        let host = self.topology.add_host(switch, spec.up, spec.down);
        self.specs.push(spec);
        self.processes.push(Process::default());
        host
    }

    /// Starts the process of a host: a new incarnation.
    ///
    /// # Panics
    /// If it runs already.
    pub fn start(&mut self, host: HostId, config: Arc<Config>) -> Incarnation {
        let seed = self.rng.next_u64();
        let process = &mut self.processes[host.0 as usize];
        assert!(process.shards.is_none(), "{host:?} runs already");
        let shards = Shards::new(&self.specs[host.0 as usize], config, seed, self.now);
        let incarnation = shards.first().incarnation();
        process.shards = Some(shards);
        self.rearm(host);
        incarnation
    }

    /// Kills the process of a host, as by SIGKILL: nothing is said to anyone.
    pub fn crash(&mut self, host: HostId) {
        let process = core::mem::take(&mut self.processes[host.0 as usize]);
        for datagram in process.received {
            self.datagrams.release(datagram);
        }
        let Some(shards) = process.shards else { return };
        self.counts.crashes += 1;
        self.ended = shards.iter().fold(self.ended, |sum, endpoint| sum + endpoint.session_totals());
    }

    /// What happened on all sessions of all processes that ran.
    pub fn session_totals(&self) -> PeerCounters {
        let running = self.processes.iter().filter_map(|process| process.shards.as_ref());
        let running = running.flat_map(Shards::iter);
        running.fold(self.ended, |sum, endpoint| sum + endpoint.session_totals())
    }

    /// Stops the process of a host, as by SIGSTOP.
    pub fn pause(&mut self, host: HostId) {
        let process = &mut self.processes[host.0 as usize];
        if process.shards.is_some() && !process.paused {
            process.paused = true;
            process.paused_at = self.now;
            self.counts.pauses += 1;
        }
    }

    /// Lets a stopped process go on.
    pub fn resume(&mut self, host: HostId, app: &mut impl Application) {
        let process = &mut self.processes[host.0 as usize];
        if core::mem::take(&mut process.paused) {
            let since = process.paused_at;
            self.note_absence(host, Some(since));
            self.serve(host, app);
            self.note_absence(host, None);
        }
    }

    fn note_absence(&mut self, host: HostId, since: Option<Instant>) {
        if let Some(shards) = &mut self.processes[host.0 as usize].shards {
            shards.iter_mut().for_each(|endpoint| endpoint.note_absence(self.now, since));
        }
    }

    /// Keeps two hosts apart, in both directions.
    pub fn cut(&mut self, a: HostId, b: HostId) {
        self.cut_pairs.insert((a.min(b), a.max(b)));
    }

    /// Keeps these hosts apart from all others, in both directions.
    pub fn cut_off(&mut self, hosts: impl IntoIterator<Item = HostId>) {
        self.islands.push(hosts.into_iter().collect());
    }

    fn keeps_apart(&self, a: HostId, b: HostId) -> bool {
        !self.cut_pairs.is_empty() && self.cut_pairs.contains(&(a.min(b), a.max(b)))
            || self.islands.iter().any(|island| island.contains(&a) != island.contains(&b))
    }

    /// Whether multicast gets to a host: not at a switch that does not forward it there. Healing leaves this
    /// as it is.
    pub fn set_deaf(&mut self, host: HostId, deaf: bool) {
        if deaf {
            self.deaf.insert(host);
        } else {
            self.deaf.remove(&host);
        }
    }

    /// Takes all faults off the network: links, partitions. Processes stay as they are.
    pub fn heal(&mut self) {
        self.topology.heal();
        self.cut_pairs.clear();
        self.islands.clear();
    }

    /// Sets the faults of both directions of a host's cable.
    pub fn set_faults(&mut self, host: HostId, faults: Faults) {
        self.topology.set_faults(host, faults);
    }

    /// The links, for faults in one direction and for their statistics.
    pub fn topology(&mut self) -> &mut Topology {
        &mut self.topology
    }

    /// Runs `call` on the endpoint of a host, as its application would, and lets the endpoint act
    /// on it. `None` if the host's process is dead or stopped. Of several endpoints it is the first.
    pub fn touch<A: Application, T>(
        &mut self,
        host: HostId,
        app: &mut A,
        call: impl FnOnce(&mut A, Instant, &mut Endpoint) -> T,
    ) -> Option<T> {
        self.touch_at(host, HostId(0), app, call)
    }

    /// [`touch`](Self::touch), of the endpoint that has, or would have, the session with `peer`.
    pub fn touch_at<A: Application, T>(
        &mut self,
        host: HostId,
        peer: HostId,
        app: &mut A,
        call: impl FnOnce(&mut A, Instant, &mut Endpoint) -> T,
    ) -> Option<T> {
        let mut shards = self.take_running(host)?;
        let endpoint = shards.at(peer.addr());
        let result = call(app, self.now, endpoint);
        self.drain(host, endpoint, app);
        self.put_back(host, shards);
        Some(result)
    }

    /// [`touch`](Self::touch), of each endpoint of the host.
    pub fn touch_each<A: Application>(
        &mut self,
        host: HostId,
        app: &mut A,
        mut call: impl FnMut(&mut A, Instant, &mut Endpoint),
    ) {
        let Some(mut shards) = self.take_running(host) else { return };
        for endpoint in shards.iter_mut() {
            call(app, self.now, endpoint);
            self.drain(host, endpoint, app);
        }
        self.put_back(host, shards);
    }

    /// One endpoint of the host has all its sessions from now on, as of a Node that has to do with groups.
    pub fn gather(&mut self, host: HostId, app: &mut impl Application) {
        let Some(mut shards) = self.take_running(host) else { return };
        self.ended = self.ended + shards.gather(self.now);
        shards.iter_mut().for_each(|endpoint| self.drain(host, endpoint, app));
        self.put_back(host, shards);
    }

    /// The endpoint of a host, to look at; the first of several.
    pub fn endpoint(&self, host: HostId) -> Option<&Endpoint> {
        self.processes[host.0 as usize].shards.as_ref().map(Shards::first)
    }

    /// All endpoints of a host, to look at.
    pub fn endpoints(&self, host: HostId) -> impl Iterator<Item = &Endpoint> {
        self.processes[host.0 as usize].shards.iter().flat_map(Shards::iter)
    }

    /// Tells `source` after `delay`, in the name of the host `by`, that nobody is at its port.
    fn refuse(&mut self, source: SocketAddr, by: HostId, delay: Duration) {
        if let Some(host) = HostId::at(source) {
            self.queue.push(self.now + delay, Happening::Refusal { host, by });
        }
    }

    /// Puts a datagram before `to` after `delay`, whoever `source` says it is from. Who can do that can say as well
    /// that the source is not there.
    pub fn inject(&mut self, source: SocketAddr, to: HostId, bytes: &[u8], delay: Duration) {
        let datagram = self.datagrams.insert(source, to, Ecn::NotEct, bytes);
        self.queue.push(self.now + delay, Happening::Arrival { datagram, place: Place::Host(to) });
        self.counts.injected += 1;
        if let Some(by) = HostId::at(source) {
            self.refuse(to.addr(), by, delay);
        }
    }

    /// Keeps some of the datagrams from now on, so that they can be replayed.
    pub fn capture_some(&mut self) {
        self.capture.enable();
    }

    /// The captured datagram number `index` (modulo how many there are).
    pub fn captured(&self, index: usize) -> Option<&Captured> {
        self.capture.get(index)
    }

    /// Sends the captured datagram number `index` again.
    pub fn replay(&mut self, index: usize, delay: Duration) {
        let Some(Captured { source, to, bytes }) = self.capture.get(index).cloned() else { return };
        self.inject(source, to, &bytes, delay);
        self.counts.injected -= 1;
        self.counts.replayed += 1;
    }

    /// The time.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// A fingerprint of all datagrams and events so far.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    /// What the faults did so far.
    pub fn counts(&self) -> &FaultCounts {
        &self.counts
    }

    /// Counts a process started again after a crash.
    pub fn count_restart(&mut self) {
        self.counts.restarts += 1;
    }

    /// Happenings so far: arrivals at hosts and switches, timeouts, wakes.
    pub fn happenings(&self) -> u64 {
        self.happenings
    }

    /// Happenings still to come.
    pub fn pending(&self) -> usize {
        self.queue.len()
    }

    /// Timeouts fired on a host so far.
    pub fn timeouts_fired(&self, host: HostId) -> u64 {
        self.processes[host.0 as usize].timeouts_fired
    }
}
