//! The members of a group and what is least over them (M3, M5, M6).
//!
//! Inputs → outputs: members as they are changed, one at a time → how many there are of each kind, and the
//! minima that the group's values are. Kept up to date with each change, so that neither a report nor a
//! symbol costs its opener anything that grows with the number of members. Source: M3's `tcp_gci`.

use super::MAX_MEMBERS;
use super::member::{Member, Path, Stage};
use crate::event::PeerId;
use core::ops::{Deref, DerefMut};
use std::collections::{BTreeMap, VecDeque};

/// So many of those who have gone keep their places, for the application to see: each costs half a kilobyte, and a look.
const MAX_GONE: usize = 64;

/// Where the member with an id is, or was: a place is used again, an id never.
pub(crate) fn place(id: u32) -> usize {
    id as usize % MAX_MEMBERS
}

/// A minimum, and how many have it: only when the last of them rises is it looked for again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Least {
    value: u64,
    holders: usize,
}

impl Least {
    fn enter(&mut self, value: u64) {
        if self.holders == 0 || value < self.value {
            *self = Self { value, holders: 1 };
        } else if value == self.value {
            self.holders += 1;
        }
    }

    /// Whether it is known still.
    fn leave(&mut self, value: u64) -> bool {
        self.holders -= (value == self.value) as usize;
        self.holders > 0
    }

    fn get(&self) -> Option<u64> {
        (self.holders > 0).then_some(self.value)
    }
}

/// What of a member enters into minima: those whom the others wait for have these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Share {
    next: u64,
    limit: u64,
    /// Cost begun below which a message of any size may follow: its application has taken all before.
    idle: u64,
    credit: u64,
}

/// What of a member enters into counts and minima.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// OPEN has still to be sent to it.
    uninvited: bool,
    accepted: bool,
    active: bool,
    by_address: bool,
    by_session: bool,
    lagging: bool,
    gone: bool,
    share: Option<Share>,
}

impl Standing {
    fn of(member: &Member) -> Self {
        let active = member.is_active();
        let share = Share {
            next: member.next,
            limit: member.limit,
            idle: (member.limit + 1).saturating_sub(member.credit),
            credit: member.credit,
        };
        Self {
            uninvited: matches!(member.stage, Stage::Invited) && !member.told,
            accepted: member.stage == Stage::Accepted,
            active,
            by_address: active && member.path == Path::Multicast,
            by_session: active && matches!(member.path, Path::Unicast { .. }),
            lagging: active && member.lagging,
            gone: member.is_gone(),
            share: member.counts().then_some(share),
        }
    }
}

/// How many members there are of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// OPEN has still to be sent to them.
    pub uninvited: usize,
    /// They have accepted, and are not sent anything yet.
    pub accepted: usize,
    /// Taking part.
    pub active: usize,
    /// Of these, served by the group's address …
    pub by_address: usize,
    /// … and by the opener's session with them.
    pub by_session: usize,
    /// Of these, those nobody waits for.
    pub lagging: usize,
}

/// Minima over the members that the others wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Minima {
    next: Least,
    limit: Least,
    idle: Least,
    credit: Least,
}

impl Minima {
    fn enter(&mut self, share: &Share) {
        self.next.enter(share.next);
        self.limit.enter(share.limit);
        self.idle.enter(share.idle);
        self.credit.enter(share.credit);
    }

    /// Whether all are known still.
    fn leave(&mut self, share: &Share) -> bool {
        let known = [
            self.next.leave(share.next),
            self.limit.leave(share.limit),
            self.idle.leave(share.idle),
            self.credit.leave(share.credit),
        ];
        known.into_iter().all(|known| known)
    }
}

/// All members, and the last of those who have gone, by their places. Read as a slice; changed by [`edit`](Self::edit).
#[derive(Debug, Default)]
pub(crate) struct Roll {
    members: Vec<Member>,
    /// The places of those who have gone, the first to go in front.
    gone: VecDeque<usize>,
    /// The newest member with each session: one that left and joined again has two entries.
    by_peer: BTreeMap<PeerId, usize>,
    counts: Counts,
    minima: Minima,
}

impl Roll {
    /// The id of the next member, whose place may have been another's; `None`: there is no room for one.
    pub fn next_id(&self) -> Option<u32> {
        let fresh = (self.members.len() < MAX_MEMBERS).then_some(self.members.len() as u32);
        let again = || self.gone.iter().find_map(|at| self.members[*at].id.checked_add(MAX_MEMBERS as u32));
        fresh.filter(|_| self.gone.len() <= MAX_GONE).or_else(again).or(fresh)
    }

    /// The place of the member with this id, if nobody else has it by now.
    pub fn find(&self, id: u32) -> Option<usize> {
        self.members.get(place(id)).filter(|member| member.id == id).map(|_| place(id))
    }

    /// Adds a member with the id that [`next_id`](Self::next_id) says.
    pub fn push(&mut self, member: Member) {
        let (at, standing) = (place(member.id), Standing::of(&member));
        if let Some(before) = self.members.get(at).map(|before| before.peer) {
            if let Some(first) = self.gone.iter().position(|gone| *gone == at) {
                self.gone.remove(first);
            }
            if self.by_peer.get(&before) == Some(&at) {
                self.by_peer.remove(&before);
            }
        }
        self.by_peer.insert(member.peer, at);
        match self.members.get_mut(at) {
            Some(before) => *before = member,
            None => self.members.push(member),
        }
        self.count(&standing, true);
        if let Some(share) = standing.share {
            self.minima.enter(&share);
        }
    }

    /// The newest member with this session.
    pub fn of_peer(&self, peer: PeerId) -> Option<usize> {
        self.by_peer.get(&peer).copied()
    }

    /// A member's session is another one.
    pub fn set_peer(&mut self, index: usize, peer: PeerId) {
        let before = core::mem::replace(&mut self.members[index].peer, peer);
        if self.by_peer.get(&before) == Some(&index) {
            self.by_peer.remove(&before);
        }
        self.by_peer.insert(peer, index);
    }

    /// Lends a member to be changed.
    pub fn edit(&mut self, index: usize) -> Edit<'_> {
        let before = Standing::of(&self.members[index]);
        Edit { roll: self, index, before }
    }

    /// Changes all members.
    pub fn edit_all(&mut self, mut change: impl FnMut(&mut Member)) {
        (0..self.members.len()).for_each(|index| change(&mut self.edit(index)));
    }

    /// How many there are of each kind.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// First symbol that not everybody who counts has (M5); `None`: nobody counts.
    pub fn least_next(&self) -> Option<u64> {
        self.minima.next.get()
    }

    /// Least limit of those who count (M6).
    pub fn least_limit(&self) -> Option<u64> {
        self.minima.limit.get()
    }

    /// Least credit of those who count.
    pub fn least_credit(&self) -> Option<u64> {
        self.minima.credit.get()
    }

    /// Whether all who count allow a message of this cost to be begun (M6).
    pub fn may_begin(&self, begun: u64, cost: u64) -> bool {
        let within = self.least_limit().is_none_or(|limit| begun + cost <= limit);
        let idle = || self.minima.idle.get().is_none_or(|idle| begun < idle);
        // Some may be idle and the others have room.
        let each = || self.members.iter().filter(|member| member.counts()).all(|m| m.may_begin(begun, cost));
        within || idle() || (self.uneven() && each())
    }

    /// Whether those who count have granted different credits.
    fn uneven(&self) -> bool {
        let counting = self.counts.active - self.counts.lagging;
        self.minima.credit.holders < counting
    }

    fn count(&mut self, standing: &Standing, comes: bool) {
        let Counts { uninvited, accepted, active, by_address, by_session, lagging } = &mut self.counts;
        let kinds = [
            (uninvited, standing.uninvited),
            (accepted, standing.accepted),
            (active, standing.active),
            (by_address, standing.by_address),
            (by_session, standing.by_session),
            (lagging, standing.lagging),
        ];
        for (count, is_one) in kinds {
            *count = if comes { *count + is_one as usize } else { *count - is_one as usize };
        }
    }

    fn changed(&mut self, index: usize, before: &Standing) {
        let after = Standing::of(&self.members[index]);
        if after == *before {
            return;
        }
        if after.gone && !before.gone {
            self.gone.push_back(index);
        }
        self.count(before, false);
        self.count(&after, true);
        if after.share == before.share {
            return;
        }
        let known = before.share.is_none_or(|share| self.minima.leave(&share));
        if !known {
            self.minima = Minima::default();
            let shares = self.members.iter().filter_map(|member| Standing::of(member).share);
            shares.for_each(|share| self.minima.enter(&share));
        } else if let Some(share) = after.share {
            self.minima.enter(&share);
        }
    }
}

impl Deref for Roll {
    type Target = [Member];

    fn deref(&self) -> &[Member] {
        &self.members
    }
}

/// A member that is being changed; what that means for the group is worked out when it is given back.
#[derive(Debug)]
pub(crate) struct Edit<'a> {
    roll: &'a mut Roll,
    index: usize,
    before: Standing,
}

impl Deref for Edit<'_> {
    type Target = Member;

    fn deref(&self) -> &Member {
        &self.roll.members[self.index]
    }
}

impl DerefMut for Edit<'_> {
    fn deref_mut(&mut self) -> &mut Member {
        &mut self.roll.members[self.index]
    }
}

impl Drop for Edit<'_> {
    fn drop(&mut self) {
        self.roll.changed(self.index, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Departure;
    use crate::rtt::Rtt;
    use core::time::Duration;
    use denrei_wire::Instant;
    use proptest::prelude::*;

    fn member(id: u32) -> Member {
        let (addr, peer) = ("10.0.0.1:7".parse().unwrap(), PeerId { slot: id, generation: 0 });
        let rtt = Rtt::new(Duration::from_micros(100), Duration::ZERO, Duration::from_secs(20));
        Member::new(id, addr, peer, Instant::ZERO, rtt)
    }

    fn change(member: &mut Member, what: u8, value: u64) {
        match what {
            0 => member.next += value,
            1 => member.limit += value,
            2 => member.credit = value,
            3 => member.lagging = value.is_multiple_of(2),
            4 => {
                member.stage = match value % 3 {
                    0 => Stage::Closed,
                    1 => Stage::Active,
                    _ => Stage::Accepted,
                }
            }
            5 => {
                member.path =
                    if value.is_multiple_of(2) { Path::Multicast } else { Path::Unicast { next: 0 } }
            }
            _ => member.told = value.is_multiple_of(2),
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_what_a_look_at_all_members_finds(
            changes in proptest::collection::vec((0usize..5, 0u8..7, 0u64..6), 0..200),
            (begun, cost) in (0u64..40, 1u64..20),
        ) {
            let mut roll = Roll::default();
            (0..5).for_each(|id| roll.push(member(id)));
            for (index, what, value) in changes {
                change(&mut roll.edit(index), what, value);
                let counting = || roll.iter().filter(|member| member.counts());
                prop_assert_eq!(roll.least_next(), counting().map(|member| member.next).min());
                prop_assert_eq!(roll.least_limit(), counting().map(|member| member.limit).min());
                prop_assert_eq!(roll.least_credit(), counting().map(|member| member.credit).min());
                let may = counting().all(|member| member.may_begin(begun, cost));
                prop_assert_eq!(roll.may_begin(begun, cost), may);
                let of = |is: fn(&&Member) -> bool| roll.iter().filter(is).count();
                let counts = Counts {
                    uninvited: of(|member| member.stage == Stage::Invited && !member.told),
                    accepted: of(|member| member.stage == Stage::Accepted),
                    active: of(|member| member.is_active()),
                    by_address: of(|member| member.is_active() && member.path == Path::Multicast),
                    by_session: of(|member| member.is_active() && member.path != Path::Multicast),
                    lagging: of(|member| member.is_active() && member.lagging),
                };
                prop_assert_eq!(roll.counts(), counts);
            }
        }
    }

    #[test]
    fn places_of_the_gone_are_used_again_under_ids_that_nobody_had() {
        let mut roll = Roll::default();
        let mut ids = std::collections::BTreeSet::new();
        let leave = |roll: &mut Roll, at: usize| roll.edit(at).stage = Stage::Gone(Departure::Left);
        for _ in 0..3 * MAX_MEMBERS {
            let id = roll.next_id().expect("there is room for one that stays");
            assert!(ids.insert(id) && roll.find(id).is_none());
            roll.push(member(id));
            assert_eq!(roll.find(id), roll.of_peer(member(id).peer));
            leave(&mut roll, place(id));
        }
        assert!(roll.len() <= MAX_GONE + 1, "{} places", roll.len());
        assert_eq!(roll.find(0), None);
        assert_eq!(roll.of_peer(member(0).peer), None, "what it says late is not another's word");
        assert_eq!(roll.by_peer.len(), roll.len());
    }

    #[test]
    fn a_full_roll_has_room_again_as_soon_as_one_has_gone() {
        let mut roll = Roll::default();
        (0..MAX_MEMBERS as u32).for_each(|id| roll.push(member(id)));
        assert_eq!(roll.next_id(), None);
        roll.edit(7).stage = Stage::Gone(Departure::Left);
        assert_eq!(roll.next_id(), Some(7 + MAX_MEMBERS as u32));
        roll.push(member(7 + MAX_MEMBERS as u32));
        assert_eq!((roll.next_id(), roll.find(7)), (None, None));
    }

    #[test]
    fn a_place_whose_ids_are_used_up_is_left() {
        let mut roll = Roll::default();
        (0..=MAX_GONE as u32).for_each(|id| roll.push(member(id)));
        roll.edit_all(|member| member.stage = Stage::Gone(Departure::Left));
        roll.members[0].id = u32::MAX - MAX_MEMBERS as u32 + 1;
        assert_eq!(roll.next_id(), Some(1 + MAX_MEMBERS as u32));
    }

    #[test]
    fn a_session_is_that_of_the_newest_member_with_it() {
        let mut roll = Roll::default();
        roll.push(member(0));
        roll.push(member(1));
        roll.push(Member { id: 2, ..member(0) });
        let peer = roll[0].peer;
        assert_eq!(roll.of_peer(peer), Some(2));
        assert_eq!(roll.of_peer(roll[1].peer), Some(1));
    }
}
