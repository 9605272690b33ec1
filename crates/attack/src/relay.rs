//! The outsider on the path: every datagram between sender and victim goes through its hands.
//!
//! Inputs → outputs: datagrams of both sides → what a [`Hook`] makes of them: the same, changed ones,
//! none, more. The sender believes the relay to be the victim, the victim believes it to be the
//! sender, as behind an address translator; so whatever the relay sends comes from the right address.

use crate::forge;
use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Most packets kept of a recording.
const MAX_RECORDED: usize = 20_000;
/// Larger than any datagram, bytes.
const BUFFER_BYTES: usize = 1 << 16;
/// How soon the relay's threads notice that they are to end.
const PATIENCE: Duration = Duration::from_millis(50);
/// Extra datagrams between two pauses.
const BURST: usize = 32;
/// That pause.
const PAUSE: Duration = Duration::from_millis(1);

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the sender.
    ToVictim,
    /// From the victim.
    ToSender,
}

impl Way {
    /// The other.
    pub fn back(self) -> Self {
        match self {
            Self::ToVictim => Self::ToSender,
            Self::ToSender => Self::ToVictim,
        }
    }
}

/// A datagram and its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Where it goes.
    pub way: Way,
    /// What it is.
    pub bytes: Vec<u8>,
}

/// Decides what is sent when a datagram comes, in order.
pub type Hook = Box<dyn FnMut(Passed) -> Vec<Passed> + Send>;

/// A relay at work. Dropping it ends it.
pub struct Relay {
    shared: Arc<Shared>,
    front_addr: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Towards the sender.
    front: UdpSocket,
    /// Towards the victim.
    back: UdpSocket,
    victim: SocketAddr,
    sender: Mutex<Option<SocketAddr>>,
    hook: Mutex<Option<Hook>>,
    recording: Mutex<Option<Vec<Passed>>>,
    over: AtomicBool,
}

impl Relay {
    /// On a host, before `victim`.
    pub fn start(namespace: &str, ip: Ipv4Addr, victim: SocketAddr) -> Result<Self> {
        let (front, back) = (forge::udp(namespace, ip)?, forge::udp(namespace, ip)?);
        for socket in [&front, &back] {
            socket.set_read_timeout(Some(PATIENCE))?;
        }
        let front_addr = front.local_addr()?;
        let shared = Arc::new(Shared {
            front,
            back,
            victim,
            sender: Mutex::default(),
            hook: Mutex::default(),
            recording: Mutex::default(),
            over: AtomicBool::new(false),
        });
        let threads = [Way::ToVictim, Way::ToSender].map(|way| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("relay {way:?}")).spawn(move || shared.carry(way))
        });
        let threads = threads.into_iter().collect::<Result<_, _>>().context("cannot start the relay")?;
        Ok(Self { shared, front_addr, threads })
    }

    /// Where the sender finds what it takes for the victim.
    pub fn front_addr(&self) -> SocketAddr {
        self.front_addr
    }

    /// Lets `hook` decide from now on; `None`: everything passes.
    pub fn set_hook(&self, hook: Option<Hook>) {
        *lock(&self.shared.hook) = hook;
    }

    /// Begins to keep what passes, anew.
    pub fn record(&self) {
        *lock(&self.shared.recording) = Some(Vec::new());
    }

    /// What has been kept; ends the recording.
    pub fn recorded(&self) -> Vec<Passed> {
        lock(&self.shared.recording).take().unwrap_or_default()
    }

    /// Sends a datagram of the attacker's under the address of the one who would.
    pub fn inject(&self, datagram: &Passed) {
        self.shared.send(datagram);
    }

    /// Sends many, with pauses for the receiver to look at them.
    pub fn inject_all<'a>(&self, datagrams: impl IntoIterator<Item = &'a Passed>) -> usize {
        let mut count = 0;
        for datagram in datagrams {
            self.shared.send(datagram);
            count += 1;
            if count % BURST == 0 {
                std::thread::sleep(PAUSE);
            }
        }
        count
    }
}

impl Shared {
    fn carry(&self, way: Way) {
        let socket = if way == Way::ToVictim { &self.front } else { &self.back };
        let mut buffer = vec![0; BUFFER_BYTES];
        while !self.over.load(Ordering::Relaxed) {
            // A timeout, or word of an unreachable port: whoever was meant is being started again.
            let Ok((len, from)) = socket.recv_from(&mut buffer) else { continue };
            if way == Way::ToVictim {
                *lock(&self.sender) = Some(from);
            }
            self.pass(Passed { way, bytes: buffer[..len].to_vec() });
        }
    }

    fn pass(&self, datagram: Passed) {
        if let Some(recording) = &mut *lock(&self.recording)
            && recording.len() < MAX_RECORDED
        {
            recording.push(datagram.clone());
        }
        let mut hook = lock(&self.hook);
        let Some(hook) = &mut *hook else { return self.send(&datagram) };
        for (at, datagram) in hook(datagram).iter().enumerate() {
            self.send(datagram);
            if at % BURST == BURST - 1 {
                std::thread::sleep(PAUSE);
            }
        }
    }

    fn send(&self, datagram: &Passed) {
        let (socket, to) = match datagram.way {
            Way::ToVictim => (&self.back, Some(self.victim)),
            Way::ToSender => (&self.front, *lock(&self.sender)),
        };
        if let Some(to) = to {
            // What the link does not carry is lost, as on any path.
            let _ = socket.send_to(&datagram.bytes, to);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A hook that panicked has told its attack so; the relay goes on.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
