//! Every length, every bit: sweeps over the places of a packet.
//!
//! Inputs → outputs: a packet → the next few harmed copies; over many packets of a kind, all places
//! have their turn.

use std::collections::BTreeMap;

/// Where the sweep of each packet kind is.
#[derive(Default)]
pub struct Sweep {
    places: BTreeMap<u8, usize>,
    /// Copies made.
    pub made: u64,
    /// The place that the sweep of every kind has reached, with the number of rounds it made.
    rounds: BTreeMap<u8, usize>,
}

impl Sweep {
    /// The next `count` copies with one bit turned.
    pub fn flipped(&mut self, packet: &[u8], count: usize) -> Vec<Vec<u8>> {
        self.next(packet, packet.len() * 8, count, |packet, bit| {
            let mut copy = packet.to_vec();
            copy[bit / 8] ^= 1 << (bit % 8);
            copy
        })
    }

    /// The next `count` copies cut short.
    pub fn truncated(&mut self, packet: &[u8], count: usize) -> Vec<Vec<u8>> {
        self.next(packet, packet.len(), count, |packet, len| packet[..len].to_vec())
    }

    fn next(
        &mut self,
        packet: &[u8],
        places: usize,
        count: usize,
        harm: impl Fn(&[u8], usize) -> Vec<u8>,
    ) -> Vec<Vec<u8>> {
        let Some(kind) = packet.first().copied() else { return Vec::new() };
        let place = self.places.entry(kind).or_default();
        let mut copies = Vec::with_capacity(count);
        for _ in 0..count.min(places) {
            if *place >= places {
                // This packet is too short for what is next: large ones have had their turn by now,
                // or will have it in the next round.
                *place = 0;
                *self.rounds.entry(kind).or_default() += 1;
            }
            copies.push(harm(packet, *place));
            *place += 1;
        }
        self.made += copies.len() as u64;
        copies
    }

    /// How far each kind is, for people.
    pub fn progress(&self) -> String {
        let kinds = self.places.iter().map(|(kind, place)| {
            let rounds = self.rounds.get(kind).copied().unwrap_or(0);
            format!("kind {kind:#04x}: {rounds} whole packets and {place} places")
        });
        kinds.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_its_turn() {
        let mut sweep = Sweep::default();
        let packet = [7u8, 0, 0];
        let copies: Vec<_> = (0..6).flat_map(|_| sweep.flipped(&packet, 4)).collect();
        assert_eq!(copies.len(), 24);
        let mut places: Vec<_> = copies
            .iter()
            .map(|copy| copy.iter().zip(&packet).map(|(a, b)| a ^ b).collect::<Vec<_>>())
            .collect();
        places.sort();
        places.dedup();
        assert_eq!(places.len(), 24);
        let mut sweep = Sweep::default();
        assert_eq!(sweep.truncated(&packet, 9), [vec![], vec![7], vec![7, 0]]);
        assert_eq!(sweep.made, 3);
    }
}
