//! Groups of the network: hearing them, and speaking to them.
//!
//! Inputs → outputs: a group's address → one more socket of the port, bound to that address, so that
//! any number of Nodes of a host may hear the same group on the same port; options of the main socket,
//! which is the one that speaks. Source: RFC 1112 (IGMP does the kernel), RFC 3493 §5.2 (IPv6, MLD).

use crate::config::MAX_LANES;
use crate::lanes::Lane;
use crate::open;
use crate::socket::UdpSocket;
use crate::source::{interface_of, source_towards};
use socket2::{Domain, SockRef, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Routers that a group's packets may cross: those of one site.
const MULTICAST_HOPS: u32 = 8;

/// The loopback interface, which does not say of itself that it can do multicast and can.
#[cfg(target_os = "linux")]
const LOOPBACK_INTERFACE: u32 = 1;
#[cfg(not(target_os = "linux"))]
const LOOPBACK_INTERFACE: u32 = 0;

impl UdpSocket {
    /// Hears the group at `group` from now on, on the interface that the settings or the port's address name; of the
    /// port of `group`, which may be another than this socket's. `Ok(false)`: it does already.
    ///
    /// # Errors
    /// When the system refuses (no route for multicast, memberships or descriptors used up).
    pub fn join_multicast(&mut self, group: SocketAddr) -> io::Result<bool> {
        if !group.ip().is_multicast() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{group} is not multicast")));
        }
        check_interface(group)?;
        if self.lanes.iter().any(|lane| lane.group == Some(group)) {
            return Ok(false);
        }
        if self.lanes.len() >= MAX_LANES {
            return Err(io::Error::other("all sockets of this port are taken; leave another group first"));
        }
        let socket = self.open_group(group)?;
        listen_to(&socket, group, self.group_interface(group))?;
        self.lanes.push(Lane::of_group(socket.into(), group, self.config.gro));
        Ok(true)
    }

    /// Speaks to groups, and hears those it does, by the interfaces that there are now: that of its address, or that
    /// routes say, may have come, or come back as another one. Where it does already nothing happens.
    pub fn follow_interfaces(&self) {
        let own = self.config.multicast_interface.map_or(self.local.ip(), IpAddr::V4);
        if let IpAddr::V4(own) = own.to_canonical()
            && !own.is_unspecified()
        {
            // Refused while it is away.
            let _ = SockRef::from(&self.lanes[0].socket).set_multicast_if_v4(&own);
        }
        for lane in &self.lanes {
            let Some(group) = lane.group else { continue };
            let at = self.group_interface(group);
            let named = if at.is_loopback() { group } else { by_route(group) };
            let _ = listen_to(&SockRef::from(&lane.socket), named, at);
        }
    }

    /// A group's address with its interface, where it is one of a link and does not say which: that of this socket's
    /// address, or, where it has all of its host's, that of the way to `other`, whom the group is for, or of the route
    /// to groups of a whole site. As it came where the system does not say.
    pub fn on_its_link(&self, group: SocketAddr, other: Option<SocketAddr>) -> SocketAddr {
        let SocketAddr::V6(mut v6) = group else { return group };
        if v6.scope_id() != 0 || !is_of_one_link(v6.ip()) {
            return group;
        }
        let index = match self.local {
            SocketAddr::V6(local) if !local.ip().is_unspecified() => interface_of(&local),
            _ => interface_towards(other.unwrap_or_else(|| of_its_site(v6).into())),
        };
        v6.set_scope_id(index.unwrap_or(0));
        v6.into()
    }

    /// From which address a socket that has all of its host's speaks to a group that is for `other`: the one that has
    /// the session with it, as what comes from elsewhere is a stranger's; with IPv4 by the interface that has it, too.
    /// `None`: the system chooses.
    pub fn group_source(&self, group: SocketAddr, other: SocketAddr) -> Option<IpAddr> {
        let is_told = group.is_ipv4() && self.config.multicast_interface.is_some();
        if is_told || !self.local.ip().is_unspecified() {
            return None;
        }
        let own = source_towards(other)?.ip();
        let fits = match own {
            IpAddr::V4(_) => group.is_ipv4(),
            IpAddr::V6(own) => group.is_ipv6() && !own.is_unicast_link_local(),
        };
        fits.then_some(own)
    }

    /// Address of the interface that a group is on.
    fn group_interface(&self, group: SocketAddr) -> IpAddr {
        let chosen = self.config.multicast_interface.filter(|_| group.is_ipv4());
        chosen.map_or(self.local.ip(), IpAddr::V4)
    }

    /// On the port of a main socket that is bound to all addresses, both have to be willing to share;
    /// it is only while the second is being bound, so that no other process slips onto the port.
    fn open_group(&self, group: SocketAddr) -> io::Result<Socket> {
        match open::open_group(group, &self.config) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && group.port() == self.local.port() => {}
            result => return result,
        }
        let main = SockRef::from(&self.lanes[0].socket);
        main.set_reuse_address(true)?;
        let socket = open::open_group(group, &self.config);
        main.set_reuse_address(false)?;
        // Bound to all addresses, it would get what is the group's as well.
        open::only_joined_groups(&main, self.local.is_ipv6());
        socket
    }

    /// Hears the group no more. Nothing happens if it did not.
    pub fn leave_multicast(&mut self, group: SocketAddr) {
        if let Some(index) = self.lanes.iter().position(|lane| lane.group == Some(group)) {
            self.lanes.swap_remove(index);
            self.policy.removed(index, self.lanes.len());
            self.send_elsewhere();
        }
    }

    /// Octets of UDP payload of the largest datagram that the interface by which `group` is spoken to, from `from`
    /// if that is chosen, carries whole; `None`: the system does not say. To members on this host's own addresses
    /// larger ones go by sessions.
    #[cfg(target_os = "linux")]
    pub fn multicast_datagram_bytes(&self, group: SocketAddr, from: Option<IpAddr>) -> Option<u16> {
        use denrei_wire::datagram::MAX_DATAGRAM_BYTES;
        use std::os::fd::AsFd;
        // IP's and UDP's headers.
        let (level, name, headers) = match group.ip() {
            IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU, 28),
            IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 48),
        };
        // Only a connected socket has a route, and so an MTU.
        let socket = self.connected_to(group, from).ok()?;
        let mtu = crate::options::get(socket.as_fd(), level, name).ok()?;
        u16::try_from(mtu.saturating_sub(headers).clamp(0, MAX_DATAGRAM_BYTES as i32)).ok()
    }

    /// See above; this system does not say.
    #[cfg(not(target_os = "linux"))]
    pub fn multicast_datagram_bytes(&self, _group: SocketAddr, _from: Option<IpAddr>) -> Option<u16> {
        None
    }

    /// Makes the main socket speak to groups by the interface that its address is of, or `from`, if that is chosen
    /// ([`group_source`](Self::group_source)); also to those of this host that listen.
    ///
    /// # Errors
    /// When the system refuses, or has no route to `group`.
    pub fn enable_multicast(&mut self, group: SocketAddr, from: Option<IpAddr>) -> io::Result<()> {
        let local = self.group_interface(group).to_canonical();
        let socket = SockRef::from(&self.lanes[0].socket);
        speak_by(&socket, local, group)?;
        check_interface(group)?;
        match group.ip() {
            IpAddr::V4(_) => {
                socket.set_multicast_loop_v4(true)?;
                socket.set_multicast_ttl_v4(MULTICAST_HOPS)?;
            }
            IpAddr::V6(_) => {
                socket.set_multicast_loop_v6(true)?;
                socket.set_multicast_hops_v6(MULTICAST_HOPS)?;
            }
        }
        match self.connected_to(group, from) {
            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable && local.is_loopback() => {
                let text = format!(
                    "{error}: on loopback use a group of IPv4, or `ip -6 route add local ff00::/8 dev lo table local`"
                );
                Err(io::Error::new(error.kind(), text))
            }
            routed => routed.map(drop),
        }
    }

    /// A socket of its own that speaks to `group` alone, by the same interface as the main one: nothing is sent.
    fn connected_to(&self, group: SocketAddr, from: Option<IpAddr>) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(group), Type::DGRAM, None)?;
        speak_by(&SockRef::from(&socket), self.group_interface(group).to_canonical(), group)?;
        if let Some(from) = from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        socket.connect(&group.into())?;
        Ok(socket)
    }
}

/// Whether a group of IPv6 is another one on each link (RFC 4291, §2.7).
pub fn is_of_one_link(group: &Ipv6Addr) -> bool {
    matches!(group.octets()[1] & 0xf, 1 | 2)
}

/// The group of the same name that all links of a site have.
pub fn of_its_site(group: SocketAddrV6) -> SocketAddrV6 {
    let mut octets = group.ip().octets();
    octets[1] = (octets[1] & 0xf0) | 5;
    SocketAddrV6::new(octets.into(), group.port(), 0, 0)
}

/// The index of the interface of the way to another's address of IPv6.
fn interface_towards(other: SocketAddr) -> Option<u32> {
    match source_towards(other)? {
        SocketAddr::V6(own) => Some(own.scope_id()),
        SocketAddr::V4(_) => None,
    }
}

/// A group's address with the interface that routes say, where it names none and is of IPv6: whoever has joined one
/// on some interface is told that he has, should he leave to the system on which to join it again.
fn by_route(group: SocketAddr) -> SocketAddr {
    match group {
        SocketAddr::V6(mut v6) if v6.scope_id() == 0 => {
            v6.set_scope_id(interface_towards(group).unwrap_or(0));
            v6.into()
        }
        _ => group,
    }
}

/// Such a group is spoken to and heard where its address says.
fn check_interface(group: SocketAddr) -> io::Result<()> {
    match group {
        SocketAddr::V6(v6) if v6.scope_id() == 0 && is_of_one_link(v6.ip()) => {
            let text = format!(
                "{group} is a group of one link: give the index of the interface as the scope of its address, as in \
                 [{}%2]:{}, or take one of the whole site, such as {}",
                v6.ip(),
                v6.port(),
                of_its_site(v6)
            );
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
        _ => Ok(()),
    }
}

/// Makes `socket` speak to `group` by the interface that has the address `local`; not specified: the one that
/// routes say.
fn speak_by(socket: &SockRef<'_>, local: IpAddr, group: SocketAddr) -> io::Result<()> {
    match (local, group.ip()) {
        (IpAddr::V4(local), IpAddr::V4(_)) => socket.set_multicast_if_v4(&local),
        (IpAddr::V6(local), IpAddr::V4(_)) if local.is_unspecified() => Ok(()),
        (IpAddr::V6(local), IpAddr::V6(_)) => {
            socket.set_multicast_if_v6(interface(local.is_loopback(), group))
        }
        (local, _) => {
            let text =
                format!("a socket at {local} cannot speak to {group}: bind to an address of its family");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// 0: the one that routes say.
fn interface(loopback: bool, group: SocketAddr) -> u32 {
    match group {
        SocketAddr::V6(group) if group.scope_id() != 0 => group.scope_id(),
        _ if loopback => LOOPBACK_INTERFACE,
        _ => 0,
    }
}

/// On all addresses it is the default route's interface, and loopback: some of the host's processes have no
/// other.
fn listen_to(socket: &Socket, group: SocketAddr, local: IpAddr) -> io::Result<()> {
    // Only the groups joined by this very socket (M2): Linux would hand it all of the host's.
    open::only_joined_groups(socket, group.is_ipv6());
    let anywhere = local.is_unspecified();
    let (first, second) = match group.ip() {
        IpAddr::V4(ip) => {
            let local = match local.to_canonical() {
                IpAddr::V4(local) => local,
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            let join = |at| socket.join_multicast_v4(&ip, &at);
            (join(local), anywhere.then(|| join(Ipv4Addr::LOCALHOST)))
        }
        IpAddr::V6(ip) => {
            let join = |index| socket.join_multicast_v6(&ip, index);
            let first = join(interface(local.is_loopback(), group));
            (first, anywhere.then(|| join(LOOPBACK_INTERFACE)))
        }
    };
    // Either will do.
    if matches!(second, Some(Ok(()))) { Ok(()) } else { first }
}
