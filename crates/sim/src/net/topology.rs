//! Who is connected to whom: hosts at switches, switches in a tree.
//!
//! Inputs → outputs: a datagram's place and destination → the link it takes next and where that
//! leads. A tree has one path between any two hosts, which is also how a switch will reach the
//! members of a multicast group. Finding the next link costs the depth of the tree.

use super::faults::Faults;
use super::link::{Link, LinkSpec};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A host, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

/// A switch, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchId(pub u32);

/// Where a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// At a switch.
    Switch(SwitchId),
    /// At a host.
    Host(HostId),
}

/// The port every simulated host uses.
const PORT: u16 = 7411;
/// Host 0 has the address after this one, and so on.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 0, 0, 0]);

impl HostId {
    /// Its address.
    pub fn addr(self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::from(FIRST_ADDRESS + 1 + self.0), PORT))
    }

    /// The host with this address, whether or not it exists.
    pub fn at(addr: SocketAddr) -> Option<Self> {
        let IpAddr::V4(ip) = addr.ip() else { return None };
        let number = u32::from(ip).checked_sub(FIRST_ADDRESS + 1)?;
        (addr.port() == PORT).then_some(Self(number))
    }
}

/// A cable: one link in each direction.
#[derive(Debug)]
struct Cable {
    up: Link,
    down: Link,
}

#[derive(Debug)]
struct Switch {
    parent: Option<(SwitchId, Cable)>,
    depth: u32,
}

#[derive(Debug)]
struct Attachment {
    switch: SwitchId,
    cable: Cable,
}

/// All hosts, switches and links.
#[derive(Debug, Default)]
pub struct Topology {
    switches: Vec<Switch>,
    hosts: Vec<Attachment>,
}

impl Topology {
    /// Adds a switch, below another or as the root.
    ///
    /// # Panics
    /// If the parent does not exist, or a second root is added.
    pub fn add_switch(&mut self, parent: Option<(SwitchId, LinkSpec)>) -> SwitchId {
        assert!(parent.is_some() || self.switches.is_empty(), "a tree has one root");
        let depth = parent.map_or(0, |(parent, _)| self.switches[parent.0 as usize].depth + 1);
        let parent = parent.map(|(parent, spec)| (parent, Cable::new(spec, spec)));
        self.switches.push(Switch { parent, depth });
        SwitchId(self.switches.len() as u32 - 1)
    }

    /// Attaches a host to a switch.
    ///
    /// # Panics
    /// If the switch does not exist.
    pub fn add_host(&mut self, switch: SwitchId, up: LinkSpec, down: LinkSpec) -> HostId {
        assert!((switch.0 as usize) < self.switches.len(), "{switch:?} does not exist");
        self.hosts.push(Attachment { switch, cable: Cable::new(up, down) });
        HostId(self.hosts.len() as u32 - 1)
    }

    /// How many hosts there are.
    pub fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// The link from `host` to its switch.
    pub fn uplink(&mut self, host: HostId) -> &mut Link {
        &mut self.hosts[host.0 as usize].cable.up
    }

    /// The link from its switch to `host`.
    pub fn downlink(&mut self, host: HostId) -> &mut Link {
        &mut self.hosts[host.0 as usize].cable.down
    }

    /// Sets the faults of both directions of a host's cable.
    pub fn set_faults(&mut self, host: HostId, faults: Faults) {
        self.uplink(host).faults = faults;
        self.downlink(host).faults = faults;
    }

    /// Takes all faults away.
    pub fn heal(&mut self) {
        for link in self.links_mut() {
            link.faults.heal();
        }
    }

    /// Deepest queue of any link so far, bytes.
    pub fn deepest_queue_bytes(&self) -> u64 {
        let switches = self.switches.iter().filter_map(|switch| Some(&switch.parent.as_ref()?.1));
        let cables = self.hosts.iter().map(|host| &host.cable).chain(switches);
        let depths = cables.flat_map(|cable| [&cable.up, &cable.down]).map(Link::deepest_queue_bytes);
        depths.max().unwrap_or(0)
    }

    /// The link that a datagram at `place` for `to` takes next, and where it leads; `None` when it
    /// is there, or `to` does not exist.
    pub fn next_link(&mut self, place: Place, to: HostId) -> Option<(&mut Link, Place)> {
        let target = self.hosts.get(to.0 as usize)?.switch;
        let at = match place {
            Place::Host(host) if host == to => return None,
            Place::Host(host) => {
                let attachment = &mut self.hosts[host.0 as usize];
                return Some((&mut attachment.cable.up, Place::Switch(attachment.switch)));
            }
            Place::Switch(switch) => switch,
        };
        if at == target {
            return Some((self.downlink(to), Place::Host(to)));
        }
        if let Some(child) = self.child_towards(at, target) {
            let (_, cable) = self.switches[child.0 as usize].parent.as_mut()?;
            return Some((&mut cable.down, Place::Switch(child)));
        }
        let (parent, cable) = self.switches[at.0 as usize].parent.as_mut()?;
        Some((&mut cable.up, Place::Switch(*parent)))
    }

    /// The child of `at` below which `target` lies, if it does.
    fn child_towards(&self, at: SwitchId, target: SwitchId) -> Option<SwitchId> {
        let depth = self.switches[at.0 as usize].depth;
        let mut walk = target;
        while self.switches[walk.0 as usize].depth > depth {
            let (parent, _) = self.switches[walk.0 as usize].parent.as_ref()?;
            if *parent == at {
                return Some(walk);
            }
            walk = *parent;
        }
        None
    }

    fn links_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        let switches = self.switches.iter_mut().filter_map(|switch| Some(&mut switch.parent.as_mut()?.1));
        let cables = self.hosts.iter_mut().map(|host| &mut host.cable).chain(switches);
        cables.flat_map(|cable| [&mut cable.up, &mut cable.down])
    }
}

impl Cable {
    fn new(up: LinkSpec, down: LinkSpec) -> Self {
        Self { up: Link::new(up), down: Link::new(down) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(topology: &mut Topology, from: HostId, to: HostId) -> Vec<Place> {
        let mut places = vec![Place::Host(from)];
        while let Some((_, next)) = topology.next_link(*places.last().unwrap(), to) {
            places.push(next);
            assert!(places.len() < 20, "a path in a tree ends: {places:?}");
        }
        places
    }

    #[test]
    fn a_datagram_climbs_only_as_far_as_it_must() {
        let mut topology = Topology::default();
        let root = topology.add_switch(None);
        let left = topology.add_switch(Some((root, LinkSpec::LAN)));
        let right = topology.add_switch(Some((root, LinkSpec::LAN)));
        let low = topology.add_switch(Some((right, LinkSpec::LAN)));
        let mut host = |switch| topology.add_host(switch, LinkSpec::LAN, LinkSpec::LAN);
        let (a, b, c) = (host(left), host(left), host(low));
        use Place::{Host, Switch};
        assert_eq!(path(&mut topology, a, b), [Host(a), Switch(left), Host(b)]);
        let far = [Host(a), Switch(left), Switch(root), Switch(right), Switch(low), Host(c)];
        assert_eq!(path(&mut topology, a, c), far);
        assert_eq!(path(&mut topology, c, a), far.into_iter().rev().collect::<Vec<_>>());
        assert!(topology.next_link(Host(a), HostId(99)).is_none());
    }

    #[test]
    fn addresses_name_hosts() {
        for host in [HostId(0), HostId(254), HostId(9_999)] {
            assert_eq!(HostId::at(host.addr()), Some(host));
        }
        assert_eq!(HostId::at("10.0.0.1:1".parse().unwrap()), None);
        assert_eq!(HostId::at("9.0.0.1:7411".parse().unwrap()), None);
    }
}
