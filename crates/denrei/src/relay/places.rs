//! Who may begin: the pairs that a relay has room for, over all its routes.
//!
//! Inputs → outputs: senders that come and pairs that end → a place, or why there is none.

use super::MAX_RELAYS;
use super::pair::{ENDING, FAR_PEER_LOST};
use denrei_proto::{Doorkeeper, Refusal};
use parking_lot::Mutex;
use std::sync::Arc;

/// The places of a relay, shared by its routes.
#[derive(Clone)]
pub(super) struct Places(Arc<Mutex<State>>);

struct State {
    count: usize,
    left: usize,
    /// Nobody begins any more.
    ending: bool,
}

impl Places {
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State { count, left: count, ending: false })))
    }

    /// Asked by a route's Node before it acknowledges anything of a sender: takes a place for it.
    pub fn doorkeeper(&self) -> Doorkeeper {
        let places = self.clone();
        Doorkeeper::new(move |relays| {
            places.take(relays).map_err(|reason| Refusal { code: FAR_PEER_LOST, reason })
        })
    }

    fn take(&self, relays: u8) -> Result<(), String> {
        let mut state = self.0.lock();
        if state.ending {
            return Err(ENDING.to_owned());
        }
        if relays >= MAX_RELAYS {
            return Err(circle());
        }
        state.left = state.left.checked_sub(1).ok_or("the relay has no room for another pair (max_pairs)")?;
        Ok(())
    }

    /// Whoever had it is gone.
    pub fn give_back(&self) {
        self.0.lock().left += 1;
    }

    /// Nobody begins any more, and the pairs that there are end in order.
    pub fn close(&self) {
        self.0.lock().ending = true;
    }

    /// Whether nobody begins any more.
    pub fn are_closed(&self) -> bool {
        self.0.lock().ending
    }

    /// Whether nobody has one, with a pair or about to get it.
    pub fn are_free(&self) -> bool {
        let state = self.0.lock();
        state.left >= state.count
    }

    /// How many are left.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.0.lock().left
    }
}

/// Why a sender is turned away that has come through as many relays as it may.
pub(super) fn circle() -> String {
    format!("it has come through {MAX_RELAYS} relays, the most there may be: do two stand for each other?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::{Relay, RelayConfig, Route};
    use crate::{Config, Drive, Node};
    use denrei_proto::{ChannelId, Completion, Event, LostReason};
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(20);

    fn node() -> Node {
        Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
    }

    #[test]
    fn places_are_taken_and_given_back_until_the_relay_ends() {
        let places = Places::new(1);
        assert!(places.take(MAX_RELAYS).unwrap_err().contains("come through 8 relays"));
        assert_eq!(places.take(0), Ok(()));
        assert!(places.take(0).unwrap_err().contains("max_pairs"));
        places.give_back();
        places.close();
        assert_eq!(places.take(0), Err(ENDING.to_owned()));
        assert_eq!(places.left(), 1);
    }

    /// It was let in, and all that it sent was acknowledged.
    #[test]
    fn who_was_let_in_and_has_no_pair_yet_is_waited_for() {
        let places = Places::new(1);
        let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: node().local_addr() };
        let mut relay = Relay::start(&[route], &RelayConfig::default()).unwrap();
        relay.places = places.clone();
        assert_eq!(places.take(0), Ok(()));
        assert!(!relay.drain(Duration::from_millis(50)));
        places.give_back();
        assert!(relay.drain(SOON));
    }

    /// Until then it was told that they had arrived, and they were handed to nobody.
    #[test]
    fn who_is_turned_away_hears_of_each_message_that_it_sent() {
        const NEWCOMERS: usize = 8;
        let (target, first) = (node(), node());
        let config = RelayConfig { max_pairs: 1, ..RelayConfig::default() };
        let route = Route { listen: "127.0.0.1:0".parse().unwrap(), target: target.local_addr() };
        let relay = Relay::start(&[route], &config).unwrap();
        let send = |from: &Node| {
            let channel = ChannelId { peer: from.connect(relay.addresses()[0]).unwrap(), channel: 0 };
            // It may have been turned away by now.
            let sent = [0, 1].map(|_| from.send_with(channel, vec![7; 2_000], Completion::Acknowledged).ok());
            sent.into_iter().flatten().collect::<Vec<_>>()
        };
        send(&first);
        assert!(target.recv_timeout(SOON).unwrap().is_some());
        let newcomers: Vec<Node> = (0..NEWCOMERS).map(|_| node()).collect();
        let sent: Vec<_> = newcomers.iter().map(send).collect();
        assert!(sent.iter().any(|sent| !sent.is_empty()));
        for (newcomer, sent) in newcomers.iter().zip(sent) {
            match newcomer.event_timeout(SOON) {
                Some(Event::Connected { .. }) => {}
                other => panic!("{other:?}"),
            }
            let Some(Event::PeerLost { reason, unacknowledged, .. }) = newcomer.event_timeout(SOON) else {
                panic!("it is not told")
            };
            let LostReason::Ended { reason, .. } = reason else { panic!("{reason}") };
            assert!(reason.contains("max_pairs"), "{reason}");
            assert_eq!(unacknowledged, sent);
        }
        assert_eq!(relay.pairs().len(), 1);
    }
}
