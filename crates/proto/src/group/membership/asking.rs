//! When a member says what it misses: not before it may be more than reordering, not before parity could
//! have restored it, and, where there are many members, not before others could have said it.
//!
//! Inputs → outputs: symbols and parities as they come, what is missing → when to report, and which of
//! the gaps. Source: M10; RFC 9002 §6.1.1 (reordering); RFC 5740 §5.3 (NACK suppression: exponential
//! back-off, here drawn from the names of group, member and symbol, as the core has no randomness).

use super::patience::Patience;
use crate::group::arrivals::Arrivals;
use crate::group::parity::MAX_BLOCK;
use crate::group::types::GroupId;
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::Open;

/// A gap is reported at once when so many symbols beyond it have come (RFC 9002 §6.1.1) …
const GAP_THRESHOLD: u64 = 3;
/// … and otherwise after this long: it may be reordering.
pub(super) const REORDER_DELAY: Duration = Duration::from_micros(250);
/// Parity that does not come within this time is not waited for: a block at 200 Mb/s.
const PARITY_PATIENCE: Duration = Duration::from_millis(4);
/// A gap is reported again after two round trips, and not sooner than this.
const MIN_REPEAT_DELAY: Duration = Duration::from_millis(2);
/// … than this where the words climb a tree: at a quarter of a millisecond a level they take half of it.
const MIN_REPEAT_DELAY_ABOVE: Duration = Duration::from_millis(4);
/// What was named so often, and has not come, is named to the opener itself, and ever more seldom …
const UNHEARD: u32 = 16;
/// … down to this.
const MAX_REPEAT_DELAY: Duration = Duration::from_millis(500);
/// With more members than this each waits its time before it says what it misses.
const SUPPRESS_ABOVE: u32 = 16;
/// What members spread their first words over, for each of them …
const SPREAD_PER_MEMBER: Duration = Duration::from_micros(16);
/// … and at most.
const MAX_SPREAD: Duration = Duration::from_millis(8);

/// When to speak of gaps.
#[derive(Debug)]
pub(super) struct Asking {
    group: GroupId,
    member: u32,
    /// How many members there are; 1 if they do not wait for each other.
    crowd: u32,
    due: Option<Instant>,
    /// Parity may come for what is not below this.
    ripe: u64,
    /// Gaps below this were spoken of: again only when their time has come.
    told: u64,
    parity: bool,
    /// Others join these words with those of more members.
    above: bool,
    /// First symbol missing when gaps were last spoken of, and how often it has been the same.
    first: u64,
    repeats: u32,
    patience: Patience,
}

impl Asking {
    pub fn new(group: GroupId, open: &Open<'_>) -> Self {
        let crowd = if open.suppress && open.members > SUPPRESS_ABOVE { open.members } else { 1 };
        Self {
            group,
            member: open.member,
            crowd,
            due: None,
            ripe: 0,
            told: 0,
            parity: false,
            above: false,
            first: 0,
            repeats: 0,
            patience: Patience::default(),
        }
    }

    /// From now on this member names what it misses to another, or to the opener.
    pub fn ask_above(&mut self, above: bool) {
        self.above = above;
    }

    /// Whether the same was said so often that nobody seems to hear it.
    pub fn is_unheard(&self) -> bool {
        self.repeats >= UNHEARD
    }

    /// Whether parity may come for the symbols that come now.
    pub fn expect_parity(&mut self, parity: bool) {
        self.parity = parity;
    }

    pub fn expects_parity(&self) -> bool {
        self.parity
    }

    /// The gaps that are to be spoken of.
    pub fn gaps<'a>(&self, arrivals: &'a Arrivals) -> impl Iterator<Item = (u64, u64)> + 'a {
        let ripe = if self.parity { self.ripe } else { u64::MAX }.min(self.patience.ripe());
        let gaps = arrivals.gaps().take_while(move |(first, _)| *first < ripe);
        gaps.map(move |(first, count)| (first, count.min(ripe - first)))
    }

    /// A symbol that was missing has come by this packet of the group's address.
    pub fn packet_came(&mut self, now: Instant, packet: u64, symbol: u64, arrivals: &Arrivals) {
        self.patience.came(now, packet, symbol, arrivals.known());
    }

    /// A symbol has come; before, those below `known` were known to have been sent.
    pub fn symbol_came(&mut self, now: Instant, symbol: u64, known: u64, arrivals: &Arrivals) {
        self.patience.ripen(now, arrivals.known());
        if self.parity {
            // A block before has ended for certain, and its parities left before this symbol.
            self.ripe = self.ripe.max((symbol + 1).saturating_sub(MAX_BLOCK as u64));
            if self.has_news(arrivals) {
                self.ask_by(now + self.own_time(now, known));
            } else if symbol > known {
                self.ask_by(now + PARITY_PATIENCE);
            }
        } else if symbol > known && self.patience.is_on() {
            self.ask_once_ripe(now);
        } else if symbol > known {
            let threshold = symbol >= known + GAP_THRESHOLD;
            let delay = if threshold { Duration::ZERO } else { REORDER_DELAY };
            self.ask_by(now + delay + self.own_time(now, known));
        }
    }

    /// A parity of the block that ends at `end` has come: others of the block are on their way at best.
    pub fn parity_came(&mut self, now: Instant, end: u64, arrivals: &Arrivals) {
        self.ripe = self.ripe.max(end);
        self.patience.ripen(now, arrivals.known());
        if self.has_news(arrivals) {
            self.ask_by(now + REORDER_DELAY + self.own_time(now, end));
        }
    }

    /// Whether there are gaps to speak of that were not spoken of yet.
    fn has_news(&self, arrivals: &Arrivals) -> bool {
        self.gaps(arrivals).any(|(first, count)| first + count > self.told)
    }

    /// The opener has told how far it is.
    pub fn told(&mut self, now: Instant, arrivals: &Arrivals) {
        self.ask_by(now + REORDER_DELAY + self.own_time(now, arrivals.known()));
    }

    /// The opener wants to know of everything below `symbol`.
    pub fn all_below(&mut self, symbol: u64) {
        self.ripe = self.ripe.max(symbol);
    }

    /// A report has gone out; `largest` is the largest packet that has come.
    pub fn asked(&mut self, now: Instant, rtt: Duration, largest: Option<u64>, arrivals: &Arrivals) {
        self.due = self.due.filter(|_| self.gaps(arrivals).next().is_none());
        if let Some((first, _)) = self.gaps(arrivals).next() {
            let told = self.gaps(arrivals).last().map_or(self.told, |(first, count)| first + count);
            if told > core::mem::replace(&mut self.told, told) {
                self.patience.named(largest, told, rtt);
            }
            let least = if self.above { MIN_REPEAT_DELAY_ABOVE } else { MIN_REPEAT_DELAY };
            let delay = (rtt * 2).max(least);
            let seldom = (delay * (1 << self.repeats.saturating_sub(UNHEARD).min(8))).min(MAX_REPEAT_DELAY);
            self.ask_by(now + seldom.max(delay) + self.own_time(now, first));
        }
        if self.patience.is_on() && arrivals.has_gaps() {
            self.patience.ripen(now, arrivals.known());
            self.ask_once_ripe(now);
        }
    }

    /// Whether gaps are to be spoken of now.
    pub fn is_due(&mut self, now: Instant, arrivals: &Arrivals) -> bool {
        self.patience.ripen(now, arrivals.known());
        if self.due.is_none_or(|due| due > now) {
            return false;
        }
        self.due = None;
        self.ripe = self.ripe.max(arrivals.known());
        if self.patience.is_on() && self.gaps(arrivals).next().is_none() {
            if arrivals.has_gaps() {
                self.ask_once_ripe(now);
            }
            return false;
        }
        self.repeats = if self.first == arrivals.next() { self.repeats + 1 } else { 0 };
        self.first = arrivals.next();
        arrivals.has_gaps()
    }

    pub fn deadline(&self) -> Instant {
        self.due.unwrap_or(Instant::FAR_FUTURE)
    }

    pub fn stop(&mut self) {
        self.due = None;
    }

    fn ask_once_ripe(&mut self, now: Instant) {
        if let Some(at) = self.patience.ripens_at() {
            self.ask_by(at + self.own_time(now, self.patience.ripe()));
        }
    }

    fn ask_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    /// What this member waits so that not all say the same: of `crowd` members few come early, and
    /// what they say is answered to all (RFC 5740's RandomBackoff).
    fn own_time(&self, now: Instant, symbol: u64) -> Duration {
        // Those above join what several say.
        if self.crowd == 1 || self.above {
            return Duration::ZERO;
        }
        let spread = (SPREAD_PER_MEMBER * self.crowd).min(MAX_SPREAD);
        let drawn = mix(self.group.0 ^ mix(self.member as u64) ^ mix(symbol ^ (now.as_nanos() >> 23)));
        let uniform = (drawn >> 11) as f64 / (1u64 << 53) as f64;
        let lambda = (self.crowd as f64).ln() + 1.0;
        let share = (1.0 + uniform * (lambda.exp() - 1.0)).ln() / lambda;
        spread.mul_f64(share)
    }
}

/// splitmix64's finaliser: every bit of the input changes half of the output's.
fn mix(value: u64) -> u64 {
    let value =
        (value.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(member: u32, members: u32, suppress: bool) -> Asking {
        let address = "239.1.1.1:7000".parse().unwrap();
        let open =
            Open { address, member, members, report_delay_us: 1000, stagger: true, suppress, key: &[] };
        Asking::new(GroupId(7), &open)
    }

    #[test]
    fn few_of_many_speak_early_and_all_in_time() {
        let now = Instant::from_nanos(1 << 30);
        let mut times: Vec<Duration> =
            (0..1024).map(|member| asking(member, 1024, true).own_time(now, 5)).collect();
        times.sort();
        assert!(times[1023] <= MAX_SPREAD);
        assert!(times[0] < MAX_SPREAD, "somebody does not wait for the end");
        let early = times.iter().filter(|time| **time < MAX_SPREAD / 2).count();
        assert!((1..100).contains(&early), "{early} in the first half");
        assert_eq!(asking(3, 1024, false).own_time(now, 5), Duration::ZERO);
        assert_eq!(asking(3, 16, true).own_time(now, 5), Duration::ZERO);
    }

    #[test]
    fn what_parity_may_restore_is_not_spoken_of() {
        let (mut asking, mut arrivals, now) = (asking(0, 2, true), Arrivals::new(0), Instant::ZERO);
        asking.expect_parity(true);
        for symbol in [0, 2, 3, 4, 5] {
            let known = arrivals.known();
            arrivals.insert(symbol);
            asking.symbol_came(now, symbol, known, &arrivals);
        }
        assert_eq!(asking.gaps(&arrivals).count(), 0);
        assert_eq!(asking.deadline(), now + PARITY_PATIENCE);
        asking.parity_came(now, 6, &arrivals);
        assert_eq!(asking.gaps(&arrivals).collect::<Vec<_>>(), [(1, 1)]);
        assert_eq!(asking.deadline(), now + REORDER_DELAY);
        asking.asked(now, Duration::ZERO, None, &arrivals);
        arrivals.insert(6);
        asking.symbol_came(now, 6, 6, &arrivals);
        assert_eq!(asking.deadline(), now + MIN_REPEAT_DELAY, "it was spoken of, and has its time");
        arrivals.insert(1);
        assert!(!asking.is_due(now + REORDER_DELAY, &arrivals), "it has come meanwhile");
        assert!(!asking.is_due(now + MIN_REPEAT_DELAY, &arrivals), "and is not asked for again");
        assert_eq!(asking.deadline(), Instant::FAR_FUTURE);
    }

    #[test]
    fn where_what_was_named_has_come_only_time_counts() {
        let (mut asking, mut arrivals, now) = (asking(0, 2, true), Arrivals::new(0), Instant::ZERO);
        let rtt = Duration::from_millis(40);
        let come = |asking: &mut Asking, arrivals: &mut Arrivals, symbol| {
            let known = arrivals.known();
            arrivals.insert(symbol);
            asking.symbol_came(now, symbol, known, arrivals);
        };
        [0, 5].into_iter().for_each(|symbol| come(&mut asking, &mut arrivals, symbol));
        assert!(asking.is_due(now, &arrivals), "more than two beyond it have come");
        asking.asked(now, rtt, Some(5), &arrivals);
        asking.packet_came(now, 1, 1, &arrivals);
        (1..5).for_each(|symbol| come(&mut asking, &mut arrivals, symbol));
        come(&mut asking, &mut arrivals, 10);
        assert!(!asking.is_due(now, &arrivals));
        assert_eq!(asking.gaps(&arrivals).count(), 0, "nor does a report for another reason name it");
        let due = asking.deadline();
        assert!(now + rtt / 8 <= due && due <= now + rtt / 4, "{due:?}");
        assert!(asking.is_due(due, &arrivals));
        assert_eq!(asking.gaps(&arrivals).collect::<Vec<_>>(), [(6, 4)]);
    }
}
