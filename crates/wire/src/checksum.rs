//! CRC-32C (Castagnoli), the trailer of plain packets (RFC 3720 appendix B.4).

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes the checksum takes at the end of a plain packet.
pub const CHECKSUM_BYTES: usize = 4;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of `parts`, one after the other.
pub fn crc32c_of_parts(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// Whether `packet` ends with the CRC-32C of what precedes it, little-endian.
pub fn verify(packet: &[u8]) -> bool {
    let Some((covered, trailer)) = packet.split_last_chunk::<CHECKSUM_BYTES>() else { return false };
    crc32c(covered) == u32::from_le_bytes(*trailer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_vectors_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c_of_parts(&[&ascending[..5], &[], &ascending[5..]]), 0x46dd_794e);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut packet = vec![0x5a; 60];
        let crc = crc32c(&packet);
        packet.extend(crc.to_le_bytes());
        assert!(verify(&packet));
        for bit in 0..packet.len() * 8 {
            packet[bit / 8] ^= 1 << (bit % 8);
            assert!(!verify(&packet), "bit {bit}");
            packet[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(!verify(&[1, 2, 3]));
    }
}
