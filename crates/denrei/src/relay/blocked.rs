//! Whose messages a route leaves in its Node.
//!
//! Inputs → outputs: pairs and channels that are full → which may be taken from, as they get room again.

use super::pair::Pair;
use denrei_proto::{ChannelId, PeerId};
use std::collections::HashMap;
use std::sync::Arc;

/// What has to stay in the Node, where the credit of its sender bounds it: all of a pair, or a channel of one.
#[derive(Default)]
pub(super) struct Blocked {
    pub pairs: HashMap<PeerId, Arc<Pair>>,
    pub channels: HashMap<ChannelId, Arc<Pair>>,
}

impl Blocked {
    /// Lets go of those that have room again.
    pub fn refresh(&mut self) {
        self.pairs.retain(|_, pair| pair.is_full() && !pair.is_over());
        self.channels.retain(|channel, pair| pair.is_full_on(channel.channel) && !pair.is_over());
    }

    /// Whether nothing has to.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty() && self.channels.is_empty()
    }

    /// Whether a channel's messages may be taken.
    pub fn lets_go(&self, channel: ChannelId) -> bool {
        !self.pairs.contains_key(&channel.peer) && !self.channels.contains_key(&channel)
    }
}
