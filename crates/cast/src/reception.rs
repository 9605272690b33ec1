//! A cast as its receiver sees it, without sockets.
//!
//! Inputs → outputs: an offer, pieces → files or a pipe written, messages for the sender. Everything
//! that comes in is untrusted: what is not as it has to be ends the reception with an error, and never
//! costs more memory than the manifest's bound and a bit a piece. Source: `spec/cast.md` §5.

use crate::body::Body;
use crate::busy::Busy;
use crate::error::{CastError, storage};
use crate::manifest::{Kind, MAX_MANIFEST_BYTES, Manifest};
use crate::message::{MAX_RANGES, Message, Offer, PIECE_SIZES, Piece, UNKNOWN_BYTES, short};
use crate::pieces::Range;
use crate::place::Place;
use crate::publish;
use crate::stage::{Stage, Written};
use blake3::Hasher;
use bytes::Bytes;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most pieces of a body: 16 MiB of bits; at 256 KiB a piece, 32 TiB.
const MAX_PIECES: u64 = 1 << 27;
/// How often a gap in what has to come in order is asked for.
const GAP_INTERVAL: Duration = Duration::from_millis(500);
/// Zeros written at a time where a file has a hole.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Where a cast goes.
pub enum Destination {
    /// Files and directories, into this directory.
    Directory {
        /// Which.
        path: PathBuf,
        /// Everything is on disk before it appears under its name.
        sync: bool,
    },
    /// One file or stream, as its bytes come.
    Pipe(Box<dyn Write + Send>),
}

impl std::fmt::Debug for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory { path, .. } => write!(f, "{}", path.display()),
            Self::Pipe(_) => f.write_str("a pipe"),
        }
    }
}

/// One cast being received.
#[derive(Debug)]
pub struct Reception {
    offer: Offer,
    /// What people call this host.
    name: String,
    destination: Destination,
    manifest_parts: Vec<Option<Bytes>>,
    sink: Sink,
    busy: Busy,
    asked_for_gap: Option<Instant>,
    new_bytes: u64,
}

#[derive(Debug)]
enum Sink {
    /// The manifest is not here yet.
    None,
    Stage(Box<Stage>),
    Pipe(Box<Pipe>),
}

impl Reception {
    /// Takes an offer, and goes on with what is here of it.
    ///
    /// # Errors
    /// The offer is not one to take; the directory cannot be used.
    pub fn new(offer: Offer, destination: Destination, name: &str) -> Result<Self, CastError> {
        Self::telling(offer, destination, name, Busy::default())
    }

    /// The same, and tells `busy` while what is here is verified, written or put into place.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn telling(
        offer: Offer,
        destination: Destination,
        name: &str,
        busy: Busy,
    ) -> Result<Self, CastError> {
        check_offer(&offer)?;
        let mut reception = Self {
            offer,
            name: name.into(),
            destination,
            manifest_parts: vec![None; offer.manifest_pieces() as usize],
            sink: Sink::None,
            busy,
            asked_for_gap: None,
            new_bytes: 0,
        };
        if let Destination::Directory { path, .. } = &reception.destination
            && let Some(encoded) = Stage::known_manifest(path, &offer.id)
            && encoded.len() as u64 == offer.manifest_bytes
        {
            reception.open(&encoded)?;
        }
        Ok(reception)
    }

    /// From now on another is told.
    pub fn tell(&mut self, busy: Busy) {
        match &mut self.sink {
            Sink::Stage(stage) => stage.tell(busy),
            _ => self.busy = busy,
        }
    }

    /// What is received.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// What it consists of, once that is known.
    pub fn manifest(&self) -> Option<&Manifest> {
        match &self.sink {
            Sink::None => None,
            Sink::Stage(stage) => Some(stage.manifest()),
            Sink::Pipe(pipe) => Some(&pipe.manifest),
        }
    }

    /// That what is here is where it will be looked for.
    ///
    /// # Errors
    /// Its directory was removed, or moved away.
    pub fn is_in_place(&self) -> Result<(), CastError> {
        if let Sink::Stage(stage) = &self.sink { stage.root().is_found() } else { Ok(()) }
    }

    /// Removes what is here of a stream that has not ended: it does not come again, and nothing goes on from there.
    pub fn drop_stream(&self) {
        if let Sink::Stage(stage) = &self.sink
            && stage.manifest().is_stream()
            && !stage.is_complete()
        {
            // What cannot be removed stays, and does no harm but for its room.
            let _ = std::fs::remove_dir_all(stage.root().path());
        }
    }

    /// Bytes of the body that are here, and how many there will be, if that is known.
    pub fn bytes(&self) -> (u64, Option<u64>) {
        let here = match &self.sink {
            Sink::None => 0,
            Sink::Stage(stage) => stage.bytes(),
            Sink::Pipe(pipe) => pipe.taken,
        };
        (here, Some(self.offer.body_bytes).filter(|bytes| *bytes != UNKNOWN_BYTES))
    }

    /// Bytes of the body that were here before, and those that have come since.
    pub fn resumed_and_new_bytes(&self) -> (u64, u64) {
        let resumed = if let Sink::Stage(stage) = &self.sink { stage.resumed_bytes() } else { 0 };
        (resumed, self.new_bytes)
    }

    /// What to ask for now.
    pub fn want(&self) -> Message {
        let before = self.offer.manifest_pieces();
        let (ordered, ranges) = match &self.sink {
            Sink::None => (false, self.missing_manifest()),
            Sink::Stage(stage) => (stage.manifest().is_stream(), shifted(&stage.missing(MAX_RANGES), before)),
            Sink::Pipe(pipe) => (true, shifted(&pipe.missing(), before)),
        };
        self.want_of(ordered, ranges)
    }

    fn want_of(&self, ordered: bool, ranges: Vec<Range>) -> Message {
        Message::Want { cast: short(&self.offer.id), ordered, name: self.name.clone(), ranges }
    }

    fn missing_manifest(&self) -> Vec<Range> {
        let missing = self.manifest_parts.iter().enumerate().filter(|(_, part)| part.is_none());
        missing.map(|(number, _)| (number as u32, 1)).collect()
    }

    /// Takes in a piece; what to answer, if anything.
    ///
    /// # Errors
    /// It cannot be written, or is not what it has to be: the reception is over.
    pub fn piece(&mut self, piece: &Piece) -> Result<Option<Message>, CastError> {
        if piece.cast != short(&self.offer.id) {
            return Ok(None);
        }
        let Some(number) = piece.number.checked_sub(self.offer.manifest_pieces()) else {
            return self.manifest_piece(piece);
        };
        let written = match &mut self.sink {
            // The group may be ahead of the manifest: what is missed is asked for with it.
            Sink::None => return Ok(None),
            Sink::Stage(stage) => stage.write(number, piece)?,
            Sink::Pipe(pipe) => pipe.write(number, piece)?,
        };
        match written {
            Written::New => {
                self.new_bytes += piece.data.len() as u64;
                Ok(None)
            }
            Written::Again(ranges) => {
                let ranges = shifted(&ranges, self.offer.manifest_pieces());
                Ok(Some(self.want_of(false, ranges)))
            }
            Written::Nothing => Ok(self.gap(number)),
        }
    }

    /// Asks for what comes next, if it has to come in order and something later has come.
    fn gap(&mut self, number: u32) -> Option<Message> {
        let next = match &self.sink {
            Sink::Stage(stage) if stage.manifest().is_stream() => stage.missing(1).first()?.0,
            Sink::Pipe(pipe) => pipe.next,
            _ => return None,
        };
        let asked = self.asked_for_gap.is_some_and(|asked| asked.elapsed() < GAP_INTERVAL);
        if number <= next || asked {
            return None;
        }
        self.asked_for_gap = Some(Instant::now());
        Some(self.want())
    }

    fn manifest_piece(&mut self, piece: &Piece) -> Result<Option<Message>, CastError> {
        if !matches!(self.sink, Sink::None) {
            return Ok(None);
        }
        let whole = self.offer.piece_bytes as u64;
        let begin = u64::from(piece.number) * whole;
        // Its data keeps all of its message in memory.
        if piece.data.len() as u64 != (self.offer.manifest_bytes - begin).min(whole)
            || !piece.digests.is_empty()
        {
            return Err(CastError::Protocol("a piece of the manifest is not as long as it has to be"));
        }
        self.manifest_parts[piece.number as usize] = Some(piece.data.clone());
        if self.manifest_parts.iter().any(Option::is_none) {
            return Ok(None);
        }
        let encoded: Vec<u8> = self.manifest_parts.iter().flatten().flat_map(|part| part.to_vec()).collect();
        self.manifest_parts.fill(None);
        if *blake3::hash(&encoded).as_bytes() != self.offer.id {
            return Err(CastError::Protocol("the manifest is not the one that was offered"));
        }
        self.open(&encoded)?;
        Ok(Some(self.want()))
    }

    fn open(&mut self, encoded: &[u8]) -> Result<(), CastError> {
        match &self.destination {
            Destination::Directory { path, .. } => {
                let mut stage = Stage::open(path, &self.offer, encoded, std::mem::take(&mut self.busy))?;
                if stage.is_publishing() && !publish::is_whole(&stage, &Place::open(path)?.reopening(true)) {
                    stage.take_back()?;
                }
                if !stage.is_publishing() {
                    publish::check(&stage, &Place::open(path)?)?;
                }
                self.sink = Sink::Stage(Box::new(stage));
            }
            Destination::Pipe(_) => self.sink = Sink::Pipe(Box::new(Pipe::new(&self.offer, encoded)?)),
        }
        Ok(())
    }

    /// Whether everything is here and verified; [`finish`](Self::finish) then puts it into its place.
    pub fn is_complete(&self) -> bool {
        match &self.sink {
            Sink::None => false,
            Sink::Stage(stage) => stage.is_complete(),
            Sink::Pipe(pipe) => pipe.is_complete(),
        }
    }

    /// Passes on what has come for a pipe.
    ///
    /// # Errors
    /// Who reads it is gone.
    pub fn pump(&mut self) -> Result<(), CastError> {
        match (&mut self.sink, &mut self.destination) {
            (Sink::Pipe(pipe), Destination::Pipe(writer)) => pipe.pump(writer.as_mut(), &mut self.busy),
            _ => Ok(()),
        }
    }

    /// Puts everything into its place; the message that says so. What is kept of it remains until
    /// [`forget`](Self::forget): who dies before that has been said says it when it is started again.
    ///
    /// # Errors
    /// Something is in the way; the disk is full. What is here is kept.
    pub fn finish(&mut self) -> Result<Message, CastError> {
        match (&self.sink, &self.destination) {
            (Sink::Stage(stage), Destination::Directory { path, sync }) => {
                publish::publish(stage, path, *sync)?;
            }
            _ => self.pump()?,
        }
        let (resumed_bytes, _) = self.resumed_and_new_bytes();
        Ok(Message::Complete { cast: short(&self.offer.id), resumed_bytes })
    }

    /// Removes what is kept of a cast that is in its place, of which the sender has been told.
    ///
    /// # Errors
    /// It cannot be removed.
    pub fn forget(&self) -> Result<(), CastError> {
        if let Sink::Stage(stage) = &self.sink { stage.clear() } else { Ok(()) }
    }
}

/// Whether an offer is one to take.
pub(crate) fn check_offer(offer: &Offer) -> Result<(), CastError> {
    let refuse = |problem| Err(CastError::Protocol(problem));
    if !PIECE_SIZES.contains(&offer.piece_bytes) {
        return refuse("the size of its pieces is out of range");
    }
    if !(1..=MAX_MANIFEST_BYTES).contains(&offer.manifest_bytes) {
        return refuse("its manifest is too large");
    }
    let pieces = offer.body_bytes.div_ceil(offer.piece_bytes.into());
    if offer.body_bytes != UNKNOWN_BYTES && pieces > MAX_PIECES {
        return refuse("it is larger than this receiver can keep account of");
    }
    if !offer.group.ip().is_multicast() || offer.group.port() == 0 {
        return refuse("its group has no multicast address");
    }
    Ok(())
}

fn shifted(ranges: &[Range], by: u32) -> Vec<Range> {
    ranges.iter().map(|&(first, count)| (first.saturating_add(by), count)).collect()
}

/// One file or stream, passed on in order as it comes.
#[derive(Debug)]
struct Pipe {
    manifest: Manifest,
    body: Body,
    /// Of a stream: its last piece is here.
    ended: bool,
    next: u32,
    taken: u64,
    /// Written of the file, holes included.
    position: u64,
    hasher: Hasher,
    waiting: Vec<(u64, Bytes)>,
}

impl Pipe {
    fn new(offer: &Offer, encoded: &[u8]) -> Result<Self, CastError> {
        let manifest = Manifest::decode(encoded)?;
        let [entry] = manifest.entries.as_slice() else {
            return Err(CastError::NotOneFile { entries: manifest.entries.len() });
        };
        if !matches!(entry.kind, Kind::File { .. } | Kind::Stream) {
            return Err(CastError::NotOneFile { entries: 1 });
        }
        let body = Body::new(&manifest, offer.piece_bytes);
        if !manifest.is_stream() && body.total() != offer.body_bytes {
            return Err(CastError::Protocol("the body is not as large as its manifest says"));
        }
        let hasher = Hasher::new();
        Ok(Self { manifest, body, ended: false, next: 0, taken: 0, position: 0, hasher, waiting: Vec::new() })
    }

    fn missing(&self) -> Vec<Range> {
        let end = if self.manifest.is_stream() { u32::MAX } else { self.body.pieces() as u32 };
        if self.next < end && !self.ended { vec![(self.next, end - self.next)] } else { Vec::new() }
    }

    fn is_complete(&self) -> bool {
        self.ended || (!self.manifest.is_stream() && u64::from(self.next) == self.body.pieces())
    }

    /// Takes the piece that comes next. What it is part of is passed on before it can be verified as a
    /// whole; that the whole was damaged is said at the end.
    fn write(&mut self, number: u32, piece: &Piece) -> Result<Written, CastError> {
        if number != self.next || self.is_complete() {
            return Ok(Written::Nothing);
        }
        let stream = self.manifest.is_stream();
        let whole = self.body.piece_bytes();
        let fits = if stream {
            piece.data.len() as u64 == whole || (piece.last && (piece.data.len() as u64) < whole)
        } else {
            piece.data.len() == self.body.piece_len(number)
        };
        if !fits {
            return Err(CastError::Protocol("a piece is not as long as it has to be"));
        }
        self.hasher.update(&piece.data);
        self.next += 1;
        if stream {
            self.waiting.push((self.taken, piece.data.clone()));
            self.ended = piece.last;
        } else {
            let parts = self.body.parts(number);
            self.waiting
                .extend(parts.map(|part| (part.offset, piece.data.slice(part.at..part.at + part.len))));
        }
        self.taken += piece.data.len() as u64;
        let digest = piece.digests.first();
        if self.is_complete() && digest.is_none_or(|digest| self.hasher.finalize().as_bytes() != digest) {
            return Err(CastError::Damaged { path: self.manifest.path(0) });
        }
        Ok(Written::New)
    }

    fn pump(&mut self, writer: &mut dyn Write, busy: &mut Busy) -> Result<(), CastError> {
        let failed = || storage("write", "the stream");
        for (offset, data) in std::mem::take(&mut self.waiting) {
            self.fill(writer, offset, busy).map_err(failed())?;
            writer.write_all(&data).map_err(failed())?;
            self.position += data.len() as u64;
        }
        if self.is_complete() {
            if let Kind::File { size, .. } = self.manifest.entries[0].kind {
                self.fill(writer, size, busy).map_err(failed())?;
            }
            writer.flush().map_err(failed())?;
        }
        Ok(())
    }

    /// Writes the zeros of a hole.
    fn fill(&mut self, writer: &mut dyn Write, until: u64, busy: &mut Busy) -> std::io::Result<()> {
        while self.position < until {
            let len = (until - self.position).min(ZEROS.len() as u64);
            writer.write_all(&ZEROS[..len as usize])?;
            self.position += len;
            busy.goes_on(self.taken);
        }
        Ok(())
    }
}
