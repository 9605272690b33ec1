//! The part of a Node that does system calls: the socket, what is being sent, who is busy.
//!
//! It has a lock of its own, taken before the core's and held over system calls, so that a thread
//! that only wants to queue a message never waits for the kernel.

use crate::busy::BusyPeers;
use crate::core::Core;
use denrei_io::{DropKind, Receiver, RecvBuffers, SendOutcome, UdpSocket};
use denrei_proto::Lent;
use denrei_wire::{DatagramMeta, Instant, Landing, Transmit, TransmitBuf, Way};
use parking_lot::{Mutex, MutexGuard};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// So long a silent peer keeps a connected socket that another one would need.
const LONGEST_WATCH: Duration = Duration::from_secs(3);

/// How often it is looked by which interfaces groups are to be heard: as often as openers ask whether they are.
const INTERFACES_INTERVAL: Duration = Duration::from_secs(2);

/// Send operations in one flush before the receiving side gets its turn.
const MAX_SENDS_PER_FLUSH: usize = 64;

/// The socket and its buffers.
pub(crate) struct Io {
    pub socket: UdpSocket,
    buffers: RecvBuffers,
    out: TransmitBuf,
    /// A transmit that the kernel had no room for, and how many of its octets it took.
    stuck: Option<(Transmit, usize)>,
    busy: BusyPeers,
    /// Silent peers that have a connected socket as the kernel tells there if their hosts refuse what is sent, and
    /// since when.
    watched: Vec<(Way, Instant)>,
    /// When a transmit was last taken up.
    taken_up_at: Instant,
    /// When it is looked again which interfaces there are.
    interfaces_at: Instant,
}

/// The core, which whoever sends has already locked, and the time just read, at which no timer is due: a
/// lock and its release take as long as reading it.
pub(crate) type Held<'a> = (MutexGuard<'a, Core>, Instant);

/// How a flush ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flush {
    /// Everything that may be sent has been.
    Done,
    /// There is more; the receiving side should get its turn first.
    More,
    /// The kernel has no room: wait until [`UdpSocket::blocked_fd`] is writable.
    Blocked,
}

impl Io {
    pub fn new(socket: UdpSocket) -> Self {
        let segments = socket.capabilities().max_segments;
        Self {
            socket,
            buffers: RecvBuffers::default(),
            out: TransmitBuf::new(segments).lending(),
            stuck: None,
            busy: BusyPeers::default(),
            watched: Vec::new(),
            taken_up_at: Instant::ZERO,
            interfaces_at: Instant::ZERO + INTERFACES_INTERVAL,
        }
    }

    /// Receives what is there, of whomever. Returns the datagrams received.
    pub fn receive(&mut self, core: &Mutex<Core>) -> usize {
        let mut arrivals = Arrivals { core, held: None, now: None, found: false };
        let received = self.socket.recv_for(&mut self.buffers, &mut arrivals);
        drop(arrivals);
        // After what has come: a peer that was heard is there, whoever says what.
        self.pass_refusals(|peer| core.lock().hear_refused(peer));
        received.unwrap_or_else(|error| {
            core.lock().failure.get_or_insert(Arc::new(copy_error(&error)));
            0
        })
    }

    /// Passes on of which peers it was said that nobody is at their ports; `hear` says whether more such word is of use.
    #[inline]
    pub fn pass_refusals(&mut self, mut hear: impl FnMut(SocketAddr) -> bool) {
        while let Some(peer) = self.socket.take_refused() {
            if !hear(peer) {
                self.socket.disconnect_peer(peer);
            }
        }
    }

    /// Sends what may be sent; fires the timers that are due, if the socket was `looked` at before: this
    /// process may not have run for a while, and the acknowledgement that a timer waits for be here.
    pub fn flush(&mut self, core: &Mutex<Core>, mut held: Option<Held<'_>>, looked: bool) -> Flush {
        for _ in 0..MAX_SENDS_PER_FLUSH {
            match self.take_up(core, held.take(), looked) {
                Ok(more) => match (self.send(), more) {
                    (true, true) => {}
                    (true, false) => return Flush::Done,
                    (false, _) => return Flush::Blocked,
                },
                Err(end) => return end,
            }
        }
        Flush::More
    }

    /// Takes up the next transmit, unless one is stuck; whether there may be more. Lets go of the core.
    fn take_up(&mut self, core: &Mutex<Core>, held: Option<Held<'_>>, looked: bool) -> Result<bool, Flush> {
        if self.stuck.is_some() {
            return Ok(true);
        }
        let (mut core, now) = match held {
            Some(held) => held,
            None => {
                let mut core = core.lock();
                let now = core.now();
                if !looked && core.has_timer_due(now) {
                    return Err(Flush::More);
                }
                core.fire_timers(now);
                (core, now)
            }
        };
        let transmit = core.endpoint.poll_transmit(now, &mut self.out).ok_or(Flush::Done)?;
        self.stuck = Some((transmit, 0));
        let (silent, more) = (core.endpoint.poll_silent(), core.endpoint.wants_transmit());
        drop(core);
        self.taken_up_at = now;
        self.follow_interfaces(now);
        if let Some(peer) = silent {
            self.watch(peer, now);
        }
        Ok(more)
    }

    /// Looks, every so often, by which interfaces groups are to be heard now.
    #[inline]
    pub fn follow_interfaces(&mut self, now: Instant) {
        if now >= self.interfaces_at {
            self.interfaces_at = now + INTERFACES_INTERVAL;
            self.socket.follow_interfaces();
        }
    }

    /// Sends the transmit under way; whether the kernel had room.
    fn send(&mut self) -> bool {
        let Some((transmit, skip)) = self.stuck.take() else { return true };
        match self.socket.send_from(&transmit, &self.out, skip) {
            SendOutcome::WouldBlock { sent } => {
                self.stuck = Some((transmit, sent));
                return false;
            }
            // What the network or the kernel refuses counts as lost; the protocol repeats it. A connected socket
            // keeps the address that this host had when it was opened: the main one is tried next.
            SendOutcome::Dropped {
                kind: DropKind::Unreachable | DropKind::NetworkDown | DropKind::Other,
            } => {
                self.socket.disconnect_peer(transmit.to);
            }
            SendOutcome::Sent | SendOutcome::Dropped { .. } => {}
        }
        // A group has no socket of its own to speak to it: the main one's options are for that.
        if !transmit.to.ip().is_multicast() && self.busy.on_sent(transmit.way()) {
            self.review_busy();
        }
        true
    }

    /// Gives a peer that does not answer a connected socket: a free one, that of another which has not answered for long,
    /// or that of the least busy peer, which does without for now. More than half of the busy ones' they do not get.
    #[cold]
    pub fn watch(&mut self, peer: Way, now: Instant) {
        let connected: Vec<_> = self.socket.connected_peers().collect();
        self.watched.retain(|(watched, _)| connected.contains(watched));
        if connected.iter().any(|way| way.to == peer.to) {
            return self.socket.ask_who_refuses(peer.to);
        }
        let is_full = matches!(self.socket.connect_peer(peer), Ok(false));
        if is_full && let Some(other) = self.least_needed(&connected, now) {
            self.watched.retain(|(watched, _)| *watched != other);
            self.socket.disconnect_peer(other.to);
            let _ = self.socket.connect_peer(peer);
        }
        if self.socket.connected_peers().any(|way| way == peer) {
            self.socket.ask_who_refuses(peer.to);
            self.watched.push((peer, now));
        }
    }

    /// Whose connected socket a peer that does not answer gets.
    fn least_needed(&self, connected: &[Way], now: Instant) -> Option<Way> {
        let long = self.watched.iter().find(|(_, since)| now.saturating_since(*since) >= LONGEST_WATCH);
        if let Some((watched, _)) = long {
            return Some(*watched);
        }
        let is_watched = |way: &Way| self.watched.iter().any(|(watched, _)| watched == way);
        let busy: Vec<_> = connected.iter().copied().filter(|way| !is_watched(way)).collect();
        if self.watched.len() >= busy.len() { None } else { self.busy.least(&busy) }
    }

    fn review_busy(&mut self) {
        let connected: Vec<_> = self.socket.connected_peers().collect();
        let review = self.busy.review(&connected);
        let now = self.taken_up_at;
        self.watched.retain(|(_, since)| now.saturating_since(*since) < LONGEST_WATCH);
        // Little is sent to who does not answer: it is heard of there all the same.
        let is_watched = |way: &Way| self.watched.iter().any(|(watched, _)| watched == way);
        for peer in review.disconnect.into_iter().filter(|peer| !is_watched(peer)) {
            self.socket.disconnect_peer(peer.to);
        }
        for peer in review.connect {
            // A refusal (no descriptor left, no slot free) leaves the peer on the main socket.
            if !matches!(self.socket.connect_peer(peer), Ok(true)) {
                break;
            }
        }
    }
}

/// What one call receives on its way to the core, which it locks when there is something for it: not while the
/// kernel is asked, unless memory of a message is lent for that, which the core lacks meanwhile.
struct Arrivals<'a> {
    core: &'a Mutex<Core>,
    held: Option<MutexGuard<'a, Core>>,
    /// When what is handled came.
    now: Option<Instant>,
    /// Something has.
    found: bool,
}

impl Receiver for Arrivals<'_> {
    type Lent = Lent;

    fn handle(&mut self, meta: &DatagramMeta, datagram: &mut [u8]) {
        let core = self.held.get_or_insert_with(|| self.core.lock());
        let now = *self.now.get_or_insert_with(|| if self.found { core.now() } else { core.look_found() });
        self.found = true;
        core.endpoint.handle_datagram(now, meta, datagram);
    }

    fn lend(&mut self, source: &SocketAddr) -> Option<Lent> {
        let was_held = self.held.is_some();
        let core = self.held.get_or_insert_with(|| self.core.lock());
        let lent = core.endpoint.lend(source);
        match &lent {
            Some(_) => self.now = None,
            None if !was_held => self.held = None,
            None => {}
        }
        lent
    }

    fn landing(lent: &mut Lent) -> Option<Landing<'_>> {
        lent.landing()
    }

    fn take_back(&mut self, lent: Lent) {
        let core = self.held.get_or_insert_with(|| self.core.lock());
        let now = self.now.unwrap_or_else(|| core.recently());
        core.endpoint.take_back(now, lent);
    }
}

/// `io::Error` is not `Clone`; its number or kind and text are what matters.
pub(crate) fn copy_error(error: &std::io::Error) -> std::io::Error {
    match error.raw_os_error() {
        Some(number) => std::io::Error::from_raw_os_error(number),
        None => std::io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei_io::SocketConfig;
    use denrei_wire::Ecn;
    use std::net::UdpSocket as StdSocket;
    use std::time::Duration;

    #[test]
    fn a_transmit_that_is_stuck_twice_goes_on_where_it_was() {
        const DATAGRAMS: u8 = 60;
        const BYTES: usize = 1_400;
        const EAGAIN: i32 = 11;
        let receiver = StdSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let config = SocketConfig { gso: false, ..SocketConfig::default() };
        let mut io = Io::new(UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap());
        let mut calls = 0;
        // The first takes as many octets as a train may have.
        io.socket.set_send_hook(Some(Box::new(move |_| {
            calls += 1;
            (2..=3).contains(&calls).then_some(EAGAIN)
        })));
        (0..DATAGRAMS).for_each(|number| io.out.put(&[number; BYTES]));
        let (to, len) = (receiver.local_addr().unwrap(), io.out.len());
        io.stuck = Some((Transmit { to, from: None, len, segment_size: Some(BYTES), ecn: Ecn::Ect0 }, 0));
        assert_eq!([io.send(), io.send(), io.send()], [false, false, true]);
        let mut datagram = [0; BYTES];
        for number in 0..DATAGRAMS {
            assert_eq!((receiver.recv(&mut datagram).unwrap(), datagram[0]), (BYTES, number));
        }
    }

    /// An I/O part with connected sockets for `busy` peers, which are all there may be.
    fn full_of(busy: &[SocketAddr]) -> Io {
        let config = SocketConfig { connected_sockets: busy.len(), ..SocketConfig::default() };
        let mut io = Io::new(UdpSocket::bind("127.0.0.1:0".parse().unwrap(), &config).unwrap());
        busy.iter().for_each(|peer| assert!(io.socket.connect_peer(*peer).unwrap()));
        io
    }

    fn is_connected(io: &Io, peer: SocketAddr) -> bool {
        io.socket.connected_peers().any(|connected| connected.to == peer)
    }

    #[test]
    fn who_does_not_answer_gets_the_sockets_of_the_least_busy_but_not_of_more_than_half() {
        let [busy, silent] = [9000, 9100]
            .map(|port| [0, 1, 2, 3].map(|number| SocketAddr::from(([127, 0, 0, 1], port + number))));
        let mut io = full_of(&busy);
        busy.iter().zip([5, 1, 2, 4]).for_each(|(peer, sends)| {
            (0..sends).for_each(|_| assert!(!io.busy.on_sent((*peer).into())));
        });
        let began = Instant::ZERO;
        silent.iter().for_each(|peer| io.watch((*peer).into(), began));
        assert_eq!(silent.map(|peer| is_connected(&io, peer)), [true, true, false, false]);
        assert_eq!(busy.map(|peer| is_connected(&io, peer)), [true, false, false, true]);
        // Its time is over, and another's has come.
        io.watch(silent[2].into(), began + LONGEST_WATCH);
        assert_eq!(silent.map(|peer| is_connected(&io, peer)), [false, true, true, false]);
    }

    #[test]
    fn who_does_not_answer_keeps_its_socket_when_it_is_looked_who_is_busy() {
        let [busy, silent] = [9000, 9001].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut io = full_of(&[busy, SocketAddr::from(([127, 0, 0, 1], 9002))]);
        io.watch(silent.into(), Instant::ZERO);
        for (at, stays) in [(Duration::from_millis(10), true), (LONGEST_WATCH, false)] {
            while !io.busy.on_sent(busy.into()) {}
            io.taken_up_at = Instant::ZERO + at;
            io.review_busy();
            assert_eq!(is_connected(&io, silent), stays, "{at:?}");
        }
    }

    #[test]
    fn a_connected_socket_that_cannot_send_is_given_up() {
        let (invalid, too_large, unreachable) = (22, 90, 101);
        let peer = StdSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for (refusal, stays) in [(invalid, false), (unreachable, false), (too_large, true)] {
            let addr = "127.0.0.1:0".parse().unwrap();
            let mut io = Io::new(UdpSocket::bind(addr, &SocketConfig::default()).unwrap());
            assert!(io.socket.connect_peer(peer).unwrap());
            io.socket.set_send_hook(Some(Box::new(move |_| Some(refusal))));
            io.out.put(&[0; 100]);
            io.stuck =
                Some((Transmit { to: peer, from: None, len: 100, segment_size: None, ecn: Ecn::Ect0 }, 0));
            assert!(io.send());
            assert_eq!(io.socket.connected_peers().any(|connected| connected.to == peer), stays, "{refusal}");
        }
    }
}
