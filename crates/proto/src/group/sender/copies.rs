//! Replicated unicast: where no address reaches all members, each of them is sent the same packets.
//!
//! Inputs → outputs: trains written once, and to whom they go → the same octets for each of them. What a
//! train costs (cutting, writing, checksums, sealing) is paid once, whatever the number of members; what is
//! left for each is the system call and the path. Source: M10's small N; `spec/protocol.md` §14.5.

use core::ops::Range;
use denrei_wire::{Transmit, TransmitBuf, Way};

/// So many trains go to one member before they go to the next: what is just more than one holds, a message
/// of 64 KiB for one, wakes a member once.
const MAX_TRAINS: usize = 2;

/// Trains and those who have still to be sent them.
#[derive(Debug, Default)]
pub(super) struct Copies {
    octets: Vec<u8>,
    trains: Vec<(Transmit, Range<usize>)>,
    /// Who is sent trains as they are written.
    first: Option<Way>,
    /// The others; the last is next, with this train.
    others: Vec<Way>,
    at: usize,
}

impl Copies {
    /// Whether somebody has still to be sent something.
    pub fn are_left(&self) -> bool {
        !self.others.is_empty()
    }

    /// Whether the next train may be written now, for the first member.
    pub fn may_begin(&self) -> bool {
        !self.are_left() || (self.first.is_some() && self.trains.len() < MAX_TRAINS)
    }

    /// A train has been written: it is for the first of `members` now, and for the others later.
    pub fn begin(
        &mut self,
        train: Transmit,
        out: &TransmitBuf,
        members: impl DoubleEndedIterator<Item = Way>,
    ) -> Option<Transmit> {
        if !self.are_left() {
            self.octets.clear();
            self.trains.clear();
            self.others.extend(members.rev());
            self.first = self.others.pop();
        }
        let Way { to, from } = self.first?;
        if self.are_left() {
            let begin = self.octets.len();
            self.octets.extend_from_slice(&out.contiguous());
            self.trains.push((train, begin..self.octets.len()));
        }
        Some(Transmit { to, from, ..train })
    }

    /// Writes the next train for the next of those who have still to be sent it.
    pub fn next(&mut self, out: &mut TransmitBuf) -> Option<Transmit> {
        let Way { to, from } = *self.others.last()?;
        self.first = None;
        let (train, range) = self.trains.get(self.at)?;
        out.put(&self.octets[range.clone()]);
        self.at += 1;
        if self.at == self.trains.len() {
            self.at = 0;
            self.others.pop();
        }
        Some(Transmit { to, from, ..*train })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::SocketAddr;
    use denrei_wire::Ecn;

    fn addr(last: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], last))
    }

    fn train(len: usize) -> Transmit {
        Transmit { to: addr(9), from: None, len, segment_size: Some(3), ecn: Ecn::Ect0 }
    }

    /// Begins with a train, for three members.
    fn begin(copies: &mut Copies, octets: &[u8]) -> Option<SocketAddr> {
        let mut out = TransmitBuf::new(8);
        out.put(octets);
        copies
            .begin(train(octets.len()), &out, (1..4).map(|last| addr(last).into()))
            .map(|transmit| transmit.to)
    }

    fn next(copies: &mut Copies) -> Option<(SocketAddr, Vec<u8>)> {
        let mut out = TransmitBuf::new(8);
        let transmit = copies.next(&mut out)?;
        assert_eq!(transmit, Transmit { to: transmit.to, ..train(out.len()) });
        Some((transmit.to, out.bytes().to_vec()))
    }

    #[test]
    fn all_get_the_same_in_order_and_nobody_twice() {
        let mut copies = Copies::default();
        assert!(copies.may_begin() && !copies.are_left());
        assert_eq!(begin(&mut copies, b"abcde"), Some(addr(1)));
        assert!(copies.may_begin() && copies.are_left());
        assert_eq!(begin(&mut copies, b"fg"), Some(addr(1)));
        assert!(!copies.may_begin(), "the others have waited long enough");
        for last in [2, 3] {
            assert_eq!(next(&mut copies), Some((addr(last), b"abcde".to_vec())));
            assert_eq!(next(&mut copies), Some((addr(last), b"fg".to_vec())));
        }
        assert!(copies.may_begin());
        assert_eq!(next(&mut copies), None);
        assert_eq!(begin(&mut copies, b"h"), Some(addr(1)));
        assert_eq!(next(&mut copies), Some((addr(2), b"h".to_vec())));
        assert!(!copies.may_begin(), "the first would get what the second does not");
        assert_eq!(next(&mut copies), Some((addr(3), b"h".to_vec())));
    }

    #[test]
    fn a_train_for_nobody_or_for_one_leaves_nothing() {
        let mut copies = Copies::default();
        let out = TransmitBuf::new(8);
        assert_eq!(copies.begin(train(1), &out, core::iter::empty()), None);
        assert_eq!(copies.begin(train(1), &out, (4..5).map(|last| addr(last).into())).unwrap().to, addr(4));
        assert!(!copies.are_left() && copies.may_begin());
    }
}
