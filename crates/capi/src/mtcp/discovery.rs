//! Which Node has which id: asked of the group's address, answered by each member for itself.
//!
//! Inputs → outputs: ids → addresses. Source: M2, M8 (a sender knows its members by ids alone);
//! the datagrams are in `spec/mtcp.md`. An answer is no proof of anything: whoever is at the address
//! has still to open a session, with the cluster key where there is one.

use crate::errno::Refusal;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ids and the addresses of their Nodes.
pub(super) type Hosts = BTreeMap<u32, SocketAddr>;

/// Begins a question: which of these ids are here?
const QUESTION: [u8; 8] = *b"MTCP-Q1\n";
/// Begins an answer: this id has its Node at this port of the address that I send from.
const ANSWER: [u8; 8] = *b"MTCP-A1\n";
/// Ids that one question has room for, so that it fits into any datagram; the rest is asked next.
const MAX_IDS: usize = 128;
/// Wait before a question is asked again the first time; doubled from then on.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait between two questions.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// How often a responder looks whether it is to stop.
const SLICE: Duration = Duration::from_millis(200);
/// Length of an answer: its beginning, nonce, id, port.
const ANSWER_BYTES: usize = 8 + 8 + 4 + 2;

fn udp() -> std::io::Result<Socket> {
    Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))
}

fn v4(ip: IpAddr) -> Ipv4Addr {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// A number that nobody guesses: answers to questions of others are none to ours.
fn nonce() -> [u8; 8] {
    std::collections::hash_map::RandomState::new().build_hasher().finish().to_le_bytes()
}

fn question(nonce: [u8; 8], ids: &[u32]) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(16 + 4 * MAX_IDS);
    datagram.extend(QUESTION);
    datagram.extend(nonce);
    datagram.extend(ids.iter().take(MAX_IDS).flat_map(|id| id.to_le_bytes()));
    datagram
}

/// The nonce of a question that asks for `id`.
fn is_asked(datagram: &[u8], id: u32) -> Option<[u8; 8]> {
    let (nonce, ids) = datagram.strip_prefix(&QUESTION)?.split_first_chunk()?;
    ids.chunks_exact(4).take(MAX_IDS).any(|asked| asked == id.to_le_bytes()).then_some(*nonce)
}

fn answer(nonce: [u8; 8], id: u32, port: u16) -> Vec<u8> {
    let mut datagram = Vec::with_capacity(ANSWER_BYTES);
    datagram.extend(ANSWER);
    datagram.extend(nonce);
    datagram.extend(id.to_le_bytes());
    datagram.extend(port.to_le_bytes());
    datagram
}

/// Id and port of an answer to the question with this nonce.
fn answered(datagram: &[u8], nonce: [u8; 8]) -> Option<(u32, u16)> {
    let rest = datagram.strip_prefix(&ANSWER)?.strip_prefix(&nonce)?;
    let (id, port) = rest.split_first_chunk()?;
    Some((u32::from_le_bytes(*id), u16::from_le_bytes(port.try_into().ok()?)))
}

/// Asks at the group's address for the ids whose addresses are not `known`, until all have answered.
pub(super) fn find(
    group: SocketAddrV4,
    local: IpAddr,
    ids: &[u32],
    known: Hosts,
    until: Instant,
) -> Result<Hosts, Refusal> {
    let mut hosts = known;
    let missing =
        |hosts: &Hosts| ids.iter().filter(|id| !hosts.contains_key(id)).copied().collect::<Vec<_>>();
    if missing(&hosts).is_empty() {
        return Ok(hosts);
    }
    let socket = udp()?;
    socket.set_multicast_if_v4(&v4(local))?;
    socket.set_multicast_loop_v4(true)?;
    socket.bind(&SocketAddr::from((v4(local), 0)).into())?;
    let socket = UdpSocket::from(socket);
    let (nonce, mut wait) = (nonce(), FIRST_WAIT);
    loop {
        let asked = missing(&hosts);
        if asked.is_empty() {
            return Ok(hosts);
        }
        if Instant::now() >= until {
            let message =
                format!("no member has answered for id{} {asked:?}", if asked.len() == 1 { "" } else { "s" });
            return Err(Refusal::new(libc::ETIMEDOUT, message));
        }
        socket.send_to(&question(nonce, &asked), group)?;
        collect(&socket, nonce, ids, &mut hosts, (Instant::now() + wait).min(until))?;
        wait = (wait * 2).min(MAX_WAIT);
    }
}

/// Takes answers in until all have come or time is up.
fn collect(
    socket: &UdpSocket,
    nonce: [u8; 8],
    ids: &[u32],
    hosts: &mut Hosts,
    until: Instant,
) -> Result<(), Refusal> {
    let mut datagram = [0; ANSWER_BYTES + 1];
    while ids.iter().any(|id| !hosts.contains_key(id)) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        socket.set_read_timeout(Some(left))?;
        let (length, from) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(());
            }
            // Somebody has refused a question: that is no answer.
            Err(_) => {
                std::thread::sleep(FIRST_WAIT.min(left));
                continue;
            }
        };
        let Some((id, port)) = answered(&datagram[..length], nonce) else { continue };
        let address = SocketAddr::new(from.ip(), port);
        if ids.contains(&id) && *hosts.entry(id).or_insert(address) != address {
            let both = format!("two members have id {id}: {} and {address}", hosts[&id]);
            return Err(Refusal::new(libc::EADDRINUSE, both));
        }
    }
    Ok(())
}

/// Answers for one member.
pub(super) struct Responder {
    socket: UdpSocket,
    id: u32,
    port: u16,
}

impl Responder {
    /// Hears the group's address beside the Node at `local`.
    pub fn new(group: SocketAddrV4, local: SocketAddr, id: u32) -> std::io::Result<Self> {
        let socket = udp()?;
        socket.set_reuse_address(true)?;
        socket.bind(&SocketAddr::from(group).into())?;
        socket.join_multicast_v4(group.ip(), &v4(local.ip()))?;
        let socket = UdpSocket::from(socket);
        socket.set_read_timeout(Some(SLICE))?;
        Ok(Self { socket, id, port: local.port() })
    }

    /// Answers until it is told to stop.
    pub fn run(self, stop: &AtomicBool) {
        let mut datagram = [0; 16 + 4 * MAX_IDS];
        while !stop.load(Ordering::Relaxed) {
            let (length, from) = match self.socket.recv_from(&mut datagram) {
                Ok(received) => received,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(_) => {
                    std::thread::sleep(SLICE);
                    continue;
                }
            };
            if let Some(nonce) = is_asked(&datagram[..length], self.id)
                && !stop.load(Ordering::Relaxed)
            {
                // A lost answer is asked for again.
                let _ = self.socket.send_to(&answer(nonce, self.id, self.port), from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered_by_those_it_names() {
        let nonce = *b"12345678";
        let asked = question(nonce, &[3, 70_000]);
        assert_eq!(is_asked(&asked, 70_000), Some(nonce));
        assert_eq!(is_asked(&asked, 4), None);
        let said = answer(nonce, 70_000, 7411);
        assert_eq!(said.len(), ANSWER_BYTES);
        assert!(said.len() <= asked.len(), "a question brings no more octets than it has");
        assert_eq!(answered(&said, nonce), Some((70_000, 7411)));
    }

    #[test]
    fn what_is_none_is_ignored() {
        let nonce = *b"12345678";
        for cut in 0..ANSWER_BYTES {
            assert_eq!(answered(&answer(nonce, 1, 2)[..cut], nonce), None);
        }
        assert_eq!(answered(&answer(*b"87654321", 1, 2), nonce), None);
        assert_eq!(answered(&[&answer(nonce, 1, 2)[..], b"x"].concat(), nonce), None);
        for datagram in [&b""[..], b"MTCP-Q1\n", b"MTCP-Q1\n1234567", &[0; 600]] {
            assert_eq!(is_asked(datagram, 0), None);
        }
    }
}
