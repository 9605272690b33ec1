//! What is missing, and how it goes out again: to one member or to all, whichever costs less (M7, M10).
//!
//! Inputs → outputs: who misses which symbol → symbols for the group's address, and symbols for single
//! members. A symbol that one member misses goes to that member; one that several miss goes to all.

use super::Sender;
use crate::group::Host;
use crate::group::member::Path;
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Members that have to miss a symbol for it to go to the group's address again: then one packet
/// does what as many would.
const MULTICAST_FROM: u32 = 2;

/// Where members wait before they say what they miss, others may say the same within this time of the
/// first: what several miss goes to all. A sixteenth of what members spread their words over.
const HOLD: Duration = Duration::from_micros(500);
/// Members up to this many speak at once, and so does the opener.
const HOLD_ABOVE: usize = 16;

/// What is missing.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// By symbol: how many members miss it, and one of them.
    missing: BTreeMap<u64, (u32, u32)>,
    /// When the first of them was named.
    since: Option<Instant>,
    /// To go to the group's address.
    pub(super) multicast: BTreeSet<u64>,
}

impl Repairs {
    /// A member misses a symbol.
    pub fn want(&mut self, now: Instant, symbol: u64, member: u32) {
        self.since.get_or_insert(now);
        let entry = self.missing.entry(symbol).or_insert((0, member));
        if entry.0 == 0 || entry.1 != member {
            *entry = (entry.0 + 1, member);
        }
    }

    /// Everybody has these.
    pub fn forget_below(&mut self, symbol: u64) {
        if self.missing.first_key_value().is_some_and(|(first, _)| *first < symbol) {
            self.missing = self.missing.split_off(&symbol);
        }
        if self.multicast.first().is_some_and(|first| *first < symbol) {
            self.multicast = self.multicast.split_off(&symbol);
        }
    }
}

impl Sender {
    /// Decides about all that has been reported missing.
    pub(super) fn decide_repairs(&mut self, now: Instant, host: &mut dyn Host) {
        if self.repairs_at() > now {
            return;
        }
        self.repairs.since = None;
        for (symbol, (count, member)) in core::mem::take(&mut self.repairs.missing) {
            if count >= MULTICAST_FROM {
                self.repairs.multicast.insert(symbol);
            } else {
                self.repair_one(now, symbol, member as usize, host);
            }
        }
    }

    /// When to decide about what has been reported missing.
    pub(super) fn repairs_at(&self) -> Instant {
        let Some(since) = self.repairs.since else { return Instant::FAR_FUTURE };
        let holds = self.options.feedback.suppress && self.members.len() > HOLD_ABOVE;
        if holds { since + HOLD } else { since }
    }

    fn repair_one(&mut self, now: Instant, symbol: u64, member: usize, host: &mut dyn Host) {
        let served = self.members.get(member).filter(|member| member.is_active() && member.next <= symbol);
        let Some(peer) = served.map(|member| member.peer) else { return };
        let Some(record) = self.symbol_record(symbol, false) else { return };
        self.members.edit(member).repairing.insert(symbol);
        self.counters.unicast_repairs += 1;
        self.counters.unicast_symbols += 1;
        host.send(now, peer, record);
    }

    fn symbol_record(&self, symbol: u64, ask: bool) -> Option<bytes::Bytes> {
        let bytes = self.stream.symbol(symbol)?.bytes;
        let mut record = Vec::with_capacity(bytes + denrei_wire::group::SYMBOL_HEADER_BYTES);
        record.extend(Record::symbol_header(self.id.0, symbol, ask));
        self.stream.write(symbol, &mut |part| record.extend_from_slice(part));
        Some(record.into())
    }

    /// Hands symbols to the sessions of those that are served by unicast, as far as these have room
    /// and the members credit.
    pub(super) fn pump(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.uses_multicast() {
            while self.cut().is_some() {}
            self.multicast_next = self.stream.next();
        }
        if !self.pumps() {
            return;
        }
        let unicast = |index: &usize| {
            let member = &self.members[*index];
            member.is_active() && matches!(member.path, Path::Unicast { .. })
        };
        let served: Vec<usize> = (0..self.members.len()).filter(unicast).collect();
        let ask = !self.uses_multicast() && self.asks();
        let last = self.stream.next().wrapping_sub(1);
        // The record of the symbol that all are at is made once.
        let mut made: Option<(u64, bytes::Bytes)> = None;
        for index in served {
            let Path::Unicast { mut next } = self.members[index].path else { continue };
            let peer = self.members[index].peer;
            let mut room =
                super::MAX_SESSION_QUEUE_BYTES.saturating_sub(host.queued_bytes(peer).unwrap_or(u64::MAX));
            next = next.max(self.stream.base());
            while room > 0 && next < self.stream.next() && self.has_credit(index, next) {
                let record = match &made {
                    Some((symbol, record)) if *symbol == next => record.clone(),
                    _ => match self.symbol_record(next, ask && next == last) {
                        Some(record) => record,
                        None => break,
                    },
                };
                made = Some((next, record.clone()));
                room = room.saturating_sub(record.len() as u64);
                self.counters.unicast_symbols += 1;
                host.send(now, peer, record);
                next += 1;
            }
            self.members.edit(index).path = Path::Unicast { next };
        }
        if ask {
            (self.hurried, self.asked) = (false, self.stream.next());
        }
    }

    /// Whether a member may be sent a symbol that was cut: of those who count that is known.
    fn has_credit(&self, index: usize, symbol: u64) -> bool {
        let (member, symbol) = (&self.members[index], self.stream.symbol(symbol));
        !member.lagging
            || symbol.is_some_and(|symbol| {
                symbol.cost_after <= member.limit || symbol.cost_before + member.credit <= member.limit
            })
    }
}
