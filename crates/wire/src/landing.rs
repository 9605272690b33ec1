//! Receiving payloads where they belong: datagrams whose payloads lie behind each other in a message's
//! memory, while what surrounds them lies in a stage beside it.
//!
//! Inputs → outputs: a message's memory, and how its next datagrams are expected to look → stretches to
//! receive a train into; the train → each datagram in one piece. Whether a datagram is what was expected
//! only whoever takes it can tell; every one is handed over whole, wherever its octets have come to lie.

use crate::datagram::{MAX_SEGMENTS, MAX_TRAIN_BYTES};

/// How the octets of a datagram that carries a part of a message divide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Before the payload: headers. No datagram is without.
    pub before: usize,
    /// Payload.
    pub payload: usize,
    /// After it: checksum or tag.
    pub after: usize,
}

impl Shape {
    /// Octets of the whole datagram.
    pub const fn datagram(&self) -> usize {
        self.before + self.payload + self.after
    }

    /// Between two payloads of a train.
    const fn between(&self) -> usize {
        self.after + self.before
    }

    /// Datagrams whose payloads fit into `room` octets of memory from the first one's on, with what comes after
    /// the last; at most a train of them.
    pub const fn fit(&self, room: usize) -> usize {
        let fit = room.saturating_sub(self.after) / self.payload;
        let train = MAX_TRAIN_BYTES / self.datagram();
        let most = if train < MAX_SEGMENTS { train } else { MAX_SEGMENTS };
        if fit < most { fit } else { most }
    }
}

/// Where the next train of a peer is expected to belong.
#[derive(Debug)]
pub struct Landing<'a> {
    memory: &'a mut [u8],
    /// Where in `memory` the first payload belongs; what lies before is the message's already.
    at: usize,
    shape: Shape,
    /// Datagrams that there is room for.
    count: usize,
}

impl<'a> Landing<'a> {
    /// Payloads belong into `memory` from `at` on. `None`: there is no room for any, or
    /// none before it for what precedes its payload.
    pub fn new(memory: &'a mut [u8], at: usize, shape: Shape) -> Option<Self> {
        let plausible = shape.before > 0 && shape.payload > 0 && at >= shape.before && at <= memory.len();
        let count = if plausible { shape.fit(memory.len() - at) } else { 0 };
        (count > 0).then_some(Self { memory, at, shape, count })
    }

    /// What to receive a train into, in this order; `stage` has at least [`MAX_TRAIN_BYTES`]: a train that is not what
    /// was expected may be all there.
    pub fn stretches<'s>(&'s mut self, stage: &'s mut [u8]) -> impl Iterator<Item = &'s mut [u8]> {
        let Shape { before, payload, .. } = self.shape;
        let (first, rest) = stage.split_at_mut(before);
        let (between, beyond) = rest.split_at_mut((self.count - 1) * self.shape.between());
        let payloads = self.memory[self.at..][..self.count * payload].chunks_exact_mut(payload);
        let behind = between.chunks_exact_mut(self.shape.between()).chain([beyond]);
        core::iter::once(first).chain(payloads.zip(behind).flat_map(|(payload, behind)| [payload, behind]))
    }

    /// Hands each datagram of a train of `len` octets that was received into [`stretches`](Self::stretches)
    /// to `handle`, in order and in one piece, which it may write to. `segment`: octets per datagram, of which the
    /// last may be shorter. `spare` is for what has to be put together; its content is lost.
    ///
    /// What was in the memory before [`at`](Self::new) is there again afterwards, and so is each payload, unless
    /// `handle` wrote to it.
    pub fn deliver(
        &mut self,
        stage: &mut [u8],
        len: usize,
        segment: usize,
        spare: &mut Vec<u8>,
        mut handle: impl FnMut(&mut [u8]),
    ) {
        if len == 0 {
            return handle(&mut []);
        }
        let segment = segment.clamp(1, len);
        if segment != self.shape.datagram() {
            // The octets of one lie where those of several were expected.
            self.gather(stage, 0, len, spare);
            return spare.chunks_mut(segment).for_each(handle);
        }
        for number in 0..len.div_ceil(segment) {
            let its = segment.min(len - number * segment);
            if number >= self.count {
                let start = self.shape.before + (self.count - 1) * self.shape.between() + self.shape.after;
                handle(&mut stage[start + (number - self.count) * segment..][..its]);
            } else if its == segment {
                self.deliver_in_place(stage, number, &mut handle);
            } else {
                self.gather(stage, number * segment, its, spare);
                handle(spare);
            }
        }
    }

    /// Puts what surrounds a payload around it for as long as `handle` takes.
    fn deliver_in_place(&mut self, stage: &mut [u8], number: usize, handle: &mut impl FnMut(&mut [u8])) {
        let Shape { before, payload, after } = self.shape;
        let start = self.at + number * payload;
        let staged = number * self.shape.between();
        let mut swap = |memory: &mut [u8]| {
            let (head, tail) = stage[staged..][..before + after].split_at_mut(before);
            memory[start - before..start].swap_with_slice(head);
            memory[start + payload..][..after].swap_with_slice(tail);
        };
        swap(self.memory);
        handle(&mut self.memory[start - before..start + payload + after]);
        swap(self.memory);
    }

    /// Copies `len` octets of the train from `start` on into `spare`.
    fn gather(&mut self, stage: &mut [u8], start: usize, len: usize, spare: &mut Vec<u8>) {
        spare.clear();
        let (mut skip, mut left) = (start, len);
        for stretch in self.stretches(stage) {
            let skipped = skip.min(stretch.len());
            let taken = left.min(stretch.len() - skipped);
            spare.extend_from_slice(&stretch[skipped..][..taken]);
            (skip, left) = (skip - skipped, left - taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn train(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    fn receive(landing: &mut Landing<'_>, stage: &mut [u8], mut train: &[u8]) {
        for stretch in landing.stretches(stage) {
            let taken = train.len().min(stretch.len());
            stretch[..taken].copy_from_slice(&train[..taken]);
            train = &train[taken..];
        }
        assert!(train.is_empty(), "there is room for every train");
    }

    proptest! {
        #[test]
        fn every_datagram_is_handed_over_whole_and_the_memory_is_as_it_was(
            (before, payload, after) in (0usize..60, 1usize..3000, 0usize..20),
            (at, room) in (0usize..5000, 0usize..200_000),
            (len, segment) in (0usize..65_536, 1usize..3000),
            as_expected in any::<bool>(),
        ) {
            let shape = Shape { before, payload, after };
            let segment = if as_expected { shape.datagram() } else { segment };
            let (train, mut stage, mut spare) = (train(len), vec![0; MAX_TRAIN_BYTES], Vec::new());
            let mut memory: Vec<u8> = (0..at + room).map(|at| (at * 7) as u8).collect();
            let head = memory[..at].to_vec();
            let Some(mut landing) = Landing::new(&mut memory, at, shape) else {
                prop_assert!(before == 0 || at < before || room < payload + after);
                return Ok(());
            };
            receive(&mut landing, &mut stage, &train);
            let mut seen = Vec::new();
            landing.deliver(&mut stage, len, segment, &mut spare, |datagram| seen.push(datagram.to_vec()));
            let mut sent: Vec<_> = train.chunks(segment).map(<[u8]>::to_vec).collect();
            if len == 0 {
                sent.push(Vec::new());
            }
            prop_assert_eq!(seen, sent);
            prop_assert_eq!(&memory[..at], &head);
            if as_expected {
                for (number, datagram) in train.chunks_exact(segment).take(shape.fit(room)).enumerate() {
                    let there = &memory[at + number * payload..][..payload];
                    prop_assert_eq!(there, &datagram[before..before + payload], "where it belongs");
                }
            }
        }
    }

    #[test]
    fn what_has_no_room_does_not_land() {
        let shape = Shape { before: 40, payload: 100, after: 4 };
        assert!(Landing::new(&mut [0; 143], 40, shape).is_none(), "the checksum has no room");
        assert!(Landing::new(&mut [0; 144], 40, shape).is_some());
        assert!(Landing::new(&mut [0; 200], 39, shape).is_none(), "nor has its header");
        assert!(Landing::new(&mut [0; 200], 300, shape).is_none());
        assert!(Landing::new(&mut [0; 200], 40, Shape { payload: 0, ..shape }).is_none());
        let bare = Shape { before: 0, after: 0, ..shape };
        assert!(Landing::new(&mut [0; 200], 40, bare).is_none(), "there is no such datagram");
    }
}
