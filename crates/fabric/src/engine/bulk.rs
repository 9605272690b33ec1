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
use std::collections::{HashMap, HashSet};

/// Offers of one peer that nobody has asked for, at most. As many as a Node keeps for an application that computes: they
/// come before the messages that announce them.
pub(super) const MOST_OFFERED: usize = 1 << 20;
/// The same for large messages that came without an offer, which no provider of ours sends; bytes.
const MOST_ARRIVED_BYTES: usize = 16 << 20;
/// What such a message costs beside its bytes.
const ARRIVED_COST_BYTES: usize = 128;

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

/// One large message that somebody has asked for.
#[derive(Debug)]
enum Bulk {
    /// It was asked for before it was offered.
    Awaited(Recipient, Box<dyn Placement>),
    /// It is on its way into place.
    Accepted(Recipient),
}

/// What nobody has asked for of a peer's, by number.
#[derive(Debug, Default)]
struct Unasked {
    offered: HashSet<u64>,
    /// These came without having been offered, because their sender offers only larger ones.
    arrived: HashMap<u64, Bytes>,
    /// What those cost.
    bytes: usize,
}

/// A large message that nobody had asked for.
enum Found {
    Offered,
    Arrived(Bytes),
}

impl Unasked {
    fn take(&mut self, number: u64) -> Option<Found> {
        if self.offered.remove(&number) {
            return Some(Found::Offered);
        }
        let data = self.arrived.remove(&number)?;
        self.bytes -= data.len() + ARRIVED_COST_BYTES;
        Some(Found::Arrived(data))
    }
}

/// Large messages that are not done.
#[derive(Debug, Default)]
pub(super) struct Bulks {
    messages: HashMap<MessageKey, Bulk>,
    unasked: HashMap<PeerIndex, Unasked>,
}

impl Bulks {
    fn take_unasked(&mut self, key: MessageKey) -> Option<Found> {
        self.unasked.get_mut(&key.peer)?.take(key.number)
    }
}

#[cfg(test)]
impl Bulks {
    /// Large messages that are not done.
    pub(super) fn len(&self) -> usize {
        let unasked = |unasked: &Unasked| unasked.offered.len() + unasked.arrived.len();
        self.messages.len() + self.unasked.values().map(unasked).sum::<usize>()
    }

    /// Whether a large message is wanted, and not here.
    pub(super) fn is_busy(&self) -> bool {
        !self.messages.is_empty()
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
        match self.bulks.take_unasked(key) {
            Some(Found::Offered) => self.accept_bulk(key, recipient, into),
            Some(Found::Arrived(data)) => {
                into.place(0, &data);
                drop(into);
                self.finish_bulk(peer, recipient, Ok(()));
            }
            // A number is used once; whoever repeats it gets nothing.
            None if self.bulks.messages.contains_key(&key) => {
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
        match self.bulks.take_unasked(key) {
            Some(Found::Offered) => self.port.refuse(key),
            Some(Found::Arrived(_)) => {}
            None if self.bulks.messages.contains_key(&key) => {}
            // Not offered yet: it is taken and thrown away.
            None => {
                self.target.hold(peer, AWAITED_COST_BYTES);
                let nowhere = Box::new(crate::memory::Memory::default());
                self.bulks.messages.insert(key, Bulk::Awaited(Recipient::Nobody, nowhere));
            }
        }
    }

    pub(super) fn on_offered(&mut self, key: MessageKey) {
        // Nobody can ask for it.
        if key.channel != BULK {
            return self.port.refuse(key);
        }
        match self.bulks.messages.remove(&key) {
            Some(Bulk::Awaited(recipient, into)) => return self.accept_bulk(key, recipient, into),
            Some(other) => return drop(self.bulks.messages.insert(key, other)),
            None => {}
        }
        let unasked = self.bulks.unasked.entry(key.peer).or_default();
        if unasked.offered.len() >= MOST_OFFERED {
            return self.port.break_off(key.peer, "too many offers that no message announces");
        }
        unasked.offered.insert(key.number);
    }

    pub(super) fn on_bulk(&mut self, key: MessageKey, data: Bytes) {
        match self.bulks.messages.remove(&key) {
            Some(Bulk::Accepted(recipient)) => return self.finish_bulk(key.peer, recipient, Ok(())),
            Some(Bulk::Awaited(recipient, mut into)) => {
                into.place(0, &data);
                drop(into);
                return self.finish_bulk(key.peer, recipient, Ok(()));
            }
            None => {}
        }
        let unasked = self.bulks.unasked.entry(key.peer).or_default();
        let cost = data.len() + ARRIVED_COST_BYTES;
        if unasked.bytes + cost > MOST_ARRIVED_BYTES {
            return self.port.break_off(key.peer, "too many bytes that no message announces");
        }
        unasked.bytes += cost;
        unasked.arrived.insert(key.number, data);
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
        self.bulks.unasked.remove(&peer);
        let gone: Vec<MessageKey> =
            self.bulks.messages.keys().filter(|key| key.peer == peer).copied().collect();
        for key in gone {
            let recipient = match self.bulks.messages.remove(&key) {
                Some(Bulk::Awaited(recipient, into)) => {
                    drop(into);
                    recipient
                }
                Some(Bulk::Accepted(recipient)) => recipient,
                None => continue,
            };
            match recipient {
                // There is nobody left to answer.
                Recipient::Write { .. } | Recipient::Nobody => {}
                Recipient::Read(_) | Recipient::Receive(_) => self.finish_bulk(peer, recipient, Err(errno)),
            }
        }
    }
}
