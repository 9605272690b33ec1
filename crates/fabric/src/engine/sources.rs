//! Who does the work of queues and counters that are looked at.
//!
//! Inputs → outputs: looks that found nothing → the endpoints work, and others get the core when nothing comes for long.

use parking_lot::RwLock;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
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

/// The endpoints that a queue or counter belongs to, and how often they are asked to work.
#[derive(Debug, Default)]
pub struct Sources {
    endpoints: RwLock<Vec<Weak<dyn Progress>>>,
    looks: AtomicU32,
    idle: AtomicU32,
    /// Looks that are left before a yield is tried again.
    crowded: AtomicU32,
    /// The last yield gave the core to another rank.
    shared: AtomicBool,
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
        // A counter that is polled beside a queue is not idle while the queue's looks bring something.
        if self.successes.load(Ordering::Relaxed) != successes {
            self.successes.store(successes, Ordering::Relaxed);
            self.idle.store(0, Ordering::Relaxed);
            self.looks.store(0, Ordering::Relaxed);
            return;
        }
        let idle = self.idle.load(Ordering::Relaxed).saturating_add(1);
        self.idle.store(idle, Ordering::Relaxed);
        let patience = if self.shared.load(Ordering::Relaxed) { YIELD_AFTER_SHARED } else { YIELD_AFTER };
        if idle > patience && !self.has_company() {
            self.rest(idle);
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
    fn rest(&self, idle: u32) {
        let crowded = self.crowded.load(Ordering::Relaxed);
        if crowded > 0 {
            let mut passed = 1;
            if idle > REST_AFTER
                && let [only] = &self.endpoints.read()[..]
                && let Some(endpoint) = only.upgrade()
            {
                endpoint.rest(REST);
                passed = LOOKS_PER_SLEEP;
            }
            return self.crowded.store(crowded.saturating_sub(passed), Ordering::Relaxed);
        }
        let began = Instant::now();
        std::thread::yield_now();
        let lasted = began.elapsed();
        self.shared.store(lasted > SHARED_YIELD && lasted <= CROWDED_YIELD, Ordering::Relaxed);
        let endpoints = self.endpoints.read();
        endpoints
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|endpoint| endpoint.yielded(lasted > SHARED_YIELD));
        drop(endpoints);
        if lasted > CROWDED_YIELD {
            self.crowded.store(CROWDED_LOOKS, Ordering::Relaxed);
        }
    }

    /// Sleeps on the sockets of the only endpoint, where callers do its work; whether it did.
    pub(super) fn sleep(&self, longest: Duration) -> bool {
        let only = if let [only] = &self.endpoints.read()[..] { only.upgrade() } else { None };
        only.filter(|endpoint| !endpoint.has_thread()).inspect(|endpoint| endpoint.rest(longest)).is_some()
    }

    /// Whether a thread of the endpoints' own works, so that a caller may sleep.
    pub(super) fn work_by_themselves(&self) -> bool {
        self.endpoints.read().iter().filter_map(Weak::upgrade).all(|endpoint| endpoint.has_thread())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Never has anything, and counts how often its callers let others have the core, and how often it was asked.
    #[derive(Debug, Default)]
    struct Nothing {
        rests: AtomicU64,
        asked: AtomicU64,
    }

    impl Progress for Nothing {
        fn progress(&self) -> u64 {
            self.asked.fetch_add(1, Ordering::Relaxed);
            0
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
}
