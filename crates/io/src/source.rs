//! From where this host speaks to another.
//!
//! Inputs → outputs: another's address → the address of this host that the system speaks to it from, and the interface
//! that has it. Source: the routes, which a connected socket follows; nothing is sent.

use crate::plain::canonical;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};

/// The address that the system speaks to `other` from, be that a host or a group; port 0. One of IPv6 names its
/// interface (its scope; 0: the system does not say). `None`: there is no route.
pub fn source_towards(other: SocketAddr) -> Option<SocketAddr> {
    let other = canonical(other);
    let socket = Socket::new(Domain::for_address(other), Type::DGRAM, None).ok()?;
    socket.connect(&other.into()).ok()?;
    let mut own = socket.local_addr().ok()?.as_socket()?;
    own.set_port(0);
    if let SocketAddr::V6(v6) = &mut own {
        v6.set_scope_id(interface_of(v6).unwrap_or(0));
    }
    Some(own)
}

/// The index of the interface that has an address of IPv6.
pub(crate) fn interface_of(own: &SocketAddrV6) -> Option<u32> {
    if own.scope_id() != 0 {
        return Some(own.scope_id());
    }
    // Address and index, hexadecimal; only Linux has it.
    let all = std::fs::read_to_string("/proc/net/if_inet6").ok()?;
    let index = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let ip = u128::from_str_radix(fields.next()?, 16).ok()?;
        let index = u32::from_str_radix(fields.next()?, 16).ok()?;
        (Ipv6Addr::from_bits(ip) == *own.ip()).then_some(index)
    };
    all.lines().find_map(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_speaks_to_itself_from_the_address_that_is_spoken_to() {
        for other in ["127.0.0.1:9", "[::ffff:127.0.0.1]:9"] {
            assert_eq!(
                source_towards(other.parse().unwrap()),
                Some("127.0.0.1:0".parse().unwrap()),
                "{other}"
            );
        }
        assert_eq!(source_towards("255.255.255.255:9".parse().unwrap()), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_address_of_ipv6_names_its_interface() {
        let Some(SocketAddr::V6(own)) = source_towards("[::1]:9".parse().unwrap()) else {
            return eprintln!("SKIPPED: this host has no IPv6");
        };
        assert_eq!((*own.ip(), own.port(), own.scope_id()), (Ipv6Addr::LOCALHOST, 0, 1));
    }
}
