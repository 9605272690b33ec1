//! What two cores of this machine are to each other, while the figures are measured.
//!
//! Inputs → outputs: a sum that needs no memory, alone and on two cores at once, and a value that goes
//! from one to the other and back → how much two do of one's work, and the way of a cache line. A host
//! of virtual machines may run two of their cores on one of its own: then the way is short, and two
//! threads that compute share what one would have.

use denrei_layers::{pin, ring};
use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Steps of the sum: some milliseconds.
const STEPS: u64 = 8_000_000;
/// Values that go and come back.
const TRIPS: u32 = 10_000;

/// Two cores.
#[derive(Clone, Copy, Debug)]
pub struct TwoCores {
    /// Throughput of both computing, in terms of one that is alone.
    pub work: f64,
    /// From one to the other.
    pub one_way: Duration,
}

impl TwoCores {
    /// Measures the first two cores that this process may use, if there are as many.
    pub fn measure() -> Option<Self> {
        let &[first, second, ..] = &pin::allowed_cores()[..] else { return None };
        let alone = thread::scope(|scope| {
            let worker = scope.spawn(|| pinned(first, compute));
            worker.join().expect("a sum does not panic")
        });
        let start = Barrier::new(2);
        let both = thread::scope(|scope| {
            let work = |core| {
                pinned(core, || {
                    start.wait();
                    compute()
                })
            };
            let workers = [first, second].map(|core| scope.spawn(move || work(core)));
            workers.map(|worker| worker.join().expect("a sum does not panic"))
        });
        let rate = |elapsed: Duration| alone.as_secs_f64() / elapsed.as_secs_f64();
        Some(Self { work: both.into_iter().map(rate).sum(), one_way: round_trip(first, second) / 2 })
    }
}

fn pinned<T>(core: usize, work: impl FnOnce() -> T) -> T {
    // Where it cannot be pinned the kernel has a place for it.
    let _ = pin::to_core(core);
    work()
}

/// Additions, shifts and exclusive ors, of which a core has several at a time under way, as in a checksum.
fn compute() -> Duration {
    let began = Instant::now();
    let mut state = [1_u64, 2, 3, 4];
    for step in 0..STEPS {
        for lane in &mut state {
            *lane = (*lane ^ (*lane << 7)).wrapping_add(step);
        }
    }
    black_box(state);
    began.elapsed()
}

fn round_trip(first: usize, second: usize) -> Duration {
    let ((mut there, mut from), (mut back, mut home)) = (ring(4), ring(4));
    thread::scope(|scope| {
        scope.spawn(move || {
            pinned(second, || {
                for _ in 0..TRIPS {
                    while from.pop().is_none() {
                        spin_loop();
                    }
                    back.push(()).expect("one is under way");
                }
            });
        });
        let trips = scope.spawn(move || {
            pinned(first, || {
                let began = Instant::now();
                for _ in 0..TRIPS {
                    there.push(()).expect("one is under way");
                    while home.pop().is_none() {
                        spin_loop();
                    }
                }
                began.elapsed() / TRIPS
            })
        });
        trips.join().expect("it only waits")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cores_do_some_work_and_a_value_takes_some_time() {
        let Some(TwoCores { work, one_way }) = TwoCores::measure() else { return };
        // Beside other tests they may do less than one alone.
        assert!(work > 0.05 && work < 20.0, "{work}");
        assert!(one_way > Duration::from_nanos(1) && one_way < Duration::from_secs(1), "{one_way:?}");
    }
}
