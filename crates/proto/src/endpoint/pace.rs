//! When many send at once: notices that they overrun this host, and from then on grants.
//!
//! Inputs → outputs: what each arriving packet tells of the pace → limits for all peers.
//! Source: S11, R10; `spec/protocol.md` §13.4. The policy is in `rate/grants.rs`.
//!
//! As long as nothing is lost nobody is told a limit, and this costs a comparison per packet.

use super::Endpoint;
use crate::rate::Grants;
use core::time::Duration;
use denrei_wire::Instant;

/// Octets that a socket is taken to hold if nobody has told: Linux' default.
const ASSUMED_BUFFER_BYTES: u64 = 208 * 1024;
/// Losses of several peers within this time are one host's affair, not a path's.
const COINCIDENCE: Duration = Duration::from_millis(20);
/// Packets missing from which on it is taken for more than chance or a probe of the path.
const LEAST_MISSING: u64 = 4;
/// A crowd that has been quiet for so long has gone home.
const CALM: Duration = Duration::from_secs(30);

/// What one packet told of the pace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaceNote {
    /// Octets of the packet if it held data, else 0.
    pub data: u64,
    /// GRANT_REQUEST: sent and wanted.
    pub request: Option<(u32, u32)>,
    /// Packets missing right before it.
    pub missing: u64,
}

/// The pace of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Pace {
    grants: Option<Box<Grants>>,
    /// Who missed packets last, when the counting began, and how many.
    missing: Option<(u32, Instant, u64)>,
    /// Octets that the socket holds, if known.
    buffer: Option<u64>,
    /// When to look for grants that nothing came of.
    look_at: Option<Instant>,
    busy_at: Instant,
}

impl Endpoint {
    /// Tells how many octets of datagrams the socket holds that are not read yet.
    pub fn set_receive_buffer(&mut self, octets: u64) {
        self.pace.buffer = Some(octets);
    }

    /// Takes in what a packet told.
    pub(super) fn follow_pace(&mut self, now: Instant, slot: u32, note: PaceNote) {
        if self.pace.grants.is_none() && note.request.is_none() && note.missing == 0 {
            return;
        }
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        if !peer.is_alive() || !peer.is_proven() {
            return;
        }
        let (weight, received) = (peer.weight, peer.data_received());
        if self.pace.grants.is_none() {
            if note.request.is_some() {
                peer.tell_limit(None);
                self.after(now, slot);
            }
            if note.missing > 0 && self.is_overrun(now, slot, note.missing) {
                self.govern(now);
            }
            return;
        }
        let Some(grants) = self.pace.grants.as_deref_mut() else { return };
        if note.data > 0 && !grants.knows(slot) {
            grants.admit(now, slot, weight, received);
        } else if note.data > 0 {
            grants.on_data(now, slot, note.data);
        }
        if let Some((sent, wanted)) = note.request {
            grants.on_request(now, slot, sent, wanted);
        }
        if grants.is_busy() {
            self.pace.busy_at = now;
        }
        self.grant(now);
    }

    /// Whether losses of several peers coincide.
    fn is_overrun(&mut self, now: Instant, slot: u32, missing: u64) -> bool {
        match &mut self.pace.missing {
            Some((other, since, count)) if now.saturating_since(*since) <= COINCIDENCE => {
                *count += missing;
                *other != slot && *count >= LEAST_MISSING
            }
            entry => {
                *entry = Some((slot, now, missing));
                false
            }
        }
    }

    /// From now on, all who send are told how much.
    fn govern(&mut self, now: Instant) {
        let buffer = self.pace.buffer.unwrap_or(ASSUMED_BUFFER_BYTES);
        let mut grants = Box::new(Grants::new(now, buffer));
        for (slot, entry) in self.slots.iter().enumerate() {
            if let Some(peer) = entry.peer.as_deref().filter(|peer| peer.is_proven() && peer.is_alive()) {
                grants.admit_later(slot as u32, peer.weight, peer.data_received());
            }
        }
        self.counters.crowds += 1;
        self.pace.grants = Some(grants);
        self.pace.missing = None;
        self.pace.busy_at = now;
        self.grant(now);
    }

    /// Hands out what there is room for.
    fn grant(&mut self, now: Instant) {
        let Some(mut grants) = self.pace.grants.take() else { return };
        grants.distribute(now);
        while let Some(slot) = grants.take_changed() {
            let limit = grants.limit(slot);
            if let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() {
                peer.tell_limit(limit);
                self.after(now, slot);
            }
        }
        let deadline = grants.deadline();
        if self.pace.look_at.is_none() || deadline.is_none() {
            self.pace.look_at = deadline.map(|patience| now + patience).or(Some(now + CALM));
        }
        self.pace.grants = Some(grants);
    }

    /// Time has come to `now`.
    pub(super) fn handle_pace_timeout(&mut self, now: Instant) {
        if self.pace.look_at.is_none_or(|at| at > now) {
            return;
        }
        self.pace.look_at = None;
        let Some(grants) = self.pace.grants.as_deref_mut() else { return };
        if now.saturating_since(self.pace.busy_at) >= CALM && !grants.is_busy() {
            // Who still has a limit is told otherwise when it asks.
            self.pace.grants = None;
            return;
        }
        grants.admit_all(now);
        grants.reclaim(now);
        self.grant(now);
    }

    /// When [`handle_pace_timeout`](Self::handle_pace_timeout) is due.
    pub(super) fn pace_deadline(&self) -> Option<Instant> {
        self.pace.look_at
    }

    /// The peer in `slot` is gone, or begins anew.
    pub(super) fn forget_pace(&mut self, slot: u32) {
        if let Some(grants) = &mut self.pace.grants {
            grants.forget(slot);
        }
    }
}
