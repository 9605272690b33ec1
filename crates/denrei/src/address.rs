//! Addresses as people write them, and which of them can be sent to.
//!
//! Inputs → outputs: an address's text → what sockets take, or why it is none; an address → whether it says enough, and
//! whether a socket reaches it. Source: the system's resolver, which knows hosts' names and this host's interfaces.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// An address with a port as people write it: `10.0.0.7:7411`, `[2001:db8::7]:7411`, or a host's name, of which it is the
/// first address. One that a link alone has names this host's interface to it: `[fe80::7%eth0]:7411`. Asking for a name
/// may take long.
///
/// # Errors
/// It is no such address, and what would be one; or the system does not find the host, or has no such interface.
///
/// ```
/// assert_eq!(denrei::resolve("10.0.0.7:7411")?, ([10, 0, 0, 7], 7411).into());
/// assert!(denrei::resolve("10.0.0.7").unwrap_err().contains("no address with a port"));
/// # Ok::<(), String>(())
/// ```
pub fn resolve(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = || format!("{text:?} is no address with a port, such as node1:7411 or [2001:db8::7]:7411");
    if let Some((ip, (interface, port))) =
        text.split_once('%').and_then(|(ip, rest)| Some((ip, rest.split_once("]:")?)))
    {
        let index = interface_index(interface).ok_or_else(|| {
            format!("{text:?}: this host has no interface {interface:?}: `ip link` shows those it has")
        })?;
        return format!("{ip}%{index}]:{port}").parse().map_err(|_| wrong());
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse::<u16>().map_err(|_| wrong())?;
    if host.is_empty() || host.contains([':', ' ']) {
        return Err(wrong());
    }
    let found =
        (host, port).to_socket_addrs().map_err(|error| format!("cannot resolve {host:?}: {error}"))?;
    found.into_iter().next().ok_or_else(|| format!("{host:?} has no address"))
}

/// The index of the interface that has a name: the resolver takes one behind an address that needs it.
fn interface_index(name: &str) -> Option<u32> {
    match (format!("fe80::%{name}").as_str(), 0).to_socket_addrs().ok()?.next()? {
        SocketAddr::V6(v6) => Some(v6.scope_id()).filter(|index| *index > 0),
        SocketAddr::V4(_) => None,
    }
}

/// Whether a socket bound to `local` can send to `target`: IPv6 is for IPv4 too where it is bound to all
/// addresses.
pub(crate) fn can_reach(local: IpAddr, target: IpAddr) -> bool {
    match (local.to_canonical(), target.to_canonical()) {
        (IpAddr::V6(local), _) if local.is_unspecified() => true,
        (local, target) => local.is_ipv4() == target.is_ipv4(),
    }
}

/// Whether an address is one that each link has for itself, and does not say which: what is sent there may go out
/// anywhere, and answers come from another address, which has the interface.
pub(crate) fn lacks_interface(addr: SocketAddr) -> bool {
    matches!(addr, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_ports_and_hosts_may_have_names() {
        assert_eq!(resolve("127.0.0.1:7411"), Ok(([127, 0, 0, 1], 7411).into()));
        assert!(resolve("[::1]:0").is_ok());
        let named = resolve("localhost:7411").unwrap();
        assert!(named.ip().is_loopback() && named.port() == 7411);
        for wrong in ["127.0.0.1", "::1", "127.0.0.1:99999", "node1", "node1:", ":7411", "no such:7411", ""] {
            assert!(resolve(wrong).unwrap_err().contains("such as node1:7411"), "{wrong}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn addresses_of_one_link_name_its_interface() {
        for ip in ["fe80::7", "ff02::7", "ff15::7"] {
            let named = resolve(&format!("[{ip}%lo]:7411"));
            assert_eq!(named, resolve(&format!("[{ip}%1]:7411")));
            assert!(matches!(named, Ok(SocketAddr::V6(v6)) if v6.scope_id() == 1), "{named:?}");
        }
        assert!(resolve("[fe80::7%no-such]:7411").unwrap_err().contains("ip link"));
        assert!(resolve("[10.0.0.7%lo]:7411").unwrap_err().contains("such as node1:7411"));
    }
}
