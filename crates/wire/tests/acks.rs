//! ACK ranges against a set of packet numbers.

use denrei_wire::ack::{AckFrame, MAX_ACK_RANGES, MAX_ACK_SPAN, encode, encoded_len};
use denrei_wire::frame::{Frame, FrameError, Frames, kind};
use denrei_wire::{EcnCounts, ack};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The numbers of a set as ranges, newest first.
fn ranges_of(numbers: &BTreeSet<u64>) -> Vec<RangeInclusive<u64>> {
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for &number in numbers.iter().rev() {
        match ranges.last_mut() {
            Some(last) if *last.start() == number + 1 => *last = number..=*last.end(),
            _ => ranges.push(number..=number),
        }
    }
    ranges
}

fn octets(ranges: &[RangeInclusive<u64>], ecn: Option<EcnCounts>) -> Vec<u8> {
    let mut octets = Vec::new();
    encode(ranges.iter().cloned(), 77, ecn, &mut |part| octets.extend(part));
    octets
}

fn decode(octets: &[u8]) -> Result<AckFrame<'_>, FrameError> {
    match Frames::new(octets).next().expect("there is a frame")? {
        Frame::Ack(ack) => Ok(ack),
        other => panic!("not an ACK: {other}"),
    }
}

proptest! {
    #[test]
    fn an_ack_says_what_was_received(
        offsets in prop::collection::btree_set(0u64..200, 1..100),
        base in 0u64..1 << 40,
        ahead in 0u64..1 << 30,
        ecn in prop::option::of((any::<u32>(), 0..2u32, 0..2u32)),
    ) {
        let received: BTreeSet<u64> = offsets.into_iter().map(|offset| base + offset).collect();
        let ecn = ecn.map(|(ect0, ect1, ce)| EcnCounts { ect0, ect1, ce });
        let ranges = ranges_of(&received);
        let octets = octets(&ranges, ecn);
        let reported = ranges.len().min(MAX_ACK_RANGES);
        prop_assert_eq!(octets.len(), encoded_len(reported, ecn));

        let ack = decode(&octets).unwrap();
        let last_sent = received.last().unwrap() + ahead;
        let understood: BTreeSet<u64> = ack.ranges(last_sent).flatten().collect();
        let newest: BTreeSet<u64> = ranges[..reported].iter().cloned().flatten().collect();
        prop_assert_eq!(understood, newest);
        prop_assert_eq!((ack.delay_us, ack.ecn), (77, ecn));
    }

    #[test]
    fn arbitrary_acks_yield_falling_ranges_of_possible_numbers(
        more in 0u8..40,
        body in prop::collection::vec(any::<u8>(), 10..400),
        expected: u64,
    ) {
        let mut octets = vec![kind::ACK, more];
        octets.extend(body);
        let Ok(ack) = decode(&octets) else { return Ok(()) };
        let mut below = u64::MAX;
        for (position, range) in ack.ranges(expected).enumerate() {
            prop_assert!(range.start() <= range.end());
            prop_assert!(position == 0 || *range.end() + 1 < below, "{range:?} touches {below}");
            below = *range.start();
        }
    }
}

#[test]
fn every_truncation_is_an_error() {
    let all = EcnCounts { ect0: 1, ect1: 2, ce: 3 };
    let usual = EcnCounts { ect0: 1, ..EcnCounts::default() };
    for (kind, counts) in [(kind::ACK, None), (kind::ACK_ECT0, Some(usual)), (kind::ACK_ECN, Some(all))] {
        let whole = octets(&[9..=20, 5..=7, 1..=1], counts);
        assert_eq!(decode(&whole).unwrap().ecn, counts);
        for len in 1..whole.len() {
            assert_eq!(decode(&whole[..len]), Err(FrameError::Truncated { kind }), "{len}");
        }
    }
}

#[test]
fn an_ack_reaches_no_further_than_its_numbers_are_unambiguous() {
    let top = 1u64 << 40;
    let everything = octets(&[0..=top], None);
    let understood: Vec<_> = decode(&everything).unwrap().ranges(top).collect();
    assert_eq!(understood, [top + 1 - MAX_ACK_SPAN..=top]);

    // A range across the limit is cut, those below it are left out.
    let limit = top + 1 - MAX_ACK_SPAN;
    let split = octets(&[top..=top, limit - 10..=limit + 10, 5..=6], None);
    let understood: Vec<_> = decode(&split).unwrap().ranges(top).collect();
    assert_eq!(understood, [top..=top, limit..=limit + 10]);
    assert_eq!(split.len(), encoded_len(2, None));
}

#[test]
fn ranges_below_packet_0_are_left_out() {
    let mut octets = octets(&[5..=5, 1..=2], None);
    let understood = |octets: &[u8]| decode(octets).unwrap().ranges(5).collect::<Vec<_>>();
    assert_eq!(understood(&octets), [5..=5, 1..=2]);
    let run = octets.len() - 4;
    octets[run] = 3;
    assert_eq!(understood(&octets), [5..=5], "a run of 4 down from 2 would end at -1");
}

#[test]
fn touching_ranges_and_too_many_ranges_are_refused() {
    let mut touching = octets(&[5..=5, 1..=2], None);
    touching[12] = 0;
    assert_eq!(decode(&touching), Err(FrameError::Impossible { kind: kind::ACK, field: "gap" }));
    let mut many = vec![1; encoded_len(40, None)];
    many[0] = kind::ACK;
    many[1] = MAX_ACK_RANGES as u8;
    assert_eq!(decode(&many), Err(FrameError::Impossible { kind: kind::ACK, field: "range count" }));
    many[1] = MAX_ACK_RANGES as u8 - 1;
    assert!(decode(&many).is_ok());
}

#[test]
#[should_panic(expected = "at least one range")]
fn an_ack_of_nothing_is_a_bug_of_the_caller() {
    ack::encode(std::iter::empty(), 0, None, &mut |_| {});
}

#[test]
#[should_panic(expected = "newest first")]
fn ranges_in_the_wrong_order_are_a_bug_of_the_caller() {
    octets(&[1..=2, 5..=5], None);
}
