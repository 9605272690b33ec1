//! Who does the work of queues and counters that are looked at.
//!
//! Inputs → outputs: looks that found nothing → the endpoints work, and others get the core when nothing comes for long.

use parking_lot::RwLock;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Looks at an empty queue that all work after something came: who exchanges messages waits for the next.
const EAGER_LOOKS: u32 = 64;
/// After those, looks that do no work, between two that do: a look costs a system call, which a
/// program that polls between other things should not pay each time.
const IDLE_LOOKS: u32 = 3;
/// Looks with work, without success, after which other processes get the core.
const YIELD_AFTER: u32 = 64;
/// The same while other ranks share the core: what is spent looking is theirs, who may have to work for what
/// is waited for.
const YIELD_AFTER_SHARED: u32 = 4;
/// A yield that lasts longer has given the core to somebody; with nobody else to run it takes half of that.
const SHARED_YIELD: Duration = Duration::from_micros(1);
/// A yield that lasts longer has given the core to somebody who uses up a slice of the scheduler's (3 ms),
/// not to other ranks, who yield as well.
const CROWDED_YIELD: Duration = Duration::from_millis(2);
/// Looks with work after such a yield, until the next is tried.
const CROWDED_LOOKS: u32 = 1 << 17;
/// So many of them does a sleep count for: it lasts as long.
const LOOKS_PER_SLEEP: u32 = 256;
/// Looks with work, without success, after which one sleeps where yielding is too dear: several times what
/// an answer takes.
pub(super) const REST_AFTER: u32 = 128;
/// Longest sleep; whatever else the program polls waits for so long.
const REST: Duration = Duration::from_micros(100);
/// Looks without success that let nobody have the core, after another thread than before was seen to look: under an MPI
/// that lets several threads call, each has its lock meanwhile, and the others what is waited for.
const LOOKS_IN_COMPANY: u32 = 1 << 16;

/// Something that has to be asked to work.
pub trait Progress: std::fmt::Debug + Send + Sync {
    /// Does what is due; how often there has been anything so far, whoever asked.
    fn progress(&self) -> u64;
    /// The core was yielded, and others had it meanwhile, or not.
    fn yielded(&self, shared: bool);
    /// Whether a thread asks it all the time.
    fn has_thread(&self) -> bool;
    /// Sleeps until there may be something to do, at most so long.
    fn rest(&self, longest: Duration);
}

/// How a thread gets on that looks, at one queue or at several by turns: what it waits for may come to any of them.
#[derive(Debug)]
struct Pace {
    /// Its looks with work since one brought something.
    idle: Cell<u32>,
    /// Looks that are left before a yield is tried again.
    crowded: Cell<u32>,
    /// The last yield gave the core to another rank.
    shared: Cell<bool>,
    /// Where something came from last, if that was a single endpoint's look.
    lively: RefCell<Option<Weak<dyn Progress>>>,
}

thread_local! {
    static PACE: Pace = const {
        Pace { idle: Cell::new(0), crowded: Cell::new(0), shared: Cell::new(false), lively: RefCell::new(None) }
    };
}

/// The endpoints that a queue or counter belongs to, and how often they are asked to work.
#[derive(Debug, Default)]
pub struct Sources {
    endpoints: RwLock<Vec<Weak<dyn Progress>>>,
    looks: AtomicU32,
    /// The thread that looked in vain last, and looks that are left since it was another.
    looker: AtomicUsize,
    company: AtomicU32,
    /// What the endpoints have had at the last look that worked.
    successes: AtomicU64,
}

impl Sources {
    /// One more endpoint.
    pub fn add(&self, endpoint: Weak<dyn Progress>) {
        let mut endpoints = self.endpoints.write();
        endpoints.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&endpoint));
        endpoints.push(endpoint);
    }

    /// Called for each look that found nothing: works for most of them, and lets others have the
    /// core when nothing comes for long.
    pub fn look(&self) {
        let looks = self.looks.load(Ordering::Relaxed);
        self.looks.store(looks.wrapping_add(1), Ordering::Relaxed);
        // In company the next look comes when all others have had the lock, and the core.
        let in_company = self.company.load(Ordering::Relaxed) > 0;
        if looks < EAGER_LOOKS || looks & IDLE_LOOKS == 0 || in_company {
            self.work();
        }
    }

    /// Lets the endpoints do what is due.
    pub fn work(&self) {
        let endpoints = self.endpoints.read();
        let successes = endpoints.iter().filter_map(Weak::upgrade).map(|endpoint| endpoint.progress()).sum();
        drop(endpoints);
        let is_news = self.successes.load(Ordering::Relaxed) != successes;
        if is_news {
            self.successes.store(successes, Ordering::Relaxed);
            self.looks.store(0, Ordering::Relaxed);
        }
        let in_company = !is_news && self.has_company();
        // A thread that is about to end has nothing to wait for.
        let _ = PACE.try_with(|pace| match is_news {
            true => self.is_served(pace),
            false => self.is_idle(pace, in_company),
        });
    }

    /// Something came. A counter that is polled beside a queue is not idle while the queue's looks bring something, nor
    /// is one queue beside another.
    fn is_served(&self, pace: &Pace) {
        pace.idle.set(0);
        let endpoints = self.endpoints.read();
        let only = if let [only] = &endpoints[..] { Some(only) } else { None };
        let mut lively = pace.lively.borrow_mut();
        let is_same = match (only, &*lively) {
            (Some(only), Some(lively)) => lively.ptr_eq(only),
            (only, lively) => only.is_none() && lively.is_none(),
        };
        if !is_same {
            *lively = only.cloned();
        }
    }

    /// Nothing came.
    fn is_idle(&self, pace: &Pace, in_company: bool) {
        pace.idle.set(pace.idle.get().saturating_add(1));
        let patience = if pace.shared.get() { YIELD_AFTER_SHARED } else { YIELD_AFTER };
        if pace.idle.get() > patience && !in_company {
            self.rest(pace);
        }
    }

    /// Whether several threads look.
    fn has_company(&self) -> bool {
        thread_local! {
            static THREAD: u8 = const { 0 };
        }
        let this = THREAD.with(|place| std::ptr::from_ref(place).addr());
        let before = self.looker.load(Ordering::Relaxed);
        if before != this {
            self.looker.store(this, Ordering::Relaxed);
            // The first has nobody beside it.
            self.company.store(if before == 0 { 0 } else { LOOKS_IN_COMPANY }, Ordering::Relaxed);
        }
        let company = self.company.load(Ordering::Relaxed);
        self.company.store(company.saturating_sub(1), Ordering::Relaxed);
        company > 0
    }

    /// Lets others have the core. Where they keep it for long, an answer that is on its way is better
    /// waited for, and one that is not, asleep on the sockets.
    fn rest(&self, pace: &Pace) {
        let crowded = pace.crowded.get();
        if crowded > 0 {
            let mut passed = 1;
            if pace.idle.get() > REST_AFTER
                && let Some(endpoint) = self.awaited(pace)
            {
                endpoint.rest(REST);
                passed = LOOKS_PER_SLEEP;
            }
            return pace.crowded.set(crowded.saturating_sub(passed));
        }
        let began = Instant::now();
        std::thread::yield_now();
        let lasted = began.elapsed();
        pace.shared.set(lasted > SHARED_YIELD && lasted <= CROWDED_YIELD);
        let endpoints = self.endpoints.read();
        endpoints
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|endpoint| endpoint.yielded(lasted > SHARED_YIELD));
        drop(endpoints);
        if lasted > CROWDED_YIELD {
            pace.crowded.set(CROWDED_LOOKS);
        }
    }

    /// On whose sockets to sleep: where something came from last, whichever of its queues a thread looks at just now.
    fn awaited(&self, pace: &Pace) -> Option<Arc<dyn Progress>> {
        pace.lively.borrow().as_ref().and_then(Weak::upgrade).or_else(|| self.only())
    }

    /// The endpoint, if there is one only.
    fn only(&self) -> Option<Arc<dyn Progress>> {
        if let [only] = &self.endpoints.read()[..] { only.upgrade() } else { None }
    }

    /// Sleeps on the sockets of the only endpoint, where callers do its work; whether it did.
    pub(super) fn sleep(&self, longest: Duration) -> bool {
        let only = self.only().filter(|endpoint| !endpoint.has_thread());
        only.inspect(|endpoint| endpoint.rest(longest)).is_some()
    }

    /// Whether a thread of the endpoints' own works, so that a caller may sleep.
    pub(super) fn work_by_themselves(&self) -> bool {
        self.endpoints.read().iter().filter_map(Weak::upgrade).all(|endpoint| endpoint.has_thread())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has nothing but what a test gives it, and counts how often its callers let others have the core, and how often it
    /// was asked.
    #[derive(Debug, Default)]
    struct Nothing {
        given: AtomicU64,
        rests: AtomicU64,
        asked: AtomicU64,
    }

    impl Progress for Nothing {
        fn progress(&self) -> u64 {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.given.load(Ordering::Relaxed)
        }

        fn yielded(&self, _: bool) {
            self.rests.fetch_add(1, Ordering::Relaxed);
        }

        fn has_thread(&self) -> bool {
            false
        }

        fn rest(&self, _: Duration) {
            self.rests.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn with_nothing() -> (Arc<Nothing>, Sources) {
        let (nothing, sources) = (Arc::new(Nothing::default()), Sources::default());
        let endpoint: Weak<Nothing> = Arc::downgrade(&nothing);
        sources.add(endpoint);
        (nothing, sources)
    }

    #[test]
    fn each_look_beside_other_threads_works_and_not_each_of_one_alone() {
        const LOOKS: u64 = 1000;
        let (nothing, sources) = with_nothing();
        let asked_in = |look: &dyn Fn()| {
            let before = nothing.asked.load(Ordering::Relaxed);
            (0..LOOKS).for_each(|_| look());
            nothing.asked.load(Ordering::Relaxed) - before
        };
        let look = || sources.look();
        let alone = asked_in(&look);
        assert!(alone < LOOKS / 2, "{alone} looks of one thread worked");
        std::thread::scope(|scope| _ = scope.spawn(|| (0..LOOKS).for_each(|_| look())));
        // The first few find out that it is not the same thread any more.
        (0..=IDLE_LOOKS).for_each(|_| look());
        assert_eq!(asked_in(&look), LOOKS);
    }

    #[test]
    fn who_looks_beside_other_threads_does_not_rest_with_what_may_be_their_lock() {
        let (nothing, sources) = with_nothing();
        let rests = || nothing.rests.load(Ordering::Relaxed);
        let look = |times| (0..times).for_each(|_| sources.look());
        look(4000);
        let alone = rests();
        assert!(alone > 0, "the core is nobody else's");
        for _ in 0..10 {
            std::thread::scope(|scope| _ = scope.spawn(|| look(1000)));
            look(1000);
        }
        assert_eq!(rests(), alone, "others wait for the lock meanwhile");
        look(2 * LOOKS_IN_COMPANY);
        assert!(rests() > alone, "the others are gone");
    }

    /// More than an empty queue is looked at before its looks let others have the core.
    const MANY: u32 = 4000;

    #[test]
    fn who_looks_at_two_queues_does_not_rest_at_one_while_the_other_brings_something() {
        let ((idle, beside), (lively, queue)) = (with_nothing(), with_nothing());
        let rests = || idle.rests.load(Ordering::Relaxed) + lively.rests.load(Ordering::Relaxed);
        let look = |times| (0..times).for_each(|_| [&beside, &queue].into_iter().for_each(Sources::look));
        for _ in 0..MANY / YIELD_AFTER_SHARED {
            lively.given.fetch_add(1, Ordering::Relaxed);
            queue.work();
            look(YIELD_AFTER_SHARED / 2);
        }
        assert_eq!(rests(), 0, "an answer is on its way");
        look(MANY);
        assert!(rests() > 0, "nothing comes");
    }

    #[test]
    fn who_looks_at_two_queues_where_others_keep_the_core_sleeps_where_something_came_from_last() {
        let queues = [with_nothing(), with_nothing()];
        let rests = || queues.each_ref().map(|(endpoint, _)| endpoint.rests.load(Ordering::Relaxed));
        let look = || (0..MANY).for_each(|_| queues.iter().for_each(|(_, queue)| queue.look()));
        for (last, (endpoint, queue)) in queues.iter().enumerate() {
            endpoint.given.fetch_add(1, Ordering::Relaxed);
            queue.work();
            PACE.with(|pace| pace.crowded.set(u32::MAX));
            let before = rests();
            look();
            let now = rests();
            assert!(now[last] > before[last], "it does not sleep");
            assert_eq!(now[1 - last], before[1 - last], "what is waited for comes from elsewhere");
        }
    }

    #[test]
    fn who_looks_where_nothing_came_yet_or_what_came_from_is_closed_sleeps_on_what_it_looks_at() {
        let (endpoint, queue) = with_nothing();
        let look_and_sleep = || {
            PACE.with(|pace| pace.crowded.set(u32::MAX));
            let before = endpoint.rests.load(Ordering::Relaxed);
            (0..MANY).for_each(|_| queue.look());
            assert!(endpoint.rests.load(Ordering::Relaxed) > before, "it does not sleep");
        };
        look_and_sleep();
        let (other, elsewhere) = with_nothing();
        other.given.fetch_add(1, Ordering::Relaxed);
        elsewhere.work();
        drop(other);
        look_and_sleep();
    }
}
