//! One-sided operations, at the side whose memory it is.
//!
//! Inputs → outputs: requests, in the order of their channel → memory read and written, answers. All
//! writes and atomics that were done since the last turn are answered by one message. What a peer
//! may touch is what a key names and its region allows; anything else is refused.

use super::Engine;
use super::atomics;
use super::bulk::Recipient;
use super::completion::Completion;
use super::header::{self, ANSWERS, Answer, AtomicKind, AtomicMode, Request, Stretch, Stretches};
use super::matching::PeerIndex;
use super::origin::{MAX_REQUESTS, READ_PIECE_BYTES};
use super::port::MessageKey;
use super::region_table::Registered;
use super::send::Part;
use crate::error::Errno;
use crate::ffi;
use crate::memory::{Access, RegionStretches};
use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// The regions of a request, in the order of its stretches.
pub(super) type Keys = SmallVec<[Arc<Registered>; 1]>;

/// What is held for one peer, of answers and large reads that it has not taken and large writes whose bytes have not
/// come, above which it has to take or send some before it may ask for more; bytes.
const MOST_HELD_BYTES: usize = 16 << 20;
/// What a large write costs until its bytes have come: as many as a peer may have begun come to the most.
pub(super) const AWAITED_COST_BYTES: usize = MOST_HELD_BYTES / MAX_REQUESTS;

/// Of so many bytes of answers it is asked whether the peer has them; until it has, they are held for it.
const ANSWERS_MARK_BYTES: usize = 1 << 20;
/// What an answer costs beside its bytes.
const ANSWER_COST_BYTES: usize = 128;

/// The side whose memory it is.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// By peer: requests below this number are done, except those that get answers of their own.
    done: Vec<u64>,
    /// Peers that have not been told.
    untold: Vec<PeerIndex>,
    /// By peer: bytes of answers and large reads that it has not taken, and the cost of large writes.
    held: HashMap<PeerIndex, usize>,
    /// By peer: bytes of answers since it was last asked whether the peer has them.
    answered: HashMap<PeerIndex, usize>,
    /// Requests that came together with those, in their order.
    waiting: Vec<(PeerIndex, u64, Bytes)>,
}

impl Target {
    /// A session is over: its requests need no answer.
    pub(super) fn forget(&mut self, peer: PeerIndex) {
        self.untold.retain(|other| *other != peer);
        self.held.remove(&peer);
        self.answered.remove(&peer);
        self.waiting.retain(|(other, ..)| *other != peer);
        if let Some(done) = self.done.get_mut(peer as usize) {
            *done = 0;
        }
    }

    /// A peer's requests below this number are done.
    pub(super) fn done_below(&self, peer: PeerIndex) -> u64 {
        self.done.get(peer as usize).copied().unwrap_or(0)
    }

    /// Whether a peer may ask for more.
    pub(super) fn may_ask(&self, peer: PeerIndex) -> bool {
        self.held.get(&peer).is_none_or(|held| *held < MOST_HELD_BYTES)
    }

    /// Whether some peer may not.
    pub(super) fn is_holding_back(&self) -> bool {
        self.held.values().any(|held| *held >= MOST_HELD_BYTES)
    }

    /// So much is held for a peer.
    pub(super) fn hold(&mut self, peer: PeerIndex, bytes: usize) {
        *self.held.entry(peer).or_default() += bytes;
    }

    /// So much is not any more: the peer has taken or refused what it has read, or what it writes has come.
    pub(super) fn release(&mut self, peer: PeerIndex, bytes: usize) {
        if let Entry::Occupied(mut held) = self.held.entry(peer) {
            *held.get_mut() -= bytes;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }

    /// An answer of so many bytes leaves; what is held until it is there, if it is time to ask.
    fn mark(&mut self, peer: PeerIndex, bytes: usize) -> Option<usize> {
        let answered = self.answered.entry(peer).or_default();
        *answered += bytes + ANSWER_COST_BYTES;
        (*answered >= ANSWERS_MARK_BYTES).then(|| std::mem::take(answered))
    }

    fn note(&mut self, peer: PeerIndex, number: u64) {
        let index = peer as usize;
        if index >= self.done.len() {
            self.done.resize(index + 1, 0);
        }
        self.done[index] = number + 1;
        if !self.untold.contains(&peer) {
            self.untold.push(peer);
        }
    }
}

impl Engine {
    /// A request has come: it is served when its peer may ask for more, behind those before it.
    pub(super) fn on_request_in_turn(&mut self, peer: PeerIndex, number: u64, octets: Bytes) {
        if self.target.may_ask(peer) && self.target.waiting.iter().all(|(other, ..)| *other != peer) {
            self.on_request(peer, number, &octets);
        } else {
            self.target.waiting.push((peer, number, octets));
        }
    }

    /// Serves requests whose peers may ask for more by now.
    pub(super) fn serve_waiting(&mut self) {
        for (peer, number, octets) in std::mem::take(&mut self.target.waiting) {
            self.on_request_in_turn(peer, number, octets);
        }
    }

    /// A request's turn has come.
    pub(super) fn on_request(&mut self, peer: PeerIndex, number: u64, octets: &[u8]) {
        let Some((stretches, data, request)) = header::decode_request(octets) else {
            crate::log::malformed(self.port.address(peer));
            return self.answer(peer, &Answer::Failed { number, errno: ffi::EINVAL as u32 });
        };
        let done = match request {
            Request::Write(bytes) => self.on_write(peer, &stretches, data, bytes),
            Request::WriteBulk { number: bulk } => self.on_write_bulk(peer, number, &stretches, data, bulk),
            Request::Read { is_followed } => self.on_read(peer, number, &stretches, is_followed),
            Request::Atomic { kind, operands } => {
                self.on_atomic(peer, number, &stretches, data, kind, operands)
            }
        };
        match done {
            Ok(Done::Now) => self.target.note(peer, number),
            Ok(Done::Answered) => {}
            Err(errno) => self.answer(peer, &Answer::Failed { number, errno: errno.0 as u32 }),
        }
    }

    pub(super) fn answer(&mut self, peer: PeerIndex, answer: &Answer<'_>) {
        let octets = header::encode_answer(answer);
        let mark = self.target.mark(peer, octets.len());
        // A peer that is gone needs none.
        let Ok(number) = self.port.queue(peer, ANSWERS, octets.into(), mark.is_some()) else { return };
        if let Some(bytes) = mark {
            self.target.hold(peer, bytes);
            self.release_when_there(MessageKey { peer, channel: ANSWERS, number }, bytes);
        }
    }

    /// Tells the peers what was done for them since the last time.
    pub(super) fn answer_done(&mut self) {
        for peer in std::mem::take(&mut self.target.untold) {
            let done = self.target.done[peer as usize];
            self.answer(peer, &Answer::DoneBelow(done));
        }
    }

    fn keys(&self, stretches: &[Stretch]) -> Result<Keys, Errno> {
        stretches.iter().map(|stretch| self.regions.get(stretch.key)).collect()
    }

    fn on_write(
        &mut self,
        peer: PeerIndex,
        stretches: &[Stretch],
        data: Option<u64>,
        bytes: &[u8],
    ) -> Result<Done, Errno> {
        let keys = self.keys(stretches)?;
        check(stretches, &keys, bytes.len() as u64, Access::WRITE)?;
        let mut rest = bytes;
        for (stretch, key) in stretches.iter().zip(&keys) {
            let (now, later) = rest.split_at(stretch.len as usize);
            key.region.write(stretch.address, now)?;
            rest = later;
        }
        count(&keys, ffi::FI_REMOTE_WRITE);
        self.note(peer, bytes.len() as u64, data, ffi::FI_RMA | ffi::FI_REMOTE_WRITE);
        Ok(Done::Now)
    }

    fn on_write_bulk(
        &mut self,
        peer: PeerIndex,
        request: u64,
        stretches: &[Stretch],
        data: Option<u64>,
        bulk: u64,
    ) -> Result<Done, Errno> {
        let len = total(stretches);
        let checked =
            self.keys(stretches).and_then(|keys| check(stretches, &keys, len, Access::WRITE).map(|()| keys));
        let keys = match checked {
            Ok(keys) => keys,
            Err(errno) => {
                self.refuse_bulk(peer, bulk);
                return Err(errno);
            }
        };
        let into = RegionStretches {
            stretches: stretches
                .iter()
                .zip(&keys)
                .map(|(stretch, key)| (Arc::clone(&key.region), stretch.address, stretch.len))
                .collect(),
        };
        let recipient = Recipient::Write { request, len, data, keys };
        self.target.hold(peer, AWAITED_COST_BYTES);
        self.want_bulk(peer, bulk, recipient, Box::new(into));
        Ok(Done::Answered)
    }

    /// A large write is in place, or will not come.
    pub(super) fn finish_write(
        &mut self,
        peer: PeerIndex,
        number: u64,
        len: u64,
        data: Option<u64>,
        keys: &Keys,
        result: Result<(), Errno>,
    ) {
        self.target.release(peer, AWAITED_COST_BYTES);
        // One that was closed meanwhile has taken nothing more.
        let is_in_place = keys.iter().all(|key| key.region.is_open());
        match result.and(if is_in_place { Ok(()) } else { Err(Errno::NO_KEY) }) {
            Ok(()) => {
                count(keys, ffi::FI_REMOTE_WRITE);
                self.note(peer, len, data, ffi::FI_RMA | ffi::FI_REMOTE_WRITE);
                self.answer(peer, &Answer::Done(number));
            }
            Err(errno) => self.answer(peer, &Answer::Failed { number, errno: errno.0 as u32 }),
        }
    }

    /// Counts what a peer has done, and reports it if there are data for that.
    fn note(&mut self, peer: PeerIndex, len: u64, data: Option<u64>, flags: u64) {
        let Some(data) = data else { return self.sinks.count(flags, true) };
        let source = self.number_of(peer);
        let flags = flags | ffi::FI_REMOTE_CQ_DATA;
        let completion =
            Completion { context: 0, flags, len: len as usize, buffer: 0, data, tag: 0, source, error: None };
        self.sinks.received(completion, true);
    }

    fn on_read(
        &mut self,
        peer: PeerIndex,
        number: u64,
        stretches: &Stretches,
        is_followed: bool,
    ) -> Result<Done, Errno> {
        check_held(total(stretches))?;
        let mut bytes = Vec::new();
        let keys = self.keys(stretches)?;
        for (stretch, key) in stretches.iter().zip(&keys) {
            key.region.read(stretch.address, stretch.len, &mut bytes)?;
        }
        // An operation counts once, in however many pieces it comes.
        if !is_followed {
            count(&keys, ffi::FI_REMOTE_READ);
            self.sinks.count(ffi::FI_RMA | ffi::FI_REMOTE_READ, true);
        }
        if bytes.len() <= self.limits.eager_bytes {
            self.answer(peer, &Answer::Data { number, bytes: &bytes });
            return Ok(Done::Answered);
        }
        let len = bytes.len();
        let bulk = self.send_part(peer, bytes.into(), Part::Held(len))?;
        self.target.hold(peer, len);
        self.answer(peer, &Answer::Bulk { number, bulk });
        Ok(Done::Answered)
    }

    fn on_atomic(
        &mut self,
        peer: PeerIndex,
        number: u64,
        stretches: &[Stretch],
        data: Option<u64>,
        kind: AtomicKind,
        operands: &[u8],
    ) -> Result<Done, Errno> {
        let element = atomics::element_bytes(kind).ok_or(Errno::NOT_SUPPORTED)? as u64;
        let keys = self.keys(stretches)?;
        let len = total(stretches);
        let expected = match (atomics::has_operands(kind), kind.mode) {
            (false, _) => 0,
            (true, AtomicMode::Compare) => len.saturating_mul(2),
            (true, _) => len,
        };
        check_held(len)?;
        let whole = stretches.iter().all(|stretch| stretch.len.is_multiple_of(element));
        if !whole || operands.len() as u64 != expected {
            return Err(Errno::INVALID);
        }
        let access = Access { reads: kind.mode != AtomicMode::Write, writes: atomics::has_operands(kind) };
        check(stretches, &keys, len, access)?;
        let (operands, comparands) = operands.split_at(operands.len().min(len as usize));
        let (mut before, mut at) = (Vec::new(), 0);
        let turn = atomics::TURN.lock();
        for (stretch, key) in stretches.iter().zip(&keys) {
            let end = at + stretch.len as usize;
            let (now, compare) = (part(operands, at, end), part(comparands, at, end));
            let change = |octets: &mut [u8]| atomics::apply(kind, octets, now, compare);
            match access.writes {
                true => before.extend(key.region.update(stretch.address, stretch.len, change)?),
                false => key.region.read(stretch.address, stretch.len, &mut before)?,
            }
            at = end;
        }
        drop(turn);
        // A region's counters count what changes it (fi_mr(3)), an endpoint's what answers as reads (fi_endpoint(3)).
        count(&keys, if access.writes { ffi::FI_REMOTE_WRITE } else { ffi::FI_REMOTE_READ });
        let direction = if access.reads { ffi::FI_REMOTE_READ } else { ffi::FI_REMOTE_WRITE };
        self.note(peer, len, data, ffi::FI_ATOMIC | direction);
        if kind.mode == AtomicMode::Write {
            return Ok(Done::Now);
        }
        self.answer(peer, &Answer::Data { number, bytes: &before });
        Ok(Done::Answered)
    }
}

/// How a request stands.
enum Done {
    /// It is done; the next collective answer says so.
    Now,
    /// It has, or will get, an answer of its own.
    Answered,
}

/// Checks that the peer may do this with all stretches, and that they are `len` bytes together.
fn check(stretches: &[Stretch], keys: &Keys, len: u64, access: Access) -> Result<(), Errno> {
    if total(stretches) != len {
        return Err(Errno::INVALID);
    }
    stretches
        .iter()
        .zip(keys)
        .try_for_each(|(stretch, key)| key.region.check(stretch.address, stretch.len, access).map(drop))
}

fn total(stretches: &[Stretch]) -> u64 {
    stretches.iter().fold(0, |sum, stretch| sum.saturating_add(stretch.len))
}

/// What is read is held until it is sent: peers ask for no more at a time.
fn check_held(len: u64) -> Result<(), Errno> {
    if len > READ_PIECE_BYTES { Err(Errno::INVALID) } else { Ok(()) }
}

/// Counts an operation at its regions, at each once.
fn count(keys: &Keys, flags: u64) {
    for (index, key) in keys.iter().enumerate() {
        if !keys[..index].iter().any(|other| Arc::ptr_eq(other, key)) {
            key.count(flags);
        }
    }
}

fn part(bytes: &[u8], from: usize, to: usize) -> &[u8] {
    bytes.get(from..to).unwrap_or(&[])
}
