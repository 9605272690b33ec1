//! A tree of relays that grows together again.
//!
//! Inputs → outputs: whom the opener serves by their sessions beyond its own share, as they joined late, lost their relay,
//! hear nothing from it or have caught up → below whom each is from now on, and when the opener leaves it to that one.
//! Without it the opener would send everything once more for each of them, for as long as the group lives.

use super::Sender;
use crate::group::Host;
use crate::group::member::{Graft, Member, Path};
use crate::group::roll::place;
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::BTreeSet;

/// How often it is looked who is to be where, while symbols flow: in so long a relay has heard of its child.
const PAUSE: Duration = Duration::from_millis(250);

impl Sender {
    /// Puts members below others, and leaves to these who has been for long enough.
    pub(super) fn graft(&mut self, now: Instant, host: &mut dyn Host) {
        // Who reports to its parent is spoken for by that one, and who may hear the group's address again needs no relay.
        let may = self.tree.relays && !self.tree.joins && !self.uses_multicast() && !self.is_closing();
        if !may || self.tree.grafts_at.is_some_and(|at| now < at) {
            return;
        }
        self.tree.grafts_at = Some(now + PAUSE);
        let mut changed = BTreeSet::new();
        for index in 0..self.members.len() {
            self.advance_graft(index);
            changed.extend(self.leave_relay(now, index).into_iter().flatten());
        }
        self.put_below(now, &mut changed);
        changed.into_iter().for_each(|id| self.tell_route(now, id, host));
    }

    /// Whom the opener serves as its relay brought it nothing is taken from that one, which would go on to send it the
    /// same: it, and whose child it was.
    fn leave_relay(&mut self, now: Instant, index: usize) -> Option<[u32; 2]> {
        let member = &self.members[index];
        let strays =
            member.counts() && matches!(member.path, Path::Unicast { .. }) && member.graft == Graft::None;
        if !strays {
            return None;
        }
        let id = member.id;
        let parent = self.tree.detach(id)?;
        self.members.edit(index).stray(now, parent);
        Some([id, parent])
    }

    /// Whether nobody shall wait for what a member hands on: it held others up of late, or stands still.
    fn is_slow(&self, now: Instant, member: &Member) -> bool {
        member.lagged.is_on(now) || (self.holds_up(member) && member.progress_at + PAUSE <= now)
    }

    /// What was sent before the relay heard of its child the opener hands to that one itself.
    fn advance_graft(&mut self, index: usize) {
        let member = &self.members[index];
        let Path::Unicast { next } = member.path else { return };
        let parent = self.tree.has_parent(member.id) && member.counts();
        let (graft, path) = match member.graft {
            Graft::None => return,
            _ if !parent => (Graft::None, member.path),
            Graft::Told => (Graft::Until(self.stream.next()), member.path),
            Graft::Until(end) if next >= end => (Graft::None, Path::Relay),
            Graft::Until(_) => return,
        };
        let mut member = self.members.edit(index);
        (member.graft, member.path) = (graft, path);
    }

    /// Those who take part, whom the opener serves, and nobody else.
    fn roots(&self) -> Vec<u32> {
        let served = |member: &&Member| {
            member.counts() && matches!(member.path, Path::Unicast { .. }) && !self.tree.has_parent(member.id)
        };
        self.members.iter().filter(served).map(|member| member.id).collect()
    }

    /// Finds a place for the roots that are more than the opener's share, from the top of the tree on; who has another
    /// parent or child then is `changed`.
    fn put_below(&mut self, now: Instant, changed: &mut BTreeSet<u32>) {
        let by_session = |member: &&Member| member.counts() && member.path != Path::Multicast;
        let fan_out = self.fan_out(self.members.iter().filter(by_session).count());
        let mut roots = self.roots();
        if roots.len() <= fan_out {
            return;
        }
        let is_slow = |id: u32| self.is_slow(now, &self.members[place(id)]);
        // Who serves many already, and does not hold anybody up, stays at the top.
        roots.sort_by_key(|id| (is_slow(*id), core::cmp::Reverse(self.tree.children(*id).len()), *id));
        let mut hosts: Vec<u32> = roots[..fan_out].to_vec();
        let mut at = 0;
        for child in roots.split_off(fan_out) {
            if self.members[place(child)].strayed.is_on(now) {
                continue;
            }
            let Some(parent) = self.place_below(now, &mut hosts, &mut at, fan_out) else { break };
            let parent = self.other_place(now, child, &hosts[at..], fan_out).unwrap_or(parent);
            self.tree.insert(child, parent);
            self.members.edit(place(child)).graft = Graft::Told;
            changed.extend([parent, child]);
        }
    }

    /// Whether a member may have one child more.
    fn may_host(&self, now: Instant, id: u32, fan_out: usize) -> bool {
        let member = &self.members[place(id)];
        let serves = member.counts() && member.graft == Graft::None && !self.is_slow(now, member);
        serves && self.tree.children(id).len() < fan_out
    }

    /// The first of the `hosts`, from the one `at` on, that may have one child more; those below are looked at in turn.
    fn place_below(&self, now: Instant, hosts: &mut Vec<u32>, at: &mut usize, fan_out: usize) -> Option<u32> {
        while let Some(id) = hosts.get(*at).copied() {
            if self.may_host(now, id, fan_out) {
                return Some(id);
            }
            hosts.extend(self.tree.children(id));
            *at += 1;
        }
        None
    }

    /// A place for a member below another than whom it heard nothing from: below one of these, or one right below the first.
    fn other_place(&self, now: Instant, child: u32, hosts: &[u32], fan_out: usize) -> Option<u32> {
        let shuns = self.members[place(child)].shuns;
        let below = self.tree.children(*hosts.first()?);
        let mut others = hosts.iter().chain(below).copied().filter(|id| Some(*id) != shuns);
        others.find(|id| self.may_host(now, *id, fan_out))
    }
}
