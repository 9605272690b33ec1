//! System calls on a nonblocking socket, straight to the kernel.
//!
//! Inputs → outputs: descriptor and memory → the kernel's answer. The C library's functions of the
//! same names are points where a thread may be cancelled, which costs each call two atomic
//! operations in a program with threads (20 ns of 160 for a look at an empty socket). Nothing here
//! blocks, and no Rust thread is cancelled.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sends one datagram on a connected socket; returns its bytes.
pub(crate) fn send(fd: BorrowedFd<'_>, datagram: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let (name, name_len) = (0usize, 0usize);
    // SAFETY: the kernel reads `datagram.len()` bytes from a slice that lives through the call; no
    // address is passed.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            fd.as_raw_fd(),
            datagram.as_ptr(),
            datagram.len(),
            flags,
            name,
            name_len,
        )
    };
    answer(sent)
}

/// Receives one datagram; returns its bytes, which may be more than fit.
pub(crate) fn recv(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
    let (name, name_len) = (0usize, 0usize);
    // SAFETY: the kernel writes at most `buffer.len()` bytes into memory that is borrowed
    // exclusively; no address is asked for.
    let got = unsafe {
        libc::syscall(
            libc::SYS_recvfrom,
            fd.as_raw_fd(),
            buffer.as_mut_ptr(),
            buffer.len(),
            flags,
            name,
            name_len,
        )
    };
    answer(got)
}

/// Sends one message; returns its bytes.
///
/// # Safety
/// `header` and what it points to must be valid for reading during the call.
pub(crate) unsafe fn sendmsg(fd: BorrowedFd<'_>, header: *const libc::msghdr) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: by the contract; the kernel only reads.
    answer(unsafe { libc::syscall(libc::SYS_sendmsg, fd.as_raw_fd(), header, flags) })
}

/// Receives one message; returns its bytes.
///
/// # Safety
/// `header` and what it points to must be valid for writing during the call, each length that of its
/// memory.
pub(crate) unsafe fn recvmsg(fd: BorrowedFd<'_>, header: *mut libc::msghdr) -> io::Result<usize> {
    // SAFETY: by the contract.
    answer(unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), header, libc::MSG_DONTWAIT) })
}

/// Takes the next error from the socket's queue of them.
///
/// # Safety
/// As for [`recvmsg`].
pub(crate) unsafe fn recv_error(fd: BorrowedFd<'_>, header: *mut libc::msghdr) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE;
    // SAFETY: by the contract.
    answer(unsafe { libc::syscall(libc::SYS_recvmsg, fd.as_raw_fd(), header, flags) })
}

/// A count, or what went wrong.
fn answer(returned: libc::c_long) -> io::Result<usize> {
    usize::try_from(returned).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    /// A socket that is connected to itself.
    fn mirror() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        socket
    }

    #[test]
    fn a_datagram_goes_out_and_comes_back() {
        let socket = mirror();
        let mut buffer = [0; 8];
        let nothing = recv(socket.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(send(socket.as_fd(), b"abc").unwrap(), 3);
        assert_eq!(recv(socket.as_fd(), &mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"abc");
    }

    #[test]
    fn a_datagram_that_does_not_fit_says_its_length() {
        let socket = mirror();
        send(socket.as_fd(), &[7; 100]).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(recv(socket.as_fd(), &mut buffer).unwrap(), 100);
        assert_eq!(buffer, [7; 8]);
    }

    #[test]
    fn a_refusal_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let refused = send(file.as_fd(), b"abc").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOTSOCK));
    }
}
