//! The thread of a Node that answers those who ask for its status.
//!
//! Inputs → outputs: connections to the Node's socket → a line of JSON each, and the end. It sleeps in between, and nobody
//! who reads slowly, or not at all, is waited for any longer than [`PATIENCE`], nor when the Node ends.

use super::reader::remove_dead;
use super::{EXTENSION, NodeStatus, hexadecimal, name_of, own_prefix};
use crate::config::Drive;
use crate::error::BindError;
use crate::host::make_directory;
use crate::shards::Shards;
use crate::wait::Shared;
use denrei_io::{Waiter, Waker};
use denrei_proto::EndpointCounters;
use denrei_wire::Incarnation;
use std::fs::Permissions;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Who has not read the answer after so long does without the rest.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where the system lets nobody be answered, out of descriptors, that is tried again after so long.
const PAUSE: Duration = Duration::from_millis(100);
/// Of a command so many characters are told.
const MOST_COMMAND: usize = 80;

/// What does not change about a Node.
pub(crate) struct About {
    pub address: SocketAddr,
    pub incarnation: Incarnation,
    pub drive: Drive,
    pub sealed: bool,
}

/// The thread, and its socket.
pub(crate) struct StatusServer {
    thread: JoinHandle<()>,
    waker: Waker,
}

impl StatusServer {
    /// Listens at a socket of its own in `directory`, which is made if need be.
    pub fn start(directory: &Path, about: About, shards: &Shards) -> Result<Self, BindError> {
        let wrong = |source| BindError::StatusDirectory { directory: directory.to_owned(), source };
        let socket = OwnSocket::bind(directory, about.incarnation).map_err(wrong)?;
        // Those of processes that were killed would be more and more.
        remove_dead(directory);
        let waiter = Waiter::new().map_err(wrong)?;
        let waker = waiter.waker();
        let shards = shards.all().cloned().collect();
        let server = Server { socket, waiter, shards, about, since: Instant::now() };
        let run = move || server.run();
        let thread = Builder::new().name("denrei-status".into()).spawn(run).map_err(wrong)?;
        Ok(Self { thread, waker })
    }

    /// Ends; [`Shared::stopping`] has been set.
    pub fn stop(self) {
        self.waker.wake();
        // It has nothing that could panic but a broken invariant, which it has reported.
        let _ = self.thread.join();
    }
}

struct Server {
    socket: OwnSocket,
    waiter: Waiter,
    shards: Vec<Arc<Shared>>,
    about: About,
    since: Instant,
}

impl Server {
    fn run(&self) {
        let listener = &self.socket.listener;
        while !self.is_stopping() {
            let answered = match listener.accept() {
                Ok((stream, _)) => self.answer(&stream),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.waiter.wait([listener.as_raw_fd()], None, None).map(drop)
                }
                Err(error) => Err(error),
            };
            if answered.is_err() {
                // A wake ends this as well; that there is none makes it no worse.
                let _ = self.waiter.wait([], None, Some(PAUSE));
            }
        }
    }

    fn is_stopping(&self) -> bool {
        self.shards[0].stopping.load(Ordering::Acquire)
    }

    /// Writes the status to whoever has asked, as far as it is read.
    fn answer(&self, mut stream: &UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        // A Node that begins looks only whether somebody listens, and has gone: for it the sessions are not gone through.
        if stream.write(&[]).is_err() {
            return Ok(());
        }
        let mut line = serde_json::to_vec(&self.status())?;
        line.push(b'\n');
        let (until, mut rest) = (Instant::now() + PATIENCE, &line[..]);
        while !rest.is_empty() && !self.is_stopping() {
            // Who has gone away meanwhile ends nothing but this: the standard library sends without SIGPIPE.
            match stream.write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    self.waiter.wait([], Some(stream.as_raw_fd()), Some(left))?;
                }
                // It asked, and went away.
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn status(&self) -> NodeStatus {
        let mut counters = EndpointCounters::default();
        let mut status = NodeStatus {
            process: std::process::id(),
            command: command(),
            address: self.about.address,
            incarnation: hexadecimal(self.about.incarnation.0),
            uptime_ms: self.since.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            drive: name_of(self.about.drive),
            sealed: self.about.sealed,
            counters,
            peers: Vec::new(),
            groups: Vec::new(),
            memberships: Vec::new(),
        };
        for shard in &self.shards {
            // What is made of it is made without the lock.
            let (counted, flows, groups, memberships) = {
                let core = shard.core.lock();
                let endpoint = &core.endpoint;
                let groups: Vec<_> = endpoint.group_statuses().collect();
                let memberships: Vec<_> = endpoint.memberships().collect();
                (endpoint.counters(), core.flows(), groups, memberships)
            };
            counters = counters + counted;
            status.peers.extend(flows.into_iter().map(Into::into));
            status.groups.extend(groups.into_iter().map(Into::into));
            status.memberships.extend(memberships.into_iter().map(Into::into));
        }
        NodeStatus { counters, ..status }
    }
}

/// The name of the program, without its folder, and its arguments.
fn command() -> String {
    let mut words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().map(|name| name.to_string_lossy().into_owned());
    let all: Vec<_> = name.into_iter().chain(words).collect();
    all.join(" ").chars().take(MOST_COMMAND).collect()
}

/// The socket of this Node; gone when this is dropped.
struct OwnSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl OwnSocket {
    fn bind(directory: &Path, incarnation: Incarnation) -> io::Result<Self> {
        make_directory(directory)?;
        let name = format!("{}{}", own_prefix(), hexadecimal(incarnation.0));
        let path = directory.join(name).with_extension(EXTENSION);
        // Nobody takes it for a dead Node's before it is listened at.
        let unborn = path.with_extension("new");
        // It is the longer name, and one that is too long for a socket is given away all the same.
        UnixAddr::from_pathname(&path)?;
        let listener = UnixListener::bind(&unborn)?;
        // The directory may have been there before, for all to enter.
        let born = std::fs::set_permissions(&unborn, Permissions::from_mode(0o600))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| std::fs::rename(&unborn, &path));
        // The process may change its directory meanwhile.
        let path = std::path::absolute(path)?;
        born.map(|()| Self { listener, path }).inspect_err(|_| drop(std::fs::remove_file(&unborn)))
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        // Else whoever finds it does.
        let _ = std::fs::remove_file(&self.path);
    }
}
