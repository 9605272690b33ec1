//! Nodes of one host that share what it can receive (R10, R13), whatever process each is in.
//!
//! Inputs → outputs: a directory, and every few milliseconds a record of each of this Node's shards → a
//! small file there; the others' files → their records, from which one of the Nodes learns for all, and for the shards'
//! endpoints, which compute their shares. Source: R13; `spec/protocol.md` §13.8; ADR 41, 117.
//!
//! A Node holds a lock on its file as long as it lives. The kernel lets go of it however a process ends,
//! so a file that can be locked is a dead Node's: whoever finds it removes it, and its share is free.

use crate::error::BindError;
use crate::shards::{MAX_SHARDS, Shards};
use crate::wait::Shared;
use denrei_proto::{HostCapacity, HostRecord, Rate};
use denrei_wire::checksum::{CHECKSUM_BYTES, crc32c, verify};
use denrei_wire::duration_nanos;
use nix::time::{ClockId, clock_gettime};
use std::fs::{DirBuilder, DirEntry, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// While something comes the Nodes hear of each other this often: as often as shares are computed.
const PERIOD: Duration = Duration::from_millis(10);
/// And else: as soon as somebody who begins may wait for its share.
const QUIET_PERIOD: Duration = Duration::from_millis(50);
const SILENT: Duration = HostRecord::SILENT;
/// Files of others that are looked at: a host has fewer Nodes that receive much.
const MOST_NODES: usize = 256;
/// How the file of a Node ends; while it is made it ends otherwise.
const EXTENSION: &str = "node";
/// Layout of a record: version, the fields, checksum.
const FIELDS: usize = 13;
const RECORD_BYTES: usize = 8 * (1 + FIELDS) + CHECKSUM_BYTES;
const VERSION: u64 = 2;

/// Octets of a file that are read at most: a record for each shard.
const MOST_BYTES: usize = RECORD_BYTES * MAX_SHARDS;

/// The thread that keeps a Node's records, and reads the others'.
pub(crate) struct HostShare {
    thread: JoinHandle<()>,
}

impl HostShare {
    /// Makes the Node's file in `directory`, which is made too, and starts. `stated`: what the host
    /// receives in all, bytes per second, if that is known.
    pub fn start(shards: &Shards, directory: &Path, stated: Option<u64>) -> Result<Self, BindError> {
        let wrong = |source| BindError::HostDirectory { directory: directory.to_owned(), source };
        // The oldest learns for all, and who comes later changes nothing.
        let name = since_the_host_began().map_err(wrong)?;
        let mut own = OwnFile::create(directory, name).map_err(wrong)?;
        let shards: Vec<Arc<Shared>> = shards.all().cloned().collect();
        // Where there is no room for records, nobody would keep to a limit.
        own.reserve(shards.len()).map_err(wrong)?;
        let run = move || run(&shards, &mut own, name, stated);
        let thread = std::thread::Builder::new().name("denrei-host".into()).spawn(run).map_err(wrong)?;
        Ok(Self { thread })
    }

    /// Ends; [`Shared::stopping`] has been set.
    pub fn stop(self) {
        self.thread.thread().unpark();
        // It has nothing that could panic but a broken invariant, which it has reported.
        let _ = self.thread.join();
    }
}

fn run(shards: &[Arc<Shared>], own: &mut OwnFile, name: u64, stated: Option<u64>) {
    let buffer = shards[0].with_io(|io| io.socket.capabilities().recv_buffer_bytes);
    let begun = shards[0].core.lock().now();
    let mut capacity = HostCapacity::new(begun, name, stated, buffer as u64);
    let (mut others, mut told) = (Vec::new(), false);
    while !shards[0].stopping.load(Ordering::Acquire) {
        // What it does not know yet, or no longer, the others would go on with.
        let is_behind = capacity.is_behind(shards[0].core.lock().now());
        let learnt = capacity.learnt().filter(|_| !is_behind);
        let record = |(place, shard): (usize, &Arc<Shared>)| HostRecord {
            name: name.saturating_add(place as u64),
            learnt,
            ..record_of(shard)
        };
        let records: Vec<_> = shards.iter().enumerate().map(record).collect();
        let written = if is_behind { Ok(()) } else { own.write(&records) };
        match written.and_then(|()| own.others()) {
            Ok(read) => others = read,
            Err(error) if !told => {
                told = true;
                tracing::warn!(
                    "this Node goes on with what it last heard of the others of its host: {error}"
                );
            }
            Err(_) => {}
        }
        share(shards, &mut capacity, &records, &others);
        let busy = records.iter().any(|record| record.bytes_per_s > 0);
        std::thread::park_timeout(if busy { PERIOD } else { QUIET_PERIOD });
    }
}

/// Nanoseconds, by a clock that all processes of a host have in common, and that nobody sets.
fn since_the_host_began() -> io::Result<u64> {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(|time| duration_nanos(time.into())).map_err(io::Error::from)
}

fn record_of(shard: &Shared) -> HostRecord {
    let mut core = shard.core.lock();
    let now = core.now();
    // One whose sessions the first shard has gone on with has nothing to say, and one that nobody drives, as its
    // application computes, takes nothing.
    let is_left = core.endpoint.poll_timeout().is_some_and(|due| now.saturating_since(due) > SILENT);
    let says_nothing = core.absorbed || is_left;
    if says_nothing { HostRecord::default() } else { core.endpoint.host_record(now) }
}

/// Learns from what all say of themselves, and tells each shard what the others, and other Nodes, do.
fn share(shards: &[Arc<Shared>], capacity: &mut HostCapacity, records: &[HostRecord], nodes: &[HostRecord]) {
    let now = shards[0].core.lock().now();
    capacity.look(now, &[records, nodes].concat());
    let overflows = shards[0].with_io(|io| io.socket.overflows());
    for (at, shard) in shards.iter().enumerate() {
        let siblings = [&records[..at], &records[at + 1..]].concat();
        let others = [nodes, &siblings].concat();
        let mut core = shard.core.lock();
        let now = core.now();
        if !core.absorbed {
            core.endpoint.share_host(now, capacity.limit(), &others, overflows);
        }
    }
}

/// The file of this Node; gone when this is dropped.
struct OwnFile {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    /// That there are Nodes of other users was said.
    told: bool,
}

impl OwnFile {
    fn create(directory: &Path, name: u64) -> io::Result<Self> {
        make_directory(directory)?;
        let path = directory.join(format!("{}-{name:016x}.{EXTENSION}", std::process::id()));
        Ok(Self { directory: directory.to_owned(), file: make_locked(&path)?, path, told: false })
    }

    /// Has room for so many records, and says nothing yet.
    fn reserve(&mut self, records: usize) -> io::Result<()> {
        self.file.write_all_at(&vec![0; RECORD_BYTES * records], 0)
    }

    /// As many records as there is room for. A file that somebody has removed, as where a user's directory
    /// goes when they log out, is made again: Nodes that begin later would else not know of this one.
    fn write(&mut self, records: &[HostRecord]) -> io::Result<()> {
        if !self.path.exists() {
            make_directory(&self.directory)?;
            self.file = make_locked(&self.path)?;
        }
        let octets: Vec<u8> = records.iter().flat_map(|record| encode(*record)).collect();
        self.file.write_all_at(&octets, 0)
    }

    /// The records of all other Nodes that live; files of the dead are removed.
    fn others(&mut self) -> io::Result<Vec<HostRecord>> {
        let mut records = Vec::new();
        let others =
            std::fs::read_dir(&self.directory)?.filter_map(|entry| self.of_another(entry).transpose());
        for path in others.take(MOST_NODES).collect::<io::Result<Vec<_>>>()? {
            match read(&path) {
                Ok(of_node) => records.extend(of_node),
                Err(error) if error.kind() == ErrorKind::PermissionDenied => self.tell(&path),
                // It ended between being listed and being read.
                Err(_) => {}
            }
        }
        Ok(records)
    }

    /// The path of what lies in the directory, if it is another Node's. Whatever else lies there holds nobody up, as a
    /// pipe would, and is none of those that are looked at.
    fn of_another(&self, entry: io::Result<DirEntry>) -> io::Result<Option<PathBuf>> {
        let entry = entry?;
        let path = entry.path();
        let is_nodes = path.extension().is_some_and(|extension| extension == EXTENSION)
            && entry.file_type().is_ok_and(|kind| kind.is_file());
        Ok(Some(path).filter(|path| is_nodes && *path != self.path))
    }

    /// Says, once, that the Node of `path` is not taken into account.
    fn tell(&mut self, path: &Path) {
        if !core::mem::replace(&mut self.told, true) {
            tracing::warn!("{} is another user's: this Node shares nothing with that one", path.display());
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Else whoever finds it does.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes a directory for this user alone, if it is not there.
pub(crate) fn make_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

fn make_locked(path: &Path) -> io::Result<File> {
    // Nobody takes it for a dead Node's before it is locked.
    let unborn = path.with_extension("new");
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unborn)?;
    // What is left of an attempt that failed would stand in the way of the next.
    let born = file.lock().and_then(|()| std::fs::rename(&unborn, path));
    born.map(|()| file).inspect_err(|_| drop(std::fs::remove_file(&unborn)))
}

/// The records in a file, if its Node lives and is not stopped.
fn read(path: &Path) -> io::Result<Vec<HostRecord>> {
    let file = File::open(path)?;
    match file.try_lock_shared() {
        Ok(()) => {
            std::fs::remove_file(path)?;
            return Ok(Vec::new());
        }
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // A clock that was set back since counts the other way.
    if file.metadata()?.modified()?.elapsed().unwrap_or_else(|ahead| ahead.duration()) > SILENT {
        return Ok(Vec::new());
    }
    let mut octets = Vec::new();
    file.take(MOST_BYTES as u64).read_to_end(&mut octets)?;
    Ok(octets.as_chunks().0.iter().filter_map(decode).collect())
}

fn encode(record: HostRecord) -> [u8; RECORD_BYTES] {
    let learnt = record.learnt.unwrap_or(Rate::STOPPED);
    let fields: [u64; FIELDS] = [
        record.name,
        record.weight,
        record.senders,
        record.bytes_per_s,
        u64::from(record.held_back),
        record.datagram,
        duration_nanos(record.rtt),
        record.at,
        record.octets,
        record.lost,
        record.recoveries,
        learnt.bytes_per_s,
        learnt.burst_bytes,
    ];
    let mut octets = [0; RECORD_BYTES];
    let places = octets.chunks_exact_mut(8);
    for (place, field) in places.zip(core::iter::once(VERSION).chain(fields)) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    let checksum = crc32c(&octets[..RECORD_BYTES - CHECKSUM_BYTES]);
    octets[RECORD_BYTES - CHECKSUM_BYTES..].copy_from_slice(&checksum.to_le_bytes());
    octets
}

/// `None`: it was read while it was written, or is none.
fn decode(octets: &[u8; RECORD_BYTES]) -> Option<HostRecord> {
    let mut fields =
        octets.chunks_exact(8).map(|field| u64::from_le_bytes(field.try_into().unwrap_or([0; 8])));
    let mut next = || fields.next().unwrap_or(0);
    let version = next();
    let record = HostRecord {
        name: next(),
        weight: next(),
        senders: next(),
        bytes_per_s: next(),
        held_back: next() == 1,
        datagram: next(),
        rtt: Duration::from_nanos(next()),
        at: next(),
        octets: next(),
        lost: next(),
        recoveries: next(),
        learnt: Some(Rate { bytes_per_s: next(), burst_bytes: next() }).filter(|rate| *rate != Rate::STOPPED),
    };
    (verify(octets) && version == VERSION).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: HostRecord = HostRecord {
        name: 1,
        weight: 300,
        senders: 2,
        bytes_per_s: 12_345_678,
        held_back: true,
        datagram: 1_448,
        rtt: Duration::from_nanos(100_001),
        at: 3,
        octets: 4,
        lost: 5,
        recoveries: 6,
        learnt: Some(Rate { bytes_per_s: 7, burst_bytes: 8 }),
    };

    #[test]
    fn a_record_is_whole_or_none() {
        let octets = encode(RECORD);
        assert_eq!(decode(&octets), Some(RECORD));
        let beginning = HostRecord { learnt: None, ..RECORD };
        assert_eq!(decode(&encode(beginning)), Some(beginning));
        for at in 0..RECORD_BYTES {
            let mut torn = octets;
            torn[at] ^= 1;
            assert_eq!(decode(&torn), None, "octet {at}");
        }
    }

    /// What `one` reads when `two` has just written, as it does all the time.
    fn read_of_others(one: &mut OwnFile, two: &mut OwnFile, records: &[HostRecord]) -> Vec<HostRecord> {
        two.write(records).unwrap();
        one.others().unwrap()
    }

    #[test]
    fn the_living_are_read_and_the_dead_removed() {
        let directory = std::env::temp_dir().join(format!("denrei-host-{}", std::process::id()));
        let mut one = OwnFile::create(&directory, 1).unwrap();
        let mut two = OwnFile::create(&directory, 2).unwrap();
        let shards = [RECORD, HostRecord { weight: 7, ..RECORD }];
        two.reserve(shards.len()).unwrap();
        assert_eq!(one.others().unwrap(), [], "it says nothing yet");
        assert_eq!(read_of_others(&mut one, &mut two, &shards), shards);
        // One that is stopped, until it goes on.
        two.file.set_modified(std::time::SystemTime::now() - 2 * SILENT).unwrap();
        assert_eq!(one.others().unwrap(), []);
        assert_eq!(read_of_others(&mut one, &mut two, &shards), shards);
        // The same, and the clock was set back since.
        two.file.set_modified(std::time::SystemTime::now() + 2 * SILENT).unwrap();
        assert_eq!(one.others().unwrap(), []);
        // What a process leaves that was killed, and what is not a Node's.
        let dead = directory.join("1-0000000000000003.node");
        std::fs::write(&dead, encode(RECORD)).unwrap();
        for note in 0..10 * MOST_NODES {
            std::fs::write(directory.join(format!("{note}.txt")), "not a record").unwrap();
        }
        std::os::unix::fs::symlink("/dev/zero", directory.join("link.node")).unwrap();
        assert_eq!(read_of_others(&mut one, &mut two, &shards), shards);
        assert!(!dead.exists());
        // An attempt that fails leaves nothing behind: a directory has the name that the file is to have.
        let taken = directory.join("taken.node");
        std::fs::create_dir(&taken).unwrap();
        assert!((0..2).all(|_| make_locked(&taken).unwrap_err().kind() != ErrorKind::AlreadyExists));
        assert!(!taken.with_extension("new").exists());
        // What a log-out removes comes again.
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(one.others().is_err());
        assert_eq!(read_of_others(&mut one, &mut two, &shards), shards);
        drop(two);
        assert_eq!(one.others().unwrap(), []);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
