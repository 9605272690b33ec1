//! Names for sessions, packets, channels and messages on the wire.
//!
//! Numbers that grow without end travel truncated to 32 bits and are expanded against what the
//! receiver has already seen (RFC 9000 appendix A.3).

use core::fmt;

/// Which start of a process this is: random, chosen once per Node. A restarted peer has another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Names one session to the host that chose it; in plain mode also what a blind attacker has to
/// guess. The low 24 bits are the slot in the chooser's peer table, the other 40 are random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

impl Token {
    /// Bits of the slot number: at most 16.7 million peers per port.
    pub const SLOT_BITS: u32 = 24;

    /// A token for `slot`, made unguessable by `random`.
    pub const fn new(slot: u32, random: u64) -> Self {
        let mask = (1u64 << Self::SLOT_BITS) - 1;
        Self((random & !mask) | (slot as u64 & mask))
    }

    /// The slot in the peer table of the host that chose this token.
    pub const fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Expands the low 32 bits of a counter to the 64-bit value nearest to `expected`
/// (RFC 9000 appendix A.3 with a window of 2^32).
pub const fn expand(truncated: u32, expected: u64) -> u64 {
    const WINDOW: u64 = 1 << 32;
    let ahead = truncated.wrapping_sub(expected as u32) as u64;
    let behind = WINDOW - ahead;
    // At the ends of the number space only one direction exists. `ahead` and `behind` are both
    // candidates: they differ by a window and so share their low 32 bits.
    match (expected.checked_add(ahead), expected.checked_sub(behind)) {
        (Some(above), Some(below)) => {
            if ahead <= behind {
                above
            } else {
                below
            }
        }
        (Some(above), None) => above,
        (None, Some(below)) => below,
        (None, None) => unreachable!(),
    }
}

/// Numbers packets of one session and direction, from 0, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct PacketNumber(pub u64);

impl PacketNumber {
    /// The number after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The form that travels.
    pub const fn truncate(self) -> u32 {
        self.0 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_carries_its_slot() {
        let token = Token::new(0x00ab_cdef, u64::MAX);
        assert_eq!(token.slot(), 0x00ab_cdef);
        assert_eq!(Token::new(5, 0).0, 5);
    }

    proptest! {
        #[test]
        fn expansion_inverts_truncation_near_the_expected(expected in 0u64..1 << 60, ahead in -1_000_000_000i64..1_000_000_000) {
            let full = expected.saturating_add_signed(ahead);
            prop_assert_eq!(expand(full as u32, expected), full);
        }

        #[test]
        fn expansion_never_panics(truncated: u32, expected: u64) {
            prop_assert_eq!(expand(truncated, expected) as u32, truncated);
        }

        #[test]
        fn expansion_finds_the_nearest(truncated: u32, expected: u64) {
            let full = expand(truncated, expected);
            for other in [full.checked_add(1 << 32), full.checked_sub(1 << 32)].into_iter().flatten() {
                prop_assert!(full.abs_diff(expected) <= other.abs_diff(expected));
            }
        }
    }

    #[test]
    fn expansion_works_at_both_ends_of_the_number_space() {
        assert_eq!(expand(u32::MAX, 0), u32::MAX as u64, "nothing lies below 0");
        assert_eq!(expand(0, u64::MAX), 0xffff_ffff_0000_0000, "nothing lies above 2^64 - 1");
        assert_eq!(expand(1 << 31, 1 << 32), (1 << 32) + (1 << 31), "of two equally near the one ahead");
    }
}
