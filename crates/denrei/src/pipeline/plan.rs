//! Which stages of a Node's packet path share a thread.
//!
//! Inputs → outputs: names of stages, grouped → a checked [`Plan`], or what to change about it.

use denrei_proto::ConfigError;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// A step of the way of packets through a Node, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Receives: system calls.
    Rx,
    /// Decrypts.
    Open,
    /// The protocol.
    Proto,
    /// Encrypts.
    Seal,
    /// Sends: system calls.
    Tx,
}

impl Stage {
    /// All of them, in the order of a packet's way.
    pub const ALL: [Self; 5] = [Self::Rx, Self::Open, Self::Proto, Self::Seal, Self::Tx];

    /// As it is written in a setting.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rx => "rx",
            Self::Open => "open",
            Self::Proto => "proto",
            Self::Seal => "seal",
            Self::Tx => "tx",
        }
    }
}

impl FromStr for Stage {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|stage| stage.name() == text).ok_or(())
    }
}

/// Groups of stages, as a setting has them: `rx+open|proto|seal+tx`.
pub(crate) fn parse(text: &str) -> Option<Vec<Vec<Stage>>> {
    let group = |group: &str| group.split('+').map(|name| name.trim().parse().ok()).collect();
    text.split('|').map(group).collect()
}

fn write(pipeline: &[Vec<Stage>]) -> String {
    let group = |group: &Vec<Stage>| group.iter().map(|stage| stage.name()).collect::<Vec<_>>().join("+");
    pipeline.iter().map(group).collect::<Vec<_>>().join("|")
}

/// The groups to run: those of the configuration, or what the number of cores suggests.
pub(crate) fn groups(pipeline: &[Vec<Stage>]) -> Vec<Vec<Stage>> {
    use Stage::{Open, Proto, Rx, Seal, Tx};
    if !pipeline.is_empty() {
        return pipeline.to_vec();
    }
    match std::thread::available_parallelism().map_or(1, NonZeroUsize::get) {
        // Measured on two: what one core has received another would have to fetch (docs/layers.md).
        0..=2 => vec![vec![Rx, Open, Proto], vec![Seal, Tx]],
        3..=4 => vec![vec![Rx, Open], vec![Proto], vec![Seal, Tx]],
        _ => Stage::ALL.into_iter().map(|stage| vec![stage]).collect(),
    }
}

/// Whether opening has another thread than the protocol.
pub(crate) fn opens_apart(groups: &[Vec<Stage>]) -> bool {
    !groups.iter().any(|group| group.contains(&Stage::Open) && group.contains(&Stage::Proto))
}

/// How many layers each thread runs, if the protocol has so many shards: each beyond the first has a
/// thread of its own, the last one that of the stages after it.
pub(crate) fn sizes(groups: &[Vec<Stage>], shards: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    for group in groups {
        match group.iter().position(|stage| *stage == Stage::Proto) {
            Some(before) if shards > 1 => {
                sizes.push(before + 1);
                sizes.extend(std::iter::repeat_n(1, shards - 2));
                sizes.push(group.len() - before);
            }
            _ => sizes.push(group.len()),
        }
    }
    sizes
}

/// Checks that every stage is there once and in order. An empty pipeline is the default one.
pub(crate) fn check(pipeline: &[Vec<Stage>]) -> Result<(), ConfigError> {
    let flat: Vec<Stage> = pipeline.iter().flatten().copied().collect();
    if pipeline.is_empty() || (flat == Stage::ALL && !pipeline.iter().any(Vec::is_empty)) {
        return Ok(());
    }
    Err(ConfigError {
        setting: "pipeline",
        value: write(pipeline),
        expected: "rx, open, proto, seal and tx, each once and in this order, in groups that are not empty, \
                   such as rx+open|proto|seal+tx"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shard_has_a_thread() {
        let sizes = |text: &str, shards| sizes(&parse(text).unwrap(), shards);
        assert_eq!(sizes("rx+open|proto|seal+tx", 1), [2, 1, 2]);
        assert_eq!(sizes("rx+open|proto|seal+tx", 3), [2, 1, 1, 1, 2]);
        assert_eq!(sizes("rx+open|proto+seal+tx", 2), [2, 1, 3]);
        assert_eq!(sizes("rx+open+proto+seal+tx", 4), [3, 1, 1, 3]);
    }

    #[test]
    fn who_shares_a_thread_with_the_protocol_is_known() {
        let apart = |text: &str| opens_apart(&parse(text).unwrap());
        assert!(apart("rx+open|proto|seal+tx") && apart("rx|open|proto|seal|tx"));
        assert!(!apart("rx+open+proto|seal+tx") && !apart("rx|open+proto+seal+tx"));
    }

    #[test]
    fn pipelines_are_read_checked_and_written() {
        for good in ["rx+open|proto|seal+tx", "rx+open+proto+seal+tx", "rx|open|proto|seal|tx"] {
            let pipeline = parse(good).unwrap();
            assert_eq!((check(&pipeline), write(&pipeline).as_str()), (Ok(()), good));
        }
        assert_eq!(check(&[]), Ok(()));
        assert!(parse("rx+receive").is_none());
        for bad in ["rx+open|proto|tx+seal", "rx|proto|tx", "rx+open|proto|proto|seal|tx"] {
            let error = check(&parse(bad).unwrap()).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("pipeline is {bad}, but has to be rx, open, proto")),
                "{error}"
            );
        }
        for groups in [groups(&[]), groups(&[Stage::ALL.to_vec()])] {
            assert_eq!(check(&groups), Ok(()));
        }
    }
}
