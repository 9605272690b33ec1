//! The memory of messages in the hands of whoever receives: see [`crate::lending`].
//!
//! Inputs → outputs: the datagram handled last → memory lent; the memory → where it was.

use super::Endpoint;
use crate::lending::{Handled, Handler, Lent, MIN_NOTED_BYTES, Owner};
use core::net::SocketAddr;
use denrei_wire::Instant;

impl Endpoint {
    /// A datagram was handled. Whether it was a part of a message, [`lend`](Self::lend) finds out.
    pub(super) fn note_handled(&mut self, datagram: &[u8], from: SocketAddr, by: Handler) {
        if datagram.len() >= MIN_NOTED_BYTES {
            let (address, len) = (datagram.as_ptr() as usize, datagram.len());
            self.handled = Some(Handled { address, len, from, by });
        }
    }

    /// Whether [`lend`](Self::lend) is worth a try for whoever wants payloads that large, bytes.
    pub fn may_lend(&self, payload: usize) -> bool {
        self.handled.is_some_and(|datagram| datagram.len > payload)
    }

    /// The memory that the next train is expected to belong in, if the last datagram carried a part of a large
    /// message, in order. Once for each; it has to be [given back](Self::take_back) after the train's datagrams
    /// have been handled, and before anything else is done.
    pub fn lend(&mut self) -> Option<Lent> {
        let datagram = self.handled.take()?;
        match datagram.by {
            Handler::Session(slot) => {
                let peer = self.slots.get_mut(slot as usize)?.peer.as_deref_mut()?;
                let id = peer.id;
                peer.inbox_mut().lend(id, &datagram)
            }
            Handler::Group(group) => self.groups.as_deref_mut()?.lend(group, &datagram),
        }
    }

    /// Memory that was lent is here again. If its message will not come any more, it is dropped.
    pub fn take_back(&mut self, now: Instant, lent: Lent) {
        match lent.owner {
            Owner::Session { peer, channel, number } => {
                let slot = self.slots.get_mut(peer.slot as usize);
                let holder =
                    slot.and_then(|slot| slot.peer.as_deref_mut()).filter(|holder| holder.id == peer);
                if let Some(holder) = holder {
                    holder.inbox_mut().take_back(channel, number, lent.memory);
                }
            }
            Owner::Group { group, number } => {
                self.with_groups(|groups, host| groups.take_back(now, group, number, lent.memory, host));
            }
        }
    }
}
