//! denrei: one Node per side, messages on channel 0, nothing added.
//!
//! Inputs → outputs: `Bytes` handed over without a copy; messages taken as the Node gives them.
//! Messages that are offered, being large, are accepted into buffers that have been used before, as TCP's
//! are here: else their time would be that of the kernel clearing fresh pages.

use super::{
    Endpoint, Exchanged, Incoming, Link, MeshEndpoint, MeshLink, PATIENCE, Payloads, SPIN_NS, open_node,
    receives, touched,
};
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::{Bench, Drive, Job, Wait};
use crate::bench::limits::{SendLimit, Until};
use crate::cmd::key::KeyArgs;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use denrei::{ChannelId, Config, Event, LostReason, Message, Node, OfferPolicy, PeerId, SendError};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// How long all that was sent may take to be acknowledged after the last call.
const FLUSH_LIMIT: Duration = Duration::from_secs(60);

/// Most messages sent to one member, or taken, before the next has its turn.
const TURN: u64 = 16;

/// A Node with its port open.
pub struct DenreiEndpoint {
    node: Node,
    job: Job,
    /// For large messages; at hand before the other side begins.
    posted: Option<Posted>,
}

impl DenreiEndpoint {
    /// Opens a Node at a free port.
    pub fn open(job: &Job, keys: &KeyArgs) -> Result<Self> {
        let largest_unasked = Config::default().protocol.offer_above_bytes;
        let posts_buffers = job.bench != Bench::Mesh && job.size as u64 > largest_unasked;
        let offers = if posts_buffers { OfferPolicy::Ask } else { OfferPolicy::Automatic };
        let node = open_node(job, keys, offers)?;
        let posted = posts_buffers.then(|| Posted::of(job));
        Ok(Self { node, job: job.clone(), posted })
    }
}

impl Endpoint for DenreiEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.node.local_addr())
    }

    fn link(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn Link>> {
        let other = *addresses.get(1 - self.job.index).context("the other side has no address")?;
        // The side that answers knows its peer from the first message.
        let peer = if self.job.index == 0 { Some(self.node.connect(other)?) } else { None };
        let channel = peer.map(|peer| ChannelId { peer, channel: 0 });
        Ok(Box::new(DenreiLink {
            node: self.node,
            channel,
            drive: self.job.drive,
            wait: self.job.wait,
            posted: self.posted,
        }))
    }
}

struct DenreiLink {
    node: Node,
    /// Where to send: known from the start, or from the first message.
    channel: Option<ChannelId>,
    drive: Drive,
    wait: Wait,
    /// For large messages: the buffers that they are received into.
    posted: Option<Posted>,
}

/// Buffers for messages that are offered.
struct Posted {
    spare: Vec<Vec<u8>>,
    /// Offers accepted whose message has not come.
    accepted: usize,
}

impl Posted {
    /// With as many buffers as are in use at once: one that is filled, one for the next offer.
    fn of(job: &Job) -> Self {
        let count = if receives(job) { 2 } else { 0 };
        Self { spare: (0..count).map(|_| touched(job.size)).collect(), accepted: 0 }
    }

    /// Accepts an offer.
    fn take_event(&mut self, node: &Node, event: Event) -> Result<()> {
        match event {
            Event::Offered { channel, number, .. } => {
                node.accept(channel, number, self.spare.pop().unwrap_or_default())?;
                self.accepted += 1;
                Ok(())
            }
            Event::PeerLost { reason, .. } => bail!("the other side is lost: {reason}"),
            _ => Ok(()),
        }
    }

    /// Waits for an offer if none is accepted, then for a message.
    fn recv(&mut self, node: &Node) -> Result<Option<Message>> {
        if self.accepted == 0 {
            let Some(event) = node.event_timeout(PATIENCE) else { return Ok(None) };
            self.take_event(node, event)?;
        }
        while let Some(event) = node.try_event() {
            self.take_event(node, event)?;
        }
        if self.accepted == 0 {
            return Ok(None);
        }
        let message = node.recv_timeout(PATIENCE)?;
        self.accepted -= usize::from(message.is_some());
        Ok(message)
    }

    /// Takes a message's memory back.
    fn recycle(&mut self, message: Message) {
        if let Ok(buffer) = message.data.try_into_mut() {
            self.spare.push(buffer.into());
        }
    }
}

impl DenreiLink {
    fn take(&mut self) -> Result<Option<(ChannelId, u64)>> {
        let Some(posted) = &mut self.posted else {
            let message = self.node.recv_timeout(PATIENCE)?;
            return Ok(message.map(|message| (message.channel, message.number)));
        };
        let Some(message) = posted.recv(&self.node)? else { return Ok(None) };
        let place = (message.channel, message.number);
        posted.recycle(message);
        Ok(Some(place))
    }

    /// Sleeps; the Node does its work meanwhile. Nobody tells this side anything that it has to act on.
    fn doze_until(&self, until_ns: u64) {
        let left = || Duration::from_nanos(until_ns.saturating_sub(now_ns()));
        while !left().is_zero() && self.node.wait_incoming(left()) {
            while self.node.try_event().is_some() {}
        }
    }
}

impl Link for DenreiLink {
    fn send(&mut self, _number: u64, message: &Bytes) -> Result<()> {
        let channel = self.channel.context("nobody to answer yet")?;
        self.node.send(channel, message.clone()).context("cannot send")?;
        Ok(())
    }

    fn recv(&mut self) -> Result<Incoming> {
        if let Some((channel, number)) = self.take()? {
            self.channel = Some(channel);
            return Ok(Incoming::Message(number));
        }
        if self.posted.is_some() {
            // Its events are offers too, and looked at there.
            return Ok(Incoming::Nothing);
        }
        match lost_peer(&self.node) {
            None => Ok(Incoming::Nothing),
            Some(LostReason::Closed | LostReason::Ended { .. }) => Ok(Incoming::Closed),
            Some(reason) => bail!("the other side is lost: {reason}"),
        }
    }

    fn is_reliable(&self) -> bool {
        true
    }

    fn flush(&mut self) -> Result<()> {
        let Some(channel) = self.channel else { return Ok(()) };
        flush(&self.node, channel.peer)
    }

    /// In inline mode the waiting thread is the one that takes acknowledgements.
    fn pause_until(&mut self, until_ns: u64) -> Result<()> {
        if self.drive != Drive::Inline {
            return super::sleep_until(until_ns);
        }
        if self.wait == Wait::Sleep {
            self.doze_until(until_ns.saturating_sub(SPIN_NS));
        }
        while now_ns() < until_ns {
            self.node.poll();
        }
        Ok(())
    }

    fn retransmitted(&self) -> Option<u64> {
        Some(retransmissions(&self.node))
    }
}

/// Why a peer was lost, if one was.
fn lost_peer(node: &Node) -> Option<LostReason> {
    while let Some(event) = node.try_event() {
        if let Event::PeerLost { reason, .. } = event {
            return Some(reason);
        }
    }
    None
}

/// Waits until all that was sent to a peer is acknowledged.
fn flush(node: &Node, peer: PeerId) -> Result<()> {
    let acknowledged =
        node.wait_acknowledged(peer, FLUSH_LIMIT).context("not everything was acknowledged")?;
    ensure!(acknowledged, "not everything was acknowledged within {FLUSH_LIMIT:?}: {:?}", node.flow(peer));
    Ok(())
}

fn retransmissions(node: &Node) -> u64 {
    node.peers().iter().map(|flow| flow.counters.retransmissions).sum()
}

impl MeshEndpoint for DenreiEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.node.local_addr())
    }

    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn MeshLink>> {
        let own = self.node.local_addr();
        let others = addresses.iter().filter(|addr| **addr != own);
        let peers = others.map(|addr| self.node.connect(*addr)).collect::<Result<Vec<PeerId>, _>>()?;
        Ok(Box::new(DenreiMesh { node: self.node, peers }))
    }
}

struct DenreiMesh {
    node: Node,
    peers: Vec<PeerId>,
}

impl DenreiMesh {
    /// Hands over a few messages for one peer; how many.
    fn send_some(&self, peer: PeerId, payloads: &Payloads, left: u64) -> Result<u64> {
        for sent in 0..left.min(TURN) {
            let message = payloads.next(left - sent).clone();
            match self.node.try_send(ChannelId { peer, channel: 0 }, message) {
                Ok(_) => {}
                Err(SendError::WouldBlock { .. }) => return Ok(sent),
                Err(error) => return Err(error).context("cannot send"),
            }
        }
        Ok(left.min(TURN))
    }
}

impl MeshLink for DenreiMesh {
    fn exchange(&mut self, job: &Job, until: &Until<'_>, meter: &Meter) -> Result<Exchanged> {
        let (payloads, limit) = (Payloads::of(job), SendLimit::new(job));
        let mut to_send: VecDeque<(PeerId, u64)> = self.peers.iter().map(|peer| (*peer, job.iters)).collect();
        let (mut sent, mut received, mut to_end) = (0, 0, self.peers.len());
        while to_end > 0 || !to_send.is_empty() {
            let mut progress = false;
            let most = if limit.is_over_now() { 1 } else { u64::MAX };
            for _ in 0..to_send.len() {
                let Some((peer, left)) = to_send.pop_front() else { break };
                let left = left.min(most);
                let now_sent = self.send_some(peer, &payloads, left)?;
                sent += now_sent;
                progress |= now_sent > 0;
                if left > now_sent {
                    to_send.push_back((peer, left - now_sent));
                }
            }
            for turn in 0..TURN {
                // Sleeps only where nothing else is to be done.
                let patience = if progress || turn > 0 { Duration::ZERO } else { PATIENCE };
                let Some(message) = self.node.recv_timeout(patience)? else { break };
                if Payloads::is_last(&message.data) {
                    to_end = to_end.checked_sub(1).context("a message came twice")?;
                }
                received += 1;
                progress = true;
            }
            if !progress {
                until.check()?;
                if let Some(reason) = lost_peer(&self.node) {
                    bail!("a member is lost: {reason}");
                }
            }
        }
        for peer in &self.peers {
            flush(&self.node, *peer)?;
        }
        Ok(Exchanged::now(meter, sent, received))
    }

    fn linger(&mut self) -> Result<()> {
        self.node.recv_timeout(Duration::from_millis(1))?;
        Ok(())
    }

    fn retransmitted(&self) -> Option<u64> {
        Some(retransmissions(&self.node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_that_is_lost_is_not_said_to_have_been_waited_for() {
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut config = Config::default();
        config.protocol.connect_timeout = Duration::from_millis(100);
        let node = Node::bind("127.0.0.1:0", config).unwrap();
        let peer = node.connect(nobody).unwrap();
        node.send(ChannelId { peer, channel: 0 }, "hello").unwrap();
        let said = format!("{:#}", flush(&node, peer).unwrap_err());
        assert!(said.contains("is lost: ") && !said.contains("within"), "{said}");
    }
}
