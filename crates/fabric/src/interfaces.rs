//! The addresses of this host that endpoints may use.
//!
//! Inputs → outputs: the system's interfaces, a name or address if one is wished → addresses, the
//! most useful first: IPv4 before IPv6, loopback last.

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::net::{IpAddr, Ipv6Addr};

/// An address of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub name: String,
    pub address: IpAddr,
}

/// The addresses that are up; of `wished`, a name or an address, if it is given.
pub fn list(wished: Option<&str>, with_others_than_loopback: bool) -> Vec<Interface> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let up = all.filter(|entry| entry.flags.contains(InterfaceFlags::IFF_UP)).filter_map(|entry| {
        let storage = entry.address?;
        let v4 = storage.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        let address = v4.or_else(|| storage.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))?;
        Some(Interface { name: entry.interface_name, address })
    });
    choose(up, wished, with_others_than_loopback)
}

/// Why there is none of what was wished.
pub fn why_none(wished: &str, with_others_than_loopback: bool) -> String {
    let what = if with_others_than_loopback { "an interface" } else { "a loopback interface" };
    format!("FI_DENREI_IFACE={wished} is neither the name nor an address of {what} that is up here")
}

fn choose(
    all: impl Iterator<Item = Interface>,
    wished: Option<&str>,
    beyond_loopback: bool,
) -> Vec<Interface> {
    let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if is_unicast_link_local(v6));
    let mut chosen: Vec<Interface> = all
        // An address that needs an interface beside it cannot be told to peers.
        .filter(|interface| !is_link_local(&interface.address))
        .filter(|interface| beyond_loopback || interface.address.is_loopback())
        .filter(|interface| {
            wished.is_none_or(|wish| interface.name == wish || wish.parse() == Ok(interface.address))
        })
        .collect();
    chosen.sort_by_key(|interface| (interface.address.is_loopback(), interface.address.is_ipv6()));
    chosen
}

fn is_unicast_link_local(address: &Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wishes_for_what_is_not_there_is_told() {
        assert_eq!(list(Some("nowhere0"), true), []);
        let why = why_none("nowhere0", false);
        assert!(why.contains("FI_DENREI_IFACE=nowhere0") && why.contains("loopback"), "{why}");
        assert!(!why_none("nowhere0", true).contains("loopback"));
    }

    fn names(wished: Option<&str>, beyond_loopback: bool) -> Vec<String> {
        let all = [
            ("lo", "127.0.0.1"),
            ("lo", "::1"),
            ("eth0", "fe80::1"),
            ("eth0", "fd00::1"),
            ("eth0", "10.0.0.1"),
        ];
        let all =
            all.map(|(name, address)| Interface { name: name.into(), address: address.parse().unwrap() });
        choose(all.into_iter(), wished, beyond_loopback).iter().map(|i| i.address.to_string()).collect()
    }

    #[test]
    fn the_most_useful_come_first() {
        assert_eq!(names(None, true), ["10.0.0.1", "fd00::1", "127.0.0.1", "::1"]);
        assert_eq!(names(None, false), ["127.0.0.1", "::1"]);
        assert_eq!(names(Some("eth0"), true), ["10.0.0.1", "fd00::1"]);
        assert_eq!(names(Some("fd00::1"), true), ["fd00::1"]);
        assert!(names(Some("eth0"), false).is_empty());
    }

    #[test]
    fn this_host_has_a_loopback() {
        assert!(list(None, false).iter().any(|interface| interface.address.is_loopback()));
    }
}
