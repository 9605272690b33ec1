//! One thread and the layers it runs.
//!
//! Inputs → outputs: the queues from the groups above and below → PDUs through this group's layers
//! → the queues to the groups below and above. Within the group PDUs run to completion; at its edges
//! they are taken and handed on in batches, each shown to the other side with one store: the more a PDU costs, the
//! fewer at a time ([`Portion`]).
//!
//! No group waits for ever for another, as waiting has one direction: the way up waits for room above
//! and for nothing else; the way down waits for room below, for credit (which comes on the way up),
//! and for room above. Were the way up to wait for the way down as well, a layer whose credit has run
//! out would hold up the acknowledgement that renews it.

use super::layer::{Layer, Outlet};
use super::portion::{BATCH, Portion};
use super::{Idle, WorkerState};
use crate::pool::flush_frees;
use crate::ring::{Consumer, Producer};
use crate::wake::Bell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// PDUs kept in front of a layer, beyond which its neighbour is brought no more of those that it would
/// hand on there. What answers a PDU from below (an acknowledgement) is kept beyond it: see the
/// module's page. As many as a layer has buffers for, then.
const KEPT_MAX: usize = 64;
/// Sweeps of a turn: more than a batch takes whose PDUs go one after the other. What comes back within the group may
/// have no end, and between turns a worker hears that it is to end, polls its layers, and takes from its neighbours.
const SWEEPS_MAX: usize = 2 * BATCH;
/// Longest sleep: bounds the harm of a layer that is wrong about [`Layer::idle_for`].
const MAX_SLEEP: Duration = Duration::from_secs(1);
/// Looks in vain for room at an edge, beyond those in vain for work, before the thread sleeps: about a millisecond.
const LOOKS_FOR_ROOM: u32 = 1000;
/// Between two looks for room after that, as nobody rings for it: the neighbour has been slow for longer than this.
const ROOM_EVERY: Duration = Duration::from_millis(1);

/// The sending end of a queue between groups, and how to wake who reads it.
pub(super) struct Link<P> {
    pub producer: Producer<P>,
    /// `None` if the reader never sleeps.
    pub bell: Option<Arc<Bell>>,
}

/// The queues at a group's edges; `None` where there is no neighbour.
pub(super) struct Edges<P> {
    pub from_above: Option<Consumer<P>>,
    pub to_above: Option<Link<P>>,
    pub from_below: Option<Consumer<P>>,
    pub to_below: Option<Link<P>>,
    /// What the lowest layer hands down comes back to it from below.
    pub loop_back: bool,
}

impl<P> Edges<P> {
    /// Whether nothing waits to be taken in.
    fn are_empty(&mut self) -> bool {
        [&mut self.from_above, &mut self.from_below].into_iter().flatten().all(Consumer::is_empty)
    }

    fn has_from_below(&mut self) -> bool {
        self.from_below.as_mut().is_some_and(|queue| !queue.is_empty())
    }
}

pub(super) struct Worker<P> {
    layers: Vec<Box<dyn Layer<P>>>,
    /// `down[i]` waits for layer i, `down[n]` for the group below.
    down: Vec<VecDeque<P>>,
    /// `up[i + 1]` waits for layer i, `up[0]` for the group above.
    up: Vec<VecDeque<P>>,
    edges: Edges<P>,
    /// What is handed on at a time.
    portion: Portion,
    idle: Idle,
    state: Arc<WorkerState>,
    closing: bool,
    /// While closing: what was last said in [`WorkerState::resting`].
    rests: bool,
}

impl<P> Worker<P> {
    pub fn new(layers: Vec<Box<dyn Layer<P>>>, edges: Edges<P>, idle: Idle, state: Arc<WorkerState>) -> Self {
        let queues = || (0..=layers.len()).map(|_| VecDeque::with_capacity(2 * BATCH)).collect();
        let (down, up, portion) = (queues(), queues(), Portion::default());
        Self { down, up, layers, edges, portion, idle, state, closing: false, rests: false }
    }

    /// Works until told to stop.
    pub fn run(mut self) {
        let mut idle_turns: u32 = 0;
        while !self.state.control.stop.load(Ordering::Acquire) {
            self.note_closing();
            if !self.keeps_resting() && self.turn() {
                idle_turns = 0;
                continue;
            }
            if self.closing {
                self.rests = self.is_clear() && self.layers.iter().all(|layer| layer.is_quiet());
                self.state.resting.store(self.rests, Ordering::Release);
            }
            if idle_turns == 0 {
                flush_frees();
            }
            idle_turns = idle_turns.saturating_add(1);
            self.wait(idle_turns);
        }
    }

    /// Everything that is there now, once, or the [first of it](SWEEPS_MAX). Whether that was anything.
    fn turn(&mut self) -> bool {
        let taken = self.take_below() + self.take_above();
        let polled = self.poll_layers();
        let mut worked = polled || taken > 0;
        let sweeps = (0..SWEEPS_MAX).take_while(|_| self.sweep()).count();
        worked |= sweeps > 0;
        worked |= self.hand_on();
        self.portion.adapt(worked);
        worked
    }

    /// Whether a worker that rests goes on doing so; if not, it says so before it pops anything: the
    /// coordinator reads the queues first, then that.
    fn keeps_resting(&mut self) -> bool {
        let rested = std::mem::take(&mut self.rests);
        if rested && self.edges.are_empty() {
            return true;
        }
        if rested {
            self.state.resting.store(false, Ordering::Release);
        }
        false
    }

    fn note_closing(&mut self) {
        if !self.closing && self.state.control.closing.load(Ordering::Acquire) {
            self.closing = true;
            self.layers.iter_mut().for_each(|layer| layer.close());
        }
    }

    fn take_below(&mut self) -> usize {
        let lowest = self.layers.len();
        if !self.up[lowest].is_empty() || !self.up[0].is_empty() {
            return 0;
        }
        let Some(queue) = &mut self.edges.from_below else { return 0 };
        let (layer, waiting) = (&self.layers[lowest - 1], &mut self.up[lowest]);
        take(queue, layer.as_ref(), waiting)
    }

    fn take_above(&mut self) -> usize {
        let lowest = self.layers.len();
        if !self.down[0].is_empty() || !self.down[lowest].is_empty() || self.up[0].len() >= KEPT_MAX {
            return 0;
        }
        let Some(queue) = &mut self.edges.from_above else { return 0 };
        take(queue, self.layers[0].as_ref(), &mut self.down[0])
    }

    fn poll_layers(&mut self) -> bool {
        let mut worked = false;
        for (index, layer) in self.layers.iter_mut().enumerate() {
            if !self.down[index + 1].is_empty() || self.up[index].len() >= KEPT_MAX {
                continue;
            }
            let mut out = Outlet { down: &mut self.down[index + 1], up: &mut self.up[index] };
            worked |= layer.poll(&mut out);
        }
        worked
    }

    /// Up through all layers, then down; whether anything moved. Where each PDU takes long the rest of them is not for
    /// who has been told to end.
    fn sweep(&mut self) -> bool {
        let lowest = self.layers.len();
        let mut moved = false;
        for (index, layer) in self.layers.iter_mut().enumerate().rev() {
            let (above, below) = self.up.split_at_mut(index + 1);
            let mut out = Outlet { down: &mut self.down[index + 1], up: &mut above[index] };
            while out.up.len() < KEPT_MAX
                && !(self.portion.is_one() && self.state.control.stop.load(Ordering::Relaxed))
                && let Some(pdu) = below[0].pop_front()
            {
                moved = true;
                layer.from_below(pdu, &mut out);
                if index == 0 && self.portion.is_full(out.up.len()) {
                    self.portion.note(hand_on(out.up, self.edges.to_above.as_mut(), &self.state));
                }
            }
        }
        for (index, layer) in self.layers.iter_mut().enumerate() {
            let (above, below) = self.down.split_at_mut(index + 1);
            let mut out = Outlet { down: &mut below[0], up: &mut self.up[index] };
            while out.down.len() < KEPT_MAX
                && out.up.len() < KEPT_MAX
                && !(self.portion.is_one() && self.state.control.stop.load(Ordering::Relaxed))
                && layer.takes_from_above()
                && let Some(pdu) = above[index].pop_front()
            {
                moved = true;
                layer.from_above(pdu, &mut out);
                if index + 1 == lowest && !self.edges.loop_back && self.portion.is_full(out.down.len()) {
                    self.portion.note(hand_on(out.down, self.edges.to_below.as_mut(), &self.state));
                }
            }
        }
        if self.edges.loop_back {
            self.up[lowest].append(&mut self.down[lowest]);
        }
        moved
    }

    /// Hands on what the neighbours have room for; whether that was anything.
    fn hand_on(&mut self) -> bool {
        let up = hand_on(&mut self.up[0], self.edges.to_above.as_mut(), &self.state);
        let lowest = self.layers.len();
        let down = hand_on(&mut self.down[lowest], self.edges.to_below.as_mut(), &self.state);
        self.portion.note(up + down);
        up + down > 0
    }

    /// Whether nothing is kept inside.
    fn is_clear(&self) -> bool {
        self.kept() == 0
    }

    fn kept(&self) -> usize {
        self.down.iter().chain(&self.up).map(VecDeque::len).sum()
    }

    /// Whether the neighbours had room for all that was for them: what is kept waits for a layer here that does not
    /// take it yet.
    fn has_clear_edges(&self) -> bool {
        self.up[0].is_empty() && self.down[self.layers.len()].is_empty()
    }

    fn wait(&mut self, idle_turns: u32) {
        match self.idle {
            Idle::Spin => std::hint::spin_loop(),
            Idle::Yield => std::thread::yield_now(),
            Idle::Park { after_turns } if idle_turns <= after_turns => std::hint::spin_loop(),
            Idle::Park { .. } if self.has_clear_edges() => self.park(),
            Idle::Park { after_turns } if idle_turns - after_turns <= LOOKS_FOR_ROOM => {
                std::thread::yield_now()
            }
            Idle::Park { .. } => {
                self.state.parks.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(ROOM_EVERY);
            }
        }
    }

    fn park(&mut self) {
        let limit = self.layers.iter().filter_map(|layer| layer.idle_for()).min();
        let limit = limit.unwrap_or(MAX_SLEEP).min(MAX_SLEEP);
        let Self { layers, edges, state, closing, down, .. } = self;
        let (bell, control) = (&state.bell, &state.control);
        state.parks.fetch_add(1, Ordering::Relaxed);
        let mut has_work = |layers: &[Box<dyn Layer<P>>]| {
            // From above nothing is taken while there is something that waits.
            (if down[0].is_empty() { !edges.are_empty() } else { edges.has_from_below() })
                || control.stop.load(Ordering::Relaxed)
                || control.closing.load(Ordering::Relaxed) != *closing
                || layers.iter().any(|layer| layer.has_work())
        };
        let Some(index) = layers.iter_mut().position(|layer| layer.sleeper().is_some()) else {
            return bell.sleep(limit, || has_work(layers));
        };
        if let Some(sleeper) = layers[index].sleeper() {
            bell.announce_by(sleeper);
        }
        if !has_work(layers)
            && let Some(sleeper) = layers[index].sleeper()
        {
            sleeper.sleep(limit);
        }
        bell.awake();
    }
}

impl<P> Drop for Worker<P> {
    fn drop(&mut self) {
        self.state.left.store(self.kept() as u64, Ordering::Relaxed);
        let Edges { from_above, from_below, to_above, to_below, .. } = &mut self.edges;
        drop((from_above.take(), from_below.take()));
        // Who sleeps until something comes from here is told that nothing will.
        let bells = [to_above, to_below].into_iter().flatten().filter_map(|link| link.bell.as_ref());
        bells.for_each(|bell| bell.ring());
    }
}

/// Takes a batch from a queue; the layer hears of each beforehand.
fn take<P>(queue: &mut Consumer<P>, layer: &dyn Layer<P>, waiting: &mut VecDeque<P>) -> usize {
    queue.pop_batch(BATCH, |pdu| {
        layer.prefetch(&pdu);
        waiting.push_back(pdu);
    })
}

/// Pushes what there is room for, and wakes the reader. Without a reader PDUs are dropped and
/// counted: there is nobody to keep them for. Not while all threads are stopped, one sooner than another: what they have in
/// their hands is left, and counts as that.
fn hand_on<P>(kept: &mut VecDeque<P>, link: Option<&mut Link<P>>, state: &WorkerState) -> usize {
    if kept.is_empty() {
        return 0;
    }
    let Some(link) = link.filter(|link| !link.producer.is_abandoned()) else {
        // After the look at the reader: if it was stopped that shows by now.
        if state.control.stop.load(Ordering::Acquire) {
            return 0;
        }
        state.dropped.fetch_add(kept.len() as u64, Ordering::Relaxed);
        return kept.drain(..).count();
    };
    let pushed = link.producer.push_batch(std::iter::from_fn(|| kept.pop_front()));
    if pushed > 0
        && let Some(bell) = &link.bell
    {
        bell.ring();
    }
    pushed
}
