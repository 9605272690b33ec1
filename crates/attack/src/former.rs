//! What a former member of a group can do with the key it had.
//!
//! Inputs → outputs: the OPEN that made it a member → attempts to open packets, whatever they say of the
//! key they are sealed with; packets sealed as if it were the opener.

use anyhow::{Context, Result};
use denrei_proto::seal::{GROUP_KEY_BYTES, GroupKey};
use denrei_wire::frame::{Frame, Message};
use denrei_wire::group::{GROUP_HEADER_BYTES, GroupHeader, Record};
use denrei_wire::packet::{self, COMMON_HEADER_BYTES, Header, Kind, Packet, flags};
use denrei_wire::{Instant, PacketNumber, Token};

/// The octet of a key that names its suite, and all there are.
const SUITE_AT: usize = 0;
const SUITES: [u8; 2] = [1, 2];
/// The first octet of a key's epoch.
const EPOCH_AT: usize = 1;

/// A key that was good once.
pub struct FormerKey {
    /// The group's name.
    pub group: u64,
    octets: Vec<u8>,
}

/// A GROUP packet's headers, which anybody can read.
pub fn headers(datagram: &[u8]) -> Option<(Header, GroupHeader)> {
    let header = Packet::decode(datagram).ok()?.header;
    let (group, _) = GroupHeader::decode(datagram.get(COMMON_HEADER_BYTES..)?)?;
    (header.kind == Kind::Group).then_some((header, group))
}

impl FormerKey {
    /// The key in an OPEN.
    pub fn from_open(open: &[u8]) -> Result<Self> {
        let Ok((group, Record::Open(open))) = Record::decode(open) else { anyhow::bail!("that is no OPEN") };
        let octets = open.key.get(..GROUP_KEY_BYTES).context("the OPEN has no key")?.to_vec();
        Ok(Self { group, octets })
    }

    /// The same secret as that of an even or an odd epoch, with a suite.
    fn turned(&self, odd: bool, suite: u8) -> Option<GroupKey> {
        let mut octets = self.octets.clone();
        octets[SUITE_AT] = suite;
        octets[EPOCH_AT] = octets[EPOCH_AT] & !1 | u8::from(odd);
        GroupKey::from_octets(&octets)
    }

    /// Tries the key on a packet in every way there is: how often, and whether it opened.
    pub fn attempt(&self, datagram: &[u8]) -> (usize, bool) {
        let Some((header, _)) = headers(datagram) else { return (0, false) };
        let odd = header.flags & flags::KEY_PHASE != 0;
        let opens = |suite: &u8| {
            let mut copy = datagram.to_vec();
            let (header_octets, sealed) = copy.split_at_mut(GROUP_HEADER_BYTES);
            let Some(key) = self.turned(odd, *suite) else { return false };
            let mut opener = key.opener(self.group, 0);
            opener.open(Instant::ZERO, odd, header.number, header_octets, sealed).is_ok()
        };
        (SUITES.len(), SUITES.iter().filter(|suite| opens(suite)).count() > 0)
    }

    /// A packet with a message of the attacker's in place of the symbol behind that of `latest`, sealed
    /// with this key under the phase that packets have now.
    pub fn forge(&self, latest: &[u8], ahead: u32) -> Option<Vec<u8>> {
        let (header, group) = headers(latest)?;
        let number = u64::from(header.number) + 1 + u64::from(ahead);
        let group = GroupHeader { symbol: group.symbol + 1 + ahead, parity_of: 0, parity_index: 0, ..group };
        let kept = header.flags & flags::KEY_PHASE;
        let mut octets =
            packet::common_header(Kind::Group, kept, PacketNumber(number), Token(self.group)).to_vec();
        octets.extend(group.encode());
        let mut frames = forged_message(group.symbol);
        let mut sealer = self.turned(kept != 0, self.octets[SUITE_AT])?.sealer(self.group);
        let tag = sealer.seal(number, &octets, &mut frames);
        octets.extend(frames);
        octets.extend(tag);
        Some(octets)
    }

    /// The same as a record of a session.
    pub fn forge_record(&self, latest: &[u8], ahead: u32) -> Option<Vec<u8>> {
        let (_, group) = headers(latest)?;
        let symbol = u64::from(group.symbol) + 1 + u64::from(ahead);
        let frames = forged_message(symbol as u32);
        Some(Record::Symbol { number: symbol, report: true, frames: &frames }.encode(self.group))
    }
}

/// The frames of a symbol that the opener never sent.
fn forged_message(number: u32) -> Vec<u8> {
    let mut octets = Vec::new();
    let message = Message { flags: 0, channel: 0, number, payload: b"forged" };
    Frame::Message(message).encode(&mut |part| octets.extend_from_slice(part));
    octets
}
