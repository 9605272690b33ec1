//! What a group waits for that sessions bring, and that it waits for nothing else: a group is driven when something
//! has happened to it, when its time has come, and when one of the sessions that it waits for has moved.
//!
//! Inputs → outputs: the group's state, its members' sessions → whether a session concerns it; what was left undone, by
//! which tests find a group that waits for what nobody tells it.

use super::{Phase, Sender};
use crate::PeerId;
use crate::group::Host;
use crate::group::member::{Member, Path, Stage};

impl Sender {
    /// Whether something that a session brings is waited for: its proof, room, or the rate that it may use or leave.
    pub fn waits_for_session(&self) -> bool {
        self.phase != Phase::Over && (self.is_inviting() || self.short_of_room || self.pace.waits_for_rate())
    }

    /// Whether this session is one of those: whose process was started again is connected to when there is a place.
    pub fn waits_for(&self, peer: PeerId) -> bool {
        let waits_for_place = || self.is_inviting() && self.members.iter().any(|member| member.restarted);
        self.member_of(peer).is_some() || waits_for_place()
    }

    /// What [`drive`](Self::drive) would do before its deadline, as far as that can be told.
    pub fn left_undone(&self, host: &dyn Host) -> Option<&'static str> {
        let undone = [
            (self.phase != Phase::Over && self.leaves_uninvited(host), "OPEN"),
            (matches!(self.phase, Phase::Opening { .. }) && self.leaves_unopened(), "the end of the opening"),
            (self.phase == Phase::Over && self.dismissing, "to dismiss the members"),
            (self.keys.is_some() && self.rekey_due && self.phase != Phase::Over, "KEY"),
            (self.is_going_on() && self.leaves_unserved(host), "symbols for sessions"),
            (self.is_going_on() && self.pace.is_shut_in_vain(host), "to go on, as the rate was lifted"),
            (self.phase == Phase::Open && self.leaves_joining(), "BEGIN"),
            (self.is_going_on() && self.too_far_behind().is_some(), "to remove who is too far behind"),
            (self.is_closing() && self.leaves_unclosed(), "CLOSE, or the end"),
        ];
        undone.into_iter().find_map(|(is_left, what)| is_left.then_some(what))
    }

    fn is_going_on(&self) -> bool {
        self.phase == Phase::Open || self.is_closing()
    }

    fn leaves_uninvited(&self, host: &dyn Host) -> bool {
        self.is_inviting() && self.members.iter().any(|member| self.is_to_be_invited(member, host))
    }

    fn leaves_unopened(&self) -> bool {
        self.is_refused() || (self.all_accepted() && !self.probes_somebody())
    }

    /// Whether a symbol could be cut where all are served by sessions, or handed to one of these.
    fn leaves_unserved(&self, host: &dyn Host) -> bool {
        let is_unserved = |index: usize, member: &Member| match member.path {
            Path::Unicast { next } if member.is_active() => {
                let next = next.max(self.stream.base());
                next < self.stream.next()
                    && self.has_credit(index, next)
                    && Self::session_room(member, host) > 0
            }
            _ => false,
        };
        let may_cut = !self.uses_multicast() && self.may_cut();
        let mut members = self.members.iter().enumerate();
        may_cut || (self.pumps() && members.any(|(index, member)| is_unserved(index, member)))
    }

    /// Whether somebody who has accepted could begin.
    fn leaves_joining(&self) -> bool {
        let accepted = |index: usize| self.members[index].stage == Stage::Accepted;
        !self.stream.is_within_message() && self.joining.iter().any(|joining| accepted(joining.member))
    }

    fn leaves_unclosed(&self) -> bool {
        // With what is under way: it is asked about in time, if nobody says that it has come.
        let all_came = self.stream.is_drained() && self.stream.acked() == self.stream.next();
        let unsaid = self.phase == (Phase::Closing { said: false }) && all_came;
        unsaid || !self.joining.is_empty() || self.members.counts().active == 0
    }
}
