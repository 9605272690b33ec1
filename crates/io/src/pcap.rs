//! An adapter that records what is sent and received in a capture file for tcpdump and Wireshark.
//!
//! Inputs → outputs: datagrams → pcap records of link type RAW with made-up IP and UDP headers.
//! Source: the pcap savefile format (`pcap-savefile(5)`, nanosecond magic) and RFC 768, 791, 8200.
//! Deviations: what is recorded is what the program handed over or got, so trains appear as their
//! datagrams and the headers' TTL and identification are invented; an address bound to the wildcard
//! is recorded as such. Recording ends at the first error of the file, which
//! [`Recorder::finish`] returns; it never disturbs the traffic.

use crate::buffers::RecvBuffers;
use crate::outcome::SendOutcome;
use crate::plain::canonical;
use crate::socket::DatagramIo;
use denrei_wire::{DatagramMeta, Ecn, Transmit, TransmitBuf};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{SystemTime, UNIX_EPOCH};

/// Marks a little-endian capture with nanosecond time stamps.
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
/// Packets begin with an IPv4 or IPv6 header.
const LINKTYPE_RAW: u32 = 101;
/// No packet is longer: 65,535 bytes of IPv6 payload and its header.
const SNAP_BYTES: u32 = 65_535 + 40;
/// Protocol number of UDP.
const PROTOCOL_UDP: u8 = 17;
/// Time to live in the invented headers: a usual default.
const HOP_LIMIT: u8 = 64;
const UDP_HEADER_BYTES: usize = 8;

/// Writes a capture file.
#[derive(Debug)]
pub struct Recorder<W> {
    out: W,
    /// Ends the recording.
    error: Option<io::Error>,
    packet: Vec<u8>,
}

impl<W: Write> Recorder<W> {
    /// Starts a capture with the file header. Wrap files in a `BufWriter`.
    ///
    /// # Errors
    /// Those of writing to `out`.
    pub fn new(mut out: W) -> io::Result<Self> {
        let mut header = Vec::with_capacity(24);
        header.extend(MAGIC_NANOSECONDS.to_le_bytes());
        header.extend([2u16, 4].map(u16::to_le_bytes).concat()); // format version 2.4
        header.extend([0; 8]); // time zone and accuracy, always 0
        header.extend(SNAP_BYTES.to_le_bytes());
        header.extend(LINKTYPE_RAW.to_le_bytes());
        out.write_all(&header)?;
        Ok(Self { out, error: None, packet: Vec::new() })
    }

    /// Records one datagram.
    pub fn record(&mut self, at: SystemTime, from: SocketAddr, to: SocketAddr, ecn: Ecn, datagram: &[u8]) {
        if self.error.is_some() {
            return;
        }
        build_packet(&mut self.packet, canonical(from), canonical(to), ecn, datagram);
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let len = self.packet.len() as u32;
        let fields = [since.as_secs() as u32, since.subsec_nanos(), len, len];
        let header = fields.map(u32::to_le_bytes).concat();
        let written = self.out.write_all(&header).and_then(|()| self.out.write_all(&self.packet));
        self.error = written.err();
    }

    /// Flushes and returns the writer.
    ///
    /// # Errors
    /// The first error of writing, which ended the recording.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

/// I/O whose traffic is recorded.
#[derive(Debug)]
pub struct Tapped<S, W> {
    inner: S,
    recorder: Recorder<W>,
}

impl<S: DatagramIo, W: Write> Tapped<S, W> {
    /// Records what goes through `inner`.
    pub fn new(inner: S, recorder: Recorder<W>) -> Self {
        Self { inner, recorder }
    }

    /// The I/O inside, mutably.
    pub fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// Takes the adapter apart.
    pub fn into_parts(self) -> (S, Recorder<W>) {
        (self.inner, self.recorder)
    }
}

impl<S: DatagramIo, W: Write> DatagramIo for Tapped<S, W> {
    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send_from(&mut self, transmit: &Transmit, buf: &TransmitBuf, skip: usize) -> SendOutcome {
        let outcome = self.inner.send_from(transmit, buf, skip);
        let end = match outcome {
            SendOutcome::Sent => transmit.len,
            SendOutcome::WouldBlock { sent } => sent,
            SendOutcome::Dropped { .. } => return outcome,
        };
        let bytes = buf.contiguous();
        let (now, from) = (SystemTime::now(), self.inner.local_addr());
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        if bytes.is_empty() && outcome == SendOutcome::Sent {
            self.recorder.record(now, from, transmit.to, transmit.ecn, &[]);
        }
        for datagram in bytes[skip..end].chunks(segment) {
            self.recorder.record(now, from, transmit.to, transmit.ecn, datagram);
        }
        outcome
    }

    fn recv(
        &mut self,
        buffers: &mut RecvBuffers,
        mut handle: impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<usize> {
        let local = self.inner.local_addr();
        let recorder = &mut self.recorder;
        self.inner.recv(buffers, |meta, datagram| {
            // Before the handler, which may work in place.
            recorder.record(SystemTime::now(), meta.from, local, meta.ecn, datagram);
            handle(meta, datagram);
        })
    }
}

/// IP header, UDP header and payload.
fn build_packet(packet: &mut Vec<u8>, from: SocketAddr, to: SocketAddr, ecn: Ecn, datagram: &[u8]) {
    packet.clear();
    let udp_len = UDP_HEADER_BYTES + datagram.len();
    let mut pseudo = Vec::with_capacity(40);
    match (from.ip(), to.ip()) {
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            pseudo.extend([from.octets(), to.octets()].concat());
            packet.extend([0x60, (ecn as u8) << 4, 0, 0]);
            packet.extend((udp_len as u16).to_be_bytes());
            packet.extend([PROTOCOL_UDP, HOP_LIMIT]);
            packet.extend(&pseudo);
        }
        (from, to) => {
            pseudo.extend([as_ipv4(from).octets(), as_ipv4(to).octets()].concat());
            packet.extend([0x45, ecn as u8]);
            packet.extend(((20 + udp_len) as u16).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, HOP_LIMIT, PROTOCOL_UDP, 0, 0]); // DF set, checksum below
            packet.extend(&pseudo);
            let sum = checksum(&[packet]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    pseudo.extend([0, PROTOCOL_UDP]);
    pseudo.extend((udp_len as u16).to_be_bytes());
    let udp = packet.len();
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend((udp_len as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(datagram);
    let sum = match checksum(&[&pseudo, &packet[udp..]]) {
        0 => 0xffff, // 0 would say "not computed" (RFC 768)
        sum => sum,
    };
    packet[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
}

/// The wildcard of the other family becomes that of IPv4.
fn as_ipv4(ip: IpAddr) -> Ipv4Addr {
    match ip {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// The Internet checksum (RFC 1071) over `parts`, of which only the last may have odd length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u64 =
        words.map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0))).sum();
    let mut folded = sum;
    while folded > 0xffff {
        folded = (folded & 0xffff) + (folded >> 16);
    }
    !(folded as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_add_up_to_zero() {
        for (from, to) in [("10.0.0.1:5000", "10.0.0.2:6000"), ("[fe80::1]:5000", "[fe80::2]:6000")] {
            let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
            for datagram in [&b""[..], b"odd", b"even"] {
                let mut packet = Vec::new();
                build_packet(&mut packet, from, to, Ecn::Ce, datagram);
                let ip = if from.is_ipv4() { 20 } else { 40 };
                assert_eq!(packet.len(), ip + 8 + datagram.len());
                if from.is_ipv4() {
                    assert_eq!(checksum(&[&packet[..20]]), 0);
                    assert_eq!(packet[1], 0b11, "ECN");
                } else {
                    assert_eq!(packet[1] >> 4, 0b11, "ECN");
                }
                let addresses = if from.is_ipv4() { &packet[12..20] } else { &packet[8..40] };
                let udp_len = [0, PROTOCOL_UDP, 0, 8 + datagram.len() as u8];
                assert_eq!(checksum(&[addresses, &udp_len, &packet[ip..]]), 0);
            }
        }
    }

    #[test]
    fn an_error_of_the_file_ends_the_recording_and_is_returned() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut recorder = Recorder::new(Full(100)).unwrap();
        let addr = "10.0.0.1:1".parse().unwrap();
        for _ in 0..5 {
            recorder.record(UNIX_EPOCH, addr, addr, Ecn::NotEct, &[0; 20]);
        }
        assert_eq!(recorder.finish().err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));
    }
}
