//! Round-trip times: a message, its echo, a pause.

use crate::Latency;
use anyhow::Result;
use denrei::{ChannelId, Message, Node, PeerId, SendError};
use std::time::{Duration, Instant};

/// A series of round trips.
pub struct Ping {
    to: ChannelId,
    bytes: usize,
    count: usize,
    pause: Duration,
    due: Instant,
    sent_at: Option<Instant>,
    samples_us: Vec<u64>,
}

impl Ping {
    pub fn new(to: ChannelId, bytes: usize, count: usize, pause: Duration) -> Self {
        let samples_us = Vec::with_capacity(count);
        Self { to, bytes, count, pause, due: Instant::now(), sent_at: None, samples_us }
    }

    pub fn peer(&self) -> PeerId {
        self.to.peer
    }

    /// When the next message leaves, if none is on its way.
    pub fn due(&self) -> Option<Instant> {
        self.sent_at.is_none().then_some(self.due)
    }

    /// Sends the next message if it is due. A Node without room is a delay like any other.
    pub fn advance(&mut self, node: &Node) -> Result<()> {
        let now = Instant::now();
        if self.sent_at.is_some() || self.due > now {
            return Ok(());
        }
        match node.try_send(self.to, vec![self.samples_us.len() as u8; self.bytes]) {
            Ok(_) => self.sent_at = Some(self.due),
            // Of a peer that is gone an event says so, and ends this.
            Err(SendError::WouldBlock { .. } | SendError::PeerLost { .. } | SendError::UnknownPeer(_)) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Whether the message is the echo waited for.
    pub fn on_message(&mut self, message: &Message) -> bool {
        if message.channel != self.to {
            return false;
        }
        if let Some(sent_at) = self.sent_at.take() {
            let now = Instant::now();
            self.samples_us.push((now - sent_at).as_micros() as u64);
            self.due = now + self.pause;
        }
        true
    }

    /// The latencies, once all round trips are done.
    pub fn result(&self) -> Option<Latency> {
        if self.samples_us.len() < self.count {
            return None;
        }
        let mut sorted = self.samples_us.clone();
        sorted.sort_unstable();
        let at = |percent: usize| sorted[(sorted.len() - 1) * percent / 100];
        Some(Latency { median_us: at(50), p99_us: at(99), max_us: at(100) })
    }
}
