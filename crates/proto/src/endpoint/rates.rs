//! Rates that this host learns: notices that it is overrun, and from then on sets them.
//!
//! Inputs → outputs: what each arriving packet tells of the pace, time → RATE for the peers that the
//! application has set none for. Source: R10–R13; `spec/protocol.md` §13.7. The policy is in
//! `rate/manager.rs`; whether it is used, [`Config::learn_rates`](crate::Config::learn_rates) says.

use super::Endpoint;
use super::pace::{ASSUMED_BUFFER_BYTES, CALM, Mode};
use crate::event::PeerId;
use crate::group::GroupId;
use crate::peer::PaceNote;
use crate::rate::{Heard, HostLimit, HostRecord, Manager, Taken, host_share};
use core::time::Duration;
use denrei_wire::Instant;

impl Endpoint {
    /// This side was overrun: from now on, all who send are told how fast, but those whom the
    /// application has told.
    pub(super) fn manage(&mut self, now: Instant) {
        self.counters.overruns += 1;
        let manager = self.new_manager(now, Manager::new);
        self.begin_managing(manager);
    }

    /// What this endpoint says of itself to the others of its host, but for its name, for a driver that passes it on
    /// ([`share_host`](Self::share_host)).
    pub fn host_record(&self, now: Instant) -> HostRecord {
        match &self.pace.mode {
            Mode::Managing(manager) => manager.host_record(now),
            _ => HostRecord::default(),
        }
    }

    /// What the other endpoints of this host say of themselves, what the host can receive in all if that is known (R10,
    /// R13; [`HostCapacity`](crate::HostCapacity)), and how many datagrams the sockets have had no room for so far. Has an
    /// effect if [`Config::learn_rates`](crate::Config::learn_rates) is on; call it every few milliseconds while
    /// anything comes.
    pub fn share_host(
        &mut self,
        now: Instant,
        limit: Option<HostLimit>,
        others: &[HostRecord],
        overflows: u64,
    ) {
        if !self.config.learn_rates {
            return;
        }
        if matches!(self.pace.mode, Mode::Free) {
            let manager = self.new_manager(now, Manager::of_shared_host);
            self.begin_managing(manager);
        }
        if let Mode::Managing(manager) = &mut self.pace.mode {
            // Most have come since the manager was made, and limits are waited for as long as theirs takes.
            let peer = |slot: u32| self.slots[slot as usize].peer.as_deref();
            let rtt = manager.peers().filter_map(|slot| peer(slot)?.min_rtt()).max();
            manager.set_rtt(rtt.unwrap_or_default());
            let share = host_share(limit, manager.host_record(now), others);
            let is_learnt = limit.is_some_and(|limit| limit.is_learnt);
            manager.share_host(now, share, is_learnt, overflows);
        }
    }

    fn begin_managing(&mut self, manager: Manager) {
        self.pace.look_at = Some(manager.deadline());
        self.pace.mode = Mode::Managing(Box::new(manager));
    }

    fn new_manager(&self, now: Instant, new: fn(Instant, u64, Duration, Taken) -> Manager) -> Manager {
        let buffer = self.pace.buffer.unwrap_or(ASSUMED_BUFFER_BYTES);
        let peers = self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            Some((slot as u32, entry.peer.as_deref().filter(|peer| peer.is_alive())?))
        });
        let rtt = peers.clone().filter_map(|(_, peer)| peer.min_rtt()).max().unwrap_or(Duration::ZERO);
        let mut manager = new(now, buffer, rtt, self.pace.taken);
        for (slot, peer) in peers.filter(|(_, peer)| peer.is_paced()) {
            manager.set_fixed(slot, peer.weight, true);
        }
        manager
    }

    /// Takes in what a packet told while rates are learnt; of what is missing, what was no probe of the path's size.
    pub(super) fn note_rates(&mut self, now: Instant, slot: u32, note: PaceNote) {
        let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() else { return };
        if note.request.is_some() {
            // There are rates here, and no grants.
            peer.tell_limit(None, now);
        }
        let Mode::Managing(manager) = &mut self.pace.mode else { return };
        manager.on_packet(now, slot, peer.weight, Heard { data: note.data, missing: note.missing });
        if manager.deadline() <= now || note.request.is_some() {
            self.set_learnt_rates(now);
            self.after(now, slot);
        }
    }

    /// A packet of a group has come: it is its opener's, as what comes by the session is.
    pub(super) fn note_group(&mut self, now: Instant, group: GroupId, octets: usize) {
        let Mode::Managing(manager) = &mut self.pace.mode else { return };
        let opener = self.groups.as_deref().and_then(|groups| groups.opener(group));
        let Some(PeerId { slot, .. }) = opener else { return };
        let Some(peer) = self.slots[slot as usize].peer.as_deref().filter(|peer| Some(peer.id) == opener)
        else {
            return;
        };
        manager.on_packet(now, slot, peer.weight, Heard { data: octets as u64, missing: 0 });
        if manager.deadline() <= now {
            self.set_learnt_rates(now);
        }
    }

    /// Time has come to `now`.
    pub(super) fn set_learnt_rates(&mut self, now: Instant) {
        let Mode::Managing(manager) = &mut self.pace.mode else { return };
        let calm = now.saturating_since(manager.heard_at()) >= CALM;
        let told = if calm { manager.release() } else { manager.look(now, self.pace.taken) };
        let next = manager.deadline().max(now + Manager::INTERVAL);
        // A quiet host is not woken until it is time to stop.
        self.pace.look_at = Some(if manager.is_quiet() { manager.heard_at() + CALM } else { next });
        let heard_by = now + self.config.failure_timeout;
        for (slot, rate) in told {
            if let Some(peer) = self.slots[slot as usize].peer.as_deref_mut() {
                peer.set_rate(rate, heard_by);
                self.after(now, slot);
            }
        }
        if calm {
            (self.pace.mode, self.pace.look_at) = (Mode::Free, None);
        }
    }

    /// The application has set the rate of the peer in `slot`.
    pub(super) fn leave_rate(&mut self, slot: u32) {
        let Some(peer) = self.slots[slot as usize].peer.as_deref() else { return };
        if let Mode::Managing(manager) = &mut self.pace.mode {
            manager.set_fixed(slot, peer.weight, peer.is_paced());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Rate};
    use std::sync::Arc;

    #[test]
    fn whatever_other_nodes_say_of_themselves_there_is_a_share() {
        let config = Config { learn_rates: true, ..Config::default() };
        let mut endpoint = Endpoint::new(Arc::new(config), 1, Instant::ZERO);
        let most = HostRecord {
            weight: u64::MAX,
            senders: u64::MAX,
            bytes_per_s: u64::MAX,
            held_back: true,
            ..HostRecord::default()
        };
        let rate = Rate { bytes_per_s: u64::MAX, burst_bytes: u64::MAX };
        let limit = HostLimit { rate, is_learnt: true };
        endpoint.share_host(Instant::ZERO, Some(limit), &[most; 3], u64::MAX);
        assert!(matches!(endpoint.pace.mode, Mode::Managing(_)));
        assert_eq!(endpoint.host_record(Instant::ZERO), HostRecord::default());
    }
}
