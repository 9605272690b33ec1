//! The stages as layers, from the top (what arrives) to the bottom (what leaves).
//!
//! Arrivals go down from the receiver to the protocol and come back up when they are empty; departures
//! go down from the protocol to the sender, and come back up.

mod receiver;

pub(super) use receiver::{Inbound, Receiver};

use crate::core::Core;
use crate::shards::Steering;
use crate::wait::Shared;
use denrei_io::{RecvBuffers, SendOutcome, UdpSocket};
use denrei_layers::{Layer, Outlet};
use denrei_proto::seal::Opened;
use denrei_wire::{DatagramMeta, Instant, Transmit, TransmitBuf};
use parking_lot::Mutex;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// How long a sender that the kernel has no room for waits before it tries again: a full buffer
/// drains in some hundreds of microseconds at 10 Gbit/s. And a timer for what has come before it.
const RETRY: Duration = Duration::from_micros(100);

/// What goes from stage to stage.
pub(super) enum Parcel {
    /// What a receive call brought.
    Arrival(Box<Arrival>),
    /// A transmit.
    Departure(Box<Departure>),
}

/// The datagrams of one receive call.
pub(super) struct Arrival {
    buffers: RecvBuffers,
    /// When the last look at all sockets began that had ended with this, if there was one.
    looked_at: Option<Instant>,
    /// For each datagram, whose it is; empty: all are the first shard's.
    shards: Vec<u8>,
    /// For each datagram, what opening it came to, if that was done.
    opened: Vec<Option<Opened>>,
}

/// One transmit, and its datagrams.
pub(super) struct Departure {
    /// Whose it is.
    shard: usize,
    transmit: Option<Transmit>,
    out: TransmitBuf,
    /// Octets that the kernel has taken.
    sent: usize,
}

/// Steers, and opens what is sealed: asks the protocol for the keys of a whole receive call at once, and
/// decrypts without its lock. Where the protocol runs in the same thread it opens each datagram when it
/// handles it: a whole call's would have left the fastest cache by then.
pub(super) struct Opener {
    shards: Arc<[Arc<Shared>]>,
    steering: Arc<Steering>,
    /// The protocol has another thread.
    is_apart: bool,
    jobs: Vec<Option<denrei_proto::seal::OpenJob>>,
}

impl Opener {
    pub fn new(shards: Arc<[Arc<Shared>]>, steering: Arc<Steering>, is_apart: bool) -> Self {
        Self { shards, steering, is_apart, jobs: Vec::new() }
    }

    /// Marks datagrams with the shards that they are for.
    fn steer(&self, arrival: &mut Arrival) {
        arrival.shards.clear();
        if !self.steering.is_spread() {
            return;
        }
        // Datagrams of one source come in runs.
        let mut last = None;
        let Arrival { buffers, shards, .. } = arrival;
        buffers.deliver(|meta, _| {
            let shard = match last {
                Some((from, shard)) if from == meta.from => shard,
                _ => self.steering.at(meta.from) as u8,
            };
            last = Some((meta.from, shard));
            shards.push(shard);
        });
    }

    fn open(&mut self, arrival: &mut Arrival) {
        self.ask(arrival);
        let Arrival { buffers, opened, .. } = arrival;
        let mut jobs = self.jobs.drain(..);
        buffers.deliver(|_, datagram| opened.push(jobs.next().flatten().map(|job| job.run(datagram))));
    }

    /// Asks each shard for the keys of its datagrams.
    fn ask(&mut self, arrival: &mut Arrival) {
        self.jobs.clear();
        for (index, shard) in self.shards.iter().enumerate() {
            if !arrival.has_any_of(index) {
                continue;
            }
            let core = shard.core.lock();
            let jobs = &mut self.jobs;
            arrival.deliver_to(index, |at, meta, datagram, _| {
                jobs.resize_with(jobs.len().max(at + 1), || None);
                jobs[at] = core.endpoint.open_job(meta, datagram);
            });
        }
    }
}

impl Arrival {
    fn new() -> Self {
        let (buffers, shards, opened) = (RecvBuffers::default(), Vec::new(), Vec::new());
        Self { buffers, looked_at: None, shards, opened }
    }

    /// Whether any of the datagrams is for a shard.
    fn has_any_of(&self, shard: usize) -> bool {
        if self.shards.is_empty() { shard == 0 } else { self.shards.contains(&(shard as u8)) }
    }

    /// Hands a shard's datagrams to `take`: which one it is, and what opening it came to.
    fn deliver_to(
        &mut self,
        shard: usize,
        mut take: impl FnMut(usize, &DatagramMeta, &mut [u8], Option<Opened>),
    ) {
        let Self { buffers, shards, opened, .. } = self;
        let mut index = 0;
        buffers.deliver(|meta, datagram| {
            if shards.get(index).map_or(0, |shard| *shard as usize) == shard {
                take(index, meta, datagram, opened.get_mut(index).and_then(Option::take));
            }
            index += 1;
        });
    }
}

impl Layer<Parcel> for Opener {
    fn from_above(&mut self, mut parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        if let Parcel::Arrival(arrival) = &mut parcel {
            arrival.opened.clear();
            self.steer(arrival);
            if self.is_apart {
                self.open(arrival);
            }
        }
        out.down(parcel);
    }

    fn from_below(&mut self, parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        out.up(parcel);
    }
}

/// The protocol of one shard.
pub(super) struct Protocol {
    shards: Arc<[Arc<Shared>]>,
    index: usize,
    /// This shard's.
    shared: Arc<Shared>,
    inbound: Arc<Inbound>,
    /// When the last look at all sockets began of which everything was seen.
    looked_at: Instant,
    #[allow(clippy::vec_box)]
    free: Vec<Box<Departure>>,
    departures: usize,
    /// When a timer has to fire, or earlier.
    deadline: Cell<Option<Instant>>,
    /// A timer waits for what has come before it was due.
    is_held: bool,
    /// There may be more to send than there were departures for.
    wants: bool,
}

impl Protocol {
    pub fn new(
        shards: Arc<[Arc<Shared>]>,
        index: usize,
        inbound: Arc<Inbound>,
        departures: usize,
        segments: usize,
    ) -> Self {
        let departure = || {
            let out = TransmitBuf::new(segments).deferring_sealing();
            Box::new(Departure { shard: index, transmit: None, out, sent: 0 })
        };
        let free = (0..departures).map(|_| departure()).collect();
        let shared = Arc::clone(&shards[index]);
        let looked_at = Instant::ZERO;
        Self {
            shards,
            index,
            shared,
            inbound,
            looked_at,
            free,
            departures,
            deadline: Cell::new(None),
            is_held: false,
            wants: false,
        }
    }

    fn take_in(&mut self, arrival: &mut Arrival) {
        self.looked_at = arrival.looked_at.unwrap_or(self.looked_at);
        if !arrival.has_any_of(self.index) {
            return;
        }
        let mut core = self.shared.core.lock();
        if core.absorbed {
            // Steered here just before the first shard took all sessions over.
            drop(core);
            let first = &self.shards[0];
            handle(&mut first.core.lock(), arrival, self.index);
            return first.kick();
        }
        handle(&mut core, arrival, self.index);
    }

    /// Whether another protocol stage comes after this one.
    fn is_last(&self) -> bool {
        self.index + 1 == self.shards.len()
    }

    /// Whether a timer is due, and nothing may have come before it that has not been seen.
    fn may_fire(&mut self) -> bool {
        let due = self.deadline.get().filter(|at| *at <= self.shared.clock.now());
        let fires = due.is_some_and(|at| at <= self.looked_at || self.inbound.is_empty());
        self.is_held = due.is_some() && !fires;
        if self.is_held {
            self.inbound.await_all();
        }
        fires
    }

    /// Fires timers, and writes what may be sent into the departures that are free.
    fn send(&mut self, out: &mut Outlet<'_, Parcel>) -> bool {
        let fires = self.may_fire();
        let mut wrote = false;
        loop {
            let mut core = self.shared.core.lock();
            let now = core.now();
            if fires {
                core.fire_timers(now);
            }
            self.wants = core.endpoint.wants_transmit();
            let departure = if self.wants { self.free.pop() } else { None };
            let Some(mut departure) = departure else {
                self.deadline.set(core.endpoint.poll_timeout());
                self.shared.notify(&mut core);
                return wrote;
            };
            departure.transmit = core.endpoint.poll_transmit(now, &mut departure.out);
            departure.sent = 0;
            if departure.transmit.is_none() {
                self.free.push(departure);
                self.wants = false;
                self.deadline.set(core.endpoint.poll_timeout());
                self.shared.notify(&mut core);
                return wrote;
            }
            let silent = core.endpoint.poll_silent();
            // Applications may queue and take messages in between.
            drop(core);
            if let Some(peer) = silent {
                self.shards[0].watch(peer, now);
            }
            wrote = true;
            out.down(Parcel::Departure(departure));
        }
    }

    fn until_deadline(&self) -> Option<Duration> {
        self.deadline.get().map(|deadline| deadline.saturating_since(self.shared.clock.now()))
    }
}

impl Layer<Parcel> for Protocol {
    fn from_above(&mut self, mut parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        match &mut parcel {
            Parcel::Arrival(arrival) => self.take_in(arrival),
            Parcel::Departure(_) => return out.down(parcel),
        }
        if self.is_last() {
            self.inbound.end();
            out.up(parcel);
        } else {
            out.down(parcel);
        }
        self.send(out);
    }

    fn from_below(&mut self, parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        match parcel {
            Parcel::Departure(departure) if departure.shard == self.index => self.free.push(departure),
            of_others => return out.up(of_others),
        }
        if self.wants {
            self.send(out);
        }
    }

    fn poll(&mut self, out: &mut Outlet<'_, Parcel>) -> bool {
        if !self.shared.take_dirty() && !self.until_deadline().is_some_and(|left| left.is_zero()) {
            return false;
        }
        self.send(out)
    }

    fn idle_for(&self) -> Option<Duration> {
        if self.is_held {
            return Some(RETRY);
        }
        // Timers move on with what is acknowledged: nobody wakes up for when they were due before.
        let mut core = self.shared.core.lock();
        core.endpoint.settle_timers();
        self.deadline.set(core.endpoint.poll_timeout());
        drop(core);
        self.until_deadline()
    }

    fn has_work(&self) -> bool {
        self.shared.is_dirty()
    }

    fn is_quiet(&self) -> bool {
        !self.wants && !self.shared.is_dirty() && self.free.len() == self.departures
    }
}

/// Gives the datagrams that were marked as `shard`'s to a core.
fn handle(core: &mut Core, arrival: &mut Arrival, shard: usize) {
    let now = core.now();
    arrival.deliver_to(shard, |_, meta, datagram, opened| match opened {
        Some(opened) => core.endpoint.handle_opened(now, meta, datagram, &opened),
        None => core.endpoint.handle_datagram(now, meta, datagram),
    });
}

/// Seals what the protocol has written.
pub(super) struct Sealer;

impl Layer<Parcel> for Sealer {
    fn from_above(&mut self, mut parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        if let Parcel::Departure(departure) = &mut parcel {
            departure.out.seal();
        }
        out.down(parcel);
    }

    fn from_below(&mut self, parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        out.up(parcel);
    }
}

/// Sends.
pub(super) struct Sender {
    socket: Arc<Mutex<UdpSocket>>,
    /// What the kernel had no room for.
    stuck: Option<Box<Departure>>,
}

impl Sender {
    pub fn new(socket: Arc<Mutex<UdpSocket>>) -> Self {
        Self { socket, stuck: None }
    }

    /// Whether the kernel had room.
    fn send(&mut self, mut departure: Box<Departure>, out: &mut Outlet<'_, Parcel>) -> bool {
        if let Some(transmit) = departure.transmit {
            let outcome = self.socket.lock().send_from(&transmit, &departure.out, departure.sent);
            // What the network or the kernel refuses counts as lost; the protocol repeats it.
            if let SendOutcome::WouldBlock { sent } = outcome {
                departure.sent = sent;
                self.stuck = Some(departure);
                return false;
            }
        }
        out.up(Parcel::Departure(departure));
        true
    }
}

impl Layer<Parcel> for Sender {
    fn takes_from_above(&self) -> bool {
        self.stuck.is_none()
    }

    fn from_above(&mut self, parcel: Parcel, out: &mut Outlet<'_, Parcel>) {
        if let Parcel::Departure(departure) = parcel {
            self.send(departure, out);
        }
    }

    fn from_below(&mut self, _: Parcel, _: &mut Outlet<'_, Parcel>) {}

    fn poll(&mut self, out: &mut Outlet<'_, Parcel>) -> bool {
        match self.stuck.take() {
            Some(departure) => self.send(departure, out),
            None => false,
        }
    }

    fn idle_for(&self) -> Option<Duration> {
        self.stuck.as_ref().map(|_| RETRY)
    }

    fn is_quiet(&self) -> bool {
        self.stuck.is_none()
    }
}

#[cfg(test)]
mod tests;
