//! The manager of a host's rates (R10, R13): who may send how fast, when the host learns what it can
//! receive.
//!
//! Inputs → outputs: packets of each peer, and what was missing before them; time → rate and burst for
//! each. Source: R11–R13; `spec/protocol.md` §13.7. [`Capacity`] learns what the host can receive in
//! all; [`max_min`] shares it. Who does not use its share lends it to those held back by theirs, and
//! has it back as soon as it is used: nobody's rate is below its fair share.

use super::capacity::{Capacity, Interval, LONGEST_RTIMER_PER_S};
use super::chance::{Chance, Verdict};
use super::flow::Flow;
use super::heard::{Heard, Taken};
use super::share::{Want, max_min};
use super::{HostRecord, MAX_RATE, Rate};
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::BTreeMap;

/// And of so many datagrams at least, but not longer than the longest interval.
const LEAST_DATAGRAMS: u64 = 32;
const LONGEST_INTERVAL: Duration = Duration::from_millis(200);
/// RTIMER is not shorter: a sender that sleeps cannot keep time any better.
const LEAST_RTIMER_PER_S: u64 = 1000;
/// A recovery lasts this long: what is missing after a shorter time belongs to it.
const LEAST_RECOVERY: Duration = Duration::from_millis(1);
/// Headers and trailer of a data packet, about, octets: rates count what is in it.
const PACKET_OVERHEAD: u64 = 48;
/// Octets lost beyond what is lost by chance that are more than a bad run: some ten datagrams.
const MOST_EXCESS: u64 = 16 * 1024;
/// An interval has so many bursts at least, or one more or less would count for much.
const BURSTS: u32 = 4;
/// An overrun says something of the host for this long.
const OVERRUN_COUNTS: Duration = Duration::from_secs(10);
/// Rates are told if they have changed by more than this share, or somebody has become active.
const WORTH_TELLING: u64 = 64;

/// All flows of one endpoint.
#[derive(Debug)]
pub(crate) struct Manager {
    /// Known once the first interval is over.
    capacity: Option<Capacity>,
    /// By the slot of the peer that sends, to this host alone or to a group.
    flows: BTreeMap<u32, Flow>,
    /// Octets of datagrams that the socket holds.
    buffer: u64,
    began: Instant,
    /// How long it lasts.
    lasts: Duration,
    /// Until then what was learnt last is not in force everywhere.
    settled_at: Instant,
    /// What was learnt when shares were told last.
    shared: Rate,
    datagrams: u64,
    recoveries: u64,
    /// What is missing before then, from whomever, belongs to the last of them.
    recovery_until: Instant,
    datagram: u64,
    chance: Chance,
    /// Longest round trip of the peers told.
    rtt: Duration,
    heard_at: Instant,
    /// What the application had taken when the interval began.
    taken: Taken,
    /// It began because this side was overrun.
    overrun: bool,
    host: HostView,
}

/// What is known of the other Nodes of this host.
#[derive(Debug, Default)]
struct HostView {
    /// This Node's share, bytes per second, if there is a limit.
    share: Option<u64>,
    /// It is one of what the Nodes learn together, and not of what the host was said to take.
    is_learnt: bool,
    /// What comes to the others, bytes per second.
    others: u64,
    /// What came to all when this one was overrun, and when that was.
    overrun: Option<(u64, Instant)>,
}

impl Manager {
    /// What came is looked at this often: longer than a process is usually late.
    pub const INTERVAL: Duration = Duration::from_millis(10);

    /// After an overrun. `buffer`: octets of datagrams that the socket holds; `rtt`: the longest round
    /// trip of any session.
    pub fn new(now: Instant, buffer: u64, rtt: Duration, taken: Taken) -> Self {
        Self {
            capacity: None,
            flows: BTreeMap::new(),
            buffer,
            began: now,
            lasts: Self::INTERVAL,
            settled_at: now,
            shared: Rate::UNLIMITED,
            datagrams: 0,
            recoveries: 0,
            recovery_until: now,
            datagram: 0,
            chance: Chance::new(now, MOST_EXCESS),
            rtt,
            heard_at: now,
            taken,
            overrun: true,
            host: HostView::default(),
        }
    }

    /// This side was not overrun: it shares a host with others.
    pub fn of_shared_host(self) -> Self {
        Self { overrun: false, ..self }
    }

    /// What to tell the other Nodes of this host.
    pub fn host_record(&self, now: Instant) -> HostRecord {
        let active = || self.flows.values().filter(|flow| flow.lately > 0);
        let lately = |&(_, at): &(u64, Instant)| now.saturating_since(at) < OVERRUN_COUNTS;
        HostRecord {
            weight: active().map(|flow| flow.weight as u64).sum(),
            bytes_per_s: active().map(|flow| flow.lately).sum(),
            held_back: active().any(|flow| !flow.fixed && flow.is_held_back()),
            overrun_bytes_per_s: self.host.overrun.filter(lately).map_or(0, |(rate, _)| rate),
        }
    }

    /// What this Node may receive, if there is a limit, and what comes to the others of its host. `is_learnt`: the
    /// limit is what the Nodes learn together, which they forget after a while.
    pub fn set_host_share(&mut self, share: Option<u64>, is_learnt: bool, others: u64) {
        (self.host.share, self.host.is_learnt, self.host.others) = (share, is_learnt, others);
    }

    /// Takes in a packet: also one without data, before which the rest of a burst may be missing. Whoever has nothing
    /// left of its rate asks what became of that with such a one.
    pub fn on_packet(&mut self, now: Instant, peer: u32, weight: u32, heard: Heard) {
        if heard.data > 0 {
            self.count(now, peer, weight, heard.data);
        }
        let datagram = self.datagram;
        let Some(flow) = self.flows.get_mut(&peer) else { return };
        let rtimer = flow.told.map_or(Duration::ZERO, Rate::rtimer);
        let is_loss = flow.skips.is_loss(heard.missing);
        if is_loss
            && self.is_overflow(now, heard.missing.saturating_mul(datagram))
            && now >= self.recovery_until
        {
            self.recovery_until = now + LEAST_RECOVERY.max(rtimer / 2);
            self.recoveries += 1;
        }
    }

    /// So many octets have come, in a datagram.
    fn count(&mut self, now: Instant, peer: u32, weight: u32, octets: u64) {
        self.heard_at = now;
        let flow = self.flows.entry(peer).or_insert_with(|| Flow::new(weight));
        flow.weight = weight;
        flow.octets += octets.saturating_sub(PACKET_OVERHEAD).max(1);
        self.datagrams += 1;
        self.datagram = self.datagram.max(octets);
        self.chance.on_arrival(now, octets);
    }

    /// Whether so many octets were more than this side could take, and not lost by chance.
    fn is_overflow(&mut self, now: Instant, octets: u64) -> bool {
        let Some(capacity) = &mut self.capacity else { return true };
        match self.chance.judge(now, octets, capacity.is_small()) {
            Verdict::Overflow => return true,
            Verdict::Chance => {}
            Verdict::Found => capacity.acquit(),
        }
        false
    }

    /// The application sets the peer's rate, or leaves it to this side again.
    pub fn set_fixed(&mut self, peer: u32, weight: u32, fixed: bool) {
        let flow = self.flows.entry(peer).or_insert_with(|| Flow::new(weight));
        (flow.fixed, flow.told) = (fixed, None);
    }

    /// Goes on with the flows of another manager, none of which is here.
    pub fn absorb(&mut self, mut other: Self) {
        self.flows.append(&mut other.flows);
    }

    /// The peer is gone.
    pub fn forget(&mut self, peer: u32) {
        self.flows.remove(&peer);
    }

    /// Nobody is held back any more: what to tell them.
    pub fn release(&mut self) -> Vec<(u32, Rate)> {
        (self.shared, self.lasts) = (Rate::UNLIMITED, Self::INTERVAL);
        let told = self.flows.iter_mut().filter_map(|(peer, flow)| flow.told.take().map(|_| *peer));
        told.map(|peer| (peer, Rate::UNLIMITED)).collect()
    }

    /// When to call [`look`](Self::look).
    pub fn deadline(&self) -> Instant {
        self.began + self.lasts
    }

    /// Whether nothing has come for an interval.
    pub fn is_quiet(&self) -> bool {
        self.datagrams == 0 && self.flows.values().all(|flow| flow.throughput == 0)
    }

    /// When data was last heard.
    pub fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Looks at what has come; who is to be told another rate.
    pub fn look(&mut self, now: Instant, taken: Taken) -> Vec<(u32, Rate)> {
        let length = now.saturating_since(self.began);
        if length < self.lasts || (self.datagrams < LEAST_DATAGRAMS && length < LONGEST_INTERVAL) {
            return Vec::new();
        }
        self.flows.values_mut().for_each(|flow| flow.measure(length));
        let held_back = self.flows.values().any(|flow| flow.octets > 0 && !flow.fixed && flow.is_held_back());
        let held_back = held_back && !self.is_share_in_force();
        let octets = self.flows.values().map(|flow| flow.octets).sum();
        let datagram = self.datagram;
        let pace = taken.pace_since(self.taken, length);
        let recoveries = self.recoveries;
        let chance = self.chance.is_known();
        let interval = Interval { length, octets, recoveries, datagram, held_back, taken: pace, chance };
        self.taken = taken;
        if recoveries > 0 {
            let own = self.flows.values().map(|flow| flow.throughput).sum();
            let all = self.host.others.saturating_add(own);
            self.host.overrun = Some((all, now));
        }
        match &mut self.capacity {
            None if self.overrun || recoveries > 0 => {
                self.capacity = (octets > 0).then(|| Capacity::new(&interval, self.buffer));
            }
            None => {}
            Some(capacity) if self.began >= self.settled_at => {
                let was_small = capacity.is_small();
                capacity.learn(now, &interval);
                if capacity.is_small() && !was_small {
                    self.chance.measure(now, length);
                }
            }
            Some(_) => {}
        }
        self.begin(now);
        self.share(now)
    }

    fn begin(&mut self, now: Instant) {
        self.began = now;
        self.datagrams = 0;
        self.recoveries = 0;
        self.flows.values_mut().for_each(|flow| flow.octets = 0);
    }

    /// What may come in all, as far as this Node or its host has limits.
    fn limits(&self) -> Option<Rate> {
        let learnt = self.capacity.as_ref();
        let rates = [learnt.map(Capacity::rate), self.host.share];
        let bytes_per_s = rates.into_iter().flatten().min()?;
        Some(Rate { bytes_per_s, burst_bytes: learnt.map_or(self.buffer, Capacity::burst) })
    }

    /// Whether peers are held back by a share of what the Nodes learn together, and not by what this one has learnt: to
    /// raise that would try nothing, and all of it would come at once when the share is forgotten.
    fn is_share_in_force(&self) -> bool {
        let learnt = self.capacity.as_ref().map(Capacity::rate);
        self.host.is_learnt && learnt.zip(self.host.share).is_some_and(|(learnt, share)| learnt >= share)
    }

    /// Shares the capacity; what is worth telling.
    fn share(&mut self, now: Instant) -> Vec<(u32, Rate)> {
        let Some(Rate { bytes_per_s: all, burst_bytes: row }) = self.limits() else { return self.release() };
        let wants: Vec<Want> = self.flows.values().map(Flow::want).collect();
        let shares = max_min(all, &wants);
        let weights: u64 = wants.iter().map(|want| want.weight as u64).sum();
        let active = self.flows.values().filter(|flow| flow.throughput > 0).count().max(1) as u64;
        let burst = (row / active).max(self.datagram);
        let mut told = Vec::new();
        for ((peer, flow), share) in self.flows.iter_mut().zip(shares) {
            let fair = all as u128 * flow.weight as u128 / weights.max(1) as u128;
            let bytes_per_s = share.max(fair as u64).clamp(1, MAX_RATE);
            let brief = (bytes_per_s / LONGEST_RTIMER_PER_S).max(self.datagram);
            let burst_bytes = burst.min(brief).max(bytes_per_s / LEAST_RTIMER_PER_S).min(MAX_RATE);
            let rate = Rate { bytes_per_s, burst_bytes };
            if !flow.fixed && flow.told.is_none_or(|told| differs(told, rate)) {
                flow.told = Some(rate);
                told.push((*peer, rate));
            }
        }
        let active = self.flows.values().filter(|flow| flow.throughput > 0).filter_map(|flow| flow.told);
        let slowest = active.map(Rate::rtimer).max().unwrap_or_default().min(LONGEST_INTERVAL);
        self.lasts = (slowest * BURSTS).clamp(Self::INTERVAL, LONGEST_INTERVAL);
        let limits = Rate { bytes_per_s: all, burst_bytes: row };
        if differs(self.shared, limits) {
            self.shared = limits;
            self.settled_at = now + self.rtt * 2 + slowest;
        }
        told
    }
}

/// Whether another rate is worth a frame.
fn differs(one: Rate, two: Rate) -> bool {
    let apart = |one: u64, two: u64| one.abs_diff(two) > one.min(two) / WORTH_TELLING;
    apart(one.bytes_per_s, two.bytes_per_s) || apart(one.burst_bytes, two.burst_bytes)
}

#[cfg(test)]
mod tests;
