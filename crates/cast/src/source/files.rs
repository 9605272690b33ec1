//! The files of a sender's content: read where they are, each piece when it is due.
//!
//! Inputs → outputs: a piece of the body → its message, with the digests of the files that end in it. What is sent of a
//! file is of one state of it: one that changes on the way ends the cast. Source: `spec/cast.md` §4, §5.

use crate::body::{Body, Part};
use crate::error::{CastError, storage};
use crate::manifest::{Entry, Kind, Manifest};
use crate::message::{Digest, PIECE_BYTES, piece_head};
use crate::scan::{changed_ns, extents, mtime_ns, open};
use blake3::Hasher;
use bytes::Bytes;
use denrei::PageMemory;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Where they are, and how far they are read.
#[derive(Debug)]
pub(super) struct Files {
    body: Body,
    paths: Vec<PathBuf>,
    /// When each changed last, as far as is known.
    changed_ns: Vec<i64>,
    /// Of each file, once known.
    digests: Vec<Option<Digest>>,
    open: Option<(usize, File)>,
    /// The file whose digest is being computed, and how many bytes of its data are in.
    hashing: Option<(usize, u64, Hasher)>,
}

impl Files {
    /// Those that `manifest` describes, where they are, and when they had changed last before that.
    pub fn new(manifest: &Manifest, paths: Vec<PathBuf>, changed_ns: Vec<i64>) -> Self {
        let digests = vec![None; manifest.entries.len()];
        Self { body: Body::new(manifest, PIECE_BYTES), paths, changed_ns, digests, open: None, hashing: None }
    }

    /// The pieces that they make.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// How much is in the digest that is being computed.
    #[cfg(test)]
    pub fn hashed_bytes(&self) -> u64 {
        self.hashing.as_ref().map_or(0, |(_, done, _)| *done)
    }

    /// That the files which have nothing to be read, and so are looked at no more, are what they were.
    ///
    /// # Errors
    /// One cannot be read, or has changed.
    pub fn look_at_those_without_data(&mut self, manifest: &Manifest) -> Result<(), CastError> {
        let of = |(index, entry): (usize, &Entry)| {
            (matches!(entry.kind, Kind::File { .. }) && entry.data_bytes() == 0).then_some(index)
        };
        manifest
            .entries
            .iter()
            .enumerate()
            .filter_map(of)
            .try_for_each(|index| self.read(manifest, index, 0, &mut []))
    }

    /// The message of a piece, the body's `number`, and its bytes of the body.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub fn message(
        &mut self,
        manifest: &Manifest,
        cast: u64,
        piece: u32,
        number: u32,
    ) -> Result<(Bytes, u64), CastError> {
        let parts: Vec<Part> = self.body.parts(number).collect();
        let ending = parts.iter().filter(|part| part.last).count();
        let len = self.body.piece_len(number);
        // The head has the digests, which are known once the data is read.
        let mut out = piece_head(cast, piece, false, &vec![[0; 32]; ending], len);
        let data_at = out.len();
        out.resize(data_at + len, 0);
        let mut digests = Vec::new();
        for part in parts {
            let into = &mut out[data_at + part.at..data_at + part.at + part.len];
            self.read(manifest, part.entry, part.offset, into)?;
            self.hash(part.entry, part.data_offset, into);
            if part.last {
                digests.push(self.digest(manifest, part.entry)?);
            }
        }
        let digests_at = data_at - ending * 32;
        for (into, digest) in out[digests_at..data_at].chunks_exact_mut(32).zip(&digests) {
            into.copy_from_slice(digest);
        }
        Ok((out.into(), len as u64))
    }

    /// Reads from a file that is what it was when it was looked at, or has the same in it.
    fn read(
        &mut self,
        manifest: &Manifest,
        entry: usize,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), CastError> {
        for _ in 0..2 {
            // After reading: what was written before is seen here.
            let meta = self.read_at(entry, offset, into)?;
            self.check(manifest, entry, &meta)?;
            if changed_ns(&meta) == self.changed_ns[entry] {
                return Ok(());
            }
            self.look_again(manifest, entry, &meta)?;
        }
        Err(self.changed(entry))
    }

    fn changed(&self, entry: usize) -> CastError {
        CastError::Changed { path: self.paths[entry].clone() }
    }

    /// Reads; what the file is afterwards.
    fn read_at(&mut self, entry: usize, offset: u64, into: &mut [u8]) -> Result<Metadata, CastError> {
        let path = &self.paths[entry];
        let file = match &mut self.open {
            Some((open, file)) if *open == entry => file,
            slot => {
                let file = open(path).map_err(|error| unless_removed(storage("read", path)(error)))?;
                if !file.metadata().map_err(storage("look at", path))?.is_file() {
                    return Err(self.changed(entry));
                }
                &mut slot.insert((entry, file)).1
            }
        };
        file.read_exact_at(into, offset).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => CastError::Changed { path: path.clone() },
            _ => storage("read", path)(error),
        })?;
        file.metadata().map_err(storage("look at", path))
    }

    /// Whether a file is as large and as old as described.
    fn check(&self, manifest: &Manifest, entry: usize, meta: &Metadata) -> Result<(), CastError> {
        let described = &manifest.entries[entry];
        let Kind::File { size, .. } = described.kind else { return Ok(()) };
        let same = meta.len() == size && mtime_ns(meta) == described.mtime_ns;
        if same { Ok(()) } else { Err(self.changed(entry)) }
    }

    /// A file has changed since, though it is as large and as old: it has other permissions or names, or somebody has
    /// written to it and set its time back. The former if it has data where it had, and in it what was sent.
    fn look_again(&mut self, manifest: &Manifest, entry: usize, meta: &Metadata) -> Result<(), CastError> {
        let Kind::File { extents: described, .. } = &manifest.entries[entry].kind else { return Ok(()) };
        let sent = match (&self.digests[entry], &self.hashing) {
            (Some(digest), _) => Some((manifest.entries[entry].data_bytes(), blake3::Hash::from(*digest))),
            (None, Some((hashing, done, hasher))) if *hashing == entry => Some((*done, hasher.finalize())),
            _ => None,
        };
        let mut same = extents(&self.paths[entry], meta).map_err(unless_removed)? == *described;
        if let Some((bytes, digest)) = sent.filter(|_| same) {
            same = self.hash_first(manifest, entry, bytes)? == digest;
        }
        let after = self.read_at(entry, 0, &mut [])?;
        self.check(manifest, entry, &after)?;
        self.changed_ns[entry] = changed_ns(meta);
        if same && changed_ns(&after) == changed_ns(meta) { Ok(()) } else { Err(self.changed(entry)) }
    }

    /// Goes on with a file's digest if this is what comes next in it, whoever it is for.
    fn hash(&mut self, entry: usize, data_offset: u64, data: &[u8]) {
        let begun = self.hashing.as_ref().is_some_and(|(hashing, ..)| *hashing == entry);
        if data_offset == 0 && !begun && self.digests[entry].is_none() {
            self.hashing = Some((entry, 0, Hasher::new()));
        }
        if let Some((hashing, done, hasher)) = &mut self.hashing
            && *hashing == entry
            && *done == data_offset
        {
            hasher.update(data);
            *done += data.len() as u64;
        }
    }

    /// The digest of a file whose last part was just read.
    fn digest(&mut self, manifest: &Manifest, entry: usize) -> Result<Digest, CastError> {
        if let Some(digest) = self.digests[entry] {
            return Ok(digest);
        }
        let total = manifest.entries[entry].data_bytes();
        let digest = match &self.hashing {
            Some((hashing, done, hasher)) if *hashing == entry && *done == total => hasher.finalize(),
            _ => self.hash_whole(manifest, entry)?,
        };
        self.digests[entry] = Some(*digest.as_bytes());
        Ok(*digest.as_bytes())
    }

    fn hash_whole(&mut self, manifest: &Manifest, entry: usize) -> Result<blake3::Hash, CastError> {
        let digest = self.hash_first(manifest, entry, manifest.entries[entry].data_bytes())?;
        self.read(manifest, entry, 0, &mut [])?;
        Ok(digest)
    }

    /// The digest of the first so many bytes of a file's data, whether or not it changes meanwhile.
    fn hash_first(
        &mut self,
        manifest: &Manifest,
        entry: usize,
        mut bytes: u64,
    ) -> Result<blake3::Hash, CastError> {
        let Kind::File { extents, .. } = &manifest.entries[entry].kind else {
            return Ok(blake3::hash(&[]));
        };
        let mut hasher = Hasher::new();
        let mut buffer = PageMemory::new(PIECE_BYTES as usize);
        for extent in extents {
            let mut at = 0;
            while at < extent.len.min(bytes) {
                let len = (extent.len.min(bytes) - at).min(buffer.len() as u64);
                let into = &mut buffer[..len as usize];
                self.read_at(entry, extent.offset + at, into)?;
                hasher.update(into);
                at += len;
            }
            bytes -= at;
        }
        Ok(hasher.finalize())
    }
}

/// Why a file cannot be read that could be when it was looked at.
fn unless_removed(error: CastError) -> CastError {
    match error {
        CastError::Storage { path, source, .. }
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            CastError::Removed { path }
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::scan;
    use std::fs::{self, FileTimes, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const PIECES: usize = 3;

    /// A file of three pieces, and what sends it.
    fn begun(dir: &Path) -> (PathBuf, Manifest, Files) {
        let path = dir.join("a");
        fs::write(&path, vec![7; PIECE_BYTES as usize * PIECES]).unwrap();
        let scan = scan(std::slice::from_ref(&path), false).unwrap();
        let files = Files::new(&scan.manifest, scan.sources, scan.changed_ns);
        (path, scan.manifest, files)
    }

    /// Does something to a file until the time of its change says so, and sets the time of what is in it back.
    fn change(path: &Path, mut how: impl FnMut()) {
        let before = fs::metadata(path).unwrap();
        while changed_ns(&fs::metadata(path).unwrap()) == changed_ns(&before) {
            how();
            let file = File::options().write(true).open(path).unwrap();
            file.set_times(FileTimes::new().set_modified(before.modified().unwrap())).unwrap();
        }
        assert_eq!(mtime_ns(&fs::metadata(path).unwrap()), mtime_ns(&before));
    }

    fn write(path: &Path, piece: usize) {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&[8], (piece * PIECE_BYTES as usize) as u64).unwrap();
    }

    #[test]
    fn what_was_sent_and_is_written_to_is_noticed_though_its_time_is_set_back() {
        for sent in 1..=PIECES as u32 {
            let dir = tempfile::tempdir().unwrap();
            let (path, manifest, mut files) = begun(dir.path());
            let mut message = |number: u32| files.message(&manifest, 1, number, number);
            (0..sent).for_each(|number| drop(message(number).unwrap()));
            change(&path, || write(&path, 0));
            let error = message(sent % PIECES as u32).unwrap_err();
            assert!(error.to_string().contains("changed while"), "{sent}: {error}");
        }
    }

    #[test]
    fn what_has_other_permissions_or_was_written_to_where_nothing_was_sent_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (path, manifest, mut files) = begun(dir.path());
        let mut message = |number: u32| files.message(&manifest, 1, number, number);
        message(0).unwrap();
        change(&path, || fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap());
        message(1).unwrap();
        change(&path, || write(&path, 2));
        let end = message(2).unwrap().0;
        let digest = blake3::hash(&fs::read(&path).unwrap());
        assert!(end.windows(32).any(|part| part == digest.as_bytes()), "the digest is of what was sent");
    }

    #[test]
    fn one_that_is_removed_before_it_is_read_or_while_it_is_is_named_as_removed() {
        for sent in 0..PIECES as u32 {
            let dir = tempfile::tempdir().unwrap();
            let (path, manifest, mut files) = begun(dir.path());
            let mut message = |number: u32| files.message(&manifest, 1, number, number);
            (0..sent).for_each(|number| drop(message(number).unwrap()));
            // Some systems' times of change go by hundredths of a second.
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::remove_file(&path).unwrap();
            let error = message(sent).unwrap_err();
            assert!(error.to_string().contains("was removed while it was sent"), "{sent}: {error}");
        }
    }

    #[test]
    fn an_empty_file_that_is_written_to_or_removed_before_the_cast_begins_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty");
        File::create(&path).unwrap();
        let scan = scan(&[dir.path().into()], false).unwrap();
        let mut files = Files::new(&scan.manifest, scan.sources, scan.changed_ns);
        files.look_at_those_without_data(&scan.manifest).unwrap();
        fs::write(&path, "no more").unwrap();
        let error = files.look_at_those_without_data(&scan.manifest).unwrap_err().to_string();
        assert!(error.contains("empty changed while"), "{error}");
        fs::remove_file(&path).unwrap();
        let mut files = Files { open: None, ..files };
        let error = files.look_at_those_without_data(&scan.manifest).unwrap_err().to_string();
        assert!(error.contains("empty was removed while"), "{error}");
    }

    #[test]
    fn data_where_a_hole_was_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [7; 4096]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        let scan = scan(std::slice::from_ref(&path), false).unwrap();
        let mut files = Files::new(&scan.manifest, scan.sources, scan.changed_ns);
        change(&path, || write(&path, 3));
        assert!(files.message(&scan.manifest, 1, 0, 0).unwrap_err().to_string().contains("changed while"));
    }
}
