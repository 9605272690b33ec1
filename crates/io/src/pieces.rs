//! A walk over the byte stretches of a transmit, in steps of any length.
//!
//! Inputs → outputs: a [`TransmitBuf`] and byte counts → the stretches that make up exactly those
//! bytes, without copying.

use denrei_wire::TransmitBuf;
use std::io::IoSlice;

/// Where in a transmit's bytes the walk stands.
pub(crate) struct PieceCursor<'a, I> {
    pieces: I,
    current: &'a [u8],
}

/// A walk over `buf` from byte `skip` on.
pub(crate) fn cursor(buf: &TransmitBuf, skip: usize) -> PieceCursor<'_, impl Iterator<Item = &'_ [u8]>> {
    let mut cursor = PieceCursor { pieces: buf.pieces(), current: &[] };
    if skip > 0 {
        cursor.advance(skip, |_| {});
    }
    cursor
}

impl<'a, I: Iterator<Item = &'a [u8]>> PieceCursor<'a, I> {
    /// Appends the stretches of the next `bytes` bytes (or what is left) to `out`.
    pub(crate) fn take(&mut self, bytes: usize, out: &mut Vec<IoSlice<'a>>) {
        self.advance(bytes, |stretch| out.push(IoSlice::new(stretch)));
    }

    fn advance(&mut self, mut bytes: usize, mut each: impl FnMut(&'a [u8])) {
        while bytes > 0 {
            if self.current.is_empty() {
                match self.pieces.next() {
                    Some(piece) => self.current = piece,
                    None => return,
                }
                continue;
            }
            let (stretch, rest) = self.current.split_at(bytes.min(self.current.len()));
            self.current = rest;
            bytes -= stretch.len();
            each(stretch);
        }
    }
}

/// An empty list with the memory of `slices`, for stretches of another lifetime.
///
/// Collecting in place keeps the allocation (the element's layout is the same), which keeps the
/// send path free of allocations without unsafe code.
pub(crate) fn recycle<'b>(mut slices: Vec<IoSlice<'_>>) -> Vec<IoSlice<'b>> {
    slices.clear();
    slices.into_iter().map(|_| IoSlice::new(&[])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn sample() -> (TransmitBuf, Vec<u8>) {
        let mut buf = TransmitBuf::new(4);
        buf.put(b"");
        buf.put(b"header");
        let body = Bytes::from((0..=255).collect::<Vec<u8>>().repeat(3));
        buf.put_body(&body, 0..body.len());
        buf.put(b"tail");
        let mut flat = Vec::new();
        buf.copy_into(&mut flat);
        (buf, flat)
    }

    #[test]
    fn steps_of_any_length_cover_all_bytes_in_order() {
        let (buf, flat) = sample();
        for step in [1, 3, 6, 100, 768, 10_000] {
            for skip in [0, 1, 6, 500, flat.len()] {
                let mut walk = cursor(&buf, skip);
                let mut seen = Vec::new();
                for _ in 0..=flat.len() / step {
                    let mut slices = Vec::new();
                    walk.take(step, &mut slices);
                    let bytes: usize = slices.iter().map(|slice| slice.len()).sum();
                    assert_eq!(bytes, step.min(flat.len() - skip - seen.len()));
                    slices.iter().for_each(|slice| seen.extend_from_slice(slice));
                }
                assert_eq!(seen, flat[skip..], "step {step}, skip {skip}");
            }
        }
    }

    #[test]
    fn recycling_keeps_the_memory() {
        let slices: Vec<IoSlice<'_>> = Vec::with_capacity(100);
        let again = recycle(slices);
        assert!(again.is_empty());
        assert!(again.capacity() >= 100);
    }
}
