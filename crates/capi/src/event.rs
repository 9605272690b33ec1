//! Events.

use crate::error::{Failure, call, denrei_code, free, own, place, put};
use crate::node::{DENREI_NO_PEER, bounded, denrei_node, denrei_peer};
use denrei::{Event, LostReason, MessageId, PeerId};
use std::ffi::{CString, c_char};
use std::net::SocketAddr;

/// What happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_event_kind {
    /// A kind that this version of the interface has no name for.
    DENREI_EVENT_OTHER = 0,
    /// A peer answered, or opened a session to this node.
    DENREI_EVENT_CONNECTED = 1,
    /// A message is in the receiver's memory. Channel, number.
    DENREI_EVENT_ACKNOWLEDGED = 2,
    /// A message was taken by the receiving application. Channel, number.
    DENREI_EVENT_DELIVERED = 3,
    /// A peer offers a large message: denrei_accept or denrei_refuse. Channel, number, bytes. The event stands in the
    /// message's place: what follows on the channel does not wait for its bytes.
    DENREI_EVENT_OFFERED = 4,
    /// The receiver refused a message. Channel, number.
    DENREI_EVENT_REFUSED = 5,
    /// The answer to denrei_request_status: what the peer has not taken yet. Number is the
    /// request's; bytes, and messages in denrei_event_count.
    DENREI_EVENT_STATUS = 6,
    /// The peer will send no more: all it sent has been received.
    DENREI_EVENT_DONE_WRITING = 7,
    /// The peer wants no more. Text, and the messages that were dropped.
    DENREI_EVENT_DONE_READING = 8,
    /// The session is over. Reason, code, text, and the messages that may be lost, see denrei_event_messages.
    DENREI_EVENT_PEER_LOST = 9,
    /// A message of denrei_send_within was dropped because it was late, or would be. What seemed lost of it may only be
    /// slow: then it arrives all the same. Channel, number.
    DENREI_EVENT_EXPIRED = 10,
    /// An offer was given up by its sender: it will not arrive. Channel, number.
    DENREI_EVENT_WITHDRAWN = 11,
    /// The peer has set how fast it may be sent to: denrei_event_bytes is the rate, bytes/s, and
    /// denrei_event_count the burst, bytes; 0 is no limit.
    DENREI_EVENT_RATE_SET = 12,
}

/// Why a session is over.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum denrei_lost_reason {
    /// For a reason that this version of the interface has no name for; see the text.
    DENREI_LOST_OTHER = 0,
    /// Both sides closed in order.
    DENREI_LOST_CLOSED = 1,
    /// This side aborted it.
    DENREI_LOST_ABORTED = 2,
    /// The peer ended it, with a code.
    DENREI_LOST_ENDED = 3,
    /// Nobody answered within the connect timeout.
    DENREI_LOST_NO_ANSWER = 4,
    /// Silent for longer than the failure timeout.
    DENREI_LOST_TIMED_OUT = 5,
    /// Its process was started again.
    DENREI_LOST_RESTARTED = 6,
    /// It does not know the session any more.
    DENREI_LOST_FORGOTTEN = 7,
    /// It speaks other versions of the protocol.
    DENREI_LOST_VERSION = 8,
    /// It broke the protocol.
    DENREI_LOST_VIOLATION = 9,
    /// Nobody is at its port any more, as its host says.
    DENREI_LOST_GONE = 10,
}

use denrei_event_kind::*;
use denrei_lost_reason::*;

/// A message that was sent: its place in a channel's sequence.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct denrei_message_id {
    /// The channel.
    pub channel: u16,
    /// Counts the channel's messages from 0.
    pub number: u64,
}

impl From<MessageId> for denrei_message_id {
    fn from(id: MessageId) -> Self {
        Self { channel: id.channel.channel, number: id.number }
    }
}

/// Something that happened. Give it back with denrei_event_free.
pub struct denrei_event {
    kind: denrei_event_kind,
    peer: denrei_peer,
    message: denrei_message_id,
    bytes: u64,
    count: u64,
    reason: denrei_lost_reason,
    code: u16,
    text: CString,
    address: CString,
    messages: Vec<denrei_message_id>,
}

impl denrei_event {
    pub(crate) fn boxed(event: Event) -> *mut Self {
        Box::into_raw(Box::new(Self::new(event)))
    }

    fn of(kind: denrei_event_kind, peer: PeerId) -> Self {
        Self {
            kind,
            peer: peer.as_u64(),
            message: denrei_message_id { channel: 0, number: 0 },
            bytes: 0,
            count: 0,
            reason: DENREI_LOST_OTHER,
            code: 0,
            text: CString::default(),
            address: CString::default(),
            messages: Vec::new(),
        }
    }

    fn about(kind: denrei_event_kind, id: MessageId) -> Self {
        Self { message: id.into(), ..Self::of(kind, id.channel.peer) }
    }

    fn with_text(self, text: &str) -> Self {
        // Reasons come from peers and may have a NUL in them.
        Self { text: CString::new(text.replace('\0', " ")).unwrap_or_default(), ..self }
    }

    fn at(self, addr: SocketAddr) -> Self {
        Self { address: CString::new(addr.to_string()).unwrap_or_default(), ..self }
    }

    fn with_messages(self, messages: Vec<MessageId>) -> Self {
        let messages: Vec<_> = messages.into_iter().map(denrei_message_id::from).collect();
        Self { count: messages.len() as u64, messages, ..self }
    }

    fn new(event: Event) -> Self {
        let told = format!("{event:?}");
        match event {
            Event::Connected { peer, addr, .. } => {
                Self::of(DENREI_EVENT_CONNECTED, peer).with_text(&addr.to_string()).at(addr)
            }
            Event::Acknowledged(id) => Self::about(DENREI_EVENT_ACKNOWLEDGED, id),
            Event::Delivered(id) => Self::about(DENREI_EVENT_DELIVERED, id),
            Event::Offered { channel, number, bytes } => {
                Self { bytes, ..Self::about(DENREI_EVENT_OFFERED, MessageId { channel, number }) }
            }
            Event::Refused(id) => Self::about(DENREI_EVENT_REFUSED, id),
            Event::Status { peer, request, buffered_bytes, buffered_messages } => Self {
                message: denrei_message_id { channel: 0, number: request.into() },
                bytes: buffered_bytes,
                count: buffered_messages.into(),
                ..Self::of(DENREI_EVENT_STATUS, peer)
            },
            Event::Expired(id) => Self::about(DENREI_EVENT_EXPIRED, id),
            Event::Withdrawn { channel, number } => {
                Self::about(DENREI_EVENT_WITHDRAWN, MessageId { channel, number })
            }
            Event::RateSet { peer, rate } => Self {
                bytes: rate.bytes_per_s,
                count: rate.burst_bytes,
                ..Self::of(DENREI_EVENT_RATE_SET, peer)
            },
            Event::PeerDoneWriting(peer) => Self::of(DENREI_EVENT_DONE_WRITING, peer),
            Event::PeerDoneReading { peer, unacknowledged } => {
                Self::of(DENREI_EVENT_DONE_READING, peer).with_messages(unacknowledged)
            }
            Event::PeerLost { peer, addr, reason, unacknowledged } => {
                let (kind, code) = describe(&reason);
                let event = Self { reason: kind, code, ..Self::of(DENREI_EVENT_PEER_LOST, peer) };
                event.with_text(&reason.to_string()).at(addr).with_messages(unacknowledged)
            }
            _ => {
                let nobody = Self::of(DENREI_EVENT_OTHER, PeerId::from_u64(DENREI_NO_PEER));
                nobody.with_text(&told)
            }
        }
    }
}

fn describe(reason: &LostReason) -> (denrei_lost_reason, u16) {
    let kind = match reason {
        LostReason::Closed => DENREI_LOST_CLOSED,
        LostReason::Aborted => DENREI_LOST_ABORTED,
        LostReason::Ended { code, .. } => return (DENREI_LOST_ENDED, *code),
        LostReason::NoAnswer => DENREI_LOST_NO_ANSWER,
        LostReason::TimedOut => DENREI_LOST_TIMED_OUT,
        LostReason::Restarted => DENREI_LOST_RESTARTED,
        LostReason::Forgotten => DENREI_LOST_FORGOTTEN,
        LostReason::Gone => DENREI_LOST_GONE,
        LostReason::VersionMismatch { .. } => DENREI_LOST_VERSION,
        LostReason::Violation(_) => DENREI_LOST_VIOLATION,
        _ => DENREI_LOST_OTHER,
    };
    (kind, 0)
}

/// Takes the next event. Messages have a queue of their own: those of a peer that came before it was lost may be there
/// still when this brings the loss. denrei_next has both in one order.
///
/// # Safety
/// `node` is a node, `event` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_next(
    node: *const denrei_node,
    timeout_us: i64,
    event: *mut *mut denrei_event,
) -> denrei_code {
    call(|| {
        let place = place("event", event)?;
        // SAFETY: by the contract.
        let node = unsafe { own("node", node) }?;
        let next = node.node.next_event(bounded(timeout_us))?.ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract.
        unsafe { place.put(denrei_event::boxed(next)) };
        Ok(())
    })
}

/// What happened. DENREI_EVENT_OTHER for NULL.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_get_kind(event: *const denrei_event) -> denrei_event_kind {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(DENREI_EVENT_OTHER, |event| event.kind)
}

/// With which peer.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_peer(event: *const denrei_event) -> denrei_peer {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(DENREI_NO_PEER, |event| event.peer)
}

/// The message it is about: channel and number, 0 if it is about none.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_message(event: *const denrei_event) -> denrei_message_id {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(denrei_message_id { channel: 0, number: 0 }, |event| event.message)
}

/// Bytes it is about, 0 if none.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_bytes(event: *const denrei_event) -> u64 {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(0, |event| event.bytes)
}

/// How many messages it is about: of a status, or in denrei_event_messages.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_count(event: *const denrei_event) -> u64 {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(0, |event| event.count)
}

/// The messages of which it is not known that they arrived, oldest first per channel, and in
/// `count` how many; valid until the event is freed. NULL if there are none. Among them are those that have arrived, but
/// follow one of them on its channel, which nobody is handed without it, unless DENREI_EVENT_ACKNOWLEDGED told of them;
/// and one that expired, if the peer may not know that.
///
/// # Safety
/// `event` is NULL or an event, `count` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_messages(
    event: *const denrei_event,
    count: *mut usize,
) -> *const denrei_message_id {
    // SAFETY: by the contract.
    let messages = unsafe { event.as_ref() }.map_or(&[][..], |event| &event.messages);
    // SAFETY: by the contract.
    unsafe { put(count, messages.len()) };
    if messages.is_empty() { std::ptr::null() } else { messages.as_ptr() }
}

/// Why the session is over.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_reason(event: *const denrei_event) -> denrei_lost_reason {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(DENREI_LOST_OTHER, |event| event.reason)
}

/// The code with which the peer ended the session.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_code(event: *const denrei_event) -> u16 {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(0, |event| event.code)
}

/// For people: the address of a peer that has come, the reason for which one is gone; "" otherwise.
/// Valid until the event is freed.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_text(event: *const denrei_event) -> *const c_char {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(c"".as_ptr(), |event| event.text.as_ptr())
}

/// The address of a peer that has come or is gone; "" otherwise. Valid until the event is freed.
///
/// # Safety
/// `event` is NULL or an event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_address(event: *const denrei_event) -> *const c_char {
    // SAFETY: by the contract.
    unsafe { event.as_ref() }.map_or(c"".as_ptr(), |event| event.address.as_ptr())
}

/// Gives an event back.
///
/// # Safety
/// `event` is NULL or an event that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_event_free(event: *mut denrei_event) {
    // SAFETY: by the contract.
    unsafe { free(event) };
}
