//! Groups for collective operations of MPI: what `libdenrei-mpi.so` uses, beside the provider.
//!
//! Inputs → outputs: a process's Node, a group's address and the members' → a [`Seat`] in the group,
//! from which the opener sends to all others (M1, M9). The Node is one of its own, whatever carries the
//! MPI's messages, and works in the background: members acknowledge while they compute.

use crate::error::Errno;
use crate::log::{self, Level, Subsystem};
use crate::settings::Settings;
use bytes::Bytes;
use denrei::{
    Config, Drive, Group, GroupError, GroupListener, GroupOptions, Membership, Node, OpenGroupError,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Opens a process's Node, with the provider's settings.
///
/// # Errors
/// As for an endpoint: no address, or a key that cannot be read.
pub fn open_node(settings: &Settings) -> Result<Node, Errno> {
    let config = Config {
        drive: Drive::Thread,
        insecure: settings.insecure && settings.key_file.is_none(),
        cluster_key: settings.cluster_key()?,
        ..Config::default()
    };
    Node::bind(settings.first_address(), config).map_err(|error| Errno::of_bind(&error))
}

/// A place in a group.
#[derive(Debug)]
pub enum Seat {
    /// The opener's.
    Leads(Group),
    /// Of one that waits to be made a member.
    Listens(GroupListener),
    /// A member's.
    Follows(Membership, #[allow(dead_code, reason = "hears the address as long as it lives")] GroupListener),
    /// It was lost while the group was opened.
    Empty,
}

impl Seat {
    /// Opens a group at `group` with `members`, who have to listen there within `timeout`.
    ///
    /// # Errors
    /// Not all of them did.
    pub fn lead(
        node: &Node,
        group: SocketAddr,
        members: &[SocketAddr],
        timeout: Duration,
    ) -> Result<Self, Errno> {
        let options = GroupOptions { open_timeout: timeout, ..GroupOptions::default() };
        node.open_group(group, members, options).map(Self::Leads).map_err(|error| refused(&error))
    }

    /// Waits to be made a member of a group at `group`.
    ///
    /// # Errors
    /// Not an address that a group can have.
    pub fn listen(node: &Node, group: SocketAddr) -> Result<Self, Errno> {
        node.join_group(group).map(Self::Listens).map_err(|error| refused(&error))
    }

    /// Waits for `opener` to make this process a member. Groups of others at the address are left.
    ///
    /// # Errors
    /// `ETIMEDOUT`: it did not. `EINVAL`: nobody listens here.
    pub fn accept(&mut self, opener: SocketAddr, timeout: Duration) -> Result<(), Errno> {
        let Self::Listens(listener) = std::mem::replace(self, Self::Empty) else {
            return Err(Errno::INVALID);
        };
        let end = Instant::now() + timeout;
        while let Some(membership) = listener.accept(end.saturating_duration_since(Instant::now())) {
            if membership.opener() == opener {
                *self = Self::Follows(membership, listener);
                return Ok(());
            }
        }
        Err(Errno(crate::ffi::ETIMEDOUT))
    }

    /// Sends to all others.
    ///
    /// # Errors
    /// `AGAIN`: the queue was full for so long. Others: the group is over, or not this seat's to lead.
    pub fn send(&self, bytes: &[u8], timeout: Duration) -> Result<(), Errno> {
        let Self::Leads(group) = self else { return Err(Errno::INVALID) };
        match group.send_timeout(Bytes::copy_from_slice(bytes), timeout) {
            Ok(_) => Ok(()),
            Err(GroupError::WouldBlock { .. }) => Err(Errno::AGAIN),
            Err(_) => Err(Errno(crate::ffi::ECONNRESET)),
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// `AGAIN`: none came for so long. Others: the group is over, or not one that this seat hears.
    pub fn receive(&self, timeout: Duration) -> Result<Bytes, Errno> {
        let Self::Follows(membership, _) = self else { return Err(Errno::INVALID) };
        match membership.recv_timeout(timeout) {
            Ok(Some(message)) => Ok(message.data),
            Ok(None) => Err(Errno::AGAIN),
            Err(_) => Err(Errno(crate::ffi::ECONNRESET)),
        }
    }
}

fn refused(error: &OpenGroupError) -> Errno {
    log::say(Level::Warn, Subsystem::EndpointControl, || error.to_string());
    Errno::OTHER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_sends_all_others_receive_in_order() {
        let settings = Settings { insecure: true, key_file: None, ..Settings::from_environment() };
        let nodes: Vec<Node> = (0..3).map(|_| open_node(&settings).unwrap()).collect();
        let address: SocketAddr = "239.255.77.3:27403".parse().unwrap();
        let long = Duration::from_secs(20);
        let mut members: Vec<Seat> =
            nodes[1..].iter().map(|node| Seat::listen(node, address).unwrap()).collect();
        let addresses: Vec<SocketAddr> = nodes[1..].iter().map(Node::local_addr).collect();
        let leader = Seat::lead(&nodes[0], address, &addresses, long).unwrap();
        assert_eq!(leader.receive(Duration::ZERO), Err(Errno::INVALID));
        for member in &mut members {
            member.accept(nodes[0].local_addr(), long).unwrap();
            assert_eq!(member.receive(Duration::ZERO), Err(Errno::AGAIN));
        }
        for len in [1, 100_000] {
            leader.send(&vec![7; len], long).unwrap();
        }
        for member in &members {
            assert_eq!(member.receive(long).unwrap().len(), 1);
            assert_eq!(member.receive(long).unwrap(), vec![7; 100_000]);
        }
        drop(leader);
        assert_eq!(members[0].receive(long), Err(Errno(crate::ffi::ECONNRESET)));
    }
}
