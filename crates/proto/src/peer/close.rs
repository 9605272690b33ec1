//! How a session ends (R7): one side done writing, both, done reading, abort, loss.

use super::{Context, News, Peer};
use crate::doorkeeper::Refusal;
use crate::event::{Event, LostReason, Phase};
use crate::recv_channel::CREDIT_EXCEEDED;
use crate::sent::Control;
use core::time::Duration;
use denrei_wire::{Frame, Frames, Incarnation, Instant};

/// END codes of the protocol (`spec/protocol.md` §8).
pub(crate) mod end_code {
    /// Orderly.
    pub const CLOSED: u16 = 0;
    /// The other side broke the protocol.
    pub const VIOLATION: u16 = 2;
    /// The other side sent more than its credit.
    pub const CREDIT_EXCEEDED: u16 = 3;
}

/// ENDs sent at first. Nobody acknowledges them, and who has nothing to say would hear of the end no sooner than by
/// its keepalive, and of the end of a process not before it takes that for dead.
const ENDS: u8 = 2;

/// ENDs sent in answer to packets of a peer that has not noticed yet.
const MAX_END_REPEATS: u8 = 16;

/// A session that is over answers for at least this long, so that a lost END is repeated.
const MIN_DRAIN: Duration = Duration::from_millis(20);

/// Who waits for room, or calls just then, is told why the session is over, and not that there is none.
const REMEMBERED: Duration = Duration::from_millis(200);

/// So many handshakes the peer answers, and nothing in the session, before it is believed to have
/// forgotten the session: each goes with a probe of its own, all of which may be lost by chance.
const MAX_ANSWERED_ELSEWHERE: u8 = 3;

/// So many probes that nobody answers and the peer's host refuses, in this share of the failure timeout at least, and
/// the peer is gone.
const LEAST_REFUSALS: u8 = 3;
const REFUSED_SHARE: u32 = 20;

/// Where this side is on its way out.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// The application will send no more.
    pub write_requested: bool,
    write_sent: bool,
    write_acked: bool,
    /// The application wants no more.
    pub read_closed: bool,
    /// End the session when everything is delivered, whatever the peer still wants to send.
    end_when_delivered: bool,
    pub peer_done_writing: bool,
    pub peer_done_reading: bool,
    /// The peer has said so, but is not proven yet: CLOSE_WRITE, CLOSE_READ.
    write_held: bool,
    read_held: bool,
    /// ENDs to send.
    pub ends_due: u8,
    over: Option<Box<Over>>,
}

/// What is left of a session that is over.
#[derive(Debug)]
struct Over {
    why: LostReason,
    /// Whether everything sent was acknowledged.
    flushed: bool,
    /// The peer was proven: what came from it is kept, and may be acknowledged.
    was_proven: bool,
    /// END to send, and how often it was repeated.
    end: Option<(u16, String)>,
    repeats: u8,
    drain_until: Option<Instant>,
}

impl Closing {
    pub fn begin_anew(&mut self) {
        self.write_sent = false;
        // Said by whoever was never proven.
        (self.write_held, self.read_held) = (false, false);
    }

    /// The END to write.
    pub fn end(&self) -> Option<(u16, &str)> {
        let (code, reason) = self.over.as_ref()?.end.as_ref()?;
        Some((*code, reason))
    }

    /// Whether the END may bring an acknowledgement along. Before the proof none has been given, for
    /// what has come is thrown away with the session.
    pub fn acknowledges(&self) -> bool {
        self.over.as_ref().is_some_and(|over| over.was_proven)
    }
}

impl Peer {
    /// WCLOSE: no more messages from this side; those queued are still delivered.
    pub fn close_write(&mut self, cx: &mut Context<'_>) {
        self.closing.write_requested = true;
        cx.notes.news |= News::HALF_CLOSED;
        self.advance_close(cx);
    }

    /// RCLOSE: no more messages to this side; what was not taken is dropped.
    pub fn close_read(&mut self, cx: &mut Context<'_>) {
        if core::mem::replace(&mut self.closing.read_closed, true) {
            return;
        }
        cx.notes.news |= News::HALF_CLOSED;
        self.inbox.discard();
        if self.is_alive() {
            self.want(Control::CloseRead);
        }
    }

    /// Delivers what is queued and then ends the session.
    pub fn close(&mut self, cx: &mut Context<'_>) {
        self.closing.end_when_delivered = true;
        self.close_write(cx);
    }

    /// Ends the session at once.
    pub fn abort(&mut self, cx: &mut Context<'_>, code: u16, reason: &str) {
        if self.is_alive() {
            self.end(cx, LostReason::Aborted, Some((code, reason.to_owned())));
        }
    }

    /// A peer is proven, and is not let in: what has come of it is forgotten, and none of it was acknowledged. An earlier
    /// session with its address is over all the same.
    pub(super) fn turn_away(&mut self, cx: &mut Context<'_>, refusal: Refusal) {
        cx.notes.news |= News::PROVEN;
        self.protection.on_proven();
        self.end(cx, LostReason::Aborted, Some((refusal.code, refusal.reason)));
    }

    /// The peer broke the protocol.
    pub(super) fn violate(&mut self, cx: &mut Context<'_>, what: &'static str) {
        let code = if what == CREDIT_EXCEEDED { end_code::CREDIT_EXCEEDED } else { end_code::VIOLATION };
        self.end(cx, LostReason::Violation(what), Some((code, what.to_owned())));
    }

    /// Why no message can be sent, if so.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.closing.over.as_ref().map(|over| over.why.clone())
    }

    /// Whether this side has said that it will send no more.
    pub fn is_write_closed(&self) -> bool {
        self.closing.write_requested
    }

    /// Whether the peer has said that it will send no more, and all that it sent is here.
    pub fn is_peer_done_writing(&self) -> bool {
        self.closing.peer_done_writing
    }

    /// Whether the peer has said that it wants no more.
    pub fn is_peer_done_reading(&self) -> bool {
        self.closing.peer_done_reading
    }

    pub(super) fn on_close_write(&mut self, cx: &mut Context<'_>) {
        if !self.is_proven() {
            self.closing.write_held = true;
        } else if !core::mem::replace(&mut self.closing.peer_done_writing, true) {
            self.inbox.end();
            cx.notes.news |= News::HALF_CLOSED;
            cx.events.push(Event::PeerDoneWriting(self.id));
        }
    }

    /// What the peer said about closing before it was proven comes true.
    pub(super) fn release_closing(&mut self, cx: &mut Context<'_>) {
        if core::mem::take(&mut self.closing.write_held) {
            self.on_close_write(cx);
        }
        if core::mem::take(&mut self.closing.read_held) {
            self.on_close_read(cx);
        }
    }

    pub(super) fn on_close_read(&mut self, cx: &mut Context<'_>) {
        if !self.is_proven() {
            self.closing.read_held = true;
            return;
        }
        if core::mem::replace(&mut self.closing.peer_done_reading, true) {
            return;
        }
        cx.notes.news |= News::HALF_CLOSED;
        let unacknowledged = self.unacknowledged();
        self.outbox.clear();
        cx.events.push(Event::PeerDoneReading { peer: self.id, unacknowledged });
    }

    pub(super) fn on_end(&mut self, cx: &mut Context<'_>, code: u16, reason: &str) {
        let both_done = self.both_done_writing();
        self.lose(
            cx,
            if code == end_code::CLOSED && both_done {
                LostReason::Closed
            } else {
                LostReason::Ended { code, reason: reason.to_owned() }
            },
        );
    }

    /// Somebody says, for the peer, that it knows no session of this token. Where packets are sealed
    /// that is no more than a hint: the peer is asked for a sign of life.
    pub fn on_reset(&mut self, cx: &mut Context<'_>) {
        if self.protection.is_sealed() {
            return self.doubt(cx.now);
        }
        self.lose_forgotten(cx);
    }

    /// Somebody says, for the peer's host, that nobody is at its port. Anybody can say so: the peer is asked for a
    /// sign of life, and is gone if it gives none for a while in which it is asked and refused again and again.
    /// Whether that is still in question.
    pub fn on_refused(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.is_proven() {
            return false;
        }
        self.doubt(cx.now);
        self.refusals = self.refusals.saturating_add(1);
        let silent = self.doubted_at.map_or(Duration::ZERO, |at| cx.now.saturating_since(at));
        let asked_enough = self.refusals >= LEAST_REFUSALS && self.probe_timeouts >= LEAST_REFUSALS.into();
        let is_gone = asked_enough && silent >= cx.config.failure_timeout / REFUSED_SHARE;
        if is_gone {
            let both_done = self.both_done_writing();
            self.lose(cx, if both_done { LostReason::Closed } else { LostReason::Gone });
        }
        !is_gone
    }

    fn doubt(&mut self, now: Instant) {
        if self.is_proven() && !self.is_doubted() {
            (self.doubted_at, self.answered_elsewhere, self.refusals) = (Some(now), 0, 0);
            self.want(Control::Ping);
        }
    }

    /// An inquiry was answered, provably, by `incarnation`. If it is another than the session's, that
    /// one is gone. If it is the same, time and again, and silent in the session it is said not to
    /// know, then it does not know it: its END was lost.
    pub fn on_inquiry_answered(&mut self, cx: &mut Context<'_>, incarnation: Option<Incarnation>) {
        if !self.is_doubted() {
            return;
        }
        if self.remote_incarnation != incarnation {
            return self.lose(cx, LostReason::Restarted);
        }
        self.answered_elsewhere += 1;
        if self.answered_elsewhere == MAX_ANSWERED_ELSEWHERE {
            self.lose_forgotten(cx);
        }
    }

    fn lose_forgotten(&mut self, cx: &mut Context<'_>) {
        let both_done = self.both_done_writing();
        self.lose(cx, if both_done { LostReason::Closed } else { LostReason::Forgotten });
    }

    /// Whether it was said that the peer does not know the session, or is not there, and it was not heard since.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted_at.is_some_and(|at| self.heard_at <= at)
    }

    /// Somebody says that the attempt to open cannot succeed. Where packets are sealed anybody might:
    /// it is what the application is told if nobody answers.
    pub fn suspect(&mut self, cx: &mut Context<'_>, reason: LostReason) {
        if self.phase != Phase::Opening || self.protection.is_sealed() {
            self.suspicion = Some(Box::new(reason));
        } else {
            self.lose(cx, reason);
        }
    }

    /// Whether nothing was left to do but to end. Our CLOSE_WRITE goes out when everything else is
    /// acknowledged; its own acknowledgement may be what got lost.
    fn both_done_writing(&self) -> bool {
        self.closing.write_sent && self.closing.peer_done_writing
    }

    pub(super) fn on_close_write_acked(&mut self) {
        self.closing.write_acked = true;
    }

    /// Takes the next step towards the end, if it can be taken.
    pub(super) fn advance_close(&mut self, cx: &mut Context<'_>) {
        if !self.closing.write_requested || !self.is_alive() {
            return;
        }
        if !self.closing.write_sent && self.outbox.queued_messages() == 0 {
            self.closing.write_sent = true;
            if self.is_proven() {
                self.phase = Phase::Closing;
            }
            self.want(Control::CloseWrite);
        }
        let done = self.closing.peer_done_writing || self.closing.end_when_delivered;
        if self.closing.write_acked && done && self.is_proven() {
            self.end(cx, LostReason::Closed, Some((end_code::CLOSED, String::new())));
        }
    }

    /// The session is over. What was received whole remains readable.
    pub fn lose(&mut self, cx: &mut Context<'_>, reason: LostReason) {
        self.end(cx, reason, None);
    }

    /// The session is over, and the peer hears `end`.
    fn end(&mut self, cx: &mut Context<'_>, reason: LostReason, end: Option<(u16, String)>) {
        if !self.is_alive() {
            return;
        }
        let (unacknowledged, flushed) = (self.unacknowledged(), self.is_flushed());
        let was_proven = self.is_proven();
        self.phase = Phase::Over;
        // A peer that has not answered is not to hear it later: what would carry it opens sessions.
        let end = end.filter(|_| self.remote_token.is_some());
        self.closing.ends_due = if end.is_some() { ENDS } else { 0 };
        let answers =
            if end.is_some() { (self.rtt.probe_timeout() * 3).max(MIN_DRAIN) } else { Duration::ZERO };
        let remembers = if self.visible { REMEMBERED } else { Duration::ZERO };
        let drain_until = Some(cx.now + answers.max(remembers));
        let why = reason.clone();
        self.closing.over = Some(Box::new(Over { why, flushed, was_proven, end, repeats: 0, drain_until }));
        self.sent.take_oldest(usize::MAX, |_| ());
        self.outbox.clear();
        self.inbox.drop_incomplete();
        self.control.clear();
        if !was_proven {
            self.inbox.clear();
        }
        if self.visible {
            let (peer, addr) = (self.id, self.addr);
            cx.events.push(Event::PeerLost { peer, addr, reason, unacknowledged });
        }
        cx.notes.news |= News::LOST;
    }

    /// A packet came although the session is over: the END was lost, unless the peer ends it as well.
    pub(super) fn repeat_end(&mut self, body: &[u8]) {
        if Frames::new(body).flatten().any(|frame| matches!(frame, Frame::End(_))) {
            self.closing.ends_due = 0;
        } else if let Some(over) = &mut self.closing.over
            && over.end.is_some()
            && over.repeats < MAX_END_REPEATS
        {
            over.repeats += 1;
            self.closing.ends_due = self.closing.ends_due.max(1);
        }
    }

    /// Whether everything sent is acknowledged; of a session that is over, whether it was.
    pub fn is_flushed(&self) -> bool {
        self.closing.over.as_ref().map_or(self.outbox.queued_messages() == 0, |over| over.flushed)
    }

    /// Whether what comes for it is this session's matter: one that ended without a word to the peer, or from it, is
    /// as unknown as one that is forgotten.
    pub fn is_addressed(&self) -> bool {
        let is_said = |over: &Over| {
            over.end.is_some() || matches!(over.why, LostReason::Ended { .. } | LostReason::Closed)
        };
        self.closing.over.as_deref().is_none_or(is_said)
    }

    /// Until when an ended session has to answer, or is remembered; `None`: no longer.
    pub(super) fn drain_until(&self) -> Option<Instant> {
        self.closing.over.as_ref()?.drain_until
    }

    /// Time has come to `now`. An END that has not left by then, as this process was held up or the kernel has no room,
    /// is still to be said.
    pub(super) fn drain(&mut self, now: Instant) {
        let is_unsaid = self.closing.ends_due > 0;
        if let Some(over) = &mut self.closing.over
            && over.drain_until.is_some_and(|until| until <= now)
        {
            over.drain_until = is_unsaid.then_some(now + MIN_DRAIN);
        }
    }

    /// Whether an ended session has nothing left to say and nothing left to read.
    pub fn is_finished(&self) -> bool {
        self.drain_until().is_none() && !self.inbox.has_ready()
    }
}
