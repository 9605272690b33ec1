//! The application's ends of a stack.
//!
//! Inputs → outputs: PDUs → into the stack's queue, or back to who sent them; PDUs that came out.
//!
//! What a port has taken is not lost without a word: a shutdown has to know all of it. So each port has a door. Who
//! sends says so before looking whether it is open, who shuts it looks afterwards whether somebody is in it, and a
//! fence on each side orders the two: either the PDU is refused, or it is in its queue when the door is shut.

use crate::ring::{Consumer, Producer};
use crate::wake::{Bell, Sleeper};
use crossbeam_utils::sync::Parker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::{Duration, Instant};

/// The application's end of a stack: above the top layer, or below the bottom one.
#[derive(Debug)]
pub struct Port<P> {
    into: Producer<P>,
    bell: Arc<Bell>,
    from: Consumer<P>,
    door: Arc<Door>,
    /// Rung when something came out of the stack, or its thread has ended.
    news: Arc<Bell>,
    parker: Parker,
}

impl<P> Port<P> {
    pub(super) fn new(
        (into, bell): (Producer<P>, Arc<Bell>),
        (from, news): (Consumer<P>, Arc<Bell>),
        door: Arc<Door>,
    ) -> Self {
        Self { into, bell, from, door, news, parker: Parker::new() }
    }

    /// Hands a PDU into the stack.
    ///
    /// # Errors
    /// The stack's queue is full, or the stack [has ended](Self::is_closed) or is [being shut
    /// down](super::Stack::shutdown), which lets nothing new in from above: the PDU comes back.
    pub fn send(&mut self, pdu: P) -> Result<(), P> {
        if self.is_closed() || !self.door.enter() {
            return Err(pdu);
        }
        let pushed = self.into.push(pdu);
        self.door.leave();
        pushed?;
        self.bell.ring();
        Ok(())
    }

    /// Whether the thread that this port hands PDUs to has ended: nobody takes them any more.
    pub fn is_closed(&self) -> bool {
        self.into.is_abandoned()
    }

    /// Takes a PDU that came out of the stack, if there is one.
    pub fn recv(&mut self) -> Option<P> {
        self.from.pop()
    }

    /// Takes a PDU that came out of the stack, and sleeps until there is one: at most for `limit`, and not
    /// beyond the end of the [stack](Self::is_closed).
    pub fn recv_timeout(&mut self, limit: Duration) -> Option<P> {
        // A longer one than the clock can tell is none.
        let deadline = Instant::now().checked_add(limit);
        loop {
            // Asked first: nothing comes any more after that.
            let closed = self.is_closed();
            let pdu = self.recv();
            let left =
                deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            if pdu.is_some() || closed || left.is_zero() {
                return pdu;
            }
            self.news.announce_by(&mut self.parker);
            if self.from.is_empty() && !self.is_closed() {
                self.parker.sleep(left);
            }
            self.news.awake();
        }
    }
}

/// Sleeps in whatever thread the application is just now.
impl Sleeper for Parker {
    fn sleep(&mut self, limit: Duration) {
        self.park_timeout(limit);
    }

    fn waker(&self) -> Box<dyn Fn() + Send + Sync> {
        let unparker = self.unparker().clone();
        Box::new(move || unparker.unpark())
    }
}

/// Whether PDUs may come in by a port, and whether one does just now.
#[derive(Debug, Default)]
pub(super) struct Door {
    shut: AtomicBool,
    entering: AtomicBool,
}

impl Door {
    /// Somebody wants to push; whether that may be. If so, [`leave`](Self::leave) follows at once.
    fn enter(&self) -> bool {
        self.entering.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let open = !self.shut.load(Ordering::Relaxed);
        if !open {
            self.leave();
        }
        open
    }

    fn leave(&self) {
        self.entering.store(false, Ordering::Release);
    }

    /// Lets nobody in any more. What was let in is in its queue afterwards.
    pub fn shut(&self) {
        self.shut.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // A push waits for nothing.
        while self.entering.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    }
}
