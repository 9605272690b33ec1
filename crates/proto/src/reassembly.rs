//! Puts a message together from its fragments (U4, S7).
//!
//! Inputs → outputs: fragments in any order, overlapping or repeated → the message's bytes.
//! Bytes that arrive in order are appended to the message's own buffer and never copied again;
//! those after a gap wait beside it. Memory is bounded by the message's size, which credit or a
//! grant has allowed. A message accepted into memory of somebody else is placed there at once, in
//! whatever order it arrives.

use crate::buffer_pool::BufferPool;
use crate::placement::{AcceptInto, Placing};
use bytes::Bytes;
use denrei_prefetch::ahead_of_writing;
use std::collections::BTreeMap;

/// Waiting fragments allowed per message, whatever its size …
const MIN_WAITING: usize = 64;
/// … and one more for each so many bytes of it: no honest sender cuts finer.
const BYTES_PER_WAITING: u64 = 64;

/// A message under construction.
#[derive(Debug)]
pub(crate) struct Reassembly {
    total: u64,
    /// The message from its start up to the first gap.
    prefix: Vec<u8>,
    /// What lies beyond, by offset; disjoint.
    waiting: BTreeMap<u64, Bytes>,
    /// Where `prefix` comes from, if it is not the application's.
    pool: Option<BufferPool>,
    /// Instead of all that: where it is placed.
    placing: Option<Box<Placing>>,
}

/// The sender cuts a message finer than any honest one would.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooManyPieces;

impl Reassembly {
    /// A message of `total` bytes, to be put `into` a buffer (its content is dropped, its memory
    /// used) or wherever it is placed. `None`: there is no memory for it. A buffer without memory
    /// stands for one of the endpoint's own, from `pool`.
    pub fn new(total: u64, into: impl Into<AcceptInto>, pool: &BufferPool) -> Option<Self> {
        let size = usize::try_from(total).ok()?;
        let waiting = BTreeMap::new();
        match into.into() {
            AcceptInto::Buffer(buffer) if buffer.capacity() == 0 => {
                let (prefix, pool) = (pool.take(size)?, Some(pool.clone()));
                Some(Self { total, prefix, waiting, pool, placing: None })
            }
            AcceptInto::Buffer(mut prefix) => {
                prefix.clear();
                prefix.try_reserve_exact(size).ok()?;
                Some(Self { total, prefix, waiting, pool: None, placing: None })
            }
            AcceptInto::Placement(placement) => {
                let placing = Some(Box::new(Placing::new(placement)));
                Some(Self { total, prefix: Vec::new(), waiting, pool: None, placing })
            }
        }
    }

    /// Bytes of memory that the endpoint holds for it.
    pub fn held(&self) -> u64 {
        if self.placing.is_some() { 0 } else { self.total }
    }

    /// Bytes of the whole message.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether all bytes are there.
    pub fn is_complete(&self) -> bool {
        self.placing.as_ref().map_or(self.prefix.len() as u64, |placing| placing.have()) == self.total
    }

    /// The message; empty if it was placed.
    pub fn into_bytes(self) -> Bytes {
        debug_assert!(self.is_complete());
        match self.pool {
            Some(pool) => pool.lend(self.prefix),
            None => Bytes::from(self.prefix),
        }
    }

    /// Adds `payload` at `offset`; the caller has checked that it ends within the message.
    pub fn insert(&mut self, offset: u64, payload: &[u8]) -> Result<(), TooManyPieces> {
        let most_waiting = MIN_WAITING + (self.total / BYTES_PER_WAITING) as usize;
        if let Some(placing) = &mut self.placing {
            return placing.insert(offset, payload, most_waiting).then_some(()).ok_or(TooManyPieces);
        }
        let have = self.prefix.len() as u64;
        let end = offset + payload.len() as u64;
        debug_assert!(end <= self.total);
        if end <= have {
            return Ok(());
        }
        if offset > have {
            return self.keep(offset, payload);
        }
        let payload = &payload[(have - offset) as usize..];
        ahead_of_writing(self.prefix.as_ptr(), self.total as usize, have as usize, payload.len());
        self.prefix.extend_from_slice(payload);
        while let Some(entry) = self.waiting.first_entry() {
            let have = self.prefix.len() as u64;
            if *entry.key() > have {
                break;
            }
            let (offset, piece) = entry.remove_entry();
            let overlap = (have - offset) as usize;
            if overlap < piece.len() {
                self.prefix.extend_from_slice(&piece[overlap..]);
            }
        }
        Ok(())
    }

    /// Keeps what of `payload` no waiting piece covers yet.
    fn keep(&mut self, offset: u64, payload: &[u8]) -> Result<(), TooManyPieces> {
        let end = offset + payload.len() as u64;
        let mut from = offset;
        if let Some((&start, piece)) = self.waiting.range(..=from).next_back() {
            from = from.max(start + piece.len() as u64);
        }
        while from < end {
            let next = self.waiting.range(from..).next().map(|(&start, piece)| (start, piece.len() as u64));
            let until = next.map_or(end, |(start, _)| start.min(end));
            if from < until {
                if self.waiting.len() >= MIN_WAITING + (self.total / BYTES_PER_WAITING) as usize {
                    return Err(TooManyPieces);
                }
                let stretch = &payload[(from - offset) as usize..(until - offset) as usize];
                self.waiting.insert(from, Bytes::copy_from_slice(stretch));
            }
            from = match next {
                Some((start, len)) if start < end => start + len,
                _ => end,
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_order_with_overlaps_gives_the_message(
            total in 1usize..2000,
            cuts in prop::collection::vec((0usize..2000, 1usize..400), 0..100),
        ) {
            let message: Vec<u8> = (0..total).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut reassembly = Reassembly::new(total as u64, Vec::new(), &BufferPool::default()).unwrap();
            for (start, len) in cuts {
                let start = start % total;
                let end = (start + len).min(total);
                reassembly.insert(start as u64, &message[start..end]).unwrap();
                let waiting: usize = reassembly.waiting.values().map(Bytes::len).sum();
                prop_assert!(reassembly.prefix.len() + waiting <= total);
            }
            for start in (0..total).step_by(64).rev() {
                reassembly.insert(start as u64, &message[start..(start + 64).min(total)]).unwrap();
            }
            prop_assert!(reassembly.is_complete());
            prop_assert_eq!(&reassembly.into_bytes()[..], &message[..]);
        }
    }

    /// Places into memory that the test shares.
    #[derive(Debug)]
    struct Shared(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl crate::Placement for Shared {
        fn place(&mut self, offset: u64, bytes: &[u8]) {
            self.0.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }
    }

    proptest! {
        #[test]
        fn placed_in_any_order_it_is_complete_when_every_byte_is_there(
            total in 1usize..500,
            cuts in prop::collection::vec((0usize..500, 1usize..100), 0..60),
        ) {
            let message: Vec<u8> = (0..total).map(|i| (i * 7 + i / 256) as u8).collect();
            let memory = std::sync::Arc::new(std::sync::Mutex::new(vec![0; total]));
            let placement: Box<dyn crate::Placement> = Box::new(Shared(memory.clone()));
            let mut reassembly = Reassembly::new(total as u64, placement, &BufferPool::default()).unwrap();
            let mut there = vec![false; total];
            let rest = (0..total).step_by(64).rev().map(|start| (start, 64));
            for (start, len) in cuts.into_iter().chain(rest) {
                let start = start % total;
                let end = (start + len).min(total);
                reassembly.insert(start as u64, &message[start..end]).unwrap();
                there[start..end].fill(true);
                prop_assert_eq!(reassembly.is_complete(), there.iter().all(|there| *there));
            }
            prop_assert_eq!(reassembly.held(), 0);
            prop_assert_eq!(&*memory.lock().unwrap(), &message);
        }
    }

    #[test]
    fn a_sender_that_cuts_too_fine_is_found_out() {
        let placement: Box<dyn crate::Placement> =
            Box::new(Shared(std::sync::Arc::new(vec![0; 1000].into())));
        for into in [AcceptInto::Buffer(Vec::new()), placement.into()] {
            let mut reassembly = Reassembly::new(1000, into, &BufferPool::default()).unwrap();
            let result = (1..500).try_for_each(|i| reassembly.insert(i * 2, &[0]));
            assert_eq!(result, Err(TooManyPieces));
        }
    }
}
