//! CRC-32C (Castagnoli), the trailer of plain packets (RFC 3720 appendix B.4).
//!
//! By carry-less multiplication, or by the processor's `crc32` instruction in three rows at a time: whichever is faster on
//! this processor (ADR 7). Both give the same.

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes the checksum takes at the end of a plain packet.
pub const CHECKSUM_BYTES: usize = 4;

/// From so many octets on three rows are worth their beginning and their end.
const ROWS_FROM_BYTES: usize = 1024;

/// CRC-32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    if bytes.len() >= ROWS_FROM_BYTES && rows_are_faster() {
        return crc32c::crc32c(bytes);
    }
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32C of `parts`, one after the other.
pub fn crc32c_of_parts(parts: &[&[u8]]) -> u32 {
    if parts.iter().any(|part| part.len() >= ROWS_FROM_BYTES) && rows_are_faster() {
        return parts.iter().fold(0, |sum, part| crc32c::crc32c_append(sum, part));
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// Whether the `crc32` instruction is faster here: it is where there is no carry-less multiplication of 64 octets at once.
#[cfg(target_arch = "x86_64")]
fn rows_are_faster() -> bool {
    let folds_wide = is_x86_feature_detected!("avx512vl") && is_x86_feature_detected!("vpclmulqdq");
    !folds_wide && is_x86_feature_detected!("sse4.2")
}

#[cfg(not(target_arch = "x86_64"))]
fn rows_are_faster() -> bool {
    false
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
    fn the_sum_is_the_same_whichever_way_is_taken() {
        let bytes: Vec<u8> =
            (0..70_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in [0, 1, 63, 1_023, 1_024, 1_025, 1_350, 4_096, 65_507, 70_000] {
            for at in [0, 1, 7] {
                let bytes = &bytes[at.min(len)..len];
                let whole = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
                let in_rows = crc32c::crc32c(bytes);
                let in_parts = crc32c_of_parts(&[&bytes[..bytes.len() / 3], &bytes[bytes.len() / 3..], &[]]);
                assert_eq!([crc32c(bytes), in_rows, in_parts], [whole; 3], "{len} from {at}");
            }
        }
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
