//! The receiving side: a Node that waits for an offer, and takes what it brings.
//!
//! Inputs → outputs: a Node, where to write → a [`ReceiveReport`]. [`Reception`] decides and writes;
//! this file waits and answers. A sender that vanishes is waited for: it may come back and go on.
//! Source: `spec/cast.md` §5, §7.

mod asking;
mod last_word;
mod options;

pub use options::{ReceiveOptions, ReceiveProgress, ReceiveReport};

use crate::beacon::Finder;
use crate::busy::Busy;
use crate::error::{CastError, in_seconds, in_words, is_end};
use crate::interfaces;
use crate::message::{CHANNEL, FailureCode, Message, Offer, short};
use crate::reception::{Destination, Reception, check_offer};
use crate::silence::Silence;
use bytes::Bytes;
use denrei::{ChannelId, Event, GroupListener, Incoming, Membership, Node, PeerId};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// How long to wait for news at a time; the other way in is looked at that often.
const TURN: Duration = Duration::from_millis(5);
/// How long to wait where nothing is going on.
const IDLE_TURN: Duration = Duration::from_millis(50);
/// How often progress is told, here and to the sender.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// How often the sender is told that this goes on though nothing is added: files are verified, or what comes is
/// here already.
const BUSY_INTERVAL: Duration = Duration::from_secs(5);
/// The code of a session that ends because its receiver's user has ended that (`spec/protocol.md` §8: the
/// application's).
pub const BROKEN_OFF: u16 = 0x8001;
/// Messages taken in one go from either way in.
const MAX_MESSAGES: usize = 64;

/// Receives one cast.
pub struct Receiver {
    node: Node,
    options: ReceiveOptions,
    destination: Option<Destination>,
    finder: Option<Finder>,
    warnings: Vec<String>,
    reception: Option<Reception>,
    sender: Option<(PeerId, SocketAddr)>,
    /// The last one has ended, and does not come back by itself.
    sender_ended: bool,
    /// Another sender of the same cast: the same one, started again before its end was noticed.
    next_sender: Option<(PeerId, Offer)>,
    /// How long the sender is silent.
    silence: Option<(PeerId, Silence)>,
    listener: Option<GroupListener>,
    membership: Option<Membership>,
    /// What came last came by the group.
    by_group: bool,
    asked_at: Option<Instant>,
    /// Heard, and asked since; some have not answered.
    asked: Vec<(PeerId, Instant)>,
    alone_since: Instant,
    began: Instant,
    progress_at: Instant,
    told_bytes: u64,
    told_at: Instant,
    /// Pieces have come since the sender was told something.
    taken: bool,
    /// How this has ended: what every sender of the cast is answered from then on.
    last_word: Option<Message>,
}

impl Receiver {
    /// Prepares to receive over `node`, which should have a thread of its own
    /// ([`denrei::Drive::Thread`]).
    pub fn new(node: Node, destination: Destination, options: ReceiveOptions) -> Self {
        let finder = Finder::new(options.group, node.local_addr(), node.beacon_key());
        let warning = finder.as_ref().err().map(|error| {
            let group = interfaces::named(options.group);
            format!("cannot hear casts announced at {group}: {error}; --from names a sender")
        });
        let (group, local) = (options.group, node.local_addr());
        let warning = warning.or_else(|| {
            interfaces::is_this_host_alone(group, local).then(|| {
                format!(
                    "casts announced at {} by other hosts are not heard, as no interface towards them carries \
                     multicast; --from names a sender{}",
                    interfaces::named(group),
                    interfaces::or_by_ipv6(group, local)
                )
            })
        });
        // Whoever is named is asked, whether announcements are heard or not.
        let warning = warning.filter(|_| options.from.is_none());
        let now = Instant::now();
        Self {
            node,
            options,
            destination: Some(destination),
            warnings: warning.into_iter().collect(),
            finder: finder.ok(),
            reception: None,
            sender: None,
            sender_ended: false,
            next_sender: None,
            silence: None,
            listener: None,
            membership: None,
            by_group: false,
            asked_at: None,
            asked: Vec::new(),
            alone_since: now,
            began: now,
            progress_at: now,
            told_bytes: 0,
            told_at: now,
            taken: false,
            last_word: None,
        }
    }

    /// What its user should know before it runs, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Waits for a cast and receives it; tells `progress` how it goes, five times a second, and ends
    /// when that breaks off.
    ///
    /// # Errors
    /// No sender within the time given; the sender has given up; something cannot be written; broken
    /// off. What has arrived of files is kept, and the next attempt goes on from there.
    pub fn run(
        mut self,
        mut progress: impl FnMut(&ReceiveProgress) -> ControlFlow<()>,
    ) -> Result<ReceiveReport, CastError> {
        let outcome = self.receive(&mut progress);
        if let Err(error) = &outcome {
            self.say_why(error, &mut progress);
        }
        if let (Err(_), Some(reception)) = (&outcome, &self.reception) {
            reception.drop_stream();
        }
        outcome
    }

    fn receive(
        &mut self,
        progress: &mut impl FnMut(&ReceiveProgress) -> ControlFlow<()>,
    ) -> Result<ReceiveReport, CastError> {
        loop {
            let now = Instant::now();
            self.find(now)?;
            self.turn_to_next(now)?;
            self.sessions()?;
            self.members()?;
            self.tell(now, progress)?;
            if self.reception.as_ref().is_some_and(Reception::is_complete) {
                return self.finish(progress);
            }
            self.give_up(now)?;
        }
    }

    /// Takes what has come by sessions; waits for it where nothing else is to be expected.
    fn sessions(&mut self) -> Result<(), CastError> {
        let mut wait = match (&self.membership, &self.sender) {
            (Some(_), _) if self.by_group => Duration::ZERO,
            (_, Some(_)) => TURN,
            _ => IDLE_TURN,
        };
        for _ in 0..MAX_MESSAGES {
            let next = self.node.next(wait).map_err(|error| CastError::Transport(error.to_string()))?;
            wait = Duration::ZERO;
            match next {
                None => return Ok(()),
                Some(Incoming::Message(message)) if message.channel.channel == CHANNEL => {
                    self.by_group = false;
                    self.heard(message.channel.peer, message.data)?;
                }
                Some(Incoming::Event(Event::PeerLost { peer, reason, .. })) => {
                    self.sender_ended |= self.is_sender(peer) && is_end(&reason);
                    self.lost(peer, &in_words(&reason))?;
                }
                Some(_) => {}
            }
            if self.looks_up() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether there is something to do before more is taken: who reads what we write may be slow.
    fn looks_up(&self) -> bool {
        let complete = self.reception.as_ref().is_some_and(Reception::is_complete);
        complete || self.progress_at.elapsed() >= PROGRESS_INTERVAL
    }

    fn heard(&mut self, peer: PeerId, data: Bytes) -> Result<(), CastError> {
        let Some(said) = Message::decode(data) else {
            tracing::debug!("{peer} said what cannot be read");
            return Ok(());
        };
        if let Message::Offer(offer) = said {
            return self.offered(peer, offer);
        }
        if self.last_word.is_some() {
            return Ok(());
        }
        // Others than the sender have nothing to say.
        if !self.is_sender(peer) {
            if let (Message::Abort { text }, Some(named)) = (&said, self.options.from)
                && self.node.peer_at(named) == Some(peer)
            {
                return Err(CastError::Sender(text.clone()));
            }
            return Ok(());
        }
        match said {
            Message::Piece(piece) => self.piece(&piece),
            Message::Resync { .. } => {
                self.membership = None;
                self.want();
                Ok(())
            }
            Message::Abort { text } => Err(CastError::Sender(format!("the sender has given up: {text}"))),
            _ => Ok(()),
        }
    }

    fn offered(&mut self, peer: PeerId, offer: Offer) -> Result<(), CastError> {
        let same = self.reception.as_ref().is_some_and(|reception| reception.offer().id == offer.id);
        let ours = self.is_sender(peer);
        let free = ours || self.sender.is_none();
        if same && ours {
            // Said again before the answer was there.
            return Ok(());
        }
        if same && !free {
            self.next_sender = Some((peer, offer));
            self.answers_with_last(peer);
            return Ok(());
        }
        if !free || (self.reception.is_some() && !same) {
            let text = "it is receiving something else, or waits for the sender of that to come back";
            self.say(peer, &Message::Failed { code: FailureCode::Busy, text: text.into() });
            return Ok(());
        }
        if let Err(error) = check_offer(&offer) {
            // Not worth ending for: there may be others.
            self.say(peer, &Message::Failed { code: error.code(), text: error.to_string() });
            return Ok(());
        }
        let Some(addr) = self.node.flow(peer).map(|flow| flow.addr) else { return Ok(()) };
        (self.sender, self.sender_ended) = (Some((peer, addr)), false);
        if self.answers_with_last(peer) {
            return Ok(());
        }
        self.told_bytes = 0;
        let busy = self.busy(peer, &offer);
        if let Some(reception) = &mut self.reception {
            reception.tell(busy);
        } else {
            self.began = Instant::now();
            let Some(destination) = self.destination.take() else { return Ok(()) };
            self.reception = Some(Reception::telling(offer, destination, &self.options.name, busy)?);
        }
        // Joined before the first WANT: who has said what it misses may be made a member at once.
        let group = interfaces::as_named_here(offer.group, self.options.group, addr);
        if self.listener.as_ref().is_none_or(|listener| listener.address() != group) {
            let joined = self.node.join_group(group);
            self.listener = Some(joined.map_err(|error| CastError::Transport(error.to_string()))?);
        }
        self.want();
        Ok(())
    }

    /// Tells a sender, which hears nothing else meanwhile, that files are being verified, or put into place.
    fn busy(&self, peer: PeerId, offer: &Offer) -> Busy {
        let (node, cast, mut told_at) = (self.node.clone(), short(&offer.id), Instant::now());
        Busy::new(move |bytes| {
            if told_at.elapsed() >= BUSY_INTERVAL {
                told_at = Instant::now();
                let said = Message::Progress { cast, bytes }.encode();
                // A session that is over says so by an event.
                let _ = node.try_send(ChannelId { peer, channel: CHANNEL }, said);
            }
        })
    }

    /// Takes what has come by the group.
    fn members(&mut self) -> Result<(), CastError> {
        let Some(listener) = &self.listener else { return Ok(()) };
        let opener = self.sender.map(|(_, addr)| addr);
        while let Some(membership) = listener.accept(Duration::ZERO) {
            // Others than the sender may open groups at this address, too.
            if Some(membership.opener()) == opener {
                self.membership = Some(membership);
                self.by_group = true;
            }
        }
        let mut wait = if self.by_group { TURN } else { Duration::ZERO };
        for _ in 0..MAX_MESSAGES {
            let Some(membership) = &self.membership else { return Ok(()) };
            match membership.recv_timeout(wait) {
                Ok(None) => return Ok(()),
                Ok(Some(message)) => {
                    self.by_group = true;
                    if let Some(Message::Piece(piece)) = Message::decode(message.data) {
                        self.piece(&piece)?;
                    }
                }
                // The sender says by the session how it goes on.
                Err(end) => {
                    tracing::debug!("no member any more: {end}");
                    self.membership = None;
                    self.by_group = false;
                }
            }
            wait = Duration::ZERO;
            if self.looks_up() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn piece(&mut self, piece: &crate::message::Piece) -> Result<(), CastError> {
        let Some(reception) = &mut self.reception else { return Ok(()) };
        self.taken = true;
        let answer = reception.piece(piece)?;
        reception.pump()?;
        if let (Some(answer), Some((peer, _))) = (answer, self.sender) {
            self.say(peer, &answer);
        }
        Ok(())
    }

    fn want(&self) {
        if let (Some(reception), Some((peer, _))) = (&self.reception, self.sender) {
            self.say(peer, &reception.want());
        }
    }

    fn lost(&mut self, peer: PeerId, why: &str) -> Result<(), CastError> {
        if self.next_sender.is_some_and(|(next, _)| next == peer) {
            self.next_sender = None;
        }
        if !self.is_sender(peer) {
            return Ok(());
        }
        self.sender = None;
        self.membership = None;
        self.by_group = false;
        self.alone_since = Instant::now();
        if self.last_word.is_none() && self.takes_stream() {
            // It does not come again.
            return Err(CastError::Sender(format!("the sender is gone before the stream ended: {why}")));
        }
        match self.next_sender.take() {
            Some((next, offer)) => {
                tracing::warn!("the sender is gone ({why}); another goes on with the same");
                self.offered(next, offer)
            }
            None => {
                if self.last_word.is_some() {
                    // All is here: it may only not have heard so.
                    let patience = last_word::LAST_WORD;
                    tracing::debug!("the sender is gone ({why}); in case it comes back, {patience:.0?} more");
                } else {
                    let patience = self.options.patience;
                    tracing::warn!("the sender is gone ({why}); waiting {patience:.0?} for it to come back");
                }
                Ok(())
            }
        }
    }

    fn is_sender(&self, peer: PeerId) -> bool {
        self.sender.is_some_and(|(sender, _)| sender == peer)
    }

    fn takes_stream(&self) -> bool {
        let manifest = self.reception.as_ref().and_then(Reception::manifest);
        manifest.is_some_and(|manifest| manifest.is_stream())
    }

    fn give_up(&self, now: Instant) -> Result<(), CastError> {
        if self.sender.is_some() {
            return Ok(());
        }
        let waited = now.duration_since(self.alone_since);
        match (&self.reception, self.options.wait) {
            (Some(_), _) if waited > self.options.patience => Err(CastError::Sender(format!(
                "the sender has not come back for {}; what has arrived is kept: receive again to go on",
                in_seconds(self.options.patience)
            ))),
            (None, Some(limit)) if waited > limit => Err(CastError::NoReceivers(self.nobody_came(limit))),
            _ => Ok(()),
        }
    }

    /// That there was no sender, and what one would have to do.
    fn nobody_came(&self, limit: Duration) -> String {
        let (local, group) = (self.node.local_addr(), interfaces::named(self.options.group));
        let way = match self.options.from.map(interfaces::named) {
            Some(sender) => format!("it has to be at {sender}, which --from names: see its --bind"),
            None => format!(
                "it has to name this receiver, {}, with --members, or announce itself at {group} with --min-members",
                interfaces::told(local)
            ),
        };
        let (limit, reach) = (in_seconds(limit), interfaces::reach_of(local));
        let dropped = self.finder.as_ref().map(Finder::dropped).unwrap_or_default();
        format!("no sender within {limit}: {way}; both need the same key{reach}{dropped}")
    }

    fn tell(
        &mut self,
        now: Instant,
        progress: &mut impl FnMut(&ReceiveProgress) -> ControlFlow<()>,
    ) -> Result<(), CastError> {
        if now.duration_since(self.progress_at) < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.progress_at = now;
        let (bytes, total_bytes) = self.reception.as_ref().map_or((0, None), Reception::bytes);
        let sender = self.sender.map(|(_, sender)| sender);
        if progress(&ReceiveProgress { sender, bytes, total_bytes }).is_break() {
            return Err(CastError::Cancelled { stream: self.takes_stream() });
        }
        self.reception.as_ref().map_or(Ok(()), Reception::is_in_place)?;
        // A group's pieces may all be here for long, where others have fewer.
        let takes = self.taken && now.duration_since(self.told_at) >= BUSY_INTERVAL;
        if let (Some(reception), Some((peer, _)), true) =
            (&self.reception, self.sender, takes || bytes != self.told_bytes)
            && self.say(peer, &Message::Progress { cast: short(&reception.offer().id), bytes })
        {
            self.told_bytes = bytes;
            self.told_at = now;
            self.taken = false;
        }
        Ok(())
    }

    fn finish(
        &mut self,
        progress: &mut impl FnMut(&ReceiveProgress) -> ControlFlow<()>,
    ) -> Result<ReceiveReport, CastError> {
        let Some(reception) = &mut self.reception else {
            return Err(CastError::Protocol("nothing was offered"));
        };
        let complete = reception.finish()?;
        let (bytes, _) = reception.bytes();
        let (resumed_bytes, new_bytes) = reception.resumed_and_new_bytes();
        let (files, directories, _) =
            reception.manifest().map(|manifest| manifest.totals()).unwrap_or_default();
        let cast = short(&reception.offer().id);
        let (peer, sender) = match self.sender {
            Some((peer, sender)) => (Some(peer), sender),
            None => (None, self.node.local_addr()),
        };
        // Everything is in its place: there is nothing left to break off.
        let _ = progress(&ReceiveProgress { sender: Some(sender), bytes, total_bytes: Some(bytes) });
        let took = self.began.elapsed();
        if let Some(peer) = peer {
            self.say(peer, &Message::Progress { cast, bytes });
        }
        self.say_last(complete);
        // Who dies before that is not taken for one that has nothing, and after it has little to leave behind.
        if let Some(reception) = &self.reception {
            reception.forget()?;
        }
        self.be_heard(progress);
        Ok(ReceiveReport { cast, sender, took, bytes, resumed_bytes, new_bytes, files, directories })
    }

    /// Whether there was room to say it.
    fn say(&self, peer: PeerId, message: &Message) -> bool {
        // A session that is over says so by an event.
        let said = self.node.try_send(ChannelId { peer, channel: CHANNEL }, message.encode());
        said.inspect_err(|error| tracing::debug!("cannot say {message:?} to {peer}: {error}")).is_ok()
    }
}
