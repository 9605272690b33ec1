//! The secrets that a Node is given: cluster key, identity, seed.
//!
//! Inputs → outputs: 32 octets each → types that never show their content, compare in constant time
//! and are overwritten when dropped. The octets stay in one place, that of [`SecretOctets`].

use super::SecretOctets;
use aws_lc_rs::agreement::{PrivateKey, X25519};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use core::fmt;
use std::sync::Arc;
use zeroize::Zeroize;

/// Octets of every secret and of a public identity.
pub const SECRET_BYTES: usize = 32;

/// The secret that all Nodes of a cluster share: whoever has it may take part.
#[derive(Clone)]
pub struct ClusterKey(Arc<SecretOctets>);

/// The static secret (X25519) of one Node: tells it from others that have the same cluster key.
#[derive(Clone)]
pub struct Identity(Arc<SecretOctets>);

/// The public half of an [`Identity`]: what an allow-list holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicIdentity([u8; SECRET_BYTES]);

/// What an endpoint makes all its random choices from. From the operating system's generator, except
/// in simulations, which a number repeats to the octet.
#[derive(Clone)]
pub struct Seed(Arc<SecretOctets>);

macro_rules! secret {
    ($name:ident) => {
        impl $name {
            /// Takes the octets, which have to come from a generator made for secrets.
            pub fn from_bytes(mut bytes: [u8; SECRET_BYTES]) -> Self {
                let secret = Self::copy_of(&bytes);
                bytes.zeroize();
                secret
            }

            /// The same of octets that its caller overwrites.
            pub fn copy_of(bytes: &[u8; SECRET_BYTES]) -> Self {
                Self(Arc::new(SecretOctets::copy_of(bytes)))
            }

            /// The octets, to be kept as secret as they are.
            pub fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(secret)"))
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                verify_slices_are_equal(self.as_bytes(), other.as_bytes()).is_ok()
            }
        }

        impl Eq for $name {}
    };
}

secret!(ClusterKey);
secret!(Identity);
secret!(Seed);

impl Identity {
    /// The half that others put on their allow-list.
    ///
    /// # Panics
    /// Never: every 32 octets are a private key of X25519.
    pub fn public(&self) -> PublicIdentity {
        let key = PrivateKey::from_private_key(&X25519, self.as_bytes()).expect("32 octets are a key");
        let public = key.compute_public_key().expect("a private key has a public one");
        PublicIdentity(public.as_ref().try_into().expect("X25519 keys have 32 octets"))
    }
}

impl PublicIdentity {
    /// Takes the octets.
    pub const fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// The octets.
    pub const fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Display for PublicIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for PublicIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "identity {self}")
    }
}

impl From<[u8; SECRET_BYTES]> for Seed {
    fn from(bytes: [u8; SECRET_BYTES]) -> Self {
        Self::from_bytes(bytes)
    }
}

/// For simulations: 64 bits are too few to keep a secret.
impl From<u64> for Seed {
    fn from(number: u64) -> Self {
        let mut bytes = [0; SECRET_BYTES];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        Self::from_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_show_themselves() {
        let key = ClusterKey::from_bytes([0x5a; 32]);
        assert_eq!(format!("{key:?}"), "ClusterKey(secret)");
        assert_eq!(format!("{:?}", Identity::from_bytes([0x5a; 32])), "Identity(secret)");
        assert_eq!(key, key.clone());
        assert_ne!(key, ClusterKey::from_bytes([0x5b; 32]));
    }

    #[test]
    fn public_identities_are_those_of_rfc_7748() {
        // §5.2, first iteration: the private key 9 and the base point, which is 9.
        let mut nine = [0; 32];
        nine[0] = 9;
        assert_eq!(
            Identity::from_bytes(nine).public().to_string(),
            "422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079"
        );
    }
}
