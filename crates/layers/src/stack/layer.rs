//! What a protocol layer is to the runtime (L6).

use crate::wake::Sleeper;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::time::Duration;

/// A protocol layer. The runtime calls it from one thread, and only when the layer's last PDUs have
/// been handed on: what cannot be handed on is kept in the layer's [`Outlet`], and tried again.
// `from_above` and `from_below` say where a PDU comes from; they are no conversions.
#[allow(clippy::wrong_self_convention)]
pub trait Layer<P>: Send {
    /// Whether the layer can do something with another PDU from above: not if it waits for credit. It
    /// is asked before each. What changes the answer is a PDU from below, or [`poll`](Self::poll) at the time
    /// that [`idle_for`](Self::idle_for) tells: a thread that parks sleeps until then.
    fn takes_from_above(&self) -> bool {
        true
    }

    /// A PDU from the layer above: adds a header, hands it down.
    fn from_above(&mut self, pdu: P, out: &mut Outlet<'_, P>);

    /// A PDU from the layer below: checks and takes off the header, hands it up. This does not wait
    /// for room below, or acknowledgements would wait for what waits for them; so what a layer hands
    /// *down* here has a bound of the layer's own, such as its pool or its credit.
    fn from_below(&mut self, pdu: P, out: &mut Outlet<'_, P>);

    /// Called once a turn, for what comes neither from above nor from below: timers, sources. Not
    /// called while PDUs from it for below are kept. Returns whether it did anything.
    fn poll(&mut self, out: &mut Outlet<'_, P>) -> bool {
        let _ = out;
        false
    }

    /// How long [`poll`](Self::poll) has nothing to do by itself; `None` for ever. A thread that
    /// parks sleeps no longer.
    fn idle_for(&self) -> Option<Duration> {
        None
    }

    /// Whether [`poll`](Self::poll) has something to do now, because of what others did who rang the
    /// layer's [bell](super::Stack::bell) after it. Asked between the announcement of a sleep and the
    /// sleep itself.
    fn has_work(&self) -> bool {
        false
    }

    /// How the layer's thread sleeps, if not parked; one layer of a thread at most.
    fn sleeper(&mut self) -> Option<&mut dyn Sleeper> {
        None
    }

    /// The stack is being shut down: nothing new comes from this layer any more; what is under way
    /// goes on.
    fn close(&mut self) {}

    /// Whether nothing of this layer's is under way (unacknowledged, waiting for credit). Shutting
    /// down waits until all layers are quiet.
    fn is_quiet(&self) -> bool {
        true
    }

    /// A PDU will be handed in soon, after others: may ask for its cache lines.
    fn prefetch(&self, pdu: &P) {
        let _ = pdu;
    }
}

/// A layer on cache lines of its own: two in different threads that shared one would wait for each other at every store.
#[allow(clippy::wrong_self_convention)]
impl<P, L: Layer<P>> Layer<P> for CachePadded<L> {
    #[inline]
    fn takes_from_above(&self) -> bool {
        (**self).takes_from_above()
    }

    #[inline]
    fn from_above(&mut self, pdu: P, out: &mut Outlet<'_, P>) {
        (**self).from_above(pdu, out);
    }

    #[inline]
    fn from_below(&mut self, pdu: P, out: &mut Outlet<'_, P>) {
        (**self).from_below(pdu, out);
    }

    #[inline]
    fn poll(&mut self, out: &mut Outlet<'_, P>) -> bool {
        (**self).poll(out)
    }

    fn idle_for(&self) -> Option<Duration> {
        (**self).idle_for()
    }

    fn has_work(&self) -> bool {
        (**self).has_work()
    }

    fn sleeper(&mut self) -> Option<&mut dyn Sleeper> {
        (**self).sleeper()
    }

    fn close(&mut self) {
        (**self).close();
    }

    fn is_quiet(&self) -> bool {
        (**self).is_quiet()
    }

    #[inline]
    fn prefetch(&self, pdu: &P) {
        (**self).prefetch(pdu);
    }
}

/// Where a layer hands its PDUs. Takes any number; the runtime brings the layer no more from below
/// while many are kept for above, and no more from above while many are kept for either side.
#[derive(Debug)]
pub struct Outlet<'a, P> {
    pub(super) down: &'a mut VecDeque<P>,
    pub(super) up: &'a mut VecDeque<P>,
}

impl<'a, P> Outlet<'a, P> {
    /// An outlet into two queues of one's own: to use a layer without the runtime.
    pub fn new(down: &'a mut VecDeque<P>, up: &'a mut VecDeque<P>) -> Self {
        Self { down, up }
    }

    /// Hands a PDU to the layer below.
    #[inline]
    pub fn down(&mut self, pdu: P) {
        self.down.push_back(pdu);
    }

    /// Hands a PDU to the layer above.
    #[inline]
    pub fn up(&mut self, pdu: P) {
        self.up.push_back(pdu);
    }
}
