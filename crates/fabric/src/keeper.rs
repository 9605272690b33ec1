//! An endpoint's keeper: a thread that sleeps, and does what the application has gone away from.
//!
//! Inputs → outputs: whether something waits for company, and when the application last called → what waits is sent,
//! within [`TURN`]; the engine works while nobody calls, as far as [`Keeps`] lets it; and peers do not take a process for
//! dead that computes for long without a call.
//!
//! Whether the application is away is found out without it, as its calls are too many to read a clock in each: the
//! keeper takes a sample now and then, and more often while it finds it away.

use crate::endpoint::Endpoint;
use denrei::Node;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How long a message may wait for company, about: at first, and as long as the application goes away.
const TURN: Duration = Duration::from_micros(50);
/// The longest turn: while the application is there and sends by itself what it has let wait, each turn
/// takes the core from it for nothing.
const LONGEST_TURN: Duration = Duration::from_micros(800);
/// So many times in a row the keeper goes away again where somebody has the engine; then it waits for it.
const MOST_MISSES: u32 = 2;
/// How long the keeper stays awake after there was something to keep.
const AWAKE: Duration = Duration::from_millis(2);
/// An application that has not called for so long is away.
const AWAY: Duration = Duration::from_millis(1);
/// How often a keeper that stands in looks whether the application is away: at first after it was, and at most. Each
/// look takes the core from others.
const SOON: Duration = Duration::from_millis(1);
const SELDOM: Duration = Duration::from_millis(50);
/// How often a keeper that does not stand in lets the Node speak: well below any keepalive.
const ROUND: Duration = Duration::from_millis(200);
/// Longest sleep on the sockets: what no datagram tells of is looked for as often.
const SLEEP: Duration = Duration::from_millis(100);
/// Pause of a driving keeper while unexpected messages hold others back.
const HELD_BACK_PAUSE: Duration = Duration::from_micros(200);

/// What a keeper does of the engine's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// All of it: progress is automatic, or threads may sleep on completions.
    Driving,
    /// What there is while the application is away.
    StandingIn,
    /// Nothing: it lets the Node speak, seldom.
    Alive,
}

/// What an endpoint and its keeper share.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Something waits for company.
    deferred: AtomicBool,
    /// The keeper is awake and will see it.
    awake: AtomicBool,
    /// The application has called since this was last asked.
    attended: AtomicBool,
    /// The keeper may sleep on the sockets: who wakes it has to call it from there.
    on_sockets: AtomicBool,
    stopping: AtomicBool,
}

impl Keeper {
    /// The application has called.
    pub fn attend(&self) {
        self.attended.store(true, Ordering::Relaxed);
    }

    /// Something waits for company: whether the thread has to be woken for that.
    pub fn is_to_be_woken(&self) -> bool {
        // Either this thread sees that the keeper is asleep, or that one what waits. Whoever has said so before has seen
        // to it: the keeper takes the word back before it has the engine, or lets it stand.
        if !self.deferred.load(Ordering::Relaxed) {
            self.deferred.store(true, Ordering::SeqCst);
        }
        !self.awake.load(Ordering::SeqCst) && !self.awake.swap(true, Ordering::SeqCst)
    }

    /// Whether something waits for company, which is the caller's to send from now on.
    fn take_deferred(&self) -> bool {
        self.deferred.swap(false, Ordering::SeqCst)
    }

    /// Who defers something from now on wakes the keeper, which looks once more before it sleeps.
    fn fall_asleep(&self) {
        self.awake.store(false, Ordering::SeqCst);
    }

    /// Whether who wakes the thread has to call it from the sockets. It says that it goes there before it looks for
    /// the last time whether it is wanted.
    pub fn is_on_sockets(&self) -> bool {
        self.on_sockets.load(Ordering::SeqCst)
    }

    /// The thread is to end; it has to be woken for that.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether it is.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// The thread's life.
    pub fn live(&self, keeps: Keeps, node: &Node, endpoint: &Weak<Endpoint>) {
        match keeps {
            Keeps::Driving => self.drive(node, endpoint),
            Keeps::StandingIn => self.keep(node, true, endpoint),
            Keeps::Alive => self.keep(node, false, endpoint),
        };
    }

    /// With manual progress; `None`: the endpoint is gone.
    fn keep(&self, node: &Node, stands_in: bool, endpoint: &Weak<Endpoint>) -> Option<()> {
        let (mut last, mut turn, mut look, mut misses) = (Instant::now(), TURN, SELDOM, 0);
        // Who is woken again and again before that looks all the same: a program may send a row with each step.
        let mut look_at = last + look;
        while !self.is_stopping() {
            if self.take_deferred() {
                match endpoint.upgrade()?.send_deferred(misses >= MOST_MISSES) {
                    Some(was_left) => {
                        turn = if was_left { TURN } else { (2 * turn).min(LONGEST_TURN) };
                        misses = 0;
                    }
                    // Whoever has the engine may do something else with it, and go away.
                    None => {
                        self.deferred.store(true, Ordering::Relaxed);
                        misses += 1;
                    }
                }
                last = Instant::now();
            }
            if self.awake.load(Ordering::Acquire) {
                if last.elapsed() < AWAKE {
                    std::thread::park_timeout(turn);
                    continue;
                }
                self.fall_asleep();
                continue;
            }
            let until_look = look_at.saturating_duration_since(Instant::now());
            std::thread::park_timeout(if stands_in { until_look } else { ROUND });
            if self.awake.load(Ordering::Acquire) {
                last = Instant::now();
            } else if stands_in {
                look = if self.stand_in(node, endpoint)? { SOON } else { (2 * look).min(SELDOM) };
                look_at = Instant::now() + look;
            } else if !self.attended.swap(false, Ordering::Relaxed) {
                node.poll();
            }
        }
        Some(())
    }

    /// Drives the engine while the application is away; whether it was, as far as is known: one that has only sent
    /// something may be away again.
    fn stand_in(&self, node: &Node, endpoint: &Weak<Endpoint>) -> Option<bool> {
        self.attended.store(false, Ordering::Relaxed);
        std::thread::park_timeout(AWAY);
        let was_away = !self.attended.load(Ordering::Relaxed);
        self.on_sockets.store(true, Ordering::SeqCst);
        while !self.attended.load(Ordering::Relaxed) && !self.is_to_be_awake() {
            if !work(&endpoint.upgrade()?) {
                node.wait_incoming_unless(SLEEP, || self.is_to_be_awake());
            }
        }
        self.on_sockets.store(false, Ordering::SeqCst);
        Some(was_away)
    }

    /// Whether there is something else to do.
    fn is_to_be_awake(&self) -> bool {
        self.awake.load(Ordering::SeqCst) || self.is_stopping()
    }

    /// With automatic progress; `None`: the endpoint is gone.
    fn drive(&self, node: &Node, endpoint: &Weak<Endpoint>) -> Option<()> {
        self.on_sockets.store(true, Ordering::SeqCst);
        while !self.is_stopping() {
            self.awake.store(true, Ordering::Release);
            if !work(&endpoint.upgrade()?) {
                node.wait_incoming_unless(SLEEP, || self.is_stopping());
            }
        }
        Some(())
    }
}

/// Lets the engine work; whether to look again at once.
fn work(endpoint: &Arc<Endpoint>) -> bool {
    let (worked, held_back) = {
        let mut engine = endpoint.engine();
        (endpoint.turn(&mut engine), engine.is_holding_back())
    };
    if held_back && !worked {
        std::thread::sleep(HELD_BACK_PAUSE);
    }
    worked || held_back
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    /// Each goes on when both have come so far.
    fn meet(comers: &AtomicU32, at: u32) {
        comers.fetch_add(1, Ordering::AcqRel);
        for looks in 0.. {
            match comers.load(Ordering::Acquire) {
                come if come >= 2 * at => return,
                _ if looks < 1000 => core::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
        }
    }

    #[test]
    fn what_is_deferred_while_the_keeper_falls_asleep_is_seen_by_it_or_wakes_it() {
        const ROUNDS: u32 = 50_000;
        let (keeper, comers, mut lost) = (Keeper::default(), AtomicU32::new(0), 0);
        let is_woken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    meet(&comers, 2 * round + 1);
                    is_woken.store(keeper.is_to_be_woken(), Ordering::Relaxed);
                    meet(&comers, 2 * round + 2);
                }
            });
            for round in 0..ROUNDS {
                keeper.awake.store(true, Ordering::SeqCst);
                keeper.deferred.store(false, Ordering::SeqCst);
                meet(&comers, 2 * round + 1);
                keeper.fall_asleep();
                let is_seen = keeper.take_deferred();
                meet(&comers, 2 * round + 2);
                lost += u32::from(!is_seen && !is_woken.load(Ordering::Relaxed));
            }
        });
        assert_eq!(lost, 0, "of {ROUNDS} times it sleeps, and nobody wakes it");
    }
}
