//! Peers that hang, go, or were never there.

use super::*;
use std::net::SocketAddr;

/// Two sides that know each other as 1, and miss each other after 300 ms.
pub(super) fn impatient_pair(keeps_any_source: bool) -> Vec<Side> {
    let mut settings = Settings::from_environment();
    settings.failure_timeout = Duration::from_millis(300);
    settings.key_file = None;
    settings.insecure = true;
    settings.limits.keeps_any_source = keeps_any_source;
    let mut sides = vec![side(|_| ()), side(|_| ())];
    for side in &mut sides {
        let node = Node::bind("127.0.0.1:0", settings.node_config()).unwrap();
        let addresses = Arc::new(AddressVector::default());
        addresses.insert(node.local_addr());
        let sinks = std::mem::take(&mut side.engine.sinks);
        side.engine = Engine::new(node, addresses.clone(), side.regions.clone(), settings.limits.clone());
        side.engine.sinks = sinks;
        side.addresses = addresses;
    }
    let other = sides[1].addresses.address(0).unwrap();
    sides[0].addresses.insert(other);
    sides[1].addresses.insert(sides[0].addresses.address(0).unwrap());
    sides
}

#[test]
fn a_peer_that_is_gone_fails_what_waits_for_it() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = impatient_pair(false);
    let (mut out, mut into) = (pattern_of(200_000), vec![0; 8]);
    send(&mut sides[0], 1, 1, &mut out[..100]);
    receive(&mut sides[0], 1, 1, &mut into, 1);
    work(&mut sides, |sides| sides[1].engine.receiving_is_busy());
    assert_eq!(read(&sides[0]).len(), 1);
    send(&mut sides[0], 1, 2, &mut out);
    // It hangs: it does not say goodbye, it just does nothing any more.
    let began = Instant::now();
    let pattern = sides[0].engine.pattern(1, 3, 0).unwrap();
    let look = |sides: &mut [Side]| sides[0].engine.look(true, &pattern, Take::Peek, 9);
    let mut looked = look(&mut sides);
    assert_eq!(looked, Err(Errno::NO_MESSAGE));
    work(&mut sides[..1], |sides| {
        looked = look(sides);
        looked != Err(Errno::NO_MESSAGE)
    });
    assert_eq!(looked, Err(Errno(ffi::ETIMEDOUT)));
    // Who looks again begins anew.
    assert_eq!(look(&mut sides), Err(Errno::NO_MESSAGE));
    let failed = wait_for(&mut sides[..1], 0, 2);
    assert!(failed.iter().all(|entry| entry.error == Some((Errno(ffi::ETIMEDOUT), 0))), "{failed:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "after {:?}", began.elapsed());
}

/// Small messages are reported as sent when they are copied: who only sends them would never hear of a loss.
#[test]
fn who_only_sends_is_told_once_that_a_peer_is_gone() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = impatient_pair(false);
    let try_send = |sides: &mut [Side]| {
        let payload = Payload::Copied(&[1; 1000]);
        let send = Send { to: 1, tag: None, data: None, payload, report: None, until: Until::Free };
        sides[0].engine.send(send).map(drop)
    };
    let mut said = try_send(&mut sides);
    work(&mut sides[..1], |sides| {
        said = try_send(sides);
        !matches!(said, Ok(()) | Err(Errno::AGAIN))
    });
    assert_eq!(said, Err(Errno(ffi::ETIMEDOUT)));
    // Who tries again begins anew, and one that has come back is there.
    assert_eq!(try_send(&mut sides), Ok(()));
    work(&mut sides, |sides| sides[1].engine.receiving_is_busy());
    assert_eq!(try_send(&mut sides), Ok(()));
}

/// It sends nothing more, and its receive stays.
#[test]
fn who_waits_by_a_buffer_for_several_messages_is_told_once_what_was_lost() {
    if !a_peer_can_hang() {
        return;
    }
    for keeps in [false, true] {
        let mut sides = impatient_pair(keeps);
        let (mut out, mut several) = ([5; 8], [0; 80]);
        let anything = sides[0].engine.pattern(ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
        let buffer = Receive { memory: posted(&mut several), context: 2, wanted: true, multi: Some(8) };
        sides[0].engine.receive(false, anything, buffer).unwrap();
        send(&mut sides[0], 1, 1, &mut out);
        assert_eq!(read(&sides[0])[0].error, None);
        let gone = sides[0].engine.peer(1).unwrap();
        work(&mut sides[..1], |sides| sides[0].engine.has_noticed(gone));
        let told: Vec<_> = read(&sides[0]).iter().map(|entry| (entry.context, entry.error)).collect();
        let expected = [(0, Some((Errno(ffi::ETIMEDOUT), 0)))];
        assert_eq!(told, expected[..usize::from(!keeps)], "servers go on");
    }
}

#[test]
fn receives_from_anybody_fail_when_a_peer_is_gone_that_never_said_a_word() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = impatient_pair(false);
    let (mut one, mut several) = ([0; 8], [0; 80]);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut one, 1);
    let anything = sides[0].engine.pattern(ffi::FI_ADDR_UNSPEC, 0, u64::MAX).unwrap();
    let buffer = Receive { memory: posted(&mut several), context: 2, wanted: true, multi: Some(8) };
    sides[0].engine.receive(false, anything, buffer).unwrap();
    let failed = wait_for(&mut sides[..1], 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (1, Some((Errno(ffi::ETIMEDOUT), 0))));
    assert_eq!(failed.len(), 1, "a buffer for several messages stays: {failed:?}");
    // Looks for anybody's message are told as well, once.
    assert_eq!(sides[0].engine.look(true, &anything, Take::Peek, 3), Err(Errno(ffi::ETIMEDOUT)));
    assert_eq!(sides[0].engine.look(true, &anything, Take::Peek, 3), Err(Errno::NO_MESSAGE));
}

#[test]
fn receives_from_anybody_stay_while_others_speak_though_somebody_never_answers() {
    let mut sides = impatient_pair(false);
    // Somebody who has gone: nobody listens there any more.
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    sides[0].addresses.insert(gone);
    let gone = sides[0].engine.peer(2).unwrap();
    let (mut out, mut into) = ([5; 8], [0; 8]);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut into, 1);
    let mut last = Instant::now();
    work(&mut sides, |sides| {
        // For another receive than the one that waits.
        if last.elapsed() > Duration::from_millis(50) {
            last = Instant::now();
            send(&mut sides[1], 1, 2, &mut out);
        }
        sides[0].engine.has_noticed(gone)
    });
    assert!(read(&sides[0]).is_empty(), "nobody is missed while others speak");
    // Then they fall silent, and it is asked for again.
    let failed = wait_for(&mut sides, 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (1, Some((Errno(ffi::ETIMEDOUT), 0))));
}

#[test]
fn receives_from_anybody_stay_when_a_peer_goes_in_order_or_they_are_to() {
    for keeps in [false, true] {
        let mut sides = impatient_pair(keeps);
        let (mut out, mut into) = ([5; 8], [0; 8]);
        receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut into, 1);
        send(&mut sides[1], 1, 2, &mut out);
        work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
        let gone = sides.pop().unwrap();
        if keeps && a_peer_can_hang() {
            // It hangs until the other has missed it.
            let directed = sides[0].engine.pattern(1, 9, 0).unwrap();
            let look = |sides: &mut [Side]| sides[0].engine.look(true, &directed, Take::Peek, 9);
            work(&mut sides, |sides| look(sides) == Err(Errno(ffi::ETIMEDOUT)));
        }
        drop(gone);
        let end = Instant::now() + Duration::from_millis(1500);
        work(&mut sides, |_| Instant::now() > end);
        assert_eq!(read(&sides[0]), [], "keeps {keeps}");
    }
}

#[test]
fn what_was_sent_at_once_to_a_peer_that_goes_in_order_is_done_with() {
    let mut sides = impatient_pair(false);
    let (mut small, mut large) = ([5; 8], pattern_of(100_000));
    send(&mut sides[0], 1, 2, &mut small);
    work(&mut sides, |sides| sides[1].engine.receiving_is_busy());
    read(&sides[0]);
    let delivered = Send {
        to: 1,
        tag: Some(3),
        data: None,
        payload: Payload::Posted(posted(&mut small)),
        report: Some(report(8, ffi::FI_SEND | ffi::FI_TAGGED)),
        until: Until::Delivered,
    };
    sides[0].engine.send(delivered).unwrap();
    send(&mut sides[0], 1, 4, &mut large);
    // It does not look at its socket any more, but says goodbye.
    drop(sides.pop());
    let mut entries = wait_for(&mut sides, 0, 2);
    entries.sort_unstable_by_key(|entry| entry.context);
    assert_eq!((entries[0].context, entries[0].error), (7, Some((Errno(ffi::ECONNRESET), 0))));
    assert_eq!((entries[1].context, entries[1].error), (8, None));
}

#[test]
fn what_waits_for_company_goes_with_its_session_and_nothing_else() {
    let mut sides = impatient_pair(true);
    sides[0].engine.sending.at_once = false;
    let mut out = pattern_of(10);
    for _ in 0..3 {
        send(&mut sides[0], 1, 5, &mut out);
    }
    let peer = sides[0].engine.peer(1).unwrap();
    sides[0].engine.fail_sends(peer, Errno::OTHER, false);
    send(&mut sides[0], 1, 5, &mut out[..7]);
    sides[0].engine.send_deferred();
    let mut into = [[0; 10]; 3];
    for (context, bytes) in into.iter_mut().enumerate() {
        receive(&mut sides[1], 1, 5, bytes, context);
    }
    let got = wait_for(&mut sides, 1, 3);
    let lens: Vec<usize> = got.iter().map(|entry| entry.len).collect();
    assert_eq!(lens, [10, 10, 7], "two that left at once, and the one after");
}

#[test]
fn who_goes_in_order_lets_the_senders_of_large_messages_know_first_but_waits_for_nobody_for_long() {
    for hangs in [false, true] {
        let mut sides = impatient_pair(false);
        let (mut out, mut into) = (pattern_of(200_000), vec![0; 200_000]);
        receive(&mut sides[1], 1, 2, &mut into, 1);
        send(&mut sides[0], 1, 2, &mut out);
        assert_eq!(wait_for(&mut sides, 1, 1)[0].error, None);
        let peer = sides[1].engine.peer(1).unwrap();
        assert_eq!(sides[1].engine.port.givers().collect::<Vec<_>>(), [peer]);
        let (mut gone, began) = (sides.pop().unwrap(), Instant::now());
        let going = std::thread::spawn(move || gone.engine.flush());
        work(&mut sides[..usize::from(!hangs)], |_| going.is_finished());
        assert!(began.elapsed() < Duration::from_secs(5), "hangs {hangs}: {:?}", began.elapsed());
        if !hangs {
            assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
        }
    }
}

#[test]
fn receives_from_anybody_fail_when_a_peer_is_gone_that_has_spoken_and_has_no_number() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = impatient_pair(false);
    assert!(sides[0].addresses.remove(1));
    let (mut out, mut first, mut second) = ([5; 8], [0; 8], [0; 8]);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut first, 1);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut second, 2);
    send(&mut sides[1], 1, 1, &mut out);
    let got = wait_for(&mut sides, 0, 1);
    assert_eq!((got[0].context, &got[0].error, got[0].source), (1, &None, ffi::FI_ADDR_UNSPEC));
    // It hangs.
    let failed = wait_for(&mut sides[..1], 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (2, Some((Errno(ffi::ETIMEDOUT), 0))));
}

#[test]
fn a_large_read_fails_with_the_peer_that_was_sending_it() {
    if !a_peer_can_hang() {
        return;
    }
    const LEN: usize = 200_000;
    let mut sides = impatient_pair(false);
    let (mut there, mut into) = (pattern_of(LEN), vec![0; LEN]);
    let key = register(&sides[1], &mut there);
    let wanted = one_sided(1, key, 0, LEN, ffi::FI_RMA | ffi::FI_READ);
    sides[0].engine.read(wanted, posted(&mut into)).unwrap();
    // It hangs once it has answered that its bytes are to be fetched.
    work(&mut sides, |sides| sides[0].engine.bulks.is_busy());
    let failed = wait_for(&mut sides[..1], 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (2, Some((Errno(ffi::ETIMEDOUT), 0))));
}

/// Puts a side at an address, in place of whoever was there, that knows itself as 0 and `others` from 1 on.
pub(super) fn open_at(side: &mut Side, address: SocketAddr, others: &[SocketAddr]) -> Node {
    let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
    let sinks = std::mem::take(&mut side.engine.sinks);
    let limits = side.engine.limits.clone();
    let nobody = Node::bind("127.0.0.1:0", settings.node_config()).unwrap();
    side.engine = Engine::new(nobody, Arc::default(), Arc::default(), limits.clone());
    let end = Instant::now() + Duration::from_secs(10);
    // The port may not be free at once.
    let node = loop {
        let opened = Node::bind(address, settings.node_config());
        assert!(opened.is_ok() || Instant::now() < end, "{opened:?}");
        if let Ok(node) = opened {
            break node;
        }
    };
    side.addresses = Arc::new(AddressVector::default());
    side.addresses.insert(node.local_addr());
    for other in others {
        side.addresses.insert(*other);
    }
    side.engine = Engine::new(node.clone(), side.addresses.clone(), side.regions.clone(), limits);
    side.engine.sinks = sinks;
    side.engine.send_at_once();
    node
}

#[test]
fn what_a_successor_sends_is_not_lost_with_its_predecessor_at_the_same_address() {
    const LEN: usize = 200_000;
    let mut sides = pair();
    let first = sides[0].addresses.address(0).unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let heard = open_at(&mut sides[1], any, &[first]);
    sides[0].addresses.insert(heard.local_addr());
    let (mut out, mut into) = (pattern_of(LEN), vec![0; LEN]);
    send(&mut sides[0], 2, 1, &mut out[..8]);
    work(&mut sides, |sides| sides[1].engine.receiving_is_busy());
    receive(&mut sides[1], 1, 2, &mut into, 3);
    sides[1].engine.progress();
    // The application computes for a while: of the successor its engine hears when that has sent all it can.
    open_at(&mut sides[0], first, &[heard.local_addr()]);
    send(&mut sides[0], 1, 2, &mut out);
    let end = Instant::now() + Duration::from_millis(300);
    work(&mut sides[..1], |_| {
        heard.poll();
        Instant::now() > end
    });
    let got = wait_for(&mut sides, 1, 1);
    assert_eq!((got[0].context, &got[0].error), (3, &None));
    assert_eq!(into, out);
}

/// Two impatient sides, of which the first takes nothing more because of what the second and a third have sent it.
fn held_back() -> Vec<Side> {
    let mut sides = impatient_pair(false);
    sides[0].engine.limits.unexpected_bytes = 10_000;
    let mut third = side(|_| ());
    third.addresses.insert(sides[0].addresses.address(0).unwrap());
    let mut out = pattern_of(11_000);
    send(&mut sides[1], 1, 8, &mut out[..6000]);
    work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
    send(&mut third, 1, 9, &mut out);
    sides.push(third);
    work(&mut sides, |sides| sides[0].engine.is_holding_back());
    sides
}

/// A message that is reported when its peer has it.
pub(super) fn deliver(side: &mut Side, to: u64, context: usize, bytes: &mut [u8]) -> Result<bool, Errno> {
    let (payload, report) = (Payload::Posted(posted(bytes)), report(context, ffi::FI_SEND | ffi::FI_TAGGED));
    side.engine.send(Send {
        to,
        tag: Some(1),
        data: None,
        payload,
        report: Some(report),
        until: Until::Delivered,
    })
}

#[test]
fn what_was_sent_to_a_peer_that_is_gone_fails_though_messages_of_others_are_held_back() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = held_back();
    let mut out = pattern_of(200_000);
    deliver(&mut sides[0], 1, 7, &mut out).unwrap();
    // The second hangs.
    let third = sides.remove(2);
    let failed = wait_for(&mut sides[..1], 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (7, Some((Errno(ffi::ETIMEDOUT), 0))));
    assert!(sides[0].engine.is_holding_back());
    drop(third);
}

#[test]
fn each_send_is_reported_once_though_its_peer_is_lost_and_word_of_that_waits() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = held_back();
    let (mut first, mut second) = ([1; 8], [2; 8]);
    deliver(&mut sides[0], 1, 1, &mut first).unwrap();
    let peer = sides[0].engine.peer(1).unwrap();
    work(&mut sides[..1], |sides| !sides[0].engine.port.has_session(peer));
    let failure = Some((Errno(ffi::ETIMEDOUT), 0));
    for _ in 0..2 {
        assert_eq!(deliver(&mut sides[0], 1, 2, &mut second), Err(Errno(ffi::ETIMEDOUT)));
    }
    assert!(sides[0].engine.is_holding_back());
    let failed = wait_for(&mut sides[..1], 0, 1);
    assert_eq!((failed[0].context, failed[0].error, failed.len()), (1, failure, 1));
    // Later ones begin anew.
    sides[0].engine.progress();
    deliver(&mut sides[0], 1, 2, &mut second).unwrap();
    let failed = wait_for(&mut sides[..1], 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (2, failure));
}

#[test]
fn a_large_message_that_went_with_its_session_does_not_get_the_bytes_of_a_successors() {
    const LEN: usize = 200_000;
    let mut sides = held_back();
    let address = sides[1].addresses.address(0).unwrap();
    let here = sides[0].addresses.address(0).unwrap();
    let (mut out, mut stale, mut into) = (pattern_of(LEN), vec![9; LEN], vec![0; LEN]);
    send(&mut sides[1], 1, 1, &mut stale);
    let end = Instant::now() + Duration::from_millis(50);
    work(&mut sides, |_| Instant::now() > end);
    open_at(&mut sides[1], address, &[here]);
    send(&mut sides[1], 1, 2, &mut out);
    let end = Instant::now() + Duration::from_millis(300);
    work(&mut sides, |_| Instant::now() > end);
    let (mut held, mut lost) = (vec![0; 11_000], vec![0; LEN]);
    // Of the second nothing is taken meanwhile.
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 9, &mut held, 9);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 1, &mut lost, 1);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 2, &mut into, 2);
    let got = wait_for(&mut sides, 0, 2);
    assert_eq!(
        got.iter().map(|entry| (entry.context, &entry.error)).collect::<Vec<_>>(),
        [(9, &None), (2, &None)]
    );
    assert_eq!(into, out);
    assert!(lost.iter().all(|byte| *byte == 0));
}

#[test]
fn an_operation_whose_session_is_lost_while_it_begins_is_reported_once_and_no_other_in_its_place() {
    if !a_peer_can_hang() {
        return;
    }
    const LEN: usize = 200_000;
    for channel in [header::MATCHED, header::REQUESTS] {
        let mut sides = impatient_pair(false);
        let (mut out, mut small) = (pattern_of(LEN), [0; 8]);
        // Opens the session.
        send(&mut sides[0], 1, 5, &mut small);
        work(&mut sides, |sides| sides[1].engine.receiving_is_busy());
        read(&sides[0]);
        let mut offer = |side: &mut Side| match channel {
            header::MATCHED => deliver(side, 1, 2, &mut out).map(drop),
            _ => {
                let write = one_sided(1, 0, 0, LEN, ffi::FI_RMA | ffi::FI_WRITE);
                side.engine.write(write, Payload::Posted(posted(&mut out)))
            }
        };
        // The first of a row would leave at once.
        send(&mut sides[0], 1, 5, &mut small);
        sides[0].engine.port.ends_before = Some(channel);
        let begun = offer(&mut sides[0]);
        sides[0].engine.port.ends_before = None;
        // Another, at oneself, with a number of its own.
        let (mut there, mut back) = (pattern_of(8), [0; 8]);
        let key = register(&sides[0], &mut there);
        let own = OneSided { report: report(3, ffi::FI_READ), ..one_sided(0, key, 0, 8, ffi::FI_READ) };
        sides[0].engine.read(own, posted(&mut back)).unwrap();
        // The peer hangs.
        let mut entries = wait_for(&mut sides[..1], 0, if begun.is_ok() { 3 } else { 2 });
        let end = Instant::now() + Duration::from_millis(600);
        work(&mut sides[..1], |_| Instant::now() > end);
        entries.extend(read(&sides[0]));
        entries.sort_unstable_by_key(|entry| entry.context);
        let said: Vec<_> = entries.iter().map(|entry| (entry.context, entry.error.is_none())).collect();
        assert_eq!((begun, said), (Ok(()), vec![(2, false), (3, true), (7, true)]), "channel {channel}");
    }
}

#[test]
fn whoever_cannot_be_had_is_said_for_each_message() {
    let mut sides = pair();
    sides[0].engine.sending.at_once = false;
    let nowhere = sides[0].addresses.insert("127.0.0.1:0".parse().unwrap()).unwrap();
    for turn in 0..100_000 {
        let payload = Payload::Copied(&[0; 4000]);
        let send = Send { to: nowhere, tag: None, data: None, payload, report: None, until: Until::Free };
        assert_eq!(sides[0].engine.send(send), Err(Errno(ffi::EADDRNOTAVAIL)), "{turn}");
    }
}
