//! What the tests of this crate share.

/// What message `number` holds: other bytes at each place. Made by words, for where little is inlined single bytes
/// take most of the time of a test.
pub fn content(number: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.next_multiple_of(8)];
    for (at, word) in (0_u64..).zip(bytes.as_chunks_mut::<8>().0) {
        let (place, message) = ((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15), 0x0707_0707_0707_0707);
        *word = place.wrapping_add((number as u64).wrapping_mul(message)).to_le_bytes();
    }
    bytes.truncate(len);
    bytes
}
