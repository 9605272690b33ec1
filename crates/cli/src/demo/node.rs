//! One node of the demonstration: the process behind the hidden `__demo-node`.
//!
//! Inputs → outputs: orders on standard input → messages to all others and checks of theirs, with
//! what was counted on standard output. One thread, the Node in its default mode: it sends while
//! the queues have room, takes what has come, and waits only when there is neither.

use super::ledger::Ledger;
use super::protocol::{Answer, Exchange, Order, STAGE_AGAIN, Setup};
use super::traffic::{Label, Traffic};
use crate::cmd::key::KeyArgs;
use crate::orders::{self, Orders, answer};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use denrei::{ChannelId, Completion, Event, LostReason, MessageId, Node, PeerId, SendError};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a node waits for its first orders.
const SETUP_LIMIT: Duration = Duration::from_secs(30);

/// How long the sessions may take to close in order.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// How often a node says how far it is.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);

/// Longest wait for a message: how soon an order is noticed.
const PATIENCE: Duration = Duration::from_millis(2);

/// Most messages sent to one node before the next has its turn.
const SEND_TURN: usize = 4;

/// Most messages taken before it is time to send again.
const RECEIVE_TURN: usize = 64;

/// Runs until told to stop.
pub fn run(keys: &KeyArgs) -> Result<()> {
    orders::obey(|orders| DemoNode::set_up(orders, keys)?.run(orders), Answer::Failed)
}

/// Another node, as this one deals with it.
struct Other {
    addr: SocketAddr,
    /// Its present session.
    peer: Option<PeerId>,
    /// Messages of the stage handed over.
    position: u64,
    /// The last message of the stage, until it is delivered.
    last: Option<MessageId>,
    /// It was lost in this stage: nothing more to it, nothing more from it.
    gone: bool,
    /// A message for which there was no room, or which is next.
    ready: Option<Bytes>,
    /// What was counted.
    exchange: Exchange,
    /// Sessions that messages have come from.
    sessions: u32,
}

struct DemoNode {
    node: Node,
    setup: Setup,
    traffic: Traffic,
    /// By index; its own place is never used.
    others: Vec<Other>,
    ledgers: BTreeMap<PeerId, (usize, Ledger)>,
    stage: u32,
    stage_began: Option<Instant>,
    last_progress: Instant,
}

impl DemoNode {
    fn set_up(orders: &Orders<Order>, keys: &KeyArgs) -> Result<Self> {
        let Order::Setup(setup) = orders.wait(SETUP_LIMIT)? else { bail!("the first order has to be Setup") };
        let node = Node::bind(setup.bind, keys.config()?)
            .with_context(|| format!("cannot open a Node at {}", setup.bind))?;
        answer(&Answer::Ready(node.local_addr()))?;
        let Order::Peers(addresses) = orders.wait(SETUP_LIMIT)? else { bail!("expected Peers") };
        let mut new = Self {
            node,
            setup,
            traffic: Traffic::new(setup.seed, setup.nodes),
            others: addresses.into_iter().map(Other::at).collect(),
            ledgers: BTreeMap::new(),
            stage: 0,
            stage_began: None,
            last_progress: Instant::now(),
        };
        new.connect_all()?;
        Ok(new)
    }

    fn run(&mut self, orders: &Orders<Order>) -> Result<()> {
        loop {
            match orders.next()? {
                Some(Order::Stage(stage)) => self.begin(stage)?,
                Some(Order::Stop) => return self.close(),
                Some(other) => bail!("unexpected order {other:?}"),
                None => {}
            }
            let sent = self.send_some()?;
            self.receive_some(if sent { Duration::ZERO } else { PATIENCE })?;
            self.take_events()?;
            self.report()?;
        }
    }

    fn indices(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.setup.index;
        (0..self.setup.nodes).filter(move |index| *index != own)
    }

    fn connect_all(&mut self) -> Result<()> {
        for index in self.indices() {
            let other = &mut self.others[index];
            if other.peer.is_none() {
                other.peer = Some(self.node.connect(other.addr)?);
            }
        }
        Ok(())
    }

    fn begin(&mut self, stage: u32) -> Result<()> {
        self.connect_all()?;
        self.stage = stage;
        self.stage_began = Some(Instant::now());
        for other in &mut self.others {
            (other.position, other.last, other.gone, other.ready) = (0, None, false, None);
        }
        Ok(())
    }

    /// Hands over a few messages to each; whether any was taken.
    fn send_some(&mut self) -> Result<bool> {
        let mut progress = false;
        if self.stage_began.is_none() {
            return Ok(false);
        }
        for index in self.indices() {
            for _ in 0..SEND_TURN {
                if !self.send_one(index)? {
                    break;
                }
                progress = true;
            }
        }
        Ok(progress)
    }

    fn send_one(&mut self, index: usize) -> Result<bool> {
        let (stage, from, messages) = (self.stage, self.setup.index as u32, self.traffic.messages());
        let other = &mut self.others[index];
        let Some(peer) = other.peer.filter(|_| !other.gone && other.position < messages) else {
            return Ok(false);
        };
        let label = Label { stage, from, to: index as u32, number: other.position };
        let message = other.ready.take().unwrap_or_else(|| self.traffic.content(label).into());
        let is_last = other.position + 1 == messages;
        let completion = if is_last { Completion::Delivered } else { Completion::None };
        match self.node.try_send_with(ChannelId { peer, channel: 0 }, message.clone(), completion) {
            Ok(id) => {
                other.position += 1;
                other.exchange.sent += 1;
                other.last = is_last.then_some(id);
                Ok(true)
            }
            Err(SendError::WouldBlock { .. }) => {
                other.ready = Some(message);
                Ok(false)
            }
            // The event that says so is on its way.
            Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_)) => Ok(false),
            Err(error) => Err(error).context("cannot send"),
        }
    }

    fn receive_some(&mut self, mut patience: Duration) -> Result<()> {
        for _ in 0..RECEIVE_TURN {
            let Some(message) = self.node.recv_timeout(patience)? else { break };
            patience = Duration::ZERO;
            self.ledger(message.channel.peer)?.take(&message.data);
        }
        Ok(())
    }

    /// The ledger of a session, opened with its first message.
    fn ledger(&mut self, peer: PeerId) -> Result<&mut Ledger> {
        if !self.ledgers.contains_key(&peer) {
            let addr = self.node.flow(peer).with_context(|| format!("{peer} is in no address table"))?.addr;
            let index = self.index_of(addr)?;
            // Whoever speaks in a second session was started again.
            let other = &mut self.others[index];
            let first_stage = if other.sessions == 0 { self.setup.first_stage } else { STAGE_AGAIN };
            other.sessions += 1;
            let ledger = Ledger::new(self.traffic, index, self.setup.index, first_stage);
            self.ledgers.insert(peer, (index, ledger));
        }
        let (_, ledger) = self.ledgers.get_mut(&peer).context("the ledger was just opened")?;
        Ok(ledger)
    }

    fn index_of(&self, addr: SocketAddr) -> Result<usize> {
        let place = self.others.iter().position(|other| other.addr == addr);
        place.with_context(|| format!("{addr} is none of the nodes"))
    }

    fn take_events(&mut self) -> Result<()> {
        while let Some(event) = self.node.try_event() {
            match event {
                Event::Connected { peer, addr, .. } => {
                    let index = self.index_of(addr)?;
                    self.others[index].peer = Some(peer);
                }
                Event::Delivered(id) => {
                    for other in self.others.iter_mut().filter(|other| other.last == Some(id)) {
                        other.last = None;
                    }
                }
                Event::PeerLost { peer, addr, reason, unacknowledged } => {
                    self.lose(peer, addr, &reason, &unacknowledged)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn lose(
        &mut self,
        peer: PeerId,
        addr: SocketAddr,
        reason: &LostReason,
        unacknowledged: &[MessageId],
    ) -> Result<()> {
        let index = self.index_of(addr)?;
        let other = &mut self.others[index];
        let count = unacknowledged.len() as u64;
        other.exchange.reported += count;
        other.gone = true;
        if other.peer == Some(peer) {
            other.peer = None;
        }
        answer(&Answer::PeerLost { index, reason: reason.to_string(), unacknowledged: count })
    }

    /// Says how far it is, now and then, and when a stage is done.
    fn report(&mut self) -> Result<()> {
        if let Some(began) = self.stage_began.filter(|_| self.has_finished()) {
            self.stage_began = None;
            let (stage, exchanges) = (self.stage, self.exchanges());
            let took_ms = began.elapsed().as_millis() as u64;
            return answer(&Answer::StageDone { stage, exchanges, took_ms });
        }
        if self.stage_began.is_some() && self.last_progress.elapsed() >= PROGRESS_EVERY {
            self.last_progress = Instant::now();
            return answer(&Answer::Progress(self.exchanges()));
        }
        Ok(())
    }

    /// Whether everything of the stage has been sent, delivered and received.
    fn has_finished(&self) -> bool {
        self.indices().all(|index| {
            let other = &self.others[index];
            let sent = other.position == self.traffic.messages() && other.last.is_none();
            let mut ledgers = self.ledgers.values().filter(|(from, _)| *from == index);
            other.gone || (sent && ledgers.any(|(_, ledger)| ledger.has_completed(self.stage)))
        })
    }

    fn exchanges(&self) -> Vec<Exchange> {
        let mut exchanges: Vec<Exchange> = self.others.iter().map(|other| other.exchange).collect();
        for (index, ledger) in self.ledgers.values() {
            exchanges[*index].arrived += *ledger.arrived();
        }
        for flow in self.node.peers() {
            if let Ok(index) = self.index_of(flow.addr) {
                exchanges[index].retransmitted += flow.counters.retransmissions;
            }
        }
        exchanges
    }

    /// Closes all sessions in order.
    fn close(&mut self) -> Result<()> {
        for peer in self.others.iter().filter_map(|other| other.peer) {
            // A peer that has closed first is gone already.
            let _ = self.node.close(peer);
        }
        let limit = Instant::now() + CLOSE_LIMIT;
        while Instant::now() < limit && !self.node.peers().is_empty() {
            let _ = self.node.event_timeout(PATIENCE);
        }
        Ok(())
    }
}

impl Other {
    fn at(addr: SocketAddr) -> Self {
        Self {
            addr,
            peer: None,
            position: 0,
            last: None,
            gone: false,
            ready: None,
            exchange: Exchange::default(),
            sessions: 0,
        }
    }
}
