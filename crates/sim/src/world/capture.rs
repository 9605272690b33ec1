//! A wiretap: keeps some of the datagrams of a run, to be replayed or forged from.
//!
//! Inputs → outputs: every datagram sent → a bounded sample, in which those that open sessions are
//! always kept and others replace each other.

use crate::net::topology::HostId;
use core::net::SocketAddr;
use denrei_wire::packet::Kind;
use std::collections::VecDeque;

/// Openings and resets kept; the oldest give way.
const OPENINGS: usize = 16;
/// Other datagrams kept; the oldest give way.
const OTHERS: usize = 32;
/// Every how many-th of the others is kept: enough for a mixture, cheap enough for a long run.
const STRIDE: u64 = 7;

/// A datagram overheard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub to: HostId,
    /// What.
    pub bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Capture {
    enabled: bool,
    seen: u64,
    openings: VecDeque<Captured>,
    others: VecDeque<Captured>,
}

impl Capture {
    pub fn enable(&mut self) {
        self.enabled = true;
    }

    pub fn offer(&mut self, source: SocketAddr, to: HostId, bytes: &[u8]) {
        if !self.enabled {
            return;
        }
        let kind = bytes.first().and_then(|&octet| Kind::from_octet(octet));
        let opening = kind.is_some_and(|kind| kind != Kind::Session);
        self.seen += !opening as u64;
        let (kept, most) = if opening { (&mut self.openings, OPENINGS) } else { (&mut self.others, OTHERS) };
        if !opening && !self.seen.is_multiple_of(STRIDE) {
            return;
        }
        if kept.len() == most {
            kept.pop_front();
        }
        kept.push_back(Captured { source, to, bytes: bytes.to_vec() });
    }

    pub fn get(&self, index: usize) -> Option<&Captured> {
        let kept = self.openings.len() + self.others.len();
        let index = index.checked_rem(kept)?;
        self.openings.get(index).or_else(|| self.others.get(index - self.openings.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openings_are_kept_and_the_sample_is_bounded() {
        let mut capture = Capture::default();
        let source = HostId(0).addr();
        capture.offer(source, HostId(1), &[Kind::First as u8]);
        assert_eq!(capture.get(0), None, "nothing is kept before it is asked for");
        capture.enable();
        capture.offer(source, HostId(1), &[Kind::First as u8, 1]);
        for _ in 0..10_000 {
            capture.offer(source, HostId(1), &[Kind::Session as u8]);
        }
        assert_eq!(capture.get(0).unwrap().bytes, [Kind::First as u8, 1]);
        assert_eq!(capture.openings.len() + capture.others.len(), 1 + OTHERS);
        assert!(capture.get(usize::MAX).is_some(), "any index is one");
    }
}
