//! How a group stands, as its opener sees it (M5).

use crate::error::denrei_code::DENREI_UNKNOWN_PEER;
use crate::error::{Failure, array_of, call, denrei_code, own, put};
use crate::group::denrei_group;
use denrei::{GroupStatus, MemberPath, MemberStatus};
use std::ffi::c_char;

/// How a member is reached.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_member_path {
    /// By the group's address.
    DENREI_PATH_MULTICAST = 0,
    /// By the session with it.
    DENREI_PATH_UNICAST = 1,
    /// By another member.
    DENREI_PATH_RELAY = 2,
}

/// A member, as the opener sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_member_state {
    /// Its id.
    pub member: u32,
    /// How it is reached.
    pub path: denrei_member_path,
    /// Whether it takes part now.
    pub active: bool,
    /// Whether it is served by itself because it is slow.
    pub lagging: bool,
    /// Its address.
    pub address: [c_char; 64],
    /// Messages it has acknowledged.
    pub messages_acknowledged: u64,
    /// Parts of messages sent that it has not acknowledged.
    pub symbols_behind: u64,
    /// Parts it reported missing.
    pub symbols_missed: u64,
    /// Smoothed round-trip time, ns; 0 before the first sample.
    pub srtt_ns: u64,
    /// Share of packets sent to the group's address that do not reach it, 0 to 1; negative if not known.
    pub loss: f64,
}

impl From<&MemberStatus> for denrei_member_state {
    fn from(member: &MemberStatus) -> Self {
        Self {
            member: member.member,
            path: match member.path {
                MemberPath::Multicast => denrei_member_path::DENREI_PATH_MULTICAST,
                MemberPath::Relay => denrei_member_path::DENREI_PATH_RELAY,
                _ => denrei_member_path::DENREI_PATH_UNICAST,
            },
            active: member.active,
            lagging: member.lagging,
            address: array_of(&member.addr.to_string()),
            messages_acknowledged: member.messages_acknowledged,
            symbols_behind: member.symbols_behind,
            symbols_missed: member.symbols_missed,
            srtt_ns: member.srtt_ns.unwrap_or(0),
            loss: member.loss.unwrap_or(-1.0),
        }
    }
}

/// A group, as its opener sees it: values are minima over the members.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_group_state {
    /// Whether it is open.
    pub open: bool,
    /// Messages acknowledged by all.
    pub messages_acknowledged: u64,
    /// Messages taken from the application.
    pub messages_sent: u64,
    /// Bytes of messages not acknowledged by all.
    pub queued_bytes: u64,
    /// What may still be begun before the member with the least room has no more, bytes.
    pub credit_bytes: u64,
    /// Bytes that may be under way.
    pub window_bytes: u64,
    /// Packets sent to the group's address; none with a tree, whose parts go by sessions: `unicast_symbols`
    /// counts them, and these sessions' flow the bytes.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Parts sent by unicast, repairs included.
    pub unicast_symbols: u64,
    /// Parts sent again to the group's address.
    pub multicast_repairs: u64,
    /// Parts sent again to one member.
    pub unicast_repairs: u64,
    /// Parities sent to the group's address.
    pub parity_sent: u64,
    /// Reports of members taken in.
    pub reports: u64,
    /// Those of them that missed something.
    pub reports_with_gaps: u64,
    /// Questions asked.
    pub polls: u64,
    /// Parts sent to the group's address for the first time.
    pub symbols_sent: u64,
    /// Their bytes, UDP payload: what has to be sent where nothing is lost.
    pub symbol_bytes: u64,
}

impl From<&GroupStatus> for denrei_group_state {
    fn from(status: &GroupStatus) -> Self {
        Self {
            open: status.open,
            messages_acknowledged: status.messages_acknowledged,
            messages_sent: status.messages_sent,
            queued_bytes: status.queued_bytes,
            credit_bytes: status.credit_bytes,
            window_bytes: status.window_bytes,
            packets_sent: status.counters.packets_sent,
            bytes_sent: status.counters.bytes_sent,
            unicast_symbols: status.counters.unicast_symbols,
            multicast_repairs: status.counters.multicast_repairs,
            unicast_repairs: status.counters.unicast_repairs,
            parity_sent: status.counters.parity_sent,
            reports: status.counters.reports,
            reports_with_gaps: status.counters.reports_with_gaps,
            polls: status.counters.polls,
            symbols_sent: status.counters.symbols_sent,
            symbol_bytes: status.counters.symbol_bytes,
        }
    }
}

/// Puts the group's state into `state` and its members' into `members`, `room` at most, and how many
/// there are into `count`. Among them are the last 64 or so of those who are members no more, and not
/// `active`. Of a group that is over it is what there was at its end, and `open` is false.
///
/// # Safety
/// `group` is a group; `state` and `count` are NULL or places for what they are named after; `members`
/// is NULL, with `room` 0, or has `room` places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_status(
    group: *const denrei_group,
    state: *mut denrei_group_state,
    members: *mut denrei_member_state,
    room: usize,
    count: *mut usize,
) -> denrei_code {
    call(|| {
        if members.is_null() && room > 0 {
            return Err(Failure::null("members"));
        }
        // SAFETY: by the contract.
        let status = unsafe { own("group", group) }?.group.status();
        let status = status.ok_or_else(|| Failure::new(DENREI_UNKNOWN_PEER, "the group is over"))?;
        for (index, member) in status.members.iter().take(room).enumerate() {
            // SAFETY: index < room, and by the contract there are that many places.
            unsafe { members.add(index).write(member.into()) };
        }
        // SAFETY: by the contract.
        unsafe {
            put(state, denrei_group_state::from(&status));
            put(count, status.members.len());
        }
        Ok(())
    })
}
