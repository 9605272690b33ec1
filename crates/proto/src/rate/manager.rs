//! The manager of a host's rates (R10, R13): who may send how fast, when the host learns what it can
//! receive.
//!
//! Inputs → outputs: packets of each peer, and what was missing before them; time → rate and burst for
//! each. Source: R11–R13; `spec/protocol.md` §13.7. [`Learner`] learns what the host can receive in
//! all; [`max_min`] shares it. Who does not use its share lends it to those held back by theirs, and
//! has it back as soon as it is used: nobody's rate is below its fair share. Where several Nodes share a host, what is
//! lost on the way is the affair of all ([`HostView`]).

use super::capacity::{Interval, LONGEST_RTIMER_PER_S, SHORTEST_RTIMER_PER_S};
use super::flow::Flow;
use super::heard::{Heard, Taken};
use super::host::{HostRecord, HostView};
use super::learner::{LONGEST_INTERVAL, Learner, differs};
use super::share::{Want, max_min};
use super::{MAX_RATE, Rate};
use core::time::Duration;
use denrei_wire::Instant;
use std::collections::BTreeMap;

/// A recovery lasts this long: what is missing after a shorter time belongs to it.
const LEAST_RECOVERY: Duration = Duration::from_millis(1);
/// Headers and trailer of a data packet, about, octets: rates count what is in it.
const PACKET_OVERHEAD: u64 = 48;

/// All flows of one endpoint.
#[derive(Debug)]
pub(crate) struct Manager {
    learner: Learner,
    /// By the slot of the peer that sends, to this host alone or to a group.
    flows: BTreeMap<u32, Flow>,
    datagrams: u64,
    recoveries: u64,
    /// What is missing before then, from whomever, belongs to the last of them.
    recovery_until: Instant,
    datagram: u64,
    /// Longest round trip of the peers that send.
    rtt: Duration,
    heard_at: Instant,
    /// What the application had taken when the interval began.
    taken: Taken,
    /// `None`: there are no other Nodes to share the host with.
    host: Option<HostView>,
}

impl Manager {
    /// What came is looked at this often: longer than a process is usually late.
    pub const INTERVAL: Duration = Duration::from_millis(10);

    /// After an overrun. `buffer`: octets of datagrams that the socket holds; `rtt`: the longest round
    /// trip of any session.
    pub fn new(now: Instant, buffer: u64, rtt: Duration, taken: Taken) -> Self {
        Self {
            learner: Learner::new(now, Self::INTERVAL, buffer, LONGEST_RTIMER_PER_S).overrun(),
            flows: BTreeMap::new(),
            datagrams: 0,
            recoveries: 0,
            recovery_until: now,
            datagram: 0,
            rtt,
            heard_at: now,
            taken,
            host: None,
        }
    }

    /// This side was not overrun: it shares a host with others.
    pub fn of_shared_host(now: Instant, buffer: u64, rtt: Duration, taken: Taken) -> Self {
        let learner = Learner::new(now, Self::INTERVAL, buffer, LONGEST_RTIMER_PER_S);
        Self { learner, host: Some(HostView::default()), ..Self::new(now, buffer, rtt, taken) }
    }

    /// The peers that have sent something, by their slots.
    pub fn peers(&self) -> impl Iterator<Item = u32> {
        self.flows.keys().copied()
    }

    /// The longest round trip of any of them.
    pub fn set_rtt(&mut self, rtt: Duration) {
        self.rtt = rtt;
    }

    /// What to tell the other Nodes of this host, but for whose it is.
    pub fn host_record(&self, now: Instant) -> HostRecord {
        let active = || self.flows.values().filter(|flow| flow.lately > 0);
        HostRecord {
            weight: active().map(|flow| flow.weight as u64).sum(),
            senders: active().count() as u64,
            bytes_per_s: active().map(|flow| flow.lately).sum(),
            held_back: !self.is_own_limit_less() && active().any(|flow| !flow.fixed && flow.is_held_back()),
            datagram: self.datagram,
            rtt: self.rtt,
            ..self.host.as_ref().map_or_else(HostRecord::default, |host| host.record(now))
        }
    }

    /// What this Node may receive, if there is a limit. `is_learnt`: it is a share of what the Nodes learn together, which
    /// they may forget; `overflows`: datagrams that the sockets have had no room for so far.
    pub fn share_host(&mut self, now: Instant, share: Option<Rate>, is_learnt: bool, overflows: u64) {
        let host = self.host.get_or_insert_default();
        (host.share, host.is_learnt) = (share, is_learnt);
        host.decide(now, overflows);
    }

    /// Takes in a packet: also one without data, before which the rest of a burst may be missing. Whoever has nothing
    /// left of its rate asks what became of that with such a one.
    pub fn on_packet(&mut self, now: Instant, peer: u32, weight: u32, heard: Heard) {
        if heard.data > 0 {
            self.count(now, peer, weight, heard.data);
        }
        let Some(flow) = self.flows.get_mut(&peer) else { return };
        let rtimer = flow.told.map_or(Duration::ZERO, Rate::rtimer);
        if !flow.skips.is_loss(heard.missing) {
            return;
        }
        let octets = heard.missing.saturating_mul(self.datagram);
        // What several Nodes lose is judged where all of it is known.
        let is_overflow = self.host.is_some() || self.learner.is_overflow(now, octets);
        let begins = is_overflow && now >= self.recovery_until;
        if begins {
            self.recovery_until = now + LEAST_RECOVERY.max(rtimer / 2);
        }
        match &mut self.host {
            Some(host) => host.on_loss(octets, begins),
            None => self.recoveries += u64::from(begins),
        }
    }

    /// So many octets have come, in a datagram.
    fn count(&mut self, now: Instant, peer: u32, weight: u32, octets: u64) {
        self.heard_at = now;
        let flow = self.flows.entry(peer).or_insert_with(|| Flow::new(weight));
        flow.weight = weight;
        let payload = octets.saturating_sub(PACKET_OVERHEAD).max(1);
        flow.octets += payload;
        self.datagrams += 1;
        self.datagram = self.datagram.max(octets);
        match &mut self.host {
            Some(host) => host.on_arrival(payload),
            None => self.learner.on_arrival(now, octets),
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
    pub fn release(&mut self) -> Vec<(u32, Rate)> {
        self.learner.release();
        let told = self.flows.iter_mut().filter_map(|(peer, flow)| flow.told.take().map(|_| *peer));
        told.map(|peer| (peer, Rate::UNLIMITED)).collect()
    }

    /// When to call [`look`](Self::look).
    pub fn deadline(&self) -> Instant {
        self.learner.deadline()
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
        let Some(length) = self.learner.interval(now, self.datagrams) else { return Vec::new() };
        self.flows.values_mut().for_each(|flow| flow.measure(length));
        let held_back = self.flows.values().any(|flow| flow.octets > 0 && !flow.fixed && flow.is_held_back());
        let held_back = held_back && !self.is_share_in_force();
        let octets = self.flows.values().map(|flow| flow.octets).sum();
        let pace = taken.pace_since(self.taken, length);
        self.taken = taken;
        let recoveries = match &mut self.host {
            Some(host) => host.take_own(),
            None => core::mem::take(&mut self.recoveries),
        };
        let (datagram, chance) = (self.datagram, self.learner.is_chance_known());
        let interval = Interval { length, octets, recoveries, datagram, held_back, taken: pace, chance };
        self.learner.learn(now, &interval);
        self.datagrams = 0;
        self.flows.values_mut().for_each(|flow| flow.octets = 0);
        self.share(now)
    }

    /// What may come in all, as far as this Node or its host has limits.
    fn limits(&self) -> Option<Rate> {
        let host = self.host.as_ref().and_then(|host| host.share);
        let learnt = self.learner.learnt();
        let bytes_per_s = [learnt, host].into_iter().flatten().map(|limit| limit.bytes_per_s).min()?;
        let own = learnt.map_or(self.learner.buffer(), |learnt| learnt.burst_bytes);
        let row = host.map(|host| host.burst_bytes).filter(|row| *row > 0);
        Some(Rate { bytes_per_s, burst_bytes: row.map_or(own, |row| row.min(own)) })
    }

    /// Whether peers are held back by a share of what the Nodes learn together, and not by what this one has learnt: to
    /// raise that would try nothing, and all of it would come at once when the share is forgotten.
    fn is_share_in_force(&self) -> bool {
        let share = self.host.as_ref().filter(|host| host.is_learnt).and_then(|host| host.share);
        self.learner
            .learnt()
            .zip(share)
            .is_some_and(|(learnt, share)| learnt.bytes_per_s >= share.bytes_per_s)
    }

    /// Whether peers are held back by what this Node has learnt, so that more of the host would be of no use to it.
    fn is_own_limit_less(&self) -> bool {
        let share = self.host.as_ref().and_then(|host| host.share);
        self.learner.learnt().zip(share).is_some_and(|(learnt, share)| learnt.bytes_per_s < share.bytes_per_s)
    }

    /// Shares the capacity; what is worth telling.
    fn share(&mut self, now: Instant) -> Vec<(u32, Rate)> {
        let Some(limits) = self.limits() else { return self.release() };
        let Rate { bytes_per_s: all, burst_bytes: row } = limits;
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
            let burst_bytes = burst.min(brief).max(bytes_per_s / SHORTEST_RTIMER_PER_S).min(MAX_RATE);
            let rate = Rate { bytes_per_s, burst_bytes };
            if !flow.fixed && flow.told.is_none_or(|told| differs(told, rate)) {
                flow.told = Some(rate);
                told.push((*peer, rate));
            }
        }
        let active = self.flows.values().filter(|flow| flow.throughput > 0).filter_map(|flow| flow.told);
        let slowest = active.map(Rate::rtimer).max().unwrap_or_default().min(LONGEST_INTERVAL);
        self.learner.tell(now, limits, slowest, self.rtt * 2);
        told
    }
}

#[cfg(test)]
mod tests;
