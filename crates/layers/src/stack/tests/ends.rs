//! The application's ends: full, being shut, and what has gone in by them.

use super::*;

/// PDUs that each queue of these stacks holds.
const QUEUE: usize = 8;

/// Sends until every queue on the way down is full; how many the stack has taken.
fn fill(top: &mut Port<Vec<u64>>, stack: &Stack) -> u64 {
    let (mut sent, began) = (0, std::time::Instant::now());
    loop {
        while top.send(vec![sent]).is_ok() {
            sent += 1;
        }
        let full = stack.counters().iter().filter(|queue| queue.counters.depth == QUEUE as u64).count();
        if full == stack.threads() + 1 {
            // They were looked at one after the other: what was in one may be in the next by then, and there is room.
            if top.send(vec![sent]).is_err() {
                return sent;
            }
            sent += 1;
        }
        assert!(began.elapsed() < LONG, "{:?}", stack.counters());
        std::thread::yield_now();
    }
}

#[test]
fn threads_sleep_while_nobody_takes_what_they_hand_on() {
    let idle = Idle::Park { after_turns: 0 };
    let (stack, mut top, mut bottom) = stamps(3).idle(idle).queue(QUEUE).start().unwrap();
    let sent = fill(&mut top, &stack);
    let (before, began) = (stack.parks(), std::time::Instant::now());
    // Beyond those of threads that had still something to take and to hand on.
    while stack.parks() < before + 100 {
        assert!(began.elapsed() < LONG, "all of them look for room again and again");
        std::thread::sleep(Duration::from_millis(1));
    }
    for number in 0..sent {
        let pdu = std::iter::repeat_with(|| bottom.recv()).find_map(|pdu| {
            assert!(began.elapsed() < LONG);
            pdu
        });
        assert_eq!(pdu, Some(vec![number, 0, 1, 2]));
    }
    assert_eq!(stack.shutdown(LONG), CLEAN);
}

#[test]
fn what_does_not_arrive_is_counted() {
    for grouping in [Grouping::Together, Grouping::Each] {
        let (stack, mut top, mut bottom) = stamps(3).grouping(grouping).queue(QUEUE).start().unwrap();
        let sent = fill(&mut top, &stack);
        let shutdown = stack.shutdown(Duration::from_millis(10));
        let arrived = std::iter::from_fn(|| bottom.recv()).count() as u64;
        assert!(arrived < sent, "the last queue does not hold them all");
        assert_eq!(shutdown, Shutdown { drained: false, left: sent - arrived, ..CLEAN });
    }
}

#[test]
fn what_is_sent_during_a_shutdown_arrives_or_comes_back() {
    for _ in 0..100 {
        let (stack, mut top, mut bottom) = stamps(2).grouping(Grouping::Together).start().unwrap();
        let sending = std::thread::spawn(move || {
            let mut sent = 0;
            while !top.is_closed() {
                // Now and then nothing is under way.
                if sent % 50 == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
                sent += u64::from(top.send(vec![sent]).is_ok());
            }
            sent
        });
        let receiving = std::thread::spawn(move || {
            let mut received = 0;
            loop {
                // Asked first: nothing comes any more after that.
                let last = bottom.is_closed();
                received += std::iter::from_fn(|| bottom.recv()).count() as u64;
                if last {
                    return received;
                }
                std::thread::yield_now();
            }
        });
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(stack.shutdown(LONG), CLEAN);
        assert_eq!(sending.join().unwrap(), receiving.join().unwrap());
    }
}

#[test]
fn an_application_sleeps_until_something_comes() {
    let (stack, mut top, mut bottom) = stamps(2).start().unwrap();
    assert_eq!(bottom.recv_timeout(Duration::from_millis(1)), None, "nothing was sent");
    // In another thread than before, and while the stack is asleep.
    let waiting = std::thread::spawn(move || (bottom.recv_timeout(LONG), bottom));
    std::thread::sleep(Duration::from_millis(20));
    top.send(vec![5]).unwrap();
    let (pdu, mut bottom) = waiting.join().unwrap();
    assert_eq!(pdu, Some(vec![5, 0, 1]));
    for number in 0..300 {
        bottom.send(vec![number, 0, 1]).unwrap();
        assert_eq!(top.recv_timeout(Duration::MAX), Some(vec![number]));
    }
    // What is there when the stack has ended is had first.
    top.send(vec![6]).unwrap();
    let waiting = std::thread::spawn(move || {
        (top.recv_timeout(Duration::MAX), bottom.recv_timeout(LONG), bottom.recv_timeout(Duration::MAX))
    });
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(stack.shutdown(LONG), CLEAN);
    assert_eq!(waiting.join().unwrap(), (None, Some(vec![6, 0, 1]), None));
}
