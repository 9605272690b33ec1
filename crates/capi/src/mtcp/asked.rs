//! What a program may ask of a descriptor in this mode, which to the kernel is one end of a nameless pair.
//!
//! Inputs → outputs: getsockname, getpeername, getsockopt → what they say of a TCP socket that is connected to the
//! group, or to the sender; of any other descriptor what the kernel says.

use super::socket::Ends;
use super::{checked, socket, store_address, table};
use crate::errno::{Refusal, run};
use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, SocketAddrV4};

/// A call of the system's that gives an address, as getsockname is.
type Ask = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

/// The name `of` one of the ends, and of any other descriptor what the kernel is asked by `ask`.
///
/// # Safety
/// As for `ask`.
unsafe fn name(
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
    ask: Ask,
    of: impl FnOnce(Ends) -> Result<SocketAddrV4, Refusal>,
) -> c_int {
    run(-1, || {
        if !table::is_in_mode(fd) {
            // SAFETY: by the contract.
            return checked(unsafe { ask(fd, address, length) });
        }
        if address.is_null() || length.is_null() {
            return Err(Refusal::new(libc::EFAULT, "there is no room for an address"));
        }
        let found = of(socket(fd)?.ends())?;
        // SAFETY: by the contract.
        unsafe { store_address(found, address, length) };
        Ok(0)
    })
}

/// See mtcp.h.
///
/// # Safety
/// As for getsockname.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getsockname(
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    let none = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    // SAFETY: by the contract.
    unsafe { name(fd, address, length, libc::getsockname, |ends| Ok(ends.own.unwrap_or(none))) }
}

/// See mtcp.h.
///
/// # Safety
/// As for getpeername.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getpeername(
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    let alone = || Refusal::new(libc::ENOTCONN, "nobody is at the other end: connect, or accept, first");
    // SAFETY: by the contract.
    unsafe { name(fd, address, length, libc::getpeername, |ends| ends.peer.ok_or_else(alone)) }
}

/// See mtcp.h.
///
/// # Safety
/// As for getsockopt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut libc::socklen_t,
) -> c_int {
    run(-1, || {
        let found: c_int = match (level, name) {
            (libc::SOL_SOCKET, libc::SO_DOMAIN) if table::is_in_mode(fd) => libc::AF_INET,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) if table::is_in_mode(fd) => libc::IPPROTO_TCP,
            // Nothing is held back in order to be sent with more.
            (libc::IPPROTO_TCP, libc::TCP_NODELAY) if table::is_in_mode(fd) => 1,
            // SAFETY: by the contract.
            _ => return checked(unsafe { libc::getsockopt(fd, level, name, value, length) }),
        };
        if value.is_null() || length.is_null() {
            return Err(Refusal::new(libc::EFAULT, "there is no room for the option's value"));
        }
        // SAFETY: by the contract; no more than there is room for is written.
        unsafe {
            let room = (*length as usize).min(size_of_val(&found));
            std::ptr::copy_nonoverlapping((&raw const found).cast::<u8>(), value.cast(), room);
            *length = room as libc::socklen_t;
        }
        Ok(0)
    })
}
