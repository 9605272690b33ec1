//! Sending messages that are matched: at once when small or the first of a row, offered when large.
//!
//! Inputs → outputs: a message, to whom, how it is to be reported → denrei messages, and a report
//! when the application has its buffer back, or when the peer has the message. Small messages are
//! copied, and reported at once; large ones are sent from where they lie.
//!
//! Small messages that the application sends in a row to one peer travel together, and so do the offers of
//! large ones: the first ones leave at once, further ones as one batch with the next [`MAX_DEFERRED`], the next look for
//! completions, or by the keeper's hand, whatever is first. What the peer has to acknowledge by itself
//! goes by itself.

use super::header::{self, Batch, Envelope, MATCHED, MAX_HEADER_BYTES, MAX_MATCHED_HEADER};
use super::matching::PeerIndex;
use super::port::MessageKey;
use super::{Engine, Report};
use crate::error::Errno;
use crate::ffi;
use crate::memory::Memory;
use bytes::Bytes;
use std::collections::{HashMap, HashSet};

/// Messages of a row that leave at once: an exchange is never slowed down.
const DIRECT: u32 = 2;
/// The first message of a row is sent at once up to so many eager sizes: nothing is under way that would
/// hide the exchange of offer and acceptance, which costs as much as a copy of 128 KiB, and where ranks share
/// cores a turn of all of them.
const FIRST_EAGER_SIZES: usize = 8;
/// Messages that may wait for each other.
const MAX_DEFERRED: u32 = 32;
/// Bytes that may wait: what one datagram carries on loopback.
const MAX_DEFERRED_BYTES: usize = 32 * 1024;
/// Bytes after which the peer's acknowledgement is asked for, so that it is known what is under way.
const MARK_EVERY_BYTES: usize = 256 * 1024;

/// Where a message's bytes are.
#[derive(Debug)]
pub enum Payload<'a> {
    /// To be copied before the call returns.
    Copied(&'a [u8]),
    /// The application's until the operation is reported.
    Posted(Memory),
}

impl Payload<'_> {
    /// Bytes in all.
    pub fn len(&self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Posted(memory) => memory.len(),
        }
    }

    pub(super) fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Copied(bytes) => out.extend_from_slice(bytes),
            Self::Posted(memory) => memory.append_to(out),
        }
    }
}

/// A message to send.
#[derive(Debug)]
pub struct Send<'a> {
    /// The application's number of the peer.
    pub to: u64,
    pub tag: Option<u64>,
    pub data: Option<u64>,
    pub payload: Payload<'a>,
    /// `None`: not reported at all, the payload is copied.
    pub report: Option<Report>,
    pub until: Until,
}

/// When a message is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Its buffer is free.
    Free,
    /// The peer has it.
    Delivered,
    /// A receive has taken it: it is offered however small it is.
    Matched,
}

/// What a message on the wire stands for.
#[derive(Debug)]
enum Sent {
    /// A message that is reported, and what else it stands for, as below.
    Message(Report, usize),
    /// Everything that was sent at once so far, as far as it was not counted before.
    Mark(usize),
    /// The bytes of a one-sided operation.
    Part(Part),
    /// Nothing that is reported.
    Nothing,
}

/// Whose the bytes of a one-sided operation are.
#[derive(Debug)]
pub(super) enum Part {
    /// Of one that this side has begun.
    Own(super::origin::OperationId),
    /// So many, held for a peer until it has them.
    Held(usize),
}

/// What a small message does.
#[derive(Clone, Copy, Debug)]
struct Waits {
    /// It travels with others.
    joins: bool,
    /// All that waits leaves now.
    leaves: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Unacknowledged {
    bytes: usize,
    since_mark: usize,
    /// Large messages.
    large: usize,
    /// Why some of it never was, though all of it had been reported as sent: said to whoever sends next.
    lost: Option<Errno>,
}

/// Large messages to one peer that it has not got: it keeps their offers, and bears with no more than twice as many.
const MOST_LARGE: usize = super::bulk::MOST_OFFERED / 2;

/// What was sent.
#[derive(Debug, Default)]
pub(super) struct Sending {
    under_way: HashMap<MessageKey, Sent>,
    /// By peer.
    unacknowledged: Vec<Unacknowledged>,
    /// Who was sent to last, and how many in a row.
    last: PeerIndex,
    burst: u32,
    /// How often the application had looked for completions then.
    looks: u64,
    /// Messages that wait for each other, and their bytes; those that go together are in `batch`, for `last`.
    deferred: u32,
    deferred_bytes: usize,
    batch: Batch,
    /// Nobody is there to send what waits for company: nothing waits.
    pub(super) at_once: bool,
}

impl Sending {
    fn of(&mut self, peer: PeerIndex) -> &mut Unacknowledged {
        let index = peer as usize;
        if index >= self.unacknowledged.len() {
            self.unacknowledged.resize(index + 1, Unacknowledged::default());
        }
        &mut self.unacknowledged[index]
    }
}

impl Engine {
    /// Sends a message. `true`: it waits for company, and somebody has to see that it leaves.
    ///
    /// # Errors
    /// `AGAIN`: too much is under way. Others: there is no such peer, or it is gone, and what was reported as sent is
    /// lost with it; said once for each session that breaks.
    pub fn send(&mut self, send: Send<'_>) -> Result<bool, Errno> {
        let peer = self.peer(send.to)?;
        self.check_nothing_lost(peer)?;
        send.report.as_ref().map_or(Ok(()), |report| self.sinks.check_room_for(report))?;
        let envelope = Envelope { tag: send.tag, data: send.data };
        let len = send.payload.len();
        let is_large = len > self.most_at_once(peer) || send.until == Until::Matched;
        if is_large && self.sending.of(peer).large >= MOST_LARGE {
            return Err(Errno::AGAIN);
        }
        if !is_large {
            self.check_room(peer)?;
        }
        // Of a large message only the offer leaves now.
        let waits = self.waits_for_company(peer, if is_large { 0 } else { len });
        if waits.joins && !is_large && send.until == Until::Free {
            self.push_batch(peer, envelope, &send.payload);
            if let Some(report) = send.report {
                self.sinks.transmitted(&report, Ok(()));
            }
        } else {
            let send_one = if is_large { Self::send_bulk } else { Self::send_alone };
            // The next ones fail for the same reason, and not in company.
            send_one(self, peer, envelope, send).inspect_err(|_| self.sending.burst = 0)?;
        }
        if waits.leaves {
            self.leave_now();
        }
        Ok(!waits.leaves)
    }

    /// Who only sends learns nowhere else that a peer is gone. What was lost was not for another process in its place, but
    /// one that was only out of reach lacks it, and would take the next message for it.
    fn check_nothing_lost(&mut self, peer: PeerIndex) -> Result<(), Errno> {
        if self.sending.of(peer).lost.is_none() {
            return Ok(());
        }
        let (is_there, is_another) = (self.port.has_session(peer), self.port.has_successor(peer));
        if is_there && is_another.is_none() {
            // It is not known yet who answers.
            return Ok(());
        }
        let lost = self.sending.of(peer).lost.take();
        lost.filter(|_| !is_there || is_another == Some(false)).map_or(Ok(()), Err)
    }

    /// Who sends nothing more, and waits, is told by a completion without context, as of what is injected.
    pub(super) fn tell_lost(&mut self, peer: PeerIndex) {
        if let Err(errno) = self.check_nothing_lost(peer) {
            let report = Report { context: 0, flags: ffi::FI_SEND | ffi::FI_MSG, wanted: false };
            self.sinks.transmitted(&report, Err(errno));
        }
    }

    /// Peers that are forgotten have lost nothing.
    pub(super) fn forget_sent(&mut self, gone: &HashSet<PeerIndex>) {
        gone.iter().for_each(|peer| *self.sending.of(*peer) = Unacknowledged::default());
    }

    /// Up to which size a message for a peer is sent at once.
    fn most_at_once(&mut self, peer: PeerIndex) -> usize {
        let looks = self.sinks.transmit.as_ref().map_or(0, |queue| queue.looks());
        // Completions may have been there without any work.
        if std::mem::replace(&mut self.sending.looks, looks) != looks {
            self.sending.burst = 0;
        }
        let is_first = self.sending.last != peer || self.sending.burst == 0;
        self.limits.eager_bytes * if is_first { FIRST_EAGER_SIZES } else { 1 }
    }

    /// Queues a small message of its own.
    fn send_alone(&mut self, peer: PeerIndex, envelope: Envelope, send: Send<'_>) -> Result<(), Errno> {
        self.close_batch();
        let len = send.payload.len();
        // No room is left over: it would be given back, or counted in an allocation of its own.
        let mut message = Vec::with_capacity(header::eager_header_bytes(envelope) + len);
        header::encode_matched(envelope, None, &mut message);
        send.payload.append_to(&mut message);
        let before = *self.sending.of(peer);
        self.count(peer, len);
        let mark = self.mark(peer);
        let (sent, at_once) = match (send.report, mark) {
            (Some(report), mark) if send.until != Until::Free => {
                (Sent::Message(report, mark.unwrap_or(0)), None)
            }
            (report, Some(mark)) => (Sent::Mark(mark), report),
            (report, None) => (Sent::Nothing, report),
        };
        self.queue(peer, message, sent).inspect_err(|_| *self.sending.of(peer) = before)?;
        if len > self.limits.eager_bytes {
            self.queued_long(peer);
        }
        if let Some(report) = at_once {
            self.sinks.transmitted(&report, Ok(()));
        }
        Ok(())
    }

    /// Adds a small message to the batch, which is for this peer.
    fn push_batch(&mut self, peer: PeerIndex, envelope: Envelope, payload: &Payload<'_>) {
        let len = payload.len();
        // A larger one would be offered.
        if self.sending.batch.len() + Batch::ROOM + len > self.limits.eager_bytes {
            self.close_batch();
        }
        self.count(peer, len);
        self.sending.batch.push(envelope, len, |out| payload.append_to(out));
    }

    /// Queues the batch, if there is one.
    pub(super) fn close_batch(&mut self) {
        let Some(message) = self.sending.batch.take() else { return };
        let peer = self.sending.last;
        let sent = self.mark(peer).map_or(Sent::Nothing, Sent::Mark);
        // Queues have room without limit, so it fails only with its session: then it is lost as what was
        // queued before it.
        if let Err(errno) = self.queue(peer, message, sent) {
            crate::log::refused(self.port.address(peer), errno.0.unsigned_abs());
        }
    }

    fn queue(&mut self, peer: PeerIndex, message: Vec<u8>, sent: Sent) -> Result<(), Errno> {
        let report = !matches!(sent, Sent::Nothing);
        let number = self.port.queue(peer, MATCHED, message.into(), report)?;
        if report {
            self.sending.under_way.insert(MessageKey { peer, channel: MATCHED, number }, sent);
        }
        Ok(())
    }

    fn send_bulk(&mut self, peer: PeerIndex, envelope: Envelope, send: Send<'_>) -> Result<(), Errno> {
        let len = send.payload.len() as u64;
        let bytes = match send.payload {
            // What is nothing is not offered.
            _ if len == 0 => Bytes::from_static(&[0]),
            Payload::Posted(memory) => memory.into_bytes(),
            Payload::Copied(bytes) if send.until == Until::Matched => Bytes::copy_from_slice(bytes),
            Payload::Copied(_) => return Err(Errno::TOO_LARGE),
        };
        self.close_batch();
        let sent = send.report.map_or(Sent::Nothing, |report| Sent::Message(report, 0));
        let number = self.queue_bulk(peer, bytes)?;
        self.sending.under_way.insert(MessageKey { peer, channel: header::BULK, number }, sent);
        self.sending.of(peer).large += 1;
        let mut message = Vec::with_capacity(MAX_MATCHED_HEADER);
        header::encode_matched(envelope, Some((number, len)), &mut message);
        // The first has opened the session, so the second does not fail but with it: then the report says so.
        if let Err(errno) = self.port.queue(peer, MATCHED, message.into(), false) {
            crate::log::refused(self.port.address(peer), errno.0.unsigned_abs());
        }
        Ok(())
    }

    fn queue_bulk(&mut self, peer: PeerIndex, bytes: Bytes) -> Result<u64, Errno> {
        let number = self.port.queue(peer, header::BULK, bytes, true)?;
        self.queued_long(peer);
        Ok(number)
    }

    /// Offers the bytes of a one-sided operation; the number of the offer.
    pub(super) fn send_part(&mut self, peer: PeerIndex, bytes: Bytes, part: Part) -> Result<u64, Errno> {
        let number = self.queue_bulk(peer, bytes)?;
        let key = MessageKey { peer, channel: header::BULK, number };
        self.sending.under_way.insert(key, Sent::Part(part));
        Ok(number)
    }

    /// So much is held for a peer until it has this message.
    pub(super) fn release_when_there(&mut self, key: MessageKey, bytes: usize) {
        self.sending.under_way.insert(key, Sent::Part(Part::Held(bytes)));
    }

    /// Whether more may be sent at once to a peer.
    pub(super) fn check_room(&mut self, peer: PeerIndex) -> Result<(), Errno> {
        if self.sending.of(peer).bytes > self.limits.unacknowledged_bytes {
            Err(Errno::AGAIN)
        } else {
            Ok(())
        }
    }

    /// Counts what is sent at once.
    fn count(&mut self, peer: PeerIndex, len: usize) {
        let state = self.sending.of(peer);
        state.bytes += len + MAX_HEADER_BYTES;
        state.since_mark += len + MAX_HEADER_BYTES;
    }

    /// What to ask the acknowledgement of, if it is time.
    fn mark(&mut self, peer: PeerIndex) -> Option<usize> {
        let state = self.sending.of(peer);
        (state.since_mark >= MARK_EVERY_BYTES).then(|| std::mem::take(&mut state.since_mark))
    }

    /// So much of what was sent at once is acknowledged.
    fn unmark(&mut self, peer: PeerIndex, bytes: usize) {
        let state = self.sending.of(peer);
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    /// Whether a small message for a peer waits for company.
    fn waits_for_company(&mut self, peer: PeerIndex, len: usize) -> Waits {
        if self.sending.last != peer {
            self.close_batch();
            self.sending.last = peer;
            self.sending.burst = 0;
        }
        let sending = &mut self.sending;
        sending.burst += 1;
        sending.deferred += 1;
        sending.deferred_bytes += len;
        let joins = !sending.at_once && sending.burst > DIRECT;
        let is_full = sending.deferred >= MAX_DEFERRED || sending.deferred_bytes >= MAX_DEFERRED_BYTES;
        Waits { joins, leaves: !joins || is_full }
    }

    /// A small request was queued for a peer: it waits for company, or leaves with what does.
    pub(super) fn joins_row(&mut self, peer: PeerIndex, len: usize) {
        if self.waits_for_company(peer, len).leaves {
            self.leave_now();
        }
    }

    /// Whether something waits for company, and somebody has to see that it leaves.
    pub fn has_deferred(&self) -> bool {
        self.sending.deferred > 0
    }

    /// Sends what was queued, and what waits.
    pub(super) fn leave_now(&mut self) {
        self.close_batch();
        self.sending.deferred = 0;
        self.sending.deferred_bytes = 0;
        self.port.send_queued();
    }

    /// The application looks for completions: what it sends next is not of this row.
    pub(super) fn burst_ends(&mut self) {
        self.sending.burst = 0;
        if self.sending.deferred > 0 {
            self.leave_now();
        }
    }

    /// Sends what waits for company, which the application has gone away from; whether there was any.
    pub fn send_deferred(&mut self) -> bool {
        let waited = self.sending.deferred > 0;
        self.leave_now();
        waited
    }

    pub(super) fn on_acknowledged(&mut self, key: MessageKey) {
        let sent = self.sending.under_way.remove(&key);
        if key.channel == header::BULK && matches!(sent, Some(Sent::Message(..) | Sent::Nothing)) {
            let state = self.sending.of(key.peer);
            state.large = state.large.saturating_sub(1);
        }
        match sent {
            Some(Sent::Message(report, bytes)) => {
                self.unmark(key.peer, bytes);
                self.sinks.transmitted(&report, Ok(()));
            }
            Some(Sent::Mark(bytes)) => self.unmark(key.peer, bytes),
            Some(Sent::Part(Part::Own(operation))) => self.finish_part(operation, Ok(())),
            Some(Sent::Part(Part::Held(bytes))) => self.target.release(key.peer, bytes),
            Some(Sent::Nothing) | None => {}
        }
    }

    /// A session is over: what was not acknowledged fails. But a peer that has gone in order has taken what
    /// it wanted of the messages sent at once, and the acknowledgement of the last one may have been for an
    /// earlier copy of it: those are done with, as if refused.
    pub(super) fn fail_sends(&mut self, peer: PeerIndex, errno: Errno, in_order: bool) {
        let mut keys: Vec<MessageKey> =
            self.sending.under_way.keys().filter(|key| key.peer == peer).copied().collect();
        keys.sort_unstable();
        let mut is_told = in_order;
        for key in keys {
            match self.sending.under_way.remove(&key) {
                Some(Sent::Message(report, _)) => {
                    let is_done = in_order && key.channel == MATCHED;
                    is_told |= !is_done;
                    self.sinks.transmitted(&report, if is_done { Ok(()) } else { Err(errno) });
                }
                Some(Sent::Part(Part::Own(operation))) => self.finish_part(operation, Err(errno)),
                _ => {}
            }
        }
        let state = self.sending.of(peer);
        // What went with a session before this one is not had by now.
        let lost = if state.bytes > 0 { Some(errno) } else { state.lost }.filter(|_| !is_told);
        *state = Unacknowledged { lost, ..Unacknowledged::default() };
        if self.sending.last == peer {
            self.sending.batch.take();
        }
    }
}
