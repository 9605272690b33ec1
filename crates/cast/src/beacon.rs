//! How receivers find a sender that does not know them.
//!
//! Inputs → outputs: a Node's port → datagrams to the group's address, port + 1; such datagrams → the
//! addresses of senders. A beacon says nothing but where to ask, and is not protected: who follows a
//! forged one opens a session to nobody who has the key. Source: `spec/cast.md` §7.

use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Begins every beacon.
const MAGIC: [u8; 8] = *b"denreica";
/// How often a sender says that it is there: a late receiver waits half of that on average.
const INTERVAL: Duration = Duration::from_millis(500);
/// A sender that was followed is not followed again for this long.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(1500);
/// Senders remembered.
const MAX_SENDERS: usize = 16;
/// Datagrams looked at in one go.
const MAX_DATAGRAMS: usize = 64;
/// Routers a beacon may cross: those of one site.
const HOPS: u32 = 8;
#[cfg(target_os = "linux")]
const LOOPBACK_INTERFACE: u32 = 1;
#[cfg(not(target_os = "linux"))]
const LOOPBACK_INTERFACE: u32 = 0;

/// Where the beacons of a group go.
pub fn address(group: SocketAddr) -> SocketAddr {
    SocketAddr::new(group.ip(), group.port().checked_add(1).unwrap_or(1024))
}

/// Says where a sender is.
#[derive(Debug)]
pub struct Beacon {
    sockets: Vec<UdpSocket>,
    to: SocketAddr,
    datagram: [u8; 10],
    next: Instant,
}

impl Beacon {
    /// For the Node at `local`. One that has all of the host's addresses is announced on the interface of
    /// the default route, and to receivers at the host's loopback address.
    ///
    /// # Errors
    /// The host has no multicast there.
    pub fn new(group: SocketAddr, local: SocketAddr) -> io::Result<Self> {
        let mut datagram = [0; 10];
        datagram[..8].copy_from_slice(&MAGIC);
        datagram[8..].copy_from_slice(&local.port().to_le_bytes());
        let ip = local.ip().to_canonical();
        // Where there is no way for them, the first shows it.
        let announce = |from: IpAddr| -> io::Result<UdpSocket> {
            let socket = voice(group, from)?;
            socket.send_to(&datagram, address(group))?;
            Ok(socket)
        };
        let mut sockets = vec![announce(ip)?];
        if ip.is_unspecified() {
            let loopback =
                if group.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            sockets.extend(announce(loopback));
        }
        Ok(Self { sockets, to: address(group), datagram, next: Instant::now() })
    }

    /// Says it, if it is time to.
    pub fn poll(&mut self, now: Instant) {
        if now >= self.next {
            self.next = now + INTERVAL;
            for socket in &self.sockets {
                // One that is lost is followed by another.
                let _ = socket.send_to(&self.datagram, self.to);
            }
        }
    }
}

/// A socket that speaks to the group on the interface of `from`.
fn voice(group: SocketAddr, from: IpAddr) -> io::Result<UdpSocket> {
    let socket = open(group)?;
    match (group.ip(), from) {
        (IpAddr::V4(_), IpAddr::V4(ip)) => {
            socket.set_multicast_ttl_v4(HOPS)?;
            socket.set_multicast_if_v4(&ip)?;
            socket.bind(&SocketAddr::from((ip, 0)).into())?;
        }
        (IpAddr::V4(_), IpAddr::V6(_)) => socket.set_multicast_ttl_v4(HOPS)?,
        (IpAddr::V6(_), _) => {
            socket.set_multicast_hops_v6(HOPS)?;
            socket.set_multicast_if_v6(interface(from.is_loopback()))?;
        }
    }
    Ok(socket.into())
}

/// Hears where senders are.
#[derive(Debug)]
pub struct Finder {
    socket: UdpSocket,
    followed: Vec<(SocketAddr, Instant)>,
}

impl Finder {
    /// On the interface of the Node at `local`.
    ///
    /// # Errors
    /// The host has no multicast there.
    pub fn new(group: SocketAddr, local: SocketAddr) -> io::Result<Self> {
        let socket = open(group)?;
        socket.set_reuse_address(true)?;
        hear_own_interface_only(&socket, group)?;
        socket.bind(&address(group).into())?;
        let loopback = local.ip().to_canonical().is_loopback();
        match (group.ip(), local.ip().to_canonical()) {
            (IpAddr::V4(group), IpAddr::V4(ip)) => socket.join_multicast_v4(&group, &ip)?,
            (IpAddr::V4(group), IpAddr::V6(_)) => socket.join_multicast_v4(&group, &Ipv4Addr::UNSPECIFIED)?,
            (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, interface(loopback))?,
        }
        Ok(Self { socket: socket.into(), followed: Vec::new() })
    }

    /// A sender to ask, if one was heard that was not asked just now.
    pub fn poll(&mut self, now: Instant) -> Option<SocketAddr> {
        let mut datagram = [0; 16];
        for _ in 0..MAX_DATAGRAMS {
            let (len, from) = self.socket.recv_from(&mut datagram).ok()?;
            let Some(port) = parse(&datagram[..len]) else { continue };
            let sender = SocketAddr::new(from.ip(), port);
            self.followed.retain(|(_, at)| now.saturating_duration_since(*at) < FOLLOW_INTERVAL);
            let known = self.followed.iter().any(|(known, _)| *known == sender);
            if !known && self.followed.len() < MAX_SENDERS {
                self.followed.push((sender, now));
                return Some(sender);
            }
        }
        None
    }
}

fn parse(datagram: &[u8]) -> Option<u16> {
    let port = datagram.strip_prefix(&MAGIC)?;
    Some(u16::from_le_bytes(port.try_into().ok()?)).filter(|port| *port != 0)
}

fn open(group: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What others of the host have joined elsewhere is not for this socket: a sender heard on two interfaces
/// would be two.
#[cfg(target_os = "linux")]
fn hear_own_interface_only(socket: &Socket, group: SocketAddr) -> io::Result<()> {
    if group.is_ipv4() { socket.set_multicast_all_v4(false) } else { socket.set_multicast_all_v6(false) }
}

#[cfg(not(target_os = "linux"))]
fn hear_own_interface_only(_socket: &Socket, _group: SocketAddr) -> io::Result<()> {
    Ok(())
}

fn interface(loopback: bool) -> u32 {
    if loopback { LOOPBACK_INTERFACE } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a receiver at loopback hears of a sender at `local`.
    fn found_at_loopback(local: &str) -> Option<SocketAddr> {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let group = SocketAddr::from(([239, 255, 79, 1], port.min(65_000)));
        let here: SocketAddr = "127.0.0.1:4711".parse().unwrap();
        let mut finder = Finder::new(group, here).unwrap();
        let mut beacon = Beacon::new(group, local.parse().unwrap()).ok()?;
        let begin = Instant::now();
        let mut found = None;
        while found.is_none() && begin.elapsed() < Duration::from_secs(10) {
            beacon.poll(Instant::now());
            std::thread::sleep(Duration::from_millis(5));
            found = finder.poll(begin);
        }
        assert_eq!(finder.poll(begin), None, "it is followed once");
        found
    }

    #[test]
    fn a_sender_is_found_and_followed_once() {
        assert_eq!(found_at_loopback("127.0.0.1:4711"), Some("127.0.0.1:4711".parse().unwrap()));
    }

    #[test]
    fn a_sender_with_all_addresses_is_found_at_loopback() {
        if voice("239.255.79.1:4000".parse().unwrap(), Ipv4Addr::UNSPECIFIED.into())
            .and_then(|socket| socket.send_to(&[], "239.255.79.1:4000"))
            .is_err()
        {
            println!("SKIPPED a_sender_with_all_addresses_is_found_at_loopback: no route for multicast");
            return;
        }
        assert_eq!(found_at_loopback("0.0.0.0:4711"), Some("127.0.0.1:4711".parse().unwrap()));
    }

    #[test]
    fn what_is_no_beacon_is_not_followed() {
        let port = |bytes: &[u8]| parse(bytes);
        assert_eq!(port(b"denreica\x01\x02"), Some(0x201));
        assert!(
            [&b""[..], b"denreica", b"denreica\x00\x00", b"denreica\x01\x02\x03", b"somebody\x01\x02"]
                .iter()
                .all(|bytes| port(bytes).is_none())
        );
    }
}
