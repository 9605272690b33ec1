//! Who has vanished, and when it is over.
//!
//! Inputs → outputs: time, what sessions bring → whether there is somebody left to wait for. A session counts
//! as lost only after long; whether somebody answers is seen sooner, for its transport answers while it
//! is busy with its disk.

use super::{PROGRESS_INTERVAL, Sender};
use crate::message::{Message, VERSION};
use crate::roster::{Member, State};
use crate::silence::Silence;
use denrei::{PeerId, Phase};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Nobody counts as vanished sooner, however short patience is: answers get lost, and hosts are busy.
const LEAST_SILENCE: Duration = Duration::from_secs(3);
/// Says to a member that it was waited for (`spec/protocol.md` §8: the application's).
const NO_ANSWER: u16 = 0x8000;

/// What is known of who answers.
#[derive(Debug, Default)]
pub(super) struct Patience {
    silence: BTreeMap<PeerId, Silence>,
    looked_at: Option<Instant>,
    /// Members that were settled when that was last looked at.
    settled: usize,
    /// When a member was last served, or heard of while it was not.
    idle_since: Option<Instant>,
}

impl Patience {
    /// Nobody could be heard for so long.
    pub(super) fn excuse(&mut self, away: Duration) {
        self.idle_since = self.idle_since.map(|since| since + away);
    }
}

impl Sender {
    /// Whether nothing is left to do, and nobody to wait for.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        self.note_heard(now);
        let settled = self.roster.members.iter().filter(|member| member.is_settled()).count();
        let active: Vec<usize> =
            (0..self.roster.members.len()).filter(|index| self.roster.members[*index].is_active()).collect();
        let mut heard = active.iter().map(|index| self.heard_at(*index, now)).max();
        if settled != self.patience.settled
            || self.started.is_none()
            || !(active.is_empty() || self.has_served() || self.roster.members.len() == 1)
        {
            heard = Some(now);
        }
        self.patience.settled = settled;
        let since = self.patience.idle_since.max(heard).unwrap_or(now);
        self.patience.idle_since = Some(since);
        let gone = self.is_beginning_gone();
        let missing = |member: &Member| !(member.is_settled() || member.begins_anew && gone);
        let missing = self.roster.members.iter().any(missing);
        let mut patience =
            if missing { self.options.patience.max(self.options.linger) } else { self.options.linger };
        if !active.is_empty() {
            patience = patience.max(LEAST_SILENCE);
        }
        let idle = now.saturating_duration_since(since);
        let over = self.started.is_some() && idle >= patience;
        if over {
            active.into_iter().for_each(|index| self.vanished(index, idle));
            if gone {
                self.note_why_not_waited_for();
            }
            self.forget_absent();
        }
        over
    }

    /// Whether who begins a stream anew cannot be served any more.
    fn is_beginning_gone(&self) -> bool {
        self.source.available().0 > self.offer.manifest_pieces()
    }

    /// Whether some are through: then it is not this host that nothing reaches. Where there is one member only
    /// nobody can tell, and patience is what was asked for.
    fn has_served(&self) -> bool {
        self.roster.members.iter().any(|member| matches!(member.state, State::Complete { .. }))
    }

    /// When something was last heard of a member.
    fn heard_at(&self, index: usize, now: Instant) -> Instant {
        let silence = self.peer_of(index).and_then(|peer| self.patience.silence.get(&peer));
        silence.map_or(now, Silence::since)
    }

    /// Looks who has been heard since it was last looked; asks who has not.
    fn note_heard(&mut self, now: Instant) {
        let due = |at: Instant| now.saturating_duration_since(at) >= PROGRESS_INTERVAL;
        if self.started.is_none() || !self.patience.looked_at.is_none_or(due) {
            return;
        }
        self.patience.looked_at = Some(now);
        self.patience.silence.retain(|peer, _| self.peers.contains_key(peer));
        for (peer, index) in &self.peers {
            let Some(flow) = self.node.flow(*peer) else { continue };
            let received = flow.counters.packets_received;
            let new = || Silence::new(received, now);
            let known = self.patience.silence.contains_key(peer);
            let silence = self.patience.silence.entry(*peer).or_insert_with(new);
            let asks = silence.look(received, now);
            let member = &mut self.roster.members[*index];
            member.silent &= !known || silence.since() < now;
            // Where something is under way its transport is being asked.
            if asks && flow.queued_messages == 0 && member.is_active() {
                self.try_say(*peer, &Message::Hello { version: VERSION }.encode());
            }
        }
    }

    /// A member does not answer, and is waited for no longer.
    fn vanished(&mut self, index: usize, silence: Duration) {
        let why = format!("nothing was heard of it for {silence:.0?}");
        if let Some(peer) = self.peer_of(index) {
            self.abandon(peer, &why);
            self.lost(peer, why);
        }
    }

    fn note_why_not_waited_for(&mut self) {
        for member in self.roster.members.iter_mut().filter(|member| member.begins_anew) {
            if let State::Absent { why: Some(why) } = &mut member.state {
                why.push_str(
                    "; it was not waited for, as the stream has gone on past what is kept of it (--retain)",
                );
            }
        }
    }

    /// Nobody is there to hear a last word: nothing waits for that.
    fn forget_absent(&mut self) {
        let opening = |peer| self.node.flow(peer).is_some_and(|flow| flow.phase == Phase::Opening);
        let absent = |(index, peer): &(&usize, &PeerId)| {
            let member = &self.roster.members[**index];
            matches!(member.state, State::Absent { .. }) || member.may_be_started_again() && opening(**peer)
        };
        let sessions = self.sessions.iter().filter(absent);
        for (index, peer) in sessions.map(|(index, peer)| (*index, *peer)).collect::<Vec<_>>() {
            self.abandon(peer, "it was waited for in vain");
            self.sessions.remove(&index);
            self.peers.remove(&peer);
        }
    }

    /// Ends a session, and says why.
    pub(super) fn abandon(&self, peer: PeerId, why: &str) {
        // It may have just ended by itself.
        let _ = self.node.abort(peer, NO_ANSWER, why);
    }
}
