//! What members say, and what is said to them.

use super::{Members, Sender};
use crate::error::{CastError, in_words, is_end};
use crate::message::{CHANNEL, FailureCode, Message, short};
use crate::roster::State;
use bytes::Bytes;
use denrei::{ChannelId, Event, Incoming, LostReason, PeerId, SendError};
use std::time::{Duration, Instant};

/// Messages and events taken in one go.
const MAX_INCOMING: usize = 1024;
/// Members of a cast: what a group carries.
const MAX_MEMBERS: usize = 16_384;

impl Sender {
    /// Takes in what members have said and what has become of their sessions.
    pub(super) fn listen(&mut self, now: Instant) -> Result<(), CastError> {
        for _ in 0..MAX_INCOMING {
            let next = self.node.next(Duration::ZERO);
            match next.map_err(|error| CastError::Transport(error.to_string()))? {
                None => break,
                Some(Incoming::Message(message)) if message.channel.channel == CHANNEL => {
                    self.heard(message.channel.peer, message.data, now);
                }
                Some(Incoming::Message(_)) => {}
                Some(Incoming::Event(Event::PeerLost { peer, reason, .. })) => {
                    self.note_end(peer, &reason);
                    self.lost(peer, in_words(&reason));
                }
                Some(Incoming::Event(_)) => {}
            }
        }
        Ok(())
    }

    fn heard(&mut self, peer: PeerId, data: Bytes, now: Instant) {
        let Some(said) = Message::decode(data) else {
            return tracing::debug!("{peer} said what cannot be read");
        };
        if let Message::Hello { version } = said {
            return self.hello(peer, version, now);
        }
        let Some(index) = self.peers.get(&peer).copied() else { return };
        let ours = short(&self.offer.id);
        match said {
            Message::Want { cast, ordered, name, ranges } if cast == ours => {
                self.roster.members[index].name = name;
                if self.roster.members[index].state != State::Receiving {
                    self.leave_twins(index);
                }
                self.roster.want(index, &ranges, ordered, now);
            }
            Message::Progress { cast, bytes } if cast == ours => {
                let member = &mut self.roster.members[index];
                member.bytes = bytes;
                member.progress_at = now;
                // It verifies what it has, and will say what it misses.
                if matches!(member.state, State::Absent { .. }) {
                    member.state = State::Invited;
                }
            }
            Message::Complete { cast, resumed_bytes } if cast == ours => {
                let part = self.ends_by(index);
                self.leave_group(part);
                self.pending_alone.remove(&part);
                let member = &mut self.roster.members[part];
                member.resumed_bytes = resumed_bytes;
                if !member.is_settled() {
                    member.state = State::Complete { at: now };
                }
            }
            Message::Failed { code: FailureCode::Busy, .. } if self.is_uninvited(index) => {
                self.roster.went_elsewhere(index);
            }
            Message::Failed { code, text } => {
                let part = self.ends_by(index);
                self.fail(part, text, Some(code));
            }
            _ => {}
        }
    }

    /// A receiver takes part by this address of its: at the others where it has found this sender it is nobody.
    fn leave_twins(&mut self, index: usize) {
        for twin in self.roster.twins(index) {
            self.leave_group(twin);
            self.pending_alone.remove(&twin);
            self.roster.went_elsewhere(twin);
        }
    }

    /// The address by which a receiver takes part that says how this has ended; it may say so by another one alone.
    fn ends_by(&mut self, index: usize) -> usize {
        let part = self.roster.part_of(index);
        if !self.roster.members[part].is_settled() {
            self.leave_twins(part);
        }
        part
    }

    /// Whether a receiver that has found this sender has not begun: it has found others, too.
    fn is_uninvited(&self, index: usize) -> bool {
        let listed = matches!(self.options.members, Members::Listed(_));
        !listed && self.roster.members[index].began.is_none()
    }

    /// Whether a member's Node has the offer, and nobody there says anything to it: an application may have taken it for
    /// a message of its own, before it began to receive.
    pub(super) fn has_overheard(&self, peer: PeerId, index: usize) -> bool {
        let delivered = || self.node.flow(peer).is_some_and(|flow| flow.queued_messages == 0);
        matches!(self.roster.members[index].state, State::Absent { .. }) && delivered()
    }

    /// A receiver that has found this sender.
    fn hello(&mut self, peer: PeerId, version: u16, now: Instant) {
        let Some(flow) = self.node.flow(peer) else { return };
        let addr = flow.addr;
        let refuse = |text: &str| Message::Abort { text: text.into() };
        if version != crate::message::VERSION {
            return self.say(peer, refuse("the sender speaks another version of the protocol of casts"));
        }
        if let Members::Listed(members) = &self.options.members
            && !members.contains(&addr)
        {
            return self.say(peer, refuse("the sender's --members does not list this receiver"));
        }
        if self.roster.members.len() >= MAX_MEMBERS {
            return self.say(peer, refuse("the sender has as many receivers as it can serve"));
        }
        let index = self.roster.member_at(addr, now);
        let known = self.peers.get(&peer) == Some(&index);
        if known && self.roster.members[index].is_active() {
            return;
        }
        // One that has failed or is through, or was started again, is taken as it comes.
        if !known {
            self.leave_group(index);
            self.pending_alone.remove(&index);
            self.roster.lost(index, "started again".into());
        }
        let member = &mut self.roster.members[index];
        // One that receives something else asks again and again while the sender of that is gone.
        if !(known && member.elsewhere) {
            member.elsewhere = false;
            member.state = State::Invited;
        }
        member.progress_at = now;
        if !matches!(self.options.members, Members::Listed(_)) {
            member.incarnation = flow.incarnation.map(|incarnation| incarnation.0);
            if self.roster.has_begun_elsewhere(index) {
                self.roster.went_elsewhere(index);
            }
        }
        self.bind_session(peer, index);
        self.say(peer, Message::Offer(self.offer));
    }

    /// Notes who can only begin anew: a receiver of a stream does not go on where its session was ended. One that may
    /// have had all of it comes back to say how that went.
    fn note_end(&mut self, peer: PeerId, why: &LostReason) {
        let Some(member) = self.peers.get(&peer).map(|index| &mut self.roster.members[*index]) else {
            return;
        };
        // Sessions that are tried since say nothing of that.
        if !member.is_active() {
            return;
        }
        let may_have_all = !self.source.available().1 && member.is_up_to_date();
        member.begins_anew = self.source.is_stream() && is_end(why) && !may_have_all;
    }

    pub(super) fn lost(&mut self, peer: PeerId, why: String) {
        // One whose next session was there already is none of theirs any more.
        let Some(index) = self.peers.remove(&peer) else { return };
        self.sessions.remove(&index);
        self.unsaid.remove(&peer);
        self.pending_alone.remove(&index);
        self.leave_group(index);
        self.roster.lost(index, why);
        // One that is through with something else ends, and may not have said so.
        if self.is_uninvited(index) && !self.roster.members[index].is_settled() {
            self.roster.went_elsewhere(index);
        }
    }

    /// Says it as soon as there is room for it: the last word to each counts.
    pub(super) fn say(&mut self, peer: PeerId, message: Message) {
        self.unsaid.insert(peer, message.encode());
        self.say_unsaid();
    }

    /// Says what there is room for by now.
    pub(super) fn say_unsaid(&mut self) {
        let mut unsaid = std::mem::take(&mut self.unsaid);
        unsaid.retain(|peer, message| !self.try_say(*peer, message));
        self.unsaid = unsaid;
    }

    /// Whether there was room to say it.
    pub(super) fn try_say(&self, peer: PeerId, message: &Bytes) -> bool {
        let said = self.node.try_send(ChannelId { peer, channel: CHANNEL }, message.clone());
        if let Err(error) = &said {
            tracing::debug!("cannot say {message:?} to {peer}: {error}");
        }
        // A session that is over says so by an event.
        !matches!(said, Err(SendError::WouldBlock { .. }))
    }

    pub(super) fn say_to(&mut self, index: usize, message: Message) {
        if let Some(peer) = self.peer_of(index) {
            self.say(peer, message);
        }
    }

    /// Tells all who take part that it is over.
    pub(super) fn abort_all(&mut self, text: &str) {
        for index in 0..self.roster.members.len() {
            if self.roster.members[index].is_active() {
                self.fail(index, text.into(), None);
            }
        }
        self.last_words(Duration::from_millis(500));
    }

    /// Has members hear why they are given up, within `time`: who is through, or has failed by itself, may have ended,
    /// and misses nothing. To those who take nothing, whose reader is slow for one, the end of their session says it.
    pub(super) fn last_words(&self, time: Duration) {
        let until = Instant::now() + time;
        for (peer, index) in &self.peers {
            let Some(text) = self.roster.members[*index].last_word() else { continue };
            let hears = || self.node.flush(*peer, until.saturating_duration_since(Instant::now()));
            let unsaid = self.unsaid.get(peer);
            if !(hears() && unsaid.is_none_or(|message| self.try_say(*peer, message) && hears())) {
                self.abandon(*peer, text);
            }
        }
    }
}
