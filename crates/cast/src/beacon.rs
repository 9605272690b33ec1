//! How receivers find a sender that does not know them.
//!
//! Inputs → outputs: a Node's port → datagrams to the group's address, port + 1; such datagrams → the
//! addresses of senders. A beacon says nothing but where to ask, and is not protected: who follows a
//! forged one opens a session to nobody who has the key. Source: `spec/cast.md` §7.

use crate::interfaces::{self, Interface, Place};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
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
/// Tells senders apart: one that has several interfaces may be heard on several.
const ID_BYTES: usize = 8;
/// Magic, port, id.
const BEACON_BYTES: usize = 8 + 2 + ID_BYTES;

/// Where the beacons of a group go.
pub fn address(group: SocketAddr) -> SocketAddr {
    SocketAddr::new(group.ip(), group.port().checked_add(1).unwrap_or(1024))
}

/// Says where a sender is.
#[derive(Debug)]
pub struct Beacon {
    sockets: Vec<UdpSocket>,
    to: SocketAddr,
    datagram: [u8; BEACON_BYTES],
    next: Instant,
}

impl Beacon {
    /// For the Node at `local`, on all interfaces where somebody can reach it.
    ///
    /// # Errors
    /// The host has no multicast there.
    pub fn new(group: SocketAddr, local: SocketAddr) -> io::Result<Self> {
        let mut datagram = [0; BEACON_BYTES];
        datagram[..8].copy_from_slice(&MAGIC);
        datagram[8..10].copy_from_slice(&local.port().to_le_bytes());
        getrandom::fill(&mut datagram[10..]).map_err(|error| io::Error::other(error.to_string()))?;
        // Where there is no way for them, the first shows it.
        let announce = |place| -> io::Result<UdpSocket> {
            let socket = voice(group, place)?;
            socket.send_to(&datagram, address(group))?;
            Ok(socket)
        };
        let sockets = some(interfaces::of_node(group, local)?.into_iter().map(announce))?;
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

/// Those that worked, or what the first says where none did.
fn some<T>(results: impl Iterator<Item = io::Result<T>>) -> io::Result<Vec<T>> {
    let (worked, failed): (Vec<_>, Vec<_>) = results.partition(Result::is_ok);
    match failed.into_iter().next() {
        Some(Err(error)) if worked.is_empty() => Err(error),
        _ => Ok(worked.into_iter().flatten().collect()),
    }
}

/// A socket that speaks to the group on an interface.
fn voice(group: SocketAddr, place: Place) -> io::Result<UdpSocket> {
    let socket = open(group)?;
    match place.interface {
        Interface::V4(at) => {
            socket.set_multicast_ttl_v4(HOPS)?;
            socket.set_multicast_if_v4(&at)?;
        }
        Interface::V6(index) => {
            socket.set_multicast_hops_v6(HOPS)?;
            socket.set_multicast_if_v6(index)?;
        }
    }
    socket.bind(&place.source.into())?;
    Ok(socket.into())
}

/// Hears where senders are.
#[derive(Debug)]
pub struct Finder {
    socket: UdpSocket,
    followed: Vec<([u8; ID_BYTES], Instant)>,
}

impl Finder {
    /// On the interfaces of the Node at `local`.
    ///
    /// # Errors
    /// The host has no multicast there.
    pub fn new(group: SocketAddr, local: SocketAddr) -> io::Result<Self> {
        let places = interfaces::of_node(group, local)?;
        let socket = open(group)?;
        socket.set_reuse_address(true)?;
        hear_own_interfaces_only(&socket, group)?;
        socket.bind(&address(group).into())?;
        some(places.iter().map(|place| match (group.ip(), place.interface) {
            (IpAddr::V4(group), Interface::V4(at)) => socket.join_multicast_v4(&group, &at),
            (IpAddr::V6(group), Interface::V6(index)) => socket.join_multicast_v6(&group, index),
            _ => Ok(()),
        }))?;
        Ok(Self { socket: socket.into(), followed: Vec::new() })
    }

    /// A sender to ask, if one was heard that was not asked just now. One that is heard on several
    /// interfaces is asked where it was heard first.
    pub fn poll(&mut self, now: Instant) -> Option<SocketAddr> {
        let mut datagram = [0; BEACON_BYTES + 1];
        for _ in 0..MAX_DATAGRAMS {
            let (len, mut sender) = self.socket.recv_from(&mut datagram).ok()?;
            let Some((port, id)) = parse(&datagram[..len]) else { continue };
            sender.set_port(port);
            self.followed.retain(|(_, at)| now.saturating_duration_since(*at) < FOLLOW_INTERVAL);
            let known = self.followed.iter().any(|(known, _)| *known == id);
            if !known && self.followed.len() < MAX_SENDERS {
                self.followed.push((id, now));
                return Some(sender);
            }
        }
        None
    }
}

/// The port of a sender's node, and which sender it is.
fn parse(datagram: &[u8]) -> Option<(u16, [u8; ID_BYTES])> {
    let (port, id) = datagram.strip_prefix(&MAGIC)?.split_first_chunk::<2>()?;
    let port = u16::from_le_bytes(*port);
    (port != 0).then_some((port, id.try_into().ok()?))
}

fn open(group: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// What others of the host have joined elsewhere is not for this socket: the Node may not be reachable from
/// there.
#[cfg(target_os = "linux")]
fn hear_own_interfaces_only(socket: &Socket, group: SocketAddr) -> io::Result<()> {
    if group.is_ipv4() { socket.set_multicast_all_v4(false) } else { socket.set_multicast_all_v6(false) }
}

#[cfg(not(target_os = "linux"))]
fn hear_own_interfaces_only(_socket: &Socket, _group: SocketAddr) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a receiver at `here` hears of a sender at `local`, both of this host; `None`: nobody can announce
    /// anything there.
    fn found(group: IpAddr, local: &str, here: &str) -> Option<SocketAddr> {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let group = SocketAddr::new(group, port.min(65_000));
        let mut finder = Finder::new(group, here.parse().unwrap()).ok()?;
        let mut beacon = Beacon::new(group, local.parse().unwrap()).ok()?;
        let begin = Instant::now();
        let mut found = None;
        while found.is_none() && begin.elapsed() < Duration::from_secs(10) {
            beacon.poll(Instant::now());
            std::thread::sleep(Duration::from_millis(5));
            found = finder.poll(begin);
        }
        assert_eq!(finder.poll(begin), None, "it is followed once");
        Some(found.unwrap_or_else(|| panic!("{here} does not hear {local}")))
    }

    const GROUP: [u8; 4] = [239, 255, 79, 1];

    #[test]
    fn a_sender_of_this_host_is_found_whichever_address_either_has() {
        let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("192.0.2.99:9")?;
            Ok(SocketAddr::new(socket.local_addr()?.ip(), 4711).to_string())
        });
        let mut all = vec!["127.0.0.1:4711".to_owned(), "0.0.0.0:4711".to_owned()];
        all.extend(own.ok());
        for local in &all {
            for here in &all {
                let sender = found(GROUP.into(), local, here).expect("loopback carries multicast");
                assert_eq!(sender.port(), 4711);
                let bound: SocketAddr = local.parse().unwrap();
                assert!(bound.ip().is_unspecified() || sender == bound, "{sender} for {local}");
            }
        }
        assert_eq!(
            found(GROUP.into(), "0.0.0.0:4711", "127.0.0.1:4711"),
            Some("127.0.0.1:4711".parse().unwrap())
        );
    }

    #[test]
    fn senders_are_found_over_ipv6() {
        let group = "ff11::7979".parse().unwrap();
        for local in ["[::1]:4711", "[::]:4711"] {
            match found(group, local, "[::1]:4711") {
                Some(sender) => assert_eq!(sender, "[::1]:4711".parse().unwrap()),
                None => println!("SKIPPED senders_are_found_over_ipv6: no multicast on ::1"),
            }
        }
    }

    #[test]
    fn a_node_of_the_other_family_is_told_what_to_do() {
        let error = Beacon::new("[ff11::1]:7000".parse().unwrap(), "0.0.0.0:1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("--bind [::]"), "{error}");
        let error = Finder::new("239.1.1.1:7000".parse().unwrap(), "[::1]:1".parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("--bind 0.0.0.0"), "{error}");
    }

    #[test]
    fn what_is_no_beacon_is_not_followed() {
        assert_eq!(parse(b"denreica\x01\x0212345678"), Some((0x201, *b"12345678")));
        let not: [&[u8]; 5] = [
            b"",
            b"denreica\x01\x02",
            b"denreica\x00\x0012345678",
            b"denreica\x01\x02123456789",
            b"somebody\x01\x0212345678",
        ];
        assert!(not.iter().all(|bytes| parse(bytes).is_none()));
    }
}
