//! FEEDBACK: what a member of a group has received, and may still be sent (M3, M6).
//!
//! Inputs → outputs: octets ↔ [`Feedback`], which borrows its gaps. Never repeated: the next one
//! says what holds then. Source: `spec/protocol.md` §14.4.

use super::{FrameError, kind};
use crate::group::MAX_GAPS;
use core::fmt;
use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Flags of FEEDBACK; others are reserved and refused.
pub mod feedback_flags {
    /// The member has heard the group's address since its last report.
    pub const HEARD: u8 = 1 << 0;
    /// All flags that version 1 knows.
    pub const KNOWN: u8 = HEARD;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct Layout {
    kind: u8,
    flags: u8,
    group: U64,
    member: U32,
    covers: U32,
    echo: U32,
    received: U32,
    delay_us: U32,
    next: U32,
    messages: U32,
    limit: U64,
    gaps: u8,
}

/// Symbols in a row that a member misses.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Gap {
    first: U32,
    count: U16,
}

impl Gap {
    /// `count` symbols from the one with these low 32 bits on.
    pub fn new(first: u32, count: u16) -> Self {
        Self { first: first.into(), count: count.into() }
    }

    /// Low 32 bits of the first symbol missing.
    pub fn first(&self) -> u32 {
        self.first.get()
    }

    /// How many are missing, at least 1.
    pub fn count(&self) -> u16 {
        self.count.get().max(1)
    }
}

/// A member's report, or that of a member and those below it, each value the least of theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// [`feedback_flags`].
    pub flags: u8,
    /// The group.
    pub group: u64,
    /// The member with the least `next`.
    pub member: u32,
    /// For how many members this speaks; 0: for one alone, with what is known of some below it.
    pub covers: u32,
    /// Low 32 bits of the largest packet number received from the group's address.
    pub echo: u32,
    /// Low 32 bits of the number of packets up to `echo` that those it speaks for have received, together.
    pub received: u32,
    /// Time since the packet `echo` arrived, µs.
    pub delay_us: u32,
    /// Low 32 bits of the first symbol not received (M3).
    pub next: u32,
    /// Low 32 bits of the number of messages received whole and in order.
    pub messages: u32,
    /// Cost that may have been sent to the group (M6).
    pub limit: u64,
    /// What is missing of the symbols known to have been sent.
    pub gaps: &'a [Gap],
}

impl<'a> Feedback<'a> {
    /// Takes a FEEDBACK off the front of `octets`.
    pub(super) fn take(octets: &mut &'a [u8]) -> Result<Self, FrameError> {
        let truncated = FrameError::Truncated { kind: kind::FEEDBACK };
        let (layout, rest) = Layout::ref_from_prefix(octets).map_err(|_| truncated)?;
        let impossible = |field| FrameError::Impossible { kind: kind::FEEDBACK, field };
        if layout.flags & !feedback_flags::KNOWN != 0 {
            return Err(impossible("flags"));
        }
        if layout.gaps as usize > MAX_GAPS {
            return Err(impossible("number of gaps"));
        }
        let len = layout.gaps as usize * size_of::<Gap>();
        let (gaps, rest) = rest.split_at_checked(len).ok_or(truncated)?;
        *octets = rest;
        Ok(Self {
            flags: layout.flags,
            group: layout.group.get(),
            member: layout.member.get(),
            covers: layout.covers.get(),
            echo: layout.echo.get(),
            received: layout.received.get(),
            delay_us: layout.delay_us.get(),
            next: layout.next.get(),
            messages: layout.messages.get(),
            limit: layout.limit.get(),
            gaps: <[Gap]>::ref_from_bytes(gaps).map_err(|_| truncated)?,
        })
    }

    /// Hands the octets to `put`; of more than [`MAX_GAPS`] gaps, the first.
    pub(super) fn encode(&self, put: &mut impl FnMut(&[u8])) {
        let gaps = &self.gaps[..self.gaps.len().min(MAX_GAPS)];
        let layout = Layout {
            kind: kind::FEEDBACK,
            flags: self.flags,
            group: self.group.into(),
            member: self.member.into(),
            covers: self.covers.into(),
            echo: self.echo.into(),
            received: self.received.into(),
            delay_us: self.delay_us.into(),
            next: self.next.into(),
            messages: self.messages.into(),
            limit: self.limit.into(),
            gaps: gaps.len() as u8,
        };
        put(layout.as_bytes());
        put(gaps.as_bytes());
    }
}

/// A [`Feedback`] that borrows nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedFeedback {
    report: Feedback<'static>,
    gaps: Vec<Gap>,
}

impl From<&Feedback<'_>> for OwnedFeedback {
    fn from(report: &Feedback<'_>) -> Self {
        Self { gaps: report.gaps.to_vec(), report: Feedback { gaps: &[], ..*report } }
    }
}

impl OwnedFeedback {
    /// The report.
    pub fn as_frame(&self) -> Feedback<'_> {
        Feedback { gaps: &self.gaps, ..self.report }
    }
}

impl fmt::Display for Feedback<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FEEDBACK {:016x} member {} next {}", self.group, self.member, self.next)?;
        write!(f, " messages {} limit {} echo {}", self.messages, self.limit, self.echo)?;
        for gap in self.gaps {
            write!(f, " -{}x{}", gap.first(), gap.count())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Frames};

    #[test]
    fn a_report_survives_the_round_trip() {
        let gaps = [Gap::new(3, 1), Gap::new(9, 400)];
        let report = Feedback {
            flags: feedback_flags::HEARD,
            group: 0xfeed_beef,
            member: 4,
            covers: 1,
            echo: 12,
            received: 11,
            delay_us: 13,
            next: 14,
            messages: 15,
            limit: 1 << 40,
            gaps: &gaps,
        };
        let mut octets = Vec::new();
        Frame::Feedback(report).encode(&mut |part| octets.extend_from_slice(part));
        assert_eq!(Frames::new(&octets).next(), Some(Ok(Frame::Feedback(report))));
        for cut in 1..octets.len() {
            assert!(Frames::new(&octets[..cut]).next().unwrap().is_err(), "cut at {cut}");
        }
        octets[1] = 0x80;
        assert!(Frames::new(&octets).next().unwrap().is_err(), "reserved flags");
    }
}
