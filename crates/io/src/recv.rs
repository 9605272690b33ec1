//! Receiving: one system call for what is there, on the lanes whose turn it is.
//!
//! Inputs → outputs: [`RecvBuffers`], or memory that the receiver lends → datagrams handed to the receiver, trains split.
//! Errors that a peer can cause (a refused connection, an unreachable host), or that pass, are counted and consumed.

use crate::buffers::RecvBuffers;
use crate::config::MAX_LANES;
use crate::lanes::{MAX_DRAIN_CALLS, Plan};
use crate::outcome::{DropKind, is_of_the_call};
use crate::plain;
use crate::receiver::Receiver;
use crate::socket::UdpSocket;
use crate::wait;
use denrei_wire::{DatagramMeta, Landing};
use std::io;

/// Tries of one receive call: a report of an earlier send's fate comes instead of a datagram, and
/// behind it there may be another one.
const MAX_TRIES: usize = 3;

/// What one lane brought.
struct Received {
    buffers: usize,
    datagrams: usize,
}

impl UdpSocket {
    /// Receives what is there now on the lanes whose turn it is, at most the buffers' capacity per
    /// lane, and calls `handle` for each datagram. Returns how many; 0 means that the lanes polled in
    /// this call were empty. Never blocks.
    ///
    /// To be sure that no lane holds anything, use [`recv_all`](Self::recv_all) or sleep on a
    /// [`Waiter`](crate::Waiter) and pass on what it says with [`hint_readable`](Self::hint_readable).
    ///
    /// # Errors
    /// Only when the socket itself is unusable.
    pub fn recv(
        &mut self,
        buffers: &mut RecvBuffers,
        mut handle: impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.recv_for(buffers, &mut handle)
    }

    /// Like [`recv`](Self::recv), but a lane whose last datagram was large is asked for one train, which is received
    /// into memory that `receiver` lends, if it does.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_for(&mut self, buffers: &mut RecvBuffers, receiver: &mut impl Receiver) -> io::Result<usize> {
        let (mut plan, mut later) = self.lanes_to_read();
        let mut total = 0;
        while let Some(lane) = self.policy.next_of(&mut plan, &mut later) {
            total += self.recv_lane(lane, buffers, receiver)?.datagrams;
        }
        self.policy.hint(later.0);
        if self.draining > 0 {
            self.close_drained();
        }
        Ok(total)
    }

    /// Like [`recv`](Self::recv), on all lanes.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_all(
        &mut self,
        buffers: &mut RecvBuffers,
        handle: impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<usize> {
        self.policy.hint(u64::MAX);
        self.recv(buffers, handle)
    }

    /// Like [`recv`](Self::recv), but of the first lane that has something, and leaves the datagrams in
    /// `buffers` for whoever gets those: [`RecvBuffers::deliver`]. Returns how many.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    pub fn recv_held(&mut self, buffers: &mut RecvBuffers) -> io::Result<usize> {
        buffers.filled = 0;
        let (mut plan, mut later) = self.lanes_to_read();
        while let Some(lane) = self.policy.next_of(&mut plan, &mut later) {
            let received = self.recv_lane(lane, buffers, &mut |_: &DatagramMeta, _: &mut [u8]| {})?;
            if received.buffers > 0 {
                buffers.filled = received.buffers;
                // The others' turn is next.
                self.policy.hint(plan.0 | later.0);
                return Ok(received.datagrams);
            }
        }
        if self.draining > 0 {
            self.close_drained();
        }
        Ok(0)
    }

    /// What to read, and what only once the main lane has been found empty.
    fn lanes_to_read(&mut self) -> (Plan, Plan) {
        let mut plan = match self.policy.plan(self.lanes.len()) {
            Some(plan) => plan,
            None => self.look(),
        };
        if self.draining > 0 {
            plan.0 |= self.draining_lanes();
        }
        if !self.policy.is_main_first() {
            return (plan, Plan(0));
        }
        // A draining lane has what came before that.
        let first = self.draining_lanes() | 1;
        (Plan(first), Plan(plan.0 & !first))
    }

    /// Asks which lanes have something; they are to be read, all of them where the system does not say.
    fn look(&mut self) -> Plan {
        self.counters.recv_calls += 1;
        let readable =
            wait::readable_now(self.raw_fds()).unwrap_or(u64::MAX >> (MAX_LANES - self.lanes.len()));
        self.counters.recv_would_block += u64::from(readable == 0);
        let empty = self.lanes.iter_mut().enumerate().filter(|(index, _)| readable >> index & 1 == 0);
        empty.for_each(|(_, lane)| lane.found_empty());
        self.policy.looked(readable)
    }

    /// Makes the next [`recv`](Self::recv) poll exactly the lanes in `readable`: bit i stands for the
    /// i-th of [`raw_fds`](Self::raw_fds), as in [`Wake::readable`](crate::Wake::readable). After one was connected the
    /// main one goes before them, until it has been found empty.
    pub fn hint_readable(&mut self, readable: u64) {
        self.policy.hint(readable);
    }

    /// Receives on lane `index`, where the receiver wants it.
    fn recv_lane<R: Receiver>(
        &mut self,
        index: usize,
        buffers: &mut RecvBuffers,
        receiver: &mut R,
    ) -> io::Result<Received> {
        let can_land = cfg!(target_os = "linux") && self.batched && buffers.has_stage();
        let source = self.lanes[index].large_from.filter(|_| can_land);
        if let Some(mut lent) = source.and_then(|source| receiver.lend(&source)) {
            let received = R::landing(&mut lent).map(|mut landing| {
                let handle = &mut |meta: &_, datagram: &mut _| receiver.handle(meta, datagram);
                self.recv_into(index, buffers, Some(&mut landing), handle)
            });
            receiver.take_back(lent);
            if let Some(received) = received {
                return received;
            }
        }
        self.recv_into(index, buffers, None, &mut |meta, datagram| receiver.handle(meta, datagram))
    }

    fn recv_into(
        &mut self,
        index: usize,
        buffers: &mut RecvBuffers,
        mut landing: Option<&mut Landing<'_>>,
        handle: &mut impl FnMut(&DatagramMeta, &mut [u8]),
    ) -> io::Result<Received> {
        let asked = if landing.is_some() { 1 } else { self.lanes[index].ask.min(buffers.count()) };
        let got = self.fill(index, buffers, asked, landing.as_deref_mut())?;
        self.lanes[index].adapt(asked, got, buffers.most_to_ask(got));
        if landing.is_some() {
            self.lanes[index].ask = 1;
        }
        if let Some(at) = self.lanes[index].at {
            buffers.slots[..got].iter_mut().for_each(|slot| slot.at = Some(at));
        }
        if got > 0 {
            let last = &buffers.slots[got - 1];
            self.lanes[index].large_from = last.is_large().then_some(last.from);
        }
        self.policy.polled(index, got, got == 0 || self.batched && got < asked);
        let mark = buffers.slots[got.saturating_sub(1)].ecn;
        let trains = self.lanes[index].wants_trains(got, buffers.slots[0].len, mark);
        if trains != self.lanes[index].trains {
            self.ask_for_trains(index, trains);
        }
        let mut datagrams = 0;
        for buffer in 0..got {
            let delivered = match &mut landing {
                Some(landing) => buffers.deliver_landed(landing, handle),
                None => buffers.deliver_one(buffer, handle),
            };
            self.counters.recv_landed += if landing.is_some() { delivered.datagrams as u64 } else { 0 };
            datagrams += delivered.datagrams;
            self.counters.recv_bytes += delivered.bytes as u64;
            self.counters.recv_trains += u64::from(delivered.datagrams > 1);
            self.counters.recv_truncated += u64::from(delivered.truncated);
        }
        self.counters.recv_datagrams += datagrams as u64;
        if let Some(calls) = &mut self.lanes[index].draining {
            *calls = if got == 0 { MAX_DRAIN_CALLS } else { *calls + 1 };
        }
        Ok(Received { buffers: got, datagrams })
    }

    /// One successful or empty receive call on lane `index`; returns the buffers filled.
    fn fill(
        &mut self,
        index: usize,
        buffers: &mut RecvBuffers,
        mut asked: usize,
        mut landing: Option<&mut Landing<'_>>,
    ) -> io::Result<usize> {
        for _ in 0..MAX_TRIES {
            self.counters.recv_calls += 1;
            match self.receive(index, buffers, asked, landing.as_deref_mut()) {
                Ok(got) => return Ok(got),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.counters.recv_would_block += 1;
                    return Ok(0);
                }
                Err(error)
                    if self.lanes[index].may_be_pending(&error)
                        || DropKind::of(&error) == DropKind::NoBuffers =>
                {
                    self.counters.recv_errors += 1;
                    self.note_refusal(index, &error);
                }
                // Of one datagram another call brings all that this one does.
                Err(error) if asked > 1 => {
                    self.warn_of_missing_call("recvmmsg", &error);
                    buffers.only_one();
                    asked = 1;
                }
                Err(error) if is_of_the_call(&error) => return Err(error),
                Err(error) => {
                    self.counters.recv_errors += 1;
                    self.warn_of_failing_receive(&error);
                }
            }
        }
        Ok(0)
    }

    #[cfg_attr(not(target_os = "linux"), expect(unused_variables))]
    fn receive(
        &self,
        index: usize,
        buffers: &mut RecvBuffers,
        asked: usize,
        landing: Option<&mut Landing<'_>>,
    ) -> io::Result<usize> {
        let lane = &self.lanes[index];
        #[cfg(target_os = "linux")]
        if self.batched {
            use crate::mmsg;
            use denrei_wire::Ecn;
            use std::os::fd::AsFd;
            let socket = lane.socket.as_fd();
            return match (landing, lane.known()) {
                (Some(landing), _) => mmsg::receive_landing(socket, buffers, landing, lane.only_source()),
                (None, Some((from, mark))) => {
                    let mark = if self.granted.ecn { mark } else { Ecn::NotEct };
                    mmsg::receive_bytes(socket, buffers, from, mark)
                }
                (None, None) => mmsg::receive(socket, buffers, asked, lane.only_source()),
            };
        }
        plain::receive(&lane.socket, buffers)
    }

    /// Switches `UDP_GRO` on a lane, and on a connected one the reading of ECN marks. A train that
    /// comes between the call that found the lane idle and the switch to "off" arrives as one
    /// datagram, which its checksum does not survive: a lost train, in a window of half a microsecond.
    #[cfg(target_os = "linux")]
    pub(crate) fn ask_for_trains(&mut self, index: usize, on: bool) {
        use std::os::fd::AsFd;
        let lane = &mut self.lanes[index];
        // Where it is not to be had, the note alone keeps this from being tried for each datagram.
        lane.trains = on;
        if self.granted.gro {
            let _ = crate::options::set(lane.socket.as_fd(), libc::SOL_UDP, libc::UDP_GRO, on.into());
            self.counters.gro_switches += 1;
        }
        if self.granted.ecn && lane.peer.is_some() {
            crate::open::ask_for_marks(lane.socket.as_fd(), self.local.is_ipv6(), on);
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn ask_for_trains(&mut self, index: usize, on: bool) {
        self.lanes[index].trains = on;
    }

    fn draining_lanes(&self) -> u64 {
        self.lanes
            .iter()
            .enumerate()
            .filter(|(_, lane)| lane.draining.is_some())
            .fold(0, |set, (i, _)| set | 1 << i)
    }

    /// Closes the draining lanes that are empty, or have had their time.
    fn close_drained(&mut self) {
        for index in (1..self.lanes.len()).rev() {
            if self.lanes[index].draining.is_some_and(|calls| calls >= MAX_DRAIN_CALLS) {
                self.close_lane(index);
            }
        }
    }
}
