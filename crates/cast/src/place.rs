//! A directory that untrusted names are used in.
//!
//! Inputs → outputs: entries of a valid manifest → directories and files below one open directory. A
//! name is always one component, used relative to an open directory; no link is ever followed, so
//! whatever is there, nothing outside is touched. Source: openat(2), `spec/cast.md` §6.

use crate::error::{CastError, GO_ON, storage};
use crate::manifest::{Entry, Kind, Manifest};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::mkdtemp;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// No link is followed, and what is a FIFO after all does not stop us.
const FILE: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC).union(OFlag::O_NONBLOCK);

/// Who may read and write what is not in its place yet.
const OWNERS: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// An open directory.
#[derive(Debug)]
pub struct Place {
    root: OwnedFd,
    path: PathBuf,
    /// Directories in it that are closed to their own user are opened.
    reopens: bool,
}

impl Place {
    /// Opens a directory that the user named, so its own links are followed.
    ///
    /// # Errors
    /// It is not there, or none.
    pub fn open(path: &Path) -> Result<Self, CastError> {
        Self::open_as(path, DIRECTORY)
    }

    /// Opens a directory of this program's own where others may write, too: it is no link.
    ///
    /// # Errors
    /// It is not there, or none.
    pub fn open_own(path: &Path) -> Result<Self, CastError> {
        Self::open_as(path, DIRECTORY | OFlag::O_NOFOLLOW)
    }

    /// The place with those of its directories opened that an earlier attempt has closed, to its own user, too: for who
    /// sets the permissions of all in the end.
    pub fn reopening(self, reopens: bool) -> Self {
        Self { reopens, ..self }
    }

    fn open_as(path: &Path, flags: OFlag) -> Result<Self, CastError> {
        let opened = nix::fcntl::open(path, flags, Mode::empty());
        let root = opened.map_err(|error| storage("open the directory", path)(error.into()))?;
        Ok(Self { root, path: path.into(), reopens: false })
    }

    /// Whether it belongs to whoever owns what this process makes in `parent`, where it is.
    ///
    /// # Errors
    /// It cannot be looked at; nothing can be made there.
    pub fn is_own(&self, parent: &Path) -> Result<bool, CastError> {
        let about = fstat(&self.root).map_err(|error| storage("look at", &self.path)(error.into()))?;
        let failed = || storage("make a directory in", parent);
        let made = mkdtemp(&parent.join(".denrei-cast-XXXXXX")).map_err(|error| failed()(error.into()))?;
        let own = fs::symlink_metadata(&made).map_err(failed())?.uid();
        fs::remove_dir(&made).map_err(failed())?;
        Ok(about.st_uid == own)
    }

    /// A directory of this program's own in it, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made; something else is in its place.
    pub fn own_directory(&self, name: &str) -> Result<Self, CastError> {
        let path = self.path.join(name);
        let failed = |error: Errno| storage("create the directory", &path)(error.into());
        match mkdirat(&self.root, name, Mode::S_IRWXU) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = DIRECTORY | OFlag::O_NOFOLLOW;
        let root = openat(&self.root, name, flags, Mode::empty()).map_err(failed)?;
        Ok(Self { root, path, reopens: false })
    }

    /// A file of this program's own in it, opened with `flags`.
    ///
    /// # Errors
    /// It cannot be; something else is in its place.
    pub fn own_file(&self, name: &str, flags: OFlag) -> Result<File, CastError> {
        let path = self.path.join(name);
        let opened = openat(&self.root, name, flags | FILE, OWNERS);
        regular(opened.map_err(|error| storage("open", &path)(error.into()))?.into(), path)
    }

    /// That it is found by its name still: what is written to one that was removed, or moved away, is lost.
    ///
    /// # Errors
    /// It is not.
    pub fn is_found(&self) -> Result<(), CastError> {
        let failed = || storage(GO_ON, &self.path);
        let own = fstat(&self.root).map_err(|error| failed()(error.into()))?;
        let found = fs::symlink_metadata(&self.path).map_err(failed())?;
        match (found.dev(), found.ino()) == (own.st_dev, own.st_ino) {
            true => Ok(()),
            false => Err(failed()(Errno::ENOENT.into())),
        }
    }

    /// What it is called.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of an entry; the place itself for what is at the top.
    ///
    /// # Errors
    /// A directory on the way is not there, or is none (a link, for one).
    pub fn directory(&self, manifest: &Manifest, entry: Option<u32>) -> Result<OwnedFd, CastError> {
        let mut way = Vec::new();
        let mut at = entry;
        while let Some(index) = at {
            way.push(index as usize);
            at = manifest.entries[index as usize].parent;
        }
        let mut here = self.root.try_clone().map_err(storage("open", &self.path))?;
        for index in way.into_iter().rev() {
            here = self.enter(&here, manifest, index)?;
        }
        Ok(here)
    }

    /// A directory in the open one it is in.
    fn enter(&self, parent: impl AsFd, manifest: &Manifest, index: usize) -> Result<OwnedFd, CastError> {
        let name = manifest.entries[index].name.as_slice();
        let open = || openat(&parent, name, DIRECTORY | OFlag::O_NOFOLLOW, Mode::empty());
        let mode = || fchmodat(&parent, name, Mode::S_IRWXU, FchmodatFlags::NoFollowSymlink);
        let opened = match open() {
            Err(Errno::EACCES) if self.reopens && mode().is_ok() => open(),
            opened => opened,
        };
        opened.map_err(|error| match error {
            Errno::ELOOP | Errno::ENOTDIR => CastError::InTheWay {
                path: self.path.join(manifest.path(index)),
                problem: "is not a directory (links are not followed)",
            },
            error => self.error("open the directory", manifest, index)(error),
        })
    }

    /// Makes the directories of a manifest that are not there; calls `made` for each.
    ///
    /// # Errors
    /// One cannot be made.
    pub fn make_directories(&self, manifest: &Manifest, made: impl Fn()) -> Result<(), CastError> {
        // Siblings follow each other: their directory is opened once.
        let mut opened: Option<(Option<u32>, OwnedFd)> = None;
        for (index, entry) in manifest.entries.iter().enumerate() {
            if entry.kind != Kind::Directory {
                continue;
            }
            let parent = match opened.take() {
                Some((parent, fd)) if parent == entry.parent => fd,
                _ => self.directory(manifest, entry.parent)?,
            };
            match mkdirat(&parent, entry.name.as_slice(), Mode::S_IRWXU) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(error) => return Err(self.error("create the directory", manifest, index)(error)),
            }
            opened = Some((entry.parent, parent));
            made();
        }
        Ok(())
    }

    /// Opens a file to write, and makes it if it is not there, with the size it will have.
    ///
    /// # Errors
    /// It cannot be; something else is in its place.
    pub fn open_file(&self, manifest: &Manifest, index: usize) -> Result<File, CastError> {
        self.open_to_write(manifest, index, OFlag::O_CREAT)
    }

    /// Opens a file to write that has been made.
    ///
    /// # Errors
    /// It cannot be; it is not there any more, or something else is.
    pub fn open_made(&self, manifest: &Manifest, index: usize) -> Result<File, CastError> {
        self.open_to_write(manifest, index, OFlag::empty())
    }

    fn open_to_write(&self, manifest: &Manifest, index: usize, how: OFlag) -> Result<File, CastError> {
        let entry = &manifest.entries[index];
        let parent = self.directory(manifest, entry.parent)?;
        let name = entry.name.as_slice();
        let open = || openat(&parent, name, OFlag::O_RDWR | how | FILE, OWNERS);
        let opened = match open() {
            // Of an earlier attempt, which has set its permissions.
            Err(Errno::EACCES) if fchmodat(&parent, name, OWNERS, FchmodatFlags::NoFollowSymlink).is_ok() => {
                open()
            }
            opened => opened,
        };
        let what = if how.is_empty() { "find" } else { "create" };
        let file: File = opened.map_err(self.error(what, manifest, index))?.into();
        let path = self.path.join(manifest.path(index));
        let file = regular(file, path.clone())?;
        let failed = || storage(what, &path);
        let meta = file.metadata().map_err(failed())?;
        match entry.kind {
            Kind::File { size, .. } if meta.len() != size => file.set_len(size).map_err(failed())?,
            _ => {}
        }
        Ok(file)
    }

    /// Opens a file to read, if it is this user's even one that its user may not read.
    ///
    /// # Errors
    /// It cannot be; something else is in its place.
    pub fn read_file(&self, manifest: &Manifest, index: usize) -> Result<File, CastError> {
        let entry = &manifest.entries[index];
        let parent = self.directory(manifest, entry.parent)?;
        let name = entry.name.as_slice();
        let opened = match open_to_read(&parent, name) {
            Err(Errno::EACCES) => open_closed(&parent, name),
            opened => opened,
        };
        let file: File = opened.map_err(self.error("open", manifest, index))?.into();
        regular(file, self.path.join(manifest.path(index)))
    }

    /// What a refused call about an entry is called.
    pub fn error(
        &self,
        what: &'static str,
        manifest: &Manifest,
        index: usize,
    ) -> impl FnOnce(Errno) -> CastError {
        let path = self.path.join(manifest.path(index));
        move |error| storage(what, path)(io::Error::from(error))
    }
}

fn open_to_read(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    openat(directory, name, OFlag::O_RDONLY | FILE, Mode::empty())
}

/// Opens a file to read that permissions keep its own user from, and leaves it with those.
fn open_closed(directory: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let found = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let set = |mode| fchmodat(directory, name, mode, FchmodatFlags::NoFollowSymlink);
    let mode = Mode::from_bits_truncate(found.st_mode);
    // Another's stays closed.
    set(mode | Mode::S_IRUSR).map_err(|_| Errno::EACCES)?;
    let opened = open_to_read(directory, name);
    set(mode)?;
    opened
}

/// A file, which a device or a FIFO is not.
fn regular(file: File, path: PathBuf) -> Result<File, CastError> {
    let meta = file.metadata().map_err(storage("look at", &path))?;
    if meta.is_file() { Ok(file) } else { Err(CastError::InTheWay { path, problem: "is not a file" }) }
}

impl AsFd for Place {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// The entries that are at the top, or in a directory.
pub fn children(manifest: &Manifest) -> Vec<Vec<u32>> {
    let mut children = vec![Vec::new(); manifest.entries.len() + 1];
    for (index, Entry { parent, .. }) in manifest.entries.iter().enumerate() {
        // Number 0 is the top, a directory's is one more than its entry's.
        children[parent.map_or(0, |parent| parent as usize + 1)].push(index as u32);
    }
    children
}
