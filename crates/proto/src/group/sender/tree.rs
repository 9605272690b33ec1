//! Trees over members: of relays, which hand symbols on, and of reports, which are joined on the way.
//!
//! Inputs → outputs: who takes part → parent and children of each. The trees are complete trees in the
//! order of ids, so that opener and test can compute them; a member that departs leaves its children
//! to the opener.

use super::Sender;
use crate::group::Host;
use crate::group::member::Path;
use crate::group::roll::place;
use crate::group::types::GroupBackend;
use core::net::{Ipv4Addr, SocketAddr};
use denrei_wire::Instant;
use denrei_wire::group::{MAX_CHILDREN, Record, Route};
use std::collections::BTreeMap;

/// With more members than this, reports are joined along a tree: the opener could not hear all.
const JOIN_REPORTS_ABOVE: usize = 64;
/// Members that report to one other in such a tree. The opener hears one of them alone, which speaks for
/// all: once or twice a window, however small that is at first.
const REPORT_FAN_IN: usize = 4;
/// Members served by session from which on a tree of relays is cheaper than serving each.
const RELAY_FROM: usize = 9;

/// The parent's address that stands for the opener.
const OPENER: SocketAddr = SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Parent of the member at `index` in a complete tree whose root, the opener, is outside of it.
fn parent_index(index: usize, fan_out: usize) -> Option<usize> {
    (index / fan_out).checked_sub(1)
}

/// Who is above whom.
#[derive(Debug, Default)]
pub(super) struct Tree {
    parents: BTreeMap<u32, u32>,
    children: BTreeMap<u32, Vec<u32>>,
    /// Parents hand on symbols, and do not only join reports.
    pub relays: bool,
    /// Reports are joined on their way.
    pub joins: bool,
    /// When it is looked next who is to be below whom.
    pub grafts_at: Option<Instant>,
}

impl Tree {
    /// Puts one below another.
    pub fn insert(&mut self, child: u32, parent: u32) {
        self.parents.insert(child, parent);
        self.children.entry(parent).or_default().push(child);
    }

    /// Takes a member, with all below it, from below its parent, which is returned.
    pub fn detach(&mut self, id: u32) -> Option<u32> {
        let parent = self.parents.remove(&id);
        if let Some(siblings) = parent.and_then(|parent| self.children.get_mut(&parent)) {
            siblings.retain(|sibling| *sibling != id);
        }
        parent
    }

    /// Takes a member out; its parent, and its children, who have none now.
    fn remove(&mut self, id: u32) -> (Option<u32>, Vec<u32>) {
        let parent = self.detach(id);
        let orphans = self.children.remove(&id).unwrap_or_default();
        for orphan in &orphans {
            self.parents.remove(orphan);
        }
        (parent, orphans)
    }

    /// Those right below one.
    pub fn children(&self, id: u32) -> &[u32] {
        self.children.get(&id).map_or(&[], Vec::as_slice)
    }

    fn contains(&self, id: u32) -> bool {
        self.parents.contains_key(&id) || !self.children(id).is_empty()
    }

    /// Whether a member is below another.
    pub fn has_parent(&self, id: u32) -> bool {
        self.parents.contains_key(&id)
    }

    /// The parent, its parent, and so on.
    pub fn above(&self, id: u32) -> impl Iterator<Item = u32> + '_ {
        core::iter::successors(self.parents.get(&id), |parent| self.parents.get(parent)).copied()
    }

    /// All members below one.
    pub fn below(&self, id: u32) -> Vec<u32> {
        let mut found = self.children(id).to_vec();
        let mut at = 0;
        while let Some(child) = found.get(at).copied() {
            found.extend(self.children(child));
            at += 1;
        }
        found
    }
}

impl Sender {
    /// Decides who relays to whom and who reports to whom, and tells them.
    pub(super) fn lay_routes(&mut self, now: Instant, host: &mut dyn Host) {
        let active: Vec<u32> =
            self.members.iter().filter(|member| member.is_active()).map(|member| member.id).collect();
        let by_session = |id: &u32| self.members[place(*id)].path != Path::Multicast;
        let served: Vec<u32> = active.iter().copied().filter(by_session).collect();
        let forced = self.replicates();
        // What is signed is not relayed: nobody could tell whose it is.
        let forced = forced || self.options.sign;
        if self.wants_tree() || (served.len() >= RELAY_FROM && !forced) {
            let fan_out = self.fan_out(served.len());
            self.tree.relays = true;
            self.plant(&served, |index| parent_index(index, fan_out));
        }
        let may_join = self.may_join();
        if self.will_join(active.len()) && self.tree.parents.is_empty() {
            self.plant(&active, |index| index.checked_sub(1).map(|index| index / REPORT_FAN_IN));
        }
        self.tree.joins = may_join && self.tree.parents.len() >= JOIN_REPORTS_ABOVE;
        let ids: Vec<u32> = active.into_iter().filter(|id| self.tree.contains(*id)).collect();
        ids.into_iter().for_each(|id| self.tell_route(now, id, host));
    }

    pub(super) fn wants_tree(&self) -> bool {
        self.options.backend == GroupBackend::Tree
    }

    /// Who is sent packets of its own says itself what it misses.
    fn may_join(&self) -> bool {
        self.options.feedback.tree && !self.replicates()
    }

    /// Whether so many members join their reports.
    pub(super) fn will_join(&self, members: usize) -> bool {
        self.may_join() && members > JOIN_REPORTS_ABOVE
    }

    /// Few and large is served best by a narrow tree (each byte leaves a host `fan_out` times), many
    /// by a wide one (each level costs a hop).
    pub(super) fn fan_out(&self, members: usize) -> usize {
        match self.options.fan_out {
            0 if members <= 16 => 2,
            0 => 4,
            set => set as usize,
        }
        .clamp(1, MAX_CHILDREN)
    }

    fn plant(&mut self, ids: &[u32], parent_of: impl Fn(usize) -> Option<usize>) {
        for (index, id) in ids.iter().enumerate() {
            if let Some(parent) = parent_of(index) {
                self.tree.insert(*id, ids[parent]);
                if self.tree.relays {
                    self.members.edit(place(*id)).path = Path::Relay;
                }
            }
        }
    }

    pub(super) fn tell_route(&self, now: Instant, id: u32, host: &mut dyn Host) {
        let addr = |id: &u32| self.members[place(*id)].addr;
        let route = Route {
            parent: self.tree.parents.get(&id).map_or(OPENER, addr),
            report_to_parent: self.tree.joins && self.tree.parents.contains_key(&id),
            relay: self.tree.relays,
            children: self.tree.children(id).iter().map(|child| (*child, addr(child))).collect(),
        };
        host.send(now, self.members[place(id)].peer, Record::Route(route).encode(self.id.0).into());
    }

    /// A member has gone, or lags: its children are the opener's, and its parent need not serve it.
    pub(super) fn adopt_orphans(&mut self, now: Instant, id: u32, host: &mut dyn Host) {
        if !self.tree.contains(id) {
            return;
        }
        // It held up all below it.
        for below in self.tree.below(id) {
            self.members.edit(place(below)).progress_at = now;
        }
        let (parent, orphans) = self.tree.remove(id);
        for orphan in &orphans {
            let mut member = self.members.edit(place(*orphan));
            if member.path == Path::Relay {
                member.path = Path::Unicast { next: member.next };
            }
            drop(member);
            self.tell_route(now, *orphan, host);
        }
        if let Some(parent) = parent {
            self.tell_route(now, parent, host);
        }
        if self.members[place(id)].is_active() {
            self.tell_route(now, id, host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_leaves_its_children_without_a_parent() {
        let mut tree = Tree::default();
        [(2, 0), (3, 0), (4, 2), (5, 2), (6, 4)].into_iter().for_each(|(id, parent)| tree.insert(id, parent));
        assert_eq!(tree.below(0), [2, 3, 4, 5, 6]);
        assert_eq!(tree.above(6).collect::<Vec<_>>(), [4, 2, 0]);
        assert_eq!(tree.remove(2), (Some(0), vec![4, 5]));
        assert_eq!((tree.below(0), tree.below(4)), (vec![3], vec![6]));
        assert!(!tree.contains(5) && tree.contains(4) && tree.contains(6));
    }

    #[test]
    fn the_tree_is_complete_and_every_parent_has_its_share() {
        let parents: Vec<Option<usize>> = (0..14).map(|index| parent_index(index, 2)).collect();
        assert_eq!(&parents[..6], &[None, None, Some(0), Some(0), Some(1), Some(1)]);
        for parent in 0..6 {
            assert_eq!(parents.iter().filter(|other| **other == Some(parent)).count(), 2);
        }
        assert!((1..100).all(|index| parent_index(index, 4).is_none_or(|parent| parent < index)));
    }
}
