//! IP as a layer (L8): a header in front of every packet, its checksum set and verified.
//!
//! Inputs → outputs: a PDU from above → the PDU with a header of 20 octets (RFC 791) down; a packet
//! from below → checked, stripped, up; a bad one is counted and dropped. Addresses are fixed, nothing
//! is fragmented, as in the paper. The PDU's octets are not looked at.

use crate::pool::Pdu;
use crate::stack::{Layer, Outlet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Octets of a header without options.
pub const HEADER_BYTES: usize = 20;
/// Version 4, a header of five words.
const VERSION_AND_LENGTH: u8 = 0x45;
/// Time to live of a packet sent: RFC 1700's default.
const TIME_TO_LIVE: u8 = 64;
/// ISO-TP4 over IP (RFC 1700, protocol numbers).
const PROTOCOL: u8 = 29;
/// Do not fragment.
const DONT_FRAGMENT: u16 = 0x4000;

/// What an IP layer has counted; to be looked at from any thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct IpCounters {
    /// Packets handed up.
    pub received: AtomicU64,
    /// Packets dropped: a header that is damaged or too long for the packet.
    pub bad: AtomicU64,
    /// PDUs dropped: too long for an IP packet, or no room for a header.
    pub refused: AtomicU64,
}

/// An IP layer.
#[derive(Debug)]
pub struct Ip {
    /// Source and destination, in words.
    addresses: [u16; 4],
    /// Of the next packet, in its lower half.
    identification: u32,
    counters: Arc<IpCounters>,
}

impl Ip {
    /// A layer between two addresses.
    pub fn new(source: [u8; 4], destination: [u8; 4]) -> Self {
        let word = |address: [u8; 4], at| u16::from_be_bytes([address[at], address[at + 1]]);
        let addresses = [word(source, 0), word(source, 2), word(destination, 0), word(destination, 2)];
        Self { addresses, identification: 0, counters: Arc::default() }
    }

    /// The counters, to be kept when the layer goes to its thread.
    pub fn counters(&self) -> Arc<IpCounters> {
        Arc::clone(&self.counters)
    }

    fn write_header(&mut self, header: &mut [u8; HEADER_BYTES], total_bytes: u16) {
        self.identification = self.identification.wrapping_add(1);
        let mut words = [0; HEADER_BYTES / 2];
        words[0] = u16::from_be_bytes([VERSION_AND_LENGTH, 0]);
        words[1] = total_bytes;
        words[2] = self.identification as u16;
        words[3] = DONT_FRAGMENT;
        words[4] = u16::from_be_bytes([TIME_TO_LIVE, PROTOCOL]);
        words[6..].copy_from_slice(&self.addresses);
        // Of the values, not of what was written: the processor would wait until each store is in its cache.
        words[5] = !folded(words.iter().map(|word| u64::from(*word)).sum());
        for (place, word) in header.as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_be_bytes();
        }
    }
}

/// The one's complement sum of 16-bit words in network order (RFC 1071), of an even number of octets.
/// Over a header with its checksum it is 0xffff.
pub fn ones_complement_sum(octets: &[u8]) -> u16 {
    // 32-bit words, folded at the end: the sum is the same (RFC 1071 §2 (C)).
    let (words, rest) = octets.as_chunks::<4>();
    let mut sum: u64 = words.iter().map(|word| u64::from(u32::from_be_bytes(*word))).sum();
    if let [high, low, ..] = rest {
        sum += u64::from(u16::from_be_bytes([*high, *low]));
    }
    folded(sum)
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether a packet begins with a header that is whole and undamaged, and is as long as that says.
fn is_good(packet: &[u8]) -> bool {
    let Some(header) = packet.first_chunk::<HEADER_BYTES>() else { return false };
    header[0] == VERSION_AND_LENGTH
        && usize::from(u16::from_be_bytes([header[2], header[3]])) == packet.len()
        && ones_complement_sum(header) == 0xffff
}

impl Layer<Pdu> for Ip {
    #[inline]
    fn from_above(&mut self, mut pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        let Ok(total_bytes) = u16::try_from(pdu.len() + HEADER_BYTES) else {
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        match pdu.prepend(HEADER_BYTES).map(<[u8]>::first_chunk_mut) {
            Ok(Some(header)) => self.write_header(header, total_bytes),
            _ => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        out.down(pdu);
    }

    #[inline]
    fn from_below(&mut self, mut pdu: Pdu, out: &mut Outlet<'_, Pdu>) {
        if !is_good(&pdu) {
            self.counters.bad.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // One writer: a load and a store are enough.
        let received = &self.counters.received;
        received.store(received.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        pdu.strip(HEADER_BYTES);
        out.up(pdu);
    }

    #[inline]
    fn prefetch(&self, pdu: &Pdu) {
        pdu.prefetch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use std::collections::VecDeque;

    /// The example of RFC 1071 §3: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2.
    #[test]
    fn sums_as_the_rfc_does() {
        assert_eq!(ones_complement_sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(ones_complement_sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5]), 0xe6f9 + 1);
    }

    fn pass(len: usize, damage: impl FnOnce(&mut [u8])) -> (Option<Vec<u8>>, Arc<IpCounters>) {
        let (mut down, mut up) = (VecDeque::new(), VecDeque::new());
        let mut ip = Ip::new([10, 0, 0, 1], [10, 0, 0, 2]);
        let mut pdu = Pool::default().allocate(HEADER_BYTES, len).unwrap();
        pdu.get_mut().unwrap().fill(5);
        ip.from_above(pdu, &mut Outlet::new(&mut down, &mut up));
        if let Some(mut packet) = down.pop_front() {
            damage(packet.get_mut().unwrap());
            ip.from_below(packet, &mut Outlet::new(&mut down, &mut up));
        }
        (up.pop_front().map(|pdu| pdu.to_vec()), ip.counters())
    }

    #[test]
    fn a_packet_passes_and_a_damaged_header_does_not() {
        assert_eq!(pass(64, |_| {}).0, Some(vec![5; 64]));
        for octet in 0..HEADER_BYTES {
            let (passed, counters) = pass(64, |packet| packet[octet] ^= 0x10);
            assert_eq!((passed, counters.bad.load(Ordering::Relaxed)), (None, 1), "octet {octet}");
        }
        let (passed, counters) = pass(65_536, |_| {});
        assert_eq!((passed, counters.refused.load(Ordering::Relaxed)), (None, 1));
    }

    #[test]
    fn the_header_is_the_rfcs() {
        pass(100, |packet| {
            assert_eq!(packet[..10], [0x45, 0, 0, 120, 0, 1, 0x40, 0, 64, 29]);
            assert_eq!(packet[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
            assert_eq!(ones_complement_sum(&packet[..20]), 0xffff);
        });
    }
}
