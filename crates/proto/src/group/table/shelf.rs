//! Groups by their ids, and what they want of the endpoint, known without a look at each: it is asked several times for
//! every datagram, also of sessions that have nothing to do with groups, and there may be a thousand of them.
//!
//! Inputs → outputs: groups, which of them may have changed, or are to follow something → which are to be driven, the
//! first deadline, whose turn it is to send. Source: none.

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
    /// Something that a session with one of its members may bring: room, or its proof.
    session: bool,
    /// How much there was so far.
    news: u64,
}

pub(super) trait Group {
    fn wants(&self) -> Wants;
}

impl Group for Sender {
    fn wants(&self) -> Wants {
        let (deadline, transmit) = (self.deadline(), self.wants_transmit());
        Wants { deadline, transmit, session: self.waits_for_session(), news: self.news }
    }
}

impl Group for Membership {
    fn wants(&self) -> Wants {
        Wants { deadline: self.deadline(), transmit: false, session: false, news: 0 }
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
    session: BTreeSet<GroupId>,
    /// These are to be driven, whatever their deadlines.
    stirred: BTreeSet<GroupId>,
    news: u64,
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        let (groups, changed, deadlines) = Default::default();
        let (transmit, session, stirred) = Default::default();
        Self { groups, changed, deadlines, transmit, session, stirred, news: 0 }
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

    /// A group that changes in a way that it need not be driven for.
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

    /// A group that something happens to that it is to be driven for.
    pub fn stir(&mut self, id: GroupId) -> Option<&mut T> {
        if self.contains(id) {
            self.stirred.insert(id);
        }
        self.get_mut(id)
    }

    /// Stirs a group that has something to do by now.
    pub fn stir_if_due(&mut self, now: Instant, id: GroupId) {
        if self.get(id).is_some_and(|group| group.wants().deadline <= now) {
            self.stirred.insert(id);
        }
    }

    /// The groups that meet a condition.
    pub fn ids(&self, meets: impl Fn(&T) -> bool) -> Vec<GroupId> {
        let meeting = self.groups.iter().filter(|(_, entry)| meets(&entry.group));
        meeting.map(|(id, _)| *id).collect()
    }

    /// A new one is to be driven.
    pub fn insert(&mut self, id: GroupId, group: Box<T>) -> Option<Box<T>> {
        let before = self.remove(id);
        self.changed.push(id);
        self.stirred.insert(id);
        self.groups.insert(id, Entry { group, counted: None, changed: true });
        before
    }

    pub fn remove(&mut self, id: GroupId) -> Option<Box<T>> {
        let entry = self.groups.remove(&id)?;
        if entry.changed {
            self.changed.retain(|changed| *changed != id);
        }
        self.stirred.remove(&id);
        self.count(id, entry.counted, None);
        Some(entry.group)
    }

    /// Looks at what has changed.
    pub fn settle(&mut self) {
        while let Some(id) = self.changed.pop() {
            let entry = self.groups.get_mut(&id).expect("what is removed has not changed");
            entry.changed = false;
            let wants = entry.group.wants();
            // After each packet: written only if it is another, for a value that is exchanged as a whole has to wait until
            // all that was stored before is in the cache, payloads that go to cold memory, too.
            if entry.counted != Some(wants) {
                let before = entry.counted.replace(wants);
                self.count(id, before, Some(wants));
            }
        }
    }

    fn count(&mut self, id: GroupId, before: Option<Wants>, wants: Option<Wants>) {
        if let Some(before) = before {
            self.deadlines.remove(&(before.deadline, id));
            self.transmit.remove(&id);
            self.session.remove(&id);
            self.news -= before.news;
        }
        if let Some(wants) = wants {
            if wants.deadline < Instant::FAR_FUTURE {
                self.deadlines.insert((wants.deadline, id));
            }
            if wants.transmit {
                self.transmit.insert(id);
            }
            if wants.session {
                self.session.insert(id);
            }
            self.news += wants.news;
        }
    }

    /// When the first of them has something to do, if none is stirred.
    pub fn deadline(&self) -> Instant {
        debug_assert!(self.changed.is_empty());
        self.deadlines.first().map_or(Instant::FAR_FUTURE, |(at, _)| *at)
    }

    /// Whether any is to be driven, whatever the time.
    pub fn is_stirred(&self) -> bool {
        !self.stirred.is_empty()
    }

    /// Time has come to `now`.
    pub fn stir_due(&mut self, now: Instant) {
        debug_assert!(self.changed.is_empty());
        let due = self.deadlines.iter().take_while(|(at, _)| *at <= now);
        self.stirred.extend(due.map(|(_, id)| *id));
    }

    /// Something has happened to a session: stirs those that it may concern.
    pub fn stir_waiting(&mut self, is_concerned: impl Fn(&T) -> bool) {
        debug_assert!(self.changed.is_empty());
        let Self { groups, session, stirred, .. } = self;
        let concerned = session.iter().filter(|id| groups.get(id).is_some_and(|it| is_concerned(&it.group)));
        stirred.extend(concerned);
    }

    /// Those that are to be driven now, which are stirred no longer.
    pub fn take_stirred(&mut self, now: Instant) -> BTreeSet<GroupId> {
        self.stir_due(now);
        core::mem::take(&mut self.stirred)
    }

    /// Those that nothing says of that they are to be driven.
    pub fn at_rest(&self, now: Instant) -> impl Iterator<Item = &T> {
        let all = self.groups.iter().filter(|(id, _)| !self.stirred.contains(id));
        all.map(|(_, entry)| &*entry.group).filter(move |group| group.wants().deadline > now)
    }

    /// The next that has something to send, after the one whose turn it was.
    pub fn next_to_transmit(&self, turn: GroupId) -> Option<GroupId> {
        debug_assert!(self.changed.is_empty());
        let after = (Bound::Excluded(turn), Bound::Unbounded);
        self.transmit.range(after).next().or_else(|| self.transmit.first()).copied()
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
        let (transmit, session) = (seed.is_multiple_of(5), seed.is_multiple_of(7));
        Wants { deadline, transmit, session, news: seed % 11 }
    }

    fn watched(seed: u64) -> Box<Watched> {
        Box::new(Watched { wants: wants(seed), looks: Cell::new(0) })
    }

    /// What a look at each would say.
    fn check(shelf: &Shelf<Watched>, turn: GroupId) {
        let all = || shelf.groups.iter().map(|(id, entry)| (*id, entry.group.wants));
        let deadline = all().map(|(_, wants)| wants.deadline).min().unwrap_or(Instant::FAR_FUTURE);
        assert_eq!(shelf.deadline(), deadline);
        assert_eq!(shelf.news(), all().map(|(_, wants)| wants.news).sum::<u64>());
        let next = all().find(|(id, wants)| *id > turn && wants.transmit);
        let next = next.or_else(|| all().find(|(_, wants)| wants.transmit));
        assert_eq!(shelf.next_to_transmit(turn), next.map(|(id, _)| id));
    }

    /// Which are driven, if a session that concerns those with even news has moved (`moved`) and it is `now`.
    fn check_driven(shelf: &mut Shelf<Watched>, now: Instant, moved: bool, stirred: &mut BTreeSet<GroupId>) {
        let due = shelf.groups.iter().filter(|(_, entry)| {
            let wants = entry.group.wants;
            wants.deadline <= now || (moved && wants.session && wants.news % 2 == 0)
        });
        stirred.extend(due.map(|(id, _)| *id));
        if moved {
            shelf.stir_waiting(|group| group.wants.news % 2 == 0);
        }
        assert_eq!(shelf.at_rest(now).count(), shelf.len() - stirred.len());
        assert_eq!(shelf.take_stirred(now), core::mem::take(stirred));
        assert!(!shelf.is_stirred());
    }

    #[test]
    fn it_says_what_a_look_at_each_would_say() {
        let (mut shelf, mut stirred) = (Shelf::default(), BTreeSet::new());
        let mut state = 1_u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (seed, id) = (state >> 40, GroupId((state >> 33) % 30));
            match (state >> 60) % 8 {
                0 | 1 => {
                    shelf.insert(id, watched(seed));
                    stirred.insert(id);
                }
                2 => {
                    shelf.remove(id);
                    stirred.remove(&id);
                }
                3 => {
                    for id in shelf.ids(|group| group.wants.transmit) {
                        shelf.get_mut(id).expect("it is here").wants.news += 1;
                    }
                }
                4 => {
                    shelf.stir_if_due(Instant::from_nanos(seed % 17), id);
                    let due = |group: &&Watched| group.wants.deadline <= Instant::from_nanos(seed % 17);
                    stirred.extend(shelf.get(id).filter(due).map(|_| id));
                }
                5 => {
                    stirred.extend(shelf.stir(id).map(|group| group.wants = wants(seed)).map(|()| id));
                }
                _ => shelf.get_mut(id).into_iter().for_each(|group| group.wants = wants(seed)),
            }
            if seed % 4 != 0 {
                shelf.settle();
                check(&shelf, GroupId(seed % 32));
                assert_eq!(shelf.is_stirred(), !stirred.is_empty());
            }
            if seed % 16 == 5 {
                check_driven(&mut shelf, Instant::from_nanos(seed % 19), seed % 32 == 5, &mut stirred);
            }
        }
    }

    #[test]
    fn only_groups_that_have_changed_are_looked_at() {
        let mut shelf = Shelf::default();
        (0..500).for_each(|id| drop(shelf.insert(GroupId(id), watched(id))));
        shelf.settle();
        let all = shelf.take_stirred(Instant::from_nanos(100));
        assert_eq!(all.len(), 500);
        for _ in 0..10 {
            shelf.stir(GroupId(250)).expect("it is here").wants.news += 1;
            shelf.settle();
            check(&shelf, GroupId(0));
            assert!(shelf.take_stirred(Instant::ZERO).contains(&GroupId(250)));
        }
        let looks = |id| shelf.get(GroupId(id)).expect("it is here").looks.get();
        assert_eq!(looks(250), 11);
        assert!((0..500).all(|id| id == 250 || looks(id) == 1));
    }
}
