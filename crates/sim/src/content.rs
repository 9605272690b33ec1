//! What simulated messages contain: bytes that follow from who sent them and when, so that the
//! receiver can check them without anyone storing them.
//!
//! Inputs → outputs: a [`Name`] and a length → bytes, or whether given bytes are those.

use crate::rng::mix;
use bytes::Bytes;

/// Names one message in a run; every message of a run has a different one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The sender's session, counted over the run.
    pub session: u32,
    /// The channel.
    pub channel: u16,
    /// The message's number in the channel.
    pub number: u64,
}

impl Name {
    fn seed(self) -> u64 {
        mix(mix(self.number) ^ ((self.session as u64) << 16 | self.channel as u64))
    }

    /// The message of `len` bytes with this name.
    pub fn bytes(self, len: usize) -> Bytes {
        let mut bytes = vec![0; len.next_multiple_of(8)];
        let mut word = Words(self.seed());
        bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|chunk| *chunk = word.next());
        bytes.truncate(len);
        Bytes::from(bytes)
    }

    /// The first offset at which `bytes` are not this message's, if any.
    pub fn mismatch(self, bytes: &[u8]) -> Option<usize> {
        let mut word = Words(self.seed());
        let (whole, rest) = bytes.as_chunks::<8>();
        if let Some(at) = whole.iter().position(|chunk| *chunk != word.next()) {
            return Some(at * 8);
        }
        (rest != &word.next()[..rest.len()]).then_some(whole.len() * 8)
    }
}

/// A fast sequence of eight-byte words; the multiplier is that of Knuth's MMIX generator.
struct Words(u64);

impl Words {
    fn next(&mut self) -> [u8; 8] {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ (self.0 >> 32)).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name { session: 3, channel: 1, number: 9 };

    #[test]
    fn content_matches_itself_and_nothing_else() {
        for len in [0, 1, 7, 8, 9, 1000] {
            let bytes = NAME.bytes(len);
            assert_eq!(bytes.len(), len);
            assert_eq!(NAME.mismatch(&bytes), None);
        }
        let bytes = NAME.bytes(64);
        assert_eq!(Name { number: 10, ..NAME }.mismatch(&bytes), Some(0));
        let mut damaged = bytes.to_vec();
        damaged[63] ^= 1;
        assert_eq!(NAME.mismatch(&damaged), Some(56));
        assert_eq!(NAME.mismatch(&damaged[8..]), Some(0), "a shift is noticed");
    }
}
