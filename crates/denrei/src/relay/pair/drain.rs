//! The end of a relay in order: what both sides had sent is handed on, and no more is taken.
//!
//! Inputs → outputs: what a pair holds, and what either side has still to acknowledge → when to end it. Both are told
//! to stop by their rates (R3); what they have under way, which is acknowledged, comes for a round trip.

use super::{FAR_PEER_LOST, Pair};
use denrei_proto::{ChannelId, Rate, SendError};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// What those told to stop had sent is here when nothing has come for so long, and for this many round trips.
const QUIET: Duration = Duration::from_millis(100);
const QUIET_ROUND_TRIPS: u32 = 4;

/// What both sides hear.
pub(in crate::relay) const ENDING: &str = "the relay is ending";

/// When the last message was taken of either side, once they have been told to stop.
#[derive(Default)]
pub(super) struct Drain(Mutex<Option<Instant>>);

impl Drain {
    /// Whether they have been.
    pub fn is_on(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Whether they are to be told now.
    fn begin(&self) -> bool {
        let mut moved = self.0.lock();
        let begins = moved.is_none();
        moved.get_or_insert_with(Instant::now);
        begins
    }

    /// A message was taken.
    pub fn note_moved(&self) {
        if let Some(moved) = &mut *self.0.lock() {
            *moved = Instant::now();
        }
    }

    fn is_quiet(&self, patience: Duration) -> bool {
        self.0.lock().is_some_and(|moved| moved.elapsed() >= patience)
    }
}

impl Pair {
    /// Has both sides send no more, and ends once what they had sent is handed on and acknowledged.
    pub fn drain(&self) {
        if self.drain.begin() {
            // Who is gone needs no rate.
            let _ = self.near.set_rate(self.near_peer, Rate::STOPPED);
            let _ = self.far.set_rate(self.far_peer, Rate::STOPPED);
        }
        if !self.sender_has_ended() && self.is_drained() {
            self.fail(FAR_PEER_LOST, ENDING);
        }
    }

    /// Whether the sender's session is over: the pair ends as the sender did.
    fn sender_has_ended(&self) -> bool {
        let any = ChannelId { peer: self.near_peer, channel: 0 };
        matches!(self.near.check_send(any, 0), Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_)))
    }

    fn is_drained(&self) -> bool {
        let sides = [(&self.near, self.near_peer), (&self.far, self.far_peer)];
        let flows = sides.map(|(node, peer)| node.flow(peer));
        let round_trip = flows.iter().flatten().filter_map(|flow| flow.srtt_ns).max().unwrap_or(0);
        let held = self.queue.lock();
        held.messages.is_empty()
            && held.ending.is_none()
            && flows.iter().flatten().all(|flow| flow.queued_messages == 0 && flow.unread_bytes == 0)
            && self.drain.is_quiet(QUIET + Duration::from_nanos(round_trip) * QUIET_ROUND_TRIPS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Node;
    use crate::relay::pair::filled::{Filled, MESSAGES, SOON, filled};
    use denrei_proto::{Event, LostReason, MessageId};

    /// Of the only session: why it ended, and what was not acknowledged.
    fn lost(node: &Node) -> (LostReason, Vec<MessageId>) {
        loop {
            if let Event::PeerLost { reason, unacknowledged, .. } =
                node.event_timeout(SOON).expect("it is told")
            {
                return (reason, unacknowledged);
            }
        }
    }

    fn relays_end() -> LostReason {
        LostReason::Ended { code: FAR_PEER_LOST, reason: ENDING.to_owned() }
    }

    #[test]
    fn what_a_relay_has_acknowledged_arrives_before_it_ends() {
        let held = filled();
        let (drained, read) = std::thread::scope(|scope| {
            let drained = scope.spawn(|| held.relay.drain(SOON));
            let read = held.read(Duration::from_millis(2));
            (drained.join().unwrap(), read)
        });
        assert_eq!((drained, read), (true, MESSAGES));
        assert_eq!(lost(&held.sender), (relays_end(), vec![]));
        assert_eq!(lost(&held.target).0, relays_end());
    }

    #[test]
    fn what_comes_while_a_relay_ends_arrives_or_is_named() {
        let held = filled();
        let came = std::thread::scope(|scope| {
            let drained = scope.spawn(|| held.relay.drain(SOON));
            // They leave until the sender has heard that it is to stop, and stay with it from then on.
            (0..MESSAGES).for_each(|number| held.send(MESSAGES + number));
            let came = held.read(Duration::ZERO);
            assert!(drained.join().unwrap(), "what stays with the sender holds up nothing");
            came
        });
        let (reason, named) = lost(&held.sender);
        assert_eq!(reason, relays_end());
        // One may be named that has arrived: its acknowledgement was under way.
        assert!(came + named.len() as u32 >= 2 * MESSAGES, "{came} came, {} named", named.len());
        assert!(named.iter().all(|message| message.number >= MESSAGES.into()), "{named:?}");
    }

    #[test]
    fn a_relay_waits_no_longer_than_it_may_for_a_peer_that_takes_nothing() {
        let Filled { relay, sender, .. } = &filled();
        assert!(!relay.drain(Duration::from_millis(300)));
        assert_eq!(relay.pairs().len(), 1);
        let other =
            Node::bind("127.0.0.1:0", crate::Config { drive: crate::Drive::Thread, ..Default::default() })
                .unwrap();
        other.connect(relay.addresses()[0]).unwrap();
        assert_eq!(lost(&other).0, relays_end(), "nobody begins any more");
        let event = sender.try_event();
        assert!(!matches!(event, Some(Event::PeerLost { .. })), "who is there is waited for: {event:?}");
    }
}
