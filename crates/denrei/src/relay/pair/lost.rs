//! A sender that is lost, and what it left.
//!
//! Inputs → outputs: what is known of the sender, and what the peer beyond has acknowledged → when to give the pair up. One
//! that hears nothing of what is left would else hold its pair, and its place among all, for as long as it lives.

use super::{FLUSH_LIMIT, Pair, is_orderly};
use denrei_proto::{ChannelId, LostReason, SendError};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Why a sender is lost, what the peer beyond had acknowledged when that last grew, and when that was.
#[derive(Default)]
pub(super) struct Lost(Mutex<Option<(LostReason, u64, Instant)>>);

impl Lost {
    /// The sender is gone. Ends in order are waited for.
    pub fn note(&self, reason: &LostReason) {
        if !is_orderly(reason) {
            self.0.lock().get_or_insert_with(|| (reason.clone(), 0, Instant::now()));
        }
    }

    /// Why the sender is lost, if the peer beyond has acknowledged no more for too long.
    fn is_stuck(&self, acknowledged: u64) -> Option<LostReason> {
        let mut lost = self.0.lock();
        let (reason, before, since) = lost.as_mut()?;
        if acknowledged > *before {
            (*before, *since) = (acknowledged, Instant::now());
        }
        (since.elapsed() >= FLUSH_LIMIT).then(|| reason.clone())
    }
}

impl Pair {
    /// Gives up what a sender left that is lost, if the peer beyond takes none of it any more.
    pub fn give_up_if_stuck(&self) {
        // The event waits behind messages that there is no room for.
        let any = ChannelId { peer: self.near_peer, channel: 0 };
        if let Err(SendError::PeerLost { reason, .. }) = self.near.check_send(any, 0) {
            self.lost.note(&reason);
        }
        let Some(far) = self.far.flow(self.far_peer) else { return };
        let forwarded = self.forwarded_messages.load(Ordering::Relaxed);
        if let Some(reason) = self.lost.is_stuck(forwarded.saturating_sub(far.queued_messages)) {
            self.close_far(&reason);
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::relay::pair::filled::{Filled, MESSAGES, SOON, filled};
    use crate::relay::{Relay, RelayConfig, Route};
    use crate::{Config, Drive, Node};
    use denrei_proto::{ChannelId, Event, LostReason};
    use std::time::{Duration, Instant};

    const CODE: u16 = 0x9000;

    /// A relay that holds what a sender left that is lost.
    fn left_by_a_lost_sender() -> Filled {
        let filled = filled();
        filled.sender.abort(filled.to.peer, CODE, "lost").unwrap();
        filled
    }

    #[test]
    fn a_lost_sender_holds_no_pair_where_nobody_reads() {
        let Filled { relay, .. } = &left_by_a_lost_sender();
        let until = Instant::now() + SOON;
        while !relay.pairs().is_empty() {
            assert!(Instant::now() < until, "it is given up");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn what_a_lost_sender_left_arrives_where_it_is_read_slowly() {
        let left = left_by_a_lost_sender();
        assert_eq!(left.read(Duration::from_millis(12)), MESSAGES, "all come");
        let told =
            |event| matches!(event, Event::PeerLost { reason: LostReason::Ended { code: CODE, .. }, .. });
        while !told(left.target.event_timeout(SOON).expect("it hears of the end")) {}
    }

    #[test]
    fn an_application_hears_of_an_abort_beyond_as_it_was_said() {
        let node =
            || Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap();
        let relay_to = |target| {
            let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target };
            Relay::start(&[route], &RelayConfig::default()).unwrap()
        };
        let (sender, target) = (node(), node());
        let second = relay_to(target.local_addr());
        let first = relay_to(second.addresses()[0]);
        let peer = sender.connect(first.addresses()[0]).unwrap();
        sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
        let back = target.recv_timeout(SOON).unwrap().expect("it comes").channel.peer;
        let why = "w".repeat(128);
        target.abort(back, 0x9123, &why).unwrap();
        let until = Instant::now() + SOON;
        let heard = loop {
            assert!(Instant::now() < until, "it hears");
            if let Some(Event::PeerLost { reason, .. }) = sender.event_timeout(SOON) {
                break reason;
            }
        };
        assert_eq!(heard, LostReason::Ended { code: 0x9123, reason: why });
    }
}
