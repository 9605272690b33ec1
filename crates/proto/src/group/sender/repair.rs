//! What is missing, and how it goes out again: to one member or to all, whichever costs less (M7, M10).
//!
//! Inputs → outputs: who misses which symbol → symbols for the group's address, and symbols for single
//! members. A symbol that one member misses goes to that member; one that several miss goes to all.

use super::Sender;
use crate::group::Host;
use crate::group::member::{Member, Path};
use bytes::Bytes;
use core::time::Duration;
use denrei_wire::Instant;
use denrei_wire::group::{Record, SYMBOL_HEADER_BYTES};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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

    /// Somebody of many misses a symbol.
    pub fn want_for_many(&mut self, now: Instant, symbol: u64) {
        self.since.get_or_insert(now);
        self.missing.insert(symbol, (MULTICAST_FROM, u32::MAX));
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

/// SYMBOL records that not every session has been handed: each is made once, whatever the number of
/// members, and its octets are shared by the sessions' queues.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Symbol of the first.
    first: u64,
    made: VecDeque<Bytes>,
}

impl Records {
    /// The record of a symbol, if it was kept and asks for a report if it has to (`asks`).
    fn get(&self, symbol: u64, asks: bool) -> Option<Bytes> {
        let record = self.made.get(usize::try_from(symbol.checked_sub(self.first)?).ok()?)?;
        (!asks || Record::asks_for_report(record)).then(|| record.clone())
    }

    /// Keeps a record for the other sessions: the next one in order, or in place of one that was kept.
    fn keep(&mut self, symbol: u64, record: Bytes) {
        if self.made.is_empty() {
            self.first = symbol;
        }
        let at = symbol.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        match at {
            Some(at) if at == self.made.len() => self.made.push_back(record),
            Some(at) if at < self.made.len() => self.made[at] = record,
            _ => {}
        }
    }

    /// All sessions that count have been handed what is below.
    fn forget_below(&mut self, symbol: u64) {
        while self.first < symbol && self.made.pop_front().is_some() {
            self.first += 1;
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
        let mut alone: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
        for (symbol, (count, member)) in core::mem::take(&mut self.repairs.missing) {
            if count >= MULTICAST_FROM {
                self.repairs.multicast.insert(symbol);
            } else {
                alone.entry(member).or_default().push(symbol);
            }
        }
        for (member, symbols) in alone {
            if let Some(index) = self.members.find(member) {
                self.repair_alone(now, &symbols, index, host);
            }
        }
    }

    /// When to decide about what has been reported missing.
    pub(super) fn repairs_at(&self) -> Instant {
        let Some(since) = self.repairs.since else { return Instant::FAR_FUTURE };
        // What climbs a tree was held on its way.
        let holds = self.options.feedback.suppress && self.members.len() > HOLD_ABOVE && !self.tree.joins;
        if holds { since + HOLD } else { since }
    }

    /// Hands one member what it alone misses. The last of it asks for a report: the others may wait for its word.
    pub(super) fn repair_alone(&mut self, now: Instant, symbols: &[u64], member: usize, host: &mut dyn Host) {
        let Some(served) = self.members.get(member).filter(|member| member.is_active()) else { return };
        let (peer, next) = (served.peer, served.next);
        let last = symbols.last();
        for symbol in symbols.iter().filter(|symbol| **symbol >= next) {
            let Some(record) = self.symbol_record(*symbol, Some(symbol) == last) else { continue };
            self.members.edit(member).repairing.insert(*symbol);
            self.counters.unicast_repairs += 1;
            self.counters.unicast_symbols += 1;
            host.send(now, peer, record);
        }
    }

    fn symbol_record(&self, symbol: u64, ask: bool) -> Option<Bytes> {
        let bytes = self.stream.symbol(symbol)?.bytes;
        let mut record = Vec::with_capacity(bytes + SYMBOL_HEADER_BYTES);
        record.extend(Record::symbol_header(self.id.0, symbol, ask));
        self.stream.write(symbol, &mut |part| record.extend_from_slice(part));
        Some(record.into())
    }

    /// Serves those whose sessions bring them symbols, and who begin with the next message.
    pub(super) fn serve_sessions(&mut self, now: Instant, host: &mut dyn Host) {
        self.pump(now, host);
        // The message ended just now, and where nobody was left no report will ever call again.
        if self.waits_at_boundary() {
            self.admit_joining(now, host);
            self.pump(now, host);
        }
    }

    /// Hands symbols to the sessions of those that are served by unicast, as far as these have room
    /// and the members credit.
    fn pump(&mut self, now: Instant, host: &mut dyn Host) {
        if !self.uses_multicast() {
            while self.cut().is_some() {
                // Nobody is waited for, so nobody will say that it has this.
                if self.members.least_next().is_none() {
                    self.settle();
                }
            }
            self.multicast_next = self.stream.next();
        }
        self.short_of_room = false;
        if !self.pumps() {
            return;
        }
        let ask = !self.uses_multicast() && self.asks();
        let next = |member: &Member| match member.path {
            Path::Unicast { next } if member.is_active() => Some(next),
            _ => None,
        };
        let needed = self.counting().filter_map(next).min();
        self.records.forget_below(needed.unwrap_or(u64::MAX));
        for index in 0..self.members.len() {
            if let Some(next) = next(&self.members[index]) {
                self.short_of_room |= self.feed(now, index, next, ask, host);
            }
        }
        if ask {
            (self.hurried, self.asked) = (false, self.stream.next());
        }
    }

    /// Octets that may be queued for a member's session.
    pub(super) fn session_room(member: &Member, host: &dyn Host) -> u64 {
        let (least, most) = (super::MIN_SESSION_QUEUE_BYTES, super::MAX_SESSION_QUEUE_BYTES);
        host.queue_room(member.peer, least, most, super::MAX_SESSION_QUEUE_BESIDE_BYTES)
    }

    /// Hands one member what it lacks from `next` on; whether its session has no room for all of that.
    pub(super) fn feed(
        &mut self,
        now: Instant,
        index: usize,
        mut next: u64,
        ask: bool,
        host: &mut dyn Host,
    ) -> bool {
        let peer = self.members[index].peer;
        let (mut room, mut is_short) = (Self::session_room(&self.members[index], host), false);
        next = next.max(self.stream.base());
        let end = self.stream.next();
        while next < end && self.has_credit(index, next) {
            if room == 0 {
                // What it was handed may be little beside what the application has queued.
                room = Self::session_room(&self.members[index], host);
            }
            is_short = room == 0;
            if is_short {
                break;
            }
            let asks = ask && next + 1 == end;
            let made = self.records.get(next, asks).or_else(|| self.symbol_record(next, asks));
            let Some(record) = made else { break };
            if !self.members[index].lagging {
                self.records.keep(next, record.clone());
            }
            room = room.saturating_sub(record.len() as u64);
            self.counters.unicast_symbols += 1;
            host.send_in_turn(now, peer, record);
            next += 1;
        }
        self.members.edit(index).path = Path::Unicast { next };
        is_short
    }

    /// Whether a member may be sent a symbol that was cut: of those who count that is known. One that begins no
    /// message may always follow; one that does also if it takes a part of it to take what was begun before.
    pub(super) fn has_credit(&self, index: usize, symbol: u64) -> bool {
        let member = &self.members[index];
        let begins = |number| {
            let symbol = self.stream.symbol(number)?;
            let begins = symbol.cost_after > symbol.cost_before && symbol.cost_after > member.limit;
            Some(begins && self.stream.complete_cost(number) + member.credit > member.limit)
        };
        !member.lagging || begins(symbol) == Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(symbol: u64, ask: bool) -> Bytes {
        Bytes::copy_from_slice(&Record::symbol_header(7, symbol, ask))
    }

    #[test]
    fn a_record_is_made_once_and_kept_until_all_have_it() {
        let mut records = Records::default();
        assert_eq!(records.get(5, false), None);
        (5..8).for_each(|symbol| records.keep(symbol, record(symbol, false)));
        records.keep(3, record(3, false));
        assert_eq!(records.get(3, false), None, "who is far behind is served apart");
        assert_eq!(records.get(6, false).unwrap().as_ptr(), records.get(6, false).unwrap().as_ptr());
        assert_eq!(records.get(7, true), None, "it does not ask");
        records.keep(7, record(7, true));
        assert_eq!(records.get(7, true), Some(record(7, true)));
        records.forget_below(7);
        assert_eq!((records.get(6, false), records.get(7, false)), (None, Some(record(7, true))));
        records.forget_below(u64::MAX);
        records.keep(9, record(9, false));
        assert_eq!(records.get(9, false), Some(record(9, false)));
    }
}
