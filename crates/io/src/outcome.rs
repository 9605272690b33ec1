//! What became of a send, and the counters of a socket.
//!
//! Inputs → outputs: errors of the operating system → the few outcomes a caller can act on. A
//! datagram that the host refuses is a lost datagram: loss recovery is the core's business, and a
//! bad path must never disturb the other peers of the same port.

use derive_more::Add;
use std::io;
use std::net::SocketAddr;

/// One system call about to be made, as a [`SendHook`] sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendAttempt {
    /// Target.
    pub to: SocketAddr,
    /// Datagrams in this call.
    pub datagrams: usize,
    /// Whether the kernel is asked to cut the train (`UDP_SEGMENT`).
    pub offload: bool,
}

/// Decides for each send call whether to fail it: `Some(errno)` is what the kernel is taken to have
/// said, and no call is made. For tests of how a program copes with hosts that refuse.
pub type SendHook = Box<dyn FnMut(&SendAttempt) -> Option<i32> + Send>;

/// What became of one transmit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SendOutcome {
    /// Handed to the kernel.
    Sent,
    /// The send buffer is full. The first `sent` bytes are on their way; go on with
    /// [`send_from`](crate::UdpSocket::send_from) when the socket is writable.
    WouldBlock {
        /// Bytes of the transmit already sent.
        sent: usize,
    },
    /// The host refused at least one datagram of the transmit; what was not sent is lost.
    Dropped {
        /// Why.
        kind: DropKind,
    },
}

/// Why the host refused a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DropKind {
    /// Larger than the path's or interface's MTU (`EMSGSIZE`).
    TooLarge,
    /// No route, no such host, or an address of a family this socket has not.
    Unreachable,
    /// The peer's host answered that nobody listens (`ECONNREFUSED`).
    Refused,
    /// A firewall of this host forbids it (`EPERM`), or a route (`EACCES`).
    NotPermitted,
    /// The interface is down (`ENETDOWN`).
    NetworkDown,
    /// The interface's queue is full (`ENOBUFS`, `ENOMEM`).
    NoBuffers,
    /// Any other error; counted in [`IoCounters::send_dropped`].
    Other,
}

impl DropKind {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE) => Self::TooLarge,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL) => {
                Self::Unreachable
            }
            Some(libc::ECONNREFUSED) => Self::Refused,
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            Some(libc::ENETDOWN) => Self::NetworkDown,
            Some(libc::ENOBUFS | libc::ENOMEM) => Self::NoBuffers,
            _ => Self::Other,
        }
    }
}

/// What the kernel may report of an earlier datagram.
const PENDING: &[i32] = &[
    libc::ECONNREFUSED,
    libc::EHOSTUNREACH,
    libc::EHOSTDOWN,
    // "The host is isolated" in an ICMP message; elsewhere it is EHOSTUNREACH.
    #[cfg(target_os = "linux")]
    libc::ENONET,
    libc::ENETUNREACH,
    libc::ENETDOWN,
    libc::EMSGSIZE,
    libc::EPROTO,
    libc::ENOPROTOOPT,
    libc::EACCES,
    libc::EINTR,
];

/// Whether `error` may be the report of an earlier datagram's fate (an ICMP message), which the
/// kernel hands to the next call on a connected socket instead of doing that call. Anybody can forge one.
pub(crate) fn may_be_pending(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| PENDING.contains(&code))
}

/// Whether `error` says that a receive call is wrong, or its descriptor: it will be no better the next time. Whatever
/// else a kernel may say passes, as a host that is short of memory or an interface that goes.
pub(crate) fn is_of_the_call(error: &io::Error) -> bool {
    const WRONG: [i32; 7] = [
        libc::EBADF,
        libc::ENOTSOCK,
        libc::EFAULT,
        libc::EINVAL,
        libc::EOPNOTSUPP,
        libc::ENOSYS,
        libc::EPERM,
    ];
    error.raw_os_error().is_none_or(|code| WRONG.contains(&code))
}

/// Whether `error` can mean that the path has no segmentation offload after all.
pub(crate) fn may_be_missing_gso(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP | libc::ENOPROTOOPT))
}

/// Whether `error` can mean that a sandbox, or an old kernel, does not know the call.
#[cfg(target_os = "linux")]
pub(crate) fn may_be_missing_call(error: &io::Error) -> bool {
    may_be_missing_gso(error) || matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM))
}

/// Running totals since the socket was bound.
///
/// Those of two sockets of one port add up to their totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Add)]
pub struct IoCounters {
    /// Send calls, failed ones included.
    pub send_calls: u64,
    /// Receive calls, empty ones included.
    pub recv_calls: u64,
    /// Datagrams handed to the kernel.
    pub sent_datagrams: u64,
    /// Payload bytes handed to the kernel.
    pub sent_bytes: u64,
    /// Trains sent in one call by segmentation offload.
    pub sent_trains: u64,
    /// Send calls that found the send buffer full.
    pub send_would_block: u64,
    /// Datagrams the host refused to send.
    pub send_dropped: u64,
    /// Trains that offload refused and that were sent segment by segment.
    pub gso_fallbacks: u64,
    /// Times that offload was switched off for a path, until it is tried again.
    pub gso_disabled: u64,
    /// Datagrams received and handed on.
    pub recv_datagrams: u64,
    /// Payload bytes received and handed on.
    pub recv_bytes: u64,
    /// Receive calls that brought a train of several datagrams.
    pub recv_trains: u64,
    /// Times a lane was switched to trains or to lone datagrams (`UDP_GRO` on or off).
    pub gro_switches: u64,
    /// Receive calls that found nothing.
    pub recv_would_block: u64,
    /// Errors reported by receive calls, such as a peer's "port unreachable".
    pub recv_errors: u64,
    /// Datagrams or trains larger than the caller's buffer; what was cut is discarded.
    pub recv_truncated: u64,
    /// Connected sockets opened.
    pub peers_connected: u64,
    /// Connected sockets closed.
    pub peers_disconnected: u64,
    /// Datagrams received into the memory of the message that they were expected to carry a part of.
    pub recv_landed: u64,
}
