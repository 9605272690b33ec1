//! The address vector: peers' addresses by the numbers the application uses.
//!
//! Inputs → outputs: addresses → numbers, and back. Both types, map and table, number from 0 and use
//! a number again once it was removed, the lowest first (fi_av(3)). It grows as needed, up to the application's count
//! or beyond: the count is a hint.

use parking_lot::RwLock;
use smallvec::SmallVec;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most addresses: what 2^24 − 1 peers of a Node allow.
const MAX_ADDRESSES: usize = (1 << 24) - 1;

/// Addresses by number.
#[derive(Debug, Default)]
pub struct AddressVector {
    table: RwLock<Table>,
    /// Changes whenever a number may mean another address.
    version: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    addresses: Vec<Option<SocketAddr>>,
    /// Below the table's end, the lowest first.
    free: BinaryHeap<Reverse<u64>>,
    /// Of each address, the one that it is called by first.
    numbers: HashMap<SocketAddr, SmallVec<[u64; 1]>>,
}

impl AddressVector {
    /// Adds an address; its number, or `None` if there is no room. An address that is there already
    /// gets another number.
    pub fn insert(&self, address: SocketAddr) -> Option<u64> {
        let mut table = self.table.write();
        let number = match table.free.pop() {
            Some(Reverse(number)) => number,
            None if table.addresses.len() < MAX_ADDRESSES => {
                table.addresses.push(None);
                table.addresses.len() as u64 - 1
            }
            None => return None,
        };
        table.addresses[number as usize] = Some(address);
        table.numbers.entry(address).or_default().push(number);
        self.version.fetch_add(1, Ordering::Release);
        Some(number)
    }

    /// Removes a number; whether it was there.
    pub fn remove(&self, number: u64) -> bool {
        let mut table = self.table.write();
        let Some(address) = table.addresses.get_mut(number as usize).and_then(Option::take) else {
            return false;
        };
        table.free.push(Reverse(number));
        if let Entry::Occupied(mut numbers) = table.numbers.entry(address) {
            numbers.get_mut().retain(|other| *other != number);
            if numbers.get().is_empty() {
                numbers.remove();
            }
        }
        self.version.fetch_add(1, Ordering::Release);
        true
    }

    /// The address of a number.
    pub fn address(&self, number: u64) -> Option<SocketAddr> {
        self.table.read().addresses.get(usize::try_from(number).ok()?).copied().flatten()
    }

    /// The number of an address.
    pub fn number(&self, address: SocketAddr) -> Option<u64> {
        self.table.read().numbers.get(&address)?.first().copied()
    }

    /// All addresses, each once.
    pub fn all(&self) -> Vec<SocketAddr> {
        self.table.read().numbers.keys().copied().collect()
    }

    /// Changes whenever a number may mean another address, or an address another number.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_addresses_may_have_several() {
        let vector = AddressVector::default();
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert_eq!((vector.insert(address(1)), vector.insert(address(2))), (Some(0), Some(1)));
        assert_eq!(vector.insert(address(1)), Some(2));
        assert_eq!(vector.number(address(1)), Some(0));
        let before = vector.version();
        assert!(vector.remove(0) && !vector.remove(0) && !vector.remove(9));
        assert_ne!(vector.version(), before);
        assert_eq!((vector.number(address(1)), vector.address(0)), (Some(2), None));
        assert_eq!(vector.insert(address(3)), Some(0));
        assert_eq!(vector.address(0), Some(address(3)));
        assert_eq!(vector.address(u64::MAX), None);
        let mut all = vector.all();
        all.sort_unstable();
        assert_eq!(all, [address(1), address(2), address(3)]);
    }

    #[test]
    fn the_lowest_free_number_is_used_first() {
        let vector = AddressVector::default();
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        (1..=4).for_each(|port| assert_eq!(vector.insert(address(port)), Some(u64::from(port) - 1)));
        assert!(vector.remove(0) && vector.remove(2) && vector.remove(1));
        let again: Vec<_> = (5..=8).map(|port| vector.insert(address(port))).collect();
        assert_eq!(again, [Some(0), Some(1), Some(2), Some(4)]);
    }
}
