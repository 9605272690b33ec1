//! Groups by their ids, and what they want of the endpoint, known without a look at each: it is asked several times for
//! every datagram, also of sessions that have nothing to do with groups, and there may be a thousand of them.
//!
//! Inputs → outputs: groups, which of them may have changed → the first deadline, whose turn it is to send. Source: none.

use super::{Membership, Sender};
use crate::group::GroupId;
use core::ops::Bound;
use denrei_wire::Instant;
use std::collections::{BTreeMap, BTreeSet};

/// What a group wants of the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wants {
    deadline: Instant,
    transmit: bool,
    /// Room in a session.
    room: bool,
    /// How much there was so far.
    news: u64,
}

pub(super) trait Group {
    fn wants(&self) -> Wants;
}

impl Group for Sender {
    fn wants(&self) -> Wants {
        let room = self.pumps() || self.is_inviting() || self.is_held_up_by_rate();
        Wants { deadline: self.deadline(), transmit: self.wants_transmit(), room, news: self.news }
    }
}

impl Group for Membership {
    fn wants(&self) -> Wants {
        Wants { deadline: self.deadline(), transmit: false, room: false, news: 0 }
    }
}

#[derive(Debug)]
struct Entry<T> {
    group: Box<T>,
    /// As it is counted in.
    counted: Option<Wants>,
    changed: bool,
}

/// Groups by their ids. Whoever has had one to change says [`settle`](Self::settle) before anything is asked.
#[derive(Debug)]
pub(super) struct Shelf<T> {
    groups: BTreeMap<GroupId, Entry<T>>,
    /// Each once.
    changed: Vec<GroupId>,
    /// Of those that have one.
    deadlines: BTreeSet<(Instant, GroupId)>,
    transmit: BTreeSet<GroupId>,
    room: usize,
    news: u64,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        let (deadlines, transmit) = Default::default();
        Self { groups: BTreeMap::new(), changed: Vec::new(), deadlines, transmit, room: 0, news: 0 }
    }
}

impl<T: Group> Shelf<T> {
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn contains(&self, id: GroupId) -> bool {
        self.groups.contains_key(&id)
    }

    pub fn get(&self, id: GroupId) -> Option<&T> {
        self.groups.get(&id).map(|entry| &*entry.group)
    }

    pub fn get_mut(&mut self, id: GroupId) -> Option<&mut T> {
        let entry = self.groups.get_mut(&id)?;
        if !core::mem::replace(&mut entry.changed, true) {
            self.changed.push(id);
        }
        Some(&mut entry.group)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.groups.values().map(|entry| &*entry.group)
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let Self { groups, changed, .. } = self;
        groups.iter_mut().map(|(id, entry)| {
            if !core::mem::replace(&mut entry.changed, true) {
                changed.push(*id);
            }
            &mut *entry.group
        })
    }

    pub fn insert(&mut self, id: GroupId, group: Box<T>) -> Option<Box<T>> {
        let before = self.remove(id);
        self.changed.push(id);
        self.groups.insert(id, Entry { group, counted: None, changed: true });
        before
    }

    pub fn remove(&mut self, id: GroupId) -> Option<Box<T>> {
        let entry = self.groups.remove(&id)?;
        if entry.changed {
            self.changed.retain(|changed| *changed != id);
        }
        self.count(id, entry.counted, None);
        Some(entry.group)
    }

    /// Looks at what has changed.
    pub fn settle(&mut self) {
        while let Some(id) = self.changed.pop() {
            let entry = self.groups.get_mut(&id).expect("what is removed has not changed");
            entry.changed = false;
            let wants = Some(entry.group.wants());
            let before = core::mem::replace(&mut entry.counted, wants);
            if before != wants {
                self.count(id, before, wants);
            }
        }
    }

    fn count(&mut self, id: GroupId, before: Option<Wants>, wants: Option<Wants>) {
        if let Some(before) = before {
            self.deadlines.remove(&(before.deadline, id));
            self.transmit.remove(&id);
            self.room -= before.room as usize;
            self.news -= before.news;
        }
        if let Some(wants) = wants {
            if wants.deadline < Instant::FAR_FUTURE {
                self.deadlines.insert((wants.deadline, id));
            }
            if wants.transmit {
                self.transmit.insert(id);
            }
            self.room += wants.room as usize;
            self.news += wants.news;
        }
    }

    /// When the first of them has something to do.
    pub fn deadline(&self) -> Instant {
        debug_assert!(self.changed.is_empty());
        self.deadlines.first().map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    /// The next that has something to send, after the one whose turn it was.
    pub fn next_to_transmit(&self, turn: GroupId) -> Option<GroupId> {
        debug_assert!(self.changed.is_empty());
        let after = (Bound::Excluded(turn), Bound::Unbounded);
        self.transmit.range(after).next().or_else(|| self.transmit.first()).copied()
    }

    /// Whether any has something to do when there is room in a session.
    pub fn wants_room(&self) -> bool {
        debug_assert!(self.changed.is_empty());
        self.room > 0
    }

    /// The news of all that are here.
    pub fn news(&self) -> u64 {
        debug_assert!(self.changed.is_empty());
        self.news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// A group that counts how often it is looked at.
    struct Watched {
        wants: Wants,
        looks: Cell<u32>,
    }

    impl Group for Watched {
        fn wants(&self) -> Wants {
            self.looks.set(self.looks.get() + 1);
            self.wants
        }
    }

    fn wants(seed: u64) -> Wants {
        let deadline =
            if seed.is_multiple_of(3) { Instant::FAR_FUTURE } else { Instant::from_nanos(seed % 17) };
        Wants { deadline, transmit: seed.is_multiple_of(5), room: seed.is_multiple_of(7), news: seed % 11 }
    }

    fn watched(seed: u64) -> Box<Watched> {
        Box::new(Watched { wants: wants(seed), looks: Cell::new(0) })
    }

    /// What a look at each would say.
    fn check(shelf: &Shelf<Watched>, turn: GroupId) {
        let all = || shelf.groups.iter().map(|(id, entry)| (*id, entry.group.wants));
        let deadline = all().map(|(_, wants)| wants.deadline).min().unwrap_or(Instant::FAR_FUTURE);
        assert_eq!(shelf.deadline(), deadline);
        assert_eq!(shelf.wants_room(), all().any(|(_, wants)| wants.room));
        assert_eq!(shelf.news(), all().map(|(_, wants)| wants.news).sum::<u64>());
        let next = all().find(|(id, wants)| *id > turn && wants.transmit);
        let next = next.or_else(|| all().find(|(_, wants)| wants.transmit));
        assert_eq!(shelf.next_to_transmit(turn), next.map(|(id, _)| id));
    }

    #[test]
    fn it_says_what_a_look_at_each_would_say() {
        let mut shelf = Shelf::default();
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (seed, id) = (state >> 40, GroupId((state >> 33) % 30));
            match (state >> 60) % 8 {
                0 | 1 => drop(shelf.insert(id, watched(seed))),
                2 => drop(shelf.remove(id)),
                3 => shelf.values_mut().for_each(|group| group.wants.news += 1),
                _ => shelf.get_mut(id).into_iter().for_each(|group| group.wants = wants(seed)),
            }
            if seed % 4 != 0 {
                shelf.settle();
                check(&shelf, GroupId(seed % 32));
            }
        }
    }

    #[test]
    fn only_groups_that_have_changed_are_looked_at() {
        let mut shelf = Shelf::default();
        (0..500).for_each(|id| drop(shelf.insert(GroupId(id), watched(id))));
        shelf.settle();
        for _ in 0..10 {
            shelf.get_mut(GroupId(250)).expect("it is here").wants.news += 1;
            shelf.settle();
            check(&shelf, GroupId(0));
        }
        let looks = |id| shelf.get(GroupId(id)).expect("it is here").looks.get();
        assert_eq!(looks(250), 11);
        assert!((0..500).all(|id| id == 250 || looks(id) == 1));
    }
}
