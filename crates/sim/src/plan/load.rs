//! The application of an experiment: sends as fast as it may, takes what comes, notes the times.

use super::Workload;
use crate::net::topology::HostId;
use crate::world::Application;
use bytes::Bytes;
use denrei_proto::{ChannelId, Completion, Endpoint, Event, SendError};
use denrei_wire::Instant;
use std::collections::{BTreeMap, VecDeque};

/// One sender's messages to one receiver.
#[derive(Debug, Default)]
pub(super) struct Flow {
    sent: u64,
    received: u64,
    /// When the messages under way were sent, per channel.
    under_way: BTreeMap<u16, VecDeque<Instant>>,
}

/// All flows of an experiment.
#[derive(Debug)]
pub(super) struct Load {
    workload: Workload,
    messages: u64,
    channels: u16,
    message: Bytes,
    /// By sender and receiver.
    pub flows: BTreeMap<(HostId, HostId), Flow>,
    /// Time from each message's sending to its taking (to its echo's, for ping-pong), ns.
    pub latencies_ns: Vec<u64>,
    pub received_bytes: u64,
    pub last_arrival: Instant,
    pub lost_peers: u64,
    /// How many messages of each flow had arrived when the first flow was done.
    pub shares: Vec<u64>,
    unfinished: usize,
}

impl Load {
    pub fn new(workload: Workload, hosts: u32, messages: u64, message_bytes: u64, channels: u16) -> Self {
        let pairs: Vec<_> = match workload {
            Workload::Stream => vec![(1, 0)],
            Workload::PingPong => vec![(0, 1), (1, 0)],
            // Sends by a group, not by sessions.
            Workload::Multicast => Vec::new(),
            Workload::Incast => (1..hosts).map(|from| (from, 0)).collect(),
            Workload::Mesh => (0..hosts)
                .flat_map(|from| (0..hosts).filter(move |&to| to != from).map(move |to| (from, to)))
                .collect(),
        };
        let flows: BTreeMap<_, _> =
            pairs.into_iter().map(|(from, to)| ((HostId(from), HostId(to)), Flow::default())).collect();
        Self {
            workload,
            messages,
            channels,
            message: Bytes::from(vec![0x5a; message_bytes as usize]),
            unfinished: flows.len(),
            flows,
            latencies_ns: Vec::new(),
            received_bytes: 0,
            last_arrival: Instant::ZERO,
            lost_peers: 0,
            shares: Vec::new(),
        }
    }

    pub fn is_finished(&self) -> bool {
        self.unfinished == 0
    }

    /// How much of all messages has arrived.
    pub fn arrived_share(&self) -> f64 {
        let arrived: u64 = self.flows.values().map(|flow| flow.received).sum();
        arrived as f64 / (self.flows.len() as u64 * self.messages).max(1) as f64
    }

    /// Who sends to whom.
    pub fn pairs(&self) -> impl Iterator<Item = (HostId, HostId)> {
        self.flows.keys().copied()
    }

    /// Messages that `from` may have sent to `to` by now.
    fn allowance(&self, from: HostId, to: HostId) -> u64 {
        if self.workload != Workload::PingPong {
            return self.messages;
        }
        // Host 0 serves; each returns as many as it has got.
        let received = self.flows.get(&(to, from)).map_or(0, |back| back.received);
        (received + (from == HostId(0)) as u64).min(self.messages)
    }

    /// Sends what may be sent, to all receivers of `from`.
    pub fn send(&mut self, now: Instant, from: HostId, endpoint: &mut Endpoint) {
        let receivers: Vec<_> =
            self.flows.range((from, HostId(0))..=(from, HostId(u32::MAX))).map(|((_, to), _)| *to).collect();
        for to in receivers {
            let allowance = self.allowance(from, to);
            let flow = self.flows.get_mut(&(from, to)).expect("listed just now");
            while flow.sent < allowance {
                let Ok(peer) = endpoint.connect(now, to.addr()) else { break };
                let channel = (flow.sent % self.channels as u64) as u16;
                match endpoint.send(ChannelId { peer, channel }, self.message.clone(), Completion::None) {
                    Ok(_) => {
                        flow.sent += 1;
                        flow.under_way.entry(channel).or_default().push_back(now);
                    }
                    Err(SendError::WouldBlock { .. }) => break,
                    // Told by PeerLost as well; the experiment then does not finish.
                    Err(_) => break,
                }
            }
        }
    }
}

impl Application for Load {
    fn on_event(&mut self, _now: Instant, _host: HostId, _endpoint: &mut Endpoint, event: Event) {
        self.lost_peers += matches!(event, Event::PeerLost { .. }) as u64;
    }

    fn on_readable(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        while let Some(message) = endpoint.recv(now) {
            let source = endpoint.flow(message.channel.peer).and_then(|flow| HostId::at(flow.addr));
            let Some(flow) = source.and_then(|from| self.flows.get_mut(&(from, host))) else { continue };
            let sent_at = flow.under_way.get_mut(&message.channel.channel).and_then(VecDeque::pop_front);
            let waited = now.saturating_since(sent_at.unwrap_or(now));
            self.latencies_ns.push(denrei_wire::duration_nanos(waited));
            self.received_bytes += message.data.len() as u64;
            self.last_arrival = now;
            flow.received += 1;
            if flow.received == self.messages {
                self.unfinished -= 1;
                if self.shares.is_empty() {
                    self.shares = self.flows.values().map(|flow| flow.received).collect();
                }
            }
        }
        if !self.is_finished() {
            self.send(now, host, endpoint);
        }
    }
}
