//! How the Nodes of one host share what it can receive (R10, R13).
//!
//! Inputs → outputs: what each Node says of itself, what the host takes in all if that was set → what it takes as far as
//! that is learnt, and the share of one of them. Source: R12, R13; `spec/protocol.md` §13.8. What a Node's own socket does
//! not hold is that Node's affair; what is lost before is all Nodes', and one of them learns from it for all. Everyone
//! computes the shares from the same records. How records travel is the driver's affair.

use super::capacity::Interval;
use super::learner::Learner;
use super::share::{Want, max_min};
use super::{DEFAULT_WEIGHT, MAX_RATE, Rate, octets_in, rate_of};
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::BTreeMap;

/// One that nobody sends to has this part of a peer's share, to begin with: more than there is, for a moment.
const BEGINNING: u64 = 8;
/// A loss that is heard of within this time after a socket has overflowed may be of that.
const OVERFLOW_COUNTS: Duration = Duration::from_millis(40);
/// What came to all is looked at this often: several records are in it of each.
const INTERVAL: Duration = Duration::from_millis(40);
/// Bursts of several Nodes meet now and then, and nobody can tell those from a rate that is too high: they are this short.
const RTIMERS_PER_S: u64 = 250;
/// Who has read a limit tells its peers after this time, the reading included.
const PASSED_ON: Duration = Duration::from_millis(30);
/// Where nothing has come for so long, what was learnt is forgotten.
const CALM: Duration = Duration::from_secs(30);
/// What others say is believed up to this: octets per second, octets, and the longest that limits are waited for.
const MOST_BYTES_PER_S: u64 = 1 << 40;
const MOST_DATAGRAM: u64 = 1 << 16;
const MOST_RTT: Duration = Duration::from_secs(2);

/// What a Node, or one of its shards, says of itself to the others of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostRecord {
    /// Whose it is. The least of those that are there learns for all.
    pub name: u64,
    /// Weights of the peers and groups that send to it, together.
    pub weight: u64,
    /// How many they are.
    pub senders: u64,
    /// What came of late, bytes per second.
    pub bytes_per_s: u64,
    /// Its peers would send more.
    pub held_back: bool,
    /// Largest datagram, octets.
    pub datagram: u64,
    /// Longest round trip of its peers.
    pub rtt: Duration,
    /// When it was written, by its own clock, nanoseconds; up to then these are counted. 0: it says nothing now.
    pub at: u64,
    /// Octets of messages that came.
    pub octets: u64,
    /// Octets that were lost on the way to its sockets.
    pub lost: u64,
    /// Recoveries that began because of these.
    pub recoveries: u64,
    /// What the host takes in all, if this one has learnt it for all.
    pub learnt: Option<Rate>,
}

impl HostRecord {
    /// Whoever does nothing for so long is stopped, or computes, and takes nothing: longer than a process waits for its
    /// core. The others learn without it meanwhile.
    pub const SILENT: Duration = Duration::from_secs(1);
}

/// What the host takes, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostLimit {
    /// Of all Nodes together; a burst of 0 is no limit to that.
    pub rate: Rate,
    /// The Nodes have learnt it, and may forget it.
    pub is_learnt: bool,
}

/// What the Nodes of a host learn together, in the eyes of one of them.
#[derive(Debug)]
pub struct HostCapacity {
    name: u64,
    /// What was set, bytes per second.
    stated: Option<u64>,
    buffer: u64,
    learner: Learner,
    /// What each record said when the interval began.
    before: BTreeMap<u64, HostRecord>,
    heard_at: Instant,
    /// When it last looked at what the others say.
    looked_at: Option<Instant>,
}

impl HostCapacity {
    /// Nothing is learnt yet. `name`: the own Node's; `stated`: what the host takes, if it was set, bytes per second;
    /// `buffer`: octets that a socket holds.
    pub fn new(now: Instant, name: u64, stated: Option<u64>, buffer: u64) -> Self {
        let learner = Learner::new(now, INTERVAL, buffer, RTIMERS_PER_S);
        Self { name, stated, buffer, learner, before: BTreeMap::new(), heard_at: now, looked_at: None }
    }

    /// Whether this Node has just come, or was stopped, so that what it has learnt is not to be passed on before it has
    /// looked at what the others have.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.looked_at.is_none_or(|at| now.saturating_since(at) >= HostRecord::SILENT)
    }

    /// What was learnt for all, to be passed on.
    pub fn learnt(&self) -> Option<Rate> {
        self.learner.learnt()
    }

    /// What the host takes, if anybody knows.
    pub fn limit(&self) -> Option<HostLimit> {
        let Some(learnt) = self.learnt() else {
            let rate = Rate { bytes_per_s: self.stated?, burst_bytes: 0 };
            return Some(HostLimit { rate, is_learnt: false });
        };
        let stated = self.stated.unwrap_or(u64::MAX);
        let rate = Rate { bytes_per_s: learnt.bytes_per_s.min(stated), ..learnt };
        Some(HostLimit { rate, is_learnt: learnt.bytes_per_s < stated })
    }

    /// Learns from what all say of themselves, this Node included; call it as often as they do.
    pub fn look(&mut self, now: Instant, records: &[HostRecord]) {
        let is_behind = self.is_behind(now);
        self.looked_at = Some(now);
        if records.iter().any(|record| record.weight > 0) {
            self.heard_at = now;
        }
        // What the others have learnt meanwhile is not forgotten for one that knows nothing of it.
        let knows = |record: &&HostRecord| !is_behind || record.name != self.name && record.learnt.is_some();
        let teacher = records.iter().filter(knows).min_by_key(|record| record.name).copied();
        if is_behind || teacher.is_none_or(|teacher| teacher.name != self.name) {
            self.go_on_with(teacher);
            self.begin(now, records);
            return;
        }
        if now.saturating_since(self.heard_at) >= CALM {
            *self = Self::new(now, self.name, self.stated, self.buffer);
            self.looked_at = Some(now);
        }
        // Of one that has just come nothing is known before.
        for record in records.iter().filter(|record| record.at > 0) {
            self.before.entry(record.name).or_insert(*record);
        }
        self.learn(now, records);
    }

    fn go_on_with(&mut self, teacher: Option<HostRecord>) {
        let Some(HostRecord { learnt, .. }) = teacher else { return };
        let believed = |most: u64| most.clamp(1, MAX_RATE);
        self.learner.go_on_with(learnt.map(|Rate { bytes_per_s, burst_bytes }| Rate {
            bytes_per_s: believed(bytes_per_s),
            burst_bytes: believed(burst_bytes),
        }));
    }

    /// Learns from the interval, if it is over.
    fn learn(&mut self, now: Instant, records: &[HostRecord]) {
        let datagram = records.iter().map(|record| record.datagram).max().unwrap_or(0);
        let datagram = datagram.clamp(1, MOST_DATAGRAM);
        let (mut bytes_per_s, mut lost, mut recoveries) = (0u64, 0u64, 0);
        for record in records {
            let before = self.before.get(&record.name).unwrap_or(record);
            let since = |now: u64, before: u64| now.saturating_sub(before);
            let passed = Duration::from_nanos(since(record.at, before.at));
            let came =
                if passed.is_zero() { 0 } else { rate_of(since(record.octets, before.octets), passed) };
            bytes_per_s = bytes_per_s.saturating_add(came);
            lost = lost.saturating_add(since(record.lost, before.lost));
            // One queue that overflows loses packets of several.
            recoveries = since(record.recoveries, before.recoveries).max(recoveries);
        }
        let bytes_per_s = bytes_per_s.min(MOST_BYTES_PER_S);
        let octets = |length| u64::try_from(octets_in(bytes_per_s, length)).unwrap_or(u64::MAX);
        let so_far = now.saturating_since(self.learner.began());
        let Some(length) = self.learner.interval(now, octets(so_far) / datagram) else { return };
        let octets = octets(length);
        self.learner.on_arrival(now, octets);
        if lost > 0 && !self.learner.is_overflow(now, lost) {
            recoveries = 0;
        }
        // To raise what was learnt tries nothing where the limit is what was set.
        let is_in_force = self.limit().is_some_and(|limit| limit.is_learnt);
        let held_back = is_in_force && records.iter().any(|record| record.held_back);
        let chance = self.learner.is_chance_known();
        let interval = Interval { length, octets, recoveries, datagram, held_back, taken: None, chance };
        self.learner.learn(now, &interval);
        let rtt = records.iter().map(|record| record.rtt).max().unwrap_or(Duration::ZERO);
        let heard_by = rtt.min(MOST_RTT) * 2 + PASSED_ON;
        match self.learner.learnt() {
            Some(learnt) => self.learner.tell(now, learnt, learnt.rtimer(), heard_by),
            None => self.learner.release(),
        }
        self.begin(now, records);
    }

    fn begin(&mut self, now: Instant, records: &[HostRecord]) {
        self.learner.begin(now);
        let says = records.iter().filter(|record| record.at > 0);
        self.before = says.map(|record| (record.name, *record)).collect();
    }
}

/// What one Node knows of the others of its host, and tells them.
#[derive(Debug, Default)]
pub(crate) struct HostView {
    /// This Node's share, if there is a limit.
    pub share: Option<Rate>,
    /// It is one of what the Nodes learn together, and not of what the host was said to take.
    pub is_learnt: bool,
    octets: u64,
    common: Losses,
    /// Of this Node alone, since it has looked at them.
    own: Losses,
    /// Whose they are is not known yet.
    undecided: Losses,
    /// Datagrams that the sockets had no room for, as far as it was looked at, and when they became more.
    overflows: Option<u64>,
    overflowed_at: Option<Instant>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Losses {
    octets: u64,
    recoveries: u64,
}

impl Losses {
    fn add(&mut self, other: Self) {
        self.octets = self.octets.saturating_add(other.octets);
        self.recoveries = self.recoveries.saturating_add(other.recoveries);
    }
}

impl HostView {
    /// So many octets of messages have come.
    pub fn on_arrival(&mut self, octets: u64) {
        self.octets = self.octets.saturating_add(octets);
    }

    /// So many octets are missing. `begins`: a recovery.
    pub fn on_loss(&mut self, octets: u64, begins: bool) {
        self.undecided.add(Losses { octets, recoveries: u64::from(begins) });
    }

    /// So many datagrams have had no room in the sockets since these were opened: whether what was lost is this Node's
    /// own affair.
    pub fn decide(&mut self, now: Instant, overflows: u64) {
        if self.overflows.replace(overflows).is_some_and(|before| overflows > before) {
            self.overflowed_at = Some(now);
        }
        let is_own = self.overflowed_at.is_some_and(|at| now.saturating_since(at) < OVERFLOW_COUNTS);
        let whose = if is_own { &mut self.own } else { &mut self.common };
        whose.add(core::mem::take(&mut self.undecided));
    }

    /// Recoveries of this Node's own, since the last call.
    pub fn take_own(&mut self) -> u64 {
        core::mem::take(&mut self.own).recoveries
    }

    /// What is counted.
    pub fn record(&self, now: Instant) -> HostRecord {
        let Losses { octets: lost, recoveries } = self.common;
        HostRecord { at: now.as_nanos(), octets: self.octets, lost, recoveries, ..HostRecord::default() }
    }
}

/// The share of `own`; `None`: nobody knows of a limit. While peers send to a Node it has its share by weight at least, as
/// peers have (`rate/manager.rs`): else two that pause by turns would take it from each other without end. Bursts meet,
/// so that those of all senders together are no more than the limit's.
pub(crate) fn host_share(limit: Option<HostLimit>, own: HostRecord, others: &[HostRecord]) -> Option<Rate> {
    let Rate { bytes_per_s: capacity, burst_bytes: row } = limit?.rate;
    let all = || core::iter::once(&own).chain(others);
    // Another process wrote the records: any number may be in them.
    let sum = |of: fn(&HostRecord) -> u64| all().fold(0, |sum: u64, record| sum.saturating_add(of(record)));
    let (weights, senders) = (sum(|record| record.weight), sum(|record| record.senders));
    if own.weight == 0 {
        let weight = DEFAULT_WEIGHT as u64;
        let bytes_per_s = part(capacity, weight, weights.saturating_add(weight)) / BEGINNING;
        return Some(Rate { bytes_per_s, burst_bytes: part(row, 1, senders.saturating_add(1)) });
    }
    let wants: Vec<Want> = all().filter(|record| record.weight > 0).map(want).collect();
    let share = max_min(capacity, &wants).first().copied()?;
    let bytes_per_s = share.max(part(capacity, own.weight, weights));
    let burst_bytes = part(row, own.senders, senders).max(u64::from(row > 0));
    Some(Rate { bytes_per_s, burst_bytes })
}

fn want(record: &HostRecord) -> Want {
    let weight = u32::try_from(record.weight).unwrap_or(u32::MAX);
    Want::of(weight, record.bytes_per_s, record.held_back)
}

/// What is due to one of that weight.
fn part(capacity: u64, weight: u64, weights: u64) -> u64 {
    (capacity as u128 * weight as u128 / weights.max(1) as u128) as u64
}

#[cfg(test)]
mod tests;
