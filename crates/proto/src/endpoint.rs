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
mod datagrams;
mod flow;
mod group_status;
mod groups;
mod lending;
mod messages;
mod opening;
mod pace;
mod rates;
mod readable;
mod replies;
#[cfg(feature = "rogue")]
mod rogue;
mod sessions;
mod shards;

use crate::blocks::Blocks;
use crate::buffer_pool::BufferPool;
use crate::config::Config;
use crate::event::{ChannelId, EndpointCounters, Event, PeerCounters, PeerError, PeerId};
use crate::events::Events;
use crate::group;
use crate::lending::Noted;
use crate::peer::{Beginning, Context, News, Notes, Peer};
use crate::seal::{Gate, Protection, Random, Seed};
use crate::timer_queue::TimerQueue;
use core::net::SocketAddr;
use denrei_wire::group::GROUP_CHANNEL;
use denrei_wire::packet::Opening;
use denrei_wire::{Incarnation, Instant, Token, Way};
use pace::Pace;
use readable::Readable;
use replies::Replies;
pub use shards::Place;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The state of one local address.
#[derive(Debug)]
pub struct Endpoint {
    config: Arc<Config>,
    incarnation: Incarnation,
    place: Place,
    random: Random,
    gate: Gate,
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
    /// When time was last told.
    told_at: Instant,
    /// What is handled may have come at any time since then,
    absent_since: Instant,
    /// until then.
    behind_until: Instant,
    replies: Replies,
    pool: BufferPool,
    blocks: Blocks,
    events: Events<Event>,
    readable: Readable,
    /// Times something came for a channel: see [`news`](Self::news).
    arrivals: u64,
    notes: Notes,
    /// Bytes received, or promised memory to, and not taken, over all peers.
    held_bytes: u64,
    /// Offers that wait for receive memory, smallest first.
    waiting_offers: BTreeSet<(u64, ChannelId, u64)>,
    /// Channels whose credit was not renewed because receive memory was short.
    waiting_credit: BTreeSet<ChannelId>,
    counters: EndpointCounters,
    /// What happened on the sessions that are not in `slots` any more.
    ended: PeerCounters,
    /// What was handled last of each source, for [`lend`](Self::lend).
    noted: Noted,
    /// Made when the first group is.
    groups: Option<Box<group::Table>>,
    /// Since when groups have sent, and no session was looked at.
    groups_since: Option<Instant>,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    peer: Option<Box<Peer>>,
    sending: bool,
    /// Whether the peer that had this slot last had acknowledged everything.
    left_flushed: bool,
}

impl Endpoint {
    /// An endpoint without peers. `seed` has to be secret outside of simulations: tokens, the
    /// incarnation and all keys come from it.
    ///
    /// # Panics
    /// If `config` is not [valid](Config::validate).
    pub fn new(config: Arc<Config>, seed: impl Into<Seed>, now: Instant) -> Self {
        Self::at(Place::default(), config, seed, now)
    }

    /// An endpoint without peers that shares its address with others, each of which has another
    /// [`Place`] and the same `config` and `seed`.
    ///
    /// # Panics
    /// If `config` is not [valid](Config::validate).
    pub fn at(place: Place, config: Arc<Config>, seed: impl Into<Seed>, now: Instant) -> Self {
        config.validate().expect("the configuration was validated");
        let mut random = Random::new(&seed.into());
        // Whoever speaks to this address sees one process, and cookies are good at all its places.
        let incarnation = Incarnation(random.next_u64());
        let gate = Gate::new(&config, &mut random);
        let random = place.own_random(random);
        Self {
            config,
            incarnation,
            place,
            random,
            gate,
            slots: Vec::new(),
            free: Vec::new(),
            by_addr: BTreeMap::new(),
            unproven: BTreeMap::new(),
            sending: VecDeque::new(),
            timers: TimerQueue::default(),
            due: Vec::new(),
            told_at: now,
            absent_since: Instant::ZERO,
            behind_until: Instant::ZERO,
            replies: Replies::default(),
            pool: BufferPool::default(),
            blocks: Blocks::default(),
            events: Events::default(),
            readable: Readable::default(),
            arrivals: 0,
            notes: Notes::default(),
            held_bytes: 0,
            waiting_offers: BTreeSet::new(),
            waiting_credit: BTreeSet::new(),
            counters: EndpointCounters::default(),
            ended: PeerCounters::default(),
            noted: Noted::default(),
            groups: None,
            groups_since: None,
            pace: Pace::default(),
        }
    }

    /// Which start of this process this is.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// What happened that belongs to no peer.
    pub fn counters(&self) -> EndpointCounters {
        EndpointCounters { dropped_events: self.events.dropped(), ..self.counters }
    }

    /// What happened on all sessions together, those included that are over.
    pub fn session_totals(&self) -> PeerCounters {
        let peers = self.slots.iter().filter_map(|slot| slot.peer.as_deref());
        peers.fold(self.ended, |sum, peer| sum + peer.counters)
    }

    /// A number that changes whenever there is a new event, or a channel has something to take.
    pub fn news(&self) -> u64 {
        let groups = self.groups.as_deref().map_or(0, group::Table::news);
        self.arrivals + self.events.count() + groups
    }

    /// How many events there have been so far.
    pub fn events(&self) -> u64 {
        self.events.count()
    }

    /// Bytes received, or promised memory to, and not taken, of all peers and groups.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Events that wait to be polled: of more than 65,536, besides 1,048,576 offers and what was asked for by a
    /// [`Completion`](crate::Completion), the oldest are dropped.
    pub fn waiting_events(&self) -> usize {
        self.events.len()
    }

    /// The next thing the application may want to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// How this side introduces itself in a session of `slot`: under a token of its own each time.
    fn new_opening(&mut self, slot: u32) -> Opening {
        Opening { own_token: Token::new(slot, self.random.next_u64()), incarnation: self.incarnation }
    }

    fn beginning(
        &mut self,
        slot: u32,
        way: Way,
        now: Instant,
        own: Opening,
        protection: Protection,
    ) -> Beginning {
        let id = PeerId { slot, generation: self.slots[slot as usize].generation };
        let skips = self.random.next_u64();
        Beginning { id, way, own, protection, now, pool: self.pool.clone(), skips }
    }

    fn new_slot(&mut self) -> Option<u32> {
        if !self.place.occupy(self.config.max_peers) {
            return None;
        }
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = self.place.number_from(self.slots.len());
        self.slots.resize_with(slot + 1, Slot::default);
        Some(slot as u32)
    }

    fn release_slot(&mut self, slot: u32) {
        self.place.vacate();
        self.free.push(slot);
    }

    fn peer_in(&self, slot: u32) -> Option<&Peer> {
        self.slots.get(slot as usize)?.peer.as_deref()
    }

    fn get(&self, id: PeerId) -> Option<&Peer> {
        self.peer_in(id.slot).filter(|peer| peer.id == id)
    }

    fn get_mut(&mut self, id: PeerId) -> Result<&mut Peer, PeerError> {
        peer_of(&mut self.slots, id).ok_or(PeerError::UnknownPeer(id))
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
        let offers_wait = !self.waiting_offers.is_empty();
        let held_by_all = self.held_bytes;
        let (peer, mut cx) = self.peer_at_work(now, slot).expect("the caller has seen it");
        let held_before = peer.inbox().held_bytes();
        let promised_before = if offers_wait { peer.inbox().promised() } else { 0 };
        let result = act(peer, &mut cx);
        // What was on its way has come, and may wait for the very message that is offered.
        let fewer_promised = offers_wait && peer.inbox().promised() < promised_before;
        let held_after = peer.inbox().held_bytes();
        self.held_bytes = self.held_bytes + held_after - held_before;
        self.follow_notes(now, slot);
        if self.groups.is_some() {
            self.tell_groups(slot);
        }
        if fewer_promised || self.held_bytes < held_by_all {
            self.share_memory(now);
        }
        self.after(now, slot);
        result
    }

    /// The peer in `slot`, and what it works with.
    fn peer_at_work(&mut self, now: Instant, slot: u32) -> Option<(&mut Peer, Context<'_>)> {
        let came = self.came(now);
        let peer = self.slots[slot as usize].peer.as_deref_mut()?;
        let cx = Context {
            config: &self.config,
            now,
            came,
            events: &mut self.events,
            notes: &mut self.notes,
            blocks: &mut self.blocks,
        };
        Some((peer, cx))
    }

    fn follow_notes(&mut self, now: Instant, slot: u32) {
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        let id = peer.id;
        let mut records = false;
        for &channel in &self.notes.ready {
            if channel == GROUP_CHANNEL {
                records = true;
                continue;
            }
            // News even of a channel that is listed: `recv_from` may have emptied it meanwhile.
            self.arrivals += 1;
            if let Some(state) = peer.inbox_mut().get_mut(channel)
                && !core::mem::replace(&mut state.listed, true)
            {
                self.readable.push_back(ChannelId { peer: id, channel });
            }
        }
        self.notes.ready.clear();
        if !records && self.notes.is_nothing_left() {
            return;
        }
        let way = peer.way();
        let addr = way.to;
        // All taken before any is followed: following lets other peers work, who make notes too.
        let news = core::mem::take(&mut self.notes.news);
        // First, as it ends the session before: who was restarted and asks to join is no member already.
        if news.contains(News::PROVEN) {
            self.admit(now, slot, addr);
        }
        let is_ending = news.intersects(News::LOST | News::HALF_CLOSED);
        if records || is_ending || !self.notes.reports.is_empty() {
            self.follow_group_notes(now, slot, records, is_ending);
        }
        if news.contains(News::RATE) {
            self.pace_groups(now, slot);
        }
        if news.contains(News::OFFERS) {
            self.note_offers(now, slot);
        }
        if news.contains(News::LOST) {
            self.forget_addr(slot, addr);
            self.share_memory(now);
        }
        if news.contains(News::INQUIRE) {
            self.inquire(now, way);
        }
        if news.contains(News::INQUIRY_ANSWERED) {
            self.conclude_inquiry(now, slot, addr);
        }
    }

    /// Lists a peer among those that send and arms its timer, as its state demands.
    fn after(&mut self, now: Instant, slot: u32) {
        let listed = self.slots[slot as usize].sending;
        let Some((peer, cx)) = self.peer_at_work(now, slot) else { return };
        if !listed && peer.wants_transmit(&cx) {
            self.list(slot);
        }
        self.arm(slot);
    }

    /// Lists a peer among those that may have something to send.
    fn list(&mut self, slot: u32) {
        if !core::mem::replace(&mut self.slots[slot as usize].sending, true) {
            self.sending.push_back(slot);
        }
    }

    fn arm(&mut self, slot: u32) {
        let Some(peer) = self.slots[slot as usize].peer.as_deref() else { return };
        self.timers.arm(slot, peer.deadline(&self.config));
    }

    fn forget_addr(&mut self, slot: u32, addr: SocketAddr) {
        self.forget_pace(slot);
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
        let Some(peer) = entry.peer.take() else { return };
        entry.left_flushed = peer.is_flushed();
        self.ended = self.ended + peer.counters;
        entry.generation = entry.generation.wrapping_add(1);
        self.release_slot(slot);
    }
}

/// The peer that `id` names, unless it has gone.
fn peer_of(slots: &mut [Slot], id: PeerId) -> Option<&mut Peer> {
    let slot = slots.get_mut(id.slot as usize).filter(|slot| slot.generation == id.generation)?;
    slot.peer.as_deref_mut()
}
