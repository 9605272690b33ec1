//! What groups promise: each member gets every message of its span whole, once and in order; its opener
//! hears who joins and who departs, and what that one had; a membership ends, and says how.
//!
//! Inputs → outputs: calls about groups, made through the oracle (`calls`), what openers and members say
//! (`follow`) → the first broken promise; the rest at the end (`verdict`).

mod calls;
mod follow;
mod policy;
mod verdict;

use super::{LifeNo, Oracle};
use crate::content::Name;
use crate::net::topology::HostId;
use core::net::SocketAddr;
use denrei_proto::group::{Departure, GroupId, GroupOptions, MembershipEnd};
use denrei_wire::Instant;
use policy::Watch;
use std::collections::{BTreeMap, BTreeSet};

/// Index of a group.
type GroupNo = usize;
/// Index of a membership.
type MembershipNo = usize;

/// Groups' messages are named as those of sessions from this one on.
const FIRST_NAME: u32 = 1 << 31;

/// History that no run exceeds.
pub const WHOLE_HISTORY_BYTES: u64 = 1 << 30;
/// Multicast addresses there are.
pub const ADDRESSES: u8 = 3;

/// A multicast address, by number.
pub fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([239, 1, 1, number + 1], 7411))
}

/// Something that an application does about groups. Groups and memberships are those of its process, by
/// number, modulo how many there are.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupOp {
    /// Becomes a member of groups at an address; `heard`: it may expect to hear the address.
    Join {
        /// The address's number.
        address: u8,
        /// Whether it knows nothing of being deaf.
        heard: bool,
    },
    /// Takes part in no more groups at an address.
    StopJoining(u8),
    /// Opens a group.
    Open {
        /// The address's number.
        address: u8,
        /// Its members.
        members: Vec<HostId>,
        /// Its settings.
        options: Box<GroupOptions>,
    },
    /// Sends so many bytes to a group.
    Send(u8, usize),
    /// Waits for what is under way.
    Hurry(u8),
    /// Datagrams to the group may have so many bytes at most.
    Narrow(u8, u16),
    /// Makes a host a member, with history or without.
    Add(u8, HostId, bool),
    /// Removes the member of this id, modulo how many there are.
    Remove(u8, u32),
    /// Ends a group in order.
    Close(u8),
    /// Forgets a group, whatever its state.
    Forget(u8),
    /// Asks the opener to be made a member of its group at an address, with history or without.
    Ask(HostId, u8, bool),
    /// Leaves a group, or forgets a membership that is over.
    Leave(u8),
    /// Members on this host take what arrives, or nothing by themselves.
    SetTaking(bool),
    /// Takes up to so many messages of a membership.
    Take(u8, usize),
}

/// A member, as its opener was told.
#[derive(Debug)]
struct Role {
    host: HostId,
    /// The first message it gets, once it has begun.
    first: Option<u64>,
    departed: Option<(Departure, Option<u64>)>,
    lagging: bool,
    /// The opener's application removed it.
    removed: bool,
    /// It was promised everything from the beginning.
    whole_history: bool,
}

impl Role {
    fn new(host: HostId) -> Self {
        Self { host, first: None, departed: None, lagging: false, removed: false, whole_history: false }
    }
}

/// A group.
#[derive(Debug)]
struct Group {
    opener: LifeNo,
    id: GroupId,
    address: u8,
    options: GroupOptions,
    /// Sizes of the messages sent.
    sent: Vec<usize>,
    roles: BTreeMap<u32, Role>,
    opened: bool,
    failed: bool,
    closing: bool,
    closed: bool,
    forgotten: bool,
    /// It has to open: all its members wait for it, and nothing is in the way.
    has_to_open: bool,
    /// Since when it is closing.
    closing_at: Option<Instant>,
    watch: Watch,
}

impl Group {
    /// Whether nothing more is to be expected of it.
    fn is_over(&self) -> bool {
        self.failed || self.closed || self.forgotten
    }
}

/// One membership of a process.
#[derive(Debug)]
struct Membership {
    life: LifeNo,
    group: GroupNo,
    member: u32,
    next: u64,
    /// When its messages were taken.
    took: Vec<Instant>,
    end: Option<MembershipEnd>,
    /// Its application has left it, or forgotten it.
    left: bool,
}

/// What the application of one process knows of groups.
#[derive(Debug, Default)]
struct Here {
    opened: Vec<GroupNo>,
    joined: BTreeSet<u8>,
    /// Addresses that it joined no longer at some time: a group that begins there meanwhile is left, and nobody is given it.
    stopped: BTreeSet<u8>,
    held: Vec<MembershipNo>,
    stalled: bool,
}

/// Everything about groups in a run.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    by_id: BTreeMap<GroupId, GroupNo>,
    memberships: Vec<Membership>,
    by_member: BTreeMap<(GroupNo, u32), MembershipNo>,
    here: BTreeMap<LifeNo, Here>,
    used: bool,
    /// Somebody's session was slowed down, or closed, at some time.
    hindered: bool,
    /// Hosts that were not reached by multicast at some time.
    deaf: BTreeSet<HostId>,
}

impl Groups {
    /// Whether anything was asked of groups at all.
    pub fn are_used(&self) -> bool {
        self.used
    }

    fn here(&mut self, life: LifeNo) -> &mut Here {
        self.used = true;
        self.here.entry(life).or_default()
    }
}

fn name(group: GroupNo, number: u64) -> Name {
    Name { session: FIRST_NAME + group as u32, channel: 0, number }
}

impl Oracle {
    /// Multicast does not get to a host.
    pub fn note_deaf(&mut self, host: HostId) {
        self.groups.deaf.insert(host);
        self.excuse_openings();
    }

    /// A session was slowed down or closed, maybe one that an opener or a member speaks by.
    pub fn note_hindered(&mut self) {
        self.groups.hindered = true;
        self.excuse_openings();
    }

    /// Something happens that may keep groups from opening.
    fn excuse_openings(&mut self) {
        self.groups.groups.iter_mut().for_each(|group| group.has_to_open = false);
    }

    fn is_dead(&self, life: LifeNo) -> bool {
        self.lives[life].died_at.is_some()
    }

    fn group_label(&self, number: GroupNo) -> String {
        let group = &self.groups.groups[number];
        let host = self.lives[group.opener].host;
        format!("group {number} ({}) of host {} at {}", group.id, host.0, address(group.address))
    }

    fn membership_label(&self, number: MembershipNo) -> String {
        let membership = &self.groups.memberships[number];
        let host = self.lives[membership.life].host;
        format!("{}, member {} on host {}", self.group_label(membership.group), membership.member, host.0)
    }
}
