//! Receiving messages that are matched: posted receives, unexpected messages, peek and claim.
//!
//! Inputs → outputs: receives and messages → memory filled and completions. Unexpected messages are
//! bounded: above a limit nothing more is taken from peers (their credit runs out, S5) that hold more than
//! their share of it, unless a receive or a look waits that may need what comes later of them. The bytes of large
//! unexpected messages stay with their senders.

use super::Engine;
use super::bulk::Recipient;
use super::completion::Completion;
use super::header::{self, Envelope};
use super::matching::{Matching, Pattern, PeerIndex};
use super::unexpected::{Body, Held, Unexpected};
use crate::error::Errno;
use crate::ffi;
use crate::memory::Memory;
use bytes::Bytes;
use denrei::Placement;
use std::cell::Cell;
use std::collections::HashMap;

/// While a receive or a look waits that may need them, this many times the limit is taken.
const STRETCH: usize = 16;

/// A receive.
#[derive(Debug)]
pub struct Receive {
    pub memory: Memory,
    /// The application's pointer.
    pub context: usize,
    /// Whether success is reported to the queue.
    pub wanted: bool,
    /// The buffer takes several messages, as long as so many bytes are left.
    pub multi: Option<usize>,
}

/// What to look for, and what to do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// Look, and report what there is.
    Peek,
    /// Look, report, and keep it for a receive with the same context.
    PeekAndClaim,
    /// Look, report and drop it.
    PeekAndDiscard,
    /// Drop what was claimed.
    Discard,
}

/// A receive that waits, or a buffer that takes several.
#[derive(Debug)]
struct Posted {
    receive: Receive,
    /// What it asks for, for the report that nothing came.
    tag: u64,
    /// Bytes of a buffer for several messages that are taken.
    used: usize,
    /// Names such a buffer.
    buffer: u64,
}

impl Posted {
    fn takes_one(&self) -> bool {
        self.receive.multi.is_none()
    }
}

/// A receive that has got its message, of which bytes may be missing.
#[derive(Debug)]
pub(super) struct Matched {
    completion: Completion,
    wanted: bool,
    /// The buffer for several messages that it is part of.
    buffer: Option<u64>,
}

/// A buffer for several messages.
#[derive(Debug, Default)]
struct Buffer {
    /// Messages on their way into it.
    under_way: usize,
    /// Nothing more fits.
    is_full: bool,
}

/// Receives and unexpected messages.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    tagged: Matching<Posted, Unexpected>,
    untagged: Matching<Posted, Unexpected>,
    /// Claimed messages by the context of who claimed them.
    claimed: HashMap<usize, (PeerIndex, u64, Unexpected)>,
    held: Held,
    /// That a peer that is waited for may send no more was said.
    pub(super) told_full: Cell<bool>,
    /// Of whom a message was looked for in vain since the last turn, or of anybody.
    missed: Option<Option<PeerIndex>>,
    buffers: HashMap<u64, Buffer>,
    next_buffer: u64,
}

impl Receiving {
    fn queue(&mut self, tagged: bool) -> &mut Matching<Posted, Unexpected> {
        if tagged { &mut self.tagged } else { &mut self.untagged }
    }

    /// A buffer for several messages takes no more; whether it is given back now, or with the last of those on
    /// their way into it.
    fn give_back(&mut self, id: u64) -> bool {
        if let Some(buffer) = self.buffers.get_mut(&id).filter(|buffer| buffer.under_way > 0) {
            buffer.is_full = true;
            return false;
        }
        self.buffers.remove(&id);
        true
    }

    /// Whether a receive of one message, or a look, waits for a peer's.
    fn waits_for(&self, peer: PeerIndex) -> bool {
        let is_missed = self.missed.is_some_and(|source| source.is_none_or(|source| source == peer));
        is_missed
            || [&self.tagged, &self.untagged]
                .iter()
                .any(|queue| queue.receives_of(peer).any(Posted::takes_one))
    }

    /// Whether messages are taken from a peer; `limit` in bytes is what all may hold while nobody waits for them.
    pub(super) fn takes(&self, peer: PeerIndex, limit: usize) -> bool {
        self.held.has_room(peer, limit) || (self.waits_for(peer) && self.has_stretched_room(peer, limit))
    }

    /// Whether there is room for a peer for which somebody waits. Where there is none the wait may be without end, which is
    /// said once.
    fn has_stretched_room(&self, peer: PeerIndex, limit: usize) -> bool {
        let has_room = self.held.has_room(peer, limit.saturating_mul(STRETCH));
        if !has_room && !self.told_full.replace(true) {
            crate::log::held_back(limit, STRETCH);
        }
        has_room
    }

    /// Whether messages of some peers may wait until others are received.
    pub(super) fn is_holding_back(&self, limit: usize) -> bool {
        self.held.bytes() > limit
    }

    /// Whether receives wait for a peer and nobody else, or messages of its for receives.
    pub(super) fn concerns(&self, peer: PeerIndex) -> bool {
        let is_claimed = self.claimed.values().any(|(source, ..)| *source == peer);
        is_claimed || self.tagged.concerns(peer) || self.untagged.concerns(peer)
    }

    /// A turn begins: who has looked in vain looks again.
    pub(super) fn forget_looks(&mut self) {
        self.missed = None;
    }
}

impl Engine {
    /// What a receive takes: `source` is the application's number, or anybody.
    ///
    /// # Errors
    /// No such peer.
    pub fn pattern(&mut self, source: u64, tag: u64, ignore: u64) -> Result<Pattern, Errno> {
        let source = if source == ffi::FI_ADDR_UNSPEC { None } else { Some(self.peer(source)?) };
        Ok(Pattern { source, tag, ignore })
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// There is no way to the peer it names.
    pub fn receive(&mut self, tagged: bool, pattern: Pattern, receive: Receive) -> Result<(), Errno> {
        let mut posted = Posted { receive, tag: pattern.tag, used: 0, buffer: 0 };
        if posted.receive.multi.is_some() {
            posted.buffer = self.receiving.next_buffer;
            self.receiving.next_buffer += 1;
            self.receiving.buffers.insert(posted.buffer, Buffer::default());
        }
        while let Some((source, tag, message)) = self.receiving.queue(tagged).take_message(&pattern) {
            self.receiving.held.release(source, message.cost());
            let more = self.deliver(tagged, posted, (source, tag, message.data), message.matched());
            // The application may not look for long: who offered it hears now that it may send.
            self.port.send_queued();
            match more {
                Some(more) => posted = more,
                None => return Ok(()),
            }
        }
        if posted.receive.multi.is_none() || pattern.source.is_some() {
            if let Some(errno) = self.why_no_receive(pattern.source) {
                self.fail_posted(tagged, &posted, errno);
                return Ok(());
            }
            self.watch(pattern.source)?;
        }
        self.receiving.queue(tagged).post(pattern, posted);
        Ok(())
    }

    /// Receives the message that was claimed under the receive's context.
    ///
    /// # Errors
    /// `INVALID`: none was.
    pub fn receive_claimed(&mut self, tagged: bool, receive: Receive) -> Result<(), Errno> {
        let claimed = self.receiving.claimed.remove(&receive.context).ok_or(Errno::INVALID)?;
        let (source, tag, message) = claimed;
        let posted = Posted { receive, tag, used: 0, buffer: 0 };
        self.deliver(tagged, posted, (source, tag, message.data), message.matched());
        self.port.send_queued();
        Ok(())
    }

    /// Looks for a message, or drops a claimed one.
    ///
    /// # Errors
    /// `NO_MESSAGE`: there is none. `INVALID`: none was claimed, or one is to be claimed under a context that has one. Others: there is none, and the peer
    /// that it had to be of is lost; said once for each session that breaks.
    pub fn look(&mut self, tagged: bool, pattern: &Pattern, take: Take, context: usize) -> Result<(), Errno> {
        if take == Take::Discard {
            let (source, tag, message) = self.receiving.claimed.remove(&context).ok_or(Errno::INVALID)?;
            self.discard(source, &message);
            // As libfabric's rxm reports it: of no length.
            let completion = self.completion(context, tagged, source, tag, message.data);
            self.found(completion);
            return Ok(());
        }
        // The one that it has claimed would be nobody's any more.
        if take == Take::PeekAndClaim && self.receiving.claimed.contains_key(&context) {
            return Err(Errno::INVALID);
        }
        let Some((source, tag, message)) = self.receiving.queue(tagged).find_message(pattern) else {
            self.receiving.missed = Some(pattern.source);
            return Err(self.why_no_message(pattern.source));
        };
        let (len, data) = (message.matched().len() as usize, message.data);
        let mut completion = self.completion(context, tagged, source, tag, data);
        completion.len = len;
        if take != Take::Peek
            && let Some((source, tag, message)) = self.receiving.queue(tagged).take_message(pattern)
        {
            self.receiving.held.release(source, message.cost());
            match take {
                Take::PeekAndClaim => {
                    self.receiving.claimed.insert(context, (source, tag, message));
                }
                _ => self.discard(source, &message),
            }
        }
        self.found(completion);
        Ok(())
    }

    /// Looking is not receiving: it is reported, but not counted.
    fn found(&self, completion: Completion) {
        if let Some(queue) = &self.sinks.receive {
            queue.push(completion);
        }
    }

    /// Reports that a look has found nothing, and why.
    pub fn found_nothing(&self, tagged: bool, tag: u64, context: usize, errno: Errno) {
        self.found(failure(context, receive_flags(tagged), tag, errno));
    }

    fn discard(&mut self, source: PeerIndex, message: &Unexpected) {
        if let Body::Bulk { number, .. } = message.body {
            self.refuse_bulk(source, number);
            self.leave_now();
        }
    }

    /// Cancels a receive with this context; whether there was one.
    pub fn cancel(&mut self, context: usize) -> bool {
        for tagged in [true, false] {
            let queue = self.receiving.queue(tagged);
            if let Some(posted) = queue.take_receive_called(context, |posted| posted.receive.context) {
                self.fail_posted(tagged, &posted, Errno::CANCELED);
                return true;
            }
        }
        false
    }

    fn fail_posted(&mut self, tagged: bool, posted: &Posted, errno: Errno) {
        let mut flags = receive_flags(tagged);
        if posted.receive.multi.is_some() && self.receiving.give_back(posted.buffer) {
            flags |= ffi::FI_MULTI_RECV;
        }
        self.sinks.received(failure(posted.receive.context, flags, posted.tag, errno), true);
    }

    /// A message to match has come, or several.
    pub(super) fn on_matched(&mut self, source: PeerIndex, octets: Bytes) {
        self.is_served(source);
        let Some(messages) = header::decode_batch(&octets) else {
            return self.match_one(source, &octets, &octets, false);
        };
        for message in messages {
            match message {
                Some(message) => self.match_one(source, message, &octets, true),
                None => crate::log::malformed(self.port.address(source)),
            }
        }
    }

    /// Gives the message `octets`, which lie within `whole`, to a receive, or keeps it for one.
    fn match_one(&mut self, source: PeerIndex, octets: &[u8], whole: &Bytes, is_of_several: bool) {
        let Some((Envelope { tag, data }, matched)) = header::decode_matched(octets) else {
            return crate::log::malformed(self.port.address(source));
        };
        let (tagged, tag) = (tag.is_some(), tag.unwrap_or(0));
        let queue = self.receiving.queue(tagged);
        let Some(place) = queue.find_receive(source, tag) else {
            let message = Unexpected::keep(data, matched, whole, is_of_several);
            let cost = message.cost();
            queue.keep(source, tag, message);
            self.receiving.held.add(source, cost);
            return;
        };
        if queue.receive_mut(place).takes_one() {
            let posted = queue.take_receive(place);
            self.deliver(tagged, posted, (source, tag, data), matched);
            return;
        }
        // A buffer for several keeps its place in the queue.
        let empty = Posted {
            receive: Receive { memory: Memory::default(), context: 0, wanted: false, multi: Some(0) },
            tag: 0,
            used: 0,
            buffer: 0,
        };
        let posted = std::mem::replace(queue.receive_mut(place), empty);
        let more = self.deliver(tagged, posted, (source, tag, data), matched);
        let queue = self.receiving.queue(tagged);
        match more {
            Some(posted) => *queue.receive_mut(place) = posted,
            None => drop(queue.take_receive(place)),
        }
    }

    /// Gives a message to a receive: whose it is, its tag and its completion data, where its bytes are.
    /// Returns the receive if it takes more.
    fn deliver(
        &mut self,
        tagged: bool,
        mut posted: Posted,
        (source, tag, data): (PeerIndex, u64, Option<u64>),
        message: header::Matched<'_>,
    ) -> Option<Posted> {
        let mut completion = self.completion(posted.receive.context, tagged, source, tag, data);
        let wanted = posted.receive.wanted;
        let len = usize::try_from(message.len()).unwrap_or(usize::MAX);
        let room = posted.receive.memory.len() - posted.used;
        completion.len = len.min(room);
        if len > room {
            completion.error = Some((Errno::TRUNCATED, len - room));
        }
        let (memory, more) = match posted.receive.multi {
            None => (posted.receive.memory, None),
            Some(least) => {
                let window = posted.receive.memory.window(posted.used, completion.len);
                // Of no bytes as well.
                let at = posted.receive.memory.window(posted.used, room).address();
                posted.used += completion.len;
                let is_full = posted.receive.memory.len() - posted.used < least.max(1);
                let buffer = self.receiving.buffers.entry(posted.buffer).or_default();
                buffer.under_way += 1;
                buffer.is_full = is_full;
                (window, Some((posted, is_full, at)))
            }
        };
        completion.buffer = more.as_ref().map_or(memory.address(), |(_, _, at)| *at);
        let buffer = more.as_ref().map(|(posted, ..)| posted.buffer);
        let matched = Matched { completion, wanted, buffer };
        match message {
            header::Matched::Eager(bytes) => {
                memory.write(0, bytes);
                drop(memory);
                self.finish_receive(matched, Ok(()));
            }
            header::Matched::Bulk { number, .. } => {
                // One of no bytes is offered as an octet that is for nobody.
                let into: Box<dyn Placement> = Box::new(if len == 0 { Memory::default() } else { memory });
                self.want_bulk(source, number, Recipient::Receive(matched), into);
            }
        }
        more.filter(|(_, is_full, _)| !is_full).map(|(posted, ..)| posted)
    }

    pub(super) fn finish_receive(&mut self, matched: Matched, result: Result<(), Errno>) {
        let Matched { mut completion, wanted, buffer } = matched;
        if let Err(errno) = result {
            completion.error = Some((errno, 0));
        }
        if let Some(id) = buffer
            && let Some(buffer) = self.receiving.buffers.get_mut(&id)
        {
            buffer.under_way -= 1;
            if buffer.is_full && buffer.under_way == 0 {
                self.receiving.buffers.remove(&id);
                completion.flags |= ffi::FI_MULTI_RECV;
            }
        }
        // A buffer that is given back is always reported.
        let released = completion.flags & ffi::FI_MULTI_RECV != 0;
        self.sinks.received(completion, wanted || released);
    }

    fn completion(
        &mut self,
        context: usize,
        tagged: bool,
        source: PeerIndex,
        tag: u64,
        data: Option<u64>,
    ) -> Completion {
        let flags = receive_flags(tagged) | if data.is_some() { ffi::FI_REMOTE_CQ_DATA } else { 0 };
        let source = self.number_of(source);
        Completion { context, flags, len: 0, buffer: 0, data: data.unwrap_or(0), tag, source, error: None }
    }

    /// Whether an unexpected message waits.
    #[cfg(test)]
    pub(super) fn receiving_is_busy(&self) -> bool {
        self.receiving.held.bytes() > 0
    }

    /// A session is over: large messages that nobody has taken are gone.
    pub(super) fn forget_offers(&mut self, peer: PeerIndex) {
        let is_gone = |message: &Unexpected| matches!(message.body, Body::Bulk { .. });
        let mut freed = 0;
        let mut gone = |message: &Unexpected| {
            let is_gone = is_gone(message);
            freed += if is_gone { message.cost() } else { 0 };
            is_gone
        };
        self.receiving.tagged.drop_messages(peer, &mut gone);
        self.receiving.untagged.drop_messages(peer, &mut gone);
        self.receiving.held.release(peer, freed);
        self.receiving.claimed.retain(|_, (source, _, message)| *source != peer || !is_gone(message));
    }

    /// Receives that wait for this peer alone fail; whether there were any.
    pub(super) fn fail_directed(&mut self, peer: PeerIndex, errno: Errno) -> bool {
        let mut any = false;
        for tagged in [true, false] {
            let posted = self.receiving.queue(tagged).take_directed(peer);
            any |= self.fail_all(tagged, &posted, errno);
        }
        any
    }

    /// Receives of one message from anybody fail; whether there were any.
    pub(super) fn fail_undirected(&mut self, errno: Errno) -> bool {
        let mut any = false;
        for tagged in [true, false] {
            let posted = self.receiving.queue(tagged).take_undirected_if(Posted::takes_one);
            any |= self.fail_all(tagged, &posted, errno);
        }
        any
    }

    fn fail_all(&mut self, tagged: bool, posted: &[Posted], errno: Errno) -> bool {
        for posted in posted {
            self.fail_posted(tagged, posted, errno);
        }
        !posted.is_empty()
    }

    /// Whether a buffer for several messages waits.
    pub(super) fn has_buffers(&self) -> bool {
        !self.receiving.buffers.is_empty()
    }

    /// Whether a receive of one message from anybody waits.
    pub(super) fn receives_from_anybody(&self) -> bool {
        let queues = [&self.receiving.tagged, &self.receiving.untagged];
        queues.into_iter().flat_map(Matching::undirected).any(Posted::takes_one)
    }
}

/// What a receive that got nothing is reported as.
fn failure(context: usize, flags: u64, tag: u64, errno: Errno) -> Completion {
    Completion {
        context,
        flags,
        len: 0,
        buffer: 0,
        data: 0,
        tag,
        source: ffi::FI_ADDR_UNSPEC,
        error: Some((errno, 0)),
    }
}

fn receive_flags(tagged: bool) -> u64 {
    ffi::FI_RECV | if tagged { ffi::FI_TAGGED } else { ffi::FI_MSG }
}
