//! The memory of messages in the hands of whoever receives: see [`crate::lending`].
//!
//! Inputs → outputs: a source, and the datagram of it handled last → memory lent; the memory → where it was.

use super::Endpoint;
use crate::lending::{Handled, Handler, Lent, Owner};
use core::net::SocketAddr;
use denrei_wire::Instant;

impl Endpoint {
    /// Has datagrams of `bytes` and more noted, so that memory is lent for what follows them; none are by default.
    pub fn lend_from(&mut self, bytes: usize) {
        self.noted.note_from(bytes);
    }

    /// The memory that the next train of `source` is expected to belong in, if the last datagram from there carried a
    /// part of a large message, in order. It has to be [given back](Self::take_back) after the train's datagrams
    /// have been handled, and before anything else is done.
    pub fn lend(&mut self, source: &SocketAddr) -> Option<Lent> {
        let last = self.noted.last_of(source)?;
        let lent = self.lend_after(&last);
        if lent.is_none() {
            self.noted.forget(source);
        }
        lent
    }

    fn lend_after(&mut self, last: &Handled) -> Option<Lent> {
        match last.by {
            Handler::Session(slot) => {
                let peer = self.slots.get_mut(slot as usize)?.peer.as_deref_mut()?;
                let id = peer.id;
                peer.inbox_mut().lend(id, last)
            }
            Handler::Group(group) => self.groups.as_deref_mut()?.lend(group, last),
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
