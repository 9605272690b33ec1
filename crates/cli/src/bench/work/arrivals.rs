//! What a run at a set rate receives with, and when each message came.
//!
//! Inputs → outputs: a [`Config`] → messages, each with the time at which it arrived, nanoseconds of
//! CLOCK_MONOTONIC. A [`Node`] gives a message when its process has its core, which may be milliseconds
//! after it came, and two bursts then look like one. So where bursts are measured the kernel says when a
//! datagram arrived (SO_TIMESTAMPNS): [`Timed`] drives the protocol by itself, on a plain socket.

use crate::bench::clock::{now_ns, wall_ns};
use anyhow::{Context, Result};
use bytes::Bytes;
use denrei::{ChannelId, Config, Message, Node, PeerId, Rate};
use denrei_proto::{Completion, Endpoint};
use denrei_wire::{DatagramMeta, Ecn, Instant, TransmitBuf};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;
use socket2::SockRef;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// Who gives a run its messages.
pub trait Receiver {
    /// Where senders reach it.
    fn local_addr(&self) -> SocketAddr;

    /// The next message and when it came, if one comes within `patience`.
    fn next(&mut self, patience: Duration) -> Result<Option<(u64, Message)>>;

    /// Sends a short message.
    fn say(&mut self, to: PeerId, what: &'static [u8]) -> Result<()>;

    /// Sets a sender's rate.
    fn set_rate(&mut self, of: PeerId, rate: Rate) -> Result<()>;

    /// What was set of a sender, or learnt and set.
    fn rate_set(&self, of: PeerId) -> Option<Rate>;
}

impl Receiver for Node {
    fn local_addr(&self) -> SocketAddr {
        Self::local_addr(self)
    }

    fn next(&mut self, patience: Duration) -> Result<Option<(u64, Message)>> {
        Ok(self.recv_timeout(patience)?.map(|message| (now_ns(), message)))
    }

    fn say(&mut self, to: PeerId, what: &'static [u8]) -> Result<()> {
        self.send(ChannelId { peer: to, channel: 0 }, what)?;
        Ok(())
    }

    fn set_rate(&mut self, of: PeerId, rate: Rate) -> Result<()> {
        Ok(Self::set_rate(self, of, rate)?)
    }

    fn rate_set(&self, of: PeerId) -> Option<Rate> {
        self.flow(of)?.rate_set
    }
}

/// A receiver of one sender to which the kernel says when datagrams came. It does not sleep: waking it up would
/// keep the sender off its core.
pub struct Timed {
    socket: UdpSocket,
    local: SocketAddr,
    endpoint: Endpoint,
    out: TransmitBuf,
    datagram: Vec<u8>,
    control: Vec<u8>,
    /// CLOCK_REALTIME, by which the kernel tells, less CLOCK_MONOTONIC, when this was made.
    ahead_ns: u64,
    /// When octets came that no message was handed out for, and how many: behind a lost packet messages wait for
    /// what is sent again, and did not come with that.
    arrived: VecDeque<(u64, u64)>,
    came: VecDeque<(u64, Message)>,
}

impl Timed {
    /// Binds a free port.
    pub fn open(bind: IpAddr, config: &Config) -> Result<Self> {
        let socket = UdpSocket::bind((bind, 0))
            .with_context(|| format!("cannot bind {bind}: is it an address of this machine?"))?;
        socket.set_nonblocking(true)?;
        let bytes = config.socket.recv_buffer_bytes;
        // Past the permitted maximum with the right to do so, as a Node does.
        if setsockopt(&socket, sockopt::RcvBufForce, &bytes).is_err() {
            SockRef::from(&socket).set_recv_buffer_size(bytes)?;
        }
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)
            .context("this kernel does not say when datagrams came (SO_TIMESTAMPNS)")?;
        let mut protocol = config.protocol.clone();
        protocol.cluster_key = config.cluster_key.clone().or(protocol.cluster_key);
        let ahead_ns = wall_ns() - now_ns();
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| anyhow::anyhow!("no random numbers: {error}"))?;
        Ok(Self {
            local: socket.local_addr()?,
            socket,
            endpoint: Endpoint::new(
                Arc::new(protocol),
                u64::from_ne_bytes(seed),
                Instant::from_nanos(now_ns()),
            ),
            out: TransmitBuf::new(1),
            datagram: vec![0; 1 << 16],
            control: nix::cmsg_space!(TimeSpec),
            ahead_ns,
            arrived: VecDeque::new(),
            came: VecDeque::new(),
        })
    }

    /// Takes in what is there, fires the timers that are due, and answers.
    fn work(&mut self) -> Result<()> {
        while let Some((len, from, at_ns)) = self.receive()? {
            let now = Instant::from_nanos(now_ns());
            // How it was marked is not asked for: nothing marks where this is measured.
            let meta = DatagramMeta { from, at: None, ecn: Ecn::NotEct };
            let held = self.held(from);
            self.endpoint.handle_datagram(now, &meta, &mut self.datagram[..len]);
            let octets = self.held(from).saturating_sub(held);
            if octets > 0 {
                self.arrived.push_back((at_ns, octets));
            }
            while let Some(message) = self.endpoint.recv(now) {
                let came = self.arrival_of(message.data.len() as u64);
                self.came.push_back((came.unwrap_or(at_ns), message));
            }
        }
        let now = Instant::from_nanos(now_ns());
        if self.endpoint.poll_timeout().is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now);
        }
        while self.endpoint.poll_event().is_some() {}
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut self.out) {
            // What is not taken is lost, and sent again.
            let _ = self.socket.send_to(self.out.bytes(), transmit.to);
        }
        Ok(())
    }

    /// Sleeps until something comes, a timer is due, or it is `until_ns`. One that spins has used up its share of a
    /// core that others want, too, when something comes, and what it acknowledges late is sent again.
    fn sleep(&self, now_ns: u64, until_ns: u64) -> Result<()> {
        let due_ns = self.endpoint.poll_timeout().map_or(until_ns, |at| at.as_nanos().min(until_ns));
        let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let timeout = TimeSpec::from_duration(Duration::from_nanos(due_ns.saturating_sub(now_ns)));
        match ppoll(&mut waiting, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for datagrams"),
        }
    }

    /// Octets of messages that are here and not handed out.
    fn held(&self, from: SocketAddr) -> u64 {
        let flow = self.endpoint.peer_at(from).and_then(|peer| self.endpoint.flow(peer));
        flow.map_or(0, |flow| flow.unread_bytes)
    }

    /// When the next so many octets came. A message that is sent again counts as what came in its stead: a burst
    /// has as many octets all the same.
    fn arrival_of(&mut self, mut octets: u64) -> Option<u64> {
        let mut came = None;
        while let Some((at_ns, left)) = self.arrived.front_mut() {
            came = came.max(Some(*at_ns));
            let taken = octets.min(*left);
            (*left, octets) = (*left - taken, octets - taken);
            if *left > 0 {
                break;
            }
            self.arrived.pop_front();
            if octets == 0 {
                break;
            }
        }
        came
    }

    /// A datagram: its length, its source, when it came.
    fn receive(&mut self) -> Result<Option<(usize, SocketAddr, u64)>> {
        let mut parts = [IoSliceMut::new(&mut self.datagram)];
        let control = Some(&mut self.control[..]);
        let socket = self.socket.as_raw_fd();
        let received = match recvmsg::<SockaddrStorage>(socket, &mut parts, control, MsgFlags::empty()) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::ECONNREFUSED) => return Ok(None),
            Err(error) => return Err(error).context("cannot receive"),
        };
        let at = received.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at).as_nanos() as u64),
            _ => None,
        });
        let at_ns = at.context("the kernel has not said when a datagram came")?;
        let from = received.address.as_ref().and_then(address).context("a datagram without a source")?;
        Ok(Some((received.bytes, from, at_ns.saturating_sub(self.ahead_ns))))
    }
}

impl Receiver for Timed {
    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn next(&mut self, patience: Duration) -> Result<Option<(u64, Message)>> {
        let until_ns = now_ns() + patience.as_nanos() as u64;
        loop {
            if let Some(next) = self.came.pop_front() {
                return Ok(Some(next));
            }
            self.work()?;
            if self.came.is_empty() {
                let now = now_ns();
                if now >= until_ns {
                    return Ok(None);
                }
                self.sleep(now, until_ns)?;
            }
        }
    }

    fn say(&mut self, to: PeerId, what: &'static [u8]) -> Result<()> {
        let channel = ChannelId { peer: to, channel: 0 };
        self.endpoint.send(channel, Bytes::from_static(what), Completion::None)?;
        self.work()
    }

    fn set_rate(&mut self, of: PeerId, rate: Rate) -> Result<()> {
        self.endpoint.set_rate(Instant::from_nanos(now_ns()), of, rate)?;
        self.work()
    }

    fn rate_set(&self, of: PeerId) -> Option<Rate> {
        self.endpoint.flow(of)?.rate_set
    }
}

/// A source in the usual form.
fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in().map(|addr| SocketAddr::V4((*addr).into()));
    v4.or_else(|| storage.as_sockaddr_in6().map(|addr| SocketAddr::V6((*addr).into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_when_a_datagram_came_not_when_it_was_taken() {
        let mut timed = Timed::open([127, 0, 0, 1].into(), &Config::default()).unwrap();
        let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
        let peer = node.connect(timed.local_addr()).unwrap();
        node.send(ChannelId { peer, channel: 0 }, &b"first"[..]).unwrap();
        let until_ns = now_ns() + 10_000_000_000;
        while timed.next(Duration::from_millis(1)).unwrap().is_none() {
            node.recv_timeout(Duration::from_millis(1)).unwrap();
            assert!(now_ns() < until_ns, "nothing came");
        }
        // It begins to a while after the first socket of all has asked for it, when a worker of its own has its turn.
        loop {
            node.recv_timeout(Duration::from_millis(5)).unwrap();
            let before = now_ns();
            node.send(ChannelId { peer, channel: 0 }, &b"next"[..]).unwrap();
            let sent = now_ns();
            std::thread::sleep(Duration::from_millis(20));
            let (came, message) = timed.next(Duration::from_secs(5)).unwrap().expect("it is here");
            assert_eq!(&message.data[..], b"next");
            if (before..=sent).contains(&came) {
                break;
            }
            assert!(now_ns() < until_ns, "{came} is not between {before} and {sent}");
        }
    }

    /// What a socket between two that hands on by hand has got, if anything.
    fn got(socket: &UdpSocket) -> Option<Vec<u8>> {
        let mut datagram = vec![0; 1 << 16];
        let len = socket.recv(&mut datagram).ok()?;
        datagram.truncate(len);
        Some(datagram)
    }

    /// The next that brings `text`. Others, which look for the path's size, are lost.
    fn got_with(socket: &UdpSocket, text: &[u8]) -> Option<Vec<u8>> {
        let brings = |datagram: &Vec<u8>| datagram.windows(text.len()).any(|window| window == text);
        std::iter::from_fn(|| got(socket)).find(brings)
    }

    #[test]
    fn messages_behind_a_lost_packet_did_not_come_with_what_is_sent_again() {
        let mut timed = Timed::open([127, 0, 0, 1].into(), &Config::default()).unwrap();
        let node = Node::bind("127.0.0.1:0", Config::default()).unwrap();
        let [front, back] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        front.connect(node.local_addr()).unwrap();
        back.connect(timed.local_addr()).unwrap();
        for socket in [&front, &back] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        }
        let peer = node.connect(front.local_addr().unwrap()).unwrap();
        let channel = ChannelId { peer, channel: 0 };
        node.send(channel, &b"opener"[..]).unwrap();
        let until_ns = now_ns() + 10_000_000_000;
        let mut gap_ns = 0;
        while gap_ns < 10_000_000 {
            assert!(now_ns() < until_ns, "the second came {gap_ns} ns after the first");
            // Nothing is under way, and everything handed out.
            while node.queue_len(peer) != Some(0) || timed.next(Duration::ZERO).unwrap().is_some() {
                node.poll();
                got(&front).inspect(|datagram| drop(back.send(datagram)));
                timed.next(Duration::ZERO).unwrap();
                got(&back).inspect(|datagram| drop(front.send(datagram)));
            }
            while got(&front).is_some() {}
            node.send(channel, &b"before"[..]).unwrap();
            let held = got_with(&front, b"before").expect("it was sent");
            node.send(channel, &b"behind"[..]).unwrap();
            back.send(&got_with(&front, b"behind").expect("it was sent")).unwrap();
            if timed.next(Duration::from_millis(20)).unwrap().is_some() {
                continue; // On a busy machine the first may have been sent again with it.
            }
            back.send(&held).unwrap();
            let [first, second] =
                [(); 2].map(|()| timed.next(Duration::from_secs(5)).unwrap().expect("both"));
            assert_eq!((&first.1.data[..], &second.1.data[..]), (&b"before"[..], &b"behind"[..]));
            gap_ns = second.0.saturating_sub(first.0);
        }
    }
}
