//! Which peer is due when.
//!
//! Inputs → outputs: deadlines that mostly move later → the peers whose time has come. A deadline
//! that moves later costs nothing: the entry fires at its old time and is armed anew. So traffic
//! that keeps pushing its timeouts away touches the order about once per timeout, not per packet.

use denrei_wire::Instant;
use std::collections::BTreeSet;

/// Peers by the time at which to look at them.
#[derive(Debug, Default)]
pub(crate) struct TimerQueue {
    /// One entry for each slot that is armed.
    order: BTreeSet<(Instant, u32)>,
    /// Per slot, the time of its entry.
    armed: Vec<Instant>,
}

impl TimerQueue {
    /// Looks at `slot` at `deadline` or earlier.
    pub fn arm(&mut self, slot: u32, deadline: Instant) {
        let index = slot as usize;
        if self.armed.len() <= index {
            self.armed.resize(index + 1, Instant::FAR_FUTURE);
        }
        if deadline < self.armed[index] {
            self.move_to(slot, deadline);
        }
    }

    fn move_to(&mut self, slot: u32, deadline: Instant) {
        let before = core::mem::replace(&mut self.armed[slot as usize], deadline);
        self.order.remove(&(before, slot));
        if deadline < Instant::FAR_FUTURE {
            self.order.insert((deadline, slot));
        }
    }

    /// The next slot whose time has come. The caller arms it anew, but only after the last: one
    /// that is due again at once would never let it out.
    pub fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(_, slot) = self.order.first().filter(|(at, _)| *at <= now)?;
        self.move_to(slot, Instant::FAR_FUTURE);
        Some(slot)
    }

    /// `slot` is in line for something after which it is armed anew: what was due by `now` has been seen to, and is not
    /// looked at again before. Else each of a thousand in line would be looked at for each that leaves it.
    pub fn rest(&mut self, slot: u32, now: Instant) {
        if self.armed.get(slot as usize).is_some_and(|at| *at <= now) {
            self.move_to(slot, Instant::FAR_FUTURE);
        }
    }

    /// Makes [`next`](Self::next) exact: arms anew what would be found too early, by each slot's deadline. Costs no
    /// more than to find it then, and saves waking up for it.
    pub fn settle(&mut self, deadline_of: impl Fn(u32) -> Instant) {
        while let Some(&(at, slot)) = self.order.first() {
            let deadline = deadline_of(slot);
            if deadline <= at {
                return;
            }
            self.move_to(slot, deadline);
        }
    }

    /// When [`pop_due`](Self::pop_due) has something at the earliest.
    pub fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_deadlines_cost_nothing_and_earlier_ones_win() {
        let at = Instant::from_nanos;
        let mut timers = TimerQueue::default();
        timers.arm(3, at(100));
        for later in 0..1000 {
            timers.arm(3, at(200 + later));
        }
        assert_eq!(timers.order.len(), 1);
        timers.arm(3, at(50));
        timers.arm(0, at(70));
        assert_eq!(timers.pop_due(at(40)), None);
        assert_eq!(timers.pop_due(at(60)), Some(3));
        timers.arm(3, at(90));
        assert_eq!(timers.pop_due(at(200)), Some(0));
        assert_eq!(timers.pop_due(at(200)), Some(3));
        assert_eq!(timers.pop_due(at(200)), None, "there was one entry");
    }

    #[test]
    fn a_settled_queue_tells_the_earliest_deadline_of_all() {
        let at = Instant::from_nanos;
        let mut timers = TimerQueue::default();
        for slot in 0..4 {
            timers.arm(slot, at(100 + u64::from(slot)));
        }
        timers.arm(0, at(50));
        let deadlines = [at(300), at(101), Instant::FAR_FUTURE, at(250)];
        timers.settle(|slot| deadlines[slot as usize]);
        assert_eq!(timers.next(), Some(at(101)), "what is at its time stays");
        assert_eq!(timers.pop_due(at(102)), Some(1));
        timers.settle(|slot| deadlines[slot as usize]);
        assert_eq!(timers.next(), Some(at(250)), "slot 2 waits for nothing, slot 0 longer");
        assert_eq!(timers.pop_due(at(300)), Some(3));
        assert_eq!(timers.pop_due(at(300)), Some(0));
        assert_eq!(timers.pop_due(at(1000)), None);
        timers.settle(|_| unreachable!("nothing is armed"));
        assert_eq!(timers.next(), None);
        timers.arm(2, at(400));
        assert_eq!(timers.next(), Some(at(400)), "and can be armed again");
    }

    #[test]
    fn a_slot_that_sleeps_again_and_again_leaves_nothing_behind() {
        let at = Instant::from_nanos;
        let mut timers = TimerQueue::default();
        timers.arm(0, at(900_000));
        for round in 0..1000 {
            // A message is sent, and acknowledged; then comes a sleep, beside another peer that is silent.
            timers.arm(3, at(round + 2));
            timers.settle(|slot| at(if slot == 0 { 900_000 } else { round + 1_000_000 }));
        }
        assert_eq!(timers.order.len(), 2);
    }
}
