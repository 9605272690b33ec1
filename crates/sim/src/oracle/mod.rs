//! Knows what endpoints promise, and checks each event and message against it.
//!
//! Inputs → outputs: the application's calls, made through the oracle, and the world's events and
//! messages → the first broken promise. Checked as it happens: a message arrives whole, with its
//! own bytes, once per pair of incarnations, in the order of its channel; events say what is true.
//! Checked at the end (`verdict`): all that was sent has arrived or was reported.
//!
//! Memory is bounded by what is sent: contents are recomputed, not kept.

pub mod calls;
pub mod groups;
mod ledger;
mod sessions;
mod verdict;

pub use ledger::OfferAnswer;

use crate::content::Name;
use crate::digest::Digest;
use crate::net::topology::HostId;
use crate::world::Application;
use denrei_proto::{
    ChannelId, Completion, Config, Endpoint, Event, LostReason, Message, MessageId, PeerId, Phase,
};
use denrei_wire::{Incarnation, Instant};
use derive_more::AddAssign;
use groups::Groups;
use ledger::{Fate, Life, LifeNo, Session, SessionNo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Totals of what an oracle saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, AddAssign)]
pub struct Totals {
    /// Messages taken by endpoints.
    pub sent: u64,
    /// Messages handed over.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Sides of sessions.
    pub sessions: u64,
    /// Sides that were told of their peer's loss.
    pub lost_sessions: u64,
    /// Messages reported as not acknowledged.
    pub unacknowledged: u64,
    /// Messages refused.
    pub refused: u64,
    /// Sends that would have blocked.
    pub would_block: u64,
    /// Groups that opened.
    pub groups: u64,
    /// Memberships that their applications were given.
    pub memberships: u64,
    /// Members that their openers were told are none any more.
    pub departed: u64,
    /// Messages to groups.
    pub group_sent: u64,
    /// Messages handed to members.
    pub group_received: u64,
}

/// The application of all hosts in a test: sends what it is told, reads, checks, remembers.
#[derive(Debug, Default)]
pub struct Oracle {
    lives: Vec<Life>,
    by_incarnation: BTreeMap<Incarnation, LifeNo>,
    current: BTreeMap<HostId, LifeNo>,
    sessions: Vec<Session>,
    by_peer: BTreeMap<(LifeNo, PeerId), SessionNo>,
    /// Sides by their own host and the other's.
    by_hosts: BTreeMap<(HostId, HostId), Vec<SessionNo>>,
    groups: Groups,
    /// Something kept hosts from hearing each other: excuses silence from then on.
    hardship: bool,
    /// Since then nothing does.
    healed_at: Option<Instant>,
    totals: Totals,
    digest: Digest,
    failure: Option<String>,
}

impl Oracle {
    /// A process was started on `host`.
    pub fn begin_life(&mut self, host: HostId, incarnation: Incarnation, config: Arc<Config>) {
        let number = self.lives.len();
        self.hardship |= turns_away(&config);
        self.lives.push(Life {
            host,
            incarnation,
            config,
            died_at: None,
            reading: true,
            offers: OfferAnswer::Accept,
            unanswered: Vec::new(),
        });
        if self.by_incarnation.insert(incarnation, number).is_some() {
            self.fail(format!("incarnation {incarnation:?} was chosen twice"));
        }
        self.current.insert(host, number);
    }

    /// The process on `host` died.
    pub fn end_life(&mut self, host: HostId, now: Instant) {
        if let Some(life) = self.current.remove(&host) {
            self.lives[life].died_at = Some(now);
        }
    }

    /// Something keeps hosts from hearing each other, or forges packets: sessions may be lost
    /// without anyone's asking from here on.
    pub fn note_hardship(&mut self) {
        self.hardship = true;
    }

    /// From now on all hosts hear each other, for as long as their processes live.
    pub fn note_healed(&mut self, now: Instant) {
        self.healed_at = Some(now);
    }

    /// What was seen.
    pub fn totals(&self) -> Totals {
        Totals { sessions: self.sessions.len() as u64, ..self.totals }
    }

    /// Why sessions were lost, in the order in which they began.
    pub fn lost_reasons(&self) -> Vec<LostReason> {
        self.sessions.iter().filter_map(|session| session.lost.clone()).collect()
    }

    /// The first broken promise.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// A fingerprint of all messages handed over.
    pub fn digest(&self) -> u64 {
        self.digest.value()
    }

    fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    fn life_on(&self, host: HostId) -> LifeNo {
        *self.current.get(&host).expect("the world calls only for hosts that run")
    }

    /// How failures name one side of a session.
    fn label(&self, session: SessionNo) -> String {
        let Session { life, peer, remote_host, .. } = &self.sessions[session];
        let Life { host, incarnation, .. } = &self.lives[*life];
        format!("host {} ({incarnation:?}), {peer} = host {}", host.0, remote_host.0)
    }

    /// This life's side of the session with `peer`, noted when first met.
    fn session_of(&mut self, life: LifeNo, peer: PeerId, endpoint: &Endpoint) -> Option<SessionNo> {
        if let Some(&known) = self.by_peer.get(&(life, peer)) {
            if self.sessions[known].remote.is_none() {
                self.sessions[known].remote = endpoint.flow(peer).and_then(|flow| flow.incarnation);
            }
            return Some(known);
        }
        let Some(flow) = endpoint.flow(peer) else {
            self.fail(format!(
                "host {}: {peer} is spoken of, but has no flow state",
                self.lives[life].host.0
            ));
            return None;
        };
        let remote_host = HostId::at(flow.addr)?;
        let mut session = Session::new(life, peer, remote_host);
        session.remote = flow.incarnation;
        let number = self.sessions.len();
        self.sessions.push(session);
        self.by_peer.insert((life, peer), number);
        self.by_hosts.entry((self.lives[life].host, remote_host)).or_default().push(number);
        Some(number)
    }

    fn on_message(&mut self, host: HostId, endpoint: &Endpoint, message: &Message) {
        let Message { channel: ChannelId { peer, channel }, number, data } = message;
        let life = self.life_on(host);
        self.totals.received += 1;
        self.totals.received_bytes += data.len() as u64;
        for value in [host.0 as u64, peer.as_u64(), *channel as u64, *number, data.len() as u64] {
            self.digest.add(value);
        }
        let Some(session) = self.session_of(life, *peer, endpoint) else { return };
        self.find_source(session, *channel, *number, data);
        self.check_turn(session, *channel, *number);
    }

    /// Whose message it is: that of the sides whose content it has.
    fn find_source(&mut self, session: SessionNo, channel: u16, number: u64, data: &[u8]) {
        let candidates = match self.sessions[session].sources.take() {
            Some(known) => known,
            None => self.possible_sources(session),
        };
        let fits = |&source: &SessionNo| {
            let sent = self.sessions[source].sent.get(&channel).and_then(|sent| sent.get(number as usize));
            let name = Name { session: source as u32, channel, number };
            sent.is_some_and(|sent| sent.bytes == data.len() as u64) && name.mismatch(data).is_none()
        };
        let fitting: Vec<_> = candidates.iter().copied().filter(fits).collect();
        if fitting.is_empty() {
            let why = self.explain_misfit(&candidates, channel, number, data);
            self.fail(format!(
                "{}: message {number} of channel {channel}, {} bytes: {why}",
                self.label(session),
                data.len()
            ));
        }
        self.check_single_reader(session, &fitting, channel, number);
        self.sessions[session].sources = Some(fitting);
    }

    /// Sides that may have sent what `session` receives: those of the remote incarnation with this host.
    fn possible_sources(&self, session: SessionNo) -> Vec<SessionNo> {
        let Session { remote, life, .. } = &self.sessions[session];
        let host = self.lives[*life].host;
        let Some(remote) = remote.and_then(|incarnation| self.by_incarnation.get(&incarnation)) else {
            return Vec::new();
        };
        let of_hosts = self.by_hosts.get(&(self.lives[*remote].host, host)).into_iter().flatten();
        of_hosts.copied().filter(|&number| self.sessions[number].life == *remote).collect()
    }

    fn explain_misfit(&self, candidates: &[SessionNo], channel: u16, number: u64, data: &[u8]) -> String {
        let Some(&source) = candidates.first() else {
            return "nobody of that incarnation ever had a session with this host".to_owned();
        };
        match self.sessions[source].sent.get(&channel).and_then(|sent| sent.get(number as usize)) {
            None => "was never sent".to_owned(),
            Some(sent) if sent.bytes != data.len() as u64 => format!("{} bytes were sent", sent.bytes),
            Some(_) => {
                let at = Name { session: source as u32, channel, number }.mismatch(data);
                format!("differs from what was sent, from offset {} on", at.unwrap_or(0))
            }
        }
    }

    /// No other session of the same process may have been given the message.
    fn check_single_reader(&mut self, session: SessionNo, sources: &[SessionNo], channel: u16, number: u64) {
        let [source] = *sources else { return };
        let Session { life, .. } = self.sessions[session];
        let twice = self.readers_of(source).find(|&other| {
            other != session
                && self.sessions[other].life == life
                && self.sessions[other].sources.as_deref() == Some(&[source])
                && self.sessions[other].arrived.get(&channel).is_some_and(|arrivals| arrivals.has(number))
        });
        if let Some(other) = twice {
            let (here, there) = (self.label(session), self.sessions[other].peer);
            self.fail(format!(
                "{here}: message {number} of channel {channel} was delivered before, as from {there}"
            ));
        }
    }

    /// Sessions that hold, or may hold, messages of `source`.
    fn readers_of(&self, source: SessionNo) -> impl Iterator<Item = SessionNo> + '_ {
        self.others(source).filter(move |&other| {
            self.sessions[other].sources.as_ref().is_some_and(|sources| sources.contains(&source))
        })
    }

    /// The remote host's sides of its sessions with this side's host.
    fn others(&self, side: SessionNo) -> impl Iterator<Item = SessionNo> + '_ {
        let Session { life, remote_host, .. } = &self.sessions[side];
        self.by_hosts.get(&(*remote_host, self.lives[*life].host)).into_iter().flatten().copied()
    }

    /// The message has to be the next of its channel; offered ones come when they come.
    fn check_turn(&mut self, session: SessionNo, channel: u16, number: u64) {
        let limit = self.lives[self.sessions[session].life].config.max_message_bytes;
        // Empty messages look alike: one of several sessions may have sent this.
        let sources = self.sessions[session].sources.as_deref().unwrap_or_default();
        let refused_unasked = |number: u64| {
            sources.iter().any(|&source| {
                let sent =
                    self.sessions[source].sent.get(&channel).and_then(|sent| sent.get(number as usize));
                sent.is_some_and(|sent| sent.bytes > limit || sent.mortal)
            })
        };
        let skipped: Vec<_> = {
            let arrivals = self.sessions[session].arrived.get(&channel);
            let next = arrivals.map_or(0, |arrivals| arrivals.next);
            let awaited = |number| arrivals.is_some_and(|arrivals| arrivals.offered.contains(&number));
            (next..number).filter(|&number| refused_unasked(number) && !awaited(number)).collect()
        };
        let arrivals = self.sessions[session].arrived.entry(channel).or_default();
        arrivals.taken += 1;
        arrivals.refused.extend(skipped);
        let was_offered = arrivals.offered.remove(&number);
        while arrivals.offered.contains(&arrivals.next)
            || arrivals.refused.contains(&arrivals.next)
            || (was_offered && arrivals.next == number)
        {
            arrivals.next += 1;
        }
        if was_offered {
            return;
        }
        let expected = arrivals.next;
        if expected == number {
            arrivals.next += 1;
            return;
        }
        let label = self.label(session);
        let what = if number < expected { "was delivered before" } else { "is out of order" };
        self.fail(format!("{label}: message {number} of channel {channel} {what}; {expected} is next"));
    }

    fn answer_offer(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        life: LifeNo,
        offer: (ChannelId, u64, u64),
    ) {
        let (channel, number, bytes) = offer;
        let answer = self.lives[life].offers;
        let result = match answer {
            OfferAnswer::Wait => return self.lives[life].unanswered.push(offer),
            OfferAnswer::Accept => endpoint.accept(now, channel, number, Vec::with_capacity(bytes as usize)),
            OfferAnswer::Refuse => endpoint.refuse(now, channel, number),
        };
        let Some(&session) = self.by_peer.get(&(life, channel.peer)) else { return };
        // The loss may be known to the endpoint, and its event come after this one.
        let alive = endpoint.flow(channel.peer).is_some_and(|flow| flow.phase != Phase::Over);
        let over = !alive || self.sessions[session].done_reading;
        let mortal = self.may_be_withdrawn(session, channel.channel, number);
        if let Err(error) = result {
            if !over && !mortal {
                self.fail(format!("{}: an offer could not be answered: {error}", self.label(session)));
            }
        } else if answer == OfferAnswer::Refuse {
            let arrivals = self.sessions[session].arrived.entry(channel.channel).or_default();
            arrivals.offered.remove(&number);
            arrivals.refused.insert(number);
        }
    }

    /// Whether the sender may have given the message up since it was offered.
    fn may_be_withdrawn(&self, session: SessionNo, channel: u16, number: u64) -> bool {
        self.possible_sources(session).iter().any(|&source| {
            let sent = self.sessions[source].sent.get(&channel).and_then(|sent| sent.get(number as usize));
            sent.is_some_and(|sent| sent.mortal)
        })
    }

    fn set_fate(&mut self, session: SessionNo, id: MessageId, fate: Fate) {
        let MessageId { channel: ChannelId { channel, .. }, number } = id;
        let Some(sent) = self.sessions[session].message(channel, number) else {
            let label = self.label(session);
            return self.fail(format!("{label}: {fate:?} is reported for {id:?}, which was never sent"));
        };
        let (before, asked_for, mortal) = (sent.fate, sent.completion, sent.mortal);
        sent.fate = fate;
        let asked = match fate {
            Fate::Acknowledged => asked_for == Completion::Acknowledged,
            Fate::Delivered => asked_for == Completion::Delivered,
            Fate::Expired => mortal,
            _ => true,
        };
        // The peer may not have heard that it expired.
        let told_again = before == Fate::Expired && fate == Fate::Unacknowledged;
        if (before != Fate::Open && !told_again) || !asked {
            let label = self.label(session);
            self.fail(format!("{label}: {id:?} ({asked_for:?} asked for) is {fate:?} after {before:?}"));
        }
    }
}

/// Whether somebody new may get no answer: there are as many sessions, or handshakes, as there may be.
fn turns_away(config: &Config) -> bool {
    let usual = Config::default();
    config.max_peers < usual.max_peers || config.max_handshakes_per_s < usual.max_handshakes_per_s
}

impl Application for Oracle {
    fn on_event(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, event: Event) {
        self.check_event(now, host, endpoint, event);
    }

    fn on_readable(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint) {
        self.follow_groups(now, host, endpoint);
        if !self.lives[self.life_on(host)].reading {
            return;
        }
        while let Some(message) = endpoint.recv(now) {
            self.on_message(host, endpoint, &message);
        }
    }
}
