//! Groups: one send, any number of receivers (M1–M10). The opener's side.

use crate::config::name_of;
use crate::error::{Failure, Owned, call, denrei_code, free, own, place, put, several, text};
use crate::node::{bounded, denrei_node, resolve, timeout, write_text};
use crate::send::{copied, denrei_release, lent};
use denrei::{Bytes, GROUP_SETTINGS, Group, GroupError, GroupOptions, Maker, set_group_option};
use std::ffi::{CString, c_char, c_void};
use std::net::SocketAddr;
use std::sync::OnceLock;

/// Options of a group, made by denrei_group_options_new.
pub struct denrei_group_options {
    options: GroupOptions,
}

/// The opener's end of a group: what is sent to it reaches all its members.
pub struct denrei_group {
    pub(crate) group: Group,
    maker: Maker,
}

impl Owned for denrei_group {
    fn maker(&self) -> Maker {
        self.maker
    }
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
    name_of(&NAMES, GROUP_SETTINGS, index)
}

/// Gives options back. Groups opened with them keep theirs.
///
/// # Safety
/// `options` is NULL or comes from denrei_group_options_new, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_options_free(options: *mut denrei_group_options) {
    // SAFETY: by the contract.
    unsafe { free(options) };
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
    // SAFETY: by the contract.
    unsafe { several(what, addresses, count) }?.into_iter().map(resolve).collect()
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
            unsafe { (own("node", node)?, resolve(text("address", address)?)?, options.as_ref()) };
        // SAFETY: by the contract.
        let members = unsafe { resolve_all("members", members, count) }?;
        let options = options.map(|options| options.options.clone()).unwrap_or_default();
        let group = node.node.open_group(address, &members, options)?;
        // SAFETY: by the contract.
        unsafe { place.put(Box::into_raw(Box::new(denrei_group { group, maker: Maker::this_process() }))) };
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
        let group = unsafe { own("group", group) }?;
        // SAFETY: by the contract.
        let message = unsafe { copied(data, length, |bytes| group.group.check_send(bytes)) }?;
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
        let group = unsafe { own("group", group) }?;
        let sent = send(&group.group, message?, timeout_us)?;
        // SAFETY: by the contract.
        unsafe { put(number, sent) };
        Ok(())
    })
}

/// Waits until every member that counts has acknowledged everything sent so far; DENREI_TIMEOUT if not in time,
/// DENREI_PEER_LOST if no member is left, and not everything was acknowledged.
///
/// # Safety
/// `group` is a group.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_flush(group: *const denrei_group, timeout_us: i64) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let done = unsafe { own("group", group) }?.group.wait_acknowledged(bounded(timeout_us))?;
        if done { Ok(()) } else { Err(Failure::late("not everything was acknowledged by all members")) }
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
        let done = unsafe { own("group", group) }?.group.close(bounded(timeout_us));
        if done { Ok(()) } else { Err(Failure::late("not all members have answered")) }
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
/// "history_bytes" has retained; DENREI_GROUP_JOINED says when it takes part, DENREI_GROUP_DEPARTED
/// that it does not: it refused, or did not answer within "open_timeout". Its id goes into `member`
/// unless that is NULL.
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
        let (group, address) = unsafe { (own("group", group)?, text("address", address)?) };
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
    call(|| Ok(unsafe { own("group", group) }?.group.remove_member(member)?))
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
        let address = unsafe { own("group", group) }?.group.address().to_string();
        // SAFETY: by the contract.
        unsafe { write_text(&address, buffer, length) }
    })
}
