//! Two engines on loopback, and one that speaks to itself.

use super::completion::CompletionQueue;
use super::header::{AtomicKind, AtomicMode, Stretch};
use super::region_table::Registered;
use super::*;
use crate::memory::{Access, Memory, Region};
use crate::settings::Settings;
use std::time::Instant;

/// An engine with queues, and what it needs to be reached.
struct Side {
    engine: Engine,
    queue: Arc<CompletionQueue>,
    counter: Arc<Counter>,
    regions: Arc<RegionTable>,
    addresses: Arc<AddressVector>,
}

fn side(change: impl FnOnce(&mut Limits)) -> Side {
    let mut settings = settings();
    change(&mut settings.limits);
    let config = settings.node_config();
    side_with(settings, config)
}

fn settings() -> Settings {
    Settings { insecure: true, key_file: None, ..Settings::from_environment() }
}

/// A side whose Node is configured otherwise than any of ours.
fn side_with(settings: Settings, config: denrei::Config) -> Side {
    let node = Node::bind("127.0.0.1:0", config).unwrap();
    let (regions, addresses) = (Arc::new(RegionTable::default()), Arc::new(AddressVector::default()));
    addresses.insert(node.local_addr());
    let mut engine = Engine::new(node, Arc::clone(&addresses), Arc::clone(&regions), settings.limits);
    let queue = Arc::new(CompletionQueue::new(0, false).unwrap());
    let counter = Arc::new(Counter::new(false).unwrap());
    engine.sinks.transmit = Some(Arc::clone(&queue));
    engine.sinks.receive = Some(Arc::clone(&queue));
    engine.sinks.counters.push((ffi::FI_READ | ffi::FI_WRITE, Arc::clone(&counter)));
    engine.send_at_once();
    Side { engine, queue, counter, regions, addresses }
}

/// Two sides that know each other as 1, and themselves as 0.
fn pair() -> [Side; 2] {
    introduced([side(|_| ()), side(|_| ())])
}

fn introduced(sides: [Side; 2]) -> [Side; 2] {
    let address = |side: &Side| side.addresses.address(0).unwrap();
    let (a, b) = (address(&sides[0]), address(&sides[1]));
    sides[0].addresses.insert(b);
    sides[1].addresses.insert(a);
    sides
}

fn posted(bytes: &mut [u8]) -> Memory {
    // SAFETY: tests keep their buffers until the operation is reported or the engine dropped.
    unsafe { Memory::new([(bytes.as_mut_ptr(), bytes.len())]) }
}

fn report(context: usize, flags: u64) -> Report {
    Report { context, flags, wanted: true }
}

/// Whether a peer that nobody asks to work hangs. Where the environment gives Nodes threads of their own it does not, and
/// tests of what is done about one that hangs have nothing to show.
pub(crate) fn a_peer_can_hang() -> bool {
    let drive = std::env::var_os(denrei::environment::DRIVE);
    drive.is_none_or(|drive| drive.is_empty() || drive == "inline")
}

/// Lets the sides work until `done`.
fn work(sides: &mut [Side], mut done: impl FnMut(&mut [Side]) -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done(sides) {
        assert!(Instant::now() < end, "nothing came in 20 s");
        for side in sides.iter_mut() {
            side.engine.progress();
        }
    }
}

/// All entries there are; failures as well.
fn read(side: &Side) -> Vec<Completion> {
    let mut all = Vec::new();
    loop {
        match side.queue.read(16, |_, entry| all.push(entry.clone())) {
            Ok(_) => {}
            Err(Errno::AVAILABLE) => all.push(side.queue.read_failure().unwrap()),
            Err(_) => return all,
        }
    }
}

fn wait_for(sides: &mut [Side], index: usize, count: usize) -> Vec<Completion> {
    let mut all = Vec::new();
    work(sides, |sides| {
        all.extend(read(&sides[index]));
        all.len() >= count
    });
    all
}

fn send(side: &mut Side, to: u64, tag: u64, bytes: &mut [u8]) {
    let send = Send {
        to,
        tag: Some(tag),
        data: Some(99),
        payload: Payload::Posted(posted(bytes)),
        report: Some(report(7, ffi::FI_SEND | ffi::FI_TAGGED)),
        until: Until::Free,
    };
    side.engine.send(send).unwrap();
}

fn receive(side: &mut Side, from: u64, tag: u64, bytes: &mut [u8], context: usize) {
    let pattern = side.engine.pattern(from, tag, 0).unwrap();
    let receive = Receive { memory: posted(bytes), context, wanted: true, multi: None };
    side.engine.receive(true, pattern, receive).unwrap();
}

fn pattern_of(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn messages_of_all_sizes_arrive_expected_and_not_from_others_and_oneself() {
    for to in [0, 1] {
        for len in [0, 1, 1000, 16 * 1024, 16 * 1024 + 1, 300_000] {
            for expected in [true, false] {
                let mut sides = pair();
                let (mut out, mut into) = (pattern_of(len), vec![0; len + 1]);
                let at = to as usize;
                if expected {
                    receive(&mut sides[at], to, 5, &mut into, 1);
                }
                send(&mut sides[0], to, 5, &mut out);
                if !expected {
                    let end = Instant::now() + Duration::from_millis(30);
                    work(&mut sides, |_| Instant::now() > end);
                    receive(&mut sides[at], to, 5, &mut into, 1);
                }
                let entries = wait_for(&mut sides, at, if to == 0 { 2 } else { 1 });
                let entry = entries.iter().find(|entry| entry.context == 1).expect("the receive is reported");
                assert_eq!((entry.len, entry.tag, entry.data, entry.source), (len, 5, 99, to));
                assert_eq!(entry.error, None);
                assert_eq!(into[..len], out[..]);
                if to == 1 {
                    let sent = wait_for(&mut sides, 0, 1);
                    assert_eq!((sent[0].context, &sent[0].error), (7, &None));
                }
            }
        }
    }
}

#[test]
fn messages_in_a_row_travel_together_and_keep_their_order_and_content() {
    const MESSAGES: usize = 100;
    for (to, expected) in [(1, true), (1, false), (0, true), (0, false)] {
        let mut sides = pair();
        sides[0].engine.sending.at_once = false;
        // Small ones go together; the others, alone or offered, keep their places.
        let lens: Vec<usize> =
            (0..MESSAGES).map(|i| [0, 5, 64, 700, 9000, 20_000][i * i % 6] + i % 3).collect();
        let mut out: Vec<Vec<u8>> = lens.iter().map(|len| pattern_of(*len)).collect();
        let mut into: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; len + 1]).collect();
        let post = |sides: &mut [Side], into: &mut [Vec<u8>]| {
            for (index, bytes) in into.iter_mut().enumerate() {
                receive(&mut sides[to as usize], to, 5, bytes, 1000 + index);
            }
        };
        if expected {
            post(&mut sides, &mut into);
        }
        for bytes in &mut out {
            send(&mut sides[0], to, 5, bytes);
        }
        assert!(sides[0].engine.send_deferred(), "the last ones wait");
        assert!(!sides[0].engine.send_deferred());
        if !expected {
            let end = Instant::now() + Duration::from_millis(30);
            work(&mut sides, |_| Instant::now() > end);
            post(&mut sides, &mut into);
        }
        let count = if to == 0 { 2 * MESSAGES } else { MESSAGES };
        let entries = wait_for(&mut sides, to as usize, count);
        assert!(entries.iter().all(|entry| entry.error.is_none()));
        for index in 0..MESSAGES {
            let entry = entries.iter().find(|entry| entry.context == 1000 + index).unwrap();
            assert_eq!((entry.len, entry.source, index), (lens[index], to, index));
            assert_eq!(into[index][..lens[index]], out[index][..]);
        }
    }
}

#[test]
fn the_first_of_a_row_of_large_messages_leaves_at_once_and_the_others_are_offered() {
    const LEN: usize = 100_000;
    let mut sides = pair();
    let mut out: Vec<Vec<u8>> = (0..3).map(|index| pattern_of(LEN + index)).collect();
    for row in 0..2 {
        for bytes in &mut out {
            send(&mut sides[0], 1, 5, bytes);
        }
        let end = Instant::now() + Duration::from_millis(30);
        work(&mut sides, |_| Instant::now() > end);
        assert_eq!(read(&sides[0]).len(), 1, "row {row}: nobody has asked for them");
        let mut into = vec![vec![0; LEN + 3]; out.len()];
        for (index, bytes) in into.iter_mut().enumerate() {
            receive(&mut sides[1], 1, 5, bytes, index);
        }
        for entry in wait_for(&mut sides, 1, out.len()) {
            assert_eq!((entry.len, entry.error), (LEN + entry.context, None));
            assert_eq!(into[entry.context][..entry.len], out[entry.context][..]);
        }
        wait_for(&mut sides, 0, out.len() - 1);
    }
}

#[test]
fn a_message_that_does_not_fit_is_cut_and_says_so() {
    for len in [1000, 100_000, 300_000] {
        let mut sides = pair();
        let (mut out, mut into) = (pattern_of(len), [0; 500]);
        receive(&mut sides[1], 1, 5, &mut into, 1);
        send(&mut sides[0], 1, 5, &mut out);
        let entry = wait_for(&mut sides, 1, 1).remove(0);
        assert_eq!((entry.error, entry.len, entry.tag), (Some((Errno::TRUNCATED, len - 500)), 500, 5));
        assert_eq!(into[..], out[..500]);
    }
}

#[test]
fn peek_claim_discard_and_cancel() {
    let mut sides = pair();
    let (mut small, mut large) = (pattern_of(10), pattern_of(50_000));
    send(&mut sides[0], 1, 1, &mut small);
    send(&mut sides[0], 1, 2, &mut large);
    let anything = sides[1].engine.pattern(ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
    let second = sides[1].engine.pattern(1, 2, 0).unwrap();
    work(&mut sides, |sides| sides[1].engine.look(true, &second, Take::Peek, 3).is_ok());
    assert_eq!(read(&sides[1])[0].len, 50_000);
    sides[1].engine.look(true, &second, Take::PeekAndClaim, 4).unwrap();
    assert_eq!(sides[1].engine.look(true, &second, Take::Peek, 3), Err(Errno::NO_MESSAGE));
    let mut into = vec![0; 50_000];
    let claimed = Receive { memory: posted(&mut into), context: 4, wanted: true, multi: None };
    sides[1].engine.receive_claimed(true, claimed).unwrap();
    let entries = wait_for(&mut sides, 1, 2);
    assert!(entries.iter().all(|entry| entry.context == 4 && entry.len == 50_000));
    assert_eq!(into, large);
    sides[1].engine.look(true, &anything, Take::PeekAndDiscard, 5).unwrap();
    assert_eq!(sides[1].engine.look(true, &anything, Take::Peek, 5), Err(Errno::NO_MESSAGE));
    // A large message that is discarded is done for its sender.
    send(&mut sides[0], 1, 3, &mut large);
    work(&mut sides, |sides| sides[1].engine.look(true, &anything, Take::PeekAndDiscard, 6).is_ok());
    assert_eq!(wait_for(&mut sides, 0, 3).len(), 3);
    // So is one that was claimed before, which is said once more.
    send(&mut sides[0], 1, 4, &mut large);
    work(&mut sides, |sides| sides[1].engine.look(true, &anything, Take::PeekAndClaim, 7).is_ok());
    read(&sides[1]);
    sides[1].engine.look(true, &anything, Take::Discard, 7).unwrap();
    let said = read(&sides[1]).remove(0);
    assert_eq!((said.context, said.len, said.tag, said.error), (7, 0, 4, None));
    assert_eq!(sides[1].engine.look(true, &anything, Take::Discard, 7), Err(Errno::INVALID));
    assert_eq!(wait_for(&mut sides, 0, 1).len(), 1);
    let mut never = [0; 4];
    receive(&mut sides[1], 1, 9, &mut never, 8);
    read(&sides[1]);
    assert!(sides[1].engine.cancel(8) && !sides[1].engine.cancel(8));
    assert_eq!(read(&sides[1])[0].error, Some((Errno::CANCELED, 0)));
}

#[test]
fn a_buffer_for_several_messages_is_given_back_when_it_is_full() {
    let mut sides = pair();
    let mut into = vec![0; 100];
    let anything = sides[1].engine.pattern(ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
    let receive = Receive { memory: posted(&mut into), context: 1, wanted: true, multi: Some(30) };
    sides[1].engine.receive(false, anything, receive).unwrap();
    for value in 1..=3u8 {
        let payload = Payload::Copied(&[value; 30]);
        let send = Send { to: 1, tag: None, data: None, payload, report: None, until: Until::Free };
        sides[0].engine.send(send).unwrap();
    }
    let entries = wait_for(&mut sides, 1, 3);
    let starts: Vec<_> = entries.iter().map(|entry| entry.buffer - into.as_ptr() as usize).collect();
    let released: Vec<_> = entries.iter().map(|entry| entry.flags & ffi::FI_MULTI_RECV != 0).collect();
    assert_eq!((starts, released), (vec![0, 30, 60], vec![false, false, true]));
    assert_eq!((into[0], into[59], into[89]), (1, 2, 3));
}

#[test]
fn a_buffer_for_several_messages_is_not_given_back_while_one_is_on_its_way_into_it() {
    const LEN: usize = 300_000;
    let mut sides = pair();
    let (mut out, mut into) = (pattern_of(LEN), vec![0; 2 * LEN]);
    let anything = sides[1].engine.pattern(ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
    let receive = Receive { memory: posted(&mut into), context: 1, wanted: true, multi: Some(30) };
    sides[1].engine.receive(false, anything, receive).unwrap();
    let payload = Payload::Posted(posted(&mut out));
    sides[0]
        .engine
        .send(Send { to: 1, tag: None, data: None, payload, report: None, until: Until::Free })
        .unwrap();
    work(&mut sides, |sides| sides[1].engine.bulks.is_busy());
    assert!(sides[1].engine.cancel(1));
    let entries = wait_for(&mut sides, 1, 2);
    let said: Vec<_> =
        entries.iter().map(|entry| (entry.error, entry.flags & ffi::FI_MULTI_RECV != 0)).collect();
    assert_eq!(said, [(Some((Errno::CANCELED, 0)), false), (None, true)]);
    assert_eq!(into[..LEN], out[..]);
}

fn register(side: &Side, bytes: &mut [u8]) -> u64 {
    let region = Arc::new(Region::new(posted(bytes), 0, Access { reads: true, writes: true }));
    side.regions.insert(None, Arc::new(Registered { region, counters: Default::default() })).unwrap()
}

fn one_sided(to: u64, key: u64, address: u64, len: usize, flags: u64) -> OneSided {
    let stretches = [Stretch { address, len: len as u64, key }].into_iter().collect();
    OneSided { to, stretches, data: None, report: report(2, flags) }
}

#[test]
fn one_sided_operations_of_all_sizes_at_others_and_oneself() {
    for to in [0, 1] {
        for len in [8, 20_000, 5_000_000] {
            let mut sides = pair();
            let served = Arc::new(Counter::new(false).unwrap());
            sides[to as usize].engine.sinks.counters.push((ffi::FI_REMOTE_READ, Arc::clone(&served)));
            let mut there = vec![0; len + 8];
            let key = register(&sides[to as usize], &mut there);
            let (mut out, mut back) = (pattern_of(len), vec![0; len]);
            let write = one_sided(to, key, 8, len, ffi::FI_RMA | ffi::FI_WRITE);
            sides[0].engine.write(write, Payload::Posted(posted(&mut out))).unwrap();
            assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
            assert_eq!(there[8..], out[..]);
            let read = one_sided(to, key, 8, len, ffi::FI_RMA | ffi::FI_READ);
            sides[0].engine.read(read, posted(&mut back)).unwrap();
            assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
            assert_eq!(back, out);
            assert_eq!(served.read(), 1, "an operation counts once");
            let kind = AtomicKind { datatype: 7, op: 2, mode: AtomicMode::Fetch };
            let fetch = one_sided(to, key, 8, 8, ffi::FI_ATOMIC | ffi::FI_READ);
            let mut before = [0; 8];
            sides[0].engine.atomic(fetch, kind, &1u64.to_le_bytes(), Some(posted(&mut before))).unwrap();
            assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
            assert_eq!(before, out[..8]);
            let expected = u64::from_le_bytes(before).wrapping_add(1);
            assert_eq!(there[8..16], expected.to_le_bytes());
            assert_eq!(sides[0].counter.read(), 3);
        }
    }
}

#[test]
fn what_no_key_allows_fails_and_what_follows_does_not() {
    let mut sides = pair();
    let mut there = vec![0; 100_000];
    let key = register(&sides[1], &mut there);
    for (wrong_key, address, len) in [(key + 1, 0, 8), (key, 99_999, 2), (key, 0, 100_001)] {
        let mut out = pattern_of(len);
        let write = one_sided(1, wrong_key, address, len, ffi::FI_RMA | ffi::FI_WRITE);
        sides[0].engine.write(write, Payload::Posted(posted(&mut out))).unwrap();
        assert_eq!(wait_for(&mut sides, 0, 1)[0].error, Some((Errno::NO_KEY, 0)));
    }
    let write = one_sided(1, key, 0, 4, ffi::FI_RMA | ffi::FI_WRITE);
    sides[0].engine.write(write, Payload::Copied(b"good")).unwrap();
    assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
    assert_eq!(&there[..4], b"good");
}

#[test]
fn a_write_to_a_region_that_is_closed_meanwhile_fails() {
    const LEN: usize = 300_000;
    let mut sides = pair();
    let (mut out, mut there) = (pattern_of(LEN), vec![0; LEN]);
    let key = register(&sides[1], &mut there);
    let write = one_sided(1, key, 0, LEN, ffi::FI_RMA | ffi::FI_WRITE);
    sides[0].engine.write(write, Payload::Posted(posted(&mut out))).unwrap();
    work(&mut sides, |sides| sides[1].engine.bulks.is_busy());
    sides[1].regions.remove(key);
    assert_eq!(wait_for(&mut sides, 0, 1)[0].error, Some((Errno::NO_KEY, 0)));
}

#[test]
fn operations_on_the_same_memory_are_atomic_though_several_endpoints_serve_it() {
    const EACH: u64 = 20_000;
    let mut there = [0; 8];
    let mut pairs = [pair(), pair()];
    let key = register(&pairs[0][1], &mut there);
    pairs[1][1].engine.regions = Arc::clone(&pairs[0][1].regions);
    std::thread::scope(|scope| {
        for sides in &mut pairs {
            scope.spawn(move || {
                let kind = AtomicKind { datatype: 7, op: 2, mode: AtomicMode::Write };
                for begun in 0..EACH {
                    let add = one_sided(1, key, 0, 8, ffi::FI_ATOMIC | ffi::FI_WRITE);
                    sides[0].engine.atomic(add, kind, &1u64.to_le_bytes(), None).unwrap();
                    if begun % 1000 == 999 {
                        work(sides, |sides| sides[0].counter.read() > begun);
                    }
                }
            });
        }
    });
    assert_eq!(u64::from_le_bytes(there), 2 * EACH);
}

#[test]
fn small_requests_in_a_row_travel_together_and_keep_their_order() {
    let mut sides = pair();
    sides[0].engine.sending.at_once = false;
    let (mut there, mut back) = ([0; 16], [0; 8]);
    let key = register(&sides[1], &mut there);
    for count in 1..=100_u64 {
        let write = one_sided(1, key, 8, 8, ffi::FI_RMA | ffi::FI_WRITE);
        sides[0].engine.write(write, Payload::Copied(&count.to_le_bytes())).unwrap();
        // An exchange is never slowed down.
        assert!(count > 2 || !sides[0].engine.has_deferred());
    }
    let read = one_sided(1, key, 8, 8, ffi::FI_RMA | ffi::FI_READ);
    sides[0].engine.read(read, posted(&mut back)).unwrap();
    assert!(sides[0].engine.send_deferred(), "the last ones wait");
    assert!(!sides[0].engine.has_deferred());
    work(&mut sides, |sides| sides[0].counter.read() == 101);
    assert_eq!(u64::from_le_bytes(back), 100);
}

#[test]
fn many_requests_in_a_row_are_all_answered() {
    for to in [0, 1] {
        let mut sides = pair();
        let mut there = [0; 16];
        let key = register(&sides[to as usize], &mut there);
        let kind = AtomicKind { datatype: 7, op: 2, mode: AtomicMode::Write };
        let mut begun = 0;
        while begun < 60_000 {
            let add = one_sided(to, key, 8, 8, ffi::FI_ATOMIC | ffi::FI_WRITE);
            match sides[0].engine.atomic(add, kind, &1u64.to_le_bytes(), None) {
                Ok(()) => begun += 1,
                Err(errno) => {
                    assert_eq!(errno, Errno::AGAIN);
                    for side in &mut sides {
                        side.engine.progress();
                    }
                }
            }
        }
        work(&mut sides, |sides| sides[0].counter.read() == begun);
        assert_eq!(there[8..], begun.to_le_bytes());
    }
}

#[test]
fn who_waits_for_one_peer_gets_its_message_behind_what_others_have_sent_in_vain() {
    let mut sides = [side(|_| ()), side(|_| ()), side(|limits| limits.unexpected_bytes = 100_000)];
    let receiver = sides[2].addresses.address(0).unwrap();
    for index in 0..2 {
        sides[index].addresses.insert(receiver);
        let address = sides[index].addresses.address(0).unwrap();
        sides[2].addresses.insert(address);
    }
    let say = |side: &mut Side, bytes: &[u8]| {
        let payload = Payload::Copied(bytes);
        side.engine
            .send(Send { to: 1, tag: None, data: None, payload, report: None, until: Until::Free })
            .unwrap();
    };
    for _ in 0..50 {
        say(&mut sides[0], &[1; 4000]);
    }
    work(&mut sides, |sides| sides[2].engine.is_holding_back());
    let mut into = [0; 8];
    let pattern = sides[2].engine.pattern(2, 0, u64::MAX).unwrap();
    let receive = Receive { memory: posted(&mut into), context: 1, wanted: true, multi: None };
    sides[2].engine.receive(false, pattern, receive).unwrap();
    say(&mut sides[1], &[2; 8]);
    assert_eq!(wait_for(&mut sides, 2, 1)[0].error, None);
    assert_eq!(into, [2; 8]);
}

mod back;
mod bounds;
mod lost;
mod matched;
mod random;
