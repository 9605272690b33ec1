use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

#[derive(Clone, Debug)]
enum Op {
    Push,
    PushBatch(usize),
    Pop,
    PopBatch(usize),
    Peek,
    /// Both sides look at how much is there.
    Look,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        Just(Op::Push),
        (0..20usize).prop_map(Op::PushBatch),
        Just(Op::Pop),
        (0..20usize).prop_map(Op::PopBatch),
        Just(Op::Peek),
        Just(Op::Look),
    ]
}

/// A counted reference, so that a value dropped twice or never is noticed, among other octets: as many
/// values as fit share a cache line.
#[derive(Clone, Debug, PartialEq)]
struct Value<const MORE: usize> {
    number: Rc<u64>,
    more: [u8; MORE],
}

/// A ring beside the queue that it should be.
struct Beside<const MORE: usize> {
    producer: Producer<Value<MORE>>,
    consumer: Consumer<Value<MORE>>,
    model: VecDeque<Value<MORE>>,
    capacity: usize,
    next: u64,
}

impl<const MORE: usize> Beside<MORE> {
    /// Does all of `ops`; whether what is left is dropped once.
    fn run(capacity: usize, ops: &[Op]) -> bool {
        let (producer, consumer) = ring(capacity);
        let mut beside = Self { producer, consumer, model: VecDeque::new(), capacity, next: 0 };
        ops.iter().for_each(|op| beside.apply(op));
        let Self { producer, consumer, model, .. } = beside;
        drop((producer, consumer));
        model.iter().all(|value| Rc::strong_count(&value.number) == 1)
    }

    fn value(&mut self) -> Value<MORE> {
        self.next += 1;
        Value { number: Rc::new(self.next), more: [self.next as u8; MORE] }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Push => {
                let value = self.value();
                let room = self.model.len() < self.capacity;
                match self.producer.push(value.clone()) {
                    Ok(()) => self.model.push_back(value),
                    Err(back) => assert_eq!(back, value),
                }
                assert_eq!(room, self.model.back().is_some_and(|last| *last.number == self.next));
            }
            Op::PushBatch(count) => {
                let mut values: VecDeque<_> = (0..count).map(|_| self.value()).collect();
                let expected = count.min(self.capacity - self.model.len());
                self.model.extend(values.iter().take(expected).cloned());
                let pushed = self.producer.push_batch(std::iter::from_fn(|| values.pop_front()));
                assert_eq!((pushed, values.len()), (expected, count - expected));
            }
            Op::Pop => assert_eq!(self.consumer.pop(), self.model.pop_front()),
            Op::PopBatch(max) => {
                let mut popped = Vec::new();
                let count = self.consumer.pop_batch(max, |value| popped.push(value));
                let expected: Vec<_> = self.model.drain(..max.min(self.model.len())).collect();
                assert_eq!((count, &popped), (expected.len(), &expected));
            }
            Op::Peek => assert_eq!(self.consumer.peek(), self.model.front()),
            Op::Look => {
                assert_eq!(self.consumer.is_empty(), self.model.is_empty());
                assert_eq!(self.consumer.len(), self.model.len());
                assert_eq!(self.producer.room(), self.capacity - self.model.len());
            }
        }
        assert_eq!(self.producer.gauge().counters().depth, self.model.len() as u64);
        assert!(self.model.iter().all(|value| Rc::strong_count(&value.number) == 2));
    }
}

proptest! {
    #[test]
    fn is_a_bounded_queue(capacity in 1..20usize, ops in prop::collection::vec(op(), 1..200)) {
        // Seven values in a line, three, one, and one in two lines.
        prop_assert!(Beside::<0>::run(capacity, &ops));
        prop_assert!(Beside::<8>::run(capacity, &ops));
        prop_assert!(Beside::<40>::run(capacity, &ops));
        prop_assert!(Beside::<100>::run(capacity, &ops));
    }
}

#[test]
fn values_without_a_size_and_of_a_large_alignment_pass() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(256))]
    struct Aligned(u64);
    let (mut producer, mut consumer) = ring(3);
    let (mut ticks, mut ticked) = ring(100);
    for number in 0..300 {
        assert_eq!(producer.push(Aligned(number)), Ok(()));
        assert_eq!(consumer.peek().map(|value| std::ptr::from_ref(value).addr() % 256), Some(0));
        assert_eq!(consumer.pop(), Some(Aligned(number)));
        assert_eq!((ticks.push_batch([(); 101]), ticked.pop_batch(200, |()| ())), (100, 100));
    }
}

#[test]
fn values_cross_threads_in_order() {
    const COUNT: u64 = 200_000;
    let (mut producer, mut consumer) = ring(64);
    let pushing = std::thread::spawn(move || {
        let mut next = 0;
        while next < COUNT {
            // Singly and in batches, by turns.
            let batch = if next % 3 == 0 { 17 } else { 1 };
            let end = COUNT.min(next + batch);
            let pushed = producer.push_batch((next..end).map(Box::new));
            next += pushed as u64;
            if pushed == 0 {
                std::thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        let taken = consumer.pop_batch(23, |value| {
            assert_eq!(*value, expected);
            expected += 1;
        });
        if taken == 0 {
            std::thread::yield_now();
        }
    }
    pushing.join().unwrap();
    assert!(consumer.is_abandoned() && consumer.pop().is_none());
    assert!(consumer.gauge().counters().depth_max <= 64);
}

#[test]
fn counts_full_and_idle() {
    let (mut producer, mut consumer) = ring(2);
    assert_eq!(consumer.pop(), None::<u8>);
    assert_eq!(producer.push_batch([1, 2, 3]), 2);
    assert_eq!(producer.push(4), Err(4));
    assert_eq!(consumer.pop(), Some(1));
    let counters = consumer.gauge().counters();
    assert_eq!(counters, QueueCounters { depth: 1, depth_max: 2, full: 2, idle: 1 });
    assert!(!producer.is_abandoned());
    let gauge = producer.gauge();
    drop(consumer);
    assert!(producer.is_abandoned() && !gauge.is_abandoned());
    drop(producer);
    assert!(gauge.is_abandoned());
}

#[test]
fn a_panic_in_a_batch_loses_and_repeats_nothing() {
    let (mut producer, mut consumer) = ring(4);
    let mut next = 0;
    let pushing = catch_unwind(AssertUnwindSafe(|| {
        producer.push_batch(std::iter::from_fn(|| {
            next += 1;
            assert!(next < 4, "the source fails");
            Some(Rc::new(next))
        }))
    }));
    assert!(pushing.is_err());
    assert_eq!(consumer.len(), 3, "what was placed before is there");
    let mut seen = Vec::new();
    let popping = catch_unwind(AssertUnwindSafe(|| {
        consumer.pop_batch(3, |value| {
            assert!(*value < 2, "the taker fails");
            seen.push(value);
        })
    }));
    assert!(popping.is_err());
    assert_eq!(consumer.pop().as_deref(), Some(&3), "the second was in the taker's hands");
    assert!(seen.iter().all(|value| Rc::strong_count(value) == 1));
}

#[test]
#[should_panic(expected = "a ring holds 1 to")]
fn a_ring_of_nothing_is_refused() {
    ring::<u8>(0);
}
