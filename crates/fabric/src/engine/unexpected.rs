//! Messages that no receive has taken, and how much of them is held for whom.
//!
//! Inputs → outputs: messages as they come and go → what they cost, and whether there is room for a peer's. All peers
//! share the room; once it is used up, those that hold less than an equal share of it are served all the same, so
//! that nobody has to wait for what others have sent in vain.

use super::header;
use super::matching::PeerIndex;
use bytes::Bytes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What an unexpected message costs beside its bytes.
const UNEXPECTED_COST_BYTES: usize = 128;

/// A message that no receive has taken.
#[derive(Debug)]
pub(super) struct Unexpected {
    pub(super) data: Option<u64>,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Eager(Bytes),
    Bulk { number: u64, len: u64 },
}

impl Unexpected {
    /// Keeps a message that lies within `whole`, alone or beside others.
    pub(super) fn keep(
        data: Option<u64>,
        matched: header::Matched<'_>,
        whole: &Bytes,
        is_of_several: bool,
    ) -> Self {
        let body = match matched {
            // It must not keep the memory of all others.
            header::Matched::Eager(bytes) if is_of_several => Body::Eager(Bytes::copy_from_slice(bytes)),
            header::Matched::Eager(bytes) => Body::Eager(whole.slice_ref(bytes)),
            header::Matched::Bulk { number, len } => Body::Bulk { number, len },
        };
        Self { data, body }
    }

    pub(super) fn matched(&self) -> header::Matched<'_> {
        match &self.body {
            Body::Eager(bytes) => header::Matched::Eager(bytes),
            Body::Bulk { number, len } => header::Matched::Bulk { number: *number, len: *len },
        }
    }

    /// Bytes that it is counted as.
    pub(super) fn cost(&self) -> usize {
        let held = if let Body::Eager(bytes) = &self.body { bytes.len() } else { 0 };
        held + UNEXPECTED_COST_BYTES
    }
}

/// What unexpected messages cost, by who sent them.
#[derive(Debug, Default)]
pub(super) struct Held {
    bytes: usize,
    /// Of those that hold anything.
    of: HashMap<PeerIndex, usize>,
}

impl Held {
    /// Bytes of all peers together.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A peer holds so many bytes more.
    pub(super) fn add(&mut self, peer: PeerIndex, bytes: usize) {
        self.bytes += bytes;
        *self.of.entry(peer).or_default() += bytes;
    }

    /// A peer holds so many bytes less.
    pub(super) fn release(&mut self, peer: PeerIndex, bytes: usize) {
        self.bytes -= bytes;
        if let Entry::Occupied(mut own) = self.of.entry(peer) {
            *own.get_mut() -= bytes;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }

    /// Whether a peer may hold more: all together less than `most` bytes, or it less than its share of them.
    pub(super) fn has_room(&self, peer: PeerIndex, most: usize) -> bool {
        let is_within_share = |own: &usize| own.saturating_mul(self.of.len()) <= most;
        self.bytes <= most || self.of.get(&peer).is_none_or(is_within_share)
    }
}
