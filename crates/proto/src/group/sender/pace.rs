//! How fast packets go to the group's address: no faster than anybody served by it has said (R1), and over long paths
//! no more at once than a part of the window.
//!
//! Inputs → outputs: what the sessions with members let go, window, round trip, time, what was sent → what may go now.
//! A member's rate is for all that comes from this side, so it is its session's credit that counts, and that is spent.
//! Who has told a rate is looked for anew with each review. Source: R1–R4, M6; `spec/protocol.md` §14.5. Who is served
//! by a session is paced there.

use super::Sender;
use crate::event::PeerId;
use crate::group::Host;
use crate::group::member::{Member, Path};
use crate::pacing::{Pacer, Spread};
use crate::rate::Rate;
use core::time::Duration;
use denrei_wire::Instant;

/// Who lets nothing come for longer than this may be dead by then.
const LONG: Duration = Duration::from_millis(500);

/// The pace of what goes to the group's address.
#[derive(Debug)]
pub(super) struct Pace {
    /// Those served by it who have told a rate.
    limited: Vec<PeerId>,
    /// What a long path is spared.
    pub spread: Option<Spread>,
    pacer: Pacer,
    /// Octets that may go, as of the last look.
    room: u64,
    /// Whether a member lets nothing go.
    is_limiting: bool,
    /// When there is some again, if there was none.
    opens_at: Instant,
    /// Whether that was long after the last look.
    stands: bool,
}

impl Default for Pace {
    /// As fast as may be, until a member speaks.
    fn default() -> Self {
        Self {
            limited: Vec::new(),
            spread: None,
            pacer: Pacer::default(),
            room: u64::MAX,
            is_limiting: false,
            opens_at: Instant::FAR_FUTURE,
            stands: false,
        }
    }
}

impl Pace {
    /// Looks what may go now.
    pub fn look(&mut self, now: Instant, host: &mut dyn Host) {
        (self.room, self.opens_at) = (u64::MAX, Instant::FAR_FUTURE);
        let mut all_open_at = Instant::ZERO;
        for peer in &self.limited {
            match host.rate_room(now, *peer) {
                Ok(room) => self.room = self.room.min(room),
                Err(opens_at) => (self.room, all_open_at) = (0, all_open_at.max(opens_at)),
            }
        }
        self.is_limiting = self.is_shut();
        self.stands = self.is_limiting && is_long(now, all_open_at);
        match self.pacer.room(now, self.spread) {
            Ok(room) => self.room = self.room.min(room),
            Err(opens_at) => (self.room, all_open_at) = (0, all_open_at.max(opens_at)),
        }
        if self.is_shut() {
            self.opens_at = all_open_at;
        }
    }

    /// Octets that may go, as of the last look.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Whether nothing may go but questions.
    pub fn is_shut(&self) -> bool {
        self.room == 0
    }

    /// Whether a member let nothing go as of the last look.
    pub fn waits_for_rate(&self) -> bool {
        self.is_limiting
    }

    /// Whether a member let nothing go as of the last look, though by now nobody limits it.
    pub fn is_shut_in_vain(&self, host: &dyn Host) -> bool {
        self.is_limiting && self.limited.iter().all(|peer| host.rate(*peer).is_unlimited())
    }

    /// Whether nothing may go for long, or until a member says so.
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// When something may go again, if nothing may.
    pub fn opens_at(&self) -> Instant {
        self.opens_at
    }

    /// Takes note of octets sent.
    pub fn spend(&mut self, now: Instant, octets: u64, host: &mut dyn Host) {
        self.limited.iter().for_each(|peer| host.spend_rate(now, *peer, octets));
        self.pacer.on_sent(octets);
        self.look(now, host);
    }
}

impl Sender {
    /// A member has set how fast this side may send.
    pub fn on_rate(&mut self, now: Instant, index: usize, rate: Rate) {
        self.add_up_waiting(now);
        self.note_stop(now, index, rate);
        self.catch_up(index);
        self.review_at = now;
    }

    /// Looks for those served by the group's address who have told a rate.
    pub(super) fn choose_pace(&mut self, now: Instant, host: &mut dyn Host) {
        self.pace.limited.clear();
        for index in 0..self.members.len() {
            let member = &self.members[index];
            if is_served(member) {
                let (peer, rate) = (member.peer, host.rate(member.peer));
                self.note_stop(now, index, rate);
                self.pace.limited.extend((!rate.is_unlimited()).then_some(peer));
            }
        }
        self.pace.look(now, host);
    }

    /// Notes whether a member lets nothing come. If so, it may hold the others up from now on.
    fn note_stop(&mut self, now: Instant, index: usize, rate: Rate) {
        let stopped = rate.bytes_per_s == 0;
        if stopped != self.members[index].stopped {
            let held_up = self.holds_up(&self.members[index]);
            let mut member = self.members.edit(index);
            member.stopped = stopped;
            member.progress_at = if held_up { member.progress_at } else { now };
        }
    }

    /// Whether what waits for the group's address waits for this member, which lets nothing come.
    pub(super) fn stops(&self, member: &Member) -> bool {
        member.stopped && is_served(member) && self.has_packets()
    }

    /// Whether what waits for the group's address waits for this member for long, as it lets nothing come, or next to
    /// nothing.
    pub(super) fn is_kept_by(&self, now: Instant, member: &Member, host: &mut dyn Host) -> bool {
        let mut is_slow = || host.rate_room(now, member.peer).is_err_and(|opens_at| is_long(now, opens_at));
        self.pace.stands() && is_served(member) && self.has_packets() && is_slow()
    }
}

fn is_long(now: Instant, until: Instant) -> bool {
    now + LONG < until
}

fn is_served(member: &Member) -> bool {
    member.is_active() && member.path == Path::Multicast
}
