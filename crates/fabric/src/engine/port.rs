//! The way to the peers: a Node, and a short way to oneself.
//!
//! Inputs → outputs: messages for peers by the engine's index → the Node's channels; what the Node
//! brings → [`Arrival`]s by index. A session is opened when there is something to send, and opened
//! anew after it was lost. Messages to oneself do not touch the network.

use super::header::{BULK, MATCHED};
use super::matching::PeerIndex;
use crate::error::{Errno, is_orderly};
use bytes::Bytes;
use denrei::{ChannelId, Completion, Event, Incoming, LostReason, Node, PeerId, Placement};
use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

/// END code of who goes in order, as of a Node that is dropped (`spec/protocol.md` §8).
const SHUTTING_DOWN: u16 = 4;
/// END code for who breaks the protocol: of those that are the application's.
const VIOLATION: u16 = 0x8000;

/// Most that is taken from the Node at a time.
const MAX_TAKEN: usize = 256;

/// A message by its place: peer, channel and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageKey {
    pub peer: PeerIndex,
    pub channel: u16,
    pub number: u64,
}

/// What the port brings.
#[derive(Debug)]
pub enum Arrival {
    /// A message; `is_over`: of a session whose end was told before, as a successor has come.
    Message { key: MessageKey, data: Bytes, is_over: bool },
    /// A large message is offered on [`BULK`].
    Offered(MessageKey),
    /// A message that was to be reported is in the peer's memory, or refused by it.
    Acknowledged(MessageKey),
    /// The session is over; operations under way on it fail. `is_last`: all that it has brought was taken.
    Lost { peer: PeerIndex, reason: LostReason, is_last: bool },
}

#[derive(Debug)]
struct Peer {
    address: SocketAddr,
    session: Option<PeerId>,
    /// Its last session ended in order.
    has_departed: bool,
    /// A large message of this session was taken.
    has_given: bool,
    /// A message to match has come in this session.
    has_spoken: bool,
    /// Which start of its process has answered in the last session, and which before that.
    starts: [Option<u64>; 2],
}

impl Peer {
    fn at(address: SocketAddr) -> Self {
        Self {
            address,
            session: None,
            has_departed: false,
            has_given: false,
            has_spoken: false,
            starts: [None; 2],
        }
    }
}

/// A session that is over.
#[derive(Debug)]
struct Over {
    peer: PeerIndex,
    reason: LostReason,
    /// Said once, before its last messages were taken.
    is_told: bool,
    /// To be said for the last time, whatever of its messages was not taken.
    is_due: bool,
}

/// The way to the peers.
#[derive(Debug)]
pub struct Port {
    node: Node,
    peers: Vec<Peer>,
    by_address: HashMap<SocketAddr, PeerIndex>,
    /// Indices that are nobody's.
    free: Vec<PeerIndex>,
    /// By the session's slot, which is the low half of its number.
    by_slot: Vec<Option<(PeerId, PeerIndex)>>,
    own: PeerIndex,
    loopback: VecDeque<Arrival>,
    /// Large messages to oneself that were not taken yet, by number.
    own_bulk: HashMap<u64, Bytes>,
    own_numbers: [u64; 4],
    /// Something was queued and not sent.
    unsent: bool,
    taken: Vec<Incoming>,
    /// Sessions that are over, of which messages may still have to be taken.
    lost: Vec<Over>,
    /// The session ends just before something is queued on this channel.
    #[cfg(test)]
    pub(super) ends_before: Option<u16>,
}

impl Port {
    /// The port of a Node.
    pub fn new(node: Node) -> Self {
        let mut port = Self {
            peers: Vec::new(),
            by_address: HashMap::new(),
            free: Vec::new(),
            by_slot: Vec::new(),
            own: 0,
            loopback: VecDeque::new(),
            own_bulk: HashMap::new(),
            own_numbers: [0; 4],
            unsent: false,
            taken: Vec::new(),
            lost: Vec::new(),
            #[cfg(test)]
            ends_before: None,
            node,
        };
        port.own = port.index(port.node.local_addr());
        port
    }

    /// The index of an address, which may be nobody's yet.
    pub fn index(&mut self, address: SocketAddr) -> PeerIndex {
        if let Some(known) = self.by_address.get(&address) {
            return *known;
        }
        let index = self.free.pop().unwrap_or(self.peers.len() as PeerIndex);
        match self.peers.get_mut(index as usize) {
            Some(peer) => *peer = Peer::at(address),
            None => self.peers.push(Peer::at(address)),
        }
        self.by_address.insert(address, index);
        index
    }

    /// How many have an index.
    pub fn known(&self) -> usize {
        self.by_address.len()
    }

    /// How long tables by index are.
    #[cfg(test)]
    pub fn directory(&self) -> usize {
        self.peers.len()
    }

    /// Who has no session, and is told of no more.
    pub fn idle(&self) -> Vec<PeerIndex> {
        let is_idle = |peer: &PeerIndex| {
            *peer != self.own && !self.has_session(*peer) && self.lost.iter().all(|over| over.peer != *peer)
        };
        self.by_address.values().copied().filter(is_idle).collect()
    }

    /// Idle peers' indices may be others' from now on.
    pub fn forget(&mut self, gone: &HashSet<PeerIndex>) {
        self.by_address.retain(|_, peer| !gone.contains(peer));
        self.free.extend(gone);
        for slot in &mut self.by_slot {
            slot.take_if(|(_, peer)| gone.contains(peer));
        }
    }

    /// The address of an index.
    pub fn address(&self, peer: PeerIndex) -> SocketAddr {
        self.peers[peer as usize].address
    }

    /// Opens a session with a peer unless there is one; whether it did.
    ///
    /// # Errors
    /// Too many peers, or an address that cannot be one.
    pub fn connect(&mut self, peer: PeerIndex) -> Result<bool, Errno> {
        // Of one that is over it will be told.
        let is_over = self.lost.iter().any(|over| over.peer == peer);
        let is_there = peer == self.own || self.has_session(peer) || is_over;
        if !is_there {
            self.session(peer)?;
        }
        Ok(!is_there)
    }

    /// Whether there is a session with a peer, or one to it is being opened.
    pub fn has_session(&self, peer: PeerIndex) -> bool {
        self.peers[peer as usize].session.is_some()
    }

    /// Whether a peer has gone in order, and there was no session with it since.
    pub fn has_departed(&self, peer: PeerIndex) -> bool {
        self.peers[peer as usize].has_departed
    }

    /// Whether a message to match has come from a peer in its last session.
    pub fn has_spoken(&self, peer: PeerIndex) -> bool {
        self.peers[peer as usize].has_spoken
    }

    /// Whether the last session is with another process than the one before it, as far as that is known.
    pub fn has_successor(&self, peer: PeerIndex) -> Option<bool> {
        let [last, before] = self.peers[peer as usize].starts;
        last.zip(before).map(|(last, before)| last != before)
    }

    fn session(&mut self, peer: PeerIndex) -> Result<PeerId, Errno> {
        let entry = &self.peers[peer as usize];
        if let Some(session) = entry.session {
            return Ok(session);
        }
        // The numbers of messages begin anew: what was under way fails first.
        if let Some(over) = self.lost.iter_mut().find(|over| over.peer == peer) {
            over.is_due = true;
            return Err(Errno::of_loss(&over.reason));
        }
        let session = self.node.connect(entry.address).map_err(|_| Errno(crate::ffi::EADDRNOTAVAIL))?;
        self.bind(peer, session);
        Ok(session)
    }

    fn bind(&mut self, peer: PeerIndex, session: PeerId) {
        let entry = &mut self.peers[peer as usize];
        let [last, before] = entry.starts;
        // One that never answered is with nobody.
        let starts = if entry.session == Some(session) { entry.starts } else { [None, last.or(before)] };
        *entry = Peer { session: Some(session), starts, ..Peer::at(entry.address) };
        let slot = session.as_u64() as u32 as usize;
        if slot >= self.by_slot.len() {
            self.by_slot.resize(slot + 1, None);
        }
        self.by_slot[slot] = Some((session, peer));
    }

    fn of_session(&self, session: PeerId) -> Option<PeerIndex> {
        let (known, peer) = (*self.by_slot.get(session.as_u64() as u32 as usize)?)?;
        (known == session).then_some(peer)
    }

    /// Queues a message for a peer; its number on the channel. `report`: [`Arrival::Acknowledged`]
    /// is wanted. It leaves with [`send_queued`](Self::send_queued) or [`work`](Self::work).
    ///
    /// # Errors
    /// `AGAIN`: the queue is full. Others: there is no way to this peer.
    pub fn queue(&mut self, peer: PeerIndex, channel: u16, data: Bytes, report: bool) -> Result<u64, Errno> {
        if peer == self.own {
            return Ok(self.queue_to_self(channel, data, report));
        }
        #[cfg(test)]
        if self.ends_before == Some(channel) {
            return Err(Errno::OTHER);
        }
        let completion = if report { Completion::Acknowledged } else { Completion::None };
        let to = ChannelId { peer: self.session(peer)?, channel };
        let id = self.node.queue(to, data, completion).map_err(|error| Errno::of_send(&error))?;
        self.unsent = true;
        if report && channel == MATCHED {
            // It may be all there is for a while, and the peer would hold its word back for a millisecond. What
            // fails here has failed above.
            let _ = self.node.hurry(to.peer);
        }
        Ok(id.number)
    }

    fn queue_to_self(&mut self, channel: u16, data: Bytes, report: bool) -> u64 {
        let number = self.own_numbers[channel as usize];
        self.own_numbers[channel as usize] += 1;
        let key = MessageKey { peer: self.own, channel, number };
        if channel == BULK {
            // Reported when it has been taken: until then its bytes are the application's.
            self.own_bulk.insert(number, data);
            self.loopback.push_back(Arrival::Offered(key));
            return number;
        }
        self.loopback.push_back(Arrival::Message { key, data, is_over: false });
        if report {
            self.loopback.push_back(Arrival::Acknowledged(key));
        }
        number
    }

    /// Whether something waits that was sent to this port itself.
    pub fn has_word_for_itself(&self) -> bool {
        !self.loopback.is_empty()
    }

    /// Takes an offered message into `into`; it comes as a message without bytes. Its sender hears of it with
    /// [`send_queued`](Self::send_queued) or [`work`](Self::work).
    ///
    /// # Errors
    /// The offer is gone, with its sender.
    pub fn accept(&mut self, key: MessageKey, mut into: Box<dyn Placement>) -> Result<(), Errno> {
        if key.peer == self.own {
            let data = self.own_bulk.remove(&key.number).ok_or(Errno::OTHER)?;
            into.place(0, &data);
            drop((into, data));
            self.loopback.push_back(Arrival::Message { key, data: Bytes::new(), is_over: false });
            self.loopback.push_back(Arrival::Acknowledged(key));
            return Ok(());
        }
        let channel = ChannelId { peer: self.session(key.peer)?, channel: key.channel };
        self.peers[key.peer as usize].has_given = true;
        self.unsent = true;
        self.node.queue_accept(channel, key.number, into).map_err(|_| Errno::OTHER)
    }

    /// Refuses an offered message: its sender is told that it is done with.
    pub fn refuse(&mut self, key: MessageKey) {
        if key.peer == self.own {
            self.own_bulk.remove(&key.number);
            self.loopback.push_back(Arrival::Acknowledged(key));
            return;
        }
        if let Some(peer) = self.peers[key.peer as usize].session {
            // Gone with its sender: then nobody has to be told.
            let _ = self.node.refuse(ChannelId { peer, channel: key.channel }, key.number);
        }
    }

    /// Ranks take their turns at the cores: until what is queued for a peer is through, delay says little.
    pub fn take_turns(&mut self, peer: PeerIndex) {
        if let Some(session) = self.peers[peer as usize].session {
            // Gone: then nothing is queued.
            let _ = self.node.take_turns(session);
        }
    }

    /// Sends what was queued.
    pub fn send_queued(&mut self) {
        if std::mem::take(&mut self.unsent) {
            self.node.send_queued();
        }
    }

    /// Does what is due on the network, and appends what has come to `arrivals`. `takes`: whether a peer's messages on a
    /// channel are wanted. Whether anything came.
    pub fn work(&mut self, arrivals: &mut Vec<Arrival>, takes: impl Fn(PeerIndex, u16) -> bool) -> bool {
        self.send_queued();
        let is_news = self.node.poll() || !self.loopback.is_empty() || !self.lost.is_empty();
        is_news && self.collect(arrivals, takes)
    }

    fn collect(&mut self, arrivals: &mut Vec<Arrival>, takes: impl Fn(PeerIndex, u16) -> bool) -> bool {
        let before = arrivals.len();
        arrivals.extend(self.loopback.drain(..));
        let mut taken = std::mem::take(&mut self.taken);
        // Of a session that nobody knows any more, nothing is kept.
        let wanted = |id: ChannelId| self.of_session(id.peer).is_none_or(|peer| takes(peer, id.channel));
        let count = self.node.drain(MAX_TAKEN, wanted, |incoming| taken.push(incoming));
        for incoming in taken.drain(..) {
            match incoming {
                Incoming::Message(message) => {
                    let ChannelId { peer, channel } = message.channel;
                    let session = peer;
                    if let Some(peer) = self.of_session(session) {
                        self.peers[peer as usize].has_spoken |= channel == MATCHED;
                        let key = MessageKey { peer, channel, number: message.number };
                        let is_over = self.is_over(peer, session);
                        arrivals.push(Arrival::Message { key, data: message.data, is_over });
                    }
                }
                Incoming::Event(event) => self.note(event, arrivals),
            }
        }
        self.taken = taken;
        // Everything they sent has been taken, but perhaps what waits for receives.
        let is_drained = count < MAX_TAKEN;
        self.tell_lost(arrivals, is_drained, takes);
        arrivals.len() > before
    }

    fn tell_lost(
        &mut self,
        arrivals: &mut Vec<Arrival>,
        is_drained: bool,
        takes: impl Fn(PeerIndex, u16) -> bool,
    ) {
        self.lost.retain_mut(|over| {
            let is_last = (is_drained && takes(over.peer, MATCHED)) || over.is_due;
            if is_last || (is_drained && !over.is_told) {
                over.is_told = true;
                arrivals.push(Arrival::Lost { peer: over.peer, reason: over.reason.clone(), is_last });
            }
            !is_last
        });
    }

    fn note(&mut self, event: Event, arrivals: &mut Vec<Arrival>) {
        match event {
            Event::Connected { peer: session, addr, incarnation } => {
                let peer = self.index(addr);
                self.bind(peer, session);
                self.peers[peer as usize].starts[0] = Some(incarnation.0);
                // What was under way with its predecessor is over, not what it sends itself.
                for over in self.lost.extract_if(.., |over| over.peer == peer) {
                    arrivals.push(Arrival::Lost { peer, reason: over.reason, is_last: true });
                }
            }
            Event::Acknowledged(id) | Event::Refused(id) => {
                if let Some(peer) = self.of_session(id.channel.peer) {
                    let key = MessageKey { peer, channel: id.channel.channel, number: id.number };
                    arrivals.push(Arrival::Acknowledged(key));
                }
            }
            Event::Offered { channel, number, .. } => {
                if let Some(peer) = self.of_session(channel.peer) {
                    arrivals.push(Arrival::Offered(MessageKey { peer, channel: channel.channel, number }));
                }
            }
            Event::PeerLost { peer: session, addr, reason, .. } => {
                let peer = self.index(addr);
                let entry = &mut self.peers[peer as usize];
                if entry.session == Some(session) {
                    (entry.session, entry.has_departed) = (None, is_orderly(&reason));
                }
                // A successor may have taken its place already.
                if entry.session.is_some() {
                    arrivals.push(Arrival::Lost { peer, reason, is_last: true });
                } else {
                    self.lost.push(Over { peer, reason, is_told: false, is_due: false });
                }
            }
            _ => {}
        }
    }

    /// Whether a session of a peer is over, and all was told of it.
    fn is_over(&self, peer: PeerIndex, session: PeerId) -> bool {
        self.peers[peer as usize].session != Some(session) && !self.lost.iter().any(|over| over.peer == peer)
    }

    /// Peers whose large messages were taken, as far as their sessions live.
    pub fn givers(&self) -> impl Iterator<Item = PeerIndex> {
        let gives = |peer: &Peer| peer.session.is_some() && peer.has_given;
        (0..).zip(&self.peers).filter(move |(_, peer)| gives(peer)).map(|(index, _)| index)
    }

    /// Ends the session with a peer that has broken the protocol: it is told of as any that is lost.
    pub fn break_off(&mut self, peer: PeerIndex, what: &str) {
        if let Some(session) = self.peers[peer as usize].session {
            // One that is over already needs no word.
            let _ = self.node.abort(session, VIOLATION, what);
        }
    }

    /// Ends all sessions, in order: what was accepted is placed no more, and no bytes of what was sent are read.
    pub fn end_sessions(&mut self) {
        for session in self.peers.iter().filter_map(|peer| peer.session) {
            // One that is over already needs no word.
            let _ = self.node.abort(session, SHUTTING_DOWN, "the endpoint was closed");
        }
    }

    /// Waits until what was sent is acknowledged, until `deadline` at the latest.
    pub fn flush(&mut self, deadline: Instant) {
        self.send_queued();
        for session in self.peers.iter().filter_map(|peer| peer.session) {
            self.node.flush(session, deadline.saturating_duration_since(Instant::now()));
        }
    }
}
