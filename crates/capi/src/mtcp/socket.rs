//! A descriptor in group mode, from `socket` to `close` (M8).
//!
//! Inputs → outputs: calls in the paper's order → a [`Sender`] or a [`Listener`]; calls out of order
//! → a refusal that says which is missing.

use super::discovery::Hosts;
use super::listener::{Handed, Listener};
use super::our_end::OurEnd;
use super::sender::Sender;
use crate::errno::Refusal;
use denrei::{BindError, Config, Drive, Maker, Node};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Names the address of this host that groups are spoken through: "192.0.2.7".
const INTERFACE: &str = "MTCP_INTERFACE";
/// Names ids and addresses, for networks that carry no multicast: "1=192.0.2.7:7500,2=192.0.2.8:7500".
const HOSTS: &str = "MTCP_HOSTS";
/// Settings of denrei's, as for denrei_config_set: "insecure=on,send_buffer_bytes=1MiB".
const SETTINGS: &str = "MTCP_SETTINGS";

/// What is known of a descriptor in this mode. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub(super) struct Socket {
    state: Arc<Mutex<State>>,
    maker: Maker,
}

enum State {
    Setup(Setup),
    Sending(Sender, Ends),
    Listening(Listener, Ends),
    Receiving(Ends),
    /// A call failed half way: only `close` is left.
    Broken,
}

/// What a socket's two ends are called, as far as they have addresses: the own one and the other.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    pub own: Option<SocketAddrV4>,
    pub peer: Option<SocketAddrV4>,
}

/// Before `connect` or `listen`.
#[derive(Default)]
struct Setup {
    ids: Vec<u32>,
    joined: Option<Ipv4Addr>,
    interface: Option<Ipv4Addr>,
    bound: Option<SocketAddrV4>,
    /// The other end of the descriptor.
    inner: Option<OurEnd>,
}

fn invalid(message: impl ToString) -> Refusal {
    Refusal::new(libc::EINVAL, message)
}

impl Socket {
    fn new(state: State) -> Self {
        Self { state: Arc::new(Mutex::new(state)), maker: Maker::this_process() }
    }

    fn try_state(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits for no thread of another process's: to a child it has what it had at the fork, for ever.
    fn state(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        if self.maker.is_this_process() {
            return Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.try_state().ok_or_else(|| self.refused_to_a_child(libc::EBUSY))
    }

    /// What only who made it can change: a child has neither our end nor the threads.
    fn own_state(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        match self.maker.is_this_process() {
            true => self.state(),
            false => Err(self.refused_to_a_child(libc::EINVAL)),
        }
    }

    fn refused_to_a_child(&self, errno: c_int) -> Refusal {
        let maker = self.maker;
        Refusal::new(errno, format!("the socket is {maker}'s, from which this one was forked: make one here"))
    }

    /// Puts one end of a pair in the place of a stream socket.
    pub fn adopt(fd: RawFd) -> Result<(), Refusal> {
        if table::is_in_mode(fd) {
            return Ok(());
        }
        check_replaceable(fd)?;
        let (outer, inner) = OurEnd::pair()?;
        // SAFETY: flags of a descriptor of the caller's are read; no memory is passed.
        let (flags, closing) = unsafe { (libc::fcntl(fd, libc::F_GETFL), libc::fcntl(fd, libc::F_GETFD)) };
        if flags < 0 || closing < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        outer.set_nonblocking(flags & libc::O_NONBLOCK != 0)?;
        let on_exec = if closing & libc::FD_CLOEXEC != 0 { libc::O_CLOEXEC } else { 0 };
        // SAFETY: what was at `fd` is the caller's, who wants it in this mode.
        if unsafe { libc::dup3(outer.as_raw_fd(), fd, on_exec) } < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        table::insert(fd, Self::new(State::Setup(Setup { inner: Some(inner), ..Setup::default() })))
    }

    fn set_up(&self, act: impl FnOnce(&mut Setup) -> Result<(), Refusal>) -> Result<(), Refusal> {
        match &mut *self.own_state()? {
            State::Setup(setup) => act(setup),
            _ => Err(Refusal::new(libc::EISCONN, "this belongs before connect and listen")),
        }
    }

    /// `setsockopt(SET_HOSTID)` with an `int`.
    pub fn set_host_id(&self, value: &[u8]) -> Result<(), Refusal> {
        let id = value.try_into().map(c_int::from_ne_bytes).map_err(|_| invalid("an id is an int"))?;
        let id = u32::try_from(id).map_err(|_| invalid("an id is not negative"))?;
        self.set_up(|setup| {
            if setup.ids.contains(&id) {
                return Err(invalid(format!("id {id} is a member already")));
            }
            setup.ids.push(id);
            Ok(())
        })
    }

    /// `setsockopt(JOIN)` with a `struct in_addr` or a `struct ip_mreq`.
    pub fn join(&self, value: &[u8]) -> Result<(), Refusal> {
        let address = |bytes: [u8; 4]| Ipv4Addr::from(bytes);
        let (group, interface) = match *value {
            [a, b, c, d] => (address([a, b, c, d]), None),
            [a, b, c, d, e, f, g, h] => (address([a, b, c, d]), Some(address([e, f, g, h]))),
            _ => return Err(invalid("JOIN takes a struct in_addr or a struct ip_mreq")),
        };
        if !group.is_multicast() {
            return Err(invalid(format!("{group} is not of class D: 224.0.0.0 to 239.255.255.255")));
        }
        self.set_up(|setup| {
            setup.joined = Some(group);
            setup.interface = interface.filter(|interface| !interface.is_unspecified());
            Ok(())
        })
    }

    pub fn bind(&self, group: SocketAddrV4) -> Result<(), Refusal> {
        self.set_up(|setup| match setup.joined {
            Some(joined) if joined == *group.ip() => {
                setup.bound = Some(group);
                Ok(())
            }
            _ => Err(Refusal::new(libc::EADDRNOTAVAIL, format!("setsockopt(JOIN) {} first", group.ip()))),
        })
    }

    pub fn connect(&self, group: SocketAddrV4) -> Result<(), Refusal> {
        let mut state = self.own_state()?;
        let State::Setup(setup) = &mut *state else {
            return Err(Refusal::new(libc::EISCONN, "this socket is connected or listens"));
        };
        if setup.ids.is_empty() {
            return Err(Refusal::new(libc::EDESTADDRREQ, "setsockopt(SET_HOSTID) for each member first"));
        }
        let hosts = hosts_of(&setup.ids)?;
        let node = open_node(setup.interface, None)?;
        // A failed connect may be tried again.
        let inner = setup.inner.as_ref().expect("a socket has it until it is used").try_clone()?;
        let own = match node.local_addr() {
            SocketAddr::V4(own) => Some(own),
            SocketAddr::V6(_) => None,
        };
        let sender = Sender::connect(&node, group, &setup.ids, hosts, inner)?;
        *state = State::Sending(sender, Ends { own, peer: Some(group) });
        Ok(())
    }

    pub fn listen(&self, fd: RawFd) -> Result<(), Refusal> {
        let mut state = self.own_state()?;
        let State::Setup(setup) = &mut *state else {
            return Err(Refusal::new(libc::EISCONN, "this socket is connected or listens"));
        };
        let group = setup.bound.ok_or_else(|| Refusal::new(libc::EDESTADDRREQ, "bind first"))?;
        let &[id] = &setup.ids[..] else {
            return Err(invalid("a member has one id: setsockopt(SET_HOSTID) once"));
        };
        let own = hosts_of(&[id])?.get(&id).copied();
        let node = open_node(setup.interface, own)?;
        let inner = setup.inner.as_ref().expect("a socket has it until it is used").try_clone()?;
        let listener = Listener::start(&node, group, id, inner, fd)?;
        *state = State::Listening(listener, Ends { own: Some(group), peer: None });
        Ok(())
    }

    /// The next connection and who sends there. Waits without this socket's lock, as `recvmsg` does.
    pub fn accept(&self) -> Result<(RawFd, SocketAddrV4), Refusal> {
        let (fd, own) = match &*self.state()? {
            State::Listening(listener, ends) => (listener.outer(), ends.own),
            _ => return Err(invalid("listen first")),
        };
        let Handed { connection, sender } = Handed::take(fd)?;
        let fd = std::os::fd::IntoRawFd::into_raw_fd(connection);
        match table::insert(fd, Self::new(State::Receiving(Ends { own, peer: Some(sender) }))) {
            Ok(()) => Ok((fd, sender)),
            Err(refusal) => {
                // SAFETY: it was ours a moment ago, and nobody knows it.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                Err(refusal)
            }
        }
    }

    /// What its ends are called. Waits for nobody: while another thread's `connect` does there is no other end yet.
    pub fn ends(&self) -> Ends {
        let Some(state) = self.try_state() else { return Ends::default() };
        match &*state {
            State::Setup(setup) => Ends { own: setup.bound, peer: None },
            State::Sending(_, ends) | State::Listening(_, ends) | State::Receiving(ends) => *ends,
            State::Broken => Ends::default(),
        }
    }

    /// Whether data may be sent.
    pub fn check_sending(&self) -> Result<(), Refusal> {
        match &*self.state()? {
            State::Sending(..) => Ok(()),
            State::Receiving(_) => {
                Err(Refusal::new(libc::EOPNOTSUPP, "data goes from the sender to the members"))
            }
            _ => Err(Refusal::new(libc::ENOTCONN, "connect first")),
        }
    }

    /// Whether data may be received.
    pub fn check_receiving(&self) -> Result<(), Refusal> {
        match &*self.state()? {
            State::Receiving(_) => Ok(()),
            State::Sending(..) => {
                Err(Refusal::new(libc::EOPNOTSUPP, "data goes from the sender to the members"))
            }
            _ => Err(Refusal::new(libc::ENOTCONN, "accept first")),
        }
    }

    /// Ends it; a sender waits until all members have everything.
    pub fn close(self, fd: RawFd) -> Result<(), Refusal> {
        let state = std::mem::replace(&mut *self.state()?, State::Broken);
        // SAFETY: the descriptor is the caller's, who gives it up. Other processes that have it too
        // must not keep the stream from ending.
        unsafe {
            libc::shutdown(fd, libc::SHUT_WR);
            libc::close(fd);
        }
        match state {
            State::Sending(sender, _) => sender.finish(),
            _ => Ok(()),
        }
    }
}

/// Those of the ids whose addresses the environment tells.
fn hosts_of(ids: &[u32]) -> Result<Hosts, Refusal> {
    let mut hosts = Hosts::new();
    for entry in std::env::var(HOSTS).unwrap_or_default().split(',').filter(|entry| !entry.is_empty()) {
        let parsed = entry.split_once('=').and_then(|(id, address)| {
            Some((id.trim().parse::<u32>().ok()?, address.trim().parse::<SocketAddrV4>().ok()?))
        });
        let (id, address) =
            parsed.ok_or_else(|| invalid(format!("{HOSTS} has {entry:?}, but needs 1=192.0.2.7:7500,…")))?;
        if ids.contains(&id) {
            hosts.insert(id, address.into());
        }
    }
    Ok(hosts)
}

/// Whether a descriptor is a stream socket that nobody speaks through yet: what it is now would be lost.
fn check_replaceable(fd: RawFd) -> Result<(), Refusal> {
    if fd < 0 {
        return Err(std::io::Error::from_raw_os_error(libc::EBADF).into());
    }
    // SAFETY: not negative; one that is not open, or no socket, is refused by the first question.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let socket = socket2::SockRef::from(&borrowed);
    if socket.r#type()? != socket2::Type::STREAM {
        return Err(Refusal::new(libc::EPROTOTYPE, format!("descriptor {fd} is no stream socket")));
    }
    if socket.peer_addr().is_ok() {
        return Err(Refusal::new(libc::EISCONN, format!("descriptor {fd} is connected already")));
    }
    Ok(())
}

/// A Node for one socket.
fn open_node(interface: Option<Ipv4Addr>, own: Option<SocketAddr>) -> Result<Node, Refusal> {
    let config = configured(&std::env::var(SETTINGS).unwrap_or_default())?;
    let named = std::env::var(INTERFACE).ok().filter(|text| !text.is_empty());
    let named = named
        .map(|text| text.parse().map_err(|_| invalid(format!("{INTERFACE} is {text:?}, no IPv4 address"))));
    let names_key = std::env::var_os(denrei::environment::KEY_FILE).is_some();
    let ip = interface.or(named.transpose()?).unwrap_or_else(|| usual_ip(&config, names_key));
    let address = own.unwrap_or_else(|| SocketAddr::from((ip, 0)));
    Node::bind(address, config).map_err(|error| Refusal::new(number_of(&error), error))
}

/// The settings that are written as the environment has them.
fn configured(settings: &str) -> Result<Config, Refusal> {
    // A program that computes between its calls must not seem dead.
    let mut config = Config { drive: Drive::Thread, ..Config::default() };
    for entry in settings.split(',').filter(|entry| !entry.is_empty()) {
        let (name, value) = entry
            .split_once('=')
            .ok_or_else(|| invalid(format!("{SETTINGS} has {entry:?}, not NAME=VALUE")))?;
        config.set(name.trim(), value).map_err(invalid)?;
    }
    Ok(config)
}

/// Where a socket is that nobody names an address of this host for; `names_key`: the environment names a key.
fn usual_ip(config: &Config, names_key: bool) -> Ipv4Addr {
    match config.insecure || config.cluster_key.is_some() || names_key {
        // Without a key nobody else is let in anyway.
        true => Ipv4Addr::UNSPECIFIED,
        false => Ipv4Addr::LOCALHOST,
    }
}

/// All that an ordinary program sees of why there is no Node.
fn number_of(error: &BindError) -> c_int {
    match error {
        BindError::Exposed { .. } | BindError::KeyFile { .. } => libc::EACCES,
        BindError::Config(_) => libc::EINVAL,
        error => error.raw_os_error().unwrap_or(libc::EADDRNOTAVAIL),
    }
}

/// Which descriptors are in this mode.
pub(super) mod table {
    use super::{BTreeMap, Mutex, MutexGuard, PoisonError, RawFd, Refusal, Socket};
    use std::cell::Cell;
    use std::sync::Once;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Descriptors beyond this cannot be in this mode: 64 Ki are the usual hard limit and more.
    const MAX_FD: usize = 1 << 16;

    /// What is at a descriptor, and whose: the number of its socket below, the process above; 0 if none. Programs under
    /// the preloaded library so pay next to nothing for descriptors that are not in this mode, in signal handlers too.
    static IN_MODE: [AtomicU64; MAX_FD] = [const { AtomicU64::new(0) }; MAX_FD];
    static SOCKETS: Mutex<Sockets> = Mutex::new(BTreeMap::new());

    type Sockets = BTreeMap<RawFd, Socket>;

    thread_local! {
        /// The lock of a thread that forks.
        static FORKING: Cell<Option<MutexGuard<'static, Sockets>>> = const { Cell::new(None) };
    }

    fn sockets() -> MutexGuard<'static, Sockets> {
        SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who forks has the lock meanwhile: had another thread, it would be locked for ever in the child.
    fn lock_over_forks() {
        extern "C" fn before() {
            // A thread that has ended all but for this has no place for it.
            let _ = FORKING.try_with(|held| held.set(Some(sockets())));
        }
        extern "C" fn after() {
            let _ = FORKING.try_with(Cell::take);
        }
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(|| {
            // SAFETY: what is registered takes nothing and stays where it is. If there is no room for it, forks go on
            // without the lock.
            let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
        });
    }

    fn word(fd: RawFd) -> Option<&'static AtomicU64> {
        IN_MODE.get(usize::try_from(fd).ok()?)
    }

    /// The kernel's number of the socket at `fd`, which tells it from another that has come into its place.
    fn socket_number(fd: RawFd) -> Option<u32> {
        // SAFETY: all zeros is a stat.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: what is at `fd`, if anything, is described in memory of ours.
        let is_open = unsafe { libc::fstat(fd, &raw mut found) } == 0;
        // Sockets have numbers of 32 bits.
        (is_open && found.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(found.st_ino as u32)
    }

    /// What stands for the socket at `fd`, if it is in this mode. One that was closed by other means than `close`,
    /// such as `fclose` and `dup2`, is not, whatever is at its descriptor by now.
    fn entry(fd: RawFd) -> Option<u64> {
        let entry = word(fd)?.load(Ordering::Acquire);
        (entry != 0 && socket_number(fd) == Some(entry as u32)).then_some(entry)
    }

    fn entry_of(number: u32) -> u64 {
        u64::from(std::process::id()) << 32 | u64::from(number)
    }

    pub fn is_in_mode(fd: RawFd) -> bool {
        entry(fd).is_some()
    }

    pub fn get(fd: RawFd) -> Option<Socket> {
        if !is_in_mode(fd) {
            return None;
        }
        sockets().get(&fd).cloned()
    }

    pub fn insert(fd: RawFd, socket: Socket) -> Result<(), Refusal> {
        let word = word(fd)
            .ok_or_else(|| Refusal::new(libc::EMFILE, format!("descriptor {fd} is not below {MAX_FD}")))?;
        let number = socket_number(fd)
            .ok_or_else(|| Refusal::new(libc::EBADF, format!("descriptor {fd} is no socket any more")))?;
        lock_over_forks();
        // What was there is dropped without the lock: dropping closes descriptors, which look here.
        let before = sockets().insert(fd, socket);
        word.store(entry_of(number), Ordering::Release);
        drop(before);
        Ok(())
    }

    /// None for a process that has it by `fork`, too: there it is a descriptor, and the connection is its maker's. What
    /// is here stays as it is then, as it is the maker's own until a child of `vfork` executes another program.
    pub fn remove(fd: RawFd) -> Option<Socket> {
        let entry = entry(fd).filter(|entry| *entry == entry_of(*entry as u32))?;
        word(fd)?.compare_exchange(entry, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        sockets().remove(&fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    /// Members on other hosts would wait for a sender for ever.
    #[test]
    fn a_key_among_the_settings_opens_a_socket_to_other_hosts() {
        let file = std::env::temp_dir().join(format!("denrei-mtcp-key-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let mut options = std::fs::OpenOptions::new();
        let mut key = options.write(true).create_new(true).mode(0o600).open(&file).unwrap();
        std::io::Write::write_all(
            &mut key,
            format!("denrei-cluster-key-v1 {}\n", "5a".repeat(32)).as_bytes(),
        )
        .unwrap();
        let config = configured(&format!("key_file={}", file.display()));
        std::fs::remove_file(&file).unwrap();
        assert_eq!(usual_ip(&config.unwrap(), false), Ipv4Addr::UNSPECIFIED);
        assert_eq!(usual_ip(&configured("insecure=on").unwrap(), false), Ipv4Addr::UNSPECIFIED);
        assert_eq!(usual_ip(&configured("").unwrap(), true), Ipv4Addr::UNSPECIFIED);
        assert_eq!(usual_ip(&configured("").unwrap(), false), Ipv4Addr::LOCALHOST);
    }
}
