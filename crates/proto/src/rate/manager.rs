//! The manager of a host's rates (R10, R13): who may send how fast, when the host learns what it can
//! receive.
//!
//! Inputs → outputs: packets of each peer, and what was missing before them; time → rate and burst for
//! each. Source: R11–R13; `spec/protocol.md` §13.7. [`Capacity`] learns what the host can receive in
//! all; [`max_min`] shares it. Who does not use its share lends it to those held back by theirs, and
//! has it back as soon as it is used: nobody's rate is below its fair share.

use super::capacity::{Capacity, Interval, LONGEST_RTIMER_PER_S};
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

    /// What this Node may receive, if there is a limit, and what comes to the others of its host.
    pub fn set_host_share(&mut self, share: Option<u64>, others: u64) {
        (self.host.share, self.host.others) = (share, others);
    }

    /// Takes in a packet.
    pub fn on_packet(&mut self, now: Instant, peer: u32, weight: u32, heard: Heard) {
        if heard.data == 0 {
            return;
        }
        self.heard_at = now;
        let flow = self.flows.entry(peer).or_insert_with(|| Flow::new(weight));
        flow.weight = weight;
        flow.octets += heard.data.saturating_sub(PACKET_OVERHEAD).max(1);
        self.datagrams += 1;
        self.datagram = self.datagram.max(heard.data);
        if flow.skips.is_loss(heard.missing) && now >= self.recovery_until {
            let rtimer = flow.told.map_or(Duration::ZERO, Rate::rtimer);
            self.recovery_until = now + LEAST_RECOVERY.max(rtimer / 2);
            self.recoveries += 1;
        }
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
    pub fn release(&self) -> Vec<(u32, Rate)> {
        let told = self.flows.iter().filter(|(_, flow)| flow.told.is_some());
        told.map(|(peer, _)| (*peer, Rate::UNLIMITED)).collect()
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
        let octets = self.flows.values().map(|flow| flow.octets).sum();
        let datagram = self.datagram;
        let pace = taken.pace_since(self.taken, length);
        let recoveries = self.recoveries;
        let interval = Interval { length, octets, recoveries, datagram, held_back, taken: pace };
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
            Some(capacity) if self.began >= self.settled_at => capacity.learn(now, &interval),
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

    /// Shares the capacity; what is worth telling.
    fn share(&mut self, now: Instant) -> Vec<(u32, Rate)> {
        let Some(Rate { bytes_per_s: all, burst_bytes: row }) = self.limits() else { return Vec::new() };
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
mod tests {
    use super::super::{DEFAULT_WEIGHT, RateCredit};
    use super::*;
    use std::collections::VecDeque;

    const PAYLOAD: u64 = 1400;
    const DATAGRAM: u64 = PAYLOAD + PACKET_OVERHEAD;
    const RTT: Duration = Duration::from_micros(100);
    const STEP: Duration = Duration::from_micros(20);

    /// Senders with data without end, and a host that takes a datagram each `service` and holds some.
    struct Host {
        manager: Manager,
        now: Instant,
        service: Duration,
        holds: usize,
        free_at: Instant,
        queue: VecDeque<usize>,
        senders: Vec<Sender>,
        turn: usize,
    }

    struct Sender {
        peer: u32,
        credit: RateCredit,
        weight: u32,
        /// Most bytes per second that it has to send; a time when it may send the next.
        supply: Option<u64>,
        next_at: Instant,
        missing: u64,
        arrived: u64,
        lost: u64,
    }

    impl Host {
        fn new(service: Duration, holds: usize, weights: &[u32]) -> Self {
            let senders = weights.iter().zip(0..).map(|(&weight, peer)| Sender {
                peer,
                credit: RateCredit::new(Instant::ZERO, Rate::UNLIMITED),
                weight,
                supply: None,
                next_at: Instant::ZERO,
                missing: 0,
                arrived: 0,
                lost: 0,
            });
            Self {
                manager: Manager::new(Instant::ZERO, holds as u64 * PAYLOAD, RTT, Taken::default()),
                now: Instant::ZERO,
                service,
                holds,
                free_at: Instant::ZERO,
                queue: VecDeque::new(),
                senders: senders.collect(),
                turn: 0,
            }
        }

        fn run(&mut self, time: Duration) {
            let end = self.now + time;
            while self.now < end {
                let before = self.now;
                self.now += STEP;
                let count = self.senders.len();
                self.turn += 1;
                for sender in 0..count {
                    self.send((sender + self.turn) % count);
                }
                while self.free_at <= self.now
                    && let Some(sender) = self.queue.pop_front()
                {
                    self.free_at = self.free_at.max(before) + self.service;
                    let from = &mut self.senders[sender];
                    from.arrived += PAYLOAD;
                    let heard = Heard { data: DATAGRAM, missing: core::mem::take(&mut from.missing) };
                    self.manager.on_packet(self.now, from.peer, from.weight, heard);
                }
                for (peer, rate) in self.manager.look(self.now, Taken::default()) {
                    self.senders[peer as usize].credit.set(self.now, rate);
                }
            }
        }

        /// All that may go now, at most as much as a fast link brings in a step.
        fn send(&mut self, sender: usize) {
            let from = &mut self.senders[sender];
            for _ in 0..16 {
                if from.credit.room(self.now) == Some(0) || from.next_at > self.now {
                    return;
                }
                if let Some(supply) = from.supply {
                    from.next_at = from.next_at.max(self.now)
                        + Duration::from_nanos(PAYLOAD * 1_000_000_000 / supply.max(1));
                }
                from.credit.spend(PAYLOAD);
                if self.queue.len() < self.holds {
                    self.queue.push_back(sender);
                } else {
                    (from.missing, from.lost) = (from.missing + 1, from.lost + 1);
                }
            }
        }

        /// Octets that arrived from each in that time.
        fn measure(&mut self, time: Duration) -> Vec<u64> {
            let before: Vec<u64> = self.senders.iter().map(|sender| sender.arrived).collect();
            self.run(time);
            self.senders.iter().zip(before).map(|(sender, before)| sender.arrived - before).collect()
        }
    }

    /// Jain, Chiu, Hawe 1984.
    fn jain(shares: &[u64]) -> f64 {
        let sum: f64 = shares.iter().map(|&share| share as f64).sum();
        let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
        sum * sum / (shares.len() as f64 * squares)
    }

    const SECOND: Duration = Duration::from_secs(1);
    const SERVICE: Duration = Duration::from_micros(100);
    /// What such a host takes, octets per second.
    const TAKES: f64 = 14_000_000.0;

    #[test]
    fn one_sender_gets_what_the_host_takes_and_the_burst_is_what_it_holds() {
        let mut host = Host::new(SERVICE, 60, &[DEFAULT_WEIGHT]);
        host.run(SECOND * 4);
        let lost = host.senders[0].lost;
        let taken = host.measure(SECOND * 4)[0];
        assert!(taken as f64 > 0.95 * 4.0 * TAKES, "{taken}");
        let burst = host.senders[0].credit.rate().burst_bytes as f64 / (60.0 * PAYLOAD as f64);
        assert!((0.85..=1.1).contains(&burst), "{burst} of what the host holds");
        let lost = (host.senders[0].lost - lost) as f64 * 1e3 * PAYLOAD as f64 / taken as f64;
        assert!(lost <= 1.0, "{lost} lost per 1000 packets");
    }

    #[test]
    fn several_share_evenly_or_by_weight() {
        let mut host = Host::new(SERVICE, 200, &[DEFAULT_WEIGHT; 4]);
        host.run(SECOND * 3);
        let shares = host.measure(SECOND * 2);
        assert!(jain(&shares) > 0.98, "{shares:?}");
        let mut host = Host::new(SERVICE, 200, &[100, 300]);
        host.run(SECOND * 3);
        let shares = host.measure(SECOND * 2);
        let share = shares[1] as f64 / shares[0] as f64;
        assert!((2.7..3.3).contains(&share), "{shares:?}");
    }

    #[test]
    fn what_one_does_not_use_the_others_have_and_gets_back() {
        let mut host = Host::new(SERVICE, 200, &[DEFAULT_WEIGHT; 2]);
        host.run(SECOND * 3);
        host.senders[0].supply = Some(1_000_000);
        host.run(SECOND / 10);
        let shares = host.measure(SECOND / 10);
        assert!(shares[1] as f64 > 0.08 * TAKES, "{shares:?}: the first left it almost all");
        host.senders[0].supply = None;
        host.run(SECOND);
        let shares = host.measure(SECOND);
        assert!(jain(&shares) > 0.98, "{shares:?}");
    }

    #[test]
    fn a_rate_that_the_application_set_is_left_alone_and_counts() {
        let mut host = Host::new(SERVICE, 200, &[DEFAULT_WEIGHT; 2]);
        let fixed = Rate { bytes_per_s: 2_000_000, burst_bytes: 14_000 };
        host.senders[0].credit.set(Instant::ZERO, fixed);
        host.manager.set_fixed(0, DEFAULT_WEIGHT, true);
        host.run(SECOND * 2);
        let shares = host.measure(SECOND);
        assert_eq!(host.senders[0].credit.rate(), fixed);
        assert!(shares[0] as f64 > 0.9 * 2_000_000.0, "{shares:?}");
        assert!((shares[0] + shares[1]) as f64 > 0.95 * TAKES, "{shares:?}");
    }

    #[test]
    fn one_number_left_out_is_no_loss() {
        let mut manager = Manager::new(Instant::ZERO, 1 << 20, RTT, Taken::default());
        for packet in 1..10_000u64 {
            let missing = packet.is_multiple_of(130) as u64;
            manager.on_packet(Instant::ZERO, 1, DEFAULT_WEIGHT, Heard { data: DATAGRAM, missing });
        }
        assert_eq!(manager.recoveries, 0);
        let lossy = Heard { data: DATAGRAM, missing: 2 };
        manager.on_packet(Instant::ZERO + SECOND, 1, DEFAULT_WEIGHT, lossy);
        assert_eq!(manager.recoveries, 1);
    }
}
