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
    turns: u32,
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
            turns: 0,
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
        self.timers.turns = self.timers.turns.wrapping_add(1);
        if !self.closing && !self.timers.turns.is_multiple_of(TURNS_PER_CLOCK_READING) {
            return false;
        }
        self.fire_timers(Instant::now(), out)
    }

    fn idle_for(&self) -> Option<Duration> {
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
mod tests {
    use super::super::tpdu::{AK, AK_BYTES};
    use super::*;
    use crate::pool::PoolConfig;

    /// A layer and its loop-back, driven by hand. `keep` decides what gets through.
    struct Loop {
        tp4: Tp4,
        user: Pool,
        down: VecDeque<Pdu>,
        up: VecDeque<Pdu>,
    }

    impl Loop {
        fn new(config: Tp4Config) -> Self {
            let tp4 = Tp4::new(config, Pool::new(&PoolConfig::uniform(64)));
            Self { tp4, user: Pool::default(), down: VecDeque::new(), up: VecDeque::new() }
        }

        fn send(&mut self, octet: u8) {
            let mut pdu = self.user.allocate(HEADER_BYTES, 50).unwrap();
            pdu.get_mut().unwrap().fill(octet);
            self.tp4.from_above(pdu, &mut Outlet::new(&mut self.down, &mut self.up));
        }

        fn pass(&mut self, mut keep: impl FnMut(&mut Pdu) -> bool) {
            while let Some(mut pdu) = self.down.pop_front() {
                if keep(&mut pdu) {
                    self.tp4.from_below(pdu, &mut Outlet::new(&mut self.down, &mut self.up));
                }
            }
        }

        fn received(&mut self) -> Vec<u8> {
            self.up.drain(..).map(|pdu| pdu[0]).collect()
        }

        fn fire(&mut self, after: Duration) {
            let now = Instant::now() + after;
            self.tp4.fire_timers(now, &mut Outlet::new(&mut self.down, &mut self.up));
        }
    }

    #[test]
    fn credit_stops_the_sender_and_an_ak_after_half_of_it_lets_it_go_on() {
        let mut pair = Loop::new(Tp4Config { credit: 4, checksum: true, ..Tp4Config::default() });
        for octet in 0..4 {
            assert!(pair.tp4.takes_from_above());
            pair.send(octet);
        }
        assert!(!pair.tp4.takes_from_above(), "four are under way");
        assert_eq!(pair.tp4.kept.len(), 4);
        pair.pass(|_| true);
        assert_eq!(pair.received(), [0, 1, 2, 3]);
        assert_eq!(pair.tp4.counters().acknowledgements.load(Ordering::Relaxed), 2);
        assert!(pair.tp4.takes_from_above() && pair.tp4.is_quiet() && pair.tp4.kept.is_empty());
    }

    #[test]
    fn checksums_fit_in_buffers_that_were_used_before() {
        let mut pair = Loop::new(Tp4Config { credit: 2, checksum: true, ..Tp4Config::default() });
        for octet in 0..200 {
            pair.send(octet);
            pair.pass(|_| true);
            assert_eq!(pair.received(), [octet]);
        }
        assert_eq!(pair.tp4.counters().bad.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn tpdus_are_x224s() {
        let mut pair = Loop::new(Tp4Config { credit: 2, ..Tp4Config::default() });
        pair.send(9);
        assert_eq!(pair.down[0][..9], [7, 0xf0, 0, 1, 0x80, 0, 0, 0, 9]);
        let mut seen = Vec::new();
        pair.pass(|pdu| {
            seen.push(pdu.to_vec());
            true
        });
        assert_eq!(seen[1], [9, 0x60, 0, 1, 0, 0, 0, 1, 0, 2]);
        assert_eq!(pair.received(), [9]);
    }

    #[test]
    fn what_is_lost_is_sent_again_and_nothing_comes_twice() {
        let mut pair = Loop::new(Tp4Config { credit: 6, checksum: true, ..Tp4Config::default() });
        (0..6).for_each(|octet| pair.send(octet));
        let mut count = 0;
        pair.pass(|pdu| {
            count += 1;
            if count == 5 {
                // Damaged, not lost: the checksum finds it. (Kept as well, so written to a copy.)
                let mut copy = Pool::default().copy(pdu, 0).unwrap();
                copy.get_mut().unwrap()[20] ^= 1;
                *pdu = copy;
            }
            count != 2
        });
        assert_eq!(pair.received(), [0]);
        assert!(!pair.tp4.is_quiet());
        pair.fire(Duration::ZERO);
        assert!(pair.down.is_empty(), "something was acknowledged just now");
        pair.fire(Duration::from_secs(1));
        pair.pass(|_| true);
        assert_eq!(pair.received(), [1, 2, 3, 4, 5]);
        pair.fire(Duration::from_millis(1001));
        pair.fire(Duration::from_millis(1004));
        pair.pass(|_| true);
        assert!(pair.received().is_empty() && pair.tp4.is_quiet());
        assert!(pair.tp4.counters().bad.load(Ordering::Relaxed) == 1);
    }

    #[test]
    fn whoever_hears_nothing_asks_at_ever_longer_intervals_until_there_is_an_answer() {
        let ms = Duration::from_millis;
        let mut pair = Loop::new(Tp4Config { credit: 4, retransmit_after: ms(10), ..Tp4Config::default() });
        pair.send(0);
        pair.down.clear();
        let mut asked = Vec::new();
        for at in 0..3000 {
            pair.fire(ms(at));
            if pair.down.pop_front().is_some() {
                asked.push(at);
            }
        }
        let pauses: Vec<_> = asked.windows(2).map(|two| two[1] - two[0]).collect();
        assert!(asked.len() == 9 && asked[0] <= 10, "{asked:?}");
        for (pause, doubled) in pauses.iter().zip([20, 40, 80, 160, 320, 640, 640, 640]) {
            assert!(pause.abs_diff(doubled) <= doubled / 4, "{pauses:?}");
        }
        // Progress brings T1 back.
        pair.tp4.retransmit(&mut Outlet::new(&mut pair.down, &mut pair.up));
        pair.pass(|_| true);
        pair.fire(ms(3010));
        pair.fire(ms(3020));
        pair.pass(|_| true);
        assert!(pair.tp4.is_quiet());
        pair.fire(ms(3030));
        assert_eq!(pair.tp4.timers.patience(ms(10)), ms(10));
    }

    #[test]
    fn the_last_are_acknowledged_after_a_while() {
        let mut pair = Loop::new(Tp4Config { credit: 64, ..Tp4Config::default() });
        pair.send(1);
        pair.pass(|_| true);
        assert!(!pair.tp4.is_quiet());
        pair.fire(Duration::ZERO);
        assert!(pair.down.is_empty(), "not at once");
        pair.fire(Duration::from_millis(5));
        pair.pass(|_| true);
        assert!(pair.tp4.is_quiet());
    }

    #[test]
    fn credit_that_is_taken_back_stops_the_sender() {
        let mut pair = Loop::new(Tp4Config { credit: 8, ..Tp4Config::default() });
        (0..5).for_each(|octet| pair.send(octet));
        let mut say = |number: u8, credit: u8| {
            let mut ak = pair.user.allocate(0, AK_BYTES).unwrap();
            ak.get_mut().unwrap().copy_from_slice(&[9, AK, 0, 1, 0, 0, 0, number, 0, credit]);
            pair.tp4.from_below(ak, &mut Outlet::new(&mut pair.down, &mut pair.up));
            pair.tp4.takes_from_above()
        };
        assert!(!say(1, 2), "up to 3, and 5 are sent");
        assert!(!say(1, 0) && !say(2, 3), "up to 5");
        assert!(say(2, 4), "a sixth");
    }

    #[test]
    fn nothing_from_below_is_trusted() {
        let mut pair = Loop::new(Tp4Config::default());
        let mut pool = Pool::default();
        for content in [
            &[][..],
            &[7],
            &[7, 0xf0, 0, 1],
            &[9, 0x60, 0, 1, 0, 0, 0, 9, 0, 1],
            &[1, 2, 0, 1],
            &[0; 40],
            // Headers that say they are longer, or shorter, than they are.
            &[9, 0xf0, 0, 1, 0x80, 0, 0, 0, 9, 9],
            &[6, 0xf0, 0, 1, 0x80, 0, 0, 0, 9],
            &[7, 0x60, 0, 1, 0, 0, 0, 0, 0, 1],
        ] {
            let mut pdu = pool.allocate(0, content.len()).unwrap();
            pdu.get_mut().unwrap().copy_from_slice(content);
            pair.tp4.from_below(pdu, &mut Outlet::new(&mut pair.down, &mut pair.up));
        }
        assert!(pair.down.is_empty() && pair.up.is_empty());
        let counters = pair.tp4.counters();
        assert_eq!(counters.bad.load(Ordering::Relaxed), 8);
        assert_eq!(counters.out_of_sequence.load(Ordering::Relaxed), 1, "an AK for what was never sent");
    }
}
