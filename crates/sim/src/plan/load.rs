//! The application of an experiment: sends as fast as it may, takes what comes, notes the times.
//!
//! It sends each message once. One that was under way when its session was lost, or its sender killed, is lost
//! unless it arrives all the same; the next is sent when there is a session again.

use super::Workload;
use super::greeting::GREETING;
use super::schedule::Experiment;
use crate::net::topology::HostId;
use crate::world::{Application, World};
use bytes::Bytes;
use denrei_proto::{ChannelId, Completion, Endpoint, Event, PeerId, Phase, SendError};
use denrei_wire::Instant;
use std::collections::{BTreeMap, VecDeque};

/// One sender's messages to one receiver.
#[derive(Debug, Default)]
pub(super) struct Flow {
    sent: u64,
    received: u64,
    /// Under way when the session was lost, and not here.
    lost: u64,
    /// The session was lost: messages wait until there is one again.
    waits: bool,
    /// In which session and when the messages under way were sent, per channel.
    under_way: BTreeMap<u16, VecDeque<(PeerId, Instant)>>,
}

impl Flow {
    /// Gives up what is under way in such sessions; how much that was.
    fn lose(&mut self, sessions: impl Fn(PeerId) -> bool) -> u64 {
        let under_way = |flow: &Self| flow.under_way.values().map(|queue| queue.len() as u64).sum::<u64>();
        let before = under_way(self);
        self.under_way.values_mut().for_each(|queue| queue.retain(|(peer, _)| !sessions(*peer)));
        let lost = before - under_way(self);
        self.lost += lost;
        lost
    }
}

/// All flows of an experiment.
#[derive(Debug)]
pub(super) struct Load {
    workload: Workload,
    hosts: u32,
    messages: u64,
    channels: u16,
    message: Bytes,
    stopped: bool,
    /// By sender and receiver.
    pub flows: BTreeMap<(HostId, HostId), Flow>,
    /// Time from each message's sending to its taking (to its echo's, for ping-pong), ns.
    pub latencies_ns: Vec<u64>,
    pub received_bytes: u64,
    pub last_arrival: Instant,
    pub lost_peers: u64,
    /// Who was at the other end of sessions that are over, as seen by a host: what was received before may be
    /// taken after.
    ended: BTreeMap<(HostId, PeerId), HostId>,
    /// Messages of which their sender was told that they may not have arrived, or that it had under way when
    /// it was killed.
    pub unacknowledged: u64,
    /// How many messages of each flow had arrived when the first flow was done.
    pub shares: Vec<u64>,
    /// Messages that have neither arrived nor are lost, those included that are not sent yet.
    open: u64,
    under_way: u64,
    /// Something was lost since this was last looked at, for which a host may wait that hears nothing of it.
    loses: bool,
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
            hosts,
            messages,
            channels,
            message: Bytes::from(vec![0x5a; message_bytes as usize]),
            stopped: false,
            open: flows.len() as u64 * messages,
            under_way: 0,
            loses: false,
            flows,
            latencies_ns: Vec::new(),
            received_bytes: 0,
            last_arrival: Instant::ZERO,
            lost_peers: 0,
            ended: BTreeMap::new(),
            unacknowledged: 0,
            shares: Vec::new(),
        }
    }

    pub fn is_finished(&self) -> bool {
        self.open == 0
    }

    /// Messages that have arrived, of all flows.
    pub fn delivered(&self) -> u64 {
        self.flows.values().map(|flow| flow.received).sum()
    }

    /// Messages that are lost, of all flows.
    pub fn lost(&self) -> u64 {
        self.flows.values().map(|flow| flow.lost).sum()
    }

    /// How much of all messages has arrived.
    pub fn arrived_share(&self) -> f64 {
        self.delivered() as f64 / (self.flows.len() as u64 * self.messages).max(1) as f64
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
        let back = self.flows.get(&(to, from)).map_or((0, 0), |back| (back.received, back.lost));
        // Host 0 serves, again where a message or its answer is lost; host 1 returns as many as it has got.
        let serves = || 1 + back.1 + self.flows.get(&(from, to)).map_or(0, |flow| flow.lost);
        (back.0 + if from == HostId(0) { serves() } else { 0 }).min(self.messages)
    }

    /// Whether no answer follows to a message of this flow that is lost.
    fn is_answered(&self, from: HostId) -> bool {
        self.workload == Workload::PingPong && from == HostId(0)
    }

    /// Sends what may be sent, to all receivers of `from`.
    pub fn send(&mut self, now: Instant, from: HostId, endpoint: &mut Endpoint) {
        if self.stopped {
            return;
        }
        let receivers: Vec<_> =
            self.flows.range((from, HostId(0))..=(from, HostId(u32::MAX))).map(|((_, to), _)| *to).collect();
        for to in receivers {
            let allowance = self.allowance(from, to);
            let flow = self.flows.get_mut(&(from, to)).expect("listed just now");
            while flow.sent < allowance {
                let Ok(peer) = endpoint.connect(now, to.addr()) else { break };
                if flow.waits && endpoint.flow(peer).is_none_or(|session| session.phase != Phase::Open) {
                    break;
                }
                flow.waits = false;
                let channel = (flow.sent % self.channels as u64) as u16;
                match endpoint.send(ChannelId { peer, channel }, self.message.clone(), Completion::None) {
                    Ok(_) => {
                        flow.sent += 1;
                        self.under_way += 1;
                        flow.under_way.entry(channel).or_default().push_back((peer, now));
                    }
                    Err(SendError::WouldBlock { .. }) => break,
                    // Told by PeerLost as well.
                    Err(_) => break,
                }
            }
        }
    }

    /// What is under way in such sessions of a flow is lost.
    fn lose(&mut self, from: HostId, to: HostId, sessions: impl Fn(PeerId) -> bool) -> u64 {
        let Some(flow) = self.flows.get_mut(&(from, to)) else { return 0 };
        let lost = flow.lose(sessions);
        self.under_way -= lost;
        self.loses |= lost > 0;
        self.open -= if self.is_answered(from) { 2 * lost } else { lost };
        lost
    }

    /// The next message of a flow waits for a session.
    fn wait(&mut self, from: HostId, to: HostId) {
        if let Some(flow) = self.flows.get_mut(&(from, to)) {
            flow.waits = true;
        }
    }

    /// Lets everyone go on for whom a loss makes it possible.
    pub fn look_after_losses(&mut self, world: &mut World) {
        if core::mem::take(&mut self.loses) && self.workload == Workload::PingPong {
            self.turned(world);
        }
    }

    /// A message of a flow is here.
    fn arrive(&mut self, now: Instant, from: HostId, to: HostId, channel: u16, bytes: u64) {
        let answered = self.is_answered(from);
        let Some(flow) = self.flows.get_mut(&(from, to)) else { return };
        flow.received += 1;
        self.received_bytes += bytes;
        self.last_arrival = now;
        if let Some((_, sent_at)) = flow.under_way.get_mut(&channel).and_then(VecDeque::pop_front) {
            let waited = now.saturating_since(sent_at);
            self.latencies_ns.push(denrei_wire::duration_nanos(waited));
            self.under_way -= 1;
            self.open -= 1;
        } else {
            // It was taken for lost; if it is answered, that answer now comes.
            flow.lost = flow.lost.saturating_sub(1);
            self.open += answered as u64;
        }
        if flow.received == self.messages && self.shares.is_empty() {
            self.shares = self.flows.values().map(|flow| flow.received).collect();
        }
    }
}

impl Application for Load {
    fn on_event(&mut self, _now: Instant, host: HostId, _endpoint: &mut Endpoint, event: Event) {
        let Event::PeerLost { peer, addr, unacknowledged, .. } = event else { return };
        self.lost_peers += 1;
        self.unacknowledged += unacknowledged.len() as u64;
        let Some(to) = HostId::at(addr) else { return };
        self.ended.insert((host, peer), to);
        self.lose(host, to, |session| session == peer);
        self.wait(host, to);
    }

    fn on_readable(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        while let Some(message) = endpoint.recv(now) {
            // A greeting that faults held up.
            if message.data == GREETING {
                continue;
            }
            let peer = message.channel.peer;
            let source = endpoint.flow(peer).and_then(|flow| HostId::at(flow.addr));
            let Some(from) = source.or_else(|| self.ended.get(&(host, peer)).copied()) else { continue };
            self.arrive(now, from, host, message.channel.channel, message.data.len() as u64);
        }
        if !self.is_finished() {
            self.send(now, host, endpoint);
        }
    }
}

impl Experiment for Load {
    fn crashed(&mut self, host: HostId) {
        // What others had under way to it is lost when they are told.
        for to in (0..self.hosts).map(HostId) {
            self.unacknowledged += self.lose(host, to, |_| true);
            self.wait(host, to);
        }
    }

    fn turned(&mut self, world: &mut World) {
        for host in (0..self.hosts).map(HostId) {
            world.touch(host, self, |load, now, endpoint| load.send(now, host, endpoint));
        }
    }

    fn stop(&mut self) {
        self.stopped = true;
    }

    fn is_at_rest(&self) -> bool {
        self.under_way == 0
    }
}
