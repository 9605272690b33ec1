//! The part of a Node that is under its lock: the protocol's state, and who waits for what.

use denrei_proto::seal::Seed;
use denrei_proto::{Config, Endpoint, PeerId, Place};
use denrei_wire::Instant;
use std::sync::Arc;
use std::task::Waker;

/// Events kept for an application that does not ask for them; the oldest are dropped and counted.
const MAX_EVENTS: usize = 65_536;

/// State under the Node's lock.
pub(crate) struct Core {
    pub endpoint: Endpoint,
    clock: Clock,
    /// The clock's last reading.
    recent: Instant,
    /// Another core has gone on with all that was here.
    pub absorbed: bool,
    /// The background thread drives: everybody else waits for it.
    pub has_driver: bool,
    /// A thread is asleep on the sockets, or about to be, and will wake at this time.
    pub sleeper_until: Option<Instant>,
    /// Threads that wait for that thread to bring them something.
    pub followers: usize,
    /// Peers whose queue somebody waits for, and down to how many bytes.
    blocked: Vec<(PeerId, u64)>,
    /// Tasks that wait.
    pub tasks: Vec<Waker>,
    pub dropped_events: u64,
    /// Why the socket does not work any more.
    pub failure: Option<Arc<std::io::Error>>,
    send_buffer_bytes: u64,
    /// [`Endpoint::news`] when those who wait were last told.
    seen_news: u64,
}

/// Time since the Node was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    pub fn new() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }
}

impl Core {
    pub fn new(place: Place, config: Arc<Config>, seed: Seed, clock: Clock) -> Self {
        let send_buffer_bytes = config.send_buffer_bytes;
        Self {
            endpoint: Endpoint::at(place, config, seed, clock.now()),
            absorbed: false,
            clock,
            recent: clock.now(),
            has_driver: false,
            seen_news: 0,
            sleeper_until: None,
            followers: 0,
            blocked: Vec::new(),
            tasks: Vec::new(),
            dropped_events: 0,
            failure: None,
            send_buffer_bytes,
        }
    }

    /// Goes on with all that another core has, and whoever waits for it there.
    pub fn absorb(&mut self, other: &mut Self) {
        let now = self.now();
        self.endpoint.absorb(now, &mut other.endpoint);
        self.blocked.append(&mut other.blocked);
        // They look again, and then wait here.
        other.tasks.drain(..).for_each(Waker::wake);
        other.absorbed = true;
    }

    /// The clock, for those who need no lock to read it.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Reads the clock.
    pub fn now(&mut self) -> Instant {
        self.recent = self.clock.now();
        self.recent
    }

    /// When the clock was last read: good enough for queueing and taking messages, which sets no
    /// timer that the next flush or receive does not set anew.
    pub fn recently(&self) -> Instant {
        self.recent
    }

    /// Whether another thread looks at the sockets.
    pub fn is_driven_by_another(&self) -> bool {
        self.has_driver || self.sleeper_until.is_some()
    }

    /// Fires the timers that are due.
    pub fn fire_timers(&mut self, now: Instant) {
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
    }

    /// Whether the thread that sleeps on the sockets would miss a timer armed since.
    pub fn sleeper_is_late(&self) -> bool {
        match (self.sleeper_until, self.endpoint.poll_timeout()) {
            (Some(until), Some(due)) => due < until,
            _ => false,
        }
    }

    /// Keeps the event queue within its bound.
    pub fn limit_events(&mut self) {
        while self.endpoint.waiting_events() > MAX_EVENTS {
            self.endpoint.poll_event();
            self.dropped_events += 1;
        }
    }

    /// Whether somebody who waits may have got what it waits for.
    pub fn has_news(&mut self) -> bool {
        let news = self.endpoint.news();
        if std::mem::replace(&mut self.seen_news, news) != news || self.failure.is_some() {
            return true;
        }
        let endpoint = &self.endpoint;
        let before = self.blocked.len();
        self.blocked
            .retain(|(peer, level)| endpoint.flow_queue_bytes(*peer).is_some_and(|queued| queued > *level));
        before != self.blocked.len()
    }

    /// Somebody waits until everything to `peer` is acknowledged.
    pub fn await_empty(&mut self, peer: PeerId) {
        self.await_level(peer, 0);
    }

    /// Somebody waits for room in the queue to `peer`. Half empty, not barely not full: or it would
    /// be woken for each message.
    pub fn await_room(&mut self, peer: PeerId) {
        self.await_level(peer, self.send_buffer_bytes / 2);
    }

    /// Somebody waits until a message of `bytes` could be queued.
    pub fn await_room_for(&mut self, peer: PeerId, bytes: u64) {
        self.await_level(peer, self.send_buffer_bytes.saturating_sub(bytes));
    }

    fn await_level(&mut self, peer: PeerId, level: u64) {
        if !self.blocked.contains(&(peer, level)) {
            self.blocked.push((peer, level));
        }
    }
}
