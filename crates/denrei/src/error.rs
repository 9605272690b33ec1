//! Errors of a Node that are not the protocol's.

use crate::address::lacks_interface;
use denrei_proto::{ConnectError, NoMore};
use std::io;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a Node could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// A setting cannot work.
    #[error("{0}")]
    Config(#[from] denrei_proto::ConfigError),
    /// A file that the environment names holds no key, or not as a secret.
    #[error("{source} ({variable} names this file)")]
    KeyFile {
        /// The variable of the environment.
        variable: &'static str,
        /// Why the file is of no use.
        source: crate::key_file::KeyFileError,
    },
    /// The address names nothing.
    #[error("the address to bind cannot be resolved: {0}")]
    Resolve(io::Error),
    /// The address resolves to nothing.
    #[error("the address to bind resolves to no address at all")]
    NoAddress,
    /// The Node has no cluster key, and others than this host's processes could reach it.
    #[error(
        "{addr} is not a loopback address, and without a cluster key whoever reaches it could read and inject \
         messages: make a key with `denrei keygen --out cluster.key`, copy it to all nodes and name it by \
         --key-file, DENREI_KEY_FILE or Config::cluster_key; or, where you trust the network, say --insecure \
         (Config::insecure)"
    )]
    Exposed {
        /// The address.
        addr: SocketAddr,
    },
    /// The system refuses the address.
    #[error("cannot bind UDP {addr}: {source}{}", advice_on(*.addr, .source))]
    Socket {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The directory that the host's Nodes share cannot be used.
    #[error(
        "cannot keep a record in {directory}: {source} (name a directory that this user can write to as \
         host_directory, best in memory, such as /dev/shm/denrei)"
    )]
    HostDirectory {
        /// The directory.
        directory: std::path::PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The directory where Nodes tell of their status cannot be used.
    #[error("cannot listen in {directory}: {source}{}", advice_on_directory(.source))]
    StatusDirectory {
        /// The directory.
        directory: std::path::PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The system refuses something else that a Node needs.
    #[error("cannot make a Node: {source}{}", advice(.source))]
    System {
        /// What the system says.
        source: io::Error,
    },
}

impl BindError {
    /// The system's number for the refusal, if it was the system's.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Socket { source, .. } | Self::System { source } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// What to do about a refusal of an address.
fn advice_on(addr: SocketAddr, error: &io::Error) -> String {
    match lacks_interface(addr) {
        true => format!(" ({})", ConnectError::NoInterface(addr)),
        false => advice(error).to_owned(),
    }
}

/// What to do where a Node cannot tell of its status.
fn advice_on_directory(error: &io::Error) -> &'static str {
    match advice(error) {
        advice if is_short_of(error) => advice,
        _ => {
            " (name a directory that this user can write to, with a path of at most 60 characters, as status_directory \
             or DENREI_STATUS_DIRECTORY)"
        }
    }
}

/// Whether it is threads or descriptors that the system has none of, wherever they were for.
fn is_short_of(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock || matches!(error.raw_os_error(), Some(EMFILE | ENFILE))
}

/// What to do about a refusal.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (another process has that port: take another, or port 0 for any free one)"
        }
        io::ErrorKind::AddrNotAvailable => {
            " (no interface of this host has that address, or not yet: see `ip address`; one of IPv6 is of no use while \
             it is tentative, for a second or two)"
        }
        io::ErrorKind::PermissionDenied => " (ports below 1024 need privileges: take a higher one)",
        // Of all that a Node is made of only threads are refused in this way.
        io::ErrorKind::WouldBlock => {
            " (no thread is to be had: let this user, or its container, have more processes: `ulimit -u`, pids.max)"
        }
        _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
            " (the process is out of descriptors: raise `ulimit -n`)"
        }
        _ => "",
    }
}

/// POSIX numbers that `io::ErrorKind` does not distinguish; equal on Linux and macOS.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Why [`Node::recv_from`](crate::Node::recv_from) waits no longer.
#[derive(Debug, Error, Clone)]
#[non_exhaustive]
pub enum RecvError {
    /// The Node has failed.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// All that the peer has sent was taken, and no more comes.
    #[error(transparent)]
    NoMore(#[from] NoMore),
}

/// The Node's socket has become unusable, or a thread that drives it has panicked.
#[derive(Debug, Error, Clone)]
#[error("the Node failed: {0}")]
pub struct NodeError(pub(crate) std::sync::Arc<io::Error>);
