//! The end of a relay in order: what both sides had sent is handed on, and no more is taken.
//!
//! Inputs → outputs: what a pair holds, and what either side has still to acknowledge → when to end it. Both are told
//! to stop by their rates (R3); what they have under way, which is acknowledged, comes for a round trip.

use super::Pair;
use crate::Node;
use denrei_proto::{ChannelId, PeerId, Rate, SendError};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What those told to stop had sent is here when nothing has come for so long, and for this many round trips.
const QUIET: Duration = Duration::from_millis(100);
const QUIET_ROUND_TRIPS: u32 = 4;

/// What both sides hear.
pub(in crate::relay) const ENDING: &str = "the relay is ending";

/// What is known of a pair whose sides have been told to stop, and whether they have been: each message asks.
#[derive(Default)]
pub(super) struct Drain {
    is_on: AtomicBool,
    stopped: Mutex<Option<Stopped>>,
}

struct Stopped {
    /// When the last message was taken of either.
    moved: Instant,
    /// Nothing of the sender was here when the thread that takes its messages looked, and none has come since.
    sender_is_clear: bool,
}

impl Drain {
    /// Whether they have been.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Whether they are to be told now. One thread asks, that of the route.
    fn begin(&self) -> bool {
        let begins = !self.is_on();
        if begins {
            *self.stopped.lock() = Some(Stopped { moved: Instant::now(), sender_is_clear: false });
            self.is_on.store(true, Ordering::Release);
        }
        begins
    }

    /// A message was taken.
    pub fn note_moved(&self) {
        if self.is_on()
            && let Some(stopped) = &mut *self.stopped.lock()
        {
            *stopped = Stopped { moved: Instant::now(), sender_is_clear: false };
        }
    }

    fn note_clear(&self, is_clear: bool) {
        if let Some(stopped) = &mut *self.stopped.lock() {
            stopped.sender_is_clear = is_clear;
        }
    }

    fn is_quiet(&self, patience: Duration) -> bool {
        self.stopped
            .lock()
            .as_ref()
            .is_some_and(|stopped| stopped.sender_is_clear && stopped.moved.elapsed() >= patience)
    }
}

impl Pair {
    /// Has both sides send no more: the thread that carries back ends the pair once it is drained. By the thread that
    /// takes the sender's messages, which so has none in its hands.
    pub fn drain(&self) {
        if self.drain.begin() {
            // Who is gone needs no rate.
            let _ = self.near.set_rate(self.near_peer, Rate::STOPPED);
            let _ = self.far.set_rate(self.far_peer, Rate::STOPPED);
        }
        self.drain.note_clear(!self.near.has_ready_from(self.near_peer) && self.holds_nothing());
    }

    /// Whether what both sides had sent is handed on and acknowledged, but what the thread that carries back holds, whose
    /// question it is. What of either is incomplete stays so while they are stopped, and they are told of it. Not if a
    /// session is over: then the pair ends as that did.
    pub fn is_drained(&self) -> bool {
        let ends = [(&self.near, self.near_peer), (&self.far, self.far_peer)];
        if !self.drain.is_on() || ends.iter().any(|(node, peer)| has_ended(node, *peer)) {
            return false;
        }
        // Each before what comes behind it: a message on its way would else be seen nowhere.
        if self.far.has_ready_from(self.far_peer) || !self.holds_nothing() {
            return false;
        }
        let flows = ends.map(|(node, peer)| node.flow(peer));
        let round_trip = flows.iter().flatten().filter_map(|flow| flow.srtt_ns).max().unwrap_or(0);
        flows.iter().flatten().all(|flow| flow.queued_messages == 0)
            && self.drain.is_quiet(QUIET + Duration::from_nanos(round_trip) * QUIET_ROUND_TRIPS)
    }

    fn holds_nothing(&self) -> bool {
        let held = self.queue.lock();
        held.messages.is_empty() && held.ending.is_none()
    }
}

/// Whether a session is over.
fn has_ended(node: &Node, peer: PeerId) -> bool {
    let any = ChannelId { peer, channel: 0 };
    matches!(node.check_send(any, 0), Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::pair::FAR_PEER_LOST;
    use crate::relay::pair::filled::{Filled, MESSAGES, SOON, filled};
    use crate::relay::{Relay, RelayConfig, Route};
    use crate::{Config, Drive};
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
        let other = Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Default::default() }).unwrap();
        other.connect(relay.addresses()[0]).unwrap();
        assert_eq!(lost(&other).0, relays_end(), "nobody begins any more");
        let event = sender.try_event();
        assert!(!matches!(event, Some(Event::PeerLost { .. })), "who is there is waited for: {event:?}");
    }

    /// Nothing more of it comes from who is stopped.
    #[test]
    fn a_message_that_is_under_way_is_named_and_holds_up_no_end() {
        let node = || {
            let mut config = Config { drive: Drive::Thread, ..Config::default() };
            // Two seconds for the message.
            config.protocol.rate_request = Rate { bytes_per_s: 1_000_000, burst_bytes: 20_000 };
            Node::bind("127.0.0.1:0", config).unwrap()
        };
        let (sender, target) = (node(), node());
        let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
        let relay = Relay::start(&[route], &RelayConfig::default()).unwrap();
        let to = ChannelId { peer: sender.connect(relay.addresses()[0]).unwrap(), channel: 0 };
        sender.send(to, "hello").unwrap();
        let back = target.recv_timeout(SOON).unwrap().expect("it comes").channel;
        for (from, to) in [(&sender, to), (&target, back)] {
            from.send(to, vec![0; 2_000_000]).unwrap();
        }
        let begun = Instant::now();
        while [&sender, &target].iter().any(|node| node.peers()[0].counters.bytes_sent < 100_000) {
            assert!(begun.elapsed() < SOON, "they begin");
            std::thread::yield_now();
        }
        assert!(relay.drain(SOON), "what is incomplete is not waited for");
        for node in [&sender, &target] {
            let (reason, named) = lost(node);
            assert_eq!(reason, relays_end());
            assert_eq!(named.len(), 1);
        }
    }

    /// Each waits in the relay behind one that its Node sends; between the two there is a moment with nothing to send.
    #[test]
    fn what_waits_for_room_on_the_way_back_arrives() {
        const PAIRS: usize = 40;
        const EACH: usize = 3;
        let node = || {
            let mut config = Config { drive: Drive::Thread, ..Config::default() };
            config.protocol.channel_credit_bytes = 64 << 10;
            config.protocol.offer_above_bytes = 60_000;
            Node::bind("127.0.0.1:0", config).unwrap()
        };
        let target = node();
        let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
        let config = RelayConfig { pair_bytes: 256 << 10, ..RelayConfig::default() };
        let relay = Relay::start(&[route], &config).unwrap();
        let senders: Vec<Node> = (0..PAIRS).map(|_| node()).collect();
        for sender in &senders {
            let peer = sender.connect(relay.addresses()[0]).unwrap();
            sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
        }
        for _ in 0..PAIRS {
            let back = target.recv_timeout(SOON).unwrap().expect("it comes").channel;
            for _ in 0..EACH {
                target.send(back, vec![0; 40_000]).unwrap();
            }
        }
        for flow in target.peers() {
            assert!(target.flush(flow.peer, SOON), "the relay has all of it");
        }
        std::thread::scope(|scope| {
            let drained = scope.spawn(|| relay.drain(SOON));
            // It has been quiet for long enough when the first is read.
            std::thread::sleep(3 * QUIET);
            for number in 0..PAIRS * EACH {
                let message = senders[number % PAIRS].recv_timeout(SOON).unwrap();
                assert!(message.is_some(), "{number}");
                std::thread::sleep(Duration::from_millis(4));
            }
            assert!(drained.join().unwrap());
        });
    }
}
