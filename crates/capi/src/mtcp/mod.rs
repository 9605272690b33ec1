//! Sockets for groups (M8) on a [`denrei::Node`]: what `include/denrei/mtcp.h` declares and describes.
//!
//! Inputs → outputs: the paper's sequence of socket calls → a group of denrei's, in which one byte
//! stream goes to all members (M1). A descriptor in this mode is one end of a pair of connected
//! stream sockets, whose other end a thread of ours copies to or from the group: reading, writing,
//! buffering, `poll` and `O_NONBLOCK` are the kernel's. Deviations: members are found by their ids
//! (`discovery.rs`), since here an id is not in every acknowledgement; a member that is lost ends the
//! connection, where the paper has no failures.

mod asked;
mod discovery;
mod linger;
mod listener;
mod our_end;
mod sender;
mod socket;

use crate::errno::{Refusal, run};
use crate::error::denrei_error_message;
use socket::{Socket, table};
use std::ffi::{c_char, c_int, c_void};
use std::net::{Ipv4Addr, SocketAddrV4};

/// `setsockopt`: this socket speaks to, or hears, a group.
pub const MTCP_MODE: c_int = 0x4d54_4301;
/// `setsockopt`: the id of one member (sender), or the own one (member).
pub const SET_HOSTID: c_int = 0x4d54_4302;
/// `setsockopt`: hears the group's address.
pub const JOIN: c_int = 0x4d54_4303;

/// An IPv4 address from C.
///
/// # Safety
/// `address` is null or has `length` bytes.
unsafe fn address_of(
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> Result<SocketAddrV4, Refusal> {
    let bad = |what| Refusal::new(libc::EINVAL, format!("the group's address is {what}"));
    if address.is_null() || (length as usize) < size_of::<libc::sockaddr_in>() {
        return Err(bad("too short for a struct sockaddr_in"));
    }
    // SAFETY: by the contract it has as many bytes as a sockaddr_in, which may be anywhere.
    let address: libc::sockaddr_in = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    if c_int::from(address.sin_family) != libc::AF_INET {
        return Err(Refusal::new(libc::EAFNOSUPPORT, "a group has an IPv4 address of class D"));
    }
    let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
    let port = u16::from_be(address.sin_port);
    if !ip.is_multicast() || port == 0 {
        return Err(bad("not one of class D, 224.0.0.0 to 239.255.255.255, with a port"));
    }
    Ok(SocketAddrV4::new(ip, port))
}

/// Gives C an IPv4 address; no more than there is room for.
///
/// # Safety
/// `address` has `*length` bytes.
unsafe fn store_address(found: SocketAddrV4, address: *mut libc::sockaddr, length: *mut libc::socklen_t) {
    // SAFETY: all zeros is a sockaddr_in.
    let mut from: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    from.sin_family = libc::AF_INET as libc::sa_family_t;
    from.sin_port = found.port().to_be();
    from.sin_addr.s_addr = u32::from(*found.ip()).to_be();
    // SAFETY: by the contract.
    unsafe {
        let room = (*length as usize).min(size_of_val(&from));
        std::ptr::copy_nonoverlapping((&raw const from).cast::<u8>(), address.cast(), room);
        *length = size_of_val(&from) as libc::socklen_t;
    }
}

/// # Safety
/// `value` is null or has `length` bytes.
unsafe fn bytes_of<'a>(value: *const c_void, length: libc::socklen_t) -> Result<&'a [u8], Refusal> {
    if value.is_null() {
        return Err(Refusal::new(libc::EFAULT, "the option's value is NULL"));
    }
    // SAFETY: by the contract.
    Ok(unsafe { std::slice::from_raw_parts(value.cast(), length as usize) })
}

/// The result of a call of the system's.
fn checked(result: c_int) -> Result<c_int, Refusal> {
    if result < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(result) }
}

/// See mtcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn mtcp_socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: no memory is passed.
    run(-1, || checked(unsafe { libc::socket(domain, kind, protocol) }))
}

/// See mtcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn mtcp_in_mode(fd: c_int) -> c_int {
    c_int::from(table::is_in_mode(fd))
}

/// See mtcp.h.
///
/// # Safety
/// As for setsockopt.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: libc::socklen_t,
) -> c_int {
    run(-1, || {
        match name {
            MTCP_MODE => return Socket::adopt(fd).map(|()| 0),
            // SAFETY: by the contract.
            SET_HOSTID => socket(fd)?.set_host_id(unsafe { bytes_of(value, length) }?)?,
            // SAFETY: by the contract.
            JOIN => socket(fd)?.join(unsafe { bytes_of(value, length) }?)?,
            // Nothing is held back in order to be sent with more.
            _ if level == libc::IPPROTO_TCP && table::is_in_mode(fd) => {}
            // SAFETY: by the contract.
            _ => return checked(unsafe { libc::setsockopt(fd, level, name, value, length) }),
        }
        Ok(0)
    })
}

fn socket(fd: c_int) -> Result<Socket, Refusal> {
    table::get(fd).ok_or_else(|| {
        Refusal::new(libc::ENOTSOCK, format!("descriptor {fd} is in no group: setsockopt(MTCP_MODE) first"))
    })
}

/// See mtcp.h.
///
/// # Safety
/// As for connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_connect(
    fd: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    // SAFETY: by the contract.
    run(-1, || socket(fd)?.connect(unsafe { address_of(address, length) }?).map(|()| 0))
}

/// See mtcp.h.
///
/// # Safety
/// As for bind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_bind(
    fd: c_int,
    address: *const libc::sockaddr,
    length: libc::socklen_t,
) -> c_int {
    // SAFETY: by the contract.
    run(-1, || socket(fd)?.bind(unsafe { address_of(address, length) }?).map(|()| 0))
}

/// See mtcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn mtcp_listen(fd: c_int, _backlog: c_int) -> c_int {
    run(-1, || socket(fd)?.listen(fd).map(|()| 0))
}

/// See mtcp.h.
///
/// # Safety
/// As for accept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_accept(
    fd: c_int,
    address: *mut libc::sockaddr,
    length: *mut libc::socklen_t,
) -> c_int {
    run(-1, || {
        let (connection, sender) = socket(fd)?.accept()?;
        if !address.is_null() && !length.is_null() {
            // SAFETY: by the contract.
            unsafe { store_address(sender, address, length) };
        }
        Ok(connection)
    })
}

/// See mtcp.h.
///
/// # Safety
/// As for send.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize {
    run(-1, || {
        socket(fd)?.check_sending()?;
        // SAFETY: by the contract.
        let sent = unsafe { libc::send(fd, data, length, flags | libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(sent);
        }
        let error = std::io::Error::last_os_error();
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Err(Refusal::new(libc::ECONNRESET, "a member is gone; mtcp_close says which"));
        }
        Err(error.into())
    })
}

/// See mtcp.h.
///
/// # Safety
/// As for recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtcp_recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize {
    run(-1, || {
        socket(fd)?.check_receiving()?;
        // SAFETY: by the contract.
        let received = unsafe { libc::recv(fd, data, length, flags) };
        if received < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(received) }
    })
}

/// See mtcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn mtcp_close(fd: c_int) -> c_int {
    run(-1, || match table::remove(fd) {
        Some(socket) => socket.close(fd).map(|()| 0),
        // The connection is another process's. The preloaded library's `close` would come back here.
        // SAFETY: the descriptor is the caller's.
        None if table::is_in_mode(fd) => checked(unsafe { libc::syscall(libc::SYS_close, fd) } as c_int),
        // SAFETY: the descriptor is the caller's.
        None => checked(unsafe { libc::close(fd) }),
    })
}

/// See mtcp.h.
#[unsafe(no_mangle)]
pub extern "C" fn mtcp_error() -> *const c_char {
    denrei_error_message()
}
