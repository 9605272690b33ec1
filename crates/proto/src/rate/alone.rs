//! Whether one peer is all that is left of a crowd, and loses all the same.
//!
//! Inputs → outputs: packets, of whom, and what is missing before them → whether limits that were set for many do
//! harm. Source: `spec/protocol.md` §13.4; decision 84.

use super::Heard;
use super::skips::Skips;
use core::time::Duration;
use denrei_wire::Instant;

/// So long one peer sends alone before what it loses is its own affair: no crowd's, whose members take turns sooner.
const ALONE: Duration = Duration::from_secs(1);
/// Others send no more than this share of what it does.
const OTHERS_SHARE: u64 = 16;
/// Losses in that time from which on they are more than now and then.
const LEAST_LOSSES: u64 = 8;

/// Who sends while limits are set, a period after the other.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    period: Option<Period>,
}

/// What has come since a packet of a peer's.
#[derive(Debug)]
struct Period {
    peer: u32,
    since: Instant,
    own_octets: u64,
    other_octets: u64,
    losses: u64,
    skips: Skips,
}

impl Alone {
    /// Takes in a packet: also one without data, before which the last train may be missing. Whether for a whole period one
    /// peer has been sending alone, and losing.
    pub fn add(&mut self, now: Instant, peer: u32, heard: Heard) -> bool {
        if self.period.is_none() && heard.data > 0 {
            let skips = Skips::default();
            self.period = Some(Period { peer, since: now, own_octets: 0, other_octets: 0, losses: 0, skips });
        }
        let Some(period) = &mut self.period else { return false };
        if peer == period.peer {
            period.own_octets += heard.data;
            period.losses += u64::from(period.skips.is_loss(heard.missing));
        } else {
            period.other_octets += heard.data;
        }
        if now.saturating_since(period.since) < ALONE {
            return false;
        }
        let alone = period.other_octets <= period.own_octets / OTHERS_SHARE;
        let loses = period.losses >= LEAST_LOSSES;
        self.period = None;
        alone && loses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet a millisecond, one of each so many missing, and one of each so many somebody else's.
    fn decides(missing: u64, others: u64) -> bool {
        let mut alone = Alone::default();
        (0..=1000).any(|n| {
            let heard = Heard { data: 1472, missing: u64::from(n % missing == 0) };
            alone.add(Instant::ZERO + Duration::from_millis(n), u32::from(n % others == 1), heard)
        })
    }

    #[test]
    fn who_sends_alone_for_a_while_and_loses_is_noticed() {
        assert!(decides(20, 2000));
        assert!(!decides(130, 2000), "so many numbers are left out");
        assert!(decides(20, 100), "a word of others now and then");
        assert!(!decides(20, 4), "two by turns");
    }

    #[test]
    fn a_train_that_was_lost_is_seen_in_what_asks_for_it() {
        let mut alone = Alone::default();
        let mut add = |ms, data, missing| {
            alone.add(Instant::ZERO + Duration::from_millis(ms), 0, Heard { data, missing })
        };
        assert!(!add(0, 0, 4), "nobody sends");
        assert!(
            (1..=1001).all(|n| add(n, if n % 100 == 0 { 0 } else { 1472 }, n % 100 / 99 * 4) == (n == 1001))
        );
    }
}
