use super::*;
use crate::event::PeerId;
use crate::peer::Beginning;
use crate::seal::Protection;
use denrei_wire::packet::Opening;
use denrei_wire::{Incarnation, Token};

fn peer() -> Peer {
    let beginning = Beginning {
        id: PeerId { slot: 0, generation: 0 },
        way: core::net::SocketAddr::from(([10, 0, 0, 1], 7000)).into(),
        own: Opening { own_token: Token(1), incarnation: Incarnation(2) },
        protection: Protection::Plain,
        now: Instant::ZERO,
        pool: Default::default(),
        skips: 3,
    };
    Peer::opening(beginning, &Config::default())
}

#[test]
fn who_acknowledges_nothing_is_held_to_what_it_was_told_all_the_same() {
    let message = frame::Message { flags: 0, channel: 0, number: 0, payload: &[0; 1000] };
    let mut body = Vec::new();
    Frame::Message(message).encode(&mut |bytes| body.extend_from_slice(bytes));
    let at = |millis| Instant::ZERO + Duration::from_millis(millis);
    let dropped = |tell: &dyn Fn(&mut Peer, Instant)| {
        let mut peer = peer();
        let excess = |now| {
            tell(&mut peer, at(now));
            (0..1_000).filter(|_| peer.is_excess(at(now), &body, 1_100)).count()
        };
        [0, 10_000, 19_000, 21_000].map(excess)
    };
    let limit = dropped(&|peer, _| peer.tell_limit(Some(1_000), at(20_000)));
    assert_eq!(limit, [0, 0, 0, 1_000]);
    let rate = dropped(&|peer, _| peer.set_rate(Rate::STOPPED, at(20_000)));
    assert_eq!(rate[..3], [0; 3]);
    assert!(rate[3] > 900, "{rate:?}");
}

#[test]
fn a_limit_that_was_told_is_not_lowered() {
    let mut peer = peer();
    let mut tell = |limit| {
        peer.tell_limit(limit, Instant::FAR_FUTURE);
        let Some(Frame::Grant(grant)) = peer.grant_frame() else { panic!("it was told") };
        (grant.serial, grant.limit)
    };
    assert_eq!(tell(Some(1000)), (1, Some(1000)));
    // Of one serial the sender goes by the higher one.
    assert_eq!(tell(Some(600)), (1, Some(1000)));
    assert_eq!(tell(None), (2, None));
    assert_eq!(tell(Some(600)), (3, Some(600)));
}
