//! Random operations and faults against the oracle, for many seeds. `DENREI_SIM_SEEDS` sets how many;
//! `cargo xtask sim` runs more, and says more.

use denrei_sim::scenario::Subject;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds when the environment does not say: seconds.
const DEFAULT_SEEDS: u64 = 2_000;
/// One of these for so many of those: they take longer.
const SEEDS_PER_GROUP_SEED: u64 = 10;

#[test]
fn random_operations_and_faults_break_no_promise() {
    run(Subject::Sessions, seeds());
}

#[test]
fn random_operations_and_faults_break_no_promise_of_groups() {
    run(Subject::Groups, seeds() / SEEDS_PER_GROUP_SEED);
}

/// As long as they draw what they drew then: a message to a dead peer by which its sender was stopped; limits that were
/// lifted, of which those were not told who waited for a grant; a FIRST that came after that of the session which followed;
/// a long path below the base size, and little patience.
#[test]
fn seeds_that_broke_promises_break_none_now() {
    for seed in [940_043_290, 980_163_463, 980_182_881, 1_300_007_266, 1_300_177_849] {
        if let Err(found) = Subject::Sessions.run_seed(seed) {
            panic!("{found}");
        }
    }
}

/// As long as they draw what they drew then: the end of a group behind another's catching up; paths too narrow for the
/// group's symbols, with reports joined; a boundary that came when the last member had gone;
/// a chain of 120 relays, of which each handed on again what the opener sent to all those before it; a message that
/// came when the last who was waited for had gone; who joined the address no longer, and was sent something all the same;
/// a group that nobody took, which was left with a message that it had acknowledged, or ejected before it was left.
#[test]
fn seeds_that_broke_promises_of_groups_break_none_now() {
    let seeds = [
        993_321,
        2_112_033,
        22_452_992,
        31_003_631,
        31_052_092,
        318_866_399,
        812_547,
        772_018_668,
        1_400_011_677,
    ];
    for seed in seeds {
        if let Err(found) = Subject::Groups.run_seed(seed) {
            panic!("{found}");
        }
    }
}

fn seeds() -> u64 {
    match std::env::var("DENREI_SIM_SEEDS") {
        Ok(text) => text.parse().expect("DENREI_SIM_SEEDS is a number"),
        Err(_) => DEFAULT_SEEDS,
    }
}

fn run(subject: Subject, seeds: u64) {
    let (next, failure) = (AtomicU64::new(0), Mutex::new(None));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds {
                return;
            }
            if let Err(found) = subject.run_seed(seed) {
                next.store(seeds, Ordering::Relaxed);
                failure.lock().expect("nobody panics while holding it").get_or_insert(found);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, |cores| cores.get()) {
            scope.spawn(work);
        }
    });
    let failure = failure.into_inner().expect("nobody panicked while holding it");
    assert!(failure.is_none(), "{}", failure.map_or_else(String::new, |failure| failure.to_string()));
}
