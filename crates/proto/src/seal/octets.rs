//! 32 secret octets, where secrets are kept.
//!
//! Inputs → outputs: octets that somebody else overwrites → the same in one place on the heap until they are
//! overwritten: a value that moves leaves copies on the stack, which nobody overwrites.

use super::SECRET_BYTES;
use core::fmt;
use core::ops::{Deref, DerefMut};
use zeroize::Zeroizing;

/// 32 secret octets in one place on the heap, overwritten when dropped; all 0 to begin with. Fill them where they
/// are, or have them copied: never through a value that moves.
#[derive(Default)]
pub struct SecretOctets(Box<Zeroizing<[u8; SECRET_BYTES]>>);

impl SecretOctets {
    /// Of octets that the caller overwrites.
    pub fn copy_of(octets: &[u8; SECRET_BYTES]) -> Self {
        let mut place = Self::default();
        place.copy_from_slice(octets);
        place
    }
}

impl Clone for SecretOctets {
    fn clone(&self) -> Self {
        Self::copy_of(self)
    }
}

impl fmt::Debug for SecretOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretOctets(secret)")
    }
}

impl Deref for SecretOctets {
    type Target = [u8; SECRET_BYTES];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for SecretOctets {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_stay_where_they_are_when_their_owner_moves_and_a_clone_has_its_own_place() {
        let octets = SecretOctets::copy_of(&[7; SECRET_BYTES]);
        let place = octets.as_ptr();
        let mut moved = Box::new(octets);
        let clone = moved.clone();
        assert_eq!(moved.as_ptr(), place);
        moved[0] = 8;
        assert_eq!((moved[0], clone[0], clone.as_ptr() == place), (8, 7, false));
        assert_eq!(*SecretOctets::default(), [0; SECRET_BYTES]);
        assert_eq!(format!("{moved:?}"), "SecretOctets(secret)");
    }
}
