//! How the world moves: the event loop, the sockets and the polling of endpoints.
//!
//! Inputs → outputs: the event queue → datagrams handled, timeouts fired, the application called,
//! new happenings. An endpoint is driven as a Node drives it: after each touch its events, its
//! messages, its datagrams and then its next timeout are taken.

use super::host::HostSpec;
use super::shards::Shards;
use super::{Application, MAX_TIMEOUTS_AT_ONCE, Stuck, World};
use crate::net::queue::{DatagramRef, Happening};
use crate::net::topology::{HostId, Place};
use core::fmt::Write as _;
use core::time::Duration;
use denrei_proto::Endpoint;
use denrei_wire::{DatagramMeta, Instant, Transmit, TransmitBuf};

/// Rounds of events, reads and sends after one touch before the endpoint counts as endless.
const MAX_ROUNDS: usize = 10_000;

/// Transmits in a row without a pause of the socket before the endpoint counts as endless.
const MAX_TRANSMITS: usize = 100_000;

impl World {
    /// Lets `duration` pass.
    ///
    /// # Errors
    /// See [`run_until`](Self::run_until).
    pub fn run_for(&mut self, duration: Duration, app: &mut impl Application) -> Result<(), Stuck> {
        self.run_until(self.now + duration, app)
    }

    /// Lets everything happen that happens up to and at `until`.
    ///
    /// # Errors
    /// [`Stuck`] if an endpoint does not come to rest, or `happenings_limit` is reached.
    pub fn run_until(&mut self, until: Instant, app: &mut impl Application) -> Result<(), Stuck> {
        while let Some((at, what)) = self.queue.pop_until(until) {
            self.now = at;
            self.happenings += 1;
            if self.happenings > self.happenings_limit {
                return Err(Stuck::Storm { limit: self.happenings_limit, now: at });
            }
            match what {
                Happening::Arrival { datagram, place } => self.arrive(datagram, place, app),
                Happening::Timeout(host) => self.time_out(host, app),
                Happening::Wake(host) => self.wake(host, app),
                Happening::Refusal { host, by } => {
                    self.touch_at(host, by, app, |_, now, endpoint| endpoint.handle_refused(now, by.addr()));
                }
            }
            if let Some(stuck) = self.stuck.take() {
                return Err(stuck);
            }
        }
        self.now = until;
        self.stuck.take().map_or(Ok(()), Err)
    }

    fn arrive(&mut self, datagram: DatagramRef, place: Place, app: &mut impl Application) {
        match place {
            Place::Switch(_) => self.forward(datagram, place),
            Place::Host(host) => self.receive(datagram, host, app),
        }
    }

    /// Sends a datagram over the next link on its way.
    fn forward(&mut self, datagram: DatagramRef, place: Place) {
        let Self { topology, rng, counts, .. } = self;
        let content = self.datagrams.get(datagram);
        let (to, ecn, len) = (content.to, content.ecn, content.bytes.len());
        let passed = topology
            .next_link(place, to)
            .and_then(|(link, next)| Some((link.pass(self.now, len, ecn, rng, counts)?, next)));
        let Some((passage, place)) = passed else {
            return self.datagrams.release(datagram);
        };
        if let Some(at) = passage.copy_at {
            let copy = self.datagrams.duplicate(datagram);
            self.queue.push(at, Happening::Arrival { datagram: copy, place });
        }
        let content = self.datagrams.get(datagram);
        content.ecn = passage.ecn;
        for _ in 0..passage.flipped_bits {
            let bit = self.rng.below(content.bytes.len() as u64 * 8) as usize;
            if let Some(byte) = content.bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
        self.queue.push(passage.at, Happening::Arrival { datagram, place });
    }

    /// A datagram gets to the socket of a host.
    fn receive(&mut self, datagram: DatagramRef, host: HostId, app: &mut impl Application) {
        let len = self.datagrams.get(datagram).bytes.len() as u64;
        let Some(process) = self.processes.get_mut(host.0 as usize) else {
            return self.datagrams.release(datagram);
        };
        let spec = &self.specs[host.0 as usize];
        if process.shards.is_none() {
            self.counts.host_down += 1;
            let source = self.datagrams.get(datagram).source;
            self.refuse(source, host, Duration::ZERO);
            return self.datagrams.release(datagram);
        }
        if process.received_bytes + len > spec.receive_buffer_bytes {
            self.counts.receive_buffer_full += 1;
            return self.datagrams.release(datagram);
        }
        process.received.push_back(datagram);
        process.received_bytes += len;
        if process.paused {
            return;
        }
        let look_at = (self.now + spec.wake_delay).max(process.busy_until);
        if look_at <= self.now {
            self.serve(host, app);
        } else {
            self.wake_by(host, look_at);
        }
    }

    fn wake_by(&mut self, host: HostId, at: Instant) {
        let process = &mut self.processes[host.0 as usize];
        if process.wake_at.is_none_or(|earlier| at < earlier) {
            process.wake_at = Some(at);
            self.queue.push(at, Happening::Wake(host));
        }
    }

    fn wake(&mut self, host: HostId, app: &mut impl Application) {
        let process = &mut self.processes[host.0 as usize];
        if process.wake_at == Some(self.now) {
            process.wake_at = None;
            self.serve(host, app);
        }
    }

    /// The process looks at its socket: handles what it finds and lets its endpoints act.
    pub(super) fn serve(&mut self, host: HostId, app: &mut impl Application) {
        let Some(mut shards) = self.take_running(host) else { return };
        let batch = self.specs[host.0 as usize].batch.max(1);
        loop {
            let mut left = batch;
            while left > 0 {
                let handled = self.handle_some(host, &mut shards, left);
                left = if handled > 0 { left - handled } else { 0 };
            }
            shards.iter_mut().for_each(|endpoint| self.drain(host, endpoint, app));
            let process = &self.processes[host.0 as usize];
            if process.received.is_empty() || process.busy_until > self.now || self.stuck.is_some() {
                break;
            }
        }
        self.put_back(host, shards);
    }

    /// Handles the next datagram, or up to `most` as one train; how many.
    fn handle_some(&mut self, host: HostId, shards: &mut Shards, most: usize) -> usize {
        let HostSpec { lands, service_time, opens_aside, .. } = self.specs[host.0 as usize];
        let mut first = None;
        let mut handled = 0;
        while handled < most {
            let process = &mut self.processes[host.0 as usize];
            if process.busy_until > self.now {
                break;
            }
            let Some(&datagram) = process.received.front() else { break };
            let content = self.datagrams.get(datagram);
            let meta = DatagramMeta { from: content.source, at: None, ecn: content.ecn };
            let joins = *first.get_or_insert(meta) == meta && (lands || handled == 0);
            if !joins || (lands && !self.train.append(&content.bytes)) {
                break;
            }
            handled += 1;
            process.received.pop_front();
            process.received_bytes -= content.bytes.len() as u64;
            process.busy_until = self.now + service_time;
            self.digest.add(self.now.as_nanos() ^ ((host.0 as u64) << 40));
            self.counts.delivered += 1;
            if let Some(trace) = self.trace {
                let from = HostId::at(meta.from).map_or(u32::MAX, |from| from.0);
                let what = denrei_wire::dump(&content.bytes);
                trace(format_args!("{:?} {} <- {from}: {what}", self.now, host.0));
            }
            if !lands {
                let endpoint = shards.at(meta.from);
                let job = if opens_aside { endpoint.open_job(&meta, &content.bytes) } else { None };
                match job.map(|job| job.run(&mut content.bytes)) {
                    Some(opened) => endpoint.handle_opened(self.now, &meta, &content.bytes, &opened),
                    None => endpoint.handle_datagram(self.now, &meta, &mut content.bytes),
                }
            }
            self.datagrams.release(datagram);
        }
        if let Some(meta) = first.filter(|_| lands && handled > 0) {
            self.counts.landed += self.train.handle(self.now, &meta, shards.at(meta.from)) as u64;
        }
        handled
    }

    fn time_out(&mut self, host: HostId, app: &mut impl Application) {
        let process = &mut self.processes[host.0 as usize];
        if process.timeout_at != Some(self.now) {
            return;
        }
        process.timeout_at = None;
        let Some(mut shards) = self.take_running(host) else { return };
        let due = |endpoint: &Endpoint| endpoint.poll_timeout().filter(|&timeout| timeout <= self.now);
        let timeout = shards.iter().find_map(due);
        if let Some(timeout) = timeout {
            let process = &mut self.processes[host.0 as usize];
            process.timeouts_fired += 1;
            let (last, times) = process.last_timeout;
            process.last_timeout = (self.now, if last == self.now { times + 1 } else { 1 });
            if process.last_timeout.1 > MAX_TIMEOUTS_AT_ONCE {
                self.stuck = Some(Stuck::Timeout { host, now: self.now, timeout });
            }
            if let Some(trace) = self.trace {
                trace(format_args!("{:?} {} timeout {timeout:?}", self.now, host.0));
            }
            for endpoint in shards.iter_mut() {
                if endpoint.poll_timeout().is_some_and(|timeout| timeout <= self.now) {
                    endpoint.handle_timeout(self.now);
                    self.drain(host, endpoint, app);
                }
            }
        }
        self.put_back(host, shards);
    }

    pub(super) fn take_running(&mut self, host: HostId) -> Option<Shards> {
        let process = self.processes.get_mut(host.0 as usize)?;
        if process.paused { None } else { process.shards.take() }
    }

    pub(super) fn put_back(&mut self, host: HostId, shards: Shards) {
        self.processes[host.0 as usize].shards = Some(shards);
        self.rearm(host);
    }

    /// Sees to it that the host is called when it next has something to do.
    pub(super) fn rearm(&mut self, host: HostId) {
        let process = &mut self.processes[host.0 as usize];
        let blocked_until = process.blocked_until;
        let more_received = !process.received.is_empty();
        let busy_until = process.busy_until;
        let shards = process.shards.iter_mut().flat_map(|shards| shards.iter_mut());
        let timeouts = shards.filter_map(|endpoint| {
            // Every other host is as one that sleeps: it is called when there is something to do, and only then.
            if host.0 % 2 == 1 {
                endpoint.settle_timers();
            }
            endpoint.poll_timeout()
        });
        // A timeout that waits for the socket would fire again and again until it can send.
        let timeout = timeouts.min().map(|at| at.max(blocked_until.unwrap_or(self.now)).max(self.now));
        if let Some(at) = timeout.filter(|&at| process.timeout_at.is_none_or(|earlier| at < earlier)) {
            process.timeout_at = Some(at);
            self.queue.push(at, Happening::Timeout(host));
        }
        if more_received {
            self.wake_by(host, busy_until.max(self.now));
        }
        if let Some(at) = blocked_until {
            self.wake_by(host, at);
        }
    }

    /// Hands events and messages to the application and datagrams to the network until the
    /// endpoint has no more.
    pub(super) fn drain(&mut self, host: HostId, endpoint: &mut Endpoint, app: &mut impl Application) {
        for _ in 0..MAX_ROUNDS {
            let mut acted = false;
            while let Some(event) = endpoint.poll_event() {
                acted = true;
                // Writing to a digest cannot fail.
                let _ = write!(self.digest, "{host:?} {event:?}");
                if let Some(trace) = self.trace {
                    trace(format_args!("{:?} {} event {event:?}", self.now, host.0));
                }
                app.on_event(self.now, host, endpoint, event);
            }
            app.on_readable(self.now, host, endpoint);
            let told = endpoint.news();
            acted |= self.transmit(host, endpoint);
            // What follows for groups is followed on the way out, and may be something to tell.
            acted |= endpoint.news() != told;
            if !acted {
                return;
            }
        }
        self.stuck = Some(Stuck::Endless { host, now: self.now });
    }

    /// Whether anything was sent.
    fn transmit(&mut self, host: HostId, endpoint: &mut Endpoint) -> bool {
        let spec = &self.specs[host.0 as usize];
        let send_buffer_bytes = spec.send_buffer_bytes;
        let mut buf = self.transmit_buf.take().unwrap_or_else(|| TransmitBuf::new(1).lending());
        buf.set_max_segments(spec.max_segments);
        self.processes[host.0 as usize].blocked_until = None;
        let mut transmits = 0;
        loop {
            let uplink = self.topology.uplink(host);
            if uplink.queued_bytes(self.now) > send_buffer_bytes {
                let at = uplink.drained_to(send_buffer_bytes / 2);
                self.processes[host.0 as usize].blocked_until = Some(at);
                break;
            }
            let Some(transmit) = endpoint.poll_transmit(self.now, &mut buf) else { break };
            self.send(host, &transmit, &buf);
            transmits += 1;
            if transmits > MAX_TRANSMITS {
                self.stuck = Some(Stuck::Endless { host, now: self.now });
                break;
            }
        }
        self.transmit_buf = Some(buf);
        transmits > 0
    }

    /// A datagram to a group: over the sender's cable once, and from its switch to every host whose
    /// endpoint hears the group (IGMP snooping). Each copy meets the faults of the links behind the
    /// switch by itself.
    fn spread(&mut self, from: HostId, transmit: &Transmit, datagram: &[u8]) {
        let heard = |process: &super::host::Process| {
            let mut endpoints = process.shards.iter().flat_map(|shards| shards.iter());
            endpoints.any(|endpoint| endpoint.needs_group_address(transmit.to))
        };
        let hosts = (0..self.processes.len() as u32).map(HostId);
        let reached = |host: &HostId| *host != from && !self.deaf.contains(host);
        let hearing: Vec<HostId> =
            hosts.filter(|host| reached(host) && heard(&self.processes[host.0 as usize])).collect();
        let Self { topology, rng, counts, .. } = self;
        let Some(&first) = hearing.first() else { return };
        let Some((cable, place)) = topology.next_link(Place::Host(from), first) else { return };
        let passed = cable.pass(self.now, datagram.len(), transmit.ecn, rng, counts);
        // A datagram that is damaged on the way to the switch is dropped by it, as its frame check fails.
        let Some(passage) = passed.filter(|passage| passage.flipped_bits == 0) else { return };
        for to in hearing {
            if self.keeps_apart(from, to) {
                self.counts.cut += 1;
                continue;
            }
            for at in [Some(passage.at), passage.copy_at].into_iter().flatten() {
                let copy = self.datagrams.insert(from.addr(), to, passage.ecn, datagram);
                self.queue.push(at, Happening::Arrival { datagram: copy, place });
            }
        }
    }

    /// Splits a transmit into its datagrams and sends each.
    fn send(&mut self, from: HostId, transmit: &Transmit, buf: &TransmitBuf) {
        assert_eq!(buf.len(), transmit.len, "a transmit describes what is in its buffer");
        let size = transmit.segment_size.unwrap_or(transmit.len).max(1);
        for datagram in buf.contiguous().chunks(size) {
            self.counts.sent += 1;
            self.digest.add(self.now.as_nanos());
            self.digest.add((from.0 as u64) << 32 | transmit.ecn as u64);
            self.digest.add_bytes(datagram);
            if transmit.to.ip().is_multicast() {
                if let Some(trace) = self.trace {
                    let what = denrei_wire::dump(datagram);
                    trace(format_args!("{:?} {} -> {}: {what}", self.now, from.0, transmit.to));
                }
                self.spread(from, transmit, datagram);
                continue;
            }
            let Some(to) = HostId::at(transmit.to) else { continue };
            if let Some(trace) = self.trace {
                let what = denrei_wire::dump(datagram);
                trace(format_args!("{:?} {} -> {}: {what}", self.now, from.0, to.0));
            }
            self.capture.offer(from.addr(), to, datagram);
            if self.keeps_apart(from, to) {
                self.counts.cut += 1;
                continue;
            }
            let datagram = self.datagrams.insert(from.addr(), to, transmit.ecn, datagram);
            self.forward(datagram, Place::Host(from));
        }
    }
}
