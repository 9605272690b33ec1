//! Memory that begins where a page does.
//!
//! Inputs → outputs: a length → so many octets, zero. The kernel copies to and from programs by `rep movsb` on processors
//! that are said to be fast at it, and AMD's Zen 3 is seventeen times slower at that if the target lies 1 to 31 octets
//! further in its page than the source does in its own (ADR 116). What comes in large datagrams begins where a page does,
//! and `malloc` gives large memory 16 octets behind one.

use std::ops::{Deref, DerefMut};

/// Pages of today's processors have this many octets, or a multiple.
const PAGE_BYTES: usize = 4096;

/// So many octets, of which the system backs only what is used.
#[derive(Debug)]
pub struct PageMemory {
    /// With room to begin at a page.
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl PageMemory {
    /// `len` octets, zero.
    pub fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE_BYTES - 1];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Self { bytes, start, len }
    }
}

impl Deref for PageMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for PageMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_begins_at_a_page_and_is_as_long_as_was_asked() {
        for len in [0, 1, 2_000, 65_535, 1 << 20] {
            let mut memory = PageMemory::new(len);
            assert_eq!(memory.len(), len);
            assert_eq!(memory.as_ptr() as usize % PAGE_BYTES, 0);
            memory.fill(7);
            assert!(memory.iter().all(|octet| *octet == 7));
        }
    }
}
