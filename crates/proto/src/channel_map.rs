//! What is kept per channel of a session, where most sessions use one.
//!
//! Inputs → outputs: channel numbers → their state. The lowest number lies beside the map, so that a
//! session with one channel has no tree: a tree's node has room for eleven at once, and looking at
//! the number costs less than descending to it.

use std::collections::BTreeMap;

/// States by channel number, visited in ascending order. Boxed, because most peers use one.
#[derive(Debug)]
pub(crate) struct ChannelMap<T> {
    lowest: Option<(u16, Box<T>)>,
    others: BTreeMap<u16, Box<T>>,
}

impl<T> Default for ChannelMap<T> {
    fn default() -> Self {
        Self { lowest: None, others: BTreeMap::new() }
    }
}

impl<T> ChannelMap<T> {
    #[inline] // several times a message
    pub fn get(&self, channel: u16) -> Option<&T> {
        match &self.lowest {
            Some((lowest, state)) if *lowest == channel => Some(state),
            _ => self.get_other(channel),
        }
    }

    #[inline] // as above
    pub fn get_mut(&mut self, channel: u16) -> Option<&mut T> {
        match &mut self.lowest {
            Some((lowest, state)) if *lowest == channel => Some(state),
            _ => get_other_mut(&mut self.others, channel),
        }
    }

    #[inline(never)] // a tree's descent, where most have no tree
    fn get_other(&self, channel: u16) -> Option<&T> {
        self.others.get(&channel).map(|state| &**state)
    }

    /// The state of a channel, which `make` makes if there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, channel: u16, make: impl FnOnce() -> T) -> &mut T {
        if self.lowest.as_ref().is_none_or(|(lowest, _)| *lowest != channel) {
            return self.get_or_insert_other(channel, make);
        }
        &mut self.lowest.as_mut().expect("it is this channel").1
    }

    #[inline(never)] // as for `get_other`
    fn get_or_insert_other(&mut self, channel: u16, make: impl FnOnce() -> T) -> &mut T {
        if self.lowest.as_ref().is_some_and(|(lowest, _)| *lowest < channel) {
            return self.others.entry(channel).or_insert_with(|| Box::new(make()));
        }
        let moved = self.lowest.take();
        self.others.extend(moved);
        &mut self.lowest.insert((channel, Box::new(make()))).1
    }

    pub fn remove(&mut self, channel: u16) -> Option<Box<T>> {
        if self.lowest.as_ref().is_none_or(|(lowest, _)| *lowest != channel) {
            return self.others.remove(&channel);
        }
        core::mem::replace(&mut self.lowest, self.others.pop_first()).map(|(_, state)| state)
    }

    /// Drops the states that `wanted` does not say yes to.
    pub fn retain(&mut self, mut wanted: impl FnMut(&T) -> bool) {
        self.others.retain(|_, state| wanted(state));
        if self.lowest.as_ref().is_some_and(|(_, state)| !wanted(state)) {
            self.lowest = self.others.pop_first();
        }
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn iter(&self) -> impl Iterator<Item = (u16, &T)> {
        let lowest = self.lowest.as_ref().map(|(channel, state)| (*channel, &**state));
        lowest.into_iter().chain(self.others.iter().map(|(channel, state)| (*channel, &**state)))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        let lowest = self.lowest.as_mut().map(|(channel, state)| (*channel, &mut **state));
        lowest.into_iter().chain(self.others.iter_mut().map(|(channel, state)| (*channel, &mut **state)))
    }
}

#[inline(never)] // as for `get_other`
fn get_other_mut<T>(others: &mut BTreeMap<u16, Box<T>>, channel: u16) -> Option<&mut T> {
    others.get_mut(&channel).map(|state| &mut **state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_tree(steps in prop::collection::vec((0u16..6, 0u8..5), 0..60)) {
            let (mut map, mut oracle) = (ChannelMap::default(), BTreeMap::new());
            for (number, (channel, step)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let made = *map.get_or_insert_with(channel, || number);
                        prop_assert_eq!(made, *oracle.entry(channel).or_insert(number));
                    }
                    2 => prop_assert_eq!(map.remove(channel).map(|state| *state), oracle.remove(&channel)),
                    3 => {
                        map.retain(|state| state % 3 != 0);
                        oracle.retain(|_, state| *state % 3 != 0);
                    }
                    _ => {
                        map.get_mut(channel).into_iter().for_each(|state| *state += 1);
                        oracle.get_mut(&channel).into_iter().for_each(|state| *state += 1);
                    }
                }
                prop_assert_eq!(map.get(channel), oracle.get(&channel));
                prop_assert!(map.iter().eq(oracle.iter().map(|(channel, state)| (*channel, state))));
                prop_assert!(map.iter_mut().map(|(channel, _)| channel).eq(oracle.keys().copied()));
            }
        }
    }
}
