//! The paper's C calls (L5) as a thin layer over `denrei-layers`; `include/denrei_layers.h` is their
//! documentation.
//!
//! Inputs → outputs: C's pointers and numbers → the calls of `calls`, which are safe but for the
//! pointers. A panic does not cross into C: it ends the program.
//!
//! All `unsafe` of this crate is in this file.

mod calls;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

/// What a call returns that did not work.
const FAILED: c_int = -1;

/// What C hands from layer to layer: nothing here looks behind it.
pub(crate) struct Primitive(NonNull<c_void>);

// SAFETY: handing it on is all that is done with it; what it points to is C's business.
unsafe impl Send for Primitive {}

fn number(result: Option<usize>) -> c_int {
    result.and_then(|number| c_int::try_from(number).ok()).unwrap_or(FAILED)
}

fn index(number: c_int) -> Option<usize> {
    usize::try_from(number).ok()
}

/// # Safety
/// `name` is null or a C string.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_bytes())
}

/// See the header.
// SAFETY: no other symbol of this name is linked: the prefix is the paper's, and this library's.
#[unsafe(no_mangle)]
pub extern "C" fn p_startproc(main_function: Option<extern "C" fn()>) -> c_int {
    number(main_function.and_then(|main| calls::start_layer(move || main())))
}

/// See the header.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub extern "C" fn p_waitproc(layer: c_int) -> c_int {
    if index(layer).is_some_and(calls::wait_for_layer) { 0 } else { FAILED }
}

/// See the header.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub extern "C" fn p_self() -> c_int {
    number(calls::current_layer())
}

/// See the header.
///
/// # Safety
/// `name` is null or a C string.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_cremsgq_r(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { text(name) }.and_then(calls::open_reading))
}

/// See the header.
///
/// # Safety
/// `name` is null or a C string.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_cremsgq_s(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    number(unsafe { text(name) }.and_then(calls::open_writing))
}

/// See the header.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub extern "C" fn p_putmsg(queue: c_int, primitive: *mut c_void) -> c_int {
    let put = index(queue).zip(NonNull::new(primitive));
    if put.is_some_and(|(queue, primitive)| calls::put(queue, Primitive(primitive))) { 0 } else { FAILED }
}

/// See the header.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub extern "C" fn p_getmsg(queue: c_int) -> *mut c_void {
    index(queue).and_then(calls::get).map_or(ptr::null_mut(), |primitive| primitive.0.as_ptr())
}

/// See the header.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub extern "C" fn p_galloc(layer: c_int, size: usize) -> *mut c_void {
    let buffer = index(layer).and_then(|layer| calls::allocate(layer, size));
    buffer.map_or(ptr::null_mut(), |pdu| pdu.into_raw().as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `buffer` is null, or came from `p_galloc`.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn p_free(buffer: *mut c_void) {
    let Some(body) = NonNull::new(buffer.cast::<u8>()) else { return };
    // SAFETY: the caller's promise.
    let pdu = unsafe { denrei_layers::Pdu::from_raw(body) };
    assert!(pdu.is_some(), "p_free({body:p}): the buffer is freed twice, or was never allocated");
}

/// See the header.
// SAFETY: as for `p_startproc`.
#[unsafe(no_mangle)]
pub extern "C" fn p_flush() {
    denrei_layers::flush_frees();
}
