//! Collective operations over a set of nodes (U9, S12).

use crate::error::denrei_code::{DENREI_INVALID, DENREI_PEER_LOST, DENREI_SYSTEM, DENREI_TIMEOUT};
use crate::error::{Failure, Owned, call, check_own, denrei_code, free, own, place, put, text};
use crate::group::resolve_all;
use crate::membership::message_of;
use crate::node::{bounded, denrei_node, resolve};
use crate::recv::denrei_message;
use crate::send::copied;
use denrei::{Bytes, COLLECTIVE_CHANNEL, Collective, CollectiveError, GroupMessage, Maker};
use std::ffi::{c_char, c_void};
use std::time::{Duration, Instant};

/// A set of nodes that work together. Rank 0 is the first.
pub struct denrei_collective {
    set: Collective,
    maker: Maker,
}

impl Owned for denrei_collective {
    fn maker(&self) -> Maker {
        self.maker
    }
}

/// What several ranks had, in their order. Give it back with denrei_parts_free.
pub struct denrei_parts {
    parts: Vec<Bytes>,
}

/// Joins `next` to `accumulated`, which has the same `length`, in place; called with the `context` of
/// denrei_collective_reduce, and must not call the set.
pub type denrei_join = Option<
    unsafe extern "C" fn(context: *mut c_void, accumulated: *mut c_void, next: *const c_void, length: usize),
>;

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        match error {
            CollectiveError::Open(error) => error.into(),
            CollectiveError::Connect(error) => error.into(),
            CollectiveError::Group(error) => error.into(),
            CollectiveError::RootGone(end) => end.into(),
            CollectiveError::TimedOut { .. }
            | CollectiveError::GaveUp { .. }
            | CollectiveError::NotOpened { .. } => Self::new(DENREI_TIMEOUT, error),
            CollectiveError::Send { ref source, .. } => {
                let code = Self::from(source.clone()).code();
                Self::new(code, error)
            }
            CollectiveError::BadSet(_) | CollectiveError::Unlike { .. } | CollectiveError::Join(_) => {
                Self::new(DENREI_INVALID, error)
            }
            _ => Self::new(DENREI_SYSTEM, error),
        }
    }
}

/// Runs an operation of a set.
///
/// # Safety
/// `set` is null or a set that no other thread uses.
unsafe fn operate(
    set: *mut denrei_collective,
    operation: impl FnOnce(&mut Collective) -> Result<(), Failure>,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let set = unsafe { set.as_mut() }.ok_or_else(|| Failure::null("set"))?;
        check_own("set", set.maker())?;
        operation(&mut set.set)
    })
}

/// What one rank may have: the others' limits are met on the way.
fn any_size(_bytes: u64) -> Result<(), Failure> {
    Ok(())
}

/// An operation that brings what several ranks have.
///
/// # Safety
/// `set` is null or a set that no other thread uses, `data` has `length` bytes, `parts` is null or a
/// place for a pointer.
unsafe fn bring(
    set: *mut denrei_collective,
    data: *const c_void,
    length: usize,
    timeout_us: i64,
    parts: *mut *mut denrei_parts,
    gather: impl FnOnce(&mut Collective, Bytes, Duration) -> Result<Vec<Bytes>, CollectiveError>,
) -> denrei_code {
    let operation = |set: &mut Collective| {
        let place = place("parts", parts)?;
        // SAFETY: as the caller promises.
        let data = unsafe { copied(data, length, any_size) }?;
        let parts = gather(set, data, bounded(timeout_us))?;
        // SAFETY: as the caller promises.
        unsafe { place.put(Box::into_raw(Box::new(denrei_parts { parts }))) };
        Ok(())
    };
    // SAFETY: as the caller promises.
    unsafe { operate(set, operation) }
}

fn result_of(data: Bytes) -> *mut denrei_message {
    message_of(GroupMessage { number: 0, data })
}

/// Makes a set of the nodes at `addresses` (the same `count` addresses everywhere, with this node's
/// own among them), that speaks to all by a group at the multicast address `group`. All of them have
/// to call this within the time given. Operations are then called by all nodes in the same order.
///
/// # Safety
/// `node` is a node, `addresses` has `count` strings, `group` is a string, `set` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_open(
    node: *const denrei_node,
    addresses: *const *const c_char,
    count: usize,
    group: *const c_char,
    timeout_us: i64,
    set: *mut *mut denrei_collective,
) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { denrei_collective_open_on(node, addresses, count, group, COLLECTIVE_CHANNEL, timeout_us, set) }
}

/// Like denrei_collective_open, with what goes to one node on `channel` instead of 15, the same
/// everywhere: nodes that are in several sets at a time give each a channel, and a group, of its own.
///
/// # Safety
/// As for denrei_collective_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_open_on(
    node: *const denrei_node,
    addresses: *const *const c_char,
    count: usize,
    group: *const c_char,
    channel: u16,
    timeout_us: i64,
    set: *mut *mut denrei_collective,
) -> denrei_code {
    call(|| {
        let place = place("set", set)?;
        // SAFETY: by the contract.
        let (node, group) = unsafe { (own("node", node)?, resolve(text("group", group)?)?) };
        // SAFETY: by the contract.
        let addresses = unsafe { resolve_all("addresses", addresses, count) }?;
        let timeout = bounded(timeout_us);
        let set = Collective::on_channel(&node.node, &addresses, group, channel, timeout)?;
        // SAFETY: by the contract.
        unsafe {
            place.put(Box::into_raw(Box::new(denrei_collective { set, maker: Maker::this_process() })))
        };
        Ok(())
    })
}

/// This node's place in the list of addresses; 0 for NULL.
///
/// # Safety
/// `set` is NULL or a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_rank(set: *const denrei_collective) -> usize {
    // SAFETY: by the contract.
    unsafe { set.as_ref() }.map_or(0, |set| set.set.rank())
}

/// How many nodes there are; 0 for NULL.
///
/// # Safety
/// `set` is NULL or a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_size(set: *const denrei_collective) -> usize {
    // SAFETY: by the contract.
    unsafe { set.as_ref() }.map_or(0, |set| set.set.size())
}

/// Waits until all have come here. DENREI_TIMEOUT, and a message that names the ranks that are
/// missing, if they have not in time. That operation is over for all, and the set goes on with the next: a node
/// that had not come to it calls it still, and gets DENREI_TIMEOUT at once. One whose process has ended stays away: each
/// operation that needs something of all ends as soon as it is missed, with DENREI_PEER_LOST at rank 0 and DENREI_TIMEOUT
/// elsewhere, and a message that names it; broadcasts reach those that are left. To go on without it, make another set.
///
/// # Safety
/// `set` is a set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_barrier(
    set: *mut denrei_collective,
    timeout_us: i64,
) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { operate(set, |set| Ok(set.barrier(bounded(timeout_us))?)) }
}

/// Gives what rank 0 has, `length` bytes at `data`, to all, as a message to be freed. The others'
/// `data` is not looked at.
///
/// # Safety
/// `set` is a set, `data` has `length` bytes, `result` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_broadcast(
    set: *mut denrei_collective,
    data: *const c_void,
    length: usize,
    timeout_us: i64,
    result: *mut *mut denrei_message,
) -> denrei_code {
    let operation = |set: &mut Collective| {
        let place = place("result", result)?;
        // SAFETY: by the contract; what is not looked at may be anything.
        let data = if set.rank() == 0 { unsafe { copied(data, length, any_size) }? } else { Bytes::new() };
        let all = set.broadcast(data, bounded(timeout_us))?;
        // SAFETY: by the contract.
        unsafe { place.put(result_of(all)) };
        Ok(())
    };
    // SAFETY: by the contract.
    unsafe { operate(set, operation) }
}

/// Brings what all have to rank 0, in the order of ranks; the others get parts that are none, to be freed as well.
///
/// # Safety
/// `set` is a set, `data` has `length` bytes, `parts` is a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_gather(
    set: *mut denrei_collective,
    data: *const c_void,
    length: usize,
    timeout_us: i64,
    parts: *mut *mut denrei_parts,
) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { bring(set, data, length, timeout_us, parts, Collective::gather) }
}

/// Brings what all have to all, in the order of ranks.
///
/// # Safety
/// As for denrei_collective_gather.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_all_gather(
    set: *mut denrei_collective,
    data: *const c_void,
    length: usize,
    timeout_us: i64,
    parts: *mut *mut denrei_parts,
) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { bring(set, data, length, timeout_us, parts, Collective::all_gather) }
}

/// Joins what all have, `length` bytes everywhere, in the order of ranks, by `join` at rank 0, which
/// has to be associative; all get the result, as a message to be freed. Where lengths differ nobody gets
/// one, but all DENREI_INVALID.
///
/// # Safety
/// `set` is a set, `data` has `length` bytes, `join` may be called with `context`, `result` is a place
/// for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_reduce(
    set: *mut denrei_collective,
    data: *const c_void,
    length: usize,
    join: denrei_join,
    context: *mut c_void,
    timeout_us: i64,
    result: *mut *mut denrei_message,
) -> denrei_code {
    let operation = |set: &mut Collective| {
        let place = place("result", result)?;
        let join = join.ok_or_else(|| Failure::null("join"))?;
        // SAFETY: by the contract.
        let data = unsafe { copied(data, length, any_size) }?;
        let two = |accumulated: Bytes, next: Bytes| {
            let (all, one) = (accumulated.len(), next.len());
            if one != all {
                return Err(format!("a rank has {one} bytes and rank 0 {all}: all need the same"));
            }
            let mut sum = Vec::from(accumulated);
            // SAFETY: by the contract, and both have that many bytes.
            unsafe { join(context, sum.as_mut_ptr().cast(), next.as_ptr().cast(), sum.len()) };
            Ok(sum.into())
        };
        let joined = set.try_reduce(data, two, bounded(timeout_us))?;
        // SAFETY: by the contract.
        unsafe { place.put(result_of(joined)) };
        Ok(())
    };
    // SAFETY: by the contract.
    unsafe { operate(set, operation) }
}

/// How many parts there are; 0 for NULL.
///
/// # Safety
/// `parts` is NULL or parts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_parts_count(parts: *const denrei_parts) -> usize {
    // SAFETY: by the contract.
    unsafe { parts.as_ref() }.map_or(0, |parts| parts.parts.len())
}

/// The part of a rank, and in `length` its size; valid until the parts are freed. NULL if there is no
/// such part.
///
/// # Safety
/// `parts` is NULL or parts, `length` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_parts_data(
    parts: *const denrei_parts,
    rank: usize,
    length: *mut usize,
) -> *const c_void {
    // SAFETY: by the contract.
    let part = unsafe { parts.as_ref() }.and_then(|parts| parts.parts.get(rank));
    // SAFETY: by the contract.
    unsafe { put(length, part.map_or(0, Bytes::len)) };
    part.map_or(std::ptr::null(), |part| part.as_ptr().cast())
}

/// Gives parts back.
///
/// # Safety
/// `parts` is NULL or parts that are not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_parts_free(parts: *mut denrei_parts) {
    // SAFETY: by the contract.
    unsafe { free(parts) };
}

/// Ends the set and gives it back: rank 0 waits until all have everything, the others until rank 0 has their
/// parts, or has ended the set without them; DENREI_TIMEOUT if not in time, DENREI_PEER_LOST at once where rank 0 is gone
/// before. Takes NULL.
///
/// # Safety
/// `set` is NULL or a set that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_collective_close(
    set: *mut denrei_collective,
    timeout_us: i64,
) -> denrei_code {
    if set.is_null() {
        return denrei_code::DENREI_OK;
    }
    // SAFETY: by the contract it was made by Box::into_raw.
    let set = unsafe { Box::from_raw(set) };
    call(|| {
        check_own("set", set.maker())?;
        let (began, limit) = (Instant::now(), bounded(timeout_us));
        match set.set.close(limit) {
            true => Ok(()),
            false if began.elapsed() < limit => {
                Err(Failure::new(DENREI_PEER_LOST, "rank 0 is gone: what it had not taken by then is lost"))
            }
            false => Err(Failure::late("not all ranks have ended the set")),
        }
    })
}
