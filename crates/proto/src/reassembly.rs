//! Puts a message together from its fragments (U4, S7).
//!
//! Inputs → outputs: fragments in any order, overlapping or repeated → the message's bytes.
//! Bytes that arrive in order are appended to the message's own buffer and never copied again;
//! those after a gap wait beside it. Memory is bounded by the message's size, which credit or a
//! grant has allowed. A message accepted into memory of somebody else is placed there at once, in
//! whatever order it arrives. Either memory may be lent to whoever receives: what then lies where it
//! belongs is not copied at all.

use crate::buffer_pool::BufferPool;
use crate::lending::{Handled, Lay, Memory, Window};
use crate::placement::{AcceptInto, Placing};
use bytes::Bytes;
use denrei_prefetch::ahead_of_writing;
use denrei_wire::Shape;
use denrei_wire::datagram::MAX_TRAIN_BYTES;
use std::collections::BTreeMap;

/// Waiting fragments allowed per message, whatever its size …
const MIN_WAITING: usize = 64;
/// … and one more for each so many bytes of it: no honest sender cuts finer.
const BYTES_PER_WAITING: u64 = 64;

/// A message under construction.
#[derive(Debug)]
pub(crate) struct Reassembly {
    total: u64,
    /// The message from its start up to the first gap, `have` bytes, and behind it whatever was there before.
    memory: Vec<u8>,
    have: usize,
    /// What lies beyond, by offset; disjoint.
    waiting: BTreeMap<u64, Bytes>,
    /// Where the payload lay that came last, if that was in order.
    last: Lay,
    /// The memory is lent.
    lent: Option<Window>,
    /// Where `memory` comes from, if it is not the application's.
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
        let (memory, pool, placing) = match into.into() {
            AcceptInto::Buffer(buffer) if buffer.capacity() == 0 => {
                (pool.take(size)?, Some(pool.clone()), None)
            }
            AcceptInto::Buffer(mut buffer) => {
                buffer.truncate(size);
                buffer.try_reserve_exact(size - buffer.len()).ok()?;
                (buffer, None, None)
            }
            AcceptInto::Placement(placement) => (Vec::new(), None, Some(Box::new(Placing::new(placement)))),
        };
        let (waiting, last, lent) = (BTreeMap::new(), Lay::default(), None);
        Some(Self { total, memory, have: 0, waiting, last, lent, pool, placing })
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
        self.have() == self.total && self.lent.is_none()
    }

    /// Bytes without a gap from the start.
    fn have(&self) -> u64 {
        self.placing.as_ref().map_or(self.have as u64, |placing| placing.have())
    }

    /// The message; empty if it was placed.
    pub fn into_bytes(mut self) -> Bytes {
        debug_assert!(self.is_complete() && self.lent.is_none());
        self.memory.truncate(self.have);
        match self.pool {
            Some(pool) => pool.lend(self.memory),
            None => Bytes::from(self.memory),
        }
    }

    /// Lends the memory for a train like `datagram`, in which the last payload lay, if that came in order and as much
    /// is missing as any train can bring: where its next payload belongs, and how such a datagram divides.
    pub fn lend(&mut self, datagram: &Handled) -> Option<(Memory, usize, Shape)> {
        let shape = self.last.shape(datagram)?;
        let have = self.have();
        let gaps =
            !self.waiting.is_empty() || self.placing.as_ref().is_some_and(|placing| placing.has_gaps());
        if self.lent.is_some() || gaps || self.total - have <= MAX_TRAIN_BYTES as u64 {
            return None;
        }
        let mut memory = match &mut self.placing {
            Some(placing) => Memory::Placed(placing.lend()?),
            None => {
                let end =
                    self.have + shape.after + shape.payload * shape.fit(self.total as usize - self.have);
                // Room for it has been reserved.
                self.memory.resize(self.memory.len().max(end), 0);
                Memory::Own(core::mem::take(&mut self.memory))
            }
        };
        // Whoever keeps his memory to himself lends it in vain.
        let address = memory.bytes().map_or(0, |memory| memory.as_ptr() as usize);
        self.lent = Some(Window { address, at: have, payload: shape.payload as u64 });
        Some((memory, have as usize, shape))
    }

    /// The memory is here again, and what came meanwhile and belongs elsewhere in it is put there.
    pub fn take_back(&mut self, memory: Memory) {
        if self.lent.take().is_none() {
            return;
        }
        match (memory, &mut self.placing) {
            (Memory::Placed(into), Some(placing)) => {
                placing.take_back(into);
                for (offset, piece) in core::mem::take(&mut self.waiting) {
                    placing.insert(offset, &piece, usize::MAX);
                }
            }
            (Memory::Own(memory), None) => {
                self.memory = memory;
                self.take_up_waiting();
            }
            _ => debug_assert!(false, "what was lent comes back"),
        }
    }

    /// Adds `payload` at `offset`; the caller has checked that it ends within the message.
    pub fn insert(&mut self, offset: u64, payload: &[u8]) -> Result<(), TooManyPieces> {
        debug_assert!(offset + payload.len() as u64 <= self.total);
        let have = self.have();
        self.last = if offset == have { Lay::of(payload) } else { Lay::default() };
        if let Some(window) = self.lent {
            return self.insert_beside(window, offset, payload);
        }
        if let Some(placing) = &mut self.placing {
            let most_waiting = MIN_WAITING + (self.total / BYTES_PER_WAITING) as usize;
            return placing.insert(offset, payload, most_waiting).then_some(()).ok_or(TooManyPieces);
        }
        if offset + payload.len() as u64 <= have {
            return Ok(());
        }
        if offset > have {
            return self.keep(offset, payload);
        }
        let payload = &payload[(have - offset) as usize..];
        ahead_of_writing(self.memory.as_ptr(), self.total as usize, self.have, payload.len());
        self.append(payload);
        self.take_up_waiting();
        Ok(())
    }

    /// The same while the memory is lent: what lies in it where it belongs is there already.
    fn insert_beside(&mut self, window: Window, offset: u64, payload: &[u8]) -> Result<(), TooManyPieces> {
        let (have, bytes) = (self.have(), payload.len() as u64);
        if offset + bytes <= have {
            return Ok(());
        }
        if offset != have || !window.holds(offset, payload) {
            let known = have.saturating_sub(offset);
            return self.keep(offset + known, &payload[known as usize..]);
        }
        match &mut self.placing {
            Some(placing) => placing.landed(bytes),
            None => self.have += payload.len(),
        }
        Ok(())
    }

    /// Puts `payload` behind what is there.
    fn append(&mut self, payload: &[u8]) {
        let over = payload.len().min(self.memory.len() - self.have);
        self.memory[self.have..][..over].copy_from_slice(&payload[..over]);
        self.memory.extend_from_slice(&payload[over..]);
        self.have += payload.len();
    }

    /// Appends the pieces that have waited for what is there now.
    fn take_up_waiting(&mut self) {
        while let Some(entry) = self.waiting.first_entry() {
            let have = self.have as u64;
            if *entry.key() > have {
                break;
            }
            let (offset, piece) = entry.remove_entry();
            let overlap = (have - offset) as usize;
            if overlap < piece.len() {
                self.append(&piece[overlap..]);
            }
        }
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
                prop_assert!(reassembly.have + waiting <= total);
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

    fn handled(datagram: &[u8]) -> Handled {
        let by = crate::lending::Handler::Session(0);
        Handled { address: datagram.as_ptr() as usize, len: datagram.len(), by }
    }

    /// Memory of the application's that may be lent.
    #[derive(Debug)]
    struct Posted(Vec<u8>, std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

    impl crate::Placement for Posted {
        fn place(&mut self, offset: u64, bytes: &[u8]) {
            self.0[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        }

        fn memory(&mut self) -> Option<&mut [u8]> {
            Some(&mut self.0)
        }
    }

    impl Drop for Posted {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = core::mem::take(&mut self.0);
        }
    }

    /// What becomes of a datagram of a train.
    #[derive(Clone, Copy, Debug)]
    enum Fate {
        /// It lies where it belongs.
        Lands,
        /// It is damaged there.
        Damaged,
        /// It lies elsewhere.
        Beside,
        /// It is another part of the message, wherever it lies.
        Other(usize),
    }

    fn fate() -> impl Strategy<Value = Fate> {
        prop_oneof![
            6 => Just(Fate::Lands),
            1 => Just(Fate::Damaged),
            1 => Just(Fate::Beside),
            1 => (0usize..200_000).prop_map(Fate::Other),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn what_lands_where_it_belongs_is_there_and_what_does_not_comes_later(
            trains in prop::collection::vec((1usize..9000, prop::collection::vec(fate(), 1..12)), 1..12),
            posted in any::<bool>(),
        ) {
            const TOTAL: usize = 200_000;
            let message: Vec<u8> = (0..TOTAL).map(|i| (i * 7 + i / 256) as u8).collect();
            let seen = std::sync::Arc::<std::sync::Mutex<Vec<u8>>>::default();
            let placement: Box<dyn crate::Placement> = Box::new(Posted(vec![0xee; TOTAL], seen.clone()));
            let into = if posted { AcceptInto::from(placement) } else { AcceptInto::Buffer(Vec::new()) };
            let mut reassembly = Reassembly::new(TOTAL as u64, into, &BufferPool::default()).unwrap();
            for (payload, fates) in trains {
                // One in order, after which the next ones are expected.
                let have = reassembly.have() as usize;
                let datagram = &message[have..(have + payload).min(TOTAL)];
                reassembly.insert(have as u64, datagram).unwrap();
                let Some((mut memory, at, shape)) = reassembly.lend(&handled(datagram)) else { continue };
                prop_assert_eq!((at as u64, shape.payload), (reassembly.have(), datagram.len()));
                for (number, fate) in fates.into_iter().take(shape.fit(TOTAL - at)).enumerate() {
                    let offset = at + number * shape.payload;
                    let here = &mut memory.bytes().unwrap()[offset..][..shape.payload];
                    match fate {
                        Fate::Lands => {
                            here.copy_from_slice(&message[offset..][..shape.payload]);
                            reassembly.insert(offset as u64, here).unwrap();
                        }
                        Fate::Damaged => here.fill(0xdd),
                        Fate::Beside => {
                            here.fill(0xdd);
                            reassembly.insert(offset as u64, &message[offset..][..shape.payload]).unwrap();
                        }
                        Fate::Other(other) => {
                            let len = shape.payload.min(TOTAL - other);
                            here[..len].copy_from_slice(&message[other..][..len]);
                            reassembly.insert(other as u64, &here[..len]).unwrap();
                        }
                    }
                    prop_assert!(!reassembly.is_complete());
                }
                reassembly.take_back(memory);
            }
            for start in (0..TOTAL).step_by(1000) {
                reassembly.insert(start as u64, &message[start..start + 1000]).unwrap();
            }
            prop_assert!(reassembly.is_complete());
            let bytes = reassembly.into_bytes();
            let placed = seen.lock().unwrap();
            let there = if posted { &placed[..] } else { &bytes[..] };
            prop_assert!(there == message);
        }
    }

    #[test]
    fn memory_is_not_lent_twice_nor_near_the_end_nor_beside_a_gap() {
        let part = [7; 2000];
        let begun = |total| {
            let mut reassembly = Reassembly::new(total, Vec::new(), &BufferPool::default()).unwrap();
            reassembly.insert(0, &part).unwrap();
            reassembly
        };
        let a_train = MAX_TRAIN_BYTES as u64;
        let mut lending = begun(2000 + a_train + 1);
        let (memory, ..) = lending.lend(&handled(&part)).expect("more is missing than a train brings");
        assert!(lending.lend(&handled(&part)).is_none(), "it is not here");
        lending.take_back(memory);
        assert!(lending.lend(&handled(&part)).is_some());
        assert!(begun(2000 + a_train).lend(&handled(&part)).is_none(), "a train may complete it");
        assert!(begun(1 << 20).lend(&handled(&[0; 2000])).is_none(), "that was another datagram");
        let mut repeated = begun(1 << 20);
        repeated.insert(0, &part).unwrap();
        assert!(repeated.lend(&handled(&part)).is_none(), "the last datagram brought nothing in order");
        let mut gaps = begun(1 << 20);
        gaps.insert(5000, &part).unwrap();
        assert!(gaps.lend(&handled(&part)).is_none());
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
