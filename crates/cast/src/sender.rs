//! The sending side: a Node, a group, members.
//!
//! Inputs → outputs: a [`Source`] and [`SendOptions`] → pieces to the group and to those who are served
//! by themselves, progress, a [`SendReport`]. [`Roster`] decides what goes to whom; this file waits,
//! reads and sends. One thread; the Node's own does the protocol. Source: `spec/cast.md` §5.

mod gather;
mod groups;
mod options;
mod patience;
mod talk;

pub use options::{
    MemberProgress, MemberReport, Members, Outcome, SendOptions, SendProgress, SendReport, Wire,
};

use crate::beacon::{Beacon, Finder};
use crate::error::CastError;
use crate::interfaces;
use crate::message::{CHANNEL, Message, Offer, PIECE_BYTES};
use crate::roster::{Member, Path, Roster, State};
use crate::silence::ABSENCE;
use crate::source::Source;
use bytes::Bytes;
use denrei::{ChannelId, Group, GroupCounters, GroupError, Node, PeerId, SendError};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A member that says nothing of progress for so long, though it is there, is given up.
const STUCK: Duration = Duration::from_secs(60);
/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// How often those who are listed, have been offered the cast and say nothing are offered it again.
const OFFER_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for news where there is nothing to send.
const IDLE_WAIT: Duration = Duration::from_millis(20);
/// How long to wait where queues are full: an eighth of what they hold at 10 Gbit/s.
const FULL_WAIT: Duration = Duration::from_millis(1);
/// Longest time that a rate may be behind and catch up.
const PACE_SLACK: Duration = Duration::from_millis(50);
/// How long members have to hear the end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Pieces in one go, between looks at what has come in.
const PIECES_PER_TURN: usize = 16;

/// Sends one cast.
pub struct Sender {
    node: Node,
    source: Source,
    options: SendOptions,
    offer: Offer,
    roster: Roster,
    peers: BTreeMap<PeerId, usize>,
    /// The session with each member that there is one with.
    sessions: BTreeMap<usize, PeerId>,
    beacon: Option<Beacon>,
    /// While receivers are waited for, and another sender that it has heard.
    finder: Option<Finder>,
    other: Option<SocketAddr>,
    warnings: Vec<String>,
    group: Option<Group>,
    /// Read, and not taken by a queue that was full.
    pending_group: Option<(u32, Bytes)>,
    pending_alone: BTreeMap<usize, (u32, Bytes)>,
    /// To be said to members whose queues have no room for it, encoded.
    unsaid: BTreeMap<PeerId, Bytes>,
    /// Of groups that are over.
    counters: GroupCounters,
    retransmitted: BTreeMap<PeerId, u64>,
    began: Instant,
    looked_at: Instant,
    /// When those who say nothing were last offered the cast again.
    offered_at: Instant,
    /// When those who had come were asked whether they are there still.
    called: Option<Instant>,
    started: Option<Instant>,
    patience: patience::Patience,
    sent_bytes: u64,
    /// Something of the body has been sent to somebody.
    body_began: bool,
    next_send: Instant,
    progress_at: Instant,
}

/// What to tell people of an announcement that does not reach all hosts.
fn not_announced(announced: io::Result<()>, group: SocketAddr, local: SocketAddr) -> Option<String> {
    let (named, alone) = (interfaces::named(group), interfaces::is_this_host_alone(group, local));
    let what = match announced {
        Ok(()) if !alone => return None,
        Ok(()) => format!(
            "the cast is announced at {named} on this host alone, as no other interface carries multicast; tell \
             receivers elsewhere"
        ),
        Err(error) => format!("cannot announce the cast at {named}: {error}; tell receivers"),
    };
    let or_else = if alone { interfaces::or_by_ipv6(group, local) } else { String::new() };
    Some(format!("{what} the address of this sender, with --from{or_else}"))
}

impl Sender {
    /// Prepares to send over `node`, which should have a thread of its own ([`denrei::Drive::Thread`]).
    ///
    /// # Errors
    /// The group's address is none, or too much is to be sent.
    pub fn new(node: Node, source: Source, options: SendOptions) -> Result<Self, CastError> {
        let pieces = u32::try_from(source.pieces()).map_err(|_| {
            CastError::Transport("this is more than a cast can number: send it in parts".into())
        })?;
        if !options.group.ip().is_multicast() || options.group.port() == 0 {
            let text = format!(
                "{} is not a multicast address with a port, such as 239.255.71.17:7118",
                options.group
            );
            return Err(CastError::Transport(text));
        }
        let offer = source.offer(options.group);
        let now = Instant::now();
        let mut roster = Roster::new(offer.manifest_pieces(), pieces);
        let (mut beacon, mut finder) = (None, None);
        let mut warnings = Vec::new();
        match &options.members {
            Members::Listed(members) => {
                for addr in members {
                    roster.member_at(*addr, now);
                }
            }
            Members::AtLeast(_) => {
                let (group, local, key) = (options.group, node.local_addr(), node.beacon_key());
                let mut announcing = Beacon::new(group, local, key)
                    .map_err(|error| CastError::Transport(format!("cannot announce the cast: {error}")))?;
                // Where it does not work now, it may later.
                warnings.extend(not_announced(announcing.announce(now), group, local));
                beacon = Some(announcing);
                // Where it does not work the beacon has not, either, or receivers will say so.
                finder = Finder::new(group, local, key).ok();
            }
        }
        Ok(Self {
            node,
            source,
            options,
            offer,
            roster,
            peers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            finder,
            other: None,
            beacon,
            warnings,
            group: None,
            pending_group: None,
            pending_alone: BTreeMap::new(),
            unsaid: BTreeMap::new(),
            counters: GroupCounters::default(),
            retransmitted: BTreeMap::new(),
            began: now,
            looked_at: now,
            offered_at: now,
            called: None,
            started: None,
            patience: patience::Patience::default(),
            sent_bytes: 0,
            body_began: false,
            next_send: now,
            progress_at: now,
        })
    }

    /// What is offered.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Has more to warn of.
    pub(crate) fn warning_of(mut self, more: Vec<String>) -> Self {
        self.warnings.extend(more);
        self
    }

    /// What its user should know before it runs, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Sends until every member has everything or is given up; tells `progress` how it goes, five times
    /// a second, and gives up when that breaks off; or, if it stays for late members alone, ends.
    ///
    /// # Errors
    /// Nobody came; what is sent cannot be read; broken off. Members that failed are in the report
    /// instead.
    pub fn run(
        mut self,
        mut progress: impl FnMut(&SendProgress) -> ControlFlow<()>,
    ) -> Result<SendReport, CastError> {
        loop {
            let now = Instant::now();
            self.note_absence(now);
            self.invite()?;
            self.listen(now)?;
            self.say_unsaid();
            self.group_events();
            if self.started.is_none() {
                self.look_for_others(now);
                self.start_if_gathered(now)?;
            }
            self.arrange_group();
            let sent = self.feed(now).inspect_err(|error| {
                self.abort_all(&error.to_string());
                if self.body_began {
                    // Who is told knows then that something has left.
                    let _ = progress(&self.progress());
                }
            })?;
            self.give_up_stuck(now);
            if self.note_repairs(now, &mut progress).is_break() {
                if self.started.is_some() && self.roster.members.iter().all(Member::is_settled) {
                    break;
                }
                let cancelled = CastError::Cancelled { stream: self.source.is_stream() };
                self.abort_all(&cancelled.to_string());
                return Err(cancelled);
            }
            if self.is_over(now) {
                break;
            }
            if !sent {
                self.rest(now);
            }
        }
        // All are served: there is nothing left to break off.
        let _ = progress(&self.progress());
        Ok(self.close())
    }

    /// Time in which nobody was listened to, as a large file was read for its digest, is nobody's silence.
    fn note_absence(&mut self, now: Instant) {
        let away = now.saturating_duration_since(self.looked_at);
        self.looked_at = now;
        if away >= ABSENCE {
            self.roster.excuse(away);
            self.patience.excuse(away);
        }
    }

    /// Opens sessions to those who are listed and not there, and offers; now and then once more to those who are there
    /// and say nothing.
    ///
    /// # Errors
    /// None of them can be reached from this side's address.
    fn invite(&mut self) -> Result<(), CastError> {
        let now = Instant::now();
        if let Some(beacon) = &mut self.beacon {
            beacon.poll(now);
        }
        if !matches!(self.options.members, Members::Listed(_)) {
            return Ok(());
        }
        let again = now.saturating_duration_since(self.offered_at) >= OFFER_INTERVAL;
        if again {
            self.offered_at = now;
        }
        let mut refused = None;
        for index in 0..self.roster.members.len() {
            let member = &self.roster.members[index];
            if member.is_settled() && !member.may_be_started_again() {
                continue;
            }
            if let Some(peer) = self.peer_of(index) {
                if again && self.has_overheard(peer, index) {
                    self.say(peer, Message::Offer(self.offer));
                }
                continue;
            }
            match self.node.connect(member.addr) {
                Ok(peer) => {
                    self.bind_session(peer, index);
                    self.say(peer, Message::Offer(self.offer));
                }
                Err(error) => {
                    self.fail(index, error.to_string(), None);
                    refused.get_or_insert(error);
                }
            }
        }
        match refused {
            Some(error) if self.sessions.is_empty() && self.started.is_none() => {
                Err(CastError::NoReceivers(format!("no member can be asked: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Sends what there is room for; whether anything was.
    fn feed(&mut self, now: Instant) -> Result<bool, CastError> {
        let mut any = self.read_stream(now)?;
        for _ in 0..PIECES_PER_TURN {
            if self.options.rate_bytes_per_s.is_some() && Instant::now() < self.next_send {
                return Ok(any);
            }
            // One of the body's for everybody, each in turn.
            let mut sent = self.started.is_some() && self.feed_group(now)?;
            for index in 0..self.roster.members.len() {
                sent |= self.feed_alone(index)?;
            }
            if !sent {
                break;
            }
            any = true;
        }
        Ok(any)
    }

    /// Reads on in a stream; what somebody who keeps up still misses is not let go of.
    fn read_stream(&mut self, now: Instant) -> Result<bool, CastError> {
        if !self.source.is_stream() || self.started.is_none() {
            return Ok(false);
        }
        let (first, more) = self.source.available();
        let active = || self.roster.members.iter().filter(|member| member.is_active() && member.ready);
        if !more || active().next().is_none() {
            return Ok(false);
        }
        let before = self.offer.manifest_pieces();
        let in_group = |member: &Member| matches!(member.path, Path::Group(_));
        let grouped = active().any(in_group);
        // The group ejects who does not keep up itself.
        let stall = self.stall().max(PROGRESS_INTERVAL * 2);
        let keeps_up = |member: &Member| now.saturating_duration_since(member.progress_at) < stall;
        let waited_for = |member: &&Member| if grouped { in_group(member) } else { keeps_up(member) };
        let needs = |member: &Member| member.wanted.next_from(before).is_some_and(|oldest| oldest <= first);
        let up_to_date = active().any(Member::is_up_to_date);
        let wait = !up_to_date || active().filter(waited_for).any(needs);
        let read = self.source.refill(wait)?;
        if read {
            self.roster.grow(self.source.pieces() as u32);
        }
        if self.source.available().0 != first {
            self.drop_those_behind();
        }
        Ok(read)
    }

    fn drop_those_behind(&mut self) {
        let (first, _) = self.source.available();
        let before = self.offer.manifest_pieces();
        for index in 0..self.roster.members.len() {
            let oldest = self.roster.members[index].wanted.next_from(before);
            if self.roster.members[index].is_active() && oldest.is_some_and(|oldest| oldest < first) {
                self.fail(index, options::TOO_LATE.into(), None);
            }
        }
    }

    fn feed_group(&mut self, now: Instant) -> Result<bool, CastError> {
        if self.group.is_none() {
            return Ok(false);
        }
        let pending = self.pending_group.take();
        let (piece, message) = match pending {
            Some(pending) => pending,
            None => {
                let Some(piece) = self.roster.next_for_group() else { return Ok(false) };
                (piece, self.source.message(piece)?.0)
            }
        };
        let Some(group) = &self.group else { return Ok(false) };
        match group.try_send(message.clone()) {
            Ok(number) => {
                self.roster.sent_to_group(piece, number);
                self.body_began |= piece >= self.offer.manifest_pieces();
                let copies = self.copies();
                self.account(message.len() as u64 * copies, now);
                Ok(true)
            }
            Err(GroupError::WouldBlock { .. }) => {
                self.pending_group = Some((piece, message));
                Ok(false)
            }
            // All have left: their events are on the way.
            Err(GroupError::Deserted(_) | GroupError::Unknown(_)) => {
                self.pending_group = Some((piece, message));
                Ok(false)
            }
            // Whose limit it is their sessions say; the others have this piece then.
            Err(GroupError::TooLarge { .. }) => {
                for index in self.roster.in_group() {
                    self.give_alone(index, piece, message.clone());
                }
                Ok(true)
            }
            Err(error) => Err(CastError::Transport(error.to_string())),
        }
    }

    fn feed_alone(&mut self, index: usize) -> Result<bool, CastError> {
        let (piece, message) = match self.pending_alone.remove(&index) {
            Some(pending) => pending,
            None => {
                let Some(piece) = self.roster.next_alone(index) else { return Ok(false) };
                let before = self.offer.manifest_pieces();
                // All begin together; manifests go out before.
                if piece >= before && self.started.is_none() {
                    return Ok(false);
                }
                if piece >= before && piece < self.source.available().0 {
                    self.fail(index, options::TOO_LATE.into(), None);
                    return Ok(false);
                }
                (piece, self.source.message(piece)?.0)
            }
        };
        Ok(self.give_alone(index, piece, message))
    }

    /// Sends a piece to a member by its session, if there is room; whether there was.
    fn give_alone(&mut self, index: usize, piece: u32, message: Bytes) -> bool {
        let Some(peer) = self.peer_of(index) else { return false };
        match self.node.try_send(ChannelId { peer, channel: CHANNEL }, message.clone()) {
            Ok(_) => {
                self.roster.sent_alone(index, piece);
                self.body_began |= piece >= self.offer.manifest_pieces();
                self.account(message.len() as u64, Instant::now());
                return true;
            }
            Err(SendError::WouldBlock { .. }) => drop(self.pending_alone.insert(index, (piece, message))),
            Err(error @ SendError::TooLarge { .. }) => self.fail(index, error.to_string(), None),
            // The event that says why is on the way.
            Err(_) => {}
        }
        false
    }

    fn account(&mut self, bytes: u64, now: Instant) {
        self.sent_bytes += bytes;
        if let Some(rate) = self.options.rate_bytes_per_s {
            let from = self.next_send.max(now.checked_sub(PACE_SLACK).unwrap_or(now));
            self.next_send = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        }
    }

    fn give_up_stuck(&mut self, now: Instant) {
        let turn = self.options.rate_bytes_per_s.map_or(Duration::ZERO, |rate| {
            let all = PIECE_BYTES as f64 * self.roster.members.len() as f64;
            Duration::from_secs_f64(all / rate.max(1) as f64)
        });
        // Where a rate is set, each has its turn twice.
        let limit = STUCK.max(turn * 2).max(self.stall());
        let goes_on = self.source.available().1;
        let so_far = Some(self.source.stream_bytes()).filter(|_| goes_on);
        self.roster.note_waiting(self.started.is_none(), so_far, now);
        while let Some(index) = self.roster.stuck(now, limit) {
            self.fail(index, format!("no progress for {limit:.0?}"), None);
        }
    }

    fn rest(&self, now: Instant) {
        let paced = self.options.rate_bytes_per_s.map(|_| self.next_send.saturating_duration_since(now));
        let waiting = self.pending_group.is_some() || !self.pending_alone.is_empty();
        let reading = self.source.is_stream() && self.started.is_some() && self.source.available().1;
        let longest = if waiting || reading { FULL_WAIT } else { IDLE_WAIT };
        let wait = paced.filter(|paced| !paced.is_zero()).unwrap_or(longest);
        self.node.wait_incoming(wait.min(longest.max(FULL_WAIT)));
    }

    fn close(mut self) -> SendReport {
        self.end_group();
        let report = self.report();
        // Why they were given up, if that is still under way to them, gets a moment.
        self.last_words(CLOSE_TIMEOUT);
        report
    }

    fn peer_of(&self, index: usize) -> Option<PeerId> {
        self.sessions.get(&index).copied()
    }

    /// A session is the one with a member from now on.
    fn bind_session(&mut self, peer: PeerId, index: usize) {
        if let Some(before) = self.sessions.insert(index, peer) {
            self.peers.remove(&before);
        }
        self.peers.insert(peer, index);
    }

    fn fail(&mut self, index: usize, text: String, code: Option<crate::message::FailureCode>) {
        if code.is_none() {
            self.say_to(index, Message::Abort { text: text.clone() });
        }
        let member = &mut self.roster.members[index];
        tracing::debug!("{} has failed: {text}", member.addr);
        member.state = State::Failed { text, code };
        self.leave_group(index);
        self.pending_alone.remove(&index);
    }
}
