//! What Nodes say of themselves to whoever looks from outside of their processes: `denrei top`, or `nc -U`.
//!
//! Inputs → outputs: a directory (the setting `status_directory`, or `DENREI_STATUS_DIRECTORY`) in which each Node
//! listens at a socket → for whoever connects there an object of JSON, a [`NodeStatus`], in a line of its own. Nothing is
//! gathered while nobody asks. Source: S8, seen from outside; ADR 115.

mod reader;
mod server;

pub use reader::{Seen, Unreadable, read};
pub(crate) use server::{About, StatusServer};

use denrei_proto::group::{GroupStatus as Group, MemberStatus as Member, MembershipStatus as Membership};
use denrei_proto::{EndpointCounters, FlowState, PeerCounters, Rate};
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::net::SocketAddr;

/// How the name of a Node's socket ends; while it is made it ends otherwise.
const EXTENSION: &str = "socket";

/// How the names of the sockets of this process's Nodes begin.
fn own_prefix() -> String {
    format!("{}-", std::process::id())
}

/// A Node, all its peers and groups, as of the moment it was asked. Read from one of another version that has no such
/// counter or list, it is 0, or empty; without any other field it is [`Unreadable`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NodeStatus {
    /// Id of its process.
    pub process: u32,
    /// The command that its process was started with, the first 80 characters.
    pub command: String,
    /// The address bound.
    pub address: SocketAddr,
    /// Which start of the Node this is, 16 hexadecimal digits.
    pub incarnation: String,
    /// Since it was made, milliseconds.
    pub uptime_ms: u64,
    /// Which thread drives it: `inline`, `thread` or `pipelined`.
    pub drive: String,
    /// Whether it has a cluster key, and seals every packet.
    pub sealed: bool,
    /// What happened that belongs to no peer.
    #[serde(default, with = "EndpointCountersFields")]
    pub counters: EndpointCounters,
    /// Its sessions.
    pub peers: Vec<PeerStatus>,
    /// The groups that it has opened.
    #[serde(default)]
    pub groups: Vec<GroupStatus>,
    /// The groups that it is a member of.
    #[serde(default)]
    pub memberships: Vec<MembershipStatus>,
}

/// A session, as [`FlowState`] has it; what may be absent is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PeerStatus {
    /// [`PeerId::as_u64`](crate::PeerId::as_u64).
    pub peer: u64,
    /// Its address.
    pub address: SocketAddr,
    /// Its incarnation, 16 hexadecimal digits, once it has been heard.
    pub incarnation: Option<String>,
    /// `opening`, `answering`, `open`, `closing` or `over`.
    pub phase: String,
    /// Smoothed round-trip time, ns.
    pub srtt_ns: Option<u64>,
    /// Smallest round-trip time seen, ns.
    pub min_rtt_ns: Option<u64>,
    /// Mean deviation of the round-trip time, ns.
    pub rtt_var_ns: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Sent, neither acknowledged nor known lost, bytes.
    pub in_flight_bytes: u64,
    /// What may be sent unasked on channel 0, bytes.
    pub credit_bytes: u64,
    /// How fast this Node may send to the peer; null: as fast as it can.
    pub rate: Option<RateLimit>,
    /// How fast the peer may send to this Node; null: as fast as it can.
    pub rate_set: Option<RateLimit>,
    /// The peer's share of what this Node receives.
    pub weight: u32,
    /// Messages that are not acknowledged.
    pub queued_messages: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Received bytes that the application has not taken.
    pub unread_bytes: u64,
    /// Largest datagram the path is known to carry, bytes.
    pub datagram_bytes: u16,
    /// Relays between the peer and whoever speaks through it.
    pub relays: u8,
    /// Since the session began.
    #[serde(default, with = "PeerCountersFields")]
    pub counters: PeerCounters,
}

/// A limit that a receiver has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateLimit {
    /// Mean rate, bytes per second.
    pub bytes_per_s: u64,
    /// Bytes that may leave in a row.
    pub burst_bytes: u64,
}

/// A group, as its opener sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GroupStatus {
    /// Its name, 16 hexadecimal digits.
    pub group: String,
    /// Its address.
    pub address: SocketAddr,
    /// Whether it is open.
    pub open: bool,
    /// Messages taken from the application.
    pub messages_sent: u64,
    /// Of them, those that all members have acknowledged.
    pub messages_acknowledged: u64,
    /// Bytes of the others.
    pub queued_bytes: u64,
    /// Bytes that may be under way.
    pub window_bytes: u64,
    /// Bytes sent to the group's address, or with the unicast backend to each member, UDP payload; what goes by the tree
    /// is counted by the sessions.
    #[serde(default)]
    pub bytes_sent: u64,
    /// Symbols sent again, to the group's address or to one member.
    pub repairs: u64,
    /// Its members.
    #[serde(default)]
    pub members: Vec<MemberStatus>,
}

/// A member of a group, as its opener sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MemberStatus {
    /// Its id.
    pub member: u32,
    /// Its address.
    pub address: SocketAddr,
    /// Whether it takes part now.
    pub active: bool,
    /// Whether it is served by itself because it is slow.
    pub lagging: bool,
    /// How it is reached: `multicast`, `unicast` or `relay`.
    pub path: String,
    /// Messages it has acknowledged.
    pub messages_acknowledged: u64,
    /// Symbols sent that it has not acknowledged.
    pub symbols_behind: u64,
    /// Smoothed round-trip time, ns.
    pub srtt_ns: Option<u64>,
}

/// A group that the Node is a member of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MembershipStatus {
    /// Its name, 16 hexadecimal digits.
    pub group: String,
    /// The group's address.
    pub address: SocketAddr,
    /// Its opener's address.
    pub opener: SocketAddr,
    /// The Node's id in it.
    pub member: u32,
    /// Bytes of the group's packets that came, UDP payload; what comes by a tree is counted by the sessions.
    #[serde(default)]
    pub bytes_received: u64,
}

/// The fields of [`PeerCounters`]. What another version does not count is 0.
#[derive(Default, Serialize, Deserialize)]
#[serde(remote = "PeerCounters", default)]
struct PeerCountersFields {
    packets_sent: u64,
    packets_received: u64,
    bytes_sent: u64,
    bytes_received: u64,
    messages_sent: u64,
    messages_received: u64,
    packets_lost: u64,
    recoveries: u64,
    retransmissions: u64,
    probes: u64,
    excess: u64,
    duplicates: u64,
    ecn_marks: u64,
}

/// The fields of [`EndpointCounters`]. What another version does not count is 0.
#[derive(Default, Serialize, Deserialize)]
#[serde(remote = "EndpointCounters", default)]
struct EndpointCountersFields {
    datagrams: u64,
    malformed: u64,
    corrupted: u64,
    unknown_session: u64,
    foreign_version: u64,
    refused_sessions: u64,
    crowds: u64,
    overruns: u64,
    suppressed_replies: u64,
    strange_keys: u64,
    strangers: u64,
    unsealed: u64,
    repeated_group_packets: u64,
    sealed_unread: u64,
    limited: u64,
    retries: u64,
    dropped_events: u64,
}

impl From<FlowState> for PeerStatus {
    fn from(flow: FlowState) -> Self {
        Self {
            peer: flow.peer.as_u64(),
            address: flow.addr,
            incarnation: flow.incarnation.map(|incarnation| hexadecimal(incarnation.0)),
            phase: name_of(flow.phase),
            srtt_ns: flow.srtt_ns,
            min_rtt_ns: flow.min_rtt_ns,
            rtt_var_ns: flow.rtt_var_ns,
            window_bytes: flow.window_bytes,
            in_flight_bytes: flow.in_flight_bytes,
            credit_bytes: flow.credit_bytes,
            rate: limit(flow.rate),
            rate_set: flow.rate_set.and_then(limit),
            weight: flow.weight,
            queued_messages: flow.queued_messages,
            queued_bytes: flow.queued_bytes,
            unread_bytes: flow.unread_bytes,
            datagram_bytes: flow.datagram_bytes,
            relays: flow.relays,
            counters: flow.counters,
        }
    }
}

impl From<Group> for GroupStatus {
    fn from(group: Group) -> Self {
        Self {
            group: hexadecimal(group.group.0),
            address: group.address,
            open: group.open,
            messages_sent: group.messages_sent,
            messages_acknowledged: group.messages_acknowledged,
            queued_bytes: group.queued_bytes,
            window_bytes: group.window_bytes,
            bytes_sent: group.counters.bytes_sent,
            repairs: group.counters.multicast_repairs + group.counters.unicast_repairs,
            members: group.members.into_iter().map(MemberStatus::from).collect(),
        }
    }
}

impl From<Member> for MemberStatus {
    fn from(member: Member) -> Self {
        Self {
            member: member.member,
            address: member.addr,
            active: member.active,
            lagging: member.lagging,
            path: name_of(member.path),
            messages_acknowledged: member.messages_acknowledged,
            symbols_behind: member.symbols_behind,
            srtt_ns: member.srtt_ns,
        }
    }
}

impl From<Membership> for MembershipStatus {
    fn from(membership: Membership) -> Self {
        let Membership { group, address, opener, member, counters } = membership;
        Self { group: hexadecimal(group.0), address, opener, member, bytes_received: counters.bytes_received }
    }
}

fn hexadecimal(number: u64) -> String {
    format!("{number:016x}")
}

fn limit(rate: Rate) -> Option<RateLimit> {
    let Rate { bytes_per_s, burst_bytes } = rate;
    (!rate.is_unlimited()).then_some(RateLimit { bytes_per_s, burst_bytes })
}

/// A value of an enum by its name, in small letters.
fn name_of(value: impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}
