//! One-sided operations, at the side that wants them: write, read, atomic.
//!
//! Inputs → outputs: operations → requests on a channel of their own, in order; answers → memory
//! filled and reports. Requests are named by their numbers on the channel. A large write is offered;
//! a large read is asked for in pieces, a few at a time, so that the target never holds more than
//! those. A write is reported when the target has done it, so a report always means delivery. Small
//! requests in a row travel together, as messages do.

use super::bulk::Recipient;
use super::header::{
    self, Answer, AtomicKind, MAX_HEADER_BYTES, MAX_STRETCHES, REQUESTS, Request, Stretch, Stretches,
};
use super::matching::PeerIndex;
use super::send::{Part, Payload};
use super::{Engine, Report};
use crate::error::Errno;
use crate::memory::Memory;
use std::collections::VecDeque;

/// What a read asks for at a time. Held by the target until it is sent; bytes.
pub(super) const READ_PIECE_BYTES: u64 = 1 << 20;
/// Pieces of one read that are asked for at a time.
const READ_WINDOW: usize = 4;
/// Requests to one peer that wait for answers, at most.
pub(super) const MAX_REQUESTS: usize = 8192;

/// Names an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(usize);

/// What all one-sided operations have.
#[derive(Debug)]
pub struct OneSided {
    /// The application's number of the peer.
    pub to: u64,
    /// Where at the peer.
    pub stretches: Stretches,
    /// Remote completion data.
    pub data: Option<u64>,
    pub report: Report,
}

/// A read of which not all has been asked for.
#[derive(Debug)]
struct Reading {
    peer: PeerIndex,
    stretches: Stretches,
    memory: Memory,
    /// Bytes that were asked for, and all.
    asked: u64,
    total: u64,
}

/// An operation that is not done.
#[derive(Debug)]
struct Operation {
    report: Report,
    /// Things that it waits for.
    left: usize,
    failed: Option<Errno>,
    reading: Option<Reading>,
}

/// A request that was not answered.
#[derive(Debug)]
struct Asked {
    operation: OperationId,
    /// Answered with all others below a number, not by itself.
    collective: bool,
    /// What an answer's bytes are for.
    memory: Memory,
    bytes: usize,
}

/// A piece of a read that is on its way.
#[derive(Debug)]
pub(super) struct Piece {
    operation: OperationId,
}

/// Requests to one peer.
#[derive(Debug, Default)]
struct Requests {
    /// Number of the first in `asked`.
    base: u64,
    asked: VecDeque<Option<Asked>>,
    bytes: usize,
}

impl Requests {
    fn take(&mut self, number: u64) -> Option<Asked> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let asked = self.asked.get_mut(index)?.take()?;
        self.bytes -= asked.bytes;
        while let Some(None) = self.asked.front() {
            self.asked.pop_front();
            self.base += 1;
        }
        Some(asked)
    }
}

/// The side that wants something.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// By peer.
    requests: Vec<Requests>,
    operations: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Origin {
    fn requests(&mut self, peer: PeerIndex) -> &mut Requests {
        let index = peer as usize;
        if index >= self.requests.len() {
            self.requests.resize_with(index + 1, Requests::default);
        }
        &mut self.requests[index]
    }

    fn begin(&mut self, report: Report, left: usize, reading: Option<Reading>) -> OperationId {
        let operation = Some(Operation { report, left, failed: None, reading });
        let index = self.free.pop().unwrap_or_else(|| {
            self.operations.push(None);
            self.operations.len() - 1
        });
        self.operations[index] = operation;
        OperationId(index)
    }

    fn forget(&mut self, id: OperationId) -> Option<Operation> {
        let operation = self.operations[id.0].take()?;
        self.free.push(id.0);
        Some(operation)
    }
}

impl Engine {
    /// Writes to a peer's memory.
    ///
    /// # Errors
    /// `AGAIN`: too much is under way. `TOO_LARGE`: cannot be copied. Others: no such peer.
    pub fn write(&mut self, operation: OneSided, payload: Payload<'_>) -> Result<(), Errno> {
        let OneSided { to, stretches, data, report } = operation;
        let peer = self.check_request(to, &stretches, payload.len() as u64, &report)?;
        if payload.len() <= self.limits.eager_bytes {
            let mut message = Vec::with_capacity(MAX_HEADER_BYTES + payload.len());
            header::encode_request(&stretches, data, &Request::Write(&[]), &mut message);
            payload.append_to(&mut message);
            let id = self.origin.begin(report, 1, None);
            return self.ask(peer, message, id, true, Memory::default());
        }
        let Payload::Posted(memory) = payload else { return Err(Errno::TOO_LARGE) };
        // Done when the target says so and the transport needs the buffer no more.
        let id = self.origin.begin(report, 2, None);
        let number = match self.send_part(peer, memory.into_bytes(), Part::Own(id)) {
            Ok(number) => number,
            Err(errno) => return self.take_back(id, errno),
        };
        let mut message = Vec::with_capacity(MAX_HEADER_BYTES);
        header::encode_request(&stretches, data, &Request::WriteBulk { number }, &mut message);
        // It fails only with its session, as what was offered does: the report says so when that is told of.
        if let Err(errno) = self.request(peer, message, id, false, Memory::default()) {
            self.finish_part(id, Err(errno));
        }
        self.leave_now();
        Ok(())
    }

    /// Reads from a peer's memory.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn read(&mut self, operation: OneSided, memory: Memory) -> Result<(), Errno> {
        let OneSided { to, stretches, report, .. } = operation;
        let total = memory.len() as u64;
        let peer = self.check_request(to, &stretches, total, &report)?;
        let reading = Reading { peer, stretches, memory, asked: 0, total };
        let id = self.origin.begin(report, 0, Some(reading));
        // Nothing to read is asked for too: it finds out whether the peer and the keys are there.
        if let Err(errno) = self.ask_piece(id) {
            return self.take_back(id, errno);
        }
        self.ask_pieces(id);
        // A large one is on its way for long, and keeps nobody company.
        if total > self.limits.eager_bytes as u64 {
            self.leave_now();
        } else {
            self.joins_row(peer, MAX_HEADER_BYTES);
        }
        Ok(())
    }

    /// Computes with a peer's memory: `operands`, and comparands after them. What was there before
    /// goes to `result`.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn atomic(
        &mut self,
        operation: OneSided,
        kind: AtomicKind,
        operands: &[u8],
        result: Option<Memory>,
    ) -> Result<(), Errno> {
        let OneSided { to, stretches, data, report } = operation;
        let len = stretches.iter().map(|stretch| stretch.len).sum();
        let peer = self.check_request(to, &stretches, len, &report)?;
        if operands.len() > 2 * self.limits.eager_bytes {
            return Err(Errno::TOO_LARGE);
        }
        let mut message = Vec::with_capacity(MAX_HEADER_BYTES + operands.len());
        header::encode_request(&stretches, data, &Request::Atomic { kind, operands: &[] }, &mut message);
        message.extend_from_slice(operands);
        let id = self.origin.begin(report, 1, None);
        self.ask(peer, message, id, result.is_none(), result.unwrap_or_default())
    }

    fn check_request(
        &mut self,
        to: u64,
        stretches: &[Stretch],
        len: u64,
        report: &Report,
    ) -> Result<PeerIndex, Errno> {
        let peer = self.peer(to)?;
        self.sinks.check_room_for(report)?;
        let there: u64 = stretches.iter().fold(0, |sum, stretch| sum.saturating_add(stretch.len));
        if stretches.is_empty() || stretches.len() > MAX_STRETCHES || there != len {
            return Err(Errno::INVALID);
        }
        let limit = self.limits.unacknowledged_bytes;
        let requests = self.origin.requests(peer);
        if requests.asked.len() >= MAX_REQUESTS || requests.bytes > limit {
            return Err(Errno::AGAIN);
        }
        Ok(peer)
    }

    /// The operation could not be begun: nothing is reported.
    fn take_back(&mut self, id: OperationId, errno: Errno) -> Result<(), Errno> {
        self.origin.forget(id);
        Err(errno)
    }

    fn ask(
        &mut self,
        peer: PeerIndex,
        message: Vec<u8>,
        operation: OperationId,
        collective: bool,
        memory: Memory,
    ) -> Result<(), Errno> {
        let asked = self.request(peer, message, operation, collective, memory);
        asked.or_else(|errno| self.take_back(operation, errno))
    }

    fn request(
        &mut self,
        peer: PeerIndex,
        message: Vec<u8>,
        operation: OperationId,
        collective: bool,
        memory: Memory,
    ) -> Result<(), Errno> {
        let bytes = message.len();
        self.port.queue(peer, REQUESTS, message.into(), false)?;
        let requests = self.origin.requests(peer);
        requests.bytes += bytes;
        requests.asked.push_back(Some(Asked { operation, collective, memory, bytes }));
        self.joins_row(peer, bytes);
        Ok(())
    }

    /// Asks for pieces of a read until enough are on their way.
    fn ask_pieces(&mut self, id: OperationId) {
        loop {
            let Some(operation) = &self.origin.operations[id.0] else { return };
            let more = operation.reading.as_ref().is_some_and(|reading| reading.asked < reading.total);
            if !more || operation.left >= READ_WINDOW || operation.failed.is_some() {
                return;
            }
            if let Err(errno) = self.ask_piece(id)
                && let Some(operation) = &mut self.origin.operations[id.0]
            {
                operation.failed = Some(errno);
            }
        }
    }

    fn ask_piece(&mut self, id: OperationId) -> Result<(), Errno> {
        let Some(operation) = &mut self.origin.operations[id.0] else { return Ok(()) };
        let Some(reading) = &mut operation.reading else { return Ok(()) };
        let len = READ_PIECE_BYTES.min(reading.total - reading.asked);
        let peer = reading.peer;
        let stretches = cut(&reading.stretches, reading.asked, len);
        let memory = reading.memory.window(reading.asked as usize, len as usize);
        let mut message = Vec::with_capacity(MAX_HEADER_BYTES);
        let is_followed = reading.asked + len < reading.total;
        header::encode_request(&stretches, None, &Request::Read { is_followed }, &mut message);
        let bytes = message.len();
        self.port.queue(peer, REQUESTS, message.into(), false)?;
        reading.asked += len;
        operation.left += 1;
        let asked = Asked { operation: id, collective: false, memory, bytes };
        let requests = self.origin.requests(peer);
        requests.bytes += bytes;
        requests.asked.push_back(Some(asked));
        Ok(())
    }

    /// An answer has come.
    pub(super) fn on_answer(&mut self, peer: PeerIndex, octets: &[u8]) {
        let Some(answer) = header::decode_answer(octets) else {
            return crate::log::malformed(self.port.address(peer));
        };
        match answer {
            Answer::DoneBelow(below) => self.on_done_below(peer, below),
            Answer::Done(number) => {
                if let Some(asked) = self.origin.requests(peer).take(number) {
                    self.finish_part(asked.operation, Ok(()));
                }
            }
            Answer::Failed { number, errno } => {
                crate::log::refused(self.port.address(peer), errno);
                if let Some(asked) = self.origin.requests(peer).take(number) {
                    drop(asked.memory);
                    self.finish_part(asked.operation, Err(Errno(errno.min(4095) as i32)));
                }
            }
            Answer::Data { number, bytes } => {
                if let Some(asked) = self.origin.requests(peer).take(number) {
                    asked.memory.write(0, bytes);
                    drop(asked.memory);
                    self.finish_part(asked.operation, Ok(()));
                }
            }
            Answer::Bulk { number, bulk } => {
                if let Some(asked) = self.origin.requests(peer).take(number) {
                    let recipient = Recipient::Read(Piece { operation: asked.operation });
                    self.want_bulk(peer, bulk, recipient, Box::new(asked.memory));
                }
            }
        }
    }

    fn on_done_below(&mut self, peer: PeerIndex, below: u64) {
        let requests = self.origin.requests(peer);
        let end = below.min(requests.base + requests.asked.len() as u64);
        for number in requests.base..end {
            let requests = self.origin.requests(peer);
            let index = number.checked_sub(requests.base).map(|index| index as usize);
            let collective = index
                .and_then(|index| requests.asked.get(index))
                .is_some_and(|asked| asked.as_ref().is_some_and(|asked| asked.collective));
            if collective && let Some(asked) = requests.take(number) {
                self.finish_part(asked.operation, Ok(()));
            }
        }
    }

    pub(super) fn finish_piece(&mut self, piece: Piece, result: Result<(), Errno>) {
        self.finish_part(piece.operation, result);
    }

    /// One of the things that an operation waits for is there.
    pub(super) fn finish_part(&mut self, id: OperationId, result: Result<(), Errno>) {
        let Some(operation) = &mut self.origin.operations[id.0] else { return };
        operation.left -= 1;
        if let Err(errno) = result {
            operation.failed.get_or_insert(errno);
        }
        self.ask_pieces(id);
        let Some(operation) = &self.origin.operations[id.0] else { return };
        if operation.left > 0 {
            return;
        }
        if let Some(Operation { report, failed, reading, .. }) = self.origin.forget(id) {
            drop(reading);
            self.sinks.transmitted(&report, failed.map_or(Ok(()), Err));
        }
    }

    /// A session is over: what was not answered fails.
    pub(super) fn fail_requests(&mut self, peer: PeerIndex, errno: Errno) {
        let requests = std::mem::take(self.origin.requests(peer));
        for asked in requests.asked.into_iter().flatten() {
            drop(asked.memory);
            self.finish_part(asked.operation, Err(errno));
        }
    }
}

/// `len` bytes of some stretches, from `skip` on.
fn cut(stretches: &[Stretch], mut skip: u64, mut len: u64) -> Stretches {
    let mut cut = Stretches::new();
    for stretch in stretches {
        if skip > 0 && skip >= stretch.len {
            skip -= stretch.len;
            continue;
        }
        let count = (stretch.len - skip).min(len);
        cut.push(Stretch { address: stretch.address.wrapping_add(skip), len: count, key: stretch.key });
        len -= count;
        skip = 0;
        if len == 0 {
            break;
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_read_cover_its_stretches() {
        let stretches = [Stretch { address: 100, len: 10, key: 1 }, Stretch { address: 0, len: 5, key: 2 }];
        let cut = |skip, len| {
            cut(&stretches, skip, len).iter().map(|s| (s.address, s.len, s.key)).collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 4), [(100, 4, 1)]);
        assert_eq!(cut(4, 8), [(104, 6, 1), (0, 2, 2)]);
        assert_eq!(cut(12, 3), [(2, 3, 2)]);
        let nothing = [Stretch { address: 7, len: 0, key: 3 }];
        assert_eq!(super::cut(&nothing, 0, 0)[..], nothing);
        let [first, second] = stretches;
        assert_eq!(
            super::cut(&[first, nothing[0], second], 12, 3)[..],
            [Stretch { address: 2, len: 3, key: 2 }]
        );
    }
}
