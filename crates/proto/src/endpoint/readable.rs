//! The channels that have something to take, in turn.
//!
//! Inputs → outputs: channels that something came for, or that were emptied → whose turn it is. Whoever is emptied out of
//! turn, as by `recv_from`, or gone, is struck off when it is at the front, so that a line that is not empty has
//! something to take; further back before the line grows.

use super::{Slot, peer_of};
use crate::event::ChannelId;
use std::collections::VecDeque;

/// Channels in turn, the first of which has something to take.
#[derive(Debug, Default)]
pub(super) struct Readable(VecDeque<ChannelId>);

impl Readable {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = ChannelId> + '_ {
        self.0.iter().copied()
    }

    pub fn front(&self) -> Option<ChannelId> {
        self.0.front().copied()
    }

    pub fn pop_front(&mut self) -> Option<ChannelId> {
        self.0.pop_front()
    }

    /// Adds a channel that has something to take and is not in line.
    pub fn push_back(&mut self, id: ChannelId) {
        self.0.push_back(id);
    }

    pub fn append(&mut self, other: &mut Self) {
        self.0.append(&mut other.0);
    }

    /// Strikes off whoever has nothing to take, as far as the first that has.
    #[inline]
    pub fn settle(&mut self, slots: &mut [Slot]) {
        while let Some(&id) = self.0.front()
            && !is_takeable(slots, id)
        {
            self.0.pop_front();
        }
    }

    /// Somebody in line may have nothing to take any more: [settles](Self::settle), and before the line would grow strikes
    /// off all such.
    pub fn tidy(&mut self, slots: &mut [Slot]) {
        self.settle(slots);
        if self.0.len() > self.0.capacity() / 2 {
            self.0.retain(|id| is_takeable(slots, *id));
            // As many again have to come before all are looked at once more.
            self.0.reserve(3 * self.0.len());
        }
    }
}

/// Whether a channel in line has something to take; it is to leave the line if not.
fn is_takeable(slots: &mut [Slot], id: ChannelId) -> bool {
    let peer = peer_of(slots, id.peer);
    let Some(channel) = peer.and_then(|peer| peer.inbox_mut().get_mut(id.channel)) else { return false };
    channel.listed = channel.has_ready();
    channel.listed
}

#[cfg(test)]
mod tests {
    use crate::{ChannelId, Completion, Config, Endpoint, PeerId};
    use core::net::SocketAddr;
    use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
    use std::sync::Arc;

    const NOW: Instant = Instant::ZERO;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn pass(from: &mut Endpoint, to: &mut Endpoint, port: u16) {
        let (meta, mut out) =
            (DatagramMeta { from: addr(port), at: None, ecn: Ecn::NotEct }, TransmitBuf::new(1));
        while from.poll_transmit(NOW, &mut out).is_some() {
            to.handle_datagram(NOW, &meta, &mut out.bytes().to_vec());
        }
    }

    /// A peer of `hub` that has sent a message on each of the channels.
    fn sender(hub: &mut Endpoint, port: u16, channels: &[u16]) -> (Endpoint, PeerId) {
        let mut end = Endpoint::new(Arc::new(Config::default()), u64::from(port), NOW);
        let peer = end.connect(NOW, addr(1)).unwrap();
        for channel in channels {
            end.send(ChannelId { peer, channel: *channel }, vec![1].into(), Completion::None).unwrap();
        }
        for _ in 0..2 {
            pass(&mut end, hub, port);
            pass(hub, &mut end, 1);
        }
        let back = hub.peer_at(addr(port)).expect("it is proven");
        (end, back)
    }

    fn hub() -> Endpoint {
        Endpoint::new(Arc::new(Config::default()), 0, NOW)
    }

    #[test]
    fn what_recv_from_or_close_read_has_emptied_is_not_there_to_take() {
        let mut hub = hub();
        let (_end, peer) = sender(&mut hub, 2, &[0, 1, 2]);
        let take = |hub: &mut Endpoint, channel| hub.recv_from(NOW, ChannelId { peer, channel }).is_some();
        assert!(take(&mut hub, 0) && hub.is_readable());
        assert!(take(&mut hub, 2) && hub.is_readable());
        assert!(hub.recv(NOW).is_some_and(|message| message.channel.channel == 1));
        assert!(!hub.is_readable(), "the rest was taken from its channel");
        assert_eq!(hub.pace.taken.emptied, 1, "once, and that is told to who learns rates");
        let (_other, peer) = sender(&mut hub, 3, &[0]);
        assert!(hub.is_readable());
        hub.close_read(NOW, peer).unwrap();
        assert!(!hub.is_readable());
        let (_other, peer) = sender(&mut hub, 4, &[0]);
        hub.abort(NOW, peer, 0x8000, "").unwrap();
        assert!(hub.is_readable() && hub.recv(NOW).is_some(), "what was here before is here still");
        assert!(!hub.is_readable());
    }

    #[test]
    fn the_unwanted_that_recv_from_empties_leave_the_line() {
        let mut hub = hub();
        let (_end, peer) = sender(&mut hub, 2, &[0, 1]);
        assert!(hub.recv_where(NOW, |id| id.channel == 1).is_some());
        assert!(hub.recv_from(NOW, ChannelId { peer, channel: 0 }).is_some());
        assert!(hub.recv_where(NOW, |id| id.channel == 1).is_none() && !hub.is_readable());
    }

    #[test]
    fn peers_that_come_and_go_leave_nothing_behind_one_that_nobody_reads() {
        let mut hub = hub();
        let (_unread, _) = sender(&mut hub, 2, &[0]);
        for port in 3..500 {
            let (mut end, peer) = sender(&mut hub, port, &[0, 7]);
            for channel in [7, 0] {
                assert!(hub.recv_from(NOW, ChannelId { peer, channel }).is_some());
            }
            let back = end.peers().next().unwrap();
            end.abort(NOW, back, 0x8000, "").unwrap();
            pass(&mut end, &mut hub, port);
        }
        assert!(hub.is_readable() && hub.readable.0.capacity() <= 16, "{}", hub.readable.0.capacity());
    }
}
