//! The sender's content: pieces, ready to travel.
//!
//! Inputs → outputs: a piece's number → the bytes of its PIECE message. Files are read where they are,
//! each piece when it is due; digests are computed on the way, and again from a file's beginning only
//! where pieces are taken out of order. A stream is read ahead by a thread of its own, and its last
//! pieces are kept for those that are behind. Source: `spec/cast.md` §4, §5.

mod files;

use crate::error::{CastError, storage};
use crate::manifest::{Entry, Kind, Manifest};
use crate::message::{CastId, Digest, Offer, PIECE_BYTES, UNKNOWN_BYTES, piece_head, short};
use crate::scan::Scan;
use blake3::Hasher;
use bytes::Bytes;
use files::Files;
use std::collections::VecDeque;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

/// Pieces of a stream that are read ahead.
const READ_AHEAD_PIECES: usize = 4;

/// What is sent.
#[derive(Debug)]
pub struct Source {
    manifest: Manifest,
    encoded: Bytes,
    id: CastId,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Files(Files),
    Stream(Stream),
}

impl Source {
    /// Files and directories.
    ///
    /// # Errors
    /// The manifest is larger than receivers take.
    pub fn files(scan: Scan) -> Result<Self, CastError> {
        let files = Files::new(&scan.manifest, scan.sources, scan.changed_ns);
        Self::new(scan.manifest, Content::Files(files))
    }

    /// What `reader` brings, under a name for those who write it to a directory. Of what was read, the
    /// last `retain_bytes` are kept for receivers that are behind.
    ///
    /// # Errors
    /// Not a name; no thread to be had.
    pub fn stream(
        name: &str,
        reader: impl Read + Send + 'static,
        retain_bytes: u64,
    ) -> Result<Self, CastError> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| CastError::Transport(error.to_string()))?;
        let entry = Entry { parent: None, name: name.into(), mode: 0o644, mtime_ns: 0, kind: Kind::Stream };
        let manifest = Manifest { nonce, entries: vec![entry] };
        manifest.validate()?;
        Self::new(manifest, Content::Stream(Stream::new(reader, retain_bytes)?))
    }

    fn new(manifest: Manifest, content: Content) -> Result<Self, CastError> {
        let encoded = Bytes::from(manifest.encode());
        let (value, max) = (encoded.len() as u64, crate::manifest::MAX_MANIFEST_BYTES);
        if value > max {
            return Err(crate::manifest::ManifestError::TooLarge { what: "bytes", value, max }.into());
        }
        let id = *blake3::hash(&encoded).as_bytes();
        Ok(Self { manifest, encoded, id, content })
    }

    /// What is offered, with a group at `group`.
    pub fn offer(&self, group: SocketAddr) -> Offer {
        Offer {
            id: self.id,
            group,
            piece_bytes: PIECE_BYTES,
            manifest_bytes: self.encoded.len() as u64,
            body_bytes: match &self.content {
                Content::Files(files) => files.body().total(),
                Content::Stream(_) => UNKNOWN_BYTES,
            },
        }
    }

    /// What it consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether its end is not known.
    pub fn is_stream(&self) -> bool {
        matches!(self.content, Content::Stream(_))
    }

    fn manifest_pieces(&self) -> u32 {
        self.encoded.len().div_ceil(PIECE_BYTES as usize) as u32
    }

    /// How many pieces there are, the manifest's included; those of a stream so far.
    pub fn pieces(&self) -> u64 {
        let body = match &self.content {
            Content::Files(files) => files.body().pieces(),
            Content::Stream(stream) => stream.end(),
        };
        u64::from(self.manifest_pieces()) + body
    }

    /// Bytes that a stream has brought so far.
    pub fn stream_bytes(&self) -> u64 {
        if let Content::Stream(stream) = &self.content { stream.bytes } else { 0 }
    }

    /// The pieces that can be had: from there on; and whether there may be more later.
    pub fn available(&self) -> (u32, bool) {
        match &self.content {
            Content::Files(_) => (0, false),
            Content::Stream(stream) => (self.manifest_pieces() + stream.first, !stream.ended),
        }
    }

    /// That files which are in no piece, as they have no data, are what they were when they were looked at.
    ///
    /// # Errors
    /// One cannot be read, or has changed.
    pub fn look_at_those_without_data(&mut self) -> Result<(), CastError> {
        match &mut self.content {
            Content::Files(files) => files.look_at_those_without_data(&self.manifest),
            Content::Stream(_) => Ok(()),
        }
    }

    /// Takes in what the stream has brought; whether there was something. With `wait` older pieces are
    /// not let go of: nothing is taken in then that has no room.
    ///
    /// # Errors
    /// The stream cannot be read.
    pub fn refill(&mut self, wait: bool) -> Result<bool, CastError> {
        match &mut self.content {
            Content::Files(_) => Ok(false),
            Content::Stream(stream) => stream.refill(wait),
        }
    }

    /// The message of a piece that can be had, and its bytes of the body.
    ///
    /// # Errors
    /// A file cannot be read, or has changed.
    pub fn message(&mut self, piece: u32) -> Result<(Bytes, u64), CastError> {
        let cast = short(&self.id);
        let Some(number) = piece.checked_sub(self.manifest_pieces()) else {
            let from = piece as usize * PIECE_BYTES as usize;
            let data = &self.encoded[from..self.encoded.len().min(from + PIECE_BYTES as usize)];
            let mut out = piece_head(cast, piece, false, &[], data.len());
            out.extend_from_slice(data);
            return Ok((out.into(), 0));
        };
        match &mut self.content {
            Content::Files(files) => files.message(&self.manifest, cast, piece, number),
            Content::Stream(stream) => Ok(stream.message(cast, piece, number)),
        }
    }
}

#[derive(Debug)]
struct Stream {
    pieces: Receiver<std::io::Result<Vec<u8>>>,
    retained: VecDeque<Bytes>,
    retain_pieces: usize,
    /// The number of the oldest piece retained.
    first: u32,
    bytes: u64,
    ended: bool,
    hasher: Hasher,
    digest: Option<Digest>,
}

impl Stream {
    fn new(mut reader: impl Read + Send + 'static, retain_bytes: u64) -> Result<Self, CastError> {
        let (sender, pieces) = sync_channel(READ_AHEAD_PIECES);
        let reading = thread::Builder::new().name("stream".into()).spawn(move || {
            loop {
                let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
                let read = reader.by_ref().take(PIECE_BYTES.into()).read_to_end(&mut piece);
                let end = piece.len() < PIECE_BYTES as usize;
                // The receiver is gone when nobody wants more.
                if sender.send(read.map(|_| piece)).is_err() || end {
                    return;
                }
            }
        });
        reading.map_err(|error| CastError::Transport(format!("cannot start a thread: {error}")))?;
        Ok(Self {
            pieces,
            retained: VecDeque::new(),
            retain_pieces: retain_bytes.div_ceil(PIECE_BYTES.into()).max(1) as usize,
            first: 0,
            bytes: 0,
            ended: false,
            hasher: Hasher::new(),
            digest: None,
        })
    }

    fn end(&self) -> u64 {
        u64::from(self.first) + self.retained.len() as u64
    }

    fn refill(&mut self, wait: bool) -> Result<bool, CastError> {
        if self.ended || (wait && self.retained.len() >= self.retain_pieces) {
            return Ok(false);
        }
        let piece = match self.pieces.try_recv() {
            Ok(piece) => piece.map_err(storage("read", "the stream"))?,
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => return Err(CastError::Transport("the reader ended".into())),
        };
        self.hasher.update(&piece);
        self.bytes += piece.len() as u64;
        if piece.len() < PIECE_BYTES as usize {
            self.ended = true;
            self.digest = Some(*self.hasher.finalize().as_bytes());
        }
        self.retained.push_back(piece.into());
        if self.retained.len() > self.retain_pieces {
            self.retained.pop_front();
            self.first += 1;
        }
        Ok(true)
    }

    fn message(&self, cast: u64, piece: u32, number: u32) -> (Bytes, u64) {
        let data = number.checked_sub(self.first).and_then(|at| self.retained.get(at as usize));
        let data = data.cloned().unwrap_or_default();
        let last = self.ended && u64::from(number) + 1 == self.end();
        let digests: Vec<Digest> = self.digest.filter(|_| last).into_iter().collect();
        let mut out = piece_head(cast, piece, last, &digests, data.len());
        out.extend_from_slice(&data);
        (out.into(), data.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, Piece};
    use crate::scan::scan;
    use std::path::PathBuf;

    fn piece(source: &mut Source, number: u32) -> Piece {
        match Message::decode(source.message(number).unwrap().0) {
            Some(Message::Piece(piece)) => piece,
            other => panic!("{other:?}"),
        }
    }

    fn group() -> SocketAddr {
        "239.1.2.3:7118".parse().unwrap()
    }

    #[test]
    fn pieces_carry_the_manifest_then_the_files_and_their_digests() {
        let dir = tempfile::tempdir().unwrap();
        let large: Vec<u8> = (0..600_000u32).map(|n| (n / 7) as u8).collect();
        std::fs::write(dir.path().join("a"), &large).unwrap();
        std::fs::write(dir.path().join("b"), "small").unwrap();
        let scan = scan(&[dir.path().join("a"), dir.path().join("b")], false).unwrap();
        let mut source = Source::files(scan).unwrap();
        assert_eq!(source.pieces(), 1 + 3);
        let manifest = piece(&mut source, 0);
        assert_eq!(*blake3::hash(&manifest.data).as_bytes(), source.offer(group()).id);
        // Out of order: the digest is computed from the beginning.
        let end = piece(&mut source, 3);
        let digests = [*blake3::hash(&large).as_bytes(), *blake3::hash(b"small").as_bytes()];
        assert_eq!(end.digests, digests);
        let in_order: Vec<Piece> = (1..4).map(|number| piece(&mut source, number)).collect();
        let data: Vec<u8> = in_order.iter().flat_map(|piece| piece.data.to_vec()).collect();
        assert_eq!(data, [&large[..], b"small"].concat());
        assert_eq!(in_order[2].digests, digests);
    }

    /// To read all of a large one again at its end takes long, and nothing is sent meanwhile.
    #[test]
    fn a_digest_goes_on_though_somebody_gets_the_file_from_its_beginning_meanwhile() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![7; PIECE_BYTES as usize * 4]).unwrap();
        let mut source = Source::files(scan(&[path], false).unwrap()).unwrap();
        let mut hashed = |number| {
            piece(&mut source, number);
            let Content::Files(files) = &source.content else { panic!() };
            files.hashed_bytes() / u64::from(PIECE_BYTES)
        };
        assert_eq!([1, 2, 1, 3, 2, 4].map(&mut hashed), [1, 2, 2, 3, 3, 4]);
    }

    #[test]
    fn a_file_that_changes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "before").unwrap();
        let mut source = Source::files(scan(std::slice::from_ref(&path), false).unwrap()).unwrap();
        std::fs::write(&path, "longer than before").unwrap();
        assert!(source.message(1).unwrap_err().to_string().contains("changed while"));
    }

    /// To open a FIFO that nobody writes to takes for ever.
    #[test]
    fn a_file_that_is_another_kind_of_thing_by_now_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, sub) = (dir.path().join("a"), dir.path().join("sub"));
        std::fs::write(&path, "before").unwrap();
        std::fs::create_dir(&sub).unwrap();
        std::fs::write(sub.join("b"), "before").unwrap();
        let begun = |path: &PathBuf| Source::files(scan(std::slice::from_ref(path), false).unwrap()).unwrap();
        let (mut source, mut of_sub) = (begun(&path), begun(&sub));
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(source.message(1).unwrap_err().to_string().contains("changed while"));
        std::fs::remove_dir_all(&sub).unwrap();
        std::fs::write(&sub, "no directory").unwrap();
        assert!(of_sub.message(1).unwrap_err().to_string().contains("sub/b was removed while"));
    }

    #[test]
    fn a_file_that_is_removed_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "before").unwrap();
        let mut source = Source::files(scan(std::slice::from_ref(&path), false).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(source.message(1).unwrap_err().to_string().contains("removed while"));
    }

    #[test]
    fn a_stream_is_kept_as_far_as_it_was_asked_for() {
        let len = PIECE_BYTES as usize * 3 + 5;
        let text: Vec<u8> = (0..len).map(|n| (n / 3) as u8).collect();
        let digest = *blake3::hash(&text).as_bytes();
        let retain = u64::from(PIECE_BYTES) * 2;
        let mut source = Source::stream("s", std::io::Cursor::new(text.clone()), retain).unwrap();
        let mut got = Vec::new();
        let mut number = 1;
        while source.available().1 {
            if source.refill(false).unwrap() {
                got.push(piece(&mut source, number));
                number += 1;
            }
        }
        assert_eq!(source.available(), (1 + 2, false), "the first two are gone");
        assert_eq!((got[3].last, got[3].digests.as_slice()), (true, &[digest][..]));
        assert_eq!(got.iter().flat_map(|piece| piece.data.to_vec()).collect::<Vec<u8>>(), text);
        // Nothing is let go of where somebody waits.
        let mut waiting = Source::stream("s", std::io::Cursor::new(text), retain).unwrap();
        while waiting.pieces() < 3 {
            waiting.refill(true).unwrap();
        }
        assert!(!waiting.refill(true).unwrap() && waiting.available().0 == 1);
    }
}
