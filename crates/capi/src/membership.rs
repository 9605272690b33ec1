//! Groups, the member's side.

use crate::error::denrei_code::{DENREI_CLOSED, DENREI_PEER_LOST};
use crate::error::{Failure, Owned, call, denrei_code, free, own, place, text};
use crate::node::{DENREI_NO_PEER, bounded, denrei_node, resolve, write_text};
use crate::recv::{boxed, denrei_message};
use denrei::{
    ChannelId, GroupListener, GroupMessage, Maker, Membership, MembershipCounters, MembershipEnd, Message,
    PeerId,
};
use std::ffi::c_char;

/// Waits for openers who name this node as a member.
pub struct denrei_group_listener {
    listener: GroupListener,
    maker: Maker,
}

impl Owned for denrei_group_listener {
    fn maker(&self) -> Maker {
        self.maker
    }
}

/// The member's end of a group.
pub struct denrei_membership {
    membership: Membership,
    maker: Maker,
}

impl Owned for denrei_membership {
    fn maker(&self) -> Maker {
        self.maker
    }
}

/// A group's message as one of a channel that no peer has.
pub(crate) fn message_of(message: GroupMessage) -> *mut denrei_message {
    let channel = ChannelId { peer: PeerId::from_u64(DENREI_NO_PEER), channel: 0 };
    boxed(Message { channel, number: message.number, data: message.data })
}

/// Joins the multicast `address`: openers may from now on name this node as a member of groups
/// there, and denrei_group_accept brings the memberships.
///
/// # Safety
/// `node` is a node, `address` a string, `listener` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_join(
    node: *const denrei_node,
    address: *const c_char,
    listener: *mut *mut denrei_group_listener,
) -> denrei_code {
    call(|| {
        let place = place("listener", listener)?;
        // SAFETY: by the contract.
        let (node, address) = unsafe { (own("node", node)?, text("address", address)?) };
        let listener = node.node.join_group(resolve(address)?)?;
        // SAFETY: by the contract.
        unsafe {
            place.put(Box::into_raw(Box::new(denrei_group_listener {
                listener,
                maker: Maker::this_process(),
            })))
        };
        Ok(())
    })
}

/// Waits for a group that this node is made a member of.
///
/// # Safety
/// `listener` is a listener, `membership` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_accept(
    listener: *const denrei_group_listener,
    timeout_us: i64,
    membership: *mut *mut denrei_membership,
) -> denrei_code {
    call(|| {
        let place = place("membership", membership)?;
        // SAFETY: by the contract.
        let listener = unsafe { own("listener", listener) }?;
        let membership = listener.listener.next(bounded(timeout_us))?.ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract.
        unsafe {
            place.put(Box::into_raw(Box::new(denrei_membership { membership, maker: Maker::this_process() })))
        };
        Ok(())
    })
}

/// Asks the node at `opener` to be made a member of its group at the listener's address, from the
/// next message on, or with what it has retained; denrei_group_accept brings the membership.
///
/// # Safety
/// `listener` is a listener, `opener` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_ask(
    listener: *const denrei_group_listener,
    opener: *const c_char,
    history: bool,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (listener, opener) = unsafe { (own("listener", listener)?, text("opener", opener)?) };
        let opener = resolve(opener)?;
        if listener.listener.ask(opener, history) {
            return Ok(());
        }
        Err(Failure::new(DENREI_PEER_LOST, format!("{opener} could not be asked: there is no room for it")))
    })
}

/// Writes the group's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
///
/// # Safety
/// `listener` is a listener, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_listener_address(
    listener: *const denrei_group_listener,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let address = unsafe { own("listener", listener) }?.listener.address().to_string();
        // SAFETY: by the contract.
        unsafe { write_text(&address, buffer, length) }
    })
}

/// Whether the group's address itself is heard. It is not where the host has no multicast, or the node hears
/// as many addresses as it can, 63; groups come by unicast then.
///
/// # Safety
/// `listener` is NULL or a listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_listener_is_heard(listener: *const denrei_group_listener) -> bool {
    // SAFETY: by the contract.
    unsafe { listener.as_ref() }.is_some_and(|listener| listener.listener.is_heard())
}

/// Stops waiting for openers; memberships stay.
///
/// # Safety
/// `listener` is NULL or a listener that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_group_listener_free(listener: *mut denrei_group_listener) {
    // SAFETY: by the contract.
    unsafe { free(listener) };
}

impl From<MembershipEnd> for Failure {
    fn from(end: MembershipEnd) -> Self {
        let code = match end {
            MembershipEnd::Closed | MembershipEnd::Left => DENREI_CLOSED,
            _ => DENREI_PEER_LOST,
        };
        Self::new(code, end)
    }
}

/// Takes the group's next message. Once all are taken: DENREI_CLOSED if the opener closed the group,
/// and everything has arrived; DENREI_PEER_LOST if this member was removed or the opener is gone.
///
/// # Safety
/// `membership` is a membership, `message` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_recv(
    membership: *const denrei_membership,
    timeout_us: i64,
    message: *mut *mut denrei_message,
) -> denrei_code {
    call(|| {
        let place = place("message", message)?;
        // SAFETY: by the contract.
        let membership = unsafe { own("membership", membership) }?;
        let received = membership.membership.recv_timeout(bounded(timeout_us))?;
        // SAFETY: by the contract.
        unsafe { place.put(message_of(received.ok_or_else(Failure::timeout)?)) };
        Ok(())
    })
}

/// The group's number, the same at its opener; 0 for NULL.
///
/// # Safety
/// `membership` is NULL or a membership.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_group(membership: *const denrei_membership) -> u64 {
    // SAFETY: by the contract.
    unsafe { membership.as_ref() }.map_or(0, |membership| membership.membership.id().0)
}

/// This member's id.
///
/// # Safety
/// `membership` is NULL or a membership.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_member(membership: *const denrei_membership) -> u32 {
    // SAFETY: by the contract.
    unsafe { membership.as_ref() }.map_or(0, |membership| membership.membership.member())
}

/// Writes the opener's address, as text that ends with NUL, into `buffer`; 64 bytes are always enough.
///
/// # Safety
/// `membership` is a membership, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_opener(
    membership: *const denrei_membership,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let opener = unsafe { own("membership", membership) }?.membership.opener().to_string();
        // SAFETY: by the contract.
        unsafe { write_text(&opener, buffer, length) }
    })
}

/// Whether the membership is over, whatever is still to be taken: DENREI_OK while it goes on; as for
/// denrei_membership_recv, with a message that says why, once it is.
///
/// # Safety
/// `membership` is a membership.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_end(membership: *const denrei_membership) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let end = unsafe { own("membership", membership) }?.membership.end();
        end.map_or(Ok(()), |end| Err(end.into()))
    })
}

/// What a member has counted since it joined.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct denrei_membership_counters {
    /// Bytes of the group's packets that came, UDP payload.
    pub bytes_received: u64,
    /// Reports sent to the opener.
    pub reports: u64,
    /// Parts of messages that came twice.
    pub duplicates: u64,
    /// Parities received.
    pub parities: u64,
    /// Parts of messages restored from parities.
    pub restored: u64,
}

impl From<MembershipCounters> for denrei_membership_counters {
    fn from(counters: MembershipCounters) -> Self {
        let MembershipCounters { bytes_received, reports, duplicates, parities, restored } = counters;
        Self { bytes_received, reports, duplicates, parities, restored }
    }
}

/// A membership's counters. DENREI_CLOSED once the membership is over and forgotten.
///
/// # Safety
/// `membership` is a membership, `counters` a place for a denrei_membership_counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_count(
    membership: *const denrei_membership,
    counters: *mut denrei_membership_counters,
) -> denrei_code {
    call(|| {
        let place = place("counters", counters)?;
        // SAFETY: by the contract.
        let counted = unsafe { own("membership", membership) }?.membership.counters();
        let over = || Failure::new(DENREI_CLOSED, "the membership is over");
        // SAFETY: by the contract.
        unsafe { place.put(counted.ok_or_else(over)?.into()) };
        Ok(())
    })
}

/// Leaves the group, if it is not over, and gives the membership back.
///
/// # Safety
/// `membership` is NULL or a membership that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_membership_leave(membership: *mut denrei_membership) {
    if !membership.is_null() {
        // SAFETY: by the contract it was made by Box::into_raw.
        let membership = unsafe { Box::from_raw(membership) };
        call(|| {
            drop(membership);
            Ok(())
        });
    }
}
