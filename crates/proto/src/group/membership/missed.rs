//! What members below miss, on its way up the tree of reports: asked for once, whoever misses it (M10).
//!
//! Inputs → outputs: gaps that members below name, repairs that are heard → the gaps of this member's next
//! report. Source: RMTP (Lin & Paul, INFOCOM 1996) for requests joined on their way, RFC 5740 §5.3 for those
//! that are dropped because the answer is on its way; `spec/protocol.md` §14.4. Deviation: the opener
//! repairs, as members keep nothing.

use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::MAX_GAPS;
use std::collections::BTreeSet;

/// Symbols that wait to be asked for, at most: what is beyond is named again by whoever misses it.
const MAX_WAITING: usize = 4096;
/// What was asked for or repaired is not asked for again for this long, at most twice as long: a request
/// climbs six levels of 4,096 members, and is answered, in less.
const QUIET: Duration = Duration::from_micros(1500);

/// What members below miss.
#[derive(Debug, Default)]
pub(super) struct Missed {
    waiting: BTreeSet<u64>,
    /// Asked for or repaired lately, and before that.
    quiet: [BTreeSet<u64>; 2],
    turned_at: Instant,
}

impl Missed {
    /// A member below misses `count` symbols from `first` on.
    pub fn want(&mut self, now: Instant, first: u64, count: u64) {
        self.turn(now);
        for symbol in first..first.saturating_add(count.min(MAX_WAITING as u64)) {
            if self.waiting.len() >= MAX_WAITING {
                return;
            }
            if !self.quiet.iter().any(|quiet| quiet.contains(&symbol)) {
                self.waiting.insert(symbol);
            }
        }
    }

    /// A symbol has come to the group's address again: those below hear it too.
    pub fn repaired(&mut self, now: Instant, symbol: u64) {
        self.turn(now);
        self.waiting.remove(&symbol);
        self.keep_quiet(symbol);
    }

    /// Whether something waits to be asked for.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Adds what waits to this member's own `gaps` (first, count), as far as a report has room: ascending,
    /// neither overlapping nor adjacent.
    pub fn join(&mut self, now: Instant, gaps: &mut Vec<(u64, u64)>) {
        self.turn(now);
        gaps.extend(self.waiting.iter().map(|symbol| (*symbol, 1)));
        gaps.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::with_capacity(gaps.len().min(MAX_GAPS));
        for &(first, count) in gaps.iter() {
            let full = joined.len() == MAX_GAPS;
            match joined.last_mut() {
                Some((start, len)) if first <= *start + *len => *len = (*len).max(first + count - *start),
                _ if full => break,
                _ => joined.push((first, count)),
            }
        }
        let end = joined.last().map_or(0, |(first, count)| first + count);
        let later = self.waiting.split_off(&end);
        for symbol in core::mem::replace(&mut self.waiting, later) {
            self.keep_quiet(symbol);
        }
        *gaps = joined;
    }

    fn keep_quiet(&mut self, symbol: u64) {
        if self.quiet[0].len() < MAX_WAITING {
            self.quiet[0].insert(symbol);
        }
    }

    fn turn(&mut self, now: Instant) {
        if self.turned_at + QUIET <= now {
            // Both are old if nothing has been asked for since.
            let both = self.turned_at + QUIET * 2 <= now;
            self.quiet.swap(0, 1);
            self.quiet[0].clear();
            if both {
                self.quiet[1].clear();
            }
            self.turned_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn asked(missed: &mut Missed, now: Instant, own: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let mut gaps = own.to_vec();
        missed.join(now, &mut gaps);
        gaps
    }

    #[test]
    fn what_several_miss_is_asked_for_once() {
        let mut missed = Missed::default();
        missed.want(ms(10), 5, 1);
        missed.want(ms(10), 4, 3);
        missed.want(ms(10), 9, 1);
        assert_eq!(asked(&mut missed, ms(10), &[(7, 1), (20, 5)]), [(4, 4), (9, 1), (20, 5)]);
        assert!(!missed.is_waiting());
        missed.want(ms(11), 4, 3);
        assert!(!missed.is_waiting(), "it has just been asked for");
        missed.want(ms(14), 4, 3);
        assert_eq!(asked(&mut missed, ms(14), &[]), [(4, 3)], "the answer was lost");
    }

    #[test]
    fn what_is_repaired_is_not_asked_for() {
        let mut missed = Missed::default();
        missed.want(ms(10), 5, 3);
        missed.repaired(ms(10), 6);
        missed.repaired(ms(10), 8);
        missed.want(ms(11), 8, 1);
        assert_eq!(asked(&mut missed, ms(11), &[]), [(5, 1), (7, 1)]);
    }

    #[test]
    fn what_a_report_has_no_room_for_waits_for_the_next() {
        let mut missed = Missed::default();
        let many = MAX_GAPS as u64 + 10;
        (0..many).for_each(|at| missed.want(ms(10), 2 * at, 1));
        assert_eq!(asked(&mut missed, ms(10), &[]).len(), MAX_GAPS);
        assert!(missed.is_waiting());
        assert_eq!(asked(&mut missed, ms(10), &[]).len(), 10);
        missed.want(ms(20), 0, u64::MAX);
        assert_eq!(asked(&mut missed, ms(20), &[]), [(0, MAX_WAITING as u64)], "bounded");
    }
}
