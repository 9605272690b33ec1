//! How much may be under way before the path's queue overflows, learnt from losses.
//!
//! Inputs → outputs: losses, with what was under way and how long a queue the round trip shows → a
//! ceiling for the window. A shallow queue overflows before its delay is worth yielding to, again and
//! again; below what overflowed it, nothing is lost. That also tells it from chance loss: chance goes on
//! below any ceiling, and after a few losses there the ceiling is taken away. How much chance takes has been seen
//! then: what takes more is an overflow, as is what takes much where nothing is known, though no queue shows (decision
//! 113). Source: RFC 9438 for the idea of remembering where a loss was and coming back slowly; the form is our own.

use super::Acked;
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
/// Losses below the ceiling, each of something sent after the last, that tell chance.
const STRIKES: u32 = 3;
/// Chance is believed for so long.
const CHANCE: Duration = Duration::from_secs(10);
/// More than this share of a spell, and of it than twice what chance was seen to take and two of its deviations, is too
/// much for chance.
const MANY_SHARE: f64 = 1.0 / 32.0;
const MANY_CHANCE: f64 = 2.0;
/// A spell begins with a loss and has so many packets, or as many as are under way: of fewer, chance may take anything.
const SPELL_PACKETS: u64 = 256;
/// Chance is not taken for more: a path that loses more of what is below the ceiling is overflowed by others.
const MOST_CHANCE: f64 = 0.1;
/// A ceiling stays for so long, and then rises: by a sixteenth first, and by as much as it has risen in each further step
/// without a loss.
const HOLD: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(50);
/// And at least for so many round trips: an overflow is known after one or two.
const HOLD_ROUNDS: u32 = 8;
const STEP_ROUNDS: u32 = 3;
const FIRST_RISE_SHARE: u64 = 16;

/// A loss, as the ceiling sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub now: Instant,
    /// When the newest lost packet was sent.
    pub sent_at: Instant,
    pub packets: u64,
    /// Most cost that was under way lately, and in how many packets.
    pub under_way: u64,
    pub packets_under_way: u64,
    /// Less under way than this overflows no queue worth knowing: of an application that sends a little now and
    /// then, what is lost is lost by chance or by others.
    pub least: u64,
    /// The latest round trip, and the path's smallest, nanoseconds.
    pub rtt_ns: u64,
    pub min_rtt_ns: u64,
    /// The window was doubling.
    pub starting: bool,
}

impl Loss {
    /// Whether the round trip shows a queue.
    fn shows_queue(&self) -> bool {
        let queue = self.rtt_ns.saturating_sub(self.min_rtt_ns);
        queue >= QUEUE_SIGN_NS.max(self.min_rtt_ns / QUEUE_SIGN_SHARE)
    }
}

/// What became of packets in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Spell {
    arrived: u64,
    lost: u64,
}

impl Spell {
    fn packets(self) -> u64 {
        self.arrived + self.lost
    }

    /// Whether it is too much for chance that takes such a share, of so many packets at least.
    fn is_many(self, chance: f64, packets: u64) -> bool {
        let packets = packets.max(self.packets()) as f64;
        let by_chance = MANY_CHANCE * (chance * packets + (chance * packets).sqrt());
        self.lost as f64 > MANY_SHARE * packets + by_chance
    }

    fn share(self) -> f64 {
        self.lost as f64 / self.packets().max(1) as f64
    }
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
    /// The last loss that counted was noticed then.
    judged_at: Instant,
    rises_at: Instant,
    /// It was last lowered to this, and had been this before it rose last.
    lowest: u64,
    enough: u64,
    /// Since there is one.
    below: Spell,
    /// Of late; and how many packets it has.
    spell: Spell,
    spell_packets: u64,
    /// Losses are chance until then, and take this share.
    chance_until: Instant,
    chance: f64,
}

impl Ceiling {
    pub fn new() -> Self {
        Self {
            most: u64::MAX,
            before: 0,
            strikes: 0,
            judged_at: Instant::ZERO,
            rises_at: Instant::ZERO,
            lowest: u64::MAX,
            enough: u64::MAX,
            below: Spell::default(),
            spell: Spell::default(),
            spell_packets: SPELL_PACKETS,
            chance_until: Instant::ZERO,
            chance: 0.0,
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

    /// Packets arrived: mostly where nothing is lost.
    #[inline]
    pub fn on_ack(&mut self, acked: &Acked) {
        if self.most != u64::MAX || self.spell.lost > 0 {
            self.follow(acked);
        }
    }

    #[cold]
    fn follow(&mut self, acked: &Acked) {
        // As with losses.
        if acked.sent_at > self.judged_at {
            self.spell.arrived += acked.packets;
            self.below.arrived += acked.packets;
            self.end_spell();
        }
        if self.most == u64::MAX || acked.now < self.rises_at {
            return;
        }
        self.rises_at = acked.now + STEP.max(STEP_ROUNDS * Duration::from_nanos(acked.rtt_ns));
        self.strikes = 0;
        let risen = self.most - self.lowest;
        self.enough = self.most;
        self.most += if risen == 0 { self.lowest / FIRST_RISE_SHARE } else { risen };
        if self.most > self.before.saturating_mul(2) {
            self.vanish();
        }
    }

    /// Packets were lost.
    pub fn on_loss(&mut self, loss: Loss) -> Verdict {
        // What was sent before the ceiling was lowered says nothing about it.
        if loss.sent_at <= self.judged_at {
            return Verdict::Unchanged;
        }
        let is_overflow = self.is_overflow(&loss);
        if self.most == u64::MAX {
            if !is_overflow || loss.under_way < loss.least {
                return Verdict::Unchanged;
            }
            self.before = loss.under_way;
            self.below = Spell::default();
            return self.lower(&loss, loss.under_way, if loss.starting { KEPT_OF_START } else { KEPT });
        }
        self.below.lost += loss.packets;
        if self.most == self.lowest {
            return self.below_the_ceiling(&loss, is_overflow);
        }
        // Back to what had been enough.
        if is_overflow { self.lower(&loss, self.enough, EIGHTHS) } else { Verdict::Unchanged }
    }

    fn end_spell(&mut self) {
        if self.spell.packets() >= self.spell_packets {
            self.spell = Spell::default();
        }
    }

    /// Whether a queue overflowed: it shows, or more is lost than chance would take. Where that takes some, a queue that
    /// shows says nothing.
    fn is_overflow(&mut self, loss: &Loss) -> bool {
        self.spell.lost += loss.packets;
        self.spell_packets = loss.packets_under_way.max(SPELL_PACKETS);
        let is_chance = self.is_chance(loss.now);
        let is_many = self.spell.is_many(if is_chance { self.chance } else { 0.0 }, self.spell_packets);
        self.end_spell();
        is_many || !is_chance && loss.shows_queue()
    }

    /// Packets were lost though no more was under way than had been enough.
    fn below_the_ceiling(&mut self, loss: &Loss, is_overflow: bool) -> Verdict {
        if self.is_chance(loss.now) && !is_overflow {
            return Verdict::Unchanged;
        }
        self.judged_at = loss.now;
        self.strikes += 1;
        if self.strikes < STRIKES {
            return if is_overflow {
                self.lower(loss, self.most, KEPT_OF_CEILING)
            } else {
                Verdict::Unchanged
            };
        }
        let before = self.before;
        self.chance = self.below.share().min(MOST_CHANCE);
        self.chance_until = loss.now + CHANCE;
        self.vanish();
        Verdict::Chance(before)
    }

    /// There is no ceiling any more.
    fn vanish(&mut self) {
        let Self { chance_until, chance, spell, spell_packets, .. } = *self;
        *self = Self { chance_until, chance, spell, spell_packets, ..Self::new() };
    }

    fn lower(&mut self, loss: &Loss, from: u64, eighths: u64) -> Verdict {
        self.most = from - from / EIGHTHS * (EIGHTHS - eighths);
        (self.lowest, self.enough) = (self.most, self.most);
        self.spell = Spell::default();
        self.judged_at = loss.now;
        self.rises_at = loss.now + HOLD.max(HOLD_ROUNDS * Duration::from_nanos(loss.rtt_ns));
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
            packets: 1,
            under_way,
            packets_under_way: under_way / 1472,
            least: 30_000,
            rtt_ns: 600_000,
            min_rtt_ns: 100_000,
            starting: false,
        }
    }

    /// The same where no queue shows.
    fn short(ms: u64, under_way: u64) -> Loss {
        Loss { rtt_ns: 140_000, ..loss(ms, under_way) }
    }

    /// So many packets arrive at `ms`.
    fn arrive(ceiling: &mut Ceiling, ms: u64, packets: u64) {
        let ns = 600_000;
        ceiling.on_ack(&Acked {
            now: at(ms),
            cost: packets * 1472,
            packets,
            marked: 0,
            rtt_ns: ns,
            lasting_rtt_ns: ns,
            min_rtt_ns: 100_000,
            srtt_ns: ns,
            sent_at: Instant::from_nanos(ms * 1_000_000 - ns),
            under_way: 0,
            window_limited: true,
        });
    }

    #[test]
    fn what_overflowed_a_queue_is_tried_again_slowly() {
        let mut ceiling = Ceiling::new();
        assert_eq!(ceiling.on_loss(loss(10, 80_000)), Verdict::Overflow(70_000));
        let burst = Loss { sent_at: at(9), ..loss(10, 80_000) };
        assert_eq!(ceiling.on_loss(burst), Verdict::Unchanged, "sent before the ceiling was lowered");
        let rise = |ceiling: &mut Ceiling, ms| {
            arrive(ceiling, ms, 1);
            ceiling.most()
        };
        assert_eq!(rise(&mut ceiling, 200), 70_000, "it is held");
        assert_eq!(rise(&mut ceiling, 211), 74_375);
        assert_eq!(rise(&mut ceiling, 262), 78_750);
        assert_eq!(ceiling.on_loss(loss(270, 78_750)), Verdict::Overflow(74_375), "back to what was enough");
        // The queue has grown: some steps more, each twice the one before, and it is gone.
        for step in 0..8 {
            rise(&mut ceiling, 500 + 51 * step);
        }
        assert_eq!(ceiling.most(), u64::MAX);
    }

    #[test]
    fn where_round_trips_are_long_an_overflow_is_waited_for() {
        let mut ceiling = Ceiling::new();
        let far = Loss { rtt_ns: 100_000_000, min_rtt_ns: 50_000_000, ..loss(10, 80_000) };
        assert_eq!(ceiling.on_loss(far), Verdict::Overflow(70_000));
        arrive(&mut ceiling, 800, 1);
        assert_eq!(ceiling.most(), 70_000);
        arrive(&mut ceiling, 811, 1);
        assert_eq!(ceiling.most(), 74_375);
    }

    #[test]
    fn chance_goes_on_below_and_is_believed_for_a_while() {
        for later in [loss, short] {
            let mut ceiling = Ceiling::new();
            assert_eq!(ceiling.on_loss(loss(10, 80_000)), Verdict::Overflow(70_000));
            ceiling.on_loss(later(20, 70_000));
            ceiling.on_loss(later(30, 50_000));
            assert_eq!(
                ceiling.on_loss(later(40, 40_000)),
                Verdict::Chance(80_000),
                "whether a queue shows or not"
            );
            assert_eq!(ceiling.most(), u64::MAX);
            assert!(ceiling.is_chance(at(5_000)) && !ceiling.is_chance(at(10_050)));
            assert_eq!(ceiling.on_loss(loss(5_000, 90_000)), Verdict::Unchanged);
            assert!(matches!(ceiling.on_loss(loss(10_050, 90_000)), Verdict::Overflow(_)));
        }
    }

    #[test]
    fn what_is_lost_below_with_a_queue_lowers_it_and_without_one_does_not() {
        let mut ceiling = Ceiling::new();
        ceiling.on_loss(loss(10, 80_000));
        assert_eq!(ceiling.on_loss(short(20, 70_000)), Verdict::Unchanged);
        assert_eq!(ceiling.on_loss(loss(30, 70_000)), Verdict::Overflow(52_500));
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
        assert_eq!(ceiling.on_loss(short(10, 80_000)), Verdict::Unchanged);
        let long = Loss { rtt_ns: 21_000_000, min_rtt_ns: 20_000_000, ..loss(10, 80_000) };
        assert_eq!(ceiling.on_loss(long), Verdict::Unchanged, "an eighth of the path is its own noise");
    }

    /// Though the queue is too short to show.
    #[test]
    fn many_losses_in_a_row_are_an_overflow() {
        let mut ceiling = Ceiling::new();
        for ms in 10..18 {
            arrive(&mut ceiling, ms, 20);
            assert_eq!(
                ceiling.on_loss(short(ms, 80_000)),
                Verdict::Unchanged,
                "eight of two hundred are few"
            );
        }
        assert_eq!(ceiling.on_loss(short(18, 80_000)), Verdict::Overflow(70_000));
        let mut ceiling = Ceiling::new();
        arrive(&mut ceiling, 8, 1_000_000);
        arrive(&mut ceiling, 9, 1_000_000);
        let burst = Loss { packets: 20, packets_under_way: 500, under_way: 700_000, ..short(10, 0) };
        assert_eq!(
            ceiling.on_loss(burst),
            Verdict::Overflow(612_500),
            "what arrived long before does not count"
        );
        let mut ceiling = Ceiling::new();
        let burst = Loss { packets_under_way: 1_000, ..burst };
        assert_eq!(ceiling.on_loss(burst), Verdict::Unchanged, "20 of 1,000 are few");
    }

    /// A twentieth is lost by chance, and that is known; then a fifth.
    #[test]
    fn more_than_chance_takes_is_an_overflow() {
        let mut ceiling = Ceiling::new();
        ceiling.on_loss(loss(10, 80_000));
        for ms in 11..13 {
            arrive(&mut ceiling, ms, 20);
            ceiling.on_loss(short(ms, 80_000));
        }
        arrive(&mut ceiling, 14, 20);
        assert_eq!(ceiling.on_loss(short(14, 80_000)), Verdict::Chance(80_000));
        for ms in 20..1_000 {
            arrive(&mut ceiling, ms, 19);
            assert_eq!(ceiling.on_loss(loss(ms, 80_000)), Verdict::Unchanged, "as much as before, at {ms}");
        }
        let lost = (1_000..1_100).find(|&ms| {
            arrive(&mut ceiling, ms, 16);
            ceiling.on_loss(Loss { packets: 4, ..short(ms, 80_000) }) == Verdict::Overflow(70_000)
        });
        assert!(lost.is_some_and(|ms| ms < 1_030), "{lost:?}");
    }
}
