//! Replicated unicast: where no address reaches all members, each of them is sent the same packets.
//!
//! Inputs → outputs: a train written once, and to whom it goes → the same octets for each of them. What a
//! train costs (cutting, writing, checksums, sealing) is paid once, whatever the number of members; what is
//! left for each is the system call and the path. Source: M10's small N; `spec/protocol.md` §14.5.

use core::net::SocketAddr;
use denrei_wire::{Transmit, TransmitBuf};

/// A train and those who have still to be sent it.
#[derive(Debug, Default)]
pub(super) struct Copies {
    octets: Vec<u8>,
    transmit: Option<Transmit>,
    /// The last is next.
    to: Vec<SocketAddr>,
}

impl Copies {
    /// Whether somebody has still to be sent the train.
    pub fn are_left(&self) -> bool {
        !self.to.is_empty()
    }

    /// A train has been written: it is for the first of `to` now, for the others next.
    pub fn begin(
        &mut self,
        train: Transmit,
        out: &TransmitBuf,
        to: impl DoubleEndedIterator<Item = SocketAddr>,
    ) -> Option<Transmit> {
        self.to.clear();
        self.to.extend(to.rev());
        let first = self.to.pop()?;
        self.octets.clear();
        if self.are_left() {
            self.octets.extend_from_slice(&out.contiguous());
        }
        self.transmit = Some(train);
        Some(Transmit { to: first, ..train })
    }

    /// Writes the train for the next of those who have still to be sent it.
    pub fn next(&mut self, out: &mut TransmitBuf) -> Option<Transmit> {
        let to = self.to.pop()?;
        out.put(&self.octets);
        self.transmit.map(|train| Transmit { to, ..train })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_wire::Ecn;

    #[test]
    fn all_get_the_same_in_order_and_nobody_twice() {
        let addr = |last: u16| SocketAddr::from(([10, 0, 0, 1], last));
        let train = Transmit { to: addr(9), len: 5, segment_size: Some(3), ecn: Ecn::Ect0 };
        let mut out = TransmitBuf::new(8);
        out.put(b"abcde");
        let mut copies = Copies::default();
        let first = copies.begin(train, &out, (1..4).map(addr)).unwrap();
        assert_eq!((first.to, first.segments()), (addr(1), 2));
        for last in [2, 3] {
            assert!(copies.are_left());
            out.clear();
            assert_eq!(copies.next(&mut out), Some(Transmit { to: addr(last), ..train }));
            assert_eq!(out.bytes(), b"abcde");
        }
        out.clear();
        assert_eq!(copies.next(&mut out), None);
        assert_eq!(copies.begin(train, &out, core::iter::empty()), None, "nobody is left");
    }
}
