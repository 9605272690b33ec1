//! What a sender is told, and what it tells: options, progress, the report.

use super::{PROGRESS_INTERVAL, Sender};
use crate::roster::State;
use denrei::GroupBackend;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// After which a member that stands still is served by itself, unless something else is asked for.
const STALL: Duration = Duration::from_secs(2);
/// The same of a stream: who reads it there is slow, and not gone.
const STREAM_STALL: Duration = Duration::from_secs(60);

/// Said to a member that needs what a stream's sender no longer has. No longer than what the end of a session can
/// say (`spec/protocol.md` §8).
pub(super) const TOO_LATE: &str = "the stream has gone on past what is kept of it: start this receiver before \
     the sender, or give the sender a larger --retain";

/// Who receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Those at these addresses, and no others.
    Listed(Vec<SocketAddr>),
    /// Whoever comes; the cast begins when there are so many.
    AtLeast(usize),
}

/// How to send.
#[derive(Clone, Debug)]
pub struct SendOptions {
    /// The group's multicast address; its port + 1 is that of the beacons.
    pub group: SocketAddr,
    /// Who receives.
    pub members: Members,
    /// How the group's messages travel.
    pub backend: GroupBackend,
    /// How long to wait for the members before beginning without those who are not there, or, where
    /// only their number is known, giving up.
    pub wait: Duration,
    /// How long to wait for members that are missing or have vanished, once all others are served.
    pub patience: Duration,
    /// How long to go on serving those who come late, once all are served.
    pub linger: Duration,
    /// A member that stands still for this long is served by itself from then on; where files are sent, also one for
    /// which the others have waited for half of it. `None`: two seconds, and for a stream, which does not come again
    /// for those who are left behind, a minute.
    pub stall: Option<Duration>,
    /// Bytes of content a second that leave this host, at most: to each receiver that is served by itself they leave
    /// anew. Headers and repairs come on top.
    pub rate_bytes_per_s: Option<u64>,
}

impl SendOptions {
    /// The defaults.
    pub fn new(group: SocketAddr, members: Members) -> Self {
        Self {
            group,
            members,
            backend: GroupBackend::Auto,
            wait: Duration::from_secs(30),
            patience: Duration::from_secs(10),
            linger: Duration::ZERO,
            stall: None,
            rate_bytes_per_s: None,
        }
    }
}

/// How it goes.
#[derive(Clone, Debug)]
pub struct SendProgress {
    /// Since the pieces began to be sent.
    pub elapsed: Duration,
    /// Bytes of pieces sent.
    pub sent_bytes: u64,
    /// Bytes of the body, if that is known.
    pub total_bytes: Option<u64>,
    /// The members.
    pub members: Vec<MemberProgress>,
}

/// How it goes with a member.
#[derive(Clone, Debug)]
pub struct MemberProgress {
    /// Its address.
    pub addr: SocketAddr,
    /// What it calls itself.
    pub name: String,
    /// Bytes of the body that it has.
    pub bytes: u64,
    /// Where it is.
    pub state: State,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct SendReport {
    /// The first octets of the cast's name.
    pub cast: u64,
    /// From the first piece of content until the last member was through.
    pub took: Duration,
    /// Bytes of the body.
    pub bytes: u64,
    /// What was sent for it.
    pub wire: Wire,
    /// The members.
    pub members: Vec<MemberReport>,
}

impl SendReport {
    /// Whether every member has everything.
    pub fn is_complete(&self) -> bool {
        self.members.iter().all(|member| member.outcome == Outcome::Complete)
    }

    /// The member that was through last.
    pub fn slowest(&self) -> Option<&MemberReport> {
        let through = self.members.iter().filter(|member| member.outcome == Outcome::Complete);
        through.max_by_key(|member| member.took)
    }
}

/// What a sender put onto the network.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wire {
    /// Bytes, with IP and UDP headers.
    pub bytes: u64,
    /// Datagrams.
    pub packets: u64,
    /// Of the group, sent again to all.
    pub multicast_repairs: u64,
    /// Sent again to one member.
    pub unicast_repairs: u64,
}

/// How it went for a member.
#[derive(Clone, Debug)]
pub struct MemberReport {
    /// Its address.
    pub addr: SocketAddr,
    /// What it calls itself.
    pub name: String,
    /// What became of it.
    pub outcome: Outcome,
    /// Until it was through, from the first piece of content; zero if it was not.
    pub took: Duration,
    /// Bytes of the body that it had before.
    pub resumed_bytes: u64,
}

/// What became of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It has everything, verified, in its place.
    Complete,
    /// It gave up, or was given up.
    Failed(String),
    /// It was there, and vanished.
    Vanished(String),
    /// It never came.
    Absent,
}

/// IPv4 or IPv6, and UDP, bytes.
fn header_bytes(addr: SocketAddr) -> u64 {
    if addr.is_ipv4() { 28 } else { 48 }
}

impl Sender {
    /// After which a member that stands still is served by itself.
    pub(super) fn stall(&self) -> Duration {
        let usual = if self.source.is_stream() { STREAM_STALL } else { STALL };
        self.options.stall.unwrap_or(usual)
    }

    pub(super) fn progress(&self) -> SendProgress {
        let members = self.roster.counted().map(|member| MemberProgress {
            addr: member.addr,
            name: member.name.clone(),
            bytes: member.bytes,
            state: member.state.clone(),
        });
        SendProgress {
            elapsed: self.started.map(|started| started.elapsed()).unwrap_or_default(),
            sent_bytes: self.sent_bytes,
            total_bytes: Some(self.offer.body_bytes).filter(|_| !self.source.is_stream()),
            members: members.collect(),
        }
    }

    /// Remembers what sessions have repeated, for they may end; tells how it goes.
    pub(super) fn note_repairs(
        &mut self,
        now: Instant,
        progress: &mut impl FnMut(&SendProgress) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if now.duration_since(self.progress_at) < PROGRESS_INTERVAL {
            return ControlFlow::Continue(());
        }
        self.progress_at = now;
        self.count_retransmissions();
        progress(&self.progress())
    }

    fn count_retransmissions(&mut self) {
        for peer in self.peers.keys() {
            if let Some(flow) = self.node.flow(*peer) {
                self.retransmitted.insert(*peer, flow.counters.retransmissions);
            }
        }
    }

    pub(super) fn report(&mut self) -> SendReport {
        self.count_retransmissions();
        let io = self.node.io_counters();
        let started = self.started.unwrap_or(self.began);
        let members: Vec<MemberReport> = self
            .roster
            .counted()
            .map(|member| MemberReport {
                addr: member.addr,
                name: member.name.clone(),
                outcome: match &member.state {
                    State::Complete { .. } => Outcome::Complete,
                    State::Failed { text, .. } => Outcome::Failed(text.clone()),
                    State::Absent { why: Some(why) } if member.began.is_some() => {
                        Outcome::Vanished(why.clone())
                    }
                    State::Absent { .. } => Outcome::Absent,
                    State::Invited | State::Receiving => Outcome::Failed("not finished".into()),
                },
                took: match member.state {
                    State::Complete { at } => at.saturating_duration_since(started),
                    _ => Duration::ZERO,
                },
                resumed_bytes: member.resumed_bytes,
            })
            .collect();
        let took = members.iter().map(|member| member.took).max().filter(|took| !took.is_zero());
        SendReport {
            cast: crate::message::short(&self.offer.id),
            took: took.unwrap_or_else(|| started.elapsed()),
            bytes: if self.source.is_stream() { self.source.stream_bytes() } else { self.offer.body_bytes },
            wire: Wire {
                bytes: io.sent_bytes + io.sent_datagrams * header_bytes(self.options.group),
                packets: io.sent_datagrams,
                multicast_repairs: self.counters.multicast_repairs,
                unicast_repairs: self.counters.unicast_repairs + self.retransmitted.values().sum::<u64>(),
            },
            members,
        }
    }
}
