//! A socket of Suci's: a Node, and the names of its peers.
//!
//! Inputs → outputs: ids and blocks → sessions and messages on one channel.

use crate::errno::Refusal;
use crate::error::Owned;
use denrei::{ChannelId, Completion, Event, Incoming, LostReason, Maker, Message, Node, PeerId, SendError};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;
use std::time::{Duration, Instant};

/// The channel that blocks travel on.
const CHANNEL: u16 = 0;

/// A Node, and the names of its peers.
#[allow(non_camel_case_types)]
pub struct datagram_socket {
    pub(super) node: Node,
    addresses: HashMap<c_int, SocketAddr>,
    ids: HashMap<SocketAddr, c_int>,
    state: Mutex<State>,
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
    pub(super) fn new(node: Node, addresses: HashMap<c_int, SocketAddr>) -> Self {
        let ids = addresses.iter().map(|(id, address)| (*address, *id)).collect();
        Self { node, addresses, ids, state: Mutex::default(), maker: Maker::this_process() }
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

    /// Size of the block that is read next, if it is here.
    pub(super) fn next_block(&self) -> Option<usize> {
        self.state().waiting.front().map(|message| message.data.len())
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
        known.ok_or_else(|| Refusal::new(libc::ENOENT, format!("id {id} is not in the address database")))
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

    /// Takes what has come, until there is a block to read or time is up; whether there is.
    pub(super) fn fill(&self, timeout: Duration) -> Result<bool, Refusal> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.state().waiting.is_empty() {
                return Ok(true);
            }
            let next = self.node.next(left).map_err(|error| Refusal::new(libc::EIO, error))?;
            match next {
                Some(Incoming::Message(message)) => self.state().waiting.push_back(message),
                Some(Incoming::Event(event)) => self.note(&mut self.state(), event),
                None => return Ok(false),
            }
        }
    }

    fn note_waiting_events(&self) {
        while let Some(event) = self.node.try_event() {
            self.note(&mut self.state(), event);
        }
    }

    pub(super) fn read(&self, buffer: &mut [u8], timeout: Duration) -> Result<c_int, Refusal> {
        if !self.fill(timeout)? {
            return Ok(0);
        }
        let mut state = self.state();
        let Some(message) = state.waiting.pop_front() else { return Ok(0) };
        let length = message.data.len();
        if length > buffer.len() {
            state.waiting.push_front(message);
            let room = buffer.len();
            return Err(Refusal::new(
                libc::EMSGSIZE,
                format!("the block has {length} bytes, the buffer {room}"),
            ));
        }
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
        let block = bytes::Bytes::copy_from_slice(block);
        let length = block.len() as c_int;
        let sent = if wait {
            self.node.send(to, block)
        } else {
            self.node.try_send_with(to, block, Completion::None)
        };
        sent.map(|_| length).map_err(|error| {
            let errno = match error {
                SendError::WouldBlock { .. } => libc::EAGAIN,
                SendError::TooLarge { .. } => libc::EMSGSIZE,
                _ => libc::ECONNRESET,
            };
            Refusal::new(errno, error)
        })
    }
}
