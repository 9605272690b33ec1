//! What the protocol core and the sockets hand each other: datagrams, in and out.
//!
//! Inputs → outputs: the core fills a [`TransmitBuf`] and describes it by a [`Transmit`]; an
//! I/O backend reads its pieces and sends them. Received datagrams carry a [`DatagramMeta`].
//! Defined here, below both sides, so that neither knows the other.

use bytes::Bytes;
use core::net::SocketAddr;
use core::ops::Range;
use smallvec::SmallVec;

/// Largest UDP payload: 65,535 − 8 (UDP) − 20 (IPv4); IPv6 without jumbograms allows a little
/// more, which denrei does not use.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

/// Most segments in one [`Transmit`]. Linux accepts 128 since 6.9 and 64 before.
pub const MAX_SEGMENTS: usize = 64;

/// The two ECN bits of the IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// Not ECN-capable, or the backend cannot tell.
    #[default]
    NotEct = 0b00,
    /// ECN-capable transport, ECT(1).
    Ect1 = 0b01,
    /// ECN-capable transport, ECT(0): what denrei sends.
    Ect0 = 0b10,
    /// Congestion experienced: marked by a switch.
    Ce = 0b11,
}

impl Ecn {
    /// From the low two bits of a traffic-class octet.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0b01 => Self::Ect1,
            0b10 => Self::Ect0,
            0b11 => Self::Ce,
            _ => Self::NotEct,
        }
    }
}

/// What is known about one received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramMeta {
    /// Source address. IPv4 peers appear as IPv4 even on a dual-stack socket.
    pub from: SocketAddr,
    /// ECN codepoint, [`Ecn::NotEct`] where the backend cannot read it.
    pub ecn: Ecn,
}

/// One send operation: datagrams of one size to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination address.
    pub to: SocketAddr,
    /// Bytes of all datagrams together.
    pub len: usize,
    /// Bytes per datagram when there are several (the last may be shorter); `None`: one datagram.
    pub segment_size: Option<usize>,
    /// ECN codepoint to send with.
    pub ecn: Ecn,
}

impl Transmit {
    /// How many datagrams this is, at least 1.
    pub fn segments(&self) -> usize {
        self.segment_size.map_or(1, |size| self.len.div_ceil(size.max(1)).max(1))
    }
}

/// A stretch of the bytes to send.
#[derive(Clone, Debug)]
pub enum Piece {
    /// Written into the buffer itself (headers, small payloads, sealed packets).
    Head(Range<usize>),
    /// Referred to where it lies (payload of the application's message).
    Body(Bytes),
}

/// The datagrams of one [`Transmit`] under construction.
///
/// Bytes are appended in order. Large payloads are appended by reference, so that a backend
/// with scatter-gather copies them once, into the kernel. Reused from transmit to transmit: it
/// allocates only until it has reached its working size.
///
/// Invariant: `pieces` cover exactly `len` bytes; adjacent `Head` pieces are merged.
#[derive(Debug)]
pub struct TransmitBuf {
    head: Vec<u8>,
    pieces: SmallVec<[Piece; 4]>,
    len: usize,
    max_segments: usize,
}

/// Payloads shorter than this are copied: below it a reference costs more than the copy.
const COPY_BELOW_BYTES: usize = 256;

impl TransmitBuf {
    /// An empty buffer for at most `max_segments` (1..=[`MAX_SEGMENTS`]) datagrams per transmit;
    /// 1 where the backend has no segmentation offload.
    pub fn new(max_segments: usize) -> Self {
        Self {
            head: Vec::with_capacity(4096),
            pieces: SmallVec::new(),
            len: 0,
            max_segments: max_segments.clamp(1, MAX_SEGMENTS),
        }
    }

    /// Most datagrams the next transmit may have.
    pub fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// Changes the limit, for example after a backend found that offload does not work.
    pub fn set_max_segments(&mut self, max_segments: usize) {
        self.max_segments = max_segments.clamp(1, MAX_SEGMENTS);
    }

    /// Forgets all content and keeps the memory.
    pub fn clear(&mut self) {
        self.head.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// Bytes appended since the last [`clear`](Self::clear).
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been appended.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a copy of `bytes`.
    pub fn put(&mut self, bytes: &[u8]) {
        let start = self.head.len();
        self.head.extend_from_slice(bytes);
        self.extend_head(start);
    }

    /// Appends `count` zero bytes.
    pub fn put_zeros(&mut self, count: usize) {
        let start = self.head.len();
        self.head.resize(start + count, 0);
        self.extend_head(start);
    }

    /// Appends `body`, by reference when it is large.
    pub fn put_body(&mut self, body: Bytes) {
        if body.len() < COPY_BELOW_BYTES {
            return self.put(&body);
        }
        self.len += body.len();
        self.pieces.push(Piece::Body(body));
    }

    /// Writes `bytes` over what was appended by copy at head offset `at` (see [`head_len`](Self::head_len)).
    ///
    /// # Panics
    /// If the range was not appended by [`put`](Self::put) or [`put_zeros`](Self::put_zeros).
    pub fn overwrite_head(&mut self, at: usize, bytes: &[u8]) {
        self.head[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Bytes appended by copy so far: the head offset of the next [`put`](Self::put).
    pub fn head_len(&self) -> usize {
        self.head.len()
    }

    /// The position to which [`truncate`](Self::truncate) and [`pieces_since`](Self::pieces_since) refer.
    pub fn mark(&self) -> Mark {
        Mark { head: self.head.len(), pieces: self.pieces.len(), len: self.len }
    }

    /// Takes back everything appended since `mark`.
    pub fn truncate(&mut self, mark: Mark) {
        self.head.truncate(mark.head);
        self.pieces.truncate(mark.pieces);
        self.len = mark.len;
        if let Some(Piece::Head(range)) = self.pieces.last_mut() {
            range.end = range.end.min(mark.head);
        }
    }

    /// The bytes appended since `mark`, stretch by stretch.
    pub fn pieces_since(&self, mark: Mark) -> impl Iterator<Item = &[u8]> {
        // The head range before the mark may have grown since: its tail belongs to this packet.
        let grown = mark.pieces.checked_sub(1).and_then(|last| match &self.pieces[last] {
            Piece::Head(range) if range.end > mark.head => Some(&self.head[mark.head..range.end]),
            _ => None,
        });
        grown
            .into_iter()
            .chain(self.pieces[mark.pieces.min(self.pieces.len())..].iter().map(|piece| self.resolve(piece)))
    }

    /// All bytes, stretch by stretch, for scatter-gather.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| self.resolve(piece))
    }

    /// Appends all bytes to `out`, for backends without scatter-gather.
    pub fn copy_into(&self, out: &mut Vec<u8>) {
        out.reserve(self.len);
        for piece in self.pieces() {
            out.extend_from_slice(piece);
        }
    }

    fn resolve<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        match piece {
            Piece::Head(range) => &self.head[range.clone()],
            Piece::Body(body) => body,
        }
    }

    fn extend_head(&mut self, start: usize) {
        let end = self.head.len();
        self.len += end - start;
        match self.pieces.last_mut() {
            Some(Piece::Head(range)) if range.end == start => range.end = end,
            _ => self.pieces.push(Piece::Head(start..end)),
        }
    }
}

/// A position in a [`TransmitBuf`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    head: usize,
    pieces: usize,
    len: usize,
}

impl Mark {
    /// Bytes appended before this position.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether this is the start of the buffer.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(buf: &TransmitBuf) -> Vec<u8> {
        let mut out = Vec::new();
        buf.copy_into(&mut out);
        out
    }

    #[test]
    fn pieces_come_out_in_the_order_they_went_in() {
        let mut buf = TransmitBuf::new(8);
        buf.put(b"head");
        buf.put(b"er");
        buf.put_body(Bytes::from(vec![7; 300]));
        buf.put_body(Bytes::from_static(b"small"));
        buf.put_zeros(2);
        let mut expected = b"header".to_vec();
        expected.extend([7; 300]);
        expected.extend(b"small\0\0");
        assert_eq!(flat(&buf), expected);
        assert_eq!(buf.len(), expected.len());
        assert_eq!(buf.pieces().count(), 3, "adjacent heads are merged, the large body is referred to");
    }

    #[test]
    fn a_mark_delimits_a_packet_even_when_heads_merge() {
        let mut buf = TransmitBuf::new(8);
        buf.put(b"first");
        let mark = buf.mark();
        buf.put(b"second");
        let since: Vec<u8> = buf.pieces_since(mark).flatten().copied().collect();
        assert_eq!(since, b"second");
        buf.truncate(mark);
        assert_eq!(flat(&buf), b"first");
        let again = buf.mark();
        buf.put_body(Bytes::from(vec![1; 400]));
        assert_eq!(buf.pieces_since(again).map(<[u8]>::len).sum::<usize>(), 400);
    }

    #[test]
    fn segments_round_up() {
        let transmit = Transmit {
            to: "127.0.0.1:1".parse().unwrap(),
            len: 2001,
            segment_size: Some(1000),
            ecn: Ecn::Ect0,
        };
        assert_eq!(transmit.segments(), 3);
        assert_eq!(Transmit { segment_size: None, ..transmit }.segments(), 1);
    }
}
