//! A Node's peers: open, look at, close.

use super::Node;
use crate::address::{can_reach, lacks_interface};
use denrei_io::canonical;
use denrei_proto::{ConnectError, FlowState, PeerError, PeerId, Rate};
use std::net::SocketAddr;

impl Node {
    /// Opens a session with the Node at `addr`, or names the one there is. Returns at once:
    /// messages may be sent right away and travel with the FIRST (R5). If nobody answers within
    /// the connect timeout, [`Event::PeerLost`](crate::Event::PeerLost) says so. One that is being closed is still
    /// there until that event. One Node has one session with this one: who connects to a second address of it, where it
    /// [has several](Self::bind), loses the session by the first.
    ///
    /// # Errors
    /// The address table is full, or the address is not one to send to, or not from here.
    pub fn connect(&self, addr: SocketAddr) -> Result<PeerId, ConnectError> {
        let addr = self.reachable(addr)?;
        let (shard, mut core) = self.shards().enter_at(addr);
        let now = core.now();
        let peer = core.endpoint.connect(now, addr)?;
        drop(core);
        shard.kick();
        Ok(peer)
    }

    /// The address of another Node in the form that it is known by, if this one can send there.
    pub(crate) fn reachable(&self, addr: SocketAddr) -> Result<SocketAddr, ConnectError> {
        let (addr, local) = (self.known_as(addr), self.local_addr());
        if !can_reach(local.ip(), addr.ip()) {
            return Err(ConnectError::OtherFamily { addr, local });
        }
        match lacks_interface(addr) {
            true => Err(ConnectError::NoInterface(addr)),
            false => Ok(addr),
        }
    }

    /// The one form of an address. One of a link that does not name its interface is of this Node's own link, where
    /// that has one.
    fn known_as(&self, addr: SocketAddr) -> SocketAddr {
        match (canonical(addr), self.local_addr()) {
            (SocketAddr::V6(mut addr), SocketAddr::V6(own)) if lacks_interface(addr.into()) => {
                addr.set_scope_id(own.scope_id());
                addr.into()
            }
            (addr, _) => addr,
        }
    }

    /// The live peer at an address.
    pub fn peer_at(&self, addr: SocketAddr) -> Option<PeerId> {
        let addr = self.known_as(addr);
        self.shards().enter_at(addr).1.endpoint.peer_at(addr)
    }

    /// The address table (S8): every peer and its flow state, as of now.
    pub fn peers(&self) -> Vec<FlowState> {
        self.shards().all().flat_map(|shard| shard.core.lock().flows()).collect()
    }

    /// A peer's flow state (S8), `None` if the peer is not in the address table any more.
    pub fn flow(&self, peer: PeerId) -> Option<FlowState> {
        self.shards().enter_of(peer).1.endpoint.flow(peer)
    }

    /// Whether a message of `peer` can be taken.
    pub(crate) fn has_ready_from(&self, peer: PeerId) -> bool {
        self.shards().enter_of(peer).1.endpoint.has_ready_from(peer)
    }

    /// Sets how fast `peer` may send to this Node (R4): the receiver sets the pace. `Rate::STOPPED`
    /// stops data while control goes on, `Rate::UNLIMITED` lifts the limit, and so does a burst of 0 whatever
    /// the rate is.
    ///
    /// # Errors
    /// No such peer; a rate or burst above 1 PiB.
    pub fn set_rate(&self, peer: PeerId, rate: Rate) -> Result<(), PeerError> {
        self.act(peer, |core, now| core.endpoint.set_rate(now, peer, rate))
    }

    /// SREQ: asks a peer for its state now; [`Event::Status`](crate::Event::Status) brings it, with the number returned.
    /// A request takes the place of one that is not answered yet.
    ///
    /// # Errors
    /// No such peer.
    pub fn request_status(&self, peer: PeerId) -> Result<u32, PeerError> {
        self.act(peer, |core, now| core.endpoint.request_status(now, peer))
    }

    /// WCLOSE: this side will send no more to `peer`; what is queued is still delivered. When both
    /// sides have done so the session ends.
    ///
    /// # Errors
    /// No such peer.
    pub fn close_write(&self, peer: PeerId) -> Result<(), PeerError> {
        self.act(peer, |core, now| core.endpoint.close_write(now, peer))
    }

    /// RCLOSE: this side wants no more from `peer`; what was not taken is dropped.
    ///
    /// # Errors
    /// No such peer.
    pub fn close_read(&self, peer: PeerId) -> Result<(), PeerError> {
        self.act(peer, |core, now| core.endpoint.close_read(now, peer))
    }

    /// Ends the session with `peer` in order: as soon as everything queued here is acknowledged, which the peer's
    /// application may read after that. [`Event::PeerLost`](crate::Event::PeerLost) with `Closed` says when. What
    /// the peer has not brought here by then is cut off, and named to it: where both have more to say, each calls
    /// [`close_write`](Self::close_write).
    ///
    /// # Errors
    /// No such peer.
    pub fn close(&self, peer: PeerId) -> Result<(), PeerError> {
        self.act(peer, |core, now| core.endpoint.close(now, peer))
    }

    /// Ends the session with `peer` at once. `code` (0x8000 and up are the application's) and
    /// `reason` (cut at 128 octets) reach the peer in its [`Event::PeerLost`](crate::Event::PeerLost).
    ///
    /// # Errors
    /// No such peer.
    pub fn abort(&self, peer: PeerId, code: u16, reason: &str) -> Result<(), PeerError> {
        self.act(peer, |core, now| core.endpoint.abort(now, peer, code, reason))
    }
}
