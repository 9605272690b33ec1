//! Random octets from a seed, for tokens, incarnations, ephemeral keys.
//!
//! Inputs → outputs: a [`Seed`] → octets that nobody can tell from random ones who does not know it.
//! HMAC-SHA256 with a new key for every block, so that what is in memory today tells nothing of the
//! ephemeral keys of yesterday (fast key erasure; NIST SP 800-90A's HMAC_DRBG with fewer parts).

use super::{SecretOctets, Seed};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use zeroize::Zeroizing;

/// Octets of one block: what SHA-256 gives.
pub(crate) const BLOCK_BYTES: usize = 32;

/// A generator.
#[derive(Clone)]
pub(crate) struct Random {
    /// In one place: what moves leaves copies, from which all that came later would follow.
    state: SecretOctets,
}

impl Random {
    /// A generator whose octets follow from `seed`.
    pub fn new(seed: &Seed) -> Self {
        Self { state: SecretOctets::copy_of(seed.as_bytes()) }
    }

    /// The next 32 octets.
    pub fn block(&mut self) -> Zeroizing<[u8; BLOCK_BYTES]> {
        let key = Key::new(HMAC_SHA256, &*self.state);
        let mut block = Zeroizing::new([0; BLOCK_BYTES]);
        block.copy_from_slice(sign(&key, b"output").as_ref());
        self.state.copy_from_slice(sign(&key, b"state").as_ref());
        block
    }

    /// A seed for a purpose of its own.
    pub fn seed(&mut self) -> Seed {
        Seed::copy_of(&self.block())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        let block = self.block();
        u64::from_le_bytes(*block.first_chunk().expect("a block has 32 octets"))
    }
}

impl core::fmt::Debug for Random {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Random(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_blocks_do_not() {
        let blocks = |seed: u64| {
            let mut random = Random::new(&Seed::from(seed));
            [*random.block(), *random.block()]
        };
        assert_eq!(blocks(1), blocks(1));
        assert_ne!(blocks(1)[0], blocks(1)[1]);
        assert_ne!(blocks(1)[0], blocks(2)[0]);
    }
}
