//! One key for packets: AES-128-GCM, or ChaCha20-Poly1305 where there is no AES hardware.
//!
//! Inputs → outputs: a secret, a packet's number, header and frames → the frames sealed in place and
//! a tag; or, of a sealed packet that nobody has changed, the frames. Nothing is allocated.
//! Source: `spec/protocol.md` §12.4; nonces as in TLS 1.3 (RFC 8446 §5.3). Measured: ADR 11.

use super::prf::{Prf, Secret};
use aws_lc_rs::aead::{AES_128_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use denrei_wire::Seal;
use denrei_wire::packet::TAG_BYTES;

/// Octets of a nonce, of either cipher.
const NONCE_BYTES: usize = 12;

/// How packets are sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Suite {
    /// Where both sides have AES instructions.
    Aes128Gcm = 1,
    /// Everywhere else: faster than AES in software.
    ChaCha20Poly1305 = 2,
}

impl Suite {
    /// The suite of this number on the wire.
    pub const fn from_octet(octet: u8) -> Option<Self> {
        match octet {
            1 => Some(Self::Aes128Gcm),
            2 => Some(Self::ChaCha20Poly1305),
            _ => None,
        }
    }

    /// What is fastest here.
    pub fn preferred() -> Self {
        #[cfg(target_arch = "x86_64")]
        let has_aes = std::arch::is_x86_feature_detected!("aes");
        #[cfg(target_arch = "aarch64")]
        let has_aes = std::arch::is_aarch64_feature_detected!("aes");
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let has_aes = false;
        if has_aes { Self::Aes128Gcm } else { Self::ChaCha20Poly1305 }
    }

    /// What two sides use that prefer `self` and `other`.
    pub fn common(self, other: Self) -> Self {
        if self == other { self } else { Self::ChaCha20Poly1305 }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        }
    }
}

/// A key that seals packets in one direction.
pub(crate) struct PacketKey {
    key: LessSafeKey,
    iv: [u8; NONCE_BYTES],
}

impl PacketKey {
    /// The key that follows from a secret.
    pub fn new(suite: Suite, secret: &Secret) -> Self {
        let prf = Prf::new(secret);
        let (key, iv) = (prf.derive("key", &[]), prf.derive("iv", &[]));
        let algorithm = suite.algorithm();
        let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]).expect("keys have this length");
        let iv = *iv.first_chunk().expect("a secret is longer than a nonce");
        Self { key: LessSafeKey::new(key), iv }
    }

    /// The key of a FIRST. All of it comes from one block, because whoever floods a Node with forged
    /// FIRSTs makes it derive one for each.
    pub fn early(secret: &Secret) -> Self {
        let (key, rest) = secret.split_at(AES_128_GCM.key_len());
        let key = UnboundKey::new(&AES_128_GCM, key).expect("keys have this length");
        let iv = *rest.first_chunk().expect("16 octets are more than a nonce has");
        Self { key: LessSafeKey::new(key), iv }
    }

    /// Encrypts `frames` in place; the tag over them and `header`. A number is used once.
    ///
    /// # Panics
    /// Never: no packet is as long as what a nonce may seal (2^36 octets).
    pub fn seal(&self, number: u64, header: &[u8], frames: &mut [u8]) -> [u8; TAG_BYTES] {
        let tag = self.key.seal_in_place_separate_tag(self.nonce(number), Aad::from(header), frames);
        let tag = tag.expect("packets are shorter than 2^36 octets");
        tag.as_ref().try_into().expect("tags of both ciphers have 16 octets")
    }

    /// Decrypts `sealed`, frames and tag, in place. `None`: whoever made this does not have the key,
    /// or somebody has changed it; what `sealed` holds then means nothing.
    pub fn open<'a>(&self, number: u64, header: &[u8], sealed: &'a mut [u8]) -> Option<&'a [u8]> {
        let opened = self.key.open_in_place(self.nonce(number), Aad::from(header), sealed);
        opened.ok().map(|frames| &*frames)
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (octet, of_number) in nonce[NONCE_BYTES - 8..].iter_mut().zip(number.to_be_bytes()) {
            *octet ^= of_number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Packets may be sealed after the session has let go of them, and elsewhere.
impl Seal for PacketKey {
    fn seal(&self, number: u64, header: &[u8], frames: &mut [u8]) -> [u8; TAG_BYTES] {
        PacketKey::seal(self, number, header, frames)
    }
}

impl core::fmt::Debug for PacketKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("PacketKey(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUITES: [Suite; 2] = [Suite::Aes128Gcm, Suite::ChaCha20Poly1305];

    fn sealed(key: &PacketKey, number: u64) -> Vec<u8> {
        let mut packet = b"header".to_vec();
        packet.extend(b"and frames");
        let (header, frames) = packet.split_at_mut(6);
        let tag = key.seal(number, header, frames);
        packet.extend(tag);
        packet
    }

    #[test]
    fn what_was_sealed_is_opened_and_nothing_else() {
        for suite in SUITES {
            let key = PacketKey::new(suite, &Secret::new([3; 32]));
            let packet = sealed(&key, 7);
            assert_ne!(&packet[6..16], b"and frames");
            let open = |number, mut packet: Vec<u8>| {
                let (header, body) = packet.split_at_mut(6);
                key.open(number, header, body).map(<[u8]>::to_vec)
            };
            assert_eq!(open(7, packet.clone()).as_deref(), Some(&b"and frames"[..]));
            assert_eq!(open(8, packet.clone()), None, "another number");
            for bit in 0..packet.len() * 8 {
                let mut changed = packet.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(open(7, changed), None, "{suite:?} bit {bit}");
            }
            for len in 6..packet.len() {
                assert_eq!(open(7, packet[..len].to_vec()), None, "{len} octets of it");
            }
        }
    }

    #[test]
    fn both_sides_need_aes_for_aes() {
        assert_eq!(Suite::Aes128Gcm.common(Suite::Aes128Gcm), Suite::Aes128Gcm);
        assert_eq!(Suite::Aes128Gcm.common(Suite::ChaCha20Poly1305), Suite::ChaCha20Poly1305);
        assert!(SUITES.into_iter().all(|suite| Suite::from_octet(suite as u8) == Some(suite)));
        assert_eq!(Suite::from_octet(0), None);
    }
}
