//! How fast packets go to the group's address: no faster than anybody served by it has said (R1).
//!
//! Inputs → outputs: the rates that members have set for this side, time, what was sent → what may go now. The
//! least of them is kept: it is lowered when a lower one is told, and looked for anew with each review. Source:
//! R1–R4, M6; `spec/protocol.md` §14.5. Who is served by a session is paced there.

use super::Sender;
use crate::group::Host;
use crate::group::member::{Member, Path};
use crate::rate::{PacedCredit, Rate};
use denrei_wire::Instant;

/// The pace of what goes to the group's address.
#[derive(Debug)]
pub(super) struct Pace {
    credit: PacedCredit,
    /// Octets that may go, as of the last look.
    room: u64,
    /// When there is some again, if there was none.
    opens_at: Instant,
}

impl Pace {
    /// As fast as may be, until a member speaks.
    pub fn new(now: Instant) -> Self {
        let credit = PacedCredit::new(now, Rate::UNLIMITED);
        Self { credit, room: u64::MAX, opens_at: Instant::FAR_FUTURE }
    }

    /// Looks what may go now.
    pub fn look(&mut self, now: Instant) {
        self.room = self.credit.room(now).unwrap_or(u64::MAX);
        let opens_at = if self.is_shut() { self.credit.open_at() } else { None };
        self.opens_at = opens_at.unwrap_or(Instant::FAR_FUTURE);
    }

    /// Octets that may go, as of the last look.
    pub fn room(&self) -> u64 {
        self.room
    }

    /// Whether nothing may go but questions.
    pub fn is_shut(&self) -> bool {
        self.room == 0
    }

    /// When something may go again, if nothing may.
    pub fn opens_at(&self) -> Instant {
        self.opens_at
    }

    fn set(&mut self, now: Instant, rate: Rate) {
        if rate != self.credit.rate() {
            self.credit.set(now, rate);
            self.look(now);
        }
    }

    pub fn spend(&mut self, now: Instant, octets: u64) {
        self.credit.spend(now, octets);
        if !self.credit.rate().is_unlimited() {
            self.look(now);
        }
    }
}

impl Sender {
    /// A member has set how fast this side may send.
    pub fn on_rate(&mut self, now: Instant, index: usize, rate: Rate) {
        if !is_served(&self.members[index]) {
            return;
        }
        let least = self.pace.credit.rate().least(rate);
        if least != self.pace.credit.rate() {
            self.pace.set(now, least);
        } else if self.pace.is_shut() {
            // It may have been the one that all wait for.
            self.review_at = now;
        }
    }

    /// Looks for the least rate of those served by the group's address.
    pub(super) fn choose_pace(&mut self, now: Instant, host: &mut dyn Host) {
        let rates =
            self.members.iter().filter(|member| is_served(member)).map(|member| host.rate(member.peer));
        let least = rates.fold(Rate::UNLIMITED, Rate::least);
        self.pace.set(now, least);
    }
}

fn is_served(member: &Member) -> bool {
    member.is_active() && member.path == Path::Multicast
}
