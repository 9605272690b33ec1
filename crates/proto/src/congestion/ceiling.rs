//! How much may be under way before the path's queue overflows, learnt from losses.
//!
//! Inputs → outputs: losses, with what was under way and how long a queue the round trip shows → a
//! ceiling for the window. A shallow queue overflows before its delay is worth yielding to, again and
//! again; below what overflowed it, nothing is lost. That also tells it from chance loss: chance goes on
//! below any ceiling, and after a few losses there the ceiling is taken away. Source: RFC 9438 for the
//! idea of remembering where a loss was and coming back slowly; the form is our own.

use core::time::Duration;
use denrei_wire::Instant;

/// A round trip longer than the path's smallest by this and by a share of it shows a queue, ns: below that a loss
/// cannot be an overflow worth remembering.
const QUEUE_SIGN_NS: u64 = 50_000;
const QUEUE_SIGN_SHARE: u64 = 8;
/// What is kept of the amount that overflowed the queue, in eighths; of that in slow start, which may be twice
/// what fits; and of a ceiling that was still too high.
const KEPT: u64 = 7;
const KEPT_OF_START: u64 = 4;
const KEPT_OF_CEILING: u64 = 6;
const EIGHTHS: u64 = 8;
/// Losses below the ceiling, each after it was lowered, that tell chance.
const STRIKES: u32 = 3;
/// Chance is believed for so long.
const CHANCE: Duration = Duration::from_secs(10);
/// A ceiling stays for so long, and then rises: by a sixteenth first, twice that each further step without a
/// loss.
const HOLD: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(50);
const FIRST_RISE_SHARE: u64 = 16;

/// A loss, as the ceiling sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub now: Instant,
    /// When the newest lost packet was sent.
    pub sent_at: Instant,
    /// Most cost that was under way lately.
    pub under_way: u64,
    /// Less under way than this overflows no queue worth knowing: of an application that sends a little now and
    /// then, what is lost is lost by chance or by others.
    pub least: u64,
    /// The latest round trip, and the path's smallest, nanoseconds.
    pub rtt_ns: u64,
    pub min_rtt_ns: u64,
    /// The window was doubling.
    pub starting: bool,
}

/// What a loss means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The path's queue overflowed: no more than this from now on.
    Overflow(u64),
    /// Chance; there had been a ceiling, which kept the window from this.
    Chance(u64),
    /// Nothing new.
    Unchanged,
}

/// The ceiling.
#[derive(Debug)]
pub(super) struct Ceiling {
    /// `u64::MAX`: none.
    most: u64,
    /// What was under way when there was none.
    before: u64,
    strikes: u32,
    lowered_at: Instant,
    rises_at: Instant,
    /// How much it has risen since it was last too high.
    risen: u64,
    /// Losses are chance until then.
    chance_until: Instant,
}

impl Ceiling {
    pub fn new() -> Self {
        Self {
            most: u64::MAX,
            before: 0,
            strikes: 0,
            lowered_at: Instant::ZERO,
            rises_at: Instant::ZERO,
            risen: 0,
            chance_until: Instant::ZERO,
        }
    }

    /// Cost that may be under way.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Whether losses are taken for chance.
    pub fn is_chance(&self, now: Instant) -> bool {
        now < self.chance_until
    }

    /// Time has come to `now` without a loss.
    pub fn rise(&mut self, now: Instant) {
        if self.most == u64::MAX || now < self.rises_at {
            return;
        }
        self.rises_at = now + STEP;
        let step = if self.risen == 0 { self.most / FIRST_RISE_SHARE } else { self.risen };
        self.risen += step;
        self.most += step;
        if self.most > self.before.saturating_mul(2) {
            *self = Self { chance_until: self.chance_until, ..Self::new() };
        }
    }

    /// Packets were lost.
    pub fn on_loss(&mut self, loss: Loss) -> Verdict {
        let queue = loss.rtt_ns.saturating_sub(loss.min_rtt_ns);
        let shows_queue = queue >= QUEUE_SIGN_NS.max(loss.min_rtt_ns / QUEUE_SIGN_SHARE);
        // What was sent before the ceiling was lowered says nothing about it.
        if !shows_queue || self.is_chance(loss.now) || loss.sent_at <= self.lowered_at {
            return Verdict::Unchanged;
        }
        if self.most == u64::MAX {
            if loss.under_way < loss.least {
                return Verdict::Unchanged;
            }
            self.before = loss.under_way;
            return self.lower(loss.now, loss.under_way, if loss.starting { KEPT_OF_START } else { KEPT });
        }
        if self.risen > 0 {
            // Back to what had been enough.
            let enough = self.most - self.risen;
            self.strikes = 0;
            return self.lower(loss.now, enough, EIGHTHS);
        }
        self.strikes += 1;
        if self.strikes < STRIKES {
            return self.lower(loss.now, self.most, KEPT_OF_CEILING);
        }
        let before = self.before;
        *self = Self { chance_until: loss.now + CHANCE, ..Self::new() };
        Verdict::Chance(before)
    }

    fn lower(&mut self, now: Instant, from: u64, eighths: u64) -> Verdict {
        self.most = from / EIGHTHS * eighths;
        self.risen = 0;
        self.lowered_at = now;
        self.rises_at = now + HOLD;
        Verdict::Overflow(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// A loss at `ms` of something sent a moment before, behind a queue of half a millisecond.
    fn loss(ms: u64, under_way: u64) -> Loss {
        let sent_at = Instant::from_nanos(ms * 1_000_000 - 600_000);
        Loss {
            now: at(ms),
            sent_at,
            under_way,
            least: 30_000,
            rtt_ns: 600_000,
            min_rtt_ns: 100_000,
            starting: false,
        }
    }

    #[test]
    fn what_overflowed_a_queue_is_tried_again_slowly() {
        let mut ceiling = Ceiling::new();
        assert_eq!(ceiling.on_loss(loss(10, 80_000)), Verdict::Overflow(70_000));
        let burst = Loss { sent_at: at(9), ..loss(10, 80_000) };
        assert_eq!(ceiling.on_loss(burst), Verdict::Unchanged, "sent before the ceiling was lowered");
        ceiling.rise(at(200));
        assert_eq!(ceiling.most(), 70_000, "it is held");
        ceiling.rise(at(211));
        assert_eq!(ceiling.most(), 74_375);
        ceiling.rise(at(262));
        assert_eq!(ceiling.most(), 78_750);
        assert_eq!(ceiling.on_loss(loss(270, 78_750)), Verdict::Overflow(70_000), "back to what was enough");
        // The queue has grown: some steps more, each twice the one before, and it is gone.
        for step in 0..8 {
            ceiling.rise(at(500 + 51 * step));
        }
        assert_eq!(ceiling.most(), u64::MAX);
    }

    #[test]
    fn chance_goes_on_below_and_is_believed_for_a_while() {
        let mut ceiling = Ceiling::new();
        assert_eq!(ceiling.on_loss(loss(10, 80_000)), Verdict::Overflow(70_000));
        assert_eq!(ceiling.on_loss(loss(20, 70_000)), Verdict::Overflow(52_500));
        assert!(matches!(ceiling.on_loss(loss(30, 50_000)), Verdict::Overflow(_)));
        assert_eq!(ceiling.on_loss(loss(40, 40_000)), Verdict::Chance(80_000));
        assert_eq!(ceiling.most(), u64::MAX);
        assert!(ceiling.is_chance(at(5_000)) && !ceiling.is_chance(at(10_050)));
        assert_eq!(ceiling.on_loss(loss(5_000, 90_000)), Verdict::Unchanged);
        assert!(matches!(ceiling.on_loss(loss(10_050, 90_000)), Verdict::Overflow(_)));
    }

    #[test]
    fn little_under_way_overflows_nothing() {
        let mut ceiling = Ceiling::new();
        assert_eq!(ceiling.on_loss(loss(10, 29_999)), Verdict::Unchanged);
        assert_eq!(ceiling.on_loss(loss(10, 30_000)), Verdict::Overflow(26_250));
    }

    #[test]
    fn a_loss_without_a_queue_is_no_overflow() {
        let mut ceiling = Ceiling::new();
        let short = Loss { rtt_ns: 140_000, ..loss(10, 80_000) };
        assert_eq!(ceiling.on_loss(short), Verdict::Unchanged);
        let long = Loss { rtt_ns: 21_000_000, min_rtt_ns: 20_000_000, ..loss(10, 80_000) };
        assert_eq!(ceiling.on_loss(long), Verdict::Unchanged, "an eighth of the path is its own noise");
    }
}
