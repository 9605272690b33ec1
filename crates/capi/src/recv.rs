//! Receiving.

use crate::error::{Failure, call, denrei_code, free, own, place};
use crate::node::{bounded, channel_of, denrei_node, denrei_peer};
use crate::send::check_length;
use denrei::{AcceptInto, Message, Placement};
use denrei_prefetch::ahead_of_writing;
use std::ffi::c_void;

/// A message received. Give it back with denrei_message_free.
pub struct denrei_message {
    message: Message,
}

pub(crate) fn boxed(message: Message) -> *mut denrei_message {
    Box::into_raw(Box::new(denrei_message { message }))
}

/// Takes the next message of any peer and channel.
///
/// # Safety
/// `node` is a node, `message` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_recv(
    node: *const denrei_node,
    timeout_us: i64,
    message: *mut *mut denrei_message,
) -> denrei_code {
    call(|| {
        let place = place("message", message)?;
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let received = node.node.recv_timeout(bounded(timeout_us))?.ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract.
        unsafe { place.put(boxed(received)) };
        Ok(())
    })
}

/// Takes the next message of one channel. Where all that it brought was taken and no more comes, it waits no longer, and
/// gives DENREI_PEER_LOST, DENREI_UNKNOWN_PEER or, where the peer has closed writing, DENREI_CLOSED; on a channel that there
/// cannot be, DENREI_NO_CHANNEL.
///
/// # Safety
/// As for denrei_recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_recv_from(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    timeout_us: i64,
    message: *mut *mut denrei_message,
) -> denrei_code {
    call(|| {
        let place = place("message", message)?;
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let received = node.node.recv_from(channel_of(peer, channel), bounded(timeout_us))?;
        // SAFETY: by the contract.
        unsafe { place.put(boxed(received.ok_or_else(Failure::timeout)?)) };
        Ok(())
    })
}

/// The bytes of a message; valid until it is freed. NULL for NULL.
///
/// # Safety
/// `message` is NULL or a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_message_data(message: *const denrei_message) -> *const c_void {
    // SAFETY: by the contract.
    unsafe { message.as_ref() }.map_or(std::ptr::null(), |message| message.message.data.as_ptr().cast())
}

/// How many bytes a message has. One that was accepted into memory of yours has none of its own.
///
/// # Safety
/// `message` is NULL or a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_message_length(message: *const denrei_message) -> usize {
    // SAFETY: by the contract.
    unsafe { message.as_ref() }.map_or(0, |message| message.message.data.len())
}

/// Who sent a message.
///
/// # Safety
/// `message` is NULL or a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_message_peer(message: *const denrei_message) -> denrei_peer {
    // SAFETY: by the contract.
    unsafe { message.as_ref() }.map_or(crate::DENREI_NO_PEER, |message| message.message.channel.peer.as_u64())
}

/// On which channel it came.
///
/// # Safety
/// `message` is NULL or a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_message_channel(message: *const denrei_message) -> u16 {
    // SAFETY: by the contract.
    unsafe { message.as_ref() }.map_or(0, |message| message.message.channel.channel)
}

/// Its number in the channel, from 0.
///
/// # Safety
/// `message` is NULL or a message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_message_number(message: *const denrei_message) -> u64 {
    // SAFETY: by the contract.
    unsafe { message.as_ref() }.map_or(0, |message| message.message.number)
}

/// Gives a message back.
///
/// # Safety
/// `message` is NULL or a message that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_message_free(message: *mut denrei_message) {
    // SAFETY: by the contract.
    unsafe { free(message) };
}

/// Accepts an offered message (DENREI_EVENT_OFFERED). With a buffer, its bytes are written there,
/// `length` at most (the rest is dropped), and the message that arrives later by denrei_recv has
/// none of its own; the buffer belongs to the node until that message has come or the peer is lost. A message that was
/// whole before that may still be there to take when denrei_event_next has brought the loss: take what there is first, as
/// its bytes are in the buffer alone. With NULL the node makes room itself.
///
/// # Safety
/// `node` is a node; `buffer` is NULL or has `length` bytes that nobody touches meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_accept(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    number: u64,
    buffer: *mut c_void,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        Ok(node.node.accept(channel_of(peer, channel), number, accept_into(buffer, length)?)?)
    })
}

/// Like denrei_accept, and leaves it to denrei_send_queued, or to the next call that sends or polls,
/// to say so: several offers that are accepted at once are one packet.
///
/// # Safety
/// As for denrei_accept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_queue_accept(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    number: u64,
    buffer: *mut c_void,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        Ok(node.node.queue_accept(channel_of(peer, channel), number, accept_into(buffer, length)?)?)
    })
}

/// Where an accepted message goes: into `buffer`, or where the node makes room.
fn accept_into(buffer: *mut c_void, length: usize) -> Result<AcceptInto, Failure> {
    if buffer.is_null() {
        return Ok(Vec::new().into());
    }
    check_length(length)?;
    let into: Box<dyn Placement> = Box::new(Foreign { buffer: buffer.cast(), length });
    Ok(into.into())
}

/// Memory of the application's that an accepted message is written to.
#[derive(Debug)]
struct Foreign {
    buffer: *mut u8,
    length: usize,
}

// SAFETY: by the contract of denrei_accept the memory is the node's, whichever thread drives it.
unsafe impl Send for Foreign {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for Foreign {}

impl Placement for Foreign {
    fn place(&mut self, offset: u64, bytes: &[u8]) {
        let Some(room) = usize::try_from(offset).ok().and_then(|offset| self.length.checked_sub(offset))
        else {
            return;
        };
        let count = bytes.len().min(room);
        ahead_of_writing(self.buffer, self.length, offset as usize, count);
        // SAFETY: offset + count ≤ length, and by the contract the buffer has that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer.add(offset as usize), count) };
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        // SAFETY: by the contract the buffer has that many bytes, and is the node's alone until this is dropped.
        (!self.buffer.is_null()).then(|| unsafe { std::slice::from_raw_parts_mut(self.buffer, self.length) })
    }
}

/// Refuses an offered message; its sender gets DENREI_EVENT_REFUSED.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_refuse(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    number: u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        Ok(node.node.refuse(channel_of(peer, channel), number)?)
    })
}
