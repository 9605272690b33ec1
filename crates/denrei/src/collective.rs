//! Collective operations over a set of Nodes: barrier, broadcast, gather, all-gather, reduce.
//!
//! Inputs → outputs: every Node of the set calls the same operation, in the same order → all have its
//! result, or an error that says who is missing. One to all goes through a group (one send, M9), many
//! to one through channels of sessions, whose receivers set the pace (S11). Source: U9, S12; the names
//! are MPI's.

mod closing;
mod error;
mod messages;
mod opening;
mod patience;

pub use error::CollectiveError;

use crate::group::{Group, GroupListener, Membership};
use crate::shards::deadline_of;
use crate::{ChannelId, GroupError, MembershipEnd, Node, PeerId, Phase, SendError};
use bytes::Bytes;
use messages::{
    gave_up, kind_of, number_of, operation_of, pack, tagged, to_root, unlike_of, unpack, untagged,
};
use patience::Patience;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// Channel that carries what goes to one Node, of a [`Collective`] that is given no other: nothing else may
/// use it with the Nodes of the set.
pub const COLLECTIVE_CHANNEL: u16 = 15;

/// Bit of a message's number that says that the operation failed at rank 0: the reason follows.
const FAILED: u64 = 1 << 63;
/// Bit of a message's number that says that time was up for a rank, which goes on without the operation's
/// result: its number follows, and of rank 0 the numbers of those that it waited for.
const GAVE_UP: u64 = 1 << 62;

/// Bit of a message's number that says that ranks have called different operations: which rank, what it called, and what
/// rank 0 did.
const UNLIKE: u64 = 1 << 61;

/// How soon rank 0, which waits for one rank, notices that another has given up.
const LOOK: Duration = Duration::from_millis(20);

/// How much longer than its own time a rank waits for word of rank 0, whose time is up at the same moment as a rule, and
/// which knows who is missing.
const WORD: Duration = Duration::from_millis(100);

/// How this Node hears, or speaks to, all others.
#[derive(Debug)]
enum Tie {
    /// Rank 0.
    Root(Group),
    Other(Membership, #[allow(dead_code, reason = "hears the address as long as it lives")] GroupListener),
    /// The set has one Node.
    Alone,
}

/// A set of Nodes that work together. Rank 0 is the first.
///
/// All call the same operations, in the same order: where rank 0 waits for something of one that calls another, or that
/// one for something of rank 0, all who wait are [told](CollectiveError::Unlike), and the set goes on with the next. That
/// one gathers while rank 0 broadcasts shows in the next operation for which rank 0 takes something of all. One that
/// broadcasts sends nothing: if rank 0 waits for something of it, it does so until its time is up, and names it as
/// [missing](CollectiveError::TimedOut).
///
/// An operation for which time was up is over for all, and the set goes on with the next. A Node that had not come
/// to it calls it still, hears at once that others [gave up](CollectiveError::GaveUp), and is with them again in the
/// next one.
///
/// One whose process has ended does not come back: each operation that needs something of all ends, as soon as it is missed,
/// with an error that names it, and broadcasts reach those that are left. To go on without it close the set, and make
/// another of those. One that has only closed or dropped its set, while its Node stays, is waited for until time is up.
#[derive(Debug)]
pub struct Collective {
    node: Node,
    rank: usize,
    peers: Vec<Option<PeerId>>,
    tie: Tie,
    channel: u16,
    /// Operations so far: tells a late message of one from the next one's.
    round: u64,
    /// The latest for which rank 0 takes a part of all: between it and the one under way there are broadcasts alone.
    collected: u64,
    /// What ranks have sent for a later one, found on the way: of all at rank 0, elsewhere of rank 0.
    early: Vec<Option<Bytes>>,
    /// At rank 0, the last word of one that was given up, which there was no room for.
    untold: Option<Bytes>,
    /// Why ranks are gone.
    lost: Vec<Option<SendError>>,
    /// Until when this Node waits, whatever time there is.
    patience: Patience,
}

impl Collective {
    /// This Node's place in the list.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many Nodes there are.
    pub fn size(&self) -> usize {
        self.peers.len()
    }

    /// Waits until all have come here.
    ///
    /// # Errors
    /// After `timeout`: who has not come, as far as it is known here. At once when another gives up:
    /// [`CollectiveError::GaveUp`]; or is gone: [`CollectiveError::Send`] at rank 0, which then has given up.
    pub fn barrier(&mut self, timeout: Duration) -> Result<(), CollectiveError> {
        let until = deadline_of(timeout);
        self.collect("barrier", Bytes::new(), until)?;
        self.spread("barrier", Bytes::new(), until).map(drop)
    }

    /// Gives what rank 0 has to all. The others' `data` is not looked at.
    ///
    /// # Errors
    /// After `timeout`; at once where rank 0 cannot send it.
    pub fn broadcast(&mut self, data: impl Into<Bytes>, timeout: Duration) -> Result<Bytes, CollectiveError> {
        let until = deadline_of(timeout);
        self.round += 1;
        self.spread("broadcast", data.into(), until)
    }

    /// Brings what all have to rank 0, in the order of ranks; the others get nothing, and wait for nothing: a part is on
    /// its way when it is queued, and there when [`close`](Self::close) or [`Node::flush`] says so.
    ///
    /// # Errors
    /// After `timeout`: whose part is missing. As for [`barrier`](Self::barrier) otherwise.
    pub fn gather(
        &mut self,
        data: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Vec<Bytes>, CollectiveError> {
        self.collect("gather", data.into(), deadline_of(timeout))
    }

    /// Brings what all have to all, in the order of ranks.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    pub fn all_gather(
        &mut self,
        data: impl Into<Bytes>,
        timeout: Duration,
    ) -> Result<Vec<Bytes>, CollectiveError> {
        let until = deadline_of(timeout);
        let parts = self.collect("all_gather", data.into(), until)?;
        let all = self.spread("all_gather", pack(&parts), until)?;
        Ok(unpack(&all, self.size()))
    }

    /// Joins what all have by `join`, in the order of ranks; all get the result. `join` has to be
    /// associative.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather).
    pub fn reduce(
        &mut self,
        data: impl Into<Bytes>,
        mut join: impl FnMut(Bytes, Bytes) -> Bytes,
        timeout: Duration,
    ) -> Result<Bytes, CollectiveError> {
        self.try_reduce(data, |a, b| Ok(join(a, b)), timeout)
    }

    /// Like [`reduce`](Self::reduce), with a `join` that may fail and says why: then all fail.
    ///
    /// # Errors
    /// As for [`gather`](Self::gather), and what `join` says.
    pub fn try_reduce(
        &mut self,
        data: impl Into<Bytes>,
        mut join: impl FnMut(Bytes, Bytes) -> Result<Bytes, String>,
        timeout: Duration,
    ) -> Result<Bytes, CollectiveError> {
        let until = deadline_of(timeout);
        let mut parts = self.collect("reduce", data.into(), until)?.into_iter();
        let first = parts.next().unwrap_or_default();
        // Nobody else would hear of a panic, and all would wait for the result until their time is up.
        let joined = catch_unwind(AssertUnwindSafe(|| parts.try_fold(first, &mut join)));
        let why = match &joined {
            Ok(Ok(_)) => None,
            Ok(Err(why)) => Some(why.clone()),
            Err(_) => Some("rank 0 panicked".to_owned()),
        };
        if let (Tie::Root(group), Some(why)) = (&self.tie, why) {
            let told = self.send_all(group, tagged(self.round | FAILED, &why.into()), until);
            if joined.is_ok() {
                told?;
            }
        }
        match joined.unwrap_or_else(|panic| resume_unwind(panic)) {
            Ok(joined) => self.spread("reduce", joined, until),
            Err(why) => Err(CollectiveError::Join(why)),
        }
    }

    /// Many to one.
    fn collect(
        &mut self,
        operation: &'static str,
        own: Bytes,
        until: Instant,
    ) -> Result<Vec<Bytes>, CollectiveError> {
        self.round += 1;
        if self.rank > 0 {
            let root = self.peers[0].expect("rank 0 is another");
            let message = to_root(self.id(), self.round | kind_of(operation), &own);
            let to = ChannelId { peer: root, channel: self.channel };
            let sent = self.patience.wait_for_room(
                until,
                |moment| self.node.send_timeout(to, message.clone(), moment),
                |error| matches!(error, SendError::WouldBlock { .. }),
            );
            let sent = sent.and_then(|sent| sent.map_err(|source| self.lost(0, source)));
            return sent.map(|_| Vec::new()).inspect_err(|_| self.tell_root());
        }
        let mut parts = vec![None; self.size()];
        parts[0] = Some(own);
        let came = self.take_parts(operation, &mut parts, until);
        self.collected = self.round;
        let came = came.map_err(|error| match error {
            CollectiveError::GaveUp { operation, rank, .. } => {
                let missing = missing(&parts).filter(|other| *other != rank).collect();
                CollectiveError::GaveUp { operation, rank, missing }
            }
            error => error,
        });
        came.inspect_err(|error| self.tell_all(error))?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// What all others have, at rank 0; an error as soon as another rank gives up, or is gone.
    fn take_parts(
        &mut self,
        operation: &'static str,
        parts: &mut [Option<Bytes>],
        until: Instant,
    ) -> Result<(), CollectiveError> {
        for rank in 1..self.size() {
            while parts[rank].is_none() {
                parts[rank] = self.part_of(operation, rank, until.min(Instant::now() + LOOK))?;
                if parts[rank].is_some() {
                    break;
                }
                self.tell_rest();
                self.look_around(operation, parts)?;
                if self.patience.is_over() {
                    return Err(CollectiveError::Interrupted);
                }
                if Instant::now() >= until {
                    let missing: Vec<usize> = missing(parts).collect();
                    if !missing.is_empty() {
                        return Err(CollectiveError::TimedOut { operation, missing });
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the parts that are here, of whomever, and looks who has given up after sending its part, or is gone.
    fn look_around(
        &mut self,
        operation: &'static str,
        parts: &mut [Option<Bytes>],
    ) -> Result<(), CollectiveError> {
        for (rank, part) in parts.iter_mut().enumerate().skip(1) {
            if part.is_none() {
                // Looked for first: what it has sent before is here then.
                let gone = self.gone(rank);
                *part = self.part_of(operation, rank, Instant::now())?;
                if let (None, Some(source)) = (&part, gone) {
                    return Err(self.lost(rank, source));
                }
            }
            if part.is_some() && self.has_given_up(rank)? {
                return Err(CollectiveError::GaveUp { operation, rank, missing: Vec::new() });
            }
        }
        Ok(())
    }

    /// Whether a rank, whose part is here, waits no longer for what comes of it.
    fn has_given_up(&mut self, rank: usize) -> Result<bool, CollectiveError> {
        while self.early[rank].is_none()
            && let Some(message) = self.next_of(rank, Instant::now())?
        {
            match untagged(message.clone()) {
                Some((round, _)) if round == self.round | GAVE_UP => return Ok(true),
                Some((tag, _)) if number_of(tag) > self.round => self.early[rank] = Some(message),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Why a rank does not come any more, if its session is over.
    fn gone(&self, rank: usize) -> Option<SendError> {
        let peer = self.peers[rank].expect("other ranks have peers");
        let over = self.node.flow(peer).is_none_or(|flow| flow.phase == Phase::Over);
        // What is said to it says why it does not arrive.
        over.then(|| self.node.try_send(ChannelId { peer, channel: self.channel }, Bytes::new()).err())?
    }

    /// A rank is gone: why, as far as that was ever known.
    fn lost(&mut self, rank: usize, source: SendError) -> CollectiveError {
        let known = self.lost[rank].take().filter(|_| matches!(source, SendError::UnknownPeer(_)));
        let source = known.unwrap_or(source);
        self.lost[rank] = Some(source.clone());
        CollectiveError::Send { rank, source }
    }

    /// A rank's part in the operation under way. What it sent for one that was given up is dropped.
    fn part_of(
        &mut self,
        operation: &'static str,
        rank: usize,
        until: Instant,
    ) -> Result<Option<Bytes>, CollectiveError> {
        loop {
            let Some(message) = self.next_of(rank, until)? else { return Ok(None) };
            match untagged(message.clone()) {
                Some((tag, data)) if tag == self.round | kind_of(operation) => return Ok(Some(data)),
                Some((tag, _)) if number_of(tag) == self.round && tag & GAVE_UP == 0 => {
                    return Err(CollectiveError::Unlike { operation, rank, theirs: operation_of(tag) });
                }
                Some((tag, _)) if self.is_unheard(tag) => {
                    let (operation, theirs) = ("broadcast", operation_of(tag));
                    return Err(CollectiveError::Unlike { operation, rank, theirs });
                }
                // It could not send its part, and waits no longer.
                Some((tag, _)) if number_of(tag) >= self.round => {
                    let later = number_of(tag) > self.round;
                    self.early[rank] = Some(message).filter(|_| later);
                    return Err(CollectiveError::GaveUp { operation, rank, missing: Vec::new() });
                }
                _ if Instant::now() >= until => return Ok(None),
                _ => {}
            }
        }
    }

    /// Whether a rank gathered while rank 0 broadcast: it waits for nothing then, and so has not noticed.
    fn is_unheard(&self, tag: u64) -> bool {
        let broadcasts = self.collected + 1..self.round;
        broadcasts.contains(&number_of(tag)) && tag == number_of(tag) | kind_of("gather")
    }

    fn next_of(&mut self, rank: usize, until: Instant) -> Result<Option<Bytes>, CollectiveError> {
        if let Some(early) = self.early[rank].take() {
            return Ok(Some(early));
        }
        let peer = self.peers[rank].expect("other ranks have peers");
        let from = ChannelId { peer, channel: self.channel };
        while let Some(message) = self.node.wait_from(from, left(until))? {
            // What is left of an earlier set is nobody's any more.
            if let Some((set, message)) = untagged(message.data)
                && set == self.id()
            {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// Which of all sets that these Nodes may have had this is.
    fn id(&self) -> u64 {
        match &self.tie {
            Tie::Root(group) => group.id().0,
            Tie::Other(membership, _) => membership.id().0,
            Tie::Alone => 0,
        }
    }

    /// Rank 0 has given up, for itself or because another has: nobody waits for the result any more.
    fn tell_all(&mut self, error: &CollectiveError) {
        let round = self.round;
        let message = match error {
            CollectiveError::Unlike { operation, rank, theirs } => {
                let rank = (*rank as u32).to_le_bytes();
                let octets = [&rank[..], &kind_of(theirs).to_le_bytes(), &kind_of(operation).to_le_bytes()];
                tagged(round | UNLIKE, &octets.concat().into())
            }
            error => {
                let (rank, missing) = match error {
                    CollectiveError::TimedOut { missing, .. } => (0, missing),
                    CollectiveError::GaveUp { rank, missing, .. } => (*rank, missing),
                    CollectiveError::Send { rank, .. } => (0, &vec![*rank]),
                    _ => (0, &Vec::new()),
                };
                let ranks = std::iter::once(rank).chain(missing.iter().copied());
                let ranks: Vec<u8> = ranks.flat_map(|rank| (rank as u32).to_le_bytes()).collect();
                tagged(round | GAVE_UP, &ranks.into())
            }
        };
        self.untold = Some(message);
        self.tell_rest();
    }

    /// Says what there was no room for: the others wait for it, or for anything that is later.
    fn tell_rest(&mut self) {
        if let (Tie::Root(group), Some(message)) = (&self.tie, self.untold.take()) {
            let sent = group.send_timeout(message.clone(), Duration::ZERO);
            self.untold = Some(message).filter(|_| matches!(sent, Err(GroupError::WouldBlock { .. })));
        }
    }

    /// Time is up for this rank, or its part could not be sent.
    fn tell_root(&self) {
        let Some(peer) = self.peers[0] else { return };
        let to = ChannelId { peer, channel: self.channel };
        // Without word of it rank 0 has a deadline.
        let _ = self.node.try_send(to, to_root(self.id(), self.round | GAVE_UP, &Bytes::new()));
    }

    /// Sends to all others, at rank 0.
    fn send_all(&self, group: &Group, message: Bytes, until: Instant) -> Result<(), CollectiveError> {
        let sent = self.patience.wait_for_room(
            until,
            |moment| group.send_timeout(message.clone(), moment),
            |error| matches!(error, GroupError::WouldBlock { .. }),
        );
        Ok(sent?.map(drop)?)
    }

    /// One to all.
    fn spread(
        &mut self,
        operation: &'static str,
        data: Bytes,
        until: Instant,
    ) -> Result<Bytes, CollectiveError> {
        match &self.tie {
            Tie::Alone => Ok(data),
            Tie::Root(group) => {
                let message = tagged(self.round | kind_of(operation), &data);
                let sent = self.send_all(group, message, until);
                sent.inspect_err(|error| self.tell_all(error)).map(|()| data)
            }
            Tie::Other(membership, _) => loop {
                let came = match self.early[0].take() {
                    Some(early) => Ok(Some(early)),
                    None => self.patience.wait(until + WORD, |moment| {
                        Ok::<_, MembershipEnd>(membership.recv_timeout(moment)?.map(|message| message.data))
                    }),
                };
                let came = came.inspect_err(|_| self.tell_root())?;
                let Some(message) = came else {
                    self.tell_root();
                    return Err(CollectiveError::TimedOut { operation, missing: vec![0] });
                };
                // What belongs to an operation that was given up here is dropped.
                match untagged(message.clone()) {
                    Some((tag, data)) if tag == self.round | kind_of(operation) => return Ok(data),
                    Some((round, unlike)) if round == self.round | UNLIKE => return Err(unlike_of(&unlike)),
                    Some((round, why)) if round == self.round | FAILED => {
                        return Err(CollectiveError::Join(String::from_utf8_lossy(&why).into_owned()));
                    }
                    Some((round, ranks)) if round == self.round | GAVE_UP => {
                        return Err(gave_up(operation, &ranks));
                    }
                    Some((tag, _)) if number_of(tag) == self.round => {
                        let (rank, theirs) = (self.rank, operation);
                        return Err(CollectiveError::Unlike { operation: operation_of(tag), rank, theirs });
                    }
                    // It could not even say that it gave up.
                    Some((tag, _)) if number_of(tag) > self.round => {
                        self.early[0] = Some(message);
                        return Err(CollectiveError::GaveUp { operation, rank: 0, missing: Vec::new() });
                    }
                    _ => {}
                }
            },
        }
    }
}

/// The ranks whose parts are not here.
fn missing(parts: &[Option<Bytes>]) -> impl Iterator<Item = usize> {
    parts.iter().enumerate().filter(|(_, part)| part.is_none()).map(|(rank, _)| rank)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
