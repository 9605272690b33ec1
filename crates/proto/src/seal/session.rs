//! The keys of an open session: one for each direction, replaced long before they wear out.
//!
//! Inputs → outputs: packets to seal or open, acknowledgements, time → sealed and opened packets. Each
//! direction changes its key by itself: the sender turns KEY_PHASE over, the receiver follows when a
//! packet under the next key turns out to be genuine. Source: RFC 9001 §6, without its coupling of
//! directions; `spec/protocol.md` §12.5.

use super::aead::{PacketKey, Suite};
use super::handshake::Secrets;
use super::prf::{Prf, Secret};
use core::time::Duration;
use denrei_wire::{Instant, TransmitBuf};
use std::sync::Arc;

/// Octets sealed with one key. AES-GCM with 2^32 blocks keeps an attacker's advantage below 2^-64
/// (Bellare and Tackmann 2016; RFC 9001 appendix B counts in packets).
const MAX_BYTES_PER_KEY: u64 = 1 << 36;

/// How long packets under the key before are still taken: many round trips of any path.
const PREVIOUS_KEY_KEPT: Duration = Duration::from_secs(3);

/// Packets that fail to open under a session's keys before it has to end: RFC 9001 §6.6 for
/// ChaCha20-Poly1305; AES-128-GCM would bear 2^52.
const MAX_FORGERIES: u64 = 1 << 36;

/// Why a packet is not opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unopened {
    /// Damaged, forged, or sealed with a key that is gone.
    NotGenuine,
    /// An allowed peer's handshake, and not the peer.
    Stranger,
    /// The session's keys have withstood so many forgeries that they should not be trusted longer.
    WornOut,
}

/// Both directions.
#[derive(Debug)]
pub(crate) struct SessionKeys {
    pub send: SendKeys,
    pub recv: RecvKeys,
}

impl SessionKeys {
    /// The keys that follow from a handshake, as the side that opened, or the other, has them.
    pub fn new(secrets: Secrets, initiates: bool) -> Self {
        let Secrets { suite, of_initiator, of_responder } = secrets;
        let (send, recv) =
            if initiates { (of_initiator, of_responder) } else { (of_responder, of_initiator) };
        Self { send: SendKeys::new(suite, send), recv: RecvKeys::new(suite, recv) }
    }
}

/// A key and the secret of the one after it.
struct Generation {
    /// Shared with packets that are sealed or opened elsewhere (see [`staged`](super::staged)).
    key: Arc<PacketKey>,
    next: Secret,
}

impl Generation {
    fn new(suite: Suite, secret: &Secret) -> Self {
        Self { key: Arc::new(PacketKey::new(suite, secret)), next: Prf::new(secret).derive("next", &[]) }
    }
}

/// The direction in which this side sends.
pub(crate) struct SendKeys {
    suite: Suite,
    current: Generation,
    phase: bool,
    /// Number of the first packet under the current key.
    since: u64,
    /// The peer has acknowledged a packet under the current key: it will understand the next.
    confirmed: bool,
    packets: u64,
    bytes: u64,
}

impl SendKeys {
    fn new(suite: Suite, secret: Secret) -> Self {
        let current = Generation::new(suite, &secret);
        Self { suite, current, phase: false, since: 0, confirmed: false, packets: 0, bytes: 0 }
    }

    /// Whether the current key has sealed enough, and nobody has acknowledged that it is known.
    pub fn wants_confirmation(&self, max_packets: u64) -> bool {
        !self.confirmed && self.is_used_up(max_packets)
    }

    /// The key phase of packet `number`. Turns over when it is time and the peer can follow.
    pub fn phase_for(&mut self, number: u64, max_packets: u64) -> bool {
        if self.confirmed && self.is_used_up(max_packets) {
            self.current = Generation::new(self.suite, &self.current.next);
            self.phase = !self.phase;
            (self.since, self.confirmed) = (number, false);
            (self.packets, self.bytes) = (0, 0);
        }
        self.phase
    }

    /// The peer has acknowledged packet `number`.
    pub fn on_acked(&mut self, number: u64) {
        self.confirmed |= number >= self.since;
    }

    /// Completes packet `number`, which starts at `start` of `out`: now, or when the buffer is sealed.
    pub fn seal(&mut self, number: u64, header_len: usize, start: usize, out: &mut TransmitBuf) {
        self.packets += 1;
        self.bytes += (out.len() - start - header_len) as u64;
        if out.defers_sealing() {
            let key = Arc::clone(&self.current.key);
            return out.put_unsealed(key, number, start, start + header_len);
        }
        let (header, frames) = out.tail_mut(start).split_at_mut(header_len);
        let tag = self.current.key.seal(number, header, frames);
        out.put(&tag);
    }

    fn is_used_up(&self, max_packets: u64) -> bool {
        self.packets >= max_packets || self.bytes >= MAX_BYTES_PER_KEY
    }
}

/// The direction in which this side receives.
pub(crate) struct RecvKeys {
    suite: Suite,
    current: Generation,
    phase: bool,
    /// Smallest number seen under the current key.
    since: u64,
    /// The key before, for packets that were overtaken, and until when.
    previous: Option<Box<(Arc<PacketKey>, Instant)>>,
    /// The key after, once somebody has claimed to use it.
    next: Option<Box<Generation>>,
    /// Packets that did not open, under all keys of the session: what RFC 9001 §6.6 limits.
    forgeries: u64,
}

impl RecvKeys {
    fn new(suite: Suite, secret: Secret) -> Self {
        let current = Generation::new(suite, &secret);
        Self { suite, current, phase: false, since: 0, previous: None, next: None, forgeries: 0 }
    }

    /// Opens a packet in place.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        phase: bool,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Unopened> {
        self.forget_previous(now);
        let opened = if phase == self.phase {
            let opened = self.current.key.open(number, header, sealed);
            self.since = if opened.is_some() { self.since.min(number) } else { self.since };
            opened
        } else if number < self.since {
            self.previous.as_ref().and_then(|previous| previous.0.open(number, header, sealed))
        } else {
            self.open_with_next(now, number, header, sealed)
        };
        opened.ok_or_else(|| self.note_forgery())
    }

    /// The peer claims to have changed its key. The key after the current one is kept for the next
    /// such claim, so that forged ones cost no more than any forged packet.
    fn open_with_next<'a>(
        &mut self,
        now: Instant,
        number: u64,
        header: &[u8],
        sealed: &'a mut [u8],
    ) -> Option<&'a [u8]> {
        let suite = self.suite;
        let (next, current) = (&mut self.next, &self.current);
        let next = next.get_or_insert_with(|| Box::new(Generation::new(suite, &current.next)));
        let opened = next.key.open(number, header, sealed)?;
        let next = *self.next.take().expect("it has just opened a packet");
        let before = core::mem::replace(&mut self.current, next);
        self.previous = Some(Box::new((before.key, now + PREVIOUS_KEY_KEPT)));
        self.phase = !self.phase;
        self.since = number;
        Some(opened)
    }

    /// The current key, for packets of its phase.
    pub fn key_of_phase(&self, phase: bool) -> Option<&Arc<PacketKey>> {
        (phase == self.phase).then_some(&self.current.key)
    }

    /// Takes note of what `key` has made of packet `number` elsewhere: whether it may be processed.
    pub fn take_opened(&mut self, key: &Arc<PacketKey>, number: u64, genuine: bool) -> Result<(), Unopened> {
        let current = Arc::ptr_eq(key, &self.current.key);
        let known = current || self.previous.as_ref().is_some_and(|previous| Arc::ptr_eq(key, &previous.0));
        if !known {
            // Of a key that is gone meanwhile, or of an earlier session.
            return Err(Unopened::NotGenuine);
        }
        if !genuine {
            return Err(self.note_forgery());
        }
        if current {
            self.since = self.since.min(number);
        }
        Ok(())
    }

    fn note_forgery(&mut self) -> Unopened {
        self.forgeries += 1;
        if self.forgeries > MAX_FORGERIES { Unopened::WornOut } else { Unopened::NotGenuine }
    }

    /// Forgets the key before the current one when its time is over.
    pub fn forget_previous(&mut self, now: Instant) {
        self.previous.take_if(|previous| previous.1 <= now);
    }
}

impl core::fmt::Debug for SendKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SendKeys(since {}, {} packets, {} bytes)", self.since, self.packets, self.bytes)
    }
}

impl core::fmt::Debug for RecvKeys {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "RecvKeys(since {}, {} forgeries)", self.since, self.forgeries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 16;

    fn pair() -> (SendKeys, RecvKeys) {
        let secret = Secret::new([4; 32]);
        let suite = Suite::Aes128Gcm;
        (SendKeys::new(suite, secret.clone()), RecvKeys::new(suite, secret))
    }

    fn seal(send: &mut SendKeys, number: u64) -> (bool, Vec<u8>) {
        let phase = send.phase_for(number, LIMIT);
        let mut out = TransmitBuf::new(1);
        out.put(&[phase as u8]);
        out.put(&number.to_le_bytes());
        send.seal(number, 1, 0, &mut out);
        (phase, out.bytes()[1..].to_vec())
    }

    fn open(recv: &mut RecvKeys, now: Instant, number: u64, packet: &(bool, Vec<u8>)) -> bool {
        let (phase, mut sealed) = packet.clone();
        let opened = recv.open(now, phase, number, &[phase as u8], &mut sealed);
        opened.is_ok_and(|frames| frames == number.to_le_bytes())
    }

    #[test]
    fn keys_change_without_a_pause_once_the_peer_knows_the_last() {
        let (mut send, mut recv) = pair();
        let mut phases = Vec::new();
        for number in 0..10 * LIMIT {
            let packet = seal(&mut send, number);
            assert!(open(&mut recv, Instant::ZERO, number, &packet), "{number}");
            phases.push(packet.0);
            if number >= LIMIT {
                // Nothing was acknowledged before: the first key stays.
                send.on_acked(number);
            }
        }
        assert!(
            !phases[2 * LIMIT as usize - 1..]
                .windows(LIMIT as usize + 1)
                .any(|w| w.iter().all(|p| *p == w[0]))
        );
        assert!(phases[..LIMIT as usize + 1].iter().all(|phase| !phase));
    }

    #[test]
    fn overtaken_packets_are_opened_for_a_while() {
        let (mut send, mut recv) = pair();
        let early: Vec<_> = (0..LIMIT).map(|number| seal(&mut send, number)).collect();
        send.on_acked(0);
        let late = seal(&mut send, LIMIT);
        assert!(late.0 && open(&mut recv, Instant::ZERO, LIMIT, &late));
        let soon = Instant::ZERO + PREVIOUS_KEY_KEPT / 2;
        assert!(
            open(&mut recv, Instant::ZERO, LIMIT, &late),
            "the key opens what it opened: duplicates are noticed later"
        );
        // `previous` is there although nothing came under it before.
        assert!(open(&mut recv, soon, 3, &early[3]));
        assert!(!open(&mut recv, Instant::ZERO + PREVIOUS_KEY_KEPT, 4, &early[4]));
    }

    #[test]
    fn a_false_claim_of_a_new_key_changes_nothing() {
        let (mut send, mut recv) = pair();
        let packet = seal(&mut send, 0);
        for number in 0..100 {
            assert!(!open(&mut recv, Instant::ZERO, number, &(true, packet.1.clone())));
        }
        assert!(open(&mut recv, Instant::ZERO, 0, &packet));
        (1..LIMIT).for_each(|number| drop(seal(&mut send, number)));
        send.on_acked(0);
        let changed = seal(&mut send, LIMIT);
        assert!(changed.0 && open(&mut recv, Instant::ZERO, LIMIT, &changed));
        assert_eq!(recv.forgeries, 100, "a new key forgives nothing");
        recv.forgeries = MAX_FORGERIES;
        let mut forged = [0; 24];
        let worn = recv.open(Instant::ZERO, true, LIMIT + 1, &[0], &mut forged);
        assert_eq!(worn, Err(Unopened::WornOut));
    }
}
