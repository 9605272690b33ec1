//! What is held for others has bounds.

use super::*;
use crate::engine::header::Request;

#[test]
fn unexpected_messages_are_bounded_and_nothing_is_lost() {
    let mut sides = [side(|_| ()), side(|limits| limits.unexpected_bytes = 100_000)];
    let (a, b) = (sides[0].addresses.address(0).unwrap(), sides[1].addresses.address(0).unwrap());
    sides[0].addresses.insert(b);
    sides[1].addresses.insert(a);
    let (mut sent, mut refused) = (0u64, false);
    let end = Instant::now() + Duration::from_secs(20);
    while !refused && Instant::now() < end {
        let send = Send {
            to: 1,
            tag: Some(sent),
            data: None,
            payload: Payload::Copied(&[sent as u8; 4000]),
            report: None,
            delivery: false,
        };
        match sides[0].engine.send(send) {
            Ok(_) => sent += 1,
            Err(errno) => refused = errno == Errno::AGAIN,
        }
        sides[1].engine.progress();
    }
    assert!(refused, "{sent} messages of 4 kB were taken in");
    let mut into = [0; 4000];
    for tag in 0..sent {
        receive(&mut sides[1], 1, tag, &mut into, 1);
        assert_eq!(wait_for(&mut sides, 1, 1)[0].len, 4000);
        assert_eq!(into, [tag as u8; 4000]);
    }
}

#[test]
fn nobody_is_given_more_at_a_time_than_a_read_asks_for() {
    let mut sides = pair();
    let served = Arc::new(Counter::new(false).unwrap());
    sides[1].engine.sinks.counters.push((ffi::FI_REMOTE_READ, Arc::clone(&served)));
    let mut there = vec![0; 3 << 20];
    let key = register(&sides[1], &mut there);
    let peer = sides[1].engine.peer(1).unwrap();
    let fetch = AtomicKind { datatype: 7, op: 10, mode: AtomicMode::Fetch };
    let requests = [Request::Read { is_followed: false }, Request::Atomic { kind: fetch, operands: &[] }];
    for request in requests {
        for (len, is_served) in [((1 << 20) + 8, false), (1 << 20, true)] {
            let (mut octets, before) = (Vec::new(), served.read());
            let halves = [Stretch { address: 0, len: len / 2, key }; 2];
            header::encode_request(&halves, None, &request, &mut octets);
            sides[1].engine.on_request(peer, 0, &octets);
            assert_eq!(served.read() > before, is_served, "{request:?} of {len}");
        }
    }
}
