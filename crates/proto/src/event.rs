//! What the core tells the application: names, events, reasons, errors.

mod lost;

pub use lost::LostReason;
pub(crate) use lost::OWN_ADDRESS;

use crate::events::Waiting;
use crate::rate::{MAX_RATE, MAX_WEIGHT, Rate};
use bytes::Bytes;
use core::fmt;
use core::net::SocketAddr;
use denrei_wire::Incarnation;
use derive_more::Add;
use thiserror::Error;

/// Priorities of channels go from 0, the most urgent, to this.
pub(crate) const LEAST_URGENT: u8 = 7;

/// One remote incarnation, named by its place in the address table (S8).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl PeerId {
    /// The id as one number, for interfaces that need one; see [`from_u64`](Self::from_u64).
    pub const fn as_u64(self) -> u64 {
        ((self.generation as u64) << 32) | self.slot as u64
    }

    /// The inverse of [`as_u64`](Self::as_u64). Any number is safe: one that names no peer is refused by every call.
    pub const fn from_u64(value: u64) -> Self {
        Self { slot: value as u32, generation: (value >> 32) as u32 }
    }

    /// Of `shards` endpoints that share an address, the one that began the session (see
    /// [`Place`](crate::Place)).
    pub const fn shard(self, shards: usize) -> usize {
        self.slot as usize % shards
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}.{}", self.slot, self.generation)
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An ordered sequence of messages to and from one peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChannelId {
    /// The peer.
    pub peer: PeerId,
    /// Which of its channels.
    pub channel: u16,
}

/// A message sent: its place in a channel's sequence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MessageId {
    /// The channel.
    pub channel: ChannelId,
    /// Counts the channel's messages from 0.
    pub number: u64,
}

/// A message received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where it came in.
    pub channel: ChannelId,
    /// Its place in the channel's sequence, from 0; one is missing where a message was refused or given up.
    pub number: u64,
    /// The bytes. Up to 256 of them share a block of 2 KiB with other messages': copy what is kept for long.
    pub data: Bytes,
}

/// What `send` shall report about a message later. Each asked-for report is one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Completion {
    /// Nothing, unless the peer is lost.
    #[default]
    None,
    /// [`Event::Acknowledged`]: the receiving process has it in its memory.
    Acknowledged,
    /// [`Event::Delivered`]: the receiving application has taken it (R7's DREQ).
    Delivered,
}

/// Something the application may want to know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A peer answered a `connect`, or opened a session to this endpoint.
    Connected {
        /// The peer.
        peer: PeerId,
        /// Its address.
        addr: SocketAddr,
        /// Which start of its process this is.
        incarnation: Incarnation,
    },
    /// A message sent with [`Completion::Acknowledged`] is in the receiver's memory.
    Acknowledged(MessageId),
    /// A message sent with [`Completion::Delivered`] was taken by the receiving application.
    Delivered(MessageId),
    /// A peer offers a large message ([`OfferPolicy::Ask`](crate::OfferPolicy::Ask)): answer with `accept` or
    /// `refuse`. The event stands in its place: what follows on the channel does not wait for its bytes.
    Offered {
        /// Channel it arrives on.
        channel: ChannelId,
        /// Its number in the channel.
        number: u64,
        /// Its size, bytes.
        bytes: u64,
    },
    /// The receiver refused an offered message (too large for it, or `refuse`).
    Refused(MessageId),
    /// A message was given up because not all of it was sent, or what was lost of it sent again, by its
    /// deadline. The receiver goes on without it, unless what seemed lost was only late.
    Expired(MessageId),
    /// An offer was given up by its sender ([`Expired`](Self::Expired) there): it will not arrive,
    /// accepted or not.
    Withdrawn {
        /// Channel it was offered on.
        channel: ChannelId,
        /// Its number in the channel.
        number: u64,
    },
    /// The status asked for with `request_status` (R7's SREQ).
    Status {
        /// The peer.
        peer: PeerId,
        /// The request's number, as returned by `request_status`.
        request: u32,
        /// Bytes from us that its application has not taken.
        buffered_bytes: u64,
        /// Messages from us that its application has not taken.
        buffered_messages: u32,
    },
    /// The peer has set how fast it may be sent to (R4).
    RateSet {
        /// The peer.
        peer: PeerId,
        /// What holds from now on.
        rate: Rate,
    },
    /// The peer will send no more (R7's WCLOSE): all it sent has been received.
    PeerDoneWriting(PeerId),
    /// The peer wants no more (R7's RCLOSE): what was not acknowledged is dropped.
    PeerDoneReading {
        /// The peer.
        peer: PeerId,
        /// What was queued for it and may not have been handed over, as for [`PeerLost`](Event::PeerLost).
        unacknowledged: Vec<MessageId>,
    },
    /// The session is over. Messages that were received before remain readable.
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// Its address.
        addr: SocketAddr,
        /// Why.
        reason: LostReason,
        /// Messages to it of which it is not known that they arrived, oldest first per channel, and those that have,
        /// but follow one of them on its channel, which nobody is handed without it; not those of the latter whose
        /// acknowledgement was [reported](Event::Acknowledged). One that expired is among them if the peer may not
        /// know that.
        unacknowledged: Vec<MessageId>,
    },
}

impl Waiting for Event {
    fn is_report(&self) -> bool {
        // An offer waits for the application's answer, as nobody else will give one.
        matches!(self, Self::Acknowledged(_) | Self::Delivered(_) | Self::Refused(_) | Self::Offered { .. })
    }
}

impl Event {
    /// The peer that will send nothing more, if this says so.
    pub(crate) fn end_of(&self) -> Option<PeerId> {
        match self {
            Self::PeerDoneWriting(peer) | Self::PeerLost { peer, .. } => Some(*peer),
            _ => None,
        }
    }
}

/// Why `connect` was refused.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address table is full.
    #[error("there are {max} peers already; raise max_peers")]
    TooManyPeers {
        /// The limit.
        max: u32,
    },
    /// Not an address one can send to.
    #[error("{0} cannot be the address of a peer")]
    BadAddress(SocketAddr),
    /// The socket cannot send to addresses of this family.
    #[error("{addr} cannot be reached from {local}, which is of the other IP version: bind to [::] for both")]
    OtherFamily {
        /// The address.
        addr: SocketAddr,
        /// This side's.
        local: SocketAddr,
    },
    /// Each link has addresses like this one for itself, and it does not say which.
    #[error("{0} is an address of one link: name this host's interface to it, as in [{ip}%eth0]:{port}", ip = .0.ip(), port = .0.port())]
    NoInterface(SocketAddr),
}

/// Why `send` was refused. The message was not taken.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum SendError {
    /// The queue to this peer is full; wait until it drains.
    #[error("{queued_bytes} bytes are queued for {peer}: its receiver or the path is slower than the sender")]
    WouldBlock {
        /// The peer.
        peer: PeerId,
        /// What is queued, bytes.
        queued_bytes: u64,
    },
    /// No such peer (any more).
    #[error("{0} is not, or no longer, in the address table")]
    UnknownPeer(PeerId),
    /// The peer's limit.
    #[error("a message of {bytes} bytes is over the receiver's limit of {max} (its max_message_bytes)")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The channel number is not below the limit of either side.
    #[error("channel {channel} does not exist: numbers go up to {last} (max_channels)")]
    NoSuchChannel {
        /// The number.
        channel: u16,
        /// The highest there is.
        last: u16,
    },
    /// A thread that drives the Node has panicked, or the one that an asynchronous call needs cannot be started: nothing
    /// more is sent.
    #[error("the Node does nothing more: a thread of its has panicked, or cannot be started")]
    NodeFailed,
    /// This side said that it is done writing.
    #[error("this side has closed writing to {0}")]
    WriteClosed(PeerId),
    /// The peer said that it wants no more.
    #[error("{0} takes no more messages")]
    PeerDoneReading(PeerId),
    /// The session is over.
    #[error("{peer} is lost: {reason}")]
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// Why.
        reason: LostReason,
    },
}

/// Why no more messages of a peer come than are here.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum NoMore {
    /// No such peer (any more).
    #[error("{0} is not, or no longer, in the address table")]
    UnknownPeer(PeerId),
    /// No such channel: nobody can send there.
    #[error("channel {channel} does not exist: numbers go up to {last} (max_channels)")]
    NoSuchChannel {
        /// The number.
        channel: u16,
        /// The highest there is.
        last: u16,
    },
    /// The peer said that it is done writing.
    #[error("{0} sends no more messages")]
    PeerDoneWriting(PeerId),
    /// The session is over.
    #[error("{peer} is lost: {reason}")]
    PeerLost {
        /// The peer.
        peer: PeerId,
        /// Why.
        reason: LostReason,
    },
}

/// Why a call that names a peer, channel or offer did nothing.
#[derive(Debug, Error, PartialEq, Eq, Clone)]
#[non_exhaustive]
pub enum PeerError {
    /// No such peer (any more).
    #[error("{0} is not, or no longer, in the address table")]
    UnknownPeer(PeerId),
    /// No such channel.
    #[error("channel {channel} does not exist: numbers go up to {last} (max_channels)")]
    NoSuchChannel {
        /// The number.
        channel: u16,
        /// The highest there is.
        last: u16,
    },
    /// No offer waits under this number: it was answered before, or its sender is gone.
    #[error("no offer {number} waits on channel {channel} of {peer}", peer = .channel.peer, channel = .channel.channel)]
    NoSuchOffer {
        /// The channel.
        channel: ChannelId,
        /// The message number.
        number: u64,
    },
    /// A weight that cannot be.
    #[error("weight is {0}, but has to be between 1 and {MAX_WEIGHT}")]
    BadWeight(u32),
    /// A priority that cannot be.
    #[error("priority is {0}, but has to be between 0 (most urgent) and {LEAST_URGENT}")]
    BadPriority(u8),
    /// A value that cannot be.
    #[error("{setting} is {value}, but has to be at most {MAX_RATE} (1 PiB)")]
    BadRate {
        /// Name of the field.
        setting: &'static str,
        /// What it was set to.
        value: u64,
    },
}

/// A peer's flow state (S8), as of now.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowState {
    /// The peer.
    pub peer: PeerId,
    /// Its address.
    pub addr: SocketAddr,
    /// Its incarnation, once it has been heard.
    pub incarnation: Option<Incarnation>,
    /// Where the session is in its life.
    pub phase: Phase,
    /// Smoothed round-trip time, ns; `None` before the first sample.
    pub srtt_ns: Option<u64>,
    /// Smallest round-trip time seen, ns.
    pub min_rtt_ns: Option<u64>,
    /// Mean deviation of the round-trip time, ns.
    pub rtt_var_ns: u64,
    /// Congestion window, bytes.
    pub window_bytes: u64,
    /// Sent, neither acknowledged nor known lost, bytes.
    pub in_flight_bytes: u64,
    /// Bytes that may be sent unasked on channel 0 before its credit is used up (S5).
    pub credit_bytes: u64,
    /// How fast this side sends to the peer: what the peer has set, or `rate_request` (R4).
    pub rate: Rate,
    /// How fast the peer may send, as set by this side; `None`: it was never told.
    pub rate_set: Option<Rate>,
    /// Share of what this side can receive, relative to other peers'.
    pub weight: u32,
    /// How fast the peer would send by itself.
    pub rate_requested: Rate,
    /// Messages that are not acknowledged (S9's queue length).
    pub queued_messages: u64,
    /// Bytes of messages that are not acknowledged.
    pub queued_bytes: u64,
    /// Received bytes that the application has not taken.
    pub unread_bytes: u64,
    /// Largest datagram the path is known to carry, bytes.
    pub datagram_bytes: u16,
    /// Relays between the peer and whoever speaks through it, as it says (R6).
    pub relays: u8,
    /// Counters since the session began.
    pub counters: PeerCounters,
}

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// FIRST sent, no answer yet.
    Opening,
    /// FIRST received and answered; the answer has not been confirmed.
    Answering,
    /// Open in both directions.
    Open,
    /// Closing in order.
    Closing,
    /// Over; kept until the application has read what it received.
    Over,
}

/// What happened on a session since it began.
///
/// Those of two sessions add up to their totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Add)]
pub struct PeerCounters {
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received and processed.
    pub packets_received: u64,
    /// Bytes sent, UDP payload.
    pub bytes_sent: u64,
    /// Bytes received, UDP payload.
    pub bytes_received: u64,
    /// Messages taken from the application.
    pub messages_sent: u64,
    /// Messages handed to the application.
    pub messages_received: u64,
    /// Packets declared lost. Probes of the path's size are not among them: that one is lost says that the
    /// path carries less (RFC 8899 §3).
    pub packets_lost: u64,
    /// Recoveries started: losses of what was sent after the recovery before had begun (R9, R12).
    pub recoveries: u64,
    /// Fragments and messages sent again.
    pub retransmissions: u64,
    /// Tail probes and timeouts fired.
    pub probes: u64,
    /// Packets dropped because the peer sent more than it was told it may, and requests that say so.
    pub excess: u64,
    /// Packets received twice.
    pub duplicates: u64,
    /// Packets that came back marked with congestion.
    pub ecn_marks: u64,
}

/// What happened on an endpoint that belongs to no peer.
///
/// Those of two endpoints at one address add up to their totals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Add)]
pub struct EndpointCounters {
    /// Datagrams handled, good or bad.
    pub datagrams: u64,
    /// No packet of this protocol.
    pub malformed: u64,
    /// Checksum or authentication failed.
    pub corrupted: u64,
    /// A token nobody has, or from the wrong address.
    pub unknown_session: u64,
    /// Another protocol version.
    pub foreign_version: u64,
    /// FIRSTs turned away because there are as many peers, or as many that have not shown that they are at
    /// their address, as there may be. They come again.
    pub refused_sessions: u64,
    /// Times that several peers together sent more than arrived, and were told limits from then on.
    pub crowds: u64,
    /// Times that more was sent than arrived, and rates were learnt from then on.
    pub overruns: u64,
    /// RESETs, VERSIONS and RETRYs not sent because too many were waiting.
    pub suppressed_replies: u64,
    /// FIRSTs made with another cluster key, forged, or damaged.
    pub strange_keys: u64,
    /// Peers with the cluster key whose identity is not allowed.
    pub strangers: u64,
    /// Plain packets, which a Node with a cluster key does not take.
    pub unsealed: u64,
    /// Packets of groups that had come before.
    pub repeated_group_packets: u64,
    /// FIRSTs that only a Node with a cluster key can read.
    pub sealed_unread: u64,
    /// FIRSTs dropped because their source or their session had brought too much.
    pub limited: u64,
    /// Initiators asked to prove their address first, by RETRY.
    pub retries: u64,
    /// Events that were dropped because the application took none while 65,536 newer ones came, or 1,048,576 offers and
    /// what it asked for by a [`Completion`].
    pub dropped_events: u64,
}
