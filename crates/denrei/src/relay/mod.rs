//! A node on the path (R6): forwards messages between networks that cannot reach each other.
//!
//! Inputs → outputs: routes, each an address of the relay that stands for a peer beyond it → a
//! session with every sender that comes to such an address, and for each of those (a *pair*) a Node
//! of its own towards the peer; messages, closes and rates carried over in both directions. A
//! sender names the far peer by the address that stands for it: nothing in the protocol is special.
//!
//! What holds: a message is forwarded whole, exactly once and in the order of its channel while the
//! relay lives. It is acknowledged, and reported as delivered, hop by hop: what the relay has acknowledged and not
//! forwarded is lost if the relay dies, or is dropped before it was [drained](Relay::drain), or if the far peer dies;
//! senders are told that the peer is lost, and not which of these messages arrived. A slow far side holds up its own
//! pair and no other: the relay
//! lowers the pair's rate as its queue grows, down to a stop (§13.2 of the protocol). A channel that is not
//! read holds up no other of its pair: the relay leaves what is beyond its share of the queue to its credit.
//! Groups do not go through: [`Node::open_group`] hears nothing from a member behind a relay.

mod blocked;
mod pace;
mod pair;
mod places;
mod queue;
mod route;
mod unable;

pub use pair::PairState;

use crate::address::{can_reach, lacks_interface};
use crate::{BindError, Config, Drive, Node};
use denrei_io::{Maker, canonical};
use denrei_proto::{ConfigError, MESSAGE_COST_BYTES, MIN_CHANNEL_CREDIT_BYTES, OfferPolicy};
use pair::LOOK;
use places::Places;
use route::RouteState;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Least queue of a pair, bytes.
pub const MIN_PAIR_BYTES: u64 = 64 * 1024;
/// Largest queue of a pair, bytes.
pub const MAX_PAIR_BYTES: u64 = 1 << 30;
/// Most pairs of a relay: each has a socket and three threads with its Node's.
pub const MAX_PAIRS: usize = 1_024;

/// Most relays that a message goes through: who has come through as many is turned away, for it may have come in a
/// circle of relays that stand for each other.
pub const MAX_RELAYS: u8 = 8;

/// An address that stands for a peer beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where senders find the peer: an address of the relay; port 0 takes any.
    pub listen: SocketAddr,
    /// The peer.
    pub target: SocketAddr,
}

/// The settings of a [`Relay`].
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// Those of its Nodes, secrets included. Which threads drive them is the relay's choice, whatever `drive`,
    /// `pipeline` and `shards` say; `offers` has to be automatic.
    pub node: Config,
    /// Local address towards targets; `None`: loopback towards loopback, else any. One of a single link is that of the
    /// link that the target names.
    pub from: Option<IpAddr>,
    /// Bytes of messages that a pair may hold in a direction, and the largest message that goes
    /// through. 64 KiB ..= 1 GiB.
    pub pair_bytes: u64,
    /// Pairs at a time, of all routes; further senders are turned away. 1 ..= 1,024.
    pub max_pairs: usize,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self { node: Config::default(), from: None, pair_bytes: 64 << 20, max_pairs: 64 }
    }
}

impl RelayConfig {
    fn validate(&self) -> Result<(), BindError> {
        if !(MIN_PAIR_BYTES..=MAX_PAIR_BYTES).contains(&self.pair_bytes) {
            let expected = format!("between {MIN_PAIR_BYTES} (64 KiB) and {MAX_PAIR_BYTES} (1 GiB)");
            return Err(refused("pair_bytes", self.pair_bytes, expected));
        }
        if !(1..=MAX_PAIRS).contains(&self.max_pairs) {
            return Err(refused("max_pairs", self.max_pairs, format!("between 1 and {MAX_PAIRS}")));
        }
        if self.node.protocol.offers == OfferPolicy::Ask {
            let expected = "automatic: a relay asks nobody, and what is offered would wait for ever";
            return Err(refused("offers", "ask", expected));
        }
        Ok(())
    }

    /// The settings of a route's Node, at which senders come for a place.
    fn near(&self, places: &Places) -> Config {
        let mut config = self.node();
        config.protocol.doorkeeper = Some(places.doorkeeper());
        config
    }

    /// The settings of the Node towards the target, for a sender whose session has come through `relays`; `None`: through
    /// as many as it may.
    fn far(&self, relays: u8) -> Option<Config> {
        let mut config = self.node();
        config.protocol.relays = relays.checked_add(1).filter(|relays| *relays <= MAX_RELAYS)?;
        Some(config)
    }

    /// The settings of the Nodes on both sides. What a sender has credit for still arrives after it
    /// was told to stop, so the credit too is a share of what a pair may hold.
    fn node(&self) -> Config {
        let mut config =
            Config { drive: Drive::Thread, pipeline: Vec::new(), shards: 1, ..self.node.clone() };
        let protocol = &mut config.protocol;
        let share = self.pair_bytes / 4;
        protocol.max_message_bytes = protocol.max_message_bytes.min(self.pair_bytes);
        protocol.send_buffer_bytes = protocol.send_buffer_bytes.min(share);
        protocol.channel_credit_bytes =
            protocol.channel_credit_bytes.min(share.max(MIN_CHANNEL_CREDIT_BYTES));
        let most_unasked = protocol.channel_credit_bytes.saturating_sub(MESSAGE_COST_BYTES);
        protocol.offer_above_bytes = protocol.offer_above_bytes.min(most_unasked);
        config
    }

    /// Where the Node towards a target is bound. An address of one link is meant on the target's: it says of none itself.
    fn from(&self, target: SocketAddr) -> SocketAddr {
        let any = match target.ip() {
            IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut from = SocketAddr::new(self.from.unwrap_or(any), 0);
        if let (true, SocketAddr::V6(from), SocketAddr::V6(target)) =
            (lacks_interface(from), &mut from, target)
        {
            from.set_scope_id(target.scope_id());
        }
        from
    }
}

/// A running relay. Dropping it ends all its sessions.
pub struct Relay {
    routes: Vec<(SocketAddr, Arc<RouteState>)>,
    places: Places,
    threads: Vec<JoinHandle<()>>,
    stopping: Arc<AtomicBool>,
    maker: Maker,
}

/// What a setting is that cannot be, and what is possible.
fn refused(setting: &'static str, value: impl ToString, expected: impl Into<String>) -> BindError {
    BindError::Config(ConfigError { setting, value: value.to_string(), expected: expected.into() })
}

/// What a route is that cannot be.
fn refused_route(route: &Route, expected: impl Into<String>) -> BindError {
    refused("route", format_args!("{}={}", route.listen, route.target), expected)
}

/// A relay that stands for nobody has nothing to do.
fn refuse_none(routes: &[Route]) -> Result<(), BindError> {
    if !routes.is_empty() {
        return Ok(());
    }
    let expected = "one route at least: where to listen, and the peer that it stands for";
    Err(refused("routes", "empty", expected))
}

/// What is relayed to the relay itself would go round without end.
fn refuse_circles(routes: &[Route]) -> Result<(), BindError> {
    let reaches = |listen: SocketAddr, target: SocketAddr| {
        let (here, there) = (canonical(listen), canonical(target));
        let everywhere = here.ip().is_unspecified() && there.ip().is_loopback();
        here == there || everywhere && here.port() == there.port()
    };
    let to_itself = |route: &&Route| routes.iter().any(|own| reaches(own.listen, route.target));
    routes
        .iter()
        .find(to_itself)
        .map_or(Ok(()), |route| Err(refused_route(route, "to a peer that is not this relay")))
}

/// Who comes to an address speaks with one peer.
fn refuse_doubles(routes: &[Route]) -> Result<(), BindError> {
    let same = |one: &Route, other: &Route| one.listen == other.listen && one.listen.port() != 0;
    let double = |(index, route): &(usize, &Route)| routes[..*index].iter().any(|other| same(other, route));
    routes
        .iter()
        .enumerate()
        .find(double)
        .map_or(Ok(()), |(_, route)| Err(refused_route(route, "from an address that no other route has")))
}

/// Nobody could ever answer from there, and every pair would be lost.
fn refuse_unreachable(route: &Route, from: SocketAddr) -> Result<(), BindError> {
    let (ip, port) = (route.target.ip().to_canonical(), route.target.port());
    if port == 0 || ip.is_unspecified() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
        return Err(refused_route(route, "to the address and port of a peer"));
    }
    if lacks_interface(route.target) {
        let expected = "to a peer with this host's interface to its link, as in [fe80::7%eth0]:7411";
        return Err(refused_route(route, expected));
    }
    if !can_reach(from.ip(), ip) {
        return Err(refused_route(route, format!("to a peer that can be reached from {}", from.ip())));
    }
    if lacks_interface(from) {
        let expected = format!("to a peer of one link, as in [fe80::7%eth0]:7411, like {}", from.ip());
        return Err(refused_route(route, expected));
    }
    Ok(())
}

impl Relay {
    /// Opens the routes and forwards from now on, in threads of its own.
    ///
    /// # Errors
    /// No route, a setting that cannot work, or an address that cannot be bound; nothing remains then.
    pub fn start(routes: &[Route], config: &RelayConfig) -> Result<Self, BindError> {
        config.validate()?;
        refuse_none(routes)?;
        routes.iter().try_for_each(|route| refuse_unreachable(route, config.from(route.target)))?;
        refuse_circles(routes)?;
        refuse_doubles(routes)?;
        let places = Places::new(config.max_pairs);
        let mut relay = Self {
            routes: Vec::new(),
            places: places.clone(),
            threads: Vec::new(),
            stopping: Arc::default(),
            maker: Maker::this_process(),
        };
        for route in routes {
            let near = Node::bind(route.listen, config.near(&places))?;
            // What the first sender would find out.
            drop(Node::bind(config.from(route.target), config.node())?);
            let addr = near.local_addr();
            let state = Arc::new(RouteState::new(near, route.target, config.clone(), places.clone()));
            let (running, stopping) = (state.clone(), relay.stopping.clone());
            let thread = std::thread::Builder::new().name("relay route".into());
            let thread = thread.spawn(move || running.run(&stopping));
            relay.threads.push(thread.map_err(|source| BindError::System { source })?);
            relay.routes.push((addr, state));
        }
        Ok(relay)
    }

    /// The addresses that stand for the targets, in the order of the routes.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.routes.iter().map(|(addr, _)| *addr).collect()
    }

    /// Ends all sessions in order: nobody begins any more, those there are stop sending by their rates (R3), and each pair
    /// ends, with the word that the relay is ending, when all that had been acknowledged here is forwarded and
    /// acknowledged; what else they have they are told of as with any end. Waits for that at most `limit`, and says
    /// whether it came about. Dropping the relay ends what is left.
    pub fn drain(&self, limit: Duration) -> bool {
        self.places.close();
        let begun = Instant::now();
        while !self.places.are_free() {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(LOOK));
        }
        true
    }

    /// All pairs, as of now.
    pub fn pairs(&self) -> Vec<PairState> {
        self.routes.iter().flat_map(|(_, route)| route.pairs()).collect()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.maker.is_this_process() {
            // They are the parent's.
            return std::mem::forget(std::mem::take(&mut self.threads));
        }
        self.places.close();
        self.stopping.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that has panicked has said so, and there is nothing left to forward.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(listen: &str, target: &str) -> Route {
        Route { listen: listen.parse().unwrap(), target: target.parse().unwrap() }
    }

    #[test]
    fn from_an_address_of_one_link_the_targets_interface_is_used() {
        let from = |ip: &str, target: &str| {
            let config = RelayConfig { from: Some(ip.parse().unwrap()), ..RelayConfig::default() };
            config.from(target.parse().unwrap())
        };
        assert_eq!(from("fe80::1", "[fe80::7%3]:7000"), "[fe80::1%3]:0".parse().unwrap());
        assert_eq!(from("fd00::1", "[fe80::7%3]:7000"), "[fd00::1]:0".parse().unwrap());
        assert_eq!(from("10.0.0.1", "10.0.0.7:7000"), "10.0.0.1:0".parse().unwrap());
        let beyond = route("127.0.0.1:7000", "[fd00::7]:7000");
        let refused = refuse_unreachable(&beyond, from("fe80::1", "[fd00::7]:7000")).unwrap_err();
        assert!(refused.to_string().contains("of one link"), "{refused}");
    }

    #[test]
    fn the_same_address_of_another_link_is_another_peer() {
        refuse_circles(&[route("[fe80::1%2]:7000", "[fe80::1%3]:7000")]).unwrap();
        refuse_circles(&[route("[fe80::1%2]:7000", "[fe80::1%2]:7000")]).unwrap_err();
        refuse_circles(&[route("[::1]:7000", "[::1%1]:7000")]).unwrap_err();
    }
}
