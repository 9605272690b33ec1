//! What is measured: values and buffers that go from a thread on one core to a thread on another.
//!
//! Inputs → outputs: a contender and a number of values → the time they took. Both threads wait for
//! each other before the clock starts.

use crossbeam_queue::ArrayQueue;
use denrei_layers::{Pdu, Pool, PoolConfig, PoolError, flush_frees, pin};
use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::spin_loop;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Values that a queue holds.
pub const CAPACITY: usize = 1024;
/// Octets of a buffer: a datagram's.
const BUFFER_BYTES: usize = 1400;

/// Runs `here` on the first core and `there` on the second, if there are two; the time from the
/// common start to the end of `here`.
fn on_two_cores(here: impl FnOnce() + Send, there: impl FnOnce() + Send) -> Duration {
    let cores = pin::allowed_cores();
    let pin = |index: usize| {
        if cores.len() > 1 {
            pin::to_core(cores[index]).expect("an allowed core");
        }
    };
    let start = Barrier::new(2);
    let elapsed = std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            start.wait();
            there();
        });
        scope
            .spawn(|| {
                pin(0);
                start.wait();
                let began = Instant::now();
                here();
                began.elapsed()
            })
            .join()
    });
    elapsed.expect("nothing panics")
}

fn push_all(mut push: impl FnMut(u64) -> Result<(), u64>, count: u64) {
    for value in 0..count {
        let mut value = value;
        while let Err(back) = push(value) {
            value = back;
            spin_loop();
        }
    }
}

fn pop_all(mut pop: impl FnMut() -> Option<u64>, count: u64) {
    for expected in 0..count {
        let value = loop {
            match pop() {
                Some(value) => break value,
                None => spin_loop(),
            }
        };
        assert_eq!(value, expected);
    }
}

/// A stream through this crate's ring.
pub fn stream_denrei(count: u64) -> Duration {
    let (mut producer, mut consumer) = denrei_layers::ring(CAPACITY);
    on_two_cores(|| pop_all(|| consumer.pop(), count), move || push_all(|v| producer.push(v), count))
}

/// The same in batches of up to 32.
pub fn stream_denrei_batched(count: u64) -> Duration {
    let (mut producer, mut consumer) = denrei_layers::ring(CAPACITY);
    let popping = move || {
        let mut expected = 0;
        while expected < count {
            let taken = consumer.pop_batch(32, |value: u64| {
                assert_eq!(value, expected);
                expected += 1;
            });
            if taken == 0 {
                spin_loop();
            }
        }
    };
    on_two_cores(popping, move || {
        let mut next = 0;
        while next < count {
            let pushed = producer.push_batch(next..count.min(next + 32));
            next += pushed as u64;
            if pushed == 0 {
                spin_loop();
            }
        }
    })
}

/// A stream through rtrb.
pub fn stream_rtrb(count: u64) -> Duration {
    let (mut producer, mut consumer) = rtrb::RingBuffer::new(CAPACITY);
    let push = move |value| producer.push(value).map_err(|rtrb::PushError::Full(value)| value);
    on_two_cores(|| pop_all(|| consumer.pop().ok(), count), move || push_all(push, count))
}

/// A stream through crossbeam's bounded queue.
pub fn stream_array_queue(count: u64) -> Duration {
    let queue = ArrayQueue::new(CAPACITY);
    on_two_cores(|| pop_all(|| queue.pop(), count), || push_all(|value| queue.push(value), count))
}

/// `count` round trips of one value through two queues.
fn round_trips(
    count: u64,
    mut push_there: impl FnMut(u64) -> Result<(), u64> + Send,
    pop_there: impl FnMut() -> Option<u64> + Send,
    mut push_back: impl FnMut(u64) -> Result<(), u64> + Send,
    mut pop_back: impl FnMut() -> Option<u64> + Send,
) -> Duration {
    let here = || {
        for value in 0..count {
            push_there(value).expect("there is room");
            while pop_back().is_none() {
                spin_loop();
            }
        }
    };
    on_two_cores(here, move || {
        let mut pop = pop_there;
        for _ in 0..count {
            let value = loop {
                match pop() {
                    Some(value) => break value,
                    None => spin_loop(),
                }
            };
            push_back(value).expect("there is room");
        }
    })
}

/// Round trips through two of this crate's rings.
pub fn trips_denrei(count: u64) -> Duration {
    let ((mut there, mut from), (mut back, mut home)) =
        (denrei_layers::ring(CAPACITY), denrei_layers::ring(CAPACITY));
    round_trips(count, |v| there.push(v), move || from.pop(), move |v| back.push(v), || home.pop())
}

/// Round trips through two of rtrb's.
pub fn trips_rtrb(count: u64) -> Duration {
    let full = |rtrb::PushError::Full(value)| value;
    let ((mut there, mut from), (mut back, mut home)) =
        (rtrb::RingBuffer::new(CAPACITY), rtrb::RingBuffer::new(CAPACITY));
    round_trips(
        count,
        |v| there.push(v).map_err(full),
        move || from.pop().ok(),
        move |v| back.push(v).map_err(full),
        || home.pop().ok(),
    )
}

/// Round trips through two of crossbeam's.
pub fn trips_array_queue(count: u64) -> Duration {
    let (there, back) = (Arc::new(ArrayQueue::new(CAPACITY)), Arc::new(ArrayQueue::new(CAPACITY)));
    let (from, returned) = (Arc::clone(&there), Arc::clone(&back));
    round_trips(count, |v| there.push(v), move || from.pop(), move |v| back.push(v), || returned.pop())
}

/// Buffers made in one thread and freed in the other; both touch a line of each.
fn hand_over<T: Send + 'static>(
    count: u64,
    mut make: impl FnMut() -> Option<T> + Send,
    touch: impl Fn(&mut T) + Send + Sync,
    release: impl Fn(T) + Send + Sync,
) -> Duration {
    let (mut producer, mut consumer) = denrei_layers::ring(CAPACITY / 4);
    let freeing = || {
        let mut taken = 0;
        while taken < count {
            match consumer.pop() {
                Some(mut buffer) => {
                    touch(&mut buffer);
                    release(buffer);
                    taken += 1;
                }
                None => spin_loop(),
            }
        }
        flush_frees();
    };
    on_two_cores(freeing, || {
        let mut made = 0;
        while made < count {
            let Some(mut buffer) = make() else { continue };
            touch(&mut buffer);
            while let Err(back) = producer.push(buffer) {
                buffer = back;
                spin_loop();
            }
            made += 1;
        }
    })
}

/// Buffers of this crate's pool.
pub fn buffers_pool(count: u64) -> Duration {
    let mut pool = Pool::new(&PoolConfig::uniform(2048));
    let make = move || match pool.allocate(0, BUFFER_BYTES) {
        Ok(pdu) => Some(pdu),
        Err(PoolError::Exhausted { .. }) => None,
        Err(other) => panic!("{other}"),
    };
    let touch = |pdu: &mut Pdu| pdu.get_mut().expect("one descriptor")[0] += 1;
    hand_over(count, make, touch, drop)
}

/// Buffers of an allocator.
fn buffers_from(allocator: &'static (impl GlobalAlloc + Sync), count: u64) -> Duration {
    struct Raw(*mut u8);
    // SAFETY: one thread has it at a time.
    unsafe impl Send for Raw {}
    let layout = Layout::array::<u8>(BUFFER_BYTES).expect("it is small");
    // SAFETY: the layout is not empty; null is not handed on.
    let make = move || Some(unsafe { allocator.alloc(layout) }).filter(|raw| !raw.is_null()).map(Raw);
    // SAFETY: the buffer is this thread's, and long enough.
    let touch = |raw: &mut Raw| unsafe { raw.0.write_volatile(1) };
    // SAFETY: from the same allocator, with the same layout, once.
    hand_over(count, make, touch, move |raw: Raw| unsafe { allocator.dealloc(raw.0, layout) })
}

/// Buffers of the C library.
pub fn buffers_malloc(count: u64) -> Duration {
    buffers_from(&System, count)
}

/// Buffers of mimalloc.
pub fn buffers_mimalloc(count: u64) -> Duration {
    buffers_from(&mimalloc::MiMalloc, count)
}

/// The ring alone, as above but with one buffer that is never freed: what is not the allocator's.
pub fn buffers_none(count: u64) -> Duration {
    hand_over(count, || Some(0u64), |value| *value += 1, drop)
}
