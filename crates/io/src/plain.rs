//! The portable backend: one datagram per call, by the standard library's socket.
//!
//! Inputs → outputs: bytes → one datagram sent; one datagram → the first buffer and its slot.
//! Deviations from the batched backend: trains are sent datagram by datagram, ECN bits are sent (set once at opening) and not read.

use crate::buffers::{RecvBuffers, Slot};
use denrei_wire::Ecn;
use socket2::SockRef;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, UdpSocket};

/// Sends one datagram; `to` is `None` on a connected socket.
pub(crate) fn send(socket: &UdpSocket, to: Option<SocketAddr>, datagram: &[u8]) -> io::Result<usize> {
    match to {
        Some(to) => socket.send_to(datagram, to),
        None => socket.send(datagram),
    }
}

/// Sends one datagram that lies in parts; `to` is `None` on a connected socket.
pub(crate) fn send_parts(
    socket: &UdpSocket,
    to: Option<SocketAddr>,
    parts: &[&[u8]; 3],
) -> io::Result<usize> {
    let parts = parts.map(IoSlice::new);
    match to {
        Some(to) => SockRef::from(socket).send_to_vectored(&parts, &to.into()),
        None => SockRef::from(socket).send_vectored(&parts),
    }
}

/// Receives one datagram. A datagram that fills the buffer to the last byte counts as cut, because
/// the standard library does not say; buffers are one maximal datagram long by default.
pub(crate) fn receive(socket: &UdpSocket, buffers: &mut RecvBuffers) -> io::Result<usize> {
    let buffer = buffers.first();
    let room = buffer.len();
    let (len, from) = socket.recv_from(buffer)?;
    buffers.slots[0] = Slot {
        from: canonical(from),
        at: None,
        ecn: Ecn::NotEct,
        len,
        segment_bytes: 0,
        truncated: len == room,
    };
    Ok(1)
}

/// The one form of an address, in which received datagrams have theirs: IPv4 where it is IPv4-mapped, without flow
/// information, and with a scope only where an address needs one.
pub fn canonical(address: SocketAddr) -> SocketAddr {
    match (address.ip().to_canonical(), address) {
        (IpAddr::V6(ip), SocketAddr::V6(v6)) => {
            let is_scoped = ip.is_unicast_link_local() || ip.is_multicast();
            let scope = if is_scoped { v6.scope_id() } else { 0 };
            SocketAddr::V6(SocketAddrV6::new(ip, v6.port(), 0, scope))
        }
        (ip, _) => SocketAddr::new(ip, address.port()),
    }
}

/// `to` as a socket of this family takes it.
pub(crate) fn mapped(to: SocketAddr, ipv6_socket: bool) -> SocketAddr {
    match to {
        SocketAddr::V4(v4) if ipv6_socket => SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        let v4: SocketAddr = "10.0.0.1:5".parse().unwrap();
        assert_eq!(canonical("[::ffff:10.0.0.1]:5".parse().unwrap()), v4);
        assert_eq!(mapped(v4, true), "[::ffff:10.0.0.1]:5".parse().unwrap());
        assert_eq!(mapped(v4, false), v4);
        let v6 = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 99, 2));
        let expected = SocketAddr::V6(SocketAddrV6::new("fe80::1".parse().unwrap(), 7, 0, 2));
        assert_eq!(canonical(v6), expected);
        assert_eq!(canonical("[fd00::1%2]:7".parse().unwrap()), "[fd00::1]:7".parse().unwrap());
        let group = "[ff05::1%2]:7".parse().unwrap();
        assert_eq!(canonical(group), group, "it names an interface");
    }
}
