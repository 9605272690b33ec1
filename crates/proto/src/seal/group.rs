//! The key of a group: shared by its members, a key of its own for each sender.
//!
//! Inputs → outputs: 32 octets that travel over members' sealed sessions → packets sealed by one sender
//! and opened by all, each once. The opener of the group draws another key (the next *epoch*) when a
//! member leaves or is ejected, and before a key wears out. Whoever has the key can seal as any sender:
//! members are told apart by signatures alone ([`Signer`](super::Signer)). Source: `spec/protocol.md`
//! §12.6, `spec/security.md`; the window is RFC 4303 §3.4.3's.

use super::aead::{PacketKey, Suite};
use super::prf::{Prf, Secret};
use super::{SECRET_BYTES, Seed};
use core::time::Duration;
use denrei_wire::packet::TAG_BYTES;
use denrei_wire::{Instant, ids};
use zeroize::Zeroizing;

/// Octets of a key as it travels: suite, epoch, secret.
pub const GROUP_KEY_BYTES: usize = 1 + 4 + SECRET_BYTES;

/// Packets one sender seals in an epoch at most (RFC 9001 §6.6 allows 2^23).
const MAX_PACKETS_PER_EPOCH: u64 = 1 << 22;

/// Packet numbers below the largest that are still taken: what a multicast train may be reordered by.
const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / u64::BITS as u64) as usize;

/// The key of one epoch of a group.
#[derive(Clone)]
pub struct GroupKey {
    suite: Suite,
    epoch: u32,
    secret: Secret,
}

/// One sender's side.
#[derive(Debug)]
pub struct GroupSealer {
    key: PacketKey,
    epoch: u32,
    packets: u64,
}

/// A member's side of one sender.
#[derive(Debug)]
pub struct GroupOpener {
    sender: u64,
    epoch: u32,
    key: PacketKey,
    /// The key of the epoch before, and until when it is taken.
    previous: Option<Box<(PacketKey, Instant)>>,
    seen: Window,
}

/// Why a packet to a group is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupUnopened {
    /// Damaged, forged, of another group or an epoch that is over.
    NotGenuine,
    /// Opened before, or too old to tell.
    Duplicate,
}

impl GroupKey {
    /// A new group's first key, from a seed that is used for nothing else.
    pub fn new(seed: &Seed) -> Self {
        Self { suite: Suite::preferred(), epoch: 0, secret: Zeroizing::new(*seed.as_bytes()) }
    }

    /// The key of the next epoch, from a seed of its own: nothing of this one tells it.
    pub fn successor(&self, seed: &Seed) -> Self {
        Self { suite: self.suite, epoch: self.epoch.wrapping_add(1), ..Self::new(seed) }
    }

    /// Counts the keys of a group.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The key as it travels, over sealed sessions alone.
    pub fn to_octets(&self) -> Zeroizing<[u8; GROUP_KEY_BYTES]> {
        let mut octets = Zeroizing::new([0; GROUP_KEY_BYTES]);
        octets[0] = self.suite as u8;
        octets[1..5].copy_from_slice(&self.epoch.to_le_bytes());
        octets[5..].copy_from_slice(&*self.secret);
        octets
    }

    /// The inverse of [`to_octets`](Self::to_octets); `None`: this is no key.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; GROUP_KEY_BYTES] = octets.try_into().ok()?;
        let [suite, rest @ ..] = octets;
        let (epoch, secret) = rest.split_first_chunk()?;
        let mut own = Secret::default();
        own.copy_from_slice(secret);
        Some(Self { suite: Suite::from_octet(*suite)?, epoch: u32::from_le_bytes(*epoch), secret: own })
    }

    fn key_of(&self, sender: u64) -> PacketKey {
        let secret = Prf::new(&self.secret).derive("sender", &[&sender.to_le_bytes()]);
        PacketKey::new(self.suite, &secret)
    }

    /// For the sender `sender`, whose packet numbers go on where those of the epoch before ended.
    pub fn sealer(&self, sender: u64) -> GroupSealer {
        GroupSealer { key: self.key_of(sender), epoch: self.epoch, packets: 0 }
    }

    /// For a member that hears `sender`, from packet number `from` on.
    pub fn opener(&self, sender: u64, from: u64) -> GroupOpener {
        let seen = Window { next: from, floor: from, bits: [0; WORDS] };
        GroupOpener { sender, epoch: self.epoch, key: self.key_of(sender), previous: None, seen }
    }
}

impl GroupSealer {
    /// Encrypts `frames` in place; the tag over them and `header`. Numbers go up and are used once.
    pub fn seal(&mut self, number: u64, header: &[u8], frames: &mut [u8]) -> [u8; TAG_BYTES] {
        self.packets += 1;
        self.key.seal(number, header, frames)
    }

    /// What KEY_PHASE says in packets of this epoch.
    pub fn phase(&self) -> bool {
        self.epoch & 1 == 1
    }

    /// Whether the group needs another key soon: half of what this one may seal is left.
    pub fn is_wearing_out(&self) -> bool {
        self.packets >= MAX_PACKETS_PER_EPOCH / 2
    }
}

impl GroupOpener {
    /// Takes the key of the next epoch. Packets of the one before are taken for another `overlap`: a
    /// member that was ejected can forge those, so nothing after an ejection.
    pub fn rekey(&mut self, now: Instant, key: &GroupKey, overlap: Duration) {
        if key.epoch != self.epoch.wrapping_add(1) && key.epoch <= self.epoch {
            return;
        }
        let adjacent = key.epoch == self.epoch.wrapping_add(1);
        let before = core::mem::replace(&mut self.key, key.key_of(self.sender));
        self.previous = (adjacent && !overlap.is_zero()).then(|| Box::new((before, now + overlap)));
        self.epoch = key.epoch;
    }

    /// Opens a packet in place, once: its whole number and its frames. `number` are the 32 bits that
    /// travel, `phase` is its KEY_PHASE.
    ///
    /// # Errors
    /// Not genuine, or not new. Which packets are new is asked of genuine ones alone.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        phase: bool,
        number: u32,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<(u64, &'a [u8]), GroupUnopened> {
        self.previous.take_if(|previous| previous.1 <= now);
        let number = ids::expand(number, self.seen.next);
        let current = phase == (self.epoch & 1 == 1);
        let key = if current { Some(&self.key) } else { self.previous.as_ref().map(|previous| &previous.0) };
        let frames = key.and_then(|key| key.open(number, header, sealed)).ok_or(GroupUnopened::NotGenuine)?;
        if self.seen.insert(number) { Ok((number, frames)) } else { Err(GroupUnopened::Duplicate) }
    }
}

/// Which of the last numbers were there.
#[derive(Debug)]
struct Window {
    /// One more than the largest.
    next: u64,
    /// Everything below counts as seen.
    floor: u64,
    /// A bit for each of the last numbers, at the number modulo the window.
    bits: [u64; WORDS],
}

impl Window {
    /// Adds a number; whether it was new.
    fn insert(&mut self, number: u64) -> bool {
        if number < self.floor || number.saturating_add(WINDOW) < self.next {
            return false;
        }
        // What enters the window has not been seen; beyond a whole window nothing in it has.
        for entering in self.next.max(number.saturating_sub(WINDOW - 1))..=number {
            self.bits[place(entering).0] &= !place(entering).1;
        }
        self.next = self.next.max(number.saturating_add(1));
        let (word, bit) = place(number);
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        new
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW;
    ((at / u64::BITS as u64) as usize, 1 << (at % u64::BITS as u64))
}

impl core::fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "GroupKey(epoch {}, secret)", self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const HEADER: &[u8] = b"header";

    fn sealed(sealer: &mut GroupSealer, number: u64) -> Vec<u8> {
        let mut packet = number.to_le_bytes().to_vec();
        let tag = sealer.seal(number, HEADER, &mut packet);
        packet.extend(tag);
        packet
    }

    fn open(
        opener: &mut GroupOpener,
        now: Instant,
        phase: bool,
        number: u64,
        packet: &[u8],
    ) -> Result<u64, GroupUnopened> {
        let mut packet = packet.to_vec();
        let (number, frames) = opener.open(now, phase, number as u32, HEADER, &mut packet)?;
        assert_eq!(frames, number.to_le_bytes());
        Ok(number)
    }

    #[test]
    fn each_packet_of_a_sender_is_opened_once_and_of_no_other() {
        let key = GroupKey::from_octets(&*GroupKey::new(&Seed::from(1)).to_octets()).unwrap();
        let start = (1 << 32) - 3;
        let (mut sealer, mut opener) = (key.sealer(7), key.opener(7, start));
        let mut other = key.opener(8, start);
        let now = Instant::ZERO;
        for number in start..start + 10 {
            let packet = sealed(&mut sealer, number);
            assert_eq!(open(&mut other, now, false, number, &packet), Err(GroupUnopened::NotGenuine));
            assert_eq!(open(&mut opener, now, false, number, &packet), Ok(number));
            assert_eq!(open(&mut opener, now, false, number, &packet), Err(GroupUnopened::Duplicate));
        }
        let old = sealed(&mut sealer, start - 1);
        assert_eq!(open(&mut opener, now, false, start - 1, &old), Err(GroupUnopened::Duplicate));
    }

    #[test]
    fn the_epoch_before_ends_when_it_is_told_to() {
        let first = GroupKey::new(&Seed::from(1));
        let second = first.successor(&Seed::from(2));
        assert_eq!((first.epoch(), second.epoch()), (0, 1));
        let now = Instant::ZERO;
        let (mut old, mut new) = (first.sealer(7), second.sealer(7));
        let (late, fresh) = (sealed(&mut old, 0), sealed(&mut new, 1));
        assert!(!old.phase() && new.phase() && !old.is_wearing_out());
        let overlap = Duration::from_secs(1);
        let mut left = first.opener(7, 0);
        left.rekey(now, &second, overlap);
        assert_eq!(open(&mut left, now, true, 1, &fresh), Ok(1));
        assert_eq!(open(&mut left, now, false, 0, &late), Ok(0));
        let mut slow = first.opener(7, 0);
        slow.rekey(now, &second, overlap);
        assert_eq!(open(&mut slow, now + overlap, false, 0, &late), Err(GroupUnopened::NotGenuine));
        let mut ejected = first.opener(7, 0);
        assert_eq!(open(&mut ejected, now, true, 1, &fresh), Err(GroupUnopened::NotGenuine));
        ejected.rekey(now, &second, Duration::ZERO);
        assert_eq!(open(&mut ejected, now, false, 0, &late), Err(GroupUnopened::NotGenuine));
        // An older key changes nothing.
        ejected.rekey(now, &first, overlap);
        assert_eq!(open(&mut ejected, now, true, 1, &fresh), Ok(1));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        let key = GroupKey::new(&Seed::from(1));
        let octets = key.to_octets();
        assert!(GroupKey::from_octets(&octets[1..]).is_none());
        let mut wrong = *octets;
        wrong[0] = 9;
        assert!(GroupKey::from_octets(&wrong).is_none());
        assert_eq!(format!("{key:?}"), "GroupKey(epoch 0, secret)");
    }

    proptest! {
        #[test]
        fn the_window_agrees_with_a_set(steps in prop::collection::vec((0u64..3000, any::<bool>()), 0..400)) {
            let mut window = Window { next: 0, floor: 0, bits: [0; WORDS] };
            let mut seen = BTreeSet::new();
            let mut largest = 0;
            for (step, forward) in steps {
                let number = if forward { largest + step % 5 } else { largest.saturating_sub(step) };
                let fits = number + WINDOW > largest;
                let expected = fits && seen.insert(number);
                prop_assert_eq!(window.insert(number), expected, "{} after {}", number, largest);
                largest = largest.max(if expected { number } else { 0 });
            }
        }
    }
}
