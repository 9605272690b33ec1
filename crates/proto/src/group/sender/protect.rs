//! Parity at the opener: blocks of symbols as they go out, and how much parity each gets.
//!
//! Inputs → outputs: symbols sent to the group's address, the members' losses → parity packets to send
//! after the last symbol of a block. Source: M10; `spec/protocol.md` §14.6.

use super::Sender;
use crate::group::hearing::Protection;
use crate::group::member::Path;
use crate::group::parity::{self, MAX_BLOCK};
use std::collections::VecDeque;

/// Members' losses are looked at again after so many blocks: with thousands of members that is not free.
const FOLLOW_EVERY_BLOCKS: u32 = 8;

/// A parity to send.
#[derive(Debug)]
pub(super) struct ParityPacket {
    pub first: u64,
    pub symbols: u8,
    pub index: u8,
    pub shard: Vec<u8>,
}

/// Blocks and their parities.
#[derive(Debug, Default)]
pub(super) struct Protect {
    protection: Protection,
    /// First symbol of the block that is going out.
    first: u64,
    blocks: u32,
    /// Parities of blocks that are out.
    pub pending: VecDeque<ParityPacket>,
    /// The last of them asks for reports.
    pub asks: bool,
}

impl Protect {
    /// Whether blocks are protected now.
    pub fn is_on(&self) -> bool {
        self.protection.is_on()
    }

    /// Whether the block is as long as blocks may be, if `next` is the next to go out.
    pub fn ends(&self, next: u64) -> bool {
        next >= self.first + MAX_BLOCK as u64
    }

    /// Whether symbol `next` has to wait for the next block: only where parity ends this one. Trains are not cut for
    /// blocks that get none.
    pub fn is_full(&self, next: u64) -> bool {
        self.is_on() && self.ends(next)
    }
}

impl Sender {
    /// The block that is going out ends before symbol `end`; how many parities follow.
    pub(super) fn end_block(&mut self, end: u64) -> usize {
        let first = core::mem::replace(&mut self.protect.first, end).max(self.stream.base());
        let symbols = end.saturating_sub(first) as usize;
        self.protect.blocks += 1;
        if self.protect.blocks >= FOLLOW_EVERY_BLOCKS {
            self.protect.blocks = 0;
            self.follow_losses();
        }
        let count = self.protect.protection.parities_for(symbols);
        if count == 0 || symbols > MAX_BLOCK {
            return 0;
        }
        let frames = |number: u64| {
            let mut frames = Vec::with_capacity(self.symbol_bytes);
            self.stream.write(number, &mut |part| frames.extend_from_slice(part));
            frames
        };
        let block: Vec<Vec<u8>> = (first..end).map(frames).collect();
        let shards = parity::parities(&block, count);
        let count = shards.len();
        for (index, shard) in shards.into_iter().enumerate() {
            let (symbols, index) = (symbols as u8, index as u8);
            self.protect.pending.push_back(ParityPacket { first, symbols, index, shard });
        }
        count
    }

    /// Measured loss × members decides.
    fn follow_losses(&mut self) {
        let heard = self.members.iter().filter(|member| member.counts() && member.path == Path::Multicast);
        self.protect.protection.follow(heard.map(|member| member.hearing.share()));
        // A parity for all is as many packets as there are members: repairs are fewer.
        if !self.options.parity || self.replicates() {
            self.protect.protection = Protection::default();
        }
    }
}
