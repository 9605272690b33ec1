//! The checksum of ISO transport (X.224 §6.17 and appendix B): Fletcher's, modulo 255.
//!
//! Inputs → outputs: octets and the place of two check octets → values for them that make both sums
//! 0; or whether both are.

/// Octets that are added before the sums are reduced: 255 · 4096²/2 stays below 2^32.
const CHUNK: usize = 4096;

/// C0, the sum of all octets, and C1, the sum of all values that C0 had, modulo 255.
fn sums(parts: [&[u8]; 2]) -> (u32, u32) {
    let (mut c0, mut c1) = (0u32, 0u32);
    for chunk in parts.into_iter().flat_map(|part| part.chunks(CHUNK)) {
        for octet in chunk {
            c0 += u32::from(*octet);
            c1 += c0;
        }
        c0 %= 255;
        c1 %= 255;
    }
    (c0, c1)
}

/// The check octets X and Y of a PDU made of `header` and `payload`, in whose header they stand at
/// `at` and `at + 1`, and are 0 now.
pub fn check_octets(header: &[u8], payload: &[u8], at: usize) -> [u8; 2] {
    let (c0, c1) = sums([header, payload]);
    // Octets from the first check octet to the end: X moves C1 by this often, Y by once less.
    let tail = ((header.len() + payload.len() - at) % 255) as u32;
    // X + Y = -C0 and tail·X + (tail - 1)·Y = -C1, modulo 255.
    let x = (255 * 255 + (tail + 254) * c0 - c1) % 255;
    let y = (2 * 255 - x - c0) % 255;
    [x as u8, y as u8]
}

/// Whether the check octets of a PDU fit its content.
pub fn is_intact(pdu: &[u8]) -> bool {
    sums([pdu, &[]]) == (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_sealed_is_intact_and_a_flipped_bit_shows(
            mut pdu in prop::collection::vec(any::<u8>(), 9..20_000),
            at in 0..8usize,
            bit in 0..8u32,
            place in any::<prop::sample::Index>(),
        ) {
            pdu[at..at + 2].fill(0);
            let split = 9.min(pdu.len());
            let [x, y] = check_octets(&pdu[..split], &pdu[split..], at);
            (pdu[at], pdu[at + 1]) = (x, y);
            prop_assert!(is_intact(&pdu));
            let place = place.index(pdu.len());
            pdu[place] ^= 1 << bit;
            // 0x00 and 0xff are the same modulo 255, and no single bit makes one of the other.
            prop_assert!(!is_intact(&pdu));
        }
    }
}
