//! How the Nodes of one host share what it can receive (R10, R13).
//!
//! Inputs → outputs: what each Node says of itself, what the host takes in all if that is known → the
//! share of one of them. Source: R13; `spec/protocol.md` §13.8. All compute the same shares from the
//! same records, so nobody has to be in charge. How records travel is the driver's affair.

use super::DEFAULT_WEIGHT;
use super::share::{Want, max_min};

/// One that nobody sends to has this part of a peer's share, to begin with: more than there is, for a moment.
const BEGINNING: u64 = 8;

/// What a Node says of itself to the others of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    /// Weights of the peers and groups that send to it, together.
    pub weight: u64,
    /// What came of late, bytes per second.
    pub bytes_per_s: u64,
    /// Its peers would send more.
    pub held_back: bool,
    /// What came to all Nodes when this one was overrun of late, bytes per second; 0: it was not.
    pub overrun_bytes_per_s: u64,
}

/// The share of `own`, bytes per second; `None`: nobody knows of a limit. `capacity`: what the host
/// takes, if it was set. While peers send to a Node it has its share by weight at least, as peers have
/// (`rate/manager.rs`): else two that pause by turns would take it from each other without end.
pub(crate) fn host_share(capacity: Option<u64>, own: HostRecord, others: &[HostRecord]) -> Option<u64> {
    let all = || core::iter::once(&own).chain(others);
    let capacity = capacity.or_else(|| learnt(all()))?;
    // Another process wrote the records: any number may be in them.
    let weights = all().fold(0, |sum: u64, record| sum.saturating_add(record.weight));
    if own.weight == 0 {
        let weight = DEFAULT_WEIGHT as u64;
        return Some(part(capacity, weight, weights.saturating_add(weight)) / BEGINNING);
    }
    let wants: Vec<Want> = all().filter(|record| record.weight > 0).map(want).collect();
    let share = max_min(capacity, &wants).first().copied()?;
    Some(share.max(part(capacity, own.weight, weights)))
}

fn want(record: &HostRecord) -> Want {
    let weight = u32::try_from(record.weight).unwrap_or(u32::MAX);
    Want::of(weight, record.bytes_per_s, record.held_back)
}

/// What is due to one of that weight.
fn part(capacity: u64, weight: u64, weights: u64) -> u64 {
    (capacity as u128 * weight as u128 / weights.max(1) as u128) as u64
}

/// What is too much for one Node is its own affair; several that are overrun have the host in common.
fn learnt<'a>(records: impl Iterator<Item = &'a HostRecord>) -> Option<u64> {
    let overrun: Vec<u64> =
        records.map(|record| record.overrun_bytes_per_s).filter(|rate| *rate > 0).collect();
    if overrun.len() < 2 { None } else { overrun.into_iter().max() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(weight: u64, bytes_per_s: u64, held_back: bool) -> HostRecord {
        HostRecord { weight, bytes_per_s, held_back, overrun_bytes_per_s: 0 }
    }

    #[test]
    fn no_weight_is_too_much() {
        let greedy = record(u64::MAX, u64::MAX, true);
        for own in [record(100, 500, true), record(0, 0, false), greedy] {
            assert!(host_share(Some(1_000), own, &[greedy, greedy]).is_some_and(|share| share <= 1_000));
        }
    }

    #[test]
    fn shares_computed_by_hand() {
        let one = record(100, 500, true);
        assert_eq!(host_share(None, one, &[one]), None, "nobody knows of a limit");
        assert_eq!(host_share(Some(1_000), one, &[]), Some(1_000));
        assert_eq!(host_share(Some(1_000), one, &[one]), Some(500));
        assert_eq!(host_share(Some(1_000), one, &[record(300, 750, true)]), Some(250));
        let modest = record(100, 80, false);
        assert_eq!(host_share(Some(1_000), one, &[modest]), Some(900), "what another leaves");
        assert_eq!(host_share(Some(1_000), modest, &[one]), Some(500), "may have its own back at once");
        let idle = record(0, 0, false);
        assert_eq!(host_share(Some(8_000), idle, &[one]), Some(500), "to begin with");
        assert_eq!(host_share(Some(8_000), one, &[idle]), Some(8_000), "idle ones take nothing");
        assert_eq!(host_share(Some(8_000), idle, &[]), Some(1_000), "nobody sends yet");
    }

    #[test]
    fn who_wants_all_they_can_get_get_together_what_the_host_takes() {
        let records = [record(100, 700, true), record(50, 20, true), record(900, 1, true)];
        let sum: u64 = (0..records.len())
            .map(|own| {
                let mut others = records.to_vec();
                let own = others.remove(own);
                host_share(Some(1_000), own, &others).unwrap()
            })
            .sum();
        assert!((990..=1_010).contains(&sum), "{sum}");
    }

    #[test]
    fn the_hosts_limit_is_what_came_when_several_were_overrun() {
        let overrun = |at| HostRecord { overrun_bytes_per_s: at, ..record(100, 400, true) };
        assert_eq!(host_share(None, overrun(900), &[overrun(0)]), None, "one alone is slow itself");
        assert_eq!(host_share(None, overrun(900), &[overrun(1_000)]), Some(500));
    }
}
