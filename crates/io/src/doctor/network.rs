//! What is tried with real sockets on loopback.
//!
//! Inputs → outputs: a pair of sockets per question → [`Check`]s. A question whose sockets cannot
//! even be opened is a complaint too, never an error.

use super::{Check, PATIENCE, Status, advice_for};
use crate::buffers::RecvBuffers;
use crate::config::SocketConfig;
use crate::outcome::{DropKind, SendOutcome};
use crate::socket::UdpSocket;
use crate::source::source_towards;
use crate::wait::Waiter;
use denrei_wire::{DatagramMeta, Ecn, Transmit, TransmitBuf};
use socket2::SockRef;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

const LOOPBACK_V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// An administratively scoped group (RFC 2365) for trying multicast; used on loopback only.
const TRIAL_GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 114, 101);
/// The same of a site (RFC 4291 §2.7); nothing is sent to it.
const TRIAL_GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x7265);
/// Datagrams of the trial train, and their size: an ordinary Ethernet's.
const TRAIN: (usize, usize) = (16, 1_200);
/// What it means that marks are not read, and what to do.
const WITHOUT_MARKS: &str =
    "congestion is then seen by delay and loss alone; use Linux and the `batched` backend";

pub(super) fn checks() -> Vec<Check> {
    checks_beside(udp())
}

/// That one and all others, of which most need what it needs.
fn checks_beside(udp: Check) -> Vec<Check> {
    let works = udp.status == Status::Ok;
    let over_loopback = |name, check: fn() -> Check| if works { check() } else { untried(name) };
    let mut checks = vec![udp];
    checks.extend(buffers());
    checks.extend([
        over_loopback("gso", gso),
        over_loopback("gro", gro),
        over_loopback("sendmmsg/recvmmsg", batching),
        over_loopback("ecn", ecn),
        over_loopback("connected sockets", connected),
        over_loopback("ipv6", ipv6),
        multicast_route(),
        over_loopback("multicast", multicast),
    ]);
    checks
}

/// Where nothing arrives, that says nothing about how it would.
fn untried(name: &'static str) -> Check {
    Check::warn(name, "could not be tried: it needs sockets on loopback", "see the check `udp`")
}

/// What became of a send, in words.
fn in_words(outcome: SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Sent => "what is sent is lost",
        SendOutcome::WouldBlock { .. } => "the send buffer stays full",
        SendOutcome::Dropped { kind: DropKind::Unreachable } => "no route to it",
        SendOutcome::Dropped { kind: DropKind::NetworkDown } => "the interface is down",
        SendOutcome::Dropped { kind: DropKind::NotPermitted } => "not permitted on this host",
        SendOutcome::Dropped { .. } => "this host refuses to send",
    }
}

/// Two sockets on loopback and what to receive with.
struct Pair {
    from: UdpSocket,
    to: UdpSocket,
    target: SocketAddr,
    waiter: Waiter,
    buffers: RecvBuffers,
}

impl Pair {
    fn new(bind: IpAddr, reach: IpAddr) -> io::Result<Self> {
        let config = SocketConfig::default();
        let from = UdpSocket::bind(SocketAddr::new(reach, 0), &config)?;
        let to = UdpSocket::bind(SocketAddr::new(bind, 0), &config)?;
        let target = SocketAddr::new(reach, to.local_addr().port());
        Ok(Self { from, to, target, waiter: Waiter::new()?, buffers: RecvBuffers::default() })
    }

    fn loopback() -> io::Result<Self> {
        Self::new(LOOPBACK_V4, LOOPBACK_V4)
    }

    /// Sends `count` datagrams of `bytes` each as one transmit.
    fn send(&mut self, count: usize, bytes: usize, ecn: Ecn) -> SendOutcome {
        let (transmit, buf) = transmit(self.target, count, bytes, ecn);
        self.from.send(&transmit, &buf)
    }

    /// Receives up to `count` datagrams from our own socket.
    fn receive(&mut self, count: usize) -> io::Result<Vec<DatagramMeta>> {
        let end = Instant::now() + PATIENCE;
        let port = self.from.local_addr().port();
        let mut seen = Vec::new();
        while seen.len() < count {
            let left = end.saturating_duration_since(Instant::now());
            let wake = self.waiter.wait(self.to.raw_fds(), None, Some(left))?;
            if left.is_zero() {
                break;
            }
            self.to.hint_readable(wake.readable);
            self.to.recv(&mut self.buffers, |meta, _| {
                if meta.from.port() == port {
                    seen.push(*meta);
                }
            })?;
        }
        Ok(seen)
    }
}

fn transmit(to: SocketAddr, count: usize, bytes: usize, ecn: Ecn) -> (Transmit, TransmitBuf) {
    let mut buf = TransmitBuf::new(count);
    buf.put_zeros(count * bytes);
    let segment_size = (count > 1).then_some(bytes);
    (Transmit { to, from: None, len: count * bytes, segment_size, ecn }, buf)
}

/// Runs a trial; trouble with its sockets becomes a complaint.
fn trial(name: &'static str, advice: &str, run: impl FnOnce() -> io::Result<Check>) -> Check {
    run().unwrap_or_else(|error| {
        Check::warn(name, format!("could not be tried: {error}"), advice_for(&error, advice))
    })
}

pub(super) fn udp() -> Check {
    let advice = "bring the loopback interface up (as root: ip link set lo up) and allow UDP on it";
    let run = || {
        let mut pair = Pair::loopback()?;
        let outcome = pair.send(1, 64, Ecn::Ect0);
        let seen = pair.receive(1)?.len();
        Ok::<_, io::Error>((outcome, seen, pair.to.capabilities().backend))
    };
    match run() {
        Ok((SendOutcome::Sent, 1, backend)) => Check::ok("udp", format!("works, backend `{backend}`")),
        Ok((outcome, _, _)) => {
            Check::fail("udp", format!("nothing arrives on loopback: {}", in_words(outcome)), advice)
        }
        Err(error) => Check::fail("udp", format!("no socket: {error}"), advice_for(&error, advice)),
    }
}

/// One finding for each direction's socket buffer.
fn buffers() -> Vec<Check> {
    let config = SocketConfig::default();
    let socket = match UdpSocket::bind(SocketAddr::new(LOOPBACK_V4, 0), &config) {
        Ok(socket) => socket,
        Err(error) => {
            return vec![Check::fail("receive buffer", format!("no socket: {error}"), "see the check `udp`")];
        }
    };
    let given = socket.capabilities();
    let sides = [
        ("receive buffer", "receive", given.recv_buffer_bytes, config.recv_buffer_bytes),
        ("send buffer", "send", given.send_buffer_bytes, config.send_buffer_bytes),
    ];
    let check = |(name, prefix, given, wanted): (&'static str, &str, usize, usize)| match socket
        .warnings()
        .iter()
        .find(|warning| warning.starts_with(prefix))
    {
        Some(warning) => Check::warn(
            name,
            format!("{given} bytes, wanted {wanted}"),
            warning.rsplit_once(": ").map_or(warning.as_str(), |(_, advice)| advice),
        ),
        None => Check::ok(name, format!("{given} bytes")),
    };
    sides.into_iter().map(check).collect()
}

fn gso() -> Check {
    let advice =
        "update to Linux 4.18 or later; until then large messages cost a call per batch of datagrams";
    trial("gso", advice, || {
        let mut pair = Pair::loopback()?;
        let (count, bytes) = TRAIN;
        let outcome = pair.send(count, bytes, Ecn::Ect0);
        let seen = pair.receive(count)?.len();
        let one_call = pair.from.counters().sent_trains == 1;
        Ok(match (outcome, one_call) {
            (SendOutcome::Sent, true) if seen == count => {
                Check::ok("gso", format!("{count} datagrams in one call"))
            }
            (SendOutcome::Sent, _) => {
                Check::warn("gso", format!("no train in one call, {seen} of {count} arrived"), advice)
            }
            _ => Check::warn("gso", format!("no train in one call: {}", in_words(outcome)), advice),
        })
    })
}

fn gro() -> Check {
    let advice = "update to Linux 5.0 or later; until then the receiver of large messages is slower";
    trial("gro", advice, || {
        let mut pair = Pair::loopback()?;
        let (count, bytes) = TRAIN;
        let _ = pair.send(count, bytes, Ecn::Ect0);
        let seen = pair.receive(count)?.len();
        Ok(if pair.to.counters().recv_trains > 0 {
            Check::ok("gro", format!("{seen} datagrams in {} calls", pair.to.counters().recv_calls))
        } else {
            Check::warn("gro", format!("{seen} datagrams came one by one"), advice)
        })
    })
}

fn batching() -> Check {
    let advice = "allow sendmmsg and recvmmsg in the sandbox's system call filter";
    trial("sendmmsg/recvmmsg", advice, || {
        let mut pair = Pair::loopback()?;
        let without_offload = SocketConfig { gso: false, ..SocketConfig::default() };
        pair.from = UdpSocket::bind(SocketAddr::new(LOOPBACK_V4, 0), &without_offload)?;
        let _ = pair.send(8, 100, Ecn::Ect0);
        let sent = pair.from.counters().sent_datagrams;
        let seen = pair.receive(8)?.len();
        let (sends, recvs) = (pair.from.counters().send_calls, pair.to.counters().recv_calls);
        let found = format!("8 datagrams: {sent} sent in {sends}, {seen} received in {recvs} calls");
        let name = "sendmmsg/recvmmsg";
        Ok(if sent == 8 && seen == 8 && sends == 1 && recvs < 8 {
            Check::ok(name, found)
        } else {
            Check::warn(name, found, advice)
        })
    })
}

fn ecn() -> Check {
    trial("ecn", WITHOUT_MARKS, || {
        let mut pair = Pair::loopback()?;
        let _ = pair.send(1, 64, Ecn::Ce);
        Ok(marked(pair.receive(1)?.first().map(|meta| meta.ecn)))
    })
}

/// What a datagram tells that was sent with a mark.
fn marked(read: Option<Ecn>) -> Check {
    let found = match read {
        Some(Ecn::Ce) => return Check::ok("ecn", "marks are sent and read"),
        Some(Ecn::NotEct) => "a mark was sent, and none was read",
        Some(Ecn::Ect0 | Ecn::Ect1) => "a mark was sent, and that it could have been marked was read",
        None => "a datagram with a mark was sent, and did not arrive",
    };
    Check::warn("ecn", found, WITHOUT_MARKS)
}

fn connected() -> Check {
    let advice =
        "busy peers are then served by the main socket, at the price of a route look-up per datagram";
    trial("connected sockets", advice, || {
        let mut pair = Pair::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), LOOPBACK_V4)?;
        pair.to.connect_peer(pair.from.local_addr())?;
        let mut other = UdpSocket::bind(SocketAddr::new(LOOPBACK_V4, 0), &SocketConfig::default())?;
        let _ = pair.send(1, 64, Ecn::Ect0);
        let own = pair.receive(1)?.len();
        std::mem::swap(&mut pair.from, &mut other);
        let _ = pair.send(1, 64, Ecn::Ect0);
        let others = pair.receive(1)?.len();
        Ok(if (own, others) == (1, 1) {
            Check::ok("connected sockets", "share the port with the main socket")
        } else {
            let found = format!("{own} of 1 datagram for the connected, {others} of 1 for the main socket");
            Check::warn("connected sockets", found, advice)
        })
    })
}

fn ipv6() -> Check {
    let advice = "if peers have IPv6 addresses, enable it (net.ipv6.conf.all.disable_ipv6=0)";
    trial("ipv6", advice, || {
        let localhost = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let mut pair = Pair::new(localhost, localhost)?;
        let _ = pair.send(1, 64, Ecn::Ect0);
        let native = pair.receive(1)?.len() == 1;
        let mut pair = Pair::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), LOOPBACK_V4)?;
        let _ = pair.send(1, 64, Ecn::Ect0);
        let dual = pair.receive(1)?.first().is_some_and(|meta| meta.from.is_ipv4());
        Ok(match (native, dual) {
            (true, true) => Check::ok("ipv6", "works, and [::] takes IPv4 too"),
            _ => Check::warn("ipv6", format!("native {native}, IPv4 through [::] {dual}"), advice),
        })
    })
}

/// Looks the routes up without sending anything.
fn multicast_route() -> Check {
    let advice = "add a route (as root: ip route add 224.0.0.0/4 dev INTERFACE); without it groups of IPv4 use unicast";
    trial("multicast route", advice, || {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        let v6 = source_towards((TRIAL_GROUP_V6, 9).into());
        let of_v6 = v6.map_or_else(String::new, |local| format!("; of IPv6 by the one with {}", local.ip()));
        Ok(match socket.connect((TRIAL_GROUP, 9)).and_then(|()| socket.local_addr()) {
            Ok(local) => {
                let found = format!("leaves by the interface with {}{of_v6}", local.ip());
                Check::ok("multicast route", found)
            }
            Err(error) => Check::warn("multicast route", format!("none for IPv4: {error}{of_v6}"), advice),
        })
    })
}

fn multicast() -> Check {
    let advice = "allow IGMP and 224.0.0.0/4 in the firewall; without multicast groups use unicast";
    trial("multicast", advice, || {
        let member = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        member.join_multicast_v4(&TRIAL_GROUP, &Ipv4Addr::LOCALHOST)?;
        member.set_read_timeout(Some(PATIENCE))?;
        let sender = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        SockRef::from(&sender).set_multicast_if_v4(&Ipv4Addr::LOCALHOST)?;
        sender.set_multicast_loop_v4(true)?;
        sender.send_to(b"denrei", (TRIAL_GROUP, member.local_addr()?.port()))?;
        let mut buffer = [0; 16];
        let from = sender.local_addr()?;
        Ok(match member.recv_from(&mut buffer) {
            Ok((6, source)) if source == from => Check::ok("multicast", "sent and received on loopback"),
            Ok((_, source)) => Check::warn("multicast", format!("a stranger answered: {source}"), advice),
            Err(error) => Check::warn("multicast", format!("sent, not received: {error}"), advice),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_mark_is_said_in_words() {
        assert_eq!(marked(Some(Ecn::Ce)).status, Status::Ok);
        for read in [None, Some(Ecn::NotEct), Some(Ecn::Ect0), Some(Ecn::Ect1)] {
            let check = marked(read);
            let words = check.found.chars().all(|c| c.is_alphabetic() || " ,".contains(c));
            assert!(check.status == Status::Warn && words, "{check:?}");
        }
    }

    #[test]
    fn without_loopback_nothing_is_concluded_from_what_does_not_arrive() {
        let names = |checks: &[Check]| checks.iter().map(|check| check.name).collect::<Vec<_>>();
        let checks = checks_beside(Check::fail("udp", "nothing arrives", "bring it up"));
        assert_eq!(names(&checks), names(&checks_beside(Check::ok("udp", "works"))));
        let untried = checks.iter().filter(|check| check.found.starts_with("could not be tried"));
        assert!(untried.clone().all(|check| check.advice.as_deref() == Some("see the check `udp`")));
        assert_eq!(untried.count(), 7);
    }
}
