//! The sender's side: what is written to the descriptor goes to the group.

use super::discovery::{self, Hosts};
use super::our_end::OurEnd;
use crate::errno::Refusal;
use denrei::{Bytes, Group, GroupError, GroupEvent, GroupOptions, Node, OpenGroupError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{ErrorKind, Read};
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long `connect` waits for the members, as long as TCP's FIRST tries take to fail on a LAN.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long `close` waits for all members to have everything.
const LINGER: Duration = Duration::from_secs(30);
/// Bytes of the stream that make one message: what a pair of sockets holds by default, about.
const CHUNK_BYTES: usize = 128 * 1024;
/// How often a wait looks whether a member is gone.
const SLICE_MS: u16 = 100;
/// How long `close` waits for the members to be told that it waits for them no longer: its process may end then.
const TELLING: Duration = Duration::from_secs(1);

/// A connection to a group.
pub(super) struct Sender {
    outcome: mpsc::Receiver<Result<(), Refusal>>,
    give_up: Arc<AtomicBool>,
}

impl Sender {
    /// Finds the members, opens the group, and starts copying what comes from `inner`.
    pub fn connect(
        node: &Node,
        address: SocketAddrV4,
        ids: &[u32],
        known: Hosts,
        inner: OurEnd,
    ) -> Result<Self, Refusal> {
        let began = Instant::now();
        let hosts = discovery::find(address, node.local_addr().ip(), ids, known, began + CONNECT_LIMIT)?;
        let open_timeout =
            CONNECT_LIMIT.saturating_sub(began.elapsed()).max(Duration::from_millis(u64::from(SLICE_MS)));
        // M2: who is a member does not change while a connection lasts.
        let options = GroupOptions { open_timeout, admit: false, ..GroupOptions::default() };
        let members: Vec<_> = ids.iter().filter_map(|id| hosts.get(id)).copied().collect();
        let group = node.open_group(address.into(), &members, options).map_err(|error| {
            let errno = match &error {
                OpenGroupError::Group(GroupError::OpenFailed { .. }) => libc::ETIMEDOUT,
                OpenGroupError::Node(_) => libc::EIO,
                OpenGroupError::Socket { source, .. } => source.raw_os_error().unwrap_or(libc::ENETUNREACH),
                _ => libc::EINVAL,
            };
            Refusal::new(errno, error)
        })?;
        inner.set_nonblocking(true)?;
        // A byte that is sent as urgent would never be read here.
        socket2::SockRef::from(&*inner).set_out_of_band_inline(true)?;
        let (tell, outcome) = mpsc::channel();
        let give_up = Arc::new(AtomicBool::new(false));
        let pump = Pump { group, inner, sent: 0, give_up: Arc::clone(&give_up) };
        std::thread::Builder::new().name("mtcp-send".into()).spawn(move || {
            // Nobody asks if the descriptor was closed by other means.
            let _ = tell.send(pump.run());
        })?;
        Ok(Self { outcome, give_up })
    }

    /// Waits until all members have everything. The descriptor is closed.
    pub fn finish(self) -> Result<(), Refusal> {
        self.finish_within(LINGER)
    }

    fn finish_within(self, limit: Duration) -> Result<(), Refusal> {
        let outcome = self.outcome.recv_timeout(limit);
        self.give_up.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|_| match self.outcome.recv_timeout(TELLING) {
            // The last came meanwhile.
            Ok(Ok(())) => Ok(()),
            _ => {
                Err(Refusal::new(libc::ETIMEDOUT, format!("not all members have everything after {limit:?}")))
            }
        })
    }
}

/// Copies a stream to a group, in a thread of its own.
struct Pump {
    group: Group,
    inner: OurEnd,
    /// Messages sent.
    sent: u64,
    give_up: Arc<AtomicBool>,
}

impl Pump {
    /// Until the stream ends, or breaks: then the members that are left see a reset, not an end.
    fn run(mut self) -> Result<(), Refusal> {
        let outcome = self.copy();
        if outcome.is_err() {
            for member in self.group.status().iter().flat_map(|status| &status.members) {
                // One that is gone already needs no word.
                let _ = self.group.remove_member(member.member);
            }
        }
        outcome
    }

    fn copy(&mut self) -> Result<(), Refusal> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            self.look_for_losses(false)?;
            match (&*self.inner).read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => self.deliver(Bytes::copy_from_slice(&buffer[..count]))?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait_for_data()?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Closed while a byte of ours was under way: there is nothing more to send.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error.into()),
            }
        }
        let closed = self.close();
        self.look_for_losses(true)?;
        if closed { Ok(()) } else { Err(Refusal::new(libc::ETIMEDOUT, "not all members have everything")) }
    }

    /// Ends the group in order; whether all members have answered before nobody waits for them any more.
    fn close(&self) -> bool {
        let until = Instant::now() + LINGER;
        while !self.group.close(Duration::from_millis(SLICE_MS.into())) {
            if self.give_up.load(Ordering::Relaxed) || Instant::now() >= until {
                return false;
            }
        }
        true
    }

    fn wait_for_data(&self) -> Result<(), Refusal> {
        let mut fds = [PollFd::new(self.inner.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::from(SLICE_MS)) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    fn deliver(&mut self, message: Bytes) -> Result<(), Refusal> {
        loop {
            match self.group.send_timeout(message.clone(), Duration::from_millis(SLICE_MS.into())) {
                Ok(_) => {
                    self.sent += 1;
                    return Ok(());
                }
                Err(GroupError::WouldBlock { .. }) if !self.give_up.load(Ordering::Relaxed) => {
                    self.look_for_losses(false)?;
                }
                Err(error) => return Err(Refusal::new(libc::ECONNRESET, error)),
            }
        }
    }

    /// A member that is lost ends the connection, unless it has everything there will be.
    fn look_for_losses(&self, at_end: bool) -> Result<(), Refusal> {
        while let Some(event) = self.group.try_event() {
            let GroupEvent::Departed { addr, why, last_acknowledged, .. } = event else { continue };
            let acknowledged = last_acknowledged.map_or(0, |number| number + 1);
            if !(at_end && acknowledged == self.sent) {
                return Err(Refusal::new(libc::ECONNRESET, format!("the member at {addr} is gone: {why}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use denrei::{Config, Drive};
    use std::io::Write;

    const SOON: Duration = Duration::from_secs(20);

    fn node() -> Node {
        Node::bind("127.0.0.1:0", Config { drive: Drive::Thread, ..Config::default() }).unwrap()
    }

    /// Its process may end when `close` returns: the members would wait for it until it counts as lost.
    #[test]
    fn members_are_told_before_close_has_waited_for_them_in_vain() {
        // More than a member takes that does not read, and less than the group keeps beside.
        const BYTES: usize = 6 << 20;
        let address = SocketAddrV4::new([239, 255, 78, 141].into(), 7461);
        let (opener, member) = (node(), node());
        let listener = member.join_group(address.into()).unwrap();
        let (mut outer, inner) = OurEnd::pair().unwrap();
        let known = Hosts::from([(1, member.local_addr())]);
        let sender = Sender::connect(&opener, address, &[1], known, inner).unwrap();
        let membership = listener.next(SOON).unwrap().expect("it is a member");
        outer.write_all(&vec![7; BYTES]).unwrap();
        drop(outer);
        sender.finish_within(Duration::from_secs(1)).expect_err("nobody reads");
        let until = Instant::now() + Duration::from_secs(3);
        while membership.end().is_none() {
            assert!(Instant::now() < until, "it waits for what does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
