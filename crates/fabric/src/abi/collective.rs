//! Groups for `libdenrei-mpi.so` (`mpi/denrei_coll.h` declares the same functions).
//!
//! Addresses are texts, each in [`ADDRESS_BYTES`] with a zero at its end. What returns a pointer returns
//! null if it failed; what returns a number a negative error number.

use super::{bytes, call, count, guard};
use crate::collective::{Carrier, Seat};
use crate::error::Errno;
use crate::settings::Settings;
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::ssize_t;
use std::net::SocketAddr;
use std::time::Duration;

/// Room of an address.
const ADDRESS_BYTES: usize = 64;

/// What is said of a message before it, which only the other side reads: `struct denrei_coll_head`.
const HEAD_BYTES: usize = 16;

/// Opens the process's Node and writes its address.
///
/// # Safety
/// `address` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_open(address: *mut c_char, room: usize) -> *mut Carrier {
    pointer(|| {
        let carrier = Carrier::open(&Settings::from_environment())?;
        let text = carrier.local_address().to_string();
        if address.is_null() || text.len() >= room {
            return Err(Errno::TOO_SMALL);
        }
        // SAFETY: there is room, as the caller promises, for it and the zero.
        unsafe {
            core::ptr::copy_nonoverlapping(text.as_ptr(), address.cast(), text.len());
            *address.add(text.len()) = 0;
        }
        Ok(carrier)
    })
}

/// Closes it; its seats are left before.
///
/// # Safety
/// A pointer that [`denrei_coll_open`] gave, for the last time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_close(node: *mut Carrier) {
    // SAFETY: as the caller promises.
    guard((), || unsafe { release(node) });
}

/// Listens at a group's address.
///
/// # Safety
/// A Node of ours and an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_listen(node: *mut Carrier, group: *const c_char) -> *mut Seat {
    // SAFETY: as the caller promises.
    pointer(|| unsafe { Seat::listen(node.as_ref().ok_or(Errno::INVALID)?, address(group)?) })
}

/// Waits for `opener` to open the group.
///
/// # Safety
/// A seat of ours that nobody else uses meanwhile, and an address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_accept(
    seat: *mut Seat,
    opener: *const c_char,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    call(|| unsafe {
        let seat = seat.as_mut().ok_or(Errno::INVALID)?;
        seat.accept(address(opener)?, Duration::from_millis(timeout_ms.max(0) as u64))
    })
}

/// Opens a group with `count` members.
///
/// # Safety
/// A Node of ours, an address, and `count` addresses in a row.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_lead(
    node: *mut Carrier,
    group: *const c_char,
    members: *const c_char,
    count: usize,
    timeout_ms: c_int,
) -> *mut Seat {
    // SAFETY: as the caller promises.
    pointer(|| unsafe {
        let node = node.as_ref().ok_or(Errno::INVALID)?;
        let members: Result<Vec<_>, _> =
            (0..count).map(|at| address(members.add(at * ADDRESS_BYTES))).collect();
        Seat::lead(node, address(group)?, &members?, Duration::from_millis(timeout_ms.max(0) as u64))
    })
}

/// How many members hear the group's address, and of the first `room` of them, in the order in which they were named to
/// [`denrei_coll_lead`], whether each does: 1 or 0. `-EINVAL` if there is no seat.
///
/// # Safety
/// A seat of ours, and room for so many numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_hearers(
    seat: *const Seat,
    hearers: *mut c_char,
    room: usize,
) -> ssize_t {
    // SAFETY: as the caller promises.
    count(|| unsafe {
        let heard = seat.as_ref().ok_or(Errno::INVALID)?.hearers();
        for (at, hears) in heard.iter().enumerate().take(room) {
            hearers.add(at).write(c_char::from(*hears));
        }
        Ok(heard.into_iter().filter(|hears| *hears).count())
    })
}

/// Tells the opener that this member has come to an operation; 0, `-EAGAIN` if there was no room for so long, or
/// `-ECONNRESET` if the opener is lost.
///
/// # Safety
/// A seat of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_tell(seat: *mut Seat, turn: u32, timeout_us: c_int) -> c_int {
    // SAFETY: as the caller promises.
    call(|| unsafe { seat.as_ref().ok_or(Errno::INVALID)?.tell(turn, micros(timeout_us)) })
}

/// Waits until all members have come to an operation; 0, `-EAGAIN` if they did not for so long, or `-ECONNRESET` if one of
/// them is lost.
///
/// # Safety
/// A seat of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_await_told(seat: *mut Seat, turn: u32, timeout_us: c_int) -> c_int {
    // SAFETY: as the caller promises.
    call(|| unsafe { seat.as_ref().ok_or(Errno::INVALID)?.await_told(turn, micros(timeout_us)) })
}

/// Sends to all members; 0 when it is queued, `-EAGAIN` if there was no room for so long.
///
/// # Safety
/// A seat of ours, a head and `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_send(
    seat: *mut Seat,
    head: *const c_void,
    buffer: *const c_void,
    len: usize,
    timeout_us: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    call(|| unsafe {
        let parts = [bytes(head, HEAD_BYTES)?, bytes(buffer, len)?];
        seat.as_ref().ok_or(Errno::INVALID)?.send(&parts, micros(timeout_us))
    })
}

/// Waits until all members have what was sent; 0, `-EAGAIN` if they did not for so long, or `-ECONNRESET` if none is left.
///
/// # Safety
/// A seat of ours.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_flush(seat: *mut Seat, timeout_us: c_int) -> c_int {
    // SAFETY: as the caller promises.
    call(|| unsafe { seat.as_ref().ok_or(Errno::INVALID)?.flush(micros(timeout_us)) })
}

/// Receives the next message, as far as there is room; its length, or `-EAGAIN` if none came for so long.
///
/// # Safety
/// A seat of ours, a head and `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_receive(
    seat: *mut Seat,
    head: *mut c_void,
    buffer: *mut c_void,
    room: usize,
    timeout_us: c_int,
) -> ssize_t {
    count(|| {
        // SAFETY: as the caller promises.
        let message = unsafe { seat.as_ref() }.ok_or(Errno::INVALID)?.receive(micros(timeout_us))?;
        let (front, rest) = message.split_at_checked(HEAD_BYTES).ok_or(Errno::INVALID)?;
        if head.is_null() || buffer.is_null() {
            return Err(Errno::INVALID);
        }
        // SAFETY: there is room, as the caller promises.
        unsafe {
            core::ptr::copy_nonoverlapping(front.as_ptr(), head.cast(), HEAD_BYTES);
            core::ptr::copy_nonoverlapping(rest.as_ptr(), buffer.cast(), rest.len().min(room));
        }
        Ok(rest.len())
    })
}

/// Leaves a group, or ends it.
///
/// # Safety
/// A seat of ours, for the last time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_coll_leave(seat: *mut Seat) {
    // SAFETY: as the caller promises.
    guard((), || unsafe { release(seat) });
}

fn pointer<T>(make: impl FnOnce() -> Result<T, Errno>) -> *mut T {
    guard(core::ptr::null_mut(), || {
        make().map_or(core::ptr::null_mut(), |made| Box::into_raw(Box::new(made)))
    })
}

/// # Safety
/// A pointer that [`pointer`] gave, for the last time, or null.
unsafe fn release<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

fn micros(timeout: c_int) -> Duration {
    Duration::from_micros(timeout.max(0) as u64)
}

/// # Safety
/// A text with a zero at its end, or null.
unsafe fn address(text: *const c_char) -> Result<SocketAddr, Errno> {
    if text.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().and_then(|text| text.parse().ok()).ok_or(Errno::INVALID)
}
