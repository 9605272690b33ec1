//! What happens in a group, as its opener hears of it (M3, M6).

use crate::error::{Failure, array_of, call, denrei_code, own, place};
use crate::group::denrei_group;
use crate::node::bounded;
use denrei::GroupEvent;
use std::ffi::c_char;
use std::net::SocketAddr;

/// What happened in a group, at its opener.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_group_event_kind {
    /// A kind that this version of the interface has no name for; see the text.
    DENREI_GROUP_OTHER = 0,
    /// A member has begun to take part; `number` is the first message it gets.
    DENREI_GROUP_JOINED = 1,
    /// A member is one no longer; the text says why.
    DENREI_GROUP_DEPARTED = 2,
    /// A slow member is served by itself from now on.
    DENREI_GROUP_LAGGING = 3,
    /// A member that lagged is back with the others.
    DENREI_GROUP_CAUGHT_UP = 4,
    /// Every member has everything and has said so.
    DENREI_GROUP_CLOSED = 5,
}

use denrei_group_event_kind::*;

/// Something that happened in a group.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_group_event {
    /// What.
    pub kind: denrei_group_event_kind,
    /// To which member.
    pub member: u32,
    /// The first message it gets, or the last one it has acknowledged.
    pub number: u64,
    /// Whether `number` says something: it does not if nothing was acknowledged.
    pub has_number: bool,
    /// The member's address; "" if it is about none.
    pub address: [c_char; 64],
    /// For people: why, cut at 191 bytes.
    pub text: [c_char; 192],
}

impl denrei_group_event {
    fn of(kind: denrei_group_event_kind, member: u32, addr: Option<SocketAddr>, number: Option<u64>) -> Self {
        let address = addr.map(|addr| addr.to_string()).unwrap_or_default();
        Self {
            kind,
            member,
            number: number.unwrap_or(0),
            has_number: number.is_some(),
            address: array_of(&address),
            text: [0; 192],
        }
    }

    fn new(event: &GroupEvent) -> Self {
        match event {
            GroupEvent::Joined { member, addr, first_message } => {
                Self::of(DENREI_GROUP_JOINED, *member, Some(*addr), Some(*first_message))
            }
            GroupEvent::Departed { member, addr, why, last_acknowledged } => Self {
                text: array_of(&why.to_string()),
                ..Self::of(DENREI_GROUP_DEPARTED, *member, Some(*addr), *last_acknowledged)
            },
            GroupEvent::Lagging { member, addr, last_acknowledged } => {
                Self::of(DENREI_GROUP_LAGGING, *member, Some(*addr), *last_acknowledged)
            }
            GroupEvent::CaughtUp { member, addr } => {
                Self::of(DENREI_GROUP_CAUGHT_UP, *member, Some(*addr), None)
            }
            GroupEvent::Closed => Self::of(DENREI_GROUP_CLOSED, 0, None, None),
            other => {
                let event = Self::of(DENREI_GROUP_OTHER, 0, None, None);
                Self { text: array_of(&format!("{other:?}")), ..event }
            }
        }
    }
}

/// Takes the group's next event. DENREI_CLOSED once the group is over and all are taken: nothing happens to it any more.
///
/// # Safety
/// `group` is a group, `event` a place for an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_event_next(
    group: *const denrei_group,
    timeout_us: i64,
    event: *mut denrei_group_event,
) -> denrei_code {
    call(|| {
        let place = place("event", event)?;
        // SAFETY: by the contract.
        let group = unsafe { own("group", group) }?;
        let next = group.group.next_event(bounded(timeout_us))?.ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract.
        unsafe { place.put(denrei_group_event::new(&next)) };
        Ok(())
    })
}
