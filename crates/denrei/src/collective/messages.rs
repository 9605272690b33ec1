//! The messages of collective operations: which operation they belong to, and the parts of all in one.
//!
//! Inputs → outputs: a number and data ↔ a message; parts ↔ their bytes. What came from elsewhere may be anything.

use super::CollectiveError;
use bytes::Bytes;

/// The operations, whose kinds are in messages' numbers.
const OPERATIONS: [&str; 5] = ["barrier", "broadcast", "gather", "all_gather", "reduce"];
/// An operation of a later version.
const UNKNOWN: &str = "another operation";
/// Where in a message's number the kind is: below the flags, above what is counted.
const KIND_SHIFT: u32 = 56;
const KINDS: u64 = 0xf;

/// An operation's kind, as it is in a message's number.
pub fn kind_of(operation: &str) -> u64 {
    let index = OPERATIONS.iter().position(|known| *known == operation);
    index.map_or(KINDS, |index| index as u64 + 1) << KIND_SHIFT
}

/// The operation whose kind is in a message's number.
pub fn operation_of(tag: u64) -> &'static str {
    let index = (tag >> KIND_SHIFT & KINDS).checked_sub(1);
    index.and_then(|index| OPERATIONS.get(index as usize).copied()).unwrap_or(UNKNOWN)
}

/// Which of all operations of a set a message is of.
pub fn number_of(tag: u64) -> u64 {
    tag & ((1 << KIND_SHIFT) - 1)
}

/// A message of the operation with this number.
pub fn tagged(round: u64, data: &Bytes) -> Bytes {
    let mut message = Vec::with_capacity(8 + data.len());
    message.extend(round.to_le_bytes());
    message.extend_from_slice(data);
    message.into()
}

/// The same for rank 0, which may have had other sets of the same Nodes.
pub fn to_root(set: u64, round: u64, data: &Bytes) -> Bytes {
    let mut message = Vec::with_capacity(16 + data.len());
    message.extend(set.to_le_bytes());
    message.extend(round.to_le_bytes());
    message.extend_from_slice(data);
    message.into()
}

/// The number of a message's operation, or of its set, and its data.
pub fn untagged(message: Bytes) -> Option<(u64, Bytes)> {
    let round = u64::from_le_bytes(*message.first_chunk()?);
    Some((round, message.slice(8..)))
}

/// What rank 0 says: who called something else.
pub fn unlike_of(octets: &Bytes) -> CollectiveError {
    let (rank, kinds) =
        octets.split_first_chunk().map_or((0, &[][..]), |(rank, kinds)| (u32::from_le_bytes(*rank), kinds));
    let mut names = kinds.as_chunks().0.iter().map(|kind| operation_of(u64::from_le_bytes(*kind)));
    let (theirs, operation) = (names.next().unwrap_or(UNKNOWN), names.next().unwrap_or(UNKNOWN));
    CollectiveError::Unlike { operation, rank: rank as usize, theirs }
}

/// What rank 0 says: who gave up, and whose part was missing.
pub fn gave_up(operation: &'static str, ranks: &Bytes) -> CollectiveError {
    let mut ranks = ranks.as_chunks().0.iter().map(|rank| u32::from_le_bytes(*rank) as usize);
    let rank = ranks.next().unwrap_or(0);
    CollectiveError::GaveUp { operation, rank, missing: ranks.collect() }
}

/// The parts of all in one.
pub fn pack(parts: &[Bytes]) -> Bytes {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        all.extend((part.len() as u64).to_le_bytes());
        all.extend_from_slice(part);
    }
    all.into()
}

/// The parts again, as far as they are whole; `count` are expected.
pub fn unpack(all: &Bytes, count: usize) -> Vec<Bytes> {
    let (mut parts, mut at) = (Vec::with_capacity(count), 0);
    while let Some(len) = all.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = (at as u64 + 8).checked_add(u64::from_le_bytes(*len));
        let Some(end) = end.filter(|end| *end <= all.len() as u64) else { break };
        let end = end as usize;
        parts.push(all.slice(at + 8..end));
        at = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_says_which_operation_it_is_of() {
        for operation in OPERATIONS {
            let tag = 7 | kind_of(operation) | 1 << 63;
            assert_eq!((operation_of(tag), number_of(tag)), (operation, 7));
        }
        assert_eq!((operation_of(7), operation_of(u64::MAX)), (UNKNOWN, UNKNOWN));
    }

    #[test]
    fn what_was_packed_is_unpacked_and_anything_else_does_no_harm() {
        let parts = [Bytes::from("one"), Bytes::new(), Bytes::from("three")];
        let all = pack(&parts);
        assert_eq!(unpack(&all, 3), parts);
        assert_eq!(unpack(&all.slice(..all.len() - 1), 3), parts[..2]);
        for len in [u64::MAX, u64::MAX - 7, u64::MAX - 8, 1] {
            assert!(unpack(&len.to_le_bytes().to_vec().into(), 3).is_empty(), "{len}");
        }
    }
}
