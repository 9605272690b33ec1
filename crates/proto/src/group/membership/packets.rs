//! What comes: packets from the group's address, symbols by either way, and what parity restores of them.
//!
//! Inputs → outputs: packets and symbols → messages put together, gaps noticed, reports due. Source: M3, M10;
//! `spec/protocol.md` §14.3–14.6.

use super::{Membership, Stage};
use crate::group::parity::Parity;
use denrei_wire::group::GroupHeader;
use denrei_wire::{Instant, ids};

impl Membership {
    /// A packet has come from the group's address.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn on_packet(
        &mut self,
        now: Instant,
        packet: u32,
        poll: bool,
        header: &GroupHeader,
        frames: &[u8],
    ) -> Result<(), &'static str> {
        self.assembly.begin_packet();
        self.heard = true;
        self.received = self.received.wrapping_add(1);
        let number = ids::expand(packet, self.echo.map_or(0, |(largest, _)| largest + 1));
        if self.echo.is_none_or(|(largest, _)| number > largest) {
            self.echo = Some((number, now));
        }
        match self.stage {
            Stage::Begun => {
                self.note_late(now, number, header, frames);
                return self.take_packet(now, poll, header, frames);
            }
            Stage::Accepted => self.early.keep(poll, header, frames),
            Stage::Ended(_) => {}
        }
        if poll {
            self.report_in_turn(now);
        }
        Ok(())
    }

    /// Notes whether a packet brings what was missing though it is not the newest.
    fn note_late(&mut self, now: Instant, number: u64, header: &GroupHeader, frames: &[u8]) {
        let is_newest = self.echo.is_some_and(|(largest, _)| largest == number);
        if is_newest || header.parity_of > 0 || frames.is_empty() {
            return;
        }
        let symbol = ids::expand(header.symbol, self.arrivals.known());
        if !self.arrivals.contains(symbol) {
            self.asking.packet_came(now, number, symbol, &self.arrivals);
        }
    }

    /// Takes in a packet from the group's address, once BEGIN is here.
    pub(super) fn take_packet(
        &mut self,
        now: Instant,
        poll: bool,
        header: &GroupHeader,
        frames: &[u8],
    ) -> Result<(), &'static str> {
        let symbol = ids::expand(header.symbol, self.arrivals.known());
        let sent = match header.parity_of {
            0 if frames.is_empty() => symbol,
            0 => symbol + 1,
            symbols => symbol + symbols as u64,
        };
        if header.parity_of > 0 {
            let (symbols, index) = (header.parity_of, header.parity_index);
            self.on_parity(now, &Parity { first: symbol, symbols, index, shard: frames })?;
        } else if frames.is_empty() {
            self.learn(now, symbol);
        } else {
            self.on_multicast_symbol(now, symbol, header, frames)?;
        }
        if poll {
            self.asking.all_below(sent);
            self.report_on(now, sent);
        }
        Ok(())
    }

    fn on_multicast_symbol(
        &mut self,
        now: Instant,
        symbol: u64,
        header: &GroupHeader,
        frames: &[u8],
    ) -> Result<(), &'static str> {
        self.asking.expect_parity(header.parity_index > 0);
        if self.joint.collects() && symbol < self.arrivals.known() {
            self.joint.missed.repaired(now, symbol);
        }
        if self.has_room(symbol, frames) {
            if header.parity_index > 0 && !self.arrivals.contains(symbol) {
                self.restorer.keep(symbol, frames);
            } else if header.parity_index == 0 {
                self.restorer.clear();
            }
            self.on_symbol(now, symbol, frames)?;
        }
        self.take_turn(now, symbol, header.ack_every as u64);
        Ok(())
    }

    /// A parity has come: what it restores has come with it.
    fn on_parity(&mut self, now: Instant, parity: &Parity<'_>) -> Result<(), &'static str> {
        self.counters.parities += 1;
        if self.first_barred() < parity.end() {
            return Ok(());
        }
        let restored = self.restorer.on_parity(parity, &self.arrivals)?;
        self.take_restored(now, restored)?;
        // There may have been no room for what it restored.
        let end = parity.end().min(self.first_barred());
        self.arrivals.learn(end);
        self.asking.parity_came(now, end, &self.arrivals);
        Ok(())
    }

    fn take_restored(&mut self, now: Instant, restored: Vec<(u64, Vec<u8>)>) -> Result<(), &'static str> {
        for (symbol, frames) in restored {
            if self.has_room(symbol, &frames) {
                self.counters.restored += 1;
                self.take_symbol(now, symbol, &frames)?;
            }
        }
        self.restorer.forget_below(self.arrivals.next());
        Ok(())
    }

    /// A symbol has come by a session.
    ///
    /// # Errors
    /// What no honest opener sends.
    pub fn on_session_symbol(
        &mut self,
        now: Instant,
        symbol: u64,
        frames: &[u8],
    ) -> Result<(), &'static str> {
        if !self.arrivals.contains(symbol) && !self.may_come_by_session(frames) {
            return Err("symbols far beyond the limit");
        }
        let taken = self.on_symbol(now, symbol, frames);
        // The next packet of the group's address does not lie behind this one.
        self.assembly.begin_packet();
        taken
    }

    /// A symbol has come, by whichever way.
    ///
    /// # Errors
    /// What no honest opener sends.
    fn on_symbol(&mut self, now: Instant, symbol: u64, frames: &[u8]) -> Result<(), &'static str> {
        if !matches!(self.stage, Stage::Begun) {
            return Ok(());
        }
        let late = symbol < self.arrivals.known();
        if !self.take_symbol(now, symbol, frames)? || !late || !self.asking.expects_parity() {
            return Ok(());
        }
        self.restorer.keep(symbol, frames);
        let restored = self.restorer.on_late(symbol, &self.arrivals)?;
        self.take_restored(now, restored)
    }

    /// Takes in a symbol; whether it is new.
    fn take_symbol(&mut self, now: Instant, symbol: u64, frames: &[u8]) -> Result<bool, &'static str> {
        let known = self.arrivals.known();
        if !self.arrivals.insert(symbol) {
            self.counters.duplicates += 1;
            return Ok(false);
        }
        self.assembly.add(frames, self.grant.max_message)?;
        self.asking.symbol_came(now, symbol, known, &self.arrivals);
        self.report_by(now + self.report_delay);
        let late = symbol + 1 < known && !self.arrivals.has_gaps();
        // Above, they wait for this member alone.
        if self.joint.is_complete(self.arrivals.next()) || (late && self.joint.reports_to().is_some()) {
            self.report_by(now);
        }
        Ok(true)
    }

    /// Everything below `symbol` has been sent.
    fn learn(&mut self, now: Instant, symbol: u64) {
        let symbol = symbol.min(self.first_barred());
        if self.arrivals.learn(symbol) {
            self.asking.told(now, &self.arrivals);
        }
    }
}
