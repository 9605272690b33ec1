//! Peers that are gone: what waits for them fails, and that they are gone is noticed.
//!
//! Inputs → outputs: sessions that break, and receives and looks that wait → failures of those; sessions
//! with peers whose end would not be noticed otherwise. Who names a source has a session with it from
//! then on. Who takes anybody's message waits for everybody in the address vector: after
//! [`WATCH_AFTER`] there is a session with each, so that one that died before it ever said a word is
//! missed within the failure time (MPI's MPI_ERR_PROC_FAILED_PENDING; MPIs end the job). But an address
//! vector may also name processes that have gone in order before anybody spoke with them (MPI_Comm_spawn),
//! and those do not answer either: that counts for who waits for anybody only if nothing has come from anybody meanwhile. Buffers
//! for several messages are a server's, and stay; who waits by nothing else (MPICH, for the answer to an active message) is
//! told by a completion that what it had sent is lost.

use super::Engine;
use super::matching::PeerIndex;
use crate::error::Errno;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long somebody waits for anybody's message until sessions are opened for it: most are served
/// long before.
const WATCH_AFTER: Duration = Duration::from_secs(1);
/// Sessions opened in a row; more follow after [`WATCH_AFTER`].
const MAX_OPENED: usize = 256;

/// What is known of peers that are gone.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// Peers whose last session broke, and of which no look for a message has been told. A message of theirs ends it:
    /// if one before it was lost, its sender has been told.
    broken: HashMap<PeerIndex, Broken>,
    /// The last of them, for whoever asks for anybody's message.
    last_broken: Option<LastBroken>,
    /// Somebody has begun to wait for anybody's message since the last turn, or still does.
    is_wanted: bool,
    /// When sessions are opened.
    turn: Option<Instant>,
    /// Messages to match that have come, from anybody.
    served: u64,
    /// Peers to whom a session was opened because somebody waits, and `served` at that time.
    opened: HashMap<PeerIndex, u64>,
}

/// A session that broke.
#[derive(Clone, Copy, Debug)]
struct Broken {
    errno: Errno,
    /// Its peer has answered, and no receive has failed: the next one does, or it would wait for what may be lost.
    is_untold: bool,
}

/// Whoever looks for anybody's message, and is served by others since, goes on.
#[derive(Clone, Copy, Debug)]
struct LastBroken {
    peer: PeerIndex,
    broken: Broken,
    /// `Watch::served` at that time.
    served: u64,
}

impl Engine {
    /// Somebody waits for a message of `source`: that this peer is gone will be noticed.
    ///
    /// # Errors
    /// There is no way to this peer.
    pub(super) fn watch(&mut self, source: Option<PeerIndex>) -> Result<(), Errno> {
        match source {
            Some(source) => self.open_watched(source)?,
            None => self.watch.is_wanted = true,
        }
        Ok(())
    }

    fn open_watched(&mut self, peer: PeerIndex) -> Result<(), Errno> {
        if self.port.connect(peer)? {
            self.watch.opened.insert(peer, self.watch.served);
        }
        Ok(())
    }

    /// Opens sessions with everybody, if somebody has waited for anybody for long enough.
    pub(super) fn watch_everybody(&mut self) {
        if !self.watch.is_wanted || self.limits.keeps_any_source {
            return;
        }
        let now = Instant::now();
        if now < *self.watch.turn.get_or_insert(now + WATCH_AFTER) {
            return;
        }
        self.watch.turn = None;
        self.watch.is_wanted = self.receives_from_anybody();
        let mut opened = 0;
        for address in self.addresses.all() {
            let peer = self.port.index(address);
            if opened < MAX_OPENED && !self.port.has_session(peer) && !self.port.has_departed(peer) {
                // One that cannot be reached is nobody who could send.
                let _ = self.open_watched(peer);
                opened += 1;
            }
        }
    }

    /// Why no message of `source` is there: none has come, or none will.
    pub(super) fn why_no_message(&mut self, source: Option<PeerIndex>) -> Errno {
        let broken = match source {
            Some(source) => self.watch.broken.remove(&source).filter(|_| !self.is_another(source)),
            None => {
                let served = self.watch.served;
                self.watch.last_broken.take_if(|last| last.served == served).map(|last| last.broken)
            }
        };
        broken.map(|broken| broken.errno).or_else(|| self.watch(source).err()).unwrap_or(Errno::NO_MESSAGE)
    }

    /// Why a receive that finds no message is not to wait: a session broke while none waited, as the application
    /// computed or spoke with others. Said once.
    pub(super) fn why_no_receive(&mut self, source: Option<PeerIndex>) -> Option<Errno> {
        // As a rule none did, and whether a peer has a successor takes two looks at tables.
        if self.watch.broken.is_empty() && self.watch.last_broken.is_none() {
            return None;
        }
        let peer = source.or_else(|| self.watch.last_broken.map(|last| last.peer))?;
        if self.is_another(peer) {
            return None;
        }
        let broken = match source {
            Some(source) => self.watch.broken.get_mut(&source),
            None => self.watch.last_broken.as_mut().map(|last| &mut last.broken),
        }?;
        std::mem::take(&mut broken.is_untold).then_some(broken.errno)
    }

    /// Whether another process has taken a peer's place, which has lost nothing.
    fn is_another(&self, peer: PeerIndex) -> bool {
        self.port.has_session(peer) && self.port.has_successor(peer) == Some(true)
    }

    /// Nobody asks for these peers any more.
    pub(super) fn watch_no_more(&mut self, gone: &HashSet<PeerIndex>) {
        self.watch.broken.retain(|peer, _| !gone.contains(peer));
        self.watch.last_broken.take_if(|last| gone.contains(&last.peer));
        self.watch.opened.retain(|peer, _| !gone.contains(peer));
    }

    /// Whether a peer's session broke, and no look has been told.
    #[cfg(test)]
    pub(super) fn has_noticed(&self, peer: PeerIndex) -> bool {
        self.watch.broken.contains_key(&peer)
    }

    /// A message to match has come.
    pub(super) fn is_served(&mut self, source: PeerIndex) {
        self.watch.served += 1;
        if !self.watch.broken.is_empty() {
            self.watch.broken.remove(&source);
        }
        self.watch.last_broken.take_if(|last| last.peer == source);
    }

    /// A session broke, or there was never an answer: receives that wait for this peer fail, and so does
    /// the next look for a message of its. Those that wait for anybody could have been for it, if the
    /// application knows it, or has heard of it without (Open MPI names a peer when it first sends to it).
    pub(super) fn on_broken(&mut self, peer: PeerIndex, errno: Errno, answered: bool) {
        let mut is_told = self.fail_directed(peer, errno);
        let was_untold = self.watch.broken.get(&peer).is_some_and(|broken| broken.is_untold);
        let is_untold = !is_told && (answered || was_untold);
        self.watch.broken.insert(peer, Broken { errno, is_untold });
        let opened = self.watch.opened.remove(&peer);
        if !answered && opened.is_some_and(|served| served != self.watch.served) {
            // Others go on without it. Whoever waits for anybody still will ask again.
            return;
        }
        let is_known = self.port.has_spoken(peer) || self.addresses.number(self.port.address(peer)).is_some();
        if !self.limits.keeps_any_source && is_known {
            is_told |= self.fail_undirected(errno);
            let broken = Broken { errno, is_untold: answered && !is_told };
            self.watch.last_broken = Some(LastBroken { peer, broken, served: self.watch.served });
            if !is_told && self.has_buffers() {
                self.tell_lost(peer);
            }
        }
    }
}
