//! Learns what can be received, interval by interval, apart from what is lost by chance (R11, R12).
//!
//! Inputs → outputs: what came and was lost in each interval → rate and burst for all, and how long the next interval
//! is. Source: R12, R13; `spec/protocol.md` §13.7. [`Capacity`] is the search; this decides which intervals it is shown:
//! those in which what was told before was in force.

use super::Rate;
use super::capacity::{Capacity, Interval};
use super::chance::{Chance, Verdict};
use core::time::Duration;
use denrei_wire::Instant;

/// An interval has so many datagrams at least, but is not longer than the longest.
const LEAST_DATAGRAMS: u64 = 32;
pub(super) const LONGEST_INTERVAL: Duration = Duration::from_millis(200);
/// Octets lost beyond what is lost by chance that are more than a bad run: some ten datagrams.
const MOST_EXCESS: u64 = 16 * 1024;
/// An interval has so many bursts at least, or one more or less would count for much.
const BURSTS: u32 = 4;
/// Rates are told if they have changed by more than this share, or somebody has become active.
const WORTH_TELLING: u64 = 64;

/// What is learnt of one bottleneck.
#[derive(Debug)]
pub(super) struct Learner {
    /// Known once something was lost.
    capacity: Option<Capacity>,
    chance: Chance,
    /// Octets that may come in a row to begin with, and how many bursts a second are the least.
    buffer: u64,
    rtimers_per_s: u64,
    began: Instant,
    /// An interval lasts this long, and not less than the least.
    lasts: Duration,
    least: Duration,
    /// Until then what was learnt last is not in force everywhere.
    settled_at: Instant,
    /// What was in force when shares were told last.
    told: Rate,
    /// It began because of an overrun.
    overrun: bool,
}

impl Learner {
    /// Nothing is known. `least`: how long an interval lasts, `buffer`: octets that may come in a row, to begin with;
    /// `rtimers_per_s`: bursts are so short that there are as many in a second.
    pub fn new(now: Instant, least: Duration, buffer: u64, rtimers_per_s: u64) -> Self {
        Self {
            capacity: None,
            chance: Chance::new(now, MOST_EXCESS),
            buffer,
            rtimers_per_s,
            began: now,
            lasts: least,
            least,
            settled_at: now,
            told: Rate::UNLIMITED,
            overrun: false,
        }
    }

    /// Something was lost before the first interval.
    pub fn overrun(self) -> Self {
        Self { overrun: true, ..self }
    }

    /// Goes on with what another has learnt.
    pub fn go_on_with(&mut self, learnt: Option<Rate>) {
        if self.learnt() != learnt {
            self.capacity = learnt.map(|learnt| Capacity::of(learnt, self.rtimers_per_s));
        }
    }

    /// Octets that may come in a row, to begin with.
    pub fn buffer(&self) -> u64 {
        self.buffer
    }

    /// When the interval is over.
    pub fn deadline(&self) -> Instant {
        self.began + self.lasts
    }

    /// How long the interval was in which so many datagrams came, if it is over.
    pub fn interval(&self, now: Instant, datagrams: u64) -> Option<Duration> {
        let length = now.saturating_since(self.began);
        let is_over = length >= self.lasts && (datagrams >= LEAST_DATAGRAMS || length >= LONGEST_INTERVAL);
        is_over.then_some(length)
    }

    /// So many octets have come.
    pub fn on_arrival(&mut self, now: Instant, octets: u64) {
        self.chance.on_arrival(now, octets);
    }

    /// Whether so many octets were more than could be taken, and not lost by chance.
    pub fn is_overflow(&mut self, now: Instant, octets: u64) -> bool {
        let Some(capacity) = &mut self.capacity else { return true };
        match self.chance.judge(now, octets, capacity.is_small()) {
            Verdict::Overflow => return true,
            Verdict::Chance => {}
            Verdict::Found => capacity.acquit(),
        }
        false
    }

    /// Whether packets are known to be lost by chance.
    pub fn is_chance_known(&self) -> bool {
        self.chance.is_known()
    }

    /// When the interval began.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// An interval begins, whatever came before.
    pub fn begin(&mut self, now: Instant) {
        self.began = now;
    }

    /// An interval is over, and the next begins.
    pub fn learn(&mut self, now: Instant, interval: &Interval) {
        match &mut self.capacity {
            None if self.overrun || interval.recoveries > 0 => {
                self.capacity =
                    (interval.octets > 0).then(|| Capacity::new(interval, self.buffer, self.rtimers_per_s));
            }
            None => {}
            Some(capacity) if self.began >= self.settled_at => {
                let was_small = capacity.is_small();
                capacity.learn(now, interval);
                if capacity.is_small() && !was_small {
                    self.chance.measure(now, interval.length);
                }
            }
            Some(_) => {}
        }
        self.begin(now);
    }

    /// Octets per second, and in a row.
    pub fn learnt(&self) -> Option<Rate> {
        let capacity = self.capacity.as_ref()?;
        Some(Rate { bytes_per_s: capacity.rate(), burst_bytes: capacity.burst() })
    }

    /// Those limits are told, the longest RTIMER is `slowest`, and who hears of them keeps to them after `heard_by`.
    pub fn tell(&mut self, now: Instant, limits: Rate, slowest: Duration, heard_by: Duration) {
        self.lasts = (slowest * BURSTS).clamp(self.least, LONGEST_INTERVAL);
        if differs(self.told, limits) {
            self.told = limits;
            self.settled_at = now + heard_by + slowest;
        }
    }

    /// There is no limit any more.
    pub fn release(&mut self) {
        (self.told, self.lasts) = (Rate::UNLIMITED, self.least);
    }
}

/// Whether another rate is worth a frame.
pub(super) fn differs(one: Rate, two: Rate) -> bool {
    let apart = |one: u64, two: u64| one.abs_diff(two) > one.min(two) / WORTH_TELLING;
    apart(one.bytes_per_s, two.bytes_per_s) || apart(one.burst_bytes, two.burst_bytes)
}
