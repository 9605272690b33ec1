//! Sending the messages of a plan, as fast as the Node takes them or at a pace.
//!
//! Inputs → outputs: a [`Stream`] and turns → messages, until all are acknowledged.

use crate::{Report, Stream};
use denrei::{Bytes, ChannelId, Completion, MessageId, Node, PeerId, SendError};
use std::time::{Duration, Instant};

/// Messages before receiving gets its turn.
const MAX_SENT_PER_TURN: usize = 32;

/// A stream on its way.
pub struct Sending {
    stream: Stream,
    /// Counts the places (index, channel) passed, with the channel changing fastest.
    place: u64,
    /// A message that the Node had no room for.
    waiting: Option<(u16, Bytes)>,
    due: Instant,
    began: Instant,
    messages: u64,
    bytes: u64,
    refused: u64,
}

impl Sending {
    pub fn new(stream: Stream) -> Self {
        let now = Instant::now();
        Self { stream, place: 0, waiting: None, due: now, began: now, messages: 0, bytes: 0, refused: 0 }
    }

    pub fn peer(&self) -> PeerId {
        PeerId::from_u64(self.stream.peer)
    }

    /// When the next message leaves, if that is known.
    pub fn due(&self) -> Option<Instant> {
        (self.waiting.is_none() && !self.all_given()).then_some(self.due)
    }

    /// Sends what is due; whether everything has been sent and acknowledged.
    pub fn advance(&mut self, node: &Node) -> Result<bool, SendError> {
        let completion = if self.stream.delivered { Completion::Delivered } else { Completion::None };
        for _ in 0..MAX_SENT_PER_TURN {
            let now = Instant::now();
            if self.waiting.is_none() && (self.due > now || !self.prepare()) {
                break;
            }
            let Some((channel, content)) = self.waiting.take() else { break };
            let to = ChannelId { peer: self.peer(), channel };
            match node.try_send_with(to, content.clone(), completion) {
                Ok(_) => {
                    self.messages += 1;
                    self.bytes += content.len() as u64;
                    self.due = self.due.max(now) + Duration::from_micros(self.stream.pace_us);
                }
                Err(SendError::WouldBlock { .. }) => {
                    self.waiting = Some((channel, content));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        if !self.all_given() || self.waiting.is_some() {
            return Ok(false);
        }
        Ok(node.flow(self.peer()).is_none_or(|flow| flow.queued_messages == 0))
    }

    /// A message of this stream was refused: it counts as not sent.
    pub fn on_refused(&mut self, id: MessageId) {
        if id.channel.peer == self.peer() && id.channel.channel < self.stream.channels {
            self.refused += 1;
        }
    }

    pub fn summary(&self) -> Report {
        Report::Sent {
            peer: self.stream.peer,
            messages: self.messages - self.refused.min(self.messages),
            bytes: self.bytes,
            millis: self.began.elapsed().as_millis() as u64,
        }
    }

    fn all_given(&self) -> bool {
        self.place >= self.stream.to * u64::from(self.stream.channels)
    }

    /// Makes the next message; whether there is one.
    fn prepare(&mut self) -> bool {
        while !self.all_given() {
            let channels = u64::from(self.stream.channels);
            let (index, channel) = (self.place / channels, (self.place % channels) as u16);
            self.place += 1;
            if index >= self.stream.from.get(usize::from(channel)).copied().unwrap_or(0) {
                self.waiting = Some((channel, self.stream.plan.content(channel, index).into()));
                return true;
            }
        }
        false
    }
}
