//! Where on its host a Node can be found by others.
//!
//! Inputs → outputs: a group's and a Node's address → the interfaces on which the one is to be spoken to and
//! heard, so that all who can reach the other are reached. Source: `spec/cast.md` §7.

use denrei::{is_of_one_link, of_its_site, source_towards};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_indextoname, if_nametoindex};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// The group of a cast for which none is named: of the range that stays within an organisation
/// (RFC 2365).
pub const DEFAULT_GROUP: &str = "239.255.71.17:7118";

const DEFAULT_PORT: u16 = 7118;

/// The group of a cast for which none is named, to `members` if they are listed: [`DEFAULT_GROUP`], or where all of
/// them have addresses of IPv6, which hear none of IPv4, one of that within the site, or on the link that all their
/// addresses are of (RFC 4291 §2.7).
pub fn default_group(members: &[SocketAddr]) -> SocketAddr {
    let is_ipv6 = |member: &SocketAddr| member.ip().to_canonical().is_ipv6();
    if members.is_empty() || !members.iter().all(is_ipv6) {
        return (IpAddr::from([239, 255, 71, 17]), DEFAULT_PORT).into();
    }
    match link_of(members[0]) {
        Some(link) if members.iter().all(|member| link_of(*member) == Some(link)) => {
            SocketAddrV6::new(default_ipv6(0xff12), DEFAULT_PORT, 0, link).into()
        }
        _ => (default_ipv6(0xff15), DEFAULT_PORT).into(),
    }
}

/// The group of a cast for which none is named, of IPv6 within this scope.
fn default_ipv6(scope: u16) -> Ipv6Addr {
    Ipv6Addr::new(scope, 0, 0, 0, 0, 0, 0, 0x7117)
}

/// The interface to the link that an address is of, if that alone has it.
fn link_of(addr: SocketAddr) -> Option<u32> {
    match addr {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            Some(v6.scope_id()).filter(|scope| *scope > 0)
        }
        _ => None,
    }
}

/// A group's address as people write it; one that a link alone has, or an interface, names it: `[ff02::7%eth0]:7000`.
///
/// # Errors
/// It cannot be a group's address, and what would be one.
pub fn parse_group(text: &str) -> Result<SocketAddr, String> {
    let example =
        || format!("{text:?} is no group: give a multicast address and a port, such as {DEFAULT_GROUP}");
    let (plain, interface) = match text.split_once('%') {
        Some((ip, rest)) => {
            let (interface, port) = rest.split_once(']').ok_or_else(example)?;
            (format!("{ip}]{port}"), Some(interface))
        }
        None => (text.to_owned(), None),
    };
    let mut group: SocketAddr = plain.parse().map_err(|_| example())?;
    if !group.ip().is_multicast() || group.port() == 0 {
        return Err(example());
    }
    if group.port() == u16::MAX {
        let why = "leaves no port for announcements, which is the one after it";
        return Err(format!("{text:?} {why}: take another, such as {DEFAULT_GROUP}"));
    }
    match (&mut group, interface) {
        (SocketAddr::V6(v6), Some(name)) => v6.set_scope_id(interface_index(name)?),
        (SocketAddr::V6(v6), None) if is_of_one_link(v6.ip()) => {
            let (ip, port) = (v6.ip(), v6.port());
            return Err(format!(
                "{text:?} is a group of one link: say which, such as [{ip}%eth0]:{port}, or take one of the whole \
                 site, such as {}",
                of_its_site(*v6)
            ));
        }
        _ => {}
    }
    Ok(group)
}

/// The index of an interface, by which it may be named as well.
fn interface_index(name: &str) -> Result<u32, String> {
    let known = if_nametoindex(name).ok().or_else(|| name.parse().ok().filter(|index| *index > 0));
    known.ok_or_else(|| format!("this host has no interface {name:?}: `ip link` shows those it has"))
}

/// An interface as sockets of the two families want it named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// An address of it.
    V4(Ipv4Addr),
    /// Its index.
    V6(u32),
}

/// An interface, and the address that others see there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The interface.
    pub interface: Interface,
    /// The source address, port 0; it may be left to the system.
    pub source: SocketAddr,
}

/// An address of this host.
struct Local {
    ip: IpAddr,
    index: u32,
    loopback: bool,
}

/// Where a Node at `local` and those who can reach it hear each other: on the interface of its address, or,
/// where it has all addresses, on each, that of the route to the group first. And in the end on loopback,
/// where the host's other processes are, whatever their address.
///
/// # Errors
/// The Node cannot speak to groups of this family.
pub fn of_node(group: SocketAddr, local: SocketAddr) -> io::Result<Vec<Place>> {
    let own = local.ip().to_canonical();
    let locals = locals();
    let mut places = match (group.ip(), own) {
        (IpAddr::V4(_), ip) if ip.is_unspecified() => {
            let of_route = source_towards(group).map(|own| own.ip());
            let all = locals.iter().filter(|local| !local.loopback).map(|local| local.ip);
            let all = of_route.into_iter().chain(all).chain([Ipv4Addr::LOCALHOST.into()]);
            all.filter_map(|ip| v4(ip, ip)).collect::<Vec<_>>()
        }
        (IpAddr::V4(_), ip @ IpAddr::V4(_)) => {
            [v4(ip, ip), v4(Ipv4Addr::LOCALHOST.into(), ip)].into_iter().flatten().collect()
        }
        (IpAddr::V6(_), IpAddr::V6(ip)) => v6(&locals, group, ip, local),
        (IpAddr::V4(_), _) => return Err(other_family(group, local, "0.0.0.0")),
        (IpAddr::V6(_), _) => return Err(other_family(group, local, "[::]")),
    };
    if places.is_empty() {
        let (local, group) = (named(local), named(group));
        let text =
            format!("no interface of {local} carries {group}: choose another --group, or another --bind");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut seen = Vec::new();
    places.retain(|place| {
        let new = !seen.contains(place);
        seen.push(*place);
        new
    });
    Ok(places)
}

/// Whether a Node at `local`, which other hosts reach, and they hear nothing of each other at the group, as no interface
/// towards them is up, or carries multicast.
pub fn is_this_host_alone(group: SocketAddr, local: SocketAddr) -> bool {
    let is_loopback = |place: &Place| match place.interface {
        Interface::V4(at) => at.is_loopback(),
        Interface::V6(index) => locals().iter().any(|local| local.loopback && local.index == index),
    };
    let places = of_node(group, local).unwrap_or_default();
    !local.ip().to_canonical().is_loopback() && !places.is_empty() && places.iter().all(is_loopback)
}

/// What to tell people besides whose Node at `local` hears no other host at `group`, as that is of IPv4 and their hosts
/// have IPv6 alone.
pub fn or_by_ipv6(group: SocketAddr, local: SocketAddr) -> String {
    let other = (default_ipv6(0xff15), DEFAULT_PORT).into();
    if group.is_ipv6() || of_node(other, local).is_err() || is_this_host_alone(other, local) {
        return String::new();
    }
    format!("; hosts that have IPv6 alone find each other with --group {other} on all")
}

/// What to tell people whom nobody reaches: a Node at loopback is for its own host.
pub fn reach_of(local: SocketAddr) -> &'static str {
    if local.ip().to_canonical().is_loopback() {
        "; only processes of this host reach a loopback address: for others give a key, or --insecure, and \
         another --bind, or none"
    } else {
        ""
    }
}

/// An address for people to name to others.
pub fn told(local: SocketAddr) -> String {
    if local.ip().is_unspecified() {
        format!("HOST:{} (HOST: a name of this host)", local.port())
    } else {
        named(local)
    }
}

/// An address for people, as they write it: with the name of its interface, whose index says nothing to them.
pub fn named(addr: SocketAddr) -> String {
    let name = Some(scope_of(addr)).filter(|index| *index > 0).and_then(|index| if_indextoname(index).ok());
    // One that is gone has none, which nix takes for an empty one.
    match name.filter(|name| !name.is_empty()) {
        Some(name) => format!("[{}%{}]:{}", addr.ip(), name.to_string_lossy(), addr.port()),
        None => addr.to_string(),
    }
}

fn other_family(group: SocketAddr, local: SocketAddr, bind: &str) -> io::Error {
    let (local, group) = (named(local), named(group));
    let text = format!(
        "{local} is not of the family of {group}: choose another --group, or another --bind, as {bind}"
    );
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn v4(interface: IpAddr, source: IpAddr) -> Option<Place> {
    let IpAddr::V4(at) = interface else { return None };
    Some(Place { interface: Interface::V4(at), source: SocketAddr::new(source, 0) })
}

fn v6(locals: &[Local], group: SocketAddr, own: Ipv6Addr, local: SocketAddr) -> Vec<Place> {
    let of_route = source_towards(group).map(|own| own.ip());
    let on = |ip: IpAddr| locals.iter().filter(move |local| local.ip == ip);
    let loopback = locals.iter().filter(|local| local.loopback && local.ip.is_ipv6());
    let mut source = local;
    source.set_port(0);
    let first: Vec<&Local> = match own.is_unspecified() {
        true => {
            let all = locals.iter().filter(|local| !local.loopback && local.ip.is_ipv6());
            of_route.into_iter().flat_map(on).chain(all).collect()
        }
        false => on(own.into()).collect(),
    };
    let named = scope_of(group);
    let places = first.into_iter().chain(loopback).filter(|at| named == 0 || at.index == named);
    places.map(|at| Place { interface: Interface::V6(at.index), source }).collect()
}

/// The interface that an address names, 0 if none.
pub fn scope_of(addr: SocketAddr) -> u32 {
    if let SocketAddr::V6(v6) = addr { v6.scope_id() } else { 0 }
}

/// A group's address as the host at `teller` tells it, with the interface that `own` names, if that is the same group,
/// or that of the way to the teller, if it is a group of one link.
pub fn as_named_here(told: SocketAddr, own: SocketAddr, teller: SocketAddr) -> SocketAddr {
    match told {
        _ if (told.ip(), told.port()) == (own.ip(), own.port()) => own,
        SocketAddr::V6(mut v6) if is_of_one_link(v6.ip()) => {
            v6.set_scope_id(source_towards(teller).map_or(0, scope_of));
            v6.into()
        }
        _ => told,
    }
}

/// Addresses of this host's interfaces that carry multicast; loopback does without saying so.
fn locals() -> Vec<Local> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let up = all.filter(|one| one.flags.contains(InterfaceFlags::IFF_UP));
    let locals = up.filter_map(|one| {
        let loopback = one.flags.contains(InterfaceFlags::IFF_LOOPBACK);
        let address = one.address?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip()));
        let ip = v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))?;
        let index = if_nametoindex(one.interface_name.as_str()).ok()?;
        let carries = loopback || one.flags.contains(InterfaceFlags::IFF_MULTICAST);
        carries.then_some(Local { ip, index, loopback })
    });
    locals.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_group_is_multicast_with_a_port() {
        assert!(parse_group(DEFAULT_GROUP).is_ok() && parse_group("[ff15::1]:7000").is_ok());
        for wrong in
            ["10.0.0.1:7118", "239.1.1.1", "239.1.1.1:0", "239.1.1.1:65535", "239.1.1.1%lo:7", "%", ""]
        {
            assert!(parse_group(wrong).unwrap_err().contains("such as"), "{wrong}");
        }
    }

    #[test]
    fn the_group_is_one_that_the_members_hear() {
        let group = |members: &[&str]| {
            let members: Vec<SocketAddr> = members.iter().map(|member| member.parse().unwrap()).collect();
            default_group(&members).to_string()
        };
        assert_eq!(group(&[]), DEFAULT_GROUP);
        for mixed in [&["10.0.0.1:1"][..], &["[::1]:1", "10.0.0.1:1"], &["[::ffff:10.0.0.1]:1"]] {
            assert_eq!(group(mixed), DEFAULT_GROUP, "{mixed:?}");
        }
        assert_eq!(
            parse_group(&group(&["[::1]:1", "[fd00::1]:1"])),
            Ok("[ff15::7117]:7118".parse().unwrap())
        );
        assert_eq!(group(&["[fe80::1%3]:1", "[fe80::2%3]:1"]), "[ff12::7117%3]:7118");
        for apart in [["[fe80::1%3]:1", "[fe80::2%4]:1"], ["[fe80::1%3]:1", "[fd00::1]:1"]] {
            assert_eq!(group(&apart), "[ff15::7117]:7118", "{apart:?}");
        }
    }

    #[test]
    fn a_group_of_one_link_names_its_interface() {
        let index = if_nametoindex("lo").unwrap();
        for text in ["[ff02::7%lo]:7000".to_owned(), format!("[ff12::7%{index}]:7000")] {
            let group = parse_group(&text).unwrap();
            assert_eq!(scope_of(group), index, "{text}");
            assert!(named(group).ends_with("%lo]:7000") && parse_group(&named(group)) == Ok(group));
        }
        for (wrong, advice) in [
            ("[ff02::7]:7000", "[ff05::7]:7000"),
            ("[ff12::7]:7000", "[ff12::7%eth0]:7000"),
            ("[ff01::7]:7000", "[ff05::7]:7000"),
            ("[ff02::7%no-such]:7000", "ip link"),
            ("[ff02::7%0]:7000", "ip link"),
            ("[ff02::7%]:7000", "ip link"),
        ] {
            let error = parse_group(wrong).unwrap_err();
            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn an_interface_that_is_gone_is_shown_by_its_index() {
        let of_none = SocketAddr::V6(SocketAddrV6::new("fe80::7".parse().unwrap(), 7000, 0, i32::MAX as u32));
        assert_eq!(named(of_none), format!("[fe80::7%{}]:7000", i32::MAX));
    }

    #[test]
    fn a_group_of_one_link_is_that_of_the_link_by_which_its_teller_is_reached() {
        let [told, other, own] = ["[ff02::7]:7000", "[ff05::7]:7000", "[ff02::7%lo]:7000"];
        let told: SocketAddr = told.parse().unwrap();
        let (other, own) = (other.parse().unwrap(), parse_group(own).unwrap());
        let teller = "[::1]:9".parse().unwrap();
        assert_eq!(as_named_here(told, own, teller), own);
        assert_eq!(as_named_here(other, own, teller), other);
        // Where there is no IPv6 nobody tells of such a group.
        if UdpSocket::bind("[::1]:0").is_ok() {
            assert_eq!(as_named_here(told, other, teller), own);
        }
    }

    #[test]
    fn one_that_others_reach_and_do_not_hear_is_told_from_one_that_is_for_its_host() {
        let group = parse_group("[ff02::7%lo]:7000").unwrap();
        let alone = |local: &str| is_this_host_alone(group, local.parse().unwrap());
        // Where there is no IPv6 there are no places, either.
        assert_eq!(alone("[::]:1"), of_node(group, "[::]:1".parse().unwrap()).is_ok());
        assert!(!alone("[::1]:1"));
    }
}
