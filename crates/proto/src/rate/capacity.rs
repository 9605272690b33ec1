//! What a host can receive: bytes per second, and bytes in a row (R11, R12).
//!
//! Inputs → outputs: what arrived in an interval, what was lost in it, how fast the application took
//! it if it never had nothing to take, whether senders were held back by their rates → rate and burst
//! for all together. Source: R12 (*packets receivable in a row =
//! packets received / recoveries started*; *if the burst is right and losses go on, the measured
//! arrival rate is the new base*), R11 (up again when there may be more). Deviations: rate and burst are
//! raised in turns, so that it is known which of them was too much; and what half of a rate still loses is chance (decision
//! 88).

use super::search::{CAREFUL_STEP, KEPT, MEMORY, Search};
use super::{MAX_RATE, Rate, rate_of};
use core::time::Duration;
use denrei_wire::Instant;

/// And the rate is this at least, bytes per second, R9's smallest: loss by chance goes on at any rate.
const LEAST_RATE: u64 = 100_000;
/// The rate is raised by this share while nothing is known to be too much.
const FREE_STEP: u64 = 4;
/// Intervals in which the application was busy without a pause that are remembered: the fastest of
/// them counts, for a process that was kept off its core takes less than it could.
const BUSY_INTERVALS: usize = 8;
/// One recovery in so many datagrams is none of the limits' doing: a process was kept off its core.
const TOLERATED_DATAGRAMS: u64 = 1_000;
/// A burst that is too large loses in each; it is to blame if no more than this many bursts came
/// between two recoveries.
const BURSTS_TO_BLAME: u64 = 2;
/// Losses in so many intervals in a row may be the rate's. If they go on the burst is lowered by steps that grow, but by no
/// more than that many 32nds at once.
const MAY_BE_THE_RATES: u32 = 4;
const LARGEST_STEP: u32 = 16;
/// What arrives is much less than the rate if it is less by such a share, and as much if it is less by no more than that one.
const MUCH_LESS: u64 = 8;
const AS_MUCH: u64 = 64;
/// RTIMER is not longer: an interval would not have its bursts, and who waits for the next one seems idle. A burst that
/// lasts longer is not sent, and nothing is learnt from raising it.
pub(super) const LONGEST_RTIMER_PER_S: u64 = 20;
/// And not shorter: a sender that sleeps would be late by much of it. A smaller burst is not told.
pub(super) const SHORTEST_RTIMER_PER_S: u64 = 4_000;
/// A rate so many times less than what has come of late overflows nothing: what is lost then is lost by chance (decision 88).
const SMALL_RATE: u64 = 2;
/// The burst holds this many datagrams at least: one is what R9 begins with.
const LEAST_BURST_DATAGRAMS: u64 = 1;

/// What came in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub length: Duration,
    /// Octets of messages that arrived.
    pub octets: u64,
    /// Recoveries that began.
    pub recoveries: u64,
    /// Largest datagram, octets.
    pub datagram: u64,
    /// The senders would have sent more: their throughput was their rate.
    pub held_back: bool,
    /// Octets per second that the application took, if messages waited for it all the time: what came
    /// faster has queued up here.
    pub taken: Option<u64>,
    /// Packets are lost by chance, too: bursts that overflow would not be told from that.
    pub chance: bool,
}

impl Interval {
    /// Octets per second.
    pub fn rate(&self) -> u64 {
        rate_of(self.octets, self.length)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Raised {
    Rate,
    Burst,
}

/// The limits of a host, as far as they are known.
#[derive(Debug)]
pub(crate) struct Capacity {
    rate: Search,
    burst: Search,
    /// So many bursts a second are the least.
    rtimers_per_s: u64,
    /// What was raised last, if nothing was lost since.
    raised: Option<Raised>,
    /// The burst was raised, something was lost, and it was taken back: should losses go on, it was not
    /// the burst.
    accused: bool,
    /// Intervals in a row in which something was lost.
    lossy: u32,
    /// How fast the application took, lately, octets per second; 0: not known.
    taken: [u64; BUSY_INTERVALS],
    /// Octets since the last recovery began.
    since_recovery: u64,
    /// The fastest that came of late, octets per second, and until when that counts. What came before this side became
    /// slower does not.
    fastest: (u64, Instant),
}

impl Capacity {
    /// After an overrun. `first`: what came in it; `buffer`: octets of datagrams that the socket holds.
    pub fn new(first: &Interval, buffer: u64, rtimers_per_s: u64) -> Self {
        let bytes_per_s = (first.rate() * KEPT / 32).max(LEAST_RATE);
        let burst_bytes = (buffer / 32 * 30).min(bytes_per_s / rtimers_per_s);
        Self::of(Rate { bytes_per_s, burst_bytes }, rtimers_per_s)
    }

    /// Those limits are known, and nothing else.
    pub fn of(limits: Rate, rtimers_per_s: u64) -> Self {
        Self {
            rate: Search::new(limits.bytes_per_s),
            burst: Search::new(limits.burst_bytes),
            rtimers_per_s,
            raised: None,
            accused: false,
            lossy: 0,
            taken: [0; BUSY_INTERVALS],
            since_recovery: 0,
            fastest: (0, Instant::ZERO),
        }
    }

    /// Whether the rate is so far below what has come of late that it cannot be what loses.
    pub fn is_small(&self) -> bool {
        self.rate.value < self.fastest.0 / SMALL_RATE
    }

    /// What was lost was lost by chance: no rate and no burst was too much.
    pub fn acquit(&mut self) {
        self.rate.forget();
        self.burst.forget();
        (self.raised, self.accused, self.lossy) = (None, false, 0);
    }

    /// Octets per second over all peers.
    pub fn rate(&self) -> u64 {
        self.rate.value
    }

    /// Octets that may come in a row.
    pub fn burst(&self) -> u64 {
        self.burst.value
    }

    /// Learns from an interval in which what was told before was in force.
    pub fn learn(&mut self, now: Instant, interval: &Interval) {
        if let Some(taken) = interval.taken {
            self.taken.rotate_left(1);
            self.taken[BUSY_INTERVALS - 1] = taken;
        }
        // Where half is lost and more, this side has become slower: what came before says nothing.
        let is_slower = interval.recoveries > 0 && interval.rate() < self.rate.value / 2;
        if interval.rate() >= self.fastest.0 || now >= self.fastest.1 || is_slower {
            self.fastest = (interval.rate(), now + MEMORY);
        }
        let tolerated = TOLERATED_DATAGRAMS * interval.datagram;
        if interval.recoveries == 0 {
            (self.lossy, self.accused) = (0, false);
            self.since_recovery += interval.octets;
            self.raise(now, interval);
        } else if interval.recoveries == 1 && self.since_recovery > tolerated {
            self.since_recovery = 0;
        } else {
            self.lossy += 1;
            self.since_recovery = 0;
            self.lower(now, interval);
        }
    }

    /// The application's pace: the fastest of late, octets per second; 0 if it was never busy.
    fn application(&self) -> u64 {
        self.taken.iter().copied().max().unwrap_or(0)
    }

    /// Something was lost.
    fn lower(&mut self, now: Instant, interval: &Interval) {
        let least = LEAST_BURST_DATAGRAMS * interval.datagram.max(1);
        let in_a_row = interval.octets / interval.recoveries;
        let burst_is_wrong = in_a_row < self.burst.value - self.burst.value / 8;
        // What the application has been seen to take was not too fast.
        let arrived = interval.rate().max(self.application());
        let rate_is_wrong = self.is_rate_a_little_too_high(arrived, in_a_row);
        match self.raised.take() {
            Some(Raised::Rate) => {
                self.rate.lower(now, arrived.max(self.rate.value / 2) * KEPT / 32, true);
            }
            Some(Raised::Burst) => {
                self.accused = in_a_row < self.burst.value * BURSTS_TO_BLAME;
                self.burst.lower(now, self.burst.value, self.accused);
            }
            // A rate that is a little too high shows late, when the buffer is full.
            None if core::mem::take(&mut self.accused) => {
                self.burst.forget();
                self.rate.lower(now, arrived * KEPT / 32, rate_is_wrong);
            }
            // The burst first; if losses go on, the rate; and so on in turns.
            None if self.lossy % 2 == 1 => {
                let most = if burst_is_wrong { in_a_row * KEPT / 32 } else { self.less_burst(in_a_row) };
                self.burst.lower(now, most, false);
            }
            None => self.rate.lower(now, arrived * KEPT / 32, rate_is_wrong),
        }
        self.burst.value = self.burst.value.max(least);
        self.rate.value = self.rate.value.max(LEAST_RATE);
    }

    /// The burst that is tried where no fewer than `in_a_row` octets, nearly a burst, come between two losses. One that loses
    /// each time does not tell by how much it is too large: the longer that goes on, the larger the step.
    fn less_burst(&self, in_a_row: u64) -> u64 {
        let each_loses = in_a_row < self.burst.value * BURSTS_TO_BLAME;
        let step = if each_loses { self.lossy.saturating_sub(MAY_BE_THE_RATES).min(LARGEST_STEP) } else { 0 };
        self.burst.value - self.burst.value / 32 * u64::from(step)
    }

    /// Whether less came than the rate brings, but not much less, in rows so long that the burst is not to blame. What is far
    /// less says that this side has become slower, maybe for a moment.
    fn is_rate_a_little_too_high(&self, arrived: u64, in_a_row: u64) -> bool {
        let rate = self.rate.value;
        let little_less = rate - rate / MUCH_LESS..rate - rate / AS_MUCH;
        in_a_row >= self.burst.value * BURSTS_TO_BLAME && little_less.contains(&arrived)
    }

    /// Nothing was lost: more may fit, if more is wanted, and if messages do not wait here anyway.
    fn raise(&mut self, now: Instant, interval: &Interval) {
        let pace = self.application();
        let busy = interval.taken.is_some();
        if busy && self.rate.value > pace {
            self.rate.lower(now, (pace * KEPT / 32).max(LEAST_RATE), true);
            self.fastest = (self.rate.value, now + MEMORY);
            self.raised = None;
            return;
        }
        if !interval.held_back {
            return;
        }
        let rate_first = self.raised != Some(Raised::Rate);
        let longest = self.rate.value / self.rtimers_per_s;
        self.raised = if !busy && rate_first && self.rate.raise(now, FREE_STEP, MAX_RATE) {
            Some(Raised::Rate)
        } else if !interval.chance && self.burst.raise(now, CAREFUL_STEP, longest) {
            Some(Raised::Burst)
        } else if !busy && !rate_first && self.rate.raise(now, FREE_STEP, MAX_RATE) {
            Some(Raised::Rate)
        } else {
            None
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver that holds `row` octets and takes `rate`: bursts beyond the one lose, and so does
    /// what comes faster than the other.
    #[derive(Clone, Copy)]
    struct Receiver {
        rate: u64,
        row: u64,
    }

    const LENGTH: Duration = Duration::from_millis(20);
    const DATAGRAM: u64 = 1400;

    impl Receiver {
        /// What an interval brings if `rate` and `burst` are in force and senders have more.
        fn interval(self, rate: u64, burst: u64) -> Interval {
            let sent = rate / 50;
            let bursts = (sent / burst.max(1)).max(1);
            let fits = if burst > self.row { sent * self.row / burst } else { sent };
            let octets = fits.min(self.rate / 50);
            let recoveries = if octets < sent { bursts } else { 0 };
            let datagram = DATAGRAM;
            Interval { length: LENGTH, octets, recoveries, datagram, held_back: true, ..Interval::default() }
        }

        /// Rate, burst, and recoveries per 1000 packets of the last 8 s of 10.
        fn settle(self, capacity: &mut Capacity) -> (f64, f64, f64) {
            let (mut recoveries, mut octets) = (0, 0);
            for step in 0..500u64 {
                let now = Instant::ZERO + LENGTH * step as u32;
                let interval = self.interval(capacity.rate(), capacity.burst());
                capacity.learn(now, &interval);
                if step >= 100 {
                    (recoveries, octets) = (recoveries + interval.recoveries, octets + interval.octets);
                }
            }
            let rate = octets as f64 / 8.0 / self.rate as f64;
            let burst = capacity.burst() as f64 / self.row as f64;
            (rate, burst, recoveries as f64 * 1e3 * DATAGRAM as f64 / octets as f64)
        }
    }

    #[test]
    fn both_limits_are_found_from_above_and_from_below() {
        for (rate, row) in [
            (13_000_000, 84_000),
            (1_000_000, 18_032),
            (650_000, 18_032),
            (125_000_000, 400_000),
            (1_000_000_000, 4_000_000),
        ] {
            for (first_rate, buffer) in [(rate, 2 * row), (rate / 4, row), (rate * 3, 16 * row)] {
                let receiver = Receiver { rate, row };
                let first = Interval { length: LENGTH, octets: first_rate / 50, ..Interval::default() };
                let mut capacity = Capacity::new(&first, buffer, LONGEST_RTIMER_PER_S);
                let (used, burst, recoveries) = receiver.settle(&mut capacity);
                let case = format!("{rate} B/s, {row} in a row, from {first_rate} and {buffer}");
                assert!(used > 0.95, "{case}: {used} of the rate");
                assert!((0.9..=1.0).contains(&burst), "{case}: {burst} of the burst");
                assert!(recoveries <= 1.0, "{case}: {recoveries} recoveries per 1000 packets");
            }
        }
    }

    /// R9's two receivers: about 40 and 13 packets of 1454 bytes in a row.
    #[test]
    fn the_burst_is_what_comes_between_two_recoveries() {
        for (packets, recoveries, expected) in [(1000, 25, 40), (1000, 77, 13)] {
            let octets = packets * 1454;
            let first = Interval { length: LENGTH, octets, ..Interval::default() };
            let mut capacity = Capacity::new(&first, 1 << 20, LONGEST_RTIMER_PER_S);
            let datagram = 1454;
            capacity.learn(Instant::ZERO, &Interval { recoveries, datagram, held_back: true, ..first });
            let learnt = capacity.burst() as f64 / 1454.0;
            assert!((0.9..=1.0).contains(&(learnt / expected as f64)), "{learnt} packets of {expected}");
            assert_eq!(capacity.rate(), first.rate() * 31 / 32, "the burst is mended first");
        }
    }

    /// As a queue does that is emptied nearly as fast as it is filled: it loses little of each burst that it does not hold.
    #[test]
    fn a_burst_that_loses_one_datagram_each_time_is_found_before_the_rate_is_low() {
        let (rate, row) = (60_000_000, 62_000);
        let first = Interval { length: LENGTH, octets: rate / 50, datagram: DATAGRAM, ..Interval::default() };
        let mut capacity = Capacity::new(&first, 5 * row, LONGEST_RTIMER_PER_S);
        for step in 0..50 {
            let sent = capacity.rate() / 50;
            let lost = if capacity.burst() > row { sent / capacity.burst() } else { 0 };
            let octets = sent - lost * DATAGRAM;
            let interval = Interval { octets, recoveries: lost, held_back: true, ..first };
            capacity.learn(Instant::ZERO + LENGTH * step, &interval);
            assert!(!capacity.is_small(), "{step}: what the burst loses passes for chance from now on");
        }
        let burst = capacity.burst() as f64 / row as f64;
        assert!((0.7..=1.0).contains(&burst), "{burst} of the burst within 1 s");
        assert!(capacity.rate() > rate / 2, "{}", capacity.rate());
    }

    #[test]
    fn losses_that_go_on_make_the_arrival_rate_the_new_base() {
        let first = Interval { length: LENGTH, octets: 2_000_000, ..Interval::default() };
        let mut capacity = Capacity::new(&first, 100_000, LONGEST_RTIMER_PER_S);
        let lossy = Interval { octets: 1_000_000, recoveries: 20, held_back: true, ..first };
        capacity.learn(Instant::ZERO, &lossy);
        assert_eq!(capacity.rate(), 100_000_000 * 31 / 32);
        capacity.learn(Instant::ZERO, &lossy);
        assert_eq!(capacity.rate(), 50_000_000 * 31 / 32);
    }

    #[test]
    fn loss_by_chance_does_not_close_the_rate() {
        let lossy = Interval { length: LENGTH, octets: 2_000, recoveries: 1, ..Interval::default() };
        let mut capacity = Capacity::new(&lossy, 100_000, LONGEST_RTIMER_PER_S);
        for _ in 0..1_000 {
            capacity.learn(Instant::ZERO, &Interval { datagram: DATAGRAM, ..lossy });
        }
        assert_eq!((capacity.rate(), capacity.burst()), (LEAST_RATE, DATAGRAM));
    }

    /// What comes in 20 ms of a rate, for an application that takes 13 MB/s and less now and then.
    fn of_a_busy_application(step: u64, rate: u64, waiting: &mut u64) -> Interval {
        let pace = if step.is_multiple_of(7) { 4_000_000 } else { 13_000_000 };
        let octets = rate / 50;
        let taken = (*waiting + octets).min(pace / 50);
        *waiting = *waiting + octets - taken;
        let taken = (*waiting > 0).then_some(taken * 50);
        Interval { length: LENGTH, octets, datagram: DATAGRAM, held_back: true, taken, ..Interval::default() }
    }

    #[test]
    fn what_the_application_takes_is_known_without_any_loss() {
        let mut waiting = 0;
        let first = of_a_busy_application(1, 100_000_000, &mut waiting);
        let mut capacity = Capacity::new(&first, 80_000, LONGEST_RTIMER_PER_S);
        let mut most = 0;
        for step in 1..500 {
            let interval = of_a_busy_application(step, capacity.rate(), &mut waiting);
            capacity.learn(Instant::ZERO + LENGTH * step as u32, &interval);
            most = if step > 20 { most.max(capacity.rate()) } else { 0 };
            assert!(!capacity.is_small(), "{}: a backlog of the beginning is no pace", capacity.rate());
        }
        assert!((12_000_000..=13_000_000).contains(&capacity.rate()), "{}", capacity.rate());
        assert!(most <= 13_000_000, "{most}: messages wait without end");
    }

    #[test]
    fn a_burst_longer_than_any_that_is_sent_is_not_raised() {
        let pace = 13_000_000;
        let interval = Interval {
            length: LENGTH,
            octets: pace / 50,
            datagram: DATAGRAM,
            held_back: true,
            taken: Some(pace),
            ..Interval::default()
        };
        let mut capacity = Capacity::new(&interval, 80_000, LONGEST_RTIMER_PER_S);
        for step in 0..10_000 {
            capacity.learn(Instant::ZERO + LENGTH * step, &interval);
        }
        assert!((75_000..=pace / LONGEST_RTIMER_PER_S).contains(&capacity.burst()), "{}", capacity.burst());
    }

    #[test]
    fn a_rate_a_little_too_high_is_not_blamed_on_the_burst() {
        let receiver = Receiver { rate: 13_000_000, row: 84_000 };
        let first = Interval { length: LENGTH, octets: receiver.rate / 50, ..Interval::default() };
        let mut capacity = Capacity::new(&first, receiver.row / 4 * 3, LONGEST_RTIMER_PER_S);
        // It fills the buffer slowly: by the time something is lost the burst has been raised.
        capacity.rate.value = receiver.rate / 100 * 103;
        capacity.raised = Some(Raised::Burst);
        for step in 0..100 {
            let interval = receiver.interval(capacity.rate(), capacity.burst());
            capacity.learn(Instant::ZERO + LENGTH * step, &interval);
        }
        let burst = capacity.burst() as f64 / receiver.row as f64;
        assert!((0.9..=1.0).contains(&burst), "{burst} of the burst within 2 s");
        let rate = capacity.rate() as f64 / receiver.rate as f64;
        assert!((0.93..=1.0).contains(&rate), "{rate} of the rate");
    }

    #[test]
    fn one_recovery_in_a_thousand_packets_changes_nothing() {
        let clean =
            Interval { length: LENGTH, octets: 1_000 * DATAGRAM, datagram: DATAGRAM, ..Interval::default() };
        let mut capacity = Capacity::new(&clean, 80_000, LONGEST_RTIMER_PER_S);
        let before = (capacity.rate(), capacity.burst());
        for _ in 0..20 {
            capacity.learn(Instant::ZERO, &clean);
            capacity.learn(Instant::ZERO, &clean);
            capacity.learn(Instant::ZERO, &Interval { recoveries: 1, ..clean });
        }
        assert_eq!((capacity.rate(), capacity.burst()), before);
        capacity.learn(Instant::ZERO, &Interval { recoveries: 1, ..clean });
        assert!(capacity.burst() < before.1, "two within a thousand are the burst's");
    }

    #[test]
    fn nothing_is_raised_for_who_does_not_use_what_it_has() {
        let first = Interval { length: LENGTH, octets: 2_000_000, ..Interval::default() };
        let mut capacity = Capacity::new(&first, 100_000, LONGEST_RTIMER_PER_S);
        for _ in 0..100 {
            capacity.learn(Instant::ZERO, &first);
        }
        assert_eq!((capacity.rate(), capacity.burst()), (100_000_000 * 31 / 32, 93_750));
    }
}
