//! How threads wait: one sleeps on the sockets for all, the others wait for it.
//!
//! Inputs → outputs: a condition and a deadline → its value, or that time is up. The sleeper
//! (leader) does the I/O when it wakes and tells the others (followers); when it leaves, one of
//! them takes its place. In `Drive::Thread` the background thread is always the leader.

use crate::core::{Clock, Core};
use crate::io::{Flush, Held, Io};
use crate::lobby::{Lobby, wake_all};
use crate::tasks::{Interest, Wakers};
use denrei_io::{UdpSocket, Waiter, Waker};
use denrei_layers::wake::Bell;
use denrei_wire::{Instant, Way};
use parking_lot::{Mutex, MutexGuard};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

mod sleep;

use sleep::Relief;

/// Longest sleep without a look: bounds the harm of a clock that jumps.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Timers are looked at this often while the kernel has no room: what they have to say cannot leave, and so stays
/// due.
const WITHOUT_ROOM: Duration = Duration::from_millis(1);

/// How often the background thread looks whether it can take over.
const HANDING_OVER: Duration = Duration::from_micros(100);

/// Who only has a look now and then reads on for so long while its sockets have something, and so does whose time is up:
/// most of what has come would be left behind, and what is waited for may be there.
const READS_ON: Duration = Duration::from_millis(1);

/// Busy polling reads the clock once in so many looks at the socket, less than a microsecond apart:
/// reading it costs a quarter of a look, and no timer is finer than that.
const LOOKS_PER_CLOCK_READING: u32 = 4;

/// A Node's shared state, or that of one of its shards.
pub(crate) struct Shared {
    pub core: Mutex<Core>,
    pub io: Arc<Mutex<Io>>,
    /// Somebody has queued something to send since the last flush began.
    dirty: AtomicBool,
    /// The background thread is busy and will see `dirty` by itself.
    pub hot: AtomicBool,
    /// The last flush found no room in the kernel.
    is_full: AtomicBool,
    /// A thread sleeps on the sockets ([`Core::sleeper_until`] says until when).
    asleep: AtomicBool,
    waiter: Arc<Waiter>,
    waker: Waker,
    /// For event loops of others, once one has asked for it: rung when there is news.
    bell: OnceLock<Arc<Waiter>>,
    /// Where those wait who wait for any shard, if there are several.
    lobby: Option<Arc<Lobby>>,
    pub spin: Duration,
    pub stopping: AtomicBool,
    pub clock: Clock,
    /// Threads of a pipeline do all I/O, if there is one.
    pipeline: OnceLock<Hands>,
}

/// What reaches the threads of a pipeline.
struct Hands {
    /// Wakes the one that runs the protocol.
    bell: Arc<Bell>,
    /// What the last one sends with.
    sender: Arc<Mutex<UdpSocket>>,
}

impl Shared {
    pub fn new(
        core: Core,
        io: Arc<Mutex<Io>>,
        waiter: Arc<Waiter>,
        lobby: Option<Arc<Lobby>>,
        spin: Duration,
    ) -> Self {
        let clock = core.clock();
        Self {
            core: Mutex::new(core),
            io,
            dirty: AtomicBool::new(false),
            hot: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            waker: waiter.waker(),
            waiter,
            bell: OnceLock::new(),
            lobby,
            spin,
            stopping: AtomicBool::new(false),
            clock,
            pipeline: OnceLock::new(),
        }
    }

    /// Something was queued: sends it, unless a thread that is at it anyway will.
    pub fn kick(&self) {
        self.kick_with(None);
    }

    /// Something was queued: sends it if the window lets it go. If not, the acknowledgement that opens
    /// the window, or a timer, will.
    pub fn kick_if_due(&self, mut core: MutexGuard<'_, Core>) {
        // A pipeline is told of everything: it keeps its own alarm.
        let wanted = core.endpoint.wants_transmit() || self.is_pipelined();
        let now = if wanted { Some(core.now()) } else { core.timers_to_look_at() };
        let timer_due = now.is_some_and(|now| core.has_timer_due(now));
        if wanted || timer_due {
            self.kick_with(now.filter(|_| !timer_due).map(|now| (core, now)));
        } else if core.sleeper_is_late() {
            drop(core);
            self.waker.wake();
        }
    }

    fn kick_with(&self, held: Option<Held<'_>>) {
        if self.hot.load(Ordering::SeqCst) {
            self.dirty.store(true, Ordering::SeqCst);
            // It looks once more after it has cooled down, but may have done so just now.
            if self.hot.load(Ordering::SeqCst) {
                return;
            }
        }
        self.send(held);
    }

    /// From now on a pipeline does all I/O.
    pub fn hand_over(&self, bell: Arc<Bell>, sender: Arc<Mutex<UdpSocket>>) {
        let set = self.pipeline.set(Hands { bell, sender });
        debug_assert!(set.is_ok(), "a Node has one pipeline");
        self.set_driver(true);
    }

    /// Whether a thread in the background drives; who did so before hands over.
    pub fn set_driver(&self, drives: bool) {
        let mut core = self.core.lock();
        core.has_driver = drives;
        self.rally(&mut core);
    }

    /// For that thread: waits until nobody else sleeps on the sockets. Two who did would hear each other's calls,
    /// and only one of them could be called.
    pub fn take_over(&self) {
        let mut core = self.core.lock();
        while core.sleeper_until.is_some() {
            self.waker.wake();
            MutexGuard::unlocked(&mut core, || std::thread::sleep(HANDING_OVER));
        }
    }

    /// Whether a pipeline does all I/O.
    pub fn is_pipelined(&self) -> bool {
        self.pipeline.get().is_some()
    }

    /// The socket that a pipeline sends with.
    pub fn sender(&self) -> Option<&Mutex<UdpSocket>> {
        self.pipeline.get().map(|hands| &*hands.sender)
    }

    /// Whether somebody has queued something to send since this was last asked.
    pub fn take_dirty(&self) -> bool {
        self.is_dirty() && self.dirty.swap(false, Ordering::SeqCst)
    }

    /// Whether somebody has queued something to send.
    pub fn is_dirty(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// The socket has become unusable: everybody who waits is told.
    pub fn fail(&self, error: std::io::Error) {
        let mut core = self.core.lock();
        core.failure.get_or_insert(Arc::new(error));
        self.notify(&mut core);
    }

    /// A thread that drives a Node, these shards, has panicked. Once all of them know it everybody who waits is told.
    pub fn break_down<'a>(all: impl Iterator<Item = &'a Self> + Clone) {
        let why = Arc::new(std::io::Error::other("a thread of its has panicked"));
        for core in &mut all.clone().map(|shard| shard.core.lock()).collect::<Vec<_>>() {
            core.broken = true;
            core.failure.get_or_insert(Arc::clone(&why));
        }
        all.for_each(|shard| _ = shard.notify(&mut shard.core.lock()));
    }

    /// Has a pipeline hear what the host of a peer says that does not answer: on a socket of its own, of which
    /// whoever sleeps on the others does not know yet.
    #[cold]
    pub fn watch(&self, peer: Way, now: Instant) {
        self.io.lock().watch(peer, now);
        self.wake();
    }

    /// Sleeps on descriptors, at most for `limit`, until [`wake`](Self::wake).
    pub fn wait_on(&self, fds: Vec<RawFd>, limit: Duration) -> std::io::Result<denrei_io::Wake> {
        self.waiter.wait(fds, None, Some(limit))
    }

    /// Sends until nothing is left; `false` if the kernel has no room before that.
    fn flush(&self, io: &mut MutexGuard<'_, Io>, mut held: Option<Held<'_>>) -> bool {
        let mut looked = false;
        loop {
            match io.flush(&self.core, held.take(), looked) {
                Flush::Done if !self.take_dirty() => return true,
                Flush::Done => {}
                Flush::More => {
                    io.receive(&self.core);
                    looked = true;
                    let tasks = {
                        let mut core = self.core.lock();
                        core.look_ended();
                        self.tell(&mut core)
                    };
                    if !tasks.is_empty() {
                        MutexGuard::unlocked(io, || wake_all(tasks));
                    }
                }
                Flush::Blocked => {
                    // Who sleeps is to wait for room from now on; who goes to sleep later does so by itself.
                    if self.asleep.load(Ordering::SeqCst) {
                        self.waker.wake();
                    }
                    return false;
                }
            }
        }
    }

    /// The sleeper set its alarm before we armed an earlier timer.
    fn wake_sleeper_if_late(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.core.lock().sleeper_is_late() {
            self.waker.wake();
        }
    }

    /// Wakes the thread that sleeps on the sockets.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Receives, fires timers, sends. Whether anything was received.
    pub fn turn(&self) -> bool {
        self.turn_and(|_, received| received).unwrap_or(false)
    }

    /// The same, and whether there is a message or an event to take afterwards; a pipeline says yes.
    pub fn poll(&self) -> bool {
        self.turn_and(|core, _| core.has_incoming()).unwrap_or(true)
    }

    /// Receives, fires timers, sends, and last has a look at the core; `None`: a pipeline does all that, and is
    /// told if there is anything to send.
    fn turn_and<T>(&self, last: impl FnOnce(&Core, bool) -> T) -> Option<T> {
        if self.is_pipelined() {
            self.answer(&mut self.core.lock());
            return None;
        }
        let mut any = false;
        loop {
            let received = self.receive();
            any |= received;
            let mut core = self.core.lock();
            // What came was timed just now.
            let now = if received { core.recently() } else { core.now() };
            core.note_look(received, now);
            core.fire_timers(now);
            self.answer(&mut core);
            self.notify(&mut core);
            if !(received && core.is_behind(READS_ON)) {
                return Some(last(&core, any));
            }
        }
    }

    /// Receives, and fires timers, for an application that has enough to take and does not wait.
    fn look(&self) {
        self.receive();
        let mut core = self.core.lock();
        let now = core.now();
        core.looked(now);
        core.fire_timers(now);
        self.notify(&mut core);
    }

    /// Receives what is there; whether that was anything.
    fn receive(&self) -> bool {
        self.with_io(|io| io.receive(&self.core)) > 0
    }

    /// Works with the socket, and sends what others queued while they could not have the lock.
    pub fn with_io<T>(&self, work: impl FnOnce(&mut Io) -> T) -> T {
        let result = work(&mut self.io.lock());
        if self.dirty.load(Ordering::SeqCst) && !self.hot.load(Ordering::SeqCst) {
            self.send(None);
        }
        result
    }

    /// Sends if there is anything to send, the core's lock released meanwhile.
    pub fn answer(&self, core: &mut MutexGuard<'_, Core>) {
        if core.endpoint.wants_transmit() {
            MutexGuard::unlocked(core, || self.send(None));
        }
    }

    /// Sends what is queued.
    fn send(&self, mut held: Option<Held<'_>>) {
        if let Some(hands) = self.pipeline.get() {
            drop(held);
            self.dirty.store(true, Ordering::SeqCst);
            return hands.bell.ring();
        }
        let mut free = self.io.try_lock();
        if free.is_none() {
            // Whoever has it looks at `dirty` after letting go of it, which may be just now.
            drop(held.take());
            self.dirty.store(true, Ordering::SeqCst);
            free = self.io.try_lock();
        }
        while let Some(mut io) = free {
            let has_room = self.flush(&mut io, held.take());
            self.is_full.store(!has_room, Ordering::Relaxed);
            drop(io);
            free = if has_room && self.is_dirty() { self.io.try_lock() } else { None };
        }
        self.wake_sleeper_if_late();
    }

    /// Tells those who wait that something may have come for them. Due after whatever may have
    /// received, by whichever thread: the sleeper's sockets may have been emptied by another. Whether the
    /// lock was let go of meanwhile.
    pub fn notify(&self, core: &mut MutexGuard<'_, Core>) -> bool {
        let tasks = self.tell(core);
        if tasks.is_empty() {
            return false;
        }
        MutexGuard::unlocked(core, || wake_all(tasks));
        true
    }

    /// The same, but for tasks, which are the caller's to wake.
    fn tell(&self, core: &mut Core) -> Wakers {
        let asleep = core.sleeper_until.is_some();
        let bell = self.bell.get();
        let anybody = asleep || !core.tasks.is_empty() || bell.is_some();
        let lobby = self.lobby.as_deref().filter(|lobby| !lobby.is_empty());
        if !(anybody || lobby.is_some()) || !core.has_news() {
            return Wakers::new();
        }
        if asleep {
            self.waker.wake();
        }
        if let Some(bell) = bell {
            bell.waker().wake();
        }
        if let Some(lobby) = lobby {
            lobby.call();
        }
        core.take_tasks()
    }

    /// What rings when there is news, for event loops of others; rung at first.
    pub fn bell(&self) -> std::io::Result<&Arc<Waiter>> {
        if self.bell.get().is_none() {
            let bell = Waiter::new()?;
            bell.waker().wake();
            self.share_bell(&Arc::new(bell));
        }
        Ok(self.bell.get().expect("it was set just now"))
    }

    /// From now on, another shard's bell rings for this one's news as well.
    pub fn share_bell(&self, bell: &Arc<Waiter>) {
        // Another thread may have been first: then its bell is as good.
        let _ = self.bell.set(Arc::clone(bell));
    }

    /// Waits until `ready` returns something, or `timeout` has passed; `None` for no limit. Does not wait where
    /// nobody drives the Node any more.
    pub fn wait_for<T>(
        &self,
        timeout: Option<Duration>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        self.wait_until(timeout, |core| ready(core).ok_or(Interest::Any))
    }

    /// The same for who says what it waits for otherwise: other news does not wake it.
    pub fn wait_until<T>(
        &self,
        timeout: Option<Duration>,
        mut ready: impl FnMut(&mut Core) -> Result<T, Interest>,
    ) -> Option<T> {
        let _relief = Relief(self);
        let mut core = self.core.lock();
        if let Ok(value) = ready(&mut core) {
            if core.look_is_due() {
                MutexGuard::unlocked(&mut core, || self.look());
            }
            self.answer(&mut core);
            return Some(value);
        }
        let began = core.now();
        let deadline = timeout.map(|timeout| began + timeout);
        let mut now = began;
        let mut looks: u32 = 0;
        loop {
            let mut received = false;
            if !core.is_driven_by_another() {
                received = MutexGuard::unlocked(&mut core, || self.receive());
                core.note_look(received, now);
                core.fire_timers(now);
            }
            // Also if another drives: what was only queued may be the question that is to be answered.
            self.answer(&mut core);
            // From here until the wait the lock stays taken: what comes is not missed.
            let interest = match ready(&mut core) {
                Ok(value) => {
                    self.answer(&mut core);
                    self.leave(&mut core);
                    return Some(value);
                }
                Err(interest) => interest,
            };
            if looks.is_multiple_of(LOOKS_PER_CLOCK_READING) {
                now = core.now();
            }
            looks = looks.wrapping_add(1);
            let reads_on = if received { READS_ON } else { Duration::ZERO };
            if core.broken || deadline.is_some_and(|deadline| deadline + reads_on <= now) {
                self.leave(&mut core);
                return None;
            }
            if self.notify(&mut core) {
                continue;
            }
            if core.is_driven_by_another() {
                Self::follow(&mut core, &interest, deadline);
                looks = 0;
            } else if now >= began + self.spin {
                self.sleep(&mut core, deadline);
                looks = 0;
                now = core.recently();
            }
        }
    }
}

#[cfg(test)]
mod tests;
