//! From the staging directory to the destination: what is complete and verified appears in its place.
//!
//! Inputs → outputs: a complete [`Stage`] → its entries in the destination. What is at the top and was
//! not there before appears by one rename, a whole directory too; where a directory is there already,
//! what is in it is put into place one by one, each file by a rename. A process that dies in between
//! goes on where it was. Source: `spec/cast.md` §6, rename(2).

use crate::error::{CastError, storage};
use crate::manifest::{Entry, Kind};
use crate::place::{Place, children};
use crate::stage::{PUBLISHING, Stage};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, renameat};
use nix::sys::stat::{SFlag, UtimensatFlags, fstat, fstatat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{AccessFlags, UnlinkatFlags, faccessat, symlinkat, unlinkat};
use std::collections::HashSet;
use std::fs::{File, FileTimes, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};

/// How often it is looked whether a long call is through.
const LOOK: Duration = Duration::from_secs(1);
const NS_PER_S: i64 = 1_000_000_000;

/// Puts everything into `into`, and removes the tree that it was in. With `sync` everything is on disk before it appears.
///
/// # Errors
/// Something else is in the way; the file system says no. What is staged remains.
pub fn publish(stage: &Stage, into: &Path, sync: bool) -> Result<(), CastError> {
    let to = Place::open(into)?.reopening(stage.is_publishing());
    let (own, root) = (stage.root(), stage.root().path());
    if !stage.is_publishing() {
        check(stage, &to)?;
        finish_files(stage)?;
        if sync {
            while_it_lasts(stage, || sync_file_system(own))?
                .map_err(|error| storage("sync", root)(error.into()))?;
        }
        own.own_file(PUBLISHING, OFlag::O_WRONLY | OFlag::O_CREAT)?;
    }
    let mover = Mover { stage, to: &to, children: children(stage.manifest()) };
    mover.place_all(None)?;
    finish_directories(stage, &to)?;
    if sync {
        let root = File::open(into).map_err(storage("open", into))?;
        root.sync_all().map_err(storage("sync", into))?;
    }
    stage.clear_tree()
}

/// Writes all that the file system of `directory` has in memory.
#[cfg(target_os = "linux")]
fn sync_file_system(directory: impl AsFd) -> Result<(), Errno> {
    nix::unistd::syncfs(directory)
}

/// Has all file systems write what they have in memory; this system may not wait for the end of that.
#[cfg(not(target_os = "linux"))]
fn sync_file_system(_directory: impl AsFd) -> Result<(), Errno> {
    nix::unistd::sync();
    Ok(())
}

/// Does what the system takes its time for, and tells that it goes on.
fn while_it_lasts<T: Send>(stage: &Stage, work: impl FnOnce() -> T + Send) -> Result<T, CastError> {
    let (done, outcome) = sync_channel(1);
    thread::scope(|scope| {
        let working = thread::Builder::new().spawn_scoped(scope, move || done.send(work()));
        working.map_err(|error| CastError::Transport(format!("cannot start a thread: {error}")))?;
        loop {
            match outcome.recv_timeout(LOOK) {
                Ok(outcome) => return Ok(outcome),
                Err(RecvTimeoutError::Timeout) => stage.goes_on(),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(CastError::Transport("a thread ended".into()));
                }
            }
        }
    })
}

/// Whether everything of a cast can be put into place as things are now.
///
/// # Errors
/// What is in the way.
pub fn check(stage: &Stage, to: &Place) -> Result<(), CastError> {
    let manifest = stage.manifest();
    let staged_on =
        fstat(stage.root()).map_err(|error| storage("look at", stage.root().path())(error.into()))?;
    // Below a directory that is not there nothing is in the way.
    let mut there = vec![false; manifest.entries.len()];
    for (index, entry) in manifest.entries.iter().enumerate() {
        if entry.parent.is_some_and(|parent| !there[parent as usize]) {
            continue;
        }
        let failed = || to.error("look at", manifest, index);
        let parent = to.directory(manifest, entry.parent)?;
        let found = kind_at(&parent, entry).map_err(failed())?;
        there[index] = entry.kind == Kind::Directory && found.is_some();
        let problem = match (entry.kind == Kind::Directory, found.map(|found| found == SFlag::S_IFDIR)) {
            (true, Some(true)) => continue,
            (true, Some(false)) => "is not a directory (links are not followed)",
            (false, Some(true)) => "is a directory",
            _ => {
                let Some(problem) = closed(&parent, staged_on.st_dev).map_err(failed())? else { continue };
                let path = entry.parent.map(|parent| manifest.path(parent as usize)).unwrap_or_default();
                return Err(CastError::InTheWay { path: to.path().join(path), problem });
            }
        };
        return Err(CastError::InTheWay { path: to.path().join(manifest.path(index)), problem });
    }
    Ok(())
}

/// Whether all of a cast that was on its way to its place is there or still on its way, and as it was sent: a host
/// that lost its power may have kept the note and not the data, and who has got it may have taken it away.
pub fn is_whole(stage: &Stage, to: &Place) -> bool {
    let manifest = stage.manifest();
    let kind_in = |place: &Place, entry: &Entry| {
        let parent = place.directory(manifest, entry.parent).ok()?;
        kind_at(&parent, entry).ok()?
    };
    manifest.entries.iter().enumerate().all(|(index, entry)| {
        stage.goes_on();
        let found = [stage.tree(), to].into_iter().find_map(|place| Some((place, kind_in(place, entry)?)));
        let Some((place, kind)) = found else { return false };
        match entry.kind {
            Kind::Directory => kind == SFlag::S_IFDIR,
            Kind::Symlink { .. } => kind == SFlag::S_IFLNK,
            // What cannot be read has to come again.
            Kind::File { .. } | Kind::Stream => stage.is_as_sent(index, place).unwrap_or(false),
        }
    })
}

/// Why nothing from the file system `device` can be put into a directory; `None`: it can.
fn closed(directory: &OwnedFd, device: nix::libc::dev_t) -> Result<Option<&'static str>, Errno> {
    if fstat(directory)?.st_dev != device {
        return Ok(Some("is on another file system than what it is in"));
    }
    match faccessat(directory, ".", AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::AT_EACCESS) {
        Ok(()) => Ok(None),
        Err(Errno::EACCES | Errno::EROFS) => Ok(Some("cannot be written to")),
        Err(error) => Err(error),
    }
}

/// What is there under an entry's name, itself and not what it points to.
fn kind_at(directory: impl AsFd, entry: &Entry) -> Result<Option<SFlag>, Errno> {
    match fstatat(directory, entry.name.as_slice(), AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT)),
        Err(Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether something of a file has been written to it.
fn has_data(stage: &Stage, entry: &Entry) -> bool {
    let bytes = if entry.kind == Kind::Stream { stage.bytes() } else { entry.data_bytes() };
    bytes > 0
}

fn finish_files(stage: &Stage) -> Result<(), CastError> {
    let (manifest, tree) = (stage.manifest(), stage.tree());
    // On a file system that takes two names for one, the later of them has overwritten the other.
    let mut seen = HashSet::new();
    let same = |index| CastError::InTheWay {
        path: tree.path().join(manifest.path(index)),
        problem: "is another of the cast, too: the file system takes two names for one",
    };
    for (index, entry) in manifest.entries.iter().enumerate() {
        stage.goes_on();
        let file = match &entry.kind {
            Kind::Directory => File::from(tree.directory(manifest, Some(index as u32))?),
            Kind::File { .. } | Kind::Stream => {
                // One that was removed since it was verified would be made anew, empty.
                let file = match has_data(stage, entry) {
                    true => tree.open_made(manifest, index)?,
                    false => tree.open_file(manifest, index)?,
                };
                set_attributes(&file, entry).map_err(storage("finish", manifest.path(index)))?;
                file
            }
            Kind::Symlink { target } => {
                let parent = tree.directory(manifest, entry.parent)?;
                let name = entry.name.as_slice();
                match kind_at(&parent, entry).map_err(tree.error("look at", manifest, index))? {
                    // One of an earlier attempt.
                    Some(SFlag::S_IFLNK) => drop(unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir)),
                    Some(_) => return Err(same(index)),
                    None => {}
                }
                let made = symlinkat(target.as_slice(), &parent, name);
                made.map_err(tree.error("create the link", manifest, index))?;
                set_link_time(&parent, entry).map_err(tree.error("finish", manifest, index))?;
                continue;
            }
        };
        let meta = file.metadata().map_err(storage("look at", manifest.path(index)))?;
        // Directories of layered file systems may be another device's, with numbers of their own.
        if !seen.insert((meta.dev(), meta.ino())) {
            return Err(same(index));
        }
    }
    Ok(())
}

/// Directories last: those that nobody may write to have everything by then.
fn finish_directories(stage: &Stage, to: &Place) -> Result<(), CastError> {
    let manifest = stage.manifest();
    for (index, entry) in manifest.entries.iter().enumerate().rev() {
        if entry.kind == Kind::Directory {
            stage.goes_on();
            let directory = File::from(to.directory(manifest, Some(index as u32))?);
            set_attributes(&directory, entry)
                .map_err(storage("finish", to.path().join(manifest.path(index))))?;
        }
    }
    Ok(())
}

fn set_attributes(file: &File, entry: &Entry) -> std::io::Result<()> {
    file.set_permissions(Permissions::from_mode(entry.mode.into()))?;
    // A stream has no time of its own.
    if entry.kind == Kind::Stream {
        return Ok(());
    }
    let distance = Duration::from_nanos(entry.mtime_ns.unsigned_abs());
    let modified = if entry.mtime_ns < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    modified.map_or(Ok(()), |modified| file.set_times(FileTimes::new().set_modified(modified)))
}

/// Of a link itself: what it points to has its own.
fn set_link_time(directory: impl AsFd, entry: &Entry) -> Result<(), Errno> {
    // `TimeSpec::nanoseconds` panics at the first and the last second that can be said.
    let (seconds, nanoseconds) = (entry.mtime_ns.div_euclid(NS_PER_S), entry.mtime_ns.rem_euclid(NS_PER_S));
    let modified = TimeSpec::new(seconds, nanoseconds);
    let flag = UtimensatFlags::NoFollowSymlink;
    match utimensat(directory, entry.name.as_slice(), &TimeSpec::UTIME_OMIT, &modified, flag) {
        // There are file systems whose links have no time that could be set.
        Err(Errno::ENOSYS | Errno::EOPNOTSUPP) => Ok(()),
        set => set,
    }
}

struct Mover<'a> {
    stage: &'a Stage,
    to: &'a Place,
    children: Vec<Vec<u32>>,
}

impl Mover<'_> {
    /// Moves what is in a directory, or at the top.
    fn place_all(&self, directory: Option<u32>) -> Result<(), CastError> {
        let manifest = self.stage.manifest();
        let from = self.stage.tree().directory(manifest, directory)?;
        let to = self.to.directory(manifest, directory)?;
        for &child in &self.children[directory.map_or(0, |directory| directory as usize + 1)] {
            self.place(&from, &to, child)?;
        }
        Ok(())
    }

    fn place(&self, from: &OwnedFd, to: &OwnedFd, index: u32) -> Result<(), CastError> {
        self.stage.goes_on();
        let manifest = self.stage.manifest();
        let entry = &manifest.entries[index as usize];
        let failed = || self.to.error("put into place", manifest, index as usize);
        // Not staged any more: it was moved before this process was started again.
        let Some(staged) = kind_at(from, entry).map_err(failed())? else { return Ok(()) };
        let merge = staged == SFlag::S_IFDIR && kind_at(to, entry).map_err(failed())?.is_some();
        if merge {
            return self.place_all(Some(index));
        }
        let name = entry.name.as_slice();
        renameat(from, name, to, name).map_err(failed())
    }
}
