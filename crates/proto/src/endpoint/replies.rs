//! Answers that need no state: RESET, VERSIONS and RETRY.
//!
//! Inputs → outputs: what to answer to whom → packets no larger than what they answer. Bounded:
//! when [`MAX_WAITING`] wait, further ones are suppressed, so a flood is not reflected.

use crate::seal::{Check, Cookie};
use denrei_wire::packet::{self, Kind, VERSION};
use denrei_wire::{Ecn, PacketNumber, Token, Transmit, TransmitBuf, Way};
use std::collections::VecDeque;

/// Answers that may wait to be sent.
const MAX_WAITING: usize = 64;

/// An answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reply {
    pub back: Way,
    /// Of what it answers.
    pub token: Token,
    pub says: Says,
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// No session has this token.
    Reset,
    /// What versions are spoken here.
    Versions,
    /// Open again and show this cookie.
    Retry { cookie: Cookie, check: Check },
}

/// Answers that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: VecDeque<Reply>,
}

impl Replies {
    /// Queues an answer, once; whether there was room.
    pub fn push(&mut self, reply: Reply) -> bool {
        if self.waiting.contains(&reply) {
            return true;
        }
        let room = self.waiting.len() < MAX_WAITING;
        if room {
            self.waiting.push_back(reply);
        }
        room
    }

    /// Takes over the answers that wait elsewhere; how many there was no room for.
    pub fn absorb(&mut self, other: &mut Self) -> u64 {
        other.waiting.drain(..).map(|reply| !self.push(reply) as u64).sum()
    }

    /// Whether no answer waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Writes the next answer into the empty `out`.
    pub fn write(&mut self, out: &mut TransmitBuf) -> Option<Transmit> {
        let Reply { back, token, says } = self.waiting.pop_front()?;
        let header = |kind| packet::common_header(kind, 0, PacketNumber(0), token);
        match says {
            Says::Reset => {
                out.put(&header(Kind::Reset));
                put_checksum(out);
            }
            Says::Versions => {
                out.put(&header(Kind::Versions));
                out.put(&[VERSION]);
                put_checksum(out);
            }
            Says::Retry { cookie, check } => {
                out.put(&header(Kind::Retry));
                out.put(&cookie);
                out.put(&check);
            }
        }
        let Way { to, from } = back;
        Some(Transmit { to, from, len: out.len(), segment_size: None, ecn: Ecn::NotEct })
    }
}

fn put_checksum(out: &mut TransmitBuf) {
    let crc = out.checksum(0);
    out.put(&crc.to_le_bytes());
}
