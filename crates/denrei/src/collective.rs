//! Collective operations over a set of Nodes: barrier, broadcast, gather, all-gather, reduce.
//!
//! Inputs → outputs: every Node of the set calls the same operation, in the same order → all have its
//! result, or an error that says who is missing. One to all goes through a group (one send, M9), many
//! to one through channels of sessions, whose receivers set the pace (S11). Source: U9, S12; the names
//! are MPI's.

mod error;
mod messages;

pub use error::CollectiveError;

use crate::group::{Group, GroupListener, Membership, OPENING_GRACE};
use crate::shards::deadline_of;
use crate::{ChannelId, GroupOptions, Node, PeerId, Phase, SendError};
use bytes::Bytes;
use denrei_proto::group::Invited;
use messages::{UNKNOWN, kind_of, number_of, operation_of, pack, tagged, unpack, untagged};
use std::net::SocketAddr;
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
/// one gathers while rank 0 broadcasts shows in the next operation for which rank 0 takes something of all.
///
/// An operation for which time was up is over for all, and the set goes on with the next. A Node that had not come
/// to it calls it still, hears at once that others [gave up](CollectiveError::GaveUp), and is with them again in the
/// next one.
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
    /// At rank 0, what ranks have sent for a later one: found when it was looked whether they gave up.
    early: Vec<Option<Bytes>>,
}

impl Collective {
    /// Makes a set of the Nodes at `addresses` (the same list everywhere, with this Node's own address
    /// in it) that speaks to all by a group at `group`, and to rank 0 on [`COLLECTIVE_CHANNEL`]. All of them
    /// have to call this within `timeout`.
    ///
    /// # Errors
    /// At rank 0: who did not answer is named. At the others: rank 0 is not there, or, at once when it gives up
    /// and some time after `timeout` if it does not, [`CollectiveError::NotOpened`].
    pub fn new(
        node: &Node,
        addresses: &[SocketAddr],
        group: SocketAddr,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        Self::on_channel(node, addresses, group, COLLECTIVE_CHANNEL, timeout)
    }

    /// Like [`new`](Self::new), with what goes to one Node on `channel`, which nothing else uses with the
    /// Nodes of the set: the same everywhere. Two sets of the same Nodes need two channels and two groups.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn on_channel(
        node: &Node,
        addresses: &[SocketAddr],
        group: SocketAddr,
        channel: u16,
        timeout: Duration,
    ) -> Result<Self, CollectiveError> {
        let own = node.local_addr();
        let rank = addresses.iter().position(|addr| *addr == own);
        let rank = rank.ok_or_else(|| CollectiveError::BadSet(format!("{own} is not in {addresses:?}")))?;
        let distinct: std::collections::BTreeSet<_> = addresses.iter().collect();
        if distinct.len() != addresses.len() {
            return Err(CollectiveError::BadSet(format!("an address is given twice in {addresses:?}")));
        }
        let tie = match rank {
            _ if addresses.len() == 1 => Tie::Alone,
            0 => {
                let options = GroupOptions { open_timeout: timeout, ..GroupOptions::default() };
                Tie::Root(node.open_group(group, &addresses[1..], options)?)
            }
            _ => {
                let listener = node.join_group(group)?;
                Tie::Other(accept(&listener, timeout)?, listener)
            }
        };
        let connect = |(other, addr): (usize, &SocketAddr)| match other == rank {
            true => Ok(None),
            false => node.connect(*addr).map(Some),
        };
        let peers = addresses.iter().enumerate().map(connect).collect::<Result<Vec<_>, _>>()?;
        let early = vec![None; peers.len()];
        Ok(Self { node: node.clone(), rank, peers, tie, channel, round: 0, collected: 0, early })
    }

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

    /// Brings what all have to rank 0, in the order of ranks; the others get nothing.
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
        match parts.try_fold(first, &mut join) {
            Ok(joined) => self.spread("reduce", joined, until),
            Err(why) => {
                if let Tie::Root(group) = &self.tie {
                    group.send_timeout(tagged(self.round | FAILED, &why.clone().into()), left(until))?;
                }
                Err(CollectiveError::Join(why))
            }
        }
    }

    /// Ends the set: rank 0 waits until all have everything, at most `timeout`; whether they have.
    pub fn close(self, timeout: Duration) -> bool {
        match &self.tie {
            Tie::Root(group) => group.close(timeout),
            _ => true,
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
            let message = tagged(self.round | kind_of(operation), &own);
            let to = ChannelId { peer: root, channel: self.channel };
            let sent = self.node.send_timeout(to, message, left(until));
            let sent = sent.map_err(|source| CollectiveError::Send { rank: 0, source });
            return sent.map(|_| Vec::new()).inspect_err(|_| self.tell_root());
        }
        let parts = self.parts(operation, own, until);
        self.collected = self.round;
        parts.inspect_err(|error| self.tell_all(error))
    }

    /// What all have, at rank 0; an error as soon as another rank gives up, or is gone.
    fn parts(
        &mut self,
        operation: &'static str,
        own: Bytes,
        until: Instant,
    ) -> Result<Vec<Bytes>, CollectiveError> {
        let mut parts = vec![None; self.size()];
        parts[0] = Some(own);
        for rank in 1..self.size() {
            while parts[rank].is_none() {
                parts[rank] = self.part_of(operation, rank, until.min(Instant::now() + LOOK))?;
                if parts[rank].is_some() {
                    break;
                }
                self.look_around(operation, &mut parts)?;
                if Instant::now() >= until {
                    let silent = |rank: &usize| parts[*rank].is_none();
                    let missing: Vec<usize> = (1..self.size()).filter(silent).collect();
                    if !missing.is_empty() {
                        return Err(CollectiveError::TimedOut { operation, missing });
                    }
                }
            }
        }
        Ok(parts.into_iter().flatten().collect())
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
                    return Err(CollectiveError::Send { rank, source });
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
        let message = self.node.recv_from(ChannelId { peer, channel: self.channel }, left(until))?;
        Ok(message.map(|message| message.data))
    }

    /// Rank 0 has given up, for itself or because another has: nobody waits for the result any more.
    fn tell_all(&self, error: &CollectiveError) {
        let Tie::Root(group) = &self.tie else { return };
        if let CollectiveError::Unlike { operation, rank, theirs } = error {
            let octets = [
                &(*rank as u32).to_le_bytes()[..],
                &kind_of(theirs).to_le_bytes(),
                &kind_of(operation).to_le_bytes(),
            ];
            let _ = group.send_timeout(tagged(self.round | UNLIKE, &octets.concat().into()), Duration::ZERO);
            return;
        }
        let (rank, missing) = match error {
            CollectiveError::TimedOut { missing, .. } => (0, missing),
            CollectiveError::GaveUp { rank, missing, .. } => (*rank, missing),
            CollectiveError::Send { rank, .. } => (0, &vec![*rank]),
            _ => (0, &Vec::new()),
        };
        let ranks = std::iter::once(rank).chain(missing.iter().copied());
        let ranks: Vec<u8> = ranks.flat_map(|rank| (rank as u32).to_le_bytes()).collect();
        // Who is not told has a deadline.
        let _ = group.send_timeout(tagged(self.round | GAVE_UP, &ranks.into()), Duration::ZERO);
    }

    /// Time is up for this rank, or its part could not be sent.
    fn tell_root(&self) {
        let Some(peer) = self.peers[0] else { return };
        let to = ChannelId { peer, channel: self.channel };
        // Without word of it rank 0 has a deadline.
        let _ = self.node.try_send(to, tagged(self.round | GAVE_UP, &Bytes::new()));
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
                let sent = group.send_timeout(message, left(until));
                sent.map_err(CollectiveError::from).inspect_err(|error| self.tell_all(error)).map(|_| data)
            }
            Tie::Other(membership, _) => loop {
                let Some(message) = membership.recv_timeout(left(until))? else {
                    self.tell_root();
                    return Err(CollectiveError::TimedOut { operation, missing: vec![0] });
                };
                // What belongs to an operation that was given up here is dropped.
                match untagged(message.data) {
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
                    _ => {}
                }
            },
        }
    }
}

/// Waits for rank 0 to open the set; somewhat longer than it waits for the others, if it is there.
fn accept(listener: &GroupListener, timeout: Duration) -> Result<Membership, CollectiveError> {
    let accepted = match listener.accept_unless_given_up(timeout) {
        Err(Invited::Yes) => listener.accept_unless_given_up(OPENING_GRACE),
        outcome => outcome,
    };
    accepted.map_err(|invited| match invited {
        Invited::No => CollectiveError::TimedOut { operation: "opening", missing: vec![0] },
        invited => CollectiveError::NotOpened { gave_up: invited == Invited::GivenUp },
    })
}

/// What rank 0 says: who called something else.
fn unlike_of(octets: &Bytes) -> CollectiveError {
    let (rank, kinds) =
        octets.split_first_chunk().map_or((0, &[][..]), |(rank, kinds)| (u32::from_le_bytes(*rank), kinds));
    let mut names = kinds.as_chunks().0.iter().map(|kind| operation_of(u64::from_le_bytes(*kind)));
    let (theirs, operation) = (names.next().unwrap_or(UNKNOWN), names.next().unwrap_or(UNKNOWN));
    CollectiveError::Unlike { operation, rank: rank as usize, theirs }
}

/// What rank 0 says: who gave up, and whose part was missing.
fn gave_up(operation: &'static str, ranks: &Bytes) -> CollectiveError {
    let mut ranks = ranks.as_chunks().0.iter().map(|rank| u32::from_le_bytes(*rank) as usize);
    let rank = ranks.next().unwrap_or(0);
    CollectiveError::GaveUp { operation, rank, missing: ranks.collect() }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
