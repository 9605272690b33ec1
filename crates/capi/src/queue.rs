//! Several messages for one system call: queue them, then send.

use crate::error::{call, denrei_code, own, put};
use crate::node::{channel_of, denrei_node, denrei_peer};
use crate::send::{completion_of, copied_for, denrei_release, lent};
use std::ffi::{c_uint, c_void};

/// Queues a message, a copy of `length` bytes at `data`, if the queue to the peer has room
/// (DENREI_WOULD_BLOCK if not), and leaves it to denrei_send_queued, or to the next call that sends or
/// polls, to send it: who queues several at once pays for one system call. Never waits. As to
/// `completion` and `number`, see denrei_send_with.
///
/// # Safety
/// As for denrei_send_with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_queue(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    data: *const c_void,
    length: usize,
    completion: c_uint,
    number: *mut u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        // SAFETY: by the contract.
        let message = unsafe { copied_for(node, (peer, channel), data, length) }?;
        let queued = node.node.queue(channel_of(peer, channel), message, completion_of(completion)?)?;
        // SAFETY: by the contract.
        unsafe { put(number, queued.number) };
        Ok(())
    })
}

/// Like denrei_queue, without a copy: see denrei_send_lent.
///
/// # Safety
/// As for denrei_send_lent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_queue_lent(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    data: *const c_void,
    length: usize,
    release: denrei_release,
    context: *mut c_void,
    completion: c_uint,
    number: *mut u64,
) -> denrei_code {
    // SAFETY: by the contract.
    let message = unsafe { lent(data, length, release, context) };
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node)? };
        let queued = node.node.queue(channel_of(peer, channel), message?, completion_of(completion)?)?;
        // SAFETY: by the contract.
        unsafe { put(number, queued.number) };
        Ok(())
    })
}

/// Sends what denrei_queue has queued, and what else is due.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_send_queued(node: *const denrei_node) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        unsafe { own("node", node) }?.node.send_queued();
        Ok(())
    })
}
