//! What is going to happen, soonest first, and the datagrams that are under way.
//!
//! Inputs → outputs: happenings with a time → the same in order of time, and among equal times in
//! the order in which they were put in, so that a run never depends on the heap's layout.

use super::topology::{HostId, Place};
use core::cmp::Ordering;
use core::net::SocketAddr;
use denrei_wire::{Ecn, Instant};
use std::collections::BinaryHeap;

/// Something that is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A datagram gets to a switch or host.
    Arrival { datagram: DatagramRef, place: Place },
    /// An endpoint's timeout.
    Timeout(HostId),
    /// A host is told, for `by`, that nobody is at the port there.
    Refusal { host: HostId, by: HostId },
    /// A host looks at its receive buffer, or may send again.
    Wake(HostId),
}

/// Where a datagram under way is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramRef(u32);

/// A datagram under way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub source: SocketAddr,
    pub to: HostId,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: Instant,
    order: u64,
    what: Happening,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed: BinaryHeap gives the greatest first, and the soonest is wanted.
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Happenings in order of time.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Entry>,
    next_order: u64,
}

impl EventQueue {
    pub fn push(&mut self, at: Instant, what: Happening) {
        self.heap.push(Entry { at, order: self.next_order, what });
        self.next_order += 1;
    }

    /// The soonest happening, if it is not after `until`.
    pub fn pop_until(&mut self, until: Instant) -> Option<(Instant, Happening)> {
        if self.heap.peek()?.at > until {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.what))
    }

    pub fn len(&self) -> usize {
        self.heap.len()
    }
}

/// Datagrams under way. Slots and their memory are used again.
#[derive(Debug, Default)]
pub(crate) struct Datagrams {
    slots: Vec<Datagram>,
    free: Vec<u32>,
}

impl Datagrams {
    /// Keeps a copy of `bytes`.
    pub fn insert(&mut self, source: SocketAddr, to: HostId, ecn: Ecn, bytes: &[u8]) -> DatagramRef {
        if let Some(slot) = self.free.pop() {
            let datagram = &mut self.slots[slot as usize];
            (datagram.source, datagram.to, datagram.ecn) = (source, to, ecn);
            datagram.bytes.clear();
            datagram.bytes.extend_from_slice(bytes);
            return DatagramRef(slot);
        }
        let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 datagrams under way");
        self.slots.push(Datagram { source, to, ecn, bytes: bytes.to_vec() });
        DatagramRef(slot)
    }

    pub fn duplicate(&mut self, at: DatagramRef) -> DatagramRef {
        let original = &self.slots[at.0 as usize];
        let (source, to, ecn, bytes) = (original.source, original.to, original.ecn, original.bytes.clone());
        self.insert(source, to, ecn, &bytes)
    }

    pub fn get(&mut self, at: DatagramRef) -> &mut Datagram {
        &mut self.slots[at.0 as usize]
    }

    /// The slot may be used again.
    pub fn release(&mut self, at: DatagramRef) {
        self.free.push(at.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn happenings_come_in_order_of_time_then_of_arrival() {
        let mut queue = EventQueue::default();
        let at = Instant::from_nanos;
        for (nanos, host) in [(5, 0), (3, 1), (5, 2), (3, 3)] {
            queue.push(at(nanos), Happening::Wake(HostId(host)));
        }
        let hosts: Vec<_> = core::iter::from_fn(|| queue.pop_until(at(4))).collect();
        assert_eq!(hosts, [(at(3), Happening::Wake(HostId(1))), (at(3), Happening::Wake(HostId(3)))]);
        assert_eq!(queue.len(), 2, "what is later stays");
    }
}
