//! A set of packet numbers kept as few ranges.
//!
//! Inputs → outputs: numbers, mostly ascending → whether each is new, and ranges for an ACK frame.
//! Bounded: beyond [`MAX_RANGES`] the lowest range is forgotten and everything below counts as
//! seen, so a sender has to repeat it under a new number (packet numbers are never reused).

use core::ops::RangeInclusive;
use smallvec::SmallVec;

/// Ranges remembered. An ACK frame reports 33; the rest absorbs reordering while ACKs are lost.
const MAX_RANGES: usize = 64;

/// Ascending, disjoint, not adjacent ranges of `u64`.
#[derive(Debug, Default)]
pub(crate) struct RangeSet {
    ranges: SmallVec<[(u64, u64); 2]>,
    /// Everything below counts as contained.
    floor: u64,
}

impl RangeSet {
    /// Adds `value`; whether it was new.
    pub fn insert(&mut self, value: u64) -> bool {
        if self.contains(value) {
            return false;
        }
        if let Some(last) = self.ranges.last_mut()
            && last.1 + 1 == value
        {
            last.1 = value;
            return true;
        }
        // First range that starts above `value`; most packets come in order, so look from the end.
        let above = self.ranges.iter().rposition(|range| range.0 < value).map_or(0, |below| below + 1);
        let joins_below = above > 0 && self.ranges[above - 1].1 + 1 == value;
        let joins_above = self.ranges.get(above).is_some_and(|range| range.0 == value + 1);
        match (joins_below, joins_above) {
            (true, true) => {
                self.ranges[above - 1].1 = self.ranges[above].1;
                self.ranges.remove(above);
            }
            (true, false) => self.ranges[above - 1].1 = value,
            (false, true) => self.ranges[above].0 = value,
            (false, false) => self.ranges.insert(above, (value, value)),
        }
        if self.ranges.len() > MAX_RANGES {
            self.floor = self.ranges[0].1 + 1;
            self.ranges.remove(0);
        }
        true
    }

    /// Whether `value` was added, or lies below what is remembered.
    pub fn contains(&self, value: u64) -> bool {
        value < self.floor || self.ranges.iter().rev().any(|&(start, end)| start <= value && value <= end)
    }

    /// Forgets all numbers below `floor`: they count as contained from now on.
    pub fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        let floor = self.floor;
        self.ranges.retain(|range| range.1 >= floor);
        if let Some(first) = self.ranges.first_mut() {
            first.0 = first.0.max(floor);
        }
    }

    /// The largest number added.
    pub fn largest(&self) -> Option<u64> {
        self.ranges.last().map(|range| range.1)
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = RangeInclusive<u64>> + Clone {
        self.ranges.iter().rev().map(|&(start, end)| start..=end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(values in prop::collection::vec(0u64..100, 0..200)) {
            let mut ranges = RangeSet::default();
            let mut oracle = BTreeSet::new();
            for value in values {
                prop_assert_eq!(ranges.insert(value), oracle.insert(value));
                let flat: Vec<u64> = ranges.newest_first().flat_map(|range| range.rev()).collect();
                prop_assert_eq!(&flat, &oracle.iter().rev().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn forgotten_numbers_count_as_seen() {
        let mut ranges = RangeSet::default();
        for value in 0..=2 * MAX_RANGES as u64 {
            assert!(ranges.insert(value * 2));
        }
        assert_eq!(ranges.len(), MAX_RANGES);
        assert!(ranges.contains(1), "below the oldest range");
        assert!(!ranges.insert(1));
        ranges.raise_floor(2 * MAX_RANGES as u64 * 2);
        assert_eq!(
            ranges.newest_first().collect::<Vec<_>>(),
            [4 * MAX_RANGES as u64..=4 * MAX_RANGES as u64]
        );
    }
}
