//! The pace between two peers: what the other side lets this one send, and what this side tells it.
//!
//! Inputs → outputs: RATE, GRANT, octets sent and received → whether data may go, and the frames
//! that ask and tell. Source: R1–R4, S11; `spec/protocol.md` §13.

use super::{Context, News, PaceNote, Peer};
use crate::config::Config;
use crate::event::{ChannelId, Event, MessageId, Phase};
use crate::rate::{LEAST_GRANT, Licence, PacedCredit, Police, Rate};
use crate::send_channel::MIN_FRAGMENT_BYTES;
use crate::sent::Control;
use core::time::Duration;
use denrei_wire::frame::{self, FRAGMENT_HEADER_BYTES, Frame, GRANT_REQUEST_BYTES};
use denrei_wire::{Frames, Instant, TransmitBuf, duration_nanos};

/// Packets missing in a row that may have been probes of the path's size, while it is searched for: three of
/// each of the five sizes in a row that do not pass, on a path that carries none.
const PROBES_IN_A_ROW: u64 = 15;
/// One is lost, where nothing else is sent, when a probe timeout is over: the other side's, which may be half
/// of what it is here.
const PROBES_PER_TIMEOUT: u64 = 2;

/// R2's rate of this side as a sender; most peers never set one.
#[derive(Debug)]
pub(super) struct SenderRate {
    credit: PacedCredit,
    /// Serial of the peer's word; `None`: the rate is the one this side asks for.
    serial: Option<u32>,
    /// When there is credit again, if data waits for it.
    opens_at: Option<Instant>,
    /// Whether there was none when it was looked at last.
    shut: bool,
    /// Groups have sent of a burst: the next, from then on, is the session's, if it has data waiting.
    sessions_from: Instant,
}

impl SenderRate {
    /// What holds until the peer speaks.
    pub fn requested(now: Instant, config: &Config) -> Option<Box<Self>> {
        let rate = config.rate_request;
        (rate != Rate::UNLIMITED).then(|| Box::new(Self::new(now, rate)))
    }

    fn new(now: Instant, rate: Rate) -> Self {
        let (credit, sessions_from) = (PacedCredit::new(now, rate), Instant::FAR_FUTURE);
        Self { credit, serial: None, opens_at: None, shut: false, sessions_from }
    }

    fn is_open(&mut self, now: Instant) -> bool {
        let open = self.credit.room(now) != Some(0);
        self.opens_at = if open { None } else { self.credit.open_at() };
        self.shut = !open;
        open
    }
}

/// What this side tells the other that it may send, and whether it keeps to that; most peers are told
/// nothing.
#[derive(Debug, Default)]
pub(super) struct Told {
    limit: Option<u64>,
    limit_serial: u32,
    rate: Option<Rate>,
    rate_serial: u32,
    /// When the peer counts as having heard of the limit, or the rate, though it acknowledges nothing.
    limit_heard_by: Option<Instant>,
    rate_heard_by: Option<Instant>,
    police: Police,
}

impl Peer {
    // ---- as sender ----

    /// R2's parameters in force.
    pub fn sender_rate(&self) -> Rate {
        self.rate.as_ref().map_or(Rate::UNLIMITED, |rate| rate.credit.rate())
    }

    /// Octets that a group may send to this peer as far as its rate says so, or when it may again. Session and
    /// groups take turns at the bursts.
    pub fn rate_room_for_group(&mut self, now: Instant) -> Result<u64, Instant> {
        let waits = self.outbox.has_turn();
        let Some(rate) = &mut self.rate else { return Ok(u64::MAX) };
        let sessions_until = rate.sessions_from + rate.credit.rate().rtimer();
        let is_sessions = waits && (rate.sessions_from..sessions_until).contains(&now);
        match rate.credit.room(now) {
            Some(0) => Err(rate.credit.open_at().unwrap_or(Instant::FAR_FUTURE)),
            Some(_) if is_sessions => Err(sessions_until),
            room => Ok(room.unwrap_or(u64::MAX)),
        }
    }

    /// A group has sent so many octets to this peer.
    pub fn spend_rate_for_group(&mut self, now: Instant, octets: u64) {
        if let Some(rate) = &mut self.rate {
            rate.credit.spend(now, octets);
            rate.sessions_from = rate.credit.next_burst_at().unwrap_or(Instant::FAR_FUTURE);
        }
    }

    /// When data that waits for R2's credit may go.
    pub(super) fn rate_opens_at(&self) -> Option<Instant> {
        self.rate.as_ref()?.opens_at
    }

    /// Time has come to `now`: there may be credit again.
    pub(super) fn reopen_rate(&mut self, now: Instant) {
        if let Some(rate) = &mut self.rate
            && rate.opens_at.is_some_and(|at| at <= now)
        {
            rate.opens_at = None;
        }
    }

    /// Whether the receiver lets data go now.
    pub(super) fn is_let(&mut self, config: &Config, now: Instant) -> bool {
        self.is_granted(config) && self.rate.as_mut().is_none_or(|rate| rate.is_open(now))
    }

    /// Whether a data packet may go, as far as it is not the rate that says so.
    #[inline(always)] // for each packet
    fn is_granted(&self, config: &Config) -> bool {
        let first = self.phase != Phase::Opening || self.allowed.sent() < config.first_flight_bytes;
        first && self.allowed.room() != Some(0)
    }

    /// Whether the rate held data up when it was looked at last.
    pub(super) fn is_rate_shut(&self) -> bool {
        self.rate.as_ref().is_some_and(|rate| rate.shut)
    }

    /// Whether there is something to send that the rate does not limit (§13.1: it holds nothing of a message),
    /// while it holds up what else there is.
    #[cold] // most peers never set a rate
    #[inline(never)]
    pub(super) fn may_send_unpaced(&mut self, cx: &Context<'_>) -> bool {
        self.outbox.has_turn()
            && self.is_sure_of_peer()
            && self.is_granted(cx.config)
            && self.rate.as_mut().is_some_and(|rate| !rate.is_open(cx.now))
            && self.outbox.has_unpaced()
            && self.path_has_room(cx)
    }

    /// Asks the receiver for a grant if data waits for one and it does not know.
    pub(super) fn ask_if_closed(&mut self) {
        if self.allowed.room() == Some(0) && self.outbox.has_turn() && self.is_proven() {
            let wanted = self.wanted();
            if wanted > 0 && self.allowed.must_ask(wanted) {
                self.want(Control::GrantRequest);
            }
        }
    }

    /// Octets of data packets that could be sent if there were no limit.
    fn wanted(&self) -> u64 {
        let payload = self.outbox.sendable();
        if payload == 0 {
            return 0;
        }
        // Headers and trailers: those of one packet, and of as many as it takes.
        const PER_PACKET: u64 = 64;
        let per_packet = (self.mtu.current() as u64).saturating_sub(PER_PACKET).max(1);
        payload + PER_PACKET * payload.div_ceil(per_packet)
    }

    /// Gives up messages that are about to be begun and that the receiver's rate does not let go in time
    /// (S10). `reach`: octets of a packet.
    #[cold] // most messages have no deadline
    #[inline(never)]
    pub(super) fn give_up_hopeless(&mut self, cx: &mut Context<'_>, reach: usize) {
        let Some(rate) = &mut self.rate else { return };
        let (now, id) = (cx.now, self.id);
        if rate.credit.room(now).is_some() {
            let sent_at = |octets| rate.credit.sent_at(now, octets).unwrap_or(now);
            self.outbox.give_up_hopeless(reach as u64, sent_at, |channel, number| {
                let channel = ChannelId { peer: id, channel };
                cx.events.push(Event::Expired(MessageId { channel, number }));
            });
        }
    }

    /// Appends messages, no more than rate and grant have room for. The last few octets of a burst
    /// are exceeded by less than the smallest fragment, which is owed (R2). `mark`: where the packet
    /// begins.
    pub(super) fn write_data(
        &mut self,
        cx: &Context<'_>,
        out: &mut TransmitBuf,
        mark: usize,
        end: usize,
        fresh: usize,
        frames: &mut super::transmit::Frames,
    ) {
        let room = self.rate.as_mut().and_then(|rate| rate.credit.room(cx.now));
        let paced_end = room.map_or(end, |room| cut_at(out.len(), end, room));
        let mut packet_end = end;
        if self.phase == Phase::Opening {
            let left = cx.config.first_flight_bytes.saturating_sub(self.allowed.sent());
            let left = usize::try_from(left).unwrap_or(usize::MAX).max(HEADERS_BYTES);
            packet_end = packet_end.min(mark.saturating_add(left));
        }
        let mut due = false;
        if let Some(room) = self.allowed.room() {
            let most = mark.saturating_add(usize::try_from(room).unwrap_or(usize::MAX));
            packet_end = packet_end.min(most.saturating_sub(self.protection.trailer_bytes()));
            let reach = packet_end.min(paced_end) + self.protection.trailer_bytes();
            due = self.allowed.request_is_due(reach.saturating_sub(mark) as u64);
        }
        // The request is none of the octets that the rate counts: it goes behind what that lets go.
        let data_end = if due { packet_end.saturating_sub(GRANT_REQUEST_BYTES) } else { packet_end };
        let end = data_end.min(paced_end);
        let wrote = self.outbox.write(out, end, fresh.min(end.saturating_sub(out.len())), frames);
        self.counters.retransmissions += wrote.repeated;
        if let Some(rate) = &mut self.rate {
            rate.credit.spend(cx.now, wrote.payload);
        }
        if wrote.frames > 0 {
            // The last packet there is says so, if it has room.
            due |= !self.outbox.has_turn() && out.len() + GRANT_REQUEST_BYTES <= packet_end;
            self.note_data(out, mark, due);
        }
    }

    /// Appends what the rate does not limit. It counts as data where the receiver grants (§13.3).
    #[cold]
    #[inline(never)]
    pub(super) fn write_unpaced(
        &mut self,
        out: &mut TransmitBuf,
        mark: usize,
        mut end: usize,
        frames: &mut super::transmit::Frames,
    ) {
        if let Some(room) = self.allowed.room() {
            let most = mark.saturating_add(usize::try_from(room).unwrap_or(usize::MAX));
            end = end.min(most.saturating_sub(self.protection.trailer_bytes() + GRANT_REQUEST_BYTES));
        }
        let wrote = self.outbox.write_unpaced(out, end, frames);
        self.counters.retransmissions += wrote.repeated;
        if wrote.frames > 0 {
            // As if it were the last one: it is not known when the next may go.
            self.note_data(out, mark, true);
        }
    }

    /// Counts a data packet, and adds a request to it if one is due.
    fn note_data(&mut self, out: &mut TransmitBuf, mark: usize, due: bool) {
        let mut octets = (out.len() - mark + self.protection.trailer_bytes()) as u64;
        if due && self.allowed.is_limited() {
            octets += GRANT_REQUEST_BYTES as u64;
            let wanted = self.wanted();
            Frame::GrantRequest(self.allowed.request(octets, wanted)).encode(&mut |bytes| out.put(bytes));
        }
        self.allowed.on_sent(octets);
    }

    pub(super) fn grant_request(&mut self) -> Option<Frame<'static>> {
        let wanted = self.wanted();
        self.allowed.is_limited().then(|| Frame::GrantRequest(self.allowed.request(0, wanted)))
    }

    /// A sender that is newly limited says where it is, unless it is idle: the receiver does not know
    /// what is on its way, and the answer's acknowledgement shows what of it was lost.
    pub(super) fn on_grant(&mut self, now: Instant, grant: &frame::Grant) {
        let was_limited = self.allowed.is_limited();
        self.allowed.on_grant(grant);
        if self.allowed.is_limited() != was_limited {
            let path = self.min_rtt().filter(|_| !was_limited);
            let licence = path.map(|rtt| Licence::new(now, rtt, self.rtt.known_for(now)));
            self.allowed.set_licence(licence);
        }
        let busy = !self.sent.is_idle() || self.outbox.has_turn();
        if self.allowed.is_limited() && !was_limited && busy {
            self.want(Control::GrantRequest);
        }
    }

    pub(super) fn on_rate(&mut self, cx: &mut Context<'_>, rate: &frame::Rate) {
        let state = self.rate.get_or_insert_with(|| Box::new(SenderRate::new(cx.now, Rate::UNLIMITED)));
        // Half of the numbers are newer than a serial, half older (RFC 1982).
        if state.serial.is_some_and(|newest| rate.serial.wrapping_sub(newest) as i32 <= 0) {
            return;
        }
        state.serial = Some(rate.serial);
        let rate = Rate { bytes_per_s: rate.rate, burst_bytes: rate.burst };
        state.credit.set(cx.now, rate);
        state.opens_at = None;
        cx.notes.news |= News::RATE;
        self.tell_rate(cx);
    }

    /// Tells the application what the peer set, once that is proven. Of several in a row it wants the last.
    pub(super) fn tell_rate(&self, cx: &mut Context<'_>) {
        let Some(rate) = self.rate_of_peer().filter(|_| self.is_proven()) else { return };
        match cx.events.last_mut() {
            Some(Event::RateSet { peer, rate: last }) if *peer == self.id => *last = rate,
            _ => cx.events.push(Event::RateSet { peer: self.id, rate }),
        }
    }

    /// The rate that the peer set, if it has.
    fn rate_of_peer(&self) -> Option<Rate> {
        self.rate.as_ref().filter(|state| state.serial.is_some()).map(|state| state.credit.rate())
    }

    // ---- as receiver ----

    /// The path's smallest round trip, if measured.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.rtt.measured().map(|_| self.rtt.min())
    }

    /// How many packets may have been probes of the path's size that are missing `now`, and were not when
    /// something came before. Those that were lost when nothing else was sent are missing much later.
    pub fn most_probes(&self, now: Instant, heard_before: Instant) -> u64 {
        let is_settled = |at| self.mtu.is_settled(at, self.rtt.smoothed());
        if is_settled(heard_before) && is_settled(now) {
            return 0;
        }
        let since = duration_nanos(now.saturating_since(heard_before));
        let timeouts =
            PROBES_PER_TIMEOUT.saturating_mul(since) / duration_nanos(self.rtt.probe_timeout()).max(1);
        timeouts.saturating_add(1).min(PROBES_IN_A_ROW)
    }

    /// Sets how fast the peer may send (R4). It is held to that from when it has heard it, or from `heard_by` if it
    /// acknowledges nothing.
    pub fn set_rate(&mut self, rate: Rate, heard_by: Instant) {
        if self.is_alive() && self.rate_set() != Some(rate) {
            let told = self.told.get_or_insert_default();
            told.rate = Some(rate);
            told.rate_serial = told.rate_serial.wrapping_add(1);
            // A later word is no reason to wait longer.
            let heard_by = *told.rate_heard_by.get_or_insert(heard_by);
            told.police.tell_rate(rate, heard_by);
            self.want(Control::Rate);
        }
    }

    /// What this side has set for the peer.
    pub(super) fn rate_set(&self) -> Option<Rate> {
        self.told.as_ref()?.rate
    }

    /// Octets of data packets that the peer was told it may send.
    pub fn limit_told(&self) -> Option<u64> {
        self.told.as_ref()?.limit
    }

    /// Whether a packet says that its sender has used up what it was granted, and wants more.
    pub(super) fn is_last_granted(&self, pace: &PaceNote) -> bool {
        let (Some(limit), Some((sent, wanted))) = (self.limit_told(), pace.request) else { return false };
        let left = (limit as u32).wrapping_sub(sent) as i32;
        pace.data > 0 && wanted > 0 && i64::from(left) < LEAST_GRANT as i64
    }

    /// Whether this side has set how fast the peer may send.
    pub fn is_paced(&self) -> bool {
        self.rate_set().is_some_and(|rate| !rate.is_unlimited())
    }

    pub(super) fn rate_frame(&self) -> Option<Frame<'static>> {
        let told = self.told.as_ref()?;
        let (Rate { bytes_per_s, burst_bytes }, serial) = (told.rate?, told.rate_serial);
        Some(Frame::Rate(frame::Rate { serial, rate: bytes_per_s, burst: burst_bytes }))
    }

    /// Whether a packet is more than the peer was told that it may send.
    pub(super) fn is_excess(&mut self, now: Instant, body: &[u8], datagram_len: usize) -> bool {
        let policed = self.told.as_ref().is_some_and(|told| told.police.is_on_duty());
        policed && self.exceeds(now, body, datagram_len)
    }

    #[inline(never)] // most are told nothing
    fn exceeds(&mut self, now: Instant, body: &[u8], datagram_len: usize) -> bool {
        let Some(told) = self.told.as_mut() else { return false };
        let (mut payload, mut data) = (0, false);
        for frame in Frames::new(body).flatten() {
            data |= is_data(&frame);
            payload += match frame {
                // As its sender counts.
                Frame::Message(message) => message.payload.len().max(1) as u64,
                Frame::Fragment(fragment) => fragment.payload.len() as u64,
                _ => 0,
            };
        }
        let after = self.data_received + datagram_len as u64;
        let beyond = told.limit.is_some_and(|limit| after > limit);
        data && told.police.is_excess(now, payload, beyond)
    }

    /// The peer has heard what it may send. What it sent before arrives within a probe timeout.
    pub(super) fn on_told(&mut self, now: Instant, control: Control) {
        let from = now + self.rtt.probe_timeout();
        // Else a later word is on its way.
        if !self.control.contains(&control)
            && let Some(told) = &mut self.told
        {
            match control {
                Control::Rate => {
                    told.rate_heard_by = None;
                    if let Some(rate) = told.rate {
                        told.police.heard_rate(rate, from);
                    }
                }
                Control::Grant => {
                    told.limit_heard_by = None;
                    told.police.watch_limit(told.limit.map(|_| from));
                }
                _ => {}
            }
        }
    }

    /// Tells the peer how much it may send. A limit that holds is not lowered: the peer would go by the higher
    /// one, and have what it sends dropped as excess. `heard_by` as for [`set_rate`](Self::set_rate).
    pub fn tell_limit(&mut self, limit: Option<u64>, heard_by: Instant) {
        let limit = limit.map(|limit| limit.max(self.limit_told().unwrap_or(0)));
        if !self.is_alive() || self.limit_told() == limit {
            return;
        }
        let told = self.told.get_or_insert_default();
        if limit.is_none() || told.limit.is_none() {
            told.limit_serial = told.limit_serial.wrapping_add(1);
            told.limit_heard_by = limit.map(|_| heard_by);
            told.police.watch_limit(told.limit_heard_by);
        }
        told.limit = limit;
        self.want(Control::Grant);
    }

    pub(super) fn grant_frame(&self) -> Option<Frame<'static>> {
        let told = self.told.as_ref()?;
        Some(Frame::Grant(frame::Grant { serial: told.limit_serial, limit: told.limit }))
    }

    /// The session begins anew: both sides count from the start, and what the other side told in the
    /// attempt that was given up does not hold.
    pub(super) fn restart_pace(&mut self, config: &Config) {
        self.rate = SenderRate::requested(self.heard_at, config);
        self.allowed.restart();
        self.data_received = 0;
        if let Some(told) = &mut self.told {
            told.limit = None;
            (told.limit_heard_by, told.rate_heard_by) = (None, None);
            told.police = Police::default();
        }
        if self.rate_set().is_some() {
            self.want(Control::Rate);
        }
    }
}

/// Whether a frame makes its packet a data packet (`spec/protocol.md` §13.3).
pub(super) fn is_data(frame: &Frame<'_>) -> bool {
    matches!(frame, Frame::Message(_) | Frame::Fragment(_) | Frame::Offer(_) | Frame::Skip(_))
}

/// Headers of a FIRST with PARAMETERS, its own trailer and one message's header: less leaves no room
/// for data.
const HEADERS_BYTES: usize = 128;

/// Where a packet that might reach to `end` has to end so that it carries no more than `room` octets
/// of one fragment, and leaves none so small that it would not be sent. Of a LONG_FRAGMENT it carries 8 fewer.
fn cut_at(written: usize, end: usize, room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX).max(MIN_FRAGMENT_BYTES);
    let full = end.saturating_sub(written + FRAGMENT_HEADER_BYTES);
    let payload = match room.checked_sub(full) {
        None => room,
        Some(1..MIN_FRAGMENT_BYTES) => full.saturating_sub(MIN_FRAGMENT_BYTES),
        Some(_) => return end,
    };
    (written + FRAGMENT_HEADER_BYTES + payload).min(end)
}

#[cfg(test)]
mod tests;
