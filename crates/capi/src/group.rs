//! Groups: one send, any number of receivers (M1–M10). The opener's side.

use crate::error::denrei_code::{DENREI_INVALID, DENREI_UNKNOWN_PEER};
use crate::error::{Failure, borrow, call, denrei_code, place, put, text};
use crate::node::{bounded, denrei_node, resolve, timeout, write_text};
use crate::send::{copied, denrei_release, lent};
use denrei::{
    Bytes, GROUP_SETTINGS, Group, GroupError, GroupEvent, GroupOptions, GroupStatus, MemberPath,
    MemberStatus, set_group_option,
};
use std::ffi::{CString, c_char, c_void};
use std::net::SocketAddr;
use std::sync::OnceLock;

/// Options of a group, made by denrei_group_options_new.
pub struct denrei_group_options {
    options: GroupOptions,
}

/// The opener's end of a group: what is sent to it reaches all its members.
pub struct denrei_group {
    group: Group,
}

/// Options with which all wait for the slowest, and multicast is used where it reaches members.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_group_options_new() -> *mut denrei_group_options {
    Box::into_raw(Box::new(denrei_group_options { options: GroupOptions::default() }))
}

/// Sets one option by its name, such as "policy" to "eject:2s", "backend" to "tree",
/// "history_bytes" to "1MiB". An unknown name and an impossible value are refused with DENREI_CONFIG
/// and a message that lists what is possible.
///
/// # Safety
/// `options` comes from denrei_group_options_new; `name` and `value` are strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_options_set(
    options: *mut denrei_group_options,
    name: *const c_char,
    value: *const c_char,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (name, value) = unsafe { (text("name", name)?, text("value", value)?) };
        // SAFETY: by the contract.
        let options = unsafe { options.as_mut() }.ok_or_else(|| Failure::null("options"))?;
        Ok(set_group_option(&mut options.options, name, value)?)
    })
}

/// Names of all options of groups, in turn from index 0; NULL after the last.
#[unsafe(no_mangle)]
pub extern "C" fn denrei_group_option_name(index: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        GROUP_SETTINGS.iter().filter_map(|setting| CString::new(setting.name).ok()).collect()
    });
    names.get(index).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Gives options back. Groups opened with them keep theirs.
///
/// # Safety
/// `options` is NULL or comes from denrei_group_options_new, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_options_free(options: *mut denrei_group_options) {
    if !options.is_null() {
        // SAFETY: by the contract it was made by Box::into_raw.
        drop(unsafe { Box::from_raw(options) });
    }
}

/// A list of addresses from C.
///
/// # Safety
/// `addresses` is null or has `count` strings.
pub(crate) unsafe fn resolve_all(
    what: &str,
    addresses: *const *const c_char,
    count: usize,
) -> Result<Vec<SocketAddr>, Failure> {
    if addresses.is_null() || count == 0 {
        return Err(Failure::new(DENREI_INVALID, format!("{what} are none")));
    }
    // SAFETY: by the contract.
    let addresses = unsafe { std::slice::from_raw_parts(addresses, count) };
    // SAFETY: by the contract.
    addresses.iter().map(|address| resolve(unsafe { text(what, *address) }?)).collect()
}

/// Opens a group at a multicast `address`, such as "239.255.78.1:7411", with the nodes at `members`,
/// `count` addresses, and waits until every one takes part, for the option "open_timeout" at most
/// (DENREI_TIMEOUT then, and the message names those that are missing). `options` may be NULL.
/// Members call denrei_group_join before.
///
/// # Safety
/// `node` is a node, `address` a string, `members` has `count` strings, `options` is NULL or options,
/// `group` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_open(
    node: *const denrei_node,
    address: *const c_char,
    members: *const *const c_char,
    count: usize,
    options: *const denrei_group_options,
    group: *mut *mut denrei_group,
) -> denrei_code {
    call(|| {
        let place = place("group", group)?;
        // SAFETY: by the contract.
        let (node, address, options) =
            unsafe { (borrow("node", node)?, resolve(text("address", address)?)?, options.as_ref()) };
        // SAFETY: by the contract.
        let members = unsafe { resolve_all("members", members, count) }?;
        let options = options.map(|options| options.options.clone()).unwrap_or_default();
        let group = node.node.open_group(address, &members, options)?;
        // SAFETY: by the contract.
        unsafe { place.put(Box::into_raw(Box::new(denrei_group { group }))) };
        Ok(())
    })
}

fn send(group: &Group, message: Bytes, timeout_us: i64) -> Result<u64, GroupError> {
    match timeout(timeout_us) {
        None => group.send(message),
        Some(timeout) if timeout.is_zero() => group.try_send(message),
        Some(timeout) => group.send_timeout(message, timeout),
    }
}

/// Sends a message, a copy of `length` bytes at `data`, to all members; waits while the queue is full,
/// at most `timeout_us`. Puts its number in the group into `number` unless that is NULL.
///
/// # Safety
/// `group` is a group, `data` has `length` bytes, `number` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_send(
    group: *const denrei_group,
    data: *const c_void,
    length: usize,
    timeout_us: i64,
    number: *mut u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (group, message) = unsafe { (borrow("group", group)?, copied(data, length)?) };
        let sent = send(&group.group, message, timeout_us)?;
        // SAFETY: by the contract.
        unsafe { put(number, sent) };
        Ok(())
    })
}

/// Like denrei_group_send, without a copy: `data` must not change until `release` is called with
/// `context`, which is done once, also if the call fails.
///
/// # Safety
/// As for denrei_group_send and denrei_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_send_lent(
    group: *const denrei_group,
    data: *const c_void,
    length: usize,
    release: denrei_release,
    context: *mut c_void,
    timeout_us: i64,
    number: *mut u64,
) -> denrei_code {
    // SAFETY: by the contract.
    let message = unsafe { lent(data, length, release, context) };
    call(|| {
        // SAFETY: by the contract.
        let group = unsafe { borrow("group", group) }?;
        let sent = send(&group.group, message?, timeout_us)?;
        // SAFETY: by the contract.
        unsafe { put(number, sent) };
        Ok(())
    })
}

/// Waits until every member has acknowledged everything sent so far; DENREI_TIMEOUT if not in time.
///
/// # Safety
/// `group` is a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_flush(group: *const denrei_group, timeout_us: i64) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let done = unsafe { borrow("group", group) }?.group.flush(bounded(timeout_us));
        if done { Ok(()) } else { Err(Failure::timeout()) }
    })
}

/// Ends the group in order: once all is sent members are told, and answer. DENREI_TIMEOUT if not all
/// have answered in time. The group is still to be freed.
///
/// # Safety
/// `group` is a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_close(group: *const denrei_group, timeout_us: i64) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let done = unsafe { borrow("group", group) }?.group.close(bounded(timeout_us));
        if done { Ok(()) } else { Err(Failure::timeout()) }
    })
}

/// Ends the group, if denrei_group_close has not, and gives it back.
///
/// # Safety
/// `group` is NULL or a group that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_free(group: *mut denrei_group) {
    if !group.is_null() {
        // SAFETY: by the contract it was made by Box::into_raw.
        let group = unsafe { Box::from_raw(group) };
        call(|| {
            drop(group);
            Ok(())
        });
    }
}

/// The group's number, the same at all its members; 0 for NULL.
///
/// # Safety
/// `group` is NULL or a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_id(group: *const denrei_group) -> u64 {
    // SAFETY: by the contract.
    unsafe { group.as_ref() }.map_or(0, |group| group.group.id().0)
}

/// Makes the node at `address` a member, from the next message on, or with what the option
/// "history_bytes" has retained; DENREI_GROUP_JOINED says when it takes part. Its id goes into
/// `member` unless that is NULL.
///
/// # Safety
/// `group` is a group, `address` a string, `member` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_add_member(
    group: *const denrei_group,
    address: *const c_char,
    history: bool,
    member: *mut u32,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (group, address) = unsafe { (borrow("group", group)?, text("address", address)?) };
        let added = group.group.add_member(resolve(address)?, history)?;
        // SAFETY: by the contract.
        unsafe { put(member, added) };
        Ok(())
    })
}

/// Removes a member.
///
/// # Safety
/// `group` is a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_remove_member(group: *const denrei_group, member: u32) -> denrei_code {
    // SAFETY: by the contract.
    call(|| Ok(unsafe { borrow("group", group) }?.group.remove_member(member)?))
}

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

/// Text in an array, cut to fit, with a NUL at the end.
fn array_of<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    let end = text.floor_char_boundary(N - 1);
    for (place, byte) in array.iter_mut().zip(&text.as_bytes()[..end]) {
        *place = *byte as c_char;
    }
    array
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

/// Takes the group's next event.
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
        let group = unsafe { borrow("group", group) }?;
        let next = group.group.event_timeout(bounded(timeout_us)).ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract.
        unsafe { place.put(denrei_group_event::new(&next)) };
        Ok(())
    })
}

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
    /// Packets sent to the group's address.
    pub packets_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Parts sent by unicast, repairs included.
    pub unicast_symbols: u64,
    /// Parts sent again to the group's address.
    pub multicast_repairs: u64,
    /// Parts sent again to one member.
    pub unicast_repairs: u64,
    /// Reports of members taken in.
    pub reports: u64,
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
            reports: status.counters.reports,
        }
    }
}

/// Puts the group's state into `state` and its members' into `members`, `room` at most, and how many
/// there are into `count`. DENREI_UNKNOWN_PEER if the group is over.
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
        // SAFETY: by the contract.
        let status = unsafe { borrow("group", group) }?.group.status();
        let status = status.ok_or_else(|| Failure::new(DENREI_UNKNOWN_PEER, "the group is over"))?;
        let room = if members.is_null() { 0 } else { room };
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

/// Writes the group's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
///
/// # Safety
/// `group` is a group, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_address(
    group: *const denrei_group,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let address = unsafe { borrow("group", group) }?.group.address().to_string();
        // SAFETY: by the contract.
        unsafe { write_text(&address, buffer, length) }
    })
}
