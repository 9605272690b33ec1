//! What protects the packets of one session, from the first to the last.
//!
//! Inputs → outputs: packets built → the same with their trailer, sealed if there is a key; packets
//! received → their frames, or why not. The rest of a session does not know which of the two modes it
//! is in. Source: `spec/protocol.md` §3.6, §3.7, §12.

use super::aead::PacketKey;
use super::handshake::{Initiator, Refused, Secrets};
use super::session::{SessionKeys, Unopened};
use super::staged::{OpenJob, Opened};
use denrei_wire::checksum::{self, CHECKSUM_BYTES};
use denrei_wire::packet::{COMMON_HEADER_BYTES, Header, Kind, OPENING_HEADER_BYTES, TAG_BYTES, flags};
use denrei_wire::{Instant, TransmitBuf};

/// How the packets of a session are protected.
#[derive(Debug)]
pub(crate) enum Protection {
    /// A CRC-32C against accidents.
    Plain,
    /// This side has opened and was not answered yet.
    Opening(Box<Opening>),
    /// This side has answered; whom, is not proven yet.
    Answering(Box<Answering>),
    /// Both have the session's keys.
    Open(Box<SessionKeys>),
}

/// The side that opens.
pub(crate) struct Opening {
    initiator: Initiator,
    /// The handshake field that was answered with, and the keys that follow, until a packet under
    /// them was opened.
    answered: Option<(Box<[u8]>, SessionKeys)>,
}

/// The side that answers.
pub(crate) struct Answering {
    early: PacketKey,
    field: Box<[u8]>,
    keys: SessionKeys,
}

impl Protection {
    /// For FIRSTs.
    pub fn opening(initiator: Initiator) -> Self {
        Self::Opening(Box::new(Opening { initiator, answered: None }))
    }

    /// For ANSWERs with handshake field `field`, to FIRSTs under `early`.
    pub fn answering(early: PacketKey, field: Box<[u8]>, secrets: Secrets) -> Self {
        Self::Answering(Box::new(Answering { early, field, keys: SessionKeys::new(secrets, false) }))
    }

    /// Whether packets are sealed.
    pub fn is_sealed(&self) -> bool {
        !matches!(self, Self::Plain)
    }

    /// Octets at the end of every packet.
    pub fn trailer_bytes(&self) -> usize {
        if self.is_sealed() { TAG_BYTES } else { CHECKSUM_BYTES }
    }

    /// What FIRST and ANSWER carry in their handshake field.
    pub fn handshake(&self) -> &[u8] {
        match self {
            Self::Plain | Self::Open(_) => &[],
            Self::Opening(opening) => &opening.initiator.field,
            Self::Answering(answering) => &answering.field,
        }
    }

    /// The flags that tell the receiver of packet `number` which key it needs. Changes the key when
    /// that is due.
    pub fn flags_for(&mut self, number: u64, max_packets: u64) -> u16 {
        let Self::Open(keys) = self else { return 0 };
        if keys.send.phase_for(number, max_packets) { flags::KEY_PHASE } else { 0 }
    }

    /// Whether the peer should be asked for a sign that it knows the current key.
    pub fn wants_confirmation(&self, max_packets: u64) -> bool {
        matches!(self, Self::Open(keys) if keys.send.wants_confirmation(max_packets))
    }

    /// The peer has acknowledged packet `number`.
    pub fn on_acked(&mut self, number: u64) {
        if let Self::Open(keys) = self {
            keys.send.on_acked(number);
        }
    }

    /// Completes packet `number`, which starts at `start` of `out` and ends where `out` ends.
    pub fn seal(&mut self, number: u64, header_len: usize, start: usize, out: &mut TransmitBuf) {
        let tag = match self {
            Self::Plain => {
                let crc = out.checksum(start);
                return out.put(&crc.to_le_bytes());
            }
            Self::Opening(opening) => {
                let (header, frames) = out.tail_mut(start).split_at_mut(header_len);
                opening.initiator.early.seal(number, header, frames)
            }
            Self::Answering(answering) => return answering.keys.send.seal(number, header_len, start, out),
            Self::Open(keys) => return keys.send.seal(number, header_len, start, out),
        };
        out.put(&tag);
    }

    /// Opens packet `number` in place: its frames.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        header: &Header,
        number: u64,
        header_len: usize,
        datagram: &'a mut [u8],
    ) -> Result<&'a [u8], Unopened> {
        let phase = header.flags & flags::KEY_PHASE != 0;
        let keys = match (self, header.kind) {
            (Self::Plain, _) => return open_plain(header, header_len, datagram),
            (Self::Answering(answering), Kind::First) => {
                let (header, sealed) = datagram.split_at_mut(header_len);
                return answering.early.open(number, header, sealed).ok_or(Unopened::NotGenuine);
            }
            (Self::Opening(opening), Kind::Answer) => {
                opening.keys(header, &datagram[OPENING_HEADER_BYTES..header_len])?
            }
            (Self::Answering(answering), Kind::Session) => &mut answering.keys,
            (Self::Open(keys), Kind::Session | Kind::Answer) => keys,
            // A SESSION packet that overtook the ANSWER, or a FIRST after the proof, whose key is
            // gone: what they carry is sent again.
            _ => return Err(Unopened::NotGenuine),
        };
        let (header, sealed) = datagram.split_at_mut(header_len);
        keys.recv.open(now, phase, number, header, sealed)
    }

    /// What opens packet `number` of an open session, in another place.
    pub fn open_job(&self, header: &Header, number: u64, header_len: usize) -> Option<OpenJob> {
        let Self::Open(keys) = self else { return None };
        let key = keys.recv.key_of_phase(header.flags & flags::KEY_PHASE != 0)?;
        Some(OpenJob::new(key, number, header_len))
    }

    /// Takes note of what an [`OpenJob`] has come to.
    pub fn take_opened(&mut self, opened: &Opened) -> Result<(), Unopened> {
        match self {
            Self::Open(keys) => keys.recv.take_opened(opened.key(), opened.number(), opened.is_genuine()),
            // The session was opened anew meanwhile.
            _ => Err(Unopened::NotGenuine),
        }
    }

    /// The other side has used the session's keys: there is nothing left to shake hands about.
    pub fn on_proven(&mut self) {
        *self = match core::mem::replace(self, Self::Plain) {
            Self::Opening(opening) => match opening.answered {
                Some((_, keys)) => Self::Open(Box::new(keys)),
                None => Self::Opening(opening),
            },
            Self::Answering(answering) => Self::Open(Box::new(answering.keys)),
            protection @ (Self::Plain | Self::Open(_)) => protection,
        };
    }

    /// Time has come to `now`: forgets keys whose time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        if let Self::Open(keys) = self {
            keys.recv.forget_previous(now);
        }
    }
}

/// A plain packet has one key, which is none, and no handshake.
fn open_plain<'a>(header: &Header, header_len: usize, datagram: &'a [u8]) -> Result<&'a [u8], Unopened> {
    let bare = if header.opening.is_some() { OPENING_HEADER_BYTES } else { COMMON_HEADER_BYTES };
    if header.flags & flags::KEY_PHASE != 0 || header_len != bare || !checksum::verify(datagram) {
        return Err(Unopened::NotGenuine);
    }
    Ok(&datagram[header_len..datagram.len() - CHECKSUM_BYTES])
}

impl Opening {
    /// The session's keys, as far as this ANSWER's handshake leads to any.
    fn keys(&mut self, header: &Header, field: &[u8]) -> Result<&mut SessionKeys, Unopened> {
        let known = self.answered.as_ref().is_some_and(|(answered, _)| **answered == *field);
        if !known {
            let responder = header.opening.ok_or(Unopened::NotGenuine)?;
            let secrets = self.initiator.finish(responder, field).map_err(|refused| match refused {
                Refused::Forged => Unopened::NotGenuine,
                Refused::Stranger => Unopened::Stranger,
            })?;
            self.answered = Some((field.into(), SessionKeys::new(secrets, true)));
        }
        let (_, keys) = self.answered.as_mut().expect("it is known, or was made just now");
        Ok(keys)
    }
}

impl core::fmt::Debug for Opening {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Opening(secret)")
    }
}

impl core::fmt::Debug for Answering {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Answering(secret)")
    }
}
