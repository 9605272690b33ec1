//! The Noise handshake's primitives, from the library that seals packets.
//!
//! Inputs → outputs: `snow`'s calls → X25519, AES-256-GCM and SHA-256 of `aws-lc-rs`; ephemeral keys
//! from 32 octets that the endpoint's generator gave, so that a simulation repeats. Source: the Noise
//! Protocol Framework, revision 34, §4 and §12.

use super::{Random, SecretOctets, Seed};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::constant_time;
use aws_lc_rs::digest::{Context, SHA256};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use snow::Error;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::CryptoResolver;
use snow::types::{Cipher, Dh, Hash, Random as NoiseRandom};
use std::sync::Arc;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const SHA256_BYTES: usize = 32;
const SHA256_BLOCK_BYTES: usize = 64;

/// Gives one handshake what it needs.
pub(super) struct Primitives {
    /// What the handshake's ephemeral key follows from.
    pub seed: Seed,
    /// This side's identity, if it has one.
    pub identity: Option<Arc<KeyPair>>,
}

/// An X25519 key pair, ready for agreements.
pub(super) struct KeyPair {
    private: SecretOctets,
    key: PrivateKey,
    public: [u8; KEY_BYTES],
}

impl KeyPair {
    /// That of a private key. Computes the public one, which costs about as much as an agreement.
    ///
    /// # Errors
    /// The library refuses the key; every 32 octets are one.
    pub fn new(private: &[u8; KEY_BYTES]) -> Result<Self, Error> {
        let key = PrivateKey::from_private_key(&X25519, private).map_err(|_| Error::Dh)?;
        let mut public = [0; KEY_BYTES];
        public.copy_from_slice(key.compute_public_key().map_err(|_| Error::Dh)?.as_ref());
        Ok(Self { private: SecretOctets::copy_of(private), key, public })
    }

    pub fn private(&self) -> &[u8; KEY_BYTES] {
        &self.private
    }
}

impl CryptoResolver for Primitives {
    fn resolve_rng(&self) -> Option<Box<dyn NoiseRandom>> {
        Some(Box::new(Ephemeral(Random::new(&self.seed))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        (*choice == DHChoice::Curve25519)
            .then(|| Box::new(Curve25519 { identity: self.identity.clone(), key: None }) as _)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        (*choice == HashChoice::SHA256).then(|| Box::new(Sha256(Context::new(&SHA256))) as _)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        (*choice == CipherChoice::AESGCM).then(|| Box::new(Aes256Gcm::default()) as _)
    }
}

struct Ephemeral(Random);

impl NoiseRandom for Ephemeral {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        for piece in dest.chunks_mut(super::random::BLOCK_BYTES) {
            piece.copy_from_slice(&self.0.block()[..piece.len()]);
        }
        Ok(())
    }
}

struct Curve25519 {
    /// A pair that need not be computed again when it is set.
    identity: Option<Arc<KeyPair>>,
    key: Option<Arc<KeyPair>>,
}

/// What snow sees of a key that is not set yet.
const NO_KEY: &[u8] = &[0; KEY_BYTES];

impl Dh for Curve25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, private: &[u8]) {
        // Nothing but the identity is ever set, and every 32 octets are a key; were they not, each
        // agreement would fail.
        let known = self
            .identity
            .take()
            .filter(|pair| constant_time::verify_slices_are_equal(pair.private(), private).is_ok());
        self.key = known.or_else(|| {
            let private = private.try_into().ok()?;
            KeyPair::new(private).ok().map(Arc::new)
        });
    }

    fn generate(&mut self, rng: &mut dyn NoiseRandom) -> Result<(), Error> {
        let mut private = Zeroizing::new([0; KEY_BYTES]);
        rng.try_fill_bytes(&mut *private)?;
        self.key = Some(Arc::new(KeyPair::new(&private)?));
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.key.as_ref().map_or(NO_KEY, |pair| &pair.public)
    }

    fn privkey(&self) -> &[u8] {
        self.key.as_ref().map_or(NO_KEY, |pair| pair.private())
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.get(..KEY_BYTES).ok_or(Error::Dh)?;
        let key = &self.key.as_ref().ok_or(Error::Dh)?.key;
        agree(key, UnparsedPublicKey::new(&X25519, public), Error::Dh, |shared| {
            out[..KEY_BYTES].copy_from_slice(shared);
            Ok(())
        })
    }
}

#[derive(Default)]
struct Aes256Gcm(Option<LessSafeKey>);

impl Aes256Gcm {
    fn nonce(number: u64) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&number.to_be_bytes());
        Nonce::assume_unique_for_key(nonce)
    }
}

impl Cipher for Aes256Gcm {
    fn name(&self) -> &'static str {
        "AESGCM"
    }

    fn set(&mut self, key: &[u8; KEY_BYTES]) {
        self.0 = UnboundKey::new(&AES_256_GCM, key).ok().map(LessSafeKey::new);
    }

    fn encrypt(&self, nonce: u64, authtext: &[u8], plaintext: &[u8], out: &mut [u8]) -> usize {
        let (text, rest) = out.split_at_mut(plaintext.len());
        text.copy_from_slice(plaintext);
        let key = self.0.as_ref().expect("a key is set before anything is encrypted");
        let tag = key
            .seal_in_place_separate_tag(Self::nonce(nonce), Aad::from(authtext), text)
            .expect("handshake messages are short");
        rest[..TAG_BYTES].copy_from_slice(tag.as_ref());
        plaintext.len() + TAG_BYTES
    }

    fn decrypt(&self, nonce: u64, authtext: &[u8], sealed: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let key = self.0.as_ref().ok_or(Error::Decrypt)?;
        let mut text = Zeroizing::new(sealed.to_vec());
        let opened = key
            .open_in_place(Self::nonce(nonce), Aad::from(authtext), &mut text)
            .map_err(|_| Error::Decrypt)?;
        out.get_mut(..opened.len()).ok_or(Error::Decrypt)?.copy_from_slice(opened);
        Ok(opened.len())
    }
}

struct Sha256(Context);

impl Hash for Sha256 {
    fn name(&self) -> &'static str {
        "SHA256"
    }

    fn block_len(&self) -> usize {
        SHA256_BLOCK_BYTES
    }

    fn hash_len(&self) -> usize {
        SHA256_BYTES
    }

    fn reset(&mut self) {
        self.0 = Context::new(&SHA256);
    }

    fn input(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn result(&mut self, out: &mut [u8]) {
        let context = core::mem::replace(&mut self.0, Context::new(&SHA256));
        out[..SHA256_BYTES].copy_from_slice(context.finish().as_ref());
    }

    fn hmac(&mut self, key: &[u8], data: &[u8], out: &mut [u8]) {
        out[..SHA256_BYTES].copy_from_slice(sign(&Key::new(HMAC_SHA256, key), data).as_ref());
    }
}
