//! Sets of pieces: one bit each, taken and given as ranges.
//!
//! Inputs → outputs: piece numbers, ranges → membership, the next one, ranges again.

/// A range of pieces: the first, and how many.
pub type Range = (u32, u32);

/// A set of piece numbers below a bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PieceSet {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

impl PieceSet {
    /// An empty set of pieces below `len`.
    pub fn new(len: u32) -> Self {
        Self { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    /// How many it holds.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bound.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Raises the bound; a lower one changes nothing.
    pub fn grow(&mut self, len: u32) {
        self.len = self.len.max(len);
        self.words.resize(self.len.div_ceil(64) as usize, 0);
    }

    /// Whether it holds `piece`.
    pub fn contains(&self, piece: u32) -> bool {
        piece < self.len && self.words[piece as usize / 64] & (1 << (piece % 64)) != 0
    }

    /// Puts `piece` in; whether it is new. One at or beyond the bound is left out.
    pub fn insert(&mut self, piece: u32) -> bool {
        let new = piece < self.len && !self.contains(piece);
        if new {
            self.words[piece as usize / 64] |= 1 << (piece % 64);
            self.count += 1;
        }
        new
    }

    /// Takes `piece` out; whether it was there.
    pub fn remove(&mut self, piece: u32) -> bool {
        let there = self.contains(piece);
        if there {
            self.words[piece as usize / 64] &= !(1 << (piece % 64));
            self.count -= 1;
        }
        there
    }

    /// Puts a range in, as far as it is below the bound.
    pub fn insert_range(&mut self, (first, count): Range) {
        for piece in first..first.saturating_add(count).min(self.len) {
            self.insert(piece);
        }
    }

    /// Takes all out.
    pub fn clear(&mut self) {
        self.words.fill(0);
        self.count = 0;
    }

    /// The first one at or after `from`.
    pub fn next_from(&self, from: u32) -> Option<u32> {
        self.find(from, 0)
    }

    /// The first one below the bound, at or after `from`, that is not in it.
    pub fn next_missing(&self, from: u32) -> Option<u32> {
        self.find(from, u64::MAX)
    }

    /// The first at or after `from` whose bit, flipped by `flip`, is set.
    fn find(&self, from: u32, flip: u64) -> Option<u32> {
        let mut mask = u64::MAX << (from % 64);
        for index in (from / 64) as usize..self.words.len() {
            let word = (self.words[index] ^ flip) & mask;
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros()).filter(|piece| *piece < self.len);
            }
            mask = u64::MAX;
        }
        None
    }

    /// What is missing, as at most `most` ranges; where that is too few the last reaches further than
    /// it had to.
    pub fn missing(&self, most: usize) -> Vec<Range> {
        let mut ranges = Vec::new();
        let mut from = 0;
        while let Some(first) = self.next_missing(from) {
            let end =
                if ranges.len() + 1 == most { self.len } else { self.next_from(first).unwrap_or(self.len) };
            ranges.push((first, end - first));
            from = end;
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(len in 1u32..200, ops in proptest::collection::vec((0u32..220, any::<bool>()), 0..300)) {
            let (mut set, mut oracle) = (PieceSet::new(len), BTreeSet::new());
            for (piece, insert) in ops {
                if insert {
                    let new = piece < len && oracle.insert(piece);
                    prop_assert_eq!(set.insert(piece), new);
                } else {
                    prop_assert_eq!(set.remove(piece), oracle.remove(&piece));
                }
                prop_assert_eq!(set.count() as usize, oracle.len());
                prop_assert_eq!(set.next_from(piece), oracle.range(piece..).next().copied());
                let missing = (piece..len).find(|piece| !oracle.contains(piece));
                prop_assert_eq!(set.next_missing(piece), missing);
            }
            let mut full = set.clone();
            set.missing(usize::MAX).into_iter().for_each(|range| full.insert_range(range));
            prop_assert_eq!(full.count(), len);
            let few = set.missing(2);
            prop_assert!(few.len() <= 2);
            few.into_iter().for_each(|range| set.insert_range(range));
            prop_assert_eq!(set.count(), len);
        }
    }

    #[test]
    fn it_grows() {
        let mut set = PieceSet::new(0);
        assert!(!set.insert(0) && set.next_missing(0).is_none());
        set.grow(65);
        assert!(set.insert(64) && set.contains(64));
        assert_eq!((set.next_missing(0), set.next_from(1)), (Some(0), Some(64)));
        set.clear();
        assert!(set.is_empty() && set.len() == 65);
    }
}
