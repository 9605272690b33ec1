//! The receiver's partial state: a hidden directory beside the destination.
//!
//! Inputs → outputs: pieces → files below `DIR/.denrei-cast-NAME/tree`, a journal of what is there, and
//! files verified. It survives the process: whoever opens it again goes on where it was left. What is
//! written is untrusted, so every step is relative to an open directory and follows no link
//! ([`crate::place`]); links are made last, by [`crate::publish`]. Source: `spec/cast.md` §6.

mod kept;

use crate::body::{Body, Part};
use crate::busy::Busy;
use crate::error::{CastError, storage};
use crate::manifest::{Kind, MAX_MANIFEST_BYTES, Manifest, STAGING_PREFIX};
use crate::message::{CastId, Digest, Offer, Piece};
use crate::pieces::{PieceSet, Range};
use crate::place::Place;
use blake3::Hasher;
use denrei::PageMemory;
use nix::fcntl::OFlag;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

/// What is read at a time to verify a file, bytes.
const VERIFY_BYTES: usize = 256 << 10;
/// Times that a file may turn out damaged.
const MAX_DAMAGE: u32 = 1;
/// A file's entry and its digest in the list of digests.
const RECORD_BYTES: usize = 4 + 32;
/// What is received.
const MANIFEST: &str = "manifest";
/// There once everything is verified, and on its way to its place.
pub(crate) const PUBLISHING: &str = "publishing";
/// In the journal.
const MISSING: u8 = 0;
const HERE: u8 = 1;

/// That of pieces of this size, bytes.
fn journal(piece_bytes: u64) -> String {
    format!("journal-{piece_bytes}")
}

/// One cast being received.
#[derive(Debug)]
pub struct Stage {
    manifest: Manifest,
    body: Body,
    /// The hidden directory.
    root: Place,
    tree: Place,
    /// An octet a piece.
    journal: File,
    have: PieceSet,
    open: Option<(usize, File)>,
    hashing: Option<(usize, u64, Hasher)>,
    /// Of files whose data is not all here or not verified.
    digests: BTreeMap<usize, Digest>,
    digest_log: File,
    /// Where its next record goes, bytes.
    digest_end: u64,
    /// Files that are whole, and what was sent.
    verified: BTreeSet<usize>,
    damaged: BTreeMap<usize, u32>,
    /// A stream's bytes, once its end is known.
    stream_bytes: Option<u64>,
    resumed_bytes: u64,
    busy: RefCell<Busy>,
    /// Everything was here before, and is on its way to its place.
    publishing: bool,
}

/// What writing a piece led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It was here already, or is not one of this cast.
    Nothing,
    /// It is here now.
    New,
    /// Files are not what was sent; these pieces are needed again.
    Again(Vec<Range>),
}

impl Stage {
    /// Where the state of a cast into `into` is.
    fn directory(into: &Path, id: &CastId) -> PathBuf {
        let name: String = id[..8].iter().map(|octet| format!("{octet:02x}")).collect();
        into.join(format!("{STAGING_PREFIX}{name}"))
    }

    /// The manifest of a cast that was begun here before.
    pub fn known_manifest(into: &Path, id: &CastId) -> Option<Vec<u8>> {
        Self::manifest_in(&Place::open_own(&Self::directory(into, id)).ok()?, id)
    }

    fn manifest_in(root: &Place, id: &CastId) -> Option<Vec<u8>> {
        let file = root.own_file(MANIFEST, OFlag::O_RDONLY).ok()?;
        let mut encoded = Vec::new();
        file.take(MAX_MANIFEST_BYTES).read_to_end(&mut encoded).ok()?;
        (blake3::hash(&encoded).as_bytes() == id).then_some(encoded)
    }

    /// Begins, or goes on with, the cast of a manifest that is what was offered.
    ///
    /// # Errors
    /// The manifest is refused; the directory cannot be written.
    pub fn open(into: &Path, offer: &Offer, encoded: &[u8], busy: Busy) -> Result<Self, CastError> {
        let manifest = Manifest::decode(encoded)?;
        let body = Body::new(&manifest, offer.piece_bytes);
        if !manifest.is_stream() && body.total() != offer.body_bytes {
            return Err(CastError::Protocol("the body is not as large as its manifest says"));
        }
        let root = Self::directory(into, &offer.id);
        let is_new = match fs::DirBuilder::new().mode(0o700).create(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(storage("create the directory", root)(error));
            }
            created => created.is_ok(),
        };
        let root = Place::open_own(&root)?;
        // What is there says what was verified: whoever can plant it can have anything taken for that.
        if !is_new && !root.is_own(into)? {
            let problem = "belongs to another user";
            return Err(CastError::InTheWay { path: root.path().into(), problem });
        }
        // A manifest that is there whole was written before anything else.
        if Self::manifest_in(&root, &offer.id).is_none() {
            let mut file = root.own_file(MANIFEST, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC)?;
            file.write_all(encoded).map_err(|error| storage("write", root.path().join(MANIFEST))(error))?;
        }
        let tree = root.own_directory("tree")?;
        let publishing = root.own_file(PUBLISHING, OFlag::O_RDONLY).is_ok();
        let open = |name: &str| root.own_file(name, OFlag::O_RDWR | OFlag::O_CREAT);
        let digest_log = open("digests")?;
        // Until it is closed, however that comes about; where a file system has no locks nobody is kept out.
        if let Err(TryLockError::WouldBlock) = digest_log.try_lock() {
            return Err(CastError::InUse { path: root.path().into() });
        }
        let mut stage = Self {
            have: PieceSet::new(body.pieces() as u32),
            manifest,
            body,
            // Pieces of another size have other numbers.
            journal: open(&journal(offer.piece_bytes.into()))?,
            digest_log,
            digest_end: 0,
            tree,
            root,
            open: None,
            hashing: None,
            digests: BTreeMap::new(),
            damaged: BTreeMap::new(),
            verified: BTreeSet::new(),
            stream_bytes: None,
            resumed_bytes: 0,
            busy: busy.into(),
            publishing,
        };
        match publishing {
            true => stage.recall_digests()?,
            false => stage.resume()?,
        }
        Ok(stage)
    }

    /// Tells that this goes on.
    pub fn goes_on(&self) {
        self.busy.borrow_mut().goes_on(self.bytes());
    }

    /// From now on `busy` is told.
    pub fn tell(&mut self, busy: Busy) {
        self.busy = busy.into();
    }

    /// What is received.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Where it is put together.
    pub fn root(&self) -> &Place {
        &self.root
    }

    /// The directory that has all of it.
    pub fn tree(&self) -> &Place {
        &self.tree
    }

    /// Whether it was on its way to its place already.
    pub fn is_publishing(&self) -> bool {
        self.publishing
    }

    /// Bytes of the body that were here when it was opened.
    pub fn resumed_bytes(&self) -> u64 {
        if self.publishing { self.bytes() } else { self.resumed_bytes }
    }

    /// Bytes of the body that are here.
    pub fn bytes(&self) -> u64 {
        if let Some(bytes) = self.stream_bytes.or(self.publishing.then(|| self.body.total())) {
            return bytes;
        }
        let piece = self.piece_bytes();
        let whole = u64::from(self.have.count()) * piece;
        let short = match self.have.len().checked_sub(1) {
            Some(last) if !self.manifest.is_stream() && self.have.contains(last) => {
                piece - self.body.piece_len(last) as u64
            }
            _ => 0,
        };
        whole - short
    }

    fn piece_bytes(&self) -> u64 {
        self.body.piece_bytes()
    }

    /// What is missing, of the body.
    pub fn missing(&self, most: usize) -> Vec<Range> {
        if self.manifest.is_stream() {
            let first = self.have.next_missing(0).unwrap_or(self.have.len());
            return vec![(first, u32::MAX - first)];
        }
        self.have.missing(most)
    }

    /// Whether everything is here and verified.
    pub fn is_complete(&self) -> bool {
        if self.publishing {
            return true;
        }
        let known = self.stream_bytes.is_some() || !self.manifest.is_stream();
        known && self.have.count() == self.have.len() && self.digests.is_empty()
    }

    /// Writes piece `number` of the body.
    ///
    /// # Errors
    /// It cannot be written, or a file is damaged for the second time.
    pub fn write(&mut self, number: u32, piece: &Piece) -> Result<Written, CastError> {
        if self.manifest.is_stream() {
            return self.write_stream(number, piece);
        }
        if piece.data.len() != self.body.piece_len(number) || piece.data.is_empty() {
            return Err(CastError::Protocol("a piece is not as long as it has to be"));
        }
        if self.have.contains(number) {
            return Ok(Written::Nothing);
        }
        let mut parts: Vec<Part> = self.body.parts(number).collect();
        let ending: Vec<usize> = parts.iter().filter(|part| part.last).map(|part| part.entry).collect();
        if ending.len() != piece.digests.len() {
            return Err(CastError::Protocol("a piece lacks digests"));
        }
        // It may have come before: what is verified stays as it is.
        parts.retain(|part| !self.verified.contains(&part.entry));
        for (entry, digest) in ending.iter().zip(&piece.digests) {
            if self.verified.contains(entry) {
                continue;
            }
            self.digests.insert(*entry, *digest);
            let record = [&(*entry as u32).to_le_bytes()[..], digest].concat();
            let written = self.digest_log.write_all_at(&record, self.digest_end);
            written.map_err(storage("write the digests in", self.root.path()))?;
            self.digest_end += RECORD_BYTES as u64;
        }
        for part in &parts {
            let data = &piece.data[part.at..part.at + part.len];
            self.write_at(part.entry, part.offset, data)?;
            self.hash(part.entry, part.data_offset, data);
            self.goes_on();
        }
        self.have.insert(number);
        self.note(number, HERE)?;
        let mut again = Vec::new();
        for part in parts {
            again.extend(self.verify_if_whole(part.entry)?);
        }
        Ok(if again.is_empty() { Written::New } else { Written::Again(again) })
    }

    fn write_stream(&mut self, number: u32, piece: &Piece) -> Result<Written, CastError> {
        let bytes = self.piece_bytes();
        let short = piece.data.len() as u64 != bytes;
        if (short && !piece.last) || piece.data.len() as u64 > bytes || piece.digests.len() > 1 {
            return Err(CastError::Protocol("a piece is not as long as it has to be"));
        }
        if self.have.contains(number) {
            return Ok(Written::Nothing);
        }
        // Streams come in order; one that jumps far ahead would cost memory for its bits.
        let next = self.have.next_missing(0).unwrap_or(self.have.len());
        if number != next {
            return Ok(Written::Nothing);
        }
        self.write_at(0, u64::from(number) * bytes, &piece.data)?;
        self.hash(0, u64::from(number) * bytes, &piece.data);
        self.have.grow(number + 1);
        self.have.insert(number);
        if let (true, Some(digest)) = (piece.last, piece.digests.first()) {
            let total = u64::from(number) * bytes + piece.data.len() as u64;
            self.stream_bytes = Some(total);
            let whole = self.hashing.as_ref().map(|(_, _, hasher)| hasher.finalize());
            if whole.is_none_or(|whole| whole.as_bytes() != digest) {
                return Err(CastError::Damaged { path: self.manifest.path(0) });
            }
        }
        Ok(Written::New)
    }

    fn note(&self, number: u32, state: u8) -> Result<(), CastError> {
        self.journal
            .write_all_at(&[state], number.into())
            .map_err(storage("write the journal in", self.root.path()))
    }

    fn write_at(&mut self, entry: usize, offset: u64, data: &[u8]) -> Result<(), CastError> {
        let path = self.manifest.path(entry);
        let Self { open, tree, manifest, hashing, .. } = self;
        if open.as_ref().is_none_or(|(which, _)| *which != entry) {
            // What was written before may have been removed meanwhile: that is seen on disk.
            hashing.take_if(|(which, ..)| *which == entry);
            *open = Some((entry, tree.open_file(manifest, entry)?));
        }
        let Some((_, file)) = open else { return Ok(()) };
        file.write_all_at(data, offset).map_err(storage("write", path))
    }

    fn hash(&mut self, entry: usize, data_offset: u64, data: &[u8]) {
        if data_offset == 0 {
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

    /// Verifies a file if all of its pieces are here; what is needed again if it is damaged.
    fn verify_if_whole(&mut self, entry: usize) -> Result<Option<Range>, CastError> {
        let Some(digest) = self.digests.get(&entry).copied() else { return Ok(None) };
        let (first, count) = self.body.pieces_of(entry);
        if self.have.next_missing(first).is_some_and(|missing| missing < first + count) {
            return Ok(None);
        }
        let total = self.manifest.entries[entry].data_bytes();
        let found = match &self.hashing {
            Some((hashing, done, hasher)) if *hashing == entry && *done == total => hasher.finalize(),
            _ => self.hash_from_disk(entry, &self.tree.open_file(&self.manifest, entry)?)?,
        };
        self.digests.remove(&entry);
        if *found.as_bytes() == digest {
            self.verified.insert(entry);
            return Ok(None);
        }
        let times = self.damaged.entry(entry).or_default();
        *times += 1;
        if *times > MAX_DAMAGE {
            return Err(CastError::Damaged { path: self.manifest.path(entry) });
        }
        for piece in first..first + count {
            self.have.remove(piece);
            self.note(piece, MISSING)?;
        }
        Ok(Some((first, count)))
    }

    /// Whether what is in `place`, the tree or where it belongs, is a file as it was sent.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn is_as_sent(&self, entry: usize, place: &Place) -> Result<bool, CastError> {
        let file = place.read_file(&self.manifest, entry)?;
        let Kind::File { size, .. } = self.manifest.entries[entry].kind else {
            // A stream's digest is not kept.
            return Ok(true);
        };
        let len = file.metadata().map_err(storage("look at", self.manifest.path(entry)))?.len();
        if len != size || self.manifest.entries[entry].data_bytes() == 0 {
            return Ok(len == size);
        }
        let found = self.hash_from_disk(entry, &file)?;
        Ok(self.digests.get(&entry) == Some(found.as_bytes()))
    }

    /// The digest of what is on disk.
    fn hash_from_disk(&self, entry: usize, file: &File) -> Result<blake3::Hash, CastError> {
        let mut hasher = Hasher::new();
        let Kind::File { extents, .. } = &self.manifest.entries[entry].kind else {
            return Ok(hasher.finalize());
        };
        let mut buffer = PageMemory::new(VERIFY_BYTES);
        for extent in extents {
            let mut at = 0;
            while at < extent.len {
                let len = (extent.len - at).min(VERIFY_BYTES as u64) as usize;
                match file.read_at(&mut buffer[..len], extent.offset + at) {
                    // Shorter than it has to be: damaged.
                    Ok(0) => return Ok(hasher.finalize()),
                    Ok(read) => {
                        hasher.update(&buffer[..read]);
                        at += read as u64;
                        self.goes_on();
                    }
                    Err(error) => return Err(storage("verify", self.manifest.path(entry))(error)),
                }
            }
        }
        Ok(hasher.finalize())
    }
}
