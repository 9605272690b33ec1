//! The user of a stack (L8): allocates PDUs, sends them down, and frees what comes up.
//!
//! Inputs → outputs: how many PDUs of what size → that many down, with so many under way at most;
//! when the last has come back, how long it took. Data is neither written nor read, as in the paper.

use crate::pool::{Pdu, Pool};
use crate::stack::{Layer, Outlet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// PDUs made in one turn: as many as a queue is read at a time.
const BATCH: usize = 32;

/// What a user sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// PDUs that do not count: caches fill, pools grow.
    pub warmup: u64,
    /// PDUs that count.
    pub count: u64,
    /// Octets of each.
    pub bytes: usize,
    /// Octets in front, for all headers below.
    pub head_room: usize,
    /// PDUs under way at most.
    pub under_way: u64,
}

/// What a user has seen; to be looked at from any thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Seen {
    /// PDUs that have come back.
    pub received: AtomicU64,
    /// Nanoseconds from the last PDU of the warm-up to the last of all; 0 until then.
    pub elapsed_ns: AtomicU64,
}

/// The layer above all others.
#[derive(Debug)]
pub struct User {
    traffic: Traffic,
    pool: Pool,
    sent: u64,
    received: u64,
    began: Instant,
    closing: bool,
    seen: Arc<Seen>,
}

impl User {
    /// A user that sends as soon as the stack runs.
    pub fn new(traffic: Traffic, pool: Pool) -> Self {
        let seen = Arc::default();
        Self { traffic, pool, sent: 0, received: 0, began: Instant::now(), closing: false, seen }
    }

    /// What it sees, to be kept when it goes to its thread.
    pub fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// PDUs that may be sent now.
    fn allowed(&self) -> usize {
        let left = self.traffic.warmup + self.traffic.count - self.sent;
        let room = self.traffic.under_way.saturating_sub(self.sent - self.received);
        if self.closing { 0 } else { left.min(room).min(BATCH as u64) as usize }
    }
}

impl Layer<Pdu> for User {
    fn from_above(&mut self, pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        out.down(pdu);
    }

    #[inline]
    fn from_below(&mut self, pdu: Pdu, _: &mut Outlet<'_, Pdu>) {
        drop(pdu);
        self.received += 1;
        if self.received == self.traffic.warmup {
            self.began = Instant::now();
        }
        if self.received == self.traffic.warmup + self.traffic.count {
            let elapsed_ns = self.began.elapsed().as_nanos() as u64;
            self.seen.elapsed_ns.store(elapsed_ns.max(1), Ordering::Release);
        }
    }

    fn poll(&mut self, out: &mut Outlet<'_, Pdu>) -> bool {
        let allowed = self.allowed();
        for made in 0..allowed {
            // An exhausted pool is back-pressure like any other.
            let Ok(pdu) = self.pool.allocate(self.traffic.head_room, self.traffic.bytes) else {
                return made > 0;
            };
            self.sent += 1;
            out.down(pdu);
        }
        self.seen.received.store(self.received, Ordering::Relaxed);
        allowed > 0
    }

    fn close(&mut self) {
        self.closing = true;
    }

    fn is_quiet(&self) -> bool {
        self.sent == self.received
    }
}
