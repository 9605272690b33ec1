//! The flow in the application's hands (S9, S10), and how fast peers may send (R4).

use crate::error::denrei_code::DENREI_UNKNOWN_PEER;
use crate::error::{Failure, call, denrei_code, own, place, put};
use crate::node::{bounded, channel_of, denrei_node, denrei_peer};
use crate::send::{completion_of, copied_for};
use denrei::{PeerId, Rate};
use std::ffi::{c_uint, c_void};
use std::time::Duration;

/// Waits until a message is there, and says who sent it on which channel and how large it is, without
/// taking it.
///
/// # Safety
/// `node` is a node; `peer`, `channel` and `length` are NULL or places for what they are named after.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_ready(
    node: *const denrei_node,
    timeout_us: i64,
    peer: *mut denrei_peer,
    channel: *mut u16,
    length: *mut usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let (from, bytes) = node.node.ready(bounded(timeout_us)).ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract each is null or valid.
        unsafe {
            put(peer, from.peer.as_u64());
            put(channel, from.channel);
            put(length, bytes);
        }
        Ok(())
    })
}

/// Waits until a message of `length` bytes may be sent to `peer` without waiting. Whether the message is too
/// large for the peer, or the peer takes no more or is lost, sending it tells.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_wait(
    node: *const denrei_node,
    peer: denrei_peer,
    length: u64,
    timeout_us: i64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let room = node.node.wait(PeerId::from_u64(peer), length, bounded(timeout_us))?;
        if room { Ok(()) } else { Err(Failure::late("there was no room")) }
    })
}

/// Puts into `count` how many messages to `peer` are not acknowledged.
///
/// # Safety
/// `node` is a node, `count` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_queue_length(
    node: *const denrei_node,
    peer: denrei_peer,
    count: *mut u64,
) -> denrei_code {
    call(|| {
        let place = place("count", count)?;
        // SAFETY: by the contract.
        let queued = unsafe { own("node", node) }?.node.queue_len(PeerId::from_u64(peer));
        let unknown = || Failure::new(DENREI_UNKNOWN_PEER, "that peer is not in the address table");
        // SAFETY: by the contract.
        unsafe { place.put(queued.ok_or_else(unknown)?) };
        Ok(())
    })
}

/// Sends again, now, what was sent to `peer` longer ago than a round trip and is not acknowledged.
/// How many packets were given up for it goes into `packets` unless that is NULL.
///
/// # Safety
/// `node` is a node, `packets` NULL or a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_retransmit(
    node: *const denrei_node,
    peer: denrei_peer,
    packets: *mut u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let given_up = unsafe { own("node", node) }?.node.retransmit(PeerId::from_u64(peer))?;
        // SAFETY: by the contract.
        unsafe { put(packets, given_up) };
        Ok(())
    })
}

/// Sets a peer's share of what this node can receive, relative to the other peers': 1 to 10000, 100
/// if never set.
///
/// It counts only while this node divides what comes: by grants, after packets of several peers were
/// lost or marked together, among peers that have about as much left to send; or with the setting
/// learn_rates by rates, once it is overrun or its host has a limit (host_bytes_per_s), among peers
/// whose rate denrei_set_rate has not set. Else each sends as fast as its own window and rate let
/// it, whatever its weight.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_set_weight(
    node: *const denrei_node,
    peer: denrei_peer,
    weight: u32,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        Ok(unsafe { own("node", node) }?.node.set_weight(PeerId::from_u64(peer), weight)?)
    })
}

/// Sets how fast `peer` may send to this node: a mean rate in bytes/s (0: no data at all) and the
/// bytes that may come in a row. Give both: a burst of 0 lifts the limit whatever the rate is.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_set_rate(
    node: *const denrei_node,
    peer: denrei_peer,
    bytes_per_s: u64,
    burst_bytes: u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        Ok(node.node.set_rate(PeerId::from_u64(peer), Rate { bytes_per_s, burst_bytes })?)
    })
}

/// Sends a message that is worth nothing after `lifetime_us`: if it could not be sent by then, it is
/// dropped, the channel goes on without it, and DENREI_EVENT_EXPIRED says so; sooner where it cannot be sent in time any
/// more. So it is with one of which something is lost and cannot be sent again in time. Never waits.
///
/// # Safety
/// As for denrei_send_with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_send_within(
    node: *const denrei_node,
    peer: denrei_peer,
    channel: u16,
    data: *const c_void,
    length: usize,
    completion: c_uint,
    lifetime_us: u64,
    number: *mut u64,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        // SAFETY: by the contract.
        let message = unsafe { copied_for(node, (peer, channel), data, length) }?;
        let lifetime = Duration::from_micros(lifetime_us);
        let to = channel_of(peer, channel);
        let sent = node.node.send_within(to, message, completion_of(completion)?, lifetime)?;
        // SAFETY: by the contract.
        unsafe { put(number, sent.number) };
        Ok(())
    })
}
