//! Parity: a member restores what it misses of a block of symbols from the others and from parities.
//!
//! Inputs → outputs: the symbols of a block → parities; what a member has of a block → the symbols it
//! misses. Memory is bounded on both sides. Source: M10; RFC 5740 §2 (proactive parity), RFC 6363; the
//! code is the Reed-Solomon code of Lin, Al-Naffouri and Han (IEEE Trans. Inf. Theory 62, 2016) as
//! `reed-solomon-simd` 3 computes it; `spec/protocol.md` §14.6. ADR 18.

use super::arrivals::Arrivals;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use std::collections::BTreeMap;

/// Symbols of a block, at most: a train of them, so that parity comes soon after.
pub(crate) const MAX_BLOCK: usize = 64;
/// Parities that the code has for every block; the first so many are sent.
pub(crate) const MAX_PARITIES: usize = 16;
/// Octets before the frames of a symbol in its shard: how many frames' octets there are.
const LENGTH_BYTES: usize = 2;
/// What parity adds to the largest symbol of a block: its length, and one to be even.
pub(crate) const PARITY_OVERHEAD_BYTES: usize = LENGTH_BYTES + 1;

/// Symbols a member keeps for restoring others, and their octets: a few blocks of large datagrams.
const MAX_KEPT_SYMBOLS: usize = 1024;
const MAX_KEPT_BYTES: usize = 4 << 20;
/// Blocks of which a member keeps parities, as many octets of them as of symbols at most.
const MAX_BLOCKS: usize = 16;

/// Octets of a shard that holds symbols of up to `symbol_bytes`.
fn shard_bytes(symbol_bytes: usize) -> usize {
    (LENGTH_BYTES + symbol_bytes).next_multiple_of(2)
}

/// A symbol's shard: length, frames, zeros.
fn shard(frames: &[u8], bytes: usize) -> Vec<u8> {
    let mut shard = Vec::with_capacity(bytes);
    shard.extend((frames.len() as u16).to_le_bytes());
    shard.extend_from_slice(frames);
    shard.resize(bytes, 0);
    shard
}

/// The first `count` parities of a block of 1 to [`MAX_BLOCK`] symbols, each of at most 65,533 octets.
pub(crate) fn parities(symbols: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
    let bytes = shard_bytes(symbols.iter().map(Vec::len).max().unwrap_or(0));
    let encode = || -> Result<Vec<Vec<u8>>, reed_solomon_simd::Error> {
        let mut encoder = ReedSolomonEncoder::new(symbols.len(), MAX_PARITIES, bytes)?;
        for symbol in symbols {
            encoder.add_original_shard(shard(symbol, bytes))?;
        }
        Ok(encoder.encode()?.recovery_iter().take(count).map(<[u8]>::to_vec).collect())
    };
    // The code exists for every block there can be; without parity members ask as always.
    encode().unwrap_or_default()
}

/// Parities of one block.
#[derive(Debug)]
struct Block {
    symbols: usize,
    shard_bytes: usize,
    parities: BTreeMap<u8, Box<[u8]>>,
}

/// A parity, as it has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parity<'a> {
    /// First symbol of its block.
    pub first: u64,
    /// Symbols of its block.
    pub symbols: u8,
    /// Which parity of the block.
    pub index: u8,
    pub shard: &'a [u8],
}

impl Parity<'_> {
    /// The first symbol after the block.
    pub fn end(&self) -> u64 {
        self.first + self.symbols as u64
    }
}

/// What a member keeps in order to restore what it misses.
#[derive(Debug, Default)]
pub(crate) struct Restorer {
    /// Frames of symbols that have come.
    kept: BTreeMap<u64, Box<[u8]>>,
    kept_bytes: usize,
    blocks: BTreeMap<u64, Block>,
}

impl Restorer {
    /// Keeps a symbol that has come.
    pub fn keep(&mut self, number: u64, frames: &[u8]) {
        self.kept_bytes += frames.len();
        if let Some(before) = self.kept.insert(number, frames.into()) {
            self.kept_bytes -= before.len();
        }
        while self.kept.len() > MAX_KEPT_SYMBOLS || self.kept_bytes > MAX_KEPT_BYTES {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some((_, frames)) = self.kept.pop_first() {
            self.kept_bytes -= frames.len();
        }
    }

    /// Everything below `next` is here: forgets what can restore nothing any more.
    pub fn forget_below(&mut self, next: u64) {
        while self.kept.first_key_value().is_some_and(|(number, _)| number + MAX_BLOCK as u64 <= next) {
            self.drop_oldest();
        }
        while self.blocks.first_key_value().is_some_and(|(first, block)| first + block.symbols as u64 <= next)
        {
            self.blocks.pop_first();
        }
    }

    /// Forgets everything: no parity will come.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes in a parity; what it restores, with numbers.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn on_parity(
        &mut self,
        parity: &Parity<'_>,
        arrivals: &Arrivals,
    ) -> Result<Vec<(u64, Vec<u8>)>, &'static str> {
        let sized = parity.shard.len() > LENGTH_BYTES && parity.shard.len().is_multiple_of(2);
        if parity.symbols as usize > MAX_BLOCK || parity.index as usize >= MAX_PARITIES || !sized {
            return Err("a parity that cannot be");
        }
        if parity.end() <= arrivals.next() || !arrivals.is_near(parity.end()) {
            return Ok(Vec::new());
        }
        let block = self.blocks.entry(parity.first).or_insert_with(|| Block {
            symbols: parity.symbols.into(),
            shard_bytes: parity.shard.len(),
            parities: BTreeMap::new(),
        });
        if block.symbols != parity.symbols as usize || block.shard_bytes != parity.shard.len() {
            return Err("two forms of one block");
        }
        block.parities.insert(parity.index, parity.shard.into());
        let restored = self.restore(parity.first, arrivals);
        while self.blocks.len() > MAX_BLOCKS || self.parity_bytes() > MAX_KEPT_BYTES {
            self.blocks.pop_first();
        }
        restored
    }

    fn parity_bytes(&self) -> usize {
        self.blocks.values().map(|block| block.parities.len() * block.shard_bytes).sum()
    }

    /// A symbol has come late: what it restores of its block, with the parities that are here.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn on_late(&mut self, symbol: u64, arrivals: &Arrivals) -> Result<Vec<(u64, Vec<u8>)>, &'static str> {
        let block = self.blocks.range(..=symbol).next_back();
        match block.filter(|(first, block)| symbol < *first + block.symbols as u64) {
            Some((&first, _)) => self.restore(first, arrivals),
            None => Ok(Vec::new()),
        }
    }

    /// Restores the block that begins at `first`, if there is enough of it.
    fn restore(&mut self, first: u64, arrivals: &Arrivals) -> Result<Vec<(u64, Vec<u8>)>, &'static str> {
        let Some(block) = self.blocks.get(&first) else { return Ok(Vec::new()) };
        let numbers = first..first + block.symbols as u64;
        let missing: Vec<u64> = numbers.clone().filter(|number| !arrivals.contains(*number)).collect();
        // Of what was too far ahead when it came some may have been kept, and not taken in.
        let fits = |frames: &[u8]| shard_bytes(frames.len()) <= block.shard_bytes;
        let here = self.kept.range(numbers);
        let here = here.filter(|(number, frames)| arrivals.contains(**number) && fits(frames));
        let here: Vec<(u64, &[u8])> = here.map(|(number, frames)| (*number, &**frames)).collect();
        if !missing.is_empty() && here.len() + block.parities.len() < block.symbols {
            return Ok(Vec::new());
        }
        let restored = match missing.is_empty() {
            true => Vec::new(),
            false => decode(first, block, &here, &missing)?,
        };
        self.blocks.remove(&first);
        Ok(restored)
    }
}

fn decode(
    first: u64,
    block: &Block,
    here: &[(u64, &[u8])],
    missing: &[u64],
) -> Result<Vec<(u64, Vec<u8>)>, &'static str> {
    let mut decoder = ReedSolomonDecoder::new(block.symbols, MAX_PARITIES, block.shard_bytes)
        .map_err(|_| "a block that cannot be")?;
    let wrong = |_| "a block that does not fit together";
    for (number, frames) in here {
        let at = (number - first) as usize;
        decoder.add_original_shard(at, shard(frames, block.shard_bytes)).map_err(wrong)?;
    }
    for (index, parity) in &block.parities {
        decoder.add_recovery_shard(*index as usize, parity).map_err(wrong)?;
    }
    let decoded = decoder.decode().map_err(wrong)?;
    let mut restored = Vec::with_capacity(missing.len());
    for number in missing {
        let shard = decoded.restored_original((number - first) as usize).unwrap_or_default();
        let (len, rest) = shard.split_first_chunk().ok_or("a block that does not fit together")?;
        let frames = rest.get(..u16::from_le_bytes(*len) as usize).ok_or("a parity of something else")?;
        restored.push((*number, frames.to_vec()));
    }
    Ok(restored)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn symbols(sizes: &[usize]) -> Vec<Vec<u8>> {
        let octet = |number: usize, at: usize| (at * 7 + number * 31 + 1) as u8;
        sizes
            .iter()
            .enumerate()
            .map(|(number, size)| (0..*size).map(|at| octet(number, at)).collect())
            .collect()
    }

    #[test]
    fn parities_of_many_blocks_take_no_more_than_symbols() {
        let (mut restorer, arrivals) = (Restorer::default(), Arrivals::new(0));
        let (symbols, shard) = (MAX_BLOCK as u8, vec![1; 60_000]);
        for first in (0..MAX_BLOCKS as u64).map(|block| block * MAX_BLOCK as u64) {
            for index in 0..MAX_PARITIES as u8 {
                let parity = Parity { first, symbols, index, shard: &shard };
                assert_eq!(restorer.on_parity(&parity, &arrivals), Ok(Vec::new()));
            }
        }
        let kept = restorer.parity_bytes();
        assert!((MAX_KEPT_BYTES - 2 * shard.len() * MAX_PARITIES..=MAX_KEPT_BYTES).contains(&kept), "{kept}");
    }

    proptest! {
        #[test]
        fn any_so_many_losses_are_restored_from_as_many_parities(
            sizes in proptest::collection::vec(1usize..300, 1..=MAX_BLOCK),
            lost in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
            first in 0u64..1 << 40,
            skip in 0usize..4,
        ) {
            let symbols = symbols(&sizes);
            let lost: std::collections::BTreeSet<usize> =
                lost.iter().map(|index| index.index(symbols.len())).collect();
            let parities = parities(&symbols, MAX_PARITIES);
            let (mut restorer, mut arrivals) = (Restorer::default(), Arrivals::new(first));
            for (at, frames) in symbols.iter().enumerate().filter(|(at, _)| !lost.contains(at)) {
                arrivals.insert(first + at as u64);
                restorer.keep(first + at as u64, frames);
            }
            let mut restored = Vec::new();
            for (index, shard) in parities.iter().enumerate().skip(skip).take(lost.len()) {
                let parity =
                    Parity { first, symbols: symbols.len() as u8, index: index as u8, shard };
                prop_assert!(restored.is_empty(), "not before there is enough");
                restored = restorer.on_parity(&parity, &arrivals).unwrap();
            }
            let expected: Vec<(u64, Vec<u8>)> =
                lost.iter().map(|at| (first + *at as u64, symbols[*at].clone())).collect();
            prop_assert_eq!(restored, expected);
        }

        #[test]
        fn no_parity_makes_a_member_panic_or_keep_more_than_its_share(
            parities in proptest::collection::vec(
                (0u64..3000, any::<u8>(), any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)),
                0..60,
            ),
        ) {
            let (mut restorer, mut arrivals) = (Restorer::default(), Arrivals::new(0));
            for number in (0..3000).filter(|number| number % 7 != 3) {
                arrivals.insert(number);
                restorer.keep(number, &[number as u8; 9]);
            }
            for (first, symbols, index, shard) in &parities {
                let parity = Parity { first: *first, symbols: *symbols, index: *index, shard };
                let _ = restorer.on_parity(&parity, &arrivals);
            }
            prop_assert!(restorer.blocks.len() <= MAX_BLOCKS && restorer.kept.len() <= MAX_KEPT_SYMBOLS);
        }
    }

    #[test]
    fn a_symbol_that_comes_late_restores_the_others() {
        let symbols = symbols(&[10, 20, 30]);
        let parities = parities(&symbols, 1);
        let (mut restorer, mut arrivals) = (Restorer::default(), Arrivals::new(5));
        restorer.keep(5, &symbols[0]);
        arrivals.insert(5);
        let parity = Parity { first: 5, symbols: 3, index: 0, shard: &parities[0] };
        assert_eq!(restorer.on_parity(&parity, &arrivals), Ok(Vec::new()), "two are missing");
        restorer.keep(7, &symbols[2]);
        arrivals.insert(7);
        assert_eq!(restorer.on_late(7, &arrivals), Ok(vec![(6, symbols[1].clone())]));
    }

    /// It came when it was too far ahead to be taken in, by whoever lags.
    #[test]
    fn a_symbol_that_was_not_taken_in_is_restored_as_well() {
        let symbols = symbols(&[10, 20]);
        let parities = parities(&symbols, 1);
        let (mut restorer, mut arrivals) = (Restorer::default(), Arrivals::new(0));
        symbols.iter().zip(5..).for_each(|(frames, number)| restorer.keep(number, frames));
        arrivals.insert(5);
        let parity = Parity { first: 5, symbols: 2, index: 0, shard: &parities[0] };
        assert_eq!(restorer.on_parity(&parity, &arrivals), Ok(vec![(6, symbols[1].clone())]));
    }

    #[test]
    fn what_is_complete_is_forgotten() {
        let mut restorer = Restorer::default();
        (0..200).for_each(|number| restorer.keep(number, b"frames"));
        restorer.forget_below(150);
        assert_eq!(restorer.kept.first_key_value().map(|(number, _)| *number), Some(87));
        restorer.clear();
        assert_eq!((restorer.kept.len(), restorer.kept_bytes), (0, 0));
    }
}
