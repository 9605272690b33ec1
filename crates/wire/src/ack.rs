//! The ACK frame: which packets have arrived.
//!
//! Inputs → outputs: ranges of packet numbers, newest first → octets → the same ranges, low
//! 32 bits each. Source: `spec/protocol.md` §4; RFC 9000 §19.3 for the idea of gap and run.
//! Deviation: fixed 32-bit fields instead of variable-length integers; the ECN counts that are 0
//! nearly always are left out. With 8 octets less a sealed message of 64 octets and the ACK beside it
//! stay within a datagram of 128: the kernel copies longer ones another way, and a round trip takes
//! 0.3 µs more (`denrei bench pingpong --sealed --wait poll --sizes 70,76`).

use crate::frame::{FrameError, kind};
use crate::ids::expand;
use core::ops::RangeInclusive;
use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Most ranges one ACK frame reports: with the first, 33 ranges in 276 octets.
pub const MAX_ACK_RANGES: usize = 33;

/// How far below the largest packet an ACK reaches: half the window in which 32-bit numbers are
/// unambiguous. Older packets have been acknowledged or given up long since.
pub const MAX_ACK_SPAN: u64 = 1 << 31;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct AckHeader {
    kind: u8,
    /// Ranges after the first.
    more: u8,
    delay_us: U16,
    largest: U32,
    /// Packets in the first range, less one.
    first_run: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct AckRange {
    /// Packets missing above this range, at least 1.
    gap: U32,
    /// Packets in this range, less one.
    run: U32,
}

/// All of it in ACK_ECN, its first field alone in ACK_ECT0.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct EcnBody {
    ect0: U32,
    ect1: U32,
    ce: U32,
}

/// How many packets arrived with which ECN codepoint, modulo 2^32 (RFC 9000 §13.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EcnCounts {
    /// Packets marked ECT(0).
    pub ect0: u32,
    /// Packets marked ECT(1).
    pub ect1: u32,
    /// Packets marked CE.
    pub ce: u32,
}

/// An ACK frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckFrame<'a> {
    /// µs between the arrival of `largest` and this frame, at most 65,535.
    pub delay_us: u16,
    /// Low 32 bits of the largest packet number received.
    pub largest: u32,
    first_run: u32,
    more: &'a [AckRange],
    /// ECN counts, if the receiver can read the bits.
    pub ecn: Option<EcnCounts>,
}

/// Octets of an ACK frame with `ranges` ranges (≥ 1).
pub const fn encoded_len(ranges: usize, ecn: Option<EcnCounts>) -> usize {
    let ecn_len = match kind_of(ecn) {
        kind::ACK_ECN => size_of::<EcnBody>(),
        kind::ACK_ECT0 => size_of::<U32>(),
        _ => 0,
    };
    size_of::<AckHeader>() + (ranges - 1) * size_of::<AckRange>() + ecn_len
}

/// The shortest frame that says so.
const fn kind_of(ecn: Option<EcnCounts>) -> u8 {
    match ecn {
        None => kind::ACK,
        Some(EcnCounts { ect1: 0, ce: 0, .. }) => kind::ACK_ECT0,
        Some(_) => kind::ACK_ECN,
    }
}

/// Hands the octets of an ACK frame to `put`. `ranges` are of packet numbers, disjoint, not
/// adjacent, the newest first; those after [`MAX_ACK_RANGES`] are left out, as is whatever lies
/// [`MAX_ACK_SPAN`] or more below the largest number.
///
/// # Panics
/// If `ranges` is empty, or not as described.
pub fn encode(
    ranges: impl Iterator<Item = RangeInclusive<u64>> + Clone,
    delay_us: u16,
    ecn: Option<EcnCounts>,
    put: &mut impl FnMut(&[u8]),
) {
    let largest = *ranges.clone().next().expect("an ACK has at least one range").end();
    let floor = largest.saturating_sub(MAX_ACK_SPAN - 1);
    let mut ranges = ranges
        .take(MAX_ACK_RANGES)
        .take_while(|range| *range.end() >= floor)
        .map(|range| (*range.start()).max(floor)..=*range.end());
    let more = ranges.clone().count() - 1;
    let first = ranges.next().expect("the first range reaches above the floor");
    let header = AckHeader {
        kind: kind_of(ecn),
        more: more as u8,
        delay_us: delay_us.into(),
        largest: (largest as u32).into(),
        first_run: run_of(&first).into(),
    };
    put(header.as_bytes());
    let mut above = *first.start();
    for range in ranges {
        assert!(*range.end() + 1 < above, "ranges are disjoint, not adjacent, newest first");
        let gap = (above - range.end() - 1) as u32;
        put(AckRange { gap: gap.into(), run: run_of(&range).into() }.as_bytes());
        above = *range.start();
    }
    put_counts(header.kind, ecn.unwrap_or_default(), put);
}

/// Packets in a range that [`MAX_ACK_SPAN`] bounds, less one.
fn run_of(range: &RangeInclusive<u64>) -> u32 {
    assert!(range.start() <= range.end(), "a range holds a packet");
    (range.end() - range.start()) as u32
}

fn put_counts(kind: u8, counts: EcnCounts, put: &mut impl FnMut(&[u8])) {
    let body = EcnBody { ect0: counts.ect0.into(), ect1: counts.ect1.into(), ce: counts.ce.into() };
    match kind {
        kind::ACK_ECT0 => put(body.ect0.as_bytes()),
        kind::ACK_ECN => put(body.as_bytes()),
        _ => {}
    }
}

/// The counts of a frame of this kind at the front of `rest`, and what follows; `None` if it is cut.
fn take_counts(kind: u8, rest: &[u8]) -> Option<(Option<EcnCounts>, &[u8])> {
    match kind {
        kind::ACK_ECT0 => {
            let (ect0, rest) = U32::ref_from_prefix(rest).ok()?;
            Some((Some(EcnCounts { ect0: ect0.get(), ..EcnCounts::default() }), rest))
        }
        kind::ACK_ECN => {
            let (body, rest) = EcnBody::ref_from_prefix(rest).ok()?;
            let counts = EcnCounts { ect0: body.ect0.get(), ect1: body.ect1.get(), ce: body.ce.get() };
            Some((Some(counts), rest))
        }
        _ => Some((None, rest)),
    }
}

impl<'a> AckFrame<'a> {
    /// Takes the frame at the front of `rest`, which is not empty.
    pub(crate) fn take(rest: &mut &'a [u8]) -> Result<Self, FrameError> {
        let kind = rest[0];
        let truncated = FrameError::Truncated { kind };
        let (header, after) = AckHeader::ref_from_prefix(rest).map_err(|_| truncated)?;
        if header.more as usize >= MAX_ACK_RANGES {
            return Err(FrameError::Impossible { kind, field: "range count" });
        }
        let (more, after) =
            <[AckRange]>::ref_from_prefix_with_elems(after, header.more as usize).map_err(|_| truncated)?;
        if more.iter().any(|range| range.gap.get() == 0) {
            return Err(FrameError::Impossible { kind, field: "gap" });
        }
        let (ecn, after) = take_counts(kind, after).ok_or(truncated)?;
        *rest = after;
        Ok(Self {
            delay_us: header.delay_us.get(),
            largest: header.largest.get(),
            first_run: header.first_run.get(),
            more,
            ecn,
        })
    }

    /// Ranges of full packet numbers, newest first, given a number `expected` near the largest
    /// (the last one sent). Ends early where a range would reach below packet 0. The ranges come
    /// from the network: they may name packets that were never sent, and billions of them.
    pub fn ranges(&self, expected: u64) -> impl Iterator<Item = RangeInclusive<u64>> + use<'a> {
        let end = expand(self.largest, expected);
        let mut next = end.checked_sub(self.first_run as u64).map(|start| start..=end);
        let mut more = self.more.iter();
        core::iter::from_fn(move || {
            let range = next.take()?;
            next = more.next().and_then(|below| {
                let end = range.start().checked_sub(below.gap.get() as u64 + 1)?;
                Some(end.checked_sub(below.run.get() as u64)?..=end)
            });
            Some(range)
        })
    }

    /// Hands the octets of this frame to `put`.
    pub fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let header = AckHeader {
            kind: kind_of(self.ecn),
            more: self.more.len() as u8,
            delay_us: self.delay_us.into(),
            largest: self.largest.into(),
            first_run: self.first_run.into(),
        };
        put(header.as_bytes());
        put(self.more.as_bytes());
        put_counts(header.kind, self.ecn.unwrap_or_default(), put);
    }
}
