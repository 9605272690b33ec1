//! Checks events: each has to be true, at its time, and not be told twice.

use super::ledger::{Fate, Life, SessionNo};
use super::{LifeNo, Oracle};
use crate::net::topology::HostId;
use core::time::Duration;
use denrei_proto::{ChannelId, Endpoint, Event, LostReason, MessageId, PeerId};
use denrei_wire::{Incarnation, Instant};

/// What is under way when the network is healed has arrived after this time, and probes have been sent.
const SLACK: Duration = Duration::from_secs(3);

impl Oracle {
    pub(super) fn check_event(&mut self, now: Instant, host: HostId, endpoint: &mut Endpoint, event: Event) {
        let life = self.life_on(host);
        let Some(session) = self.session_of_event(life, endpoint, &event) else { return };
        if self.sessions[session].lost.is_some() {
            let label = self.label(session);
            return self.fail(format!("{label}: {event:?} after the peer was lost"));
        }
        match event {
            Event::Connected { incarnation, .. } => self.check_connected(session, incarnation),
            Event::Acknowledged(id) => self.set_fate(session, id, Fate::Acknowledged),
            Event::Delivered(id) => self.check_delivered(session, id),
            Event::Refused(id) => {
                self.totals.refused += 1;
                self.set_fate(session, id, Fate::Refused);
            }
            Event::Expired(id) => self.set_fate(session, id, Fate::Expired),
            Event::Withdrawn { channel, number } => self.withdraw(session, channel, number),
            Event::RateSet { .. } => {}
            Event::Offered { channel, number, bytes } => {
                self.check_offered(session, channel, number);
                self.answer_offer(now, endpoint, life, (channel, number, bytes));
            }
            Event::Status { request, .. } => {
                let asked = &mut self.sessions[session].status_asked;
                let known = asked.iter().position(|&id| id == request);
                if known.map(|at| asked.remove(at)).is_none() {
                    let label = self.label(session);
                    self.fail(format!("{label}: a status answers request {request}, which was not asked"));
                }
            }
            Event::PeerDoneWriting(_) => {
                if core::mem::replace(&mut self.sessions[session].peer_done_writing, true) {
                    let label = self.label(session);
                    self.fail(format!("{label}: the peer is done writing twice"));
                }
            }
            Event::PeerDoneReading { unacknowledged, .. } => {
                self.check_unacknowledged(session, &unacknowledged);
                let remote_done = self.others(session).any(|other| self.sessions[other].done_reading);
                if core::mem::replace(&mut self.sessions[session].peer_done_reading, true) || !remote_done {
                    let label = self.label(session);
                    self.fail(format!("{label}: the peer is done reading, which it did not say, or twice"));
                }
            }
            Event::PeerLost { reason, unacknowledged, .. } => {
                self.totals.lost_sessions += 1;
                self.check_unacknowledged(session, &unacknowledged);
                self.check_reason(now, session, &reason);
                self.sessions[session].lost = Some(reason);
            }
            other => self.fail(format!("an event the oracle does not know: {other:?}")),
        }
    }

    fn session_of_event(&mut self, life: LifeNo, endpoint: &Endpoint, event: &Event) -> Option<SessionNo> {
        let peer = match event {
            Event::Connected { peer, .. }
            | Event::Status { peer, .. }
            | Event::RateSet { peer, .. }
            | Event::PeerDoneWriting(peer)
            | Event::PeerDoneReading { peer, .. }
            | Event::PeerLost { peer, .. } => *peer,
            Event::Acknowledged(id) | Event::Delivered(id) | Event::Refused(id) | Event::Expired(id) => {
                id.channel.peer
            }
            Event::Offered { channel, .. } | Event::Withdrawn { channel, .. } => channel.peer,
            _ => return None,
        };
        self.session_of(life, peer, endpoint)
    }

    fn check_connected(&mut self, session: SessionNo, incarnation: Incarnation) {
        let remote_host = self.sessions[session].remote_host;
        let known = self.by_incarnation.get(&incarnation).map(|&life| self.lives[life].host);
        let again = core::mem::replace(&mut self.sessions[session].connected, true);
        self.sessions[session].remote = Some(incarnation);
        if again || known != Some(remote_host) {
            let label = self.label(session);
            self.fail(format!("{label}: connected to {incarnation:?}, again or which never lived there"));
        }
    }

    fn check_offered(&mut self, session: SessionNo, channel: ChannelId, number: u64) {
        let arrivals = self.sessions[session].arrived.entry(channel.channel).or_default();
        if number < arrivals.next || !arrivals.offered.insert(number) {
            let label = self.label(session);
            self.fail(format!("{label}: message {number} of {channel:?} is offered after it had its turn"));
        }
    }

    /// An offer will not come: it has had its turn.
    fn withdraw(&mut self, session: SessionNo, channel: ChannelId, number: u64) {
        let life = self.sessions[session].life;
        self.lives[life].unanswered.retain(|(other, offered, _)| (*other, *offered) != (channel, number));
        let arrivals = self.sessions[session].arrived.entry(channel.channel).or_default();
        if arrivals.offered.remove(&number) {
            arrivals.refused.insert(number);
        }
    }

    fn check_delivered(&mut self, session: SessionNo, id: MessageId) {
        self.set_fate(session, id, Fate::Delivered);
        let MessageId { channel: ChannelId { channel, .. }, number } = id;
        let has =
            |reader: SessionNo| self.sessions[reader].arrived.get(&channel).is_some_and(|a| a.has(number));
        if !self.readers_of(session).any(has) {
            let label = self.label(session);
            self.fail(format!("{label}: {id:?} is reported delivered, but nobody has taken it"));
        }
    }

    fn check_unacknowledged(&mut self, session: SessionNo, ids: &[MessageId]) {
        self.totals.unacknowledged += ids.len() as u64;
        let mut last: Option<(u16, u64)> = None;
        for id in ids {
            let at = (id.channel.channel, id.number);
            if last.is_some_and(|last| last.0 == at.0 && last.1 >= at.1) {
                let label = self.label(session);
                self.fail(format!(
                    "{label}: {id:?} is not in the order of its channel in the list of unacknowledged"
                ));
            }
            last = Some(at);
            self.set_fate(session, *id, Fate::Unacknowledged);
        }
    }

    fn check_reason(&mut self, now: Instant, session: SessionNo, reason: &LostReason) {
        let plausible = match reason {
            LostReason::Closed => self.sessions[session].closed_write,
            LostReason::Aborted => self.sessions[session].ended,
            LostReason::Ended { .. } => self.others(session).any(|other| self.sessions[other].ended),
            LostReason::NoAnswer => self.hardship,
            LostReason::TimedOut | LostReason::Gone => self.hardship && !self.has_been_answered(now, session),
            LostReason::Restarted => self.was_restarted(session),
            LostReason::Forgotten => {
                self.hardship
                    || self.was_restarted(session)
                    || self.others(session).any(|other| self.sessions[other].lost.is_some())
            }
            _ => false,
        };
        if !plausible {
            let label = self.label(session);
            self.fail(format!("{label}: lost for a reason that is not true: {reason:?}"));
        }
    }

    /// Whether the other side is there, and for longer than it takes to be missed nothing has kept its answers away.
    fn has_been_answered(&self, now: Instant, session: SessionNo) -> bool {
        let Life { incarnation, config, .. } = &self.lives[self.sessions[session].life];
        let is_there = |other: SessionNo| {
            let other = &self.sessions[other];
            other.lost.is_none()
                && other.remote == Some(*incarnation)
                && self.lives[other.life].died_at.is_none()
        };
        self.healed_at.is_some_and(|at| now > at + config.failure_timeout + SLACK)
            && self.others(session).any(is_there)
    }

    /// Whether the remote process is not the one this session is with any more.
    fn was_restarted(&self, session: SessionNo) -> bool {
        let session = &self.sessions[session];
        let lives = self.lives.iter().filter(|life| life.host == session.remote_host);
        let latest = lives.clone().next_back().map(|life| life.incarnation);
        lives.count() > 1 && (session.remote.is_none() || session.remote != latest)
    }

    /// This life's side of the session with `peer`, if it was met.
    pub(super) fn known_session(&self, life: LifeNo, peer: PeerId) -> Option<SessionNo> {
        self.by_peer.get(&(life, peer)).copied()
    }
}
