//! Packets to the group's address: trains of symbols, repairs, and questions.
//!
//! One train is one system call, whatever the number of members (M9).

use super::protect::ParityPacket;
use super::reports::MAX_TRIES;
use super::{Phase, SYMBOL_OVERHEAD_BYTES, Sender, UNICAST_SYMBOL_BYTES};
use crate::group::Host;
use crate::group::member::{Member, Path};
use denrei_wire::checksum::CHECKSUM_BYTES;
use denrei_wire::datagram::MAX_DATAGRAM_BYTES;
use denrei_wire::group::{GROUP_HEADER_BYTES, GroupHeader};
use denrei_wire::packet::{self, Kind, TAG_BYTES, flags};
use denrei_wire::{Ecn, Instant, PacketNumber, Token, Transmit, TransmitBuf};

/// Reports per window and member: often enough that the window never runs dry …
const REPORTS_PER_WINDOW: u64 = 4;
/// … with more members than this half as often: together they still say enough.
const FEW_MEMBERS: usize = 4;

impl Sender {
    /// Whether [`write_transmit`](Self::write_transmit) has something to write.
    pub fn wants_transmit(&self) -> bool {
        if self.phase == Phase::Over {
            return false;
        }
        let may_go = !self.pace.is_shut();
        self.copies.are_left() || self.poll || (may_go && self.has_packets())
    }

    /// Whether there is something for the group's address but questions.
    pub(super) fn has_packets(&self) -> bool {
        !self.repairs.multicast.is_empty()
            || !self.protect.pending.is_empty()
            || (self.uses_multicast() && (self.multicast_next < self.stream.next() || self.may_cut()))
    }

    pub(super) fn may_cut(&self) -> bool {
        let open = matches!(self.phase, Phase::Open | Phase::Closing { .. });
        open && !self.waits_at_boundary() && self.stream.next_cost().is_some() && !self.is_blocked()
    }

    /// Symbols follow the smallest datagram that all members' paths are known to carry.
    pub(super) fn choose_symbol_bytes(&mut self, host: &mut dyn Host) {
        let active = self.members.iter().filter(|member| member.is_active());
        let datagram = active.filter_map(|member| host.datagram_bytes(member.peer)).min();
        let Some(datagram) = datagram else { return };
        let multicast = self.uses_multicast();
        self.symbol_bytes = match multicast {
            true => self.address_bytes(datagram) - SYMBOL_OVERHEAD_BYTES - self.proof_bytes(),
            false => UNICAST_SYMBOL_BYTES,
        };
        self.window.set_datagram_bytes(self.symbol_bytes as u64);
    }

    /// How large a datagram to the group's address may be, if one to each member may have `datagram` octets.
    fn address_bytes(&self, datagram: u16) -> usize {
        let interface = if self.replicates() { u16::MAX } else { self.interface_bytes };
        datagram.min(interface).into()
    }

    /// Writes datagrams for one send operation into the empty `out`.
    pub fn write_transmit(
        &mut self,
        now: Instant,
        out: &mut TransmitBuf,
        host: &mut dyn Host,
    ) -> Option<Transmit> {
        let begun = if self.copies.may_begin() { self.write_train(now, out, host) } else { None };
        let Some(transmit) = begun.or_else(|| self.copies.next(out)) else {
            // For nobody.
            out.clear();
            return None;
        };
        self.counters.packets_sent += transmit.segments() as u64;
        self.counters.bytes_sent += transmit.len as u64;
        Some(transmit)
    }

    /// Writes a train, for the first of those who are to have it.
    fn write_train(&mut self, now: Instant, out: &mut TransmitBuf, host: &mut dyn Host) -> Option<Transmit> {
        let first_packet = self.packet;
        if let Some(keys) = &mut self.keys {
            keys.turn(now);
        }
        self.pace.look(now, host);
        let cut = self.stream.next();
        let in_vain = self.repeats_in_vain();
        let segment_size = if self.pace.is_shut() { None } else { self.write_data(out) };
        let segment_size = segment_size.or_else(|| self.write_question(out))?;
        if let Some(keys) = &mut self.keys {
            keys.seal(out);
        }
        let headers = self.packet_bytes(0) as u64 * (self.packet - first_packet);
        self.pace.spend(now, (out.len() as u64).saturating_sub(headers), host);
        self.note_train(now, first_packet);
        // Who is served by a session, or begins with the next message, does not wait until somebody says that it has this.
        if self.stream.next() > cut {
            self.serve_sessions(now, host);
        }
        // Who misses what is too large for its path has to be asked for it all the same.
        if !in_vain {
            self.last_sent_at = now;
        }
        let segment_size = (self.packet - first_packet > 1).then_some(segment_size);
        let (to, from) = (self.address, self.source);
        // No report says what marks came at the address; copies go beside what is marked of the sessions.
        let ecn = if self.replicates() { Ecn::Ect0 } else { Ecn::NotEct };
        let train = Transmit { to, from, len: out.len(), segment_size, ecn };
        if !self.replicates() {
            return Some(train);
        }
        let served = |member: &&Member| member.is_active() && member.path == Path::Multicast;
        let ways = self.members.iter().filter(served).filter_map(|member| host.way_of(member.peer));
        self.copies.begin(train, out, ways)
    }

    fn write_data(&mut self, out: &mut TransmitBuf) -> Option<usize> {
        let segment_size = self.write_repairs(out).or_else(|| self.write_parities(out));
        segment_size.or_else(|| self.write_symbols(out))
    }

    /// Whether what goes to the group's address next has gone there often enough.
    fn repeats_in_vain(&self) -> bool {
        let next = self.repairs.multicast.first().and_then(|next| self.stream.symbol(*next));
        next.is_some_and(|symbol| symbol.tries >= MAX_TRIES)
    }

    fn write_repairs(&mut self, out: &mut TransmitBuf) -> Option<usize> {
        let mut size = 0;
        while let Some(symbol) = self.repairs.multicast.first().copied() {
            let Some(bytes) = self.stream.symbol(symbol).map(|symbol| symbol.bytes) else {
                self.repairs.multicast.remove(&symbol);
                continue;
            };
            if !fits(out, size, self.packet_bytes(bytes)) || out.len() as u64 >= self.pace.room() {
                break;
            }
            self.repairs.multicast.remove(&symbol);
            self.counters.multicast_repairs += 1;
            // Who still misses something says so as soon as the last of them is there.
            let poll = self.repairs.multicast.is_empty();
            let may_follow = self.protect.is_on();
            size = size.max(self.write_packet(out, symbol, poll, may_follow));
            if self.packet_bytes(bytes) < size {
                break;
            }
        }
        (size > 0).then_some(size)
    }

    fn write_symbols(&mut self, out: &mut TransmitBuf) -> Option<usize> {
        if !self.uses_multicast() {
            return None;
        }
        let first = self.multicast_next;
        let (mut size, mut total) = (0, 0);
        // What makes up the train is decided first, so that its last packet can ask for reports.
        loop {
            if self.multicast_next == self.stream.next() && self.cut().is_none() {
                break;
            }
            let bytes = self.packet_bytes(self.stream.symbol(self.multicast_next)?.bytes);
            let count = (self.multicast_next - first) as usize;
            let full = total + bytes > MAX_DATAGRAM_BYTES
                || count == out.max_segments()
                || total as u64 >= self.pace.room();
            if size > 0 && (bytes > size || full || self.protect.is_full(self.multicast_next)) {
                break;
            }
            size = size.max(bytes);
            total += bytes;
            self.multicast_next += 1;
            if bytes < size {
                break;
            }
        }
        let last = self.multicast_next.checked_sub(1).filter(|last| *last >= first)?;
        let symbols = (self.multicast_next - first) * self.copies();
        self.counters.symbols_sent += symbols;
        self.counters.unicast_symbols += if self.replicates() { symbols } else { 0 };
        self.counters.symbol_bytes += total as u64 * self.copies();
        let poll = self.poll || (self.multicast_next == self.stream.next() && self.asks());
        let ends = poll || self.protect.ends(last + 1);
        let may_follow = self.protect.is_on();
        let follows = ends && self.end_block(last + 1) > 0;
        for symbol in first..=last {
            let is_end = ends && symbol == last;
            self.write_packet(
                out,
                symbol,
                poll && is_end && !follows,
                if is_end { follows } else { may_follow },
            );
        }
        if poll {
            (self.poll, self.hurried, self.asked) = (false, false, self.multicast_next);
            self.protect.asks = follows;
        }
        Some(size)
    }

    fn write_parities(&mut self, out: &mut TransmitBuf) -> Option<usize> {
        let mut size = 0;
        while let Some(parity) = self.protect.pending.front() {
            let bytes = self.packet_bytes(parity.shard.len());
            if size > 0 && (bytes != size || !fits(out, size, bytes) || out.len() as u64 >= self.pace.room())
            {
                break;
            }
            let ParityPacket { first, symbols, index, shard } = self.protect.pending.pop_front()?;
            let poll = self.protect.pending.is_empty() && core::mem::take(&mut self.protect.asks);
            let block = (symbols, index);
            size = self.write_header_and(out, first, block, poll, |_, out| out.put(&shard));
            self.counters.parity_sent += 1;
        }
        (size > 0).then_some(size)
    }

    /// A packet without a symbol: tells how far the group is, and asks for reports.
    fn write_question(&mut self, out: &mut TransmitBuf) -> Option<usize> {
        if !self.poll {
            return None;
        }
        // What is out is asked about: no more of its block comes before the answer.
        if self.protect.is_on() && self.end_block(self.multicast_next) > 0 {
            (self.poll, self.hurried, self.asked) = (false, false, self.multicast_next);
            self.protect.asks = true;
            return self.write_parities(out);
        }
        self.poll = false;
        self.counters.polls += 1;
        self.asked = self.multicast_next;
        let next = self.multicast_next;
        Some(self.write_header_and(out, next, (0, 0), true, |_, _| ()))
    }

    /// Appends the packet of one symbol, for which `parity` may follow; its octets.
    fn write_packet(&mut self, out: &mut TransmitBuf, symbol: u64, poll: bool, parity: bool) -> usize {
        let packet = self.packet;
        if let Some(symbol) = self.stream.symbol_mut(symbol) {
            symbol.packet = Some(packet);
            symbol.tries = symbol.tries.saturating_add(1);
        }
        self.write_header_and(out, symbol, (0, parity as u8), poll, |sender, out| {
            sender.stream.write(symbol, &mut |part| out.put(part));
        })
    }

    fn write_header_and(
        &mut self,
        out: &mut TransmitBuf,
        symbol: u64,
        (parity_of, parity_index): (u8, u8),
        poll: bool,
        frames: impl FnOnce(&Self, &mut TransmitBuf),
    ) -> usize {
        let mark = out.len();
        let phase = self.keys.as_ref().is_some_and(|keys| keys.phase());
        let flags = if poll { flags::ACK_NOW } else { 0 } | if phase { flags::KEY_PHASE } else { 0 };
        out.put(&packet::common_header(Kind::Group, flags, PacketNumber(self.packet), Token(self.id.0)));
        let header = GroupHeader {
            symbol: symbol as u32,
            floor: self.stream.base() as u32,
            ack_every: self.ack_every(),
            parity_of,
            parity_index,
        };
        out.put(&header.encode());
        out.put_zeros(self.proof_bytes());
        frames(self, out);
        match &mut self.keys {
            Some(keys) => keys.note(self.packet, mark, out),
            None => {
                let crc = out.checksum(mark);
                out.put(&crc.to_le_bytes());
            }
        }
        self.packet += 1;
        out.len() - mark
    }

    /// Octets of the packet of a symbol of so many, or of a parity.
    fn packet_bytes(&self, symbol_bytes: usize) -> usize {
        let trailer = if self.keys.is_some() { TAG_BYTES } else { CHECKSUM_BYTES };
        GROUP_HEADER_BYTES + self.proof_bytes() + symbol_bytes + trailer
    }

    fn proof_bytes(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.proof_bytes())
    }

    fn ack_every(&self) -> u16 {
        if !self.options.feedback.thin {
            return 1;
        }
        // All that is queued fits the window, and its last symbol asks.
        if self.stream.unacked_bytes() <= self.window() {
            return u16::MAX;
        }
        let symbols = self.window() / self.symbol_bytes.max(1) as u64;
        let reports = match self.members.len() {
            // Whoever speaks for all is asked at the end of each window anyway.
            _ if self.tree.joins => 1,
            ..=FEW_MEMBERS => REPORTS_PER_WINDOW,
            _ => REPORTS_PER_WINDOW / 2,
        };
        (symbols / reports).clamp(1, u16::MAX as u64) as u16
    }
}

/// Whether a packet may join a train of packets of `size` (0: it begins one).
fn fits(out: &TransmitBuf, size: usize, bytes: usize) -> bool {
    let full = out.len() + bytes > MAX_DATAGRAM_BYTES;
    size == 0 || (bytes <= size && !full && out.len() / size < out.max_segments())
}
