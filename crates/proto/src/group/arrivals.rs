//! Which symbols a member has, and which it misses.
//!
//! Inputs → outputs: symbol numbers → whether each is new, the first that is missing, and the gaps
//! of a report. Bounded: symbols further ahead than [`MAX_AHEAD`] are not taken in.

use std::collections::BTreeMap;

/// Symbols a member takes in beyond the first that it misses: a window of 256 MiB in symbols of a
/// kilobyte.
const MAX_AHEAD: u64 = 1 << 18;

/// Symbols that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// All below have arrived.
    next: u64,
    /// What has arrived beyond: starts and ends (exclusive) of runs, neither adjacent nor empty.
    ahead: BTreeMap<u64, u64>,
    /// One more than the largest that is known to have been sent.
    known: u64,
}

impl Arrivals {
    /// Nothing has arrived, and `first` is the first to come.
    pub fn new(first: u64) -> Self {
        Self { next: first, ahead: BTreeMap::new(), known: first }
    }

    /// All below have arrived.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// One more than the largest that is known to have been sent.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Whether something is missing.
    pub fn has_gaps(&self) -> bool {
        self.next < self.known
    }

    /// Whether a symbol has arrived.
    pub fn contains(&self, number: u64) -> bool {
        let below = self.ahead.range(..=number).next_back();
        number < self.next || below.is_some_and(|(_, end)| number < *end)
    }

    /// Whether symbols below `number` are near enough to be taken in.
    pub fn is_near(&self, number: u64) -> bool {
        number.saturating_sub(self.next) <= MAX_AHEAD
    }

    /// Everything below `number` has been sent; whether that makes a new gap.
    pub fn learn(&mut self, number: u64) -> bool {
        let news = number > self.known && self.is_near(number);
        if news {
            self.known = number;
        }
        news
    }

    /// Takes in a symbol; whether it is new and was taken in.
    pub fn insert(&mut self, number: u64) -> bool {
        if number < self.next || number - self.next >= MAX_AHEAD {
            return false;
        }
        self.known = self.known.max(number + 1);
        if number == self.next {
            self.next += 1;
            if let Some(end) = self.ahead.remove(&self.next) {
                self.next = end;
            }
            return true;
        }
        let below = self.ahead.range_mut(..=number).next_back();
        let start = match below {
            Some((_, end)) if number < *end => return false,
            Some((&start, end)) if *end == number => start,
            _ => number,
        };
        let end = self.ahead.remove(&(number + 1)).unwrap_or(number + 1);
        self.ahead.insert(start, end);
        true
    }

    /// The gaps, oldest first: first number and how many.
    pub fn gaps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = core::iter::once(self.next).chain(self.ahead.values().copied());
        let ends = self.ahead.keys().copied().chain(core::iter::once(self.known));
        starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| (start, end - start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set(numbers in proptest::collection::vec(10u64..80, 0..100), known in 10u64..100) {
            let (mut arrivals, mut oracle) = (Arrivals::new(10), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(arrivals.contains(number), oracle.contains(&number));
                prop_assert_eq!(arrivals.insert(number), oracle.insert(number));
            }
            arrivals.learn(known);
            let known = oracle.last().map_or(10, |last| last + 1).max(known);
            let missing: Vec<u64> = (10..known).filter(|number| !oracle.contains(number)).collect();
            let told: Vec<u64> =
                arrivals.gaps().flat_map(|(first, count)| first..first + count).collect();
            prop_assert_eq!(told, missing.clone());
            prop_assert_eq!(arrivals.next(), missing.first().copied().unwrap_or(known));
        }
    }

    #[test]
    fn what_is_absurdly_far_ahead_is_left() {
        let mut arrivals = Arrivals::new(0);
        assert!(!arrivals.insert(MAX_AHEAD));
        assert!(!arrivals.learn(u64::MAX));
        assert!(!arrivals.has_gaps());
    }
}
