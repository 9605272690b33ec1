//! The messages of the demonstration: sizes and contents, known to both ends from a seed.
//!
//! Inputs → outputs: (seed, stage, sender, receiver, number) → size and bytes. A message of
//! [`LABELLED_BYTES`] or more begins with the BLAKE3 hash of what follows and says who sent it to
//! whom and under which number: the receiver checks it by itself. A shorter one is compared with
//! what it has to be.

use std::ops::RangeInclusive;

/// From this size on a message carries a label: 32 octets of hash, 24 of identity, and some content.
pub const LABELLED_BYTES: usize = 64;

/// Octets of hash before everything else.
const HASH_BYTES: usize = 32;

/// The largest message; each node sends one per stage, to the next node.
pub const LARGEST_BYTES: usize = 8 << 20;

/// How often (in 100) a message has a size in this range, bytes. Most are small, as in a cluster's
/// control traffic, most bytes are in large ones; the mean is about 17 KB.
const MIX: [(u64, RangeInclusive<u64>); 8] = [
    (5, 0..=0),
    (10, 1..=15),
    (35, 16..=255),
    (20, 256..=1471),
    (18, 1472..=16_384),
    (7, 16_385..=65_536),
    (4, 65_537..=262_144),
    (1, 262_145..=1 << 20),
];

/// Messages of one stage over all pairs together; about 600 MB.
const STAGE_MESSAGES: u64 = 36_000;

/// Least and most messages per pair and stage.
const PAIR_MESSAGES: RangeInclusive<u64> = 8..=3_000;

/// Which message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// Stage of the demonstration, from 1.
    pub stage: u32,
    /// Sending node.
    pub from: u32,
    /// Receiving node.
    pub to: u32,
    /// Place in the sequence of the pair and stage, from 0.
    pub number: u64,
}

/// All traffic between `nodes` nodes.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    seed: u64,
    nodes: u32,
}

impl Traffic {
    /// The traffic that belongs to a seed.
    pub fn new(seed: u64, nodes: usize) -> Self {
        Self { seed, nodes: nodes as u32 }
    }

    /// What all contents follow from.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes as usize
    }

    /// Messages per pair and stage.
    pub fn messages(&self) -> u64 {
        let pairs = u64::from(self.nodes) * u64::from(self.nodes - 1);
        (STAGE_MESSAGES / pairs).clamp(*PAIR_MESSAGES.start(), *PAIR_MESSAGES.end())
    }

    /// Size of a message, bytes.
    pub fn size(&self, label: Label) -> usize {
        if label.number == self.messages() / 2 && label.to == (label.from + 1) % self.nodes {
            return LARGEST_BYTES;
        }
        let mut random = self.words(label);
        let mut draw = random() % 100;
        for (share, range) in MIX {
            if draw < share {
                return (range.start() + random() % (range.end() - range.start() + 1)) as usize;
            }
            draw -= share;
        }
        unreachable!("the shares of the mix add up to 100")
    }

    /// A message's bytes.
    pub fn content(&self, label: Label) -> Vec<u8> {
        let size = self.size(label);
        let mut content = vec![0; size];
        let mut random = self.words(Label { number: label.number ^ (1 << 63), ..label });
        for chunk in content.chunks_mut(8) {
            chunk.copy_from_slice(&random().to_le_bytes()[..chunk.len()]);
        }
        if size >= LABELLED_BYTES {
            let (hash, rest) = content.split_at_mut(HASH_BYTES);
            rest[0..4].copy_from_slice(&label.stage.to_be_bytes());
            rest[4..8].copy_from_slice(&label.from.to_be_bytes());
            rest[8..12].copy_from_slice(&label.to.to_be_bytes());
            rest[12..20].copy_from_slice(&label.number.to_be_bytes());
            hash.copy_from_slice(blake3::hash(rest).as_bytes());
        }
        content
    }

    /// A sequence of 64-bit words that only this message has (SplitMix64, Steele 2014).
    fn words(&self, label: Label) -> impl FnMut() -> u64 {
        let pair = (u64::from(label.from) << 32) | u64::from(label.to);
        let mut state = [self.seed, label.stage.into(), pair, label.number]
            .into_iter()
            .fold(0, |state, word| mix(state ^ word));
        move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        }
    }
}

fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// What a message says it is; `None` if it is too short to say, or its hash does not fit.
pub fn label_of(content: &[u8]) -> Option<Label> {
    let (hash, rest) = content.split_at_checked(HASH_BYTES)?;
    if content.len() < LABELLED_BYTES || blake3::hash(rest).as_bytes() != hash {
        return None;
    }
    let word = |at: usize| u32::from_be_bytes([rest[at], rest[at + 1], rest[at + 2], rest[at + 3]]);
    let number = (u64::from(word(12)) << 32) | u64::from(word(16));
    Some(Label { stage: word(0), from: word(4), to: word(8), number })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LABEL: Label = Label { stage: 1, from: 2, to: 3, number: 7 };

    #[test]
    fn sizes_follow_the_mix_and_each_node_sends_one_largest() {
        let traffic = Traffic::new(1, 4);
        let label = |number| Label { number, ..LABEL };
        let sizes: Vec<usize> = (0..traffic.messages()).map(|number| traffic.size(label(number))).collect();
        assert_eq!(sizes.iter().filter(|size| **size == LARGEST_BYTES).count(), 1);
        assert!(sizes.contains(&0));
        let small = sizes.iter().filter(|size| **size < 1472).count() as f64 / sizes.len() as f64;
        assert!((0.6..0.8).contains(&small), "{small}");
        let far = Label { to: 0, ..LABEL };
        assert!((0..traffic.messages()).all(|number| traffic.size(Label { number, ..far }) <= 1 << 20));
    }

    #[test]
    fn a_stage_of_many_nodes_is_no_longer_than_one_of_few() {
        for nodes in 2..=64 {
            let messages = Traffic::new(1, nodes).messages();
            assert!(
                messages * (nodes * (nodes - 1)) as u64 <= STAGE_MESSAGES,
                "{nodes} nodes: {messages} each"
            );
        }
    }

    #[test]
    fn a_long_message_says_what_it_is_and_every_damage_shows() {
        let traffic = Traffic::new(1, 4);
        let label = (0..).map(|number| Label { number, ..LABEL });
        let label = label.into_iter().find(|label| (64..500).contains(&traffic.size(*label))).unwrap();
        let mut content = traffic.content(label);
        assert_eq!(label_of(&content), Some(label));
        for at in 0..content.len() {
            content[at] ^= 1;
            assert_eq!(label_of(&content), None, "octet {at}");
            content[at] ^= 1;
        }
        assert_eq!(label_of(&content[..content.len() - 1]), None);
        assert_eq!(label_of(b"short"), None);
    }

    #[test]
    fn contents_differ_by_every_part_of_the_label_and_by_the_seed() {
        let traffic = Traffic::new(1, 8);
        let first = traffic.words(LABEL)();
        for other in [
            Label { stage: 2, ..LABEL },
            Label { from: 3, to: 2, ..LABEL },
            Label { to: 4, ..LABEL },
            Label { number: 8, ..LABEL },
        ] {
            assert_ne!(traffic.words(other)(), first, "{other:?}");
        }
        assert_ne!(Traffic::new(2, 8).words(LABEL)(), first);
    }
}
