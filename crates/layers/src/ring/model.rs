//! Every interleaving of small runs, tried by loom.

use super::*;
use loom::thread;

/// Waits for a value, letting the other thread run.
fn wait_pop<T>(consumer: &mut Consumer<T>) -> T {
    loop {
        if let Some(value) = consumer.pop() {
            return value;
        }
        thread::yield_now();
    }
}

#[test]
fn values_arrive_once_and_in_order_while_the_indices_go_round() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        let pushing = thread::spawn(move || {
            for value in 0..3 {
                let mut value = Box::new(value);
                while let Err(back) = producer.push(value) {
                    value = back;
                    thread::yield_now();
                }
            }
        });
        for expected in 0..3 {
            assert_eq!(*wait_pop(&mut consumer), expected);
        }
        pushing.join().unwrap();
        assert!(consumer.pop().is_none() && consumer.is_abandoned());
    });
}

#[test]
fn a_batch_is_seen_in_order() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        let pushing = thread::spawn(move || producer.push_batch([Box::new(1), Box::new(2), Box::new(3)]));
        let mut taken = Vec::new();
        for _ in 0..3 {
            consumer.pop_batch(2, |value| taken.push(*value));
            thread::yield_now();
        }
        let pushed = pushing.join().unwrap();
        consumer.pop_batch(3, |value| taken.push(*value));
        assert!((2..=3).contains(&pushed));
        assert_eq!(taken, (1..=pushed).collect::<Vec<_>>());
    });
}

#[test]
fn what_was_not_taken_is_dropped_by_whoever_goes_last() {
    loom::model(|| {
        let (mut producer, mut consumer) = ring(2);
        let value = loom::sync::Arc::new(7);
        let other = value.clone();
        let pushing = thread::spawn(move || producer.push(other).unwrap());
        let taken = consumer.pop();
        drop(consumer);
        pushing.join().unwrap();
        drop(taken);
        assert_eq!(loom::sync::Arc::strong_count(&value), 1);
    });
}

#[test]
fn a_batch_crosses_the_end_of_a_line_and_never_more_comes_out_than_went_in() {
    loom::model(|| {
        // Two lines.
        let (mut producer, mut consumer) = ring(3);
        let gauge = producer.gauge();
        let pushing = thread::spawn(move || {
            assert_eq!(producer.push_batch([Box::new(1), Box::new(2), Box::new(3)]), 3);
        });
        assert_eq!(*wait_pop(&mut consumer), 1);
        let (pushed, popped) = gauge.passed();
        assert!((popped..=popped + 3).contains(&pushed), "{popped} of {pushed} came out");
        let mut taken = Vec::new();
        while taken.len() < 2 {
            consumer.pop_batch(2, |value| taken.push(*value));
            thread::yield_now();
        }
        assert_eq!(taken, [2, 3]);
        pushing.join().unwrap();
    });
}
