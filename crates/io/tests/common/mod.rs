//! What the integration tests share: bounded receiving and easy transmits, on loopback only.
#![allow(dead_code)] // each test binary uses its part

use bytes::Bytes;
use denrei_io::{BackendChoice, RecvBuffers, SocketConfig, UdpSocket, Waiter};
use denrei_wire::{DatagramMeta, Ecn, Transmit, TransmitBuf};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Longer than any loopback delivery; reached only by a failing test.
pub const DEADLINE: Duration = Duration::from_secs(10);

pub fn config(backend: BackendChoice) -> SocketConfig {
    SocketConfig { backend, ..SocketConfig::default() }
}

pub fn bind(addr: &str) -> UdpSocket {
    UdpSocket::bind(addr.parse().unwrap(), &SocketConfig::default()).unwrap()
}

pub fn bind_plain(addr: &str) -> UdpSocket {
    UdpSocket::bind(addr.parse().unwrap(), &config(BackendChoice::Plain)).unwrap()
}

/// Whether this host has IPv6 on loopback; says so if not.
pub fn has_ipv6() -> bool {
    let has = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !has {
        eprintln!("SKIPPED: no IPv6 on loopback");
    }
    has
}

/// `len` bytes that depend on position and `salt`.
pub fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ salt).collect()
}

/// A transmit of `bytes`.
pub fn transmit(to: SocketAddr, bytes: &[u8], segment_size: Option<usize>) -> (Transmit, TransmitBuf) {
    let mut buf = TransmitBuf::new(64);
    buf.put(bytes);
    (Transmit { to, from: None, len: bytes.len(), segment_size, ecn: Ecn::Ect0 }, buf)
}

/// A transmit of one datagram of three parts, the middle one lent.
pub fn lent(to: SocketAddr, parts: [&[u8]; 3], ecn: Ecn) -> (Transmit, TransmitBuf) {
    let mut buf = TransmitBuf::new(1).lending();
    let [before, message, after] = parts;
    buf.put(before);
    let message = Bytes::copy_from_slice(message);
    buf.put_part(&message, &message);
    buf.put(after);
    assert!(buf.parts().is_some(), "so much is lent");
    (Transmit { to, from: None, len: buf.len(), segment_size: None, ecn }, buf)
}

/// Receives `count` datagrams, or what came until nothing more did.
pub fn receive(socket: &mut UdpSocket, count: usize) -> Vec<(DatagramMeta, Vec<u8>)> {
    receive_into(socket, count, &mut RecvBuffers::default())
}

pub fn receive_into(
    socket: &mut UdpSocket,
    count: usize,
    buffers: &mut RecvBuffers,
) -> Vec<(DatagramMeta, Vec<u8>)> {
    let waiter = Waiter::new().unwrap();
    let end = Instant::now() + DEADLINE;
    let mut seen = Vec::new();
    while seen.len() < count && Instant::now() < end {
        let wake = waiter.wait(socket.raw_fds(), None, Some(DEADLINE / 4)).unwrap();
        socket.hint_readable(wake.readable);
        socket.recv(buffers, |meta, datagram| seen.push((*meta, datagram.to_vec()))).unwrap();
    }
    seen
}

/// The payloads of `count` datagrams.
pub fn payloads(socket: &mut UdpSocket, count: usize) -> Vec<Vec<u8>> {
    receive(socket, count).into_iter().map(|(_, bytes)| bytes).collect()
}

/// Asserts that nothing is there and nothing comes within a moment.
pub fn assert_silent(socket: &mut UdpSocket) {
    std::thread::sleep(Duration::from_millis(5));
    let mut seen = 0;
    socket.recv_all(&mut RecvBuffers::default(), |_, _| seen += 1).unwrap();
    assert_eq!(seen, 0, "nothing more is expected");
}
