//! One sender and the peer it speaks to through the relay.
//!
//! Inputs → outputs: messages and ends of either side → the same on the other. Towards the far peer
//! there is a queue, because the Node that receives from the sender serves other pairs too; back
//! there is next to none, because the far Node is this pair's own: what it does not take its peer's credit
//! holds back. In both directions a channel that its receiver does not read holds up no other of the pair.

mod drain;
#[cfg(test)]
mod filled;
mod lost;

use super::pace::Pace;
use super::queue::{Queue, RETRY, Stuck};
use crate::{Incoming, Node};
use bytes::Bytes;
use denrei_proto::{ChannelId, Event, LostReason, MessageId, PeerId, SendError};
use drain::Drain;
pub(super) use drain::ENDING;
use lost::Lost;
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often a pair's rate is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// How soon a thread that waits notices that its pair is over.
const PATIENCE: Duration = Duration::from_millis(50);

/// A channel may hold one part in so many of what its pair may; more of it stays with the Node that receives it.
const CHANNEL_PART: u64 = 4;

/// How long the last messages may take to be acknowledged where whoever sent them is lost, towards the far peer since it
/// last acknowledged one. A sender that ends in order is told that all have arrived: those are waited for as long as who is
/// to have them lives.
const FLUSH_LIMIT: Duration = if cfg!(test) { Duration::from_millis(500) } else { Duration::from_secs(20) };

/// END codes from here on are applications' (§8 of the protocol).
const APPLICATION_CODES: u16 = 0x8000;

/// END code: the peer beyond the relay is lost. One of those that applications may use.
pub(super) const FAR_PEER_LOST: u16 = 0x8e01;

/// A pair, as of now.
#[derive(Clone, Debug, PartialEq)]
pub struct PairState {
    /// The sender.
    pub near: SocketAddr,
    /// The peer that it speaks to.
    pub target: SocketAddr,
    /// Messages forwarded to the target.
    pub forwarded_messages: u64,
    /// Bytes of them.
    pub forwarded_bytes: u64,
    /// Messages forwarded back.
    pub returned_messages: u64,
    /// Bytes held on the way to the target.
    pub held_bytes: u64,
    /// Times that the sender's rate was lowered or stopped.
    pub lowered: u64,
}

/// What a sender does last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It will send no more.
    DoneWriting,
    /// It is gone, in order or not.
    Gone(LostReason),
}

/// What is held of a sender, and what it does last.
#[derive(Default)]
struct Held {
    messages: Queue,
    ending: Option<Ending>,
}

/// What of a sender has to stay where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Nothing.
    Nothing,
    /// The channel of the message that was taken.
    Channel,
    /// All that it sends.
    Pair,
}

/// One sender and its peer beyond.
pub(super) struct Pair {
    near: Node,
    near_peer: PeerId,
    near_addr: SocketAddr,
    far: Node,
    far_peer: PeerId,
    target: SocketAddr,
    limit: u64,
    queue: Mutex<Held>,
    changed: Condvar,
    over: AtomicBool,
    lost: Lost,
    drain: Drain,
    /// What the sender refused of what came back, for people.
    refused: OnceLock<String>,
    /// With the time of the last look and what the far peer had acknowledged then, bytes.
    pace: Mutex<(Pace, Instant, u64)>,
    forwarded_messages: AtomicU64,
    forwarded_bytes: AtomicU64,
    returned_messages: AtomicU64,
}

impl Pair {
    /// A pair whose far session is being opened.
    pub fn new(
        near: Node,
        near_peer: PeerId,
        far: Node,
        far_peer: PeerId,
        target: SocketAddr,
        limit: u64,
    ) -> Self {
        let near_addr = near.flow(near_peer).map_or(target, |flow| flow.addr);
        Self {
            near,
            near_peer,
            near_addr,
            far,
            far_peer,
            target,
            limit,
            queue: Mutex::default(),
            changed: Condvar::new(),
            over: AtomicBool::new(false),
            lost: Lost::default(),
            drain: Drain::default(),
            refused: OnceLock::new(),
            pace: Mutex::new((Pace::new(), Instant::now(), 0)),
            forwarded_messages: AtomicU64::new(0),
            forwarded_bytes: AtomicU64::new(0),
            returned_messages: AtomicU64::new(0),
        }
    }

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Ends it, whatever is left.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether the sender's messages have to stay where they are. One that has not heard yet that it is to
    /// stop may bring a lot: credit bounds that, not the rate.
    pub fn is_full(&self) -> bool {
        self.queue.lock().messages.cost() >= self.limit
    }

    /// Whether this channel's messages have to: its receiver reads others first.
    pub fn is_full_on(&self, channel: u16) -> bool {
        self.queue.lock().messages.cost_of(channel) >= self.limit / CHANNEL_PART
    }

    /// Takes a message of the sender.
    pub fn push(&self, channel: u16, message: Bytes) -> Full {
        let (held, of_channel) = {
            let messages = &mut self.queue.lock().messages;
            messages.push(channel, message);
            self.drain.note_moved();
            (messages.cost(), messages.cost_of(channel))
        };
        self.changed.notify_all();
        if held > self.limit / 4 {
            self.regulate();
        }
        if held >= self.limit {
            Full::Pair
        } else if of_channel >= self.limit / CHANNEL_PART {
            Full::Channel
        } else {
            Full::Nothing
        }
    }

    /// The sender has sent its last.
    pub fn finish(&self, ending: Ending) {
        if let Ending::Gone(reason) = &ending {
            self.lost.note(reason);
        }
        self.queue.lock().ending = Some(ending);
        self.changed.notify_all();
    }

    /// The sender wants no more.
    pub fn take_nothing_back(&self) {
        // A peer that is gone has been told to the other thread.
        let _ = self.far.close_read(self.far_peer);
    }

    /// The sender refused what the relay has acknowledged to the far peer: the thread that carries back ends the pair.
    pub fn refused_by_sender(&self, message: MessageId) {
        // The first says why.
        let _ = self.refused.set(refused("the peer before the relay", message));
    }

    /// Sets the sender's rate by what is held.
    pub fn regulate(&self) {
        let Some(far) = self.far.flow(self.far_peer).filter(|_| !self.drain.is_on()) else { return };
        let held = self.queue.lock().messages.cost() + far.queued_bytes;
        let mut pace = self.pace.lock();
        let now = Instant::now();
        let forwarded = self.forwarded_bytes.load(Ordering::Relaxed);
        let acknowledged = forwarded.saturating_sub(far.queued_bytes);
        let (since, before) = (pace.1, pace.2);
        if now - since >= LOOK {
            pace.0.drained(acknowledged.saturating_sub(before), now - since);
            (pace.1, pace.2) = (now, acknowledged);
        }
        if let Some(rate) = pace.0.follow(held as f64 / self.limit as f64, far.rate) {
            // A sender that is gone needs none.
            let _ = self.near.set_rate(self.near_peer, rate);
        }
    }

    /// As of now.
    pub fn state(&self) -> PairState {
        let queued = self.far.flow(self.far_peer).map_or(0, |flow| flow.queued_bytes);
        PairState {
            near: self.near_addr,
            target: self.target,
            forwarded_messages: self.forwarded_messages.load(Ordering::Relaxed),
            forwarded_bytes: self.forwarded_bytes.load(Ordering::Relaxed),
            returned_messages: self.returned_messages.load(Ordering::Relaxed),
            held_bytes: self.queue.lock().messages.bytes() + queued,
            lowered: self.pace.lock().0.lowered(),
        }
    }

    /// The thread that forwards to the far peer, until the pair is over.
    pub fn forward(&self) {
        let mut stuck = Stuck::new();
        while let Some(next) = self.next(&mut stuck) {
            match next {
                Next::Message(channel, message, patience) => {
                    if self.send_far(channel, message, patience) {
                        self.queue.lock().messages.pop(channel);
                    } else {
                        stuck.add(channel);
                    }
                }
                Next::Ending(Ending::DoneWriting) => {
                    // A peer that is gone has been told to the other thread.
                    let _ = self.far.close_write(self.far_peer);
                }
                Next::Ending(Ending::Gone(reason)) => {
                    self.flush(&self.far, self.far_peer, None);
                    self.close_far(&reason);
                    return self.end();
                }
            }
        }
    }

    /// The thread that carries back what the far peer sends, until the pair is over.
    pub fn carry_back(&self) {
        let mut held = Queue::default();
        let mut looked = Instant::now();
        while !self.is_over() {
            if let Some(why) = self.refused.get() {
                return self.fail(FAR_PEER_LOST, why);
            }
            if held.is_empty() && self.is_drained() {
                return self.fail(FAR_PEER_LOST, ENDING);
            }
            if !held.is_empty() && looked.elapsed() >= RETRY {
                self.return_held(&mut held, Duration::ZERO);
                looked = Instant::now();
            }
            let patience = match held.is_empty() {
                true if self.drain.is_on() => LOOK,
                true => PATIENCE,
                false => Duration::ZERO,
            };
            // What is held of many channels, a message of each, is bounded too.
            let has_room = held.cost() < self.limit;
            match self.far.next_where(patience, |channel| has_room && !held.holds(channel.channel)) {
                Ok(None) => self.return_held(&mut held, RETRY),
                Ok(Some(Incoming::Message(message))) => {
                    let channel = message.channel.channel;
                    // After the far peer's last word what it sent comes, whether it is wanted or not.
                    if held.holds(channel) || !self.send_near(channel, message.data.clone(), Duration::ZERO) {
                        held.push(channel, message.data);
                    }
                }
                Ok(Some(Incoming::Event(event))) => {
                    if matches!(event, Event::PeerDoneWriting(_) | Event::PeerLost { .. }) {
                        self.return_all(&mut held);
                    }
                    self.on_far_event(event);
                }
                Err(error) => self.fail(FAR_PEER_LOST, &format!("the relay's socket failed: {error}")),
            }
        }
    }

    /// Waits for something to do; `None`: the pair is over.
    fn next(&self, stuck: &mut Stuck) -> Option<Next> {
        let mut queue = self.queue.lock();
        loop {
            if self.is_over() {
                return None;
            }
            stuck.refresh();
            if let Some((channel, message)) =
                queue.messages.first(|channel| !stuck.channels.contains(&channel))
            {
                return Some(Next::Message(channel, message, Duration::ZERO));
            }
            // None has room: the next look is at the one that has waited longest, and then at all.
            stuck.channels.clear();
            if let Some((channel, message)) = queue.messages.first(|_| true) {
                return Some(Next::Message(channel, message, RETRY));
            }
            if let Some(ending) = queue.ending.take() {
                return Some(Next::Ending(ending));
            }
            self.changed.wait_for(&mut queue, PATIENCE);
        }
    }

    /// Whether the message needs no more attention; else there was no room.
    fn send_far(&self, channel: u16, message: Bytes, patience: Duration) -> bool {
        let to = ChannelId { peer: self.far_peer, channel };
        let bytes = message.len() as u64;
        match self.far.send_timeout(to, message, patience) {
            Ok(_) => {
                self.forwarded_messages.fetch_add(1, Ordering::Relaxed);
                self.forwarded_bytes.fetch_add(bytes, Ordering::Relaxed);
            }
            // A peer that wants no more may still speak; the sender hears of it from the other thread.
            Err(SendError::PeerDoneReading(_)) => {}
            Err(SendError::WouldBlock { .. }) => return false,
            // The other thread ends the pair, behind what came back before.
            Err(SendError::PeerLost { .. } | SendError::UnknownPeer(_)) => self.await_end(),
            Err(error) => self.fail(FAR_PEER_LOST, &format!("the peer beyond the relay: {error}")),
        }
        true
    }

    /// Whether the message needs no more attention; else there was no room.
    fn send_near(&self, channel: u16, message: Bytes, patience: Duration) -> bool {
        let to = ChannelId { peer: self.near_peer, channel };
        match self.near.send_timeout(to, message, patience) {
            Ok(_) => {
                self.drain.note_moved();
                self.returned_messages.fetch_add(1, Ordering::Relaxed);
            }
            Err(SendError::WouldBlock { .. }) => return false,
            // The sender wants no more, or is gone, which the route's thread hears.
            Err(SendError::PeerDoneReading(_) | SendError::PeerLost { .. } | SendError::UnknownPeer(_)) => {}
            // It cannot be left out.
            Err(error) => self.fail(FAR_PEER_LOST, &format!("what the peer beyond the relay said: {error}")),
        }
        true
    }

    /// Sends back what there is room for, and waits so long for the channel that has waited longest.
    fn return_held(&self, held: &mut Queue, patience: Duration) {
        if let Some((channel, message)) = held.first(|_| true)
            && self.send_near(channel, message, patience)
        {
            held.pop(channel);
        }
        for channel in held.channels() {
            while let Some(message) = held.first_of(channel)
                && self.send_near(channel, message, Duration::ZERO)
            {
                held.pop(channel);
            }
        }
    }

    /// Sends back all, before the far peer's last word.
    fn return_all(&self, held: &mut Queue) {
        while !held.is_empty() && !self.is_over() {
            self.return_held(held, RETRY);
        }
    }

    fn on_far_event(&self, event: Event) {
        match event {
            Event::PeerDoneWriting(_) => {
                let _ = self.near.close_write(self.near_peer);
            }
            Event::PeerDoneReading { .. } => {
                let _ = self.near.close_read(self.near_peer);
            }
            // The relay has acknowledged it: only the end of the session tells the sender that it did not arrive.
            Event::Refused(message) => {
                self.fail(FAR_PEER_LOST, &refused("the peer beyond the relay", message));
            }
            Event::PeerLost { reason, .. } if is_orderly(&reason) => {
                self.flush(&self.near, self.near_peer, Some(FLUSH_LIMIT));
                let _ = self.near.close(self.near_peer);
                self.end();
            }
            Event::PeerLost { reason, .. } => self.fail_as(&reason),
            _ => {}
        }
    }

    /// The far peer is lost: what it has said itself, as another relay may have, the sender hears as it said it.
    fn fail_as(&self, reason: &LostReason) {
        match reason {
            LostReason::Ended { code, reason } if *code >= APPLICATION_CODES => self.fail(*code, reason),
            reason => self.fail(FAR_PEER_LOST, &beyond(reason)),
        }
    }

    /// Tells the sender why, behind what came back before, and ends the pair.
    pub(super) fn fail(&self, code: u16, why: &str) {
        self.flush(&self.near, self.near_peer, Some(FLUSH_LIMIT));
        // First: whoever hears of the end of one session would end the other for that, and not for this.
        self.end();
        // One that is gone needs no word.
        let _ = self.near.abort(self.near_peer, code, why);
        let _ = self.far.abort(self.far_peer, code, why);
    }

    fn close_far(&self, reason: &LostReason) {
        let _ = match reason {
            reason if is_orderly(reason) => self.far.close(self.far_peer),
            LostReason::Ended { code, reason } => self.far.abort(self.far_peer, *code, reason),
            other => self.far.abort(self.far_peer, FAR_PEER_LOST, &beyond(other)),
        };
        // Closing takes a round trip; dropping the Node would cut it short. The other thread hears
        // that it is over.
        if is_orderly(reason) {
            self.await_end();
        }
    }

    fn await_end(&self) {
        while !self.is_over() {
            std::thread::sleep(PATIENCE / 10);
        }
    }

    /// Waits until a side has acknowledged everything or is gone, for so long at most, unless the pair is ended meanwhile.
    fn flush(&self, node: &Node, peer: PeerId, limit: Option<Duration>) {
        let until = limit.map(|limit| Instant::now() + limit);
        let in_time = || until.is_none_or(|until| Instant::now() < until);
        while node.wait_acknowledged(peer, PATIENCE) == Ok(false) && !self.is_over() && in_time() {}
    }
}

/// Whether both sides had said all they wanted to.
fn is_orderly(reason: &LostReason) -> bool {
    matches!(reason, LostReason::Closed | LostReason::Ended { code: 0, .. })
}

/// Why a session ends of which one side does not take a message.
fn refused(by: &str, message: MessageId) -> String {
    format!("{by} refused message {} of channel {}", message.number, message.channel.channel)
}

/// Why the other side is lost, in the 128 octets that a reason may have: advice for who is at the relay has no room.
fn beyond(reason: &LostReason) -> String {
    match reason {
        LostReason::NoAnswer => "the peer beyond the relay: no answer".to_owned(),
        reason => format!("the peer beyond the relay: {reason}"),
    }
}

/// What the forwarding thread does next.
enum Next {
    /// Of a channel, and how long to wait for room.
    Message(u16, Bytes, Duration),
    Ending(Ending),
}
