//! From paths to a manifest: what there is to send.
//!
//! Inputs → outputs: the paths that a user names → a [`Manifest`] and, entry by entry, where its
//! content is. Links that are named are followed; links below are sent as links, if they stay in
//! their tree. Source: `spec/cast.md` §3.

use crate::error::{CastError, shown, storage};
use crate::manifest::{
    CLIMBS_LATE, Entry, Extent, Kind, MAX_DEPTH, MAX_ENTRIES, Manifest, ManifestError, STAGING_PREFIX,
    check_target,
};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::Whence;
#[cfg(not(target_os = "linux"))]
use nix::unistd::lseek as lseek64;
#[cfg(target_os = "linux")]
use nix::unistd::lseek64;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Holes that are smaller are sent as the zeros they read as, bytes: a part costs 16 in the manifest,
/// and a file system's block is no smaller than this.
const MIN_HOLE_BYTES: u64 = 64 << 10;
/// Parts of one file, at most: what is beyond is sent with its holes.
const MAX_EXTENTS: usize = 1 << 16;

/// Of what is in more than [`MAX_DEPTH`] directories.
const TOO_DEEP: &str = "it is in more than 64 directories, and receivers take no more; send one of those, or all as a \
                        stream: tar c PATH | denrei cast send - ...";

/// Of a file that the system makes while it is read.
const SIZELESS: &str = "there is more in it than its size says, as in files below /proc; send a copy of it, or what is \
                        in it as a stream: denrei cast send - ... < PATH";

/// What there is to send.
#[derive(Debug)]
pub struct Scan {
    /// The entries.
    pub manifest: Manifest,
    /// Where each of them is here.
    pub sources: Vec<PathBuf>,
    /// When each of them changed last, in itself or in what describes it, nanoseconds since 1970.
    pub changed_ns: Vec<i64>,
    /// What was left out, a sentence each.
    pub skipped: Vec<String>,
}

/// Looks at everything below `paths`. With `dereference` links are sent as what they point to.
///
/// # Errors
/// What cannot be read; links that leave their tree; two paths of one name.
pub fn scan(paths: &[PathBuf], dereference: bool) -> Result<Scan, CastError> {
    let manifest = Manifest { nonce: [0; 16], entries: Vec::new() };
    let mut scan = Scanner {
        found: Scan { manifest, sources: Vec::new(), changed_ns: Vec::new(), skipped: Vec::new() },
        dereference,
    };
    for path in paths {
        scan.top(path)?;
    }
    if let (true, Some(first)) = (scan.found.manifest.entries.is_empty(), paths.first()) {
        let problem = if first.is_dir() {
            "there is nothing in it that can be sent"
        } else {
            "it is neither a file nor a directory"
        };
        return Err(CastError::Unsendable { path: first.into(), problem });
    }
    scan.found.manifest.validate()?;
    Ok(scan.found)
}

struct Scanner {
    found: Scan,
    dereference: bool,
}

impl Scanner {
    fn top(&mut self, path: &Path) -> Result<(), CastError> {
        let real = fs::canonicalize(path).map_err(storage("find", path))?;
        let meta = fs::metadata(&real).map_err(storage("find", path))?;
        // `.`, `..` and `/` have no name of their own: what is in them goes to the top.
        match path.file_name() {
            None if meta.is_dir() => self.directory(&real, None, 0),
            None => Err(CastError::Unsendable { path: path.into(), problem: "it has no name" }),
            Some(name) => self.entry(real.clone(), name.as_bytes().to_vec(), None, &meta, 0),
        }
    }

    fn directory(&mut self, path: &Path, parent: Option<u32>, depth: u32) -> Result<(), CastError> {
        let listing = fs::read_dir(path).map_err(storage("read the directory", path))?;
        let mut children =
            listing.collect::<Result<Vec<_>, _>>().map_err(storage("read the directory", path))?;
        // The same tree gives the same manifest, and so the same name of the cast.
        children.sort_by_key(fs::DirEntry::file_name);
        for child in children {
            let path = child.path();
            if parent.is_none() && child.file_name().as_bytes().starts_with(STAGING_PREFIX.as_bytes()) {
                self.skip(&path, "the state of a cast that is being received, and not sent");
                continue;
            }
            let look = if self.dereference { fs::metadata } else { fs::symlink_metadata };
            let meta = look(&path).map_err(storage("look at", &path))?;
            self.entry(path, child.file_name().as_bytes().to_vec(), parent, &meta, depth)?;
        }
        Ok(())
    }

    fn skip(&mut self, path: &Path, why: &str) {
        self.found.skipped.push(format!("{}: {why}", shown(path)));
    }

    fn entry(
        &mut self,
        path: PathBuf,
        name: Vec<u8>,
        parent: Option<u32>,
        meta: &Metadata,
        depth: u32,
    ) -> Result<(), CastError> {
        let kind = if meta.is_dir() {
            Kind::Directory
        } else if meta.is_file() {
            Kind::File { size: meta.len(), extents: extents(&path, meta)? }
        } else if meta.is_symlink() {
            link(&path, depth)?
        } else {
            self.skip(&path, "neither a file nor a directory nor a link, and not sent");
            return Ok(());
        };
        let index = self.found.manifest.entries.len();
        if index >= MAX_ENTRIES {
            let (value, max) = (index as u64 + 1, MAX_ENTRIES as u64);
            return Err(ManifestError::TooLarge { what: "entries", value, max }.into());
        }
        if depth > MAX_DEPTH {
            return Err(CastError::Unsendable { path, problem: TOO_DEEP });
        }
        let descend = kind == Kind::Directory;
        let mode = (meta.mode() & 0o777) as u16;
        let mtime_ns = mtime_ns(meta);
        self.found.manifest.entries.push(Entry { parent, name, mode, mtime_ns, kind });
        self.found.sources.push(path.clone());
        self.found.changed_ns.push(changed_ns(meta));
        if descend { self.directory(&path, Some(index as u32), depth + 1) } else { Ok(()) }
    }
}

/// Opens a file to read. One that has become a FIFO since it was looked at keeps nobody waiting.
///
/// # Errors
/// It is not there, or cannot be read.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)
}

/// When a file was written to last, nanoseconds since 1970.
pub fn mtime_ns(meta: &Metadata) -> i64 {
    meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec())
}

/// When a file, its permissions, names or times were changed last, nanoseconds since 1970. Nobody sets it back.
pub(crate) fn changed_ns(meta: &Metadata) -> i64 {
    meta.ctime().saturating_mul(1_000_000_000).saturating_add(meta.ctime_nsec())
}

fn link(path: &Path, depth: u32) -> Result<Kind, CastError> {
    let target = fs::read_link(path).map_err(storage("read the link", path))?.into_os_string();
    let target = target.as_bytes().to_vec();
    match check_target(&target, depth) {
        Ok(()) => Ok(Kind::Symlink { target }),
        Err(CLIMBS_LATE) => Err(CastError::Unsendable {
            path: path.into(),
            problem: "this symbolic link has `..` behind a name, which receivers do not take, for the name may be \
                      a link itself; make it again without, send what it points to with --dereference, or \
                      remove it",
        }),
        Err(_) => Err(CastError::Unsendable {
            path: path.into(),
            problem: "this symbolic link points out of the tree that is sent; send what it points to with \
                      --dereference, or remove it",
        }),
    }
}

/// Where a file has data.
///
/// # Errors
/// It cannot be read; it has something in it, but no size.
pub(crate) fn extents(path: &Path, meta: &Metadata) -> Result<Vec<Extent>, CastError> {
    let size = meta.len();
    // One that cannot be read is said before anything is sent.
    let file = open(path).map_err(storage("read", path))?;
    if size == 0 {
        return match file.read_at(&mut [0], 0).map_err(storage("read", path))? {
            0 => Ok(vec![]),
            _ => Err(CastError::Unsendable { path: path.into(), problem: SIZELESS }),
        };
    }
    let whole = || vec![Extent { offset: 0, len: size }];
    // Fewer blocks than the size would take: there are holes.
    if meta.blocks().saturating_mul(512) >= size {
        return Ok(whole());
    }
    let mut found: Vec<Extent> = Vec::new();
    let mut at = 0;
    while let Some(offset) = seek(&file, at, Whence::SeekData).map_err(storage("read", path))? {
        let end = seek(&file, offset, Whence::SeekHole).map_err(storage("read", path))?.unwrap_or(size);
        at = end.min(size);
        if offset >= at {
            break;
        }
        match found.last_mut() {
            Some(last) if offset - (last.offset + last.len) < MIN_HOLE_BYTES => last.len = at - last.offset,
            _ => found.push(Extent { offset, len: at - offset }),
        }
        if found.len() > MAX_EXTENTS {
            return Ok(whole());
        }
    }
    Ok(found)
}

/// The next data or hole; `None`: there is none up to the end. A file system that knows no holes says
/// that all is data.
fn seek(file: &File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    match lseek64(file, from as i64, whence) {
        Ok(offset) => Ok(Some(offset as u64)),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(scan: &Scan) -> Vec<String> {
        let manifest = &scan.manifest;
        (0..manifest.entries.len()).map(|n| manifest.path(n).display().to_string()).collect()
    }

    #[test]
    fn a_tree_is_listed_in_order_with_modes_and_holes() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("sub")).unwrap();
        fs::write(top.join("b"), "hello").unwrap();
        fs::set_permissions(top.join("b"), fs::Permissions::from_mode(0o6751)).unwrap();
        symlink("../b", top.join("sub/link")).unwrap();
        let sparse = File::create(top.join("a")).unwrap();
        sparse.set_len(10 << 20).unwrap();
        sparse.write_all_at(b"middle", 5 << 20).unwrap();
        nix::unistd::mkfifo(&top.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let found = scan(std::slice::from_ref(&top), false).unwrap();
        assert_eq!(names(&found), ["top", "top/a", "top/b", "top/sub", "top/sub/link"]);
        assert_eq!(found.manifest.entries[2].mode, 0o751, "no setuid");
        let Kind::File { size, extents } = &found.manifest.entries[1].kind else { panic!() };
        assert_eq!(*size, 10 << 20);
        let data: u64 = extents.iter().map(|extent| extent.len).sum();
        assert!(data < 1 << 20, "{extents:?}");
        assert!(extents.iter().any(|e| e.offset <= 5 << 20 && e.offset + e.len >= (5 << 20) + 6));
        assert!(found.skipped.len() == 1 && found.skipped[0].contains("pipe"), "{:?}", found.skipped);
        // The directory itself by another name.
        let inside = scan(&[top.join(".")], false).unwrap();
        assert_eq!(names(&inside)[0], "top");
    }

    /// Of a directory that casts are received into all else can be sent.
    #[test]
    fn what_is_being_received_is_left_out_and_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(".denrei-cast-0123/tree")).unwrap();
        fs::write(dir.path().join("f"), "here").unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        let found = scan(&[dir.path().join("sub/..")], false).unwrap();
        assert_eq!(names(&found), ["f", "sub"]);
        assert!(found.skipped[0].contains(".denrei-cast-0123: the state"), "{:?}", found.skipped);
    }

    #[test]
    fn a_link_out_of_the_tree_is_refused_or_followed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        fs::write(dir.path().join("outside"), "x").unwrap();
        symlink("../outside", top.join("link")).unwrap();
        let error = scan(std::slice::from_ref(&top), false).unwrap_err().to_string();
        assert!(error.contains("--dereference") && error.contains("top/link"), "{error}");
        let found = scan(&[top], true).unwrap();
        assert!(matches!(found.manifest.entries[1].kind, Kind::File { size: 1, .. }));
    }

    #[test]
    fn a_link_that_climbs_behind_a_name_is_refused_for_that() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir_all(top.join("x/y")).unwrap();
        symlink("x/y", top.join("q")).unwrap();
        symlink("q/..", top.join("r")).unwrap();
        let error = scan(std::slice::from_ref(&top), false).unwrap_err().to_string();
        assert!(error.contains("top/r: ") && error.contains("`..` behind a name"), "{error}");
        assert!(!error.contains("out of the tree"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_cannot_be_read_is_named_before_anything_is_sent() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "of root's").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        // Of this thread alone, and without effect for others than root, who cannot read it anyway.
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65_534));
        let error = scan(std::slice::from_ref(&path), false).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot read {}", path.display())), "{error}");
    }

    #[test]
    fn two_of_one_name_and_none_at_all_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for sub in ["a", "b"] {
            fs::create_dir(dir.path().join(sub)).unwrap();
            fs::write(dir.path().join(sub).join("same"), "x").unwrap();
        }
        let paths = [dir.path().join("a/same"), dir.path().join("b/same")];
        assert!(scan(&paths, false).unwrap_err().to_string().contains("two of that name"));
        let error = scan(&[dir.path().join("none")], false).unwrap_err().to_string();
        assert!(error.contains("none") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn what_is_too_deep_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let names = (0..=MAX_DEPTH).map(|depth| format!("d{depth}"));
        let (top, deepest) = (dir.path().join("d0"), dir.path().join(names.collect::<PathBuf>()));
        fs::create_dir_all(&deepest).unwrap();
        assert!(scan(std::slice::from_ref(&top), false).is_ok());
        fs::write(deepest.join("leaf"), "x").unwrap();
        let error = scan(std::slice::from_ref(&top), false).unwrap_err().to_string();
        assert!(
            error.contains("d63/d64/leaf: ") && error.contains(&format!("more than {MAX_DEPTH} ")),
            "{error}"
        );
    }

    /// It would arrive as an empty file, and be reported as complete.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_file_that_has_no_size_but_something_in_it_is_refused_by_its_name() {
        let error = scan(&["/proc/version".into()], false).unwrap_err().to_string();
        assert!(error.starts_with("/proc/version: ") && error.contains("cast send - "), "{error}");
    }

    #[test]
    fn a_device_is_refused_by_its_name() {
        let error = scan(&["/dev/null".into()], false).unwrap_err().to_string();
        assert_eq!(error, "/dev/null: it is neither a file nor a directory");
    }
}
