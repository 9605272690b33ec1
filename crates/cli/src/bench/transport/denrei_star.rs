//! denrei, many to one: a Node per process, messages on channel 0, nothing added.
//!
//! Inputs → outputs: `Bytes` handed over without a copy. Messages that are offered, being large,
//! are accepted at once, into buffers that are used again, as TCP's are.

use super::{Arrival, PATIENCE, StarEndpoint, StarLink, open_node};
use crate::bench::control::{Job, PacketCounts};
use crate::cmd::key::KeyArgs;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use denrei::{ChannelId, Event, Incoming, Message, Node, OfferPolicy, PeerId};
use std::collections::HashMap;
use std::net::SocketAddr;

/// Most buffers kept for large messages: more are not under way at a time from 64 senders.
const SPARE_BUFFERS: usize = 128;

/// A Node with its port open.
pub struct DenreiStarEndpoint {
    node: Node,
    is_receiver: bool,
}

impl DenreiStarEndpoint {
    /// Opens a Node at a free port.
    pub fn open(job: &Job, keys: &KeyArgs) -> Result<Self> {
        let node = open_node(job, keys, OfferPolicy::Ask)?;
        Ok(Self { node, is_receiver: job.index == 0 })
    }
}

impl StarEndpoint for DenreiStarEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.node.local_addr())
    }

    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn StarLink>> {
        let mut star =
            DenreiStar { node: self.node, peers: Vec::new(), lanes: HashMap::new(), spare: Vec::new() };
        if !self.is_receiver {
            let receiver = addresses.first().context("the receiver has no address")?;
            let peer = star.node.connect(*receiver)?;
            star.lane_of(peer);
        }
        Ok(Box::new(star))
    }
}

struct DenreiStar {
    node: Node,
    /// By lane.
    peers: Vec<PeerId>,
    lanes: HashMap<PeerId, usize>,
    /// Memory of messages that were taken, for those to come.
    spare: Vec<Vec<u8>>,
}

impl DenreiStar {
    /// The lane of a peer, a new one for one that speaks for the first time.
    fn lane_of(&mut self, peer: PeerId) -> usize {
        let next = self.peers.len();
        let lane = *self.lanes.entry(peer).or_insert(next);
        if lane == next {
            self.peers.push(peer);
        }
        lane
    }

    fn take_event(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Offered { channel, number, .. } => {
                self.node.accept(channel, number, self.spare.pop().unwrap_or_default())?;
                Ok(())
            }
            Event::PeerLost { peer, reason, .. } => bail!("{peer} is lost: {reason}"),
            _ => Ok(()),
        }
    }

    fn take_message(&mut self, message: Message) -> Arrival {
        let arrival = Arrival::new(self.lane_of(message.channel.peer), &message.data);
        if arrival.bytes > 1 << 16
            && self.spare.len() < SPARE_BUFFERS
            && let Ok(buffer) = message.data.try_into_mut()
        {
            self.spare.push(buffer.into());
        }
        arrival
    }
}

impl StarLink for DenreiStar {
    fn send(&mut self, lane: usize, message: &Bytes) -> Result<()> {
        let peer = *self.peers.get(lane).context("there is no such sender")?;
        self.node.send(ChannelId { peer, channel: 0 }, message.clone()).context("cannot send")?;
        Ok(())
    }

    fn recv(&mut self) -> Result<Option<Arrival>> {
        loop {
            match self.node.next(PATIENCE)? {
                Some(Incoming::Event(event)) => self.take_event(event)?,
                Some(Incoming::Message(message)) => return Ok(Some(self.take_message(message))),
                None => return Ok(None),
            }
        }
    }

    fn packets(&self) -> PacketCounts {
        packet_counts(&self.node)
    }
}

/// What a Node has sent to all its peers.
pub fn packet_counts(node: &Node) -> PacketCounts {
    let peers = node.peers();
    let counts = peers.iter().map(|flow| PacketCounts {
        sent: flow.counters.packets_sent,
        lost: flow.counters.packets_lost,
        retransmitted: flow.counters.retransmissions,
        probes: flow.counters.probes,
        recoveries: flow.counters.recoveries,
    });
    counts.fold(PacketCounts::default(), PacketCounts::plus)
}
