//! How receivers find a sender that does not know them.
//!
//! Inputs → outputs: a Node's port → datagrams to the group's address, port + 1; such datagrams → the
//! addresses of senders. A beacon says nothing but where to ask. With a cluster key those of others are
//! dropped and counted; without one whoever speaks to the group can send receivers anywhere, so the
//! beacons of one host count for so many and no more. Source: `spec/cast.md` §7.

mod datagram;

use crate::interfaces::{self, Interface, Place};
use datagram::{Refused, Said};
use denrei::BeaconKey;
use nix::errno::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How often a sender says that it is there: a late receiver waits half of that on average.
const INTERVAL: Duration = Duration::from_millis(500);
/// How often it is looked which interfaces there are: one may come up after the cast has begun.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A sender that was followed is not followed again for this long.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(1500);
/// Senders remembered.
const MAX_SENDERS: usize = 16;
/// Of these, at one address.
const MAX_OF_HOST: usize = 4;
/// Datagrams looked at in one go at a socket, 20 times a second where nothing else is going on: a flood has to be faster
/// to hide others.
const MAX_DATAGRAMS: usize = 512;
/// Routers a beacon may cross: those of one site.
const HOPS: u32 = 8;

/// Where the beacons of a group go.
pub fn address(group: SocketAddr) -> SocketAddr {
    let mut beacons = group;
    beacons.set_port(group.port().checked_add(1).unwrap_or(1024));
    beacons
}

/// Says where a sender is.
#[derive(Debug)]
pub struct Beacon {
    group: SocketAddr,
    local: SocketAddr,
    voices: Vec<Voice>,
    said: Said,
    key: Option<BeaconKey>,
    next: Instant,
    look_at: Instant,
}

/// Speaks to the group on an interface.
#[derive(Debug)]
struct Voice {
    socket: UdpSocket,
    /// Where it is heard from.
    from: IpAddr,
}

impl Beacon {
    /// For the Node at `local`, whose cluster has `key`; nothing is said yet.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn new(group: SocketAddr, local: SocketAddr, key: Option<&BeaconKey>) -> io::Result<Self> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| io::Error::other(error.to_string()))?;
        let said = Said { port: local.port(), id };
        let now = Instant::now();
        Ok(Self { group, local, voices: Vec::new(), said, key: key.cloned(), next: now, look_at: now })
    }

    /// Says it on all interfaces where somebody can reach the Node; [`poll`](Self::poll) looks again which there are.
    ///
    /// # Errors
    /// The host has no multicast there, now or at all.
    pub fn announce(&mut self, now: Instant) -> io::Result<()> {
        (self.next, self.look_at) = (now + INTERVAL, now + LOOK_INTERVAL);
        // Where nobody hears it any more, it may be heard again later.
        self.voices.clear();
        self.voices = announce(self.group, self.local, self.said, self.key.as_ref())?;
        Ok(())
    }

    /// Whether an address was heard in a beacon of this sender's own.
    pub fn is_own(&self, heard: &Heard) -> bool {
        self.said.id == heard.id
    }

    /// Says it, if it is time to.
    pub fn poll(&mut self, now: Instant) {
        if now < self.next {
            return;
        }
        if now >= self.look_at {
            let _ = self.announce(now);
            return;
        }
        self.next = now + INTERVAL;
        for voice in &self.voices {
            // One that is lost is followed by another.
            let _ = voice.say(self.said, self.key.as_ref());
        }
    }
}

/// Says it on all interfaces there are; those that it could be said on.
fn announce(
    group: SocketAddr,
    local: SocketAddr,
    said: Said,
    key: Option<&BeaconKey>,
) -> io::Result<Vec<Voice>> {
    // Where there is no way for them, the first shows it.
    let announce = |place| -> io::Result<Voice> {
        let voice = voice(group, place)?;
        voice.say(said, key)?;
        Ok(voice)
    };
    some(interfaces::of_node(group, local)?.into_iter().map(announce))
}

impl Voice {
    fn say(&self, said: Said, key: Option<&BeaconKey>) -> io::Result<()> {
        self.socket.send(&datagram::encode(said, key, self.from, datagram::minute())).map(drop)
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

/// That of a place.
fn voice(group: SocketAddr, place: Place) -> io::Result<Voice> {
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
    // So that the system says which address it speaks from, where that was left to it.
    socket.connect(&address(group).into())?;
    let socket = UdpSocket::from(socket);
    let from = socket.local_addr()?.ip();
    Ok(Voice { socket, from })
}

/// Hears where senders are.
#[derive(Debug)]
pub struct Finder {
    group: SocketAddr,
    local: SocketAddr,
    /// One, or more where the host has many interfaces.
    sockets: Vec<UdpSocket>,
    key: Option<BeaconKey>,
    followed: Vec<Followed>,
    dropped: u64,
    look_at: Instant,
}

/// A sender that was heard.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Where its Node is.
    pub addr: SocketAddr,
    id: [u8; 8],
}

/// A sender that was asked.
#[derive(Debug)]
struct Followed {
    id: [u8; 8],
    host: IpAddr,
    at: Instant,
}

impl Finder {
    /// On the interfaces of the Node at `local`, whose cluster has `key`.
    ///
    /// # Errors
    /// The host has no multicast there.
    pub fn new(group: SocketAddr, local: SocketAddr, key: Option<&BeaconKey>) -> io::Result<Self> {
        let mut sockets = vec![ear(group)?];
        listen(&mut sockets, group, local)?;
        let look_at = Instant::now() + LOOK_INTERVAL;
        Ok(Self { group, local, sockets, key: key.cloned(), followed: Vec::new(), dropped: 0, look_at })
    }

    /// A sender to ask, if one was heard that was not asked just now. One that is heard on several
    /// interfaces is asked where it was heard first.
    pub fn poll(&mut self, now: Instant) -> Option<SocketAddr> {
        self.hear(now).map(|heard| heard.addr)
    }

    /// The same, with what tells a sender from others.
    pub fn hear(&mut self, now: Instant) -> Option<Heard> {
        if now >= self.look_at {
            self.look_at = now + LOOK_INTERVAL;
            // Where it does not work now, it may later.
            let _ = listen(&mut self.sockets, self.group, self.local);
        }
        let mut datagram = [0; datagram::MAX_BYTES + 1];
        let minute = datagram::minute();
        for socket in 0..self.sockets.len() {
            for _ in 0..MAX_DATAGRAMS {
                let Ok((len, mut sender)) = self.sockets[socket].recv_from(&mut datagram) else { break };
                match datagram::decode(&datagram[..len], self.key.as_ref(), sender.ip(), minute) {
                    Ok(said) if self.follow(said.id, sender.ip(), now) => {
                        sender.set_port(said.port);
                        return Some(Heard { addr: sender, id: said.id });
                    }
                    Err(Refused::Stranger) => self.dropped += 1,
                    Ok(_) | Err(Refused::NoBeacon) => {}
                }
            }
        }
        None
    }

    /// Beacons that were not taken, in words for those who wait in vain; empty if there were none.
    pub fn dropped(&self) -> String {
        let why = match &self.key {
            Some(_) => "made without this key, or by a host whose clock is more than a minute off",
            None => "made by senders that have a key",
        };
        if self.dropped == 0 {
            String::new()
        } else {
            format!("; {} beacons were dropped: {why}", self.dropped)
        }
    }

    /// Whether a sender is to be asked; it is not asked again for a while.
    fn follow(&mut self, id: [u8; 8], host: IpAddr, now: Instant) -> bool {
        self.followed.retain(|known| now.saturating_duration_since(known.at) < FOLLOW_INTERVAL);
        let of_host = self.followed.iter().filter(|known| known.host == host).count();
        let full = of_host >= MAX_OF_HOST || self.followed.len() >= MAX_SENDERS;
        if full || self.followed.iter().any(|known| known.id == id) {
            return false;
        }
        self.followed.push(Followed { id, host, at: now });
        true
    }
}

fn open(group: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(group), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Hears what is said to the group, where it is joined.
fn ear(group: SocketAddr) -> io::Result<UdpSocket> {
    let socket = open(group)?;
    socket.set_reuse_address(true)?;
    hear_own_interfaces_only(&socket, group)?;
    socket.bind(&address(group).into())?;
    Ok(socket.into())
}

/// Joins the group on all interfaces there are, also where it is joined already.
fn listen(sockets: &mut Vec<UdpSocket>, group: SocketAddr, local: SocketAddr) -> io::Result<()> {
    some(interfaces::of_node(group, local)?.iter().map(|place| {
        for socket in &*sockets {
            let joined = join(socket, group, place);
            match joined.as_ref().map_err(|error| error.raw_os_error().map(Errno::from_raw)) {
                // A socket hears groups on so many interfaces and no more, 20 as Linux comes.
                Err(Some(Errno::ENOBUFS)) => {}
                Err(Some(Errno::EADDRINUSE)) => return Ok(()),
                _ => return joined,
            }
        }
        let another = ear(group)?;
        join(&another, group, place)?;
        sockets.push(another);
        Ok(())
    }))
    .map(drop)
}

/// Joins the group at a place.
fn join(socket: &UdpSocket, group: SocketAddr, place: &Place) -> io::Result<()> {
    match (group.ip(), place.interface) {
        (IpAddr::V4(group), Interface::V4(at)) => socket.join_multicast_v4(&group, &at),
        (IpAddr::V6(group), Interface::V6(index)) => socket.join_multicast_v6(&group, index),
        _ => Ok(()),
    }
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
    use denrei::ClusterKey;

    fn key() -> BeaconKey {
        BeaconKey::new(&ClusterKey::from_bytes([1; 32]))
    }

    /// A group that no other test uses now.
    fn group(ip: IpAddr) -> SocketAddr {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        SocketAddr::new(ip, port.min(65_000))
    }

    /// What a receiver at `here` hears of a sender at `local`, both of this host; `None`: nobody can announce
    /// anything there.
    fn found(group: IpAddr, local: &str, here: &str) -> Option<SocketAddr> {
        let (group, key) = (self::group(group), key());
        let mut finder = Finder::new(group, here.parse().unwrap(), Some(&key)).ok()?;
        let mut beacon = Beacon::new(group, local.parse().unwrap(), Some(&key)).unwrap();
        let begin = Instant::now();
        beacon.announce(begin).ok()?;
        let mut found = None;
        while found.is_none() && begin.elapsed() < Duration::from_secs(10) {
            beacon.poll(Instant::now());
            std::thread::sleep(Duration::from_millis(5));
            found = finder.poll(begin);
        }
        assert_eq!(finder.poll(begin), None, "it is followed once");
        assert_eq!(finder.dropped(), "");
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
        let mut beacon =
            Beacon::new("[ff11::1]:7000".parse().unwrap(), "0.0.0.0:1".parse().unwrap(), None).unwrap();
        let error = beacon.announce(Instant::now()).unwrap_err();
        let error = error.to_string();
        assert!(error.ends_with(", or another --bind, as [::]"), "{error}");
        let by_name = crate::by_name(&error);
        assert!(by_name.ends_with("another \"group\", or another node address, as [::]"), "{by_name}");
        let error =
            Finder::new("239.1.1.1:7000".parse().unwrap(), "[::1]:1".parse().unwrap(), None).unwrap_err();
        assert!(error.to_string().contains("--bind, as 0.0.0.0"), "{error}");
    }

    /// Has a sender say once where it is.
    fn announced(group: SocketAddr, local: SocketAddr, key: Option<&BeaconKey>) {
        Beacon::new(group, local, key).unwrap().announce(Instant::now()).unwrap();
    }

    /// Says `many` beacons, each of another sender at `from`, as somebody does who has no key.
    fn forge(group: SocketAddr, from: &str, many: u16) {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        for number in 0..many {
            let said =
                Said { port: 2000 + number, id: [number.to_le_bytes(); 4].concat().try_into().unwrap() };
            let forged = datagram::encode(said, None, from.parse().unwrap(), 0);
            socket.send_to(&forged, address(group)).unwrap();
        }
    }

    /// All whom `finder` would ask now.
    fn asked(finder: &mut Finder, now: Instant) -> Vec<SocketAddr> {
        std::thread::sleep(Duration::from_millis(50));
        std::iter::from_fn(|| finder.poll(now)).collect()
    }

    #[test]
    fn forged_beacons_are_dropped_and_counted_and_hide_no_sender_that_has_the_key() {
        let (group, local, key) = (group(GROUP.into()), "127.0.0.1:4711".parse().unwrap(), key());
        let mut finder = Finder::new(group, local, Some(&key)).unwrap();
        forge(group, "127.0.0.1", 100);
        let other = BeaconKey::new(&ClusterKey::from_bytes([2; 32]));
        announced(group, local, Some(&other));
        announced(group, local, Some(&key));
        assert_eq!(asked(&mut finder, Instant::now()), [local]);
        assert!(
            finder.dropped().starts_with("; 101 beacons were dropped: made without"),
            "{}",
            finder.dropped()
        );
    }

    #[test]
    fn without_a_key_one_host_takes_no_more_than_its_share() {
        let (group, local) = (group(GROUP.into()), "127.0.0.1:4711".parse().unwrap());
        let mut finder = Finder::new(group, local, None).unwrap();
        let now = Instant::now();
        forge(group, "127.0.0.2", 100);
        assert_eq!(asked(&mut finder, now).len(), MAX_OF_HOST);
        announced(group, local, None);
        assert_eq!(asked(&mut finder, now), [local]);
        announced(group, local, Some(&key()));
        assert_eq!(asked(&mut finder, now), []);
        assert_eq!(finder.dropped(), "; 1 beacons were dropped: made by senders that have a key");
        forge(group, "127.0.0.2", 100);
        assert_eq!(asked(&mut finder, now + FOLLOW_INTERVAL).len(), MAX_OF_HOST);
    }
}
