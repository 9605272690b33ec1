//! A socket of Suci's: a Node, and the names of its peers.
//!
//! Inputs → outputs: ids and blocks → sessions and messages on one channel.

use crate::errno::Refusal;
use crate::error::Owned;
use crate::send::copy_of;
use denrei::{ChannelId, Completion, Event, Incoming, LostReason, Maker, Message, Node, PeerId, SendError};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

/// The channel that blocks travel on.
const CHANNEL: u16 = 0;

/// A Node, and the names of its peers.
#[allow(non_camel_case_types)]
pub struct datagram_socket {
    pub(super) node: Node,
    id: c_int,
    addresses: HashMap<c_int, SocketAddr>,
    ids: HashMap<SocketAddr, c_int>,
    state: Mutex<State>,
    /// Whether a block was left there: for those who wait, and then have a lock of the Node's.
    is_waiting: AtomicBool,
    maker: Maker,
}

impl Owned for datagram_socket {
    fn maker(&self) -> Maker {
        self.maker
    }
}

#[derive(Default)]
struct State {
    /// Taken from the Node and not read yet: blocks that did not fit into the reader's buffer.
    waiting: VecDeque<Message>,
    /// Addresses of peers that blocks came from, while the Node may have forgotten them.
    sources: HashMap<PeerId, SocketAddr>,
    /// Peers lost since the last write, and blocks lost with them in all.
    broken: HashMap<c_int, LostReason>,
    lost: HashMap<c_int, u64>,
}

thread_local! {
    /// By socket: whom this thread writes to, and whom it read from last.
    static DESTINATION: RefCell<HashMap<usize, c_int>> = RefCell::default();
    static SOURCE: RefCell<HashMap<usize, c_int>> = RefCell::default();
}

/// Does something with what a thread remembers; `None` once it is ending and has let go of that: C's own destructors
/// run after that, and so do the functions of `atexit`.
fn of_thread<T>(
    remembered: &'static LocalKey<RefCell<HashMap<usize, c_int>>>,
    run: impl FnOnce(&mut HashMap<usize, c_int>) -> T,
) -> Option<T> {
    remembered.try_with(|all| run(&mut all.borrow_mut())).ok()
}

impl datagram_socket {
    pub(super) fn new(node: Node, id: c_int, addresses: HashMap<c_int, SocketAddr>) -> Self {
        let ids = addresses.iter().map(|(id, address)| (*address, *id)).collect();
        Self {
            node,
            id,
            addresses,
            ids,
            state: Mutex::default(),
            is_waiting: AtomicBool::new(false),
            maker: Maker::this_process(),
        }
    }

    /// Whom this thread writes to from now on.
    pub(super) fn set_destination(&self, id: c_int) -> Result<(), Refusal> {
        self.address(id)?;
        let chosen = of_thread(&DESTINATION, |all| all.insert(self.key(), id));
        chosen
            .map(drop)
            .ok_or_else(|| Refusal::new(libc::EINVAL, "the thread is ending: no destination is kept"))
    }

    /// Who sent what this thread read last; -1 if that has no id.
    pub(super) fn source(&self) -> c_int {
        of_thread(&SOURCE, |sources| sources.get(&self.key()).copied()).flatten().unwrap_or(-1)
    }

    /// This thread forgets the socket.
    pub(super) fn forget(&self) {
        of_thread(&DESTINATION, |all| all.remove(&self.key()));
        of_thread(&SOURCE, |all| all.remove(&self.key()));
    }

    /// Blocks to `id` of which it is not known that they arrived.
    pub(super) fn lost(&self, id: c_int) -> u64 {
        self.note_waiting_events();
        self.state().lost.get(&id).copied().unwrap_or(0)
    }

    fn key(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn address(&self, id: c_int) -> Result<SocketAddr, Refusal> {
        let known = self.addresses.get(&id).copied();
        let why =
            if id == self.id { "the socket's own, and no peer of it" } else { "not in the address database" };
        known.ok_or_else(|| Refusal::new(libc::ENOENT, format!("id {id} is {why}")))
    }

    /// The session with `id`, opened if there is none.
    pub(super) fn peer(&self, id: c_int) -> Result<PeerId, Refusal> {
        let address = self.address(id)?;
        self.node.connect(address).map_err(|error| Refusal::new(libc::ENOBUFS, error))
    }

    /// The session with `id` if there is one.
    pub(super) fn known_peer(&self, id: c_int) -> Result<Option<PeerId>, Refusal> {
        Ok(self.node.peer_at(self.address(id)?))
    }

    /// Takes note of an event.
    fn note(&self, state: &mut State, event: Event) {
        match event {
            Event::Connected { peer, addr, .. } => {
                state.sources.insert(peer, addr);
            }
            Event::PeerLost { addr, reason, unacknowledged, .. } => {
                if let Some(&id) = self.ids.get(&addr) {
                    *state.lost.entry(id).or_default() += unacknowledged.len() as u64;
                    // A peer that ends in order has what was written, or has said otherwise.
                    if reason != LostReason::Closed && !unacknowledged.is_empty() {
                        state.broken.insert(id, reason);
                    }
                }
            }
            _ => {}
        }
    }

    /// Waits for a block to read, and does something with it and what waits behind it; `None` if time is up before.
    ///
    /// Another thread may take what this one waits for, and leave it: it is told then.
    fn with_block<T>(
        &self,
        timeout: Duration,
        act: impl FnOnce(&mut State) -> T,
    ) -> Result<Option<T>, Refusal> {
        let deadline = Instant::now() + timeout;
        loop {
            let mut state = self.state();
            let is_new = state.waiting.is_empty();
            if !is_new || self.take(&mut state)? {
                let done = act(&mut state);
                let is_left = !state.waiting.is_empty();
                self.is_waiting.store(is_left, Ordering::SeqCst);
                drop(state);
                if is_new && is_left {
                    self.node.rally();
                }
                return Ok(Some(done));
            }
            drop(state);
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let mut is_left = false;
            let look = || {
                is_left = self.is_waiting.load(Ordering::SeqCst);
                is_left
            };
            // Neither: time is up, or nobody drives the Node any more.
            if !self.node.wait_incoming_unless(left, look) && !is_left {
                return Ok(None);
            }
        }
    }

    /// Takes what has come up to the next block; whether there is one. The lock keeps blocks in their order.
    fn take(&self, state: &mut State) -> Result<bool, Refusal> {
        loop {
            match self.node.next(Duration::ZERO).map_err(|error| Refusal::new(libc::EIO, error))? {
                Some(Incoming::Message(message)) => {
                    state.waiting.push_back(message);
                    return Ok(true);
                }
                Some(Incoming::Event(event)) => self.note(state, event),
                None => return Ok(false),
            }
        }
    }

    fn note_waiting_events(&self) {
        let mut state = self.state();
        while let Some(event) = self.node.try_event() {
            self.note(&mut state, event);
        }
    }

    /// Size of the block that is read next, once it is here.
    pub(super) fn next_block(&self, timeout: Duration) -> Result<Option<usize>, Refusal> {
        self.with_block(timeout, |state| state.waiting.front().map_or(0, |message| message.data.len()))
    }

    pub(super) fn read(&self, buffer: &mut [u8], timeout: Duration) -> Result<c_int, Refusal> {
        self.with_block(timeout, |state| self.read_block(state, buffer))?.unwrap_or(Ok(0))
    }

    fn read_block(&self, state: &mut State, buffer: &mut [u8]) -> Result<c_int, Refusal> {
        let (length, room) = (state.waiting.front().map_or(0, |message| message.data.len()), buffer.len());
        if length > room {
            let text = format!("the block has {length} bytes, the buffer {room}");
            return Err(Refusal::new(libc::EMSGSIZE, text));
        }
        let Some(message) = state.waiting.pop_front() else { return Ok(0) };
        buffer[..length].copy_from_slice(&message.data);
        let address = state.sources.get(&message.channel.peer);
        let id = address.and_then(|address| self.ids.get(address)).copied().unwrap_or(-1);
        of_thread(&SOURCE, |sources| sources.insert(self.key(), id));
        Ok(length as c_int)
    }

    pub(super) fn write(&self, block: &[u8], wait: bool) -> Result<c_int, Refusal> {
        let nobody = || Refusal::new(libc::ENOTCONN, "no destination was chosen: datagram_destination");
        let id = of_thread(&DESTINATION, |all| all.get(&self.key()).copied()).flatten().ok_or_else(nobody)?;
        self.note_waiting_events();
        if let Some(reason) = self.state().broken.remove(&id) {
            return Err(Refusal::new(libc::ECONNRESET, format!("id {id} was lost: {reason}")));
        }
        let to = ChannelId { peer: self.peer(id)?, channel: CHANNEL };
        let length = block.len() as c_int;
        self.node.check_send(to, block.len() as u64).map_err(unsent)?;
        let block = copy_of(block).map_err(|error| Refusal::new(libc::ENOMEM, error))?;
        let sent = if wait {
            self.node.send(to, block)
        } else {
            self.node.try_send_with(to, block, Completion::None)
        };
        sent.map(|_| length).map_err(unsent)
    }
}

fn unsent(error: SendError) -> Refusal {
    let errno = match error {
        SendError::WouldBlock { .. } => libc::EAGAIN,
        SendError::TooLarge { .. } => libc::EMSGSIZE,
        _ => libc::ECONNRESET,
    };
    Refusal::new(errno, error)
}
