//! What of a cast outlives the process that receives it.
//!
//! Inputs → outputs: the notes of earlier runs, and what is in the tree → what need not come again; and the end of all
//! that. Source: `spec/cast.md` §6.

use super::{HERE, MANIFEST, MISSING, PUBLISHING, RECORD_BYTES, Stage, journal};
use crate::body::Part;
use crate::error::{CastError, storage};
use nix::errno::Errno;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs;
use std::io::{Read, Seek};

impl Stage {
    /// Goes on with what is in the tree, whatever was verified before.
    pub(super) fn resume(&mut self) -> Result<(), CastError> {
        self.tree.make_directories(&self.manifest, || self.goes_on())?;
        self.recall()
    }

    /// What was on its way to its place is not all there: what is missing is received again.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn take_back(&mut self) -> Result<(), CastError> {
        self.remove(PUBLISHING)?;
        self.publishing = false;
        self.resume()
    }

    /// Removes the tree once everything is in its place: what takes long.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn clear_tree(&self) -> Result<(), CastError> {
        fs::remove_dir_all(self.tree.path()).map_err(storage("remove", self.root.path()))
    }

    /// Removes what is left after that: last the note that all is in its place, and then what that is verified by. Who
    /// dies meanwhile does not begin anew.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn clear(&self) -> Result<(), CastError> {
        for name in [&journal(self.body.piece_bytes()), MANIFEST, PUBLISHING] {
            self.remove(name)?;
        }
        fs::remove_dir_all(self.root.path()).map_err(storage("remove", self.root.path()))
    }

    fn remove(&self, name: &str) -> Result<(), CastError> {
        match unlinkat(&self.root, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(error) => Err(storage("remove", self.root.path().join(name))(error.into())),
        }
    }

    /// Reads what earlier runs have noted, and verifies what is here whole: a host that lost its power
    /// may have kept the note and not the data. A stream's notes are of no use: its digest is not known.
    fn recall(&mut self) -> Result<(), CastError> {
        let in_root = |what| storage(what, self.root.path());
        if self.manifest.is_stream() {
            return self.journal.set_len(0).map_err(in_root("clear the journal in"));
        }
        let mut noted = Vec::new();
        let read = (&self.journal).take(self.body.pieces()).read_to_end(&mut noted);
        read.map_err(in_root("read the journal in"))?;
        for (piece, _) in noted.iter().enumerate().filter(|(_, state)| **state == HERE) {
            self.have.insert(piece as u32);
        }
        self.recall_digests()?;
        let known: Vec<usize> = self.digests.keys().copied().collect();
        for entry in known {
            self.verify_if_whole(entry)?;
        }
        self.forget_undigested()?;
        self.damaged.clear();
        self.resumed_bytes = self.bytes();
        Ok(())
    }

    /// Reads the digests that earlier runs have noted.
    pub(super) fn recall_digests(&mut self) -> Result<(), CastError> {
        let mut records = Vec::new();
        let most = self.manifest.entries.len() as u64 * 2 * RECORD_BYTES as u64;
        self.digest_log.rewind().map_err(storage("read the digests in", self.root.path()))?;
        let read = (&self.digest_log).take(most).read_to_end(&mut records);
        read.map_err(storage("read the digests in", self.root.path()))?;
        let whole = records.chunks_exact(RECORD_BYTES);
        // One that was cut short is overwritten.
        self.digest_end = (whole.len() * RECORD_BYTES) as u64;
        for record in whole {
            let (entry, digest) = record.split_at(4);
            let entry = u32::from_le_bytes(entry.try_into().expect("four octets")) as usize;
            if self.manifest.entries.get(entry).is_some_and(|entry| entry.data_bytes() > 0) {
                self.digests.insert(entry, digest.try_into().expect("32 octets"));
            }
        }
        Ok(())
    }

    /// A file of which every piece is noted and no digest (the note of it was lost) needs its last one
    /// again.
    fn forget_undigested(&mut self) -> Result<(), CastError> {
        for piece in 0..self.have.len() {
            let ends_unknown = |part: Part| {
                part.last && !self.digests.contains_key(&part.entry) && !self.verified.contains(&part.entry)
            };
            if self.have.contains(piece) && self.body.parts(piece).any(ends_unknown) {
                self.have.remove(piece);
                self.note(piece, MISSING)?;
            }
        }
        Ok(())
    }
}
