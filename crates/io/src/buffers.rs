//! The memory datagrams are received into.
//!
//! Inputs → outputs: a size and a number → buffers plus one [`Slot`] each, which a backend fills
//! with what it learnt about the datagram or train in that buffer.

use crate::page_memory::PageMemory;
use denrei_wire::datagram::MAX_TRAIN_BYTES;
use denrei_wire::{DatagramMeta, Ecn, Landing};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Most datagrams or trains that one receive call brings. Beyond 16 the saving per datagram is
/// below 20 ns, and the memory no longer fits a second-level cache.
pub const MAX_RECV_BATCH: usize = 16;
/// A datagram from this on is worth a call of its own, and memory that it belongs in is asked for: smaller pieces the
/// kernel is slow to copy to cold memory (ADR 77). Bytes …
pub const LARGE_DATAGRAM_BYTES: usize = 16 << 10;
/// … and a call brings no more of them, or the first are out of the cache when they are read.
const MOST_LARGE: usize = 2;
/// Least buffer: IPv6's smallest MTU, which every path carries.
const MIN_BUFFER_BYTES: usize = 1_280;

/// Buffers begin an odd multiple of this behind each other: none of them where a page has just begun, which the kernel
/// may be slow to copy to, and all of them at different places of their pages, so that their first lines do not compete
/// for the same places of a cache.
const STEP_BYTES: usize = 256;

/// Buffers to receive into; reused from call to call.
#[derive(Debug)]
pub struct RecvBuffers {
    /// All of them, and what is between.
    memory: PageMemory,
    bytes_each: usize,
    pub(crate) slots: Vec<Slot>,
    /// Buffers that [`recv_held`](crate::UdpSocket::recv_held) has filled.
    pub(crate) filled: usize,
    /// For datagrams of a landed train that have to be put together.
    spare: Vec<u8>,
}

/// What a backend learnt about one buffer's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) from: SocketAddr,
    /// See [`DatagramMeta::at`].
    pub(crate) at: Option<IpAddr>,
    pub(crate) ecn: Ecn,
    /// Bytes in the buffer.
    pub(crate) len: usize,
    /// Bytes per datagram of a train; 0: the content is one datagram.
    pub(crate) segment_bytes: usize,
    /// The content was larger than the buffer.
    pub(crate) truncated: bool,
}

impl Slot {
    pub(crate) const EMPTY: Self = Self {
        from: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        at: None,
        ecn: Ecn::NotEct,
        len: 0,
        segment_bytes: 0,
        truncated: false,
    };

    /// What the datagrams' receiver is told of each.
    fn meta(&self) -> DatagramMeta {
        DatagramMeta { from: self.from, at: self.at, ecn: self.ecn }
    }

    /// Whether its datagrams are large.
    pub(crate) fn is_large(&self) -> bool {
        let datagram = if self.segment_bytes == 0 { self.len } else { self.segment_bytes };
        datagram >= LARGE_DATAGRAM_BYTES
    }
}

impl Default for RecvBuffers {
    /// [`MAX_RECV_BATCH`] buffers for the largest trains: 1 MiB, of which the system backs only
    /// what is used.
    fn default() -> Self {
        Self::new(MAX_RECV_BATCH, MAX_TRAIN_BYTES)
    }
}

impl RecvBuffers {
    /// `count` buffers (1..=[`MAX_RECV_BATCH`]) of `bytes_each` (1,280..=65,535) bytes. With GRO on,
    /// buffers below 65,535 bytes cut trains short: the cut datagrams are lost and counted.
    pub fn new(count: usize, bytes_each: usize) -> Self {
        let count = count.clamp(1, MAX_RECV_BATCH);
        let bytes_each = bytes_each.clamp(MIN_BUFFER_BYTES, MAX_TRAIN_BYTES);
        Self {
            memory: PageMemory::new(count * stride_of(bytes_each)),
            bytes_each,
            slots: vec![Slot::EMPTY; count],
            filled: 0,
            spare: Vec::new(),
        }
    }

    /// Each of the buffers.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut [u8]> {
        let bytes_each = self.bytes_each;
        self.memory.chunks_exact_mut(stride_of(bytes_each)).map(move |buffer| &mut buffer[..bytes_each])
    }

    /// The first buffer.
    pub(crate) fn first(&mut self) -> &mut [u8] {
        &mut self.memory[..self.bytes_each]
    }

    /// Number of buffers.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// From now on a call brings one datagram or train.
    pub(crate) fn only_one(&mut self) {
        self.slots.truncate(1);
    }

    /// Hands the datagrams that [`recv_held`](crate::UdpSocket::recv_held) has left here to `handle`,
    /// in the same order every time.
    pub fn deliver(&mut self, mut handle: impl FnMut(&DatagramMeta, &mut [u8])) {
        for index in 0..self.filled {
            self.deliver_one(index, &mut handle);
        }
    }

    /// How many to ask for at most in the next call, after one that brought `got`.
    pub(crate) fn most_to_ask(&self, got: usize) -> usize {
        if got > 0 && self.slots[0].is_large() { MOST_LARGE.min(self.count()) } else { self.count() }
    }

    /// Whether there is room for what surrounds the payloads of a train that lands elsewhere.
    pub(crate) fn has_stage(&self) -> bool {
        self.memory.len() >= MAX_TRAIN_BYTES
    }

    /// Where that is put.
    #[cfg(target_os = "linux")]
    pub(crate) fn stage(&mut self) -> &mut [u8] {
        &mut self.memory[..MAX_TRAIN_BYTES]
    }

    /// Hands the datagrams to `handle` that were received into `landing`; returns what they were.
    pub(crate) fn deliver_landed(
        &mut self,
        landing: &mut Landing<'_>,
        handle: &mut impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> Delivered {
        let slot = self.slots[0];
        let meta = slot.meta();
        let segment = if slot.segment_bytes == 0 { slot.len } else { slot.segment_bytes };
        let mut delivered = Delivered { truncated: slot.truncated, ..Delivered::default() };
        let stage = &mut self.memory[..MAX_TRAIN_BYTES];
        landing.deliver(stage, slot.len, segment, &mut self.spare, |datagram| {
            delivered.add(datagram.len());
            handle(&meta, datagram);
        });
        delivered
    }

    /// Hands the datagrams of buffer `index` to `handle`; returns what they were.
    pub(crate) fn deliver_one(
        &mut self,
        index: usize,
        handle: &mut impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> Delivered {
        let slot = self.slots[index];
        let start = index * stride_of(self.bytes_each);
        let content = &mut self.memory[start..start + slot.len.min(self.bytes_each)];
        let meta = slot.meta();
        let mut delivered = Delivered { truncated: slot.truncated, ..Delivered::default() };
        if slot.segment_bytes == 0 || slot.segment_bytes >= slot.len {
            if !slot.truncated {
                delivered.add(content.len());
                handle(&meta, content);
            }
            return delivered;
        }
        for datagram in content.chunks_mut(slot.segment_bytes) {
            // The last datagram of a train may be short, unless the train was cut there.
            if slot.truncated && datagram.len() < slot.segment_bytes {
                break;
            }
            delivered.add(datagram.len());
            handle(&meta, datagram);
        }
        delivered
    }
}

/// From the beginning of one buffer to that of the next.
fn stride_of(bytes_each: usize) -> usize {
    bytes_each.next_multiple_of(STEP_BYTES) | STEP_BYTES
}

/// What was handed on from one buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) datagrams: usize,
    pub(crate) bytes: usize,
    pub(crate) truncated: bool,
}

impl Delivered {
    fn add(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(len: usize, segment_bytes: usize, truncated: bool) -> (Vec<usize>, Delivered) {
        let mut buffers = RecvBuffers::new(1, 2000);
        buffers.slots[0] = Slot { len, segment_bytes, truncated, ..Slot::EMPTY };
        let mut seen = Vec::new();
        let delivered = buffers.deliver_one(0, &mut |_, datagram| seen.push(datagram.len()));
        (seen, delivered)
    }

    #[test]
    fn trains_are_split_and_the_last_may_be_short() {
        assert_eq!(lengths(1000, 0, false).0, [1000]);
        assert_eq!(lengths(1000, 400, false).0, [400, 400, 200]);
        assert_eq!(lengths(800, 400, false).0, [400, 400]);
        assert_eq!(lengths(300, 400, false).0, [300]);
        assert_eq!(lengths(0, 0, false).0, [0], "an empty datagram is a datagram");
    }

    #[test]
    fn cut_datagrams_are_not_delivered() {
        let (seen, delivered) = lengths(2000, 900, true);
        assert_eq!(seen, [900, 900], "whole datagrams of a cut train survive");
        assert_eq!(delivered, Delivered { datagrams: 2, bytes: 1800, truncated: true });
        assert_eq!(lengths(2000, 0, true).0, [] as [usize; 0]);
    }

    #[test]
    fn of_large_datagrams_fewer_are_asked_for_than_of_trains() {
        let mut buffers = RecvBuffers::default();
        let mut most = |len, segment_bytes, got| {
            buffers.slots[0] = Slot { len, segment_bytes, ..Slot::EMPTY };
            buffers.most_to_ask(got)
        };
        assert_eq!(most(65_000, 0, 1), MOST_LARGE);
        assert_eq!([most(65_000, 1_400, 1), most(1_400, 0, 1), most(65_000, 0, 0)], [MAX_RECV_BATCH; 3]);
    }

    #[test]
    fn sizes_are_clamped() {
        assert_eq!(RecvBuffers::new(0, 0).count(), 1);
        assert_eq!(RecvBuffers::new(1000, 9).count(), MAX_RECV_BATCH);
        assert_eq!(RecvBuffers::new(1, 0).first().len(), 1280);
        assert_eq!(RecvBuffers::default().bytes_each, 65_535);
    }

    #[test]
    fn no_buffer_begins_where_a_page_has_just_begun() {
        for bytes_each in [1_280, 2_000, 65_535] {
            let mut buffers = RecvBuffers::new(MAX_RECV_BATCH, bytes_each);
            let places: Vec<_> = buffers.each().map(|buffer| buffer.as_ptr() as usize % 4096).collect();
            assert_eq!((places.len(), places[0]), (MAX_RECV_BATCH, 0));
            assert!(places.iter().all(|place| place % STEP_BYTES == 0), "{places:?}");
            let distinct: std::collections::BTreeSet<_> = places.iter().collect();
            assert_eq!(distinct.len(), MAX_RECV_BATCH, "{places:?}");
        }
    }
}
