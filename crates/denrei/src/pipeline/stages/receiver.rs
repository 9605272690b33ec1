//! The uppermost stage: receive calls, the sleep between them, and what is on its way to the protocol.

use super::{Arrival, Parcel};
use crate::io::{Io, copy_error};
use crate::shards::Steering;
use crate::wait::Shared;
use denrei_io::UdpSocket;
use denrei_layers::wake::Sleeper;
use denrei_layers::{Layer, Outlet};
use denrei_wire::Instant;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// A look ends though there is always more once it has brought so many bytes, or was so many calls: a buffer of 8 MiB,
/// which the kernel makes of the 4 that are asked for, holds no more of large datagrams; nor of the smallest, 768 bytes
/// each in its count, which come in 683 calls of 16. More than that has come since the look began.
const LOOK_BYTES: u64 = 8 << 20;
pub(super) const LOOK_CALLS: u32 = 700;

/// What has come and not been seen by the protocol yet. A timer that is due waits for that: this process
/// may not have run for a while, and the acknowledgement that the timer waits for be here.
pub(in crate::pipeline) struct Inbound {
    io: Arc<Mutex<Io>>,
    /// Receive calls that are under way, and arrivals that have not passed the last protocol stage.
    under_way: AtomicUsize,
    /// A timer waits for what is in the sockets.
    is_awaited: AtomicBool,
}

impl Inbound {
    pub fn new(shared: &Shared) -> Self {
        Self {
            io: Arc::clone(&shared.io),
            under_way: AtomicUsize::new(0),
            is_awaited: AtomicBool::new(false),
        }
    }

    /// Whether there is nothing: neither in the socket nor between it and the protocol.
    pub fn is_empty(&self) -> bool {
        // In this order: what the socket no longer has was counted before it was received. Whoever has the
        // lock may be receiving.
        self.io.try_lock().is_some_and(|io| !io.socket.is_readable())
            && self.under_way.load(Ordering::SeqCst) == 0
    }

    /// A timer waits: all sockets are to be looked at.
    pub fn await_all(&self) {
        self.is_awaited.store(true, Ordering::Relaxed);
    }

    fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::SeqCst);
    }

    pub fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Receives.
pub(in crate::pipeline) struct Receiver {
    shards: Arc<[Arc<Shared>]>,
    steering: Arc<Steering>,
    pub(super) inbound: Arc<Inbound>,
    // Boxed when they are made, and passed on as they are.
    #[allow(clippy::vec_box)]
    free: Vec<Box<Arrival>>,
    pub(super) look: Look,
    sleeper: SocketSleeper,
}

/// A look at all sockets, until what was in them when it began has been received. There is one while a timer waits.
pub(super) struct Look {
    began: Instant,
    /// Calls until it ends; 0: there is none.
    pub left: u32,
    /// Bytes received when it ends.
    until: u64,
    /// When the last one began that has ended.
    ended: Option<Instant>,
}

impl Look {
    /// A call is about to be made; a look begins with it if a timer waits for one.
    fn turn(&mut self, shared: &Shared, socket: &mut UdpSocket, inbound: &Inbound) {
        if self.left == 0 && inbound.is_awaited.swap(false, Ordering::Relaxed) {
            socket.hint_readable(u64::MAX);
            (self.began, self.left) = (shared.clock.now(), LOOK_CALLS);
            self.until = socket.counters().recv_bytes + LOOK_BYTES;
        }
    }

    /// A call was made: it brings what one socket has, and no more than its buffers take.
    fn called(&mut self, socket: &UdpSocket) {
        if self.left == 0 {
            return;
        }
        let goes_on = socket.counters().recv_bytes < self.until && socket.is_readable();
        self.left = if goes_on { self.left - 1 } else { 0 };
        if self.left == 0 {
            self.ended = Some(self.began);
        }
    }
}

/// Sleeps on the sockets.
struct SocketSleeper {
    shared: Arc<Shared>,
    /// There is nothing to receive into, or the sockets have failed: what is readable is no reason to wake up.
    is_deaf: bool,
}

impl Receiver {
    pub fn new(
        shards: Arc<[Arc<Shared>]>,
        steering: Arc<Steering>,
        inbound: Arc<Inbound>,
        arrivals: usize,
    ) -> Self {
        let free = (0..arrivals).map(|_| Box::new(Arrival::new())).collect();
        let sleeper = SocketSleeper { shared: Arc::clone(&shards[0]), is_deaf: false };
        let look = Look { began: Instant::ZERO, left: 0, until: 0, ended: None };
        Self { shards, steering, inbound, free, look, sleeper }
    }

    /// A peer's host says that nobody is at its port; whether more such word is of use.
    #[cold]
    fn hear_refused(&self, peer: SocketAddr) -> bool {
        let shard = &self.shards[self.steering.at(peer)];
        let in_question = shard.core.lock().hear_refused(peer);
        shard.kick();
        in_question
    }
}

impl Layer<Parcel> for Receiver {
    fn from_above(&mut self, _: Parcel, _: &mut Outlet<'_, Parcel>) {}

    fn from_below(&mut self, parcel: Parcel, _: &mut Outlet<'_, Parcel>) {
        if let Parcel::Arrival(arrival) = parcel {
            self.free.push(arrival);
        }
    }

    fn poll(&mut self, out: &mut Outlet<'_, Parcel>) -> bool {
        let arrival = self.free.pop();
        self.sleeper.is_deaf = arrival.is_none();
        let Some(mut arrival) = arrival else { return false };
        self.inbound.begin();
        let received = {
            let mut io = self.shards[0].io.lock();
            self.look.turn(&self.shards[0], &mut io.socket, &self.inbound);
            let received = io.socket.recv_held(&mut arrival.buffers);
            self.look.called(&io.socket);
            io.pass_refusals(|peer| self.hear_refused(peer));
            received
        };
        match received {
            Ok(1..) => {
                arrival.looked_at = self.look.ended;
                out.down(Parcel::Arrival(arrival));
                return true;
            }
            Ok(0) => {}
            Err(error) => {
                self.shards.iter().for_each(|shard| shard.fail(copy_error(&error)));
                self.sleeper.is_deaf = true;
            }
        }
        self.inbound.end();
        self.free.push(arrival);
        false
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleeper> {
        Some(&mut self.sleeper)
    }
}

impl Sleeper for SocketSleeper {
    fn sleep(&mut self, limit: Duration) {
        let mut fds = Vec::new();
        if !self.is_deaf {
            let mut io = self.shared.io.lock();
            io.follow_interfaces(self.shared.clock.now());
            fds.extend(io.socket.raw_fds());
        }
        // A descriptor that was closed meanwhile ends the sleep: the next one has the new list.
        if let Ok(wake) = self.shared.wait_on(fds, limit) {
            self.shared.io.lock().socket.hint_readable(wake.readable);
        }
    }

    fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        // The Node's state may know the bell that this is kept in: where receiving and the protocol share a
        // thread. Were each to keep the other, the socket would outlive the Node.
        let shared = Arc::downgrade(&self.shared);
        Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.wake();
            }
        })
    }
}
