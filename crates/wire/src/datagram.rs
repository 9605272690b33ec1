//! What the protocol core and the sockets hand each other: datagrams, in and out.
//!
//! Inputs → outputs: the core fills a [`TransmitBuf`] and describes it by a [`Transmit`]; an
//! I/O backend reads its pieces and sends them. Received datagrams carry a [`DatagramMeta`].
//! Defined here, below both sides, so that neither knows the other.

use crate::checksum;
use crate::packet::TAG_BYTES;
use bytes::Bytes;
use core::net::{IpAddr, SocketAddr};
use std::borrow::Cow;
use std::sync::Arc;

/// Largest UDP payload: 65,535 − 8 (UDP) − 20 (IPv4); IPv6 without jumbograms allows a little
/// more, which denrei does not use.
pub const MAX_DATAGRAM_BYTES: usize = 65_507;

/// Most octets of a train that one receive call brings: the kernel joins them up to one maximal IP packet.
pub const MAX_TRAIN_BYTES: usize = 65_535;

/// A part of a message of at least so many octets may be referred to where it is
/// ([`TransmitBuf::lending`]). No transmit has two of them, so whatever has one is a single datagram.
const LENT_FROM_BYTES: usize = MAX_DATAGRAM_BYTES / 2 + 1;

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

/// Where a peer is, and from where it is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The peer's address.
    pub to: SocketAddr,
    /// Which of this host's addresses the peer knows it by; `None`: the one that the system chooses.
    pub from: Option<IpAddr>,
}

impl From<SocketAddr> for Way {
    fn from(to: SocketAddr) -> Self {
        Self { to, from: None }
    }
}

/// What is known about one received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramMeta {
    /// Source address. IPv4 peers appear as IPv4 even on a dual-stack socket.
    pub from: SocketAddr,
    /// Which of this host's addresses it was sent to, where the port is bound to all of them and the backend can tell.
    pub at: Option<IpAddr>,
    /// ECN codepoint, [`Ecn::NotEct`] where the backend cannot read it.
    pub ecn: Ecn,
}

impl DatagramMeta {
    /// The way back: whoever asks at one address and is answered from another takes that for a stranger's.
    pub fn back(&self) -> Way {
        Way { to: self.from, from: self.at }
    }
}

/// One send operation: datagrams of one size to one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination address.
    pub to: SocketAddr,
    /// Source address; `None`: the one that the port is bound to, or that the system chooses.
    pub from: Option<IpAddr>,
    /// Bytes of all datagrams together.
    pub len: usize,
    /// Bytes per datagram when there are several (the last may be shorter); `None`: one datagram.
    pub segment_size: Option<usize>,
    /// ECN codepoint to send with.
    pub ecn: Ecn,
}

impl Transmit {
    /// Where it goes, and from where.
    pub fn way(&self) -> Way {
        Way { to: self.to, from: self.from }
    }

    /// How many datagrams this is, at least 1.
    pub fn segments(&self) -> usize {
        self.segment_size.map_or(1, |size| self.len.div_ceil(size.max(1)).max(1))
    }
}

/// How a packet is completed that was written: its frames are encrypted in place, and the tag over
/// them and the header comes behind.
pub trait Seal: Send + Sync {
    /// Seals packet `number`.
    fn seal(&self, number: u64, header: &[u8], frames: &mut [u8]) -> [u8; TAG_BYTES];
}

/// A packet that has room for its tag and is not sealed yet.
struct Unsealed {
    key: Arc<dyn Seal>,
    number: u64,
    /// Where in the buffer its header and its frames begin, and its tag.
    header_at: usize,
    frames_at: usize,
    tag_at: usize,
}

impl core::fmt::Debug for Unsealed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Unsealed({}, {}..{})", self.number, self.header_at, self.tag_at)
    }
}

/// The datagrams of one [`Transmit`] under construction, one after the other.
///
/// Contiguous: on Linux, copying 64 KiB of payload between headers costs a third of what the
/// kernel takes to walk two I/O vectors per packet, and sealing needs the copy anyway. The exception is
/// a datagram of tens of KiB that is not sealed: a buffer that [lends](Self::lending) refers to its
/// payload where it is. Reused from transmit to transmit: it allocates only until it has reached its
/// working size.
#[derive(Debug)]
pub struct TransmitBuf {
    bytes: Vec<u8>,
    /// Part of a message, and before which of `bytes` it belongs.
    lent: Option<(usize, Bytes)>,
    /// Octets of it, 0 if nothing is lent: asked for several times a packet.
    lent_bytes: usize,
    lends: bool,
    max_segments: usize,
    defers_sealing: bool,
    unsealed: Vec<Unsealed>,
}

impl TransmitBuf {
    /// An empty buffer for at most `max_segments` (1..=[`MAX_SEGMENTS`]) datagrams per transmit;
    /// 1 where the backend has no segmentation offload.
    pub fn new(max_segments: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(4096),
            lent: None,
            lent_bytes: 0,
            lends: false,
            max_segments: max_segments.clamp(1, MAX_SEGMENTS),
            defers_sealing: false,
            unsealed: Vec::new(),
        }
    }

    /// Refers to large parts of messages instead of copying them. Whoever sends has to take
    /// [`parts`](Self::parts) then.
    #[must_use]
    pub fn lending(mut self) -> Self {
        self.lends = true;
        self
    }

    /// Leaves the sealing of packets to whoever calls [`seal`](Self::seal), before they are sent: in
    /// another thread, for example.
    #[must_use]
    pub fn deferring_sealing(mut self) -> Self {
        self.defers_sealing = true;
        self
    }

    /// Whether packets may be put in [unsealed](Self::put_unsealed).
    pub fn defers_sealing(&self) -> bool {
        self.defers_sealing
    }

    /// Completes the packet whose header begins at `header_at` and whose frames go from `frames_at` to
    /// the end with room for its tag, to be sealed later.
    pub fn put_unsealed(&mut self, key: Arc<dyn Seal>, number: u64, header_at: usize, frames_at: usize) {
        self.take_in();
        let tag_at = self.bytes.len();
        self.unsealed.push(Unsealed { key, number, header_at, frames_at, tag_at });
        self.put_zeros(TAG_BYTES);
    }

    /// Seals what was put in unsealed.
    pub fn seal(&mut self) {
        for Unsealed { key, number, header_at, frames_at, tag_at } in self.unsealed.drain(..) {
            let (header, frames) = self.bytes[header_at..tag_at].split_at_mut(frames_at - header_at);
            let tag = key.seal(number, header, frames);
            self.bytes[tag_at..tag_at + TAG_BYTES].copy_from_slice(&tag);
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
        self.truncate(0);
        self.unsealed.clear();
    }

    /// Bytes appended since the last [`clear`](Self::clear).
    pub fn len(&self) -> usize {
        self.bytes.len() + self.lent_bytes
    }

    /// Whether nothing has been appended.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The datagrams, one after the other.
    ///
    /// # Panics
    /// If a part is lent, which only happens in a buffer made for it.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.lent_bytes == 0, "a buffer that lends is read by its parts");
        &self.bytes
    }

    /// The datagrams, one after the other, whether a part is lent or not.
    pub fn contiguous(&self) -> Cow<'_, [u8]> {
        self.parts().map_or(Cow::Borrowed(&self.bytes), |parts| Cow::Owned(parts.concat()))
    }

    /// The one datagram in its parts, in order, of which the middle one is lent; `None`: nothing is.
    pub fn parts(&self) -> Option<[&[u8]; 3]> {
        let (at, data) = self.lent.as_ref()?;
        Some([&self.bytes[..*at], data, &self.bytes[*at..]])
    }

    /// Appends a copy of `bytes`.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends `part` of `message`, or what refers to it.
    ///
    /// # Panics
    /// If it is no part of it.
    pub fn put_part(&mut self, part: &[u8], message: &Bytes) {
        if part.len() >= LENT_FROM_BYTES && self.lends && self.lent_bytes == 0 {
            self.lend(part, message);
        } else {
            self.put(part);
        }
    }

    #[cold]
    fn lend(&mut self, part: &[u8], message: &Bytes) {
        self.lent_bytes = part.len();
        self.lent = Some((self.bytes.len(), message.slice_ref(part)));
    }

    /// Appends `count` zero bytes.
    pub fn put_zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Writes `bytes` over what was appended at offset `at`, before anything lent.
    ///
    /// # Panics
    /// If that reaches beyond what was appended.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// What was appended from offset `at` on, to be sealed in place; nothing is lent any more.
    ///
    /// # Panics
    /// If less was appended.
    pub fn tail_mut(&mut self, at: usize) -> &mut [u8] {
        self.take_in();
        &mut self.bytes[at..]
    }

    /// Copies what is lent.
    fn take_in(&mut self) {
        if self.lent_bytes > 0 {
            self.take_in_lent();
        }
    }

    #[cold]
    fn take_in_lent(&mut self) {
        let Some((at, data)) = self.lent.take() else { return };
        self.lent_bytes = 0;
        // As one block: `splice` would take it octet by octet.
        let behind = self.bytes.len() - at;
        self.bytes.extend_from_slice(&data);
        self.bytes[at..].rotate_left(behind);
    }

    /// The CRC-32C of what was appended from offset `at` on, before anything lent.
    ///
    /// # Panics
    /// If less was appended.
    pub fn checksum(&self, at: usize) -> u32 {
        match self.lent_bytes {
            0 => checksum::crc32c(&self.bytes[at..]),
            _ => self.checksum_of_parts(at),
        }
    }

    #[cold]
    fn checksum_of_parts(&self, at: usize) -> u32 {
        let [before, lent, after] = self.parts().expect("some of them are lent");
        checksum::crc32c_of_parts(&[&before[at..], lent, after])
    }

    /// Takes back everything after the first `len` bytes, which end before anything lent.
    pub fn truncate(&mut self, len: usize) {
        if self.lent_bytes > 0 {
            (self.lent, self.lent_bytes) = (None, 0);
        }
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
    fn a_large_part_is_lent_once_and_taken_in_to_be_sealed() {
        let message = Bytes::from(vec![5; 2 * LENT_FROM_BYTES]);
        let mut copying = TransmitBuf::new(1);
        let mut buf = TransmitBuf::new(1).lending();
        for buf in [&mut copying, &mut buf] {
            buf.put(b"head");
            buf.put_part(&message[3..LENT_FROM_BYTES + 3], &message);
            buf.put_part(&message[..2], &message);
            buf.overwrite(0, b"HE");
        }
        assert_eq!((copying.len(), buf.len()), (LENT_FROM_BYTES + 6, LENT_FROM_BYTES + 6));
        assert_eq!(copying.parts(), None);
        assert_eq!(buf.contiguous(), copying.contiguous());
        assert_eq!(buf.checksum(4), copying.checksum(4));
        assert!(core::ptr::eq(&raw const buf.parts().unwrap()[1][0], &raw const message[3]), "not a copy");
        assert_eq!(buf.tail_mut(0), copying.bytes());
        assert_eq!((buf.bytes(), buf.parts()), (copying.bytes(), None));
        buf.clear();
        buf.put(b"head");
        buf.put_part(&message[..LENT_FROM_BYTES], &message);
        buf.truncate(2);
        assert_eq!((buf.bytes(), buf.len()), (&b"he"[..], 2));
    }

    #[test]
    fn what_was_put_in_unsealed_is_sealed_later() {
        struct Xor;
        impl Seal for Xor {
            fn seal(&self, number: u64, header: &[u8], frames: &mut [u8]) -> [u8; TAG_BYTES] {
                frames.iter_mut().for_each(|octet| *octet ^= number as u8);
                [header[0]; TAG_BYTES]
            }
        }
        let mut buf = TransmitBuf::new(4).deferring_sealing();
        assert!(buf.defers_sealing());
        for number in [1, 2] {
            let at = buf.len();
            buf.put(&[number, 0, 0]);
            buf.put_unsealed(Arc::new(Xor), number.into(), at, at + 1);
        }
        assert_eq!(buf.bytes()[..3], [1, 0, 0]);
        buf.seal();
        buf.seal();
        let packet = |number: u8| [[number; 3].as_slice(), &[number; TAG_BYTES]].concat();
        assert_eq!(buf.bytes(), [packet(1), packet(2)].concat());
    }

    #[test]
    fn segments_round_up() {
        let transmit = Transmit {
            from: None,
            to: "127.0.0.1:1".parse().unwrap(),
            len: 2001,
            segment_size: Some(1000),
            ecn: Ecn::Ect0,
        };
        assert_eq!(transmit.segments(), 3);
        assert_eq!(Transmit { segment_size: None, ..transmit }.segments(), 1);
    }
}
