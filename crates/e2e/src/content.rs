//! What the messages of a test contain.
//!
//! Inputs → outputs: (plan, channel, index) → size and bytes. Sender and receiver compute both by
//! themselves, so a message is checked to the byte without having to say what it is; an empty one too.

use serde::{Deserialize, Serialize};

/// A source of numbers that look random (splitmix64, Steele et al. 2014), equal everywhere for a seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `limit`, which is at least 1.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit.max(1)
    }

    /// Bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.next_multiple_of(8)];
        bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|chunk| *chunk = self.next_u64().to_le_bytes());
        bytes.truncate(len);
        bytes
    }
}

/// The messages of a test: (channel, index) → bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Other seeds, other content.
    pub seed: u64,
    /// How long the messages are.
    pub sizes: Sizes,
}

/// How long messages are.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Sizes {
    /// All this many bytes.
    Fixed(usize),
    /// From nothing to `most` bytes; most are small, most bytes are in large ones.
    Mixed {
        /// The largest, bytes.
        most: usize,
    },
}

impl Plan {
    /// Size of a message, bytes.
    pub fn size(&self, channel: u16, index: u64) -> usize {
        let most = match self.sizes {
            Sizes::Fixed(bytes) => return bytes,
            Sizes::Mixed { most } => most as u64,
        };
        let mut random = self.random(channel, index);
        let size = match random.below(100) {
            0..10 => 0,
            10..60 => random.below(300),
            60..85 => random.below(16 << 10),
            85..98 => random.below(256 << 10),
            _ => most - random.below(most / 4),
        };
        size.min(most) as usize
    }

    /// A message.
    pub fn content(&self, channel: u16, index: u64) -> Vec<u8> {
        self.random(channel, !index).bytes(self.size(channel, index))
    }

    /// Compares a message with what it has to be; the error says what is wrong.
    ///
    /// # Errors
    /// Another length, or the first byte that differs.
    pub fn check(&self, channel: u16, index: u64, data: &[u8]) -> Result<(), String> {
        let expected = self.content(channel, index);
        if expected == data {
            return Ok(());
        }
        if expected.len() != data.len() {
            return Err(format!("{} bytes long instead of {}", data.len(), expected.len()));
        }
        let at = expected.iter().zip(data).take_while(|(expected, got)| expected == got).count();
        Err(format!("differs from byte {at} of {}", data.len()))
    }

    fn random(&self, channel: u16, index: u64) -> Random {
        let place = (u64::from(channel) << 48) ^ index;
        Random::new(Random::new(self.seed ^ place.rotate_left(17)).next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_reach_from_nothing_to_the_most() {
        let plan = Plan { seed: 1, sizes: Sizes::Mixed { most: 4 << 20 } };
        let sizes: Vec<usize> = (0..1000).map(|index| plan.size(0, index)).collect();
        assert!(sizes.contains(&0) && sizes.iter().all(|size| *size <= 4 << 20));
        assert!(sizes.iter().any(|size| *size > 3 << 20));
    }

    #[test]
    fn a_check_finds_what_is_wrong() {
        let plan = Plan { seed: 1, sizes: Sizes::Fixed(100) };
        let mut content = plan.content(2, 7);
        assert_eq!(plan.check(2, 7, &content), Ok(()));
        assert!(plan.check(2, 8, &content).is_err() && plan.check(1, 7, &content).is_err());
        content[60] ^= 1;
        assert_eq!(plan.check(2, 7, &content), Err("differs from byte 60 of 100".into()));
        assert_eq!(plan.check(2, 7, &content[1..]), Err("99 bytes long instead of 100".into()));
    }
}
