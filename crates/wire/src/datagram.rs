//! What the protocol core and the sockets hand each other: datagrams, in and out.
//!
//! Inputs → outputs: the core fills a [`TransmitBuf`] and describes it by a [`Transmit`]; an
//! I/O backend reads its pieces and sends them. Received datagrams carry a [`DatagramMeta`].
//! Defined here, below both sides, so that neither knows the other.

use core::net::SocketAddr;

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

/// The datagrams of one [`Transmit`] under construction, one after the other.
///
/// Contiguous: on Linux, copying 64 KiB of payload between headers costs a third of what the
/// kernel takes to walk two I/O vectors per packet, and sealing needs the copy anyway. Reused
/// from transmit to transmit: it allocates only until it has reached its working size.
#[derive(Debug)]
pub struct TransmitBuf {
    bytes: Vec<u8>,
    max_segments: usize,
}

impl TransmitBuf {
    /// An empty buffer for at most `max_segments` (1..=[`MAX_SEGMENTS`]) datagrams per transmit;
    /// 1 where the backend has no segmentation offload.
    pub fn new(max_segments: usize) -> Self {
        Self { bytes: Vec::with_capacity(4096), max_segments: max_segments.clamp(1, MAX_SEGMENTS) }
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
        self.bytes.clear();
    }

    /// Bytes appended since the last [`clear`](Self::clear).
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing has been appended.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The datagrams, one after the other.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a copy of `bytes`.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends `count` zero bytes.
    pub fn put_zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Writes `bytes` over what was appended at offset `at`.
    ///
    /// # Panics
    /// If that reaches beyond what was appended.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// What was appended from offset `at` on, to be sealed in place.
    ///
    /// # Panics
    /// If less was appended.
    pub fn tail_mut(&mut self, at: usize) -> &mut [u8] {
        &mut self.bytes[at..]
    }

    /// Takes back everything after the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_what_was_put_and_forgets_what_was_taken_back() {
        let mut buf = TransmitBuf::new(1000);
        assert_eq!(buf.max_segments(), MAX_SEGMENTS);
        buf.put(b"header");
        buf.put_zeros(2);
        buf.overwrite(4, b"ER");
        assert_eq!(buf.bytes(), b"headER\0\0");
        buf.tail_mut(6).fill(7);
        assert_eq!(buf.bytes(), b"headER\x07\x07");
        buf.truncate(3);
        assert_eq!((buf.bytes(), buf.len()), (&b"hea"[..], 3));
        buf.clear();
        assert!(buf.is_empty());
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
