//! The members of a cast as their sender sees them, without sockets: who is where, and what goes to
//! whom next.
//!
//! Inputs → outputs: what members said, what was sent → the next piece of the group, the next one of
//! a member that is served by itself, whether all is done. There are no rounds and no history: as
//! long as a member misses pieces, what its path still has to carry goes out; so one that comes late,
//! or comes back, costs the others nothing. Source: `spec/cast.md` §5.

use crate::message::FailureCode;
use crate::pieces::{PieceSet, Range};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Pieces remembered with the number of the group's message they went in, for members that join.
const RECENT: usize = 64;

/// Where a member is in the cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It has not been heard of, or not since it vanished.
    Absent {
        /// Why it is believed to be gone; `None`: it was never there.
        why: Option<String>,
    },
    /// It is there, and has not said what it misses.
    Invited,
    /// It gets pieces.
    Receiving,
    /// It has everything, verified, in its place.
    Complete {
        /// When it said so.
        at: Instant,
    },
    /// It has given up, or was given up.
    Failed {
        /// Why.
        text: String,
        /// What kind, where it said so itself.
        code: Option<FailureCode>,
    },
}

/// How a member gets its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// By its session.
    Alone,
    /// It is to be a member of the group, with this id there, and gets nothing till it is: the group says when it is,
    /// or will not be.
    Joining(u32),
    /// By the group.
    Group(u32),
}

/// One member.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its address.
    pub addr: SocketAddr,
    /// What it calls itself.
    pub name: String,
    /// Where it is.
    pub state: State,
    /// How it gets pieces.
    pub path: Path,
    /// It takes pieces in ascending order only.
    pub ordered: bool,
    /// It was in a group and did not keep up, or could not join one.
    pub no_group: bool,
    /// It did not answer when the cast began, and was not heard of since: a group would wait for it.
    pub silent: bool,
    /// Not sent to it, or lost on the way.
    pub wanted: PieceSet,
    /// It was asked what it misses, and has not said so: it may be more than what is wanted.
    pub asked: bool,
    /// It has asked for pieces of the body: it has the manifest.
    pub ready: bool,
    /// Bytes of the body that it says it has.
    pub bytes: u64,
    /// Bytes it had before it was sent any.
    pub resumed_bytes: u64,
    /// When it last said that it has more.
    pub progress_at: Instant,
    /// When it first said what it misses.
    pub began: Option<Instant>,
    /// It receives something else, has left before it had come, or takes part by another address.
    pub elsewhere: bool,
    /// Which start of its process has found this sender, if it was not listed.
    pub incarnation: Option<u64>,
    /// Its session was ended before it had all of a stream: it can only begin anew.
    pub begins_anew: bool,
}

impl Member {
    /// Whether it takes part now.
    pub fn is_active(&self) -> bool {
        matches!(self.state, State::Invited | State::Receiving)
    }

    /// Whether nothing more is to be expected of it or done for it.
    pub fn is_settled(&self) -> bool {
        self.elsewhere || matches!(self.state, State::Complete { .. } | State::Failed { .. })
    }

    /// Whether it has given up for its disk's sake: its user may make room and start it again.
    pub fn may_be_started_again(&self) -> bool {
        matches!(self.state, State::Failed { code: Some(FailureCode::Full | FailureCode::Storage), .. })
    }

    /// Whether it is there, or there is nothing to wait for.
    pub fn has_come(&self) -> bool {
        !self.elsewhere && (self.ready || self.is_settled())
    }

    /// Whether all that there is has been sent to it.
    pub fn is_up_to_date(&self) -> bool {
        self.wanted.is_empty() && !self.asked
    }

    /// Why it was given up, which it may not have heard yet. Others know how it ended for them.
    pub fn last_word(&self) -> Option<&str> {
        match &self.state {
            State::Failed { text, code: None } => Some(text),
            _ => None,
        }
    }

    fn gets_from_group(&self) -> bool {
        self.state == State::Receiving && matches!(self.path, Path::Group(_))
    }
}

/// All members of a cast.
#[derive(Debug)]
pub struct Roster {
    /// In the order in which they came, or are listed.
    pub members: Vec<Member>,
    manifest_pieces: u32,
    pieces: u32,
    cursor: u32,
    recent: std::collections::VecDeque<(u64, u32)>,
}

impl Roster {
    /// Nobody yet. `pieces` of which the first `manifest_pieces` are the manifest's.
    pub fn new(manifest_pieces: u32, pieces: u32) -> Self {
        let recent = std::collections::VecDeque::new();
        Self { members: Vec::new(), manifest_pieces, pieces, cursor: 0, recent }
    }

    /// The member at an address, a new one if there is none; its place.
    pub fn member_at(&mut self, addr: SocketAddr, now: Instant) -> usize {
        if let Some(known) = self.members.iter().position(|member| member.addr == addr) {
            return known;
        }
        self.members.push(Member {
            addr,
            name: String::new(),
            state: State::Absent { why: None },
            path: Path::Alone,
            ordered: false,
            no_group: false,
            silent: false,
            wanted: PieceSet::new(self.pieces),
            asked: false,
            ready: false,
            bytes: 0,
            resumed_bytes: 0,
            progress_at: now,
            began: None,
            elsewhere: false,
            incarnation: None,
            begins_anew: false,
        });
        self.members.len() - 1
    }

    /// A member misses these.
    pub fn want(&mut self, index: usize, ranges: &[Range], ordered: bool, now: Instant) {
        let (before, pieces) = (self.manifest_pieces, self.pieces);
        let member = &mut self.members[index];
        (member.elsewhere, member.begins_anew) = (false, false);
        if member.is_settled() && !member.may_be_started_again() {
            return;
        }
        member.state = State::Receiving;
        member.ordered |= ordered;
        member.asked = false;
        member.progress_at = now;
        member.wanted.grow(pieces);
        ranges.iter().for_each(|range| member.wanted.insert_range(*range));
        let body = |&(first, count): &Range| first.saturating_add(count) > before;
        // Nothing missing is said by one that has the manifest, too.
        if ranges.iter().any(body) || ranges.is_empty() {
            member.ready = true;
            member.began.get_or_insert(now);
        }
        // What it misses may be behind what the group is at.
        if member.gets_from_group() {
            self.cursor = 0;
        }
    }

    /// There are more pieces: a stream goes on.
    pub fn grow(&mut self, pieces: u32) {
        for member in self.members.iter_mut().filter(|member| member.ready && !member.is_settled()) {
            member.wanted.grow(pieces);
            member.wanted.insert_range((self.pieces, pieces.saturating_sub(self.pieces)));
        }
        self.pieces = self.pieces.max(pieces);
    }

    /// Those who get what the group gets.
    pub fn in_group(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|index| self.members[*index].gets_from_group()).collect()
    }

    /// The next piece for the group; the lowest that one of its members misses, then those behind it.
    pub fn next_for_group(&self) -> Option<u32> {
        let next = |from| {
            let group = self.members.iter().filter(|member| member.gets_from_group());
            group.filter_map(|member| member.wanted.next_from(from)).min()
        };
        next(self.cursor).or_else(|| next(0))
    }

    /// A piece went to the group, in its message `number`.
    pub fn sent_to_group(&mut self, piece: u32, number: u64) {
        for member in self.members.iter_mut().filter(|member| member.gets_from_group()) {
            member.wanted.remove(piece);
        }
        self.cursor = piece + 1;
        self.recent.push_back((number, piece));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// The next piece for a member that is served by itself.
    pub fn next_alone(&self, index: usize) -> Option<u32> {
        let member = &self.members[index];
        let alone = member.state == State::Receiving && member.path == Path::Alone;
        if alone { member.wanted.next_from(0) } else { None }
    }

    /// A piece went to a member by its session.
    pub fn sent_alone(&mut self, index: usize, piece: u32) {
        self.members[index].wanted.remove(piece);
    }

    /// A member gets what the group gets, from the group's message `first_message` on.
    pub fn joined(&mut self, id: u32, first_message: u64) {
        let joining = |member: &&mut Member| matches!(member.path, Path::Joining(of) if of == id);
        let Some(member) = self.members.iter_mut().find(joining) else { return };
        member.path = Path::Group(id);
        for (_, piece) in self.recent.iter().filter(|(number, _)| *number >= first_message) {
            member.wanted.remove(*piece);
        }
    }

    /// The member with an id of the group is not in it any more. Its place, if what it has got is not
    /// known now, and it has to be asked.
    pub fn departed(&mut self, id: u32) -> Option<usize> {
        let of = |member: &Member| matches!(member.path, Path::Group(of) | Path::Joining(of) if of == id);
        let index = self.members.iter().position(of)?;
        let member = &mut self.members[index];
        member.path = Path::Alone;
        member.no_group = true;
        if !member.is_active() {
            return None;
        }
        member.wanted.clear();
        member.asked = true;
        Some(index)
    }

    /// A new group begins, with what the one misses who misses least: it is not to wait for what was sent before
    /// others came. Not where pieces have to come in order.
    pub fn begin_group(&mut self, members: &[usize]) {
        self.recent.clear();
        let of_group = || members.iter().map(|index| &self.members[*index]);
        let least = of_group().min_by_key(|member| member.wanted.count());
        let first = least.and_then(|member| member.wanted.next_from(0));
        self.cursor = first.filter(|_| !of_group().any(|member| member.ordered)).unwrap_or(0);
        for (id, index) in members.iter().enumerate() {
            self.members[*index].path = Path::Group(id as u32);
        }
    }

    /// The session with a member is over.
    pub fn lost(&mut self, index: usize, why: String) {
        let member = &mut self.members[index];
        // Why it went says more than that it does not answer since.
        let gone = matches!(member.state, State::Absent { why: Some(_) });
        if !member.is_settled() && !gone {
            member.state = State::Absent { why: Some(why) };
        }
        // When it is back it says what it has; and it is as good as a new one.
        member.wanted.clear();
        member.asked = false;
        member.ready = false;
        (member.no_group, member.silent) = (false, false);
        member.path = Path::Alone;
    }

    /// A member that was not listed receives something else, or has left. It is not waited for, and nothing is
    /// told of it, until it says what it misses after all.
    pub fn went_elsewhere(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.state = State::Absent { why: None };
        member.elsewhere = true;
    }

    /// The others that are the same receiver: it has found this sender at several addresses.
    pub fn twins(&self, index: usize) -> Vec<usize> {
        let Some(own) = self.members[index].incarnation else { return Vec::new() };
        let is_twin = |other: &usize| *other != index && self.members[*other].incarnation == Some(own);
        (0..self.members.len()).filter(is_twin).collect()
    }

    /// By which of its addresses a receiver takes part, or did until its session there was lost; this one, if by none.
    pub fn part_of(&self, index: usize) -> usize {
        let begun = |part: &usize| !self.members[*part].elsewhere && self.members[*part].began.is_some();
        [index].into_iter().chain(self.twins(index)).find(begun).unwrap_or(index)
    }

    /// Whether a receiver takes part by another of its addresses.
    pub fn has_begun_elsewhere(&self, index: usize) -> bool {
        let has_begun = |twin: usize| {
            let twin = &self.members[twin];
            !twin.elsewhere && (twin.is_settled() || twin.state == State::Receiving)
        };
        self.twins(index).into_iter().any(has_begun)
    }

    /// Those that are of this cast.
    pub fn counted(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.elsewhere)
    }

    /// Those who could be in a group and are not. A stream has nothing yet that they could miss.
    pub fn eligible(&self) -> Vec<usize> {
        let fits = |member: &Member| {
            member.state == State::Receiving
                && member.path == Path::Alone
                && member.ready
                && !member.no_group
                && !member.silent
                && (member.ordered || !member.wanted.is_empty())
        };
        (0..self.members.len()).filter(|index| fits(&self.members[*index])).collect()
    }

    /// Those who wait with the sender are not behind: for the beginning, and once they have what a stream that
    /// goes on has brought `so_far`, bytes. That all of it is on the way to them does not count.
    pub fn note_waiting(&mut self, gathering: bool, so_far: Option<u64>, now: Instant) {
        let waits = |member: &Member| member.ready && (gathering || so_far == Some(member.bytes));
        self.members.iter_mut().filter(|member| waits(member)).for_each(|member| member.progress_at = now);
    }

    /// Nobody could be heard for so long.
    pub fn excuse(&mut self, away: Duration) {
        self.members.iter_mut().for_each(|member| member.progress_at += away);
    }

    /// The member of the group that has been without progress for `limit`, if there is one.
    pub fn stuck(&self, now: Instant, limit: Duration) -> Option<usize> {
        let stuck = |m: &Member| m.is_active() && now.saturating_duration_since(m.progress_at) > limit;
        self.members.iter().position(stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// Members that each miss `wants`, of 1 + 4 pieces; the first `grouped` are in a group.
    fn roster(wants: &[Range], grouped: usize) -> Roster {
        let now = Instant::now();
        let mut roster = Roster::new(1, 5);
        for (port, want) in wants.iter().enumerate() {
            let index = roster.member_at(addr(port as u16), now);
            roster.want(index, &[*want], false, now);
        }
        roster.begin_group(&(0..grouped).collect::<Vec<_>>());
        roster
    }

    fn drain_group(roster: &mut Roster) -> Vec<u32> {
        let mut sent = Vec::new();
        while let Some(piece) = roster.next_for_group() {
            roster.sent_to_group(piece, sent.len() as u64);
            sent.push(piece);
        }
        sent
    }

    #[test]
    fn the_group_gets_what_any_of_its_members_misses_once() {
        let mut roster = roster(&[(1, 2), (2, 3), (1, 1)], 2);
        assert_eq!(drain_group(&mut roster), [1, 2, 3, 4]);
        assert_eq!(roster.next_alone(2), Some(1), "the third is by itself");
        roster.sent_alone(2, 1);
        assert_eq!(roster.next_alone(2), None);
    }

    #[test]
    fn one_that_joins_late_gets_the_rest_with_the_others_and_then_what_it_missed() {
        let mut roster = roster(&[(1, 4), (1, 4), (1, 4)], 2);
        roster.sent_to_group(1, 0);
        roster.sent_to_group(2, 1);
        assert_eq!(roster.eligible(), [2]);
        roster.members[2].path = Path::Joining(2);
        assert_eq!((roster.next_alone(2), roster.next_for_group()), (None, Some(3)));
        roster.sent_to_group(3, 2);
        roster.joined(2, 2);
        assert_eq!(drain_group(&mut roster), [4, 1, 2], "message 2, piece 3, reached it");
    }

    #[test]
    fn one_that_was_alone_gets_its_rest_before_what_is_behind_it_for_another() {
        let mut late = roster(&[(3, 2), (1, 4)], 2);
        assert_eq!(drain_group(&mut late), [3, 4, 1, 2], "the first is through as soon as without the other");
        let mut in_order = roster(&[(3, 2), (1, 4)], 0);
        in_order.want(1, &[], true, Instant::now());
        in_order.begin_group(&[0, 1]);
        assert_eq!(drain_group(&mut in_order), [1, 2, 3, 4], "the other's is a pipe");
    }

    #[test]
    fn one_that_leaves_the_group_is_asked_again_and_served_alone() {
        let mut roster = roster(&[(1, 4), (1, 4)], 2);
        roster.sent_to_group(1, 0);
        assert_eq!(roster.departed(1), Some(1));
        assert_eq!(roster.departed(1), None);
        assert_eq!(roster.next_alone(1), None, "what it has is not known");
        assert!(!roster.members[1].is_up_to_date(), "nor that it has all");
        roster.want(1, &[(1, 4)], false, Instant::now());
        assert_eq!(roster.next_alone(1), Some(1));
        assert!(roster.eligible().is_empty(), "it did not keep up");
        roster.lost(1, "gone".into());
        assert_eq!(roster.members[1].state, State::Absent { why: Some("gone".into()) });
        roster.want(1, &[(3, 1)], false, Instant::now());
        assert_eq!((roster.next_alone(1), roster.eligible()), (Some(3), vec![1]), "only what is missing");
    }

    #[test]
    fn who_is_through_or_has_failed_by_itself_has_nothing_more_to_hear() {
        let mut roster = roster(&[(1, 4), (1, 4), (1, 4)], 3);
        roster.members[0].state = State::Complete { at: Instant::now() };
        roster.members[1].state =
            State::Failed { text: "full".into(), code: Some(crate::message::FailureCode::Full) };
        roster.members[2].state = State::Failed { text: "too late".into(), code: None };
        let words: Vec<_> = roster.members.iter().map(Member::last_word).collect();
        assert_eq!(words, [None, None, Some("too late")], "a process that has ended never acknowledges one");
    }

    #[test]
    fn a_stream_grows_for_those_who_have_begun() {
        let now = Instant::now();
        let mut roster = Roster::new(1, 1);
        let index = roster.member_at(addr(1), now);
        roster.want(index, &[(0, 1)], false, now);
        assert_eq!(roster.next_alone(index), Some(0));
        roster.sent_alone(index, 0);
        roster.want(index, &[(1, u32::MAX - 1)], true, now);
        assert_eq!(roster.next_alone(index), None);
        roster.grow(3);
        assert_eq!(roster.next_alone(index), Some(1));
        assert!(roster.stuck(now + Duration::from_secs(2), Duration::from_secs(1)).is_some());
    }

    #[test]
    fn one_that_does_not_take_what_a_stream_has_brought_is_stuck_though_all_of_it_is_on_the_way() {
        let (began, limit) = (Instant::now(), Duration::from_secs(60));
        let later = began + limit * 2;
        let mut roster = Roster::new(1, 2);
        let index = roster.member_at(addr(1), began);
        roster.want(index, &[(1, u32::MAX - 1)], true, began);
        roster.sent_alone(index, 1);
        assert!(roster.members[index].wanted.is_empty());
        roster.note_waiting(false, Some(7), later);
        assert_eq!(roster.stuck(later, limit), Some(index));
        roster.members[index].bytes = 7;
        roster.note_waiting(false, None, later);
        assert_eq!(
            roster.stuck(later, limit),
            Some(index),
            "the stream has ended, and it has not said that it is through"
        );
        roster.note_waiting(false, Some(7), later);
        assert_eq!(roster.stuck(later, limit), None, "it waits for more with us");
        roster.excuse(limit);
        assert_eq!(roster.stuck(later + limit * 3 / 2, limit), None, "it could not be heard");
    }
}
