//! A full mesh over bare UDP: one socket, unconnected, for all members. What gets lost is lost, and counted.
//!
//! Inputs → outputs: messages as between two ([`udp`](super::udp)), but without a number where one travels alone.
//! Since nobody can wait for what is lost, members tell each other when they have sent all, by a datagram of one
//! octet; who misses that of another asks for it. A member is done when it has that of all and nothing more is
//! there, or when nobody has said anything for [`SILENCE_NS`].

use super::segments::{Assembly, Trains, sent_or_lost};
use super::udp::{UdpEndpoint, one_packet, take_trains};
use super::{Exchanged, MeshEndpoint, MeshLink, PATIENCE, poll_for, polls};
use crate::bench::clock::{Meter, now_ns};
use crate::bench::control::Job;
use crate::bench::limits::{SendLimit, Until};
use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockaddrStorage};
use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

/// "I have sent all", and "have you?": shorter than any message and any segment.
const ENDED: u8 = 1;
const ASK: u8 = 2;

/// After this the others are not waited for any more, nanoseconds.
const SILENCE_NS: u64 = 2_000_000_000;

/// Most messages sent to one member, and trains taken for each, before others have their turn.
const TURN: usize = 16;

impl MeshEndpoint for UdpEndpoint {
    fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.socket.local_addr()?)
    }

    fn connect(self: Box<Self>, addresses: &[SocketAddr]) -> Result<Box<dyn MeshLink>> {
        let (socket, job) = (self.socket, self.job);
        let indexed = addresses.iter().enumerate();
        let others: Vec<SocketAddr> =
            indexed.filter(|(index, _)| *index != job.index).map(|(_, addr)| *addr).collect();
        let packet = least_packet(&job, &others)?;
        let is_alone = job.size <= packet;
        if !is_alone {
            take_trains(&socket)?;
        }
        // One that polls asks; one that sleeps does so in `poll`, and in a call that sends.
        socket.set_nonblocking(polls(&job))?;
        let members = others.iter().map(|addr| Member::new(*addr, &job, is_alone)).collect();
        let places = others.iter().enumerate().map(|(place, addr)| (*addr, place)).collect();
        Ok(Box::new(UdpMesh { socket, size: job.size, members, places, trains: Trains::new(packet) }))
    }
}

/// Largest message that fits a packet to each of the others, bytes.
fn least_packet(job: &Job, others: &[SocketAddr]) -> Result<usize> {
    let probe = UdpSocket::bind((job.bind, 0))?;
    let mut least = usize::MAX;
    for other in others {
        probe.connect(other)?;
        least = least.min(one_packet(&probe, other));
    }
    Ok(least)
}

struct UdpMesh {
    socket: UdpSocket,
    /// Bytes of every message.
    size: usize,
    members: Vec<Member>,
    places: HashMap<SocketAddr, usize>,
    trains: Trains,
}

/// Another member.
struct Member {
    addr: SocketAddr,
    to: SockaddrStorage,
    to_send: u64,
    sent: u64,
    received: u64,
    /// It has sent all.
    has_ended: bool,
    /// `None`: a message travels alone.
    assembly: Option<Assembly>,
}

impl Member {
    fn new(addr: SocketAddr, job: &Job, is_alone: bool) -> Self {
        let assembly = (!is_alone).then(|| Assembly::new(job.size));
        Self { addr, to: addr.into(), to_send: job.iters, sent: 0, received: 0, has_ended: false, assembly }
    }

    /// Sends a few messages; whether there were any left.
    fn send_some(&mut self, socket: &UdpSocket, trains: &mut Trains, message: &[u8]) -> Result<bool> {
        if self.to_send == 0 {
            return Ok(false);
        }
        for _ in 0..self.to_send.min(TURN as u64) {
            match self.assembly {
                None => send_one(socket, self.addr, message)?,
                Some(_) => trains.send(socket, Some(&self.to), self.to_send, message)?,
            }
            self.to_send -= 1;
            self.sent += 1;
        }
        if self.to_send == 0 {
            send_one(socket, self.addr, &[ENDED])?;
        }
        Ok(true)
    }

    /// Takes what it has sent; whether that is a message, or ends one.
    fn take(&mut self, socket: &UdpSocket, size: usize, datagram: &[u8]) -> Result<bool> {
        match (datagram, &mut self.assembly) {
            ([ENDED], _) => self.has_ended = true,
            ([ASK], _) if self.to_send == 0 => send_one(socket, self.addr, &[ENDED])?,
            ([_], _) => {}
            (segment, Some(assembly)) => return Ok(assembly.take(segment).is_some()),
            (message, None) => return Ok(message.len() == size),
        }
        Ok(false)
    }
}

fn send_one(socket: &UdpSocket, to: SocketAddr, datagram: &[u8]) -> Result<()> {
    poll_for(|| sent_or_lost(socket.send_to(datagram, to)))?.context("the socket takes no datagrams")
}

/// What a look at the socket has found.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Anything at all from a member.
    something: bool,
    messages: u64,
}

impl UdpMesh {
    /// Sends a few messages to every member, and only one more if it `is_over`; whether there were any left.
    fn send_some(&mut self, message: &[u8], is_over: bool) -> Result<bool> {
        let mut progress = false;
        let most = if is_over { 1 } else { u64::MAX };
        for member in &mut self.members {
            member.to_send = member.to_send.min(most);
            progress |= member.send_some(&self.socket, &mut self.trains, message)?;
        }
        Ok(progress)
    }

    /// Takes a few datagrams for every member.
    fn take_some(&mut self) -> Result<Found> {
        let mut found = Found::default();
        for _ in 0..TURN * self.members.len() {
            let Some(train) = self.trains.receive(&self.socket, MsgFlags::MSG_DONTWAIT)? else { break };
            let place = train.from.as_ref().and_then(socket_addr).and_then(|from| self.places.get(&from));
            let Some(member) = place.and_then(|place| self.members.get_mut(*place)) else { continue };
            found.something = true;
            for datagram in train.segments() {
                let whole = u64::from(member.take(&self.socket, self.size, datagram)?);
                member.received += whole;
                found.messages += whole;
            }
        }
        Ok(found)
    }

    /// Asks those who have not said that they have sent all.
    fn ask(&self) -> Result<()> {
        let mut silent = self.members.iter().filter(|member| !member.has_ended);
        silent.try_for_each(|member| send_one(&self.socket, member.addr, &[ASK]))
    }

    /// Lets time pass until something comes, at most `limit`.
    fn wait(&self, limit: Duration) -> Result<()> {
        let mut waiting = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(limit).context("the wait is too long for poll")?;
        match poll(&mut waiting, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for the others"),
        }
    }

    fn have_all_ended(&self) -> bool {
        self.members.iter().all(|member| member.has_ended)
    }

    /// What has been sent and received until now.
    fn exchanged(&self, meter: &Meter) -> Exchanged {
        let sum = |of: fn(&Member) -> u64| self.members.iter().map(of).sum();
        Exchanged::now(meter, sum(|member| member.sent), sum(|member| member.received))
    }
}

fn socket_addr(from: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|addr| SocketAddr::V4((*addr).into()));
    v4.or_else(|| from.as_sockaddr_in6().map(|addr| SocketAddr::V6((*addr).into())))
}

impl MeshLink for UdpMesh {
    fn exchange(&mut self, job: &Job, until: &Until<'_>, meter: &Meter) -> Result<Exchanged> {
        let message = vec![0x5a; job.size];
        let (mut exchanged, limit) = (self.exchanged(meter), SendLimit::new(job));
        let (mut was_busy, mut heard_ns, mut asked_ns) = (true, now_ns(), now_ns());
        loop {
            let has_sent = self.send_some(&message, limit.is_over_now())?;
            let found = self.take_some()?;
            if has_sent || found.messages > 0 {
                was_busy = true;
                continue;
            }
            let now = now_ns();
            if was_busy {
                // What follows, if no message comes, is waiting.
                exchanged = self.exchanged(meter);
                (was_busy, heard_ns, asked_ns) = (false, now, now);
            }
            if found.something {
                heard_ns = now;
                continue;
            }
            if self.have_all_ended() || now > heard_ns + SILENCE_NS {
                return Ok(exchanged);
            }
            if now > asked_ns + PATIENCE.as_nanos() as u64 {
                until.check()?;
                self.ask()?;
                asked_ns = now;
            }
            if !polls(job) {
                self.wait(PATIENCE)?;
            }
        }
    }

    /// Answers those who miss what it has told them.
    fn linger(&mut self) -> Result<()> {
        self.wait(Duration::from_millis(1))?;
        self.take_some()?;
        Ok(())
    }

    fn retransmitted(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(iters: u64) -> (UdpSocket, UdpSocket, Member) {
        let (here, there) =
            (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        there.set_nonblocking(true).unwrap();
        let addr = there.local_addr().unwrap();
        let member = Member {
            addr,
            to: addr.into(),
            to_send: iters,
            sent: 0,
            received: 0,
            has_ended: false,
            assembly: None,
        };
        (here, there, member)
    }

    #[test]
    fn who_has_sent_all_says_so_and_again_when_asked() {
        let (here, there, mut member) = pair(2);
        let (mut trains, mut octets) = (Trains::new(1472), [0; 16]);
        assert!(!member.take(&here, 4, &[ASK]).unwrap());
        assert!(there.recv(&mut octets).is_err(), "not yet");
        assert!(member.send_some(&here, &mut trains, &[0x5a; 4]).unwrap());
        assert!(!member.take(&here, 4, &[ASK]).unwrap());
        let lengths: Vec<usize> = (0..4).map(|_| there.recv(&mut octets).unwrap()).collect();
        assert_eq!((lengths, octets[0]), (vec![4, 4, 1, 1], ENDED));
        assert!(!member.send_some(&here, &mut trains, &[0x5a; 4]).unwrap());
    }

    #[test]
    fn only_whole_messages_are_counted() {
        let (here, _there, mut member) = pair(0);
        assert!(member.take(&here, 4, &[0; 4]).unwrap());
        assert!(!member.take(&here, 4, &[0; 3]).unwrap());
        assert!(!member.take(&here, 4, &[ENDED]).unwrap() && member.has_ended);
    }
}
