//! Frames against arbitrary values and arbitrary octets.

mod common;

use common::{Owned, any_frame, octets_of};
use denrei_wire::frame::{Frame, FrameError, Frames, kind};
use proptest::prelude::*;

fn decode(octets: &[u8]) -> Result<Vec<Frame<'_>>, FrameError> {
    Frames::new(octets).collect()
}

proptest! {
    #[test]
    fn every_frame_survives_the_round_trip(frames in prop::collection::vec(any_frame(), 0..8)) {
        let octets: Vec<u8> = frames.iter().flat_map(Owned::octets).collect();
        let decoded = decode(&octets).unwrap();
        prop_assert_eq!(decoded.len(), frames.len());
        for (frame, owned) in decoded.iter().zip(&frames) {
            prop_assert!(owned.matches(frame), "{:?} became {}", owned, frame);
        }
        let again: Vec<u8> = decoded.iter().flat_map(octets_of).collect();
        prop_assert_eq!(again, octets);
    }

    #[test]
    fn a_cut_frame_is_an_error_and_those_before_it_stand(
        frames in prop::collection::vec(any_frame(), 1..5),
        cut: prop::sample::Index,
    ) {
        let octets: Vec<Vec<u8>> = frames.iter().map(Owned::octets).collect();
        let flat = octets.concat();
        let cut = cut.index(flat.len());
        let mut end = 0;
        let whole = octets.iter().take_while(|frame| { end += frame.len(); end <= cut }).count();
        let on_a_boundary = octets[..whole].iter().map(Vec::len).sum::<usize>() == cut;
        let decoded: Vec<_> = Frames::new(&flat[..cut]).collect();
        prop_assert_eq!(decoded.iter().filter(|frame| frame.is_ok()).count(), whole);
        match decoded.last() {
            Some(Err(error)) => {
                prop_assert!(!on_a_boundary);
                prop_assert_eq!(*error, FrameError::Truncated { kind: octets[whole][0] });
            }
            _ => prop_assert!(on_a_boundary),
        }
    }

    #[test]
    fn arbitrary_octets_never_panic_and_what_they_mean_is_stable(
        octets in prop::collection::vec(any::<u8>(), 0..400),
        first in 0u8..0x16,
    ) {
        let mut octets = octets;
        octets.insert(0, first);
        for frame in Frames::new(&octets) {
            let Ok(frame) = frame else { continue };
            let shown = frame.to_string();
            prop_assert!(!shown.contains('\n'));
            let again = octets_of(&frame);
            prop_assert_eq!(decode(&again).unwrap(), vec![frame]);
        }
    }

    #[test]
    fn arbitrary_datagrams_can_be_shown(octets in prop::collection::vec(any::<u8>(), 0..200), kind in 0xd0u8..0xd7) {
        let mut octets = octets;
        octets.splice(0..0, [kind, 1, 0, 0]);
        prop_assert!(!denrei_wire::dump(&octets).to_string().is_empty());
    }
}

#[test]
fn padding_is_skipped_wherever_it_stands() {
    let frames = decode(&[0, 0, kind::PING, 0, kind::CLOSE_READ, 0]).unwrap();
    assert_eq!(frames, [Frame::Ping, Frame::CloseRead]);
    assert_eq!(decode(&[0; 1400]).unwrap(), []);
    for octets in 0..200 {
        let datagram = [&vec![0; octets][..], &[kind::PING], &vec![0; octets], &[kind::CLOSE_READ]].concat();
        assert_eq!(decode(&datagram).unwrap(), [Frame::Ping, Frame::CloseRead], "{octets} octets of padding");
    }
}

#[test]
fn nothing_follows_an_error() {
    let mut frames = Frames::new(&[kind::PING, 0xee, kind::PING]);
    assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
    assert_eq!(frames.next(), Some(Err(FrameError::Unknown(0xee))));
    assert_eq!(frames.next(), None);
}

#[test]
fn an_overlong_reason_is_cut_at_a_character() {
    let sent_as = |reason: &str| {
        let octets = octets_of(&Frame::End(denrei_wire::frame::End { code: 3, reason }));
        match decode(&octets).as_deref() {
            Ok([Frame::End(end)]) => end.reason.to_owned(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(sent_as(&"ä".repeat(65)), "ä".repeat(64));
    assert_eq!(sent_as(&"aä".repeat(60)).len(), 127, "octet 128 would split a character");
}

#[test]
fn only_ack_and_end_are_not_acknowledged() {
    let mut octets = Vec::new();
    denrei_wire::ack::encode([0..=0].into_iter(), 0, None, &mut |part| octets.extend(part));
    octets.extend(octets_of(&Frame::End(denrei_wire::frame::End { code: 0, reason: "" })));
    octets.push(kind::PING);
    octets.push(kind::CLOSE_WRITE);
    let eliciting: Vec<bool> = decode(&octets).unwrap().iter().map(Frame::is_ack_eliciting).collect();
    assert_eq!(eliciting, [false, false, true, true]);
}

#[test]
#[should_panic(expected = "fits into a datagram")]
fn a_payload_beyond_the_length_field_is_a_bug_of_the_caller() {
    let payload = vec![0; 65_536];
    octets_of(&Frame::Message(denrei_wire::frame::Message {
        flags: 0,
        channel: 0,
        number: 0,
        payload: &payload,
    }));
}
