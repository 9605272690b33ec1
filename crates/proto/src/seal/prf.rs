//! Keys from keys: HMAC-SHA256 as a pseudorandom function with labels.
//!
//! Inputs → outputs: a secret, a label and public octets → 32 octets that tell nothing of the secret
//! or of what another label gives. Source: HKDF's Expand (RFC 5869 §2.3) for one block.

use super::SECRET_BYTES;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};
use core::fmt;
use zeroize::Zeroizing;

/// Octets of a check value: long enough that guessing one is hopeless.
pub(crate) const CHECK_BYTES: usize = 16;

/// What shows that its maker has a secret.
pub(crate) type Check = [u8; CHECK_BYTES];

/// 32 secret octets, overwritten when dropped.
pub(crate) type Secret = Zeroizing<[u8; SECRET_BYTES]>;

/// A secret that others are derived from.
#[derive(Clone)]
pub(crate) struct Prf(Key);

impl Prf {
    /// Takes the secret.
    pub fn new(secret: &[u8; SECRET_BYTES]) -> Self {
        Self(Key::new(HMAC_SHA256, secret))
    }

    /// The secret for `label` and `parts`, whose lengths the label has to fix.
    pub fn derive(&self, label: &str, parts: &[&[u8]]) -> Secret {
        let mut context = Context::with_key(&self.0);
        context.update(b"denrei 1 ");
        context.update(label.as_bytes());
        context.update(&[0]);
        parts.iter().for_each(|part| context.update(part));
        let mut secret = Zeroizing::new([0; SECRET_BYTES]);
        secret.copy_from_slice(context.sign().as_ref());
        secret
    }

    /// A check value over `parts` that only those can make who have the secret.
    pub fn check(&self, label: &str, parts: &[&[u8]]) -> Check {
        *self.derive(label, parts).first_chunk().expect("a secret is longer")
    }

    /// Whether `check` is the value over `parts`, in constant time.
    pub fn verify(&self, label: &str, parts: &[&[u8]], check: &[u8]) -> bool {
        verify_slices_are_equal(&self.check(label, parts), check).is_ok()
    }
}

impl fmt::Debug for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prf(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|octet| format!("{octet:02x}")).collect()
    }

    #[test]
    fn derivation_is_hmac_sha_256_of_the_label() {
        // python3: hmac.new(bytes([7]) * 32, b"denrei 1 key\0", "sha256").hexdigest()
        let prf = Prf::new(&[7; 32]);
        assert_eq!(
            hex(&*prf.derive("key", &[])),
            "1af559c4da11b5d02d72085b803417bb9cbd7f3aaf8a1b9eb3d350f5e88208ed"
        );
        // … with b"part" appended.
        assert_eq!(hex(&prf.check("key", &[b"pa", b"rt"])), "ee27ad6e1ad07651122635d10c56565d");
    }

    #[test]
    fn a_check_value_is_for_its_label_and_parts_alone() {
        let prf = Prf::new(&[7; 32]);
        let check = prf.check("retry", &[b"x"]);
        assert!(prf.verify("retry", &[b"x"], &check));
        assert!(!prf.verify("reset", &[b"x"], &check) && !prf.verify("retry", &[b"y"], &check));
        assert!(!prf.verify("retry", &[b"x"], &check[..15]));
        assert!(!Prf::new(&[8; 32]).verify("retry", &[b"x"], &check));
    }
}
