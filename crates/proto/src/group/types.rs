//! What an application says and hears about groups: names, options, events, states.

use crate::event::LostReason;
use crate::events::Waiting;
use bytes::Bytes;
use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use denrei_wire::group::Removal;

/// One group, named by its opener: 64 random bits, the same at the opener and at all members.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupId(pub u64);

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {:016x}", self.0)
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One membership of an endpoint: by the group's name, that which is current, or, with the member's id too,
/// a certain one. Who was removed and joins again has another id, and may still hold the membership before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipId {
    /// The group.
    pub group: GroupId,
    /// The member's id in it; `None`: whichever is current.
    pub member: Option<u32>,
}

impl From<GroupId> for MembershipId {
    fn from(group: GroupId) -> Self {
        Self { group, member: None }
    }
}

impl From<(GroupId, u32)> for MembershipId {
    fn from((group, member): (GroupId, u32)) -> Self {
        Self { group, member: Some(member) }
    }
}

/// What the time of a [`GroupPolicy`] may be, 10 ms ..= 24 h. A member cannot answer at once: with less, all
/// would be removed, with more nobody.
pub const POLICY_TIMES: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(24 * 3600);

/// What becomes of a member that does not keep up (M excludes the question).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroupPolicy {
    /// All wait for the slowest, as long as it lives (M5).
    #[default]
    Wait,
    /// A member that has made no progress for this long, though it held others up, is removed.
    Eject {
        /// How long, one of [`POLICY_TIMES`].
        after: Duration,
    },
    /// A member that has made no progress for this long, or for which the others have waited for half of this
    /// time, in all, within twice of it, is served by unicast, at its own pace, and holds nobody up. It is
    /// removed when it lags more than [`GroupOptions::history_bytes`] behind.
    Lag {
        /// How long, one of [`POLICY_TIMES`].
        after: Duration,
    },
}

/// How symbols reach members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GroupBackend {
    /// Multicast for the members it reaches, unicast or a tree of relays for the others.
    #[default]
    Auto,
    /// IP multicast for all; opening fails where it does not reach a member.
    Multicast,
    /// From the opener to each member.
    Unicast,
    /// From member to member, along a tree.
    Tree,
}

/// Settings of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupOptions {
    /// Who waits for whom.
    pub policy: GroupPolicy,
    /// How symbols travel.
    pub backend: GroupBackend,
    /// How long opening waits for all members, and an open group for whom it has invited.
    pub open_timeout: Duration,
    /// Messages acknowledged by all are retained up to so many bytes, for members that join late
    /// or lag.
    pub history_bytes: u64,
    /// Others may ask to become members.
    pub admit: bool,
    /// Members each relay serves; 0: chosen from the number of members.
    pub fan_out: u32,
    /// What keeps reports few.
    pub feedback: GroupFeedback,
    /// Parity is sent where it costs less than what is missing: by measured loss × members.
    pub parity: bool,
    /// With a cluster key: packets are signed, so that no member can pass for the opener. Costs 162 octets
    /// a packet and some microseconds; see `spec/security.md`.
    pub sign: bool,
}

/// The means that keep reports few where members are many (M10). All are used; whoever studies them
/// switches some off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeedback {
    /// Members report at every k-th symbol, and not at each.
    pub thin: bool,
    /// Members take turns: at which symbol each reports, and when it answers a question.
    pub stagger: bool,
    /// Members wait, each its own time, before they say what they miss: others may have said it.
    pub suppress: bool,
    /// Beyond 64 members reports are joined along a tree.
    pub tree: bool,
}

impl Default for GroupFeedback {
    fn default() -> Self {
        Self { thin: true, stagger: true, suppress: true, tree: true }
    }
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self {
            policy: GroupPolicy::Wait,
            backend: GroupBackend::Auto,
            open_timeout: Duration::from_secs(5),
            history_bytes: 0,
            admit: true,
            fan_out: 0,
            feedback: GroupFeedback::default(),
            parity: true,
            sign: false,
        }
    }
}

impl From<GroupPolicy> for GroupOptions {
    fn from(policy: GroupPolicy) -> Self {
        Self { policy, ..Self::default() }
    }
}

/// Why a member is one no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Departure {
    /// It left.
    Left,
    /// It refused, or takes no messages as large as those that wait for it.
    Refused,
    /// It did not answer the invitation for as long as `open_timeout`.
    Silent,
    /// It would take part, but packets to the group's address do not reach it, and it is served by no other way.
    OutOfReach,
    /// It held the others up for longer than the policy allows.
    Ejected,
    /// It lagged further behind than what is retained.
    TooFarBehind,
    /// Its session is over.
    Lost(LostReason),
    /// The application removed it.
    Removed,
}

impl Departure {
    /// What the member is told, unless it knows.
    pub(super) fn removal(&self) -> Option<Removal> {
        match self {
            Self::Left | Self::Refused | Self::Silent | Self::Lost(_) => None,
            Self::OutOfReach => Some(Removal::OutOfReach),
            Self::Ejected => Some(Removal::Ejected),
            Self::TooFarBehind => Some(Removal::TooFarBehind),
            Self::Removed => Some(Removal::Wanted),
        }
    }
}

impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left => f.write_str("it left"),
            Self::Refused => f.write_str(
                "it refused: it takes no messages as large as those that wait for it, or has too many groups",
            ),
            Self::Silent => f.write_str("it did not answer within open_timeout"),
            Self::OutOfReach => f.write_str("packets to the group's address do not reach it"),
            Self::Ejected => f.write_str("ejected: it made no progress for longer than the policy allows"),
            Self::TooFarBehind => f.write_str("removed: it lags further behind than history_bytes retains"),
            Self::Lost(reason) => write!(f, "lost: {reason}"),
            Self::Removed => f.write_str("removed by the application"),
        }
    }
}

/// Something the opener or a member of a group may want to know.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GroupEvent {
    /// Opener: every listed member takes part.
    Opened,
    /// Opener: the group could not be opened.
    OpenFailed {
        /// The members missing, and why each is.
        missing: Vec<(SocketAddr, Departure)>,
    },
    /// Opener: a member has begun to take part in a group that was open already.
    Joined {
        /// Its id.
        member: u32,
        /// Its address.
        addr: SocketAddr,
        /// The first message it gets.
        first_message: u64,
    },
    /// Opener: a member is one no longer, or who was invited to the open group will not be one.
    Departed {
        /// Its id.
        member: u32,
        /// Its address.
        addr: SocketAddr,
        /// Why.
        why: Departure,
        /// The last message it has acknowledged, if any.
        last_acknowledged: Option<u64>,
    },
    /// Opener: a slow member is served by itself from now on.
    Lagging {
        /// Its id.
        member: u32,
        /// Its address.
        addr: SocketAddr,
        /// The last message it has acknowledged, if any.
        last_acknowledged: Option<u64>,
    },
    /// Opener: a member that lagged is back with the others.
    CaughtUp {
        /// Its id.
        member: u32,
        /// Its address.
        addr: SocketAddr,
    },
    /// Opener: every member has everything and has said so.
    Closed,
}

impl Waiting for GroupEvent {
    fn is_report(&self) -> bool {
        false
    }
}

/// How far a group is that is to be opened at an address, for an endpoint that has joined the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Invited {
    /// No opener waits for others.
    No,
    /// An opener has this endpoint's answer, and waits for others'.
    Yes,
    /// An opener has given up waiting for others.
    GivenUp,
}

/// How a membership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipEnd {
    /// The opener closed the group, and everything has arrived.
    Closed,
    /// This member left.
    Left,
    /// The opener removed this member, and why.
    Removed(Removal),
    /// The session with the opener is over.
    Lost(LostReason),
    /// The opener broke the protocol.
    Violation(&'static str),
}

impl core::error::Error for MembershipEnd {}

impl fmt::Display for MembershipEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the group was closed in order"),
            Self::Left => f.write_str("this member left"),
            Self::Removed(why) => write!(f, "the opener removed this member{}", in_words(*why)),
            Self::Lost(reason) => write!(f, "the opener is lost: {reason}"),
            Self::Violation(what) => write!(f, "the opener broke the protocol: {what}"),
        }
    }
}

fn in_words(why: Removal) -> &'static str {
    match why {
        Removal::Wanted => "",
        Removal::Ejected => ": it held the others up for longer than the group's policy allows",
        Removal::TooFarBehind => ": it lagged further behind than the opener's history_bytes retains",
        Removal::OutOfReach => {
            ": packets to the group's address do not reach it, and the group's backend serves it by no other way"
        }
    }
}

/// A message received from a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMessage {
    /// Its place in the group's sequence.
    pub number: u64,
    /// The bytes.
    pub data: Bytes,
}

/// How a member is reached now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberPath {
    /// By the group's address.
    Multicast,
    /// By the session with it.
    Unicast,
    /// By another member.
    Relay,
}

/// A member, as the opener sees it (M3's `tcp_gci`).
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStatus {
    /// Its id.
    pub member: u32,
    /// Its address.
    pub addr: SocketAddr,
    /// Whether it takes part now.
    pub active: bool,
    /// Served by itself because it is slow.
    pub lagging: bool,
    /// How it is reached.
    pub path: MemberPath,
    /// Messages it has acknowledged.
    pub messages_acknowledged: u64,
    /// Symbols sent that it has not acknowledged.
    pub symbols_behind: u64,
    /// Smoothed round-trip time, ns; `None` before the first sample.
    pub srtt_ns: Option<u64>,
    /// Symbols it reported missing.
    pub symbols_missed: u64,
    /// The share of packets to the group's address that it loses, restored or not; `None`: not known.
    pub loss: Option<f64>,
}

/// A group, as its opener sees it: values are minima over the members (M3, M5, M6).
#[derive(Clone, Debug, PartialEq)]
pub struct GroupStatus {
    /// The group.
    pub group: GroupId,
    /// Its address.
    pub address: SocketAddr,
    /// Whether it is open.
    pub open: bool,
    /// Messages acknowledged by all.
    pub messages_acknowledged: u64,
    /// Messages taken from the application.
    pub messages_sent: u64,
    /// Bytes of messages not acknowledged by all.
    pub queued_bytes: u64,
    /// What may still be begun before the member with the least room has no more, bytes of cost.
    pub credit_bytes: u64,
    /// Bytes that may be under way.
    pub window_bytes: u64,
    /// The members, and the last 64 or so of those who are none any more: [`active`](Self::active) leaves these out.
    pub members: Vec<MemberStatus>,
    /// Counters.
    pub counters: GroupCounters,
}

impl GroupStatus {
    /// The members that take part now.
    pub fn active(&self) -> impl Iterator<Item = &MemberStatus> {
        self.members.iter().filter(|member| member.active)
    }
}

/// What happened in a group since it was opened, at its opener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GroupCounters {
    /// Packets sent to the group's address; with [`GroupBackend::Unicast`] those to each member instead. With
    /// [`GroupBackend::Tree`] none: symbols go by the sessions, whose flow counts packets and bytes, and
    /// [`unicast_symbols`](Self::unicast_symbols) says how many.
    pub packets_sent: u64,
    /// Their bytes, UDP payload.
    pub bytes_sent: u64,
    /// Of these, packets that carried a symbol for the first time.
    pub symbols_sent: u64,
    /// Their bytes, UDP payload: what has to be sent where nothing is lost.
    pub symbol_bytes: u64,
    /// Symbols sent by unicast, repairs included.
    pub unicast_symbols: u64,
    /// Symbols sent again to the group's address.
    pub multicast_repairs: u64,
    /// Symbols sent again to one member.
    pub unicast_repairs: u64,
    /// Parity packets sent.
    pub parity_sent: u64,
    /// Reports taken in.
    pub reports: u64,
    /// Of these, those that named something missing.
    pub reports_with_gaps: u64,
    /// Polls sent.
    pub polls: u64,
    /// Events that the application did not ask for while 65,536 newer ones came.
    pub dropped_events: u64,
}

/// A group that an endpoint is a member of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipStatus {
    /// The group.
    pub group: GroupId,
    /// Its address.
    pub address: SocketAddr,
    /// Its opener's address.
    pub opener: SocketAddr,
    /// The endpoint's id in it.
    pub member: u32,
    /// What has happened so far.
    pub counters: MembershipCounters,
}

/// What happened at a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct MembershipCounters {
    /// Bytes of the group's packets that came, UDP payload; what comes by a tree is counted by the sessions.
    pub bytes_received: u64,
    /// Reports sent.
    pub reports: u64,
    /// Symbols that came twice.
    pub duplicates: u64,
    /// Parities received.
    pub parities: u64,
    /// Symbols restored from parities.
    pub restored: u64,
}
