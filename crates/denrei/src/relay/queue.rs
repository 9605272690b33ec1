//! What a pair holds of one direction.
//!
//! Inputs → outputs: messages as they come → the one that has waited longest of those whose channel has
//! room beyond. Of a channel they leave in their order; one that is stuck holds up no other.

use bytes::Bytes;
use denrei_proto::MESSAGE_COST_BYTES;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// How soon a channel that had no room is looked at again.
pub(super) const RETRY: Duration = Duration::from_millis(5);

/// Messages that wait, by their channels.
#[derive(Default)]
pub(super) struct Queue {
    lanes: BTreeMap<u16, Lane>,
    /// The first of each lane: when it came, and its channel.
    firsts: BTreeMap<u64, u16>,
    came: u64,
    messages: u64,
    bytes: u64,
}

/// The messages of one channel, each with its place in the order in which all came.
#[derive(Default)]
struct Lane {
    messages: VecDeque<(u64, Bytes)>,
    bytes: u64,
}

/// What counts against a limit: empty messages take memory too.
fn cost(bytes: u64, messages: u64) -> u64 {
    bytes + messages * MESSAGE_COST_BYTES
}

impl Queue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Whether something of this channel waits.
    pub fn holds(&self, channel: u16) -> bool {
        self.lanes.contains_key(&channel)
    }

    /// The channels of which something waits.
    pub fn channels(&self) -> Vec<u16> {
        self.lanes.keys().copied().collect()
    }

    /// The bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What counts against the limit of all.
    pub fn cost(&self) -> u64 {
        cost(self.bytes, self.messages)
    }

    /// What counts against the limit of a channel.
    pub fn cost_of(&self, channel: u16) -> u64 {
        self.lanes.get(&channel).map_or(0, |lane| cost(lane.bytes, lane.messages.len() as u64))
    }

    /// One more, behind all others of its channel.
    pub fn push(&mut self, channel: u16, message: Bytes) {
        let lane = self.lanes.entry(channel).or_default();
        if lane.messages.is_empty() {
            self.firsts.insert(self.came, channel);
        }
        lane.bytes += message.len() as u64;
        self.bytes += message.len() as u64;
        self.messages += 1;
        lane.messages.push_back((self.came, message));
        self.came += 1;
    }

    /// The message that has waited longest of those of channels that `wanted` says yes to.
    pub fn first(&self, wanted: impl Fn(u16) -> bool) -> Option<(u16, Bytes)> {
        let channel = *self.firsts.values().find(|channel| wanted(**channel))?;
        Some((channel, self.first_of(channel)?))
    }

    /// The message of this channel that has waited longest.
    pub fn first_of(&self, channel: u16) -> Option<Bytes> {
        Some(self.lanes.get(&channel)?.messages.front()?.1.clone())
    }

    /// Takes away what `first_of` gave.
    pub fn pop(&mut self, channel: u16) {
        let Some(lane) = self.lanes.get_mut(&channel) else { return };
        let Some((came, message)) = lane.messages.pop_front() else { return };
        lane.bytes -= message.len() as u64;
        self.bytes -= message.len() as u64;
        self.messages -= 1;
        self.firsts.remove(&came);
        match lane.messages.front() {
            Some((next, _)) => drop(self.firsts.insert(*next, channel)),
            None => drop(self.lanes.remove(&channel)),
        }
    }
}

/// Channels that had no room beyond, until they are looked at again.
pub(super) struct Stuck {
    pub channels: BTreeSet<u16>,
    since: Instant,
}

impl Stuck {
    /// None.
    pub fn new() -> Self {
        Self { channels: BTreeSet::new(), since: Instant::now() }
    }

    /// Looks at all again when it is time.
    pub fn refresh(&mut self) {
        if !self.channels.is_empty() && self.since.elapsed() >= RETRY {
            self.channels.clear();
        }
    }

    /// One more.
    pub fn add(&mut self, channel: u16) {
        if self.channels.is_empty() {
            self.since = Instant::now();
        }
        self.channels.insert(channel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_came_first_leaves_first_unless_its_channel_is_stuck() {
        let mut queue = Queue::default();
        for (channel, message) in [(2, "a"), (2, "b"), (1, "c"), (2, "d"), (1, "")] {
            queue.push(channel, Bytes::from(message));
        }
        assert_eq!((queue.bytes(), queue.cost()), (4, 4 + 5 * MESSAGE_COST_BYTES));
        assert_eq!(queue.cost_of(1), 1 + 2 * MESSAGE_COST_BYTES);
        assert_eq!(queue.first(|channel| channel != 2), Some((1, Bytes::from("c"))));
        let mut left = Vec::new();
        while let Some((channel, message)) = queue.first(|_| true) {
            queue.pop(channel);
            left.push((channel, message));
        }
        let expected = [(2, "a"), (2, "b"), (1, "c"), (2, "d"), (1, "")];
        assert!(left.into_iter().eq(expected.map(|(channel, text)| (channel, Bytes::from(text)))));
        assert!(queue.is_empty() && !queue.holds(1) && queue.cost() == 0 && queue.firsts.is_empty());
    }
}
