//! Everything one peer has sent: its channels' receiving halves.
//!
//! Inputs → outputs: message frames → per-channel sequences, the control frames that answer them,
//! and notes for the endpoint about what became ready.

use crate::blocks::Blocks;
use crate::buffer_pool::BufferPool;
use crate::channel_map::ChannelMap;
use crate::config::{Config, TAKEN_AT_FIRST_BYTES};
use crate::event::PeerId;
use crate::lending::{Handled, Lent, Memory, Owner};
use crate::placement::AcceptInto;
use crate::recv_channel::{Announced, RecvChannel, Taken, Violation};
use crate::sent::Control;
use denrei_wire::frame::{Fragment, Message, Offer, Skip};
use denrei_wire::group::GROUP_CHANNEL;

/// The channels from one peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    channels: ChannelMap<RecvChannel>,
    held_bytes: u64,
    /// This side said that it wants no more: what arrives is dropped.
    discarding: bool,
    /// The peer said that all has come, and not because no more was wanted.
    ended: bool,
    pool: BufferPool,
    /// Channel and number of the last FRAGMENT.
    last_fragment: Option<(u16, u32)>,
}

/// What a frame changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    /// The channel has something to take.
    pub ready: bool,
    /// Offers wait that the endpoint may accept by itself.
    pub offers: bool,
    /// A frame that has to be sent.
    pub answer: Option<Control>,
}

impl Inbox {
    /// Nothing has arrived; memory for what will comes from `pool`.
    pub fn new(pool: BufferPool) -> Self {
        Self {
            channels: ChannelMap::default(),
            held_bytes: 0,
            discarding: false,
            ended: false,
            pool,
            last_fragment: None,
        }
    }

    /// Bytes received, or promised memory to, and not taken.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Cost of all messages that have come.
    pub fn seen(&self) -> u64 {
        self.channels.iter().map(|(_, state)| state.seen()).sum()
    }

    /// Accepted messages that are not complete.
    pub fn promised(&self) -> usize {
        self.channels.iter().map(|(_, state)| state.promised()).sum()
    }

    /// Messages that could be taken.
    pub fn ready_messages(&self) -> usize {
        self.channels.iter().map(|(_, state)| state.ready_messages()).sum()
    }

    /// Whether anything can be taken.
    pub fn has_ready(&self) -> bool {
        self.channels.iter().any(|(_, state)| state.has_ready())
    }

    /// The channels that have something to take.
    pub fn ready_channels(&self) -> impl Iterator<Item = u16> + '_ {
        self.channels.iter().filter(|(_, state)| state.has_ready()).map(|(channel, _)| channel)
    }

    /// The channel with this number, if anything ever arrived on it.
    pub fn get_mut(&mut self, channel: u16) -> Option<&mut RecvChannel> {
        self.channels.get_mut(channel)
    }

    /// Whether [`take`](Self::take) has something to take.
    pub fn has_ready_on(&self, channel: u16) -> bool {
        self.channels.get(channel).is_some_and(RecvChannel::has_ready)
    }

    /// MESSAGE; whether something can be taken.
    pub fn on_message(
        &mut self,
        config: &Config,
        blocks: &mut Blocks,
        message: &Message<'_>,
        announce: impl FnMut(Announced),
    ) -> Result<bool, Violation> {
        let state = self.channel(config, message.channel)?;
        let held = state.on_message(message, blocks)?;
        self.held_bytes += held;
        Ok(self.advance(message.channel, announce))
    }

    /// FRAGMENT; whether something can be taken.
    pub fn on_fragment(
        &mut self,
        config: &Config,
        fragment: &Fragment<'_>,
        announce: impl FnMut(Announced),
    ) -> Result<bool, Violation> {
        if fragment.total > config.max_message_bytes.max(TAKEN_AT_FIRST_BYTES) {
            return Err("message larger than announced");
        }
        self.last_fragment = Some((fragment.channel, fragment.number));
        let state = self.channel(config, fragment.channel)?;
        let held = state.on_fragment(fragment)?;
        self.held_bytes += held;
        Ok(self.advance(fragment.channel, announce))
    }

    /// What a part of a message would add to [`seen`](Self::seen): nothing if others of it have come.
    pub fn newly_seen(&self, fragment: &Fragment<'_>) -> u64 {
        let begins = self.channels.get(fragment.channel).is_none_or(|state| state.is_new(fragment.number));
        if begins { fragment.total } else { 0 }
    }

    /// Another packet is handled: memory is lent for what follows a FRAGMENT of the last one alone.
    #[inline]
    pub fn begin_packet(&mut self) {
        self.last_fragment = None;
    }

    /// Lends the memory of the message that the last FRAGMENT was of, to be given back by
    /// [`take_back`](Self::take_back).
    pub fn lend(&mut self, peer: PeerId, datagram: &Handled) -> Option<Lent> {
        let (channel, number) = self.last_fragment?;
        let (number, memory, at, shape) = self.channels.get_mut(channel)?.lend(number, datagram)?;
        let owner = Owner::Session { peer, channel, number };
        Some(Lent { memory, at, shape, owner })
    }

    /// The memory of a message is here again.
    pub fn take_back(&mut self, channel: u16, number: u64, memory: Memory) {
        if let Some(state) = self.channels.get_mut(channel) {
            state.take_back(number, memory);
        }
    }

    /// OFFER.
    pub fn on_offer(
        &mut self,
        config: &Config,
        offer: &Offer,
        announce: impl FnMut(Announced),
    ) -> Result<Change, Violation> {
        let max = if self.discarding { 0 } else { config.max_message_bytes };
        let state = self.channel(config, offer.channel)?;
        if let Some(number) = state.granted_offer(offer.number) {
            // Our ACCEPT went to an attempt to open the session that its sender has given up.
            let answer = Some(Control::Accept { channel: offer.channel, number });
            return Ok(Change { answer, ..Change::default() });
        }
        let refused = state.on_offer(offer.number, offer.flags, offer.total, max)?;
        let ready = self.advance(offer.channel, announce);
        let answer = refused.map(|number| Control::Refuse { channel: offer.channel, number });
        Ok(Change { ready, offers: refused.is_none(), answer })
    }

    /// SKIP; the number of the offer that the application had been told of, if it was one.
    pub fn on_skip(
        &mut self,
        config: &Config,
        skip: &Skip,
        announce: impl FnMut(Announced),
    ) -> Result<(Change, Option<u64>), Violation> {
        let state = self.channel(config, skip.channel)?;
        let skipped = state.on_skip(skip.number, skip.charged)?;
        self.held_bytes -= skipped.freed;
        // What it held, or would have, others may be waiting for: in this channel or another.
        let ready = self.advance(skip.channel, announce);
        Ok((Change { ready, offers: true, answer: None }, skipped.withdrawn))
    }

    /// Accepts an offer; whether there was one.
    pub fn accept(&mut self, channel: u16, number: u64, into: AcceptInto) -> bool {
        let accepted = self.channels.get_mut(channel).and_then(|state| state.accept(number, into));
        self.held_bytes += accepted.unwrap_or(0);
        accepted.is_some()
    }

    /// Takes the next message of a channel.
    pub fn take(&mut self, channel: u16, blocks: &mut Blocks) -> Option<Taken> {
        let taken = self.channels.get_mut(channel)?.take(blocks)?;
        self.held_bytes -= taken.data.len() as u64;
        Some(taken)
    }

    /// Drops what was not taken, and everything that comes from now on.
    pub fn discard(&mut self) {
        self.discarding = true;
        for (_, state) in self.channels.iter_mut() {
            self.held_bytes -= state.discard();
        }
    }

    /// The peer has said that it will send no more, which it says when all has been acknowledged. Who wants no more
    /// hears it from a peer that has dropped the rest, of which what is on its way may come later.
    pub fn end(&mut self) {
        self.ended = !self.discarding;
        self.channels.iter_mut().for_each(|(_, state)| state.ended = self.ended);
    }

    /// Hands each offer that its channel may accept now to `queue`, once: channel and offer.
    pub fn queue_offers(&mut self, window: u64, mut queue: impl FnMut(u16, Announced)) {
        for (channel, state) in self.channels.iter_mut() {
            state.queue_offers(window, |offer| queue(channel, offer));
        }
    }

    /// The same of one channel: what another accepts makes no difference to it.
    pub fn queue_offers_of(&mut self, channel: u16, window: u64, queue: impl FnMut(Announced)) {
        if let Some(state) = self.channels.get_mut(channel) {
            state.queue_offers(window, queue);
        }
    }

    /// Offers whose turn in their channel has come and that wait for the application's word.
    pub fn announced_offers(&self) -> impl Iterator<Item = (u16, Announced)> + '_ {
        self.channels
            .iter()
            .flat_map(|(channel, state)| state.announced_offers().map(move |offer| (channel, offer)))
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.channels.clear();
        self.held_bytes = 0;
    }

    /// Forgets incomplete messages; what is ready stays.
    pub fn drop_incomplete(&mut self) {
        for (_, state) in self.channels.iter_mut() {
            self.held_bytes -= state.drop_incomplete();
        }
        self.channels.retain(RecvChannel::has_ready);
    }

    fn channel(&mut self, config: &Config, channel: u16) -> Result<&mut RecvChannel, Violation> {
        if channel >= config.max_channels && channel != GROUP_CHANNEL {
            return Err("a channel beyond max_channels");
        }
        let new = || {
            let mut channel = RecvChannel::new(config.channel_credit_bytes, config.offers, self.pool.clone());
            channel.ended = self.ended;
            channel
        };
        Ok(self.channels.get_or_insert_with(channel, new))
    }

    /// Goes on to what is complete, or offered, in a channel; whether something can be taken.
    fn advance(&mut self, channel: u16, announce: impl FnMut(Announced)) -> bool {
        let Some(state) = self.channels.get_mut(channel) else { return false };
        if self.discarding {
            self.held_bytes -= state.discard();
            state.advance(|_| ());
            return false;
        }
        state.advance(announce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_after_close_write_is_a_violation_and_what_is_repeated_is_not() {
        let (config, mut blocks) = (Config::default(), Blocks::default());
        let mut inbox = Inbox::new(BufferPool::default());
        let mut say = |inbox: &mut Inbox, channel, number| {
            let message = Message { flags: 0, channel, number, payload: b"x" };
            inbox.on_message(&config, &mut blocks, &message, |_| ())
        };
        assert_eq!(say(&mut inbox, 0, 0), Ok(true));
        inbox.end();
        assert_eq!(say(&mut inbox, 0, 0), Ok(true), "again");
        for (channel, number) in [(0, 1), (1, 0)] {
            assert_eq!(say(&mut inbox, channel, number), Err("a message after CLOSE_WRITE"));
        }
        assert_eq!(inbox.ready_messages(), 1);
    }
}
