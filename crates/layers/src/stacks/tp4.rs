//! ISO transport class 4 as a layer: the data phase (L8; X.224 §12.2, §13, extended formats).
//!
//! Inputs → outputs: a PDU from above → a DT TPDU down, as credit allows; a DT from below → its data
//! up, and after half a credit an AK down; an AK from below → credit, and descriptors freed. As in
//! the paper a layer talks to itself through a loop-back: it is both ends of its connection.
//!
//! Retention keeps a descriptor of each DT until it is acknowledged (L7) and sends a copy again when
//! that takes too long: a copy, for the layers below have put their headers in front of the first.
//!
//! Deviations from X.224: the connection is there from the beginning; DTs out of sequence are
//! dropped, not kept (the loop-back keeps the order); one TPDU per TSDU (EOT is always set).

pub use super::tpdu::HEADER_BYTES;
use super::tpdu::{self, EOT, Tpdu};
use crate::pool::{Pdu, Pool};
use crate::stack::{Layer, Outlet};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The clock is read once in so many busy turns: a turn lasts some microseconds, timers are of
/// milliseconds.
const TURNS_PER_CLOCK_READING: u32 = 64;

/// T1 is doubled so often at most: to 64 times what was configured.
const MAX_DOUBLINGS: u32 = 6;

/// What a TP4 layer does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tp4Config {
    /// DTs that may be under way, 1 … 65,535.
    pub credit: u16,
    /// Keep DTs until they are acknowledged, and send them again if that takes too long.
    pub retain: bool,
    /// Set and verify the checksum.
    pub checksum: bool,
    /// Octets of head room for the layers below, in TPDUs that this layer allocates.
    pub head_room: usize,
    /// T1: after so long without an acknowledgement all DTs that are kept are sent again. It doubles with
    /// each time that this happens in a row, up to 64 times as long, until something is acknowledged: where
    /// the layers below take longer than T1, what is sent for nothing must not hold up what is needed.
    /// Each window still costs some copies there, so T1 is best longer than an acknowledgement takes to
    /// come: above a TP4 layer that has losses to repair, several times that layer's T1.
    pub retransmit_after: Duration,
    /// A_L: what is not half a credit is acknowledged after so long.
    pub acknowledge_after: Duration,
}

impl Default for Tp4Config {
    fn default() -> Self {
        Self {
            credit: 64,
            retain: true,
            checksum: false,
            head_room: 128,
            retransmit_after: Duration::from_millis(200),
            acknowledge_after: Duration::from_millis(2),
        }
    }
}

/// What a TP4 layer has counted; to be looked at from any thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Tp4Counters {
    /// AKs sent.
    pub acknowledgements: AtomicU64,
    /// DTs sent again.
    pub retransmitted: AtomicU64,
    /// TPDUs dropped: damaged, or none of ours.
    pub bad: AtomicU64,
    /// DTs dropped: not the next in sequence.
    pub out_of_sequence: AtomicU64,
    /// PDUs dropped: no room for a header.
    pub refused: AtomicU64,
}

/// A TP4 layer.
#[derive(Debug)]
pub struct Tp4 {
    config: Tp4Config,
    pool: Pool,
    counters: Arc<Tp4Counters>,
    /// The number of the next DT.
    next: u32,
    /// The oldest DT that is not acknowledged.
    acknowledged: u32,
    /// The first DT that there is no credit for.
    upper_edge: u32,
    /// DTs from `acknowledged` on.
    kept: VecDeque<Pdu>,
    /// The next DT to be received.
    expected: u32,
    /// DTs received since the last AK.
    unacknowledged: u16,
    /// An AK is due, even if half a credit is not used up.
    hurry: bool,
    closing: bool,
    timers: Timers,
}

/// When something last went on.
#[derive(Debug)]
struct Timers {
    /// Until the clock is read. Nobody sleeps between busy turns: who asks for how long begins anew.
    turns_left: Cell<u32>,
    /// Since then neither an AK came in nor a DT had to be sent again.
    progress: Instant,
    /// Since then DTs wait to be acknowledged by us.
    waiting: Instant,
    progressed: bool,
    began_waiting: bool,
    /// How often T1 is doubled at present.
    doublings: u32,
}

impl Timers {
    /// How long to wait for an acknowledgement, where T1 is so long.
    fn patience(&self, t1: Duration) -> Duration {
        t1.saturating_mul(1 << self.doublings)
    }
}

impl Tp4 {
    /// A layer with a pool of its own, for AKs and for copies.
    ///
    /// # Panics
    /// If the credit is 0.
    pub fn new(config: Tp4Config, pool: Pool) -> Self {
        assert!(config.credit > 0, "without credit nothing is ever sent");
        let now = Instant::now();
        let timers = Timers {
            turns_left: Cell::new(0),
            progress: now,
            waiting: now,
            progressed: false,
            began_waiting: false,
            doublings: 0,
        };
        Self {
            upper_edge: u32::from(config.credit),
            config,
            pool,
            counters: Arc::default(),
            next: 0,
            acknowledged: 0,
            kept: VecDeque::new(),
            expected: 0,
            unacknowledged: 0,
            hurry: false,
            closing: false,
            timers,
        }
    }

    /// The counters, to be kept when the layer goes to its thread.
    pub fn counters(&self) -> Arc<Tp4Counters> {
        Arc::clone(&self.counters)
    }

    /// Puts a DT's header in front of `pdu`; `false` if there is no room.
    fn write_dt(&mut self, pdu: &mut Pdu) -> bool {
        let mut header = [0; HEADER_BYTES];
        let header = tpdu::dt(&mut header, self.next, self.config.checksum.then_some(pdu));
        pdu.prepend(header.len()).map(|place| place.copy_from_slice(header)).is_ok()
    }

    /// Sends an AK; later, if there is no buffer for it.
    fn acknowledge(&mut self, out: &mut Outlet<'_, Pdu>) {
        let bytes = tpdu::ak_bytes(self.config.checksum);
        let Ok(mut pdu) = self.pool.allocate(self.config.head_room, bytes) else {
            self.hurry = true;
            return;
        };
        let place = pdu.get_mut().expect("nobody else has it");
        tpdu::ak(place, self.expected, self.config.credit, self.config.checksum);
        (self.unacknowledged, self.hurry) = (0, false);
        count(&self.counters.acknowledgements);
        out.down(pdu);
    }

    fn on_dt(&mut self, mut pdu: Pdu, number: u32, out: &mut Outlet<'_, Pdu>) {
        if number != self.expected & !EOT {
            // Sent again: its AK was lost or is late. Another one is due, now.
            count(&self.counters.out_of_sequence);
            return self.acknowledge(out);
        }
        self.expected = self.expected.wrapping_add(1);
        self.timers.began_waiting |= self.unacknowledged == 0;
        self.unacknowledged += 1;
        pdu.strip(tpdu::dt_bytes(self.config.checksum));
        out.up(pdu);
        if self.unacknowledged >= (self.config.credit / 2).max(1) {
            self.acknowledge(out);
        }
    }

    fn on_ak(&mut self, number: u32, credit: u16) {
        let newly = number.wrapping_sub(self.acknowledged) & !EOT;
        if newly > self.next.wrapping_sub(self.acknowledged) {
            // Of the past, or of a future that has not been sent.
            return count(&self.counters.out_of_sequence);
        }
        self.acknowledged = self.acknowledged.wrapping_add(newly);
        self.kept.drain(..(newly as usize).min(self.kept.len()));
        self.upper_edge = self.acknowledged.wrapping_add(u32::from(credit));
        self.timers.progressed |= newly > 0;
    }

    /// Sends everything again that is kept, or as much as there are buffers for.
    fn retransmit(&mut self, out: &mut Outlet<'_, Pdu>) {
        for kept in &self.kept {
            let Ok(copy) = self.pool.copy(kept, self.config.head_room) else { return };
            count(&self.counters.retransmitted);
            out.down(copy);
        }
    }

    fn fire_timers(&mut self, now: Instant, out: &mut Outlet<'_, Pdu>) -> bool {
        let timers = &mut self.timers;
        if std::mem::take(&mut timers.progressed) || self.next == self.acknowledged {
            (timers.progress, timers.doublings) = (now, 0);
        }
        if std::mem::take(&mut timers.began_waiting) {
            timers.waiting = now;
        }
        let late = now - timers.waiting >= self.config.acknowledge_after;
        let acknowledges = self.hurry || self.unacknowledged > 0 && (self.closing || late);
        let retransmits =
            !self.kept.is_empty() && now - timers.progress >= timers.patience(self.config.retransmit_after);
        if acknowledges {
            self.acknowledge(out);
        }
        if retransmits {
            self.timers.progress = now;
            self.timers.doublings = (self.timers.doublings + 1).min(MAX_DOUBLINGS);
            self.retransmit(out);
        }
        acknowledges || retransmits
    }
}

fn count(counter: &AtomicU64) {
    // One writer: a load and a store are enough.
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

impl Layer<Pdu> for Tp4 {
    fn takes_from_above(&self) -> bool {
        // A receiver may take credit back: the edge may lie behind what has been sent.
        self.upper_edge.wrapping_sub(self.next) as i32 > 0
    }

    fn from_above(&mut self, mut pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        if !self.write_dt(&mut pdu) {
            return count(&self.counters.refused);
        }
        self.next = self.next.wrapping_add(1);
        if self.config.retain {
            self.kept.push_back(pdu.share());
        }
        out.down(pdu);
    }

    fn from_below(&mut self, pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        match tpdu::read(&pdu, self.config.checksum) {
            Some(Tpdu::Dt { number }) => self.on_dt(pdu, number, out),
            Some(Tpdu::Ak { number, credit }) => self.on_ak(number, credit),
            None => count(&self.counters.bad),
        }
    }

    fn poll(&mut self, out: &mut Outlet<'_, Pdu>) -> bool {
        if self.is_quiet() {
            return false;
        }
        let turns_left = self.timers.turns_left.get();
        if !self.closing && turns_left > 0 {
            self.timers.turns_left.set(turns_left - 1);
            return false;
        }
        self.timers.turns_left.set(TURNS_PER_CLOCK_READING);
        self.fire_timers(Instant::now(), out)
    }

    fn idle_for(&self) -> Option<Duration> {
        self.timers.turns_left.set(0);
        (!self.is_quiet()).then(|| self.config.acknowledge_after.min(self.config.retransmit_after))
    }

    fn close(&mut self) {
        self.closing = true;
    }

    fn is_quiet(&self) -> bool {
        self.next == self.acknowledged && self.unacknowledged == 0
    }

    #[inline]
    fn prefetch(&self, pdu: &Pdu) {
        pdu.prefetch();
    }
}

#[cfg(test)]
mod tests;
