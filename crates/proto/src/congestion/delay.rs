//! Window steered by delay and ECN marks, for clusters.
//!
//! Source: Swift (Kumar et al., SIGCOMM 2020) for delay against a target, additive increase and
//! bounded multiplicative decrease once per round trip; DCTCP (RFC 8257) for the share of marked
//! packets. Deviations: the target follows the path's minimum RTT, so that one setting serves a
//! switch and the internet. The delay of a round trip is the smallest of its samples: a queue
//! delays all of them, a process that was not scheduled some; and a window is to blame for no more of it than it takes
//! at the fastest pace of late (decision 91). Loss is treated like marks, in
//! proportion to its share, so that chance loss does not close the window; nor does it end the doubling of the start
//! (decision 114). What overflows a queue that is shallower than the target is a ceiling ([`Ceiling`]).

use super::ceiling::{Ceiling, Loss, Verdict};
use super::{Acked, Base, Controller, Limits};
use core::time::Duration;
use denrei_wire::{Instant, duration_nanos};

/// Queueing delay that is always tolerated, nanoseconds: the receiver's scheduling and batches of packets.
const BASE_TARGET_NS: u64 = 500_000;
/// Further tolerance in proportion to the path: a quarter of the minimum RTT.
const TARGET_SHARE: u64 = 4;
/// Of the tolerance, the part from which on there is some queue: the window does not double any more, nor grow
/// boldly. A shallow queue would overflow before the whole of it is reached.
const SOME_QUEUE_SHARE: u64 = 4;
/// So many first windows have to be under way for a loss to be an overflow.
const LEAST_OVERFLOW_WINDOWS: u64 = 2;
/// What a round trip may lose and the window still doubles (decision 114): so many packets, and such a share more.
const START_LOST_PACKETS: u64 = 2;
const START_LOST_SHARE: u64 = 32;
/// Largest share of the window given up in one round trip (Swift's max_mdf).
const MAX_DECREASE: f64 = 0.5;
/// How strongly excess delay shrinks the window (Swift's β).
const DELAY_GAIN: f64 = 0.8;
/// Datagrams the window grows by in one round trip.
const INCREASE_DATAGRAMS: u64 = 2;
/// Below its last maximum the window grows by this share in one round trip instead.
const REGROWTH_SHARE: u64 = 8;
/// After so many round trips without a sign of a queue the increase doubles in each further one: what
/// made the window small was not the path. DCTCP's own would take 800 round trips to fill 100 Gb/s × 200 µs.
const CALM_ROUNDS: u32 = 3;
/// The window never grows by more than this share in a round trip then.
const MOST_INCREASE_SHARE: u64 = 2;
/// The fastest round trip counts for so long: whoever shares the path since then has made it slower.
const FASTEST_COUNTS: Duration = Duration::from_secs(1);
/// A window that has been the least for so long, without a mark, has not made what a round trip takes.
const LEAST_LASTS: Duration = Duration::from_secs(1);
/// In which nothing was sent for so long: that time does not count, as nothing was under way.
const PAUSE: Duration = Duration::from_millis(250);
/// Weight of the newest round trip in the share of marked packets (RFC 8257 g).
const MARK_GAIN: f64 = 1.0 / 16.0;

/// The controller.
#[derive(Debug)]
pub(super) struct Delay {
    limits: Limits,
    window: u64,
    /// Doubling per round trip until the first sign of a queue, or until more than a few are lost.
    starting: bool,
    /// The window before it was last made smaller.
    maximum: u64,
    /// The window, and whether it doubled, before the last persistent loss.
    before_silence: (u64, bool),
    round: Round,
    marked_share: f64,
    queueing: bool,
    /// Increases in a row, a round trip each, since there was a sign of a queue.
    calm_rounds: u32,
    /// Cost acknowledged towards the next increase.
    credit: u64,
    ceiling: Ceiling,
    /// The newest round trip, and the smallest, nanoseconds.
    rtt_ns: u64,
    min_rtt_ns: u64,
    /// Most that was under way in the round trip before this one.
    under_way_before: u64,
    fastest: Pace,
    /// Since when the window has been the least.
    least_since: Option<Instant>,
    /// What round trips have taken since then.
    at_least: Base,
    base: Base,
}

/// A round trip in progress: it ends with the first acknowledgement of a packet sent after it began.
#[derive(Debug)]
struct Round {
    began: Instant,
    packets: u64,
    marked: u64,
    lost: u64,
    min_rtt_ns: u64,
    /// Most that was under way.
    under_way: u64,
}

impl Round {
    fn new(began: Instant) -> Self {
        Self { began, packets: 0, marked: 0, lost: 0, min_rtt_ns: u64::MAX, under_way: 0 }
    }

    /// Whether what it lost can be chance: of a queue that overflows as the window doubles much more is.
    fn lost_few(&self) -> bool {
        self.lost <= START_LOST_PACKETS + (self.packets + self.lost) / START_LOST_SHARE
    }
}

/// What was under way in the fastest round trip of late.
#[derive(Debug, Default)]
struct Pace {
    cost: u64,
    ns: u64,
    seen_at: Instant,
}

impl Pace {
    /// So much was under way in a round trip.
    fn follow(&mut self, cost: u64, began: Instant, now: Instant) {
        let ns = duration_nanos(now.saturating_since(began)).max(1);
        let is_faster = u128::from(cost) * u128::from(self.ns) >= u128::from(self.cost) * u128::from(ns);
        if is_faster || now.saturating_since(self.seen_at) >= FASTEST_COUNTS {
            *self = Self { cost, ns, seen_at: now };
        }
    }

    /// How long so much takes, nanoseconds; for ever if no pace is known.
    fn time_ns(&self, cost: u64) -> u64 {
        let ns = (u128::from(cost) * u128::from(self.ns)).checked_div(u128::from(self.cost));
        ns.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(u64::MAX)
    }
}

impl Delay {
    pub fn new(datagram_bytes: u64) -> Self {
        let limits = Limits::new(datagram_bytes);
        Self {
            limits,
            window: limits.initial(),
            starting: true,
            maximum: 0,
            before_silence: (0, true),
            round: Round::new(Instant::ZERO),
            marked_share: 0.0,
            queueing: false,
            calm_rounds: 0,
            credit: 0,
            ceiling: Ceiling::new(),
            rtt_ns: 0,
            min_rtt_ns: 0,
            under_way_before: 0,
            fastest: Pace::default(),
            least_since: None,
            at_least: Base::default(),
            base: Base::default(),
        }
    }

    fn end_round(&mut self, acked: &Acked) {
        let round = core::mem::replace(&mut self.round, Round::new(acked.now));
        self.under_way_before = round.under_way;
        self.measure(&round, acked);
        if acked.window_limited {
            self.fastest.follow(round.under_way, round.began, acked.now);
        }
        let is_calm = round.marked + round.lost == 0;
        // Most round trips: nothing below would change anything else.
        if is_calm && self.marked_share == 0.0 && round.min_rtt_ns <= some_queue(acked) {
            self.queueing = false;
            return;
        }
        let target = acked.min_rtt_ns.saturating_add(tolerated(acked));
        let rtt_ns = self.to_blame_for(acked, round.min_rtt_ns);
        self.queueing = rtt_ns > target;
        let some_queue = self.shows_some_queue(acked, rtt_ns);
        self.starting &= !some_queue;
        if self.queueing || some_queue || !is_calm {
            self.calm_rounds = 0;
        }
        let by_delay =
            if self.queueing { DELAY_GAIN * (rtt_ns - target) as f64 / rtt_ns as f64 } else { 0.0 };
        if is_calm && self.marked_share == 0.0 && !self.queueing {
            return;
        }
        let sent = (round.packets + round.lost).max(1) as f64;
        let share = round.marked as f64 / sent;
        self.marked_share += MARK_GAIN * (share - self.marked_share);
        // The first mark of a calm period is taken seriously at once.
        let by_marks = if round.marked > 0 { (self.marked_share / 2.0).max(share / 4.0) } else { 0.0 };
        let by_loss = round.lost as f64 / sent / 2.0;
        let decrease = by_delay.max(by_marks).max(by_loss);
        if decrease > 0.0 {
            self.starting &= !self.queueing && round.marked == 0 && round.lost_few();
            self.shrink(decrease);
        }
    }

    /// What a round trip takes whatever the window (decision 111): many that share a queue meet at their least windows,
    /// too, where to yield is right, but seldom for as long as this.
    fn measure(&mut self, round: &Round, acked: &Acked) {
        let paused = || acked.sent_at.saturating_since(round.began) >= PAUSE;
        if self.window > self.limits.clamp(0) || round.marked > 0 || paused() {
            if self.least_since.take().is_some() {
                self.at_least = Base::default();
            }
            return self.base.follow_down(round.min_rtt_ns);
        }
        let since = *self.least_since.get_or_insert(round.began);
        self.at_least.sample(acked.now, round.min_rtt_ns);
        if since + LEAST_LASTS <= acked.now {
            self.base = self.at_least;
        }
    }

    fn shrink(&mut self, decrease: f64) {
        self.maximum = self.window;
        self.window = self.limits.clamp((self.window as f64 * (1.0 - decrease.min(MAX_DECREASE))) as u64);
    }

    fn grow(&mut self, acked: &Acked) {
        if !acked.window_limited {
            return;
        }
        if self.starting {
            // One that is late because a process was does not end the start.
            let rtt_ns = acked.rtt_ns.min(acked.lasting_rtt_ns);
            if !self.shows_some_queue(acked, self.to_blame_for(acked, rtt_ns)) {
                self.raise(acked.cost);
            }
            return;
        }
        self.credit += acked.cost;
        if self.credit >= self.window {
            self.credit = 0;
            let regrowth = self.maximum.saturating_sub(self.window).min(self.window / REGROWTH_SHARE);
            self.calm_rounds = self.calm_rounds.saturating_add(1);
            let doublings = self.calm_rounds.saturating_sub(CALM_ROUNDS).min(u64::BITS / 2);
            let least = INCREASE_DATAGRAMS * self.limits.datagram;
            let bold = (least << doublings).min(self.window / MOST_INCREASE_SHARE);
            self.raise(regrowth.max(bold).max(least));
        }
    }

    /// Whether a round trip shows that a queue begins. Where losses have turned out to be chance, none overflows.
    fn shows_some_queue(&self, acked: &Acked, rtt_ns: u64) -> bool {
        rtt_ns > some_queue(acked) && !self.ceiling.is_chance(acked.now)
    }

    /// What of a round trip this window can have made: the rest is made by a process that waits for its core, and a
    /// smaller window would not make it shorter.
    fn to_blame_for(&self, acked: &Acked, rtt_ns: u64) -> u64 {
        if rtt_ns <= some_queue(acked) {
            return rtt_ns;
        }
        rtt_ns.min(self.fastest.time_ns(self.window).max(acked.min_rtt_ns))
    }

    fn raise(&mut self, by: u64) {
        self.window = self.limits.clamp((self.window + by).min(self.ceiling.most()));
    }
}

/// Queueing delay that is tolerated on a path, nanoseconds.
fn tolerated(acked: &Acked) -> u64 {
    BASE_TARGET_NS.saturating_add(acked.min_rtt_ns / TARGET_SHARE)
}

/// The longest round trip that shows no queue, nanoseconds.
fn some_queue(acked: &Acked) -> u64 {
    acked.min_rtt_ns.saturating_add(tolerated(acked) / SOME_QUEUE_SHARE)
}

impl Controller for Delay {
    fn on_ack(&mut self, mut acked: Acked) {
        acked.min_rtt_ns = self.base.least(acked.now, acked.min_rtt_ns);
        self.round.packets += acked.packets;
        self.round.marked += acked.marked;
        self.round.min_rtt_ns = self.round.min_rtt_ns.min(acked.lasting_rtt_ns);
        self.round.under_way = self.round.under_way.max(acked.under_way);
        (self.rtt_ns, self.min_rtt_ns) = (acked.rtt_ns, acked.min_rtt_ns);
        self.ceiling.on_ack(&acked);
        if !self.queueing && acked.marked == 0 {
            self.grow(&acked);
        }
        if acked.sent_at >= self.round.began {
            self.end_round(&acked);
        }
    }

    fn on_loss(&mut self, now: Instant, sent_at: Instant, packets: u64) {
        self.round.lost += packets;
        let under_way = self.round.under_way.max(self.under_way_before);
        let verdict = self.ceiling.on_loss(Loss {
            now,
            sent_at,
            packets,
            under_way,
            packets_under_way: under_way / self.limits.datagram,
            least: LEAST_OVERFLOW_WINDOWS * self.limits.initial(),
            rtt_ns: self.rtt_ns,
            min_rtt_ns: self.min_rtt_ns,
            starting: self.starting,
        });
        match verdict {
            Verdict::Overflow(most) => {
                self.starting = false;
                self.maximum = self.maximum.max(self.window);
                self.window = self.limits.clamp(self.window.min(most));
            }
            Verdict::Chance(before) => self.maximum = self.maximum.max(before),
            Verdict::Unchanged => {}
        }
    }

    fn on_persistent_loss(&mut self) {
        self.before_silence = (self.window, self.starting);
        self.maximum = self.window;
        self.window = self.limits.clamp(0);
        self.starting = true;
    }

    fn on_absence(&mut self) {
        let (window, starting) = self.before_silence;
        self.window = self.window.max(window);
        self.starting = starting;
    }

    fn set_datagram_bytes(&mut self, bytes: u64) {
        let fresh = self.window == self.limits.initial();
        self.limits = Limits::new(bytes);
        self.window = if fresh { self.limits.initial() } else { self.limits.clamp(self.window) };
    }

    fn window(&self) -> u64 {
        self.window
    }
}
