//! What was promised: processes, their sessions, the messages of each.
//!
//! A *life* is one start of a process (one incarnation). A *session* is what one life knows of one
//! peer: each session of the protocol appears here twice, once from each side. What one side sent
//! is found again at the other by its content.

use crate::net::topology::HostId;
use denrei_proto::{ChannelId, Completion, Config, LostReason, PeerId};
use denrei_wire::{Incarnation, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Index of a life.
pub(super) type LifeNo = usize;
/// Index of one side of a session.
pub(super) type SessionNo = usize;

/// One start of a process.
#[derive(Debug)]
pub(super) struct Life {
    pub host: HostId,
    pub incarnation: Incarnation,
    pub config: Arc<Config>,
    pub died_at: Option<Instant>,
    /// The process reads what arrives.
    pub reading: bool,
    /// How it answers offers.
    pub offers: OfferAnswer,
    /// Offers not answered yet.
    pub unanswered: Vec<(ChannelId, u64, u64)>,
}

/// How a process answers offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OfferAnswer {
    /// Accepts them at once.
    #[default]
    Accept,
    /// Refuses them at once.
    Refuse,
    /// Lets them wait.
    Wait,
}

/// What became of a message, as far as its sender was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing yet.
    Open,
    /// `Event::Acknowledged`.
    Acknowledged,
    /// `Event::Delivered`.
    Delivered,
    /// `Event::Refused`.
    Refused,
    /// Named in `PeerLost` or `PeerDoneReading`.
    Unacknowledged,
    /// `Event::Expired`.
    Expired,
}

/// A message sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub bytes: u64,
    pub completion: Completion,
    pub fate: Fate,
    /// It may be given up when it is late.
    pub mortal: bool,
}

/// What arrived on one channel.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// The lowest number that has not had its turn.
    pub next: u64,
    /// Offered to the application, not yet arrived: these do not hold up the others.
    pub offered: BTreeSet<u64>,
    /// Refused by the application.
    pub refused: BTreeSet<u64>,
    /// Messages taken.
    pub taken: u64,
}

impl Arrivals {
    /// Whether message `number` was taken by the application.
    pub fn has(&self, number: u64) -> bool {
        number < self.next && !self.offered.contains(&number) && !self.refused.contains(&number)
    }
}

/// One side of a session.
#[derive(Debug)]
pub(super) struct Session {
    pub life: LifeNo,
    pub peer: PeerId,
    /// Where the other side lives.
    pub remote_host: HostId,
    pub remote: Option<Incarnation>,
    pub sent: BTreeMap<u16, Vec<Sent>>,
    pub arrived: BTreeMap<u16, Arrivals>,
    /// Which sides' messages these are; `None` before the first arrived. Short messages cannot
    /// always tell, so there may be several for a while.
    pub sources: Option<Vec<SessionNo>>,
    pub connected: bool,
    pub lost: Option<LostReason>,
    /// This application called `close_write` or `close`.
    pub closed_write: bool,
    /// This application called `close_read`: what it has not taken is gone. What came before `close` and
    /// `abort` remains readable.
    pub done_reading: bool,
    /// This application called `close` or `abort`.
    pub ended: bool,
    pub peer_done_writing: bool,
    pub peer_done_reading: bool,
    /// Status requests that have not been answered. The newest has to be; it may replace older ones.
    pub status_asked: Vec<u32>,
    /// The newest status request.
    pub status_newest: Option<u32>,
    /// This application has set the peer's rate.
    pub set_rate: bool,
}

impl Session {
    pub fn new(life: LifeNo, peer: PeerId, remote_host: HostId) -> Self {
        Self {
            life,
            peer,
            remote_host,
            remote: None,
            sent: BTreeMap::new(),
            arrived: BTreeMap::new(),
            sources: None,
            connected: false,
            lost: None,
            closed_write: false,
            done_reading: false,
            ended: false,
            peer_done_writing: false,
            peer_done_reading: false,
            status_asked: Vec::new(),
            status_newest: None,
            set_rate: false,
        }
    }

    /// The message with this number.
    pub fn message(&mut self, channel: u16, number: u64) -> Option<&mut Sent> {
        self.sent.get_mut(&channel)?.get_mut(usize::try_from(number).ok()?)
    }
}
