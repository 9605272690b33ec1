//! The part of a Node that is under its lock: the protocol's state, and who waits for what.

use crate::blocked::{Blocked, Queuers};
use crate::giving_way::GivingWay;
use crate::tasks::{Interest, Tasks, Wakers};
use bytes::Bytes;
use denrei_proto::group::{GroupError, GroupId};
use denrei_proto::seal::Seed;
use denrei_proto::{ChannelId, Completion, Config, Endpoint, FlowState, MessageId, PeerId, Place, SendError};
use denrei_wire::Instant;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// An application that takes what is here without a pause has the socket looked at this often, or what
/// comes meanwhile would overflow it: a tenth of the time in which 10 Gbit/s fill 4 MiB.
const LONGEST_WITHOUT_LOOK: Duration = Duration::from_micros(300);
/// An application that queues without a pause what may not leave yet has the timers looked at this often: few
/// are finer.
const LONGEST_WITHOUT_TIMERS: Duration = Duration::from_micros(10);
/// Who has not looked at the sockets for so long has been away: far longer than a turn takes, and no longer than a queue
/// that congestion control takes for one.
const LONG_ABSENCE: Duration = Duration::from_micros(500);
/// Calls from one reading of the clock to the next, at most: reading it costs a tenth of a take, a sixth of a
/// send.
const MOST_CALLS_UNTIMED: u32 = 16;

/// When to look at something although a call has no need to.
#[derive(Debug)]
struct Glance {
    /// The longest time without.
    every: Duration,
    /// Calls until the clock is read again, and how many that were at first: as many as take about that time,
    /// so that the slow read it in each.
    left: u32,
    calls: u32,
    looked_at: Instant,
}

impl Glance {
    fn new(every: Duration) -> Self {
        Self { every, left: 1, calls: 1, looked_at: Instant::ZERO }
    }

    /// There is a call; the time, if a look is due. `now` reads the clock.
    fn due(&mut self, now: impl FnOnce() -> Instant) -> Option<Instant> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return None;
        }
        let now = now();
        let due = now.saturating_since(self.looked_at) >= self.every;
        self.calls = if due { (self.calls / 2).max(1) } else { (self.calls * 2).min(MOST_CALLS_UNTIMED) };
        self.left = self.calls;
        due.then_some(now)
    }
}

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
    /// Who waits for room in a peer's queue.
    pub queuers: Queuers,
    /// Tasks, and threads, that wait for that thread to bring them something.
    pub tasks: Tasks,
    /// How many listeners there are for each address of groups.
    pub listeners: BTreeMap<SocketAddr, usize>,
    /// A thread that drives the Node has panicked: nobody does any more, and there is nothing to wait for.
    pub broken: bool,
    /// Why the Node does not work any more.
    pub failure: Option<Arc<std::io::Error>>,
    send_buffer_bytes: u64,
    /// [`News`] when those who wait were last told.
    seen: News,
    /// Whether who is about to sleep yields first.
    pub giving_way: GivingWay,
    /// When to look at the socket although there is something to take.
    socket: Glance,
    /// When this process was back, and how long it had been away: after as long again it will have read what had come
    /// meanwhile, or else has too much to read.
    back: (Instant, Duration),
    /// When to look at the timers although nothing may be sent.
    timers: Glance,
}

/// What those who wait are told of, each change once: who waits for what a failed Node does not bring would be woken
/// again and again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct News {
    /// [`Endpoint::news`].
    came: u64,
    failed: bool,
    broken: bool,
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
        let mut endpoint = Endpoint::at(place, config, seed, clock.now());
        endpoint.lend_from(denrei_io::LARGE_DATAGRAM_BYTES);
        Self {
            endpoint,
            absorbed: false,
            listeners: BTreeMap::new(),
            clock,
            recent: clock.now(),
            has_driver: false,
            seen: News::default(),
            giving_way: GivingWay::default(),
            socket: Glance::new(LONGEST_WITHOUT_LOOK),
            back: (Instant::ZERO, Duration::ZERO),
            timers: Glance::new(LONGEST_WITHOUT_TIMERS),
            sleeper_until: None,
            queuers: Queuers::default(),
            tasks: Tasks::default(),
            broken: false,
            failure: None,
            send_buffer_bytes,
        }
    }

    /// The flow states of all peers (S8).
    pub fn flows(&self) -> Vec<FlowState> {
        self.endpoint.peers().filter_map(|peer| self.endpoint.flow(peer)).collect()
    }

    /// Goes on with all that another core has, and whoever waits for it there; but tasks, which are to look
    /// again and then wait here.
    pub fn absorb(&mut self, other: &mut Self) -> Wakers {
        let now = self.now();
        self.endpoint.absorb(now, &mut other.endpoint);
        self.queuers.absorb(&mut other.queuers);
        other.absorbed = true;
        other.tasks.take_all()
    }

    /// Queues a message, unless nobody would ever send it.
    ///
    /// # Errors
    /// As [`Endpoint::try_send`]; the Node has failed.
    #[inline]
    pub fn send(
        &mut self,
        to: ChannelId,
        message: Bytes,
        completion: Completion,
    ) -> Result<MessageId, (SendError, Bytes)> {
        if self.broken {
            return Err((SendError::NodeFailed, message));
        }
        self.endpoint.try_send(to, message, completion)
    }

    /// The same, for a group.
    ///
    /// # Errors
    /// As [`Endpoint::group_send`]; the Node has failed.
    pub fn group_send(&mut self, group: GroupId, message: Bytes) -> Result<u64, GroupError> {
        if self.broken {
            return Err(GroupError::Deserted(group));
        }
        self.endpoint.group_send(group, message)
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

    /// Something is taken that was here: whether the sockets were not looked at for long, and nobody
    /// else does.
    pub fn look_is_due(&mut self) -> bool {
        let clock = self.clock;
        !self.is_driven_by_another() && self.socket.due(|| clock.now()).is_some()
    }

    /// The sockets were looked at, or are about to be, at `now`.
    pub fn looked(&mut self, now: Instant) {
        self.socket.looked_at = self.socket.looked_at.max(now);
    }

    /// The sockets were looked at, at `now`. If they had nothing, what came while nobody looked is read.
    pub fn note_look(&mut self, received: bool, now: Instant) {
        if !received {
            self.back.1 = Duration::ZERO;
        }
        self.looked(now);
    }

    /// The sockets were looked at, or slept on, until just now.
    pub fn look_ended(&mut self) {
        let now = self.now();
        self.looked(now);
    }

    /// Whether what has come while nobody looked is still being read, which one look may not do; for so long at most.
    pub fn is_behind(&self, most: Duration) -> bool {
        let (at, away) = self.back;
        self.recent < at + away.min(most)
    }

    /// The sockets are looked at, and something has come: says to the protocol if it may have come long ago. The time.
    pub fn look_found(&mut self) -> Instant {
        let (now, before) = (self.now(), self.socket.looked_at);
        let away = now.saturating_since(before);
        if away >= LONG_ABSENCE {
            self.endpoint.note_absence(now, Some(before));
            self.back = (now, away);
        } else if now >= self.back.0 + self.back.1 {
            self.endpoint.note_absence(now, None);
        }
        self.looked(now);
        now
    }

    /// A peer's host says that nobody is at its port; whether more such word is of use.
    #[cold]
    pub fn hear_refused(&mut self, peer: SocketAddr) -> bool {
        let now = self.now();
        self.endpoint.handle_refused(now, peer)
    }

    /// Whether another thread looks at the sockets.
    pub fn is_driven_by_another(&self) -> bool {
        self.has_driver || self.sleeper_until.is_some()
    }

    /// Whether there is a message or an event to take, or a reason why there will be none.
    pub fn has_incoming(&self) -> bool {
        self.endpoint.is_readable() || self.endpoint.waiting_events() > 0 || self.failure.is_some()
    }

    /// Whether a timer is due.
    pub fn has_timer_due(&self, now: Instant) -> bool {
        self.endpoint.poll_timeout().is_some_and(|at| at <= now)
    }

    /// Something is queued that may not leave yet: the time, if the timers were not looked at for long.
    pub fn timers_to_look_at(&mut self) -> Option<Instant> {
        let clock = self.clock;
        let now = self.timers.due(|| clock.now())?;
        self.timers.looked_at = now;
        self.recent = now;
        Some(now)
    }

    /// Fires the timers that are due.
    pub fn fire_timers(&mut self, now: Instant) {
        if self.has_timer_due(now) {
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

    /// Whether somebody who waits may have got what it waits for.
    pub fn has_news(&mut self) -> bool {
        let news = News { came: self.endpoint.news(), failed: self.failure.is_some(), broken: self.broken };
        let room_came = self.queuers.look(&self.endpoint);
        std::mem::replace(&mut self.seen, news) != news || room_came
    }

    /// Takes the tasks that news concerns: all of them where the Node has failed.
    pub fn take_tasks(&mut self) -> Wakers {
        if self.failure.is_some() || self.broken {
            return self.tasks.take_all();
        }
        self.tasks.take_concerned(&self.endpoint, &self.queuers)
    }

    /// Somebody waits until everything to `peer` is acknowledged: what for.
    pub fn await_empty(&mut self, peer: PeerId) -> Interest {
        self.wait_in_queue(Blocked::until_empty(peer))
    }

    /// Somebody waits for room for `bytes` in the queue to `peer`, or in that of the channel.
    pub fn await_room(&mut self, to: ChannelId, bytes: u64) -> Interest {
        self.wait_in_queue(Blocked::until_room(to, bytes, self.send_buffer_bytes))
    }

    /// Somebody waits until a message of `bytes` could be queued.
    pub fn await_room_for(&mut self, peer: PeerId, bytes: u64) -> Interest {
        self.wait_in_queue(Blocked::until_room_for(peer, bytes, self.send_buffer_bytes))
    }

    fn wait_in_queue(&mut self, blocked: Blocked) -> Interest {
        self.queuers.add(blocked.clone(), &self.endpoint);
        Interest::Room(blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Readings of the clock and looks of an application that makes a call each `pause`, in 100 ms.
    fn readings_and_looks(every: Duration, pause: Duration) -> (u32, u32) {
        let mut glance = Glance::new(every);
        let (mut now, mut readings, mut looks) = (Instant::ZERO, 0, 0);
        while now < Instant::ZERO + Duration::from_millis(100) {
            now += pause;
            let due = glance.due(|| {
                readings += 1;
                now
            });
            if due.is_some() {
                looks += 1;
                glance.looked_at = now;
            }
        }
        (readings, looks)
    }

    #[test]
    fn a_slow_application_looks_often_enough_and_a_fast_one_hardly_reads_the_clock() {
        let (_, looks) = readings_and_looks(LONGEST_WITHOUT_LOOK, Duration::from_millis(1));
        assert_eq!(looks, 100, "each message takes longer than it should go unseen");
        let (_, looks) = readings_and_looks(LONGEST_WITHOUT_LOOK, Duration::from_micros(100));
        assert!((150..=340).contains(&looks), "{looks} looks in 100 ms");
        let (readings, looks) = readings_and_looks(LONGEST_WITHOUT_LOOK, Duration::from_nanos(100));
        assert!(readings <= 1_000_000 / 16 + 1_000, "{readings} readings for a million messages");
        assert!((200..=340).contains(&looks), "{looks} looks in 100 ms");
        let (readings, looks) = readings_and_looks(LONGEST_WITHOUT_TIMERS, Duration::from_nanos(100));
        assert!(readings <= 1_000_000 / 8 && looks >= 7_000, "{readings} readings, {looks} looks");
    }
}
