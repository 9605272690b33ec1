//! Sending: one system call per transmit where the host allows it.
//!
//! Inputs → outputs: [`Transmit`] + [`TransmitBuf`] → [`SendOutcome`]. A train goes out by
//! `UDP_SEGMENT`; where the path refuses that, segment by segment (by one `sendmmsg`), at once, so
//! that nothing is lost by finding out; so do those that follow, but for one now and then that tries
//! again (`offload.rs`). A refused datagram is a lost datagram, never an error.
//!
//! The kernel reports an ICMP message about an earlier datagram by failing the next call on a
//! connected socket; such a call is repeated once.

mod calls;

use crate::lanes::Lane;
use crate::outcome::{DropKind, SendAttempt, SendHook, SendOutcome, may_be_missing_gso};
use crate::plain::{self, canonical, mapped};
use crate::socket::UdpSocket;
use denrei_wire::datagram::{MAX_DATAGRAM_BYTES, MAX_SEGMENTS};
use denrei_wire::frame::MIN_MAX_DATAGRAM_BYTES;
use denrei_wire::{Ecn, Transmit, TransmitBuf};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A path that carries smaller datagrams only is not supported (`spec/protocol.md` §9).
const LEAST_PATH_BYTES: usize = MIN_MAX_DATAGRAM_BYTES as usize;

/// Where a transmit goes, worked out once.
struct Target {
    lane: usize,
    to: SocketAddr,
    /// Address in the socket's family; `None` on a connected lane.
    name: Option<SocketAddr>,
    /// Source address that has to be told with each datagram.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))]
    // the portable backend leaves it to the system
    from: Option<IpAddr>,
    /// ECN codepoint, if it is not the socket's constant.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code))] // the portable backend sends the constant
    ecn: Option<Ecn>,
}

/// Consecutive datagrams of a transmit that one call can send.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    bytes: &'a [u8],
    /// Bytes per datagram, at least 1; the last may be shorter.
    segment: usize,
}

impl Chunk<'_> {
    fn datagrams(self) -> usize {
        self.bytes.len().div_ceil(self.segment).max(1)
    }

    /// What is left after the first `count` datagrams.
    fn after(self, count: usize) -> Self {
        Self { bytes: &self.bytes[(count * self.segment).min(self.bytes.len())..], ..self }
    }
}

/// Why a chunk was not sent to its end.
struct Stop {
    /// Bytes of the chunk that were sent.
    sent: usize,
    error: io::Error,
}

impl UdpSocket {
    /// Sends one transmit. Never blocks; see [`SendOutcome`].
    pub fn send(&mut self, transmit: &Transmit, buf: &TransmitBuf) -> SendOutcome {
        self.send_from(transmit, buf, 0)
    }

    /// Sends one transmit from byte `skip` on, which [`SendOutcome::WouldBlock`] named.
    pub fn send_from(&mut self, transmit: &Transmit, buf: &TransmitBuf, skip: usize) -> SendOutcome {
        debug_assert_eq!(transmit.len, buf.len(), "a buffer holds exactly one transmit");
        let target = self.target(transmit);
        if let Some(parts) = buf.parts() {
            return match self.send_parts(&target, parts) {
                Ok(()) => SendOutcome::Sent,
                Err(error) => self.not_sent(transmit, skip, &error),
            };
        }
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        // The kernel takes trains of so many datagrams, and no more bytes than a datagram can have.
        let most = segment * (MAX_DATAGRAM_BYTES / segment).clamp(1, MAX_SEGMENTS);
        let mut sent = skip;
        // A chunk is at least one datagram, so there are at most as many rounds as datagrams.
        loop {
            let rest = &buf.bytes()[sent..];
            let chunk = Chunk { bytes: &rest[..rest.len().min(most)], segment };
            if let Err(stop) = self.send_chunk(&target, chunk) {
                return self.not_sent(transmit, sent + stop.sent, &stop.error);
            }
            sent += chunk.bytes.len();
            if sent >= transmit.len {
                return SendOutcome::Sent;
            }
        }
    }

    /// Sets or removes the hook that may fail send calls.
    pub fn set_send_hook(&mut self, hook: Option<SendHook>) {
        self.hook = hook;
    }

    /// Whether trains to `peer` go out in one call.
    pub fn gso_to(&self, peer: SocketAddr) -> bool {
        self.gso.works_to(canonical(peer).ip())
    }

    /// What becomes of the datagrams of a transmit that ended in an error after byte `sent`.
    fn not_sent(&mut self, transmit: &Transmit, sent: usize, error: &io::Error) -> SendOutcome {
        if error.kind() == io::ErrorKind::WouldBlock {
            return SendOutcome::WouldBlock { sent };
        }
        let left = transmit.len - sent;
        let segment = transmit.segment_size.unwrap_or(transmit.len).max(1);
        self.counters.send_dropped += left.div_ceil(segment).max(1) as u64;
        let kind = DropKind::of(error);
        // What is larger is sent to find out how much a path carries.
        if kind != DropKind::TooLarge || left.min(segment) <= LEAST_PATH_BYTES {
            self.warn_of_refusal(transmit.to, kind, error);
        }
        SendOutcome::Dropped { kind }
    }

    /// Says once for each kind of refusal what on this host may be wrong: whoever only waits for an answer takes the
    /// peer for the one that is silent.
    fn warn_of_refusal(&mut self, to: SocketAddr, kind: DropKind, error: &io::Error) {
        if self.refusals.contains(&kind) {
            return;
        }
        let (ip, local) = (canonical(to).ip(), self.local);
        let advice = match kind {
            DropKind::Unreachable => format!("see whether there is a route: `ip route get {ip}`"),
            DropKind::NetworkDown => "bring the interface up: `ip link set DEVICE up`".to_owned(),
            DropKind::NotPermitted if error.raw_os_error() == Some(libc::EACCES) => {
                format!("see whether a route prohibits it: `ip route get {ip}`")
            }
            DropKind::NotPermitted => "let this host's firewall pass UDP".to_owned(),
            DropKind::Other if error.raw_os_error() == Some(libc::EINVAL) => {
                "see whether an interface of this host has an address to send there from: `ip address`"
                    .to_owned()
            }
            DropKind::Other => format!("see whether this Node's address, {local}, can speak to that one"),
            DropKind::TooLarge => format!(
                "the way there has to carry {LEAST_PATH_BYTES} octets in a datagram: \
                 raise its MTU to 1280 or more (`ip link set DEVICE mtu 1500`)"
            ),
            // The peer's host, a full queue: what the protocol is there for.
            DropKind::Refused | DropKind::NoBuffers => return,
        };
        self.refusals.push(kind);
        self.warn(format!("this host does not send to {}: {error}; {advice}", canonical(to)));
    }

    /// Says that datagrams take a system call each from now on.
    pub(crate) fn warn_of_missing_call(&mut self, call: &str, error: &io::Error) {
        self.warn(format!(
            "{call} fails: {error}; datagrams take a call each. If this program runs in a sandbox, let that call pass"
        ));
    }

    /// Says once that this host does not give what may have come.
    #[cold]
    pub(crate) fn warn_of_failing_receive(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.fails_to_receive, true) {
            self.warn(format!(
                "receiving fails, and is tried again: {error}; see what this host's kernel log says"
            ));
        }
    }

    /// Tells the user, and keeps it for whoever asks later.
    fn warn(&mut self, warning: String) {
        tracing::warn!("{warning}");
        self.warnings.push(warning);
    }

    /// Sends the one datagram of a buffer that lends.
    fn send_parts(&mut self, target: &Target, parts: [&[u8]; 3]) -> io::Result<()> {
        let attempt = SendAttempt { to: target.to, datagrams: 1, offload: false };
        let bytes = self.attempt(target.lane, attempt, |socket| match (target.ecn, target.from) {
            (None, None) => plain::send_parts(&socket.lanes[target.lane].socket, target.name, &parts),
            // A path that spoils ECN is rare, and who is sent much has a socket of its own.
            _ => socket.call_one(target, &parts.concat(), None),
        })?;
        self.count_sent(1, bytes);
        Ok(())
    }

    fn target(&self, transmit: &Transmit) -> Target {
        let connected = |lane: &Lane| lane.peer == Some(transmit.to) && lane.at == transmit.from;
        let lane = self.lanes[1..].iter().position(connected).map_or(0, |index| index + 1);
        let name = (lane == 0).then(|| mapped(transmit.to, self.local.is_ipv6()));
        let from = transmit.from.filter(|_| lane == 0);
        Target { lane, to: transmit.to, name, from, ecn: self.unusual_ecn(transmit.ecn) }
    }

    /// `ecn` if it has to be told with each datagram.
    fn unusual_ecn(&self, ecn: Ecn) -> Option<Ecn> {
        (self.config.ecn && ecn != Ecn::Ect0).then_some(ecn)
    }

    fn send_chunk(&mut self, target: &Target, chunk: Chunk<'_>) -> Result<(), Stop> {
        let offload = chunk.bytes.len() > chunk.segment;
        if offload && !self.gso.is_worth_a_try(target.to.ip()) {
            return self.send_each(target, chunk);
        }
        let attempt = SendAttempt { to: target.to, datagrams: chunk.datagrams(), offload };
        let segment = offload.then_some(chunk.segment);
        match self.attempt(target.lane, attempt, |socket| socket.call_one(target, chunk.bytes, segment)) {
            Ok(_) => {
                self.count_sent(chunk.datagrams(), chunk.bytes.len());
                self.counters.sent_trains += u64::from(offload);
                if offload {
                    self.gso.enable(target.to.ip());
                }
                Ok(())
            }
            Err(error) if offload && may_be_missing_gso(&error) => {
                self.counters.gso_fallbacks += 1;
                let result = self.send_each(target, chunk);
                // Only if the datagrams as such are fine is offload to blame.
                if !matches!(&result, Err(stop) if stop.sent == 0) {
                    self.disable_gso(target.to, &error);
                }
                result
            }
            Err(error) => Err(Stop { sent: 0, error }),
        }
    }

    /// Sends a chunk datagram by datagram.
    fn send_each(&mut self, target: &Target, chunk: Chunk<'_>) -> Result<(), Stop> {
        let mut rest = chunk;
        // Every round sends at least one of the chunk's datagrams, or ends the loop.
        while !rest.bytes.is_empty() {
            let attempt = SendAttempt { to: target.to, datagrams: rest.datagrams(), offload: false };
            match self.attempt(target.lane, attempt, |socket| socket.call_each(target, rest)) {
                Ok(count) => {
                    let next = rest.after(count);
                    self.count_sent(count, rest.bytes.len() - next.bytes.len());
                    rest = next;
                }
                Err(error) => return Err(Stop { sent: chunk.bytes.len() - rest.bytes.len(), error }),
            }
        }
        Ok(())
    }

    /// Makes one call, or what the hook says, and repeats it if the failure may be an old one's.
    fn attempt(
        &mut self,
        lane: usize,
        attempt: SendAttempt,
        mut call: impl FnMut(&mut Self) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut tries = if lane == 0 { 1 } else { 2 };
        loop {
            tries -= 1;
            self.counters.send_calls += 1;
            let injected = self.hook.as_mut().and_then(|hook| hook(&attempt));
            let result = match injected {
                Some(errno) => Err(io::Error::from_raw_os_error(errno)),
                None => call(self),
            };
            match result {
                Ok(sent) => {
                    self.blocked = None;
                    return Ok(sent);
                }
                Err(error) if tries > 0 && self.lanes[lane].may_be_pending(&error) => {
                    self.note_refusal(lane, &error);
                }
                Err(error) => {
                    self.note_refusal(lane, &error);
                    let would_block = error.kind() == io::ErrorKind::WouldBlock;
                    self.blocked = would_block.then_some(lane);
                    self.counters.send_would_block += u64::from(would_block);
                    return Err(error);
                }
            }
        }
    }

    fn count_sent(&mut self, datagrams: usize, bytes: usize) {
        self.counters.sent_datagrams += datagrams as u64;
        self.counters.sent_bytes += bytes as u64;
    }

    fn disable_gso(&mut self, peer: SocketAddr, error: &io::Error) {
        if self.counters.gso_disabled == 0 {
            let warning = format!(
                "segmentation offload fails on the path to {}: {error}; sending datagrams one by one there. \
                 If this is not expected, update the network driver or check `ethtool -k` for tx-udp-segmentation",
                peer.ip()
            );
            self.warn(warning);
        }
        self.counters.gso_disabled += 1;
        self.gso.disable(peer.ip());
    }
}
