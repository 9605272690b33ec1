//! What is remembered of strangers: which FIRSTs were answered lately, and how many a source sends.
//!
//! Inputs → outputs: handshake fields and source addresses → whether one was there before, and whether
//! a source may have another. Both have a fixed size, whatever comes.

use core::net::IpAddr;
use core::time::Duration;
use denrei_wire::{Instant, duration_nanos};
use std::collections::{BTreeSet, VecDeque};

/// FIRSTs remembered. One falls out after so many others were answered: seconds under the heaviest
/// load that a core can bear, and hours otherwise.
const MAX_REMEMBERED: usize = 16_384;

/// Sources told apart. Two that fall together share what one may have.
const SOURCES: usize = 1024;

/// Handshakes are made up for over this time: so much of a burst is taken at once.
const BURST: Duration = Duration::from_secs(1);

/// FIRSTs that were answered, by the ephemeral key that starts their handshake, and so at random.
#[derive(Debug, Default)]
pub(super) struct Recent {
    known: BTreeSet<[u8; 16]>,
    /// Oldest first.
    order: VecDeque<[u8; 16]>,
}

impl Recent {
    pub fn contains(&self, field: &[u8]) -> bool {
        self.known.contains(&name(field))
    }

    pub fn insert(&mut self, field: &[u8]) {
        self.insert_name(name(field));
    }

    /// Remembers what `other` does, as the latest.
    pub fn absorb(&mut self, other: &mut Self) {
        other.known.clear();
        other.order.drain(..).for_each(|name| self.insert_name(name));
    }

    fn insert_name(&mut self, name: [u8; 16]) {
        if !self.known.insert(name) {
            return;
        }
        if self.order.len() == MAX_REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        self.order.push_back(name);
    }
}

/// Half an ephemeral key. Nobody makes two keys that agree in it but on purpose, and then to his own
/// harm alone.
fn name(field: &[u8]) -> [u8; 16] {
    field.first_chunk().copied().unwrap_or_default()
}

/// A token bucket for each of a fixed number of groups of sources.
#[derive(Debug)]
pub(super) struct SourceRates {
    /// Time one handshake is worth, ns.
    interval_ns: u64,
    /// Spreads sources over buckets in a way that nobody outside can foresee.
    key: u64,
    /// Until when each bucket is used up; empty until the first FIRST.
    used_until: Vec<Instant>,
}

impl SourceRates {
    /// `per_s` handshakes a second for each source.
    pub fn new(per_s: u32, key: u64) -> Self {
        Self { interval_ns: 1_000_000_000 / per_s.max(1) as u64, key, used_until: Vec::new() }
    }

    /// Takes one handshake from what `source` may have; whether there was one left.
    pub fn take(&mut self, now: Instant, source: IpAddr) -> bool {
        self.used_until.resize(SOURCES, Instant::ZERO);
        let used_until = &mut self.used_until[bucket(self.key, source)];
        let from = (*used_until).max(now);
        if from.saturating_since(now) + Duration::from_nanos(self.interval_ns) > BURST {
            return false;
        }
        *used_until = from + Duration::from_nanos(self.interval_ns);
        debug_assert!(duration_nanos(BURST) >= self.interval_ns);
        true
    }
}

fn bucket(key: u64, source: IpAddr) -> usize {
    let prefix = match source {
        IpAddr::V4(ip) => u32::from(ip) as u64,
        // Whoever has one address of a /64 has them all.
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64,
    };
    // Multiply and take the high bits (Dietzfelbinger et al. 1997): universal for an odd, secret key.
    (prefix.wrapping_add(1).wrapping_mul(key | 1) >> (u64::BITS - SOURCES.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_first_is_forgotten() {
        let mut recent = Recent::default();
        let field = |number: usize| (number as u128).to_le_bytes();
        for number in 0..=MAX_REMEMBERED {
            assert!(!recent.contains(&field(number)));
            recent.insert(&field(number));
            recent.insert(&field(number));
            assert!(recent.contains(&field(number)));
        }
        assert!(!recent.contains(&field(0)) && recent.contains(&field(1)));
        assert_eq!(recent.order.len(), recent.known.len());
    }

    #[test]
    fn a_source_has_its_share_and_no_more() {
        let mut rates = SourceRates::new(10, 0x1234_5678_9abc_def1);
        let [greedy, modest]: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()];
        let taken =
            |rates: &mut SourceRates, now, source| (0..100).filter(|_| rates.take(now, source)).count();
        assert_eq!(taken(&mut rates, Instant::ZERO, greedy), 10);
        assert_eq!(taken(&mut rates, Instant::ZERO, modest), 10);
        assert_eq!(taken(&mut rates, Instant::ZERO + Duration::from_millis(500), greedy), 5);
    }

    #[test]
    fn a_whole_network_of_version_six_is_one_source() {
        let mut rates = SourceRates::new(10, 99);
        let taken = (0..100u128)
            .filter(|host| rates.take(Instant::ZERO, IpAddr::V6((0x2001_u128 << 112 | host).into())))
            .count();
        assert_eq!(taken, 10);
    }
}
