//! Collective operations between Nodes on loopback.

use crate::common::background;
use denrei::{Bytes, Collective, CollectiveError, Config, Drive, GroupError, Node, OpenGroupError};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);
/// What is longer cannot be sent.
const MAX_MESSAGE_BYTES: u64 = 1000;

/// Runs `work` on every rank of a set of `size` Nodes; what each returned.
fn on_all<T: Send + 'static>(
    size: usize,
    last: u8,
    work: impl Fn(&mut Collective) -> T + Send + Sync + Clone + 'static,
) -> Vec<T> {
    let mut config = Config { drive: background(), ..Config::default() };
    config.protocol.max_message_bytes = MAX_MESSAGE_BYTES;
    let nodes: Vec<Node> = (0..size).map(|_| Node::bind("127.0.0.1:0", config.clone()).unwrap()).collect();
    let addresses: Arc<Vec<SocketAddr>> = Arc::new(nodes.iter().map(Node::local_addr).collect());
    let port = addresses[0].port();
    let group = SocketAddr::from(([239, 255, 79, last], port));
    let threads = nodes.into_iter().map(|node| {
        let (addresses, work) = (Arc::clone(&addresses), work.clone());
        thread::spawn(move || {
            let mut set = Collective::new(&node, &addresses, group, PATIENCE).unwrap();
            let result = work(&mut set);
            assert!(set.close(PATIENCE));
            // Others may still want something of this Node.
            thread::sleep(Duration::from_millis(200));
            result
        })
    });
    threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn all_have_what_the_operations_promise() {
    let results = on_all(5, 1, |set| {
        let rank = set.rank();
        let own = Bytes::from(vec![rank as u8; 10 * rank]);
        // Who waits for ever says so with the longest time there is.
        set.barrier(Duration::MAX).unwrap();
        let gathered = set.gather(own.clone(), Duration::MAX).unwrap();
        let everything = set.all_gather(own, PATIENCE).unwrap();
        let order = set.broadcast(if rank == 0 { "go" } else { "ignored" }, PATIENCE).unwrap();
        let sum = set
            .reduce(
                (rank as u64 + 1).to_le_bytes().to_vec(),
                |a, b| {
                    let number = |bytes: Bytes| u64::from_le_bytes(*bytes.first_chunk().unwrap());
                    (number(a) + number(b)).to_le_bytes().to_vec().into()
                },
                PATIENCE,
            )
            .unwrap();
        (gathered.len(), everything, order, sum)
    });
    for (rank, (gathered, everything, order, sum)) in results.into_iter().enumerate() {
        assert_eq!(gathered, if rank == 0 { 5 } else { 0 });
        assert_eq!(everything.len(), 5);
        assert!(everything.iter().enumerate().all(|(other, part)| *part == vec![other as u8; 10 * other]));
        assert_eq!(order, "go");
        assert_eq!(sum, 15u64.to_le_bytes().to_vec());
    }
}

#[test]
fn where_a_join_panics_the_others_hear_of_it_at_once_and_the_set_goes_on() {
    let results = on_all(3, 19, |set| {
        let began = Instant::now();
        let mut reduce = || set.reduce("x", |_, _| panic!("a join breaks, as this test wants"), PATIENCE);
        let reduced = catch_unwind(AssertUnwindSafe(&mut reduce));
        assert!(began.elapsed() < PATIENCE / 2);
        set.barrier(PATIENCE).unwrap();
        reduced.map_err(drop)
    });
    assert!(results[0].is_err(), "{results:?}");
    for result in &results[1..] {
        let Ok(Err(CollectiveError::Join(why))) = result else { panic!("{result:?}") };
        assert_eq!(why, "rank 0 panicked");
    }
}

#[test]
fn where_a_join_fails_all_fail_and_the_set_goes_on() {
    let results = on_all(3, 8, |set| {
        let failed = set.try_reduce("x", |_, _| Err("no sum".to_owned()), PATIENCE);
        (failed.unwrap_err().to_string(), set.reduce("x", |a, _| a, PATIENCE).unwrap())
    });
    let whole = ("rank 0 cannot join what all have: no sum".to_owned(), Bytes::from_static(b"x"));
    assert_eq!(results, vec![whole; 3]);
}

#[test]
fn nobody_leaves_a_barrier_before_all_have_come() {
    let arrived = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&arrived);
    let seen = on_all(4, 2, move |set| {
        let mut seen = Vec::new();
        for round in 1..=20 {
            if set.rank() == round % 4 {
                thread::sleep(Duration::from_millis(3));
            }
            counter.fetch_add(1, Ordering::SeqCst);
            set.barrier(PATIENCE).unwrap();
            seen.push((round, counter.load(Ordering::SeqCst)));
        }
        seen
    });
    for (round, count) in seen.into_iter().flatten() {
        assert!(count >= 4 * round, "{count} had come in round {round}");
    }
}

#[test]
fn who_does_not_come_is_named_and_the_next_operation_works() {
    let results = on_all(3, 3, |set| {
        if set.rank() == 2 {
            thread::sleep(Duration::from_millis(700));
        }
        let began = Instant::now();
        let first = set.gather("late", Duration::from_millis(300));
        if set.rank() != 2 {
            thread::sleep(Duration::from_millis(700).saturating_sub(began.elapsed()));
        }
        (first, set.gather(vec![set.rank() as u8], PATIENCE).unwrap())
    });
    let (first, second) = &results[0];
    let Err(CollectiveError::TimedOut { operation: "gather", missing }) = first else { panic!("{first:?}") };
    assert_eq!(*missing, [2]);
    assert_eq!(*second, [vec![0u8], vec![1], vec![2]]);
}

#[test]
fn when_one_gives_up_all_end_at_once_and_the_next_operation_works() {
    for (last, impatient) in [(12, 1), (13, 0)] {
        let results = on_all(3, last, move |set| {
            if set.rank() == 2 {
                thread::sleep(Duration::from_millis(900));
            }
            let began = Instant::now();
            let timeout = if set.rank() == impatient { Duration::from_millis(300) } else { PATIENCE };
            let error = set.barrier(timeout).unwrap_err().to_string();
            let took = began.elapsed();
            set.barrier(PATIENCE).unwrap();
            (error, took)
        });
        let told = format!("barrier did not complete: rank {impatient} gave up, nothing came from rank 2");
        for (rank, (error, took)) in results.iter().enumerate() {
            assert!(rank == impatient || *error == told, "rank {rank}: {error}");
            assert!(*took < PATIENCE / 4, "rank {rank} waited for {took:?}");
        }
    }
}

#[test]
fn where_rank_0_cannot_send_the_result_all_fail_and_the_next_operation_works() {
    let results = on_all(3, 14, |set| {
        let error = set.all_gather(vec![0; 400], PATIENCE).unwrap_err();
        set.barrier(PATIENCE).unwrap();
        let other = set.broadcast(vec![0; 2000], PATIENCE).unwrap_err();
        set.barrier(PATIENCE).unwrap();
        [error, other]
    });
    for (rank, errors) in results.into_iter().enumerate() {
        for error in errors {
            match error {
                CollectiveError::Group(GroupError::TooLarge { max: MAX_MESSAGE_BYTES, .. }) if rank == 0 => {}
                CollectiveError::GaveUp { rank: 0, .. } if rank > 0 => {}
                error => panic!("rank {rank}: {error}"),
            }
        }
    }
}

#[test]
fn one_that_cannot_send_its_part_is_not_waited_for_and_the_next_operation_works() {
    let results = on_all(3, 15, |set| {
        let part = vec![set.rank() as u8; if set.rank() == 1 { 2000 } else { 1 }];
        let first = set.gather(part, PATIENCE);
        (first, set.gather(vec![set.rank() as u8], PATIENCE).unwrap())
    });
    assert!(matches!(results[0].0, Err(CollectiveError::GaveUp { rank: 1, .. })), "{:?}", results[0].0);
    assert!(matches!(results[1].0, Err(CollectiveError::Send { rank: 0, .. })), "{:?}", results[1].0);
    assert_eq!(results[0].1, [vec![0u8], vec![1], vec![2]]);
}

/// Whoever has given its part has nothing to wait for but its end: it may close its Node then, and goes away with one that
/// nobody drives any more.
#[test]
fn what_was_gathered_last_arrives_though_nodes_are_closed_or_not_driven_after_it() {
    for (drive, stays) in [(Drive::Thread, false), (Drive::Inline, false), (Drive::Inline, true)] {
        let config = Config { drive, ..Config::default() };
        let nodes: Vec<Node> = (0..3).map(|_| Node::bind("127.0.0.1:0", config.clone()).unwrap()).collect();
        let addresses: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
        let group = SocketAddr::from(([239, 255, 79, 27], addresses[0].port()));
        let work = |node: Node| {
            let mut set = Collective::new(&node, &addresses, group, PATIENCE).unwrap();
            let parts = set.gather(vec![1; 8 << 20], PATIENCE).unwrap();
            assert_eq!(parts.len(), if set.rank() == 0 { 3 } else { 0 });
            assert!(parts.iter().all(|part| part.len() == 8 << 20));
            assert!(set.close(PATIENCE), "{drive:?}");
            stays.then_some(node)
        };
        thread::scope(|scope| {
            let threads: Vec<_> = nodes.into_iter().map(|node| scope.spawn(|| work(node))).collect();
            // Those that stay do so until all are through.
            let _kept: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        });
    }
}

#[test]
fn one_that_is_gone_is_named_and_not_waited_for() {
    let results = on_all(3, 16, |set| {
        let first = set.barrier(PATIENCE);
        let gone = set.rank() == 2;
        (first, (!gone).then(|| [set.barrier(PATIENCE), set.barrier(PATIENCE)]))
    });
    for (rank, (first, later)) in results.into_iter().enumerate() {
        first.unwrap();
        for outcome in later.into_iter().flatten() {
            match outcome {
                Err(CollectiveError::Send { rank: 2, .. }) if rank == 0 => {}
                Err(CollectiveError::GaveUp { rank: 0, missing, .. }) if rank == 1 => {
                    assert_eq!(missing, [2])
                }
                other => panic!("rank {rank}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_set_of_one_needs_nobody() {
    let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
    let group = "239.255.79.4:7411".parse().unwrap();
    let mut set = Collective::new(&node, &[node.local_addr()], group, PATIENCE).unwrap();
    set.barrier(PATIENCE).unwrap();
    assert_eq!(set.all_gather("x", PATIENCE).unwrap(), ["x"]);
    let wrong = Collective::new(&node, &["127.0.0.1:9".parse().unwrap()], group, PATIENCE).unwrap_err();
    assert!(wrong.to_string().contains("its own among them"), "{wrong}");
}

/// What the ranks of a set of `timeouts.len() + 1` get whose last never comes, and after how long.
fn opened_without_the_last(last: u8, timeouts: &[Duration]) -> Vec<(CollectiveError, Duration)> {
    let config = Config { drive: background(), ..Config::default() };
    let bound = || Node::bind("127.0.0.1:0", config.clone()).unwrap();
    let nodes: Vec<Node> = timeouts.iter().map(|_| bound()).collect();
    let absent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses = nodes.iter().map(Node::local_addr).chain([absent.local_addr().unwrap()]);
    let addresses: Arc<Vec<SocketAddr>> = Arc::new(addresses.collect());
    let group = SocketAddr::from(([239, 255, 79, last], addresses[0].port()));
    let threads = nodes.into_iter().zip(timeouts.to_vec()).map(|(node, timeout)| {
        let addresses = Arc::clone(&addresses);
        thread::spawn(move || {
            let began = Instant::now();
            (Collective::new(&node, &addresses, group, timeout).unwrap_err(), began.elapsed())
        })
    });
    let outcomes: Vec<_> =
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()).collect();
    let CollectiveError::Open(OpenGroupError::Group(GroupError::OpenFailed { missing })) = &outcomes[0].0
    else {
        panic!("{outcomes:?}")
    };
    let missing: Vec<SocketAddr> = missing.iter().map(|(addr, _)| *addr).collect();
    assert_eq!(missing, [absent.local_addr().unwrap()]);
    outcomes
}

#[test]
fn who_does_not_come_to_the_opening_is_named_alone_and_the_others_end_with_rank_0() {
    let patience = [Duration::from_secs(1), PATIENCE, PATIENCE];
    for (error, took) in &opened_without_the_last(9, &patience)[1..] {
        assert!(matches!(error, CollectiveError::NotOpened { gave_up: true }), "{error}");
        assert!(*took < PATIENCE / 2, "{took:?}");
    }
    // All are given the same time: whoever was there first hears of rank 0 still.
    for (error, _) in &opened_without_the_last(10, &[Duration::from_secs(1); 3])[1..] {
        assert!(matches!(error, CollectiveError::NotOpened { gave_up: true }), "{error}");
    }
}

#[test]
fn who_came_to_the_opening_and_went_before_rank_0_gave_up_is_not_named() {
    let patience = [Duration::from_secs(4), PATIENCE, Duration::from_millis(500)];
    let outcomes = opened_without_the_last(11, &patience);
    assert!(matches!(outcomes[2].0, CollectiveError::NotOpened { gave_up: false }), "{:?}", outcomes[2]);
    assert!(outcomes[1].1 < PATIENCE / 2, "{:?}", outcomes[1]);
}

#[test]
fn who_calls_another_operation_is_named_and_nobody_takes_its_part_for_the_others() {
    let texts = on_all(4, 17, |set| {
        let unlike = match set.rank() {
            2 => set.barrier(PATIENCE).unwrap_err(),
            _ => set.all_gather("part", PATIENCE).map(drop).unwrap_err(),
        };
        // Only rank 0 sends in a broadcast: who waits for another's result learns it from that.
        let spread = match set.rank() {
            0 => set.broadcast("order", PATIENCE).err(),
            1 => set.barrier(PATIENCE).err(),
            _ => set.broadcast("", PATIENCE).err(),
        };
        let parts = set.all_gather(format!("{}", set.rank()), PATIENCE).unwrap();
        assert_eq!(parts, ["0", "1", "2", "3"]);
        (unlike.to_string(), spread.map(|error| error.to_string()))
    });
    for (rank, (unlike, spread)) in texts.into_iter().enumerate() {
        assert!(unlike.starts_with("rank 2 called barrier, and rank 0 all_gather"), "{rank}: {unlike}");
        let spread =
            spread.is_some_and(|text| text.starts_with("rank 1 called barrier, and rank 0 broadcast"));
        assert_eq!(spread, rank == 1, "{rank}");
    }
}

/// Who gathers waits for nothing, so neither side notices until rank 0 takes something of all.
#[test]
fn who_gathers_while_rank_0_broadcasts_is_named_with_the_next_operation() {
    let texts = on_all(3, 18, |set| {
        match set.rank() {
            2 => drop(set.gather("part", PATIENCE).unwrap()),
            _ => drop(set.broadcast("order", PATIENCE).unwrap()),
        }
        set.broadcast("another", PATIENCE).unwrap();
        let unlike = set.barrier(PATIENCE).unwrap_err();
        assert_eq!(set.all_gather(format!("{}", set.rank()), PATIENCE).unwrap(), ["0", "1", "2"]);
        unlike.to_string()
    });
    for (rank, unlike) in texts.into_iter().enumerate() {
        assert!(unlike.starts_with("rank 2 called gather, and rank 0 broadcast"), "{rank}: {unlike}");
    }
}

/// One that stands still fills rank 0's queue to all, which then cannot even say that it gave up. The others catch up at once.
#[test]
fn who_is_far_behind_rank_0_does_not_wait_for_what_was_never_sent() {
    const ROUNDS: usize = 400;
    let mut config = Config { drive: background(), ..Config::default() };
    config.protocol.send_buffer_bytes = 64 << 10;
    let stopping = Config { drive: Drive::Inline, ..config.clone() };
    let nodes: Vec<Node> =
        [&config, &stopping, &config].map(|config| Node::bind("127.0.0.1:0", config.clone()).unwrap()).into();
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
    let group = SocketAddr::from(([239, 255, 79, 21], addresses[0].port()));
    let made = |rank: usize| Collective::new(&nodes[rank], &addresses, group, PATIENCE).unwrap();
    let begun = std::sync::Barrier::new(3);
    let follow = |rank: usize| {
        let mut set = made(rank);
        set.barrier(PATIENCE).unwrap();
        begun.wait();
        let began = Instant::now();
        (0..ROUNDS).for_each(|_| drop(set.broadcast("", PATIENCE)));
        assert!(began.elapsed() < PATIENCE / 2, "rank {rank}: {:?}", began.elapsed());
        set.barrier(PATIENCE).unwrap();
    };
    thread::scope(|scope| {
        scope.spawn(|| follow(1));
        scope.spawn(|| follow(2));
        let mut set = made(0);
        set.barrier(PATIENCE).unwrap();
        let failed = (0..ROUNDS).filter(|_| set.broadcast(vec![7; 9_000], Duration::ZERO).is_err()).count();
        begun.wait();
        assert!(failed > ROUNDS / 4, "{failed} of {ROUNDS}");
        set.barrier(PATIENCE).unwrap();
    });
}

/// Rank 0 gives up with a full queue and ends the set: it says the one before the other, once there is room.
#[test]
fn who_is_far_behind_hears_that_rank_0_gave_up_though_it_ended_the_set_then() {
    const ROUNDS: usize = 400;
    let mut config = Config { drive: background(), ..Config::default() };
    config.protocol.send_buffer_bytes = 64 << 10;
    let stopping = Config { drive: Drive::Inline, ..config.clone() };
    let nodes = [config, stopping].map(|config| Node::bind("127.0.0.1:0", config).unwrap());
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
    let group = SocketAddr::from(([239, 255, 79, 23], addresses[0].port()));
    let made = |rank: usize| Collective::new(&nodes[rank], &addresses, group, PATIENCE).unwrap();
    let begun = std::sync::Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut set = made(1);
            set.barrier(PATIENCE).unwrap();
            begun.wait();
            let mut outcomes = (0..ROUNDS).map(|_| set.broadcast("", PATIENCE));
            let ended = outcomes.position(|outcome| matches!(outcome, Err(CollectiveError::RootGone(_))));
            assert_eq!(ended, None, "of {ROUNDS} broadcasts");
        });
        let mut set = made(0);
        set.barrier(PATIENCE).unwrap();
        let failed = (0..ROUNDS).filter(|_| set.broadcast(vec![7; 9_000], Duration::ZERO).is_err()).count();
        begun.wait();
        assert!(failed > ROUNDS / 4, "{failed} of {ROUNDS}");
        assert!(set.close(PATIENCE));
    });
}

/// Rank 0 has not taken what another sent for operations that it gave up: the next set of the same Nodes, whose operations are
/// counted anew, does not take it for its own.
#[test]
fn a_set_does_not_hear_what_is_left_of_the_one_before() {
    let nodes: Vec<Node> = (0..2)
        .map(|_| Node::bind("127.0.0.1:0", Config { drive: background(), ..Config::default() }).unwrap())
        .collect();
    let addresses: Vec<SocketAddr> = nodes.iter().map(Node::local_addr).collect();
    let group = SocketAddr::from(([239, 255, 79, 22], addresses[0].port()));
    let made = |rank: usize| Collective::new(&nodes[rank], &addresses, group, PATIENCE).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut set = made(1);
            set.barrier(PATIENCE).unwrap();
            (0..5).for_each(|_| drop(set.gather("nobody takes this", PATIENCE).unwrap()));
            drop(set);
            made(1).barrier(PATIENCE).unwrap();
        });
        let mut set = made(0);
        set.barrier(PATIENCE).unwrap();
        assert!(set.close(PATIENCE));
        made(0).barrier(PATIENCE).unwrap();
    });
}
