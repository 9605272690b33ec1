//! Socket options that `socket2` does not offer, by number.
//!
//! Inputs → outputs: (descriptor, level, name, integer) → the kernel's answer; descriptor → what its queue dropped.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an integer option.
pub(crate) fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` lives through the call and the length is its size; the descriptor is open
    // because it is borrowed. The kernel only reads.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an integer option.
pub(crate) fn get(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `value`; both live
    // through the call.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if rc == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Datagrams that came to a socket whose receive buffer was full, since it was opened (socket(7), SO_MEMINFO).
pub(crate) fn overflows(fd: BorrowedFd<'_>) -> io::Result<u32> {
    /// `SK_MEMINFO_DROPS` in `linux/sock_diag.h`; whatever else there is has numbers below.
    const DROPS: usize = 8;
    let mut fields = [0u32; DROPS + 1];
    let mut len = size_of_val(&fields) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, which is the size of `fields`; both live through the call.
    let rc = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            fields.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if rc == 0 { Ok(fields[DROPS]) } else { Err(io::Error::last_os_error()) }
}
