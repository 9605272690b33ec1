//! The body: the data of all files of a manifest, one after the other, cut into pieces of one size.
//!
//! Inputs → outputs: a manifest → which parts of which files a piece is. Holes are not in it. Source:
//! `spec/cast.md` §4.

use crate::manifest::{Extent, Kind, Manifest};

/// One part of one file, in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The file's entry.
    pub entry: usize,
    /// Where in the file, bytes.
    pub offset: u64,
    /// Where in the file's data, without holes, bytes.
    pub data_offset: u64,
    /// Where in the piece, bytes.
    pub at: usize,
    /// How many bytes.
    pub len: usize,
    /// Whether the file's data ends with it.
    pub last: bool,
}

#[derive(Debug)]
struct Span {
    entry: usize,
    offset: u64,
    data_offset: u64,
    len: u64,
    /// Where in the body.
    begin: u64,
    last: bool,
}

/// Which part of which file is where in the body.
#[derive(Debug)]
pub struct Body {
    spans: Vec<Span>,
    piece_bytes: u64,
    total: u64,
}

impl Body {
    /// The body of a valid manifest.
    pub fn new(manifest: &Manifest, piece_bytes: u32) -> Self {
        let mut spans = Vec::new();
        let mut total = 0;
        for (entry, of) in manifest.entries.iter().enumerate() {
            let Kind::File { extents, .. } = &of.kind else { continue };
            let first = total;
            for (index, &Extent { offset, len }) in extents.iter().enumerate() {
                let last = index + 1 == extents.len();
                spans.push(Span { entry, offset, data_offset: total - first, len, begin: total, last });
                total += len;
            }
        }
        Self { spans, piece_bytes: piece_bytes.into(), total }
    }

    /// Its bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Size of its pieces, bytes.
    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    /// How many pieces it has.
    pub fn pieces(&self) -> u64 {
        self.total.div_ceil(self.piece_bytes)
    }

    /// How many bytes piece `piece` has; 0 behind the end.
    pub fn piece_len(&self, piece: u32) -> usize {
        let begin = u64::from(piece) * self.piece_bytes;
        self.total.saturating_sub(begin).min(self.piece_bytes) as usize
    }

    /// The parts of piece `piece`, in order.
    pub fn parts(&self, piece: u32) -> impl Iterator<Item = Part> {
        let begin = u64::from(piece) * self.piece_bytes;
        let end = begin + self.piece_len(piece) as u64;
        let first = self.spans.partition_point(|span| span.begin + span.len <= begin);
        self.spans[first..].iter().take_while(move |span| span.begin < end).map(move |span| {
            let from = span.begin.max(begin);
            let to = (span.begin + span.len).min(end);
            Part {
                entry: span.entry,
                offset: span.offset + (from - span.begin),
                data_offset: span.data_offset + (from - span.begin),
                at: (from - begin) as usize,
                len: (to - from) as usize,
                last: span.last && to == span.begin + span.len,
            }
        })
    }

    /// The pieces that hold data of an entry: the first, and how many.
    pub fn pieces_of(&self, entry: usize) -> (u32, u32) {
        let first = self.spans.partition_point(|span| span.entry < entry);
        let end = self.spans.partition_point(|span| span.entry <= entry);
        let spans = &self.spans[first..end];
        let (Some(head), Some(tail)) = (spans.first(), spans.last()) else { return (0, 0) };
        let from = head.begin / self.piece_bytes;
        let to = (tail.begin + tail.len - 1) / self.piece_bytes;
        (from as u32, (to - from + 1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::Entry;

    fn manifest(files: &[&[(u64, u64)]]) -> Manifest {
        let entries = files.iter().enumerate().map(|(index, extents)| {
            let extents: Vec<Extent> = extents.iter().map(|&(offset, len)| Extent { offset, len }).collect();
            let size = extents.last().map_or(0, |extent| extent.offset + extent.len);
            let name = format!("f{index}").into_bytes();
            Entry { parent: None, name, mode: 0o600, mtime_ns: 0, kind: Kind::File { size, extents } }
        });
        Manifest { nonce: [0; 16], entries: entries.collect() }
    }

    #[test]
    fn pieces_are_parts_of_files() {
        let body = Body::new(&manifest(&[&[(0, 3)], &[], &[(5, 4), (100, 8)], &[(0, 1)]]), 10);
        assert_eq!((body.total(), body.pieces(), body.piece_len(0), body.piece_len(1)), (16, 2, 10, 6));
        let part =
            |entry, offset, data_offset, at, len, last| Part { entry, offset, data_offset, at, len, last };
        let parts: Vec<Part> = body.parts(0).collect();
        assert_eq!(
            parts,
            [part(0, 0, 0, 0, 3, true), part(2, 5, 0, 3, 4, false), part(2, 100, 4, 7, 3, false)]
        );
        let parts: Vec<Part> = body.parts(1).collect();
        assert_eq!(parts, [part(2, 103, 7, 0, 5, true), part(3, 0, 0, 5, 1, true)]);
        assert_eq!((body.parts(2).count(), body.piece_len(2)), (0, 0));
        assert_eq!((body.pieces_of(0), body.pieces_of(2), body.pieces_of(1)), ((0, 1), (0, 2), (0, 0)));
        assert_eq!(body.pieces_of(3), (1, 1));
    }
}
