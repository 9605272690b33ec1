//! The adapters: damage in known amounts, captures that other programs can read; and hosts that
//! refuse what they announced.

mod common;

use common::*;
use denrei_io::fault::{FaultCounters, Faults, Faulty};
use denrei_io::pcap::{Recorder, Tapped};
use denrei_io::{DatagramIo, DropKind, RecvBuffers, SendAttempt, SendOutcome, UdpSocket};
use denrei_wire::Ecn;
use std::sync::{Arc, Mutex};

/// Sends 1000 numbered datagrams in trains of 10 and returns what arrived and what was done.
fn through(faults: Faults, seed: u64) -> (Vec<Vec<u8>>, FaultCounters) {
    let mut b = bind("127.0.0.1:0");
    let mut a = Faulty::new(bind("127.0.0.1:0"), faults, seed);
    let mut seen = Vec::new();
    let mut buffers = RecvBuffers::default();
    for train in 0..100u16 {
        let bytes: Vec<u8> = (0..10).flat_map(|index| (train * 10 + index).to_be_bytes()).collect();
        let (there, buf) = transmit(b.local_addr(), &bytes, Some(2));
        assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
        // A receive call lets go of what is held back.
        a.recv(&mut buffers, |_, _| ()).unwrap();
        // Loopback delivers before send returns.
        while b.recv(&mut buffers, |_, datagram| seen.push(datagram.to_vec())).unwrap() > 0 {}
    }
    (seen, *a.counters())
}

fn in_order() -> Vec<Vec<u8>> {
    (0..1000u16).map(|number| number.to_be_bytes().to_vec()).collect()
}

#[test]
fn no_faults_change_nothing() {
    assert_eq!(through(Faults::default(), 1), (in_order(), FaultCounters::default()));
}

#[test]
fn each_fault_does_what_it_says_and_repeats_with_its_seed() {
    let (seen, done) = through(Faults { drop: 0.1, ..Faults::default() }, 7);
    assert!((50..200).contains(&done.dropped), "{done:?}");
    assert_eq!(seen.len() as u64, 1000 - done.dropped);
    assert!(seen.is_sorted());
    assert_eq!(through(Faults { drop: 0.1, ..Faults::default() }, 7), (seen.clone(), done));
    assert_ne!(through(Faults { drop: 0.1, ..Faults::default() }, 8).0, seen);

    let (seen, done) = through(Faults { duplicate: 0.1, ..Faults::default() }, 7);
    assert!((50..200).contains(&done.duplicated), "{done:?}");
    assert_eq!(seen.len() as u64, 1000 + done.duplicated);

    let (mut seen, done) = through(Faults { reorder: 0.1, ..Faults::default() }, 7);
    assert!((50..200).contains(&done.reordered), "{done:?}");
    assert!(!seen.is_sorted());
    seen.sort();
    assert_eq!(seen, in_order(), "late, but none lost");

    let (seen, done) = through(Faults { corrupt: 0.1, ..Faults::default() }, 7);
    assert!((50..200).contains(&done.corrupted), "{done:?}");
    let damaged = seen.iter().zip(in_order()).filter(|(got, sent)| *got != sent).count();
    assert_eq!(damaged as u64, done.corrupted);
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn captures_hold_every_datagram_both_ways() {
    let mut a = Tapped::new(bind("127.0.0.1:0"), Recorder::new(Vec::new()).unwrap());
    let mut b = bind("127.0.0.1:0");
    let (there, buf) = transmit(b.local_addr(), &pattern(250, 1), Some(100));
    assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
    let (back, buf) = transmit(a.local_addr(), b"answer", None);
    assert_eq!(b.send(&back, &buf), SendOutcome::Sent);
    assert_eq!(a.recv(&mut RecvBuffers::default(), |_, datagram| datagram.fill(0)).unwrap(), 1);
    let (empty, buf) = transmit(b.local_addr(), b"", None);
    assert_eq!(a.send(&empty, &buf), SendOutcome::Sent);

    let file = a.into_parts().1.finish().unwrap();
    assert_eq!(words(&file[..24]), [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_575, 101]);
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let len = words(&rest[..16])[2] as usize;
        assert_eq!(words(&rest[..16])[3] as usize, len);
        packets.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    let payloads: Vec<&[u8]> = packets.iter().map(|packet| &packet[28..]).collect();
    let sent = pattern(250, 1);
    assert_eq!(payloads, [&sent[..100], &sent[100..200], &sent[200..], b"answer", b""]);
    for (index, packet) in packets.iter().enumerate() {
        let (src, dst) = (&packet[20..22], &packet[22..24]);
        let (ours, theirs) = (back.to.port().to_be_bytes(), there.to.port().to_be_bytes());
        assert_eq!((src, dst), if index == 3 { (&theirs[..], &ours[..]) } else { (&ours[..], &theirs[..]) });
        assert_eq!(packet[1], Ecn::Ect0 as u8);
    }
}

/// Makes every send call that `fails` picks fail with `errno`, and logs all calls.
fn refuse(
    socket: &mut UdpSocket,
    errno: i32,
    fails: impl Fn(&SendAttempt) -> bool + Send + 'static,
) -> Arc<Mutex<Vec<SendAttempt>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let calls = Arc::clone(&log);
    socket.set_send_hook(Some(Box::new(move |attempt| {
        calls.lock().unwrap().push(*attempt);
        fails(attempt).then_some(errno)
    })));
    log
}

#[test]
fn a_train_that_offload_refuses_is_sent_at_once_segment_by_segment() {
    for errno in [libc::EIO, libc::EINVAL, libc::EOPNOTSUPP] {
        for connected in [false, true] {
            let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
            if !a.capabilities().gso {
                return eprintln!("SKIPPED: no GSO on this host");
            }
            if connected {
                assert!(a.connect_peer(b.local_addr()).unwrap());
            }
            let log = refuse(&mut a, errno, |attempt| attempt.offload);
            let bytes = pattern(64 * 1472, 3);
            let (there, buf) = transmit(b.local_addr(), &bytes, Some(1472));
            for _ in 0..2 {
                assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
                assert_eq!(payloads(&mut b, 64).concat(), bytes, "nothing is lost, nothing repeated");
                assert_silent(&mut b);
            }
            let offloads = log.lock().unwrap().iter().filter(|attempt| attempt.offload).count();
            assert_eq!(offloads, 1, "tried once, then not for long on this path");
            assert_eq!(a.counters().gso_fallbacks, 1);
            assert_eq!(a.counters().gso_disabled, 1);
            assert_eq!(a.counters().sent_datagrams, 128);
            assert_eq!(a.capabilities().gso_disabled_paths, 1);
            assert!(!a.gso_to(b.local_addr()));
            assert!(a.gso_to("127.0.0.2:1".parse().unwrap()), "other paths keep it");
            assert_eq!(a.warnings().len(), 1, "{:?}", a.warnings());
        }
    }
}

/// As where the address that it is sent from was away for a moment: the kernel does not say that it was that.
#[test]
fn a_path_that_refused_a_train_once_gets_trains_again() {
    let (mut a, b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    if !a.capabilities().gso {
        return eprintln!("SKIPPED: no GSO on this host");
    }
    let (there, buf) = transmit(b.local_addr(), &pattern(200, 3), Some(100));
    let first = Mutex::new(true);
    refuse(&mut a, libc::EINVAL, move |_| std::mem::take(&mut *first.lock().unwrap()));
    for _ in 0..3000 {
        assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
    }
    assert!(a.gso_to(b.local_addr()));
    assert_eq!((a.counters().gso_disabled, a.capabilities().gso_disabled_paths), (1, 0));
    assert!(a.counters().sent_trains > 1000, "{:?}", a.counters());
}

#[test]
fn offload_is_not_blamed_for_datagrams_that_are_too_large() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let (there, buf) = transmit(b.local_addr(), &pattern(3000, 0), Some(1000));
    // Older kernels say EINVAL to a train whose segments exceed the MTU.
    a.set_send_hook(Some(Box::new(|attempt| {
        Some(if attempt.offload { libc::EINVAL } else { libc::EMSGSIZE })
    })));
    assert_eq!(a.send(&there, &buf), SendOutcome::Dropped { kind: DropKind::TooLarge });
    assert_eq!(a.counters().gso_fallbacks, 1);
    assert_eq!((a.counters().send_dropped, a.counters().gso_disabled), (3, 0));
    a.set_send_hook(None);
    assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
    assert_eq!(payloads(&mut b, 3).concat(), pattern(3000, 0));
}

#[test]
fn a_full_send_buffer_says_how_far_it_came() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    let bytes = pattern(64 * 8972, 6);
    let (there, buf) = transmit(b.local_addr(), &bytes, Some(8972));
    // A train of 64 jumbo datagrams takes several calls; every second one finds the buffer full.
    let calls = Mutex::new(0);
    refuse(&mut a, libc::EAGAIN, move |_| {
        *calls.lock().unwrap() += 1;
        *calls.lock().unwrap() % 2 == 0
    });
    let (mut skip, mut blocked, mut seen) = (0, 0, Vec::new());
    loop {
        let outcome = a.send_from(&there, &buf, skip);
        seen.extend(receive_now(&mut b));
        match outcome {
            SendOutcome::Sent => break,
            SendOutcome::WouldBlock { sent } => {
                assert!(sent > skip || blocked % 2 == 1, "no progress at {sent}");
                assert_eq!(a.blocked_fd(), a.raw_fds().next());
                (skip, blocked) = (sent, blocked + 1);
                assert!(blocked < 200);
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(blocked > 3);
    assert_eq!(a.blocked_fd(), None);
    assert_eq!(a.counters().send_would_block, blocked as u64);
    assert_eq!(seen.concat(), bytes);
}

/// What is there now, in order.
fn receive_now(socket: &mut UdpSocket) -> Vec<Vec<u8>> {
    let mut seen = Vec::new();
    let mut buffers = RecvBuffers::default();
    while socket.recv_all(&mut buffers, |_, datagram| seen.push(datagram.to_vec())).unwrap() > 0 {}
    seen
}

#[test]
fn what_a_route_prohibits_is_no_firewalls_doing() {
    for (errno, advice) in [(libc::EACCES, "a route prohibits it"), (libc::EPERM, "firewall pass UDP")] {
        let mut socket = bind("127.0.0.1:0");
        let (there, buf) = transmit("127.0.0.1:9".parse().unwrap(), b"prohibited", None);
        refuse(&mut socket, errno, |_| true);
        assert_eq!(socket.send(&there, &buf), SendOutcome::Dropped { kind: DropKind::NotPermitted });
        let told = socket.warnings().last().map(String::as_str).unwrap_or_default();
        assert!(told.contains(advice), "{told}");
    }
}

#[test]
fn refusals_of_the_host_are_drops_with_their_reason() {
    let kinds = [
        (libc::ENETUNREACH, DropKind::Unreachable),
        (libc::EHOSTUNREACH, DropKind::Unreachable),
        (libc::ECONNREFUSED, DropKind::Refused),
        (libc::EPERM, DropKind::NotPermitted),
        (libc::ENETDOWN, DropKind::NetworkDown),
        (libc::ENOBUFS, DropKind::NoBuffers),
        (libc::EMSGSIZE, DropKind::TooLarge),
        (libc::EBADF, DropKind::Other),
    ];
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    for (index, (errno, kind)) in kinds.into_iter().enumerate() {
        // Larger than what every path has to carry, so that it may be an attempt.
        let (there, buf) = transmit(b.local_addr(), &pattern(577, 0), None);
        refuse(&mut a, errno, |_| true);
        assert_eq!(a.send(&there, &buf), SendOutcome::Dropped { kind });
        assert_eq!(a.counters().send_dropped, index as u64 + 1);
    }
    a.set_send_hook(None);
    // What is this host's fault is said, once a kind; the buffers' size may be said besides.
    let told: Vec<_> = a.warnings().iter().filter(|warning| warning.contains("does not send")).collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].contains("ip route get 127.0.0.1"), "{told:?}");
    assert_silent(&mut b);
}

/// Who has an MTU that the protocol cannot work with heard that there is no answer, and nothing of the MTU.
#[test]
fn a_way_that_carries_too_little_is_told_of_and_an_attempt_in_vain_is_not() {
    let told = |bytes: usize, segment: Option<usize>| {
        let (mut a, b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
        let (there, buf) = transmit(b.local_addr(), &pattern(bytes, 0), segment);
        refuse(&mut a, libc::EMSGSIZE, |_| true);
        assert_eq!(a.send(&there, &buf), SendOutcome::Dropped { kind: DropKind::TooLarge });
        assert_eq!(a.counters().send_dropped, bytes.div_ceil(segment.unwrap_or(bytes)) as u64);
        a.warnings()
            .iter()
            .filter(|warning| warning.contains("576 octets") && warning.contains("mtu"))
            .count()
    };
    assert_eq!([told(577, None), told(65_507, None), told(4_000, Some(1_200))], [0, 0, 0]);
    assert_eq!([told(576, None), told(100, None), told(1_700, Some(576))], [1, 1, 1]);
}

#[test]
fn a_report_about_an_earlier_datagram_does_not_cost_this_one() {
    let (mut a, mut b) = (bind("127.0.0.1:0"), bind("127.0.0.1:0"));
    assert!(a.connect_peer(b.local_addr()).unwrap());
    let first = Mutex::new(true);
    refuse(&mut a, libc::ECONNREFUSED, move |_| std::mem::take(&mut *first.lock().unwrap()));
    let (there, buf) = transmit(b.local_addr(), b"through", None);
    assert_eq!(a.send(&there, &buf), SendOutcome::Sent);
    assert_eq!(payloads(&mut b, 1), [b"through"]);
    assert_eq!((a.counters().send_calls, a.counters().send_dropped), (2, 0));
}
