//! Sealed packets: who may speak, and how what is said is hidden and proven.
//!
//! Inputs → outputs: secrets, random octets and packets → sealed packets, opened packets, or a
//! reason to drop one. Source: `spec/protocol.md` §12, `spec/security.md`.

mod random;
mod secrets;

pub(crate) use random::Random;
pub use secrets::{ClusterKey, Identity, PublicIdentity, SECRET_BYTES, Seed};
