//! Sockets on hosts of the lab, and datagrams that claim to come from others.
//!
//! Inputs → outputs: a namespace → sockets that stay in it, whoever uses them; addresses and a
//! payload → an IPv4 packet with that source. Needs root.

use anyhow::{Context, Result};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Protocol, Socket, Type};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::Duration;

/// Protocol number of raw sockets whose packets come with their IP header.
const IPPROTO_RAW: i32 = 255;
/// Protocol number of ICMP.
const IPPROTO_ICMP: u8 = 1;
/// Protocol number of UDP.
const IPPROTO_UDP: u8 = 17;
/// Size of an IPv4 header without options.
const IP_HEADER_BYTES: usize = 20;
/// Size of a UDP header.
const UDP_HEADER_BYTES: usize = 8;
/// Buffer of attackers' sockets: losses here would be attempts that were none, bytes.
const BUFFER_BYTES: usize = 8 << 20;
/// Packets between two pauses: what is sent is meant to be looked at, not to overflow a queue.
const BURST: u64 = 32;
/// That pause.
const PAUSE: Duration = Duration::from_millis(1);

/// Calls `open` in a network namespace; sockets made there remain there.
pub fn inside<T: Send>(namespace: &str, open: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let file = File::open(format!("/run/netns/{namespace}")).context("cannot open the namespace")?;
    // A thread of its own: it is left in the namespace, and ends.
    let opened = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            setns(&file, CloneFlags::CLONE_NEWNET).context("cannot enter the namespace")?;
            open()
        });
        thread.join()
    });
    opened.map_err(|_| anyhow::anyhow!("opening a socket panicked"))?
}

/// A UDP socket on a host.
pub fn udp(namespace: &str, addr: Ipv4Addr) -> Result<UdpSocket> {
    inside(namespace, || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        // Beyond what the system allows others: attackers are root.
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).context("cannot enlarge a buffer")?;
        setsockopt(&socket, sockopt::SndBufForce, &BUFFER_BYTES).context("cannot enlarge a buffer")?;
        socket.bind(&SocketAddr::from((addr, 0)).into()).context("cannot bind the attacker's socket")?;
        Ok(socket.into())
    })
}

/// A UDP socket on a host that hears the group at `group` and does not wait for it.
pub fn listener(namespace: &str, addr: Ipv4Addr, group: SocketAddrV4) -> Result<UdpSocket> {
    inside(namespace, || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES).context("cannot enlarge a buffer")?;
        socket.bind(&SocketAddr::from(group).into()).context("cannot bind to the group's address")?;
        socket.join_multicast_v4(group.ip(), &addr).context("cannot hear the group")?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    })
}

/// Sends packets under any address.
pub struct Forger {
    socket: Socket,
    sent: u64,
}

impl Forger {
    /// On the host with this address. It does not hear what it sends to groups itself.
    pub fn on(namespace: &str, addr: Ipv4Addr) -> Result<Self> {
        let socket = inside(namespace, || {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IPPROTO_RAW)))
                .context("cannot send packets with forged addresses")?;
            socket.set_multicast_if_v4(&addr)?;
            socket.set_multicast_loop_v4(false)?;
            Ok(socket)
        })?;
        Ok(Self { socket, sent: 0 })
    }

    /// Sends `payload` to `to` as if `from` had, and gives the victim time to look at it.
    pub fn send(&mut self, from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Result<()> {
        let packet = packet(*from.ip(), *to.ip(), IPPROTO_UDP, &udp_datagram(from, to, payload));
        self.put(to, &packet)
    }

    /// Tells `to` that what it sent to `of` could not be delivered: port unreachable.
    pub fn unreachable(&mut self, router: Ipv4Addr, to: SocketAddrV4, of: SocketAddrV4) -> Result<()> {
        // RFC 792: the IP header and eight octets of what could not be delivered.
        let original = packet(*to.ip(), *of.ip(), IPPROTO_UDP, &udp_datagram(to, of, &[0; 64]));
        let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(&original[..IP_HEADER_BYTES + UDP_HEADER_BYTES + 8]);
        // The kernel completes headers of packets it sends; inside this one nobody does.
        let total = (original.len() as u16).to_be_bytes();
        message[8 + 2..8 + 4].copy_from_slice(&total);
        let sum = internet_checksum(&message[8..8 + IP_HEADER_BYTES]);
        message[8 + 10..8 + 12].copy_from_slice(&sum.to_be_bytes());
        let sum = internet_checksum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        self.put(to, &packet(router, *to.ip(), IPPROTO_ICMP, &message))
    }

    fn put(&mut self, to: SocketAddrV4, packet: &[u8]) -> Result<()> {
        self.socket.send_to(packet, &SocketAddr::from(to).into()).context("cannot send a forged packet")?;
        self.sent += 1;
        if self.sent.is_multiple_of(BURST) {
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

/// An IPv4 packet; the kernel fills in length, identification and checksum.
fn packet(from: Ipv4Addr, to: Ipv4Addr, protocol: u8, content: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; IP_HEADER_BYTES];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet.extend_from_slice(content);
    packet
}

/// UDP header and payload, without the checksum, which IPv4 permits.
fn udp_datagram(from: SocketAddrV4, to: SocketAddrV4, payload: &[u8]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(UDP_HEADER_BYTES + payload.len());
    datagram.extend_from_slice(&from.port().to_be_bytes());
    datagram.extend_from_slice(&to.port().to_be_bytes());
    datagram.extend_from_slice(&((UDP_HEADER_BYTES + payload.len()) as u16).to_be_bytes());
    datagram.extend_from_slice(&[0, 0]);
    datagram.extend_from_slice(payload);
    datagram
}

/// RFC 1071.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_1071() {
        assert_eq!(internet_checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
        assert_eq!(internet_checksum(&[1]), !0x0100);
    }
}
