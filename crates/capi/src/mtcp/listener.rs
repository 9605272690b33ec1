//! The member's side: what comes from the group can be read from a descriptor.
//!
//! Inputs → outputs: memberships → connected descriptors, handed over through the listening one,
//! which so is readable for `poll` when `accept` would not wait.

use super::discovery::Responder;
use super::linger::{LIMIT, Lingering};
use super::our_end::OurEnd;
use crate::errno::Refusal;
use denrei::{GroupListener, Membership, MembershipEnd, Node};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a wait looks whether the descriptor was closed.
const SLICE: Duration = Duration::from_millis(100);
/// The same where something is about to happen.
const SHORT_SLICE: Duration = Duration::from_millis(2);

/// A member that waits for senders.
pub(super) struct Listener {
    stop: Arc<AtomicBool>,
    outer: RawFd,
}

impl Listener {
    /// Joins the group's address, and hands what is accepted over through `inner`.
    pub fn start(
        node: &Node,
        group: SocketAddrV4,
        id: u32,
        inner: OurEnd,
        outer: RawFd,
    ) -> Result<Self, Refusal> {
        let local = node.local_addr();
        let listener =
            node.join_group(group.into()).map_err(|error| Refusal::new(libc::EADDRNOTAVAIL, error))?;
        let responder = Responder::new(group, local, id)?;
        let stop = Arc::new(AtomicBool::new(false));
        inner.set_nonblocking(true)?;
        let acceptor = Acceptor { node: node.clone(), listener, inner, stop: Arc::clone(&stop) };
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new().name("mtcp-find".into()).spawn(move || responder.run(&stopped))?;
        std::thread::Builder::new().name("mtcp-accept".into()).spawn(move || acceptor.run())?;
        Ok(Self { stop, outer })
    }

    /// The descriptor that connections come through.
    pub fn outer(&self) -> RawFd {
        self.outer
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Accepts memberships, in a thread of its own.
struct Acceptor {
    node: Node,
    listener: GroupListener,
    inner: OurEnd,
    stop: Arc<AtomicBool>,
}

impl Acceptor {
    fn run(self) {
        while !self.stop.load(Ordering::Relaxed) && !is_hung_up(self.inner.as_fd()) {
            if let Some(membership) = self.listener.accept(SLICE) {
                // If it fails, as when a backlog is full: the sender is told that this member left.
                let _ = self.hand_over(membership);
            }
        }
        // The descriptor may have been closed by other means.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Starts copying a membership into one end of a pair, and hands out the other.
    fn hand_over(&self, membership: Membership) -> std::io::Result<()> {
        let (mut outer, inner) = OurEnd::pair()?;
        // A byte that stays unread until all has come: if our end is closed before, the kernel says
        // "connection reset" at the other.
        outer.write_all(&[0])?;
        outer.shutdown(Shutdown::Write)?;
        let sender = name_of(membership.opener());
        let node = self.node.clone();
        std::thread::Builder::new()
            .name("mtcp-recv".into())
            .spawn(move || copy(&node, &membership, inner))?;
        let descriptors = [outer.as_raw_fd()];
        let message = [IoSlice::new(&sender)];
        let rights = [ControlMessage::ScmRights(&descriptors)];
        sendmsg::<()>(
            self.inner.as_raw_fd(),
            &message,
            &rights,
            MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            None,
        )?;
        Ok(())
    }
}

/// Copies what comes from a group until it ends, or nobody reads it any more.
fn copy(node: &Node, membership: &Membership, inner: OurEnd) {
    loop {
        match membership.recv_timeout(SLICE) {
            Ok(Some(message)) => {
                if (&*inner).write_all(&message.data).is_err() {
                    return;
                }
            }
            Ok(None) if is_hung_up(inner.as_fd()) => return,
            Ok(None) => {}
            Err(MembershipEnd::Closed) => {
                let _lingering = Lingering::begin();
                // Nothing can be done if it fails: the other end then sees a reset.
                let _ = (&*inner).read(&mut [0]);
                drop(inner);
                // The sender ends the session when all have everything.
                let until = Instant::now() + LIMIT;
                while node.peer_at(membership.opener()).is_some() && Instant::now() < until {
                    std::thread::sleep(SHORT_SLICE);
                }
                return;
            }
            Err(_) => return,
        }
    }
}

/// An address as it travels through the listening descriptor.
fn name_of(address: SocketAddr) -> [u8; 6] {
    let ip = match address.ip().to_canonical() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    };
    let ([a, b, c, d], [e, f]) = (ip.octets(), address.port().to_be_bytes());
    [a, b, c, d, e, f]
}

/// What comes through a listening descriptor.
pub(super) struct Handed {
    pub connection: OwnedFd,
    pub sender: SocketAddrV4,
}

impl Handed {
    /// Waits as the descriptor does: not at all if it is non-blocking.
    pub fn take(listening: RawFd) -> Result<Self, Refusal> {
        let mut name = [0; 6];
        let mut room = nix::cmsg_space!([RawFd; 1]);
        let mut into = [IoSliceMut::new(&mut name)];
        let received = recvmsg::<()>(listening, &mut into, Some(&mut room), MsgFlags::MSG_CMSG_CLOEXEC)
            .map_err(std::io::Error::from)?;
        let mut descriptor = None;
        for control in received.cmsgs().map_err(std::io::Error::from)? {
            if let ControlMessageOwned::ScmRights(fds) = control {
                descriptor = fds.first().copied();
            }
        }
        let fd =
            descriptor.ok_or_else(|| Refusal::new(libc::EINVAL, "the socket does not listen any more"))?;
        // SAFETY: the kernel has just made it for us.
        let connection = unsafe { OwnedFd::from_raw_fd(fd) };
        // As after accept: closed on exec only if so wished.
        // SAFETY: a flag of a descriptor of ours; no memory is passed.
        unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
        let [a, b, c, d, e, f] = name;
        Ok(Self {
            connection,
            sender: SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([e, f])),
        })
    }
}

/// Whether the other end of a pair was closed.
fn is_hung_up(stream: BorrowedFd<'_>) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    matches!(poll(&mut fds, PollTimeout::ZERO), Ok(1))
}
