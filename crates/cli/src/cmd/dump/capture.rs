//! Captures of the network's traffic: files and streams of pcap and pcapng.
//!
//! Inputs → outputs: bytes → packets, each with its time and how its bytes begin.

use anyhow::{Context, Result, anyhow, bail};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, LegacyPcapReader, Linktype, PcapBlockOwned, PcapError, PcapNGReader};
use std::io::{self, Read};

/// The longest packet that tcpdump takes, and what comes with it; bytes.
const BUFFER_BYTES: usize = 512 << 10;
/// Octets of the header of pcap; that of pcapng, which begins with [`SECTION`], is longer.
const HEADER_BYTES: usize = 24;
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const NO_CAPTURE: &str = "not a capture: neither pcap nor pcapng, which tcpdump -w and Wireshark write";
/// Fractions of a second in captures that say nothing else.
const MICROS: u64 = 1_000_000;
const NANOS: u64 = 1_000_000_000;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Nanoseconds since 1970.
    pub at_ns: u64,
    /// What `bytes` begin with.
    pub link: Linktype,
    /// What was captured of it.
    pub bytes: Vec<u8>,
    /// How much longer it was.
    pub missing: usize,
}

/// An interface of a capture: what its packets begin with, and what their times mean.
struct Interface {
    link: Linktype,
    fractions: u64,
    offset_s: u64,
}

/// A capture that is being read.
pub struct Capture {
    reader: Box<dyn PcapReaderIterator + Send>,
    interfaces: Vec<Interface>,
    is_cut_off: bool,
}

impl Capture {
    /// Begins to read `source`, of which no more is taken than what is there.
    ///
    /// # Errors
    /// It is no capture, or cannot be read.
    pub fn open(source: impl Read + Send + 'static) -> Result<Self> {
        Self::buffered(source, BUFFER_BYTES)
    }

    fn buffered(mut source: impl Read + Send + 'static, buffer_bytes: usize) -> Result<Self> {
        let Some(beginning) = beginning(&mut source).context("cannot be read")? else { bail!(NO_CAPTURE) };
        let is_ng = beginning.starts_with(&SECTION);
        let source = io::Cursor::new(beginning).chain(source);
        let reader: Box<dyn PcapReaderIterator + Send> = if is_ng {
            Box::new(PcapNGReader::new(buffer_bytes, source).map_err(|_| anyhow!(NO_CAPTURE))?)
        } else {
            Box::new(LegacyPcapReader::new(buffer_bytes, source).map_err(|_| anyhow!(NO_CAPTURE))?)
        };
        Ok(Self { reader, interfaces: Vec::new(), is_cut_off: false })
    }

    /// Whether it ends in the middle of a packet, as it does when who wrote it was killed.
    pub fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    /// All packets that are there without another read, and of such a read if there are none; `None`: it has ended.
    ///
    /// # Errors
    /// It is damaged, or cannot be read.
    pub fn next_packets(&mut self) -> Result<Option<Vec<Packet>>> {
        let mut packets = Vec::new();
        loop {
            let consumed = match self.reader.next() {
                Ok((consumed, block)) => {
                    packets.extend(take(block, &mut self.interfaces));
                    consumed
                }
                // What was read first; the next call meets the same again.
                Err(_) if !packets.is_empty() => return Ok(Some(packets)),
                Err(PcapError::Eof) => return Ok(None),
                Err(PcapError::UnexpectedEof) => {
                    self.is_cut_off = true;
                    return Ok(None);
                }
                Err(PcapError::Incomplete(_)) => {
                    if self.reader.refill().is_err() {
                        bail!("the capture cannot be read on");
                    }
                    continue;
                }
                Err(PcapError::BufferTooSmall) => {
                    bail!("a block of more than {BUFFER_BYTES} bytes: damaged, or not read here")
                }
                Err(_) => bail!("the capture is damaged {} bytes from its beginning", self.reader.consumed()),
            };
            self.reader.consume(consumed);
        }
    }
}

/// The header that says what a capture is, of either kind, and no octet more; `None`: it ends before.
fn beginning(source: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    source.take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.starts_with(&SECTION)
        && let Some((length, [order, ..])) = bytes[SECTION.len()..].split_first_chunk()
    {
        // The octet that all values of its section are in the order of.
        let length = if *order == 0x4d { u32::from_le_bytes(*length) } else { u32::from_be_bytes(*length) };
        let rest = (length as usize).min(BUFFER_BYTES / 2).saturating_sub(bytes.len());
        source.take(rest as u64).read_to_end(&mut bytes)?;
    }
    Ok((bytes.len() >= HEADER_BYTES).then_some(bytes))
}

/// The packet of a block, if it is one; else what it says of those to come.
fn take(block: PcapBlockOwned<'_>, interfaces: &mut Vec<Interface>) -> Option<Packet> {
    match block {
        PcapBlockOwned::LegacyHeader(header) => {
            let fractions = if header.is_nanosecond_precision() { NANOS } else { MICROS };
            interfaces.push(Interface { link: header.network, fractions, offset_s: 0 });
            None
        }
        PcapBlockOwned::Legacy(block) => {
            let interface = interfaces.first()?;
            let at_ns = nanos(block.ts_sec.into(), block.ts_usec.into(), interface.fractions);
            Some(packet(at_ns, interface.link, block.data, block.origlen))
        }
        PcapBlockOwned::NG(Block::SectionHeader(_)) => {
            interfaces.clear();
            None
        }
        PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
            interfaces.push(Interface {
                link: interface.linktype,
                fractions: fractions(interface.if_tsresol),
                offset_s: u64::try_from(interface.ts_offset()).unwrap_or(0),
            });
            None
        }
        PcapBlockOwned::NG(Block::EnhancedPacket(block)) => {
            let interface = interfaces.get(block.if_id as usize)?;
            let units = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
            let seconds = (units / interface.fractions).saturating_add(interface.offset_s);
            let at_ns = nanos(seconds, units % interface.fractions, interface.fractions);
            let captured = block.data.get(..block.caplen as usize).unwrap_or(block.data);
            Some(packet(at_ns, interface.link, captured, block.origlen))
        }
        // It says no time, and is of the first interface.
        PcapBlockOwned::NG(Block::SimplePacket(block)) => {
            let captured = block.data.get(..block.origlen as usize).unwrap_or(block.data);
            Some(packet(0, interfaces.first()?.link, captured, block.origlen))
        }
        PcapBlockOwned::NG(_) => None,
    }
}

/// Of a second, as an interface's `if_tsresol` says: a power of 10, or of 2.
fn fractions(resolution: u8) -> u64 {
    let base = if resolution & 0x80 == 0 { 10_u64 } else { 2 };
    base.checked_pow((resolution & 0x7f).into()).unwrap_or(MICROS)
}

fn packet(at_ns: u64, link: Linktype, captured: &[u8], original: u32) -> Packet {
    let missing = (original as usize).saturating_sub(captured.len());
    Packet { at_ns, link, bytes: captured.to_vec(), missing }
}

/// Nanoseconds of so many seconds and so many of `fractions` of one.
fn nanos(seconds: u64, units: u64, fractions: u64) -> u64 {
    let part = u128::from(units) * u128::from(NANOS) / u128::from(fractions);
    seconds.saturating_mul(NANOS).saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_io::pcap::Recorder;
    use denrei_wire::Ecn;
    use std::time::{Duration, UNIX_EPOCH};

    const SECONDS: u64 = 1_700_000_000;

    /// What Recorder writes, of three packets a nanosecond apart.
    fn pcap() -> Vec<u8> {
        let mut recorder = Recorder::new(Vec::new()).unwrap();
        let (from, to) = ("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        for nth in 0..3 {
            let at = UNIX_EPOCH + Duration::from_secs(SECONDS) + Duration::from_nanos(nth);
            recorder.record(at, from, to, Ecn::NotEct, &vec![7; 10 + nth as usize]);
        }
        recorder.finish().unwrap()
    }

    /// The same as pcapng, in the order of octets of `endian`, of one interface whose times are nanoseconds.
    fn pcapng(pcap: &[u8], endian: fn(u32) -> [u8; 4]) -> Vec<u8> {
        let words = |words: &[u32]| words.iter().flat_map(|word| endian(*word)).collect::<Vec<u8>>();
        let block = |kind: u32, body: &[u8]| {
            let len = 12 + body.len() as u32;
            [&words(&[kind, len])[..], body, &words(&[len])].concat()
        };
        let half = |value: u16| if endian(1)[0] == 1 { value.to_le_bytes() } else { value.to_be_bytes() };
        let section = [&words(&[0x1a2b_3c4d])[..], &half(1), &half(0), &[0xff; 8]].concat();
        let resolution = [&half(9)[..], &half(1), &[9, 0, 0, 0], &half(0), &half(0)].concat();
        let interface = [&half(101)[..], &half(0), &words(&[0]), &resolution].concat();
        let mut bytes = [block(0x0a0d_0d0a, &section), block(1, &interface)].concat();
        let mut rest = &pcap[24..];
        while let Some((header, more)) = rest.split_first_chunk::<16>() {
            let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
            let (data, after) = more.split_at(field(8) as usize);
            let at = u64::from(field(0)) * NANOS + u64::from(field(4));
            let padding = vec![0; data.len().next_multiple_of(4) - data.len()];
            let fields = words(&[0, (at >> 32) as u32, at as u32, field(8), field(12)]);
            bytes.extend(block(6, &[&fields[..], data, &padding].concat()));
            rest = after;
        }
        bytes
    }

    /// All packets, and whether the capture was read to its end.
    fn read(bytes: &[u8]) -> (Vec<Packet>, bool) {
        let mut packets = Vec::new();
        let source = io::Cursor::new(bytes.to_vec());
        let Ok(mut capture) = Capture::buffered(source, 4 << 10) else { return (packets, false) };
        loop {
            match capture.next_packets() {
                Ok(Some(more)) => packets.extend(more),
                Ok(None) => return (packets, !capture.is_cut_off()),
                Err(_) => return (packets, false),
            }
        }
    }

    #[test]
    fn pcap_and_pcapng_say_the_same() {
        let pcap = pcap();
        let (packets, whole) = read(&pcap);
        assert!(whole);
        let seen = packets.iter().map(|it| (it.at_ns - SECONDS * NANOS, it.link, it.bytes.len(), it.missing));
        let raw = Linktype::RAW;
        assert_eq!(seen.collect::<Vec<_>>(), [(0, raw, 38, 0), (1, raw, 39, 0), (2, raw, 40, 0)]);
        assert_eq!(read(&pcapng(&pcap, u32::to_le_bytes)), (packets, true));
        let (packets, whole) = read(&pcapng(&pcap, u32::to_be_bytes));
        assert_eq!((packets, true), (read(&pcap).0, whole));
    }

    #[test]
    fn times_are_powers_of_ten_or_two() {
        let seen = [0, 3, 6, 9, 0x80 | 20, 0x80 | 63, 20, 0xff].map(fractions);
        assert_eq!(seen, [1, 1000, MICROS, NANOS, 1 << 20, 1 << 63, MICROS, MICROS]);
    }

    #[test]
    fn packets_without_a_time_are_some() {
        let pcapng = pcapng(&pcap(), u32::to_le_bytes);
        let (length, data) = (28 + 28, [7_u8; 38]);
        let words = [3_u32, 56, 38].map(u32::to_le_bytes).concat();
        let simple = [&words[..], &data, &[0; 2], &56_u32.to_le_bytes()].concat();
        let (packets, whole) = read(&[&pcapng[..length + 4], &simple].concat());
        let expected = Packet { at_ns: 0, link: Linktype::RAW, bytes: data.to_vec(), missing: 0 };
        assert_eq!((packets, whole), (vec![expected], true));
    }

    #[test]
    fn whatever_is_damaged_is_read_as_far_as_it_goes() {
        let pcap = pcap();
        for bytes in [pcapng(&pcap, u32::to_le_bytes), pcapng(&pcap, u32::to_be_bytes), pcap] {
            let mut fewer = 0;
            for at in 0..bytes.len() {
                fewer += usize::from(read(&bytes[..at]).0.len() < 3);
                for bit in 0..8 {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= 1 << bit;
                    assert!(read(&damaged).0.len() <= 3);
                }
            }
            assert_eq!(fewer, bytes.len(), "the last octet belongs to the last packet");
        }
    }
}
