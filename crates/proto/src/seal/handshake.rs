//! The handshake: Noise, with the cluster key mixed in, one message in FIRST and one in ANSWER.
//!
//! Inputs → outputs: the cluster key, identities, random octets and the other side's message → the
//! handshake field of FIRST and ANSWER, and the secrets of both directions. Pattern NNpsk0; with
//! identities IXpsk0, which also takes one round trip. Source: the Noise Protocol Framework,
//! revision 34; `spec/protocol.md` §12.2. Each message is checked under the cluster key alone before
//! anything that costs: the cheap check against floods that WireGuard has in its `mac1` (§5.3 there).

use super::aead::{PacketKey, Suite};
use super::noise::{KeyPair, Primitives};
use super::prf::{CHECK_BYTES, Prf, Secret};
use super::{ClusterKey, Identity, PublicIdentity, Seed};
use denrei_wire::packet::Opening;
use snow::params::NoiseParams;
use snow::{Builder, HandshakeState};
use std::collections::BTreeSet;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Octets of each Noise message: an ephemeral key, one octet of payload, a tag.
const MESSAGE_BYTES: usize = 32 + 1 + 16;

/// Octets that an identity adds to a message: a static key and a tag.
const IDENTITY_BYTES: usize = 32 + 16;

/// Largest handshake message.
const MAX_MESSAGE_BYTES: usize = MESSAGE_BYTES + IDENTITY_BYTES;

/// Why a handshake message is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Made with another cluster key, by somebody without one, or damaged.
    Forged,
    /// By an identity that is not on the list.
    Stranger,
}

/// What a Node shows and checks in every handshake.
pub(crate) struct Credentials {
    params: NoiseParams,
    psk: Secret,
    first: Prf,
    answer: Prf,
    pub(super) retry: Prf,
    identity: Option<Arc<KeyPair>>,
    allowed: BTreeSet<PublicIdentity>,
    suite: Suite,
}

/// The secrets of a session.
pub(crate) struct Secrets {
    pub suite: Suite,
    pub of_initiator: Secret,
    pub of_responder: Secret,
}

impl Credentials {
    /// Takes the cluster key apart, so that no two uses share a key.
    pub fn new(key: &ClusterKey, identity: Option<&Identity>, allowed: &[PublicIdentity]) -> Self {
        let root = Prf::new(key.as_bytes());
        let pattern = if identity.is_some() {
            "Noise_IXpsk0_25519_AESGCM_SHA256"
        } else {
            "Noise_NNpsk0_25519_AESGCM_SHA256"
        };
        Self {
            params: pattern.parse().expect("a pattern that snow knows"),
            psk: root.derive("psk", &[]),
            first: Prf::new(&root.derive("first", &[])),
            answer: Prf::new(&root.derive("answer", &[])),
            retry: Prf::new(&root.derive("retry", &[])),
            identity: identity.map(|identity| {
                let pair = KeyPair::new(identity.as_bytes());
                Arc::new(pair.expect("every 32 octets are a key"))
            }),
            allowed: allowed.iter().copied().collect(),
            suite: Suite::preferred(),
        }
    }

    /// Octets of a handshake message.
    pub fn message_bytes(&self) -> usize {
        if self.identity.is_some() { MAX_MESSAGE_BYTES } else { MESSAGE_BYTES }
    }

    /// The key of the FIRSTs of one attempt to open a session. Whoever opens a packet with it knows
    /// that somebody made that packet who has the cluster key, though not when.
    pub fn early_key(&self, initiator: Opening, field: &[u8]) -> PacketKey {
        PacketKey::early(&self.first.derive("packet", &[&octets(initiator), field]))
    }

    fn state(&self, initiator: Opening, seed: Seed, initiates: bool) -> HandshakeState {
        let primitives = Primitives { seed, identity: self.identity.clone() };
        let builder = Builder::with_resolver(self.params.clone(), Box::new(primitives));
        let prologue = octets(initiator);
        let built = builder.psk(0, &self.psk).and_then(|builder| builder.prologue(&prologue));
        let built = built.and_then(|builder| match &self.identity {
            Some(identity) => builder.local_private_key(identity.private()),
            None => Ok(builder),
        });
        let state = built.and_then(|b| if initiates { b.build_initiator() } else { b.build_responder() });
        state.expect("each part is set once, and has its length")
    }

    fn check_identity(&self, state: &HandshakeState) -> Result<(), Refused> {
        if self.identity.is_none() {
            return Ok(());
        }
        let identity = state.get_remote_static().and_then(|octets| octets.try_into().ok());
        let allowed = identity.is_some_and(|id| self.allowed.contains(&PublicIdentity::from_bytes(id)));
        if allowed { Ok(()) } else { Err(Refused::Stranger) }
    }

    /// Answers the message in a FIRST.
    pub fn respond(&self, initiator: Opening, message: &[u8], seed: Seed) -> Result<Response, Refused> {
        let mut state = self.state(initiator, seed, false);
        let mut payload = [0; MAX_MESSAGE_BYTES];
        let read = state.read_message(message, &mut payload).map_err(|_| Refused::Forged)?;
        let [preferred] = payload[..read] else { return Err(Refused::Forged) };
        let preferred = Suite::from_octet(preferred).ok_or(Refused::Forged)?;
        self.check_identity(&state)?;
        let suite = self.suite.common(preferred);
        let mut message = vec![0; MAX_MESSAGE_BYTES];
        // Fails on an ephemeral key of low order, which no honest initiator has.
        let len = state.write_message(&[suite as u8], &mut message).map_err(|_| Refused::Forged)?;
        message.truncate(len);
        Ok(Response { message, secrets: secrets(&mut state, suite) })
    }
}

/// What a responder has to say to a FIRST.
pub(crate) struct Response {
    message: Vec<u8>,
    pub secrets: Secrets,
}

impl Response {
    /// The handshake field of the ANSWERs to a FIRST of `initiator`.
    pub fn field(&self, credentials: &Credentials, initiator: Opening, responder: Opening) -> Box<[u8]> {
        let parts = [&octets(initiator)[..], &octets(responder), &self.message];
        let check = credentials.answer.check("answer", &parts);
        [&self.message[..], &check].concat().into()
    }
}

/// The side that opened, until it has been answered.
pub(crate) struct Initiator {
    credentials: Arc<Credentials>,
    opening: Opening,
    state: HandshakeState,
    /// What the FIRSTs carry.
    pub field: Box<[u8]>,
    pub early: PacketKey,
}

impl Initiator {
    /// Begins; `cookie` is what a RETRY asked to be shown, or nothing.
    pub fn new(credentials: Arc<Credentials>, opening: Opening, cookie: &[u8], seed: Seed) -> Self {
        let mut state = credentials.state(opening, seed, true);
        let mut message = [0; MAX_MESSAGE_BYTES];
        let len = state
            .write_message(&[credentials.suite as u8], &mut message)
            .expect("the first message needs nothing of the other side");
        let field: Box<[u8]> = [&message[..len], cookie].concat().into();
        let early = credentials.early_key(opening, &field);
        Self { credentials, opening, state, field, early }
    }

    /// Takes the handshake field of an ANSWER. Once it has been taken no other one can be.
    pub fn finish(&mut self, responder: Opening, field: &[u8]) -> Result<Secrets, Refused> {
        let (message, check) = field.split_last_chunk::<CHECK_BYTES>().ok_or(Refused::Forged)?;
        let parts = [&octets(self.opening)[..], &octets(responder), message];
        if !self.credentials.answer.verify("answer", &parts, check) {
            return Err(Refused::Forged);
        }
        let mut payload = [0; MAX_MESSAGE_BYTES];
        let read = self.state.read_message(message, &mut payload).map_err(|_| Refused::Forged)?;
        let [suite] = payload[..read] else { return Err(Refused::Forged) };
        let suite = Suite::from_octet(suite).ok_or(Refused::Forged)?;
        self.credentials.check_identity(&self.state)?;
        Ok(secrets(&mut self.state, suite))
    }
}

fn secrets(state: &mut HandshakeState, suite: Suite) -> Secrets {
    let (of_initiator, of_responder) = state.dangerously_get_raw_split();
    Secrets { suite, of_initiator: Zeroizing::new(of_initiator), of_responder: Zeroizing::new(of_responder) }
}

/// Token and incarnation as they travel.
fn octets(opening: Opening) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&opening.own_token.0.to_le_bytes());
    octets[8..].copy_from_slice(&opening.incarnation.0.to_le_bytes());
    octets
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_wire::{Incarnation, Token};

    const ALICE: Opening = Opening { own_token: Token(1), incarnation: Incarnation(2) };
    const BOB: Opening = Opening { own_token: Token(3), incarnation: Incarnation(4) };

    fn plain_pair() -> [Arc<Credentials>; 2] {
        let key = ClusterKey::from_bytes([1; 32]);
        [0, 1].map(|_| Arc::new(Credentials::new(&key, None, &[])))
    }

    fn pair_with_identities(allowed: [bool; 2]) -> [Arc<Credentials>; 2] {
        let key = ClusterKey::from_bytes([1; 32]);
        let identities = [5, 6].map(|octet| Identity::from_bytes([octet; 32]));
        [0, 1].map(|side| {
            let other = if allowed[side] { &identities[1 - side] } else { &identities[side] };
            Arc::new(Credentials::new(&key, Some(&identities[side]), &[other.public()]))
        })
    }

    fn exchange([alice, bob]: [Arc<Credentials>; 2]) -> Result<[Secrets; 2], Refused> {
        let mut initiator = Initiator::new(alice, ALICE, &[], Seed::from(1));
        let response = bob.respond(ALICE, &initiator.field, Seed::from(2))?;
        let field = response.field(&bob, ALICE, BOB);
        Ok([initiator.finish(BOB, &field)?, response.secrets])
    }

    #[test]
    fn both_sides_arrive_at_the_same_secrets() {
        for pair in [plain_pair(), pair_with_identities([true; 2])] {
            let len = pair[0].message_bytes();
            assert_eq!(Initiator::new(pair[0].clone(), ALICE, &[], Seed::from(1)).field.len(), len);
            let [alice, bob] = exchange(pair).unwrap();
            assert_eq!(alice.of_initiator, bob.of_initiator);
            assert_eq!(alice.of_responder, bob.of_responder);
            assert_ne!(alice.of_initiator, alice.of_responder);
            assert_eq!((alice.suite, bob.suite), (Suite::preferred(), Suite::preferred()));
        }
    }

    #[test]
    fn strangers_are_refused_by_either_side() {
        for allowed in [[true, false], [false, true]] {
            assert_eq!(exchange(pair_with_identities(allowed)).err(), Some(Refused::Stranger));
        }
        let [plain, _] = plain_pair();
        let [known, _] = pair_with_identities([true; 2]);
        assert_eq!(exchange([plain.clone(), known.clone()]).err(), Some(Refused::Forged));
        assert_eq!(exchange([known, plain]).err(), Some(Refused::Forged));
    }

    #[test]
    fn another_cluster_key_is_noticed_before_anything_is_computed() {
        let [alice, bob] = plain_pair();
        let other = Arc::new(Credentials::new(&ClusterKey::from_bytes([9; 32]), None, &[]));
        let mut initiator = Initiator::new(alice, ALICE, &[], Seed::from(1));
        let mut sealed = vec![0; 8];
        let tag = initiator.early.seal(0, b"header", &mut sealed);
        sealed.extend(tag);
        let field = initiator.field.clone();
        assert!(other.early_key(ALICE, &field).open(0, b"header", &mut sealed.clone()).is_none());
        assert!(bob.early_key(BOB, &field).open(0, b"header", &mut sealed.clone()).is_none());
        assert!(bob.early_key(ALICE, &field).open(0, b"header", &mut sealed).is_some());
        assert_eq!(other.respond(ALICE, &field, Seed::from(2)).err(), Some(Refused::Forged));
        // An ANSWER that is not the responder's leaves the attempt as it was.
        let response = bob.respond(ALICE, &field, Seed::from(2)).unwrap();
        let answer = response.field(&bob, ALICE, BOB);
        for bit in 0..answer.len() * 8 {
            let mut changed = answer.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(initiator.finish(BOB, &changed).err(), Some(Refused::Forged), "bit {bit}");
        }
        assert_eq!(initiator.finish(ALICE, &answer).err(), Some(Refused::Forged));
        assert_eq!(initiator.finish(BOB, &answer).unwrap().of_initiator, response.secrets.of_initiator);
    }

    #[test]
    fn without_aes_on_one_side_both_use_the_other_cipher() {
        for weak in [0, 1] {
            let key = ClusterKey::from_bytes([1; 32]);
            let pair = [0, 1].map(|side| {
                let mut credentials = Credentials::new(&key, None, &[]);
                credentials.suite = if side == weak { Suite::ChaCha20Poly1305 } else { Suite::Aes128Gcm };
                Arc::new(credentials)
            });
            let [alice, bob] = exchange(pair).unwrap();
            assert_eq!((alice.suite, bob.suite), (Suite::ChaCha20Poly1305, Suite::ChaCha20Poly1305));
        }
    }
}
