//! The manifest: what a cast consists of, and whether it may be written here.
//!
//! Inputs → outputs: entries ↔ bytes. A manifest that came from elsewhere is untrusted:
//! [`Manifest::decode`] returns only those that [`Manifest::validate`] accepts, and such a one cannot
//! name anything outside of the directory it is received into. Source: `spec/cast.md` §3.
//!
//! An entry has one name and the number of the directory it is in, instead of a path: there is no way
//! to write `../x` or `/x`, and no entry without its directory.

use bytes::{Buf, BufMut};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use thiserror::Error;

/// Largest manifest, bytes: about half a million files with names of 100 octets.
pub const MAX_MANIFEST_BYTES: u64 = 64 << 20;
/// Most entries of a manifest: bounds what a receiver holds for it beside the manifest's own bytes.
pub const MAX_ENTRIES: usize = 1 << 20;
/// Deepest directory: bounds recursion, and the descriptors a walk needs.
pub const MAX_DEPTH: u32 = 64;
/// Longest name, octets: what Linux file systems have.
pub const MAX_NAME_BYTES: usize = 255;
/// Longest target of a symbolic link, octets: PATH_MAX less its end.
pub const MAX_TARGET_BYTES: usize = 4095;
/// Names of this beginning, at the top, are the receiver's own.
pub const STAGING_PREFIX: &str = ".denrei-cast-";

const VERSION: u8 = 1;
const ROOT: u32 = u32::MAX;
const PERMISSIONS: u16 = 0o777;

/// What a cast consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Makes two casts of the same entries different ones; zero for files, which are the same content
    /// if all else is equal, random for a stream.
    pub nonce: [u8; 16],
    /// A directory comes before what is in it.
    pub entries: Vec<Entry>,
}

/// One file, directory, symbolic link or stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the directory's entry; `None` at the top.
    pub parent: Option<u32>,
    /// Its name there: octets without `/`.
    pub name: Vec<u8>,
    /// Permissions: the lower nine bits of the mode.
    pub mode: u16,
    /// Time of modification, nanoseconds since 1970.
    pub mtime_ns: i64,
    /// What it is.
    pub kind: Kind,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file.
    File {
        /// Its size, bytes.
        size: u64,
        /// Where it has data, ascending; the rest are holes.
        extents: Vec<Extent>,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points.
        target: Vec<u8>,
    },
    /// Bytes whose number is not known before they end; alone in its manifest.
    Stream,
}

/// A part of a file that has data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// From, bytes.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Why a manifest is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Not a manifest.
    #[error("the manifest cannot be read: {0}")]
    Malformed(&'static str),
    /// Too much.
    #[error("the manifest has {value} {what}, but {max} is the most")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many it has.
        value: u64,
        /// How many it may have.
        max: u64,
    },
    /// An entry that may not be written here.
    #[error("the manifest's entry {path:?} is refused: {problem}")]
    Entry {
        /// Its path, as far as it can be told.
        path: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Two entries of one name in one directory.
    #[error("the manifest's entry {path:?} is refused: there are two of that name")]
    Twice {
        /// Their path.
        path: String,
    },
}

impl Manifest {
    /// The bytes of it; their BLAKE3 hash names the cast.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.nonce);
        out.put_u32_le(self.entries.len() as u32);
        for entry in &self.entries {
            entry.encode(&mut out);
        }
        out
    }

    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// Anything that would be outside of the receiving directory, or is not well formed.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, ManifestError> {
        within("bytes", bytes.len() as u64, MAX_MANIFEST_BYTES)?;
        let short = |_| ManifestError::Malformed("it is cut short");
        if bytes.try_get_u8().map_err(short)? != VERSION {
            return Err(ManifestError::Malformed("another version"));
        }
        let mut nonce = [0; 16];
        bytes.try_copy_to_slice(&mut nonce).map_err(short)?;
        let count = bytes.try_get_u32_le().map_err(short)? as usize;
        within("entries", count as u64, MAX_ENTRIES as u64)?;
        // Room grows with what is there to read, not with what is announced.
        let mut entries = Vec::new();
        for _ in 0..count {
            entries.push(Entry::decode(&mut bytes)?);
        }
        if !bytes.is_empty() {
            return Err(ManifestError::Malformed("something follows its end"));
        }
        let manifest = Self { nonce, entries };
        manifest.validate()?;
        Ok(manifest)
    }

    /// Whether everything in it stays inside of the directory it is received into.
    ///
    /// # Errors
    /// The first entry that does not, and why.
    pub fn validate(&self) -> Result<(), ManifestError> {
        within("entries", self.entries.len() as u64, MAX_ENTRIES as u64)?;
        if self.entries.is_empty() {
            return Err(ManifestError::Malformed("it has no entries"));
        }
        let mut depths: Vec<u32> = Vec::with_capacity(self.entries.len());
        let mut seen = HashSet::with_capacity(self.entries.len());
        let mut body_bytes = 0_u64;
        for (index, entry) in self.entries.iter().enumerate() {
            let refuse = |problem| ManifestError::Entry { path: self.shown(index), problem };
            entry.check_name().map_err(refuse)?;
            let depth = self.depth_of(entry, &depths).map_err(refuse)?;
            entry.check_kind(depth, self.entries.len()).map_err(refuse)?;
            if !seen.insert((entry.parent, entry.name.as_slice())) {
                return Err(ManifestError::Twice { path: self.shown(index) });
            }
            body_bytes = body_bytes.checked_add(entry.data_bytes()).ok_or(refuse("too large"))?;
            depths.push(depth);
        }
        within("bytes of content", body_bytes, i64::MAX as u64)
    }

    /// How many directories an entry is in.
    fn depth_of(&self, entry: &Entry, depths: &[u32]) -> Result<u32, &'static str> {
        let Some(parent) = entry.parent else { return Ok(0) };
        let depth = *depths.get(parent as usize).ok_or("its directory is not before it")?;
        if self.entries[parent as usize].kind != Kind::Directory {
            return Err("what it is in is no directory");
        }
        if depth + 1 > MAX_DEPTH { Err("it is too deep") } else { Ok(depth + 1) }
    }

    /// Whether it is one stream.
    pub fn is_stream(&self) -> bool {
        matches!(self.entries.first(), Some(Entry { kind: Kind::Stream, .. }))
    }

    /// Where an entry of a valid manifest is, below the receiving directory.
    pub fn path(&self, index: usize) -> PathBuf {
        let mut names = Vec::new();
        let mut at = Some(index);
        while let Some(entry) = at.and_then(|index| self.entries.get(index)) {
            names.push(OsStr::from_bytes(&entry.name));
            // What is not valid may go in circles.
            at = entry.parent.map(|parent| parent as usize).filter(|_| names.len() <= MAX_DEPTH as usize);
        }
        names.iter().rev().collect()
    }

    fn shown(&self, index: usize) -> String {
        // `PathBuf::push` of an absolute name would hide what is before it; this is for people only.
        let name = String::from_utf8_lossy(&self.entries[index].name).into_owned();
        match self.entries[index].parent {
            Some(parent) if (parent as usize) < index => {
                format!("{}/{name}", self.path(parent as usize).display())
            }
            _ => name,
        }
    }

    /// The files of it and the directories, and what they hold: files, directories, bytes of data.
    pub fn totals(&self) -> (u64, u64, u64) {
        let count =
            |wanted: fn(&Kind) -> bool| self.entries.iter().filter(|e| wanted(&e.kind)).count() as u64;
        let files = count(|kind| matches!(kind, Kind::File { .. } | Kind::Stream));
        let directories = count(|kind| matches!(kind, Kind::Directory));
        (files, directories, self.entries.iter().map(Entry::data_bytes).sum())
    }
}

impl Entry {
    /// Bytes of data, without holes.
    pub fn data_bytes(&self) -> u64 {
        match &self.kind {
            Kind::File { extents, .. } => {
                extents.iter().fold(0, |sum: u64, extent| sum.saturating_add(extent.len))
            }
            _ => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32_le(self.parent.unwrap_or(ROOT));
        out.put_u8(match self.kind {
            Kind::Directory => 0,
            Kind::File { .. } => 1,
            Kind::Symlink { .. } => 2,
            Kind::Stream => 3,
        });
        out.put_u16_le(self.mode);
        out.put_i64_le(self.mtime_ns);
        out.put_u16_le(self.name.len() as u16);
        out.put_slice(&self.name);
        match &self.kind {
            Kind::Directory | Kind::Stream => {}
            Kind::File { size, extents } => {
                out.put_u64_le(*size);
                out.put_u32_le(extents.len() as u32);
                for extent in extents {
                    out.put_u64_le(extent.offset);
                    out.put_u64_le(extent.len);
                }
            }
            Kind::Symlink { target } => {
                out.put_u16_le(target.len() as u16);
                out.put_slice(target);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, ManifestError> {
        let short = |_| ManifestError::Malformed("it is cut short");
        let parent = Some(bytes.try_get_u32_le().map_err(short)?).filter(|parent| *parent != ROOT);
        let kind = bytes.try_get_u8().map_err(short)?;
        let mode = bytes.try_get_u16_le().map_err(short)?;
        let mtime_ns = bytes.try_get_i64_le().map_err(short)?;
        let name = take_text(bytes)?;
        let kind = match kind {
            0 => Kind::Directory,
            1 => {
                let size = bytes.try_get_u64_le().map_err(short)?;
                let count = bytes.try_get_u32_le().map_err(short)?;
                let mut extents = Vec::new();
                for _ in 0..count {
                    let offset = bytes.try_get_u64_le().map_err(short)?;
                    extents.push(Extent { offset, len: bytes.try_get_u64_le().map_err(short)? });
                }
                Kind::File { size, extents }
            }
            2 => Kind::Symlink { target: take_text(bytes)? },
            3 => Kind::Stream,
            _ => return Err(ManifestError::Malformed("an entry of an unknown kind")),
        };
        Ok(Self { parent, name, mode, mtime_ns, kind })
    }

    fn check_name(&self) -> Result<(), &'static str> {
        let name = self.name.as_slice();
        if name.is_empty() || name == b"." || name == b".." {
            return Err("a name has to name something inside of its directory");
        }
        if name.contains(&b'/') || name.contains(&0) {
            return Err("a name with a slash or a zero in it could lead out of the receiving directory");
        }
        if name.len() > MAX_NAME_BYTES {
            return Err("the name is too long");
        }
        if self.parent.is_none() && name.starts_with(STAGING_PREFIX.as_bytes()) {
            return Err("such names are kept for what is being received");
        }
        if self.mode & !PERMISSIONS != 0 { Err("only permissions are taken, no setuid") } else { Ok(()) }
    }

    fn check_kind(&self, depth: u32, entries: usize) -> Result<(), &'static str> {
        match &self.kind {
            Kind::Directory => Ok(()),
            Kind::File { size, extents } => check_extents(*size, extents),
            Kind::Symlink { target } => check_target(target, depth),
            Kind::Stream if depth == 0 && entries == 1 => Ok(()),
            Kind::Stream => Err("a stream has to be alone"),
        }
    }
}

fn check_extents(size: u64, extents: &[Extent]) -> Result<(), &'static str> {
    if size > i64::MAX as u64 {
        return Err("it is larger than a file can be");
    }
    let mut end = 0;
    for extent in extents {
        let next = extent.offset.checked_add(extent.len).filter(|next| *next <= size);
        if extent.len == 0 || extent.offset < end {
            return Err("its parts are empty or not in order");
        }
        end = next.ok_or("a part of it is behind its end")?;
    }
    Ok(())
}

/// A `..` behind a name, which may be a link that leads elsewhere.
pub const CLIMBS_LATE: &str = "the link climbs after it has descended: it may leave the tree";

/// Whether a link `depth` directories below the receiving one stays inside of the tree it came with:
/// relative; `..` only at the beginning, and fewer of them than there are directories above it. Then it
/// climbs real directories only, and descends from one that is inside; another link it meets there is
/// held to the same rule.
pub fn check_target(target: &[u8], depth: u32) -> Result<(), &'static str> {
    if target.is_empty() || target.len() > MAX_TARGET_BYTES || target.contains(&0) {
        return Err("where the link points is no path");
    }
    if target[0] == b'/' {
        return Err("the link is absolute: it points out of the tree");
    }
    let mut climbed = 0;
    let mut descended = false;
    for part in target.split(|octet| *octet == b'/').filter(|part| !part.is_empty() && *part != b".") {
        match part {
            b".." if descended => {
                return Err(CLIMBS_LATE);
            }
            b".." => climbed += 1,
            _ => descended = true,
        }
    }
    if climbed > depth.saturating_sub(1) { Err("the link points out of the tree") } else { Ok(()) }
}

fn within(what: &'static str, value: u64, max: u64) -> Result<(), ManifestError> {
    if value <= max { Ok(()) } else { Err(ManifestError::TooLarge { what, value, max }) }
}

fn take_text(bytes: &mut &[u8]) -> Result<Vec<u8>, ManifestError> {
    let short = ManifestError::Malformed("it is cut short");
    let len = bytes.try_get_u16_le().map_err(|_| short.clone())? as usize;
    let (text, rest) = bytes.split_at_checked(len).ok_or(short)?;
    *bytes = rest;
    Ok(text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry(parent: Option<u32>, name: &str, kind: Kind) -> Entry {
        Entry { parent, name: name.into(), mode: 0o644, mtime_ns: -5, kind }
    }

    fn file(size: u64, extents: &[(u64, u64)]) -> Kind {
        let extents = extents.iter().map(|&(offset, len)| Extent { offset, len }).collect();
        Kind::File { size, extents }
    }

    fn link(target: &str) -> Kind {
        Kind::Symlink { target: target.into() }
    }

    fn of(entries: Vec<Entry>) -> Manifest {
        Manifest { nonce: [7; 16], entries }
    }

    #[test]
    fn a_tree_survives_the_way() {
        let manifest = of(vec![
            entry(None, "top", Kind::Directory),
            entry(Some(0), "data", file(1 << 40, &[(0, 5), (1 << 30, 4096)])),
            entry(Some(0), "sub", Kind::Directory),
            entry(Some(2), "up", link("../data")),
            entry(Some(2), "empty", file(0, &[])),
        ]);
        assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest.clone()));
        assert_eq!(manifest.path(3), PathBuf::from("top/sub/up"));
        assert_eq!(manifest.totals(), (2, 2, 4101));
    }

    #[test]
    fn whatever_would_lead_out_is_refused() {
        let top = || entry(None, "top", Kind::Directory);
        let cases = [
            (vec![entry(None, "../x", file(0, &[]))], "slash"),
            (vec![entry(None, "..", Kind::Directory)], "inside"),
            (vec![entry(None, "/etc/passwd", file(0, &[]))], "slash"),
            (vec![entry(None, "", Kind::Directory)], "inside"),
            (vec![entry(None, "a\0b", Kind::Directory)], "zero"),
            (vec![entry(None, ".denrei-cast-1", Kind::Directory)], "kept"),
            (vec![entry(Some(0), "x", Kind::Directory)], "before it"),
            (vec![top(), entry(Some(1), "x", Kind::Directory)], "before it"),
            (vec![top(), entry(Some(0), "l", link("a")), entry(Some(1), "x", file(0, &[]))], "no directory"),
            (vec![top(), entry(Some(0), "l", link("/etc"))], "absolute"),
            (vec![top(), entry(Some(0), "l", link("../x"))], "out of the tree"),
            (vec![top(), entry(Some(0), "l", link("a/../../x"))], "climbs after"),
            (vec![top(), entry(Some(0), "l", link(""))], "no path"),
            (vec![top(), top()], "two of that name"),
            (vec![top(), entry(None, "s", Kind::Stream)], "alone"),
            (vec![entry(None, "f", file(10, &[(5, 6)]))], "behind its end"),
            (vec![entry(None, "f", file(10, &[(5, 2), (6, 1)]))], "not in order"),
            (vec![entry(None, "f", file(10, &[(5, u64::MAX)]))], "behind its end"),
            (vec![entry(None, "f", file(u64::MAX, &[]))], "larger than"),
            (vec![Entry { mode: 0o4755, ..top() }], "setuid"),
        ];
        for (entries, problem) in cases {
            let error = Manifest::decode(&of(entries.clone()).encode()).unwrap_err().to_string();
            assert!(error.contains(problem), "{entries:?}: {error}");
        }
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let deep = (0..MAX_DEPTH + 2).map(|n| entry(n.checked_sub(1), "d", Kind::Directory)).collect();
        assert!(of(deep).validate().unwrap_err().to_string().contains("too deep"));
        let mut announced = of(vec![entry(None, "x", Kind::Directory)]).encode();
        announced[17..21].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Manifest::decode(&announced).unwrap_err().to_string().contains("is the most"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::decode(&bytes);
        }

        #[test]
        fn damage_is_refused_or_stays_inside(at in 0usize..80, value: u8) {
            let mut bytes = of(vec![
                entry(None, "t", Kind::Directory),
                entry(Some(0), "f", file(9, &[(1, 3)])),
                entry(Some(0), "l", link("./f")),
            ]).encode();
            let at = at % bytes.len();
            bytes[at] = value;
            if let Ok(manifest) = Manifest::decode(&bytes) {
                for index in 0..manifest.entries.len() {
                    let path = manifest.path(index);
                    prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
                }
            }
        }
    }
}
