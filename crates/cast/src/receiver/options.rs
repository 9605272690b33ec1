//! What a receiver is told, and what it tells: options, progress, the report.

use std::net::SocketAddr;
use std::time::Duration;

/// How to receive.
#[derive(Clone, Debug)]
pub struct ReceiveOptions {
    /// The group whose beacons are listened to.
    pub group: SocketAddr,
    /// A sender to ask, where beacons do not reach.
    pub from: Option<SocketAddr>,
    /// How long to wait for an offer; `None`: for ever.
    pub wait: Option<Duration>,
    /// How long to wait for a sender that has vanished.
    pub patience: Duration,
    /// What people call this host.
    pub name: String,
}

impl ReceiveOptions {
    /// The defaults, and this host's name.
    pub fn new(group: SocketAddr) -> Self {
        let name = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        Self { group, from: None, wait: None, patience: Duration::from_secs(60), name }
    }
}

/// How it goes.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveProgress {
    /// The sender; `None` while there is none.
    pub sender: Option<SocketAddr>,
    /// Bytes of the body that are here.
    pub bytes: u64,
    /// Bytes of the body, if that is known.
    pub total_bytes: Option<u64>,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct ReceiveReport {
    /// The first octets of the cast's name.
    pub cast: u64,
    /// The sender.
    pub sender: SocketAddr,
    /// From the offer until everything was in its place.
    pub took: Duration,
    /// Bytes of the body.
    pub bytes: u64,
    /// Of these, those that were here before.
    pub resumed_bytes: u64,
    /// Those that came now.
    pub new_bytes: u64,
    /// Files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
}
