//! What one peer may send, has sent and wants to: an entry in [`Grants`](super::Grants).
//!
//! Inputs → outputs: counts of octets, changed by `grants` → how much is wanted, granted, under way,
//! and how urgent that is. Source: S11; Homa for classes of remainders. `spec/protocol.md` §13.4.

use denrei_wire::Instant;

/// Unit of classes of remainders, octets: a remainder and one unit are below 4, 16 or more of it.
const FIRST_CLASS_BYTES: u64 = 4096;
/// All remainders from 60 KiB on are of one class, and share by weight: the backlog of one that is
/// ahead is no reason to serve it first.
const LAST_CLASS: u32 = 2;

/// A peer that was told a limit.
#[derive(Debug)]
pub(super) struct Claim {
    /// Octets of data packets that it may have sent.
    pub limit: u64,
    /// Octets that arrived, and those that it has said it sent.
    pub received: u64,
    pub said: u64,
    /// Octets that arrived, or are said not to.
    pub accounted: u64,
    /// Of these, octets that were given up as they were late, and may still come.
    pub given_up: u64,
    /// Octets that are said to have been sent, and have not arrived.
    pub lost: u64,
    /// Octets up to which it wants to send.
    pub wanted: u64,
    pub weight: u32,
    /// Grants so far, weighed: the least comes next.
    pub served: u64,
    /// Since when it waits: when it began to want, or was last granted something.
    pub since: Instant,
    /// When something was last granted to it or came from it.
    pub moved: Instant,
    /// Where it stands in the lists.
    pub listed: Option<(u8, u64, Instant)>,
    /// Grants that nothing came of, in a row; until when it is passed over for them.
    pub lapses: u32,
    pub not_before: Instant,
    /// The limit before the latest grant that waited for its data, and when that was granted.
    pub awaited: Option<(u64, Instant)>,
    /// It has said what it sent; what was lost before that, it sent without a limit.
    pub asked: bool,
}

impl Claim {
    /// Of a peer of which so many octets have come.
    pub fn new(now: Instant, weight: u32, received: u64, limit: u64, served: u64) -> Self {
        Self {
            limit,
            received,
            said: received,
            accounted: received,
            given_up: 0,
            lost: 0,
            wanted: 0,
            weight,
            served,
            since: now,
            moved: now,
            listed: None,
            lapses: 0,
            not_before: Instant::ZERO,
            awaited: None,
            asked: false,
        }
    }

    pub fn is_active(&self) -> bool {
        self.wanted > self.accounted
    }

    /// Octets not granted yet.
    pub fn remaining(&self) -> u64 {
        self.wanted.saturating_sub(self.limit)
    }

    /// Octets granted and not here.
    pub fn outstanding(&self) -> u64 {
        self.limit.saturating_sub(self.accounted)
    }

    pub fn class(&self) -> u8 {
        ((self.remaining() / FIRST_CLASS_BYTES + 1).ilog2() / 2).min(LAST_CLASS) as u8
    }
}
