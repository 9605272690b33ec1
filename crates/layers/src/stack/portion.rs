//! How many PDUs a thread hands on at a time.
//!
//! Inputs → outputs: how many were handed on, and how long that took → how many to hand on together. Light ones go in
//! batches, for each store that shows some to the neighbour has a cache line go from core to core; of heavy ones
//! the neighbour would wait idly for the first until the last of a batch is done.

use std::time::Instant;

/// PDUs taken from a queue, and handed on, at a time at most: enough to share the cost of an index's way between cores,
/// few enough to stay in the first-level cache.
pub(super) const BATCH: usize = 32;
const _: () = assert!(BATCH.is_power_of_two());

/// What is made in this time goes together: some ten times as long as the way between two cores.
const HAND_ON_EVERY_NS: u64 = 2_000;

/// How many PDUs go to a neighbour together.
#[derive(Debug)]
pub(super) struct Portion {
    /// A power of two, up to [`BATCH`].
    pdus: usize,
    /// PDUs handed on in this turn.
    handed_on: usize,
    /// When the last turn ended, if it was a busy one.
    since: Option<Instant>,
}

impl Default for Portion {
    fn default() -> Self {
        Self { pdus: 1, handed_on: 0, since: None }
    }
}

impl Portion {
    /// Whether to hand on what is ready, now that one more is. Where there was no room it is tried again a portion later,
    /// for each try reads the neighbour's index.
    #[inline]
    pub fn is_full(&self, ready: usize) -> bool {
        ready > 0 && ready & (self.pdus - 1) == 0
    }

    /// Whether each goes by itself, as it takes long.
    #[inline]
    pub fn is_one(&self) -> bool {
        self.pdus == 1
    }

    /// So many were handed on.
    pub fn note(&mut self, pdus: usize) {
        self.handed_on += pdus;
    }

    /// At the end of a turn. How long it took is known of busy ones that follow each other.
    pub fn adapt(&mut self, worked: bool) {
        let handed_on = std::mem::take(&mut self.handed_on);
        let now = worked.then(Instant::now);
        if let (Some(since), Some(now), 1..) = (self.since, now, handed_on) {
            self.learn(handed_on, (now - since).as_nanos() as u64);
        }
        self.since = now;
    }

    fn learn(&mut self, handed_on: usize, took_ns: u64) {
        let fitting = HAND_ON_EVERY_NS * handed_on as u64 / took_ns.max(1);
        let fitting = fitting.clamp(1, BATCH as u64) as usize;
        if fitting < self.pdus {
            self.pdus /= 2;
        } else if fitting >= 2 * self.pdus {
            self.pdus *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The portion after many turns in each of which `pdus` were handed on within `took_ns`.
    fn settled(portion: &mut Portion, pdus: usize, took_ns: u64) -> usize {
        (0..50).for_each(|_| portion.learn(pdus, took_ns));
        portion.pdus
    }

    #[test]
    fn light_pdus_go_in_batches_and_heavy_ones_each_by_itself() {
        let mut portion = Portion::default();
        assert_eq!(settled(&mut portion, 64, 64 * 50), BATCH);
        assert_eq!(settled(&mut portion, 32, 32 * 500), 4);
        assert_eq!(settled(&mut portion, 32, 32 * 9_000), 1);
        assert_eq!(settled(&mut portion, 1, 0), BATCH);
    }

    #[test]
    fn a_portion_is_tried_again_when_as_many_more_are_ready() {
        let portion = Portion { pdus: 4, ..Portion::default() };
        let full: Vec<usize> = (0..13).filter(|ready| portion.is_full(*ready)).collect();
        assert_eq!(full, [4, 8, 12]);
    }
}
