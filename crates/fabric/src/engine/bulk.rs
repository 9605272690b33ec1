//! Large messages: offers, and those who wait for what is offered.
//!
//! Inputs → outputs: "bytes are offered under this number" and "the offer of that number belongs
//! there", in either order → the bytes in place, once, and word to whom they were for. Source: S7,
//! S11; `spec/protocol.md` §6.3.

use super::Engine;
use super::header::BULK;
use super::matching::PeerIndex;
use super::origin::Piece;
use super::port::MessageKey;
use super::receive::Matched;
use super::target::AWAITED_COST_BYTES;
use crate::error::Errno;
use bytes::Bytes;
use denrei::Placement;
use std::collections::HashMap;

/// For whom a large message is.
#[derive(Debug)]
pub(super) enum Recipient {
    /// A receive.
    Receive(Matched),
    /// A write by a peer: the number of its request, and remote completion data.
    Write { request: u64, len: u64, data: Option<u64>, keys: super::target::Keys },
    /// A piece of something that was read.
    Read(Piece),
    /// Nobody: it is thrown away.
    Nobody,
}

/// One large message.
#[derive(Debug)]
enum Bulk {
    /// Nobody has asked for it.
    Offered,
    /// It came without having been offered, because its sender offers only larger ones.
    Arrived(Bytes),
    /// It was asked for before it was offered.
    Awaited(Recipient, Box<dyn Placement>),
    /// It is on its way into place.
    Accepted(Recipient),
}

/// Large messages that are not done.
#[derive(Debug, Default)]
pub(super) struct Bulks {
    messages: HashMap<MessageKey, Bulk>,
}

#[cfg(test)]
impl Bulks {
    /// Large messages that are not done.
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether a large message is wanted, and not here.
    pub(super) fn is_busy(&self) -> bool {
        self.messages.values().any(|bulk| matches!(bulk, Bulk::Awaited(..) | Bulk::Accepted(_)))
    }
}

impl Engine {
    /// The large message `number` of `peer` is for `recipient` and goes to `into`.
    pub(super) fn want_bulk(
        &mut self,
        peer: PeerIndex,
        number: u64,
        recipient: Recipient,
        mut into: Box<dyn Placement>,
    ) {
        let key = MessageKey { peer, channel: BULK, number };
        match self.bulks.messages.remove(&key) {
            Some(Bulk::Offered) => self.accept_bulk(key, recipient, into),
            Some(Bulk::Arrived(data)) => {
                into.place(0, &data);
                drop(into);
                self.finish_bulk(peer, recipient, Ok(()));
            }
            // A number is used once; whoever repeats it gets nothing.
            Some(known @ (Bulk::Awaited(..) | Bulk::Accepted(_))) => {
                self.bulks.messages.insert(key, known);
                self.finish_bulk(peer, recipient, Err(Errno::OTHER));
            }
            None => {
                self.bulks.messages.insert(key, Bulk::Awaited(recipient, into));
            }
        }
    }

    fn accept_bulk(&mut self, key: MessageKey, recipient: Recipient, into: Box<dyn Placement>) {
        match self.port.accept(key, into) {
            Ok(()) => {
                self.bulks.messages.insert(key, Bulk::Accepted(recipient));
            }
            Err(errno) => self.finish_bulk(key.peer, recipient, Err(errno)),
        }
    }

    /// Nobody wants the large message `number` of `peer`.
    pub(super) fn refuse_bulk(&mut self, peer: PeerIndex, number: u64) {
        let key = MessageKey { peer, channel: BULK, number };
        match self.bulks.messages.remove(&key) {
            Some(Bulk::Offered) => self.port.refuse(key),
            Some(other @ (Bulk::Awaited(..) | Bulk::Accepted(_))) => {
                self.bulks.messages.insert(key, other);
            }
            // Not offered yet: it is taken and thrown away.
            None => {
                self.target.hold(peer, AWAITED_COST_BYTES);
                let nowhere = Box::new(crate::memory::Memory::default());
                self.bulks.messages.insert(key, Bulk::Awaited(Recipient::Nobody, nowhere));
            }
            Some(Bulk::Arrived(_)) => {}
        }
    }

    pub(super) fn on_offered(&mut self, key: MessageKey) {
        match self.bulks.messages.remove(&key) {
            Some(Bulk::Awaited(recipient, into)) => self.accept_bulk(key, recipient, into),
            Some(other) => {
                self.bulks.messages.insert(key, other);
            }
            None => {
                self.bulks.messages.insert(key, Bulk::Offered);
            }
        }
    }

    pub(super) fn on_bulk(&mut self, key: MessageKey, data: Bytes) {
        match self.bulks.messages.remove(&key) {
            Some(Bulk::Accepted(recipient)) => self.finish_bulk(key.peer, recipient, Ok(())),
            Some(Bulk::Awaited(recipient, mut into)) => {
                into.place(0, &data);
                drop(into);
                self.finish_bulk(key.peer, recipient, Ok(()));
            }
            _ => {
                self.bulks.messages.insert(key, Bulk::Arrived(data));
            }
        }
    }

    fn finish_bulk(&mut self, peer: PeerIndex, recipient: Recipient, result: Result<(), Errno>) {
        match recipient {
            Recipient::Receive(matched) => self.finish_receive(matched, result),
            Recipient::Write { request, len, data, keys } => {
                self.finish_write(peer, request, len, data, &keys, result);
            }
            Recipient::Read(piece) => self.finish_piece(piece, result),
            Recipient::Nobody => self.target.release(peer, AWAITED_COST_BYTES),
        }
    }

    /// A session is over: what it was to bring will not come.
    pub(super) fn fail_bulks(&mut self, peer: PeerIndex, errno: Errno) {
        let gone: Vec<MessageKey> =
            self.bulks.messages.keys().filter(|key| key.peer == peer).copied().collect();
        for key in gone {
            let recipient = match self.bulks.messages.remove(&key) {
                Some(Bulk::Awaited(recipient, into)) => {
                    drop(into);
                    recipient
                }
                Some(Bulk::Accepted(recipient)) => recipient,
                _ => continue,
            };
            match recipient {
                // There is nobody left to answer.
                Recipient::Write { .. } | Recipient::Nobody => {}
                Recipient::Read(_) | Recipient::Receive(_) => self.finish_bulk(peer, recipient, Err(errno)),
            }
        }
    }
}
