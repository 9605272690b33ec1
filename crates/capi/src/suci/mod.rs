//! Suci's calls (S8, S9) on a [`Node`]: what `include/denrei/suci.h` declares and describes.
//!
//! Inputs → outputs: ids of an address database → peers; blocks → messages on channel 0. Deviations:
//! a block larger than the reader's buffer stays, rather than being cut; sequence numbers, windows
//! and retransmission are the Node's.

mod socket;

pub use socket::datagram_socket;

use crate::errno::{Refusal, run};
use crate::error::{Owned, check_own, denrei_error_message, free, own, text};
use denrei::{Config, Drive, Node};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long closing waits for what was written to be acknowledged.
const LINGER: Duration = Duration::from_secs(5);

/// Ids, addresses and settings.
#[allow(non_camel_case_types)]
pub struct datagram_addrdb {
    config: Config,
    addresses: HashMap<c_int, SocketAddr>,
}

/// Seconds and microseconds from C; negative ones are none.
fn duration(sec: c_int, usec: c_int) -> Duration {
    Duration::from_secs(sec.max(0) as u64) + Duration::from_micros(usec.max(0) as u64)
}

fn socket_addr(address: &str, port: c_int) -> Result<SocketAddr, Refusal> {
    let refuse = |why: &str| Refusal::new(libc::EINVAL, format!("{address:?} port {port}: {why}"));
    let port = u16::try_from(port).map_err(|_| refuse("ports go from 0 to 65535"))?;
    address.parse().map(|ip| SocketAddr::new(ip, port)).map_err(|_| refuse("no IP address"))
}

/// # Safety
/// `socket` is null or a socket.
unsafe fn socket<'a>(socket: *const datagram_socket) -> Result<&'a datagram_socket, Refusal> {
    // SAFETY: by the contract.
    Ok(unsafe { own("sock", socket) }?)
}

/// # Safety
/// `database` is null or an address database.
unsafe fn database<'a>(database: *mut datagram_addrdb) -> Result<&'a mut datagram_addrdb, Refusal> {
    // SAFETY: by the contract.
    unsafe { database.as_mut() }.ok_or_else(|| Refusal::new(libc::EINVAL, "addrdb is NULL"))
}

/// See suci.h.
#[unsafe(no_mangle)]
pub extern "C" fn datagram_addrdb_new() -> *mut datagram_addrdb {
    // A program that computes between its calls must not seem dead.
    let config = Config { drive: Drive::Thread, ..Config::default() };
    Box::into_raw(Box::new(datagram_addrdb { config, addresses: HashMap::new() }))
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_addrdb_add(
    addrdb: *mut datagram_addrdb,
    id: c_int,
    address: *const c_char,
    port: c_int,
) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let (database, address) = unsafe { (database(addrdb)?, text("address", address)?) };
        if id < 0 || port == 0 {
            return Err(Refusal::new(libc::EINVAL, "ids are not negative, and ports not 0"));
        }
        database.addresses.insert(id, socket_addr(address, port)?);
        Ok(0)
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_addrdb_set(
    addrdb: *mut datagram_addrdb,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let (database, name, value) =
            unsafe { (database(addrdb)?, text("name", name)?, text("value", value)?) };
        database.config.set(name, value).map_err(|error| Refusal::new(libc::EINVAL, error))?;
        Ok(0)
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_addrdb_free(addrdb: *mut datagram_addrdb) {
    // SAFETY: by the contract.
    unsafe { free(addrdb) };
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram(
    addrdb: *mut datagram_addrdb,
    myaddr: *const c_char,
    myport: c_int,
    myid: c_int,
) -> *mut datagram_socket {
    run(std::ptr::null_mut(), || {
        // SAFETY: by the contract.
        let (database, address) = unsafe { (database(addrdb)?, text("myaddr", myaddr)?) };
        let address = socket_addr(address, myport)?;
        let mut addresses = database.addresses.clone();
        addresses.remove(&myid);
        let node = Node::bind(address, database.config.clone())
            .map_err(|error| Refusal::new(error.raw_os_error().unwrap_or(libc::EINVAL), error))?;
        Ok(Box::into_raw(Box::new(datagram_socket::new(node, myid, addresses))))
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_close(sock: *mut datagram_socket) {
    if sock.is_null() {
        return;
    }
    // SAFETY: by the contract it was made by Box::into_raw.
    let socket = unsafe { Box::from_raw(sock) };
    socket.forget();
    run((), || {
        check_own("sock", socket.maker())?;
        let deadline = Instant::now() + LINGER;
        for flow in socket.node.peers() {
            socket.node.flush(flow.peer, deadline.saturating_duration_since(Instant::now()));
        }
        drop(socket);
        Ok(())
    });
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_set_destination(sock: *mut datagram_socket, id: c_int) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        unsafe { socket(sock)? }.set_destination(id)?;
        Ok(0)
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_destination(id: c_int, sock: *mut datagram_socket) -> c_int {
    // SAFETY: by the contract.
    unsafe { datagram_set_destination(sock, id) }
}

/// # Safety
/// `buf` is null or has `len` bytes.
unsafe fn write(sock: *mut datagram_socket, buf: *const c_void, len: c_int, wait: bool) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        let length = usize::try_from(len).map_err(|_| Refusal::new(libc::EINVAL, "len is negative"))?;
        if length == 0 {
            return socket.write(&[], wait);
        }
        if buf.is_null() {
            return Err(Refusal::new(libc::EINVAL, "buf is NULL"));
        }
        // SAFETY: by the contract.
        socket.write(unsafe { std::slice::from_raw_parts(buf.cast(), length) }, wait)
    })
}

/// # Safety
/// `buf` is null or has `len` bytes.
unsafe fn read(sock: *mut datagram_socket, buf: *mut c_void, len: c_int, timeout: Duration) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        let length = usize::try_from(len).map_err(|_| Refusal::new(libc::EINVAL, "len is negative"))?;
        if length == 0 || buf.is_null() {
            return socket.read(&mut [], timeout);
        }
        // SAFETY: by the contract; the bytes may be uninitialised for C, so they are made so first.
        let buffer = unsafe {
            buf.write_bytes(0, length);
            std::slice::from_raw_parts_mut(buf.cast(), length)
        };
        socket.read(buffer, timeout)
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_write(sock: *mut datagram_socket, buf: *const c_void, len: c_int) -> c_int {
    // SAFETY: by the contract.
    unsafe { write(sock, buf, len, true) }
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_write0(
    sock: *mut datagram_socket,
    buf: *const c_void,
    len: c_int,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { write(sock, buf, len, false) }
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_read(sock: *mut datagram_socket, buf: *mut c_void, len: c_int) -> c_int {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    // SAFETY: by the contract.
    unsafe { read(sock, buf, len, CENTURY) }
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_read0(sock: *mut datagram_socket, buf: *mut c_void, len: c_int) -> c_int {
    // SAFETY: by the contract.
    unsafe { read(sock, buf, len, Duration::ZERO) }
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_source(sock: *mut datagram_socket) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        Ok(unsafe { socket(sock)? }.source())
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_ready(sock: *mut datagram_socket, sec: c_int, usec: c_int) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        let size = socket.next_block(duration(sec, usec))?.map_or(0, |size| size.max(1));
        Ok(c_int::try_from(size).unwrap_or(c_int::MAX))
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_wait(
    sock: *mut datagram_socket,
    sec: c_int,
    usec: c_int,
    size: c_int,
    id: c_int,
) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        let size = u64::try_from(size).map_err(|_| Refusal::new(libc::EINVAL, "size is negative"))?;
        let room = socket.node.wait(socket.peer(id)?, size, duration(sec, usec));
        room.map(c_int::from).map_err(|error| Refusal::new(libc::ECONNRESET, error))
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_queue_length(sock: *mut datagram_socket, id: c_int) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        let queued = socket.known_peer(id)?.and_then(|peer| socket.node.queue_len(peer)).unwrap_or(0);
        Ok(c_int::try_from(queued).unwrap_or(c_int::MAX))
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_retransmission(sock: *mut datagram_socket, id: c_int) -> c_int {
    run(-1, || {
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        if let Some(peer) = socket.known_peer(id)? {
            socket.node.retransmit(peer).map_err(|error| Refusal::new(libc::ECONNRESET, error))?;
        }
        Ok(0)
    })
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_lost(sock: *mut datagram_socket, id: c_int) -> u64 {
    run(0, || {
        // SAFETY: by the contract.
        Ok(unsafe { socket(sock)? }.lost(id))
    })
}

/// See suci.h.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct datagram_flow_state {
    delay_us: u64,
    window_bytes: u64,
    in_flight_bytes: u64,
    queue_length: u64,
    queue_bytes: u64,
    lost_packets: u64,
}

/// See suci.h.
///
/// # Safety
/// As suci.h says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn datagram_flow(
    sock: *mut datagram_socket,
    id: c_int,
    state: *mut datagram_flow_state,
) -> c_int {
    run(-1, || {
        let place = crate::error::place("state", state)?;
        // SAFETY: by the contract.
        let socket = unsafe { socket(sock)? };
        let flow = socket.known_peer(id)?.and_then(|peer| socket.node.flow(peer));
        let flow = flow.ok_or_else(|| Refusal::new(libc::ENOTCONN, "there is no session with it"))?;
        let told = datagram_flow_state {
            delay_us: flow.srtt_ns.unwrap_or(0) / 1000,
            window_bytes: flow.credit_bytes,
            in_flight_bytes: flow.in_flight_bytes,
            queue_length: flow.queued_messages,
            queue_bytes: flow.queued_bytes,
            lost_packets: flow.counters.packets_lost,
        };
        // SAFETY: by the contract.
        unsafe { place.put(told) };
        Ok(0)
    })
}

/// See suci.h.
#[unsafe(no_mangle)]
pub extern "C" fn datagram_error() -> *const c_char {
    denrei_error_message()
}
