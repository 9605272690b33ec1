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
    use crate::relay::{Relay, RelayConfig, Route};
    use crate::{Config, Drive, Node};
    use denrei_proto::{ChannelId, Event, LostReason};
    use std::time::{Duration, Instant};

    const SOON: Duration = Duration::from_secs(20);
    /// What the relay and its Nodes hold, with more on its channel than that has room for, so that some waits in a Node.
    const MESSAGES: u32 = 150;
    const CODE: u16 = 0x9000;

    /// A relay to a target that takes little at a time, which holds what a sender left that is lost.
    fn left_by_a_lost_sender() -> (Relay, Node) {
        let mut narrow = Config { drive: Drive::Thread, ..Config::default() };
        let sender = Node::bind("127.0.0.1:0", narrow.clone()).unwrap();
        narrow.protocol.channel_credit_bytes = 64 << 10;
        narrow.protocol.offer_above_bytes = 32 << 10;
        let target = Node::bind("127.0.0.1:0", narrow).unwrap();
        let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
        let config = RelayConfig { pair_bytes: 1 << 20, ..RelayConfig::default() };
        let relay = Relay::start(&[route], &config).unwrap();
        let to = ChannelId { peer: sender.connect(relay.addresses()[0]).unwrap(), channel: 0 };
        for number in 0..MESSAGES {
            let mut message = vec![0; 4_000];
            message[..4].copy_from_slice(&number.to_be_bytes());
            sender.send(to, message).unwrap();
        }
        assert!(sender.flush(to.peer, SOON), "the relay has all of it");
        sender.abort(to.peer, CODE, "lost").unwrap();
        (relay, target)
    }

    #[test]
    fn a_lost_sender_holds_no_pair_where_nobody_reads() {
        let (relay, target) = left_by_a_lost_sender();
        let until = Instant::now() + SOON;
        while !relay.pairs().is_empty() {
            assert!(Instant::now() < until, "it is given up");
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(target);
    }

    #[test]
    fn what_a_lost_sender_left_arrives_where_it_is_read_slowly() {
        let (_relay, target) = left_by_a_lost_sender();
        for number in 0..MESSAGES {
            let message = target.recv_timeout(SOON).unwrap().expect("all come");
            assert_eq!(message.data[..4], number.to_be_bytes());
            std::thread::sleep(Duration::from_millis(12));
        }
        let told =
            |event| matches!(event, Event::PeerLost { reason: LostReason::Ended { code: CODE, .. }, .. });
        while !told(target.event_timeout(SOON).expect("it hears of the end")) {}
    }
}
