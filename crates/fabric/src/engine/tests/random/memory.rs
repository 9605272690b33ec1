//! One-sided operations beside the messages: each side writes and reads a stripe of its own in the memory of each,
//! one operation at a time, and all add to one counter there.

use super::*;

const STRIPE: usize = 300_000;
const COUNTER_AT: usize = SIDES * STRIPE;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Write,
    Read,
    Add,
}

/// An operation: its bytes go to, or come from, `at` in the stripe of `by`.
struct Operation {
    by: usize,
    to: usize,
    kind: Kind,
    at: usize,
    bytes: Vec<u8>,
    is_done: bool,
}

/// The memory of all sides.
pub(super) struct Stripes {
    memory: Vec<Vec<u8>>,
    keys: Vec<u64>,
    /// What each side has written to each, by whom it is of first.
    written: Vec<Vec<Vec<u8>>>,
    operations: Vec<Operation>,
}

impl Stripes {
    pub(super) fn new(sides: &[Side]) -> Self {
        let mut memory = vec![vec![0; COUNTER_AT + size_of::<u64>()]; SIDES];
        let keys = sides.iter().zip(&mut memory).map(|(side, memory)| register(side, memory)).collect();
        Self { memory, keys, written: vec![vec![vec![0; STRIPE]; SIDES]; SIDES], operations: Vec::new() }
    }

    /// Begins an operation of side `by`, if there is room.
    pub(super) fn begin(&mut self, random: &mut Random, sides: &mut [Side], by: usize, lost: Option<usize>) {
        let to = random.below(SIDES);
        let kind = random.one_of(&[Kind::Write, Kind::Read, Kind::Add]);
        let is_under_way = |it: &Operation| (it.by, it.to) == (by, to) && it.kind != Kind::Add && !it.is_done;
        if kind != Kind::Add && self.operations.iter().any(is_under_way) {
            return;
        }
        let most = random.one_of(&[64, 20_000, STRIPE]);
        let len = if kind == Kind::Add { size_of::<u64>() } else { 1 + random.below(most) };
        let at = random.below(STRIPE - len + 1);
        let id = self.operations.len();
        let mut bytes: Vec<u8> = (0..len).map(|index| (id * 13 + index * 5) as u8).collect();
        let address = if kind == Kind::Add { COUNTER_AT } else { by * STRIPE + at } as u64;
        let flags = if kind == Kind::Write { ffi::FI_WRITE } else { ffi::FI_READ };
        let flags = flags | if kind == Kind::Add { ffi::FI_ATOMIC } else { ffi::FI_RMA };
        let operation = OneSided {
            report: report(context(id, MEMORY), flags),
            ..one_sided(number(by, to), self.keys[to], address, len, 0)
        };
        let engine = &mut sides[by].engine;
        let begun = match kind {
            Kind::Write => engine.write(operation, Payload::Posted(posted(&mut bytes))),
            Kind::Read => engine.read(operation, posted(&mut bytes)),
            Kind::Add => {
                let add = AtomicKind { datatype: 7, op: 2, mode: AtomicMode::Fetch };
                engine.atomic(operation, add, &1u64.to_le_bytes(), Some(posted(&mut bytes)))
            }
        };
        match begun {
            Ok(()) => self.operations.push(Operation { by, to, kind, at, bytes, is_done: false }),
            Err(errno) => assert!(errno == Errno::AGAIN || Some(to) == lost, "{errno:?}"),
        }
    }

    /// An operation of side `by` was reported.
    pub(super) fn note(&mut self, by: usize, entry: &Completion, lost: Option<usize>) {
        let operation = &mut self.operations[number_of(entry.context)];
        let has_failed = entry.error.is_some();
        assert!(operation.by == by && (!has_failed || Some(operation.to) == lost), "{entry:?}");
        assert!(!std::mem::replace(&mut operation.is_done, true), "reported twice");
        let Operation { to, kind, at, ref bytes, .. } = *operation;
        let written = &mut self.written[to][by][at..][..if kind == Kind::Add { 0 } else { bytes.len() }];
        match kind {
            _ if has_failed => {}
            Kind::Write => written.copy_from_slice(bytes),
            Kind::Read => assert!(written == bytes, "{by} reads of {to} what it has written"),
            Kind::Add => {}
        }
    }

    pub(super) fn is_busy(&self, lost: Option<usize>) -> bool {
        self.operations.iter().any(|it| !it.is_done && Some(it.by) != lost)
    }

    /// What was written is there, and each addition counted once; what the lost one began may be.
    pub(super) fn judge(&self, lost: Option<usize>) {
        let is_there = |side: &usize| Some(*side) != lost;
        for to in (0..SIDES).filter(is_there) {
            for by in (0..SIDES).filter(is_there) {
                assert!(
                    self.memory[to][by * STRIPE..][..STRIPE] == self.written[to][by],
                    "{by} wrote to {to}"
                );
            }
            let adds = || self.operations.iter().filter(|it| it.kind == Kind::Add && it.to == to);
            let value = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
            let noted = adds().filter(|it| is_there(&it.by));
            let mut before: Vec<u64> = noted.map(|it| value(&it.bytes)).collect();
            before.sort_unstable();
            before.dedup();
            let (least, count) = (before.len(), value(&self.memory[to][COUNTER_AT..]));
            let of_lost = adds().filter(|it| !is_there(&it.by)).count();
            assert!(before.iter().all(|before| *before < count));
            assert!((least..=least + of_lost).contains(&(count as usize)), "{least} added, {count} counted");
        }
    }
}
