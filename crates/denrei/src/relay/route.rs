//! One route: the Node that stands for a target, and the pairs of those who speak to it.
//!
//! Inputs → outputs: what comes to the Node → the pair of whom it is from; a new sender → a new pair
//! with a Node of its own towards the target, so that the target sees as many peers as there are
//! senders.

use super::RelayConfig;
use super::blocked::Blocked;
use super::pair::{Ending, FAR_PEER_LOST, Full, LOOK, Pair, PairState};
use super::places::{Places, circle};
use super::unable::Unable;
use crate::{Config, Incoming, Node, NodeError};
use denrei_proto::{Event, Message, PeerId};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it is looked whether a full pair has room again.
const LOOK_WHEN_FULL: Duration = Duration::from_millis(1);

/// Messages that are handed on with each event. Events come first, and a sender that begins takes as long as thousands
/// of messages: those of the others would wait as long as there are any that begin.
const MESSAGES_PER_EVENT: usize = 64;

/// A route's Node and pairs.
pub(super) struct RouteState {
    near: Node,
    target: SocketAddr,
    config: RelayConfig,
    places: Places,
    pairs: Mutex<HashMap<PeerId, Running>>,
    /// Senders whose pair is over, or could not begin, until the Node forgets them. What is still here of one
    /// follows something that was lost: a new pair would hand it on as if nothing were missing.
    over: Mutex<HashSet<PeerId>>,
    /// Senders of which a message was handed on before it was told that they are there, which is then no news.
    untold: Mutex<HashSet<PeerId>>,
    unable: Unable,
}

/// A pair and its threads.
struct Running {
    pair: Arc<Pair>,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Whether it can be put away without a wait: the others' messages come by the thread that does it.
    fn is_done(&self) -> bool {
        self.pair.is_over() && self.threads.iter().all(JoinHandle::is_finished)
    }
}

impl RouteState {
    /// A route without pairs.
    pub fn new(near: Node, target: SocketAddr, config: RelayConfig, places: Places) -> Self {
        Self {
            near,
            target,
            config,
            places,
            pairs: Mutex::default(),
            over: Mutex::default(),
            untold: Mutex::default(),
            unable: Unable::default(),
        }
    }

    /// All pairs, as of now.
    pub fn pairs(&self) -> Vec<PairState> {
        self.pairs.lock().values().map(|running| running.pair.state()).collect()
    }

    /// The route's thread.
    pub fn run(&self, stopping: &AtomicBool) {
        let mut looked = Instant::now();
        let mut blocked = Blocked::default();
        while !stopping.load(Ordering::Acquire) {
            if let Err(error) = self.step(&mut blocked) {
                tracing::error!("the route to {} is closed: {error}", self.target);
                break;
            }
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                self.look();
            }
        }
        let pairs: Vec<Running> = self.pairs.lock().drain().map(|(_, running)| running).collect();
        // All before one is waited for: each takes a while to notice, and nobody is told before the last has.
        pairs.iter().for_each(|running| running.pair.end());
        pairs.into_iter().for_each(|running| self.put_away(running));
    }

    /// Hands on what comes next, but what is `blocked`.
    fn step(&self, blocked: &mut Blocked) -> Result<(), NodeError> {
        blocked.refresh();
        let patience = if blocked.is_empty() { LOOK } else { LOOK_WHEN_FULL };
        match self.near.next_where(patience, |channel| blocked.lets_go(channel))? {
            None => {}
            Some(Incoming::Event(event)) => {
                self.on_event(event);
                for _ in 0..MESSAGES_PER_EVENT {
                    let Some(message) = self.near.take_where(|channel| blocked.lets_go(channel)) else {
                        break;
                    };
                    self.hand_on(message, blocked);
                }
            }
            Some(Incoming::Message(message)) => self.hand_on(message, blocked),
        }
        Ok(())
    }

    fn hand_on(&self, message: Message, blocked: &mut Blocked) {
        let Some(pair) = self.pair_of(message.channel.peer) else { return };
        match pair.push(message.channel.channel, message.data) {
            Full::Nothing => {}
            Full::Channel => drop(blocked.channels.insert(message.channel, pair)),
            Full::Pair => drop(blocked.pairs.insert(message.channel.peer, pair)),
        }
    }

    fn on_event(&self, event: Event) {
        let known = |peer| self.pairs.lock().get(&peer).map(|running| running.pair.clone());
        match event {
            // Its pair may be over, its place given back and all of that forgotten.
            Event::Connected { peer, .. } if self.untold.lock().remove(&peer) => {}
            Event::Connected { peer, .. } => drop(self.begin(peer)),
            Event::PeerDoneWriting(peer) => {
                if let Some(pair) = known(peer) {
                    pair.finish(Ending::DoneWriting);
                }
            }
            Event::PeerDoneReading { peer, .. } => {
                if let Some(pair) = known(peer) {
                    pair.take_nothing_back();
                }
            }
            Event::PeerLost { peer, reason, .. } => {
                if let Some(pair) = known(peer) {
                    pair.finish(Ending::Gone(reason));
                }
            }
            Event::Refused(message) => {
                if let Some(pair) = known(message.channel.peer) {
                    pair.refused_by_sender(message);
                }
            }
            _ => {}
        }
    }

    /// Sets rates, ends what is to end, and takes away pairs that are over.
    fn look(&self) {
        let draining = self.places.are_closed();
        let over: Vec<Running> = {
            let mut pairs = self.pairs.lock();
            pairs.values().for_each(|running| {
                running.pair.regulate();
                running.pair.give_up_if_stuck();
                if draining {
                    running.pair.drain();
                }
            });
            let over: Vec<PeerId> =
                pairs.iter().filter(|(_, running)| running.is_done()).map(|(peer, _)| *peer).collect();
            over.iter().for_each(|peer| self.take_no_more_of(*peer));
            over.iter().filter_map(|peer| pairs.remove(peer)).collect()
        };
        over.into_iter().for_each(|running| self.put_away(running));
    }

    fn take_no_more_of(&self, peer: PeerId) {
        let mut over = self.over.lock();
        // As many have to come before all are looked at again as there are then.
        if over.len() == over.capacity() {
            over.retain(|peer| self.near.flow(*peer).is_some());
            let room = over.len().max(64);
            over.reserve(room);
        }
        over.insert(peer);
    }

    fn put_away(&self, running: Running) {
        running.pair.end();
        for thread in running.threads {
            // One that has panicked has said so.
            let _ = thread.join();
        }
        self.places.give_back();
    }

    /// The pair of a sender, a new one for one that comes for the first time; `None`: its pair is over, or could not
    /// begin.
    fn pair_of(&self, peer: PeerId) -> Option<Arc<Pair>> {
        if let Some(running) = self.pairs.lock().get(&peer) {
            return Some(running.pair.clone());
        }
        if self.over.lock().contains(&peer) {
            return None;
        }
        self.untold.lock().insert(peer);
        self.begin(peer)
    }

    /// Once for each sender that was let in, and has a place.
    fn begin(&self, peer: PeerId) -> Option<Arc<Pair>> {
        match self.open(peer) {
            Ok(running) => {
                let pair = running.pair.clone();
                self.pairs.lock().insert(peer, running);
                Some(pair)
            }
            Err(why) => {
                self.places.give_back();
                self.take_no_more_of(peer);
                // One that is gone needs no word.
                let _ = self.near.abort(peer, FAR_PEER_LOST, &why);
                None
            }
        }
    }

    fn open(&self, peer: PeerId) -> Result<Running, String> {
        let relays = self.near.flow(peer).ok_or("it is gone")?.relays;
        // What it had said of that may have come after it was let in.
        let config = self.config.far(relays).ok_or_else(circle)?;
        self.start(peer, config)
    }

    fn start(&self, peer: PeerId, config: Config) -> Result<Running, String> {
        let unable = |error: &dyn Display| {
            self.unable.words(&error, self.near.flow(peer).map(|flow| flow.addr), self.target)
        };
        let far = Node::bind(self.config.from(self.target), config).map_err(|error| unable(&error))?;
        let far_peer = far.connect(self.target).map_err(|error| unable(&error))?;
        let limit = self.config.pair_bytes;
        let pair = Arc::new(Pair::new(self.near.clone(), peer, far, far_peer, self.target, limit));
        let spawn = |name: &str, run: fn(&Pair)| {
            let pair = pair.clone();
            let thread = std::thread::Builder::new().name(name.into());
            thread.spawn(move || run(&pair)).map_err(|error| unable(&error))
        };
        let mut threads = vec![spawn("relay forward", Pair::forward)?];
        match spawn("relay back", Pair::carry_back) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                pair.end();
                return Err(error);
            }
        }
        Ok(Running { pair, threads })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Drive;
    use crate::relay::{Relay, Route};
    use denrei_proto::{ChannelId, LostReason};
    use std::sync::mpsc::channel;

    const SOON: Duration = Duration::from_secs(20);

    fn node() -> Node {
        Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
    }

    fn relay_to(target: SocketAddr, config: &RelayConfig) -> Relay {
        Relay::start(&[Route { listen: "127.0.0.1:0".parse().unwrap(), target }], config).unwrap()
    }

    #[test]
    fn a_pair_that_ends_is_not_waited_for() {
        let (near, far, target) = (node(), node(), node().local_addr());
        let (peer, far_peer) = (near.connect(target).unwrap(), far.connect(target).unwrap());
        let pair = Arc::new(Pair::new(near.clone(), peer, far, far_peer, target, 1 << 20));
        let places = Places::new(0);
        let route = RouteState::new(near, target, RelayConfig::default(), places.clone());
        let (let_go, held) = channel::<()>();
        let threads = vec![std::thread::spawn(move || held.recv().unwrap_or_default())];
        pair.end();
        route.pairs.lock().insert(peer, Running { pair, threads });
        std::thread::scope(|scope| {
            let (done, is_done) = channel();
            let route = &route;
            scope.spawn(move || {
                route.look();
                done.send(()).unwrap();
            });
            let in_time = is_done.recv_timeout(SOON).is_ok();
            drop(let_go);
            assert!(in_time, "the others' messages wait for its thread");
        });
        while places.left() == 0 {
            route.look();
            std::thread::yield_now();
        }
        assert!(route.pairs().is_empty());
    }

    #[test]
    fn what_follows_a_message_that_was_lost_goes_through_no_new_pair() {
        let (near, sender, target) = (node(), node(), node());
        let to = ChannelId { peer: sender.connect(near.local_addr()).unwrap(), channel: 0 };
        let places = Places::new(8);
        let route = RouteState::new(near, target.local_addr(), RelayConfig::default(), places);
        sender.send(to, "before").unwrap();
        let mut blocked = Blocked::default();
        let until = Instant::now() + SOON;
        while target.try_recv().unwrap().is_none() {
            assert!(Instant::now() < until, "it goes through");
            route.step(&mut blocked).unwrap();
        }
        sender.send(to, "behind").unwrap();
        assert!(sender.flush(to.peer, SOON), "the relay's Node has it");
        let pair = route.pairs.lock().values().next().expect("it is at work").pair.clone();
        pair.fail(FAR_PEER_LOST, "a message in between was lost");
        while !route.pairs().is_empty() {
            assert!(Instant::now() < until, "it is put away");
            route.look();
        }
        // The message, the end of the session, and nothing.
        (0..5).for_each(|_| route.step(&mut blocked).unwrap());
        assert!(route.pairs().is_empty(), "the target would see a session without a gap");
        assert!(target.try_recv().unwrap().is_none());
    }

    /// Many that come at once have messages that are handed on before it is their turn to be told of.
    #[test]
    fn a_place_is_given_back_once_though_the_pair_is_over_before_its_beginning_is_told() {
        let (sender, target) = (node(), node());
        let config = RelayConfig { max_pairs: 1, ..RelayConfig::default() };
        let places = Places::new(config.max_pairs);
        let near = Node::bind("127.0.0.1:0", config.near(&places)).unwrap();
        let to = ChannelId { peer: sender.connect(near.local_addr()).unwrap(), channel: 0 };
        let route = RouteState::new(near, target.local_addr(), config, places.clone());
        sender.send(to, "hello").unwrap();
        assert!(sender.flush(to.peer, SOON));
        let message = route.near.take_where(|_| true).expect("it is here");
        let peer = message.channel.peer;
        route.hand_on(message, &mut Blocked::default());
        route.pair_of(peer).expect("it has begun").fail(FAR_PEER_LOST, "the target is gone");
        let until = Instant::now() + SOON;
        while !route.pairs().is_empty() || route.near.flow(peer).is_some() {
            assert!(Instant::now() < until, "it is put away, and forgotten");
            route.look();
            std::thread::sleep(Duration::from_millis(1));
        }
        // As when many more are over.
        route.over.lock().clear();
        (0..2).for_each(|_| route.step(&mut Blocked::default()).unwrap());
        assert_eq!(places.left(), 1);
    }

    /// The sender was told that all had arrived.
    #[test]
    fn who_does_not_read_for_long_has_everything_after_an_orderly_end() {
        const MESSAGES: u32 = 300;
        let narrow = || {
            let mut config = Config { drive: Drive::Thread, ..Config::default() };
            config.protocol.channel_credit_bytes = 64 << 10;
            config.protocol.offer_above_bytes = 32 << 10;
            Node::bind("127.0.0.1:0", config).unwrap()
        };
        let (sender, target) = (node(), narrow());
        let relay = relay_to(target.local_addr(), &RelayConfig::default());
        let to = ChannelId { peer: sender.connect(relay.addresses()[0]).unwrap(), channel: 0 };
        for number in 0..MESSAGES {
            let mut message = vec![0; 4_000];
            message[..4].copy_from_slice(&number.to_be_bytes());
            sender.send(to, message).unwrap();
        }
        sender.close(to.peer).unwrap();
        while !matches!(
            sender.event_timeout(SOON).unwrap(),
            Event::PeerLost { reason: LostReason::Closed, .. }
        ) {}
        // Longer than the relay waits for who is lost, twice.
        std::thread::sleep(Duration::from_secs(2));
        for number in 0..MESSAGES {
            let message = target.recv_timeout(SOON).unwrap().expect("all come");
            assert_eq!(message.data[..4], number.to_be_bytes());
        }
        let until = Instant::now() + SOON;
        while !relay.pairs().is_empty() {
            assert!(Instant::now() < until, "and then it ends");
            std::thread::yield_now();
        }
    }

    /// The peer beyond was told that all had arrived.
    #[test]
    fn what_came_back_before_an_orderly_end_arrives_though_the_sender_still_sends() {
        const MESSAGES: u32 = 200;
        let (sender, target) = (node(), node());
        let relay =
            relay_to(target.local_addr(), &RelayConfig { pair_bytes: 1 << 20, ..RelayConfig::default() });
        let to = ChannelId { peer: sender.connect(relay.addresses()[0]).unwrap(), channel: 0 };
        sender.send(to, "hello").unwrap();
        let back = target.recv_timeout(SOON).unwrap().expect("it comes").channel;
        std::thread::scope(|scope| {
            scope.spawn(|| while sender.send(to, vec![0; 5_000]).is_ok() {});
            scope.spawn(|| {
                (0..MESSAGES).for_each(|number| {
                    let mut message = vec![0; 20_000];
                    message[..4].copy_from_slice(&number.to_be_bytes());
                    target.send(back, message).unwrap();
                });
                target.close(back.peer).unwrap();
            });
            // It is behind when the other ends.
            std::thread::sleep(Duration::from_millis(300));
            for number in 0..MESSAGES {
                let message = sender.recv_timeout(SOON).unwrap().expect("all come");
                assert_eq!(message.data[..4], number.to_be_bytes());
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let orderly = LostReason::Ended { code: 0, reason: String::new() };
        let ended = |event| matches!(event, Event::PeerLost { reason, .. } if reason == orderly);
        while !ended(sender.event_timeout(SOON).expect("it ends")) {}
    }

    /// Each thread of a pair takes up to 50 ms to notice.
    #[test]
    fn the_end_of_a_relay_takes_no_longer_for_many_pairs() {
        const PAIRS: usize = 120;
        let target = node();
        let config = RelayConfig { max_pairs: PAIRS, ..RelayConfig::default() };
        let relay = relay_to(target.local_addr(), &config);
        let senders: Vec<Node> = (0..PAIRS).map(|_| node()).collect();
        for sender in &senders {
            sender.connect(relay.addresses()[0]).unwrap();
        }
        let until = Instant::now() + SOON;
        while relay.pairs().len() < PAIRS {
            assert!(Instant::now() < until, "they come");
            std::thread::yield_now();
        }
        let began = Instant::now();
        drop(relay);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?} until the last hears", began.elapsed());
    }

    /// Whoever reads another channel first would wait for ever.
    #[test]
    fn a_channel_that_is_not_read_holds_up_no_other_of_its_pair_in_either_direction() {
        let take = |at: &Node, channel: u16| {
            let until = Instant::now() + SOON;
            loop {
                if let Some(message) = at.take_where(|from| from.channel == channel) {
                    return message;
                }
                assert!(Instant::now() < until, "channel {channel} goes on");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let (sender, target) = (node(), node());
        let relay =
            relay_to(target.local_addr(), &RelayConfig { pair_bytes: 4 << 20, ..RelayConfig::default() });
        let peer = sender.connect(relay.addresses()[0]).unwrap();
        sender.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
        let back = take(&target, 0).channel.peer;
        for (from, peer, to) in [(&sender, peer, &target), (&target, back, &sender)] {
            let [unread, read] = [2, 1].map(|channel| ChannelId { peer, channel });
            let mut sent = 0u32;
            let mut message = vec![0; 50_000];
            while from.send_timeout(unread, message.clone(), SOON / 40).is_ok() {
                sent += 1;
                message[..4].copy_from_slice(&sent.to_be_bytes());
            }
            for number in 0..100_u32 {
                from.send(read, number.to_be_bytes().to_vec()).unwrap();
                assert_eq!(take(to, 1).data, number.to_be_bytes()[..]);
            }
            for number in 0..sent {
                assert_eq!(take(to, 2).data[..4], number.to_be_bytes());
            }
        }
    }
}
