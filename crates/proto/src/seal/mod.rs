//! Sealed packets: who may speak, and how what is said is hidden and proven.
//!
//! Inputs → outputs: secrets, random octets and packets → sealed packets, opened packets, or a
//! reason to drop one. Source: `spec/protocol.md` §12, `spec/security.md`.

mod aead;
mod beacon;
mod gate;
mod group;
mod handshake;
mod noise;
mod octets;
mod prf;
mod protection;
mod random;
mod recent;
mod secrets;
mod session;
mod signature;
mod staged;
#[cfg(test)]
mod vectors;

pub use beacon::BeaconKey;
pub(crate) use gate::{Cookie, Gate, Turned, Verdict};
pub use group::{GROUP_KEY_BYTES, GroupKey, GroupOpener, GroupSealer, GroupUnopened};
pub use octets::SecretOctets;
pub(crate) use prf::Check;
pub(crate) use protection::Protection;
pub(crate) use random::Random;
pub use secrets::{ClusterKey, Identity, PublicIdentity, SECRET_BYTES, Seed};
pub(crate) use session::Unopened;
pub use signature::{MAX_BATCH, SignedBatch, Signer, Verifier, proof_bytes};
pub use staged::{OpenJob, Opened};
