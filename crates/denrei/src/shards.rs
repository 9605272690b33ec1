//! A Node's shards: its peers, spread over protocol threads by a hash of their addresses.
//!
//! Inputs → outputs: an address or a [`PeerId`] → the [`Shared`] state that has it; a condition →
//! whichever shard meets it first. Only `Drive::Pipelined` has more shards than one; without others
//! everything here is the first one, at the price of a comparison.
//!
//! Shards have nothing in common but the port and the clock. A datagram's source, and the address of a
//! `connect`, name the shard; a peer's id names it from then on ([`PeerId::shard`]). A Node that has to
//! do with groups gathers: the first shard goes on with all sessions, for those of a group's members
//! carry its records, and any peer may be or become a member.

use crate::core::Core;
use crate::lobby::{Guest, Lobby, wake_all};
use crate::tasks::{Interest, Wakers};
use crate::wait::Shared;
use denrei_proto::{PeerId, Place};
use parking_lot::MutexGuard;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most shards: as many as the cores of today's large hosts, and a datagram's fits into an octet.
pub(crate) const MAX_SHARDS: usize = 128;

/// All shards of a Node.
pub(crate) struct Shards {
    first: Arc<Shared>,
    /// Beyond the first.
    others: Box<[Arc<Shared>]>,
    steering: Arc<Steering>,
    lobby: Option<Arc<Lobby>>,
    /// Where a look at all shards begins: none of them comes last always.
    turn: AtomicUsize,
}

/// Whose datagrams go where.
pub(crate) struct Steering {
    shards: usize,
    /// Secret, or strangers could choose whose thread they keep busy.
    hash: RandomState,
    /// All have gone to the first shard.
    gathered: AtomicBool,
}

impl Steering {
    fn new(shards: usize) -> Self {
        Self { shards, hash: RandomState::new(), gathered: AtomicBool::new(false) }
    }

    /// Whether there is anything to decide.
    pub fn is_spread(&self) -> bool {
        self.shards > 1 && !self.gathered.load(Ordering::Acquire)
    }

    /// The shard of an address.
    pub fn at(&self, addr: SocketAddr) -> usize {
        if !self.is_spread() {
            return 0;
        }
        (self.hash.hash_one((addr.ip().to_canonical(), addr.port())) % self.shards as u64) as usize
    }

    fn of(&self, peer: PeerId) -> usize {
        if self.is_spread() { peer.shard(self.shards) } else { 0 }
    }
}

impl Shards {
    /// `make` makes each shard's state, all with the lobby of those who wait for any, if there are
    /// several.
    pub fn new(count: usize, mut make: impl FnMut(Place, Option<Arc<Lobby>>) -> Shared) -> Self {
        let lobby = (count > 1).then(Arc::<Lobby>::default);
        let mut all = Place::all(count as u32).map(|place| Arc::new(make(place, lobby.clone())));
        let first = all.next().expect("a Node has a shard");
        Self {
            first,
            others: all.collect(),
            steering: Arc::new(Steering::new(count)),
            lobby,
            turn: AtomicUsize::new(0),
        }
    }

    /// The first shard, which has the groups, and the socket's owner.
    pub fn first(&self) -> &Arc<Shared> {
        &self.first
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Shared>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// What the pipeline steers by.
    pub fn steering(&self) -> &Arc<Steering> {
        &self.steering
    }

    fn get(&self, index: usize) -> &Shared {
        match index.checked_sub(1) {
            None => &self.first,
            Some(other) => &self.others[other],
        }
    }

    /// The shard that has the sessions that began in `index`, its core locked.
    fn enter(&self, index: usize) -> (&Shared, MutexGuard<'_, Core>) {
        let shard = self.get(index);
        let core = shard.core.lock();
        if core.absorbed {
            drop(core);
            return (&self.first, self.first.core.lock());
        }
        (shard, core)
    }

    /// The shard of a peer, its core locked.
    pub fn enter_of(&self, peer: PeerId) -> (&Shared, MutexGuard<'_, Core>) {
        self.enter(self.steering.of(peer))
    }

    /// The shard of an address, its core locked.
    pub fn enter_at(&self, addr: SocketAddr) -> (&Shared, MutexGuard<'_, Core>) {
        self.enter(self.steering.at(addr))
    }

    /// Sends what is queued to `peer`.
    pub fn kick(&self, peer: PeerId) {
        self.get(self.steering.of(peer)).kick();
    }

    /// Waits for something of one peer's; `ready` says what it waits for otherwise.
    pub fn wait_for<T>(
        &self,
        peer: PeerId,
        timeout: Option<Duration>,
        mut ready: impl FnMut(&mut Core) -> Result<T, Interest>,
    ) -> Option<T> {
        if self.others.is_empty() {
            return self.first.wait_until(timeout, ready);
        }
        let deadline = timeout.map(deadline_of);
        let here = |core: &mut Core| if core.absorbed { Ok(None) } else { ready(core).map(Some) };
        match self.get(self.steering.of(peer)).wait_until(timeout, here)? {
            Some(value) => Some(value),
            None => self.first.wait_until(deadline.map(left), ready),
        }
    }

    /// Waits for something that any shard may bring; not where nobody drives the Node any more.
    pub fn wait_for_any<T>(
        &self,
        timeout: Option<Duration>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> Option<T> {
        let lobby = match self.lobby.as_deref() {
            Some(lobby) if self.steering.is_spread() => lobby,
            _ => return self.first.wait_for(timeout, ready),
        };
        let deadline = timeout.map(deadline_of);
        let _guest = Guest::enter(lobby);
        loop {
            // Before the look: what comes after it calls once more.
            let heard = lobby.calls();
            let mut broken = false;
            let look = |core: &mut Core| {
                broken |= core.broken;
                ready(core)
            };
            if let Some(value) = self.look(look) {
                return Some(value);
            }
            if broken || !lobby.wait(heard, deadline) {
                return None;
            }
        }
    }

    /// Those who wait for any shard look again.
    pub fn call_lobby(&self) {
        if let Some(lobby) = &self.lobby {
            lobby.call();
        }
    }

    /// Asks one shard after the other until there is a value, and sends what comes of that or was queued.
    pub fn look<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> Option<T> {
        self.by_turns().find_map(|shard| {
            let mut core = shard.core.lock();
            let value = ready(&mut core);
            shard.answer(&mut core);
            value
        })
    }

    /// Asks one shard after the other until there is a value. What comes of that is sent only where another thread drives,
    /// which may sleep for long; elsewhere the application's next call that polls or sends does.
    pub fn visit<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> Option<T> {
        self.by_turns().find_map(|shard| {
            let mut core = shard.core.lock();
            let value = ready(&mut core);
            if core.is_driven_by_another() {
                shard.answer(&mut core);
            }
            value
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.others.len() + 1
    }

    fn by_turns(&self) -> impl Iterator<Item = &Shared> {
        let count = self.count();
        let begin = if count > 1 { self.turn.fetch_add(1, Ordering::Relaxed) % count } else { 0 };
        (0..count).map(move |step| self.get((begin + step) % count))
    }

    /// From now on the first shard has all sessions.
    pub fn gather(&self) {
        if !self.steering.is_spread() {
            return;
        }
        let mut first = self.first.core.lock();
        let mut tasks = Wakers::new();
        for shard in &self.others {
            let mut core = shard.core.lock();
            if !core.absorbed {
                tasks.append(&mut first.absorb(&mut core));
                shard.rally(&mut core);
            }
        }
        self.steering.gathered.store(true, Ordering::Release);
        drop(first);
        // Those who wait look where things are now; tasks last, whose waking may panic.
        if let Some(lobby) = &self.lobby {
            lobby.call();
        }
        self.first.kick();
        wake_all(tasks);
    }
}

/// The end of `timeout`. A longer one than a century is as good as none, and would not fit into an `Instant`.
pub(crate) fn deadline_of(timeout: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    Instant::now() + timeout.min(LONGEST)
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_one_shard_and_addresses_spread() {
        let steering = Steering::new(4);
        let addr = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let mut counts = [0; 4];
        for port in 1..=1000 {
            counts[steering.at(addr(port))] += 1;
            assert_eq!(steering.at(addr(port)), steering.at(addr(port)));
            let mapped = format!("[::ffff:10.0.0.1]:{port}").parse().unwrap();
            assert_eq!(steering.at(mapped), steering.at(addr(port)));
        }
        assert!(counts.iter().all(|count| (150..350).contains(count)), "{counts:?}");
        steering.gathered.store(true, Ordering::Release);
        assert!((1..=1000).all(|port| steering.at(addr(port)) == 0));
    }
}
