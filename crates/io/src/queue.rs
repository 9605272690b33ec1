//! Small datagrams for several targets, gathered for one system call.
//!
//! Inputs → outputs: transmits, copied → the datagrams in order, as a batch to send. Bounded by
//! [`MAX_QUEUED_DATAGRAMS`] and [`MAX_QUEUED_BYTES`]; what does not fit is for the caller to send
//! after a flush.

use denrei_wire::datagram::MAX_SEGMENTS;
use denrei_wire::{Ecn, Transmit, TransmitBuf};
use socket2::SockAddr;

/// Most datagrams in the queue: what one `sendmmsg` takes.
pub const MAX_QUEUED_DATAGRAMS: usize = MAX_SEGMENTS;
/// Most bytes in the queue: beyond it, copying costs more than the calls that it saves.
pub const MAX_QUEUED_BYTES: usize = 32 * 1024;

/// One datagram in the queue.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))] // the portable backend sends a constant ECN
pub(crate) struct Queued {
    pub(crate) name: SockAddr,
    pub(crate) ipv4: bool,
    pub(crate) ecn: Ecn,
    start: usize,
    end: usize,
}

/// The queue. Flushed from the front; refilled only when empty of what was flushed.
#[derive(Default)]
pub(crate) struct SendQueue {
    bytes: Vec<u8>,
    datagrams: Vec<Queued>,
    flushed: usize,
}

impl SendQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.flushed == self.datagrams.len()
    }

    /// Whether `transmit` fits beside what is queued.
    pub(crate) fn fits(&self, transmit: &Transmit) -> bool {
        self.bytes.len() + transmit.len <= MAX_QUEUED_BYTES
            && self.datagrams.len() + transmit.segments() <= MAX_QUEUED_DATAGRAMS
    }

    /// Whether `transmit` would fit into an empty queue.
    pub(crate) fn can_ever_fit(transmit: &Transmit) -> bool {
        transmit.len <= MAX_QUEUED_BYTES && transmit.segments() <= MAX_QUEUED_DATAGRAMS
    }

    /// Copies the datagrams of `transmit`, which must fit, for the target `name`.
    pub(crate) fn push(&mut self, transmit: &Transmit, buf: &TransmitBuf, name: &SockAddr) {
        assert!(self.fits(transmit), "the caller checks that the transmit fits");
        let first = self.bytes.len();
        self.bytes.extend_from_slice(&buf.contiguous());
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        for index in 0..transmit.segments() {
            let start = first + index * segment;
            self.datagrams.push(Queued {
                name: name.clone(),
                ipv4: transmit.to.is_ipv4(),
                ecn: transmit.ecn,
                start,
                end: (start + segment).min(self.bytes.len()),
            });
        }
    }

    /// The datagrams not yet flushed, in order.
    pub(crate) fn waiting(&self) -> &[Queued] {
        &self.datagrams[self.flushed..]
    }

    /// The bytes of `queued`.
    pub(crate) fn bytes_of(&self, queued: &Queued) -> &[u8] {
        &self.bytes[queued.start..queued.end]
    }

    /// Takes the first `count` waiting datagrams off the queue.
    pub(crate) fn advance(&mut self, count: usize) {
        self.flushed += count;
        assert!(self.flushed <= self.datagrams.len(), "no more is flushed than was queued");
        if self.is_empty() {
            self.bytes.clear();
            self.datagrams.clear();
            self.flushed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn transmit(len: usize, segment_size: Option<usize>) -> (Transmit, TransmitBuf, SockAddr) {
        let to: SocketAddr = "127.0.0.1:9".parse().unwrap();
        let mut buf = TransmitBuf::new(64);
        buf.put(&vec![1; len]);
        (Transmit { to, len, segment_size, ecn: Ecn::Ect0 }, buf, to.into())
    }

    #[test]
    fn trains_are_queued_datagram_by_datagram() {
        let mut queue = SendQueue::default();
        let (train, buf, name) = transmit(2500, Some(1000));
        queue.push(&train, &buf, &name);
        let (empty, buf, name) = transmit(0, None);
        queue.push(&empty, &buf, &name);
        let lens: Vec<usize> = queue.waiting().iter().map(|queued| queue.bytes_of(queued).len()).collect();
        assert_eq!(lens, [1000, 1000, 500, 0]);
        queue.advance(3);
        assert_eq!(queue.waiting().len(), 1);
        queue.advance(1);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = SendQueue::default();
        let (small, buf, name) = transmit(10, None);
        for _ in 0..MAX_QUEUED_DATAGRAMS {
            assert!(queue.fits(&small));
            queue.push(&small, &buf, &name);
        }
        assert!(!queue.fits(&small));
        assert!(!SendQueue::can_ever_fit(&transmit(MAX_QUEUED_BYTES + 1, None).0));
    }
}
