//! The paper's stacks (L8): 1–4 layers over an internal loop-back, in every grouping.

use denrei_layers::stacks::ip::{self, Ip};
use denrei_layers::stacks::tp4::{self, Tp4, Tp4Config};
use denrei_layers::stacks::user::{Seen, Traffic, User};
use denrei_layers::{Builder, Grouping, Idle, Pdu, Pool, PoolConfig, Shutdown};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, alarm, fork};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const WARMUP: u64 = 100;
const COUNT: u64 = 3_000;

fn user(layers: usize, header_bytes: usize) -> User {
    let head_room = layers * header_bytes;
    let traffic = Traffic { warmup: WARMUP, count: COUNT, bytes: 1024, head_room, under_way: 128 };
    User::new(traffic, Pool::default())
}

/// The user in the top layer's thread, and the others in one each, or all together.
fn groupings(layers: usize) -> [Grouping; 2] {
    let mut sizes = vec![1; layers];
    sizes[0] = 2;
    [Grouping::Together, Grouping::Sizes(sizes)]
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Runs a stack under a user until all PDUs have come back, and shuts it down.
fn run(builder: Builder<Pdu>, seen: &Seen, what: &str) {
    let builder = builder.idle(Idle::Park { after_turns: 20 }).queue(64).loop_back();
    let (stack, _top, _bottom) = builder.start().unwrap();
    let began = Instant::now();
    while seen.elapsed_ns.load(Ordering::Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(1));
        assert!(began.elapsed() < LONG, "{what}: {seen:?} {:?}", stack.counters());
    }
    let clean = Shutdown { drained: true, left: 0, dropped: 0, panicked: 0 };
    assert_eq!(stack.shutdown(LONG), clean, "{what}");
}

#[test]
fn ip_in_one_to_four_layers() {
    for layers in 1..=4 {
        for grouping in groupings(layers) {
            let what = format!("{layers} layers, {grouping:?}");
            let user = user(layers, ip::HEADER_BYTES);
            let seen = user.seen();
            let mut builder = Builder::new().layer("user", user).grouping(grouping);
            let mut all_counters = Vec::new();
            for number in 0..layers {
                let ip = Ip::new([10, 0, 0, 1], [10, 0, 0, 2]);
                all_counters.push(ip.counters());
                builder = builder.layer(format!("ip{number}"), ip);
            }
            run(builder, &seen, &what);
            for counters in all_counters {
                let of_all = (read(&counters.received), read(&counters.bad), read(&counters.refused));
                assert_eq!(of_all, (COUNT + WARMUP, 0, 0), "{what}");
            }
        }
    }
}

/// One way of running TP4. The checksum is the top layer's alone, as in the paper.
fn run_tp4(layers: usize, grouping: Grouping, credit: u16, retain: bool, checksum: bool) {
    let what = format!("{layers} layers, {grouping:?}, credit {credit}, {retain}, {checksum}");
    let user = user(layers, tp4::HEADER_BYTES);
    let seen = user.seen();
    let mut builder = Builder::new().layer("user", user).grouping(grouping);
    let mut all_counters = Vec::new();
    for number in 0..layers {
        let checksum = checksum && number == 0;
        // Nothing is lost; a machine that is busy must not look like a loss.
        let retransmit_after = LONG;
        let config = Tp4Config { credit, retain, checksum, retransmit_after, ..Tp4Config::default() };
        let tp4 = Tp4::new(config, Pool::new(&PoolConfig::uniform(256)));
        all_counters.push(tp4.counters());
        builder = builder.layer(format!("tp4-{number}"), tp4);
    }
    run(builder, &seen, &what);
    for counters in all_counters {
        let mishaps = [&counters.bad, &counters.refused, &counters.retransmitted, &counters.out_of_sequence];
        assert!(mishaps.map(read).iter().all(|count| *count == 0), "{what}: {counters:?}");
        let half = u64::from(credit / 2).max(1);
        assert!(read(&counters.acknowledgements) >= COUNT / half, "{what}: {counters:?}");
    }
}

#[test]
fn tp4_in_one_to_four_layers_with_and_without_retention_and_checksum() {
    let ways = [(1, false, false), (8, true, false), (64, false, true), (200, true, true)];
    for layers in 1..=4 {
        for (credit, retain, checksum) in ways {
            for grouping in groupings(layers) {
                run_tp4(layers, grouping, credit, retain, checksum);
            }
        }
    }
}

/// Its threads are the parent's, and never end in the child.
#[test]
fn a_forked_child_that_lets_go_of_its_parents_stack_waits_for_no_thread() {
    let user = user(1, ip::HEADER_BYTES);
    let builder = Builder::new().layer("user", user).idle(Idle::Park { after_turns: 20 }).loop_back();
    let (stack, _top, _bottom) = builder.start().unwrap();
    // SAFETY: what the child does waits for no lock of a thread that it does not have.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            alarm::set(20);
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(stack)));
            // SAFETY: the child ends, and leaves what is its parent's alone.
            unsafe { nix::libc::_exit(i32::from(dropped.is_err())) }
        }
        ForkResult::Parent { child } => assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0))),
    }
}
