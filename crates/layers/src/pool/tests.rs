use super::*;
use proptest::prelude::*;
use std::sync::Barrier;

fn fill(pdu: &mut Pdu, octet: u8) {
    pdu.get_mut().unwrap().fill(octet);
}

#[test]
fn classes_reach_from_256_octets_to_a_train_with_headers() {
    assert_eq!(class_of(0), Some(0));
    assert_eq!(class_of(256), Some(0));
    assert_eq!(class_of(257), Some(1));
    assert_eq!(class_of(65_536 + 200), Some(CLASSES - 1));
    assert_eq!(class_of(LARGEST_BODY), Some(CLASSES - 1));
    assert_eq!(class_of(LARGEST_BODY + 1), None);
    let mut pool = Pool::default();
    let train = pool.allocate(200, 65_536).unwrap();
    assert_eq!((train.len(), train.head_room(), train.tail_room()), (65_536, 200, 131_072 - 65_736));
    let error = pool.allocate(0, LARGEST_BODY + 1).unwrap_err();
    assert_eq!(error, PoolError::TooLarge { bytes: LARGEST_BODY + 1 });
    assert!(pool.allocate(usize::MAX, 1).is_err());
}

#[test]
fn headers_go_on_and_off_without_a_copy() {
    let mut pool = Pool::default();
    let mut pdu = pool.allocate(32, 100).unwrap();
    fill(&mut pdu, 7);
    let at = pdu.as_ptr();
    pdu.prepend(20).unwrap().fill(1);
    pdu.prepend(12).unwrap().fill(2);
    assert_eq!((pdu.len(), pdu[0], pdu[12], pdu[32]), (132, 2, 1, 7));
    assert_eq!(pdu.prepend(1), Err(NoHeadRoom { wanted: 1 }));
    pdu.strip(32);
    assert_eq!((pdu.as_ptr(), pdu.len()), (at, 100));
    pdu.append(4).unwrap().fill(9);
    pdu.truncate(102);
    assert_eq!((pdu.len(), pdu[100], pdu[101]), (102, 9, 9));
}

#[test]
fn a_kept_descriptor_sees_nothing_of_headers_put_in_front() {
    let mut pool = Pool::default();
    let mut first = pool.allocate(40, 8).unwrap();
    fill(&mut first, 7);
    let mut kept = first.share();
    assert!(first.get_mut().is_none() && first.append(1).is_none());
    first.prepend(20).unwrap().fill(1);
    // Sent again while the first is still on its way: its place is taken, so a copy.
    let mut again = kept.share();
    assert!(again.prepend(20).is_err());
    let mut copy = pool.copy(&again, 40).unwrap();
    copy.prepend(20).unwrap().fill(2);
    assert_eq!((&first[..20], &first[20..]), (&[1; 20][..], &[7; 8][..]));
    assert_eq!((&copy[..20], &copy[20..]), (&[2; 20][..], &[7; 8][..]));
    assert_eq!(&*kept, &[7; 8]);
    // Alone again, it may put a header where the first had one.
    drop((first, again));
    let mut last = kept;
    last.prepend(20).unwrap().fill(3);
    assert_eq!(&last[20..], &[7; 8]);
}

#[test]
fn an_exhausted_pool_says_so_and_goes_on_when_a_buffer_comes_home() {
    let mut pool = Pool::new(&PoolConfig::uniform(2));
    let (a, b) = (pool.allocate(0, 1000).unwrap(), pool.allocate(0, 600).unwrap());
    let error = pool.allocate(0, 1024).unwrap_err();
    assert_eq!(error, PoolError::Exhausted { body_bytes: 1024, blocks: 2 });
    assert!(pool.allocate(0, 100).is_ok(), "another class has some");
    let at = a.as_ptr();
    std::thread::spawn(move || drop(a)).join().unwrap();
    assert_eq!(pool.allocate(0, 1000).unwrap().as_ptr(), at);
    assert_eq!(pool.counters().exhausted, 1);
    drop(b);
}

#[test]
fn who_asks_for_buffers_that_never_are_is_not_told_to_wait() {
    let mut config = PoolConfig::uniform(0);
    config.blocks[1] = 1;
    let mut pool = Pool::new(&config);
    assert_eq!(pool.allocate(0, 100).unwrap_err(), PoolError::NotAllowed { body_bytes: 256 });
    assert!(pool.allocate(0, 300).is_ok());
    assert_eq!(pool.counters().exhausted, 0);
}

#[test]
fn what_a_thread_has_freed_is_no_reason_for_it_to_find_nothing() {
    let mut pool = Pool::new(&PoolConfig::uniform(240));
    let mut all: Vec<_> = (0..240).map(|_| pool.allocate(0, 100).unwrap()).collect();
    // Less than a batch, in the thread that allocates.
    all.truncate(230);
    assert!(pool.allocate(0, 100).is_ok(), "ten are free");
    // In a thread that then waits for a buffer of its own pool.
    let (asked, is_home) = (Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut own = Pool::new(&PoolConfig::uniform(1));
            let _one = own.allocate(0, 100).unwrap();
            all.truncate(220);
            assert!(own.allocate(0, 100).is_err());
            asked.wait();
            is_home.wait();
        });
        asked.wait();
        let again: Vec<_> = std::iter::from_fn(|| pool.allocate(0, 100).ok()).collect();
        is_home.wait();
        assert_eq!(again.len(), 20);
    });
}

#[test]
fn foreign_frees_come_home_and_nothing_is_made_twice() {
    const ROUNDS: usize = 20_000;
    let mut pool = Pool::new(&PoolConfig::uniform(128));
    let (mut producer, mut consumer) = crate::ring(64);
    let freeing = std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let pdu: Pdu = loop {
                match consumer.pop() {
                    Some(pdu) => break pdu,
                    None => std::thread::yield_now(),
                }
            };
            assert!(pdu.iter().all(|octet| *octet == round as u8), "round {round}");
        }
    });
    for round in 0..ROUNDS {
        let mut pdu = loop {
            match pool.allocate(0, 64) {
                Ok(pdu) => break pdu,
                Err(PoolError::Exhausted { .. }) => std::thread::yield_now(),
                Err(other) => panic!("{other}"),
            }
        };
        fill(&mut pdu, round as u8);
        while let Err(back) = producer.push(pdu) {
            pdu = back;
            std::thread::yield_now();
        }
    }
    freeing.join().unwrap();
    assert_eq!(pool.leaks(), []);
    assert_eq!((pool.outstanding(), pool.counters().memory_bytes), (0, 128 * 256));
}

#[test]
fn buffers_outlive_their_pool() {
    let mut pool = Pool::default();
    let pdus: Vec<_> = (0..100).map(|_| pool.allocate(0, 500).unwrap()).collect();
    drop(pool);
    let late = std::thread::spawn(move || {
        let sum: usize = pdus.iter().map(|pdu| pdu.len()).sum();
        drop(pdus);
        flush_frees();
        sum
    });
    assert_eq!(late.join().unwrap(), 50_000);
}

#[test]
fn leaks_are_named_by_where_they_were_allocated() {
    let mut pool = Pool::default();
    let (line, kept) = (line!(), pool.allocate(0, 300).unwrap());
    drop(pool.allocate(0, 300).unwrap());
    let leaks = pool.leaks();
    assert_eq!((leaks.len(), leaks[0].body_bytes), (1, 512));
    if cfg!(debug_assertions) {
        assert_eq!(leaks[0].site.map(|site| (site.file(), site.line())), Some((file!(), line)));
    }
    drop(kept);
    assert_eq!(pool.leaks(), []);
}

#[test]
fn a_body_freed_twice_is_noticed() {
    let mut pool = Pool::default();
    let raw = pool.allocate(0, 300).unwrap().into_raw();
    // SAFETY: the body is this pool's, which lives.
    unsafe {
        assert!(Pdu::from_raw(raw).is_some_and(|pdu| pdu.len() == 512));
        assert!(Pdu::from_raw(raw).is_none());
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "is freed twice")]
fn two_last_descriptors_are_a_bug_that_is_reported() {
    let mut pool = Pool::default();
    let raw = pool.allocate(0, 300).unwrap().into_raw();
    // SAFETY: deliberately wrong: two descriptors, each of which believes to be the only one. In
    // debug builds the second to go finds the block free and reports it before it does any harm.
    let (first, second) = unsafe { (Pdu::from_raw(raw), Pdu::from_raw(raw)) };
    drop(first);
    drop(second);
}

#[derive(Clone, Debug)]
enum Op {
    Allocate { head_room: usize, len: usize },
    Share(usize),
    Prepend(usize, usize),
    Strip(usize, usize),
    Drop(usize),
    DropElsewhere(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0..64usize, 0..2000usize).prop_map(|(head_room, len)| Op::Allocate { head_room, len }),
        1 => (0..50usize).prop_map(Op::Share),
        2 => (0..50usize, 0..40usize).prop_map(|(which, count)| Op::Prepend(which, count)),
        1 => (0..50usize, 0..40usize).prop_map(|(which, count)| Op::Strip(which, count)),
        1 => (0..50usize).prop_map(Op::Drop),
        1 => (0..50usize).prop_map(Op::DropElsewhere),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_descriptor_keeps_reading_what_was_written(ops in prop::collection::vec(op(), 1..150)) {
        let mut pool = Pool::new(&PoolConfig::uniform(16));
        let mut pdus: Vec<(Pdu, Vec<u8>)> = Vec::new();
        let mut stamp = 0u8;
        for op in ops {
            stamp = stamp.wrapping_add(1);
            match op {
                Op::Allocate { head_room, len } => if let Ok(mut pdu) = pool.allocate(head_room, len) {
                    fill(&mut pdu, stamp);
                    pdus.push((pdu, vec![stamp; len]));
                },
                Op::Share(which) => if let Some((pdu, content)) = pdus.get_mut(which) {
                    let both = (pdu.share(), content.clone());
                    pdus.push(both);
                },
                Op::Prepend(which, count) => if let Some((pdu, content)) = pdus.get_mut(which)
                    && let Ok(header) = pdu.prepend(count) {
                    header.fill(stamp);
                    content.splice(..0, vec![stamp; count]);
                },
                Op::Strip(which, count) => if let Some((pdu, content)) = pdus.get_mut(which) {
                    let count = count.min(content.len());
                    pdu.strip(count);
                    content.drain(..count);
                },
                Op::Drop(which) => if which < pdus.len() { pdus.swap_remove(which); },
                Op::DropElsewhere(which) => if which < pdus.len() {
                    let pdu = pdus.swap_remove(which);
                    std::thread::spawn(move || drop(pdu)).join().unwrap();
                },
            }
            for (pdu, content) in &pdus {
                prop_assert_eq!(&**pdu, &content[..]);
            }
        }
        pdus.clear();
        prop_assert_eq!(pool.leaks(), vec![]);
    }
}
