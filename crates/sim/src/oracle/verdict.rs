//! The verdict at the end of a run, when the network is healed, all processes read and nothing
//! moves any more: everything sent has arrived or was reported, and nothing is left over.

use super::ledger::{Fate, LifeNo, Sent, SessionNo};
use super::{Oracle, ledger};
use denrei_proto::{Completion, Endpoint, FlowState, Phase};
use std::collections::BTreeSet;

impl Oracle {
    /// What the process with `endpoint` still has to send, hear of or read: its peers that are not
    /// at rest. Empty at the end.
    ///
    /// Unread bytes do not count if the session has ended on the other side and this one, without
    /// keepalive, cannot know: parts of a message wait for the rest.
    pub fn unsettled(&self, endpoint: &Endpoint) -> Vec<FlowState> {
        let life = self.by_incarnation.get(&endpoint.incarnation());
        let side = |flow: &FlowState| life.and_then(|&life| self.known_session(life, flow.peer));
        let moving = |flow: &FlowState| {
            flow.queued_messages > 0
                || (flow.unread_bytes > 0 && !side(flow).is_some_and(|side| self.cannot_know_the_end(side)))
                // An ended session answers for a while before it is forgotten.
                || flow.phase == Phase::Over
        };
        endpoint.peers().filter_map(|peer| endpoint.flow(peer)).filter(moving).collect()
    }

    /// Checks that what was reported so far is the whole truth about the messages that the process
    /// with `endpoint` sent.
    pub fn judge(&mut self, endpoint: &Endpoint) {
        let Some(&life) = self.by_incarnation.get(&endpoint.incarnation()) else { return };
        self.judge_table(life, endpoint);
        let sides: Vec<_> =
            (0..self.sessions.len()).filter(|&side| self.sessions[side].life == life).collect();
        for side in sides {
            if let Err(what) = self.judge_side(side) {
                let label = self.label(side);
                self.fail(format!("{label}: {what}"));
            }
        }
    }

    /// One live peer per address, none that is lost, and nothing queued.
    fn judge_table(&mut self, life: LifeNo, endpoint: &Endpoint) {
        let host = self.lives[life].host;
        let mut addresses = BTreeSet::new();
        for peer in endpoint.peers() {
            let known = self.known_session(life, peer);
            let lost = known.is_none_or(|session| self.sessions[session].lost.is_some());
            let flow = endpoint.flow(peer);
            let twice = flow.as_ref().is_none_or(|flow| !addresses.insert(flow.addr));
            if lost || twice {
                self.fail(format!(
                    "host {}: {peer} leaks: lost or never announced ({lost}), second of its address ({twice}), {flow:?}",
                    host.0
                ));
            }
        }
    }

    fn judge_side(&self, side: SessionNo) -> Result<(), String> {
        let ledger::Session { sent, lost, status_asked, status_newest, .. } = &self.sessions[side];
        let unanswered = status_newest.is_some_and(|newest| status_asked.contains(&newest));
        if unanswered && lost.is_none() && !self.cannot_know_the_end(side) {
            return Err(format!("the newest status request, {status_newest:?}, was never answered"));
        }
        for (&channel, messages) in sent {
            let mut gap = false;
            for (number, message) in messages.iter().enumerate() {
                gap |= message.fate == Fate::Unacknowledged;
                self.judge_message(side, channel, number as u64, *message, gap)
                    .map_err(|what| format!("message {number} of channel {channel}, {message:?}: {what}"))?;
            }
        }
        Ok(())
    }

    /// `gap`: an earlier message of the channel was reported unacknowledged, so that this one, whose acknowledgement was
    /// reported, may have arrived and yet never have had its turn.
    fn judge_message(
        &self,
        side: SessionNo,
        channel: u16,
        number: u64,
        message: Sent,
        gap: bool,
    ) -> Result<(), String> {
        let arrived = self
            .readers_of(side)
            .any(|reader| self.sessions[reader].arrived.get(&channel).is_some_and(|a| a.has(number)));
        let lost = self.sessions[side].lost.is_some();
        match message.fate {
            // What expired may have arrived: what seemed lost was late.
            Fate::Unacknowledged | Fate::Expired => return Ok(()),
            Fate::Refused if arrived => return Err("refused, and yet delivered".to_owned()),
            Fate::Refused => return Ok(()),
            Fate::Delivered if !arrived => return Err("reported delivered, and was not".to_owned()),
            Fate::Open if message.completion == Completion::Acknowledged => {
                return Err("its acknowledgement was never reported".to_owned());
            }
            Fate::Open
                if message.completion == Completion::Delivered
                    && !lost
                    && !self.reader_is_excused(side)
                    && !self.cannot_know_the_end(side) =>
            {
                return Err("its delivery was never reported".to_owned());
            }
            _ => {}
        }
        let waits_in_vain = gap && lost && message.fate == Fate::Acknowledged;
        if arrived || waits_in_vain || self.reader_is_excused(side) {
            return Ok(());
        }
        let fate = if lost { "the session is over" } else { "the session is alive" };
        Err(format!("never arrived, and nobody said so; {fate}"))
    }

    /// The other process died, or its application did not want what it was sent.
    fn reader_is_excused(&self, side: SessionNo) -> bool {
        let remote = self.sessions[side].remote.and_then(|incarnation| self.by_incarnation.get(&incarnation));
        let Some(&remote) = remote else { return false };
        self.lives[remote].died_at.is_some()
            || self
                .others(side)
                .any(|other| self.sessions[other].life == remote && self.sessions[other].done_reading)
    }

    /// The other side is over, and this one, without keepalive and with nothing to send, does not ask.
    fn cannot_know_the_end(&self, side: SessionNo) -> bool {
        let alive = |other: SessionNo| {
            let other = &self.sessions[other];
            other.lost.is_none() && self.lives[other.life].died_at.is_none()
        };
        self.lives[self.sessions[side].life].config.keepalive.is_none() && !self.others(side).any(alive)
    }
}
