//! How much may be on its way to this host, over all its peers.
//!
//! Inputs → outputs: octets that arrive, octets that were lost, the time from a grant to its data →
//! a window. Source: R12, R13 (capacity learnt from the arrival rate when losses occur); BBR
//! (Cardwell et al. 2016) for the form: what the path holds, from the largest recent rate and the
//! smallest recent round trip, plus room for a queue. Deviation: the queue's room is learnt from
//! loss and remembered, so that a full queue is not probed for again and again; what is lost by `chance` does not count.

use super::chance::{Chance, Verdict};
use super::{octets_in, rate_of};
use core::time::Duration;
use denrei_wire::Instant;

/// A shallow switch buffer, octets. No more room where overflows hide among chance, or the queue stands, unless it brings a
/// larger rate.
const SHALLOW_QUEUE_BYTES: u64 = 64 * 1024;
/// Room for a queue at first, octets: half of a shallow switch buffer. A link of 1 Gbit/s empties it
/// in 0.26 ms, longer than a process is usually late.
const FIRST_QUEUE_BYTES: u64 = SHALLOW_QUEUE_BYTES / 2;
/// Least room for a queue, in datagrams: one being sent while the next is asked for.
const LEAST_QUEUE_DATAGRAMS: u64 = 4;
/// Arrivals are counted over at least this long: shorter, and a batch of datagrams that waited for
/// this process would look like a faster link.
const LEAST_SAMPLE: Duration = Duration::from_millis(2);
/// Times of arrival in the sample that is taken right after an overrun. What comes then was under way
/// before anyone was limited, so it comes as fast as path and host can: the rate is known before the
/// first full sample ends. As many, or a batch more or less would count for much.
const OVERRUN_ARRIVALS: u32 = 16;
/// That sample is at least as long as the round trip or this: over a long path it is over much sooner.
const OVERRUN_SAMPLE: Duration = Duration::from_micros(200);
/// Samples of which the largest counts.
const SAMPLES: usize = 16;
/// Share of the queue's room that is kept when it was too large, in 1/16.
const KEPT_ON_LOSS: u64 = 11;
/// The queue's room grows by this share with each sample that lost nothing; and by that one while more
/// room brings a larger rate.
const GROWTH_SHARE: u64 = 32;
const RISING_SHARE: u64 = 4;
/// The room that lost is not tried again for this long.
const MEMORY: Duration = Duration::from_secs(10);
/// Samples in a row that lost nothing, with no less room, after which a loss is chance: losses that the room
/// brings would have come before. 128 ms; chance loss that is seldomer does not narrow the room step by step.
const PROVEN_SAMPLES: u32 = 64;
/// What a larger room lost has been heard of after as many times as it takes to narrow it.
const SETTLING: u32 = 4;
/// A path that holds as many times the queue's room is long, and so is one of such a round trip.
const LONG_QUEUES: u64 = 4;
const LONG_PATH: Duration = Duration::from_millis(1);
/// Who waits for a core does so for less, as a rule: as long a queue bridges that.
const LONGEST_QUEUE: Duration = Duration::from_millis(2);
/// The smallest round trip is measured anew after this long.
const RTT_LIFETIME: Duration = Duration::from_secs(10);
/// Samples without growth, by a quarter in the start, after which the rate counts as found (BBR's full pipe).
const PLATEAU: u8 = 3;
/// For so long after an overrun the round trip is no longer than so many times the sessions': the first grants' data
/// comes behind what overran the queue, and of senders that wait for their cores.
const UNSETTLED: Duration = Duration::from_millis(100);
const MOST_UNSETTLED: u32 = 4;
/// Round trip before one was measured and if no session knows one: a LAN's.
const ASSUMED_RTT: Duration = Duration::from_micros(100);

/// The window of a host.
#[derive(Debug)]
pub(crate) struct InboundWindow {
    /// Octets per second, newest last.
    rates: [u64; SAMPLES],
    sample_began: Instant,
    sample_octets: u64,
    /// A part of the sample, and the fastest so far.
    part_began: Instant,
    part_octets: u64,
    part_rate: u64,
    /// The window, not the senders, limited the sample so far.
    sample_limited: bool,
    sample_lost: bool,
    /// Times at which something of the sample arrived, and the last of them.
    sample_arrivals: u32,
    arrived_at: Instant,
    /// Round trip until a grant's is measured.
    assumed_rtt: Duration,
    /// The longest until then.
    most_rtt: Duration,
    settled_at: Instant,
    min_rtt: Duration,
    min_rtt_at: Instant,
    /// Mean of the time from a grant to its data, and mean deviation from it.
    mean_wait: Option<(Duration, Duration)>,
    /// Still looking for the rate: twice what the path seems to hold is let in.
    starting: bool,
    plateau: u8,
    best_rate: u64,
    /// Samples in a row that the window limited and that were no faster than what was known.
    flat: u8,
    /// Octets beyond what the path holds.
    queue: u64,
    /// Above this something was lost, until then.
    ceiling: u64,
    ceiling_until: Instant,
    /// The largest room that lost something, until then.
    lossy: u64,
    shrunk_at: Instant,
    /// Samples since the room changed, or something was lost.
    proven: u32,
    chance: Chance,
    datagram: u64,
    /// Room for a queue that is never exceeded: what the socket holds.
    most_queue: u64,
}

impl InboundWindow {
    /// After an overrun. `buffer`: octets of datagrams that the socket holds; `rtt`: the smallest
    /// round trip of any session, if measured.
    pub fn new(now: Instant, buffer: u64, rtt: Option<Duration>) -> Self {
        Self {
            rates: [0; SAMPLES],
            sample_began: now,
            sample_octets: 0,
            part_began: now,
            part_octets: 0,
            part_rate: 0,
            sample_limited: false,
            sample_lost: false,
            sample_arrivals: 0,
            arrived_at: now,
            assumed_rtt: rtt.unwrap_or(ASSUMED_RTT),
            settled_at: now + UNSETTLED,
            most_rtt: rtt.map_or(Duration::MAX, |rtt| rtt * MOST_UNSETTLED),
            min_rtt: Duration::MAX,
            min_rtt_at: now,
            mean_wait: None,
            chance: Chance::new(now, 2 * SHALLOW_QUEUE_BYTES),
            starting: true,
            plateau: 0,
            best_rate: 0,
            flat: 0,
            queue: FIRST_QUEUE_BYTES.min(buffer / 2),
            ceiling: u64::MAX,
            ceiling_until: now,
            lossy: 0,
            shrunk_at: Instant::ZERO,
            proven: 0,
            datagram: 1472,
            most_queue: buffer / 2,
        }
    }

    /// Octets that may be on their way.
    pub fn octets(&self) -> u64 {
        let held = self.held();
        (if self.starting { held * 2 } else { held }) + self.queue()
    }

    /// Room for a queue, octets.
    pub fn queue(&self) -> u64 {
        self.queue.max(self.least_queue())
    }

    fn least_queue(&self) -> u64 {
        LEAST_QUEUE_DATAGRAMS * self.datagram
    }

    /// Whether what is granted waits for so long on its way, or for this process, that the queue is never empty: more room
    /// would bring nothing but a longer wait, until even the socket's buffer overflows.
    fn stands(&self) -> bool {
        self.mean_wait.is_some_and(|(mean, _)| mean > self.rtt() + LONGEST_QUEUE)
    }

    /// The largest datagram that came, octets.
    pub fn datagram(&self) -> u64 {
        self.datagram
    }

    /// The largest recent arrival rate, bytes/s.
    pub fn rate(&self) -> u64 {
        self.rates.iter().copied().max().unwrap_or(0)
    }

    /// The smallest recent round trip from a grant to its data.
    pub fn rtt(&self) -> Duration {
        if self.min_rtt == Duration::MAX { self.assumed_rtt } else { self.min_rtt.min(self.most_rtt) }
    }

    /// What the path holds at its rate.
    fn held(&self) -> u64 {
        u64::try_from(octets_in(self.rate(), self.rtt())).unwrap_or(u64::MAX / 4)
    }

    /// Data arrived while so much is on its way; `backlog`: senders wait for grants. It may have come since `came`, and
    /// waited for this process: how fast that is read is not how fast it came.
    pub fn on_arrival(&mut self, now: Instant, octets: u64, backlog: bool, came: Instant) {
        if octets > self.datagram {
            self.datagram = octets;
            self.measure_chance(now);
        }
        self.chance.on_arrival(now, octets);
        let waited = came < now;
        if waited {
            self.end_sample_if_long(came);
        }
        self.sample_octets += octets;
        self.sample_limited |= backlog;
        if now > self.arrived_at {
            self.arrived_at = now;
            self.sample_arrivals += 1;
        }
        self.follow_part(now, octets, waited);
        if waited || self.end_sample_if_long(now) {
            return;
        }
        let length = now.saturating_since(self.sample_began);
        if self.rate() == 0 && self.sample_arrivals >= OVERRUN_ARRIVALS && length >= self.overrun_sample() {
            self.rates[SAMPLES - 1] = rate_of(self.sample_octets, length);
            self.starting = false;
        }
    }

    /// Ends the sample at `end`, if it is long enough; whether it is.
    fn end_sample_if_long(&mut self, end: Instant) -> bool {
        let length = end.saturating_since(self.sample_began);
        let is_long = length >= self.least_sample().max(self.rtt());
        if is_long {
            self.end_sample(end, length);
        }
        is_long
    }

    /// A long round trip is not filled while windows grow: how fast data can come is seen in parts of it.
    fn follow_part(&mut self, now: Instant, octets: u64, waited: bool) {
        self.part_octets += octets;
        let length = now.saturating_since(self.part_began);
        if !waited && length >= LEAST_SAMPLE && self.rtt() > LEAST_SAMPLE {
            self.part_rate = self.part_rate.max(rate_of(self.part_octets, length));
            (self.part_began, self.part_octets) = (now, 0);
        }
    }

    /// How long a sample takes at least. Where a path holds much, what overran it may be over before its rate is known.
    /// As long as more comes each time there is more room, one round trip is enough to see that.
    fn least_sample(&self) -> Duration {
        let climbs = self.flat < PLATEAU
            && self.sample_arrivals >= OVERRUN_ARRIVALS
            && self.held() >= LONG_QUEUES * FIRST_QUEUE_BYTES;
        if climbs { Duration::ZERO } else { LEAST_SAMPLE }
    }

    fn overrun_sample(&self) -> Duration {
        if self.assumed_rtt >= LONG_PATH { OVERRUN_SAMPLE } else { self.rtt() }
    }

    /// Whether the round trip is so long that its content is to be granted bit by bit.
    pub fn is_long(&self) -> bool {
        let octets = octets_in(self.rate(), self.assumed_rtt);
        self.assumed_rtt >= LONG_PATH || octets >= u128::from(LONG_QUEUES * self.queue())
    }

    /// Octets per second at which a whole window is granted in one round trip.
    pub fn pace(&self) -> u64 {
        rate_of(self.octets(), self.rtt())
    }

    /// A grant's data came after `rtt`.
    pub fn on_round_trip(&mut self, now: Instant, rtt: Duration) {
        if now >= self.settled_at {
            self.most_rtt = Duration::MAX;
        }
        if rtt <= self.min_rtt || now.saturating_since(self.min_rtt_at) > RTT_LIFETIME {
            self.min_rtt = rtt.max(Duration::from_nanos(100));
            self.min_rtt_at = now;
        }
        let follow = |(mean, deviation): (Duration, Duration)| {
            ((mean * 7 + rtt) / 8, (deviation * 3 + mean.abs_diff(rtt)) / 4)
        };
        self.mean_wait = Some(self.mean_wait.map_or((rtt, rtt / 2), follow));
    }

    /// How long it takes at most, as a rule, from a grant to its data (RFC 6298 §2), once one is known.
    pub fn usual_wait(&self) -> Option<Duration> {
        self.mean_wait.map(|(mean, deviation)| mean + deviation * 4)
    }

    /// So many octets are missing. What is not chance counts once in the time that grants' data takes: a burst of losses
    /// is one.
    pub fn on_loss(&mut self, now: Instant, octets: u64) {
        let is_small = self.is_small();
        match self.chance.judge(now, octets, is_small) {
            Verdict::Overflow => {}
            Verdict::Chance => return,
            Verdict::Found => {
                // Nor was it the room that lost before. What overflows hides among what is lost anyway.
                (self.ceiling, self.lossy) = (u64::MAX, 0);
                self.queue = self.queue.min(SHALLOW_QUEUE_BYTES);
                return;
            }
        }
        self.sample_lost = true;
        // What was granted before may be missed as long as grants' data takes.
        let wait = self.mean_wait.map_or(Duration::ZERO, |(mean, _)| mean);
        if now.saturating_since(self.shrunk_at) < wait.max(self.rtt() + LEAST_SAMPLE) {
            return;
        }
        self.shrunk_at = now;
        self.starting = false;
        self.flat = PLATEAU;
        if core::mem::take(&mut self.proven) >= PROVEN_SAMPLES {
            return;
        }
        self.ceiling = self.queue();
        self.ceiling_until = now + MEMORY;
        self.queue = (self.queue() * KEPT_ON_LOSS / 16).max(self.least_queue());
        self.lossy = self.lossy.max(self.ceiling);
        if !is_small && self.is_small() {
            self.measure_chance(now);
        }
    }

    fn measure_chance(&mut self, now: Instant) {
        self.chance.measure(now, (self.rtt() + LEAST_SAMPLE) * SETTLING);
    }

    /// Whether the room is so far below what lost that it cannot be the same queue that loses: two steps, and one that
    /// the growth is held back by, and no more than a shallow buffer has room for. Or it is at its least.
    fn is_small(&self) -> bool {
        let is_below = 3 * self.queue <= 2 * self.lossy && self.queue <= FIRST_QUEUE_BYTES;
        self.queue <= self.least_queue() || is_below
    }

    fn end_sample(&mut self, now: Instant, length: Duration) {
        let part_rate = core::mem::take(&mut self.part_rate);
        let (rate, known) = (rate_of(self.sample_octets, length).max(part_rate), self.rate());
        if self.sample_limited && self.sample_lost {
            // As fast as it can be: whatever seemed faster was not.
            self.rates = [0; SAMPLES];
        }
        if self.sample_limited || rate > self.rate() {
            self.rates.rotate_left(1);
            self.rates[SAMPLES - 1] = rate;
        }
        if self.sample_limited {
            // A larger window brought more: the path is not full yet.
            self.learn(now, rate, rate > known + known / 16);
        }
        self.sample_began = now;
        self.sample_octets = 0;
        self.sample_limited = false;
        self.sample_lost = false;
        self.sample_arrivals = 0;
    }

    fn learn(&mut self, now: Instant, rate: u64, rising: bool) {
        if rate > self.best_rate + self.best_rate / 4 {
            self.best_rate = rate;
            self.plateau = 0;
        } else {
            self.plateau = self.plateau.saturating_add(1);
            self.starting &= self.plateau < PLATEAU;
        }
        if self.flat < PLATEAU {
            self.flat = if rising { 0 } else { self.flat + 1 };
        }
        if now >= self.ceiling_until {
            (self.ceiling, self.lossy) = (u64::MAX, 0);
        }
        if !self.sample_lost {
            let hidden = self.chance.is_known() || self.stands();
            let most = if hidden && !rising { SHALLOW_QUEUE_BYTES } else { u64::MAX };
            let most = most.min(self.ceiling - self.ceiling / 8).min(self.most_queue);
            let share = if rising { RISING_SHARE } else { GROWTH_SHARE };
            let grown = self.queue + (self.queue / share).max(self.datagram / 8);
            let room = self.queue.max(grown.min(most));
            self.proven = if room == self.queue { self.proven.saturating_add(1) } else { 0 };
            self.queue = room;
        }
    }
}

#[cfg(test)]
mod tests;
