//! Sending.

use crate::error::denrei_code::{DENREI_INVALID, DENREI_SYSTEM};
use crate::error::{Failure, call, denrei_code, own, put};
use crate::node::{bounded, channel_of, denrei_node, denrei_peer, timeout};
use bytes::Bytes;
use denrei::{Completion, MessageId, PeerId, SendError};
use std::collections::TryReserveError;
use std::ffi::{c_uint, c_void};

/// What shall be reported about a message later, as an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_completion {
    /// Nothing, unless the peer is lost.
    DENREI_REPORT_NOTHING = 0,
    /// DENREI_EVENT_ACKNOWLEDGED: the receiving process has it in its memory.
    DENREI_REPORT_ACKNOWLEDGED = 1,
    /// DENREI_EVENT_DELIVERED: the receiving application has taken it.
    DENREI_REPORT_DELIVERED = 2,
}

/// Whether a message would be refused is found out before it is copied if it is larger, bytes.
const ASKED_FROM: usize = 1 << 20;

/// A number from C may be none of the names.
pub(crate) fn completion_of(number: c_uint) -> Result<Completion, Failure> {
    const NOTHING: c_uint = denrei_completion::DENREI_REPORT_NOTHING as c_uint;
    const ACKNOWLEDGED: c_uint = denrei_completion::DENREI_REPORT_ACKNOWLEDGED as c_uint;
    const DELIVERED: c_uint = denrei_completion::DENREI_REPORT_DELIVERED as c_uint;
    match number {
        NOTHING => Ok(Completion::None),
        ACKNOWLEDGED => Ok(Completion::Acknowledged),
        DELIVERED => Ok(Completion::Delivered),
        _ => Err(Failure::new(DENREI_INVALID, format!("completion {number} is no denrei_completion"))),
    }
}

/// Called once with `context` when a message's memory is no longer needed. It may be called by any
/// thread, also before the call that passed it returns, and must not call the node, nor wait for a lock that who
/// calls the node has.
pub type denrei_release = Option<unsafe extern "C" fn(context: *mut c_void)>;

/// Memory of the application's that a message lives in.
struct Lent {
    data: *const u8,
    length: usize,
    release: denrei_release,
    context: *mut c_void,
}

// SAFETY: the contract of denrei_send_lent: nobody changes the memory until it is released, and the
// release may be called by any thread.
unsafe impl Send for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: by the contract of denrei_send_lent the memory is valid and unchanged until release.
        unsafe { std::slice::from_raw_parts(self.data, self.length) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: by the contract of denrei_send_lent; once, as a value is dropped once.
            unsafe { release(self.context) }
        }
    }
}

/// A message in memory of the application's, which is released whatever becomes of it.
///
/// # Safety
/// `data` is null or has `length` bytes that stay as they are until `release` is called.
pub(crate) unsafe fn lent(
    data: *const c_void,
    length: usize,
    release: denrei_release,
    context: *mut c_void,
) -> Result<Bytes, Failure> {
    let lent = Lent { data: data.cast(), length, release, context };
    check_bytes(data, length)?;
    Ok(Bytes::from_owner(lent))
}

/// Whether memory may have `length` bytes: -1 of a call that failed, which is passed on, is a length as well.
pub(crate) fn check_length(length: usize) -> Result<(), Failure> {
    let too_long = || Failure::new(DENREI_INVALID, format!("length is {length}: no memory is as large"));
    isize::try_from(length).map(drop).map_err(|_| too_long())
}

/// Whether there may be `length` bytes at `data`.
fn check_bytes(data: *const c_void, length: usize) -> Result<(), Failure> {
    check_length(length)?;
    if data.is_null() && length > 0 { Err(Failure::null("data")) } else { Ok(()) }
}

/// A copy of what C has, if `takes` does not refuse so many bytes, which is asked for many only.
///
/// # Safety
/// `data` is null or has `length` bytes.
pub(crate) unsafe fn copied<E>(
    data: *const c_void,
    length: usize,
    takes: impl FnOnce(u64) -> Result<(), E>,
) -> Result<Bytes, Failure>
where
    Failure: From<E>,
{
    check_bytes(data, length)?;
    if length > ASKED_FROM {
        // What is refused need be no length at all: (unsigned)-1 of a call that failed.
        takes(length as u64)?;
    }
    if length == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: by the contract.
    copy_of(unsafe { std::slice::from_raw_parts(data.cast(), length) })
        .map_err(|_| Failure::new(DENREI_SYSTEM, format!("there is no memory for a copy of {length} bytes")))
}

/// A copy, for which there may be no memory.
pub(crate) fn copy_of(bytes: &[u8]) -> Result<Bytes, TryReserveError> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy.into())
}

/// # Safety
/// `data` is null or has `length` bytes.
pub(crate) unsafe fn copied_for(
    node: &denrei_node,
    to: (denrei_peer, u16),
    data: *const c_void,
    length: usize,
) -> Result<Bytes, Failure> {
    // SAFETY: by the contract.
    unsafe { copied(data, length, |bytes| node.node.check_send(channel_of(to.0, to.1), bytes)) }
}

fn send(
    node: &denrei_node,
    to: (denrei_peer, u16),
    message: Bytes,
    completion: Completion,
    timeout_us: i64,
) -> Result<MessageId, SendError> {
    let to = channel_of(to.0, to.1);
    match timeout(timeout_us) {
        None => node.node.send_with(to, message, completion),
        Some(timeout) if timeout.is_zero() => node.node.try_send_with(to, message, completion),
        Some(timeout) => node.node.send_timeout_with(to, message, completion, timeout),
    }
}

/// Sends a message, a copy of `length` bytes at `data`; waits while the queue to the peer is full.
///
/// # Safety
/// `node` is a node, `data` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_send(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    data: *const c_void,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        // SAFETY: by the contract.
        let message = unsafe { copied_for(node, (peer, channel), data, length) }?;
        send(node, (peer, channel), message, Completion::None, -1)?;
        Ok(())
    })
}

/// Like denrei_send, reports later what `completion` (a denrei_completion) asks for, waits at most `timeout_us`, and puts
/// the message's number in its channel into `number` unless that is NULL.
///
/// # Safety
/// As for denrei_send; `number` is NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_send_with(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    data: *const c_void,
    length: usize,
    completion: c_uint,
    timeout_us: i64,
    number: *mut u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        // SAFETY: by the contract.
        let message = unsafe { copied_for(node, (peer, channel), data, length) }?;
        let sent = send(node, (peer, channel), message, completion_of(completion)?, timeout_us)?;
        // SAFETY: by the contract.
        unsafe { put(number, sent.number) };
        Ok(())
    })
}

/// Like denrei_send_with, without a copy: the memory must stay as it is until `release` is called
/// with `context`, which happens exactly once, also when the call fails.
///
/// # Safety
/// As for denrei_send_with; the memory stays valid and unchanged until `release` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_send_lent(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    data: *const c_void,
    length: usize,
    release: denrei_release,
    context: *mut c_void,
    completion: c_uint,
    timeout_us: i64,
    number: *mut u64,
) -> denrei_code {
    // SAFETY: by the contract.
    let message = unsafe { lent(data, length, release, context) };
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node)? };
        let sent = send(node, (peer, channel), message?, completion_of(completion)?, timeout_us)?;
        // SAFETY: by the contract.
        unsafe { put(number, sent.number) };
        Ok(())
    })
}

/// Sets how urgent a channel is: 0 (most) to 7, 4 if never set.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_set_priority(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    priority: u8,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        Ok(node.node.set_priority(channel_of(peer, channel), priority)?)
    })
}

/// Waits until everything sent so far to `peer` is acknowledged. DENREI_TIMEOUT if it is not within
/// the time given; DENREI_PEER_LOST if the peer is lost before, DENREI_UNKNOWN_PEER if it is long gone.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_flush(
    node: *const denrei_node,
    peer: denrei_peer,
    timeout_us: i64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let acknowledged = node.node.wait_acknowledged(PeerId::from_u64(peer), bounded(timeout_us))?;
        if acknowledged { Ok(()) } else { Err(Failure::late("not everything was acknowledged")) }
    })
}
