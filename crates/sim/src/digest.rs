//! A fingerprint of a run: equal digests mean that nothing observable differed.
//!
//! Inputs → outputs: numbers, bytes and formatted values, in order → 64 bits. Not cryptographic;
//! the eight-byte folded multiplication follows the wyhash family.

use crate::rng::mix;
use core::fmt;

/// Odd multiplier of the folding step (a wyhash secret).
const MULTIPLIER: u64 = 0xa076_1d64_78bd_642f;

/// Accumulates what happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    state: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self { state: MULTIPLIER }
    }
}

impl Digest {
    /// Takes a number in.
    pub fn add(&mut self, value: u64) {
        let product = ((self.state ^ value) as u128).wrapping_mul(MULTIPLIER as u128);
        self.state = ((product >> 64) as u64) ^ (product as u64) ^ value.rotate_left(32);
    }

    /// Takes bytes in, with their length.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(last));
    }

    /// The fingerprint so far.
    pub fn value(&self) -> u64 {
        mix(self.state)
    }
}

/// Lets `write!(digest, "{event:?}")` take in anything printable.
impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add_bytes(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> u64 {
        let mut digest = Digest::default();
        digest.add_bytes(bytes);
        digest.value()
    }

    #[test]
    fn every_bit_and_the_length_count() {
        let bytes = [5u8; 21];
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&bytes), of(&other), "bit {bit}");
        }
        assert_ne!(of(&[0; 3]), of(&[0; 4]));
    }

    #[test]
    fn order_counts() {
        let (mut a, mut b) = (Digest::default(), Digest::default());
        a.add(1);
        a.add(2);
        b.add(2);
        b.add(1);
        assert_ne!(a.value(), b.value());
    }
}
