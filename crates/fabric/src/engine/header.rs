//! What denrei's messages carry for the provider: `spec/fabric.md`.
//!
//! Inputs → outputs: headers → octets, and back; what cannot be read is `None`, never a panic.

use smallvec::SmallVec;

/// Channel of messages that are matched.
pub const MATCHED: u16 = 0;
/// Channel of what is offered: the bytes of large messages, nothing else.
pub const BULK: u16 = 1;
/// Channel of one-sided requests.
pub const REQUESTS: u16 = 2;
/// Channel of the answers to requests.
pub const ANSWERS: u16 = 3;

const TAGGED: u8 = 1;
const DATA: u8 = 2;
/// Of a request: it is not the operation's last.
const MORE: u8 = 4;

/// Most stretches of remote memory in one request.
pub const MAX_STRETCHES: usize = 8;
/// The longest header there is.
pub const MAX_HEADER_BYTES: usize = 4 + 8 + MAX_STRETCHES * 24 + 8;

/// The longest header of a matched message.
pub const MAX_MATCHED_HEADER: usize = 2 + 4 * 8;

/// Who and what a matched message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    /// `None`: an untagged message.
    pub tag: Option<u64>,
    /// Remote completion data.
    pub data: Option<u64>,
}

/// A matched message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matched<'a> {
    /// The bytes are here.
    Eager(&'a [u8]),
    /// The bytes are offered on [`BULK`] under this number.
    Bulk { number: u64, len: u64 },
}

impl Matched<'_> {
    /// Its bytes in all.
    pub fn len(&self) -> u64 {
        match self {
            Self::Eager(bytes) => bytes.len() as u64,
            Self::Bulk { len, .. } => *len,
        }
    }
}

/// A stretch of memory of the target's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stretch {
    pub address: u64,
    /// Bytes.
    pub len: u64,
    pub key: u64,
}

/// Which atomic operation, by libfabric's numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtomicKind {
    pub datatype: u8,
    pub op: u8,
    pub mode: AtomicMode,
}

/// What an atomic operation takes and gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtomicMode {
    /// Operands; nothing comes back.
    Write,
    /// Operands; the old values come back.
    Fetch,
    /// Operands and comparands; the old values come back.
    Compare,
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Write these bytes.
    Write(&'a [u8]),
    /// Write what is offered on [`BULK`] under this number.
    WriteBulk { number: u64 },
    /// Answer with what is there; whether more is asked for, of the same operation.
    Read { is_followed: bool },
    /// Compute; operands, and after them as many comparands if there are any.
    Atomic { kind: AtomicKind, operands: &'a [u8] },
}

/// An answer to a request, which is named by its number on [`REQUESTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// All requests below, except those with an answer of their own, are done.
    DoneBelow(u64),
    /// This one is done, late.
    Done(u64),
    /// This one is refused.
    Failed { number: u64, errno: u32 },
    /// What was read or fetched.
    Data { number: u64, bytes: &'a [u8] },
    /// What was read is offered on [`BULK`] under the number `bulk`.
    Bulk { number: u64, bulk: u64 },
}

/// The header of a matched message; appended at once, and `out` need have no more room than it takes.
pub fn encode_matched(envelope: Envelope, bulk: Option<(u64, u64)>, out: &mut Vec<u8>) {
    let flags =
        if envelope.tag.is_some() { TAGGED } else { 0 } | if envelope.data.is_some() { DATA } else { 0 };
    let mut header = [0; MAX_MATCHED_HEADER];
    header[..2].copy_from_slice(&[if bulk.is_some() { 2 } else { 1 }, flags]);
    let mut end = 2;
    let numbers = [envelope.tag, envelope.data, bulk.map(|bulk| bulk.0), bulk.map(|bulk| bulk.1)];
    for number in numbers.into_iter().flatten() {
        header[end..end + 8].copy_from_slice(&number.to_le_bytes());
        end += 8;
    }
    out.extend_from_slice(&header[..end]);
}

/// Octets of an eager message's header.
pub fn eager_header_bytes(envelope: Envelope) -> usize {
    2 + 8 * (usize::from(envelope.tag.is_some()) + usize::from(envelope.data.is_some()))
}

/// Whether the bytes of a matched message are elsewhere.
pub fn is_bulk(octets: &[u8]) -> bool {
    matches!(octets, [2, ..])
}

/// Reads a matched message.
pub fn decode_matched(mut octets: &[u8]) -> Option<(Envelope, Matched<'_>)> {
    let [kind, flags] = take(&mut octets)?;
    let tag = if flags & TAGGED != 0 { Some(number(&mut octets)?) } else { None };
    let data = if flags & DATA != 0 { Some(number(&mut octets)?) } else { None };
    let message = match kind {
        1 => Matched::Eager(octets),
        2 => Matched::Bulk { number: number(&mut octets)?, len: number(&mut octets)? },
        _ => return None,
    };
    Some((Envelope { tag, data }, message))
}

/// The kind of a message that holds several.
const BATCH: u8 = 3;

/// Several small messages that travel as one.
#[derive(Debug, Default)]
pub struct Batch(Vec<u8>);

impl Batch {
    /// What a batch adds to a message's own octets.
    pub const ROOM: usize = 4;

    /// Adds an eager message: its envelope, and `payload`, which appends so many bytes.
    pub fn push(&mut self, envelope: Envelope, len: usize, payload: impl FnOnce(&mut Vec<u8>)) {
        if self.0.is_empty() {
            self.0.extend_from_slice(&[BATCH, 0]);
        }
        let at = self.0.len();
        self.0.reserve(Self::ROOM + MAX_MATCHED_HEADER + len);
        self.0.extend_from_slice(&[0; Self::ROOM]);
        encode_matched(envelope, None, &mut self.0);
        payload(&mut self.0);
        let octets = (self.0.len() - at - Self::ROOM) as u32;
        self.0[at..at + Self::ROOM].copy_from_slice(&octets.to_le_bytes());
    }

    /// Octets so far.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The message, and an empty batch in its place; as much room is made for the next.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let room = self.0.len();
        (room > 0).then(|| std::mem::replace(&mut self.0, Vec::with_capacity(room)))
    }
}

/// The messages of a batch, up to the first that cannot be read, which is `None`; not a batch: `None`.
pub fn decode_batch(octets: &[u8]) -> Option<impl Iterator<Item = Option<&[u8]>>> {
    let [BATCH, _, rest @ ..] = octets else { return None };
    let mut rest = rest;
    Some(std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = take(&mut rest).and_then(|len| split(&mut rest, u32::from_le_bytes(len) as usize));
        if message.is_none() {
            rest = &[];
        }
        Some(message)
    }))
}

/// The first `len` octets.
fn split<'a>(octets: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (first, rest) = octets.split_at_checked(len)?;
    *octets = rest;
    Some(first)
}

/// The header of a request; for [`Request::Write`] and [`Request::Atomic`] the bytes follow.
pub fn encode_request(stretches: &[Stretch], data: Option<u64>, request: &Request<'_>, out: &mut Vec<u8>) {
    let kind = match request {
        Request::Write(_) => 1,
        Request::WriteBulk { .. } => 2,
        Request::Read { .. } => 3,
        Request::Atomic { .. } => 4,
    };
    let more = if matches!(request, Request::Read { is_followed: true }) { MORE } else { 0 };
    let flags = if data.is_some() { DATA } else { 0 } | more;
    out.extend_from_slice(&[kind, flags, stretches.len() as u8, 0]);
    if let Some(data) = data {
        out.extend_from_slice(&data.to_le_bytes());
    }
    for stretch in stretches {
        for number in [stretch.address, stretch.len, stretch.key] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    match request {
        Request::WriteBulk { number } => out.extend_from_slice(&number.to_le_bytes()),
        Request::Atomic { kind: AtomicKind { datatype, op, mode }, .. } => {
            out.extend_from_slice(&[*datatype, *op, *mode as u8, 0]);
        }
        Request::Write(_) | Request::Read { .. } => {}
    }
}

/// The stretches of a request.
pub type Stretches = SmallVec<[Stretch; 2]>;

/// Reads a request.
pub fn decode_request(mut octets: &[u8]) -> Option<(Stretches, Option<u64>, Request<'_>)> {
    let [kind, flags, count, _] = take(&mut octets)?;
    if count as usize > MAX_STRETCHES {
        return None;
    }
    let data = if flags & DATA != 0 { Some(number(&mut octets)?) } else { None };
    let mut stretches = Stretches::new();
    for _ in 0..count {
        let [address, len, key] = [number(&mut octets)?, number(&mut octets)?, number(&mut octets)?];
        stretches.push(Stretch { address, len, key });
    }
    let request = match kind {
        1 => Request::Write(octets),
        2 => Request::WriteBulk { number: number(&mut octets)? },
        3 => Request::Read { is_followed: flags & MORE != 0 },
        4 => {
            let [datatype, op, mode, _] = take(&mut octets)?;
            let mode = *[AtomicMode::Write, AtomicMode::Fetch, AtomicMode::Compare].get(mode as usize)?;
            Request::Atomic { kind: AtomicKind { datatype, op, mode }, operands: octets }
        }
        _ => return None,
    };
    Some((stretches, data, request))
}

/// An answer.
pub fn encode_answer(answer: &Answer<'_>) -> Vec<u8> {
    let (kind, first) = match *answer {
        Answer::DoneBelow(number) => (1, number),
        Answer::Done(number) => (2, number),
        Answer::Failed { number, .. } => (3, number),
        Answer::Data { number, .. } => (4, number),
        Answer::Bulk { number, .. } => (5, number),
    };
    let mut out =
        Vec::with_capacity(17 + if let Answer::Data { bytes, .. } = answer { bytes.len() } else { 0 });
    out.push(kind);
    out.extend_from_slice(&first.to_le_bytes());
    match answer {
        Answer::Failed { errno, .. } => out.extend_from_slice(&errno.to_le_bytes()),
        Answer::Data { bytes, .. } => out.extend_from_slice(bytes),
        Answer::Bulk { bulk, .. } => out.extend_from_slice(&bulk.to_le_bytes()),
        Answer::DoneBelow(_) | Answer::Done(_) => {}
    }
    out
}

/// Reads an answer.
pub fn decode_answer(mut octets: &[u8]) -> Option<Answer<'_>> {
    let [kind] = take(&mut octets)?;
    let first = number(&mut octets)?;
    Some(match kind {
        1 => Answer::DoneBelow(first),
        2 => Answer::Done(first),
        3 => Answer::Failed { number: first, errno: u32::from_le_bytes(take(&mut octets)?) },
        4 => Answer::Data { number: first, bytes: octets },
        5 => Answer::Bulk { number: first, bulk: number(&mut octets)? },
        _ => return None,
    })
}

fn take<const N: usize>(octets: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = octets.split_first_chunk::<N>()?;
    *octets = rest;
    Some(*first)
}

fn number(octets: &mut &[u8]) -> Option<u64> {
    take(octets).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matched_messages_survive_the_wire() {
        for (tag, data) in [(None, None), (Some(7), None), (None, Some(1)), (Some(u64::MAX), Some(9))] {
            let envelope = Envelope { tag, data };
            let mut octets = Vec::new();
            encode_matched(envelope, None, &mut octets);
            octets.extend_from_slice(b"abc");
            assert_eq!(decode_matched(&octets), Some((envelope, Matched::Eager(b"abc"))));
            octets.clear();
            encode_matched(envelope, Some((5, 1 << 40)), &mut octets);
            assert_eq!(decode_matched(&octets), Some((envelope, Matched::Bulk { number: 5, len: 1 << 40 })));
            for cut in 0..octets.len() {
                assert_eq!(decode_matched(&octets[..cut]), None);
            }
        }
    }

    #[test]
    fn batches_survive_the_wire_and_end_where_they_cannot_be_read() {
        let envelope = |tag| Envelope { tag, data: None };
        let sent = [(envelope(None), &b""[..]), (envelope(Some(7)), b"abc"), (envelope(Some(8)), b"d")];
        let mut batch = Batch::default();
        assert_eq!(batch.take(), None);
        for (envelope, bytes) in sent {
            batch.push(envelope, bytes.len(), |out| out.extend_from_slice(bytes));
        }
        let octets = batch.take().unwrap();
        assert_eq!((batch.len(), decode_matched(&octets)), (0, None), "a batch is not one message");
        let read: Vec<_> =
            decode_batch(&octets).unwrap().map(|octets| decode_matched(octets.unwrap())).collect();
        let whole = sent.map(|(envelope, bytes)| Some((envelope, Matched::Eager(bytes))));
        assert_eq!(read, whole);
        for cut in 3..octets.len() {
            let last = decode_batch(&octets[..cut]).unwrap().last().unwrap();
            let ends = last.is_none() || last.and_then(decode_matched).is_some();
            assert!(ends && decode_batch(&octets[..cut]).unwrap().count() <= sent.len());
        }
        assert!(decode_batch(&[1, 0, 0]).is_none() && decode_batch(&[3]).is_none());
    }

    #[test]
    fn requests_survive_the_wire() {
        let stretches =
            [Stretch { address: 1, len: 3, key: 9 }, Stretch { address: u64::MAX, len: 0, key: 0 }];
        let kind = AtomicKind { datatype: 7, op: 2, mode: AtomicMode::Compare };
        let requests = [
            (Request::Write(b"xyz"), &b"xyz"[..]),
            (Request::WriteBulk { number: 3 }, b""),
            (Request::Read { is_followed: false }, b""),
            (Request::Read { is_followed: true }, b""),
            (Request::Atomic { kind, operands: b"12" }, b"12"),
        ];
        for (request, bytes) in requests {
            for data in [None, Some(4)] {
                let mut octets = Vec::new();
                encode_request(&stretches, data, &request, &mut octets);
                assert!(octets.len() <= MAX_HEADER_BYTES);
                let header = octets.len();
                octets.extend_from_slice(bytes);
                let (read, read_data, read_request) = decode_request(&octets).unwrap();
                assert_eq!((&read[..], read_data, read_request), (&stretches[..], data, request));
                for cut in 0..header {
                    assert!(decode_request(&octets[..cut]).is_none());
                }
            }
        }
        assert!(decode_request(&[1, 0, MAX_STRETCHES as u8 + 1, 0]).is_none());
    }

    #[test]
    fn answers_survive_the_wire() {
        let answers = [
            Answer::DoneBelow(1),
            Answer::Done(2),
            Answer::Failed { number: 3, errno: 266 },
            Answer::Data { number: 4, bytes: b"data" },
            Answer::Bulk { number: 5, bulk: 6 },
        ];
        for answer in answers {
            let octets = encode_answer(&answer);
            assert_eq!(decode_answer(&octets), Some(answer));
            assert_eq!(decode_answer(&octets[..8]), None);
        }
        assert_eq!(decode_answer(&[9; 20]), None);
    }
}
