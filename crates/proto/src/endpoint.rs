//! The state of one local address: the address table, and the way in and out.
//!
//! Inputs → outputs: see the crate's documentation. An endpoint finds the peer a datagram belongs
//! to, lets it work, and keeps the lists of who wants to send, who is due, and what can be taken.
//!
//! Order of calls, for a driver: `handle_datagram` for all that has arrived, then
//! `handle_timeout`, then `poll_transmit` until `None`, then `poll_event` and `recv`. Reading
//! before timing out matters: a process that was stopped for a while must not take its own
//! silence for its peers'.

mod admission;
mod replies;

use crate::config::Config;
use crate::event::{
    ChannelId, Completion, ConnectError, EndpointCounters, Event, FlowState, Message, MessageId, PeerError,
    PeerId, SendError,
};
use crate::peer::{Beginning, Context, Incoming, Notes, Peer};
use crate::send_channel;
use crate::timer_queue::TimerQueue;
use bytes::Bytes;
use core::net::SocketAddr;
use denrei_wire::checksum::{self, CHECKSUM_BYTES};
use denrei_wire::packet::{Kind, Packet, PacketError, flags};
use denrei_wire::{DatagramMeta, Incarnation, Instant, Token, Transmit, TransmitBuf};
use replies::Replies;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The state of one local address.
#[derive(Debug)]
pub struct Endpoint {
    config: Arc<Config>,
    incarnation: Incarnation,
    random: SplitMix64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The live peer at each address, as far as it has proven itself or we chose it.
    by_addr: BTreeMap<SocketAddr, u32>,
    /// Sessions that others opened and that have not proven themselves, by address.
    unproven: BTreeMap<SocketAddr, u32>,
    /// Peers that may have something to send, in turn.
    sending: VecDeque<u32>,
    timers: TimerQueue,
    /// Kept so that handling a timeout does not allocate.
    due: Vec<u32>,
    replies: Replies,
    events: VecDeque<Event>,
    /// Channels that have something to take, in turn.
    readable: VecDeque<ChannelId>,
    /// Times a channel was put on that list, and events taken: see [`news`](Self::news).
    listings: u64,
    events_polled: u64,
    notes: Notes,
    /// Bytes received, or promised memory to, and not taken, over all peers.
    held_bytes: u64,
    /// Offers that wait for receive memory, smallest first.
    waiting_offers: BTreeSet<(u64, ChannelId, u64)>,
    /// Channels whose credit was not renewed because receive memory was short.
    waiting_credit: VecDeque<ChannelId>,
    counters: EndpointCounters,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    peer: Option<Box<Peer>>,
    sending: bool,
}

/// A small generator (Steele, Lea, Flood 2014) for tokens: whoever builds the endpoint seeds it
/// from the system's randomness.
#[derive(Debug, Clone)]
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl Endpoint {
    /// An endpoint without peers. `seed` has to be unpredictable outside of simulations: tokens
    /// and the incarnation come from it.
    ///
    /// # Panics
    /// If `config` is not [valid](Config::validate).
    pub fn new(config: Arc<Config>, seed: u64, _now: Instant) -> Self {
        config.validate().expect("the configuration was validated");
        let mut random = SplitMix64(seed);
        Self {
            config,
            incarnation: Incarnation(random.next()),
            random,
            slots: Vec::new(),
            free: Vec::new(),
            by_addr: BTreeMap::new(),
            unproven: BTreeMap::new(),
            sending: VecDeque::new(),
            timers: TimerQueue::default(),
            due: Vec::new(),
            replies: Replies::default(),
            events: VecDeque::new(),
            readable: VecDeque::new(),
            listings: 0,
            events_polled: 0,
            notes: Notes::default(),
            held_bytes: 0,
            waiting_offers: BTreeSet::new(),
            waiting_credit: VecDeque::new(),
            counters: EndpointCounters::default(),
        }
    }

    /// Which start of this process this is.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// What happened that belongs to no peer.
    pub fn counters(&self) -> &EndpointCounters {
        &self.counters
    }

    // ---- the way in ----

    /// Takes a datagram. One that is damaged, forged, stale or foreign is counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, meta: DatagramMeta, datagram: &mut [u8]) {
        self.counters.datagrams += 1;
        let packet = match Packet::decode(datagram) {
            Ok(packet) => packet,
            Err(error) => return self.drop_undecodable(meta, datagram, error),
        };
        // Plain mode has one key, which is none, and an empty handshake.
        if packet.header.flags & flags::KEY_PHASE != 0 || !packet.handshake.is_empty() {
            self.counters.malformed += 1;
            return;
        }
        match packet.header.kind {
            Kind::Session | Kind::Answer => {
                let Some(slot) = self.find(packet.header.token, meta.from) else {
                    return self.reject_unknown(meta, datagram);
                };
                if checksum::verify(datagram) {
                    self.deliver(now, slot, meta, &packet, datagram.len());
                } else {
                    self.counters.corrupted += 1;
                }
            }
            _ if !checksum::verify(datagram) => self.counters.corrupted += 1,
            Kind::First => self.handle_first(now, meta, &packet, datagram.len()),
            Kind::Reset => self.handle_reset(now, meta, packet.header.token),
            Kind::Versions => self.handle_versions(now, meta, &packet),
        }
    }

    fn drop_undecodable(&mut self, meta: DatagramMeta, datagram: &[u8], error: PacketError) {
        if !matches!(error, PacketError::UnknownVersion(_)) {
            self.counters.malformed += 1;
            return;
        }
        self.counters.foreign_version += 1;
        if let Some(token) = denrei_wire::packet::first_token_of_any_version(datagram)
            && !self.replies.push(replies::Reply::Versions { to: meta.from, token })
        {
            self.counters.suppressed_replies += 1;
        }
    }

    fn reject_unknown(&mut self, meta: DatagramMeta, datagram: &[u8]) {
        self.counters.unknown_session += 1;
        let Ok(packet) = Packet::decode(datagram) else { return };
        if !checksum::verify(datagram) {
            return;
        }
        let reply = replies::Reply::Reset { to: meta.from, token: packet.header.token };
        if !self.replies.push(reply) {
            self.counters.suppressed_replies += 1;
        }
    }

    fn find(&self, token: Token, from: SocketAddr) -> Option<u32> {
        let peer = self.slots.get(token.slot())?.peer.as_deref()?;
        (peer.local_token == token && peer.addr == from).then_some(token.slot() as u32)
    }

    fn deliver(&mut self, now: Instant, slot: u32, meta: DatagramMeta, packet: &Packet<'_>, len: usize) {
        let body = &packet.body[..packet.body.len() - CHECKSUM_BYTES];
        let incoming = Incoming { header: packet.header, body, datagram_len: len, ecn: meta.ecn };
        self.with_peer(now, slot, |peer, cx| peer.handle_packet(cx, &incoming));
    }

    /// Time has come to `now`: fires what is due. Call it after the datagrams that have arrived.
    pub fn handle_timeout(&mut self, now: Instant) {
        let mut due = core::mem::take(&mut self.due);
        due.extend(core::iter::from_fn(|| self.timers.pop_due(now)));
        for slot in due.drain(..) {
            if self.peer_in(slot).is_some() {
                self.with_peer(now, slot, |peer, cx| peer.handle_timeout(cx));
                self.free_if_finished(slot);
            }
        }
        self.due = due;
    }

    /// When [`handle_timeout`](Self::handle_timeout) has to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    // ---- the way out ----

    /// Writes the next datagrams to send into `out`; call until `None`.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut TransmitBuf) -> Option<Transmit> {
        out.clear();
        if let Some(transmit) = self.replies.write(out) {
            return Some(transmit);
        }
        while let Some(slot) = self.sending.pop_front() {
            self.slots[slot as usize].sending = false;
            let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { continue };
            let mut cx =
                Context { config: &self.config, now, events: &mut self.events, notes: &mut self.notes };
            let transmit = peer.write_transmit(&mut cx, out);
            if peer.wants_transmit(&cx) && transmit.is_some() {
                self.slots[slot as usize].sending = true;
                self.sending.push_back(slot);
            }
            let deadline = self.slots[slot as usize].peer.as_deref().map(|peer| peer.deadline(&self.config));
            self.timers.arm(slot, deadline.unwrap_or(Instant::FAR_FUTURE));
            if transmit.is_some() {
                return transmit;
            }
        }
        None
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have something to send.
    pub fn wants_transmit(&self) -> bool {
        !self.sending.is_empty() || !self.replies.is_empty()
    }

    /// A number that changes whenever there is a new event, or a channel has something to take.
    pub fn news(&self) -> u64 {
        self.listings + self.events_polled + self.events.len() as u64
    }

    /// Events that wait to be polled.
    pub fn waiting_events(&self) -> usize {
        self.events.len()
    }

    /// The next thing the application may want to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        self.events_polled += event.is_some() as u64;
        event
    }

    // ---- sessions ----

    /// Opens a session with `target`, or names the one there is. Returns at once: messages may be
    /// sent right away and travel with the FIRST (R5).
    ///
    /// # Errors
    /// The address table is full, or the address is not one to send to.
    pub fn connect(&mut self, now: Instant, target: SocketAddr) -> Result<PeerId, ConnectError> {
        if target.port() == 0 || target.ip().is_unspecified() || target.ip().is_multicast() {
            return Err(ConnectError::BadAddress(target));
        }
        if let Some(peer) = self.peer_at(target) {
            return Ok(peer);
        }
        if let Some(slot) = self.unproven.remove(&target) {
            // It is opening a session to us this moment: that one will do.
            self.by_addr.insert(target, slot);
            let peer = self.slots[slot as usize].peer.as_deref_mut().expect("unproven peers exist");
            peer.visible = true;
            return Ok(peer.id);
        }
        let slot = self.new_slot().ok_or(ConnectError::TooManyPeers { max: self.config.max_peers })?;
        let beginning = self.beginning(slot, target, now);
        let id = beginning.id;
        self.slots[slot as usize].peer = Some(Box::new(Peer::opening(beginning, &self.config)));
        self.by_addr.insert(target, slot);
        self.after(now, slot);
        Ok(id)
    }

    /// The live peer at an address.
    pub fn peer_at(&self, addr: SocketAddr) -> Option<PeerId> {
        let slot = *self.by_addr.get(&addr)?;
        self.peer_in(slot).filter(|peer| peer.is_alive()).map(|peer| peer.id)
    }

    /// All peers the application knows of, lost ones included as long as they can be read from.
    pub fn peers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.slots
            .iter()
            .filter_map(|slot| slot.peer.as_deref())
            .filter(|peer| peer.visible)
            .map(|peer| peer.id)
    }

    /// A peer's flow state (S8).
    pub fn flow(&self, peer: PeerId) -> Option<FlowState> {
        self.get(peer).map(Peer::flow)
    }

    /// Bytes of messages to a peer that are not acknowledged, each charged 64 more; `None` if the
    /// peer is not in the address table.
    pub fn flow_queue_bytes(&self, peer: PeerId) -> Option<u64> {
        self.get(peer).map(|peer| peer.outbox().queued_bytes())
    }

    /// The application waits for what is queued to `peer` to be acknowledged: asks the peer not to
    /// hold the acknowledgement back.
    ///
    /// # Errors
    /// No such peer.
    pub fn hurry(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, _| peer.hurry())
    }

    /// SREQ: asks a peer for its state now; the answer is [`Event::Status`] with the number returned.
    pub fn request_status(&mut self, now: Instant, peer: PeerId) -> Result<u32, PeerError> {
        self.on_peer(now, peer, |peer, _| peer.request_status())
    }

    /// WCLOSE: this side will send no more. What is queued is still delivered.
    pub fn close_write(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.close_write(cx))
    }

    /// RCLOSE: this side wants no more. What was not taken is dropped.
    pub fn close_read(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, _| peer.close_read())?;
        self.free_if_finished(peer.slot);
        self.share_memory(now);
        Ok(())
    }

    /// Ends the session in order, once everything queued is delivered.
    pub fn close(&mut self, now: Instant, peer: PeerId) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.close(cx))
    }

    /// Ends the session at once. `code` and `reason` (cut at 128 octets) are for the peer.
    pub fn abort(&mut self, now: Instant, peer: PeerId, code: u16, reason: &str) -> Result<(), PeerError> {
        self.on_peer(now, peer, |peer, cx| peer.abort(cx, code, reason))
    }

    // ---- messages ----

    /// Queues a message. It is delivered whole, once and in order of its channel, or named in
    /// [`Event::PeerLost`].
    ///
    /// # Errors
    /// See [`SendError`]; the message was not taken.
    pub fn send(
        &mut self,
        now: Instant,
        to: ChannelId,
        message: Bytes,
        completion: Completion,
    ) -> Result<MessageId, SendError> {
        let config = &self.config;
        let slot = to.peer.slot as usize;
        let peer = self
            .slots
            .get_mut(slot)
            .filter(|slot| slot.generation == to.peer.generation)
            .and_then(|slot| slot.peer.as_deref_mut())
            .ok_or(SendError::UnknownPeer(to.peer))?;
        check_sendable(peer, config, to, message.len() as u64).inspect_err(|error| {
            if matches!(error, SendError::WouldBlock { .. }) {
                peer.hurry();
            }
        })?;
        let number = peer.outbox_mut().push(to.channel, message, completion);
        peer.counters.messages_sent += 1;
        self.after(now, to.peer.slot);
        Ok(MessageId { channel: to, number })
    }

    /// Sets how urgent a channel is: 0 (most) to 7, 4 if never set. Larger numbers count as 7.
    pub fn set_priority(&mut self, channel: ChannelId, priority: u8) -> Result<(), PeerError> {
        let max_channels = self.config.max_channels;
        let peer = self.get_mut(channel.peer)?;
        if channel.channel >= max_channels {
            return Err(PeerError::NoSuchChannel { channel: channel.channel, last: max_channels - 1 });
        }
        peer.outbox_mut().set_priority(channel.channel, priority);
        Ok(())
    }

    /// Takes the next message of any peer and channel, each in its turn.
    pub fn recv(&mut self, now: Instant) -> Option<Message> {
        loop {
            let channel = self.readable.pop_front()?;
            if let Some(message) = self.take(now, channel, true) {
                return Some(message);
            }
        }
    }

    /// Takes the next message of one channel.
    pub fn recv_from(&mut self, now: Instant, channel: ChannelId) -> Option<Message> {
        self.take(now, channel, false)
    }

    /// Whether [`recv`](Self::recv) has something to take.
    pub fn is_readable(&self) -> bool {
        !self.readable.is_empty()
    }

    fn take(&mut self, now: Instant, id: ChannelId, unlisted: bool) -> Option<Message> {
        let memory_left = self.held_bytes <= self.config.receive_memory_bytes;
        let config = self.config.clone();
        let peer = self.get_mut(id.peer).ok()?;
        // What an unproven session has brought may be a replay.
        if !peer.visible || !peer.is_sure_of_peer() {
            return None;
        }
        let taken = peer.inbox_mut().take(id.channel);
        let channel = peer.inbox_mut().get_mut(id.channel)?;
        if unlisted {
            channel.listed = false;
        }
        let list_again = channel.has_ready() && !channel.listed;
        channel.listed |= list_again;
        let more_offers = channel.has_open_offers();
        let taken = taken?;
        let answers = peer.on_taken(&config, id.channel, memory_left);
        if list_again {
            self.listings += 1;
            self.readable.push_back(id);
        }
        if !memory_left {
            self.waiting_credit.push_back(id);
        }
        self.held_bytes -= taken.data.len() as u64;
        if more_offers {
            self.note_offers(now, id.peer.slot);
        }
        self.share_memory(now);
        if answers {
            self.after(now, id.peer.slot);
        }
        self.free_if_finished(id.peer.slot);
        Some(Message { channel: id, number: taken.number, data: taken.data })
    }

    // ---- plumbing ----

    fn beginning(&mut self, slot: u32, addr: SocketAddr, now: Instant) -> Beginning {
        let id = PeerId { slot, generation: self.slots[slot as usize].generation };
        let local_token = Token::new(slot, self.random.next());
        Beginning { id, addr, local_token, incarnation: self.incarnation, now }
    }

    fn new_slot(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        if self.slots.len() >= self.config.max_peers as usize {
            return None;
        }
        self.slots.push(Slot { generation: 0, peer: None, sending: false });
        Some(self.slots.len() as u32 - 1)
    }

    fn peer_in(&self, slot: u32) -> Option<&Peer> {
        self.slots.get(slot as usize)?.peer.as_deref()
    }

    fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peer_in(id.slot).filter(|peer| peer.id == id)
    }

    fn get_mut(&mut self, id: PeerId) -> Result<&mut Peer, PeerError> {
        let slot = self.slots.get_mut(id.slot as usize);
        let peer = slot.and_then(|slot| slot.peer.as_deref_mut()).filter(|peer| peer.id == id);
        peer.ok_or(PeerError::UnknownPeer(id))
    }

    fn on_peer<T>(
        &mut self,
        now: Instant,
        id: PeerId,
        act: impl FnOnce(&mut Peer, &mut Context<'_>) -> T,
    ) -> Result<T, PeerError> {
        self.get_mut(id)?;
        Ok(self.with_peer(now, id.slot, act))
    }

    /// Lets a peer work and does what it notes.
    fn with_peer<T>(
        &mut self,
        now: Instant,
        slot: u32,
        act: impl FnOnce(&mut Peer, &mut Context<'_>) -> T,
    ) -> T {
        let peer = self.slots[slot as usize].peer.as_deref_mut().expect("the caller has seen it");
        let held_before = peer.inbox().held_bytes();
        let offers_wait = !self.waiting_offers.is_empty();
        let promised_before = if offers_wait { peer.inbox().promised() } else { 0 };
        let mut cx = Context { config: &self.config, now, events: &mut self.events, notes: &mut self.notes };
        let result = act(peer, &mut cx);
        self.held_bytes = self.held_bytes + peer.inbox().held_bytes() - held_before;
        // What was on its way has come, and may wait for the very message that is offered.
        let fewer_promised = offers_wait && peer.inbox().promised() < promised_before;
        self.follow_notes(now, slot);
        if fewer_promised {
            self.share_memory(now);
        }
        self.after(now, slot);
        result
    }

    fn follow_notes(&mut self, now: Instant, slot: u32) {
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        let id = peer.id;
        for channel in self.notes.ready.drain(..) {
            if let Some(state) = peer.inbox_mut().get_mut(channel)
                && !core::mem::replace(&mut state.listed, true)
            {
                self.listings += 1;
                self.readable.push_back(ChannelId { peer: id, channel });
            }
        }
        let addr = peer.addr;
        // All taken before any is followed: following lets other peers work, who make notes too.
        let Notes { proven, offers, lost, .. } = self.notes;
        (self.notes.proven, self.notes.offers, self.notes.lost) = (false, false, false);
        if proven {
            self.admit(now, slot, addr);
        }
        if offers {
            self.note_offers(now, slot);
        }
        if lost {
            self.forget_addr(slot, addr);
            self.share_memory(now);
        }
    }

    /// Lists a peer among those that send and arms its timer, as its state demands.
    fn after(&mut self, now: Instant, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        let Some(peer) = entry.peer.as_deref_mut() else { return };
        let cx = Context { config: &self.config, now, events: &mut self.events, notes: &mut self.notes };
        if !entry.sending && peer.wants_transmit(&cx) {
            entry.sending = true;
            self.sending.push_back(slot);
        }
        self.timers.arm(slot, peer.deadline(&self.config));
    }

    fn forget_addr(&mut self, slot: u32, addr: SocketAddr) {
        self.by_addr.extract_if(addr..=addr, |_, at| *at == slot).for_each(drop);
        self.unproven.extract_if(addr..=addr, |_, at| *at == slot).for_each(drop);
        let of_slot = |channel: &ChannelId| channel.peer.slot == slot;
        self.waiting_offers.retain(|(_, channel, _)| !of_slot(channel));
        self.waiting_credit.retain(|channel| !of_slot(channel));
    }

    fn free_if_finished(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if !entry.peer.as_deref().is_some_and(|peer| !peer.is_alive() && peer.is_finished()) {
            return;
        }
        entry.peer = None;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot);
    }
}

fn check_sendable(peer: &Peer, config: &Config, to: ChannelId, bytes: u64) -> Result<(), SendError> {
    if let Some(reason) = peer.lost_reason() {
        return Err(SendError::PeerLost { peer: to.peer, reason });
    }
    if peer.is_write_closed() {
        return Err(SendError::WriteClosed(to.peer));
    }
    if peer.is_peer_done_reading() {
        return Err(SendError::PeerDoneReading(to.peer));
    }
    let max_channels = peer.max_channels(config);
    if to.channel >= max_channels {
        return Err(SendError::NoSuchChannel { channel: to.channel, last: max_channels - 1 });
    }
    send_channel::check_size(bytes, peer.max_message())?;
    let queued_bytes = peer.outbox().queued_bytes();
    if queued_bytes > 0 && queued_bytes + bytes > config.send_buffer_bytes {
        return Err(SendError::WouldBlock { peer: to.peer, queued_bytes });
    }
    Ok(())
}
