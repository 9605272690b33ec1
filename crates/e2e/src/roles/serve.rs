//! The role `node`: one Node, driven by one loop that never blocks for longer than a few ms.
//!
//! Inputs → outputs: orders, messages and events → messages and reports.

use super::groups::Groups;
use super::ping::Ping;
use super::resources;
use super::stream::Sending;
use super::tally::Tally;
use super::{report, report_failure};
use crate::{Flow, Order, Report};
use anyhow::Result;
use denrei::relay::{Relay, RelayConfig, Route};
use denrei::{ChannelId, Event, Message, MessageId, Node, PeerId, SendError};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

/// Longest wait for messages while something is being sent: the queue must not run empty.
const BUSY_WAIT: Duration = Duration::from_millis(1);
/// Longest wait otherwise: how late an order may be seen.
const IDLE_WAIT: Duration = Duration::from_millis(5);
/// Longest wait for room for an echo.
const ECHO_LIMIT: Duration = Duration::from_secs(5);
/// Messages taken before orders and streams get their turn.
const MAX_TAKEN_PER_TURN: usize = 256;
/// Events taken before messages get their turn.
const MAX_EVENTS_PER_TURN: usize = 1024;

/// What happens to messages that arrive.
enum Reception {
    Count(Tally),
    Echo,
}

struct Server {
    node: Option<Node>,
    relay: Option<Relay>,
    reception: Reception,
    reading: bool,
    streams: Vec<Sending>,
    pings: Vec<Ping>,
    groups: Groups,
}

/// Carries out orders until there will be no more.
pub fn run(orders: &Receiver<Order>) -> Result<()> {
    let mut server = Server {
        node: None,
        relay: None,
        reception: Reception::Count(Tally::default()),
        reading: true,
        streams: Vec::new(),
        pings: Vec::new(),
        groups: Groups::default(),
    };
    loop {
        match orders.try_recv() {
            Ok(order) => server.carry_out(order)?,
            Err(TryRecvError::Empty) => server.turn()?,
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

impl Server {
    fn carry_out(&mut self, order: Order) -> Result<()> {
        match order {
            Order::Bind { addr, settings } => match Node::bind(addr, settings.config()) {
                Ok(node) => {
                    report(&Report::Bound { addr: node.local_addr() })?;
                    self.node = Some(node);
                }
                Err(error) => report_failure(error)?,
            },
            Order::BindAnother => match Node::bind("127.0.0.1:0", denrei::Config::default()) {
                Ok(node) => report(&Report::Bound { addr: node.local_addr() })?,
                Err(error) => report_failure(error)?,
            },
            Order::Relay { listen, target, pair_bytes, settings } => {
                let config = RelayConfig { node: settings.config(), pair_bytes, ..RelayConfig::default() };
                match Relay::start(&[Route { listen, target }], &config) {
                    Ok(relay) => {
                        report(&Report::Bound { addr: relay.addresses()[0] })?;
                        self.relay = Some(relay);
                    }
                    Err(error) => report_failure(error)?,
                }
            }
            Order::LimitFiles { spare } => match resources::limit_files(spare) {
                Ok(()) => report(&Report::Done)?,
                Err(error) => report_failure(error)?,
            },
            Order::Verify { plan, from, trace } => {
                self.reception = Reception::Count(Tally::verifying(plan, from, trace))
            }
            Order::Echo => self.reception = Reception::Echo,
            Order::Read(reading) => self.reading = reading,
            Order::Tally => match &self.reception {
                Reception::Count(tally) => report(&Report::Tally(tally.sessions()))?,
                Reception::Echo => report_failure("echoes are not counted")?,
            },
            order => match self.node.clone() {
                Some(node) => {
                    if let Some(order) = self.groups.carry_out(&node, order)? {
                        self.carry_out_with(&node, order)?;
                    }
                }
                None => report_failure(format_args!("{order:?} needs a Node: bind first"))?,
            },
        }
        Ok(())
    }

    fn carry_out_with(&mut self, node: &Node, order: Order) -> Result<()> {
        match order {
            Order::Connect { addr } => match node.connect(addr) {
                Ok(peer) => report(&Report::Peer { peer: peer.as_u64() }),
                Err(error) => report_failure(error),
            },
            Order::Send(stream) => {
                self.streams.push(Sending::new(stream));
                Ok(())
            }
            Order::Ping { peer, channel, bytes, count, pause_us } => {
                let to = ChannelId { peer: PeerId::from_u64(peer), channel };
                self.pings.push(Ping::new(to, bytes, count, Duration::from_micros(pause_us)));
                Ok(())
            }
            Order::Flow { peer } => match node.flow(PeerId::from_u64(peer)) {
                Some(flow) => report(&Report::Flow(Flow {
                    datagram_bytes: flow.datagram_bytes,
                    unread_bytes: flow.unread_bytes,
                    queued_bytes: flow.queued_bytes,
                    packets_lost: flow.counters.packets_lost,
                    rate_bytes_per_s: flow.rate.bytes_per_s,
                })),
                None => report_failure("no such peer"),
            },
            Order::Resources => match resources::of(node) {
                Ok(resources) => report(&Report::Resources(resources)),
                Err(error) => report_failure(error),
            },
            Order::Peers => report(&Report::Peers(node.peers().len())),
            order => report_failure(format_args!("the role node does not know {order:?}")),
        }
    }

    /// Sends, receives and reports for a few milliseconds at most.
    fn turn(&mut self) -> Result<()> {
        let Some(node) = self.node.clone() else {
            std::thread::sleep(IDLE_WAIT);
            return Ok(());
        };
        self.send(&node)?;
        self.groups.turn()?;
        let wait = self.wait();
        if self.reading {
            self.receive(&node, wait)?;
        } else if let Some(event) = node.event_timeout(wait) {
            self.on_event(event)?;
        }
        for _ in 0..MAX_EVENTS_PER_TURN {
            let Some(event) = node.try_event() else { break };
            self.on_event(event)?;
        }
        Ok(())
    }

    fn send(&mut self, node: &Node) -> Result<()> {
        let mut failed = Ok(());
        self.streams.retain_mut(|stream| {
            let outcome = match stream.advance(node) {
                Ok(done) => done.then(|| stream.summary()),
                // Its event says so, and ends the stream: a Node in a thread may know, and have forgotten the peer
                // too, before we take that.
                Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_)) => None,
                Err(error) => Some(Report::Failed { error: error.to_string() }),
            };
            outcome.inspect(|outcome| failed = report(outcome)).is_none()
        });
        for ping in &mut self.pings {
            ping.advance(node)?;
        }
        failed
    }

    fn wait(&self) -> Duration {
        let now = Instant::now();
        let dues =
            self.streams.iter().filter_map(Sending::due).chain(self.pings.iter().filter_map(Ping::due));
        let longest = if self.streams.is_empty() && self.groups.is_empty() { IDLE_WAIT } else { BUSY_WAIT };
        dues.map(|due| due.saturating_duration_since(now)).fold(longest, Duration::min)
    }

    fn receive(&mut self, node: &Node, wait: Duration) -> Result<()> {
        let mut next = node.recv_timeout(wait)?;
        let mut taken = 0;
        while let Some(message) = next {
            self.on_message(node, message)?;
            taken += 1;
            next = if taken < MAX_TAKEN_PER_TURN { node.try_recv()? } else { None };
        }
        Ok(())
    }

    fn on_message(&mut self, node: &Node, message: Message) -> Result<()> {
        for ping in &mut self.pings {
            if ping.on_message(&message) {
                if let Some(latency) = ping.result() {
                    report(&Report::Latency(latency))?;
                }
                self.pings.retain(|ping| ping.result().is_none());
                return Ok(());
            }
        }
        match &mut self.reception {
            Reception::Count(tally) => tally.on_message(&message).map_or(Ok(()), |took| report(&took)),
            Reception::Echo => match node.send_timeout(message.channel, message.data, ECHO_LIMIT) {
                Ok(_) => Ok(()),
                // The one who asked is gone: the event says so.
                Err(error) => report_failure(error),
            },
        }
    }

    fn on_event(&mut self, event: Event) -> Result<()> {
        let pair = |id: &MessageId| (id.channel.channel, id.number);
        match event {
            Event::Connected { peer, .. } => report(&Report::Connected { peer: peer.as_u64() }),
            Event::Delivered(id) => {
                report(&Report::Delivered { channel: id.channel.channel, number: id.number })
            }
            Event::Refused(id) => {
                for stream in &mut self.streams {
                    stream.on_refused(id);
                }
                report(&Report::Refused { channel: id.channel.channel, number: id.number })
            }
            Event::PeerLost { peer, reason, unacknowledged, .. } => {
                self.streams.retain(|stream| stream.peer() != peer);
                self.pings.retain(|ping| ping.peer() != peer);
                report(&Report::Lost {
                    peer: peer.as_u64(),
                    reason: format!("{reason:?}"),
                    unacknowledged: unacknowledged.iter().map(pair).collect(),
                })
            }
            _ => Ok(()),
        }
    }
}
