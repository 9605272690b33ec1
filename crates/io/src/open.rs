//! Opening a socket with everything switched on that the host grants.
//!
//! Inputs → outputs: address and [`SocketConfig`] → a nonblocking socket and what it can do.
//!
//! The main socket is bound without `SO_REUSEPORT`, so that a port in use is an error. Connected
//! sockets join the port later: `SO_REUSEPORT` is on only while one is being bound (see
//! [`open_connected`]), so that no other process of this user can slip onto the port.

use crate::config::{BackendChoice, MAX_BUFFER_BYTES, SocketConfig};
use denrei_wire::Ecn;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::io;
use std::net::{SocketAddr, UdpSocket};

/// What a socket was granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Granted {
    pub(crate) gso: bool,
    pub(crate) gro: bool,
    pub(crate) ecn: bool,
    pub(crate) recv_buffer_bytes: usize,
    pub(crate) send_buffer_bytes: usize,
}

/// Whether the batched backend is to be used.
pub(crate) fn choose_batched(choice: BackendChoice) -> io::Result<bool> {
    match choice {
        BackendChoice::Plain => Ok(false),
        BackendChoice::Auto => Ok(cfg!(target_os = "linux")),
        BackendChoice::Batched if cfg!(target_os = "linux") => Ok(true),
        BackendChoice::Batched => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the batched backend needs Linux; choose the backend `auto` or `plain`",
        )),
    }
}

/// Opens and binds the main socket of a port.
pub(crate) fn open_main(addr: SocketAddr, config: &SocketConfig) -> io::Result<(UdpSocket, Granted)> {
    let socket = new_socket(addr)?;
    let granted = configure(&socket, addr.is_ipv6(), config);
    if addr.ip().is_unspecified() && config.backend != BackendChoice::Plain {
        platform::ask_for_local(&socket, addr.is_ipv6());
    }
    socket.bind(&addr.into())?;
    Ok((socket.into(), granted))
}

/// Opens a socket on the port of `members`, at `local`, that is connected to `peer` (both in the socket's family).
pub(crate) fn open_connected<'a>(
    members: impl Iterator<Item = &'a UdpSocket> + Clone,
    local: SocketAddr,
    peer: SocketAddr,
    config: &SocketConfig,
) -> io::Result<UdpSocket> {
    let socket = new_socket(local)?;
    configure(&socket, local.is_ipv6(), config);
    // All members have to be willing: the kernel decides by whichever it comes upon first.
    let share = |share| members.clone().try_for_each(|member| SockRef::from(member).set_reuse_port(share));
    let joined = share(true).and_then(|()| socket.set_reuse_port(true)).and_then(|()| {
        socket.bind(&local.into())?;
        socket.set_reuse_port(false)
    });
    share(false)?;
    joined?;
    // Until connect returns, other peers' datagrams may be queued here; they are received as usual.
    socket.connect(&peer.into())?;
    Ok(socket.into())
}

/// Opens a socket for a group, bound to its address so that it gets nothing else; others of this host
/// may be bound to it too (M2).
pub(crate) fn open_group(group: SocketAddr, config: &SocketConfig) -> io::Result<Socket> {
    let socket = new_socket(group)?;
    configure(&socket, group.is_ipv6(), config);
    socket.set_reuse_address(true)?;
    socket.bind(&group.into())?;
    Ok(socket)
}

/// Asks for what is sent to groups that this very socket has joined, and not to all that any of the
/// host's has. Where the system knows no such wish, binding to the group's address does most of it.
pub(crate) fn only_joined_groups(socket: &Socket, ipv6: bool) {
    platform::only_joined_groups(socket, ipv6);
}

/// Turns a connected socket away from its peer, so that its queue only shrinks: new datagrams of
/// the peer go to the main socket. Connecting a socket to its own address does that and keeps what
/// is queued. Returns whether it worked.
pub(crate) fn turn_away(socket: &UdpSocket) -> bool {
    socket.local_addr().and_then(|own| socket.connect(own)).is_ok()
}

fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    // socket2 sets CLOEXEC on every socket it makes.
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if let SocketAddr::V6(v6) = addr {
        let takes_ipv4 = v6.ip().is_unspecified() || v6.ip().to_ipv4_mapped().is_some();
        socket.set_only_v6(!takes_ipv4)?;
    }
    Ok(socket)
}

/// Switches on what `config` wishes; a refusal is no error.
fn configure(socket: &Socket, ipv6: bool, config: &SocketConfig) -> Granted {
    let mut granted = platform::configure(socket, ipv6, config);
    let (recv, send) = set_buffers(socket, config);
    granted.recv_buffer_bytes = recv;
    granted.send_buffer_bytes = send;
    if config.ecn {
        granted.ecn &= set_constant_ecn(socket, ipv6, Ecn::Ect0);
    }
    granted
}

/// Sets the ECN codepoint of everything sent, which spares a control message per datagram.
fn set_constant_ecn(socket: &Socket, ipv6: bool, ecn: Ecn) -> bool {
    let bits = u32::from(ecn as u8);
    if !ipv6 {
        return socket.set_tos_v4(bits).is_ok();
    }
    let mapped = socket.set_tos_v4(bits).is_ok() || socket.only_v6().unwrap_or(false);
    socket.set_tclass_v6(bits).is_ok() && mapped
}

/// Raises both buffers as far as permitted; returns the usable bytes of each.
fn set_buffers(socket: &Socket, config: &SocketConfig) -> (usize, usize) {
    // Linux reserves twice what is asked, for its bookkeeping, and reports that.
    let overhead = if cfg!(target_os = "linux") { 2 } else { 1 };
    let recv = || socket.recv_buffer_size().unwrap_or(0) / overhead;
    let send = || socket.send_buffer_size().unwrap_or(0) / overhead;
    // More would be cut to an `int`, and might be less than nothing.
    let [wished_recv, wished_send] =
        [config.recv_buffer_bytes, config.send_buffer_bytes].map(|bytes| bytes.min(MAX_BUFFER_BYTES));
    // Errors are ignored: what counts is what reading back says.
    if wished_recv > 0 {
        let _ = socket.set_recv_buffer_size(wished_recv);
        if recv() < wished_recv {
            platform::force_recv_buffer(socket, wished_recv);
        }
    }
    if wished_send > 0 {
        let _ = socket.set_send_buffer_size(wished_send);
        if send() < wished_send {
            platform::force_send_buffer(socket, wished_send);
        }
    }
    (recv(), send())
}

#[cfg(target_os = "linux")]
pub(crate) use platform::ask_for_marks;
pub(crate) use platform::overflows;

#[cfg(target_os = "linux")]
mod platform {
    use super::Granted;
    use crate::config::SocketConfig;
    use crate::options::{self, get, set};
    use socket2::Socket;
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, BorrowedFd};

    /// Path MTU probing (packets carry DF and nothing is fragmented), ECN reading, GRO; asks for GSO.
    pub(super) fn configure(socket: &Socket, ipv6: bool, config: &SocketConfig) -> Granted {
        let fd = socket.as_fd();
        // Best effort: without these, oversized probes are fragmented and look deliverable.
        let _ = set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
        if ipv6 {
            let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
            let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1);
        }
        Granted {
            gso: config.gso && get(fd, libc::SOL_UDP, libc::UDP_SEGMENT).is_ok(),
            gro: config.gro && set(fd, libc::SOL_UDP, libc::UDP_GRO, 1).is_ok(),
            ecn: config.ecn && ask_for_marks(fd, ipv6, true),
            recv_buffer_bytes: 0,
            send_buffer_bytes: 0,
        }
    }

    /// Asks for the ECN mark of each datagram, or no longer; whether the kernel agrees. A socket of
    /// IPv6 gets datagrams of IPv4, too.
    pub(crate) fn ask_for_marks(fd: BorrowedFd<'_>, ipv6: bool, on: bool) -> bool {
        let ipv4_marks = set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, on.into()).is_ok();
        if ipv6 { set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, on.into()).is_ok() } else { ipv4_marks }
    }

    /// Asks which of the host's addresses each datagram was sent to. Best effort: who is not told answers from
    /// the one that the system chooses. A socket of IPv6 is told of IPv4 in the same way.
    pub(super) fn ask_for_local(socket: &Socket, ipv6: bool) {
        let _ = match ipv6 {
            true => set(socket.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
            false => set(socket.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
        };
    }

    /// Best effort: old kernels do not know the option for IPv6.
    pub(super) fn only_joined_groups(socket: &Socket, ipv6: bool) {
        let (level, name) = match ipv6 {
            true => (libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL),
            false => (libc::IPPROTO_IP, libc::IP_MULTICAST_ALL),
        };
        let _ = set(socket.as_fd(), level, name, 0);
    }

    /// Works with CAP_NET_ADMIN only; a refusal leaves the permitted maximum.
    pub(super) fn force_recv_buffer(socket: &Socket, bytes: usize) {
        let _ = set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, clamp(bytes));
    }

    /// Works with CAP_NET_ADMIN only; a refusal leaves the permitted maximum.
    pub(super) fn force_send_buffer(socket: &Socket, bytes: usize) {
        let _ = set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, clamp(bytes));
    }

    /// Datagrams that came while the receive buffer was full, since the socket was opened.
    pub(crate) fn overflows(socket: &UdpSocket) -> u64 {
        options::overflows(socket.as_fd()).map_or(0, u64::from)
    }

    /// The kernel doubles the value, which must not overflow its `int`.
    fn clamp(bytes: usize) -> i32 {
        i32::try_from(bytes).unwrap_or(i32::MAX).min(i32::MAX / 2)
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::Granted;
    use crate::config::SocketConfig;
    use socket2::Socket;
    use std::net::UdpSocket;

    /// Nothing beyond what every platform has.
    pub(super) fn configure(_: &Socket, _: bool, _: &SocketConfig) -> Granted {
        Granted { gso: false, gro: false, ecn: false, recv_buffer_bytes: 0, send_buffer_bytes: 0 }
    }

    /// Not to be had.
    pub(super) fn ask_for_local(_: &Socket, _: bool) {}

    /// Nothing to ask for.
    pub(super) fn only_joined_groups(_: &Socket, _: bool) {}

    /// There is no way past the permitted maximum.
    pub(super) fn force_recv_buffer(_: &Socket, _: usize) {}

    /// There is no way past the permitted maximum.
    pub(super) fn force_send_buffer(_: &Socket, _: usize) {}

    /// The system does not say.
    pub(crate) fn overflows(_: &UdpSocket) -> u64 {
        0
    }
}
