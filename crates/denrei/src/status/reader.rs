//! Asking the Nodes of a directory for their status.
//!
//! Inputs → outputs: a directory → what each Node there says, and which say nothing. All are asked at once, and those
//! that are stopped are not waited for any longer than [`PATIENCE`] together. The socket of a dead one is removed.

use super::{EXTENSION, NodeStatus, own_prefix};
use socket2::{Domain, SockAddr, Socket, Type};
use std::ffi::OsStr;
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
    /// Sockets at which nobody answers within a second, or only a part: processes that are stopped, or another user's.
    pub silent: Vec<PathBuf>,
    /// Those that answer with what is no [`NodeStatus`]: of another version.
    pub unreadable: Vec<Unreadable>,
}

/// A Node whose answer says nothing here.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Unreadable {
    /// Id of its process.
    pub process: u32,
    /// Its socket.
    pub path: PathBuf,
    /// What is wrong with the answer.
    pub reason: String,
}

/// Asks all Nodes whose `status_directory` this is, 512 at most.
///
/// # Errors
/// The directory cannot be read. Nobody in it, or a directory that is not there yet, is no error.
pub fn read(directory: &Path) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut asked = Vec::new();
    for path in sockets(directory)? {
        match ask(&path) {
            Some(Ok(node)) => asked.push(node),
            Some(Err(_)) => seen.silent.push(path),
            None => {}
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
                Ok(_) => match serde_json::from_slice(&node.answer) {
                    Ok(status) => seen.nodes.push(status),
                    // It was cut off.
                    Err(error) if error.is_eof() => unclear.push(std::mem::take(&mut node.path)),
                    Err(error) => seen.unreadable.extend(node.unreadable(&error)),
                },
                Err(_) => unclear.push(std::mem::take(&mut node.path)),
            }
            false
        });
        if !moved {
            std::thread::sleep(NAP);
        }
    }
    // Whoever has ended meanwhile owes no answer.
    seen.silent.extend(unclear.into_iter().filter(|path| ask(path).is_some()));
    seen.silent.extend(asked.into_iter().map(|node| node.path));
    seen.silent.sort();
    seen.unreadable.sort_by(|one, other| one.path.cmp(&other.path));
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
        ask(&path);
    }
}

/// Asks who listens there; `None`: nobody does any more. What a process has left that was killed is removed.
fn ask(path: &Path) -> Option<io::Result<Asked>> {
    let asked = Asked::ask(path);
    match asked.as_ref().map_err(io::Error::kind) {
        // Nobody will: the name of a socket is given away only once it is listened at. Another may have been faster.
        Err(ErrorKind::ConnectionRefused) => drop(std::fs::remove_file(path)),
        // It ended between being listed and being asked.
        Err(ErrorKind::NotFound) => {}
        _ => return Some(asked),
    }
    None
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
    process_of(&entry.file_name()).is_some() && entry.file_type().is_ok_and(|kind| kind.is_socket())
}

/// The process whose Node's socket has this name; `None`: it is none's.
fn process_of(name: &OsStr) -> Option<u32> {
    let (process, _) = name.to_str()?.strip_suffix(EXTENSION)?.split_once('-')?;
    process.parse().ok()
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

    /// It has said what is no status.
    fn unreadable(&self, error: &serde_json::Error) -> Option<Unreadable> {
        let (process, reason) = (process_of(self.path.file_name()?)?, error.to_string());
        Some(Unreadable { process, path: self.path.clone(), reason })
    }
}
