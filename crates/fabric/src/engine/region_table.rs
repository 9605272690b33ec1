//! The regions of a domain, by key.
//!
//! Inputs → outputs: regions and the keys the application wants, or none → regions by key, for what
//! peers ask. Whoever looks at a counter of a region lets the endpoints that serve it work.

use super::counter::Counter;
use super::sources::Progress;
use crate::error::Errno;
use crate::memory::Region;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// A region, and what counts its uses.
#[derive(Debug)]
pub struct Registered {
    pub region: Arc<Region>,
    /// Counters that peers' reads and writes add to.
    pub counters: Mutex<Vec<(u64, Arc<Counter>)>>,
}

impl Registered {
    /// A peer has read or written it: `FI_REMOTE_READ` or `FI_REMOTE_WRITE` is among `flags`.
    pub fn count(&self, flags: u64) {
        for (counted, counter) in &*self.counters.lock() {
            if counted & flags != 0 {
                counter.add(1, 0);
            }
        }
    }
}

/// Regions by key.
#[derive(Debug, Default)]
pub struct RegionTable {
    regions: RwLock<HashMap<u64, Arc<Registered>>>,
    /// The next key, where the provider chooses.
    next_key: Mutex<u64>,
    servants: Mutex<Servants>,
}

/// Endpoints that serve the regions, and counters of what they do.
#[derive(Debug, Default)]
struct Servants {
    endpoints: Vec<Weak<dyn Progress>>,
    counters: Vec<Weak<Counter>>,
}

impl RegionTable {
    /// Registers a region under `key`, or one of the table's choice; the key.
    ///
    /// # Errors
    /// `ENOKEY`: the key is taken.
    pub fn insert(&self, key: Option<u64>, region: Arc<Registered>) -> Result<u64, Errno> {
        let mut regions = self.regions.write();
        let key = key.unwrap_or_else(|| {
            let mut next = self.next_key.lock();
            while regions.contains_key(&*next) {
                *next += 1;
            }
            *next
        });
        if regions.contains_key(&key) {
            return Err(Errno::NO_KEY);
        }
        regions.insert(key, region);
        Ok(key)
    }

    /// Takes a region out; nobody touches its memory after this.
    pub fn remove(&self, key: u64) {
        if let Some(registered) = self.regions.write().remove(&key) {
            registered.region.close();
        }
    }

    /// The region of a key.
    ///
    /// # Errors
    /// `ENOKEY`: there is none.
    pub fn get(&self, key: u64) -> Result<Arc<Registered>, Errno> {
        self.regions.read().get(&key).cloned().ok_or(Errno::NO_KEY)
    }

    /// An endpoint serves the regions from now on.
    pub fn add_endpoint(&self, endpoint: &Weak<dyn Progress>) {
        let mut servants = self.servants.lock();
        servants.endpoints.retain(|known| known.strong_count() > 0 && !known.ptr_eq(endpoint));
        servants.endpoints.push(Weak::clone(endpoint));
        for counter in servants.counters.iter().filter_map(Weak::upgrade) {
            counter.sources.add(Weak::clone(endpoint));
        }
    }

    /// A counter counts what peers do with a region from now on.
    pub fn add_counter(&self, counter: &Arc<Counter>) {
        let mut servants = self.servants.lock();
        let new = Arc::downgrade(counter);
        servants.counters.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&new));
        servants.counters.push(new);
        for endpoint in &servants.endpoints {
            counter.sources.add(Weak::clone(endpoint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, Memory};

    fn region() -> Arc<Registered> {
        let region = Arc::new(Region::new(Memory::default(), 0, Access::READ));
        Arc::new(Registered { region, counters: Mutex::default() })
    }

    #[test]
    fn keys_are_unique_and_chosen_around_those_taken() {
        let table = RegionTable::default();
        assert_eq!(table.insert(Some(0), region()), Ok(0));
        assert_eq!(table.insert(Some(0), region()), Err(Errno::NO_KEY));
        assert_eq!(table.insert(None, region()), Ok(1));
        table.remove(0);
        assert!(table.get(0).is_err() && table.get(1).is_ok());
        assert_eq!(table.insert(Some(0), region()), Ok(0));
    }
}
