//! Reliable multicast groups: one send, any number of receivers (M1–M10).
//!
//! Inputs → outputs: GROUP packets, records and reports from sessions, time, the application's calls →
//! packets to groups' addresses, records and reports for sessions, messages and events. `Table` knows
//! all groups of an endpoint; what is said to members in confidence and in order goes through their
//! sessions (`Host`), so this room has no retransmission of its own but that of symbols. Source: the
//! paper's M rows; RFC 5740 (NORM) for reports and repairs; `spec/protocol.md` §14.

mod arrivals;
mod assembly;
mod error;
mod hearing;
mod keys;
mod member;
mod membership;
mod parity;
mod roll;
mod sender;
mod stream;
mod table;
mod types;

pub use denrei_wire::group::Removal;
pub use error::GroupError;
pub use types::{
    Departure, GroupBackend, GroupCounters, GroupEvent, GroupFeedback, GroupId, GroupMessage, GroupOptions,
    GroupPolicy, GroupStatus, Invited, MemberPath, MemberStatus, MembershipCounters, MembershipEnd,
    MembershipId, MembershipStatus, POLICY_TIMES,
};

use crate::config::Config;
use crate::event::PeerId;
use crate::rate::Rate;
use crate::seal::Seed;
use bytes::Bytes;
use core::net::SocketAddr;
use core::time::Duration;
use denrei_wire::{Instant, Way};
pub(crate) use sender::Sender;
pub(crate) use table::{Fate, Table};

/// Most members of a group: each costs its opener about half a kilobyte.
pub const MAX_MEMBERS: usize = 16_384;

/// Numbers and costs that others name are smaller: no group comes so far, and what is added to them does not overflow.
const MAX_NAMED: u64 = 1 << 60;

/// Whether two addresses are of one group: the interface that an address of IPv6 names does not travel.
fn is_same_group(one: SocketAddr, other: SocketAddr) -> bool {
    (one.ip(), one.port()) == (other.ip(), other.port())
}

/// What groups need of the endpoint: sessions.
pub(crate) trait Host {
    fn config(&self) -> &Config;
    /// Opens a session, or names the one there is.
    fn connect(&mut self, now: Instant, addr: SocketAddr) -> Option<PeerId>;
    /// Names the sessions with addresses that somebody else has told, or opens them, unless many are opening already.
    fn connect_told(&mut self, now: Instant, addrs: &mut dyn Iterator<Item = SocketAddr>) -> Vec<PeerId>;
    /// Sends a record to a peer: before symbols that wait for it, if it does not tell of them.
    fn send(&mut self, now: Instant, peer: PeerId, record: Bytes);
    /// Sends a record to a peer that is one of several which take their turns at what they are sent.
    fn send_in_turn(&mut self, now: Instant, peer: PeerId, record: Bytes);
    /// Sends a frame that is not repeated to a peer.
    fn report(&mut self, now: Instant, peer: PeerId, frame: &[u8]);
    /// Asks a peer for a sign of life: if it gives none, the session is lost.
    fn ask_for_life(&mut self, now: Instant, peer: PeerId);
    /// What may be queued for a peer that has at most `most` queued, or `beside` where the application's messages are
    /// more; and of both no more than four of its windows, but for `least`.
    fn queue_room(&self, peer: PeerId, least: u64, most: u64, beside: u64) -> u64;
    /// Smoothed round-trip time.
    fn rtt(&self, peer: PeerId) -> Option<Duration>;
    /// How fast it lets this side send.
    fn rate(&self, peer: PeerId) -> Rate;
    /// Octets that may go to it by a group as far as that rate says so, or when again.
    fn rate_room(&mut self, now: Instant, peer: PeerId) -> Result<u64, Instant>;
    /// Takes note of octets that go to it by a group.
    fn spend_rate(&mut self, now: Instant, peer: PeerId, octets: u64);
    /// Largest datagram its path is known to carry.
    fn datagram_bytes(&self, peer: PeerId) -> Option<u16>;
    /// The live peer at an address.
    fn peer_at(&self, addr: SocketAddr) -> Option<PeerId>;
    /// Where it is, and from where it is spoken to.
    fn way_of(&self, peer: PeerId) -> Option<Way>;
    fn addr_of(&self, peer: PeerId) -> Option<SocketAddr> {
        self.way_of(peer).map(|way| way.to)
    }
    /// A seed for a purpose of its own.
    fn seed(&mut self) -> Seed;
    /// Whether the other side of a session has proven itself: what is said before is less secret.
    fn is_proven(&self, peer: PeerId) -> bool;
    /// Whether received messages have not used up the memory for them.
    fn memory_left(&self) -> bool;
}
