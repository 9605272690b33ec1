//! Messages that are reported when a receive has taken them.

use super::*;

#[test]
fn what_is_to_be_matched_is_reported_when_a_receive_takes_it_however_small_it_is() {
    for to in [0, 1] {
        for len in [0, 1, 1000, 100_000] {
            let mut sides = pair();
            let at = to as usize;
            let (mut out, mut into) = (pattern_of(len), vec![7; len + 1]);
            let matched = |side: &mut Side, tag, payload| {
                let report = Some(report(tag as usize, ffi::FI_SEND | ffi::FI_TAGGED));
                let send = Send { to, tag: Some(tag), data: None, payload, report, until: Until::Matched };
                side.engine.send(send).unwrap();
            };
            matched(&mut sides[0], 1, Payload::Posted(posted(&mut out)));
            let copy = out.clone();
            matched(&mut sides[0], 2, Payload::Copied(&copy));
            let end = Instant::now() + Duration::from_millis(100);
            work(&mut sides, |_| Instant::now() > end);
            assert_eq!(read(&sides[0]), [], "{len} bytes: nobody has asked for them");
            for tag in [2, 1] {
                receive(&mut sides[at], to, tag, &mut into, 10);
                let (mut sent, mut received) = (None, None);
                work(&mut sides, |sides| {
                    for entry in [0, at].into_iter().flat_map(|side| read(&sides[side])) {
                        let which = if entry.context == 10 { &mut received } else { &mut sent };
                        *which = Some(entry);
                    }
                    sent.is_some() && received.is_some()
                });
                let (sent, received) = (sent.unwrap(), received.unwrap());
                assert_eq!((sent.context, sent.error), (tag as usize, None));
                assert_eq!((received.len, received.tag, received.error), (len, tag, None));
                assert!(into[..len] == out[..] && into[len] == 7, "{len} bytes and no more");
            }
        }
    }
}
