//! Messages and events as they come: one, or several with one call.

use crate::error::{Failure, call, denrei_code, own, place};
use crate::event::denrei_event;
use crate::node::{bounded, denrei_node, denrei_peer};
use crate::recv::{boxed, denrei_message};
use denrei::{ChannelId, Incoming};
use std::ffi::c_void;

/// A message or an event: the other pointer is NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_incoming {
    /// A message, to be freed.
    pub message: *mut denrei_message,
    /// An event, to be freed.
    pub event: *mut denrei_event,
}

impl From<Incoming> for denrei_incoming {
    fn from(incoming: Incoming) -> Self {
        match incoming {
            Incoming::Message(message) => Self { message: boxed(message), event: std::ptr::null_mut() },
            Incoming::Event(event) => {
                Self { message: std::ptr::null_mut(), event: denrei_event::boxed(event) }
            }
        }
    }
}

/// Takes the next message or the next event, whichever is there first; the other pointer becomes
/// NULL. Events come before messages that arrived with them, but that a peer will send no more (it is
/// done writing, or lost) comes after what it has sent.
///
/// # Safety
/// `node` is a node, `message` and `event` are places for pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_next(
    node: *const denrei_node,
    timeout_us: i64,
    message: *mut *mut denrei_message,
    event: *mut *mut denrei_event,
) -> denrei_code {
    call(|| {
        let (for_message, for_event) = (place("message", message)?, place("event", event)?);
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let next = node.node.next(bounded(timeout_us))?.ok_or_else(Failure::timeout)?;
        let next = denrei_incoming::from(next);
        // SAFETY: by the contract.
        unsafe {
            for_message.put(next.message);
            for_event.put(next.event);
        }
        Ok(())
    })
}

/// Whether messages of a peer's channel shall be taken; called with the `context` of denrei_drain, and
/// must not call the node.
pub type denrei_wanted =
    Option<unsafe extern "C" fn(context: *mut c_void, peer: denrei_peer, channel: u16) -> bool>;

/// Takes events and messages that are here, in the order of denrei_next, into up to `room` places, and
/// puts into `count` how many came. Messages of channels that `wanted` (NULL: all are) refuses stay, and by and by
/// their senders run out of credit. Never waits, and does not look at the socket: denrei_node_poll does,
/// and the node's thread. That nothing is here is no failure.
///
/// # Safety
/// `node` is a node, `wanted` may be called with `context` during the call, `incoming` has `room` places,
/// `count` is a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_drain(
    node: *const denrei_node,
    wanted: denrei_wanted,
    context: *mut c_void,
    incoming: *mut denrei_incoming,
    room: usize,
    count: *mut usize,
) -> denrei_code {
    call(|| {
        let place = place("count", count)?;
        if incoming.is_null() && room > 0 {
            return Err(Failure::null("incoming"));
        }
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let is_wanted = |channel: ChannelId| {
            // SAFETY: by the contract.
            wanted.is_none_or(|wanted| unsafe { wanted(context, channel.peer.as_u64(), channel.channel) })
        };
        let mut taken = 0;
        node.node.drain(room, is_wanted, |next| {
            // SAFETY: drain brings `room` at most.
            unsafe { incoming.add(taken).write(next.into()) };
            taken += 1;
        });
        // SAFETY: by the contract.
        unsafe { place.put(taken) };
        Ok(())
    })
}

/// Waits until there is a message or an event to take, without taking it.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_wait_incoming(node: *const denrei_node, timeout_us: i64) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let here = unsafe { own("node", node) }?.node.wait_incoming(bounded(timeout_us));
        if here { Ok(()) } else { Err(Failure::timeout()) }
    })
}
