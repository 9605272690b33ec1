//! Asking the Nodes of a directory for their status.
//!
//! Inputs → outputs: a directory → what each Node there says, and which say nothing. All are asked at once, and those
//! that are stopped are not waited for any longer than [`PATIENCE`] together. The socket of a dead one is removed.

use super::{EXTENSION, NodeStatus, own_prefix};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::DirEntry;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Who has not answered after so long is silent.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often those who have not answered yet are looked at again.
const NAP: Duration = Duration::from_millis(1);
/// Nodes that are asked at most: a descriptor each.
const MOST_NODES: usize = 512;
/// Octets of an answer that are read at most: a Node with as many peers as it may have by default.
const MOST_BYTES: usize = 256 << 20;

/// Who was there.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Seen {
    /// What the Nodes say, by process and incarnation.
    pub nodes: Vec<NodeStatus>,
    /// Sockets at which nobody answers within a second, or with what is no [`NodeStatus`]: processes that are stopped,
    /// or another user's, or another version's.
    pub silent: Vec<PathBuf>,
}

/// Asks all Nodes whose `status_directory` this is, 512 at most.
///
/// # Errors
/// The directory cannot be read. Nobody in it, or a directory that is not there yet, is no error.
pub fn read(directory: &Path) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut asked = Vec::new();
    for path in sockets(directory)? {
        match Asked::ask(&path) {
            Ok(node) => asked.push(node),
            Err(error) if is_dead(&error) => drop(std::fs::remove_file(&path)),
            // It ended between being listed and being asked.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(_) => seen.silent.push(path),
        }
    }
    let until = Instant::now() + PATIENCE;
    let mut unclear = Vec::new();
    while !asked.is_empty() && Instant::now() < until {
        let mut moved = false;
        asked.retain_mut(|node| {
            match node.take() {
                Ok(count) if count > 0 => {
                    moved = true;
                    return true;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return true;
                }
                Ok(_) => match node.status() {
                    Some(status) => seen.nodes.push(status),
                    None => unclear.push(std::mem::take(&mut node.path)),
                },
                Err(_) => unclear.push(std::mem::take(&mut node.path)),
            }
            false
        });
        if !moved {
            std::thread::sleep(NAP);
        }
    }
    // A Node that ended meanwhile has taken its socket along.
    seen.silent.extend(unclear.into_iter().filter(|path| path.exists()));
    seen.silent.extend(asked.into_iter().map(|node| node.path));
    seen.silent.sort();
    seen.nodes
        .sort_by(|one, other| (one.process, &one.incarnation).cmp(&(other.process, &other.incarnation)));
    Ok(seen)
}

/// Removes what other processes have left that were killed. Those of this one live, and may be hundreds.
pub(super) fn remove_dead(directory: &Path) {
    let own = own_prefix();
    let is_own =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&own));
    for path in sockets(directory).unwrap_or_default().into_iter().filter(|path| !is_own(path)) {
        if Asked::ask(&path).is_err_and(|error| is_dead(&error)) {
            // Another may have been faster.
            let _ = std::fs::remove_file(&path);
        }
    }
}

/// Nobody listens, and nobody will: the name of a socket is given away only once it is listened at.
fn is_dead(error: &io::Error) -> bool {
    error.kind() == ErrorKind::ConnectionRefused
}

/// The sockets that have names as Nodes give them. Whatever else lies there is of no concern, and stays.
fn sockets(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let of_nodes = entries.filter_map(Result::ok).filter(is_of_node);
    Ok(of_nodes.take(MOST_NODES).map(|entry| entry.path()).collect())
}

fn is_of_node(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let of_process = name.to_str().and_then(|name| name.strip_suffix(EXTENSION)?.split_once('-'));
    of_process.is_some_and(|(process, _)| process.parse::<u32>().is_ok())
        && entry.file_type().is_ok_and(|kind| kind.is_socket())
}

/// A Node that has been asked.
struct Asked {
    path: PathBuf,
    socket: Socket,
    answer: Vec<u8>,
}

impl Asked {
    /// Whoever is stopped has only so much room for those who ask: it is not waited for.
    fn ask(path: &Path) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Self { path: path.to_owned(), socket, answer: Vec::new() })
    }

    /// Takes what is there; 0: that was all.
    fn take(&mut self) -> io::Result<usize> {
        let mut part = [0; 64 << 10];
        let count = self.socket.read(&mut part)?;
        self.answer.extend_from_slice(&part[..count]);
        if self.answer.len() > MOST_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        Ok(count)
    }

    /// What it has said; `None`: it is another version's, or was cut off.
    fn status(&self) -> Option<NodeStatus> {
        serde_json::from_slice(&self.answer).ok()
    }
}
