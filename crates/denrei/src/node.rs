//! The Node: what an application holds. Its verbs are in rooms of their own.

mod flow;
mod goodbye;
mod peers;
mod recv;
mod send;

pub(crate) use recv::{failure, unstarted};

pub use recv::Incoming;

use crate::config::{Config, Drive};
use crate::core::{Clock, Core};
use crate::driver;
use crate::environment;
use crate::error::BindError;
use crate::host::HostShare;
use crate::io::Io;
use crate::pipeline::Pipeline;
use crate::shards::Shards;
use crate::status::{About, StatusServer};
use crate::wait::Shared;
use denrei_io::{Capabilities, IoCounters, Maker, UdpSocket, Waiter};
use denrei_proto::seal::{BeaconKey, SECRET_BYTES, Seed};
use denrei_proto::{Endpoint, EndpointCounters, PeerId};
use denrei_wire::{Incarnation, Instant};
use parking_lot::{Mutex, MutexGuard};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, current, panicking};
use zeroize::Zeroizing;

/// One UDP port, and all the peers that are spoken to through it. Cheap to clone; every clone is
/// the same Node. When the last is dropped, peers are told that it is gone; what was not
/// acknowledged by then is lost, so [`flush`](Self::flush) before, or [`close`](Self::close) and wait for the
/// [`PeerLost`](crate::Event::PeerLost) that says `Closed`. That a group has ended, or was left, is
/// acknowledged first, for which it waits half a second at most.
///
/// A Node is the process's that made it. A child that was forked must not call it, and makes one of its own;
/// dropping it there, or a group of its, does nothing.
#[derive(Clone)]
pub struct Node {
    handle: Arc<Handle>,
}

/// What ends with the last clone.
struct Handle {
    shards: Shards,
    local: SocketAddr,
    incarnation: Incarnation,
    beacon_key: Option<BeaconKey>,
    thread: Mutex<Option<JoinHandle<()>>>,
    pipeline: Mutex<Option<Pipeline>>,
    host: Mutex<Option<HostShare>>,
    status: Mutex<Option<StatusServer>>,
    maker: Maker,
}

impl Node {
    /// Opens a UDP port and, if so configured, starts the thread that drives it. Secrets that
    /// `config` leaves open are taken from the [`environment`]; without a cluster key, and not told
    /// [`insecure`](Config::insecure), only loopback addresses are bound. IPv4 in the form of IPv6, here and
    /// wherever a Node is named, is that IPv4 address.
    ///
    /// Bound to all addresses of its host (`0.0.0.0`, `[::]`), it is reached at each of them, by one peer at one of
    /// them: who connects to a second one is answered in a new session, and loses the first. Where the system does
    /// not tell which was asked (not Linux, or the plain backend), it is reached at the one alone that the system
    /// chooses for the way back: bind to the address that peers connect to.
    ///
    /// # Errors
    /// A setting that cannot work, or an address that cannot be bound; both say what to change.
    pub fn bind(addr: impl ToSocketAddrs, config: Config) -> Result<Self, BindError> {
        let config = environment::complete(config, std::env::var_os)?;
        config.validate()?;
        let addr = addr.to_socket_addrs().map_err(BindError::Resolve)?.next().ok_or(BindError::NoAddress)?;
        check_one_host(addr)?;
        config.check_exposure(addr)?;
        let socket =
            UdpSocket::bind(addr, &config.socket).map_err(|source| BindError::Socket { addr, source })?;
        for warning in socket.warnings() {
            tracing::warn!("{warning}");
        }
        let mut seed = Zeroizing::new([0; SECRET_BYTES]);
        getrandom::fill(&mut *seed).map_err(|error| system(std::io::Error::other(error.to_string())))?;
        let local = socket.local_addr();
        let shards = make_shards(&config, &seed, socket).map_err(system)?;
        let incarnation = shards.first().core.lock().endpoint.incarnation();
        let node = Self {
            handle: Arc::new(Handle {
                shards,
                local,
                incarnation,
                beacon_key: config.key().map(BeaconKey::new),
                thread: Mutex::default(),
                pipeline: Mutex::default(),
                host: Mutex::default(),
                status: Mutex::default(),
                maker: Maker::this_process(),
            }),
        };
        match config.drive {
            Drive::Inline => {}
            Drive::Thread => node.start_thread().map_err(system)?,
            Drive::Pipelined => {
                let started = Pipeline::start(&node.handle.shards, &config.pipeline).map_err(system)?;
                *node.handle.pipeline.lock() = Some(started);
            }
        }
        if let Some(directory) = &config.host_directory {
            let capacity = Some(config.host_bytes_per_s).filter(|bytes| *bytes > 0);
            let started = HostShare::start(&node.handle.shards, directory, capacity)?;
            *node.handle.host.lock() = Some(started);
        }
        if let Some(directory) = &config.status_directory {
            let about = About { address: local, incarnation, drive: config.drive, sealed: config.has_key() };
            *node.handle.status.lock() = Some(StatusServer::start(directory, about, &node.handle.shards)?);
        }
        Ok(node)
    }

    /// The first shard, in most Nodes the only one: the socket's, and that of groups.
    pub(crate) fn shared(&self) -> &Shared {
        self.handle.shards.first()
    }

    pub(crate) fn shards(&self) -> &Shards {
        &self.handle.shards
    }

    pub(crate) fn start_thread(&self) -> std::io::Result<()> {
        let mut thread = self.handle.thread.lock();
        let shared = self.handle.shards.first();
        if thread.is_some() || shared.is_pipelined() {
            return Ok(());
        }
        // Before it runs: nobody else goes to sleep on the sockets from here on.
        shared.set_driver(true);
        let started = driver::start(Arc::clone(shared));
        if started.is_err() {
            shared.set_driver(false);
        }
        *thread = Some(started?);
        Ok(())
    }

    /// The address bound.
    pub fn local_addr(&self) -> SocketAddr {
        self.handle.local
    }

    /// Which start of this Node this is: peers see another after a restart.
    pub fn incarnation(&self) -> Incarnation {
        self.handle.incarnation
    }

    /// What shows those who have the same cluster key that a beacon is of their cluster: for programs that
    /// announce a Node outside of its sessions. `None`: this Node has no key.
    pub fn beacon_key(&self) -> Option<&BeaconKey> {
        self.handle.beacon_key.as_ref()
    }

    /// What happened on this port that belongs to no peer.
    pub fn counters(&self) -> EndpointCounters {
        let counters = self.shards().all().map(|shard| shard.core.lock().endpoint.counters());
        counters.reduce(|sum, more| sum + more).expect("a Node has a shard")
    }

    /// System calls, datagrams and bytes of the socket.
    pub fn io_counters(&self) -> IoCounters {
        let own = self.shared().with_io(|io| *io.socket.counters());
        self.shared().sender().map_or(own, |sender| own + *sender.lock().counters())
    }

    /// What the socket can do here.
    pub fn capabilities(&self) -> Capabilities {
        self.shared().with_io(|io| io.socket.capabilities())
    }

    /// What the user should know and can change about this host, one sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.shared().with_io(|io| io.socket.warnings().to_vec());
        if let Some(sender) = self.shared().sender() {
            warnings.extend_from_slice(sender.lock().warnings());
        }
        warnings
    }

    // ---- plumbing ----

    /// Whether this process made it, and has not been forked from the one that did.
    pub(crate) fn is_own(&self) -> bool {
        self.handle.maker.is_this_process()
    }

    /// Whether the calling thread is one that drives it, which cannot wait for anything of its.
    pub(crate) fn runs_this_thread(&self) -> bool {
        self.handle.runs_this_thread()
    }

    /// Works with the first shard's core, which has the groups.
    pub(crate) fn with_core<T>(&self, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let mut core = self.shared().core.lock();
        let now = core.now();
        act(&mut core, now)
    }

    /// Works with the groups, sends what came of it, and tells those who wait for that.
    pub(crate) fn act_on_groups<T>(&self, act: impl FnOnce(&mut Endpoint, Instant) -> T) -> T {
        let shard = self.shared();
        act_and_tell(shard, shard.core.lock(), |core, now| act(&mut core.endpoint, now))
    }

    /// The same with the core of a peer.
    fn act<T>(&self, peer: PeerId, act: impl FnOnce(&mut Core, Instant) -> T) -> T {
        let (shard, core) = self.shards().enter_of(peer);
        act_and_tell(shard, core, act)
    }
}

/// Those who wait are not told only once an answer comes: whoever would give it may be silent.
fn act_and_tell<T>(
    shard: &Shared,
    mut core: MutexGuard<'_, Core>,
    act: impl FnOnce(&mut Core, Instant) -> T,
) -> T {
    let now = core.now();
    let value = act(&mut core, now);
    shard.notify(&mut core);
    drop(core);
    shard.kick();
    value
}

impl Handle {
    /// In a child that was forked: everything stays as it is, to the end of the process. A thread of the parent's
    /// may have been at work on it.
    fn abandon(&mut self) {
        self.shards.all().for_each(|shard| std::mem::forget(Arc::clone(shard)));
        std::mem::forget((self.thread.get_mut().take(), self.pipeline.get_mut().take()));
        std::mem::forget((self.host.get_mut().take(), self.status.get_mut().take()));
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.maker.is_this_process() {
            return self.abandon();
        }
        // Whatever of the application's panics, the threads end and the port is free.
        let mut panic = catch_unwind(AssertUnwindSafe(|| self.have_group_records_heard()));
        for shard in self.shards.all() {
            panic = panic.and(goodbye::say(&mut shard.core.lock()));
        }
        if let Some(pipeline) = self.pipeline.lock().take() {
            self.shards.all().for_each(|shard| shard.kick());
            pipeline.stop();
        }
        let shared = self.shards.first();
        shared.stopping.store(true, Ordering::Release);
        shared.wake();
        if let Some(host) = self.host.lock().take() {
            host.stop();
        }
        if let Some(status) = self.status.lock().take() {
            status.stop();
        }
        // The last clone may have gone with a task that this very thread woke: then it ends by itself.
        let thread = self.thread.lock().take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != current().id()) {
            // The thread has nothing that could panic but a broken invariant, which it has reported.
            let _ = thread.join();
        }
        shared.hot.store(false, Ordering::SeqCst);
        shared.kick();
        if let Err(panic) = panic
            && !panicking()
        {
            resume_unwind(panic);
        }
    }
}

/// The shards that `config` asks for, around one socket.
pub(crate) fn make_shards(
    config: &Config,
    seed: &[u8; SECRET_BYTES],
    socket: UdpSocket,
) -> std::io::Result<Shards> {
    let buffer = socket.capabilities().recv_buffer_bytes as u64 / config.shards as u64;
    let protocol = Arc::new(config.shard_protocol());
    let clock = Clock::new();
    let waiter = Arc::new(Waiter::new()?);
    let io = Arc::new(Mutex::new(Io::new(socket)));
    Ok(Shards::new(config.shards, |place, lobby| {
        let mut core = Core::new(place, Arc::clone(&protocol), Seed::copy_of(seed), clock);
        core.endpoint.set_receive_buffer(buffer);
        Shared::new(core, Arc::clone(&io), Arc::clone(&waiter), lobby, config.spin)
    }))
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("local", &self.handle.local).finish_non_exhaustive()
    }
}

/// Refuses what is no address of one host: the system binds that all the same, and what is sent from there no peer
/// answers.
fn check_one_host(addr: SocketAddr) -> Result<(), BindError> {
    let ip = addr.ip().to_canonical();
    if !ip.is_multicast() && ip != Ipv4Addr::BROADCAST {
        return Ok(());
    }
    Err(BindError::Socket { addr, source: ErrorKind::AddrNotAvailable.into() })
}

fn system(source: std::io::Error) -> BindError {
    BindError::System { source }
}
