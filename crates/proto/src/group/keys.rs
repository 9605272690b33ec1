//! The key of a group, at its opener and at its members.
//!
//! Inputs → outputs: seeds, packets of a train → key records, sealed (and signed) packets; key records,
//! packets received → their frames, once each, or why not. Source: `spec/protocol.md` §12.6,
//! `spec/security.md`.

use super::types::GroupId;
use crate::seal::{
    GROUP_KEY_BYTES, GroupKey, GroupOpener, GroupSealer, GroupUnopened, Seed, SignedBatch, Signer, Verifier,
    proof_bytes,
};
use core::time::Duration;
use denrei_wire::group::GROUP_HEADER_BYTES;
use denrei_wire::packet::TAG_BYTES;
use denrei_wire::{Instant, TransmitBuf};
use zeroize::Zeroizing;

/// Packets signed together at most: those of one train.
const BATCH_PACKETS: usize = 64;
/// Octets of a public key.
const PUBLIC_BYTES: usize = 32;
/// Between the next key's way to the members and its first use, if nobody has left: longer than a
/// lost record takes to be sent again.
const KEY_NOTICE: Duration = Duration::from_secs(1);
/// How long members take packets under the key before: the opener's notice, and packets under way.
const KEY_OVERLAP: Duration = Duration::from_secs(3);

/// Octets at the beginning of the sealed part of each packet of a group whose opener signs.
pub(crate) const PROOF_FIELD_BYTES: usize = proof_bytes(BATCH_PACKETS);

/// What a signature is for: it counts in one epoch of one group alone.
fn context(group: GroupId, epoch: u32) -> [u8; 12] {
    let mut context = [0; 12];
    context[..8].copy_from_slice(&group.0.to_le_bytes());
    context[8..].copy_from_slice(&epoch.to_le_bytes());
    context
}

/// A packet in a buffer that is not sealed yet.
#[derive(Debug, Clone, Copy)]
struct Unsealed {
    number: u64,
    start: usize,
    end: usize,
}

/// The opener's keys.
#[derive(Debug)]
pub(crate) struct OpenerKeys {
    group: GroupId,
    key: GroupKey,
    sealer: GroupSealer,
    signer: Option<Signer>,
    /// The next key, which members have been told of, and when it is used.
    next: Option<(GroupKey, Instant)>,
    train: Vec<Unsealed>,
}

impl OpenerKeys {
    /// A new group's; `sign`: a seed for signatures, if packets are signed.
    pub fn new(group: GroupId, seed: &Seed, sign: Option<&Seed>) -> Self {
        let key = GroupKey::new(seed);
        let sealer = key.sealer(group.0);
        let signer = sign.map(|seed| Signer::new(seed.as_bytes()));
        Self { group, key, sealer, signer, next: None, train: Vec::new() }
    }

    /// What OPEN tells a member that hears packets from number `from` on.
    pub fn for_member(&self, from: u64) -> Zeroizing<Vec<u8>> {
        let key = self.next.as_ref().map_or(&self.key, |(key, _)| key);
        let mut octets = Zeroizing::new(key.to_octets().to_vec());
        octets.extend(from.to_le_bytes());
        octets.extend(self.signer.as_ref().map(Signer::public).into_iter().flatten());
        octets
    }

    /// Draws the next key. Somebody has gone: it is used from now on. Else it is after a while.
    pub fn rekey(&mut self, now: Instant, seed: &Seed, somebody_has_gone: bool) -> Zeroizing<Vec<u8>> {
        let newest = self.next.take().map_or_else(|| self.key.clone(), |(key, _)| key);
        let next = newest.successor(seed);
        let octets = Zeroizing::new(next.to_octets().to_vec());
        if somebody_has_gone {
            self.turn_to(next);
        } else {
            self.next = Some((next, now + KEY_NOTICE));
        }
        octets
    }

    fn turn_to(&mut self, key: GroupKey) {
        self.sealer = key.sealer(self.group.0);
        self.key = key;
    }

    /// Whether the key has to be changed for its age.
    pub fn is_wearing_out(&self) -> bool {
        self.next.is_none() && self.sealer.is_wearing_out()
    }

    /// Turns to the next key when that is due.
    pub fn turn(&mut self, now: Instant) {
        if let Some((key, _)) = self.next.take_if(|(_, at)| *at <= now) {
            self.turn_to(key);
        }
    }

    /// Which of two keys packets are sealed with.
    pub fn phase(&self) -> bool {
        self.sealer.phase()
    }

    /// Octets between header and frames.
    pub fn proof_bytes(&self) -> usize {
        if self.signer.is_some() { PROOF_FIELD_BYTES } else { 0 }
    }

    /// Packet `number`, from `start` to the end of `out`, is complete but for its tag.
    pub fn note(&mut self, number: u64, start: usize, out: &mut TransmitBuf) {
        out.put_zeros(TAG_BYTES);
        self.train.push(Unsealed { number, start, end: out.len() });
    }

    /// Signs and seals all packets noted, in place.
    pub fn seal(&mut self, out: &mut TransmitBuf) {
        let octets = out.tail_mut(0);
        if let Some(signer) = &self.signer {
            let skipped = GROUP_HEADER_BYTES..GROUP_HEADER_BYTES + PROOF_FIELD_BYTES;
            for batch in self.train.chunks(BATCH_PACKETS) {
                let said = |packet: &Unsealed| {
                    let packet = &octets[packet.start..packet.end - TAG_BYTES];
                    [&packet[..skipped.start], &packet[skipped.end..]].concat()
                };
                let said: Vec<Vec<u8>> = batch.iter().map(said).collect();
                let said: Vec<&[u8]> = said.iter().map(Vec::as_slice).collect();
                let signed = signer.sign(&context(self.group, self.key.epoch()), &said);
                batch.iter().enumerate().for_each(|(index, packet)| prove(&signed, index, packet, octets));
            }
        }
        for packet in self.train.drain(..) {
            let (header, rest) = octets[packet.start..packet.end].split_at_mut(GROUP_HEADER_BYTES);
            let (frames, tag) = rest.split_at_mut(rest.len() - TAG_BYTES);
            tag.copy_from_slice(&self.sealer.seal(packet.number, header, frames));
        }
    }
}

fn prove(signed: &SignedBatch, index: usize, packet: &Unsealed, octets: &mut [u8]) {
    let mut at = packet.start + GROUP_HEADER_BYTES;
    signed.proof(index, |part| {
        octets[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    });
}

/// A member's keys.
#[derive(Debug)]
pub(crate) struct MemberKeys {
    group: GroupId,
    opener: GroupOpener,
    signed: Option<Box<Signed>>,
}

/// The opener's public key, and what checks the packets of an even and of an odd epoch.
#[derive(Debug)]
struct Signed {
    public: [u8; PUBLIC_BYTES],
    verifiers: [Verifier; 2],
}

impl MemberKeys {
    /// What an OPEN says; `None`: that is no key.
    pub fn from_octets(group: GroupId, octets: &[u8]) -> Option<Self> {
        let (key, rest) = octets.split_at_checked(GROUP_KEY_BYTES)?;
        let (from, public) = rest.split_first_chunk()?;
        let key = GroupKey::from_octets(key)?;
        let public: Option<[u8; PUBLIC_BYTES]> = match public.len() {
            0 => None,
            _ => Some(public.try_into().ok()?),
        };
        let verifier = |public| Verifier::new(public, &context(group, key.epoch()));
        let signed =
            public.map(|public| Box::new(Signed { public, verifiers: [verifier(public), verifier(public)] }));
        Some(Self { group, opener: key.opener(group.0, u64::from_le_bytes(*from)), signed })
    }

    /// Whether packets are signed: then nobody but the opener is believed.
    pub fn is_signed(&self) -> bool {
        self.signed.is_some()
    }

    /// Takes the next key; whether that is one.
    pub fn rekey(&mut self, now: Instant, octets: &[u8], keep_previous: bool) -> bool {
        let Some(key) = GroupKey::from_octets(octets) else { return false };
        self.opener.rekey(now, &key, if keep_previous { KEY_OVERLAP } else { Duration::ZERO });
        if let Some(signed) = &mut self.signed {
            let verifier = Verifier::new(signed.public, &context(self.group, key.epoch()));
            signed.verifiers[(key.epoch() & 1) as usize] = verifier;
        }
        true
    }

    /// Opens a packet in place: what follows its header.
    ///
    /// # Errors
    /// Not genuine, or not new.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        phase: bool,
        number: u32,
        packet: &'a mut [u8],
    ) -> Result<&'a [u8], GroupUnopened> {
        let bad = GroupUnopened::NotGenuine;
        let (header, sealed) = packet.split_at_mut_checked(GROUP_HEADER_BYTES).ok_or(bad)?;
        let (_, frames) = self.opener.open(now, phase, number, header, sealed)?;
        let Some(signed) = &mut self.signed else { return Ok(frames) };
        let (proof, frames) = frames.split_at_checked(PROOF_FIELD_BYTES).ok_or(bad)?;
        let used = proof_bytes(proof[1] as usize + 1).min(proof.len());
        let genuine = signed.verifiers[phase as usize].verify(&[header, frames].concat(), &proof[..used]);
        if genuine { Ok(frames) } else { Err(bad) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);

    /// A train of packets numbered from `first`, sealed.
    fn train(keys: &mut OpenerKeys, first: u64, count: u64) -> Vec<Vec<u8>> {
        let mut out = TransmitBuf::new(64);
        let mut ends = vec![0];
        for number in first..first + count {
            let start = out.len();
            out.put(&[number as u8; GROUP_HEADER_BYTES]);
            out.put_zeros(keys.proof_bytes());
            out.put(b"frames of ");
            out.put(&number.to_le_bytes());
            keys.note(number, start, &mut out);
            ends.push(out.len());
        }
        keys.seal(&mut out);
        ends.windows(2).map(|pair| out.bytes()[pair[0]..pair[1]].to_vec()).collect()
    }

    fn opened(
        keys: &mut MemberKeys,
        phase: bool,
        number: u64,
        packet: &[u8],
    ) -> Result<Vec<u8>, GroupUnopened> {
        let mut packet = packet.to_vec();
        keys.open(Instant::ZERO, phase, number as u32, &mut packet).map(<[u8]>::to_vec)
    }

    #[test]
    fn members_open_each_packet_once_and_nobody_else_opens_any() {
        for sign in [None, Some(Seed::from(9))] {
            let mut keys = OpenerKeys::new(GROUP, &Seed::from(1), sign.as_ref());
            let mut member = MemberKeys::from_octets(GROUP, &keys.for_member(5)).unwrap();
            assert_eq!(member.is_signed(), sign.is_some());
            let mut other = OpenerKeys::new(GROUP, &Seed::from(2), sign.as_ref());
            let forged = train(&mut other, 5, 1);
            assert_eq!(opened(&mut member, false, 5, &forged[0]), Err(GroupUnopened::NotGenuine));
            for (number, packet) in (5..).zip(train(&mut keys, 5, 20)) {
                let frames = opened(&mut member, false, number, &packet).unwrap();
                assert_eq!(frames, [b"frames of ".as_slice(), &number.to_le_bytes()].concat());
                assert_eq!(opened(&mut member, false, number, &packet), Err(GroupUnopened::Duplicate));
            }
        }
    }

    #[test]
    fn a_member_with_the_key_cannot_sign_for_the_opener() {
        let mut keys = OpenerKeys::new(GROUP, &Seed::from(1), Some(&Seed::from(9)));
        let mut member = MemberKeys::from_octets(GROUP, &keys.for_member(0)).unwrap();
        keys.signer = Some(Signer::new(&[3; 32]));
        let forged = train(&mut keys, 0, 3);
        assert_eq!(opened(&mut member, false, 0, &forged[0]), Err(GroupUnopened::NotGenuine));
    }

    #[test]
    fn who_has_gone_opens_nothing_that_is_sealed_afterwards() {
        for sign in [None, Some(Seed::from(9))] {
            let mut keys = OpenerKeys::new(GROUP, &Seed::from(1), sign.as_ref());
            let mut gone = MemberKeys::from_octets(GROUP, &keys.for_member(0)).unwrap();
            let mut stays = MemberKeys::from_octets(GROUP, &keys.for_member(0)).unwrap();
            let old = train(&mut keys, 0, 2);
            assert!(opened(&mut gone, false, 0, &old[0]).is_ok());
            let key = keys.rekey(Instant::ZERO, &Seed::from(2), true);
            assert!(stays.rekey(Instant::ZERO, &key, false) && keys.phase());
            let new = train(&mut keys, 2, 1);
            assert_eq!(opened(&mut gone, true, 2, &new[0]), Err(GroupUnopened::NotGenuine));
            assert!(opened(&mut stays, true, 2, &new[0]).is_ok());
            assert_eq!(opened(&mut stays, false, 1, &old[1]), Err(GroupUnopened::NotGenuine), "forged by it");
        }
    }

    #[test]
    fn a_worn_key_is_changed_without_losing_a_packet() {
        let mut keys = OpenerKeys::new(GROUP, &Seed::from(1), Some(&Seed::from(9)));
        let mut member = MemberKeys::from_octets(GROUP, &keys.for_member(0)).unwrap();
        let key = keys.rekey(Instant::ZERO, &Seed::from(2), false);
        let before = train(&mut keys, 0, 1);
        assert!(member.rekey(Instant::ZERO, &key, true) && !keys.phase());
        assert!(opened(&mut member, false, 0, &before[0]).is_ok());
        keys.turn(Instant::ZERO + KEY_NOTICE);
        assert!(keys.phase());
        let after = train(&mut keys, 1, 1);
        assert!(opened(&mut member, true, 1, &after[0]).is_ok());
        assert!(!member.rekey(Instant::ZERO, b"no key", true));
        assert!(MemberKeys::from_octets(GROUP, b"no key").is_none());
    }
}
