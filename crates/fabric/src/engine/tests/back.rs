//! Peers that were missed, and live.

use super::lost::{deliver, impatient_pair, open_at};
use super::*;

/// Two impatient sides that have spoken with each other. They have missed each other since then.
fn parted() -> Vec<Side> {
    let mut sides = impatient_pair(false);
    let (mut out, mut into) = ([5; 8], [0; 8]);
    for index in [0, 1] {
        receive(&mut sides[index], 1, 1, &mut into, 1);
        send(&mut sides[1 - index], 1, 1, &mut out);
        work(&mut sides, |sides| read(&sides[index]).iter().any(|entry| entry.context == 1));
    }
    let peers = [0, 1].map(|index| sides[index].engine.peer(1).unwrap());
    work(&mut sides[..1], |sides| sides[0].engine.has_noticed(peers[0]));
    work(&mut sides, |sides| sides[1].engine.has_noticed(peers[1]));
    sides.iter().for_each(|side| drop(read(side)));
    sides
}

/// It computed, or spoke with others, as the link was down: what it now waits for may be lost, and its sender lives and
/// has nothing more to send.
#[test]
fn a_receive_that_comes_after_its_peer_was_missed_fails_once() {
    if !a_peer_can_hang() {
        return;
    }
    for from in [1, ffi::FI_ADDR_UNSPEC] {
        let mut sides = parted();
        let (mut out, mut into) = ([6; 8], [0; 8]);
        receive(&mut sides[0], from, 2, &mut into, 2);
        let failed = wait_for(&mut sides, 0, 1);
        assert_eq!((failed[0].context, failed[0].error), (2, Some((Errno(ffi::ETIMEDOUT), 0))));
        // Who receives again begins anew.
        receive(&mut sides[0], from, 2, &mut into, 3);
        work(&mut sides, |sides| deliver(&mut sides[1], 1, 4, &mut out).is_ok());
        work(&mut sides, |sides| {
            let entries = read(&sides[0]);
            assert!(entries.iter().all(|entry| entry.error.is_none()), "{entries:?}");
            !entries.is_empty() || sides[0].engine.receiving_is_busy()
        });
    }
}

/// Between two receives, and a third one spoke: whoever is never out of messages would never hear of it.
#[test]
fn a_receive_from_anybody_fails_once_though_others_have_spoken_since_a_peer_was_missed() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = parted();
    let here = sides[0].addresses.address(0).unwrap();
    sides.push(side(|_| ()));
    sides[2].addresses.insert(here);
    let (mut out, mut into) = ([6; 8], [0; 8]);
    send(&mut sides[2], 1, 2, &mut out);
    work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 2, &mut into, 2);
    assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 2, &mut into, 3);
    let failed = wait_for(&mut sides, 0, 1);
    assert_eq!((failed[0].context, failed[0].error), (3, Some((Errno(ffi::ETIMEDOUT), 0))));
    receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 2, &mut into, 4);
    send(&mut sides[2], 1, 2, &mut out);
    assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None, "once");
}

/// What it had to say is there.
#[test]
fn a_receive_from_anybody_does_not_fail_when_the_peer_that_was_missed_has_spoken_again() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = parted();
    let (mut out, mut into) = ([6; 8], [0; 8]);
    work(&mut sides, |sides| deliver(&mut sides[1], 1, 2, &mut out).is_ok());
    work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
    for context in [2, 3] {
        receive(&mut sides[0], ffi::FI_ADDR_UNSPEC, 2, &mut into, context);
        send(&mut sides[1], 1, 2, &mut out);
        let got = wait_for(&mut sides, 0, 1);
        assert_eq!((got[0].context, got[0].error), (context, None));
    }
}

/// The next message would be taken for the one that was lost.
#[test]
fn who_sends_to_a_peer_that_was_missed_is_told_though_that_one_has_come_back() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = parted();
    let mut out = [6; 8];
    work(&mut sides, |sides| deliver(&mut sides[1], 1, 4, &mut out).is_ok());
    work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
    assert_eq!(deliver(&mut sides[0], 1, 5, &mut out), Err(Errno(ffi::ETIMEDOUT)));
    // Not twice, and there is nothing to fear of a message that comes after that.
    assert!(deliver(&mut sides[0], 1, 5, &mut out).is_ok());
    let mut into = [0; 8];
    receive(&mut sides[0], 1, 3, &mut into, 6);
    let got = wait_for(&mut sides, 0, 1);
    assert_eq!((got[0].context, got[0].error), (5, None));
}

/// What was lost was for the one before it.
#[test]
fn who_sends_to_another_process_at_the_address_of_one_that_was_missed_is_told_nothing() {
    if !a_peer_can_hang() {
        return;
    }
    let mut sides = parted();
    let (here, there) = (sides[0].addresses.address(0).unwrap(), sides[1].addresses.address(0).unwrap());
    open_at(&mut sides[1], there, &[here]);
    let mut out = [6; 8];
    send(&mut sides[1], 1, 2, &mut out);
    work(&mut sides, |sides| sides[0].engine.receiving_is_busy());
    assert!(deliver(&mut sides[0], 1, 5, &mut out).is_ok());
    let mut into = [0; 8];
    receive(&mut sides[0], 1, 3, &mut into, 6);
    assert_eq!(wait_for(&mut sides, 0, 1)[0].error, None);
}
