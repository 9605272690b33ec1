//! Asks the processor for memory before it is needed.
//!
//! Inputs → outputs: an address → nothing that a program could see; its cache line is on its way. A hint: it
//! reads and writes nothing, faults at no address, and may be ignored. On processors other than x86-64 it does
//! nothing. The standard library's own (`core::hint::prefetch_write`) is not stable yet.
//!
//! A message that does not fit the caches is cold wherever it goes on. Packets are too short, and too much is
//! done between them, for the processor to see a sequence: it waits for the lines of each payload anew, those
//! to be written as soon as its store buffer is full. [`ahead_of_writing`] and [`ahead_of_reading`] ask for
//! them some packets earlier (ADR 76).

#![no_std]

use core::ops::Range;

/// Octets of a cache line.
const LINE_BYTES: usize = 64;

/// Messages smaller than this stay in a core's cache from one to the next.
const COLD_FROM_BYTES: usize = 1 << 20;

/// How far ahead: some packets, and two pages, whose addresses have to be looked up as well. Payloads that are
/// longer than this the processor asks for by itself.
const AHEAD_BYTES: usize = 8 << 10;

/// Asks for the cache line at `place`, to be written: taken from the core that has it at once, not in two
/// steps.
#[inline(always)]
pub fn line_to_write(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which faults at no address; 64-bit processors without it do nothing. (The
    // compiler's own intrinsic asks for reading only, unless built for a newer processor.)
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Asks for the cache line at `place`, to be read.
#[inline(always)]
pub fn line_to_read(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which faults at no address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// `len` octets are about to be written `at` an offset of a message's memory, which has `total` and begins at
/// `start`: asks for as many further on, if the message is one that is not in the caches.
#[inline]
pub fn ahead_of_writing(start: *const u8, total: usize, at: usize, len: usize) {
    for offset in ahead(total, at, len).step_by(LINE_BYTES) {
        line_to_write(start.wrapping_add(offset));
    }
}

/// `len` octets `at` an offset of `message` are about to be read: asks for as many further on, if the message
/// is one that is not in the caches.
#[inline]
pub fn ahead_of_reading(message: &[u8], at: usize, len: usize) {
    for offset in ahead(message.len(), at, len).step_by(LINE_BYTES) {
        line_to_read(message.as_ptr().wrapping_add(offset));
    }
}

/// Offsets to ask for while `len` octets `at` an offset have their turn.
#[inline]
fn ahead(total: usize, at: usize, len: usize) -> Range<usize> {
    if total < COLD_FROM_BYTES || len > AHEAD_BYTES {
        return 0..0;
    }
    let from = at.saturating_add(len + AHEAD_BYTES).min(total);
    from..from.saturating_add(len).min(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_faults() {
        line_to_write(core::ptr::null());
        line_to_read(usize::MAX as *const u8);
        ahead_of_writing(core::ptr::null(), usize::MAX, 0, 1000);
        ahead_of_reading(&[0; COLD_FROM_BYTES], 0, 1000);
    }

    #[test]
    fn what_comes_later_is_asked_for_up_to_the_end_of_a_large_message() {
        let total = 2 * COLD_FROM_BYTES;
        assert_eq!(ahead(total, 5000, 1400), 6400 + AHEAD_BYTES..7800 + AHEAD_BYTES);
        assert_eq!(ahead(total, total - AHEAD_BYTES - 2000, 1400), total - 600..total);
        assert!(ahead(total, total - 1400, 1400).is_empty());
        assert!(ahead(total, usize::MAX, 1400).is_empty());
        assert!(ahead(COLD_FROM_BYTES - 1, 0, 1400).is_empty());
        assert!(ahead(total, 0, AHEAD_BYTES + 1).is_empty());
    }
}
