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
            until: Until::Free,
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

/// Three sides: the first two know the last as 1, which calls them 1 and 2 and takes little that it does not expect. The
/// first has sent it all that it could, while it waits for `tag` of the second, if any.
fn flooded(tag: Option<u64>, into: &mut [u8]) -> Vec<Side> {
    let mut sides = vec![side(|_| ()), side(|_| ()), side(|limits| limits.unexpected_bytes = 100_000)];
    let receiver = sides[2].addresses.address(0).unwrap();
    for index in 0..2 {
        sides[index].addresses.insert(receiver);
        let address = sides[index].addresses.address(0).unwrap();
        sides[2].addresses.insert(address);
    }
    if let Some(tag) = tag {
        receive(&mut sides[2], ffi::FI_ADDR_UNSPEC, tag, into, 1);
    }
    let (mut sent, mut refused) = (0, 0);
    while refused < 100 {
        let payload = Payload::Copied(&[0; 4000]);
        let send = Send { to: 1, tag: Some(0), data: None, payload, report: None, until: Until::Free };
        refused = if sides[0].engine.send(send).is_ok() { 0 } else { refused + 1 };
        sent += usize::from(refused == 0);
        assert!(sent < 100_000, "all of it was taken in");
        sides.iter_mut().for_each(|side| _ = side.engine.progress());
    }
    sides
}

#[test]
fn a_peer_that_sends_much_in_vain_keeps_nobody_waiting_for_another() {
    for many in [1, 1000] {
        let mut into = [0; 8];
        let mut sides = flooded(Some(many), &mut into);
        assert!(
            sides[2].engine.receiving.told_full.get(),
            "it is said what to do if that is what is waited for"
        );
        // The last one is waited for.
        for tag in 1..=many {
            send(&mut sides[1], 1, tag, &mut [5; 8]);
        }
        let got = wait_for(&mut sides[1..], 1, 1);
        assert_eq!((got[0].context, got[0].error, into), (1, None, [5; 8]));
    }
}

#[test]
fn who_looks_for_a_message_finds_it_behind_what_others_and_its_sender_have_sent_in_vain() {
    let mut sides = flooded(None, &mut []);
    assert!(!sides[2].engine.receiving.told_full.get(), "nobody waits");
    for (source, tag) in [(2, 7), (ffi::FI_ADDR_UNSPEC, 8)] {
        // More than the limit, and less than its share of what is taken while somebody looks.
        for _ in 0..50 {
            send(&mut sides[1], 1, 6, &mut [0; 4000]);
        }
        send(&mut sides[1], 1, tag, &mut [5; 8]);
        let wanted = sides[2].engine.pattern(source, tag, 0).unwrap();
        work(&mut sides[1..], |sides| sides[1].engine.look(true, &wanted, Take::Peek, 3).is_ok());
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

/// Completions in vain, until the first side may begin no more or as many as may ever be are there; reads all and goes on to
/// the end.
fn fill_and_empty(sides: &mut [Side], mut begin: impl FnMut(&mut Side) -> Result<(), Errno>) {
    const BEYOND: usize = completion::MOST_UNREAD + 20_000;
    let (mut begun, mut idle) = (0, 0);
    let end = Instant::now() + Duration::from_secs(20);
    // Where a thread drives the Nodes, turns in a row may be idle before it has come so far.
    while begun < BEYOND && (idle < 1000 || sides[1].queue.len() < completion::MOST_UNREAD) {
        assert!(Instant::now() < end, "{begun} begun, {} unread", sides[1].queue.len());
        idle = if begin(&mut sides[0]).is_ok() { 0 } else { idle + 1 };
        begun += usize::from(idle == 0);
        if idle > 0 || begun.is_multiple_of(64) {
            sides.iter_mut().for_each(|side| while side.engine.progress() {});
            read(&sides[0]);
        }
    }
    let unread = sides[1].queue.len();
    assert!((completion::MOST_UNREAD..completion::MOST_UNREAD + 1000).contains(&unread), "{unread} unread");
    while begun < BEYOND {
        begun += usize::from(begin(&mut sides[0]).is_ok());
        sides.iter_mut().for_each(|side| _ = side.engine.progress());
        sides.iter().for_each(|side| _ = read(side));
    }
}

#[test]
fn what_peers_write_with_data_waits_while_the_application_does_not_read_what_is_reported() {
    let mut sides = pair();
    let mut there = vec![0; 8];
    let key = register(&sides[1], &mut there);
    let mut at = 0_u64;
    fill_and_empty(&mut sides, |side| {
        let write = OneSided { data: Some(1), ..one_sided(1, key, 0, 8, ffi::FI_RMA | ffi::FI_WRITE) };
        at += 1;
        side.engine.write(write, Payload::Copied(&at.to_le_bytes()))
    });
}

#[test]
fn empty_messages_wait_while_the_application_does_not_read_what_is_reported() {
    let mut sides = pair();
    let mut into = vec![0; 8];
    let anything = sides[1].engine.pattern(ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
    let buffer = Receive { memory: posted(&mut into), context: 1, wanted: true, multi: Some(8) };
    sides[1].engine.receive(false, anything, buffer).unwrap();
    fill_and_empty(&mut sides, |side| {
        let payload = Payload::Copied(&[]);
        side.engine
            .send(Send { to: 1, tag: None, data: None, payload, report: None, until: Until::Free })
            .map(drop)
    });
}

#[test]
fn nothing_is_begun_that_there_is_no_room_to_report_until_the_application_reads() {
    let mut sides = pair();
    let mut there = vec![0; 8];
    let key = register(&sides[0], &mut there);
    let say = |sides: &mut [Side], is_reported: bool| {
        let report = Some(Report { wanted: is_reported, ..report(1, ffi::FI_SEND) });
        let send =
            Send { to: 0, tag: None, data: None, payload: Payload::Copied(&[]), report, until: Until::Free };
        let begun = sides[0].engine.send(send).map(drop);
        sides[0].engine.progress();
        begun
    };
    let begun = (0..).take_while(|_| say(&mut sides, true).is_ok()).take(100_000).count();
    assert_eq!(begun, completion::MOST_UNREAD);
    assert_eq!(say(&mut sides, true), Err(Errno::AGAIN));
    let read_there = |sides: &mut [Side], into: &mut [u8]| {
        sides[0].engine.read(one_sided(0, key, 0, 8, ffi::FI_RMA | ffi::FI_READ), posted(into))
    };
    let mut into = [0; 8];
    assert_eq!(read_there(&mut sides, &mut into), Err(Errno::AGAIN));
    say(&mut sides, false).unwrap();
    assert_eq!(read(&sides[0]).len(), begun);
    say(&mut sides, true).unwrap();
    read_there(&mut sides, &mut into).unwrap();
    wait_for(&mut sides, 0, 2);
}

#[test]
fn a_peer_that_reads_much_waits_until_it_has_taken_what_it_has_read() {
    const LEN: usize = 1 << 20;
    let mut sides = pair();
    let served = Arc::new(Counter::new(false).unwrap());
    sides[1].engine.sinks.counters.push((ffi::FI_REMOTE_READ, Arc::clone(&served)));
    let mut there = pattern_of(LEN);
    let key = register(&sides[1], &mut there);
    let mut into = vec![vec![0; LEN]; 40];
    // Opens the session.
    let wanted = one_sided(1, key, 0, 8, ffi::FI_RMA | ffi::FI_READ);
    sides[0].engine.read(wanted, posted(&mut into[0][..8])).unwrap();
    wait_for(&mut sides, 0, 1);
    for bytes in &mut into {
        let wanted = one_sided(1, key, 0, LEN, ffi::FI_RMA | ffi::FI_READ);
        sides[0].engine.read(wanted, posted(bytes)).unwrap();
    }
    let turn = |sides: &mut [Side]| {
        // What it has asked for leaves, and it takes no answer.
        sides[0].engine.port.flush(Instant::now() + Duration::from_millis(1));
        sides[1].engine.progress();
    };
    let end = Instant::now() + Duration::from_secs(10);
    while served.read() < 1 + 16 && Instant::now() < end {
        turn(&mut sides);
    }
    // However often it is asked.
    (0..100).for_each(|_| turn(&mut sides));
    assert_eq!(served.read(), 1 + 16, "as many as 16 MiB hold");
    assert!(wait_for(&mut sides, 0, 40).iter().all(|entry| entry.error.is_none()));
    assert!(into.iter().all(|bytes| *bytes == there));
}

#[test]
fn offers_are_kept_for_an_application_that_computes_for_long_however_many_there_are() {
    const SENDERS: usize = 3;
    const OFFERS: u64 = 25_000;
    const LEN: usize = 20_000;
    let mut sides = Vec::from(pair());
    sides.extend((2..=SENDERS).map(|_| side(|_| ())));
    let mut out = pattern_of(LEN);
    let here = sides[0].addresses.address(0).unwrap();
    for sender in 1..=SENDERS {
        let there = sides[sender].addresses.address(0).unwrap();
        sides[0].addresses.insert(there);
        sides[sender].addresses.insert(here);
        // Opens the session.
        let (mut into, from) = ([0; 8], sides[0].addresses.number(there).unwrap());
        receive(&mut sides[0], from, 0, &mut into, 0);
        send(&mut sides[sender], 1, 0, &mut out[..8]);
        wait_for(&mut sides, 0, 1);
    }
    for side in &mut sides[1..] {
        (1..=OFFERS).for_each(|tag| send(side, 1, tag, &mut out));
    }
    let end = Instant::now() + Duration::from_secs(2);
    while Instant::now() < end {
        sides[0].engine.port.flush(Instant::now() + Duration::from_millis(1));
        sides[1..].iter_mut().for_each(|side| _ = side.engine.progress());
    }
    for sender in 1..=SENDERS {
        let from = sides[0].addresses.number(sides[sender].addresses.address(0).unwrap()).unwrap();
        for tag in [2, 3, OFFERS] {
            let mut into = vec![0; LEN];
            receive(&mut sides[0], from, tag, &mut into, 1);
            assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
            assert_eq!(into, out);
        }
    }
}

/// A receiver bears with twice as many offers that nobody asks for, and then ends the session.
#[test]
fn who_sends_large_messages_that_nobody_receives_waits() {
    const LEN: usize = 20_000;
    let mut sides = pair();
    let (mut out, mut into) = (pattern_of(LEN), vec![0; LEN]);
    // The first of a row goes at once.
    for tag in 0..=bulk::MOST_OFFERED as u64 / 2 {
        send(&mut sides[0], 1, tag, &mut out);
        hear_now_and_then(&mut sides, tag);
    }
    let mut another = |side: &mut Side| {
        let payload = Payload::Posted(posted(&mut out));
        side.engine.send(Send { to: 1, tag: Some(0), data: None, payload, report: None, until: Until::Free })
    };
    assert_eq!(another(&mut sides[0]), Err(Errno::AGAIN));
    receive(&mut sides[1], 1, 1, &mut into, 1);
    assert_eq!(wait_for(&mut sides, 1, 1)[0].error, None);
    assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
    another(&mut sides[0]).unwrap();
}

#[test]
fn a_peer_that_announces_large_writes_waits_until_it_has_offered_some() {
    const WRITES: u64 = 20_000;
    let mut sides = pair();
    let mut there = vec![0; WRITES as usize];
    let key = register(&sides[1], &mut there);
    let peer = sides[0].engine.peer(1).unwrap();
    let queue = |sides: &mut [Side], channel, octets: Vec<u8>| {
        sides[0].engine.port.queue(peer, channel, octets.into(), false).unwrap();
    };
    // Every other one is refused.
    for number in 0..WRITES {
        let mut octets = Vec::new();
        let place = [Stretch { address: number, len: 1, key: key + number % 2 }];
        header::encode_request(&place, None, &Request::WriteBulk { number }, &mut octets);
        queue(&mut sides, header::REQUESTS, octets);
    }
    let most = origin::MAX_REQUESTS;
    work(&mut sides, |sides| sides[1].engine.bulks.len() >= most);
    let end = Instant::now() + Duration::from_millis(500);
    work(&mut sides, |_| Instant::now() > end);
    let awaited = sides[1].engine.bulks.len();
    assert!((most..most + 256).contains(&awaited), "{awaited} are awaited");
    (0..WRITES).for_each(|_| queue(&mut sides, header::BULK, vec![1]));
    let is_there = |(number, octet): (usize, &u8)| number % 2 == 1 || *octet == 1;
    work(&mut sides, |sides| {
        sides[1].engine.bulks.len() == 0
            && core::hint::black_box(&there).iter().enumerate().all(is_there)
            && !sides[1].engine.is_holding_back()
    });
    assert!(there.iter().enumerate().all(|(number, octet)| number % 2 == 0 || *octet == 0));
}

#[test]
fn peers_that_come_and_go_are_forgotten_but_not_what_they_have_left_nor_who_is_named() {
    const PEERS: usize = 700;
    let server = side(|_| ());
    let here = server.addresses.address(0).unwrap();
    let mut named = side(|_| ());
    named.addresses.insert(here);
    let known = server.addresses.insert(named.addresses.address(0).unwrap()).unwrap();
    send(&mut named, 1, 7, &mut [9; 8]);
    let mut sides = vec![server, named];
    work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
    let mut into = [0; 8];
    receive(&mut sides[0], known, 7, &mut into, 1);
    read(&sides[0]);
    sides.truncate(1);
    for index in 0..PEERS {
        let mut guest = side(|_| ());
        guest.addresses.insert(here);
        let tag = if index % 100 == 50 { 1000 + index as u64 } else { 1 };
        send(&mut guest, 1, tag, &mut (index as u64).to_le_bytes());
        sides.push(guest);
        if tag == 1 {
            receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut into, index);
            let got = wait_for(&mut sides, 0, 1);
            assert_eq!((got[0].context, got[0].error, u64::from_le_bytes(into)), (index, None, index as u64));
        }
        // It waits until it is acknowledged, and goes in order.
        let mut guest = sides.pop().unwrap();
        let going = std::thread::spawn(move || guest.engine.flush());
        work(&mut sides, |_| going.is_finished());
    }
    let end = Instant::now() + Duration::from_millis(200);
    work(&mut sides, |_| Instant::now() > end);
    let (peers, directory) = (sides[0].engine.port.known(), sides[0].engine.port.directory());
    assert!(peers < 300 && directory < 300, "{peers} known, of {directory}");
    let own = sides[0].addresses.address(1).unwrap();
    let peer = sides[0].engine.peer(known).unwrap();
    assert!(sides[0].engine.port.address(peer) == own && sides[0].engine.port.has_departed(peer));
    for index in (50..PEERS).step_by(100) {
        receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1000 + index as u64, &mut into, index);
        let got = wait_for(&mut sides, 0, 1);
        assert_eq!((got[0].context, got[0].error, u64::from_le_bytes(into)), (index, None, index as u64));
    }
}

#[test]
fn of_large_messages_that_nobody_asks_for_nothing_is_held_however_little_larger_they_are() {
    const MESSAGES: usize = 2000;
    for beyond in [1, 2, 255, 256, 257] {
        let mut sides = pair();
        let mut out = pattern_of(sides[0].engine.limits.eager_bytes + beyond);
        let mut small = [0; 8];
        // The first of a row leaves at once.
        send(&mut sides[0], 1, 0, &mut small);
        (0..MESSAGES).for_each(|_| send(&mut sides[0], 1, 1, &mut out));
        let end = Instant::now() + Duration::from_millis(300);
        work(&mut sides, |_| Instant::now() > end);
        assert_eq!(read(&sides[0]).len(), 1, "{beyond} bytes beyond: they are the sender's still");
        let mut into = vec![0; out.len()];
        for _ in 0..MESSAGES {
            receive(&mut sides[1], 1, 1, &mut into, 1);
            assert_eq!(wait_for(&mut sides, 1, 1)[0].error, None);
            assert_eq!(into, out);
        }
    }
}

/// A million of something takes seconds, on a busy machine longer than a side may be silent, or deaf.
fn hear_now_and_then(sides: &mut [Side], number: u64) {
    if number.is_multiple_of(1024) {
        // A row that is being sent goes on.
        sides[0].engine.port.flush(Instant::now());
        sides[1].engine.progress();
    }
}

/// Two sides with a session, and what the second calls the first.
fn acquainted() -> ([Side; 2], matching::PeerIndex) {
    meet(pair())
}

fn meet(mut sides: [Side; 2]) -> ([Side; 2], matching::PeerIndex) {
    send(&mut sides[0], 1, 1, &mut [0; 8]);
    work(&mut sides, |sides| sides[1].engine.receiving_is_busy());
    let peer = sides[1].engine.peer(1).unwrap();
    (sides, peer)
}

#[test]
fn a_peer_that_brings_large_messages_of_which_nobody_is_told_is_lost() {
    const LEN: usize = 16 << 10;
    // None of ours sends so small ones without an offer.
    let mut config = settings().node_config();
    config.protocol.offer_above_bytes = LEN as u64;
    let (mut sides, peer) = meet(introduced([side_with(settings(), config), side(|_| ())]));
    let other = sides[0].engine.peer(1).unwrap();
    // Of three times as many bytes as may be held.
    for _ in 0..3 * (16 << 20) / LEN {
        sides[0].engine.port.queue(other, header::BULK, vec![1; LEN].into(), false).unwrap();
    }
    work(&mut sides, |sides| !sides[1].engine.port.has_session(peer));
    sides[1].engine.progress();
    assert_eq!(sides[1].engine.bulks.len(), 0);
}

#[test]
fn a_peer_whose_offers_no_message_announces_is_lost_and_on_other_channels_they_are_refused() {
    let (mut sides, peer) = acquainted();
    let offer = |sides: &mut [Side], channel, number: u64| {
        sides[1].engine.on_offered(port::MessageKey { peer, channel, number });
        sides[1].engine.progress();
        hear_now_and_then(sides, number);
        sides[1].engine.port.has_session(peer)
    };
    let most = bulk::MOST_OFFERED as u64;
    for number in 0..most {
        assert!(offer(&mut sides, header::BULK, number), "{number}");
    }
    assert!(offer(&mut sides, header::MATCHED, most));
    assert_eq!(sides[1].engine.bulks.len(), most as usize);
    offer(&mut sides, header::BULK, most);
    work(&mut sides, |sides| !sides[1].engine.port.has_session(peer) && sides[1].engine.bulks.len() == 0);
}

#[test]
fn a_peer_that_takes_no_answers_gets_no_more_of_them_until_it_does() {
    const LEN: usize = 16 << 10;
    const READS: u64 = 8000;
    let (mut sides, _) = acquainted();
    let served = Arc::new(Counter::new(false).unwrap());
    sides[1].engine.sinks.counters.push((ffi::FI_REMOTE_READ, Arc::clone(&served)));
    let key = register(&sides[1], Box::leak(vec![0; LEN].into()));
    let other = sides[0].engine.peer(1).unwrap();
    for _ in 0..READS {
        let (mut octets, there) = (Vec::new(), [Stretch { address: 0, len: LEN as u64, key }]);
        header::encode_request(&there, None, &Request::Read { is_followed: false }, &mut octets);
        sides[0].engine.port.queue(other, header::REQUESTS, octets.into(), false).unwrap();
    }
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        // What it has asked for leaves, and it takes no answer.
        sides[0].engine.port.flush(Instant::now() + Duration::from_millis(1));
        sides[1].engine.progress();
    }
    // Beside what is held: what is under no mark yet, what one turn takes, and what the peer's transport has taken.
    let (most, served_bytes) = ((16 + 1 + 8 + 16) << 20, served.read() as usize * LEN);
    assert!(served_bytes > 1 << 20 && served_bytes < most, "{served_bytes} bytes of answers");
    work(&mut sides, |_| served.read() == READS);
}
