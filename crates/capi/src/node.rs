//! Nodes and their peers.

use crate::config::denrei_config;
use crate::error::denrei_code::{DENREI_BUFFER, DENREI_INVALID, DENREI_UNKNOWN_PEER};
use crate::error::{Failure, Owned, call, denrei_code, own, place, text};
use denrei::{ChannelId, Config, Maker, Node, PeerError, PeerId};
use std::ffi::{c_char, c_int};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// One UDP port, and all the peers that are spoken to through it.
pub struct denrei_node {
    pub(crate) node: Node,
    maker: Maker,
}

impl Owned for denrei_node {
    fn maker(&self) -> Maker {
        self.maker
    }
}

/// Names a peer of a node.
pub type denrei_peer = u64;

/// No peer has this name.
pub const DENREI_NO_PEER: denrei_peer = u64::MAX;

/// A time in microseconds from C: negative is without limit.
pub(crate) fn timeout(timeout_us: i64) -> Option<Duration> {
    u64::try_from(timeout_us).ok().map(Duration::from_micros)
}

/// The same for calls of which every wait has a limit: a century will do for none.
pub(crate) fn bounded(timeout_us: i64) -> Duration {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    timeout(timeout_us).unwrap_or(CENTURY).min(CENTURY)
}

pub(crate) fn channel_of(peer: denrei_peer, channel: u16) -> ChannelId {
    ChannelId { peer: PeerId::from_u64(peer), channel }
}

/// Runs a verb on a node's peer.
///
/// # Safety
/// `node` is null or a node.
unsafe fn act(node: *const denrei_node, verb: impl FnOnce(&Node) -> Result<(), PeerError>) -> denrei_code {
    // SAFETY: by the contract.
    call(|| Ok(verb(&unsafe { own("node", node) }?.node)?))
}

pub(crate) fn resolve(address: &str) -> Result<SocketAddr, Failure> {
    denrei::resolve(address).map_err(|why| Failure::new(DENREI_INVALID, why))
}

/// Opens a UDP port on `address` (port 0: any free one) with settings, NULL for the defaults.
///
/// # Safety
/// `address` is a string, `config` NULL or settings, `node` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_open(
    address: *const c_char,
    config: *const denrei_config,
    node: *mut *mut denrei_node,
) -> denrei_code {
    call(|| {
        let place = place("node", node)?;
        // SAFETY: by the contract.
        let (address, config) = unsafe { (text("address", address)?, config.as_ref()) };
        let config = config.map_or_else(Config::default, |config| config.config.clone());
        let made = Node::bind(resolve(address)?, config)?;
        // SAFETY: by the contract.
        unsafe {
            place.put(Box::into_raw(Box::new(denrei_node { node: made, maker: Maker::this_process() })))
        };
        Ok(())
    })
}

/// Closes a node: peers are told that it is gone, and what was not acknowledged is lost, so call
/// denrei_flush before, or denrei_close and wait for DENREI_EVENT_PEER_LOST. Messages and events taken
/// from it stay valid. Groups, listeners, memberships and sets need the node: while there is one of them it stays
/// open, with its port and its sessions, so give them back before.
///
/// # Safety
/// `node` is NULL or comes from denrei_node_open, and no thread uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_free(node: *mut denrei_node) {
    if !node.is_null() {
        // SAFETY: by the contract it was made by Box::into_raw.
        let node = unsafe { Box::from_raw(node) };
        call(|| {
            drop(node);
            Ok(())
        });
    }
}

/// Writes the address that a node has opened, as text that ends with NUL, into `buffer` of `length`
/// bytes; 64 are always enough.
///
/// # Safety
/// `node` is a node, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_address(
    node: *const denrei_node,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let address = unsafe { own("node", node) }?.node.local_addr().to_string();
        // SAFETY: by the contract.
        unsafe { write_text(&address, buffer, length) }
    })
}

/// # Safety
/// `buffer` is null or has `length` bytes.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, length: usize) -> Result<(), Failure> {
    if buffer.is_null() {
        return Err(Failure::null("buffer"));
    }
    if text.len() >= length {
        let need = text.len() + 1;
        return Err(Failure::new(DENREI_BUFFER, format!("{need} bytes are needed, the buffer has {length}")));
    }
    // SAFETY: there is room for the text and a NUL, and memory of ours does not overlap with it.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, text.len());
        buffer.add(text.len()).write(0);
    }
    Ok(())
}

/// Which start of this node this is: peers see another number after a restart. 0 for NULL.
///
/// # Safety
/// `node` is NULL or a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_incarnation(node: *const denrei_node) -> u64 {
    // SAFETY: by the contract.
    unsafe { node.as_ref() }.map_or(0, |node| node.node.incarnation().0)
}

/// A descriptor for an event loop: readable when there may be messages or events to take. Then call
/// denrei_node_clear *first*, and take until there is nothing left. Do not read or close it. Starts
/// the node's background thread. -1, with a message, if the process is out of descriptors.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_fd(node: *const denrei_node) -> c_int {
    let mut fd = -1;
    call(|| {
        // SAFETY: by the contract.
        fd = unsafe { own("node", node) }?.node.news_fd()?.as_raw_fd();
        Ok(())
    });
    fd
}

/// Makes the descriptor of denrei_node_fd unreadable until there is news again.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_clear(node: *const denrei_node) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        unsafe { own("node", node) }?.node.clear_news();
        Ok(())
    })
}

/// Does what is due now (receive, acknowledge, repeat) without waiting: for programs in drive
/// "inline" that compute for long.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_poll(node: *const denrei_node) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        unsafe { own("node", node) }?.node.poll();
        Ok(())
    })
}

/// Writes the `index`-th thing that the user should know about this host, from 0, one sentence, into
/// `buffer`. DENREI_TIMEOUT after the last.
///
/// # Safety
/// `node` is a node, `buffer` has `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_node_warning(
    node: *const denrei_node,
    index: usize,
    buffer: *mut c_char,
    length: usize,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let warnings = unsafe { own("node", node) }?.node.warnings();
        let warning = warnings.get(index).ok_or_else(Failure::timeout)?;
        // SAFETY: by the contract.
        unsafe { write_text(warning, buffer, length) }
    })
}

/// Opens a session with the node at `address`, or names the one there is. Returns at once: messages
/// may be sent right away. If nobody answers within the connect timeout, an event says so.
///
/// # Safety
/// `node` is a node, `address` a string, `peer` a place for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_connect(
    node: *const denrei_node,
    address: *const c_char,
    peer: *mut denrei_peer,
) -> denrei_code {
    call(|| {
        let place = place("peer", peer)?;
        // SAFETY: by the contract.
        let (node, address) = unsafe { (own("node", node)?, text("address", address)?) };
        let peer = node.node.connect(resolve(address)?)?;
        // SAFETY: by the contract.
        unsafe { place.put(peer.as_u64()) };
        Ok(())
    })
}

/// The live peer at an address; DENREI_UNKNOWN_PEER if there is none.
///
/// # Safety
/// As for denrei_connect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_peer_at(
    node: *const denrei_node,
    address: *const c_char,
    peer: *mut denrei_peer,
) -> denrei_code {
    call(|| {
        let place = place("peer", peer)?;
        // SAFETY: by the contract.
        let (node, address) = unsafe { (own("node", node)?, text("address", address)?) };
        let nobody = || Failure::new(DENREI_UNKNOWN_PEER, format!("there is no session with {address}"));
        let peer = node.node.peer_at(resolve(address)?).ok_or_else(nobody)?;
        // SAFETY: by the contract.
        unsafe { place.put(peer.as_u64()) };
        Ok(())
    })
}

/// Says that this side will send no more to `peer`; what is queued is still delivered. When both
/// sides have done so the session ends.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_close_write(node: *const denrei_node, peer: denrei_peer) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { act(node, |node| node.close_write(PeerId::from_u64(peer))) }
}

/// Says that this side wants no more from `peer`; what was not taken is dropped.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_close_read(node: *const denrei_node, peer: denrei_peer) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { act(node, |node| node.close_read(PeerId::from_u64(peer))) }
}

/// Ends the session with `peer` in order, as soon as everything queued here is acknowledged: the peer's application may
/// take it after that, which DENREI_EVENT_DELIVERED then does not report. An event says when. What the peer has not
/// brought here by then is cut off, and named to it: where both have more to say, each calls denrei_close_write.
///
/// # Safety
/// `node` is a node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_close(node: *const denrei_node, peer: denrei_peer) -> denrei_code {
    // SAFETY: by the contract.
    unsafe { act(node, |node| node.close(PeerId::from_u64(peer))) }
}

/// Ends the session with `peer` at once. `code` (0x8000 and up are the application's) and `reason`
/// (cut at 128 bytes) reach the peer.
///
/// # Safety
/// `node` is a node, `reason` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn denrei_abort(
    node: *const denrei_node,
    peer: denrei_peer,
    code: u16,
    reason: *const c_char,
) -> denrei_code {
    call(|| {
        // SAFETY: by the contract.
        let (node, reason) = unsafe { (own("node", node)?, text("reason", reason)?) };
        Ok(node.node.abort(PeerId::from_u64(peer), code, reason)?)
    })
}
