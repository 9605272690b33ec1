//! Check values for beacons: where a Node can be found, said to whoever listens and so outside of sessions.
//!
//! Inputs → outputs: the cluster key; what a beacon says → a check value that only those can make who have the
//! key. Source: `spec/protocol.md` §12.1, `spec/cast.md` §7.

use super::ClusterKey;
use super::prf::{CHECK_BYTES, Prf};

/// What follows from the cluster key for beacons alone.
#[derive(Clone, Debug)]
pub struct BeaconKey(Prf);

impl BeaconKey {
    /// That of a cluster key.
    pub fn new(key: &ClusterKey) -> Self {
        Self(Prf::new(&Prf::new(key.as_bytes()).derive("beacon", &[])))
    }

    /// The check value over `said`, whose length its kind has to fix.
    pub fn check(&self, said: &[u8]) -> [u8; CHECK_BYTES] {
        self.0.check("beacon", &[said])
    }

    /// Whether `check` is the value over `said`, in constant time.
    pub fn verify(&self, said: &[u8], check: &[u8]) -> bool {
        self.0.verify("beacon", &[said], check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beacon_is_checked_under_a_key_of_its_own() {
        let key = ClusterKey::from_bytes([7; 32]);
        let beacons = BeaconKey::new(&key);
        let check = beacons.check(b"here");
        assert!(beacons.verify(b"here", &check));
        assert!(!beacons.verify(b"there", &check) && !beacons.verify(b"here", &check[..15]));
        assert!(!BeaconKey::new(&ClusterKey::from_bytes([8; 32])).verify(b"here", &check));
        assert!(!Prf::new(key.as_bytes()).verify("beacon", &[b"here"], &check));
        // python3: k = hmac.new(bytes([7]) * 32, b"denrei 1 beacon\0", "sha256").digest()
        //          hmac.new(k, b"denrei 1 beacon\0here", "sha256").hexdigest()[:32]
        let digits: String = check.iter().map(|octet| format!("{octet:02x}")).collect();
        assert_eq!(digits, "589b64e3d23141c86324c4e057008d45");
    }
}
