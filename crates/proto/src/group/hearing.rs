//! How many of the packets to the group's address a member gets, and what follows for parity.
//!
//! Inputs → outputs: the largest packet number and the number of packets in a member's reports → the
//! share it loses, whether or not parity restores it; the shares of all → parities for a block.
//! Source: M10; RFC 5740 §5.5 (loss estimates of receivers).

use super::parity::{MAX_BLOCK, MAX_PARITIES};
use crate::doubted::DISORDER;

/// Packets after which the past counts half: some blocks, and a lossy moment of a calm path is over soon.
const MEMORY_PACKETS: f64 = 4096.0;
/// Packets before a share is spoken of.
const MIN_PACKETS: f64 = 128.0;
/// Members that may still miss something of a block after its parities, on average: repairs by name
/// serve so few well.
const RESIDUAL_MEMBERS: f64 = 0.25;
/// Parity is left again when it saves less than this share of what it costs.
const LEAVE_BELOW: f64 = 0.5;

/// What one member gets, or it and those it speaks for, on average.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Hearing {
    last: Option<Said>,
    first: u64,
    sent: f64,
    lost: f64,
    /// Reports that tell of a loss until the path is taken to keep the order again.
    disorder: u8,
}

/// The last report: largest packet number, packets received (low 32 bits), by how many members.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Said {
    echo: u64,
    received: u32,
    covers: u32,
}

impl Hearing {
    /// A report: largest packet number, packets received (low 32 bits) by all of `covers` members. How many
    /// each has lost since the report before, on average.
    pub fn on_report(&mut self, echo: u64, received: u32, covers: u32) -> u64 {
        // One that speaks for others, and for once for itself.
        let alone = covers == 1 && self.last.is_some_and(|last| last.covers > 1);
        if alone || self.last.is_some_and(|last| echo <= last.echo && last.covers == covers) {
            return 0;
        }
        let Some(last) = self.last.replace(Said { echo, received, covers }) else { return 0 };
        if last.covers != covers || last.echo + 1 < self.first {
            return 0;
        }
        let sent = echo - last.echo;
        let got = f64::from(received.wrapping_sub(last.received)) / f64::from(covers.max(1));
        if self.sent > MEMORY_PACKETS {
            (self.sent, self.lost) = (self.sent / 2.0, self.lost / 2.0);
        }
        self.sent += sent as f64;
        // What was overtaken is no loss once it is here.
        self.lost = (self.lost + sent as f64 - got).max(0.0);
        let lost = (sent as f64 - got).max(0.0) as u64;
        self.disorder = match lost {
            _ if got > sent as f64 => DISORDER,
            0 => self.disorder,
            _ => self.disorder.saturating_sub(1),
        };
        lost
    }

    /// Counts from packet `first` on. What was lost of the SYNs before, hundreds in a large group, says
    /// little of trains, and who reports to others from now on says nothing that would correct it.
    pub fn count_from(&mut self, first: u64) {
        *self = Self { first, last: self.last, ..Self::default() };
    }

    /// Whether what is counted as lost may come yet: more came of late than was sent since the report before.
    pub fn is_out_of_order(&self) -> bool {
        self.disorder > 0
    }

    /// Whether the member has told of packets at all.
    pub fn is_known(&self) -> bool {
        self.last.is_some()
    }

    /// The share of packets it loses; `None`: not known yet.
    pub fn share(&self) -> Option<f64> {
        (self.sent >= MIN_PACKETS).then(|| (self.lost / self.sent).min(1.0))
    }
}

/// How much parity a block of [`MAX_BLOCK`] symbols gets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Protection {
    /// Parities for a full block, if parity is on.
    parities: usize,
    /// Repairs that a symbol would need without: the sum of all shares (loss × N).
    repairs: f64,
}

impl Protection {
    /// Follows the members' shares; those of which nothing is known lose what the others do.
    pub fn follow(&mut self, shares: impl Iterator<Item = Option<f64>> + Clone) {
        let members = shares.clone().count() as f64;
        let (known, sum) =
            shares.clone().flatten().fold((0.0, 0.0), |(known, sum), share| (known + 1.0, sum + share));
        if known == 0.0 {
            return *self = Self::default();
        }
        let factor = members / known;
        let repairs = sum * factor;
        let residual = |parities: usize| {
            let exceeding = shares.clone().flatten().map(|share| more_than(parities, share));
            exceeding.sum::<f64>() * factor
        };
        let enough = (1..MAX_PARITIES).find(|parities| residual(*parities) <= RESIDUAL_MEMBERS);
        let parities = enough.unwrap_or(MAX_PARITIES);
        let saved = repairs * MAX_BLOCK as f64;
        let worth = if self.is_on() { parities as f64 * LEAVE_BELOW } else { parities as f64 };
        *self = Self { parities: if saved > worth { parities } else { 0 }, repairs };
    }

    /// Whether blocks are protected.
    pub fn is_on(&self) -> bool {
        self.parities > 0
    }

    /// Parities for a block of `symbols`, 0 if asking for what is missing costs less.
    pub fn parities_for(&self, symbols: usize) -> usize {
        let parities = (self.parities * symbols).div_ceil(MAX_BLOCK);
        if self.repairs * symbols as f64 > parities as f64 * LEAVE_BELOW { parities } else { 0 }
    }
}

/// The chance that more than `parities` packets of a full block and its parities are lost, each with
/// chance `share` (Poisson).
fn more_than(parities: usize, share: f64) -> f64 {
    let mean = share * (MAX_BLOCK + parities) as f64;
    let mut term = (-mean).exp();
    let mut at_most = term;
    for count in 1..=parities {
        term *= mean / count as f64;
        at_most += term;
    }
    (1.0 - at_most).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(share: f64, members: usize) -> Protection {
        let mut protection = Protection::default();
        protection.follow(core::iter::repeat_n(Some(share), members));
        protection
    }

    #[test]
    fn a_share_is_what_did_not_come_and_reordering_is_no_loss() {
        let mut hearing = Hearing::default();
        assert_eq!(hearing.on_report(9, 10, 1), 0, "from here on it is counted");
        assert_eq!(hearing.on_report(109, 105, 1), 5);
        assert_eq!(hearing.share(), None, "too few");
        assert!(!hearing.is_out_of_order());
        assert_eq!(hearing.on_report(209, 210, 1), 0, "five of before had been overtaken");
        assert!(hearing.is_out_of_order());
        assert_eq!(hearing.share(), Some(0.0));
        assert_eq!(hearing.on_report(309, 300, 1), 10);
        assert!((hearing.share().unwrap() - 10.0 / 300.0).abs() < 1e-9);
        assert_eq!(hearing.on_report(300, 200, 1), 0, "an old report changes nothing");
        hearing.count_from(400);
        assert_eq!((hearing.share(), hearing.is_known()), (None, true));
        assert_eq!(hearing.on_report(409, 380, 1), 0, "what was before is in it");
        assert_eq!(hearing.on_report(609, 560, 1), 20, "since the last report");
        assert_eq!(hearing.share(), Some(0.1));
    }

    #[test]
    fn a_path_keeps_the_order_again_after_losses_in_a_row() {
        let mut hearing = Hearing::default();
        let mut report = |echo: u64, received: u32| {
            hearing.on_report(echo, received, 1);
            hearing.is_out_of_order()
        };
        assert_eq!([report(9, 10), report(19, 15), report(29, 30)], [false, false, true]);
        assert!((1..u32::from(DISORDER)).all(|at| report(29 + 10 * u64::from(at), 30 + 9 * at)));
        let last = u32::from(DISORDER);
        assert!(report(29 + 10 * u64::from(last), 30 + 9 * last - 9 + 10), "nothing was lost");
        assert!(!report(39 + 10 * u64::from(last), 30 + 9 * last + 9));
    }

    #[test]
    fn who_speaks_for_others_tells_of_all() {
        let mut hearing = Hearing::default();
        hearing.on_report(0, 1, 1);
        assert_eq!(hearing.on_report(9, 10, 4), 0, "of others it tells for the first time");
        assert_eq!(hearing.on_report(209, u32::MAX.wrapping_add(11 + 4 * 200 - 8), 4), 2, "wraps");
        assert_eq!(hearing.share(), Some(0.01));
        assert_eq!(hearing.on_report(250, 7, 1), 0, "for itself: not to be compared");
        assert_eq!(hearing.on_report(309, 10 + 4 * 300 - 8, 4), 0);
        assert!((hearing.share().unwrap() - 2.0 / 300.0).abs() < 1e-9);
    }

    #[test]
    fn parity_is_on_where_loss_times_members_is_more_than_it_costs() {
        assert!(!protection(0.0, 1000).is_on());
        assert!(!protection(0.001, 8).is_on());
        assert!(!protection(0.05, 1).is_on(), "one member asks for what it misses");
        assert!(protection(0.01, 8).is_on());
        assert!(protection(0.001, 256).is_on());
        assert_eq!(protection(0.01, 8).parities_for(MAX_BLOCK), 2);
        assert!(protection(0.05, 8).parities_for(MAX_BLOCK) <= 8);
        assert_eq!(protection(0.5, 1000).parities_for(MAX_BLOCK), MAX_PARITIES);
        assert_eq!(protection(0.01, 8).parities_for(1), 0, "a short block is not worth one");
    }

    #[test]
    fn parity_is_not_left_for_a_small_change() {
        let mut protection = protection(0.01, 8);
        protection.follow(core::iter::repeat_n(Some(0.004), 8));
        assert!(protection.is_on());
        protection.follow(core::iter::repeat_n(Some(0.0005), 8));
        assert!(!protection.is_on());
        protection.follow(core::iter::repeat_n(None, 8));
        assert_eq!(protection, Protection::default());
    }
}
