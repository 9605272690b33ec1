//! Who gets how much of the receive memory: offers and credit.
//!
//! Source: `spec/protocol.md` §6.

use super::Endpoint;
use crate::config::OfferPolicy;
use crate::event::{ChannelId, PeerError, PeerId};
use crate::placement::AcceptInto;
use crate::sent::Control;
use denrei_wire::Instant;

/// Of receive memory the most that a peer, or a group, counts with to others, whatever it holds: a message that is slow
/// to come, or never completed, would else keep everybody from sending (ADR 83).
const LARGEST_SHARE: u64 = 8;

impl Endpoint {
    /// Accepts an offered message into a buffer, whose memory is used and whose content is dropped,
    /// or into memory of the application's. The message arrives by `recv` like any other.
    ///
    /// # Errors
    /// No such offer waits.
    pub fn accept(
        &mut self,
        now: Instant,
        channel: ChannelId,
        number: u64,
        into: impl Into<AcceptInto>,
    ) -> Result<(), PeerError> {
        let accepted = self.on_peer(now, channel.peer, |peer, _| {
            let accepted = peer.is_alive() && peer.inbox_mut().accept(channel.channel, number, into.into());
            if accepted {
                peer.want(Control::Accept { channel: channel.channel, number });
            }
            accepted
        })?;
        if accepted { Ok(()) } else { Err(PeerError::NoSuchOffer { channel, number }) }
    }

    /// Refuses an offered message: its sender gets [`Event::Refused`](crate::Event::Refused).
    ///
    /// # Errors
    /// No such offer waits.
    pub fn refuse(&mut self, now: Instant, channel: ChannelId, number: u64) -> Result<(), PeerError> {
        let refused = self.on_peer(now, channel.peer, |peer, cx| {
            let state = peer.inbox_mut().get_mut(channel.channel);
            let refused = state.is_some_and(|state| state.refuse(number));
            if refused {
                peer.want(Control::Refuse { channel: channel.channel, number });
                peer.report_delivery(channel.channel);
                // Nobody will take it, which is when that is done otherwise.
                peer.renew_credit(cx.config, channel.channel);
            }
            refused
        })?;
        if refused { Ok(()) } else { Err(PeerError::NoSuchOffer { channel, number }) }
    }

    /// Takes a peer's open offers onto the waiting list, as far as its channels may hold more.
    pub(super) fn note_offers(&mut self, now: Instant, slot: u32) {
        if self.config.offers == OfferPolicy::Ask {
            return;
        }
        let window = self.config.channel_credit_bytes;
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        let id = peer.id;
        peer.inbox_mut().queue_offers(window, |channel, offer| {
            self.waiting_offers.insert((offer.total, ChannelId { peer: id, channel }, offer.number));
        });
        self.accept_waiting(now);
    }

    /// Accepts waiting offers, the smallest first, while receive memory lasts. When the application
    /// has nothing to take and nothing is on its way to it, one is accepted however large: all that
    /// is held then waits behind it or its like.
    fn accept_waiting(&mut self, now: Instant) {
        while let Some(offer) = self.next_to_accept() {
            let (_, channel, number) = offer;
            self.waiting_offers.remove(&offer);
            if self.accept(now, channel, number, Vec::new()).is_err() {
                // No memory, or withdrawn in the meantime: then there is nothing to refuse.
                let _ = self.refuse(now, channel, number);
            }
            if let Some(peer) = self.slots[channel.peer.slot as usize].peer.as_deref_mut() {
                let window = self.config.channel_credit_bytes;
                peer.inbox_mut().queue_offers_of(channel.channel, window, |offer| {
                    self.waiting_offers.insert((offer.total, channel, offer.number));
                });
            }
        }
    }

    /// The offer that there is memory for.
    fn next_to_accept(&mut self) -> Option<(u64, ChannelId, u64)> {
        let smallest = *self.waiting_offers.first()?;
        let full = self.held_bytes.saturating_add(smallest.0) > self.config.receive_memory_bytes;
        if !full {
            return Some(smallest);
        }
        if self.is_readable() {
            return None;
        }
        if !self.is_promised() {
            return Some(smallest);
        }
        let share = self.share_beside_heavy()?;
        let fit = self.waiting_offers.iter().take_while(|(bytes, ..)| *bytes <= share);
        fit.copied().find(|(bytes, channel, _)| self.would_hold(channel.peer, *bytes) <= share)
    }

    /// What a peer would hold with so many bytes more.
    fn would_hold(&self, peer: PeerId, bytes: u64) -> u64 {
        self.get(peer).map_or(u64::MAX, |peer| peer.inbox().held_bytes().saturating_add(bytes))
    }

    /// What a peer may hold although memory is full, where the application has nothing to take: an eighth of memory, or
    /// half of that, and so on, until one more has room beside all others, who count with no more than that either.
    /// `None`: nothing, as what the application may take fills it.
    pub(super) fn share_beside_heavy(&self) -> Option<u64> {
        let memory = self.config.receive_memory_bytes;
        let shares = (0..u64::BITS).map(|halved| (memory / LARGEST_SHARE) >> halved);
        shares.take_while(|share| *share > 0).find(|share| self.held_up_to(*share) + share <= memory)
    }

    /// What all hold, as far as none has more than `share`: the rest they are slow to complete.
    fn held_up_to(&self, share: u64) -> u64 {
        let peers = self.slots.iter().filter_map(|slot| slot.peer.as_deref());
        let beyond: u64 = peers.map(|peer| peer.inbox().held_bytes().saturating_sub(share)).sum();
        let of_groups = self.groups.as_deref().map_or(0, |groups| groups.held_beyond(share));
        self.held_bytes.saturating_sub(of_groups).saturating_sub(beyond)
    }

    /// Whether an accepted message is on its way. Looked at only when memory is short.
    fn is_promised(&self) -> bool {
        self.slots.iter().filter_map(|slot| slot.peer.as_deref()).any(|peer| peer.inbox().promised() > 0)
    }

    /// Receive memory may have become free: gives it to those who wait.
    pub(super) fn share_memory(&mut self, now: Instant) {
        if !self.waiting_credit.is_empty() {
            self.renew_waiting(now);
        }
        if !self.waiting_offers.is_empty() {
            self.accept_waiting(now);
        }
    }

    /// Renews the credit of the channels that wait for it: of all, or of those whose peers hold little.
    fn renew_waiting(&mut self, now: Instant) {
        let ready = if self.held_bytes <= self.config.receive_memory_bytes {
            core::mem::take(&mut self.waiting_credit)
        } else if self.is_readable() {
            return;
        } else {
            let Some(share) = self.share_beside_heavy() else { return };
            let (light, heavy) = core::mem::take(&mut self.waiting_credit)
                .into_iter()
                .partition(|channel| self.would_hold(channel.peer, 0) <= share);
            self.waiting_credit = heavy;
            light
        };
        let config = self.config.clone();
        for channel in ready {
            // A peer that has gone needs no credit.
            let _ = self.on_peer(now, channel.peer, |peer, _| peer.renew_credit(&config, channel.channel));
        }
    }
}
